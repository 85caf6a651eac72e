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

/* Products on tensor cores: blocks work through slices that come in while others are multiplied. One set of numbers for products
 * of warps and of warpgroups, fitted to 1,033 kernels of 31 cases (squares, BERT at batch 1 and 8, layers of VGG; float16 and TF32;
 * one H200) and, at half the weight, to 485 of warps of smaller shapes: the best of the first three is 1.2 % slower than the best of
 * all in the geometric mean (where a case is left out, too), rank correlation 0.79 within a case. */
static const double MATRIX_PEAK[] = {
    0.99, 0.94, 1.05};      /* of what gpu_matrix_peak gives: warps, warpgroups, and these of two slices at
   a time: not fitted, but what squares of 2,048 and 4,096 were faster than with one (H100), which other numbers of one count */
#define MATRIX_WARPS 4.0    /* per multiprocessor for full issue */
#define MATRIX_ALONE 0.45   /* of the peak, where fragments are loaded right before they are multiplied */
#define MATRIX_LINES 0.55   /* what each further line costs that 128 bytes of a slice lie in, of what they cost */
#define MATRIX_OVERLAP 0.18 /* of what is not the longest part is not hidden behind it */
#define SLICE_STEP 0.065e-6 /* wait, barrier */
#define SLICE_COPY 6.5e-9   /* one instruction of a thread's copies, 16 bytes */
#define MATRIX_ENDS 1.0e-6  /* addresses, results */
#define CLUSTER_BYTES 17.6  /* of sums that a multiprocessor leaves and reads in a cycle */
#define CLUSTER_SHARE                                                                                                  \
  0.9 /* of all places, where whole clusters find room: 14 of 8 blocks run at a time, 16 take twice as long */
/* Of the last block of a tile, which adds up parts, and bytes of these that its multiprocessor reads in a cycle: guesses, to be fitted. */
#define LAST_BLOCK 0.9e-6
#define LAST_BYTES 32.0
/* Results that pass through shared memory: what it costs a round, and what whole lines save per byte. */
#define WIDE_ENDS 0.1e-6
#define WIDE_SAVES 0.4e-12

/* Products by lanes: what counts is how many instructions the schedulers have, above all the one with the most warps. Fitted to 3,143
 * kernels of 35 cases (convolutions of ResNet-50, BERT at batch 1 and 8; one H100). Of these same kernels the best of the first four is
 * 1.0 % slower than the best of all in the geometric mean, rank correlation within a case 0.55; no case was held out. */
#define LANES_ISSUE 0.91    /* instructions in a cycle of many warps */
#define LANES_WARPS 0.11    /* more warps of a scheduler, at which it is half of that */
#define LANES_STEP 34.0     /* instructions of a warp for a slice, beside what it loads and multiplies */
#define LANES_SHARED 0.82   /* of the wavefronts that are computed */
#define LANES_OVERLAP 0.15  /* of what is not the longest part is not hidden behind it */
#define LANES_AHEAD 0.048   /* of that, which a slice waits for each of those after it, if one is ahead */
#define LANES_SLICE 0.04e-6 /* wait, barrier */
#define LANES_BYTES 37.5    /* of sums that a multiprocessor leaves and reads in a cycle */

/* What families pay for what all do. */
typedef struct {
  double l2;      /* of the cache's bandwidth: neighbouring blocks ask for the same lines */
  double fill;    /* until a slice is there, of the time that the cache needs for it */
  double add_up;  /* a second kernel that adds up parts */
  double cluster; /* blocks that add up among themselves: their waits */
} Shared;
static const Shared CORES = {3.1, 1.3, LAUNCH + 1.7e-6, 0.3e-6}, THREE = {2.6, 1.64, 2.2e-6, 1.0e-6},
                    THREE_GROUPS = {2.3, 3.4, 1.7e-6, 0.6e-6}, LANES = {1.9, 2.0, LAUNCH, 1.9e-6};
static const Shared *shared(const KernelFacts *k) {
  return k->matrix_lanes ? &LANES : k->matrix_waits > 0 ? &THREE_GROUPS : k->matrix_cycles > 0 ? &THREE : &CORES;
}

static double lanes_round(const GpuMachine *m, const KernelFacts *k, double resident) {
  double sms = m->sms, mine = resident / k->blocks, used = fmin(sms, k->blocks), warps = k->threads / GPU_WARP;
  double deep = ceil(resident * warps / GPU_SCHEDULERS), l2 = m->l2 * LANES.l2 * fmin(1, used / (0.6 * sms));
  double products = k->ops / 2 / (k->blocks * k->threads), issue = LANES_ISSUE * deep / (deep + LANES_WARPS);
  double part[] = {deep * (products * (1 + k->matrix_loads) + k->matrix_tiles * LANES_STEP) / (issue * m->clock),
                   LANES_SHARED * k->mem.wavefronts * mine / m->clock, k->global_bytes * mine * used / l2};
  double longest = 0, all = 0;
  for (int i = 0; i < NS_COUNT(part); i++) longest = fmax(longest, part[i]), all += part[i];
  double fill = LANES.fill * k->mem.fill_bytes / k->blocks / k->matrix_tiles * used / l2;
  double slices = k->matrix_tiles * (LANES_SLICE + LANES_AHEAD * fill / k->matrix_ahead);
  bool add = k->matrix_cluster > 1 || k->matrix_teams > 1;
  double adding = add ? resident * k->matrix_sums / (LANES_BYTES * m->clock) : 0;
  return longest + LANES_OVERLAP * (all - longest) + fill + slices + adding;
}

/* Products in three terms: of 357 kernels of 24 layers of ResNet-50 (H100) the best of the first four is 5.6 % slower than the best of all,
 * 11 % by the numbers of other products. */
#define THREE_PRODUCTS 0.53 /* of the time that the unit has for them: others are between */
#define THREE_ALONE 0.3     /* of its cycles, what a warp waits for its own products */
/* By warpgroups: of 1,121 kernels of these layers the best of the first four is 1.8 % slower than the best of all, 7 % by other numbers. */
#define GROUP_OVERLAP 0.125

/* Of three terms, with so many warps of a scheduler. */
static double three_seconds(const GpuMachine *m, const KernelFacts *k, double deep) {
  double blocks = ceil(deep * GPU_SCHEDULERS * GPU_WARP / k->threads);
  if (k->matrix_waits > 0) return k->matrix_tiles * (blocks * k->matrix_cycles + k->matrix_waits) / m->clock;
  double rate = gpu_matrix_peak(m, k->matrix_bytes, false) / (m->sms * GPU_SCHEDULERS); /* of one scheduler's unit */
  double own = k->ops / (k->blocks * k->threads / GPU_WARP);
  double seconds = THREE_PRODUCTS * own / rate + k->matrix_cycles * k->matrix_tiles / m->clock;
  return seconds * (deep + THREE_ALONE);
}

/* So many blocks on each multiprocessor, from their first slices to their results. */
static double matrix_round(const GpuMachine *m, const KernelFacts *k, double resident) {
  if (k->matrix_lanes) return lanes_round(m, k, resident);
  double sms = m->sms, mine = resident / k->blocks; /* share of all blocks that one multiprocessor has */
  double used = fmin(sms, k->blocks), l2 = m->l2 * shared(k)->l2 * fmin(1, used / (0.6 * sms));
  double busy = fmin(1, resident * k->threads / GPU_WARP / MATRIX_WARPS) * (k->matrix_alone ? MATRIX_ALONE : 1);
  double peak = MATRIX_PEAK[k->matrix_groups] * gpu_matrix_peak(m, k->matrix_bytes, k->matrix_groups > 0) / sms;
  double bytes = k->global_bytes + MATRIX_LINES * (GPU_LINE / k->matrix_line - 1) * k->mem.fill_bytes;
  double deep = ceil(resident * k->threads / GPU_WARP / GPU_SCHEDULERS);
  double products = k->matrix_cycles > 0 ? three_seconds(m, k, deep) : k->ops * mine / (peak * busy);
  double part[] = {products, k->mem.wavefronts * mine / m->clock, bytes * mine * used / l2};
  double longest = 0, all = 0;
  for (int i = 0; i < NS_COUNT(part); i++) longest = fmax(longest, part[i]), all += part[i];
  double slice = k->mem.fill_bytes / k->blocks / k->matrix_tiles, fill = shared(k)->fill * slice * used / l2;
  double step = SLICE_STEP + SLICE_COPY * slice / 16 / k->threads + fill / k->matrix_ahead;
  double ends = MATRIX_ENDS + fill + (k->matrix_wide ? WIDE_ENDS : 0);
  double adding = k->matrix_cluster > 1 ? resident * k->matrix_sums / (CLUSTER_BYTES * m->clock) : 0;
  return hypot(longest + (k->matrix_waits > 0 ? GROUP_OVERLAP : MATRIX_OVERLAP) * (all - longest),
               k->matrix_tiles * step) +
         ends + adding;
}

static double matrix_seconds(const GpuMachine *m, const KernelFacts *k) {
  double regs = fmin(GPU_MAX_REGS, GPU_MATRIX_ADDRESSES + k->local_elems), sms = m->sms;
  Occupancy o = gpu_occupancy(m, (int64_t)k->threads, (int64_t)regs, gpu_shared_at_launch((int64_t)k->shared_bytes));
  if (o.blocks < 1 && o.limit == GPU_BY_SHARED) return INFINITY;
  double b = fmax((double)o.blocks, 1), cluster = k->matrix_cluster;
  double at_once = cluster > 1 ? fmax(floor(CLUSTER_SHARE * sms * b / cluster), 1) * cluster : sms * b;
  double rounds = floor(k->blocks / at_once), left = k->blocks - rounds * at_once;
  double work = rounds > 0 ? rounds * matrix_round(m, k, b) : 0;
  if (left > 0) work += matrix_round(m, k, ceil(left / sms));
  work = fmax(work - k->matrix_halves * WIDE_SAVES, k->unique_bytes / (m->dram * DRAM_SHARE));
  double second = shared(k)->add_up + k->matrix_parts / (m->l2 * 0.5);
  if (k->matrix_last > 0)
    second = LAST_BLOCK + k->matrix_parts / fmin(k->blocks / k->matrix_last, sms) / (LAST_BYTES * m->clock);
  double adding = k->matrix_parts > 0 ? second : cluster < 2 ? 0 : shared(k)->cluster;
  return work + adding + LAUNCH;
}

/* A core of a CPU: cycles, and bytes from beyond its second cache, in a second; so many cores fill the memory. */
#define CORE_CLOCK 3.2e9
#define CORE_BYTES 15e9
#define MEMORY_CORES 4.0

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
    double t_math = k->ops / (CORE_CLOCK * used), t_mem = k->global_bytes / (CORE_BYTES * fmin(used, MEMORY_CORES));
    total += fmax(t_math, t_mem) + 0.3 * fmin(t_math, t_mem) + (p > 1 ? 3e-6 + 20e-9 * p : 0) + 1e-7;
  }
  return total;
}

double estimate_of(const Target *t, const StateFacts *f) {
  double sec = f->invalid ? INFINITY : estimate_seconds(t, f);
  return isfinite(sec) && sec > 0 ? 1e-6 / sec : -INFINITY;
}
