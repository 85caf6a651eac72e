/* storage: where allocations stand and which of them share memory (spec 07 §7.2.12).
 *
 * GPU: inside a kernel all allocations move to its top - shared ones between the block and the thread loops, local ones
 * below the thread loops - and global temporaries move to the top of the function. CPU: small allocations stay where
 * they are (registers and stack), large ones outside parallel loops move to the top of the function. Shared and global
 * buffers whose lives do not overlap share memory. The life of a buffer is counted at the level of its original
 * allocation: an access inside a loop that lies inside the allocation counts for the whole loop.
 */
#include "lower/util.h"

/* ---- the plan ---- */
typedef struct {
  DType type;
  int64_t bytes;
  int32_t owner;
  bool free;
} Slot;
/* A slot takes what has its element type: memory is not reinterpreted. */
int64_t low_plan_shared(IrCtx *c, int n, LiveBuf *b) {
  Arena *a = ir_arena(c);
  Slot *slot = arena_array(a, Slot, n + 1);
  int32_t *slot_of = arena_array(a, int32_t, n + 1), *order = arena_array(a, int32_t, n + 1);
  int64_t *open = arena_array(a, int64_t, n + 1);
  bool *dead = arena_array(a, bool, n + 1);
  int n_slot = 0;
  for (int i = 0; i < n; i++) {
    order[i] = i;
    b[i].shared_with = -1;
  }
  for (int i = 1; i < n; i++) /* by first access, stable */
    for (int j = i; j > 0 && b[order[j]].first < b[order[j - 1]].first; j--) {
      int32_t t = order[j];
      order[j] = order[j - 1];
      order[j - 1] = t;
    }
  for (int q = 0; q < n; q++) {
    LiveBuf *x = &b[order[q]];
    for (int p = 0; p < q; p++) {
      LiveBuf *y = &b[order[p]];
      if (!dead[order[p]] && y->last < x->first) {
        dead[order[p]] = true;
        if (y->bytes > 4) slot[slot_of[order[p]]].free = true;
      }
    }
    DType t = ir_buffer(c, x->buf)->type;
    for (int s = 0; s < n_slot; s++) open[s] = slot[s].free && dtype_eq(slot[s].type, t) ? slot[s].bytes : 0;
    int best = memory_reused(n_slot, open, x->bytes);
    if (best < 0) {
      best = n_slot++;
      slot[best] = (Slot){t, x->bytes, order[q], false};
    } else {
      x->shared_with = slot[best].owner;
      slot[best].free = false;
      if (slot[best].bytes < x->bytes) slot[best].bytes = x->bytes;
    }
    slot_of[order[q]] = best;
  }
  int64_t total = 0;
  for (int s = 0; s < n_slot; s++) total += slot[s].bytes;
  return total;
}

/* ---- lives ---- */
int64_t low_aligned(const IrBuffer *b, int64_t n) {
  const int64_t f = b->align_factor;
  return n + i64_floormod(f + b->align_offset - n % f, f);
}
int64_t low_buffer_bytes(IrCtx *c, BufferId id) {
  const IrBuffer *b = ir_buffer(c, id);
  int64_t n = 1, e;
  if (b->size) return ex_const_int(c, b->size, &n) ? n * dtype_bytes(b->type) : -1;
  for (int i = b->rank - 1; i >= 0; i--) {
    if (!ex_const_int(c, b->extent[i], &e)) return -1;
    if (b->align_factor && b->align_dim == i) n = low_aligned(b, n);
    if (!i64_mul(n, e, &n)) return -1;
  }
  return n * dtype_bytes(b->type);
}

typedef struct {
  int32_t start;
  VEC(int32_t) pending;
} Level;
typedef struct {
  IrCtx *c;
  bool kernels;
  ScopeKind scope;
  VEC(LiveBuf) live;
  MapU64 index;
  VEC(Level) stack;
  int32_t point;
} Lives;

static void life_access(Lives *l, BufferId b) {
  int32_t i = mapu_get(&l->index, (uint64_t)b, -1);
  if (i < 0) return;
  LiveBuf *x = &l->live.at[i];
  bool inner = x->depth < l->stack.len;
  int32_t at = inner ? l->stack.at[x->depth].start : l->point;
  if (x->first < 0 || at < x->first) x->first = at;
  if (inner)
    vec_push(ir_arena(l->c), &l->stack.at[x->depth].pending, i);
  else
    x->last = l->point;
}
static void life_node(IrCtx *c, ExprId e, void *arg) {
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_LOAD) life_access(arg, n->sym);
}
static void life_open(Lives *l) {
  Level v = {.start = ++l->point};
  vec_push(ir_arena(l->c), &l->stack, v);
}
static void life_close(Lives *l) {
  Level v = l->stack.at[--l->stack.len];
  int32_t end = ++l->point;
  for (int i = 0; i < v.pending.len; i++) l->live.at[v.pending.at[i]].last = end;
}
/* Inside a kernel threads run in lock-step; seen from outside a kernel is one step. */
static bool life_level(const Lives *l, const Stmt *s) {
  ForKind kind = s->kind == ST_FOR ? s->u.loop.kind : FOR_VTHREAD;
  return s->kind == ST_IF || kind < FOR_VTHREAD || (l->kernels && kind > FOR_VTHREAD);
}
static void life_alloc(Lives *l, BufferId id) {
  const IrBuffer *b = ir_buffer(l->c, id);
  int64_t n = low_buffer_bytes(l->c, id);
  if (b->external || b->scope != l->scope || n < 0) return;
  int32_t known = mapu_get(&l->index, (uint64_t)id, -1);
  if (known >= 0) {
    l->live.at[known].depth = 0; /* copied allocation: alive at the outermost level */
    return;
  }
  LiveBuf x = {id, n, -1, -1, -1, l->stack.len};
  vec_note(ir_arena(l->c), &l->live, x, &l->index, id);
}
static bool life_enter(IrCtx *c, const Stmt *s, void *arg) {
  Lives *l = arg;
  if (life_level(l, s))
    life_open(l);
  else if (s->kind == ST_LET || s->kind == ST_STORE || s->kind == ST_EVAL)
    ++l->point;
  st_visit_exprs(c, s, life_node, l);
  if (s->kind == ST_ALLOC) life_alloc(l, s->u.alloc.buf);
  if (s->kind == ST_STORE) life_access(l, s->u.store.buf);
  return true;
}
static bool life_leave(IrCtx *c NS_UNUSED, const Stmt *s, void *arg) {
  if (life_level(arg, s)) life_close(arg);
  return true;
}
LiveBufs low_lives(IrCtx *c, const Stmt *s, ScopeKind scope) {
  Lives l = {.c = c, .scope = scope, .kernels = scope == SC_GLOBAL};
  mapu_init(&l.index, ir_arena(c));
  st_visit(c, s, life_enter, life_leave, &l);
  return (LiveBufs){l.live.len, l.live.at};
}

/* ---- renaming ---- */
static bool renamed(IrCtx *c NS_UNUSED, BufferId *b, ExprId *index NS_UNUSED, void *to) {
  BufferId now = mapu_get(to, (uint64_t)*b, 0);
  if (now) *b = now;
  return now != 0;
}
static Stmt *drop_renamed(IrCtx *c NS_UNUSED, Stmt *s, void *to) {
  return s->kind == ST_ALLOC && mapu_get(to, (uint64_t)s->u.alloc.buf, 0) ? s->u.alloc.body : s;
}
/* Lets buffers of `scope` that were found by `l` share memory; buffers that gave theirs up are mapped in `to`. */
static void share(IrCtx *c, LiveBufs l, MapU64 *to, ScopeKind scope) {
  LiveBuf *there = arena_array(ir_arena(c), LiveBuf, l.n + 1);
  int n = 0;
  for (int i = 0; i < l.n; i++)
    if (ir_buffer(c, l.at[i].buf)->scope == scope && !ir_buffer(c, l.at[i].buf)->keeps && l.at[i].first >= 0)
      there[n++] = l.at[i];
  low_plan_shared(c, n, there);
  for (int i = 0; i < n; i++) {
    if (there[i].shared_with < 0) continue;
    BufferId owner = there[there[i].shared_with].buf;
    mapu_set(to, (uint64_t)there[i].buf, owner);
    int64_t own = 0, more = 0;
    ex_const_int(c, ir_buffer(c, owner)->size, &own);
    ex_const_int(c, ir_buffer(c, there[i].buf)->size, &more);
    if (more > own) ir_buffer(c, owner)->size = ir_buffer(c, there[i].buf)->size;
  }
}

/* ---- moving allocations ---- */
typedef VEC(BufferId) Bufs;
typedef struct {
  IrCtx *c;
  bool gpu, printing;
  bool in_kernel, in_parallel; /* around the statement at hand */
  Bufs global, shared, local;
} Move;

static void move(Move *m, Bufs *to, BufferId b) { /* a statement that was copied may allocate the same buffer twice */
  for (int i = 0; i < to->len; i++)
    if (to->at[i] == b) return;
  vec_push(ir_arena(m->c), to, b);
}
static Stmt *take(IrCtx *c, Stmt *s, void *arg);
static Stmt *take_below(Move *m, Stmt *s, bool in_kernel, bool in_parallel) {
  bool kernel = m->in_kernel, parallel = m->in_parallel;
  m->in_kernel = in_kernel, m->in_parallel = in_parallel;
  Stmt *r = st_rewrite(m->c, s, take, NULL, m);
  m->in_kernel = kernel, m->in_parallel = parallel;
  return r;
}
static Stmt *take_kernel(Move *m, Stmt *s) {
  m->shared.len = m->local.len = 0;
  Stmt *r = take_below(m, s, true, false);
  if (!m->printing) return low_place(m->c, r, m->shared.len, m->shared.at, m->local.len, m->local.at);
  r = st_own(m->c, r); /* texts: everything below the outermost thread loop, in order of allocation */
  for (int i = m->shared.len - 1; i >= 0; i--) r->u.loop.body = st_alloc(m->c, m->shared.at[i], r->u.loop.body);
  return r;
}
static Stmt *take_alloc(Move *m, Stmt *s) {
  IrCtx *c = m->c;
  const IrBuffer *b = ir_buffer(c, s->u.alloc.buf);
  int64_t n;
  Bufs *to = m->gpu && b->scope == SC_SHARED ? &m->shared : m->gpu && b->scope != SC_GLOBAL ? &m->local : &m->global;
  if (m->printing && (m->in_kernel || !m->in_parallel)) {
    to = m->in_kernel ? &m->shared : &m->global;
  } else {
    bool small = ex_const_int(c, b->size, &n) && n * dtype_bytes(b->type) <= LOW_CPU_STACK_BYTES;
    bool stays = m->gpu ? (b->scope != SC_GLOBAL && !m->in_kernel) : (small || m->in_parallel);
    err_check(ir_err(c), !stays || !m->gpu, "buffer %s in %s memory is used outside of any kernel", b->name,
              b->scope == SC_SHARED ? "shared" : "local");
    if (stays) return st_rewrite(c, s, take, NULL, m);
  }
  move(m, to, s->u.alloc.buf);
  return take(c, s->u.alloc.body, m);
}
static Stmt *take(IrCtx *c, Stmt *s, void *arg) {
  Move *m = arg;
  if (s->kind == ST_ALLOC) return take_alloc(m, s);
  if (s->kind != ST_FOR) return st_rewrite(c, s, take, NULL, m);
  ForKind k = s->u.loop.kind;
  if ((for_is_block(k) || for_is_thread(k)) && !m->in_kernel) return take_kernel(m, s);
  return take_below(m, s, m->in_kernel, m->in_parallel || k == FOR_PARALLEL);
}
static Stmt *share_in_kernel(IrCtx *c, Stmt *s, void *arg) {
  share(c, low_lives(c, s, SC_SHARED), arg, SC_SHARED);
  return s;
}

void pass_storage(Func *f) {
  IrCtx *c = f->ctx;
  MapU64 to;
  mapu_init(&to, ir_arena(c));
  low_each_kernel(c, f->body, share_in_kernel, &to);
  LiveBufs l = low_lives(c, f->body, SC_GLOBAL);
  Move m = {.c = c, .gpu = low_is_gpu(f), .printing = f->use == LOW_TEXT};
  Stmt *body = take(c, f->body, &m);
  LiveBufs top = {0, arena_array(ir_arena(c), LiveBuf, l.n)}; /* globals: only those that moved to the top may share */
  for (int i = 0; i < l.n; i++)
    for (int j = 0; j < m.global.len; j++)
      if (m.global.at[j] == l.at[i].buf) top.at[top.n++] = l.at[i];
  share(c, top, &to, SC_GLOBAL);
  for (int i = m.global.len - 1; i >= 0; i--) body = st_alloc(c, m.global.at[i], body);
  f->body = to.len ? low_move(c, st_map(c, body, drop_renamed, NULL, &to), renamed, &to) : body;
}
