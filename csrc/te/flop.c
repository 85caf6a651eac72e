/* Operation count of a DAG.
 *
 * The count of a stage is (elements) x (operations of one evaluation of its bodies), where only operations on the kind
 * of number that the stage produces count: index arithmetic inside a float stage is free. Calls count nothing
 * themselves. A stage may state its own count in the attribute "FLOP". An extent that is no constant, or a node that
 * is not understood, makes the whole count unknown (-1).
 *
 * Templates are counted otherwise (te_count_operations, spec 06 §1.10): every operator counts, on whatever numbers it
 * works, so the comparisons of a padded stage do; and a stage counts as often as others read it.
 */
#include "te/te_int.h"

typedef struct {
  IrCtx *c;
  uint8_t code;
  bool all;         /* every operator counts */
  const char *fail; /* why it cannot be counted */
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
    if (!ex_const_int(s->c, r.axis[i].extent, &v)) s->fail = "an axis has no constant length";
    steps *= (double)v;
  }
  if (s->all && r.n_src > 1) s->fail = "a reduction has several results";
  for (int i = 0; i < r.n_src && !s->fail; i++)
    per += count(s, ir_reducer(s->c, r.reducer)->result[i]) + count(s, r.src[i]);
  return steps * per;
}

static double count_node(Count *s, ExprId e) {
  IrCtx *c = s->c;
  ExprKind k = ir_kind(c, e);
  if (k == IR_INT || k == IR_FLT || k == IR_STR || k == IR_VAR || k == IR_READ) return 0;
  if (ir_is_binary(k)) {
    bool own = s->all || ir_type(c, ir_kid(c, e, 0)).code == s->code || ir_type(c, ir_kid(c, e, 1)).code == s->code;
    return (own ? 1.0 : 0.0) + count_kids(s, e, 0);
  }
  if (k == IR_NOT) return (s->all || ir_type(c, e).code == s->code ? 1.0 : 0.0) + count_kids(s, e, 0);
  if (k == IR_CAST || k == IR_CALL) return count_kids(s, e, 0);
  if (k == IR_REDUCE) return count_reduce(s, e);
  if (k == IR_SELECT) {
    double t = count(s, ir_kid(c, e, 1)), f = count(s, ir_kid(c, e, 2));
    return count(s, ir_kid(c, e, 0)) + (t > f ? t : f);
  }
  s->fail = "an expression is not understood";
  return 0;
}

static double count(Count *s, ExprId e) {
  if (s->fail) return 0;
  int32_t at = mapu_get(&s->memo, (uint64_t)e, -1);
  if (at >= 0) return s->val.at[at];
  double v = count_node(s, e);
  vec_note(ir_arena(s->c), &s->val, v, &s->memo, e);
  return v;
}

/* Operations of one evaluation of all bodies, times the elements; -1 with s->fail set. */
static double count_op(Count *s, const TeOp *op) {
  double elements = 1, per = 0;
  for (int k = 0; k < op->n_axis; k++) {
    int64_t v = 0;
    if (!ex_const_int(s->c, op->axis[k].extent, &v)) s->fail = "an axis has no constant length";
    elements *= (double)v;
  }
  s->code = ir_tensor(s->c, op->out[0])->type.code;
  mapu_init(&s->memo, ir_arena(s->c));
  for (int k = 0; k < op->n_out && !s->fail; k++) per += count(s, op->body[k]);
  return s->fail ? -1 : elements * per;
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
    Count s = {.c = c};
    double n = count_op(&s, op);
    if (s.fail) return -1;
    total += n;
  }
  return total;
}

typedef struct {
  IrCtx *c;
  const char *why;
  MapU64 memo; /* number of the first output -> place of the sum in val */
  VEC(double) val;
} Total;
/* Of an operation and of all that it reads. */
static double total_of(Total *t, const TeOp *op) {
  if (op->kind != TE_COMPUTE || t->why) return 0;
  int32_t at = mapu_get(&t->memo, (uint64_t)op->out[0], -1);
  if (at >= 0) return t->val.at[at];
  Count s = {.c = t->c, .all = true};
  double sum = op->n_out == 1 ? count_op(&s, op) : 0;
  t->why = op->n_out == 1 ? s.fail : "an operation has several results";
  for (int i = 0; i < op->n_in; i++) sum += total_of(t, te_op_of(t->c, op->in[i]));
  vec_note(ir_arena(t->c), &t->val, sum, &t->memo, op->out[0]);
  return sum;
}
double te_count_operations(IrCtx *c, int n, const TensorId *out, const char **why) {
  Total t = {.c = c};
  double sum = 0;
  ArenaMark mark = arena_mark(ir_arena(c));
  mapu_init(&t.memo, ir_arena(c));
  for (int i = 0; i < n; i++) sum += total_of(&t, te_op_of(c, out[i]));
  arena_release(ir_arena(c), mark);
  *why = t.why;
  return sum;
}
