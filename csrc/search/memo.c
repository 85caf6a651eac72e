/* What is met of step lists that were met before. Evolution proposes the same lists again and again, in one round and in
 * later ones; their hash and their estimate never change, and neither do their traits. So nothing of it is made twice as
 * long as it is remembered, and whatever is forgotten changes no result.
 *
 * Two generations of each of two tables, what is small and the traits: when a young one is full, at the beginning of a call, it
 * becomes the old one, and the old one is forgotten. Workers ask and add at the same time. Two thirds of the entries of a
 * row are zero and take a bit each.
 */
#include "search/policy.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL = 16 << 20, ENTRY = 256, ROW_WORDS = (FEAT_N + 63) / 64 }; /* ENTRY: bytes of traits for each list */

typedef struct {
  uint64_t hash;
  double estimate;
  unsigned have;
} Small;
typedef struct {
  uint64_t some[ROW_WORDS]; /* a bit for each entry that is not 0 */
  const float *entry;       /* those */
} Row;
typedef struct {
  int32_t n;
  const Row *row;
  const float *state;
} Packed;
typedef struct {
  Arena *a;
  MapU64 at;
  VEC(Small) small;
  VEC(Packed) packed;
} Generation;
struct Memo {
  Err err;
  pthread_mutex_t lock;
  size_t most;                    /* bytes of a generation of traits */
  Generation small[2], traits[2]; /* young, old */
};

uint64_t steps_hash(int n, const Step *s) {
  uint64_t h = (uint64_t)n;
#define MIX(v) (h = (h ^ (h >> 29) ^ (uint64_t)(v)) * 0xbf58476d1ce4e5b9u + 1)
  for (int i = 0; i < n; i++) {
    MIX((uint64_t)s[i].kind << 40 | (uint64_t)s[i].flag << 32 | (uint32_t)s[i].stage);
    MIX((uint64_t)(uint32_t)s[i].iter << 32 | (uint32_t)s[i].a);
    MIX(s[i].b);
    MIX(s[i].extent);
    MIX(s[i].n);
    for (int k = 0; k < s[i].n; k++) MIX(s[i].list[k]);
    for (const char *t = s[i].text; t && *t; t++) MIX(*t);
  }
#undef MIX
  return h ^ h >> 32;
}

Memo *memo_new(void) {
  Memo *m = calloc(1, sizeof *m);
  if (!m) return NULL;
  err_init(&m->err);
  m->most = USUAL;
  pthread_mutex_init(&m->lock, NULL);
  return m;
}
void memo_free(Memo *m) {
  if (!m) return;
  for (int i = 0; i < 2; i++) arena_free(m->small[i].a), arena_free(m->traits[i].a);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

void memo_limit(Memo *m, size_t bytes) { m->most = bytes / 2; }

static void age(Generation *g, bool full) {
  if (!full) return;
  arena_free(g[1].a);
  g[1] = g[0];
  g[0] = (Generation){0};
}
void memo_age(Memo *m) {
  const Generation *t = &m->traits[0];
  age(m->small, (size_t)m->small[0].small.len >= m->most / ENTRY / 2);
  age(m->traits, t->a && arena_bytes(t->a) >= m->most / 2); /* one call may double it */
}

/* ---- rows ---- */

static Packed pack(Arena *a, const Traits *t) {
  Row *row = arena_array(a, Row, t->f.n_rows);
  for (int r = 0; r < t->f.n_rows; r++) {
    const float *from = t->f.row[r];
    float some[FEAT_N];
    int n = 0;
    for (int i = 0; i < FEAT_N; i++)
      if (from[i] != 0) row[r].some[i / 64] |= 1ull << i % 64, some[n++] = from[i];
    row[r].entry = arena_copy(a, some, sizeof *some * (size_t)n);
  }
  return (Packed){t->f.n_rows, row, arena_copy(a, t->state, sizeof t->state)};
}

static Traits *unpack(Arena *a, const Packed *p) {
  Traits *t = arena_new_of(a, Traits);
  t->f.n_rows = p->n;
  t->f.row = arena_alloc(a, sizeof *t->f.row * (size_t)p->n);
  for (int r = 0; r < p->n; r++) {
    const float *from = p->row[r].entry;
    for (int w = 0; w < ROW_WORDS; w++)
      for (uint64_t bits = p->row[r].some[w]; bits; bits &= bits - 1)
        t->f.row[r][64 * w + __builtin_ctzll(bits)] = *from++;
  }
  memcpy(t->state, p->state, sizeof t->state);
  return t;
}

/* ---- asking and adding ---- */

static int find(const Generation *g, uint64_t steps) { return g->a ? mapu_get(&g->at, steps, -1) : -1; }

bool memo_get(Memo *m, uint64_t steps, Arena *a, Met *out) {
  Packed p = {0};
  bool known = false;
  *out = (Met){0};
  pthread_mutex_lock(&m->lock);
  for (int i = 0, k; i < 2 && !known; i++)
    if ((k = find(&m->small[i], steps)) >= 0) {
      const Small *s = &m->small[i].small.at[k];
      *out = (Met){.hash = s->hash, .estimate = s->estimate, .have = s->have};
      known = true;
    }
  for (int i = 0, k; a && i < 2 && known && !p.row; i++)
    if ((k = find(&m->traits[i], steps)) >= 0) p = m->traits[i].packed.at[k];
  pthread_mutex_unlock(&m->lock);
  if (p.row) out->traits = unpack(a, &p);
  return known;
}

typedef struct {
  Memo *m;
  uint64_t steps;
  const Met *k;
} Put;
static void open_young(Memo *m, Generation *g) {
  if (g->a) return;
  g->a = arena_new(&m->err);
  mapu_init(&g->at, g->a);
}
static void put(void *arg) {
  Put *x = arg;
  const Met *k = x->k;
  Generation *g = &x->m->small[0], *t = &x->m->traits[0];
  open_young(x->m, g);
  int at = find(g, x->steps);
  if (at < 0) {
    vec_note(g->a, &g->small, (Small){0}, &g->at, x->steps);
    at = g->small.len - 1;
  }
  Small *s = &g->small.at[at];
  s->hash = k->hash, s->have |= k->have;
  if (k->have & MET_ESTIMATE) s->estimate = k->estimate;
  if (!k->traits) return;
  open_young(x->m, t);
  if (find(t, x->steps) >= 0 || arena_bytes(t->a) >= x->m->most) return;
  Packed p = pack(t->a, k->traits);
  vec_note(t->a, &t->packed, p, &t->at, x->steps);
}
void memo_put(Memo *m, uint64_t steps, const Met *k) {
  Put x = {m, steps, k};
  pthread_mutex_lock(&m->lock);
  err_try(&m->err, put, &x); /* without memory nothing is remembered */
  pthread_mutex_unlock(&m->lock);
}
