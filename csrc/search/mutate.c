/* Mutation: one small random change to a complete candidate. Most mutations move a factor from one part of a split to
 * another; the others change an unroll limit, a compute location or the width of a parallel loop. The result is again a
 * step list; whether it is a valid program is found out when its bounds are inferred. Spec 03 §4.5.
 */
#include "search/space.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 32 };

/* ---- tile size ---- */

/* Moves a random factor between two parts of one split; the list is made anew. */
static bool move_factor(MakeEnv *m, Choice *c, Step *p) {
  int64_t part[MAX_PARTS], inner = 1; /* the first is the outermost, not stored in the step */
  int n = p->n;
  for (int i = 0; i < n; i++) {
    part[i + 1] = p->list[i];
    if (p->list[i] <= 0 || !i64_mul(inner, p->list[i], &inner)) return false;
  }
  part[0] = (p->extent + inner - 1) / inner;
  int order[MAX_PARTS];
  choose_order(c, n + 1, order);
  for (int q = 0, last = choose_tries(c, n + 1); q < last; q++) {
    int src = order[q], dst = order[(q + 1) % (n + 1)];
    if (part[src] <= 1) continue;
    const int64_t *d;
    int nd = factor_divisors(m->factors, part[src], &d);
    if (dst == n)
      while (nd > 0 && d[nd - 1] * part[n] > m->par->max_innermost_split_factor) nd--;
    if (nd <= 1) continue;
    int64_t f = d[1 + choose(c, nd - 1)];
    part[src] /= f;
    part[dst] *= f;
    p->list = arena_copy(ir_arena(m->ctx), part + 1, sizeof(int64_t) * (size_t)n);
    return true;
  }
  return false;
}

static bool mutate_within(MakeEnv *m, Choice *c, int sketch, int n, Step *steps);

bool mutate_tile(MakeEnv *m, Choice *c, int n, Step *steps) {
  int sketch = m->plan ? plan_sketch_of(m, n, steps) : -1;
  if (sketch >= 0 && m->plan[sketch]->known) return mutate_within(m, c, sketch, n, steps);
  Arena *a = ir_arena(m->ctx);
  int *at = arena_array(a, int, n), count = 0, draws = 0;
  for (int i = 0; i < n; i++)
    if (steps[i].kind == STEP_SP && steps[i].n > 0 && steps[i].n < MAX_PARTS && steps[i].extent > 0 &&
        steps[i].list[steps[i].n - 1] <= m->par->max_innermost_split_factor)
      at[count++] = i;
  if (count == 0) return false;
  Step *p = NULL;
  do p = &steps[at[choose(c, count)]];
  while (p->extent <= 1 && ++draws < choose_tries(c, 4 * count));
  return p->extent > 1 && move_factor(m, c, p);
}

/* ---- tile size, extended mode: only moves that the device takes ---- */

enum { EXTENDED_TRIES = 12, VECTOR_ONE_IN = 5 };
typedef enum { MOVE_PARTS, MOVE_TILE, MOVE_THREADS, MOVE_SUM, MOVE_VECTOR, MOVE_NONE } Move;
typedef struct {
  int step;
  Move move;
  const PlanKernel *kernel; /* of a tile, or the one that reads the loaded vectors */
  const PlanTile *tile;
  const PlanSum *sum;
} Spot;

/* What a split of a candidate decides. Splits of stages with constant matrices are undone by the binding of threads, and a
 * candidate decides only what the sketch leaves open. */
static Spot spot_of(const Plan *plan, const State *sketch, int n, const Step *steps, int i) {
  Spot s = {i, MOVE_NONE, NULL, NULL, NULL};
  const Step *p = &steps[i];
  for (int k = 0; k < plan->n_sum; k++) {
    const PlanSum *q = &plan->sum[k];
    if (i == q->threads || i == q->results || i == q->parts) return (Spot){.step = i, .move = MOVE_SUM, .sum = q};
  }
  if (p->kind != STEP_SP || p->n < 1 || p->n >= MAX_PARTS || p->extent <= 1) return s;
  for (int k = 0; k < plan->n_kernel; k++) {
    const PlanKernel *q = &plan->kernel[k];
    for (int a = 0; a < q->n_axis; a++)
      if (q->axis[a].step == i) return (Spot){.step = i, .move = MOVE_TILE, .kernel = q};
  }
  if (i >= sketch->step.len && plan_split_for(n, steps, i, AN_VECTORIZE)) {
    s.tile = plan_tile_of(plan, p->stage, &s.kernel);
    s.move = MOVE_VECTOR;
    if (s.tile) return s;
  }
  s.move = MOVE_PARTS;
  if (plan_split_for(n, steps, i, AN_THREAD_X))
    s.move = MOVE_THREADS;
  else if (i < sketch->step.len && sketch->step.at[i].list[0] != SIZE_OPEN)
    s.move = MOVE_NONE;
  else if (i < sketch->step.len &&
           sp_has_attr(sketch, sp_final_stage(sketch->step.len, sketch->step.at, i, p->stage), TE_CONST_AXES))
    s.move = MOVE_NONE;
  return s;
}

/* Vectors that no longer divide the rows of their tile become shorter. */
static void fit_vectors(MakeEnv *m, const Plan *plan, const State *sketch, int n, Step *steps) {
  for (int i = sketch->step.len; i < n; i++) {
    if (steps[i].kind != STEP_SP || steps[i].n != 1 || steps[i].list[0] <= 1) continue;
    Spot s = spot_of(plan, sketch, n, steps, i);
    if (s.move != MOVE_VECTOR) continue;
    int64_t v = i64_gcd((int64_t)plan_row(s.kernel, s.tile, steps), steps[i].list[0]);
    if (v != steps[i].list[0]) steps[i].list = arena_copy(ir_arena(m->ctx), &v, sizeof v);
  }
}

static bool make_move(MakeEnv *m, Choice *c, const Spot *s, Step *steps) {
  Step *p = &steps[s->step];
  int64_t *before = p->list;
  if (s->move == MOVE_SUM) return sums_resize(m, c, s->sum, s->step, steps);
  if (s->move == MOVE_THREADS || s->move == MOVE_VECTOR) {
    int64_t one = s->move == MOVE_THREADS ? construct_threads(m, c, p->extent)
                                          : construct_vector(m, c, plan_row(s->kernel, s->tile, steps), s->tile->bytes);
    if (one == before[0]) return false;
    p->list = arena_copy(ir_arena(m->ctx), &one, sizeof one);
  } else if (!move_factor(m, c, p))
    return false;
  if (s->move != MOVE_TILE || plan_kernel_fits(&m->task->target.hw, s->kernel, steps)) return true;
  p->list = before;
  return false;
}

static bool mutate_within(MakeEnv *m, Choice *c, int sketch, int n, Step *steps) {
  Plan *plan = m->plan[sketch];
  Spot *spot[2];
  int count[2] = {0, 0};
  plan_copies(plan, n, steps);
  for (int w = 0; w < 2; w++) spot[w] = arena_array(ir_arena(m->ctx), Spot, n);
  for (int i = 0; i < n; i++) {
    Spot s = spot_of(plan, m->sketch[sketch], n, steps, i);
    if (s.move != MOVE_NONE) spot[s.move == MOVE_VECTOR][count[s.move == MOVE_VECTOR]++] = s;
  }
  if (count[0] + count[1] == 0) return false;
  for (int k = 0, tries = choose_tries(c, EXTENDED_TRIES); k < tries; k++) {
    int w = count[0] == 0 || (count[1] > 0 && choose_one_in(c, VECTOR_ONE_IN));
    const Spot *s = &spot[w][choose(c, count[w])];
    if (!make_move(m, c, s, steps)) continue;
    if (s->move == MOVE_TILE) fit_vectors(m, plan, m->sketch[sketch], n, steps);
    return true;
  }
  return false;
}

/* ---- auto unroll ---- */

static const char PRAGMA[] = "auto_unroll_max_step$";

static bool mutate_unroll(MakeEnv *m, Choice *c, int n, Step *steps) {
  Arena *a = ir_arena(m->ctx);
  int *at = arena_array(a, int, n), count = 0;
  for (int i = 0; i < n; i++)
    if (steps[i].kind == STEP_PR && strncmp(steps[i].text, PRAGMA, sizeof PRAGMA - 1) == 0) at[count++] = i;
  if (count == 0) return false;
  const int *choice;
  int k = sp_unroll_choices(m->task, &choice);
  Step *p = &steps[at[choose(c, count)]];
  p->text = arena_printf(a, "%s%d", PRAGMA, choice[choose(c, k)]);
  return true;
}

/* ---- compute location (CPU) ---- */

static bool mutate_location(MakeEnv *m, Choice *c, int n, Step *steps) {
  if (m->par->disable_change_compute_location) return false;
  State *s = make_replay(m, n, sp_steps_copy(ir_arena(m->ctx), n, steps, false));
  state_infer_bounds(s);
  int *at = arena_array(ir_arena(m->ctx), int, n), count = 0;
  for (int i = 0; i < n; i++) {
    if (steps[i].kind != STEP_CA) continue;
    int final = sp_final_stage(n, steps, i, steps[i].stage);
    if (!pred_is_tiled(s, final) && !sp_needs_tiling(s, final)) at[count++] = i;
  }
  if (count == 0) return false;
  Step *p = &steps[at[choose(c, count)]];
  int final = sp_final_stage(n, steps, (int)(p - steps), p->stage), cand[MAX_LOOPS][2];
  int k = sp_locations(s, final, MAX_LOOPS, cand);
  if (k == 0) return false;
  const int *to = cand[choose(c, k)];
  p->iter = to[0] - (final - p->stage);
  p->a = to[1];
  return p->iter >= 0;
}

/* ---- width of a parallel loop (CPU) ---- */

static bool mutate_parallel(MakeEnv *m, Choice *c, int n, Step *steps) {
  Arena *a = ir_arena(m->ctx);
  int *at = arena_array(a, int, n), count = 0;
  for (int i = 1; i < n; i++) {
    const Step *f = &steps[i - 1];
    if (steps[i].kind == STEP_AN && steps[i].a == AN_PARALLEL && steps[i].iter == 0 && f->kind == STEP_FU && f->n > 0 &&
        f->list[0] == 0 && f->stage == steps[i].stage)
      at[count++] = i - 1;
  }
  if (count == 0) return false;
  int fu = at[choose(c, count)], stage = steps[fu].stage, width = 0;
  State *s = make_replay(m, fu, sp_steps_copy(a, fu, steps, false));
  for (; width < sp_loops(s, stage); width++) {
    const Axis *x = sp_axis(s, stage, width);
    if (x->kind == IT_REDUCE || x->ann != AN_NONE || attach_any(s, stage, width)) break;
  }
  if (width == 0) return false;
  int w = 1 + (int)choose(c, width), old = steps[fu].n;
  if (w == old) return false;
  for (int i = fu + 2; i < n; i++) {
    Step *p = &steps[i];
    if (step_info((StepKind)p->kind)->shift != SHIFT_NONE) return false;
    if (p->stage != stage) continue;
    if (p->kind != STEP_AN && p->kind != STEP_PR) return false;
    if (p->iter != 0) p->iter += old - w;
  }
  steps[fu].n = w;
  steps[fu].list = arena_array(a, int64_t, w);
  for (int i = 0; i < w; i++) steps[fu].list[i] = i;
  return true;
}

/* ---- double buffers (GPU, extended mode): those of a kernel come or go ---- */

static bool mutate_buffers(MakeEnv *m, Choice *c, int n, const Step *steps, int *n_out, Step **out) {
  int sketch = plan_sketch_of(m, n, steps), count = 0;
  PlanKernel *at[PLAN_KERNELS];
  Plan *plan = sketch >= 0 ? m->plan[sketch] : NULL;
  for (int i = 0; plan && i < plan->n_kernel; i++)
    if (plan->kernel[i].n_tile) at[count++] = &plan->kernel[i];
  if (count == 0) return false;
  plan_copies(plan, n, steps);
  PlanKernel *k = at[choose(c, count)];
  Step *to = *out = arena_array(ir_arena(m->ctx), Step, n + k->n_tile);
  for (int i = 0; i < n; i++) {
    bool own = false;
    for (int t = 0; t < k->n_tile; t++) own |= steps[i].kind == STEP_DB && steps[i].stage == k->tile[t].stage;
    if (!own) *to++ = steps[i];
  }
  if (k->copies == 1)
    for (int t = 0; t < k->n_tile; t++) *to++ = (Step){.kind = STEP_DB, .stage = k->tile[t].stage};
  k->copies = 3 - k->copies;
  *n_out = (int)(to - *out);
  return plan_kernel_fits(&m->task->target.hw, k, *out);
}

/* ---- the draw ---- */

typedef struct {
  double weight;
  bool (*fn)(MakeEnv *m, Choice *c, int n, Step *steps);
} Mutation;
static const Mutation CPU_MUTATIONS[] = {
    {0.90, mutate_tile}, {0.04, mutate_unroll}, {0.05, mutate_location}, {0.01, mutate_parallel}};
enum { OTHER_KERNELS_ONE_IN = 4 }; /* of changes of a candidate that has a product by one step beside other kernels */
static const Mutation GPU_MUTATIONS[] = {{0.90, mutate_tile}, {0.10, mutate_unroll}};

bool mutate(MakeEnv *m, Choice *c, int n, const Step *steps, int *n_out, Step **out) {
  int tensor = m->tensor ? tensor_step(n, steps) : -1, sketch = tensor < 0 ? -1 : plan_sketch_of(m, n, steps);
  if (sketch >= 0 && m->tensor[sketch] && (m->tensor[sketch]->whole || !choose_one_in(c, OTHER_KERNELS_ONE_IN))) {
    *out = sp_steps_copy(ir_arena(m->ctx), n, steps, false);
    *n_out = n;
    return tensor_mutate(m, c, m->tensor[sketch], &(*out)[tensor]);
  }
  double buffers = m->plan ? m->par->double_buffer_prob : 0;
  if (buffers > 0 && choose_chance(c, buffers)) return mutate_buffers(m, c, n, steps, n_out, out);
  const Mutation *t = m->task->gpu ? GPU_MUTATIONS : CPU_MUTATIONS;
  int count = m->task->gpu ? NS_COUNT(GPU_MUTATIONS) : NS_COUNT(CPU_MUTATIONS);
  double weight[NS_COUNT(CPU_MUTATIONS)];
  for (int i = 0; i < count; i++) weight[i] = t[i].weight;
  const Mutation *drawn = &t[choose_weighted(c, count, weight)];
  *out = sp_steps_copy(ir_arena(m->ctx), n, steps, false);
  *n_out = n;
  return drawn->fn(m, c, n, *out);
}
