/* The search for one task: its parts are made and kept here.
 *
 * A policy owns the sketches, the generator and what was measured. Its workers hold a clone of the task's context for the
 * length of one call; what a candidate adds to it is released as soon as its step list, its hash and its score are known.
 * Spec 03 §4.1, §4.2.
 */
#include "search/policy.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
                        .lanes = 1,
                        .cpu_structure = "SSRSRS",
                        .gpu_structure = "SSSRRSRS",
                        .extended = true}; /* states_per_tiling*: no limit; the package's are in search_policy.py */
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
  SearchTask *t = mem_alloc(e, sizeof *t);
  err_init(&t->err);
  t->target = *target;
  t->gpu = target->kind != TG_CPU;
  NewTask n = {t, src, d};
  ErrCode c = err_try(&t->err, new_task, &n);
  if (c == NS_OK) return t;
  Err own = t->err;
  task_free(t);
  err_again(e, c, &own);
}
void task_free(SearchTask *t) {
  if (!t) return;
  if (t->ctx) ir_free(t->ctx);
  free(t);
}
const Target *task_target(const SearchTask *t) { return &t->target; }
TaskCounts task_counts(const SearchTask *t) { return (TaskCounts){t->replayed, t->programs, t->traits}; }

/* ---- policies ---- */

static void new_policy(void *arg) {
  Policy *p = arg;
  p->arena = arena_new(&p->err);
  p->par.cpu_structure = arena_strdup(p->arena, p->par.cpu_structure);
  p->par.gpu_structure = arena_strdup(p->arena, p->par.gpu_structure);
  mapu_init(&p->measured_set, p->arena);
  mapu_init(&p->picked_tiles, p->arena);
}

Policy *policy_new(Err *e, const SearchTask *t, const SearchParams *par, uint64_t seed, Pool *pool) {
  err_check(e,
            par->population > 0 && par->num_iters >= 0 && par->max_innermost_split_factor > 0 &&
                par->max_vectorize_size > 0,
            "search parameters: population %d, iterations %d, innermost factor %d and vector size %d must be positive",
            par->population, par->num_iters, par->max_innermost_split_factor, par->max_vectorize_size);
  err_check(e,
            par->eps_greedy >= 0 && par->eps_greedy <= 1 && par->sample_init_use_measured_ratio >= 0 &&
                par->sample_init_use_measured_ratio <= 1,
            "search parameters: eps_greedy %g and sample_init_use_measured_ratio %g must be shares, from 0 to 1",
            par->eps_greedy, par->sample_init_use_measured_ratio);
  err_check(e, par->descent >= 0 && par->descent <= 1,
            "search parameters: descent %g must be a share of the trials, from 0 to 1", par->descent);
  err_check(e, par->double_buffer_prob >= 0 && par->double_buffer_prob <= 1,
            "search parameters: double_buffer_prob %g must be a probability, from 0 to 1", par->double_buffer_prob);
  err_check(e, par->tensor_cores >= TENSOR_NEVER && par->tensor_cores <= TENSOR_FLOAT32X3,
            "search parameters: tensor_cores %d is neither 0 (never), 1 (for 16-bit floats and integers of 8 bits), 2 "
            "(for float32 as TF32, "
            "too) nor 3 (for float32 as three "
            "products of TF32, too)",
            par->tensor_cores);
  err_check(
      e, par->warpgroups >= 0 && par->warpgroups <= 2,
      "search parameters: warpgroups %d is neither 0 (never), 1 (where tensor cores are used) nor 2 (products of two "
      "slices at a time, too)",
      par->warpgroups);
  err_check(e, par->lanes == 0 || par->lanes == 1,
            "search parameters: lane_products %d is neither 0 (never) nor 1 (for products of float32)", par->lanes);
  err_check(e, par->wide_stores == 0 || par->wide_stores == 1,
            "search parameters: wide_stores %d is neither 0 (never) nor 1 (where tensor cores are used)",
            par->wide_stores);
  err_check(e, par->last_blocks == 0 || par->last_blocks == 1,
            "search parameters: last_blocks %d is neither 0 (never) nor 1 (where blocks share a sum)",
            par->last_blocks);
  err_check(
      e, par->states_per_tiling_in_batch >= 0 && par->states_per_tiling >= 0,
      "search parameters: states_per_tiling_in_batch %d and states_per_tiling %d must not be negative (0: no limit)",
      par->states_per_tiling_in_batch, par->states_per_tiling);
  err_check(e, !t->gpu || (t->target.hw.warp_size > 0 && t->target.hw.max_threads_per_block > 0),
            "hardware parameters: warp_size %lld and max_threads_per_block %lld of a GPU must be positive",
            (long long)t->target.hw.warp_size, (long long)t->target.hw.max_threads_per_block);
  Policy *p = mem_alloc(e, sizeof *p);
  err_init(&p->err);
  p->task = t, p->par = *par, p->pool = pool;
  p->target_min = par->sample_init_min_population > 0 ? par->sample_init_min_population : 1;
  rng_seed(&p->rng, seed);
  p->memo = memo_new();
  ErrCode c = p->memo ? err_try(&p->err, new_policy, p) : NS_ERR_MEMORY;
  if (c != NS_OK) {
    policy_free(p);
    err_raise(e, c, "cannot make a search policy");
  }
  return p;
}

void pol_workers_close(Policy *p) {
  for (int i = 0; p->worker && i < p->n_worker; i++) {
    SearchThread *w = &p->worker[i];
    if (w->ctx) ir_free(w->ctx);
    arena_free(w->keep);
    arena_free(w->out[0]);
    arena_free(w->out[1]);
  }
  free(p->worker);
  arena_free(p->call);
  p->worker = NULL, p->call = NULL;
}
void policy_free(Policy *p) {
  if (!p) return;
  pol_workers_close(p);
  memo_free(p->memo);
  arena_free(p->arena);
  free(p);
}
void policy_progress(Policy *p, int64_t done, int64_t total) { p->done = done, p->total = total; }
void policy_set_pool(Policy *p, Pool *pool) { p->pool = pool; }
void policy_set_scorer(Policy *p, Scorer s) { p->scorer = s; }
void policy_remember(Policy *p, size_t bytes) { memo_limit(p->memo, bytes); }
void policy_want(Policy *p, unsigned want, int layout) { p->want = want, p->layout = layout; }
void policy_set_listener(Policy *p, void (*fn)(void *self, const PolicyEvent *ev), void *self) {
  p->listen = fn, p->listen_self = self;
}
void pol_tell(Policy *p, PolicyEvent ev) {
  if (p->listen) p->listen(p->listen_self, &ev);
}

Call pol_guarded(Err *caller, ErrBody body, Call call) {
  Policy *p = call.p;
  p->err.interrupt = caller->interrupt;
  memo_age(p->memo);
  ErrCode c = err_try(&p->err, body, &call);
  p->err.interrupt = NULL; /* the flag may be gone after this call */
  pol_workers_close(p);
  if (c != NS_OK) err_again(caller, c, &p->err);
  return call;
}

typedef struct {
  Policy *p;
  CustomRule r;
} AddRule;
ERR_BODY(add_rule, AddRule *x, vec_push(x->p->arena, &x->p->rules, x->r))
void policy_add_rule(Err *e, Policy *p, CustomRule r) {
  AddRule x = {p, r};
  ErrCode c = err_try(&p->err, add_rule, &x);
  if (c != NS_OK) err_again(e, c, &p->err);
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
static void pol_need_sketches(Policy *p) {
  if (p->has_sketches) return;
  Sketching x = {p, ir_clone(p->task->ctx, &p->err)};
  double t0 = clock_now();
  ErrCode c = err_try(&p->err, derive, &x);
  ir_free(x.ctx);
  if (c != NS_OK) err_rethrow(&p->err, c);
  err_check(&p->err, p->sketches.len > 0, "the sketch rules produced no sketch");
  pol_tell(p, (PolicyEvent){.kind = 0, .count = p->sketches.len, .seconds = clock_now() - t0});
}

StateList pol_list_out(Arena *a, int n, const Cand *c) {
  StateList l = {0};
  for (int i = 0; i < n; i++) sp_list_add(a, &l, c[i].n, c[i].step, c[i].score);
  return l;
}

ERR_BODY(sketches_body, Call *c, pol_need_sketches(c->p))
StateList policy_sketches(Policy *p, Arena *a) {
  pol_guarded(arena_err(a), sketches_body, (Call){.p = p});
  return p->sketches;
}

/* ---- workers ---- */

static void worker_open(void *arg) {
  SearchThread *w = arg;
  const StateList *l = (const StateList *)(const void *)w->env.sketch;
  w->keep = arena_new(&w->err);
  w->out[0] = arena_new(&w->err);
  w->out[1] = arena_new(&w->err);
  w->ctx = ir_clone(w->env.task->ctx, &w->err);
  w->env.ctx = w->ctx;
  w->env.factors = factor_new(w->keep);
  w->env.sketch = arena_array(w->keep, State *, l->len);
  w->env.n_sketch = l->len;
  for (int i = 0; i < l->len; i++)
    w->env.sketch[i] = sketch_replay(w->ctx, w->env.task->dag, l->at[i].n, l->at[i].step);
  if (w->env.par->extended && w->env.task->gpu && !w->env.task->target.mali) {
    w->env.plan = arena_array(w->keep, Plan *, l->len);
    w->env.tensor = arena_array(w->keep, TensorPlan *, l->len);
    for (int i = 0; i < l->len; i++) {
      w->env.tensor[i] = tensor_plan(w->keep, w->env.sketch[i]);
      w->env.plan[i] = plan_new(w->keep, w->env.sketch[i]);
    }
  }
  ir_limit(w->ctx);          /* what is bred of steps that a log holds may be anything; */
  w->base = ir_mark(w->ctx); /* each release gives the limit back */
}

void pol_workers_open(Policy *p) {
  pol_need_sketches(p);
  p->call = arena_new(&p->err);
  p->n_worker = p->pool ? pool_size(p->pool) : 1;
  p->worker = calloc((size_t)p->n_worker, sizeof(SearchThread));
  if (!p->worker) err_raise(&p->err, NS_ERR_MEMORY, "out of memory opening %d search workers", p->n_worker);
  for (int i = 0; i < p->n_worker; i++) {
    SearchThread *w = &p->worker[i];
    err_init(&w->err);
    w->env = (MakeEnv){.task = p->task, .par = &p->par, .sketch = (State **)(void *)&p->sketches};
    ErrCode c = err_try(&w->err, worker_open, w);
    if (c != NS_OK) err_again(&p->err, c, &w->err);
  }
}

void pol_ends(SearchThread *w, ErrCode c) {
  if (w->score_code != NS_OK) return;
  w->score_code = c;
  memcpy(w->score_msg, w->err.msg, sizeof w->score_msg);
}

void pol_run(Policy *p, int64_t items, PoolJob job, void *arg) {
  if (p->pool && pool_size(p->pool) > 1)
    pool_run(p->pool, items, job, arg);
  else
    for (int64_t i = 0; i < items; i++) job(arg, 0, i);
  for (int i = 0; i < p->n_worker; i++)
    if (p->worker[i].score_code != NS_OK) err_raise(&p->err, p->worker[i].score_code, "%s", p->worker[i].score_msg);
  err_poll(&p->err);
}
