/* matrix_three: float32 as three products of TF32 by warpgroups (docs/numerics.md).
 *
 * Of A a warp has fragments in registers, and makes both parts of each factor there. Of B the unit finds high parts in the slice by itself,
 * by cutting off the others, which lie, rounded, in an array of their own, of two slices: the threads share in making them. To store high
 * parts of B, too, would round them; but these kernels wait for shared memory most of all (0.3 to 0.6 us of 6 to 8 on an H100).
 *
 * A warp issues a product when the one before has begun: what it does meanwhile stands between them.
 * Parts of A stand there in vain, and so do products of two slices under way at a time: ptxas puts waits of its own between them (12 layers of
 * ResNet-50: as fast, or 2 to 8 % slower).
 *
 *     slice 0: fragments of A and their parts; the rest of B; slice 1 is there; barrier
 *     for kt: products of slice kt, and between them copies of slice kt+stages-1, loads of slice kt+1 and the rest of its B; wait for
 *         slice kt+2, and for the products, whose sums, of this slice alone, are added by an addition that rounds; parts of A of slice
 *         kt+1; barrier
 */
#include "lower/matrix.h"

bool mx_three(const Mx *x) { return mx_grouped(x) && x->t.terms == 3; }

/* ---- parts of factors ---- */

static int steps(const Mx *x) { return x->t.block_k / x->step; }
static int of_step(const Mx *x) { return 4 * x->mi; } /* registers of A */
enum { WORDS = 4 };                                   /* of B, that a thread takes at a time */
static int turns(const Mx *x) { return (int)i64_ceildiv(mx_slice(&x->b), (int64_t)x->threads * WORDS); }

void mx_three_begin(Mx *x) {
  int n = steps(x) * of_step(x);
  DType bits = dtype(DT_UINT, 32);
  x->fa = array(x, "A.fragments", bits, SC_LOCAL, n);
  x->high = array(x, "A.high", bits, SC_LOCAL, n);
  x->low = array(x, "A.low", bits, SC_LOCAL, n);
  x->fb = array(x, "B.words", DT_F32, SC_LOCAL, WORDS * turns(x));
  x->rest = array(x, "B.rest", DT_F32, SC_LOCAL, WORDS * turns(x));
  x->units = array(x, "sums.of.slice", DT_F32, SC_LOCAL, x->sums);
  x->left = array(x, "B.low", DT_F32, SC_SHARED, 2 * mx_slice(&x->b));
  ir_buffer(x->c, x->left)->align = ir_buffer(x->c, x->b.shared)->align;
}

static Stmt *fragments_of_a(Mx *x, ExprId slot, int ks) {
  Loop i = loop(x, "mi", x->mi, FOR_UNROLLED);
  ExprId at = ex_add(x->c, num(x, ks * of_step(x)), scaled(x, var(x, i.v), 4));
  ExprId row = ex_add(x->c, mx_warp_row(x), mx_instruction_row(x, var(x, i.v)));
  return around(x, i, mx_fragment(x, &x->a, 4, x->fa, at, slot, row, num(x, ks * x->step)));
}
/* Products under way read their registers up to the end: these are made behind them. */
static Stmt *parts_of_a(Mx *x) {
  Loop i = loop(x, "i", steps(x) * of_step(x), FOR_UNROLLED);
  ExprId at = var(x, i.v), three[] = {element(x, x->high, at), element(x, x->low, at), element(x, x->fa, at)};
  return around(x, i, call(x, IN_PARTS, 3, three));
}

/* The words of a turn between shared memory, at a slice's beginning, and registers. */
static Stmt *exchange(Mx *x, BufferId shared, ExprId slice, BufferId words, int turn, bool in) {
  int64_t n = mx_slice(&x->b);
  Loop e = loop(x, "e", WORDS, FOR_VECTOR);
  ExprId first = scaled(x, ex_add(x->c, num(x, turn * x->threads), var(x, x->tid)), WORDS);
  ExprId there = ex_add(x->c, ex_add(x->c, scaled(x, slice, n), first), var(x, e.v)),
         here = ex_add(x->c, num(x, turn * WORDS), var(x, e.v));
  Stmt *s = around(
      x, e, in ? store(x, words, here, element(x, shared, there)) : store(x, shared, there, element(x, words, here)));
  return n % ((int64_t)x->threads * WORDS) && turn == turns(x) - 1 ? st_if(x->c, less(x, first, n), false, s, NULL) : s;
}
static Stmt *words_of_b(Mx *x, ExprId slot, int turn) { return exchange(x, x->b.shared, slot, x->fb, turn, true); }
static Stmt *rest_of_b(Mx *x, ExprId kt, int turn) {
  Loop i = loop(x, "i", WORDS, FOR_UNROLLED);
  ExprId at = ex_add(x->c, num(x, turn * WORDS), var(x, i.v)), two[] = {element(x, x->rest, at), element(x, x->fb, at)};
  return seq(x, around(x, i, call(x, IN_PARTS, 2, two)), exchange(x, x->left, rest(x, kt, 2), x->rest, turn, false));
}

/* ---- a step ---- */

static Stmt *each(Mx *x, BufferId b, ExprId (*value)(Mx *x, ExprId at)) {
  Loop z = loop(x, "z", x->sums, FOR_UNROLLED);
  return around(x, z, store(x, b, var(x, z.v), value(x, var(x, z.v))));
}
static ExprId nothing(Mx *x, ExprId at) { return (void)at, ex_zero(x->c, DT_F32); }
static ExprId added(Mx *x, ExprId at) { return ex_add(x->c, element(x, x->acc, at), element(x, x->units, at)); }

/* Products of slice kt: all small ones come first, two for each along k and of 64 rows. */
static int all_products(const Mx *x) { return 3 * steps(x) * x->mi; }
static Stmt *product(Mx *x, ExprId kt, ExprId slot, int p) {
  int small = 2 * steps(x) * x->mi, large = p >= small, q = large ? p - small : p / 2, ks = q / x->mi, i = q % x->mi;
  bool high = large || p % 2;
  ExprId k = num(x, ks * x->step), a = element(x, high ? x->high : x->low, num(x, ks * of_step(x) + 4 * i));
  ExprId b = high && !large ? mx_group_tile(x, &x->b, x->left, rest(x, kt, 2), mx_warp_col(x), k)
                            : mx_group_tile(x, &x->b, x->b.shared, slot, mx_warp_col(x), k);
  ExprId args[] = {num(x, MMA_TF32), num(x, x->t.warp_n), element(x, x->units, num(x, i * x->ni * 4)), a,        b,
                   num(x, 0),        num(x, 0),           num(x, (int64_t)x->b.pitch * x->bytes),      num(x, 0)};
  return call(x, IN_GROUP_MMA, NS_COUNT(args), args);
}

/* Piece p of what is done for slice kt, which is there: what is loaded comes first, and has time to arrive. */
static int all_pieces(const Mx *x) { return 2 * turns(x) + steps(x); }
static Stmt *piece(Mx *x, ExprId kt, ExprId slot, int p) {
  int n = turns(x), q = p - n - steps(x);
  return p < n ? words_of_b(x, slot, p) : q < 0 ? fragments_of_a(x, slot, p - n) : rest_of_b(x, kt, q);
}

Stmt *mx_three_start(Mx *x) {
  Stmt *s = NULL;
  for (int p = 0; p < all_pieces(x); p++) s = seq(x, s, piece(x, num(x, 0), num(x, 0), p));
  return seq(x, s, parts_of_a(x));
}

Stmt *mx_three_products(Mx *x, ExprId kt, ExprId slot, ExprId after, Stmt *copies) {
  int n = all_products(x), pieces = all_pieces(x), done = 0;
  Stmt *s = seq(x, each(x, x->units, nothing), call(x, IN_GROUP_BEGIN, 0, NULL));
  for (int p = 0; p < n; p++) {
    s = seq(x, s, product(x, kt, slot, p));
    if (p == 0) s = seq(x, s, copies);
    for (; done < pieces && done * n < (p + 1) * pieces; done++)
      s = seq(x, s, piece(x, ex_add(x->c, kt, num(x, 1)), after, done));
  }
  return seq(x, s, call(x, IN_GROUP_COMMIT, 0, NULL));
}

Stmt *mx_three_add(Mx *x) {
  return seq(x, mx_group_wait(x, 0, x->units, x->sums), seq(x, each(x, x->acc, added), parts_of_a(x)));
}
