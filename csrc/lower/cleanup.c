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

static ExprId lazy_select(IrCtx *c, ExprId e, void *arg) {
  (void)arg;
  if (ir_kind(c, e) != IR_SELECT) return e;
  ExprId k[3] = {ir_kid(c, e, 0), ir_kid(c, e, 1), ir_kid(c, e, 2)};
  if (ir_type(c, k[0]).lanes != 1 || !(low_expr_loads(c, k[1]) || low_expr_loads(c, k[2]))) return e;
  return ex_call(c, IN_IF_THEN_ELSE, ir_type(c, e), 3, k);
}
static ExprId lazy_selects(IrCtx *c, ExprId e, void *arg) { return ex_map(c, e, lazy_select, arg); }

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
static void shared_use(IrCtx *c, const Stmt *s, Shared *u) {
  if (!s) return;
  switch (s->kind) {
  case ST_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) shared_use(c, s->u.seq.at[i], u);
    return;
  case ST_FOR:
    ex_post_order(c, s->u.loop.extent, shared_read, u);
    shared_use(c, s->u.loop.body, u);
    return;
  case ST_IF:
    ex_post_order(c, s->u.cond.cond, shared_read, u);
    shared_use(c, s->u.cond.then, u);
    shared_use(c, s->u.cond.other, u);
    return;
  case ST_LET:
    ex_post_order(c, s->u.let.value, shared_read, u);
    shared_use(c, s->u.let.body, u);
    return;
  case ST_ALLOC: shared_use(c, s->u.alloc.body, u); return;
  case ST_STORE:
    if (ir_buffer(c, s->u.store.buf)->scope == SC_SHARED) u->writes = true;
    ex_post_order(c, s->u.store.value, shared_read, u);
    for (int i = 0; i < s->u.store.n_idx; i++) ex_post_order(c, s->u.store.idx[i], shared_read, u);
    return;
  case ST_EVAL: ex_post_order(c, s->u.eval.e, shared_read, u); return;
  case ST_ATTR: shared_use(c, s->u.attr.body, u); return;
  }
}
static bool may_leave(Hoist *h, ExprId cond, const Stmt *loop, const Stmt *inside) {
  IrCtx *c = h->c;
  if (ex_uses_var(c, cond, loop->u.loop.var) || low_expr_loads(c, cond)) return false;
  if (loop->u.loop.kind > FOR_VTHREAD) return false;
  if (!low_expr_uses_any(c, cond, &h->thread)) return true;
  if (h->printing) return false;
  Shared u = {false, false};
  shared_use(c, inside, &u);
  return !(u.reads && u.writes);
}
static Stmt *hoist(Hoist *h, Stmt *s) {
  if (!s) return NULL;
  IrCtx *c = h->c;
  Stmt *r = low_new(c, s);
  switch (s->kind) {
  case ST_SEQ:
    r->u.seq.at = arena_array(ir_arena(c), Stmt *, s->u.seq.n);
    for (int i = 0; i < s->u.seq.n; i++) r->u.seq.at[i] = hoist(h, s->u.seq.at[i]);
    return st_seq(c, s->u.seq.n, r->u.seq.at);
  case ST_FOR: {
    if (s->u.loop.kind > FOR_VTHREAD) mapu_set(&h->thread, (uint64_t)s->u.loop.var, 1);
    r->u.loop.body = hoist(h, s->u.loop.body);
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
    r->u.loop.body = in;
    for (int i = n_out - 1; i >= 0; i--) r = st_if(c, out[i]->u.cond.cond, out[i]->u.cond.likely, r, NULL);
    return r;
  }
  case ST_IF:
    r->u.cond.then = hoist(h, s->u.cond.then);
    r->u.cond.other = hoist(h, s->u.cond.other);
    return r;
  case ST_LET: r->u.let.body = hoist(h, s->u.let.body); return r;
  case ST_ALLOC: r->u.alloc.body = hoist(h, s->u.alloc.body); return r;
  case ST_ATTR: r->u.attr.body = hoist(h, s->u.attr.body); return r;
  case ST_STORE:
  case ST_EVAL: return s;
  }
  return s;
}

static Stmt *drop_pragmas(IrCtx *c, Stmt *s, void *arg) {
  (void)c;
  (void)arg;
  if (s->kind != ST_ATTR || s->u.attr.kind != AT_PRAGMA) return s;
  return s->u.attr.text && __builtin_strcmp(s->u.attr.text, "debug_skip_region") == 0 ? NULL : s->u.attr.body;
}

void pass_cleanup(Func *f) {
  IrCtx *c = f->ctx;
  StmtMap m = {drop_pragmas, lazy_selects, NULL};
  Stmt *s = low_simplify(c, ar_new(c), f->body);
  s = s ? st_map(c, s, &m) : NULL;
  Hoist h = {.c = c, .printing = f->printing};
  mapu_init(&h.thread, ir_arena(c));
  s = hoist(&h, s);
  f->body = low_simplify(c, ar_new(c), s);
  low_verify(f, "cleanup");
}
