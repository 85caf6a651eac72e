/* double buffer: the tile of the next iteration is filled while the current one is used (spec 07 §7.2.11).
 *
 *   for v in E { alloc b { fill(b, v); use(b, v) } }
 * becomes, with b twice as large and `h` selecting a half,
 *   alloc b { fill(b.h0, 0); for v in E-1 { fill(b.h[(v+1) mod 2], v+1); use(b.h[v mod 2], v) }; use(b.h[(E-1) mod 2],
 * E-1) } The fill inside the loop is marked: the barrier planner knows that it does not meet the reads of the same
 * iteration.
 */
#include "lower/util.h"

typedef struct {
  IrCtx *c;
  MapU64 buf;
  ExprId half;
} Half; /* buffers that are doubled; which half to address */

static bool halved(IrCtx *c, BufferId *b, ExprId *index, void *arg) {
  const Half *h = arg;
  int32_t size = mapu_get(&h->buf, (uint64_t)*b, -1);
  if (size >= 0) *index = low_shift(c, ex_mul(c, h->half, ex_i32(c, size)), *index);
  return size >= 0;
}
/* A copy of s for iteration `value` of v, working on half `half`. */
static Stmt *version(Half *h, const Stmt *s, VarId v, ExprId value, ExprId half) {
  h->half = half;
  return low_move(h->c, low_copy(h->c, s, v, value), halved, h);
}

enum { MAX_FILLS = 16, MAX_DOUBLED = 16 };
typedef struct {
  Half half;
  Stmt *fill[MAX_FILLS];
  BufferId buf[MAX_DOUBLED];
  int n_fill, n_buf;
} Doubled;

/* The n marked allocations that begin at s and the production behind them: a stage with several outputs has as many.
 * NULL: none is marked, or not all can be doubled. */
static Stmt *marked_run(IrCtx *c, Stmt *s, const Doubled *d, int *n) {
  bool ok = d->n_fill < MAX_FILLS;
  int64_t size;
  for (*n = 0; s->kind == ST_ALLOC && ir_buffer(c, s->u.alloc.buf)->double_buffer; s = s->u.alloc.body, ++*n)
    ok = ok && ex_const_int(c, ir_buffer(c, s->u.alloc.buf)->size, &size) && size <= INT32_MAX / 2;
  return ok && *n && s->kind == ST_SEQ && d->n_buf + *n <= MAX_DOUBLED ? s : NULL;
}

/* Takes marked allocations off the top of a loop body: their fills go to d, the rest is returned. */
static Stmt *peel(IrCtx *c, Stmt *s, Doubled *d) {
  if (s->kind != ST_ALLOC) return s;
  int n;
  Stmt *in = marked_run(c, s, d, &n);
  if (!in && n) return s;
  if (!in) {
    Stmt *r = st_own(c, s);
    r->u.alloc.body = peel(c, s->u.alloc.body, d);
    return r;
  }
  for (int64_t size; s != in; s = s->u.alloc.body) {
    ex_const_int(c, ir_buffer(c, s->u.alloc.buf)->size, &size);
    mapu_set(&d->half.buf, (uint64_t)s->u.alloc.buf, (int32_t)size);
    d->buf[d->n_buf++] = s->u.alloc.buf;
  }
  d->fill[d->n_fill++] = in->u.seq.at[0];
  return peel(c, st_seq(c, in->u.seq.n - 1, in->u.seq.at + 1), d);
}
static Stmt *double_loop(IrCtx *c, Stmt *s, void *arg NS_UNUSED) {
  int64_t e;
  if (s->kind != ST_FOR || s->u.loop.kind != FOR_SERIAL || !ex_const_int(c, s->u.loop.extent, &e) || e < 2) return s;
  Doubled d = {.half = {.c = c}};
  mapu_init(&d.half.buf, ir_arena(c));
  Half *h = &d.half;
  Stmt *at[MAX_FILLS + 2], *in[MAX_FILLS + 1], *rest = peel(c, s->u.loop.body, &d);
  int n = d.n_fill, k = 0;
  if (!n) return s;
  VarId v = s->u.loop.var;
  DType t = ir_var_info(c, v)->type;
  VarId w = ir_var_new(c, arena_printf(ir_arena(c), "%s.outer", ir_var_info(c, v)->name), t, false);
  ExprId two = ex_int(c, t, 2), one = ex_int(c, t, 1), now = ex_var(c, w), next = ex_add(c, now, one),
         last = ex_int(c, t, e - 1), zero = ex_int(c, t, 0);
  for (int i = 0; i < n; i++) at[k++] = version(h, d.fill[i], v, zero, zero);
  for (int i = 0; i < n; i++) {
    in[i] = version(h, d.fill[i], v, next, ex_fmod(c, next, two));
    if (e > 2) in[i] = st_attr(c, AT_DOUBLE_WRITE, 1, NULL, in[i]); /* a loop of one iteration will be none */
  }
  in[n] = version(h, rest, v, now, ex_fmod(c, now, two));
  at[k++] = st_for(c, w, zero, last, FOR_SERIAL, st_seq(c, n + 1, in));
  at[k++] = version(h, rest, v, last, ex_fmod(c, last, two));
  Stmt *r = st_seq(c, k, at);
  for (int i = d.n_buf - 1; i >= 0; i--) {
    IrBuffer *b = ir_buffer(c, d.buf[i]);
    b->double_buffer = false;
    ExprId size = ex_mul(c, b->size, ex_i32(c, 2));
    ir_buffer(c, d.buf[i])->size = size;
    r = st_alloc(c, d.buf[i], r);
  }
  return r;
}
void pass_double_buffer(Func *f) { f->body = st_map(f->ctx, f->body, double_loop, NULL, NULL); }
