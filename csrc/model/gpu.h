/* What closed forms say about the kernels of a candidate on a GPU: occupancy, waves, coalescing, bank conflicts. */
#ifndef NS_MODEL_GPU_H
#define NS_MODEL_GPU_H
#include "base/machine.h"

typedef struct {
  double waves, tail, fill, lane, sched;
} GpuWaves;
GpuWaves gpu_waves(const GpuMachine *m, int64_t grid, int64_t threads, int64_t blocks_per_sm);

/* n lanes access `bytes` each at byte addresses at[]: 32-byte sectors touched, and the worst conflict of the 32 banks. */
int gpu_sectors(int n, const int64_t *at, int bytes);
double gpu_bank_degree(int n, const int64_t *at, int bytes);

/* Accesses of a kernel; times: by a whole warp. */
typedef struct {
  double worst, sum, weight, times;
} GpuMean;
typedef struct {
  GpuMean read, write;               /* share of the touched sectors that is asked for, weighted by traffic */
  GpuMean read_degree, write_degree; /* bank conflicts of shared memory, weighted by times */
  double broadcasts, sectors;        /* reads of one address by all lanes; sectors of all accesses */
  double fill_bytes, wavefronts; /* copied from global to shared memory; cycles of one multiprocessor's shared memory */
} GpuMemory;
/* n lanes of a warp access `bytes` each at byte addresses at[], `times` times. Global: returns bytes of touched sectors. */
double gpu_global_access(GpuMemory *m, bool write, int n, const int64_t *at, int bytes, double times);
void gpu_shared_access(GpuMemory *m, bool write, int n, const int64_t *at, int bytes, double times);
double gpu_mean(const GpuMean *m, double none);

/* What the closed forms say of a kernel (facts.c). */
typedef struct {
  double blocks, threads, vthreads;   /* GPU; CPU: blocks = parallel iterations */
  double shared_bytes, local_elems;   /* per block; per thread */
  double ops;                         /* arithmetic of all points, 1 per operation */
  double global_bytes, unique_bytes;  /* moved, in 32-byte sectors (GPU) or lines; footprint */
  double shared_reads, shared_degree; /* shared-memory elements read by threads; mean bank conflict */
  double barriers;                    /* per block */
  double stages;                      /* GPU: of the pipeline that fills shared memory */
  bool matrix_possible;               /* matrix units could do its products, but do not */
  int matrix_bytes;                   /* a product by one step, of factors of so many bytes; 0: loops */
  bool matrix_lanes;                  /* by lanes, not by matrix units */
  double matrix_cycles;               /* of three terms: of a scheduler, beside a warp's products of a slice; 0: others */
  double matrix_waits;                /* of three terms by warpgroups, of which those are a block's: in which it has no products; 0: others */
  double matrix_loads;                /* instructions of these that load, of those that multiply */
  double matrix_teams;                /* that share a tile along k */
  int matrix_groups;                  /* slices at a time by instructions of warpgroups; 0: by others */
  bool matrix_wide;                   /* results pass through shared memory */
  double matrix_halves;               /* bytes of results that do, and that pairs of would fill but half a sector */
  bool matrix_alone;                  /* by warps, with one set of fragments: none are loaded while others are multiplied */
  double matrix_ahead;                /* slices that are copied before they are needed */
  double matrix_tiles, matrix_share;  /* slices of the sum that a block works through; share of ops that is not padding */
  double matrix_cluster;              /* blocks that add up a tile through each other's shared memory; 1: they do not */
  double matrix_line;                 /* bytes of a slice that lie together, of a line's */
  double matrix_sums;                 /* bytes of a block's sums */
  double matrix_parts;                /* bytes that a second kernel, or the last block of a tile, adds up; 0: there are none */
  double matrix_last;                 /* blocks of a tile, the last of which does; 0: not it */
  GpuMemory mem;                      /* GPU */
} KernelFacts;
/* The vector that describes all kernels of a state: STATE_N entries of model.h. */
void gpu_state_vector(const GpuMachine *m, int n, const KernelFacts *k, double seconds,
                      float *out); /* seconds: the estimate for all of them */
#endif
