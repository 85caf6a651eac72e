/* States: making, copying and replaying them, and helpers that build one step and apply it.
 *
 * A State is its step list plus what applying the list to the DAG gives. Everything lives in the arena of one context;
 * a state is carried to another context as its step list and replayed there.
 */
#include "schedule/internal.h"
#include <stdio.h>
#include <string.h>

State *state_init(IrCtx *c, const TeDag *d) {
  State *s = arena_new_of(ir_arena(c), State);
  s->ctx = c;
  s->dag0 = s->dag = d;
  s->concrete = true;
  err_check(ir_err(c), d->n_ops < 30000, "a DAG of %d operations is too large to schedule", d->n_ops);
  vec_grow(ir_arena(c), (void **)&s->stage.at, &s->stage.cap, d->n_ops + 8, sizeof(Stage));
  for (int i = 0; i < d->n_ops; i++) {
    vec_push(ir_arena(c), &s->stage, stage_fresh(c, d->op[i], d->op[i]));
    s->stage.at[i].is_output = d->flags && d->flags[i].is_output;
  }
  return s;
}

#define COPY_VEC(m, v) ((v).at = arena_copy((m), (v).at, sizeof(*(v).at) * (size_t)(v).len), (v).cap = (v).len)

State *state_copy(IrCtx *c, const State *src) {
  Arena *m = ir_arena(c);
  State *s = arena_copy(m, src, sizeof(State));
  s->ctx = c;
  COPY_VEC(m, s->stage);
  COPY_VEC(m, s->step);
  COPY_VEC(m, s->dags);
  COPY_VEC(m, s->var);
  for (int i = 0; i < s->stage.len; i++) {
    Stage *st = &s->stage.at[i];
    COPY_VEC(m, st->axes);
    COPY_VEC(m, st->rels);
    COPY_VEC(m, st->leaf);
    COPY_VEC(m, st->attached);
  }
  for (int i = 0; i < s->step.len; i++) { /* the search fills in split lengths in place */
    Step *p = &s->step.at[i];
    if (p->kind == STEP_SP) p->list = arena_copy(m, p->list, sizeof(int64_t) * (size_t)p->n);
  }
  return s;
}

typedef struct {
  State *s;
  const Step *step;
} ApplyArg;
ERR_BODY(apply_one, ApplyArg *a, state_apply(a->s, *a->step))

/* Do both steps do the same to the DAG and to the loops, whatever the sizes of splits are? */
static bool step_like(const Step *p, const Step *q) {
  if (p->kind != q->kind || p->stage != q->stage || p->iter != q->iter || p->a != q->a || p->b != q->b ||
      p->flag != q->flag || p->n != q->n || (p->text == NULL) != (q->text == NULL))
    return false;
  if (p->text && strcmp(p->text, q->text) != 0) return false;
  return p->kind == STEP_SP || p->n == 0 || memcmp(p->list, q->list, sizeof(int64_t) * (size_t)p->n) == 0;
}

State *state_replay(IrCtx *c, const TeDag *d, int n, const Step *steps) {
  return state_replay_like(c, d, n, steps, NULL);
}

static void append(State *s, int n, const Step *steps, const State *like) {
  Err *e = ir_err(s->ctx);
  vec_grow(ir_arena(s->ctx), (void **)&s->step.at, &s->step.cap, s->step.len + n, sizeof(Step));
  for (int i = 0; i < n; i++) {
    ApplyArg a = {s, &steps[i]};
    const StepInfo *info = steps[i].kind < STEP_KINDS ? step_info((StepKind)steps[i].kind) : NULL;
    if (like && (i >= like->step.len || !info || info->by_size || !step_like(&steps[i], &like->step.at[i])))
      like = NULL;
    bool known = like && info->shift != SHIFT_NONE && s->dags.len < like->dags.len;
    s->reuse = known ? like->dags.at[s->dags.len] : NULL;
    ErrCode code = err_try(e, apply_one, &a);
    s->reuse = NULL;
    if (code == NS_ERR_VALUE || code == NS_ERR_TYPE) { /* types: of an expression in a text */
      char why[1024];
      snprintf(why, sizeof why, "%.1000s", e->msg);
      err_raise(e, NS_ERR_VALUE, "step %d (%s): %s", i, info ? info->mnemonic : "?", why);
    } else if (code != NS_OK) {
      err_rethrow(e, code);
    }
  }
}

State *state_replay_like(IrCtx *c, const TeDag *d, int n, const Step *steps, const State *like) {
  State *s = state_init(c, d);
  append(s, n, steps, like && (like->ctx != c || like->dag0 != d) ? NULL : like);
  return s;
}

void state_append(State *s, int n, const Step *steps) { append(s, n, steps, NULL); }

/* A log comes from strangers: what is run in a network computes everything. debug_skip_region, which no program can be judged
 * with, is refused with the record already. */
void state_check_whole(const State *s) {
  for (int i = 0; i < s->stage.len; i++)
    err_check(
        S_ERR(s), !s->stage.at[i].store_predicate,
        "stage %d (%s) is stored under a condition, which leaves a part of the computation out: remove its step PD", i,
        s->stage.at[i].op->name);
}

/* ---- one step each ---- */

int64_t axis_extent(const State *s, int stage, int iter) {
  const Stage *st = &s->stage.at[stage];
  const Axis *x = &st->axes.at[st->leaf.at[iter]];
  return x->ranged ? x->sext : -1;
}

void state_split(State *s, int stage, int iter, int n, const int64_t *lengths, bool inner_to_outer) {
  leaf_at(s, stage, iter);
  int64_t e = axis_extent(s, stage, iter);
  state_apply(s, (Step){.kind = STEP_SP,
                        .stage = stage,
                        .iter = iter,
                        .extent = e > 0 ? e : 0,
                        .n = n,
                        .list = (int64_t *)lengths,
                        .flag = inner_to_outer});
}

void state_fuse(State *s, int stage, int n, const int64_t *iters) {
  state_apply(s, (Step){.kind = STEP_FU, .stage = stage, .n = n, .list = (int64_t *)iters});
}

void state_reorder(State *s, int stage, int n, const int64_t *order) {
  state_apply(s, (Step){.kind = STEP_RE, .stage = stage, .n = n, .list = (int64_t *)order});
}

void state_annotate(State *s, int stage, int iter, Annotation a) {
  state_apply(s, (Step){.kind = STEP_AN, .stage = stage, .iter = iter, .a = (int32_t)a});
}

void state_compute_at(State *s, int stage, int target, int iter) {
  state_apply(s, (Step){.kind = STEP_CA, .stage = stage, .iter = target, .a = iter});
}

void state_compute_inline(State *s, int stage) { state_apply(s, (Step){.kind = STEP_CI, .stage = stage}); }

int state_cache_read(State *s, int stage, const char *scope, int n, const int64_t *readers) {
  state_apply(s, (Step){.kind = STEP_CHR, .stage = stage, .text = scope, .n = n, .list = (int64_t *)readers});
  return stage + 1;
}
