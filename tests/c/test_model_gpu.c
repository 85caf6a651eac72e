/* Closed forms of GPU kernels: worked numbers of occupancy, waves, coalescing and bank conflicts. */
#include "model/gpu.h"
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
    double coal, degree;
  } CASE[] = {{4, 4, 4, 1, 1},         /* consecutive floats */
              {8, 4, 8, 0.5, 2},       /* every second float */
              {256, 4, 32, 0.125, 32}, /* rows of 64 floats: one bank */
              {260, 4, 32, 0.125, 1},  /* one float of padding */
              {0, 4, 1, 1, 1},         /* broadcast */
              {16, 16, 16, 1, 1},      /* float4, consecutive */
              {2, 2, 2, 1, 1},         /* half */
              {128, 4, 32, 0.125, 32},
              {12, 4, 12, 1.0 / 3, 1}}; /* three floats apart: 96 words on 32 banks, each lane its own */
  for (int i = 0; i < NS_COUNT(CASE); i++) {
    lanes(at, CASE[i].step);
    assert_int_equal(gpu_sectors(32, at, CASE[i].bytes), CASE[i].sectors);
    assert_true(near(gpu_coalescing(32, at, CASE[i].bytes), CASE[i].coal));
    assert_true(near(gpu_bank_degree(32, at, CASE[i].bytes), CASE[i].degree));
  }
}

static void vector(void **state) {
  (void)state;
  GpuKernel k[2] = {{.grid = 108,
                     .threads = 256,
                     .vthreads = 2,
                     .shared_bytes = 40 << 10,
                     .local_elems = 64,
                     .ops = 1e9,
                     .global_bytes = 4e6,
                     .unique_bytes = 1e6,
                     .shared_reads = 1e8,
                     .shared_degree = 2,
                     .barriers = 64},
                    {.grid = 10, .threads = 32, .vthreads = 1, .ops = 1e6, .global_bytes = 1e6, .unique_bytes = 1e6}};
  float one[STATE_N], two[STATE_N], none[STATE_N];
  gpu_state_vector(gpu_machine(80), 1, k, 1e-4, one);
  gpu_state_vector(gpu_machine(80), 2, k, 1e-4, two);
  gpu_state_vector(gpu_machine(80), 0, k, 0, none);
  for (int i = 0; i < STATE_N; i++) assert_true(isfinite(one[i]) && isfinite(two[i]) && isfinite(none[i]));
  assert_true(fabs(one[1] - log2(257)) < 1e-5 && fabs(one[5] - log2(24 + 64 + 16 + 1)) < 1e-5); /* threads, registers */
  assert_true(one[7] == 1 && two[10] == 1); /* limits: registers; blocks for the second */
  assert_true(near(one[12], 0.25) && two[12] <= one[12] && two[41] == one[41] && two[28] > one[28]);
  assert_true(near(one[47], 1) && fabs(two[47] - log2(3)) < 1e-5);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(occupancy), cmocka_unit_test(waves), cmocka_unit_test(accesses),
                                     cmocka_unit_test(vector)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
