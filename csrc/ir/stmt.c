/* Statements: trees of arena nodes, not shared. A pass rewrites a program through st_map, which copies only the nodes on
 * the way to a change. The printed form is for people who debug a pass; it is not one of the users' text formats. */
#include "ir/ctx.h"

#include <string.h>

static Stmt *node(IrCtx *c, StmtKind k) {
  Stmt *s = arena_new_of(c->arena, Stmt);
  s->kind = k;
  return s;
}

Stmt *st_seq(IrCtx *c, int n, Stmt **at) {
  int total = 0;
  Stmt *only = NULL;
  for (int i = 0; i < n; i++) {
    if (!at[i]) continue;
    int k = at[i]->kind == ST_SEQ ? at[i]->u.seq.n : 1;
    total += k;
    if (k) only = at[i];
  }
  if (total == 0) return NULL;
  if (total == 1) return only->kind == ST_SEQ ? only->u.seq.at[0] : only;
  Stmt *s = node(c, ST_SEQ);
  s->u.seq.at = arena_array(c->arena, Stmt *, total);
  for (int i = 0; i < n; i++) {
    if (!at[i]) continue;
    if (at[i]->kind != ST_SEQ)
      s->u.seq.at[s->u.seq.n++] = at[i];
    else
      for (int j = 0; j < at[i]->u.seq.n; j++) s->u.seq.at[s->u.seq.n++] = at[i]->u.seq.at[j];
  }
  return s;
}

Stmt *st_for(IrCtx *c, VarId v, ExprId min, ExprId extent, ForKind k, Stmt *body) {
  Stmt *s = node(c, ST_FOR);
  s->u.loop.var = v;
  s->u.loop.min = min;
  s->u.loop.extent = extent;
  s->u.loop.kind = k;
  s->u.loop.body = body;
  return s;
}

Stmt *st_if(IrCtx *c, ExprId cond, bool likely, Stmt *then, Stmt *other) {
  Stmt *s = node(c, ST_IF);
  s->u.cond.cond = cond;
  s->u.cond.likely = likely;
  s->u.cond.then = then;
  s->u.cond.other = other;
  return s;
}

Stmt *st_let(IrCtx *c, VarId v, ExprId value, Stmt *body) {
  Stmt *s = node(c, ST_LET);
  s->u.let.var = v;
  s->u.let.value = value;
  s->u.let.body = body;
  return s;
}

Stmt *st_alloc(IrCtx *c, BufferId b, Stmt *body) {
  Stmt *s = node(c, ST_ALLOC);
  s->u.alloc.buf = b;
  s->u.alloc.body = body;
  return s;
}

Stmt *st_store(IrCtx *c, BufferId b, int n, const ExprId *idx, ExprId value) {
  Stmt *s = node(c, ST_STORE);
  s->u.store.buf = b;
  s->u.store.n_idx = n;
  s->u.store.idx = arena_copy(c->arena, idx, sizeof *idx * (size_t)n);
  s->u.store.value = value;
  return s;
}

Stmt *st_eval(IrCtx *c, ExprId e) {
  Stmt *s = node(c, ST_EVAL);
  s->u.eval.e = e;
  return s;
}

Stmt *st_attr(IrCtx *c, AttrKind k, int64_t value, const char *text, Stmt *body) {
  Stmt *s = node(c, ST_ATTR);
  s->u.attr.kind = k;
  s->u.attr.value = value;
  s->u.attr.text = text ? arena_strdup(c->arena, text) : NULL;
  s->u.attr.body = body;
  return s;
}

/* ---- rewriting ---- */
static ExprId map_expr(IrCtx *c, ExprId e, const StmtMap *m) { return e && m->expr ? m->expr(c, e, m->arg) : e; }

static Stmt *copy(IrCtx *c, const Stmt *s) { return arena_copy(c->arena, s, sizeof *s); }

static Stmt *map_seq(IrCtx *c, Stmt *s, const StmtMap *m) {
  int n = s->u.seq.n;
  Stmt **at = NULL;
  for (int i = 0; i < n; i++) {
    Stmt *k = st_map(c, s->u.seq.at[i], m);
    if (!at && k != s->u.seq.at[i]) {
      at = arena_array(c->arena, Stmt *, n);
      memcpy(at, s->u.seq.at, sizeof *at * (size_t)i);
    }
    if (at) at[i] = k;
  }
  return at ? st_seq(c, n, at) : s;
}

static Stmt *map_store(IrCtx *c, Stmt *s, const StmtMap *m) {
  int n = s->u.store.n_idx;
  ExprId *idx = NULL;
  for (int i = 0; m->expr && i < n; i++) {
    ExprId e = map_expr(c, s->u.store.idx[i], m);
    if (!idx && e != s->u.store.idx[i]) idx = arena_copy(c->arena, s->u.store.idx, sizeof *idx * (size_t)n);
    if (idx) idx[i] = e;
  }
  ExprId value = map_expr(c, s->u.store.value, m);
  if (!idx && value == s->u.store.value) return s;
  Stmt *t = copy(c, s);
  if (idx) t->u.store.idx = idx;
  t->u.store.value = value;
  return t;
}

/* The statement with mapped kids; NULL if nothing is left of it. */
static Stmt *map_kids(IrCtx *c, Stmt *s, const StmtMap *m) {
  Stmt t = *s;
  switch (s->kind) {
  case ST_SEQ: return map_seq(c, s, m);
  case ST_STORE: return map_store(c, s, m);
  case ST_EVAL: t.u.eval.e = map_expr(c, s->u.eval.e, m); return t.u.eval.e == s->u.eval.e ? s : copy(c, &t);
  case ST_FOR:
    t.u.loop.min = map_expr(c, s->u.loop.min, m);
    t.u.loop.extent = map_expr(c, s->u.loop.extent, m);
    t.u.loop.body = st_map(c, s->u.loop.body, m);
    if (!t.u.loop.body) return NULL;
    return t.u.loop.min == s->u.loop.min && t.u.loop.extent == s->u.loop.extent && t.u.loop.body == s->u.loop.body
               ? s
               : copy(c, &t);
  case ST_IF:
    t.u.cond.cond = map_expr(c, s->u.cond.cond, m);
    t.u.cond.then = st_map(c, s->u.cond.then, m);
    t.u.cond.other = st_map(c, s->u.cond.other, m);
    if (!t.u.cond.then && !t.u.cond.other) return NULL;
    if (!t.u.cond.then) {
      t.u.cond.cond = ex_not(c, t.u.cond.cond);
      t.u.cond.then = t.u.cond.other;
      t.u.cond.other = NULL;
    }
    return t.u.cond.cond == s->u.cond.cond && t.u.cond.then == s->u.cond.then && t.u.cond.other == s->u.cond.other
               ? s
               : copy(c, &t);
  case ST_LET:
    t.u.let.value = map_expr(c, s->u.let.value, m);
    t.u.let.body = st_map(c, s->u.let.body, m);
    if (!t.u.let.body) return NULL;
    return t.u.let.value == s->u.let.value && t.u.let.body == s->u.let.body ? s : copy(c, &t);
  case ST_ALLOC:
    t.u.alloc.body = st_map(c, s->u.alloc.body, m);
    if (!t.u.alloc.body) return NULL;
    return t.u.alloc.body == s->u.alloc.body ? s : copy(c, &t);
  case ST_ATTR:
    t.u.attr.body = st_map(c, s->u.attr.body, m);
    if (!t.u.attr.body) return NULL;
    return t.u.attr.body == s->u.attr.body ? s : copy(c, &t);
  }
  return s;
}

Stmt *st_map(IrCtx *c, Stmt *s, const StmtMap *m) {
  if (!s) return NULL;
  Stmt *t = map_kids(c, s, m);
  return t && m->stmt ? m->stmt(c, t, m->arg) : t;
}

typedef struct {
  int n;
  const VarSub *sub;
} SubstArg;

static ExprId subst_expr(IrCtx *c, ExprId e, void *arg) {
  const SubstArg *a = arg;
  return ex_subst(c, e, a->n, a->sub);
}

Stmt *st_subst(IrCtx *c, Stmt *s, int n, const VarSub *sub) {
  SubstArg arg = {n, sub};
  StmtMap m = {NULL, subst_expr, &arg};
  return n ? st_map(c, s, &m) : s;
}

/* ---- text ---- */
static const char *const FOR_NAME[] = {
    [FOR_SERIAL] = "for",           [FOR_UNROLLED] = "unroll",     [FOR_VECTOR] = "vector",
    [FOR_PARALLEL] = "parallel",    [FOR_VTHREAD] = "vthread",     [FOR_BLOCK_X] = "blockIdx.x",
    [FOR_BLOCK_Y] = "blockIdx.y",   [FOR_BLOCK_Z] = "blockIdx.z",  [FOR_THREAD_X] = "threadIdx.x",
    [FOR_THREAD_Y] = "threadIdx.y", [FOR_THREAD_Z] = "threadIdx.z"};
static const char *const ATTR_NAME[] = {[AT_UNROLL_STEP] = "unroll_step",
                                        [AT_UNROLL_EXPLICIT] = "unroll_explicit",
                                        [AT_PRAGMA] = "pragma",
                                        [AT_STAGE] = "stage",
                                        [AT_DOUBLE_WRITE] = "double_write",
                                        [AT_REDUCE] = "reduce"};
static const char *const SCOPE_NAME[] = {"global", "shared", "warp", "local"};

static void print_index(IrCtx *c, StrBuf *b, int n, const ExprId *e) {
  sb_putc(b, '[');
  for (int i = 0; i < n; i++) {
    if (i) sb_puts(b, ", ");
    ex_print(c, b, e[i]);
  }
  sb_putc(b, ']');
}

static void print_body(IrCtx *c, StrBuf *b, const Stmt *s, int indent) {
  sb_puts(b, " {\n");
  st_print(c, b, s, indent + 2);
  sb_spaces(b, indent);
  sb_puts(b, "}");
}

static void print_for(IrCtx *c, StrBuf *b, const Stmt *s, int indent) {
  sb_printf(b, "%s%s (%s, ", FOR_NAME[s->u.loop.kind], s->u.loop.pragma_unroll ? " pragma_unroll" : "",
            ir_var_info(c, s->u.loop.var)->name);
  ex_print(c, b, s->u.loop.min);
  sb_puts(b, ", ");
  ex_print(c, b, s->u.loop.extent);
  sb_putc(b, ')');
  print_body(c, b, s->u.loop.body, indent);
}

static void print_if(IrCtx *c, StrBuf *b, const Stmt *s, int indent) {
  sb_puts(b, s->u.cond.likely ? "if likely " : "if ");
  ex_print(c, b, s->u.cond.cond);
  print_body(c, b, s->u.cond.then, indent);
  if (!s->u.cond.other) return;
  sb_puts(b, " else");
  print_body(c, b, s->u.cond.other, indent);
}

void st_print(IrCtx *c, StrBuf *b, const Stmt *s, int indent) {
  if (!s) return;
  if (s->kind == ST_SEQ) {
    for (int i = 0; i < s->u.seq.n; i++) st_print(c, b, s->u.seq.at[i], indent);
    return;
  }
  sb_spaces(b, indent);
  switch (s->kind) {
  case ST_SEQ: break;
  case ST_FOR: print_for(c, b, s, indent); break;
  case ST_IF: print_if(c, b, s, indent); break;
  case ST_LET:
    sb_printf(b, "let %s = ", ir_var_info(c, s->u.let.var)->name);
    ex_print(c, b, s->u.let.value);
    sb_putc(b, '\n');
    st_print(c, b, s->u.let.body, indent);
    return;
  case ST_ALLOC: {
    const IrBuffer buf = *ir_buffer(c, s->u.alloc.buf);
    sb_printf(b, "alloc %s: ", buf.name);
    dtype_print(b, buf.type);
    print_index(c, b, buf.rank, buf.extent);
    if (buf.scope >= 0) sb_printf(b, " %s", SCOPE_NAME[buf.scope]);
    sb_putc(b, '\n');
    st_print(c, b, s->u.alloc.body, indent);
    return;
  }
  case ST_STORE:
    sb_puts(b, ir_buffer(c, s->u.store.buf)->name);
    print_index(c, b, s->u.store.n_idx, s->u.store.idx);
    sb_puts(b, " = ");
    ex_print(c, b, s->u.store.value);
    break;
  case ST_EVAL: ex_print(c, b, s->u.eval.e); break;
  case ST_ATTR:
    sb_printf(b, "attr %s = %lld", ATTR_NAME[s->u.attr.kind], (long long)s->u.attr.value);
    if (s->u.attr.text) sb_printf(b, " \"%s\"", s->u.attr.text);
    print_body(c, b, s->u.attr.body, indent);
    break;
  }
  sb_putc(b, '\n');
}
