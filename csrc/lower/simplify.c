/* simplify: index algebra over a whole program (spec 07 §7.2.14, first item).
 *
 * Works on both forms. Loop variables are known to lie in their ranges, and inside a conditional its condition is known
 * (its negation in the else part). Expressions become canonical; decided conditions, loops without or with a single
 * iteration, pure integer lets and stores of an element to itself disappear. Thread loops of extent one stay: they are
 * visible to feature extraction and to the launch.
 */
#include "lower/util.h"

void low_bind_loop(IrCtx *c, Arith *a, const Stmt *loop) {
  (void)c;
  ar_bind_range(a, loop->u.loop.var, loop->u.loop.min, loop->u.loop.extent);
}

static bool negligible_extent(const Stmt *s) {
  ForKind k = s->u.loop.kind;
  return k == FOR_SERIAL || k == FOR_UNROLLED || k == FOR_VECTOR || k == FOR_PARALLEL;
}

static Stmt *simp_for(IrCtx *c, Arith *a, Stmt *s) {
  ExprId min = ar_simplify(a, s->u.loop.min), extent = ar_simplify(a, s->u.loop.extent);
  int64_t n;
  bool known = low_const(c, extent, &n);
  if (known && n <= 0) return NULL;
  if (known && n == 1 && negligible_extent(s))
    return low_simplify(c, a, low_subst(c, s->u.loop.body, s->u.loop.var, min));
  ar_bind_range(a, s->u.loop.var, min, extent);
  Stmt *body = low_simplify(c, a, s->u.loop.body);
  if (!body) return NULL;
  Stmt *r = low_new(c, s);
  r->u.loop.min = min;
  r->u.loop.extent = extent;
  r->u.loop.body = body;
  return r;
}

static Stmt *simp_if(IrCtx *c, Arith *a, Stmt *s) {
  ExprId cond = ar_simplify(a, s->u.cond.cond);
  if (low_is_true(c, cond)) return low_simplify(c, a, s->u.cond.then);
  if (low_is_false(c, cond)) return low_simplify(c, a, s->u.cond.other);
  ar_push(a, cond);
  Stmt *then = low_simplify(c, a, s->u.cond.then), *other = NULL;
  ar_pop(a);
  if (s->u.cond.other) {
    ar_push(a, ex_not(c, cond));
    other = low_simplify(c, a, s->u.cond.other);
    ar_pop(a);
  }
  if (!then && !other) return NULL;
  if (!then) {
    then = other;
    other = NULL;
    cond = ar_simplify(a, ex_not(c, cond));
  }
  return st_if(c, cond, s->u.cond.likely, then, other);
}

static Stmt *simp_store(IrCtx *c, Arith *a, Stmt *s) {
  ExprId idx[32];
  int n = s->u.store.n_idx;
  err_check(ir_err(c), n <= 32, "a tensor of rank %d is too deep; at most 32 dimensions are supported", n);
  bool same = true;
  for (int i = 0; i < n; i++) {
    idx[i] = ar_simplify(a, s->u.store.idx[i]);
    same = same && idx[i] == s->u.store.idx[i];
  }
  ExprId v = ar_simplify(a, s->u.store.value);
  const ExprNode *vn = ir_node(c, v);
  if (vn->kind == IR_LOAD && vn->sym == s->u.store.buf && vn->n == n) {
    const ExprId *k = ir_kids(c, v);
    int i = 0;
    while (i < n && k[i] == idx[i]) i++;
    if (i == n) return NULL; /* X[i] = X[i] */
  }
  return same && v == s->u.store.value ? s : st_store(c, s->u.store.buf, n, idx, v);
}

Stmt *low_simplify(IrCtx *c, Arith *a, Stmt *s) {
  if (!s) return NULL;
  switch (s->kind) {
  case ST_SEQ: {
    Stmt **at = arena_array(ir_arena(c), Stmt *, s->u.seq.n);
    for (int i = 0; i < s->u.seq.n; i++) at[i] = low_simplify(c, a, s->u.seq.at[i]);
    return st_seq(c, s->u.seq.n, at);
  }
  case ST_FOR: return simp_for(c, a, s);
  case ST_IF: return simp_if(c, a, s);
  case ST_LET: {
    ExprId v = ar_simplify(a, s->u.let.value);
    DType t = ir_type(c, v);
    if (t.code == DT_INT && t.lanes == 1 && !low_expr_loads(c, v))
      return low_simplify(c, a, low_subst(c, s->u.let.body, s->u.let.var, v));
    Stmt *body = low_simplify(c, a, s->u.let.body);
    return body ? st_let(c, s->u.let.var, v, body) : NULL;
  }
  case ST_ALLOC: {
    Stmt *body = low_simplify(c, a, s->u.alloc.body);
    return body ? st_alloc(c, s->u.alloc.buf, body) : NULL;
  }
  case ST_STORE: return simp_store(c, a, s);
  case ST_EVAL: {
    ExprId e = ar_simplify(a, s->u.eval.e);
    return ir_kind(c, e) == IR_CALL ? (e == s->u.eval.e ? s : st_eval(c, e)) : NULL;
  }
  case ST_ATTR: {
    Stmt *body = low_simplify(c, a, s->u.attr.body);
    if (!body) return NULL;
    Stmt *r = low_new(c, s);
    r->u.attr.body = body;
    return r;
  }
  }
  return s;
}

/* Feature extraction counts a division by a literal as the multiplication that the reference turns it into. Programs
 * that run keep the division: the product with the rounded reciprocal is another number. */
static ExprId reciprocal(IrCtx *c, ExprId e, void *arg) {
  (void)arg;
  if (ir_kind(c, e) != IR_DIV || ir_type(c, e).code != DT_FLOAT) return e;
  ExprId a = ir_kid(c, e, 0), b = ir_kid(c, e, 1);
  if (ir_kind(c, b) != IR_FLT || ir_node(c, b)->u.f == 0) return e;
  return ex_mul(c, a, ex_flt(c, ir_type(c, b), 1.0 / ir_node(c, b)->u.f));
}
static ExprId reciprocals(IrCtx *c, ExprId e, void *arg) { return ex_map(c, e, reciprocal, arg); }

void pass_simplify(Func *f) {
  Arith *a = ar_new(f->ctx);
  if (f->features) ar_reduce(a);
  f->body = low_simplify(f->ctx, a, f->body);
  StmtMap m = {NULL, reciprocals, NULL};
  if (f->features && f->body) f->body = st_map(f->ctx, f->body, &m);
  low_verify(f, "simplify");
}
