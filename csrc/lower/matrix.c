/* matrix: the kernel of a product on tensor cores (schedule/matrix.c says which stages are one; spec 07 §7.8.2, 1, 3 to 6).
 *
 * A block computes a tile of C. The slices of A and B that it needs for one step along k lie in shared memory; `stages` slices
 * are there or on their way, so that the copy of a slice has the time of several steps to arrive:
 *
 *     copy slices 0 .. stages-2; wait for slice 0; barrier; first fragments
 *     for kt: for each step along k in the slice: load the next step's fragments while this one's are multiplied; between
 *         the first products copy slice kt+stages-1, if there is one, to where slice kt-1 was; before the last ones wait for slice kt+1;
 *         barrier (behind the last slice fragments are loaded that nobody multiplies)
 *     results of C, with whatever the stage does to them
 *
 * One barrier per slice is enough: whoever passes it has loaded the last fragments of slice kt, whose place is overwritten
 * next, and what each thread waited for is visible to all. Where two sets of fragments have no room in registers, or the
 * steps of a slice are odd in number, fragments are loaded right before they are multiplied.
 *
 * Warpgroups (wgmma, sm_90a) have no fragments: their products read slices where they lie, in lines of 128 bytes at most; longer ones
 * are in panels side by side. The products of a slice, or of two, are under way while the next one is copied to where the one before
 * them was, and are waited for behind that.
 *
 * matrix_slices.c lays out the slices and copies them, matrix_lanes.c has lanes multiply float32 by themselves, matrix_results.c says
 * what becomes of the sums.
 *
 * Sums in float16 are pairs in registers of 32 bits up to the last slice, and float32 behind it: parts of a sum are added up so.
 *
 * Where the GPU has no copies in flight a slice is read into registers before the products of another one, and stored behind them
 * (matrix_slices.c).
 *
 * For features the same loops are made with plain statements in place of the instructions.
 */
#include "lower/matrix.h"

bool mx_plain(const Mx *x) { return low_for_rows(x->env->use) || x->env->use == LOW_ANALYSIS; }
bool mx_whole(const Mx *x) { return !mx_plain(x) && x->v.k.size % ((int64_t)x->t.block_k * x->t.split) == 0; }
bool mx_grouped(const Mx *x) { return x->t.warpgroups && !mx_plain(x); }

/* ---- products ---- */

ExprId mx_lane(Mx *x) { return rest(x, var(x, x->tid), GPU_WARP); }

ExprId mx_warp_row(Mx *x) { /* of A that the warp's tile begins with, and of B */
  return scaled(x, quot(x, quot(x, mx_member(x), x->team), x->t.block_n / x->t.warp_n), x->t.warp_m);
}
ExprId mx_warp_col(Mx *x) {
  return scaled(x, rest(x, quot(x, mx_member(x), x->team), x->t.block_n / x->t.warp_n), x->t.warp_n);
}
/* Of the rows of a tile that its instruction i computes, those that the warp at hand keeps begin with this one. */
ExprId mx_instruction_row(Mx *x, ExprId i) {
  ExprId row = scaled(x, i, x->team / 2);
  return x->team == GPU_WARP ? row
                             : ex_add(x->c, row, scaled(x, quot(x, rest(x, var(x, x->tid), x->team), GPU_WARP), 16));
}

/* n 8x8 matrices of a slice, from `row` and k on. Which of them lane i / 8 names is a matter of the operand: in A the second
 * is below the first, in B behind it along k. */
Stmt *mx_fragment(Mx *x, const Side *s, int n, BufferId to, ExprId at, ExprId slot, ExprId row, ExprId k) {
  bool is_a = s == &x->a;
  ExprId which = quot(x, mx_lane(x), 8), low = rest(x, which, 2), high = quot(x, which, 2), in = rest(x, mx_lane(x), 8);
  ExprId rows = scaled(x,
                       n == 2 ? num(x, 0)
                       : is_a ? low
                              : high,
                       8),
         cols = scaled(x, is_a ? high : low, MX_CHUNK / x->bytes);
  row = ex_add(x->c, row, rows), k = ex_add(x->c, k, cols);
  ExprId line = tidy(x, ex_add(x->c, s->by_k ? row : k, in)), e = tidy(x, s->by_k ? k : row);
  ExprId args[] = {num(x, n), num(x, !s->by_k), element(x, to, at),
                   element(x, s->shared, mx_spot(x, s, slot, line, e))};
  return call(x, IN_FRAGMENT, 4, args);
}

/* The fragments of one step along k, into one of the sets. */
static ExprId in_set(Mx *x, int set, int all, ExprId at) { return ex_add(x->c, at, num(x, set * all)); }
static Stmt *fragments(Mx *x, int set, ExprId slot, ExprId k) {
  int pairs = x->ni / 2, a = x->mi * 4, b = x->ni * 2;
  Loop i = loop(x, "mi", x->mi, FOR_UNROLLED), j = loop(x, "nj", pairs, FOR_UNROLLED);
  ExprId row = ex_add(x->c, mx_warp_row(x), scaled(x, var(x, i.v), 16)), col = mx_warp_col(x);
  Stmt *s = around(x, i, mx_fragment(x, &x->a, 4, x->fa, in_set(x, set, a, scaled(x, var(x, i.v), 4)), slot, row, k));
  if (pairs) {
    ExprId at = ex_add(x->c, col, scaled(x, var(x, j.v), 16));
    s = seq(x, s,
            around(x, j, mx_fragment(x, &x->b, 4, x->fb, in_set(x, set, b, scaled(x, var(x, j.v), 4)), slot, at, k)));
  }
  if (x->ni % 2) {
    ExprId at = ex_add(x->c, col, num(x, 16 * pairs));
    s = seq(x, s, mx_fragment(x, &x->b, 2, x->fb, in_set(x, set, b, num(x, 4 * pairs)), slot, at, k));
  }
  return s;
}

/* What the lane keeps in register r of an instruction: row and column in its 16x8 tile. */
ExprId mx_acc_row(Mx *x, ExprId r) { return ex_add(x->c, quot(x, mx_lane(x), 4), scaled(x, quot(x, r, 2), 8)); }
ExprId mx_acc_col(Mx *x, ExprId r) { return ex_add(x->c, scaled(x, rest(x, mx_lane(x), 4), 2), rest(x, r, 2)); }

ExprId mx_row(Mx *x, ExprId i, ExprId half) {
  if (mx_lanes(x)) return ex_add(x->c, mx_warp_row(x), mx_lane_row(x, i));
  ExprId in = ex_add(x->c, mx_instruction_row(x, i), mx_acc_row(x, scaled(x, half, 2)));
  return ex_add(x->c, mx_warp_row(x), in);
}
ExprId mx_col(Mx *x, ExprId j) {
  ExprId in =
      mx_lanes(x) ? mx_lane_col(x, scaled(x, j, x->keeps)) : ex_add(x->c, scaled(x, j, 8), mx_acc_col(x, num(x, 0)));
  return ex_add(x->c, mx_warp_col(x), in);
}
ExprId mx_sum(Mx *x, ExprId i, ExprId half, ExprId j) {
  ExprId group = ex_add(x->c, scaled(x, i, x->in_row), j);
  return scaled(x, ex_add(x->c, scaled(x, group, x->halves), half), x->keeps);
}

static Stmt *multiply_plain(Mx *x, ExprId slot, ExprId k, Loop i, Loop j) {
  Loop r = loop(x, "r", 4, FOR_UNROLLED), kk = loop(x, "kk", x->step, FOR_UNROLLED);
  ExprId row =
             ex_add(x->c, ex_add(x->c, mx_warp_row(x), mx_instruction_row(x, var(x, i.v))), mx_acc_row(x, var(x, r.v))),
         col = ex_add(x->c, ex_add(x->c, mx_warp_col(x), scaled(x, var(x, j.v), 8)), mx_acc_col(x, var(x, r.v)));
  k = ex_add(x->c, k, var(x, kk.v));
  ExprId two[2];
  const Side *s[] = {&x->a, &x->b};
  for (int q = 0; q < 2; q++) {
    ExprId at = q ? col : row;
    two[q] = element(x, s[q]->shared, mx_spot(x, s[q], slot, s[q]->by_k ? at : k, s[q]->by_k ? k : at));
    if (!dtype_eq(s[q]->type, x->v.sums)) two[q] = ex_cast(x->c, x->v.sums, two[q]);
  }
  ExprId at = ex_add(x->c, scaled(x, ex_add(x->c, scaled(x, var(x, i.v), x->ni), var(x, j.v)), 4), var(x, r.v));
  ExprId sum = ex_add(x->c, element(x, x->acc, at), ex_mul(x->c, two[0], two[1]));
  Stmt *b = store(x, x->acc, at, ex_may_fuse(x->c, sum));
  return around(x, kk, around(x, r, b));
}

/* Sums that a register holds while products are added up. */
static int per_register(const Mx *x) { return matrix_half_sums(&x->t) && !mx_plain(x) ? 2 : 1; }

/* Products in three terms have two sums for one, four of each side by side: of large products, those of one slice alone, which are
 * added to the others by an addition that rounds, and of small ones, which are cut off where it does not matter. */
static bool three(const Mx *x) { return x->t.terms == 3 && !x->t.warpgroups && !mx_plain(x); }
static ExprId of_three(Mx *x, ExprId z, int small) {
  ExprId first = scaled(x, quot(x, z, MMA_SUMS), 2 * MMA_SUMS);
  return ex_add(x->c, ex_add(x->c, first, rest(x, z, MMA_SUMS)), num(x, small * MMA_SUMS));
}
static Stmt *add_three(Mx *x, int small) {
  Loop z = loop(x, "z", x->sums, FOR_UNROLLED);
  ExprId at = var(x, z.v), from = of_three(x, at, small);
  Stmt *s = store(x, x->acc, at, ex_add(x->c, element(x, x->acc, at), element(x, x->units, from)));
  return around(x, z, small ? s : seq(x, s, store(x, x->units, from, ex_zero(x->c, DT_F32))));
}
/* Behind the products of step ks of a slice. */
static Stmt *settle(Mx *x, int ks) {
  int deep = (ks + 1) * x->step;
  return three(x) && (deep == x->t.block_k || deep % MATRIX_DEEP == 0) ? add_three(x, 0) : NULL;
}

static MmaType mma_type(const Mx *x) {
  for (int i = 0; i < MMA_COUNT; i++) {
    const MmaInfo *m = mma_info((MmaType)i);
    if (dtype_eq(m->a, x->a.type) && dtype_eq(m->b, x->b.type) && m->terms == x->t.terms) return (MmaType)i;
  }
  err_raise(ir_err(x->c), NS_ERR_INTERNAL, "stage %s: no tensor core multiplies such factors", x->st->op->name);
}

static Stmt *products(Mx *x, int set) {
  Loop i = loop(x, "mi", x->mi, FOR_UNROLLED), j = loop(x, "ni", x->ni, FOR_UNROLLED);
  int own = three(x) ? 2 * MMA_SUMS : MMA_SUMS / per_register(x);
  ExprId at = scaled(x, ex_add(x->c, scaled(x, var(x, i.v), x->ni), var(x, j.v)), own);
  ExprId args[] = {num(x, mma_type(x)), element(x, x->units, at),
                   element(x, x->fa, in_set(x, set, x->mi * 4, scaled(x, var(x, i.v), 4))),
                   element(x, x->fb, in_set(x, set, x->ni * 2, scaled(x, var(x, j.v), 2)))};
  return around(x, i, around(x, j, call(x, IN_MMA, 4, args)));
}

static Stmt *multiply(Mx *x, ExprId slot) {
  if (mx_lanes(x)) return mx_multiply_lanes(x, slot);
  if (three(x)) { /* a step by its number: it says where sums are added */
    Stmt *s = NULL;
    for (int ks = 0; ks * x->step < x->t.block_k; ks++) {
      s = seq(x, s, fragments(x, 0, slot, num(x, ks * x->step)));
      s = seq(x, s, seq(x, products(x, 0), settle(x, ks)));
    }
    return s;
  }
  Loop ks = loop(x, "ks", x->t.block_k / x->step, FOR_UNROLLED);
  ExprId k = scaled(x, var(x, ks.v), x->step);
  if (!mx_plain(x)) return around(x, ks, seq(x, fragments(x, 0, slot, k), products(x, 0)));
  Loop i = loop(x, "mi", x->mi, FOR_UNROLLED), j = loop(x, "ni", x->ni, FOR_UNROLLED);
  return around(x, ks, around(x, i, around(x, j, multiply_plain(x, slot, k, i, j))));
}

/* A warpgroup's products of one slice. A tile begins with a line whose chunks do not change places, or it begins in such a line's
 * place: the instruction finds them by their addresses. */
ExprId mx_group_tile(Mx *x, const Side *s, BufferId in, ExprId slot, ExprId row, ExprId k) {
  ExprId e = tidy(x, s->by_k ? k : row), base = mx_line_spot(x, s, slot, s->by_k ? row : k, &e);
  return element(x, in, ex_add(x->c, base, e));
}
static Stmt *group_products(Mx *x, ExprId slot) {
  Loop ks = loop(x, "ks", x->t.block_k / x->step, FOR_UNROLLED), i = loop(x, "mi", x->mi, FOR_UNROLLED);
  ExprId k = scaled(x, var(x, ks.v), x->step), row = ex_add(x->c, mx_warp_row(x), scaled(x, var(x, i.v), x->team / 2));
  ExprId args[9] = {num(x, mma_type(x)), num(x, x->t.warp_n), element(x, x->acc, scaled(x, var(x, i.v), x->ni * 4)),
                    mx_group_tile(x, &x->a, x->a.shared, slot, row, k),
                    mx_group_tile(x, &x->b, x->b.shared, slot, mx_warp_col(x), k)};
  const Side *s[] = {&x->a, &x->b};
  for (int q = 0; q < 2; q++) {
    args[5 + 2 * q] = num(x, (int64_t)s[q]->pitch * x->bytes);
    args[6 + 2 * q] = num(x, s[q]->by_k ? 0 : mx_panel_size(s[q]) * x->bytes);
  }
  Stmt *b = around(x, ks, around(x, i, call(x, IN_GROUP_MMA, 9, args)));
  return seq(x, call(x, IN_GROUP_BEGIN, 0, NULL), seq(x, b, call(x, IN_GROUP_COMMIT, 0, NULL)));
}
Stmt *mx_group_wait(Mx *x, int under_way, BufferId c, int sums) {
  ExprId args[] = {num(x, under_way), element(x, c, num(x, 0)), num(x, sums)};
  return call(x, IN_GROUP_WAIT, 3, args);
}

/* ---- the sum ---- */

/* All copies have arrived but those of so many slices. */
static Stmt *arrived(Mx *x, int under_way) {
  ExprId left = num(x, under_way);
  Stmt *s = mx_commit(x) ? call(x, IN_COPY_WAIT, 1, &left) : NULL;
  return mx_grouped(x) ? seq(x, s, call(x, IN_GROUP_SEES, 0, NULL)) : s;
}
/* The next slice has arrived, and nobody reads the one before this one any more. */
static Stmt *next_slice(Mx *x) { return seq(x, arrived(x, x->ahead - 1), low_barrier(x->c)); }

static Stmt *zero(Mx *x, BufferId b, int n) {
  Loop z = loop(x, "z", n, FOR_UNROLLED);
  return around(x, z, store(x, b, var(x, z.v), ex_zero(x->c, ir_buffer(x->c, b)->type)));
}

static Stmt *start(Mx *x) {
  Stmt *s = three(x) || mx_three(x) ? zero(x, x->acc, x->sums) : NULL;
  if (!mx_three(x)) s = seq(x, s, zero(x, x->units, three(x) ? 2 * x->sums : x->sums / per_register(x)));
  s = seq(x, s, seq(x, mx_inside(x, &x->a), mx_inside(x, &x->b)));
  for (int i = 0; i < x->ahead; i++) {
    if (mx_whole(x) && i >= x->tiles) {
      s = seq(x, s, mx_commit(x));
      continue;
    }
    s = seq(x, s, mx_copy(x, &x->a, num(x, i), num(x, i), COPY));
    s = seq(x, s, mx_copy(x, &x->b, num(x, i), num(x, i), COPY));
    s = seq(x, s, mx_commit(x));
  }
  if (x->clustered && !x->late) s = seq(x, s, mx_receives(x)); /* while the copies are on their way */
  if (mx_three(x)) {
    s = seq(x, s, seq(x, next_slice(x), mx_three_start(x)));
    return seq(x, s, seq(x, arrived(x, x->ahead - 2), low_barrier(x->c)));
  }
  return x->sets < 2 ? s : seq(x, s, seq(x, next_slice(x), fragments(x, 0, num(x, 0), num(x, 0))));
}

/* Slices ahead of the one at hand are copied as long as there are any: where none is cut off by the end of k that is one question for
 * all copies, instead of one for each. */
static Stmt *copy_ahead(Mx *x, const Side *s, ExprId kt, ExprId slot, CopyPart part) {
  Stmt *copy = mx_copy(x, s, kt, slot, part);
  return mx_whole(x) ? st_if(x->c, less(x, kt, x->tiles), false, copy, NULL) : copy;
}
/* What passes through registers is read with the copies, and stored when that has had time to arrive. */
static Stmt *begin_copy(Mx *x, const Side *s, ExprId kt, ExprId slot) {
  return copy_ahead(x, s, kt, slot, s->async ? COPY : FETCH);
}
static Stmt *end_copies(Mx *x, ExprId kt, ExprId slot) {
  Stmt *s = x->a.async ? NULL : copy_ahead(x, &x->a, kt, slot, PUT);
  return seq(x, s, x->b.async ? NULL : copy_ahead(x, &x->b, kt, slot, PUT));
}

/* One set of fragments: loaded, then multiplied. */
static Stmt *step_plainly(Mx *x, ExprId slot, ExprId ahead, ExprId ahead_slot) {
  Stmt *s = next_slice(x);
  s = seq(x, s, begin_copy(x, &x->a, ahead, ahead_slot));
  s = seq(x, s, begin_copy(x, &x->b, ahead, ahead_slot));
  s = seq(x, s, mx_commit(x));
  return seq(x, seq(x, s, multiply(x, slot)), end_copies(x, ahead, ahead_slot));
}

/* Warpgroups: products of one slice, or of two, are under way while a later one is copied to where those that are done were. */
static Stmt *step_grouped(Mx *x, ExprId slot, ExprId ahead, ExprId ahead_slot) {
  Stmt *s = seq(x, next_slice(x), group_products(x, slot));
  s = seq(x, s, begin_copy(x, &x->a, ahead, ahead_slot));
  s = seq(x, s, begin_copy(x, &x->b, ahead, ahead_slot));
  s = seq(x, seq(x, s, mx_commit(x)), mx_group_wait(x, x->t.warpgroups - 1, x->acc, 0));
  return seq(x, s, end_copies(x, ahead, ahead_slot));
}

/* Products of three terms: those of a slice are under way while the next one is loaded, and a later one is copied to where
 * the one before was. */
static Stmt *step_three(Mx *x, ExprId kt, ExprId slot, ExprId after, ExprId ahead, ExprId ahead_slot) {
  Stmt *copies = seq(x, begin_copy(x, &x->a, ahead, ahead_slot), begin_copy(x, &x->b, ahead, ahead_slot));
  Stmt *s = mx_three_products(x, kt, slot, after, seq(x, copies, mx_commit(x)));
  s = seq(x, seq(x, s, end_copies(x, ahead, ahead_slot)), arrived(x, x->ahead - 2));
  return seq(x, seq(x, s, mx_three_add(x)), low_barrier(x->c));
}

/* Two sets: while one is multiplied the other is loaded, over the border of slices too. The copies are between the first
 * products: they go to where the slice before this one was, whose fragments all were loaded before the barrier. */
static Stmt *step_ahead(Mx *x, ExprId slot, ExprId after, ExprId ahead, ExprId ahead_slot) {
  int n = x->t.block_k / x->step;
  Stmt *s = NULL;
  for (int ks = 0; ks < n; ks++) {
    bool last = ks == n - 1;
    if (last && x->t.stages == 2) s = seq(x, s, end_copies(x, ahead, ahead_slot));
    if (last) s = seq(x, s, next_slice(x));
    s = seq(x, s, fragments(x, (ks + 1) % 2, last ? after : slot, num(x, last ? 0 : (ks + 1) * x->step)));
    if (ks == 0) s = seq(x, s, begin_copy(x, &x->a, ahead, ahead_slot));
    if (ks == (n > 2)) s = seq(x, seq(x, s, begin_copy(x, &x->b, ahead, ahead_slot)), mx_commit(x));
    s = seq(x, s, seq(x, products(x, ks % 2), settle(x, ks)));
  }
  return x->t.stages == 2 ? s : seq(x, s, end_copies(x, ahead, ahead_slot));
}

/* Where slice kt is. It counts on from slice to slice where a remainder would be more than a mask: on its way to the first
 * fragments of a slice a warp waits for a dozen instructions less (7 to 18 % of kernels with three stages on an H200). */
static bool counts_on(const Mx *x) { return !mx_plain(x) && x->tiles > 1 && (x->t.stages & (x->t.stages - 1)) != 0; }
/* The place n behind that of the slice at hand, 0 <= n < stages. */
static ExprId place_behind(Mx *x, ExprId kt, int n) {
  if (!counts_on(x)) return tidy(x, rest(x, ex_add(x->c, kt, num(x, n)), x->t.stages));
  int back = x->t.stages - n;
  ExprId here = element(x, x->place, num(x, 0));
  if (n == 0) return here;
  return ex_select(x->c, less(x, here, back), ex_add(x->c, here, num(x, n)), ex_sub(x->c, here, num(x, back)));
}

static Stmt *steps(Mx *x) {
  Loop kt = loop(x, "kt", x->tiles, FOR_SERIAL);
  ExprId now = var(x, kt.v), ahead = ex_add(x->c, now, num(x, x->ahead));
  ExprId slot = place_behind(x, now, 0), ahead_slot = place_behind(x, now, x->ahead), after = place_behind(x, now, 1);
  Stmt *s = mx_three(x)     ? step_three(x, now, slot, after, ahead, ahead_slot)
            : mx_grouped(x) ? step_grouped(x, slot, ahead, ahead_slot)
            : x->sets > 1   ? step_ahead(x, slot, after, ahead, ahead_slot)
                            : step_plainly(x, slot, ahead, ahead_slot);
  if (counts_on(x)) {
    ExprId first = num(x, 0);
    s = around(x, kt, seq(x, s, store(x, x->place, first, after)));
    s = seq(x, store(x, x->place, first, first), s);
  } else
    s = around(x, kt, s);
  return mx_grouped(x) && !mx_three(x) ? seq(x, s, mx_group_wait(x, 0, x->acc, x->sums)) : s;
}

/* Pairs of float16, or the sums of small products, become a part of the sums that results are made of. */
static Stmt *unpacked(Mx *x) {
  IrCtx *c = x->c;
  if (x->units == x->acc || mx_three(x)) return NULL;
  if (three(x)) return add_three(x, 1);
  Loop z = loop(x, "z", x->sums, FOR_UNROLLED);
  DType bits = dtype(DT_UINT, 32), half = dtype(DT_UINT, 16);
  ExprId two[] = {element(x, x->units, quot(x, var(x, z.v), 2)),
                  ex_cast(c, bits, scaled(x, rest(x, var(x, z.v), 2), 16))};
  ExprId one = ex_cast(c, half, ex_call(c, IN_SHR, bits, 2, two));
  ExprId value = ex_cast(c, x->v.sums, ex_call(c, IN_REINTERPRET, DT_F16, 1, &one));
  return around(x, z, store(x, x->acc, var(x, z.v), value));
}

/* ---- the kernel ---- */

static void grid_of(const Mx *x, int64_t grid[3]) {
  grid[0] = i64_ceildiv(x->v.m.size, x->t.block_m);
  grid[1] = i64_ceildiv(x->v.n.size, x->t.block_n);
  grid[2] = x->v.batch.size * x->t.split;
}

/* The kernel computes every element, and stores all of them. */
static void check_whole(Mx *x) {
  const State *s = x->env->s;
  const TeOp *op = x->st->op;
  const Stage *sum = &s->stage.at[x->v.sum_stage];
  Err *e = ir_err(x->c);
  for (int i = 0; i < op->n_axis; i++) {
    const Axis *a = &x->st->axes.at[i];
    int64_t n, all;
    bool same = ex_is_int(x->c, a->min, 0) && ex_const_int(x->c, a->extent, &n) &&
                ex_const_int(x->c, op->axis[i].extent, &all) && n == all;
    err_check(e, same, "stage %s on tensor cores is computed as a whole, but only a part of it along %s is read",
              op->name, op->axis[i].name);
  }
  err_check(e, !x->st->store_predicate && !sum->store_predicate,
            "stage %s on tensor cores stores all of its elements: it can have no condition of its store", op->name);
  err_check(e, sum == x->st || !x->env->is_arg || !x->env->is_arg[x->v.sum_stage],
            "stage %s on tensor cores keeps its sum %s in registers: leave it out of the arguments", op->name,
            sum->op->name);
}

/* Products by lanes, or tensor cores for such factors, are there from a compute capability on. */
static void check_machine(Mx *x) {
  bool lanes = mx_lanes(x), single = dtype_eq(x->v.type, DT_F32);
  const Target *t = x->env->t;
  if (lanes ? matrix_by_lanes(t) : matrix_on_cores(t, x->v.type)) return;
  int sm = t->gpu.sm, since = lanes ? gpu_since(GPU_LANES) : matrix_cores_since(x->v.type);
  StrBuf b;
  sb_init(&b, ir_arena(x->c));
  dtype_print(&b, x->v.type);
  err_raise(
      ir_err(x->c), NS_ERR_VALUE,
      "stage %s asks for %s of %s, which compute capability %d.%d does not have: %d.%d is the first. Leave the stage "
      "to loops%s",
      x->st->op->name, lanes ? "a product by lanes" : "tensor cores for factors", sb_str(&b), sm / 10, sm % 10,
      since / 10, since % 10,
      lanes                          ? ""
      : single && matrix_by_lanes(t) ? ", or multiply by lanes (0 terms)"
      : matrix_on_cores(t, DT_F16)   ? ", or compute it in float16"
                                     : "");
}

static void check(Mx *x, int stage) {
  const LowMatrix *env = x->env;
  const char *why, *name = x->st->op->name, *how = mx_lanes(x) ? "a product by lanes" : "tensor cores";
  Err *e = ir_err(x->c);
  err_check(e, env->t->kind == TG_CUDA, "stage %s asks for %s, which only CUDA targets have", name, how);
  if (!matrix_view(env->s, stage, x->t.transposed, env->body, &x->v, &why))
    err_raise(e, NS_ERR_VALUE, "stage %s is no product of matrices for tensor cores: %s", name, why);
  check_machine(x);
  bool groups = !x->t.warpgroups || matrix_groups(env->t, x->v.type);
  err_check(e, groups || dtype_is_float(x->v.type), "stage %s asks for warpgroups' products, which are of floats alone",
            name);
  err_check(e, groups, "stage %s asks for warpgroups' products, which only compute capability 9.0 has, not %d", name,
            env->t->gpu.sm);
  err_check(e, !matrix_half_sums(&x->t) || x->v.half,
            "stage %s on tensor cores is to be added up in float16, but its sums do not become float16", name);
  const char *fault = matrix_tile_fault(&x->t, x->v.type);
  err_check(e, !fault, "stage %s on tensor cores: %s", name, fault);
  int64_t grid[3];
  grid_of(x, grid);
  err_check(
      e, grid[1] <= GPU_GRID_YZ && grid[2] <= GPU_GRID_YZ,
      "stage %s on tensor cores: %lld x %lld blocks in y and z; a GPU takes %d in each, use larger blocks or turn the "
      "product around",
      name, (long long)grid[1], (long long)grid[2], GPU_GRID_YZ);
  check_whole(x);
}

static void begin(Mx *x) {
  int64_t grid[3];
  grid_of(x, grid);
  static const char *const NAME[] = {"blockIdx.x", "blockIdx.y", "blockIdx.z"};
  x->bytes = dtype_bytes(x->v.type);
  x->step = 32 / x->bytes;
  x->team = matrix_team(&x->t);
  x->mi = x->t.warp_m * 2 / x->team, x->ni = x->t.warp_n / 8;
  x->ahead = matrix_ahead(&x->t);
  x->sets = mx_plain(x) ? 1 : matrix_sets(&x->t, x->v.type, x->env->t);
  x->threads = matrix_threads(&x->t);
  for (int i = 0; i < 3; i++) x->block[i] = loop(x, NAME[i], grid[i], FOR_BLOCK_X).v;
  x->tid = loop(x, "threadIdx.x", x->threads, FOR_THREAD_X).v;
  x->a.rows = &x->v.m, x->a.block = x->t.block_m, x->a.first = scaled(x, var(x, x->block[0]), x->t.block_m);
  x->b.rows = &x->v.n, x->b.block = x->t.block_n, x->b.first = scaled(x, var(x, x->block[1]), x->t.block_n);
  x->tiles = (int)i64_ceildiv(i64_ceildiv(x->v.k.size, x->t.block_k), x->t.split);
  x->batch = tidy(x, quot(x, var(x, x->block[2]), x->t.split));
  x->part = tidy(x, rest(x, var(x, x->block[2]), x->t.split));
  ExprId row = ex_add(x->c, scaled(x, x->batch, grid[1]), var(x, x->block[1]));
  x->tile = tidy(x, ex_add(x->c, scaled(x, row, grid[0]), var(x, x->block[0])));
  x->blocks = grid[0] * grid[1] * grid[2];
  mx_slices(x);
  x->sums = x->t.warp_m * x->t.warp_n / x->team;
  x->acc = array(x, "sums", x->v.sums, SC_LOCAL, x->sums);
  bool pairs = matrix_half_sums(&x->t) && !mx_plain(x);
  x->units = pairs      ? array(x, "pairs", dtype(DT_UINT, 32), SC_LOCAL, x->sums / 2)
             : three(x) ? array(x, "sums.of.parts", DT_F32, SC_LOCAL, 2 * x->sums)
                        : x->acc;
  x->halves = x->keeps = 2, x->in_row = x->ni;
  if (mx_lanes(x))
    mx_lanes_begin(x);
  else if (mx_three(x))
    mx_three_begin(x);
  else {
    x->fa = array(x, "A.fragments", dtype(DT_UINT, 32), SC_LOCAL, x->sets * x->mi * 4);
    x->fb = array(x, "B.fragments", dtype(DT_UINT, 32), SC_LOCAL, x->sets * x->ni * 2);
  }
  if (x->t.wide)
    x->passing =
        array(x, "sums.shared", x->v.sums, SC_SHARED, (int64_t)x->threads / GPU_WARP * matrix_wide_room(&x->t));
  x->place = array(x, "place", DT_I32, SC_LOCAL, 1);
  x->clustered = !mx_plain(x) && matrix_clustered(&x->t, x->env->t);
  x->late = x->clustered && matrix_late(&x->t, x->a.type, x->env->t);
  if (x->t.last && !mx_plain(x)) {
    x->last = array(x, "last", DT_I32, SC_LOCAL, 1);
    x->counts = array(x, "counts", DT_I32, SC_GLOBAL, x->blocks / x->t.split);
    ir_buffer(x->c, x->counts)->keeps = true;
  }
  if (!x->clustered && x->t.teams == 1) return;
  x->shared = array(x, "sums.shared", x->v.sums, SC_SHARED,
                    x->clustered ? matrix_cluster_sums(&x->t) : (int64_t)x->sums * x->threads);
  if (x->clustered) x->arrivals = array(x, "arrivals", DT_I64, SC_SHARED, 1);
  x->total = array(x, "total", x->v.sums, SC_LOCAL, x->keeps);
}

static Stmt *kernel(Mx *x) {
  BufferId sums = x->acc;
  Stmt *s = seq(x, seq(x, start(x), steps(x)), unpacked(x));
  s = seq(x, s, x->shared ? mx_add_up_here(x) : x->last ? NULL : mx_results(x));
  if (x->last) s = seq(x, s, mx_last(x));
  bool both_sides = mx_lanes(x) || !(mx_plain(x) || mx_grouped(x));
  BufferId local[] = {x->arrivals, /* the innermost array of shared memory comes last, and may be of any size */
                      sums,
                      x->units == sums ? 0 : x->units,
                      both_sides || mx_three(x) ? x->fa : 0,
                      both_sides || mx_three(x) ? x->fb : 0,
                      x->a.inside,
                      x->b.inside,
                      x->a.async ? 0 : x->a.passing,
                      x->b.async ? 0 : x->b.passing,
                      x->a.shared,
                      x->b.shared,
                      x->shared,
                      x->total,
                      x->passing,
                      x->last,
                      counts_on(x) ? x->place : 0,
                      x->high,
                      x->low,
                      x->rest,
                      x->left};
  s = st_attr(x->c, AT_SYNCED, x->clustered ? x->t.split : 1, NULL, s);
  for (int i = 0; i < NS_COUNT(local); i++)
    if (local[i]) s = st_alloc(x->c, local[i], s);
  s = around(x, (Loop){x->tid, x->threads, FOR_THREAD_X}, s);
  int64_t grid[3];
  grid_of(x, grid);
  for (int i = 2; i >= 0; i--) s = around(x, (Loop){x->block[i], grid[i], FOR_BLOCK_X + (ForKind)i}, s);
  return s;
}

Stmt *low_matrix(const LowMatrix *env, int stage) {
  IrCtx *c = env->s->ctx;
  Mx *x = arena_new_of(ir_arena(c), Mx);
  *x = (Mx){.env = env, .c = c, .ar = ar_new(c), .st = &env->s->stage.at[stage]};
  x->t = *x->st->matrix;
  check(x, stage);
  begin(x);
  if (x->t.split == 1 || x->clustered) return kernel(x);
  double parts = mx_parts(x);
  err_check(ir_err(c), parts < INT32_MAX, "stage %s on tensor cores: its parts are too large", x->st->op->name);
  x->partial = array(x, "parts", x->v.sums, SC_GLOBAL, (int64_t)parts);
  Stmt *first = kernel(x);
  if (x->last) return st_alloc(c, x->counts, st_alloc(c, x->partial, first));
  return st_alloc(c, x->partial, seq(x, first, mx_add_up(x)));
}
