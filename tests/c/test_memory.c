/* Memory ends at every allocation in turn: each attempt at a task must end with NS_ERR_MEMORY or do it all, and give back all
 * that it took. Two kinds of allocation fail: those of arenas and of the engine's tables (Err.fail_after) and, beneath them
 * and beside them, those of the system (malloc and calloc are wrapped by the linker, cJSON's included). Small tasks are tried
 * with every allocation, large ones with a sample that is spread over all of them.
 */
#include "fixture.h"
#include <cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "codegen/codegen.h"
#include "compile/compile.h"
#include "device/device.h"
#include "graph/graph.h"
#include "interp/interp.h"
#include "model/model.h"
#include "search/search.h"
#include "template/space.h"

/* ---- the system's allocator ---- */
static _Atomic int64_t live, fail_at,
    calls; /* blocks that nobody has given back; the call from which on all fail, 0: none */

void *__real_malloc(size_t n), *__real_calloc(size_t n, size_t size), *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
int __real_posix_memalign(void **p, size_t align, size_t n);
void __real_free(void *p);
static bool fails(void) { return ++calls >= fail_at && fail_at; }
static void *counted(void *p) {
  live += p != NULL;
  return p;
}
void *__wrap_malloc(size_t n) { return fails() ? NULL : counted(__real_malloc(n)); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : counted(__real_calloc(n, size)); }
char *__wrap_strdup(const char *s) { return fails() ? NULL : counted(__real_strdup(s)); }
void *__wrap_realloc(void *p, size_t n) {
  if (fails()) return NULL;
  return p ? __real_realloc(p, n) : counted(__real_realloc(p, n));
}
int __wrap_posix_memalign(void **p, size_t align, size_t n) {
  int r = fails() ? ENOMEM : __real_posix_memalign(p, align, n);
  live += r == 0;
  return r;
}
void __wrap_free(void *p) {
  live -= p != NULL;
  __real_free(p);
}

/* ---- tasks ---- */
typedef struct {
  Err err;
  IrCtx *c; /* these three are made before memory is short */
  TeDag *d;
  Arena *a;
  IrCtx *own; /* and this is what a task made */
  CostModel *cost;
  SearchTask *task;
  Policy *policy;
  Candidate *found[2];
  Pool *pool;
  Device *device;
  DevModule *module;
  GraphExec *exec;
  Space *space;
} Fix;
static char path[64]; /* of a file that tasks may write */
static Binary binary;

static void tables(void *arg) {
  Fix *f = arg;
  MapU64 m;
  StrBuf b;
  VEC(int) v = {0};
  mapu_init(&m, f->a);
  sb_init(&b, f->a);
  for (int i = 0; i < 300; i++) {
    mapu_set(&m, (uint64_t)i * 7, i);
    sb_printf(&b, "%d %s", i, "text");
    vec_push(f->a, &v, i);
  }
  f->pool = pool_new(2, &f->err);
}

static void expressions(void *arg) {
  Fix *f = arg;
  IrCtx *c = f->own = ir_new(&f->err);
  VarId v = ir_var_new(c, "v", DT_I32, false), w = ir_var_new(c, "w", DT_I32, false);
  ExprId e = ex_var(c, v), shape = ex_i32(c, 64);
  TensorId t = ir_tensor_new(c, (IrTensor){.name = "T", .type = DT_F32, .rank = 1, .shape = &shape});
  for (int i = 0; i < 300; i++)
    e = ex_add(c, ex_mul(c, ex_fmod(c, e, ex_i32(c, 3 + i)), ex_i32(c, i + 2)), ex_var(c, i & 1 ? v : w));
  Arith *a = ar_new(c);
  ar_bind_range(a, w, ex_i32(c, 0), ex_i32(c, 16));
  ar_push(a, ex_bin(c, IR_LT, ex_var(c, v), ex_i32(c, 100)));
  ExprId s = ar_simplify(a, e);
  ex_text(c, ex_read(c, t, 1, &s));
  ir_free(ir_clone(c, &f->err));
  ar_pop(a);
}

static void definitions(void *arg) {
  Fix *f = arg;
  IrCtx *c = f->own = ir_new(&f->err);
  TeDag *d = product(c);
  te_dag_text(c, d, false);
  te_workload_key(c, d);
}

static State *scheduled(Fix *f, const char *text) {
  int n;
  Step *steps = steps_parse(ir_arena(f->c), text, &n);
  State *s = state_replay(f->c, f->d, n, steps);
  state_infer_bounds(s);
  return s;
}
static void schedules(void *arg) {
  Fix *f = arg;
  State *s = scheduled(f, GPU);
  state_text(s, false);
  state_python(s);
  steps_text(ir_arena(f->c), s->step.len, s->step.at);
  state_copy(f->c, s);
  dag_rewrite_layout(f->c, f->d, &(int){s->step.len}, &(Step *){s->step.at}, 1, NULL, NULL);
}

#define LINE                                                                                                           \
  "{\"i\": [[\"[\\\"k\\\"]\", \"llvm\", [8, 64, 64, 0, 0, 0, 0, 0], \"\", 0, [\"a\"]], [[], [[\"SP\", 2, 0, 64, [8, "  \
  "2], 1]]]], "                                                                                                        \
  "\"r\": [[1e-5, 2e-5], 0, 0.3, 17], \"v\": \"v0.6 steps=[[1,\\\"DB\\\",1]] n=3\"}"
static void hand_schedules(void *arg) { /* with steps of our own: a length that is an expression, a double buffer */
  Fix *f = arg;
  IrCtx *c = f->c;
  const TeOp *out = f->d->op[2];
  ExprId n = ex_var(c, ir_var_new(c, "n", DT_I32, true));
  State *s = hand_new(c, 1, &out);
  hand_split(s, 2, 2, 0, n);
  int local = hand_cache_write(s, 2, "local");
  hand_split(s, local, 0, ex_i32(c, 5), 0);
  hand_double_buffer(s, local);
  state_text(s, false);
  steps_text(ir_arena(c), s->step.len, s->step.at);
  state_infer_bounds(s);
}

static void records(void *arg) {
  Fix *f = arg;
  record_text(f->a, record_parse(f->a, LINE));
}

static const char CPU[] = "[[\"SP\",2,0,64,[7],1],[\"SP\",2,2,128,[32],1],[\"AN\",2,0,3],[\"AN\",2,3,2],[\"PR\",2,0,"
                          "\"auto_unroll_max_step$16\"]]";
static Func loops(Fix *f, TargetKind kind, LowUse use) {
  Target t = target_default(kind, 90);
  return low_loops(scheduled(f, kind == TG_CPU ? CPU : GPU), &t, f->d->n_tensors, f->d->tensor, use);
}
static void programs(Fix *f, TargetKind kind) {
  Program p = low_build(loops(f, kind, LOW_CODE), "mm");
  gen_source(&p);
  man_parse(f->a, gen_manifest(&p));
}
static void cpu_program(void *arg) { programs(arg, TG_CPU); }
static void cuda_program(void *arg) { programs(arg, TG_CUDA); }
static void opencl_program(void *arg) { programs(arg, TG_OPENCL); }
static void printed_program(void *arg) { low_primfn(loops(arg, TG_CUDA, LOW_TEXT)); }
static void interpretation(void *arg) {
  Fix *f = arg;
  static float a[64 * 32], b[32 * 128], c[64 * 128];
  Func g = loops(f, TG_CPU, LOW_CODE);
  interp_run(&g, (void *[]){a, b, c}, 0);
}
static void features(void *arg) {
  Fix *f = arg;
  Target t = target_default(TG_CUDA, 90);
  feat_of_state(scheduled(f, GPU), &t, FEAT_RULES_REPAIRED, true, true);
}

#define GRAPH                                                                                                          \
  "{\"nodes\":[{\"op\":\"null\",\"name\":\"x\",\"inputs\":[]},{\"op\":\"tvm_op\",\"name\":\"a\",\"attrs\":{\"func_"    \
  "name\":\"twice\"},\"inputs\":[[0,0,0]]}],\"arg_nodes\":[0],\"heads\":[[1,0,0]],\"node_row_ptr\":[0,1,2],"           \
  "\"attrs\":{\"shape\":[\"list_shape\",[[1000],[1000]]],\"dtype\":[\"list_str\",[\"float32\",\"float32\"]],"          \
  "\"storage_id\":[\"list_int\",[0,1]]}}"
static const char *const SOURCE =
    "#include <stdint.h>\n"
    "int32_t twice(void *const *args, void *const *work, int32_t (*par)(void*, void (*)(void*, int64_t, int64_t), "
    "void*, int64_t), void *pool) {\n"
    "  const float *a = args[0]; float *b = args[1]; for (int i = 0; i < 1000; i++) b[i] = a[i] * 2; return 0; }\n";
static const char *const MANIFEST =
    "{\"format\":1,\"target\":\"c\",\"entry\":\"twice\",\"args\":[{\"name\":\"a\",\"dtype\":\"float32\",\"shape\":["
    "1000],\"bytes\":4000},{\"name\":\"b\",\"dtype\":\"float32\",\"shape\":[1000],\"bytes\":4000}],\"work\":[],"
    "\"kernels\":[]}";
static void networks(void *arg) {
  Fix *f = arg;
  int64_t shape[1] = {2};
  float w[2] = {1, 2};
  GraphParam in[2] = {{"weight", "float32", 1, shape, sizeof w, w, NULL},
                      {"bias", "float32", 1, shape, sizeof w, w, NULL}};
  StrBuf b;
  int n;
  graph_parse(f->a, GRAPH);
  sb_init(&b, f->a);
  params_write(&b, 2, in);
  params_read(f->a, b.at, b.len, &n);
}

static FeatBatch batch;
static DevModule *find(void *env, const char *func) {
  (void)func;
  return env;
}
static void executor(void *arg) {
  Fix *f = arg;
  f->device = dev_open(&f->err, DEV_CPU, 0);
  f->module = dev_load(f->device, binary.data, binary.n, MANIFEST);
  f->exec = graph_exec_new(&f->err, graph_parse(f->a, GRAPH), f->device, find, f->module, NULL);
  graph_exec_given(f->exec, 0);
  graph_exec_run(f->exec);
}
static void containers(void *arg) {
  Fix *f = arg;
  StoredProgram p = {"twice", SOURCE, MANIFEST, binary.data, binary.n, 0, NULL};
  const char *input = "x";
  Container c = {"net", "llvm", GRAPH, 0, 1, 1, NULL, &p, &input};
  StrBuf b;
  sb_init(&b, f->a);
  container_write(&b, &c, IN_LIBRARY);
  container_read(f->a, b.at, b.len, "a library");
}

static void tree_files(void *arg) {
  Fix *f = arg;
  TreeParams p = tree_params_online();
  p.trees = 3;
  const char *json;
  forest_save(f->a, forest_train(f->a, &batch, &p, 1, NULL, NULL), false, path, "{\"device\": \"d\"}");
  forest_load(f->a, path, &json);
}
static void network_files(void *arg) {
  Fix *f = arg;
  MlpParams p = mlp_params_default(true);
  p.steps = 1, p.hidden = 8;
  const char *json;
  mlp_save(f->a, mlp_train(f->a, &batch, &p, 1, NULL), path, "{}");
  mlp_load(f->a, path, &json);
}
static void cost_models(void *arg) {
  Fix *f = arg;
  TreeParams p = tree_params_online();
  p.trees = 3;
  f->cost = cost_new(&f->err, 1, &p);
  for (int i = 0; i < 40; i++) {
    Features x = {1, arena_alloc(f->a, sizeof(float[FEAT_N])), NULL};
    x.row[0][0] = (float)i;
    cost_add(f->cost, i % 2, &x, NULL, 1e-3 + i * 1e-5);
  }
  cost_train(f->cost, NULL);
  cost_save(f->cost, path, "{}");
  cost_load(f->cost, path);
}

static void searches(void *arg) {
  Fix *f = arg;
  SearchParams par = search_params_default();
  par.sample_init_min_population = 4, par.population = 8, par.num_iters = 1;
  Target cpu = {.kind = TG_CPU, .hw = {2, 64, 64, 0, 0, 0, 0, 0}};
  f->task = task_new(&f->err, f->c, f->d, &cpu);
  f->policy = policy_new(&f->err, f->task, &par, 1, NULL);
  policy_want(f->policy, WANT_PROGRAM | WANT_TRAITS, 0);
  policy_round(f->policy, &f->err, 2, f->found);
}

static bool even(void *self, Err *e, const int32_t *digit) {
  (void)self, (void)e;
  return digit[0] % 2 == 0;
}
static void spaces(void *arg) {
  Fix *f = arg;
  Space *s = f->space = space_new(&f->err);
  Arena *a = s->a;
  bool keep[3] = {true, false, true};
  Knob k = knob_other(a, "unroll", 3, (double[]){0, 512, 1500});
  knob_keep(a, &k, keep);
  space_define(s, &k);
  k = knob_split(a, "tile", &(SplitDef){96, 3, SPLIT_VERBOSE, 64, true, 0, NULL});
  space_define(s, &k);
  k = knob_anchors(a, "place", 5, 2);
  space_define(s, &k);
  space_filter(s, (SpaceFilter){even, NULL});
  space_count(s, 0, s->range);
  Draw d;
  Rng r;
  rng_seed(&r, 1);
  draw_init(&d, f->a, s, 0, s->range);
  for (int i = 0; i < 100; i++) space_walk(s, &r, draw_next(&d, &r));
}

/* ---- trying ---- */
typedef struct {
  int64_t arena, system;
} Need;
static void prepare(void *arg) {
  Fix *f = arg;
  f->c = ir_new(&f->err);
  f->a = arena_new(&f->err);
  f->d = product(f->c);
}
static void give_back(Fix *f) {
  space_free(f->space);
  if (f->exec) graph_exec_free(f->exec);
  if (f->module) dev_unload(f->module);
  if (f->device) dev_close(f->device);
  if (f->cost) cost_free(f->cost);
  for (int i = 0; i < 2; i++) cand_free(f->found[i]);
  if (f->policy) policy_free(f->policy);
  if (f->task) task_free(f->task);
  if (f->pool) pool_free(f->pool);
  if (f->own) ir_free(f->own);
  ir_free(f->c);
  arena_free(f->a);
}
/* Fails that allocation of an arena, or of the system and all after it (0: none); counts what was asked for. */
static int open_files(void) {
  int n = 0;
  DIR *d = opendir("/proc/self/fd");
  while (d && readdir(d)) n++;
  if (d) closedir(d);
  return n;
}
static ErrCode attempt(const char *name, ErrBody task, int64_t of_arena, int64_t of_system, Need *need) {
  const int64_t FAR = INT64_MAX / 2, before = live;
  const int files = open_files();
  Fix f = {0};
  err_init(&f.err);
  assert_int_equal(err_try(&f.err, prepare, &f), NS_OK);
  f.err.fail_after = of_arena ? of_arena : FAR;
  calls = 0;
  fail_at = of_system;
  ErrCode code = err_try(&f.err, task, &f);
  *need = (Need){FAR - f.err.fail_after, calls};
  f.err.fail_after = 0;
  fail_at = 0;
  give_back(&f);
  const char *kind = of_arena ? "arena" : "system";
  long n = (long)(of_arena + of_system);
  if (live != before) fail_msg("%s, %s allocation %ld: %ld blocks are lost", name, kind, n, (long)(live - before));
  if (open_files() != files) fail_msg("%s, %s allocation %ld: a file stays open", name, kind, n);
  bool fine = code == NS_ERR_MEMORY || (code == NS_OK && !of_arena); /* threads are done without, for example */
  if (!fine) fail_msg("%s, %s allocation %ld: code %d, %s", name, kind, n, code, f.err.msg);
  return code;
}
typedef struct {
  const char *name;
  ErrBody run;
  int most; /* attempts of each kind */
} Task;
static void try_all(void **state) {
  const Task *t = *state;
  Need need, done;
  assert_int_equal(attempt(t->name, t->run, 0, 0, &need), NS_OK);
  int64_t arena = need.arena / (t->most + 1) + 1, system = need.system / (t->most + 1) + 1; /* one in so many */
  for (int64_t n = 1; n <= need.arena; n += arena) attempt(t->name, t->run, n, 0, &done);
  for (int64_t n = 1; n <= need.system; n += system) attempt(t->name, t->run, 0, n, &done);
  print_message("%s: one in %ld of %ld, one in %ld of %ld\n", t->name, (long)arena, (long)need.arena, (long)system,
                (long)need.system);
}

static void *json_malloc(size_t n) { return malloc(n); }
static void json_free(void *p) { free(p); }

enum { STATES = 32, ROWS = 2 };
static float rows[STATES * ROWS * ROW_N];
static int32_t first[STATES + 1], task_of[STATES];
static double cost[STATES];
static void compile_twice(void *arg) {
  Fix *f = arg;
  binary = build_binary(f->a, &(Target){.kind = TG_CPU}, SOURCE, &(BuildOptions){20, "", NULL, NULL});
}
static Fix kept;                 /* has the memory of the binary */
static int setup(void **state) { /* *state stays empty: tests have their rows of the table there */
  (void)state;
  cJSON_InitHooks(&(cJSON_Hooks){json_malloc, json_free});
  snprintf(path, sizeof path, "/tmp/ns-test-memory-%ld", (long)getpid());
  for (int i = 0; i < STATES; i++) {
    first[i + 1] = (i + 1) * ROWS;
    cost[i] = 1e-3 + i * 1e-5;
    for (int k = 0; k < 8; k++) rows[i * ROWS * ROW_N + k] = (float)(i * k % 11);
  }
  batch = (FeatBatch){STATES, ROW_N, first, rows, task_of, cost};
  err_init(&kept.err);
  return err_try(&kept.err, prepare, &kept) != NS_OK || err_try(&kept.err, compile_twice, &kept) != NS_OK;
}
static int teardown(void **state) {
  (void)state;
  give_back(&kept);
  unlink(path);
  cJSON_InitHooks(NULL);
  return 0;
}

int main(void) {
#define T(name, most)                                                                                                  \
  {                                                                                                                    \
#name, try_all, NULL, NULL, &(Task) { #name, name, most }                                                          \
  }
  enum { SMALL = 3000, LARGE = 100 };
  const struct CMUnitTest tests[] = {
      T(tables, SMALL),         T(expressions, SMALL),     T(definitions, SMALL), T(schedules, SMALL),
      T(hand_schedules, SMALL), T(records, SMALL),         T(cpu_program, SMALL), T(cuda_program, SMALL),
      T(opencl_program, SMALL), T(printed_program, SMALL), T(features, SMALL),    T(interpretation, LARGE),
      T(networks, SMALL),       T(executor, SMALL),        T(containers, SMALL),  T(tree_files, SMALL),
      T(network_files, SMALL),  T(cost_models, SMALL),     T(searches, LARGE),    T(spaces, SMALL)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
