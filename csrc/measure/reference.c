/* What a candidate must compute. Inputs are small integers, so that sums come out the same in any order; the expected
 * outputs are made once per task by the unscheduled program on the CPU, in a process of its own: it may take long, and
 * it may crash. (A product of 4096 cubed: 2 minutes of a core as it is written. Where sums are exact the compiler may
 * reorder them, and of large tasks the outer loop of each operation is shared among all cores.) Operations that are
 * undefined for negative or zero arguments (roots, logarithms, quotients) get positive inputs.
 */
#include "measure/reference.h"
#include <math.h>
#include <string.h>

typedef struct {
  bool positive, infinite;
} Scan;
static void scan(IrCtx *c, ExprId e, void *arg) {
  ExprNode n = *ir_node(c, e);
  Scan *s = arg;
  bool real = dtype_is_float(n.type);
  int64_t k;
  if (n.kind == IR_FLT && !isfinite(ir_flt(c, e))) s->infinite = true;
  if (ir_is_division(n.kind) && real) s->positive = true;
  if (ir_is_division(n.kind) && !real && !ex_const_int(c, ir_kid(c, e, 1), &k)) s->positive = true;
  if (n.kind == IR_CALL && (n.sym == IN_SQRT || n.sym == IN_RSQRT || n.sym == IN_LOG || n.sym == IN_LOG2 ||
                            n.sym == IN_LOG10 || n.sym == IN_LOG1P || n.sym == IN_POW))
    s->positive = true;
}
static Scan scanned(IrCtx *c, const TeDag *d) {
  Scan s = {false, false};
  for (int i = 0; i < d->n_ops; i++)
    for (int k = 0; d->op[i]->kind == TE_COMPUTE && k < d->op[i]->n_out; k++) {
      ExprId b = d->op[i]->body[k];
      if (ir_kind(c, b) != IR_REDUCE) {
        ex_post_order(c, b, scan, &s);
        continue;
      }
      const IrReduce *r = ir_reduce(c, b);
      for (int j = 0; j < r->n_src; j++) ex_post_order(c, r->src[j], scan, &s);
    }
  return s;
}

static uint16_t half_of(int v) { /* small integers only */
  if (v == 0) return 0;
  int m = v < 0 ? -v : v, e = 0;
  while ((m >> e) > 1) e++;
  return (uint16_t)((v < 0 ? 0x8000 : 0) | ((e + 15) << 10) | ((m << (10 - e)) & 0x3ff));
}
static uint16_t bfloat_of(int v) {
  float f = (float)v;
  uint32_t u;
  memcpy(&u, &f, 4);
  return (uint16_t)(u >> 16);
}

static void fill(Rng *r, DType t, int64_t n, bool positive, void *out) {
  int hi = TE_EXACT_INPUT, lo = positive ? 1 : -hi, span = hi - lo + 1;
  for (int64_t i = 0; i < n; i++) {
    int v = lo + (int)rng_below(r, span);
    if (t.code == DT_FLOAT && t.bits == 64)
      ((double *)out)[i] = v;
    else if (t.code == DT_FLOAT && t.bits == 32)
      ((float *)out)[i] = (float)v;
    else if (t.code == DT_FLOAT)
      ((uint16_t *)out)[i] = half_of(v);
    else if (t.code == DT_BFLOAT)
      ((uint16_t *)out)[i] = bfloat_of(v);
    else {
      int64_t u = t.code == DT_UINT ? (t.bits == 1 ? v & 1 : v & 3) : v;
      if (t.bits <= 8)
        ((int8_t *)out)[i] = (int8_t)u;
      else if (t.bits == 16)
        ((int16_t *)out)[i] = (int16_t)u;
      else if (t.bits == 32)
        ((int32_t *)out)[i] = (int32_t)u;
      else
        ((int64_t *)out)[i] = u;
    }
  }
}

enum { BUILD_SECONDS = 60 };     /* for a compiler that hangs */
static const double LARGE = 1e8; /* floating-point operations: some 50 ms of a core */
typedef struct {
  Arena *a;
  IrCtx *c;
  const TeDag *d;
  void **data;
  bool finite; /* inputs are our own, and no infinity is written */
} Run;

/* Compilers that may reorder sums take infinities for absent, too. */
static bool all_exact(const Run *r) {
  bool exact[MSR_MAX_ARGS], all = r->finite;
  te_exact(r->c, r->d, exact);
  for (int i = 0; i < r->d->n_tensors; i++)
    all = all && (exact[i] || ((const TeOp *)ir_tensor(r->c, r->d->tensor[i])->op)->kind == TE_PLACEHOLDER);
  return all;
}

static const State *shared_among_cores(IrCtx *c, const TeDag *d) {
  State *s = state_init(c, d);
  if (d->flop >= 0 && d->flop < LARGE) return s;
  for (int i = 0; i < s->stage.len; i++) {
    int k = 0, n = s->stage.at[i].n_root_data;
    while (k < n && axis_extent(s, i, k) == 1) k++;
    if (k < n && d->op[i]->kind != TE_PLACEHOLDER) state_annotate(s, i, k, AN_PARALLEL);
  }
  return s;
}

static void run_body(void *arg) {
  Run *r = arg;
  Err *e = arena_err(r->a);
  size_t bytes[MSR_MAX_ARGS];
  Target cpu = {.kind = TG_CPU,
                .hw = {.num_cores = 1, .vector_unit_bytes = 64, .cache_line_bytes = 64},
                .fast_math = all_exact(r) ? FAST_MATH_AGGRESSIVE : FAST_MATH_PRECISE};
  for (int i = 0; i < r->d->n_tensors; i++) {
    const IrTensor *t = ir_tensor(r->c, r->d->tensor[i]);
    err_check(e, r->data[i] != NULL, "tensor %s has a symbolic shape and cannot be measured", t->name);
    bytes[i] = (size_t)te_bytes(r->c, r->d->tensor[i]);
  }
  const State *s = shared_among_cores(r->c, r->d);
  GenText src = gen_steps(r->c, r->d, &cpu, s->step.len, s->step.at, 0, "reference", NULL);
  Binary b = build_binary(r->a, &cpu, src.source, &(BuildOptions){.timeout_s = BUILD_SECONDS});
  worker_compute(e, r->d->n_tensors, bytes, r->data, b.data, b.n, src.manifest);
}

void reference_data(Arena *a, const IrCtx *src, const TeDag *d, uint64_t seed, const void *const *given, void **data) {
  Err *e = arena_err(a);
  err_check(e, d->n_tensors <= MSR_MAX_ARGS, "a task with %d tensors cannot be measured; at most %d", d->n_tensors,
            MSR_MAX_ARGS);
  Rng rng;
  rng_seed(&rng, seed);
  IrCtx *c = ir_clone(src, e);
  Scan found = scanned(c, d);
  for (int i = 0; i < d->n_tensors; i++) {
    const IrTensor *t = ir_tensor(c, d->tensor[i]);
    int64_t n = te_bytes(c, d->tensor[i]);
    data[i] = NULL;
    if (n < 0) continue;
    data[i] = arena_alloc(a, (size_t)n);
    if (given && given[i])
      memcpy(data[i], given[i], (size_t)n);
    else if (((const TeOp *)t->op)->kind == TE_PLACEHOLDER)
      fill(&rng, t->type, n / dtype_bytes(t->type), found.positive, data[i]);
  }
  Run r = {.a = a, .c = c, .d = d, .data = data, .finite = !given && !found.infinite};
  ErrCode code = err_try(e, run_body, &r);
  ir_free(c);
  if (code != NS_OK) err_rethrow(e, code);
}
