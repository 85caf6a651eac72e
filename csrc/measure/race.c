/* The race of a task's candidates (spec 05 §7.5, §7.7). The incumbent is the best program so far. A candidate whose
 * quick blocks are all far above the incumbent's is stopped; one that comes near waits for the final, where the few best
 * of a round and the incumbent run in turn, in PASSES passes. The winner must beat the incumbent in all passes but one,
 * so that the best of many is not merely the luckiest. One stopped candidate in fifty is measured in full all the same:
 * if it turns out better than the incumbent, the rule is too strict and is relaxed. Who is clearly beaten in a final drops
 * out of it and keeps a quick result.
 *
 * Like is compared with like: quick times with the incumbent's quick time, passes with the incumbent's passes of the same
 * final. A winner's cost is at most what it was relative to the incumbent, and a loser's is at least the incumbent's, so
 * that the order in the log is the order of the finals even if the device's clock has changed between them. An incumbent that is faster
 * in a final than it was said to be had been disturbed: what it takes now is what counts from then on, or else no program would
 * ever be said to be faster. */
#include "measure/pipe_int.h"
#include <stdlib.h>
#include <string.h>

enum { EARLY = 192, FINALISTS = FINAL_MAX - 2, WINS = PASSES - 1 }; /* EARLY: candidates that count as first rounds */
static const double HOPELESS = 0.30, HOPELESS_EARLY = 1.00, FINALIST = 1.03;

/* Quick time to beat: the incumbent's or that of a finalist that is waiting. */
static double to_beat(const Task *t) {
  double b = t->best_quick;
  if (t->finalists.head) {
    double q = t->finalists.head->res.run.quick;
    if (!(b > 0) || q < b) b = q;
  }
  return b;
}

void race_limits(const Task *t, RunPolicy *p) {
  double b = to_beat(t);
  if (!(b > 0)) b = t->rough;
  if (!p->race || p->strict || !(b > 0)) return;
  p->stop_above = b * (1 + (t->ran < EARLY ? HOPELESS_EARLY : HOPELESS) * (1 + t->doubt));
  p->full_below = b * FINALIST;
}

bool race_audit(int64_t tag) {
  Rng r;
  rng_seed(&r, (uint64_t)tag + 0x5eed);
  return rng_below(&r, 50) == 0;
}

bool race_enter(Task *t, Job *j, Queue *out) {
  const RunResult *r = &j->res.run;
  double limit = to_beat(t) * FINALIST;
  if (r->error != ME_OK || r->cut || !(r->quick > 0) || (limit > 0 && r->quick > limit)) return false;
  Job **at = &t->finalists.head;
  while (*at && (*at)->res.run.quick <= r->quick) at = &(*at)->next;
  j->next = *at;
  *at = j;
  t->finalists.n++;
  limit = to_beat(t) * FINALIST;
  int k = 0;
  for (at = &t->finalists.head; *at && k < FINALISTS && (*at)->res.run.quick <= limit; k++) at = &(*at)->next;
  while (*at) { /* too many, or too slow by now */
    Job *x = *at;
    *at = x->next;
    t->finalists.n--;
    queue_put(out, x);
  }
  return true;
}

bool race_due(const Task *t) { return t->finalists.n > 0 && t->pending == 0 && t->hold <= 0 && !t->in_final; }

static double median(const double *v, int n) {
  double s[PASSES];
  memcpy(s, v, sizeof *s * (size_t)n);
  return f64_median(s, n);
}

/* The passes dealt into as many costs as were asked for; their mean is `cost`. */
static void set_costs(RunResult *r, const FinalResult *f, int repeat, double cost) {
  if (f->passes < PASSES) repeat = 1;
  int n = repeat < 1 ? 1 : repeat > PASSES ? PASSES : repeat;
  double sum = 0;
  for (int k = 0; k < n; k++) {
    double group[PASSES];
    int m = 0;
    for (int i = k; i < f->passes; i += n) group[m++] = f->pass[i];
    r->cost[k] = median(group, m);
    sum += r->cost[k];
  }
  for (int k = 0; k < n; k++) r->cost[k] = n == 1 || !(sum > 0) ? cost : r->cost[k] * (cost * n / sum);
  r->n_costs = n;
  r->full = f->passes == PASSES;
  r->spread = f->spread;
  r->blocks += f->blocks;
  r->runs += f->runs;
}

static void take_over(Task *t, Job *j, double cost) {
  t->best = cost;
  t->best_quick = j->res.run.quick > 0 ? j->res.run.quick : cost;
  free(t->binary);
  free(t->manifest);
  t->binary = j->binary;
  t->n_binary = j->n_binary;
  t->manifest = j->manifest;
  j->binary = NULL;
  j->manifest = NULL;
}

void race_decide(Task *t, Job *const *j, int n, const FinalResult *f, bool with_incumbent) {
  double cost[FINAL_MAX] = {0}, old = t->best;
  int first = 0, wins = 0;
  for (int i = 0; i < n; i++) {
    cost[i] = median(f[i].pass, f[i].passes);
    bool whole = f[i].passes == PASSES, better = f[first].passes < PASSES || cost[i] < cost[first];
    if (i && whole && better) first = i;
  }
  if (with_incumbent && f[n].passes == PASSES && median(f[n].pass, PASSES) < old) {
    double now = median(f[n].pass, PASSES);
    t->best_quick *= now / old;
    t->best = old = now;
  }
  bool won = f[first].passes == PASSES && (!(old > 0) || cost[first] < old);
  if (with_incumbent && f[first].passes == PASSES) {
    double ratio[PASSES];
    for (int k = 0; k < PASSES; k++) {
      ratio[k] = f[first].pass[k] / f[n].pass[k];
      wins += ratio[k] < 1;
    }
    won = wins >= WINS;
    double fair = old * median(ratio, PASSES);
    if (won && cost[first] > fair) cost[first] = fair;
  }
  for (int i = 0; i < n; i++) {
    if (old > 0 && !(won && i == first) && cost[i] < old) cost[i] = won && cost[i] >= cost[first] ? cost[i] : old;
    set_costs(&j[i]->res.run, &f[i], j[i]->policy.repeat, cost[i]);
  }
  if (won) take_over(t, j[first], cost[first]);
}

void race_alone(Task *t, const Job *j) {
  const RunResult *r = &j->res.run;
  if (r->error != ME_OK || !r->full || r->n_costs < 1 || t->in_final) return; /* a final uses the incumbent's program */
  double sum = 0;
  for (int i = 0; i < r->n_costs; i++) sum += r->cost[i];
  double cost = sum / r->n_costs;
  if (t->best > 0 && cost >= t->best) return;
  t->best = cost;
  t->best_quick = r->quick > 0 ? r->quick : cost;
  free(t->binary);
  free(t->manifest);
  t->binary = t->manifest = NULL;
}
