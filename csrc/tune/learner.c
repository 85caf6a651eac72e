/* The learned scorer: what a session has measured ranks what its searches propose.
 *
 * Every measured state is replayed once more to extract its features; a forest is trained when that is due. A candidate
 * is scored in two steps: the closed-form facts refuse what breaks a limit of the device, then the forest scores the
 * features of the loop program. The forest's score becomes a fitness in (0, 1] by the session's monotone map, plus a
 * vanishing share of the raw score, so that order survives where the map is flat. The analytic estimate speaks alone
 * before the first training; after it, it is what the trees start from (prior.c).
 */
#include "tune/tune.h"
#include <math.h>
#include <string.h>

struct Learner {
  Err *err;
  Arena *arena;
  CostModel *model;
  VEC(LearnerTask *) task;
};
struct LearnerTask {
  Learner *owner;
  const SearchTask *task;
  int number;
};

typedef struct {
  Err *err;
  Arena *arena;
  uint64_t seed;
  Learner *made;
} New;
static void new_body(void *arg) {
  New *n = arg;
  n->made = arena_new_of(n->arena, Learner);
  *n->made = (Learner){.err = n->err, .arena = n->arena, .model = cost_new(n->err, n->seed, NULL)};
}
static void new_undo(void *arg) { arena_free(((New *)arg)->arena); }
Learner *learner_new(Err *e, uint64_t seed) {
  New n = {e, arena_new(e), seed, NULL};
  err_guard(e, new_body, new_undo, &n);
  return n.made;
}

void learner_free(Learner *l) {
  if (!l) return;
  cost_free(l->model);
  arena_free(l->arena);
}

LearnerTask *learner_task(Learner *l, const SearchTask *t) {
  LearnerTask *x = arena_new_of(l->arena, LearnerTask);
  *x = (LearnerTask){.owner = l, .task = t, .number = l->task.len};
  vec_push(l->arena, &l->task, x);
  return x;
}

CostModel *learner_model(const Learner *l) { return l->model; }

static Features features_of(State *s, const Target *t) { return feat_of_state(s, t, FEAT_RULES_REPAIRED, true, false); }

/* The closed forms of a state as a vector for the model; on a CPU the estimate alone. */
static const float *state_vector(const SearchTask *t, const StateFacts *f, float *out) {
  facts_vector(t, f, out);
  return out;
}

/* ---- learning ---- */
typedef struct {
  LearnerTask *x;
  int n;
  const Step *steps;
  double seconds;
  IrCtx *c;
} Add;

static void add_body(void *arg) {
  Add *a = arg;
  const SearchTask *t = a->x->task;
  a->c = ir_clone(task_ctx(t), a->x->owner->err);
  State *s = state_replay(a->c, task_dag(t), a->n, a->steps);
  state_infer_bounds(s);
  StateFacts facts = state_facts(t, s);
  float vec[STATE_N];
  const float *state = state_vector(t, &facts, vec);
  Features f = features_of(s, task_target(t));
  cost_add(a->x->owner->model, a->x->number, &f, state, a->seconds);
}

void learner_add(LearnerTask *x, int n, const Step *steps, double seconds) {
  Add a = {x, n, steps, seconds, NULL};
  ErrCode code = err_try(x->owner->err, add_body, &a);
  ir_free(a.c);
  /* A state that cannot be lowered teaches nothing: other errors end here. */
  if (code == NS_ERR_MEMORY || code == NS_ERR_INTERRUPT) err_rethrow(x->owner->err, code);
}

bool learner_train(Learner *l, Pool *pool) {
  if (!cost_due(l->model)) return false;
  cost_train(l->model, pool);
  return true;
}

/* ---- scoring ---- */
typedef struct {
  const LearnerTask *x;
  State *s;
  double out;
} Score;

static void score_body(void *arg) {
  Score *c = arg;
  const SearchTask *t = c->x->task;
  StateFacts facts = state_facts(t, c->s);
  if (facts.invalid) return;
  Features f = features_of(c->s, task_target(t));
  float vec[STATE_N];
  double raw = cost_score(c->x->owner->model, c->x->number, &f, state_vector(t, &facts, vec));
  if (!isfinite(raw)) return;
  c->out = cost_fitness(c->x->owner->model, c->x->number, raw) + 1e-6 * (1 + raw / (1 + fabs(raw)));
}

/* Rows are named after what is stored. The parts of a reduction across threads belong to the row that they lead to. */
bool learner_stages(const LearnerTask *x, State *s, double *out) {
  Arena *a = ir_arena(s->ctx);
  Features f = features_of(s, task_target(x->task));
  StateFacts facts = state_facts(x->task, s);
  float vec[STATE_N];
  double *row = arena_array(a, double, f.n_rows + 1), pending = 0;
  memset(out, 0, sizeof *out * (size_t)(s->stage.len + 1));
  if (!cost_ready(x->owner->model)) return true;
  if (!cost_rows(x->owner->model, x->number, &f, state_vector(x->task, &facts, vec), row)) return false;
  for (int r = 0; r < f.n_rows; r++) {
    int i = 0;
    while (i < s->stage.len && strcmp(s->stage.at[i].op->name, f.name[r]) != 0) i++;
    pending += row[r];
    if (i == s->stage.len) continue;
    out[i] += pending;
    pending = 0;
  }
  out[s->stage.len] = row[f.n_rows] + pending;
  return true;
}

static void learned_score(void *self, const SearchTask *t, int n, State *const *s, double *out) {
  const LearnerTask *x = self;
  if (!cost_ready(x->owner->model)) {
    analytic_score(NULL, t, n, s, out);
    return;
  }
  for (int i = 0; i < n; i++) {
    Score c = {x, s[i], -INFINITY};
    Err *e = ir_err(s[i]->ctx);
    ErrCode code = err_try(e, score_body, &c);
    if (code == NS_ERR_MEMORY || code == NS_ERR_INTERRUPT) err_rethrow(e, code);
    out[i] = code == NS_OK ? c.out : -INFINITY;
  }
}

/* On a GPU the estimate picks who is scored by the model; on a CPU it ranks too badly for that. */
static bool learned_draft(void *self, const SearchTask *t, int n, State *const *s, double *out) {
  const LearnerTask *x = self;
  if (!cost_ready(x->owner->model) || task_target(t)->kind == TG_CPU) return false;
  if (n > 0) analytic_score(NULL, t, n, s, out);
  return true;
}

Scorer learner_scorer(LearnerTask *x) { return (Scorer){learned_score, x, learned_draft}; }

void random_score(void *self, const SearchTask *t, int n, State *const *s, double *out) {
  const uint64_t *seed = self;
  for (int i = 0; i < n; i++) {
    Rng r;
    rng_seed(&r, *seed ^ state_hash(s[i]));
    StateFacts f = state_facts(t, s[i]);
    out[i] = f.invalid ? -INFINITY : rng_unit(&r);
  }
}
