/* search: hardware parameters, sketch rules, population, mutation, evolution, policy. Spec 03. It knows nothing of networks.
 *
 *   sketch.c      derivation of sketches: rules in a table, breadth first, from the last stage to the first
 *   chain.c       the sketch of an expansion and the windows that read it, tile by tile (CPU, extended mode)
 *   sums.c        sketches of sums of many elements into few results, and their sizes (GPU, extended mode)
 *   pred.c        what the rules ask about a state
 *   choice.c      what a rule leaves open: drawn, or decided in every way
 *   factor.c      splits of an extent into factors, cached per task
 *   plan.c        what the sizes of a GPU sketch mean on the device: limits from the sizes alone
 *   construct.c   extended mode: sizes within these limits
 *   populate.c    the init rules: they fill a sketch's sizes and add annotations
 *   mutate.c      the mutation rules
 *   policy.c      a task's policy: sketches, workers, settings
 *   memo.c        what is known of step lists that were met before
 *   sample.c      states made and scored in chunks, draft estimates, the sampling loop
 *   evolve.c      generations
 *   descent.c     the neighbours of the fastest, for the last trials of a run
 *   candidate.c   a picked state: replayed, lowered and described once, for all who need it
 *   round.c       picking a batch, the measured set
 *
 * States travel as step lists. A worker owns a clone of the task's context, replays a list there, looks at the state
 * and forgets it; so nothing but plain data crosses threads, and a seed gives the same candidates for any thread count.
 */
#ifndef NS_SEARCH_H
#define NS_SEARCH_H
#include "codegen/text.h"
#include "model/scorer.h"

/* Which products may be computed on tensor cores: none; those of 16-bit floats and of integers of 8 bits, which lose
 * nothing by it; those of float32, too, rounded to TF32. */
enum { TENSOR_NEVER, TENSOR_HALF, TENSOR_TF32, TENSOR_FLOAT32X3 };
typedef struct {
  double eps_greedy, sample_init_use_measured_ratio, mutation_prob;
  int32_t retry_on_empty, sample_init_min_population, population, num_iters, max_innermost_split_factor;
  int32_t max_vectorize_size, disable_change_compute_location;
  double double_buffer_prob; /* extended mode on GPUs: that tiles in shared memory are filled for the next slice meanwhile */
  double descent; /* extended mode: share of a run's trials, its last ones, that are neighbours of measured states */
  int32_t thread_sums; /* extended mode on GPUs, 1: a block adds up one element of a matrix times a vector, whatever their sizes */
  /* extended mode: at most so many that cut the output alike, for each eight of a batch and in all; 0: any number */
  int32_t states_per_tiling_in_batch, states_per_tiling;
  int32_t tensor_cores; /* extended mode on NVIDIA's GPUs: TENSOR_... */
  int32_t half_sums;    /* 1: products of float16 whose sums become float16 may be added up so by warps */
  int32_t lanes;        /* 1: products of float32 that stay float32 have a sketch with slices in flight, too */
  int32_t warpgroups;   /* where they are used, 1: by instructions of warpgroups, too (compute capability 9.0), 2: of two slices at a time */
  int32_t wide_stores;  /* where they are used, 1: results may pass through shared memory */
  int32_t last_blocks;  /* where blocks share a sum, by lanes, too, 1: the last of them may add up */
  const char *cpu_structure, *gpu_structure;
  int32_t extended; /* 1: on GPUs sizes drawn within the limits of the device; else uniformly, like the reference */
} SearchParams;
SearchParams search_params_default(void);

typedef struct SearchTask SearchTask; /* DAG in its own context, target, parameters; immutable and shared by workers */
typedef struct Policy Policy;         /* generator, sketches, measured set; one per task */
/* states as step lists: the only thing that crosses contexts */
typedef struct { int n; Step *step; double score; } StepList;
typedef VEC(StepList) StateList;

/* A user's rule. check: 0 pass, 1 apply, 2 apply and skip the rest. apply: fills *out with states (step lists in a) and
 * their next positions (-1 ends the derivation). Both may raise on arena_err(a). */
typedef struct { int n; Step *step; int pos; } RuleState;
typedef VEC(RuleState) RuleOut;
typedef struct {
  const char *name;
  int (*check)(void *self, Arena *a, const State *s, int stage);
  void (*apply)(void *self, Arena *a, const State *s, int stage, RuleOut *out);
  void *self;
} CustomRule;

SearchTask *task_new(Err *e, const IrCtx *src, const TeDag *d, const Target *t);
void task_free(SearchTask *t);
const Target *task_target(const SearchTask *t);
/* How often a candidate was replayed, its program and its traits were made, since the task was made. */
typedef struct { int64_t replayed, programs, traits; } TaskCounts;
TaskCounts task_counts(const SearchTask *t);

/* ---- candidates (candidate.c): what follows from a step list, made once; plain data, shared by the search that picked it,
 * the session that compiles it and the model that learns from it ---- */
enum { WANT_CHECK = 1, WANT_TRAITS = 2, WANT_PROGRAM = 4 };
typedef struct {
  const SearchTask *task;
  int n_step;
  const Step *step;
  uint64_t hash; /* of the state */
  double score;  /* of a round: what it was ranked by */
  ErrCode code;
  /* NULL, or why it cannot be built: a message of code, or with NS_OK the limit of the device that is broken */
  const char *why;
  unsigned want;   /* what was asked for; what cannot be made is missing */
  int layout;
  const Traits *traits;
  GenText text;    /* of the program PROGRAM_NAME */
  Arena *printed; /* holds text; NULL: there is none, or whoever compiles it has taken it */
  Arena *keep;    /* holds the rest */
} Candidate;
/* Raises nothing: what fails is the candidate's code. NULL: out of memory. stop: an interrupt flag or NULL. */
Candidate *cand_new(const SearchTask *t, int n, const Step *steps, unsigned want, int layout, const atomic_int *stop);
void cand_free(Candidate *c);

Policy *policy_new(Err *e, const SearchTask *t, const SearchParams *p, uint64_t seed, Pool *pool);
void policy_free(Policy *p);
/* in front of the built-in rules, in order of registration; raises on e */
void policy_add_rule(Err *e, Policy *p, CustomRule r);
/* NULL: the calling thread alone; between calls only */
void policy_set_pool(Policy *p, Pool *pool);
void policy_set_scorer(Policy *p, Scorer s);                          /* .score NULL: the analytic estimate */
StateList policy_sketches(Policy *p, Arena *a); /* 03 §2; the policy's own; replay them with sketch_replay */
/* like state_replay; a split made to be factored may be open */
State *sketch_replay(IrCtx *c, const TeDag *d, int n, const Step *steps);
/* 03 §3; raises if nothing valid is found in bounded time */
StateList policy_sample(Policy *p, Arena *a);
StateList policy_evolve(Policy *p, Arena *a, StateList init, int out_size); /* 03 §4.4; best first, unmeasured states only */
enum { ROUND_MOST = 1 << 20 }; /* candidates of one round */
/* 03 §4.6: up to `batch` candidates to measure next, the caller's; marks them as picked; returns how many, 0: exhausted.
 * Raises on e. out: room for a batch, zeroed; what is in it after an error is the caller's, too. */
int policy_round(Policy *p, Err *e, int batch, Candidate **out);
/* For the next round: so many of the run's trials are given out already; total 0: nobody knows how many there are. */
void policy_progress(Policy *p, int64_t done, int64_t total);
/* What the candidates of rounds are to have (WANT_PROGRAM), besides what the scorer learns from; layout as in gen_steps. */
void policy_want(Policy *p, unsigned want, int layout);
/* of memory for what is known of states that were met before; 32 MiB by default */
void policy_remember(Policy *p, size_t bytes);
/* result of a measurement, also from a log; raises never */
void policy_report(Policy *p, const Candidate *c, double seconds, bool valid);
/* A state that may be good: it joins the first generations; first: half of the next round's batch may be such states. Raises never. */
void policy_hint(Policy *p, const Candidate *c, bool first);

/* Samples n times and counts what became of it: name[i], count[i]; returns the number of names. For tests and tools. */
int policy_sample_shares(Policy *p, int n, int cap, const char **name, int *count);

/* One generation's figures, for progress lines. */
/* kind: 0 sketches, 1 sample pass, 2 sampled, 3 generation (failed: invalid children so far), 4 evolved, 5 target
 * halved, 6 neighbours of measured states taken (failed: those that were left) */
typedef struct { int kind, iter, count, failed; double best, least, seconds, mutated, refused; } PolicyEvent;
void policy_set_listener(Policy *p, void (*fn)(void *self, const PolicyEvent *ev), void *self);

/* ---- what rules and users' rules ask (pred.c); ids are stages of the state ---- */
/* readers, through inlined stages; ascending; returns their number */
int pred_consumers(const State *s, int stage, int *out, int cap);
int pred_producers(const State *s, int stage, int *out, int cap);
bool pred_is_tiled(const State *s, int stage);
bool pred_in_product(const State *s, int stage); /* is it in a kernel that one step makes? */
bool pred_in_tile(const State *s, int stage); /* is it computed in the tiles of another stage, by loops? */
bool pred_has_step(const State *s, int stage, StepKind k);            /* CHW, CHR or RF made on the stage */
bool pred_cross_thread(const State *s, int stage);

/* The type of the factors of a computation that tensor cores could do in one kernel; no lanes: they could not. s: as made from
 * the DAG, and changed. */
DType tensor_factors(State *s);

#endif
