/* The search for one task: sample, evolve, pick.
 *
 * Every round samples a fresh population, adds the best measured states, breeds a few generations by mutation and returns
 * the states with the best scores that were never picked before, with a few random ones. Work is cut into items that are
 * the same for any number of threads; each item has its own random generator, so the result depends on the seed only.
 * A worker holds a clone of the task's context for the length of one call; what a candidate adds to it is released as soon
 * as its step list, its hash and its score are known. Spec 03 §3.1, §4.
 */
#include "search/space.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 16, GIVE_UP_PASSES = 10, MAX_TRIES = 8 };

typedef struct {
  int n;
  Step *step;
  uint64_t hash;
  double score;
} Cand;
typedef VEC(Cand) CandVec;

typedef struct {
  Err err;
  IrCtx *ctx;
  Arena *keep, *out[2]; /* factor table and sketches; step lists of the even and odd generation */
  IrMark base;
  MakeEnv env;
  int64_t mutated, refused, failed;
  ErrCode score_code; /* what a cost model raised, to be raised again by the caller's thread */
  char score_msg[ERR_MSG_MAX];
} Worker;

struct Policy {
  const SearchTask *task;
  SearchParams par;
  Err err;
  Arena *arena; /* lives with the policy */
  Rng rng;
  Pool *pool;
  Scorer scorer;
  VEC(CustomRule) rules;
  bool has_sketches;
  StateList sketches;
  MapU64 measured_set;
  CandVec measured; /* score: speed, 1 / seconds */
  int target_min, n_worker;
  Worker *worker; /* NULL between calls */
  void (*listen)(void *self, const PolicyEvent *ev);
  void *listen_self;
};

SearchParams search_params_default(void) {
  return (SearchParams){.eps_greedy = 0.05,
                        .sample_init_use_measured_ratio = 0.2,
                        .mutation_prob = 0.85,
                        .retry_on_empty = 1,
                        .sample_init_min_population = 50,
                        .population = 2048,
                        .num_iters = 4,
                        .max_innermost_split_factor = 64,
                        .max_vectorize_size = 16,
                        .cpu_structure = "SSRSRS",
                        .gpu_structure = "SSSRRSRS",
                        .extended = true};
}

/* ---- tasks ---- */

typedef struct {
  SearchTask *t;
  const IrCtx *src;
  const TeDag *d;
} NewTask;
static void new_task(void *arg) {
  NewTask *n = arg;
  n->t->ctx = ir_new(&n->t->err);
  n->t->dag = te_dag_import(n->t->ctx, n->src, n->d);
}

SearchTask *task_new(Err *e, const IrCtx *src, const TeDag *d, const Target *target) {
  SearchTask *t = calloc(1, sizeof *t);
  if (!t) err_raise(e, NS_ERR_MEMORY, "out of memory making a search task");
  err_init(&t->err);
  t->target = *target;
  t->gpu = target->kind != TG_CPU;
  NewTask n = {t, src, d};
  ErrCode c = err_try(&t->err, new_task, &n);
  if (c != NS_OK) {
    char msg[ERR_MSG_MAX];
    memcpy(msg, t->err.msg, sizeof msg);
    task_free(t);
    err_raise(e, c, "%s", msg);
  }
  return t;
}
void task_free(SearchTask *t) {
  if (!t) return;
  if (t->ctx) ir_free(t->ctx);
  free(t);
}
const TeDag *task_dag(const SearchTask *t) { return t->dag; }
const IrCtx *task_ctx(const SearchTask *t) { return t->ctx; }
const Target *task_target(const SearchTask *t) { return &t->target; }

/* ---- policies ---- */

static void new_policy(void *arg) {
  Policy *p = arg;
  p->arena = arena_new(&p->err);
  p->par.cpu_structure = arena_strdup(p->arena, p->par.cpu_structure);
  p->par.gpu_structure = arena_strdup(p->arena, p->par.gpu_structure);
  mapu_init(&p->measured_set, p->arena);
}

Policy *policy_new(Err *e, const SearchTask *t, const SearchParams *par, uint64_t seed, Pool *pool) {
  err_check(e,
            par->population > 0 && par->num_iters >= 0 && par->max_innermost_split_factor > 0 &&
                par->max_vectorize_size > 0,
            "search parameters: population %d, iterations %d, innermost factor %d and vector size %d must be positive",
            par->population, par->num_iters, par->max_innermost_split_factor, par->max_vectorize_size);
  Policy *p = calloc(1, sizeof *p);
  if (!p) err_raise(e, NS_ERR_MEMORY, "out of memory making a search policy");
  err_init(&p->err);
  p->task = t, p->par = *par, p->pool = pool;
  p->scorer = (Scorer){analytic_score, NULL};
  p->target_min = par->sample_init_min_population > 0 ? par->sample_init_min_population : 1;
  rng_seed(&p->rng, seed);
  ErrCode c = err_try(&p->err, new_policy, p);
  if (c != NS_OK) {
    policy_free(p);
    err_raise(e, c, "cannot make a search policy");
  }
  return p;
}

static void workers_close(Policy *p) {
  for (int i = 0; p->worker && i < p->n_worker; i++) {
    Worker *w = &p->worker[i];
    if (w->ctx) ir_free(w->ctx);
    arena_free(w->keep);
    arena_free(w->out[0]);
    arena_free(w->out[1]);
  }
  free(p->worker);
  p->worker = NULL;
}
void policy_free(Policy *p) {
  if (!p) return;
  workers_close(p);
  arena_free(p->arena);
  free(p);
}
void policy_set_pool(Policy *p, Pool *pool) { p->pool = pool; }
void policy_set_scorer(Policy *p, Scorer s) { p->scorer = s.score ? s : (Scorer){analytic_score, NULL}; }
void policy_set_listener(Policy *p, void (*fn)(void *self, const PolicyEvent *ev), void *self) {
  p->listen = fn, p->listen_self = self;
}
static void tell(Policy *p, PolicyEvent ev) {
  if (p->listen) p->listen(p->listen_self, &ev);
}

/* Runs the body of a public call; an error inside is raised again where the caller listens. */
static void guarded(Policy *p, Err *caller, ErrBody body, void *arg) {
  p->err.interrupt = caller->interrupt;
  ErrCode c = err_try(&p->err, body, arg);
  workers_close(p);
  if (c != NS_OK) err_raise(caller, c, "%s", p->err.msg);
}

typedef struct {
  Policy *p;
  CustomRule r;
} AddRule;
static void add_rule(void *arg) {
  AddRule *x = arg;
  vec_push(x->p->arena, &x->p->rules, x->r);
}
void policy_add_rule(Policy *p, CustomRule r) {
  AddRule x = {p, r};
  err_try(&p->err, add_rule, &x);
  p->has_sketches = false;
}

/* ---- sketches ---- */

typedef struct {
  Policy *p;
  IrCtx *ctx;
} Sketching;
static void derive(void *arg) {
  Sketching *x = arg;
  SketchEnv env = {x->p->task, &x->p->par, x->p->rules.len, x->p->rules.at};
  x->p->sketches = sketch_derive(&env, x->ctx, x->p->arena);
  x->p->has_sketches = true;
}
static void need_sketches(Policy *p) {
  if (p->has_sketches) return;
  Sketching x = {p, ir_clone(p->task->ctx, &p->err)};
  double t0 = clock_now();
  ErrCode c = err_try(&p->err, derive, &x);
  ir_free(x.ctx);
  if (c != NS_OK) err_rethrow(&p->err, c);
  err_check(&p->err, p->sketches.n > 0, "the sketch rules produced no sketch");
  tell(p, (PolicyEvent){.kind = 0, .count = p->sketches.n, .seconds = clock_now() - t0});
}

typedef struct {
  Policy *p;
  Arena *a;
  StateList out, init;
  int size, batch;
} Call;

static StateList list_out(Arena *a, int n, const Cand *c) {
  StateList l = {0};
  int cap = 0;
  for (int i = 0; i < n; i++) sp_list_add(a, &l, &cap, c[i].n, c[i].step, c[i].score);
  return l;
}

static void sketches_body(void *arg) {
  Call *c = arg;
  need_sketches(c->p);
  int cap = 0;
  for (int i = 0; i < c->p->sketches.n; i++)
    sp_list_add(c->a, &c->out, &cap, c->p->sketches.n_step[i], c->p->sketches.step[i], 0);
}
StateList policy_sketches(Policy *p, Arena *a) {
  Call c = {.p = p, .a = a};
  guarded(p, arena_err(a), sketches_body, &c);
  return c.out;
}

/* ---- workers ---- */

static void worker_open(void *arg) {
  Worker *w = arg;
  const StateList *l = (const StateList *)(const void *)w->env.sketch;
  w->keep = arena_new(&w->err);
  w->out[0] = arena_new(&w->err);
  w->out[1] = arena_new(&w->err);
  w->ctx = ir_clone(w->env.task->ctx, &w->err);
  w->env.ctx = w->ctx;
  w->env.factors = factor_new(w->keep);
  w->env.sketch = arena_array(w->keep, State *, l->n);
  w->env.n_sketch = l->n;
  for (int i = 0; i < l->n; i++) w->env.sketch[i] = sketch_replay(w->ctx, w->env.task->dag, l->n_step[i], l->step[i]);
  if (w->env.par->extended && w->env.task->gpu && !w->env.task->target.mali) {
    w->env.plan = arena_array(w->keep, Plan *, l->n);
    for (int i = 0; i < l->n; i++) w->env.plan[i] = plan_new(w->keep, w->env.sketch[i]);
  }
  w->base = ir_mark(w->ctx);
}

static void workers_open(Policy *p) {
  need_sketches(p);
  p->n_worker = p->pool ? pool_size(p->pool) : 1;
  p->worker = calloc((size_t)p->n_worker, sizeof(Worker));
  if (!p->worker) err_raise(&p->err, NS_ERR_MEMORY, "out of memory opening %d search workers", p->n_worker);
  for (int i = 0; i < p->n_worker; i++) {
    Worker *w = &p->worker[i];
    err_init(&w->err);
    w->env = (MakeEnv){.task = p->task, .par = &p->par, .sketch = (State **)(void *)&p->sketches};
    ErrCode c = err_try(&w->err, worker_open, w);
    if (c != NS_OK) err_raise(&p->err, c, "%s", w->err.msg);
  }
}

static void run(Policy *p, int64_t items, PoolJob job, void *arg) {
  if (p->pool && pool_size(p->pool) > 1)
    pool_run(p->pool, items, job, arg);
  else
    for (int64_t i = 0; i < items; i++) job(arg, 0, i);
  for (int i = 0; i < p->n_worker; i++)
    if (p->worker[i].score_code != NS_OK) err_raise(&p->err, p->worker[i].score_code, "%s", p->worker[i].score_msg);
}

/* ---- evaluating: from a step list to hash and score ---- */

typedef struct {
  Policy *p;
  Worker *w;
  int gen, n;          /* gen: which of the two arenas receives the result */
  Rng *rng;            /* one per slot; sampling and breeding */
  const Cand *parent;  /* breeding: the old generation */
  const double *share; /* breeding: running sums of its scores */
  int n_parent;
  Cand *slot; /* results; step NULL: none */
  State *state[CHUNK];
  int state_slot[CHUNK], n_state;
  int at;           /* slot being made */
  bool check;       /* evaluating: lower and verify instead of scoring */
  const char **why; /* per slot: why sampling refused, or NULL */
} Job;

/* Replays a list in the worker's context and infers its bounds; the result waits for scoring. */
static void stage_state(Job *j, int n, const Step *steps) {
  Worker *w = j->w;
  State *s = make_replay(&w->env, n, sp_steps_copy(ir_arena(w->ctx), n, steps, false));
  state_infer_bounds(s);
  if (!w->env.task->gpu && sp_nested_parallel(s)) return;
  Cand *c = &j->slot[j->at];
  c->n = n;
  c->step = sp_steps_copy(w->out[j->gen & 1], n, steps, true);
  c->hash = state_hash(s);
  c->score = -INFINITY;
  j->state[j->n_state] = s;
  j->state_slot[j->n_state++] = j->at;
}

static void score_states(void *arg) {
  Job *j = arg;
  double out[CHUNK];
  j->p->scorer.score(j->p->scorer.self, j->p->task, j->n_state, j->state, out);
  for (int i = 0; i < j->n_state; i++) j->slot[j->state_slot[i]].score = isnan(out[i]) ? -INFINITY : out[i];
}

/* Runs `make` for each slot of the chunk, each under its own protection, then scores what came out. */
static void chunk(Job *shared, int worker, int64_t item, ErrBody make) {
  Job j = *shared;
  j.w = &j.p->worker[worker];
  int end = (int)item * CHUNK + CHUNK < j.n ? (int)item * CHUNK + CHUNK : j.n;
  for (j.at = (int)item * CHUNK; j.at < end; j.at++)
    if (err_try(&j.w->err, make, &j) != NS_OK) j.w->failed++;
  ErrCode c = j.n_state > 0 ? err_try(&j.w->err, score_states, &j) : NS_OK;
  if ((c == NS_ERR_RUNTIME || c == NS_ERR_INTERRUPT || c == NS_ERR_MEMORY) && j.w->score_code == NS_OK) {
    j.w->score_code = c;
    memcpy(j.w->score_msg, j.w->err.msg, sizeof j.w->score_msg);
  }
  ir_release(j.w->ctx, j.w->base);
}

static void make_sample(void *arg) {
  Job *j = arg;
  const char *why = "bounds";
  State *s = populate(&j->w->env, &j->rng[j->at], &why);
  if (j->why) j->why[j->at] = s ? NULL : why;
  if (s) stage_state(j, s->step.len, s->step.at);
}
static void make_given(void *arg) {
  Job *j = arg;
  const Cand *c = &j->parent[j->at];
  stage_state(j, c->n, c->step);
}

static int draw_parent(const Job *j, Rng *r) {
  double total = j->share[j->n_parent - 1];
  if (!(total > 0)) return (int)rng_below(r, j->n_parent);
  double u = rng_unit(r) * total;
  int lo = 0, hi = j->n_parent - 1;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (j->share[mid] >= u)
      hi = mid;
    else
      lo = mid + 1;
  }
  return lo;
}

static void make_child(void *arg) {
  Job *j = arg;
  Worker *w = j->w;
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
    if (mutate(&w->env, r, c->n, c->step, &n, &steps)) {
      w->mutated++;
      stage_state(j, n, steps);
      return;
    }
    w->refused++;
  }
}

static void sample_job(void *arg, int worker, int64_t item) { chunk(arg, worker, item, make_sample); }
static void given_job(void *arg, int worker, int64_t item) { chunk(arg, worker, item, make_given); }
static void child_job(void *arg, int worker, int64_t item) { chunk(arg, worker, item, make_child); }

static Rng *slot_rngs(Policy *p, Arena *a, int n) {
  Rng *r = arena_array(a, Rng, n), base = rng_split(&p->rng);
  for (int i = 0; i < n; i++) r[i] = rng_split(&base);
  return r;
}

/* ---- sampling ---- */

static const char *main_reason(int n, const char **why, Arena *a) {
  const char *name[16];
  int count[16], k = 0, best = 0;
  for (int i = 0; i < n; i++) {
    const char *w = why[i] ? why[i] : "bounds, limits of the device or score";
    int j = 0;
    while (j < k && strcmp(name[j], w) != 0) j++;
    if (j == k && k < 16) name[k] = w, count[k++] = 0;
    if (j < 16) count[j]++;
  }
  for (int i = 1; i < k; i++)
    if (count[i] > count[best]) best = i;
  return k ? arena_printf(a, "%s (%d of %d)", name[best], count[best], n) : "nothing was sampled";
}

/* Fills `out` (step lists in a) with distinct valid states. */
static void sample(Policy *p, Arena *a, CandVec *out) {
  int n = p->par.population, barren = 0;
  double t0 = clock_now();
  int64_t failed = 0;
  MapU64 seen;
  mapu_init(&seen, a);
  Job j = {.p = p,
           .n = n,
           .rng = slot_rngs(p, a, n),
           .slot = arena_array(a, Cand, n),
           .why = arena_array(a, const char *, n)};
  for (int pass = 1; out->len < p->target_min; pass++) {
    err_poll(&p->err);
    memset(j.slot, 0, sizeof(Cand) * (size_t)n);
    run(p, (n + CHUNK - 1) / CHUNK, sample_job, &j);
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
      tell(p, (PolicyEvent){
                  .kind = 1, .iter = pass, .count = out->len, .failed = (int)failed, .seconds = clock_now() - t0});
    err_check(
        &p->err, out->len > 0 || pass < GIVE_UP_PASSES,
        "no valid program among %lld samples; most were refused for: %s. Check the hardware parameters of the task",
        (long long)n * pass, main_reason(n, j.why, a));
    if (barren == 5) {
      if (p->target_min == 1) break;
      p->target_min = p->target_min > 1 ? p->target_min / 2 : 1;
      tell(p, (PolicyEvent){.kind = 5, .count = p->target_min});
      barren = 0;
    }
  }
  tell(p, (PolicyEvent){.kind = 2, .count = out->len, .failed = (int)failed, .seconds = clock_now() - t0});
}

static void sample_body(void *arg) {
  Call *c = arg;
  workers_open(c->p);
  CandVec got = {0};
  sample(c->p, c->p->worker[0].keep, &got);
  c->out = list_out(c->a, got.len, got.at);
}
StateList policy_sample(Policy *p, Arena *a) {
  Call c = {.p = p, .a = a};
  guarded(p, arena_err(a), sample_body, &c);
  return c.out;
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
  workers_open(p);
  Worker *w = &p->worker[0];
  for (int i = 0; i < x->n; i++) {
    Rng r = rng_split(&p->rng);
    Cand slot = {0};
    const char *why = NULL;
    Job j = {.p = p, .w = w, .n = 1, .rng = &r, .slot = &slot, .why = &why};
    if (err_try(&w->err, make_sample, &j) != NS_OK)
      why = "bounds";
    else if (!why && j.n_state > 0) {
      StateFacts f = state_facts(p->task, j.state[0]);
      why = f.invalid ? f.invalid : "ok";
    }
    ir_release(w->ctx, w->base);
    if (!why) why = "nested parallel";
    int k = 0;
    while (k < x->n_name && strcmp(x->name[k], why) != 0) k++;
    if (k == x->cap) continue;
    if (k == x->n_name) x->name[x->n_name] = why, x->count[x->n_name++] = 0;
    x->count[k]++;
  }
}
int policy_sample_shares(Policy *p, int n, int cap, const char **name, int *count) {
  Shares x = {p, n, cap, 0, name, count};
  err_try(&p->err, shares_body, &x);
  workers_close(p);
  return x.n_name;
}

/* ---- evolution ---- */

/* The best unmeasured states so far: a binary heap with the worst at the root. */
typedef struct {
  Arena *a;
  Cand *at;
  int n, cap;
  MapU64 known;
} Best;

static bool worse(const Cand *x, const Cand *y) {
  return x->score < y->score || (x->score == y->score && x->hash > y->hash);
}
static void sift_down(Best *b, int i) {
  for (;;) {
    int c = 2 * i + 1;
    if (c >= b->n) return;
    if (c + 1 < b->n && worse(&b->at[c + 1], &b->at[c])) c++;
    if (!worse(&b->at[c], &b->at[i])) return;
    Cand t = b->at[i];
    b->at[i] = b->at[c], b->at[c] = t;
    i = c;
  }
}
static void best_offer(Policy *p, Best *b, const Cand *c) {
  if (b->cap == 0 || c->score == -INFINITY || mapu_get(&p->measured_set, c->hash, 0) || mapu_get(&b->known, c->hash, 0))
    return;
  if (b->n == b->cap && !worse(&b->at[0], c)) return;
  Cand own = *c;
  own.step = sp_steps_copy(b->a, c->n, c->step, true);
  mapu_set(&b->known, c->hash, 1);
  if (b->n == b->cap) {
    mapu_set(&b->known, b->at[0].hash, 0);
    b->at[0] = own;
    sift_down(b, 0);
    return;
  }
  int i = b->n++;
  b->at[i] = own;
  while (i > 0 && worse(&b->at[i], &b->at[(i - 1) / 2])) {
    Cand t = b->at[i];
    b->at[i] = b->at[(i - 1) / 2], b->at[(i - 1) / 2] = t;
    i = (i - 1) / 2;
  }
}
static int by_score(const void *x, const void *y) { return worse(y, x) ? -1 : worse(x, y) ? 1 : 0; }

static double best_score(int n, const Cand *c) {
  double m = -INFINITY;
  for (int i = 0; i < n; i++) m = c[i].score > m ? c[i].score : m;
  return m;
}

/* Scores the given states (they may come from a log) in place; those that fail keep -INFINITY. */
static void evaluate(Policy *p, int gen, int n, Cand *c) {
  Arena *a = p->worker[0].keep;
  Cand *given = arena_copy(a, c, sizeof(Cand) * (size_t)n);
  memset(c, 0, sizeof(Cand) * (size_t)n);
  Job j = {.p = p, .gen = gen, .n = n, .parent = given, .slot = c};
  run(p, (n + CHUNK - 1) / CHUNK, given_job, &j);
}

static int drop_empty(int n, Cand *c) {
  int k = 0;
  for (int i = 0; i < n; i++)
    if (c[i].step) c[k++] = c[i];
  return k;
}

static void generation_out(Policy *p, int gen) { /* empties the arenas that the next generation fills */
  for (int i = 0; i < p->n_worker; i++) {
    arena_free(p->worker[i].out[gen & 1]);
    p->worker[i].out[gen & 1] = NULL;
    p->worker[i].out[gen & 1] = arena_new(&p->err);
  }
}

static void evolve(Policy *p, Arena *a, int n, Cand *now, Best *best) {
  int size = p->par.population;
  Cand *next = arena_array(a, Cand, size);
  double t0 = clock_now();
  int64_t mutated = 0, refused = 0, invalid = 0;
  for (int g = 0;; g++) {
    for (int i = 0; i < n; i++) best_offer(p, best, &now[i]);
    bool last = g == p->par.num_iters || n == 0;
    if (g % 5 == 0 || last)
      tell(p, (PolicyEvent){.kind = 3,
                            .iter = g,
                            .count = best->n,
                            .failed = (int)invalid,
                            .best = best_score(n, now),
                            .least = best->n ? best->at[0].score : 0,
                            .mutated = (double)mutated / (g + 1),
                            .refused = (double)refused / (g + 1)});
    if (last) break;
    err_poll(&p->err);
    double *share = arena_array(a, double, n), sum = 0;
    for (int i = 0; i < n; i++) share[i] = sum += now[i].score > 0 ? now[i].score : 0;
    generation_out(p, g + 1);
    memset(next, 0, sizeof(Cand) * (size_t)size);
    Job j = {.p = p,
             .gen = g + 1,
             .n = size,
             .rng = slot_rngs(p, a, size),
             .parent = now,
             .share = share,
             .n_parent = n,
             .slot = next};
    run(p, (size + CHUNK - 1) / CHUNK, child_job, &j);
    mutated = refused = 0;
    for (int i = 0; i < p->n_worker; i++) mutated += p->worker[i].mutated, refused += p->worker[i].refused;
    for (int i = 0; i < size; i++) invalid += !next[i].step || next[i].score == -INFINITY;
    n = drop_empty(size, next);
    now = arena_copy(a, next, sizeof(Cand) * (size_t)n);
  }
  qsort(best->at, (size_t)best->n, sizeof(Cand), by_score);
  tell(p, (PolicyEvent){.kind = 4, .count = best->n, .seconds = clock_now() - t0});
}

static Best best_new(Arena *a, int cap) {
  Best b = {.a = a, .at = arena_array(a, Cand, cap), .cap = cap};
  mapu_init(&b.known, a);
  return b;
}

static void evolve_body(void *arg) {
  Call *c = arg;
  Policy *p = c->p;
  workers_open(p);
  Arena *a = p->worker[0].keep;
  Cand *now = arena_array(a, Cand, c->init.n);
  for (int i = 0; i < c->init.n; i++) now[i] = (Cand){.n = c->init.n_step[i], .step = c->init.step[i]};
  evaluate(p, 0, c->init.n, now);
  int n = drop_empty(c->init.n, now);
  Best best = best_new(a, c->size);
  evolve(p, a, n, now, &best);
  c->out = list_out(c->a, best.n, best.at);
}
StateList policy_evolve(Policy *p, Arena *a, StateList init, int out_size) {
  err_check(arena_err(a), out_size >= 0, "out_size %d must not be negative", out_size);
  Call c = {.p = p, .a = a, .init = init, .size = out_size};
  guarded(p, arena_err(a), evolve_body, &c);
  return c.out;
}

/* ---- checking a state the expensive way ---- */

typedef struct {
  Worker *w;
  int n;
  const Step *s;
  bool ok;
  const char *why;
  uint64_t hash;
} Check;

static void check_body(void *arg) {
  Check *c = arg;
  const SearchTask *t = c->w->env.task;
  State *s = make_replay(&c->w->env, c->n, sp_steps_copy(ir_arena(c->w->ctx), c->n, c->s, true));
  state_infer_bounds(s);
  c->hash = state_hash(s);
  Func f = low_loops(s, &t->target, t->dag->n_tensors, t->dag->tensor, false);
  GpuCheck g = {.ok = true};
  if (t->gpu) g = low_gpu_check(f);
  c->ok = g.ok;
  c->why = g.why;
}
typedef struct {
  Policy *p;
  Cand *c;
  bool *ok;
} CheckJob;
static void check_job(void *arg, int worker, int64_t item) {
  CheckJob *j = arg;
  Check c = {.w = &j->p->worker[worker], .n = j->c[item].n, .s = j->c[item].step};
  j->ok[item] = err_try(&c.w->err, check_body, &c) == NS_OK && c.ok;
  ir_release(c.w->ctx, c.w->base);
}

typedef struct {
  Policy *p;
  int n;
  const Step *s;
  Check c;
  char why[ERR_MSG_MAX];
} CheckCall;
static void check_call(void *arg) {
  CheckCall *x = arg;
  workers_open(x->p);
  x->c = (Check){.w = &x->p->worker[0], .n = x->n, .s = x->s};
  if (err_try(&x->c.w->err, check_body, &x->c) != NS_OK) x->c.ok = false, x->c.why = x->c.w->err.msg;
  if (x->c.why) x->c.why = arena_strdup(x->p->arena, x->c.why);
}
bool policy_check(Policy *p, int n_step, const Step *s, const char **why) {
  CheckCall *x = calloc(1, sizeof *x);
  if (!x) return false;
  x->p = p, x->n = n_step, x->s = s;
  ErrCode c = err_try(&p->err, check_call, x);
  workers_close(p);
  bool ok = c == NS_OK && x->c.ok;
  *why = ok ? NULL : c != NS_OK ? p->err.msg : x->c.why;
  free(x);
  return ok;
}

/* ---- a round ---- */

static int by_speed(const void *x, const void *y) {
  const Cand *a = *(const Cand *const *)x, *b = *(const Cand *const *)y;
  return a->score > b->score ? -1 : a->score < b->score ? 1 : a < b ? -1 : a > b;
}

/* The fastest valid measured states join the first generation. */
static void add_measured(Policy *p, Arena *a, CandVec *init) {
  int n = 0, use = (int)(p->par.sample_init_use_measured_ratio * p->par.population);
  const Cand **m = arena_array(a, const Cand *, p->measured.len);
  for (int i = 0; i < p->measured.len; i++)
    if (p->measured.at[i].score > 0) m[n++] = &p->measured.at[i];
  qsort(m, (size_t)n, sizeof *m, by_speed);
  if (n > use) n = use;
  if (n == 0) return;
  Cand *c = arena_array(a, Cand, n);
  for (int i = 0; i < n; i++) c[i] = *m[i];
  evaluate(p, 0, n, c);
  for (int i = 0; i < n; i++)
    if (c[i].step) vec_push(a, init, c[i]);
}

/* Takes from a list, in order and as long as there is room, the states that were never picked and pass the verifier. */
static void take(Policy *p, Arena *a, int n, Cand *c, int room, CandVec *out) {
  bool *ok = arena_array(a, bool, n);
  for (int from = 0; from < n && out->len < room;) {
    int want = room - out->len, m = n - from < want ? n - from : want;
    CheckJob j = {p, c + from, ok + from};
    run(p, m, check_job, &j);
    for (int i = from; i < from + m && out->len < room; i++) {
      if (!ok[i] || mapu_get(&p->measured_set, c[i].hash, 0)) continue;
      mapu_set(&p->measured_set, c[i].hash, 1);
      vec_push(a, out, c[i]);
    }
    from += m;
  }
}

static void round_body(void *arg) {
  Call *c = arg;
  Policy *p = c->p;
  workers_open(p);
  Arena *a = p->worker[0].keep;
  CandVec init = {0}, out = {0};
  sample(p, a, &init);
  add_measured(p, a, &init);
  int n_rand = (int)floor(p->par.eps_greedy * c->batch), n_pool = 3 * n_rand;
  Cand *pool = arena_array(a, Cand, n_pool);
  for (int i = 0; i < n_pool; i++) {
    pool[i] = init.at[rng_below(&p->rng, init.len)];
    pool[i].step = sp_steps_copy(a, pool[i].n, pool[i].step, true);
  }
  Best best = best_new(a, 2 * c->batch);
  evolve(p, a, init.len, init.at, &best);
  take(p, a, best.n, best.at, c->batch - n_rand, &out);
  take(p, a, n_pool, pool, c->batch, &out);
  take(p, a, best.n, best.at, c->batch, &out);
  c->out = list_out(c->a, out.len, out.at);
}
StateList policy_round(Policy *p, Arena *a, int batch) {
  err_check(arena_err(a), batch > 0, "batch size %d must be positive", batch);
  Call c = {.p = p, .a = a, .batch = batch};
  guarded(p, arena_err(a), round_body, &c);
  return c.out;
}

typedef struct {
  Policy *p;
  int n;
  const Step *s;
  double seconds;
  bool valid;
  IrCtx *ctx;
} Report;
static void report_body(void *arg) {
  Report *r = arg;
  Policy *p = r->p;
  if (!r->ctx) r->ctx = ir_clone(p->task->ctx, &p->err);
  State *s = state_replay(r->ctx, p->task->dag, r->n, sp_steps_copy(ir_arena(r->ctx), r->n, r->s, true));
  state_infer_bounds(s);
  Cand c = {.n = r->n, .step = sp_steps_copy(p->arena, r->n, r->s, true), .hash = state_hash(s)};
  c.score = r->valid && r->seconds > 0 ? 1 / r->seconds : 0;
  mapu_set(&p->measured_set, c.hash, 1);
  vec_push(p->arena, &p->measured, c);
}
void policy_report(Policy *p, int n_step, const Step *s, double seconds, bool valid) {
  Report r = {p, n_step, s, seconds, valid, NULL};
  err_try(&p->err, report_body, &r);
  if (r.ctx) ir_free(r.ctx);
}
