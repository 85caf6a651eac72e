/* The text of an expression. This text is hashed into task identities and read by users, so every blank counts: infix
 * operators always carry their own parentheses, products and quotients have no blanks, there are no line breaks. */
#include "ir/ctx.h"

#include <math.h>
#include <string.h>

const BinaryText IR_BINARY[IR_KIND_COUNT] = {
    [IR_ADD] = {"(", " + ", ")"},         [IR_SUB] = {"(", " - ", ")"},   [IR_MUL] = {"(", "*", ")"},
    [IR_DIV] = {"(", "/", ")"},           [IR_MOD] = {"(", " % ", ")"},   [IR_FDIV] = {"floordiv(", ", ", ")"},
    [IR_FMOD] = {"floormod(", ", ", ")"}, [IR_MIN] = {"min(", ", ", ")"}, [IR_MAX] = {"max(", ", ", ")"},
    [IR_EQ] = {"(", " == ", ")"},         [IR_NE] = {"(", " != ", ")"},   [IR_LT] = {"(", " < ", ")"},
    [IR_LE] = {"(", " <= ", ")"},         [IR_GT] = {"(", " > ", ")"},    [IR_GE] = {"(", " >= ", ")"},
    [IR_AND] = {"(", " && ", ")"},        [IR_OR] = {"(", " || ", ")"}};

static void print(IrCtx *c, StrBuf *b, ExprId e);
static void print_list(IrCtx *c, StrBuf *b, int n, const ExprId *e) {
  for (int i = 0; i < n; i++) {
    if (i) sb_puts(b, ", ");
    print(c, b, e[i]);
  }
}

static void print_var(IrCtx *c, StrBuf *b, VarId v) {
  const IrVar *var = ir_var_info(c, v);
  if (var->nonneg)
    sb_printf(b, "{%s|%s>=0}", var->name, var->name);
  else
    sb_puts(b, var->name);
}

static void print_int(StrBuf *b, DType t, int64_t v) {
  if (!dtype_eq(t, DT_I32)) {
    sb_putc(b, '(');
    dtype_print(b, t);
    sb_putc(b, ')');
  }
  if (t.code == DT_UINT)
    sb_printf(b, "%llu", (unsigned long long)v);
  else
    sb_printf(b, "%lld", (long long)v);
}

static void print_flt(StrBuf *b, DType t, double v) {
  if (isnan(v))
    sb_puts(b, "nan"); /* never -nan */
  else
    sb_printf(b, "%g", v);
  if (t.bits == 32) sb_putc(b, 'f');
  if (t.bits == 16) sb_putc(b, 'h');
}

static void print_str(StrBuf *b, const char *s) {
  static const char FROM[] = "\"\\\n\t\r\a\b\f\v", TO[] = "\"\\ntrabfv";
  sb_putc(b, '"');
  for (; *s; s++) {
    const char *p = strchr(FROM, *s);
    if (p)
      sb_putc(b, '\\'), sb_putc(b, TO[p - FROM]);
    else if ((unsigned char)*s < 32 || *s == 127)
      sb_printf(b, "\\x%02x", (unsigned char)*s);
    else
      sb_putc(b, *s);
  }
  sb_putc(b, '"');
}

static void print_reduce(IrCtx *c, StrBuf *b, ExprId e) {
  const IrReduce r = *ir_reduce(c, e);
  const IrReducer k = *ir_reducer(c, r.reducer);
  sb_puts(b, "reduce(combiner=comm_reducer(result=[");
  print_list(c, b, k.n, k.result);
  sb_puts(b, "], lhs=[");
  for (int i = 0; i < k.n; i++) sb_puts(b, i ? ", " : ""), print_var(c, b, k.lhs[i]);
  sb_puts(b, "], rhs=[");
  for (int i = 0; i < k.n; i++) sb_puts(b, i ? ", " : ""), print_var(c, b, k.rhs[i]);
  sb_puts(b, "], identity_element=[");
  print_list(c, b, k.n, k.identity);
  sb_puts(b, "]), source=[");
  print_list(c, b, r.n_src, r.src);
  sb_puts(b, "], init=[");
  if (r.init) print_list(c, b, r.n_src, r.init);
  sb_puts(b, "], axis=[");
  for (int i = 0; i < r.n_axis; i++) {
    sb_puts(b, i ? ", iter_var(" : "iter_var(");
    print_var(c, b, r.axis[i].var);
    sb_puts(b, ", range(min=");
    print(c, b, r.axis[i].min);
    sb_puts(b, ", ext=");
    print(c, b, r.axis[i].extent);
    sb_puts(b, "))");
  }
  sb_puts(b, "], where=");
  print(c, b, r.cond);
  sb_printf(b, ", value_index=%d)", r.value_index);
}

static void print_call(IrCtx *c, StrBuf *b, const char *head, ExprId e, const char *open, const char *close) {
  sb_puts(b, head);
  sb_puts(b, open);
  print_list(c, b, ir_node(c, e)->n, ir_kids(c, e));
  sb_puts(b, close);
}

static void print(IrCtx *c, StrBuf *b, ExprId e) {
  if (!e) {
    sb_puts(b, "none");
    return;
  }
  const ExprNode *p = ir_node(c, e);
  const ExprId *kid = ir_kids(c, e);
  const BinaryText *s = &IR_BINARY[p->kind];
  if (s->open) {
    sb_puts(b, s->open);
    print(c, b, kid[0]);
    sb_puts(b, s->mid);
    print(c, b, kid[1]);
    sb_puts(b, s->close);
    return;
  }
  switch ((ExprKind)p->kind) {
  case IR_INT: print_int(b, p->type, p->u.i); break;
  case IR_FLT: print_flt(b, p->type, p->sym == FLT_KEPT ? 0 : p->u.f); break;
  case IR_STR: print_str(b, c->str[p->u.i]); break;
  case IR_VAR: print_var(c, b, p->sym); break;
  case IR_NOT:
    sb_putc(b, '!');
    print(c, b, kid[0]);
    break;
  case IR_CAST:
    dtype_print(b, p->type);
    print_call(c, b, "", e, "(", ")");
    break;
  case IR_SELECT: print_call(c, b, "select", e, "(", ")"); break;
  case IR_CALL:
    sb_puts(b, "tir.");
    print_call(c, b, intrin_info((Intrin)p->sym)->name, e, "(", ")");
    break;
  case IR_LET:
    sb_puts(b, "(let ");
    print_var(c, b, p->sym);
    sb_puts(b, " = ");
    print(c, b, kid[0]);
    sb_puts(b, " in ");
    print(c, b, kid[1]);
    sb_putc(b, ')');
    break;
  case IR_READ: print_call(c, b, ir_tensor(c, p->sym)->name, e, "[", "]"); break;
  case IR_LOAD: print_call(c, b, ir_buffer(c, p->sym)->name, e, "[", "]"); break;
  case IR_REDUCE: print_reduce(c, b, e); break;
  case IR_RAMP:
    sb_puts(b, "ramp(");
    print_list(c, b, 2, kid);
    sb_printf(b, ", %d)", p->type.lanes);
    break;
  case IR_BCAST:
    sb_printf(b, "x%d(", p->type.lanes);
    print(c, b, kid[0]);
    sb_putc(b, ')');
    break;
  default: err_raise(c->err, NS_ERR_INTERNAL, "cannot print an expression of kind %d", p->kind);
  }
}

void ex_print(IrCtx *c, StrBuf *b, ExprId e) {
  err_check(c->err, !e || ex_size(c, e, NULL, NULL) < EX_SIZE_MAX,
            "the text of the expression would have more than %d operations, because parts of it are shared",
            EX_SIZE_MAX);
  print(c, b, e);
}

char *ex_text(IrCtx *c, ExprId e) {
  StrBuf b;
  sb_init(&b, c->arena);
  ex_print(c, &b, e);
  return sb_str(&b);
}
