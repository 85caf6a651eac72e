/* sync: barriers for shared memory (spec 07 §7.2.15).
 *
 * Between a write of one thread and a conflicting access of another thread of the block stands a barrier that all
 * threads execute. Statements are summarised bottom-up: in a sequence, a read that meets an unsynchronised write (or a
 * write that meets an unsynchronised read) of the same buffer gets a barrier before its statement; a loop is looked at
 * a second time with what its end leaves over. Two accesses do not conflict when both are the same single point: then
 * each thread meets its own element. A compound statement is seen from outside through the accesses before its first
 * and after its last barrier.
 *
 * A barrier under a condition that may differ between the threads of a block is impossible; such programs are refused.
 */
#include "lower/util.h"

typedef enum { ACC_READ, ACC_WRITE, ACC_SYNC } AccKind;
typedef struct {
  AccKind kind;
  BufferId buf;
  ExprId idx;
  bool other_half;
} Acc; /* idx 0: not a single point; other_half: double-buffer write */
typedef VEC(Acc) Accs;
typedef struct {
  const Stmt *s;
  Accs acc;
  bool sync;
} Entry; /* sync: a barrier stands before s */
typedef VEC(Entry) Entries;
typedef struct {
  VarId v;
  int64_t n;
} Dim;
typedef struct {
  IrCtx *c;
  Arith *ar;
  MapU64 thread;
  MapU64 before;
  VEC(Dim) dim; /* threadIdx loops with more than one iteration */
  int divergent, double_write;
} Sync; /* before: statements (by address) that get a barrier */

static Arena *mem(Sync *k) { return ir_arena(k->c); }
typedef struct {
  Sync *k;
  Accs *out;
} Reads;
static void read_node(IrCtx *c, ExprId e, void *arg) {
  Reads *r = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_LOAD && ir_buffer(c, n->sym)->scope == SC_SHARED)
    vec_push(mem(r->k), r->out, ((Acc){ACC_READ, n->sym, ir_kid(c, e, 0), false}));
}
/* Has every thread of the block an element of its own at this index? */
static bool own_point(Sync *k, ExprId idx) {
  int64_t step[3], count[3];
  if (k->dim.len > 3) return false;
  for (int i = 0; i < k->dim.len; i++) {
    if ((step[i] = low_step(k->ar, k->c, idx, k->dim.at[i].v)) < 0) return false;
    count[i] = k->dim.at[i].n;
  }
  return low_apart(k->dim.len, step, count, 1);
}

/* Does access a meet one of prev? At equal points a thread meets its own element, or what other threads wrote too, with
 * the same value (harmless; such a barrier is left out where none can stand). Carried round a loop over v an index that
 * moves with v is another point, and elements that threads share get new values while slower threads still read. */
static bool conflict(Sync *k, const Accs *prev, Acc a, bool carried, VarId v) {
  for (int i = 0; i < prev->len; i++) {
    Acc p = prev->at[i];
    if (p.buf != a.buf || (!carried && p.other_half)) continue;
    if (!p.idx || p.idx != a.idx) return true;
    if (carried && ((v && ex_uses_var(k->c, a.idx, v)) || !own_point(k, a.idx))) return true;
    if (k->divergent == 0 && !low_expr_uses_any(k->c, a.idx, &k->thread) && !carried) return true;
  }
  return false;
}
static bool divergent(Sync *k, ExprId e) { return low_expr_uses_any(k->c, e, &k->thread) || low_expr_loads(k->c, e); }

static void plan_before(Sync *k, Entry *e) {
  err_check(ir_err(k->c), k->divergent == 0,
            "a barrier would be needed inside a condition that is not the same for all threads of a block");
  e->sync = true;
  mapu_set(&k->before, (uint64_t)(uintptr_t)e->s, 1);
}
static bool step(Sync *k, Entry *e, Accs *r, Accs *w, bool carried, VarId v) {
  bool need = e->sync;
  if (need) r->len = w->len = 0;
  for (int i = 0; i < e->acc.len && !need; i++) {
    Acc a = e->acc.at[i];
    if (a.kind == ACC_SYNC) {
      r->len = w->len = 0;
      continue;
    }
    const Accs *other = a.kind == ACC_READ ? w : r;
    need = conflict(k, other, a, carried, v);
  }
  return need;
}
static void push_access(Sync *k, const Entry *e, Accs *r, Accs *w) {
  for (int i = 0; i < e->acc.len; i++) {
    Acc a = e->acc.at[i];
    if (a.kind == ACC_SYNC)
      r->len = w->len = 0;
    else
      vec_push(mem(k), a.kind == ACC_READ ? r : w, a);
  }
}
static Accs summarise(Sync *k, Entries *seq, bool loop, VarId v) {
  Accs r = {0}, w = {0}, head = {0}, tail = {0};
  for (int i = 0; i < seq->len; i++) {
    Entry *e = &seq->at[i];
    bool had = e->sync;
    if (step(k, e, &r, &w, false, 0)) {
      r.len = w.len = 0;
      if (!had) plan_before(k, e);
    }
    push_access(k, e, &r, &w);
  }
  for (int i = 0; loop && i < seq->len; i++) {
    Entry *e = &seq->at[i];
    if (e->sync || (r.len == 0 && w.len == 0)) break;
    if (step(k, e, &r, &w, true, v)) {
      plan_before(k, e);
      break;
    }
  }
  int syncs = 0;
  Acc mark = {ACC_SYNC, 0, 0, false};
  for (int i = 0; i < seq->len; i++) {
    Entry *e = &seq->at[i];
    for (int j = e->sync ? -1 : 0; j < e->acc.len; j++) /* -1: the barrier in front of it */
      if (j >= 0 && e->acc.at[j].kind != ACC_SYNC)
        vec_push(mem(k), syncs ? &tail : &head, e->acc.at[j]);
      else if (syncs++)
        tail.len = 0;
      else
        vec_push(mem(k), &head, mark);
  }
  for (int i = 0; i < tail.len; i++) vec_push(mem(k), &head, tail.at[i]);
  return head;
}

static void scan(Sync *k, const Stmt *s, Entries *seq);
static Accs scan_body(Sync *k, const Stmt *s, bool loop, VarId v) {
  Entries in = {0};
  scan(k, s, &in);
  return summarise(k, &in, loop, v);
}
static bool is_write(Sync *k, const Stmt *s) {
  return s->kind == ST_STORE && ir_buffer(k->c, s->u.store.buf)->scope == SC_SHARED;
}
/* What stands in s is part of the sequence around s. */
static bool is_open(const Stmt *s) {
  return s->kind == ST_SEQ || s->kind == ST_ALLOC || s->kind == ST_ATTR ||
         (s->kind == ST_FOR && s->u.loop.kind > FOR_VTHREAD);
}
static void thread_loop(Sync *k, const Stmt *s) {
  Dim d = {s->u.loop.var, 0};
  mapu_set(&k->thread, (uint64_t)d.v, 1);
  if (!ex_const_int(k->c, s->u.loop.extent, &d.n) || d.n > 1) vec_push(mem(k), &k->dim, d);
}
/* A statement with what stands in it. Its barriers count outside unless a branch may leave them out. */
static void scan_entry(Sync *k, const Stmt *s, Entries *seq) {
  IrCtx *c = k->c;
  Entry e = {.s = s};
  Stmt **kid;
  bool loop = s->kind == ST_FOR;
  st_visit_exprs(c, s, read_node, &(Reads){k, &e.acc});
  if (s->kind == ST_LET && divergent(k, s->u.let.value)) mapu_set(&k->thread, (uint64_t)s->u.let.var, 1);
  bool d = loop ? divergent(k, s->u.loop.extent) : s->kind == ST_IF && divergent(k, s->u.cond.cond);
  k->divergent += d;
  for (int i = 0; (kid = st_kid(s, i)); i++) {
    Accs a = scan_body(k, *kid, loop, loop ? s->u.loop.var : 0);
    for (int j = 0; j < a.len; j++)
      if (s->kind != ST_IF || a.at[j].kind != ACC_SYNC) vec_push(mem(k), &e.acc, a.at[j]);
  }
  k->divergent -= d;
  for (int i = 0; loop && i < e.acc.len; i++) {
    e.acc.at[i].other_half = false;
    if (e.acc.at[i].idx && ex_uses_var(c, e.acc.at[i].idx, s->u.loop.var)) e.acc.at[i].idx = 0;
  }
  if (is_write(k, s))
    vec_push(mem(k), &e.acc, ((Acc){ACC_WRITE, s->u.store.buf, s->u.store.idx[0], k->double_write > 0}));
  if (st_calls(c, s, IN_SYNC_SHARED)) {
    e.acc.len = 0;
    vec_push(mem(k), &e.acc, ((Acc){ACC_SYNC, 0, 0, false}));
  }
  vec_push(mem(k), seq, e);
}
static void scan(Sync *k, const Stmt *s, Entries *seq) {
  if (!s) return;
  Stmt **kid;
  if (s->kind == ST_FOR && for_is_thread(s->u.loop.kind)) thread_loop(k, s);
  if (!is_open(s)) {
    scan_entry(k, s, seq);
    return;
  }
  bool d = s->kind == ST_ATTR && s->u.attr.kind == AT_DOUBLE_WRITE;
  k->double_write += d;
  for (int i = 0; (kid = st_kid(s, i)); i++) scan(k, *kid, seq);
  k->double_write -= d;
}

/* ---- putting them in ---- */
static Stmt *insert(IrCtx *c, Stmt *s, void *arg) {
  Sync *k = arg;
  Stmt *two[2] = {NULL, st_rewrite(c, s, insert, NULL, k)};
  if (mapu_get(&k->before, (uint64_t)(uintptr_t)s, 0)) two[0] = low_barrier(c);
  return st_seq(c, 2, two);
}
static Stmt *sync_kernel(IrCtx *c, Stmt *s, void *arg NS_UNUSED) {
  if (st_synced(c, s)) return s;
  Sync k = {.c = c, .ar = ar_new(c)};
  mapu_init(&k.thread, ir_arena(c));
  mapu_init(&k.before, ir_arena(c));
  Entries top = {0};
  scan(&k, s, &top);
  summarise(&k, &top, false, 0);
  return k.before.len ? insert(c, s, &k) : s;
}
void pass_sync(Func *f) {
  if (low_is_gpu(f)) f->body = low_each_kernel(f->ctx, f->body, sync_kernel, NULL);
}
