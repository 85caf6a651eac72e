/* How well scores order the states of a task: order-based metrics, each averaged over tasks. */
#include "model/model.h"
#include <math.h>
#include <stdlib.h>

typedef struct {
  double y, s;
} Item;

static int by_s(const void *p, const void *q) {
  double a = ((const Item *)p)->s, b = ((const Item *)q)->s;
  return a > b ? -1 : a < b;
}
static int by_y(const void *p, const void *q) {
  double a = ((const Item *)p)->y, b = ((const Item *)q)->y;
  return a > b ? -1 : a < b;
}

/* Share of pairs in the right order; pairs closer than 2 % are skipped, a tied score counts half. */
static double pairwise(const Item *it, int n) {
  double right = 0, all = 0;
  for (int i = 0; i < n; i++)
    for (int j = i + 1; j < n; j++) {
      double hi = fmax(it[i].y, it[j].y), lo = fmin(it[i].y, it[j].y);
      if (hi - lo < 0.02 * hi) continue;
      all++;
      double d = (it[i].s - it[j].s) * (it[i].y - it[j].y);
      right += d > 0 ? 1 : d == 0 ? 0.5 : 0;
    }
  return all > 0 ? right / all : 0.5;
}

static void add_task(Item *it, int n, ModelMetrics *m) {
  m->pairwise += pairwise(it, n);
  qsort(it, (size_t)n, sizeof *it, by_y);
  double best = it[0].y, cut = it[n < 30 ? n - 1 : 29].y;
  qsort(it, (size_t)n, sizeof *it, by_s);
  double run = 0, sum = 0, hit = 0;
  int k32 = n < 32 ? n : 32, k30 = n < 30 ? n : 30;
  for (int i = 0; i < k32; i++) {
    run = fmax(run, it[i].y);
    sum += run / best;
    if (i < k30 && it[i].y >= cut) hit++;
    if (i == 0) m->top1 += run / best;
    if (i == (n < 5 ? n - 1 : 4)) m->top5 += run / best;
  }
  m->a_peak32 += sum / k32, m->recall30 += hit / k30;
}

ModelMetrics model_metrics(Arena *a, const FeatBatch *b, const double *score) {
  ModelMetrics m = {0};
  int tasks = 0, n_tasks = batch_tasks(b);
  Item *it = arena_array(a, Item, b->n_states + 1);
  for (int t = 0; t < n_tasks; t++) {
    int n = 0;
    for (int i = 0; i < b->n_states; i++)
      if (b->task[i] == t && cost_is_time(b->cost[i])) it[n++] = (Item){1 / b->cost[i], score[i]};
    if (n < 2) continue;
    add_task(it, n, &m);
    tasks++;
  }
  if (tasks == 0) return (ModelMetrics){.pairwise = 0.5};
  m.pairwise /= tasks, m.top1 /= tasks, m.top5 /= tasks, m.a_peak32 /= tasks, m.recall30 /= tasks;
  return m;
}

typedef struct {
  double key, tie;
  int32_t i;
} Place;
static int by_key(const void *p, const void *q) {
  const Place *a = p, *b = q;
  if (a->key != b->key) return a->key > b->key ? -1 : 1;
  return a->tie != b->tie ? (a->tie > b->tie ? -1 : 1) : a->i - b->i;
}
/* tie: by which equal ones are ordered; NULL: as they come */
static Place *places(Arena *a, int32_t n, const double *key, double cut, const double *tie) {
  Place *at = arena_array(a, Place, n + 1);
  for (int i = 0; i < n; i++) at[i] = (Place){cut > 0 ? key[i] >= cut : key[i], tie ? tie[i] : 0, i};
  qsort(at, (size_t)n, sizeof *at, by_key);
  return at;
}
double average_recall(Arena *a, int32_t n, const double *label, const double *score, int32_t top, double cut) {
  ArenaMark m = arena_mark(a);
  /* among labels that are cut to good and bad, any order of the good ones is right */
  Place *guess = places(a, n, score, 0, NULL), *truth = places(a, n, label, cut, cut > 0 ? score : NULL);
  int32_t *rank = arena_array(a, int32_t, n + 1);
  for (int i = 0; i < n; i++) rank[truth[i].i] = i;
  double sum = 0;
  for (int i = 0; i < top && i < n; i++) {
    int32_t hit = 0;
    for (int j = 0; j < i; j++) hit += rank[guess[j].i] <= i;
    sum += (double)hit / (i + 1);
  }
  arena_release(a, m);
  return sum / top;
}
