/* prefetch: on CPUs the next chunk of large weights is on its way into the cache while the present one is used.
 *
 *   for k: for i in [0, 16): for kk: ... W[k*C + kk*48 ..] ...
 *
 * reads the same C elements for each i, in the order in which they lie, and then the C elements behind them. The first i waits
 * for memory at every line; the others find the chunk in the cache. So each i asks for its part of what comes next:
 *
 *   for k: for i in [0, 16): prefetch W[k*C + C + i*(C/16) ..]; for kk: ... W[k*C + kk*48 ..] ...
 *
 * Loops inside of i take part as long as they are outside of the register tile and each iteration has a line to ask for: many
 * small requests are better than a few large ones. Of several tiles in an iteration each is preceded by its share. Beyond the end of
 * the tensor its last lines are asked for: no address is formed that is not one of its elements. After pass_registers; what is computed, and in which order, stays as it is.
 */
#include "lower/util.h"

/* Bytes of a line; of what a core's own caches may hold from one run to the next; of chunks that are read at once, and that are no
 * more there when their turn comes. MAX_LINES: asked for at a time; where it takes more, the core waits for them. */
enum { LINE = 64, SMALL_TENSOR = 1 << 20, MIN_CHUNK = 4 << 10, MAX_CHUNK = 64 << 10, MAX_LINES = 24, MAX_NEST = 32 };

typedef struct {
  IrCtx *c;
  Arith *ar;
  BufferId buf;
  int64_t size; /* of buf, in elements of so many bytes */
  int bytes, n;
  const Stmt *loop[MAX_NEST]; /* around what is looked at */
} Fetch;

/* What of the buffer one iteration of a loop reads. */
typedef struct {
  Fetch *x;
  int outside;   /* loops around the loop */
  ExprId origin; /* index of one read in the first iterations of all loops */
  int64_t lo, hi, count;
  bool fail;
  MapU64 seen;
} Chunk;

static bool constant_loop(IrCtx *c, const Stmt *s, int64_t *extent) {
  return ex_const_int(c, s->u.loop.extent, extent) && *extent > 0;
}

static bool open_loop(Fetch *x, const Stmt *s) {
  if (x->n == MAX_NEST) return false;
  low_bind_loop(x->c, x->ar, s);
  x->loop[x->n++] = s;
  return true;
}

static bool foreign(IrCtx *c, ExprId e, void *arg) { /* a variable of no loop around the chunk */
  const Chunk *k = arg;
  const ExprNode *n = ir_node(c, e);
  bool known = n->kind != IR_VAR;
  for (int i = 0; i < k->outside && !known; i++) known = k->x->loop[i]->u.loop.var == n->sym;
  return !known;
}

static void read(IrCtx *c, ExprId e, void *arg) {
  Chunk *k = arg;
  Fetch *x = k->x;
  if (ir_kind(c, e) != IR_LOAD || ir_node(c, e)->sym != x->buf) return;
  ExprId at = ir_kid(c, e, 0), origin;
  int64_t lanes = ir_type(c, at).lanes, extent;
  if (k->fail || mapu_get(&k->seen, (uint64_t)e, 0)) return;
  mapu_set(&k->seen, (uint64_t)e, 1);
  k->fail = lanes > 1 && (ir_kind(c, at) != IR_RAMP || !ex_is_int(c, ir_kid(c, at, 1), 1));
  if (k->fail) return;
  if (lanes > 1) at = ir_kid(c, at, 0);
  VarSub first[MAX_NEST];
  int64_t count = lanes;
  for (int i = k->outside; i < x->n; i++) {
    const Stmt *l = x->loop[i];
    first[i - k->outside] = (VarSub){l->u.loop.var, l->u.loop.min};
    if (!ex_uses_var(c, at, l->u.loop.var)) continue;
    k->fail |= i == k->outside || !constant_loop(c, l, &extent) || !i64_mul(count, extent, &count);
    if (k->fail) return;
  }
  origin = ar_simplify(x->ar, ex_subst(c, at, x->n - k->outside, first));
  if (!k->origin) k->origin = origin;
  Bound b = ar_bound(x->ar, ar_simplify(x->ar, ex_sub(c, at, k->origin)));
  k->fail = b.lo < -x->size || b.hi > x->size || ex_any(c, origin, foreign, k) || low_expr_loads(c, origin);
  if (k->fail) return;
  if (!k->count || b.lo < k->lo) k->lo = b.lo;
  if (!k->count || b.hi + lanes > k->hi) k->hi = b.hi + lanes;
  k->fail = !i64_add(k->count, count, &k->count);
}

static bool enter(IrCtx *c, const Stmt *s, void *arg) {
  Chunk *k = arg;
  if (s->kind == ST_FOR && !open_loop(k->x, s)) k->fail = true;
  if (!k->fail) st_visit_exprs(c, s, read, k);
  return !k->fail;
}
static bool leave(IrCtx *c NS_UNUSED, const Stmt *s, void *arg) {
  Chunk *k = arg;
  k->x->n -= s->kind == ST_FOR;
  return true;
}

/* Is what the innermost loop around it that moves reads next what lies behind? */
static bool goes_on(const Chunk *k) {
  Fetch *x = k->x;
  IrCtx *c = x->c;
  int i = k->outside - 1;
  while (i >= 0 && !ex_uses_var(c, k->origin, x->loop[i]->u.loop.var)) i--;
  if (i < 0) return false;
  VarId v = x->loop[i]->u.loop.var;
  DType t = ir_var_info(c, v)->type;
  VarSub next = {v, ex_add(c, ex_var(c, v), ex_int(c, t, 1))};
  ExprId behind = ex_add(c, k->origin, ex_int(c, ir_type(c, k->origin), k->count));
  return ar_prove_eq(x->ar, ex_subst(c, k->origin, 1, &next), behind);
}

static bool chunk_of(Fetch *x, const Stmt *s, Chunk *k) {
  int64_t extent;
  int n = x->n;
  if (s->u.loop.kind > FOR_UNROLLED || !constant_loop(x->c, s, &extent) || extent < 2) return false;
  *k = (Chunk){.x = x, .outside = n};
  mapu_init(&k->seen, ir_arena(x->c));
  st_visit(x->c, s, enter, leave, k);
  x->n = n;
  if (k->fail || !k->origin || k->count != k->hi - k->lo) return false;
  int64_t bytes = k->count * x->bytes;
  return bytes >= MIN_CHUNK && bytes <= MAX_CHUNK && goes_on(k);
}

/* ---- requests, spread over the tiles that use the chunk ---- */

typedef struct {
  const Fetch *x;
  ExprId at;     /* the first element to ask for */
  int64_t lines; /* from there on */
  bool fail;
} Spread;

static bool is_tile(IrCtx *c, const Stmt *s) { return s->kind == ST_ALLOC && ir_buffer(c, s->u.alloc.buf)->registers; }
typedef struct {
  BufferId buf;
  bool found;
} Seek;
static void seek(IrCtx *c, ExprId e, void *arg) {
  Seek *k = arg;
  k->found |= ir_kind(c, e) == IR_LOAD && ir_node(c, e)->sym == k->buf;
}
static bool seek_in(IrCtx *c, const Stmt *s, void *arg) {
  Seek *k = arg;
  st_visit_exprs(c, s, seek, k);
  return k->found;
}
static bool reads(const Fetch *x, const Stmt *s) { return st_any(x->c, s, seek_in, &(Seek){.buf = x->buf}); }
static bool loop_or_tile(IrCtx *c, const Stmt *s, void *x) {
  return (s->kind == ST_FOR || is_tile(c, s)) && reads(x, s);
}

/* The loop's extent, if requests may stand in it: reads of its own are not its innermost ones; else 0. */
static int64_t open_to(const Fetch *x, const Stmt *s) {
  int64_t extent;
  if (s->kind != ST_FOR || s->u.loop.kind > FOR_UNROLLED || !constant_loop(x->c, s, &extent)) return 0;
  return st_any(x->c, s->u.loop.body, loop_or_tile, (void *)x) ? extent : 0;
}

/* How often a tile is begun: the places for requests. */
static double turns(const Fetch *x, const Stmt *s) {
  int64_t extent = open_to(x, s);
  if (extent) return (double)extent * turns(x, s->u.loop.body);
  if (s->kind != ST_SEQ) return reads(x, s) ? 1 : 0;
  double n = 0;
  for (int i = 0; i < s->u.seq.n; i++) n += turns(x, s->u.seq.at[i]);
  return n;
}

static Stmt *ask(Spread *p, Stmt *before) {
  const Fetch *x = p->x;
  IrCtx *c = x->c;
  DType t = ir_type(c, p->at);
  int64_t line = LINE / x->bytes;
  ExprId at = ex_bin(c, IR_MAX, p->at, ex_int(c, t, 0)); /* guarded reads of padding begin in front of the tensor */
  at = ex_bin(c, IR_MIN, at, ex_int(c, t, x->size - (p->lines - 1) * line - 1));
  p->fail |= p->lines > MAX_LINES;
  if (p->fail) return before;
  VarId from = ir_var_new(c, "next", t, false);
  Stmt *all[MAX_LINES + 1];
  for (int64_t i = 0; i < p->lines; i++) {
    ExprId to = ex_add(c, ex_var(c, from), ex_int(c, t, i * line)),
           e = ex_load(c, x->buf, ir_buffer(c, x->buf)->type, 1, &to);
    all[i] = st_eval(c, ex_call(c, IN_PREFETCH, DT_I32, 1, &e));
  }
  all[p->lines] = before;
  return st_let(c, from, ar_simplify(x->ar, at), st_seq(c, (int)p->lines + 1, all));
}

static Stmt *spread(IrCtx *c, Stmt *s, void *arg);

/* To each statement its share. */
static Stmt *spread_sequence(Spread *p, Stmt *s) {
  IrCtx *c = p->x->c;
  int64_t line = LINE / p->x->bytes, asked = 0;
  double all = turns(p->x, s), before = 0;
  Stmt **out = arena_array(ir_arena(c), Stmt *, s->u.seq.n);
  for (int i = 0; i < s->u.seq.n; i++) {
    before += turns(p->x, s->u.seq.at[i]);
    int64_t until = (int64_t)((double)p->lines * before / all);
    Spread part = {p->x, ex_add(c, p->at, ex_int(c, ir_type(c, p->at), asked * line)), until - asked, p->fail};
    out[i] = spread(c, s->u.seq.at[i], &part);
    p->fail = part.fail;
    asked = until;
  }
  return st_seq(c, s->u.seq.n, out);
}

static Stmt *spread(IrCtx *c, Stmt *s, void *arg) {
  Spread *p = arg;
  if (p->lines == 0 || p->fail || !reads(p->x, s)) return s;
  if (s->kind == ST_SEQ) return spread_sequence(p, s);
  int64_t extent = open_to(p->x, s), line = LINE / p->x->bytes;
  if (extent && (p->lines >= extent || p->lines > MAX_LINES)) {
    DType t = ir_type(c, p->at);
    Spread each = {p->x, p->at, i64_ceildiv(p->lines, extent), false};
    ExprId turn = ex_cast(c, t, ex_sub(c, ex_var(c, s->u.loop.var), s->u.loop.min));
    each.at = ex_add(c, p->at, ex_mul(c, turn, ex_int(c, t, each.lines * line)));
    Stmt *r = st_own(c, s);
    r->u.loop.body = spread(c, s->u.loop.body, &each);
    p->fail = each.fail;
    return r;
  }
  if (s->kind == ST_FOR || s->kind == ST_STORE || s->kind == ST_EVAL || is_tile(c, s)) return ask(p, s);
  return st_rewrite(c, s, spread, NULL, p);
}

/* The statement, with requests for what lies behind the chunk; itself: too many at a time. */
static Stmt *with_requests(const Chunk *k, Stmt *s) {
  Fetch *x = k->x;
  IrCtx *c = x->c;
  DType t = ir_type(c, k->origin);
  Spread p = {.x = x, .lines = i64_ceildiv(k->count, LINE / x->bytes)};
  p.at = ex_add(c, k->origin, ex_int(c, t, k->lo + k->count));
  Stmt *r = spread(c, s, &p);
  return p.fail ? s : r;
}

static Stmt *walk(IrCtx *c, Stmt *s, void *arg) {
  Fetch *x = arg;
  Chunk k;
  if (s->kind != ST_FOR) return st_rewrite(c, s, walk, NULL, x);
  if (chunk_of(x, s, &k)) {
    Stmt *r = with_requests(&k, s);
    if (r != s) return r;
  }
  int n = x->n;
  if (open_loop(x, s)) s = st_rewrite(c, s, walk, NULL, x);
  x->n = n;
  return s;
}

static bool stores_into(IrCtx *c NS_UNUSED, const Stmt *s, void *buf) {
  return s->kind == ST_STORE && s->u.store.buf == *(BufferId *)buf;
}

void pass_prefetch(Func *f) {
  IrCtx *c = f->ctx;
  if (low_is_gpu(f) || f->use != LOW_CODE) return;
  for (int i = 0; i < f->n_args && f->body; i++) {
    const IrBuffer *b = ir_buffer(c, f->arg[i]);
    Fetch x = {.c = c, .buf = f->arg[i], .bytes = dtype_bytes(b->type)};
    if (b->type.lanes != 1 || !b->size || !ex_const_int(c, b->size, &x.size)) continue;
    if (x.size > INT32_MAX / 2 || x.size * x.bytes < SMALL_TENSOR) continue;
    x.ar = ar_new(c);
    if (!st_any(c, f->body, stores_into, &x.buf)) f->body = walk(c, f->body, &x);
  }
}
