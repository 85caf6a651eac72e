/* The interpreter: results of hand-built programs, and one test per kind of finding. */
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

static BufferId buffer(IrCtx *c, const char *name, ScopeKind scope, bool external, int64_t n) {
  ExprId *dims = arena_array(ir_arena(c), ExprId, 2);
  dims[0] = ex_i32(c, 0);
  dims[1] = ex_i32(c, n);
  return ir_buffer_new(c, (IrBuffer){.name = name,
                                     .type = DT_F32,
                                     .scope = scope,
                                     .external = external,
                                     .rank = 1,
                                     .min = external ? NULL : dims,
                                     .extent = dims + 1,
                                     .size = dims[1]});
}
static ExprId load(IrCtx *c, BufferId b, ExprId i) { return ex_load(c, b, DT_F32, 1, &i); }
static Stmt *store(IrCtx *c, BufferId b, ExprId i, ExprId v) { return st_store(c, b, 1, &i, v); }
static Stmt *loop(IrCtx *c, VarId v, int64_t n, ForKind k, Stmt *body) {
  return st_for(c, v, ex_i32(c, 0), ex_i32(c, n), k, body);
}
static VarId var(IrCtx *c, const char *name) { return ir_var_new(c, name, DT_I32, false); }
static Stmt *seq(IrCtx *c, Stmt *a, Stmt *b) { return st_seq(c, 2, (Stmt *[]){a, b}); }
static Stmt *barrier(IrCtx *c) { return st_eval(c, ex_call(c, IN_SYNC_SHARED, DT_I32, 0, NULL)); }

/* B[i] = shared[15 - i] after shared[i] = A[i], with or without a barrier */
static InterpReport reverse(Fixture *f, Stmt *between, int64_t size, float *out) {
  IrCtx *c = f->c;
  BufferId a = buffer(c, "A", SC_GLOBAL, true, 16), b = buffer(c, "B", SC_GLOBAL, true, 16),
           s = buffer(c, "S", SC_SHARED, false, size);
  VarId t = var(c, "t");
  ExprId tx = ex_var(c, t);
  Stmt *fill = store(c, s, tx, load(c, a, tx)), *use = store(c, b, tx, load(c, s, ex_sub(c, ex_i32(c, 15), tx)));
  Stmt *body = between ? seq(c, seq(c, fill, between), use) : seq(c, fill, use);
  Stmt *k = loop(c, t, 16, FOR_THREAD_X, st_alloc(c, s, body));
  float in[16];
  for (int i = 0; i < 16; i++) in[i] = (float)i;
  BufferId args[2] = {a, b}, *copy = arena_copy(ir_arena(c), args, sizeof args);
  Kernel kernel = {.name = "k", .body = k, .n_param = 2, .param = copy, .grid = {1, 1, 1}, .block = {16, 1, 1}};
  Program p = {.f = {.ctx = c, .target = {.kind = TG_CUDA}, .body = k, .n_args = 2, .arg = copy, .flat = true},
               .n_kernels = 1,
               .kernel = &kernel};
  return interp_run_program(&p, (void *[]){in, out}, 0);
}

static void barriers(void **state) {
  Fixture *f = *state;
  float out[16] = {0};
  InterpReport r = reverse(f, barrier(f->c), 16, out);
  assert_int_equal(r.n, 0);
  for (int i = 0; i < 16; i++) assert_true(out[i] == (float)(15 - i));
  r = reverse(f, NULL, 16, out);
  assert_true(r.n >= 1);
  r = reverse(f, barrier(f->c), 12, out);
  assert_true(r.n >= 1 && strstr(r.finding[0], "out of bounds"));
}

static void divergent(void **state) {
  Fixture *f = *state;
  IrCtx *c = f->c;
  float out[16];
  /* the condition uses a variable of its own loop: build it by hand around the barrier */
  BufferId b = buffer(c, "B", SC_GLOBAL, true, 16);
  VarId t = var(c, "t");
  Stmt *s = st_if(c, ex_bin(c, IR_LT, ex_var(c, t), ex_i32(c, 8)), false, barrier(c), NULL);
  Stmt *k = loop(c, t, 16, FOR_THREAD_X, seq(c, s, store(c, b, ex_var(c, t), ex_flt(c, DT_F32, 1))));
  Func fn = {.ctx = c, .target = {.kind = TG_CUDA}, .body = k, .n_args = 1, .arg = &b, .flat = true};
  InterpReport r = interp_run(&fn, (void *[]){out}, 0);
  assert_int_equal(r.n, 1);
  assert_non_null(strstr(r.finding[0], "not reached by all threads"));
}

static void double_write(void **state) {
  Fixture *f = *state;
  IrCtx *c = f->c;
  float out[4];
  BufferId b = buffer(c, "B", SC_GLOBAL, true, 4);
  VarId t = var(c, "t");
  Stmt *k = loop(c, t, 8, FOR_BLOCK_X,
                 store(c, b, ex_bin(c, IR_DIV, ex_var(c, t), ex_i32(c, 2)), ex_cast(c, DT_F32, ex_var(c, t))));
  Func fn = {.ctx = c, .target = {.kind = TG_CUDA}, .body = k, .n_args = 1, .arg = &b, .flat = true};
  InterpReport r = interp_run(&fn, (void *[]){out}, 0);
  assert_true(r.n == 1 && strstr(r.finding[0], "double write"));
  k->u.loop.kind = FOR_PARALLEL;
  fn.target.kind = TG_CPU;
  r = interp_run(&fn, (void *[]){out}, 0);
  assert_true(r.n == 1 && strstr(r.finding[0], "double write"));
  k->u.loop.kind = FOR_SERIAL;
  r = interp_run(&fn, (void *[]){out}, 0);
  assert_int_equal(r.n, 0);
}

static void uninitialised(void **state) {
  Fixture *f = *state;
  IrCtx *c = f->c;
  float out[4];
  BufferId b = buffer(c, "B", SC_GLOBAL, true, 4), l = buffer(c, "L", SC_LOCAL, false, 4),
           m = buffer(c, "M", SC_LOCAL, false, 4);
  VarId i = var(c, "i"), j = var(c, "j"), k = var(c, "k");
  ExprId vi = ex_var(c, i), vj = ex_var(c, j), vk = ex_var(c, k);
  Stmt *fill = loop(c, i, 3, FOR_SERIAL, store(c, l, vi, ex_flt(c, DT_F32, 2)));
  Stmt *copy = loop(c, j, 4, FOR_SERIAL, store(c, m, vj, load(c, l, vj))); /* copies a hole */
  Stmt *use = loop(c, k, 3, FOR_SERIAL, store(c, b, vk, load(c, m, vk)));
  Stmt *s = st_alloc(c, l, st_alloc(c, m, seq(c, seq(c, fill, copy), use)));
  Func fn = {.ctx = c, .target = {.kind = TG_CPU}, .body = s, .n_args = 1, .arg = &b, .flat = true};
  InterpReport r = interp_run(&fn, (void *[]){out}, 0);
  assert_int_equal(r.n, 0);
  use->u.loop.extent = ex_i32(c, 4);
  r = interp_run(&fn, (void *[]){out}, 0);
  assert_true(r.n == 1 && strstr(r.finding[0], "never written"));
}

static void vectors_and_types(void **state) {
  Fixture *f = *state;
  IrCtx *c = f->c;
  float in[8], out[8];
  for (int i = 0; i < 8; i++) in[i] = (float)i + 0.1f;
  BufferId arg[2] = {buffer(c, "A", SC_GLOBAL, true, 8), buffer(c, "B", SC_GLOBAL, true, 8)};
  DType v4 = dtype_lanes(DT_F32, 4);
  VarId i = var(c, "i");
  ExprId ramp = ex_ramp(c, ex_mul(c, ex_var(c, i), ex_i32(c, 4)), ex_i32(c, 1), 4);
  ExprId value =
      ex_raw(c, IR_MUL, v4, 0, 2, (ExprId[]){ex_load(c, arg[0], v4, 1, &ramp), ex_bcast(c, ex_flt(c, DT_F32, 0.1), 4)});
  Stmt *s = loop(c, i, 2, FOR_SERIAL, st_store(c, arg[1], 1, &ramp, value));
  Func fn = {.ctx = c, .target = {.kind = TG_CPU}, .body = s, .n_args = 2, .arg = arg, .flat = true};
  InterpReport r = interp_run(&fn, (void *[]){in, out}, 0);
  assert_int_equal(r.n, 0);
  assert_int_equal(r.misaligned, 0);
  for (int k = 0; k < 8; k++) assert_true(out[k] == in[k] * 0.1f);
}

static void step_body(void *arg) {
  Fixture *f = arg;
  IrCtx *c = f->c;
  float out[4];
  BufferId b = buffer(c, "B", SC_GLOBAL, true, 4);
  VarId i = var(c, "i");
  Stmt *s = loop(c, i, 1000000, FOR_SERIAL, store(c, b, ex_i32(c, 0), ex_flt(c, DT_F32, 1)));
  Func fn = {.ctx = c, .target = {.kind = TG_CPU}, .body = s, .n_args = 1, .arg = &b, .flat = true};
  interp_run(&fn, (void *[]){out}, 1000);
}
static void step_limit(void **state) {
  Fixture *f = *state;
  assert_int_equal(err_try(&f->e, step_body, f), NS_ERR_VALUE);
  assert_non_null(strstr(f->e.msg, "stopped after"));
}

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
/* Blocks of four threads, two of which are a cluster, send each other their numbers; B = what arrives. A letter each: b the block
 * begins and expects 16 bytes, l it begins late, h the others have begun, s each sends its number, a all has arrived, o it is stored. What is wrong: m
 * more bytes are expected, t two neighbours are sent at once by each thread, n it is sent to a block that there is not, p to places that
 * there are not, x shared memory is stored to, y it is read and left, e only one thread waits for what arrives. */
static InterpReport exchange(Fixture *f, const char *what, int64_t blocks, float *out) {
  IrCtx *c = f->c;
  BufferId b = buffer(c, "B", SC_GLOBAL, true, 4 * blocks), s = buffer(c, "S", SC_SHARED, false, 4),
           n = buffer(c, "N", SC_SHARED, false, 2), l = buffer(c, "L", SC_LOCAL, false, 1);
  VarId t = var(c, "t"), z = var(c, "z");
  ExprId tx = ex_var(c, t), bz = ex_var(c, z), zero = ex_i32(c, 0), two = ex_i32(c, 2), four = ex_i32(c, 4);
  ExprId me = ex_add(c, ex_mul(c, bz, four), tx), other = ex_sub(c, ex_i32(c, 1), ex_fmod(c, bz, two)),
         value = ex_cast(c, DT_F32, me), arrivals = load(c, n, zero);
  Stmt *body = NULL, *one = NULL;
  for (const char *w = what; *w; w++) {
    ExprId bytes[] = {load(c, s, zero), arrivals, ex_i32(c, *w == 'm' ? 20 : 16), ex_i32(c, *w == 'l')};
    ExprId args[] = {load(c, s, *w == 'p' ? ex_add(c, tx, two) : tx), arrivals, *w == 'n' ? two : other, value, value};
    Stmt *arrived = st_eval(c, ex_call(c, IN_CLUSTER_ARRIVED, DT_I32, 1, &arrivals));
    switch (*w) {
    case 'b':
    case 'l':
    case 'm': one = st_eval(c, ex_call(c, IN_CLUSTER_BEGIN, DT_I32, 4, bytes)); break;
    case 'h': one = st_eval(c, ex_call(c, IN_CLUSTER_HERE, DT_I32, 0, NULL)); break;
    case 's':
    case 'n':
    case 'p':
    case 't': one = st_eval(c, ex_call(c, IN_CLUSTER_SEND, DT_I32, *w == 't' ? 5 : 4, args)); break;
    case 'a': one = arrived; break;
    case 'e': one = st_if(c, ex_bin(c, IR_LT, tx, two), false, arrived, NULL); break;
    case 'x': one = store(c, s, tx, ex_flt(c, DT_F32, 7)); break;
    case 'y': one = store(c, l, zero, load(c, s, tx)); break;
    default: one = store(c, b, me, load(c, s, tx)); break;
    }
    body = body ? seq(c, body, one) : one;
  }
  body = st_attr(c, AT_SYNCED, 2, NULL, st_alloc(c, n, st_alloc(c, s, st_alloc(c, l, body))));
  Stmt *k = loop(c, z, blocks, FOR_BLOCK_Z, loop(c, t, 4, FOR_THREAD_X, body));
  BufferId *copy = arena_copy(ir_arena(c), &b, sizeof b);
  Kernel kernel = {.name = "k", .body = k, .n_param = 1, .param = copy, .grid = {1, 1, blocks}, .block = {4, 1, 1}};
  Program p = {.f = {.ctx = c, .target = {.kind = TG_CUDA}, .body = k, .n_args = 1, .arg = copy, .flat = true},
               .n_kernels = 1,
               .kernel = &kernel};
  return interp_run_program(&p, (void *[]){out}, 0);
}
static void clusters(void **state) {
  Fixture *f = *state;
  float out[16];
  InterpReport r;
  for (int late = 0; late < 2; late++) { /* late: what was there is gone */
    r = exchange(f, late ? "xlhsao" : "bhsao", 4, out);
    assert_int_equal(r.n, 0);
    for (int i = 0; i < 16; i++) assert_true(out[i] == (float)(i % 8 < 4 ? i + 4 : i - 4));
  }
  static const struct {
    const char *what, *finding;
  } WRONG[] = {{"bshao", "may not be ready for that"},
               {"bhsaso", "may not be ready for that"},
               {"hsao", "has not begun itself"},
               {"bhssao", "two values are sent there"},
               {"bhao", "waits for 16 bytes in 'S', and 0 are sent"},
               {"mhsao", "waits for 20 bytes in 'S', and 16 are sent"},
               {"bhtao", "not aligned"},
               {"bhnao", "in block 2 of 2"},
               {"bhpao", "out of bounds"},
               {"bxhsao", "touched before"},
               {"bhsxao", "touched before"},
               {"bhysao", "touched before"},
               {"bhsoao", "never written"},
               {"bhso", "may end while others"},
               {"bhseo", "not reached by all threads"}};
  for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
    r = exchange(f, WRONG[i].what, 2, out);
    bool found = false;
    for (int k = 0; k < r.n; k++) found |= strstr(r.finding[k], WRONG[i].finding) != NULL;
    for (int k = 0; k < r.n && !found; k++) print_message("%s: %s\n", WRONG[i].what, r.finding[k]);
    assert_true(found);
  }
}
/* One block of so many threads, in a kernel of an input and a result. */
static InterpReport run_block(IrCtx *c, Target t, Stmt *body, int threads, const BufferId arg[2], void *in, void *out) {
  BufferId *copy = arena_copy(ir_arena(c), arg, 2 * sizeof *arg);
  Kernel kernel = {.name = "k", .body = body, .n_param = 2, .param = copy, .grid = {1, 1, 1}, .block = {threads, 1, 1}};
  Program p = {.f = {.ctx = c, .target = t, .body = body, .n_args = 2, .arg = copy, .flat = true},
               .n_kernels = 1,
               .kernel = &kernel};
  return interp_run_program(&p, (void *[]){in, out}, 0);
}

/* A warpgroup multiplies 64 x 8 ones by 8 x 8 ones from shared memory; B = one of its sums. A letter each: z zeros are added to,
 * k ones are stored in shared memory, x sevens are, f what is stored is to be seen, b barrier, g begin, m product, c commit, w all
 * are waited for, v all but the last group are, o the sum is stored, a ones are copied to shared memory, d the copies have arrived. */
static InterpReport group(Fixture *f, const char *what, float *out) {
  IrCtx *c = f->c;
  BufferId arg[] = {buffer(c, "A", SC_GLOBAL, true, 640), buffer(c, "B", SC_GLOBAL, true, 128)};
  BufferId s = buffer(c, "S", SC_SHARED, false, 640), l = buffer(c, "L", SC_LOCAL, false, 4);
  ir_buffer(c, s)->align = 1024;
  VarId t = var(c, "t");
  ExprId tx = ex_var(c, t), zero = ex_i32(c, 0), one = ex_i32(c, 1), line = ex_i32(c, 32);
  ExprId args[] = {ex_i32(c, MMA_TF32),
                   ex_i32(c, 8),
                   load(c, l, zero),
                   load(c, s, zero),
                   load(c, s, ex_i32(c, 512)),
                   line,
                   zero,
                   line,
                   zero};
  Stmt *body = NULL, *next;
  for (const char *w = what; *w; w++) {
    VarId i = var(c, "i");
    ExprId at = ex_add(c, ex_mul(c, ex_var(c, i), ex_i32(c, 128)), tx);
    ExprId copy[] = {one, load(c, s, at), load(c, arg[0], at), ex_int(c, DT_BOOL, 1)};
    switch (*w) {
    case 'z': next = loop(c, i, 4, FOR_SERIAL, store(c, l, ex_var(c, i), ex_flt(c, DT_F32, 0))); break;
    case 'k':
    case 'x': next = loop(c, i, 5, FOR_SERIAL, store(c, s, at, ex_flt(c, DT_F32, *w == 'k' ? 1 : 7))); break;
    case 'f': next = st_eval(c, ex_call(c, IN_GROUP_SEES, DT_I32, 0, NULL)); break;
    case 'b': next = barrier(c); break;
    case 'g': next = st_eval(c, ex_call(c, IN_GROUP_BEGIN, DT_I32, 0, NULL)); break;
    case 'm': next = st_eval(c, ex_call(c, IN_GROUP_MMA, DT_I32, 9, args)); break;
    case 'c': next = st_eval(c, ex_call(c, IN_GROUP_COMMIT, DT_I32, 0, NULL)); break;
    case 'w': next = st_eval(c, ex_call(c, IN_GROUP_WAIT, DT_I32, 1, &zero)); break;
    case 'v': next = st_eval(c, ex_call(c, IN_GROUP_WAIT, DT_I32, 1, &one)); break;
    case 'a':
      next = seq(c, loop(c, i, 5, FOR_SERIAL, st_eval(c, ex_call(c, IN_COPY_ASYNC, DT_I32, 4, copy))),
                 st_eval(c, ex_call(c, IN_COPY_COMMIT, DT_I32, 0, NULL)));
      break;
    case 'd': next = st_eval(c, ex_call(c, IN_COPY_WAIT, DT_I32, 1, &zero)); break;
    default: next = store(c, arg[1], tx, load(c, l, zero)); break;
    }
    body = body ? seq(c, body, next) : next;
  }
  Stmt *k = loop(c, t, 128, FOR_THREAD_X, st_attr(c, AT_SYNCED, 1, NULL, st_alloc(c, s, st_alloc(c, l, body))));
  float ones[640];
  for (int i = 0; i < 640; i++) ones[i] = 1;
  return run_block(c, (Target){.kind = TG_CUDA}, k, 128, arg, ones, out);
}
static void warpgroups(void **state) {
  Fixture *f = *state;
  static const struct {
    const char *what;
    float sum;
  } RIGHT[] = {
      {"zkfbgmcwo", 8}, {"zkfbgmmcwo", 16}, {"zkfbgmcmcvwo", 16}, {"zkfbgmcwbxfbgmcwo", 8 + 8 * 49}, {"zadfbgmcwo", 8}};
  static const struct {
    const char *what, *finding;
  } WRONG[] = {{"zkbgmcwo", "may not see what was stored"},
               {"zfkbbgmcwo", "may not see what was stored"},
               {"zkfgmcwo", "race"},
               {"zkfbmcwo", "without a fence"},
               {"zkfbgmcwmcwo", "without a fence"},
               {"zkfbgmwo", "never written"},
               {"zkfbgmco", "never written"},
               {"zkfbgmcmcvo", "never written"},
               {"zkfbgmcbxwo", "changes before the products"},
               {"zkfbgmcxwo", "race"},
               {"zafbgmcwo", "never written"},
               {"zafbgmcwdo", "never written"},
               {"zadfgmcwo", "race"},
               {"zadbgmcwo", "may not see what was stored"},
               {"zafdbgmcwo", "may not see what was stored"},
               {"zkfbgmcbawo", "changes before the products"},
               {"zkfbgmczwo", "is stored to before the products"},
               {"kfbgmcwo", "never written"}};
  float out[128];
  for (size_t i = 0; i < sizeof RIGHT / sizeof *RIGHT; i++) {
    InterpReport r = group(f, RIGHT[i].what, out);
    for (int k = 0; k < r.n; k++) print_message("%s: %s\n", RIGHT[i].what, r.finding[k]);
    assert_int_equal(r.n, 0);
    for (int k = 0; k < 128; k++) assert_true(out[k] == RIGHT[i].sum);
  }
  for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
    InterpReport r = group(f, WRONG[i].what, out);
    bool found = false;
    for (int k = 0; k < r.n; k++) found |= strstr(r.finding[k], WRONG[i].finding) != NULL;
    for (int k = 0; k < r.n && !found; k++) print_message("%s: %s\n", WRONG[i].what, r.finding[k]);
    assert_true(found);
  }
}

/* 64 threads. A letter each: s each stores its number in shared memory, t the next one, m the lanes of each warp meet, r each
 * reads what its neighbour has stored, x what its namesake in the other warp has, h half of a warp meets. */
static InterpReport meeting(Fixture *f, const char *what, float *out) {
  IrCtx *c = f->c;
  BufferId b = buffer(c, "B", SC_GLOBAL, true, 64), s = buffer(c, "S", SC_SHARED, false, 64);
  VarId t = var(c, "t");
  ExprId tx = ex_var(c, t), one = ex_i32(c, 1);
  Stmt *body = NULL, *next;
  for (const char *w = what; *w; w++) {
    ExprId other = ex_call(c, IN_BXOR, DT_I32, 2, (ExprId[]){tx, ex_i32(c, *w == 'x' ? 32 : 1)});
    switch (*w) {
    case 's': next = store(c, s, tx, ex_cast(c, DT_F32, tx)); break;
    case 't': next = store(c, s, tx, ex_cast(c, DT_F32, ex_add(c, tx, one))); break;
    case 'm': next = st_eval(c, ex_call(c, IN_WARP_SYNC, DT_I32, 0, NULL)); break;
    case 'h':
      next = st_if(c, ex_bin(c, IR_LT, tx, ex_i32(c, 16)), false, st_eval(c, ex_call(c, IN_WARP_SYNC, DT_I32, 0, NULL)),
                   NULL);
      break;
    default: next = store(c, b, tx, load(c, s, other)); break;
    }
    body = body ? seq(c, body, next) : next;
  }
  Stmt *k = loop(c, t, 64, FOR_THREAD_X, st_attr(c, AT_SYNCED, 1, NULL, st_alloc(c, s, body)));
  BufferId *copy = arena_copy(ir_arena(c), &b, sizeof b);
  Kernel kernel = {.name = "k", .body = k, .n_param = 1, .param = copy, .grid = {1, 1, 1}, .block = {64, 1, 1}};
  Program p = {.f = {.ctx = c, .target = {.kind = TG_CUDA}, .body = k, .n_args = 1, .arg = copy, .flat = true},
               .n_kernels = 1,
               .kernel = &kernel};
  return interp_run_program(&p, (void *[]){out}, 0);
}
static void warps_meet(void **state) {
  Fixture *f = *state;
  static const char *const RIGHT[] = {"smr", "smrmtmsmr"}, *const WRONG[][2] = {
                                                               {"sr", "race"},
                                                               {"smx", "race"},
                                                               {"smrtmr", "race"},
                                                               {"smrmtr", "race"},
                                                               {"shr", "not reached by all its lanes"}};
  float out[64];
  for (size_t i = 0; i < sizeof RIGHT / sizeof *RIGHT; i++) {
    InterpReport r = meeting(f, RIGHT[i], out);
    assert_int_equal(r.n, 0);
    for (int k = 0; k < 64; k++) assert_true(out[k] == (float)(k ^ 1));
  }
  for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
    InterpReport r = meeting(f, WRONG[i][0], out);
    bool found = false;
    for (int k = 0; k < r.n; k++) found |= strstr(r.finding[k], WRONG[i][1]) != NULL;
    if (!found) print_message("%s\n", WRONG[i][0]);
    assert_true(found);
  }
}

/* 64 threads copy slices of four elements each to two places by turns; slice i is full of i + 1. A letter each: c a slice is copied (each
 * thread its four elements), k that is a group, w all groups are waited for, v all but the last are, b barrier, n the next slice is
 * read from here on. What each thread adds to its sum: r its own element, x that of its namesake in the other warp. Fragments of 16
 * rows of four: f of those that the other warp has copied, y of its own warp's, u the same by other lanes; m their product is
 * added. o the sum is stored, e the fragment's register is. Without copies: s each thread stores four elements, h the lanes of a warp
 * meet, p half of the threads (the first warp) store. */
typedef struct {
  IrCtx *c;
  BufferId a, b, s, l, g; /* global slices, results, shared places, sums, fragments */
  ExprId tx;
  int copied, used;
} Slices;
static ExprId place(Slices *x, int slice, ExprId row) {
  IrCtx *c = x->c;
  return ex_add(c, ex_mul(c, row, ex_i32(c, 4)), ex_i32(c, slice % 2 * 256));
}
static Stmt *copy_slice(Slices *x) {
  IrCtx *c = x->c;
  ExprId from = ex_add(c, ex_mul(c, x->tx, ex_i32(c, 4)), ex_i32(c, x->copied * 256));
  ExprId args[] = {ex_i32(c, 4), load(c, x->s, place(x, x->copied++, x->tx)), load(c, x->a, from),
                   ex_int(c, DT_BOOL, 1)};
  return st_eval(c, ex_call(c, IN_COPY_ASYNC, DT_I32, 4, args));
}
static Stmt *store_slice(Slices *x) {
  IrCtx *c = x->c;
  VarId i = var(c, "i");
  ExprId at = ex_add(c, place(x, x->copied++, x->tx), ex_var(c, i));
  return loop(c, i, 4, FOR_SERIAL, store(c, x->s, at, ex_flt(c, DT_F32, x->copied)));
}
static Stmt *take_fragments(Slices *x, int flip) {
  IrCtx *c = x->c;
  ExprId row = ex_call(c, IN_BXOR, DT_I32, 2, (ExprId[]){x->tx, ex_i32(c, flip)}), zero = ex_i32(c, 0);
  ExprId args[] = {ex_i32(c, 4), zero, load(c, x->g, zero), load(c, x->s, place(x, x->used, row))};
  return st_eval(c, ex_call(c, IN_FRAGMENT, DT_I32, 4, args));
}
static Stmt *add_up(Slices *x, int flip) {
  IrCtx *c = x->c;
  ExprId row = ex_call(c, IN_BXOR, DT_I32, 2, (ExprId[]){x->tx, ex_i32(c, flip)}), zero = ex_i32(c, 0);
  return store(c, x->l, zero, ex_add(c, load(c, x->l, zero), load(c, x->s, place(x, x->used, row))));
}
static Stmt *slice_step(Slices *x, char what) {
  IrCtx *c = x->c;
  ExprId zero = ex_i32(c, 0), one = ex_i32(c, 1);
  ExprId mma[] = {ex_i32(c, MMA_TF32), load(c, x->l, zero), load(c, x->g, zero), load(c, x->g, zero)};
  switch (what) {
  case 'c': return copy_slice(x);
  case 'k': return st_eval(c, ex_call(c, IN_COPY_COMMIT, DT_I32, 0, NULL));
  case 'w': return st_eval(c, ex_call(c, IN_COPY_WAIT, DT_I32, 1, &zero));
  case 'v': return st_eval(c, ex_call(c, IN_COPY_WAIT, DT_I32, 1, &one));
  case 'b': return barrier(c);
  case 'r': return add_up(x, 0);
  case 'x': return add_up(x, 32);
  case 'f': return take_fragments(x, 32);
  case 'y': return take_fragments(x, 0);
  case 'u': return take_fragments(x, 1);
  case 'm': return st_eval(c, ex_call(c, IN_MMA, DT_I32, 4, mma));
  case 's': return store_slice(x);
  case 'p': return st_if(c, ex_bin(c, IR_LT, x->tx, ex_i32(c, 32)), false, store_slice(x), NULL);
  case 'h': return st_eval(c, ex_call(c, IN_WARP_SYNC, DT_I32, 0, NULL));
  case 'e': return store(c, x->b, x->tx, ex_cast(c, DT_F32, load(c, x->g, zero)));
  default: return store(c, x->b, x->tx, load(c, x->l, zero));
  }
}
static InterpReport slices(Fixture *f, const char *what, float *out) {
  IrCtx *c = f->c;
  VarId t = var(c, "t"), z = var(c, "z");
  Slices x = {.c = c,
              .a = buffer(c, "A", SC_GLOBAL, true, 3 * 256),
              .b = buffer(c, "B", SC_GLOBAL, true, 64),
              .s = buffer(c, "S", SC_SHARED, false, 2 * 256),
              .l = buffer(c, "L", SC_LOCAL, false, 4),
              .g = buffer(c, "G", SC_LOCAL, false, 4),
              .tx = ex_var(c, t)};
  ir_buffer(c, x.g)->type = DT_I32;
  Stmt *body = loop(c, z, 4, FOR_SERIAL, store(c, x.l, ex_var(c, z), ex_flt(c, DT_F32, 0)));
  for (const char *w = what; *w; w++) {
    if (*w == 'n')
      x.used++;
    else
      body = seq(c, body, slice_step(&x, *w));
  }
  Stmt *inside = st_alloc(c, x.s, st_alloc(c, x.l, st_alloc(c, x.g, body)));
  Stmt *k = loop(c, t, 64, FOR_THREAD_X, st_attr(c, AT_SYNCED, 1, NULL, inside));
  float in[3 * 256];
  for (int i = 0; i < 3 * 256; i++) in[i] = (float)(i / 256 + 1);
  return run_block(c, target_default(TG_CUDA, 80), k, 64, (BufferId[]){x.a, x.b}, in, out);
}
static void copies(void **state) {
  Fixture *f = *state;
  static const struct {
    const char *what;
    float sum;
  } RIGHT[] = {{"ckwro", 1},                       /* what a thread has copied itself is its own once it has arrived */
               {"ckwbxo", 1},                      /* others' behind a barrier */
               {"ckckvro", 1},                     /* one slice arrived, another on its way */
               {"ckckvbxbcknvbxnwbxo", 1 + 2 + 3}, /* its place is filled again behind the barrier of its readers */
               {"ckckvbfmbcknvbfmnwbfmo", 8 * (1 + 4 + 9)},
               {"fbckwbfmo", 8}, /* fragments of nothing that nobody multiplies */
               {"sbfmbsnbfmo", 8 * (1 + 4)},
               {"sbsbyuhpo", 0}}; /* a warp meets, and stores where it alone has read */
  static const struct {
    const char *what, *finding;
  } WRONG[] = {/* not waited for, or not all of it that is read */
               {"ckro", "never written"},
               {"ckbxo", "never written"},
               {"cwro", "never written"},
               {"ckvro", "never written"},
               {"ckckvbxnbxo", "never written"},
               {"ckckvbxnvbxo", "never written"},
               {"ckbfmo", "never written"},
               {"ckbfeo", "never written"},
               {"ckvbfmo", "never written"},
               {"ckbfbwbmo", "never written"},
               {"ckckvbfmnvbfmo", "never written"},
               {"ckckwbxnxbcknbxo", "never written"}, /* what was there before is no longer what is read */
               {"ckckwbfmnfmbcknbfmo", "never written"},
               /* arrived, as far as the thread knows that copied it */
               {"ckwxo", "race"},
               {"ckbwxo", "race"},
               {"ckwfmo", "race"},
               {"ckbwfmo", "race"},
               {"ckwumo", "race"},
               /* its place is filled again while others read it */
               {"ckckvbxcknvbxo", "race"},
               {"ckckvbfmcknvbfmo", "race"},
               {"ckckvbxckbnvbxo", "race"},
               {"ckckvbfmckbnvbfmo", "race"},
               /* no copies: warps store what fragments are loaded from */
               {"sfmo", "race"},
               {"sbfmsnsfmo", "race"},
               {"sbsbfnfsmo", "race"},
               {"sbsbfhpmo", "race"},
               {"sbsbfyhpmo", "race"},
               {"sbsbfyuhpmo", "race"}};
  float out[64];
  for (size_t i = 0; i < sizeof RIGHT / sizeof *RIGHT; i++) {
    InterpReport r = slices(f, RIGHT[i].what, out);
    for (int k = 0; k < r.n; k++) print_message("%s: %s\n", RIGHT[i].what, r.finding[k]);
    assert_int_equal(r.n, 0);
    for (int k = 0; k < 64; k++) assert_true(out[k] == RIGHT[i].sum);
  }
  int missed = 0;
  for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
    InterpReport r = slices(f, WRONG[i].what, out);
    bool found = false;
    for (int k = 0; k < r.n; k++) found |= strstr(r.finding[k], WRONG[i].finding) != NULL;
    if (!found) print_message("%s: %d findings, no '%s'\n", WRONG[i].what, r.n, WRONG[i].finding);
    for (int k = 0; k < r.n && !found; k++) print_message("%s: %s\n", WRONG[i].what, r.finding[k]);
    missed += !found;
  }
  assert_int_equal(missed, 0);
}

/* Four threads in each of two blocks for each of two tiles leave their numbers; the last block of a tile adds up what both of its blocks
 * left, in B. A letter each: s a thread's number is stored, t another one is, c the block is counted, h by half of its threads only, m as
 * one of three, a the last adds up what other threads stored, e every block does. */
static InterpReport counting(Fixture *f, const char *what, float *out) {
  IrCtx *c = f->c;
  BufferId b = buffer(c, "B", SC_GLOBAL, true, 8), l = buffer(c, "L", SC_LOCAL, false, 1),
           work[] = {buffer(c, "P", SC_GLOBAL, false, 16), buffer(c, "N", SC_GLOBAL, false, 2)};
  ir_buffer(c, l)->type = ir_buffer(c, work[1])->type = DT_I32;
  VarId t = var(c, "t"), z = var(c, "z");
  ExprId tx = ex_var(c, t), bz = ex_var(c, z), zero = ex_i32(c, 0), two = ex_i32(c, 2), four = ex_i32(c, 4);
  ExprId tile = ex_fdiv(c, bz, two), me = ex_add(c, ex_mul(c, bz, four), tx),
         first = ex_add(c, ex_mul(c, tile, ex_i32(c, 8)), ex_sub(c, ex_i32(c, 3), tx)),
         last = ex_load(c, l, DT_I32, 1, &zero), counter = ex_load(c, work[1], DT_I32, 1, &tile);
  ExprId both = ex_add(c, load(c, work[0], first), load(c, work[0], ex_add(c, first, four)));
  Stmt *body = NULL, *next;
  for (const char *w = what; *w; w++) {
    ExprId args[] = {last, counter, ex_i32(c, *w == 'm' ? 3 : 2)};
    Stmt *add = store(c, b, ex_add(c, ex_mul(c, tile, four), tx), both),
         *count = st_eval(c, ex_call(c, IN_LAST_BLOCK, DT_I32, 3, args));
    switch (*w) {
    case 's': next = store(c, work[0], me, ex_cast(c, DT_F32, me)); break;
    case 't': next = store(c, work[0], me, ex_flt(c, DT_F32, 99)); break;
    case 'h': next = st_if(c, ex_bin(c, IR_LT, tx, two), false, count, NULL); break;
    case 'a': next = st_if(c, ex_bin(c, IR_NE, last, zero), false, add, NULL); break;
    case 'e': next = add; break;
    default: next = count; break;
    }
    body = body ? seq(c, body, next) : next;
  }
  body = st_attr(c, AT_SYNCED, 1, NULL, st_alloc(c, l, body));
  Stmt *k = loop(c, z, 4, FOR_BLOCK_X, loop(c, t, 4, FOR_THREAD_X, body));
  BufferId param[] = {b, work[0], work[1]}, *copy = arena_copy(ir_arena(c), param, sizeof param);
  Kernel kernel = {.name = "k", .body = k, .n_param = 3, .param = copy, .grid = {4, 1, 1}, .block = {4, 1, 1}};
  Program p = {.f = {.ctx = c, .target = {.kind = TG_CUDA}, .body = k, .n_args = 1, .arg = copy, .flat = true},
               .n_kernels = 1,
               .kernel = &kernel,
               .n_work = 2,
               .work = copy + 1};
  return interp_run_program(&p, (void *[]){out}, 0);
}
static void last_blocks(void **state) {
  Fixture *f = *state;
  static const char *const WRONG[][2] = {
      {"csa", "race on 'P'"},  {"scta", "race on 'P'"}, {"scat", "race on 'P'"},
      {"scca", "race on 'P'"}, {"sce", "race on 'P'"},  {"se", "race on 'P'"},
      {"ca", "never written"}, {"sa", "never written"}, {"sha", "not all of its threads"},
      {"sma", "not 0"}};
  float right[8] = {0};
  InterpReport ok = counting(f, "sca", right);
  for (int k = 0; k < ok.n; k++) print_message("%s\n", ok.finding[k]);
  assert_int_equal(ok.n, 0);
  for (int k = 0; k < 8; k++) assert_true(right[k] == (float)(k < 4 ? 2 * (3 - k) + 4 : 2 * (15 - k) + 4));
  for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
    float out[8] = {0};
    InterpReport r = counting(f, WRONG[i][0], out);
    bool found = false;
    for (int k = 0; k < r.n; k++) found |= strstr(r.finding[k], WRONG[i][1]) != NULL;
    for (int k = 0; k < r.n && !found; k++) print_message("%s: %s\n", WRONG[i][0], r.finding[k]);
    assert_true(found);
  }
}

/* B = A + C of a thread in each of two blocks; C is a constant. A letter each: w waits for the launch before, n lets the next one begin,
 * c reads C, a reads A, o stores the sum, i does so in one block only, v waits in one block only, x writes C. */
static InterpReport launches(Fixture *f, const char *what, float *out) {
  IrCtx *c = f->c;
  BufferId arg[] = {buffer(c, "A", SC_GLOBAL, true, 2), buffer(c, "C", SC_GLOBAL, true, 2),
                    buffer(c, "B", SC_GLOBAL, true, 2)},
           l = buffer(c, "L", SC_LOCAL, false, 2);
  VarId t = var(c, "t"), z = var(c, "z");
  ExprId at = ex_var(c, z), zero = ex_i32(c, 0), one = ex_i32(c, 1), sum = ex_add(c, load(c, l, zero), load(c, l, one));
  Stmt *body = NULL, *next;
  for (const char *w = what; *w; w++) {
    switch (*w) {
    case 'w': next = st_eval(c, ex_call(c, IN_LAUNCH_WAIT, DT_I32, 0, NULL)); break;
    case 'n': next = st_eval(c, ex_call(c, IN_LAUNCH_NEXT, DT_I32, 0, NULL)); break;
    case 'v':
      next = st_if(c, ex_bin(c, IR_LT, at, one), false, st_eval(c, ex_call(c, IN_LAUNCH_WAIT, DT_I32, 0, NULL)), NULL);
      break;
    case 'x': next = store(c, arg[1], at, sum); break;
    case 'c': next = store(c, l, one, load(c, arg[1], at)); break;
    case 'a': next = store(c, l, zero, load(c, arg[0], at)); break;
    case 'i': next = st_if(c, ex_bin(c, IR_LT, at, one), false, store(c, arg[2], at, sum), NULL); break;
    default: next = store(c, arg[2], at, sum); break;
    }
    body = body ? seq(c, body, next) : next;
  }
  Stmt *k = loop(c, z, 2, FOR_BLOCK_X, loop(c, t, 1, FOR_THREAD_X, st_alloc(c, l, body)));
  BufferId *copy = arena_copy(ir_arena(c), arg, sizeof arg);
  Kernel kernel = {.name = "k", .body = k, .n_param = 3, .param = copy, .grid = {2, 1, 1}, .block = {1, 1, 1}};
  Program p = {
      .f = {.ctx = c, .target = {.kind = TG_CUDA}, .body = k, .n_args = 3, .arg = copy, .flat = true, .constant = 2},
      .n_kernels = 1,
      .kernel = &kernel};
  float a[] = {1, 2}, b[] = {10, 20};
  return interp_run_program(&p, (void *[]){a, b, out}, 0);
}
static void overlapping_launches(void **state) {
  Fixture *f = *state;
  static const char *const RIGHT[] = {"cwao", "wcao", "cwnao", "wacon", "wcaoacw", "cao"},
                           *const WRONG[][2] = {{"cawo", "'A' is read before"},
                                                {"cnwao", "may begin before"},
                                                {"caowcao", "'B' is written before"},
                                                {"caiwo", "'A' is read before"},
                                                {"cvao", "none of its threads has waited"},
                                                {"wcaox", "take it for a constant"}};
  for (size_t i = 0; i < sizeof RIGHT / sizeof *RIGHT; i++) {
    float out[] = {0, 0};
    InterpReport r = launches(f, RIGHT[i], out);
    for (int k = 0; k < r.n; k++) print_message("%s: %s\n", RIGHT[i], r.finding[k]);
    assert_int_equal(r.n, 0);
    assert_true(out[0] == 11 && out[1] == 22);
  }
  for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
    float out[] = {0, 0};
    InterpReport r = launches(f, WRONG[i][0], out);
    bool found = false;
    for (int k = 0; k < r.n; k++) found |= strstr(r.finding[k], WRONG[i][1]) != NULL;
    if (!found) print_message("%s\n", WRONG[i][0]);
    assert_true(found);
  }
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
  const struct CMUnitTest tests[] = {
      T(barriers),   T(clusters),   T(divergent),  T(double_write), T(uninitialised),        T(vectors_and_types),
      T(step_limit), T(warpgroups), T(warps_meet), T(copies),       T(overlapping_launches), T(last_blocks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
