/* partition: after this pass nothing is marked `likely` any more (spec 07 §7.2.9).
 *
 * With static shapes there is nothing to cut: loops have constant extents and the guards that could not be proven
 * depend on thread variables. The guards themselves stay; `cleanup` moves them outwards.
 */
#include "lower/util.h"

static ExprId unwrap(IrCtx *c, ExprId e, void *arg NS_UNUSED) {
  const ExprNode *n = ir_node(c, e);
  return n->kind == IR_CALL && n->sym == IN_LIKELY ? ir_kid(c, e, 0) : e;
}
static Stmt *unlikely(IrCtx *c, Stmt *s, void *arg NS_UNUSED) {
  if (s->kind != ST_IF || !s->u.cond.likely) return s;
  Stmt *r = st_own(c, s);
  r->u.cond.likely = false;
  return r;
}
void pass_partition(Func *f) { f->body = st_map(f->ctx, f->body, unlikely, unwrap, NULL); }
