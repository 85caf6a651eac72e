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

enum { SECTOR = 32, BANKS = 32, WARP = GPU_WARP, SCHEDULERS = GPU_SCHEDULERS, BASE_REGS = 24, MAX_FRAGMENT = 64 };

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
  int k = 0, up = n > 0;
  bool sorted = true;
  for (int i = 1; i < n; i++) sorted &= v[i] >= v[i - 1], up += v[i] != v[i - 1];
  if (sorted) return up;
  for (int i = 0; i < n; i++) {
    int j = k;
    while (j > 0 && v[j - 1] != v[i]) j--; /* as a rule it is the last one or new */
    if (j == 0) v[k++] = v[i];
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

static void mean_add(GpuMean *m, double x, double weight, double times, bool low) {
  m->worst = m->times <= 0 ? x : low ? fmin(m->worst, x) : fmax(m->worst, x);
  m->sum += x * weight, m->weight += weight, m->times += times;
}
double gpu_mean(const GpuMean *m, double none) { return m->weight > 0 ? m->sum / m->weight : none; }

double gpu_global_access(GpuMemory *m, bool write, int n, const int64_t *at, int bytes, double times) {
  int sectors = gpu_sectors(n, at, bytes);
  bool same = n > 1;
  for (int i = 1; i < n && same; i++) same = at[i] == at[0];
  double coal = same ? 1 : fmin(1, ceil((double)n * bytes / SECTOR) / fmax(sectors, 1)),
         traffic = times * sectors * SECTOR;
  mean_add(write ? &m->write : &m->read, coal, traffic, times, true);
  if (same && !write) m->broadcasts += times;
  m->sectors += times * sectors;
  return traffic;
}

void gpu_shared_access(GpuMemory *m, bool write, int n, const int64_t *at, int bytes, double times) {
  double degree = gpu_bank_degree(n, at, bytes);
  mean_add(write ? &m->write_degree : &m->read_degree, degree, times, times, false);
  m->wavefronts += times * degree * (bytes > 4 ? bytes / 4 : 1);
}

/* ---- the vector of a state ---- */
enum { /* first entries of its groups */
       V_SIZE = 0,
       V_SPILL = 6,
       V_LIMIT = 7,
       V_OCC = 11,
       V_WAVES = 14,
       V_COAL = 18,
       V_BROADCAST = 22,
       V_SECTORS = 23,
       V_BANK = 24,
       V_MOVE = 28,
       V_STAGES = 33,
       V_MATRIX = 34,
       V_UNUSED = 40,
       V_TIME = 41,
       V_KERNELS = 47
};
static double slog(double x) { return log2(fmax(x, 0) + 1); }

/* What one kernel says, before slog where that applies; sums are formed of plain numbers. */
static void kernel_vector(const GpuMachine *m, const KernelFacts *k, double *v) {
  double frag = fmin(MAX_FRAGMENT, 2 * sqrt(fmax(k->local_elems, 0))), want = BASE_REGS + k->local_elems + frag;
  double regs = fmin(GPU_MAX_REGS, want), warps = ceil(k->threads / WARP);
  const GpuMemory *a = &k->mem;
  Occupancy o = gpu_occupancy(m, (int64_t)k->threads, (int64_t)regs, (int64_t)k->shared_bytes);
  GpuWaves w = gpu_waves(m, (int64_t)k->blocks, (int64_t)k->threads, o.blocks);
  double size[] = {k->blocks, k->threads, warps, k->vthreads, k->shared_bytes, regs, want - regs};
  double coal[] = {a->read.weight > 0 ? a->read.worst : 1, gpu_mean(&a->read, 1),
                   a->write.weight > 0 ? a->write.worst : 1, gpu_mean(&a->write, 1)};
  double bank[] = {fmax(1, a->read_degree.worst), gpu_mean(&a->read_degree, 1), fmax(1, a->write_degree.worst),
                   gpu_mean(&a->write_degree, 1)};
  double taken = 4 * k->shared_reads;
  double move[] = {a->fill_bytes, taken, a->fill_bytes > 0 ? k->ops / a->fill_bytes : 0, taken > 0 ? k->ops / taken : 0,
                   k->barriers};
  double math = k->matrix_bytes && !k->matrix_lanes
                    ? k->ops / (gpu_matrix_peak(m, k->matrix_bytes, k->matrix_groups > 0) * w.tail * w.lane)
                    : k->ops / (m->peak * w.tail * w.lane * fmin(1, fmax(o.occ, 1.0 / 64) / 0.25));
  double time[] = {math, k->unique_bytes / m->dram, k->global_bytes / m->l2, a->wavefronts / (m->sms * m->clock),
                   k->barriers * ceil(w.waves) * 20e-9};
  memset(v, 0, sizeof *v * STATE_N);
  for (int i = 0; i < NS_COUNT(size); i++) v[V_SIZE + i] = size[i];
  v[V_LIMIT + o.limit] = 1;
  v[V_OCC] = (double)o.blocks / m->max_blocks, v[V_OCC + 1] = o.occ, v[V_OCC + 2] = w.sched;
  v[V_WAVES] = w.waves, v[V_WAVES + 1] = w.tail, v[V_WAVES + 2] = w.fill, v[V_WAVES + 3] = w.lane;
  for (int i = 0; i < 4; i++) v[V_COAL + i] = coal[i], v[V_BANK + i] = bank[i];
  v[V_BROADCAST] = a->read.times > 0 ? a->broadcasts / a->read.times : 0;
  double accesses = a->read.times + a->write.times;
  v[V_SECTORS] = accesses > 0 ? a->sectors / accesses : 0;
  for (int i = 0; i < NS_COUNT(move); i++) v[V_MOVE + i] = move[i];
  v[V_STAGES] = k->stages;
  v[V_UNUSED] = k->matrix_possible; /* of loops V_MATRIX and the five after it stay 0, of lanes the first */
  if (k->matrix_bytes) {
    v[V_MATRIX] = !k->matrix_lanes, v[V_MATRIX + 1] = k->matrix_share, v[V_MATRIX + 2] = k->matrix_bytes == 4;
    v[V_MATRIX + 3] = k->matrix_tiles, v[V_MATRIX + 4] = k->ops / k->mem.fill_bytes;
    v[V_MATRIX + 5] = k->local_elems;
  }
  for (int i = 0; i < NS_COUNT(time); i++) v[V_TIME + 1 + i] = fmin(time[i], 1) * 1e9;
}

static bool is_sum(int i) { return (i >= V_MOVE && i < V_STAGES) || (i >= V_TIME && i < V_KERNELS); }
static bool is_min(int i) { return (i >= V_OCC && i < V_WAVES) || (i > V_WAVES && i <= V_COAL + 2); }
static bool is_plain(int i) { /* in [0, 1] or a flag */
  return (i >= V_LIMIT && i < V_WAVES) || (i > V_WAVES && i < V_SECTORS) || (i >= V_MATRIX && i < V_MATRIX + 3) ||
         i == V_UNUSED;
}

void gpu_state_vector(const GpuMachine *m, int n, const KernelFacts *k, double seconds, float *out) {
  double all[STATE_N] = {0}, v[STATE_N];
  for (int j = 0; j < n; j++) {
    kernel_vector(m, &k[j], v);
    for (int i = 0; i < STATE_N; i++)
      all[i] = j == 0 ? v[i] : is_sum(i) ? all[i] + v[i] : is_min(i) ? fmin(all[i], v[i]) : fmax(all[i], v[i]);
  }
  all[V_TIME] = fmin(fmax(seconds, 0), 1) * 1e9;
  all[V_KERNELS] = n;
  for (int i = 0; i < STATE_N; i++) out[i] = (float)(is_plain(i) ? all[i] : slog(all[i]));
}
