/* whole: tiles that are filled beyond the edge of their tensor, so that nothing inside a block has to ask where it is.
 *
 * Where a tile does not divide a tensor, the blocks at the edge own points that do not exist. A copy into the memory of a
 * block puts zeros there; a reduction that reads such tiles alone computes with the zeros instead of testing in its innermost
 * loop, and what it computes there is never stored. GPU programs only, and not those that are printed or measured by features:
 * the reference tests everywhere.
 */
#include "lower/util.h"

static int stage_of(const State *s, const MapU64 *buf_of, BufferId b) {
  for (int i = 0; i < s->stage.len; i++) {
    const TeOp *op = s->stage.at[i].op;
    for (int k = 0; k < op->n_out; k++)
      if (mapu_get(buf_of, (uint64_t)op->out[k], 0) == b) return i;
  }
  return -1;
}

static bool on_chip(IrCtx *c, const Stage *st, BufferId b) {
  const IrBuffer *x = ir_buffer(c, b);
  return st->at == AT_ITER && st->op->kind != TE_PLACEHOLDER && st->op->n_out == 1 && !st->store_predicate &&
         !x->external && (x->scope == SC_SHARED || x->scope == SC_LOCAL) && x->type.lanes == 1;
}

/* Is every point of the tile of a stage written? body: per stage, with inlined stages substituted, or NULL. */
bool low_copies_whole(IrCtx *c, const State *s, const MapU64 *buf_of, ExprId *const *body, int sid) {
  const Stage *st = &s->stage.at[sid];
  return on_chip(c, st, mapu_get(buf_of, (uint64_t)st->op->out[0], 0)) &&
         ir_kind(c, (body && body[sid] ? body[sid] : st->op->body)[0]) != IR_REDUCE;
}

/* Is an element inside of the region that is kept of its tensor? A tile of a whole axis ends where the tensor does. */
static bool inside(IrCtx *c, Arith *ar, BufferId buf, const ExprId *idx) {
  const IrBuffer b = *ir_buffer(c, buf);
  for (int i = 0; i < b.rank; i++) {
    ExprId at = ex_sub(c, idx[i], b.min[i]);
    if (!ar_prove(ar, ex_bin(c, IR_GE, at, ex_int(c, ir_type(c, at), 0)))) return false;
    if (!ar_prove(ar, ex_bin(c, IR_LT, at, b.extent[i]))) return false;
  }
  return true;
}

typedef VEC(ExprId) Exprs;
static void collect(IrCtx *c, ExprId e, void *arg) {
  Exprs *all = arg;
  vec_push(ir_arena(c), all, e);
}
static bool loads_inside(IrCtx *c, ExprId e) {
  for (int i = 0; i < ir_node(c, e)->n; i++)
    if (low_expr_loads(c, ir_kid(c, e, i))) return true;
  return false;
}

/* Is what is read zero wherever the axis goes on beyond its end? The tensor ends there, too, and so does what was copied. */
static bool ends_with(IrCtx *c, ExprId read, const IrAxis *x) {
  const ExprNode n = *ir_node(c, read);
  const ExprId *shape = ir_tensor(c, n.sym)->shape;
  for (int i = 0; i < n.n; i++) {
    ExprId at = ir_kid(c, read, i);
    if (ir_kind(c, at) == IR_VAR && ir_node(c, at)->sym == x->var && shape[i] == x->extent) return true;
  }
  return false;
}
static ExprId zero_read(IrCtx *c, ExprId e, void *arg) {
  (void)arg;
  return ir_kind(c, e) == IR_READ ? ex_zero(c, ir_type(c, e)) : e;
}

/* Does a sum stay what it is if an axis goes on beyond its end? Then all that is read is zero, and zeros must add nothing. */
bool low_zeros_add_nothing(IrCtx *c, const IrReducer *op, ExprId src, const IrAxis *x) {
  const ExprNode *n = ir_node(c, op->result[0]);
  if (op->n != 1 || n->kind != IR_ADD || ir_type(c, src).code == DT_HANDLE || !ex_is_int(c, x->min, 0)) return false;
  ExprId l = ir_kid(c, op->result[0], 0), r = ir_kid(c, op->result[0], 1);
  bool sum = ir_kind(c, l) == IR_VAR && ir_kind(c, r) == IR_VAR && ir_node(c, l)->sym == op->lhs[0] &&
             ir_node(c, r)->sym == op->rhs[0];
  if (!sum) return false;
  Exprs all = {0};
  ex_post_order(c, src, collect, &all);
  for (int i = 0; i < all.len; i++)
    if (ir_kind(c, all.at[i]) == IR_READ && !ends_with(c, all.at[i], x)) return false;
  return low_fold(c, ex_map(c, src, zero_read, NULL)) == ex_zero(c, ir_type(c, src));
}

/* May a reduction go on beyond the edge? src: what it adds up, with loads in place of reads; at: the element it is for. */
bool low_reduces_whole(IrCtx *c, const State *s, Arith *ar, const MapU64 *buf_of, ExprId *const *body, int sid,
                       ExprId src, const ExprId *at) {
  const Stage *st = &s->stage.at[sid];
  BufferId out = mapu_get(buf_of, (uint64_t)st->op->out[0], 0);
  if (!on_chip(c, st, out) || !inside(c, ar, out, at)) return false;
  Exprs all = {0};
  ex_post_order(c, src, collect, &all);
  for (int i = 0; i < all.len; i++) {
    const ExprNode n = *ir_node(c, all.at[i]);
    if (n.kind == IR_CALL || (ir_is_division(n.kind) && n.type.code != DT_FLOAT && loads_inside(c, all.at[i])))
      return false;
    if (n.kind != IR_LOAD) continue;
    int from = stage_of(s, buf_of, n.sym);
    if (from < 0 || loads_inside(c, all.at[i]) || !low_copies_whole(c, s, buf_of, body, from)) return false;
    ExprId *idx = arena_copy(ir_arena(c), ir_kids(c, all.at[i]), sizeof(ExprId) * n.n); /* proofs add expressions */
    if (!inside(c, ar, n.sym, idx)) return false;
  }
  return true;
}
