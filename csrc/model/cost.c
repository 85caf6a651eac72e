/* A model at work in a tuning session: trees, or a network if asked for, or both added up.
 *
 * Trees start from the closed-form estimate (prior.c), or from a base: a forest that was trained on earlier runs. A task
 * whose first measurements contradict the base goes on without it. Without a base they speak of a task as far as its records go, and the
 * estimate for the rest.
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

enum { EVERY_ROUND_BELOW = 2000, MIN_RECORDS = 16, OWN_MAP_FROM = 20, TRIAL = 16 };
/* Records of its own at which a task's trees count half, and how many of other tasks count as one. Of 22 layers of ResNet-18 on an H100 the
 * best of the first 18 candidates was 7.6 % slower than the best of some 300 where the trees of what the run had measured before chose
 * them, 1.8 % where the estimate did, and is 2.2 % so; with 300 records of others and 18 own it was 2.0 % and is 1.6 %. */
enum { HALF_SURE = 40, AS_ONE_OWN = 50 };
#define LEAST_CORRELATION 0.2 /* of a base's scores with a task's first TRIAL measurements */

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
  int now; /* keep: records; trained[now]: forests and maps in use */
  uint64_t seed;
  TreeParams params;
  VEC(float) rows;
  VEC(int32_t) first, task;
  VEC(double) cost;
  VEC(int8_t) verdict; /* per task, what became of the base: 0 open, 1 kept, -1 dropped */
  int32_t trained_on, n_curves, trainings;
  Curve *curve, all;
  ModelKind kind;
  int32_t scratch_at;   /* records when a network was last trained from scratch */
  const Forest *forest; /* with the base, if there is one */
  const Forest *plain;  /* with the estimate instead: for tasks that the base misleads */
  const Forest *base;
  const Mlp *net;
  /* How much the trees say of each task beside the estimate, and of one without records; NULL: all. */
  double *trust, trust_of_new;
  int32_t n_trust;
  double tree_unit, net_unit; /* blend: one over the deviation inside tasks */
  Arena *loaded;              /* memory of models that were read from files */
};

void cost_free(CostModel *m) {
  if (!m) return;
  arena_free(m->loaded);
  arena_free(m->trained[0]);
  arena_free(m->trained[1]);
  arena_free(m->keep);
  free(m);
}

static void new_body(void *arg) {
  CostModel *m = arg;
  m->keep = arena_new(m->err);
  m->trained[0] = arena_new(m->err);
  m->trained[1] = arena_new(m->err);
  vec_push(m->keep, &m->first, 0);
}
ERR_BODY(new_undo, CostModel *m, cost_free(m))
CostModel *cost_new(Err *e, uint64_t seed, const TreeParams *p) {
  CostModel *m = mem_alloc(e, sizeof *m);
  m->err = e, m->seed = seed, m->kind = MODEL_TREES;
  m->params = p ? *p : tree_params_online();
  err_guard(e, new_body, new_undo, m);
  return m;
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
  int most = (f ? f->n_rows : 0) + 1; /* room for all of it first: a record is added whole or not at all */
  vec_grow(m->keep, (void **)&m->rows.at, &m->rows.cap, m->rows.len + most * ROW_N, sizeof(float));
  vec_grow(m->keep, (void **)&m->first.at, &m->first.cap, m->first.len + 1, sizeof(int32_t));
  vec_grow(m->keep, (void **)&m->task.at, &m->task.cap, m->task.len + 1, sizeof(int32_t));
  vec_grow(m->keep, (void **)&m->cost.at, &m->cost.cap, m->cost.len + 1, sizeof(double));
  m->rows.len += pack(f, state, (float(*)[ROW_N])(void *)(m->rows.at + m->rows.len)) * ROW_N;
  vec_push(m->keep, &m->first, m->rows.len / ROW_N);
  vec_push(m->keep, &m->task, task);
  vec_push(m->keep, &m->cost, seconds);
}

int cost_records(const CostModel *m) { return m->cost.len; }
bool cost_ready(const CostModel *m) { return m->forest != NULL || m->net != NULL; }
void cost_use(CostModel *m, ModelKind kind) { m->kind = kind; }
FeatBatch cost_batch(const CostModel *m) {
  return (FeatBatch){.n_states = m->cost.len,
                     .n_feat = ROW_N,
                     .first = m->first.at,
                     .rows = m->rows.at,
                     .task = m->task.at,
                     .cost = m->cost.at};
}

/* What trees learned of other tasks misleads more than it tells where there is little of it, and nothing of the task itself: then the
 * estimate speaks. */
static void score_trees(const CostModel *m, int task, const FeatBatch *one, double *s) {
  double estimate;
  forest_score(cost_dropped(m, task) ? m->plain : m->forest, one, s);
  if (!m->trust || !isfinite(*s)) return;
  prior_of_batch(one, &estimate);
  double trees = task < m->n_trust ? m->trust[task] : m->trust_of_new;
  *s = trees * *s + (1 - trees) * PRIOR_SCALE * estimate;
}

/* Scores of states of one task, or of many (task < 0: those of the batch). */
static void score_batch(const CostModel *m, int task, const FeatBatch *b, double *score) {
  bool both = m->net && m->forest;
  if (m->net) mlp_score(m->net, b, score);
  for (int i = 0; both && i < b->n_states; i++) score[i] *= m->net_unit;
  if (!m->forest) return;
  for (int i = 0; i < b->n_states; i++) {
    FeatBatch one = *b;
    double s;
    one.n_states = 1, one.first = b->first + i;
    score_trees(m, task < 0 ? b->task[i] : task, &one, &s);
    score[i] = both ? score[i] + m->tree_unit * s : s;
  }
}

/* ---- saving ---- */
void cost_save(const CostModel *m, const char *path, const char *json) {
  if (!cost_ready(m)) err_raise(m->err, NS_ERR_RUNTIME, "the model has not been trained yet: there is nothing to save");
  err_check(m->err, !m->net || !m->forest, "a blend of two models has no file format; save trees or a network");
  Arena *a = m->trained[1 - m->now]; /* the arena of the next training serves as scratch */
  ArenaMark mark = arena_mark(a);
  if (m->net)
    mlp_save(a, m->net, path, json);
  else
    forest_save(a, m->forest, false, path, json);
  arena_release(a, mark);
}

bool cost_due(const CostModel *m) {
  int n = m->cost.len, fresh = n - m->trained_on;
  if (n < MIN_RECORDS || fresh == 0) return false;
  return n < EVERY_ROUND_BELOW || fresh * 5 >= m->trained_on;
}

/* ---- the base on trial ---- */
bool cost_dropped(const CostModel *m, int task) { return m->base && task < m->verdict.len && m->verdict.at[task] < 0; }

static double rank_of(const double *x, int n, int i) {
  double r = 0;
  for (int j = 0; j < n; j++) r += x[j] < x[i] ? 1 : x[j] == x[i] && j != i ? 0.5 : 0;
  return r;
}
/* Spearman's correlation; 0 where one side is constant. */
static double rank_correlation(const double *x, const double *y, int n) {
  double mean = (n - 1) / 2.0, xy = 0, xx = 0, yy = 0;
  for (int i = 0; i < n; i++) {
    double a = rank_of(x, n, i) - mean, b = rank_of(y, n, i) - mean;
    xy += a * b, xx += a * a, yy += b * b;
  }
  return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

/* A task whose first measurements contradict the base goes on without it. */
static void judge_base(CostModel *m, const FeatBatch *b, const double *base) {
  for (int32_t n = batch_tasks(b); m->verdict.len < n;) vec_push(m->keep, &m->verdict, 0);
  for (int t = 0; t < m->verdict.len; t++) {
    double s[TRIAL], speed[TRIAL];
    int n = 0;
    for (int i = 0; i < b->n_states && n < TRIAL && m->verdict.at[t] == 0; i++)
      if (b->task[i] == t && cost_is_time(b->cost[i]) && isfinite(base[i])) s[n] = base[i], speed[n++] = 1 / b->cost[i];
    if (n == TRIAL) m->verdict.at[t] = rank_correlation(s, speed, n) < LEAST_CORRELATION ? -1 : 1;
  }
}

/* ---- monotone maps ---- */
static int by_score(const void *p, const void *q) {
  const Knot *a = p, *b = q;
  if (a->score != b->score) return a->score < b->score ? -1 : 1;
  return a->y > b->y ? -1 : a->y < b->y; /* descending: states of equal score are pooled, in whatever order they came */
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

static void fit_curves(CostModel *m, Arena *a, const FeatBatch *b) {
  const double *y = loss_labels(loss_new(a, b, m->params.loss));
  double *score = arena_array(a, double, b->n_states + 1);
  Knot *every = arena_array(a, Knot, b->n_states + 1);
  int n_all = 0, tasks = batch_tasks(b);
  score_batch(m, -1, b, score);
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

/* ---- trust ---- */
static double trust(double own, double others) {
  double known = own + others / AS_ONE_OWN;
  return known / (known + HALF_SURE);
}

/* Not of trees that stand on a base: that one has a trial of its own. */
static void learn_trust(CostModel *m, Arena *a, const FeatBatch *b) {
  int n = b->n_states;
  m->n_trust = batch_tasks(b), m->trust = arena_array(a, double, m->n_trust + 1), m->trust_of_new = trust(0, n);
  for (int i = 0; i < n; i++) m->trust[b->task[i]]++;
  for (int t = 0; t < m->n_trust; t++) m->trust[t] = trust(m->trust[t], n - m->trust[t]);
}

/* ---- loading ---- */
/* Maps of one model say nothing of another's scores. */
static void renew_curves(CostModel *m) {
  m->n_curves = 0, m->all = (Curve){0};
  if (m->cost.len < MIN_RECORDS) return;
  FeatBatch b = cost_batch(m);
  if (m->forest && !m->base && m->kind == MODEL_TREES) learn_trust(m, m->loaded, &b);
  fit_curves(m, m->loaded, &b);
}

static void check_rows(const CostModel *m, const char *path, int rules, int entries) {
  err_check(m->err, rules == FEAT_RULES_REPAIRED && entries == ROW_N,
            "'%s' was trained on rows of %d entries by rules %d; the search makes %d entries by rules %d", path,
            entries, rules, ROW_N, FEAT_RULES_REPAIRED);
}

void cost_load(CostModel *m, const char *path) {
  const char *json;
  if (!m->loaded) m->loaded = arena_new(m->err);
  ModelKind kind = model_file_kind(m->loaded, path);
  if (kind == MODEL_NETWORK) {
    Mlp *n = mlp_load(m->loaded, path, &json);
    check_rows(m, path, mlp_rules(n), mlp_entries(n));
    m->net = n, m->forest = NULL, m->trust = NULL;
    renew_curves(m);
    return;
  }
  Forest *f = forest_load(m->loaded, path, &json);
  check_rows(m, path, f->rules, f->n_feat);
  m->forest = m->plain = f, m->net = NULL, m->trust = NULL;
  if (kind == MODEL_BASE) {
    Forest *none = forest_join(m->loaded, NULL, 1, f); /* the estimate alone */
    none->n_trees = 0, none->scale = PRIOR_SCALE;
    m->base = f, m->plain = none, m->verdict.len = 0;
  }
  renew_curves(m);
}

/* ---- training ---- */
/* From scratch when the records have doubled since the last time, else a few steps from where the network stands. */
static void train_network(CostModel *m, Arena *a, const FeatBatch *b, Pool *pool) {
  bool update = m->net && b->n_states < 2 * m->scratch_at;
  MlpParams p = mlp_params_default(update);
  p.loss = m->params.loss, p.threads = pool ? pool_size(pool) : 1;
  if (!update) m->scratch_at = b->n_states;
  m->net = mlp_train(a, b, &p, m->seed, update ? m->net : NULL);
}

/* Trees over the base's scores, or over the estimate where there is none or where it misleads. */
static void train_trees(CostModel *m, Arena *a, const FeatBatch *b, Pool *pool) {
  double *start = arena_array(a, double, b->n_states + 1), *prior = arena_array(a, double, b->n_states + 1);
  double *base = arena_array(a, double, b->n_states + 1), base_scale = 1;
  prior_of_batch(b, prior);
  if (m->base) {
    forest_score(m->base, b, base);
    judge_base(m, b, base);
    for (int i = 0; i < b->n_states; i++)
      if (!isfinite(base[i]) || cost_dropped(m, b->task[i]))
        base[i] = 0;
      else
        prior[i] = 0;
    base_scale = prior_fit(a, b, base, 1, m->params.loss, m->seed);
  }
  double scale = prior_fit(a, b, prior, PRIOR_SCALE, m->params.loss, m->seed);
  for (int i = 0; i < b->n_states; i++) start[i] = scale * prior[i] + base_scale * base[i];
  Forest *f = forest_train(a, b, &m->params, m->seed + (uint64_t)m->trainings, start, pool);
  if (m->base) m->forest = forest_join(a, m->base, base_scale, f);
  f->scale = scale;
  if (!m->base) m->forest = f;
  m->plain = f;
}

/* One over the deviation of scores inside tasks, so that two models can be added. */
static double unit_of(Arena *a, const FeatBatch *b, const double *score) {
  int32_t tasks = batch_tasks(b);
  double *sum = arena_array(a, double, tasks + 1), all = 0;
  int32_t *count = arena_array(a, int32_t, tasks + 1), n = 0;
  for (int i = 0; i < b->n_states; i++)
    if (isfinite(score[i])) sum[b->task[i]] += score[i], count[b->task[i]]++;
  for (int i = 0; i < b->n_states; i++) {
    if (!isfinite(score[i])) continue;
    double d = score[i] - sum[b->task[i]] / count[b->task[i]];
    all += d * d, n++;
  }
  return all > 0 ? sqrt(n / all) : 1;
}

static void blend(CostModel *m, Arena *a, const FeatBatch *b, Pool *pool) {
  double *score = arena_array(a, double, b->n_states + 1);
  train_network(m, a, b, pool);
  mlp_score(m->net, b, score);
  m->net_unit = unit_of(a, b, score);
  forest_score(m->forest, b, score);
  m->tree_unit = unit_of(a, b, score);
}

/* On a copy: a training that is interrupted leaves the model as it was, and nothing in it points to the arena that the
 * next one empties. adopt: a forest that was trained elsewhere, instead. */
static void renew(CostModel *model, const Forest *adopt, Pool *pool) {
  CostModel copy = *model, *m = &copy;
  Arena *a = m->trained[1 - m->now];
  arena_release(a, (ArenaMark){0});
  FeatBatch b = cost_batch(m);
  if (adopt)
    m->forest = m->plain = forest_join(a, NULL, 1, adopt), m->net = NULL;
  else if (m->kind == MODEL_NETWORK)
    train_network(m, a, &b, pool), m->forest = NULL;
  else
    train_trees(m, a, &b, pool);
  if (!adopt && m->kind == MODEL_BLEND) blend(m, a, &b, pool);
  if (!adopt && m->kind == MODEL_TREES) m->net = NULL;
  m->trust = NULL;
  if (!adopt && m->kind == MODEL_TREES && !m->base) learn_trust(m, a, &b);
  m->now = 1 - m->now, m->trained_on = m->cost.len, m->trainings += !adopt;
  fit_curves(m, a, &b);
  *model = copy;
}
void cost_train(CostModel *m, Pool *pool) { renew(m, NULL, pool); }
void cost_adopt(CostModel *m, const Forest *f) { renew(m, f, NULL); }

double cost_score(const CostModel *m, int task, const Features *f, const float *state) {
  float(*rows)[ROW_N] = malloc(sizeof *rows * (size_t)(f->n_rows + 1));
  if (!rows) return -INFINITY;
  int32_t first[2] = {0, pack(f, state, rows)};
  FeatBatch b = {.n_states = 1, .n_feat = ROW_N, .first = first, .rows = rows[0]};
  double s;
  score_batch(m, task, &b, &s);
  free(rows);
  return s;
}

bool cost_rows(const CostModel *m, int task, const Features *f, const float *state, double *out) {
  if (m->net || !m->forest) return false;
  float(*rows)[ROW_N] = malloc(sizeof *rows * (size_t)(f->n_rows + 1));
  if (!rows) return false;
  int n = pack(f, state, rows);
  static const int32_t first[2] = {0, 1};
  out[f->n_rows] = 0;
  for (int r = 0; r < n; r++) {
    FeatBatch b = {.n_states = 1, .n_feat = ROW_N, .first = first, .rows = rows[r]};
    score_batch(m, task, &b, &out[r]);
  }
  free(rows);
  return true;
}

/* Beyond the best record of the task the map keeps ascending; without a map the odds that the score stands for. */
double cost_fitness(const CostModel *m, int task, double score) {
  if (!isfinite(score)) return 0;
  const Curve *c = task < m->n_curves && m->curve[task].n > 0 ? &m->curve[task] : &m->all;
  if (c->n == 0) return exp(fmin(fmax(score, -60), 60));
  int i = 0;
  while (i < c->n && c->knot[i].score < score) i++;
  double y;
  if (i == 0)
    y = c->knot[0].y;
  else if (i == c->n)
    y = c->knot[c->n - 1].y + (score - c->knot[c->n - 1].score);
  else {
    const Knot *p = &c->knot[i - 1], *q = &c->knot[i];
    y = p->y + (q->y - p->y) * (score - p->score) / (q->score - p->score);
  }
  return y < 0.001 ? 0.001 : y > 1 ? 1 : y;
}
