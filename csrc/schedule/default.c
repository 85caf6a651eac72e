/* The default schedule of a program: correct on every target, never measured.
 *
 * Like everything else it is a list of transform steps, so that one lowering serves both tuned and untuned code. On a GPU every stage
 * that is kept becomes one kernel: its spatial loops are fused into one, which is split over blocks and threads. Where few threads would
 * add up many terms each (ends of networks, norms), a block's threads share them: neighbours in memory are read by neighbouring threads.
 * On a CPU the outer spatial loops run in parallel and a divisor of the innermost one as vector lanes, with the reduction between the
 * two. Where the sums of a program are over the rows of its result (softmax), a row is done at once, and the lanes share its sums.
 */
#include "schedule/internal.h"

enum {
  SHARES = 64, /* iterations of a parallel loop that are enough for any number of cores to have about as many */
  MANY = 8,
  AGAIN =
      64, /* elements that a stage reads; these times how often its reader names it: that are too many to be read there */
  LONG = 64,
  FEW = 16384, /* terms that are worth the threads of a block; results that fill a device with a thread each */
  ACROSS =
      64, /* of a transpose: as many results as find their lines of memory in the first cache, with those of a vector's lanes */
  ROW_LANES = 8, /* that share the sum of a row: one vector, since who adds it up at the end does so lane by lane */
  LANES = 16,
  LEAST_LANES = 4,
  LARGE = 4096,
  MULTIPROCESSORS = 64,
};
static const int64_t MOST = (int64_t)1 << 40; /* counts stop there */
#define LANES_ATTR                                                                                                     \
  "lanes" /* of an operation: how many neighbours along its last axis are a vector, though they may not divide it */

typedef struct {
  IrCtx *c;
  const TeDag *d;
  State *s, *bounds; /* bounds: the initial state with its bounds; NULL until share() needs them */
  int threads;       /* of a block at most; 0: a CPU */
  const bool *wanted;
  int n_keep, *keep; /* the stages that are not inlined, from the last on */
} Plan;

static const TeOp *op_of(const Plan *p, int stage) { return p->d->op[stage]; }
static int loops(const State *s, int stage) { return s->stage.at[stage].leaf.len; }
/* -1 if it depends on outer loops (adaptive pools), or is not known */
static int64_t extent(const State *s, int stage, int k) {
  int64_t e = axis_extent(s, stage, k);
  return e < 0 ? -1 : e;
}
static int64_t count(int64_t a, int64_t b) { return a && b > MOST / a ? MOST : a * b; }
/* Iterations of loops from..to - 1, whose extents are known. */
static int64_t iterations(const State *s, int stage, int from, int to) {
  int64_t n = 1;
  for (int k = from; k < to; k++) n = count(n, extent(s, stage, k));
  return n;
}
static bool all_known(const State *s, int stage) { /* and not empty */
  for (int k = 0; k < loops(s, stage); k++)
    if (extent(s, stage, k) < 1) return false;
  return true;
}
/* The largest divisor of n up to `most`; 1 if there is no useful one. */
static int64_t divisor(int64_t n, int64_t most) {
  while (most > 1 && n % most) most--;
  return most;
}

static void split(State *s, int stage, int loop, int64_t n, int64_t inner) {
  Step p = {.kind = STEP_SP, .stage = stage, .iter = loop, .extent = n, .n = 1, .list = &inner, .flag = 1};
  state_apply(s, p);
}
static int64_t *numbers(const State *s, int from, int to) {
  int64_t *k = arena_array(ir_arena(s->ctx), int64_t, to - from + 1);
  for (int i = from; i < to; i++) k[i - from] = i;
  return k;
}
static void fuse(State *s, int stage, int from, int to) { state_fuse(s, stage, to - from, numbers(s, from, to)); }
static void fuse_several(State *s, int stage, int from, int to) {
  if (to - from > 1) fuse(s, stage, from, to);
}
/* The loops of space; returns how many there are. */
static int spatial(const State *s, int stage, int64_t **ids) {
  const Stage *st = &s->stage.at[stage];
  *ids = arena_array(ir_arena(s->ctx), int64_t, st->leaf.len + 1);
  int n = 0;
  for (int k = 0; k < st->leaf.len; k++)
    if (st->axes.at[st->leaf.at[k]].kind == IT_SPACE) (*ids)[n++] = k;
  return n;
}

/* ---- what is inlined ---- */

/* Elements that a stage reads, as far as what it reads is inlined. */
static int64_t reads_of(const Plan *p, int stage, const int64_t *reads) {
  int64_t n = 0;
  for (int k = 0; k < p->d->n_edges; k++) {
    const TeEdge *e = &p->d->edge[k];
    if (e->consumer == stage) n += count(reads[e->producer], e->n_access);
  }
  return n < MOST ? n : MOST;
}
/* How often some reader names a stage. */
static int64_t uses_of(const Plan *p, int stage) {
  int64_t most = 0;
  for (int k = 0; k < p->d->n_edges; k++) {
    const TeEdge *e = &p->d->edge[k];
    int n = e->producer == stage ? te_uses(p->c, p->d, e->consumer, stage) : 0;
    if (n > most) most = n;
  }
  return most ? most : 1;
}

static bool stays(const Plan *p, int i, int64_t n) {
  const TeOp *op = op_of(p, i);
  const TeFlags f = p->d->flags[i];
  bool constant = !op->n_in && op->n_axis > 0; /* matrices of constants: a tiny stage beats a chain of selects */
  if (f.is_output || op->n_red || op->n_out > 1 || constant || f.large || p->wanted[i]) return true;
  int64_t uses = n >= MANY ? uses_of(p, i) : 1;
  return f.has_expensive || (f.has_branch && !p->threads) || (uses > 1 && n * uses > AGAIN);
}

/* Inlines what is read element by element. */
static void inline_stages(Plan *p) {
  Arena *a = ir_arena(p->c);
  int n_ops = p->d->n_ops;
  int64_t *reads = arena_array(a, int64_t, n_ops + 1);
  bool *kept = arena_array(a, bool, n_ops + 1);
  p->keep = arena_array(a, int, n_ops + 1);
  for (int i = 0; i < n_ops; i++) {
    reads[i] = reads_of(p, i, reads);
    bool given = op_of(p, i)->kind == TE_PLACEHOLDER;
    kept[i] = !given && stays(p, i, reads[i]);
    if (given || kept[i]) reads[i] = 1;
  }
  for (int i = n_ops - 1; i >= 0; i--) {
    if (kept[i])
      p->keep[p->n_keep++] = i;
    else if (op_of(p, i)->kind != TE_PLACEHOLDER)
      state_compute_inline(p->s, i);
  }
}

/* ---- GPUs ---- */

static void bind_blocks(Plan *p, int stage) {
  int64_t *ids, threads = 1, most = p->threads < 256 ? p->threads : 256;
  int n_ids = spatial(p->s, stage, &ids);
  if (n_ids != 1) state_fuse(p->s, stage, n_ids, ids); /* of none (a single number) comes a loop of one iteration */
  int64_t n = extent(p->s, stage, 0);
  if (n_ids) threads = 32; /* several threads would add to the same number */
  while (threads < most && n > 2 * threads * MULTIPROCESSORS) threads *= 2;
  split(p->s, stage, 0, n, threads);
  state_annotate(p->s, stage, 0, AN_BLOCK_X);
  state_annotate(p->s, stage, 1, AN_THREAD_X);
}

/* Neighbouring results that the threads of a block share; 1: none. */
static int64_t neighbours(int64_t n) {
  int64_t width = divisor(n, 8);
  if (width < LEAST_LANES) width = divisor(n, 32);
  return width < LEAST_LANES ? 1 : width;
}

/* Gives a block some neighbouring results, each with a column of threads, or one with a row of them, as its terms lie in memory;
 * false where a thread for each result is as good. */
static bool share(Plan *p, int stage) {
  int n = op_of(p, stage)->n_axis;
  TeInner inner = te_innermost(p->c, p->d, stage);
  if (inner == TE_INNER_OTHER || p->d->flags[stage].needs_tiling) return false;
  if (!p->bounds) state_infer_bounds(p->bounds = state_init(p->c, p->d));
  const State *b = p->bounds;
  if (!all_known(b, stage)) return false;
  int all = loops(b, stage);
  int64_t terms = iterations(b, stage, n, all), results = iterations(b, stage, 0, n), width = 1;
  if (inner == TE_INNER_RESULTS) width = neighbours(extent(b, stage, n - 1));
  if (terms < LONG || results > FEW || (inner == TE_INNER_RESULTS && width == 1)) return false;
  int64_t most = p->threads / width, threads = 1;
  if (most > (width > 1 ? 128 : 256)) most = width > 1 ? 128 : 256;
  while (2 * threads <= most && 2 * threads <= terms) threads *= 2;
  fuse_several(p->s, stage, n, all);
  split(p->s, stage, n, terms, threads);
  state_annotate(p->s, stage, n + 1, width > 1 ? AN_THREAD_Y : AN_THREAD_X);
  if (width > 1) {
    split(p->s, stage, n - 1, extent(b, stage, n - 1), width);
    state_annotate(p->s, stage, n, AN_THREAD_X);
  }
  if (n != 1) fuse(p->s, stage, 0, n); /* of none (a single number) comes a loop of one iteration */
  state_annotate(p->s, stage, 0, AN_BLOCK_X);
  return true;
}

/* ---- CPUs ---- */

/* A transpose reads what lies side by side one after the other, while its lines are near: LANES of them. Lanes read far apart. */
static bool across(Plan *p, int stage) {
  int beside = te_beside(p->c, p->d, stage), last = loops(p->s, stage) - 1;
  if (beside < 0 || beside >= last || !all_known(p->s, stage)) return false;
  int64_t rows = extent(p->s, stage, beside), columns = extent(p->s, stage, last);
  int64_t part = divisor(rows, ACROSS), width = divisor(columns, LANES);
  if (part < 8 || width < LEAST_LANES || iterations(p->s, stage, 0, last + 1) <= LARGE) return false;
  split(p->s, stage, last, columns, width);
  split(p->s, stage, beside, rows, part);
  int64_t *order = numbers(p->s, 0, last + 3);
  int n = 0;
  for (int k = 0; k < last + 2; k++)
    if (k != beside + 1) order[n++] = k;
  order[n] = beside + 1;
  state_reorder(p->s, stage, last + 3, order);
  state_annotate(p->s, stage, last + 2, AN_VECTORIZE);
  fuse(p->s, stage, 0, n);
  state_annotate(p->s, stage, 0, AN_PARALLEL);
  return true;
}

/* How many of the spatial loops run in parallel: where there are no lanes, those that are enough, and the rest stays a nest, whose
 * indices cost no division. */
static int parallel_loops(const State *s, int stage, int n, const int64_t *ids) {
  int64_t shares = 1;
  for (int k = 0; k + 1 < n; k++) {
    shares = count(shares, extent(s, stage, (int)ids[k]));
    if (shares >= SHARES) return k + 1;
  }
  return n;
}

static int64_t lanes_of(const Plan *p, int stage, int loop) {
  const TeAttr *said = te_attr(op_of(p, stage), LANES_ATTR);
  return said && said->i ? said->i : divisor(extent(p->s, stage, loop), LANES);
}

static void parallelize(Plan *p, int stage) {
  int64_t *ids, width = 1, total = 1;
  int n_ids = spatial(p->s, stage, &ids), n = loops(p->s, stage);
  if (!n_ids) return;
  bool windows = false; /* loops that must stay inside the ones on which their extents depend */
  for (int k = 0; k < n; k++) windows |= extent(p->s, stage, k) < 0;
  int last = (int)ids[n_ids - 1], outer = n_ids;
  if (!windows) width = lanes_of(p, stage, last);
  if (width >= LEAST_LANES) {
    split(p->s, stage, last, extent(p->s, stage, last), width);
    int64_t *order = numbers(p->s, 0, n + 1);
    for (int k = last + 1; k < n; k++) order[k] = k + 1;
    order[n] = last + 1;
    state_reorder(p->s, stage, n + 1, order);
    state_annotate(p->s, stage, n, AN_VECTORIZE);
  } else if (!windows) {
    outer = parallel_loops(p->s, stage, n_ids, ids);
  }
  if (outer > 1) state_fuse(p->s, stage, outer, ids);
  for (int k = 0; k < loops(p->s, stage); k++)
    if (extent(p->s, stage, k) > 1) total = count(total, extent(p->s, stage, k));
  if (total > LARGE) state_annotate(p->s, stage, 0, AN_PARALLEL);
}

/* ---- row by row ---- */

typedef struct {
  Plan *p;
  const State *bounds;
  State *s;  /* NULL: it is not done */
  int outer; /* loops of the result but the last */
  int64_t rows, width;
} Rows;

static bool is_sum(const Plan *p, int stage) { return op_of(p, stage)->n_red > 0; }

/* Can the sums of a program be shared among lanes? */
static bool rows_fit(const Rows *x) {
  const Plan *p = x->p;
  bool any = false;
  if (!p->n_keep || is_sum(p, p->keep[0]) || op_of(p, p->keep[0])->n_axis < 2) return false;
  for (int k = 0; k < p->n_keep; k++) {
    int i = p->keep[k];
    const TeFlags f = p->d->flags[i];
    if (f.is_output != (k == 0) || !op_of(p, i)->n_axis) return false;
    if (!is_sum(p, i)) continue;
    any = true;
    if (te_innermost(p->c, p->d, i) != TE_INNER_TERMS || f.needs_tiling || op_of(p, i)->n_out != 1) return false;
  }
  return any;
}

static bool worth_rows(Rows *x) {
  const Plan *p = x->p;
  const State *b = x->bounds;
  for (int k = 0; k < p->n_keep; k++) {
    int i = p->keep[k], n = loops(b, i);
    if (!all_known(b, i)) return false;
    if (is_sum(p, i) && (n <= op_of(p, i)->n_axis || extent(b, i, n - 1) % ROW_LANES)) return false;
  }
  x->outer = loops(b, p->keep[0]) - 1;
  x->rows = iterations(b, p->keep[0], 0, x->outer);
  x->width = extent(b, p->keep[0], x->outer);
  return x->rows >= SHARES && divisor(x->width, LANES) >= LEAST_LANES;
}

/* The number of a stage once all sums are two stages. */
static int stage_now(const Plan *p, int stage) {
  int more = 0;
  for (int k = 0; k < p->n_keep; k++) more += is_sum(p, p->keep[k]) && p->keep[k] <= stage;
  return stage + more;
}

static void share_sum(State *s, const State *b, int stage, int n) {
  int64_t terms = iterations(b, stage, n, loops(b, stage)), *order = numbers(s, 0, n + 2);
  fuse_several(s, stage, n, loops(b, stage));
  split(s, stage, n, terms, ROW_LANES);
  state_apply(s, (Step){.kind = STEP_RF, .stage = stage, .iter = n + 1, .a = n});
  order[n] = n + 1, order[n + 1] = n;
  state_reorder(s, stage, n + 2, order);
  state_annotate(s, stage, n + 1, AN_VECTORIZE);
}

/* Is nothing of what the stages make, each in the loop of a row, made twice? */
static bool made_once(const Rows *x) {
  const Plan *p = x->p;
  State *attached = state_copy(p->c, x->s);
  state_infer_bounds(attached);
  for (int k = 1; k < p->n_keep; k++) {
    int i = p->keep[k], now = stage_now(p, i);
    int64_t *ids, size = 1;
    int n = spatial(attached, now, &ids);
    for (int m = 0; m < n; m++) {
      int64_t e = extent(attached, now, (int)ids[m]);
      if (e < 0) return false;
      size = count(size, e);
    }
    if (count(size, x->rows) != iterations(x->bounds, i, 0, op_of(p, i)->n_axis)) return false;
  }
  return true;
}

/* The state in which each iteration of one parallel loop computes a row of the result with all that it needs; none where that would do
 * work twice or rows are few. One row per lane would need a gather for each number. */
static void by_rows(void *arg) {
  Rows *x = arg;
  const Plan *p = x->p;
  State *bounds = state_copy(p->c, p->s);
  state_infer_bounds(bounds);
  x->bounds = bounds;
  if (!worth_rows(x)) return;
  State *s = state_copy(p->c, p->s);
  for (int k = 0; k < p->n_keep;
       k++) /* from the last on: each becomes two stages, and those behind it get other numbers */
    if (is_sum(p, p->keep[k])) share_sum(s, bounds, p->keep[k], op_of(p, p->keep[k])->n_axis);
  for (int k = 0; k < p->n_keep; k++) {
    int i = p->keep[k], n = op_of(p, i)->n_axis, now = stage_now(p, i);
    if (is_sum(p, i) || extent(bounds, i, loops(bounds, i) - 1) != x->width) continue;
    split(s, now, n - 1, x->width, divisor(x->width, LANES));
    state_annotate(s, now, n, AN_VECTORIZE);
  }
  int out = stage_now(p, p->keep[0]);
  for (int k = 1; k < p->n_keep; k++) {
    int now = stage_now(p, p->keep[k]);
    state_compute_at(s, now, out, x->outer - 1);
    if (is_sum(p, p->keep[k])) state_compute_at(s, now - 1, out, x->outer - 1);
  }
  fuse_several(s, out, 0, x->outer);
  state_annotate(s, out, 0, AN_PARALLEL);
  x->s = s;
  if (!made_once(x)) x->s = NULL;
}

State *state_default(IrCtx *c, const TeDag *d, int threads, const bool *wanted) {
  Plan p = {.c = c, .d = d, .s = state_init(c, d), .threads = threads, .wanted = wanted};
  inline_stages(&p);
  Rows x = {.p = &p};
  if (!threads && rows_fit(&x)) {
    ErrCode code = err_attempt(ir_err(c), by_rows, &x);
    if (code != NS_OK && code != NS_ERR_VALUE) err_rethrow(ir_err(c), code);
    if (code == NS_OK && x.s) return x.s; /* else a stage cannot be attached there: separate loops are always right */
  }
  for (int k = p.n_keep - 1; k >= 0; k--) {
    if (!threads) {
      if (!across(&p, p.keep[k])) parallelize(&p, p.keep[k]);
    } else if (!share(&p, p.keep[k])) {
      bind_blocks(&p, p.keep[k]);
    }
  }
  return p.s;
}
