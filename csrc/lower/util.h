/* Helpers shared by the passes of this folder; not part of its face. */
#ifndef NS_LOWER_UTIL_H
#define NS_LOWER_UTIL_H
#include "lower/lower.h"

typedef VEC(VarId) VarVec;

/* ---- util.c ---- */
bool low_expr_loads(IrCtx *c, ExprId e);              /* e reads a buffer or calls something impure */
bool low_expr_uses_any(IrCtx *c, ExprId e, MapU64 *vars); /* e mentions a variable that is a key of vars */
Stmt *low_subst(IrCtx *c, Stmt *s, VarId v, ExprId value);      /* one variable, everywhere below s; binders are kept */
Stmt *low_copy(IrCtx *c, const Stmt *s, VarId v,
               ExprId value);                         /* a copy with fresh binders, v replaced (v 0: nothing) */
int64_t low_step(Arith *a, IrCtx *c, ExprId e, VarId v); /* by how much e moves with v, without sign; -1: not a constant */
/* Do n loops, which move by these steps (that are lost) and run so often, come back to no place of `covered` elements? */
bool low_apart(int n, int64_t *step, const int64_t *count, int64_t covered);
bool low_is_gpu(const Func *f);
ExprId low_fold(IrCtx *c, ExprId e);              /* folds literals, decided selects included; no range facts */
const char *low_tag(ForKind k);                   /* "blockIdx.x" ..., "" for plain loops */
void low_verify(Func *f, const char *pass); /* ir_verify, where the context wants it; what it finds ends the process */

bool low_stores_itself(IrCtx *c, const Stmt *s); /* X[i] = X[i]; simplify.c */
/* s with other buffers and indices, as f changes them (false: it does not), of what it loads and stores; after flattening */
typedef bool (*LowAccess)(IrCtx *c, BufferId *b, ExprId *index, void *arg);
Stmt *low_move(IrCtx *c, Stmt *s, LowAccess f, void *arg);
ExprId low_shift(IrCtx *c, ExprId by, ExprId index); /* by + index; a vector's as a whole */
Stmt *low_at_once(IrCtx *c, int n, Stmt *const *store); /* n stores, whose values are computed before the first is stored */

/* Of a stage's body: reads of tensors but `keep` as loads; value k of a reducer. */
enum { LOW_MAX_RANK = 32 };
ExprId low_loads(IrCtx *c, ExprId e, const MapU64 *buf_of, const char *stage, TensorId keep);
ExprId low_combine(IrCtx *c, const IrReducer *r, bool code, int k, const ExprId *lhs, const ExprId *rhs);

/* Of a schedule's loops. Marks, per axis: it derives from data axes (1), from reduction axes (2), or from both (3). */
ForKind low_loop_kind(const Axis *x);
uint64_t *low_axis_marks(Arena *a, const Stage *st);

/* ---- by_hand.c: a stage that is made of statements ---- */
int low_hand_first(const State *s, int sid); /* the first stage that its statements compute; itself, if it is made of none */
Stmt *low_by_hand(const State *s, int sid, const MapU64 *buf_of);

/* ---- tensorize.c: what a tensor intrinsic does in the place of loops ---- */
typedef struct {
  IrCtx *c;
  Arith *ar;
  const Stage *st;
  const TeOp *op; /* that has the intrinsic */
  const MapU64 *buf_of;
  const ExprId *body;      /* of the stage */
  const ExprId *lo, *size; /* per root axis: first value of the part, and how many */
  int n_sub;
  const VarSub *sub; /* what loops are called, and their values there */
} LowTensorize;
Stmt *low_tensorize(const LowTensorize *x, const Stmt *part); /* raises where the intrinsic computes something else */

/* ---- whole.c: may the tile of a stage be filled, or added up, beyond the edge of its tensor? ---- */
bool low_copies_whole(IrCtx *c, const State *s, const MapU64 *buf_of, ExprId *const *body, int sid);
bool low_reduces_whole(IrCtx *c, const State *s, Arith *ar, const MapU64 *buf_of, ExprId *const *body, int sid, ExprId src,
                       const ExprId *at);
bool low_zeros_add_nothing(IrCtx *c, const IrReducer *op, ExprId src, const IrAxis *x); /* then axis x may go on, too */

/* ---- indices.c ---- */
ExprId **low_check_indices(State *s, Func *f); /* per stage its body with checked indices, NULL: as it was; f: learns of the sites */
BufferId low_report(Func *f); /* after all passes: allocates the report and passes it to each check; 0: there are no checks */

/* ---- legal.c ---- */
/* Why no program of s can be right; NULL: it can. ar knows the ranges of loops; is_arg, per stage: it stores into an
 * argument; body, per stage: with inlined stages substituted, or NULL. */
const char *low_illegal(State *s, const Target *t, Arith *ar, const bool *is_arg, ExprId *const *body);

/* ---- matrix.c: the kernel of a stage whose step asks for tensor cores ---- */
typedef struct {
  State *s;
  const Target *t;
  LowUse use;
  const MapU64 *buf_of;  /* tensor -> buffer */
  ExprId *const *body;   /* state_inlined_bodies */
  const bool *is_arg;    /* per stage: it stores into an argument; NULL: not known */
} LowMatrix;
Stmt *low_matrix(const LowMatrix *env, int stage);

/* New allocations of a kernel: shared ones below its block loops, local ones below its thread loops. */
Stmt *low_place(IrCtx *c, Stmt *kernel, int n_shared, const BufferId *shared, int n_local, const BufferId *local);
Stmt *low_barrier(IrCtx *c); /* of the threads of a block */
Stmt *low_each_kernel(IrCtx *c, Stmt *s, StmtRewrite f, void *arg); /* f on every outermost thread loop */
/* st_rewrite under facts: a tells the range of a loop to what is below it, and to the first branch of an if its
 * condition. */
Stmt *low_rewrite(IrCtx *c, Arith *a, Stmt *s, StmtRewrite kid, ExprMap expr, void *arg);

/* ---- simplify.c ---- */
Stmt *low_simplify(IrCtx *c, Arith *a, Stmt *s);          /* under the facts of a; NULL if nothing is left */
void low_bind_loop(IrCtx *c, Arith *a, const Stmt *loop); /* tells a the range of a loop variable */

/* ---- vthread.c: what depends on a virtual thread ---- */
typedef struct {
  IrCtx *c;
  bool flat, grew;
  Arith *ar;
  MapU64 var, buf, alloc; /* touched variables and buffers; buffers allocated in the region, touched or not */
} LowTouched;
LowTouched low_touched(IrCtx *c, const Stmt *s, VarId t, bool flat); /* closed over s; flat: after flattening */
bool low_is_touched(LowTouched *k, BufferId b);

/* ---- vectorize.c: expressions over the lanes of one vector ---- */
typedef struct {
  IrCtx *c;
  Arith *ar;
  VarId lane; /* in [0, lanes), bound in ar */
  int lanes;
  bool any_address;   /* CPU: unit ramps need no alignment */
  bool masks;         /* the value has choices of each lane that compilers do not make vectors of */
  bool fail, gathers; /* fail: e is no vector expression; gathers: it has an access that is neither contiguous nor uniform */
} LowWiden;
ExprId low_widen_index(LowWiden *w, ExprId e, int elem_bytes); /* a ramp, or a scalar if the lane does not matter */
ExprId low_widen_value(LowWiden *w, ExprId e); /* has w->lanes lanes unless w->fail */

/* ---- sweep.c: loops that go over the elements of a buffer, in steps that never change ---- */
enum { LOW_SWEPT = 24 };
typedef struct {
  VarId var;
  int64_t min, extent, step;
} SweepLoop;
typedef struct {
  IrCtx *c;
  Arith *ar;
  ExprId origin; /* the index of the element; of the first one, as far as loops are added */
  SweepLoop at[LOW_SWEPT]; /* those of more than one iteration */
  int n;
} Sweep;
bool low_sweep(Sweep *w, const Stmt *loop); /* adds a loop; false: its steps or bounds are not numbers */
bool low_sweep_same(Sweep *a, Sweep *b);    /* the same elements? Both are sorted by it, and by the next one */
int low_sweep_values(Sweep *from, Sweep *to, VarSub *value); /* variables of `to` where it is at the element of `from`; -1 */

/* ---- storage.c: the sharing plan, also used by the GPU check ---- */
typedef struct {
  BufferId buf;
  int64_t bytes;
  int32_t first, last;
  int32_t shared_with, depth;
} LiveBuf;                                            /* program points of first and last access */
int64_t low_plan_shared(IrCtx *c, int n, LiveBuf *b); /* total bytes; fills shared_with (index, -1: own storage) */
enum { LOW_CPU_STACK_BYTES = 32 << 10 };              /* larger temporaries of a CPU program are workspaces */
typedef struct {
  int32_t n;
  LiveBuf *at;
} LiveBufs;
LiveBufs
low_lives(IrCtx *c, const Stmt *s,
          ScopeKind scope); /* allocations of that scope below s with their lives; either form. SHARED: s is a kernel */
int64_t low_aligned(const IrBuffer *b, int64_t n); /* n elements from one entry of the aligned dimension to the next: how many */
int64_t low_buffer_bytes(IrCtx *c, BufferId b); /* of a temporary, either form; -1: not constant */
#endif
