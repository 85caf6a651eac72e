/* Sketches: loop structures whose tile sizes are still open.
 *
 * The derivation starts with the untouched state and works from the last stage to the first. At each stage the rules of
 * the target are asked in order; each that applies gives new states and the next position to look at. A rule that
 * "stops" keeps later rules from being asked. The walk is breadth first, so a branch that needs one more step ends later
 * in the result; that order is part of the contract. Nothing is removed and nothing is random. Spec 03 §2.
 */
#include "search/space.h"
#include <string.h>

typedef enum { PASS, APPLY, APPLY_AND_STOP } Verdict;
typedef struct {
  State *s;
  int pos;
} Work;
typedef struct {
  const SketchEnv *env;
  IrCtx *ctx;
  Arena *a; /* of the context */
  VEC(Work) next;
} Derive;
typedef struct {
  const char *name;
  Verdict (*check)(Derive *d, const State *s, int stage);
  void (*apply)(Derive *d, State *s, int stage); /* s is its own */
  enum { FOR_CPU = 1, FOR_GPU, FOR_BOTH } of;    /* CPU: Mali too */
} Rule;

static void emit(Derive *d, State *s, int pos) {
  Work w = {s, pos};
  vec_push(d->a, &d->next, w);
}
static State *copy(Derive *d, const State *s) { return state_copy(d->ctx, s); }
static bool is_gpu(const Derive *d) { return d->env->task->gpu; }
static const HwParams *hw(const Derive *d) { return &d->env->task->target.hw; }

/* ---- always inline, skip ---- */

static bool inlinable(const Derive *d, const State *s, int stage) {
  return !sp_placeholder(s, stage) && !sp_is_output(s, stage) && !sp_has_reduce(s, stage) && !sp_large(s, stage) &&
         (is_gpu(d) || sp_strictly_inlinable(s, stage));
}
static Verdict inline_check(Derive *d, const State *s, int stage) {
  return inlinable(d, s, stage) ? APPLY_AND_STOP : PASS;
}
static void inline_apply(Derive *d, State *s, int stage) {
  state_compute_inline(s, stage);
  emit(d, s, stage - 1);
}
static Verdict skip_check(Derive *d NS_UNUSED, const State *s NS_UNUSED, int stage NS_UNUSED) { return APPLY; }
static void skip_apply(Derive *d, State *s, int stage) { emit(d, s, stage - 1); }

/* ---- multi-level tiling ---- */

enum { MAX_LEVELS = 16 };
typedef struct {
  int n, iter[MAX_LOOPS];
} Group;

static const char *structure(const Derive *d) {
  return is_gpu(d) ? d->env->par->gpu_structure : d->env->par->cpu_structure;
}
static bool is_space_letter(char c) { return c == 'S' || c == 's'; }

static void group_add(Derive *d, Group *g, int iter) {
  err_check(ir_err(d->ctx), g->n < MAX_LOOPS, "a stage has more than %d loops; tiling does not handle so many",
            MAX_LOOPS);
  g->iter[g->n++] = iter;
}

static void group_put(int64_t *order, int *n, const Group *g) {
  for (int i = 0; i < g->n; i++) order[(*n)++] = g->iter[i];
}

/* Splits every loop of the stage into the levels of its kind and interleaves the levels as the structure says. Returns the
 * numbers of the spatial split steps in splits. */
static int tile(Derive *d, State *s, int stage, int64_t *splits) {
  Err *e = ir_err(d->ctx);
  const char *fmt = structure(d);
  int n_level[2] = {0, 0};
  for (const char *p = fmt; *p; p++) {
    err_check(e, strchr("SsRr", *p) != NULL, "tiling structure \"%s\": letters are S and R", fmt);
    n_level[is_space_letter(*p) ? 0 : 1]++;
  }
  err_check(e, n_level[0] > 0 && n_level[0] <= MAX_LEVELS && n_level[1] > 0 && n_level[1] <= MAX_LEVELS,
            "tiling structure \"%s\": needs 1 to %d letters S and R each", fmt, MAX_LEVELS);
  Group *level[2] = {arena_array(d->a, Group, MAX_LEVELS), arena_array(d->a, Group, MAX_LEVELS)};
  Group *kept = arena_array(d->a, Group, 2);
  int n_split = 0, at = 0, loops = sp_loops(s, stage);
  int64_t open[MAX_LEVELS];
  for (int i = 0; i < MAX_LEVELS; i++) open[i] = SIZE_OPEN;
  for (int i = 0; i < loops; i++) {
    const Axis *x = sp_axis(s, stage, at);
    int kind = x->kind == IT_SPACE ? 0 : 1, parts = n_level[kind];
    if (sp_names(s, stage, TE_NO_SPLIT, x->name)) {
      group_add(d, &kept[kind], at++);
      continue;
    }
    if (parts > 1) {
      if (kind == 0) splits[n_split++] = s->step.len;
      state_split(s, stage, at, parts - 1, open, true);
    }
    for (int k = 0; k < parts; k++) group_add(d, &level[kind][k], at++);
  }
  int64_t order[4 * MAX_LOOPS];
  int n = 0, seen[2] = {0, 0};
  for (const char *p = fmt; *p; p++) {
    int kind = is_space_letter(*p) ? 0 : 1;
    if (seen[kind] == n_level[kind] - 1) group_put(order, &n, &kept[kind]);
    group_put(order, &n, &level[kind][seen[kind]++]);
  }
  state_reorder(s, stage, n, order);
  return n_split;
}

static Verdict tile_check(Derive *d NS_UNUSED, const State *s, int stage) {
  return sp_needs_tiling(s, stage) ? APPLY_AND_STOP : PASS;
}
static void tile_apply(Derive *d, State *s, int stage) {
  int64_t splits[MAX_LOOPS];
  tile(d, s, stage, splits);
  emit(d, s, stage - 1);
}

/* ---- tiling with fusion into the consumer ---- */

/* Splits the loops of stage t like the first `level` levels of the tiled stage. */
static void follow_tiling(Derive *d, State *s, int t, const int64_t *splits, int level) {
  Group *part = arena_array(d->a, Group, MAX_LEVELS + 1), *kept = arena_array(d->a, Group, 1);
  int at = 0, loops = sp_loops(s, t), k = 0;
  for (int i = 0; i < loops; i++) {
    const Axis *x = sp_axis(s, t, at);
    if (sp_names(s, t, TE_NO_SPLIT, x->name)) {
      group_add(d, kept, at++);
      continue;
    }
    Annotation ann = (Annotation)x->ann;
    state_apply(s, (Step){.kind = STEP_FSP, .stage = t, .iter = at, .a = (int)splits[k++], .b = level});
    if (ann == AN_UNROLL || ann == AN_VECTORIZE) state_annotate(s, t, at + level, ann);
    if (ann == AN_PARALLEL) state_annotate(s, t, at, ann);
    for (int p = 0; p <= level; p++) group_add(d, &part[p], at++);
  }
  int64_t order[4 * MAX_LOOPS];
  int n = 0;
  for (int p = 0; p <= level; p++) group_put(order, &n, &part[p]);
  group_put(order, &n, kept);
  state_reorder(s, t, n, order);
}

/* Loops of the stage that tiling would split: those not kept whole by the attribute. */
static int splittable(const State *s, int stage, bool space) {
  int n = 0;
  for (int i = 0; i < sp_loops(s, stage); i++) {
    const Axis *x = sp_axis(s, stage, i);
    n += (x->kind == IT_SPACE) == space && !sp_names(s, stage, TE_NO_SPLIT, x->name);
  }
  return n;
}

/* The consumer must be a plain loop nest with as many loops as the stage has spatial splits, in which nothing is computed yet. */
static int fuse_target(const Derive *d, const State *s, int stage) {
  int t = sp_matched_consumer(s, stage, d->env->par->extended);
  if (t < 0 || s->stage.at[t].attached.len > 0 || sp_has_reduce(s, t) ||
      splittable(s, t, true) != splittable(s, stage, true))
    return -1;
  return t;
}
static Verdict fuse_check(Derive *d, const State *s, int stage) {
  if (!sp_needs_tiling(s, stage) || fuse_target(d, s, stage) < 0) return PASS;
  return is_gpu(d) || pred_has_step(s, stage, STEP_CHW) ? APPLY_AND_STOP : APPLY;
}
static void fuse_apply(Derive *d, State *base, int stage) {
  static const int CPU[] = {1, 2}, GPU[] = {3};
  const int *levels = is_gpu(d) ? GPU : CPU;
  int n_levels = is_gpu(d) ? 1 : 2, t = fuse_target(d, base, stage);
  int64_t splits[MAX_LOOPS];
  int n_split = tile(d, base, stage, splits);
  for (int i = 0; i < n_levels; i++) {
    const char *fmt = structure(d);
    if ((int)strlen(fmt) < levels[i] || !is_space_letter(fmt[levels[i] - 1])) continue;
    State *n = copy(d, base);
    follow_tiling(d, n, t, splits, levels[i]);
    state_compute_at(n, stage, t, levels[i] * n_split - 1);
    emit(d, n, stage - 1);
  }
}

/* ---- cache write ---- */

static Verdict cwrite_check(Derive *d, const State *s, int stage) {
  /* The reference asks whether a reader matches, even if it cannot be fused with because another sum leads its loops. */
  bool fuses = d->env->par->extended ? fuse_target(d, s, stage) >= 0 : sp_matched_consumer(s, stage, false) >= 0;
  if (!sp_needs_tiling(s, stage) || fuses) return PASS;
  return is_gpu(d) ? APPLY_AND_STOP : APPLY;
}
static void cwrite_apply(Derive *d, State *s, int stage) {
  state_apply(s, (Step){.kind = STEP_CHW, .stage = stage, .text = "local"});
  emit(d, s, stage);
}

/* ---- an expansion and the windows that read it (CPU, extended mode) ---- */

static Verdict chain_check(Derive *d, const State *s, int stage) {
  bool ends = d->env->par->extended && !is_gpu(d) && chain_ends(s, stage);
  return ends || chain_begins(d->env, s, stage) ? APPLY_AND_STOP : PASS;
}
static void chain_apply(Derive *d, State *s, int stage) {
  if (chain_ends(s, stage))
    chain_end(s, stage);
  else
    chain_begin(s, stage);
  emit(d, s, stage - 1);
}

/* ---- constant-tensor stages (Winograd transforms) ---- */

static Verdict const_check(Derive *d NS_UNUSED, const State *s, int stage) {
  return sp_has_attr(s, stage, TE_CONST_AXES) ? APPLY_AND_STOP : PASS;
}
static void const_apply(Derive *d, State *s, int stage) {
  Group *g = arena_array(d->a, Group, 3); /* outer parts, inner parts, unrolled */
  int at = 0, loops = sp_loops(s, stage);
  const int64_t open = SIZE_OPEN;
  for (int i = 0; i < loops; i++) {
    const Axis *x = sp_axis(s, stage, at);
    if (sp_names(s, stage, TE_CONST_AXES, x->name)) {
      state_annotate(s, stage, at, AN_UNROLL);
      group_add(d, &g[2], at++);
    } else {
      err_check(ir_err(d->ctx), x->kind == IT_SPACE, "operation %s: reduction axis %s must be listed in %s",
                s->stage.at[stage].op->name, x->name, TE_CONST_AXES);
      state_split(s, stage, at, 1, &open, true);
      group_add(d, &g[0], at++);
      group_add(d, &g[1], at++);
    }
  }
  int64_t order[3 * MAX_LOOPS];
  int n = 0;
  for (int k = 0; k < 3; k++) group_put(order, &n, &g[k]);
  state_reorder(s, stage, n, order);
  emit(d, s, stage - 1);
}

/* ---- a Winograd layer's last transform in the kernel that reads it (GPU, extended mode) ---- */

static Verdict inverse_check(Derive *d, const State *s, int stage) {
  return inverse_fits(d->env, s, stage) ? APPLY_AND_STOP : PASS;
}
static void inverse_apply(Derive *d, State *s, int stage) {
  inverse_fuse(s, stage);
  emit(d, s, stage - 1);
}

/* ---- reductions: rfactor (CPU, Mali) and cross-thread reduction (GPU) ---- */

static Verdict rfactor_check(Derive *d, const State *s, int stage) {
  if (sp_placeholder(s, stage) || s->stage.at[stage].op->n_out != 1 || pred_has_step(s, stage, STEP_CHW)) return PASS;
  int64_t space = sp_len(s, stage, IT_SPACE), red = sp_len(s, stage, IT_REDUCE), cores = hw(d)->num_cores;
  if (!sp_has_reduce(s, stage)) return PASS;
  bool ok = sp_needs_tiling(s, stage) ? space <= red && space <= 16 * cores : red > 1 && red > cores;
  return ok ? APPLY : PASS;
}

static void rfactor_apply(Derive *d, State *base, int stage) {
  int n_space = base->stage.at[stage].op->n_axis;
  int r = sums_fuse(base, stage);
  const int64_t one = 1;
  state_split(base, stage, r, 1, &one, true);
  for (int inner = 0; inner <= 1; inner++) {
    State *s = copy(d, base);
    Step st = {.kind = STEP_RF, .stage = stage, .iter = r + inner, .a = n_space};
    state_apply(s, st);
    if (inner) { /* the new spatial axis becomes the innermost loop, to be vectorized */
      int64_t order[MAX_LOOPS];
      int n = 0, loops = sp_loops(s, stage);
      for (int i = 0; i < loops && n < MAX_LOOPS - 1; i++)
        if (i != n_space) order[n++] = i;
      order[n++] = n_space;
      state_reorder(s, stage, n, order);
    }
    emit(d, s, stage - 1);
  }
}

/* Whether every element of some operand is read once: the product of a matrix and a vector. It takes as long as the matrix
 * takes to arrive, and no tile in shared memory makes that shorter. */
static bool reads_once(const State *s, int stage, int64_t points) {
  const TeOp *op = s->stage.at[stage].op;
  for (int i = 0; i < op->n_in; i++)
    if (te_bytes(s->ctx, op->in[i]) / dtype_bytes(ir_tensor(s->ctx, op->in[i])->type) >= points) return true;
  return false;
}

static bool matrix_by_vector(Derive *d, const State *s, int stage) {
  int64_t points, space = sp_len(s, stage, IT_SPACE), red = sp_len(s, stage, IT_REDUCE);
  return d->env->par->extended && d->env->par->thread_sums && sp_needs_tiling(s, stage) && red > hw(d)->warp_size &&
         i64_mul(space, red, &points) && reads_once(s, stage, points);
}

static Verdict xthread_check(Derive *d, const State *s, int stage) {
  if (sp_placeholder(s, stage) || pred_has_step(s, stage, STEP_CHW)) return PASS;
  if (matrix_by_vector(d, s, stage)) return APPLY;
  int64_t space = sp_len(s, stage, IT_SPACE), red = sp_len(s, stage, IT_REDUCE);
  bool ok = sp_needs_tiling(s, stage) ? space <= hw(d)->max_threads_per_block && space < red
                                      : red > 1 && red > hw(d)->warp_size;
  return ok ? APPLY : PASS;
}

static void xthread_apply(Derive *d, State *s, int stage) {
  int t = sp_single_consumer(s, stage), common = t >= 0 ? te_common_outer(s->dag, stage, t) : 0, src = -1;
  /* Beside its reader a matrix times a vector would have the block compute as many elements as it has threads; a reader that has
   * joined another sum has blocks of other threads. */
  bool alone = matrix_by_vector(d, s, stage) || (d->env->par->extended && t >= 0 && sums_joined_by(s, t));
  int f = sums_fuse(s, stage);
  const int64_t warp = hw(d)->warp_size;
  if (t >= 0 && common > 0 && !sp_needs_tiling(s, t) && !alone) {
    int at[2], n = sp_steps_of(s, t, STEP_SP, at, 2);
    if (n == 1)
      src = at[0];
    else if (n == 0 && !sp_has_reduce(s, t) &&
             sp_loops(s, t) > 0) { /* a plain loop nest: give it the thread loop to follow */
      src = s->step.len;
      int last = sp_loops(s, t) - 1;
      state_split(s, t, last, 1, &warp, true);
      state_annotate(s, t, last + 1, AN_THREAD_X);
    }
  }
  if (src >= 0)
    state_apply(s, (Step){.kind = STEP_FSP, .stage = stage, .iter = f, .a = src, .b = 1});
  else
    state_split(s, stage, f, 1, &warp, true);
  state_annotate(s, stage, f + 1, AN_THREAD_X);
  if (src >= 0) state_compute_at(s, stage, t, common - 1);
  emit(d, s, stage - 1);
}

/* ---- sums of many elements into few results (GPU, extended mode) ---- */

static Verdict shared_check(Derive *d, const State *s, int stage) {
  return sums_shared(d->env, s, stage) ? APPLY : PASS;
}
static void shared_apply(Derive *d, State *s, int stage) {
  sums_share(s, stage);
  emit(d, s, stage - 1);
}
static Verdict parts_check(Derive *d, const State *s, int stage) {
  return sums_in_parts(d->env, s, stage) ? APPLY : PASS;
}
static void parts_apply(Derive *d, State *s, int stage) {
  sums_part(s, stage);
  emit(d, s, stage - 1);
}

/* ---- one of several kernels as a product by one step (GPU, extended mode) ---- */

/* Between Winograd's transforms loops are not asked for besides: in 90 layers on an H100 they were 1.3 to 5.7 times slower. */
static Verdict product_check(Derive *d, const State *s, int stage) {
  if (sp_placeholder(s, stage) || !tensor_stage(d->env, copy(d, s), stage)) return PASS;
  int t = sp_single_consumer(s, stage);
  return t >= 0 && sp_has_attr(s, t, TE_CONST_AXES) && s->stage.at[t].at == AT_ITER ? APPLY_AND_STOP : APPLY;
}
static void product_apply(Derive *d, State *base, int stage) {
  for (Family by = FAMILY_LANES; by <= FAMILY_WARPGROUPS; by++) {
    State *s = copy(d, base);
    if (tensor_stage_by(d->env, s, stage, by)) emit(d, s, stage - 1);
  }
}

/* ---- cache read into shared memory (GPU) ---- */

/* The last loop of the first reduction level: where all splittable reduction axes have been seen. */
static int shared_position(Derive *d, const State *s, int stage) {
  const TeOp *op = s->stage.at[stage].op;
  int n_red = 0, n = 0;
  for (int i = 0; i < op->n_red; i++) n_red += !sp_names(s, stage, TE_NO_SPLIT, op->red[i].name);
  const char *seen[MAX_LOOPS];
  for (int i = 0; i < sp_loops(s, stage); i++) {
    const Axis *x = sp_axis(s, stage, i);
    if (x->kind != IT_REDUCE) continue;
    if (n_red == 0) return i;
    n = loop_names(d->a, x->name, n, seen, MAX_LOOPS);
    if (n == n_red) return i;
  }
  return -1;
}

static Verdict cread_check(Derive *d, const State *s, int stage) {
  int c[MAX_LOOPS], n = pred_consumers(s, stage, c, MAX_LOOPS);
  if (n == 0) return PASS;
  for (int i = 0; i < n; i++)
    if (!sp_needs_tiling(s, c[i]) || pred_cross_thread(s, c[i]) || pred_has_step(s, c[i], STEP_MM) ||
        !sp_direct_producer(s, stage, c[i]) || shared_position(d, s, c[i]) < 0)
      return PASS;
  return APPLY_AND_STOP;
}
static void cread_apply(Derive *d, State *s, int stage) {
  int c[MAX_LOOPS], n = pred_consumers(s, stage, c, MAX_LOOPS);
  for (int i = 0; i < n; i++) {
    int64_t reader = c[i] + i; /* every cache inserted before shifted the readers by one */
    int added = state_cache_read(s, stage, "shared", 1, &reader);
    int target = (int)reader + 1;
    state_compute_at(s, added, target, shared_position(d, s, target));
  }
  emit(d, s, stage);
}

/* ---- a Winograd stage's producer goes outside its unrolled loops (GPU) ---- */

static Verdict special_check(Derive *d, const State *s, int stage) {
  int c[2];
  if (pred_producers(s, stage, c, 1) == 0 || !inlinable(d, s, stage)) return PASS;
  if (pred_consumers(s, stage, c, 2) != 1 || !sp_has_attr(s, c[0], TE_CONST_AXES)) return PASS;
  return sp_loop_as(s, c[0], AN_UNROLL) > 0 ? APPLY_AND_STOP : PASS;
}
static void special_apply(Derive *d, State *s, int stage) {
  int c[1];
  pred_consumers(s, stage, c, 1);
  state_compute_at(s, stage, c[0], sp_loop_as(s, c[0], AN_UNROLL) - 1);
  emit(d, s, stage - 1);
}

/* ---- the loop over positions ---- */

static const Rule RULES[] = {{"add cache read", cread_check, cread_apply, FOR_GPU},
                             {"special compute location", special_check, special_apply, FOR_GPU},
                             {"always inline", inline_check, inline_apply, FOR_BOTH},
                             {"last transform where it is read", inverse_check, inverse_apply, FOR_GPU},
                             {"simplify with constant tensor", const_check, const_apply, FOR_BOTH},
                             {"expansion and windows", chain_check, chain_apply, FOR_CPU},
                             {"add rfactor", rfactor_check, rfactor_apply, FOR_CPU},
                             {"cross-thread reduction", xthread_check, xthread_apply, FOR_GPU},
                             {"sums that a block shares", shared_check, shared_apply, FOR_GPU},
                             {"sums in parts", parts_check, parts_apply, FOR_GPU},
                             {"product by one step", product_check, product_apply, FOR_GPU},
                             {"add cache write", cwrite_check, cwrite_apply, FOR_BOTH},
                             {"multi-level tiling with fusion", fuse_check, fuse_apply, FOR_BOTH},
                             {"multi-level tiling", tile_check, tile_apply, FOR_BOTH},
                             {"skip stage", skip_check, skip_apply, FOR_BOTH}};

/* Rules for a whole task of one product: each gives a sketch in which one step makes the kernel, behind those of the table above. */
typedef struct {
  const char *name;
  Family by;
  bool apart; /* a change of an input's layout is a kernel before it */
} TaskRule;
static const TaskRule TASK_RULES[] = {{"product by lanes", FAMILY_LANES, false},
                                      {"product by lanes of an input in another layout", FAMILY_LANES, true},
                                      {"product by warps", FAMILY_WARPS, false},
                                      {"product by warps of an input in another layout", FAMILY_WARPS, true},
                                      {"product by warpgroups", FAMILY_WARPGROUPS, false},
                                      {"product by warpgroups of an input in another layout", FAMILY_WARPGROUPS, true}};

static bool custom_rules(Derive *d, const State *s, int stage) {
  for (int i = 0; i < d->env->n_rules; i++) {
    const CustomRule *r = &d->env->rules[i];
    int v = r->check(r->self, d->a, s, stage);
    if (v == PASS) continue;
    RuleOut out = {0};
    r->apply(r->self, d->a, s, stage, &out);
    for (int k = 0; k < out.len; k++)
      emit(d, sketch_replay(d->ctx, d->env->task->dag, out.at[k].n, out.at[k].step), out.at[k].pos);
    if (v != APPLY) return true;
  }
  return false;
}

/* A split made only to be factored was given size 1 so that it could be replayed; now its size becomes open too. */
static void reopen_rfactor_splits(StateList *l) {
  for (int i = 0; i < l->len; i++)
    for (int k = 1; k < l->at[i].n; k++) {
      Step *sp = &l->at[i].step[k - 1];
      if (l->at[i].step[k].kind == STEP_RF && sp->kind == STEP_SP)
        for (int j = 0; j < sp->n; j++) sp->list[j] = SIZE_OPEN;
    }
}

State *sketch_replay(IrCtx *c, const TeDag *d, int n, const Step *steps) {
  Arena *a = ir_arena(c);
  Step *own = sp_steps_copy(a, n, steps, true);
  bool *open = arena_array(a, bool, n);
  for (int k = 1; k < n; k++) {
    Step *sp = &own[k - 1];
    if (own[k].kind != STEP_RF || sp->kind != STEP_SP) continue;
    for (int j = 0; j < sp->n; j++)
      if (sp->list[j] == SIZE_OPEN) sp->list[j] = 1, open[k - 1] = true;
  }
  State *s = state_replay(c, d, n, own);
  for (int k = 0; k < n; k++) {
    if (!open[k]) continue;
    Step *sp = &s->step.at[k];
    sp->list = arena_array(a, int64_t, sp->n);
    for (int j = 0; j < sp->n; j++) sp->list[j] = SIZE_OPEN;
    s->concrete = false;
  }
  return s;
}

StateList sketch_derive(const SketchEnv *env, IrCtx *c, Arena *a) {
  Derive d = {.env = env, .ctx = c, .a = ir_arena(c)};
  const SearchTask *t = env->task;
  bool full_gpu = t->gpu && !t->target.mali;
  int of = full_gpu ? FOR_GPU : FOR_CPU;
  StateList out = {0};
  State *init = state_init(c, t->dag);
  VEC(Work) layer = {0};
  Work first = {init, init->stage.len - 1};
  vec_push(d.a, &layer, first);
  while (layer.len > 0) {
    d.next.at = NULL, d.next.len = d.next.cap = 0;
    for (int i = 0; i < layer.len; i++) {
      Work w = layer.at[i];
      if (w.pos < 0) {
        sp_list_add(a, &out, w.s->step.len, w.s->step.at, 0);
        continue;
      }
      if (w.pos >= w.s->stage.len)
        err_raise(ir_err(c), NS_ERR_RUNTIME, "a custom sketch rule returned position %d; the state has %d stages",
                  w.pos, w.s->stage.len);
      if (custom_rules(&d, w.s, w.pos)) continue;
      for (int k = 0; k < NS_COUNT(RULES); k++) {
        Verdict v = RULES[k].of & of ? RULES[k].check(&d, w.s, w.pos) : PASS;
        if (v == PASS) continue;
        RULES[k].apply(&d, copy(&d, w.s), w.pos);
        if (v == APPLY_AND_STOP) break;
      }
    }
    layer.at = d.next.at, layer.len = d.next.len, layer.cap = d.next.cap;
  }
  reopen_rfactor_splits(&out);
  for (int k = 0; k < NS_COUNT(TASK_RULES) && full_gpu; k++) {
    State *whole = state_init(c, t->dag);
    if (tensor_sketch(env, whole, TASK_RULES[k].by, TASK_RULES[k].apart))
      sp_list_add(a, &out, whole->step.len, whole->step.at, 0);
  }
  return out;
}
