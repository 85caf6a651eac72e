/* What a rule leaves open: decided at random, or in every way, one after the other.
 *
 * A rule asks for its decisions in the order in which it needs them. At random each is a draw. For every way the decisions
 * are noted, how many there were of each included; the next way repeats them all but the last, which it takes anew, and
 * what follows from that one begins at its first. So a mutation is written once, and lists what it can do.
 */
#include "search/space.h"
#include <string.h>

int64_t choose(Choice *c, int64_t n) {
  if (c->rng) return rng_below(c->rng, n);
  if (c->at == CHOICE_DEPTH) return 0; /* deeper than any rule goes: the first alone */
  if (c->at == c->n) c->of[c->n++] = n, c->taken[c->at] = 0;
  return c->taken[c->at++];
}

bool choice_next(Choice *c) {
  c->n = c->at; /* a way that ends early asks for less */
  while (c->n > 0 && c->taken[c->n - 1] + 1 >= c->of[c->n - 1]) c->n--;
  if (c->n > 0) c->taken[c->n - 1]++;
  c->at = 0;
  return c->n > 0;
}

bool choose_one_in(Choice *c, int64_t n) { return c->rng ? rng_below(c->rng, n) == 0 : choose(c, 2) == 0; }
bool choose_chance(Choice *c, double p) { return c->rng ? rng_unit(c->rng) < p : choose(c, 2) == 0; }

int choose_weighted(Choice *c, int n, const double *w) {
  if (!c->rng) return (int)choose(c, n);
  double sum = 0;
  for (int i = 0; i < n; i++) sum += w[i];
  double u = rng_unit(c->rng) * sum;
  int i = 0;
  while (i < n - 1 && u >= w[i]) u -= w[i++];
  return i;
}

void choose_order(Choice *c, int n, int *order) {
  for (int i = 0; i < n; i++) order[i] = i;
  if (c->rng) {
    rng_shuffle(c->rng, n, order);
    return;
  }
  for (int i = 0; i < 2 && i < n - 1; i++) {
    int k = i + (int)choose(c, n - i), t = order[i];
    order[i] = order[k], order[k] = t;
  }
}

int choose_tries(const Choice *c, int n) { return c->rng ? n : 1; }
