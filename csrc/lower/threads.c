/* unify threads: one variable per thread tag and kernel (spec 07 §7.1.6, §7.2.18).
 *
 * A kernel is an outermost thread (or virtual thread) loop. Inside, attached stages may bind `threadIdx.x` again; all
 * these loops mean the same hardware index. Afterwards a kernel reads block loops { thread loops { body without block
 * or thread loops } } in the order x, y, z of first appearance. An axis that only an attached stage binds is a launch
 * dimension of the whole kernel as well. Extents of one tag must agree. Virtual thread loops stay where they are.
 */
#include "lower/util.h"

enum { N_TAG = 6 };
typedef struct {
  VarId var[N_TAG];
  ExprId extent[N_TAG];
  ForKind order[N_TAG];
  int n;
} Tags;

static Stmt *strip(IrCtx *c, Stmt *s, void *arg) {
  Tags *t = arg;
  ForKind k = s->kind == ST_FOR ? s->u.loop.kind : FOR_SERIAL;
  if (!for_is_block(k) && !for_is_thread(k)) return st_rewrite(c, s, strip, NULL, t);
  int i = k - FOR_BLOCK_X;
  if (!t->extent[i]) {
    t->extent[i] = s->u.loop.extent;
    t->var[i] = s->u.loop.var;
    t->order[t->n++] = k;
    return strip(c, s->u.loop.body, t);
  }
  err_check(ir_err(c), t->extent[i] == s->u.loop.extent,
            "two loops bound to %s in one kernel have different extents, %s and %s", low_tag(k),
            ex_text(c, t->extent[i]), ex_text(c, s->u.loop.extent));
  return strip(c, low_subst(c, s->u.loop.body, s->u.loop.var, ex_var(c, t->var[i])), t);
}

static Stmt *kernel(IrCtx *c, Stmt *s) {
  Tags t = {.n = 0};
  Stmt *body = strip(c, s, &t);
  for (int block = 0; block < 2; block++) /* thread loops go inside block loops */
    for (int i = t.n - 1; i >= 0; i--) {
      if (for_is_block(t.order[i]) != (block == 1)) continue;
      int k = t.order[i] - FOR_BLOCK_X;
      body = st_for(c, t.var[k], ex_int(c, ir_var_info(c, t.var[k])->type, 0), t.extent[k], t.order[i], body);
    }
  return body;
}

static Stmt *outside(IrCtx *c, Stmt *s, void *arg) {
  if (s->kind == ST_FOR && s->u.loop.kind >= FOR_VTHREAD) return kernel(c, s);
  return st_rewrite(c, s, outside, NULL, arg);
}

void pass_unify_threads(Func *f) {
  if (f->body) f->body = outside(f->ctx, f->body, NULL);
}
