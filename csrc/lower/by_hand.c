/* by hand: stages that are made of statements (te.extern, te.scan, te.hybrid).
 *
 * The statements were written for buffers of their own. Where the stage stands they are put in with the buffers of the tensors that
 * these stand for: the inputs of the operation, of which a cache may have taken the place, and its results. Variables that several loops
 * bind are made anew; others stay, for buffers may begin where they say. Results of several shapes are several operations: the first of
 * their stages has the statements, and the memory of all. A result that no stage reads gets a buffer that is
 * allocated here.
 */
#include "lower/util.h"

typedef struct {
  MapU64 to; /* buffer of the statements -> buffer of a tensor */
} Swapped;

static ExprId swap_load(IrCtx *c, ExprId e, void *arg) {
  const Swapped *x = arg;
  ExprNode n = *ir_node(c, e);
  BufferId to = n.kind == IR_LOAD ? mapu_get(&x->to, (uint64_t)n.sym, 0) : 0;
  if (!to) return e;
  ExprId *index = arena_array(ir_arena(c), ExprId, n.n + 1);
  for (int i = 0; i < n.n; i++) index[i] = ir_kid(c, e, i);
  return ex_load(c, to, n.type, n.n, index);
}

static Stmt *swap_store(IrCtx *c, Stmt *s, void *arg) {
  const Swapped *x = arg;
  BufferId to = s->kind == ST_STORE ? mapu_get(&x->to, (uint64_t)s->u.store.buf, 0) : 0;
  if (!to) return s;
  Stmt *r = st_own(c, s);
  r->u.store.buf = to;
  return r;
}

typedef struct {
  MapU64 bound;
  bool twice;
} Binders;
static bool note_binder(IrCtx *c NS_UNUSED, const Stmt *s, void *arg) {
  Binders *x = arg;
  const VarId *v = st_binder(s);
  if (v) x->twice |= mapu_get(&x->bound, (uint64_t)*v, 0) != 0, mapu_set(&x->bound, (uint64_t)*v, 1);
  return true;
}
static Stmt *unique(IrCtx *c, const Stmt *s) {
  Binders x = {.twice = false};
  mapu_init(&x.bound, ir_arena(c));
  st_visit(c, s, note_binder, NULL, &x);
  return x.twice ? low_copy(c, s, 0, 0) : st_own(c, s);
}

int low_hand_first(const State *s, int sid) {
  const TeByHand *b = s->stage.at[sid].op->by_hand;
  for (int q = 0; b && q < sid; q++)
    if (s->stage.at[q].op->by_hand == b) return q;
  return sid;
}

Stmt *low_by_hand(const State *s, int sid, const MapU64 *buf_of) {
  IrCtx *c = s->ctx;
  const TeOp *op = s->stage.at[sid].op;
  const TeByHand *b = op->by_hand;
  Swapped x;
  mapu_init(&x.to, ir_arena(c));
  for (int i = 0; i < b->n_in; i++)
    mapu_set(&x.to, (uint64_t)b->buf[i], mapu_get(buf_of, (uint64_t)op->in[b->from[i]], 0));
  for (int q = sid; q < s->stage.len; q++) {
    const TeOp *o = s->stage.at[q].op;
    for (int k = 0; o->by_hand == b && k < o->n_out; k++)
      mapu_set(&x.to, (uint64_t)b->buf[b->n_in + o->by_hand_first + k], mapu_get(buf_of, (uint64_t)o->out[k], 0));
  }
  Stmt *r = st_map(c, unique(c, b->body), swap_store, swap_load, &x);
  for (int i = b->n_in; i < b->n_in + b->n_out; i++)
    if (!mapu_get(&x.to, (uint64_t)b->buf[i], 0)) r = st_alloc(c, b->buf[i], r);
  return r;
}
