/* ir: expressions, statements, buffers, and the index algebra on them. It knows nothing of schedules.
 *
 * Expressions are immutable and hash-consed: structurally equal expressions of one context have the same ExprId, so
 * equality is `==`. A context owns tables of expressions, variables, tensors, reducers and buffers; ids index them.
 * `ir_clone` gives a worker its own copy in which all ids of the original keep their meaning; `ir_mark`/`ir_release`
 * drop what one candidate added. A DAG built in a context can therefore be shared read-only by all clones.
 *
 * Spec: 01 §1 (expressions, folding), 01 §2.1 (text), 07 §7.3 (index algebra), 07 §7.7.2 (this design).
 */
#ifndef NS_IR_H
#define NS_IR_H
#include "base/machine.h"
#include "base/base.h"

typedef int32_t ExprId; /* 0 = none */
typedef int32_t VarId;  /* 0 = none */
typedef int32_t TensorId;
typedef int32_t BufferId;
typedef int32_t ReducerId;

/* ---- types ---- */
typedef enum { DT_INT, DT_UINT, DT_FLOAT, DT_HANDLE, DT_BFLOAT } DTypeCode; /* bool is DT_UINT with 1 bit */
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} DType;
DType dtype(DTypeCode code, int bits);
extern const DType DT_I32, DT_I64, DT_F32, DT_F16, DT_F64, DT_BOOL, DT_U8, DT_I8;
static inline bool dtype_eq(DType a, DType b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }
DType dtype_lanes(DType t, int lanes);
bool dtype_is_bool(DType t);
static inline bool dtype_is_float(DType t) { return t.code == DT_FLOAT || t.code == DT_BFLOAT; }
static inline bool dtype_is_int(DType t) { return t.code == DT_INT || t.code == DT_UINT; }
int dtype_bytes(DType t);                    /* of all lanes; bool counts 1 byte per lane */
void dtype_print(StrBuf *b, DType t);        /* "float32", "float32x4", "bool" */
bool dtype_parse(const char *s, DType *out); /* false if unknown */

/* ---- expression kinds ---- */
typedef enum {
  IR_NONE,
  IR_INT,
  IR_FLT,
  IR_STR,
  IR_VAR,
  IR_ADD,
  IR_SUB,
  IR_MUL,
  IR_DIV,
  IR_MOD, /* DIV, MOD truncate on integers */
  IR_FDIV,
  IR_FMOD,
  IR_MIN,
  IR_MAX,
  IR_EQ,
  IR_NE,
  IR_LT,
  IR_LE,
  IR_GT,
  IR_GE,
  IR_AND,
  IR_OR,
  IR_NOT,
  IR_CAST,
  IR_SELECT, /* SELECT evaluates both sides */
  IR_CALL,   /* sym = intrinsic (Intrin) */
  IR_LET,    /* sym = VarId; kids: value, body */
  IR_READ,   /* tensor element; sym = TensorId, kids = indices */
  /* sym = ReduceId into ctx reduces table; kids: min, extent of each axis; sources; inits; cond */
  IR_REDUCE,
  IR_LOAD, /* buffer element; sym = BufferId, kids = indices (1 after flattening) */
  IR_RAMP,
  IR_BCAST, /* kids: base, stride / value; lanes in type */
  IR_KIND_COUNT
} ExprKind;

/* Literals of floats: plain ones; the infinity of the sign (ex_neutral); a zero that is not folded away (ex_kept_zero). */
enum { FLT_PLAIN, FLT_INFINITE, FLT_KEPT };

typedef struct {
  uint8_t kind;
  uint8_t data; /* it, or what it is made of, is read from a tensor or buffer, perhaps through a let */
  uint16_t n;   /* number of kids */
  DType type;
  /* by kind, see above; FLT: FLT_...; ADD: 1 if it may be fused (ex_may_fuse) */
  int32_t sym;
  int32_t kid0; /* index of the first kid in the kid table */
  union {
    int64_t i;
    double f;
  } u; /* INT, FLT; STR: u.i indexes the string table */
} ExprNode;

/* Intrinsics are a data table (intrin.c): text name, arity, effect, per-target names live in codegen. */
typedef enum {
  IN_NONE,
  IN_EXP,
  IN_EXP2,
  IN_EXP10,
  IN_ERF,
  IN_TANH,
  IN_SIGMOID,
  IN_LOG,
  IN_LOG2,
  IN_LOG10,
  IN_LOG1P,
  IN_EXPM1,
  IN_ERFC,
  IN_TAN,
  IN_COS,
  IN_COSH,
  IN_SIN,
  IN_SINH,
  IN_ASIN,
  IN_ACOS,
  IN_ATAN,
  IN_ASINH,
  IN_ACOSH,
  IN_ATANH,
  IN_SQRT,
  IN_RSQRT,
  IN_POPCOUNT,
  IN_CLZ,
  IN_POW,
  IN_FMOD,
  IN_ATAN2,
  IN_NEXTAFTER,
  IN_HYPOT,
  IN_COPYSIGN,
  IN_LDEXP,
  IN_FLOOR,
  IN_CEIL,
  IN_ROUND,
  IN_TRUNC,
  IN_NEARBYINT,
  IN_FABS,
  IN_ISNAN,
  IN_ROUND_TF32,
  IN_IF_THEN_ELSE,
  IN_LIKELY,
  IN_SHL,
  IN_SHR,
  IN_BAND,
  IN_BOR,
  IN_BXOR,
  IN_BNOT,
  IN_REINTERPRET,
  /* value, extent: value if it is an index of an axis of that extent, else 0, and the run ends with an error. Lowering adds the number of
   * the site (Func.site) and, as the last argument, a LOAD of the report (lower/indices.c). */
  IN_INDEX,
  IN_ADDRESS, /* LOAD: where that element is; an argument of the next two */
  IN_EXTERN,  /* name, arguments: a function of C that a library has; CPUs */
  IN_PACKED,  /* name, arguments: a global function of Python; printed, never in code */
  /* appear only after lowering */
  IN_SYNC_SHARED, /* barrier of a block */
  IN_ALLREDUCE,   /* thread_allreduce; args in Stmt, see lower.h */
  IN_SHFL_DOWN,
  IN_SHFL,
  IN_PREFETCH, /* LOAD, the whole of an EVAL, on CPUs: the line of that element is wanted soon */
  /* of NVIDIA's GPUs, each the whole of an EVAL. A LOAD among the arguments names the first of the elements that are read or
   * written, which follow each other. */
  IN_COPY_ASYNC, /* n, LOAD shared, LOAD global, cond: n elements in flight, zeros if cond is false; 4, 8 or 16 bytes */
  IN_COPY_COMMIT, /* the copies of this thread so far are a group */
  IN_COPY_WAIT,   /* n: until at most the last n groups of this thread are in flight */
  /* Such copies by way of registers of 32 bits, where there are none in flight: n, LOAD local, LOAD global, cond; then n, LOAD shared,
   * LOAD local. */
  IN_COPY_FETCH,
  IN_COPY_PUT,
  /* n, transposed, LOAD local, LOAD shared: n registers; lane i names row i % 8, of 16 bytes, of matrix i / 8 */
  IN_FRAGMENT,
  /* Of a factor x of three terms (below): LOAD local hi, lo, x: both parts; LOAD local lo, x: lo where the unit finds hi by itself, by what it
   * cuts off x, rounded. They are made here, between the calls before and behind. */
  IN_PARTS,
  IN_MMA, /* MmaType, LOAD local c, a, b: c += a b, 16x8 by 32 bytes, spread over the lanes of a warp */
  /* of a warpgroup, whose products are under way until they are waited for:
   * MmaType, n, LOAD local c, LOAD shared a, LOAD shared b, line and panel of a, of b: c += a b, 64 x n by 32 bytes. Lines of
   * 32, 64 or 128 bytes hold elements along k, or along the rows if there are panels so many bytes apart; their chunks of 16
   * bytes change places with bits 7 and up of the address. Of TF32 a may be LOAD local, the 4 registers of a fragment of 16 rows that each
   * warp has; they stay as they are until the product has been waited for. */
  IN_GROUP_MMA,
  IN_GROUP_BEGIN,  /* registers that the next products use are ready */
  IN_GROUP_COMMIT, /* the products of this warpgroup so far are a group */
  /* n, LOAD local c, m: until at most the last n groups of this warpgroup are under way; the m sums from c on are read behind it */
  IN_GROUP_WAIT,
  IN_GROUP_SEES, /* products behind the next barrier see what this thread has stored in shared memory */
  IN_WARP_SYNC,  /* all lanes of a warp: each sees what the others have stored in shared memory */
  /* of blocks that are a cluster, the first three by all threads of each:
   * LOAD shared to, LOAD shared arrivals, bytes, late: so many will be sent to this block, in all, into the array that `to` is in, which nobody
   * else touches until they are there; arrivals, 8 bytes, counts them; late: something else was there before */
  IN_CLUSTER_BEGIN,
  IN_CLUSTER_HERE,    /* until all blocks of the cluster have begun: now others may be sent to */
  IN_CLUSTER_ARRIVED, /* LOAD shared arrivals: until all that is sent to this block is there, for all its threads to see */
  /* LOAD shared to, LOAD shared arrivals, n, values: one, two or four numbers of 4 bytes are put there in block n of the cluster */
  IN_CLUSTER_SEND,
  /* LOAD local, LOAD global, n, by all threads of a block: it is one more of the n blocks that the counter there counts, from 0. The
   * last sees what the others stored before, gets a 1 where others get a 0, and leaves 0 for the next launch. Both are int32. */
  IN_LAST_BLOCK,
  IN_LAUNCH_WAIT, /* until the launch before has completed; a thread touches no memory that it may write before */
  IN_LAUNCH_NEXT, /* the launch behind may begin, as far as this block is concerned */
  IN_COUNT
} Intrin;
enum { SEND_VALUES = 3 }; /* number of the first value among the arguments of IN_CLUSTER_SEND */
/* By the factors; a data table (intrin.c). TF32X3: hi = x rounded to TF32, lo = x - hi cut off; lo hi + hi lo are added to the MMA_SUMS sums
 * behind those of hi hi.
 * Integers are multiplied and added up exactly, but that sums wrap. Sums of 16 bits are two neighbours in a register of 32. */
typedef enum {
  MMA_F16,
  MMA_BF16,
  MMA_TF32,
  MMA_TF32X3,
  MMA_S8,
  MMA_U8,
  MMA_S8_U8,
  MMA_U8_S8,
  MMA_F16_SUMS,
  MMA_COUNT
} MmaType;
enum { MMA_SUMS = 4 }; /* of a fragment, in a lane */
typedef struct {
  DType a, b, sum;
  int terms;
} MmaInfo; /* terms: as in MatrixTile */
const MmaInfo *mma_info(MmaType t);
int mma_depth(MmaType t); /* of k: 32 bytes of a factor */
/* A product is one instruction, or `n` smaller ones that share its fragments. An instruction takes so many registers of a and of b, and
 * so many sums, of which its eights of rows each have two; part i those that begin with the ones named in part[i]. */
enum { MMA_PARTS = 4 };
typedef struct {
  int a, b, sums;
} MmaPart;
typedef struct {
  GpuFeature needs;
  const char *shape;
  int eights;
  MmaPart takes;
  int n;
  MmaPart part[MMA_PARTS];
} MmaForm;
const MmaForm *mma_form(MmaType t, const GpuMachine *m); /* the largest that the machine has; NULL: none */
int mma_since(MmaType t);                                /* the first compute capability that has one */
typedef enum { EFF_PURE, EFF_READ, EFF_SYNC } Effect;
typedef struct {
  const char *name;
  int arity;
  Effect effect;
} IntrinInfo;
const IntrinInfo *intrin_info(Intrin in);
/* What GNU C's vectors can compute, in the C target's programs: with elements of type t; a call (codegen/vecmath.c); e, of
 * which scalar parts may be anything. */
bool dtype_on_vectors(DType t);
bool intrin_on_vectors(Intrin in, DType t);
Intrin intrin_find(const char *name); /* "exp" or "tir.exp"; IN_NONE if unknown */

/* ---- context ---- */
typedef struct {
  const char *name;
  DType type;
  bool nonneg, data;
} IrVar;            /* nonneg: a size variable; data: a let of data */
typedef struct {    /* one output of an operation, as READ sees it */
  const char *name; /* printed name: op name, or NAME.v0 ... for several outputs */
  DType type;
  int32_t rank;
  const ExprId *shape;
  void *op;
  int32_t out; /* owner (TeOp *) and output number; opaque here */
  bool any_rank;
  TensorId for_; /* any_rank: reads with another number of indices are of placeholders that stand for_ it */
} IrTensor;
typedef struct { /* commutative reducer over n values */
  int32_t n;
  const VarId *lhs, *rhs;
  const ExprId *result, *identity;
  /* what programs compute in place of result, which is what texts and features show; NULL: result */
  const ExprId *code;
} IrReducer;
typedef struct {
  VarId var;
  ExprId min, extent;
} IrAxis;
typedef struct { /* payload of a REDUCE node: all outputs of one reduction share it but for value_index */
  ReducerId reducer;
  int32_t n_src;
  const ExprId *src;
  const ExprId *init; /* init NULL: identity */
  int32_t n_axis;
  const IrAxis *axis;
  ExprId cond;
  int32_t value_index;
  uint32_t hash;
  int32_t before; /* set by ex_reduce: the one before it with about the same hash */
} IrReduce;

typedef enum { SC_AUTO = -1, SC_GLOBAL, SC_SHARED, SC_WARP, SC_LOCAL } ScopeKind; /* storage rank */
typedef struct {
  const char *name;
  DType type;
  ScopeKind scope;
  bool external; /* external: an argument of the function */
  int32_t rank;
  const ExprId *min, *extent;                    /* realized region; min NULL for external buffers */
  const ExprId *stride;                          /* NULL: compact */
  ExprId size;                                   /* elements, set by flattening */
  int32_t align;                                 /* bytes; 0 becomes 64 */
  int32_t align_factor, align_offset, align_dim; /* storage_align; factor 0: none */
  TensorId tensor;                               /* the tensor it holds, 0 if none */
  bool double_buffer;
  int32_t join_dim;
  int64_t
      join_extent; /* external: elements along that dimension of the tensor that this is a part of; 0: it is whole */
  /* every access is at a constant position; CPU: of a piece, and pieces do not overlap; GPU: of elements */
  bool registers;
  bool
      keeps; /* a workspace that holds from launch to launch what its kernel leaves there, at first zeros: its memory is its own */
} IrBuffer;

typedef struct IrCtx IrCtx;
typedef struct {
  int32_t expr, kid, var, tensor, reducer, reduce, buffer, str;
} IrCounts; /* entries of each table */
typedef struct {
  IrCounts n;
  ArenaMark arena;
} IrMark;

IrCtx *ir_new(Err *e);
IrCtx *ir_clone(const IrCtx *src, Err *e); /* ids of src mean the same in the clone */
void ir_free(IrCtx *c);
IrMark ir_mark(const IrCtx *c);
void ir_release(IrCtx *c, IrMark m);
void ir_limit(
    IrCtx *
        c); /* from here on it may take what one schedule may (LIMIT_MEMORY); a release to a mark of before lifts that */
Arena *ir_arena(IrCtx *c); /* lives until ir_release/ir_free */
Err *ir_err(IrCtx *c);
typedef struct {
  ExprNode *node;
  ExprId *kid;
  IrVar *var;
} IrTables; /* the head of IrCtx, shown for inlining only */
/* pointer valid until the next node is made */
static inline const ExprNode *ir_node(const IrCtx *c, ExprId e) {
  return ((const IrTables *)(const void *)c)->node + e;
}
/* likewise */
static inline const ExprId *ir_kids(const IrCtx *c, ExprId e) {
  return ((const IrTables *)(const void *)c)->kid + ir_node(c, e)->kid0;
}
static inline ExprId ir_kid(const IrCtx *c, ExprId e, int i) { return ir_kids(c, e)[i]; }
static inline bool ir_is_arith(int kind) { return kind >= IR_ADD && kind <= IR_MAX; } /* of two numbers, to a third */
static inline bool ir_is_binary(int kind) { return kind >= IR_ADD && kind <= IR_OR; }
static inline bool ir_is_compare(int kind) { return kind >= IR_EQ && kind <= IR_GE; }
static inline bool ir_is_division(int kind) { return kind >= IR_DIV && kind <= IR_FMOD; }
static inline ExprKind ir_kind(const IrCtx *c, ExprId e) { return (ExprKind)ir_node(c, e)->kind; }
static inline DType ir_type(const IrCtx *c, ExprId e) { return ir_node(c, e)->type; }
int32_t ir_count(const IrCtx *c); /* ids are 1 .. count */
VarId ir_var_new(IrCtx *c, const char *name, DType t, bool nonneg);
static inline const IrVar *ir_var_info(const IrCtx *c, VarId v) { return ((const IrTables *)(const void *)c)->var + v; }
TensorId ir_tensor_new(IrCtx *c, IrTensor t); /* copies name and shape */
const IrTensor *ir_tensor(const IrCtx *c, TensorId t);
void ir_tensor_any_rank(IrCtx *c, TensorId t);
void ir_tensor_stand_in(IrCtx *c, TensorId t, TensorId for_);
void ir_tensor_reshape(IrCtx *c, TensorId t, int32_t rank, const ExprId *shape); /* raises if something reads it */
ReducerId ir_reducer_new(IrCtx *c, IrReducer r);
const IrReducer *ir_reducer(const IrCtx *c, ReducerId r);
BufferId ir_buffer_new(IrCtx *c, IrBuffer b); /* copies name and lists */
/* n elements of a temporary; flat: for programs after flattening, which takes its size */
BufferId ir_array(IrCtx *c, const char *name, DType t, ScopeKind scope, int64_t n, bool flat);
IrBuffer *ir_buffer(IrCtx *c, BufferId b);
bool ir_has_buffer(const IrCtx *c, int64_t b);
bool ir_has_tensor(const IrCtx *c, int64_t t);

/* ---- building (expr.c: raw; fold.c: matched and folded as 01 §1.6, §1.7) ----
 * The ex_ builders match operand types and fold exactly by the table of 01 §1.7, never more. */
ExprId ex_int(IrCtx *c, DType t, int64_t v); /* scalar; wraps to the width of t */
ExprId ex_i32(IrCtx *c, int64_t v);
ExprId ex_flt(IrCtx *c, DType t, double v);
ExprId ex_zero(IrCtx *c, DType t);
ExprId ex_str(IrCtx *c, const char *s);
ExprId ex_var(IrCtx *c, VarId v);
ExprId ex_bin(IrCtx *c, ExprKind k, ExprId a,
              ExprId b); /* ADD .. OR; raises on a type mismatch or division by literal 0 */
ExprId ex_not(IrCtx *c, ExprId a);
ExprId ex_cast(IrCtx *c, DType t, ExprId a);
ExprId ex_select(IrCtx *c, ExprId cond, ExprId t, ExprId f);
ExprId ex_call(IrCtx *c, Intrin in, DType t, int n, const ExprId *args); /* no checks, no folding */
ExprId ex_math(IrCtx *c, Intrin in, int n, const ExprId *args);          /* typed, with the rules of 01 §1.5 */
ExprId ex_if_then_else(IrCtx *c, ExprId cond, ExprId t, ExprId f);
ExprId ex_let(IrCtx *c, VarId v, ExprId value, ExprId body);
ExprId ex_let_new(IrCtx *c, VarId v, ExprId value,
                  ExprId body); /* v stands for a variable of the let's own: lets nest and are inlined */
ExprId ex_read(IrCtx *c, TensorId t, int n, const ExprId *idx);
ExprId ex_load(IrCtx *c, BufferId b, DType t, int n, const ExprId *idx);
ExprId ex_reduce(IrCtx *c, IrReduce r);
const IrReduce *ir_reduce(const IrCtx *c, ExprId e); /* payload of a REDUCE node */
ExprId ex_ramp(IrCtx *c, ExprId base, ExprId stride, int lanes);
ExprId ex_bcast(IrCtx *c, ExprId v, int lanes);
/* e with other kids, through the builders (folding); REDUCE keeps its axis variables */
ExprId ex_rebuild(IrCtx *c, ExprId e, const ExprId *kids);
ExprId ex_raw(IrCtx *c, ExprKind k, DType t, int32_t sym, int n, const ExprId *kids); /* hash-consed, nothing else */
bool ex_const_int(const IrCtx *c, ExprId e, int64_t *v);                              /* also through BCAST */
bool ex_is_int(const IrCtx *c, ExprId e, int64_t v);
bool ex_on_vectors(IrCtx *c, ExprId e);
ExprId dtype_min_value(IrCtx *c, DType t);
ExprId dtype_max_value(IrCtx *c, DType t);
/* The neutral element of minima (min) or maxima. Texts show the extreme finite value, as the reference has it; floats compute
 * with the infinity, so that a maximum over -inf is -inf. */
ExprId ex_neutral(IrCtx *c, DType t, bool min);
/* The number 0 or -0 as a network's author wrote it: no builder folds it away, as x * 0 would be (NaN is not 0), and texts show 0. */
ExprId ex_kept_zero(IrCtx *c, DType t, bool negative);
const char *ir_string(const IrCtx *c, ExprId e); /* of a STR */
double ir_flt(const IrCtx *c, ExprId e);         /* what a FLT computes with */
/* Minimum and maximum of floats: not a number if one of them is not. */
static inline double flt_min(double a, double b) { return a != a || a < b ? a : b; }
static inline double flt_max(double a, double b) { return a != a || a > b ? a : b; }
/* Operations on numbers of type t (number.c): ADD .. GE, comparisons give 0 or 1; bits; functions. Not rounded or wrapped to the
 * type. A divisor of integers is not 0. false: no such operation. */
int64_t num_int(ExprKind k, DType t, int64_t a, int64_t b);
double num_flt(ExprKind k, DType t, double a, double b);
bool num_bits(Intrin in, DType t, int64_t a, int64_t b, int64_t *out);
bool num_math(Intrin in, DType t, double x, double y, double *out);
/* What a TF32 unit takes of a float32, ten bits behind the first, which it cuts off; rounded, ties away from zero: IN_ROUND_TF32. */
double num_tf32(double x, bool rounded);
double
num_tf32_high(double x); /* of a product in three terms: ties to even; overflows beyond 2^115 (codegen/three.c) */
static inline ExprId ex_add(IrCtx *c, ExprId a, ExprId b) { return ex_bin(c, IR_ADD, a, b); }
static inline ExprId ex_sub(IrCtx *c, ExprId a, ExprId b) { return ex_bin(c, IR_SUB, a, b); }
static inline ExprId ex_mul(IrCtx *c, ExprId a, ExprId b) { return ex_bin(c, IR_MUL, a, b); }
/* The sum e of floats, marked: code may round a product and this addition of it once (a fused multiply-add). Reductions add up so.
 * Operations without the mark are each rounded, as they are written. Anything else stays as it is. */
ExprId ex_may_fuse(IrCtx *c, ExprId e);
static inline ExprId ex_fdiv(IrCtx *c, ExprId a, ExprId b) { return ex_bin(c, IR_FDIV, a, b); }
static inline ExprId ex_fmod(IrCtx *c, ExprId a, ExprId b) { return ex_bin(c, IR_FMOD, a, b); }

/* ---- text (print.c) : 01 §2.1 ---- */
void ex_print(IrCtx *c, StrBuf *b, ExprId e);
char *ex_text(IrCtx *c, ExprId e); /* in the context's arena */
typedef struct {                   /* what names stand for; 0: nothing, which is an error */
  ExprId (*var)(void *arg, const char *name);
  TensorId (*tensor)(void *arg, const char *name);
  void *arg;
} ExprNames;
/* An expression from such a text (parse.c); raises NS_ERR_VALUE, NS_ERR_TYPE. */
ExprId ex_parse(IrCtx *c, const char *text, const ExprNames *names);
typedef struct {
  const char *open, *mid, *close;
} BinaryText;
extern const BinaryText IR_BINARY[IR_KIND_COUNT]; /* how operators are written; open NULL: no operator */

/* ---- walking and rewriting (rewrite.c) ---- */
typedef void (*ExprVisit)(IrCtx *c, ExprId e, void *arg);
void ex_post_order(IrCtx *c, ExprId e, ExprVisit f, void *arg); /* each shared node once; order of 01 §3.1 */
typedef struct {
  VarId var;
  ExprId value;
} VarSub;
ExprId ex_subst(IrCtx *c, ExprId e, int n, const VarSub *sub); /* rebuilds with ex_ builders (folding) */
/* called post-order on the rebuilt node; returns its replacement */
typedef ExprId (*ExprMap)(IrCtx *c, ExprId e, void *arg);
ExprId ex_map(IrCtx *c, ExprId e, ExprMap f, void *arg);
bool ex_uses_var(IrCtx *c, ExprId e, VarId v);
typedef bool (*ExprTest)(IrCtx *c, ExprId e, void *arg);
bool ex_is_choice(const IrCtx *c, ExprId e);               /* a SELECT, or a call of if_then_else */
bool ex_any(IrCtx *c, ExprId e, ExprTest test, void *arg); /* is test true of e or of something below? */
/* Indices are small trees, and walking one is faster than remembering its parts; one with shared parts may be a huge tree.
 * So a walk visits this many nodes before it keeps the value of every further one. */
enum { EX_PLAIN_VISITS = 1000 };
/* Nodes of e written out, that is, with shared parts counted where they occur; EX_SIZE_MAX: that many or more. Texts and
 * generated code are that large. leaf(e) > 0: counted instead of e and what is below it; leaf may be NULL. */
enum { EX_SIZE_MAX = 1 << 20 };
typedef int32_t (*ExprLeaf)(IrCtx *c, ExprId e, void *arg);
int32_t ex_size(IrCtx *c, ExprId e, ExprLeaf leaf, void *arg);
/* copy between unrelated contexts */
ExprId ex_import(IrCtx *dst, const IrCtx *src, ExprId e, MapU64 *vars, MapU64 *tensors, MapU64 *memo);

/* ---- index algebra: bounds.c, canon.c, rules.c, prove.c; 07 §7.3 ---- */
typedef struct Arith Arith; /* facts about variables plus a stack of known conditions; lives in the context's arena */
typedef struct {
  int64_t lo, hi;
} Bound; /* BOUND_MIN / BOUND_MAX: unbounded */
#define BOUND_MIN INT64_MIN
#define BOUND_MAX INT64_MAX
typedef struct {
  int64_t coeff, base;
} Residue; /* e ≡ base (mod coeff); coeff 0: constant, 1: nothing known */

Arith *ar_new(IrCtx *c);
/* from now on x mod c takes the scales of x modulo c: the reference's form, of use to features only */
void ar_reduce(Arith *a);
void ar_bind_range(Arith *a, VarId v, ExprId min, ExprId extent);
void ar_bind_value(Arith *a, VarId v, ExprId value);
void ar_push(Arith *a, ExprId cond); /* nests; ar_pop undoes the last push */
void ar_pop(Arith *a);
Bound ar_bound(Arith *a, ExprId e);
Residue ar_residue(Arith *a, ExprId e);
ExprId ar_simplify(Arith *a, ExprId e); /* 07 §7.3.4, §7.3.5; any type of expression, loads and calls included */
bool ar_prove(Arith *a, ExprId cond);   /* true only if certain */
bool ar_prove_eq(Arith *a, ExprId x, ExprId y);

/* ---- statements (stmt.c): arena nodes, rewritten by passes ---- */
typedef enum { ST_SEQ, ST_FOR, ST_IF, ST_LET, ST_ALLOC, ST_STORE, ST_EVAL, ST_ATTR } StmtKind;
typedef enum {
  FOR_SERIAL,
  FOR_UNROLLED,
  FOR_VECTOR,
  FOR_PARALLEL,
  FOR_VTHREAD,
  FOR_BLOCK_X,
  FOR_BLOCK_Y,
  FOR_BLOCK_Z,
  FOR_THREAD_X,
  FOR_THREAD_Y,
  FOR_THREAD_Z
} ForKind;
static inline bool for_is_block(ForKind k) { return k >= FOR_BLOCK_X && k <= FOR_BLOCK_Z; }
static inline bool for_is_thread(ForKind k) { return k >= FOR_THREAD_X && k <= FOR_THREAD_Z; }
typedef enum {
  AT_UNROLL_STEP,
  AT_UNROLL_EXPLICIT,
  AT_PRAGMA,
  AT_DOUBLE_WRITE,
  AT_SYNCED /* the barriers of this kernel stand where they must; value: blocks along z that are a cluster */
} AttrKind;

typedef struct Stmt Stmt;
struct Stmt {
  StmtKind kind;
  union {
    struct {
      int32_t n;
      Stmt **at;
    } seq;
    /* thread_obj: 7.1.6, same number = same thread-axis object; pragma_unroll: emit #pragma unroll */
    struct {
      VarId var;
      ExprId min, extent;
      ForKind kind;
      Stmt *body;
      int32_t thread_obj;
      bool pragma_unroll;
    } loop;
    struct {
      ExprId cond;
      bool likely;
      Stmt *then, *other;
    } cond;
    struct {
      VarId var;
      ExprId value;
      Stmt *body;
    } let;
    struct {
      BufferId buf;
      Stmt *body;
    } alloc;
    struct {
      BufferId buf;
      int32_t n_idx;
      ExprId *idx;
      ExprId value;
    } store;
    struct {
      ExprId e;
    } eval;
    struct {
      AttrKind kind;
      int64_t value;
      const char *text;
      BufferId buf;
      Stmt *body;
    } attr;
  } u;
};
/* flattens nested sequences, drops NULL; may return NULL (empty) or the only child */
Stmt *st_seq(IrCtx *c, int n, Stmt **at);
Stmt *st_for(IrCtx *c, VarId v, ExprId min, ExprId extent, ForKind k, Stmt *body);
Stmt *st_if(IrCtx *c, ExprId cond, bool likely, Stmt *then, Stmt *other);
Stmt *st_let(IrCtx *c, VarId v, ExprId value, Stmt *body);
Stmt *st_alloc(IrCtx *c, BufferId b, Stmt *body);
Stmt *st_store(IrCtx *c, BufferId b, int n, const ExprId *idx, ExprId value);
Stmt *st_eval(IrCtx *c, ExprId e);
Stmt *st_attr(IrCtx *c, AttrKind k, int64_t value, const char *text, Stmt *body);
extern const char *const FOR_NAME[], *const SCOPE_NAME[]; /* by ForKind ("vthread", "blockIdx.x" ...) and ScopeKind */
void st_print(IrCtx *c, StrBuf *b, const Stmt *s, int indent); /* debugging text */
/* The parts of a statement, so that a walk that only recurses needs no switch: the i-th statement directly below (an absent
 * else is a slot that holds NULL), the i-th expression of s itself, the variable it binds. NULL behind the last. */
Stmt **st_kid(const Stmt *s, int i);
ExprId *st_expr(const Stmt *s, int i);
VarId *st_binder(const Stmt *s);
Stmt *st_own(IrCtx *c, const Stmt *s);  /* a copy whose parts may be changed; what is below is shared */
Stmt *st_copy(IrCtx *c, const Stmt *s); /* a copy of all of it */
/* enter returns false: nothing below is visited, nor left. leave: on the way out, NULL: not wanted. */
typedef bool (*StmtVisit)(IrCtx *c, const Stmt *s, void *arg);
void st_visit(IrCtx *c, const Stmt *s, StmtVisit enter, StmtVisit leave, void *arg);
bool st_calls(const IrCtx *c, const Stmt *s, Intrin in); /* is s the evaluation of a call to in? */
int st_cluster(IrCtx *c, const Stmt *s);                 /* blocks of the kernel that are a cluster; 1: it knows none */
bool st_waits(IrCtx *c, const Stmt *s);                  /* does it, or something below, wait for the launch before? */
bool st_synced(IrCtx *c, const Stmt *s);                 /* a kernel that is made with its barriers (AT_SYNCED)? */
bool st_any(IrCtx *c, const Stmt *s, StmtVisit test, void *arg);      /* is test true of s or of something below? */
void st_visit_exprs(IrCtx *c, const Stmt *s, ExprVisit f, void *arg); /* every node of the expressions of s itself */
/* s with other parts: expr (NULL: kept) for its expressions, then kid for the statements directly below, which decides how the
 * walk goes on. Copied where something changed; NULL if nothing is left. */
typedef Stmt *(*StmtRewrite)(IrCtx *c, Stmt *s, void *arg);
Stmt *st_rewrite(IrCtx *c, Stmt *s, StmtRewrite kid, ExprMap expr, void *arg);
/* Rebuilds changed spines only: each (NULL: keep) for every node of every expression, as in ex_map, and stmt (NULL: keep) for
 * every statement, post-order, which may return NULL to delete it. */
Stmt *st_map(IrCtx *c, Stmt *s, StmtRewrite stmt, ExprMap each, void *arg);
Stmt *st_subst(IrCtx *c, Stmt *s, int n, const VarSub *sub);
/* Raises NS_ERR_INTERNAL on a broken invariant, 07 §7.7.4. features: a program for these, which allocates computed
 * arguments. */
void ir_verify(IrCtx *c, const Stmt *s, bool flat, bool features);
/* Whether passes verify their programs in this context, in its clones, and where its DAGs are imported (te_dag_import). */
void ir_set_verify(IrCtx *c, bool on);
bool ir_verifies(const IrCtx *c);
#endif
