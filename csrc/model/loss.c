/* Labels and rank losses.
 *
 * Only states of the same task are compared. The label of a state is y = best / cost, the share of the best throughput
 * known for its task. For every pair with y_a > y_b the model should score a above b; a wrong order costs
 * w * log(1 + exp(s_b - s_a)) with w = (y_a - y_b) * y_a (top-weighted) or y_a - y_b (pairwise). Gradients are
 * normalised per task, so a task with many records does not drown the others. Failed states take part with y = 0, at
 * most as many as there are valid ones, the newest first.
 *
 * Template tuners follow the reference: the squared error of y, or pairs that all weigh 1 and of which each state draws a
 * few; every failure takes part.
 *
 * In a large task each state meets a few random others and the currently best-scored ones instead of everybody.
 */
#include "model/model.h"
#include <math.h>
#include <stdlib.h>

enum { ALL_PAIRS_UP_TO = 256, RANDOM_MATES = 32, TOP_MATES = 16, MOST_MATES = ALL_PAIRS_UP_TO };

typedef struct {
  int32_t n;
  int32_t *state;
} Group;
struct RankLoss {
  Arena *arena;
  LossKind kind;
  int32_t n_states, n_groups;
  Group *group;
  double *y;
};

const double *loss_labels(const RankLoss *l) { return l->y; }

int32_t batch_tasks(const FeatBatch *b) {
  int32_t n = 0;
  for (int i = 0; i < b->n_states; i++)
    if (b->task[i] >= n) n = b->task[i] + 1;
  return n;
}

void batch_finite(Err *e, const FeatBatch *b) {
  int64_t n = (int64_t)b->first[b->n_states] * b->n_feat;
  for (int64_t i = 0; i < n; i++)
    err_check(e, isfinite(b->rows[i]), "row %lld, entry %lld: feature is not finite", (long long)(i / b->n_feat),
              (long long)(i % b->n_feat));
}

RankLoss *loss_new(Arena *a, const FeatBatch *b, LossKind kind) {
  RankLoss *l = arena_new_of(a, RankLoss);
  int32_t n_tasks = batch_tasks(b);
  *l = (RankLoss){.arena = a, .kind = kind, .n_states = b->n_states, .n_groups = n_tasks};
  l->group = arena_array(a, Group, n_tasks);
  l->y = arena_array(a, double, b->n_states);
  double *best = arena_array(a, double, n_tasks);
  int32_t *valid = arena_array(a, int32_t, n_tasks), *failed = arena_array(a, int32_t, n_tasks);
  for (int t = 0; t < n_tasks; t++) best[t] = INFINITY;
  for (int i = 0; i < b->n_states; i++) {
    bool ok = cost_is_time(b->cost[i]);
    if (ok) valid[b->task[i]]++;
    if (ok && b->cost[i] < best[b->task[i]]) best[b->task[i]] = b->cost[i];
  }
  bool all = kind == LOSS_SQUARED || kind == LOSS_ORDER;
  for (int t = 0; t < n_tasks; t++) l->group[t].state = arena_array(a, int32_t, all ? b->n_states : 2 * valid[t] + 1);
  for (int i = b->n_states - 1; i >= 0; i--) { /* newest first: old failures fall out */
    int t = b->task[i];
    bool ok = cost_is_time(b->cost[i]);
    l->y[i] = ok ? best[t] / b->cost[i] : 0;
    if (b->first[i + 1] == b->first[i]) continue; /* no rows: nothing to learn from */
    if (!ok && !all && failed[t]++ >= valid[t]) continue;
    l->group[t].state[l->group[t].n++] = i;
  }
  return l;
}

/* Adds the pairs of state i with a few others, in their order; returns the sum of their weights. Step by step over all of
 * them, not pair by pair: an exponential and a division wait for nobody's sums then. `better` is 1 or -1 and only
 * multiplied with, for which of two states is the better one no processor guesses. The gradient of i waits in g_i and h_i:
 * no mate is i itself. */
static double add_pairs(const RankLoss *l, int32_t i, int n, const int32_t *mate, const double *s, double *g, double *h,
                        double sum) {
  int32_t other[MOST_MATES], m = 0;
  double x[MOST_MATES], better[MOST_MATES], weight[MOST_MATES], y = l->y[i], g_i = g[i], h_i = h[i];
  for (int k = 0; k < n; k++) {
    int32_t j = mate[k];
    double d = y - l->y[j], sign = copysign(1, d), v = sign * (s[i] - s[j]), w = fabs(d);
    if (l->kind == LOSS_TOP_WEIGHTED) w *= y > l->y[j] ? y : l->y[j];
    if (l->kind == LOSS_ORDER) w = 1;
    v = v > 30 ? 30 : v;
    x[m] = v < -30 ? -30 : v, better[m] = sign, weight[m] = w, other[m] = j;
    m += y != l->y[j];
  }
  for (int k = 0; k < m; k++) x[k] = exp(x[k]);
  for (int k = 0; k < m; k++) {
    double rho = 1 / (1 + x[k]), gg = weight[k] * rho, hh = gg * (1 - rho);
    g_i -= better[k] * gg, g[other[k]] += better[k] * gg;
    h_i += hh, h[other[k]] += hh;
    sum += weight[k];
  }
  g[i] = g_i, h[i] = h_i;
  return sum;
}

typedef struct {
  double s;
  int32_t i;
} Ranked;
static bool above(Ranked a, Ranked b) { return a.s != b.s ? a.s > b.s : a.i < b.i; }

/* The best-scored of a group, best first. */
static void best_scored(const Group *gr, const double *s, Ranked top[TOP_MATES]) {
  int n = 0;
  for (int k = 0; k < gr->n; k++) {
    Ranked x = {s[gr->state[k]], gr->state[k]};
    if (n == TOP_MATES && !above(x, top[n - 1])) continue;
    int at = n < TOP_MATES ? n++ : n - 1;
    for (; at > 0 && above(x, top[at - 1]); at--) top[at] = top[at - 1];
    top[at] = x;
  }
}

static void draw_mates(const Group *gr, Rng *r, int32_t mate[RANDOM_MATES]) {
  for (int j = 0; j < RANDOM_MATES; j++) mate[j] = gr->state[rng_below(r, gr->n)];
}

static double add_sampled(const RankLoss *l, const Group *gr, const double *s, Rng *r, double *g, double *h) {
  Ranked top[TOP_MATES];
  int32_t mate[RANDOM_MATES + TOP_MATES];
  double sum = 0;
  best_scored(gr, s, top);
  for (int j = 0; j < TOP_MATES; j++) mate[RANDOM_MATES + j] = top[j].i;
  for (int k = 0; k < gr->n; k++) {
    draw_mates(gr, r, mate);
    sum = add_pairs(l, gr->state[k], RANDOM_MATES + TOP_MATES, mate, s, g, h, sum);
  }
  return sum;
}

static double add_all(const RankLoss *l, const Group *gr, const double *s, double *g, double *h) {
  double sum = 0;
  for (int i = 0; i < gr->n; i++) sum = add_pairs(l, gr->state[i], gr->n - i - 1, gr->state + i + 1, s, g, h, sum);
  return sum;
}

static void plain_gradient(const RankLoss *l, const Group *gr, const double *s, Rng *r, double *g, double *h) {
  const double LEAST = 1e-16;
  int32_t mate[RANDOM_MATES];
  for (int k = 0; k < gr->n; k++) {
    int32_t i = gr->state[k];
    if (l->kind == LOSS_SQUARED) g[i] = s[i] - l->y[i], h[i] = 1;
    if (l->kind != LOSS_ORDER) continue;
    draw_mates(gr, r, mate);
    add_pairs(l, i, RANDOM_MATES, mate, s, g, h, 0);
  }
  for (int k = 0; k < gr->n; k++) h[gr->state[k]] = fmax(h[gr->state[k]], LEAST);
}

void loss_gradient(const RankLoss *l, const double *score, Rng *r, double *g, double *h) {
  for (int i = 0; i < l->n_states; i++) g[i] = h[i] = 0;
  for (int t = 0; t < l->n_groups; t++) {
    const Group *gr = &l->group[t];
    if (l->kind == LOSS_SQUARED || l->kind == LOSS_ORDER) {
      plain_gradient(l, gr, score, r, g, h);
      continue;
    }
    double sum = gr->n > ALL_PAIRS_UP_TO ? add_sampled(l, gr, score, r, g, h) : add_all(l, gr, score, g, h);
    double z = sum > 0 ? gr->n / sum : 0; /* 1 / Z with Z = Σw / m */
    for (int k = 0; k < gr->n; k++) {
      g[gr->state[k]] *= z;
      h[gr->state[k]] = h[gr->state[k]] * z + 1e-3;
    }
  }
}
