/* schedule: stages, iterators, transform steps, replay, bound inference, text and records.
 * One list of steps has three faces (te.create_schedule, the auto-scheduler's State, AutoTVM templates); all use the
 * structures here. A State is a value: a step list plus what replaying it gives. Spec chapter 02; 07 §7.1, §7.2.1-3.
 *
 * A stage keeps every axis ever made (root axes first), the relations between them, and the current leaf order. A leaf
 * is what users call an iterator: it has the state name ("i.0@j.0@") and the schedule name ("i.outer.j.outer.fused").
 */
#ifndef NS_SCHEDULE_H
#define NS_SCHEDULE_H
#include "base/machine.h"
#include "program/program.h"
#include "te/te.h"

typedef enum { IT_SPACE, IT_REDUCE, IT_MIXED, IT_SPECIAL } IterKind;
typedef enum {
  AN_NONE,
  AN_UNROLL,
  AN_VECTORIZE,
  AN_PARALLEL,
  AN_VTHREAD,
  AN_BLOCK_X,
  AN_THREAD_X,
  AN_BLOCK_Y,
  AN_THREAD_Y,
  AN_BLOCK_Z,
  AN_THREAD_Z,
  AN_TENSORIZE,
  AN_COUNT
} Annotation;
extern const char *const AN_WORD[AN_COUNT]; /* "for", "unroll", ... as in the state text */
static inline bool ann_is_block(int a) { return a == AN_BLOCK_X || a == AN_BLOCK_Y || a == AN_BLOCK_Z; }
static inline bool ann_is_thread(int a) { return a == AN_THREAD_X || a == AN_THREAD_Y || a == AN_THREAD_Z; }

typedef struct {
  const char *name;  /* state name, cleaned */
  const char *sname; /* schedule name, not cleaned */
  /* root axes: the operation's variable; leaves: the loop's, set by bound inference; bound: the thread's */
  VarId var;
  VarId handle; /* what te users call it (IterVar.var); 0 until somebody asks (axis_handle) */
  uint8_t kind, ann;
  bool ranged;        /* range known in the state */
  int64_t smin, sext; /* state range (constants); sext < 0: known to be symbolic */
  ExprId min, extent; /* set by bound inference, for every axis; 0 before */
  /* bound thread-axis object (7.1.6) = its variable, 0 none; fresh per AN step, shared objects for te.bind */
  int32_t thread_obj;
  int32_t n_orig;
  const int32_t *orig; /* fused from these axes of the stage (layout rewrite) */
  int32_t used_by;     /* 1 + the relation that takes this axis as input; 0: a leaf */
  int32_t rebase_of;   /* 1 + root axis whose loop this is after normalisation (starts at 0); 0: none */
  int32_t align_factor, align_offset;
  int32_t pragma_unroll;
  bool has_pragma_unroll, skip_region, explicit_unroll;
  TensorId intrin; /* AN_TENSORIZE: made by the operation whose intrinsic computes the loops from here on */
} Axis;            /* align_*: storage_align, on root data axes only (factor 0: none) */

typedef enum { REL_SPLIT, REL_FUSE, REL_REBASE, REL_SINGLETON } RelKind;
typedef struct {
  RelKind kind;
  int32_t parent, outer, inner; /* axes; FUSE: outer, inner -> parent */
  ExprId factor, nparts;
} Rel; /* SPLIT: exactly one of factor, nparts is non-zero */

typedef enum { AT_ROOT, AT_INLINED, AT_ITER } ComputeAt;
/* How a kernel multiplies matrices on tensor cores, or by lanes (matrix.c): what a block and a warp compute, the slice of the sum that
 * is in shared memory at a time, and how many slices are there or in flight. transposed: the factor that the last dimension of the
 * result belongs to gives the rows. split: blocks that share the sum of a tile, each a part of k; they, or a second kernel, add up.
 * terms: products of TF32 that a product of float32 is the sum of; 0: by lanes, which multiply float32 themselves; 2: of float16, which
 * are added up in float16 (MATRIX_HALF_SUMS). warpgroups: 0: each
 * tile of a warp is a warp's (mma.sync); else a warpgroup's (wgmma), which multiplies so many slices at a time, 1 or 2. wide: results
 * pass through shared memory, so that each thread stores neighbours, and a warp lines of them. teams: of lanes: so many warps share a
 * warp's tile, each a part of k of every slice. last: of blocks that share a sum the one that is done last adds up, in the same kernel. */
enum { MATRIX_HALF_SUMS = 2 }; /* terms */
enum { MATRIX_DEEP = 64 };     /* so much along k is added up in the unit at most, of large products of three terms */
enum { MATRIX_FIELDS = 13, MATRIX_TERMS = 8, MATRIX_WARPGROUPS, MATRIX_WIDE, MATRIX_TEAMS, MATRIX_LAST };
/* of a step; the last may be missing: 1, 0, 0, 1, 0 */
typedef union {
  struct {
    int32_t block_m, block_n, block_k, warp_m, warp_n, stages, transposed, split, terms, warpgroups, wide, teams, last;
  };
  int32_t number[MATRIX_FIELDS]; /* as in a step */
} MatrixTile;
typedef struct {
  const TeOp *op;
  const TeOp *origin; /* origin: argument identity of rewritten ops */
  ComputeAt at;
  int32_t at_stage, at_iter;   /* AT_ITER: the attach map, leaf index */
  int32_t n_root_data, n_root; /* root axes: data axes, then reduce axes */
  VEC(Axis) axes;
  VEC(Rel) rels;
  VEC(int32_t) leaf;
  VEC(int32_t) attached;                      /* in attach order: attach_leaf, attach_stage */
  ScopeKind scope;                            /* SC_AUTO unless CHR/CHW/set_scope */
  int32_t auto_unroll, storage_offset;        /* state attributes */
  bool double_buffer, is_output, scope_asked; /* scope_asked: by set_scope */
  ExprId store_predicate;                     /* extra guard of the final store, 0: none */
  const MatrixTile *matrix;                   /* its kernel is a product on tensor cores; NULL: a nest of its loops */
  int32_t n_plain_axes, n_plain_rels;         /* before the rebase relations of bound inference; 0 while not bounded */
} Stage;

/* ---- steps: plain data ---- */
/* The fourteen of TVM, which records hold as they are; from STEP_OWN on, what te and the search can ask for beyond them. Those
 * of TVM name a loop by its position among the leaves, our own by its number among the axes of its stage, which never changes.
 * A kind that ends in X does what its namesake does where TVM's would be refused (steps.c, own.c). */
typedef enum {
  STEP_AN,
  STEP_FU,
  STEP_PR,
  STEP_RE,
  STEP_SP,
  STEP_FSP,
  STEP_FFSP,
  STEP_SA,
  STEP_CA,
  STEP_CI,
  STEP_CR,
  STEP_CHR,
  STEP_CHW,
  STEP_RF,
  STEP_OWN,
  STEP_SPX = STEP_OWN,
  STEP_FUX,
  STEP_REX,
  STEP_ANX,
  STEP_PRX,
  STEP_SAX,
  STEP_CIX,
  STEP_CHWX,
  STEP_RFX,
  STEP_VA,
  STEP_BI,
  STEP_SC,
  STEP_DB,
  STEP_PD,
  STEP_MM,
  STEP_TL,
  STEP_TZ,
  STEP_KINDS
} StepKind;
#define SIZE_OPEN (-1) /* a split length still to be chosen by the search */
typedef struct {
  uint8_t kind, flag;  /* flag: inner_to_outer / factor_or_nparts; VA: a size variable */
  int32_t stage, iter; /* iter: also target stage of CA (then a = target iter) */
  int32_t a, b;   /* AN: code; FSP: src, n_split; FFSP: level; SA: factor, offset; CA: target iter; RF: factor_iter_id;
                              VA: code of a thread axis or 0, bits; BI: variable, code */
  int64_t extent; /* SP: recorded extent, 0 unknown */
  int32_t n;
  int64_t *list;    /* ids, order, lengths, source steps, readers, places of variables; arena memory, never shared
                               between states for SP */
  const char *text; /* PR text, CHR/CHW scope, SPX and PD: an expression (own.c), VA: name */
} Step;
/* args: one letter per argument in JSON, which says the field and what its number names: s stage, S stage (in iter), i loop,
 * a b numbers, p step (in a), E extent, f flag, t text; lists l of numbers, L of stages, P of steps, V of places of variables:
 * pairs (stage, axis) or (-1, variable of the state). */
typedef enum { SHIFT_NONE, SHIFT_AT, SHIFT_BEHIND } StepShift; /* inserts a stage: in the place of its own, behind it */
typedef struct {
  const char *mnemonic, *args;
  StepShift shift;
  bool aside;   /* own: the steps behind it mean the same without it */
  bool by_size; /* what it does to the DAG depends on sizes of splits */
} StepInfo;
const StepInfo *step_info(StepKind k);
int step_find(const char *mnemonic);     /* -1: unknown */
int32_t *step_number(Step *p, char arg); /* the field of an argument, if it is a 32-bit number; else NULL */

/* called: by the user of te; else 0. kind: of the thread axis, once it is known; size: of the shapes of the DAG */
typedef struct {
  VarId var, called;
  uint8_t kind;
  bool size;
} StateVar;
typedef struct {
  IrCtx *ctx;              /* context of the candidate; a clone of the DAG's */
  const TeDag *dag0, *dag; /* original, current */
  VEC(Stage) stage;
  VEC(Step) step;
  VEC(const TeDag *) dags; /* the DAG behind each step that rewrote it */
  const TeDag *reuse;      /* while replaying like another state: what the next such step gives */
  VEC(StateVar) var;       /* what VA steps and bound loops have brought, in order: thread axes and free variables */
  VarId given;             /* te: what its user calls the variable of the next step that brings one */
  bool concrete, bounded;  /* bounded: ranges come from bound inference */
  bool by_hand;            /* written in te: loops show their schedule names, and nothing limits how many there are */
} State;

/* ---- states (state.c) ---- */
State *state_init(IrCtx *c, const TeDag *d);                             /* initial state in c's arena */
State *state_copy(IrCtx *c, const State *s);                             /* deep; within one context */
State *state_replay(IrCtx *c, const TeDag *d, int n, const Step *steps); /* raises with step number and reason */
/* As state_replay, but where the steps begin like those of another state of this context (sizes of splits apart) its
 * rewritten DAGs are used again instead of being made anew. like: NULL or not released. */
State *state_replay_like(IrCtx *c, const TeDag *d, int n, const Step *steps, const State *like);
void state_append(State *s, int n, const Step *steps); /* likewise, behind the steps of s */
void state_check_whole(const State *s);                /* raises if a part of the computation is left out */
void state_apply(State *s, Step step);                 /* validates, appends, applies */
/* Helpers that build and apply one step; ids as documented in spec 02 §2. */
void state_split(State *s, int stage, int iter, int n, const int64_t *lengths, bool inner_to_outer);
void state_fuse(State *s, int stage, int n, const int64_t *iters);
void state_reorder(State *s, int stage, int n, const int64_t *order);
void state_annotate(State *s, int stage, int iter, Annotation a);
void state_compute_at(State *s, int stage, int target, int iter);
void state_compute_inline(State *s, int stage);
int state_cache_read(State *s, int stage, const char *scope, int n,
                     const int64_t *readers); /* returns the new stage's id */
/* Adds the names of the axes that a loop of that name goes back to, to a set of n; its number now. */
int loop_names(Arena *a, const char *name, int n, const char **out, int cap);
int64_t axis_extent(const State *s, int stage, int iter); /* state range; -1 unknown */
int step_stage_shift(const Step *step, int stage_id);     /* id of a stage after an inserting step */
/* and before it; of the new stage: the one it was made of */
int step_stage_before(const Step *step, int stage_id);
/* Renumbers what a step names: stage(arg, id) gives the new number of a stage, step(arg, id) of an earlier step; NULL: kept. The
 * list is copied. */
void step_renumber(Arena *a, Step *p, int (*stage)(void *arg, int id), int (*step)(void *arg, int id), void *arg);

/* The steps for a DAG whose first `prefix` stages are the same; `tail` are its stages behind them that compute, the output last;
 * n_stages: of the DAG they are from. Raises NS_ERR_VALUE if a step works on an inner stage of the tail otherwise than by
 * inlining it. (carry.c) */
Step *steps_carry(Arena *a, int *n, const Step *steps, int n_stages, int prefix, int n_tail, const int *tail);
/* As state_replay of steps for the same computation in other sizes: splits that would no longer cut their loops evenly get other
 * lengths. (carry.c) */
State *state_replay_fitted(IrCtx *c, const TeDag *d, int n, const Step *steps);

/* ---- normalise and infer bounds (bounds.c) : 02 §4, 07 §7.2.1-3 ----
 * On return every axis of every non-inlined stage has min and extent; leaf ranges of the state are updated. Works in
 * place on a replayed state. Raises on attachment errors. */
void state_infer_bounds(State *s);

/* The default schedule (default.c). threads: of a GPU's block at most, 0 for a CPU. wanted[i]: operation i is not inlined, because its
 * result is an output as well. */
State *state_default(IrCtx *c, const TeDag *d, int threads, const bool *wanted);
/* Which axes count with 64 bits: those of 64-bit axes of the operation, and fused ones that could not be counted with 32;
 * NULL: none. */
bool *stage_wide_axes(IrCtx *c, const Stage *st);
/* of its memory: as set, else by the threads around it; attach points must be checked */
ScopeKind state_scope(const State *s, int stage);
/* Inlining as a lowering preparation: op bodies with inlined stages substituted, indexed by stage (NULL: unchanged). own: per stage
 * what stands for the body of its operation; NULL, or NULL there: the body. */
ExprId **state_inlined_bodies(State *s, bool const_matrix_as_one, ExprId *const *own);
/* Values of axes, from those of the loops up to the root axes (07 §7.2.2): val has one per axis of the stage, 0: not known;
 * what follows from known ones is filled in. extent: what an extent is at that place (0: not known); NULL: as it stands. */
typedef ExprId (*AxisExtent)(void *arg, ExprId extent);
void stage_climb(IrCtx *c, const Stage *st, ExprId *val, AxisExtent extent, void *arg);
/* The other way, for sets: each axis gets the bits of the axes that it is made of. mark has one per axis: those of the root
 * axes are given, the others 0. */
void stage_spread(const Stage *st, uint64_t *mark);

/* ---- text (text.c) ---- */
char *state_text(const State *s, bool hide_trivial); /* 02 §1.6 */
uint64_t state_hash(const State *s);                 /* equal for states whose programs are */
char *state_python(const State *s);                  /* 02 §8.3 */

/* ---- records (record.c, with cJSON) : 02 §5-7 ---- */
typedef struct {
  const char *workload_key, *target, *target_host;
  HwParams hw;
  bool has_hw;
  int layout_rewrite;
  int n_inputs;
  const char **inputs;
  int n_steps;
  Step *step;
  int n_costs;
  double *cost;
  int error_no;
  double all_cost;
  int64_t timestamp;
  const char *version;
} Record;
Record *record_parse(Arena *a, const char *line);       /* raises NS_ERR_VALUE naming the place */
bool record_quick(const char *version);                 /* is it marked as timed in the quick stage only? */
const char *record_math(Arena *a, const char *version); /* how its task computes float32; "": strictly */
char *record_text(Arena *a, const Record *r);           /* one line with newline, byte format of 02 §5.7 */
char *steps_text(Arena *a, int n, const Step *steps);   /* the JSON array of steps */
Step *steps_parse(Arena *a, const char *json, int *n);  /* all kinds, ours too */

/* ---- schedules written by hand (hand.c) : 07 §7.1. Each primitive checks what te users expect and applies one step; factors
 * may be symbolic. Loops are leaf positions; hand_axis finds the one of a handle. ---- */
State *hand_new(IrCtx *c, int n, const TeOp *const *outputs);
void hand_check_reads(State *s);                /* raises for reads that certainly leave their tensor */
int hand_stage(const State *s, const TeOp *op); /* by current or original operation; -1 if absent */
/* leaf position; raises, telling "already split" from "not of this stage" */
int hand_axis(State *s, int stage, VarId handle);
VarId axis_handle(State *s, int stage, int axis);                             /* made when it is first asked for */
void hand_split(State *s, int stage, int leaf, ExprId factor, ExprId nparts); /* results at leaf, leaf + 1 */
/* leaf and leaf + 1; result at leaf; leaf -1: a new loop at 0 */
void hand_fuse(State *s, int stage, int leaf);
void hand_reorder(State *s, int stage, int n, const int *leaves); /* permuted among the positions they occupy */
void hand_bind(State *s, int stage, int leaf, VarId thread, Annotation kind);
void hand_annotate(State *s, int stage, int leaf, Annotation a); /* AN_NONE .. AN_PARALLEL; replaces */
void hand_pragma(State *s, int stage, int leaf, const char *key, int64_t value);
void hand_compute_inline(State *s, int stage);
void hand_compute_root(State *s, int stage);
void hand_storage_align(State *s, int stage, VarId handle, int factor, int offset);
int hand_cache_write(State *s, int stage, const char *scope); /* id of the new stage */
int hand_rfactor(State *s, int stage, int leaf, int factor_axis);
void hand_scope(State *s, int stage, const char *scope); /* "": by the threads around it */
void hand_double_buffer(State *s, int stage);
void hand_matrix(State *s, int stage, const MatrixTile *t);
void hand_predicate(State *s, int stage, ExprId cond);
/* The steps for a DAG of the same operations, whose stages may have another order. */
Step *hand_steps_for(Arena *a, const State *s, int n_ops, const TeOp *const *ops);

/* ---- who is attached (axis.c): the entries of Stage.attached ---- */
static inline int attach_leaf(int32_t entry) { return entry >> 16; }
static inline int attach_stage(int32_t entry) { return entry & 0xffff; }
bool attach_any(const State *s, int stage, int iter); /* is some stage attached to this leaf? */

/* ---- products on tensor cores (matrix.c) : 07 §7.8.2 ----
 * A stage at root, and the one reduction below it (the stage itself, or one computed at its last loop), seen as
 * C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n]. */
enum { MATRIX_DIMS = 8, LANE_STEP = 4 }; /* LANE_STEP: of k, that a lane loads at a time */
typedef struct {
  int n;
  VarId var[MATRIX_DIMS];
  int64_t extent[MATRIX_DIMS], size;
} MatrixIndex; /* the last runs fastest */
typedef struct {
  int sum_stage;
  TensorId sum; /* 0: the stage is the sum itself */
  DType type,
      sums;  /* of the factors: float16, bfloat16, float32, or (that of a) an integer of 8 bits; of what is added up */
  bool half; /* of float16, and sums are brought to it: who allows it may have them in float16 from the start */
  ExprId a, b; /* by variables of the root stage's axes and of the reduction */
  MatrixIndex batch, m, n, k;
  VarSub grouped;
  VarId member; /* an axis (var 0: none) whose groups are a batch and whose members are rows or columns; by both */
} MatrixView;
/* false: it is no such product, *why says why not. body: state_inlined_bodies. The rows m are those of `transposed`'s choice. */
bool matrix_view(State *s, int stage, bool transposed, ExprId *const *body, MatrixView *v, const char **why);
/* The math mode that a schedule needs: "tf32" if products of float32 are on tensor cores, "float32x3" if all of those have
 * three terms, "fp16_accumulation" if products of float16 are added up in float16, else "strict". */
const char *state_math(State *s);
/* Whether the machine can do such tiles; NULL, or why not. */
MatrixTile matrix_tile(int n, const int64_t *numbers);     /* of a step */
int matrix_numbers(const MatrixTile *t, int64_t *numbers); /* of its step: how many of MATRIX_FIELDS */
bool matrix_half_sums(const MatrixTile *t);                /* does it add up in float16? */
bool matrix_lanes(const MatrixTile *t);    /* by the threads' own multiplications of float32: no tensor cores */
int matrix_lane_rows(const MatrixTile *t); /* of a lane, then */
int matrix_lane_columns(const MatrixTile *t);
int matrix_team(const MatrixTile *t);    /* threads that compute a warp's tile: those of a warp, or of a warpgroup */
int matrix_threads(const MatrixTile *t); /* of a block */
int matrix_ahead(const MatrixTile *t);   /* slices that are copied before they are needed */
bool matrix_by_lanes(const Target *t);   /* does it have products by lanes? */
bool matrix_on_cores(const Target *t, DType type); /* mma.sync, for such factors? */
int matrix_cores_since(DType type);                /* the first compute capability that has it; 0: none */
bool matrix_groups(const Target *t, DType type);   /* wgmma, for them? */
/* Registers of a thread in which slices are on their way where no copy is in flight by itself; 0: they are. */
int matrix_staged(const MatrixTile *t, DType type, const Target *target);
const char *matrix_tile_fault(const MatrixTile *t, DType type);
/* Have slices and the sums that others send no room side by side? Then these take the place of slices, when all blocks are done. */
bool matrix_late(const MatrixTile *t, DType type, const Target *target);
int64_t matrix_shared_bytes(const MatrixTile *t, DType type, const Target *target);
/* Do the blocks that share a sum add it up themselves, as a cluster? Else the last of them does, or a second kernel. */
bool matrix_clustered(const MatrixTile *t, const Target *target);
int64_t
matrix_cluster_sums(const MatrixTile *t); /* that such a block has room for: its own, and those that others send it */
int matrix_sums(const MatrixTile *t);     /* registers of the sums of a fragment, MMA_SUMS */
/* Of a thread, about: sums, fragments, addresses, slices on their way. */
int matrix_registers(const MatrixTile *t, DType type, const Target *target);
/* wide: a warp passes on 16 rows of so many columns at a time; elements of its room, which holds them by rows or by columns, and
 * from one of those to the next. */
int matrix_wide_columns(const MatrixTile *t);
int matrix_wide_room(const MatrixTile *t);
int matrix_wide_pitch(const MatrixTile *t, bool by_columns);
/* Sets of fragments in registers; 2: one is loaded while the other is multiplied. */
int matrix_sets(const MatrixTile *t, DType type, const Target *target);

/* ---- layout rewrite (layout.c) : 02 §9 ---- */
/* *made: what the caller has to transform: inputs that option 2 has in another layout; NULL: nobody asks. */
TeDag *dag_rewrite_layout(IrCtx *c, const TeDag *d, int *n_steps, Step **steps, int option, int *n_made,
                          Relayout **made);
#endif
