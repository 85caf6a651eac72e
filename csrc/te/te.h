/* te: tensors, operations and the compute DAG of a task. It knows nothing of loops.
 * Spec: 01 §1.3, §2.2, §3. Operations are immutable once made; a DAG is an ordered list of them.
 */
#ifndef NS_TE_H
#define NS_TE_H
#include "ir/ir.h"

typedef enum { TE_PLACEHOLDER, TE_COMPUTE } TeKind;
typedef struct {
  const char *name;
  VarId var;
  ExprId min, extent;
} TeAxis;
typedef enum { TA_INT, TA_FLOAT, TA_STR, TA_STRS, TA_TENSORS, TA_TUPLE } TeAttrKind; /* TA_TUPLE: in s, as JSON: numbers,
                                                                                         texts, null, nested lists */
typedef struct {
  const char *key;
  TeAttrKind kind;
  int64_t i;
  double f;
  const char *s;
  int32_t n;
  const char **strs;
  TensorId *tensors;
} TeAttr;

/* Statements that compute tensors (te.extern): buf are the buffers of their inputs and of their results, which stand for tensors; from[i]
 * says which of the tensors that the operation reads input i is. Several operations share one where shapes of results differ. */
typedef struct {
  const Stmt *body;
  int32_t n_in, n_out;
  const BufferId *buf;
  const int32_t *from;
} TeByHand;

/* A tensor intrinsic (te.decl_tensor_intrin): statements that compute what an operation computes, in buffers of its inputs and results.
 * reset sets results to the first values of a reduction, update adds to them; NULL: there are none. Per buffer, the variable of where its
 * first element is, and per dimension of a buffer, one after the other, that of its stride; 0: none. */
typedef struct {
  const char *name;
  const Stmt *body, *reset, *update;
  int32_t n_in, n_out;
  const BufferId *buf;
  const int32_t *from; /* as of TeByHand */
  const VarId *offset, *stride;
} TeIntrin;

typedef struct TeOp {
  TeKind kind;
  const char *name, *tag;
  int32_t n_out;
  TensorId *out; /* all outputs share one shape */
  int32_t n_axis;
  TeAxis *axis; /* spatial; one per dimension (also for placeholders: unnamed, none) */
  int32_t n_red;
  TeAxis *red;  /* reduce axes */
  ExprId *body; /* n_out bodies; NULL for a placeholder */
  int32_t n_attr;
  TeAttr *attr;
  int32_t n_in;
  TensorId *in; /* input tensors in the order of 01 §3.1 */
  const TeByHand *by_hand; /* what computes it; its body only says what it depends on. NULL: the body */
  const TeIntrin *intrin;  /* what computes the same; NULL: nothing is known */
  const struct TeOp *tensorized; /* an operation with an intrinsic, which computes what the loops from tensorized_at on do */
  int32_t tensorized_at;
  int32_t by_hand_first;   /* which of the results of by_hand out[0] is */
} TeOp;

/* ---- operations (op.c); memory: the context's arena ---- */
void te_reshape_placeholder(IrCtx *c, TensorId t, int rank, const ExprId *shape); /* before anything reads it */
TensorId te_stand_in(IrCtx *c, TensorId t, int rank); /* what is read in place of a tensor of another rank (any_rank) */
TeOp *te_placeholder(IrCtx *c, const char *name, DType t, int rank, const ExprId *shape);
TeOp *te_compute(IrCtx *c, const char *name, const char *tag, int n_axis, const TeAxis *axis, int n_body,
                 const ExprId *body, int n_attr,
                 const TeAttr *attr); /* derives reduce axes, inputs, output tensors; raises on misuse */
const TeOp *te_op_of(const IrCtx *c, TensorId t);
int64_t te_bytes(const IrCtx *c, TensorId t); /* of all its elements; -1: the shape is no constant, or too large */
bool te_is_reduction(const IrCtx *c, const TeOp *op);
/* Loop i of an operation: its data axes, then its reduce axes. */
static inline const TeAxis *te_axis(const TeOp *op, int i) { return i < op->n_axis ? &op->axis[i] : &op->red[i - op->n_axis]; }
const TeAttr *te_attr(const TeOp *op, const char *key); /* NULL if absent */
/* All operators of these tensors and of what they read, shared stages once per reader; *why: NULL, or why there is no count */
double te_count_operations(IrCtx *c, int n, const TensorId *out, const char **why);
/* The attribute of an operation all of which is computed, even what nobody reads: a last block that is full needs no guards. */
#define TE_WHOLE "whole_extent"
/* Attributes of TVM's: axes that tiling keeps whole; axes whose loops index constants; inputs that may be stored in another layout */
#define TE_NO_SPLIT "auto_scheduler_no_split_at_inner"
#define TE_CONST_AXES "auto_scheduler_simplify_const_tensor_indices"
#define TE_FREE_LAYOUT "layout_free_placeholders"
bool te_listed(int n, const TensorId *list, TensorId t);
int64_t te_const(const IrCtx *c, ExprId e);             /* value of a literal; raises otherwise, naming the remedy */

/* ---- DAG (dag.c) ---- */
typedef struct { /* 01 §3.6, per operation */
  bool simple_access, strictly_inlineable, needs_tiling, is_output, has_branch, has_expensive;
  bool large; /* with what it reads inlined: too large to be inlined itself */
} TeFlags;
typedef struct {
  int32_t producer, consumer, n_access;
  ExprId **index;
  int32_t rank;
  int32_t common_outer;
} TeEdge; /* op numbers */

typedef struct TeDag {
  int32_t n_ops;
  TeOp **op; /* stage order */
  int32_t n_tensors;
  TensorId *tensor; /* the list it was made from: inputs, then outputs */
  int32_t n_edges;
  TeEdge *edge; /* grouped by consumer, in reading order */
  TeFlags *flags;
  double flop; /* -1 if unknown */
} TeDag;

TeDag *te_dag(IrCtx *c, int n, const TensorId *tensors); /* orders, checks names, analyses; in c's arena */
/* The same in two parts: what only reads the context (no edges and flags yet), and what fills in the rest (access.c). */
TeDag *te_dag_ordered(Arena *a, const IrCtx *c, int n, const TensorId *tensors);
void te_analyse(IrCtx *c, TeDag *d);
TeDag *te_dag_of_outputs(IrCtx *c, int n, const TeOp *const *outputs); /* what they need, in the order of a schedule */
TeDag *te_dag_rewritten(IrCtx *c, int n_ops, TeOp **ops); /* given order (after CHR/CHW/RF); analysed anew */
TeDag *te_dag_import(IrCtx *dst, const IrCtx *src, const TeDag *d); /* analysed if d is */
int te_dag_find(const TeDag *d, const TeOp *op);              /* op number or -1 */
int te_dag_op_of(const IrCtx *c, const TeDag *d, TensorId t); /* number of the op that makes t */
int te_consumers(const TeDag *d, int op,
                 int *out); /* direct readers, ascending; returns their number; out may be NULL */
int te_producers(const TeDag *d, int op, int *out);    /* direct, in reading order */
int te_common_outer(const TeDag *d, int from, int to); /* over all paths */
int te_uses(IrCtx *c, const TeDag *d, int op, int producer); /* how often op's text, written out, reads from a producer */
/* Do all paths from `from` end at `to`, and does each operation on them read the element that it computes? Without `branches` each must
 * have one reader, as the reference asks; x * sigmoid(x) has two. */
bool te_elementwise_match(const IrCtx *c, const TeDag *d, int from, int to, bool branches);

/* What a reduction that threads can share (no initial value of its own, all results kept) finds side by side in the largest tensor
 * that it reads: terms of one result, or of several, neighbours along its last axis. */
typedef enum { TE_INNER_OTHER, TE_INNER_TERMS, TE_INNER_RESULTS } TeInner;
TeInner te_innermost(IrCtx *c, const TeDag *d, int op);
/* The axis along which neighbours among op's results come from neighbours in the only tensor that it reads, directly or through
 * operations like it; -1: none, or it is a reduction, or reads more. Of a transpose it is not the last one. */
int te_beside(IrCtx *c, const TeDag *d, int op);

/* Raises for reads that certainly leave their tensor (reads.c). Operations in stage order. */
void te_check_reads(IrCtx *c, int n_ops, TeOp *const *ops, const bool *is_output);

/* Whether every order of operations gives the same bits for tensor i of the DAG, if all inputs are integers of at most so
 * much (exact.c). */
enum { TE_EXACT_INPUT = 3 };
void te_exact(IrCtx *c, const TeDag *d, bool *exact);

/* ---- text and key (text.c) ---- */
char *te_dag_text(IrCtx *c, const TeDag *d, bool simple); /* 01 §2.2; unabridged */
char *te_workload_key(IrCtx *c, const TeDag *d);          /* 01 §3.3 */

/* ---- rewriting operations (used by CHR/CHW/RF/inline/layout rewrite) ---- */
TeOp *te_op_with_body(IrCtx *c, const TeOp *op, const ExprId *body); /* same name, axes, tag, attrs; new tensors */
/* A reducer whose expressions use variables of the operation (axes), with values for them; itself if they use none. */
ReducerId te_reducer_at(IrCtx *c, ReducerId r, int n, const VarSub *sub);
ExprId te_replace_tensor(IrCtx *c, ExprId e, TensorId from, TensorId to);
/* Each read of op's tensors becomes its body: op->body, or one that computes the same. */
ExprId te_inline_reads(IrCtx *c, ExprId e, const TeOp *op, const ExprId *body);
#endif
