/* Closed forms over a bounded state: what its kernels will need and do, without lowering it.
 *
 * A kernel is a root stage with everything attached below it. Loop extents are known, so the number of threads, the bytes
 * of shared memory, the points computed and the elements moved follow by multiplication. Accesses are described by which
 * axes of the reading stage each index uses (inlined stages are looked through); a tile's footprint is the product over
 * dimensions of the range that its loops sweep. The limits of the GPU verifier are checked here too, so that most invalid
 * candidates cost no lowering; the verifier proper still has the last word before anything is built. Spec 04 §6.2, 03 §3.8.
 */
#include "model/facts.h"
#include <math.h>
#include <string.h>

int64_t facts_extent(const State *s, const Axis *x) {
  int64_t v;
  if (x->extent && ex_const_int(s->ctx, x->extent, &v) && v > 0) return v;
  return x->ranged && x->sext > 0 ? x->sext : 1;
}

/* Which root axes each axis of a stage comes from. */
static void origins(const Stage *g, uint64_t *mask) {
  memset(mask, 0, sizeof(uint64_t) * (size_t)g->axes.len);
  for (int i = 0; i < g->n_root && i < MAX_AXES; i++) mask[i] = 1ull << i;
  stage_spread(g, mask);
}

/* ---- accesses ---- */

typedef struct {
  const TeOp *op;
  uint64_t mask;
  bool linear;
} Uses;
static void use_var(IrCtx *c, ExprId e, void *arg) {
  Uses *u = arg;
  ExprKind k = ir_kind(c, e);
  if (ir_is_division(k) || k == IR_READ || k == IR_SELECT || k == IR_CALL) u->linear = false;
  if (k != IR_VAR) return;
  VarId v = ir_node(c, e)->sym;
  for (int i = 0; i < u->op->n_axis + u->op->n_red && i < MAX_AXES; i++)
    if (te_axis(u->op, i)->var == v) u->mask |= 1ull << i;
}

typedef struct {
  View *v;
  const TeOp *op;
  const uint64_t *map;
  bool linear;
  double ops;
  int depth;
} Walk; /* map: axes of op -> axes of the stage */
static void walk_op(View *v, const TeOp *op, const uint64_t *map, const Lanes *at, bool linear, int depth);

/* Elements in memory: tiles are dense in what is allocated, the rest in the shape of the tensor. */
static void memory_at(const State *s, int stage, int rank, const int64_t *dim, const Lanes *at, Lanes *out) {
  const Stage *g = stage >= 0 ? &s->stage.at[stage] : NULL;
  bool tile = g && g->op->kind == TE_COMPUTE && g->scope != SC_GLOBAL && g->at == AT_ITER;
  int64_t stride = 1;
  lanes_const(out, 0);
  for (int d = rank - 1; d >= 0; d--) {
    Lanes part;
    lanes_by(IR_MUL, &at[d], (int32_t)stride, &part);
    lanes_bin(IR_ADD, out, &part, out);
    int64_t width = tile && d < g->n_root_data ? facts_extent(s, &g->axes.at[d]) : dim[d];
    stride = (int64_t)((uint64_t)stride * (uint64_t)width); /* lanes keep 32 bits of it */
  }
}

static void walk_expr(IrCtx *c, ExprId e, void *arg) {
  Walk *w = arg;
  ExprNode n = *ir_node(c, e);
  if (ir_is_arith(n.kind) && dtype_is_float(n.type)) w->ops += 1;
  if (n.kind == IR_CALL && n.type.code == DT_FLOAT && n.sym != IN_IF_THEN_ELSE && n.sym != IN_LIKELY) w->ops += 8;
  if (n.kind == IR_SELECT) w->ops += 1, w->v->selects += 1;
  if (n.kind != IR_READ) return;
  const IrTensor t = *ir_tensor(c, n.sym);
  const TeOp *from = t.op;
  int stage = te_dag_op_of(c, w->v->s->dag, n.sym);
  ReadFacts a;
  memset(&a, 0, offsetof(ReadFacts, at));
  a.tensor = n.sym, a.rank = n.n < MAX_DIMS ? n.n : MAX_DIMS;
  Lanes at[MAX_DIMS];
  for (int d = 0; d < a.rank; d++) {
    if (w->v->lanes) lanes_of(w->v->lanes, ir_kid(c, e, d), &at[d]);
    Uses u = {.op = w->op, .linear = w->linear};
    ex_post_order(c, ir_kid(c, e, d), use_var, &u);
    a.linear[d] = u.linear;
    for (int i = 0; i < MAX_AXES && u.mask >> i; i++)
      if (u.mask >> i & 1) a.mask[d] |= w->map[i];
    if (!ex_const_int(c, t.shape[d], &a.dim[d])) a.dim[d] = 1;
  }
  if (stage >= 0 && w->v->s->stage.at[stage].at == AT_INLINED && w->depth < 8) {
    uint64_t map[MAX_AXES] = {0};
    bool linear = true;
    for (int d = 0; d < a.rank; d++) map[d] = a.mask[d], linear = linear && a.linear[d];
    walk_op(w->v, from, map, at, linear, w->depth + 1);
    return;
  }
  View *v = w->v;
  for (int i = 0; i < v->n_access; i++)
    if (v->access[i].tensor == a.tensor && memcmp(v->access[i].mask, a.mask, sizeof a.mask) == 0) return;
  if (v->n_access == FACT_READS) return;
  if (v->lanes) memory_at(v->s, stage, a.rank, a.dim, at, &a.at);
  v->access[v->n_access++] = a;
}

static void walk_op(View *v, const TeOp *op, const uint64_t *map, const Lanes *at, bool linear, int depth) {
  if (op->kind != TE_COMPUTE || (depth > 0 && op->n_in == 0)) return; /* constant tensors cost nothing */
  for (int i = 0; v->lanes && i < op->n_axis && i < (depth ? MAX_DIMS : MAX_AXES); i++)
    lanes_set(v->lanes, op->axis[i].var, &at[i]);
  for (int i = 0; v->lanes && depth == 0 && i < op->n_red && op->n_axis + i < MAX_AXES; i++)
    lanes_set(v->lanes, op->red[i].var, &at[op->n_axis + i]);
  Walk w = {.v = v, .op = op, .map = map, .linear = linear, .depth = depth};
  for (int i = 0; i < op->n_out; i++) {
    ExprId b = op->body[i];
    if (ir_kind(v->s->ctx, b) == IR_REDUCE) {
      const IrReduce *r = ir_reduce(v->s->ctx, b);
      int n = r->n_src;
      ExprId src[8];
      for (int k = 0; k < n && k < 8; k++) src[k] = r->src[k];
      for (int k = 0; k < n && k < 8; k++) ex_post_order(v->s->ctx, src[k], walk_expr, &w);
      w.ops += n;
    } else
      ex_post_order(v->s->ctx, b, walk_expr, &w);
  }
  v->ops += w.ops;
  for (int i = 0; v->lanes && i < op->n_axis; i++) lanes_set(v->lanes, op->axis[i].var, NULL);
}

/* ---- loops ---- */

/* stage_climb on numbers, without an expression in between. Root axes of a stage in the lanes of a warp: the stage's thread loops have the lane's numbers, other loops are 0. */
static void root_lanes(View *v, const Stage *g) {
  const State *s = v->s;
  Lanes *val = v->axis;
  for (int i = 0; i < MAX_AXES && i < g->n_root; i++) lanes_const(&v->root[i], 0);
  if (g->axes.len > MAX_LANE_AXES) return;
  for (int i = 0; i < g->axes.len; i++) lanes_const(&val[i], 0);
  for (int i = 0; i < g->leaf.len; i++) {
    const Axis *x = &g->axes.at[g->leaf.at[i]];
    if (x->ann >= AN_THREAD_X && v->thread[x->ann]) lanes_copy(&val[g->leaf.at[i]], v->thread[x->ann]);
  }
  for (int i = g->rels.len - 1; i >= 0; i--) {
    const Rel *r = &g->rels.at[i];
    int32_t by = r->kind <= REL_FUSE ? (int32_t)facts_extent(s, &g->axes.at[r->inner]) : 1;
    if (r->kind == REL_SPLIT) {
      lanes_by(IR_MUL, &val[r->outer], by, &val[r->parent]);
      lanes_bin(IR_ADD, &val[r->parent], &val[r->inner], &val[r->parent]);
    } else if (r->kind == REL_FUSE) {
      lanes_by(IR_FDIV, &val[r->parent], by, &val[r->outer]);
      lanes_by(IR_FMOD, &val[r->parent], by, &val[r->inner]);
    } else if (r->kind == REL_REBASE)
      lanes_copy(&val[r->parent], &val[r->outer]);
  }
  for (int i = 0; i < g->n_root && i < MAX_AXES; i++) {
    if (g->axes.at[i].min)
      lanes_of(v->lanes, g->axes.at[i].min, &v->root[i]);
    else
      lanes_const(&v->root[i], 0);
    lanes_bin(IR_ADD, &v->root[i], &val[i], &v->root[i]);
  }
}

/* One loop; on CPUs, where no lanes are asked for, a fused one as those that it was made of. */
static void add_loop(View *v, const Stage *g, int axis, Loop l, const uint64_t *mask) {
  for (int i = 0; i < g->rels.len && !v->lanes; i++) {
    const Rel *r = &g->rels.at[i];
    if (r->kind != REL_FUSE || r->parent != axis) continue;
    add_loop(v, g, r->outer, l, mask);
    add_loop(v, g, r->inner, l, mask);
    return;
  }
  if (v->n_loop == MAX_LOOPS) return;
  l.ext = facts_extent(v->s, &g->axes.at[axis]);
  l.mask = mask ? mask[axis] : ~0ull;
  v->loop[v->n_loop++] = l;
}
static void add_loops(View *v, int stage, int upto, bool own) {
  const Stage *g = &v->s->stage.at[stage];
  uint64_t mask[4096];
  bool known = g->axes.len <= NS_COUNT(mask);
  if (known) origins(g, mask);
  for (int i = 0; i <= upto && i < g->leaf.len; i++) {
    const Axis *x = &g->axes.at[g->leaf.at[i]];
    add_loop(v, g, g->leaf.at[i], (Loop){.kind = x->kind, .ann = x->ann, .own = own, .stage = stage},
             known ? mask : NULL);
  }
}
static void path(View *v, int stage, int depth) {
  const Stage *g = &v->s->stage.at[stage];
  if (g->at != AT_ITER || depth > 32) return;
  path(v, g->at_stage, depth + 1);
  add_loops(v, g->at_stage, g->at_iter, false);
}

void view_stage(View *v, State *s, int stage, LaneEnv *lanes) {
  memset(v, 0, offsetof(View, loop));
  v->ops = v->selects = 0;
  v->s = s, v->stage = stage, v->lanes = lanes;
  path(v, stage, 0);
  add_loops(v, stage, s->stage.at[stage].leaf.len - 1, true);
  uint64_t map[MAX_AXES];
  for (int i = 0; i < MAX_AXES; i++) map[i] = 1ull << i;
  const Stage *g = &s->stage.at[stage];
  if (lanes) {
    int64_t dim[MAX_DIMS];
    int rank = g->n_root_data < MAX_DIMS ? g->n_root_data : MAX_DIMS;
    root_lanes(v, g);
    for (int d = 0; d < rank; d++) dim[d] = te_const(s->ctx, g->op->axis[d].extent);
    memory_at(s, stage, rank, dim, v->root, &v->own);
  }
  walk_op(v, g->op, map, v->root, true, 0);
}

int facts_bytes(const State *s, TensorId t) { return dtype_bytes(ir_tensor(s->ctx, t)->type); }
ScopeKind facts_scope(const State *s, TensorId t) {
  int st = te_dag_op_of(s->ctx, s->dag, t);
  return st >= 0 ? s->stage.at[st].scope : SC_GLOBAL;
}
bool facts_reduces(const View *v) {
  for (int i = 0; i < v->n_loop; i++)
    if (v->loop[i].own && v->loop[i].kind != IT_SPACE) return true;
  return false;
}
double facts_region(const State *s, int stage) { /* elements of the stage's buffer */
  const Stage *g = &s->stage.at[stage];
  double n = 1;
  for (int i = 0; i < g->n_root_data; i++) n *= (double)facts_extent(s, &g->axes.at[i]);
  return n;
}

/* ---- all kernels ---- */

static void kernel_stages(Gpu *g, View *v, State *s, int stage, bool gpu, int depth) {
  const Stage *st = &s->stage.at[stage];
  if (gpu)
    facts_gpu_stage(g, v, s, stage);
  else
    facts_cpu_stage(g->t, g->k, v, s, stage);
  for (int i = 0; i < st->attached.len && depth < 32; i++)
    kernel_stages(g, v, s, attach_stage(st->attached.at[i]), gpu, depth + 1);
}

StateFacts state_facts(const Target *t, State *s) {
  StateFacts f = {0};
  bool on_gpu = t->kind != TG_CPU;
  View view, *v = &view; /* large, and most of it is never touched */
  Gpu gpu, *g = &gpu;
  memset(v->thread, 0, sizeof v->thread);
  if (on_gpu) g->lanes = lane_env(s->ctx);
  for (int i = 0; i < s->stage.len; i++) {
    const Stage *st = &s->stage.at[i];
    if (st->op->kind == TE_PLACEHOLDER || st->at != AT_ROOT) continue;
    KernelFacts k = {.blocks = 1, .threads = 1, .vthreads = 1, .shared_degree = 1};
    g->t = t, g->f = &f, g->k = &k;
    if (on_gpu) facts_gpu_begin(g, v, s, i);
    if (!on_gpu || !st->matrix || !facts_matrix(g, s, i)) kernel_stages(g, v, s, i, on_gpu, 0);
    if (on_gpu) facts_gpu_end(g);
    if (f.n < FACT_KERNELS) f.k[f.n++] = k;
  }
  if (on_gpu && !f.invalid) f.invalid = fit_text(gpu_fits(&t->hw, &(GpuNeeds){.vector_bytes = f.max_vector_bytes}));
  return f;
}
