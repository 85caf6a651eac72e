/* Making candidates in chunks, and the sampling loop.
 *
 * Work is cut into chunks that are the same for any number of threads; each slot of a chunk has its own random generator,
 * so the result depends on the seed only. A slot is filled by sampling, by mutation or from a given step list; the states
 * of a chunk are scored together. Spec 03 §3.1.
 */
#include "search/policy.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GIVE_UP_PASSES = 10, MAX_TRIES = 8 };

/* ---- evaluating: from a step list to hash and score ---- */

static double rated(const Job *j, const Traits *t) {
  double out;
  j->p->scorer.rate(j->p->scorer.self, 1, &t, &out);
  return out;
}

/* Is all known that this job asks about a step list? Then *score is what it would come to. */
static bool met(const Job *j, const Met *k, double *score) {
  if (j->by == BY_ESTIMATE) {
    *score = k->estimate;
    return k->have & MET_ESTIMATE;
  }
  *score = k->traits ? rated(j, k->traits) : -INFINITY;
  return k->traits || k->have & MET_BAD;
}

static void fill_slot(Job *j, int n, const Step *steps, uint64_t hash, double score) {
  j->slot[j->at] = (Cand){.n = n,
                          .step = sp_steps_copy(j->w->out[j->gen & 1], n, steps, true),
                          .hash = hash,
                          .score = isnan(score) ? -INFINITY : score,
                          .full = !j->draft};
}

/* A list that was met before is known at once. Others are replayed in the worker's context, unless they were made there, and
 * their bounds inferred; the result waits for scoring. */
static void stage_state(Job *j, int n, const Step *steps, State *s) {
  SearchThread *w = j->w;
  Met k;
  double score;
  j->id = steps_hash(n, steps);
  if (j->by != BY_STATES && memo_get(j->p->memo, j->id, j->by == BY_TRAITS ? ir_arena(w->ctx) : NULL, &k)) {
    if (k.have & MET_REFUSED) return;
    if (met(j, &k, &score)) {
      fill_slot(j, n, steps, k.hash, score);
      return;
    }
  }
  if (!s) s = make_replay(&w->env, n, sp_steps_copy(ir_arena(w->ctx), n, steps, false));
  state_infer_bounds(s);
  if (!w->env.task->gpu && sp_nested_parallel(s)) {
    memo_put(j->p->memo, j->id, &(Met){.have = MET_REFUSED});
    return;
  }
  fill_slot(j, n, steps, state_hash(s), -INFINITY);
  j->state[j->n_state] = s;
  j->state_id[j->n_state] = j->id;
  j->state_slot[j->n_state++] = j->at;
}

/* Facts of a bounded state, and its traits if the model wants them. */
static void describe(void *arg) {
  Job *j = arg;
  const Target *t = &j->p->task->target;
  State *s = j->state[j->scored];
  Cand *c = &j->slot[j->state_slot[j->scored]];
  StateFacts f = state_facts(t, s);
  Traits made;
  Met k = {.hash = c->hash, .estimate = estimate_of(t, &f), .have = f.invalid ? MET_ESTIMATE | MET_BAD : MET_ESTIMATE};
  if (j->by == BY_TRAITS && !f.invalid) {
    made = traits_of(t, s, &f);
    k.traits = &made;
  }
  met(j, &k, &c->score);
  if (isnan(c->score)) c->score = -INFINITY;
  memo_put(j->p->memo, j->state_id[j->scored], &k);
}

static void score_states(void *arg) {
  Job *j = arg;
  double out[CHUNK];
  const Scorer *sc = &j->p->scorer;
  if (j->by == BY_STATES) {
    sc->score(sc->self, &j->p->task->target, j->n_state, j->state, out);
    for (int i = 0; i < j->n_state; i++) j->slot[j->state_slot[i]].score = isnan(out[i]) ? -INFINITY : out[i];
    return;
  }
  for (int i = 0; i < j->n_state; i++) {
    j->scored = i;
    if (err_attempt(&j->w->err, describe, j) == NS_OK) continue; /* else it cannot be lowered */
    memo_put(j->p->memo, j->state_id[i], &(Met){.hash = j->slot[j->state_slot[i]].hash, .have = MET_BAD});
  }
}

/* Scores what was staged; the context forgets it. */
static void finish(Job *j) {
  ErrCode c = j->n_state > 0 ? err_try(&j->w->err, score_states, j) : NS_OK;
  if (c == NS_ERR_RUNTIME || c == NS_ERR_INTERRUPT || c == NS_ERR_MEMORY) pol_ends(j->w, c);
  ir_release(j->w->ctx, j->w->base);
  j->n_state = 0;
}

/* Runs the job's `make` for each slot of the chunk, each under its own protection, and scores what came out: at once, while it is in the
 * processor's caches, or all together for somebody who wants to see states. Nothing is done any more when the call is to end: it was
 * interrupted, or its scorer failed. */
static void chunk(void *arg, int worker, int64_t item) {
  Job j = *(const Job *)arg;
  const atomic_int *stop = j.p->err.interrupt;
  j.w = &j.p->worker[worker];
  if (stop && *stop) return;
  int end = (int)item * CHUNK + CHUNK < j.n ? (int)item * CHUNK + CHUNK : j.n;
  for (j.at = (int)item * CHUNK; j.at < end && j.w->score_code == NS_OK; j.at++) {
    j.id = 0;
    ErrCode c = err_try(&j.w->err, j.make, &j);
    if (c == NS_ERR_MEMORY) pol_ends(j.w, c); /* says nothing of the candidate */
    if (c == NS_ERR_VALUE && j.id) memo_put(j.p->memo, j.id, &(Met){.have = MET_REFUSED});
    if (j.by != BY_STATES) finish(&j);
  }
  finish(&j);
}

static void make_sample(void *arg) {
  Job *j = arg;
  const char *why = "bounds";
  State *s = populate(&j->w->env, &j->rng[j->at], &why);
  if (j->why) j->why[j->at] = s ? NULL : why;
  if (s) stage_state(j, s->step.len, s->step.at, s);
}
static void make_given(void *arg) {
  Job *j = arg;
  const Cand *c = &j->parent[j->at];
  stage_state(j, c->n, c->step, NULL);
}

static int draw_parent(const Job *j, Rng *r) {
  double total = j->share[j->n_parent - 1];
  if (!(total > 0)) return (int)rng_below(r, j->n_parent);
  return rng_piece(j->n_parent, j->share, rng_unit(r) * total);
}

static void make_child(void *arg) {
  Job *j = arg;
  SearchThread *w = j->w;
  Rng *r = &j->rng[j->at];
  for (int k = 0; k < MAX_TRIES; k++) {
    const Cand *c = &j->parent[draw_parent(j, r)];
    int n;
    Step *steps;
    if (rng_unit(r) >= j->p->par.mutation_prob) {
      j->slot[j->at] = *c;
      j->slot[j->at].step = sp_steps_copy(w->out[j->gen & 1], c->n, c->step, true);
      return;
    }
    if (mutate(&w->env, &(Choice){.rng = r}, c->n, c->step, &n, &steps)) {
      w->mutated++;
      stage_state(j, n, steps, NULL);
      return;
    }
    w->refused++;
  }
}

void slots_fill(Job *j, int kind) {
  static const ErrBody MAKE[] = {[SLOTS_SAMPLE] = make_sample, [SLOTS_GIVEN] = make_given, [SLOTS_CHILD] = make_child};
  j->make = MAKE[kind];
  pol_run(j->p, (j->n + CHUNK - 1) / CHUNK, chunk, j);
}

void evaluate(Policy *p, int gen, int n, Cand *c) {
  Cand *given = arena_copy(p->call, c, sizeof(Cand) * (size_t)n);
  memset(c, 0, sizeof(Cand) * (size_t)n);
  Job j = {.p = p, .gen = gen, .n = n, .parent = given, .slot = c, .by = scorer_ranking(&p->scorer)};
  slots_fill(&j, SLOTS_GIVEN);
}

Rng *slot_rngs(Policy *p, Arena *a, int n) {
  Rng *r = arena_array(a, Rng, n), base = rng_split(&p->rng);
  for (int i = 0; i < n; i++) r[i] = rng_split(&base);
  return r;
}

/* ---- draft, then score ---- */

/* A population is mostly waste: the draft estimate, which needs no loop program, decides who is scored by the model. */
enum { KEEP_ONE_IN = 4, RANDOM_ONE_IN = 32 };

/* On a GPU the estimate picks who is scored by the model; on a CPU it ranks too badly for that. */
bool drafting(const Policy *p) { return p->task->gpu && scorer_ranking(&p->scorer) == BY_TRAITS; }

Known known_new(Arena *a) {
  Known k = {0};
  mapu_init(&k.at, a);
  return k;
}
void known_add(Arena *a, Known *k, const Cand *c) { vec_note(a, &k->score, c->score, &k->at, c->hash); }

int by_score(const void *x, const void *y) {
  const Cand *a = *(const Cand *const *)x, *b = *(const Cand *const *)y;
  return a->score > b->score ? -1 : a->score < b->score ? 1 : a < b ? -1 : a > b;
}

void refine(Policy *p, Arena *a, int gen, int n, Cand *c, Known *known) {
  Cand **wait = arena_array(a, Cand *, n);
  int n_wait = 0, keep = p->par.population / KEEP_ONE_IN, extra = p->par.population / RANDOM_ONE_IN, m = 0;
  if (keep == 0) keep = 1; /* a tiny population still has a best state */
  MapU64 first;            /* of equal states one is scored */
  mapu_init(&first, a);
  for (int i = 0; i < n; i++) {
    if (!c[i].step || c[i].full) continue;
    int32_t at = mapu_get(&known->at, c[i].hash, -1);
    if (at >= 0)
      c[i].score = known->score.at[at], c[i].full = true;
    else if (c[i].score == -INFINITY || mapu_get(&first, c[i].hash, 0))
      c[i].step = NULL;
    else {
      mapu_set(&first, c[i].hash, 1);
      wait[n_wait++] = &c[i];
    }
  }
  qsort(wait, (size_t)n_wait, sizeof *wait, by_score);
  for (int i = keep; i < n_wait && i < keep + extra; i++) { /* behind the best: a random choice of the others */
    int k = i + (int)rng_below(&p->rng, n_wait - i);
    Cand *t = wait[i];
    wait[i] = wait[k], wait[k] = t;
  }
  Cand *chosen = arena_array(a, Cand, keep + extra);
  for (int i = 0; i < n_wait; i++) {
    if (m < keep + extra)
      chosen[m++] = *wait[i];
    else
      wait[i]->step = NULL;
  }
  evaluate(p, gen, m, chosen);
  for (int i = 0; i < m; i++) {
    *wait[i] = chosen[i];
    if (chosen[i].step) known_add(a, known, &chosen[i]);
  }
}

/* ---- sampling ---- */

/* Counts one more of a name, as long as there is room for it; the number of names. */
static int tally(int n, int cap, const char **name, int *count, const char *one) {
  int k = 0;
  while (k < n && strcmp(name[k], one) != 0) k++;
  if (k == cap) return n;
  if (k == n) name[n] = one, count[n++] = 0;
  count[k]++;
  return n;
}

static const char *main_reason(int n, const char **why, Arena *a) {
  const char *name[16];
  int count[16], k = 0, best = 0;
  for (int i = 0; i < n; i++) k = tally(k, 16, name, count, why[i] ? why[i] : "bounds, limits of the device or score");
  for (int i = 1; i < k; i++)
    if (count[i] > count[best]) best = i;
  return k ? arena_printf(a, "%s (%d of %d)", name[best], count[best], n) : "nothing was sampled";
}

/* Fills `out` (step lists in a) with distinct valid states. */
void sample(Policy *p, Arena *a, CandVec *out) {
  int n = p->par.population, barren = 0;
  double t0 = clock_now();
  int64_t failed = 0;
  MapU64 seen;
  mapu_init(&seen, a);
  Job j = {.p = p,
           .n = n,
           .rng = slot_rngs(p, a, n),
           .slot = arena_array(a, Cand, n),
           .by = drafting(p) ? BY_ESTIMATE : scorer_ranking(&p->scorer),
           .draft = drafting(p),
           .why = arena_array(a, const char *, n)};
  for (int pass = 1; out->len < p->target_min; pass++) {
    err_poll(&p->err);
    memset(j.slot, 0, sizeof(Cand) * (size_t)n);
    slots_fill(&j, SLOTS_SAMPLE);
    barren++;
    for (int i = 0; i < n; i++) {
      Cand c = j.slot[i];
      if (!c.step || c.score <= -1e10 || mapu_get(&seen, c.hash, 0)) {
        failed++;
        continue;
      }
      mapu_set(&seen, c.hash, 1);
      c.step = sp_steps_copy(a, c.n, c.step, true);
      vec_push(a, out, c);
      barren = 0;
    }
    if (pass % 5 == 0)
      pol_tell(p, (PolicyEvent){
                      .kind = 1, .iter = pass, .count = out->len, .failed = (int)failed, .seconds = clock_now() - t0});
    err_check(
        &p->err, out->len > 0 || pass < GIVE_UP_PASSES,
        "no valid program among %lld samples; most were refused for: %s. Check the hardware parameters of the task",
        (long long)n * pass, main_reason(n, j.why, a));
    if (barren == 5) {
      if (p->target_min == 1) break;
      p->target_min = p->target_min > 1 ? p->target_min / 2 : 1;
      pol_tell(p, (PolicyEvent){.kind = 5, .count = p->target_min});
      barren = 0;
    }
  }
  pol_tell(p, (PolicyEvent){.kind = 2, .count = out->len, .failed = (int)failed, .seconds = clock_now() - t0});
}

static void sample_body(void *arg) {
  Call *c = arg;
  pol_workers_open(c->p);
  CandVec got = {0};
  sample(c->p, c->p->worker[0].keep, &got);
  c->out = pol_list_out(c->a, got.len, got.at);
}
StateList policy_sample(Policy *p, Arena *a) {
  return pol_guarded(arena_err(a), sample_body, (Call){.p = p, .a = a}).out;
}

typedef struct {
  Policy *p;
  int n, cap, n_name;
  const char **name;
  int *count;
} Shares;
static void shares_body(void *arg) {
  Shares *x = arg;
  Policy *p = x->p;
  pol_workers_open(p);
  SearchThread *w = &p->worker[0];
  for (int i = 0; i < x->n; i++) {
    Rng r = rng_split(&p->rng);
    Cand slot = {0};
    const char *why = NULL;
    Job j = {.p = p, .w = w, .n = 1, .rng = &r, .slot = &slot, .why = &why, .by = BY_STATES};
    if (err_try(&w->err, make_sample, &j) != NS_OK)
      why = "bounds";
    else if (!why && j.n_state > 0) {
      StateFacts f = state_facts(&p->task->target, j.state[0]);
      why = f.invalid ? f.invalid : "ok";
    }
    ir_release(w->ctx, w->base);
    x->n_name = tally(x->n_name, x->cap, x->name, x->count, why ? why : "nested parallel");
  }
}
int policy_sample_shares(Policy *p, int n, int cap, const char **name, int *count) {
  Shares x = {p, n, cap, 0, name, count};
  err_try(&p->err, shares_body, &x);
  pol_workers_close(p);
  return x.n_name;
}
