/* The text of a DAG and the workload key.
 *
 * One line per body, in stage order. The full form is what users read; the simple form leaves out shapes and the
 * arguments of a body that is a call, and is what gets hashed. A task's key is the hash followed by the shapes of its
 * tensors, so tasks that differ in shapes only share the hash. Every quirk of the text (sources 0 and 1 only, no
 * blank before "reduce") is part of the key of existing tuning logs and must stay.
 */
#include <inttypes.h>
#include <string.h>

#include "te/te.h"

static void print_list(IrCtx *c, StrBuf *b, int n, const ExprId *e) {
  for (int i = 0; i < n; i++) {
    if (i) sb_puts(b, ", ");
    ex_print(c, b, e[i]);
  }
}

/* " += source" and its relatives; the operator shown is the root of the combiner's result. */
static void print_reduce(IrCtx *c, StrBuf *b, const IrReduce *r) {
  ExprId res = ir_reducer(c, r->reducer)->result[r->value_index];
  ExprKind k = ir_kind(c, res);
  if (k == IR_ADD || k == IR_MAX || k == IR_MIN) {
    sb_puts(b, k == IR_ADD ? " += " : k == IR_MAX ? " max= " : " min= ");
    ex_print(c, b, r->src[0]);
  } else if (k == IR_SELECT) {
    const ExprId part[] = {ir_kid(c, res, 0), ir_kid(c, res, 1), ir_kid(c, res, 2)};
    sb_puts(b, " select(");
    print_list(c, b, 3, part);
    sb_puts(b, ")= (");
    ex_print(c, b, r->src[0]);
    sb_putc(b, ',');
    ex_print(c, b, r->src[r->n_src > 1 ? 1 : 0]);
    sb_putc(b, ')');
  } else {
    sb_puts(b, "reduce");
    ex_print(c, b, res);
  }
}

static void print_op(IrCtx *c, StrBuf *b, const TeOp *op, bool simple) {
  if (op->kind == TE_PLACEHOLDER) {
    sb_printf(b, "%s = PLACEHOLDER ", op->name);
    if (!simple) {
      sb_putc(b, '[');
      print_list(c, b, ir_tensor(c, op->out[0])->rank, ir_tensor(c, op->out[0])->shape);
      sb_putc(b, ']');
    }
    sb_putc(b, '\n');
    return;
  }
  for (int k = 0; k < op->n_out; k++) {
    sb_printf(b, "%s(", op->name);
    for (int i = 0; i < op->n_axis; i++) sb_printf(b, "%s%s", i ? ", " : "", op->axis[i].name);
    sb_putc(b, ')');
    if (op->n_out > 1) sb_printf(b, ".v%d", k);
    ExprId e = op->body[k];
    ExprKind kind = ir_kind(c, e);
    if (kind == IR_REDUCE) {
      print_reduce(c, b, ir_reduce(c, e));
    } else if (kind == IR_CALL && simple) {
      sb_printf(b, " = Op(tir.%s)", intrin_info((Intrin)ir_node(c, e)->sym)->name);
    } else {
      sb_puts(b, " = ");
      ex_print(c, b, e);
    }
    sb_putc(b, '\n');
  }
}

char *te_dag_text(IrCtx *c, const TeDag *d, bool simple) {
  StrBuf b;
  sb_init(&b, ir_arena(c));
  for (int i = 0; i < d->n_ops; i++) print_op(c, &b, d->op[i], simple);
  return sb_str(&b);
}

char *te_workload_key(IrCtx *c, const TeDag *d) {
  char hash[33];
  const char *text = te_dag_text(c, d, true);
  md5_hex(text, strlen(text), hash);
  StrBuf b;
  sb_init(&b, ir_arena(c));
  sb_printf(&b, "[\"%s\"", hash);
  for (int i = 0; i < d->n_tensors; i++) {
    IrTensor t = *ir_tensor(c, d->tensor[i]);
    sb_puts(&b, ", [");
    for (int k = 0; k < t.rank; k++) sb_printf(&b, "%s%" PRId64, k ? ", " : "", te_const(c, t.shape[k]));
    sb_putc(&b, ']');
  }
  sb_putc(&b, ']');
  return sb_str(&b);
}
