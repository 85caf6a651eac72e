/* Index arithmetic that is printed once instead of at every access: at kernel entry (GPU), and before a run of stores.
 *
 * Divisions of block and thread indices. Fused and split axes leave `threadIdx.x / 8`, `blockIdx.x % 14`
 * and the like in the index of every access. They are loop-invariant and pure, so those that occur inside a loop become
 * constants at kernel entry. Sums and products stay in place: the device compiler moves those well, and registers are
 * scarce.
 */
#include "codegen/gen.h"

enum { MAX_HOISTED = 48 };
typedef struct {
  Gen *g;
  VEC(ExprId) found;
  MapU64 seen, fixed;
  int32_t n_live;
  bool inside;
} Hoist;

static bool is_fixed(Hoist *h, ExprId e) {
  IrCtx *c = h->g->c;
  ExprNode n = *ir_node(c, e);
  if (n.type.lanes > 1 || n.type.code != DT_INT) return false;
  int32_t known = mapu_get(&h->fixed, (uint64_t)e, -1);
  if (known >= 0) return known;
  bool ok = n.kind == IR_INT;
  if (n.kind == IR_VAR)
    for (int i = 0; i < h->n_live && !ok; i++) ok = h->g->live_var.at[i] == n.sym;
  if (ir_is_arith(n.kind)) ok = is_fixed(h, ir_kid(c, e, 0)) && is_fixed(h, ir_kid(c, e, 1));
  mapu_set(&h->fixed, (uint64_t)e, ok);
  return ok;
}

static void visit(IrCtx *c, ExprId e, void *arg) {
  Hoist *h = arg;
  ExprKind k = ir_kind(c, e);
  int64_t d;
  if (!h->inside || !ir_is_division(k) || h->found.len >= MAX_HOISTED) return;
  if (!ex_const_int(c, ir_kid(c, e, 1), &d) || d == 0 || ir_kind(c, ir_kid(c, e, 0)) == IR_INT ||
      mapu_get(&h->seen, (uint64_t)e, 0))
    return;
  if (!is_fixed(h, e)) return;
  mapu_set(&h->seen, (uint64_t)e, 1);
  vec_push(h->g->a, &h->found, e); /* post-order: parts come before what uses them */
}

static void walk(Hoist *h, const Stmt *s) {
  Stmt **kid;
  bool was = h->inside;
  if (s->kind == ST_FOR)
    h->inside = was || !ex_is_int(h->g->c, s->u.loop.extent, 1);
  else if (s->kind != ST_EVAL)
    st_visit_exprs(h->g->c, s, visit, h);
  for (int i = 0; (kid = st_kid(s, i)); i++)
    if (*kid) walk(h, *kid);
  h->inside = was;
}

void gen_hoist(Gen *g, const Stmt *s) {
  Hoist h = {.g = g, .n_live = g->live_var.len};
  mapu_init(&h.seen, g->a);
  mapu_init(&h.fixed, g->a);
  walk(&h, s);
  for (int i = 0; i < h.found.len; i++) {
    ExprId e = h.found.at[i];
    VarId v = ir_var_new(g->c, "fixed", ir_type(g->c, e), false);
    gen_const_line(g, gen_type(g, ir_type(g->c, e)), gen_var(g, v), e);
    mapu_set(&g->hoisted, (uint64_t)e, v);
  }
}

/* ---- runs of stores ----
 * Replicated statements (the transforms of Winograd, tiles) differ in the constants of their indices alone. What is left
 * of an index without its constants becomes a variable in front of the run, if it occurs at least twice: the text of such
 * a program shrinks to a fifth, and with it the time that a C compiler spends on finding out the same. */
enum { MIN_SHARED = 2, MIN_NODES = 3, MAX_RUN_BASES = 64 };
typedef struct {
  Gen *g;
  MapU64 count, pure;
  VEC(ExprId) found;
  bool lets;
} Run;

static int pure_size(Run *r, ExprId e) { /* nodes; 0: not a sum of indices alone */
  IrCtx *c = r->g->c;
  ExprNode n = *ir_node(c, e);
  if (n.type.lanes > 1 || n.type.code != DT_INT || n.type.bits < 32) return 0;
  int32_t known = mapu_get(&r->pure, (uint64_t)e, -1);
  if (known >= 0) return known;
  int64_t d;
  int size = n.kind == IR_INT || n.kind == IR_VAR || ir_is_arith(n.kind);
  if (ir_is_division(n.kind) && (!ex_const_int(c, ir_kid(c, e, 1), &d) || d <= 0)) size = 0;
  for (int i = 0; size && i < n.n; i++) {
    int k = pure_size(r, ir_kid(c, e, i));
    size = k ? size + k : 0;
  }
  mapu_set(&r->pure, (uint64_t)e, size);
  return size;
}

static void run_index(Run *r, ExprId e) {
  IrCtx *c = r->g->c;
  int64_t k = 0;
  if (ir_kind(c, e) == IR_RAMP) e = ir_kid(c, e, 0);
  if (ir_type(c, e).lanes > 1) return;
  ExprId base = gen_strip_constants(r->g, e, &k);
  if (!base || mapu_get(&r->g->hoisted, (uint64_t)base, 0) || pure_size(r, base) < MIN_NODES) return;
  if (k < 0 && ar_bound(r->g->ar, base).hi >= INT32_MAX) return; /* without its constant it may not fit */
  int32_t n = mapu_get(&r->count, (uint64_t)base, 0);
  if (n == 0 && r->found.len == MAX_RUN_BASES) return;
  if (n == 0) vec_push(r->g->a, &r->found, base);
  mapu_set(&r->count, (uint64_t)base, n + 1);
}

static void run_visit(IrCtx *c, ExprId e, void *arg) {
  Run *r = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_LET) r->lets = true;
  if (n->kind == IR_LOAD && n->n == 1 && !ir_buffer(c, n->sym)->registers) run_index(r, ir_kid(c, e, 0));
}

int gen_share_indices(Gen *g, int n, Stmt *const *at) {
  Run r = {.g = g};
  mapu_init(&r.count, g->a);
  mapu_init(&r.pure, g->a);
  int len = 0;
  for (; len < n && at[len]->kind == ST_STORE && at[len]->u.store.n_idx == 1; len++) {
    const Stmt *s = at[len];
    ex_post_order(g->c, s->u.store.value, run_visit, &r);
    ex_post_order(g->c, s->u.store.idx[0], run_visit, &r);
    if (!ir_buffer(g->c, s->u.store.buf)->registers) run_index(&r, s->u.store.idx[0]);
  }
  int32_t kept = 0;
  for (int i = 0; i < r.found.len && !r.lets; i++) {
    ExprId e = r.found.at[i];
    if (mapu_get(&r.count, (uint64_t)e, 0) < MIN_SHARED) continue;
    VarId v = ir_var_new(g->c, "at", ir_type(g->c, e), false);
    gen_const_line(g, gen_type(g, ir_type(g->c, e)), gen_var(g, v), e);
    r.found.at[kept++] = e;
    mapu_set(&g->hoisted, (uint64_t)e, v);
  }
  gen_keeping(g, len, at);
  for (int i = 0; i < kept; i++) mapu_set(&g->hoisted, (uint64_t)r.found.at[i], 0);
  return len;
}
