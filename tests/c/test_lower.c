/* Lowering from C: a tiled GPU matrix product becomes one kernel with the expected launch, memory and barriers, its
 * check agrees, every pass keeps its invariants, and wrong programs are refused with a reason.
 */
#include "fixture.h"
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
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

static void build(void *arg) {
  Fix *f = arg;
  f->d = product(f->c);
}
SETUP_AND_TEARDOWN(Fix, build)

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
    low_run(&g, pass[i].run);
    ir_verify(f->c, g.body, g.flat, false);
  }
  f->p = low_build(loops(f, false), "mm");
  f->text = low_primfn(loops(f, false));
}
static bool count_barrier(IrCtx *c, const Stmt *s, void *arg) {
  *(int *)arg += s->kind == ST_EVAL && ir_node(c, s->u.eval.e)->sym == IN_SYNC_SHARED;
  return true;
}
static int barriers(IrCtx *c, const Stmt *s) {
  int n = 0;
  st_visit(c, s, count_barrier, NULL, &n);
  return n;
}

static void gpu_kernel(void **state) {
  Fix *f = *state;
  f->steps = GPU;
  f->t = target_default(TG_CUDA, 90);
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
  f->t = target_default(TG_CUDA, 90);
  assert_int_equal(err_try(&f->err, run, f), NS_ERR_VALUE);
  assert_non_null(strstr(f->err.msg, "bind"));
}
static void shared_memory_plan_limits(void **state) {
  Fix *f = *state;
  f->steps = GPU;
  f->t = target_default(TG_CUDA, 90);
  f->t.hw.max_shared_memory_per_block = 16;
  assert_int_equal(err_try(&f->err, run, f), NS_OK);
  assert_false(f->check.ok);
  assert_non_null(strstr(f->check.why, "shared"));
}

/* A pass that leaves a broken program ends the process where contexts verify, in clones and behind imported DAGs as well. */
static Stmt *without_allocations(IrCtx *c, Stmt *s, void *arg) {
  return s->kind == ST_ALLOC ? s->u.alloc.body : st_rewrite(c, s, without_allocations, NULL, arg);
}
static void break_and_pass(void *arg) {
  Fix *f = arg;
  Func g = loops(f, false);
  g.body = without_allocations(f->c, g.body, NULL);
  low_run(&g, pass_simplify);
}
static void broken_programs_end_the_process(void **state) {
  Fix *f = *state, g = {.steps = GPU, .t = target_default(TG_CUDA, 90)};
  bool was = ir_verifies(f->c);
  for (int on = 0; on < 2; on++) {
    ir_set_verify(f->c, on);
    pid_t pid = fork();
    if (pid == 0) {
      if (!freopen("/dev/null", "w", stderr)) _exit(3);
      err_init(&g.err);
      g.c = ir_new(&g.err); /* cmocka's handlers are of no use here: the parent looks at how this ends */
      g.d = te_dag_import(g.c, f->c, f->d);
      signal(SIGABRT, SIG_DFL);
      _exit(err_try(&g.err, break_and_pass, &g) == NS_OK ? 0 : 1);
    }
    int status = -1;
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_true(on ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT
                   : WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  ir_set_verify(f->c, was);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpu_kernel), cmocka_unit_test(cpu_program),
                                     cmocka_unit_test(unbound_gpu_program), cmocka_unit_test(shared_memory_plan_limits),
                                     cmocka_unit_test(broken_programs_end_the_process)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
