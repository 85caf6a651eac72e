/* What template tuners learn from: the loops of a program and the buffers touched in each; 06 §2.9. */
#ifndef NS_MODEL_ITERVAR_H
#define NS_MODEL_ITERVAR_H
#include "lower/lower.h"

/* One access to a buffer as a loop sees it. name: the buffer's and how many accesses of that name came before. */
typedef struct {
  const char *name;
  int32_t access; /* its number in the program */
  int64_t stride, mod, count, reuse, thread_count, thread_reuse;
} Touch;
typedef struct {
  const char *name;                          /* of its variable */
  int64_t length, nest, top_down, bottom_up; /* length -1: not constant */
  ForKind kind;
  int64_t add, mul, div; /* of floats, in its innermost statements */
  VEC(Touch) touch;      /* by name */
} LoopFact;
typedef struct {
  int32_t n;
  LoopFact *at; /* in the order in which the program enters them */
} LoopFacts;
/* Of the loop program that low_loops(…, LOW_ANALYSIS) makes and pass_flatten has flattened. Memory: the context's arena. */
LoopFacts itervar_facts(const Func *f);

typedef VEC(float) FloatVec;
void itervar_vector(Arena *a, const LoopFacts *l, FloatVec *out);            /* a run of numbers per loop */
void curve_vector(Arena *a, const LoopFacts *l, int samples, FloatVec *out); /* 8 * samples numbers per innermost buffer */
#endif
