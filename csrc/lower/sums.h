/* What the files of pass_sums share; not part of the folder's face. */
#ifndef NS_LOWER_SUMS_H
#define NS_LOWER_SUMS_H
#include "lower/util.h"

/* What a sum is made of, which says how many terms one accumulator may take. WIDE: in float64; BLOCK: it is a block of another. */
typedef enum { SUM_TERMS, SUM_LANES, SUM_BLOCKS, SUM_PRODUCTS, SUM_WIDE, SUM_BLOCK } SumKind;
typedef struct {
  Func *f;
  IrCtx *c;
  Arith *ar;
  MapU64 made;                       /* buffers of this pass, by what is added up in them */
  VEC(const Stmt *) path;            /* from the root to the statement at hand */
  VEC(BufferId) local, top;          /* to be allocated in the kernel; at the top of the function */
  const Stmt *target, *result;       /* the statement to be replaced, by what; NULL: none is left */
} Sums;

/* A statement `C[at] = C[at] + x`, perhaps with its value in a let, and the loops around it. */
enum { SUM_LOOPS = 48 };
typedef struct {
  int at;         /* in the path */
  bool sums;      /* it runs over terms; else over accumulators */
  int64_t extent; /* at most */
} SumLoop;
typedef struct {
  const Stmt *store;
  VarId let; /* 0: its value is no variable */
  BufferId buf;
  ExprId at, x;
  int lanes;
  SumKind kind;
  SumLoop loop[SUM_LOOPS]; /* innermost first, as far as the accumulator lives */
  int n, movable;          /* the first `movable` loops have no other access to buf in them */
  int64_t terms;           /* that one accumulator takes */
} Sum;

Stmt *sums_redirected(IrCtx *c, const Sum *x, Stmt *s, BufferId to, ExprId at); /* s with to[at] for the accumulator */
/* sums_lanes.c: CPU; a scalar sum along contiguous data gets an accumulator per lane. false: it is not one. */
bool sums_on_lanes(Sums *g, const Sum *x);
#endif
