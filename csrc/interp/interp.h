/* interp: executes loop programs, GPU ones included, with race, bounds and barrier checking. Spec 07 §7.7.5 A. */
#ifndef NS_INTERP_H
#define NS_INTERP_H
#include "lower/lower.h"
typedef struct { int32_t n; const char **finding; int64_t steps; } InterpReport; /* n = 0: clean */
/* args[i] points to the data of f.arg[i], row-major compact. Findings go into the report; raises only on misuse or step limit. */
InterpReport interp_run(const Func *f, void *const *args, int64_t max_steps);
InterpReport interp_run_program(const Program *p, void *const *args, int64_t max_steps);
/* Reference evaluation of a DAG without any schedule, one element at a time (07 §7.7.6, 1). data[i] belongs to dag tensor i. */
void interp_dag(IrCtx *c, const TeDag *d, void *const *data);
#endif
