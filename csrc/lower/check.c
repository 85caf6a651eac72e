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
typedef struct {
  VarId v;
  int64_t n;
} VLoop;
typedef struct {
  IrCtx *c;
  const HwParams *hw;
  GpuCheck *out;
  bool flat;
  int64_t thread[6]; /* extents by tag; 0: not seen in this kernel */
  VLoop vec[MAX_VT];
  int n_vec;     /* vector loops around */
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

/* ---- virtual threads: which buffers hold values that depend on them ---- */
typedef struct {
  Check *k;
  VarId t;
  MapU64 var, buf;
  bool grew, hit;
} Touch;
static void touch_node(IrCtx *c, ExprId e, void *arg) {
  Touch *t = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_VAR && (n->sym == t->t || mapu_get(&t->var, (uint64_t)n->sym, 0))) t->hit = true;
  if (n->kind == IR_LOAD && mapu_get(&t->buf, (uint64_t)n->sym, 0)) t->hit = true;
}
static bool touched(Touch *t, ExprId e) {
  t->hit = false;
  ex_post_order(t->k->c, e, touch_node, t);
  return t->hit;
}
static void grow(Touch *t, MapU64 *m, int32_t id) {
  if (mapu_get(m, (uint64_t)id, 0)) return;
  mapu_set(m, (uint64_t)id, 1);
  t->grew = true;
}
/* The place inside the buffer: global indices of a temporary are relative to its region. */
static bool place_touched(Touch *t, const Stmt *s, Arith *ar) {
  const IrBuffer *b = ir_buffer(t->k->c, s->u.store.buf);
  for (int i = 0; i < s->u.store.n_idx; i++) {
    ExprId x = s->u.store.idx[i];
    if (!touched(t, x)) continue;
    if (t->k->flat || !b->min) return true;
    if (touched(t, ar_simplify(ar, ex_sub(t->k->c, x, b->min[i])))) return true;
  }
  return false;
}
static void closure(Touch *t, const Stmt *s, bool under, Arith *ar) {
  if (!s) return;
  switch (s->kind) {
  case ST_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) closure(t, s->u.seq.at[i], under, ar);
    return;
  case ST_FOR: {
    bool x = touched(t, s->u.loop.extent);
    if (x) grow(t, &t->var, s->u.loop.var);
    closure(t, s->u.loop.body, under || x, ar);
    return;
  }
  case ST_IF: {
    bool x = under || touched(t, s->u.cond.cond);
    closure(t, s->u.cond.then, x, ar);
    closure(t, s->u.cond.other, x, ar);
    return;
  }
  case ST_LET:
    if (touched(t, s->u.let.value)) grow(t, &t->var, s->u.let.var);
    closure(t, s->u.let.body, under, ar);
    return;
  case ST_ALLOC: closure(t, s->u.alloc.body, under, ar); return;
  case ST_STORE:
    if (mapu_get(&t->buf, (uint64_t)s->u.store.buf, 0)) return;
    if (under || touched(t, s->u.store.value) || place_touched(t, s, ar)) grow(t, &t->buf, s->u.store.buf);
    return;
  case ST_EVAL: {
    if (!touched(t, s->u.eval.e)) return;
    IrCtx *c = t->k->c;
    int n = ir_node(c, s->u.eval.e)->n;
    for (int i = 0; i < n; i++) {
      ExprId a = ir_kid(c, s->u.eval.e, i);
      if (ir_kind(c, a) == IR_LOAD) grow(t, &t->buf, ir_node(c, a)->sym);
    }
    return;
  }
  case ST_ATTR: closure(t, s->u.attr.body, under, ar); return;
  }
}
static void multiply_allocs(Touch *t, const Stmt *s, int64_t n) {
  if (!s) return;
  switch (s->kind) {
  case ST_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) multiply_allocs(t, s->u.seq.at[i], n);
    return;
  case ST_FOR: multiply_allocs(t, s->u.loop.body, n); return;
  case ST_IF:
    multiply_allocs(t, s->u.cond.then, n);
    multiply_allocs(t, s->u.cond.other, n);
    return;
  case ST_LET: multiply_allocs(t, s->u.let.body, n); return;
  case ST_ALLOC:
    if (mapu_get(&t->buf, (uint64_t)s->u.alloc.buf, 0))
      mapu_set(&t->k->copies, (uint64_t)s->u.alloc.buf,
               (int32_t)(mapu_get(&t->k->copies, (uint64_t)s->u.alloc.buf, 1) * n));
    multiply_allocs(t, s->u.alloc.body, n);
    return;
  case ST_ATTR: multiply_allocs(t, s->u.attr.body, n); return;
  case ST_STORE:
  case ST_EVAL: return;
  }
}
static void virtual_thread(Check *k, const Stmt *s) {
  int64_t n;
  if (!low_const(k->c, s->u.loop.extent, &n)) {
    refuse(k, "a virtual thread loop has no constant extent");
    return;
  }
  if (n > k->out->vthread) k->out->vthread = n;
  if (n >= REPLICATED) need_more(&k->need.vthread, n);
  if (n <= 1) return;
  Touch t = {.k = k, .t = s->u.loop.var};
  mapu_init(&t.var, ir_arena(k->c));
  mapu_init(&t.buf, ir_arena(k->c));
  Arith *ar = ar_new(k->c);
  do {
    t.grew = false;
    closure(&t, s->u.loop.body, false, ar);
  } while (t.grew);
  multiply_allocs(&t, s->u.loop.body, n);
}

/* ---- vectors ---- */
typedef struct {
  Check *k;
  VarId v;
  int64_t n;
  bool lazy;
  int64_t bytes;
} Width;
static void width_node(IrCtx *c, ExprId e, void *arg) {
  Width *w = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_CALL && n->sym == IN_IF_THEN_ELSE && ex_uses_var(c, ir_kid(c, e, 0), w->v)) w->lazy = true;
  if (n->kind != IR_LOAD) return;
  for (int i = 0; i < n->n; i++) {
    if (!ex_uses_var(c, ir_kid(c, e, i), w->v)) continue;
    int64_t b = w->n * dtype_bytes(n->type),
            strided = i < n->n - 1 ? w->n * 4 : 0; /* a strided index is a vector of 32-bit numbers */
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
    if (i < s->u.store.n_idx - 1 && w.n * 4 > w.bytes) w.bytes = w.n * 4;
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
static void walk(Check *k, const Stmt *s) {
  if (!s) return;
  switch (s->kind) {
  case ST_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) walk(k, s->u.seq.at[i]);
    return;
  case ST_FOR: {
    ForKind kind = s->u.loop.kind;
    int64_t e = 0;
    bool fixed = low_const(k->c, s->u.loop.extent, &e);
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
    bool vec = kind == FOR_VECTOR && k->n_vec < MAX_VT;
    if (vec) k->vec[k->n_vec++] = (VLoop){s->u.loop.var, e};
    walk(k, s->u.loop.body);
    if (vec) k->n_vec--;
    return;
  }
  case ST_IF: {
    int n = k->n_vec; /* a condition that changes inside a vector keeps its statement scalar */
    if (n && ex_uses_var(k->c, s->u.cond.cond, k->vec[0].v)) k->n_vec = 0;
    walk(k, s->u.cond.then);
    walk(k, s->u.cond.other);
    k->n_vec = n;
    return;
  }
  case ST_LET: walk(k, s->u.let.body); return;
  case ST_ALLOC: {
    const IrBuffer *b = ir_buffer(k->c, s->u.alloc.buf);
    if (b->scope != SC_GLOBAL && !b->external) {
      int64_t n = low_buffer_bytes(k->c, s->u.alloc.buf);
      if (n < 0) {
        refuse(k, "an on-chip buffer has no constant size");
        return;
      }
      int64_t times = mapu_get(&k->copies, (uint64_t)s->u.alloc.buf, 1);
      if (k->n_vec) {
        times *= k->vec[0].n;
        mapu_set(&k->copies, (uint64_t)s->u.alloc.buf, (int32_t)times);
      }
      if (b->scope == SC_LOCAL) k->local += n * times;
    }
    walk(k, s->u.alloc.body);
    return;
  }
  case ST_STORE: vector_store(k, s); return;
  case ST_EVAL: return;
  case ST_ATTR: walk(k, s->u.attr.body); return;
  }
}

static void kernel(Check *k, const Stmt *s) {
  for (int i = 0; i < 6; i++) k->thread[i] = 0;
  k->local = 0;
  k->need = (GpuNeeds){0};
  k->n_vec = 0;
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
  int64_t shared = low_plan_shared(ir_arena(k->c), n, sh);
  if (threads > o->threads) o->threads = threads;
  if (shared > o->shared_bytes) o->shared_bytes = shared;
  if (k->local > o->local_bytes) o->local_bytes = k->local;
  k->need.threads = (double)threads, k->need.shared_bytes = (double)shared, k->need.local_bytes = (double)k->local;
  Fit fit = gpu_fits(k->hw, &k->need);
  if (fit != FIT_OK) refuse(k, fit_text(fit));
}
static void kernels(Check *k, const Stmt *s) {
  if (!s) return;
  switch (s->kind) {
  case ST_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) kernels(k, s->u.seq.at[i]);
    return;
  case ST_FOR:
    if (s->u.loop.kind >= FOR_VTHREAD)
      kernel(k, s);
    else
      kernels(k, s->u.loop.body);
    return;
  case ST_IF:
    kernels(k, s->u.cond.then);
    kernels(k, s->u.cond.other);
    return;
  case ST_LET: kernels(k, s->u.let.body); return;
  case ST_ALLOC: kernels(k, s->u.alloc.body); return;
  case ST_ATTR: kernels(k, s->u.attr.body); return;
  case ST_STORE:
  case ST_EVAL: return;
  }
}

GpuCheck low_gpu_check(Func f) {
  GpuCheck out = {.ok = true, .why = ""};
  if (!low_is_gpu(&f)) return out;
  Check k = {.c = f.ctx, .hw = &f.target.hw, .out = &out, .flat = f.flat};
  kernels(&k, f.body);
  return out;
}
