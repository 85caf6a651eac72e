/* What a store touches: its accesses, their index lists, and regions by interval arithmetic with numbers. */
#ifndef NS_MODEL_ACCESS_H
#define NS_MODEL_ACCESS_H
#include "ir/ir.h"

enum { ACC_READ, ACC_WRITE, ACC_READ_WRITE };
enum { ACC_MAX_RANK = 16, ACC_MAX_LISTS = 16 };

typedef struct {
  BufferId buf;
  int type, bytes; /* bytes of one element */
  int32_t rank, n_lists;
  const ExprId *list[ACC_MAX_LISTS]; /* index lists */
  int64_t full[ACC_MAX_RANK];        /* logical extents of the buffer: accesses are in global coordinates */
} Access;

/* All accesses of a store: the stored buffer first, then the buffers read in visiting order, merged per buffer. */
int access_gather(IrCtx *c, const Stmt *store, Access *out, int max);
typedef uint16_t AccDims; /* a bit for each dimension of an access */
enum { ACC_ALL_DIMS = (1 << ACC_MAX_RANK) - 1 };
/* In which dimensions the index lists name each of n variables. */
void access_vars(IrCtx *c, const Access *a, int n, const VarId *v, AccDims *out);
int64_t access_step(IrCtx *c, const Access *a,
                    VarId v); /* elements that one step of v moves the access; 0: v does not occur */
int access_bytes(DType t);

/* Ranges of variables, and intervals of index expressions under them. */
typedef struct {
  IrCtx *c;
  int32_t stamp;
  Bound *var;
  struct RangeOf *known; /* by expression */
} Ranges;
void ranges_init(Ranges *r, IrCtx *c); /* no variable or expression may be made in c while r is in use */
void ranges_set(Ranges *r, VarId v, int64_t lo, int64_t hi);
void access_region(Ranges *r, const Access *a, AccDims of, double *dims); /* extents of the touched region in some dimensions */
#endif
