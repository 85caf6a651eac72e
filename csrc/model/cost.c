/* A model at work in a tuning session: trees, or a network if asked for.
 *
 * The session adds the features and the time of every measured state. Training starts from scratch each time it is due:
 * at every round while there are few records, later when a fifth of them is new. Scores of a rank loss have no unit;
 * the evolution needs a non-negative fitness, so each training also fits, per task, a monotone map from score to the
 * share of the best throughput (pool adjacent violators over the measured states).
 */
#include "model/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EVERY_ROUND_BELOW = 2000, MIN_RECORDS = 16, OWN_MAP_FROM = 20 };

typedef struct {
  double score, y;
} Knot;
typedef struct {
  int32_t n;
  Knot *knot;
} Curve; /* ascending scores, ascending y */

struct CostModel {
  Err *err;
  Arena *keep, *trained[2];
  int now; /* keep: records; trained[now]: forest and maps in use */
  uint64_t seed;
  TreeParams params;
  VEC(float) rows;
  VEC(int32_t) first, task;
  VEC(double) cost;
  int32_t trained_on, n_curves, n_feat;
  Curve *curve, all;
  ModelKind kind;
  int32_t scratch_at;   /* records when a network was last trained from scratch */
  const Forest *forest; /* one of them scores */
  const Mlp *net;
  Arena *loaded; /* memory of a model that was read from a file */
};

CostModel *cost_new(Err *e, uint64_t seed, const TreeParams *p) {
  Arena *a = arena_new(e);
  CostModel *m = arena_new_of(a, CostModel);
  *m = (CostModel){.err = e, .keep = a, .seed = seed, .params = p ? *p : tree_params_default(), .n_feat = ROW_N};
  m->trained[0] = arena_new(e);
  m->trained[1] = arena_new(e);
  vec_push(a, &m->first, 0);
  return m;
}

void cost_free(CostModel *m) {
  if (!m) return;
  arena_free(m->loaded);
  arena_free(m->trained[0]);
  arena_free(m->trained[1]);
  arena_free(m->keep);
}

/* The rows of a state as the model sees them; their number. */
static int pack(const Features *f, const float *state, float (*out)[ROW_N]) {
  int n = f ? f->n_rows : 0;
  for (int r = 0; r < n; r++) {
    memcpy(out[r], f->row[r], sizeof *f->row);
    memset(out[r] + FEAT_N, 0, sizeof(float) * STATE_N);
  }
  if (n == 0 || !state) return n;
  memset(out[n], 0, sizeof(float) * FEAT_N);
  memcpy(out[n] + FEAT_N, state, sizeof(float) * STATE_N);
  return n + 1;
}

void cost_add(CostModel *m, int task, const Features *f, const float *state, double seconds) {
  ArenaMark mark = arena_mark(m->trained[1 - m->now]); /* the arena of the next training serves as scratch */
  float(*rows)[ROW_N] = arena_alloc(m->trained[1 - m->now], sizeof *rows * (size_t)((f ? f->n_rows : 0) + 1));
  int n = pack(f, state, rows);
  for (int r = 0; r < n; r++)
    for (int i = 0; i < ROW_N; i++) vec_push(m->keep, &m->rows, rows[r][i]);
  arena_release(m->trained[1 - m->now], mark);
  vec_push(m->keep, &m->first, m->rows.len / ROW_N);
  vec_push(m->keep, &m->task, task);
  vec_push(m->keep, &m->cost, seconds);
}

int cost_records(const CostModel *m) { return m->cost.len; }
bool cost_ready(const CostModel *m) { return m->forest != NULL || m->net != NULL; }
void cost_use(CostModel *m, ModelKind kind) { m->kind = kind; }

static void score_batch(const CostModel *m, const FeatBatch *b, double *score) {
  if (m->net)
    mlp_score(m->net, b, score);
  else
    forest_score(m->forest, b, score);
}

/* ---- files ---- */
void cost_save(const CostModel *m, const char *path, const char *json) {
  if (!cost_ready(m)) err_raise(m->err, NS_ERR_RUNTIME, "the model has not been trained yet: there is nothing to save");
  Arena *a = arena_new(m->err);
  if (m->net)
    mlp_save(a, m->net, path, json);
  else
    forest_save(a, m->forest, path, json);
  arena_free(a);
}

void cost_load(CostModel *m, const char *path) {
  const char *json;
  if (!m->loaded) m->loaded = arena_new(m->err);
  bool net = model_file_kind(m->loaded, path) == MODEL_NETWORK;
  Mlp *n = net ? mlp_load(m->loaded, path, &json) : NULL;
  Forest *f = net ? NULL : forest_load(m->loaded, path, &json);
  int rules = net ? mlp_rules(n) : f->rules, entries = net ? mlp_entries(n) : f->n_feat;
  err_check(m->err, rules == FEAT_RULES_REPAIRED && entries == ROW_N,
            "'%s' was trained on rows of %d entries by rules %d; the search makes %d entries by rules %d", path,
            entries, rules, ROW_N, FEAT_RULES_REPAIRED);
  m->net = n, m->forest = f;
}

bool cost_due(const CostModel *m) {
  int n = m->cost.len, fresh = n - m->trained_on;
  if (n < MIN_RECORDS || fresh == 0) return false;
  return n < EVERY_ROUND_BELOW || fresh * 5 >= m->trained_on;
}

/* ---- monotone maps ---- */
static int by_score(const void *p, const void *q) {
  double a = ((const Knot *)p)->score, b = ((const Knot *)q)->score;
  return a < b ? -1 : a > b;
}

/* Pools neighbours until y ascends with the score. */
static Curve fit_curve(Arena *a, Knot *k, int n) {
  double *weight = arena_array(a, double, n + 1);
  int m = 0;
  qsort(k, (size_t)n, sizeof *k, by_score);
  for (int i = 0; i < n; i++) {
    k[m] = k[i], weight[m++] = 1;
    while (m > 1 && k[m - 2].y >= k[m - 1].y) {
      double w = weight[m - 2] + weight[m - 1];
      k[m - 2].y = (k[m - 2].y * weight[m - 2] + k[m - 1].y * weight[m - 1]) / w;
      k[m - 2].score = (k[m - 2].score * weight[m - 2] + k[m - 1].score * weight[m - 1]) / w;
      weight[m - 2] = w;
      m--;
    }
  }
  return (Curve){m, k};
}

static void fit_curves(CostModel *m, Arena *a, const FeatBatch *b, const double *y) {
  double *score = arena_array(a, double, b->n_states + 1);
  Knot *every = arena_array(a, Knot, b->n_states + 1);
  int n_all = 0, tasks = 0;
  score_batch(m, b, score);
  for (int i = 0; i < b->n_states; i++)
    if (b->task[i] >= tasks) tasks = b->task[i] + 1;
  m->curve = arena_array(a, Curve, tasks + 1), m->n_curves = tasks;
  for (int t = 0; t < tasks; t++) {
    Knot *k = arena_array(a, Knot, b->n_states + 1);
    int n = 0;
    for (int i = 0; i < b->n_states; i++)
      if (b->task[i] == t && isfinite(score[i])) k[n++] = every[n_all++] = (Knot){score[i], y[i]};
    if (n >= OWN_MAP_FROM) m->curve[t] = fit_curve(a, k, n);
  }
  m->all = fit_curve(a, every, n_all);
}

/* From scratch when the records have doubled since the last time, else a few steps from where the network stands. */
static void train_network(CostModel *m, Arena *a, const FeatBatch *b, Pool *pool) {
  bool update = m->net && b->n_states < 2 * m->scratch_at;
  MlpParams p = mlp_params_default(update);
  p.loss = m->params.loss, p.threads = pool ? pool_size(pool) : 1;
  if (!update) m->scratch_at = b->n_states;
  m->net = mlp_train(a, b, &p, m->seed, update ? m->net : NULL);
  m->forest = NULL;
}

void cost_train(CostModel *m, Pool *pool) {
  Arena *a = m->trained[1 - m->now];
  arena_release(a, (ArenaMark){0});
  FeatBatch b = {.n_states = m->cost.len,
                 .n_feat = ROW_N,
                 .first = m->first.at,
                 .rows = m->rows.at,
                 .task = m->task.at,
                 .cost = m->cost.at};
  m->params.trees = m->params.trees > 0 ? m->params.trees : tree_params_default().trees;
  if (m->kind == MODEL_NETWORK)
    train_network(m, a, &b, pool);
  else
    m->forest = forest_train(a, &b, &m->params, m->seed, pool), m->net = NULL;
  m->now = 1 - m->now, m->trained_on = m->cost.len;
  fit_curves(m, a, &b, loss_labels(loss_new(a, &b, m->params.loss)));
}

double cost_score(const CostModel *m, const Features *f, const float *state) {
  float(*rows)[ROW_N] = malloc(sizeof *rows * (size_t)(f->n_rows + 1));
  if (!rows) return -INFINITY;
  int32_t first[2] = {0, pack(f, state, rows)};
  FeatBatch b = {.n_states = 1, .n_feat = ROW_N, .first = first, .rows = rows[0]};
  double s;
  score_batch(m, &b, &s);
  free(rows);
  return s;
}

double cost_fitness(const CostModel *m, int task, double score) {
  if (!isfinite(score)) return 0;
  const Curve *c = task < m->n_curves && m->curve[task].n > 0 ? &m->curve[task] : &m->all;
  if (c->n == 0) return 1;
  int i = 0;
  while (i < c->n && c->knot[i].score < score) i++;
  double y;
  if (i == 0)
    y = c->knot[0].y;
  else if (i == c->n)
    y = c->knot[c->n - 1].y + (score - c->knot[c->n - 1].score); /* beyond the best: keep ascending */
  else {
    const Knot *p = &c->knot[i - 1], *q = &c->knot[i];
    y = p->y + (q->y - p->y) * (score - p->score) / (q->score - p->score);
  }
  return y < 0.001 ? 0.001 : y > 1 ? 1 : y;
}
