/* The table of machines and what follows from a machine: occupancy, limits, default parameters, threads of the CPU.
 *
 * A new GPU is one row. Limits are those of the CUDA programming guide; tests compare the blocks that fit with the
 * toolkit's own occupancy header for every architecture. Rates are of the device named beside the row.
 */
#include "base/machine.h"
#include "base/base.h"
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool target_kind(const char *name, TargetKind *out) {
  static const struct {
    const char *name;
    TargetKind kind;
  } KIND[] = {{"llvm", TG_CPU}, {"c", TG_CPU}, {"cpu", TG_CPU}, {"cuda", TG_CUDA}, {"opencl", TG_OPENCL}};
  for (int i = 0; i < NS_COUNT(KIND); i++)
    if (strcmp(KIND[i].name, name) == 0) return *out = KIND[i].kind, true;
  return false;
}

/* ---- GPUs ---- */
static const GpuMachine GPU[] = {
    {70, 80, 64, 32, 65536, 96 << 10, 0, 256, 1.53e9, 15.7e12, 0.9e12, 2.5e12},         /* V100 */
    {72, 8, 64, 32, 65536, 96 << 10, 0, 256, 1.38e9, 1.41e12, 0.137e12, 0.4e12},        /* Jetson AGX Xavier */
    {75, 40, 32, 16, 65536, 64 << 10, 0, 256, 1.59e9, 8.1e12, 0.32e12, 1.3e12},         /* T4 */
    {80, 108, 64, 32, 65536, 164 << 10, 1024, 128, 1.41e9, 19.5e12, 1.55e12, 4.0e12},   /* A100 */
    {86, 72, 48, 16, 65536, 100 << 10, 1024, 128, 1.70e9, 31.2e12, 0.6e12, 2.5e12},     /* A10 */
    {87, 16, 48, 16, 65536, 164 << 10, 1024, 128, 1.30e9, 5.3e12, 0.205e12, 0.6e12},    /* Jetson AGX Orin */
    {89, 128, 48, 24, 65536, 100 << 10, 1024, 128, 2.52e9, 82.6e12, 1.0e12, 5.0e12},    /* RTX 4090 */
    {90, 132, 64, 32, 65536, 228 << 10, 1024, 128, 1.75e9, 60e12, 3.3e12, 5.5e12},      /* H100 */
    {100, 148, 64, 32, 65536, 228 << 10, 1024, 128, 1.92e9, 72.7e12, 7.7e12, 9.0e12},   /* B200 */
    {103, 148, 64, 32, 65536, 228 << 10, 1024, 128, 1.92e9, 72.7e12, 7.7e12, 9.0e12},   /* B300 */
    {110, 20, 48, 24, 65536, 228 << 10, 1024, 128, 1.57e9, 8.0e12, 0.273e12, 1.0e12},   /* Jetson Thor */
    {120, 170, 48, 24, 65536, 100 << 10, 1024, 128, 2.41e9, 104.9e12, 1.79e12, 7.0e12}, /* RTX 5090 */
    {121, 48, 48, 24, 65536, 100 << 10, 1024, 128, 2.42e9, 29.7e12, 0.273e12, 1.5e12},  /* GB10 */
};
const GpuMachine GPU_SMALL = {0, 8, 32, 16, 65536, 64 << 10, 0, 256, 0.8e9, 0.82e12, 0.03e12, 0.1e12};
enum { USUAL_SM = 90 };

const GpuMachine *gpu_machine(int sm) {
  int at = 0;
  while (at + 1 < NS_COUNT(GPU) && GPU[at + 1].sm <= (sm > 0 ? sm : USUAL_SM)) at++;
  return &GPU[at];
}

static const struct {
  int16_t from, to; /* 0: all since */
} FEATURE[GPU_FEATURES] = {
    [GPU_LANES] = {70, 0},       [GPU_TENSOR_CORES] = {75, 0}, [GPU_TENSOR_LONG] = {80, 0},
    [GPU_COPY_ASYNC] = {80, 0},  [GPU_NAN_EXTREMES] = {80, 0}, [GPU_TO_TF32] = {80, 0},
    [GPU_WARPGROUPS] = {90, 90}, [GPU_CLUSTERS] = {90, 119},   [GPU_OVERLAP] = {90, 0},
};
int gpu_since(GpuFeature f) { return FEATURE[f].from; }
bool gpu_has(const GpuMachine *m, GpuFeature f) {
  return m->sm >= FEATURE[f].from && (!FEATURE[f].to || m->sm <= FEATURE[f].to);
}

/* Operations of 16-bit floats by one multiprocessor in a cycle, as mma.sync reaches them: Hopper needs wgmma for more. */
double gpu_matrix_peak(const GpuMachine *m, int bytes, bool warpgroups) {
  if (!gpu_has(m, bytes > 2 ? GPU_TENSOR_LONG : GPU_TENSOR_CORES)) return 0;
  double cycle = m->sm == 80 || m->sm == 100 ? 2048 : m->sm == 90 ? warpgroups ? 4096 : 2560 : 1024;
  return cycle * m->sms * m->clock * 2 / bytes;
}

int64_t gpu_shared_at_launch(int64_t bytes) { return bytes > GPU_SHARED_DECLARED ? bytes + GPU_SHARED_MORE : bytes; }

/* Registers go to a warp in units of 256, warps are placed in groups of four, one for each scheduler. */
Occupancy gpu_occupancy(const GpuMachine *m, int64_t threads, int64_t regs, int64_t shared_bytes) {
  if (threads < 1) threads = 1;
  int64_t warps = i64_ceildiv(threads, GPU_WARP),
          per_warp = i64_ceildiv((regs > 0 ? regs : 1) * GPU_WARP, GPU_REG_UNIT) * GPU_REG_UNIT;
  int64_t by[] = {m->regs / per_warp / GPU_SCHEDULERS * GPU_SCHEDULERS / warps, m->max_blocks, m->max_warps / warps,
                  m->max_blocks};
  if (shared_bytes > 0)
    by[GPU_BY_SHARED] =
        m->shared_bytes / (i64_ceildiv(shared_bytes + m->shared_reserve, m->shared_unit) * m->shared_unit);
  Occupancy o = {by[GPU_BY_BLOCKS], GPU_BY_BLOCKS, 0};
  for (int i = 0; i < GPU_BY_BLOCKS; i++)
    if (by[i] < o.blocks) o.blocks = by[i], o.limit = (GpuBound)i;
  o.occ = (double)(o.blocks * warps) / m->max_warps;
  return o;
}

/* ---- levels of memory ---- */
static const struct {
  const char *name;
  int fact;      /* of sysconf */
  int64_t usual; /* where the system does not say; 0: it may have none */
  bool each;     /* core has one */
} CACHE[] = {{"L1", _SC_LEVEL1_DCACHE_SIZE, 32 << 10, true},
             {"L2", _SC_LEVEL2_CACHE_SIZE, 512 << 10, true},
             {"L3", _SC_LEVEL3_CACHE_SIZE, 0, false}};

int64_t cpu_cache(int level) {
  long bytes = level >= 1 && level <= NS_COUNT(CACHE) ? sysconf(CACHE[level - 1].fact) : 0;
  return bytes > 0 ? bytes : 0;
}

int cpu_memory(MemoryLevel out[MEMORY_LEVELS]) {
  int n = 0;
  for (int i = 0; i < NS_COUNT(CACHE); i++) {
    int64_t one = cpu_cache(i + 1), bytes = (one > 0 ? one : CACHE[i].usual) * (CACHE[i].each ? cpu_threads() : 1);
    if (bytes > (n > 0 ? out[n - 1].bytes : 0)) out[n++] = (MemoryLevel){CACHE[i].name, bytes, 0};
  }
  out[n++] = (MemoryLevel){"DRAM", 0, 0};
  return n;
}

int gpu_memory(const GpuMachine *m, int64_t l2_bytes, MemoryLevel out[MEMORY_LEVELS]) {
  int n = 0;
  if (l2_bytes > 0) out[n++] = (MemoryLevel){"L2", l2_bytes, m->l2};
  out[n++] = (MemoryLevel){"DRAM", 0, m->dram};
  return n;
}

/* ---- hardware parameters: a CPU's are fixed but for the number of cores; a GPU's limits come from its driver, except for
 * mobile OpenCL GPUs, where fixed values are known to work. Spec 03 §1.2. ---- */
const char *const HW_NAME[HW_FIELDS] = {"num_cores",
                                        "vector_unit_bytes",
                                        "cache_line_bytes",
                                        "max_shared_memory_per_block",
                                        "max_local_memory_per_block",
                                        "max_threads_per_block",
                                        "max_vthread_extent",
                                        "warp_size"};

static const HwParams CPU_DEFAULT = {.num_cores = 1, .vector_unit_bytes = 64, .cache_line_bytes = 64};
static const HwParams MOBILE_DEFAULT = {-1, 16, 64, 32768, INT_MAX, 256, 1, 1};

const char *hw_params_default(TargetKind kind, bool mali, bool adreno, const HwQuery *q, HwParams *out) {
  static const HwQuery NONE = {0};
  if (!q) q = &NONE;
  if (kind == TG_CPU) {
    *out = CPU_DEFAULT;
    if (q->num_cores > 0) out->num_cores = q->num_cores;
    return NULL;
  }
  *out = MOBILE_DEFAULT;
  if (adreno) out->max_local_memory_per_block = 32768;
  if (mali || adreno) return NULL;
  if (q->max_shared_memory_per_block <= 0) return HW_NAME[3];
  if (q->max_threads_per_block <= 0) return HW_NAME[5];
  if (q->warp_size <= 0) return HW_NAME[7];
  out->max_shared_memory_per_block = q->max_shared_memory_per_block;
  out->max_threads_per_block = q->max_threads_per_block;
  out->warp_size = q->warp_size;
  out->max_vthread_extent = q->warp_size / 4 > 0 ? q->warp_size / 4 : 1;
  return NULL;
}

Target target_default(TargetKind kind, int sm) {
  static const HwQuery GPU_USUAL = {GPU_SHARED_DECLARED, GPU_MAX_THREADS, GPU_WARP,
                                    0}; /* on every GPU that is still supported */
  Target t = {.kind = kind, .fast_math = 1};
  if (kind != TG_CPU) t.gpu = kind == TG_CUDA ? *gpu_machine(sm) : GPU_SMALL;
  if (kind == TG_CUDA && sm > 0) t.gpu.sm = sm;
  hw_params_default(kind, false, false, &GPU_USUAL, &t.hw);
  return t;
}

/* ---- limits ---- */
static const char *const FIT_TEXT[FIT_COUNT] = {
    [FIT_VTHREAD] = "vthread",
    [FIT_FEW_THREADS] = "few threads",
    [FIT_THREADS] = "threads",
    [FIT_LOCAL] = "local memory per block",
    [FIT_SHARED] = "shared memory per block",
    [FIT_VECTOR] = "vector width",
};
const char *fit_text(Fit f) { return FIT_TEXT[f]; }

Fit gpu_fits(const HwParams *hw, const GpuNeeds *k) {
  if (k->vthread > (double)hw->max_vthread_extent) return FIT_VTHREAD;
  if (k->threads < (double)hw->warp_size && k->points > 2 * (double)hw->warp_size) return FIT_FEW_THREADS;
  if (k->threads > (double)hw->max_threads_per_block) return FIT_THREADS;
  if (k->local_bytes > (double)hw->max_local_memory_per_block) return FIT_LOCAL;
  if (k->shared_bytes > (double)hw->max_shared_memory_per_block) return FIT_SHARED;
  if (k->vector_bytes > (double)hw->vector_unit_bytes) return FIT_VECTOR;
  return FIT_OK;
}

HwParams gpu_matrix_limits(const Target *t) {
  HwParams hw = t->hw;
  int64_t most = t->gpu.shared_bytes - t->gpu.shared_reserve - GPU_SHARED_MORE;
  if (t->kind == TG_CUDA && hw.max_shared_memory_per_block >= GPU_SHARED_DECLARED &&
      most > hw.max_shared_memory_per_block)
    hw.max_shared_memory_per_block = most;
  return hw;
}

enum { SMALL_ARRAY = 4, ALIKE = 16 }; /* bytes that stay alone; how many times as long one may be as the other */
int memory_reused(int n, const int64_t *free_bytes, int64_t bytes) {
  int best = -1;
  if (bytes <= SMALL_ARRAY) return best;
  for (int i = 0; i < n; i++)
    if (free_bytes[i] >= bytes && free_bytes[i] <= bytes * ALIKE && (best < 0 || free_bytes[i] < free_bytes[best]))
      best = i;
  for (int i = 0; i < n && best < 0; i++)
    if (free_bytes[i] < bytes && free_bytes[i] > 0 && free_bytes[i] >= bytes / ALIKE) best = i;
  return best;
}

/* ---- CPUs ---- */
#if defined(__x86_64__)
/* By the beginnings of names; what stands in neither list has AVX2. */
static const char *const WITH_AVX512[] = {"skylake-avx512", "cascadelake", "cooperlake", "cannonlake", "icelake",
                                          "tigerlake",      "rocketlake",  "sapphire",   "emerald",    "granite",
                                          "x86-64-v4",      "znver4",      "znver5",     "knl",        "knm"};
static const char *const WITHOUT_AVX2[] = {
    "nehalem",   "westmere", "sandybridge", "ivybridge",  "core2",    "corei7",   "core-avx-i", "btver",
    "bdver1",    "bdver2",   "bdver3",      "silvermont", "goldmont", "tremont",  "atom",       "bonnell",
    "x86-64-v2", "nocona",   "k8",          "opteron",    "athlon",   "amdfam10", "barcelona"};
static bool listed(const char *cpu, const char *const *list, int n) {
  for (int i = 0; i < n; i++)
    if (strncmp(cpu, list[i], strlen(list[i])) == 0) return true;
  return false;
}
#endif
CpuMachine cpu_machine(const char *cpu) {
  (void)cpu;
#if defined(__x86_64__)
  bool wide = cpu[0] ? listed(cpu, WITH_AVX512, NS_COUNT(WITH_AVX512)) : __builtin_cpu_supports("avx512f") != 0,
       narrow = cpu[0] ? listed(cpu, WITHOUT_AVX2, NS_COUNT(WITHOUT_AVX2)) || strcmp(cpu, "x86-64") == 0
                       : !__builtin_cpu_supports("avx2");
  if (wide) return (CpuMachine){64, 28};
  return (CpuMachine){narrow ? 16 : 32, 12};
#elif defined(__aarch64__)
  return (CpuMachine){16, 26};
#else
  return (CpuMachine){16, 12};
#endif
}

static long long read_numbers(const char *path, long long *second) { /* 0: none */
  long long a = 0;
  FILE *f = fopen(path, "re");
  if (!f) return 0;
  if (fscanf(f, "%lld %lld", &a, second) < 1) a = 0;
  fclose(f);
  return a;
}

int cpu_threads(void) {
  static const char *const VARS[] = {"NESTSMITH_NUM_THREADS", "TVM_NUM_THREADS", "OMP_NUM_THREADS"};
  for (int i = 0; i < NS_COUNT(VARS); i++) {
    const char *s = getenv(VARS[i]);
    long v = s ? strtol(s, NULL, 10) : 0;
    if (v >= 1 && v <= 4096) return (int)v;
  }
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  long long none = 0, period = 0, smt = read_numbers("/sys/devices/system/cpu/smt/active", &none),
            quota = read_numbers("/sys/fs/cgroup/cpu.max", &period); /* threads above it get in each other's way */
  if (smt == 1 && n > 2) n /= 2;
  if (quota > 0 && period > 0 && quota / period >= 1 && quota / period < n) n = (int)(quota / period);
  return n < 1 ? 1 : n;
}
