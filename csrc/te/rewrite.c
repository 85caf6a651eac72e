/* Rewriting operations: the steps that insert stages (cache read, cache write, rfactor) and the layout rewrite make new
 * operations from old ones. Operations are immutable, so each helper returns a new operation or expression.
 */
#include "te/te.h"

TeOp *te_op_with_body(IrCtx *c, const TeOp *op, const ExprId *body) {
  err_check(ir_err(c), op->kind == TE_COMPUTE, "placeholder '%s' has no body to replace", op->name);
  TeOp *made = te_compute(c, op->name, op->tag, op->n_axis, op->axis, op->n_out, body, op->n_attr, op->attr);
  made->tensorized = op->tensorized;
  made->tensorized_at = op->tensorized_at;
  made->by_hand = op->by_hand;
  made->by_hand_first = op->by_hand_first;
  return made;
}

static bool put(IrCtx *c, int k, const ExprId **list, int n, const VarSub *sub) {
  ExprId *out = arena_array(ir_arena(c), ExprId, k + 1);
  bool other = false;
  for (int i = 0; *list && i < k; i++) {
    out[i] = ex_subst(c, (*list)[i], n, sub);
    other |= out[i] != (*list)[i];
  }
  if (other) *list = out;
  return other;
}
ReducerId te_reducer_at(IrCtx *c, ReducerId r, int n, const VarSub *sub) {
  IrReducer x = *ir_reducer(c, r);
  bool other = put(c, x.n, &x.result, n, sub);
  other |= put(c, x.n, &x.identity, n, sub);
  other |= put(c, x.n, &x.code, n, sub);
  return other ? ir_reducer_new(c, x) : r;
}

typedef struct {
  TensorId from, to;
  const TeOp *op;
  const ExprId *body;
} Replace;

static ExprId replace_read(IrCtx *c, ExprId e, void *arg) {
  const Replace *r = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind != IR_READ || n->sym != r->from) return e;
  int rank = n->n;
  ExprId idx[rank + 1];
  for (int i = 0; i < rank; i++) idx[i] = ir_kid(c, e, i);
  return ex_read(c, r->to, rank, idx);
}

ExprId te_replace_tensor(IrCtx *c, ExprId e, TensorId from, TensorId to) {
  Replace r = {.from = from, .to = to};
  return ex_map(c, e, replace_read, &r);
}

static ExprId inline_read(IrCtx *c, ExprId e, void *arg) {
  const Replace *r = arg;
  const TeOp *op = r->op;
  ExprNode n = *ir_node(c, e);
  if (n.kind != IR_READ || ir_tensor(c, (TensorId)n.sym)->op != (const void *)op) return e;
  int out = ir_tensor(c, (TensorId)n.sym)->out;
  VarSub sub[op->n_axis + 1];
  for (int i = 0; i < op->n_axis; i++) sub[i] = (VarSub){op->axis[i].var, ir_kid(c, e, i)};
  return ex_subst(c, r->body[out], op->n_axis, sub);
}

ExprId te_inline_reads(IrCtx *c, ExprId e, const TeOp *op, const ExprId *body) {
  err_check(ir_err(c), op->kind == TE_COMPUTE && !te_is_reduction(c, op),
            "'%s' cannot be inlined: it is a placeholder or a reduction", op->name);
  Replace r = {.op = op, .body = body};
  ExprId out = ex_map(c, e, inline_read, &r);
  err_check(
      ir_err(c), ex_size(c, out, NULL, NULL) < EX_SIZE_MAX,
      "inlining '%s' makes an expression of more than %d operations, because it is read several times; leave it a "
      "stage of its own",
      op->name, EX_SIZE_MAX);
  return out;
}
