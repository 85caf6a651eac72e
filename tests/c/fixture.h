/* What several C tests begin with: the headers in the order that cmocka wants, a matrix product as a DAG, steps that tile it
 * for a GPU, and the pair of functions that make and free a context.
 */
#ifndef NS_TEST_FIXTURE_H
#define NS_TEST_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "te/te.h"

/* C(i, j) += A[i, k] * B[k, j], 64 x 128 x 32. B is free of layout, as weights are. */
static inline TeDag *product(IrCtx *c) {
  ExprId n = ex_i32(c, 64), m = ex_i32(c, 128), kk = ex_i32(c, 32), zero = ex_i32(c, 0);
  TensorId a = te_placeholder(c, "A", DT_F32, 2, (ExprId[]){n, kk})->out[0],
           b = te_placeholder(c, "B", DT_F32, 2, (ExprId[]){kk, m})->out[0];
  VarId x = ir_var_new(c, "x", DT_F32, false), y = ir_var_new(c, "y", DT_F32, false);
  ExprId sum = ex_add(c, ex_var(c, x), ex_var(c, y)), none = ex_flt(c, DT_F32, 0);
  ReducerId r = ir_reducer_new(c, (IrReducer){.n = 1, .lhs = &x, .rhs = &y, .result = &sum, .identity = &none});
  TeAxis ax[2] = {{"i", ir_var_new(c, "i", DT_I32, false), zero, n}, {"j", ir_var_new(c, "j", DT_I32, false), zero, m}};
  IrAxis k = {ir_var_new(c, "k", DT_I32, false), zero, kk};
  ExprId i = ex_var(c, ax[0].var), j = ex_var(c, ax[1].var), kv = ex_var(c, k.var);
  ExprId src = ex_mul(c, ex_read(c, a, 2, (ExprId[]){i, kv}), ex_read(c, b, 2, (ExprId[]){kv, j}));
  ExprId body = ex_reduce(
      c, (IrReduce){.reducer = r, .n_src = 1, .src = &src, .n_axis = 1, .axis = &k, .cond = ex_int(c, DT_BOOL, 1)});
  TeAttr attr = {.key = "layout_free_placeholders", .kind = TA_TENSORS, .n = 1, .tensors = &b};
  TeOp *op = te_compute(c, "C", "", 2, ax, 1, &body, 1, &attr);
  return te_dag(c, 3, (TensorId[]){a, b, op->out[0]});
}

/* Defines setup and teardown for cmocka: a static Fix, which has `err` and `c`, and in it what `build` makes. */
#define SETUP_AND_TEARDOWN(Fix, build)                                                                                 \
  static int setup(void **state) {                                                                                     \
    static Fix f;                                                                                                      \
    err_init(&f.err);                                                                                                  \
    f.c = ir_new(&f.err);                                                                                              \
    assert_int_equal(err_try(&f.err, build, &f), NS_OK);                                                               \
    *state = &f;                                                                                                       \
    return 0;                                                                                                          \
  }                                                                                                                    \
  static int teardown(void **state) {                                                                                  \
    ir_free(((Fix *)*state)->c);                                                                                       \
    return 0;                                                                                                          \
  }

/* Steps that tile the product for a GPU: local accumulation, operands through shared memory, threads and virtual threads. */
__attribute__((unused)) static const char GPU[] =
    "[[\"CHW\",2,\"local\"],[\"SP\",2,0,64,[1,8,2,1],1],[\"SP\",2,5,128,[2,8,1,2],1],[\"SP\",2,10,32,[4,1],1],"
    "[\"RE\",2,[0,5,1,6,2,7,10,11,3,8,12,4,9]],[\"FSP\",3,0,1,3],[\"FSP\",3,4,2,3],[\"RE\",3,[0,4,1,5,2,6,3,7]],["
    "\"CA\",2,3,5],"
    "[\"CHR\",1,\"shared\",[2]],[\"CA\",2,3,6],[\"CHR\",0,\"shared\",[3]],[\"CA\",1,4,6],[\"FU\",5,[0,1]],[\"AN\",5,0,"
    "5],"
    "[\"FU\",5,[1,2]],[\"AN\",5,1,4],[\"FU\",5,[2,3]],[\"AN\",5,2,6],[\"FU\",3,[0,1]],[\"SP\",3,0,8,[2],1],[\"AN\",3,1,"
    "2],"
    "[\"FFSP\",3,0,[1,2],1,1],[\"AN\",3,1,6],[\"FU\",1,[0,1]],[\"SP\",1,0,8,[1],1],[\"AN\",1,1,2],[\"FFSP\",1,0,[1,2],"
    "1,1],"
    "[\"AN\",1,1,6],[\"PR\",4,0,\"auto_unroll_max_step$16\"]]";
#endif
