/* Closed forms of products on tensor cores, or by lanes (lower/matrix.c): everything follows from the tile and the sizes of the matrices.
 * Slices are copied in whole lines and fragments are read without conflicts, so no addresses need to be looked at.
 */
#include "model/facts.h"
#include <math.h>

/* Fitted to 357 kernels of 24 layers of ResNet-50 (H100); loops written by hand say 3 and 3. */
static const double THREE_FACTOR = 2.8, THREE_LOAD = 3;
static const double GROUP_PRODUCT = 9.4, GROUP_MOVES = 0.52, GROUP_WAITS = 216, GROUP_MAKES = 1.6;

typedef struct {
  IrCtx *c;
  double bytes;
} Sum;
static void add_read(IrCtx *c, ExprId e, void *arg) {
  if (ir_kind(c, e) == IR_READ) ((Sum *)arg)->bytes += (double)te_bytes(c, ir_node(c, e)->sym);
}
static double read_bytes(IrCtx *c, ExprId e) {
  Sum x = {c, 0};
  ex_post_order(c, e, add_read, &x);
  return x.bytes;
}

/* Cycles of a scheduler for what goes with one warp's products of three terms of a slice: both parts of each factor, loads of fragments, and
 * sums that are added. */
static double three_cycles(const MatrixTile *t) {
  double mi = t->warp_m / 16.0, ni = t->warp_n / 8.0;
  double step = THREE_FACTOR * (4 * mi + 2 * ni) + THREE_LOAD * (mi + ceil(ni / 2));
  return t->block_k / 8.0 * step + 2 * MMA_SUMS * mi * ni;
}

/* Of a warpgroup's (lower/matrix_three.c): cycles of a block for a slice, whichever is longer, its products or what shared memory has to do
 * for them; in *waits those in which it issues no product, which another block may use. */
static double group_cycles(const MatrixTile *t, double *waits) {
  double steps = t->block_k / 8.0, groups = t->block_m / 64.0, line = t->block_k * 4.0 / GPU_LINE;
  double products = 3 * steps * groups * t->block_n / t->warp_n * (t->warp_n / 2.0 + GROUP_PRODUCT);
  double moved = line * (2 * t->block_m + t->block_n * (3 + 3 * groups));
  *waits = GROUP_WAITS + GROUP_MAKES * (t->warp_m * t->warp_n / 128.0 + 12 * steps * t->warp_m / 64);
  return fmax(products, GROUP_MOVES * moved);
}

bool facts_matrix(Gpu *g, State *s, int stage) {
  const MatrixTile *t = s->stage.at[stage].matrix;
  MatrixView v;
  const char *why;
  if (!matrix_view(s, stage, t->transposed, state_inlined_bodies(s, false, NULL), &v, &why)) return false;
  KernelFacts *k = g->k;
  bool lanes = matrix_lanes(t);
  int bytes = dtype_bytes(v.type);
  double step = 32.0 / bytes, warps = matrix_threads(t) / (double)GPU_WARP,
         sums = (double)t->warp_m * t->warp_n / matrix_team(t) * matrix_sums(t) / MMA_SUMS;
  double rows = (double)i64_ceildiv(v.m.size, t->block_m), cols = (double)i64_ceildiv(v.n.size, t->block_n),
         tiles = (double)i64_ceildiv(i64_ceildiv(v.k.size, t->block_k), t->split), batch = (double)v.batch.size;
  double slice = (double)(t->block_m + t->block_n) * t->block_k * bytes;
  int sets = matrix_sets(t, v.type, g->t), staged = matrix_staged(t, v.type, g->t);
  double fragments = t->warp_m / 4.0 + t->warp_n / 4.0; /* registers of a warp's fragments for one step along k */
  double operands =
      t->warp_m / 64.0 * (64 + t->warp_n) / 16.0; /* what a fourth of a warpgroup's instructions read for one */
  double out = facts_region(s, stage) * facts_bytes(s, s->stage.at[stage].op->out[0]);
  k->blocks = rows * cols * batch * t->split;
  k->threads = GPU_WARP * warps;
  k->shared_bytes = (double)matrix_shared_bytes(t, v.type, g->t);
  k->local_elems = lanes ? matrix_registers(t, v.type, g->t) - GPU_MATRIX_ADDRESSES : sums + sets * fragments + staged;
  k->ops = (t->terms == 3 ? 3 : 1) * 2.0 * k->blocks * tiles * t->block_m * t->block_n * t->block_k;
  k->matrix_bytes = bytes;
  k->matrix_lanes = lanes;
  k->matrix_groups = t->warpgroups;
  k->matrix_wide = t->wide;
  k->matrix_halves = t->wide && facts_bytes(s, s->stage.at[stage].op->out[0]) == 2 ? out : 0;
  k->matrix_alone = !lanes && sets == 1;
  k->matrix_ahead = staged ? 1 : matrix_ahead(t); /* registers hold one slice */
  k->matrix_tiles = tiles;
  k->matrix_share = 2 * (double)v.m.size * (double)v.n.size * (double)v.k.size * batch / k->ops;
  k->stages = t->stages;
  k->barriers = tiles;
  k->mem.fill_bytes = k->blocks * tiles * slice;
  k->matrix_line = fmin(GPU_LINE, t->block_k * bytes); /* as if along k; by rows it is longer */
  k->matrix_sums = 4.0 * t->block_m * t->block_n * t->teams;
  k->matrix_cluster = matrix_clustered(t, g->t) ? t->split : 1;
  k->matrix_parts =
      t->split > 1 && k->matrix_cluster < 2 ? t->split * batch * (double)v.m.size * (double)v.n.size * 4 : 0;
  k->matrix_last = t->last ? t->split : 0;
  k->global_bytes = k->mem.fill_bytes + k->matrix_parts + (k->matrix_parts > 0 && !t->last ? 0 : out);
  k->unique_bytes = read_bytes(s->ctx, v.a) + read_bytes(s->ctx, v.b) + out;
  double own = 2.0 / LANE_STEP * (matrix_lane_rows(t) + matrix_lane_columns(t)); /* half a warp at a time */
  double reads =
      warps * (lanes ? t->block_k * own / t->teams
                     : t->block_k / step * (t->warpgroups ? operands : fragments)); /* of 128 bytes, for one slice */
  k->matrix_waits = 0;
  k->matrix_cycles = t->terms != 3 ? 0 : t->warpgroups ? group_cycles(t, &k->matrix_waits) : three_cycles(t);
  k->matrix_teams = t->teams;
  k->matrix_loads = lanes ? own / 2 / (matrix_lane_rows(t) * matrix_lane_columns(t)) : 0;
  k->shared_reads = k->blocks * tiles * reads * GPU_WARP;
  k->mem.wavefronts = k->blocks * tiles * (slice / GPU_LINE + reads);
  return true;
}
