/* What the files of the kernels on tensor cores, and by lanes, share (matrix.c tells how such a kernel works); not part of the folder's face. */
#ifndef NS_LOWER_MATRIX_H
#define NS_LOWER_MATRIX_H
#include "lower/util.h"

enum { MX_SUBS = 4 * MATRIX_DIMS + 1, MX_CHUNK = 16 }; /* dimensions of a product, and an axis of two of them; bytes that one copy has at most */

typedef struct {      /* a factor and its slice */
  ExprId cond, value; /* cond (0: true) ? value : 0, by variables of the dimensions */
  DType type;
  const MatrixIndex *rows;
  int block, lines, line;       /* rows of the block; lines of the slice and elements of one */
  int panel;                    /* of them side by side: a line is in so many pieces, each of which has its lines below it */
  int vec, pitch, mask, shift;  /* elements of one copy; from one line to the next; of the swizzle */
  bool by_k, rows_first; /* lines run along k; neighbouring threads copy neighbouring rows */
  bool at_once, async; /* vec elements are copied as they lie; and in flight, not by way of registers */
  /* cond asks for the first dimensions of k alone, taps of them, each of so many k: a bit of each in `inside`, one for a copy's row. 0: it
   * is asked with each copy */
  int taps, per_tap;
  BufferId shared, passing, inside;
  ExprId first; /* row that the block begins with */
} Side;

typedef struct {
  const LowMatrix *env;
  IrCtx *c;
  Arith *ar;
  const Stage *st;
  MatrixTile t;
  MatrixView v;
  Side a, b;
  int bytes, step, threads, tiles; /* of an element; of k by one instruction; tiles along k */
  int mi, ni, sets;                /* instructions of a warp's tile, of 16x8 sums for each warp; sets of fragments */
  /* a thread's sums; instructions have two halves of rows; of a row, what is kept and stored together, and how often there is that */
  int sums, halves, keeps, in_row;
  int team, ahead; /* threads that compute a warp's tile; slices that are copied before they are needed */
  VarId block[3], tid;
  ExprId batch, part, tile; /* of the block at hand */
  int64_t blocks; /* in all */
  bool clustered, late;
  BufferId acc, units; /* sums; what tensor cores add to: acc, or pairs of float16 */
  BufferId high, low, rest, left; /* parts of factors of three terms (matrix_three.c) */
  BufferId fa, fb, partial, place; /* place: of the slice at hand, where it is counted */
  /* teams, or blocks, that add up among themselves: sums of all of them in shared memory, how much of that has arrived from other
   * blocks, and the sum of these sums */
  BufferId shared, arrivals, total;
  BufferId passing;            /* results on their way to wide stores */
  BufferId counts, last; /* the last block adds up: how many of each tile are done; is it this one? 0: others add up */
} Mx;

/* ---- short words for what is made all the time ---- */
static inline ExprId num(Mx *x, int64_t n) { return ex_i32(x->c, n); }
static inline ExprId var(Mx *x, VarId v) { return ex_var(x->c, v); }
static inline ExprId tidy(Mx *x, ExprId e) { return ar_simplify(x->ar, e); }
static inline ExprId scaled(Mx *x, ExprId e, int64_t by) { return ex_mul(x->c, e, num(x, by)); }
static inline ExprId quot(Mx *x, ExprId e, int64_t by) { return ex_fdiv(x->c, e, num(x, by)); }
static inline ExprId rest(Mx *x, ExprId e, int64_t by) { return ex_fmod(x->c, e, num(x, by)); }
static inline ExprId less(Mx *x, ExprId e, int64_t n) { return ex_bin(x->c, IR_LT, e, num(x, n)); }
static inline ExprId both(Mx *x, ExprId a, ExprId b) { return !a ? b : !b ? a : ex_bin(x->c, IR_AND, a, b); }
static inline ExprId element(Mx *x, BufferId b, ExprId at) {
  at = tidy(x, at);
  return ex_load(x->c, b, ir_buffer(x->c, b)->type, 1, &at);
}
static inline Stmt *store(Mx *x, BufferId b, ExprId at, ExprId value) {
  at = tidy(x, at);
  return st_store(x->c, b, 1, &at, value);
}
static inline Stmt *call(Mx *x, Intrin in, int n, const ExprId *args) {
  return st_eval(x->c, ex_call(x->c, in, DT_I32, n, args));
}
static inline Stmt *seq(Mx *x, Stmt *a, Stmt *b) { return st_seq(x->c, 2, (Stmt *[]){a, b}); }
static inline BufferId array(Mx *x, const char *name, DType t, ScopeKind scope, int64_t n) {
  return ir_array(x->c, name, t, scope, n, false);
}

/* A loop whose body comes later. */
typedef struct {
  VarId v;
  int64_t n;
  ForKind kind;
} Loop;
static inline Loop loop(Mx *x, const char *name, int64_t n, ForKind kind) {
  Loop l = {ir_var_new(x->c, name, DT_I32, false), n, kind};
  ar_bind_range(x->ar, l.v, num(x, 0), num(x, n));
  return l;
}
static inline Stmt *around(Mx *x, Loop l, Stmt *body) {
  Stmt *s = st_for(x->c, l.v, num(x, 0), num(x, l.n), l.kind, body);
  if (l.kind >= FOR_BLOCK_X) s->u.loop.thread_obj = l.v;
  return s;
}

/* ---- matrix.c: is the kernel made of plain statements, by warpgroups? What of its tile a thread computes ---- */
bool mx_plain(const Mx *x);
bool mx_whole(const Mx *x); /* all slices of all parts of the sum are whole: none is copied behind the last */
bool mx_grouped(const Mx *x);
ExprId mx_lane(Mx *x);     /* the thread's, of its warp */
ExprId mx_warp_row(Mx *x); /* of A that the warp's tile begins with */
ExprId mx_warp_col(Mx *x); /* of B */
ExprId mx_instruction_row(Mx *x, ExprId i); /* of the rows of a tile that its instruction i computes, the first of those that the
                                               warp at hand keeps */
ExprId mx_acc_row(Mx *x, ExprId r); /* what the lane keeps in register r of an instruction: row in its 16x8 tile */
ExprId mx_acc_col(Mx *x, ExprId r); /* and column */
/* Of the block's tile: what the lane keeps of instruction i (the upper or lower half of its rows), the j-th neighbours of that. */
ExprId mx_row(Mx *x, ExprId i, ExprId half); /* i < mi, half < halves, j < in_row */
ExprId mx_col(Mx *x, ExprId j); /* of the first neighbour */
ExprId mx_sum(Mx *x, ExprId i, ExprId half, ExprId j); /* where that is among the sums; from there on */

/* n 8x8 matrices of a slice, from `row` and k on, into registers from `at` on. */
Stmt *mx_fragment(Mx *x, const Side *s, int n, BufferId to, ExprId at, ExprId slot, ExprId row, ExprId k);
ExprId mx_group_tile(Mx *x, const Side *s, BufferId in, ExprId slot, ExprId row, ExprId k); /* a warpgroup's, of that side's form */
Stmt *mx_group_wait(Mx *x, int under_way, BufferId c, int sums); /* sums: how many are read behind it */

/* ---- matrix_three.c: products of float32 as three of TF32, by warpgroups ---- */
bool mx_three(const Mx *x);
void mx_three_begin(Mx *x);
Stmt *mx_three_start(Mx *x); /* parts of slice 0, which is there */
Stmt *mx_three_products(Mx *x, ExprId kt, ExprId slot, ExprId after, Stmt *copies); /* and loads of slice kt + 1, and the rest of its B */
Stmt *mx_three_add(Mx *x); /* waits for them, adds their sums, and makes parts of A of what was loaded */

/* ---- matrix_lanes.c: products of float32 by the lanes themselves ---- */
bool mx_lanes(const Mx *x);
ExprId mx_team(Mx *x);   /* of those that share tiles along k, the thread's */
ExprId mx_member(Mx *x); /* its number in there */
void mx_lanes_begin(Mx *x); /* which way the slices lie is known */
ExprId mx_lane_row(Mx *x, ExprId r); /* of the warp's tile: the lane's r-th row */
ExprId mx_lane_col(Mx *x, ExprId c);
Stmt *mx_multiply_lanes(Mx *x, ExprId slot); /* a slice */

/* ---- matrix_slices.c: how slices of the factors lie in shared memory, and their copies ---- */
ExprId mx_loads(Mx *x, ExprId e); /* reads of tensors but the sum as loads */
int mx_place(Mx *x, const MatrixIndex *d, ExprId at, VarSub *sub); /* values of its dimensions at the position `at`: how many */
void mx_slices(Mx *x);            /* decides on both, and makes their buffers */
int64_t mx_panel_size(const Side *s);
int64_t mx_slice(const Side *s); /* elements of one */
ExprId mx_line_spot(Mx *x, const Side *s, ExprId slot, ExprId line, ExprId *e); /* where element e of a line would be if chunks
                                                                                  did not change places, less e that is left */
ExprId mx_spot(Mx *x, const Side *s, ExprId slot, ExprId line, ExprId e); /* where it is; line and e may be any expressions */
Stmt *mx_inside(Mx *x, const Side *s); /* which taps of the rows that a thread copies are elements; NULL: they are asked with each copy */
typedef enum { COPY, FETCH, PUT } CopyPart; /* all of it; into registers; from there */
Stmt *mx_copy(Mx *x, const Side *s, ExprId kt, ExprId slot, CopyPart part); /* of slice kt of the block's part of the sum */
Stmt *mx_commit(Mx *x); /* what was copied is one group; NULL: nothing is on its way */

/* ---- matrix_results.c: what becomes of the sums ---- */
Stmt *mx_results(Mx *x);     /* the block's sums, or parts of sums, are stored */
Stmt *mx_receives(Mx *x);    /* a cluster's block begins: others will send it their sums */
Stmt *mx_add_up_here(Mx *x); /* a block's teams, and a cluster's blocks, add up among themselves */
Stmt *mx_add_up(Mx *x);      /* the second kernel of a split sum */
double mx_parts(const Mx *x); /* elements of the workspace of parts */
Stmt *mx_last(Mx *x); /* the last block adds up, and stores the results */
#endif
