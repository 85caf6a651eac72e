/* GPU kernels. Blocks run one after the other. Within a block, whatever contains a barrier (or a shuffle, or a
 * reduction across threads) is walked once for all threads together, with a mask of those that take part; everything
 * below runs thread by thread from one barrier to the next. A barrier that not all threads reach is a finding. No
 * coroutines are needed, because the place where threads wait is known from the text of the program.
 */
#include <string.h>
#include "interp/run.h"

int expr_flags(Run *r, ExprId e) {
  if (r->expr_flags[e]) return r->expr_flags[e];
  const ExprNode *n = r->node + e;
  int f = EXPR_KNOWN;
  if (n->kind == IR_LOAD && ir_buffer(r->c, n->sym)->scope == SC_SHARED) f |= EXPR_SHARED;
  if (n->kind == IR_CALL && (n->sym == IN_SHFL || n->sym == IN_SHFL_DOWN)) f |= EXPR_SHFL;
  for (int i = 0; i < n->n; i++) f |= expr_flags(r, r->kid[n->kid0 + i]);
  r->expr_flags[e] = (uint8_t)f;
  return f;
}

static bool is_call(const Run *r, ExprId e, Intrin in) {
  return r->node[e].kind == IR_CALL && r->node[e].sym == (int32_t)in;
}

static bool expr_waits(Run *r, ExprId e) {
  return expr_flags(r, e) & (r->implied ? EXPR_SHFL | EXPR_SHARED : EXPR_SHFL);
}

static bool waits(Run *r, const Stmt *s) {
  ExprId *e;
  Stmt **kid;
  if (s->kind == ST_ALLOC && ir_buffer(r->c, s->u.alloc.buf)->scope == SC_SHARED) return true;
  if (s->kind == ST_STORE && r->implied && ir_buffer(r->c, s->u.store.buf)->scope == SC_SHARED) return true;
  if (st_calls(r->c, s, IN_SYNC_SHARED) || st_calls(r->c, s, IN_ALLREDUCE) || is_warp_op(r, s) || is_cluster_op(r, s) ||
      st_calls(r->c, s, IN_LAST_BLOCK))
    return true;
  for (int i = 0; (e = st_expr(s, i)); i++)
    if (expr_waits(r, *e)) return true;
  for (int i = 0; (kid = st_kid(s, i)); i++)
    if (in_lockstep(r, *kid)) return true;
  return false;
}

bool in_lockstep(Run *r, const Stmt *s) {
  if (!s) return false;
  uint64_t key = (uint64_t)(uintptr_t)s;
  int32_t known = mapu_get(&r->sync, key, -1);
  if (known < 0) {
    known = waits(r, s);
    mapu_set(&r->sync, key, known);
  }
  return known;
}

typedef struct {
  Run *r;
  bool found;
} Barriers;
static bool barrier_or_shuffle(IrCtx *c, const Stmt *s, void *arg) {
  ExprId *e;
  for (int i = 0; (e = st_expr(s, i)); i++)
    if (expr_flags(arg, *e) & EXPR_SHFL) return true;
  return st_calls(c, s, IN_SYNC_SHARED);
}
/* Kernels that are made with their barriers say nothing of the others. */
static bool look_for_barriers(IrCtx *c, const Stmt *s, void *arg) {
  Barriers *b = arg;
  b->found |= barrier_or_shuffle(c, s, b->r);
  return !b->found && !(s->kind == ST_ATTR && s->u.attr.kind == AT_SYNCED);
}
bool uses_barriers(Run *r, const Stmt *s) {
  Barriers b = {r, false};
  st_visit(r->c, s, look_for_barriers, NULL, &b);
  return b.found;
}

static void each(Run *r, const Stmt *s, const bool *on, void (*f)(Run *, const Stmt *)) {
  for (int t = 0; t < r->threads; t++)
    if (on[t]) {
      set_thread(r, t);
      f(r, s);
    }
}

static bool all_on(const Run *r, const bool *on) {
  for (int t = 0; t < r->threads; t++)
    if (!on[t]) return false;
  return true;
}

/* ---- shuffles: all values are taken before any thread goes on ---- */
static void take_shuffles(Run *r, ExprId e, const bool *on) {
  if (!(expr_flags(r, e) & EXPR_SHFL)) return;
  const ExprNode *n = r->node + e;
  const ExprId *k = r->kid + n->kid0;
  for (int i = 0; i < n->n; i++) take_shuffles(r, k[i], on);
  if (!is_call(r, e, IN_SHFL) && !is_call(r, e, IN_SHFL_DOWN)) return;
  if (n->n < 3 || n->n > 4) err_raise(r->err, NS_ERR_INTERNAL, "a warp shuffle needs (mask,) value, lane and width");
  int32_t at = r->shfl.len;
  if (at >= 8) err_raise(r->err, NS_ERR_INTERNAL, "more than 8 warp shuffles in one statement");
  int first = n->n == 4;
  Val *value = arena_array(r->a, Val, r->threads), *out = r->shfl_val + (size_t)at * MAX_THREADS;
  int64_t *lane = arena_array(r->a, int64_t, r->threads), width = 32;
  for (int t = 0; t < r->threads; t++) {
    if (!on[t]) continue;
    set_thread(r, t);
    value[t] = ev(r, k[first], 0);
    lane[t] = ev_int(r, k[first + 1], "lane of a shuffle");
    width = ev_int(r, k[first + 2], "width of a shuffle");
  }
  for (int t = 0; t < r->threads; t++) {
    int64_t group = t - t % width, in_group = t % width;
    int64_t from = n->sym == IN_SHFL            ? group + i64_floormod(lane[t], width)
                   : in_group + lane[t] < width ? t + lane[t]
                                                : t;
    if (from < r->threads && on[from])
      out[t] = value[from];
    else
      out[t] = (Val){.bad = true}; /* undefined */
  }
  mapu_set(&r->shfl, (uint64_t)e, at);
}

static void leaf(Run *r, const Stmt *s, const bool *on) {
  bool shfl = false;
  ExprId e = s->kind == ST_STORE  ? s->u.store.value
             : s->kind == ST_LET  ? s->u.let.value
             : s->kind == ST_EVAL ? s->u.eval.e
                                  : 0;
  if (e && (expr_flags(r, e) & EXPR_SHFL)) {
    shfl = true;
    mapu_init(&r->shfl, r->keep);
    if (!r->shfl_val) r->shfl_val = arena_array(r->keep, Val, 8 * MAX_THREADS);
    take_shuffles(r, e, on);
  }
  each(r, s, on, exec_leaf);
  if (shfl) mapu_init(&r->shfl, r->keep);
  if (r->implied && s->kind != ST_LET) r->epoch++;
}

/* ---- reductions across threads: (reducer, k, k values, k destinations, thread variables) ---- */
typedef struct {
  int k;
  ExprId value[8], dest[8];
  bool dim[3];
  ReducerId op;
} AllReduce;

static AllReduce parse_allreduce(Run *r, ExprId e) {
  const ExprNode *n = r->node + e;
  const ExprId *k = r->kid + n->kid0;
  AllReduce a = {.op = (ReducerId)r->node[k[0]].u.i, .k = (int)r->node[k[1]].u.i};
  if (a.k < 1 || a.k > 8 || n->n < 2 + 2 * a.k)
    err_raise(r->err, NS_ERR_INTERNAL, "a malformed reduction across threads");
  for (int i = 0; i < a.k; i++) a.value[i] = k[2 + i], a.dest[i] = k[2 + a.k + i];
  for (int i = 2 + 2 * a.k; i < n->n; i++) {
    if (r->node[k[i]].kind != IR_VAR) continue; /* an axis of extent 1 */
    int d = r->dim_of[r->node[k[i]].sym];
    if (d >= 0) a.dim[d] = true;
  }
  return a;
}

/* Threads with the same key share a result: their indices along axes that are not reduced. */
static int group_of(const Run *r, const AllReduce *a, int t) {
  int64_t i[3];
  thread_index(r, t, i);
  for (int d = 0; d < 3; d++)
    if (a->dim[d]) i[d] = 0;
  return (int)(i[0] + r->block_dim[0] * (i[1] + r->block_dim[1] * i[2]));
}

static void allreduce(Run *r, const Stmt *s, const bool *on) {
  AllReduce a = parse_allreduce(r, s->u.eval.e);
  if (!all_on(r, on))
    finding(r, FD_BARRIER, 1, "a reduction across threads is not reached by all threads of the block");
  const IrReducer *op = ir_reducer(r->c, a.op);
  Val *acc = arena_array(r->a, Val, r->threads * a.k);
  bool *seen = arena_array(r->a, bool, r->threads);
  for (int t = 0; t < r->threads; t++) {
    if (!on[t]) continue;
    set_thread(r, t);
    step(r);
    Val v[8];
    int g = group_of(r, &a, t);
    for (int i = 0; i < a.k; i++) v[i] = ev(r, a.value[i], 0);
    if (seen[g])
      combine(r, op, acc + g * a.k, v);
    else
      memcpy(acc + g * a.k, v, sizeof *v * (size_t)a.k);
    seen[g] = true;
  }
  for (int t = 0; t < r->threads; t++)
    for (int i = 0; i < a.k && on[t]; i++) {
      set_thread(r, t);
      const ExprNode *d = r->node + a.dest[i];
      mem_store(r, d->sym, d->n, r->kid + d->kid0, 0, acc[group_of(r, &a, t) * a.k + i]);
    }
  r->epoch++;
}

/* ---- structure ---- */
static void loop_all(Run *r, const Stmt *s, const bool *on) {
  ForKind k = s->u.loop.kind;
  int64_t min[MAX_THREADS], n[MAX_THREADS], most = 0;
  bool go[MAX_THREADS], hw = for_is_block(k) || for_is_thread(k);
  memcpy(go, on, (size_t)r->threads);
  for (int t = 0; t < r->threads; t++) {
    if (!on[t]) continue;
    set_thread(r, t);
    min[t] = ev_int(r, s->u.loop.min, "loop minimum");
    n[t] = ev_int(r, s->u.loop.extent, "loop extent");
    if (n[t] > most) most = n[t];
  }
  if (hw) {
    for (int t = 0; t < r->threads; t++) {
      if (!on[t]) continue;
      set_thread(r, t);
      go[t] = set_axis(r, s, min[t], n[t]);
    }
    exec_all(r, s->u.loop.body, go);
    return;
  }
  for (int64_t i = 0; i < most; i++) {
    for (int t = 0; t < r->threads; t++) {
      go[t] = on[t] && i < n[t];
      if (!go[t]) continue;
      set_thread(r, t);
      set_var(r, s->u.loop.var, (Val){.u.i = min[t] + i});
    }
    exec_all(r, s->u.loop.body, go);
  }
}

static void cond_all(Run *r, const Stmt *s, const bool *on) {
  bool yes[MAX_THREADS], no[MAX_THREADS], any_yes = false, any_no = false;
  for (int t = 0; t < r->threads; t++) {
    yes[t] = no[t] = false;
    if (!on[t]) continue;
    set_thread(r, t);
    bool c = ev_cond(r, s->u.cond.cond);
    yes[t] = c;
    no[t] = !c;
    any_yes |= c;
    any_no |= !c;
  }
  if (any_yes) exec_all(r, s->u.cond.then, yes);
  if (any_no) exec_all(r, s->u.cond.other, no);
}

static void alloc_all(Run *r, const Stmt *s, const bool *on) {
  BufferId b = s->u.alloc.buf;
  ArenaMark mark = arena_mark(r->a);
  Mem **own = r->own[b], *old = r->mem[b];
  if (ir_buffer(r->c, b)->scope == SC_LOCAL) {
    r->own[b] = arena_array(r->a, Mem *, r->threads);
    for (int t = 0; t < r->threads; t++)
      if (on[t]) {
        set_thread(r, t);
        alloc_one(r, b);
      }
  } else {
    for (int t = r->threads - 1; t >= 0; t--)
      if (on[t]) set_thread(r, t);
    alloc_one(r, b);
  }
  exec_all(r, s->u.alloc.body, on);
  r->own[b] = own;
  r->mem[b] = old;
  arena_release(r->a, mark);
}

void exec_all(Run *r, const Stmt *s, const bool *on) {
  if (!s || cluster_past(r)) return;
  if (!in_lockstep(r, s)) {
    each(r, s, on, exec_one);
    return;
  }
  Stmt **kid;
  switch (s->kind) {
  case ST_FOR: loop_all(r, s, on); return;
  case ST_IF: cond_all(r, s, on); return;
  case ST_ALLOC: alloc_all(r, s, on); return;
  case ST_LET:
    leaf(r, s, on);
    exec_all(r, s->u.let.body, on);
    if (r->implied && expr_waits(r, s->u.let.value)) r->epoch++; /* what follows may overwrite what was read */
    return;
  case ST_STORE: leaf(r, s, on); return;
  case ST_EVAL:
    if (st_calls(r->c, s, IN_ALLREDUCE))
      allreduce(r, s, on);
    else if (is_warp_op(r, s))
      exec_warps(r, s, on);
    else if (st_calls(r->c, s, IN_SYNC_SHARED)) {
      if (!all_on(r, on)) finding(r, FD_BARRIER, 0, "a barrier is not reached by all threads of the block");
      r->epoch++;
    } else if (is_cluster_op(r, s))
      exec_cluster(r, s, all_on(r, on));
    else if (st_calls(r->c, s, IN_LAST_BLOCK))
      exec_count(r, s, on);
    else
      leaf(r, s, on);
    return;
  default:
    for (int i = 0; (kid = st_kid(s, i)); i++) exec_all(r, *kid, on);
  }
}

/* ---- launches ---- */
static bool launch_dim(IrCtx *c NS_UNUSED, const Stmt *s, void *arg) {
  Run *r = arg;
  ForKind k = s->kind == ST_FOR ? s->u.loop.kind : FOR_SERIAL;
  if (!for_is_block(k) && !for_is_thread(k)) return true;
  int64_t n = ev_int(r, s->u.loop.extent, "launch extent"),
          *d = for_is_block(k) ? &r->grid_dim[k - FOR_BLOCK_X] : &r->block_dim[k - FOR_THREAD_X];
  if (n > *d) *d = n;
  return true;
}

/* Variables of the host that the kernel may use are copied to every thread. */
void run_launch(Run *r, const Stmt *s) {
  for (int i = 0; i < 3; i++) r->grid_dim[i] = r->block_dim[i] = 1;
  st_visit(r->c, s, launch_dim, NULL, r);
  int64_t threads = r->block_dim[0] * r->block_dim[1] * r->block_dim[2];
  if (threads > MAX_THREADS)
    err_raise(r->err, NS_ERR_VALUE, "a block of %lld threads; at most %d are supported", (long long)threads,
              MAX_THREADS);
  ArenaMark mark = arena_mark(r->a);
  Val *host = r->env_all, *host_env = r->env;
  r->threads = (int)threads;
  r->env_all = arena_array(r->a, Val, threads * r->max_slots);
  for (int t = 0; t < r->threads; t++)
    memcpy(r->env_all + (size_t)t * (size_t)r->max_slots, host_env, (size_t)r->max_slots * sizeof(Val));
  r->in_kernel = true;
  r->implied = r->unplaced && !st_synced(r->c, s);
  r->kernel_epoch = ++r->epoch;
  bool on[MAX_THREADS];
  memset(on, 1, sizeof on);
  r->cluster = cluster_begin(r, s);
  launch_begin(r, s);
  counts_begin(r, s);
  for (int64_t z = 0; z < r->grid_dim[2]; z += cluster_size(r))
    for (int64_t y = 0; y < r->grid_dim[1]; y++)
      for (int64_t x = 0; x < r->grid_dim[0]; x++) {
        r->block_id[0] = x, r->block_id[1] = y;
        cluster_run(r, s, z, (int32_t)((z * r->grid_dim[1] + y) * r->grid_dim[0] + x), on);
      }
  counts_end(r);
  r->in_kernel = false;
  r->block_serial = 0;
  r->kernel_epoch = ++r->epoch;
  r->threads = 1;
  r->env_all = host;
  set_thread(r, 0);
  arena_release(r->a, mark);
}
