/* Model N: a small network for each row, a sum over the rows of a state, and a head with two residual layers.
 *
 *   h1 = relu(x W1 + b1)      h2 = relu(h1 W2 + b2)       per row; x: kept entries, standardised, clipped to ±5
 *   p  = sum of h2            over the rows of a state
 *   u1 = p + relu(p W3 + b3)  u2 = u1 + relu(u1 W4 + b4)  s = u2 w5 + b5
 *
 * All matrices are row-major and every product is one call (product.h) over the whole batch; the rows of a state lie next
 * to each other, so the sum is a single pass. Training is Adam on the rank loss, with warm-up, a cosine to zero and a
 * clipped gradient norm. A test compiles this file with MLP_DOUBLE to compare gradients with differences.
 */
#include "model/file.h"
#include "model/product.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 5 };
typedef struct {
  int32_t in, out, w, b;
} Layer; /* w, b: places in the parameters; weights are in x out */
struct Mlp {
  int32_t n_feat, n_kept, hidden, rules, n_param;
  int32_t *kept;
  float *mean, *inv; /* per kept entry */
  Layer layer[LAYERS];
  Real *param;
};
typedef struct { /* one batch; rows x hidden, then states x hidden */
  int32_t n_rows, n_states;
  const int32_t *first;
  Real *x, *h1, *h2, *p, *r3, *u1, *r4, *u2, *s;
  Real *dr1, *dr2, *du, *t;
} Work;

MlpParams mlp_params_default(bool update) {
  MlpParams p = {.hidden = 128, .steps = 600, .batch = 512, .threads = 1, .rate = 1.5e-3, .decay = 1e-4, .clip = 0.5};
  if (update) p.steps = 60, p.rate = 5e-4;
  return p;
}
int mlp_entries(const Mlp *m) { return m->n_feat; }
int mlp_rules(const Mlp *m) { return m->rules; }
void mlp_set_rules(Mlp *m, int rules) { m->rules = rules; }

/* ---- layers ---- */
static void make_layers(Mlp *m) {
  int32_t h = m->hidden, at = 0;
  for (int l = 0; l < LAYERS; l++) {
    Layer *y = &m->layer[l];
    y->in = l == 0 ? m->n_kept : h, y->out = l == LAYERS - 1 ? 1 : h;
    y->w = at, y->b = at + y->in * y->out;
    at = y->b + y->out;
  }
  m->n_param = at;
}

/* out = in W + b, and its positive part */
static void dense(const Mlp *m, int l, int32_t n, const Real *in, Real *out, bool relu) {
  const Layer *y = &m->layer[l];
  const Real *b = m->param + y->b;
  for (int i = 0; i < n; i++) memcpy(out + (size_t)i * (size_t)y->out, b, sizeof *b * (size_t)y->out);
  if (n > 0 && y->in > 0) product_add(false, false, n, y->out, y->in, in, m->param + y->w, out);
  if (!relu) return;
  for (size_t i = 0; i < (size_t)n * (size_t)y->out; i++) out[i] = out[i] > 0 ? out[i] : 0;
}

static void sum_rows(const Work *k, int32_t h) {
  memset(k->p, 0, sizeof(Real) * (size_t)k->n_states * (size_t)h);
  for (int s = 0; s < k->n_states; s++)
    for (int r = k->first[s]; r < k->first[s + 1]; r++)
      for (int j = 0; j < h; j++) k->p[(size_t)s * (size_t)h + (size_t)j] += k->h2[(size_t)r * (size_t)h + (size_t)j];
}

static void forward(const Mlp *m, const Work *k) {
  size_t n = (size_t)k->n_states * (size_t)m->hidden;
  dense(m, 0, k->n_rows, k->x, k->h1, true);
  dense(m, 1, k->n_rows, k->h1, k->h2, true);
  sum_rows(k, m->hidden);
  dense(m, 2, k->n_states, k->p, k->r3, true);
  for (size_t i = 0; i < n; i++) k->u1[i] = k->p[i] + k->r3[i];
  dense(m, 3, k->n_states, k->u1, k->r4, true);
  for (size_t i = 0; i < n; i++) k->u2[i] = k->u1[i] + k->r4[i];
  dense(m, 4, k->n_states, k->u2, k->s, false);
}

/* Gradients of a layer's weights and biases from its input and the gradient t of its output; din += t Wᵀ if asked for.
 */
static void dense_back(const Mlp *m, int l, int32_t n, const Real *in, const Real *t, Real *din, Real *grad) {
  const Layer *y = &m->layer[l];
  if (n == 0 || y->in == 0) return;
  product_add(true, false, y->in, y->out, n, in, t, grad + y->w);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < y->out; j++) grad[y->b + j] += t[(size_t)i * (size_t)y->out + (size_t)j];
  if (din) product_add(false, true, n, y->in, y->out, t, m->param + y->w, din);
}

static void masked(Real *out, const Real *grad, const Real *value, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = value[i] > 0 ? grad[i] : 0;
}

/* grad: gradient of the loss, ds: its derivative by the score of each state. */
static void backward(const Mlp *m, const Work *k, const Real *ds, Real *grad) {
  size_t h = (size_t)m->hidden, n = (size_t)k->n_states * h, rows = (size_t)k->n_rows * h;
  memset(grad, 0, sizeof *grad * (size_t)m->n_param);
  memset(k->du, 0, sizeof(Real) * n);
  dense_back(m, 4, k->n_states, k->u2, ds, k->du, grad);
  masked(k->t, k->du, k->r4, n);
  dense_back(m, 3, k->n_states, k->u1, k->t, k->du, grad);
  masked(k->t, k->du, k->r3, n);
  dense_back(m, 2, k->n_states, k->p, k->t, k->du, grad);
  for (int s = 0; s < k->n_states; s++)
    for (int r = k->first[s]; r < k->first[s + 1]; r++)
      memcpy(k->dr2 + (size_t)r * h, k->du + (size_t)s * h, sizeof(Real) * h);
  masked(k->dr2, k->dr2, k->h2, rows);
  memset(k->dr1, 0, sizeof(Real) * rows);
  dense_back(m, 1, k->n_rows, k->h1, k->dr2, k->dr1, grad);
  masked(k->dr1, k->dr1, k->h1, rows);
  dense_back(m, 0, k->n_rows, k->x, k->dr1, NULL, grad);
}

/* Places of all buffers of a batch in one block; returns the block's length. */
static size_t lay_out(const Mlp *m, Work *k, Real *block, bool train) {
  size_t h = (size_t)m->hidden, at = 0, rows = (size_t)k->n_rows, n = (size_t)k->n_states;
  struct {
    Real **to;
    size_t len;
  } part[] = {{&k->x, rows * (size_t)m->n_kept},
              {&k->h1, rows * h},
              {&k->h2, rows * h},
              {&k->p, n * h},
              {&k->r3, n * h},
              {&k->u1, n * h},
              {&k->r4, n * h},
              {&k->u2, n * h},
              {&k->s, n},
              {&k->dr1, rows * h},
              {&k->dr2, rows * h},
              {&k->du, n * h},
              {&k->t, n * h}};
  for (int i = 0; i < NS_COUNT(part) - (train ? 0 : 4); i++) { /* the last four are gradients */
    *part[i].to = block ? block + at : NULL;
    at += part[i].len;
  }
  return at;
}

static void standardise(const Mlp *m, const FeatBatch *b, int from, int n, Real *out) {
  for (int r = from; r < from + n; r++)
    for (int i = 0; i < m->n_kept; i++) {
      float v = (b->rows[(size_t)r * (size_t)b->n_feat + (size_t)m->kept[i]] - m->mean[i]) * m->inv[i];
      *out++ = v > 5 ? 5 : v < -5 ? -5 : v;
    }
}

/* ---- scoring ---- */
static void score_some(const Mlp *m, const FeatBatch *b, int from, int to, double *score) {
  int32_t first[257], r0 = b->first[from];
  Work k = {.n_rows = b->first[to] - r0, .n_states = to - from, .first = first};
  for (int i = from; i <= to; i++) first[i - from] = b->first[i] - r0;
  Real *block = malloc(sizeof *block * (lay_out(m, &k, NULL, false) + 1));
  for (int i = from; i < to; i++) score[i] = -INFINITY;
  if (!block) return; /* unscored candidates are left out */
  lay_out(m, &k, block, false);
  standardise(m, b, r0, k.n_rows, k.x);
  forward(m, &k);
  for (int i = from; i < to; i++)
    if (b->first[i + 1] > b->first[i]) score[i] = (double)k.s[i - from];
  free(block);
}

void mlp_score(const Mlp *m, const FeatBatch *b, double *score) {
  for (int i = 0; i < b->n_states; i += 256) score_some(m, b, i, i + 256 < b->n_states ? i + 256 : b->n_states, score);
}

/* ---- training ---- */
typedef struct {
  Arena *arena;
  const FeatBatch *b;
  const MlpParams *p;
  Mlp *m;
  Real *x;                                  /* all rows, standardised */
  int32_t n_tasks, *task, *by_task, *start; /* compact numbers; states grouped by task */
  double *cost;
  int32_t *order;
  int n_order;          /* states of this pass through the data */
  Real *grad, *m1, *m2; /* Adam */
  int skipped;
} Train;

static double normal(Rng *r) {
  double u = rng_unit(r), v = rng_unit(r);
  return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
}

static void initialise(Mlp *m, Rng *r) {
  for (int l = 0; l < LAYERS; l++) {
    const Layer *y = &m->layer[l];
    double dev = sqrt((l == LAYERS - 1 ? 1.0 : 2.0) / (y->in > 0 ? y->in : 1)) * (l == 2 || l == 3 ? 0.5 : 1);
    for (int i = 0; i < y->in * y->out; i++) m->param[y->w + i] = (Real)(normal(r) * dev);
  }
}

/* Mean and deviation of each entry over all rows; entries without deviation are dropped. */
static void fit_scaling(Mlp *m, Arena *a, const FeatBatch *b) {
  int32_t n = b->first[b->n_states];
  m->kept = arena_array(a, int32_t, b->n_feat + 1);
  m->mean = arena_array(a, float, b->n_feat + 1);
  m->inv = arena_array(a, float, b->n_feat + 1);
  for (int e = 0; e < b->n_feat; e++) {
    double sum = 0, sq = 0;
    for (int r = 0; r < n; r++) sum += (double)b->rows[(size_t)r * (size_t)b->n_feat + (size_t)e];
    double mean = n > 0 ? sum / n : 0;
    for (int r = 0; r < n; r++) {
      double d = (double)b->rows[(size_t)r * (size_t)b->n_feat + (size_t)e] - mean;
      sq += d * d;
    }
    double dev = n > 0 ? sqrt(sq / n) : 0;
    if (dev < 1e-4) continue;
    m->kept[m->n_kept] = e, m->mean[m->n_kept] = (float)mean, m->inv[m->n_kept++] = (float)(1 / dev);
  }
}

static Mlp *new_mlp(Train *w, uint64_t seed, const Mlp *start) {
  Mlp *m = arena_new_of(w->arena, Mlp);
  bool go_on = start && start->n_feat == w->b->n_feat && start->hidden == w->p->hidden;
  *m = go_on ? *start : (Mlp){.n_feat = w->b->n_feat, .hidden = w->p->hidden, .rules = FEAT_RULES_REPAIRED};
  if (go_on) { /* start may live in an arena that goes away */
    m->kept = arena_copy(w->arena, start->kept, sizeof *m->kept * (size_t)m->n_kept);
    m->mean = arena_copy(w->arena, start->mean, sizeof *m->mean * (size_t)m->n_kept);
    m->inv = arena_copy(w->arena, start->inv, sizeof *m->inv * (size_t)m->n_kept);
    m->param = arena_copy(w->arena, start->param, sizeof(Real) * (size_t)m->n_param);
    return m;
  }
  fit_scaling(m, w->arena, w->b);
  make_layers(m);
  m->param = arena_array(w->arena, Real, m->n_param);
  Rng r;
  rng_seed(&r, seed ^ 0x6e657477u);
  initialise(m, &r);
  return m;
}

/* States with rows, grouped by task under compact task numbers. */
static void group(Train *w) {
  const FeatBatch *b = w->b;
  MapU64 map;
  mapu_init(&map, w->arena);
  w->task = arena_array(w->arena, int32_t, b->n_states + 1);
  w->cost = arena_copy(w->arena, b->cost, sizeof *b->cost * (size_t)b->n_states);
  for (int i = 0; i < b->n_states; i++) {
    int32_t t = mapu_get(&map, (uint64_t)b->task[i], -1);
    if (t < 0) mapu_set(&map, (uint64_t)b->task[i], t = w->n_tasks++);
    w->task[i] = t;
  }
  w->by_task = arena_array(w->arena, int32_t, b->n_states + 1);
  w->start = arena_array(w->arena, int32_t, w->n_tasks + 1);
  int n = 0;
  for (int t = 0; t < w->n_tasks; t++) {
    w->start[t] = n;
    for (int i = 0; i < b->n_states; i++)
      if (w->task[i] == t && b->first[i + 1] > b->first[i]) w->by_task[n++] = i;
  }
  w->start[w->n_tasks] = w->n_order = n;
  w->order = arena_array(w->arena, int32_t, n + 1);
}

/* A new pass: tasks in random order, states of a task in random order, so that a batch holds pairs. */
static void new_pass(Train *w, Rng *r) {
  ArenaMark mark = arena_mark(w->arena);
  int32_t *tasks = arena_array(w->arena, int32_t, w->n_tasks + 1);
  for (int t = 0; t < w->n_tasks; t++) tasks[t] = t;
  rng_shuffle(r, w->n_tasks, tasks);
  int n = 0;
  for (int k = 0; k < w->n_tasks; k++) {
    int32_t from = w->start[tasks[k]], len = w->start[tasks[k] + 1] - from;
    rng_shuffle(r, len, w->by_task + from);
    memcpy(w->order + n, w->by_task + from, sizeof *w->order * (size_t)len);
    n += len;
  }
  arena_release(w->arena, mark);
}

static void adam(Train *w, int step, double rate) {
  Mlp *m = w->m;
  double norm = 0, c1 = 1 - pow(0.9, step + 1), c2 = 1 - pow(0.999, step + 1);
  for (int i = 0; i < m->n_param; i++) norm += (double)w->grad[i] * (double)w->grad[i];
  norm = sqrt(norm);
  if (!isfinite(norm)) {
    w->skipped++;
    return;
  }
  Real scale = (Real)(norm > w->p->clip ? w->p->clip / norm : 1);
  for (int l = 0; l < LAYERS; l++)
    for (int i = m->layer[l].w; i < m->layer[l].b + m->layer[l].out; i++) {
      Real decay = i < m->layer[l].b ? (Real)w->p->decay * m->param[i] : 0;
      Real g = w->grad[i] * scale + decay;
      w->m1[i] = (Real)0.9 * w->m1[i] + (Real)0.1 * g;
      w->m2[i] = (Real)0.999 * w->m2[i] + (Real)0.001 * g * g;
      m->param[i] -= (Real)(rate * ((double)w->m1[i] / c1) / (sqrt((double)w->m2[i] / c2) + 1e-8));
    }
}

/* One step on the states order[from .. from + n). */
static void train_step(Train *w, Rng *pairs, int from, int n, int step, double rate) {
  Arena *a = w->arena;
  ArenaMark mark = arena_mark(a);
  size_t f = (size_t)w->m->n_kept;
  int32_t *first = arena_array(a, int32_t, n + 1), *task = arena_array(a, int32_t, n + 1);
  double *cost = arena_array(a, double, n + 1), *s = arena_array(a, double, n + 1), *g = arena_array(a, double, n + 1),
         *h = arena_array(a, double, n + 1);
  for (int i = 0; i < n; i++) {
    int32_t st = w->order[from + i];
    first[i + 1] = first[i] + w->b->first[st + 1] - w->b->first[st];
    task[i] = w->task[st], cost[i] = w->cost[st];
  }
  Work k = {.n_rows = first[n], .n_states = n, .first = first};
  lay_out(w->m, &k, arena_array(a, Real, lay_out(w->m, &k, NULL, true) + 1), true);
  for (int i = 0; i < n; i++)
    memcpy(k.x + (size_t)first[i] * f, w->x + (size_t)w->b->first[w->order[from + i]] * f,
           sizeof(Real) * f * (size_t)(first[i + 1] - first[i]));
  forward(w->m, &k);
  FeatBatch sub = {.n_states = n, .n_feat = w->b->n_feat, .first = first, .task = task, .cost = cost};
  for (int i = 0; i < n; i++) s[i] = (double)k.s[i];
  loss_gradient(loss_new(a, &sub, w->p->loss), s, pairs, g, h);
  for (int i = 0; i < n; i++) k.s[i] = (Real)(g[i] / n);
  backward(w->m, &k, k.s, w->grad);
  adam(w, step, rate);
  arena_release(a, mark);
}

static void check(Arena *a, const FeatBatch *b, const MlpParams *p) {
  Err *e = arena_err(a);
  err_check(e, p->hidden >= 1 && p->hidden <= 4096, "hidden width %d is not in 1..4096", p->hidden);
  err_check(e, p->batch >= 2, "batch of %d states is too small", p->batch);
  err_check(e, p->steps >= 0, "number of steps %d is negative", p->steps);
  batch_finite(e, b);
}

Mlp *mlp_train(Arena *a, const FeatBatch *b, const MlpParams *p, uint64_t seed, const Mlp *start) {
  check(a, b, p);
  Train w = {.arena = a, .b = b, .p = p};
  Mlp *m = w.m = new_mlp(&w, seed, start);
  int32_t rows = b->first[b->n_states];
  w.x = arena_array(a, Real, (size_t)rows * (size_t)m->n_kept + 1);
  standardise(m, b, 0, rows, w.x);
  w.grad = arena_array(a, Real, m->n_param);
  w.m1 = arena_array(a, Real, m->n_param);
  w.m2 = arena_array(a, Real, m->n_param);
  group(&w);
  Rng batches, pairs;
  rng_seed(&batches, seed ^ 0x62617463u);
  rng_seed(&pairs, seed ^ 0x70616972u);
  product_threads(p->threads);
  int n = w.n_order, per_pass = (n + p->batch - 1) / p->batch, size = per_pass > 0 ? (n + per_pass - 1) / per_pass : 0;
  double warm = 0.05 * p->steps;
  for (int step = 0, at = n; step < p->steps && n > 1; step++) {
    if (at >= n) {
      new_pass(&w, &batches);
      at = 0;
    }
    double rate = p->rate * (step < warm ? (step + 1) / (warm + 1)
                                         : 0.5 * (1 + cos(3.141592653589793 * (step - warm) / (p->steps - warm))));
    train_step(&w, &pairs, at, at + size < n ? size : n - at, step, rate);
    at += size;
    err_poll(arena_err(a));
  }
  product_threads(1); /* many threads score, each one state at a time */
  return m;
}

/* ---- file: u32 layers; per layer u32 inputs, u32 outputs, f32 weights, f32 biases; f32 means, f32 inverse deviations
 * ---- */
static void put_reals(StrBuf *b, const Real *v, int n) {
  for (int i = 0; i < n; i++) {
    float f = (float)v[i];
    model_put(b, &f, sizeof f);
  }
}
static void get_reals(ModelReader *r, Real *v, int n) {
  for (int i = 0; i < n; i++) {
    float f;
    model_get(r, &f, sizeof f);
    err_check(arena_err(r->arena), isfinite(f), "'%s' is damaged (a weight is not finite)", r->path);
    v[i] = f;
  }
}

void mlp_save(Arena *a, const Mlp *m, const char *path, const char *json) {
  ArenaMark mark = arena_mark(a);
  StrBuf b;
  model_file_begin(&b, a, &(ModelHead){MODEL_NETWORK, m->rules, m->n_feat, 0, m->n_kept, m->kept, json});
  model_put_u32(&b, LAYERS);
  for (int l = 0; l < LAYERS; l++) {
    const Layer *y = &m->layer[l];
    model_put_u32(&b, y->in);
    model_put_u32(&b, y->out);
    put_reals(&b, m->param + y->w, y->in * y->out);
    put_reals(&b, m->param + y->b, y->out);
  }
  model_put(&b, m->mean, sizeof *m->mean * (size_t)m->n_kept);
  model_put(&b, m->inv, sizeof *m->inv * (size_t)m->n_kept);
  model_file_end(&b, path);
  arena_release(a, mark);
}

Mlp *mlp_load(Arena *a, const char *path, const char **json) {
  Err *e = arena_err(a);
  ModelReader r;
  ModelHead h = model_file_open(&r, a, path);
  err_check(e, h.kind == MODEL_NETWORK, "'%s' holds a model of kind %d, not a network; load it as what it is", path,
            (int)h.kind);
  Mlp *m = arena_new_of(a, Mlp);
  m->n_feat = h.n_feat, m->n_kept = h.n_kept, m->rules = h.rules;
  m->kept = arena_copy(a, h.kept, sizeof *h.kept * (size_t)h.n_kept);
  uint32_t layers = model_get_u32(&r);
  err_check(e, layers == LAYERS, "'%s' has %u layers; this release reads networks of %d", path, layers, LAYERS);
  for (int l = 0; l < LAYERS; l++) {
    int32_t in = model_get_count(&r, 1), out = model_get_count(&r, 1);
    if (l == 0) {
      m->hidden = out;
      err_check(e, out >= 1 && out <= 4096, "'%s' is damaged (width %d)", path, out);
      make_layers(m);
      m->param = arena_array(a, Real, m->n_param);
    }
    const Layer *y = &m->layer[l];
    err_check(e, in == y->in && out == y->out, "'%s' is damaged (layer %d is %d x %d)", path, l, in, out);
    get_reals(&r, m->param + y->w, in * out);
    get_reals(&r, m->param + y->b, out);
  }
  m->mean = arena_array(a, float, m->n_kept + 1);
  m->inv = arena_array(a, float, m->n_kept + 1);
  model_get(&r, m->mean, sizeof *m->mean * (size_t)m->n_kept);
  model_get(&r, m->inv, sizeof *m->inv * (size_t)m->n_kept);
  *json = h.json;
  return m;
}
