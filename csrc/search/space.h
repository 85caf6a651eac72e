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
};

/* ---- reading states ---- */
static inline const Axis *sp_axis(const State *s, int stage, int iter) {
  const Stage *g = &s->stage.at[stage];
  return &g->axes.at[g->leaf.at[iter]];
}
static inline int sp_loops(const State *s, int stage) { return s->stage.at[stage].leaf.len; }
static inline bool sp_placeholder(const State *s, int stage) { return s->stage.at[stage].op->kind == TE_PLACEHOLDER; }
bool sp_attached_at(const State *s, int stage, int iter); /* is some stage attached to this loop? */
bool sp_needs_tiling(const State *s, int stage);
bool sp_is_output(const State *s, int stage);
bool sp_strictly_inlinable(const State *s, int stage);
bool sp_has_reduce(const State *s, int stage);
int sp_single_consumer(const State *s, int stage);         /* -1: none */
int sp_matched_consumer(const State *s, int stage);        /* single_matched_consumer; -1: none */
bool sp_direct_producer(const State *s, int from, int to);
bool sp_names(const State *s, int stage, const char *key, const char *name); /* is name in the op's attribute list? "_c" of a cache stage ignored */
bool sp_has_attr(const State *s, int stage, const char *key);
int sp_orig_names(Arena *a, const char *name, const char **out, int cap);   /* original axis names of a loop */
int64_t sp_len(const State *s, int stage, IterKind k);     /* product of extents; unknown counts -1 */
bool sp_ends(const char *name, const char *tail);
int sp_final_stage(int n, const Step *steps, int from, int stage); /* id after the inserting steps behind number `from` */

/* ---- step lists ---- */
Step *sp_steps_copy(Arena *a, int n, const Step *s, bool lists); /* lists: also the integer lists and texts */
StateList sp_list_new(Arena *a, int cap);
void sp_list_add(Arena *a, StateList *l, int *cap, int n, const Step *s, double score);

/* ---- sketches (sketch.c) ---- */
typedef struct { const SearchTask *task; const SearchParams *par; int n_rules; const CustomRule *rules; } SketchEnv;
StateList sketch_derive(const SketchEnv *env, IrCtx *c, Arena *a);

/* ---- factors (factor.c) ---- */
typedef struct FactorTable FactorTable; /* one per worker */
FactorTable *factor_new(Arena *a);
int64_t factor_count(FactorTable *f, int64_t extent, int n, int64_t last_max);
/* Writes tuple number `index` (0 .. count-1, depth first, ascending, first member outermost). */
void factor_tuple(FactorTable *f, int64_t extent, int n, int64_t last_max, int64_t index, int64_t *out);
int factor_divisors(FactorTable *f, int64_t x, const int64_t **out);

/* ---- what a worker needs to make candidates ---- */
typedef struct {
  const SearchTask *task;
  const SearchParams *par;
  IrCtx *ctx;
  FactorTable *factors;
  int n_sketch;
  State **sketch; /* replayed in ctx, open sizes included */
} MakeEnv;

/* populate.c: a complete, annotated candidate from a sketch, in ctx's arena; NULL if a rule refuses. *why names the rule. */
State *populate(MakeEnv *m, Rng *r, const char **why);
bool sp_nested_parallel(const State *s);
int sp_locations(const State *s, int stage, bool fresh, int cap, int (*out)[2]); /* 03 §3.3.1; fresh: extents of open loops are unknown */
extern const int UNROLL_CPU[], UNROLL_GPU[];
int sp_unroll_choices(const SearchTask *t, const int **out);

/* mutate.c: a changed copy of a step list in ctx's arena; false: the drawn rule does not apply. */
bool mutate(MakeEnv *m, Rng *r, int n, const Step *steps, int *n_out, Step **out);
bool mutate_tile(MakeEnv *m, Rng *r, int n, Step *steps);
#endif
