/* Reads that certainly leave their tensor: `B(i) = A(i + 1)` with equal extents.
 *
 * The values that an index takes are known exactly when it is made of axes by monotone operations and no axis occurs
 * twice: then its least and largest values are taken by some element. A read that is not under a condition (if_then_else,
 * select, the condition of a reduction) and whose index takes a value outside of the tensor's extent is refused; all
 * others are let pass, because whether they leave the tensor depends on data, on conditions, or on correlations.
 *
 * Only elements that are needed count. Outputs are needed as a whole; an intermediate tensor is when an element that is
 * needed reads all of it.
 */
#include "te/te.h"

typedef struct {
  int64_t lo, hi;
  int64_t gap;   /* at most this far apart are neighbouring values; 0: there is one value only */
  uint64_t axes; /* that it depends on */
  bool exact;    /* lo and hi are taken, every combination of axes occurs */
} Values;
typedef struct {
  IrCtx *c;
  const TeOp *op;
  bool *whole; /* of the DAG's operations: every element is needed */
  int n_ops;
  TeOp *const *ops;
  MapU64 seen; /* expression and whether it is under a condition */
} Reads;

static const Values UNKNOWN = {.exact = false};

static Values values_of_axis(Reads *r, VarId v) {
  const TeOp *op = r->op;
  for (int i = 0; i < op->n_axis + op->n_red && i < 64; i++) {
    const TeAxis *a = te_axis(op, i);
    int64_t lo, n, hi;
    if (a->var != v) continue;
    if (!ex_const_int(r->c, a->min, &lo) || !ex_const_int(r->c, a->extent, &n) || n < 1 || !i64_add(lo, n - 1, &hi))
      return UNKNOWN;
    return (Values){lo, hi, n > 1, (uint64_t)1 << i, true};
  }
  return UNKNOWN;
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static Values scaled(Values a, int64_t k) {
  int64_t x, y, gap;
  if (!i64_mul(a.lo, k, &x) || !i64_mul(a.hi, k, &y) || !i64_mul(a.gap, k < 0 ? -k : k, &gap) || k == INT64_MIN)
    return UNKNOWN;
  return (Values){min64(x, y), max64(x, y), gap, a.axes, true};
}
static Values sum(Values a, Values b) {
  Values s = {.axes = a.axes | b.axes, .exact = true};
  if ((a.axes & b.axes) || !i64_add(a.lo, b.lo, &s.lo) || !i64_add(a.hi, b.hi, &s.hi)) return UNKNOWN;
  /* each value of one carries all of the other: those close the gaps as far as they reach */
  s.gap = min64(max64(b.gap, a.gap - (b.hi - b.lo)), max64(a.gap, b.gap - (a.hi - a.lo)));
  return s;
}
static Values divided(Values a, int64_t d, bool mod) {
  if (d < 1) return UNKNOWN;
  int64_t lo = i64_floordiv(a.lo, d), hi = i64_floordiv(a.hi, d);
  if (!mod) return (Values){lo, hi, lo == hi ? 0 : i64_ceildiv(a.gap, d), a.axes, true};
  if (lo == hi) return (Values){a.lo - lo * d, a.hi - lo * d, a.gap, a.axes, true};
  return a.gap == 1 && a.hi - a.lo >= d - 1 ? (Values){0, d - 1, 1, a.axes, true} : UNKNOWN;
}
static Values limited(Values a, Values b, bool to_max) {
  if (a.axes & b.axes) return UNKNOWN;
  Values v = {.axes = a.axes | b.axes, .exact = true};
  v.lo = to_max ? max64(a.lo, b.lo) : min64(a.lo, b.lo);
  v.hi = to_max ? max64(a.hi, b.hi) : min64(a.hi, b.hi);
  v.gap = a.gap == 0 || b.gap == 0 ? max64(a.gap, b.gap) : v.hi - v.lo;
  return v;
}

static Values values_of(Reads *r, ExprId e) {
  ExprNode n = *ir_node(r->c, e);
  if (n.type.code != DT_INT || n.type.bits < 32 || n.type.lanes != 1) return UNKNOWN;
  if (n.kind == IR_INT) return (Values){n.u.i, n.u.i, 0, 0, true};
  if (n.kind == IR_VAR) return values_of_axis(r, n.sym);
  if (n.kind != IR_CAST && !ir_is_arith(n.kind)) return UNKNOWN;
  Values a = values_of(r, ir_kid(r->c, e, 0));
  if (n.kind == IR_CAST && a.exact && (a.lo < INT32_MIN || a.hi > INT32_MAX) && n.type.bits < 64) return UNKNOWN;
  if (n.kind == IR_CAST || !a.exact) return a;
  Values b = values_of(r, ir_kid(r->c, e, 1));
  if (!b.exact) return UNKNOWN;
  bool one = b.axes == 0 && b.lo == b.hi;
  switch ((ExprKind)n.kind) {
  case IR_ADD: return sum(a, b);
  case IR_SUB: return b.lo == INT64_MIN ? UNKNOWN : sum(a, scaled(b, -1));
  case IR_MUL: return one ? scaled(a, b.lo) : a.axes == 0 ? scaled(b, a.lo) : UNKNOWN;
  case IR_DIV:
  case IR_MOD: return one && a.lo >= 0 ? divided(a, b.lo, n.kind == IR_MOD) : UNKNOWN;
  case IR_FDIV:
  case IR_FMOD: return one ? divided(a, b.lo, n.kind == IR_FMOD) : UNKNOWN;
  default: return limited(a, b, n.kind == IR_MAX);
  }
}

static void read_of(Reads *r, ExprId e) {
  IrCtx *c = r->c;
  const ExprNode n = *ir_node(c, e);
  const IrTensor *t = ir_tensor(c, (TensorId)n.sym);
  uint64_t axes = 0;
  bool all = true;
  for (int i = 0; i < n.n; i++) {
    int64_t size;
    Values v = values_of(r, ir_kid(c, e, i));
    if (!v.exact || !ex_const_int(c, t->shape[i], &size)) {
      all = false;
      continue;
    }
    if (v.lo < 0 || v.hi >= size)
      err_raise(
          ir_err(c), NS_ERR_VALUE,
          "compute '%s' reads tensor %s out of bounds: index %s of dimension %d takes values from %lld to %lld, but "
          "the dimension has extent %lld; change the shape, or guard the read with te.if_then_else",
          r->op->name, t->name, ex_text(c, ir_kid(c, e, i)), i, (long long)v.lo, (long long)v.hi, (long long)size);
    all = all && v.lo == 0 && v.hi == size - 1 && v.gap <= 1 && !(axes & v.axes);
    axes |= v.axes;
  }
  for (int i = 0; all && i < r->n_ops; i++)
    if (r->ops[i] == (const TeOp *)t->op) r->whole[i] = true;
}

static void walk(Reads *r, ExprId e, bool guarded) {
  uint64_t key = (uint64_t)e << 1 | guarded;
  if (mapu_get(&r->seen, key, 0) || (guarded && mapu_get(&r->seen, key & ~(uint64_t)1, 0))) return;
  mapu_set(&r->seen, key, 1);
  const ExprNode n = *ir_node(r->c, e);
  if (n.kind == IR_REDUCE) {
    const IrReduce x = *ir_reduce(r->c, e);
    int64_t always;
    bool some = x.cond && !(ex_const_int(r->c, x.cond, &always) && always);
    if (some) walk(r, x.cond, guarded);
    for (int i = 0; i < x.n_src; i++) walk(r, x.src[i], guarded || some);
    for (int i = 0; x.init && i < x.n_src; i++) walk(r, x.init[i], guarded);
    return;
  }
  if (n.kind == IR_READ && !guarded) read_of(r, e);
  bool choice = ex_is_choice(r->c, e), logic = n.kind == IR_AND || n.kind == IR_OR;
  for (int i = 0; i < n.n; i++) walk(r, ir_kid(r->c, e, i), guarded || (i > 0 && (choice || logic)));
}

static bool empty(const IrCtx *c, const TeOp *op) {
  int64_t n;
  for (int i = 0; i < op->n_axis + op->n_red; i++)
    if (ex_const_int(c, te_axis(op, i)->extent, &n) && n < 1) return true;
  return false;
}

void te_check_reads(IrCtx *c, int n_ops, TeOp *const *ops, const bool *is_output) {
  Arena *a = ir_arena(c);
  Reads r = {.c = c, .n_ops = n_ops, .ops = ops, .whole = arena_array(a, bool, n_ops)};
  for (int i = n_ops - 1; i >= 0; i--) { /* readers before what they read */
    r.op = ops[i];
    if (!(r.whole[i] || is_output[i]) || r.op->kind != TE_COMPUTE || empty(c, r.op)) continue;
    mapu_init(&r.seen, a);
    for (int k = 0; k < r.op->n_out; k++) walk(&r, r.op->body[k], false);
  }
}
