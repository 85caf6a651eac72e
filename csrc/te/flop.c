/* Operation count of a DAG.
 *
 * The count of a stage is (elements) x (operations of one evaluation of its bodies), where only operations on the kind
 * of number that the stage produces count: index arithmetic inside a float stage is free. Calls count nothing
 * themselves. A stage may state its own count in the attribute "FLOP". An extent that is no constant, or a node that
 * is not understood, makes the whole count unknown (-1).
 */
#include "te/te_int.h"

typedef struct {
  IrCtx *c;
  uint8_t code;
  bool fail;
  MapU64 memo;
  VEC(double) val;
} Count;

static double count(Count *s, ExprId e);

static double count_kids(Count *s, ExprId e, int from) {
  double sum = 0;
  for (int i = from; i < ir_node(s->c, e)->n && !s->fail; i++) sum += count(s, ir_kid(s->c, e, i));
  return sum;
}

static double count_reduce(Count *s, ExprId e) {
  IrReduce r = *ir_reduce(s->c, e);
  double steps = 1, per = 0;
  for (int i = 0; i < r.n_axis; i++) {
    int64_t v = 0;
    if (!ex_const_int(s->c, r.axis[i].extent, &v)) s->fail = true;
    steps *= (double)v;
  }
  for (int i = 0; i < r.n_src && !s->fail; i++)
    per += count(s, ir_reducer(s->c, r.reducer)->result[i]) + count(s, r.src[i]);
  return steps * per;
}

static double count_node(Count *s, ExprId e) {
  IrCtx *c = s->c;
  ExprKind k = ir_kind(c, e);
  if (k == IR_INT || k == IR_FLT || k == IR_STR || k == IR_VAR || k == IR_READ) return 0;
  if (k >= IR_ADD && k <= IR_OR) {
    bool own = ir_type(c, ir_kid(c, e, 0)).code == s->code || ir_type(c, ir_kid(c, e, 1)).code == s->code;
    return (own ? 1.0 : 0.0) + count_kids(s, e, 0);
  }
  if (k == IR_NOT) return (ir_type(c, e).code == s->code ? 1.0 : 0.0) + count_kids(s, e, 0);
  if (k == IR_CAST || k == IR_CALL) return count_kids(s, e, 0);
  if (k == IR_REDUCE) return count_reduce(s, e);
  if (k == IR_SELECT) {
    double t = count(s, ir_kid(c, e, 1)), f = count(s, ir_kid(c, e, 2));
    return count(s, ir_kid(c, e, 0)) + (t > f ? t : f);
  }
  s->fail = true;
  return 0;
}

static double count(Count *s, ExprId e) {
  if (s->fail) return 0;
  int32_t at = mapu_get(&s->memo, (uint64_t)e, -1);
  if (at >= 0) return s->val.at[at];
  double v = count_node(s, e);
  mapu_set(&s->memo, (uint64_t)e, s->val.len);
  vec_push(ir_arena(s->c), &s->val, v);
  return v;
}

double te_count_flop(IrCtx *c, int n_ops, TeOp *const *ops) {
  double total = 0;
  for (int i = 0; i < n_ops; i++) {
    const TeOp *op = ops[i];
    if (op->kind != TE_COMPUTE) continue;
    const TeAttr *own = te_attr(op, "FLOP");
    if (own && (own->kind == TA_INT || own->kind == TA_FLOAT)) {
      total += own->kind == TA_INT ? (double)own->i : own->f;
      continue;
    }
    double elements = 1, per = 0;
    for (int k = 0; k < op->n_axis; k++) {
      int64_t v = 0;
      if (!ex_const_int(c, op->axis[k].extent, &v)) return -1;
      elements *= (double)v;
    }
    Count s = {.c = c, .code = ir_tensor(c, op->out[0])->type.code};
    mapu_init(&s.memo, ir_arena(c));
    for (int k = 0; k < op->n_out; k++) per += count(&s, op->body[k]);
    if (s.fail) return -1;
    total += elements * per;
  }
  return total;
}
