/* From a sketch to a complete program: the init rules.
 *
 * A sketch is drawn, its open sizes are filled with random factorizations, and the rest is decided rule by rule: where the
 * untiled stages are computed, which loops run in parallel, which are bound to GPU threads, how far code is unrolled and
 * what is vectorized. Rules look at extents, so bounds are inferred in between. A rule may refuse a candidate (for example
 * when a thread block would have fewer threads than a warp). Spec 03 §3.2 to §3.7.
 */
#include "search/space.h"
#include <stdio.h>
#include <string.h>

int sp_unroll_choices(const SearchTask *t, const int **out) {
  static const int CHOICE[] = {0, 16, 64, 512, 1024};
  *out = CHOICE;
  return t->gpu ? 5 : 4;
}

/* ---- sizes ---- */

static bool is_open(const Step *p) {
  for (int i = 0; i < p->n; i++)
    if (p->list[i] == SIZE_OPEN) return true;
  return false;
}

static bool fill_sizes(MakeEnv *m, Rng *r, Plan *plan, int n, Step *steps) {
  Arena *a = ir_arena(m->ctx);
  if (plan && !construct_sizes(m, r, plan, steps)) return false;
  for (int i = 0; i < n; i++) {
    Step *p = &steps[i];
    if (p->kind != STEP_SP || !is_open(p)) continue;
    if (p->extent <= 0) return false;
    p->list = arena_array(a, int64_t, p->n);
    factor_draw(m->factors, r, m->par->max_innermost_split_factor, p);
  }
  return true;
}

/* Steps that split the spatial axes of a tiled stage, last axis first: the splits of the reduction axes, which were made
 * last, are passed over. */
static int spatial_splits(const State *s, int stage, int64_t *out) {
  const TeOp *op = s->stage.at[stage].op;
  int all[MAX_LOOPS], red = 0, n = sp_steps_of(s, stage, STEP_SP, all, MAX_LOOPS);
  for (int i = 0; i < op->n_red; i++) red += !sp_names(s, stage, TE_NO_SPLIT, op->red[i].name);
  for (int i = red; i < n; i++) out[i - red] = all[i];
  return n > red ? n - red : 0;
}

/* What thread binding will refuse can be read off the sizes before anything is replayed. */
static Fit threads_fit(const MakeEnv *m, const State *sketch, const Step *steps) {
  for (int i = 0; i < sketch->stage.len; i++) {
    if (!pred_in_tile(sketch, i)) continue;
    int64_t ids[MAX_LOOPS], vthread = 1, thread = 1;
    int n = spatial_splits(sketch, i, ids);
    for (int k = 0; k < n; k++) {
      const Step *p = &steps[ids[k]];
      if (p->n < 3) return FIT_OK; /* another tiling structure */
      if (!i64_mul(vthread, p->list[0], &vthread) || !i64_mul(thread, p->list[1], &thread)) return FIT_VTHREAD;
    }
    GpuNeeds need = {.vthread = (double)vthread,
                     .threads = (double)thread,
                     .points = (double)sp_points(sketch, sketch->stage.at[i].at_stage)};
    Fit fit = gpu_fits(&m->task->target.hw, &need);
    if (fit != FIT_OK) return fit;
  }
  return FIT_OK;
}

/* ---- compute location (CPU) ---- */

int sp_locations(const State *s, int stage, int cap, int (*out)[2]) {
  int t = sp_single_consumer(s, stage), n = 0;
  if (t < 0) return 0;
  bool reduced = false, tiled = pred_is_tiled(s, t), attached = s->stage.at[t].at == AT_ITER;
  for (int i = 0; i < sp_loops(s, t); i++) {
    const Axis *x = sp_axis(s, t, i);
    if (x->kind == IT_REDUCE) {
      reduced = true;
      if (!tiled) break;
    } else if (x->kind == IT_SPACE && reduced)
      break;
    if (x->ann == AN_UNROLL) break;
    if (axis_extent(s, t, i) == 1) continue;
    if (attached && x->kind == IT_SPACE && sp_ends(x->name, ".0")) continue;
    if (n < cap) out[n][0] = t, out[n++][1] = i;
    if (attach_any(s, t, i)) break;
  }
  if (!attached) return n;
  int u = s->stage.at[t].at_stage;
  for (int i = 0; i < sp_loops(s, u); i++) {
    const Axis *x = sp_axis(s, u, i);
    if (x->kind == IT_REDUCE || attach_any(s, u, i) || x->ann == AN_UNROLL) break;
    if (axis_extent(s, u, i) == 1) continue;
    if (n < cap) out[n][0] = u, out[n++][1] = i;
  }
  return n;
}

static void choose_locations(MakeEnv *m, Rng *r, State *s) {
  if (m->par->disable_change_compute_location) return;
  for (int i = s->stage.len - 1; i >= 0; i--) {
    if (sp_placeholder(s, i) || s->stage.at[i].at == AT_INLINED || pred_is_tiled(s, i) || sp_needs_tiling(s, i))
      continue;
    int cand[MAX_LOOPS][2], n = sp_locations(s, i, MAX_LOOPS, cand), c = (int)rng_below(r, n + 2);
    if (c == 0) {
      if (!sp_has_reduce(s, i) && s->stage.at[i].at == AT_ITER && s->stage.at[i].attached.len == 0)
        state_compute_inline(s, i);
    } else if (c == 1)
      state_apply(s, (Step){.kind = STEP_CR, .stage = i});
    else
      state_compute_at(s, i, cand[c - 2][0], cand[c - 2][1]);
  }
}

/* ---- parallel (CPU) ---- */

static void fuse_range(State *s, int stage, int from, int n) {
  int64_t ids[MAX_LOOPS];
  for (int i = 0; i < n; i++) ids[i] = from + i;
  state_fuse(s, stage, n, ids);
}

static void make_parallel(const MakeEnv *m, State *s, int stage, int from) {
  int64_t degree = 1;
  int n = 0, i = from;
  for (; i < sp_loops(s, stage) && n < MAX_LOOPS; i++) {
    const Axis *x = sp_axis(s, stage, i);
    if (x->kind == IT_REDUCE || x->ann != AN_NONE) break;
    n++;
    if (!i64_mul(degree, axis_extent(s, stage, i), &degree)) break;
    if (degree > 16 * (int64_t)m->task->target.hw.num_cores || attach_any(s, stage, i)) break;
  }
  if (degree == 1 && i < sp_loops(s, stage) && attach_any(s, stage, i)) { /* only trivial loops so far: go on inside */
    const Stage *g = &s->stage.at[stage];
    int inside[MAX_LOOPS], k = 0;
    for (int j = 0; j < g->attached.len && k < MAX_LOOPS; j++)
      if (attach_leaf(g->attached.at[j]) == i) inside[k++] = attach_stage(g->attached.at[j]);
    for (int j = 0; j < k; j++) make_parallel(m, s, inside[j], 0);
    make_parallel(m, s, stage, i + 1);
  }
  if (n == 0) return;
  if (n > 1) fuse_range(s, stage, from, n);
  state_annotate(s, stage, from, AN_PARALLEL);
}

bool sp_nested_parallel(const State *s) {
  for (int i = 0; i < s->stage.len; i++) {
    int st = i, hops = 0;
    bool own = false, outer = false;
    for (int k = 0; k < sp_loops(s, i); k++) {
      bool p = sp_axis(s, i, k)->ann == AN_PARALLEL;
      if (p && own) return true;
      own |= p;
    }
    if (!own || s->stage.at[i].at == AT_INLINED) continue;
    while (s->stage.at[st].at == AT_ITER && hops++ < s->stage.len) {
      int u = s->stage.at[st].at_stage;
      for (int k = 0; k <= s->stage.at[st].at_iter && k < sp_loops(s, u); k++)
        outer |= sp_axis(s, u, k)->ann == AN_PARALLEL;
      st = u;
    }
    if (outer) return true;
  }
  return false;
}

/* ---- unroll ---- */

static void unroll_inner(State *s, int stage) {
  static const char KEY[] = "auto_scheduler_always_unroll_inner";
  if (!sp_has_attr(s, stage, KEY)) return;
  Arena *a = ir_arena(s->ctx);
  const char *seen[MAX_LOOPS];
  int n = 0;
  for (int i = sp_loops(s, stage) - 1; i >= 0; i--) {
    const char *own[MAX_LOOPS];
    int m = loop_names(a, sp_axis(s, stage, i)->name, 0, own, MAX_LOOPS), before = n;
    n = loop_names(a, sp_axis(s, stage, i)->name, n, seen, MAX_LOOPS);
    if (n == before) break; /* a second loop of the same axis: outside the innermost tile */
    if (m == 1 && sp_axis(s, stage, i)->ann == AN_NONE && sp_names(s, stage, KEY, own[0]))
      state_annotate(s, stage, i, AN_UNROLL);
  }
}

static void unroll(MakeEnv *m, Rng *r, State *s) {
  const int *choice;
  int n = sp_unroll_choices(m->task, &choice);
  for (int i = 0; i < s->stage.len; i++) {
    if (sp_placeholder(s, i) || s->stage.at[i].at == AT_INLINED || pred_in_product(s, i)) continue;
    unroll_inner(s, i);
    if (!sp_has_reduce(s, i)) continue;
    const char *text = arena_printf(ir_arena(s->ctx), "auto_unroll_max_step$%d", choice[rng_below(r, n)]);
    state_apply(s, (Step){.kind = STEP_PR, .stage = i, .text = text});
  }
}

/* ---- vectorize (CPU, Mali) ---- */

static void vectorize(MakeEnv *m, Rng *r, State *s) {
  for (int i = 0; i < s->stage.len; i++) {
    if (sp_placeholder(s, i) || s->stage.at[i].at == AT_INLINED) continue;
    int n = 0, loops = sp_loops(s, i);
    int64_t lanes = 1;
    for (; n < loops; n++) {
      int k = loops - 1 - n;
      const Axis *x = sp_axis(s, i, k);
      if (attach_any(s, i, k) || x->kind == IT_REDUCE || x->ann != AN_NONE || (pred_is_tiled(s, i) && n > 0)) break;
      if (!i64_mul(lanes, axis_extent(s, i, k), &lanes) || lanes > m->par->max_vectorize_size) break;
    }
    if (n > 1) n = 1 + (int)rng_below(r, n - 1);
    if (n > 1) fuse_range(s, i, loops - n, n);
    if (n > 0) state_annotate(s, i, loops - n, AN_VECTORIZE);
  }
}

/* ---- thread binding (GPU) ---- */

/* Fuses the outer loops up to a reduction, an annotation or a loop whose outer neighbour carries a stage. The result is
 * loop 0; a stage without such loops gets a new loop of extent 1. */
static void fuse_outer(State *s, int stage) {
  int n = 0;
  for (; n < sp_loops(s, stage) && n < MAX_LOOPS; n++) {
    const Axis *x = sp_axis(s, stage, n);
    if (x->kind == IT_REDUCE || x->ann != AN_NONE || (n > 0 && attach_any(s, stage, n - 1))) break;
  }
  if (n != 1) fuse_range(s, stage, 0, n);
}

/* Fuses the loops of one tile level that start at loop `at` and binds the result. */
static const char *bind_level(State *s, int stage, int at, const char *tail, Annotation ann, int64_t least,
                              int64_t most) {
  int n = 0, n_axis = s->stage.at[stage].op->n_axis;
  while (n < n_axis && at + n < sp_loops(s, stage) && sp_ends(sp_axis(s, stage, at + n)->name, tail)) n++;
  if (n == 0) return "tile levels";
  fuse_range(s, stage, at, n);
  int64_t ext = axis_extent(s, stage, at);
  if (ext < least) return fit_text(FIT_FEW_THREADS);
  if (ext > most) return fit_text(FIT_VTHREAD);
  state_annotate(s, stage, at, ann);
  return NULL;
}

static const char *bind_tiled_root(const MakeEnv *m, State *s, int stage) {
  const HwParams *hw = &m->task->target.hw;
  int64_t least = sp_points(s, stage) > 2 * (int64_t)hw->warp_size ? hw->warp_size : 0;
  const char *why = bind_level(s, stage, 0, ".0", AN_BLOCK_X, 0, INT64_MAX);
  if (!why) why = bind_level(s, stage, 1, ".1", AN_VTHREAD, 0, hw->max_vthread_extent);
  if (!why) why = bind_level(s, stage, 2, ".2", AN_THREAD_X, least, INT64_MAX);
  return why;
}

static void bind_plain_root(const MakeEnv *m, Rng *r, const Plan *plan, State *s, int stage) {
  int64_t threads = m->task->target.hw.warp_size;
  fuse_outer(s, stage);
  int64_t ext = axis_extent(s, stage, 0);
  if (ext <= threads) {
    state_annotate(s, stage, 0, AN_THREAD_X);
    return;
  }
  if (plan && ext > 0) threads = construct_threads(m, &(Choice){.rng = r}, ext);
  state_split(s, stage, 0, 1, &threads, true);
  state_annotate(s, stage, 0, AN_BLOCK_X);
  state_annotate(s, stage, 1, AN_THREAD_X);
}

/* All threads of a block fill the shared tile together: fuse everything, split off a vector loop (of 1 in
 * compatible mode, to be mutated) and then as many threads as the block has. */
static void bind_shared(State *s, int stage, int64_t vector) {
  int64_t ids[MAX_LOOPS];
  int n = spatial_splits(s, s->stage.at[stage].at_stage, ids);
  fuse_range(s, stage, 0, sp_loops(s, stage));
  state_split(s, stage, 0, 1, &vector, true);
  state_annotate(s, stage, 1, AN_VECTORIZE);
  state_apply(s, (Step){.kind = STEP_FFSP, .stage = stage, .n = n, .list = ids, .a = 1, .flag = true});
  state_annotate(s, stage, 1, AN_THREAD_X);
}

/* Extended mode: a width that the rows of the tile allow. */
static int64_t vector_width(const MakeEnv *m, Rng *r, const Plan *plan, const State *s, int stage) {
  const PlanKernel *k;
  const PlanTile *t = plan_tile_of(plan, stage, &k);
  return t ? construct_vector(m, &(Choice){.rng = r}, plan_row(k, t, s->step.at), t->bytes) : 1;
}

static const char *bind_threads(const MakeEnv *m, Rng *r, const Plan *plan, State *s) {
  bool *root = arena_array(ir_arena(s->ctx), bool, s->stage.len);
  for (int i = 0; i < s->stage.len; i++) {
    if (!sp_needs_tiling(s, i) || s->stage.at[i].at == AT_INLINED || s->stage.at[i].matrix) continue;
    if (s->stage.at[i].at == AT_ITER)
      root[s->stage.at[i].at_stage] = true;
    else if (!pred_cross_thread(s, i))
      return "untiled root";
  }
  state_infer_bounds(s);
  for (int i = s->stage.len - 1; i >= 0; i--) {
    const Stage *g = &s->stage.at[i];
    if (sp_placeholder(s, i) || g->at == AT_INLINED || g->matrix) continue;
    if (pred_cross_thread(s, i)) {
      if (g->at != AT_ROOT) continue;
      fuse_outer(s, i);
      state_annotate(s, i, 0, AN_BLOCK_X);
    } else if (sp_loop_as(s, i, AN_THREAD_X) >= 0)
      continue;
    else if (g->at == AT_ROOT && !root[i])
      bind_plain_root(m, r, plan, s, i);
    else if (g->at == AT_ROOT) {
      const char *why = bind_tiled_root(m, s, i);
      if (why) return why;
    } else if (sp_ends(g->op->name, ".shared"))
      bind_shared(s, i, vector_width(m, r, plan, s, i));
  }
  return NULL;
}

/* ---- double buffers (GPU, extended mode) ---- */

static void double_buffers(const Plan *plan, State *s) {
  for (int i = 0; i < plan->n_kernel; i++)
    for (int t = 0; t < plan->kernel[i].n_tile; t++)
      state_apply(s, (Step){.kind = STEP_DB, .stage = plan->kernel[i].tile[t].stage});
}

/* ---- all together ---- */

State *populate(MakeEnv *m, Rng *r, const char **why) {
  const SearchTask *t = m->task;
  Arena *a = ir_arena(m->ctx);
  int64_t at = rng_below(r, m->n_sketch);
  const State *sketch = m->sketch[at];
  const TensorPlan *product = m->tensor ? m->tensor[at] : NULL;
  Plan *plan = m->plan ? m->plan[at] : NULL;
  int n = sketch->step.len;
  Step *steps = sp_steps_copy(a, n, sketch->step.at, false);
  *why = "tiles of a product";
  if (product && !tensor_sizes(m, r, product, &steps[tensor_step(n, steps)])) return NULL;
  if (product && product->whole) return *why = NULL, state_replay_like(m->ctx, t->dag, n, steps, sketch);
  double twice = m->par->double_buffer_prob;
  bool doubled = plan && twice > 0 && rng_unit(r) < twice;
  for (int i = 0; plan && i < plan->n_kernel; i++) plan->kernel[i].copies = doubled ? 2 : 1;
  *why = "unknown extent";
  if (!fill_sizes(m, r, plan, n, steps)) return NULL;
  State *s;
  if (t->gpu) {
    *why = t->target.mali ? NULL : fit_text(threads_fit(m, sketch, steps));
    if (*why) return NULL;
    s = state_replay_like(m->ctx, t->dag, n, steps, sketch);
    *why = bind_threads(m, r, plan, s);
    if (*why) return NULL;
    if (doubled) double_buffers(plan, s);
  } else {
    s = state_copy(m->ctx, sketch);
    for (int i = 0; i < n; i++) s->step.at[i] = steps[i];
    choose_locations(m, r, s);
    s = state_replay_like(m->ctx, t->dag, s->step.len, s->step.at, sketch);
    state_infer_bounds(s);
    for (int i = 0; i < s->stage.len; i++)
      if (!sp_placeholder(s, i) && s->stage.at[i].at == AT_ROOT) make_parallel(m, s, i, 0);
  }
  unroll(m, r, s);
  if (!t->gpu || t->target.mali) vectorize(m, r, s);
  return s;
}
