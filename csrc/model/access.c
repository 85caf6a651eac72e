/* Accesses of a store and the regions they touch.
 *
 * A region is found by interval arithmetic on plain numbers: every variable has a range, the range of an index
 * expression follows bottom-up, and the extents of a buffer's region are the hulls over all its index lists. The memo
 * is indexed by expression and invalidated by a stamp whenever a variable's range changes. These are the intervals that
 * features are defined by, not those that are true: what is loaded counts as 0, as does what cannot be computed (ar_bound
 * says what is certain).
 */
#include "model/access.h"
#include <string.h>

int access_bytes(DType t) { return (t.bits + 7) / 8 * t.lanes; }

/* ---- gathering ---- */
typedef struct {
  IrCtx *c;
  Access *acc;
  int n, max;
} Gather;

static void logical_shape(IrCtx *c, Access *a) {
  const IrBuffer *b = ir_buffer(c, a->buf);
  const ExprId *shape = b->tensor ? ir_tensor(c, b->tensor)->shape : b->extent;
  for (int d = 0; d < a->rank; d++) {
    a->full[d] = 1;
    ex_const_int(c, shape[d], &a->full[d]);
  }
  a->bytes = access_bytes(b->type);
}

static void gather_add(Gather *g, BufferId buf, const ExprId *idx, int rank, int type) {
  for (int i = 0; i < g->n; i++) {
    Access *a = &g->acc[i];
    if (a->buf != buf) continue;
    if (a->type != ACC_READ)
      a->type = ACC_READ_WRITE; /* an update reads what it writes: the store's index list stands */
    else if (a->n_lists < ACC_MAX_LISTS)
      a->list[a->n_lists++] = idx;
    return;
  }
  err_check(ir_err(g->c), g->n < g->max, "a store accesses more than %d buffers", g->max);
  err_check(ir_err(g->c), rank <= ACC_MAX_RANK, "a buffer has more than %d dimensions", ACC_MAX_RANK);
  Access *a = &g->acc[g->n++];
  memset(a, 0, sizeof *a);
  a->buf = buf, a->type = type, a->rank = rank, a->n_lists = 1, a->list[0] = idx;
  logical_shape(g->c, a);
}

static void gather_load(IrCtx *c, ExprId e, void *arg) {
  const ExprNode *n = ir_node(c, e);
  if (n->kind != IR_LOAD) return;
  int rank = n->n;
  BufferId buf = n->sym;
  gather_add(arg, buf, arena_copy(ir_arena(c), ir_kids(c, e), sizeof(ExprId) * (size_t)rank), rank, ACC_READ);
}

int access_gather(IrCtx *c, const Stmt *store, Access *out, int max) {
  Gather g = {c, out, 0, max};
  gather_add(&g, store->u.store.buf, store->u.store.idx, store->u.store.n_idx, ACC_WRITE);
  ex_post_order(c, store->u.store.value, gather_load, &g);
  return g.n;
}

typedef struct {
  int n;
  const VarId *v;
  AccDims dim, *out;
} Named;
static void name(IrCtx *c, ExprId e, void *arg) {
  const ExprNode *x = ir_node(c, e);
  const Named *k = arg;
  for (int i = 0; i < k->n && x->kind == IR_VAR; i++)
    if (k->v[i] == x->sym) k->out[i] |= k->dim;
}
void access_vars(IrCtx *c, const Access *a, int n, const VarId *v, AccDims *out) {
  Named k = {.n = n, .v = v, .out = out};
  memset(out, 0, sizeof *out * (size_t)n);
  for (int l = 0; l < a->n_lists; l++)
    for (int d = 0; d < a->rank; d++) {
      k.dim = (AccDims)(1 << d);
      ex_post_order(c, a->list[l][d], name, &k);
    }
}

/* ---- steps ---- */
typedef struct {
  VarId var;
  bool seen, mul, add;
  int64_t coef;
} Coef;

/* One bottom-up walk, not a solution: the reference's approximation. Exact for sums of products. */
static void coef_walk(IrCtx *c, ExprId e, Coef *k) {
  ExprNode n = *ir_node(c, e);
  if (n.kind == IR_VAR) {
    if (n.sym == k->var) k->seen = true;
    return;
  }
  for (int i = 0; i < n.n; i++) coef_walk(c, ir_kid(c, e, i), k);
  if (!k->seen) return;
  int64_t v;
  if (n.kind == IR_MUL && !k->add && (ex_const_int(c, ir_kid(c, e, 0), &v) || ex_const_int(c, ir_kid(c, e, 1), &v)))
    k->mul = true, k->coef = v;
  else if (n.kind == IR_ADD && !k->mul)
    k->add = true, k->coef = 1;
}

int64_t access_step(IrCtx *c, const Access *a, VarId var) {
  if (a->rank == 0) return 1;
  int64_t best = INT64_MAX;
  for (int l = 0; l < a->n_lists; l++) {
    int64_t later = 1;
    for (int d = a->rank - 1; d >= 0; later *= a->full[d--]) {
      if (!ex_uses_var(c, a->list[l][d], var)) continue;
      Coef k = {.var = var, .coef = 1};
      coef_walk(c, a->list[l][d], &k);
      int64_t s = (k.coef < 0 ? -k.coef : k.coef) * later;
      if (s < best) best = s;
      break;
    }
  }
  return best == INT64_MAX ? 0 : best;
}

/* ---- intervals ---- */
struct RangeOf {
  Bound is;
  int32_t seen;
};

void ranges_init(Ranges *r, IrCtx *c) {
  Arena *a = ir_arena(c);
  memset(r, 0, sizeof *r);
  r->c = c, r->stamp = 1;
  r->var = arena_array(a, Bound, ir_mark(c).n.var + 1);
  r->known = arena_array(a, struct RangeOf, ir_count(c) + 1);
}

void ranges_set(Ranges *r, VarId v, int64_t lo, int64_t hi) {
  r->stamp++;
  r->var[v] = (Bound){lo, hi};
}

static Bound hull(Bound a, Bound b) { return (Bound){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi}; }

static Bound binary(ExprKind k, Bound a, Bound b) {
  bool by_const = b.lo == b.hi && b.lo > 0, inside = a.lo >= 0 && a.hi < b.lo;
  switch (k) {
  case IR_ADD: return (Bound){a.lo + b.lo, a.hi + b.hi};
  case IR_SUB: return (Bound){a.lo - b.hi, a.hi - b.lo};
  case IR_MUL: {
    int64_t p[4] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
    Bound x = {p[0], p[0]};
    for (int i = 1; i < 4; i++) x = hull(x, (Bound){p[i], p[i]});
    return x;
  }
  case IR_MIN: return (Bound){a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
  case IR_MAX: return (Bound){a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
  case IR_DIV:
  case IR_FDIV: return by_const ? (Bound){i64_floordiv(a.lo, b.lo), i64_floordiv(a.hi, b.lo)} : (Bound){0, 0};
  case IR_MOD:
  case IR_FMOD: return !by_const ? (Bound){0, 0} : inside ? a : (Bound){0, b.lo - 1};
  default: return (Bound){0, 0};
  }
}

static Bound range_of(Ranges *r, ExprId e) {
  const ExprNode *n = ir_node(r->c, e);
  ExprKind k = (ExprKind)n->kind;
  if (k == IR_INT) return (Bound){n->u.i, n->u.i};
  if (k == IR_VAR) return r->var[n->sym];
  struct RangeOf *known = &r->known[e];
  if (known->seen == r->stamp) return known->is;
  Bound x = {0, 0};
  if (ex_is_choice(r->c, e))
    x = hull(range_of(r, ir_kid(r->c, e, 1)), range_of(r, ir_kid(r->c, e, 2)));
  else if (k == IR_CAST)
    x = range_of(r, ir_kid(r->c, e, 0));
  else if (n->n == 2 && k != IR_LOAD && k != IR_CALL)
    x = binary(k, range_of(r, ir_kid(r->c, e, 0)), range_of(r, ir_kid(r->c, e, 1)));
  *known = (struct RangeOf){x, r->stamp};
  return x;
}

void access_region(Ranges *r, const Access *a, AccDims of, double *dims) {
  for (int d = 0; d < a->rank; d++) {
    if (!(of >> d & 1)) continue;
    Bound x = {0, 0};
    for (int l = 0; l < a->n_lists; l++) {
      Bound y = range_of(r, a->list[l][d]);
      x = l == 0 ? y : hull(x, y);
    }
    dims[d] = (double)(x.hi - x.lo + 1);
  }
}
