/* Closed forms of GPU kernels.
 *
 * Threads, bytes and points follow by multiplication from the loops. How a warp's accesses fall into sectors of global
 * memory and into banks of shared memory is not estimated but computed: the element that each of the first 32 threads
 * touches follows from the split and fuse relations and the index expressions, divisions included. Spec 04 §6.2.
 */
#include "model/facts.h"
#include "model/model.h"
#include <math.h>
#include <string.h>

static void limit(Gpu *g, const char *why) { /* NULL: none is broken */
  if (!g->f->invalid) g->f->invalid = why;
}

/* ---- a kernel ---- */
static const uint8_t AXIS[] = {AN_THREAD_X, AN_THREAD_Y, AN_THREAD_Z};

/* Threads that the stages of a kernel bind; each may bind some of the directions. */
static void find_threads(Gpu *g, const State *s, int stage, int depth) {
  const Stage *st = &s->stage.at[stage];
  for (int i = 0; i < st->leaf.len; i++)
    for (int k = 0; k < 3; k++) {
      const Axis *x = &st->axes.at[st->leaf.at[i]];
      int64_t e = x->ann == AXIS[k] ? facts_extent(s, x) : 1;
      if (e > 1 && g->ext[k] > 1 && e != g->ext[k]) limit(g, "threads differ inside a kernel");
      if (g->ext[k] == 1) g->ext[k] = e;
    }
  for (int i = 0; i < st->attached.len && depth < 32; i++)
    find_threads(g, s, attach_stage(st->attached.at[i]), depth + 1);
}

void facts_gpu_begin(Gpu *g, View *v, State *s, int stage) {
  const Stage *st = &s->stage.at[stage];
  int64_t *ext = g->ext;
  for (int k = 0; k < 3; k++) ext[k] = 1;
  find_threads(g, s, stage, 0);
  g->k->threads = (double)ext[0] * (double)ext[1] * (double)ext[2];
  g->n_seen = 0;
  int64_t below = 1;
  for (int k = 0; k < 3; k++) {
    Lanes *l = &g->thread[k];
    l->same = ext[k] == 1;
    l->at[0] = 0;
    for (int i = 0; i < LANES && !l->same; i++) l->at[i] = (int32_t)(i / below % ext[k]);
    if (!i64_mul(below, ext[k], &below)) below = INT64_MAX;
    v->thread[AXIS[k]] = l;
  }
  g->n_lanes = below < LANES ? (int)below : LANES;
  for (int i = 0; i < st->leaf.len; i++) {
    const Axis *x = &st->axes.at[st->leaf.at[i]];
    for (int k = 0; k < 3; k++)
      if (x->ann == AXIS[k])
        lanes_set(&g->lanes, x->var, &g->thread[k]), lanes_set(&g->lanes, x->thread_obj, &g->thread[k]);
  }
}

void facts_gpu_end(Gpu *g) {
  KernelFacts *k = g->k;
  k->shared_degree = gpu_mean(&k->mem.read_degree, 1);
  GpuNeeds need = {.vthread = k->vthreads,
                   .threads = k->threads,
                   .local_bytes = k->local_elems * 4,
                   .shared_bytes = k->shared_bytes};
  HwParams hw = k->matrix_bytes ? gpu_matrix_limits(g->t) : g->t->hw;
  limit(g, fit_text(gpu_fits(&hw, &need)));
}

/* ---- accesses ---- */
static void addresses(const Lanes *l, int bytes, int64_t *at) {
  for (int i = 0; i < LANES; i++) at[i] = (int64_t)l->at[l->same ? 0 : i] * bytes;
}

/* `elements` of a tensor in global memory, `width` neighbours by one access of a lane. */
static void global_access(Gpu *g, const View *v, TensorId t, const Lanes *l, bool write, int width, double elements) {
  int bytes = facts_bytes(v->s, t), seen = 0;
  int64_t at[LANES];
  addresses(l, bytes, at);
  g->k->global_bytes +=
      gpu_global_access(&g->k->mem, write, g->n_lanes, at, bytes * width, elements / (g->n_lanes * width));
  while (seen < g->n_seen && g->seen[seen] != t) seen++;
  if (seen < g->n_seen || g->n_seen == FACT_READS) return;
  g->seen[g->n_seen++] = t;
  int64_t all = te_bytes(v->s->ctx, t);
  g->k->unique_bytes += fmin(all < 0 ? INFINITY : (double)all, elements * bytes);
}

static void shared_access(Gpu *g, const View *v, TensorId t, const Lanes *l, bool write, int width, double elements) {
  int bytes = facts_bytes(v->s, t);
  int64_t at[LANES];
  addresses(l, bytes, at);
  gpu_shared_access(&g->k->mem, write, g->n_lanes, at, bytes * width, elements / (g->n_lanes * width));
}

/* Neighbouring elements of a tile that a thread reads one after the other; the compiler makes one load of up to 16 bytes. */
static int wide(const View *v, const ReadFacts *a, const double *run) {
  if (a->rank == 0 || !a->linear[a->rank - 1]) return 1;
  int p = te_dag_op_of(v->s->ctx, v->s->dag, a->tensor), last = a->rank - 1, most = 16 / facts_bytes(v->s, a->tensor);
  double inner = 1;
  for (int b = 0; b < MAX_AXES && a->mask[last] >> b; b++)
    if (a->mask[last] >> b & 1) inner *= run[b];
  int64_t w = i64_gcd((int64_t)inner, most > 0 ? most : 1);
  if (p >= 0) w = i64_gcd(w, facts_extent(v->s, &v->s->stage.at[p].axes.at[last]));
  return w > 0 ? (int)w : 1;
}

static bool small_float(const State *s, TensorId t) {
  DType d = ir_tensor(s->ctx, t)->type;
  return d.bits == 16 ? dtype_is_float(d) : d.bits == 8;
}

/* The multiply-add stage of a tiled kernel: how often values are taken from shared memory. */
static void compute(Gpu *g, const View *v, double points) {
  KernelFacts *k = g->k;
  int n = v->n_loop, tile = n, n_axis = v->s->stage.at[v->stage].op->n_axis, small = 0;
  while (tile > 0 && v->loop[tile - 1].own && v->loop[tile - 1].kind == IT_SPACE) tile--;
  double reg[MAX_AXES], run[MAX_AXES];
  for (int i = 0; i < MAX_AXES; i++) reg[i] = run[i] = 1;
  for (int i = 0; i < n; i++) {
    const Loop *l = &v->loop[i];
    if (!l->own || l->ann == AN_VTHREAD) continue;
    for (int b = 0; b < MAX_AXES && l->mask >> b; b++) {
      if (!(l->mask >> b & 1)) continue;
      if (i >= tile)
        reg[b] *= (double)l->ext, run[b] *= (double)l->ext;
      else if (l->kind == IT_REDUCE)
        run[b] = (double)l->ext; /* the innermost of its loops */
    }
  }
  for (int i = 0; i < v->n_access; i++) {
    const ReadFacts *a = &v->access[i];
    uint64_t all = 0;
    for (int d = 0; d < a->rank; d++) all |= a->mask[d];
    double reuse = 1;
    for (int b = 0; b < n_axis && b < MAX_AXES; b++)
      if (!(all >> b & 1)) reuse *= reg[b];
    small += small_float(v->s, a->tensor);
    if (facts_scope(v->s, a->tensor) == SC_SHARED) {
      k->shared_reads += points / reuse;
      shared_access(g, v, a->tensor, &a->at, false, wide(v, a, run), points / reuse);
    } else
      global_access(g, v, a->tensor, &a->at, false, 1, points / reuse);
  }
  if (small >= 2 && facts_reduces(v)) k->matrix_possible = true;
}

/* Is the next slice filled into a second copy while the block works on this one? There must be a next one. */
static bool doubled(const View *v) {
  bool again = false;
  for (int i = 0; i < v->n_loop; i++) again |= !v->loop[i].own && v->loop[i].kind == IT_REDUCE && v->loop[i].ext > 1;
  return again && v->s->stage.at[v->stage].double_buffer;
}

/* A copy into shared memory by all threads. */
static void fill(Gpu *g, const View *v, double elements, double blocks, int vec) {
  KernelFacts *k = g->k;
  const Stage *st = &v->s->stage.at[v->stage];
  double own = facts_region(v->s, v->stage);
  for (int i = 0; i < v->n_access; i++) {
    global_access(g, v, v->access[i].tensor, &v->access[i].at, false, vec, elements);
    k->mem.fill_bytes += elements * facts_bytes(v->s, v->access[i].tensor);
  }
  shared_access(g, v, st->op->out[0], &v->own, true, vec, elements);
  k->barriers += (doubled(v) ? 1 : 2) * elements / fmax(1, own) / fmax(1, blocks);
  k->stages = fmax(k->stages, doubled(v) ? 2 : 1);
  if (vec == 1) k->ops += elements * 4; /* index work of scalar fills */
}

/* ---- sums that threads share ---- */

/* Threads along the data axes of a stage: each has its part of what the stage keeps. */
static double data_threads(const View *v) {
  double n = 1;
  for (int i = 0; i < v->n_loop; i++)
    if (v->loop[i].own && ann_is_thread(v->loop[i].ann) && v->loop[i].kind == IT_SPACE) n *= (double)v->loop[i].ext;
  return n;
}

/* Columns of threads combine their parts in shared memory, in halves; rows of up to a warp do so without (lower/allreduce.c). */
static double halving_barriers(const View *v) {
  for (int i = 0; i < v->n_loop; i++)
    if (v->loop[i].own && v->loop[i].kind == IT_REDUCE && v->loop[i].ann == AN_THREAD_Y && v->loop[i].ext > 1)
      return 2 + ceil(log2((double)v->loop[i].ext));
  return 0;
}

/* ---- a stage ---- */
void facts_gpu_stage(Gpu *g, View *v, State *s, int stage) {
  KernelFacts *k = g->k;
  const Stage *st = &s->stage.at[stage];
  view_stage(v, s, stage, &g->lanes);
  bool shared = st->scope == SC_SHARED, path_thread = false;
  double execs = 1, threads = 1, blocks = 1, vthreads = 1, serial = 1, vec = 1;
  for (int i = 0; i < v->n_loop; i++) {
    const Loop *l = &v->loop[i];
    if (!l->own && ann_is_thread(l->ann)) path_thread = true;
    if (l->ann == AN_VECTORIZE) vec *= (double)l->ext;
    if (ann_is_block(l->ann))
      blocks *= (double)l->ext;
    else if (l->own && ann_is_thread(l->ann))
      threads *= (double)l->ext;
    else if (l->ann == AN_VTHREAD)
      vthreads *= (double)l->ext;
    else if (!ann_is_thread(l->ann))
      serial *= (double)l->ext;
  }
  if (st->at == AT_ROOT) k->blocks = blocks;
  k->vthreads = fmax(k->vthreads, vthreads);
  double bytes = (double)facts_bytes(s, st->op->out[0]) * st->op->n_out, own = facts_region(s, stage);
  if (shared)
    k->shared_bytes += own * bytes * (doubled(v) ? 2 : 1);
  else if (st->scope == SC_LOCAL || st->at == AT_ITER)
    k->local_elems += own / data_threads(v) * vthreads * fmax(1, bytes / 4);
  g->f->max_vector_bytes = fmax(g->f->max_vector_bytes, vec > 1 ? vec * bytes : 0);
  execs = shared ? blocks * serial * threads : blocks * serial * vthreads * (path_thread ? k->threads : threads);
  k->ops += execs * v->ops;
  k->barriers += halving_barriers(v);
  if (shared) {
    fill(g, v, execs, blocks, (int)fmin(vec, 4));
    return;
  }
  if (st->scope == SC_LOCAL) {
    compute(g, v, execs);
    return;
  }
  for (int i = 0; i < v->n_access; i++) {
    ScopeKind sc = facts_scope(s, v->access[i].tensor);
    if (sc != SC_GLOBAL && sc != SC_AUTO) continue;
    int p = te_dag_op_of(s->ctx, s->dag, v->access[i].tensor);
    if (p < 0 || s->stage.at[p].at != AT_ITER)
      global_access(g, v, v->access[i].tensor, &v->access[i].at, false, 1, execs);
  }
  if (st->at == AT_ROOT) global_access(g, v, st->op->out[0], &v->own, true, 1, own * st->op->n_out);
}

/* ---- the state as a vector ---- */
void facts_vector(const Target *t, const StateFacts *f, float *out) {
  double seconds = estimate_seconds(t, f);
  if (!isfinite(seconds)) seconds = 1;
  memset(out, 0, sizeof *out * STATE_N);
  if (t->kind == TG_CPU)
    out[STATE_TIME] = (float)log2(seconds * 1e9 + 1);
  else
    gpu_state_vector(&t->gpu, f->n, f->k, seconds, out);
}
