/* Private to the closed forms: how a stage is seen (facts.c), and the part for GPUs (facts_gpu.c). */
#ifndef NS_MODEL_FACTS_H
#define NS_MODEL_FACTS_H
#include "model/estimate.h"
#include "model/lanes.h"

enum { MAX_AXES = 60, MAX_LOOPS = 192, MAX_DIMS = 8, MAX_LANE_AXES = 256 };
typedef struct {
  int64_t ext;
  uint64_t mask;
  uint8_t kind, ann;
  bool own, same;
  int32_t stage;
} Loop; /* mask: axes of its stage that the loop moves. same (on CPUs): these are axes of the stage that is looked at */
typedef struct {
  TensorId tensor;
  int rank;
  uint64_t mask[MAX_DIMS];
  int64_t dim[MAX_DIMS];
  bool linear[MAX_DIMS];
  Lanes at; /* GPU: element of the tensor's memory in each lane, all loops but threads at their minimum */
} ReadFacts;
typedef struct {
  State *s;
  int stage, n_loop, n_access;
  Loop loop[MAX_LOOPS]; /* enclosing loops first, then the stage's own; outermost first */
  ReadFacts access[FACT_READS];
  double ops, selects;
  LaneEnv *lanes;            /* NULL: not wanted */
  const Lanes *thread[AN_COUNT]; /* by annotation: number of the thread in each lane */
  /* axis: of all axes, scratch; per root axis; the element that the stage writes */
  Lanes axis[MAX_LANE_AXES], root[MAX_AXES], own;
} View;

int64_t facts_extent(const State *s, const Axis *x);
void view_stage(View *v, State *s, int stage, LaneEnv *lanes);
int facts_bytes(const State *s, TensorId t);            /* of an element */
ScopeKind facts_scope(const State *s, TensorId t);
double facts_region(const State *s, int stage);         /* elements of the stage's buffer */
bool facts_reduces(const View *v);                      /* does the stage reduce? */

typedef struct {
  const Target *t;
  StateFacts *f;
  KernelFacts *k;
  LaneEnv lanes;
  int n_lanes;     /* threads of warp 0 */
  int64_t ext[3];  /* threads of the kernel in x, y, z, as far as its stages bind them */
  Lanes thread[3]; /* their numbers */
  int n_seen;
  TensorId seen[FACT_READS]; /* tensors in global memory whose bytes are counted */
} Gpu;
void facts_cpu_stage(const Target *t, KernelFacts *k, View *v, State *s, int stage); /* k->ops: cycles of a core */
void facts_gpu_begin(Gpu *g, View *v, State *s, int stage); /* a kernel: its threads, from its root stage */
void facts_gpu_stage(Gpu *g, View *v, State *s, int stage);
bool facts_matrix(Gpu *g, State *s, int stage); /* a kernel on tensor cores, whole; false: it is no product */
void facts_gpu_end(Gpu *g); /* means of the kernel, limits of the device */
#endif
