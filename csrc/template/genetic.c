/* A generation of the genetic tuner: configurations as lists of digits, bred from good ones.
 *
 * A configuration that was measured already would be a wasted trial, so such children are bred again and at last replaced by
 * random configurations. These come from one shuffle of the whole space for all of a generation, so a space that is nearly
 * exhausted costs one pass.
 */
#include "template/optimise.h"

enum { TRIES = 50 };

typedef struct {
  Space *s;
  Rng *r;
  int n_parent;
  const Scored *parent;
  double *upto, sum; /* sums of the weights of the parents so far */
  double mutation;
} Breed;

/* Another one than `other`, in proportion to the weights of the rest. */
static int draw_mate(const Breed *b, int other) {
  if (b->n_parent < 2) return other;
  double before = other ? b->upto[other - 1] : 0, weight = b->upto[other] - before;
  double at = rng_unit(b->r) * (b->sum - weight);
  int mate = rng_piece(b->n_parent, b->upto, at < before ? at : at + weight);
  return mate != other ? mate : other ? other - 1 : 1; /* rounding */
}

static int64_t breed(const Breed *b) {
  int32_t x[SPACE_KNOBS], y[SPACE_KNOBS];
  int k = b->s->knob.len, first = rng_piece(b->n_parent, b->upto, rng_unit(b->r) * b->sum),
      second = draw_mate(b, first);
  space_digits(b->s, b->parent[first].index, x);
  space_digits(b->s, b->parent[second].index, y);
  int64_t cut = k ? rng_below(b->r, k) : 0;
  for (int i = 0; i < k; i++) {
    if (i >= cut) x[i] = y[i];
    if (rng_unit(b->r) < b->mutation) x[i] = (int32_t)rng_below(b->r, b->s->knob.at[i].n);
  }
  return space_index(b->s, x);
}

void genetic_next(Space *s, Arena *a, Rng *r, int n_parent, const Scored *parent, int children, double mutation,
                  MapU64 *visited, IndexVec *out) {
  const double LEAST = 1e-8;
  Breed b = {.s = s, .r = r, .n_parent = n_parent, .parent = parent, .mutation = mutation};
  b.upto = arena_array(a, double, n_parent + 1);
  double best = LEAST;
  for (int i = 0; i < n_parent; i++)
    if (parent[i].score > best) best = parent[i].score;
  for (int i = 0; i < n_parent; i++) b.upto[i] = b.sum += parent[i].score / best + LEAST;
  Draw others;
  draw_init(&others, a, s, 0, s->range);
  for (int n = 0; n < children; n++) {
    int64_t child = -1;
    for (int t = 0; t < TRIES && n_parent && child < 0; t++) {
      int64_t x = breed(&b);
      if (!index_in(visited, x) && space_allows(s, x)) child = x;
    }
    if (child < 0) do
        child = draw_next(&others, r);
      while (child >= 0 && index_in(visited, child));
    if (child < 0) return;
    index_add(visited, child);
    vec_push(a, out, child);
    err_poll(s->err);
  }
}
