/* The text of a state: its loops, indented, with the stages attached at them. States are equal when their texts are. */
#include "schedule/internal.h"
#include <string.h>

typedef struct {
  const State *s;
  StrBuf *b;
  bool hide;
} Printer;

/* ---- symbolic ranges, in the notation of release 0.14: infix with the precedence of Python, T.Select, T.min, T.bool ---- */
static const struct {
  ExprKind kind;
  int prec; /* 0: a function of two arguments */
  const char *text;
} INFIX[] = {{IR_ADD, 2, " + "},  {IR_SUB, 2, " - "}, {IR_MUL, 3, " * "},   {IR_DIV, 3, " / "},  {IR_FDIV, 3, " // "},
             {IR_FMOD, 3, " % "}, {IR_LT, 1, " < "},  {IR_LE, 1, " <= "},   {IR_GT, 1, " > "},   {IR_GE, 1, " >= "},
             {IR_EQ, 1, " == "},  {IR_NE, 1, " != "}, {IR_MIN, 0, "T.min"}, {IR_MAX, 0, "T.max"}};

static int infix_of(ExprKind k) {
  for (int i = 0; i < NS_COUNT(INFIX); i++)
    if (INFIX[i].kind == k) return i;
  return -1;
}

static void put_expr(IrCtx *c, StrBuf *b, ExprId e, int outer) { /* in parentheses if it binds no tighter than outer */
  ExprNode n = *ir_node(c, e);
  int at = infix_of((ExprKind)n.kind);
  if (n.kind == IR_VAR) {
    for (const char *s = ir_var_info(c, n.sym)->name; *s; s++) sb_putc(b, *s == '.' ? '_' : *s);
  } else if (n.kind == IR_INT && dtype_is_bool(n.type)) {
    sb_puts(b, n.u.i ? "T.bool(True)" : "T.bool(False)");
  } else if (n.kind == IR_INT && n.type.bits == 32) {
    sb_int(b, n.u.i);
  } else if (at >= 0 && INFIX[at].prec > 0) {
    bool paren = INFIX[at].prec <= outer;
    if (paren) sb_putc(b, '(');
    put_expr(c, b, ir_kid(c, e, 0), INFIX[at].prec - 1);
    sb_puts(b, INFIX[at].text);
    put_expr(c, b, ir_kid(c, e, 1), INFIX[at].prec);
    if (paren) sb_putc(b, ')');
  } else if (at >= 0 || n.kind == IR_SELECT) {
    sb_puts(b, at >= 0 ? INFIX[at].text : "T.Select");
    for (int i = 0; i < n.n; i++) {
      sb_puts(b, i ? ", " : "(");
      put_expr(c, b, ir_kid(c, e, i), 0);
    }
    sb_putc(b, ')');
  } else {
    ex_print(c, b, e);
  }
}

static void put_range(const Printer *p, const Stage *st, const Axis *x) {
  if (!x->ranged) {
    sb_puts(p->b, " (None)\n");
    return;
  }
  const Axis *root = x->rebase_of ? &st->axes.at[x->rebase_of - 1] : x;
  int64_t v;
  sb_puts(p->b, " (");
  if (p->s->bounded && root->min && !ex_const_int(p->s->ctx, root->min, &v))
    put_expr(p->s->ctx, p->b, root->min, 0);
  else
    sb_int(p->b, x->smin);
  sb_putc(p->b, ',');
  if (x->sext >= 0)
    sb_int(p->b, x->sext);
  else if (root->extent)
    put_expr(p->s->ctx, p->b, root->extent, 0);
  else
    sb_putc(p->b, '?');
  sb_puts(p->b, ")\n");
}

static StrBuf *note(const Printer *p, const Stage *st, int indent) { /* a line about a stage: behind its name */
  sb_spaces(p->b, indent);
  sb_puts(p->b, st->op->name);
  return p->b;
}

static void put_stage(const Printer *p, int stage, int indent, int depth) {
  const Stage *st = &p->s->stage.at[stage];
  const MatrixTile *t = st->matrix;
  if (depth > p->s->stage.len) return; /* a cycle of attachments: bound inference reports it */
  if (st->auto_unroll) {
    sb_puts(note(p, st, indent), " auto_unroll: ");
    sb_int(p->b, st->auto_unroll);
    sb_putc(p->b, '\n');
  }
  if (st->storage_offset) sb_printf(note(p, st, indent), " storage_offset: %d\n", st->storage_offset);
  if (st->double_buffer) sb_puts(note(p, st, indent), " double_buffer\n");
  if (st->scope_asked)
    sb_printf(note(p, st, indent), " scope: %s\n", st->scope == SC_AUTO ? "auto" : SCOPE_NAME[st->scope]);
  if (t)
    sb_printf(note(p, st, indent), " %s: block %dx%dx%d, warp %dx%d, %d stages%s, split %d%s%s%s%s\n",
              matrix_lanes(t) ? "product by lanes" : "tensor cores", t->block_m, t->block_n, t->block_k, t->warp_m,
              t->warp_n, t->stages, t->transposed ? ", transposed" : "", t->split,
              t->terms == 3         ? ", float32x3"
              : matrix_half_sums(t) ? ", sums in float16"
                                    : "",
              t->warpgroups == 0   ? ""
              : t->warpgroups == 1 ? ", warpgroups"
                                   : ", warpgroups with two slices at a time",
              t->wide        ? ", wide stores"
              : t->teams > 1 ? arena_printf(ir_arena(p->s->ctx), ", %d teams", t->teams)
                             : "",
              t->last ? ", last block adds up" : "");
  if (st->store_predicate) sb_printf(note(p, st, indent), " stored if: %s\n", ex_text(p->s->ctx, st->store_predicate));
  for (int i = 0; i < st->leaf.len; i++) {
    const Axis *x = &st->axes.at[st->leaf.at[i]];
    if (!(p->hide && x->ranged && x->sext == 1)) {
      sb_spaces(p->b, indent);
      sb_puts(p->b, AN_WORD[x->ann]);
      sb_putc(p->b, ' ');
      sb_puts(p->b, loop_name(p->s, x));
      put_range(p, st, x);
      indent += 2;
    }
    for (int k = 0; k < st->attached.len; k++)
      if (attach_leaf(st->attached.at[k]) == i) put_stage(p, attach_stage(st->attached.at[k]), indent, depth + 1);
  }
  sb_puts(note(p, st, indent), " = ...\n");
}

char *state_text(const State *s, bool hide_trivial) {
  StrBuf b;
  sb_init(&b, ir_arena(s->ctx));
  sb_puts(&b, "Placeholder: ");
  const char *sep = "";
  for (int i = 0; i < s->stage.len; i++)
    if (s->stage.at[i].op->kind == TE_PLACEHOLDER) {
      sb_puts(&b, sep);
      sb_puts(&b, s->stage.at[i].op->name);
      sep = ", ";
    }
  sb_putc(&b, '\n');
  Printer p = {s, &b, hide_trivial};
  for (int i = 0; i < s->stage.len; i++)
    if (s->stage.at[i].op->kind == TE_COMPUTE && s->stage.at[i].at == AT_ROOT) put_stage(&p, i, 0, 0);
  return sb_str(&b);
}

/* Of the text, and of steps that no text shows. */
uint64_t state_hash(const State *s) {
  uint64_t h = hash_str(state_text(s, true));
  for (int i = 0; i < s->step.len; i++)
    if (s->step.at[i].kind >= STEP_OWN) {
      const char *text = steps_text(ir_arena(s->ctx), 1, &s->step.at[i]);
      h = hash_bytes(text, strlen(text), h);
    }
  return h;
}
