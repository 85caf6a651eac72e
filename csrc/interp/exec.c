/* Statements, run by one thread from start to end: host code, iterations of CPU loops, and those parts of a GPU kernel
 * in which threads need not wait for each other.
 */
#include "interp/run.h"

void step(Run *r) {
  if ((++r->steps & 1023) == 0) err_poll(r->err);
  if (r->max_steps > 0 && r->steps > r->max_steps)
    err_raise(r->err, NS_ERR_VALUE,
              "the interpreter stopped after %lld statements; use smaller shapes or raise the limit",
              (long long)r->max_steps);
}

static void note_alignment(Run *r, int n, const ExprId *idx) {
  const ExprNode *x = r->node + idx[0];
  if (n != 1 || !r->flat || x->kind != IR_RAMP || r->node[r->kid[x->kid0 + 1]].kind != IR_INT ||
      r->node[r->kid[x->kid0 + 1]].u.i != 1)
    return;
  if (ev(r, r->kid[x->kid0], 0).u.i % x->type.lanes) r->misaligned++;
}

static void note_loads(Run *r, ExprId e) {
  const ExprNode *n = r->node + e;
  if (n->type.lanes == 1) return;
  if (n->kind == IR_CALL && n->sym == IN_IF_THEN_ELSE) return;
  if (n->kind == IR_LOAD) note_alignment(r, n->n, r->kid + n->kid0);
  for (int i = 0; i < n->n; i++) note_loads(r, r->kid[n->kid0 + i]);
}

static void store(Run *r, const Stmt *s) {
  BufferId b = s->u.store.buf;
  int lanes = r->node[s->u.store.value].type.lanes;
  if (lanes == 1) {
    mem_store(r, b, s->u.store.n_idx, s->u.store.idx, 0, ev(r, s->u.store.value, 0));
    return;
  }
  Val v[256];
  if (lanes > 256) err_raise(r->err, NS_ERR_VALUE, "a vector of %d lanes; the interpreter allows 256", lanes);
  note_alignment(r, s->u.store.n_idx, s->u.store.idx);
  note_loads(r, s->u.store.value);
  for (int i = 0; i < lanes; i++) v[i] = ev(r, s->u.store.value, i);
  for (int i = 0; i < lanes; i++) mem_store(r, b, s->u.store.n_idx, s->u.store.idx, i, v[i]);
}

/* STORE, EVAL; the value of a LET. */
void exec_leaf(Run *r, const Stmt *s) {
  step(r);
  if (s->kind == ST_STORE)
    store(r, s);
  else if (s->kind == ST_LET) {
    int lanes = r->node[s->u.let.value].type.lanes;
    Val v = {.bad = false};
    if (lanes == 1)
      v = ev(r, s->u.let.value, 0);
    else {
      Val *all = arena_array(r->a, Val, lanes);
      for (int i = 0; i < lanes; i++) all[i] = ev(r, s->u.let.value, i);
      v.u.i = (int64_t)(intptr_t)all;
    }
    set_var(r, s->u.let.var, v);
  } else if (s->kind == ST_EVAL) {
    const ExprNode *n = r->node + s->u.eval.e;
    if (n->kind == IR_CALL && (n->sym == IN_SYNC_SHARED || n->sym == IN_ALLREDUCE))
      err_raise(r->err, NS_ERR_VALUE, "a barrier or a reduction across threads outside of a GPU kernel");
    if (n->kind == IR_CALL && n->sym == IN_CLUSTER_SEND) {
      cluster_send(r, n);
      return;
    }
    if (n->kind == IR_CALL && n->sym == IN_PREFETCH) { /* nothing but an address, which must be one */
      operand_spot(r, r->kid[n->kid0], false);
      return;
    }
    if (exec_launch(r, s)) return;
    if (is_copy_op(r, s)) {
      exec_copy(r, s);
      return;
    }
    ev(r, s->u.eval.e, 0);
  }
}

/* CPU: iterations may run at the same time, so each counts as a thread of its own. */
static void parallel(Run *r, const Stmt *s, int64_t min, int64_t n) {
  int32_t serial = r->block_serial;
  r->in_parallel = true;
  r->kernel_epoch = ++r->epoch;
  for (int64_t i = 0; i < n; i++) {
    r->block_serial = (int32_t)i;
    set_var(r, s->u.loop.var, (Val){.u.i = min + i});
    exec_one(r, s->u.loop.body);
  }
  r->in_parallel = false;
  r->block_serial = serial;
  r->kernel_epoch = ++r->epoch;
}

void thread_index(const Run *r, int64_t t, int64_t at[3]) {
  int64_t x = r->block_dim[0], y = r->block_dim[1];
  at[0] = t % x, at[1] = t / x % y, at[2] = t / x / y;
}

bool set_axis(Run *r, const Stmt *s, int64_t min, int64_t n) {
  VarId v = s->u.loop.var;
  bool block = for_is_block(s->u.loop.kind);
  int dim = (int)s->u.loop.kind - (int)(block ? FOR_BLOCK_X : FOR_THREAD_X);
  int64_t at[3];
  thread_index(r, r->t, at);
  int64_t i = block ? r->block_id[dim] : at[dim];
  if (!block) r->dim_of[v] = (int8_t)dim;
  set_var(r, v, (Val){.u.i = min + i});
  if (i >= n)
    finding(r, FD_LAUNCH, v, "loop '%s' has extent %lld, but its thread axis is launched with more",
            ir_var_info(r->c, v)->name, (long long)n);
  return i < n;
}

static void loop(Run *r, const Stmt *s) {
  ForKind k = s->u.loop.kind;
  bool hw = for_is_block(k) || for_is_thread(k);
  if (hw && !r->in_kernel) {
    run_launch(r, s);
    return;
  }
  int64_t min = ev_int(r, s->u.loop.min, "loop minimum"), n = ev_int(r, s->u.loop.extent, "loop extent");
  if (hw) {
    if (set_axis(r, s, min, n)) exec_one(r, s->u.loop.body);
    return;
  }
  if (k == FOR_PARALLEL && !r->in_parallel && !r->in_kernel) {
    parallel(r, s, min, n);
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    set_var(r, s->u.loop.var, (Val){.u.i = min + i});
    exec_one(r, s->u.loop.body);
  }
}

void alloc_one(Run *r, BufferId b) {
  Mem *m = mem_new(r, b, NULL);
  m->fixed_block = !r->in_kernel && !r->in_parallel;
  if (r->own[b])
    r->own[b][r->t] = m;
  else
    r->mem[b] = m;
}

static void alloc(Run *r, const Stmt *s) {
  BufferId b = s->u.alloc.buf;
  ArenaMark mark = arena_mark(r->a);
  Mem **own = r->own[b], *old = own ? own[r->t] : r->mem[b];
  if (r->in_kernel && !own) r->own[b] = arena_array(r->a, Mem *, r->threads); /* private to the thread that runs */
  alloc_one(r, b);
  exec_one(r, s->u.alloc.body);
  if (own)
    own[r->t] = old;
  else {
    r->own[b] = NULL;
    r->mem[b] = old;
  }
  arena_release(r->a, mark);
}

void exec_one(Run *r, const Stmt *s) {
  if (!s) return;
  switch (s->kind) {
  case ST_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) exec_one(r, s->u.seq.at[i]);
    return;
  case ST_FOR: loop(r, s); return;
  case ST_IF:
    step(r);
    exec_one(r, ev_cond(r, s->u.cond.cond) ? s->u.cond.then : s->u.cond.other);
    return;
  case ST_LET:
    exec_leaf(r, s);
    exec_one(r, s->u.let.body);
    return;
  case ST_ALLOC: alloc(r, s); return;
  case ST_STORE:
  case ST_EVAL: exec_leaf(r, s); return;
  case ST_ATTR: exec_one(r, s->u.attr.body); return;
  }
}
