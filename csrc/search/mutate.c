/* Mutation: one small random change to a complete candidate. Most mutations move a factor from one part of a split to
 * another; the others change an unroll limit, a compute location or the width of a parallel loop. The result is again a
 * step list; whether it is a valid program is found out when its bounds are inferred. Spec 03 §4.5.
 */
#include "search/space.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 32, MAX_LOOPS = 128 };

/* ---- tile size ---- */

/* Moves a random factor between two parts of one split. parts[0] is the outermost, not stored in the step. */
static bool move_factor(MakeEnv *m, Rng *r, int n, int64_t *part) {
  int order[MAX_PARTS];
  for (int i = 0; i <= n; i++) order[i] = i;
  for (int i = n; i > 0; i--) {
    int k = (int)rng_below(r, i + 1), x = order[i];
    order[i] = order[k], order[k] = x;
  }
  for (int q = 0; q <= n; q++) {
    int src = order[q], dst = order[(q + 1) % (n + 1)];
    if (part[src] <= 1) continue;
    const int64_t *d;
    int nd = factor_divisors(m->factors, part[src], &d);
    if (dst == n)
      while (nd > 0 && d[nd - 1] * part[n] > m->par->max_innermost_split_factor) nd--;
    if (nd <= 1) continue;
    int64_t f = d[1 + rng_below(r, nd - 1)];
    part[src] /= f;
    part[dst] *= f;
    return true;
  }
  return false;
}

bool mutate_tile(MakeEnv *m, Rng *r, int n, Step *steps) {
  Arena *a = ir_arena(m->ctx);
  int *at = arena_array(a, int, n), count = 0, draws = 0;
  for (int i = 0; i < n; i++)
    if (steps[i].kind == STEP_SP && steps[i].n > 0 && steps[i].n < MAX_PARTS && steps[i].extent > 0 &&
        steps[i].list[steps[i].n - 1] <= m->par->max_innermost_split_factor)
      at[count++] = i;
  if (count == 0) return false;
  Step *p = NULL;
  do p = &steps[at[rng_below(r, count)]];
  while (p->extent <= 1 && ++draws < 4 * count);
  if (p->extent <= 1) return false;
  int64_t part[MAX_PARTS], inner = 1;
  for (int i = 0; i < p->n; i++) {
    part[i + 1] = p->list[i];
    if (p->list[i] <= 0 || !i64_mul(inner, p->list[i], &inner)) return false;
  }
  part[0] = p->extent / inner;
  if (!move_factor(m, r, p->n, part)) return false;
  p->list = arena_copy(a, part + 1, sizeof(int64_t) * (size_t)p->n);
  return true;
}

/* ---- auto unroll ---- */

static const char PRAGMA[] = "auto_unroll_max_step$";

static bool mutate_unroll(MakeEnv *m, Rng *r, int n, Step *steps) {
  Arena *a = ir_arena(m->ctx);
  int *at = arena_array(a, int, n), count = 0;
  for (int i = 0; i < n; i++)
    if (steps[i].kind == STEP_PR && strncmp(steps[i].text, PRAGMA, sizeof PRAGMA - 1) == 0) at[count++] = i;
  if (count == 0) return false;
  const int *choice;
  int k = sp_unroll_choices(m->task, &choice);
  Step *p = &steps[at[rng_below(r, count)]];
  p->text = arena_printf(a, "%s%d", PRAGMA, choice[rng_below(r, k)]);
  return true;
}

/* ---- compute location (CPU) ---- */

static bool mutate_location(MakeEnv *m, Rng *r, int n, Step *steps) {
  if (m->par->disable_change_compute_location) return false;
  State *s = state_replay(m->ctx, m->task->dag, n, sp_steps_copy(ir_arena(m->ctx), n, steps, false));
  state_infer_bounds(s);
  int *at = arena_array(ir_arena(m->ctx), int, n), count = 0;
  for (int i = 0; i < n; i++) {
    if (steps[i].kind != STEP_CA) continue;
    int final = sp_final_stage(n, steps, i, steps[i].stage);
    if (!pred_is_tiled(s, final) && !sp_needs_tiling(s, final)) at[count++] = i;
  }
  if (count == 0) return false;
  Step *p = &steps[at[rng_below(r, count)]];
  int final = sp_final_stage(n, steps, (int)(p - steps), p->stage), cand[MAX_LOOPS][2];
  int k = sp_locations(s, final, false, MAX_LOOPS, cand);
  if (k == 0) return false;
  const int *c = cand[rng_below(r, k)];
  p->iter = c[0] - (final - p->stage);
  p->a = c[1];
  return p->iter >= 0;
}

/* ---- width of a parallel loop (CPU) ---- */

static bool mutate_parallel(MakeEnv *m, Rng *r, int n, Step *steps) {
  Arena *a = ir_arena(m->ctx);
  int *at = arena_array(a, int, n), count = 0;
  for (int i = 1; i < n; i++) {
    const Step *f = &steps[i - 1];
    if (steps[i].kind == STEP_AN && steps[i].a == AN_PARALLEL && steps[i].iter == 0 && f->kind == STEP_FU && f->n > 0 &&
        f->list[0] == 0 && f->stage == steps[i].stage)
      at[count++] = i - 1;
  }
  if (count == 0) return false;
  int fu = at[rng_below(r, count)], stage = steps[fu].stage, width = 0;
  State *s = state_replay(m->ctx, m->task->dag, fu, sp_steps_copy(a, fu, steps, false));
  for (; width < sp_loops(s, stage); width++) {
    const Axis *x = sp_axis(s, stage, width);
    if (x->kind == IT_REDUCE || x->ann != AN_NONE || sp_attached_at(s, stage, width)) break;
  }
  if (width == 0) return false;
  int w = 1 + (int)rng_below(r, width), old = steps[fu].n;
  if (w == old) return false;
  for (int i = fu + 2; i < n; i++) {
    Step *p = &steps[i];
    if (p->kind == STEP_CHR || p->kind == STEP_CHW || p->kind == STEP_RF) return false;
    if (p->stage != stage) continue;
    if (p->kind != STEP_AN && p->kind != STEP_PR) return false;
    if (p->iter != 0) p->iter += old - w;
  }
  steps[fu].n = w;
  steps[fu].list = arena_array(a, int64_t, w);
  for (int i = 0; i < w; i++) steps[fu].list[i] = i;
  return true;
}

/* ---- the draw ---- */

typedef struct {
  double weight;
  bool (*fn)(MakeEnv *m, Rng *r, int n, Step *steps);
} Mutation;
static const Mutation CPU_MUTATIONS[] = {
    {0.90, mutate_tile}, {0.04, mutate_unroll}, {0.05, mutate_location}, {0.01, mutate_parallel}};
static const Mutation GPU_MUTATIONS[] = {{0.90, mutate_tile}, {0.10, mutate_unroll}};

bool mutate(MakeEnv *m, Rng *r, int n, const Step *steps, int *n_out, Step **out) {
  const Mutation *t = m->task->gpu ? GPU_MUTATIONS : CPU_MUTATIONS;
  int k = 0, last = (m->task->gpu ? NS_COUNT(GPU_MUTATIONS) : NS_COUNT(CPU_MUTATIONS)) - 1;
  double u = rng_unit(r);
  while (k < last && u >= t[k].weight) u -= t[k++].weight;
  *out = sp_steps_copy(ir_arena(m->ctx), n, steps, false);
  *n_out = n;
  return t[k].fn(m, r, n, *out);
}
