/* measure: what candidates may do to a worker, and that the tuner always gets an answer and leaves nothing behind. */
#include "measure/pipeline.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define BUF(name)                                                                                                      \
  "{\"name\":\"" name "\",\"dtype\":\"float32\",\"shape\":[1024],\"bytes\":4096,\"align\":64,\"read_only\":false}"
#define MANIFEST                                                                                                       \
  "{\"format\":1,\"target\":\"c\",\"entry\":\"k\",\"args\":[" BUF("x") "," BUF(                                        \
      "y") "],\"work\":[],\"kernels\":["                                                                               \
           "{\"name\":\"k\",\"params\":[],\"grid\":[1,1,1],\"block\":[1,1,1]}]}"
#define BODY(s)                                                                                                        \
  "#include <stdint.h>\nint32_t k(void *const *args, void *const *work, void *par, void *pool) { const float *x = "    \
  "args[0]; float *y = args[1]; " s " return 0; }\n"
static const char *const GOOD = BODY("for (int i = 0; i < 1024; i++) y[i] = x[i] + 1;");

static const struct {
  const char *name, *source;
  MeasureError error;
  const char *cause;
} CASES[] = {
    {"good", BODY("for (int i = 0; i < 1024; i++) y[i] = x[i] + 1;"), ME_OK, ""},
    {"wrong", BODY("for (int i = 0; i < 1024; i++) y[i] = x[i] + (i != 77);"), ME_WRONG_ANSWER, "wrong-answer"},
    {"partial", BODY("for (int i = 0; i < 1023; i++) y[i] = x[i] + 1;"), ME_WRONG_ANSWER, "wrong-answer"},
    {"outside", BODY("for (int i = 0; i < 1030; i++) y[i] = x[i % 1024] + 1;"), ME_WRONG_ANSWER, "wrong-answer"},
    {"crash", BODY("*(volatile int *)8 = 1;"), ME_RUNTIME_DEVICE, "worker-died"},
    {"abort", BODY("__builtin_trap();"), ME_RUNTIME_DEVICE, "worker-died"},
    {"error code", BODY("if (x != y) return 5;"), ME_RUNTIME_DEVICE, "launch-failure"},
    {"endless", BODY("for (volatile unsigned i = 0;;) i++;"), ME_RUN_TIMEOUT, "run-timeout"},
    {"no symbol", "int other;", ME_COMPILE_DEVICE, "compiler-error"},
    {"syntax", "int k(", ME_COMPILE_HOST, "compiler-error"},
    {"good again", BODY("for (int i = 1023; i >= 0; i--) y[i] = x[i] + 1;"), ME_OK, ""}};

static const Target CPU = {.kind = TG_CPU};
static float X[1024], Y[1024];

static TaskData *task(Err *e) {
  for (int i = 0; i < 1024; i++) {
    X[i] = (float)i * 0.5f;
    Y[i] = X[i] + 1;
  }
  const size_t bytes[2] = {sizeof X, sizeof Y};
  const void *const data[2] = {X, Y};
  const bool out[2] = {false, true};
  const char *const dtype[2] = {"float32", "float32"};
  return task_data_new(e, 2, bytes, data, out, dtype, NULL);
}

/* limits that only a program which never ends reaches, however busy the machine is */
static const RunPolicy POLICY = {.number = 1, .repeat = 2, .min_repeat_ms = 5, .timeout_s = 60, .check = true},
                       HANGS = {.number = 1, .repeat = 1, .timeout_s = 1.5, .check = true};

static int children(void) { /* processes whose parent is this one */
  int n = 0;
  DIR *d = opendir("/proc");
  for (struct dirent *e; (e = readdir(d));) {
    char path[300];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
    FILE *f = atoi(e->d_name) > 0 ? fopen(path, "r") : NULL;
    if (!f) continue;
    if (fscanf(f, "%*d (%*[^)]) %*c %d", &parent) == 1 && parent == getpid()) n++;
    fclose(f);
  }
  closedir(d);
  return n;
}

static void body_pipeline(void *arg) {
  Err *e = arg;
  Pipeline *p = pipe_new(e, &CPU, DEV_CPU, 0, &(PipeOptions){.n_compile = 2, .build_timeout_s = 10, .cache_dir = ""});
  int t = pipe_task(p, task(e)), seen[NS_COUNT(CASES)] = {0}, n = 0;
  assert_true(strlen(pipe_device(p)->name) > 0);
  for (int i = 0; i < NS_COUNT(CASES); i++)
    pipe_submit(p, e, t, CASES[i].source, MANIFEST, i, CASES[i].error == ME_RUN_TIMEOUT ? &HANGS : &POLICY);
  double end = clock_now() + 240;
  while (pipe_pending(p) && clock_now() < end) {
    PipeResult r[4];
    int k = pipe_poll(p, 0.5, r, 4);
    for (int i = 0; i < k; i++, n++) {
      const RunResult *x = &r[i].run;
      if (x->error != CASES[r[i].tag].error || strcmp(x->cause, CASES[r[i].tag].cause) != 0)
        fail_msg("%s: error %d, cause %s, message %s", CASES[r[i].tag].name, (int)x->error, x->cause, x->msg);
      seen[r[i].tag]++;
      if (x->error == ME_OK) {
        assert_true(x->full && x->n_costs == 2 && x->cost[0] > 0 && x->cost[0] < 1 && x->quick > 0);
        assert_true(x->max_error == 0);
      }
    }
  }
  assert_int_equal(n, NS_COUNT(CASES));
  for (int i = 0; i < n; i++) assert_int_equal(seen[i], 1);
  pipe_submit(p, e, t, CASES[7].source, MANIFEST, 7,
              &(RunPolicy){.number = 1, .repeat = 1, .timeout_s = 1000}); /* left running */
  for (int i = 0; i < 5; i++) pipe_submit(p, e, t, GOOD, MANIFEST, 0, &POLICY);
  PipeResult r[1];
  pipe_poll(p, 0.5, r, 1);
  double t0 = clock_now();
  pipe_free(p);
  assert_true(clock_now() - t0 < 60); /* it would run for 1000 s; 0.2 s on an idle machine */
  assert_int_equal(children(), 0);
}

static void body_worker(void *arg) {
  Err *e = arg;
  Arena *a = arena_new(e);
  Worker *w = worker_start(e, DEV_CPU, 0);
  TaskData *t = task(e);
  Binary b = build_binary(a, &CPU, GOOD, &(BuildOptions){10, "", NULL, NULL});
  assert_int_equal(worker_run(w, 0, b.data, b.n, MANIFEST, &POLICY).error, ME_UNKNOWN); /* no task yet */
  worker_task(w, 0, t);
  worker_task(w, 1, t);
  assert_int_equal(worker_run(w, 0, b.data, b.n, MANIFEST, &POLICY).error, ME_OK);
  int pid = worker_pid(w);
  kill(pid, SIGKILL);
  RunResult r = worker_run(w, 1, b.data, b.n, MANIFEST, &POLICY);
  assert_true(r.error == ME_OK || strcmp(r.cause, "worker-died") == 0);
  assert_int_equal(worker_run(w, 1, b.data, b.n, MANIFEST, &POLICY).error, ME_OK);
  assert_true(worker_pid(w) != pid);
  kill(worker_pid(w), SIGSTOP); /* frozen: found by the deadline */
  assert_int_equal(
      worker_run(w, 0, b.data, b.n, MANIFEST, &(RunPolicy){.number = 1, .repeat = 1, .timeout_s = 0.2}).error,
      ME_RUN_TIMEOUT);
  RunPolicy hopeless = POLICY;
  hopeless.stop_above = 1e-9;
  hopeless.min_repeat_ms = 10000;
  r = worker_run(w, 0, b.data, b.n, MANIFEST, &hopeless);
  assert_true(r.error == ME_OK && !r.full && r.n_costs == 1 && r.seconds < 10);
  RunPolicy strict = {.number = 3, .repeat = 4, .min_repeat_ms = 0, .timeout_s = 60, .strict = true};
  r = worker_run(w, 0, b.data, b.n, MANIFEST, &strict);
  assert_true(r.error == ME_OK && r.n_costs == 4 && r.runs == 12);
  atomic_int stop = 1;
  worker_stop_flag(w, &stop);
  assert_int_equal(worker_run(w, 0, b.data, b.n, MANIFEST, &POLICY).error, ME_UNKNOWN);
  stop = 0;
  assert_int_equal(worker_run(w, 0, b.data, b.n, MANIFEST, &POLICY).error, ME_OK);
  worker_stop(w);
  task_data_free(t);
  arena_free(a);
  assert_int_equal(children(), 0);
}

static void body_compiler(void *arg) {
  Err *e = arg;
  char why[300], msg[MSR_MSG];
  const Target cuda = {.kind = TG_CUDA, .gpu.sm = 90};
  if (!build_available(&cuda, why, sizeof why)) skip();
  Arena *a = arena_new(e);
  Compiler *c = compiler_start(e);
  Binary b;
  BuildOptions o = {20, "", NULL, NULL};
  assert_int_equal(
      compiler_run(c, a, &cuda, "extern \"C\" __global__ void k(float *x) { x[threadIdx.x] = 1; }", &o, &b, msg),
      ME_OK);
  assert_memory_equal(b.data,
                      "\x7f"
                      "ELF",
                      4);
  assert_int_equal(compiler_run(c, a, &cuda, "nonsense", &o, &b, msg), ME_COMPILE_HOST);
  assert_non_null(strstr(msg, "nonsense"));
  o.timeout_s = 0.3; /* a program that NVRTC chews on for long */
  assert_int_equal(
      compiler_run(c, a, &cuda,
                   "template <int A, int B> struct F { static constexpr int v = F<A - 1, B>::v + F<A - 1, B + A>::v; };"
                   "template <int B> struct F<0, B> { static constexpr int v = B; };"
                   "extern \"C\" __global__ void k(int *x) { *x = F<120, 0>::v; }",
                   &o, &b, msg),
      ME_BUILD_TIMEOUT);
  assert_non_null(strstr(msg, "timed out"));
  o.timeout_s = 20;
  assert_int_equal(compiler_run(c, a, &cuda, "extern \"C\" __global__ void k(float *x) { x[0] = 1; }", &o, &b, msg),
                   ME_OK);
  compiler_stop(c);
  arena_free(a);
  assert_int_equal(children(), 0);
}

static void run(ErrBody body) {
  Err e;
  err_init(&e);
  ErrCode c = err_try(&e, body, &e);
  if (c) fail_msg("%s", e.msg);
}

static void test_pipeline(void **s) {
  (void)s;
  run(body_pipeline);
}
static void test_worker(void **s) {
  (void)s;
  run(body_worker);
}
static void test_compiler(void **s) {
  (void)s;
  run(body_compiler);
}

static void test_compare(void **s) {
  (void)s;
  float a[4] = {1, 2, 3, 4}, b[4] = {1, 2, 3, 4.0001f}, c[4] = {1, 2, 3, 4.1f}, n[4] = {1, 2, 3, NAN};
  assert_true(outputs_differ("float32", a, a, sizeof a) == 0);
  assert_true(outputs_differ("float32", b, a, sizeof a) < 1);
  assert_true(outputs_differ("float32", c, a, sizeof a) > 1);
  assert_true(outputs_differ("float32", n, a, sizeof a) > 1 && outputs_differ("float32", n, n, sizeof a) == 0);
  uint16_t h[2] = {0x3c00, 0x0001}, g[2] = {0x3c01, 0x0001}, f[2] = {0x4000, 1};
  assert_true(outputs_differ("float16", g, h, sizeof h) < 1 && outputs_differ("float16", f, h, sizeof h) > 1);
  int32_t i[1] = {7}, j[1] = {8};
  assert_true(outputs_differ("int32", i, i, 4) == 0 && outputs_differ("int32", i, j, 4) > 1);
}

/* Time is an argument here, so that nothing depends on the speed of the machine. */
static void body_turns(void *arg) {
  Err *e = arg;
  char dir[] = "/tmp/nestsmith-turns-XXXXXX", who[400], name[64];
  const DevInfo d = {.uuid = ""};
  assert_non_null(mkdtemp(dir));
  setenv("NESTSMITH_LOCK_DIR", dir, 1);
  DevLock *a = devlock_new(e, DEV_CPU, 7, &d), *b = devlock_new(e, DEV_CPU, 7, &d), *c = devlock_new(e, DEV_CPU, 7, &d);
  snprintf(name, sizeof name, "process %d of user", (int)getpid());
  assert_true(devlock_turn(a, 1, who, sizeof who) && devlock_turn(a, 1, who, sizeof who));
  assert_false(devlock_wanted(a) || devlock_turn(b, 1, who, sizeof who));
  assert_non_null(strstr(who, name));
  assert_true(devlock_wanted(a));
  for (int i = 0; i < 6; i++) { /* who gives it back does not get it again before the one that waits */
    DevLock *has = i % 2 ? b : a, *waits = i % 2 ? a : b;
    devlock_release(has);
    for (int k = 0; k < 1000; k++) assert_false(devlock_turn(has, 2, who, sizeof who));
    assert_null(strstr(who, name));
    assert_true(devlock_turn(waits, 2, who, sizeof who));
    assert_false(devlock_turn(has, 2, who, sizeof who));
  }
  assert_false(devlock_turn(c, 3, who, sizeof who)); /* a has it, b is next */
  devlock_free(b);                                   /* dies while it waits */
  assert_false(devlock_turn(c, 3, who, sizeof who));
  devlock_release(a);
  assert_false(devlock_turn(a, 3, who, sizeof who));
  assert_true(devlock_turn(c, 3, who, sizeof who));
  assert_false(devlock_turn(a, 4, who, sizeof who)); /* a is next now, and is never heard of again */
  devlock_release(c);
  int times[2] = {0, 0};
  for (int round = 0; round < 2; round++, devlock_release(c))
    while (!devlock_turn(c, 10 + 100 * round + ++times[round], who, sizeof who)) assert_true(times[round] < 100);
  assert_true(times[0] > 5 && times[1] == 2);         /* it is waited for, but not each time */
  assert_true(devlock_turn(a, 300, who, sizeof who)); /* back again */
  assert_false(devlock_turn(c, 300, who, sizeof who));
  devlock_leave(c);
  assert_false(devlock_wanted(a) || devlock_try(c, who, sizeof who));
  devlock_free(c);
  devlock_free(a);
  unsetenv("NESTSMITH_LOCK_DIR");
}
static void test_turns(void **s) {
  (void)s;
  run(body_turns);
}

/* What a forked child does with its copies is nothing to the parent. */
static int status_of(pid_t pid) {
  int status = -1;
  assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
  return status;
}
static void body_forks(void *arg) {
  Err *e = arg;
  char dir[] = "/tmp/nestsmith-forks-XXXXXX", who[400], c;
  const DevInfo d = {.uuid = ""};
  int life[2], born[2];
  assert_non_null(mkdtemp(dir));
  setenv("NESTSMITH_LOCK_DIR", dir, 1);
  assert_true(pipe(life) == 0 && pipe(born) == 0);
  DevLock *held = devlock_new(e, DEV_CPU, 7, &d), *other = devlock_new(e, DEV_CPU, 7, &d);
  Worker *w = worker_start(e, DEV_CPU, 0);
  Pipeline *p = pipe_new(e, &(Target){.kind = TG_CPU}, DEV_CPU, 0, NULL);
  double seconds[3], pace;
  assert_true(devlock_try(held, who, sizeof who));
  pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    devlock_free(held);
    worker_stop(w);
    pipe_free(p);
    _exit(0);
  }
  assert_int_equal(status_of(pid), 0);
  assert_false(devlock_try(other, who, sizeof who));
  assert_int_equal(worker_canary(w, 0, 3, seconds, &pace), 3);
  for (int i = 0; i < 3; i++) assert_true(0 < pace && pace < seconds[i]);
  assert_int_equal(worker_stats(w).deaths, 0);
  pipe_free(p);
  worker_stop(w);
  devlock_free(held);
  pid = fork();
  if (pid == 0) { /* a holder that ends before its own child does */
    if (!devlock_try(devlock_new(e, DEV_CPU, 8, &d), who, sizeof who)) _exit(1);
    if (fork() == 0) _exit(write(born[1], "", 1) == 1 && close(life[1]) == 0 && read(life[0], &c, 1) == 0 ? 0 : 1);
    _exit(0);
  }
  assert_int_equal(status_of(pid), 0);
  assert_int_equal(read(born[0], &c, 1),
                   1); /* its child has closed what a child must close: that is done before fork returns */
  DevLock *next = devlock_new(e, DEV_CPU, 8, &d);
  assert_true(devlock_try(next, who, sizeof who));
  close(life[0]), close(life[1]), close(born[0]), close(born[1]);
  devlock_free(next);
  devlock_free(other);
  unsetenv("NESTSMITH_LOCK_DIR");
}
static void test_forks(void **s) {
  (void)s;
  run(body_forks);
}

int main(int argc, char **argv) {
  int r = worker_main_if_asked(argc, argv);
  if (r >= 0) return r;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_compare),  cmocka_unit_test(test_worker),
                                     cmocka_unit_test(test_pipeline), cmocka_unit_test(test_compiler),
                                     cmocka_unit_test(test_turns),    cmocka_unit_test(test_forks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
