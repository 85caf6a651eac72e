/* optimise: how tuners choose among the configurations of a space. Spec 06 §2.3, §2.7, §2.8.
 *
 *   genetic.c   the next generation of the genetic tuner
 *   anneal.c    the configurations that a model likes best, by simulated annealing; a choice of different ones among them
 *
 * What a model says is asked for many indices at once. All raise on the space's Err.
 */
#ifndef NS_TEMPLATE_OPTIMISE_H
#define NS_TEMPLATE_OPTIMISE_H
#include "template/space.h"

typedef VEC(int64_t) IndexVec;

typedef struct {
  int64_t index;
  double score;
} Scored;
/* A set of indices: the visited ones of a tuner. */
static inline bool index_in(const MapU64 *set, int64_t index) { return mapu_get(set, (uint64_t)index, 0) != 0; }
static inline void index_add(MapU64 *set, int64_t index) { mapu_set(set, (uint64_t)index, 1); }

/* ---- genetic.c ---- */
/* Children of parents that are drawn in proportion to their scores (at least 0): the first digits of one, the rest of the
 * other, each digit replaced with some probability. No child is in visited, to which all are added; a random configuration
 * stands for one that cannot be bred. Fewer than `children` if the space has no more. */
void genetic_next(Space *s, Arena *a, Rng *r, int n_parent, const Scored *parent, int children, double mutation,
                  MapU64 *visited, IndexVec *out);

/* ---- anneal.c ---- */
typedef struct {
  void (*predict)(void *self, Err *e, int n, const int64_t *index, double *score); /* may raise on e */
  void *self;
} Predictor;
typedef struct {
  int32_t rounds;     /* at most */
  int32_t early_stop; /* after so many rounds in which nothing better was found */
  double begin, end;  /* temperature */
} AnnealParams;
/* Walks n points, which it moves, and keeps the `most` best of all that they pass and that are not in exclude: best first in
 * out; how many. */
int anneal(Space *s, Arena *a, Rng *r, const AnnealParams *p, Predictor f, int n, int64_t *point, int most,
           const MapU64 *exclude, Scored *out);
/* Of n candidates those that together show the most digits: each adds its score and its digits that no chosen one has, the
 * first of equal ones. Places of the chosen in `candidate`; how many, at most `most`. */
int pick_diverse(const Space *s, Arena *a, int n, const Scored *candidate, int most, int32_t *out);
#endif
