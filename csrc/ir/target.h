/* The machine a program is made for: kind and the eight hardware parameters (spec 03 §1). */
#ifndef NS_TARGET_H
#define NS_TARGET_H
#include <stdbool.h>
#include <stdint.h>
typedef enum { TG_CPU, TG_CUDA, TG_OPENCL } TargetKind;
typedef struct {
  int32_t num_cores, vector_unit_bytes, cache_line_bytes;
  int64_t max_shared_memory_per_block, max_local_memory_per_block;
  int32_t max_threads_per_block, max_vthread_extent, warp_size;
} HwParams;
enum { TARGET_CPU_NAME = 32 };
/* sm: 90 for sm_90; fast_math: 0 precise, 1 reference (07 §7.5.6); cpu: the processor that the C compiler makes code for, "": this one */
typedef struct { TargetKind kind; HwParams hw; int sm; int fast_math; bool mali; char cpu[TARGET_CPU_NAME]; } Target;
#endif
