/* The inside of a policy: what rules leave open, in every way; and memory that runs out at a chosen place. */
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

/* A rule whose first decision says which others there are: nothing more; a pair in front of three; one in two and one of three. */
static int way(Choice *c) {
  int order[3];
  switch (choose(c, 3)) {
  case 0: return 0;
  case 1: choose_order(c, 3, order); return 1 + 3 * order[0] + order[1];
  default: return choose_one_in(c, 5) ? 20 : 21 + choose_weighted(c, 3, (double[]){0.1, 0.2, 0.7});
  }
}
static void every_way_is_taken_once(void **state) {
  (void)state;
  Choice c = {.rng = NULL};
  int seen[24] = {0}, n = 0, ways = 0;
  do seen[way(&c)]++, n++;
  while (choice_next(&c));
  for (int i = 0; i < 24; i++) ways += seen[i] == 1;
  assert_int_equal(n, 1 + 3 * 2 + 1 + 3);
  assert_int_equal(ways, n);
  assert_int_equal(choose_tries(&c, 12), 1);
  Rng r;
  rng_seed(&r, 1);
  Choice drawn = {.rng = &r};
  for (int i = 0; i < 1000; i++) seen[way(&drawn)]++;
  for (int i = 0; i < 24; i++) assert_true(seen[i] == 0 || seen[i] > 1); /* at random the same ways, all of them */
  assert_int_equal(choose_tries(&drawn, 12), 12);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_way_is_taken_once),
                                     cmocka_unit_test(rule_that_finds_no_memory_is_refused)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
