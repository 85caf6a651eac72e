/* Steps for another DAG: networks hold one main stage with several element-wise tails, and a schedule of one fits the others.
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
