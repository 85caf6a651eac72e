/* matrix: the kernel of a product on tensor cores (schedule/matrix.c says which stages are one; spec 07 §7.8.2, 1, 3 to 6).
 *
 * A block computes a tile of C. The slices of A and B that it needs for one step along k lie in shared memory; `stages` slices
 * are there or on their way, so that the copy of a slice has the time of several steps to arrive:
 *
 *     copy slices 0 .. stages-2; wait for slice 0; barrier; first fragments
 *     for kt: for each step along k in the slice: load the next step's fragments while this one's are multiplied; between
 *         the first products copy slice kt+stages-1 to where slice kt-1 was; before the last ones wait for slice kt+1; barrier
 *     results of C, with whatever the stage does to them
 *
 * One barrier per slice is enough: whoever passes it has loaded the last fragments of slice kt, whose place is overwritten
 * next, and what each thread waited for is visible to all. Where two sets of fragments have no room in registers, or the
 * steps of a slice are odd in number, fragments are loaded right before they are multiplied. Elements are found by index arithmetic on (row, k), so that a convolution needs no
 * copy of its data; an element outside of the matrix, or in a convolution's padding, is a copy of zeros.
 *
 * A slice keeps in one line of shared memory what follows each other in global memory, along k or along the rows, so that
 * copies have up to 16 bytes; `ldmatrix` transposes what lies the other way round, which it can for 16-bit types only. Chunks
 * of 16 bytes change places within their line, by XOR with the number of the line: eight lines that are read together are in
 * different banks. What is not contiguous, or not a plain element, passes through registers: read before the products, so
 * that it arrives during them, stored behind them.
 *
 * Warpgroups (wgmma, sm_90a) have no fragments: their products read slices where they lie, in lines of 128 bytes at most; longer ones
 * are in panels side by side. The products of a slice, or of two, are under way while the next one is copied to where the one before
 * them was, and are waited for behind that.
 *
 * Where there are too few tiles for the device, `split` blocks share the sum of each. Where the device has clusters they add up
 * among themselves, else a second kernel does.
 *
 * For features the same loops are made with plain statements in place of the instructions.
 */
#include "lower/util.h"

enum { MAX_SUBS = 4 * MATRIX_DIMS, CHUNK = 16, SMALL_FACTOR = 64, GROUP_LINE = 128, GROUP_ALIGN = 1024 };

typedef struct {      /* a factor and its slice */
  ExprId cond, value; /* cond (0: true) ? value : 0, by variables of the dimensions */
  const MatrixIndex *rows;
  int block, lines, line; /* rows of the block; lines of the slice and elements of one */
  int panel;              /* of them side by side: a line is in so many pieces, each of which has its lines below it */
  int vec, pitch, mask, shift;  /* elements of one copy; from one line to the next; of the swizzle */
  bool by_k, rows_first, async; /* lines run along k; neighbouring threads copy neighbouring rows */
  BufferId shared, passing;
  ExprId first; /* row that the block begins with */
} Side;

typedef struct {
  const LowMatrix *env;
  IrCtx *c;
  Arith *ar;
  const Stage *st;
  MatrixTile t;
  MatrixView v;
  Side a, b;
  int bytes, step, threads, tiles; /* of an element; of k by one instruction; tiles along k */
  int mi, ni, sets;                /* instructions of a warp's tile, of 16x8 sums for each warp; sets of fragments */
  int team, ahead; /* threads that compute a warp's tile; slices that are copied before they are needed */
  VarId block[3], tid;
  ExprId batch, part; /* of the block at hand */
  bool clustered;
  BufferId acc, fa, fb, partial;
  BufferId mine, other, total; /* of blocks that add up among themselves */
} Mx;

static bool plain(const Mx *x) { return low_for_rows(x->env->use) || x->env->use == LOW_ANALYSIS; }
static ExprId num(Mx *x, int64_t n) { return ex_i32(x->c, n); }
static ExprId var(Mx *x, VarId v) { return ex_var(x->c, v); }
static ExprId tidy(Mx *x, ExprId e) { return ar_simplify(x->ar, e); }
static ExprId scaled(Mx *x, ExprId e, int64_t by) { return ex_mul(x->c, e, num(x, by)); }
static ExprId quot(Mx *x, ExprId e, int64_t by) { return ex_fdiv(x->c, e, num(x, by)); }
static ExprId rest(Mx *x, ExprId e, int64_t by) { return ex_fmod(x->c, e, num(x, by)); }
static ExprId less(Mx *x, ExprId e, int64_t n) { return ex_bin(x->c, IR_LT, e, num(x, n)); }
static ExprId both(Mx *x, ExprId a, ExprId b) { return !a ? b : !b ? a : ex_bin(x->c, IR_AND, a, b); }
static ExprId lane(Mx *x) { return rest(x, var(x, x->tid), GPU_WARP); }
static bool grouped(const Mx *x) { return x->t.warpgroups && !plain(x); }
static ExprId element(Mx *x, BufferId b, ExprId at) {
  at = tidy(x, at);
  return ex_load(x->c, b, ir_buffer(x->c, b)->type, 1, &at);
}
static Stmt *store(Mx *x, BufferId b, ExprId at, ExprId value) {
  at = tidy(x, at);
  return st_store(x->c, b, 1, &at, value);
}
static Stmt *call(Mx *x, Intrin in, int n, const ExprId *args) {
  return st_eval(x->c, ex_call(x->c, in, DT_I32, n, args));
}
static Stmt *seq(Mx *x, Stmt *a, Stmt *b) { return st_seq(x->c, 2, (Stmt *[]){a, b}); }

/* A loop whose body comes later. */
typedef struct {
  VarId v;
  int64_t n;
  ForKind kind;
} Loop;
static Loop loop(Mx *x, const char *name, int64_t n, ForKind kind) {
  Loop l = {ir_var_new(x->c, name, DT_I32, false), n, kind};
  ar_bind_range(x->ar, l.v, num(x, 0), num(x, n));
  return l;
}
static Stmt *around(Mx *x, Loop l, Stmt *body) {
  Stmt *s = st_for(x->c, l.v, num(x, 0), num(x, l.n), l.kind, body);
  if (l.kind >= FOR_BLOCK_X) s->u.loop.thread_obj = l.v;
  return s;
}
static BufferId array(Mx *x, const char *name, DType t, ScopeKind scope, int64_t n) {
  return ir_array(x->c, name, t, scope, n, false);
}

/* ---- elements ---- */

static ExprId loads(Mx *x, ExprId e) { return low_loads(x->c, e, x->env->buf_of, x->st->op->name, x->v.sum); }

/* Values of the dimensions of x at the position `at`. */
static int place(Mx *x, const MatrixIndex *d, ExprId at, VarSub *sub) {
  for (int i = d->n - 1; i >= 0; i--) {
    ExprId v = tidy(x, i ? rest(x, at, d->extent[i]) : at);
    DType t = ir_var_info(x->c, d->var[i])->type;
    sub[i] = (VarSub){d->var[i], dtype_eq(t, DT_I32) ? v : ex_cast(x->c, t, v)};
    at = quot(x, at, d->extent[i]);
  }
  return d->n;
}

static void split_value(Mx *x, Side *s, ExprId e) {
  IrCtx *c = x->c;
  e = loads(x, e);
  bool choice = ir_kind(c, e) == IR_SELECT || (ir_kind(c, e) == IR_CALL && ir_node(c, e)->sym == IN_IF_THEN_ELSE);
  s->value = e;
  if (!choice || ir_kind(c, ir_kid(c, e, 2)) != IR_FLT || ir_node(c, ir_kid(c, e, 2))->u.f != 0) return;
  s->cond = ir_kid(c, e, 0);
  s->value = ir_kid(c, e, 1);
}

/* ---- which way a slice lies ---- */

/* Does the element at position w*q + i of that axis follow the one at w*q, for all i < w? aligned: and can they be copied at
 * once? */
static bool contiguous(Mx *x, const Side *s, VarId axis, int64_t extent, int64_t w, bool aligned) {
  IrCtx *c = x->c;
  if (ir_kind(c, s->value) != IR_LOAD || extent % w) return false;
  const IrBuffer buf = *ir_buffer(c, ir_node(c, s->value)->sym);
  int n = ir_node(c, s->value)->n;
  int64_t row;
  Arith *ar = ar_new(c);
  const MatrixIndex *all[] = {&x->v.batch, &x->v.m, &x->v.n, &x->v.k};
  for (int k = 0; k < NS_COUNT(all); k++)
    for (int i = 0; i < all[k]->n; i++) ar_bind_range(ar, all[k]->var[i], num(x, 0), num(x, all[k]->extent[i]));
  VarId q = ir_var_new(c, "q", DT_I32, false), i = ir_var_new(c, "i", DT_I32, false);
  ar_bind_range(ar, q, num(x, 0), num(x, extent / w));
  ar_bind_range(ar, i, num(x, 0), num(x, w));
  ExprId from = scaled(x, var(x, q), w), at = ex_add(c, from, var(x, i));
  DType t = ir_var_info(c, axis)->type;
  if (!dtype_eq(t, DT_I32)) from = ex_cast(c, t, from), at = ex_cast(c, t, at);
  VarSub first = {axis, from}, here = {axis, at};
  for (int d = 0; d < n; d++) {
    ExprId e = ir_kid(c, s->value, d), x0 = ar_simplify(ar, ex_subst(c, e, 1, &first)),
           xi = ar_simplify(ar, ex_subst(c, e, 1, &here));
    ExprId want =
        d == n - 1 ? ex_add(c, x0, dtype_eq(ir_type(c, x0), DT_I32) ? var(x, i) : ex_cast(c, DT_I64, var(x, i))) : x0;
    if (!ar_prove_eq(ar, xi, want)) return false;
    if (d < n - 1 || !aligned) continue;
    Residue r = ar_residue(ar, x0);
    if (r.coeff % w || r.base % w) return false;
    if (n > 1 && (!ex_const_int(c, buf.extent[d], &row) || row % w)) return false;
  }
  if (!s->cond || !aligned) return true;
  return ar_simplify(ar, ex_subst(c, s->cond, 1, &first)) == ar_simplify(ar, ex_subst(c, s->cond, 1, &here));
}

static int widest(Mx *x, const Side *s, const MatrixIndex *d, int block) {
  int w = CHUNK / x->bytes;
  if (d->n == 0) return 1;
  while (w > 1 && (block % w || !contiguous(x, s, d->var[d->n - 1], d->extent[d->n - 1], w, true))) w /= 2;
  return w;
}

/* Can a warpgroup take its part of lines along the rows? Those of 128 bytes at most are a panel, and its part is whole ones or lies
 * in one. */
static bool in_panels(const Mx *x, const Side *s) {
  int bytes = s->block * x->bytes, own = (s == &x->a ? x->t.warp_m : x->t.warp_n) * x->bytes;
  int line = bytes < GROUP_LINE ? bytes : GROUP_LINE;
  return (line == 32 || line == 64 || line == GROUP_LINE) && bytes % line == 0 && (own % line == 0 || line % own == 0);
}

static void lie(Mx *x, Side *s) {
  const MatrixIndex *r = s->rows, *k = &x->v.k;
  int along_k = widest(x, s, k, x->t.block_k), along_rows = widest(x, s, r, s->block);
  bool next_row =
      r->n > 0 && r->extent[r->n - 1] > 1 && contiguous(x, s, r->var[r->n - 1], r->extent[r->n - 1], 1, false);
  if (next_row) { /* by one only: the next element of a row of the tensor */
    int w = 2;
    while (w < SMALL_FACTOR && r->extent[r->n - 1] % w) w++;
    next_row =
        contiguous(x, s, r->var[r->n - 1], r->extent[r->n - 1], w < SMALL_FACTOR ? w : r->extent[r->n - 1], false);
  }
  s->by_k = x->bytes == 4 || along_k > along_rows || (along_k == along_rows && !next_row);
  s->by_k |= grouped(x) && !in_panels(x, s);
  s->rows_first = along_k == 1 && next_row;
  s->vec = s->by_k ? along_k : along_rows;
  s->async = s->vec * x->bytes >= 4 && ir_kind(x->c, s->value) == IR_LOAD &&
             dtype_eq(ir_buffer(x->c, ir_node(x->c, s->value)->sym)->type, x->v.type);
  if (!s->async) s->vec = 1;
  s->lines = s->by_k ? s->block : x->t.block_k;
  s->line = s->by_k ? x->t.block_k : s->block;
  s->panel = grouped(x) && s->line * x->bytes > GROUP_LINE ? GROUP_LINE / x->bytes : s->line;
  int chunks = s->panel * x->bytes / CHUNK;
  bool power = chunks > 1 && (chunks & (chunks - 1)) == 0 && s->panel * x->bytes % CHUNK == 0;
  s->mask = !power ? 1 : chunks < 8 ? chunks : 8;
  s->shift = 8 / s->mask;
  s->pitch = (s->panel * x->bytes + CHUNK - 1) / CHUNK * (CHUNK / x->bytes) + (power ? 0 : CHUNK / x->bytes);
}

/* The axis of k that runs fastest is the one along which most can be copied at once. */
static void order_k(Mx *x) {
  MatrixIndex kept = x->v.k, *k = &x->v.k;
  int best = -1, most = 0;
  for (int i = kept.n - 1; i >= 0; i--) {
    int score = 0;
    const Side *s[] = {&x->a, &x->b};
    for (int q = 0; q < 2; q++)
      for (int w = CHUNK / x->bytes; w > 1; w /= 2)
        if (contiguous(x, s[q], kept.var[i], kept.extent[i], w, true)) {
          score += w;
          break;
        }
    if (best < 0 || score > most) best = i, most = score;
  }
  if (best < 0) return;
  for (int i = best; i + 1 < kept.n; i++) k->var[i] = kept.var[i + 1], k->extent[i] = kept.extent[i + 1];
  k->var[kept.n - 1] = kept.var[best], k->extent[kept.n - 1] = kept.extent[best];
}

/* ---- copies ---- */

/* The slice with that number among those of the block's part of the sum. */
static ExprId of_part(Mx *x, ExprId kt) { return ex_add(x->c, scaled(x, x->part, x->tiles), kt); }

static int64_t panel_size(const Side *s) { return (int64_t)s->lines * s->pitch; }
static int64_t slice(const Side *s) { return panel_size(s) * (s->line / s->panel); }

/* Where element e of a line would be if chunks did not change places. */
static ExprId line_spot(Mx *x, const Side *s, ExprId slot, ExprId line, ExprId *e) {
  ExprId base = ex_add(x->c, scaled(x, slot, slice(s)), scaled(x, line, s->pitch));
  if (s->panel == s->line) return base;
  base = ex_add(x->c, base, scaled(x, quot(x, *e, s->panel), panel_size(s)));
  *e = tidy(x, rest(x, *e, s->panel));
  return base;
}

/* Where element e of a line is; line and e may be any expressions. */
static ExprId spot(Mx *x, const Side *s, ExprId slot, ExprId line, ExprId e) {
  int per = CHUNK / x->bytes;
  ExprId base = line_spot(x, s, slot, line, &e);
  if (s->mask == 1) return ex_add(x->c, base, e);
  ExprId two[] = {tidy(x, quot(x, e, per)), tidy(x, rest(x, quot(x, line, s->shift), s->mask))};
  ExprId chunk = ex_call(x->c, IN_BXOR, DT_I32, 2, two);
  return ex_add(x->c, ex_add(x->c, base, scaled(x, chunk, per)), tidy(x, rest(x, e, per)));
}

typedef struct {
  ExprId at, cond, value;
} Piece; /* place in shared memory; element there */

/* What a thread copies in its i-th turn, lane j of it; kt counts the slices of the block's part of the sum. */
static Piece piece(Mx *x, const Side *s, ExprId kt, ExprId slot, ExprId turn, ExprId j) {
  IrCtx *c = x->c;
  int per_line = s->line / s->vec;
  ExprId q = ex_add(c, scaled(x, turn, x->threads), var(x, x->tid));
  bool swap = s->rows_first && s->by_k;
  ExprId line = tidy(x, swap ? rest(x, q, s->lines) : quot(x, q, per_line)),
         e = tidy(x, scaled(x, swap ? quot(x, q, s->lines) : rest(x, q, per_line), s->vec));
  if (j) e = ex_add(c, e, j);
  ExprId row = tidy(x, ex_add(c, s->first, s->by_k ? line : e)),
         k = tidy(x, ex_add(c, scaled(x, of_part(x, kt), x->t.block_k), s->by_k ? e : line));
  VarSub sub[MAX_SUBS];
  int n = place(x, s->rows, row, sub);
  n += place(x, &x->v.k, k, sub + n);
  n += place(x, &x->v.batch, x->batch, sub + n);
  Piece p = {.at = spot(x, s, slot, line, e)};
  p.value = ex_subst(c, s->value, n, sub);
  if (s->cond) p.cond = ex_subst(c, s->cond, n, sub);
  p.cond = both(x, less(x, k, x->v.k.size), p.cond);
  if (x->t.split > 1) p.cond = both(x, less(x, kt, x->tiles), p.cond); /* what follows is another block's */
  if (s->rows->size % s->block) p.cond = both(x, less(x, row, s->rows->size), p.cond);
  p.cond = tidy(x, p.cond);
  return p;
}
static ExprId or_zero(Mx *x, Piece p) {
  ExprId k[] = {p.cond, p.value, ex_flt(x->c, x->v.type, 0)};
  return ex_is_int(x->c, p.cond, 1) ? p.value : ex_call(x->c, IN_IF_THEN_ELSE, x->v.type, 3, k);
}

typedef enum { COPY, FETCH, PUT } CopyPart; /* all of it; into registers; from there */
static Stmt *copy(Mx *x, const Side *s, ExprId kt, ExprId slot, CopyPart part) {
  int n = s->lines * s->line / s->vec;
  Loop turn = loop(x, "turn", i64_ceildiv(n, x->threads), FOR_UNROLLED);
  Loop j = loop(x, "j", s->vec, FOR_VECTOR);
  bool wide = plain(x) && s->vec > 1;
  Piece p = piece(x, s, kt, slot, var(x, turn.v), wide ? var(x, j.v) : 0);
  Stmt *body;
  if (part == COPY && s->async && !plain(x)) {
    ExprId args[] = {num(x, s->vec), element(x, s->shared, p.at), p.value, p.cond};
    body = call(x, IN_COPY_ASYNC, 4, args);
  } else if (part == PUT)
    body = store(x, s->shared, p.at, element(x, s->passing, var(x, turn.v)));
  else
    body =
        part == FETCH ? store(x, s->passing, var(x, turn.v), or_zero(x, p)) : store(x, s->shared, p.at, or_zero(x, p));
  if (wide) body = around(x, j, body);
  if (n % x->threads) {
    ExprId q = ex_add(x->c, scaled(x, var(x, turn.v), x->threads), var(x, x->tid));
    body = st_if(x->c, less(x, q, n), false, body, NULL);
  }
  return around(x, turn, body);
}
static Stmt *commit(Mx *x) { return (x->a.async || x->b.async) && !plain(x) ? call(x, IN_COPY_COMMIT, 0, NULL) : NULL; }

/* ---- products ---- */

static ExprId warp_row(Mx *x) { /* of A that the warp's tile begins with, and of B */
  return scaled(x, quot(x, quot(x, var(x, x->tid), x->team), x->t.block_n / x->t.warp_n), x->t.warp_m);
}
static ExprId warp_col(Mx *x) {
  return scaled(x, rest(x, quot(x, var(x, x->tid), x->team), x->t.block_n / x->t.warp_n), x->t.warp_n);
}
/* Of the rows of a tile that its instruction i computes, those that the warp at hand keeps begin with this one. */
static ExprId instruction_row(Mx *x, ExprId i) {
  ExprId row = scaled(x, i, x->team / 2);
  return x->team == GPU_WARP ? row
                             : ex_add(x->c, row, scaled(x, quot(x, rest(x, var(x, x->tid), x->team), GPU_WARP), 16));
}

/* n 8x8 matrices of a slice, from `row` and k on. Which of them lane i / 8 names is a matter of the operand: in A the second
 * is below the first, in B behind it along k. */
static Stmt *fragment(Mx *x, const Side *s, int n, BufferId to, ExprId at, ExprId slot, ExprId row, ExprId k) {
  bool is_a = s == &x->a;
  ExprId which = quot(x, lane(x), 8), low = rest(x, which, 2), high = quot(x, which, 2), in = rest(x, lane(x), 8);
  ExprId rows = scaled(x,
                       n == 2 ? num(x, 0)
                       : is_a ? low
                              : high,
                       8),
         cols = scaled(x, is_a ? high : low, CHUNK / x->bytes);
  row = ex_add(x->c, row, rows), k = ex_add(x->c, k, cols);
  ExprId line = tidy(x, ex_add(x->c, s->by_k ? row : k, in)), e = tidy(x, s->by_k ? k : row);
  ExprId args[] = {num(x, n), num(x, !s->by_k), element(x, to, at), element(x, s->shared, spot(x, s, slot, line, e))};
  return call(x, IN_FRAGMENT, 4, args);
}

/* The fragments of one step along k, into one of the sets. */
static ExprId in_set(Mx *x, int set, int all, ExprId at) { return ex_add(x->c, at, num(x, set * all)); }
static Stmt *fragments(Mx *x, int set, ExprId slot, ExprId k) {
  int pairs = x->ni / 2, a = x->mi * 4, b = x->ni * 2;
  Loop i = loop(x, "mi", x->mi, FOR_UNROLLED), j = loop(x, "nj", pairs, FOR_UNROLLED);
  ExprId row = ex_add(x->c, warp_row(x), scaled(x, var(x, i.v), 16)), col = warp_col(x);
  Stmt *s = around(x, i, fragment(x, &x->a, 4, x->fa, in_set(x, set, a, scaled(x, var(x, i.v), 4)), slot, row, k));
  if (pairs) {
    ExprId at = ex_add(x->c, col, scaled(x, var(x, j.v), 16));
    s = seq(x, s,
            around(x, j, fragment(x, &x->b, 4, x->fb, in_set(x, set, b, scaled(x, var(x, j.v), 4)), slot, at, k)));
  }
  if (x->ni % 2) {
    ExprId at = ex_add(x->c, col, num(x, 16 * pairs));
    s = seq(x, s, fragment(x, &x->b, 2, x->fb, in_set(x, set, b, num(x, 4 * pairs)), slot, at, k));
  }
  return s;
}

/* What the lane keeps in register r of an instruction: row and column in its 16x8 tile. */
static ExprId acc_row(Mx *x, ExprId r) { return ex_add(x->c, quot(x, lane(x), 4), scaled(x, quot(x, r, 2), 8)); }
static ExprId acc_col(Mx *x, ExprId r) { return ex_add(x->c, scaled(x, rest(x, lane(x), 4), 2), rest(x, r, 2)); }

static Stmt *multiply_plain(Mx *x, ExprId slot, ExprId k, Loop i, Loop j) {
  Loop r = loop(x, "r", 4, FOR_UNROLLED), kk = loop(x, "kk", x->step, FOR_UNROLLED);
  ExprId row = ex_add(x->c, ex_add(x->c, warp_row(x), instruction_row(x, var(x, i.v))), acc_row(x, var(x, r.v))),
         col = ex_add(x->c, ex_add(x->c, warp_col(x), scaled(x, var(x, j.v), 8)), acc_col(x, var(x, r.v)));
  k = ex_add(x->c, k, var(x, kk.v));
  ExprId two[2];
  const Side *s[] = {&x->a, &x->b};
  for (int q = 0; q < 2; q++) {
    ExprId at = q ? col : row;
    two[q] = element(x, s[q]->shared, spot(x, s[q], slot, s[q]->by_k ? at : k, s[q]->by_k ? k : at));
    if (x->bytes < 4) two[q] = ex_cast(x->c, DT_F32, two[q]);
  }
  ExprId at = ex_add(x->c, scaled(x, ex_add(x->c, scaled(x, var(x, i.v), x->ni), var(x, j.v)), 4), var(x, r.v));
  Stmt *b = store(x, x->acc, at, ex_add(x->c, element(x, x->acc, at), ex_mul(x->c, two[0], two[1])));
  return around(x, kk, around(x, r, b));
}

static MmaType mma_type(const Mx *x) {
  return x->bytes == 4 ? x->t.terms == 3 ? MMA_TF32X3 : MMA_TF32 : x->v.type.code == DT_BFLOAT ? MMA_BF16 : MMA_F16;
}

static Stmt *products(Mx *x, int set) {
  Loop i = loop(x, "mi", x->mi, FOR_UNROLLED), j = loop(x, "ni", x->ni, FOR_UNROLLED);
  ExprId at = scaled(x, ex_add(x->c, scaled(x, var(x, i.v), x->ni), var(x, j.v)), 4);
  ExprId args[] = {num(x, mma_type(x)), element(x, x->acc, at),
                   element(x, x->fa, in_set(x, set, x->mi * 4, scaled(x, var(x, i.v), 4))),
                   element(x, x->fb, in_set(x, set, x->ni * 2, scaled(x, var(x, j.v), 2)))};
  return around(x, i, around(x, j, call(x, IN_MMA, 4, args)));
}

static Stmt *multiply(Mx *x, ExprId slot) {
  Loop ks = loop(x, "ks", x->t.block_k / x->step, FOR_UNROLLED);
  ExprId k = scaled(x, var(x, ks.v), x->step);
  if (!plain(x)) return around(x, ks, seq(x, fragments(x, 0, slot, k), products(x, 0)));
  Loop i = loop(x, "mi", x->mi, FOR_UNROLLED), j = loop(x, "ni", x->ni, FOR_UNROLLED);
  return around(x, ks, around(x, i, around(x, j, multiply_plain(x, slot, k, i, j))));
}

/* A warpgroup's products of one slice. A tile begins with a line whose chunks do not change places, or it begins in such a line's
 * place: the instruction finds them by their addresses. */
static ExprId group_tile(Mx *x, const Side *s, ExprId slot, ExprId row, ExprId k) {
  ExprId e = tidy(x, s->by_k ? k : row), base = line_spot(x, s, slot, s->by_k ? row : k, &e);
  return element(x, s->shared, ex_add(x->c, base, e));
}
static Stmt *group_products(Mx *x, ExprId slot) {
  Loop ks = loop(x, "ks", x->t.block_k / x->step, FOR_UNROLLED), i = loop(x, "mi", x->mi, FOR_UNROLLED);
  ExprId k = scaled(x, var(x, ks.v), x->step), row = ex_add(x->c, warp_row(x), scaled(x, var(x, i.v), x->team / 2));
  ExprId args[9] = {num(x, mma_type(x)), num(x, x->t.warp_n), element(x, x->acc, scaled(x, var(x, i.v), x->ni * 4)),
                    group_tile(x, &x->a, slot, row, k), group_tile(x, &x->b, slot, warp_col(x), k)};
  const Side *s[] = {&x->a, &x->b};
  for (int q = 0; q < 2; q++) {
    args[5 + 2 * q] = num(x, (int64_t)s[q]->pitch * x->bytes);
    args[6 + 2 * q] = num(x, s[q]->by_k ? 0 : panel_size(s[q]) * x->bytes);
  }
  Stmt *b = around(x, ks, around(x, i, call(x, IN_GROUP_MMA, 9, args)));
  return seq(x, call(x, IN_GROUP_BEGIN, 0, NULL), seq(x, b, call(x, IN_GROUP_COMMIT, 0, NULL)));
}
static Stmt *group_wait(Mx *x, int under_way) {
  ExprId n = num(x, under_way);
  return call(x, IN_GROUP_WAIT, 1, &n);
}

/* ---- the sum ---- */

/* The next slice has arrived, and nobody reads the one before this one any more. */
static Stmt *next_slice(Mx *x) {
  ExprId left = num(x, x->ahead - 1);
  Stmt *s = commit(x) ? call(x, IN_COPY_WAIT, 1, &left) : NULL;
  if (grouped(x)) s = seq(x, s, call(x, IN_GROUP_SEES, 0, NULL));
  return seq(x, s, low_barrier(x->c));
}

static Stmt *start(Mx *x) {
  Loop z = loop(x, "z", x->mi * x->ni * 4, FOR_UNROLLED);
  Stmt *s = around(x, z, store(x, x->acc, var(x, z.v), ex_flt(x->c, DT_F32, 0)));
  for (int i = 0; i < x->ahead; i++) {
    s = seq(x, s, copy(x, &x->a, num(x, i), num(x, i), COPY));
    s = seq(x, s, copy(x, &x->b, num(x, i), num(x, i), COPY));
    s = seq(x, s, commit(x));
  }
  return x->sets < 2 ? s : seq(x, s, seq(x, next_slice(x), fragments(x, 0, num(x, 0), num(x, 0))));
}

/* What passes through registers is read with the copies, and stored when that has had time to arrive. */
static Stmt *begin_copy(Mx *x, const Side *s, ExprId kt, ExprId slot) {
  return copy(x, s, kt, slot, s->async ? COPY : FETCH);
}
static Stmt *end_copies(Mx *x, ExprId kt, ExprId slot) {
  Stmt *s = x->a.async ? NULL : copy(x, &x->a, kt, slot, PUT);
  return seq(x, s, x->b.async ? NULL : copy(x, &x->b, kt, slot, PUT));
}

/* One set of fragments: loaded, then multiplied. */
static Stmt *step_plainly(Mx *x, ExprId slot, ExprId ahead, ExprId ahead_slot) {
  Stmt *s = next_slice(x);
  s = seq(x, s, begin_copy(x, &x->a, ahead, ahead_slot));
  s = seq(x, s, begin_copy(x, &x->b, ahead, ahead_slot));
  s = seq(x, s, commit(x));
  return seq(x, seq(x, s, multiply(x, slot)), end_copies(x, ahead, ahead_slot));
}

/* Warpgroups: products of one slice, or of two, are under way while a later one is copied to where those that are done were. */
static Stmt *step_grouped(Mx *x, ExprId slot, ExprId ahead, ExprId ahead_slot) {
  Stmt *s = seq(x, next_slice(x), group_products(x, slot));
  s = seq(x, s, begin_copy(x, &x->a, ahead, ahead_slot));
  s = seq(x, s, begin_copy(x, &x->b, ahead, ahead_slot));
  s = seq(x, seq(x, s, commit(x)), group_wait(x, x->t.warpgroups - 1));
  return seq(x, s, end_copies(x, ahead, ahead_slot));
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
    if (ks == (n > 2)) s = seq(x, seq(x, s, begin_copy(x, &x->b, ahead, ahead_slot)), commit(x));
    s = seq(x, s, products(x, ks % 2));
  }
  return x->t.stages == 2 ? s : seq(x, s, end_copies(x, ahead, ahead_slot));
}

static Stmt *steps(Mx *x) {
  Loop kt = loop(x, "kt", x->tiles, FOR_SERIAL);
  ExprId now = var(x, kt.v), ahead = ex_add(x->c, now, num(x, x->ahead));
  ExprId slot = tidy(x, rest(x, now, x->t.stages)), ahead_slot = tidy(x, rest(x, ahead, x->t.stages)),
         after = tidy(x, rest(x, ex_add(x->c, now, num(x, 1)), x->t.stages));
  Stmt *s = grouped(x)    ? step_grouped(x, slot, ahead, ahead_slot)
            : x->sets > 1 ? step_ahead(x, slot, after, ahead, ahead_slot)
                          : step_plainly(x, slot, ahead, ahead_slot);
  s = around(x, kt, s);
  return grouped(x) && x->t.warpgroups > 1 ? seq(x, s, group_wait(x, 0)) : s;
}

/* ---- results ---- */

typedef struct {
  Mx *x;
  ExprId value;
} Result;
static ExprId sum_to_value(IrCtx *c, ExprId e, void *arg) {
  const Result *r = arg;
  if (ir_kind(c, e) != IR_READ || ir_node(c, e)->sym != r->x->v.sum) return e;
  DType t = ir_type(c, e);
  return dtype_eq(t, DT_F32) ? r->value : ex_cast(c, t, r->value);
}

static Stmt *result(Mx *x, ExprId m, ExprId n, ExprId one, ExprId acc) {
  IrCtx *c = x->c;
  const TeOp *op = x->st->op;
  int stage = (int)(x->st - x->env->s->stage.at);
  VarSub sub[MAX_SUBS];
  int k = place(x, &x->v.m, m, sub), to = k;
  k += place(x, &x->v.n, n, sub + k);
  if (one) sub[to + x->v.n.n - 1].value = ex_add(c, sub[to + x->v.n.n - 1].value, one);
  k += place(x, &x->v.batch, x->batch, sub + k);
  ExprId body = x->env->body[stage] ? x->env->body[stage][0] : op->body[0], value = element(x, x->acc, acc);
  if (x->v.sum) {
    Result r = {x, value};
    value = ex_map(c, ex_subst(c, loads(x, body), k, sub), sum_to_value, &r);
  } else if (!dtype_eq(ir_type(c, body), DT_F32))
    value = ex_cast(c, ir_type(c, body), value);
  ExprId *idx = arena_array(ir_arena(c), ExprId, op->n_axis + 1);
  for (int i = 0; i < op->n_axis; i++) idx[i] = ex_subst(c, ex_var(c, op->axis[i].var), k, sub);
  return st_store(c, mapu_get(x->env->buf_of, (uint64_t)op->out[0], 0), op->n_axis, idx, value);
}

/* A part of a sum, for the kernel that adds up: [part, batch, m, n]. */
static ExprId partial_at(Mx *x, ExprId part, ExprId m, ExprId n) {
  ExprId matrix = ex_add(x->c, scaled(x, part, x->v.batch.size), x->batch);
  return ex_add(x->c, scaled(x, ex_add(x->c, scaled(x, matrix, x->v.m.size), m), x->v.n.size), n);
}

/* Neighbours along n are neighbours in memory, so that two can be stored at once. */
static bool in_pairs(const Mx *x) {
  const TeOp *op = x->st->op;
  const MatrixIndex *d = &x->v.n;
  return d->n && op->n_axis && d->var[d->n - 1] == op->axis[op->n_axis - 1].var && d->extent[d->n - 1] % 2 == 0 &&
         dtype_eq(ir_var_info(x->c, d->var[d->n - 1])->type, DT_I32);
}

/* Row and column of the matrix that a thread's sums of a warp's instruction (i, j) belong to: the upper or lower half of its
 * rows, the first of two neighbours. */
static ExprId result_row(Mx *x, ExprId i, ExprId half) {
  ExprId first = ex_add(x->c, x->a.first, warp_row(x));
  return tidy(x, ex_add(x->c, first, ex_add(x->c, instruction_row(x, i), acc_row(x, scaled(x, half, 2)))));
}
static ExprId result_col(Mx *x, ExprId j) {
  ExprId first = ex_add(x->c, x->b.first, warp_col(x));
  return tidy(x, ex_add(x->c, first, ex_add(x->c, scaled(x, j, 8), acc_col(x, num(x, 0)))));
}

/* Stores two neighbours, as far as they are inside; ready: what is stored are results, not parts of sums. */
static Stmt *neighbours(Mx *x, ExprId m, ExprId n, ExprId at, bool ready) {
  IrCtx *c = x->c;
  bool pairs = ready ? in_pairs(x) : x->v.n.size % 2 == 0;
  Loop e = loop(x, "e", 2, pairs ? FOR_VECTOR : FOR_UNROLLED);
  ExprId next = tidy(x, ex_add(c, n, var(x, e.v))), acc = ex_add(c, at, var(x, e.v));
  Stmt *s = ready ? result(x, m, pairs ? n : next, pairs ? var(x, e.v) : 0, acc)
                  : store(x, x->partial, partial_at(x, x->part, m, next), element(x, x->acc, acc));
  ExprId in_n = x->v.n.size % x->t.block_n ? less(x, pairs ? n : next, x->v.n.size) : 0,
         in_m = x->v.m.size % x->t.block_m ? less(x, m, x->v.m.size) : 0;
  if (in_n && !pairs) s = st_if(c, in_n, false, s, NULL);
  s = around(x, e, s);
  ExprId in = both(x, in_m, pairs ? in_n : 0);
  return in ? st_if(c, in, false, s, NULL) : s;
}

static Stmt *results(Mx *x) {
  IrCtx *c = x->c;
  Loop i = loop(x, "mi", x->mi, FOR_UNROLLED), j = loop(x, "ni", x->ni, FOR_UNROLLED),
       h = loop(x, "h", 2, FOR_UNROLLED);
  ExprId at = ex_add(c, scaled(x, ex_add(c, scaled(x, var(x, i.v), x->ni), var(x, j.v)), 4), scaled(x, var(x, h.v), 2));
  Stmt *s = neighbours(x, result_row(x, var(x, i.v), var(x, h.v)), result_col(x, var(x, j.v)), at, x->t.split == 1);
  return around(x, i, around(x, h, around(x, j, s)));
}

/* The second kernel of a split sum: a thread adds up the parts of one or two neighbours, in their order. */
enum { ADDERS = 128 };
static Stmt *add_up(Mx *x) {
  IrCtx *c = x->c;
  int w = in_pairs(x) ? 2 : 1;
  int64_t all = x->v.batch.size * x->v.m.size * (x->v.n.size / w);
  Loop block = loop(x, "blockIdx.x", i64_ceildiv(all, ADDERS), FOR_BLOCK_X),
       thread = loop(x, "threadIdx.x", ADDERS, FOR_THREAD_X), z = loop(x, "z", w, FOR_UNROLLED),
       part = loop(x, "part", x->t.split, FOR_UNROLLED), i = loop(x, "i", w, w > 1 ? FOR_VECTOR : FOR_UNROLLED),
       e = loop(x, "e", w, w > 1 ? FOR_VECTOR : FOR_UNROLLED);
  ExprId at = ex_add(c, scaled(x, var(x, block.v), ADDERS), var(x, thread.v));
  ExprId n = scaled(x, rest(x, at, x->v.n.size / w), w), row = quot(x, at, x->v.n.size / w);
  ExprId m = tidy(x, rest(x, row, x->v.m.size));
  n = tidy(x, n);
  x->batch = tidy(x, quot(x, row, x->v.m.size));
  x->acc = array(x, "total", DT_F32, SC_LOCAL, w);
  Stmt *zero = around(x, z, store(x, x->acc, var(x, z.v), ex_flt(c, DT_F32, 0)));
  ExprId from = element(x, x->partial, partial_at(x, var(x, part.v), m, ex_add(c, n, var(x, i.v))));
  Stmt *add = store(x, x->acc, var(x, i.v), ex_add(c, element(x, x->acc, var(x, i.v)), from));
  Stmt *s = seq(x, seq(x, zero, around(x, part, around(x, i, add))),
                around(x, e, result(x, m, n, w > 1 ? var(x, e.v) : 0, var(x, e.v))));
  if (all % ADDERS) s = st_if(c, less(x, at, all), false, s, NULL);
  return around(x, block, around(x, thread, st_alloc(c, x->acc, s)));
}

/* A cluster's blocks add up among themselves: each leaves its sums in its shared memory, by thread, and adds up every so
 * manieth pair of neighbours of all blocks, in their order. Nobody leaves before all have read. */
static Stmt *add_up_here(Mx *x) {
  IrCtx *c = x->c;
  int n = x->mi * x->ni * 2, by = x->t.split; /* pairs of a thread, blocks */
  Loop z = loop(x, "z", 2 * n, FOR_UNROLLED), turn = loop(x, "turn", i64_ceildiv(n, by), FOR_UNROLLED),
       zero = loop(x, "z", 2, FOR_UNROLLED), part = loop(x, "part", by, FOR_UNROLLED),
       i = loop(x, "i", 2, FOR_UNROLLED);
  ExprId tid = var(x, x->tid), none = num(x, 0);
  Stmt *s = commit(x) ? call(x, IN_COPY_WAIT, 1, &none) : NULL; /* copies of nothing are on their way to the slices */
  s = seq(x, s, low_barrier(c));
  Stmt *keep = store(x, x->mine, ex_add(c, scaled(x, var(x, z.v), x->threads), tid), element(x, x->acc, var(x, z.v)));
  s = seq(x, seq(x, s, around(x, z, keep)), call(x, IN_CLUSTER_SYNC, 0, NULL));
  ExprId pair = ex_add(c, scaled(x, var(x, turn.v), by), x->part);
  Stmt *sum = around(x, zero, store(x, x->total, var(x, zero.v), ex_flt(c, DT_F32, 0)));
  ExprId from = ex_add(c, scaled(x, ex_add(c, scaled(x, pair, 2), var(x, i.v)), x->threads), tid);
  ExprId args[] = {element(x, x->other, var(x, i.v)), element(x, x->mine, from), var(x, part.v)};
  Stmt *add =
      store(x, x->total, var(x, i.v), ex_add(c, element(x, x->total, var(x, i.v)), element(x, x->other, var(x, i.v))));
  sum = seq(x, sum, around(x, part, seq(x, around(x, i, call(x, IN_CLUSTER_READ, 3, args)), around(x, i, add))));
  ExprId tile = tidy(x, quot(x, pair, 2));
  x->acc = x->total;
  Stmt *out = neighbours(x, result_row(x, quot(x, tile, x->ni), rest(x, pair, 2)), result_col(x, rest(x, tile, x->ni)),
                         num(x, 0), true);
  sum = seq(x, sum, out);
  if (n % by) sum = st_if(c, less(x, pair, n), false, sum, NULL);
  return seq(x, seq(x, s, around(x, turn, sum)), call(x, IN_CLUSTER_SYNC, 0, NULL));
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

static void check(Mx *x, int stage) {
  const LowMatrix *env = x->env;
  const char *why, *name = x->st->op->name;
  Err *e = ir_err(x->c);
  err_check(e, env->t->kind == TG_CUDA, "stage %s asks for tensor cores, which only CUDA targets have", name);
  err_check(e, env->t->gpu.sm >= 80 || env->t->gpu.sm == 0,
            "stage %s asks for tensor cores: compute capability %d is less than 80", name, env->t->gpu.sm);
  err_check(e, !x->t.warpgroups || matrix_groups(env->t),
            "stage %s asks for warpgroups' products, which only compute capability 9.0 has, not %d", name,
            env->t->gpu.sm);
  if (!matrix_view(env->s, stage, x->t.transposed, env->body, &x->v, &why))
    err_raise(e, NS_ERR_VALUE, "stage %s is no product of matrices for tensor cores: %s", name, why);
  const char *fault = matrix_tile_fault(&x->t, x->v.type);
  err_check(e, !fault, "stage %s on tensor cores: %s", name, fault);
  double parts = (double)x->t.split * (double)x->v.batch.size * (double)x->v.m.size * (double)x->v.n.size;
  err_check(e, x->t.split == 1 || parts < INT32_MAX, "stage %s on tensor cores: its parts are too large", name);
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
  x->sets = plain(x) ? 1 : matrix_sets(&x->t, x->v.type);
  x->threads = matrix_threads(&x->t);
  for (int i = 0; i < 3; i++) x->block[i] = loop(x, NAME[i], grid[i], FOR_BLOCK_X).v;
  x->tid = loop(x, "threadIdx.x", x->threads, FOR_THREAD_X).v;
  x->a.rows = &x->v.m, x->a.block = x->t.block_m, x->a.first = scaled(x, var(x, x->block[0]), x->t.block_m);
  x->b.rows = &x->v.n, x->b.block = x->t.block_n, x->b.first = scaled(x, var(x, x->block[1]), x->t.block_n);
  split_value(x, &x->a, x->v.a);
  split_value(x, &x->b, x->v.b);
  order_k(x);
  x->tiles = (int)i64_ceildiv(i64_ceildiv(x->v.k.size, x->t.block_k), x->t.split);
  x->batch = tidy(x, quot(x, var(x, x->block[2]), x->t.split));
  x->part = tidy(x, rest(x, var(x, x->block[2]), x->t.split));
  Side *s[] = {&x->a, &x->b};
  for (int i = 0; i < 2; i++) {
    lie(x, s[i]);
    s[i]->shared = array(x, i ? "B.slices" : "A.slices", x->v.type, SC_SHARED, x->t.stages * slice(s[i]));
    if (grouped(x)) ir_buffer(x->c, s[i]->shared)->align = GROUP_ALIGN;
    s[i]->passing = array(x, i ? "B.passing" : "A.passing", x->v.type, SC_LOCAL,
                          i64_ceildiv(s[i]->lines * s[i]->line / s[i]->vec, x->threads));
  }
  x->acc = array(x, "sums", DT_F32, SC_LOCAL, x->mi * x->ni * 4);
  x->fa = array(x, "A.fragments", dtype(DT_UINT, 32), SC_LOCAL, x->sets * x->mi * 4);
  x->fb = array(x, "B.fragments", dtype(DT_UINT, 32), SC_LOCAL, x->sets * x->ni * 2);
  x->clustered = !plain(x) && matrix_clustered(&x->t, x->env->t);
  if (!x->clustered) return;
  x->mine = array(x, "sums.shared", DT_F32, SC_SHARED, (int64_t)x->t.block_m * x->t.block_n);
  x->other = array(x, "sum.of.block", DT_F32, SC_LOCAL, 2);
  x->total = array(x, "total", DT_F32, SC_LOCAL, 2);
}

static Stmt *kernel(Mx *x) {
  BufferId sums = x->acc;
  Stmt *s = seq(x, start(x), steps(x));
  s = seq(x, s, x->clustered ? add_up_here(x) : results(x));
  BufferId local[] = {sums,
                      plain(x) || grouped(x) ? 0 : x->fa,
                      plain(x) || grouped(x) ? 0 : x->fb,
                      x->a.async ? 0 : x->a.passing,
                      x->b.async ? 0 : x->b.passing,
                      x->a.shared,
                      x->b.shared,
                      x->mine,
                      x->other,
                      x->total};
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
  x->partial = array(x, "parts", DT_F32, SC_GLOBAL, x->t.split * x->v.batch.size * x->v.m.size * x->v.n.size);
  Stmt *first = kernel(x);
  return st_alloc(c, x->partial, seq(x, first, add_up(x)));
}
