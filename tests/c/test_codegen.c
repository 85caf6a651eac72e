/* Code generation: hand-built programs printed for each target, compiled, run where a device exists (C always, OpenCL
 * where a platform is installed, CUDA is compiled only), and compared bit for bit with the interpreter.
 */
#include "compile/compile.h"
#include "codegen/codegen.h"
#include "device/device.h"
#include "interp/interp.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct {
  Err e;
  IrCtx *c;
} Fixture;

static BufferId buffer(IrCtx *c, const char *name, DType t, ScopeKind scope, bool external, int64_t n) {
  ExprId *dims = arena_array(ir_arena(c), ExprId, 2);
  dims[0] = ex_i32(c, 0);
  dims[1] = ex_i32(c, n);
  return ir_buffer_new(c, (IrBuffer){.name = name,
                                     .type = t,
                                     .scope = scope,
                                     .external = external,
                                     .rank = 1,
                                     .min = external ? NULL : dims,
                                     .extent = dims + 1,
                                     .size = dims[1]});
}
static ExprId load(IrCtx *c, BufferId b, ExprId i) {
  return ex_load(c, b, dtype_lanes(ir_buffer(c, b)->type, ir_type(c, i).lanes), 1, &i);
}
static Stmt *store(IrCtx *c, BufferId b, ExprId i, ExprId v) { return st_store(c, b, 1, &i, v); }
static Stmt *loop(IrCtx *c, VarId v, int64_t n, ForKind k, Stmt *body) {
  return st_for(c, v, ex_i32(c, 0), ex_i32(c, n), k, body);
}
static VarId var(IrCtx *c, const char *name) { return ir_var_new(c, name, DT_I32, false); }
static Stmt *seq3(IrCtx *c, Stmt *a, Stmt *b, Stmt *d) { return st_seq(c, 3, (Stmt *[]){a, b, d}); }
static ExprId i32(IrCtx *c, int64_t v) { return ex_i32(c, v); }
static ExprId times(IrCtx *c, ExprId a, int64_t k) { return ex_mul(c, a, ex_i32(c, k)); }
static ExprId ramp(IrCtx *c, ExprId base, int n) { return ex_ramp(c, base, ex_i32(c, 1), n); }
static Stmt *barrier(IrCtx *c) { return st_eval(c, ex_call(c, IN_SYNC_SHARED, DT_I32, 0, NULL)); }

enum { N_MAX = 4096 };
typedef struct {
  Program p;
  Kernel k;
  bool ro[8];
  size_t bytes[8];
} Prog;

static void finish(Prog *q, IrCtx *c, TargetKind kind, Stmt *body, int n_args, const BufferId *args, int n_work,
                   const BufferId *work, int64_t grid, int64_t block) {
  q->k = (Kernel){.name = "prog", .body = body, .read_only = q->ro, .grid = {grid, 1, 1}, .block = {block, 1, 1}};
  q->k.n_param = n_args + n_work;
  q->k.param = arena_array(ir_arena(c), BufferId, 8);
  for (int i = 0; i < n_args; i++) q->k.param[i] = args[i], q->ro[i] = i < n_args - 1;
  for (int i = 0; i < n_work; i++) q->k.param[n_args + i] = work[i];
  q->p = (Program){.f = {.ctx = c,
                         .target = target_default(kind, 90),
                         .body = body,
                         .n_args = n_args,
                         .arg = arena_copy(ir_arena(c), args, sizeof *args * (size_t)n_args),
                         .flat = true},
                   .n_kernels = 1,
                   .kernel = &q->k,
                   .n_work = n_work,
                   .work = arena_copy(ir_arena(c), work, sizeof *work * (size_t)n_work)};
  q->p.f.target.fast_math = 0;
  for (int i = 0; i < n_args; i++) {
    int64_t n = 0;
    ex_const_int(c, ir_buffer(c, args[i])->size, &n);
    q->bytes[i] = (size_t)n * (size_t)dtype_bytes(ir_buffer(c, args[i])->type);
  }
}

/* Prints, compiles, runs where possible; the result must equal the interpreter's. */
static void check(Fixture *f, Prog *q, void **data) {
  IrCtx *c = f->c;
  int n = q->p.f.n_args;
  char *expect = malloc(q->bytes[n - 1]), *got = malloc(q->bytes[n - 1]);
  void *args[8];
  memcpy(args, data, sizeof(void *) * (size_t)n);
  args[n - 1] = expect;
  memset(expect, 0, q->bytes[n - 1]);
  InterpReport r = interp_run_program(&q->p, args, 0);
  for (int i = 0; i < r.n; i++) fprintf(stderr, "%s\n", r.finding[i]);
  assert_int_equal(r.n, 0);
  const char *source = gen_source(&q->p), *manifest = gen_manifest(&q->p);
  if (getenv("NS_TEST_PRINT")) fprintf(stderr, "%s\n%s\n", source, manifest);
  char why[512];
  if (!build_available(&q->p.f.target, why, sizeof why)) {
    fprintf(stderr, "not compiled: %s\n", why);
    goto done;
  }
  Binary b = build_binary(ir_arena(c), &q->p.f.target, source, &(BuildOptions){60, "", NULL, NULL});
  DevType t = q->p.f.target.kind == TG_CPU ? DEV_CPU : q->p.f.target.kind == TG_CUDA ? DEV_CUDA : DEV_OPENCL;
  if (!dev_exists(t, 0, why, sizeof why)) goto done;
  Device *d = dev_open(&f->e, t, 0);
  DevModule *m = dev_load(d, b.data, b.n, manifest);
  for (int i = 0; i < n; i++) {
    args[i] = dev_alloc(d, q->bytes[i]);
    if (i < n - 1)
      dev_upload(d, args[i], data[i], q->bytes[i]);
    else
      dev_fill(d, args[i], 0, q->bytes[i]);
  }
  dev_run(m, args);
  dev_sync(d);
  dev_download(d, got, args[n - 1], q->bytes[n - 1]);
  assert_memory_equal(got, expect, q->bytes[n - 1]);
  for (int i = 0; i < n; i++) dev_free(d, args[i]);
  dev_unload(m);
  dev_close(d);
done:
  free(expect);
  free(got);
}

static float A[N_MAX], B[N_MAX];
static void numbers(void) {
  for (int i = 0; i < N_MAX; i++) A[i] = (float)(i * 7 % 9 - 4), B[i] = (float)(i * 5 % 9 - 4);
}

/* ---- C: parallel loop, vector loop, stack tile, workspace, relu ---- */
static void c_matmul_body(void *arg) {
  Fixture *f = arg;
  IrCtx *c = f->c;
  BufferId args[3] = {buffer(c, "A", DT_F32, SC_GLOBAL, true, 16 * 24),
                      buffer(c, "B", DT_F32, SC_GLOBAL, true, 24 * 32),
                      buffer(c, "out-put", DT_F32, SC_GLOBAL, true, 16 * 32)};
  BufferId w = buffer(c, "work", DT_F32, SC_GLOBAL, false, 24 * 32),
           acc = buffer(c, "acc", DT_F32, SC_LOCAL, false, 32);
  VarId p = var(c, "i"), i = var(c, "i"), j0 = var(c, "j"), j1 = var(c, "j"), j2 = var(c, "j"), k = var(c, "for"),
        z = var(c, "z");
  ExprId vp = ex_var(c, p), vi = ex_var(c, i), a, v;
  Stmt *copy = loop(c, p, 24, FOR_PARALLEL,
                    store(c, w, ramp(c, times(c, vp, 32), 32), load(c, args[1], ramp(c, times(c, vp, 32), 32))));
  Stmt *init = loop(c, j0, 32, FOR_VECTOR, store(c, acc, ex_var(c, j0), ex_flt(c, DT_F32, 0)));
  a = load(c, args[0], ex_add(c, times(c, vi, 24), ex_var(c, k)));
  v = ex_add(c, load(c, acc, ex_var(c, j1)),
             ex_mul(c, a, load(c, w, ex_add(c, times(c, ex_var(c, k), 32), ex_var(c, j1)))));
  Stmt *update = loop(c, k, 24, FOR_SERIAL, loop(c, j1, 32, FOR_VECTOR, store(c, acc, ex_var(c, j1), v)));
  Stmt *out = loop(c, j2, 32, FOR_UNROLLED,
                   store(c, args[2], ex_add(c, times(c, vi, 32), ex_var(c, j2)),
                         ex_bin(c, IR_MAX, load(c, acc, ex_var(c, j2)), ex_flt(c, DT_F32, 0))));
  Stmt *one = loop(c, z, 1, FOR_SERIAL, out);
  Stmt *body = st_alloc(
      c, w, st_seq(c, 2, (Stmt *[]){copy, loop(c, i, 16, FOR_PARALLEL, st_alloc(c, acc, seq3(c, init, update, one)))}));
  Prog q = {0};
  finish(&q, c, TG_CPU, body, 3, args, 1, &w, 1, 1);
  check(f, &q, (void *[]){A, B, NULL});
}

/* ---- GPU: wide loads through shared memory, guarded by a lazy condition, non-divisible, with a division to hoist ----
 */
static void gpu_tile(Fixture *f, TargetKind kind) {
  IrCtx *c = f->c;
  BufferId args[2] = {buffer(c, "A", DT_F32, SC_GLOBAL, true, 1000), buffer(c, "C", DT_F32, SC_GLOBAL, true, 1000)};
  BufferId s = buffer(c, "tile", DT_F32, SC_SHARED, false, 256), l = buffer(c, "reg", DT_F32, SC_LOCAL, false, 4);
  VarId bx = var(c, "blockIdx.x"), tx = var(c, "threadIdx.x"), i = var(c, "i"), j = var(c, "j");
  ExprId base = ex_add(c, times(c, ex_var(c, bx), 256), times(c, ex_var(c, tx), 4));
  ExprId ok = ex_bin(c, IR_LT, base, i32(c, 1000)), zero = ex_bcast(c, ex_flt(c, DT_F32, 0), 4);
  ExprId wide = load(c, args[0], ramp(c, base, 4));
  ExprId lazy = ex_call(c, IN_IF_THEN_ELSE, ir_type(c, wide), 3, (ExprId[]){ok, wide, zero});
  Stmt *fill = store(c, s, ramp(c, times(c, ex_var(c, tx), 4), 4), lazy);
  ExprId from =
      ex_bin(c, IR_MOD, ex_add(c, times(c, ex_bin(c, IR_DIV, ex_var(c, tx), i32(c, 3)), 3), times(c, ex_var(c, i), 17)),
             i32(c, 256));
  Stmt *use = loop(c, i, 4, FOR_UNROLLED, store(c, l, ex_var(c, i), load(c, s, from)));
  ExprId x = load(c, l, ramp(c, i32(c, 0), 4));
  ExprId tile = load(c, s, ramp(c, ex_sub(c, i32(c, 252), times(c, ex_var(c, tx), 4)), 4)); /* another thread's four */
  ExprId relu = ex_raw(c, IR_MAX, ir_type(c, x), 0, 2, (ExprId[]){x, zero});
  Stmt *out =
      st_if(c, ok, false,
            store(c, args[1], ramp(c, base, 4), ex_raw(c, IR_ADD, ir_type(c, x), 0, 2, (ExprId[]){relu, tile})), NULL);
  (void)j;
  Stmt *body = loop(c, bx, 4, FOR_BLOCK_X,
                    loop(c, tx, 64, FOR_THREAD_X,
                         st_alloc(c, s, st_alloc(c, l, st_seq(c, 4, (Stmt *[]){fill, barrier(c), use, out})))));
  Prog q = {0};
  finish(&q, c, kind, body, 2, args, 0, NULL, 4, 64);
  q.k.shared_bytes = 1024;
  const char *src = gen_source(&q.p);
  assert_non_null(strstr(src, "float4 *)(C + ")); /* wide stores */
  assert_non_null(strstr(src, "float4 *)(tile + (threadIdx_x * 4)) = "));
  assert_non_null(strstr(src, "float4 *)(tile + (252 - ")); /* wide load of shared memory */
  assert_non_null(strstr(src, "fixed"));                    /* hoisted division */
  check(f, &q, (void *[]){A, NULL});
}
static void cuda_body(void *arg) { gpu_tile(arg, TG_CUDA); }
static void opencl_body(void *arg) { gpu_tile(arg, TG_OPENCL); }

/* ---- types: every element type through arithmetic, casts and a wide access, on every target ---- */
static void types_on(Fixture *f, TargetKind kind, DType t) {
  IrCtx *c = f->c;
  static uint8_t in[64 * 8];
  BufferId args[2] = {buffer(c, "in", t, SC_GLOBAL, true, 64), buffer(c, "out", t, SC_GLOBAL, true, 64)};
  for (int i = 0; i < 64; i++) {
    float v = (float)(i % 5);
    double dv = v;
    uint16_t h = t.code == DT_BFLOAT ? (uint16_t[]){0, 0x3f80, 0x4000, 0x4040, 0x4080}[i % 5]
                                     : (uint16_t[]){0, 0x3c00, 0x4000, 0x4200, 0x4400}[i % 5];
    int64_t k = dtype_is_bool(t) ? i % 2 : i % 5;
    if (t.code == DT_FLOAT && t.bits == 32)
      memcpy(in + 4 * i, &v, 4);
    else if (t.code == DT_FLOAT && t.bits == 64)
      memcpy(in + 8 * i, &dv, 8);
    else if (t.bits == 16 && t.code != DT_INT && t.code != DT_UINT)
      memcpy(in + 2 * i, &h, 2);
    else
      memcpy(in + dtype_bytes(t) * i, &k, (size_t)dtype_bytes(t));
  }
  VarId b = var(c, "b"), tx = var(c, "t");
  ExprId x = load(c, args[0], ramp(c, times(c, ex_var(c, tx), 4), 4)), y;
  if (dtype_is_bool(t))
    y = ex_raw(c, IR_NOT, ir_type(c, x), 0, 1, &x);
  else {
    ExprId two = ex_bcast(c, t.code == DT_INT || t.code == DT_UINT ? ex_int(c, t, 2) : ex_flt(c, t, 2), 4);
    y = ex_raw(c, IR_ADD, ir_type(c, x), 0, 2,
               (ExprId[]){ex_raw(c, IR_MIN, ir_type(c, x), 0, 2, (ExprId[]){x, two}), two});
  }
  Stmt *s = store(c, args[1], ramp(c, times(c, ex_var(c, tx), 4), 4), y);
  Stmt *body =
      kind == TG_CPU ? loop(c, tx, 16, FOR_PARALLEL, s) : loop(c, b, 1, FOR_BLOCK_X, loop(c, tx, 16, FOR_THREAD_X, s));
  Prog q = {0};
  finish(&q, c, kind, body, 2, args, 0, NULL, 1, kind == TG_CPU ? 1 : 16);
  check(f, &q, (void *[]){in, NULL});
}
static void types_body(void *arg) {
  DType all[] = {DT_F32,
                 DT_F64,
                 DT_F16,
                 dtype(DT_BFLOAT, 16),
                 DT_I8,
                 DT_U8,
                 dtype(DT_INT, 16),
                 dtype(DT_UINT, 16),
                 DT_I32,
                 dtype(DT_UINT, 32),
                 DT_I64,
                 dtype(DT_UINT, 64),
                 DT_BOOL};
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < NS_COUNT(all); i++) types_on(arg, (TargetKind)k, all[i]);
}

/* ---- division helpers and intrinsics in one expression per element ---- */
static void maths_body(void *arg) {
  Fixture *f = arg;
  IrCtx *c = f->c;
  for (int kind = 0; kind < 3; kind++) {
    BufferId args[2] = {buffer(c, "A", DT_F32, SC_GLOBAL, true, 64), buffer(c, "C", DT_F32, SC_GLOBAL, true, 64)};
    VarId t = var(c, "t");
    ExprId i = ex_var(c, t), shifted = ex_sub(c, i, i32(c, 30));
    ExprId idx = ex_fmod(c, ex_mul(c, shifted, i32(c, 5)), i32(c, 64)), q1 = ex_fdiv(c, shifted, i32(c, 7));
    ExprId x = load(c, args[0], idx), tiny = ex_flt(c, DT_F32, 1.0 / 1024);
    ExprId root = ex_call(c, IN_FLOOR, DT_F32, 1, (ExprId[]){ex_mul(c, x, ex_flt(c, DT_F32, 0.375))});
    ExprId v = ex_add(
        c, ex_mul(c, ex_cast(c, DT_F32, q1), tiny),
        ex_select(c, ex_bin(c, IR_AND, ex_bin(c, IR_LT, i, i32(c, 40)), ex_bin(c, IR_NE, x, ex_flt(c, DT_F32, 2))),
                  root, x));
    Stmt *s = store(c, args[1], i, v);
    Prog q = {0};
    finish(&q, c, (TargetKind)kind, loop(c, t, 64, kind == TG_CPU ? FOR_SERIAL : FOR_THREAD_X, s), 2, args, 0, NULL, 1,
           kind == TG_CPU ? 1 : 64);
    check(f, &q, (void *[]){A, NULL});
  }
}

static void guarded(void **state, ErrBody body) {
  Fixture *f = *state;
  numbers();
  if (err_try(&f->e, body, f) != NS_OK) fail_msg("%s", f->e.msg);
}
static void c_matmul(void **state) { guarded(state, c_matmul_body); }
static void cuda_tile(void **state) { guarded(state, cuda_body); }
static void opencl_tile(void **state) { guarded(state, opencl_body); }
static void types(void **state) { guarded(state, types_body); }
static void maths(void **state) { guarded(state, maths_body); }

static int setup(void **state) {
  Fixture *f = calloc(1, sizeof *f);
  err_init(&f->e);
  f->c = ir_new(&f->e);
  *state = f;
  return 0;
}
static int teardown(void **state) {
  Fixture *f = *state;
  ir_free(f->c);
  free(f);
  return 0;
}
int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
  const struct CMUnitTest tests[] = {T(c_matmul), T(cuda_tile), T(opencl_tile), T(types), T(maths)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
