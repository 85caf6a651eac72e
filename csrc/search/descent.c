/* Coordinate descent: the last candidates of a run are no longer bred but are neighbours of the fastest measured state. A
 * neighbour is what one mutation can make of it, so it differs in one decision: a factor that moves between two parts of a split,
 * an unroll limit, a compute location, the width of a vector or of a parallel loop, a number of a tile on tensor cores.
 * Spec 07 §7.8.
 *
 * All neighbours are listed (choice.c) and rated by the cost model; of each decision those that it expects most of are measured,
 * unless they were before. Whatever turns out fastest is where the next round begins.
 */
#include "search/policy.h"
#include <math.h>
#include <stdlib.h>

int descent_due(const Policy *p, int batch) {
  if (!p->par.extended || p->total <= 0) return 0;
  int64_t last = (int64_t)floor(p->par.descent * (double)p->total), due = p->done + batch - (p->total - last);
  return due <= 0 ? 0 : due < batch ? (int)due : batch;
}

typedef struct {
  SearchThread *w;
  const Cand *of;
  Choice way;
  int n;
  Step *step;
} Walk;
static void one_way(void *arg) {
  Walk *x = arg;
  x->step = NULL;
  if (!mutate(&x->w->env, &x->way, x->of->n, x->of->step, &x->n, &x->step)) x->step = NULL;
}

/* What one mutation makes of a state, once each, rated. seen: step lists that are not wanted again. */
static CandVec neighbours(Policy *p, const Cand *of, MapU64 *seen) {
  Arena *a = p->call;
  Walk x = {.w = &p->worker[0], .of = of};
  CandVec out = {0};
  do {
    ErrCode c = err_try(&x.w->err, one_way, &x);
    if (c == NS_ERR_MEMORY) err_again(&p->err, c, &x.w->err);
    uint64_t id = c == NS_OK && x.step ? steps_hash(x.n, x.step) : 0;
    if (id && !mapu_get(seen, id, 0)) {
      mapu_set(seen, id, 1);
      Cand one = {.n = x.n, .step = sp_steps_copy(a, x.n, x.step, true)};
      vec_push(a, &out, one);
    }
    ir_release(x.w->ctx, x.w->base);
    err_poll(&p->err);
  } while (choice_next(&x.way));
  evaluate(p, 0, out.len, out.at);
  out.len = drop_empty(out.len, out.at);
  return out;
}

/* Which decision it was: the first step that is another one. */
static int decision(const Cand *centre, const Cand *c) {
  int i = 0;
  while (i < c->n && i < centre->n && steps_hash(1, &c->step[i]) == steps_hash(1, &centre->step[i])) i++;
  return i;
}

/* The best of each decision, in the order of their scores, then the second best of each, and so on: what a model misjudges
 * in one decision costs few trials. n: candidates, best first. */
static Cand *in_turns(Arena *a, const Cand *centre, int n, Cand *const *c) {
  Cand *out = arena_array(a, Cand, n);
  int *turn = arena_array(a, int, n), most = 0, k = 0;
  MapU64 had;
  mapu_init(&had, a);
  for (int i = 0; i < n; i++) {
    uint64_t d = (uint64_t)decision(centre, c[i]);
    turn[i] = mapu_get(&had, d, 0);
    mapu_set(&had, d, turn[i] + 1);
    most = turn[i] > most ? turn[i] : most;
  }
  for (int t = 0; t <= most; t++)
    for (int i = 0; i < n; i++)
      if (turn[i] == t) out[k++] = *c[i];
  return out;
}

/* Picks from the neighbours of one state those that were never measured. Returns how many neighbours there are. */
static int descend_from(Policy *p, const Cand *centre, MapU64 *seen, int room, int *n_out, Candidate **out) {
  CandVec all = neighbours(p, centre, seen);
  Cand **order = arena_array(p->call, Cand *, all.len);
  int n = 0;
  for (int i = 0; i < all.len; i++)
    if (all.at[i].score > -INFINITY && !mapu_get(&p->measured_set, all.at[i].hash, 0)) order[n++] = &all.at[i];
  qsort(order, (size_t)n, sizeof *order, by_score);
  take(p, n, in_turns(p->call, centre, n, order), room, n_out, out);
  return all.len;
}

void descend(Policy *p, int room, int *n_out, Candidate **out) {
  double t0 = clock_now();
  int n, looked = 0;
  const Cand **centre = fastest(p, p->call, &n);
  MapU64 seen;
  mapu_init(&seen, p->call);
  for (int i = 0; i < n && *n_out < room; i++) looked += descend_from(p, centre[i], &seen, room, n_out, out);
  pol_tell(p, (PolicyEvent){.kind = 6, .count = *n_out, .failed = looked - *n_out, .seconds = clock_now() - t0});
}
