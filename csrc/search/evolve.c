/* Evolution: generations bred by mutation from parents drawn by score; the best states that were never picked are kept
 * in a heap. Spec 03 §4.4.
 */
#include "search/policy.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- evolution ---- */

static int best_first(const void *x, const void *y) {
  const Cand *a = x, *b = y;
  return a->score != b->score ? (a->score > b->score ? -1 : 1) : (a->hash > b->hash) - (a->hash < b->hash);
}
static void best_offer(Policy *p, Best *b, const Cand *c) {
  if (b->cap == 0 || c->score == -INFINITY || mapu_get(&p->measured_set, c->hash, 0) || mapu_get(&b->known, c->hash, 0))
    return;
  if (b->n == b->cap && best_first(&b->at[0], c) <= 0) return;
  Cand own = *c;
  own.step = sp_steps_copy(b->a, c->n, c->step, true);
  mapu_set(&b->known, c->hash, 1);
  bool full = b->n == b->cap;
  if (full) mapu_set(&b->known, b->at[0].hash, 0);
  int i = full ? 0 : b->n++;
  b->at[i] = own;
  heap_settle(b->at, b->n, sizeof *b->at, i, best_first);
}

static double best_score(int n, const Cand *c) {
  double m = -INFINITY;
  for (int i = 0; i < n; i++) m = c[i].score > m ? c[i].score : m;
  return m;
}

int drop_empty(int n, Cand *c) {
  int k = 0;
  for (int i = 0; i < n; i++)
    if (c[i].step) c[k++] = c[i];
  return k;
}

static void generation_out(Policy *p, int gen) { /* empties the arenas that the next generation fills */
  for (int i = 0; i < p->n_worker; i++) { arena_release(p->worker[i].out[gen & 1], (ArenaMark){0}); }
}

void evolve(Policy *p, Arena *a, int n, Cand *now, int size, Best *best) {
  Cand *next = arena_array(a, Cand, size);
  double t0 = clock_now();
  int64_t mutated = 0, refused = 0, invalid = 0;
  bool draft = drafting(p);
  Known known = known_new(a);
  for (int i = 0; i < n && draft; i++) known_add(a, &known, &now[i]);
  for (int g = 0;; g++) {
    for (int i = 0; i < n; i++) best_offer(p, best, &now[i]);
    bool last = g == p->par.num_iters || n == 0;
    if (g % 5 == 0 || last)
      pol_tell(p, (PolicyEvent){.kind = 3,
                                .iter = g,
                                .count = best->n,
                                .failed = (int)invalid,
                                .best = best_score(n, now),
                                .least = best->n ? best->at[0].score : 0,
                                .mutated = (double)mutated / (g + 1),
                                .refused = (double)refused / (g + 1)});
    if (last) break;
    err_poll(&p->err);
    double *share = arena_array(a, double, n), sum = 0;
    for (int i = 0; i < n; i++) share[i] = sum += now[i].score > 0 ? now[i].score : 0;
    generation_out(p, g + 1);
    memset(next, 0, sizeof(Cand) * (size_t)size);
    Job j = {.p = p,
             .gen = g + 1,
             .n = size,
             .rng = slot_rngs(p, a, size),
             .parent = now,
             .share = share,
             .n_parent = n,
             .by = draft ? BY_ESTIMATE : scorer_ranking(&p->scorer),
             .draft = draft,
             .slot = next};
    slots_fill(&j, SLOTS_CHILD);
    mutated = refused = 0;
    for (int i = 0; i < p->n_worker; i++) mutated += p->worker[i].mutated, refused += p->worker[i].refused;
    for (int i = 0; i < size; i++) invalid += !next[i].step || next[i].score == -INFINITY;
    if (draft) refine(p, a, g + 1, size, next, &known);
    n = drop_empty(size, next);
    now = arena_copy(a, next, sizeof(Cand) * (size_t)n);
  }
  qsort(best->at, (size_t)best->n, sizeof(Cand), best_first);
  pol_tell(p, (PolicyEvent){.kind = 4, .count = best->n, .seconds = clock_now() - t0});
}

Best best_new(Arena *a, int cap) {
  Best b = {.a = a, .at = arena_array(a, Cand, cap), .cap = cap};
  mapu_init(&b.known, a);
  return b;
}

static void evolve_body(void *arg) {
  Call *c = arg;
  Policy *p = c->p;
  pol_workers_open(p);
  Arena *a = p->call;
  Cand *now = arena_array(a, Cand, c->init.len);
  for (int i = 0; i < c->init.len; i++) now[i] = (Cand){.n = c->init.at[i].n, .step = c->init.at[i].step};
  evaluate(p, 0, c->init.len, now);
  int n = drop_empty(c->init.len, now);
  Best best = best_new(a, c->size);
  evolve(p, a, n, now, p->par.population, &best);
  c->out = pol_list_out(c->a, best.n, best.at);
}
StateList policy_evolve(Policy *p, Arena *a, StateList init, int out_size) {
  err_check(arena_err(a), out_size >= 0, "out_size %d must not be negative", out_size);
  return pol_guarded(arena_err(a), evolve_body, (Call){.p = p, .a = a, .init = init, .size = out_size}).out;
}
