/* Schedules written by hand: the te primitives on the same stages, axes and relations that steps act on.
 *
 * A te schedule is a State without steps. It differs from a step list in three ways: split factors may be symbolic,
 * loops are named by handles that survive everything but their own splitting, and attachments follow their loop through
 * a reorder. Checks are those users of te expect, with the loop's name in the message.
 */
#include "schedule/internal.h"
#include <string.h>

/* ---- making ---- */

typedef struct {
  IrCtx *c;
  MapU64 seen;
  VEC(TeOp *) ops;
} Order;

static void visit(Order *o,
                  TeOp *root) { /* depth-first post-order, inputs in reading order; no recursion: graphs are deep */
  Arena *m = ir_arena(o->c);
  typedef struct {
    TeOp *op;
    int next;
  } Frame;
  VEC(Frame) stack = {0};
  vec_push(m, &stack, ((Frame){root, 0}));
  while (stack.len) {
    Frame *f = &stack.at[stack.len - 1];
    if (f->next == 0 && mapu_get(&o->seen, (uint64_t)(uintptr_t)f->op, 0)) {
      stack.len--;
      continue;
    }
    mapu_set(&o->seen, (uint64_t)(uintptr_t)f->op, 1);
    if (f->next < f->op->n_in) {
      TeOp *in = ir_tensor(o->c, f->op->in[f->next++])->op;
      if (!mapu_get(&o->seen, (uint64_t)(uintptr_t)in, 0)) vec_push(m, &stack, ((Frame){in, 0}));
      continue;
    }
    vec_push(m, &o->ops, f->op);
    stack.len--;
  }
}

State *sched_new(IrCtx *c, int n, const TeOp *const *outputs) {
  err_check(ir_err(c), n > 0, "a schedule needs at least one output operation");
  Order o = {.c = c};
  mapu_init(&o.seen, ir_arena(c));
  for (int i = 0; i < n; i++) visit(&o, ir_tensor(c, outputs[i]->out[0])->op);
  State *s = state_init(c, te_dag_rewritten(c, NULL, o.ops.len, o.ops.at));
  bool *is_output = arena_array(ir_arena(c), bool, s->stage.len);
  for (int i = 0; i < n; i++) is_output[sched_stage(s, outputs[i])] = true;
  for (int i = 0; i < s->stage.len; i++) s->stage.at[i].is_output = is_output[i];
  te_check_reads(c, o.ops.len, o.ops.at, is_output);
  return s;
}

int sched_stage(const State *s, const TeOp *op) {
  for (int i = 0; i < s->stage.len; i++)
    if (s->stage.at[i].op == op || s->stage.at[i].origin == op) return i;
  return -1;
}

static void give_handle(State *s, const Stage *st, Axis *x) {
  DType t =
      st->n_root ? ir_var_info(s->ctx, st->axes.at[0].var ? st->axes.at[0].var : st->axes.at[0].handle)->type : DT_I32;
  x->handle = ir_var_new(s->ctx, x->sname, t, false);
  if (!x->var) x->var = x->handle;
}

void sched_handles(State *s) {
  for (int i = 0; i < s->stage.len; i++) {
    Stage *st = &s->stage.at[i];
    for (int k = 0; k < st->axes.len; k++)
      if (!st->axes.at[k].handle) give_handle(s, st, &st->axes.at[k]);
  }
}

int sched_axis(State *s, int stage, VarId handle) {
  const Stage *st = stage_at(s, stage, true);
  for (int k = 0; k < st->leaf.len; k++)
    if (st->axes.at[st->leaf.at[k]].handle == handle) return k;
  for (int k = 0; k < st->axes.len; k++)
    err_check(S_ERR(s), st->axes.at[k].handle != handle,
              "axis %s of stage %s has already been split or fused; use the resulting axes", st->axes.at[k].sname,
              st->op->name);
  err_raise(S_ERR(s), NS_ERR_VALUE,
            "axis %s is not part of stage %s; fetch axes again after cache_write and rfactor (s[T].op.axis)",
            ir_var_info(s->ctx, handle)->name, st->op->name);
}

/* ---- loops ---- */

void sched_split(State *s, int stage, int leaf, ExprId factor, ExprId nparts) {
  Stage *st = stage_at(s, stage, true);
  const Axis *x = leaf_at(s, stage, leaf);
  int64_t v;
  ExprId by = factor ? factor : nparts;
  err_check(S_ERR(s), (factor != 0) != (nparts != 0), "split of %s: give either factor or nparts", x->sname);
  err_check(S_ERR(s), !ex_const_int(s->ctx, by, &v) || v > 0, "split of %s: %s %lld is not positive", x->sname,
            factor ? "factor" : "nparts", (long long)v);
  DType t = ir_type(s->ctx, by);
  err_check(S_ERR(s), (t.code == DT_INT || t.code == DT_UINT) && t.lanes == 1, "split of %s: the %s must be an integer",
            x->sname, factor ? "factor" : "nparts");
  err_check(S_ERR(s), !x->thread_obj, "split of %s: the axis is bound to a thread already", x->sname);
  stage_split2(s->ctx, st, leaf, factor, nparts);
  give_handle(s, st, &st->axes.at[st->leaf.at[leaf]]);
  give_handle(s, st, &st->axes.at[st->leaf.at[leaf + 1]]);
  attach_split(s, stage, leaf, 1);
}

/* A stage attached at the outer of two fused loops loses its place; bound inference says so unless it is moved. */
static void detach_outer(State *s, Stage *st, int leaf) {
  int w = 0;
  for (int i = 0; i < st->attached.len; i++) {
    int32_t e = st->attached.at[i];
    if (attach_leaf(e) == leaf)
      s->stage.at[attach_stage(e)].at_iter = -1;
    else
      st->attached.at[w++] = e;
  }
  st->attached.len = w;
}

void sched_fuse(State *s, int stage, int leaf) {
  Stage *st = stage_at(s, stage, true);
  leaf_at(s, stage, leaf + 1);
  detach_outer(s, st, leaf);
  stage_fuse2(s->ctx, st, leaf);
  give_handle(s, st, &st->axes.at[st->leaf.at[leaf]]);
  attach_fuse(s, stage, leaf, 2);
}

void sched_singleton(State *s, int stage) {
  Stage *st = stage_at(s, stage, true);
  for (int i = 0; i < st->attached.len; i++) { /* all loops move one further in */
    int32_t e = st->attached.at[i];
    st->attached.at[i] = (int32_t)((attach_leaf(e) + 1) << 16 | attach_stage(e));
    s->stage.at[attach_stage(e)].at_iter = attach_leaf(e) + 1;
  }
  stage_singleton(s->ctx, st);
  give_handle(s, st, &st->axes.at[st->leaf.at[0]]);
}

void sched_reorder(State *s, int stage, int n, const int *leaves) {
  Stage *st = stage_at(s, stage, true);
  int len = st->leaf.len;
  int64_t *order = arena_array(ir_arena(s->ctx), int64_t, len), *inverse = arena_array(ir_arena(s->ctx), int64_t, len);
  char *used = arena_alloc(ir_arena(s->ctx), (size_t)len);
  for (int i = 0; i < n; i++) {
    const Axis *x = leaf_at(s, stage, leaves[i]);
    err_check(S_ERR(s), !used[leaves[i]], "reorder: axis %s is listed twice", x->sname);
    used[leaves[i]] = 1;
  }
  for (int p = 0, next = 0; p < len; p++) order[p] = used[p] ? leaves[next++] : p;
  for (int p = 0; p < len; p++) inverse[order[p]] = p;
  stage_permute(s->ctx, st, order);
  for (int i = 0; i < st->attached.len; i++) {
    int32_t e = st->attached.at[i];
    int q = (int)inverse[attach_leaf(e)];
    st->attached.at[i] = (int32_t)(q << 16 | attach_stage(e));
    s->stage.at[attach_stage(e)].at_iter = q;
  }
}

void sched_bind(State *s, int stage, int leaf, VarId thread, Annotation kind) {
  Axis *x = leaf_at(s, stage, leaf);
  x->ann = (uint8_t)kind;
  x->var = x->thread_obj = thread;
}

void sched_annotate(State *s, int stage, int leaf, Annotation a) {
  Axis *x = leaf_at(s, stage, leaf);
  err_check(S_ERR(s), a != AN_VECTORIZE || x->kind == IT_SPACE || x->kind == IT_SPECIAL,
            "axis %s %s: it cannot be vectorized", x->sname,
            x->kind == IT_MIXED ? "is fused from data and reduction axes" : "is a reduction");
  err_check(S_ERR(s), !x->thread_obj, "axis %s is bound to %s already", x->sname, AN_WORD[x->ann]);
  x->ann = (uint8_t)a;
}

void sched_pragma(State *s, int stage, int leaf, const char *key, int64_t value) {
  Axis *x = leaf_at(s, stage, leaf);
  if (!strcmp(key, "unroll"))
    sched_annotate(s, stage, leaf, AN_UNROLL);
  else if (!strcmp(key, "vectorize"))
    sched_annotate(s, stage, leaf, AN_VECTORIZE);
  else if (!strcmp(key, "auto_unroll_max_step"))
    x->pragma_unroll = (int32_t)value, x->has_pragma_unroll = true;
  else if (!strcmp(key, "unroll_explicit"))
    x->explicit_unroll = value != 0;
  else if (!strcmp(key, "debug_skip_region"))
    x->skip_region = true; /* other keys mean nothing to this compiler */
}

/* ---- placement ---- */

void sched_compute_at(State *s, int stage, int target, int leaf) {
  Stage *st = stage_at(s, stage, true);
  leaf_at(s, target, leaf);
  st->at = AT_ITER;
  attach_set(s, stage, target, leaf);
}

void sched_compute_inline(State *s, int stage) {
  Stage *st = stage_at(s, stage, true);
  err_check(S_ERR(s), st->op->n_out == 1 && !st->op->n_red, "stage %s has %s: it cannot be inlined", st->op->name,
            st->op->n_red ? "a reduction" : "several outputs");
  st->at = AT_INLINED;
  attach_clear(s, stage);
}

void sched_compute_root(State *s, int stage) {
  stage_at(s, stage, false)->at = AT_ROOT;
  attach_clear(s, stage);
}

void sched_storage_align(State *s, int stage, VarId handle, int factor, int offset) {
  Stage *st = stage_at(s, stage, true);
  err_check(S_ERR(s), factor >= 1, "storage_align: the factor is %d; it must be positive", factor);
  for (int k = 0; k < st->axes.len; k++) {
    Axis *x = &st->axes.at[k];
    if (x->handle != handle) continue;
    if (k < st->n_root_data)
      x->align_factor = factor, x->align_offset = offset; /* only dimensions of the tensor have strides */
    return;
  }
  sched_axis(s, stage, handle); /* raises */
}

void sched_scope(State *s, int stage, const char *scope) {
  stage_at(s, stage, true)->scope = scope[0] ? scope_parse(S_ERR(s), scope) : SC_AUTO;
}

/* ---- data flow ---- */

int sched_cache_read(State *s, int stage, const char *scope, int n, const int64_t *readers) {
  stage_at(s, stage, false);
  return dag_cache_read(s, stage, scope_parse(S_ERR(s), scope), scope, n, readers);
}

int sched_cache_write(State *s, int stage, const char *scope) {
  stage_at(s, stage, true);
  return dag_cache_write(s, stage, scope_parse(S_ERR(s), scope), scope);
}

int sched_rfactor(State *s, int stage, int leaf, int factor_axis) {
  Stage *st = stage_at(s, stage, true);
  const Axis *x = leaf_at(s, stage, leaf);
  err_check(S_ERR(s), x->kind == IT_REDUCE, "rfactor: axis %s of stage %s is not a reduction", x->sname, st->op->name);
  return dag_rfactor(s, stage, st->leaf.at[leaf], factor_axis);
}
