/* Networks that export_library wrote, run by the runtime's rooms (base, program, device, graph) and through its public interface, nsrt.h;
 * what is damaged is refused, and nothing leaks. */
#include "graph/graph.h"
#include "rt/nsrt.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct {
  Err e;
  Arena *a;
  Device *d;
  char *library;
  size_t size;
} Fix;

static int setup(void **state) {
  static Fix f;
  FILE *file = fopen(NETWORK, "rb");
  assert_non_null(file);
  err_init(&f.e);
  f.a = arena_new(&f.e);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  f.size = (size_t)ftell(file);
  rewind(file);
  f.library = malloc(f.size);
  assert_int_equal(fread(f.library, 1, f.size, file), f.size);
  fclose(file);
  f.d = dev_open(&f.e, DEV_CPU, 0);
  *state = &f;
  return 0;
}

static int teardown(void **state) {
  Fix *f = *state;
  dev_close(f->d);
  arena_free(f->a);
  free(f->library);
  return 0;
}

static void run(void *arg) {
  Fix *f = arg;
  Network *n = network_load(&f->e, f->d, f->library, f->size, "network.so");
  const Graph *g = network_graph(n);
  assert_int_equal(g->n_heads, 1);
  assert_string_equal(g->entry[network_input(n, "x")].dtype, "float32");
  assert_int_equal(network_input(n, "y"), -1);
  for (int round = 1; round < 3; round++) { /* relu(x * w), as tests/device/test_libraries.py has it from Python */
    float r = (float)round, x[4] = {r, r, r, r}, out[4], want[4] = {r, 0, 2 * r, 0};
    network_set(n, "x", x, sizeof x);
    graph_exec_run(network_exec(n));
    network_get(n, 0, out, sizeof out);
    assert_memory_equal(out, want, sizeof out);
  }
  network_free(n);
}

static void wrong_size(void *arg) {
  float x[3] = {0};
  network_set(arg, "x", x, sizeof x);
}
static void wrong_name(void *arg) { network_set(arg, "y", "", 0); }
static void no_value(void *arg) { graph_exec_run(network_exec(arg)); }
static void misuse(void *arg) {
  Fix *f = arg;
  Network *n = network_load(&f->e, f->d, f->library, f->size, "network.so");
  assert_int_equal(err_try(&f->e, wrong_size, n), NS_ERR_VALUE);
  assert_string_equal(f->e.msg, "input 'x' has 16 bytes, 12 were given");
  assert_int_equal(err_try(&f->e, wrong_name, n), NS_ERR_VALUE);
  assert_int_equal(err_try(&f->e, no_value, n), NS_ERR_VALUE);
  network_free(n);
}

static void test_run(void **state) {
#ifndef __x86_64__
  skip(); /* its programs are for any processor of that kind */
#endif
  Fix *f = *state;
  ErrBody body[] = {run, misuse};
  for (int i = 0; i < NS_COUNT(body); i++) {
    ErrCode c = err_try(&f->e, body[i], f);
    if (c != NS_OK) print_message("%s\n", f->e.msg);
    assert_int_equal(c, NS_OK);
  }
}

typedef struct {
  Fix *f;
  const char *data;
  size_t n;
} Bytes;
static void load(void *arg) {
  Bytes *b = arg;
  network_free(network_load(&b->f->e, b->f->d, b->data, b->n, "network.so"));
}
static void read_container(void *arg) {
  Bytes *b = arg;
  container_read(b->f->a, b->data, b->n, "network.so");
}

/* Every cut and every changed byte of the container is an error, none a crash. */
static void test_damaged(void **state) {
  Fix *f = *state;
  size_t n;
  const char *stored = container_find(f->library, f->size, &n);
  assert_non_null(stored);
  assert_int_equal(err_try(&f->e, read_container, &(Bytes){f, stored, n}), NS_OK);
  char *copy = malloc(n);
  for (size_t k = 0; k < n; k += 61) {
    memcpy(copy, stored, n);
    assert_int_equal(err_try(&f->e, read_container, &(Bytes){f, copy, k}), NS_ERR_VALUE);
    copy[k] ^= 4;
    assert_int_equal(err_try(&f->e, read_container, &(Bytes){f, copy, n}), NS_ERR_VALUE);
  }
  free(copy);
  assert_int_equal(err_try(&f->e, load, &(Bytes){f, f->library, 100}), NS_ERR_VALUE);
  assert_string_equal(f->e.msg, "network.so holds no network");
}

typedef struct {
  Fix *f;
  StrBuf b;
  Container c;
  ContainerForm form;
} Stored;
static void write_container(void *arg) {
  Stored *s = arg;
  sb_init(&s->b, s->f->a);
  container_write(&s->b, &s->c, s->form);
  Container *r = container_read(s->f->a, s->b.at, s->b.len, "it");
  assert_string_equal(r->name, s->c.name);
  assert_string_equal(r->graph, s->c.graph);
  assert_int_equal(r->n_programs, 2);
  assert_string_equal(r->program[1].source, "text \"2\"\n");
  assert_memory_equal(r->program[1].binary, "\0\1", 2);
  assert_null(r->program[0].binary);
  assert_string_equal(r->input[0], "a\\b\x01\xc3\xa4");
}

/* Sizes that the description tells, right checksum or not, are compared with what is there. */
static void lie(void *arg) {
  Stored *s = arg;
  char hash[65], head[200];
  const char *told = "{\"name\":\"n\",\"target\":\"t\",\"graph\":-1,\"params\":0,\"kernels\":[],\"inputs\":[]}";
  size_t n = strlen(told);
  memcpy(head, &(uint64_t){n}, 8);
  memcpy(head + 8, told, n);
  sha256_hex(head, n + 8, hash);
  sb_init(&s->b, s->f->a);
  sb_printf(&s->b, "nestsmith library 1\n%zu %s\n", n + 8, hash);
  sb_write(&s->b, head, n + 8);
  container_read(s->f->a, s->b.at, s->b.len, "it");
}

static void test_written(void **state) {
  StoredProgram p[2] = {{.name = "f", .source = "", .manifest = "{}"}, {"g", "text \"2\"\n", "{}", "\0\1", 2, 0, NULL}};
  const char *input = "a\\b\x01\xc3\xa4";
  Stored s = {.f = *state,
              .c = {.name = "default",
                    .target = "llvm",
                    .graph = "{}",
                    .n_programs = 2,
                    .program = p,
                    .n_inputs = 1,
                    .input = &input}};
  const float numbers[3] = {1, 2, 3};
  const int64_t shape = 3;
  const GraphParam weight[2] = {{"v", "float32", 1, &shape, sizeof numbers, numbers, NULL},
                                {"w", "float32", 1, &shape, sizeof numbers, numbers, NULL}};
  s.c.weight = weight;
  s.c.n_weights = 2;
  for (s.form = IN_LIBRARY; s.form <= MODEL_FILE; s.form++)
    if (err_try(&s.f->e, write_container, &s) != NS_OK) fail_msg("%s", s.f->e.msg);
  assert_int_equal(err_try(&s.f->e, lie, &s), NS_ERR_VALUE);
  assert_string_equal(s.f->e.msg, "it is damaged: it ends inside a section");
}

/* The network of the library as a model file. */
static void rewrite(void *arg) {
  Stored *s = arg;
  s->c = *network_read(s->f->a, s->f->library, s->f->size, "network.so")->c;
  sb_init(&s->b, s->f->a);
  container_write(&s->b, &s->c, MODEL_FILE);
}
/* Weights of a model file are used where they lie. */
static void in_place(void *arg) {
  Stored *s = arg;
  Fix *f = s->f;
  rewrite(s);
  char *data = aligned_alloc(4096, (s->b.len + 4095) / 4096 * 4096);
  memcpy(data, s->b.at, s->b.len);
  const NetworkFile *n = network_read(f->a, data, s->b.len, "net.nsm");
  NetworkOn *on = network_place(&f->e, n, f->d, true);
  assert_int_equal(network_weight_bytes(on), 0);
  GraphExec *x = network_exec_new(&f->e, on, NULL);
  assert_ptr_equal(graph_exec_data(x, n->entry[0]), n->param[0].data);
  graph_exec_free(x);
  network_remove(on);
  free(data);
}

/* ---- nsrt.h ---- */
static const float WANT[4] = {1, 0, 2, 0}; /* of x = 1: relu(x * w) */
enum { THREADS = 8, RUNS = 1000 };

static nsrt_model *open_it(const Fix *f) {
  nsrt_model *m;
  if (nsrt_open_memory(f->library, f->size, "network.so", &m) != NSRT_OK) fail_msg("%s", nsrt_message());
  return m;
}
static nsrt_context *context_of(nsrt_model *m, nsrt_options how) {
  nsrt_context *c;
  if (nsrt_context_create(m, &how, sizeof how, &c) != NSRT_OK) fail_msg("%s", nsrt_message());
  return c;
}
static bool runs(nsrt_context *c, float x) {
  float in[4] = {x, x, x, x}, out[4], want[4];
  for (int i = 0; i < 4; i++) want[i] = WANT[i] * x;
  return !nsrt_set(c, "x", in, sizeof in) && !nsrt_run(c) && !nsrt_get(c, 0, out, sizeof out) &&
         memcmp(out, want, sizeof out) == 0;
}

static void test_described(void **state) {
  nsrt_model *m = open_it(*state);
  nsrt_info i;
  assert_int_equal(nsrt_describe(m, &i, sizeof i), NSRT_OK);
  assert_int_equal(i.device_type, 1);
  assert_int_equal(i.n_inputs, 1);
  assert_string_equal(i.input[0].name, "x");
  assert_int_equal(i.n_outputs, 1);
  assert_string_equal(i.output[0].name, "output_0");
  assert_string_equal(i.output[0].dtype, "float32");
  assert_int_equal(i.output[0].bytes, 16);
  assert_int_equal(i.n_weights, 1);
  assert_int_equal(i.weight_bytes, 16);
  nsrt_model *none;
  assert_int_equal(nsrt_open("/no/such/file", &none), NSRT_IO);
  assert_null(none);
  assert_non_null(strstr(nsrt_message(), "/no/such/file"));
  assert_int_equal(nsrt_open_memory("", 0, "it", &none), NSRT_INVALID);
  nsrt_close(m);
}

/* Each thread with a context of its own; every second one only makes mistakes, which the others do not see. */
typedef struct {
  nsrt_model *m;
  nsrt_options how;
  bool wrong, ok;
} Thread;
static void *one_thread(void *arg) {
  Thread *t = arg;
  nsrt_context *c = NULL;
  float x[3] = {0};
  t->ok = nsrt_context_create(t->m, &t->how, sizeof t->how, &c) == NSRT_OK;
  for (int i = 0; t->ok && i < RUNS; i++)
    t->ok = t->wrong
                ? nsrt_set(c, "x", x, sizeof x) == NSRT_INVALID && strstr(nsrt_message(), "16 bytes, 12 were given")
                : runs(c, (float)i);
  nsrt_context_free(c);
  return NULL;
}
static int32_t in_order(void *user, void (*body)(void *, int64_t, int64_t), void *env, int64_t n) {
  (void)user;
  for (int64_t i = n - 1; i >= 0; i--) body(env, i, i + 1);
  return 0;
}

static void test_threads(void **state) {
#ifndef __x86_64__
  skip();
#endif
  nsrt_model *m = open_it(*state);
  nsrt_pool *pool;
  assert_int_equal(nsrt_pool_create(2, &pool), NSRT_OK);
  const nsrt_options how[] = {{0}, {.threads = 1}, {.threads = 2}, {.pool = pool}, {.parallel = in_order}};
  Thread t[THREADS];
  pthread_t id[THREADS];
  for (int i = 0; i < THREADS; i++) {
    t[i] = (Thread){m, how[i % NS_COUNT(how)], i & 1, false};
    assert_int_equal(pthread_create(&id[i], NULL, one_thread, &t[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(id[i], NULL);
    assert_true(t[i].ok);
  }
  nsrt_close(m);
  nsrt_pool_free(pool);
}

/* The caller's memory; a model that is closed before its contexts; the time of each kernel; other weights. */
static void test_bound(void **state) {
#ifndef __x86_64__
  skip();
#endif
  nsrt_model *m = open_it(*state);
  nsrt_context *c = context_of(m, (nsrt_options){.threads = 1});
  static _Alignas(64) float in[4] = {2, 2, 2, 2}, out[5], w[4] = {3, 4, 5, -6};
  int64_t shape[2] = {4, 1}, gaps = 2;
  nsrt_info info;
  nsrt_describe(m, &info, sizeof info);
  nsrt_tensor x = {.data = in, .device = {1, 0}, .ndim = info.input[0].ndim, .dtype = {2, 32, 1}, .shape = shape};
  assert_int_equal(x.ndim, 1);
  nsrt_tensor y = x, bad[] = {x, x, x, x, x};
  y.data = out;
  assert_int_equal(nsrt_run(c), NSRT_INVALID);
  assert_non_null(strstr(nsrt_message(), "'x'"));
  bad[0].dtype.code = 0, bad[1].device.device_type = 2, bad[2].strides = &gaps, bad[3].byte_offset = 4, bad[4].ndim = 2;
  for (int i = 0; i < NS_COUNT(bad); i++) assert_int_equal(nsrt_bind(c, "x", &bad[i]), NSRT_INVALID);
  assert_int_equal(nsrt_bind(c, "y", &x), NSRT_INVALID);
  assert_int_equal(nsrt_bind(c, "x", &x), NSRT_OK);
  assert_int_equal(nsrt_bind(c, "output_0", &y), NSRT_OK);
  assert_int_equal(nsrt_run(c), NSRT_OK);
  assert_int_equal(nsrt_sync(c), NSRT_OK);
  for (int i = 0; i < 4; i++) assert_true(out[i] == 2 * WANT[i]);
  nsrt_kernel k;
  int32_t n;
  assert_int_equal(nsrt_profile(c, 1, &k, 1, &n), NSRT_OK);
  assert_int_equal(n, 1);
  assert_true(k.seconds > 0);
  y.data = w;
  assert_int_equal(nsrt_replace(m, info.weight[0].name, &y), NSRT_BUSY);
  nsrt_context_free(c);
  assert_int_equal(nsrt_replace(m, "y", &y), NSRT_INVALID);
  assert_int_equal(nsrt_replace(m, info.weight[0].name, &y), NSRT_OK);
  c = context_of(m, (nsrt_options){0});
  nsrt_close(m);
  assert_false(runs(c, 1));
  assert_int_equal(nsrt_get(c, 0, out, 16), NSRT_OK);
  for (int i = 0; i < 4; i++) assert_true(out[i] == (w[i] > 0 ? w[i] : 0));
  assert_int_equal(nsrt_get(c, 1, out, 16), NSRT_INVALID);
  nsrt_context_free(c);
}

/* What describe says of a context's memory is what one takes, and a second one takes no weights. */
static void one_copy(void *arg) {
  Fix *f = arg;
  const NetworkFile *n = network_read(f->a, f->library, f->size, "network.so");
  NetworkOn *on = network_place(&f->e, n, f->d, true);
  int64_t weights = network_weight_bytes(on);
  assert_true(weights <= 16);
  GraphExec *x[2];
  for (int i = 0; i < 2; i++) {
    x[i] = network_exec_new(&f->e, on, NULL);
    assert_int_equal(graph_exec_bytes(x[i]), network_exec_bytes(f->a, n));
    assert_ptr_equal(graph_exec_data(x[i], n->entry[0]), graph_exec_data(x[0], n->entry[0]));
  }
  assert_int_equal(network_weight_bytes(on), weights);
  for (int i = 0; i < 2; i++) graph_exec_free(x[i]);
  network_remove(on);
}
static void test_one_copy(void **state) {
#ifndef __x86_64__
  skip();
#endif
  Fix *f = *state;
  if (err_try(&f->e, one_copy, f) != NS_OK) fail_msg("%s", f->e.msg);
  if (err_try(&f->e, in_place, &(Stored){.f = f}) != NS_OK) fail_msg("%s", f->e.msg);
}

static void test_model_file(void **state) {
  Fix *f = *state;
  Stored s = {.f = f};
  assert_int_equal(err_try(&f->e, rewrite, &s), NS_OK);
  char *data = aligned_alloc(4096, (s.b.len + 4095) / 4096 * 4096);
  memcpy(data, s.b.at, s.b.len);
  nsrt_model *m, *none;
  assert_int_equal(nsrt_open_memory(data, s.b.len, "net.nsm", &m), NSRT_OK);
#ifdef __x86_64__
  nsrt_context *c = context_of(m, (nsrt_options){0});
  assert_true(runs(c, 3));
  nsrt_context_free(c);
#endif
  nsrt_close(m);
  /* every cut is refused, and every changed byte but those between sections */
  for (size_t k = 0; k < s.b.len; k += k < 200 ? 1 : 61) {
    assert_int_equal(nsrt_open_memory(data, k, "net.nsm", &none), NSRT_INVALID);
    data[k] ^= 4;
    if (nsrt_open_memory(data, s.b.len, "net.nsm", &none) == NSRT_OK) {
      assert_int_equal(data[k] ^ 4, 0);
      nsrt_close(none);
    }
    data[k] ^= 4;
  }
  free(data);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_run),      cmocka_unit_test(test_damaged),
                                     cmocka_unit_test(test_written),  cmocka_unit_test(test_described),
                                     cmocka_unit_test(test_threads),  cmocka_unit_test(test_bound),
                                     cmocka_unit_test(test_one_copy), cmocka_unit_test(test_model_file)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
