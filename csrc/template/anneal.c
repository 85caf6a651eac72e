/* Simulated annealing over a space, with a model's score for energy; and the choice of configurations that differ.
 *
 * Scores of ranking models have no zero, so nothing is dropped for its sign.
 */
#include "template/optimise.h"
#include <math.h>
#include <stdlib.h>

/* ---- the best so far: a heap whose top is the worst ---- */
typedef struct {
  int n, most;
  Scored *at;
} Best;

static int best_first(const void *p, const void *q) {
  const Scored *a = p, *b = q;
  return a->score != b->score ? (a->score > b->score ? -1 : 1) : (a->index > b->index) - (a->index < b->index);
}

/* Is it in now, and was not before? */
static bool keep(Best *b, Scored x) {
  if (b->most == 0 || isnan(x.score) || (b->n == b->most && best_first(&b->at[0], &x) <= 0)) return false;
  for (int i = 0; i < b->n; i++)
    if (b->at[i].index == x.index) return false;
  int at = b->n < b->most ? b->n++ : 0;
  b->at[at] = x;
  heap_settle(b->at, b->n, sizeof *b->at, at, best_first);
  return true;
}

static bool keep_all(Best *b, int n, const int64_t *index, const double *score, const MapU64 *exclude) {
  bool any = false;
  for (int i = 0; i < n; i++)
    if (!index_in(exclude, index[i])) any |= keep(b, (Scored){index[i], score[i]});
  return any;
}

int anneal(Space *s, Arena *a, Rng *r, const AnnealParams *p, Predictor f, int n, int64_t *point, int most,
           const MapU64 *exclude, Scored *out) {
  Err *e = s->err;
  double *score = arena_array(a, double, n + 1), *other = arena_array(a, double, n + 1);
  int64_t *next = arena_array(a, int64_t, n + 1);
  Best best = {.most = most, .at = out};
  f.predict(f.self, e, n, point, score);
  keep_all(&best, n, point, score, exclude);
  double t = p->begin, cool = (p->begin - p->end) / (p->rounds + 1);
  for (int k = 0, last = 0; k < p->rounds && k < last + p->early_stop; k++, t -= cool) {
    for (int i = 0; i < n; i++) next[i] = space_walk(s, r, point[i]);
    f.predict(f.self, e, n, next, other);
    for (int i = 0; i < n; i++) {
      if (rng_unit(r) >= exp(fmin((other[i] - score[i]) / (t + 1e-5), 1))) continue;
      point[i] = next[i], score[i] = other[i];
    }
    if (keep_all(&best, n, next, other, exclude)) last = k;
    err_poll(e);
  }
  qsort(out, (size_t)best.n, sizeof *out, best_first);
  return best.n;
}

/* ---- different ones ---- */
static int64_t shown_key(int knob, int32_t digit) { return (int64_t)knob << 32 | digit; }

int pick_diverse(const Space *s, Arena *a, int n, const Scored *candidate, int most, int32_t *out) {
  int k = s->knob.len, chosen = 0;
  int32_t *digit = arena_array(a, int32_t, (int64_t)n * k + 1);
  bool *used = arena_array(a, bool, n + 1);
  MapU64 shown; /* knobs with their digits: a knob may have 2^31 of them */
  mapu_init(&shown, a);
  for (int i = 0; i < n; i++) space_digits(s, candidate[i].index, digit + (int64_t)i * k);
  while (chosen < most && chosen < n) {
    int best = -1;
    double most_new = -INFINITY;
    for (int i = 0; i < n; i++) {
      if (used[i]) continue;
      double value = candidate[i].score;
      for (int j = 0; j < k; j++) value += !index_in(&shown, shown_key(j, digit[(int64_t)i * k + j]));
      if (best < 0 || value > most_new) best = i, most_new = value;
    }
    used[best] = true;
    for (int j = 0; j < k; j++) index_add(&shown, shown_key(j, digit[(int64_t)best * k + j]));
    out[chosen++] = best;
  }
  return chosen;
}
