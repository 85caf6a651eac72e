/* A time estimate from closed forms: the roofline of the machine, corrected for what a GPU cannot hide (too few blocks,
 * a part-filled last wave, registers, bank conflicts, barriers). It is meant to be monotone in the right things, not to be
 * right; the learned model and the measurements decide. Spec 04 §6.2, §6.3.
 */
#include "model/estimate.h"
#include <math.h>

/* How far real kernels stay from the peaks, and what latency costs: fitted by a rank loss over tasks to 7,400 programs
 * measured on H100s and an H200 (twelve networks; random, estimated and learned choices); see docs/features.md. */
#define MATH_SHARE 0.502  /* of the lanes' peak without fused multiply-add, index arithmetic included */
#define L2_SHARE 3.31     /* of the cache's bandwidth: first-level hits count as traffic */
#define DRAM_SHARE 0.66   /* tensors may be in the cache already, but each is fetched by several multiprocessors */
#define MEM_THREADS 244.0 /* per multiprocessor in flight for full bandwidth */
#define BUSY_WARPS 3.3    /* per multiprocessor for full issue */
#define SPILL_COST 1.87
#define LOAD_COST 0.0516
#define SHARED_SHARE 0.339 /* of the conflicts that are computed: loads of several words, and reuse in registers */
#define OVERLAP 0.66       /* of what is not the longest part is not hidden behind it */
#define CHAIN_STEP 3.2e-9  /* seconds per dependent multiply-add of one accumulator */
#define FETCH_STEP 4.1e-9  /* seconds per element that one thread fetches from global memory */
#define BARRIER 10.8e-9
#define LAUNCH 1.33e-6

static double kernel_seconds(const GpuMachine *m, const KernelFacts *k) {
  double warps = ceil(k->threads / 32), groups = ceil(warps / 4);
  double need = 24 + k->local_elems + fmin(64, 2 * sqrt(k->local_elems));
  double cap =
      fmin(255, floor((double)m->regs / (groups * 128) / 8) * 8); /* the compiler is told the number of threads */
  double regs = fmin(need, cap), spill = fmax(need - cap, 0);
  Occupancy o = gpu_occupancy(m, (int64_t)k->threads, (int64_t)regs, (int64_t)k->shared_bytes);
  if (o.blocks < 1 && (o.limit == GPU_BY_SHARED || m->max_warps < warps)) return INFINITY;
  double b = fmax((double)o.blocks, 1), sms = m->sms;
  double resident = fmax(fmin(b, ceil(k->blocks / sms)), 1); /* blocks that really share a multiprocessor */
  double waves = k->blocks / (b * sms), tail = waves > 1 ? waves / ceil(waves) : 1, fill = fmin(1, k->blocks / sms);
  double busy = fmin(1, resident * warps / BUSY_WARPS), lane = k->threads / (32 * warps), rounds = fmax(ceil(waves), 1);
  double work = k->ops * (1 + SPILL_COST * spill / (24 + k->local_elems)) + k->shared_reads * LOAD_COST;
  double streams = fmin(1, fill * fmin(1, resident * k->threads / MEM_THREADS));
  double part[] = {work / (m->peak / 2 * MATH_SHARE * tail * fill * lane * busy),
                   k->global_bytes / (m->l2 * L2_SHARE * fmax(streams, 0.02)), k->unique_bytes / (m->dram * DRAM_SHARE),
                   SHARED_SHARE * k->mem.wavefronts / (sms * m->clock * fill * tail)};
  double longest = 0, all = 0;
  for (int i = 0; i < NS_COUNT(part); i++) longest = fmax(longest, part[i]), all += part[i];
  double chain = k->ops / (2 * k->blocks * k->threads) / fmax(k->local_elems, 1);
  double latency =
      chain * CHAIN_STEP + k->global_bytes / (4 * k->blocks * k->threads) * FETCH_STEP + k->barriers * BARRIER;
  return longest + OVERLAP * (all - longest) + rounds * latency + LAUNCH;
}

/* Products on tensor cores: blocks work through slices that come in while others are multiplied. Fitted to 485 kernels of 16
 * shapes (BERT at batch 1 and 8, late layers of ResNet-50, squares; float16 and TF32) on an H200: the order of two kernels that
 * differ by more than 5 % is right in 77 of 100 cases, and the best of the first three 5 % slower than the best of all in the
 * geometric mean; of warpgroups to 240 kernels of these shapes, 4 % slower. Kernels whose slices are one step long have fragments
 * of one step alone: at 4096 cubed the best of them takes 509 us, that of the others 290. */
static const struct {
  /* of a slice, from global to shared memory, which slices copied ahead hide: seconds, and its bytes by the cache's bandwidth */
  double latency, fill;
  double ends;     /* addresses, first slices, results */
  double cluster;  /* of blocks that add up among themselves: two waits, other blocks' shared memory */
  double peak, l2; /* of what gpu_matrix_peak gives; of the cache's bandwidth */
  double warps;    /* per multiprocessor for full issue */
} MATRIX[] = {{0.45e-6, 0, 1.2e-6, 2.74e-6, 1.14, 1.9, 13.8}, {0.128e-6, 1.36, 1.7e-6, 2.0e-6, 0.66, 4.0, 5.6}};
#define SLICE_STEP 0.048e-6 /* wait, barrier */
#define ADD_UP 1.7e-6       /* of a second kernel that adds up parts */
#define MATRIX_ALONE 0.45   /* of the peak, where fragments are loaded right before they are multiplied */
/* Results that pass through shared memory, of hand-written kernels with and without it (float16, 13 pairs, TF32, 2; one H200): what
 * it costs a round, and what whole lines save per byte. Within 0.5 us of 12 of the 13. */
#define WIDE_ENDS 0.25e-6
#define WIDE_SAVES 0.3e-12
#define MATRIX_OVERLAP 0.089 /* of what is not the longest part is not hidden behind it */
static double matrix_seconds(const GpuMachine *m, const KernelFacts *k) {
  int family = k->matrix_groups;
  double warps = k->threads / 32, regs = fmin(255, GPU_MATRIX_ADDRESSES + k->local_elems), sms = m->sms;
  Occupancy o = gpu_occupancy(m, (int64_t)k->threads, (int64_t)regs, (int64_t)k->shared_bytes);
  if (o.blocks < 1 && o.limit == GPU_BY_SHARED) return INFINITY;
  double b = fmax((double)o.blocks, 1), rounds = ceil(k->blocks / (b * sms)),
         resident = fmax(fmin(b, ceil(k->blocks / sms)), 1);
  double busy = fmin(1, resident * warps / MATRIX[family].warps) * (k->matrix_alone ? MATRIX_ALONE : 1),
         peak = MATRIX[family].peak * gpu_matrix_peak(m, k->matrix_bytes, k->matrix_groups) / sms;
  double mine = resident / k->blocks; /* share of all blocks that one multiprocessor has at a time */
  double used = fmin(sms, k->blocks), l2 = m->l2 * MATRIX[family].l2;
  double part[] = {k->ops * mine / (peak * busy), k->mem.wavefronts * mine / m->clock,
                   k->global_bytes * mine * used / (l2 * fmin(1, used / (0.6 * sms)))};
  double longest = 0, all = 0;
  for (int i = 0; i < NS_COUNT(part); i++) longest = fmax(longest, part[i]), all += part[i];
  double fill = MATRIX[family].fill * k->mem.fill_bytes / k->matrix_tiles * mine * used / l2;
  double step = SLICE_STEP + (MATRIX[family].latency + fill) / k->matrix_ahead / resident;
  double ends = MATRIX[family].ends + (k->matrix_wide ? WIDE_ENDS : 0);
  double round = fmax(longest + MATRIX_OVERLAP * (all - longest), k->matrix_tiles * step) + ends;
  double adding = k->matrix_parts > 0     ? LAUNCH + ADD_UP + k->matrix_parts / (m->l2 * 0.5)
                  : k->matrix_cluster > 1 ? MATRIX[family].cluster
                                          : 0;
  double work = fmax(rounds * round - k->matrix_halves * WIDE_SAVES, k->unique_bytes / (m->dram * DRAM_SHARE));
  return work + adding + LAUNCH;
}

double estimate_seconds(const Target *t, const StateFacts *f) {
  double total = 0;
  if (t->kind != TG_CPU) {
    const GpuMachine *m = &t->gpu;
    for (int i = 0; i < f->n; i++)
      total += f->k[i].matrix_bytes ? matrix_seconds(m, &f->k[i]) : kernel_seconds(m, &f->k[i]);
    return total;
  }
  double cores = fmax((double)t->hw.num_cores, 1);
  for (int i = 0; i < f->n; i++) {
    const KernelFacts *k = &f->k[i];
    double p = k->blocks, used = p <= 1 ? 1 : p / (ceil(p / cores)); /* uneven shares leave cores idle */
    double t_math = k->ops / (2 * 3e9 * used), t_mem = k->global_bytes / (8e9 * fmin(used, 4));
    total += fmax(t_math, t_mem) + 0.3 * fmin(t_math, t_mem) + (p > 1 ? 3e-6 + 20e-9 * p : 0) + 1e-7;
  }
  return total;
}

double estimate_of(const Target *t, const StateFacts *f) {
  double sec = f->invalid ? INFINITY : estimate_seconds(t, f);
  return isfinite(sec) && sec > 0 ? 1e-6 / sec : -INFINITY;
}
