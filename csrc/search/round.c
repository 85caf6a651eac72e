/* A round: sample, evolve, and pick the batch that is measured next; taking in results.
 * Spec 03 §4.3, §4.6.
 */
#include "search/policy.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a round ---- */

enum { MAX_HINTS = 32 };

const Cand **fastest(Policy *p, Arena *a, int *n) {
  const Cand **m = arena_array(a, const Cand *, p->measured.len);
  *n = 0;
  for (int i = 0; i < p->measured.len; i++)
    if (p->measured.at[i].score > 0) m[(*n)++] = &p->measured.at[i];
  qsort(m, (size_t)*n, sizeof *m, by_score);
  return m;
}

/* The fastest valid measured states and the hints that were not measured join the first generation. */
static void add_measured(Policy *p, Arena *a, CandVec *init) {
  int n, use = (int)(p->par.sample_init_use_measured_ratio * p->par.population);
  const Cand **m = fastest(p, a, &n);
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

static Family family_of(int n, const Step *step) {
  int at = tensor_step(n, step);
  if (at < 0) return sums_of_parts(n, step) ? FAMILY_PARTS : FAMILY_LOOPS;
  return tensor_family(&step[at]);
}

/* How the output is cut: the splits into the most levels (as long as a tiling structure has more S than R). States that
 * agree in it differ in details, such as the slices of a reduction, vectors and unrolling: their times say little more
 * than one of them does. On tensor cores it is the block's tile, whichever way it is turned, and how many blocks share a sum; of sums
 * that columns of threads share it is all sizes. 0: no split has three levels. */
static uint64_t tiling_of(int n, const Step *step) {
  int tensor = tensor_step(n, step);
  if (tensor >= 0) {
    const int64_t *x = step[tensor].list;
    return ((uint64_t)x[x[6] ? 1 : 0] << 40 | (uint64_t)x[x[6] ? 0 : 1] << 20 | (uint64_t)x[7] |
            (uint64_t)(family_of(n, step) == FAMILY_WARPGROUPS) << 60) *
               0x9e3779b97f4a7c15u +
           1;
  }
  uint64_t h = 0;
  int most = 2; /* lengths of a split: its levels but one */
  for (int i = 0; i < n; i++)
    if (step[i].kind == STEP_SP && step[i].n > most) most = step[i].n;
  if (most == 2 && sums_shared_by(n, step)) most = 1;
  for (int i = 0; i < n; i++) {
    const Step *s = &step[i];
    if (s->kind != STEP_SP || s->n < most) continue;
    h = (h ^ ((uint64_t)s->stage << 8 | (uint64_t)s->iter)) * 0x9e3779b97f4a7c15u + 1;
    for (int k = 0; k < s->n; k++) h = (h ^ (h >> 29) ^ (uint64_t)s->list[k]) * 0xbf58476d1ce4e5b9u + 1;
  }
  return h;
}

enum {
  LOOK_AHEAD = 64,
  PORTION = 8, /* for each so many of a batch a tiling may come states_per_tiling_in_batch times, */
  TENSOR_MORE =
      2, /* on tensor cores, where details count for more, so many times that, and in all as often as it likes */
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
    uint64_t t = tiling_of(c[i].n, c[i].step);
    int32_t here = mapu_get(&batch, t, 0), all = mapu_get(&p->picked_tiles, t, 0);
    bool tensor = tensor_step(c[i].n, c[i].step) >= 0,
         often = in_batch && here >= in_batch * (tensor ? TENSOR_MORE : 1);
    if (front >= 2 * room || (t != 0 && (often || (!tensor && in_all && all + here >= in_all)))) {
      late[n_late++] = c[i];
      continue;
    }
    mapu_set(&batch, t, here + 1);
    c[front++] = c[i];
  }
  memcpy(c + front, late, sizeof *late * (size_t)n_late);
  return front;
}

static void count_picked(Policy *p, uint64_t hash, int n, const Step *step) {
  uint64_t t = tiling_of(n, step);
  p->picked[family_of(n, step)]++;
  mapu_set(&p->measured_set, hash, 1);
  mapu_set(&p->picked_tiles, t, mapu_get(&p->picked_tiles, t, 0) + 1);
}

typedef struct {
  Policy *p;
  SearchThread *w;
  const Cand *c;
  Candidate **made;
} MakeJob;
static void make_one(void *arg) {
  MakeJob *x = arg;
  Policy *p = x->p;
  const Cand *c = x->c;
  Met k = {0};
  unsigned want = WANT_CHECK | p->want;
  if (p->scorer.rate) {
    memo_get(p->memo, steps_hash(c->n, c->step), ir_arena(x->w->ctx), &k);
    want |= WANT_TRAITS;
  }
  Candidate *made = *x->made = cand_make(&x->w->env, c->n, c->step, want, p->layout, k.traits);
  if (!made || made->code == NS_ERR_MEMORY) err_raise(&x->w->err, NS_ERR_MEMORY, "out of memory making a candidate");
  made->score = c->score;
}
static void make_job(void *arg, int worker, int64_t item) {
  MakeJob x = *(const MakeJob *)arg;
  x.w = &x.p->worker[worker], x.c += item, x.made += item;
  *x.made = NULL;
  if (err_try(&x.w->err, make_one, &x) != NS_OK) pol_ends(x.w, NS_ERR_MEMORY);
  ir_release(x.w->ctx, x.w->base);
}

void take(Policy *p, int n, const Cand *c, int room, int *n_out, Candidate **out) {
  for (int from = 0; from < n && *n_out < room;) {
    int want = room - *n_out, m = n - from < want ? n - from : want;
    MakeJob j = {p, NULL, c + from, out + *n_out};
    pol_run(p, m, make_job, &j);
    for (int i = 0; i < m; i++) {
      Candidate *made = j.made[i];
      bool take_it = made && !made->why && !mapu_get(&p->measured_set, made->hash, 0);
      if (take_it) count_picked(p, made->hash, made->n_step, made->step);
      j.made[i] = NULL;
      if (take_it)
        out[(*n_out)++] = made;
      else
        cand_free(made);
    }
    from += m;
  }
}

/* ---- loops and tensor cores, sums of one and of two kernels share the trials ----
 * The estimate compares families of programs (loops, sums in parts, products by lanes, warps and warpgroups) that it was fitted to one
 * by one. So measurements decide between them: of each some are measured before its scores alone count. */
enum { FAMILY_LEAST = 4, FAMILY_SHARE = 8 }; /* so many in all; one for each so many of a batch; and of the children */

/* How many of a batch are of the family that was picked too seldom; *family: which one that is. */
static int seldom(const Policy *p, int batch, Family *family) {
  int sketches[FAMILIES] = {0}, there = 0;
  for (int i = 0; i < p->sketches.len; i++) sketches[family_of(p->sketches.at[i].n, p->sketches.at[i].step)]++;
  for (int f = FAMILIES - 1; f >= 0; f--) {
    if (!sketches[f]) continue;
    if (!there++ || p->picked[f] <= p->picked[*family]) *family = (Family)f;
  }
  if (there < 2) return 0;
  int64_t left = FAMILY_LEAST - p->picked[*family];
  if (left <= 0) return 0;
  return batch / FAMILY_SHARE < left ? batch / FAMILY_SHARE : (int)left;
}

/* The best of one family that a small evolution finds, from those of it among the sampled ones. */
static Best breed_family(Policy *p, Arena *a, const CandVec *init, Family family, int n) {
  Best best = best_new(a, n);
  Cand *own = arena_array(a, Cand, init->len);
  int n_own = 0;
  for (int i = 0; i < init->len && n > 0; i++) {
    if (family_of(init->at[i].n, init->at[i].step) != family) continue;
    own[n_own] = init->at[i];
    own[n_own++].step = sp_steps_copy(a, init->at[i].n, init->at[i].step, true);
  }
  if (n_own == 0) return best;
  if (drafting(p)) {
    Known known = known_new(a);
    refine(p, a, 0, n_own, own, &known);
    n_own = drop_empty(n_own, own);
  }
  evolve(p, a, n_own, own, 1 + p->par.population / FAMILY_SHARE, &best);
  return best;
}

/* Breeds so many candidates: samples, evolves and picks. */
static void breed(Policy *p, int batch, int *size, Candidate **made) {
  Arena *a = p->call;
  CandVec init = {0};
  sample(p, a, &init);
  int n_rand = (int)floor(p->par.eps_greedy * batch), n_pool = 3 * n_rand;
  Cand *pool = arena_array(a, Cand, n_pool);
  for (int i = 0; i < n_pool; i++) {
    pool[i] = init.at[rng_below(&p->rng, init.len)];
    pool[i].step = sp_steps_copy(a, pool[i].n, pool[i].step, true);
  }
  Family family = FAMILY_LOOPS;
  int n_other = seldom(p, batch, &family);
  Best other = breed_family(p, a, &init, family, n_other);
  if (drafting(p)) {
    Known known = known_new(a);
    refine(p, a, 0, init.len, init.at, &known);
    init.len = drop_empty(init.len, init.at);
  }
  add_measured(p, a, &init);
  int64_t room = (int64_t)(p->par.extended ? LOOK_AHEAD : 2) * batch,
          most = init.len + (int64_t)p->par.population * p->par.num_iters; /* states that evolution looks at */
  Best best = best_new(a, (int)(room < most ? room : most < INT32_MAX ? most : INT32_MAX));
  evolve(p, a, init.len, init.at, p->par.population, &best);
  int first = spread_out(p, a, best.n, best.at, batch);
  take(p, p->first.len, p->first.at, (batch + 1) / 2, size, made);
  p->first.len = 0;
  take(p, first, best.at, batch - n_rand - n_other, size, made);
  take(p, other.n, other.at, batch - n_rand, size, made);
  take(p, n_pool, pool, batch, size, made);
  take(p, best.n, best.at, batch, size, made);
}

static void round_body(void *arg) {
  Call *c = arg;
  Policy *p = c->p;
  pol_workers_open(p);
  int due = descent_due(p, c->batch), found = 0;
  p->total = 0; /* that was said of this round alone */
  if (due) descend(p, due, &found, c->made);
  Candidate **last =
      c->made + (c->batch - found); /* where they are out of the way, and not lost if an error ends this */
  for (int i = found - 1; i >= 0 && last != c->made; i--) last[i] = c->made[i], c->made[i] = NULL;
  if (found < c->batch) breed(p, c->batch - found, &c->size, c->made);
  for (int i = 0; i < found; i++) {
    Candidate *one = last[i];
    last[i] = NULL;
    c->made[c->size++] = one;
  }
}
int policy_round(Policy *p, Err *e, int batch, Candidate **out) {
  err_check(e, batch > 0 && batch <= ROUND_MOST, "batch size %d is not in 1..%d", batch, (int)ROUND_MOST);
  return pol_guarded(e, round_body, (Call){.p = p, .batch = batch, .made = out}).size;
}

/* ---- what comes from outside ---- */

typedef struct {
  Policy *p;
  const Candidate *c;
  double speed;
  bool first;
} Report;
static Cand reported(const Report *r) {
  const Candidate *c = r->c;
  return (Cand){
      .n = c->n_step, .step = sp_steps_copy(r->p->arena, c->n_step, c->step, true), .hash = c->hash, .score = r->speed};
}
static void report_body(void *arg) {
  Report *r = arg;
  Policy *p = r->p;
  Cand c = reported(r);
  if (!mapu_get(&p->measured_set, c.hash, 0)) count_picked(p, c.hash, c.n, c.step); /* from a log: not picked here */
  vec_push(p->arena, &p->measured, c);
}
void policy_report(Policy *p, const Candidate *c, double seconds, bool valid) {
  Report r = {p, c, valid && seconds > 0 ? 1 / seconds : 0, false};
  if (c->code == NS_OK) err_try(&p->err, report_body, &r);
}

static void hint_body(void *arg) {
  Report *r = arg;
  Policy *p = r->p;
  Cand c = reported(r);
  if (r->first) vec_push(p->arena, &p->first, c);
  for (int i = 0; i < p->hints.len; i++)
    if (p->hints.at[i].hash == c.hash) return;
  if (p->hints.len < MAX_HINTS) {
    vec_push(p->arena, &p->hints, c);
    return;
  }
  memmove(p->hints.at, p->hints.at + 1, sizeof(Cand) * (MAX_HINTS - 1));
  p->hints.at[MAX_HINTS - 1] = c;
}
void policy_hint(Policy *p, const Candidate *c, bool first) {
  Report r = {p, c, 0, first};
  if (c->code == NS_OK) err_try(&p->err, hint_body, &r);
}
