/* Which task to tune next. For each task an optimistic forecast says how much the objective would fall if the task got one
 * more round: the recent rate of progress, the hope that cost falls like 1 / rounds, and the throughput that similar tasks
 * have reached. The task with the steepest forecast wins. Spec 03 §5.3.
 */
#include "tune/tune.h"

static double forecast(const SchedTask *t, double alpha, double beta, int window) {
  double backward = 0;
  /* What a variant of a layer promises is to be faster than the fastest one: how far it is behind that is nobody's gain. */
  double now = t->layer_best > 0 && t->layer_best < t->best ? t->layer_best : t->best;
  int last = t->rounds - 1, first = last - window;
  if (now == t->best && last < t->n_history && first >= 0 && window > 0)
    backward = (t->history[last] - t->history[first]) / window;
  double next = t->rounds > 0 ? t->best - t->best / t->rounds : 0, similar = 1e30 * beta;
  if (t->group_flops > 0) similar = beta * t->flop / t->group_flops;
  double forward = (next < similar ? next : similar) - now;
  return t->chain * (alpha * backward + (1 - alpha) * forward);
}

void sched_gradients(int n, const SchedTask *t, double alpha, double beta, int window, double *out) {
  for (int i = 0; i < n; i++) {
    double g = t[i].dead ? 0 : forecast(&t[i], alpha, beta, window);
    out[i] = g < 0 ? g : 0;
  }
}

int sched_pick(int n, const SchedTask *t, const double *gradient, Rng *r) {
  int live = 0, best = -1;
  bool equal = true;
  for (int i = 0; i < n; i++) {
    if (t[i].dead) continue;
    live++;
    if (best < 0)
      best = i;
    else {
      equal = equal && gradient[i] == gradient[best];
      if (gradient[i] < gradient[best]) best = i;
    }
  }
  if (live == 0 || !equal || live == 1) return best;
  int64_t k = rng_below(r, live);
  for (int i = 0; i < n; i++)
    if (!t[i].dead && k-- == 0) return i;
  return best;
}
