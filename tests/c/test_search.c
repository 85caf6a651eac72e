/* Search and tune from C, so that sanitizers see them: rounds on CPU and GPU targets with several threads, equal results for
 * any number of threads, refusal of an unsatisfiable task, measured states fed back, the reference program, and a session
 * that builds and runs what a round proposes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "tune/tune.h"

typedef struct {
  Err err;
  IrCtx *c;
  TeDag *d;
  Arena *a;
  Target t;
  int threads;
  uint64_t seed;
  StateList out;
  StateList out2;
} Fix;

static const HwParams GPU_HW = {-1, 16, 64, 49152, 2147483647, 1024, 8, 32}, CPU_HW = {2, 64, 64, 0, 0, 0, 0, 0};

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
  f->a = arena_new(&f->err);
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
  Fix *f = *state;
  arena_free(f->a);
  ir_free(f->c);
  return 0;
}

typedef struct {
  Fix *f;
  SearchTask *t;
  Policy *p;
  Pool *pool;
} Run;
static void two_rounds(void *arg) {
  Run *r = arg;
  Fix *f = r->f;
  SearchParams par = search_params_default();
  par.population = 256, par.num_iters = 2;
  r->t = task_new(&f->err, f->c, f->d, &f->t);
  if (f->threads > 1) r->pool = pool_new(f->threads, &f->err);
  r->p = policy_new(&f->err, r->t, &par, f->seed, r->pool);
  f->out = policy_round(r->p, f->a, 12);
  for (int i = 0; i < f->out.n; i++) {
    const char *why;
    assert_true(policy_check(r->p, f->out.n_step[i], f->out.step[i], &why));
    policy_report(r->p, f->out.n_step[i], f->out.step[i], 1e-3 / (i + 1), i % 3 != 0);
  }
  f->out2 = policy_round(r->p, f->a, 12);
}
static ErrCode rounds(Fix *f, TargetKind kind, int threads) {
  f->t = (Target){.kind = kind, .hw = kind == TG_CPU ? CPU_HW : GPU_HW, .sm = 90};
  f->threads = threads, f->seed = 7;
  Run r = {.f = f};
  ErrCode c = err_try(&f->err, two_rounds, &r);
  policy_free(r.p);
  pool_free(r.pool);
  task_free(r.t);
  return c;
}
static char *text_of(Fix *f, const StateList *l) {
  StrBuf b;
  sb_init(&b, f->a);
  for (int i = 0; i < l->n; i++) sb_puts(&b, steps_text(f->a, l->n_step[i], l->step[i]));
  return sb_str(&b);
}

static void equal_for_any_number_of_threads(void **state) {
  Fix *f = *state;
  TargetKind kinds[] = {TG_CPU, TG_CUDA};
  for (int k = 0; k < 2; k++) {
    assert_int_equal(rounds(f, kinds[k], 1), NS_OK);
    assert_int_equal(f->out.n, 12);
    char *one = text_of(f, &f->out), *two = text_of(f, &f->out2);
    assert_int_equal(rounds(f, kinds[k], 3), NS_OK);
    assert_string_equal(one, text_of(f, &f->out));
    assert_string_equal(two, text_of(f, &f->out2));
  }
}

static void sample_bad(void *arg) {
  Run *r = arg;
  SearchParams par = search_params_default();
  Target t = {.kind = TG_CUDA, .hw = GPU_HW, .sm = 90};
  t.hw.max_threads_per_block = 1;
  r->t = task_new(&r->f->err, r->f->c, r->f->d, &t);
  r->p = policy_new(&r->f->err, r->t, &par, 1, NULL);
  policy_sample(r->p, r->f->a);
}
static void unsatisfiable_task_is_refused(void **state) {
  Run r = {.f = *state};
  assert_int_equal(err_try(&r.f->err, sample_bad, &r), NS_ERR_VALUE);
  assert_non_null(strstr(r.f->err.msg, "no valid program"));
  policy_free(r.p);
  task_free(r.t);
}

typedef struct {
  Fix *f;
  void *data[3];
  Session *s;
  int task, bad;
  PipeResult got[16];
  int n;
} Measure;
static void reference(void *arg) {
  Measure *m = arg;
  tune_reference(m->f->a, m->f->c, m->f->d, 1, NULL, m->data);
}
static void reference_is_the_product(void **state) {
  Measure m = {.f = *state};
  assert_int_equal(err_try(&m.f->err, reference, &m), NS_OK);
  const float *a = m.data[0], *b = m.data[1], *c = m.data[2];
  for (int i = 0; i < 64; i++)
    for (int j = 0; j < 128; j++) {
      float s = 0;
      for (int k = 0; k < 32; k++) s += a[i * 32 + k] * b[k * 128 + j];
      assert_true(s == c[i * 128 + j]);
    }
}

static void submit(void *arg) {
  Measure *m = arg;
  Fix *f = m->f;
  tune_reference(f->a, f->c, f->d, 1, NULL, m->data);
  m->s = session_new(&f->err, &f->t, DEV_CPU, 0, 2, NULL);
  m->task = session_task(m->s, &f->err, f->c, f->d, &f->t, 0, m->data);
  RunPolicy p = {.number = 1, .repeat = 1, .timeout_s = 20, .check = true};
  session_submit(m->s, &f->err, m->task, 3, (const Step *const *)f->out.step, f->out.n_step, 10, &p);
  Step broken = {.kind = STEP_CI, .stage = 99};
  const Step *list = &broken;
  int one = 1;
  session_submit(m->s, &f->err, m->task, 1, &list, &one, 13, &p);
  while (session_pending(m->s) > 0) m->n += session_poll(m->s, 0.5, m->got + m->n, 16 - m->n);
}
static void session_measures_and_names_failures(void **state) {
  Measure m = {.f = *state};
  assert_int_equal(rounds(m.f, TG_CPU, 1), NS_OK);
  assert_int_equal(err_try(&m.f->err, submit, &m), NS_OK);
  session_free(m.s);
  assert_int_equal(m.n, 4);
  for (int i = 0; i < m.n; i++) {
    if (m.got[i].tag == 13)
      assert_int_equal(m.got[i].run.error, ME_INSTANTIATION);
    else {
      assert_int_equal(m.got[i].run.error, ME_OK);
      assert_true(m.got[i].run.n_costs == 1 && m.got[i].run.cost[0] > 0);
    }
  }
}

int main(int argc, char **argv) {
  int rc = worker_main_if_asked(argc, argv);
  if (rc >= 0) return rc;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_for_any_number_of_threads), cmocka_unit_test(unsatisfiable_task_is_refused),
      cmocka_unit_test(reference_is_the_product), cmocka_unit_test(session_measures_and_names_failures)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
