/* graph: storage plan, graph file, parameter file, and a small network run on the CPU. */
#include "compile/compile.h"
#include "graph/graph.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

typedef struct {
  Err e;
  Arena *a;
} Fix;

static int32_t *entries(Arena *a, int n, const int *v) {
  int32_t *out = arena_array(a, int32_t, n);
  for (int i = 0; i < n; i++) out[i] = v[i];
  return out;
}
#define IN(...) entries(f->a, NS_COUNT(((int[]){__VA_ARGS__})), (int[]){__VA_ARGS__})

static void plan_body(void *p) {
  Fix *f = p;
  /* data, w1, A, w2, B, w3, C: C takes over A's memory */
  GraphNode n[7] = {{GN_NULL, "data", NULL, 0, NULL, 0, 1}, {GN_NULL, "w1", NULL, 0, NULL, 1, 1},
                    {GN_CALL, "A", "f", 2, IN(0, 1), 2, 1}, {GN_NULL, "w2", NULL, 0, NULL, 3, 1},
                    {GN_CALL, "B", "f", 2, IN(2, 3), 4, 1}, {GN_NULL, "w3", NULL, 0, NULL, 5, 1},
                    {GN_CALL, "C", "f", 2, IN(4, 5), 6, 1}};
  int64_t bytes[7] = {64, 64, 64, 64, 64, 64, 64};
  int32_t head = 6;
  GraphPlan g = graph_plan(f->a, 7, n, 7, bytes, 1, &head, false);
  int expect[7] = {0, 1, 2, 3, 4, 5, 2};
  for (int i = 0; i < 7; i++) assert_int_equal(g.id[i], expect[i]);
  assert_int_equal(g.n_storage, 6);
  /* a freed storage grows by at most 16; a reshape shares and keeps its input alive */
  GraphNode m[5] = {{GN_NULL, "x", NULL, 0, NULL, 0, 1},
                    {GN_CALL, "A", "f", 1, IN(0), 1, 1},
                    {GN_NOP, "R", "__nop", 1, IN(1), 2, 1},
                    {GN_CALL, "B", "f", 1, IN(2), 3, 1},
                    {GN_CALL, "C", "f", 1, IN(3), 4, 1}};
  int64_t size[5] = {8, 100, 100, 50, 1000};
  head = 4;
  g = graph_plan(f->a, 5, m, 5, size, 1, &head, false);
  assert_int_equal(g.id[2], g.id[1]);
  assert_int_not_equal(g.id[3], g.id[1]);
  assert_int_equal(g.id[4], g.id[1]);
  assert_int_equal(g.bytes[g.id[4]], 1000);
}

static void shared_part_body(void *p) {
  Fix *f = p;
  GraphNode n[4] = {{GN_NULL, "x", NULL, 0, NULL, 0, 1},
                    {GN_CALL, "A", "f", 1, IN(0), 1, 1},
                    {GN_CALL, "B", "f", 1, IN(1), 2, 1},
                    {GN_JOIN, "J", "__join", 2, IN(1, 2), 3, 1}};
  int64_t bytes[4] = {64, 64, 64, 128};
  int32_t head = 3;
  graph_plan(f->a, 4, n, 4, bytes, 1, &head, false);
}

/* A joins with C; B, which lives between them, lies elsewhere, and D, which reads what they are joined to, does not overwrite it. */
static void join_body(void *p) {
  Fix *f = p;
  GraphNode n[7] = {{GN_NULL, "x", NULL, 0, NULL, 0, 1},         {GN_CALL, "A", "f", 1, IN(0), 1, 1},
                    {GN_CALL, "B", "f", 1, IN(0), 2, 1},         {GN_CALL, "C", "f", 1, IN(2), 3, 1},
                    {GN_JOIN, "J", "__join", 2, IN(3, 1), 4, 1}, {GN_CALL, "D", "f", 1, IN(4), 5, 1},
                    {GN_CALL, "E", "f", 1, IN(5), 6, 1}};
  int64_t bytes[7] = {64, 100, 200, 60, 160, 160, 160}, place[7];
  int32_t head = 6;
  GraphPlan g = graph_plan(f->a, 7, n, 7, bytes, 1, &head, false);
  int expect[7] = {0, 1, 2, 1, 1, 2, 1};
  for (int i = 0; i < 7; i++) assert_int_equal(g.id[i], expect[i]);
  assert_int_equal(g.bytes[1], 160);
  GraphEntry entry[7] = {{.bytes = 64},  {.bytes = 100, .at = 64}, {.bytes = 200}, {.bytes = 60},
                         {.bytes = 164}, {.bytes = 160},           {.bytes = 160}};
  Graph whole = {.n_nodes = 7, .node = n, .n_entries = 7, .entry = entry, .n_heads = 1, .head = &head};
  assert_int_equal(graph_places(f->a, &whole, place, 0, NULL), 256 + 164);
  assert_true(place[2] == 0 && place[4] == 256 && place[3] == 256 && place[1] == 256 + 64 && place[5] == 0);
}

enum { PLACED = 40 };
static bool apart(int64_t at, int64_t bytes, int64_t other, int64_t other_bytes) {
  return at + bytes <= other || other + other_bytes <= at;
}

/* Values that live at the same time lie beside each other, whatever the network; so do the workspaces of a kernel, and what it
 * reads, makes and leaves alone. */
static void places_body(void *p) {
  Fix *f = p;
  for (uint64_t seed = 0; seed < 50; seed++) {
    Rng r;
    rng_seed(&r, seed);
    GraphNode n[PLACED] = {{GN_NULL, "x", NULL, 0, NULL, 0, 1}};
    GraphEntry entry[PLACED] = {{.bytes = 100}};
    int32_t head = PLACED - 1, root[PLACED] = {0}, last[PLACED] = {0}, whole[PLACED] = {0};
    int64_t place[PLACED], base[PLACED], size[PLACED];
    for (int i = 1; i < PLACED; i++) {
      int from = i - 1 - (int)rng_below(&r, i < 5 ? i : 5), a = i - 2, b = i - 1;
      if (a > 0 && n[a].kind == GN_CALL && n[b].kind == GN_CALL && n[b].in[0] != a && !whole[a] && !whole[b] &&
          rng_below(&r, 3) == 0) {
        n[i] = (GraphNode){GN_JOIN, "n", "__join", 2, IN(b, a), i, 1}; /* the one made last lies first */
        entry[i].bytes = entry[a].bytes + entry[b].bytes;
        entry[a].at = entry[b].bytes;
        root[i] = root[b] = a;
        whole[a] = whole[b] = last[a] = i;
        continue;
      }
      if (whole[from]) from = whole[from];
      bool nop = rng_below(&r, 4) == 0;
      n[i] = (GraphNode){nop ? GN_NOP : GN_CALL, "n", nop ? "__nop" : "f", 1, IN(from), i, 1};
      entry[i].bytes = nop ? entry[from].bytes : 1 + (int64_t)rng_below(&r, 5000);
      root[i] = nop ? root[from] : i;
      last[i] = i;
      last[root[from]] = i;
    }
    Graph g = {.n_nodes = PLACED, .node = n, .n_entries = PLACED, .entry = entry, .n_heads = 1, .head = &head};
    GraphWork work[2 * PLACED];
    int n_work = 0;
    for (int i = 1; i < PLACED; i++)
      for (int k = 0; n[i].kind == GN_CALL && k < 2; k++)
        if (rng_below(&r, 3) == 0) work[n_work++] = (GraphWork){i, 1 + (int64_t)rng_below(&r, 5000), -1};
    int64_t room = graph_places(f->a, &g, place, n_work, work);
    for (int i = 0; i < PLACED; i++) {
      int64_t begin = whole[i] ? place[whole[i]] : place[root[i]]; /* of a part: where the whole begins */
      if (!whole[root[i]]) assert_int_equal(place[i], place[root[i]]);
      if (root[i] == 0 || root[i] == root[head]) assert_int_equal(place[i], -1);
      if (begin >= 0 && whole[i]) assert_int_equal(place[i], begin + entry[i].at);
      if (root[i] != i || place[i] < 0) continue;
      if (whole[i]) assert_true(place[i] == begin + entry[i].at && begin + entry[whole[i]].bytes <= room);
      base[i] = begin, size[i] = entry[whole[i] ? whole[i] : i].bytes;
      assert_true(base[i] % 256 == 0 && base[i] + size[i] <= room);
      for (int k = 0; k < i; k++) {
        if (root[k] != k || place[k] < 0 || last[k] < i) continue;
        assert_true(apart(base[k], size[k], base[i], size[i]));
      }
    }
    for (int w = 0; w < n_work; w++) {
      const GraphWork *own = &work[w];
      assert_true(own->at >= 0 && own->at % 256 == 0 && own->at + own->bytes <= room);
      for (int i = 0; i < PLACED; i++)
        if (root[i] == i && place[i] >= 0 && i <= own->node && own->node <= last[i])
          assert_true(apart(own->at, own->bytes, base[i], size[i]));
      for (int o = 0; o < w; o++)
        if (work[o].node == own->node) assert_true(apart(own->at, own->bytes, work[o].at, work[o].bytes));
    }
  }
}

/* A, then B beside C and D: storages would be as large as A, B and D. */
static void busiest_body(void *p) {
  Fix *f = p;
  GraphNode n[6] = {{GN_NULL, "x", NULL, 0, NULL, 0, 1}, {GN_CALL, "A", "f", 1, IN(0), 1, 1},
                    {GN_CALL, "B", "f", 1, IN(1), 2, 1}, {GN_CALL, "C", "f", 1, IN(2), 3, 1},
                    {GN_CALL, "D", "f", 1, IN(3), 4, 1}, {GN_CALL, "E", "f", 2, IN(2, 4), 5, 1}};
  GraphEntry entry[6] = {{.bytes = 1}, {.bytes = 1024}, {.bytes = 256}, {.bytes = 512}, {.bytes = 512}, {.bytes = 1}};
  int32_t head = 5;
  int64_t place[6];
  Graph g = {.n_nodes = 6, .node = n, .n_entries = 6, .entry = entry, .n_heads = 1, .head = &head};
  assert_int_equal(graph_places(f->a, &g, place, 0, NULL), 1024 + 256);
  assert_true(place[0] == -1 && place[5] == -1 && place[1] == 0 && place[2] == 1024);
  GraphWork work[3] = {{3, 256, -1}, {4, 512, -1}, {5, 256, -1}}; /* busiest is D: it reads C, B waits, and its own */
  assert_int_equal(graph_places(f->a, &g, place, 3, work), 256 + 512 + 512 + 512);
}

static void params_body(void *p) {
  Fix *f = p;
  float w[6] = {1, 2, 3, 4, 5, 6};
  int64_t shape[2] = {2, 3}, idx[1] = {7};
  GraphParam in[2] = {{"weight", "float32", 2, shape, sizeof w, w, NULL}, {"i", "int64", 0, NULL, 8, idx, NULL}};
  StrBuf b;
  sb_init(&b, f->a);
  params_write(&b, 2, in);
  int n = 0;
  GraphParam *out = params_read(f->a, b.at, b.len, &n);
  assert_int_equal(n, 2);
  assert_string_equal(out[0].name, "weight");
  assert_string_equal(out[1].dtype, "int64");
  assert_int_equal(out[0].shape[1], 3);
  assert_memory_equal(out[0].data, w, sizeof w);
}

typedef struct {
  Fix *f;
  const void *data;
  size_t n;
} Bytes;
static void read_body(void *p) {
  Bytes *b = p;
  int n;
  params_read(b->f->a, b->data, b->n, &n);
}

static void damaged_body(void *p) { /* every truncation is an error, none a crash */
  Fix *f = p;
  float w[2] = {1, 2};
  int64_t shape[1] = {2};
  GraphParam in = {"w", "float32", 1, shape, sizeof w, w, NULL};
  StrBuf b;
  sb_init(&b, f->a);
  params_write(&b, 1, &in);
  for (size_t n = 0; n < b.len; n++) assert_int_equal(err_try(&f->e, read_body, &(Bytes){f, b.at, n}), NS_ERR_VALUE);
}

#define GRAPH                                                                                                          \
  "{\"nodes\":[{\"op\":\"null\",\"name\":\"x\",\"inputs\":[]},{\"op\":\"tvm_op\",\"name\":\"a\",\"attrs\":{\"func_"    \
  "name\":\"twice\"},"                                                                                                 \
  "\"inputs\":[[0,0,0]]},{\"op\":\"tvm_op\",\"name\":\"r\",\"attrs\":{\"func_name\":\"__nop\"},\"inputs\":[[1,0,0]]}," \
  "{\"op\":\"tvm_op\",\"name\":\"b\",\"attrs\":{\"func_name\":\"twice\"},\"inputs\":[[2,0,0]]}],\"arg_nodes\":[0],"    \
  "\"heads\":[[3,0,0]],\"node_row_ptr\":[0,1,2,3,4],\"attrs\":{\"shape\":[\"list_shape\",[[1000],[1000],[10,100],["    \
  "1000]]],"                                                                                                           \
  "\"dtype\":[\"list_str\",[\"float32\",\"float32\",\"float32\",\"float32\"]],\"storage_id\":[\"list_int\",[0,1,1,2]]" \
  "}}"

static const char *const SOURCE =
    "#include <stdint.h>\n"
    "int32_t twice(void *const *args, void *const *work, int32_t (*par)(void*, void (*)(void*, int64_t, int64_t), "
    "void*, int64_t), void *pool) {\n"
    "  const float *a = args[0]; float *b = args[1]; for (int i = 0; i < 1000; i++) b[i] = a[i] * 2 + 1; return 0; }\n";
static const char *const MANIFEST =
    "{\"format\":1,\"target\":\"c\",\"entry\":\"twice\",\"args\":[{\"name\":\"a\",\"dtype\":\"float32\",\"shape\":["
    "1000],\"bytes\":4000},"
    "{\"name\":\"b\",\"dtype\":\"float32\",\"shape\":[1000],\"bytes\":4000}],\"work\":[],\"kernels\":[]}";

static DevModule *find(void *env, const char *func) { return strcmp(func, "twice") == 0 ? env : NULL; }
static DevModule *find_none(void *env, const char *func) {
  (void)env, (void)func;
  return NULL;
}
typedef struct {
  Fix *f;
  Graph *g;
  Device *d;
} Missing;
static void missing_body(void *p) {
  Missing *m = p;
  graph_exec_new(&m->f->e, m->g, m->d, find_none, NULL, NULL);
}

static void exec_body(void *x) { graph_exec_run(x); }

static void run_body(void *p) {
  Fix *f = p;
  Target t = {.kind = TG_CPU};
  Binary bin = build_binary(f->a, &t, SOURCE, &(BuildOptions){20, "", NULL, NULL});
  Device *d = dev_open(&f->e, DEV_CPU, 0);
  DevModule *m = dev_load(d, bin.data, bin.n, MANIFEST);
  Graph *g = graph_parse(f->a, GRAPH);
  assert_int_equal(g->n_storage, 3);
  assert_int_equal(err_try(&f->e, missing_body, &(Missing){f, g, d}), NS_ERR_VALUE);
  assert_non_null(strstr(f->e.msg, "twice"));
  GraphExec *x = graph_exec_new(&f->e, g, d, find, m, NULL);
  static _Alignas(256) float in[1000], out[1000];
  char names[64];
  for (int i = 0; i < g->n_entries; i++) {
    dev_download(d, out, graph_exec_data(x, i), sizeof out);
    for (int k = 0; k < 1000; k++) assert_true(out[k] == 0);
  }
  assert_int_equal(graph_exec_unset(x, names, sizeof names), 1);
  assert_string_equal(names, "'x'");
  assert_int_equal(err_try(&f->e, exec_body, x), NS_ERR_VALUE);
  assert_non_null(strstr(f->e.msg, "'x'"));
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 1000; i++) in[i] = (float)(i + round);
    if (round == 2)
      graph_exec_bind(x, 0, in);
    else
      dev_upload(d, graph_exec_data(x, 0), in, sizeof in);
    graph_exec_given(x, 0);
    graph_exec_run(x);
    dev_sync(d);
    dev_download(d, out, graph_exec_data(x, g->head[0]), sizeof out);
    for (int i = 0; i < 1000; i++) assert_true(out[i] == ((float)(i + round) * 2 + 1) * 2 + 1);
  }
  assert_true(graph_exec_time(x, 5, false) > 0 && graph_exec_time(x, 2, true) > 0);
  double node[4];
  GraphTimes took = graph_exec_node_times(x, 3, NULL, node);
  assert_true(took.run > 0 && took.rounds >= 3);
  assert_true(node[0] == 0 && node[1] > 0 && node[2] == 0);
  assert_false(graph_exec_captured(x));
  graph_exec_free(x);
  dev_unload(m);
  dev_close(d);
}

static void bad_file_body(void *p) { graph_parse(((Fix *)p)->a, "{\"nodes\": 3}"); }
static void bad_row_body(void *p) {
  graph_parse(((Fix *)p)->a, "{\"nodes\":[{\"op\":\"null\",\"name\":\"x\",\"inputs\":[]}],\"node_row_ptr\":[0,-1]}");
}
static void bad_order_body(void *p) {
  graph_parse(((Fix *)p)->a, "{\"nodes\":[{\"op\":\"tvm_op\",\"name\":\"x\",\"attrs\":{\"func_name\":\"f\"},\"inputs\":"
                             "[[0,0,0]]}],\"node_row_ptr\":[0,1]}");
}

static void under(ErrBody body, ErrCode want) {
  Fix f;
  err_init(&f.e);
  f.a = arena_new(&f.e);
  ErrCode c = err_try(&f.e, body, &f);
  if (c != want) print_message("%s\n", f.e.msg);
  assert_int_equal(c, want);
  arena_free(f.a);
}

static void test_plan(void **s) {
  (void)s;
  under(plan_body, NS_OK);
  under(join_body, NS_OK);
  under(shared_part_body, NS_ERR_VALUE);
  under(places_body, NS_OK);
  under(busiest_body, NS_OK);
}
static void test_params(void **s) {
  (void)s;
  under(params_body, NS_OK);
  under(damaged_body, NS_OK);
}
static void test_run(void **s) {
  (void)s;
  under(run_body, NS_OK);
}
static void test_bad_files(void **s) {
  (void)s;
  under(bad_file_body, NS_ERR_VALUE);
  under(bad_row_body, NS_ERR_VALUE);
  under(bad_order_body, NS_ERR_VALUE);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan), cmocka_unit_test(test_params),
                                     cmocka_unit_test(test_run), cmocka_unit_test(test_bad_files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
