/* allreduce: reductions across the threads of a block (spec 07 §7.2.16).
 *
 * The threads of a kernel form a box; R are the axes reduced over, P the others. r and g are their sizes, ri and gi
 * linear indices in them (x fastest). Where the r threads of a group are neighbours inside one warp (CUDA) the values
 * are combined by shuffles; otherwise by a tree in shared memory, every step guarded and followed by a barrier that all
 * threads execute. In the end each thread holds the result of its group.
 */
#include "lower/util.h"

typedef struct {
  IrCtx *c;
  const Func *f;
  VarId var[3];
  int64_t extent[3]; /* threadIdx of the kernel, x y z; extent 1 if absent */
  VEC(BufferId) shared, local;
  bool divergent; /* inside a condition or loop that may differ between threads */
} Kern;
typedef struct {
  Kern *k;
  const IrReducer *op;
  int n;
  ExprId value[8];
  BufferId out[8];
  ExprId at[8]; /* where in out: virtual threads have a place each */
  ExprId ri, gi;
  int64_t r, g, c; /* c: size of the leading reduced axes */
} Red;

static Arena *mem(Kern *k) { return ir_arena(k->c); }
static BufferId temp(Kern *k, const char *name, int i, DType t, ScopeKind scope, int64_t size) {
  BufferId id = ir_array(k->c, arena_printf(mem(k), "%s%d", name, i), t, scope, size, true);
  if (scope == SC_SHARED)
    vec_push(mem(k), &k->shared, id);
  else
    vec_push(mem(k), &k->local, id);
  return id;
}
static ExprId load(Kern *k, BufferId b, ExprId i) { return ex_load(k->c, b, ir_buffer(k->c, b)->type, 1, &i); }
static Stmt *store(Kern *k, BufferId b, ExprId i, ExprId v) { return st_store(k->c, b, 1, &i, v); }
/* to[i][at[i]] = combine(a, b) for all components */
static Stmt *combine(Red *q, const BufferId *to, const ExprId *at, const ExprId *a, const ExprId *b) {
  Stmt *st[8];
  for (int i = 0; i < q->n; i++) st[i] = store(q->k, to[i], at[i], low_combine(q->k->c, q->op, true, i, a, b));
  return low_at_once(q->k->c, q->n, st);
}

static Stmt *warp_variant(Red *q) {
  Kern *k = q->k;
  IrCtx *c = k->c;
  Stmt *at[64];
  int n = 0;
  ExprId zero = ex_i32(c, 0), width = ex_i32(c, 32);
  BufferId t[8];
  for (int i = 0; i < q->n; i++) {
    t[i] = temp(k, "shuffled", i, ir_buffer(c, q->out[i])->type, SC_LOCAL, 1);
    at[n++] = store(k, q->out[i], q->at[i], q->value[i]);
  }
  int64_t off = 1;
  while (off * 2 < q->r) off *= 2;
  for (; off >= 1; off /= 2) {
    ExprId cur[8], got[8];
    for (int i = 0; i < q->n; i++) {
      cur[i] = load(k, q->out[i], q->at[i]);
      ExprId arg[3] = {cur[i], ex_i32(c, off), width};
      at[n++] = store(k, t[i], zero, ex_call(c, IN_SHFL_DOWN, ir_type(c, cur[i]), 3, arg));
      got[i] = load(k, t[i], zero);
    }
    Stmt *s = combine(q, q->out, q->at, cur, got);
    if (2 * off > q->r)
      s = st_if(c, ex_bin(c, IR_LT, ex_add(c, q->ri, ex_i32(c, off)), ex_i32(c, q->r)), false, s, NULL);
    at[n++] = s;
    if (n > 48) {
      at[0] = st_seq(c, n, at);
      n = 1;
    }
  }
  ExprId lane = ex_fmod(c, ex_mul(c, q->gi, ex_i32(c, q->r)), width);
  for (int i = 0; i < q->n; i++) {
    ExprId arg[3] = {load(k, q->out[i], q->at[i]), lane, width};
    at[n++] = store(k, q->out[i], q->at[i], ex_call(c, IN_SHFL, ir_type(c, arg[0]), 3, arg));
  }
  return st_seq(c, n, at);
}

/* Neighbouring threads have neighbouring places, in other banks: those of a group, or one of each group. */
static Stmt *shared_variant(Red *q) {
  Kern *k = q->k;
  IrCtx *c = k->c;
  VEC(Stmt *) at = {0};
  BufferId buf[8];
  int64_t apart = q->c > 1 ? 1 : q->g; /* two values of a group */
  ExprId base = q->c > 1 ? ex_mul(c, q->gi, ex_i32(c, q->r)) : q->gi;
  ExprId mine = ex_add(c, base, ex_mul(c, q->ri, ex_i32(c, apart))), at_mine[8];
  vec_push(mem(k), &at, low_barrier(c));
  for (int i = 0; i < q->n; i++) {
    at_mine[i] = mine;
    buf[i] = temp(k, "red_buf", i, ir_buffer(c, q->out[i])->type, SC_SHARED, q->r * q->g);
    vec_push(mem(k), &at, store(k, buf[i], mine, q->value[i]));
  }
  vec_push(mem(k), &at, low_barrier(c));
  int64_t a = 1;
  while (a < q->r) a *= 2;
  for (a /= 2; a >= 1; a /= 2) {
    int64_t active = 2 * a > q->r ? q->r - a : a; /* only the first step can be ragged */
    ExprId cur[8], got[8];
    for (int i = 0; i < q->n; i++) {
      cur[i] = load(k, buf[i], mine);
      got[i] = load(k, buf[i], ex_add(c, mine, ex_i32(c, a * apart)));
    }
    vec_push(mem(k), &at,
             st_if(c, ex_bin(c, IR_LT, q->ri, ex_i32(c, active)), false, combine(q, buf, at_mine, cur, got), NULL));
    vec_push(mem(k), &at, low_barrier(c));
  }
  for (int i = 0; i < q->n; i++) vec_push(mem(k), &at, store(k, q->out[i], q->at[i], load(k, buf[i], base)));
  return st_seq(c, at.len, at.at);
}

static Stmt *lower_one(Kern *k, ExprId call) {
  IrCtx *c = k->c;
  Red q = {.k = k, .r = 1, .g = 1};
  int64_t id, n;
  int total = ir_node(c, call)->n;
  err_assert(ir_err(c), ex_const_int(c, ir_kid(c, call, 0), &id) && ex_const_int(c, ir_kid(c, call, 1), &n) && n <= 8);
  IrReducer op = *ir_reducer(c, (ReducerId)id);
  q.op = &op;
  q.n = (int)n;
  for (int i = 0; i < q.n; i++) {
    q.value[i] = ir_kid(c, call, 2 + i);
    ExprId to = ir_kid(c, call, 2 + q.n + i);
    q.out[i] = ir_node(c, to)->sym;
    q.at[i] = ir_kid(c, to, 0);
  }
  bool reduced[3] = {false, false, false}, ok = true;
  for (int i = 2 + 2 * q.n; i < total; i++) {
    ExprId e = ir_kid(c, call, i);
    if (ir_kind(c, e) != IR_VAR) continue;
    int d = 0;
    while (d < 3 && k->var[d] != ir_node(c, e)->sym) d++;
    err_check(ir_err(c), d < 3, "a reduction across threads uses %s, which is no threadIdx of its kernel",
              ir_var_info(c, ir_node(c, e)->sym)->name);
    reduced[d] = true;
  }
  q.ri = q.gi = ex_i32(c, 0);
  bool cut = false;
  q.c = 1;
  for (int d = 0; d < 3; d++) {
    if (k->extent[d] == 1) continue;
    ExprId v = ex_var(c, k->var[d]);
    if (reduced[d]) {
      q.ri = ex_add(c, q.ri, ex_mul(c, v, ex_i32(c, q.r)));
      q.r *= k->extent[d];
      if (!cut) q.c *= k->extent[d];
    } else {
      q.gi = ex_add(c, q.gi, ex_mul(c, v, ex_i32(c, q.g)));
      q.g *= k->extent[d];
      cut = true;
    }
  }
  if (q.r == 1) {
    Stmt *at[8];
    for (int i = 0; i < q.n; i++) at[i] = store(k, q.out[i], q.at[i], q.value[i]);
    return st_seq(c, q.n, at);
  }
  err_check(ir_err(c), !k->divergent,
            "a reduction across threads stands inside a condition that is not the same for all threads of a block");
  for (int i = 0; i < q.n; i++) {
    DType t = ir_type(c, q.value[i]);
    ok = ok && t.lanes == 1 && (t.bits == 32 || t.bits == 64);
  }
  bool warp = k->f->target.kind == TG_CUDA && ok && q.r == q.c && (32 % q.r == 0 || (q.g == 1 && q.r <= 32));
  return warp ? warp_variant(&q) : shared_variant(&q);
}

static bool varies(Kern *k, ExprId e) {
  for (int d = 0; d < 3; d++)
    if (k->var[d] && ex_uses_var(k->c, e, k->var[d])) return true;
  return low_expr_loads(k->c, e);
}
static Stmt *walk(IrCtx *c, Stmt *s, void *arg) {
  Kern *k = arg;
  bool loop = s->kind == ST_FOR, was = k->divergent;
  if (loop && for_is_thread(s->u.loop.kind)) {
    int d = s->u.loop.kind - FOR_THREAD_X;
    k->var[d] = s->u.loop.var;
    err_check(ir_err(c), ex_const_int(c, s->u.loop.extent, &k->extent[d]), "%s has no constant extent",
              low_tag(s->u.loop.kind));
  }
  if (st_calls(c, s, IN_ALLREDUCE)) return lower_one(k, s->u.eval.e);
  k->divergent |= loop ? varies(k, s->u.loop.extent) : s->kind == ST_IF && varies(k, s->u.cond.cond);
  Stmt *r = st_rewrite(c, s, walk, NULL, k);
  k->divergent = was;
  return r;
}
static Stmt *lower_kernel(IrCtx *c, Stmt *s, void *arg) {
  Kern k = {.c = c, .f = arg, .extent = {1, 1, 1}};
  Stmt *r = walk(c, s, &k);
  return low_place(c, r, k.shared.len, k.shared.at, k.local.len, k.local.at);
}
void pass_allreduce(Func *f) {
  if (low_is_gpu(f)) f->body = low_each_kernel(f->ctx, f->body, lower_kernel, f);
}
