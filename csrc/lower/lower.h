/* lower: from a bounded State to verified kernel IR. One pass = one file = one public function; pipeline.c lists them
 * in order. Spec 07 §7.2, §7.4, §7.7.4.
 */
#ifndef NS_LOWER_H
#define NS_LOWER_H
#include "ir/program.h"
#include "schedule/schedule.h"

/* ---- faces ---- */
/* LOW_FEATURES, LOW_ROWS: run pass_simplify once, LOW_ANALYSIS: pass_flatten, then extract. */
Func low_loops(State *s, const Target *t, int n_args, const TensorId *args, LowUse use); /* steps 1-4: multi-dimensional
                                                                                            loop program */
Program low_build(Func f, const char *name); /* steps 4b-15: kernels ready for code generation; raises what is illegal */
void low_check_legal(const Func *f);         /* raises f->illegal */
typedef struct {
  bool ok;
  const char *why;
  int64_t threads, shared_bytes, local_bytes, vthread, vector_bytes;
} GpuCheck;
GpuCheck low_gpu_check(Func f); /* 07 §7.4.1 on the flattened program; does not change f */
Func low_printable(Func f);     /* the passes of a printed program, in place of low_build */
/* Dimensions of buffers become those of the memory (joined.c). Per argument, the first dimension of each but the first of these. */
void low_join(Func *f, const int *n_begin, const int *const *begin);
char *low_primfn(Func f);       /* 07 §7.6: text of what low_loops made (consumes f) */

/* A cross-thread reduction is EVAL of a call to IN_ALLREDUCE until pass_allreduce: reducer id, number k of components,
 * k values, k loads [0] of the local buffers that receive the results, the thread variables reduced over. Loops bound
 * to threads are FOR nodes; after pass_storage a kernel reads BLOCK loops { shared ALLOCs { THREAD loops { local ALLOCs
 * { body } } } }. */

typedef struct {
  const char *name;
  void (*run)(Func *);
} LowPass;
void low_run(Func *f, void (*pass)(Func *)); /* a pass of those below, and verifies what it left where the context wants it */
const LowPass *low_passes(int *n); /* what low_build runs, in order; for tests that look at every step */

/* ---- passes, in pipeline order; each takes and returns the body of f ---- */
void pass_simplify(Func *f);
void pass_flatten(Func *f);
void pass_unify_threads(Func *f);
void pass_partition(Func *f); /* strips `likely` */
void pass_vectorize(Func *f);
void pass_vthread(Func *f);
void pass_double_buffer(Func *f);
void pass_storage(Func *f);
void pass_sums(Func *f);    /* long sums of float32 in blocks; CPU: scalar ones on lanes */
void pass_unroll(Func *f);  /* marks loops with pragma_unroll; replicates only where later passes need constants */
void pass_cleanup(Func *f); /* no-ops, unsafe selects, hoisting */
void pass_peel(Func *f);    /* guards that only the last iterations need */
void pass_registers(Func *f); /* CPU: vector statements, accumulators in registers */
void pass_prefetch(Func *f); /* CPU: the next chunk of large weights */
void pass_sync(Func *f);    /* barriers; raises when one would fall inside a divergent condition */
void pass_allreduce(Func *f);
void pass_intrinsics(Func *f); /* floor division, sigmoid, ... */
void pass_scalars(Func *f);    /* GPU: private arrays become variables */
void pass_overlap(Func *f);    /* CUDA: where a kernel waits for the launch before it, and lets the next one begin */
#endif
