/* Gradients of the network, in double precision, against central differences of the rank loss. */
#define MLP_DOUBLE
#include "model/product.c"
#include "model/mlp.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { STATES = 24, TASKS = 2, ENTRIES = 9, HIDDEN = 7 };

/* The loss whose gradient loss_gradient gives, over all pairs. */
static double loss_value(const FeatBatch *b, LossKind kind, const double *y, const Real *s) {
  double total = 0;
  for (int t = 0; t < TASKS; t++) {
    double sum = 0, weights = 0;
    int m = 0;
    for (int i = 0; i < b->n_states; i++) m += b->task[i] == t;
    for (int i = 0; i < b->n_states; i++)
      for (int j = 0; j < b->n_states; j++) {
        if (b->task[i] != t || b->task[j] != t || y[i] <= y[j]) continue;
        double w = (y[i] - y[j]) * (kind == LOSS_TOP_WEIGHTED ? y[i] : 1);
        weights += w, sum += w * log1p(exp(s[j] - s[i]));
      }
    total += sum * m / weights;
  }
  return total / b->n_states;
}

typedef struct {
  Arena *a;
  FeatBatch b;
  LossKind kind;
  double worst;
} Check;

static void compare(void *arg) {
  Check *c = arg;
  Arena *a = c->a;
  MlpParams p = mlp_params_default(false);
  p.hidden = HIDDEN, p.steps = 0, p.loss = c->kind;
  Mlp *m = mlp_train(a, &c->b, &p, 3, NULL);
  Rng move;
  rng_seed(&move, 9);
  for (int i = 0; i < m->n_param; i++) m->param[i] += 0.1 * (rng_unit(&move) - 0.5); /* away from the corners of relu */
  RankLoss *loss = loss_new(a, &c->b, c->kind);
  Work k = {.n_rows = c->b.first[STATES], .n_states = STATES, .first = c->b.first};
  lay_out(m, &k, arena_array(a, Real, lay_out(m, &k, NULL, true)), true);
  standardise(m, &c->b, 0, k.n_rows, k.x);
  Real *grad = arena_array(a, Real, m->n_param);
  double g[STATES], h[STATES];
  Rng rng;
  rng_seed(&rng, 1);
  forward(m, &k);
  loss_gradient(loss, k.s, &rng, g, h);
  for (int i = 0; i < STATES; i++) g[i] /= STATES;
  backward(m, &k, g, grad);
  for (int i = 0; i < m->n_param; i++) {
    double keep = m->param[i], eps = 1e-6, up, down;
    m->param[i] = keep + eps;
    forward(m, &k);
    up = loss_value(&c->b, c->kind, loss_labels(loss), k.s);
    m->param[i] = keep - eps;
    forward(m, &k);
    down = loss_value(&c->b, c->kind, loss_labels(loss), k.s);
    m->param[i] = keep;
    double want = (up - down) / (2 * eps), off = fabs(want - grad[i]) / fmax(1e-4, fabs(want));
    if (off > c->worst) c->worst = off;
  }
}

static void gradients_match(void **state) {
  (void)state;
  Err e;
  err_init(&e);
  for (int kind = 0; kind < 2; kind++) {
    static float rows[STATES * 4 * ENTRIES];
    static int32_t first[STATES + 1], task[STATES];
    static double cost[STATES];
    Rng r;
    rng_seed(&r, 5);
    for (int i = 0; i < STATES; i++) {
      first[i + 1] = first[i] + 1 + (int32_t)rng_below(&r, 4);
      task[i] = i % TASKS, cost[i] = 1e-3 * (1 + rng_unit(&r));
    }
    for (int i = 0; i < first[STATES] * ENTRIES; i++) rows[i] = (float)(4 * rng_unit(&r));
    Check c = {.a = arena_new(&e),
               .kind = kind ? LOSS_PAIRWISE : LOSS_TOP_WEIGHTED,
               .b = {.n_states = STATES, .n_feat = ENTRIES, .first = first, .rows = rows, .task = task, .cost = cost}};
    assert_int_equal(err_try(&e, compare, &c), NS_OK);
    assert_true(c.worst < 1e-3);
    arena_free(c.a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_match)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
