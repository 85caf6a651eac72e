/* Expressions: folding, matching, text, sharing, marks, clones, rewriting. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "ir/ir.h"

static Err err;
static IrCtx *c;

static int setup(void **st) {
  (void)st;
  err_init(&err);
  c = ir_new(&err);
  return 0;
}
static int teardown(void **st) {
  (void)st;
  ir_free(c);
  return 0;
}

static ExprId var(const char *name) { return ex_var(c, ir_var_new(c, name, DT_I32, false)); }
static ExprId in(int64_t v) { return ex_i32(c, v); }
static ExprId bin(ExprKind k, ExprId a, ExprId b) { return ex_bin(c, k, a, b); }
static void text(ExprId e, const char *want) { assert_string_equal(ex_text(c, e), want); }

static void folding(void **st) {
  (void)st;
  ExprId yy = var("yy"), ry = var("ry"), i = var("i"), n = var("n"), h = var("h"), w = var("w"), ch = var("c"),
         dh = var("dh");
  text(ex_add(c, ex_mul(c, yy, in(1)), ex_mul(c, ry, in(1))), "(yy + ry)");
  text(ex_add(c, ex_mul(c, yy, in(2)), ry), "((yy*2) + ry)");
  text(ex_sub(c, i, in(0)), "i");
  text(bin(IR_GE, i, in(0)), "(i >= 0)");
  text(ex_sub(c, in(0), i), "(0 - i)");
  text(ex_fdiv(c, ch, in(1)), "c");
  text(ex_fmod(c, ch, in(1)), "0");
  ExprId e = ex_mul(c, ex_mul(c, n, in(14)), in(14));
  e = ex_add(c, e, ex_mul(c, ex_fdiv(c, h, in(2)), in(14)));
  e = ex_add(c, e, ex_fdiv(c, w, in(2)));
  text(e, "((((n*14)*14) + (floordiv(h, 2)*14)) + floordiv(w, 2))");
  text(bin(IR_EQ, ex_fmod(c, ex_mul(c, ex_add(c, i, in(1)), in(7)), in(1)), in(0)), "(bool)1");
  text(ex_sub(c, ex_sub(c, in(4), in(1)), dh), "(3 - dh)");
  text(ex_add(c, ex_add(c, i, in(1)), in(2)), "((i + 1) + 2)");
  text(ex_mul(c, in(1 << 20), in(1 << 20)), "0");
  text(ex_add(c, in(INT32_MAX), in(1)), "-2147483648");
  text(bin(IR_DIV, in(-7), in(2)), "-3");
  text(ex_fdiv(c, in(-7), in(2)), "-4");
  text(ex_fmod(c, in(-7), in(2)), "1");
  text(ex_select(c, ex_int(c, DT_BOOL, 1), i, n), "select((bool)1, i, n)");
  text(ex_if_then_else(c, ex_int(c, DT_BOOL, 1), i, n), "i");
  text(bin(IR_AND, bin(IR_LT, i, n), ex_int(c, DT_BOOL, 1)), "(i < n)");
  text(ex_not(c, bin(IR_LT, i, n)), "!(i < n)");
  text(bin(IR_MAX, i, i), "i");
}

static void matching(void **st) {
  (void)st;
  ExprId x8 = ex_var(c, ir_var_new(c, "x", DT_I8, false)), f = ex_var(c, ir_var_new(c, "f", DT_F32, false)),
         h = ex_var(c, ir_var_new(c, "h", DT_F16, false));
  text(ex_add(c, x8, in(1)), "(int32(x) + 1)");
  text(ex_mul(c, f, in(2)), "(f*2f)");
  text(ex_mul(c, h, ex_flt(c, DT_F32, 2)), "(float32(h)*2f)");
  text(ex_cast(c, DT_I64, in(30521)), "(int64)30521");
  text(ex_flt(c, DT_F32, 0.70710678118654752), "0.707107f");
  text(ex_flt(c, DT_F32, 1000000), "1e+06f");
  text(ex_flt(c, DT_F32, 100000), "100000f");
  text(ex_flt(c, DT_F16, 0.5), "0.5h");
  text(ex_flt(c, DT_F64, 0.5), "0.5");
  text(dtype_min_value(c, DT_F32), "-3.40282e+38f");
  text(ex_math(c, IN_FABS, 1, &x8), "select((x >= (int8)0), x, ((int8)0 - x))");
  text(ex_math(c, IN_EXP, 1, &f), "tir.exp(f)");
  text(ex_ramp(c, in(0), in(1), 4), "ramp(0, 1, 4)");
  text(ex_add(c, ex_ramp(c, in(0), in(1), 4), in(7)), "(ramp(0, 1, 4) + x4(7))");
  text(ex_str(c, "a\"\n"), "\"a\\\"\\n\"");
  text(ex_var(c, ir_var_new(c, "n", DT_I32, true)), "{n|n>=0}");
  DType t;
  assert_true(dtype_parse("float32x4", &t) && t.code == DT_FLOAT && t.bits == 32 && t.lanes == 4);
  assert_true(dtype_parse("bool", &t) && dtype_eq(t, DT_BOOL));
  assert_false(dtype_parse("float31", &t) || dtype_parse("int8 ", &t) || dtype_parse("", &t) ||
               dtype_parse("floatx", &t));
}

typedef struct {
  ExprId a, b;
} Two;
static void div_body(void *p) { ex_bin(c, IR_FDIV, ((Two *)p)->a, ((Two *)p)->b); }
static void and_body(void *p) { ex_bin(c, IR_AND, ((Two *)p)->a, ((Two *)p)->b); }

static void errors(void **st) {
  (void)st;
  Two t = {var("x"), in(0)};
  assert_int_equal(err_try(&err, div_body, &t), NS_ERR_VALUE);
  assert_string_equal(err.msg, "division by zero");
  assert_int_equal(err_try(&err, and_body, &t), NS_ERR_TYPE);
}

static void sharing(void **st) {
  (void)st;
  ExprId x = var("x"), y = var("y");
  assert_int_equal(ex_add(c, x, y), ex_add(c, x, y));
  assert_int_not_equal(ex_add(c, x, y), ex_add(c, y, x));
  int32_t before = ir_count(c);
  IrMark m = ir_mark(c);
  for (int round = 0; round < 3; round++) {
    ExprId e = x;
    for (int i = 0; i < 1000; i++) e = ex_add(c, ex_mul(c, e, in(3 + i)), y);
    char *first = ex_text(c, e);
    assert_true(strlen(first) > 5000);
    ir_release(c, m);
    assert_int_equal(ir_count(c), before);
  }
  ExprId sum = ex_add(c, x, y);
  IrCtx *d = ir_clone(c, &err);
  assert_int_equal(ex_add(d, x, y), sum);
  ExprId more = ex_mul(d, sum, ex_i32(d, 5));
  assert_string_equal(ex_text(d, more), "((x + y)*5)");
  assert_int_equal(ir_count(c), before);
  ir_free(d);
}

static ExprId deep(ExprId x, int n) {
  for (int i = 0; i < n; i++) x = ex_add(c, x, x);
  return x;
}
static void deep_body(void *p) { deep(*(ExprId *)p, 100000); }

static void count_visit(IrCtx *k, ExprId e, void *arg) {
  (void)k;
  (void)e;
  ++*(int *)arg;
}
static ExprId double_lit(IrCtx *k, ExprId e, void *arg) {
  (void)arg;
  int64_t v;
  return ir_kind(k, e) == IR_INT && ex_const_int(k, e, &v) ? ex_i32(k, 2 * v) : e;
}

static void rewriting(void **st) {
  (void)st;
  VarId xv = ir_var_new(c, "x", DT_I32, false);
  ExprId x = ex_var(c, xv), y = var("y");
  ExprId e = deep(x, 50);
  int n = 0;
  ex_post_order(c, e, count_visit, &n);
  assert_int_equal(n, 51);
  VarSub s = {xv, in(0)};
  assert_int_equal(ex_subst(c, e, 1, &s), in(0));
  assert_true(ex_uses_var(c, e, xv));
  assert_false(ex_uses_var(c, y, xv));
  text(ex_map(c, ex_add(c, ex_mul(c, x, in(3)), in(1)), double_lit, NULL), "((x*6) + 2)");
  assert_int_equal(err_try(&err, deep_body, &x), NS_ERR_VALUE);
  text(ex_map(c, ex_add(c, x, in(1)), double_lit, NULL), "(x + 2)");
}

static void reductions(void **st) {
  (void)st;
  VarId l = ir_var_new(c, "x", DT_F32, false), r = ir_var_new(c, "y", DT_F32, false),
        k = ir_var_new(c, "k", DT_I32, false);
  ExprId res = ex_add(c, ex_var(c, l), ex_var(c, r)), id = ex_flt(c, DT_F32, 0), shape = in(8);
  ReducerId red = ir_reducer_new(c, (IrReducer){1, &l, &r, &res, &id, NULL});
  TensorId t = ir_tensor_new(c, (IrTensor){.name = "A", .type = DT_F32, .rank = 1, .shape = &shape});
  ExprId kk = ex_var(c, k), src = ex_read(c, t, 1, &kk);
  IrAxis ax = {k, in(0), in(8)};
  ExprId e = ex_reduce(c, (IrReduce){red, 1, &src, NULL, 1, &ax, 0, 0, 0, 0});
  assert_int_equal(e, ex_reduce(c, (IrReduce){red, 1, &src, NULL, 1, &ax, 0, 0, 0, 0}));
  text(e, "reduce(combiner=comm_reducer(result=[(x + y)], lhs=[x], rhs=[y], identity_element=[0f]), source=[A[k]], "
          "init=[], "
          "axis=[iter_var(k, range(min=0, ext=8))], where=(bool)1, value_index=0)");
  VarSub s = {k, var("q")};
  ExprId f = ex_subst(c, e, 1, &s);
  assert_string_equal(ex_text(c, ir_reduce(c, f)->src[0]), "A[q]");
  Err err2;
  err_init(&err2);
  IrCtx *d = ir_new(&err2);
  Arena *a = arena_new(&err2);
  MapU64 vars, tensors, memo;
  mapu_init(&vars, a), mapu_init(&tensors, a), mapu_init(&memo, a);
  ExprId g = ex_import(d, c, e, &vars, &tensors, &memo);
  assert_string_equal(ex_text(d, g), ex_text(c, e));
  arena_free(a);
  ir_free(d);
}

/* The neutral element of a maximum prints as the lowest number and computes as the infinity, wherever it goes. */
static void neutral_elements(void **st) {
  (void)st;
  ExprId low = ex_neutral(c, DT_F32, false), high = ex_neutral(c, DT_F32, true), number = dtype_min_value(c, DT_F32);
  text(low, "-3.40282e+38f");
  assert_int_not_equal(low, number);
  assert_true(ir_flt(c, low) == -INFINITY && ir_flt(c, high) == INFINITY && ir_flt(c, number) > -INFINITY);
  assert_int_equal(ex_neutral(c, DT_I8, false), dtype_min_value(c, DT_I8));
  ExprId x = ex_var(c, ir_var_new(c, "x", DT_F32, false)), e = ex_bin(c, IR_MAX, low, x);
  text(e, "max(-3.40282e+38f, x)");
  VarSub s = {ir_node(c, x)->sym, low};
  assert_true(ir_flt(c, ex_subst(c, x, 1, &s)) == -INFINITY);
  assert_true(ir_flt(c, ex_cast(c, DT_F16, low)) == -INFINITY);
  assert_true(ir_flt(c, ex_bin(c, IR_MAX, low, number)) == ir_flt(c, number));
  ExprId nan = ex_flt(c, DT_F32, NAN), one = ex_flt(c, DT_F32, 1);
  const ExprId pair[3][2] = {{nan, one}, {one, nan}, {nan, nan}};
  for (int i = 0; i < 3; i++) {
    assert_true(isnan(ir_flt(c, ex_bin(c, IR_MIN, pair[i][0], pair[i][1]))));
    assert_true(isnan(ir_flt(c, ex_bin(c, IR_MAX, pair[i][0], pair[i][1]))));
  }
}

static ExprId plus_one(IrCtx *k, ExprId e, void *arg) {
  (void)arg;
  return dtype_eq(ir_type(k, e), DT_I32) ? ex_add(k, e, ex_i32(k, 1)) : e;
}

static void statements(void **st) {
  (void)st;
  VarId i = ir_var_new(c, "i", DT_I32, false);
  ExprId ext = in(4), ie = ex_var(c, i);
  BufferId b = ir_buffer_new(
      c, (IrBuffer){.name = "B", .type = DT_F32, .scope = SC_GLOBAL, .external = true, .rank = 1, .extent = &ext});
  Stmt *store = st_store(c, b, 1, &ie, ex_load(c, b, DT_F32, 1, &ie));
  Stmt *loop = st_for(c, i, in(0), ext, FOR_PARALLEL, st_seq(c, 2, (Stmt *[]){store, NULL}));
  StrBuf sb;
  sb_init(&sb, ir_arena(c));
  st_print(c, &sb, loop, 0);
  assert_string_equal(sb_str(&sb), "parallel (i, 0, 4) {\n  B[i] = B[i]\n}\n");
  ir_verify(c, loop, false, false);
  assert_ptr_equal(st_map(c, loop, NULL, NULL, NULL), loop);
  sb_init(&sb, ir_arena(c));
  st_print(c, &sb, st_map(c, loop, NULL, plus_one, NULL), 0);
  assert_string_equal(sb_str(&sb), "parallel (i, 1, 5) {\n  B[(i + 1)] = B[(i + 1)]\n}\n");
}

typedef struct {
  Stmt *s;
  bool flat;
} VerifyArg;
static void verify_body(void *p) { ir_verify(c, ((VerifyArg *)p)->s, ((VerifyArg *)p)->flat, false); }
static void broken(Stmt *s, bool flat, const char *part) {
  VerifyArg v = {s, flat};
  assert_int_equal(err_try(&err, verify_body, &v), part ? NS_ERR_INTERNAL : NS_OK);
  if (part && !strstr(err.msg, part)) fail_msg("'%s' does not say '%s'", err.msg, part);
}

static void verifier(void **st) {
  (void)st;
  VarId i = ir_var_new(c, "i", DT_I32, false);
  ExprId four = in(4), ie = ex_var(c, i), two[2] = {ie, ie}, zero = ex_flt(c, DT_F32, 0);
  BufferId b = ir_buffer_new(c, (IrBuffer){.name = "B", .type = DT_F32, .rank = 1, .extent = &four, .external = true});
  BufferId l = ir_buffer_new(c, (IrBuffer){.name = "L", .type = DT_F32, .rank = 1, .extent = &four});
  Stmt *store = st_store(c, b, 1, &ie, zero), *local = st_store(c, l, 1, &ie, zero);
  broken(st_for(c, i, in(0), four, FOR_SERIAL, store), true, NULL);
  broken(st_for(c, i, in(0), four, FOR_SERIAL, st_for(c, i, in(0), four, FOR_SERIAL, store)), false, "bound twice");
  broken(st_seq(c, 2, (Stmt *[]){st_for(c, i, in(0), four, FOR_SERIAL, store), store}), false,
         "outside of the node that binds it");
  broken(local, false, "outside of its allocation");
  broken(st_alloc(c, l, local), false, NULL);
  broken(st_alloc(c, l, st_alloc(c, l, local)), false, "allocated twice");
  broken(st_store(c, b, 2, two, zero), false, "dimensions");
  broken(st_store(c, b, 1, &ie, ie), false, "another type");
  broken(st_if(c, ie, false, store, NULL), false, "not bool");
  ExprId ramp = ex_ramp(c, ie, in(1), 4);
  broken(st_store(c, b, 1, &ramp, zero), true, "lanes");
  broken(st_store(c, b, 1, &ramp, ex_bcast(c, zero, 4)), true, NULL);
  broken(st_store(c, b, 1, &ie, ex_raw(c, IR_ADD, DT_F32, 0, 2, (ExprId[]){zero, ie})), true, "types differ");
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {T(folding),    T(matching),         T(errors),     T(sharing), T(rewriting),
                                     T(reductions), T(neutral_elements), T(statements), T(verifier)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
