/* race and drift: who becomes a finalist, who wins, what counts as a disturbance. */
#include "measure/pipe_int.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static Job *job(double quick, int tag) {
  Job *j = calloc(1, sizeof *j);
  j->binary = malloc(4);
  j->manifest = strdup("{}");
  j->policy = (RunPolicy){.race = true, .repeat = 1};
  j->res.tag = tag;
  j->res.run.quick = j->res.run.cost[0] = quick;
  j->res.run.n_costs = 1;
  return j;
}

static void drop(Queue *q) {
  for (Job *j; (j = queue_take(q));) job_free(j);
}

static void task_end(Task *t) {
  drop(&t->finalists);
  free(t->binary);
  free(t->manifest);
}

static void test_finalists(void **state) {
  (void)state;
  Task t = {0};
  Queue out = {0};
  assert_true(race_enter(&t, job(10, 0), &out)); /* the first may always become the best */
  Job *slow = job(10.5, 1), *cut = job(9, 2), *failed = job(9, 3);
  assert_false(race_enter(&t, slow, &out));
  cut->res.run.cut = true;
  failed->res.run.error = ME_RUNTIME_DEVICE;
  assert_false(race_enter(&t, cut, &out));
  assert_false(race_enter(&t, failed, &out));
  job_free(slow), job_free(cut), job_free(failed);
  assert_true(race_enter(&t, job(10.2, 4), &out));
  assert_int_equal(t.finalists.n, 2);
  assert_true(race_enter(&t, job(9, 5), &out)); /* far better: the others have to go */
  assert_int_equal(t.finalists.n, 1);
  assert_int_equal(out.n, 2);
  for (int i = 0; i < 10; i++) assert_true(race_enter(&t, job(9 - 0.001 * i, 10 + i), &out));
  assert_int_equal(t.finalists.n, FINAL_MAX - 2); /* the six best */
  assert_int_equal(out.n, 2 + 11 - (FINAL_MAX - 2));
  assert_int_equal(t.finalists.head->res.tag, 19);
  assert_true(race_due(&t));
  t.pending = 1;
  assert_false(race_due(&t));
  t.pending = 0, t.hold = 1;
  assert_false(race_due(&t));
  RunPolicy p = {.race = true};
  race_limits(&t, &p); /* nothing is known but a finalist: twice its time in the first rounds */
  assert_true(fabs(p.stop_above - 2 * 8.991) < 1e-9 && fabs(p.full_below - 1.03 * 8.991) < 1e-9);
  t.ran = 1000, t.best = 8, t.best_quick = 8;
  race_limits(&t, &p);
  assert_true(fabs(p.stop_above - 1.3 * 8) < 1e-9);
  t.doubt = 1; /* somebody was stopped wrongly */
  race_limits(&t, &p);
  assert_true(fabs(p.stop_above - 1.6 * 8) < 1e-9);
  drop(&out);
  task_end(&t);
}

static FinalResult passes(double a, double b, double c, double d, double e) {
  return (FinalResult){.pass = {a, b, c, d, e}, .passes = PASSES};
}

static void test_decide(void **state) {
  (void)state;
  Task t = {0};
  Job *a = job(1, 0), *b = job(1, 1), *c = job(1, 2), *d = job(1, 3);
  FinalResult first[] = {passes(10, 10, 10.1, 10, 10), passes(11, 11, 11, 11, 11)};
  race_decide(&t, (Job *[]){a, b}, 2, first, false);
  assert_true(t.best == 10 && a->res.run.full && a->res.run.cost[0] == 10 && b->res.run.cost[0] == 11);
  assert_null(a->binary); /* the task has it now, to run it beside the challengers */
  /* faster in three of five passes, and in the median: not enough; its record must not look better than the incumbent's */
  FinalResult close[] = {passes(9.9, 9.9, 9.9, 10.1, 10.1), passes(10, 10, 10, 10, 10)};
  race_decide(&t, (Job *[]){c}, 1, close, true);
  assert_true(t.best == 10 && c->res.run.cost[0] == 10);
  /* the clock has fallen by a tenth since: faster than the incumbent now, slower than its record; the record follows */
  FinalResult slow_clock[] = {passes(10.5, 10.5, 10.5, 10.5, 10.5), passes(11, 11, 11, 11, 11)};
  race_decide(&t, (Job *[]){d}, 1, slow_clock, true);
  assert_true(fabs(t.best - 10 * 10.5 / 11) < 1e-9 && fabs(d->res.run.cost[0] - t.best) < 1e-9);
  job_free(a), job_free(b), job_free(c), job_free(d);
  Job *g = job(1, 5), *h = job(1, 6); /* the first dropped out after two passes: not in full, and not the best */
  FinalResult drop_out[] = {passes(9.4, 9.4, 0, 0, 0), passes(9, 9, 9, 9, 9), passes(11, 11, 11, 11, 11)};
  drop_out[0].passes = 2;
  race_decide(&t, (Job *[]){g, h}, 2, drop_out, true);
  assert_true(!g->res.run.full && g->res.run.n_costs == 1 && g->res.run.cost[0] > h->res.run.cost[0]);
  assert_true(h->res.run.full && fabs(t.best - h->res.run.cost[0]) < 1e-12);
  job_free(g), job_free(h);
  Job *e = job(1, 4); /* three costs of five passes: their mean is what counts */
  e->policy.repeat = 3;
  FinalResult spreads[] = {passes(8, 9, 8.5, 8.4, 8.6), passes(11, 11, 11, 11, 11)};
  race_decide(&t, (Job *[]){e}, 1, spreads, true);
  const RunResult *r = &e->res.run;
  assert_int_equal(r->n_costs, 3);
  assert_true(fabs((r->cost[0] + r->cost[1] + r->cost[2]) / 3 - t.best) < 1e-9);
  job_free(e);
  task_end(&t);
  Task u = {
      0}; /* another process took two thirds of the time when the incumbent was measured: that says nothing of others */
  Job *i = job(30, 7), *k = job(10, 8);
  FinalResult disturbed[] = {passes(30, 30, 30, 30, 30)},
              quiet[] = {passes(11, 11, 11, 11, 11), passes(10, 10, 10, 10, 10)};
  race_decide(&u, (Job *[]){i}, 1, disturbed, false);
  race_decide(&u, (Job *[]){k}, 1, quiet, true);
  assert_true(u.best == 10 && fabs(u.best_quick - 10) < 1e-9 && k->res.run.cost[0] == 11);
  job_free(i), job_free(k);
  task_end(&u);
}

static void test_audit_rate(void **state) {
  (void)state;
  int n = 0;
  for (int64_t tag = 0; tag < 100000; tag++) n += race_audit(tag);
  assert_in_range(n, 1800, 2200);
}

static bool check(Drift *d, double v) {
  double x[4] = {v, v, v, v};
  return drift_check(d, x, 4);
}

static void test_drift(void **state) {
  (void)state;
  Drift d = {.limit = 0.03};
  for (int i = 0; i < 100; i++) assert_true(check(&d, 200e-6 * (1 + 0.01 * sin(i))));
  assert_true(drift_spread(&d) < 0.021);
  double sliced[4] = {200e-6, 200e-6, 2200e-6, 200e-6}; /* one of the pieces had to wait for another process */
  assert_false(drift_check(&d, sliced, 4));
  assert_true(check(&d, 201e-6)); /* gone again */
  assert_int_equal(d.disturbed, 1);
  Drift cpu = {.limit = 0.25, .middle = true}; /* on a CPU one interruption is normal */
  for (int i = 0; i < 10; i++) assert_true(check(&cpu, 200e-6));
  assert_true(drift_check(&cpu, sliced, 4));
  assert_false(check(&cpu, 400e-6));
  for (int i = 0; i < DRIFT_PATIENCE - 1; i++) { /* noise that does not settle: wait no longer */
    assert_true(drift_patient(&d));
    assert_false(check(&d, 200e-6 * (1.2 + 0.2 * (i % 2))));
  }
  assert_false(check(&d, 300e-6));
  assert_false(drift_patient(&d));
  assert_true(check(&d, 200e-6));
  int bad = 0; /* a new level that lasts becomes the standard */
  while (!check(&d, 220e-6)) bad++;
  assert_int_equal(bad, DRIFT_PATIENCE - 1);
  assert_int_equal(d.shifts, 1);
  assert_true(check(&d, 221e-6));
  for (int i = 0; i < 20; i++) assert_false(check(&d, 440e-6)); /* another process, as steady as it may be, does not */
  assert_true(check(&d, 220e-6));
  Drift late = {.limit = 0.03}; /* disturbed from the beginning: known when it ends */
  for (int i = 0; i < 10; i++) assert_true(check(&late, 400e-6));
  assert_false(check(&late, 200e-6));
  assert_true(check(&late, 200e-6));
  assert_false(check(&late, 400e-6));
  Drift gpu = {.limit = 0.03, .rise = 0.08}; /* an H100, faster while tensor cores work */
  for (int i = 0; i < 200; i++) assert_true(check(&gpu, i % 7 < 3 ? 207e-6 : 196e-6));
  assert_true(fabs(gpu.base - 207e-6) < 1e-9 && gpu.disturbed == 0 && gpu.shifts == 0);
  assert_false(check(&gpu, 215e-6));
  assert_false(check(&gpu, 185e-6));
  Drift late_rest = {.limit = 0.03, .rise = 0.08}; /* soon at work */
  for (int i = 0; i < 60; i++) assert_true(check(&late_rest, i % 3 == 0 ? 207e-6 : 196e-6));
  Drift at_work = {.limit = 0.03, .rise = 0.08}; /* at work when the first checks came */
  for (int i = 0; i < 60; i++) assert_true(check(&at_work, i % 3 == 2 ? 207e-6 : 196e-6));
  Drift cooled = {.limit = 0.03, .rise = 0.08}; /* faster for good: what was normal is a disturbance then */
  for (int i = 0; i < 5; i++) assert_true(check(&cooled, 207e-6));
  for (int i = 0; i < 2 * DRIFT_KEEP; i++) assert_true(check(&cooled, 196e-6));
  assert_false(check(&cooled, 207e-6));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_finalists), cmocka_unit_test(test_decide),
                                     cmocka_unit_test(test_audit_rate), cmocka_unit_test(test_drift)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
