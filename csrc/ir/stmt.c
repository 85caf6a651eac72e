/* Statements: trees of arena nodes, not shared. A pass rewrites a program through st_map (bottom-up) or st_rewrite
 * (top-down), which copy only the nodes on the way to a change. The printed form is for people who debug a pass; it is not one of the users' text formats. */
#include "ir/ctx.h"

#include <string.h>

static Stmt *node(IrCtx *c, Stmt s) { return arena_copy(c->arena, &s, sizeof s); }

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
  Stmt *s = node(c, (Stmt){.kind = ST_SEQ});
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
  return node(c, (Stmt){.kind = ST_FOR, .u.loop = {.var = v, .min = min, .extent = extent, .kind = k, .body = body}});
}

Stmt *st_if(IrCtx *c, ExprId cond, bool likely, Stmt *then, Stmt *other) {
  return node(c, (Stmt){.kind = ST_IF, .u.cond = {.cond = cond, .likely = likely, .then = then, .other = other}});
}

Stmt *st_let(IrCtx *c, VarId v, ExprId value, Stmt *body) {
  return node(c, (Stmt){.kind = ST_LET, .u.let = {.var = v, .value = value, .body = body}});
}

Stmt *st_alloc(IrCtx *c, BufferId b, Stmt *body) {
  return node(c, (Stmt){.kind = ST_ALLOC, .u.alloc = {.buf = b, .body = body}});
}

Stmt *st_store(IrCtx *c, BufferId b, int n, const ExprId *idx, ExprId value) {
  ExprId *own = arena_copy(c->arena, idx, sizeof *idx * (size_t)n);
  return node(c, (Stmt){.kind = ST_STORE, .u.store = {.buf = b, .n_idx = n, .idx = own, .value = value}});
}

Stmt *st_eval(IrCtx *c, ExprId e) { return node(c, (Stmt){.kind = ST_EVAL, .u.eval = {.e = e}}); }

Stmt *st_attr(IrCtx *c, AttrKind k, int64_t value, const char *text, Stmt *body) {
  const char *own = text ? arena_strdup(c->arena, text) : NULL;
  return node(c, (Stmt){.kind = ST_ATTR, .u.attr = {.kind = k, .value = value, .text = own, .body = body}});
}

/* ---- parts ---- */
Stmt **st_kid(const Stmt *at, int i) {
  Stmt *s = (Stmt *)(uintptr_t)at; /* whoever may change it does so through the slot, as with strchr */
  switch (s->kind) {
  case ST_SEQ: return i < s->u.seq.n ? &s->u.seq.at[i] : NULL;
  case ST_FOR: return i ? NULL : &s->u.loop.body;
  case ST_IF: return i == 0 ? &s->u.cond.then : i == 1 ? &s->u.cond.other : NULL;
  case ST_LET: return i ? NULL : &s->u.let.body;
  case ST_ALLOC: return i ? NULL : &s->u.alloc.body;
  case ST_ATTR: return i ? NULL : &s->u.attr.body;
  case ST_STORE:
  case ST_EVAL: return NULL;
  }
  return NULL;
}

ExprId *st_expr(const Stmt *at, int i) {
  Stmt *s = (Stmt *)(uintptr_t)at;
  switch (s->kind) {
  case ST_FOR: return i == 0 ? &s->u.loop.min : i == 1 ? &s->u.loop.extent : NULL;
  case ST_IF: return i ? NULL : &s->u.cond.cond;
  case ST_LET: return i ? NULL : &s->u.let.value;
  case ST_STORE: return i < s->u.store.n_idx ? &s->u.store.idx[i] : i == s->u.store.n_idx ? &s->u.store.value : NULL;
  case ST_EVAL: return i ? NULL : &s->u.eval.e;
  case ST_SEQ:
  case ST_ALLOC:
  case ST_ATTR: return NULL;
  }
  return NULL;
}

VarId *st_binder(const Stmt *at) {
  Stmt *s = (Stmt *)(uintptr_t)at;
  return s->kind == ST_FOR ? &s->u.loop.var : s->kind == ST_LET ? &s->u.let.var : NULL;
}

Stmt *st_own(IrCtx *c, const Stmt *s) {
  Stmt *r = arena_copy(c->arena, s, sizeof *s);
  if (s->kind == ST_SEQ) r->u.seq.at = arena_copy(c->arena, s->u.seq.at, sizeof(Stmt *) * (size_t)s->u.seq.n);
  if (s->kind == ST_STORE)
    r->u.store.idx = arena_copy(c->arena, s->u.store.idx, sizeof(ExprId) * (size_t)s->u.store.n_idx);
  return r;
}

Stmt *st_copy(IrCtx *c, const Stmt *s) {
  Stmt *r = st_own(c, s), **kid;
  for (int i = 0; (kid = st_kid(r, i)); i++)
    if (*kid) *kid = st_copy(c, *kid);
  return r;
}

/* ---- walking ---- */
void st_visit(IrCtx *c, const Stmt *s, StmtVisit enter, StmtVisit leave, void *arg) {
  if (!s || !enter(c, s, arg)) return;
  Stmt **kid;
  for (int i = 0; (kid = st_kid(s, i)); i++) st_visit(c, *kid, enter, leave, arg);
  if (leave) leave(c, s, arg);
}

bool st_any(IrCtx *c, const Stmt *s, StmtVisit test, void *arg) {
  Stmt **kid;
  if (!s) return false;
  if (test(c, s, arg)) return true;
  for (int i = 0; (kid = st_kid(s, i)); i++)
    if (st_any(c, *kid, test, arg)) return true;
  return false;
}

bool st_calls(const IrCtx *c, const Stmt *s, Intrin in) {
  return s->kind == ST_EVAL && ir_kind(c, s->u.eval.e) == IR_CALL && ir_node(c, s->u.eval.e)->sym == (int32_t)in;
}

void st_visit_exprs(IrCtx *c, const Stmt *s, ExprVisit f, void *arg) {
  ExprId *e;
  for (int i = 0; (e = st_expr(s, i)); i++)
    if (*e) ex_post_order(c, *e, f, arg);
}

static bool is_synced(IrCtx *c NS_UNUSED, const Stmt *s, void *arg NS_UNUSED) {
  return s->kind == ST_ATTR && s->u.attr.kind == AT_SYNCED;
}
bool st_synced(IrCtx *c, const Stmt *s) { return st_any(c, s, is_synced, NULL); }

static bool read_cluster(IrCtx *c, const Stmt *s, void *arg) {
  if (is_synced(c, s, NULL)) *(int *)arg = (int)s->u.attr.value;
  return true;
}
int st_cluster(IrCtx *c, const Stmt *s) {
  int n = 1;
  st_visit(c, s, read_cluster, NULL, &n);
  return n;
}

static bool is_wait(IrCtx *c, const Stmt *s, void *arg) { return (void)arg, st_calls(c, s, IN_LAUNCH_WAIT); }
bool st_waits(IrCtx *c, const Stmt *s) { return st_any(c, s, is_wait, NULL); }

/* ---- rewriting ---- */

/* What stands below is gone: an if keeps its other branch, a sequence what is left, the rest goes with its body. */
static Stmt *tidy(IrCtx *c, Stmt *s) {
  if (s->kind == ST_SEQ) return st_seq(c, s->u.seq.n, s->u.seq.at);
  if (s->kind == ST_IF && !s->u.cond.then && s->u.cond.other) {
    s->u.cond.cond = ex_not(c, s->u.cond.cond);
    s->u.cond.then = s->u.cond.other;
    s->u.cond.other = NULL;
  }
  Stmt **first = st_kid(s, 0);
  return first && !*first ? NULL : s;
}

Stmt *st_rewrite(IrCtx *c, Stmt *s, StmtRewrite kid, ExprMap expr, void *arg) {
  Stmt *r = s;
  ExprId *e;
  Stmt **k;
  for (int i = 0; expr && (e = st_expr(r, i)); i++) {
    ExprId now = *e ? expr(c, *e, arg) : 0;
    if (now == *e) continue;
    if (r == s) r = st_own(c, s);
    *st_expr(r, i) = now;
  }
  for (int i = 0; (k = st_kid(r, i)); i++) {
    Stmt *now = *k ? kid(c, *k, arg) : NULL;
    if (now == *k) continue;
    if (r == s) r = st_own(c, s);
    *st_kid(r, i) = now;
  }
  return r == s ? s : tidy(c, r);
}

typedef struct {
  StmtRewrite stmt;
  ExprMap node;
  void *arg;
} Map;
static ExprId map_expr(IrCtx *c, ExprId e, void *arg) {
  const Map *m = arg;
  return ex_map(c, e, m->node, m->arg);
}
static Stmt *map_stmt(IrCtx *c, Stmt *s, void *arg) {
  const Map *m = arg;
  Stmt *t = st_rewrite(c, s, map_stmt, m->node ? map_expr : NULL, arg);
  return t && m->stmt ? m->stmt(c, t, m->arg) : t;
}
Stmt *st_map(IrCtx *c, Stmt *s, StmtRewrite stmt, ExprMap each, void *arg) {
  return s ? map_stmt(c, s, &(Map){stmt, each, arg}) : NULL;
}

typedef struct {
  int n;
  const VarSub *sub;
} SubstArg;

static ExprId subst_expr(IrCtx *c, ExprId e, void *arg) {
  const SubstArg *a = arg;
  return ex_subst(c, e, a->n, a->sub);
}
static Stmt *subst_stmt(IrCtx *c, Stmt *s, void *arg) { return st_rewrite(c, s, subst_stmt, subst_expr, arg); }
Stmt *st_subst(IrCtx *c, Stmt *s, int n, const VarSub *sub) {
  return s && n ? subst_stmt(c, s, &(SubstArg){n, sub}) : s;
}

/* ---- text ---- */
const char *const FOR_NAME[] = {
    [FOR_SERIAL] = "for",           [FOR_UNROLLED] = "unroll",     [FOR_VECTOR] = "vector",
    [FOR_PARALLEL] = "parallel",    [FOR_VTHREAD] = "vthread",     [FOR_BLOCK_X] = "blockIdx.x",
    [FOR_BLOCK_Y] = "blockIdx.y",   [FOR_BLOCK_Z] = "blockIdx.z",  [FOR_THREAD_X] = "threadIdx.x",
    [FOR_THREAD_Y] = "threadIdx.y", [FOR_THREAD_Z] = "threadIdx.z"};
static const char *const ATTR_NAME[] = {[AT_UNROLL_STEP] = "unroll_step",
                                        [AT_UNROLL_EXPLICIT] = "unroll_explicit",
                                        [AT_PRAGMA] = "pragma",
                                        [AT_DOUBLE_WRITE] = "double_write",
                                        [AT_SYNCED] = "synced"};
const char *const SCOPE_NAME[] = {"global", "shared", "warp", "local"};

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
