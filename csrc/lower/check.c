/* check: would the device accept this program? (spec 07 §7.4.1)
 *
 * The rules are stated for the flattened, vectorised program after virtual threads and storage sharing. All quantities
 * can be read off the loop program as well, which saves the search those passes: sizes are products of realized
 * regions, times the extents of the virtual threads that touch the buffer; shared memory is planned by the same planner
 * that `storage` uses; vector widths are those of the vector loops whose statements can be widened. A kernel begins at
 * an outermost thread or virtual thread loop; counters restart there.
 */
#include "lower/util.h"

enum { MAX_VT = 16, REPLICATED = 16 };
enum { ROW_BYTES = 4 }; /* a strided index is a vector of 32-bit numbers */
typedef struct {
  VarId v;
  int64_t n;
} VLoop;
typedef struct {
  IrCtx *c;
  HwParams hw, matrix; /* limits: usual ones, of kernels on tensor cores */
  GpuCheck *out;
  bool flat;
  int64_t thread[6]; /* extents by tag; 0: not seen in this kernel */
  VLoop vec[MAX_VT];
  int n_vec;     /* vector loops around */
  bool doubles;  /* here a loop's body begins, whose marked buffers pass_double_buffer doubles */
  MapU64 copies; /* buffer -> factor of its shared or local size */
  int64_t local;
  GpuNeeds need;
} Check;

static void refuse(Check *k, const char *why) {
  if (k->out->ok) k->out->why = why;
  k->out->ok = false;
}

static void need_more(double *need, int64_t n) {
  if ((double)n > *need) *need = (double)n;
}

/* ---- virtual threads: buffers that depend on one have a copy for each ---- */
typedef struct {
  Check *k;
  LowTouched set;
  int64_t n;
} Copies;
static bool multiply_alloc(IrCtx *c NS_UNUSED, const Stmt *s, void *arg) {
  Copies *x = arg;
  MapU64 *m = &x->k->copies;
  if (s->kind == ST_ALLOC && low_is_touched(&x->set, s->u.alloc.buf))
    mapu_set(m, (uint64_t)s->u.alloc.buf, (int32_t)(mapu_get(m, (uint64_t)s->u.alloc.buf, 1) * x->n));
  return true;
}
static void virtual_thread(Check *k, const Stmt *s) {
  int64_t n;
  if (!ex_const_int(k->c, s->u.loop.extent, &n)) {
    refuse(k, "a virtual thread loop has no constant extent");
    return;
  }
  if (n > k->out->vthread) k->out->vthread = n;
  if (n >= REPLICATED) need_more(&k->need.vthread, n);
  if (n <= 1) return;
  Copies x = {k, low_touched(k->c, s->u.loop.body, s->u.loop.var, k->flat), n};
  st_visit(k->c, s->u.loop.body, multiply_alloc, NULL, &x);
}

/* ---- vectors ---- */
typedef struct {
  Check *k;
  VarId v;
  int64_t n;
  bool lazy;
  int64_t bytes;
} Width;
/* Lanes in more than one row? Rows of a fused loop are quotients, which lanes that begin at a multiple of theirs may have in common. */
static bool crosses(const Width *w, ExprId index) {
  IrCtx *c = w->k->c;
  if (!ex_uses_var(c, index, w->v)) return false;
  if (w->n * ROW_BYTES <= w->k->hw.vector_unit_bytes) return true; /* no matter */
  Arith *ar = ar_new(c);
  ar_bind_range(ar, w->v, ex_i32(c, 0), ex_i32(c, w->n));
  return ex_uses_var(c, ar_simplify(ar, index), w->v);
}
static void width_node(IrCtx *c, ExprId e, void *arg) {
  Width *w = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_CALL && n->sym == IN_IF_THEN_ELSE && ex_uses_var(c, ir_kid(c, e, 0), w->v)) w->lazy = true;
  if (n->kind != IR_LOAD) return;
  for (int i = 0; i < n->n; i++) {
    if (!ex_uses_var(c, ir_kid(c, e, i), w->v)) continue;
    int64_t b = w->n * dtype_bytes(n->type),
            strided = i < n->n - 1 && crosses(w, ir_kid(c, e, i)) ? w->n * ROW_BYTES : 0;
    if (b > w->bytes) w->bytes = b;
    if (strided > w->bytes) w->bytes = strided;
    return;
  }
}
static void vector_store(Check *k, const Stmt *s) {
  if (!k->n_vec) return;
  Width w = {k, k->vec[0].v, k->vec[0].n, false, 0}; /* nested vector loops: the outer one wins */
  if (w.n <= 1) return;
  ex_post_order(k->c, s->u.store.value, width_node, &w);
  bool moves = false;
  for (int i = 0; i < s->u.store.n_idx; i++) {
    if (!ex_uses_var(k->c, s->u.store.idx[i], w.v)) continue;
    moves = true;
    if (i < s->u.store.n_idx - 1 && w.n * ROW_BYTES > w.bytes && crosses(&w, s->u.store.idx[i]))
      w.bytes = w.n * ROW_BYTES;
  }
  if (moves) {
    int64_t b = w.n * dtype_bytes(ir_buffer(k->c, s->u.store.buf)->type);
    if (b > w.bytes) w.bytes = b;
  }
  if (w.lazy) return; /* stays scalar */
  if (w.bytes > k->out->vector_bytes) k->out->vector_bytes = w.bytes;
  need_more(&k->need.vector_bytes, w.bytes);
}

/* ---- the walk over one kernel ---- */
static void enter_loop(Check *k, const Stmt *s) {
  ForKind kind = s->u.loop.kind;
  int64_t e = 0;
  bool fixed = ex_const_int(k->c, s->u.loop.extent, &e);
  if (kind > FOR_VTHREAD) {
    int64_t *seen = &k->thread[kind - FOR_BLOCK_X];
    if (!fixed && for_is_thread(kind))
      refuse(k, "the extent of a thread axis is not constant");
    else if (fixed && *seen && *seen != e)
      refuse(k, "two loops bound to the same thread axis have different extents");
    if (fixed && !*seen) *seen = e;
  }
  if (kind == FOR_VTHREAD) virtual_thread(k, s);
  if (kind == FOR_VECTOR && !fixed) refuse(k, "a vectorized loop has no constant extent");
  if (kind == FOR_VECTOR && k->n_vec < MAX_VT) k->vec[k->n_vec++] = (VLoop){s->u.loop.var, e};
}
static void on_chip(Check *k, BufferId id) {
  const IrBuffer *b = ir_buffer(k->c, id);
  if (b->scope == SC_GLOBAL || b->external) return;
  int64_t n = low_buffer_bytes(k->c, id), times = mapu_get(&k->copies, (uint64_t)id, 1);
  if (n < 0) {
    refuse(k, "an on-chip buffer has no constant size");
    return;
  }
  if (k->n_vec) times *= k->vec[0].n;
  if (k->doubles && b->double_buffer) times *= 2;
  mapu_set(&k->copies, (uint64_t)id, (int32_t)times);
  if (b->scope == SC_LOCAL) k->local += n * times;
}
static void walk(Check *k, const Stmt *s) {
  int n = k->n_vec;
  bool doubles = k->doubles;
  int64_t e = 0;
  if (s->kind == ST_FOR) enter_loop(k, s);
  if (s->kind != ST_ALLOC && s->kind != ST_SEQ)
    k->doubles = s->kind == ST_FOR && s->u.loop.kind == FOR_SERIAL && ex_const_int(k->c, s->u.loop.extent, &e) && e > 1;
  if (s->kind == ST_ALLOC) on_chip(k, s->u.alloc.buf);
  if (s->kind == ST_STORE) vector_store(k, s);
  /* a condition that changes inside a vector keeps its statement scalar */
  if (s->kind == ST_IF && n && ex_uses_var(k->c, s->u.cond.cond, k->vec[0].v)) k->n_vec = 0;
  Stmt **kid;
  for (int i = 0; (kid = st_kid(s, i)); i++)
    if (*kid) walk(k, *kid);
  k->n_vec = n;
  k->doubles = doubles;
}

static void kernel(Check *k, const Stmt *s) {
  for (int i = 0; i < 6; i++) k->thread[i] = 0;
  k->local = 0;
  k->need = (GpuNeeds){0};
  k->n_vec = 0;
  k->doubles = false;
  mapu_init(&k->copies, ir_arena(k->c));
  walk(k, s);
  GpuCheck *o = k->out;
  if (!o->ok) return;
  int64_t threads = 1;
  for (int i = 3; i < 6; i++)
    if (k->thread[i]) threads *= k->thread[i];
  LiveBufs l = low_lives(k->c, s, SC_SHARED);
  LiveBuf *sh = arena_array(ir_arena(k->c), LiveBuf, l.n + 1);
  int n = 0;
  for (int i = 0; i < l.n; i++) {
    if (ir_buffer(k->c, l.at[i].buf)->scope != SC_SHARED || l.at[i].first < 0) continue;
    sh[n] = l.at[i];
    sh[n++].bytes *= mapu_get(&k->copies, (uint64_t)l.at[i].buf, 1);
  }
  int64_t shared = low_plan_shared(k->c, n, sh);
  if (threads > o->threads) o->threads = threads;
  if (shared > o->shared_bytes) o->shared_bytes = shared;
  if (k->local > o->local_bytes) o->local_bytes = k->local;
  k->need.threads = (double)threads, k->need.shared_bytes = (double)shared, k->need.local_bytes = (double)k->local;
  Fit fit = gpu_fits(st_synced(k->c, s) ? &k->matrix : &k->hw, &k->need);
  if (fit != FIT_OK) refuse(k, fit_text(fit));
}
static bool kernels(IrCtx *c NS_UNUSED, const Stmt *s, void *arg) {
  if (s->kind != ST_FOR || s->u.loop.kind < FOR_VTHREAD) return true;
  kernel(arg, s);
  return false;
}

GpuCheck low_gpu_check(Func f) {
  GpuCheck out = {.ok = true, .why = ""};
  if (!low_is_gpu(&f)) return out;
  Check k = {.c = f.ctx, .hw = f.target.hw, .matrix = gpu_matrix_limits(&f.target), .out = &out, .flat = f.flat};
  st_visit(f.ctx, f.body, kernels, NULL, &k);
  return out;
}
