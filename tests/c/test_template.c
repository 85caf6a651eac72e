/* Templates' spaces: entities of every kind in the order of the reference, indices and digits, filters, walks and draws. */
#include "fixture.h"
#include <stdio.h>
#include "template/space.h"

typedef struct {
  Err err;
  Space *s;
  int64_t asked;
  int32_t broken; /* the filter raises at this digit */
} Fix;
static void make(void *arg) {
  Fix *f = arg;
  f->s = space_new(&f->err);
}
static int setup(void **state) {
  static Fix f;
  f = (Fix){.broken = -1};
  err_init(&f.err);
  *state = &f;
  return err_try(&f.err, make, &f);
}
static int teardown(void **state) {
  space_free(((Fix *)*state)->s);
  return 0;
}
static const Knob *define(Fix *f, Knob k) {
  int at = space_define(f->s, &k);
  return &f->s->knob.at[at];
}
static void expect(const Knob *k, int32_t digit, const char *wanted) {
  int64_t at[KNOB_WIDTH];
  char text[512];
  size_t n = 0;
  knob_entity(k, digit, at);
  text[0] = 0;
  for (int i = 0; i < k->width; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, i ? ",%lld" : "%lld", (long long)at[i]);
  assert_string_equal(text, wanted);
}

/* ---- knobs ---- */
static const Knob *split(Fix *f, int64_t length, int outputs, SplitPolicy p, bool tails) {
  return define(f, knob_split(f->s->a, "x", &(SplitDef){length, outputs, p, (int64_t)1 << 31, tails, 0, NULL}));
}
static void do_splits(void *arg) {
  static const struct {
    int64_t length;
    int outputs;
    SplitPolicy policy;
    int32_t n;
  } CASES[] = {{256, 3, SPLIT_FACTORS, 45},  {256, 3, SPLIT_POWER2, 45},        {256, 3, SPLIT_VERBOSE, 45},
               {224, 3, SPLIT_FACTORS, 63},  {224, 3, SPLIT_POWER2, 36},        {224, 3, SPLIT_VERBOSE, 84},
               {512, 4, SPLIT_FACTORS, 220}, {1 << 25, 4, SPLIT_FACTORS, 3276}, {1, 4, SPLIT_VERBOSE, 1}};
  for (int i = 0; i < NS_COUNT(CASES); i++) {
    bool tails = CASES[i].policy != SPLIT_FACTORS;
    assert_int_equal(split(arg, CASES[i].length, CASES[i].outputs, CASES[i].policy, tails)->n, CASES[i].n);
  }
  static const char *const FOUR[] = {"-1,1,1", "-1,2,1", "-1,4,1", "-1,1,2", "-1,2,2", "-1,1,4"};
  const Knob *k = split(arg, 4, 3, SPLIT_FACTORS, false);
  assert_int_equal(k->n, NS_COUNT(FOUR));
  for (int i = 0; i < k->n; i++) expect(k, i, FOUR[i]);
  expect(split(arg, 7, 2, SPLIT_VERBOSE, true), 3, "-1,7");
}

static void do_orders(void *arg) {
  Fix *f = arg;
  Arena *a = f->s->a;
  const Knob *k = define(f, knob_permute(a, "x", 4, 0, 4));
  assert_int_equal(k->n, 24);
  expect(k, 0, "0,1,2,3");
  expect(k, 1, "0,1,3,2");
  expect(k, 22, "3,2,0,1");
  expect(k, 23, "3,2,1,0");
  k = define(f, knob_permute(a, "x", 5, 1, 4));
  assert_int_equal(k->n, 6);
  expect(k, 3, "0,2,3,1,4");
  k = define(f, knob_permute(a, "x", 12, 0, 12)); /* never listed */
  assert_int_equal(k->n, 479001600);
  expect(k, 479001599, "11,10,9,8,7,6,5,4,3,2,1,0");
  expect(define(f, knob_permute(a, "x", 0, 0, 0)), 0, "");
}

static void do_words(void *arg) {
  Fix *f = arg;
  Arena *a = f->s->a;
  static const uint8_t WORDS[] = {ANN_NONE, ANN_UNROLL, ANN_VEC};
  const Knob *k = define(f, knob_words(a, "x", 3, 3, WORDS));
  assert_int_equal(k->n, 20); /* 2^3 without a vector and 3 * 2^2 with one */
  expect(k, 0, "0,0,0");
  expect(k, 2, "0,0,1");
  expect(k, 13, "2,2,1");
  expect(k, 19, "1,2,2");
  k = define(f, knob_anchors(a, "x", 4, 2));
  assert_int_equal(k->n, 6);
  expect(k, 0, "0,1");
  expect(k, 5, "2,3");
  expect(define(f, knob_anchors(a, "x", 3, 0)), 0, "");
  assert_int_equal(ann_find("vthread"), ANN_VTHREAD);
  assert_int_equal(ann_find("warp"), -1);
}

static void do_kept(void *arg) {
  Fix *f = arg;
  Arena *a = f->s->a;
  Knob k = knob_other(a, "x", 4, (double[]){1, 2, 4, 8});
  knob_keep(a, &k, (bool[]){true, false, true, true});
  knob_keep(a, &k, (bool[]){false, true, true}); /* of what is left */
  assert_int_equal(k.n, 2);
  expect(&k, 0, "2");
  expect(&k, 1, "3");
  float x;
  knob_feature(&k, 1, &x);
  assert_true(x == 8);
}

static void bad_length(void *arg) { split(arg, 0, 2, SPLIT_FACTORS, false); }
static void bad_outputs(void *arg) { split(arg, 4, 1, SPLIT_FACTORS, false); }
static void bad_interval(void *arg) { knob_permute(((Fix *)arg)->s->a, "x", 3, 2, 4); }
static void too_many_orders(void *arg) { knob_permute(((Fix *)arg)->s->a, "x", 13, 0, 13); }
static void too_many_splits(void *arg) { split(arg, (int64_t)1 << 40, 12, SPLIT_POWER2, true); }
static void too_many_words(void *arg) { knob_words(((Fix *)arg)->s->a, "x", 64, 2, (uint8_t[]){ANN_NONE, ANN_UNROLL}); }
static void no_words(void *arg) { knob_words(((Fix *)arg)->s->a, "x", 2, 1, (uint8_t[]){ANN_VEC}); }
static void no_values(void *arg) { knob_other(((Fix *)arg)->s->a, "x", 0, NULL); }
static void none_kept(void *arg) {
  Arena *a = ((Fix *)arg)->s->a;
  Knob k = knob_other(a, "x", 1, (double[]){1});
  knob_keep(a, &k, (bool[]){false});
}
static void too_large(void *arg) {
  Fix *f = arg;
  for (int i = 0; i < 3; i++) {
    char name[2] = {(char)('a' + i), 0};
    define(f, knob_permute(f->s->a, name, 12, 0, 12));
  }
}
static void too_wide(void *arg) {
  Fix *f = arg;
  for (int i = 0; i <= SPACE_KNOBS; i++)
    define(f, knob_other(f->s->a, arena_printf(f->s->a, "k%d", i), 1, (double[]){1}));
}
static void what_cannot_be(void **state) {
  Fix *f = *state;
  static const struct {
    ErrBody body;
    const char *said;
  } CASES[] = {{bad_length, "length 0 cannot be split"},
               {bad_outputs, "'x' is for 1 axes; it must be 2 to 64"},
               {bad_interval, "interval (2, 4) is not within the 3 axes"},
               {too_many_orders, "at most 2147483647"},
               {too_many_splits, "choices or more"},
               {too_many_words, "at most 2147483647"},
               {no_words, "'x' has no choices"},
               {no_values, "'x' has no choices"},
               {none_kept, "'x' has no choices"},
               {too_large, "'c': with its 479001600 choices the space has more than 2^63"},
               {too_wide, "at most 128 knobs"}};
  for (int i = 0; i < NS_COUNT(CASES); i++) {
    assert_int_equal(err_try(&f->err, CASES[i].body, f), NS_ERR_VALUE);
    if (!strstr(f->err.msg, CASES[i].said)) fail_msg("%s: %s", CASES[i].said, f->err.msg);
  }
  assert_int_equal(f->s->knob.len, SPACE_KNOBS); /* what was refused is not there */
}

/* ---- spaces ---- */
static void spatial_pack(Fix *f) { /* 64 channels, 56 x 56 */
  static const uint8_t WORDS[] = {ANN_NONE, ANN_UNROLL, ANN_VEC};
  Arena *a = f->s->a;
  define(f, knob_split(a, "tile_co", &(SplitDef){64, 3, SPLIT_FACTORS, 1 << 30, false, 0, NULL}));
  define(f, knob_split(a, "tile_oh", &(SplitDef){56, 3, SPLIT_FACTORS, 1 << 30, false, 0, NULL}));
  define(f, knob_split(a, "tile_ow", &(SplitDef){56, 3, SPLIT_FACTORS, 1 << 30, false, 0, NULL}));
  define(f, knob_table(a, "reorder_0", KNOB_REORDER, 4, 2, (int64_t[]){0, 1, 2, 3, 0, 3, 1, 2}));
  define(f, knob_words(a, "ann_reduce", 2, 2, WORDS));
  define(f, knob_words(a, "ann_spatial", 3, 3, WORDS));
}
static void do_indices(void *arg) {
  static const int32_t WANTED[] = {19, 8, 16, 1, 2, 13};
  Fix *f = arg;
  int32_t digit[SPACE_KNOBS];
  assert_int_equal(f->s->range, 1);
  spatial_pack(f);
  assert_int_equal(f->s->range, 4032000);
  space_digits(f->s, 2760483, digit);
  assert_memory_equal(digit, WANTED, sizeof WANTED);
  assert_int_equal(space_index(f->s, digit), 2760483);
  expect(&f->s->knob.at[0], 19, "-1,2,8");
  expect(&f->s->knob.at[1], 8, "-1,1,2");
  expect(&f->s->knob.at[2], 16, "-1,7,4");
  expect(&f->s->knob.at[3], 1, "0,3,1,2");
  assert_int_equal(space_features(f->s), 3 + 3 + 3 + 4 + 22 + 33);
  float x[68];
  space_feature(f->s, 2760483, x);
  assert_true(x[0] == -1 && x[1] == 2 && x[8] == 4 && x[10] == 3 && x[13 + ANN_UNROLL] == 1 && x[13 + ANN_NONE] == 0);
  Knob again = knob_other(f->s->a, "tile_oh", 2, (double[]){0, 1}); /* takes the place of the other */
  assert_int_equal(space_define(f->s, &again), 1);
  assert_int_equal(f->s->range, 4032000 / 30 * 2);
}

static bool middle(void *self, Err *e, const int32_t *digit) { /* 32 <= 2^a * 2^b < 1024 */
  Fix *f = self;
  f->asked++;
  if (digit[0] == f->broken) err_raise(e, NS_ERR_RUNTIME, "digit %d", (int)digit[0]);
  return digit[0] + digit[1] >= 5 && digit[0] + digit[1] < 10;
}
static void tiles(Fix *f) {
  define(f, knob_split(f->s->a, "tile_y", &(SplitDef){128, 2, SPLIT_FACTORS, 1 << 30, false, 0, NULL}));
  define(f, knob_split(f->s->a, "tile_x", &(SplitDef){128, 2, SPLIT_FACTORS, 1 << 30, false, 0, NULL}));
  space_filter(f->s, (SpaceFilter){middle, f});
}
static void do_filters(void *arg) {
  Fix *f = arg;
  Space *s = f->s;
  tiles(f);
  assert_false(space_allows(s, 0));
  assert_true(space_allows(s, 15));
  assert_false(space_allows(s, -1) || space_allows(s, 64));
  assert_int_equal(f->asked, 2);
  assert_int_equal(space_next(s, 0, 1, 0, 64), 5);
  assert_int_equal(space_next(s, 63, -1, 0, 64), 58);
  assert_int_equal(space_next(s, 0, 34, 0, 64), 58);
  assert_int_equal(space_next(s, 0, 35, 0, 64), -1);
  assert_int_equal(space_count(s, 0, 64), 34);
  assert_int_equal(f->asked, 64); /* each once */
  assert_int_equal(space_count(s, 0, 32), 17);
  assert_int_equal(space_count(s, 16, 32), 10);
  assert_int_equal(f->asked, 64);
  space_filter(s, (SpaceFilter){0});
  assert_int_equal(space_count(s, 16, 32), 16);
  assert_int_equal(space_next(s, 3, -4, 0, 64), -1);
  assert_int_equal(space_next(s, 3, 4, 0, 64), 7);
}

static void count_all(void *arg) { space_count(((Fix *)arg)->s, 0, 64); }
static void do_tiles(void *arg) { tiles(arg); }
static void filters_that_fail(void **state) {
  Fix *f = *state;
  assert_int_equal(err_try(&f->err, do_tiles, f), NS_OK);
  f->broken = 6;
  assert_int_equal(err_try(&f->err, count_all, f), NS_ERR_RUNTIME);
  assert_string_equal(f->err.msg, "digit 6");
  f->broken = -1;
  assert_int_equal(err_try(&f->err, count_all, f), NS_OK);
  assert_int_equal(f->asked, 65); /* what was answered before is known */
}

static void do_draws(void *arg) {
  Fix *f = arg;
  Arena *a = f->s->a;
  Rng r;
  rng_seed(&r, 7);
  tiles(f);
  for (int round = 0; round < 20; round++) {
    Draw d;
    bool seen[64] = {0};
    int64_t n = 0, i;
    draw_init(&d, a, f->s, 8, 64);
    while ((i = draw_next(&d, &r)) >= 0) {
      assert_true(i >= 8 && i < 64 && !seen[i] && space_allows(f->s, i));
      seen[i] = true, n++;
    }
    assert_int_equal(n, space_count(f->s, 8, 64));
    assert_int_equal(draw_next(&d, &r), -1);
  }
  int first[64] = {0}; /* the first draw is uniform */
  for (int round = 0; round < 3400; round++) {
    ArenaMark mark = arena_mark(a);
    Draw d;
    draw_init(&d, a, f->s, 0, 64);
    first[draw_next(&d, &r)]++;
    arena_release(a, mark);
  }
  for (int i = 0; i < 64; i++) assert_true(space_allows(f->s, i) ? first[i] > 40 && first[i] < 180 : first[i] == 0);
}

static void do_walks(void *arg) {
  Fix *f = arg;
  Rng r;
  rng_seed(&r, 7);
  assert_int_equal(space_walk(f->s, &r, 0), 0); /* there is one configuration */
  tiles(f);
  int64_t at = 15;
  bool seen[64] = {0};
  for (int i = 0; i < 3000; i++) {
    int64_t to = space_walk(f->s, &r, at);
    assert_true(to != at && space_allows(f->s, to));
    seen[at = to] = true;
  }
  for (int i = 0; i < 64; i++) assert_int_equal(seen[i], space_allows(f->s, i));
}

static bool ends_only(void *self, Err *e, const int32_t *digit) {
  (void)self, (void)e;
  return digit[0] + digit[1] == 0 || (digit[0] == 255 && digit[1] == 255);
}
static bool first_only(void *self, Err *e, const int32_t *digit) {
  (void)self, (void)e;
  return digit[0] + digit[1] == 0;
}
static void do_far_walks(void *arg) { /* random changes will not find the only other configuration */
  Fix *f = arg;
  Rng r;
  rng_seed(&r, 7);
  static double value[256];
  define(f, knob_other(f->s->a, "a", 256, value));
  define(f, knob_other(f->s->a, "b", 256, value));
  space_filter(f->s, (SpaceFilter){first_only, NULL});
  assert_int_equal(space_walk(f->s, &r, 0), 0);
  space_filter(f->s, (SpaceFilter){ends_only, NULL});
  assert_int_equal(space_walk(f->s, &r, 0), 65535);
}

#define RUNS(name)                                                                                                     \
  static void name(void **state) {                                                                                     \
    Fix *f = *state;                                                                                                   \
    if (err_try(&f->err, do_##name, f) != NS_OK) fail_msg("%s", f->err.msg);                                           \
  }
RUNS(splits)
RUNS(orders)
RUNS(words)
RUNS(kept)
RUNS(indices)
RUNS(filters)
RUNS(draws)
RUNS(walks)
RUNS(far_walks)

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {T(splits),  T(orders), T(words), T(kept),      T(what_cannot_be),   T(indices),
                                     T(filters), T(draws),  T(walks), T(far_walks), T(filters_that_fail)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
