/* device and compile: programs in C and OpenCL C compiled, cached, loaded and run; NVRTC; broken input. */
#include "compile/compile.h"
#include "device/internal.h"
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct {
  Err e;
  Arena *a;
  Device *d;
} Fixture;
static const Target CPU = {.kind = TG_CPU}, CUDA = {.kind = TG_CUDA, .gpu.sm = 90};

#define BUF "{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[1000],\"bytes\":4000,\"align\":64,\"read_only\":false}"
#define PAR "{\"kind\":\"arg\",\"index\":0,\"read_only\":true},{\"kind\":\"arg\",\"index\":1,\"read_only\":false}"
#define MANIFEST(target, entry, grid, block)                                                                           \
  "{\"format\":1,\"target\":\"" target "\",\"entry\":\"" entry "\",\"sm\":90,\"args\":[" BUF "," BUF                   \
  "],\"work\":[" BUF "],"                                                                                              \
  "\"kernels\":[{\"name\":\"" entry "\",\"params\":[" PAR "],\"grid\":[" grid ",1,1],\"block\":[" block ",1,1]}]}"

static const char *const C_SOURCE =
    "#include <stdint.h>\n"
    "typedef int32_t (*Par)(void*, void (*)(void*, int64_t, int64_t), void*, int64_t);\n"
    "typedef struct { const float *a; float *b, *w; } Env;\n"
    "static void body(void *p, int64_t lo, int64_t hi) { Env *e = p; for (int64_t i = lo; i < hi; i++) { e->w[i] = "
    "e->a[i] * 2; e->b[i] = e->w[i] + 1; } }\n"
    "int32_t twice(void *const *args, void *const *work, Par par, void *pool) {\n"
    "  Env e = {args[0], args[1], work[0]};\n"
    "  return par ? par(pool, body, &e, 1000) : (body(&e, 0, 1000), 0); }\n";

static void run_twice(Fixture *f, const void *bin, size_t n, const char *manifest) {
  float in[1000], out[1000];
  DevModule *m = dev_load(f->d, bin, n, manifest);
  void *args[2] = {dev_alloc(f->d, sizeof in), dev_alloc(f->d, sizeof out)};
  assert_int_equal(dev_manifest(m)->n_args, 2);
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < 1000; i++) in[i] = (float)(i + round);
    dev_upload(f->d, args[0], in, sizeof in);
    dev_fill(f->d, args[1], 0xff, sizeof out);
    dev_run(m, args);
    dev_sync(f->d);
    dev_download(f->d, out, args[1], sizeof out);
    for (int i = 0; i < 1000; i++) assert_true(out[i] == (float)(i + round) * 2 + 1);
  }
  assert_true(dev_time(m, args, 10, false) > 0);
  assert_true(dev_time(m, args, 2, true) > 0);
  dev_free(f->d, args[0]);
  dev_free(f->d, args[1]);
  dev_unload(m);
}

static void cpu_body(void *p) {
  Fixture *f = p;
  const char *manifest = MANIFEST("c", "twice", "1", "1");
  Binary b = build_binary(f->a, &CPU, C_SOURCE, &(BuildOptions){10, "", NULL, NULL});
  run_twice(f, b.data, b.n, manifest);
  char dir[] = "/tmp/nestsmith-test-XXXXXX";
  assert_non_null(mkdtemp(dir));
  BuildOptions o = {10, dir, NULL, NULL};
  assert_false(build_binary(f->a, &CPU, C_SOURCE, &o).cached);
  Binary c = build_binary(f->a, &CPU, C_SOURCE, &o);
  assert_true(c.cached);
  run_twice(f, c.data, c.n, manifest);
  DIR *d = opendir(dir); /* damage the entry: it must be dropped and made again */
  for (struct dirent *e; (e = readdir(d));)
    if (e->d_name[0] != '.') {
      char path[400];
      snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
      assert_int_equal(truncate(path, 100), 0);
    }
  closedir(d);
  assert_false(build_binary(f->a, &CPU, C_SOURCE, &o).cached);
  assert_true(build_binary(f->a, &CPU, C_SOURCE, &o).cached);
  tree_remove(dir);
}

static void cl_body(void *p) {
  Fixture *f = p;
  const char *src = "__kernel void twice(__global const float *a, __global float *b) { int i = get_global_id(0); b[i] "
                    "= a[i] * 2 + 1; }";
  run_twice(f, src, strlen(src), MANIFEST("opencl", "twice", "10", "100"));
}

static void check(Fixture *f, ErrBody body) {
  ErrCode c = err_try(&f->e, body, f);
  if (c) fail_msg("%s", f->e.msg);
}

static void with_device(DevType t, ErrBody body) {
  Fixture f = {.d = NULL};
  char why[300];
  if (!dev_exists(t, 0, why, sizeof why)) {
    print_message("skipped: %s\n", why);
    skip();
  }
  err_init(&f.e);
  f.a = arena_new(&f.e);
  f.d = dev_open(&f.e, t, 0);
  check(&f, body);
  dev_close(f.d);
  arena_free(f.a);
}

static void test_cpu(void **s) {
  (void)s;
  with_device(DEV_CPU, cpu_body);
}
static void test_opencl(void **s) {
  (void)s;
  with_device(DEV_OPENCL, cl_body);
}

typedef struct {
  Fixture *f;
  const Target *t;
  const char *src;
  double timeout;
  const char *cc;
  Binary out;
} Compile;
static void compile_body(void *p) {
  Compile *c = p;
  c->out = build_binary(c->f->a, c->t, c->src, &(BuildOptions){c->timeout, "", c->cc, NULL});
}

static void test_compilers(void **s) {
  (void)s;
  Fixture f = {.d = NULL};
  char why[400];
  err_init(&f.e);
  f.a = arena_new(&f.e);
  Compile bad = {&f, &CPU, "int x = ;", 10, NULL, {0}};
  assert_int_equal(err_try(&f.e, compile_body, &bad), NS_ERR_RUNTIME);
  assert_non_null(strstr(f.e.msg, "expected expression"));
  Compile none = {&f, &CPU, "int x;", 10, "no-such-compiler", {0}};
  assert_int_equal(err_try(&f.e, compile_body, &none), NS_ERR_RUNTIME);
  assert_non_null(strstr(f.e.msg, "not installed"));
  Compile slow = {&f, &CPU, "int x;", 0.3, "sh -c sleep$IFS'600'",
                  {0}}; /* $CC is split at spaces; the shell puts one back */
  double t = clock_now();
  ErrCode r = err_try(&f.e, compile_body, &slow);
  assert_int_equal(r, NS_ERR_RUNTIME);
  assert_true(clock_now() - t < 60);
  if (build_available(&CUDA, why, sizeof why)) {
    Compile ok = {&f, &CUDA, "extern \"C\" __global__ void k(float *x) { x[threadIdx.x] = 1; }", 0, NULL, {0}};
    assert_int_equal(err_try(&f.e, compile_body, &ok), NS_OK);
    assert_memory_equal(ok.out.data,
                        "\x7f"
                        "ELF",
                        4);
    Compile half = {
        &f, &CUDA, "#include <cuda_fp16.h>\nextern \"C\" __global__ void k(half *x) { x[0] = __hadd(x[1], x[2]); }",
        0,  NULL,  {0}};
    assert_int_equal(err_try(&f.e, compile_body, &half), NS_OK);
    Compile err = {&f, &CUDA, "extern \"C\" __global__ void k(float *x) { x[0] = y; }", 0, NULL, {0}};
    assert_int_equal(err_try(&f.e, compile_body, &err), NS_ERR_RUNTIME);
    assert_non_null(strstr(f.e.msg, "\"y\" is undefined"));
  } else
    print_message("no NVRTC: %s\n", why);
  arena_free(f.a);
}

static void load_body(void *p) {
  void **x = p;
  dev_load(x[0], x[1], 4, x[2]);
}

static void test_bad_manifests(void **s) {
  (void)s;
  static const char *const BAD[] = {
      "",
      "[]",
      "{}",
      "{\"format\":2}",
      "{\"format\":1,\"target\":\"c\"}",
      MANIFEST("cuda", "k", "1", "1"),
      MANIFEST("c", "k", "0", "1"),
      MANIFEST("c", "k", "1.5", "1"),
      "{\"format\":1,\"target\":\"c\",\"entry\":\"e\",\"args\":[1],\"work\":[],\"kernels\":[]}",
      "{\"format\":1,\"target\":\"c\",\"entry\":\"e\",\"args\":[],\"work\":[],\"kernels\":[{\"name\":\"k\",\"params\":"
      "[" PAR "],\"grid\":[1,1,1],\"block\":[1,1,1]}]}",
      MANIFEST("c", "no_such_file", "1", "1")};
  Err e;
  err_init(&e);
  Device *d = dev_open(&e, DEV_CPU, 0);
  for (int i = 0; i < NS_COUNT(BAD); i++) {
    void *x[3] = {d, (void *)"none", (void *)(uintptr_t)BAD[i]};
    assert_int_not_equal(err_try(&e, load_body, x), NS_OK);
    assert_true(strlen(e.msg) > 10);
  }
  dev_close(d);
  char why[100];
  assert_false(dev_exists((DevType)77, 0, why, sizeof why));
  assert_false(dev_exists(DEV_CPU, 3, why, sizeof why));
  assert_false(dev_exists(DEV_CUDA, -1, why, sizeof why));
}

/* ---- the thread pool ---- */
static void count(void *env, int64_t begin, int64_t end) {
  atomic_int *n = env;
  for (int64_t i = begin; i < end; i++) atomic_fetch_add(&n[i], 1);
}
static void test_pool_does_each_iteration_once(void **state) {
  (void)state;
  enum { MOST = 70 };
  for (int threads = 1; threads <= 5; threads += 2) {
    CpuPool *p = cpool_new(threads);
    assert_non_null(p);
    for (int n = 0; n <= MOST; n++) {
      atomic_int done[MOST + 1] = {0};
      assert_int_equal(cpool_run(p, count, done, n), 0);
      for (int i = 0; i <= MOST; i++) assert_int_equal(done[i], i < n);
    }
    cpool_free(p);
  }
}

/* ---- threads that share a device ---- */
static const char *const PICKY = "#include <stdint.h>\n"
                                 "typedef int32_t (*Par)(void*, void (*)(void*, int64_t, int64_t), void*, int64_t);\n"
                                 "static void body(void *p, int64_t lo, int64_t hi) { float *const *a = p; for "
                                 "(int64_t i = lo; i < hi; i++) a[1][i] = a[0][i]; }\n"
                                 "int32_t twice(void *const *args, void *const *work, Par par, void *pool) {\n"
                                 "  if (*(float *)args[0] < 0) return 9;\n"
                                 "  return par(pool, body, (void *)args, 1000); }\n";
typedef struct {
  Device *d;
  Err *shared, own; /* shared: the device's, NULL: the thread has one */
  Binary b;
  DevModule *m;
  float in[1000], out[1000];
  int failed;
} Caller;

static void caller_load(void *p) {
  Caller *c = p;
  c->m = dev_load(c->d, c->b.data, c->b.n, MANIFEST("c", "twice", "1", "1"));
}
static void caller_run(void *p) {
  Caller *c = p;
  dev_run(c->m, (void *[]){c->in, c->out});
}
static void *caller_main(void *p) {
  Caller *c = p;
  Err *e = c->shared ? c->shared : &c->own;
  if (err_try(e, caller_load, c) != NS_OK) return NULL;
  for (int i = 0; i < 3000; i++) {
    if (err_try(e, caller_run, c) == NS_OK) continue;
    c->failed++;
    if (!c->shared && !strstr(c->own.msg, "returned error 9")) return NULL;
  }
  dev_unload(c->m);
  return c;
}

/* A mistake of one thread is told to that thread; the first runs, which make the pool, are at the same time. */
static void test_threads_share_a_device(void **state) {
  (void)state;
  enum { THREADS = 4 };
  Err e;
  err_init(&e);
  Arena *a = arena_new(&e);
  Binary b = build_binary(a, &CPU, PICKY, &(BuildOptions){10, "", NULL, NULL});
  for (int shared = 0; shared < 2; shared++) {
    Device *d = dev_open(&e, DEV_CPU, 0);
    static Caller c[THREADS];
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) {
      bool wrong = shared ? i == 0 : i % 2 == 0;
      c[i] = (Caller){.d = d, .shared = shared ? &e : NULL, .b = b};
      err_init(&c[i].own);
      for (int k = 0; k < 1000; k++) c[i].in[k] = wrong ? -1.0f : (float)k;
      assert_int_equal(pthread_create(&t[i], NULL, caller_main, &c[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
      void *done;
      bool wrong = shared ? i == 0 : i % 2 == 0;
      assert_int_equal(pthread_join(t[i], &done), 0);
      assert_ptr_equal(done, &c[i]);
      assert_int_equal(c[i].failed, wrong ? 3000 : 0);
      if (!wrong) assert_memory_equal(c[i].in, c[i].out, sizeof c[i].in);
    }
    dev_close(d);
  }
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu),
                                     cmocka_unit_test(test_opencl),
                                     cmocka_unit_test(test_compilers),
                                     cmocka_unit_test(test_bad_manifests),
                                     cmocka_unit_test(test_pool_does_each_iteration_once),
                                     cmocka_unit_test(test_threads_share_a_device)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
