/* search: hardware parameters, sketch rules, population, mutation, evolution, policy. Spec 03. It knows nothing of networks. */
#ifndef NS_SEARCH_H
#define NS_SEARCH_H
#include "lower/lower.h"
typedef struct {
  double eps_greedy, sample_init_use_measured_ratio, mutation_prob;
  int32_t retry_on_empty, sample_init_min_population, population, num_iters, max_innermost_split_factor, max_vectorize_size, disable_change_compute_location;
  const char *cpu_structure, *gpu_structure;
} SearchParams;
SearchParams search_params_default(void);
typedef struct SearchTask SearchTask; /* DAG in its own context, target, parameters, step-list caches; immutable and shared by workers */
typedef struct Policy Policy;         /* generator, sketches, measured set; one per task */
typedef struct { int n; Step **step; int *n_step; double *score; } StateList; /* states as step lists: the only thing that crosses contexts */
/* Scores a batch of states: higher is better, -INFINITY for a state that cannot be built. Called from any worker. */
typedef struct { void (*score)(void *self, const SearchTask *t, int n, State *const *s, double *out); void *self; } Scorer;
SearchTask *task_new(Err *e, const IrCtx *src, const TeDag *d, const Target *t);
void task_free(SearchTask *t);
Policy *policy_new(const SearchTask *t, const SearchParams *p, uint64_t seed, Pool *pool);
void policy_free(Policy *p);
StateList policy_sketches(Policy *p, Arena *a);                       /* 03 §2 */
StateList policy_sample(Policy *p, Arena *a);                         /* 03 §3 */
StateList policy_evolve(Policy *p, Arena *a, StateList init, int out_size); /* 03 §4.4 */
StateList policy_round(Policy *p, Arena *a, int batch);               /* 03 §4.6: the states to measure next */
void policy_report(Policy *p, int n_step, const Step *s, double seconds, bool valid); /* result of a measurement, also from a log */
void policy_set_scorer(Policy *p, Scorer s);
#endif
