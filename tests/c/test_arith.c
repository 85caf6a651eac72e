/* The index algebra: the acceptance list, then random expressions evaluated before and after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ir/ir.h"

static Err err;
static IrCtx *c;
static Arith *a;
static VarId xv, yv, zv, tv, uv, vv, sv, nv;
static ExprId x, y, z, t, u, v, s, n;

static ExprId in(int64_t k) { return ex_i32(c, k); }
static ExprId add(ExprId p, ExprId q) { return ex_add(c, p, q); }
static ExprId sub(ExprId p, ExprId q) { return ex_sub(c, p, q); }
static ExprId mul(ExprId p, int64_t k) { return ex_mul(c, p, in(k)); }
static ExprId divi(ExprId p, int64_t k) { return ex_fdiv(c, p, in(k)); }
static ExprId mod(ExprId p, int64_t k) { return ex_fmod(c, p, in(k)); }
static ExprId bin(ExprKind k, ExprId p, ExprId q) { return ex_bin(c, k, p, q); }

static VarId var(const char *name, ExprId *e, int64_t extent) {
  VarId w = ir_var_new(c, name, DT_I32, false);
  *e = ex_var(c, w);
  if (extent) ar_bind_range(a, w, in(0), in(extent));
  return w;
}

static int setup(void **st) {
  (void)st;
  err_init(&err);
  c = ir_new(&err);
  a = ar_new(c);
  xv = var("x", &x, 0), yv = var("y", &y, 0), zv = var("z", &z, 0);
  tv = var("t", &t, 256), uv = var("u", &u, 8), vv = var("v", &v, 4), sv = var("s", &s, 7);
  nv = ir_var_new(c, "n", DT_I32, true);
  n = ex_var(c, nv);
  return 0;
}
static int teardown(void **st) {
  (void)st;
  ir_free(c);
  return 0;
}

static void is(int row, ExprId e, const char *want) {
  char *got = ex_text(c, ar_simplify(a, e));
  if (strcmp(got, want) != 0) fail_msg("row %d: %s gives %s, not %s", row, ex_text(c, e), got, want);
}

static void acceptance(void **st) {
  (void)st;
  const char *yes = "(bool)1", *no = "(bool)0";
  is(1, add(mul(divi(x, 6), 6), mod(x, 6)), "x");
  is(2, add(mul(divi(x, 6), 2), divi(mod(x, 6), 3)), "floordiv(x, 3)");
  is(3, add(add(mul(divi(x, 12), 12), mul(divi(mod(x, 12), 3), 3)), mod(x, 3)), "x");
  is(4, divi(add(mul(x, 48), in(17)), 16), "((x*3) + 1)");
  is(5, mod(add(mul(x, 48), in(17)), 16), "1");
  is(6, divi(add(mul(x, 4), v), 4), "x");
  is(6, mod(add(mul(x, 4), v), 4), "v");
  is(7, divi(add(add(mul(x, 8), mul(v, 2)), in(1)), 4), "((x*2) + floordiv(v, 2))");
  ExprId e = add(add(mul(x, 32), mul(u, 4)), v);
  is(8, divi(e, 32), "x");
  is(9, mod(e, 32), "((u*4) + v)");
  is(10, mod(divi(e, 4), 8), "u");
  is(11, divi(add(mul(x, 16), mul(v, 4)), 64), "floordiv(x, 4)");
  is(12, divi(mod(x, 2), 7), "0");
  is(13, mod(mul(x, 8), 16), "(floormod(x, 2)*8)");
  is(14, divi(mul(divi(mod(x, 16), 2), 2), 4), "floordiv(floormod(x, 16), 4)");
  is(15, mod(sub(mod(x, 24528), in(24512)), 16), "floormod(x, 16)");
  is(16, divi(t, 256), "0");
  is(16, mod(t, 256), "t");
  is(17, bin(IR_LT, add(mul(divi(t, 4), 4), mod(t, 4)), in(256)), yes);
  is(18, divi(add(mul(t, 4), in(3)), 1024), "0");
  is(19, bin(IR_LT, sub(x, in(2)), in(3)), "(x < 5)");
  is(20, sub(bin(IR_MAX, x, in(1)), bin(IR_MAX, x, in(1))), "0");
  is(21, sub(bin(IR_MIN, add(x, in(5)), y), x), "min(5, (y - x))");
  is(22, bin(IR_GE, mul(divi(add(n, in(31)), 32), 32), n), yes);
  is(23, divi(add(mul(n, 8), in(7)), 8), "{n|n>=0}");
  is(24, bin(IR_MIN, n, mul(divi(add(n, in(7)), 8), 8)), "{n|n>=0}");
  is(25, bin(IR_LT, add(mul(u, 4), v), in(32)), yes);
  ar_push(a, bin(IR_LT, x, in(10)));
  is(26, bin(IR_LT, x, in(10)), yes);
  is(26, bin(IR_LE, in(10), x), no);
  is(26, bin(IR_LT, x, in(12)), yes);
  ar_pop(a);
  is(26, bin(IR_LT, x, in(12)), "(x < 12)");
  ar_push(a, bin(IR_AND, bin(IR_LE, in(0), x), bin(IR_LT, x, in(49))));
  is(27, bin(IR_LT, divi(x, 7), in(7)), yes);
  ar_pop(a);
  is(28, ex_select(c, bin(IR_LT, u, in(8)), x, y), "x");
  is(29, add(ex_ramp(c, mul(x, 4), in(1), 4), ex_bcast(c, y, 4)), "ramp(((x*4) + y), 1, 4)");
  Residue r = ar_residue(a, add(mul(x, 32), mul(u, 8)));
  assert_true(r.coeff == 8 && r.base == 0);
  ExprId by, ty;
  var("by", &by, 0), var("ty", &ty, 0);
  ExprId lo = add(mul(by, 32), mul(ty, 4));
  is(31, add(sub(add(lo, in(3)), lo), in(1)), "4");
  ar_push(a, bin(IR_LT, u, in(7)));
  is(33, mod(divi(add(add(mul(x, 49), mul(u, 7)), s), 7), 7), "u");
  ar_pop(a);
  ar_push(a, bin(IR_AND, bin(IR_LE, in(0), y), bin(IR_LT, y, in(8))));
  is(34, divi(add(mul(x, 56), y), 8), "(x*7)");
  ar_pop(a);
  is(35, divi(sub(x, mod(x, 4)), 4), "floordiv(x, 4)");
  ar_push(a, bin(IR_LT, in(0), z));
  is(36, bin(IR_FDIV, ex_mul(c, x, z), z), "x");
  ar_pop(a);
}

static void more(void **st) {
  (void)st;
  ExprId io, ii, m = ex_var(c, ir_var_new(c, "m", DT_I32, false));
  var("i.outer", &io, 4), var("i.inner", &ii, 32);
  is(100, add(ii, mul(io, 32)), "((i.outer*32) + i.inner)");
  is(101, add(ii, ex_mul(c, io, divi(add(m, in(31)), 32))), "(i.inner + (i.outer*floordiv((m + 31), 32)))");
  is(102, sub(in(5), x), "(5 - x)");
  is(103, bin(IR_LE, in(1), x), "(1 <= x)");
  is(104, bin(IR_GE, x, in(1)), "(1 <= x)");
  is(105, bin(IR_LT, divi(x, 7), in(3)), "(x < 21)");
  is(106, bin(IR_LT, in(3), divi(x, 7)), "(27 < x)");
  is(107, bin(IR_LT, bin(IR_MIN, x, y), in(4)), "((x < 4) || (y < 4))");
  is(108, ex_not(c, bin(IR_OR, bin(IR_LT, x, y), bin(IR_EQ, x, in(3)))), "((y <= x) && (x != 3))");
  is(109, bin(IR_AND, bin(IR_LT, x, in(4)), bin(IR_LT, x, in(9))), "(x < 4)");
  is(110, bin(IR_AND, bin(IR_LT, x, in(4)), bin(IR_LT, in(8), x)), "(bool)0");
  is(111, bin(IR_OR, bin(IR_LT, x, in(9)), bin(IR_LE, in(4), x)), "(bool)1");
  is(112, bin(IR_MAX, bin(IR_MAX, x, in(3)), in(5)), "max(x, 5)");
  is(113, bin(IR_MIN, add(x, y), add(x, z)), "(min(y, z) + x)");
  is(114, bin(IR_MIN, mul(x, 4), in(8)), "(min(x, 2)*4)");
  is(115, bin(IR_LT, mul(x, 4), in(7)), "(x < 2)");
  is(116, bin(IR_EQ, mul(x, 4), in(7)), "(bool)0");
  is(117, bin(IR_EQ, in(3), sub(in(1), x)), "(x == -2)");
  is(118, bin(IR_LT, x, sub(in(7), y)), "((x + y) < 7)");
  is(119, ex_if_then_else(c, bin(IR_LT, x, in(4)), ex_if_then_else(c, bin(IR_LT, x, in(9)), y, in(0)), in(0)),
     "tir.if_then_else((x < 4), y, 0)");
  is(120, sub(mul(divi(x, 4), 4), x), "(0 - floormod(x, 4))");
  is(121, ex_cast(c, DT_I64, add(mul(x, 4), u)), "((int64(x)*(int64)4) + int64(u))");
  is(122, ex_cast(c, DT_I32, add(mul(ex_cast(c, DT_I64, u), 4), in(3))), "((u*4) + 3)");
  is(123, bin(IR_DIV, t, in(4)), "floordiv(t, 4)");
  is(124, bin(IR_DIV, x, in(4)), "(x/4)");
  is(125, divi(divi(x, 1 << 20), 1 << 20), "floordiv(floordiv(x, 1048576), 1048576)");
  is(126, sub(ex_mul(c, add(x, in(1)), y), ex_mul(c, x, y)), "y");
  is(127, ex_math(c, IN_LIKELY, 1, &(ExprId){bin(IR_LT, u, in(9))}), "(bool)1");
  is(128, ex_fdiv(c, ex_ramp(c, mul(x, 8), in(1), 4), ex_bcast(c, in(8), 4)), "x4(x)");
  is(129, ex_fmod(c, ex_ramp(c, add(mul(x, 8), in(4)), in(1), 4), ex_bcast(c, in(8), 4)), "ramp(4, 1, 4)");
  is(130, bin(IR_LT, ex_ramp(c, mul(v, 4), in(1), 4), ex_bcast(c, in(16), 4)), "x4((bool)1)");
  ExprId f = ex_var(c, ir_var_new(c, "f", DT_F32, false)), g = ex_var(c, ir_var_new(c, "g", DT_F32, false));
  is(131, ex_sub(c, ex_add(c, f, g), f), "((f + g) - f)");
  is(132, ex_not(c, bin(IR_LT, f, g)), "!(f < g)");
  TensorId T = ir_tensor_new(c, (IrTensor){.name = "T", .type = DT_F32, .rank = 1, .shape = &n});
  is(133, ex_mul(c, ex_read(c, T, 1, &(ExprId){divi(add(mul(x, 4), v), 4)}), f), "(T[x]*f)");
  ExprId stride = ex_var(c, ir_var_new(c, "stride", DT_I32, false));
  is(134, ex_mul(c, add(mul(io, 8), ii), stride), "(((i.outer*8) + i.inner)*stride)");
  is(135, bin(IR_LT, add(mul(io, 10), divi(t, 5)), m), "(((i.outer*10) + floordiv(t, 5)) < m)");
  is(136, bin(IR_AND, ex_var(c, ir_var_new(c, "p", DT_BOOL, false)), bin(IR_LT, u, in(9))), "p");
  VarId k0 = ir_var_new(c, "k0", DT_I32, false), k1 = ir_var_new(c, "k1", DT_I32, false),
        l = ir_var_new(c, "l", DT_F32, false);
  ExprId id = ex_flt(c, DT_F32, 0), res = ex_add(c, ex_var(c, l), ex_var(c, l)),
         src = ex_read(c, T, 1, &(ExprId){add(mul(ex_var(c, k0), 4), ex_var(c, k1))});
  ReducerId red = ir_reducer_new(c, (IrReducer){1, &l, &l, &res, &id, NULL});
  IrAxis axes[2] = {{k0, in(2), in(1)}, {k1, in(0), in(4)}};
  ExprId sum = ar_simplify(a, ex_reduce(c, (IrReduce){red, 1, &src, NULL, 2, axes, 0, 0, 0, 0}));
  assert_int_equal(ir_reduce(c, sum)->n_axis, 1);
  assert_string_equal(ex_text(c, ir_reduce(c, sum)->src[0]), "T[(k1 + 8)]");
  is(137, ex_reduce(c, (IrReduce){red, 1, &src, NULL, 1, axes, 0, 0, 0, 0}), "T[(k1 + 8)]");
  VarId q = ir_var_new(c, "q", DT_I32, false);
  ExprId qe = ex_var(c, q);
  ar_bind_range(a, q, in(0), in(4));
  is(138, divi(qe, 4), "0");
  ar_bind_value(a, q, add(qe, in(9)));
  is(139, divi(qe, 4), "floordiv(q, 4)");
  ar_bind_value(a, q, in(9));
  is(140, divi(qe, 4), "2");
  /* symbolic ranges */
  VarId i = ir_var_new(c, "i", DT_I32, false);
  ar_bind_range(a, i, in(0), n);
  ExprId ie = ex_var(c, i);
  assert_true(ar_prove(a, bin(IR_LT, ie, n)));
  assert_true(ar_prove(a, bin(IR_LT, ie, add(n, in(1)))));
  assert_false(ar_prove(a, bin(IR_LT, add(ie, in(1)), n)));
  ar_push(a, bin(IR_LT, x, y));
  assert_true(ar_prove(a, bin(IR_LT, add(x, in(3)), add(y, in(3)))));
  assert_true(ar_prove(a, bin(IR_LT, mul(x, 2), sub(mul(y, 2), in(1)))));
  assert_false(ar_prove(a, bin(IR_LT, mul(x, 2), sub(mul(y, 2), in(2)))));
  ar_pop(a);
  assert_false(ar_prove(a, bin(IR_LT, x, y)));
  ar_push(a, bin(IR_EQ, mod(x, 4), in(0)));
  Residue r = ar_residue(a, add(mul(x, 2), in(3)));
  assert_true(r.coeff == 8 && r.base == 3);
  ar_pop(a);
}

/* ---- random expressions ---- */
enum { NV = 8 };
static const VarId *const VARS[NV] = {&xv, &yv, &zv, &tv, &uv, &vv, &sv, &nv};
static int64_t val[NV], lane; /* where expressions are evaluated */

static ExprId rnd(Rng *r, int depth);
static ExprId rnd_cond(Rng *r, int depth) {
  ExprKind k = (ExprKind)(IR_EQ + rng_below(r, 6));
  ExprId p = rnd(r, depth - 1), e = bin(k, p, rnd(r, depth - 1));
  if (depth > 1 && rng_below(r, 3) == 0) {
    ExprId f = rnd_cond(r, depth - 1);
    int w = (int)rng_below(r, 3);
    return w == 0 ? ex_not(c, e) : bin(w == 1 ? IR_AND : IR_OR, e, f);
  }
  return e;
}

static ExprId rnd(Rng *r, int depth) {
  static const int64_t DIV[] = {1, 2, 3, 4, 6, 7, 8, 12, 16, 32, 49, 64};
  if (depth <= 0 || rng_below(r, 8) == 0)
    return rng_below(r, 4) == 0 ? in(rng_below(r, 41) - 20) : ex_var(c, *VARS[rng_below(r, NV)]);
  ExprId p = rnd(r, depth - 1);
  switch (rng_below(r, 16)) {
  case 0:
  case 1:
  case 2: return add(p, rnd(r, depth - 1));
  case 3: return sub(p, rnd(r, depth - 1));
  case 4:
  case 5: return mul(p, rng_below(r, 3) ? DIV[rng_below(r, NS_COUNT(DIV))] : rng_below(r, 9) - 4);
  case 6:
  case 7:
  case 8: return divi(p, DIV[rng_below(r, NS_COUNT(DIV))]);
  case 9:
  case 10:
  case 11: return mod(p, DIV[rng_below(r, NS_COUNT(DIV))]);
  case 12: return bin(rng_below(r, 2) ? IR_MIN : IR_MAX, p, rnd(r, depth - 1));
  case 13: return ex_select(c, rnd_cond(r, depth - 1), p, rnd(r, depth - 1));
  case 14: return ex_if_then_else(c, rnd_cond(r, depth - 1), p, rnd(r, depth - 1));
  default: {
    int w = (int)rng_below(r, 7);
    if (w == 5) return ex_cast(c, DT_I32, ex_add(c, ex_cast(c, DT_I64, p), ex_cast(c, DT_I64, rnd(r, depth - 1))));
    if (w == 6)
      return ex_cast(c, DT_I32,
                     bin(rng_below(r, 2) ? IR_FDIV : IR_FMOD, ex_cast(c, DT_I64, p),
                         ex_int(c, DT_I64, DIV[rng_below(r, NS_COUNT(DIV))])));
    if (w == 0) return ex_mul(c, p, rnd(r, depth - 1));
    if (w == 1) return add(mul(divi(p, 4), 4), mod(p, 4));
    if (w == 2) return bin(IR_DIV, p, in(DIV[rng_below(r, NS_COUNT(DIV))]));
    if (w == 3) return bin(IR_MOD, p, in(DIV[rng_below(r, NS_COUNT(DIV))]));
    ExprId q = add(mod(rnd(r, depth - 1), 5), in(1));
    return bin(rng_below(r, 2) ? IR_FDIV : IR_FMOD, p, q);
  }
  }
}

static int64_t value(ExprId e) {
  const ExprNode *p = ir_node(c, e);
  if (p->kind == IR_INT) return p->u.i;
  if (p->kind == IR_VAR) {
    for (int i = 0; i < NV; i++)
      if (*VARS[i] == p->sym) return val[i];
    abort();
  }
  if (p->kind == IR_CALL) return value(ir_kid(c, e, value(ir_kid(c, e, 0)) ? 1 : 2)); /* if_then_else: one side only */
  if (p->kind == IR_RAMP) return value(ir_kid(c, e, 0)) + lane * value(ir_kid(c, e, 1));
  int64_t k[3] = {0};
  for (int i = 0; i < p->n; i++) k[i] = value(ir_kid(c, e, i));
  switch ((ExprKind)p->kind) {
  case IR_ADD: return k[0] + k[1];
  case IR_SUB: return k[0] - k[1];
  case IR_MUL: return k[0] * k[1];
  case IR_DIV: return k[0] / k[1];
  case IR_MOD: return k[0] % k[1];
  case IR_FDIV: return i64_floordiv(k[0], k[1]);
  case IR_FMOD: return i64_floormod(k[0], k[1]);
  case IR_MIN: return k[0] < k[1] ? k[0] : k[1];
  case IR_MAX: return k[0] > k[1] ? k[0] : k[1];
  case IR_EQ: return k[0] == k[1];
  case IR_NE: return k[0] != k[1];
  case IR_LT: return k[0] < k[1];
  case IR_LE: return k[0] <= k[1];
  case IR_GT: return k[0] > k[1];
  case IR_GE: return k[0] >= k[1];
  case IR_AND: return k[0] && k[1];
  case IR_OR: return k[0] || k[1];
  case IR_NOT: return !k[0];
  case IR_CAST:
  case IR_BCAST: return k[0];
  case IR_SELECT: return k[0] ? k[1] : k[2];
  default: abort();
  }
}

static void draw(Rng *r) {
  static const int64_t LIM[NV] = {0, 0, 0, 256, 8, 4, 7, 0};
  for (int i = 0; i < NV; i++)
    val[i] = LIM[i] ? rng_below(r, LIM[i]) : i == NV - 1 ? rng_below(r, 100) : rng_below(r, 201) - 100;
}

static bool runs(ExprId e);
static void check_same(ExprId e, ExprId f, int round) {
  if (!runs(f)) fail_msg("round %d: %s can be evaluated, %s cannot", round, ex_text(c, e), ex_text(c, f));
  int64_t p = value(e), q = value(f);
  if (p != q) {
    fprintf(stderr, "round %d x %ld y %ld z %ld t %ld u %ld v %ld s %ld n %ld\n", round, (long)val[0], (long)val[1],
            (long)val[2], (long)val[3], (long)val[4], (long)val[5], (long)val[6], (long)val[7]);
    fail_msg("%s = %ld but %s = %ld", ex_text(c, e), (long)p, ex_text(c, f), (long)q);
  }
}

static bool runs(ExprId e) { /* no division by zero anywhere */
  const ExprNode *p = ir_node(c, e);
  if (p->kind == IR_CALL) return runs(ir_kid(c, e, 0)) && runs(ir_kid(c, e, value(ir_kid(c, e, 0)) ? 1 : 2));
  for (int i = 0; i < p->n; i++)
    if (!runs(ir_kid(c, e, i))) return false;
  return p->kind < IR_DIV || p->kind > IR_FMOD || value(ir_kid(c, e, 1)) != 0;
}

static ExprId rnd_vec(Rng *r, int depth) {
  static const ExprKind OPS[] = {IR_ADD, IR_ADD, IR_SUB, IR_MUL, IR_FDIV, IR_FMOD, IR_FDIV, IR_FMOD, IR_MIN, IR_MAX};
  if (depth == 0)
    return rng_below(r, 2) ? ex_ramp(c, rng_below(r, 2) ? mul(rnd(r, 1), 8) : rnd(r, 1), in(rng_below(r, 9) - 2), 4)
                           : ex_bcast(c, rnd(r, 1), 4);
  ExprKind k = OPS[rng_below(r, NS_COUNT(OPS))];
  ExprId p = rnd_vec(r, depth - 1);
  return bin(k, p, k == IR_FDIV || k == IR_FMOD ? ex_bcast(c, in(1 + rng_below(r, 8)), 4) : rnd_vec(r, depth - 1));
}

static void random_rounds(int rounds, int depth, bool with_fact, uint64_t seed) {
  Rng r;
  rng_seed(&r, seed);
  long kept = 0, before = 0, after = 0, stable = 0;
  for (int i = 0; i < rounds; i++) {
    IrMark m = ir_mark(c);
    Arith *old = a;
    a = ar_new(c);
    ar_bind_range(a, tv, in(0), in(256)), ar_bind_range(a, uv, in(0), in(8)), ar_bind_range(a, vv, in(0), in(4)),
        ar_bind_range(a, sv, in(0), in(7));
    ExprId e = rng_below(&r, 4) ? rnd(&r, depth) : rnd_cond(&r, depth);
    ExprId fact = with_fact ? rnd_cond(&r, 2) : 0;
    if (fact) ar_push(a, fact);
    ExprId f = ar_simplify(a, e);
    Bound b = ar_bound(a, e);
    Residue res = ar_residue(a, e);
    if (!fact) { /* a fresh look at the result finds nothing more to do, mostly */
      Arith *again = ar_new(c);
      ar_bind_range(again, tv, in(0), in(256)), ar_bind_range(again, uv, in(0), in(8)),
          ar_bind_range(again, vv, in(0), in(4)), ar_bind_range(again, sv, in(0), in(7));
      ExprId g = ar_simplify(again, f);
      stable += g == f;
      if (g != f && getenv("NS_SHOW"))
        print_message("%s\n  -> %s\n  -> %s\n", ex_text(c, e), ex_text(c, f), ex_text(c, g));
    }
    before += (long)strlen(ex_text(c, e)), after += (long)strlen(ex_text(c, f));
    for (int k = 0; k < 40; k++) {
      draw(&r);
      if (!runs(e) || (fact && (!runs(fact) || !value(fact)))) continue;
      check_same(e, f, i);
      int64_t w = value(e);
      if (w < b.lo || w > b.hi)
        fail_msg("round %d: %s = %ld outside of its bound %ld..%ld", i, ex_text(c, e), (long)w, (long)b.lo, (long)b.hi);
      if (res.coeff == 0 ? w != res.base : (res.coeff > 1 && i64_floormod(w, res.coeff) != res.base))
        fail_msg("round %d: %s = %ld is not %ld mod %ld", i, ex_text(c, e), (long)w, (long)res.base, (long)res.coeff);
      kept++;
    }
    a = old;
    ir_release(c, m);
  }
  print_message("%d expressions, %ld evaluations, %ld characters became %ld, %ld fixed points\n", rounds, kept, before,
                after, stable);
}

static int rounds_of(int n_rounds) { /* NS_ROUNDS multiplies the effort */
  const char *env = getenv("NS_ROUNDS");
  return n_rounds * (env ? atoi(env) : 1);
}
static uint64_t seed_of(void) {
  const char *env = getenv("NS_SEED");
  return env ? (uint64_t)atoll(env) : 1;
}
static void random_small(void **st) {
  (void)st;
  random_rounds(rounds_of(6000), 3, false, seed_of());
}
static void random_large(void **st) {
  (void)st;
  random_rounds(rounds_of(1000), 5, false, seed_of() + 1);
}
static void random_facts(void **st) {
  (void)st;
  random_rounds(rounds_of(4000), 3, true, seed_of() + 2);
}

static void random_vectors(void **st) {
  (void)st;
  Rng r;
  rng_seed(&r, seed_of() + 4);
  int lifted = 0;
  for (int i = 0; i < rounds_of(2000); i++) {
    IrMark m = ir_mark(c);
    Arith *old = a;
    a = ar_new(c);
    ar_bind_range(a, tv, in(0), in(256)), ar_bind_range(a, uv, in(0), in(8)), ar_bind_range(a, vv, in(0), in(4)),
        ar_bind_range(a, sv, in(0), in(7));
    ExprId e = rnd_vec(&r, 2);
    if (rng_below(&r, 3) == 0) e = bin((ExprKind)(IR_EQ + rng_below(&r, 6)), e, rnd_vec(&r, 1));
    ExprId f = ar_simplify(a, e);
    lifted += ir_kind(c, f) == IR_RAMP || ir_kind(c, f) == IR_BCAST;
    for (int k = 0; k < 30; k++) {
      draw(&r);
      lane = k % 4;
      if (runs(e)) check_same(e, f, i);
    }
    lane = 0;
    a = old;
    ir_release(c, m);
  }
  print_message("%d of %d vectors became ramps or broadcasts\n", lifted, rounds_of(2000));
}

static void deep(void **st) { /* as deep as expressions can be, and as long */
  (void)st;
  ExprId e = x, f = ex_flt(c, DT_F32, 1), g = x, h = x;
  for (int i = 0; i < 3900; i++) {
    e = bin(i % 2 ? IR_MAX : IR_MIN, e, ex_mul(c, y, in(i + 2)));
    f = ex_add(c, f, ex_cast(c, DT_F32, y));
    if (i < 3000) g = add(g, ex_mul(c, ex_var(c, ir_var_new(c, "w", DT_I32, false)), in(3)));
    if (i < 1900) h = divi(add(h, y), 3);
  }
  double t0 = clock_now();
  assert_true(ar_simplify(a, e) && ar_simplify(a, f) && ar_simplify(a, g) && ar_simplify(a, h));
  print_message("%.0f ms\n", 1e3 * (clock_now() - t0));
}

static void speed(void **st) {
  (void)st;
  double t0 = clock_now();
  int rounds = getenv("NS_ROUNDS") ? 200000 : 2000;
  ExprId io, ii, f;
  var("io", &io, 14), var("ii", &ii, 16), var("f", &f, 3136);
  IrMark m = ir_mark(c);
  for (int k = 0; k < rounds; k++) {
    Arith *b = ar_new(c);
    ar_bind_range(b, tv, in(0), in(256)), ar_bind_range(b, uv, in(0), in(8)), ar_bind_range(b, vv, in(0), in(4)),
        ar_bind_range(b, sv, in(0), in(7));
    ExprId e =
        add(add(mul(divi(add(mul(t, 32), add(mul(u, 4), v)), 56), 58), mod(add(mul(t, 32), add(mul(u, 4), v)), 56)),
            mul(s, 3));
    ar_simplify(b, e);
    ar_simplify(b, bin(IR_LT, add(mul(divi(add(mul(t, 32), add(mul(u, 4), v)), 56), 58), s), in(8000)));
    ir_release(c, m);
  }
  print_message("%.2f us per index and predicate\n", 1e6 * (clock_now() - t0) / rounds);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {T(acceptance),   T(more),           T(random_small), T(random_large),
                                     T(random_facts), T(random_vectors), T(deep),         T(speed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
