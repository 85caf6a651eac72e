/* te: operations, DAG order, import into another context, rewriting helpers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "te/te.h"

typedef struct {
  Err err;
  IrCtx *c;
  TensorId a, b;
  TeOp *sum, *relu, *gate;
  TeDag *dag, *gated;
} Fix;

static TeAxis axis(IrCtx *c, const char *name, int64_t extent) {
  return (TeAxis){name, ir_var_new(c, name, DT_I32, false), ex_i32(c, 0), ex_i32(c, extent)};
}

/* C(i, j) += A[i, k] * B[k, j]; D(i, j) = max(C[i, j], 0f); gated: E(i, j) = C[i, j] * D[i, j] */
static void build(void *arg) {
  Fix *f = arg;
  IrCtx *c = f->c;
  ExprId sa[] = {ex_i32(c, 8), ex_i32(c, 32)}, sb[] = {ex_i32(c, 32), ex_i32(c, 16)};
  f->a = te_placeholder(c, "A", DT_F32, 2, sa)->out[0];
  f->b = te_placeholder(c, "B", DT_F32, 2, sb)->out[0];
  TeAxis ij[] = {axis(c, "i", 8), axis(c, "j", 16)};
  TeAxis k = axis(c, "k", 32);
  ExprId i = ex_var(c, ij[0].var), j = ex_var(c, ij[1].var), kk = ex_var(c, k.var);
  VarId x = ir_var_new(c, "x", DT_F32, false), y = ir_var_new(c, "y", DT_F32, false);
  ExprId result = ex_add(c, ex_var(c, x), ex_var(c, y)), zero = ex_flt(c, DT_F32, 0);
  ReducerId red = ir_reducer_new(c, (IrReducer){.n = 1, .lhs = &x, .rhs = &y, .result = &result, .identity = &zero});
  ExprId ik[] = {i, kk}, kj[] = {kk, j}, at[] = {i, j};
  ExprId src = ex_mul(c, ex_read(c, f->a, 2, ik), ex_read(c, f->b, 2, kj));
  IrAxis ka = {k.var, k.min, k.extent};
  ExprId body = ex_reduce(
      c, (IrReduce){.reducer = red, .n_src = 1, .src = &src, .n_axis = 1, .axis = &ka, .cond = ex_int(c, DT_BOOL, 1)});
  TeAttr attr = {.key = "layout_free_placeholders", .kind = TA_TENSORS, .n = 1, .tensors = &f->b};
  f->sum = te_compute(c, "C", "", 2, ij, 1, &body, 1, &attr);
  TeAxis mn[] = {axis(c, "i", 8), axis(c, "j", 16)};
  at[0] = ex_var(c, mn[0].var), at[1] = ex_var(c, mn[1].var);
  ExprId d = ex_bin(c, IR_MAX, ex_read(c, f->sum->out[0], 2, at), zero);
  f->relu = te_compute(c, "D", "", 2, mn, 1, &d, 0, NULL);
  TensorId list[] = {f->a, f->b, f->relu->out[0]};
  f->dag = te_dag(c, 3, list);
  TeAxis pq[] = {axis(c, "i", 8), axis(c, "j", 16)};
  at[0] = ex_var(c, pq[0].var), at[1] = ex_var(c, pq[1].var);
  ExprId both = ex_mul(c, ex_read(c, f->sum->out[0], 2, at), ex_read(c, f->relu->out[0], 2, at));
  f->gate = te_compute(c, "E", "", 2, pq, 1, &both, 0, NULL);
  f->gated = te_dag(c, 3, (TensorId[]){f->a, f->b, f->gate->out[0]});
}

static int setup(void **state) {
  static Fix f;
  memset(&f, 0, sizeof f);
  err_init(&f.err);
  f.c = ir_new(&f.err);
  *state = &f;
  return err_try(&f.err, build, &f) == NS_OK ? 0 : -1;
}
static int teardown(void **state) {
  ir_free(((Fix *)*state)->c);
  return 0;
}

static const char TEXT[] = "A = PLACEHOLDER [8, 32]\nB = PLACEHOLDER [32, 16]\n"
                           "C(i, j) += (A[i, k]*B[k, j])\nD(i, j) = max(C[i, j], 0f)\n";

static void test_dag(void **state) {
  Fix *f = *state;
  assert_string_equal(te_dag_text(f->c, f->dag, false), TEXT);
  assert_true(f->dag->flop == 2 * 8 * 16 * 32 + 8 * 16);
  assert_int_equal(f->dag->n_edges, 3);
  assert_int_equal(te_dag_op_of(f->c, f->dag, f->sum->out[0]), 2);
  assert_true(f->dag->flags[2].needs_tiling && !f->dag->flags[2].is_output && f->dag->flags[3].is_output);
  int out[4];
  assert_int_equal(te_consumers(f->dag, 0, out), 1);
  assert_int_equal(out[0], 2);
  assert_int_equal(te_producers(f->dag, 2, out), 2);
  assert_int_equal(out[1], 1);
  assert_int_equal(te_common_outer(f->dag, 0, 3), 1);
  assert_int_equal(te_common_outer(f->dag, 1, 3), 0);
  assert_int_equal(te_common_outer(f->dag, 3, 0), 0);
  for (int branches = 0; branches < 2; branches++) {
    assert_true(te_elementwise_match(f->c, f->dag, 2, 3, branches) &&
                te_elementwise_match(f->c, f->dag, 3, 3, branches));
    assert_false(te_elementwise_match(f->c, f->dag, 0, 3, branches) ||
                 te_elementwise_match(f->c, f->dag, 3, 2, branches));
  }
}

static void test_elementwise_branches(void **state) {
  Fix *f = *state;
  assert_int_equal(te_dag_find(f->gated, f->gate), 4);
  assert_false(te_elementwise_match(f->c, f->gated, 2, 4, false));
  assert_true(te_elementwise_match(f->c, f->gated, 2, 4, true));
  assert_false(te_elementwise_match(f->c, f->gated, 2, 3, true)); /* E reads it, too */
  assert_true(te_elementwise_match(f->c, f->gated, 3, 4, true) && te_elementwise_match(f->c, f->gated, 3, 4, false));
}

static void import(void *arg) {
  Fix *f = ((void **)arg)[0];
  IrCtx *dst = ((void **)arg)[1];
  ((void **)arg)[2] = te_dag_import(dst, f->c, f->dag);
}

static void test_import(void **state) {
  Fix *f = *state;
  Err err;
  err_init(&err);
  IrCtx *dst = ir_new(&err);
  void *arg[3] = {f, dst, NULL};
  assert_int_equal(err_try(&err, import, arg), NS_OK);
  TeDag *d = arg[2];
  assert_string_equal(te_dag_text(dst, d, false), TEXT);
  assert_string_equal(te_workload_key(dst, d), te_workload_key(f->c, f->dag));
  assert_true(d->flop == f->dag->flop);
  const TeAttr *a = te_attr(d->op[2], "layout_free_placeholders");
  assert_true(a && a->n == 1 && a->tensors[0] == d->op[1]->out[0]);
  assert_ptr_equal(te_op_of(dst, d->tensor[2]), d->op[3]);
  ir_free(dst);
}

static void test_rewrite(void **state) {
  Fix *f = *state;
  IrCtx *c = f->c;
  /* A copy of A is put in front of C, as a cache read does. */
  TeAxis ax[] = {axis(c, "ax0", 8), axis(c, "ax1", 32)};
  ExprId at[] = {ex_var(c, ax[0].var), ex_var(c, ax[1].var)}, copy = ex_read(c, f->a, 2, at);
  TeOp *shared = te_compute(c, "A.shared", "", 2, ax, 1, &copy, 0, NULL);
  ExprId body = te_replace_tensor(c, f->sum->body[0], f->a, shared->out[0]);
  TeOp *sum = te_op_with_body(c, f->sum, &body);
  assert_int_equal(sum->n_in, 2);
  assert_int_equal(sum->in[0], shared->out[0]);
  assert_int_equal(sum->n_red, 1);
  ExprId dbody = te_replace_tensor(c, f->relu->body[0], f->sum->out[0], sum->out[0]);
  TeOp *relu = te_op_with_body(c, f->relu, &dbody);
  TeOp *ops[] = {f->dag->op[0], shared, f->dag->op[1], sum, relu};
  TeDag *d = te_dag_rewritten(c, 5, ops);
  assert_int_equal(d->n_tensors, 3);
  assert_true(d->flags[4].is_output && !d->flags[3].is_output && d->flags[1].strictly_inlineable);
  /* ... and inlined away again. */
  ExprId back = te_inline_reads(c, body, shared, shared->body);
  assert_int_equal(back, f->sum->body[0]);
}

static void bad_names(void *arg) {
  Fix *f = arg;
  TeAxis ax[] = {axis(f->c, "i", 4), axis(f->c, "i", 4)};
  ExprId zero = ex_i32(f->c, 0);
  TeOp *op = te_compute(f->c, "X", "", 2, ax, 1, &zero, 0, NULL);
  te_dag(f->c, 1, op->out);
}
static void bad_inline(void *arg) {
  Fix *f = arg;
  te_inline_reads(f->c, f->relu->body[0], f->sum, f->sum->body);
}
static void bad_extent(void *arg) {
  Fix *f = arg;
  te_const(f->c, ex_var(f->c, ir_var_new(f->c, "n", DT_I32, false)));
}
static void test_errors(void **state) {
  Fix *f = *state;
  assert_int_equal(err_try(&f->err, bad_names, f), NS_ERR_VALUE);
  assert_non_null(strstr(f->err.msg, "two iterators named 'i'"));
  assert_int_equal(err_try(&f->err, bad_inline, f), NS_ERR_VALUE);
  assert_int_equal(err_try(&f->err, bad_extent, f), NS_ERR_VALUE);
  assert_non_null(strstr(f->err.msg, "extent n is not a constant"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_dag, setup, teardown),
      cmocka_unit_test_setup_teardown(test_elementwise_branches, setup, teardown),
      cmocka_unit_test_setup_teardown(test_import, setup, teardown),
      cmocka_unit_test_setup_teardown(test_rewrite, setup, teardown),
      cmocka_unit_test_setup_teardown(test_errors, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
