/* Optimisers over spaces: generations, annealing, the choice of different configurations. */
#include "fixture.h"
#include "template/optimise.h"

typedef struct {
  Err err;
  Space *s;
  Arena *a;
  int calls, most; /* of the model; configurations at once */
  int broken;      /* it raises in this call */
  int64_t best;    /* what it likes best */
} Fix;
static void make(void *arg) {
  Fix *f = arg;
  f->s = space_new(&f->err);
  f->a = arena_new(&f->err);
  static const double VALUE[16];
  for (int i = 0; i < 3; i++) {
    const char *const NAME[] = {"x", "y", "z"};
    Knob k = knob_other(f->s->a, NAME[i], 16, VALUE);
    space_define(f->s, &k);
  }
}
static int setup(void **state) {
  static Fix f;
  f = (Fix){.broken = -1, .best = 1234};
  err_init(&f.err);
  *state = &f;
  return err_try(&f.err, make, &f);
}
static int teardown(void **state) {
  Fix *f = *state;
  space_free(f->s);
  arena_free(f->a);
  return 0;
}

/* ---- generations ---- */
static bool even(void *self, Err *e, const int32_t *digit) {
  (void)self;
  (void)e;
  return digit[0] % 2 == 0;
}
static void do_generations(void *arg) {
  Fix *f = arg;
  MapU64 visited;
  mapu_init(&visited, f->a);
  Rng r;
  rng_seed(&r, 1);
  Scored parent[2] = {{space_index(f->s, (int32_t[]){2, 2, 2}), 1}, {space_index(f->s, (int32_t[]){4, 4, 4}), 0}};
  for (int i = 0; i < 2; i++) index_add(&visited, parent[i].index);
  space_filter(f->s, (SpaceFilter){even, NULL});
  IndexVec out = {0};
  genetic_next(f->s, f->a, &r, 2, parent, 4, 0, &visited, &out);
  assert_int_equal(out.len, 4);
  int bred = 0;
  for (int i = 0; i < 4; i++) {
    int32_t q[SPACE_KNOBS];
    space_digits(f->s, out.at[i], q);
    bred += (q[0] == 2 || q[0] == 4) && (q[1] == 2 || q[1] == 4) && (q[2] == 2 || q[2] == 4);
    for (int j = 0; j < i; j++) assert_int_not_equal(out.at[i], out.at[j]);
    assert_true(space_allows(f->s, out.at[i]) && index_in(&visited, out.at[i]));
  }
  assert_int_equal(bred, 2); /* 2 4 4 and 2 2 4: the better one gives the first digits; then chance */
  /* all of the space, and then no more */
  genetic_next(f->s, f->a, &r, 2, parent, 5000, 0.5, &visited, &out);
  assert_int_equal(out.len, 2048 - 2);
  genetic_next(f->s, f->a, &r, 0, NULL, 10, 0.5, &visited, &out);
  assert_int_equal(out.len, 2048 - 2);
}

/* ---- annealing ---- */
static void near(void *self, Err *e, int n, const int64_t *index, double *score) {
  Fix *f = self;
  if (f->calls++ == f->broken) err_raise(e, NS_ERR_RUNTIME, "no model");
  if (n > f->most) f->most = n;
  for (int i = 0; i < n; i++) {
    int32_t q[SPACE_KNOBS], want[SPACE_KNOBS];
    space_digits(f->s, index[i], q);
    space_digits(f->s, f->best, want);
    score[i] = -5;
    for (int k = 0; k < 3; k++) score[i] -= (q[k] - want[k]) * (q[k] - want[k]);
  }
}
static void do_annealing(void *arg) {
  Fix *f = arg;
  Rng r;
  rng_seed(&r, 3);
  int64_t point[32];
  Draw d;
  draw_init(&d, f->a, f->s, 0, f->s->range);
  for (int i = 0; i < 32; i++) point[i] = draw_next(&d, &r);
  MapU64 exclude;
  mapu_init(&exclude, f->a);
  Scored best[40];
  AnnealParams p = {.rounds = 300, .early_stop = 50, .begin = 1, .end = 0};
  int n = anneal(f->s, f->a, &r, &p, (Predictor){near, f}, 32, point, 40, &exclude, best);
  assert_int_equal(n, 40);
  assert_int_equal(best[0].index, f->best);
  assert_true(best[0].score == -5);
  assert_int_equal(f->most, 32); /* a call for all points of a round */
  assert_true(f->calls <= 301);
  for (int i = 1; i < n; i++) {
    assert_true(best[i].score <= best[i - 1].score);
    for (int j = 0; j < i; j++) assert_int_not_equal(best[i].index, best[j].index);
  }
  index_add(&exclude, f->best);
  n = anneal(f->s, f->a, &r, &p, (Predictor){near, f}, 32, point, 40, &exclude, best);
  assert_true(n > 0 && best[0].index != f->best);
  assert_int_equal(anneal(f->s, f->a, &r, &p, (Predictor){near, f}, 32, point, 0, &exclude, best), 0);
  assert_int_equal(anneal(f->s, f->a, &r, &p, (Predictor){near, f}, 0, point, 4, &exclude, best), 0);
}
static void a_model_that_fails(void **state) {
  Fix *f = *state;
  f->broken = 3;
  assert_int_equal(err_try(&f->err, do_annealing, f), NS_ERR_RUNTIME);
  assert_string_equal(f->err.msg, "no model");
}

/* ---- different ones ---- */
static void do_different(void *arg) {
  Fix *f = arg;
  int32_t q[][3] = {{0, 0, 0}, {0, 0, 1}, {1, 1, 1}, {0, 1, 2}, {2, 2, 2}};
  Scored c[5];
  for (int i = 0; i < 5; i++) c[i] = (Scored){space_index(f->s, q[i]), 0};
  int32_t out[5];
  assert_int_equal(pick_diverse(f->s, f->a, 5, c, 3, out), 3);
  assert_true(out[0] == 0 && out[1] == 2 && out[2] == 4);
  c[3].score = 10;
  assert_int_equal(pick_diverse(f->s, f->a, 5, c, 9, out), 5);
  assert_int_equal(out[0], 3);
  assert_int_equal(pick_diverse(f->s, f->a, 0, c, 9, out), 0);
}

/* Two knobs of 2^30 choices each: more than an int can count together. */
static void do_different_of_very_many(void *arg) {
  Fix *f = arg;
  Space *s = space_new(&f->err);
  const char *const name[2] = {"x", "y"};
  for (int i = 0; i < 2; i++) {
    Knob k = knob_words(s->a, name[i], 15, 4, (uint8_t[]){ANN_NONE, ANN_UNROLL, ANN_BLOCK_X, ANN_BLOCK_Y});
    assert_int_equal(k.n, 1 << 30);
    space_define(s, &k);
  }
  const Scored c[3] = {{0, 0}, {1, 0}, {space_index(s, (int32_t[]){1 << 29, (1 << 30) - 1}), 0}};
  int32_t out[3];
  assert_int_equal(pick_diverse(s, f->a, 3, c, 2, out), 2);
  assert_true(out[0] == 0 && out[1] == 2);
  space_free(s);
}

#define RUNS(name)                                                                                                     \
  static void name(void **state) {                                                                                     \
    Fix *f = *state;                                                                                                   \
    if (err_try(&f->err, do_##name, f) != NS_OK) fail_msg("%s", f->err.msg);                                           \
  }
RUNS(generations)
RUNS(annealing)
RUNS(different)
RUNS(different_of_very_many)

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {T(generations), T(annealing), T(a_model_that_fails), T(different),
                                     T(different_of_very_many)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
