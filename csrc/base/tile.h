/* Tiles of registers on CPUs: which part of the loops within a sum its accumulators hold, and how fast a core adds them up. */
#ifndef NS_BASE_TILE_H
#define NS_BASE_TILE_H
#include "base/machine.h"

/* A spatial loop of a sum, outermost first. Loops over columns change the vectors that are read, loops over rows the numbers that all
 * lanes share; the loop over vectors itself is a column. Loops over products of their own (a batch) change both. */
typedef struct {
  int64_t extent; /* iterations; vectors of the vector loop */
  bool column, both, whole; /* neither column nor both: rows. whole: it may not be cut */
  int64_t inner;  /* result: iterations in registers. The others are loops around the sum; see tile_parts */
} TileLoop;
/* So many parts of `inner` iterations, and so many with one less (7 = 3 + 2 + 2). */
typedef struct {
  int64_t full, less;
} TileParts;
TileParts tile_parts(int64_t extent, int64_t inner);

/* Chooses `inner` of all loops, at most one of them unevenly; vec: the vector loop, -1: none. panel: bytes of the columns' factor that
 * one tile's sums read. The result is the cycles of one step of all sums; INFINITY: the loops do not fit, whatever is cut. */
double tile_fit(const CpuMachine *m, int n, TileLoop *loop, int vec, double panel);
#endif
