/* sweep: do two nests of loops go over the same elements of a buffer, in whatever order, and where is one when the other is at an element?
 * An index that each loop moves by a step of its own is a number with one digit per loop. */
#include <stdlib.h>
#include "lower/util.h"

bool low_sweep(Sweep *w, const Stmt *loop) {
  IrCtx *c = w->c;
  VarId v = loop->u.loop.var;
  DType t = ir_var_info(c, v)->type;
  if (w->n == LOW_SWEPT) return false;
  SweepLoop *s = &w->at[w->n];
  s->var = v;
  if (!ex_const_int(c, loop->u.loop.min, &s->min) || !ex_const_int(c, loop->u.loop.extent, &s->extent)) return false;
  VarSub next = {v, ex_add(c, ex_var(c, v), ex_int(c, t, 1))}, first = {v, ex_int(c, t, s->min)};
  ExprId moved = ex_sub(c, ex_subst(c, w->origin, 1, &next), w->origin);
  if (!ex_const_int(c, ar_simplify(w->ar, moved), &s->step)) return false;
  w->origin = ex_subst(c, w->origin, 1, &first);
  w->n += s->extent != 1;
  return true;
}

static int by_step(const void *a, const void *b) {
  const SweepLoop *x = a, *y = b;
  return x->step != y->step ? (x->step > y->step) - (x->step < y->step)
                            : (x->extent > y->extent) - (x->extent < y->extent);
}

/* Both begin at the same element; then their loops lie in the order of their steps. */
static bool begin_alike(Sweep *a, Sweep *b) {
  int64_t apart;
  if (!ex_const_int(a->c, ar_simplify(a->ar, ex_sub(a->c, a->origin, b->origin)), &apart) || apart) return false;
  qsort(a->at, (size_t)a->n, sizeof *a->at, by_step);
  qsort(b->at, (size_t)b->n, sizeof *b->at, by_step);
  return true;
}

bool low_sweep_same(Sweep *a, Sweep *b) {
  if (a->n != b->n || !begin_alike(a, b)) return false;
  for (int i = 0; i < a->n; i++)
    if (by_step(&a->at[i], &b->at[i]) != 0) return false;
  return true;
}

/* A loop of `to` is made of those of `from` whose steps follow one another from its own step to its end. */
int low_sweep_values(Sweep *from, Sweep *to, VarSub *value) {
  IrCtx *c = from->c;
  int k = 0;
  int64_t span = 0; /* of the loops of smaller steps: elements of different iterations are different */
  if (!begin_alike(from, to)) return -1;
  for (int i = 0; i < to->n; i++) {
    const SweepLoop *l = &to->at[i];
    DType t = ir_var_info(c, l->var)->type;
    ExprId v = ex_int(c, t, l->min);
    int64_t in = 1, width;
    if (l->step <= span || !i64_mul(l->step, l->extent - 1, &width) || !i64_add(span, width, &span)) return -1;
    for (; in < l->extent; k++) {
      const SweepLoop *f = &from->at[k];
      if (k == from->n || f->step != l->step * in || !dtype_eq(ir_var_info(c, f->var)->type, t)) return -1;
      ExprId digit = ex_sub(c, ex_var(c, f->var), ex_int(c, t, f->min));
      v = ex_add(c, v, ex_mul(c, digit, ex_int(c, t, in)));
      in *= f->extent;
    }
    if (in != l->extent) return -1;
    value[i] = (VarSub){l->var, v};
  }
  return k == from->n ? to->n : -1;
}
