/* A program that is linked with the library of finished programs alone (base, program, device, graph) runs a network that
 * export_library wrote; what is damaged is refused, and nothing leaks. */
#include "graph/graph.h"
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
} Stored;
static void write_container(void *arg) {
  Stored *s = arg;
  sb_init(&s->b, s->f->a);
  container_write(&s->b, &s->c);
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
  StoredProgram p[2] = {{"f", "", "{}", NULL, 0}, {"g", "text \"2\"\n", "{}", "\0\1", 2}};
  const char *input = "a\\b\x01\xc3\xa4";
  Stored s = {.f = *state,
              .c = {.name = "default",
                    .target = "llvm",
                    .graph = "{}",
                    .params = "",
                    .n_programs = 2,
                    .program = p,
                    .n_inputs = 1,
                    .input = &input}};
  assert_int_equal(err_try(&s.f->e, write_container, &s), NS_OK);
  assert_int_equal(err_try(&s.f->e, lie, &s), NS_ERR_VALUE);
  assert_string_equal(s.f->e.msg, "it is damaged: it ends inside a section");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_run), cmocka_unit_test(test_damaged),
                                     cmocka_unit_test(test_written)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
