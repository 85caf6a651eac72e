/* search: hardware parameters, sketch rules, population, mutation, evolution, policy. Spec 03. It knows nothing of networks.
 *
 *   sketch.c      derivation of sketches: rules in a table, breadth first, from the last stage to the first
 *   pred.c        what the rules ask about a state
 *   factor.c      splits of an extent into factors, cached per task
 *   plan.c        what the sizes of a GPU sketch mean on the device: limits from the sizes alone
 *   construct.c   extended mode: sizes within these limits
 *   populate.c    the init rules: they fill a sketch's sizes and add annotations
 *   mutate.c      the mutation rules
 *   facts.c       closed forms over a bounded state: threads, shared bytes, traffic, work per kernel
 *   analytic.c    a time estimate from the facts: the default Scorer
 *   policy.c      a task's policy: sketches, workers, settings
 *   sample.c      candidates made and scored in chunks, draft estimates, the sampling loop
 *   evolve.c      generations
 *   round.c       picking a batch, the measured set
 *
 * Candidates travel as step lists. A worker owns a clone of the task's context, replays a list there, looks at the state
 * and forgets it; so nothing but plain data crosses threads, and a seed gives the same candidates for any thread count.
 */
#ifndef NS_SEARCH_H
#define NS_SEARCH_H
#include "lower/lower.h"
#include "model/gpu.h"

typedef struct {
  double eps_greedy, sample_init_use_measured_ratio, mutation_prob;
  int32_t retry_on_empty, sample_init_min_population, population, num_iters, max_innermost_split_factor, max_vectorize_size, disable_change_compute_location;
  int32_t states_per_tiling_in_batch, states_per_tiling; /* extended mode: at most so many that cut the output alike, for each eight of a batch and in all; 0: any number */
  const char *cpu_structure, *gpu_structure;
  int32_t extended; /* 1: on GPUs sizes drawn within the limits of the device; else uniformly, like the reference */
} SearchParams;
SearchParams search_params_default(void);

typedef struct SearchTask SearchTask; /* DAG in its own context, target, parameters; immutable and shared by workers */
typedef struct Policy Policy;         /* generator, sketches, measured set; one per task */
typedef struct { int n; Step **step; int *n_step; double *score; } StateList; /* states as step lists: the only thing that crosses contexts */

/* Scores a batch of bounded states: higher is better, -INFINITY for a state that cannot be built. Called from any worker. */
typedef struct {
  void (*score)(void *self, const SearchTask *t, int n, State *const *s, double *out);
  void *self;
  /* A much cheaper estimate that decides which states are worth scoring; NULL: all are. With n = 0 it only says whether it
   * is to be used now. */
  bool (*draft)(void *self, const SearchTask *t, int n, State *const *s, double *out);
} Scorer;

/* A user's rule. check: 0 pass, 1 apply, 2 apply and skip the rest. apply: fills *out with states (step lists in a) and
 * their next positions (-1 ends the derivation). Both may raise on arena_err(a). */
typedef struct { int n; Step **step; int *n_step; int *pos; } RuleOut;
typedef struct {
  const char *name;
  int (*check)(void *self, Arena *a, const State *s, int stage);
  void (*apply)(void *self, Arena *a, const State *s, int stage, RuleOut *out);
  void *self;
} CustomRule;

SearchTask *task_new(Err *e, const IrCtx *src, const TeDag *d, const Target *t);
void task_free(SearchTask *t);
const TeDag *task_dag(const SearchTask *t);
const IrCtx *task_ctx(const SearchTask *t);
const Target *task_target(const SearchTask *t);

Policy *policy_new(Err *e, const SearchTask *t, const SearchParams *p, uint64_t seed, Pool *pool);
void policy_free(Policy *p);
void policy_add_rule(Err *e, Policy *p, CustomRule r);                /* in front of the built-in rules, in order of registration; raises on e */
void policy_set_pool(Policy *p, Pool *pool);                          /* NULL: the calling thread alone; between calls only */
void policy_set_scorer(Policy *p, Scorer s);                          /* .score NULL: the analytic estimate */
StateList policy_sketches(Policy *p, Arena *a);                       /* 03 §2; replay them with sketch_replay */
State *sketch_replay(IrCtx *c, const TeDag *d, int n, const Step *steps); /* like state_replay; a split made to be factored may be open */
StateList policy_sample(Policy *p, Arena *a);                         /* 03 §3; raises if nothing valid is found in bounded time */
StateList policy_evolve(Policy *p, Arena *a, StateList init, int out_size); /* 03 §4.4; best first, unmeasured states only */
StateList policy_round(Policy *p, Arena *a, int batch);               /* 03 §4.6: the states to measure next; marks them as picked; n = 0: exhausted */
void policy_report(Policy *p, int n_step, const Step *s, double seconds, bool valid); /* result of a measurement, also from a log; raises on the task's error slot never */
void policy_hint(Policy *p, int n_step, const Step *s); /* a state that may be good: it joins the first generations; raises never */
bool policy_check(Policy *p, int n_step, const Step *s, const char **why); /* replays, infers bounds, lowers, verifies */

/* Samples n times and counts what became of it: name[i], count[i]; returns the number of names. For tests and tools. */
int policy_sample_shares(Policy *p, int n, int cap, const char **name, int *count);

/* One generation's figures, for progress lines. */
typedef struct { int kind, iter, count, failed; double best, least, seconds, mutated, refused; } PolicyEvent; /* kind: 0 sketches, 1 sample pass, 2 sampled, 3 generation (failed: invalid children so far), 4 evolved, 5 target halved */
void policy_set_listener(Policy *p, void (*fn)(void *self, const PolicyEvent *ev), void *self);

/* ---- what rules and users' rules ask (pred.c); ids are stages of the state ---- */
int pred_consumers(const State *s, int stage, int *out, int cap);     /* readers, through inlined stages; ascending; returns their number */
int pred_producers(const State *s, int stage, int *out, int cap);
bool pred_is_tiled(const State *s, int stage);
bool pred_has_step(const State *s, int stage, StepKind k);            /* CHW, CHR or RF made on the stage */
bool pred_cross_thread(const State *s, int stage);

/* All tuples of n factors whose product divides the extent, last <= last_max, in sampling order; *out: count * n numbers in a. */
int64_t factor_list(Arena *a, int64_t extent, int n, int64_t last_max, int64_t **out);

/* ---- closed forms over a bounded, complete state (facts.c) ---- */
enum { FACT_KERNELS = 16, FACT_READS = 12 };
typedef struct {
  double blocks, threads, vthreads;      /* GPU; CPU: blocks = parallel iterations */
  double shared_bytes, local_elems;      /* per block; per thread */
  double ops;                            /* arithmetic of all points, 1 per operation */
  double global_bytes, unique_bytes;     /* moved, in 32-byte sectors (GPU) or lines; footprint */
  double shared_reads, shared_degree;    /* shared-memory elements read by threads; mean bank conflict */
  double barriers;                       /* per block */
  double stages;                         /* GPU: of the pipeline that fills shared memory */
  bool matrix_possible;                  /* matrix units could do its products */
  GpuMemory mem;                         /* GPU */
} KernelFacts;
typedef struct { int n; KernelFacts k[FACT_KERNELS]; const char *invalid; double max_vector_bytes; } StateFacts; /* invalid: NULL or the broken limit */
StateFacts state_facts(const SearchTask *t, State *s);
void facts_vector(const SearchTask *t, const StateFacts *f, float *out); /* STATE_N entries of model.h: 04 §6.4; on a CPU the estimated time alone */
double analytic_seconds(const SearchTask *t, const StateFacts *f);    /* 04 §6.3; CPU: roofline */
double analytic_sms(const SearchTask *t);                             /* multiprocessors that a GPU task should fill */
void analytic_score(void *self, const SearchTask *t, int n, State *const *s, double *out); /* a Scorer; self unused */
#endif
