/* Spaces: indices and digits, what a filter over combinations allows, random walks and draws.
 *
 * A filter is the user's function and slow, and a space may have 10^8 indices. So it is asked for the indices that come up,
 * and its answers are kept as pairs of bits, in pages of 64 indices that exist where somebody looked. Only who wants to know
 * how many indices are allowed pays for all of them.
 */
#include "template/space.h"
#include <stdlib.h>

typedef struct Page {
  uint64_t known, allowed;
} Page;
enum { PAGES = 1 << 21 }; /* 32 MiB; then all is forgotten */

static void forget(Space *s) {
  arena_free(s->answers);
  s->answers = NULL;
  mapu_init(&s->page_at, NULL);
  s->page.at = NULL, s->page.len = s->page.cap = 0;
}

static void make(void *arg) {
  Space *s = arg;
  s->a = arena_new(s->err);
  maps_init(&s->at, s->a);
}
static void unmake(void *arg) { space_free(arg); }
Space *space_new(Err *e) {
  Space *s = mem_alloc(e, sizeof *s);
  s->err = e;
  s->range = 1;
  err_guard(e, make, unmake, s);
  return s;
}
void space_free(Space *s) {
  if (!s) return;
  arena_free(s->answers);
  arena_free(s->a);
  free(s);
}

int space_define(Space *s, const Knob *k) {
  int at = maps_get(&s->at, k->name, -1);
  int64_t range = k->n;
  for (int i = 0; i < s->knob.len; i++)
    err_check(s->err, i == at || i64_mul(range, s->knob.at[i].n, &range),
              "knob '%s': with its %d choices the space has more than 2^63 configurations", k->name, (int)k->n);
  err_check(s->err, at >= 0 || s->knob.len < SPACE_KNOBS, "knob '%s': a space has at most %d knobs", k->name,
            SPACE_KNOBS);
  if (at < 0) { /* room first: where memory ends, nothing has changed */
    at = s->knob.len;
    vec_grow(s->a, (void **)&s->knob.at, &s->knob.cap, at + 1, sizeof *s->knob.at);
    maps_set(&s->at, k->name, at);
    s->knob.len++;
  }
  s->knob.at[at] = *k;
  s->range = range;
  forget(s);
  return at;
}

void space_digits(const Space *s, int64_t index, int32_t *out) {
  for (int i = 0; i < s->knob.len; i++) {
    out[i] = (int32_t)(index % s->knob.at[i].n);
    index /= s->knob.at[i].n;
  }
}
int64_t space_index(const Space *s, const int32_t *digit) {
  int64_t index = 0;
  for (int i = s->knob.len - 1; i >= 0; i--) index = index * s->knob.at[i].n + digit[i];
  return index;
}

int space_features(const Space *s) {
  int n = 0;
  for (int i = 0; i < s->knob.len; i++) n += knob_features(&s->knob.at[i]);
  return n;
}
void space_feature(const Space *s, int64_t index, float *out) {
  for (int i = 0; i < s->knob.len; i++) {
    const Knob *k = &s->knob.at[i];
    knob_feature(k, (int32_t)(index % k->n), out);
    index /= k->n;
    out += knob_features(k);
  }
}

/* ---- the filter ---- */
void space_filter(Space *s, SpaceFilter f) {
  s->filter = f;
  forget(s);
}

/* Room for the answer about an index; the bit of it. */
static Page *page_of(Space *s, int64_t index) {
  uint64_t key = (uint64_t)index / 64;
  if (s->page.len == PAGES) forget(s);
  if (!s->answers) {
    s->answers = arena_new(s->err);
    mapu_init(&s->page_at, s->answers);
  }
  int32_t at = mapu_get(&s->page_at, key, -1);
  if (at < 0) {
    vec_note(s->answers, &s->page, (Page){0}, &s->page_at, key);
    at = s->page.len - 1;
  }
  return &s->page.at[at];
}

bool space_allows(Space *s, int64_t index) {
  if (index < 0 || index >= s->range) return false;
  if (!s->filter.allows) return true;
  uint64_t bit = (uint64_t)1 << (index % 64);
  const Page *p = page_of(s, index);
  if (p->known & bit) return p->allowed & bit;
  int32_t digit[SPACE_KNOBS];
  space_digits(s, index, digit);
  bool yes = s->filter.allows(s->filter.self, s->err, digit);
  Page *to = page_of(s, index); /* the filter may have asked for others */
  to->known |= bit;
  if (yes) to->allowed |= bit;
  return yes;
}

int64_t space_count(Space *s, int64_t begin, int64_t end) {
  if (!s->filter.allows) return end > begin ? end - begin : 0;
  int64_t n = 0;
  for (int64_t i = begin; i < end; i++) {
    err_poll(s->err);
    n += space_allows(s, i);
  }
  return n;
}

int64_t space_next(Space *s, int64_t index, int64_t n, int64_t begin, int64_t end) {
  int64_t step = n < 0 ? -1 : 1, left = n;
  if (!s->filter.allows) {
    if (!i64_add(index, n, &index)) return -1;
    return index >= begin && index < end ? index : -1;
  }
  while (left != 0) {
    err_poll(s->err);
    index += step;
    if (index < begin || index >= end) return -1;
    if (space_allows(s, index)) left -= step;
  }
  return index;
}

/* ---- random indices ---- */
void draw_init(Draw *d, Arena *a, Space *s, int64_t begin, int64_t end) {
  *d = (Draw){.s = s, .begin = begin, .left = end > begin ? end - begin : 0, .a = a};
  mapu_init(&d->at, a);
}

/* What stands at position i of the shuffled range: i, unless something was moved there. */
static int64_t draw_at(const Draw *d, int64_t i) {
  int32_t at = mapu_get(&d->at, (uint64_t)i, -1);
  return at < 0 ? i : d->moved.at[at];
}
int64_t draw_next(Draw *d, Rng *r) {
  while (d->left > 0) {
    err_poll(d->s->err);
    int64_t i = rng_below(r, d->left), index = draw_at(d, i), last = draw_at(d, --d->left);
    if (i != d->left) { /* the last one takes the place of the one that is drawn */
      int32_t at = mapu_get(&d->at, (uint64_t)i, -1);
      if (at < 0)
        vec_note(d->a, &d->moved, last, &d->at, i);
      else
        d->moved.at[at] = last;
    }
    if (space_allows(d->s, d->begin + index)) return d->begin + index;
  }
  return -1;
}

typedef struct {
  Space *s;
  Rng *r;
  int64_t from, to;
  Arena *a;
} Walk;
/* Rounds of changed digits find nothing: any other index that is allowed. */
static void walk_far(void *arg) {
  Walk *w = arg;
  Draw d;
  draw_init(&d, w->a, w->s, 0, w->s->range);
  do w->to = draw_next(&d, w->r);
  while (w->to == w->from);
}
static void walk_end(void *arg) { arena_free(((Walk *)arg)->a); }

int64_t space_walk(Space *s, Rng *r, int64_t index) {
  enum { ROUNDS = 1000 };
  int64_t to = index;
  for (int round = 0; round < ROUNDS && s->range > 1; round++) {
    /* the digit of one knob, taken out of the index and put back changed */
    int at = (int)rng_below(r, s->knob.len);
    int64_t place = 1, n = s->knob.at[at].n;
    for (int i = 0; i < at; i++) place *= s->knob.at[i].n;
    to += (rng_below(r, n) - to / place % n) * place;
    if (to != index && space_allows(s, to)) return to;
  }
  if (s->range == 1) return index;
  Walk w = {.s = s, .r = r, .from = index, .to = -1, .a = arena_new(s->err)};
  err_guard(s->err, walk_far, walk_end, &w);
  walk_end(&w);
  return w.to < 0 ? index : w.to;
}
