/* Private to search: the parts of the search space that its files share. */
#ifndef NS_SEARCH_SPACE_H
#define NS_SEARCH_SPACE_H
#include "search/search.h"

struct SearchTask {
  Err err;
  IrCtx *ctx;
  TeDag *dag;
  Target target;
  bool gpu;
  atomic_llong replayed, programs, traits; /* how often for candidates */
};

enum { MAX_LOOPS = 128 }; /* of a stage, as far as rules look */

/* ---- reading states ---- */
static inline const Axis *sp_axis(const State *s, int stage, int iter) {
  const Stage *g = &s->stage.at[stage];
  return &g->axes.at[g->leaf.at[iter]];
}
static inline int sp_loops(const State *s, int stage) { return s->stage.at[stage].leaf.len; }
static inline bool sp_placeholder(const State *s, int stage) { return s->stage.at[stage].op->kind == TE_PLACEHOLDER; }
bool sp_needs_tiling(const State *s, int stage);
bool sp_is_output(const State *s, int stage);
bool sp_strictly_inlinable(const State *s, int stage);
bool sp_large(const State *s, int stage); /* to inline it would blow up its reader */
bool sp_has_reduce(const State *s, int stage);
int sp_loop_as(const State *s, int stage, Annotation ann); /* the first loop that is annotated so; -1: none */
int sp_single_consumer(const State *s, int stage);         /* -1: none */
/* single_matched_consumer; -1: none. branches (extended mode): what is inlined in between may be read more than once */
int sp_matched_consumer(const State *s, int stage, bool branches);
bool sp_direct_producer(const State *s, int from, int to);
/* is name in the op's attribute list? "_c" of a cache stage ignored */
bool sp_names(const State *s, int stage, const char *key, const char *name);
bool sp_has_attr(const State *s, int stage, const char *key);
int sp_steps_of(const State *s, int stage, StepKind k, int *out, int cap); /* numbers of the steps made on a stage, last first */
int64_t sp_len(const State *s, int stage, IterKind k);     /* product of extents; unknown counts -1 */
int64_t sp_points(const State *s, int stage);              /* extents of the operation, reductions included, multiplied */
bool sp_ends(const char *name, const char *tail);
int sp_final_stage(int n, const Step *steps, int from, int stage); /* id after the inserting steps behind number `from` */

/* ---- step lists ---- */
Step *sp_steps_copy(Arena *a, int n, const Step *s, bool lists); /* lists: also the integer lists and texts */
void sp_list_add(Arena *a, StateList *l, int n, const Step *s, double score); /* copies the steps */

/* ---- sketches (sketch.c) ---- */
typedef struct { const SearchTask *task; const SearchParams *par; int n_rules; const CustomRule *rules; } SketchEnv;
StateList sketch_derive(const SketchEnv *env, IrCtx *c, Arena *a);

/* ---- chain.c: an expansion that is made tile by tile for the windows that read it ---- */
bool chain_begins(const SketchEnv *env, const State *s, int window);
void chain_begin(State *s, int window); /* tiles the window's consumer, attaches window and padding */
bool chain_ends(const State *s, int stage);
void chain_end(State *s, int stage); /* tiles and attaches the expansion */

/* ---- sums.c: sums of many elements into few results, which blocks or their threads share (GPU, extended mode) ---- */
bool sums_shared(const SketchEnv *env, const State *s, int stage);   /* may the threads of a block share them? */
void sums_share(State *s, int stage);
bool sums_in_parts(const SketchEnv *env, const State *s, int stage); /* may two kernels add them up, the first one parts? */
void sums_part(State *s, int stage);
bool sums_joined_by(const State *s, int stage); /* is it computed in the blocks that share a sum which it reads? */
int sums_fuse(State *s, int stage); /* fuses all reduction loops (if several); the index of the result */

/* ---- inverse.c: the last transform of a Winograd layer in the kernel that reads it (GPU, extended mode) ---- */
bool inverse_fits(const SketchEnv *env, const State *s, int stage);
void inverse_fuse(State *s, int stage);

/* ---- choices (choice.c): what a rule leaves open, decided at random or in every way, one after the other ---- */
enum { CHOICE_DEPTH = 16 };
typedef struct {
  Rng *rng;  /* NULL: every way */
  int at, n; /* of this way: decisions taken so far; decisions that are known */
  int64_t taken[CHOICE_DEPTH], of[CHOICE_DEPTH];
} Choice;
bool choice_next(Choice *c);               /* after a way: on to the next; false: these were all */
int64_t choose(Choice *c, int64_t n);      /* 0 to n - 1 */
bool choose_one_in(Choice *c, int64_t n);  /* true in one of n draws */
bool choose_chance(Choice *c, double p);   /* true with that probability */
int choose_weighted(Choice *c, int n, const double *weight);
void choose_order(Choice *c, int n, int *order);   /* 0 to n - 1 at random; or each pair of them in front */
int choose_tries(const Choice *c, int n);  /* how often a rule that failed draws again: n times, or once for each way */

/* ---- factors (factor.c) ---- */
typedef struct FactorTable FactorTable; /* one per worker */
FactorTable *factor_new(Arena *a);
int64_t factor_count(FactorTable *f, int64_t extent, int n, int64_t last_max);
/* Writes tuple number `index` (0 .. count-1, depth first, ascending, first member outermost). */
void factor_tuple(FactorTable *f, int64_t extent, int n, int64_t last_max, int64_t index, int64_t *out);
void factor_draw(FactorTable *f, Rng *r, int64_t last_max, Step *split); /* any tuple, into its list */
int factor_divisors(FactorTable *f, int64_t x, const int64_t **out);

Arena *factor_arena(const FactorTable *f);

/* ---- plans (plan.c): what the sizes of a GPU sketch mean on the device ---- */
enum { PLAN_AXES = 16, PLAN_DIMS = 8, PLAN_TILES = 6, PLAN_KERNELS = 6, PLAN_LEVELS = 8, PLAN_ROUNDS = 6, PLAN_SUMS = 4 };
typedef struct {
  int step; /* the split of the axis; -1: it is not split */
  int64_t extent;
} PlanAxis;
typedef struct {
  ExprId index;
  int64_t cap, coef[PLAN_AXES]; /* range of the index: 1 + sum of coef * (tile - 1), at most cap */
  bool linear;                  /* else the index is evaluated at the corners */
} PlanDim;
typedef struct {
  int stage, n_dim;
  double bytes; /* of an element */
  PlanDim dim[PLAN_DIMS];
} PlanTile;
typedef struct {
  IrCtx *ctx;
  const TeOp *op;
  int n_space, n_axis, n_tile;
  PlanAxis axis[PLAN_AXES]; /* reductions behind the others */
  PlanTile tile[PLAN_TILES];
  int64_t points, bytes; /* of the root stage; of an element of the result */
  int copies;            /* of each shared tile: 2 where the next slice is filled meanwhile (plan_copies) */
  int n_round;           /* construct.c, 0 at first: extents that tiles are drawn from, the true ones first */
  struct PlanRound {
    int64_t extent[PLAN_AXES];
    double *ways;
  } round[PLAN_ROUNDS];
  int64_t max_threads;
} PlanKernel;
typedef struct { int threads, results, parts; } PlanSum; /* of sums.c: splits that say how many threads a sum has, how many sums a
                                                         block has (-1: one), and in how many parts they are made (-1: in one) */
typedef struct {
  bool known; /* all tiled kernels are described */
  int n_kernel, n_thread, thread[PLAN_KERNELS]; /* splits that make the threads of reductions across threads */
  int n_sum;
  PlanSum sum[PLAN_SUMS];
  PlanKernel kernel[PLAN_KERNELS];
} Plan;
Plan *plan_new(Arena *a, const State *sketch);
void plan_copies(Plan *plan, int n, const Step *steps); /* notes which tiles the steps double */
double plan_shared_bytes(const PlanKernel *k, const int64_t *tile); /* tile: an extent per axis */
const PlanTile *plan_tile_of(const Plan *plan, int stage, const PlanKernel **of); /* plan NULL: no stage is one */
double plan_row(const PlanKernel *k, const PlanTile *t, const Step *steps); /* elements of the innermost dimension */
bool plan_kernel_fits(const HwParams *hw, const PlanKernel *k, const Step *steps); /* no limit is broken, no size open */
/* Does step i split off one loop, which the next step binds so? AN_THREAD_X: the threads of an untiled stage. */
bool plan_split_for(int n, const Step *steps, int i, Annotation ann);

/* ---- tensor.c: sketches that compute a task by one step: by lanes, on tensor cores ---- */
/* open: the sketch's numbers; n: how many its step has; whole: there is no other kernel */
typedef struct { MatrixView v; MatrixTile open; int n; bool whole; } TensorPlan;
/* Kinds of programs: of loops, sums in parts, or products by lanes, by instructions of warps or of warpgroups. */
typedef enum { FAMILY_LOOPS, FAMILY_PARTS, FAMILY_LANES, FAMILY_WARPS, FAMILY_WARPGROUPS, FAMILIES } Family;
Family tensor_family(const Step *s); /* of a step that asks for products */
/* Steps are added to the initial state s; false: there is none. apart: what changes the layout of an input is a kernel of its own. */
bool tensor_sketch(const SketchEnv *env, State *s, Family by, bool apart);
bool tensor_stage(const SketchEnv *env, State *s, int stage); /* may one step make the kernel of this stage, beside others? */
bool tensor_stage_by(const SketchEnv *env, State *s, int stage, Family by); /* adds it; false: not by this family */
int tensor_step(int n, const Step *steps);          /* number of the step that asks for them; -1: there is none */
TensorPlan *tensor_plan(Arena *a, State *sketch);   /* NULL: another kind of sketch */

/* ---- what a worker needs to make candidates ---- */
typedef struct {
  const SearchTask *task;
  const SearchParams *par;
  IrCtx *ctx;
  FactorTable *factors;
  int n_sketch;
  State **sketch; /* replayed in ctx, open sizes included */
  Plan **plan;    /* per sketch, in extended mode on a GPU; else NULL */
  TensorPlan **tensor; /* likewise; NULL where the sketch is another one */
} MakeEnv;
int plan_sketch_of(const MakeEnv *m, int n, const Step *steps);
/* state_replay, with the DAGs of the sketch it was made from */
State *make_replay(const MakeEnv *m, int n, const Step *steps);

/* candidate.c: a candidate made in a worker's context, which is left as it was. known: traits of these steps, or NULL. */
Candidate *cand_make(MakeEnv *m, int n, const Step *steps, unsigned want, int layout, const Traits *known);

/* construct.c: sizes within the limits of the device; false: none found. */
bool construct_sizes(MakeEnv *m, Rng *r, Plan *plan, Step *steps);
int64_t construct_threads(const MakeEnv *m, Choice *c, int64_t extent);
int64_t construct_vector(const MakeEnv *m, Choice *c, double row, double bytes);

/* sums.c: which steps of a sketch are such sums; all their sizes (false: an extent is unknown), or one anew (false: the same). */
int sums_plan(const State *sketch, int cap, PlanSum *out);
bool sums_sizes(const MakeEnv *m, Rng *r, const PlanSum *x, Step *steps);
bool sums_shared_by(int n, const Step *steps); /* does a column of threads share a sum in this candidate? */
bool sums_of_parts(int n, const Step *steps);  /* and do parts come first? */
bool sums_resize(const MakeEnv *m, Choice *c, const PlanSum *x, int step, Step *steps);

/* tensor.c: all numbers of the step, or one of them anew; false: none found. */
bool tensor_sizes(MakeEnv *m, Rng *r, const TensorPlan *p, Step *s);
bool tensor_mutate(MakeEnv *m, Choice *c, const TensorPlan *p, Step *s);

/* populate.c: a complete, annotated candidate from a sketch, in ctx's arena; NULL if a rule refuses. *why names the rule. */
State *populate(MakeEnv *m, Rng *r, const char **why);
bool sp_nested_parallel(const State *s);
int sp_locations(const State *s, int stage, int cap, int (*out)[2]); /* 03 §3.3.1 */
int sp_unroll_choices(const SearchTask *t, const int **out);

/* mutate.c: a changed copy of a step list in ctx's arena; false: the drawn rule does not apply. */
bool mutate(MakeEnv *m, Choice *c, int n, const Step *steps, int *n_out, Step **out);
bool mutate_tile(MakeEnv *m, Choice *c, int n, Step *steps);
#endif
