/* peel: a guard that only the last iterations of a loop need is taken off the others.
 *
 *   for v in [0, 19): if (v*32 + tid < 585) S(v)     =>     for v in [0, 18): S(v);  if (18*32 + tid < 585) S(18)
 *
 * Cooperative copies of tiles that are no multiple of the thread count look like this. With the guard on every iteration the
 * device compiler branches around each load and waits for it before the next one; without it the loads overlap. GPU only,
 * before barriers are placed. The number of free iterations is found by bisection and proven for the whole range.
 */
#include "lower/util.h"

enum { MAX_TAIL_COPIES = 2 };
typedef struct {
  Func *f;
  IrCtx *c;
  Arith *a;
} Peel;

/* Is the condition true for all v in [0, k)? */
static bool holds(Peel *p, ExprId cond, VarId v, int64_t k) {
  DType t = ir_var_info(p->c, v)->type;
  VarId u = ir_var_new(p->c, "peel", t, false);
  ar_bind_range(p->a, u, ex_int(p->c, t, 0), ex_int(p->c, t, k));
  VarSub sub = {v, ex_var(p->c, u)};
  return ar_prove(p->a, ex_subst(p->c, cond, 1, &sub));
}

static int64_t free_iterations(Peel *p, ExprId cond, VarId v, int64_t n) {
  int64_t lo = 0, hi = n; /* holds for lo; not known for more than hi */
  if (!holds(p, cond, v, 1)) return 0;
  for (lo = 1; lo < hi;) {
    int64_t mid = lo + (hi - lo + 1) / 2;
    if (holds(p, cond, v, mid))
      lo = mid;
    else
      hi = mid - 1;
  }
  return lo;
}

static Stmt *walk(IrCtx *c, Stmt *s, void *arg);

/* The loop without its guard for [0, k), then the rest with it. */
static Stmt *split(Peel *p, const Stmt *s, Stmt *guarded, int64_t k, int64_t n) {
  IrCtx *c = p->c;
  DType t = ir_var_info(c, s->u.loop.var)->type;
  Stmt *head = st_own(c, s), *part[1 + MAX_TAIL_COPIES];
  int parts = 0;
  head->u.loop.extent = ex_int(c, t, k);
  head->u.loop.body = guarded->u.cond.then;
  part[parts++] = head;
  if (n - k <= MAX_TAIL_COPIES) {
    for (int64_t i = k; i < n; i++) part[parts++] = low_copy(c, guarded, s->u.loop.var, ex_int(c, t, i));
  } else {
    VarId v = ir_var_new(c, ir_var_info(c, s->u.loop.var)->name, t, false);
    Stmt *tail = st_own(c, s);
    tail->u.loop.var = v;
    tail->u.loop.extent = ex_int(c, t, n - k);
    tail->u.loop.body = low_copy(c, guarded, s->u.loop.var, ex_add(c, ex_var(c, v), ex_int(c, t, k)));
    part[parts++] = tail;
  }
  return st_seq(c, parts, part);
}

static Stmt *loop(Peel *p, Stmt *s) {
  IrCtx *c = p->c;
  int64_t n, min;
  Stmt *r = st_own(c, s), *body = s->u.loop.body;
  bool plain = s->u.loop.kind == FOR_SERIAL || s->u.loop.kind == FOR_UNROLLED;
  if (plain && body->kind == ST_IF && !body->u.cond.other && ex_const_int(c, s->u.loop.extent, &n) && n > 1 &&
      ex_const_int(c, s->u.loop.min, &min) && min == 0 && ex_uses_var(c, body->u.cond.cond, s->u.loop.var)) {
    int64_t k = free_iterations(p, body->u.cond.cond, s->u.loop.var, n);
    if (k > 0) {
      Stmt *both = k == n ? NULL : split(p, s, body, k, n);
      if (both) return walk(c, both, p);
      r->u.loop.body = body->u.cond.then;
    }
  }
  return low_rewrite(c, p->a, r, walk, NULL, p);
}

static Stmt *walk(IrCtx *c, Stmt *s, void *arg) {
  Peel *p = arg;
  return s->kind == ST_FOR ? loop(p, s) : low_rewrite(c, p->a, s, walk, NULL, p);
}

void pass_peel(Func *f) {
  if (!low_is_gpu(f) || f->use == LOW_TEXT) return;
  Peel p = {f, f->ctx, ar_new(f->ctx)};
  if (f->body) f->body = walk(f->ctx, f->body, &p);
}
