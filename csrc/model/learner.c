/* The learned scorer: what a session has measured ranks what its searches propose.
 *
 * A candidate is scored in two steps: the closed-form facts refuse what breaks a limit of the device, then the forest scores
 * the features of the loop program. The forest's score becomes a fitness in (0, 1] by the session's monotone map, plus a
 * vanishing share of the raw score, so that order survives where the map is flat. The analytic estimate speaks alone
 * before the first training; after it, it is what the trees start from (prior.c).
 */
#include "model/scorer.h"
#include <math.h>
#include <string.h>

/* ---- traits ---- */

Traits traits_of(const Target *t, State *s, const StateFacts *f) {
  Traits x = {.f = feat_of_state(s, t, FEAT_RULES_REPAIRED, true, false)};
  facts_vector(t, f, x.state);
  return x;
}

Traits *traits_copy(Arena *a, const Traits *t) {
  Traits *own = arena_copy(a, t, sizeof *t);
  own->f.row = arena_copy(a, t->f.row, sizeof *t->f.row * (size_t)t->f.n_rows);
  own->f.name = NULL;
  return own;
}

/* ---- scoring ---- */

typedef struct {
  const Scorer *r;
  const Target *t;
  State *s;
  double out;
} One;
static void one_body(void *arg) {
  One *x = arg;
  StateFacts facts = state_facts(x->t, x->s);
  if (facts.invalid) return;
  Traits made = traits_of(x->t, x->s, &facts);
  const Traits *const one[1] = {&made};
  x->r->rate(x->r->self, 1, one, &x->out);
}

Ranking scorer_ranking(const Scorer *r) {
  if (r->rate) return r->rate(r->self, 0, NULL, NULL) ? BY_TRAITS : BY_ESTIMATE;
  return r->score ? BY_STATES : BY_ESTIMATE;
}

double scorer_one(const Scorer *r, const Target *t, State *s) {
  One x = {r, t, s, -INFINITY};
  State *const one[1] = {s};
  Ranking by = scorer_ranking(r);
  if (by == BY_TRAITS) {
    err_attempt(ir_err(s->ctx), one_body, &x);
  } else if (by == BY_STATES) {
    r->score(r->self, t, 1, one, &x.out);
  } else {
    StateFacts f = state_facts(t, s);
    x.out = estimate_of(t, &f);
  }
  return x.out;
}

void random_score(void *self, const Target *t, int n, State *const *s, double *out) {
  const uint64_t *seed = self;
  for (int i = 0; i < n; i++) {
    Rng r;
    rng_seed(&r, *seed ^ state_hash(s[i]));
    StateFacts f = state_facts(t, s[i]);
    out[i] = f.invalid ? -INFINITY : rng_unit(&r);
  }
}

/* ---- the learner ---- */

/* Rows are named after what is stored. The parts of a reduction across threads belong to the row that they lead to. */
bool learner_stages(const LearnerTask *x, const Target *t, State *s, double *out) {
  StateFacts facts = state_facts(t, s);
  Traits made = traits_of(t, s, &facts);
  const Features *f = &made.f;
  double *row = arena_array(ir_arena(s->ctx), double, f->n_rows + 1), pending = 0;
  memset(out, 0, sizeof *out * (size_t)(s->stage.len + 1));
  if (!cost_ready(x->model)) return true;
  if (!cost_rows(x->model, x->number, f, made.state, row)) return false;
  for (int r = 0; r < f->n_rows; r++) {
    int i = 0;
    while (i < s->stage.len && strcmp(s->stage.at[i].op->name, f->name[r]) != 0) i++;
    pending += row[r];
    if (i == s->stage.len) continue;
    out[i] += pending;
    pending = 0;
  }
  out[s->stage.len] = row[f->n_rows] + pending;
  return true;
}

static bool learned_rate(void *self, int n, const Traits *const *t, double *out) {
  const LearnerTask *x = self;
  if (!cost_ready(x->model)) return false;
  for (int i = 0; i < n; i++) {
    double raw = cost_score(x->model, x->number, &t[i]->f, t[i]->state);
    out[i] = isfinite(raw) ? cost_fitness(x->model, x->number, raw) + 1e-6 * (1 + raw / (1 + fabs(raw))) : -INFINITY;
  }
  return true;
}

Scorer learner_scorer(const LearnerTask *x) { return (Scorer){.self = (void *)(uintptr_t)x, .rate = learned_rate}; }
