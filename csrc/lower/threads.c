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
  IrCtx *c;
  VarId var[N_TAG];
  ExprId extent[N_TAG];
  ForKind order[N_TAG];
  int n;
} Tags;

static Stmt *strip(Tags *t, Stmt *s) {
  if (!s) return NULL;
  IrCtx *c = t->c;
  Stmt *r = low_new(c, s);
  switch (s->kind) {
  case ST_SEQ:
    r->u.seq.at = arena_array(ir_arena(c), Stmt *, s->u.seq.n);
    for (int i = 0; i < s->u.seq.n; i++) r->u.seq.at[i] = strip(t, s->u.seq.at[i]);
    return st_seq(c, s->u.seq.n, r->u.seq.at);
  case ST_FOR: {
    ForKind k = s->u.loop.kind;
    if (!for_is_block(k) && !for_is_thread(k)) {
      r->u.loop.body = strip(t, s->u.loop.body);
      return r;
    }
    int i = k - FOR_BLOCK_X;
    if (!t->extent[i]) {
      t->extent[i] = s->u.loop.extent;
      t->var[i] = s->u.loop.var;
      t->order[t->n++] = k;
      return strip(t, s->u.loop.body);
    }
    err_check(ir_err(c), t->extent[i] == s->u.loop.extent,
              "two loops bound to %s in one kernel have different extents, %s and %s", low_tag(k),
              ex_text(c, t->extent[i]), ex_text(c, s->u.loop.extent));
    return strip(t, low_subst(c, s->u.loop.body, s->u.loop.var, ex_var(c, t->var[i])));
  }
  case ST_IF:
    r->u.cond.then = strip(t, s->u.cond.then);
    r->u.cond.other = strip(t, s->u.cond.other);
    return r;
  case ST_LET: r->u.let.body = strip(t, s->u.let.body); return r;
  case ST_ALLOC: r->u.alloc.body = strip(t, s->u.alloc.body); return r;
  case ST_ATTR: r->u.attr.body = strip(t, s->u.attr.body); return r;
  case ST_STORE:
  case ST_EVAL: return s;
  }
  return s;
}

static Stmt *kernel(IrCtx *c, Stmt *s) {
  Tags t = {.c = c};
  Stmt *body = strip(&t, s);
  for (int block = 0; block < 2; block++) /* thread loops go inside block loops */
    for (int i = t.n - 1; i >= 0; i--) {
      if (for_is_block(t.order[i]) != (block == 1)) continue;
      int k = t.order[i] - FOR_BLOCK_X;
      body = st_for(c, t.var[k], ex_int(c, ir_var_info(c, t.var[k])->type, 0), t.extent[k], t.order[i], body);
    }
  return body;
}

static Stmt *outside(IrCtx *c, Stmt *s) {
  if (!s) return NULL;
  Stmt *r = low_new(c, s);
  switch (s->kind) {
  case ST_SEQ:
    r->u.seq.at = arena_array(ir_arena(c), Stmt *, s->u.seq.n);
    for (int i = 0; i < s->u.seq.n; i++) r->u.seq.at[i] = outside(c, s->u.seq.at[i]);
    return st_seq(c, s->u.seq.n, r->u.seq.at);
  case ST_FOR:
    if (s->u.loop.kind >= FOR_VTHREAD) return kernel(c, s);
    r->u.loop.body = outside(c, s->u.loop.body);
    return r;
  case ST_IF:
    r->u.cond.then = outside(c, s->u.cond.then);
    r->u.cond.other = outside(c, s->u.cond.other);
    return r;
  case ST_LET: r->u.let.body = outside(c, s->u.let.body); return r;
  case ST_ALLOC: r->u.alloc.body = outside(c, s->u.alloc.body); return r;
  case ST_ATTR: r->u.attr.body = outside(c, s->u.attr.body); return r;
  case ST_STORE:
  case ST_EVAL: return s;
  }
  return s;
}

void pass_unify_threads(Func *f) {
  f->body = outside(f->ctx, f->body);
  low_verify(f, "unify threads");
}
