/* A time estimate from closed forms: the roofline of the machine, corrected for what a GPU cannot hide (too few blocks,
 * a part-filled last wave, registers, bank conflicts, barriers). It is meant to be monotone in the right things, not to be
 * right; the learned model and the measurements decide. Spec 04 §6.2, §6.3.
 */
#include "search/space.h"
#include <math.h>

typedef struct {
  double sms, warps, blocks, regs, shared_sm, reserve, unit, clock, fma, dram, l2;
} Machine;
/* Per compute capability: multiprocessors, limits of one multiprocessor, clock, fp32 operations per cycle, bytes per second. */
static const struct {
  int sm;
  Machine m;
} TABLE[] = {
    {70, {80, 64, 32, 65536, 96 << 10, 0, 256, 1.53e9, 128, 0.9e12, 2.5e12}},
    {75, {40, 32, 16, 65536, 64 << 10, 0, 256, 1.59e9, 128, 0.32e12, 1.3e12}},
    {80, {108, 64, 32, 65536, 164 << 10, 1024, 128, 1.41e9, 128, 1.55e12, 4.0e12}},
    {86, {72, 48, 16, 65536, 100 << 10, 1024, 128, 1.70e9, 256, 0.6e12, 2.5e12}},
    {89, {128, 48, 24, 65536, 100 << 10, 1024, 128, 2.52e9, 256, 1.0e12, 5.0e12}},
    {90, {132, 64, 32, 65536, 228 << 10, 1024, 128, 1.75e9, 256, 3.3e12, 5.5e12}},
};
static const Machine SMALL_GPU = {8, 32, 16, 65536, 64 << 10, 0, 256, 0.8e9, 64, 0.03e12, 0.1e12};

static const Machine *machine(const Target *t) {
  if (t->kind != TG_CUDA) return &SMALL_GPU;
  const Machine *m = &TABLE[NS_COUNT(TABLE) - 1].m;
  for (int i = NS_COUNT(TABLE) - 1; i >= 0; i--)
    if (t->sm > 0 && t->sm <= TABLE[i].sm) m = &TABLE[i].m;
  return m;
}

double analytic_sms(const SearchTask *t) { return machine(&t->target)->sms; }

static double at_least(double x, double lo) { return x > lo ? x : lo; }

/* How far real kernels stay from the peaks, and what latency costs: fitted to 385 programs measured on an H100 and an
 * H200, five tasks of ResNet-18; the latency terms are held at plausible values, for slow extremes are rare in such data. */
#define MATH_SHARE 0.348   /* of the lanes' peak, index arithmetic included */
#define MEM_SHARE 33.0     /* of the cache's bandwidth: first-level hits count as traffic */
#define MEM_THREADS 1886.0 /* per multiprocessor in flight for full bandwidth */
#define SPILL_COST 1.25
#define LOAD_COST 0.0554
#define SHARED_COST 0.42
#define CONFLICT_POWER 1.345
#define CHAIN_STEP 2e-9 /* seconds per dependent multiply-add of one accumulator */
#define FETCH_STEP 8e-9 /* seconds per element that one thread fetches from global memory */
#define BARRIER 50e-9
#define LAUNCH 1.5e-6

static double kernel_seconds(const Machine *m, const KernelFacts *k) {
  double warps = ceil(k->threads / 32), groups = ceil(warps / 4);
  double need = 24 + k->local_elems + fmin(64, 2 * sqrt(k->local_elems));
  double cap = fmin(255, floor(m->regs / (groups * 128) / 8) * 8); /* the compiler is told the number of threads */
  double regs = fmin(need, cap), spill = at_least(need - cap, 0);
  double regs_w = ceil(regs * 32 / 256) * 256, by_reg = floor(floor(floor(m->regs / regs_w) / 4) * 4 / warps);
  double by_smem = k->shared_bytes > 0
                       ? floor(m->shared_sm / (ceil((k->shared_bytes + m->reserve) / m->unit) * m->unit))
                       : m->blocks;
  if (by_smem < 1 || m->warps < warps) return INFINITY;
  double b = at_least(fmin(fmin(by_reg, by_smem), fmin(floor(m->warps / warps), m->blocks)), 1);
  double resident = at_least(fmin(b, ceil(k->blocks / m->sms)), 1); /* blocks that really share a multiprocessor */
  double waves = k->blocks / (b * m->sms), tail = waves > 1 ? waves / ceil(waves) : 1,
         fill = fmin(1, k->blocks / m->sms);
  double busy = fmin(1, resident * warps / 5), lane = k->threads / (32 * warps), rounds = at_least(ceil(waves), 1);
  double peak =
      m->sms * m->fma * m->clock / 2 * MATH_SHARE; /* one operation of a multiply-add pair issues per lane and cycle */
  double work = k->ops * (1 + SPILL_COST * spill / (24 + k->local_elems)) + k->shared_reads * LOAD_COST;
  double t_math = work / (peak * tail * fill * lane * busy);
  double streams = fmin(1, fill * fmin(1, resident * k->threads / MEM_THREADS));
  double t_mem = k->global_bytes / (m->l2 * MEM_SHARE * at_least(streams, 0.02));
  double t_shared =
      SHARED_COST * k->shared_reads / 32 * pow(k->shared_degree, CONFLICT_POWER) / (m->sms * m->clock * fill);
  double chain = k->ops / (2 * k->blocks * k->threads) / at_least(k->local_elems, 1);
  double latency =
      chain * CHAIN_STEP + k->global_bytes / (4 * k->blocks * k->threads) * FETCH_STEP + k->barriers * BARRIER;
  return fmax(t_math, fmax(t_mem, t_shared)) + rounds * latency + LAUNCH;
}

double analytic_seconds(const SearchTask *t, const StateFacts *f) {
  double total = 0;
  if (t->gpu) {
    const Machine *m = machine(&t->target);
    for (int i = 0; i < f->n; i++) total += kernel_seconds(m, &f->k[i]);
    return total;
  }
  double cores = at_least(t->target.hw.num_cores, 1);
  for (int i = 0; i < f->n; i++) {
    const KernelFacts *k = &f->k[i];
    double p = k->blocks, used = p <= 1 ? 1 : p / (ceil(p / cores)); /* uneven shares leave cores idle */
    double t_math = k->ops / (2 * 3e9 * used), t_mem = k->global_bytes / (8e9 * fmin(used, 4));
    total += fmax(t_math, t_mem) + 0.3 * fmin(t_math, t_mem) + (p > 1 ? 3e-6 + 20e-9 * p : 0) + 1e-7;
  }
  return total;
}

void analytic_score(void *self, const SearchTask *t, int n, State *const *s, double *out) {
  (void)self;
  for (int i = 0; i < n; i++) {
    StateFacts f = state_facts(t, s[i]);
    double sec = f.invalid ? INFINITY : analytic_seconds(t, &f);
    out[i] = isfinite(sec) && sec > 0 ? 1e-6 / sec : -INFINITY;
  }
}
