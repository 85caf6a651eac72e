/* scalars: private arrays of a GPU kernel that are only ever used at constant positions become variables.
 *
 *   float sums[64];  sums[0] = sums[0] + a[0] * b[0]; ...   =>   float sums_0, ...;  sums_0 = sums_0 + a_0 * b_0; ...
 *
 * The device compiler finds out by itself that such an array needs no memory, but it takes time that grows with the square of the
 * statements (an inner product of 64 sums and 32 steps: 5.1 s as an array, 1.0 as variables). An array whose address an
 * instruction takes stays one. Last of the passes: positions are final.
 */
#include "lower/util.h"

typedef struct {
  IrCtx *c;
  MapU64 no; /* buffers that stay arrays */
} Scalars;

static bool constant_place(IrCtx *c, ExprId at) {
  int64_t v;
  if (ir_kind(c, at) != IR_RAMP) return ex_const_int(c, at, &v);
  return ex_const_int(c, ir_kid(c, at, 0), &v) && ex_const_int(c, ir_kid(c, at, 1), &v);
}
static void keep_array(Scalars *x, BufferId b) { mapu_set(&x->no, (uint64_t)b, 1); }
static void look(IrCtx *c, ExprId e, void *arg) {
  Scalars *x = arg;
  const ExprNode n = *ir_node(c, e);
  if (n.kind == IR_LOAD && !(n.n == 1 && constant_place(c, ir_kid(c, e, 0)))) keep_array(x, n.sym);
  if (n.kind != IR_CALL || n.sym < IN_COPY_ASYNC) return;    /* instructions that take addresses */
  int places = n.sym == IN_CLUSTER_SEND ? SEND_VALUES : n.n; /* behind them are values */
  for (int i = 0; i < places; i++)
    if (ir_kind(c, ir_kid(c, e, i)) == IR_LOAD) keep_array(x, ir_node(c, ir_kid(c, e, i))->sym);
}
static bool look_in(IrCtx *c, const Stmt *s, void *arg) {
  st_visit_exprs(c, s, look, arg);
  if (s->kind == ST_STORE && !(s->u.store.n_idx == 1 && constant_place(c, s->u.store.idx[0])))
    keep_array(arg, s->u.store.buf);
  return true;
}
static bool mark(IrCtx *c, const Stmt *s, void *arg) {
  int64_t n;
  if (s->kind != ST_ALLOC) return true;
  IrBuffer *b = ir_buffer(c, s->u.alloc.buf);
  bool many = b->size && ex_const_int(c, b->size, &n) && n > 1;
  if (many && b->scope == SC_LOCAL && !mapu_get(&((Scalars *)arg)->no, (uint64_t)s->u.alloc.buf, 0))
    b->registers = true;
  return true;
}

void pass_scalars(Func *f) {
  if (!low_is_gpu(f) || f->use != LOW_CODE || !f->body) return;
  Scalars x = {.c = f->ctx};
  mapu_init(&x.no, ir_arena(f->ctx));
  st_visit(f->ctx, f->body, look_in, NULL, &x);
  st_visit(f->ctx, f->body, mark, NULL, &x);
}
