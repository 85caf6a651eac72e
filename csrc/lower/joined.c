/* joined: dimensions of buffers that lie one behind the other become one, as in memory.
 *
 * Buffers have one dimension then, or those that `begin` separates: the memory of some devices has two. Indices count from the first
 * element that a buffer holds. This is the form of a program that users look at; pass_flatten makes the one that is compiled.
 */
#include "lower/util.h"

typedef struct {
  BufferId to;
  int n;            /* dimensions of the memory */
  const int *begin; /* the first dimension of each but the first */
} Joined;
typedef struct {
  IrCtx *c;
  Arith *ar;
  MapU64 at; /* buffer -> 1 + its place */
  VEC(Joined) buf;
} Join;

static ExprId from_begin(IrCtx *c, const IrBuffer *b, int i, ExprId index) {
  bool zero = !b->min || ex_is_int(c, b->min[i], 0);
  return zero ? index : ex_sub(c, index, ex_cast(c, ir_type(c, index), b->min[i]));
}

/* One index per dimension of the memory. */
static ExprId *join(Join *j, BufferId id, const Joined *x, int n, const ExprId *index) {
  IrCtx *c = j->c;
  const IrBuffer b = *ir_buffer(c, id);
  ExprId *out = arena_array(ir_arena(c), ExprId, x->n + 1);
  for (int i = 0, k = 0; i < n; i++) {
    if (k + 1 < x->n && x->begin[k] == i) k++;
    ExprId at = from_begin(c, &b, i, index[i]);
    out[k] = out[k] ? ex_add(c, ex_mul(c, out[k], ex_cast(c, ir_type(c, at), b.extent[i])), at) : at;
  }
  for (int k = 0; k < x->n; k++) out[k] = out[k] ? ar_simplify(j->ar, out[k]) : ex_i32(c, 0);
  return out;
}

static const Joined *joined(Join *j, BufferId id, int n_begin, const int *begin) {
  int at = mapu_get(&j->at, (uint64_t)id, 0);
  if (at) return &j->buf.at[at - 1];
  IrCtx *c = j->c;
  IrBuffer b = *ir_buffer(c, id);
  Joined x = {.n = n_begin + 1, .begin = begin};
  ExprId *extent = arena_array(ir_arena(c), ExprId, x.n), *zero = arena_array(ir_arena(c), ExprId, x.n);
  for (int i = 0, k = 0; i < b.rank; i++) {
    if (k < n_begin && begin[k] == i) k++;
    extent[k] = extent[k] ? ex_mul(c, extent[k], b.extent[i]) : b.extent[i];
  }
  for (int k = 0; k < x.n; k++) {
    if (!extent[k]) extent[k] = ex_i32(c, 1);
    zero[k] = ex_int(c, ir_type(c, extent[k]), 0);
  }
  b.rank = x.n, b.extent = extent, b.min = b.min ? zero : NULL;
  x.to = ir_buffer_new(c, b);
  vec_push(ir_arena(c), &j->buf, x);
  mapu_set(&j->at, (uint64_t)id, j->buf.len);
  return &j->buf.at[j->buf.len - 1];
}

static ExprId join_load(IrCtx *c, ExprId e, void *arg) {
  ExprNode n = *ir_node(c, e);
  if (n.kind != IR_LOAD) return e;
  ExprId *index = arena_array(ir_arena(c), ExprId, n.n + 1);
  for (int i = 0; i < n.n; i++) index[i] = ir_kid(c, e, i);
  const Joined x = *joined(arg, n.sym, 0, NULL);
  return ex_load(c, x.to, n.type, x.n, join(arg, n.sym, &x, n.n, index));
}

static Stmt *join_stmt(IrCtx *c, Stmt *s, void *arg) {
  if (s->kind != ST_STORE && s->kind != ST_ALLOC) return s;
  Stmt *r = st_own(c, s);
  BufferId id = s->kind == ST_STORE ? s->u.store.buf : s->u.alloc.buf;
  const Joined x = *joined(arg, id, 0, NULL);
  if (s->kind == ST_ALLOC) {
    r->u.alloc.buf = x.to;
    return r;
  }
  r->u.store.idx = join(arg, id, &x, s->u.store.n_idx, s->u.store.idx);
  r->u.store.buf = x.to;
  r->u.store.n_idx = x.n;
  return r;
}

static bool note_loop(IrCtx *c NS_UNUSED, const Stmt *s, void *arg) {
  Join *j = arg;
  if (s->kind == ST_FOR) ar_bind_range(j->ar, s->u.loop.var, s->u.loop.min, s->u.loop.extent);
  return true;
}

void low_join(Func *f, const int *n_begin, const int *const *begin) {
  Join j = {.c = f->ctx, .ar = ar_new(f->ctx)};
  mapu_init(&j.at, ir_arena(f->ctx));
  if (f->body) st_visit(f->ctx, f->body, note_loop, NULL, &j);
  BufferId *arg = arena_array(ir_arena(f->ctx), BufferId, f->n_args + 1);
  for (int i = 0; i < f->n_args; i++) arg[i] = joined(&j, f->arg[i], n_begin[i], begin[i])->to;
  f->arg = arg;
  f->body = st_map(f->ctx, f->body, join_stmt, join_load, &j);
}
