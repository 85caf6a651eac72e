/* What a schedule may ask for. A tuning log comes from strangers, and a short record can stand for a program of any size:
 * each kind of growth has a bound here, with a name that error messages tell. `seen` is the largest value in the public logs
 * and in 12,800 candidates of our own searches (12 networks on CPUs, CUDA and Mali); the bounds are 16 times that
 * or more (a compile time: 8 times), so that no search meets one.
 */
#ifndef NS_LIMITS_H
#define NS_LIMITS_H
#include "base/base.h"

typedef enum {
  /* a line of a log, before it is replayed (record.c) */
  LIMIT_LINE,
  LIMIT_NESTING,
  LIMIT_TEXT,
  LIMIT_INPUTS,
  LIMIT_COSTS,
  LIMIT_STEPS,
  LIMIT_LIST,
  /* replay (steps.c) */
  LIMIT_ITERATORS,
  LIMIT_SPLIT,
  LIMIT_STAGES,
  LIMIT_UNROLL_STEP,
  /* lowering and code generation */
  LIMIT_VTHREADS,
  LIMIT_STATEMENTS,
  LIMIT_TEMPORARIES,
  LIMIT_SOURCE,
  LIMIT_MEMORY,
  /* compiling; $NESTSMITH_BUILD_TIMEOUT instead of both */
  LIMIT_COMPILE_RECORD,
  LIMIT_COMPILE,
  LIMIT_KINDS
} LimitKind;
typedef struct {
  const char *name, *what; /* what is counted, as in "70 steps" */
  int64_t most, seen;
} Limit;
const Limit *limit_of(LimitKind k);
void limit_check(Err *e, LimitKind k, int64_t value);                  /* raises NS_ERR_VALUE above the bound */
const char *limit_text(LimitKind k, int64_t value, char *out, size_t n); /* that message: value, bound and its name */
#endif
