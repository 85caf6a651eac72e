/* Closed forms for GPU kernels.
 *
 * The 164 entries of a row describe loops and buffers and say nothing of the machine: how many blocks fit on a
 * multiprocessor, how full the last wave is, whether a warp's loads share lines. The functions here do. The vector of a
 * state goes to the models as one more row whose 164 entries are 0, so that the sum over rows stays as it is.
 */
#include "model/gpu.h"
#include "model/model.h"
#include <math.h>
#include <string.h>

/* Per compute capability; an example of each: V100, T4, A100, A10, RTX 4090, H100. */
static const GpuMachine MACHINE[] = {
    {70, 80, 64, 32, 65536, 96 << 10, 0, 256, 1.53e9, 15.7e12, 0.9e12, 2.5e12},
    {75, 40, 32, 16, 65536, 64 << 10, 0, 256, 1.59e9, 8.1e12, 0.32e12, 1.3e12},
    {80, 108, 64, 32, 65536, 164 << 10, 1024, 128, 1.41e9, 19.5e12, 1.55e12, 4.0e12},
    {86, 72, 48, 16, 65536, 100 << 10, 1024, 128, 1.70e9, 31.2e12, 0.6e12, 2.5e12},
    {89, 128, 48, 24, 65536, 100 << 10, 1024, 128, 2.52e9, 82.6e12, 1.0e12, 5.0e12},
    {90, 132, 64, 32, 65536, 228 << 10, 1024, 128, 1.75e9, 60e12, 3.3e12, 5.5e12},
};
enum {
  WARP = 32,
  SECTOR = 32,
  BANKS = 32,
  SCHEDULERS = 4,
  REG_UNIT = 256,
  MAX_REGS = 255,
  BASE_REGS = 24,
  MAX_FRAGMENT = 64
};

const GpuMachine *gpu_machine(int capability) {
  for (int i = 0; i < NS_COUNT(MACHINE); i++)
    if (capability > 0 && capability <= MACHINE[i].capability) return &MACHINE[i];
  return &MACHINE[NS_COUNT(MACHINE) - 1];
}

/* Registers go to a warp in units of 256, warps are placed in groups of four, one for each scheduler. */
Occupancy gpu_occupancy(const GpuMachine *m, int64_t threads, int64_t regs, int64_t shared_bytes) {
  if (threads < 1) threads = 1;
  int64_t warps = i64_ceildiv(threads, WARP), per_warp = i64_ceildiv((regs > 0 ? regs : 1) * WARP, REG_UNIT) * REG_UNIT;
  int64_t by[] = {m->regs / per_warp / SCHEDULERS * SCHEDULERS / warps, m->max_blocks, m->max_warps / warps,
                  m->max_blocks};
  if (shared_bytes > 0) by[GPU_BY_SHARED] = m->shared_sm / (i64_ceildiv(shared_bytes + m->reserve, m->unit) * m->unit);
  Occupancy o = {by[GPU_BY_BLOCKS], GPU_BY_BLOCKS, 0};
  for (int i = 0; i < GPU_BY_BLOCKS; i++)
    if (by[i] < o.blocks) o.blocks = by[i], o.limit = i;
  o.occ = (double)(o.blocks * warps) / m->max_warps;
  return o;
}

GpuWaves gpu_waves(const GpuMachine *m, int64_t grid, int64_t threads, int64_t blocks_per_sm) {
  int64_t warps = i64_ceildiv(threads > 0 ? threads : 1, WARP), b = blocks_per_sm > 0 ? blocks_per_sm : 1;
  GpuWaves w = {.waves = (double)grid / (double)(b * m->sms)};
  w.tail = w.waves > 0 ? w.waves / ceil(w.waves) : 1;
  w.fill = fmin(1, (double)grid / m->sms);
  w.lane = (double)threads / (double)(WARP * warps);
  w.sched = fmin(1, (double)(b * warps) / SCHEDULERS / 4);
  return w;
}

/* ---- memory accesses of a warp ---- */
static int distinct(int64_t *v, int n) {
  int k = 0;
  for (int i = 0; i < n; i++) {
    int j = 0;
    while (j < k && v[j] != v[i]) j++;
    if (j == k) v[k++] = v[i];
  }
  return k;
}

int gpu_sectors(int n, const int64_t *at, int bytes) {
  int64_t s[WARP * 4];
  int k = 0;
  for (int i = 0; i < n && i < WARP; i++)
    for (int64_t a = i64_floordiv(at[i], SECTOR); a <= i64_floordiv(at[i] + bytes - 1, SECTOR) && k < NS_COUNT(s); a++)
      s[k++] = a;
  return distinct(s, k);
}

double gpu_coalescing(int n, const int64_t *at, int bytes) {
  int sectors = gpu_sectors(n, at, bytes);
  bool same = true;
  for (int i = 1; i < n; i++) same &= at[i] == at[0];
  if (same || sectors == 0) return 1;
  return fmin(1, ceil((double)n * bytes / SECTOR) / sectors);
}

/* Lanes are served 32, 16 or 8 at a time for up to 4, 8 and 16 bytes each; equal words are broadcast. */
double gpu_bank_degree(int n, const int64_t *at, int bytes) {
  int words = bytes > 4 ? bytes / 4 : 1, group = WARP / words > 0 ? WARP / words : 1;
  double worst = 1;
  for (int from = 0; from < n; from += group) {
    int64_t bank[BANKS][WARP];
    int count[BANKS] = {0};
    for (int i = from; i < n && i < from + group; i++)
      for (int w = 0; w < words; w++) {
        int64_t word = i64_floordiv(at[i], 4) + w;
        int b = (int)i64_floormod(word, BANKS);
        if (count[b] < WARP) bank[b][count[b]++] = word;
      }
    for (int b = 0; b < BANKS; b++) {
      int k = distinct(bank[b], count[b]);
      if (k > worst) worst = k;
    }
  }
  return worst;
}

/* ---- the vector of a state ---- */
enum { /* first entries of its groups; entries that nothing fills yet stay 0 */
       V_SIZE = 0,
       V_SPILL = 6,
       V_LIMIT = 7,
       V_OCC = 11,
       V_WAVES = 14,
       V_COAL = 18,
       V_BANK = 24,
       V_MOVE = 28,
       V_TIME = 41,
       V_KERNELS = 47
};
static float slog(double x) { return (float)log2(fmax(x, 0) + 1); }
static void raise_to(float *v, double x) {
  if ((float)x > *v) *v = (float)x;
}
static void lower_to(float *v, double x) {
  if ((float)x < *v) *v = (float)x;
}

static void add_kernel(const GpuMachine *m, const GpuKernel *k, float *v, double *move, double *time) {
  double frag = fmin(MAX_FRAGMENT, 2 * sqrt(fmax(k->local_elems, 0))), want = BASE_REGS + k->local_elems + frag;
  double regs = fmin(MAX_REGS, want), spill = fmax(0, want - MAX_REGS), warps = ceil(k->threads / WARP);
  Occupancy o = gpu_occupancy(m, (int64_t)k->threads, (int64_t)regs, (int64_t)k->shared_bytes);
  GpuWaves w = gpu_waves(m, (int64_t)k->grid, (int64_t)k->threads, o.blocks);
  double size[] = {k->grid, k->threads, warps, k->vthreads, k->shared_bytes, regs, spill};
  for (int i = 0; i < NS_COUNT(size); i++) raise_to(&v[V_SIZE + i], (double)slog(size[i]));
  v[V_LIMIT + o.limit] = 1;
  lower_to(&v[V_OCC], (double)o.blocks / m->max_blocks);
  lower_to(&v[V_OCC + 1], o.occ);
  lower_to(&v[V_OCC + 2], w.sched);
  raise_to(&v[V_WAVES], (double)slog(w.waves));
  lower_to(&v[V_WAVES + 1], w.tail);
  lower_to(&v[V_WAVES + 2], w.fill);
  lower_to(&v[V_WAVES + 3], w.lane);
  lower_to(&v[V_COAL + 1], k->global_bytes > 0 ? fmin(1, k->unique_bytes / k->global_bytes) : 1);
  raise_to(&v[V_BANK + 1], (double)slog(k->shared_degree));
  move[0] += k->global_bytes, move[1] += 4 * k->shared_reads, move[2] += k->ops, move[4] += k->barriers;
  double math = k->ops / (m->peak * w.tail * w.lane * fmin(1, fmax(o.occ, 1.0 / 64) / 0.25));
  double part[] = {math, k->unique_bytes / m->dram, k->global_bytes / m->l2,
                   k->shared_reads / WARP * k->shared_degree / (m->sms * m->clock),
                   k->barriers * ceil(w.waves) * 20e-9};
  for (int i = 0; i < NS_COUNT(part); i++) time[i] += part[i];
}

void gpu_state_vector(const GpuMachine *m, int n, const GpuKernel *k, double seconds, float *out) {
  double move[5] = {0}, time[5] = {0};
  memset(out, 0, sizeof *out * STATE_N);
  for (int i = 0; i < 3; i++) out[V_OCC + i] = out[V_WAVES + 1 + i] = 1;
  out[V_COAL + 1] = 1;
  for (int i = 0; i < n; i++) add_kernel(m, &k[i], out, move, time);
  out[V_MOVE] = slog(move[0]), out[V_MOVE + 1] = slog(move[1]);
  for (int i = 0; i < 2; i++) out[V_MOVE + 2 + i] = slog(move[i] > 0 ? move[2] / move[i] : 0);
  out[V_MOVE + 4] = slog(move[4]);
  out[V_TIME] = slog(fmin(fmax(seconds, 0), 1) * 1e9);
  for (int i = 0; i < 5; i++) out[V_TIME + 1 + i] = slog(fmin(time[i], 1) * 1e9);
  out[V_KERNELS] = slog(n);
}
