/* vthread: one hardware thread runs all iterations of a virtual thread loop, statement by statement (spec 07 §7.2.10).
 *
 * First the touched set: what may depend on the virtual thread variable t - t itself, lets and loops with touched
 * values, buffers into which something touched is stored (closed over reads). Every allocation inside the region whose
 * buffer is touched gets N copies, addressed by t on the slowest dimension; untouched buffers (a shared tile that is
 * the same for all t) are filled once. Then an unrolled loop over t is put around the smallest statement that mentions
 * something touched. So the virtual threads run in lock-step and their accumulators are independent.
 */
#include "lower/util.h"
#include "base/limits.h"

/* ---- the touched set, also asked by the check of GPU programs ---- */
static bool is_touched(IrCtx *c, ExprId e, void *arg) {
  LowTouched *k = arg;
  const ExprNode *n = ir_node(c, e);
  return (n->kind == IR_VAR && mapu_get(&k->var, (uint64_t)n->sym, -1) >= 0) ||
         (n->kind == IR_LOAD && low_is_touched(k, n->sym));
}
static bool touched(LowTouched *k, ExprId e) { return ex_any(k->c, e, is_touched, k); }
bool low_is_touched(LowTouched *k, BufferId b) { return mapu_get(&k->buf, (uint64_t)b, -1) >= 0; }

static void add(LowTouched *k, MapU64 *m, int32_t id) {
  if (mapu_get(m, (uint64_t)id, -1) >= 0) return;
  mapu_set(m, (uint64_t)id, 1);
  k->grew = true;
}
/* The place inside the buffer: before flattening, indices of a temporary are relative to its region. */
static bool place_touched(LowTouched *k, const Stmt *s) {
  const IrBuffer *b = ir_buffer(k->c, s->u.store.buf);
  for (int i = 0; i < s->u.store.n_idx; i++) {
    ExprId x = s->u.store.idx[i];
    if (!touched(k, x)) continue;
    if (k->flat || !b->min || touched(k, ar_simplify(k->ar, ex_sub(k->c, x, b->min[i])))) return true;
  }
  return false;
}
/* One round of the closure; `under`: a condition or loop around is touched. */
static void collect(LowTouched *k, const Stmt *s, bool under) {
  ExprId *e;
  Stmt **kid;
  bool hit = false;
  if (s->kind == ST_STORE) {
    if (under || touched(k, s->u.store.value) || place_touched(k, s)) add(k, &k->buf, s->u.store.buf);
    return;
  }
  for (int i = 0; (e = st_expr(s, i)); i++) hit |= touched(k, *e);
  if (hit && st_binder(s)) add(k, &k->var, *st_binder(s));
  if (s->kind == ST_ALLOC) mapu_set(&k->alloc, (uint64_t)s->u.alloc.buf, 1);
  if (s->kind == ST_FOR || s->kind == ST_IF) under |= hit;
  for (int i = 0; hit && s->kind == ST_EVAL && i < ir_node(k->c, s->u.eval.e)->n; i++) {
    ExprId a = ir_kid(k->c, s->u.eval.e, i); /* the results of a reduction across threads */
    if (ir_kind(k->c, a) == IR_LOAD) add(k, &k->buf, ir_node(k->c, a)->sym);
  }
  for (int i = 0; (kid = st_kid(s, i)); i++)
    if (*kid) collect(k, *kid, under);
}
LowTouched low_touched(IrCtx *c, const Stmt *s, VarId t, bool flat) {
  LowTouched k = {.c = c, .flat = flat, .ar = ar_new(c)};
  mapu_init(&k.var, ir_arena(c));
  mapu_init(&k.buf, ir_arena(c));
  mapu_init(&k.alloc, ir_arena(c));
  add(&k, &k.var, t);
  do {
    k.grew = false;
    collect(&k, s, false);
  } while (k.grew);
  return k;
}

/* ---- injection ---- */
typedef struct {
  IrCtx *c;
  VarId t;
  int64_t n;
  LowTouched set;
} VThread;

/* An expanded buffer at the index of this virtual thread's copy. */
static bool own_copy(IrCtx *c, BufferId *b, ExprId *index, void *arg) {
  VThread *k = arg;
  bool expanded = low_is_touched(&k->set, *b) && mapu_get(&k->set.alloc, (uint64_t)*b, -1) >= 0;
  if (expanded) *index = low_shift(c, ex_mul(c, ex_var(c, k->t), ir_buffer(c, *b)->size), *index);
  return expanded;
}

/* A loop over t around the smallest touched statements. */
static Stmt *inject(IrCtx *c, Stmt *s, void *arg) {
  VThread *k = arg;
  ExprId *e;
  bool hit = false;
  for (int i = 0; (e = st_expr(s, i)); i++) hit |= touched(&k->set, *e);
  if (!hit) return st_rewrite(c, s, inject, NULL, k);
  const IrVar info = *ir_var_info(c, k->t);
  VarId v = ir_var_new(c, arena_printf(ir_arena(c), "%s.s", info.name), info.type, false);
  return st_for(c, v, ex_int(c, info.type, 0), ex_int(c, info.type, k->n), FOR_UNROLLED,
                low_subst(c, s, k->t, ex_var(c, v)));
}

static Stmt *expand(IrCtx *c, Stmt *s, void *arg NS_UNUSED) { /* post-order: inner virtual threads first */
  if (s->kind != ST_FOR || s->u.loop.kind != FOR_VTHREAD) return s;
  VThread k = {.c = c, .t = s->u.loop.var};
  err_check(ir_err(c), ex_const_int(c, s->u.loop.extent, &k.n) && k.n > 0,
            "the virtual thread loop %s has no constant extent", ir_var_info(c, k.t)->name);
  if (k.n == 1) return low_subst(c, s->u.loop.body, k.t, s->u.loop.min);
  k.set = low_touched(c, s->u.loop.body, k.t, true);
  Stmt *r = inject(c, low_move(c, s->u.loop.body, own_copy, &k), &k);
  for (BufferId b = 1; k.set.alloc.len > 0; b++) { /* sizes grow after the accesses were moved */
    if (mapu_get(&k.set.alloc, (uint64_t)b, -1) < 0) continue;
    k.set.alloc.len--;
    if (!low_is_touched(&k.set, b)) continue;
    IrBuffer *x = ir_buffer(c, b);
    ExprId size = ex_mul(c, x->size, ex_i32(c, k.n));
    ir_buffer(c, b)->size = size;
  }
  return r;
}

/* Virtual threads around one another: raises if they are more than allowed. */
static int64_t threads_of(const IrCtx *c, const Stmt *s) {
  int64_t n;
  return s->kind == ST_FOR && s->u.loop.kind == FOR_VTHREAD && ex_const_int(c, s->u.loop.extent, &n) && n > 1 ? n : 1;
}
static bool enter(IrCtx *c, const Stmt *s, void *arg) {
  int64_t *around = arg, n = threads_of(c, s);
  limit_check(ir_err(c), LIMIT_VTHREADS, n);
  limit_check(ir_err(c), LIMIT_VTHREADS, *around *= n);
  return true;
}
static bool leave(IrCtx *c, const Stmt *s, void *arg) {
  *(int64_t *)arg /= threads_of(c, s);
  return true;
}

void pass_vthread(Func *f) {
  int64_t around = 1;
  if (f->body) st_visit(f->ctx, f->body, enter, leave, &around);
  f->body = st_map(f->ctx, f->body, expand, NULL, NULL);
}
