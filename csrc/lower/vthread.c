/* vthread: one hardware thread runs all iterations of a virtual thread loop, statement by statement (spec 07 §7.2.10).
 *
 * First the touched set: what may depend on the virtual thread variable t - t itself, lets and loops with touched
 * values, buffers into which something touched is stored (closed over reads). Every allocation inside the region whose
 * buffer is touched gets N copies, addressed by t on the slowest dimension; untouched buffers (a shared tile that is
 * the same for all t) are filled once. Then an unrolled loop over t is put around the smallest statement that mentions
 * something touched. So the virtual threads run in lock-step and their accumulators are independent.
 */
#include "lower/util.h"

typedef struct {
  IrCtx *c;
  VarId t;
  int64_t n;
  MapU64 var, buf; /* touched */
  MapU64 alloc;    /* buffers allocated in the region */
  bool grew;
} VThread;

typedef struct {
  VThread *k;
  bool hit;
} Touch;
static void touch_node(IrCtx *c, ExprId e, void *arg) {
  Touch *t = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_VAR && mapu_get(&t->k->var, (uint64_t)n->sym, -1) >= 0) t->hit = true;
  if (n->kind == IR_LOAD && mapu_get(&t->k->buf, (uint64_t)n->sym, -1) >= 0) t->hit = true;
}
static bool touched(VThread *k, ExprId e) {
  Touch t = {k, false};
  ex_post_order(k->c, e, touch_node, &t);
  return t.hit;
}
static void add(VThread *k, MapU64 *m, int32_t id) {
  if (mapu_get(m, (uint64_t)id, -1) >= 0) return;
  mapu_set(m, (uint64_t)id, 1);
  k->grew = true;
}
/* One round of the closure; `under`: a condition or loop around is touched. */
static void collect(VThread *k, const Stmt *s, bool under) {
  if (!s) return;
  IrCtx *c = k->c;
  switch (s->kind) {
  case ST_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) collect(k, s->u.seq.at[i], under);
    return;
  case ST_FOR: {
    bool t = touched(k, s->u.loop.extent) || touched(k, s->u.loop.min);
    if (t) add(k, &k->var, s->u.loop.var);
    collect(k, s->u.loop.body, under || t);
    return;
  }
  case ST_IF: {
    bool t = under || touched(k, s->u.cond.cond);
    collect(k, s->u.cond.then, t);
    collect(k, s->u.cond.other, t);
    return;
  }
  case ST_LET:
    if (touched(k, s->u.let.value)) add(k, &k->var, s->u.let.var);
    collect(k, s->u.let.body, under);
    return;
  case ST_ALLOC:
    mapu_set(&k->alloc, (uint64_t)s->u.alloc.buf, 1);
    collect(k, s->u.alloc.body, under);
    return;
  case ST_STORE:
    if (under || touched(k, s->u.store.value) || touched(k, s->u.store.idx[0])) add(k, &k->buf, s->u.store.buf);
    return;
  case ST_EVAL:
    if (ir_kind(c, s->u.eval.e) == IR_CALL && ir_node(c, s->u.eval.e)->sym == IN_ALLREDUCE && touched(k, s->u.eval.e)) {
      int n = ir_node(c, s->u.eval.e)->n;
      for (int i = 0; i < n; i++) {
        ExprId a = ir_kid(c, s->u.eval.e, i);
        if (ir_kind(c, a) == IR_LOAD) add(k, &k->buf, ir_node(c, a)->sym);
      }
    }
    return;
  case ST_ATTR: collect(k, s->u.attr.body, under); return;
  }
}

static bool expanded(VThread *k, BufferId b) {
  return mapu_get(&k->buf, (uint64_t)b, -1) >= 0 && mapu_get(&k->alloc, (uint64_t)b, -1) >= 0;
}
/* old index of an expanded buffer -> index of this virtual thread's copy; vectors shift as a whole */
static ExprId shifted(VThread *k, BufferId b, ExprId idx) {
  IrCtx *c = k->c;
  ExprId off = ex_mul(c, ex_var(c, k->t), ir_buffer(c, b)->size);
  ExprNode n = *ir_node(c, idx);
  if (n.kind == IR_RAMP) return ex_ramp(c, ex_add(c, off, ir_kid(c, idx, 0)), ir_kid(c, idx, 1), n.type.lanes);
  return ex_add(c, off, idx);
}
static ExprId move_load(IrCtx *c, ExprId e, void *arg) {
  VThread *k = arg;
  ExprNode n = *ir_node(c, e);
  if (n.kind != IR_LOAD || !expanded(k, n.sym)) return e;
  ExprId i = shifted(k, n.sym, ir_kid(c, e, 0));
  return ex_load(c, n.sym, n.type, 1, &i);
}
static ExprId move_expr(VThread *k, ExprId e) { return ex_map(k->c, e, move_load, k); }

/* Rewrites accesses everywhere; puts a loop over t around the smallest touched statements unless already inside one. */
static Stmt *inject(VThread *k, Stmt *s, bool inside);
static Stmt *around(VThread *k, Stmt *s) {
  IrCtx *c = k->c;
  const IrVar info = *ir_var_info(c, k->t);
  VarId v = ir_var_new(c, arena_printf(ir_arena(c), "%s.s", info.name), info.type, false);
  Stmt *body = low_subst(c, inject(k, s, true), k->t, ex_var(c, v));
  return st_for(c, v, ex_int(c, info.type, 0), ex_int(c, info.type, k->n), FOR_UNROLLED, body);
}
static Stmt *inject(VThread *k, Stmt *s, bool inside) {
  if (!s) return NULL;
  IrCtx *c = k->c;
  Stmt *r = low_new(c, s);
  switch (s->kind) {
  case ST_SEQ:
    r->u.seq.at = arena_array(ir_arena(c), Stmt *, s->u.seq.n);
    for (int i = 0; i < s->u.seq.n; i++) r->u.seq.at[i] = inject(k, s->u.seq.at[i], inside);
    return st_seq(c, s->u.seq.n, r->u.seq.at);
  case ST_FOR:
    if (!inside && (touched(k, s->u.loop.extent) || touched(k, s->u.loop.min))) return around(k, s);
    r->u.loop.min = move_expr(k, s->u.loop.min);
    r->u.loop.extent = move_expr(k, s->u.loop.extent);
    r->u.loop.body = inject(k, s->u.loop.body, inside);
    return r;
  case ST_IF:
    if (!inside && touched(k, s->u.cond.cond)) return around(k, s);
    r->u.cond.cond = move_expr(k, s->u.cond.cond);
    r->u.cond.then = inject(k, s->u.cond.then, inside);
    r->u.cond.other = inject(k, s->u.cond.other, inside);
    return r;
  case ST_LET:
    if (!inside && touched(k, s->u.let.value)) return around(k, s);
    r->u.let.value = move_expr(k, s->u.let.value);
    r->u.let.body = inject(k, s->u.let.body, inside);
    return r;
  case ST_ALLOC: r->u.alloc.body = inject(k, s->u.alloc.body, inside); return r;
  case ST_STORE: {
    if (!inside && (touched(k, s->u.store.value) || touched(k, s->u.store.idx[0]) || expanded(k, s->u.store.buf)))
      return around(k, s);
    ExprId i = move_expr(k, s->u.store.idx[0]);
    if (expanded(k, s->u.store.buf)) i = shifted(k, s->u.store.buf, i);
    return st_store(c, s->u.store.buf, 1, &i, move_expr(k, s->u.store.value));
  }
  case ST_EVAL:
    if (!inside && touched(k, s->u.eval.e)) return around(k, s);
    r->u.eval.e = move_expr(k, s->u.eval.e);
    return r;
  case ST_ATTR: r->u.attr.body = inject(k, s->u.attr.body, inside); return r;
  }
  return r;
}

static Stmt *expand(IrCtx *c, Stmt *s, void *arg) { /* post-order: inner virtual threads first */
  (void)arg;
  if (s->kind != ST_FOR || s->u.loop.kind != FOR_VTHREAD) return s;
  VThread k = {.c = c, .t = s->u.loop.var};
  err_check(ir_err(c), low_const(c, s->u.loop.extent, &k.n) && k.n > 0,
            "the virtual thread loop %s has no constant extent", ir_var_info(c, k.t)->name);
  if (k.n == 1) return low_subst(c, s->u.loop.body, k.t, s->u.loop.min);
  mapu_init(&k.var, ir_arena(c));
  mapu_init(&k.buf, ir_arena(c));
  mapu_init(&k.alloc, ir_arena(c));
  add(&k, &k.var, k.t);
  do {
    k.grew = false;
    collect(&k, s->u.loop.body, false);
  } while (k.grew);
  Stmt *r = inject(&k, s->u.loop.body, false);
  for (BufferId b = 1; k.alloc.len > 0; b++) { /* sizes grow after the accesses were moved */
    if (mapu_get(&k.alloc, (uint64_t)b, -1) < 0) continue;
    k.alloc.len--;
    if (mapu_get(&k.buf, (uint64_t)b, -1) < 0) continue;
    IrBuffer *x = ir_buffer(c, b);
    ExprId size = ex_mul(c, x->size, ex_i32(c, k.n));
    ir_buffer(c, b)->size = size;
  }
  return r;
}
void pass_vthread(Func *f) {
  StmtMap m = {expand, NULL, NULL};
  f->body = st_map(f->ctx, f->body, &m);
  low_verify(f, "vthread");
}
