/* What the open sizes of a GPU sketch mean on the device.
 *
 * A sketch fixes the structure of a program: which sizes become virtual threads, threads of a block, the tile that a
 * thread keeps in registers and the slice of the reduction that is staged in shared memory. A plan writes this down once
 * per sketch, so that the limits of the device can be checked from the sizes alone, without replaying anything: products
 * of sizes for threads and registers; for each shared tile the range that its reader's indices sweep. Indices are linear
 * in almost all operators; others are evaluated at the corners of the tile. Spec 03 §3.7, §3.8, §7.3.
 */
#include "search/space.h"
#include <string.h>

/* ---- index expressions as numbers ---- */

typedef struct {
  const PlanKernel *k;
  const int64_t *at; /* a value per axis, reductions behind the others */
  int visits;
  MapU64 known; /* place in val, by expression */
  VEC(int64_t) val;
} PointWalk;

/* Far beyond any place in memory; differences and sums of a few such numbers stay inside 64 bits. */
#define FAR ((int64_t)1 << 56)
static int64_t clamped(int64_t v) { return v > FAR ? FAR : v < -FAR ? -FAR : v; }

static int64_t walk_value(PointWalk *w, ExprId e);

static int64_t node_value(PointWalk *w, ExprId e, const ExprNode *n) {
  const IrCtx *c = w->k->ctx;
  if (n->kind == IR_CAST) return walk_value(w, ir_kid(c, e, 0));
  if (!ir_is_arith(n->kind)) return 0; /* loads and the like: taken as a fixed place */
  int64_t x = walk_value(w, ir_kid(c, e, 0)), y = walk_value(w, ir_kid(c, e, 1)), r = 0;
  switch (n->kind) {
  case IR_ADD: return clamped(x + y);
  case IR_SUB: return clamped(x - y);
  case IR_MUL: return i64_mul(x, y, &r) ? clamped(r) : (x < 0) == (y < 0) ? FAR : -FAR;
  case IR_MIN: return x < y ? x : y;
  case IR_MAX: return x > y ? x : y;
  case IR_DIV:
  case IR_FDIV: return y ? i64_floordiv(x, y) : 0;
  default: return y ? i64_floormod(x, y) : 0;
  }
}

static int64_t walk_value(PointWalk *w, ExprId e) {
  const PlanKernel *k = w->k;
  const ExprNode *n = ir_node(k->ctx, e);
  if (n->kind == IR_INT) return clamped(n->u.i);
  if (n->kind == IR_VAR) {
    for (int i = 0; i < k->op->n_axis + k->op->n_red && i < PLAN_AXES; i++)
      if (te_axis(k->op, i)->var == n->sym) return clamped(w->at[i]);
    return 0;
  }
  if (++w->visits <= EX_PLAIN_VISITS) return node_value(w, e, n);
  if (!w->known.arena) mapu_init(&w->known, ir_arena(k->ctx));
  int32_t at = mapu_get(&w->known, (uint64_t)e, -1);
  if (at >= 0) return w->val.at[at];
  int64_t v = node_value(w, e, n);
  vec_note(ir_arena(k->ctx), &w->val, v, &w->known, e);
  return v;
}

static int64_t value_of(const PlanKernel *k, const int64_t *at, ExprId e) {
  PointWalk w = {.k = k, .at = at};
  return walk_value(&w, e);
}

/* Elements of one dimension that a tile with the given extents touches. */
static double dim_range(const PlanKernel *k, const PlanDim *d, const int64_t *tile) {
  double range = 1, cap = (double)d->cap;
  for (int a = 0; a < k->n_axis; a++) {
    int64_t beyond = tile[a] - k->axis[a].extent; /* a tile may go on beyond the edge */
    range += (double)d->coef[a] * (double)(tile[a] - 1);
    if (beyond > 0) cap += (double)d->coef[a] * (double)beyond;
  }
  if (!d->linear) {
    int64_t corner[PLAN_AXES], zero[PLAN_AXES] = {0};
    for (int a = 0; a < k->n_axis; a++) corner[a] = tile[a] - 1;
    double sweep = (double)value_of(k, corner, d->index) - (double)value_of(k, zero, d->index);
    range = (sweep < 0 ? -sweep : sweep) + 1;
  }
  return range < cap ? range : cap;
}

static void dim_init(PlanKernel *k, PlanDim *d, ExprId index, int64_t cap) {
  int64_t at[PLAN_AXES] = {0}, origin, sum = 0;
  *d = (PlanDim){.index = index, .cap = cap, .linear = true};
  origin = value_of(k, at, index);
  for (int a = 0; a < k->n_axis; a++) {
    if (k->axis[a].extent < 2) continue;
    at[a] = 1;
    int64_t c = value_of(k, at, index) - origin, whole = k->axis[a].extent - 1, last;
    at[a] = whole;
    last = value_of(k, at, index) - origin;
    at[a] = 0;
    int64_t straight;
    d->linear = d->linear && i64_mul(c, whole, &straight) && last == straight;
    d->coef[a] = c < 0 ? -c : c;
    sum += last;
  }
  for (int a = 0; a < k->n_axis; a++) at[a] = k->axis[a].extent - 1;
  d->linear = d->linear && value_of(k, at, index) - origin == sum;
}

/* ---- making a plan ---- */

static bool add_tile(PlanKernel *k, const State *s, int member, int stage) {
  if (k->n_tile == PLAN_TILES) return false;
  PlanTile *t = &k->tile[k->n_tile];
  const TeOp *op = s->stage.at[stage].op;
  for (int i = 0; i < s->dag->n_edges; i++) {
    const TeEdge *g = &s->dag->edge[i];
    if (g->producer != stage || g->consumer != member) continue;
    if (g->n_access != 1 || g->rank > PLAN_DIMS || g->rank != op->n_axis) return false;
    t->stage = stage, t->n_dim = g->rank;
    t->bytes = dtype_bytes(ir_tensor(s->ctx, op->out[0])->type);
    for (int d = 0; d < g->rank; d++) dim_init(k, &t->dim[d], g->index[0][d], te_const(s->ctx, op->axis[d].extent));
    k->n_tile++;
    return true;
  }
  return false;
}

static bool add_kernel(Plan *plan, const State *s, int member) {
  const Stage *g = &s->stage.at[member];
  const TeOp *op = g->op;
  PlanKernel *k = &plan->kernel[plan->n_kernel];
  int split[2 * PLAN_AXES], n = sp_steps_of(s, member, STEP_SP, split, 2 * PLAN_AXES), used = 0;
  if (plan->n_kernel == PLAN_KERNELS || op->n_axis + op->n_red > PLAN_AXES) return false;
  *k = (PlanKernel){
      .ctx = s->ctx, .op = op, .n_space = op->n_axis, .n_axis = op->n_axis + op->n_red, .points = 1, .copies = 1};
  for (int a = 0; a < k->n_axis; a++) {
    const TeAxis *x = te_axis(op, a);
    PlanAxis *y = &k->axis[a];
    *y = (PlanAxis){.step = -1, .extent = te_const(s->ctx, x->extent)};
    if (y->extent <= 0) return false;
    if (sp_names(s, member, TE_NO_SPLIT, x->name)) continue;
    if (used == n) return false;
    y->step = split[n - ++used]; /* the last was made last */
    const Step *p = &s->step.at[y->step];
    if (p->extent != y->extent || p->n < (a < op->n_axis ? 2 : 1) || p->n > PLAN_LEVELS) return false;
  }
  if (used != n) return false;
  k->points = sp_points(s, g->at_stage);
  k->bytes = dtype_bytes(ir_tensor(s->ctx, op->out[0])->type);
  for (int i = 0; i < s->stage.len; i++)
    if (s->stage.at[i].at == AT_ITER && s->stage.at[i].at_stage == member &&
        sp_ends(s->stage.at[i].op->name, ".shared") && !add_tile(k, s, member, i))
      return false;
  plan->n_kernel++;
  return true;
}

bool plan_split_for(int n, const Step *steps, int i, Annotation ann) {
  const Step *p = &steps[i], *q = p + 1;
  return p->kind == STEP_SP && p->n == 1 && i + 1 < n && q->kind == STEP_AN && q->stage == p->stage &&
         q->iter == p->iter + 1 && q->a == (int)ann;
}

Plan *plan_new(Arena *a, const State *sketch) {
  Plan *plan = arena_new_of(a, Plan);
  plan->known = true;
  for (int i = 0; i < sketch->stage.len; i++)
    if (pred_in_tile(sketch, i) && !add_kernel(plan, sketch, i)) plan->known = false;
  for (int i = 0; i < sketch->step.len && plan->n_thread < PLAN_KERNELS; i++)
    if (plan_split_for(sketch->step.len, sketch->step.at, i, AN_THREAD_X) && sketch->step.at[i].list[0] != SIZE_OPEN)
      plan->thread[plan->n_thread++] = i;
  plan->n_sum = sums_plan(sketch, PLAN_SUMS, plan->sum);
  return plan;
}

/* ---- asking it ---- */

void plan_copies(Plan *plan, int n, const Step *steps) {
  for (int i = 0; i < plan->n_kernel; i++) {
    PlanKernel *k = &plan->kernel[i];
    k->copies = 1;
    for (int j = 0; j < n; j++)
      for (int t = 0; t < k->n_tile && steps[j].kind == STEP_DB; t++)
        if (k->tile[t].stage == steps[j].stage) k->copies = 2;
  }
}

static int64_t tile_extent(const PlanAxis *x, const Step *steps) {
  if (x->step < 0) return x->extent;
  int64_t t = 1;
  const Step *p = &steps[x->step];
  for (int i = 0; i < p->n; i++)
    if (p->list[i] <= 0 || !i64_mul(t, p->list[i], &t)) return -1;
  return t;
}

double plan_shared_bytes(const PlanKernel *k, const int64_t *tile) {
  double total = 0;
  for (int i = 0; i < k->n_tile; i++) {
    double n = k->tile[i].bytes;
    for (int d = 0; d < k->tile[i].n_dim; d++) n *= dim_range(k, &k->tile[i].dim[d], tile);
    total += n;
  }
  return total * k->copies;
}

const PlanTile *plan_tile_of(const Plan *plan, int stage, const PlanKernel **of) {
  for (int i = 0; plan && i < plan->n_kernel; i++)
    for (int t = 0; t < plan->kernel[i].n_tile; t++) {
      *of = &plan->kernel[i];
      if ((*of)->tile[t].stage == stage) return &(*of)->tile[t];
    }
  return NULL;
}

double plan_row(const PlanKernel *k, const PlanTile *t, const Step *steps) {
  int64_t tile[PLAN_AXES];
  for (int a = 0; a < k->n_axis; a++) tile[a] = tile_extent(&k->axis[a], steps);
  return t->n_dim ? dim_range(k, &t->dim[t->n_dim - 1], tile) : 1;
}

bool plan_kernel_fits(const HwParams *hw, const PlanKernel *k, const Step *steps) {
  int64_t tile[PLAN_AXES];
  GpuNeeds need = {.vthread = 1, .threads = 1, .points = (double)k->points};
  double all = 1;
  for (int a = 0; a < k->n_axis; a++) {
    const PlanAxis *x = &k->axis[a];
    if ((tile[a] = tile_extent(x, steps)) < 0) return false;
    if (a >= k->n_space) continue;
    all *= (double)tile[a];
    if (x->step < 0) continue;
    need.vthread *= (double)steps[x->step].list[0];
    need.threads *= (double)steps[x->step].list[1];
  }
  need.local_bytes = all / need.threads * (double)k->bytes;
  need.shared_bytes = plan_shared_bytes(k, tile);
  return gpu_fits(hw, &need) == FIT_OK;
}

/* The sketch that a complete candidate was made from: its steps begin with the sketch's, sizes apart; -1: none. Of products each
 * family has its own: numbers that a step leaves out are known. */
int plan_sketch_of(const MakeEnv *m, int n, const Step *steps) {
  for (int i = 0; i < m->n_sketch; i++) {
    const State *s = m->sketch[i];
    int k = 0;
    if (s->step.len > n) continue;
    for (; k < s->step.len; k++) {
      const Step *p = &s->step.at[k], *q = &steps[k];
      if (p->kind != q->kind || p->stage != q->stage || p->iter != q->iter || p->a != q->a || p->extent != q->extent)
        break;
      if (p->kind == STEP_MM ? tensor_family(p) != tensor_family(q) : p->n != q->n) break;
    }
    if (k == s->step.len) return i;
  }
  return -1;
}

State *make_replay(const MakeEnv *m, int n, const Step *steps) {
  int sketch = plan_sketch_of(m, n, steps);
  return state_replay_like(m->ctx, m->task->dag, n, steps, sketch >= 0 ? m->sketch[sketch] : NULL);
}
