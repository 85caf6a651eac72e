/* Small tools for passes: questions about statements, substitution and copies with fresh binders.
 * Every binder (loop, let) of a program binds its own variable exactly once; a pass that duplicates a statement must
 * therefore rename the binders of the copy, which is what low_copy does.
 */
#include <stdio.h>
#include <stdlib.h>
#include "lower/util.h"
#include <string.h>

bool low_is_gpu(const Func *f) { return f->target.kind != TG_CPU; }

const char *low_tag(ForKind k) { return k >= FOR_VTHREAD ? FOR_NAME[k] : ""; }

ERR_BODY(verify_body, const Func *f, ir_verify(f->ctx, f->body, f->flat, low_for_rows(f->use)))
void low_verify(Func *f, const char *pass) {
  Err *e = ir_err(f->ctx);
  if (!ir_verifies(f->ctx)) return;
  ErrCode code = f->body && !f->illegal ? err_try(e, verify_body, f) : NS_OK;
  if (code == NS_ERR_INTERNAL) { /* raised, it would be one more candidate that cannot be built */
    fprintf(stderr, "after %s: %s\n", pass, e->msg);
    abort();
  }
  if (code != NS_OK) err_rethrow(e, code);
}

/* ---- questions ---- */
typedef struct {
  bool hit;
  const MapU64 *vars;
} Probe;
static void probe_load(IrCtx *c, ExprId e, void *arg) {
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_LOAD || n->kind == IR_READ ||
      (n->kind == IR_CALL && intrin_info((Intrin)n->sym)->effect != EFF_PURE))
    ((Probe *)arg)->hit = true;
}
bool low_expr_loads(IrCtx *c, ExprId e) {
  Probe p = {0};
  ex_post_order(c, e, probe_load, &p);
  return p.hit;
}

static void probe_var(IrCtx *c, ExprId e, void *arg) {
  Probe *p = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_VAR && mapu_get(p->vars, (uint64_t)n->sym, -1) >= 0) p->hit = true;
}
bool low_expr_uses_any(IrCtx *c, ExprId e, const MapU64 *vars) {
  Probe p = {.vars = vars};
  ex_post_order(c, e, probe_var, &p);
  return p.hit;
}

int64_t low_step(Arith *a, IrCtx *c, ExprId e, VarId v) {
  VarSub next = {v, ex_add(c, ex_var(c, v), ex_int(c, ir_var_info(c, v)->type, 1))};
  int64_t d;
  if (!ex_uses_var(c, e, v)) return 0;
  if (!ex_const_int(c, ar_simplify(a, ex_sub(c, ex_subst(c, e, 1, &next), e)), &d)) return -1;
  return d < 0 ? -d : d;
}

/* ---- substitution ---- */
Stmt *low_subst(IrCtx *c, Stmt *s, VarId v, ExprId value) {
  VarSub one = {v, value};
  return s ? st_subst(c, s, 1, &one) : NULL;
}

typedef struct {
  IrCtx *c;
  VEC(VarSub) sub;
} Copy;
static VarId copy_binder(Copy *k, VarId v) {
  const IrVar *info = ir_var_info(k->c, v);
  VarId fresh = ir_var_new(k->c, info->name, info->type, info->nonneg);
  VarSub one = {v, ex_var(k->c, fresh)};
  vec_push(ir_arena(k->c), &k->sub, one);
  return fresh;
}
static Stmt *copy_stmt(Copy *k, const Stmt *s) {
  Stmt *r = st_own(k->c, s), **kid;
  ExprId *e;
  int mark = k->sub.len;
  for (int i = 0; (e = st_expr(r, i)); i++)
    if (*e) *e = ex_subst(k->c, *e, k->sub.len, k->sub.at);
  if (st_binder(r)) *st_binder(r) = copy_binder(k, *st_binder(r));
  for (int i = 0; (kid = st_kid(r, i)); i++)
    if (*kid) *kid = copy_stmt(k, *kid);
  k->sub.len = mark;
  return r;
}
Stmt *low_copy(IrCtx *c, const Stmt *s, VarId v, ExprId value) {
  Copy k = {.c = c};
  if (v) {
    VarSub one = {v, value};
    vec_push(ir_arena(c), &k.sub, one);
  }
  return s ? copy_stmt(&k, s) : NULL;
}

/* Literal folding beyond what the builders do: a select or conditional with a literal condition is decided. */
static ExprId fold_node(IrCtx *c, ExprId e, void *arg NS_UNUSED) {
  const ExprNode *n = ir_node(c, e);
  if (n->kind != IR_SELECT && !(n->kind == IR_CALL && n->sym == IN_IF_THEN_ELSE)) return e;
  ExprId cond = ir_kid(c, e, 0);
  int64_t v;
  if (ex_const_int(c, cond, &v)) return ir_kid(c, e, v ? 1 : 2);
  return ir_kid(c, e, 1) == ir_kid(c, e, 2) ? ir_kid(c, e, 1) : e;
}
ExprId low_fold(IrCtx *c, ExprId e) { return ex_map(c, e, fold_node, NULL); }

/* ---- loops of a schedule ---- */
ForKind low_loop_kind(const Axis *x) {
  static const ForKind KIND[AN_COUNT] = {
      [AN_NONE] = FOR_SERIAL,       [AN_UNROLL] = FOR_UNROLLED,   [AN_VECTORIZE] = FOR_VECTOR,
      [AN_PARALLEL] = FOR_PARALLEL, [AN_VTHREAD] = FOR_VTHREAD,   [AN_BLOCK_X] = FOR_BLOCK_X,
      [AN_THREAD_X] = FOR_THREAD_X, [AN_BLOCK_Y] = FOR_BLOCK_Y,   [AN_THREAD_Y] = FOR_THREAD_Y,
      [AN_BLOCK_Z] = FOR_BLOCK_Z,   [AN_THREAD_Z] = FOR_THREAD_Z, [AN_TENSORIZE] = FOR_SERIAL};
  return KIND[x->ann];
}
uint64_t *low_axis_marks(Arena *a, const Stage *st) {
  uint64_t *m = arena_array(a, uint64_t, st->axes.len);
  for (int i = 0; i < st->n_root; i++) m[i] = i < st->n_root_data ? 1 : 2;
  stage_spread(st, m);
  return m;
}

/* ---- kernels ---- */
Stmt *low_barrier(IrCtx *c) {
  ExprId arg = ex_str(c, "shared");
  return st_eval(c, ex_call(c, IN_SYNC_SHARED, DT_I32, 1, &arg));
}
static Stmt *place(IrCtx *c, Stmt *s, bool in_threads, int n_shared, const BufferId *shared, int n_local,
                   const BufferId *local) {
  if (s->kind == ST_FOR && for_is_block(s->u.loop.kind) && !in_threads) {
    Stmt *r = st_own(c, s);
    r->u.loop.body = place(c, s->u.loop.body, false, n_shared, shared, n_local, local);
    return r;
  }
  if (!in_threads) {
    Stmt *r = place(c, s, true, n_shared, shared, n_local, local);
    for (int i = n_shared - 1; i >= 0; i--) r = st_alloc(c, shared[i], r);
    return r;
  }
  if (s->kind == ST_FOR && for_is_thread(s->u.loop.kind)) {
    Stmt *r = st_own(c, s);
    r->u.loop.body = place(c, s->u.loop.body, true, n_shared, shared, n_local, local);
    return r;
  }
  if (s->kind == ST_ALLOC && ir_buffer(c, s->u.alloc.buf)->scope == SC_SHARED) {
    Stmt *r = st_own(c, s);
    r->u.alloc.body = place(c, s->u.alloc.body, true, n_shared, shared, n_local, local);
    return r;
  }
  for (int i = n_local - 1; i >= 0; i--) s = st_alloc(c, local[i], s);
  return s;
}
Stmt *low_place(IrCtx *c, Stmt *kernel, int n_shared, const BufferId *shared, int n_local, const BufferId *local) {
  return place(c, kernel, false, n_shared, shared, n_local, local);
}

/* Applies f to each outermost loop bound to a block or thread axis. */
typedef struct {
  StmtRewrite f;
  void *arg;
} Each;
static Stmt *each(IrCtx *c, Stmt *s, void *arg) {
  Each *x = arg;
  if (s->kind == ST_FOR && s->u.loop.kind > FOR_VTHREAD) return x->f(c, s, x->arg);
  return st_rewrite(c, s, each, NULL, arg);
}
Stmt *low_each_kernel(IrCtx *c, Stmt *s, StmtRewrite f, void *arg) {
  Each x = {f, arg};
  return s ? each(c, s, &x) : NULL;
}

/* st_rewrite under facts: inside a loop its range is known, in the first branch of an if that its condition holds. */
typedef struct {
  Arith *a;
  const Stmt *first;
  ExprId cond;
  StmtRewrite kid;
  ExprMap expr;
  void *arg;
} Scope;
static Stmt *scope_kid(IrCtx *c, Stmt *s, void *arg) {
  Scope *x = arg;
  bool known = s == x->first;
  if (known) ar_push(x->a, x->cond);
  Stmt *r = x->kid(c, s, x->arg);
  if (known) ar_pop(x->a);
  return r;
}
static ExprId scope_expr(IrCtx *c, ExprId e, void *arg) { return ((Scope *)arg)->expr(c, e, ((Scope *)arg)->arg); }
Stmt *low_rewrite(IrCtx *c, Arith *a, Stmt *s, StmtRewrite kid, ExprMap expr, void *arg) {
  Scope x = {a, s->kind == ST_IF ? s->u.cond.then : NULL, s->kind == ST_IF ? s->u.cond.cond : 0, kid, expr, arg};
  if (s->kind == ST_FOR) low_bind_loop(c, a, s);
  return st_rewrite(c, s, scope_kid, expr ? scope_expr : NULL, &x);
}
