/* registers: on CPUs vector loops become vector statements and accumulators move into registers (spec 07 §7.2.9, §7.5.2).
 *
 *   for k: for i in [0,4): vectorized j in [0,32): C[i*512 + j + ..] += A[..k] * B[..k, j]
 *
 * becomes
 *
 *   acc[0:16] = C[ramp ..]; ...                 one piece per vector of the tile, all at constant positions
 *   for k: acc[0:16] = acc[0:16] + bcast(A[..]) * B[ramp ..]; ...
 *   C[ramp ..] = acc[0:16]; ...
 *
 * Where the loop right before has set all of C's tile to a number, acc begins with that number and the loop is dropped; for that,
 * spatial loops outside of the reduction belong to the nest, too. Where the loop right behind is the only reader of C, what it makes of
 * each sum is made of acc and stored, and C is not written at all.
 * The array acc is marked `registers`; code generation makes a variable of each piece. The order of additions to an element does
 * not change, so results are the same bits. Spatial loops that do not fit into the registers move out of the reduction, whole or
 * in part (7 rows as 3, 2 and 2, where a divisor would leave too few sums to keep a core busy; base/tile.h); but when the reduction loops
 * within them are long enough to pay for loads and stores of the tile, they stay (the outer reduction loop is then a cache tile
 * of the schedule) and only the inner part is kept in registers.
 * Loops without a reduction become vectors in registers_wide.c.
 */
#include <math.h>
#include <stdlib.h>
#include "base/tile.h"
#include "lower/registers.h"

enum { MAX_NEST = LOW_SWEPT, LONG_REDUCTION = 16, MAX_UNROLLED = 192, MAX_EPILOGUE = 2048 };
/* A reduction loop of up to SHORT iterations costs more than its copies, if they are up to MAX_STRAIGHT statements. */
enum { SHORT = 4, MAX_STRAIGHT = 64 };
enum { USED = 1, EMPTY }; /* an array of the program; one that nobody reads or writes any more */

/* ---- reductions ---- */
typedef struct {
  const Stmt *store;
  int n, nodes;           /* nodes: of its expression, which each piece has */
  VarSub value[MAX_NEST]; /* its loop variables, by those of the nest */
} Epilogue;
typedef struct {
  const Stmt *loop;
  bool spatial;
  int64_t min, extent, inner;
  VarId outer;
} Level; /* inner: iterations kept in registers; the others: a loop over `outer` */
typedef struct {
  Level at[MAX_NEST];
  int n, lead, vec, uneven; /* levels; lead: spatial ones outside of all reduction loops; -1: none */
  const Stmt *store;
  ExprId start;         /* what all sums begin with; 0: with what is in memory */
  const Epilogue *then; /* what is stored instead of the sums; NULL: they are */
} Nest;
typedef struct {
  bool before, then;
} Took;

static bool gather_nest(Regs *g, const Stmt *s, Nest *x) {
  IrCtx *c = g->c;
  x->n = 0;
  x->vec = -1;
  x->start = 0;
  x->then = NULL;
  for (; s->kind == ST_FOR; s = s->u.loop.body) {
    ForKind k = s->u.loop.kind;
    if (x->n == MAX_NEST || (k != FOR_SERIAL && k != FOR_UNROLLED && k != FOR_VECTOR)) return false;
    x->at[x->n++] = (Level){.loop = s};
    low_bind_loop(c, g->ar, s);
  }
  if (s->kind != ST_STORE || !rg_supported_store(g, s)) return false;
  x->store = s;
  SelfRead self = {s->u.store.buf, s->u.store.idx[0], false, false};
  ex_post_order(c, s->u.store.value, rg_self_read, &self);
  if (!self.same || self.other) return false;
  for (int i = 0; i < x->n; i++) {
    Level *l = &x->at[i];
    l->spatial = ex_uses_var(c, s->u.store.idx[0], l->loop->u.loop.var);
    if (!l->spatial) {
      if (l->loop->u.loop.kind == FOR_VECTOR) return false;
      continue;
    }
    if (!ex_const_int(c, l->loop->u.loop.min, &l->min) || !ex_const_int(c, l->loop->u.loop.extent, &l->extent))
      return false;
    l->inner = l->extent;
    for (int j = i + 1; j < x->n; j++)
      if (ex_uses_var(c, x->at[j].loop->u.loop.min, l->loop->u.loop.var) ||
          ex_uses_var(c, x->at[j].loop->u.loop.extent, l->loop->u.loop.var))
        return false;
    if (l->loop->u.loop.kind == FOR_VECTOR) {
      if (x->vec >= 0) return false;
      x->vec = i;
    }
  }
  for (int i = x->n - 1; i >= 0 && x->vec < 0; i--) /* no loop is marked: the innermost one, if it widens */
    if (x->at[i].spatial) {
      x->vec = x->at[i].extent >= MIN_LANES ? i : -1;
      break;
    }
  for (x->lead = 0; x->lead < x->n && x->at[x->lead].spatial; x->lead++) {}
  return x->lead < x->n && (x->vec < 0 || x->vec >= x->lead);
}

/* How many iterations of reduction loops lie inside level i. */
static int64_t reduction_within(Regs *g, const Nest *x, int i) {
  int64_t n = 1, e;
  for (int j = i + 1; j < x->n; j++)
    if (!x->at[j].spatial) n *= ex_const_int(g->c, x->at[j].loop->u.loop.extent, &e) ? e : LONG_REDUCTION;
  return n;
}

typedef struct {
  BufferId acc;
  VarId vec, v;
  bool scalar, scalar_uses, vector_uses; /* is a number read that all lanes share? does it depend on v? do vectors? */
} Operands;
static void operand(IrCtx *c, ExprId e, void *arg) {
  Operands *o = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind != IR_LOAD || n->sym == o->acc) return;
  bool vector = ex_uses_var(c, e, o->vec), uses = ex_uses_var(c, e, o->v);
  o->scalar |= !vector;
  o->scalar_uses |= !vector && uses;
  o->vector_uses |= vector && uses;
}
/* What a level changes of what is read. */
static Operands operands_of(IrCtx *c, const Nest *x, int level) {
  Operands o = {.acc = x->store->u.store.buf};
  if (x->vec < 0) return o;
  o.vec = x->at[x->vec].loop->u.loop.var, o.v = x->at[level].loop->u.loop.var;
  ex_post_order(c, x->store->u.store.value, operand, &o);
  return o;
}
/* Does a level change the vectors that are read, but not the numbers that are spread over all lanes? Then it belongs to the columns of
 * the tile, like the vector loop. */
static bool is_column(const Operands *o) { return o->scalar && o->vector_uses && !o->scalar_uses; }

/* Decides what stays in registers. false: leave this loop, an inner one will do better. */
static bool fit(Regs *g, Nest *x, int lanes) {
  TileLoop loop[MAX_NEST];
  int level[MAX_NEST], n = 0, vec = -1;
  double panel =
      (double)reduction_within(g, x, -1) * dtype_bytes(dtype_lanes(ir_buffer(g->c, x->store->u.store.buf)->type, 1));
  for (int i = 0; i < x->n; i++) {
    Level *l = &x->at[i];
    if (!l->spatial) continue;
    l->inner = 1;
    if (i < x->lead) continue;
    Operands o = operands_of(g->c, x, i);
    bool v = i == x->vec, column = v || is_column(&o);
    if (v) vec = n;
    if (column) panel *= (double)l->extent;
    loop[n] = (TileLoop){.extent = v ? i64_ceildiv(l->extent, lanes) : l->extent,
                         .column = column,
                         .both = !v && o.vector_uses && o.scalar_uses,
                         .whole = reduction_within(g, x, i) >= LONG_REDUCTION || (v && l->extent % lanes)};
    level[n++] = i;
  }
  if (!isfinite(tile_fit(&g->cpu, n, loop, vec, panel))) return false;
  x->uneven = -1;
  for (int k = 0; k < n; k++) {
    Level *l = &x->at[level[k]];
    if (k == vec) {
      l->inner = loop[k].inner == loop[k].extent ? l->extent : loop[k].inner * lanes;
      continue;
    }
    l->inner = loop[k].inner;
    if (l->extent % l->inner) x->uneven = level[k];
  }
  return true;
}

typedef struct {
  BufferId from, to;
  ExprId idx;
} Redirect;
static ExprId redirect(IrCtx *c, ExprId e, void *arg) {
  const Redirect *r = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind != IR_LOAD || n->sym != r->from) return e;
  ExprId idx = r->idx;
  return ex_load(c, r->to, ir_type(c, e), 1, &idx);
}

typedef struct {
  Stmt *in, *body, *out;
} Parts;

/* Where a piece of the tile is: spatial variables have the values of `sub`, the vector variable is sub's last entry. */
typedef struct {
  int n_sub, lanes;
  const VarSub *sub;
  VarId lane;
} At;
static ExprId at_piece(IrCtx *c, ExprId e, const At *p) {
  if (p->lanes == 1) return ex_subst(c, e, p->n_sub, p->sub);
  const VarSub *v = &p->sub[p->n_sub - 1];
  VarSub one = {v->var, ex_add(c, v->value, ex_var(c, p->lane))};
  return ex_subst(c, ex_subst(c, e, p->n_sub - 1, p->sub), 1, &one);
}

static bool emit_piece(Regs *g, const Nest *x, BufferId acc, int64_t offset, int n_sub, const VarSub *sub, int lanes,
                       Parts *p) {
  IrCtx *c = g->c;
  const Stmt *s = x->store;
  BufferId buf = s->u.store.buf;
  DType it = x->vec >= 0 ? ir_var_info(c, x->at[x->vec].loop->u.loop.var)->type : DT_I32, t = ir_buffer(c, buf)->type;
  At here = {n_sub, lanes, sub, ir_var_new(c, "lane", it, false)};
  ExprId at = ex_int(c, it, offset);
  if (lanes > 1) at = ex_add(c, ex_var(c, here.lane), at);
  ExprId idx = at_piece(c, s->u.store.idx[0], &here), value = at_piece(c, s->u.store.value, &here);
  Redirect r = {buf, acc, at};
  Stmt *in = st_store(c, acc, 1, &at, x->start ? x->start : ex_load(c, buf, t, 1, &idx)),
       *out = st_store(c, buf, 1, &idx, ex_load(c, acc, t, 1, &at)),
       *body = st_store(c, acc, 1, &at, ex_map(c, value, redirect, &r));
  if (x->then) {
    const Stmt *o = x->then->store;
    idx = at_piece(c, ex_subst(c, o->u.store.idx[0], x->then->n, x->then->value), &here);
    value = at_piece(c, ex_subst(c, o->u.store.value, x->then->n, x->then->value), &here);
    out = st_store(c, o->u.store.buf, 1, &idx, ex_map(c, value, redirect, &r));
  }
  ExprId zero = ex_int(c, it, 0);
  p->in = rg_piece_of(g, in, here.lane, zero, lanes, true);
  p->body = rg_piece_of(g, body, here.lane, zero, lanes, false);
  p->out = rg_piece_of(g, out, here.lane, zero, lanes, true);
  return p->in && p->body && p->out;
}

static Stmt *loops_around(Regs *g, const Nest *x, Stmt *body, Stmt *in, Stmt *out, int pieces) {
  IrCtx *c = g->c;
  int64_t e, copies = pieces;
  for (int i = x->n - 1; i >= 0; i--) {
    if (x->at[i].spatial) continue;
    Stmt *r = st_own(c, x->at[i].loop);
    r->u.loop.body = body;
    e = ex_const_int(c, r->u.loop.extent, &e) ? e : MAX_UNROLLED;
    copies *= e;
    if (copies > MAX_UNROLLED) {
      r->u.loop.kind = FOR_SERIAL;
      r->u.loop.pragma_unroll = false;
    } else if (e <= SHORT && copies <= MAX_STRAIGHT)
      r->u.loop.kind = FOR_UNROLLED;
    body = r;
  }
  Stmt *all[3] = {in, body, out};
  return st_seq(c, 3, all);
}

/* How a nest is laid over registers: `rows` times `cols` times `n_piece` pieces of at most `lanes` elements. */
typedef struct {
  Piece piece[MAX_PIECES]; /* of the vector loop; a single element without one */
  int n_piece, lanes;
  int order[MAX_NEST], n_order; /* the other spatial levels, outermost first; those of columns behind those of rows */
  int64_t rows, cols, total;
} Tile;

/* Is the vector loop worth cutting? The first vector tells. false: leave the nest. */
static bool cut_first(Regs *g, Nest *x, Tile *t) {
  IrCtx *c = g->c;
  t->lanes = rg_lanes_at_most(g, x->store);
  t->n_piece = 1;
  t->piece[0] = (Piece){0, 1};
  if (x->vec < 0) return true;
  const Level *l = &x->at[x->vec];
  Stmt *st = st_own(c, x->store);
  int64_t most = (int64_t)t->lanes * g->cpu.registers, n = l->extent < most ? l->extent : most;
  ExprId first = ex_int(c, ir_var_info(c, l->loop->u.loop.var)->type, l->min);
  int pieces = rg_cut(g, 1, &st, l->loop->u.loop.var, first, n, t->piece, MAX_PIECES);
  if (!pieces && l->loop->u.loop.kind == FOR_VECTOR) return false;
  if (!pieces) {
    x->vec = -1;
    t->piece[0] = (Piece){0, 1};
    return true;
  }
  t->n_piece = pieces;
  if (t->piece[0].lanes < t->lanes) t->lanes = t->piece[0].lanes;
  return true;
}

/* Variables of the loops around levels that stay in registers in part, but for the uneven one. */
static void name_outer(Regs *g, Nest *x) {
  IrCtx *c = g->c;
  for (int i = 0; i < x->n; i++) {
    Level *l = &x->at[i];
    if (!l->spatial || l->outer || i == x->uneven || l->inner == l->extent) continue;
    DType type = ir_var_info(c, l->loop->u.loop.var)->type;
    l->outer = ir_var_new(c, ir_var_info(c, l->loop->u.loop.var)->name, type, false);
    ar_bind_range(g->ar, l->outer, ex_int(c, type, 0), ex_int(c, type, l->extent / l->inner));
  }
}

/* The order of the levels in a tile; the number of pieces. */
static void lay_out(Regs *g, Nest *x, Tile *t) {
  IrCtx *c = g->c;
  int col[MAX_NEST], n_col = 0;
  t->rows = t->cols = 1;
  for (int i = 0; i < x->n; i++) {
    Level *l = &x->at[i];
    if (!l->spatial) continue;
    if (i == x->vec) continue;
    Operands o = operands_of(c, x, i);
    if (is_column(&o))
      col[n_col++] = i, t->cols *= l->inner;
    else
      t->order[t->n_order++] = i, t->rows *= l->inner;
  }
  for (int i = 0; i < n_col; i++) t->order[t->n_order++] = col[i];
  if (x->vec >= 0 && x->at[x->vec].inner < x->at[x->vec].extent) {
    t->n_piece = (int)(x->at[x->vec].inner / t->lanes);
    for (int i = 0; i < t->n_piece; i++) t->piece[i] = (Piece){(int64_t)i * t->lanes, t->lanes};
  }
  t->total = t->rows * t->cols * t->n_piece;
}

static BufferId accumulators(IrCtx *c, const Nest *x, const Tile *t) {
  BufferId b = ir_array(c, "acc", ir_buffer(c, x->store->u.store.buf)->type, SC_LOCAL, t->total * t->lanes, true);
  ir_buffer(c, b)->registers = true;
  return b;
}

/* Values of the spatial variables in a row and column (one number) and a piece, the vector variable last; how many. */
static int values_at(IrCtx *c, const Nest *x, const Tile *t, int64_t at, int64_t piece, VarSub *sub) {
  int k = 0;
  for (int j = t->n_order - 1; j >= (x->vec < 0 ? 0 : -1); j--) {
    const Level *l = &x->at[j < 0 ? x->vec : t->order[j]];
    DType type = ir_var_info(c, l->loop->u.loop.var)->type;
    int64_t i = j < 0 ? t->piece[piece].first : at % l->inner;
    if (j >= 0) at /= l->inner;
    ExprId value = ex_int(c, type, l->min + i);
    if (l->outer) value = ex_add(c, ex_mul(c, ex_var(c, l->outer), ex_int(c, type, l->inner)), value);
    sub[k++] = (VarSub){l->loop->u.loop.var, value};
  }
  return k;
}

typedef struct {
  int64_t first, n;
} Span;
static int by_first(const void *a, const void *b) {
  const Span *x = a, *y = b;
  return (x->first > y->first) - (x->first < y->first);
}
/* Does each piece keep elements of its own? A loop that mixes data with reduction axes comes back to the same elements:
 * `C[f mod 4]` kept in one register per f would forget all sums but the last. */
static bool pieces_disjoint(Regs *g, int n, Stmt *const *out) {
  IrCtx *c = g->c;
  Span *s = arena_array(ir_arena(c), Span, n);
  ExprId origin = 0;
  for (int i = 0; i < n; i++) {
    ExprId at = out[i]->u.store.idx[0];
    s[i].n = ir_type(c, at).lanes;
    if (ir_kind(c, at) == IR_RAMP) at = ir_kid(c, at, 0);
    if (!origin) origin = at;
    if (!ex_const_int(c, ar_simplify(g->ar, ex_sub(c, at, origin)), &s[i].first)) return false;
  }
  qsort(s, (size_t)n, sizeof *s, by_first);
  for (int i = 1; i < n; i++)
    if (s[i - 1].first + s[i - 1].n > s[i].first) return false;
  return true;
}

/* All pieces: loads of the accumulators, the reduction loops, stores. NULL: a piece cannot be written. */
static Stmt *emit_tile(Regs *g, const Nest *x, const Tile *t, BufferId acc) {
  Arena *a = ir_arena(g->c);
  Stmt **in = arena_array(a, Stmt *, t->total), **body = arena_array(a, Stmt *, t->total),
       **out = arena_array(a, Stmt *, t->total);
  /* The operand that is reused by neighbouring statements stays in registers, with as many of the other kind as the side that
   * varies fastest has: let that be the smaller one. */
  int64_t across = t->cols * t->n_piece;
  bool rows_inner = t->rows < across;
  for (int64_t q = 0; q < t->total; q++) {
    int64_t row = rows_inner ? q % t->rows : q / across, col = rows_inner ? q / t->rows : q % across;
    int64_t piece = col % t->n_piece;
    VarSub sub[MAX_NEST];
    int n = values_at(g->c, x, t, row * t->cols + col / t->n_piece, piece, sub);
    Parts p;
    if (!emit_piece(g, x, acc, q * t->lanes, n, sub, t->piece[piece].lanes, &p)) return NULL;
    in[q] = p.in;
    body[q] = p.body;
    out[q] = p.out;
  }
  int n = (int)t->total;
  if (!pieces_disjoint(g, n, out)) return NULL;
  return loops_around(g, x, st_seq(g->c, n, body), st_seq(g->c, n, in), st_seq(g->c, n, out), n);
}

/* The nest as tiles, within loops over what stays in registers in part. */
static Stmt *tiles(Regs *g, Nest *x, Tile t) {
  IrCtx *c = g->c;
  x->uneven = -1;
  name_outer(g, x);
  lay_out(g, x, &t);
  if (t.total > 2 * g->cpu.registers || t.total < 1) return NULL; /* narrow remainders may take more than planned */
  if (x->then && x->then->nodes * t.total > MAX_EPILOGUE) return NULL;
  BufferId acc = accumulators(c, x, &t);
  Stmt *r = emit_tile(g, x, &t, acc);
  if (!r) return NULL;
  r = st_alloc(c, acc, r);
  for (int i = x->n - 1; i >= 0; i--) {
    const Level *l = &x->at[i];
    if (!l->outer) continue;
    DType type = ir_var_info(c, l->outer)->type;
    r = st_for(c, l->outer, ex_int(c, type, 0), ex_int(c, type, l->extent / l->inner), FOR_SERIAL, r);
  }
  return r;
}

/* ---- what sums begin with ----
 * Right before the nest a loop writes a number to all elements: then registers begin with it, and memory is written once. */

/* The sweep of a nest's sums; false: it is not one that can be compared. */
static bool sweep_of(Regs *g, const Nest *x, Sweep *w) {
  *w = (Sweep){.c = g->c, .ar = g->ar, .origin = x->store->u.store.idx[0]};
  for (int i = 0; i < x->n; i++)
    if (x->at[i].spatial && !low_sweep(w, x->at[i].loop)) return false;
  return true;
}

/* The store within plain loops, which it lists; NULL: something else is there. */
static const Stmt *looped_store(Regs *g, const Stmt *s, const Stmt **loop, int *n) {
  for (*n = 0; s->kind == ST_FOR && s->u.loop.kind <= FOR_VECTOR && *n < MAX_NEST; s = s->u.loop.body) {
    low_bind_loop(g->c, g->ar, s);
    loop[(*n)++] = s;
  }
  return s->kind == ST_STORE && s->u.store.n_idx == 1 ? s : NULL;
}

/* The number that a statement gives to all elements of the nest, and to no others; 0: it does something else. */
static ExprId start_of(Regs *g, const Nest *x, const Stmt *s) {
  const Stmt *loop[MAX_NEST];
  int n;
  s = looped_store(g, s, loop, &n);
  if (!s || s->u.store.buf != x->store->u.store.buf) return 0;
  ExprKind k = ir_kind(g->c, s->u.store.value);
  if (k != IR_FLT && k != IR_INT) return 0;
  Sweep a = {.c = g->c, .ar = g->ar, .origin = s->u.store.idx[0]}, b;
  for (int i = 0; i < n; i++)
    if (!low_sweep(&a, loop[i])) return 0;
  return sweep_of(g, x, &b) && low_sweep_same(&a, &b) ? s->u.store.value : 0;
}

/* ---- what becomes of the sums ----
 * Right behind the nest a loop reads each sum once, from an array that nobody else reads, and stores what it makes of it (a bias, a
 * ReLU): then it is made of the registers, and the array stays empty. */
typedef struct {
  ExprId sum; /* the only load of it */
  ExprId at;  /* its place in `to`, to which the sum of a block is added (sums.c) */
  BufferId buf, to;
  bool other, calls;
  int nodes;
} Made;
static void made_of(IrCtx *c, ExprId e, void *arg) {
  Made *m = arg;
  const ExprNode *n = ir_node(c, e);
  m->nodes++;
  m->calls |= n->kind == IR_CALL;
  if (n->kind != IR_LOAD) return;
  m->other |= (n->sym == m->to && ir_kid(c, e, 0) != m->at) || n->n != 1 || (n->sym == m->buf && m->sum);
  if (n->sym == m->buf) m->sum = e;
}
static bool reads_result(IrCtx *c, ExprId e, void *arg) {
  const ExprNode *n = ir_node(c, e);
  return n->kind == IR_LOAD && n->sym == *(const BufferId *)arg;
}

static bool epilogue_of(Regs *g, const Nest *x, const Stmt *s, Epilogue *e) {
  IrCtx *c = g->c;
  const Stmt *loop[MAX_NEST];
  int n;
  int64_t min, extent;
  BufferId sums = x->store->u.store.buf;
  s = looped_store(g, s, loop, &n);
  if (!s || !rg_supported_store(g, s) || !mapu_get(&g->made, sums, 0)) return false;
  BufferId to = s->u.store.buf;
  ExprId at = s->u.store.idx[0];
  for (int i = 0; i < n && at; i++)
    if (!ex_uses_var(c, at, loop[i]->u.loop.var))
      at = 0; /* a sum over what has just been made, not one addition to each */
  Made m = {.buf = sums, .to = to, .at = at};
  ex_post_order(c, s->u.store.value, made_of, &m);
  if (!m.sum || m.other || m.calls || to == sums) return false;
  if (!dtype_eq(ir_buffer(c, to)->type, ir_buffer(c, sums)->type)) return false;
  if (mapu_get(&g->reads, sums, 0) != 2) return false; /* the nest's own, and this one */
  if (ex_any(c, x->store->u.store.value, reads_result, &to)) return false;
  Sweep from, into = {.c = c, .ar = g->ar, .origin = ir_kid(c, m.sum, 0)};
  for (int i = 0; i < n; i++) {
    if (!low_sweep(&into, loop[i])) return false;
    if (!ex_const_int(c, loop[i]->u.loop.extent, &extent) || extent != 1) continue;
    ex_const_int(c, loop[i]->u.loop.min, &min);
    e->value[e->n++] = (VarSub){loop[i]->u.loop.var, ex_int(c, ir_var_info(c, loop[i]->u.loop.var)->type, min)};
  }
  int k = sweep_of(g, x, &from) ? low_sweep_values(&from, &into, e->value + e->n) : -1;
  e->n += k;
  e->store = s;
  e->nodes = m.nodes;
  return k >= 0;
}

/* A nest that is laid over registers, in two parts if a level is not cut evenly. */
static Stmt *laid_out(Regs *g, Nest x, Tile t) {
  if (x.uneven < 0) return tiles(g, &x, t);
  name_outer(g, &x); /* both read the same elements by the same names */
  Nest rest = x;
  Level *most = &x.at[x.uneven], *last = &rest.at[x.uneven];
  TileParts parts = tile_parts(most->extent, most->inner);
  most->extent = parts.full * most->inner;
  last->inner = most->inner - 1;
  last->extent = parts.less * last->inner;
  last->min += most->extent;
  Stmt *two[2] = {tiles(g, &x, t), tiles(g, &rest, t)};
  return two[0] && two[1] ? st_seq(g->c, 2, two) : NULL;
}

/* before, then: NULL, or the statements right before and behind the nest, which are part of the result if *took says so. */
static Stmt *reduction(Regs *g, const Stmt *s, const Stmt *before, const Stmt *then, Took *took) {
  Nest x;
  Tile t = {.n_order = 0};
  Epilogue e = {.n = 0};
  Stmt *r;
  *took = (Took){false, false};
  if (!gather_nest(g, s, &x)) return NULL;
  x.start = before ? start_of(g, &x, before) : 0;
  took->before = x.start != 0;
  if ((x.lead && !x.start) || !cut_first(g, &x, &t) || !fit(g, &x, t.lanes)) return NULL;
  if (x.start && then && epilogue_of(g, &x, then, &e)) {
    x.then = &e;
    if ((r = laid_out(g, x, t))) {
      mapu_set(&g->made, x.store->u.store.buf, EMPTY);
      return took->then = true, r;
    }
    x.then = NULL;
  }
  return laid_out(g, x, t);
}

/* ---- the walk ---- */

/* Does a store call what C compilers have for single numbers only? Then its loop is a vector loop, marked or not. */
static bool on_vectors(IrCtx *c, ExprId e, void *arg NS_UNUSED) {
  const ExprNode *n = ir_node(c, e);
  return n->kind == IR_CALL && intrin_on_vectors((Intrin)n->sym, n->type);
}

static Stmt *walk(IrCtx *c, Stmt *s, void *arg);

static bool plain_loop(const Stmt *s) { return s->kind == ST_FOR && s->u.loop.kind <= FOR_UNROLLED; }

/* A statement that sets sums to a number and the one that adds them up, as one; NULL: they are not that. Where a condition guards the
 * sums (rows beyond the edge, which nobody reads), the number is what is left without them. */
static Stmt *started(Regs *g, Stmt *at, Stmt *next, Stmt *then, Took *took) {
  if (next->kind == ST_IF && !next->u.cond.other) {
    Stmt *both = started(g, at, next->u.cond.then, NULL, took);
    return both ? st_if(g->c, next->u.cond.cond, next->u.cond.likely, both, walk(g->c, at, g)) : NULL;
  }
  Stmt *both = plain_loop(next) ? reduction(g, next, at, then, took) : NULL;
  return both && took->before ? both : NULL;
}

static Stmt *sequence(Regs *g, Stmt *s) {
  int n = s->u.seq.n, k = 0;
  Stmt **out = arena_array(ir_arena(g->c), Stmt *, n);
  for (int i = 0; i < n; i++) {
    Took took = {false, false};
    Stmt **at = s->u.seq.at + i, *then = i + 2 < n ? at[2] : NULL;
    Stmt *both = i + 1 < n ? started(g, at[0], at[1], then, &took) : NULL;
    out[k++] = both ? both : walk(g->c, at[0], g);
    if (both) i += 1 + took.then;
  }
  return st_seq(g->c, k, out);
}

static Stmt *walk(IrCtx *c, Stmt *s, void *arg) {
  Regs *g = arg;
  Stmt *x;
  Took took;
  if (s->kind == ST_SEQ) return sequence(g, s);
  if (s->kind != ST_FOR) return low_rewrite(c, g->ar, s, walk, NULL, g);
  if (plain_loop(s) && (x = reduction(g, s, NULL, NULL, &took))) return x;
  low_bind_loop(c, g->ar, s);
  bool calls = s->u.loop.kind <= FOR_UNROLLED && s->u.loop.body->kind == ST_STORE &&
               ex_any(c, s->u.loop.body->u.store.value, on_vectors, NULL);
  if ((s->u.loop.kind == FOR_VECTOR || calls) && (x = rg_vector_loop(g, s))) return x;
  if (s->u.loop.kind <= FOR_VECTOR && (x = rg_wide_loop(g, s))) return x;
  if ((x = rg_guarded_loop(g, s))) return x;
  return st_rewrite(c, s, walk, NULL, g);
}

static void count_read(IrCtx *c, ExprId e, void *arg) {
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_LOAD) mapu_set(arg, n->sym, mapu_get(arg, n->sym, 0) + 1);
}
static bool count_uses(IrCtx *c, const Stmt *s, void *arg) {
  Regs *g = arg;
  if (s->kind == ST_ALLOC) mapu_set(&g->made, s->u.alloc.buf, USED);
  st_visit_exprs(c, s, count_read, &g->reads);
  return true;
}

static Stmt *without_empty(IrCtx *c NS_UNUSED, Stmt *s, void *arg) {
  const Regs *g = arg;
  return s->kind == ST_ALLOC && mapu_get(&g->made, s->u.alloc.buf, 0) == EMPTY ? s->u.alloc.body : s;
}

void pass_registers(Func *f) {
  if (low_is_gpu(f) || f->use != LOW_CODE) return;
  Regs g = {.c = f->ctx, .ar = ar_new(f->ctx)};
  g.cpu = cpu_machine(f->target.cpu);
  mapu_init(&g.reads, ir_arena(f->ctx));
  mapu_init(&g.made, ir_arena(f->ctx));
  if (f->body) st_visit(f->ctx, f->body, count_uses, NULL, &g);
  if (f->body) f->body = st_map(f->ctx, walk(f->ctx, f->body, &g), without_empty, NULL, &g);
}
