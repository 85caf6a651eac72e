/* The last transform of a Winograd layer in the kernel that reads it (GPU, extended mode). It makes a tile of m x m outputs of one channel
 * from (m + 2) x (m + 2) products. A reader that goes tile by tile has each thread make its own, in registers, so that the layer is not
 * written and read once more, and bias, residual and activation are computed where it is. So is a pool whose windows lie side by side, if
 * they divide the tile. (ResNet-18 158.8 to 152.8 us, VGG-16 608 to 552 us, no layer slower: an H100. Other GPUs have not been measured.) */
#include "search/space.h"

enum { MOST_AXES = 8 };
/* Of each axis of a stage: elements that lie in one tile; 0: it leads from tile to tile */
typedef int64_t Tile[MOST_AXES];

static const TeEdge *single_read(const State *s, int from, int to) {
  const TeEdge *e = NULL;
  for (int k = 0; k < s->dag->n_edges; k++)
    if (s->dag->edge[k].producer == from && s->dag->edge[k].consumer == to) e = &s->dag->edge[k];
  return e && e->n_access == 1 && s->dag->op[to]->n_axis <= MOST_AXES ? e : NULL;
}

static bool is_axis(const State *s, ExprId e, const TeAxis *x) {
  return ir_kind(s->ctx, e) == IR_VAR && ir_node(s->ctx, e)->sym == x->var;
}

/* The tile of the operation that picks a stage's elements out of tiles: its indices are axes modulo m where those of the stage are unrolled. */
static bool tile_of_picker(const State *s, int stage, int picker, int64_t *tile) {
  const TeOp *from = s->dag->op[stage], *to = s->dag->op[picker];
  const TeEdge *read = single_read(s, stage, picker);
  int inside = 0, found = 0;
  for (int i = 0; i < MOST_AXES; i++) tile[i] = 0;
  for (int k = 0; read && k < from->n_axis; k++) {
    if (!sp_names(s, stage, TE_CONST_AXES, from->axis[k].name)) continue;
    ExprId at = read->index[0][k];
    int64_t m;
    if (ir_kind(s->ctx, at) != IR_FMOD || !ex_const_int(s->ctx, ir_kid(s->ctx, at, 1), &m)) return false;
    inside++;
    for (int i = 0; i < to->n_axis && m == te_const(s->ctx, from->axis[k].extent); i++)
      if (is_axis(s, ir_kid(s->ctx, at, 0), &to->axis[i]) && !tile[i]) tile[i] = m, found++;
  }
  return found > 0 && found == inside;
}

/* Whether an index is axis * width + term for a window of that width, side by side with its neighbours. */
static bool is_window(const State *s, ExprId e, const TeAxis *axis, const TeAxis *term, int64_t *width) {
  const IrCtx *c = s->ctx;
  if (ir_kind(c, e) != IR_ADD || ir_kind(c, ir_kid(c, e, 0)) != IR_MUL) return false;
  ExprId scaled = ir_kid(c, e, 0);
  return is_axis(s, ir_kid(c, scaled, 0), axis) && is_axis(s, ir_kid(c, e, 1), term) &&
         ex_const_int(c, ir_kid(c, scaled, 1), width) && te_const(c, term->extent) == *width;
}

/* The tile of a pool from that of what it reads; false: its windows do not lie in tiles, or it leaves something out. */
static bool tile_of_pool(const State *s, int from, int pool, int64_t *tile) {
  const TeOp *op = s->dag->op[pool], *source = s->dag->op[from];
  const TeEdge *read = single_read(s, from, pool);
  int windows = 0;
  if (!read || read->rank != op->n_axis) return false;
  for (int i = 0; i < op->n_axis; i++) {
    int64_t width = 0, extent = te_const(s->ctx, source->axis[i].extent);
    if (is_axis(s, read->index[0][i], &op->axis[i])) continue;
    for (int k = 0; k < op->n_red && !width; k++)
      if (!is_window(s, read->index[0][i], &op->axis[i], &op->red[k], &width)) width = 0;
    if (width <= 0 || !tile[i] || tile[i] % width != 0 || extent != width * te_const(s->ctx, op->axis[i].extent))
      return false;
    tile[i] /= width;
    windows++;
  }
  return windows == op->n_red;
}

/* Whether each operation from one to the other reads the element that it computes, and no neighbour of it. */
static bool by_elements(const State *s, int from, int to) {
  if (from == to) return true;
  if (!te_elementwise_match(s->ctx, s->dag, from, to, true)) return false;
  for (int k = 0; k < s->dag->n_edges; k++) {
    const TeEdge *e = &s->dag->edge[k];
    const TeOp *op = s->dag->op[e->consumer];
    if (e->consumer > to || (e->producer != from && !te_elementwise_match(s->ctx, s->dag, from, e->producer, true)))
      continue;
    for (int t = 0; t < e->n_access; t++)
      for (int i = 0; i < e->rank; i++)
        if (!is_axis(s, e->index[t][i], &op->axis[i])) return false;
  }
  return true;
}

/* What the reader reads directly, where that is `picker` or follows from it element by element; else -1. */
static int end_of_elements(const State *s, int picker, int reader) {
  int found = -1;
  for (int k = 0; k < s->dag->n_edges; k++) {
    int p = s->dag->edge[k].producer;
    if (s->dag->edge[k].consumer != reader || !by_elements(s, picker, p)) continue;
    if (found >= 0) return -1;
    found = p;
  }
  return found;
}

/* The stage that the transform's only reader ends in, if nothing has been done to it; else -1. */
static int reader_of(const State *s, int stage, int64_t *tile) {
  int picker, t = sp_single_consumer(s, stage);
  if (!sp_has_attr(s, stage, TE_CONST_AXES) || !sp_has_reduce(s, stage) || t < 0) return -1;
  if (te_consumers(s->dag, stage, NULL) != 1 || te_consumers(s->dag, stage, &picker) != 1) return -1;
  const Stage *g = &s->stage.at[t];
  if (g->at != AT_ROOT || g->attached.len > 0 || g->rels.len > 0 || !tile_of_picker(s, stage, picker, tile)) return -1;
  if (pred_has_step(s, t, STEP_RE)) return -1;
  if (by_elements(s, picker, t)) return g->op->n_red == 0 ? t : -1;
  int last = end_of_elements(s, picker, t);
  return last >= 0 && tile_of_pool(s, last, t, tile) ? t : -1;
}

bool inverse_fits(const SketchEnv *env, const State *s, int stage) {
  Tile tile;
  return env->par->extended && reader_of(s, stage, tile) >= 0;
}

/* Puts loops, which it unrolls, behind the others; order and number stay otherwise. */
static void put_inside(State *s, int stage, int n_inside, const int64_t *inside) {
  int64_t order[MAX_LOOPS];
  int n = 0, loops = sp_loops(s, stage);
  err_check(ir_err(s->ctx), loops <= MAX_LOOPS, "a stage has more than %d loops", MAX_LOOPS);
  for (int i = 0; i < loops; i++) {
    bool in = false;
    for (int k = 0; k < n_inside; k++) in = in || inside[k] == i;
    if (!in) order[n++] = i;
  }
  for (int k = 0; k < n_inside; k++) {
    state_annotate(s, stage, (int)inside[k], AN_UNROLL);
    order[n++] = inside[k];
  }
  state_reorder(s, stage, n, order);
}

void inverse_fuse(State *s, int stage) {
  Tile tile;
  int64_t inside[MAX_LOOPS];
  int t = reader_of(s, stage, tile), n = 0, at = 0, n_axis = s->stage.at[t].op->n_axis;
  for (int i = 0; i < sp_loops(s, stage); i++)
    if (sp_names(s, stage, TE_CONST_AXES, sp_axis(s, stage, i)->name)) inside[n++] = i;
  put_inside(s, stage, n, inside);
  n = 0;
  for (int i = 0; i < n_axis; i++, at++) {
    if (!tile[i]) continue;
    state_split(s, t, at, 1, &tile[i], true);
    inside[n++] = ++at;
  }
  for (; at < sp_loops(s, t) && n < MAX_LOOPS; at++) inside[n++] = at; /* a pool's windows */
  put_inside(s, t, n, inside);
  state_compute_at(s, stage, t, n_axis - 1);
}
