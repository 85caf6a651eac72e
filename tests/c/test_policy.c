/* The inside of a policy, where memory can be made to run out at a chosen place. */
#include "fixture.h"
#include "search/policy.h"

typedef struct {
  Err err;
  IrCtx *c;
  TeDag *d;
  SearchTask *t;
  Policy *p;
  int added;
} Fix;

static void build(void *arg) {
  Fix *f = arg;
  f->d = product(f->c);
}
SETUP_AND_TEARDOWN(Fix, build)

static int never(void *self, Arena *a, const State *s, int stage) {
  (void)self, (void)a, (void)s, (void)stage;
  return 0;
}
static void add_many(void *arg) {
  Fix *f = arg;
  SearchParams par = search_params_default();
  Target cpu = {.kind = TG_CPU, .hw = {2, 64, 64, 0, 0, 0, 0, 0}};
  f->t = task_new(&f->err, f->c, f->d, &cpu);
  f->p = policy_new(&f->err, f->t, &par, 1, NULL);
  f->p->err.fail_after = 1; /* the next block that the policy's arena asks for */
  for (; f->added < 100000; f->added++) policy_add_rule(&f->err, f->p, (CustomRule){"never", never, NULL, NULL});
}
static void rule_that_finds_no_memory_is_refused(void **state) {
  Fix *f = *state;
  assert_int_equal(err_try(&f->err, add_many, f), NS_ERR_MEMORY);
  assert_non_null(strstr(f->err.msg, "out of memory"));
  assert_int_equal(f->p->rules.len, f->added);
  policy_free(f->p);
  task_free(f->t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rule_that_finds_no_memory_is_refused)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
