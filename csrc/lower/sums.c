/* sums: long sums of float32 are added up in blocks.
 *
 *   for k in [0, 1048576): C[i] = C[i] + x(k)
 *
 * becomes
 *
 *   for k in [0, 65536): D = 0;  for j in [0, 16): D = D + x(k*16 + j);  C[i] = C[i] + D
 *
 * and the sum over blocks is cut in the same way, and so on. One accumulator of n terms is off by up to n/2 units in the
 * last place, and stops growing at 2^24 equal terms. With blocks the error grows with the number of levels ("cascade
 * summation"; N. Higham, The accuracy of floating point summation, SIAM J. Sci. Comput. 14, 1993). RULE says how many terms
 * an accumulator may take. Products are left alone much longer, for their accumulators fill the registers.
 *
 * On CPUs a scalar sum is put on lanes first (sums_lanes.c). Its blocks are added up in float64, which is rounded once at the end:
 * means of large numbers (normalisations) want the last bit. Where vectors were there before, float64 would cost a tenth of the
 * time, and many GPUs have few units for it, or none.
 *
 * How many terms one takes is the product of the extents of the loops around the statement that do not move its index, as far as
 * the accumulator lives: up to its allocation or to what sets it. Blocks are made of the innermost loops that have enough
 * terms. Loops over accumulators inside of them make D an array; a large one has the shape of C. A condition around the statement
 * also guards the addition of D, unless it depends on terms. Where it depends on terms and accumulators, D is added if it is not 0.
 *
 * Only programs are changed, so features, texts and keys stay. This pass runs after those that need to see the loops of the
 * schedule. It runs before `registers`, which treats D as it would have treated C. Sums of float64 are left as they are. So are
 * sums in 16 bits, which the user asked for.
 */
#include "lower/sums.h"

typedef struct {
  int64_t limit, block; /* a sum of more than `limit` terms is cut into blocks of about `block` terms */
} Rule;
/* Of equal terms, 64 in a row are off by up to 8 eps, 32 by 4, 16 by 2. The windows of pools, 7 x 7, stay whole. */
static const Rule RULE[] = {[SUM_TERMS] = {49, 16},
                            [SUM_LANES] = {49, 32},
                            [SUM_BLOCKS] = {32, 16},
                            [SUM_PRODUCTS] = {65536, 512},
                            [SUM_WIDE] = {0, 32}};
enum { CPU_ARRAY = 2048, GPU_ARRAY = 512 }; /* elements of D; beyond that it has the shape of C */

static int64_t times(int64_t a, int64_t b) {
  int64_t r;
  return i64_mul(a, b, &r) ? r : INT64_MAX;
}

/* ---- what a statement adds up ---- */
static bool reads_buffer(IrCtx *c, ExprId e, void *buf) {
  return ir_kind(c, e) == IR_LOAD && ir_node(c, e)->sym == *(BufferId *)buf;
}
/* The term that a value adds to buf[at]; 0: it does something else. */
static ExprId term_of(IrCtx *c, BufferId buf, ExprId at, ExprId value) {
  if (ir_kind(c, value) != IR_ADD) return 0;
  for (int i = 0; i < 2; i++) {
    ExprId self = ir_kid(c, value, i), x = ir_kid(c, value, 1 - i);
    if (reads_buffer(c, self, &buf) && ir_kid(c, self, 0) == at) return ex_any(c, x, reads_buffer, &buf) ? 0 : x;
  }
  return 0;
}
/* The value of a store; several at once are stored from variables (low_at_once). */
static ExprId stored(const Sums *g, const Stmt *s, VarId *let) {
  ExprId v = s->u.store.value;
  *let = ir_kind(g->c, v) == IR_VAR ? ir_node(g->c, v)->sym : 0;
  for (int i = g->path.len - 1; i >= 0 && *let; i--)
    if (g->path.at[i]->kind == ST_LET && g->path.at[i]->u.let.var == *let) return g->path.at[i]->u.let.value;
  return v;
}

/* ---- the loops around it ---- */
static int64_t extent_at_most(const Sums *g, const Stmt *loop) {
  int64_t e;
  if (ex_const_int(g->c, loop->u.loop.extent, &e)) return e;
  Bound b = ar_bound(g->ar, loop->u.loop.extent);
  return b.hi == BOUND_MAX ? INT64_MAX : b.hi;
}
typedef struct {
  BufferId buf;
  int loads, stores;
} Uses;
static void count_load(IrCtx *c, ExprId e, void *arg) {
  Uses *u = arg;
  u->loads += reads_buffer(c, e, &u->buf);
}
static bool count_uses(IrCtx *c, const Stmt *s, void *arg) {
  Uses *u = arg;
  st_visit_exprs(c, s, count_load, u);
  u->stores += s->kind == ST_STORE && s->u.store.buf == u->buf;
  return true;
}
static Uses uses_of(IrCtx *c, const Stmt *s, BufferId buf) {
  Uses u = {buf, 0, 0};
  st_visit(c, s, count_uses, NULL, &u);
  return u;
}
static bool sets_buffer(IrCtx *c, const Stmt *s, void *buf) {
  return s->kind == ST_STORE && s->u.store.buf == *(BufferId *)buf && ir_kind(c, s->u.store.value) != IR_VAR &&
         !term_of(c, s->u.store.buf, s->u.store.idx[0], s->u.store.value);
}
/* What stands beside the path in a sequence: does it touch the accumulator, does it set it? */
typedef struct {
  bool touches, sets;
} Beside;
static Beside beside(const Sums *g, int at, BufferId buf) {
  const Stmt *s = g->path.at[at];
  Beside b = {false, false};
  for (int i = 0; i < s->u.seq.n; i++) {
    const Stmt *q = s->u.seq.at[i];
    if (q == g->path.at[at + 1]) continue;
    Uses u = uses_of(g->c, q, buf);
    b.touches |= u.loads + u.stores > 0;
    b.sets |= u.stores > 0 && st_any(g->c, q, sets_buffer, &buf);
  }
  return b;
}
static int64_t most_terms(const Sums *g, const Sum *x) { /* as if it lived for ever */
  int64_t n = 1;
  for (int i = 0; i < g->path.len; i++) {
    const Stmt *s = g->path.at[i];
    if (s->kind == ST_FOR && !ex_uses_var(g->c, x->at, s->u.loop.var)) n = times(n, extent_at_most(g, s));
  }
  return n;
}
static void gather_loops(const Sums *g, Sum *x) {
  IrCtx *c = g->c;
  bool movable = true;
  x->terms = 1;
  for (int i = g->path.len - 2; i >= 0 && x->n < SUM_LOOPS; i--) {
    const Stmt *s = g->path.at[i];
    if (s->kind == ST_ALLOC && s->u.alloc.buf == x->buf) return;
    if (s->kind == ST_SEQ) {
      Beside b = beside(g, i, x->buf);
      movable &= !b.touches;
      if (b.sets) return;
    }
    if (s->kind != ST_FOR) continue;
    bool sums = !ex_uses_var(c, x->at, s->u.loop.var);
    if (s->u.loop.kind > FOR_PARALLEL) movable = false;
    if (sums && s->u.loop.kind > FOR_VECTOR) return;
    x->loop[x->n++] = (SumLoop){i, sums, extent_at_most(g, s)};
    if (movable) x->movable = x->n;
    if (sums) x->terms = times(x->terms, x->loop[x->n - 1].extent);
  }
}
/* ---- of which kind it is ---- */
/* Factors from two different buffers make a product of matrices or a convolution. A square is none: it reads as much as a sum. Nor
 * is a weighted sum, of which no loop over accumulators moves one factor alone; that is known on CPUs, where tiles have lanes. */
typedef struct {
  const Sums *g;
  const Sum *x;
  BufferId one;
  bool two;
  VarId v;
} Product;
static void factor(IrCtx *c, ExprId e, void *arg) {
  Product *p = arg;
  if (ir_kind(c, e) != IR_LOAD) return;
  BufferId b = ir_node(c, e)->sym;
  p->two |= p->one && p->one != b;
  p->one = b;
}
static bool moves(IrCtx *c, ExprId e, void *v) { return ir_kind(c, e) == IR_VAR && ir_node(c, e)->sym == *(VarId *)v; }
static bool over_terms(const Sum *x, int at) {
  for (int i = 0; i < x->n; i++)
    if (x->loop[i].at == at) return x->loop[i].sums;
  return false;
}
static bool is_product(IrCtx *c, ExprId e, void *arg) {
  Product p = *(Product *)arg;
  if (ir_kind(c, e) != IR_MUL || ir_kid(c, e, 0) == ir_kid(c, e, 1)) return false;
  ExprId a = ir_kid(c, e, 0), b = ir_kid(c, e, 1);
  ex_post_order(c, a, factor, &p);
  if (!p.one) return false;
  Product q = p;
  q.one = 0;
  ex_post_order(c, b, factor, &q);
  if (!q.one || (!p.two && !q.two && p.one == q.one)) return false;
  for (int i = 0; i < p.g->path.len; i++) {
    const Stmt *s = p.g->path.at[i];
    if (s->kind != ST_FOR || over_terms(p.x, i)) continue;
    VarId v = s->u.loop.var;
    if (ex_any(c, a, moves, &v) != ex_any(c, b, moves, &v)) return true;
  }
  return low_is_gpu(p.g->f) || p.x->lanes > 1;
}
static bool product_in(const Sums *g, const Sum *x) {
  return ex_any(g->c, x->x, is_product, &(Product){.g = g, .x = x});
}
static bool reads_made(IrCtx *c, ExprId e, void *made) {
  return ir_kind(c, e) == IR_LOAD && mapu_get(made, (uint64_t)ir_node(c, e)->sym, -1) >= 0;
}
static SumKind kind_of(Sums *g, const Sum *x) {
  if (mapu_get(&g->made, (uint64_t)x->buf, -1) == SUM_WIDE) return SUM_WIDE;
  if (ex_any(g->c, x->x, reads_made, &g->made)) return SUM_BLOCKS;
  if (product_in(g, x)) return SUM_PRODUCTS;
  return (SumKind)mapu_get(&g->made, (uint64_t)x->buf, SUM_TERMS);
}
/* false: it adds nothing up, or too little to matter. */
static bool sum_at(Sums *g, const Stmt *s, Sum *x) {
  IrCtx *c = g->c;
  DType t = ir_buffer(c, s->u.store.buf)->type;
  bool wide = mapu_get(&g->made, (uint64_t)s->u.store.buf, -1) == SUM_WIDE;
  if (t.code != DT_FLOAT || t.bits != (wide ? 64 : 32) || s->u.store.n_idx != 1) return false;
  if (mapu_get(&g->made, (uint64_t)s->u.store.buf, -1) == SUM_BLOCK) return false;
  *x = (Sum){.store = s, .buf = s->u.store.buf, .at = s->u.store.idx[0], .lanes = ir_type(c, s->u.store.value).lanes};
  x->x = term_of(c, x->buf, x->at, stored(g, s, &x->let));
  if (!x->x || (wide && ex_any(c, x->x, reads_made, &g->made))) return false;
  for (int i = 0; i < g->path.len; i++)
    if (g->path.at[i]->kind == ST_LET && ex_uses_var(c, x->at, g->path.at[i]->u.let.var)) return false;
  if (most_terms(g, x) <= RULE[SUM_BLOCKS].limit) return false; /* soon said of most */
  gather_loops(g, x);
  x->kind = kind_of(g, x);
  return true;
}

/* ---- where the cut is ---- */
typedef struct {
  int loop;       /* of the sum: the outermost loop of a block */
  int64_t factor; /* iterations of that loop in a block; 0: all of them */
} Where;

/* Iterations of a loop of e that make a block of about `want`; a divisor, if there is one. */
static int64_t block_factor(int64_t e, int64_t want) {
  if (want < 2) want = 2;
  for (int64_t f = want; f <= 2 * want && f <= e / 2; f++)
    if (e % f == 0) return f;
  for (int64_t f = want - 1; f >= 2 && f >= want / 2; f--)
    if (e % f == 0) return f;
  return want;
}
static bool choose(const Sum *x, int64_t block, Where *w) {
  int64_t n = 1;
  int outermost = -1;
  for (int i = 0; i < x->n; i++)
    if (x->loop[i].sums && x->loop[i].extent > 1) outermost = i;
  for (int i = 0; i < x->movable; i++) {
    const SumLoop *l = &x->loop[i];
    if (!l->sums || l->extent <= 1) continue;
    if (times(n, l->extent) >= block) {
      bool whole = i != outermost && times(n, l->extent) <= 2 * block;
      *w = (Where){i, whole ? 0 : block_factor(l->extent, (block + n - 1) / n)};
      return true;
    }
    n *= l->extent;
    *w = (Where){i, 0};
  }
  return n >= block / 4 && n > 1 &&
         w->loop != outermost; /* what is outside of it cannot be moved: better than nothing */
}
/* All loops over terms that can be moved, for a sum of float64. */
static bool outside(const Sum *x, int64_t block, Where *w) {
  int64_t n = 1;
  for (int i = 0; i < x->movable; i++) {
    if (!x->loop[i].sums || x->loop[i].extent <= 1) continue;
    n = times(n, x->loop[i].extent);
    *w = (Where){i, 0};
  }
  return n >= block;
}

/* ---- the cut ---- */
typedef struct {
  Sums *g;
  const Sum *x;
  BufferId sums;      /* D or E */
  DType type;         /* of its elements */
  ExprId at;          /* in it */
  bool shaped, mixed; /* it has the shape of C; it is added if it is not 0 */
  int n;              /* loops over accumulators in a block, outermost first */
  const Stmt *loop[SUM_LOOPS];
  VEC(ExprId) guard;
} Cut;

static bool in_block(const Cut *k, int first, VarId v, bool sums) {
  for (int i = 0; i <= first; i++) {
    const SumLoop *l = &k->x->loop[i];
    if (l->sums == sums && k->g->path.at[l->at]->u.loop.var == v) return true;
  }
  return false;
}
typedef struct {
  const Cut *k;
  int first;
  bool term, place; /* e depends on terms of the block; on what moves the accumulator */
} Depends;
static void depends(IrCtx *c, ExprId e, void *arg) {
  Depends *d = arg;
  if (ir_kind(c, e) != IR_VAR) return;
  VarId v = ir_node(c, e)->sym;
  d->term |= in_block(d->k, d->first, v, true);
  d->place |= ex_uses_var(c, d->k->x->at, v);
}
static void add_guard(Cut *k, int first, ExprId cond) {
  IrCtx *c = k->g->c;
  if (ir_kind(c, cond) == IR_AND) {
    add_guard(k, first, ir_kid(c, cond, 0));
    add_guard(k, first, ir_kid(c, cond, 1));
    return;
  }
  Depends d = {k, first, false, false};
  ex_post_order(c, cond, depends, &d);
  if (ir_node(c, cond)->data || (d.term && d.place))
    k->mixed = true;
  else if (!d.term)
    vec_push(ir_arena(c), &k->guard, cond);
}
static void gather_guards(Cut *k, int first) {
  const Sums *g = k->g;
  for (int i = k->x->loop[first].at; i < g->path.len - 1; i++) {
    const Stmt *s = g->path.at[i];
    if (s->kind != ST_IF) continue;
    if (g->path.at[i + 1] == s->u.cond.then)
      add_guard(k, first, s->u.cond.cond);
    else
      k->mixed = true;
  }
}

static bool in_parallel(const Sums *g, int at) {
  for (int i = 0; i < at; i++)
    if (g->path.at[i]->kind == ST_FOR && g->path.at[i]->u.loop.kind == FOR_PARALLEL) return true;
  return false;
}
/* D: an entry for each iteration of the loops over accumulators, or the shape of C. false: it has no place. */
static bool make_array(Cut *k, int first) {
  IrCtx *c = k->g->c;
  const Sum *x = k->x;
  int64_t n = x->lanes, most = low_is_gpu(k->g->f) ? GPU_ARRAY : CPU_ARRAY, e, min;
  DType t = dtype_lanes(ir_type(c, x->at), 1);
  ExprId at = ex_int(c, t, 0);
  bool fixed = true, wide = k->type.bits > 32;
  for (int i = first; i >= 0; i--) {
    const Stmt *s = k->g->path.at[x->loop[i].at];
    if (x->loop[i].sums) continue;
    k->loop[k->n++] = s;
    fixed &= ex_const_int(c, s->u.loop.extent, &e) && ex_const_int(c, s->u.loop.min, &min);
    if (!fixed) continue;
    n = times(n, e);
    ExprId v = ex_cast(c, t, ex_sub(c, ex_var(c, s->u.loop.var), s->u.loop.min));
    at = ex_add(c, ex_mul(c, at, ex_int(c, t, e)), v);
  }
  IrBuffer like = *ir_buffer(c, x->buf);
  if (fixed && n <= most) {
    at = ex_mul(c, at, ex_int(c, t, x->lanes));
    k->at = x->lanes > 1 ? ex_ramp(c, at, ex_int(c, t, 1), x->lanes) : at;
    k->sums = ir_array(c, wide ? "wide_sum" : "block_sum", k->type, SC_LOCAL, n, true);
    return true;
  }
  k->shaped = true;
  k->at = x->at;
  if (!ex_const_int(c, like.size, &n) || like.scope == SC_SHARED || k->mixed) return false;
  k->sums = ir_array(c, wide ? "wide_sums" : "block_sums", k->type, like.scope, n, true);
  return true;
}
/* Do loops over accumulators have bounds that depend on terms? Then they cannot be repeated without these. */
static bool bounds_vary(Cut *k, int first) {
  Depends d = {k, first, false, false};
  for (int i = 0; i < k->n; i++) {
    ex_post_order(k->g->c, k->loop[i]->u.loop.extent, depends, &d);
    ex_post_order(k->g->c, k->loop[i]->u.loop.min, depends, &d);
  }
  return d.term;
}

/* The loops over accumulators around buf[at] = value, guarded; with variables of their own. */
static Stmt *over_accumulators(const Cut *k, BufferId buf, ExprId at, ExprId value, bool guarded) {
  IrCtx *c = k->g->c;
  Stmt *s = st_store(c, buf, 1, &at, value);
  if (guarded && k->mixed) {
    ExprId load = ex_load(c, k->sums, ir_buffer(c, k->sums)->type, 1, &k->at);
    s = st_if(c, ex_bin(c, IR_NE, load, ex_zero(c, ir_type(c, load))), false, s, NULL);
  }
  for (int i = k->guard.len - 1; i >= 0 && (guarded || k->shaped); i--) s = st_if(c, k->guard.at[i], false, s, NULL);
  for (int i = k->n - 1; i >= 0; i--) {
    const Stmt *l = k->loop[i];
    ForKind kind = l->u.loop.kind == FOR_PARALLEL ? FOR_SERIAL : l->u.loop.kind;
    s = st_for(c, l->u.loop.var, l->u.loop.min, l->u.loop.extent, kind, s);
  }
  return low_copy(c, s, 0, 0);
}

static ExprId zeros(IrCtx *c, DType t) {
  ExprId zero = ex_zero(c, dtype_lanes(t, 1));
  return t.lanes > 1 ? ex_bcast(c, zero, t.lanes) : zero;
}

static ExprId plus(IrCtx *c, BufferId buf, ExprId at, ExprId x) { /* buf[at] + x */
  DType t = dtype_lanes(ir_buffer(c, buf)->type, ir_type(c, x).lanes);
  if (ir_kind(c, x) == IR_CAST && dtype_eq(ir_type(c, ir_kid(c, x, 0)), t)) x = ir_kid(c, x, 0); /* was cast for E */
  return ex_add(c, ex_load(c, buf, t, 1, &at), ex_cast(c, t, x));
}
typedef struct {
  const Sum *x;
  BufferId to;
  ExprId at;
} Redirect;
static Stmt *redirect(IrCtx *c, Stmt *s, void *arg) {
  const Redirect *r = arg;
  ExprId x = r->x->x, at = r->at;
  if (s == r->x->store) return st_store(c, r->to, 1, &at, plus(c, r->to, at, x));
  if (s->kind == ST_LET && s->u.let.var == r->x->let) return redirect(c, s->u.let.body, arg);
  return st_rewrite(c, s, redirect, NULL, arg);
}
Stmt *sums_redirected(IrCtx *c, const Sum *x, Stmt *s, BufferId to, ExprId at) {
  return redirect(c, s, &(Redirect){x, to, at});
}

static Stmt *allocated(Cut *k, Stmt *s, int at) {
  Sums *g = k->g;
  bool top = ir_buffer(g->c, k->sums)->scope == SC_GLOBAL;
  if (!low_is_gpu(g->f) && (!top || in_parallel(g, at))) return st_alloc(g->c, k->sums, s);
  if (top)
    vec_push(ir_arena(g->c), &g->top, k->sums);
  else
    vec_push(ir_arena(g->c), &g->local, k->sums);
  return s;
}
/* zero, the loops of the block, and its addition; within the loop over blocks if a loop is split */
static Stmt *blocks(Cut *k, const Stmt *target, int64_t factor, int at) {
  IrCtx *c = k->g->c;
  DType t = dtype_lanes(k->type, k->x->lanes);
  Stmt *block = sums_redirected(c, k->x, st_own(c, target), k->sums, k->at);
  VarId v = target->u.loop.var, outer = 0;
  DType it = ir_var_info(c, v)->type;
  ExprId f = ex_int(c, it, factor), zero = ex_int(c, it, 0), extent = target->u.loop.extent;
  int64_t e;
  if (factor) {
    VarId inner = ir_var_new(c, ir_var_info(c, v)->name, it, false);
    outer = ir_var_new(c, arena_printf(ir_arena(c), "%s.block", ir_var_info(c, v)->name), it, false);
    ExprId first = ex_mul(c, ex_var(c, outer), f);
    ExprId value = ex_add(c, ex_add(c, first, ex_var(c, inner)), target->u.loop.min);
    bool even = ex_const_int(c, extent, &e) && e % factor == 0;
    ExprId rest = ex_sub(c, extent, first);
    block->u.loop.body = low_subst(c, block->u.loop.body, v, value);
    block->u.loop.var = inner;
    block->u.loop.min = zero;
    block->u.loop.extent = even ? f : ex_bin(c, IR_MIN, f, rest);
    if (!even) block->u.loop.kind = FOR_SERIAL;
  }
  ExprId sum = ex_load(c, k->sums, t, 1, &k->at);
  Stmt *three[3] = {over_accumulators(k, k->sums, k->at, zeros(c, t), false), block,
                    over_accumulators(k, k->x->buf, k->x->at, plus(c, k->x->buf, k->x->at, sum), true)};
  Stmt *s = allocated(k, st_seq(c, 3, three), at);
  if (!factor) return s;
  ExprId n = ex_fdiv(c, ex_add(c, extent, ex_int(c, it, factor - 1)), f);
  return st_for(c, outer, zero, ar_simplify(k->g->ar, n), FOR_SERIAL, s);
}

static bool in_blocks(Sums *g, const Sum *x) {
  IrCtx *c = g->c;
  Where w = {0, 0};
  Cut k = {.g = g, .x = x, .type = DT_F32};
  bool product = product_in(g, x), wide = x->kind == SUM_LANES;
  int64_t block = product ? RULE[SUM_PRODUCTS].block : RULE[x->kind].block;
  if (!(wide ? outside : choose)(x, block, &w)) return false;
  if (wide) k.type = DT_F64;
  int at = x->loop[w.loop].at;
  const Stmt *target = g->path.at[at];
  Uses u = uses_of(c, target, x->buf);
  if (u.loads != 1 || u.stores != 1) return false;
  gather_guards(&k, w.loop);
  if ((k.mixed && x->lanes > 1) || !make_array(&k, w.loop) || bounds_vary(&k, w.loop)) return false;
  mapu_set(&g->made, (uint64_t)k.sums, wide ? SUM_WIDE : SUM_BLOCK);
  g->result = blocks(&k, target, w.factor, at);
  g->target = target;
  return true;
}

/* ---- the walk ---- */
static bool enter(IrCtx *c, const Stmt *s, void *arg) {
  Sums *g = arg;
  Sum x;
  if (g->target) return false;
  vec_push(ir_arena(c), &g->path, s);
  if (s->kind == ST_FOR) low_bind_loop(c, g->ar, s);
  if (s->kind != ST_STORE || !sum_at(g, s, &x) || sums_on_lanes(g, &x)) return true;
  if (x.terms > RULE[x.kind].limit) in_blocks(g, &x);
  return true;
}
static bool leave(IrCtx *c NS_UNUSED, const Stmt *s NS_UNUSED, void *arg) {
  ((Sums *)arg)->path.len--;
  return true;
}
static Stmt *replace(IrCtx *c, Stmt *s, void *arg) {
  const Sums *g = arg;
  return s == g->target ? st_own(c, g->result) : st_rewrite(c, s, replace, NULL, arg);
}
static Stmt *each(IrCtx *c, Stmt *s, void *arg) {
  Sums *g = arg;
  bool changed = false;
  g->local.len = 0;
  for (;;) {
    g->target = NULL;
    g->path.len = 0;
    st_visit(c, s, enter, leave, g);
    if (!g->target) break;
    s = replace(c, s, g);
    changed = true;
  }
  if (!changed) return s;
  s = low_simplify(c, ar_new(c), s);
  return g->local.len ? low_place(c, s, 0, NULL, g->local.len, g->local.at) : s;
}

void pass_sums(Func *f) {
  if (f->use != LOW_CODE || !f->body) return;
  Sums g = {.f = f, .c = f->ctx, .ar = ar_new(f->ctx)};
  mapu_init(&g.made, ir_arena(f->ctx));
  f->body = low_is_gpu(f) ? low_each_kernel(f->ctx, f->body, each, &g) : each(f->ctx, f->body, &g);
  for (int i = 0; i < g.top.len; i++) f->body = st_alloc(f->ctx, g.top.at[i], f->body);
}
