/* template: the choices of a hand-written schedule, as numbers. It knows nothing of schedules. Spec 06 §1.6 to §1.9.
 *
 * A template names knobs, and each knob has a list of entities: the sizes of a split, an order of loops, words for loops, a
 * plain value. A configuration takes one entity of each knob. The space numbers the configurations: a mixed-radix number
 * whose digits are the entities, the first knob's digit changes fastest. Tuners walk over indices and digits; what an entity
 * says is made from its number when somebody looks, and nothing is ever listed that can be computed.
 *
 *   knob.c     the entities of each kind of knob, in the order of the reference
 *   space.c    index and digits, the filter over combinations, random walks, draws without repetition
 *
 * A space is used by one thread at a time (reading digits of an index is free for all). What cannot be done is raised on
 * its Err: callers protect it, and take the same one for what they do beside it.
 */
#ifndef NS_TEMPLATE_SPACE_H
#define NS_TEMPLATE_SPACE_H
#include "base/base.h"

/* ---- knobs (knob.c) ---- */
typedef enum { KNOB_SPLIT, KNOB_REORDER, KNOB_ANNOTATE, KNOB_ANCHOR, KNOB_OTHER, KNOB_KINDS } KnobKind;
/* Words for loops, in the order in which features count them. */
typedef enum {
  ANN_NONE, ANN_VEC, ANN_UNROLL, ANN_BLOCK_X, ANN_BLOCK_Y, ANN_BLOCK_Z, ANN_THREAD_X, ANN_THREAD_Y, ANN_THREAD_Z, ANN_VTHREAD,
  ANN_FUSE, ANN_WORDS
} AnnWord;
extern const char *const ANN_NAME[ANN_WORDS];
int ann_find(const char *name); /* -1: no such word */

enum { KNOB_WIDTH = 64 };
typedef struct {
  const char *name;
  KnobKind kind;
  int32_t width; /* numbers of an entity: sizes, positions, words, anchors; a plain value has one, its place in the list;
                    at most KNOB_WIDTH */
  int32_t n;     /* entities: its digit is 0 .. n - 1 */
  const double *value; /* KNOB_OTHER: its values as features see them */
  /* how entities are made; use knob_entity */
  const int64_t *table;  /* n * width numbers; NULL: a permutation of [begin, end), or words */
  int32_t begin, end, n_word;
  const uint8_t *word;   /* the words that a loop may have, in order */
  const int32_t *kept;   /* what a filter has left, as numbers of entities before; NULL: all */
} Knob;
typedef enum { SPLIT_FACTORS, SPLIT_POWER2, SPLIT_VERBOSE } SplitPolicy;
typedef struct {
  int64_t length;     /* of the axis */
  int32_t outputs;    /* at least 2 */
  SplitPolicy policy;
  int64_t max_factor; /* of the inner sizes */
  bool tails;         /* inner sizes need not divide the length */
  int32_t n_order;    /* SPLIT_VERBOSE: the factors in another order than ascending; 0: no */
  const int64_t *order;
} SplitDef;
/* All are made in a and raise NS_ERR_VALUE on its Err: too many entities, sizes that cannot be. What they get is copied. */
Knob knob_split(Arena *a, const char *name, const SplitDef *d);
Knob knob_permute(Arena *a, const char *name, int width, int begin, int end);  /* [begin, end) in all orders, the rest stays */
Knob knob_words(Arena *a, const char *name, int width, int n_word, const uint8_t *word); /* at most one ANN_VEC in all */
Knob knob_anchors(Arena *a, const char *name, int width, int n);               /* n of width positions, ascending */
Knob knob_table(Arena *a, const char *name, KnobKind k, int width, int64_t n, const int64_t *at);
Knob knob_other(Arena *a, const char *name, int64_t n, const double *value);
void knob_keep(Arena *a, Knob *k, const bool *keep);                        /* keep: k->n answers */
void knob_entity(const Knob *k, int32_t digit, int64_t *out);               /* k->width numbers */
/* What models see of an entity: sizes, positions, a one-hot of ANN_WORDS for each word, the value. */
int knob_features(const Knob *k);                                           /* how many numbers that are */
void knob_feature(const Knob *k, int32_t digit, float *out);

/* ---- spaces (space.c) ---- */
enum { SPACE_KNOBS = 128 }; /* at most: room for the digits of any space */
/* Is a combination allowed? It may raise on e, the space's. */
typedef struct { bool (*allows)(void *self, Err *e, const int32_t *digit); void *self; } SpaceFilter;
typedef struct {
  Err *err;
  Arena *a;
  VEC(Knob) knob;
  MapStr at;      /* of knobs, by name */
  int64_t range;  /* indices: the product of all n; 1 without knobs */
  SpaceFilter filter;
  Arena *answers; /* of the filter */
  MapU64 page_at;
  VEC(struct Page) page;
} Space;

Space *space_new(Err *e); /* raises NS_ERR_MEMORY; e lives as long as the space */
void space_free(Space *s);
/* Adds a knob, or puts it in the place of the one with its name; its number. Raises if the space is beyond 2^63. */
int space_define(Space *s, const Knob *k);
void space_digits(const Space *s, int64_t index, int32_t *out);
int64_t space_index(const Space *s, const int32_t *digit);
int space_features(const Space *s);
void space_feature(const Space *s, int64_t index, float *out);

/* The filter is asked when somebody wants to know, once for each index (answers are kept in so far as memory is small). */
void space_filter(Space *s, SpaceFilter f); /* allows NULL: none */
bool space_allows(Space *s, int64_t index);
int64_t space_count(Space *s, int64_t begin, int64_t end); /* allowed ones; asks for each if there is a filter */
/* The n-th allowed index after `index`, or before it for n < 0; -1: it is not within [begin, end). */
int64_t space_next(Space *s, int64_t index, int64_t n, int64_t begin, int64_t end);
/* Some digits changed at random, until the index is another one and allowed; the same index if there is no other. */
int64_t space_walk(Space *s, Rng *r, int64_t index);

/* Allowed indices in random order, each once: a shuffle that remembers the swapped positions only. */
typedef struct { Space *s; int64_t begin, left; Arena *a; MapU64 at; VEC(int64_t) moved; } Draw;
void draw_init(Draw *d, Arena *a, Space *s, int64_t begin, int64_t end);
int64_t draw_next(Draw *d, Rng *r); /* -1: there are no more */
#endif
