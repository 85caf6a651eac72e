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

enum { ALL_PAIRS_UP_TO = 256, RANDOM_MATES = 32, TOP_MATES = 16 };

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

typedef struct {
  double w, rho;
} PairTerm;

static double pair_weight(const RankLoss *l, int a, int b) {
  if (l->kind == LOSS_ORDER) return 1;
  double d = l->y[a] - l->y[b];
  return l->kind == LOSS_TOP_WEIGHTED ? d * l->y[a] : d;
}

/* Adds one pair, in either order; returns its weight. */
static double add_pair(const RankLoss *l, int i, int j, const double *s, double *g, double *h) {
  int a = i, b = j;
  if (l->y[a] == l->y[b]) return 0;
  if (l->y[a] < l->y[b]) a = j, b = i;
  double w = pair_weight(l, a, b), x = s[a] - s[b];
  x = x > 30 ? 30 : x < -30 ? -30 : x;
  double rho = 1 / (1 + exp(x)), hh = w * rho * (1 - rho);
  g[a] -= w * rho, g[b] += w * rho;
  h[a] += hh, h[b] += hh;
  return w;
}

typedef struct {
  double s;
  int32_t i;
} Ranked;
static int by_score(const void *p, const void *q) {
  const Ranked *a = p, *b = q;
  if (a->s != b->s) return a->s > b->s ? -1 : 1;
  return a->i - b->i;
}

static double add_sampled(const RankLoss *l, const Group *gr, const double *s, Rng *r, double *g, double *h) {
  ArenaMark m = arena_mark(l->arena);
  Ranked *rank = arena_array(l->arena, Ranked, gr->n);
  double sum = 0;
  for (int k = 0; k < gr->n; k++) rank[k] = (Ranked){s[gr->state[k]], gr->state[k]};
  qsort(rank, (size_t)gr->n, sizeof *rank, by_score);
  for (int k = 0; k < gr->n; k++) {
    for (int j = 0; j < RANDOM_MATES; j++) sum += add_pair(l, gr->state[k], gr->state[rng_below(r, gr->n)], s, g, h);
    for (int j = 0; j < TOP_MATES; j++) sum += add_pair(l, gr->state[k], rank[j].i, s, g, h);
  }
  arena_release(l->arena, m);
  return sum;
}

static void plain_gradient(const RankLoss *l, const Group *gr, const double *s, Rng *r, double *g, double *h) {
  const double LEAST = 1e-16;
  for (int k = 0; k < gr->n; k++) {
    int32_t i = gr->state[k];
    if (l->kind == LOSS_SQUARED) g[i] = s[i] - l->y[i], h[i] = 1;
    for (int j = 0; l->kind == LOSS_ORDER && j < RANDOM_MATES; j++)
      add_pair(l, i, gr->state[rng_below(r, gr->n)], s, g, h);
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
    double sum = 0;
    if (gr->n > ALL_PAIRS_UP_TO)
      sum = add_sampled(l, gr, score, r, g, h);
    else
      for (int i = 0; i < gr->n; i++)
        for (int j = i + 1; j < gr->n; j++) sum += add_pair(l, gr->state[i], gr->state[j], score, g, h);
    double z = sum > 0 ? gr->n / sum : 0; /* 1 / Z with Z = Σw / m */
    for (int k = 0; k < gr->n; k++) {
      g[gr->state[k]] *= z;
      h[gr->state[k]] = h[gr->state[k]] * z + 1e-3;
    }
  }
}
