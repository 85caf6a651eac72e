/* Sums of many elements into few results (GPU, extended mode), as means over the pixels of a map are.
 *
 * A thread for each result leaves most of the device idle and takes as long as its loop; the threads of a warp that share one
 * sum do better where its terms are neighbours, and read one element of each line where results are. Two sketches more:
 *
 *   shared: a block computes some neighbouring results, along threadIdx.x, each with a column of threads, along threadIdx.y
 *           (terms that are neighbours: the reader's block has all its threads for one result, along threadIdx.x);
 *   in parts: rfactor makes a kernel of its own that adds up parts of the sums, a thread each, in an order in which neighbours
 *           read neighbours; then the parts are summed as above.
 *
 * An element-wise reader of the sums is computed in the same kernel. What stays open is how many parts there are, how many
 * results a block has and how many threads a sum has; any numbers whose product is a block will do. Spec 03 §7. */
#include "search/space.h"
#include <string.h>

/* Where it can win: a sum in parts costs a launch more, about what 2^16 elements take in few blocks. */
enum { PART_TERMS = 256, PART_POINTS = 1 << 16, PART_RESULTS = 32, ROW_TERMS = 1 << 14 };

/* ---- where the sketches apply ---- */

/* Terms of a sum. Those of a window may follow from bounds alone (adaptive pools). -1: they differ. */
static int64_t terms(const State *s, int stage) {
  const TeOp *op = s->stage.at[stage].op;
  const State *known = s;
  int64_t n = 1;
  for (int i = 0; i < op->n_red; i++) {
    if (known == s && axis_extent(s, stage, op->n_axis + i) < 0) {
      State *bounded = state_init(s->ctx, s->dag);
      state_infer_bounds(bounded);
      known = bounded;
    }
    int64_t e = axis_extent(known, stage, op->n_axis + i);
    if (e <= 0 || !i64_mul(n, e, &n)) return -1;
  }
  return n;
}

typedef struct {
  TeInner inner;
  int64_t results, terms, points;
} Sum;

/* A reduction that nothing has been done to, and that tiles have nothing to offer. */
static bool sum_of(const State *s, int stage, Sum *out) {
  const Stage *g = &s->stage.at[stage];
  if (sp_placeholder(s, stage) || sp_needs_tiling(s, stage) || g->at != AT_ROOT || g->attached.len > 0 ||
      g->rels.len > 0 || sp_has_attr(s, stage, TE_NO_SPLIT) || sp_has_attr(s, stage, TE_CONST_AXES))
    return false;
  out->inner = te_innermost(s->ctx, s->dag, stage);
  if (out->inner == TE_INNER_OTHER) return false;
  out->results = sp_len(s, stage, IT_SPACE), out->terms = terms(s, stage);
  return out->results > 0 && out->terms > 1 && i64_mul(out->results, out->terms, &out->points);
}

/* Each reduction multiplies the sketches, and a plan describes so many. */
static bool few_sums(const SketchEnv *env) {
  const TeDag *d = env->task->dag;
  int n = 0;
  for (int i = 0; i < d->n_ops; i++) n += d->op[i]->n_red > 0;
  return env->par->extended && n <= PLAN_SUMS;
}

bool sums_shared(const SketchEnv *env, const State *s, int stage) {
  Sum x;
  const Target *t = &env->task->target;
  if (!few_sums(env) || !sum_of(s, stage, &x)) return false;
  bool many = x.terms > t->hw.warp_size && x.results / t->hw.max_threads_per_block < t->gpu.sms;
  if (x.inner == TE_INNER_TERMS)
    return many && sp_len(s, stage, IT_REDUCE) != x.terms; /* else they are summed across threads anyway */
  return many && axis_extent(s, stage, s->stage.at[stage].op->n_axis - 1) > 1;
}

bool sums_in_parts(const SketchEnv *env, const State *s, int stage) {
  Sum x;
  if (!few_sums(env) || s->stage.at[stage].op->n_out != 1 || !sum_of(s, stage, &x)) return false;
  int64_t sms = env->task->target.gpu.sms;
  if (x.inner == TE_INNER_TERMS) return x.results <= sms / 4 && x.terms >= ROW_TERMS;
  return x.results <= PART_RESULTS * sms && x.terms >= PART_TERMS && x.points >= PART_POINTS;
}

/* ---- sketches ---- */

int sums_fuse(State *s, int stage) {
  int64_t ids[MAX_LOOPS] = {0};
  int n = 0;
  for (int i = 0; i < sp_loops(s, stage) && n < MAX_LOOPS; i++)
    if (sp_axis(s, stage, i)->kind == IT_REDUCE) ids[n++] = i;
  if (n > 1) state_fuse(s, stage, n, ids);
  return (int)ids[0];
}

/* The extent is recorded as far as it is known: the bounds of some sums are not, yet, and parts have no number. */
static void split_sum(State *s, int stage, int iter, int64_t extent, int64_t size) {
  state_apply(s, (Step){.kind = STEP_SP,
                        .stage = stage,
                        .iter = iter,
                        .extent = extent,
                        .n = 1,
                        .list = arena_copy(ir_arena(s->ctx), &size, sizeof size),
                        .flag = true});
}

/* The only, element-wise reader, as long as nothing was done to it; -1: the sums are stored. */
static int reader_of(const State *s, int stage) {
  int t = sp_matched_consumer(s, stage, true);
  if (t < 0) return -1;
  const Stage *g = &s->stage.at[t];
  bool plain = g->at == AT_ROOT && g->attached.len == 0 && g->rels.len == 0 && g->op->n_axis > 0 &&
               !sp_has_reduce(s, t) && sp_loops(s, t) == g->op->n_axis;
  for (int i = 0; plain && i < sp_loops(s, t); i++) plain = sp_axis(s, t, i)->ann == AN_NONE;
  return plain ? t : -1;
}

bool sums_joined_by(const State *s, int stage) {
  int at, n = s->stage.at[stage].attached.len;
  for (int i = 0; i < n; i++) {
    int u = attach_stage(s->stage.at[stage].attached.at[i]);
    for (int k = 0; k < sp_loops(s, u); k++)
      if (sp_axis(s, u, k)->kind == IT_REDUCE && ann_is_thread(sp_axis(s, u, k)->ann) &&
          sp_steps_of(s, u, STEP_SP, &at, 1) > 0)
        return true;
  }
  return false;
}

static void share(State *s, int stage, TeInner inner, int64_t n) {
  const int64_t open = SIZE_OPEN;
  int last = s->stage.at[stage].op->n_axis - 1, t = reader_of(s, stage), host = t < 0 ? stage : t;
  int f = sums_fuse(s, stage);
  split_sum(s, stage, f, n, open);
  state_annotate(s, stage, f + 1, inner == TE_INNER_RESULTS ? AN_THREAD_Y : AN_THREAD_X);
  if (inner == TE_INNER_RESULTS) {
    int64_t outer[MAX_LOOPS];
    for (int i = 0; i <= last; i++) outer[i] = i;
    int along = s->step.len;
    state_split(s, host, last, 1, &open, true);
    state_annotate(s, host, last + 1, AN_THREAD_X);
    if (last > 0) state_fuse(s, host, last + 1, outer);
    state_annotate(s, host, 0, AN_BLOCK_X);
    if (t >= 0) { /* of the reader's block it makes as many */
      state_apply(s, (Step){.kind = STEP_FSP, .stage = stage, .iter = last, .a = along, .b = 1});
      state_annotate(s, stage, last + 1, AN_THREAD_X);
    }
  }
  if (t >= 0) state_compute_at(s, stage, t, inner == TE_INNER_RESULTS ? 0 : last);
}

void sums_share(State *s, int stage) {
  Sum x;
  if (sum_of(s, stage, &x)) share(s, stage, x.inner, x.terms);
}

/* Number i of the parts has the terms i, i + parts, ...: what is computed at a time lies in one piece. */
void sums_part(State *s, int stage) {
  Sum x;
  if (!sum_of(s, stage, &x)) return;
  int r = sums_fuse(s, stage), n_space = s->stage.at[stage].op->n_axis;
  split_sum(s, stage, r, x.terms, 1); /* open once it is factored */
  state_apply(s,
              (Step){.kind = STEP_RF, .stage = stage, .iter = r + 1, .a = x.inner == TE_INNER_RESULTS ? 0 : n_space});
  share(s, stage + 1, x.inner, 0);
}

/* ---- plans ---- */

/* Which steps of a sketch are such sums: the split that a thread axis follows, made by share() before all others of its stage. */
static bool shares(const State *sketch, int i) {
  int n = sketch->step.len;
  const Step *p = &sketch->step.at[i];
  bool x = plan_split_for(n, sketch->step.at, i, AN_THREAD_X), y = plan_split_for(n, sketch->step.at, i, AN_THREAD_Y);
  if ((!x && !y) || p->list[0] != SIZE_OPEN) return false;
  const TeOp *op = sketch->stage.at[sp_final_stage(n, sketch->step.at, i, p->stage)].op;
  return op->n_red > 0 && p->iter == op->n_axis && (x || (i + 2 < n && sketch->step.at[i + 2].kind == STEP_SP));
}

int sums_plan(const State *sketch, int cap, PlanSum *out) {
  int n = 0;
  for (int i = 0; i < sketch->step.len && n < cap; i++) {
    const Step *p = &sketch->step.at[i];
    if (p->kind != STEP_SP || p->n != 1 || !shares(sketch, i)) continue;
    bool column = p[1].a == AN_THREAD_Y, parts = i >= 2 && p[-1].kind == STEP_RF && p[-2].kind == STEP_SP;
    out[n++] = (PlanSum){.threads = i, .results = column ? i + 2 : -1, .parts = parts ? i - 2 : -1};
  }
  return n;
}

bool sums_shared_by(int n, const Step *steps) {
  for (int i = 0; i < n; i++)
    if (steps[i].kind == STEP_SP && plan_split_for(n, steps, i, AN_THREAD_Y)) return true;
  return false;
}

bool sums_of_parts(int n, const Step *steps) {
  int i = 0;
  while (i < n && steps[i].kind != STEP_RF) i++;
  return i < n && sums_shared_by(n - i, steps + i);
}

/* ---- sizes ---- */

enum { OPTIONS = 48 };

/* Divisors that leave a thread more than one term; of a rough number of terms powers of two. */
static int64_t draw_parts(const MakeEnv *m, Choice *c, int64_t n) {
  const int64_t *d;
  int64_t option[OPTIONS];
  double weight[OPTIONS];
  int nd = factor_divisors(m->factors, n, &d), k = 0;
  for (int i = 1; i < nd - 1 && k < OPTIONS; i++) option[k] = d[i], weight[k++] = d[i] < 8 ? 0.25 : 1;
  for (int64_t p = 8; k < 4 && 2 * p < n; p *= 2) option[k] = p, weight[k++] = 1;
  return k ? option[choose_weighted(c, k, weight)] : n;
}

static int64_t draw_results(const MakeEnv *m, Choice *c, int64_t extent, int64_t threads) {
  const int64_t *d;
  int64_t option[OPTIONS], most = m->task->target.hw.max_threads_per_block / threads;
  double weight[OPTIONS];
  int nd = factor_divisors(m->factors, extent, &d), k = 0;
  for (int i = 0; i < nd && d[i] <= most && k < OPTIONS; i++) option[k] = d[i], weight[k++] = d[i] < 4 ? 0.25 : 1;
  return k ? option[choose_weighted(c, k, weight)] : 1;
}

/* Powers of two, as many as there are terms at most; blocks of whole warps are drawn more often. */
static int64_t draw_threads(const MakeEnv *m, Choice *c, int64_t n, int64_t results) {
  const HwParams *hw = &m->task->target.hw;
  int64_t option[OPTIONS], most = hw->max_threads_per_block / results;
  double weight[OPTIONS];
  int k = 0;
  for (int64_t t = 1; t <= most && t < 2 * n && k < OPTIONS; t *= 2)
    option[k] = t, weight[k++] = t * results < hw->warp_size ? 0.05 : 1;
  return k ? option[choose_weighted(c, k, weight)] : 1;
}

static int64_t size_of(const Step *steps, int i) { return i < 0 ? 1 : steps[i].list[0]; }

bool sums_resize(const MakeEnv *m, Choice *c, const PlanSum *x, int step, Step *steps) {
  Step *p = &steps[step];
  int64_t n = x->parts < 0 ? steps[x->threads].extent : size_of(steps, x->parts), v;
  if (step == x->parts)
    v = draw_parts(m, c, p->extent);
  else if (step == x->results)
    v = draw_results(m, c, p->extent, size_of(steps, x->threads));
  else
    v = x->results < 0 ? construct_threads(m, c, n) : draw_threads(m, c, n, size_of(steps, x->results));
  if (v == p->list[0]) return false;
  p->list = arena_copy(ir_arena(m->ctx), &v, sizeof v);
  return true;
}

bool sums_sizes(const MakeEnv *m, Rng *r, const PlanSum *x, Step *steps) {
  static const int64_t ONE = 1;
  int order[] = {x->parts, x->results, x->threads};
  steps[x->threads].list = arena_copy(ir_arena(m->ctx), &ONE, sizeof ONE);
  for (int i = 0; i < NS_COUNT(order); i++) {
    if (order[i] < 0) continue;
    if (i < 2 && steps[order[i]].extent <= 0) return false;
    sums_resize(m, &(Choice){.rng = r}, x, order[i], steps);
  }
  return true;
}
