/* cleanup: what remains to be tidied before barriers are planned (spec 07 §7.2.14).
 *
 *  - Regions under `debug_skip_region` go; pragmas that nobody reads go.
 *  - A select whose branches read memory becomes a lazy if_then_else: padding must not read outside.
 *  - A condition moves out of the loops whose variable it does not use, as long as it is alone in their bodies. It
 * stays below thread loops; a condition on thread variables stays inside a loop that both writes and reads shared
 * memory, because the barrier this loop needs must not end up under the condition.
 *  - Everything is simplified once more, which removes what became empty or decided.
 */
#include "lower/util.h"

static ExprId lazy_select(IrCtx *c, ExprId e, void *arg NS_UNUSED) {
  if (ir_kind(c, e) != IR_SELECT) return e;
  ExprId k[3] = {ir_kid(c, e, 0), ir_kid(c, e, 1), ir_kid(c, e, 2)};
  if (ir_type(c, k[0]).lanes != 1 || !(low_expr_loads(c, k[1]) || low_expr_loads(c, k[2]))) return e;
  return ex_call(c, IN_IF_THEN_ELSE, ir_type(c, e), 3, k);
}

/* ---- moving conditions out ---- */
typedef struct {
  IrCtx *c;
  MapU64 thread;
  bool printing;
} Hoist;
typedef struct {
  bool reads, writes;
} Shared;
static void shared_read(IrCtx *c, ExprId e, void *arg) {
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_LOAD && ir_buffer(c, n->sym)->scope == SC_SHARED) ((Shared *)arg)->reads = true;
  if (n->kind == IR_CALL && n->sym == IN_ALLREDUCE) ((Shared *)arg)->reads = ((Shared *)arg)->writes = true;
}
static bool shared_use(IrCtx *c, const Stmt *s, void *arg) {
  if (s->kind == ST_STORE && ir_buffer(c, s->u.store.buf)->scope == SC_SHARED) ((Shared *)arg)->writes = true;
  st_visit_exprs(c, s, shared_read, arg);
  return true;
}
static bool may_leave(Hoist *h, ExprId cond, const Stmt *loop, const Stmt *inside) {
  IrCtx *c = h->c;
  if (ex_uses_var(c, cond, loop->u.loop.var) || low_expr_loads(c, cond)) return false;
  if (loop->u.loop.kind > FOR_VTHREAD) return false;
  if (!low_expr_uses_any(c, cond, &h->thread)) return true;
  if (h->printing) return false;
  Shared u = {false, false};
  st_visit(c, inside, shared_use, NULL, &u);
  return !(u.reads && u.writes);
}
static Stmt *hoist(IrCtx *c, Stmt *s, void *arg) {
  Hoist *h = arg;
  bool loop = s->kind == ST_FOR;
  if (loop && s->u.loop.kind > FOR_VTHREAD) mapu_set(&h->thread, (uint64_t)s->u.loop.var, 1);
  Stmt *r = st_rewrite(c, s, hoist, NULL, h);
  if (!loop) return r;
  Stmt *out[64], *keep[64], *in = r->u.loop.body; /* the chain of ifs that is the whole body */
  int n_out = 0, n_keep = 0;
  while (in->kind == ST_IF && !in->u.cond.other && n_out < 64 && n_keep < 64) {
    if (may_leave(h, in->u.cond.cond, s, in->u.cond.then))
      out[n_out++] = in;
    else
      keep[n_keep++] = in;
    in = in->u.cond.then;
  }
  if (!n_out) return r;
  for (int i = n_keep - 1; i >= 0; i--) in = st_if(c, keep[i]->u.cond.cond, keep[i]->u.cond.likely, in, NULL);
  r = st_own(c, r);
  r->u.loop.body = in;
  for (int i = n_out - 1; i >= 0; i--) r = st_if(c, out[i]->u.cond.cond, out[i]->u.cond.likely, r, NULL);
  return r;
}

static Stmt *drop_pragmas(IrCtx *c NS_UNUSED, Stmt *s, void *arg NS_UNUSED) {
  if (s->kind != ST_ATTR || s->u.attr.kind != AT_PRAGMA) return s;
  return s->u.attr.text && __builtin_strcmp(s->u.attr.text, "debug_skip_region") == 0 ? NULL : s->u.attr.body;
}

void pass_cleanup(Func *f) {
  IrCtx *c = f->ctx;
  Stmt *s = low_simplify(c, ar_new(c), f->body);
  s = st_map(c, s, drop_pragmas, lazy_select, NULL);
  Hoist h = {.c = c, .printing = f->use == LOW_TEXT};
  mapu_init(&h.thread, ir_arena(c));
  if (s) s = hoist(c, s, &h);
  f->body = low_simplify(c, ar_new(c), s);
}
