/* Sizes for a GPU sketch that the device will take: the constructive sampler of the extended mode.
 *
 * Uniform factorizations mostly break a limit. Here the numbers that limits speak of are drawn first and the sizes follow:
 * the threads of a block (whole warps preferred), how they lie in the axes, the outputs that one thread keeps in
 * registers, virtual threads among these, and the slice of the reduction, so that the shared tiles fit. Programs with too
 * few blocks for the device are drawn less often. One candidate in twenty is a uniform factorization that passed the
 * limits, so that whatever is valid can be drawn. Spec 03 §7.3.
 *
 * An extent with a large prime factor (197 tokens, 17 rows) has no useful divisors. Its tiles are also drawn from the next
 * multiples of small powers of two; what lies beyond the edge is computed in vain (lower/whole.c).
 */
#include "search/space.h"
#include <math.h>
#include <string.h>

enum { LARGE_PRIME = 11, WASTE = 4 /* at most a fourth of an axis */ };
enum { TRIES = 24, UNIFORM_TRIES = 64, UNIFORM_ONE_IN = 20, OTHER_THREADS_ONE_IN = 20 };
/* Weights of the upper bound 2^i of what a thread keeps, and of the reduction slice. */
static const double REG_WEIGHT[] = {1, 1, 2, 3, 5, 6, 6, 4, 1.5, 0.5, 0.25},
                    SLICE_WEIGHT[] = {1, 1, 2, 3, 4, 4, 2, 1, 0.5, 0.25};

static int draw_weighted(Rng *r, int n, const double *w) { return choose_weighted(&(Choice){.rng = r}, n, w); }
static void shuffle(Rng *r, int n, int *order) { choose_order(&(Choice){.rng = r}, n, order); }

/* ---- threads ---- */

typedef struct PlanRound Round;

/* ways[a * (max + 1) + p]: how many choices of divisors for axes a.. have the product p. */
static void count_ways(MakeEnv *m, PlanKernel *k, Round *e) {
  int64_t max = m->task->target.hw.max_threads_per_block;
  if (max > 4096) max = 4096;
  k->max_threads = max;
  e->ways = arena_array(factor_arena(m->factors), double, (int64_t)(k->n_space + 1) * (max + 1));
  e->ways[(int64_t)k->n_space * (max + 1) + 1] = 1;
  for (int a = k->n_space - 1; a >= 0; a--) {
    double *to = e->ways + (int64_t)a * (max + 1), *from = to + max + 1;
    const int64_t *d;
    int nd = k->axis[a].step < 0 ? 1 : factor_divisors(m->factors, e->extent[a], &d);
    static const int64_t ONE[] = {1};
    if (k->axis[a].step < 0) d = ONE;
    for (int i = 0; i < nd && d[i] <= max; i++)
      for (int64_t p = 1; p * d[i] <= max; p++) to[p * d[i]] += from[p];
  }
}

/* Has x a prime factor of LARGE_PRIME or more? */
static bool rough(int64_t x) {
  for (int64_t p = 2; p < LARGE_PRIME; p++)
    while (x > 0 && x % p == 0) x /= p;
  return x > 1;
}

/* The extents of a kernel, and those with its rough ones rounded up. */
static void round_up(PlanKernel *k) {
  for (int i = 0; i < PLAN_ROUNDS; i++) {
    Round *e = &k->round[k->n_round];
    int64_t unit = (int64_t)1 << i;
    bool grew = i == 0;
    for (int a = 0; a < k->n_axis; a++) {
      int64_t x = k->axis[a].extent, up = (x + unit - 1) / unit * unit;
      bool taken = k->axis[a].step >= 0 && rough(x) && up - x <= x / WASTE;
      e->extent[a] = taken ? up : x;
      grew |= taken && up != k->round[k->n_round > 0 ? k->n_round - 1 : 0].extent[a];
    }
    k->n_round += grew;
  }
}

/* A number of threads that some choice of divisors gives; 0: none is allowed. */
static int64_t draw_thread_count(MakeEnv *m, Rng *r, PlanKernel *k, Round *e) {
  const HwParams *hw = &m->task->target.hw;
  if (!e->ways) count_ways(m, k, e);
  int64_t least = k->points > 2 * (int64_t)hw->warp_size ? hw->warp_size : 1,
          unit = hw->warp_size >= 8 ? hw->warp_size : 32;
  if (least < 1) least = 1;
  double share[2][13] = {{0}}; /* whole warps or not, by octave */
  int count[2][13] = {{0}};
  for (int64_t t = least; t <= k->max_threads; t++)
    if (e->ways[t] > 0) count[t % unit != 0][63 - __builtin_clzll((uint64_t)t)]++;
  double sum[2] = {0, 0};
  for (int w = 0; w < 2; w++)
    for (int o = 0; o < 13; o++)
      if (count[w][o]) sum[w] += share[w][o] = o < 5 ? 0.1 : o == 5 ? 0.6 : o < 9 ? 1 : 0.5;
  if (sum[0] + sum[1] == 0) return 0;
  int w = sum[0] == 0 || (sum[1] > 0 && rng_below(r, OTHER_THREADS_ONE_IN) == 0);
  int o = draw_weighted(r, 13, share[w]), pick = (int)rng_below(r, count[w][o]);
  for (int64_t t = (int64_t)1 << o; t <= k->max_threads; t++)
    if (t >= least && e->ways[t] > 0 && (t % unit != 0) == w && pick-- == 0) return t;
  return 0;
}

static void lay_threads(MakeEnv *m, Rng *r, const PlanKernel *k, const Round *e, int64_t t, int64_t *out) {
  int64_t width = k->max_threads + 1;
  for (int a = 0; a < k->n_space; a++) {
    out[a] = 1;
    if (k->axis[a].step < 0) continue;
    const int64_t *d;
    int nd = factor_divisors(m->factors, e->extent[a], &d);
    const double *rest = e->ways + (a + 1) * width;
    double u = rng_unit(r) * e->ways[a * width + t];
    int last = 0;
    for (int i = 0; i < nd && d[i] <= t; i++) {
      if (t % d[i] != 0 || rest[t / d[i]] == 0) continue;
      last = i;
      if (u < rest[t / d[i]]) break;
      u -= rest[t / d[i]];
    }
    out[a] = d[last];
    t /= d[last];
  }
}

/* ---- registers, blocks, reduction ---- */

/* A uniform divisor of x with other * divisor <= most. */
static int64_t draw_divisor(MakeEnv *m, Rng *r, int64_t x, int64_t other, int64_t most) {
  const int64_t *d;
  int nd = factor_divisors(m->factors, x, &d);
  while (nd > 1 && d[nd - 1] > most / other) nd--;
  return d[rng_below(r, nd)];
}

/* Spreads what a thread computes along one axis over the levels behind the thread level; false: the last may not hold it. */
static bool spread(MakeEnv *m, Rng *r, Step *p, int from, int64_t rest) {
  int64_t last_max = m->par->max_innermost_split_factor;
  for (int i = p->n - 1; i > from; i--) {
    p->list[i] = draw_divisor(m, r, rest, 1, i == p->n - 1 ? last_max : INT64_MAX);
    rest /= p->list[i];
  }
  if (from < p->n) p->list[from] = rest;
  return from < p->n ? from < p->n - 1 || rest <= last_max : rest == 1;
}

static bool draw_space(MakeEnv *m, Rng *r, PlanKernel *k, Round *e, Step *steps, int64_t *tile) {
  const HwParams *hw = &m->task->target.hw;
  int64_t threads = draw_thread_count(m, r, k, e), lane[PLAN_AXES], own[PLAN_AXES], held = 1, vthread = 1;
  int64_t cap = (int64_t)1 << draw_weighted(r, NS_COUNT(REG_WEIGHT), REG_WEIGHT);
  int order[PLAN_AXES];
  if (threads == 0) return false;
  lay_threads(m, r, k, e, threads, lane);
  for (int a = 0; a < k->n_space; a++)
    if (k->axis[a].step < 0) held *= k->axis[a].extent;
  if (held * k->bytes > hw->max_local_memory_per_block) return false;
  if (cap > hw->max_local_memory_per_block / k->bytes) cap = hw->max_local_memory_per_block / k->bytes;
  shuffle(r, k->n_space, order);
  for (int i = 0; i < k->n_space; i++) {
    int a = order[i];
    if (k->axis[a].step < 0) continue;
    own[a] = draw_divisor(m, r, e->extent[a] / lane[a], held, cap > held ? cap : held);
    held *= own[a];
  }
  shuffle(r, k->n_space, order);
  for (int i = 0; i < k->n_space; i++) {
    int a = order[i];
    tile[a] = k->axis[a].extent;
    if (k->axis[a].step < 0) continue;
    Step *p = &steps[k->axis[a].step];
    p->list[0] = rng_below(r, 2) ? 1 : draw_divisor(m, r, own[a], vthread, hw->max_vthread_extent);
    p->list[1] = lane[a];
    vthread *= p->list[0];
    tile[a] = lane[a] * own[a];
    if (!spread(m, r, p, 2, own[a] / p->list[0])) return false;
  }
  return vthread <= hw->max_vthread_extent;
}

/* Slices of the reductions, in random order, as long as the shared tiles fit. */
static bool draw_slices(MakeEnv *m, Rng *r, const PlanKernel *k, const Round *e, Step *steps, int64_t *tile) {
  int order[PLAN_AXES], n = k->n_axis - k->n_space;
  double limit = (double)m->task->target.hw.max_shared_memory_per_block;
  int64_t cap = (int64_t)1 << draw_weighted(r, NS_COUNT(SLICE_WEIGHT), SLICE_WEIGHT), made = 1;
  for (int a = k->n_space; a < k->n_axis; a++) tile[a] = k->axis[a].step < 0 ? k->axis[a].extent : 1;
  if (plan_shared_bytes(k, tile) > limit) return false;
  if (rng_below(r, 16) == 0) cap = INT64_MAX;
  shuffle(r, n, order);
  for (int i = 0; i < n; i++) {
    int a = k->n_space + order[i], fit = 0;
    if (k->axis[a].step < 0) continue;
    const int64_t *d;
    int nd = factor_divisors(m->factors, e->extent[a], &d);
    for (; fit < nd && d[fit] <= cap / made; fit++) {
      tile[a] = d[fit];
      if (plan_shared_bytes(k, tile) > limit) break;
    }
    tile[a] = fit > 0 ? d[rng_below(r, fit)] : 1;
    made *= tile[a];
    if (!spread(m, r, &steps[k->axis[a].step], 0, tile[a])) return false;
  }
  return true;
}

/* Programs that leave multiprocessors without a block are kept less often, unless the task is too small to fill them. */
static bool enough_blocks(const MakeEnv *m, Rng *r, const PlanKernel *k, const int64_t *tile) {
  double blocks = 1, points = 1, sms = m->task->target.gpu.sms;
  for (int a = 0; a < k->n_space; a++)
    blocks *= ceil((double)k->axis[a].extent / (double)tile[a]), points *= (double)k->axis[a].extent;
  double want = fmin(sms, points / 64);
  return blocks >= want || rng_unit(r) < fmax(0.1, blocks / want);
}

static bool draw_uniform(MakeEnv *m, Rng *r, const PlanKernel *k, Step *steps) {
  for (int i = 0; i < UNIFORM_TRIES; i++) {
    for (int a = 0; a < k->n_axis; a++)
      if (k->axis[a].step >= 0) factor_draw(m->factors, r, m->par->max_innermost_split_factor, &steps[k->axis[a].step]);
    if (plan_kernel_fits(&m->task->target.hw, k, steps)) return true;
  }
  return false;
}

static bool draw_kernel(MakeEnv *m, Rng *r, PlanKernel *k, Step *steps) {
  int64_t tile[PLAN_AXES];
  if (rng_below(r, UNIFORM_ONE_IN) == 0 && draw_uniform(m, r, k, steps)) return true;
  if (k->n_round == 0) round_up(k);
  for (int i = 0; i < TRIES; i++) {
    Round *e = &k->round[k->n_round > 1 ? rng_below(r, k->n_round) : 0];
    if (!draw_space(m, r, k, e, steps, tile)) continue;
    if (i < TRIES - 4 && !enough_blocks(m, r, k, tile)) continue;
    if (!draw_slices(m, r, k, e, steps, tile)) continue;
    if (plan_kernel_fits(&m->task->target.hw, k, steps)) return true;
  }
  return draw_uniform(m, r, k, steps);
}

/* ---- threads of stages that are not tiled ---- */

int64_t construct_threads(const MakeEnv *m, Choice *c, int64_t extent) {
  const HwParams *hw = &m->task->target.hw;
  int64_t most = hw->max_threads_per_block, t = hw->warp_size, option[32];
  double weight[32];
  int n = 0;
  if (choose_one_in(c, 4)) { /* whole warps that divide the extent */
    const int64_t *d;
    int nd = factor_divisors(m->factors, extent, &d);
    for (int i = 0; i < nd && n < 32; i++)
      if (d[i] % t == 0 && d[i] <= most) option[n] = d[i], weight[n++] = 1;
    if (n > 0) return option[choose_weighted(c, n, weight)];
  }
  for (; t <= most && n < 32; t *= 2) {
    if (t > hw->warp_size && t >= 2 * extent) break;
    option[n] = t, weight[n++] = t < 32 ? 0.3 : t <= 256 ? 1 : 0.5;
  }
  return n ? option[choose_weighted(c, n, weight)] : hw->warp_size;
}

/* Vector width of the loads of a shared tile, in elements. */
int64_t construct_vector(const MakeEnv *m, Choice *c, double row, double bytes) {
  int64_t most = (int64_t)((double)m->task->target.hw.vector_unit_bytes / bytes), v = 1;
  if (choose_one_in(c, 5)) return 1;
  while (2 * v <= most && fmod(row, (double)(2 * v)) == 0 && !choose_one_in(c, 4)) v *= 2;
  return v;
}

/* ---- all sizes of a sketch ---- */

bool construct_sizes(MakeEnv *m, Rng *r, Plan *plan, Step *steps) {
  Arena *a = ir_arena(m->ctx);
  for (int i = 0; i < plan->n_kernel; i++) {
    PlanKernel *k = &plan->kernel[i];
    for (int x = 0; x < k->n_axis; x++)
      if (k->axis[x].step >= 0) {
        Step *p = &steps[k->axis[x].step];
        p->list = arena_array(a, int64_t, p->n);
      }
    if (!draw_kernel(m, r, k, steps)) return false;
  }
  for (int i = 0; i < plan->n_sum; i++)
    if (!sums_sizes(m, r, &plan->sum[i], steps)) return false;
  for (int i = 0; i < plan->n_thread; i++) {
    Step *p = &steps[plan->thread[i]];
    if (p->extent <= 0 || p->list[0] != m->task->target.hw.warp_size) continue; /* a user's rule set it */
    int64_t t = construct_threads(m, &(Choice){.rng = r}, p->extent);
    p->list = arena_copy(a, &t, sizeof t);
  }
  return true;
}
