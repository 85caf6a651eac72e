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
/* A text in which $0 is the first of n expressions, $* all of them, $v the variable and $b the buffer `sym`, $t the type and $l
 * its lanes. */
static void form(Text *t, const char *text, int32_t sym, DType type, int n, const ExprId *kid) {
  for (; *text; text++) {
    if (*text != '$') {
      sb_putc(t->b, *text);
      continue;
    }
    switch (*++text) {
    case 'v': var_named(t, sym, ir_var_info(t->c, sym)->name); break;
    case 'b': pointer(t, sym); break;
    case 't': dtype_print(t->b, type); break;
    case 'l': sb_printf(t->b, "%d", type.lanes); break;
    case '*':
      for (int i = 0; i < n; i++) {
        if (i) sb_puts(t->b, ", ");
        expr(t, kid[i]);
      }
      break;
    default: expr(t, kid[*text - '0']);
    }
  }
}
static void suffix(Text *t, DType d) {
  static const char CODE[] = {[DT_INT] = 'i', [DT_UINT] = 'u', [DT_FLOAT] = 'f', [DT_HANDLE] = 'h', [DT_BFLOAT] = 'b'};
  sb_printf(t->b, "%c%d", CODE[d.code], d.bits);
}
static void expr(Text *t, ExprId e) {
  static const char *const FORM[IR_KIND_COUNT] = {[IR_VAR] = "$v",
                                                  [IR_NOT] = "!$0",
                                                  [IR_SELECT] = "select($*)",
                                                  [IR_CAST] = "cast($t, $*)",
                                                  [IR_LOAD] = "($t*)$b[$*]",
                                                  [IR_RAMP] = "ramp($*, $l)",
                                                  [IR_BCAST] = "broadcast($*, $l)",
                                                  [IR_LET] = "let $v = $0 in $1"};
  ExprNode n = *ir_node(t->c, e);
  const BinaryText *op = &IR_BINARY[n.kind];
  const char *text = FORM[n.kind];
  if (op->open)
    text = arena_printf(ir_arena(t->c), "%s$0%s$1%s", op->open, n.kind == IR_DIV ? " / " : op->mid, op->close);
  if (n.kind == IR_CALL)
    text = arena_printf(ir_arena(t->c), "@tir.%s($*%sdtype=$t)", intrin_info((Intrin)n.sym)->name, n.n ? ", " : "");
  if (text)
    form(t, text, n.sym, n.type, n.n, ir_kids(t->c, e));
  else if (n.kind == IR_INT && dtype_is_bool(n.type))
    sb_puts(t->b, n.u.i ? "True" : "False");
  else if (n.kind == IR_INT) {
    sb_printf(t->b, "%lld", (long long)n.u.i);
    if (!dtype_eq(n.type, DT_I32)) suffix(t, n.type);
  } else if (n.kind == IR_FLT) {
    sb_printf(t->b, "%g", n.sym == FLT_KEPT ? 0 : n.u.f);
    suffix(t, n.type);
  } else
    ex_print(t->c, t->b, e);
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
  ExprId at[] = {s->u.loop.min, ar_simplify(ar_new(t->c), ex_add(t->c, s->u.loop.min, s->u.loop.extent))};
  form(t, "for ($v, $*)", s->u.loop.var, DT_I32, 2, at);
  sb_puts(t->b, WORD[k]);
  body(t, s->u.loop.body, indent);
  sb_putc(t->b, '\n');
}
static void stmt(Text *t, const Stmt *s, int indent) {
  if (!s) return;
  StrBuf *b = t->b;
  if (s->kind != ST_SEQ && s->kind != ST_FOR) sb_spaces(b, indent);
  switch (s->kind) {
  case ST_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) stmt(t, s->u.seq.at[i], indent);
    return;
  case ST_FOR: loop(t, s, indent); return;
  case ST_IF:
    form(t, s->u.cond.likely ? "if @tir.likely($0, dtype=bool)" : "if $0", 0, DT_BOOL, 1, &s->u.cond.cond);
    body(t, s->u.cond.then, indent);
    if (s->u.cond.other) {
      sb_puts(b, " else");
      body(t, s->u.cond.other, indent);
    }
    sb_putc(b, '\n');
    return;
  case ST_LET:
    form(t, "let $v = $0\n", s->u.let.var, DT_I32, 1, &s->u.let.value);
    stmt(t, s->u.let.body, indent);
    return;
  case ST_ALLOC: {
    const IrBuffer *x = ir_buffer(t->c, s->u.alloc.buf);
    form(t, "attr [$b] \"storage_scope\" = ", s->u.alloc.buf, x->type, 0, NULL);
    sb_printf(b, "\"%s\";\n", SCOPE_NAME[x->scope < 0 ? 0 : x->scope]);
    sb_spaces(b, indent);
    form(t, "allocate($b, $t, [$0])", s->u.alloc.buf, x->type, 1, &x->size);
    tail(t, s->u.alloc.body, indent);
    return;
  }
  case ST_STORE: {
    ExprId part[] = {s->u.store.idx[0], s->u.store.value};
    form(t, "$b[$0] = $1\n", s->u.store.buf, DT_I32, 2, part);
    return;
  }
  case ST_EVAL: form(t, "$0\n", 0, DT_I32, 1, &s->u.eval.e); return;
  case ST_ATTR:
    sb_printf(b, "attr [0] \"%s\" = %lld", s->u.attr.text ? s->u.attr.text : "pragma", (long long)s->u.attr.value);
    tail(t, s->u.attr.body, indent);
    return;
  default: err_raise(ir_err(t->c), NS_ERR_INTERNAL, "the text of programs knows no statement of kind %d", s->kind);
  }
}

/* ---- header ---- */
static void buffer(Text *t, BufferId id, const char *name) {
  IrBuffer x = *ir_buffer(t->c, id);
  sb_printf(t->b, "%s: Buffer(", name);
  form(t, "$b, $t, [$*], ", id, x.type, x.rank, x.extent);
  bool automatic = x.stride && x.rank > 0 && ir_kind(t->c, x.stride[0]) == IR_VAR;
  form(t, automatic ? "[$*], type=\"auto\")" : "[])", id, x.type, x.rank, x.stride);
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
