/* Lowering from C: a tiled GPU matrix product becomes one kernel with the expected launch, memory and barriers, its
 * check agrees, every pass keeps its invariants, and wrong programs are refused with a reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "lower/lower.h"

typedef struct {
  Err err;
  IrCtx *c;
  TeDag *d;
  const char *steps;
  Target t;
  Program p;
  GpuCheck check;
  char *text;
} Fix;

static const HwParams GPU_HW = {-1, 16, 64, 49152, 2147483647, 1024, 8, 32};

static void build(void *arg) { /* C(i, j) += A[i, k] * B[k, j], 64 x 128 x 32 */
  Fix *f = arg;
  IrCtx *c = f->c;
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
  TeOp *op = te_compute(c, "C", "", 2, ax, 1, &body, 0, NULL);
  f->d = te_dag(c, 3, (TensorId[]){a, b, op->out[0]});
}
static int setup(void **state) {
  static Fix f;
  err_init(&f.err);
  f.c = ir_new(&f.err);
  assert_int_equal(err_try(&f.err, build, &f), NS_OK);
  *state = &f;
  return 0;
}
static int teardown(void **state) {
  ir_free(((Fix *)*state)->c);
  return 0;
}

static const char GPU[] =
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
static const char CPU[] = "[[\"SP\",2,0,64,[7],1],[\"SP\",2,2,128,[32],1],[\"AN\",2,0,3],[\"AN\",2,3,2],[\"PR\",2,0,"
                          "\"auto_unroll_max_step$16\"]]";

static Func loops(Fix *f, bool features) {
  int n;
  Step *steps = steps_parse(ir_arena(f->c), f->steps, &n);
  State *s = state_replay(f->c, f->d, n, steps);
  state_infer_bounds(s);
  return low_loops(s, &f->t, f->d->n_tensors, f->d->tensor, features);
}
static void run(void *arg) {
  Fix *f = arg;
  f->check = low_gpu_check(loops(f, true));
  Func g = loops(f, false);
  int n;
  const LowPass *pass = low_passes(&n);
  for (int i = 0; i < n; i++) {
    pass[i].run(&g);
    ir_verify(f->c, g.body, g.flat);
  }
  f->p = low_build(loops(f, false), "mm");
  f->text = low_primfn(loops(f, false));
}
static int barriers(IrCtx *c, const Stmt *s) {
  if (!s) return 0;
  int n = 0;
  switch (s->kind) {
  case ST_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) n += barriers(c, s->u.seq.at[i]);
    return n;
  case ST_FOR: return barriers(c, s->u.loop.body);
  case ST_IF: return barriers(c, s->u.cond.then) + barriers(c, s->u.cond.other);
  case ST_LET: return barriers(c, s->u.let.body);
  case ST_ALLOC: return barriers(c, s->u.alloc.body);
  case ST_ATTR: return barriers(c, s->u.attr.body);
  case ST_EVAL: return ir_node(c, s->u.eval.e)->sym == IN_SYNC_SHARED;
  case ST_STORE: return 0;
  }
  return 0;
}

static void gpu_kernel(void **state) {
  Fix *f = *state;
  f->steps = GPU;
  f->t = (Target){.kind = TG_CUDA, .hw = GPU_HW, .sm = 90};
  assert_int_equal(err_try(&f->err, run, f), NS_OK);
  assert_int_equal(f->p.n_kernels, 1);
  const Kernel *k = &f->p.kernel[0];
  assert_string_equal(k->name, "mm_kernel0");
  assert_int_equal(k->n_param, 3);
  assert_int_equal(k->block[0], f->check.threads);
  assert_true(f->check.ok);
  assert_true(k->shared_bytes >= f->check.shared_bytes && f->check.shared_bytes > 0);
  assert_int_equal(k->local_bytes, f->check.local_bytes);
  assert_int_equal(barriers(f->c, k->body), 2);
  for (int i = 0; i < 3; i++) assert_int_equal(k->read_only[i], strcmp(ir_buffer(f->c, k->param[i])->name, "C") != 0);
  assert_non_null(strstr(f->text, "\"thread_extent\""));
}
static void cpu_program(void **state) {
  Fix *f = *state;
  f->steps = CPU;
  f->t = (Target){.kind = TG_CPU};
  assert_int_equal(err_try(&f->err, run, f), NS_OK);
  assert_int_equal(f->p.n_kernels, 1);
  assert_int_equal(f->p.n_work, 0);
  assert_true(f->check.ok);
  assert_non_null(strstr(f->text, "\"parallel\""));
}
static void unbound_gpu_program(void **state) {
  Fix *f = *state;
  f->steps = "[]";
  f->t = (Target){.kind = TG_CUDA, .hw = GPU_HW, .sm = 90};
  assert_int_equal(err_try(&f->err, run, f), NS_ERR_VALUE);
  assert_non_null(strstr(f->err.msg, "bind"));
}
static void shared_memory_plan_limits(void **state) {
  Fix *f = *state;
  f->steps = GPU;
  f->t = (Target){.kind = TG_CUDA, .hw = GPU_HW, .sm = 90};
  f->t.hw.max_shared_memory_per_block = 16;
  assert_int_equal(err_try(&f->err, run, f), NS_OK);
  assert_false(f->check.ok);
  assert_non_null(strstr(f->check.why, "shared"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpu_kernel), cmocka_unit_test(cpu_program),
                                     cmocka_unit_test(unbound_gpu_program),
                                     cmocka_unit_test(shared_memory_plan_limits)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
