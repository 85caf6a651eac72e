/* How long does it take? Three stages (spec 05 §7.5). PROBE: one timed run. QUICK: blocks of at least a millisecond
 * until three agree within 2 % or 20 ms are spent; a candidate whose fastest block is above `stop_above` is hopeless,
 * because disturbance only adds time; one above `full_below` cannot become the best and keeps its quick time. FULL: `repeat` costs, each over at least min_repeat_ms of blocks. Blocks are
 * added up, never thrown away. A cost of the full stage is the median of its blocks; with `strict` it is total time /
 * total runs. */
#include "measure/measure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 512 };
static const double QUICK_BUDGET = 20e-3, AGREE = 0.02, PROBE_HOPELESS = 20, PROBE_DOUBTFUL = 3,
                    PROBE_SURE = 100e-6, /* below, a single run is mostly the cost of starting and stopping the timer */
    BLOCK_GPU = 1e-3, BLOCK_CPU = 2e-3, FULL_BLOCK = 10e-3;

typedef struct {
  DevModule *m;
  void *const *args;
  const RunPolicy *p;
  double deadline;
  RunResult *out;
  double block;
} Timing;

static int ascending(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return a < b ? -1 : a > b;
}

static double median(double *v, int n) {
  qsort(v, (size_t)n, sizeof *v, ascending);
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static int launches(const Timing *t, double each, double block) {
  if (t->p->flush) return 1;
  double n = ceil(block / (each > 1e-7 ? each : 1e-7));
  if (n > 100000) n = 100000;
  return n < t->p->number ? t->p->number : (int)n;
}

static double timed(Timing *t, int number) {
  t->out->runs += number;
  if (t->p->cold_args && t->p->cold_bytes > 0 && !t->p->flush)
    return dev_time_cold(t->m, t->args, number, t->p->cold_args, t->p->cold_bytes);
  return dev_time(t->m, t->args, number, t->p->flush);
}

/* True when the candidate deserves the full stage. */
static bool quick(Timing *t, double probe) {
  double x[64], lo = 1e30, hi = 0, spent = 0, stop = t->p->stop_above;
  int n = 0, m = launches(t, probe, t->block);
  bool slow = probe > t->p->timeout_s / 20;
  bool doubtful = stop > 0 && probe > PROBE_DOUBTFUL * stop && probe > PROBE_SURE;
  if (slow || doubtful) m = 1; /* two single runs settle it */
  if (stop > 0 && probe > PROBE_HOPELESS * stop) {
    t->out->quick = probe;
    return false;
  }
  for (; n < 64;) {
    double v = timed(t, m);
    x[n++] = v;
    spent += v * m;
    lo = v < lo ? v : lo;
    hi = v > hi ? v : hi;
    if (n >= 2 && stop > 0 && lo > stop) break;
    if (n >= 3 && hi - lo <= 2 * AGREE * lo) break;
    if ((n >= 3 && spent >= QUICK_BUDGET) || (slow && n >= 2) || clock_now() > t->deadline) break;
  }
  t->out->quick = median(x, n);
  double limit = t->p->full_below > 0 ? t->p->full_below : stop;
  return !(limit > 0) || t->out->quick <= limit;
}

static double one_cost(Timing *t, double each) {
  double x[MAX_BLOCKS], total = 0, goal = t->p->min_repeat_ms * 1e-3;
  int64_t runs = 0;
  int n = 0, m = t->p->strict ? t->p->number
                              : launches(t, each,
                                         goal > FULL_BLOCK ? FULL_BLOCK
                                         : goal > t->block ? goal
                                                           : t->block);
  do {
    double v = timed(t, m);
    total += v * m;
    runs += m;
    if (n < MAX_BLOCKS) x[n++] = v;
    double left = goal - total;
    if (t->p->strict && v > 0 && n == 1) { /* one size for the rest: a GPU's launch graph is then made once */
      double block = fmin(left, fmax(FULL_BLOCK, goal / 256));
      m = (int)fmin(fmax(block / v + 1, m), 1e5);
    }
  } while (total < goal && !t->p->flush && clock_now() < t->deadline && n < MAX_BLOCKS);
  return t->p->strict ? total / (double)runs : median(x, n);
}

void time_policy(DevModule *m, void *const *args, const RunPolicy *p, double deadline, RunResult *out) {
  Timing t = {m, args, p, deadline, out, 0};
  RunPolicy q = *p;
  q.number = p->number < 1 ? 1 : p->number;
  q.repeat = p->repeat < 1 ? 1 : p->repeat > MSR_MAX_COSTS ? MSR_MAX_COSTS : p->repeat;
  t.p = &q;
  out->n_costs = 0;
  out->full = false;
  double each = 0;
  if (!q.strict) {
    each = timed(&t, 1);
    t.block = strcmp(dev_manifest(m)->target, "c") == 0 ? BLOCK_CPU : BLOCK_GPU;
    if (!quick(&t, each)) {
      out->cost[out->n_costs++] = out->quick;
      return;
    }
    each = out->quick;
  }
  do out->cost[out->n_costs++] = one_cost(&t, each);
  while (out->n_costs < q.repeat && clock_now() < t.deadline);
  out->full = true;
}

void time_repeats(DevModule *m, void *const *args, int number, int repeat, int min_repeat_ms, int zero_limit,
                  bool flush, double *costs) {
  double goal = min_repeat_ms * 1e-3;
  for (int i = 0; i < repeat; i++) {
    double total = 0;
    int64_t runs = 0;
    int zeros = 0, n = number;
    do {
      double v = dev_time(m, args, n, flush);
      total += v * n;
      runs += n;
      if (v <= 0)
        zeros++;
      else if (total < goal)
        n = (int)fmin(fmax((goal - total) / v + 1, number), 1e6);
    } while (total < goal && zeros < zero_limit);
    costs[i] = total / (double)runs;
  }
}
