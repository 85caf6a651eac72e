/* What every candidate of a task must compute (reference.c). */
#ifndef NS_REFERENCE_H
#define NS_REFERENCE_H
#include "codegen/text.h"
#include "measure/measure.h"

/* Fills data[i], one block of memory in a per tensor of the DAG: small integers for inputs (given[i], if not NULL, instead),
 * what the unscheduled program computes on the CPU for outputs. te_exact says which of them every candidate must give to the
 * bit, as long as no input is given. */
void reference_data(Arena *a, const IrCtx *src, const TeDag *d, uint64_t seed, const void *const *given, void **data);
#endif
