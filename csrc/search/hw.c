/* Default hardware parameters. A CPU's are fixed but for the number of cores; a GPU's limits come from its driver, except
 * for mobile OpenCL GPUs, where fixed values are known to work. Spec 03 §1.2.
 */
#include "search/search.h"
#include <limits.h>
#include <stddef.h>

bool hw_params_default(TargetKind kind, bool mali, bool adreno, const HwQuery *q, HwParams *out, const char **why) {
  static const HwQuery NONE = {0};
  if (!q) q = &NONE;
  *why = NULL;
  if (kind == TG_CPU) {
    *out =
        (HwParams){.num_cores = q->num_cores > 0 ? q->num_cores : 1, .vector_unit_bytes = 64, .cache_line_bytes = 64};
    return true;
  }
  *out = (HwParams){
      .num_cores = -1, .vector_unit_bytes = 16, .cache_line_bytes = 64, .max_local_memory_per_block = INT_MAX};
  if (mali || adreno) {
    out->max_shared_memory_per_block = 32768;
    if (adreno) out->max_local_memory_per_block = 32768;
    out->max_threads_per_block = 256;
    out->max_vthread_extent = out->warp_size = 1;
    return true;
  }
  if (q->max_shared_memory_per_block <= 0)
    *why = "max_shared_memory_per_block";
  else if (q->max_threads_per_block <= 0)
    *why = "max_threads_per_block";
  else if (q->warp_size <= 0)
    *why = "warp_size";
  if (*why) return false;
  out->max_shared_memory_per_block = q->max_shared_memory_per_block;
  out->max_threads_per_block = q->max_threads_per_block;
  out->warp_size = q->warp_size;
  out->max_vthread_extent = q->warp_size / 4 > 0 ? q->warp_size / 4 : 1;
  return true;
}
