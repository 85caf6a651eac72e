/* interp: executes loop programs, GPU ones included, with race, bounds and barrier checking. Spec 07 §7.7.5 A.
 *
 * Values are computed in the declared types (float32 rounds after each operation). Findings: races, double writes,
 * accesses out of bounds, use of elements never written (tracked through arithmetic, so that copying an unused hole is
 * fine), barriers under divergent conditions, 32-bit overflow of indices, bad launch extents. Each finding names the
 * buffer, the element and the threads. Programs whose barriers are not placed yet (a Func with no barrier in it) run as
 * if a barrier stood between any two statements that touch shared memory.
 */
#ifndef NS_INTERP_H
#define NS_INTERP_H
#include "ir/program.h"
#include "te/te.h"
typedef struct {
  int32_t n;
  const char **finding; /* n = 0: clean; texts in the context's arena */
  int64_t steps;        /* statements executed */
  int64_t misaligned;   /* vector accesses off their natural alignment (slow, not wrong) */
} InterpReport;
/* args[i] points to the data of f.arg[i], row-major compact. Findings go into the report; raises only on misuse or step
 * limit. */
InterpReport interp_run(const Func *f, void *const *args, int64_t max_steps);
InterpReport interp_run_program(const Program *p, void *const *args, int64_t max_steps);
/* Reference evaluation of a DAG without any schedule, one element at a time (07 §7.7.6, 1). data[i] belongs to dag
 * tensor i. */
void interp_dag(IrCtx *c, const TeDag *d, void *const *data);
#endif
