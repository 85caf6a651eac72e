/* build_binary: cache lookup around the compiler that belongs to the target. The key is the hash of everything the
 * binary depends on, so a hit is always right and nothing ever needs to be invalidated. */
#include "base/object.h"
#include "compile/internal.h"
#include "program/program.h"
#include <stdio.h>
#include <string.h>

static char *key_of(Arena *a, const Target *t, const char *source, const BuildOptions *o) {
  const char *id = t->kind == TG_CUDA ? nvrtc_identity(a, t, source) : cc_identity(a, t, o);
  StrBuf b;
  sb_init(&b, a);
  sb_printf(&b, "2 %s\n", id); /* the format's own version first */
  sb_puts(&b, source);
  char hex[33];
  md5_hex(b.at, b.len, hex);
  return arena_printf(a, "%s.%s", hex, t->kind == TG_CUDA ? "cubin" : "so");
}

/* Memory, then the disk. *dir and *key: where the program belongs on the disk; NULL: nowhere. */
static bool look(Arena *a, const Target *t, const char *source, const BuildOptions *o, const char **dir, char **key,
                 Binary *out) {
  double start = clock_now();
  *dir = NULL;
  *key = NULL;
  bool found = build_recall(a, t, source, o, out);
  if (!found) {
    *dir = o->cache_dir ? (*o->cache_dir ? o->cache_dir : NULL) : cache_default_dir(a);
    *key = *dir ? key_of(a, t, source, o) : NULL;
    found = *key && cache_get(a, *dir, *key, out);
    if (found) build_remember(a, t, source, o, out);
  }
  out->seconds = clock_now() - start;
  return found;
}

bool build_cached(Arena *a, const Target *t, const char *source, const BuildOptions *o, Binary *out) {
  const char *dir;
  char *key;
  return look(a, t, source, o, &dir, &key, out);
}

Binary build_binary(Arena *a, const Target *t, const char *source, const BuildOptions *o) {
  static const BuildOptions DEFAULT = {0};
  if (!o) o = &DEFAULT;
  double start = clock_now();
  Binary b = {0};
  const char *dir;
  char *key;
  if (t->kind == TG_OPENCL) {
    b.n = strlen(source);
    b.data = arena_strdup(a, source);
    return b;
  }
  if (look(a, t, source, o, &dir, &key, &b)) return b;
  b = t->kind == TG_CUDA ? nvrtc_compile(a, t, source) : cc_compile(a, t, source, o);
  if (key) cache_put(a, dir, key, &b);
  build_remember(a, t, source, o, &b);
  b.seconds = clock_now() - start;
  return b;
}

void build_check_here(Arena *a, const Target *t, const BuildOptions *o) {
  if (t->kind != TG_CPU || !t->cpu[0]) return; /* made for this processor */
  Binary b = build_binary(a, t, "", o);
  object_check(arena_err(a), b.data, b.n, arena_printf(a, "a program for -mcpu=%s", t->cpu));
}

void build_rename(void *binary, size_t n, const char *name) {
  const size_t from = strlen(PROGRAM_NAME), to = strlen(name);
  char *p = binary, *end = p + n;
  if (to > from) return;
  while ((
      p = memmem(p, (size_t)(end - p), PROGRAM_NAME, from))) { /* strings end with NUL: the rest moves up, zeros fill */
    size_t rest = strnlen(p + from, (size_t)(end - p) - from);
    memcpy(p, name, to);
    memmove(p + to, p + from, rest);
    memset(p + to + rest, 0, from - to);
    p += from + rest;
  }
}

bool build_available(const Target *t, char *why, size_t n) {
  if (n) why[0] = 0;
  switch (t->kind) {
  case TG_CUDA: return nvrtc_available(why, n);
  case TG_CPU: return cc_available(why, n);
  default: snprintf(why, n, "the driver compiles OpenCL source when it is loaded"); return true;
  }
}
