/* How long does it take? Three stages (spec 05 §7.5). PROBE: one timed run. QUICK: blocks of at least a millisecond
 * until three agree within 2 % or 20 ms are spent; a candidate whose fastest block is above `stop_above` is hopeless,
 * because disturbance only adds time, and cold instructions do; one above `full_below` cannot become the best and keeps its quick time. FULL:
 * `repeat` costs, each over at least min_repeat_ms of blocks. Blocks are added up, never thrown away. A cost of the full
 * stage is the median of its blocks; with `strict` it is total time / total runs.
 *
 * Candidates that race for the best place of their task are not timed in full one by one: those that are left after the
 * quick stage meet in a final, where they take turns (time_finals). */
#include "measure/measure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 512, MOST_RUNS = 100000, PASSES_SURE = 2 };
static const double QUICK_BUDGET = 20e-3, AGREE = 0.02, PROBE_HOPELESS = 20, PROBE_DOUBTFUL = 3,
                    PROBE_SURE = 100e-6, /* below, a single run is mostly the cost of starting and stopping the timer */
    BLOCK_GPU = 1e-3, BLOCK_CPU = 2e-3, CLEARLY = 0.01, FULL_BLOCK = 10e-3, LONG_PASS = 50e-3;

typedef struct {
  DevModule *m;
  void *const *args;
  RunPolicy p;
  double deadline;
  double block;
  uint64_t cold;
  int64_t cold_bytes;
  bool flush, instructions; /* instructions: cold, too */
  int runs, blocks;
  double spread;
} Timing;

/* Of sorted values: between the quartiles, over the median. */
static double spread(const double *v, int n) { return n < 2 ? 0 : (v[n - 1 - n / 4] - v[n / 4]) / v[n / 2]; }

/* Which arguments move through memory, and how much of it. */
static void set_cache(Timing *t) {
  const Manifest *man = dev_manifest(t->m);
  Device *d = dev_module_device(t->m);
  t->flush = t->p.flush;
  if (t->flush || t->p.cache == CACHE_HOT) return;
  t->cold = t->p.cold_args;
  t->cold_bytes = t->p.cold_bytes;
  t->instructions = t->cold_bytes > 0;
  if (t->p.cache == CACHE_MIXED) return;
  int64_t enough = 2 * dev_info(d)->l2_bytes;
  for (int i = 0; i < man->n_args && i < 64; i++)
    if (man->arg[i].read_only) t->cold |= (uint64_t)1 << i;
  if (t->cold_bytes < enough) t->cold_bytes = enough;
  if (dev_type(d) == DEV_OPENCL) t->flush = true;
}

static Timing timing(DevModule *m, void *const *args, const RunPolicy *p, double deadline) {
  Timing t = {.m = m, .args = args, .p = *p, .deadline = deadline};
  t.p.number = p->number < 1 ? 1 : p->number;
  t.p.repeat = p->repeat < 1 ? 1 : p->repeat > MSR_MAX_COSTS ? MSR_MAX_COSTS : p->repeat;
  t.block = dev_type(dev_module_device(m)) == DEV_CPU ? BLOCK_CPU : BLOCK_GPU;
  set_cache(&t);
  return t;
}

static int launches(const Timing *t, double each, double block) {
  if (t->flush) return 1;
  double n = ceil(block / (each > 1e-7 ? each : 1e-7));
  if (n > MOST_RUNS) n = MOST_RUNS;
  return n < t->p.number ? t->p.number : (int)n;
}

/* Seconds per run; *spent counts what the block took. */
static double timed(Timing *t, int number, double *spent) {
  int ran = number;
  bool cold = (t->cold || t->cold_bytes > 0) && !t->flush;
  double v = cold ? dev_time_cold(t->m, t->args, number, t->cold, t->cold_bytes, t->instructions, &ran)
                  : dev_time(t->m, t->args, number, t->flush);
  t->runs += ran;
  t->blocks++;
  *spent += v * ran;
  return v;
}

/* True when the candidate deserves the full stage. */
static bool quick(Timing *t, double probe, RunResult *out) {
  double x[64], lo = 1e30, hi = 0, spent = 0, stop = t->p.stop_above;
  int n = 0, m = launches(t, probe, t->block);
  bool slow = probe > t->p.timeout_s / 20, instructions = t->instructions;
  bool doubtful = stop > 0 && probe > PROBE_DOUBTFUL * stop && probe > PROBE_SURE;
  if (slow || doubtful) m = 1; /* two single runs settle it */
  if (stop > 0 && probe > PROBE_HOPELESS * stop) {
    out->quick = probe;
    out->cut = true;
    return false;
  }
  t->instructions = false; /* they take a while to become cold: for what is not hopeless even with warm ones */
  for (; n < 64;) {
    double v = timed(t, m, &spent);
    if (instructions && !t->instructions && !(stop > 0 && v > stop)) {
      t->instructions = true;
      continue;
    }
    x[n++] = v;
    lo = v < lo ? v : lo;
    hi = v > hi ? v : hi;
    out->cut = n >= 2 && stop > 0 && lo > stop;
    if (out->cut) break;
    if (n >= 3 && hi - lo <= 2 * AGREE * lo) break;
    if ((n >= 3 && spent >= QUICK_BUDGET) || (slow && n >= 2) || clock_now() > t->deadline) break;
  }
  t->instructions = instructions;
  out->quick = f64_median(x, n);
  t->spread = spread(x, n);
  double limit = t->p.full_below > 0 ? t->p.full_below : stop;
  return !t->p.race && (!(limit > 0) || out->quick <= limit);
}

static double one_cost(Timing *t, double each) {
  double x[MAX_BLOCKS], total = 0, goal = t->p.min_repeat_ms * 1e-3;
  int runs = t->runs;
  int n = 0, m = t->p.strict ? t->p.number
                             : launches(t, each,
                                        goal > FULL_BLOCK ? FULL_BLOCK
                                        : goal > t->block ? goal
                                                          : t->block);
  do {
    double v = timed(t, m, &total);
    if (n < MAX_BLOCKS) x[n++] = v;
    double left = goal - total;
    if (t->p.strict && v > 0 && n == 1) { /* one size for the rest: a GPU's launch graph is then made once */
      double block = fmin(left, fmax(FULL_BLOCK, goal / 256));
      m = (int)fmin(fmax(block / v + 1, m), MOST_RUNS);
    }
  } while (total < goal && !t->flush && clock_now() < t->deadline && n < MAX_BLOCKS);
  double mid = f64_median(x, n);
  t->spread = spread(x, n);
  return t->p.strict ? total / (double)(t->runs - runs) : mid;
}

static void time_stages(Timing *t, RunResult *out) {
  double each = 0, spent = 0;
  if (!t->p.strict) {
    each = timed(t, 1, &spent);
    if (!quick(t, each, out)) {
      out->cost[out->n_costs++] = out->quick;
      return;
    }
    each = out->quick;
  }
  do out->cost[out->n_costs++] = one_cost(t, each);
  while (out->n_costs < t->p.repeat && clock_now() < t->deadline);
  out->full = true;
}

void time_policy(DevModule *m, void *const *args, const RunPolicy *p, double deadline, RunResult *out) {
  Timing t = timing(m, args, p, deadline);
  out->n_costs = 0;
  out->full = out->cut = false;
  time_stages(&t, out);
  out->runs += t.runs;
  out->blocks = t.blocks;
  out->spread = t.spread;
}

/* ---- finals ---- */
static double one_pass(Timing *t, int number, double goal) {
  double x[MAX_BLOCKS], total = 0;
  int n = 0;
  do x[n++] = timed(t, number, &total);
  while ((total < goal || (n < 3 && total < LONG_PASS)) && n < MAX_BLOCKS && clock_now() < t->deadline);
  return f64_median(x, n);
}

/* Slower than the leader by more than CLEARLY in every pass so far: this one cannot win any more. */
static bool beaten(const FinalResult *r, const FinalResult *leader, int passes) {
  for (int k = 0; k < passes; k++)
    if (!(r->pass[k] > leader->pass[k] * (1 + CLEARLY))) return false;
  return r != leader;
}

static const FinalResult *leader_of(const FinalResult *r, int n, int passes) {
  const FinalResult *best = NULL;
  double at = 0;
  for (int i = 0; i < n; i++) {
    double x[PASSES];
    if (r[i].passes < passes) continue;
    memcpy(x, r[i].pass, sizeof x);
    double m = f64_median(x, passes);
    if (!best || m < at) best = &r[i], at = m;
  }
  return best;
}

void time_finals(int n, DevModule *const *m, void *const *args, const RunPolicy *p, uint64_t seed, int keep,
                 double deadline, FinalResult *out) {
  Timing t[FINAL_MAX];
  int number[FINAL_MAX], order[FINAL_MAX];
  Rng rng;
  rng_seed(&rng, seed);
  double goal = p->min_repeat_ms * 1e-3 * (p->repeat > 0 ? p->repeat : 1) / PASSES, spent = 0;
  for (int i = 0; i < n; i++) {
    t[i] = timing(m[i], args, p, deadline);
    double probe = timed(&t[i], 1, &spent), each = timed(&t[i], launches(&t[i], probe, t[i].block), &spent);
    number[i] = launches(&t[i], each, fmin(fmax(goal / 3, t[i].block), FULL_BLOCK));
    order[i] = i;
    out[i] = (FinalResult){.passes = 0};
  }
  for (int k = 0; k < PASSES; k++) {
    for (int i = n - 1; i > 0; i--) {
      int j = (int)rng_below(&rng, i + 1), x = order[i];
      order[i] = order[j];
      order[j] = x;
    }
    const FinalResult *leader = k < PASSES_SURE ? NULL : leader_of(out, n, k);
    for (int i = 0; i < n; i++) {
      FinalResult *r = &out[order[i]];
      bool stays = order[i] == keep || !leader || !beaten(r, leader, k);
      if (r->passes == k && stays) r->pass[r->passes++] = one_pass(&t[order[i]], number[order[i]], goal);
    }
  }
  for (int i = 0; i < n; i++) {
    double sorted[PASSES];
    memcpy(sorted, out[i].pass, sizeof sorted);
    f64_median(sorted, out[i].passes);
    out[i].spread = spread(sorted, out[i].passes);
    out[i].runs = t[i].runs;
    out[i].blocks = t[i].blocks;
  }
}
