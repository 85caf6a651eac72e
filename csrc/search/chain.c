/* The sketch of an expansion (CPU, extended mode): a tiled producer whose result only a padded window of each channel reads, as
 * the inverted bottlenecks of MobileNet have it. Six times as wide as what goes in and what comes out, the value in between is
 * what leaves the caches. So a tile of some rows and channels is made right before the windows read it:
 *
 *   parallel channels/tile, rows/tile of the output
 *     producer: rows, columns/tile, sums, columns (unrolled), channels (vector)
 *     padding:  rows, columns, channels (vector)
 *     rows, columns/tile
 *       window: sums, columns and channels (unrolled, vector)
 *       output: columns, channels (vector)
 *
 * Rows that two tiles read are computed twice. Channels of the tile are the vector of all four stages, for nothing else is
 * tiled along them; what the search draws is that, the rows, and the columns that producer and window hold in registers. */
#include "search/space.h"

enum { AXES = 4, ROWS = 1, COLUMNS = 2, CHANNELS = 3, MOST_SUMS = 64 };

static bool is_grid(const State *s, int stage) {
  const TeOp *op = s->stage.at[stage].op;
  return op->kind == TE_COMPUTE && op->n_out == 1 && op->n_axis == AXES && !sp_has_attr(s, stage, TE_NO_SPLIT) &&
         !sp_has_attr(s, stage, TE_CONST_AXES) && sp_loops(s, stage) == AXES + op->n_red;
}

/* Whether all reads of `from` in `to` have the last axis of `to` as their last index. */
static bool along_channels(const State *s, int from, int to) {
  const TeOp *op = s->stage.at[to].op;
  for (int k = 0; k < s->dag->n_edges; k++) {
    const TeEdge *e = &s->dag->edge[k];
    if (e->producer != from || e->consumer != to) continue;
    for (int i = 0; i < e->n_access; i++) {
      const ExprNode *n = ir_node(s->ctx, e->index[i][e->rank - 1]);
      if (e->rank != AXES || n->kind != IR_VAR || n->sym != op->axis[CHANNELS].var) return false;
    }
  }
  return true;
}

/* The only operation with loops that a stage reads; -1: none or several. */
static int only_source(const State *s, int stage) {
  int in[MAX_LOOPS], n = pred_producers(s, stage, in, MAX_LOOPS), found = -1;
  for (int i = 0; i < n; i++) {
    if (sp_placeholder(s, in[i])) continue;
    if (found >= 0) return -1;
    found = in[i];
  }
  return found;
}

/* From the padding up to the tiled producer: stages that will be inlined in between, each read by the next one only. */
static bool from_tiled(const State *s, int pad) {
  int below = pad;
  for (int at = only_source(s, pad); at >= 0; below = at, at = only_source(s, at)) {
    if (sp_single_consumer(s, at) != below || !is_grid(s, at) || sp_is_output(s, at) ||
        (below == pad ? !along_channels(s, at, pad) : !te_elementwise_match(s->ctx, s->dag, at, below, true)))
      return false;
    if (sp_needs_tiling(s, at)) return true;
    if (sp_has_reduce(s, at) || sp_large(s, at) || !sp_strictly_inlinable(s, at)) return false;
  }
  return false;
}

/* The padding that a window reads, if the sketch takes them; else -1. */
static int chain_padding(const State *s, int window) {
  if (!sp_needs_tiling(s, window) || !is_grid(s, window) || sp_len(s, window, IT_REDUCE) > MOST_SUMS) return -1;
  int out = sp_matched_consumer(s, window, true), pad = only_source(s, window);
  if (out < 0 || !is_grid(s, out) || sp_has_reduce(s, out) || s->stage.at[out].at != AT_ROOT || pad < 0) return -1;
  bool fits = is_grid(s, pad) && !sp_has_reduce(s, pad) && !sp_is_output(s, pad) && !sp_strictly_inlinable(s, pad) &&
              sp_single_consumer(s, pad) == window && along_channels(s, pad, window) && from_tiled(s, pad);
  return fits ? pad : -1;
}

bool chain_begins(const SketchEnv *env, const State *s, int window) {
  return env->par->extended && !env->task->gpu && chain_padding(s, window) >= 0;
}

void chain_begin(State *s, int window) {
  const int64_t open = SIZE_OPEN;
  int out = sp_matched_consumer(s, window, true), pad = chain_padding(s, window);
  for (int axis = CHANNELS; axis >= ROWS; axis--) state_split(s, out, axis, 1, &open, true);
  state_reorder(s, out, 7,
                (int64_t[]){0, 5, 1, 2, 3, 4, 6}); /* batch; channels, rows | rows, columns | columns, channels */
  state_annotate(s, out, 6, AN_VECTORIZE);
  int n_red = s->stage.at[window].op->n_red;
  int64_t order[MAX_LOOPS] = {0, ROWS};
  for (int i = 0; i < n_red; i++) order[2 + i] = AXES + i;
  order[2 + n_red] = COLUMNS, order[3 + n_red] = CHANNELS;
  state_reorder(s, window, AXES + n_red, order);
  for (int i = 2; i < 3 + n_red; i++) state_annotate(s, window, i, AN_UNROLL);
  state_annotate(s, window, 3 + n_red, AN_VECTORIZE);
  state_compute_at(s, window, out, 4);
  state_fuse(s, pad, 2, (int64_t[]){0, ROWS}); /* where it is computed is no longer open */
  state_annotate(s, pad, CHANNELS - 1, AN_VECTORIZE);
  state_compute_at(s, pad, out, 2);
}

bool chain_ends(const State *s, int stage) {
  int pad = sp_needs_tiling(s, stage) ? sp_single_consumer(s, stage) : -1;
  return pad >= 0 && is_grid(s, stage) && !sp_has_reduce(s, pad) && s->stage.at[pad].at == AT_ITER;
}

void chain_end(State *s, int stage) {
  const int64_t open = SIZE_OPEN;
  int pad = sp_single_consumer(s, stage), n_red = s->stage.at[stage].op->n_red;
  state_split(s, stage, COLUMNS, 1, &open, true);
  int64_t order[MAX_LOOPS] = {0, ROWS, COLUMNS};
  for (int i = 0; i < n_red; i++) order[3 + i] = AXES + 1 + i;
  order[3 + n_red] = COLUMNS + 1, order[4 + n_red] = CHANNELS + 1;
  state_reorder(s, stage, AXES + 1 + n_red, order);
  state_annotate(s, stage, 3 + n_red, AN_UNROLL);
  state_annotate(s, stage, 4 + n_red, AN_VECTORIZE);
  state_compute_at(s, stage, s->stage.at[pad].at_stage, s->stage.at[pad].at_iter);
}
