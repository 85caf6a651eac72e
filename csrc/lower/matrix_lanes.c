/* matrix_lanes: products of float32 by the lanes of a warp themselves, strictly: no tensor cores, which would round the factors.
 *
 * A lane keeps a tile of R x C sums, and the lanes of a warp lie in 8 rows and 4 columns. Of each slice in shared memory it loads
 * what LANE_STEP steps along k take, 16 bytes at a time where they lie together (along k, or neighbours along the rows of the
 * factor), and multiplies every element of A with every one of B:
 *
 *     for ks: for r < R: a[r] = A[row(r)][4 ks .. 4 ks + 3]; for c < C: b[..] alike
 *         for kk < 4: for r, for c: sum[r][c] += a[r][kk] * b[kk][c]
 *
 * Loads of 16 bytes serve half a warp at a time, but all its lanes at once where those whose numbers differ in the lowest bit, or in the
 * one after it, read the same place. So the row of a lane is made of all bits of its number but the first and the third, its column of
 * these. Lines along k exchange chunks (matrix_slices.c), so that the rows that are read together are in different banks; lines along the
 * rows of a factor need not.
 *
 * Teams of warps may share a tile: each multiplies its part of every slice, so that few sums still give large tiles to many lanes.
 */
#include "lower/matrix.h"

bool mx_lanes(const Mx *x) { return matrix_lanes(&x->t); }

/* Neighbours along its rows that a lane loads at once. Along k there are pairs of columns, for these are stored together. */
static int wide_rows(const Mx *x) { return x->a.by_k || x->mi % 2 ? 1 : x->mi % LANE_STEP ? 2 : LANE_STEP; }

ExprId mx_team(Mx *x) { return x->t.teams == 1 ? num(x, 0) : quot(x, var(x, x->tid), x->threads / x->t.teams); }
ExprId mx_member(Mx *x) { return x->t.teams == 1 ? var(x, x->tid) : rest(x, var(x, x->tid), x->threads / x->t.teams); }

void mx_lanes_begin(Mx *x) {
  int columns = matrix_lane_columns(&x->t);
  x->mi = matrix_lane_rows(&x->t);
  x->halves = 1;
  x->keeps = x->b.by_k || columns % LANE_STEP ? 2 : LANE_STEP;
  x->in_row = columns / x->keeps;
  x->fa = array(x, "A.lane", DT_F32, SC_LOCAL, LANE_STEP * matrix_lane_rows(&x->t));
  x->fb = array(x, "B.lane", DT_F32, SC_LOCAL, LANE_STEP * matrix_lane_columns(&x->t));
}

/* The lane's n-th of what `lanes` lanes have in groups of w neighbours. */
static ExprId spread(Mx *x, ExprId n, int w, int lanes, ExprId lane) {
  ExprId group = ex_add(x->c, scaled(x, quot(x, n, w), lanes), lane);
  return ex_add(x->c, scaled(x, group, w), rest(x, n, w));
}
ExprId mx_lane_row(Mx *x, ExprId r) {
  ExprId lane = mx_lane(x), row = ex_add(x->c, rest(x, quot(x, lane, 2), 2), scaled(x, quot(x, lane, 8), 2));
  return spread(x, r, wide_rows(x), 8, row);
}
ExprId mx_lane_col(Mx *x, ExprId c) {
  ExprId lane = mx_lane(x), col = ex_add(x->c, rest(x, lane, 2), scaled(x, rest(x, quot(x, lane, 4), 2), 2));
  return spread(x, c, x->keeps, 4, col);
}

/* What a lane has of a factor. */
typedef struct {
  const Side *s;
  BufferId to;
  int n, wide;
} Own;
static Own own(Mx *x, bool a) {
  return a ? (Own){&x->a, x->fa, matrix_lane_rows(&x->t), wide_rows(x)}
           : (Own){&x->b, x->fb, matrix_lane_columns(&x->t), x->keeps};
}
static ExprId line(Mx *x, const Own *o, ExprId n) {
  ExprId in =
      o->s == &x->a ? ex_add(x->c, mx_warp_row(x), mx_lane_row(x, n)) : ex_add(x->c, mx_warp_col(x), mx_lane_col(x, n));
  return tidy(x, in);
}
static ExprId place(Mx *x, const Own *o, ExprId n, ExprId kk) { /* of its n-th line */
  return o->s->by_k ? ex_add(x->c, scaled(x, n, LANE_STEP), kk) : ex_add(x->c, scaled(x, kk, o->n), n);
}

static Stmt *load(Mx *x, Own o, ExprId slot, ExprId ks) {
  IrCtx *c = x->c;
  int own_k = x->t.block_k / x->t.teams;
  ExprId k = tidy(x, ex_add(c, scaled(x, mx_team(x), own_k), scaled(x, ks, LANE_STEP))), from, to;
  int w = o.s->by_k ? LANE_STEP : o.wide;
  Loop n = loop(x, "n", o.s->by_k ? o.n : o.n / w, FOR_UNROLLED),
       e = loop(x, "e", w, w > 1 ? FOR_VECTOR : FOR_UNROLLED), kk = loop(x, "kk", LANE_STEP, FOR_UNROLLED);
  if (o.s->by_k) {
    from = mx_spot(x, o.s, slot, line(x, &o, var(x, n.v)), k);
    to = place(x, &o, var(x, n.v), num(x, 0));
  } else {
    ExprId first = scaled(x, var(x, n.v), w);
    from = mx_spot(x, o.s, slot, ex_add(c, k, var(x, kk.v)), line(x, &o, first));
    to = place(x, &o, first, var(x, kk.v));
  }
  Stmt *s = store(x, o.to, ex_add(c, to, var(x, e.v)), element(x, o.s->shared, ex_add(c, from, var(x, e.v))));
  s = around(x, n, around(x, e, s));
  return o.s->by_k ? s : around(x, kk, s);
}

Stmt *mx_multiply_lanes(Mx *x, ExprId slot) {
  IrCtx *c = x->c;
  Own a = own(x, true), b = own(x, false);
  Loop ks = loop(x, "ks", x->t.block_k / x->t.teams / LANE_STEP, FOR_UNROLLED),
       kk = loop(x, "kk", LANE_STEP, FOR_UNROLLED), r = loop(x, "r", a.n, FOR_UNROLLED),
       q = loop(x, "c", b.n, FOR_UNROLLED);
  ExprId sum = ex_add(c, scaled(x, var(x, r.v), b.n), var(x, q.v));
  ExprId product = ex_mul(c, element(x, a.to, place(x, &a, var(x, r.v), var(x, kk.v))),
                          element(x, b.to, place(x, &b, var(x, q.v), var(x, kk.v))));
  Stmt *s = store(x, x->acc, sum, ex_may_fuse(c, ex_add(c, element(x, x->acc, sum), product)));
  s = around(x, kk, around(x, r, around(x, q, s)));
  return around(x, ks, seq(x, seq(x, load(x, a, slot, var(x, ks.v)), load(x, b, slot, var(x, ks.v))), s));
}
