/* primfn: the text of a lowered function, in the dialect of the te tutorials (spec 07 §7.6).
 *
 * Names are unique per text: a prefix that is taken gets _1, _2, ... The order in which names are given is part of the
 * format: external buffers, parameters, then data pointers, shape and stride variables while the header is printed, and
 * everything else when it first occurs. A variable prints with its type where it first occurs.
 */
#include "lower/util.h"
#include <string.h>

typedef struct {
  IrCtx *c;
  StrBuf *b;
  const Func *f;
  MapStr used; /* name -> counter of its prefix */
  MapU64 var, buf;
  VEC(const char *) name;
} Text;

static const char *unique(Text *t, const char *prefix) {
  Arena *a = ir_arena(t->c);
  int32_t k = maps_get(&t->used, prefix, -1);
  const char *s = prefix;
  if (k >= 0) {
    do s = arena_printf(a, "%s_%d", prefix, ++k);
    while (maps_get(&t->used, s, -1) >= 0);
    maps_set(&t->used, prefix, k);
  }
  maps_set(&t->used, s, 0);
  return s;
}
static bool letter(char x) { return (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z'); }
static const char *prefixed(Text *t, const char *name, const char *if_no_letter) {
  return letter(name[0]) ? name : arena_printf(ir_arena(t->c), "%s%s", if_no_letter, name);
}
static void keep(Text *t, MapU64 *m, int32_t id, const char *name) { vec_note(ir_arena(t->c), &t->name, name, m, id); }
static void var_named(Text *t, VarId v, const char *prefix) {
  int32_t i = mapu_get(&t->var, (uint64_t)v, -1);
  if (i >= 0) {
    sb_puts(t->b, t->name.at[i]);
    return;
  }
  const char *s = unique(t, prefixed(t, prefix, "v"));
  keep(t, &t->var, v, s);
  sb_printf(t->b, "%s: ", s);
  dtype_print(t->b, ir_var_info(t->c, v)->type);
}
static void var(Text *t, VarId v) { var_named(t, v, ir_var_info(t->c, v)->name); }
static void pointer(Text *t, BufferId id) {
  int32_t i = mapu_get(&t->buf, (uint64_t)id, -1);
  if (i >= 0) {
    sb_puts(t->b, t->name.at[i]);
    return;
  }
  const IrBuffer *b = ir_buffer(t->c, id);
  const char *s = unique(t, prefixed(t, b->name, "buf_"));
  keep(t, &t->buf, id, s);
  sb_printf(t->b, "%s: Pointer(", s);
  dtype_print(t->b, b->type);
  sb_putc(t->b, ')');
}

/* ---- expressions ---- */
static void expr(Text *t, ExprId e);
static void list(Text *t, ExprId e, int from) {
  int n = ir_node(t->c, e)->n;
  for (int i = from; i < n; i++) {
    if (i > from) sb_puts(t->b, ", ");
    expr(t, ir_kid(t->c, e, i));
  }
}
static void suffix(Text *t, DType d) {
  static const char CODE[] = {[DT_INT] = 'i', [DT_UINT] = 'u', [DT_FLOAT] = 'f', [DT_HANDLE] = 'h', [DT_BFLOAT] = 'b'};
  sb_printf(t->b, "%c%d", CODE[d.code], d.bits);
}
static void expr(Text *t, ExprId e) {
  IrCtx *c = t->c;
  StrBuf *b = t->b;
  ExprNode n = *ir_node(c, e);
  const BinaryText *op = &IR_BINARY[n.kind];
  if (op->open) {
    sb_puts(b, op->open);
    expr(t, ir_kid(c, e, 0));
    sb_puts(b, n.kind == IR_DIV ? " / " : op->mid);
    expr(t, ir_kid(c, e, 1));
    sb_puts(b, op->close);
    return;
  }
  switch ((ExprKind)n.kind) {
  case IR_INT:
    if (dtype_is_bool(n.type)) {
      sb_puts(b, n.u.i ? "True" : "False");
      return;
    }
    sb_printf(b, "%lld", (long long)n.u.i);
    if (!dtype_eq(n.type, DT_I32)) suffix(t, n.type);
    return;
  case IR_FLT:
    sb_printf(b, "%g", n.u.f);
    suffix(t, n.type);
    return;
  case IR_STR: ex_print(c, b, e); return;
  case IR_VAR: var(t, n.sym); return;
  case IR_NOT:
    sb_putc(b, '!');
    expr(t, ir_kid(c, e, 0));
    return;
  case IR_SELECT:
    sb_puts(b, "select(");
    list(t, e, 0);
    sb_putc(b, ')');
    return;
  case IR_CAST:
    sb_puts(b, "cast(");
    dtype_print(b, n.type);
    sb_puts(b, ", ");
    list(t, e, 0);
    sb_putc(b, ')');
    return;
  case IR_LOAD:
    sb_putc(b, '(');
    dtype_print(b, n.type);
    sb_puts(b, "*)");
    pointer(t, n.sym);
    sb_putc(b, '[');
    list(t, e, 0);
    sb_putc(b, ']');
    return;
  case IR_RAMP:
  case IR_BCAST:
    sb_puts(b, n.kind == IR_RAMP ? "ramp(" : "broadcast(");
    list(t, e, 0);
    sb_printf(b, ", %d)", n.type.lanes);
    return;
  case IR_CALL:
    sb_printf(b, "@tir.%s(", intrin_info((Intrin)n.sym)->name);
    list(t, e, 0);
    sb_puts(b, n.n ? ", dtype=" : "dtype=");
    dtype_print(b, n.type);
    sb_putc(b, ')');
    return;
  case IR_LET:
    sb_puts(b, "let ");
    var(t, n.sym);
    sb_puts(b, " = ");
    expr(t, ir_kid(c, e, 0));
    sb_puts(b, " in ");
    expr(t, ir_kid(c, e, 1));
    return;
  default: ex_print(c, b, e); return;
  }
}

/* ---- statements ---- */
static void stmt(Text *t, const Stmt *s, int indent);
static void body(Text *t, const Stmt *s, int indent) { /* " {" statements "}" without a final newline */
  sb_puts(t->b, " {\n");
  stmt(t, s, indent + 2);
  sb_spaces(t->b, indent);
  sb_putc(t->b, '}');
}
static void tail(Text *t, const Stmt *s, int indent) {
  if (s->kind == ST_SEQ) {
    body(t, s, indent);
    sb_putc(t->b, '\n');
    return;
  }
  sb_puts(t->b, ";\n");
  stmt(t, s, indent);
}

static void loop(Text *t, const Stmt *s, int indent) {
  static const char *const WORD[] = {[FOR_SERIAL] = "",
                                     [FOR_UNROLLED] = " \"unroll\"",
                                     [FOR_VECTOR] = " \"vectorized\"",
                                     [FOR_PARALLEL] = " \"parallel\""};
  ForKind k = s->u.loop.kind;
  sb_spaces(t->b, indent);
  if (k >= FOR_VTHREAD) {
    sb_puts(t->b, "attr [IterVar(");
    var_named(t, s->u.loop.var, low_tag(k));
    sb_printf(t->b, ", (nullptr), \"ThreadIndex\", \"%s\")] \"%s\" = ", low_tag(k),
              k == FOR_VTHREAD ? "virtual_thread" : "thread_extent");
    expr(t, s->u.loop.extent);
    tail(t, s->u.loop.body, indent);
    return;
  }
  sb_puts(t->b, "for (");
  var(t, s->u.loop.var);
  sb_puts(t->b, ", ");
  expr(t, s->u.loop.min);
  sb_puts(t->b, ", ");
  expr(t, ar_simplify(ar_new(t->c), ex_add(t->c, s->u.loop.min, s->u.loop.extent)));
  sb_printf(t->b, ")%s", WORD[k]);
  body(t, s->u.loop.body, indent);
  sb_putc(t->b, '\n');
}
static void stmt(Text *t, const Stmt *s, int indent) {
  if (!s) return;
  StrBuf *b = t->b;
  switch (s->kind) {
  case ST_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) stmt(t, s->u.seq.at[i], indent);
    return;
  case ST_FOR: loop(t, s, indent); return;
  case ST_IF:
    sb_spaces(t->b, indent);
    sb_puts(b, s->u.cond.likely ? "if @tir.likely(" : "if ");
    expr(t, s->u.cond.cond);
    if (s->u.cond.likely) sb_puts(b, ", dtype=bool)");
    body(t, s->u.cond.then, indent);
    if (s->u.cond.other) {
      sb_puts(b, " else");
      body(t, s->u.cond.other, indent);
    }
    sb_putc(b, '\n');
    return;
  case ST_LET:
    sb_spaces(t->b, indent);
    sb_puts(b, "let ");
    var(t, s->u.let.var);
    sb_puts(b, " = ");
    expr(t, s->u.let.value);
    sb_putc(b, '\n');
    stmt(t, s->u.let.body, indent);
    return;
  case ST_ALLOC: {
    const IrBuffer *x = ir_buffer(t->c, s->u.alloc.buf);
    sb_spaces(t->b, indent);
    sb_puts(b, "attr [");
    pointer(t, s->u.alloc.buf);
    sb_printf(b, "] \"storage_scope\" = \"%s\";\n", SCOPE_NAME[x->scope < 0 ? 0 : x->scope]);
    sb_spaces(t->b, indent);
    sb_puts(b, "allocate(");
    pointer(t, s->u.alloc.buf);
    sb_puts(b, ", ");
    dtype_print(b, x->type);
    sb_puts(b, ", [");
    expr(t, x->size);
    sb_puts(b, "])");
    tail(t, s->u.alloc.body, indent);
    return;
  }
  case ST_STORE:
    sb_spaces(t->b, indent);
    pointer(t, s->u.store.buf);
    sb_putc(b, '[');
    expr(t, s->u.store.idx[0]);
    sb_puts(b, "] = ");
    expr(t, s->u.store.value);
    sb_putc(b, '\n');
    return;
  case ST_EVAL:
    sb_spaces(t->b, indent);
    expr(t, s->u.eval.e);
    sb_putc(b, '\n');
    return;
  case ST_ATTR:
    sb_spaces(t->b, indent);
    sb_printf(b, "attr [0] \"%s\" = %lld", s->u.attr.text ? s->u.attr.text : "pragma", (long long)s->u.attr.value);
    tail(t, s->u.attr.body, indent);
    return;
  default: err_raise(ir_err(t->c), NS_ERR_INTERNAL, "the text of programs knows no statement of kind %d", s->kind);
  }
}

/* ---- header ---- */
static void shape(Text *t, int n, const ExprId *e) {
  sb_putc(t->b, '[');
  for (int i = 0; i < n; i++) {
    if (i) sb_puts(t->b, ", ");
    expr(t, e[i]);
  }
  sb_putc(t->b, ']');
}
static void buffer(Text *t, BufferId id, const char *name) {
  IrBuffer x = *ir_buffer(t->c, id);
  StrBuf *b = t->b;
  sb_printf(b, "%s: Buffer(", name);
  pointer(t, id);
  sb_puts(b, ", ");
  dtype_print(b, x.type);
  sb_puts(b, ", ");
  shape(t, x.rank, x.extent);
  bool automatic = x.stride && x.rank > 0 && ir_kind(t->c, x.stride[0]) == IR_VAR;
  sb_puts(b, ", ");
  shape(t, automatic ? x.rank : 0, x.stride);
  sb_puts(b, automatic ? ", type=\"auto\")" : ")");
}

char *low_primfn(Func f) {
  f = low_printable(f);
  StrBuf b;
  Text t = {.c = f.ctx, .b = &b, .f = &f};
  Arena *a = ir_arena(f.ctx);
  sb_init(&b, a);
  maps_init(&t.used, a);
  mapu_init(&t.var, a);
  mapu_init(&t.buf, a);
  const char **external = arena_array(a, const char *, f.n_args + 1),
             **param = arena_array(a, const char *, f.n_args + 1);
  for (int i = 0; i < f.n_args; i++) external[i] = unique(&t, prefixed(&t, ir_buffer(f.ctx, f.arg[i])->name, "buf_"));
  for (int i = 0; i < f.n_args; i++) param[i] = unique(&t, prefixed(&t, ir_buffer(f.ctx, f.arg[i])->name, "v"));
  sb_puts(&b, "primfn(");
  for (int i = 0; i < f.n_args; i++) sb_printf(&b, "%s%s: handle", i ? ", " : "", param[i]);
  sb_puts(&b, ") -> ()\n  attr = {\"global_symbol\": \"main\", \"tir.noalias\": True}");
  for (int i = 0; i < f.n_args; i++) {
    sb_puts(&b, i ? ",\n             " : "\n  buffers = {");
    buffer(&t, f.arg[i], external[i]);
  }
  if (f.n_args) sb_puts(&b, "}\n  buffer_map = {");
  for (int i = 0; i < f.n_args; i++) sb_printf(&b, "%s%s: %s", i ? ", " : "", param[i], external[i]);
  sb_puts(&b, f.n_args ? "} {\n" : " {\n");
  stmt(&t, f.body, 2);
  sb_puts(&b, "}\n");
  return sb_str(&b);
}
