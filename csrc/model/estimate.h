/* Closed forms over a bounded, complete state, and the time that they estimate: what a state costs without lowering it. */
#ifndef NS_MODEL_ESTIMATE_H
#define NS_MODEL_ESTIMATE_H
#include "model/gpu.h"
#include "schedule/schedule.h"

enum { FACT_KERNELS = 16, FACT_READS = 12 };
typedef struct {
  int n;
  KernelFacts k[FACT_KERNELS];
  const char *invalid; /* NULL or the broken limit */
  double max_vector_bytes;
} StateFacts;
StateFacts state_facts(const Target *t, State *s); /* facts.c */
/* STATE_N entries of model.h: 04 §6.4; on a CPU the estimated time alone. */
void facts_vector(const Target *t, const StateFacts *f, float *out);
double estimate_seconds(const Target *t, const StateFacts *f); /* estimate.c: 04 §6.3; CPU: roofline */
/* as a score: millions of runs per second; -INFINITY: a limit is broken */
double estimate_of(const Target *t, const StateFacts *f);
#endif
