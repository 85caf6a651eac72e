/* Divisions of block and thread indices, computed once. Fused and split axes leave `threadIdx.x / 8`, `blockIdx.x % 14`
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
  bool ok = false;
  switch ((ExprKind)n.kind) {
  case IR_INT: ok = true; break;
  case IR_VAR:
    for (int i = 0; i < h->n_live && !ok; i++) ok = h->g->live_var.at[i] == n.sym;
    break;
  case IR_ADD:
  case IR_SUB:
  case IR_MUL:
  case IR_DIV:
  case IR_MOD:
  case IR_FDIV:
  case IR_FMOD:
  case IR_MIN:
  case IR_MAX: ok = is_fixed(h, ir_kid(c, e, 0)) && is_fixed(h, ir_kid(c, e, 1)); break;
  default: break;
  }
  mapu_set(&h->fixed, (uint64_t)e, ok);
  return ok;
}

static void visit(IrCtx *c, ExprId e, void *arg) {
  Hoist *h = arg;
  ExprKind k = ir_kind(c, e);
  int64_t d;
  if (!h->inside || (k != IR_DIV && k != IR_MOD && k != IR_FDIV && k != IR_FMOD) || h->found.len >= MAX_HOISTED) return;
  if (!ex_const_int(c, ir_kid(c, e, 1), &d) || d == 0 || ir_kind(c, ir_kid(c, e, 0)) == IR_INT ||
      mapu_get(&h->seen, (uint64_t)e, 0))
    return;
  if (!is_fixed(h, e)) return;
  mapu_set(&h->seen, (uint64_t)e, 1);
  vec_push(h->g->a, &h->found, e); /* post-order: parts come before what uses them */
}

static void walk(Hoist *h, const Stmt *s) {
  if (!s) return;
  bool was = h->inside;
  switch (s->kind) {
  case ST_FOR:
    h->inside = was || !ex_is_int(h->g->c, s->u.loop.extent, 1);
    walk(h, s->u.loop.body);
    break;
  case ST_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) walk(h, s->u.seq.at[i]);
    break;
  case ST_IF:
    ex_post_order(h->g->c, s->u.cond.cond, visit, h);
    walk(h, s->u.cond.then);
    walk(h, s->u.cond.other);
    break;
  case ST_LET:
    ex_post_order(h->g->c, s->u.let.value, visit, h);
    walk(h, s->u.let.body);
    break;
  case ST_ALLOC: walk(h, s->u.alloc.body); break;
  case ST_ATTR: walk(h, s->u.attr.body); break;
  case ST_STORE:
    for (int i = 0; i < s->u.store.n_idx; i++) ex_post_order(h->g->c, s->u.store.idx[i], visit, h);
    ex_post_order(h->g->c, s->u.store.value, visit, h);
    break;
  case ST_EVAL: break;
  }
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
    gen_line(g);
    sb_printf(g->o, "const %s %s = ", gen_type(g, ir_type(g->c, e)), gen_var(g, v));
    gx_top(g, e);
    sb_puts(g->o, ";\n");
    mapu_set(&g->hoisted, (uint64_t)e, v);
  }
}
