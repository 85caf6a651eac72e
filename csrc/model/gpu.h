/* What closed forms say about the kernels of a candidate on a GPU: occupancy, waves, coalescing, bank conflicts. */
#ifndef NS_MODEL_GPU_H
#define NS_MODEL_GPU_H
#include <stdint.h>

/* One multiprocessor's limits; what the driver does not tell comes from this table. */
typedef struct {
  int32_t capability, sms, max_warps, max_blocks;
  int64_t regs, shared_sm, reserve,
      unit;                     /* shared bytes: per multiprocessor, kept by the system per block, granularity */
  double clock, peak, dram, l2; /* Hz, operations per second, bytes per second */
} GpuMachine;
const GpuMachine *gpu_machine(int capability); /* 80 for sm_80; the next larger known one, the newest for 0 */

enum { GPU_BY_REGS, GPU_BY_SHARED, GPU_BY_WARPS, GPU_BY_BLOCKS };
typedef struct {
  int64_t blocks;
  int limit;
  double occ;
} Occupancy; /* blocks per multiprocessor, 0: cannot be launched */
Occupancy gpu_occupancy(const GpuMachine *m, int64_t threads, int64_t regs, int64_t shared_bytes);

typedef struct {
  double waves, tail, fill, lane, sched;
} GpuWaves;
GpuWaves gpu_waves(const GpuMachine *m, int64_t grid, int64_t threads, int64_t blocks_per_sm);

/* n lanes access `bytes` each at byte addresses at[]: 32-byte sectors touched, and the worst conflict of the 32 banks. */
int gpu_sectors(int n, const int64_t *at, int bytes);
double gpu_coalescing(int n, const int64_t *at, int bytes); /* in (0, 1]; 1 also for a broadcast */
double gpu_bank_degree(int n, const int64_t *at, int bytes);

/* The vector that describes all kernels of a state: STATE_N entries of model.h. */
typedef struct {
  double grid, threads, vthreads, shared_bytes, local_elems, ops, global_bytes, unique_bytes, shared_reads,
      shared_degree, barriers;
} GpuKernel;
void gpu_state_vector(const GpuMachine *m, int n, const GpuKernel *k, double seconds, float *out);
#endif
