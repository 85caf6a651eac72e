/* intrinsics: what no target has becomes something that all have (spec 07 §7.2.19).
 *
 * Floor division and remainder become truncating ones where the dividend is provably not negative; otherwise the
 * truncated results are corrected. Powers of two with unknown sign become an arithmetic shift and a mask. sigmoid and
 * rsqrt are written out. Afterwards no integer FDIV or FMOD is left.
 */
#include "lower/util.h"

typedef struct {
  IrCtx *c;
  Arith *ar;
} Lower;

static ExprId floor_op(Lower *l, bool div, ExprId a, ExprId b) {
  IrCtx *c = l->c;
  DType t = ir_type(c, a);
  ExprId zero = ex_int(c, t, 0), one = ex_int(c, t, 1);
  int64_t k;
  bool positive = t.lanes == 1 && ar_bound(l->ar, b).lo > 0;
  if (t.code == DT_UINT || (positive && ar_bound(l->ar, a).lo >= 0)) return ex_bin(c, div ? IR_DIV : IR_MOD, a, b);
  if (t.lanes == 1 && ex_const_int(c, b, &k) && k > 0 && !(k & (k - 1))) {
    ExprId arg[2] = {a, ex_int(c, t, div ? __builtin_ctzll((uint64_t)k) : k - 1)};
    return ex_call(c, div ? IN_SHR : IN_BAND, t, 2, arg);
  }
  ExprId q = ex_bin(c, IR_DIV, a, b), r = ex_bin(c, IR_MOD, a, b), neg;
  if (positive || (ex_const_int(c, b, &k) && k > 0))
    neg = ex_bin(c, IR_LT, r, zero);
  else
    neg = ex_bin(c, IR_AND, ex_bin(c, IR_NE, r, zero),
                 ex_bin(c, IR_NE, ex_bin(c, IR_LT, r, zero), ex_bin(c, IR_LT, b, zero)));
  return div ? ex_select(c, neg, ex_sub(c, q, one), q) : ex_select(c, neg, ex_add(c, r, b), r);
}
static ExprId node(IrCtx *c, ExprId e, void *arg) {
  Lower *l = arg;
  ExprNode n = *ir_node(c, e);
  if ((n.kind == IR_FDIV || n.kind == IR_FMOD) && !dtype_is_float(n.type))
    return floor_op(l, n.kind == IR_FDIV, ir_kid(c, e, 0), ir_kid(c, e, 1));
  if (n.kind != IR_CALL) return e;
  if (n.sym == IN_LIKELY) return ir_kid(c, e, 0);
  if (n.sym != IN_SIGMOID && n.sym != IN_RSQRT) return e;
  ExprId x = ir_kid(c, e, 0), one = ex_flt(c, n.type, 1.0), zero = ex_flt(c, n.type, 0.0);
  if (n.sym == IN_RSQRT) return ex_bin(c, IR_DIV, one, ex_call(c, IN_SQRT, n.type, 1, &x));
  ExprId minus = ex_sub(c, zero, x);
  return ex_bin(c, IR_DIV, one,
                ex_may_fuse(c, ex_add(c, one, ex_call(c, IN_EXP, n.type, 1, &minus)))); /* one function */
}
static ExprId lower_expr(IrCtx *c, ExprId e, void *arg) { return ex_map(c, e, node, arg); }

static Stmt *walk(IrCtx *c, Stmt *s, void *arg) { return low_rewrite(c, ((Lower *)arg)->ar, s, walk, lower_expr, arg); }
void pass_intrinsics(Func *f) {
  Lower l = {f->ctx, ar_new(f->ctx)};
  if (f->body) f->body = walk(f->ctx, f->body, &l);
}
