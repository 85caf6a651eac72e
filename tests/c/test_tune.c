/* Runs over several tasks without anything that runs: events in, events out; what a log holds; memory that runs out. */
#include "fixture.h"
#include "tune/tune.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TASKS = 4, PER = 8, TRIALS = 30 * PER, LEFT = 6 };

static const int32_t EACH[TASKS] = {0, 1, 2, 3}; /* layers without variants */

static double weighted(void *self, int n, const double *s) {
  (void)self;
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (i + 1) * s[i];
  return sum;
}
static double unit(void *self) { return rng_unit(self); }
static uint64_t lot(void *self) { return rng_next(self); }

typedef struct {
  Err err;
  Arena *a;
  Rng chance, clock;
  RunOptions o;
  int dry;                 /* a task that has nothing to propose, or -1 */
  int dead, rounds[TASKS]; /* outcome: a sum over dead tasks, rounds */
  int64_t trials, best_trial;
  uint64_t order; /* a hash of all events but the waits */
  int most, stale;
} Run;

/* A time of trial k of a task: falls slowly, from a level of the task. */
static double time_of(int task, int64_t k) { return 1e-3 * (task + 1) * (1 + 1.0 / (double)(k + 1)); }

static void play(void *arg) {
  Run *x = arg;
  x->a = arena_new(&x->err);
  const double flop[TASKS] = {1e6, 2e6, 3e6, 4e6};
  const int32_t group[TASKS] = {-1, 0, 0, -1};
  Rounds *r = rounds_new(x->a, TASKS, flop, group, TASKS, EACH, (RunHooks){weighted, unit, lot, &x->chance});
  rounds_begin(r, &x->o);
  int32_t left[LEFT] = {0};
  for (int searching = -1, n = 0;;) {
    int flying = r->flying.len;
    RoundEvent ev = rounds_next(r, left);
    if (ev.kind == ROUND_END) break;
    if (ev.kind != ROUND_WAIT) x->order = hash_bytes(&ev, sizeof ev, x->order);
    if (ev.kind == ROUND_LAND) {
      int at = 0;
      while (left[at] > 0) at++; /* ordered or not, the first that is done */
      for (; at + 1 < flying; at++) left[at] = left[at + 1];
      Rank rank[PER];
      for (int k = 0; k < PER; k++)
        rank[k] = rank_of(1, (double[]){time_of(ev.task, r->task[ev.task].trials + k)}, 0, false);
      rounds_take(r, ev.task, PER, rank);
    } else if (ev.kind == ROUND_SEARCH) {
      searching = ev.task, n = ev.n == PER && ev.task != x->dry ? PER : 0;
    } else if (ev.kind == ROUND_STALE) {
      x->stale++;
    } else if (searching >= 0 && (flying == 0 || rng_below(&x->clock, 2))) {
      rounds_searched(r, n);
      if (n > 0)
        left[flying] = n;
      else
        rounds_take(r, searching, 0, NULL);
      searching = -1;
    } else if (flying > 0) {
      int k = (int)rng_below(&x->clock, flying);
      left[k] = left[k] > 3 ? left[k] - 3 : 0;
    }
    assert_true(r->flying.len <= LEFT);
    if (r->flying.len > x->most) x->most = r->flying.len;
  }
  for (int i = 0; i < TASKS; i++) x->dead += r->task[i].dead << i, x->rounds[i] = r->task[i].rounds;
  x->trials = r->trials, x->best_trial = r->best_trial;
}
static Run run(uint64_t clock, RunOptions o, int dry) {
  Run x = {.o = o, .dry = dry};
  err_init(&x.err);
  rng_seed(&x.chance, 1), rng_seed(&x.clock, clock);
  assert_int_equal(err_try(&x.err, play, &x), NS_OK);
  arena_free(x.a);
  return x;
}
static const RunOptions USUAL = {
    .alpha = 0.2, .beta = 2, .stop_all = 1e20, .stop_task = 1e20, .total = TRIALS, .window = 3, .per_round = PER};

static void order_does_not_depend_on_time(void **state) {
  (void)state;
  for (int k = 0; k < 8; k++) {
    RunOptions o = USUAL;
    o.ordered = true, o.devices = k & 1 ? 1 + k / 4 : 0, o.round_robin = (k >> 1) & 1;
    Run first = run(1, o, k & 4 ? 2 : -1);
    int live = k & 4 ? TASKS - 1 : TASKS, deep = 2 * o.devices + 1;
    assert_true(first.trials == TRIALS && first.most == (deep < live ? deep : live));
    assert_int_equal(first.dead, k & 4 ? 4 : 0);
    for (uint64_t clock = 2; clock < 30; clock++) {
      Run again = run(clock, o, k & 4 ? 2 : -1);
      assert_true(again.order == first.order && memcmp(again.rounds, first.rounds, sizeof first.rounds) == 0);
    }
    o.ordered = false;
    for (uint64_t clock = 2; clock < 30; clock++) assert_true(run(clock, o, -1).trials == TRIALS);
  }
}
static void ends_early(void **state) {
  (void)state;
  RunOptions o = USUAL;
  o.stop_task = 1; /* a round without progress; every round has some */
  assert_true(run(1, o, -1).dead == 0);
  o.stop_all = 0; /* what was just found was found zero trials ago */
  Run x = run(1, o, -1);
  assert_true(x.stale == 1 && x.trials == TASKS * PER && x.best_trial == x.trials);
}
static void what_counts(void **state) {
  (void)state;
  const double good[] = {1e-3, 3e-3}, bad[] = {1e-3, 0.0};
  Rank nothing = rank_of(2, bad, 0, false);
  assert_true(rank_of(2, good, 0, true).seconds == 2e-3 && nothing.quick && nothing.seconds == NO_SECONDS);
  assert_true(rank_before(rank_of(2, good, 0, false), rank_of(1, good, 0, true)));
  assert_true(rank_before(rank_of(2, good, 0, true), nothing) && !rank_before(nothing, nothing));
  assert_true(rank_of(2, good, 4, false).quick && rank_of(0, good, 0, false).quick);
  assert_true(record_quick("v0.6 stage=quick n=3") && record_quick("v0.6 n=3 stage=quick"));
  assert_false(record_quick("v0.6 stage=full n=3") || record_quick("v0.6") || record_quick("v0.6 stage=quicker"));
  assert_false(record_quick("v0.6 cause=x msg=a stage=quick") || record_quick(""));
}

/* ---- logs ---- */

static const char LINE[] =
    "{\"i\": [[\"[\\\"k%d\\\", 8]\", \"llvm\", [2, 64, 64, 0, 0, 0, 0, 0], \"\", 2, []], [[], [[\"CI\", 2]]]], "
    "\"r\": [[%g], 0, 0.5, 1700000000], \"v\": \"v0.6\"}\n";
typedef struct {
  Err err;
  Arena *a;
  const char *path;
  TuneLog *log;
  int64_t trials[TASKS];
  double best[TASKS];
} Fix;
static void read_and_resume(void *arg) {
  Fix *f = arg;
  f->a = arena_new(&f->err);
  f->log = log_read(f->a, f->path);
  const double flop[TASKS] = {1, 1, 1, 1};
  const int32_t none[TASKS] = {-1, -1, -1, -1}, task[] = {3, -1, 0};
  Rounds *r = rounds_new(f->a, TASKS, flop, none, TASKS, EACH, (RunHooks){.objective = weighted});
  rounds_begin(r, &USUAL);
  rounds_resume(r, f->log, task, true);
  for (int i = 0; i < TASKS; i++) f->trials[i] = r->task[i].trials, f->best[i] = r->task[i].best.seconds;
}
static Fix try_log(const char *path, int64_t fail_after, ErrCode *code) {
  Fix f = {.path = path};
  err_init(&f.err);
  f.err.fail_after = fail_after;
  *code = err_try(&f.err, read_and_resume, &f);
  return f;
}
static void log_is_read_whatever_is_in_it(void **state) {
  (void)state;
  char path[] = "/tmp/nestsmith-log-XXXXXX";
  FILE *out = fdopen(mkstemp(path), "w");
  assert_non_null(out);
  fputs("# a comment\n\n  \t\n", out);
  for (int k = 0; k < 30; k++) fprintf(out, LINE, k % 3, 1e-3 * (30 - k));
  fputs("{\"i\": 3}\n\xff\xfe\n", out);
  fprintf(out, LINE, 2, 0.0);
  fwrite(LINE, 1, 20, out);
  fclose(out);
  ErrCode code;
  Fix f = try_log(path, 0, &code);
  assert_int_equal(code, NS_OK);
  assert_true(f.log->group.len == 3 && f.log->record.len == 31 && f.log->cut);
  assert_true(f.log->broken.len == 2 && f.log->broken.at[0] == 34 && f.log->broken.at[1] == 35);
  assert_true(f.log->group.at[2].valid == 10 && f.log->group.at[2].failed == 1 && f.log->record.at[0].at == 17);
  assert_true(f.trials[3] == 10 && f.trials[0] == 11 && f.trials[1] == 0 && f.trials[2] == 0);
  assert_true(f.best[3] == 1e-3 * 3 && f.best[0] == 1e-3 && f.best[1] == NO_SECONDS);
  arena_free(f.a);
  for (int64_t k = 1;; k++) { /* the k-th allocation fails */
    f = try_log(path, k, &code);
    arena_free(f.a);
    if (code == NS_OK) break;
    assert_int_equal(code, NS_ERR_MEMORY);
    assert_true(k < 10000);
  }
  unlink(path);
  f = try_log(path, 0, &code);
  assert_int_equal(code, NS_ERR_IO);
  assert_non_null(strstr(f.err.msg, "cannot be read: No such file"));
  arena_free(f.a);
}

/* ---- the choice of the next task: worked numbers ---- */

static void near(double is, double wanted) { assert_true(fabs(is - wanted) <= 1e-9 * fabs(wanted)); }

static void gradients_and_pick(void **state NS_UNUSED) {
  /* weights 1 and 4, costs 2.0 and 0.4 ms, 5 and 2 rounds: gradients -0.32 and -0.64 ms */
  const SchedTask two[] = {{.best = 2.0e-3, .rounds = 5, .flop = 1e9, .chain = 1},
                           {.best = 0.4e-3, .rounds = 2, .flop = 1e9, .chain = 4}};
  const double past[] = {9e-3, 8e-3, 6e-3, 5e-3, 3e-3};
  SchedTask one = {.best = 3e-3, .rounds = 5, .n_history = 5, .history = past, .flop = 1e9, .chain = 1};
  double g[2];
  Rng r;
  rng_seed(&r, 1);
  sched_gradients(2, two, 0.2, 2.0, 3, g);
  near(g[0], -0.32e-3);
  near(g[1], -0.64e-3);
  assert_int_equal(sched_pick(2, two, g, &r), 1);
  sched_gradients(1, &one, 0.2, 2.0, 3, g); /* what the last rounds have brought */
  near(g[0], 0.2 * (3e-3 - 8e-3) / 3 + 0.8 * (-3e-3 / 5));
  one.n_history = 0, one.group_flops = 1e13; /* the throughput of its group */
  sched_gradients(1, &one, 0.2, 2.0, 3, g);
  near(g[0], 0.8 * (2.0 * 1e9 / 1e13 - 3e-3));
}

/* Two layers, the first with two variants more: one that is 1.5 times as fast, one that is 3 times as slow. */
static void variants_share_a_layers_rounds(void **state NS_UNUSED) {
  Run x = {
      .o = {
          .alpha = 0.2, .beta = 2, .window = 3, .stop_all = 1e9, .stop_task = 1e9, .total = TRIALS, .per_round = PER}};
  const double flop[TASKS] = {1, 1, 1, 1}, level[TASKS] = {3e-3, 2e-3, 2e-3, 9e-3};
  const int32_t none[TASKS] = {-1, -1, -1, -1}, layer[TASKS] = {0, 1, 0, 0}, left[LEFT] = {0};
  err_init(&x.err);
  rng_seed(&x.chance, 5);
  x.a = arena_new(&x.err);
  Rounds *r = rounds_new(x.a, TASKS, flop, none, 2, layer, (RunHooks){weighted, unit, lot, &x.chance});
  rounds_begin(r, &x.o);
  int first[TASKS] = {0};
  for (RoundEvent ev; (ev = rounds_next(r, left)).kind != ROUND_END;) {
    if (ev.kind == ROUND_SEARCH) {
      if (!r->task[ev.task].rounds) first[ev.task] = ev.n;
      rounds_searched(r, ev.n);
    } else if (ev.kind == ROUND_LAND) {
      Rank rank = {false, level[ev.task] * (1 + 1.0 / (r->task[ev.task].rounds + 1))};
      Rank all[PER];
      for (int k = 0; k < PER; k++) all[k] = rank;
      rounds_take(r, ev.task, first[ev.task] == PER || r->task[ev.task].rounds ? PER : PER / 4, all);
    }
  }
  assert_true(first[0] == PER && first[1] == PER && first[2] == PER / 4 && first[3] == PER / 4);
  near(r->score, r->task[2].best.seconds + 2 * r->task[1].best.seconds); /* of what will run */
  assert_true(r->task[3].rounds <= 2 && r->task[0].rounds <= 4 && r->task[2].rounds > 8 && r->task[1].rounds > 8);
  arena_free(x.a);
}

/* Tasks that picks for many seeds name, as bits. */
static unsigned picks(int n, const SchedTask *t, int seeds) {
  double g[3];
  unsigned seen = 0;
  for (int s = 0; s < seeds; s++) {
    Rng r;
    rng_seed(&r, (uint64_t)s);
    sched_gradients(n, t, 0.2, 2.0, 3, g);
    int pick = sched_pick(n, t, g, &r);
    seen |= pick < 0 ? 1u << 31 : 1u << pick;
  }
  return seen;
}
static void dead_tasks_are_never_picked(void **state NS_UNUSED) {
  const SchedTask free = {.best = 1e-3, .rounds = 1, .flop = 1e9}, dead = {.best = 1e-3, .rounds = 1, .dead = true};
  SchedTask urgent = free;
  urgent.chain = 1;
  assert_int_equal(picks(3, (SchedTask[]){free, free, free}, 40), 7); /* all equal: each of them now and then */
  assert_int_equal(picks(3, (SchedTask[]){urgent, free, free}, 20), 1);
  urgent.dead = true;
  assert_int_equal(picks(3, (SchedTask[]){urgent, free, dead}, 20), 2);
  assert_int_equal(picks(3, (SchedTask[]){urgent, dead, dead}, 20), 1u << 31);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(order_does_not_depend_on_time),
                                     cmocka_unit_test(ends_early),
                                     cmocka_unit_test(what_counts),
                                     cmocka_unit_test(log_is_read_whatever_is_in_it),
                                     cmocka_unit_test(gradients_and_pick),
                                     cmocka_unit_test(variants_share_a_layers_rounds),
                                     cmocka_unit_test(dead_tasks_are_never_picked)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
