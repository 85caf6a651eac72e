/* Symbolic intervals: the values an expression takes when some of its variables run through intervals of their own. An
 * expression that uses none of them is a point and stays as it is. The ends are expressions; 0 is an unbounded end. The
 * evaluation follows the expression as written, since inferred regions must be the cover that these rules give. */
#include "ir/arith.h"

typedef struct {
  Arith *a;
  int n, depth;
  const VarSet *set;
  Walk *w;    /* memo: index into done */
  Walk *used; /* memo: does the expression use a variable that has a set? */
  VEC(Interval) done;
} Eval;

static const Interval ALL = {0, 0};

static Interval eval(Eval *v, ExprId e);

static Interval point(ExprId e) { return (Interval){e, e}; }
static bool is_point(Interval x) { return x.lo && x.lo == x.hi; }

static int set_of(const Eval *v, VarId var) {
  for (int i = 0; i < v->n; i++)
    if (v->set[i].var == var) return i;
  return -1;
}

static bool uses_sets(const Eval *v, ExprId e) {
  IrCtx *c = v->a->c;
  const ExprNode *p = ir_node(c, e);
  if (p->kind == IR_VAR) return set_of(v, p->sym) >= 0;
  if (p->n == 0) return false;
  if (walk_seen(v->used, e)) return v->used->val[e];
  bool r = false;
  for (int i = 0; i < p->n && !r; i++) r = uses_sets(v, ir_kid(c, e, i));
  walk_set(v->used, e, r);
  return r;
}

static Interval eval_var(Eval *v, ExprId e) {
  int i = set_of(v, ir_node(v->a->c, e)->sym);
  if (i < 0 || v->depth >= v->n) return point(e);
  Interval r = v->set[i].set;
  v->depth++;
  if (r.lo && r.lo != e && uses_sets(v, r.lo)) r.lo = eval(v, r.lo).lo;
  if (r.hi && r.hi != e && uses_sets(v, r.hi)) r.hi = eval(v, r.hi).hi;
  v->depth--;
  return r;
}

static ExprId op(Eval *v, ExprKind k, ExprId x, ExprId y) { return x && y ? ex_bin(v->a->c, k, x, y) : 0; }
static Bound bound(Eval *v, ExprId e) { return bound_of(v->a, e); }
static bool nonneg(Eval *v, ExprId e) { return e && ar_prove_ge0(v->a, e); }
static bool positive(Eval *v, ExprId e) {
  return e && (bound(v, e).lo > 0 || ar_prove_lt(v->a, ex_int(v->a->c, ir_type(v->a->c, e), 0), e));
}

static Interval eval_mul(Eval *v, Interval x, Interval y) {
  IrCtx *c = v->a->c;
  if (is_point(x) && !is_point(y)) {
    Interval t = x;
    x = y, y = t;
  }
  if (is_point(y)) {
    ExprId s = y.lo;
    if (ex_is_int(c, s, 0)) return point(s);
    if (nonneg(v, s)) return (Interval){op(v, IR_MUL, x.lo, s), op(v, IR_MUL, x.hi, s)};
    if (bound(v, s).hi <= 0) return (Interval){op(v, IR_MUL, x.hi, s), op(v, IR_MUL, x.lo, s)};
    if (!x.lo || !x.hi) return ALL;
    ExprId sign = ex_bin(c, IR_GE, s, ex_int(c, ir_type(c, s), 0)), p = ex_mul(c, x.lo, s), q = ex_mul(c, x.hi, s);
    return (Interval){ex_select(c, sign, p, q), ex_select(c, sign, q, p)};
  }
  if (nonneg(v, x.lo) && nonneg(v, y.lo)) return (Interval){op(v, IR_MUL, x.lo, y.lo), op(v, IR_MUL, x.hi, y.hi)};
  return ALL;
}

static Interval eval_div(Eval *v, ExprKind k, Interval x, Interval y) {
  if (!y.lo || !y.hi) return ALL;
  if (is_point(y)) {
    if (positive(v, y.lo)) return (Interval){op(v, k, x.lo, y.lo), op(v, k, x.hi, y.lo)};
    if (bound(v, y.lo).hi < 0) return (Interval){op(v, k, x.hi, y.lo), op(v, k, x.lo, y.lo)};
    return ALL;
  }
  if (positive(v, y.lo) && nonneg(v, x.lo)) return (Interval){op(v, k, x.lo, y.hi), op(v, k, x.hi, y.lo)};
  return ALL;
}

static Interval eval_mod(Eval *v, ExprKind k, Interval x, Interval y) {
  IrCtx *c = v->a->c;
  if (!is_point(y) || !positive(v, y.lo)) return ALL;
  if (k == IR_MOD && !nonneg(v, x.lo)) return ALL;
  ExprId d = y.lo, zero = ex_int(c, ir_type(c, d), 0), one = ex_int(c, ir_type(c, d), 1);
  int64_t k_const;
  if (x.lo && x.hi && ex_const_int(c, d, &k_const)) {
    ExprId q = ex_fdiv(c, x.lo, d);
    if (ar_prove_eq(v->a, q, ex_fdiv(c, x.hi, d))) {
      ExprId shift = ex_mul(c, q, d);
      return (Interval){ex_sub(c, x.lo, shift), ex_sub(c, x.hi, shift)};
    }
  }
  return (Interval){zero, ex_sub(c, d, one)};
}

static Interval eval_extreme(Eval *v, ExprKind k, Interval x, Interval y) {
  Interval r = {op(v, k, x.lo, y.lo), op(v, k, x.hi, y.hi)};
  if (k == IR_MIN && !r.hi) r.hi = x.hi ? x.hi : y.hi; /* min(x, anything) is at most x */
  if (k == IR_MAX && !r.lo) r.lo = x.lo ? x.lo : y.lo;
  return r;
}

static Interval hull(Eval *v, Interval x, Interval y) {
  return (Interval){x.lo == y.lo ? x.lo : op(v, IR_MIN, x.lo, y.lo), x.hi == y.hi ? x.hi : op(v, IR_MAX, x.hi, y.hi)};
}

static Interval eval_call(Eval *v, ExprId e) {
  IrCtx *c = v->a->c;
  ExprId x = ir_kid(c, e, 0), y = ir_node(c, e)->n > 1 ? ir_kid(c, e, 1) : 0,
         z = ir_node(c, e)->n > 2 ? ir_kid(c, e, 2) : 0;
  Intrin in = (Intrin)ir_node(c, e)->sym;
  int64_t k;
  switch (in) {
  case IN_LIKELY: return eval(v, x);
  case IN_IF_THEN_ELSE: {
    Interval p = eval(v, y);
    return hull(v, p, eval(v, z));
  }
  case IN_SHL:
  case IN_SHR:
    if (ex_const_int(c, y, &k)) {
      Interval p = eval(v, x);
      if (p.lo) p.lo = ex_math(c, in, 2, (ExprId[]){p.lo, y});
      if (p.hi) p.hi = ex_math(c, in, 2, (ExprId[]){p.hi, y});
      return p;
    }
    return ALL;
  case IN_BAND: return ex_const_int(c, y, &k) && k >= 0 ? (Interval){ex_int(c, ir_type(c, y), 0), y} : ALL;
  default: return ALL;
  }
}

static Interval eval_ramp(Eval *v, ExprId e) {
  IrCtx *c = v->a->c;
  int lanes = ir_type(c, e).lanes;
  ExprId stride = ir_kid(c, e, 1);
  Interval b = eval(v, ir_kid(c, e, 0)), s = eval(v, stride);
  if (!s.lo || !s.hi) return ALL;
  ExprId n = ex_int(c, ir_type(c, stride), lanes - 1);
  if (nonneg(v, s.lo)) return (Interval){b.lo, op(v, IR_ADD, b.hi, ex_mul(c, s.hi, n))};
  if (bound(v, s.hi).hi <= 0) return (Interval){op(v, IR_ADD, b.lo, ex_mul(c, s.lo, n)), b.hi};
  return ALL;
}

static Interval eval_node(Eval *v, ExprId e) {
  IrCtx *c = v->a->c;
  const ExprNode *p = ir_node(c, e);
  ExprKind k = (ExprKind)p->kind;
  DType t = p->type;
  if (k == IR_VAR) return eval_var(v, e);
  if (p->n == 0) return point(e);
  ExprId a0 = ir_kid(c, e, 0), a1 = p->n > 1 ? ir_kid(c, e, 1) : 0, a2 = p->n > 2 ? ir_kid(c, e, 2) : 0;
  VarId let = p->sym;
  if (dtype_is_bool(t)) return (Interval){ex_int(c, dtype_lanes(t, 1), 0), ex_int(c, dtype_lanes(t, 1), 1)};
  if (t.code != DT_INT && t.code != DT_UINT) return ALL;
  Interval x, y;
  switch (k) {
  case IR_SELECT: x = eval(v, a1); return hull(v, x, eval(v, a2));
  case IR_CAST:
    if (ir_type(c, a0).code != DT_INT && ir_type(c, a0).code != DT_UINT) return ALL;
    x = eval(v, a0);
    return (Interval){x.lo ? ex_cast(c, dtype_lanes(t, 1), x.lo) : 0, x.hi ? ex_cast(c, dtype_lanes(t, 1), x.hi) : 0};
  case IR_CALL: return eval_call(v, e);
  case IR_RAMP: return eval_ramp(v, e);
  case IR_BCAST: return eval(v, a0);
  case IR_LET: return eval(v, ex_subst(c, a1, 1, &(VarSub){let, a0}));
  default: break;
  }
  if (k < IR_ADD || k > IR_MAX) return ALL;
  x = eval(v, a0);
  y = eval(v, a1);
  switch (k) {
  case IR_ADD: return (Interval){op(v, k, x.lo, y.lo), op(v, k, x.hi, y.hi)};
  case IR_SUB: return (Interval){op(v, k, x.lo, y.hi), op(v, k, x.hi, y.lo)};
  case IR_MUL: return eval_mul(v, x, y);
  case IR_DIV:
  case IR_FDIV: return eval_div(v, k, x, y);
  case IR_MOD:
  case IR_FMOD: return eval_mod(v, k, x, y);
  default: return eval_extreme(v, k, x, y);
  }
}

/* e, or one of the operands it is made of, uses a variable with a set: otherwise the whole is a point. */
static Interval eval(Eval *v, ExprId e) {
  if (walk_seen(v->w, e)) return v->done.at[v->w->val[e]];
  if (ir_type(v->a->c, e).lanes == 1 && !uses_sets(v, e)) return point(e);
  Interval r = eval_node(v, e);
  if (v->depth == 0) {
    walk_set(v->w, e, v->done.len);
    vec_push(v->a->c->arena, &v->done, r);
  }
  return r;
}

Interval ar_interval(Arith *a, ExprId e, int n, const VarSet *sets) {
  arith_enter(a);
  Eval v = {.a = a, .n = n, .set = sets, .w = walk_begin(a->c), .used = walk_begin(a->c)};
  Interval r = eval(&v, e);
  walk_end(a->c);
  walk_end(a->c);
  if (r.lo) r.lo = simp(a, r.lo);
  if (r.hi) r.hi = simp(a, r.hi);
  return r;
}
