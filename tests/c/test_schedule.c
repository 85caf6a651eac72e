/* States, bound inference, records and layout rewrite from C: a tiled GPU matrix product, and broken input. */
#include "fixture.h"
#include "schedule/internal.h"
#include "schedule/schedule.h"

typedef struct {
  Err err;
  IrCtx *c;
  TeDag *d;
} Fix;

static void build(void *arg) {
  Fix *f = arg;
  f->d = product(f->c);
}
SETUP_AND_TEARDOWN(Fix, build)

static void replay_body(void *arg) {
  Fix *f = arg;
  int n;
  Step *steps = steps_parse(ir_arena(f->c), GPU, &n);
  assert_int_equal(n, 30);
  uint64_t first = 0;
  for (int round = 0; round < 3; round++) { /* the same after a release */
    IrMark mark = ir_mark(f->c);
    State *s = state_replay(f->c, f->d, n, steps);
    state_infer_bounds(s);
    uint64_t h = state_hash(s);
    if (!round) first = h;
    assert_true(h == first);
    assert_int_equal(axis_extent(s, 5, 0), 16);
    State *t = state_copy(f->c, s);
    state_infer_bounds(t);
    assert_true(state_hash(t) == first);
    assert_non_null(strstr(state_python(t), "s.cache_write([C], \"local\")"));
    for (int i = 0; i < s->stage.len; i++) { /* every axis has a value in terms of loop variables */
      Stage *st = &s->stage.at[i];
      ExprId *memo = arena_array(ir_arena(f->c), ExprId, st->axes.len);
      for (int k = 0; k < st->leaf.len; k++) memo[st->leaf.at[k]] = ex_var(f->c, st->axes.at[st->leaf.at[k]].var);
      stage_climb(f->c, st, memo, NULL, NULL);
      for (int k = 0; k < st->axes.len; k++) assert_true(memo[k] != 0);
    }
    ExprId **bodies = state_inlined_bodies(s, false, NULL);
    for (int i = 0; i < s->stage.len; i++) assert_null(bodies[i]);
    ir_release(f->c, mark);
  }
}

static void rewrite_body(void *arg) {
  Fix *f = arg;
  for (int option = 0; option <= 2; option++) {
    int n;
    Step *steps = steps_parse(ir_arena(f->c), "[[\"SP\",2,1,128,[16],1],[\"RE\",2,[0,1,3,2]]]", &n);
    TeDag *d = dag_rewrite_layout(f->c, f->d, &n, &steps, option, NULL, NULL);
    assert_int_equal(n, option == 1 ? 4 : 2);
    assert_int_equal(d->n_ops, option == 1 ? 4 : 3);
    State *s = state_replay(f->c, d, n, steps);
    state_infer_bounds(s);
    const IrTensor *b = ir_tensor(f->c, d->tensor[1]);
    assert_int_equal(b->rank, option == 2 ? 3 : 2);
  }
}

/* Hand-written schedules: many primitives on one product; attachments follow their loop, bounds are as expected. */
static void hand_body(void *arg) {
  Fix *f = arg;
  const TeOp *out = te_op_of(f->c, f->d->tensor[2]);
  State *s = hand_new(f->c, 1, &out);
  assert_int_equal(s->stage.len, 3);
  assert_int_equal(hand_stage(s, out), 2);
  ExprId n = ex_var(f->c, ir_var_new(f->c, "n", DT_I32, true));
  hand_split(s, 2, 0, ex_i32(f->c, 5), 0);
  hand_split(s, 2, 3, 0, n); /* k by a symbolic number of parts */
  hand_reorder(s, 2, 3, (int[]){2, 0, 1});
  int local = hand_cache_write(s, 2, "local");
  assert_int_equal(local, 2);
  assert_int_equal(s->stage.at[2].n_root_data, 3); /* the layout of the loops: j, i.outer, i.inner */
  int shared = state_cache_read(s, 0, "shared", 1, (int64_t[]){2});
  assert_int_equal(shared, 1);
  hand_split(s, 4, 1, ex_i32(f->c, 16), 0);
  hand_fuse(s, 4, 0);
  state_compute_at(s, 3, 4, 1);
  state_compute_at(s, 1, 3, 0);
  hand_split(s, 4, 1, ex_i32(f->c, 4), 0); /* the attachment moves to the inner part */
  assert_int_equal(s->stage.at[3].at_iter, 2);
  hand_reorder(s, 4, 2, (int[]){2, 0});
  assert_int_equal(s->stage.at[3].at_iter, 0);
  hand_fuse(s, 4, -1);
  assert_int_equal(s->stage.at[3].at_iter, 1);
  int k = s->stage.at[3].leaf.len - 1;
  hand_split(s, 3, k, ex_i32(f->c, 8), 0);
  hand_storage_align(s, 1, s->stage.at[1].axes.at[0].handle, 32, 8);
  hand_annotate(s, 4, 2, AN_UNROLL);
  State *t = state_copy(f->c, s);
  state_infer_bounds(t);
  assert_int_equal(axis_extent(t, 3, k), 4);
  hand_compute_root(s, 1);
  assert_int_equal(hand_rfactor(s, 3, k, -1), 3);
  assert_int_equal(s->stage.len, 6);
  state_infer_bounds(state_copy(f->c, s));
  assert_non_null(strstr(state_text(s, false), "C.local.rf = ..."));
}

static void test_hand(void **state) { assert_int_equal(err_try(&((Fix *)*state)->err, hand_body, *state), NS_OK); }
static void test_replay(void **state) { assert_int_equal(err_try(&((Fix *)*state)->err, replay_body, *state), NS_OK); }
static void test_rewrite(void **state) {
  assert_int_equal(err_try(&((Fix *)*state)->err, rewrite_body, *state), NS_OK);
}

typedef struct {
  Fix *f;
  const char *text;
} Bad;
static void bad_body(void *arg) {
  Bad *b = arg;
  int n;
  Step *s = steps_parse(ir_arena(b->f->c), b->text, &n);
  state_infer_bounds(state_replay(b->f->c, b->f->d, n, s));
}
static void bad_record(void *arg) {
  Bad *b = arg;
  record_parse(ir_arena(b->f->c), b->text);
}

static void test_broken_input(void **state) {
  static const char *const STEPS[] = {"",
                                      "[",
                                      "{}",
                                      "[[]]",
                                      "[[1]]",
                                      "[[\"AN\"]]",
                                      "[[\"AN\",2,0,1,1]]",
                                      "[[\"AN\",1e99,0,1]]",
                                      "[[\"AN\",-1,0,1]]",
                                      "[[\"AN\",2,-1,1]]",
                                      "[[\"FU\",2,[-1,0]]]",
                                      "[[\"FU\",2,[2,3]]]",
                                      "[[\"SP\",2,0,64,[],1]]",
                                      "[[\"SP\",2,0,64,[2147483648],1]]",
                                      "[[\"RE\",2,[0,1,99]]]",
                                      "[[\"FFSP\",2,0,[-5],0,1]]",
                                      "[[\"FSP\",2,0,0,1]]",
                                      "[[\"CHR\",2,\"local\",[]]]",
                                      "[[\"CHR\",0,\"local\",[-1]]]",
                                      "[[\"CHW\",0,\"local\"]]",
                                      "[[\"RF\",2,2,0]]",
                                      "[[\"SP\",2,2,32,[4],1],[\"RF\",2,3,9]]",
                                      "[[\"PR\",2,0,\"auto_unroll_max_step\"]]",
                                      "[[\"CI\",2]]",
                                      "[[\"CA\",2,0,0]]"};
  Fix *f = *state;
  for (int i = 0; i < NS_COUNT(STEPS); i++) {
    Bad b = {f, STEPS[i]};
    assert_int_equal(err_try(&f->err, bad_body, &b), NS_ERR_VALUE);
    b.text = STEPS[i];
    assert_int_equal(err_try(&f->err, bad_record, &b), NS_ERR_VALUE);
  }
  /* a valid line cut anywhere is no record */
  static const char LINE[] =
      "{\"i\": [[\"[\\\"k\\\"]\", \"llvm\"], [[], [[\"AN\", 2, 0, 1]]]], \"r\": [[1e-5], 0, 0.3, 17], \"v\": \"v0.2\"}";
  char cut[sizeof(LINE)];
  for (size_t n = 0; n < sizeof(LINE) - 1; n++) {
    memcpy(cut, LINE, n);
    cut[n] = 0;
    Bad b = {f, cut};
    assert_int_equal(err_try(&f->err, bad_record, &b), NS_ERR_VALUE);
  }
  Bad b = {f, LINE};
  assert_int_equal(err_try(&f->err, bad_record, &b), NS_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_replay, setup, teardown),
                                     cmocka_unit_test_setup_teardown(test_rewrite, setup, teardown),
                                     cmocka_unit_test_setup_teardown(test_hand, setup, teardown),
                                     cmocka_unit_test_setup_teardown(test_broken_input, setup, teardown)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
