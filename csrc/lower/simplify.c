/* simplify: index algebra over a whole program (spec 07 §7.2.14, first item).
 *
 * Works on both forms. Loop variables are known to lie in their ranges, and inside a conditional its condition is known
 * (its negation in the else part). Expressions become canonical; decided conditions, loops without or with a single
 * iteration, pure integer lets and stores of an element to itself disappear. Thread loops of extent one stay: they are
 * visible to feature extraction and to the launch.
 */
#include <string.h>
#include "lower/util.h"

void low_bind_loop(IrCtx *c NS_UNUSED, Arith *a, const Stmt *loop) {
  ar_bind_range(a, loop->u.loop.var, loop->u.loop.min, loop->u.loop.extent);
}

static bool negligible_extent(const Stmt *s) {
  ForKind k = s->u.loop.kind;
  return k == FOR_SERIAL || k == FOR_UNROLLED || k == FOR_VECTOR || k == FOR_PARALLEL;
}

static Stmt *simp_for(IrCtx *c, Arith *a, Stmt *s) {
  ExprId min = ar_simplify(a, s->u.loop.min), extent = ar_simplify(a, s->u.loop.extent);
  int64_t n;
  bool known = ex_const_int(c, extent, &n);
  if (known && n <= 0) return NULL;
  if (known && n == 1 && negligible_extent(s))
    return low_simplify(c, a, low_subst(c, s->u.loop.body, s->u.loop.var, min));
  ar_bind_range(a, s->u.loop.var, min, extent);
  Stmt *body = low_simplify(c, a, s->u.loop.body);
  if (!body) return NULL;
  Stmt *r = st_own(c, s);
  r->u.loop.min = min;
  r->u.loop.extent = extent;
  r->u.loop.body = body;
  return r;
}

static Stmt *simp_if(IrCtx *c, Arith *a, Stmt *s) {
  ExprId cond = ar_simplify(a, s->u.cond.cond);
  if (ex_is_int(c, cond, 1)) return low_simplify(c, a, s->u.cond.then);
  if (ex_is_int(c, cond, 0)) return low_simplify(c, a, s->u.cond.other);
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

bool low_stores_itself(IrCtx *c, const Stmt *s) {
  if (s->kind != ST_STORE) return false;
  const ExprNode *v = ir_node(c, s->u.store.value);
  return v->kind == IR_LOAD && v->sym == s->u.store.buf && v->n == s->u.store.n_idx &&
         memcmp(ir_kids(c, s->u.store.value), s->u.store.idx, sizeof(ExprId) * v->n) == 0;
}

static Stmt *simp(IrCtx *c, Stmt *s, void *arg) { return low_simplify(c, arg, s); }
static ExprId simp_expr(IrCtx *c NS_UNUSED, ExprId e, void *arg) { return ar_simplify(arg, e); }
Stmt *low_simplify(IrCtx *c, Arith *a, Stmt *s) {
  if (!s) return NULL;
  if (s->kind == ST_FOR) return simp_for(c, a, s);
  if (s->kind == ST_IF) return simp_if(c, a, s);
  if (s->kind == ST_LET) {
    ExprId v = ar_simplify(a, s->u.let.value);
    DType t = ir_type(c, v);
    if (t.code == DT_INT && t.lanes == 1 && !low_expr_loads(c, v))
      return low_simplify(c, a, low_subst(c, s->u.let.body, s->u.let.var, v));
  }
  Stmt *r = st_rewrite(c, s, simp, simp_expr, a);
  bool unused = r && r->kind == ST_EVAL && ir_kind(c, r->u.eval.e) != IR_CALL; /* a value that nobody takes */
  return unused || (r && low_stores_itself(c, r)) ? NULL : r;
}

/* Feature extraction counts a division by a literal as the multiplication that the reference turns it into. Programs
 * that run keep the division: the product with the rounded reciprocal is another number. */
static ExprId reciprocal(IrCtx *c, ExprId e, void *arg NS_UNUSED) {
  if (ir_kind(c, e) != IR_DIV || ir_type(c, e).code != DT_FLOAT) return e;
  ExprId a = ir_kid(c, e, 0), b = ir_kid(c, e, 1);
  if (ir_kind(c, b) != IR_FLT || ir_node(c, b)->u.f == 0) return e;
  return ex_mul(c, a, ex_flt(c, ir_type(c, b), 1.0 / ir_node(c, b)->u.f));
}
static bool divides(const IrCtx *c) { /* most programs do not: looking through a table is faster than through a tree */
  for (ExprId e = 1, n = ir_count(c); e <= n; e++)
    if (ir_kind(c, e) == IR_DIV && ir_type(c, e).code == DT_FLOAT) return true;
  return false;
}

void pass_simplify(Func *f) {
  Arith *a = ar_new(f->ctx);
  if (low_for_rows(f->use)) ar_reduce(a);
  f->body = low_simplify(f->ctx, a, f->body);
  if (low_for_rows(f->use) && divides(f->ctx)) f->body = st_map(f->ctx, f->body, NULL, reciprocal, NULL);
}
