/* Steps for another DAG.
 *
 * Networks hold one main stage with several element-wise tails, and a schedule of one fits the others.
 *
 * The first stages of both DAGs are equal. Of the stages behind them the last one is the output, and the others are inlined:
 * steps may work on the output and on what comes before the tail.
 */
#include "schedule/internal.h"

typedef struct {
  Err *err;
  int last, prefix, output, added; /* added: stages that steps have inserted so far */
  const int *place;                /* of each step in the new list; -1: left out */
  int n;
} Carry;

static int stage_of(void *arg, int stage) {
  const Carry *x = arg;
  if (stage == x->last + x->added) return x->output + x->added;
  err_check(x->err, stage < x->prefix + x->added, "stage %d has no counterpart", stage);
  return stage;
}

static int step_of(void *arg, int step) {
  const Carry *x = arg;
  err_check(x->err, step >= 0 && step < x->n && x->place[step] >= 0, "step %d has no counterpart", step);
  return x->place[step];
}

Step *steps_carry(Arena *a, int *n, const Step *steps, int n_stages, int prefix, int n_tail, const int *tail) {
  err_check(arena_err(a), n_tail > 0, "a DAG has an output");
  Step *out = arena_array(a, Step, *n + n_tail);
  int *place = arena_array(a, int, *n + 1), k = 0;
  Carry x = {arena_err(a), n_stages - 1, prefix, tail[n_tail - 1], 0, place, 0};
  for (int i = n_tail - 2; i >= 0; i--) out[k++] = (Step){.kind = STEP_CI, .stage = tail[i]};
  for (; x.n < *n; x.n++) {
    const Step *p = &steps[x.n];
    bool inner = p->stage >= prefix + x.added && p->stage < x.last + x.added;
    place[x.n] = -1;
    if (p->kind == STEP_CI && inner) continue;
    out[k] = *p;
    step_renumber(a, &out[k], stage_of, step_of, &x);
    place[x.n] = k++;
    x.added += step_stage_shift(p, p->stage + 1) > p->stage + 1;
  }
  *n = k;
  return out;
}

/* ---- the same computation in other sizes ----
 * The lengths of a split stay if they cut the new extent as they cut the old one: evenly. Else those of a tiling become the largest
 * divisors that are no longer, the innermost ones first: they say what is in registers and vectors. What a copy into a cache
 * moves at once becomes a part of what it was, since not all widths are there. */

/* The extent that the split p meets in s; of a loop below another stage's it is known after bounds are inferred only. */
static int64_t extent_met(IrCtx *c, const State *s, const Step *p) {
  int64_t e = axis_extent(s, p->stage, p->iter);
  if (e > 0) return e;
  State *bounded = state_copy(c, s);
  state_infer_bounds(bounded);
  return axis_extent(bounded, p->stage, p->iter);
}

static void fit_lengths(Arena *a, Step *p, int64_t extent, bool tiling) {
  int64_t old = 1;
  for (int i = 0; i < p->n; i++)
    if (!i64_mul(old, p->list[i], &old)) return; /* longer than any loop */
  if (extent <= 0 || extent % old == 0 || (p->extent > 0 && p->extent % old != 0)) return;
  int64_t *d;
  for (int i = p->n - 1; i >= 0; i--) {
    int k = (int)i64_divisors(a, extent, &d) - 1;
    while (d[k] > p->list[i] || (!tiling && p->list[i] % d[k] != 0)) k--;
    p->list[i] = d[k];
    extent /= d[k];
  }
}

State *state_replay_fitted(IrCtx *c, const TeDag *d, int n, const Step *steps) {
  State *s = state_init(c, d);
  for (int i = 0; i < n; i++) {
    Step p = steps[i];
    if (p.kind == STEP_SP) {
      leaf_at(s, p.stage, p.iter);
      int64_t extent = extent_met(c, s, &p);
      p.list = arena_copy(ir_arena(c), p.list, sizeof *p.list * (size_t)p.n);
      fit_lengths(ir_arena(c), &p, extent, s->stage.at[p.stage].at != AT_ITER);
      p.extent = extent > 0 ? extent : 0;
    }
    state_append(s, 1, &p);
  }
  return s;
}
