/* Matrix products for training model N.
 *
 * $NESTSMITH_OPENBLAS names the library (empty: none), else the loader's libopenblas.so.0 is opened at the first product.
 * Without one the product is computed here. Strips of 16 columns of b are copied side by side. 6 rows of a are multiplied with a
 * strip at a time, so that the sums stay in registers. The code is compiled a second time for x86 with AVX2. That version has no
 * fused multiply-adds, so its results are the same. OpenBLAS adds in another order; its results differ by rounding.
 *
 * BLAS has internal locks. A fork during a product would leave them locked in the child, so fork_hold() delays forks.
 */
#include "model/product.h"
#include "base/base.h"
#include "base/object.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef MLP_DOUBLE
#define GEMM "cblas_dgemm"
#else
#define GEMM "cblas_sgemm"
#endif

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 }; /* CBLAS: values that its standard fixes */
typedef struct {
  const char *name; /* NULL: none was found */
  void (*gemm)(int order, int ta, int tb, int m, int n, int k, Real alpha, const Real *a, int lda, const Real *b,
               int ldb, Real beta, Real *c, int ldc);
  void (*set_threads)(int n);
  bool wide; /* this processor has AVX2 */
} Blas;

static Blas blas; /* written once, by open_blas */
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void open_blas(void) {
  static const LibSymbol SYMBOLS[] = {{offsetof(Blas, gemm), GEMM},
                                      {offsetof(Blas, set_threads), "openblas_set_num_threads"}};
  const char *named = getenv("NESTSMITH_OPENBLAS");
  const char *name = named ? named : "libopenblas.so.0";
#if defined(__x86_64__)
  blas.wide = __builtin_cpu_supports("avx2") != 0;
#endif
  void *lib = *name ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!lib) return;
  if (lib_symbols(lib, NS_COUNT(SYMBOLS), SYMBOLS, &blas)) {
    dlclose(lib); /* another BLAS under that name */
    return;
  }
  blas.name = name;
}
static const Blas *the_blas(void) {
  pthread_once(&opened, open_blas);
  return &blas;
}

/* ---- the product in plain C ---- */
enum { LANES = 32 / sizeof(Real), COLS = 2 * LANES, ROWS = 6, DEPTH = 256 };
typedef Real Lanes __attribute__((vector_size(32)));
typedef struct {
  Lanes at[2];
} Strip;
typedef struct {
  int m, n, k;
  const Real *a, *b;
  Real *c;
  size_t a_row, a_col, b_row, b_col; /* distances of neighbours */
} Product;

/* Rows i .. i + ROWS of c, columns j .. j + COLS, terms from .. from + depth; strip: those of b, zeros behind its last column. */
static inline __attribute__((always_inline)) void block(const Product *p, int i, int j, int from, int depth,
                                                        const Strip *strip) {
  Strip sum[ROWS] = {0};
  const Real *row[ROWS];
  for (int r = 0; r < ROWS; r++) /* behind the last row: the last one again, whose sums are not stored */
    row[r] = p->a + (size_t)(i + r < p->m ? i + r : p->m - 1) * p->a_row + (size_t)from * p->a_col;
  for (int q = 0; q < depth; q++)
    for (int r = 0; r < ROWS; r++) {
      Real x = row[r][(size_t)q * p->a_col];
      sum[r].at[0] += x * strip[q].at[0], sum[r].at[1] += x * strip[q].at[1];
    }
  int cols = p->n - j < COLS ? p->n - j : COLS;
  for (int r = 0; r < ROWS && i + r < p->m; r++) {
    Real *to = p->c + (size_t)(i + r) * (size_t)p->n + (size_t)j, value[COLS];
    memcpy(value, &sum[r], sizeof value);
    for (int x = 0; x < cols; x++) to[x] += value[x];
  }
}

static inline __attribute__((always_inline)) void multiply(const Product *p) {
  Strip strip[DEPTH];
  for (int from = 0; from < p->k; from += DEPTH)
    for (int j = 0; j < p->n; j += COLS) {
      int depth = p->k - from < DEPTH ? p->k - from : DEPTH;
      for (int q = 0; q < depth; q++) {
        Real value[COLS] = {0};
        for (int x = 0; x < COLS && j + x < p->n; x++)
          value[x] = p->b[(size_t)(from + q) * p->b_row + (size_t)(j + x) * p->b_col];
        memcpy(&strip[q], value, sizeof value);
      }
      for (int i = 0; i < p->m; i += ROWS) block(p, i, j, from, depth, strip);
    }
}

static void multiply_any(const Product *p) { multiply(p); }
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void multiply_wide(const Product *p) { multiply(p); }
#else
#define multiply_wide multiply_any
#endif

/* ---- both ---- */
void product_add(bool ta, bool tb, int m, int n, int k, const Real *a, const Real *b, Real *c) {
  const Blas *l = the_blas();
  int lda = ta ? m : k, ldb = tb ? k : n;
  if (l->name) {
    fork_hold();
    l->gemm(ROW_MAJOR, ta ? TRANSPOSED : PLAIN, tb ? TRANSPOSED : PLAIN, m, n, k, 1, a, lda, b, ldb, 1, c, n);
    fork_release();
    return;
  }
  Product p = {
      m, n, k, a, b, c, ta ? 1 : (size_t)lda, ta ? (size_t)lda : 1, tb ? 1 : (size_t)ldb, tb ? (size_t)ldb : 1};
  (l->wide ? multiply_wide : multiply_any)(&p);
}

void product_threads(int n) {
  const Blas *l = the_blas();
  if (!l->name) return;
  fork_hold();
  l->set_threads(n > 0 ? n : 1);
  fork_release();
}

const char *product_library(void) { return the_blas()->name; }
