/* Training of model T: histogram boosted trees whose outputs are summed over the rows of a state.
 *
 * Entries are quantised once to at most `bins` bins, or to one for each value: then splits are exact. Each round takes the gradient of a rank loss at the current
 * scores, gives every row of a state the state's gradient g and the bound n·h of its curvature (n rows of one state may
 * move together; the bound keeps boosting from diverging), and grows one tree depth-first. A node's histogram holds Σg
 * and Σh per entry and bin; the smaller child's is built from its rows, the larger one's by subtraction.
 *
 * One thread owns an entry's histogram, so sums run in a fixed order and the forest is the same for every thread count.
 */
#include "model/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BINS = 64, MAX_DEPTH = 12 };

typedef struct {
  float g, h;
} Cell;
typedef struct {
  int32_t entry, n_bins, at; /* at: of its cells in a histogram */
  float *edge;               /* edge[b]: a value <= edge[b] falls into bin <= b */
} Column;

typedef struct {
  int32_t col, bin;
} Cut;

typedef struct {
  Arena *arena;
  const FeatBatch *b;
  const TreeParams *p;
  Pool *pool;
  int32_t n_rows, n_cols, n_cells;
  Column *col;
  bool *idle;                /* entries that the tree being grown does not see */
  uint16_t *code;            /* column-major codes */
  int32_t *state_of;         /* state of each row */
  float *rg, *rh;            /* gradient and curvature per row */
  int32_t *order;            /* rows, partitioned by node */
  Cell *hist[MAX_DEPTH + 2]; /* one per level: n_cells */
  VEC(TreeNode) node;
  VEC(Cut) cut;    /* per node: where it splits, in codes */
  double *row_out; /* output of the newest tree per row */
  const int32_t *work_rows;
  int32_t work_n;
  Cell *work_hist; /* arguments of the histogram job */
} Grow;

TreeParams tree_params_default(void) {
  return (TreeParams){.trees = 200,
                      .depth = 6,
                      .bins = MAX_BINS,
                      .eta = 0.1,
                      .lambda = 1,
                      .gamma = 0.001,
                      .min_child_weight = 0,
                      .states = 1,
                      .entries = 1};
}

/* Chosen on 9,447 records of an H100: small trees over drawn states and entries follow few records better than large ones
 * over all, train four times as fast, and differ from round to round, so that a search is not misled twice alike. */
TreeParams tree_params_online(void) {
  TreeParams p = tree_params_default();
  p.trees = 100, p.depth = 3, p.states = 0.6, p.entries = 0.3;
  return p;
}

/* Of the reference's template tuner. */
TreeParams tree_params_template(LossKind loss) {
  TreeParams p = tree_params_default();
  p.trees = 8000, p.depth = 3, p.bins = EXACT_BINS, p.eta = 0.3, p.gamma = 1e-4, p.min_child_weight = 1;
  p.loss = loss, p.recall = 64, p.patience = 20;
  return p;
}

/* ---- quantisation ---- */
/* Keys of finite floats: their order as unsigned numbers is that of the values; -0 and 0 are one value. */
static uint32_t key_of(float v) {
  uint32_t u;
  v += 0.0f;
  memcpy(&u, &v, sizeof u);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
static float value_of(uint32_t u) {
  float v;
  u = u & 0x80000000u ? u & 0x7fffffffu : ~u;
  memcpy(&v, &u, sizeof v);
  return v;
}

/* Ascending, by digits of 11 bits; other: room for n keys. */
static void sort_keys(uint32_t *key, uint32_t *other, int32_t n) {
  for (int shift = 0; shift < 32; shift += 11) {
    uint32_t at[2048] = {0}, sum = 0;
    for (int i = 0; i < n; i++) at[key[i] >> shift & 2047]++;
    if (n > 0 && at[key[0] >> shift & 2047] == (uint32_t)n) continue; /* all alike */
    for (int d = 0; d < 2048; d++) {
      uint32_t count = at[d];
      at[d] = sum, sum += count;
    }
    for (int i = 0; i < n; i++) other[at[key[i] >> shift & 2047]++] = key[i];
    memcpy(key, other, sizeof *key * (size_t)n);
  }
}

/* Bin edges of one entry; false if it has a single value. key: room for 2 * n_rows. */
static bool make_edges(Grow *w, int32_t entry, float *tmp, uint32_t *key, Column *c) {
  int32_t n = 0;
  for (int i = 0; i < w->n_rows; i++) key[i] = key_of(w->b->rows[(size_t)i * (size_t)w->b->n_feat + (size_t)entry]);
  sort_keys(key, key + w->n_rows, w->n_rows);
  for (int i = 0; i < w->n_rows; i++)
    if (n == 0 || key[i] != key[i - 1]) tmp[n++] = value_of(key[i]);
  if (n < 2) return false;
  int32_t bins = n < w->p->bins || w->p->bins == EXACT_BINS ? n : w->p->bins;
  *c = (Column){.entry = entry, .n_bins = bins, .at = w->n_cells, .edge = arena_array(w->arena, float, bins)};
  w->n_cells += bins;
  for (int b = 0; b + 1 < bins; b++) {
    int64_t at = (int64_t)(b + 1) * n / bins;
    c->edge[b] = 0.5f * (tmp[at - 1] + tmp[at]);
  }
  c->edge[bins - 1] = INFINITY;
  return true;
}

static uint16_t code_of(const Column *c, float v) {
  int lo = 0, hi = c->n_bins - 1;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (v <= c->edge[mid])
      hi = mid;
    else
      lo = mid + 1;
  }
  return (uint16_t)lo;
}

static void quantise(Grow *w) {
  float *tmp = arena_array(w->arena, float, w->n_rows);
  uint32_t *key = arena_array(w->arena, uint32_t, 2 * (int64_t)w->n_rows);
  w->col = arena_array(w->arena, Column, w->b->n_feat);
  for (int e = 0; e < w->b->n_feat; e++)
    if (make_edges(w, e, tmp, key, &w->col[w->n_cols])) w->n_cols++;
  w->code = arena_array(w->arena, uint16_t, (int64_t)w->n_cols * w->n_rows);
  for (int c = 0; c < w->n_cols; c++)
    for (int i = 0; i < w->n_rows; i++)
      w->code[(size_t)c * (size_t)w->n_rows + (size_t)i] =
          code_of(&w->col[c], w->b->rows[(size_t)i * (size_t)w->b->n_feat + (size_t)w->col[c].entry]);
}

/* ---- histograms ---- */
static void hist_job(void *arg, int worker, int64_t c) {
  (void)worker;
  Grow *w = arg;
  if (w->idle[c]) return;
  Cell *h = w->work_hist + w->col[c].at;
  const uint16_t *code = w->code + (size_t)c * (size_t)w->n_rows;
  memset(h, 0, sizeof(Cell) * (size_t)w->col[c].n_bins);
  for (int k = 0; k < w->work_n; k++) {
    int32_t r = w->work_rows[k];
    Cell *cell = &h[code[r]];
    cell->g += w->rg[r], cell->h += w->rh[r];
  }
}

static void build_hist(Grow *w, const int32_t *rows, int32_t n, Cell *hist) {
  w->work_rows = rows, w->work_n = n, w->work_hist = hist;
  if (w->pool && (int64_t)n * w->n_cols > 20000)
    pool_run(w->pool, w->n_cols, hist_job, w);
  else
    for (int c = 0; c < w->n_cols; c++) hist_job(w, 0, c);
}

/* ---- growing ---- */
typedef struct {
  int32_t col, bin;
  double gain;
} Split;

static double leaf_gain(double g, double h, double lambda) { return g * g / (h + lambda); }

static Split best_split(const Grow *w, const Cell *hist, double g, double h) {
  Split best = {-1, 0, w->p->gamma};
  double lambda = w->p->lambda, here = leaf_gain(g, h, lambda), least = w->p->min_child_weight;
  for (int c = 0; c < w->n_cols; c++) {
    if (w->idle[c]) continue;
    const Cell *cell = hist + w->col[c].at;
    double gl = 0, hl = 0;
    for (int b = 0; b + 1 < w->col[c].n_bins; b++) {
      gl += cell[b].g, hl += cell[b].h;
      double gr = g - gl, hr = h - hl;
      if (hl <= 0 || hr <= 1e-12 || hl < least || hr < least) continue;
      double gain = leaf_gain(gl, hl, lambda) + leaf_gain(gr, hr, lambda) - here;
      if (gain > best.gain) best = (Split){c, b, gain};
    }
  }
  return best;
}

/* Rows whose code is <= bin to the front; stable. Returns their number. */
static int32_t partition(Grow *w, int32_t *rows, int32_t n, Split s) {
  ArenaMark m = arena_mark(w->arena);
  int32_t *right = arena_array(w->arena, int32_t, n), nl = 0, nr = 0;
  const uint16_t *code = w->code + (size_t)s.col * (size_t)w->n_rows;
  for (int k = 0; k < n; k++) {
    if (code[rows[k]] <= s.bin)
      rows[nl++] = rows[k];
    else
      right[nr++] = rows[k];
  }
  memcpy(rows + nl, right, sizeof *right * (size_t)nr);
  arena_release(w->arena, m);
  return nl;
}

static void sums(const Grow *w, const int32_t *rows, int32_t n, double *g, double *h) {
  *g = *h = 0;
  for (int k = 0; k < n; k++) *g += w->rg[rows[k]], *h += w->rh[rows[k]];
}

static void new_node(Grow *w) {
  vec_push(w->arena, &w->node, (TreeNode){0});
  vec_push(w->arena, &w->cut, (Cut){0});
}

/* hist[level] holds the histogram of this node; hist[level + 1] is free for a child. */
static void grow_node(Grow *w, int32_t at, int32_t *rows, int32_t n, int level) {
  double g, h;
  sums(w, rows, n, &g, &h);
  Split s = {-1, 0, 0};
  if (level < w->p->depth && n >= 2) s = best_split(w, w->hist[level], g, h);
  if (s.col < 0) {
    float out = (float)(-g / (h + w->p->lambda) * w->p->eta);
    w->node.at[at] = (TreeNode){-1, out, 0};
    for (int k = 0; k < n; k++) w->row_out[rows[k]] = out;
    return;
  }
  int32_t nl = partition(w, rows, n, s), left = w->node.len;
  new_node(w);
  new_node(w);
  w->node.at[at] = (TreeNode){w->col[s.col].entry, w->col[s.col].edge[s.bin], left};
  w->cut.at[at] = (Cut){s.col, s.bin};
  bool small_left = nl <= n - nl, deeper = level + 1 < w->p->depth;
  int32_t *small = small_left ? rows : rows + nl, ns = small_left ? nl : n - nl;
  int32_t *large = small_left ? rows + nl : rows, nlarge = n - ns;
  Cell *child = w->hist[level + 1], *mine = w->hist[level];
  if (deeper) {
    build_hist(w, small, ns, child);
    for (int i = 0; i < w->n_cells; i++) mine[i].g -= child[i].g, mine[i].h -= child[i].h;
  }
  grow_node(w, small_left ? left : left + 1, small, ns, level + 1);
  if (deeper) memcpy(child, mine, sizeof(Cell) * (size_t)w->n_cells);
  grow_node(w, small_left ? left + 1 : left, large, nlarge, level + 1);
}

static void prepare(Grow *w) {
  w->n_rows = w->b->first[w->b->n_states];
  w->state_of = arena_array(w->arena, int32_t, w->n_rows);
  for (int s = 0; s < w->b->n_states; s++)
    for (int r = w->b->first[s]; r < w->b->first[s + 1]; r++) w->state_of[r] = s;
  w->rg = arena_array(w->arena, float, w->n_rows);
  w->rh = arena_array(w->arena, float, w->n_rows);
  w->order = arena_array(w->arena, int32_t, w->n_rows);
  w->row_out = arena_array(w->arena, double, w->n_rows);
  quantise(w);
  w->idle = arena_array(w->arena, bool, w->n_cols + 1);
  for (int l = 0; l <= w->p->depth + 1; l++) w->hist[l] = arena_array(w->arena, Cell, w->n_cells + 1);
}

static void check(Arena *a, const FeatBatch *b, const TreeParams *p) {
  Err *e = arena_err(a);
  err_check(e, p->depth >= 1 && p->depth <= MAX_DEPTH, "tree depth %d is not in 1..%d", p->depth, MAX_DEPTH);
  err_check(e, p->bins == EXACT_BINS || (p->bins >= 2 && p->bins <= MAX_BINS), "number of bins %d is not in 2..%d",
            p->bins, MAX_BINS);
  err_check(e, p->bins != EXACT_BINS || b->first[b->n_states] <= UINT16_MAX,
            "%d rows are too many for exact trees; at most %d", b->first[b->n_states], UINT16_MAX);
  err_check(e, p->trees >= 0, "number of trees %d is negative", p->trees);
  err_check(e, p->states > 0 && p->states <= 1 && p->entries > 0 && p->entries <= 1,
            "shares of states and entries %g and %g are not in (0, 1]", p->states, p->entries);
  batch_finite(e, b);
}

/* Rows of the states that the next tree sees, with their gradients; their number. All others keep their score. */
static int32_t draw_rows(Grow *w, const double *g, const double *h, Rng *r) {
  int32_t used = 0;
  for (int s = 0; s < w->b->n_states; s++) {
    bool in = w->p->states >= 1 || rng_unit(r) < w->p->states;
    for (int k = w->b->first[s]; k < w->b->first[s + 1]; k++) {
      w->rg[k] = (float)g[s], w->rh[k] = (float)(h[s] * (w->b->first[s + 1] - w->b->first[s]));
      if (in && h[s] > 0) w->order[used++] = k; /* states outside every group have no gradient */
    }
  }
  for (int c = 0; c < w->n_cols; c++) w->idle[c] = w->p->entries < 1 && rng_unit(r) >= w->p->entries;
  return used;
}

/* Adds the newest tree's outputs to the scores. Rows that it has not seen walk it, by codes: a column of them fits a cache. */
static void add_tree(Grow *w, int32_t root, double *score) {
  const TreeNode *node = w->node.at;
  for (int r = 0; r < w->n_rows; r++) {
    int32_t at = root;
    while (node[at].entry >= 0) {
      Cut c = w->cut.at[at];
      at = node[at].left + (w->code[(size_t)c.col * (size_t)w->n_rows + (size_t)r] > c.bin);
    }
    score[w->state_of[r]] += node[at].value;
  }
}

/* Boosting goes on as long as the recall of the best states grows. */
typedef struct {
  double best;
  int32_t tree;
} Stop;
static bool enough(Arena *a, const TreeParams *p, const RankLoss *loss, int32_t n, const double *score, int32_t tree,
                   Stop *x) {
  double now = average_recall(a, n, loss_labels(loss), score, p->recall, p->recall_cut);
  if (now > x->best) *x = (Stop){now, tree};
  return tree - x->tree >= p->patience;
}

Forest *forest_train(Arena *a, const FeatBatch *b, const TreeParams *p, uint64_t seed, const double *start,
                     Pool *pool) {
  check(a, b, p);
  Grow w = {.arena = a, .b = b, .p = p, .pool = pool};
  prepare(&w);
  RankLoss *loss = loss_new(a, b, p->loss);
  Rng rng;
  rng_seed(&rng, seed);
  int32_t n = b->n_states;
  double *score = arena_array(a, double, n + 1), *g = arena_array(a, double, n + 1), *h = arena_array(a, double, n + 1);
  for (int i = 0; start && i < n; i++) score[i] = start[i];
  Forest *f = arena_new_of(a, Forest);
  f->rules = FEAT_RULES_REPAIRED, f->n_feat = b->n_feat, f->root = arena_array(a, int32_t, p->trees + 1);
  bool whole = p->states >= 1;
  Stop stop = {.best = -1};
  for (int t = 0; t < p->trees && w.n_rows > 0; t++) {
    loss_gradient(loss, score, &rng, g, h);
    int32_t used = draw_rows(&w, g, h, &rng);
    if (used == 0) {
      if (whole) break;
      continue;
    }
    int32_t root = f->root[f->n_trees++] = w.node.len;
    new_node(&w);
    build_hist(&w, w.order, used, w.hist[0]);
    grow_node(&w, root, w.order, used, 0);
    if (whole)
      for (int k = 0; k < used; k++) score[w.state_of[w.order[k]]] += w.row_out[w.order[k]];
    else
      add_tree(&w, root, score);
    err_poll(arena_err(a));
    if (p->recall > 0 && t % 2 == 0 && enough(a, p, loss, n, score, t, &stop)) break;
  }
  f->node = w.node.at, f->n_nodes = w.node.len;
  return f;
}
