/* Compiled programs of this process, in front of the cache on disk: a candidate that comes up twice, and the final build
 * after tuning, cost no file and no compiler, also where there is no disk cache. The key is the source with the target
 * and, of programs in C, the compiler: $CC may change, flags and processor are the same for a whole process. A table
 * of chains and a list in order of use; what was not used for the longest time goes when the limit is reached. */
#include "compile/internal.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096, OVERHEAD = 128 };
typedef struct Kept {
  struct Kept *chain, *newer, *older;
  char key[33];
  void *data;
  size_t n;
} Kept;
struct BuildCache {
  pthread_mutex_t lock;
  Kept *bucket[BUCKETS], *newest, *oldest;
  size_t bytes, limit;
};

BuildCache *build_cache_new(size_t limit) {
  BuildCache *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  pthread_mutex_init(&c->lock, NULL);
  c->limit = limit;
  return c;
}

/* A fork waits until the table is whole: the child goes on with its copy. */
static void enter(BuildCache *c) {
  fork_hold();
  pthread_mutex_lock(&c->lock);
}

static void leave(BuildCache *c) {
  pthread_mutex_unlock(&c->lock);
  fork_release();
}

static Kept **place(BuildCache *c, const char *key) {
  Kept **at = &c->bucket[hash_str(key) % BUCKETS];
  while (*at && strcmp((*at)->key, key) != 0) at = &(*at)->chain;
  return at;
}

static void unlink_use(BuildCache *c, Kept *k) {
  *(k->newer ? &k->newer->older : &c->newest) = k->older;
  *(k->older ? &k->older->newer : &c->oldest) = k->newer;
}

static void use(BuildCache *c, Kept *k) {
  k->newer = NULL;
  k->older = c->newest;
  *(c->newest ? &c->newest->newer : &c->oldest) = k;
  c->newest = k;
}

static void drop(BuildCache *c, Kept *k) {
  *place(c, k->key) = k->chain;
  unlink_use(c, k);
  c->bytes -= k->n + OVERHEAD;
  free(k->data);
  free(k);
}

void build_cache_free(BuildCache *c) {
  if (!c) return;
  while (c->oldest) drop(c, c->oldest);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

static void key_of(Arena *a, const Target *t, const char *source, const BuildOptions *o, char hex[33]) {
  StrBuf b;
  sb_init(&b, a);
  sb_printf(&b, "%d %d %d %s %s\n", (int)t->kind, t->gpu.sm, t->fast_math, t->cpu,
            t->kind == TG_CPU ? cc_version(a, o) : "");
  sb_puts(&b, source);
  md5_hex(b.at, b.len, hex);
}

static bool wanted(const BuildOptions *o) { return o && o->memory && !(o->cache_dir && !*o->cache_dir); }

typedef struct {
  Arena *a;
  const Kept *k;
  void *data;
} Copy;
static void copy_out(void *arg) {
  Copy *x = arg;
  char *d = arena_alloc(x->a, x->k->n + 1);
  memcpy(d, x->k->data, x->k->n);
  d[x->k->n] = 0;
  x->data = d;
}

bool build_recall(Arena *a, const Target *t, const char *source, const BuildOptions *o, Binary *out) {
  char key[33];
  if (!wanted(o)) return false;
  key_of(a, t, source, o, key);
  BuildCache *c = o->memory;
  enter(c);
  Kept *k = *place(c, key);
  Copy x = {a, k, NULL};
  if (k && err_try(arena_err(a), copy_out, &x) == NS_OK) { /* nothing may jump out of the lock */
    unlink_use(c, k);
    use(c, k);
    *out = (Binary){.data = x.data, .n = k->n, .cached = true};
  }
  leave(c);
  return x.data != NULL;
}

void build_remember(Arena *a, const Target *t, const char *source, const BuildOptions *o, const Binary *b) {
  char key[33];
  if (!wanted(o) || b->n + OVERHEAD > o->memory->limit) return;
  key_of(a, t, source, o, key);
  BuildCache *c = o->memory;
  Kept *k = calloc(1, sizeof *k);
  void *data = malloc(b->n + 1);
  if (!k || !data) {
    free(k);
    free(data);
    return;
  }
  memcpy(data, b->data, b->n);
  *k = (Kept){.data = data, .n = b->n};
  memcpy(k->key, key, sizeof key);
  enter(c);
  Kept *old = *place(c, key);
  if (old) drop(c, old);
  while (c->oldest && c->bytes + k->n + OVERHEAD > c->limit) drop(c, c->oldest);
  k->chain = c->bucket[hash_str(key) % BUCKETS];
  c->bucket[hash_str(key) % BUCKETS] = k;
  use(c, k);
  c->bytes += k->n + OVERHEAD;
  leave(c);
}
