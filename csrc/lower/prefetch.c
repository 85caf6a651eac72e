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
 * small requests are better than a few large ones. Beyond the end of the tensor its last lines are asked for: no address is formed
 * that is not one of its elements. After pass_registers; what is computed, and in which order, stays as it is.
 */
#include "lower/util.h"

/* Bytes of a line; of what a core's own caches may hold from one run to the next; of chunks that are read at once, and that are no
 * more there when their turn comes. MAX_LINES: asked for at a time; where it takes more, the core waits for them. */
enum { LINE = 64, SMALL_TENSOR = 1 << 20, MIN_CHUNK = 4 << 10, MAX_CHUNK = 64 << 10, MAX_LINES = 16, MAX_NEST = 32 };

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
  int outside, n_open, tiles; /* loops around the loop; around the register tile, if we are in one */
  int path;
  const Stmt *around[MAX_NEST]; /* from `outside` to `path`: where a prefetch may stand */
  ExprId origin;                /* index of one read in the first iterations of all loops */
  int64_t lo, hi, count, parts;
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

/* Loops around the first read that a prefetch may stand in: outside of the tile, or else of the innermost loop. */
static void note_path(Chunk *k) {
  Fetch *x = k->x;
  k->path = k->tiles ? k->n_open : x->n - 1;
  for (int i = k->outside; i < k->path; i++) k->around[i] = x->loop[i];
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
  if (!k->origin) note_path(k);
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

static bool is_tile(IrCtx *c, const Stmt *s) { return s->kind == ST_ALLOC && ir_buffer(c, s->u.alloc.buf)->registers; }
static bool enter(IrCtx *c, const Stmt *s, void *arg) {
  Chunk *k = arg;
  if (s->kind == ST_FOR && !open_loop(k->x, s)) k->fail = true;
  if (is_tile(c, s) && !k->tiles++) k->n_open = k->x->n;
  if (!k->fail) st_visit_exprs(c, s, read, k);
  return !k->fail;
}
static bool leave(IrCtx *c, const Stmt *s, void *arg) {
  Chunk *k = arg;
  k->x->n -= s->kind == ST_FOR;
  k->tiles -= is_tile(c, s);
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

/* The loop that the prefetches stand in: as far inside as each of its iterations has a line to ask for. */
static const Stmt *site_of(Chunk *k) {
  IrCtx *c = k->x->c;
  const Stmt *site = NULL;
  int64_t parts = 1, extent;
  for (int i = k->outside; i < k->path; i++) {
    const Stmt *s = k->around[i];
    if (s->u.loop.kind > FOR_UNROLLED || !constant_loop(c, s, &extent) || !i64_mul(parts, extent, &parts)) break;
    if (site && parts * LINE > k->count * k->x->bytes) break;
    site = s, k->parts = parts;
  }
  return site;
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

/* Statements that ask for the part of this iteration of the loops up to the site. */
static Stmt *ask(const Chunk *k, const Stmt *site) {
  Fetch *x = k->x;
  IrCtx *c = x->c;
  DType t = ir_type(c, k->origin);
  ExprId part = ex_int(c, t, 0);
  for (int i = k->outside;; i++) {
    const Stmt *s = k->around[i];
    ExprId at = ex_cast(c, t, ex_sub(c, ex_var(c, s->u.loop.var), s->u.loop.min));
    part = ex_add(c, ex_mul(c, part, ex_cast(c, t, s->u.loop.extent)), at);
    if (s == site) break;
  }
  int64_t step = i64_ceildiv(k->count, k->parts), line = LINE / x->bytes, n = i64_ceildiv(step, line);
  if (n > MAX_LINES) return NULL;
  ExprId next = ex_add(c, ex_add(c, k->origin, ex_int(c, t, k->lo + k->count)), ex_mul(c, part, ex_int(c, t, step)));
  next = ex_bin(c, IR_MAX, next, ex_int(c, t, 0)); /* guarded reads of padding begin in front of the tensor */
  next = ex_bin(c, IR_MIN, next, ex_int(c, t, x->size - (n - 1) * line - 1));
  VarId from = ir_var_new(c, "next", t, false);
  Stmt *line_of[MAX_LINES];
  for (int64_t i = 0; i < n; i++) {
    ExprId at = ex_add(c, ex_var(c, from), ex_int(c, t, i * line)),
           e = ex_load(c, x->buf, ir_buffer(c, x->buf)->type, 1, &at);
    line_of[i] = st_eval(c, ex_call(c, IN_PREFETCH, DT_I32, 1, &e));
  }
  return st_let(c, from, ar_simplify(x->ar, next), st_seq(c, (int)n, line_of));
}

typedef struct {
  const Stmt *site;
  Stmt *ask;
} Place;
static Stmt *place(IrCtx *c, Stmt *s, void *arg) {
  const Place *p = arg;
  if (s != p->site) return st_rewrite(c, s, place, NULL, arg);
  Stmt *r = st_own(c, s), *both[2] = {p->ask, s->u.loop.body};
  r->u.loop.body = st_seq(c, 2, both);
  return r;
}

static Stmt *walk(IrCtx *c, Stmt *s, void *arg) {
  Fetch *x = arg;
  Chunk k;
  if (s->kind != ST_FOR) return st_rewrite(c, s, walk, NULL, x);
  if (chunk_of(x, s, &k)) {
    Place p = {.site = site_of(&k)};
    p.ask = p.site ? ask(&k, p.site) : NULL;
    if (p.ask) return place(c, s, &p);
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
