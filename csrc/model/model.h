/* model: features of a candidate and the models that rank candidates by them. It knows nothing of devices.
 * Spec chapter 04.
 */
#ifndef NS_MODEL_H
#define NS_MODEL_H
#include "lower/lower.h"

/* ---- the per-store feature vector (features.c) : 04 §1 ---- */
enum { FEAT_N = 164, FEAT_SLOTS = 5, FEAT_SLOT_N = 18 };
typedef enum { FEAT_RULES_REFERENCE = 1, FEAT_RULES_REPAIRED = 2 } FeatRules; /* 04 §1.9 */
typedef struct {
  int32_t n_rows;
  float (*row)[FEAT_N]; /* one row per stored buffer, in the order of first stores */
  const char **name;    /* buffer of each row */
} Features;
/* Features of the loop program that low_loops(…, LOW_FEATURES) makes. log: apply slog (04 §1.8). Memory: the
 * context's arena. */
Features feat_extract(const Func *loops, FeatRules rules, bool log);
/* Loop program of a bounded state, simplified, and its features. check: no rows if a limit of a GPU target is broken.
 */
Features feat_of_state(State *s, const Target *t, FeatRules rules, bool log, bool check);

/* ---- training data: states as runs of rows ---- */
/* A row of the built-in models: the 164 entries, then those of the state. GPU states have one more row, in which only the
 * latter are set (gpu.h); they are 0 in all others. */
enum { STATE_N = 48, ROW_N = FEAT_N + STATE_N, STATE_TIME = 41 }; /* STATE_TIME: log2 of the estimate in ns */
typedef struct {
  int32_t n_states, n_feat;
  const int32_t *first; /* n_states + 1 offsets into rows; an empty run is a state that could not be lowered */
  const float *rows;    /* first[n_states] x n_feat */
  const int32_t *task;  /* task number of each state */
  const double *cost;   /* seconds; 1e10 or more: failed. NULL when only predicting */
} FeatBatch;
int32_t batch_tasks(const FeatBatch *b);             /* one more than the largest number of a task */
void batch_finite(Err *e, const FeatBatch *b);        /* raises if a feature is not finite */
/* Is a cost a time? Else the state failed: 1e10, and what no clock shows (0, negative, not a number). */
static inline bool cost_is_time(double seconds) { return seconds > 0 && seconds < 1e9; }

/* ---- labels and rank losses (loss.c) : 04 §5.4 ---- */
/* Weighted pairs for runs of the auto-scheduler; for template tuners the squared error of the label, and pairs that count
 * alike. */
typedef enum { LOSS_TOP_WEIGHTED, LOSS_PAIRWISE, LOSS_SQUARED, LOSS_ORDER } LossKind;
typedef struct RankLoss RankLoss; /* labels and groups of one batch */
RankLoss *loss_new(Arena *a, const FeatBatch *b, LossKind kind);
const double *loss_labels(const RankLoss *l); /* best / cost in the task; 0 for failed states */
void loss_gradient(const RankLoss *l, const double *score, Rng *r, double *g, double *h); /* per state; h > 0 */

/* ---- the closed-form estimate as what training starts from (prior.c) ---- */
double prior_of_state(const float *state);              /* -ln of the estimated time; 0 for NULL */
void prior_of_batch(const FeatBatch *b, double *out);   /* per state; 0 where rows carry no estimate */
double prior_fit(Arena *a, const FeatBatch *b, const double *prior, double usual, LossKind kind,
                 uint64_t seed); /* scale of a prior that fits the rank loss best, at least 0; near the usual if unsure */
#define PRIOR_SCALE 2.0 /* usual scale of the estimate */

/* Numbers of the model file; a base is a forest that training starts from and never replaces. MODEL_BLEND is no file:
 * trees and network together. */
typedef enum { MODEL_TREES = 1, MODEL_NETWORK = 2, MODEL_BASE = 3, MODEL_BLEND = 4 } ModelKind;

/* ---- model T: boosted trees with a packed sum (trees.c, forest.c) : 04 §5.3, §5.10 ---- */
typedef struct {
  int32_t trees, depth, bins;
  double eta, lambda, gamma, min_child_weight;
  double states, entries; /* shares of the states and of the entries that a tree sees, drawn for each tree */
  LossKind loss;
  /* recall > 0: training ends when the average recall of the best so many states has not grown for `patience` trees;
   * recall_cut > 0: labels count as 1 from there on, else as 0 */
  int32_t recall, patience;
  double recall_cut;
} TreeParams;
enum { EXACT_BINS = 0 }; /* bins: one for each value */
TreeParams tree_params_default(void); /* for thousands of records, trained once */
TreeParams tree_params_online(void);  /* for the records of a run, trained again and again */
TreeParams tree_params_template(LossKind loss); /* 06 §2.6 */
typedef struct {
  int32_t entry;
  float value;
  int32_t left;
} TreeNode; /* entry -1: leaf with value; else value is the threshold, right = left + 1 */
typedef struct {
  int32_t n_trees, n_feat, n_nodes, rules;
  double scale; /* of the prior that is added to the trees */
  int32_t *root;
  TreeNode *node;
} Forest;
/* start: scores that boosting begins at, NULL: 0; the trees alone do not contain them. Same bytes for every pool size. */
Forest *forest_train(Arena *a, const FeatBatch *b, const TreeParams *p, uint64_t seed, const double *start, Pool *pool);
/* scores f_scale * f + g; either may be NULL */
Forest *forest_join(Arena *a, const Forest *f, double f_scale, const Forest *g);
bool forest_sound(const Forest *f); /* walking its trees ends and stays inside rows and nodes */
void forest_score(const Forest *f, const FeatBatch *b, double *score); /* -INFINITY for a state without rows */
void forest_save(Arena *a, const Forest *f, bool base, const char *path,
                 const char *json); /* json: device, tasks, parameters; the arena is left as it was */
Forest *forest_load(Arena *a, const char *path,
                    const char **json); /* raises on a wrong magic, version, kind or checksum */

/* ---- model N: a network per row, a sum over the rows of a state, a head (mlp.c) : 04 §5.2, §5.6 ---- */
typedef struct Mlp Mlp;
typedef struct {
  int32_t hidden, steps, batch, threads; /* threads: of BLAS; 1 gives the same bytes on every run */
  double rate, decay, clip;
  LossKind loss;
} MlpParams;
MlpParams mlp_params_default(bool update); /* from scratch: 600 steps; update of a trained network: 60 short ones */
Mlp *mlp_train(Arena *a, const FeatBatch *b, const MlpParams *p, uint64_t seed,
               const Mlp *start); /* start: NULL, or what to go on from */
void mlp_score(const Mlp *m, const FeatBatch *b,
               double *score); /* -INFINITY for a state without rows; safe from several threads */
int mlp_entries(const Mlp *m); /* of a row */
int mlp_rules(const Mlp *m);
void mlp_set_rules(Mlp *m, int rules);
void mlp_save(Arena *a, const Mlp *m, const char *path, const char *json);
Mlp *mlp_load(Arena *a, const char *path, const char **json);
ModelKind model_file_kind(Arena *a, const char *path); /* raises like the loaders */

/* ---- online use (cost.c): records of a run, retraining, scores, fitness; 04 §5.6 ---- */
typedef struct CostModel CostModel; /* one per session; scoring is safe from several threads while nobody updates */
CostModel *cost_new(Err *e, uint64_t seed, const TreeParams *p);
void cost_free(CostModel *m);
void cost_add(CostModel *m, int task, const Features *f, const float *state,
              double seconds);             /* copies the rows; state: STATE_N entries or NULL; 1e10 seconds: failed */
bool cost_due(const CostModel *m);         /* is retraining worth it now? */
void cost_train(CostModel *m, Pool *pool); /* also rebuilds the fitness maps */
bool cost_ready(const CostModel *m);       /* has been trained or loaded */
double cost_score(const CostModel *m, int task, const Features *f, const float *state); /* -INFINITY for no rows */
/* The parts of a raw score of trees: one of each row, then that of the machine's row, the estimate included. false: networks,
 * and models that have not been trained. */
bool cost_rows(const CostModel *m, int task, const Features *f, const float *state, double *out); /* n_rows + 1 */
double cost_fitness(const CostModel *m, int task,
                    double score); /* monotone in score, positive, at most 1 after a training; 0 for -INFINITY */
int cost_records(const CostModel *m);
FeatBatch cost_batch(const CostModel *m);             /* all records; valid until the next cost_add */
void cost_use(CostModel *m, ModelKind kind);          /* what the next training makes; trees by default */
/* copies a forest trained elsewhere; it scores until the next training */
void cost_adopt(CostModel *m, const Forest *f);
bool cost_dropped(const CostModel *m, int task);      /* has the base misled this task? */
void cost_save(const CostModel *m, const char *path, const char *json); /* raises before the first training */
void cost_load(CostModel *m, const char *path); /* trees and networks score until the next training, networks start from
                                                   it; a base stays */

/* ---- metrics (metrics.c) : 04 §3.3, mean over tasks ---- */
typedef struct {
  double pairwise, top1, top5, a_peak32, recall30;
} ModelMetrics;
/* Of n states: over the places 1..top of the order by score, the mean share of those before a place that belong there; 06
 * §2.6. */
double average_recall(Arena *a, int32_t n, const double *label, const double *score, int32_t top, double cut);
ModelMetrics model_metrics(Arena *a, const FeatBatch *b, const double *score);
#endif
