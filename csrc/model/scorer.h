/* Who ranks candidates: the estimate, a model that learns, or whoever implements a Scorer. */
#ifndef NS_MODEL_SCORER_H
#define NS_MODEL_SCORER_H
#include "model/estimate.h"
#include "model/model.h"

/* What models see of a state; true as long as its steps are what they are. */
typedef struct {
  Features f;
  float state[STATE_N];
} Traits;
/* Of a bounded state and its facts, in the arena of its context. Raises what lowering raises. */
Traits traits_of(const Target *t, State *s, const StateFacts *f);
Traits *traits_copy(Arena *a, const Traits *t); /* all but the names of the rows */

/* Higher is better, -INFINITY for a state that cannot be built. Called from any worker. */
typedef struct {
  void *self;
  /* From traits. While it returns false (nothing is learnt yet; n = 0 only asks) the estimate ranks. */
  bool (*rate)(void *self, int n, const Traits *const *t, double *out);
  /* From bounded states, where there is no rate. Neither: the estimate ranks. */
  void (*score)(void *self, const Target *t, int n, State *const *s, double *out);
} Scorer;
/* By the estimate, by a model from traits, or by somebody who wants to see states. */
typedef enum { BY_ESTIMATE, BY_TRAITS, BY_STATES } Ranking;
Ranking scorer_ranking(const Scorer *r); /* now */
double scorer_one(const Scorer *r, const Target *t, State *s); /* of one bounded state */
void random_score(void *self, const Target *t, int n, State *const *s, double *out); /* a score; self: the seed, uint64_t */

/* ---- the learned scorer (learner.c): a task of a session's cost model, which learns while no search runs ---- */
typedef struct { CostModel *model; int number; } LearnerTask;
Scorer learner_scorer(const LearnerTask *x); /* x must stay where it is */
/* What each stage of a bounded state adds to the raw score of trees, then what belongs to none of them: stage.len + 1 numbers;
 * zeros before the first training. false: the model has no such parts. */
bool learner_stages(const LearnerTask *x, const Target *t, State *s, double *out);
#endif
