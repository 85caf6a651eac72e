/* Building expressions as users write them: operands are brought to one type, then a fixed table of folds is applied
 * (literals, identities with 0 and 1) and nothing else. The text of a DAG is hashed, so a fold more or less would change
 * the identity of a task: what is not in the table must stay as written. Simplification is another matter (rules.c). */
#include "ir/ctx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_index(DType t) { return t.code == DT_INT && (t.bits == 32 || t.bits == 64) && t.lanes == 1; }

static NS_NORETURN void bad_types(IrCtx *c, const char *what, DType a, DType b) {
  StrBuf s;
  sb_init(&s, c->arena);
  dtype_print(&s, a);
  sb_puts(&s, " and ");
  dtype_print(&s, b);
  err_raise(c->err, NS_ERR_TYPE, "%s of %s: the types do not match; cast one operand with astype", what, sb_str(&s));
}

/* 01 §1.6 */
static void ex_match(IrCtx *c, ExprId *a, ExprId *b) {
  DType s = ir_type(c, *a), t = ir_type(c, *b);
  if (dtype_eq(s, t)) return;
  if (s.lanes != t.lanes) {
    if (s.lanes == 1)
      *a = ex_bcast(c, *a, t.lanes);
    else if (t.lanes == 1)
      *b = ex_bcast(c, *b, s.lanes);
    else
      bad_types(c, "combination", s, t);
    s = ir_type(c, *a), t = ir_type(c, *b);
    if (dtype_eq(s, t)) return;
  }
  bool to_b; /* cast a to b's type */
  if (s.code == DT_FLOAT && t.code == DT_FLOAT)
    to_b = s.bits < t.bits;
  else if (dtype_is_float(s) && dtype_is_int(t))
    to_b = false;
  else if (dtype_is_int(s) && dtype_is_float(t))
    to_b = true;
  else if (dtype_is_int(s) && dtype_is_int(t))
    to_b = s.bits < t.bits || (s.bits == t.bits && s.code == DT_INT);
  else
    bad_types(c, "combination", s, t);
  if (to_b)
    *a = ex_cast(c, t, *a);
  else
    *b = ex_cast(c, s, *b);
}

/* ---- literals ---- */

static ExprId fold_flt(IrCtx *c, ExprKind k, DType t, double a, double b) {
  if (t.bits == 32) a = (float)a, b = (float)b; /* as programs read them */
  if (ir_is_compare(k)) return ex_int(c, DT_BOOL, num_flt(k, t, a, b) != 0);
  if (k == IR_MIN || k == IR_MAX) return ex_flt(c, t, num_flt(k, t, a, b));
  if (t.code != DT_FLOAT || t.bits < 32 || k == IR_MOD || k == IR_FMOD) return 0;
  double v = num_flt(k, t, a, b);
  return ex_flt(c, t, t.bits == 32 ? (double)(float)v : v);
}

/* -1: not a literal; 0, 1: literal of that value; 2: another literal */
static int literal01(const IrCtx *c, ExprId e) {
  const ExprNode *p = ir_node(c, e);
  if (p->kind == IR_INT) return p->u.i == 0 ? 0 : p->u.i == 1 ? 1 : 2;
  if (p->kind == IR_FLT) return p->sym == FLT_KEPT ? 2 : p->u.f == 0 ? 0 : p->u.f == 1 ? 1 : 2;
  return -1;
}

static ExprId fold_identity(IrCtx *c, ExprKind k, DType t, ExprId a, ExprId b) {
  int p = literal01(c, a), q = literal01(c, b);
  switch (k) {
  case IR_ADD: return p == 0 ? b : q == 0 ? a : 0;
  case IR_SUB: return q == 0 ? a : 0;
  case IR_MUL: return p == 1 ? b : p == 0 ? a : q == 1 ? a : q == 0 ? b : 0;
  case IR_DIV: return p == 0 ? a : q == 1 ? a : 0;
  case IR_FDIV: return dtype_is_float(t) ? 0 : p == 0 ? a : q == 1 ? a : 0;
  case IR_MOD:
  case IR_FMOD: return !is_index(t) ? 0 : p == 0 ? a : q == 1 ? ex_int(c, t, 0) : 0;
  case IR_MIN:
  case IR_MAX: return a == b ? a : 0;
  default: return 0;
  }
}

static ExprId fold_logic(IrCtx *c, ExprKind k, ExprId a, ExprId b) {
  DType s = ir_type(c, a), t = ir_type(c, b);
  if (!dtype_is_bool(s) || !dtype_is_bool(t)) bad_types(c, k == IR_AND ? "logical and" : "logical or", s, t);
  if (s.lanes != t.lanes) ex_match(c, &a, &b);
  int decides = k == IR_AND ? 0 : 1;
  int p = literal01(c, a), q = literal01(c, b);
  if (p >= 0) return p == decides ? a : b;
  if (q >= 0) return q == decides ? b : a;
  ExprId kids[2] = {a, b};
  return ctx_node(c, k, ir_type(c, a), 0, 2, kids, 0);
}

ExprId ex_bin(IrCtx *c, ExprKind k, ExprId a, ExprId b) {
  if (k == IR_AND || k == IR_OR) return fold_logic(c, k, a, b);
  ex_match(c, &a, &b);
  DType t = ir_type(c, a);
  if (t.code == DT_HANDLE) bad_types(c, "arithmetic", t, t);
  int q = literal01(c, b);
  bool by_zero = q == 0 && ir_is_division(k); /* of floats: what IEEE says */
  if (by_zero && !dtype_is_float(t)) err_raise(c->err, NS_ERR_VALUE, "division by zero");
  ExprId f = 0;
  int p = literal01(c, a);
  if (p >= 0 && q >= 0) {
    bool modulo = k == IR_MOD || k == IR_FMOD;
    if (dtype_is_int(t) && (!modulo || is_index(t)))
      f = ex_int(c, ir_is_compare(k) ? DT_BOOL : t, num_int(k, t, ir_node(c, a)->u.i, ir_node(c, b)->u.i));
    else if (dtype_is_float(t))
      f = fold_flt(c, k, t, ir_flt(c, a), ir_flt(c, b));
    if (f) return f;
  }
  if (!by_zero && (p >= 0 || q >= 0 || a == b) && (f = fold_identity(c, k, t, a, b)) != 0) return f;
  ExprId kids[2] = {a, b};
  return ctx_node(c, k, ir_is_compare(k) ? dtype_lanes(DT_BOOL, t.lanes) : t, 0, 2, kids, 0);
}

ExprId ex_not(IrCtx *c, ExprId a) {
  DType t = ir_type(c, a);
  if (!dtype_is_bool(t)) bad_types(c, "logical not", t, t);
  int p = literal01(c, a);
  if (p >= 0) return ex_int(c, t, !p);
  return ctx_node(c, IR_NOT, t, 0, 1, &a, 0);
}

ExprId ex_cast(IrCtx *c, DType t, ExprId a) {
  DType s = ir_type(c, a);
  if (dtype_eq(s, t)) return a;
  if (s.code == DT_HANDLE || t.code == DT_HANDLE)
    err_raise(c->err, NS_ERR_TYPE,
              s.code == DT_HANDLE ? "Can't cast a handle to other types" : "Can't cast other types to a handle");
  if (s.lanes != t.lanes) {
    if (s.lanes != 1) bad_types(c, "cast", s, t);
    return ex_bcast(c, ex_cast(c, dtype_lanes(t, 1), a), t.lanes);
  }
  const ExprNode *p = ir_node(c, a);
  if (p->kind == IR_INT) {
    int64_t v = p->u.i;
    if (dtype_is_float(t)) return ex_flt(c, t, s.code == DT_UINT ? (double)(uint64_t)v : (double)v);
    return ex_int(c, t, v);
  }
  if (p->kind == IR_FLT) {
    double v = p->u.f;
    if (dtype_is_float(t)) return p->sym ? ctx_node(c, IR_FLT, t, p->sym, 0, NULL, p->u.i) : ex_flt(c, t, v);
    if (dtype_is_bool(t)) return ex_int(c, t, v != 0);
    if (v > -9.2e18 && v < 9.2e18) return ex_int(c, t, (int64_t)v);
  }
  return ctx_node(c, IR_CAST, t, 0, 1, &a, 0);
}

static void need_condition(IrCtx *c, const char *what, ExprId cond) {
  DType t = ir_type(c, cond);
  if (dtype_is_bool(t)) return;
  StrBuf s;
  sb_init(&s, c->arena);
  dtype_print(&s, t);
  err_raise(c->err, NS_ERR_TYPE, "the condition of %s must be bool, got %s", what, sb_str(&s));
}

ExprId ex_select(IrCtx *c, ExprId cond, ExprId t, ExprId f) {
  need_condition(c, "select", cond);
  ex_match(c, &t, &f);
  ExprId kids[3] = {cond, t, f};
  return ctx_node(c, IR_SELECT, ir_type(c, t), 0, 3, kids, 0);
}

ExprId ex_if_then_else(IrCtx *c, ExprId cond, ExprId t, ExprId f) {
  need_condition(c, "if_then_else", cond);
  ex_match(c, &t, &f);
  if (ir_kind(c, cond) == IR_INT) return ir_node(c, cond)->u.i ? t : f;
  ExprId kids[3] = {cond, t, f};
  return ex_call(c, IN_IF_THEN_ELSE, ir_type(c, t), 3, kids);
}

/* ---- intrinsics with types and rules ---- */
static ExprId math_abs(IrCtx *c, ExprId x) {
  DType t = ir_type(c, x);
  const ExprNode *p = ir_node(c, x);
  if (dtype_is_float(t)) return p->kind == IR_FLT ? ex_flt(c, t, fabs(p->u.f)) : ex_call(c, IN_FABS, t, 1, &x);
  if (t.code == DT_UINT) return x;
  if (p->kind == IR_INT) return ex_int(c, t, p->u.i < 0 ? (int64_t)(0 - (uint64_t)p->u.i) : p->u.i);
  ExprId zero = ex_int(c, t, 0);
  return ex_select(c, ex_bin(c, IR_GE, x, zero), x, ex_sub(c, zero, x));
}

static ExprId math_round(IrCtx *c, Intrin in, ExprId x) {
  DType t = ir_type(c, x);
  if (dtype_is_int(t)) return x;
  double v;
  if (ir_kind(c, x) == IR_FLT && num_math(in, t, ir_flt(c, x), 0, &v)) return ex_flt(c, t, v);
  return ex_call(c, in, t, 1, &x);
}

static ExprId math_tf32(IrCtx *c, ExprId x) {
  DType t = ir_type(c, x);
  if (t.code == DT_FLOAT && t.bits == 32) return math_round(c, IN_ROUND_TF32, x);
  StrBuf s;
  sb_init(&s, c->arena);
  dtype_print(&s, t);
  err_raise(c->err, NS_ERR_TYPE, "round_tf32 takes float32, not %s; cast it with astype", sb_str(&s));
}

static ExprId math_bits(IrCtx *c, Intrin in, ExprId a, ExprId b) {
  ex_match(c, &a, &b);
  DType t = ir_type(c, a);
  if (!dtype_is_int(t)) bad_types(c, intrin_info(in)->name, t, t);
  int64_t x, y, v = 0;
  if (is_index(t) && ir_kind(c, b) == IR_INT) {
    y = ir_node(c, b)->u.i;
    bool shift = in == IN_SHL || in == IN_SHR;
    if (shift && y == 0) return a;
    if (shift && (y < 0 || y >= t.bits))
      err_raise(c->err, NS_ERR_VALUE, "shift of a %d-bit integer by %lld", t.bits, (long long)y);
    if (ex_const_int(c, a, &x) && num_bits(in, t, x, y, &v)) return ex_int(c, t, v);
  }
  ExprId kids[2] = {a, b};
  return ex_call(c, in, t, 2, kids);
}

static ExprId math_isnan(IrCtx *c, ExprId x) {
  DType t = ir_type(c, x), out = dtype_lanes(DT_BOOL, t.lanes);
  if (dtype_is_int(t)) return ex_int(c, out, 0);
  if (ir_kind(c, x) == IR_FLT) return ex_int(c, out, isnan(ir_flt(c, x)) != 0);
  if (t.bits == 16) x = ex_cast(c, dtype_lanes(DT_F32, t.lanes), x);
  return ex_call(c, IN_ISNAN, out, 1, &x);
}

ExprId ex_math(IrCtx *c, Intrin in, int n, const ExprId *args) {
  const IntrinInfo *info = intrin_info(in);
  if (info->arity >= 0 && n != info->arity)
    err_raise(c->err, NS_ERR_TYPE, "%s takes %d arguments, got %d", info->name, info->arity, n);
  switch (in) {
  case IN_FLOOR:
  case IN_CEIL:
  case IN_ROUND:
  case IN_TRUNC:
  case IN_NEARBYINT: return math_round(c, in, args[0]);
  case IN_FABS: return math_abs(c, args[0]);
  case IN_ISNAN: return math_isnan(c, args[0]);
  case IN_ROUND_TF32: return math_tf32(c, args[0]);
  case IN_IF_THEN_ELSE: return ex_if_then_else(c, args[0], args[1], args[2]);
  case IN_LIKELY: return literal01(c, args[0]) >= 0 ? args[0] : ex_call(c, in, ir_type(c, args[0]), 1, args);
  case IN_SHL:
  case IN_SHR:
  case IN_BAND:
  case IN_BOR:
  case IN_BXOR: return math_bits(c, in, args[0], args[1]);
  case IN_POW:
  case IN_FMOD:
  case IN_ATAN2:
  case IN_NEXTAFTER:
  case IN_HYPOT:
  case IN_COPYSIGN: {
    ExprId kids[2] = {args[0], args[1]};
    ex_match(c, &kids[0], &kids[1]);
    DType t = ir_type(c, kids[0]);
    if (!dtype_is_float(t)) bad_types(c, info->name, ir_type(c, args[0]), ir_type(c, args[1]));
    return ex_call(c, in, t, 2, kids);
  }
  default: break;
  }
  DType t = n > 0 ? ir_type(c, args[0]) : DT_I32;
  if (in == IN_BNOT && !dtype_is_int(t)) bad_types(c, info->name, t, t);
  if (t.code == DT_HANDLE && n > 0) bad_types(c, info->name, t, t);
  return ex_call(c, in, t, n, args);
}

ExprId ex_may_fuse(IrCtx *c, ExprId e) {
  const ExprNode n = *ir_node(c, e);
  if (n.kind != IR_ADD || !dtype_is_float(n.type)) return e;
  ExprId kids[2] = {ir_kid(c, e, 0), ir_kid(c, e, 1)};
  return ctx_node(c, IR_ADD, n.type, 1, 2, kids, 0);
}

/* ---- the same node with other operands ---- */
ExprId ex_rebuild(IrCtx *c, ExprId e, const ExprId *kids) {
  const ExprNode *p = ir_node(c, e);
  ExprKind k = (ExprKind)p->kind;
  if (ir_is_binary(k)) {
    bool fuses = p->sym != 0;
    ExprId r = ex_bin(c, k, kids[0], kids[1]);
    return fuses && r != kids[0] && r != kids[1] ? ex_may_fuse(c, r) : r;
  }
  switch (k) {
  case IR_NOT: return ex_not(c, kids[0]);
  case IR_CAST: return ex_cast(c, p->type, kids[0]);
  case IR_SELECT: return ex_select(c, kids[0], kids[1], kids[2]);
  case IR_LET: return ex_let(c, p->sym, kids[0], kids[1]);
  case IR_RAMP: return ex_ramp(c, kids[0], kids[1], p->type.lanes);
  case IR_BCAST: return ex_bcast(c, kids[0], p->type.lanes);
  case IR_CALL:
    if (p->sym == IN_IF_THEN_ELSE) return ex_if_then_else(c, kids[0], kids[1], kids[2]);
    if (p->sym == IN_LIKELY) return ex_math(c, IN_LIKELY, 1, kids);
    return ctx_node(c, k, p->type, p->sym, p->n, kids, 0);
  case IR_REDUCE: {
    IrReduce r = *ir_reduce(c, e);
    ExprId *own = arena_copy(c->arena, kids, sizeof *kids * p->n);
    IrAxis *axis = arena_copy(c->arena, r.axis, sizeof *axis * (size_t)r.n_axis);
    int j = 0;
    for (int i = 0; i < r.n_axis; i++) {
      axis[i].min = own[j++];
      axis[i].extent = own[j++];
    }
    r.axis = axis;
    r.src = own + j;
    j += r.n_src;
    if (r.init) {
      r.init = own + j;
      j += r.n_src;
    }
    r.cond = own[j];
    return ex_reduce(c, r);
  }
  default: return ctx_node(c, k, p->type, p->sym, p->n, kids, p->u.i);
  }
}
