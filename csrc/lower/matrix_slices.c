/* matrix_slices: the slices of the factors of a product on tensor cores, in shared memory, and their copies.
 *
 * Elements are found by index arithmetic on (row, k), so that a convolution needs no copy of its data; an element outside of the
 * matrix, or in a convolution's padding, is a copy of zeros.
 *
 * A slice keeps in one line of shared memory what follows each other in global memory, along k or along the rows, so that
 * copies have up to 16 bytes; `ldmatrix` transposes what lies the other way round, which it can for 16-bit types only: of others
 * all lines run along k. Chunks of 16 bytes change places within their line, by XOR with the number of the line: eight lines that
 * are read together are in different banks. What is not contiguous, or not a plain element, passes through registers: read before
 * the products, so that it arrives during them, stored behind them. So does everything where the GPU has no copies in flight, as many
 * bytes at once.
 */
#include "lower/matrix.h"

enum { SMALL_FACTOR = 64, GROUP_LINE = 128, GROUP_ALIGN = 1024 };

ExprId mx_loads(Mx *x, ExprId e) { return low_loads(x->c, e, x->env->buf_of, x->st->op->name, x->v.sum); }

/* Values of the dimensions of x at the position `at`. */
int mx_place(Mx *x, const MatrixIndex *d, ExprId at, VarSub *sub) {
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
  e = mx_loads(x, e);
  bool choice = ex_is_choice(c, e);
  s->value = e;
  s->type = ir_type(c, e);
  if (!choice || ir_kid(c, e, 2) != ex_zero(c, s->type)) return;
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
  int w = MX_CHUNK / x->bytes;
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
  s->by_k = (x->bytes != 2 && !mx_lanes(x)) || along_k > along_rows || (along_k == along_rows && !next_row);
  s->by_k |= mx_grouped(x) && !in_panels(x, s);
  s->rows_first = along_k == 1 && next_row;
  s->vec = s->by_k ? along_k : along_rows;
  s->at_once = s->vec * x->bytes >= 4 && ir_kind(x->c, s->value) == IR_LOAD &&
               dtype_eq(ir_buffer(x->c, ir_node(x->c, s->value)->sym)->type, s->type);
  s->async = s->at_once && (mx_plain(x) || gpu_has(&x->env->t->gpu, GPU_COPY_ASYNC));
  if (!s->at_once) s->vec = 1;
  s->lines = s->by_k ? s->block : x->t.block_k;
  s->line = s->by_k ? x->t.block_k : s->block;
  s->panel = mx_grouped(x) && s->line * x->bytes > GROUP_LINE ? GROUP_LINE / x->bytes : s->line;
  int chunks = s->panel * x->bytes / MX_CHUNK;
  bool in_order = mx_lanes(x) && !s->by_k; /* lanes read neighbours of a line, which are in different banks */
  bool power = chunks > 1 && (chunks & (chunks - 1)) == 0 && s->panel * x->bytes % MX_CHUNK == 0;
  s->mask = !power || in_order ? 1 : chunks < 8 ? chunks : 8;
  s->shift = 8 / s->mask;
  s->pitch = (s->panel * x->bytes + MX_CHUNK - 1) / MX_CHUNK * (MX_CHUNK / x->bytes) +
             (power || in_order || chunks % 2 ? 0 : MX_CHUNK / x->bytes);
}

/* The axis of k that runs fastest is the one along which most can be copied at once. */
static void order_k(Mx *x) {
  MatrixIndex kept = x->v.k, *k = &x->v.k;
  int best = -1, most = 0;
  for (int i = kept.n - 1; i >= 0; i--) {
    int score = 0;
    const Side *s[] = {&x->a, &x->b};
    for (int q = 0; q < 2; q++)
      for (int w = MX_CHUNK / x->bytes; w > 1; w /= 2)
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

int64_t mx_panel_size(const Side *s) { return (int64_t)s->lines * s->pitch; }
int64_t mx_slice(const Side *s) { return mx_panel_size(s) * (s->line / s->panel); }

/* Of one copy's registers. */
static int words(const Mx *x, const Side *s) { return s->at_once ? s->vec * x->bytes / 4 : 1; }

/* Whether a row's element is padding is a matter of the tap, of which a convolution has few: where they fit a word, it is asked once for
 * each (an H100, best of four schedules of a layer: float16 3.5 % at batch 1 and 1.6 % at 16, float32 1.8 and 1.1, TF32 1.2 and 0.4). */
enum { MOST_TAPS = 31, MOST_TURNS = 16 }; /* a thread has a word for each of its rows */
static int64_t turns(const Mx *x, const Side *s) { return i64_ceildiv(s->lines * s->line / s->vec, x->threads); }
static void find_taps(Mx *x, Side *s, const char *name) {
  const MatrixIndex *k = &x->v.k;
  int64_t per_tap = 1;
  int n = k->n;
  if (!s->cond || mx_plain(x) || low_expr_loads(x->c, s->cond))
    return; /* what it reads is asked where it is known to be there */
  while (n > 0 && !ex_uses_var(x->c, s->cond, k->var[n - 1])) per_tap *= k->extent[--n];
  if (n == 0 || k->size / per_tap > MOST_TAPS || turns(x, s) > MOST_TURNS) return;
  s->taps = (int)(k->size / per_tap), s->per_tap = (int)per_tap;
  s->inside = array(x, name, DT_I32, SC_LOCAL, turns(x, s));
}

/* What both factors are, which way their slices lie, and the buffers for them. */
void mx_slices(Mx *x) {
  Side *s[] = {&x->a, &x->b};
  split_value(x, &x->a, x->v.a);
  split_value(x, &x->b, x->v.b);
  order_k(x);
  for (int i = 0; i < 2; i++) {
    lie(x, s[i]);
    s[i]->shared = array(x, i ? "B.slices" : "A.slices", s[i]->type, SC_SHARED, x->t.stages * mx_slice(s[i]));
    if (mx_grouped(x)) ir_buffer(x->c, s[i]->shared)->align = GROUP_ALIGN;
    s[i]->passing = array(x, i ? "B.passing" : "A.passing", s[i]->at_once ? dtype(DT_UINT, 32) : s[i]->type, SC_LOCAL,
                          turns(x, s[i]) * words(x, s[i]));
    find_taps(x, s[i], i ? "B.inside" : "A.inside");
  }
}

/* ---- copies ---- */

/* The slice with that number among those of the block's part of the sum. */
static ExprId of_part(Mx *x, ExprId kt) { return ex_add(x->c, scaled(x, x->part, x->tiles), kt); }

/* Where element e of a line would be if chunks did not change places. */
ExprId mx_line_spot(Mx *x, const Side *s, ExprId slot, ExprId line, ExprId *e) {
  ExprId base = ex_add(x->c, scaled(x, slot, mx_slice(s)), scaled(x, line, s->pitch));
  if (s->panel == s->line) return base;
  base = ex_add(x->c, base, scaled(x, quot(x, *e, s->panel), mx_panel_size(s)));
  *e = tidy(x, rest(x, *e, s->panel));
  return base;
}

/* Where element e of a line is; line and e may be any expressions. */
ExprId mx_spot(Mx *x, const Side *s, ExprId slot, ExprId line, ExprId e) {
  int per = MX_CHUNK / x->bytes;
  ExprId base = mx_line_spot(x, s, slot, line, &e);
  if (s->mask == 1) return ex_add(x->c, base, e);
  ExprId two[] = {tidy(x, quot(x, e, per)), tidy(x, rest(x, quot(x, line, s->shift), s->mask))};
  ExprId chunk = ex_call(x->c, IN_BXOR, DT_I32, 2, two);
  return ex_add(x->c, ex_add(x->c, base, scaled(x, chunk, per)), tidy(x, rest(x, e, per)));
}

typedef struct {
  ExprId at, cond, value;
} Piece; /* place in shared memory; element there */

/* What a thread copies in its i-th turn, lane j of it: a line of the slice, an element of that, and its row. */
typedef struct {
  ExprId line, e, row;
} Turn;
static Turn turn_of(Mx *x, const Side *s, ExprId turn, ExprId j) {
  IrCtx *c = x->c;
  int per_line = s->line / s->vec;
  ExprId q = ex_add(c, scaled(x, turn, x->threads), var(x, x->tid));
  bool swap = s->rows_first && s->by_k;
  Turn t = {.line = tidy(x, swap ? rest(x, q, s->lines) : quot(x, q, per_line)),
            .e = tidy(x, scaled(x, swap ? quot(x, q, s->lines) : rest(x, q, per_line), s->vec))};
  if (j) t.e = ex_add(c, t.e, j);
  t.row = tidy(x, ex_add(c, s->first, s->by_k ? t.line : t.e));
  return t;
}
static int places(Mx *x, const Side *s, ExprId row, ExprId k, VarSub *sub) {
  int n = mx_place(x, s->rows, row, sub);
  n += mx_place(x, &x->v.k, k, sub + n);
  return n + mx_place(x, &x->v.batch, x->batch, sub + n);
}
static ExprId in_rows(Mx *x, const Side *s, ExprId row) {
  return s->rows->size % s->block ? less(x, row, s->rows->size) : 0;
}

Stmt *mx_inside(Mx *x, const Side *s) {
  if (!s->taps) return NULL;
  Loop turn = loop(x, "turn", turns(x, s), FOR_UNROLLED), tap = loop(x, "tap", s->taps, FOR_UNROLLED);
  Turn t = turn_of(x, s, var(x, turn.v), 0);
  VarSub sub[MX_SUBS];
  int n = places(x, s, t.row, scaled(x, var(x, tap.v), s->per_tap), sub);
  ExprId is = tidy(x, both(x, ex_subst(x->c, s->cond, n, sub), in_rows(x, s, t.row)));
  ExprId shift[] = {num(x, 1), var(x, tap.v)}, here = element(x, s->inside, var(x, turn.v));
  ExprId bits[] = {here, ex_select(x->c, is, ex_call(x->c, IN_SHL, DT_I32, 2, shift), num(x, 0))};
  Stmt *add = store(x, s->inside, var(x, turn.v), ex_call(x->c, IN_BOR, DT_I32, 2, bits));
  return around(x, turn, seq(x, store(x, s->inside, var(x, turn.v), num(x, 0)), around(x, tap, add)));
}
static ExprId inside(Mx *x, const Side *s, ExprId turn, ExprId k) {
  ExprId shift[] = {element(x, s->inside, turn), tidy(x, quot(x, k, s->per_tap))};
  ExprId bit[] = {ex_call(x->c, IN_SHR, DT_I32, 2, shift), num(x, 1)};
  return ex_bin(x->c, IR_NE, ex_call(x->c, IN_BAND, DT_I32, 2, bit), num(x, 0));
}

/* kt counts the slices of the block's part of the sum. */
static Piece piece(Mx *x, const Side *s, ExprId kt, ExprId slot, ExprId turn, ExprId j) {
  IrCtx *c = x->c;
  Turn t = turn_of(x, s, turn, j);
  ExprId k = tidy(x, ex_add(c, scaled(x, of_part(x, kt), x->t.block_k), s->by_k ? t.e : t.line));
  VarSub sub[MX_SUBS];
  int n = places(x, s, t.row, k, sub);
  Piece p = {.at = mx_spot(x, s, slot, t.line, t.e)};
  p.value = ex_subst(c, s->value, n, sub);
  if (s->taps)
    p.cond = inside(x, s, turn, k);
  else
    p.cond =
        both(x, in_rows(x, s, t.row), s->cond ? ex_subst(c, s->cond, n, sub) : 0); /* which may read what no row has */
  if (!mx_whole(x)) p.cond = both(x, less(x, k, x->v.k.size), p.cond);
  if (x->t.split > 1 && !mx_whole(x))
    p.cond = both(x, less(x, kt, x->tiles), p.cond); /* what follows is another block's */
  p.cond = p.cond ? tidy(x, p.cond) : ex_int(x->c, DT_BOOL, 1);
  return p;
}
static ExprId or_zero(Mx *x, const Side *s, Piece p) {
  ExprId k[] = {p.cond, p.value, ex_zero(x->c, s->type)};
  return ex_is_int(x->c, p.cond, 1) ? p.value : ex_call(x->c, IN_IF_THEN_ELSE, s->type, 3, k);
}

/* One copy, or one part of it. */
static Stmt *copy_one(Mx *x, const Side *s, Piece p, ExprId turn, CopyPart part) {
  ExprId there = element(x, s->shared, p.at), passing = element(x, s->passing, scaled(x, turn, words(x, s)));
  if (mx_plain(x) || !s->at_once)
    return part == PUT     ? store(x, s->shared, p.at, passing)
           : part == FETCH ? store(x, s->passing, turn, or_zero(x, s, p))
                           : store(x, s->shared, p.at, or_zero(x, s, p));
  ExprId copied[] = {num(x, s->vec), there, p.value, p.cond}, fetched[] = {copied[0], passing, p.value, p.cond},
         stored[] = {copied[0], there, passing};
  return part == COPY    ? call(x, IN_COPY_ASYNC, 4, copied)
         : part == FETCH ? call(x, IN_COPY_FETCH, 4, fetched)
                         : call(x, IN_COPY_PUT, 3, stored);
}

Stmt *mx_copy(Mx *x, const Side *s, ExprId kt, ExprId slot, CopyPart part) {
  if (part == COPY && s->at_once && !s->async) /* all reads first */
    return seq(x, mx_copy(x, s, kt, slot, FETCH), mx_copy(x, s, kt, slot, PUT));
  int n = s->lines * s->line / s->vec;
  Loop turn = loop(x, "turn", turns(x, s), FOR_UNROLLED);
  Loop j = loop(x, "j", s->vec, FOR_VECTOR);
  bool wide = mx_plain(x) && s->vec > 1;
  Piece p = piece(x, s, kt, slot, var(x, turn.v), wide ? var(x, j.v) : 0);
  Stmt *body = copy_one(x, s, p, var(x, turn.v), part);
  if (wide) body = around(x, j, body);
  if (n % x->threads) {
    ExprId q = ex_add(x->c, scaled(x, var(x, turn.v), x->threads), var(x, x->tid));
    body = st_if(x->c, less(x, q, n), false, body, NULL);
  }
  return around(x, turn, body);
}
Stmt *mx_commit(Mx *x) { return (x->a.async || x->b.async) && !mx_plain(x) ? call(x, IN_COPY_COMMIT, 0, NULL) : NULL; }
