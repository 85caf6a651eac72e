/* Schedules written by hand: the te primitives. Each checks what users of te expect, with the loop's name in the message,
 * and applies one step: one of TVM's fourteen where that does the same, so that other readers of records know it, else one
 * of our own. Loops are named by handles that survive everything but their own splitting.
 */
#include "schedule/internal.h"
#include <string.h>

/* ---- making and finding ---- */

State *hand_new(IrCtx *c, int n, const TeOp *const *outputs) {
  const TeDag *d = te_dag_of_outputs(c, n, outputs);
  State *s = state_init(c, d);
  s->by_hand = true;
  bool *is_output = arena_array(ir_arena(c), bool, s->stage.len);
  for (int i = 0; i < n; i++) is_output[hand_stage(s, outputs[i])] = true;
  for (int i = 0; i < s->stage.len; i++) s->stage.at[i].is_output = is_output[i];
  return s;
}

/* Reads of the operations as they were written. Whoever only looks at a schedule (its operations, its FLOPs) may have reads that leave
 * their tensor; who needs its loops may not. */
void hand_check_reads(State *s) {
  const TeDag *d = s->dag0;
  bool *is_output = arena_array(ir_arena(s->ctx), bool, d->n_ops);
  for (int i = 0; i < d->n_ops; i++) {
    int at = hand_stage(s, d->op[i]);
    is_output[i] = at >= 0 && s->stage.at[at].is_output;
  }
  te_check_reads(s->ctx, d->n_ops, d->op, is_output);
}

int hand_stage(const State *s, const TeOp *op) {
  for (int i = 0; i < s->stage.len; i++)
    if (s->stage.at[i].op == op || s->stage.at[i].origin == op) return i;
  return -1;
}

/* The axis of a handle, by its number. */
static int axis_of(State *s, int stage, VarId handle) {
  const Stage *st = stage_at(s, stage, true);
  for (int k = 0; k < st->axes.len; k++)
    if (st->axes.at[k].handle == handle) return k;
  err_raise(S_ERR(s), NS_ERR_VALUE,
            "axis %s is not part of stage %s; fetch axes again after cache_write and rfactor (s[T].op.axis)",
            ir_var_info(s->ctx, handle)->name, st->op->name);
}

int hand_axis(State *s, int stage, VarId handle) { return leaf_of(s, stage, axis_of(s, stage, handle)); }

static int32_t axis_at(State *s, int stage, int leaf) {
  leaf_at(s, stage, leaf);
  return s->stage.at[stage].leaf.at[leaf];
}

/* ---- loops ---- */

void hand_split(State *s, int stage, int leaf, ExprId factor, ExprId nparts) {
  const Axis *x = leaf_at(s, stage, leaf);
  int64_t v = 0;
  ExprId by = factor ? factor : nparts;
  const char *what = factor ? "factor" : "nparts";
  err_check(S_ERR(s), (factor != 0) != (nparts != 0), "split of %s: give either factor or nparts", x->sname);
  bool constant = ex_const_int(s->ctx, by, &v);
  err_check(S_ERR(s), !constant || v > 0, "split of %s: %s %lld is not positive", x->sname, what, (long long)v);
  DType t = ir_type(s->ctx, by);
  err_check(S_ERR(s), (t.code == DT_INT || t.code == DT_UINT) && t.lanes == 1 && t.bits > 1,
            "split of %s: the %s must be an integer", x->sname, what);
  err_check(S_ERR(s), !x->thread_obj, "split of %s: the axis is bound to a thread already", x->sname);
  if (constant && dtype_eq(t, DT_I32)) {
    state_split(s, stage, leaf, 1, &v, factor != 0);
    return;
  }
  Step p = {.kind = STEP_SPX, .stage = stage, .flag = factor != 0};
  p.text = expr_store(s, stage, by, &p.n, &p.list);
  p.iter = axis_at(s, stage, leaf);
  state_apply(s, p);
}

void hand_fuse(State *s, int stage, int leaf) {
  if (leaf < 0) {
    state_apply(s, (Step){.kind = STEP_FUX, .stage = stage});
    return;
  }
  const Axis *a = leaf_at(s, stage, leaf), *b = leaf_at(s, stage, leaf + 1);
  bool plain = a->kind == b->kind || (a->kind != IT_SPECIAL && b->kind != IT_SPECIAL);
  int64_t extent;
  if (a->sext > 0 && b->sext > 0) plain &= i64_mul(a->sext, b->sext, &extent);
  if (plain && !attach_any(s, stage, leaf)) {
    state_fuse(s, stage, 2, (int64_t[]){leaf, leaf + 1});
    return;
  }
  int64_t two[2] = {axis_at(s, stage, leaf), axis_at(s, stage, leaf + 1)};
  state_apply(s, (Step){.kind = STEP_FUX, .stage = stage, .n = 2, .list = two});
}

void hand_reorder(State *s, int stage, int n, const int *leaves) {
  int64_t *axes = arena_array(ir_arena(s->ctx), int64_t, n);
  for (int i = 0; i < n; i++) axes[i] = axis_at(s, stage, leaves[i]);
  if (attach_any(s, stage, -1))
    state_apply(s, (Step){.kind = STEP_REX, .stage = stage, .n = n, .list = axes});
  else
    state_reorder(s, stage, stage_at(s, stage, true)->leaf.len, loops_in_place(s, stage, n, axes));
}

void hand_bind(State *s, int stage, int leaf, VarId thread, Annotation kind) {
  const Axis *x = leaf_at(s, stage, leaf);
  const IrVar v = *ir_var_info(s->ctx, thread);
  int k = 0;
  while (k < s->var.len && s->var.at[k].called != thread) k++;
  s->given = thread;
  if (k == s->var.len && x->ann == AN_NONE && !strcmp(v.name, AN_WORD[kind]) && dtype_eq(v.type, DT_I32)) {
    state_annotate(s, stage, leaf, kind);
    return;
  }
  if (k == s->var.len)
    state_apply(s, (Step){.kind = STEP_VA, .a = (int32_t)kind, .b = v.type.bits, .flag = v.nonneg, .text = v.name});
  s->given = 0;
  state_apply(s, (Step){.kind = STEP_BI, .stage = stage, .iter = axis_at(s, stage, leaf), .a = k, .b = (int32_t)kind});
}

void hand_annotate(State *s, int stage, int leaf, Annotation a) {
  const Axis *x = leaf_at(s, stage, leaf);
  bool plain = x->ann == AN_NONE && a != AN_NONE && (a != AN_VECTORIZE || x->kind == IT_SPACE || x->kind == IT_SPECIAL);
  if (plain)
    state_annotate(s, stage, leaf, a);
  else
    state_apply(s, (Step){.kind = STEP_ANX, .stage = stage, .iter = axis_at(s, stage, leaf), .a = (int32_t)a});
}

void hand_pragma(State *s, int stage, int leaf, const char *key, int64_t value) {
  if (!strcmp(key, "unroll") || !strcmp(key, "vectorize")) {
    hand_annotate(s, stage, leaf, key[0] == 'u' ? AN_UNROLL : AN_VECTORIZE);
    return;
  }
  char *text = arena_printf(ir_arena(s->ctx), "%s$%lld", key, (long long)value);
  state_apply(s, (Step){.kind = STEP_PRX, .stage = stage, .iter = axis_at(s, stage, leaf), .text = text});
}

/* ---- placement ---- */

void hand_compute_inline(State *s, int stage) {
  const Stage *st = stage_at(s, stage, true);
  err_check(S_ERR(s), st->op->n_out == 1 && !st->op->n_red, "stage %s has %s: it cannot be inlined", st->op->name,
            st->op->n_red ? "a reduction" : "several outputs");
  state_apply(s, (Step){.kind = attach_any(s, stage, -1) ? STEP_CIX : STEP_CI, .stage = stage});
}

void hand_compute_root(State *s, int stage) {
  if (stage_at(s, stage, false)->op->kind == TE_COMPUTE) /* an input is there already */
    state_apply(s, (Step){.kind = STEP_CR, .stage = stage});
}

void hand_storage_align(State *s, int stage, VarId handle, int factor, int offset) {
  Step p = {.kind = STEP_SAX, .stage = stage, .iter = axis_of(s, stage, handle), .a = factor, .b = offset};
  const Stage *st = &s->stage.at[stage];
  for (int k = 0; k < st->leaf.len; k++)
    if (st->leaf.at[k] == p.iter) p.kind = STEP_SA, p.iter = k;
  state_apply(s, p);
}

/* ---- memory and data flow ---- */

void hand_scope(State *s, int stage, const char *scope) {
  state_apply(s, (Step){.kind = STEP_SC, .stage = stage, .text = scope});
}

void hand_double_buffer(State *s, int stage) { state_apply(s, (Step){.kind = STEP_DB, .stage = stage}); }

void hand_predicate(State *s, int stage, ExprId cond) {
  Step p = {.kind = STEP_PD, .stage = stage};
  p.text = expr_store(s, stage, cond, &p.n, &p.list);
  state_apply(s, p);
}

int hand_cache_write(State *s, int stage, const char *scope) {
  bool plain = stage_at(s, stage, true)->rels.len == 0;
  state_apply(s, (Step){.kind = plain ? STEP_CHW : STEP_CHWX, .stage = stage, .text = scope});
  return stage;
}

int hand_rfactor(State *s, int stage, int leaf, int factor_axis) {
  const Axis *x = leaf_at(s, stage, leaf);
  err_check(S_ERR(s), x->kind == IT_REDUCE, "rfactor: axis %s of stage %s is not a reduction", x->sname,
            s->stage.at[stage].op->name);
  const Step *last = s->step.len ? &s->step.at[s->step.len - 1] : NULL;
  Step p = {.kind = STEP_RFX, .stage = stage, .iter = axis_at(s, stage, leaf), .a = factor_axis};
  if (last && last->kind == STEP_SP && last->stage == stage) p.kind = STEP_RF, p.iter = leaf;
  state_apply(s, p);
  return stage;
}

void hand_matrix(State *s, int stage, const MatrixTile *t) {
  int64_t list[MATRIX_FIELDS];
  int n = matrix_numbers(t, list);
  state_apply(s, (Step){.kind = STEP_MM, .stage = stage, .n = n, .list = list});
}

/* ---- on a DAG whose stages have another order ---- */

static int renumbered(void *arg, int stage) {
  const int *to = arg; /* to[-1]: how many */
  return stage >= 0 && stage < to[-1] ? to[stage] : stage;
}

Step *hand_steps_for(Arena *a, const State *s, int n_ops, const TeOp *const *ops) {
  int n = s->dag0->n_ops, *to = arena_array(a, int, n + s->step.len + 1) + 1;
  err_check(arena_err(a), n == n_ops, "the schedule has %d operations, the DAG %d", n, n_ops);
  for (int i = 0; i < n; i++) {
    to[i] = 0;
    while (to[i] < n && ops[to[i]] != s->dag0->op[i]) to[i]++;
    err_check(arena_err(a), to[i] < n, "the DAG has no operation %s of the schedule", s->dag0->op[i]->name);
  }
  Step *out = arena_array(a, Step, s->step.len + 1);
  for (int k = 0; k < s->step.len; k++) {
    const Step *p = &s->step.at[k];
    to[-1] = n;
    out[k] = *p;
    step_renumber(a, &out[k], renumbered, NULL, to);
    if (step_stage_shift(p, n) == n) continue;
    int here = step_stage_shift(p, p->stage) == p->stage ? p->stage + 1 : p->stage; /* of the new stage */
    int there = step_stage_shift(&out[k], out[k].stage) == out[k].stage ? out[k].stage + 1 : out[k].stage;
    for (int i = 0; i < n; i++) to[i] += to[i] >= there;
    memmove(to + here + 1, to + here, sizeof(int) * (size_t)(n - here));
    to[here] = there;
    n++;
  }
  return out;
}
