/* Fuzz target of model files: opening and describing what has right checksums and is otherwise anything. The checksums are repaired here:
 * without that no mutation would come past the first of them. Programs are not loaded, for they are code. */
#include "graph/graph.h"
#include "rt/nsrt.h"
#include "fuzz.h"

enum { HEAD = 32, ROW = 24, SECTIONS = 4 };

static uint64_t get(const char *p) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return v;
}
static void put(char *p, uint64_t v) { memcpy(p, &v, sizeof v); }

static void repair(char *data, size_t n) {
  char head[HEAD - 8 + SECTIONS * ROW];
  if (n < HEAD + SECTIONS * ROW) return;
  memcpy(data, "NSMODEL\n\1\0\0\0\4\0\0", 16);
  put(data + 16, n);
  for (int k = 0; k < SECTIONS; k++) {
    char *row = data + HEAD + k * ROW;
    uint64_t at = get(row), size = get(row + 8);
    if (at <= n && size <= n - at) put(row + 16, sum64(data + at, (size_t)size));
  }
  memcpy(head, data, HEAD - 8);
  memcpy(head + HEAD - 8, data + HEAD, SECTIONS * ROW);
  put(data + HEAD - 8, sum64(head, sizeof head));
}

/* Every text and weight that is told of can be read. */
static void read_all(const nsrt_value *v, int n) {
  for (int i = 0; i < n; i++) FUZZ_CHECK(strlen(v[i].name) + strlen(v[i].dtype) > 0 && v[i].ndim >= 0);
}

/* Weights that are stored as originals are made, as a context does. */
static void make_all(void *arg) {
  const Container *c = arg;
  Err e;
  err_init(&e);
  for (int i = 0; i < c->n_weights; i++) {
    char *made = malloc((size_t)c->weight[i].bytes + 1);
    if (made) form_make(&e, &c->weight[i], made);
    free(made);
  }
}
typedef struct {
  Arena *a;
  const void *data;
  size_t size;
} Bytes;
static void read_and_make(void *arg) {
  const Bytes *b = arg;
  make_all(container_read(b->a, b->data, b->size, "input"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *own = malloc(size + 1);
  nsrt_model *m;
  nsrt_info info;
  memcpy(own, data, size);
  repair(own, size);
  nsrt_status s = nsrt_open_memory(own, size, "input", &m);
  FUZZ_CHECK(s == NSRT_OK || s == NSRT_INVALID);
  if (s == NSRT_OK) {
    FUZZ_CHECK(nsrt_describe(m, &info, sizeof info) == NSRT_OK);
    read_all(info.input, info.n_inputs);
    read_all(info.output, info.n_outputs);
    read_all(info.weight, info.n_weights);
    nsrt_close(m);
    Err e;
    err_init(&e);
    Arena *a = arena_new(&e);
    err_try(&e, read_and_make, &(Bytes){a, own, size});
    arena_free(a);
  }
  free(own);
  return 0;
}
