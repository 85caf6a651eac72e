/* What trees start from: the closed-form estimate of the time, where the rows carry one.
 *
 * A state's estimate stands in one entry of its vector as log2 of nanoseconds; minus its logarithm orders states before
 * anything was measured. Boosting then begins at scale * prior and learns what the estimate gets wrong, so that a model of
 * few records is never worse than the estimate by much. The scale is the one that fits the rank loss best: the loss is
 * convex in it, so bisection of the derivative finds it. A pull towards the usual scale, as strong as PULL states, holds it
 * where records are few. Spec 04 §5.8.
 */
#include "model/model.h"
#include <math.h>

enum { STEPS = 24 };
#define MOST 4.0 /* times the usual scale */
#define PULL 16.0

double prior_of_state(const float *state) { return state ? -0.6931471805599453 * (double)state[STATE_TIME] : 0; }

void prior_of_batch(const FeatBatch *b, double *out) {
  for (int i = 0; i < b->n_states; i++) {
    out[i] = 0;
    if (b->n_feat < FEAT_N + STATE_N) continue;
    for (int r = b->first[i]; r < b->first[i + 1]; r++)
      out[i] += prior_of_state(b->rows + (size_t)r * (size_t)b->n_feat + FEAT_N);
  }
}

double prior_fit(Arena *a, const FeatBatch *b, const double *prior, double usual, LossKind kind, uint64_t seed) {
  ArenaMark m = arena_mark(a);
  RankLoss *loss = loss_new(a, b, kind);
  int32_t n = b->n_states;
  double *s = arena_array(a, double, n + 1), *g = arena_array(a, double, n + 1), *h = arena_array(a, double, n + 1);
  double lo = 0, hi = MOST * usual;
  for (int k = 0; k < STEPS; k++) {
    double x = (lo + hi) / 2, slope = PULL * (x - usual) / usual;
    Rng r;
    rng_seed(&r, seed); /* the same pairs at every step */
    for (int i = 0; i < n; i++) s[i] = x * prior[i];
    loss_gradient(loss, s, &r, g, h);
    for (int i = 0; i < n; i++) slope += g[i] * prior[i];
    if (slope > 0)
      hi = x;
    else
      lo = x;
  }
  arena_release(a, m);
  return (double)(float)((lo + hi) / 2); /* as a file keeps it */
}
