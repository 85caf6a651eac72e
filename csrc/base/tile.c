/* The closed form behind it follows a core with two units for multiply-add of a latency of four cycles, two loads a cycle, and a second
 * cache that gives less than a vector a cycle. On a Zen 3, tiles of rows x vectors, in shares of the peak: 4x2, 3x4, 6x2 and 5x2 reach
 * it, 3x2 has 0.76 (too few sums under way), 8x1 and 1x8 0.79 (loads), 2x4 and 2x6 with a panel from the second cache 0.74. */
#include "base/tile.h"
#include <math.h>
#include <stddef.h>

#define IN_FLIGHT 4.0 /* cycles of a step, however few sums there are */
#define LOADS 2.0     /* of a cycle; a step has one more than operands: the sums of some tiles wait for each other */
#define SECOND 0.75   /* vectors of a panel that the second cache gives in a cycle */
#define FIRST_CACHE 24576.0 /* bytes of a panel that stays in the first one */
#define LOAD_COST 0.02      /* what a load that is hidden costs: equal tiles are told apart */
#define COLUMN_COST 0.05
#define UNEVEN_COST 1.02 /* two loops instead of one */

enum { ROWS, COLUMNS, BOTH };
static int kind_of(const TileLoop *l) { return l->both ? BOTH : l->column ? COLUMNS : ROWS; }

TileParts tile_parts(int64_t extent, int64_t inner) {
  int64_t n = (extent + inner - 1) / inner, less = n * inner - extent;
  return (TileParts){n - less, less};
}

static double step(const double *tile, bool streamed) {
  double rows = tile[ROWS], cols = tile[COLUMNS], n = tile[BOTH], loads = n * (rows + cols);
  double longest = fmax(fmax(n * rows * cols / 2, IN_FLIGHT), (loads + 1) / LOADS);
  if (streamed) longest = fmax(longest, n * cols / SECOND);
  return longest + LOAD_COST * loads + COLUMN_COST * n * cols;
}

/* Cycles of one step of all sums, with loops as they are cut. */
static double all_steps(int n, const TileLoop *loop, bool streamed) {
  double tile[] = {1, 1, 1}, tiles = 1;
  const TileLoop *odd = NULL;
  for (int i = 0; i < n; i++) {
    const TileLoop *l = &loop[i];
    if (l->extent % l->inner)
      odd = l;
    else
      tile[kind_of(l)] *= (double)l->inner, tiles *= (double)(l->extent / l->inner);
  }
  if (!odd) return tiles * step(tile, streamed);
  TileParts p = tile_parts(odd->extent, odd->inner);
  double *part = &tile[kind_of(odd)], other = *part;
  *part = other * (double)odd->inner;
  double cost = (double)p.full * step(tile, streamed);
  *part = other * (double)(odd->inner - 1);
  cost += (double)p.less * step(tile, streamed);
  return tiles * cost * UNEVEN_COST;
}

/* Outer loops are cut first, to one iteration as long as what is inside of them does not fit. */
static double cut_rows(int n, TileLoop *loop, int vec, int64_t registers, bool streamed) {
  int64_t tile = 1;
  for (int i = 0; i < n; i++) {
    if (i != vec) loop[i].inner = loop[i].extent;
    tile *= loop[i].inner;
  }
  for (int i = 0; i < n && tile > registers; i++) {
    TileLoop *l = &loop[i];
    if (i == vec || l->extent == 1) continue;
    if (l->whole) return INFINITY;
    tile /= l->extent;
    int64_t best = 1;
    double least = INFINITY;
    for (int64_t p = 1; p <= registers / tile; p++) {
      if (tile_parts(l->extent, p).full < 1) continue; /* 7 is 4 + 3, not 5 + 2 */
      l->inner = p;
      double cost = all_steps(n, loop, streamed);
      if (cost <= least) least = cost, best = p;
    }
    l->inner = best;
    tile *= best;
  }
  return tile <= registers ? all_steps(n, loop, streamed) : INFINITY;
}

double tile_fit(const CpuMachine *m, int n, TileLoop *loop, int vec, double panel) {
  bool streamed = panel > FIRST_CACHE;
  double least = INFINITY;
  int64_t all = vec < 0 ? 1 : loop[vec].extent, best = 0;
  int64_t tile = 1, outer = -1;
  for (int i = 0; i < n; i++) {
    if (loop[i].extent < 1) return INFINITY;
    if (outer < 0 && i != vec && loop[i].extent > 1) outer = i;
    tile *= loop[i].extent;
  }
  if (tile > m->registers && outer >= 0 && loop[outer].whole) return INFINITY;
  for (int64_t q = all; q >= 1; q--) {
    if (q > m->registers || all % q || (q < all && loop[vec].whole)) continue;
    if (vec >= 0) loop[vec].inner = q;
    double cost = cut_rows(n, loop, vec, m->registers, streamed);
    if (cost < least) least = cost, best = q;
  }
  if (!best) return INFINITY;
  if (vec >= 0) loop[vec].inner = best;
  return cut_rows(n, loop, vec, m->registers, streamed);
}
