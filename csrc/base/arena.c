/* Arenas: a chain of blocks, newest first, each twice as large as the one before (64 KiB to 8 MiB). Allocation moves a
 * cursor in the newest block; releasing to a mark drops the blocks made after it and moves the cursor back. One dropped
 * block is kept as a spare, so that a loop of mark/work/release does not go to the system every time.
 *
 * Under AddressSanitizer every allocation is followed by a gap, and what was released may not be touched: an arena would
 * hide both kinds of error otherwise. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define ARENA_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN
#endif
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define HIDE(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define SHOW(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
enum { GAP = 16 };
#else
#define HIDE(p, n) ((void)0)
#define SHOW(p, n) ((void)0)
enum { GAP = 0 };
#endif

enum { FIRST_BLOCK = 64 << 10, MAX_BLOCK = 8 << 20, ALIGN = 16 };

typedef struct Block {
  struct Block *prev;
  size_t cap;  /* bytes after the header */
  size_t used; /* of the blocks below the newest: where the cursor stood when they were left */
  size_t pad;
} Block;

struct Arena {
  Err *err;
  Block *top, *spare;
  size_t used;  /* in top */
  size_t below; /* bytes used in all blocks below top */
  size_t next_cap;
  size_t limit; /* of arena_bytes; 0: none */
  const char *why;
};

static char *block_data(Block *b) { return (char *)(b + 1); }

static void mem_count(Err *e) {
  if (e->fail_after > 0 && --e->fail_after == 0) err_raise(e, NS_ERR_MEMORY, "out of memory (injected)");
}

void *mem_alloc(Err *e, size_t n) {
  mem_count(e);
  void *p = calloc(1, n ? n : 1);
  if (!p) err_raise(e, NS_ERR_MEMORY, "out of memory: cannot allocate %zu bytes", n);
  return p;
}

void *mem_realloc(Err *e, void *p, size_t n) {
  mem_count(e);
  void *q = realloc(p, n ? n : 1);
  if (!q) err_raise(e, NS_ERR_MEMORY, "out of memory: cannot allocate %zu bytes", n);
  return q;
}

Arena *arena_new(Err *e) {
  Arena *a = mem_alloc(e, sizeof *a);
  a->err = e;
  a->next_cap = FIRST_BLOCK;
  return a;
}

void arena_free(Arena *a) {
  if (!a) return;
  for (Block *b = a->top, *prev; b; b = prev) {
    prev = b->prev;
    free(b);
  }
  free(a->spare);
  free(a);
}

void arena_limit(Arena *a, size_t more, const char *why) {
  a->limit = a->below + a->used + more;
  a->why = why;
}

void arena_check(Arena *a, size_t more) {
  size_t have = a->below + a->used;
  if (a->limit && (have > a->limit || more > a->limit - have)) err_raise(a->err, NS_ERR_VALUE, "%s", a->why);
}

static void arena_grow(Arena *a, size_t n) {
  arena_check(a, n);
  Block *b = a->spare;
  if (b && b->cap >= n) {
    a->spare = NULL;
  } else {
    size_t cap = a->next_cap;
    while (cap < n) {
      if (cap > SIZE_MAX / 4) err_raise(a->err, NS_ERR_MEMORY, "out of memory: cannot allocate %zu bytes", n);
      cap *= 2;
    }
    b = malloc(sizeof *b + cap);
    if (!b) err_raise(a->err, NS_ERR_MEMORY, "out of memory: cannot allocate %zu bytes", cap);
    b->cap = cap;
    HIDE(block_data(b), cap);
    if (a->next_cap < MAX_BLOCK) a->next_cap *= 2;
  }
  if (a->top) {
    a->top->used = a->used;
    a->below += a->used;
  }
  b->prev = a->top;
  a->top = b;
  a->used = 0;
}

static void *arena_take(Arena *a, size_t n) { /* not zeroed */
  mem_count(a->err);
  if (n > SIZE_MAX / 8) err_raise(a->err, NS_ERR_MEMORY, "out of memory: cannot allocate %zu bytes", n);
  size_t size = ((n + ALIGN - 1) & ~(size_t)(ALIGN - 1)) + GAP;
  if (!a->top || a->top->cap - a->used < size) arena_grow(a, size ? size : ALIGN);
  void *p = block_data(a->top) + a->used;
  a->used += size;
  SHOW(p, n);
  return p;
}

void *arena_alloc(Arena *a, size_t n) {
  char *p = arena_take(a, n);
#ifndef ARENA_ASAN
  if (n - 1 < 4 * ALIGN) { /* most are small, and what is taken ends at a multiple of ALIGN */
    memset(p, 0, ALIGN);
    if (n > ALIGN) memset(p + ALIGN, 0, ALIGN);
    if (n > 2 * ALIGN) memset(p + 2 * ALIGN, 0, ALIGN);
    if (n > 3 * ALIGN) memset(p + 3 * ALIGN, 0, ALIGN);
    return p;
  }
#endif
  memset(p, 0, n);
  return p;
}

void *arena_copy(Arena *a, const void *src, size_t n) {
  void *p = arena_take(a, n);
  if (n) memcpy(p, src, n);
  return p;
}

char *arena_strdup(Arena *a, const char *s) { return arena_copy(a, s, strlen(s) + 1); }

char *arena_strndup(Arena *a, const char *s, size_t n) {
  char *p = arena_alloc(a, n + 1);
  if (n) memcpy(p, s, n);
  return p;
}

char *arena_printf(Arena *a, const char *fmt, ...) {
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = text_vprint(NULL, 0, fmt, ap);
  va_end(ap);
  if (n < 0) n = 0;
  char *p = arena_alloc(a, (size_t)n + 1);
  text_vprint(p, (size_t)n + 1, fmt, again);
  va_end(again);
  return p;
}

ArenaMark arena_mark(const Arena *a) { return (ArenaMark){a->top, a->used, a->limit, a->why}; }

void arena_release(Arena *a, ArenaMark m) {
  while (a->top != (Block *)m.block) {
    Block *b = a->top;
    HIDE(block_data(b), a->used);
    a->top = b->prev;
    a->used = 0;
    if (a->top) {
      a->used = a->top->used;
      a->below -= a->used;
    }
    if (!a->spare || a->spare->cap < b->cap) {
      free(a->spare);
      a->spare = b;
    } else {
      free(b);
    }
  }
  if (a->top) HIDE(block_data(a->top) + m.used, a->used - m.used);
  a->used = m.used;
  a->limit = m.limit, a->why = m.why;
}

size_t arena_bytes(const Arena *a) { return a->below + a->used; }

Err *arena_err(const Arena *a) { return a->err; }

void vec_grow(Arena *a, void **at, int32_t *cap, int32_t need, size_t elem) {
  if (need <= *cap) return;
  if (need < 0) err_raise(a->err, NS_ERR_MEMORY, "out of memory: an array of more than 2^31 elements");
  int64_t n = *cap ? (int64_t)*cap * 2 : 8;
  while (n < need) n *= 2;
  if (n > INT32_MAX) n = INT32_MAX;
  char *p = arena_take(a, (size_t)n * elem);
  if (*cap) memcpy(p, *at, (size_t)*cap * elem);
  *at = p;
  *cap = (int32_t)n;
}
