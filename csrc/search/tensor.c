/* Products by one step as variants of a task: where its one sum is a product of matrices, there is a sketch that has the whole
 * kernel made by one step (schedule/matrix.c), beside those of the rule table. Its numbers are what is open. In a task of several
 * kernels (Winograd's: transform, products, transform back) it is a row of that table which has one of them made so, and no
 * second one.
 *
 * They are drawn so that the device takes them: what a warp computes, how warps lie in the block, the slice of the sum and
 * how many of them are in shared memory; tiles far larger than the matrices, and grids that leave most of the device idle
 * although smaller tiles exist, are drawn less often. A mutation halves or doubles one number, steps a side by 8, or turns the product around.
 * Warpgroups (wgmma) are a family of their own with a sketch of its own, for their tiles are others; so are lanes, which multiply
 * float32 strictly. Whether results pass through shared memory, and whether the last of the blocks that share a sum adds up, is open
 * where a search parameter says so.
 */
#include "search/space.h"
#include <string.h>

enum { TRIES = 64, TURNED_ONE_IN = 6 };
/* Slices that are drawn, and how many of them where they pass through registers: these hold one, with a third place in shared memory it is
 * stored behind all products. */
enum { LEAST_STAGES = 2, MOST_STAGES = 5, STAGED_STAGES = 3 };
enum { LANE_PRODUCTS = 1024 }; /* of a lane and a slice, which all are statements: beyond, compilers take seconds */

static const Target *target(const MakeEnv *m) { return &m->task->target; }

/* ---- the sketch ---- */

/* The output, and the one sum of the task; false: there is more to compute than one kernel of this kind can. */
static bool find_parts(const State *s, int *root, int *sum) {
  *root = *sum = -1;
  for (int i = 0; i < s->stage.len; i++) {
    if (sp_placeholder(s, i)) continue;
    if (sp_is_output(s, i)) {
      if (*root >= 0) return false;
      *root = i;
    }
    if (sp_has_reduce(s, i)) {
      if (*sum >= 0) return false;
      *sum = i;
    } else if (!sp_is_output(s, i) && sp_large(s, i))
      return false;
  }
  return *root >= 0 && *sum >= 0;
}

static bool view_of(State *s, int stage, MatrixView *v) {
  const char *why;
  return matrix_view(s, stage, false, state_inlined_bodies(s, false, NULL), v, &why);
}

/* How much of what the instructions compute is asked for, at best: a side of one is padded to 8, the other to 16 (of lanes, to 8). Less
 * than WORTH (a depthwise convolution: one column, nine terms) is not looked at. */
static const double WORTH = 0.1, LANES_WORTH = 0.4;
static double filled(int64_t n, int64_t step) { return (double)n / (double)(i64_ceildiv(n, step) * step); }
static double asked_for(const MatrixView *v, int64_t side) {
  double m = filled(v->m.size, side) * filled(v->n.size, 8), turned = filled(v->m.size, 8) * filled(v->n.size, side);
  return (m > turned ? m : turned) * filled(v->k.size, 32 / dtype_bytes(v->type));
}

/* Does a stage bring an input into another order of its axes, and no more? */
static bool changes_layout(const State *s, int stage) {
  const TeOp *op = s->dag->op[stage];
  const TeEdge *read = NULL;
  bool moved = false;
  for (int k = 0; k < s->dag->n_edges; k++) {
    const TeEdge *e = &s->dag->edge[k];
    if (e->consumer != stage) continue;
    if (read || e->n_access != 1 || !sp_placeholder(s, e->producer) || e->rank != op->n_axis) return false;
    read = e;
  }
  for (int i = 0; read && i < op->n_axis; i++) {
    const ExprNode *n = ir_node(s->ctx, read->index[0][i]);
    if (n->kind != IR_VAR) return false;
    moved = moved || n->sym != op->axis[i].var;
  }
  return moved && ir_kind(s->ctx, op->body[0]) == IR_READ;
}

/* Brings the initial state into the form of one kernel, where it is a product that is worth it. apart: what changes the layout of an input
 * for windows, which read an element several times, is a kernel before it; false where there is nothing of the kind. */
static bool one_product(State *s, bool apart, int *root, MatrixView *v) {
  int sum, changes = 0;
  if (!find_parts(s, root, &sum) || (apart && s->dag->op[sum]->n_red < 2)) return false;
  if (sp_loops(s, *root) == 0) return false; /* a single number */
  for (int i = s->stage.len - 1; i >= 0; i--) {
    if (sp_placeholder(s, i) || i == *root || i == sum) continue;
    if (apart && changes_layout(s, i))
      changes++;
    else
      state_compute_inline(s, i);
  }
  if (sum != *root) state_compute_at(s, sum, *root, sp_loops(s, *root) - 1);
  return (!apart || changes > 0) && view_of(s, *root, v) && asked_for(v, 16) >= WORTH;
}

DType tensor_factors(State *s) {
  int root;
  MatrixView v;
  return one_product(s, false, &root, &v) ? v.type : (DType){0};
}

Family tensor_family(const Step *s) {
  const MatrixTile t = matrix_tile(s->n, s->list);
  return matrix_lanes(&t) ? FAMILY_LANES : t.warpgroups ? FAMILY_WARPGROUPS : FAMILY_WARPS;
}

/* Of three terms by warpgroups, which lose a bit more (docs/numerics.md), sums of fewer products would be less exact than is promised. */
enum { THREE_LONG = 32 };

/* May the family compute such products? Float32 that may not lose bits is multiplied by lanes alone; where three products stand for one
 * lanes are tried as well. */
static bool allowed(const SketchEnv *env, Family by, const MatrixView *v) {
  const SearchParams *par = env->par;
  const Target *t = &env->task->target;
  bool single = v->type.bits == 32, cores = matrix_on_cores(t, v->type),
       strict = single && (par->tensor_cores < TENSOR_TF32 || !cores),
       three = single && par->tensor_cores == TENSOR_FLOAT32X3;
  if (by == FAMILY_LANES)
    return (strict || three) && par->lanes && matrix_by_lanes(t) && asked_for(v, 8) >= LANES_WORTH;
  if (strict || !cores || par->tensor_cores == TENSOR_NEVER) return false;
  if (by == FAMILY_WARPS) return true;
  return par->warpgroups && matrix_groups(t, v->type) && (!three || v->k.size >= THREE_LONG);
}

static bool on_device(const SketchEnv *env) { return env->par->extended && matrix_by_lanes(&env->task->target); }

/* The step, with open numbers. */
static void ask(const SketchEnv *env, State *s, int stage, const MatrixView *v, Family by) {
  int64_t open[MATRIX_FIELDS];
  bool three = v->type.bits == 32 && env->par->tensor_cores == TENSOR_FLOAT32X3, groups = by == FAMILY_WARPGROUPS;
  bool halves = by == FAMILY_WARPS && v->half && env->par->half_sums;
  for (int i = 0; i < MATRIX_FIELDS; i++) open[i] = SIZE_OPEN;
  open[MATRIX_TERMS] = by == FAMILY_LANES ? 0 : three ? 3 : halves ? MATRIX_HALF_SUMS : 1;
  if (by == FAMILY_LANES || !env->par->wide_stores) open[MATRIX_WIDE] = 0;
  if (!groups || three || env->par->warpgroups == 1) open[MATRIX_WARPGROUPS] = groups;
  int n = env->par->last_blocks   ? MATRIX_FIELDS
          : by == FAMILY_LANES    ? MATRIX_LAST
          : env->par->wide_stores ? MATRIX_TEAMS
          : groups                ? MATRIX_WIDE
          : three || halves       ? MATRIX_WARPGROUPS
                                  : MATRIX_TERMS;
  state_apply(s, (Step){.kind = STEP_MM, .stage = stage, .n = n, .list = open});
}

bool tensor_sketch(const SketchEnv *env, State *s, Family by, bool apart) {
  int root;
  MatrixView v;
  if (!on_device(env) || !one_product(s, apart, &root, &v) || !allowed(env, by, &v)) return false;
  ask(env, s, root, &v, by);
  return true;
}

/* The step computes all of a stage. A pool that leaves out the last line of an image does not read all. */
static bool all_read(const State *s, int stage) {
  State *b = state_init(s->ctx, s->dag);
  state_infer_bounds(b);
  const TeOp *op = s->dag->op[stage];
  for (int i = 0; i < op->n_axis; i++)
    if (axis_extent(b, stage, i) != te_const(s->ctx, op->axis[i].extent)) return false;
  return true;
}

/* Float32 stays float32 where there is more than a product: transforms (Winograd's) would make large errors of TF32's. */
static bool stage_view(const SketchEnv *env, State *s, int stage, Family by, MatrixView *v) {
  return view_of(s, stage, v) && asked_for(v, 16) >= WORTH && allowed(env, by, v) &&
         (by == FAMILY_LANES || v->type.bits < 32);
}

bool tensor_stage(const SketchEnv *env, State *s, int stage) {
  int root, sum;
  MatrixView v;
  if (!on_device(env) || !sp_needs_tiling(s, stage) || sp_matched_consumer(s, stage, true) >= 0 ||
      tensor_step(s->step.len, s->step.at) >= 0 || find_parts(s, &root, &sum) || !all_read(s, stage))
    return false;
  for (Family by = FAMILY_LANES; by <= FAMILY_WARPGROUPS; by++)
    if (stage_view(env, s, stage, by, &v)) return true;
  return false;
}

bool tensor_stage_by(const SketchEnv *env, State *s, int stage, Family by) {
  MatrixView v;
  if (!stage_view(env, s, stage, by, &v)) return false;
  ask(env, s, stage, &v, by);
  return true;
}

int tensor_step(int n, const Step *steps) {
  int i = n - 1;
  while (i >= 0 && steps[i].kind != STEP_MM) i--;
  return i;
}

TensorPlan *tensor_plan(Arena *a, State *sketch) {
  int n = sketch->step.len, at = tensor_step(n, sketch->step.at);
  if (at < 0) return NULL;
  const Step *s = &sketch->step.at[at];
  int stage = sp_final_stage(n, sketch->step.at, at, s->stage);
  TensorPlan p = {.open = matrix_tile(s->n, s->list), .n = s->n, .whole = true};
  if (!view_of(sketch, stage, &p.v)) return NULL;
  for (int i = 0; i < sketch->stage.len; i++) {
    const Stage *g = &sketch->stage.at[i];
    p.whole = p.whole && (sp_placeholder(sketch, i) || i == stage || g->at == AT_INLINED ||
                          (g->at == AT_ITER && g->at_stage == stage));
  }
  return arena_copy(a, &p, sizeof p);
}

/* ---- numbers that the device takes ---- */

static bool by_lanes(const TensorPlan *p) { return matrix_lanes(&p->open); }

static int64_t sides(const TensorPlan *p, const int64_t *x, int64_t *rows, int64_t *cols) {
  *rows = x[6] ? p->v.n.size : p->v.m.size, *cols = x[6] ? p->v.m.size : p->v.n.size;
  return i64_ceildiv(*rows, x[0]) * i64_ceildiv(*cols, x[1]) * p->v.batch.size * x[7];
}

static bool fits(const MakeEnv *m, const TensorPlan *p, const int64_t *x) {
  MatrixTile t = matrix_tile(MATRIX_FIELDS, x);
  int64_t rows, cols, step = 32 / dtype_bytes(p->v.type), least = by_lanes(p) ? 8 : p->open.warpgroups ? 64 : 16;
  HwParams hw = gpu_matrix_limits(target(m));
  if (matrix_tile_fault(&t, p->v.type) ||
      matrix_shared_bytes(&t, p->v.type, target(m)) > hw.max_shared_memory_per_block)
    return false;
  int64_t products = (int64_t)t.warp_m * t.warp_n / GPU_WARP * t.block_k / t.teams;
  if (by_lanes(p) && products > LANE_PRODUCTS) return false;
  int64_t threads = matrix_threads(&t), regs = matrix_registers(&t, p->v.type, target(m));
  if (threads > hw.max_threads_per_block) return false;
  if (threads * regs > target(m)->gpu.regs || (regs > GPU_MAX_REGS && !by_lanes(p)))
    return false; /* they would spill */
  if (matrix_staged(&t, p->v.type, target(m)) && (t.stages > STAGED_STAGES || regs > GPU_MAX_REGS)) return false;
  int64_t blocks = sides(p, x, &rows, &cols);
  if (i64_ceildiv(cols, x[1]) > GPU_GRID_YZ || p->v.batch.size * x[7] > GPU_GRID_YZ)
    return false; /* blocks in y and z */
  if (x[7] > 1 && (i64_ceildiv(p->v.k.size, x[2]) < 2 * x[7] || blocks > 4 * (int64_t)target(m)->gpu.sms)) return false;
  return x[0] < 2 * i64_ceildiv(rows, least) * least && x[1] < 2 * i64_ceildiv(cols, 8) * 8 &&
         x[2] < 2 * i64_ceildiv(p->v.k.size, step) * step;
}

static int64_t power(Rng *r, int64_t least, int n) { return least << rng_below(r, n); }

static int most_stages(const MakeEnv *m) {
  return gpu_has(&target(m)->gpu, GPU_COPY_ASYNC) ? MOST_STAGES : STAGED_STAGES;
}
static int64_t draw_stages(const MakeEnv *m, Rng *r) {
  return LEAST_STAGES + rng_below(r, most_stages(m) - LEAST_STAGES + 1);
}

/* Whether warpgroups may multiply two slices at a time, too. */
static bool two_slices(const TensorPlan *p) { return p->open.warpgroups == SIZE_OPEN; }

/* Of blocks that share a sum the last may add up. */
static int64_t draw_last(const TensorPlan *p, Rng *r, int64_t split) {
  return p->open.last && split > 1 ? rng_below(r, 2) : 0;
}

/* Tiles of lanes need not be powers of two: 24 rows make 131 blocks of 56x56 pixels, for 132 multiprocessors. */
static const int8_t LANE_SIDES[] = {1, 2, 3, 4, 4, 5, 6, 7, 8, 8};
static void draw_lanes(const MakeEnv *m, const TensorPlan *p, Rng *r, int64_t *x) {
  for (int i = 0; i < 2; i++) {
    x[3 + i] = 8 * LANE_SIDES[rng_below(r, NS_COUNT(LANE_SIDES))];
    x[i] = x[3 + i] * power(r, 1, 3);
  }
  x[MATRIX_TEAMS] = power(r, 1, 4);
  x[2] = x[MATRIX_TEAMS] * power(r, LANE_STEP, 4);
  x[5] = draw_stages(m, r);
  x[6] = rng_below(r, TURNED_ONE_IN) == 0;
  x[7] = power(r, 1, 5);
  x[MATRIX_TERMS] = x[MATRIX_WARPGROUPS] = x[MATRIX_WIDE] = 0;
  x[MATRIX_LAST] = draw_last(p, r, x[7]);
}

/* A warpgroup's tile may have any multiple of 8 columns: 48 of 3072 make 128 blocks of 64 of 128 rows. */
enum { GROUP_OCTETS = 24 };
static void draw(const MakeEnv *m, const TensorPlan *p, Rng *r, int64_t *x) {
  if (by_lanes(p)) {
    draw_lanes(m, p, r, x);
    return;
  }
  int64_t step = 32 / dtype_bytes(p->v.type);
  x[3] = p->open.warpgroups ? power(r, 64, 2) : power(r, 16, 3);
  x[4] = p->open.warpgroups && rng_below(r, 2) == 0 ? 8 * (1 + (int64_t)rng_below(r, GROUP_OCTETS))
                                                    : power(r, 8, p->open.warpgroups ? 6 : 4);
  x[0] = x[3] * power(r, 1, 3), x[1] = x[4] * power(r, 1, 3);
  x[2] = power(r, step, 4);
  x[5] = draw_stages(m, r);
  x[6] = rng_below(r, TURNED_ONE_IN) == 0;
  x[7] = power(r, 1, 5);
  x[MATRIX_TERMS] = p->open.terms;
  x[MATRIX_WARPGROUPS] = two_slices(p) ? 1 + rng_below(r, 2) : p->open.warpgroups;
  x[MATRIX_WIDE] = p->open.wide && x[7] == 1 ? rng_below(r, 2) : 0;
  x[MATRIX_TEAMS] = 1;
  x[MATRIX_LAST] = draw_last(p, r, x[7]);
}

bool tensor_sizes(MakeEnv *m, Rng *r, const TensorPlan *p, Step *s) {
  int64_t x[MATRIX_FIELDS], rows, cols, best[MATRIX_FIELDS] = {0};
  double sms = target(m)->gpu.sms;
  for (int i = 0; i < TRIES; i++) {
    draw(m, p, r, x);
    if (!fits(m, p, x)) continue;
    memcpy(best, x, sizeof best);
    if ((double)sides(p, x, &rows, &cols) >= sms / 2 || rng_below(r, 8) == 0) break;
  }
  s->list = arena_copy(ir_arena(m->ctx), best, (size_t)s->n * sizeof *best);
  return best[0] > 0;
}

/* A side of a warp's tile grows by 8 or shrinks, and the block's with it. */
enum { BY_EIGHT = MATRIX_FIELDS };
static void step_side(int64_t *x, int side, bool up) {
  int64_t warps = x[side] / x[3 + side];
  x[3 + side] += up ? 8 : -8;
  x[side] = warps * x[3 + side];
}

/* The terms are given; what may change behind the first numbers is a matter of the family. */
static int changed(const TensorPlan *p, Choice *c) {
  int more[MATRIX_FIELDS], n = 0;
  more[n++] = BY_EIGHT + 1;
  if (by_lanes(p)) more[n++] = BY_EIGHT, more[n++] = MATRIX_TEAMS;
  if (two_slices(p)) more[n++] = MATRIX_WARPGROUPS;
  if (p->open.wide) more[n++] = MATRIX_WIDE;
  if (p->open.last) more[n++] = MATRIX_LAST;
  int f = (int)choose(c, MATRIX_TERMS + n);
  return f < MATRIX_TERMS ? f : more[f - MATRIX_TERMS];
}

/* What a measured state has beyond what the sketch leaves open becomes the sketch's own: a log may be of other settings. */
bool tensor_mutate(MakeEnv *m, Choice *c, const TensorPlan *p, Step *s) {
  int64_t x[MATRIX_FIELDS] = {0};
  const MatrixTile before = matrix_tile(s->n, s->list);
  for (int i = 0, tries = choose_tries(c, TRIES); i < tries; i++) {
    matrix_numbers(&before, x);
    x[MATRIX_TERMS] = p->open.terms;
    if (!two_slices(p)) x[MATRIX_WARPGROUPS] = p->open.warpgroups;
    if (!p->open.wide) x[MATRIX_WIDE] = 0;
    if (!p->open.last) x[MATRIX_LAST] = 0;
    if (!by_lanes(p)) x[MATRIX_TEAMS] = 1;
    int f = changed(p, c);
    bool up = choose(c, 2) != 0;
    if (f == MATRIX_WARPGROUPS)
      x[f] = 3 - x[f];
    else if (f == MATRIX_WIDE || f == MATRIX_LAST)
      x[f] = !x[f];
    else if (f >= BY_EIGHT)
      step_side(x, f - BY_EIGHT, up);
    else if (f == 6)
      x[6] = !x[6];
    else if (f == 5)
      x[5] += up ? 1 : -1;
    else
      x[f] = up ? 2 * x[f] : x[f] / 2;
    if (f < 2 && choose(c, 2) != 0) x[f + 3] = up ? 2 * x[f + 3] : x[f + 3] / 2; /* the warps' tiles with the block's */
    x[x[7] > 1 ? MATRIX_WIDE : MATRIX_LAST] = 0; /* one is for whole sums, the other for shared ones */
    if (!fits(m, p, x)) continue;
    s->n = p->n;
    s->list = arena_copy(ir_arena(m->ctx), x, (size_t)s->n * sizeof *x);
    return true;
  }
  return false;
}
