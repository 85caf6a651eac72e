/* Closed forms over a bounded state: what its kernels will need and do, without lowering it.
 *
 * A kernel is a root stage with everything attached below it. Loop extents are known, so the number of threads, the bytes
 * of shared memory, the points computed and the elements moved follow by multiplication. Accesses are described by which
 * axes of the reading stage each index uses (inlined stages are looked through); a tile's footprint is the product over
 * dimensions of the range that its loops sweep. The limits of the GPU verifier are checked here too, so that most invalid
 * candidates cost no lowering; the verifier proper still has the last word before anything is built. Spec 04 §6.2, 03 §3.8.
 */
#include "search/space.h"
#include <math.h>
#include <string.h>

enum { MAX_AXES = 60, MAX_LOOPS = 192, MAX_DIMS = 8 };
typedef struct {
  int64_t ext;
  uint64_t mask;
  uint8_t kind, ann;
  bool own;
} Loop; /* mask: axes of the stage that the loop moves */
typedef struct {
  TensorId tensor;
  int rank;
  uint64_t mask[MAX_DIMS];
  int64_t dim[MAX_DIMS];
  bool linear[MAX_DIMS];
} Access;
typedef struct {
  State *s;
  int stage, n_loop, n_access;
  Loop loop[MAX_LOOPS]; /* enclosing loops first, then the stage's own; outermost first */
  Access access[FACT_READS];
  double ops;
} View;

static int64_t axis_ext(const State *s, const Axis *x) {
  int64_t v;
  if (x->extent && ex_const_int(s->ctx, x->extent, &v) && v > 0) return v;
  return x->ranged && x->sext > 0 ? x->sext : 1;
}

/* Which root axes each axis of a stage comes from. */
static void origins(const Stage *g, uint64_t *mask) {
  memset(mask, 0, sizeof(uint64_t) * (size_t)g->axes.len);
  for (int i = 0; i < g->n_root && i < MAX_AXES; i++) mask[i] = 1ull << i;
  for (int i = 0; i < g->rels.len; i++) {
    const Rel *r = &g->rels.at[i];
    if (r->kind == REL_SPLIT) mask[r->outer] |= mask[r->parent], mask[r->inner] |= mask[r->parent];
    if (r->kind == REL_FUSE) mask[r->parent] = mask[r->outer] | mask[r->inner];
    if (r->kind == REL_REBASE) mask[r->outer] |= mask[r->parent]; /* inner is not used */
  }
}

/* ---- accesses ---- */

typedef struct {
  const State *s;
  const TeOp *op;
  uint64_t mask;
  bool linear;
} Uses;
static void use_var(IrCtx *c, ExprId e, void *arg) {
  Uses *u = arg;
  ExprKind k = ir_kind(c, e);
  if (k == IR_FDIV || k == IR_FMOD || k == IR_DIV || k == IR_MOD || k == IR_READ || k == IR_SELECT || k == IR_CALL)
    u->linear = false;
  if (k != IR_VAR) return;
  VarId v = ir_node(c, e)->sym;
  for (int i = 0; i < u->op->n_axis + u->op->n_red && i < MAX_AXES; i++)
    if ((i < u->op->n_axis ? u->op->axis[i].var : u->op->red[i - u->op->n_axis].var) == v) u->mask |= 1ull << i;
}

typedef struct {
  View *v;
  const TeOp *op;
  const uint64_t *map;
  bool linear;
  double ops;
  int depth;
} Walk; /* map: axes of op -> axes of the stage */
static void walk_op(View *v, const TeOp *op, const uint64_t *map, bool linear, int depth);

static void walk_expr(IrCtx *c, ExprId e, void *arg) {
  Walk *w = arg;
  ExprNode n = *ir_node(c, e);
  if (n.kind >= IR_ADD && n.kind <= IR_MAX && (n.type.code == DT_FLOAT || n.type.code == DT_BFLOAT)) w->ops += 1;
  if (n.kind == IR_CALL && n.type.code == DT_FLOAT && n.sym != IN_IF_THEN_ELSE && n.sym != IN_LIKELY) w->ops += 8;
  if (n.kind == IR_SELECT) w->ops += 1;
  if (n.kind != IR_READ) return;
  const IrTensor t = *ir_tensor(c, n.sym);
  const TeOp *from = t.op;
  int stage = te_dag_op_of(c, w->v->s->dag, n.sym);
  Access a = {.tensor = n.sym, .rank = n.n < MAX_DIMS ? n.n : MAX_DIMS};
  for (int d = 0; d < a.rank; d++) {
    Uses u = {.s = w->v->s, .op = w->op, .linear = w->linear};
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
    walk_op(w->v, from, map, linear, w->depth + 1);
    return;
  }
  View *v = w->v;
  for (int i = 0; i < v->n_access; i++)
    if (v->access[i].tensor == a.tensor && memcmp(v->access[i].mask, a.mask, sizeof a.mask) == 0) return;
  if (v->n_access < FACT_READS) v->access[v->n_access++] = a;
}

static void walk_op(View *v, const TeOp *op, const uint64_t *map, bool linear, int depth) {
  if (op->kind != TE_COMPUTE || (depth > 0 && op->n_in == 0)) return; /* constant tensors cost nothing */
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
}

/* ---- loops ---- */

static void add_loops(View *v, int stage, int upto, bool own) {
  const Stage *g = &v->s->stage.at[stage];
  uint64_t mask[4096];
  bool known = own && g->axes.len <= 4096;
  if (known)
    origins(g, mask);
  else if (g->axes.len <= 4096)
    origins(g, mask);
  for (int i = 0; i <= upto && i < g->leaf.len && v->n_loop < MAX_LOOPS; i++) {
    const Axis *x = &g->axes.at[g->leaf.at[i]];
    uint64_t m = g->axes.len <= 4096 ? mask[g->leaf.at[i]] : ~0ull;
    v->loop[v->n_loop++] = (Loop){axis_ext(v->s, x), m, x->kind, x->ann, own};
  }
}
static void path(View *v, int stage, int depth) {
  const Stage *g = &v->s->stage.at[stage];
  if (g->at != AT_ITER || depth > 32) return;
  path(v, g->at_stage, depth + 1);
  add_loops(v, g->at_stage, g->at_iter, false);
}

static void view_stage(View *v, State *s, int stage) {
  memset(v, 0, offsetof(View, loop));
  v->n_access = 0, v->ops = 0;
  v->s = s, v->stage = stage;
  path(v, stage, 0);
  add_loops(v, stage, s->stage.at[stage].leaf.len - 1, true);
  uint64_t map[MAX_AXES];
  for (int i = 0; i < MAX_AXES; i++) map[i] = 1ull << i;
  walk_op(v, s->stage.at[stage].op, map, true, 0);
}

static bool is_block(int ann) { return ann == AN_BLOCK_X || ann == AN_BLOCK_Y || ann == AN_BLOCK_Z; }
static bool is_thread(int ann) { return ann == AN_THREAD_X || ann == AN_THREAD_Y || ann == AN_THREAD_Z; }

/* Elements of the accessed tensor that loops from..end sweep. */
static double footprint(const View *v, const Access *a, int from) {
  double range[MAX_AXES], total = 1;
  for (int i = 0; i < MAX_AXES; i++) range[i] = 1;
  for (int i = from; i < v->n_loop; i++)
    if (v->loop[i].own)
      for (int b = 0; b < MAX_AXES && v->loop[i].mask >> b; b++)
        if (v->loop[i].mask >> b & 1) range[b] *= (double)v->loop[i].ext;
  for (int d = 0; d < a->rank; d++) {
    double sum = 1, prod = 1;
    for (int b = 0; b < MAX_AXES && a->mask[d] >> b; b++)
      if (a->mask[d] >> b & 1) sum += range[b] - 1, prod *= range[b];
    double cover = a->linear[d] ? sum : prod;
    total *= cover < (double)a->dim[d] ? cover : (double)a->dim[d];
  }
  return total;
}

static int elem_bytes(const State *s, TensorId t) { return dtype_bytes(ir_tensor(s->ctx, t)->type); }
static ScopeKind scope_of(const State *s, TensorId t) {
  int st = te_dag_op_of(s->ctx, s->dag, t);
  return st >= 0 ? s->stage.at[st].scope : SC_GLOBAL;
}
static double region(const State *s, int stage) { /* elements of the stage's buffer */
  const Stage *g = &s->stage.at[stage];
  double n = 1;
  for (int i = 0; i < g->n_root_data; i++) n *= (double)axis_ext(s, &g->axes.at[i]);
  return n;
}

/* ---- GPU ---- */

/* Share of the bytes in touched 32-byte sectors that are asked for, when neighbours in `run` consecutive elements are read. */
static double sector_use(double run_bytes) {
  double sectors = ceil(run_bytes / 32) + (fmod(run_bytes, 32) != 0 ? 0.5 : 0);
  double u = run_bytes / (32 * sectors);
  return u > 1 ? 1 : u;
}

/* Consecutive elements that one row of a tile holds: the innermost dimensions as long as they are whole. */
static double tile_run(const State *s, int stage) {
  const Stage *g = &s->stage.at[stage];
  double run = 1;
  for (int i = g->n_root_data - 1; i >= 0; i--) {
    int64_t e = axis_ext(s, &g->axes.at[i]), full = te_const(s->ctx, g->op->axis[i].extent);
    run *= (double)e;
    if (e < full) break;
  }
  return run;
}

/* Bytes moved from global memory when neighbouring threads run neighbouring points of the stage. */
static double direct_bytes(const View *v, const Access *a, double points) {
  int n_axis = v->s->stage.at[v->stage].op->n_axis, bytes = elem_bytes(v->s, a->tensor);
  uint64_t lane = 0, fast = 0;
  for (int i = 0; i < v->n_loop; i++)
    if (v->loop[i].own && is_thread(v->loop[i].ann)) lane |= v->loop[i].mask;
  for (int b = MAX_AXES - 1; b >= 0 && !fast; b--)
    if (lane >> b & 1) fast = 1ull << b; /* the last axis of a fused thread loop moves fastest */
  (void)n_axis;
  uint64_t all = 0;
  for (int d = 0; d < a->rank; d++) all |= a->mask[d];
  if (a->rank == 0 || !(all & fast)) return points * bytes / 32; /* broadcast in the warp */
  return (a->mask[a->rank - 1] & fast) && a->linear[a->rank - 1] ? points * bytes : points * 32;
}

typedef struct {
  const SearchTask *t;
  StateFacts *f;
  KernelFacts *k;
} Gpu;

static void limit(Gpu *g, bool bad, const char *why) {
  if (bad && !g->f->invalid) g->f->invalid = why;
}

/* The multiply-add stage of a tiled kernel: how often values are taken from shared memory, and registers held. */
static void gpu_compute(Gpu *g, const View *v, double points) {
  KernelFacts *k = g->k;
  int n = v->n_loop, tile = n;
  while (tile > 0 && v->loop[tile - 1].own && v->loop[tile - 1].kind == IT_SPACE) tile--;
  double reg[MAX_AXES], lane[MAX_AXES];
  for (int i = 0; i < MAX_AXES; i++) reg[i] = lane[i] = 1;
  for (int i = 0; i < n; i++) {
    bool vt = v->loop[i].ann == AN_VTHREAD;
    if ((i >= tile && v->loop[i].own) || vt)
      for (int b = 0; b < MAX_AXES; b++)
        if (v->loop[i].mask >> b & 1)
          reg[b] *= vt ? 1 : (double)v->loop[i].ext; /* a fused vthread loop is not assigned to one axis */
  }
  for (int i = 0; i < v->n_access; i++) {
    const Access *a = &v->access[i];
    uint64_t all = 0;
    for (int d = 0; d < a->rank; d++) all |= a->mask[d];
    double reuse = 1, inner = 1;
    int n_axis = v->s->stage.at[v->stage].op->n_axis;
    for (int b = 0; b < n_axis; b++)
      if (!(all >> b & 1)) reuse *= reg[b];
    if (scope_of(v->s, a->tensor) == SC_SHARED) {
      k->shared_reads += points / reuse;
      for (int b = 0; a->rank > 0 && b < n_axis; b++)
        if (a->mask[a->rank - 1] >> b & 1) inner *= reg[b];
      double degree = (all >> (n_axis - 1) & 1) ? (double)i64_gcd((int64_t)inner, 32) : 1;
      if (degree > 4) degree = 4; /* wide loads hide part of it */
      k->shared_degree = fmax(k->shared_degree, degree);
    } else
      k->global_bytes += direct_bytes(v, a, points / reuse);
  }
}

static void gpu_stage(Gpu *g, View *v, State *s, int stage) {
  KernelFacts *k = g->k;
  const Stage *st = &s->stage.at[stage];
  view_stage(v, s, stage);
  bool shared = st->scope == SC_SHARED, path_thread = false;
  double execs = 1, threads = 1, blocks = 1, vthreads = 1, serial = 1, vec = 1;
  for (int i = 0; i < v->n_loop; i++) {
    const Loop *l = &v->loop[i];
    if (!l->own && is_thread(l->ann)) path_thread = true;
    if (l->ann == AN_VECTORIZE) vec *= (double)l->ext;
    if (is_block(l->ann))
      blocks *= (double)l->ext;
    else if (l->own && is_thread(l->ann))
      threads *= (double)l->ext;
    else if (l->ann == AN_VTHREAD)
      vthreads *= (double)l->ext;
    else if (!is_thread(l->ann))
      serial *= (double)l->ext;
  }
  if (threads > 1 || (st->at == AT_ROOT && threads >= 1)) {
    if (k->threads > 1 && threads > 1 && threads != k->threads) limit(g, true, "threads differ inside a kernel");
    k->threads = fmax(k->threads, threads);
  }
  if (st->at == AT_ROOT) k->blocks = blocks;
  k->vthreads = fmax(k->vthreads, vthreads);
  double bytes = (double)elem_bytes(s, st->op->out[0]) * st->op->n_out, own = region(s, stage);
  if (shared)
    k->shared_bytes += own * bytes;
  else if (st->scope == SC_LOCAL || st->at == AT_ITER)
    k->local_elems += own * vthreads * fmax(1, bytes / 4);
  g->f->max_vector_bytes = fmax(g->f->max_vector_bytes, vec > 1 ? vec * bytes : 0);
  execs = shared ? blocks * serial * threads : blocks * serial * vthreads * (path_thread ? k->threads : threads);
  k->ops += execs * v->ops;
  if (shared) {
    double per_fill = own, fills = execs / fmax(1, own);
    double use = sector_use(tile_run(s, stage) * bytes);
    for (int i = 0; i < v->n_access; i++)
      k->global_bytes += per_fill * fills * elem_bytes(s, v->access[i].tensor) / use * (vec > 1 ? 1 : 1.15);
    k->barriers += 2 * fills / fmax(1, blocks);
    if (vec == 1) k->ops += execs * 4; /* index work of scalar fills */
    return;
  }
  if (st->scope == SC_LOCAL) {
    k->tiled = true;
    gpu_compute(g, v, execs);
    return;
  }
  for (int i = 0; i < v->n_access; i++) {
    ScopeKind sc = scope_of(s, v->access[i].tensor);
    if (sc == SC_GLOBAL || sc == SC_AUTO) {
      int p = te_dag_op_of(s->ctx, s->dag, v->access[i].tensor);
      if (p >= 0 && s->stage.at[p].at == AT_ITER) continue;
      k->global_bytes += direct_bytes(v, &v->access[i], execs);
    }
  }
  if (st->at == AT_ROOT) k->global_bytes += own * bytes * (k->tiled && vthreads > 1 ? 1.0 : 1.0);
}

/* ---- CPU ---- */

enum { L1 = 32 << 10, L2 = 1 << 20 };

static void cpu_stage(KernelFacts *k, View *v, State *s, int stage) {
  const Stage *st = &s->stage.at[stage];
  view_stage(v, s, stage);
  double execs = 1, par = 1, vec = 1, inner = 1;
  for (int i = 0; i < v->n_loop; i++) {
    const Loop *l = &v->loop[i];
    execs *= (double)l->ext;
    if (l->ann == AN_PARALLEL) par *= (double)l->ext;
    if (l->ann == AN_VECTORIZE) vec *= (double)l->ext;
  }
  if (st->at == AT_ROOT || par > 1) k->blocks = fmax(k->blocks, par);
  int bytes = elem_bytes(s, st->op->out[0]);
  double lanes = vec > 1 ? fmin(vec, 64.0 / bytes) : 1;
  /* The compiler unrolls and keeps the innermost spatial loops in registers. */
  int tile = v->n_loop;
  while (tile > 0 && v->loop[tile - 1].own && v->loop[tile - 1].kind == IT_SPACE) inner *= (double)v->loop[--tile].ext;
  double vectors = inner / lanes, spill = vectors > 24 ? 1 + (vectors - 24) / 24 : 1,
         latency = sp_has_reduce(s, stage) ? fmax(1, 8 / fmax(1, vectors)) : 1;
  double unrolled = 1;
  int64_t row = 1;
  for (int i = 0; i < v->n_loop; i++) {
    const Loop *l = &v->loop[i];
    if (l->own && l->ann == AN_UNROLL)
      unrolled *= (double)l->ext;
    else if (l->own && l->kind == IT_SPACE)
      row = l->ext; /* the innermost loop around the unrolled ones */
  }
  if (unrolled > 16 &&
      vec == 1) { /* constant matrices: half of the products vanish, loops around straight code become vectors */
    int64_t w = 64 / bytes;
    while (w > 1 && row % w) w /= 2;
    k->ops += execs * 0.6 / (w >= 4 ? (double)w : 1);
    k->global_bytes += region(s, stage) * bytes * (st->at == AT_ITER ? 0.1 : 2);
    return;
  }
  double cost = execs * fmax(v->ops, 1) / lanes * fmin(spill, 3) * fmin(latency, 4);
  for (int i = 0; i < v->n_access; i++) {
    const Access *a = &v->access[i];
    int b = elem_bytes(s, a->tensor);
    uint64_t all = 0, fast = 0;
    for (int d = 0; d < a->rank; d++) all |= a->mask[d];
    for (int j = v->n_loop - 1; j >= 0 && !fast; j--)
      if (v->loop[j].ext > 1) fast = v->loop[j].mask;
    bool gather = vec > 1 && a->rank > 0 && (all & fast) && !(a->mask[a->rank - 1] & fast);
    if (gather) cost += execs * 1.0;
    double touched = execs, fetched = execs * b; /* loads from L1 after register reuse; bytes from beyond L2 */
    double foot = footprint(v, a, tile);
    touched = execs / inner * (gather ? foot : foot / ((a->mask[a->rank > 0 ? a->rank - 1 : 0] & fast) ? lanes : 1));
    cost += 0.5 * touched;
    double outer = 1;
    for (int j = 0; j < v->n_loop; j++) {
      if (footprint(v, a, j) * b <= L2 / 4) {
        fetched = outer * footprint(v, a, j) * b;
        break;
      }
      outer *= (double)v->loop[j].ext;
    }
    k->global_bytes += fetched;
  }
  k->global_bytes += region(s, stage) * bytes * (st->at == AT_ITER ? 0.1 : 1);
  k->ops += cost;
}

/* ---- all kernels ---- */

static void kernel_stages(Gpu *g, View *v, State *s, int stage, bool gpu, int depth) {
  const Stage *st = &s->stage.at[stage];
  if (gpu)
    gpu_stage(g, v, s, stage);
  else
    cpu_stage(g->k, v, s, stage);
  for (int i = 0; i < st->attached.len && depth < 32; i++)
    kernel_stages(g, v, s, st->attached.at[i] & 0xffff, gpu, depth + 1);
}

StateFacts state_facts(const SearchTask *t, State *s) {
  StateFacts f = {0};
  View *v = arena_new_of(ir_arena(s->ctx), View);
  const HwParams *hw = &t->target.hw;
  for (int i = 0; i < s->stage.len; i++) {
    const Stage *st = &s->stage.at[i];
    if (st->op->kind == TE_PLACEHOLDER || st->at != AT_ROOT) continue;
    KernelFacts k = {.blocks = 1, .threads = 1, .vthreads = 1, .shared_degree = 1};
    Gpu g = {t, &f, &k};
    kernel_stages(&g, v, s, i, t->gpu, 0);
    if (t->gpu) {
      limit(&g, k.threads > hw->max_threads_per_block, "threads per block");
      limit(&g, k.shared_bytes > (double)hw->max_shared_memory_per_block, "shared memory per block");
      limit(&g, k.local_elems * 4 > (double)hw->max_local_memory_per_block, "local memory per block");
      limit(&g, k.vthreads > hw->max_vthread_extent, "virtual threads");
    }
    if (f.n < FACT_KERNELS) f.k[f.n++] = k;
  }
  if (t->gpu && f.max_vector_bytes > hw->vector_unit_bytes) f.invalid = "vector width";
  return f;
}
