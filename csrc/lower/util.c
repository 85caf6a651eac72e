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
static bool is_load(IrCtx *c, ExprId e, void *arg NS_UNUSED) {
  const ExprNode *n = ir_node(c, e);
  return n->kind == IR_LOAD || n->kind == IR_READ ||
         (n->kind == IR_CALL && intrin_info((Intrin)n->sym)->effect != EFF_PURE);
}
bool low_expr_loads(IrCtx *c, ExprId e) { return ex_any(c, e, is_load, NULL); }

static bool is_one_of(IrCtx *c, ExprId e, void *vars) {
  return ir_kind(c, e) == IR_VAR && mapu_get(vars, (uint64_t)ir_node(c, e)->sym, -1) >= 0;
}
bool low_expr_uses_any(IrCtx *c, ExprId e, MapU64 *vars) { return ex_any(c, e, is_one_of, vars); }

/* The smallest step first: each must pass what the others cover. */
bool low_apart(int n, int64_t *step, const int64_t *count, int64_t covered) {
  for (int round = 0; round < n; round++) {
    int at = -1;
    for (int i = 0; i < n; i++)
      if (step[i] >= 0 && (at < 0 || step[i] < step[at])) at = i;
    if (step[at] < covered) return false;
    covered += step[at] * (count[at] - 1);
    step[at] = -1;
  }
  return true;
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
  if (!ex_is_choice(c, e)) return e;
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
typedef struct {
  bool in_threads; /* below the block loops and the shared arrays */
  int n_shared, n_local;
  const BufferId *shared, *local;
} Place;
static Stmt *place(IrCtx *c, Stmt *s, void *arg) {
  Place *p = arg;
  ForKind k = s->kind == ST_FOR ? s->u.loop.kind : FOR_SERIAL;
  bool shared = s->kind == ST_ALLOC && ir_buffer(c, s->u.alloc.buf)->scope == SC_SHARED;
  if (p->in_threads ? for_is_thread(k) || shared : for_is_block(k)) return st_rewrite(c, s, place, NULL, p);
  int n = p->in_threads ? p->n_local : p->n_shared;
  const BufferId *at = p->in_threads ? p->local : p->shared;
  bool was = p->in_threads;
  p->in_threads = true;
  if (!was) s = place(c, s, p);
  for (int i = n - 1; i >= 0; i--) s = st_alloc(c, at[i], s);
  return s;
}
Stmt *low_place(IrCtx *c, Stmt *kernel, int n_shared, const BufferId *shared, int n_local, const BufferId *local) {
  return place(c, kernel, &(Place){false, n_shared, n_local, shared, local});
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

/* ---- accesses of flat programs ---- */
ExprId low_shift(IrCtx *c, ExprId by, ExprId index) {
  ExprNode n = *ir_node(c, index);
  if (n.kind != IR_RAMP) return ex_add(c, by, index);
  return ex_ramp(c, ex_add(c, by, ir_kid(c, index, 0)), ir_kid(c, index, 1), n.type.lanes);
}
typedef struct {
  LowAccess f;
  void *arg;
} Accesses;
static ExprId moved_load(IrCtx *c, ExprId e, void *arg) {
  const Accesses *x = arg;
  ExprNode n = *ir_node(c, e);
  if (n.kind != IR_LOAD) return e;
  ExprId index = ir_kid(c, e, 0);
  return x->f(c, &n.sym, &index, x->arg) ? ex_load(c, n.sym, n.type, 1, &index) : e;
}
static Stmt *moved_store(IrCtx *c, Stmt *s, void *arg) {
  const Accesses *x = arg;
  if (s->kind != ST_STORE) return s;
  BufferId b = s->u.store.buf;
  ExprId index = s->u.store.idx[0];
  return x->f(c, &b, &index, x->arg) ? st_store(c, b, 1, &index, s->u.store.value) : s;
}
Stmt *low_move(IrCtx *c, Stmt *s, LowAccess f, void *arg) {
  return st_map(c, s, moved_store, moved_load, &(Accesses){f, arg});
}

/* ---- bodies of stages ---- */
typedef struct {
  const MapU64 *buf_of;
  const char *stage;
  TensorId keep;
} Reads;
static ExprId read_to_load(IrCtx *c, ExprId e, void *arg) {
  const Reads *r = arg;
  const ExprNode n = *ir_node(c, e);
  if (n.kind != IR_READ || n.sym == r->keep) return e;
  BufferId b = mapu_get(r->buf_of, (uint64_t)n.sym, 0);
  const char *tensor = ir_tensor(c, n.sym)->name;
  err_check(ir_err(c), b != 0,
            "stage %s reads tensor %s, which is neither computed nor an argument; add it to the argument list",
            r->stage, tensor);
  err_check(ir_err(c), n.n <= LOW_MAX_RANK, "tensor %s has rank %d; at most %d is supported", tensor, n.n,
            LOW_MAX_RANK);
  ExprId idx[LOW_MAX_RANK];
  memcpy(idx, ir_kids(c, e), sizeof *idx * n.n);
  return ex_load(c, b, n.type, n.n, idx);
}
ExprId low_loads(IrCtx *c, ExprId e, const MapU64 *buf_of, const char *stage, TensorId keep) {
  return ex_map(c, e, read_to_load, &(Reads){buf_of, stage, keep});
}

/* lhs + rhs: the products that it adds up may be fused with it. What else a reducer computes is the user's. */
static bool adds_up(IrCtx *c, const IrReducer *r, ExprId e) {
  if (ir_kind(c, e) != IR_ADD) return false;
  int of[2] = {0, 0}; /* 1: an lhs, 2: an rhs */
  for (int i = 0; i < 2; i++) {
    const ExprNode *n = ir_node(c, ir_kid(c, e, i));
    for (int k = 0; k < r->n && n->kind == IR_VAR; k++) of[i] |= (n->sym == r->lhs[k]) | (n->sym == r->rhs[k]) << 1;
  }
  return of[0] + of[1] == 3;
}
ExprId low_combine(IrCtx *c, const IrReducer *r, bool code, int k, const ExprId *lhs, const ExprId *rhs) {
  VarSub sub[16];
  for (int i = 0; i < r->n; i++) {
    sub[2 * i] = (VarSub){r->lhs[i], lhs[i]};
    sub[2 * i + 1] = (VarSub){r->rhs[i], rhs[i]};
  }
  ExprId e = (code && r->code ? r->code : r->result)[k];
  if (code && adds_up(c, r, e)) e = ex_may_fuse(c, e);
  return ex_subst(c, e, 2 * r->n, sub);
}

Stmt *low_at_once(IrCtx *c, int n, Stmt *const *store) {
  Stmt **at = arena_array(ir_arena(c), Stmt *, n), *s = store[0];
  for (int i = 0; i < n && n > 1; i++) at[i] = st_own(c, store[i]);
  for (int i = 0; i < n && n > 1; i++)
    at[i]->u.store.value = ex_var(c, ir_var_new(c, "tmp", ir_type(c, store[i]->u.store.value), false));
  if (n > 1) s = st_seq(c, n, at);
  for (int i = n - 1; i >= 0 && n > 1; i--)
    s = st_let(c, ir_node(c, at[i]->u.store.value)->sym, store[i]->u.store.value, s);
  return s;
}
