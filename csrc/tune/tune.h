/* tune: from a candidate to something that can be built and run, and choosing what to tune next.
 *
 *   source.c     a step list becomes source text and a manifest
 *   schedule.c   the task scheduler's arithmetic (gradients)
 *
 * The session itself (search, build and run overlapping, callbacks, progress) is driven from Python, which only moves
 * handles; all work on candidates happens in search and here, without the interpreter lock. Spec 03 §5, 05 §7.10.
 */
#ifndef NS_TUNE_H
#define NS_TUNE_H
#include "codegen/codegen.h"
#include "search/search.h"

typedef struct { const char *source, *manifest; const char *why; } TuneSource; /* why: the GPU limit that is broken, or NULL */
/* In c's arena. layout: 0 none, 1 insert transform stage, 2 pre-transformed. Raises what replaying or lowering raises. */
TuneSource tune_source(IrCtx *c, const TeDag *d, const Target *t, int n, const Step *steps, int layout, const char *name);

/* ---- task scheduler (schedule.c): 03 §5.3 ---- */
typedef struct {
  double best;          /* seconds; 1e10: none yet */
  int32_t rounds;       /* rounds spent */
  int32_t n_history; const double *history; /* best after each round */
  double flop, chain;   /* operations; d objective / d best */
  double group_flops;   /* best throughput in its group, 0: no group */
  bool dead;
} SchedTask;
void sched_gradients(int n, const SchedTask *t, double alpha, double beta, int window, double *out); /* 0 for dead tasks */
int sched_pick(int n, const SchedTask *t, const double *gradient, Rng *r); /* first smallest; all equal: a live task at random; -1: all dead */
#endif
