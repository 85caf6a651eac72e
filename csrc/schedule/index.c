/* Index values: what each axis equals in terms of the loop variables, and bodies with inlined stages substituted.
 *
 * Relations are followed backwards, from loops to root axes (stage_climb). A split p -> (o, i) gives p = i + o*extent(i) + min(p); a fuse (o, i) -> f gives
 * o = f div extent(i) + min(o) and i = f mod extent(i) + min(i); a rebase p -> r gives p = r + min(p). The extents are
 * the inferred ones, which can be smaller than the factors asked for.
 */
#include "schedule/internal.h"
#include "schedule/lin.h"
#include <string.h>

static bool is_zero(const IrCtx *c, ExprId e) { return !e || ex_is_int(c, e, 0); }

static ExprId plus_min(IrCtx *c, ExprId e, ExprId min) { return is_zero(c, min) ? e : ex_add(c, e, min); }

/* what an index is divided by to take a fused or split axis apart: the inner extent; 1 if it is 0 */
static ExprId axis_row(IrCtx *c, const Axis *inner) {
  return ex_is_int(c, inner->extent, 0) ? ex_int(c, ir_type(c, inner->extent), 1) : inner->extent;
}

void stage_climb(IrCtx *c, const Stage *st, ExprId *val, AxisExtent extent, void *arg) {
  const Axis *ax = st->axes.at;
  for (int i = st->rels.len - 1; i >= 0; i--) {
    const Rel *r = &st->rels.at[i];
    ExprId o = r->outer >= 0 ? val[r->outer] : 0, p = val[r->parent], e = 0;
    if (r->kind == REL_SPLIT && o && val[r->inner]) {
      e = extent ? extent(arg, ax[r->inner].extent) : ax[r->inner].extent;
      if (e) val[r->parent] = plus_min(c, ex_add(c, val[r->inner], ex_mul(c, o, e)), ax[r->parent].min);
    } else if (r->kind == REL_FUSE && p) {
      e = extent ? extent(arg, axis_row(c, &ax[r->inner])) : axis_row(c, &ax[r->inner]);
      if (e) val[r->outer] = plus_min(c, ex_fdiv(c, p, e), ax[r->outer].min);
      if (e) val[r->inner] = plus_min(c, ex_fmod(c, p, e), ax[r->inner].min);
    } else if (r->kind == REL_REBASE && o)
      val[r->parent] = plus_min(c, o, ax[r->parent].min);
  }
}

void stage_spread(const Stage *st, uint64_t *mark) {
  for (int i = 0; i < st->rels.len; i++) {
    const Rel *r = &st->rels.at[i];
    if (r->kind == REL_FUSE) mark[r->parent] = mark[r->outer] | mark[r->inner];
    if (r->kind == REL_SPLIT || r->kind == REL_REBASE) mark[r->outer] |= mark[r->parent];
    if (r->kind == REL_SPLIT) mark[r->inner] |= mark[r->parent];
  }
}

/* The relation that made an axis, if any: it is the part of a split or the result of a fuse. */
static const Rel *made_by(const Stage *st, int axis) {
  for (int i = 0; i < st->rels.len; i++) {
    const Rel *r = &st->rels.at[i];
    if (r->kind == REL_FUSE || r->kind == REL_SINGLETON ? r->parent == axis : r->outer == axis || r->inner == axis)
      return r;
  }
  return NULL;
}

ExprId stage_downward(IrCtx *c, const Stage *st, int axis, ExprId *memo) {
  if (memo[axis]) return memo[axis];
  const Rel *r = made_by(st, axis);
  err_assert(ir_err(c), r != NULL);
  ExprId v = 0;
  switch (r->kind) {
  case REL_SPLIT:
    v = ex_bin(c, axis == r->outer ? IR_FDIV : IR_FMOD, stage_downward(c, st, r->parent, memo),
               axis_row(c, &st->axes.at[r->inner]));
    break;
  case REL_FUSE:
    v = ex_add(c, ex_mul(c, stage_downward(c, st, r->outer, memo), st->axes.at[r->inner].extent),
               stage_downward(c, st, r->inner, memo));
    break;
  case REL_REBASE: v = stage_downward(c, st, r->parent, memo); break;
  case REL_SINGLETON: v = ex_i32(c, 0); break;
  }
  return memo[axis] = v;
}

bool stage_split_exact(IrCtx *c, const Stage *st, const Rel *r) {
  LinCtx L;
  lin_init(&L, c);
  Lin parts = lin_mul(&L, lin_of(&L, st->axes.at[r->outer].extent), lin_of(&L, st->axes.at[r->inner].extent));
  return lin_eq(lin_of(&L, st->axes.at[r->parent].extent), parts);
}

/* ---- inlining ---- */

typedef struct {
  TensorId t;
  ExprId value;
} OneRead;
static ExprId replace_by_value(IrCtx *c, ExprId e, void *arg) {
  const OneRead *r = arg;
  const ExprNode *n = ir_node(c, e);
  return n->kind == IR_READ && n->sym == r->t ? r->value : e;
}

static ExprId inline_one(IrCtx *c, ExprId body, const TeOp *op, const ExprId *value, bool as_one) {
  if (!as_one) return te_inline_reads(c, body, op, value);
  DType t = ir_tensor(c, op->out[0])->type;
  OneRead r = {op->out[0], dtype_is_float(t) ? ex_flt(c, t, 1) : ex_int(c, t, 1)};
  return ex_map(c, body, replace_by_value, &r);
}

ExprId **state_inlined_bodies(State *s, bool const_matrix_as_one, ExprId *const *own) {
  Arena *m = ir_arena(s->ctx);
  int n = s->stage.len;
  ExprId **out = arena_array(m, ExprId *, n);
  char *reads = arena_alloc(m, (size_t)n * (size_t)n); /* row: producer; kept up to date while bodies change */
  for (int k = 0; k < s->dag->n_edges; k++)
    reads[(size_t)s->dag->edge[k].producer * (size_t)n + (size_t)s->dag->edge[k].consumer] = 1;
  for (int q = 0; own && q < n; q++) {
    const Stage *st = &s->stage.at[q];
    if (own[q] && st->at != AT_INLINED) out[q] = arena_copy(m, own[q], sizeof(ExprId) * (size_t)st->op->n_out);
  }
  for (int p = n - 1; p >= 0; p--) {
    const Stage *st = &s->stage.at[p];
    if (st->at != AT_INLINED) continue;
    const ExprId *value = own && own[p] ? own[p] : st->op->body;
    bool one = const_matrix_as_one && te_attr(st->op, "const_matrix");
    for (int q = p + 1; q < n; q++) {
      const Stage *r = &s->stage.at[q];
      if (r->at == AT_INLINED || !reads[(size_t)p * (size_t)n + (size_t)q]) continue;
      err_check(ir_err(s->ctx), !r->op->by_hand,
                "stage %s cannot be inlined: stage %s, which reads it, is made of statements", st->op->name,
                r->op->name);
      if (!out[q]) out[q] = arena_copy(m, r->op->body, sizeof(ExprId) * (size_t)r->op->n_out);
      for (int i = 0; i < r->op->n_out; i++) out[q][i] = inline_one(s->ctx, out[q][i], st->op, value, one);
      for (int k = 0; k < p; k++) reads[(size_t)k * (size_t)n + (size_t)q] |= reads[(size_t)k * (size_t)n + (size_t)p];
    }
  }
  return out;
}
