/* machine: what programs are made for. One description of a processor, filled from the driver or the operating system
 * where there is one and from one table where there is none, and what follows from it: how many blocks of a kernel fit on
 * a multiprocessor, and which limit a kernel breaks. Texts are made of the enumerations at the edge.
 */
#ifndef NS_MACHINE_H
#define NS_MACHINE_H
#include <stdbool.h>
#include <stdint.h>

typedef enum { TG_CPU, TG_CUDA, TG_OPENCL } TargetKind;
bool target_kind(const char *name, TargetKind *out); /* "llvm", "c", "cpu", "cuda", "opencl"; false: another */

/* ---- the eight hardware parameters (spec 03 §1): what users may set, what records carry; in the records' order ---- */
typedef struct {
  int64_t num_cores, vector_unit_bytes, cache_line_bytes, max_shared_memory_per_block, max_local_memory_per_block,
      max_threads_per_block, max_vthread_extent, warp_size;
} HwParams;
enum { HW_FIELDS = sizeof(HwParams) / sizeof(int64_t) };
extern const char *const HW_NAME[HW_FIELDS];
static inline int64_t *hw_field(HwParams *h, int i) { return (int64_t *)h + i; }
static inline int64_t hw_value(const HwParams *h, int i) { return ((const int64_t *)h)[i]; }

/* ---- the machine ---- */
typedef struct {
  int32_t sm; /* compute capability, 90 for sm_90; 0: no CUDA device */
  /* GPU: multiprocessors; of each: warps, blocks, registers, shared bytes; shared bytes that the system takes of each
   * block and the unit in which shared memory is given out */
  int32_t sms, max_warps, max_blocks, regs, shared_bytes, shared_reserve, shared_unit;
  double clock, peak, dram, l2; /* Hz, float32 operations per second, bytes per second */
} GpuMachine;
enum { GPU_WARP = 32, GPU_WARPGROUP = 128, GPU_SCHEDULERS = 4, GPU_REG_UNIT = 256, GPU_MAX_REGS = 255, GPU_MAX_THREADS = 1024 };
enum { GPU_GRID_YZ = 65535, GPU_CLUSTER = 8 }; /* blocks of a launch along y and along z; of a cluster, on all GPUs with them */
/* Shared bytes that a kernel may declare, and what one with more of them asks for at launch beyond its arrays. */
enum { GPU_SHARED_DECLARED = 48 << 10, GPU_SHARED_MORE = 1 << 10 };
enum { GPU_LINE = 128 }; /* bytes of a line of the caches */
/* What instructions there are is a matter of the compute capability; one table (machine.c) says since which one. */
typedef enum {
  GPU_LANES,        /* warps whose threads wait for each other, fences and atomics with a scope: products by lanes */
  GPU_TENSOR_CORES, /* mma.sync of float16 and of 8 bits, ldmatrix; not the m8n8k4 of 7.0, whose fragments are quite others */
  GPU_TENSOR_LONG,  /* mma.sync by 32 bytes along k, of bfloat16 and TF32, too */
  GPU_COPY_ASYNC,   /* cp.async */
  GPU_NAN_EXTREMES, /* max.NaN.f32 */
  GPU_TO_TF32,      /* cvt.rna.tf32.f32 */
  GPU_WARPGROUPS,   /* wgmma: of one generation alone */
  GPU_CLUSTERS,     /* of thread blocks: data centres' GPUs */
  GPU_OVERLAP,      /* a kernel may begin while the one before it ends: programmatic dependent launch */
  GPU_FEATURES
} GpuFeature;
int gpu_since(GpuFeature f);                          /* the first compute capability that has it: 80 */
bool gpu_has(const GpuMachine *m, GpuFeature f);      /* of a CUDA device */
/* The table's row of a compute capability: its own, else the newest one before it; 0: sm_90, what most measurements
 * behind the estimate are of. */
const GpuMachine *gpu_machine(int sm);
enum { GPU_MATRIX_ADDRESSES = 40 }; /* registers of a kernel on tensor cores beside its sums and fragments */
/* Operations per second of tensor cores by factors of that size; warpgroups: of wgmma, else of mma.sync; 0: none. */
double gpu_matrix_peak(const GpuMachine *m, int bytes, bool warpgroups);
extern const GpuMachine GPU_SMALL; /* for anything but CUDA: a small GPU of which nothing is known */

typedef struct {
  int32_t vector_bytes, registers; /* of its vector unit, as far as they hold accumulators */
} CpuMachine;
CpuMachine cpu_machine(const char *cpu); /* by the compiler's name for it; "": the processor of this machine */
/* Threads that kernels use: NESTSMITH_NUM_THREADS, TVM_NUM_THREADS, OMP_NUM_THREADS if they say so, else the cores this
 * process may run on: affinity and the quota of its container, one thread per physical core. */
int cpu_threads(void);

/* ---- levels of memory, the nearest first: what each holds (the last one: all) and bytes per second that can be read from it ---- */
typedef struct {
  const char *name;
  int64_t bytes; /* of all processors that kernels use; 0: all */
  double rate;   /* 0: to be measured */
} MemoryLevel;
enum { MEMORY_LEVELS = 4 };
int64_t cpu_cache(int level); /* bytes of one cache of level 1 (data), 2 or 3 of this machine; 0: not known, or none */
int cpu_memory(MemoryLevel out[MEMORY_LEVELS]); /* how many */
int gpu_memory(const GpuMachine *m, int64_t l2_bytes, MemoryLevel out[MEMORY_LEVELS]);

/* ---- targets: kind, machine, options ---- */
/* How exact functions are (07 §7.5.6). Aggressive changes compiler flags too: there are no values that are not numbers. */
enum { FAST_MATH_PRECISE, FAST_MATH_REFERENCE, FAST_MATH_AGGRESSIVE };
enum { TARGET_CPU_NAME = 32 };
/* Kernels of a network, where a GPU lets launches overlap: begin when the ones before have ended; begin while they end, and wait; let the
 * next ones begin, too, once half of their slices are done. */
enum { OVERLAP_NONE, OVERLAP_WAITS, OVERLAP_HALF };
typedef struct {
  TargetKind kind;
  HwParams hw;
  GpuMachine gpu;            /* of GPU targets */
  int32_t fast_math;         /* FAST_MATH_... */
  bool mali;
  int32_t overlap;           /* OVERLAP_... */
  char cpu[TARGET_CPU_NAME]; /* the processor that the C compiler makes code for, "": this one */
} Target;
static inline int target_overlap(const Target *t) {
  return t->kind == TG_CUDA && gpu_has(&t->gpu, GPU_OVERLAP) ? t->overlap : OVERLAP_NONE;
}
/* A target of that kind with its default parameters; sm: for CUDA. */
Target target_default(TargetKind kind, int sm);

/* What a device can tell about itself; zero fields are unknown. */
typedef struct {
  int64_t max_shared_memory_per_block, max_threads_per_block, warp_size, num_cores;
} HwQuery;
/* Default hardware parameters; NULL, or the name of the limit of a GPU that is neither given nor known. */
const char *hw_params_default(TargetKind kind, bool mali, bool adreno, const HwQuery *q, HwParams *out);

/* ---- how many blocks fit on a multiprocessor ---- */
typedef enum { GPU_BY_REGS, GPU_BY_SHARED, GPU_BY_WARPS, GPU_BY_BLOCKS } GpuBound;
typedef struct {
  int64_t blocks; /* 0: it cannot be launched */
  GpuBound limit;
  double occ;     /* warps that are there of those that could be */
} Occupancy;
int64_t gpu_shared_at_launch(int64_t bytes); /* of a CUDA kernel with so many in its arrays */
Occupancy gpu_occupancy(const GpuMachine *m, int64_t threads, int64_t regs, int64_t shared_bytes);

/* ---- whether a kernel fits, and which limit it breaks ---- */
typedef enum {
  FIT_OK,
  FIT_VTHREAD,
  FIT_FEW_THREADS,
  FIT_THREADS,
  FIT_LOCAL,
  FIT_SHARED,
  FIT_VECTOR,
  FIT_COUNT
} Fit;
typedef struct { /* bytes as double: estimates may be huge */
  double vthread, threads, local_bytes, shared_bytes, vector_bytes;
  double points; /* of the output, by which too few threads are told; 0: any number of threads will do */
} GpuNeeds;
/* The limits of kernels whose shared memory is asked for at launch: those on tensor cores, which need several slices there.
 * Who gives less than what may be declared means it. */
HwParams gpu_matrix_limits(const Target *t);
/* Which of n pieces of memory that are free (their bytes; 0: not free) an array of so many bytes takes, the shorter ones being
 * made longer; -1: none. */
int memory_reused(int n, const int64_t *free_bytes, int64_t bytes);
Fit gpu_fits(const HwParams *hw, const GpuNeeds *k); /* the first limit of the enumeration that is broken */
const char *fit_text(Fit f);                         /* "threads per block", ...; NULL for FIT_OK */
#endif
