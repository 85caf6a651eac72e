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
static void reads_of(Sync *k, ExprId e, Accs *out) {
  Reads r = {k, out};
  if (e) ex_post_order(k->c, e, read_node, &r);
}

/* Has every thread of the block an element of its own at this index? */
static bool own_point(Sync *k, ExprId idx) {
  IrCtx *c = k->c;
  int64_t step[3], covered = 1;
  bool done[3] = {false, false, false};
  if (k->dim.len > 3) return false;
  for (int i = 0; i < k->dim.len; i++) {
    VarId v = k->dim.at[i].v;
    VarSub next = {v, ex_add(c, ex_var(c, v), ex_int(c, ir_var_info(c, v)->type, 1))};
    if (!low_const(c, ar_simplify(k->ar, ex_sub(c, ex_subst(c, idx, 1, &next), idx)), &step[i])) return false;
    if (step[i] < 0) step[i] = -step[i];
  }
  for (int round = 0; round < k->dim.len; round++) { /* smallest step first: each must pass what the others cover */
    int at = -1;
    for (int i = 0; i < k->dim.len; i++)
      if (!done[i] && (at < 0 || step[i] < step[at])) at = i;
    if (step[at] < covered) return false;
    covered += step[at] * (k->dim.at[at].n - 1);
    done[at] = true;
  }
  return true;
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
    if (e->sync) {
      if (syncs++)
        tail.len = 0;
      else
        vec_push(mem(k), &head, mark);
    }
    for (int j = 0; j < e->acc.len; j++) {
      if (e->acc.at[j].kind == ACC_SYNC) {
        if (syncs++)
          tail.len = 0;
        else
          vec_push(mem(k), &head, mark);
      } else
        vec_push(mem(k), syncs ? &tail : &head, e->acc.at[j]);
    }
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
static void scan(Sync *k, const Stmt *s, Entries *seq) {
  if (!s) return;
  IrCtx *c = k->c;
  Entry e = {.s = s};
  switch (s->kind) {
  case ST_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) scan(k, s->u.seq.at[i], seq);
    return;
  case ST_FOR: {
    ForKind kind = s->u.loop.kind;
    if (for_is_thread(kind)) {
      Dim d = {s->u.loop.var, 0};
      mapu_set(&k->thread, (uint64_t)d.v, 1);
      if (!low_const(c, s->u.loop.extent, &d.n) || d.n > 1) vec_push(mem(k), &k->dim, d);
    }
    if (kind > FOR_VTHREAD) {
      scan(k, s->u.loop.body, seq);
      return;
    }
    bool d = divergent(k, s->u.loop.extent);
    k->divergent += d;
    e.acc = scan_body(k, s->u.loop.body, true, s->u.loop.var);
    k->divergent -= d;
    for (int i = 0; i < e.acc.len; i++) {
      e.acc.at[i].other_half = false;
      if (e.acc.at[i].idx && ex_uses_var(c, e.acc.at[i].idx, s->u.loop.var)) e.acc.at[i].idx = 0;
    }
    break;
  }
  case ST_IF: {
    bool d = divergent(k, s->u.cond.cond);
    reads_of(k, s->u.cond.cond, &e.acc);
    k->divergent += d;
    Accs a = scan_body(k, s->u.cond.then, false, 0), b = scan_body(k, s->u.cond.other, false, 0);
    k->divergent -= d;
    for (int i = 0; i < a.len; i++)
      if (a.at[i].kind != ACC_SYNC)
        vec_push(mem(k), &e.acc, a.at[i]); /* the branch may not be taken: its barriers do not count */
    for (int i = 0; i < b.len; i++)
      if (b.at[i].kind != ACC_SYNC) vec_push(mem(k), &e.acc, b.at[i]);
    break;
  }
  case ST_LET:
    if (divergent(k, s->u.let.value)) mapu_set(&k->thread, (uint64_t)s->u.let.var, 1);
    reads_of(k, s->u.let.value, &e.acc);
    {
      Accs a = scan_body(k, s->u.let.body, false, 0);
      for (int i = 0; i < a.len; i++) vec_push(mem(k), &e.acc, a.at[i]);
    }
    break;
  case ST_ALLOC: scan(k, s->u.alloc.body, seq); return;
  case ST_ATTR: {
    bool d = s->u.attr.kind == AT_DOUBLE_WRITE;
    k->double_write += d;
    scan(k, s->u.attr.body, seq);
    k->double_write -= d;
    return;
  }
  case ST_STORE:
    reads_of(k, s->u.store.idx[0], &e.acc);
    reads_of(k, s->u.store.value, &e.acc);
    if (ir_buffer(c, s->u.store.buf)->scope == SC_SHARED)
      vec_push(mem(k), &e.acc, ((Acc){ACC_WRITE, s->u.store.buf, s->u.store.idx[0], k->double_write > 0}));
    break;
  case ST_EVAL:
    reads_of(k, s->u.eval.e, &e.acc);
    if (ir_kind(c, s->u.eval.e) == IR_CALL && ir_node(c, s->u.eval.e)->sym == IN_SYNC_SHARED) {
      e.acc.len = 0;
      vec_push(mem(k), &e.acc, ((Acc){ACC_SYNC, 0, 0, false}));
    }
    break;
  }
  vec_push(mem(k), seq, e);
}

/* ---- putting them in ---- */
static Stmt *barrier(IrCtx *c) {
  ExprId arg = ex_str(c, "shared");
  return st_eval(c, ex_call(c, IN_SYNC_SHARED, DT_I32, 1, &arg));
}
static Stmt *insert(Sync *k, Stmt *s) {
  if (!s) return NULL;
  IrCtx *c = k->c;
  Stmt *r = low_new(c, s);
  switch (s->kind) {
  case ST_SEQ:
    r->u.seq.at = arena_array(mem(k), Stmt *, s->u.seq.n);
    for (int i = 0; i < s->u.seq.n; i++) r->u.seq.at[i] = insert(k, s->u.seq.at[i]);
    r = st_seq(c, s->u.seq.n, r->u.seq.at);
    break;
  case ST_FOR: r->u.loop.body = insert(k, s->u.loop.body); break;
  case ST_IF:
    r->u.cond.then = insert(k, s->u.cond.then);
    r->u.cond.other = insert(k, s->u.cond.other);
    break;
  case ST_LET: r->u.let.body = insert(k, s->u.let.body); break;
  case ST_ALLOC: r->u.alloc.body = insert(k, s->u.alloc.body); break;
  case ST_ATTR: r->u.attr.body = insert(k, s->u.attr.body); break;
  case ST_STORE:
  case ST_EVAL: r = s; break;
  }
  if (mapu_get(&k->before, (uint64_t)(uintptr_t)s, 0) == 0) return r;
  Stmt *two[2] = {barrier(c), r};
  return st_seq(c, 2, two);
}
static Stmt *sync_kernel(IrCtx *c, Stmt *s, void *arg) {
  (void)arg;
  Sync k = {.c = c, .ar = ar_new(c)};
  mapu_init(&k.thread, ir_arena(c));
  mapu_init(&k.before, ir_arena(c));
  Entries top = {0};
  scan(&k, s, &top);
  summarise(&k, &top, false, 0);
  return k.before.len ? insert(&k, s) : s;
}
void pass_sync(Func *f) {
  if (low_is_gpu(f)) f->body = low_each_kernel(f->ctx, f->body, sync_kernel, NULL);
  low_verify(f, "sync");
}
