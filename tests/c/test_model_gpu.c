/* Closed forms of GPU kernels: worked numbers of occupancy, waves, coalescing and bank conflicts. */
#include "model/gpu.h"
#include "model/lanes.h"
#include "model/model.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static bool near(double a, double b) { return fabs(a - b) < 1e-9; }

/* Twenty kernels, by hand from the limits of each multiprocessor. */
static void occupancy(void **state) {
  (void)state;
  static const struct {
    int sm;
    int64_t threads, regs, shared, blocks;
    int limit;
  } CASE[] = {{80, 256, 96, 40 << 10, 2, GPU_BY_REGS},    {80, 256, 32, 40 << 10, 4, GPU_BY_SHARED},
              {80, 1024, 32, 0, 2, GPU_BY_REGS},          {80, 32, 32, 0, 32, GPU_BY_BLOCKS},
              {80, 64, 16, 0, 32, GPU_BY_BLOCKS},         {80, 128, 255, 0, 2, GPU_BY_REGS},
              {80, 1024, 65, 0, 0, GPU_BY_REGS},          {80, 256, 64, 163 << 10, 1, GPU_BY_SHARED},
              {90, 256, 64, 48 << 10, 4, GPU_BY_REGS},    {90, 256, 32, 48 << 10, 4, GPU_BY_SHARED},
              {90, 512, 32, 227 << 10, 1, GPU_BY_SHARED}, {90, 96, 40, 0, 16, GPU_BY_REGS},
              {86, 256, 40, 0, 6, GPU_BY_REGS},           {86, 1024, 32, 0, 1, GPU_BY_WARPS},
              {86, 32, 32, 0, 16, GPU_BY_BLOCKS},         {89, 256, 32, 20 << 10, 4, GPU_BY_SHARED},
              {75, 256, 64, 16 << 10, 4, GPU_BY_REGS},    {75, 1024, 64, 0, 1, GPU_BY_REGS},
              {70, 256, 32, 48 << 10, 2, GPU_BY_SHARED},  {70, 1, 255, 0, 8, GPU_BY_REGS}};
  assert_int_equal(NS_COUNT(CASE), 20);
  for (int i = 0; i < NS_COUNT(CASE); i++) {
    Occupancy o = gpu_occupancy(gpu_machine(CASE[i].sm), CASE[i].threads, CASE[i].regs, CASE[i].shared);
    assert_int_equal(o.blocks, CASE[i].blocks);
    if (CASE[i].blocks) assert_int_equal(o.limit, CASE[i].limit);
  }
  Occupancy o = gpu_occupancy(gpu_machine(80), 256, 96, 40 << 10);
  assert_int_equal(o.limit, GPU_BY_REGS);
  assert_true(near(o.occ, 0.25));
}

static void waves(void **state) {
  (void)state;
  GpuWaves w = gpu_waves(gpu_machine(80), 324, 48, 2);
  assert_true(near(w.waves, 1.5) && near(w.tail, 0.75) && near(w.fill, 1) && near(w.lane, 0.75) && near(w.sched, 0.25));
  w = gpu_waves(gpu_machine(80), 54, 256, 2);
  assert_true(near(w.waves, 0.25) && near(w.tail, 0.25) && near(w.fill, 0.5) && near(w.lane, 1) && near(w.sched, 1));
}

static void lanes(int64_t *at, int64_t step) {
  for (int i = 0; i < 32; i++) at[i] = i * step;
}

static void accesses(void **state) {
  (void)state;
  int64_t at[32];
  static const struct {
    int64_t step;
    int bytes, sectors;
    double degree;
  } CASE[] = {{4, 4, 4, 1},                      /* consecutive floats */
              {8, 4, 8, 2},                      /* every second float */
              {256, 4, 32, 32},                  /* rows of 64 floats: one bank */
              {260, 4, 32, 1},                   /* one float of padding */
              {0, 4, 1, 1},                      /* broadcast */
              {16, 16, 16, 1},                   /* float4, consecutive */
              {2, 2, 2, 1},                      /* half */
              {128, 4, 32, 32}, {12, 4, 12, 1}}; /* three floats apart: 96 words on 32 banks, each lane its own */
  for (int i = 0; i < NS_COUNT(CASE); i++) {
    lanes(at, CASE[i].step);
    assert_int_equal(gpu_sectors(32, at, CASE[i].bytes), CASE[i].sectors);
    assert_true(near(gpu_bank_degree(32, at, CASE[i].bytes), CASE[i].degree));
  }
}

static double lg(double x) { return log2(x + 1); }

/* Every entry of two kernels on an A100, from the definitions. */
static void vector(void **state) {
  (void)state;
  int64_t row[32], step[32], same[32] = {0};
  lanes(row, 4), lanes(step, 256);
  KernelFacts k[2] = {{.blocks = 108,
                       .threads = 256,
                       .vthreads = 2,
                       .shared_bytes = 40 << 10,
                       .local_elems = 64,
                       .ops = 1e9,
                       .global_bytes = 4e6,
                       .unique_bytes = 1e6,
                       .shared_reads = 1e8,
                       .barriers = 64,
                       .stages = 2,
                       .mem = {.fill_bytes = 2e6}},
                      {.blocks = 10,
                       .threads = 32,
                       .vthreads = 1,
                       .ops = 1e6,
                       .global_bytes = 1e6,
                       .unique_bytes = 1e6,
                       .matrix_possible = true}};
  GpuMemory *m = &k[0].mem;
  assert_true(near(gpu_global_access(m, false, 32, row, 4, 1000), 128000)); /* 4 sectors a warp */
  gpu_global_access(m, false, 32, step, 4, 100);                            /* 32 sectors, an eighth of each */
  gpu_global_access(m, false, 32, same, 4, 900);
  gpu_global_access(m, true, 32, step, 4, 500);
  gpu_shared_access(m, false, 32, row, 4, 3000);
  gpu_shared_access(m, false, 32, step, 4, 1000);
  gpu_shared_access(m, true, 32, row, 4, 10);
  float one[STATE_N], two[STATE_N], none[STATE_N];
  gpu_state_vector(gpu_machine(80), 1, k, 1e-4, one);
  gpu_state_vector(gpu_machine(80), 2, k, 1e-4, two);
  gpu_state_vector(gpu_machine(80), 0, k, 0, none);
  double read = 128000 + 102400 + 28800, math = 1e9 / (19.5e12 * 0.5) * 1e9;
  double want[STATE_N] = {lg(108),
                          lg(256),
                          lg(8),
                          lg(2),
                          lg(40960),
                          lg(104),
                          0,
                          1,
                          0,
                          0,
                          0,
                          2.0 / 32,
                          0.25,
                          1,
                          lg(0.5),
                          0.5,
                          1,
                          1,
                          0.125,
                          (128000 + 0.125 * 102400 + 28800) / read,
                          0.125,
                          0.125,
                          900.0 / 2000,
                          lg((4000 + 3200 + 900 + 16000) / 2500.0),
                          lg(32),
                          lg((3000 + 32000) / 4000.0),
                          lg(1),
                          lg(1),
                          lg(2e6),
                          lg(4e8),
                          lg(500),
                          lg(2.5),
                          lg(64),
                          lg(2),
                          0,
                          0,
                          0,
                          0,
                          0,
                          0,
                          0,
                          lg(1e5),
                          lg(math),
                          lg(1e6 / 1.55e12 * 1e9),
                          lg(4e6 / 4e12 * 1e9),
                          lg((3000 + 32000 + 10) / (108 * 1.41e9) * 1e9),
                          lg(64 * 20.0),
                          lg(1)};
  for (int i = 0; i < STATE_N; i++)
    if (fabs((double)one[i] - want[i]) > 1e-4) fail_msg("entry %d: %g, not %g", i, (double)one[i], want[i]);
  for (int i = 0; i < STATE_N; i++) assert_true(isfinite(two[i]) && isfinite(none[i]));
  /* sums, minima, maxima */
  assert_true(two[0] == one[0] && two[10] == 1 && two[7] == 1 && two[40] == 1 && two[41] == one[41]);
  assert_true(two[12] == one[12] && two[16] < one[16] && two[18] == one[18] && two[23] == one[23]);
  assert_true(fabs((double)two[28] - lg(2e6)) < 1e-4 &&
              fabs((double)two[44] - lg(4e6 / 4e12 * 1e9 + 1e6 / 4e12 * 1e9)) < 1e-4);
  assert_true(fabs((double)two[47] - lg(2)) < 1e-5 && none[47] == 0);
}

/* Index expressions in every lane, against plain arithmetic. */
static void expressions(void **state) {
  (void)state;
  Err e;
  err_init(&e);
  IrCtx *c = ir_new(&e);
  VarId x = ir_var_new(c, "x", DT_I32, true), y = ir_var_new(c, "y", DT_I32, true);
  LaneEnv env = lane_env(c);
  Lanes l = {.same = false}, out;
  for (int i = 0; i < LANES; i++) l.at[i] = 7 * i;
  lanes_set(&env, x, &l);
  ExprId vx = ex_var(c, x), vy = ex_var(c, y), five = ex_i32(c, 5), minus = ex_sub(c, vx, ex_i32(c, 40));
  ExprId div = ex_fdiv(c, minus, five), mod = ex_fmod(c, minus, five);
  lanes_of(&env, ex_add(c, ex_mul(c, div, five), mod), &out);
  for (int i = 0; i < LANES; i++) assert_int_equal(out.same ? out.at[0] : out.at[i], 7 * i - 40);
  lanes_of(&env, div, &out);
  for (int i = 0; i < LANES; i++) assert_int_equal(out.at[i], i64_floordiv(7 * i - 40, 5));
  lanes_of(&env, mod, &out);
  for (int i = 0; i < LANES; i++) assert_int_equal(out.at[i], i64_floormod(7 * i - 40, 5));
  lanes_of(&env,
           ex_select(c, ex_bin(c, IR_LT, vx, ex_i32(c, 50)), ex_mul(c, vx, vx), ex_bin(c, IR_MAX, vx, ex_i32(c, 99))),
           &out);
  for (int i = 0; i < LANES; i++) assert_int_equal(out.at[i], 7 * i < 50 ? 49 * i * i : 7 * i > 99 ? 7 * i : 99);
  lanes_of(&env, ex_add(c, vy, five), &out);
  assert_true(out.same && out.at[0] == 5);
  lanes_set(&env, 1 << 20, &l); /* unknown variables are left out */
  ir_free(c);
}

/* Sixty doublings: 2^60 operations written out, 120 of them different. */
static void shared_parts(void **state) {
  (void)state;
  Err e;
  err_init(&e);
  IrCtx *c = ir_new(&e);
  VarId x = ir_var_new(c, "x", DT_I32, true);
  LaneEnv env = lane_env(c);
  Lanes l = {.same = false}, out;
  ExprId v = ex_var(c, x);
  int32_t want[LANES];
  for (int i = 0; i < LANES; i++) l.at[i] = want[i] = 7 * i;
  lanes_set(&env, x, &l);
  for (int k = 0; k < 60; k++) {
    v = ex_fmod(c, ex_add(c, v, v), ex_i32(c, 7919));
    for (int i = 0; i < LANES; i++) want[i] = 2 * want[i] % 7919;
  }
  lanes_of(&env, v, &out);
  for (int i = 0; i < LANES; i++) assert_int_equal(out.at[i], want[i]);
  assert_int_equal(ex_size(c, v, NULL, NULL), EX_SIZE_MAX);
  assert_int_equal(ex_size(c, ex_add(c, ex_var(c, x), ex_i32(c, 1)), NULL, NULL), 3);
  ir_free(c);
}

/* A loop without iterations touches nothing, and nothing is divided by it. */
static void negative_extent(void **state) {
  (void)state;
  Err e;
  err_init(&e);
  IrCtx *c = ir_new(&e);
  ExprId one = ex_i32(c, 1);
  IrBuffer a = {.name = "A",
                .type = DT_F32,
                .scope = SC_GLOBAL,
                .rank = 1,
                .extent = arena_copy(ir_arena(c), &one, sizeof one),
                .external = true};
  BufferId buf = ir_buffer_new(c, a);
  VarId j = ir_var_new(c, "j", DT_I32, false);
  ExprId vj = ex_var(c, j), value = ex_add(c, ex_load(c, buf, DT_F32, 1, &vj), ex_flt(c, DT_F32, 1.0));
  Func f = {.ctx = c, .use = LOW_FEATURES};
  f.body = st_for(c, j, ex_i32(c, 0), ex_i32(c, -1), FOR_SERIAL, st_store(c, buf, 1, &vj, value));
  for (int rules = 1; rules <= 2; rules++) {
    Features x = feat_extract(&f, (FeatRules)rules, false);
    assert_int_equal(x.n_rows, 1);
    assert_true(x.row[0][57 + 4] == 0); /* B0.unique_bytes */
    for (int i = 0; i < FEAT_N; i++) assert_true(isfinite(x.row[0][i]));
  }
  ir_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(occupancy),      cmocka_unit_test(waves),
                                     cmocka_unit_test(accesses),       cmocka_unit_test(vector),
                                     cmocka_unit_test(expressions),    cmocka_unit_test(shared_parts),
                                     cmocka_unit_test(negative_extent)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
