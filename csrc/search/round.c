/* A round: sample, evolve, and pick the batch that is measured next; checking a state by lowering; taking in results.
 * Spec 03 §4.3, §4.6.
 */
#include "search/policy.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
  Func f = low_loops(s, &t->target, t->dag->n_tensors, t->dag->tensor, LOW_CODE);
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
  ErrCode code = err_try(&c.w->err, check_body, &c);
  if (code == NS_ERR_MEMORY) pol_ends(c.w, code);
  j->ok[item] = code == NS_OK && c.ok;
  ir_release(c.w->ctx, c.w->base);
}

typedef struct {
  Policy *p;
  int n;
  const Step *s;
  Check c;
} CheckCall;
static void check_call(void *arg) {
  CheckCall *x = arg;
  pol_workers_open(x->p);
  x->c = (Check){.w = &x->p->worker[0], .n = x->n, .s = x->s};
  if (err_try(&x->c.w->err, check_body, &x->c) != NS_OK) x->c.ok = false, x->c.why = x->c.w->err.msg;
  if (x->c.why) x->c.why = arena_strdup(x->p->arena, x->c.why);
}
bool policy_check(Policy *p, int n_step, const Step *s, const char **why) {
  CheckCall x = {.p = p, .n = n_step, .s = s};
  ErrCode c = err_try(&p->err, check_call, &x);
  pol_workers_close(p);
  bool ok = c == NS_OK && x.c.ok;
  *why = ok ? NULL : c != NS_OK ? p->err.msg : x.c.why;
  return ok;
}

/* ---- a round ---- */

enum { MAX_HINTS = 32, MAX_BATCH = 1 << 20 };

static int by_speed(const void *x, const void *y) {
  const Cand *a = *(const Cand *const *)x, *b = *(const Cand *const *)y;
  return a->score > b->score ? -1 : a->score < b->score ? 1 : a < b ? -1 : a > b;
}

/* The fastest valid measured states and the hints that were not measured join the first generation. */
static void add_measured(Policy *p, Arena *a, CandVec *init) {
  int n = 0, use = (int)(p->par.sample_init_use_measured_ratio * p->par.population);
  const Cand **m = arena_array(a, const Cand *, p->measured.len);
  for (int i = 0; i < p->measured.len; i++)
    if (p->measured.at[i].score > 0) m[n++] = &p->measured.at[i];
  qsort(m, (size_t)n, sizeof *m, by_speed);
  if (n > use) n = use;
  Cand *c = arena_array(a, Cand, n + p->hints.len + 1);
  for (int i = 0; i < n; i++) c[i] = *m[i];
  for (int i = 0; i < p->hints.len; i++)
    if (!mapu_get(&p->measured_set, p->hints.at[i].hash, 0)) c[n++] = p->hints.at[i];
  if (n == 0) return;
  evaluate(p, 0, n, c);
  for (int i = 0; i < n; i++)
    if (c[i].step) vec_push(a, init, c[i]);
}

/* How the output is cut: the splits into the most levels (as long as a tiling structure has more S than R). States that
 * agree in it differ in details, such as the slices of a reduction, vectors and unrolling: their times say little more
 * than one of them does. 0: no split has three levels. */
static uint64_t tiling_of(const Cand *c) {
  uint64_t h = 0;
  int most = 2; /* lengths of a split: its levels but one */
  for (int i = 0; i < c->n; i++)
    if (c->step[i].kind == STEP_SP && c->step[i].n > most) most = c->step[i].n;
  for (int i = 0; i < c->n; i++) {
    const Step *s = &c->step[i];
    if (s->kind != STEP_SP || s->n < most) continue;
    h = (h ^ ((uint64_t)s->stage << 8 | (uint64_t)s->iter)) * 0x9e3779b97f4a7c15u + 1;
    for (int k = 0; k < s->n; k++) h = (h ^ (h >> 29) ^ (uint64_t)s->list[k]) * 0xbf58476d1ce4e5b9u + 1;
  }
  return h;
}

enum {
  LOOK_AHEAD = 64,
  PORTION = 8,    /* for each so many of a batch a tiling may come states_per_tiling_in_batch times, */
  ONCE_MORE = 128 /* and after so many measured states states_per_tiling times more */
};

/* Moves to the front, best first, those whose tiling is neither often in this batch nor was often picked; their number. */
static int spread_out(Policy *p, Arena *a, int n, Cand *c, int room) {
  int64_t in_batch = (int64_t)p->par.states_per_tiling_in_batch * (room < PORTION ? 1 : room / PORTION);
  int64_t in_all = (int64_t)p->par.states_per_tiling * (1 + p->measured.len / ONCE_MORE);
  if (!p->par.extended || (!in_batch && !in_all)) return n;
  MapU64 batch;
  mapu_init(&batch, a);
  Cand *late = arena_array(a, Cand, n + 1);
  int front = 0, n_late = 0;
  for (int i = 0; i < n; i++) {
    uint64_t t = tiling_of(&c[i]);
    int32_t here = mapu_get(&batch, t, 0), all = mapu_get(&p->picked_tiles, t, 0);
    if (front >= 2 * room || (t != 0 && ((in_batch && here >= in_batch) || (in_all && all + here >= in_all)))) {
      late[n_late++] = c[i];
      continue;
    }
    mapu_set(&batch, t, here + 1);
    c[front++] = c[i];
  }
  memcpy(c + front, late, sizeof *late * (size_t)n_late);
  return front;
}

static void count_picked(Policy *p, const Cand *c) {
  uint64_t t = tiling_of(c);
  mapu_set(&p->measured_set, c->hash, 1);
  mapu_set(&p->picked_tiles, t, mapu_get(&p->picked_tiles, t, 0) + 1);
}

/* Takes from a list, in order and as long as there is room, the states that were never picked and pass the verifier. */
static void take(Policy *p, Arena *a, int n, Cand *c, int room, CandVec *out) {
  bool *ok = arena_array(a, bool, n);
  for (int from = 0; from < n && out->len < room;) {
    int want = room - out->len, m = n - from < want ? n - from : want;
    CheckJob j = {p, c + from, ok + from};
    pol_run(p, m, check_job, &j);
    for (int i = from; i < from + m && out->len < room; i++) {
      if (!ok[i] || mapu_get(&p->measured_set, c[i].hash, 0)) continue;
      count_picked(p, &c[i]);
      vec_push(a, out, c[i]);
    }
    from += m;
  }
}

static void round_body(void *arg) {
  Call *c = arg;
  Policy *p = c->p;
  pol_workers_open(p);
  Arena *a = p->worker[0].keep;
  CandVec init = {0}, out = {0};
  sample(p, a, &init);
  int n_rand = (int)floor(p->par.eps_greedy * c->batch), n_pool = 3 * n_rand;
  Cand *pool = arena_array(a, Cand, n_pool);
  for (int i = 0; i < n_pool; i++) {
    pool[i] = init.at[rng_below(&p->rng, init.len)];
    pool[i].step = sp_steps_copy(a, pool[i].n, pool[i].step, true);
  }
  if (drafting(p)) {
    Known known = known_new(a);
    refine(p, a, 0, init.len, init.at, &known);
    init.len = drop_empty(init.len, init.at);
  }
  add_measured(p, a, &init);
  int64_t room = (int64_t)(p->par.extended ? LOOK_AHEAD : 2) * c->batch,
          most = init.len + (int64_t)p->par.population * p->par.num_iters; /* states that evolution looks at */
  Best best = best_new(a, (int)(room < most ? room : most < INT32_MAX ? most : INT32_MAX));
  evolve(p, a, init.len, init.at, &best);
  int first = spread_out(p, a, best.n, best.at, c->batch);
  take(p, a, first, best.at, c->batch - n_rand, &out);
  take(p, a, n_pool, pool, c->batch, &out);
  take(p, a, best.n, best.at, c->batch, &out);
  c->out = pol_list_out(c->a, out.len, out.at);
}
StateList policy_round(Policy *p, Arena *a, int batch) {
  err_check(arena_err(a), batch > 0 && batch <= MAX_BATCH, "batch size %d is not in 1..%d", batch, (int)MAX_BATCH);
  Call c = {.p = p, .a = a, .batch = batch};
  pol_guarded(p, arena_err(a), round_body, &c);
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
static Cand reported(Report *r) {
  Policy *p = r->p;
  if (!r->ctx) r->ctx = ir_clone(p->task->ctx, &p->err);
  State *s = state_replay(r->ctx, p->task->dag, r->n, sp_steps_copy(ir_arena(r->ctx), r->n, r->s, true));
  state_infer_bounds(s);
  return (Cand){.n = r->n, .step = sp_steps_copy(p->arena, r->n, r->s, true), .hash = state_hash(s)};
}
static void report_body(void *arg) {
  Report *r = arg;
  Policy *p = r->p;
  Cand c = reported(r);
  c.score = r->valid && r->seconds > 0 ? 1 / r->seconds : 0;
  if (!mapu_get(&p->measured_set, c.hash, 0)) count_picked(p, &c); /* from a log: not picked here */
  vec_push(p->arena, &p->measured, c);
}
void policy_report(Policy *p, int n_step, const Step *s, double seconds, bool valid) {
  Report r = {p, n_step, s, seconds, valid, NULL};
  err_try(&p->err, report_body, &r);
  if (r.ctx) ir_free(r.ctx);
}

static void hint_body(void *arg) {
  Report *r = arg;
  Policy *p = r->p;
  Cand c = reported(r);
  for (int i = 0; i < p->hints.len; i++)
    if (p->hints.at[i].hash == c.hash) return;
  if (p->hints.len < MAX_HINTS) {
    vec_push(p->arena, &p->hints, c);
    return;
  }
  memmove(p->hints.at, p->hints.at + 1, sizeof(Cand) * (MAX_HINTS - 1));
  p->hints.at[MAX_HINTS - 1] = c;
}
void policy_hint(Policy *p, int n_step, const Step *s) {
  Report r = {p, n_step, s, 0, true, NULL};
  err_try(&p->err, hint_body, &r);
  if (r.ctx) ir_free(r.ctx);
}
