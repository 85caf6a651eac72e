/* registers_wide: loops without a reduction on vectors, and what they share with those that have one (registers.c).
 *
 * A loop around straight code with private arrays (the transforms of Winograd) becomes the same code on vectors.
 * Pieces have the width of the machine's vectors as long as every access of a piece is contiguous or the same for all lanes;
 * else narrower ones are tried. What cannot be widened stays a marked loop, and the C compiler does what it can.
 */
#include <string.h>
#include "lower/registers.h"

/* ---- questions ---- */
void rg_self_read(IrCtx *c, ExprId e, void *arg) {
  SelfRead *r = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind != IR_LOAD || n->sym != r->buf) return;
  if (n->n == 1 && ir_kid(c, e, 0) == r->idx)
    r->same = true;
  else
    r->other = true;
}

/* The widest element that the value computes with or reads in a lane: it decides how many lanes a register has. */
static void widest(IrCtx *c, ExprId e, void *arg) {
  const ExprNode *n = ir_node(c, e);
  int *bytes = arg;
  bool counts = n->kind == IR_LOAD || (n->kind == IR_CAST && n->type.code == DT_FLOAT);
  if (counts && n->type.bits / 8 > *bytes) *bytes = n->type.bits / 8;
}

/* ---- widening one store ---- */

Stmt *rg_widen(Regs *g, const Stmt *s, VarId v, ExprId first, int lanes, bool strict) {
  IrCtx *c = g->c;
  DType t = ir_var_info(c, v)->type;
  VarId lane = ir_var_new(c, "lane", t, false);
  ar_bind_range(g->ar, lane, ex_int(c, t, 0), ex_int(c, t, lanes));
  VarSub sub = {v, ex_add(c, first, ex_var(c, lane))};
  ExprId idx = ar_simplify(g->ar, ex_subst(c, s->u.store.idx[0], 1, &sub)),
         value = ex_subst(c, s->u.store.value, 1, &sub);
  LowWiden w = {.c = c, .ar = g->ar, .lane = lane, .lanes = lanes, .any_address = true};
  idx = low_widen_index(&w, idx, 1);
  if (w.fail || ir_kind(c, idx) != IR_RAMP || !ex_is_int(c, ir_kid(c, idx, 1), 1)) return NULL;
  value = low_widen_value(&w, value);
  if (w.fail || (strict && w.gathers) || !ex_on_vectors(c, value)) return NULL;
  return st_store(c, s->u.store.buf, 1, &idx, value);
}

int rg_lanes_at_most(const Regs *g, const Stmt *s) {
  int bytes = dtype_bytes(dtype_lanes(ir_buffer(g->c, s->u.store.buf)->type, 1));
  ex_post_order(g->c, s->u.store.value, widest, &bytes);
  return g->cpu.vector_bytes / bytes;
}

bool rg_supported_store(const Regs *g, const Stmt *s) {
  DType t = ir_buffer(g->c, s->u.store.buf)->type;
  return s->u.store.n_idx == 1 && ir_type(g->c, s->u.store.value).lanes == 1 && dtype_on_vectors(t) &&
         dtype_eq(t, ir_type(g->c, s->u.store.value));
}

int rg_cut(Regs *g, int n_store, Stmt *const *store, VarId v, ExprId base, int64_t n, Piece *out, int max) {
  IrCtx *c = g->c;
  DType t = ir_var_info(c, v)->type;
  int widest_lanes = 64, k = 0;
  for (int i = 0; i < n_store; i++) {
    int l = rg_lanes_at_most(g, store[i]);
    if (l < widest_lanes) widest_lanes = l;
  }
  for (int64_t at = 0; at < n;) {
    if (k == max) return 0;
    int found = 0;
    for (int strict = 1; strict >= 0 && !found; strict--)
      for (int w = widest_lanes; w >= (strict ? 2 : MIN_LANES) && !found; w /= 2) {
        if (w > n - at) continue;
        bool ok = true;
        for (int i = 0; i < n_store && ok; i++)
          ok = rg_widen(g, store[i], v, ar_simplify(g->ar, ex_add(c, base, ex_int(c, t, at))), w, strict) != NULL;
        if (ok) found = w;
      }
    if (!found && n - at >= MIN_LANES) return 0; /* not a remainder: this loop does not widen */
    if (!found) found = 1;
    out[k++] = (Piece){at, found};
    at += found;
  }
  return k;
}

/* ---- vector loops without a reduction ---- */
Stmt *rg_piece_of(Regs *g, const Stmt *s, VarId v, ExprId first, int lanes, bool strict) {
  IrCtx *c = g->c;
  if (lanes > 1) {
    Stmt *r = rg_widen(g, s, v, first, lanes, true);
    return r || strict ? r : rg_widen(g, s, v, first, lanes, false);
  }
  VarSub sub = {v, first};
  ExprId i = ar_simplify(g->ar, ex_subst(c, s->u.store.idx[0], 1, &sub));
  return st_store(c, s->u.store.buf, 1, &i, ar_simplify(g->ar, ex_subst(c, s->u.store.value, 1, &sub)));
}

Stmt *rg_vector_loop(Regs *g, const Stmt *s) {
  IrCtx *c = g->c;
  Stmt *one[1] = {s->u.loop.body}, **store = one, *out[MAX_PIECES * 4];
  int n_store = 1, k = 0;
  int64_t n, min;
  if (s->u.loop.body->kind == ST_SEQ) {
    store = s->u.loop.body->u.seq.at;
    n_store = s->u.loop.body->u.seq.n;
  }
  for (int i = 0; i < n_store; i++)
    if (store[i]->kind != ST_STORE || !rg_supported_store(g, store[i])) return NULL;
  if (n_store > 4 || !ex_const_int(c, s->u.loop.extent, &n) || !ex_const_int(c, s->u.loop.min, &min) || n < 2)
    return NULL;
  VarId v = s->u.loop.var;
  DType t = ir_var_info(c, v)->type;
  Piece piece[MAX_PIECES];
  int lanes = rg_lanes_at_most(g, store[0]);
  if (n <= (int64_t)lanes * 8) {
    int pieces = rg_cut(g, n_store, store, v, s->u.loop.min, n, piece, MAX_PIECES);
    if (!pieces) return NULL;
    for (int p = 0; p < pieces; p++)
      for (int i = 0; i < n_store; i++)
        out[k++] = rg_piece_of(g, store[i], v, ex_int(c, t, min + piece[p].first), piece[p].lanes, false);
    return st_seq(c, k, out);
  }
  for (int i = 0; i < n_store; i++)
    if (rg_lanes_at_most(g, store[i]) < lanes) lanes = rg_lanes_at_most(g, store[i]);
  while (lanes >= MIN_LANES && n % lanes) lanes /= 2;
  if (lanes < MIN_LANES) return NULL;
  VarId o = ir_var_new(c, ir_var_info(c, v)->name, t, false);
  ar_bind_range(g->ar, o, ex_int(c, t, 0), ex_int(c, t, n / lanes));
  ExprId first = ex_add(c, s->u.loop.min, ex_mul(c, ex_var(c, o), ex_int(c, t, lanes)));
  for (int i = 0; i < n_store; i++)
    if (!(out[k++] = rg_widen(g, store[i], v, first, lanes, true))) return NULL;
  return st_for(c, o, ex_int(c, t, 0), ex_int(c, t, n / lanes), FOR_SERIAL, st_seq(c, k, out));
}

/* for v: if (f(v) < n) store  becomes  if (f(last v) < n) vectors else the loop: the end of what no width divides. */
Stmt *rg_guarded_loop(Regs *g, const Stmt *s) {
  IrCtx *c = g->c;
  const Stmt *body = s->u.loop.body;
  int64_t n, min;
  bool guarded = s->u.loop.kind == FOR_VECTOR && body->kind == ST_IF && !body->u.cond.other &&
                 ex_const_int(c, s->u.loop.extent, &n) && ex_const_int(c, s->u.loop.min, &min);
  if (!guarded || !ex_uses_var(c, body->u.cond.cond, s->u.loop.var)) return NULL;
  VarSub last = {s->u.loop.var, ex_int(c, ir_var_info(c, s->u.loop.var)->type, min + n - 1)};
  ExprId all = ar_simplify(g->ar, ex_subst(c, body->u.cond.cond, 1, &last));
  Stmt *vectors = NULL;
  ar_push(g->ar, all);
  if (ar_prove(g->ar, body->u.cond.cond)) {
    Stmt *loop = st_own(c, s);
    loop->u.loop.body = low_simplify(c, g->ar, body->u.cond.then);
    vectors = loop->u.loop.body ? rg_vector_loop(g, loop) : NULL;
  }
  ar_pop(g->ar);
  return vectors ? st_if(c, all, false, vectors, st_own(c, s)) : NULL;
}

/* ---- loops around straight code: every scalar of the body becomes a vector ---- */
typedef struct {
  BufferId from, to;
} Private;
typedef struct {
  Regs *g;
  VarId v, lane;
  ExprId at; /* value of v */
  int lanes, n_priv, n_written, n_store;
  Private priv[8];
  BufferId written[16];
  bool fail;
} Body;
enum { MAX_BODY = 512 };

/* Lanes that all stores below s can have; 0: something else than loops and stores is there. */
typedef struct {
  const Regs *g;
  int lanes;
} Lanes;
static bool lanes_below(IrCtx *c, const Stmt *s, void *arg) {
  Lanes *x = arg;
  bool ok = s->kind == ST_SEQ || (s->kind == ST_FOR && s->u.loop.kind <= FOR_UNROLLED) ||
            (s->kind == ST_ALLOC && !ir_buffer(c, s->u.alloc.buf)->registers);
  int n = ok ? x->lanes : s->kind == ST_STORE && rg_supported_store(x->g, s) ? rg_lanes_at_most(x->g, s) : 0;
  if (n < x->lanes) x->lanes = n;
  return x->lanes > 0;
}
static int widest_lanes_of(const Regs *g, const Stmt *s) {
  Lanes x = {g, 64};
  st_visit(g->c, s, lanes_below, NULL, &x);
  return x.lanes;
}

/* Replicated code allocates a buffer several times, one after the other; it is one wide buffer. */
static const Private *private_of(const Body *b, BufferId from) {
  for (int i = 0; i < b->n_priv; i++)
    if (b->priv[i].from == from) return &b->priv[i];
  return NULL;
}

static const Private *private_new(IrCtx *c, Body *b, BufferId from) {
  IrBuffer info = *ir_buffer(c, from);
  int64_t n;
  b->fail |= b->n_priv == NS_COUNT(b->priv) || !ex_const_int(c, info.size, &n) ||
             n * b->lanes * dtype_bytes(info.type) > LOW_CPU_STACK_BYTES;
  if (b->fail) return NULL;
  info.size = ex_i32(c, n * b->lanes);
  info.extent = &info.size;
  info.rank = 1;
  info.min = info.stride = NULL;
  Private *p = &b->priv[b->n_priv++];
  *p = (Private){from, ir_buffer_new(c, info)};
  return p;
}

/* Where the lanes of an element of a private buffer lie. */
static ExprId private_index(IrCtx *c, const Body *b, ExprId idx) {
  return ex_add(c, ex_mul(c, idx, ex_int(c, ir_type(c, idx), b->lanes)),
                ex_cast(c, ir_type(c, idx), ex_var(c, b->lane)));
}

static ExprId private_load(IrCtx *c, ExprId e, void *arg) {
  const Body *b = arg;
  ExprNode n = *ir_node(c, e);
  const Private *p = n.kind == IR_LOAD ? private_of(b, n.sym) : NULL;
  if (!p) return e;
  ExprId idx = private_index(c, b, ir_kid(c, e, 0));
  return ex_load(c, p->to, n.type, 1, &idx);
}

static Stmt *widen_body(IrCtx *c, Stmt *s, void *arg) {
  Body *b = arg;
  if (b->fail) return NULL;
  switch (s->kind) {
  case ST_SEQ: return st_rewrite(c, s, widen_body, NULL, b);
  case ST_FOR:
    b->fail |= ex_uses_var(c, s->u.loop.min, b->v) || ex_uses_var(c, s->u.loop.extent, b->v);
    return low_rewrite(c, b->g->ar, s, widen_body, NULL, b);
  case ST_ALLOC: {
    const Private *p = private_of(b, s->u.alloc.buf);
    if (!p) p = private_new(c, b, s->u.alloc.buf);
    return p ? st_alloc(c, p->to, widen_body(c, s->u.alloc.body, b)) : NULL;
  }
  case ST_STORE: {
    VarSub sub = {b->v, b->at};
    ExprId idx = s->u.store.idx[0], value;
    BufferId buf = s->u.store.buf;
    const Private *own = private_of(b, buf);
    BufferId to = own ? own->to : buf;
    if (++b->n_store > MAX_BODY) b->fail = true;
    if (!own) { /* other iterations must not see what this one writes */
      SelfRead self = {buf, idx, false, false};
      ex_post_order(c, s->u.store.value, rg_self_read, &self);
      b->fail |= self.other || b->n_written == NS_COUNT(b->written);
      int i = 0;
      while (i < b->n_written && b->written[i] != buf) i++;
      if (i == b->n_written && !b->fail) b->written[b->n_written++] = buf;
    } else
      idx = private_index(c, b, idx);
    if (b->fail) return NULL;
    idx = ex_subst(c, idx, 1, &sub);
    value = ex_subst(c, ex_map(c, s->u.store.value, private_load, b), 1, &sub);
    Stmt *w = rg_widen(b->g, st_store(c, to, 1, &idx, value), b->lane, ex_int(c, ir_var_info(c, b->lane)->type, 0),
                       b->lanes, true);
    b->fail |= w == NULL;
    return w;
  }
  default: b->fail = true; return NULL;
  }
}

static bool reads_written(IrCtx *c, ExprId e, void *arg) {
  const Body *b = arg;
  const ExprNode *n = ir_node(c, e);
  bool hit = false;
  for (int i = 0; i < b->n_written; i++) hit |= n->kind == IR_LOAD && b->written[i] == n->sym;
  return hit;
}
/* Is a buffer read by another statement than the one that accumulates into it? */
static bool crosses(IrCtx *c, const Stmt *s, void *arg) {
  Body *b = arg;
  if (s->kind != ST_STORE) return false;
  SelfRead self = {s->u.store.buf, s->u.store.idx[0], false, false};
  ex_post_order(c, s->u.store.value, rg_self_read, &self);
  if (self.same && b->n_written == 1) return self.other;
  return ex_any(c, s->u.store.value, reads_written, b);
}

static bool single_store(const Stmt *s) {
  return s->kind == ST_STORE || (s->kind == ST_FOR && single_store(s->u.loop.body));
}

Stmt *rg_wide_loop(Regs *g, const Stmt *s) {
  IrCtx *c = g->c;
  int64_t n, min;
  if (!ex_const_int(c, s->u.loop.extent, &n) || !ex_const_int(c, s->u.loop.min, &min) || n < MIN_LANES) return NULL;
  if (s->u.loop.kind != FOR_VECTOR && single_store(s->u.loop.body)) return NULL; /* the C compiler is good at those */
  int lanes = widest_lanes_of(g, s->u.loop.body);
  while (lanes >= MIN_LANES && n % lanes) lanes /= 2;
  if (lanes < MIN_LANES) return NULL;
  DType t = ir_var_info(c, s->u.loop.var)->type;
  VarId o = ir_var_new(c, ir_var_info(c, s->u.loop.var)->name, t, false);
  Body b = {.g = g, .v = s->u.loop.var, .lane = ir_var_new(c, "lane", t, false), .lanes = lanes};
  ar_bind_range(g->ar, o, ex_int(c, t, 0), ex_int(c, t, n / lanes));
  ExprId first = ex_int(c, t, min);
  if (n > lanes) first = ex_add(c, ex_mul(c, ex_var(c, o), ex_int(c, t, lanes)), first);
  b.at = ex_add(c, first, ex_var(c, b.lane));
  Stmt *body = widen_body(c, s->u.loop.body, &b);
  if (b.fail || !body || st_any(c, s->u.loop.body, crosses, &b)) return NULL;
  return n == lanes ? body : st_for(c, o, ex_int(c, t, 0), ex_int(c, t, n / lanes), FOR_SERIAL, body);
}
