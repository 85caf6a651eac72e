/* A run over several tasks: what is known of each, which rounds are under way, and what comes next.
 *
 * A round is some candidates of one task on their way: searched (one at a time), measured (`flying`), taken in. All decisions
 * of a run are made here, and nothing else is: whoever drives it does what rounds_next says and reports. That one calls
 * users' code, hears signals and owns the clock, so none of these can change the order of things; and with `ordered` a
 * round is taken in only when there is need, the oldest first, so that the same results and the same chance give the same run
 * whenever they come.
 */
#include "tune/tune.h"
#include <math.h>

enum { OF_A_DEVICE = 2 };        /* rounds in flight: one compiles while one is measured, and one more is searched */
static const double KNOWN = 1e9; /* seconds; more is no result */
static const double RELUCTANCE =
    0.9; /* share of choices that pass over a task whose first three rounds found nothing */
enum { HOPEFUL = 3, GROUP_ROUNDS = 5 };
enum { FIRST_LOOK = 4 }; /* of a round: what a variant of a layer is first asked for */

/* ---- results ---- */

Rank rank_of(int n, const double *cost, int error_no, bool quick) {
  double sum = 0;
  bool ok = error_no == 0 && n > 0;
  for (int i = 0; ok && i < n; i++) {
    ok = cost[i] >= SHORTEST && cost[i] < NO_SECONDS;
    sum += cost[i];
  }
  return ok ? (Rank){quick, sum / n} : (Rank){true, NO_SECONDS};
}
bool rank_before(Rank a, Rank b) { return a.quick != b.quick ? b.quick : a.seconds < b.seconds; }

bool rounds_better(Rounds *r, int task, Rank x) {
  bool better = rank_before(x, r->task[task].best);
  if (better) r->task[task].best = x;
  return better;
}

static bool known(const TuneTask *t) { return t->best.seconds < KNOWN; }
static bool is_variant(const Rounds *r, int task) { return task >= r->n_layer; }
/* Seconds of the fastest task of each layer. */
static double *layers_best(const Rounds *r) {
  double *best = arena_array(r->arena, double, r->n_layer);
  for (int i = 0; i < r->n_layer; i++) best[i] = NO_SECONDS;
  for (int i = 0; i < r->n; i++) {
    double *x = &best[r->task[i].layer];
    *x = fmin(*x, r->task[i].best.seconds);
  }
  return best;
}
static bool all_known(const Rounds *r) {
  ArenaMark mark = arena_mark(r->arena);
  const double *best = layers_best(r);
  bool all = true;
  for (int i = 0; i < r->n_layer; i++) all = all && best[i] < KNOWN;
  arena_release(r->arena, mark);
  return all;
}

static double objective(const Rounds *r, const double *seconds) {
  return r->hook.objective(r->hook.self, r->n_layer, seconds);
}
void rounds_score(Rounds *r) {
  ArenaMark mark = arena_mark(r->arena);
  r->score = objective(r, layers_best(r));
  arena_release(r->arena, mark);
}

/* ---- groups of tasks that should reach similar throughput ---- */

static double throughput(const TuneTask *t) { return t->flop / t->best.seconds; }
/* The best throughput among a task's group, itself included; 0 if it has no other member. */
static double group_best(const Rounds *r, int task, int *rounds_of_others) {
  double best = 0;
  int members = 0, rounds = 0, group = r->task[task].group;
  for (int j = 0; group >= 0 && j < r->n; j++) {
    const TuneTask *t = &r->task[j];
    if (t->group != group) continue;
    members++;
    best = fmax(best, throughput(t));
    if (j != task && t->rounds > rounds) rounds = t->rounds;
  }
  if (rounds_of_others) *rounds_of_others = rounds;
  return members > 1 ? best : 0;
}
/* A task that stays behind its group in spite of more rounds than any other is not similar after all. */
static void leave_group(Rounds *r, int task) {
  int rounds;
  double best = group_best(r, task, &rounds);
  TuneTask *t = &r->task[task];
  if (best > 0 && throughput(t) < best / r->o.beta && t->rounds > GROUP_ROUNDS + rounds) t->group = -1;
}

/* ---- choosing a task ---- */

static bool is_flying(const Rounds *r, int task) {
  for (int k = 0; k < r->flying.len; k++)
    if (r->flying.at[k] == task) return true;
  return false;
}
static bool is_free(const Rounds *r, int task) { return !r->task[task].dead && !is_flying(r, task); }

/* How much the objective falls per second saved in a layer; seconds: of all layers, for a moment with less of this one. */
static double chain(const Rounds *r, double *seconds, int layer, double now) {
  double best = seconds[layer], step = best * (best < KNOWN ? 1e-3 : 0.5);
  seconds[layer] = best - step;
  double less = objective(r, seconds);
  seconds[layer] = best;
  return (now - less) / step;
}

static int steepest(Rounds *r) {
  ArenaMark mark = arena_mark(r->arena);
  SchedTask *row = arena_array(r->arena, SchedTask, r->n);
  double *gradient = arena_array(r->arena, double, r->n), *best = layers_best(r), now = objective(r, best);
  bool hopeful = false;
  for (int i = 0; i < r->n; i++) {
    const TuneTask *t = &r->task[i];
    row[i] = (SchedTask){t->best.seconds,        t->rounds,      t->history.len, t->history.at, t->flop, 0,
                         group_best(r, i, NULL), best[t->layer], !is_free(r, i)};
    if (!row[i].dead) row[i].chain = chain(r, best, t->layer, now), hopeful = hopeful || known(t);
  }
  for (int i = 0; hopeful && i < r->n; i++)
    if (!known(&r->task[i]) && row[i].rounds > HOPEFUL && r->hook.unit(r->hook.self) < RELUCTANCE) row[i].dead = true;
  sched_gradients(r->n, row, r->o.alpha, r->o.beta, r->o.window, gradient);
  Rng rng;
  rng_seed(&rng, r->hook.lot(r->hook.self));
  int pick = sched_pick(r->n, row, gradient, &rng);
  arena_release(r->arena, mark);
  return pick;
}

/* A task that has not had a round yet, or -1. */
static int untried(const Rounds *r) {
  for (int i = 0; i < r->n; i++)
    if (r->task[i].rounds == 0 && is_free(r, i)) return i;
  return -1;
}
/* Whether a variant would have to fall by more than times do that fall like 1 / rounds, to become the fastest of its layer. */
static bool is_behind(const Rounds *r, int task, const double *layer) {
  const TuneTask *t = &r->task[task];
  return is_variant(r, task) && t->best.seconds - t->best.seconds / t->rounds > layer[t->layer];
}
static int in_turn(Rounds *r) {
  ArenaMark mark = arena_mark(r->arena);
  const double *best = layers_best(r);
  int found = -1;
  for (int k = 1; k <= r->n && found < 0; k++) {
    int i = (r->last + k) % r->n;
    if (is_free(r, i) && !is_behind(r, i, best)) found = r->last = i;
  }
  arena_release(r->arena, mark);
  return found;
}
/* The task of the next round, or -1. */
static int next_task(Rounds *r) {
  int first = untried(r);
  return first >= 0 ? first : r->o.round_robin ? in_turn(r) : steepest(r);
}

/* ---- events ---- */

static bool any_free(const Rounds *r) {
  for (int i = 0; i < r->n; i++)
    if (is_free(r, i)) return true;
  return false;
}

static int depth(const Rounds *r) { return OF_A_DEVICE * r->o.devices + 1; }

/* The flying round to take in, as a place in the list, or -1. */
static int round_to_land(const Rounds *r, const int32_t *left) {
  if (!r->o.ordered) {
    for (int k = 0; k < r->flying.len; k++)
      if (left[k] == 0) return k;
    return -1;
  }
  if (r->searching >= 0 || r->flying.len == 0 || left[0] > 0) return -1;
  bool need = r->flying.len >= depth(r) || r->planned >= r->o.total || !any_free(r);
  return need ? 0 : -1;
}

/* Queues are bounded: little waits to be measured, and at most a few tasks are in flight. */
static bool has_room(const Rounds *r, const int32_t *left) {
  if (r->planned >= r->o.total || !any_free(r)) return false;
  if (!r->o.devices) return r->flying.len == 0;
  if (r->o.ordered) return r->flying.len < depth(r);
  int64_t waiting = 0;
  for (int k = 0; k < r->flying.len; k++) waiting += left[k];
  return r->flying.len < 2 * depth(r) && waiting < (int64_t)(depth(r) - 1) * r->o.per_round;
}

static bool without_progress(const Rounds *r) {
  return untried(r) < 0 && (double)(r->trials - r->best_trial) >= r->o.stop_all && all_known(r);
}

RoundEvent rounds_next(Rounds *r, const int32_t *left) {
  int k = round_to_land(r, left);
  if (k >= 0) {
    int task = r->flying.at[k];
    for (r->flying.len--; k < r->flying.len; k++) r->flying.at[k] = r->flying.at[k + 1];
    return (RoundEvent){ROUND_LAND, task, 0};
  }
  if (r->searching >= 0) return (RoundEvent){ROUND_WAIT, r->searching, 0};
  if (has_room(r, left)) {
    bool told = r->stale;
    r->stale = without_progress(r);
    if (r->stale && !told) return (RoundEvent){ROUND_STALE, -1, 0};
    int task = r->stale ? -1 : next_task(r);
    if (task >= 0) {
      int64_t rest = r->o.total - r->planned;
      bool first = is_variant(r, task) && r->task[task].rounds == 0;
      int32_t n = first ? (r->o.per_round + FIRST_LOOK - 1) / FIRST_LOOK : r->o.per_round;
      r->searching = task, r->asked = rest < n ? (int32_t)rest : n;
      r->planned += r->asked;
      return (RoundEvent){ROUND_SEARCH, task, r->asked};
    }
  }
  return (RoundEvent){r->flying.len > 0 ? ROUND_WAIT : ROUND_END, -1, 0};
}

void rounds_searched(Rounds *r, int n) {
  int task = r->searching;
  r->searching = -1;
  r->planned += n - r->asked;
  if (n == 0)
    r->task[task].dead = true;
  else
    vec_push(r->arena, &r->flying, task);
}

void rounds_take(Rounds *r, int task, int n, const Rank *x) {
  TuneTask *t = &r->task[task];
  t->rounds++;
  for (int k = 0; k < n; k++) {
    t->trials++;
    if (rounds_better(r, task, x[k])) t->best_round = t->rounds, t->best_trial = t->trials;
  }
  if ((double)(t->rounds - t->best_round) * r->o.per_round > r->o.stop_task) t->dead = true;
  vec_push(r->arena, &t->history, t->best.seconds);
  r->trials += n;
  rounds_score(r);
  if (r->score < r->best_score) r->best_score = r->score, r->best_trial = r->trials;
  leave_group(r, task);
}

/* ---- beginning ---- */

Rounds *rounds_new(Arena *a, int n, const double *flop, const int32_t *group, int n_layer, const int32_t *layer,
                   RunHooks hook) {
  Rounds *r = arena_new_of(a, Rounds);
  *r = (Rounds){
      .arena = a, .n = n, .n_layer = n_layer, .hook = hook, .best_score = INFINITY, .searching = -1, .last = n - 1};
  r->task = arena_array(a, TuneTask, n);
  for (int i = 0; i < n; i++)
    r->task[i] = (TuneTask){.best = {true, NO_SECONDS}, .flop = flop[i], .group = group[i], .layer = layer[i]};
  return r;
}

void rounds_begin(Rounds *r, const RunOptions *o) {
  r->o = *o;
  r->trials = r->best_trial = r->planned = 0;
  r->flying.len = 0;
  r->searching = -1, r->stale = false;
}

void rounds_resume(Rounds *r, const TuneLog *log, const int32_t *task, bool at_least_one) {
  for (int i = 0; i < r->n; i++) {
    TuneTask *t = &r->task[i];
    t->trials = t->best_trial = 0, t->history.len = 0;
  }
  for (int k = 0; k < log->record.len; k++) {
    const LogRecord *x = &log->record.at[k];
    int i = task[x->group];
    if (i < 0) continue;
    TuneTask *t = &r->task[i];
    t->trials++;
    if (rounds_better(r, i, x->rank)) t->best_trial = t->trials;
    if (t->trials % r->o.per_round == 0) vec_push(r->arena, &t->history, t->best.seconds);
  }
  double per = r->o.per_round;
  for (int i = 0; i < r->n; i++) {
    TuneTask *t = &r->task[i];
    t->rounds = (int32_t)((double)t->trials / per + 0.5);
    if ((at_least_one || is_variant(r, i)) && t->trials > 0 && t->rounds == 0) t->rounds = 1; /* a first look, too */
    if (t->history.len < t->rounds) vec_push(r->arena, &t->history, t->best.seconds);
    t->best_round = (int32_t)((double)t->best_trial / per + 0.5);
    if ((double)(t->trials - t->best_trial) > r->o.stop_task) t->dead = true;
  }
  rounds_score(r);
}
