/* Search and tune from C, so that sanitizers see them: rounds on CPU and GPU targets with several threads, equal results for
 * any number of threads, refusal of an unsatisfiable task, measured states fed back, the reference program, and a session
 * that builds and runs what a round proposes.
 */
#include "fixture.h"
#include "search/space.h"
#include "tune/tune.h"

typedef struct {
  Err err;
  IrCtx *c;
  TeDag *d;
  Arena *arena;
  Target t;
  int threads;
  uint64_t seed;
  unsigned want;
  Candidate *out[12], *out2[12];
  int n, n2;
} Fix;

static void build(void *arg) {
  Fix *f = arg;
  f->d = product(f->c);
  f->arena = ir_arena(f->c);
}
SETUP_AND_TEARDOWN(Fix, build)

/* All tuples, in order, each once: their product divides the extent, the last is at most 64. */
static void list_factors(void *arena) {
  static const int64_t CASES[][3] = {{512, 4, 700}, {512, 3, 210}, {512, 2, 49}, {512, 1, 7}, {4096, 4, 1694}};
  FactorTable *t = factor_new(arena);
  for (int k = 0; k < NS_COUNT(CASES); k++) {
    int n = (int)CASES[k][1];
    int64_t last[4] = {0}, now[4] = {0};
    assert_int_equal(factor_count(t, CASES[k][0], n, 64), CASES[k][2]);
    for (int64_t i = 0; i < CASES[k][2]; i++) {
      int64_t product = 1;
      int differs = 0;
      factor_tuple(t, CASES[k][0], n, 64, i, now);
      for (int j = 0; j < n; j++) product *= now[j];
      while (differs < n - 1 && now[differs] == last[differs]) differs++;
      assert_true(CASES[k][0] % product == 0 && now[n - 1] <= 64 && now[differs] > last[differs]);
      memcpy(last, now, sizeof last);
    }
  }
}
static void factors_are_listed_in_order(void **state) {
  Fix *f = *state;
  assert_int_equal(err_try(&f->err, list_factors, f->arena), NS_OK);
}

typedef struct {
  Fix *f;
  SearchTask *t;
  Policy *p;
  Pool *pool;
} Run;
static void two_rounds(void *arg) {
  Run *r = arg;
  Fix *f = r->f;
  SearchParams par = search_params_default();
  par.population = 256, par.num_iters = 2;
  r->t = task_new(&f->err, f->c, f->d, &f->t);
  if (f->threads > 1) r->pool = pool_new(f->threads, &f->err);
  r->p = policy_new(&f->err, r->t, &par, f->seed, r->pool);
  policy_want(r->p, f->want, 0);
  f->n = policy_round(r->p, &f->err, 12, f->out);
  for (int i = 0; i < f->n; i++) {
    assert_null(f->out[i]->why);
    policy_report(r->p, f->out[i], 1e-3 / (i + 1), i % 3 != 0);
  }
  f->n2 = policy_round(r->p, &f->err, 12, f->out2);
}
static void forget(Fix *f) {
  for (int i = 0; i < 12; i++) {
    cand_free(f->out[i]), cand_free(f->out2[i]);
    f->out[i] = f->out2[i] = NULL;
  }
}
static ErrCode rounds(Fix *f, TargetKind kind, int threads) {
  f->t = target_default(kind, 90);
  if (kind == TG_CPU) f->t.hw.num_cores = 2;
  f->threads = threads, f->seed = 7;
  Run r = {.f = f};
  ErrCode c = err_try(&f->err, two_rounds, &r);
  policy_free(r.p);
  pool_free(r.pool);
  task_free(r.t);
  return c;
}
static char *text_of(Fix *f, int n, Candidate *const *c) {
  StrBuf b;
  sb_init(&b, f->arena);
  for (int i = 0; i < n; i++) sb_puts(&b, steps_text(f->arena, c[i]->n_step, c[i]->step));
  return sb_str(&b);
}

static void equal_for_any_number_of_threads(void **state) {
  Fix *f = *state;
  TargetKind kinds[] = {TG_CPU, TG_CUDA};
  for (int k = 0; k < 2; k++) {
    assert_int_equal(rounds(f, kinds[k], 1), NS_OK);
    assert_int_equal(f->n, 12);
    char *one = text_of(f, f->n, f->out), *two = text_of(f, f->n2, f->out2);
    forget(f);
    assert_int_equal(rounds(f, kinds[k], 3), NS_OK);
    assert_string_equal(one, text_of(f, f->n, f->out));
    assert_string_equal(two, text_of(f, f->n2, f->out2));
    forget(f);
  }
}

/* What a round makes of a candidate is what its steps alone say: hash, program, traits. */
static void compare(void *arg) {
  Fix *f = arg;
  SearchTask *t = task_new(&f->err, f->c, f->d, &f->t);
  for (int i = 0; i < f->n; i++) {
    const Candidate *a = f->out[i];
    Candidate *b = cand_new(t, a->n_step, a->step, WANT_PROGRAM | WANT_TRAITS, 0, NULL);
    assert_true(a->hash == b->hash && a->traits == NULL && b->traits->f.n_rows > 0);
    assert_string_equal(a->text.source, b->text.source);
    assert_string_equal(a->text.manifest, b->text.manifest);
    cand_free(b);
  }
  assert_true(task_counts(t).replayed == f->n && task_counts(t).programs == f->n && task_counts(t).traits == f->n);
  Step broken = {.kind = STEP_CI, .stage = 99};
  Candidate *c = cand_new(t, 1, &broken, WANT_TRAITS, 0, NULL);
  assert_int_equal(c->code, NS_ERR_VALUE);
  assert_non_null(strstr(c->why, "step 0 (CI)"));
  cand_free(c);
  task_free(t);
}
static void candidate_is_its_steps(void **state) {
  Fix *f = *state;
  f->want = WANT_PROGRAM;
  assert_int_equal(rounds(f, TG_CUDA, 3), NS_OK);
  assert_int_equal(err_try(&f->err, compare, f), NS_OK);
  forget(f);
}

static void sample_bad(void *arg) {
  Run *r = arg;
  SearchParams par = search_params_default();
  Target t = target_default(TG_CUDA, 90);
  t.hw.max_threads_per_block = 1;
  r->t = task_new(&r->f->err, r->f->c, r->f->d, &t);
  r->p = policy_new(&r->f->err, r->t, &par, 1, NULL);
  policy_sample(r->p, r->f->arena);
}
static void unsatisfiable_task_is_refused(void **state) {
  Run r = {.f = *state};
  assert_int_equal(err_try(&r.f->err, sample_bad, &r), NS_ERR_VALUE);
  assert_non_null(strstr(r.f->err.msg, "no valid program"));
  policy_free(r.p);
  task_free(r.t);
}

typedef struct {
  Fix *f;
  void *data[3];
  Session *s;
  int task, bad;
  PipeResult got[16];
  int n;
} Measure;
static void reference(void *arg) {
  Measure *m = arg;
  reference_data(m->f->arena, m->f->c, m->f->d, 1, NULL, m->data);
}
static void reference_is_the_product(void **state) {
  Measure m = {.f = *state};
  assert_int_equal(err_try(&m.f->err, reference, &m), NS_OK);
  const float *a = m.data[0], *b = m.data[1], *c = m.data[2];
  for (int i = 0; i < 64; i++)
    for (int j = 0; j < 128; j++) {
      float s = 0;
      for (int k = 0; k < 32; k++) s += a[i * 32 + k] * b[k * 128 + j];
      assert_true(s == c[i * 128 + j]);
    }
}

static void submit(void *arg) {
  Measure *m = arg;
  Fix *f = m->f;
  reference_data(f->arena, f->c, f->d, 1, NULL, m->data);
  m->s = session_new(&f->err, &f->t, DEV_CPU, 0, 2, NULL);
  m->task = session_task(m->s, &f->err, f->c, f->d, &f->t, 0, (const void *const *)m->data, false, NULL);
  RunPolicy how = {.number = 1, .repeat = 1, .timeout_s = 20, .check = true};
  SubmitItem item[3];
  for (int i = 0; i < 3; i++) item[i] = (SubmitItem){f->out[i]->n_step, f->out[i]->step, NULL};
  item[0].text = &f->out[0]->text; /* made already */
  session_submit(m->s, &f->err, m->task, 3, item, 10, &how);
  Step broken = {.kind = STEP_CI, .stage = 99};
  session_submit(m->s, &f->err, m->task, 1, &(SubmitItem){1, &broken, NULL}, 13, &how);
  Pipeline *p = session_pipe(m->s);
  while (pipe_pending(p) > 0) m->n += pipe_poll(p, 0.5, m->got + m->n, 16 - m->n);
}
static void session_measures_and_names_failures(void **state) {
  Measure m = {.f = *state};
  m.f->want = WANT_PROGRAM;
  assert_int_equal(rounds(m.f, TG_CPU, 1), NS_OK);
  assert_int_equal(err_try(&m.f->err, submit, &m), NS_OK);
  session_free(m.s);
  forget(m.f);
  assert_int_equal(m.n, 4);
  for (int i = 0; i < m.n; i++) {
    if (m.got[i].tag == 13)
      assert_int_equal(m.got[i].run.error, ME_INSTANTIATION);
    else {
      assert_int_equal(m.got[i].run.error, ME_OK);
      assert_true(m.got[i].run.n_costs == 1 && m.got[i].run.cost[0] > 0);
    }
  }
}

int main(int argc, char **argv) {
  int rc = worker_main_if_asked(argc, argv);
  if (rc >= 0) return rc;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(factors_are_listed_in_order), cmocka_unit_test(equal_for_any_number_of_threads),
      cmocka_unit_test(candidate_is_its_steps),      cmocka_unit_test(unsatisfiable_task_is_refused),
      cmocka_unit_test(reference_is_the_product),    cmocka_unit_test(session_measures_and_names_failures)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
