/* Private to compile: the compilers and the cache. */
#ifndef NS_COMPILE_INTERNAL_H
#define NS_COMPILE_INTERNAL_H
#include "compile/compile.h"
#include <sys/stat.h>

/* Each compiler: its identity (version and flags: part of the cache key) and the compile itself. */
char *cc_version(Arena *a, const BuildOptions *o); /* which compiler $CC or the options mean now; little work */
char *cc_identity(Arena *a, const Target *t, const BuildOptions *o);
Binary cc_compile(Arena *a, const Target *t, const char *source, const BuildOptions *o);
bool cc_available(char *why, size_t n);
char *nvrtc_identity(Arena *a, const Target *t, const char *source);
Binary nvrtc_compile(Arena *a, const Target *t, const char *source);
bool nvrtc_available(char *why, size_t n);

/* cache.c: files named by the hash of all that a binary depends on. Never raises: a broken cache is an empty one. */
const char *cache_default_dir(Arena *a); /* NULL when there is no home directory */
bool cache_get(Arena *a, const char *dir, const char *key, Binary *out);
void cache_put(Arena *a, const char *dir, const char *key, const Binary *b);
int dir_open_own(const char *path, bool follow); /* -1: there is none, it is not so, or (not follow) it is a link */
void *file_read(Arena *a, const char *path,
                size_t *n); /* NULL when it cannot be read; one NUL is added after the data */
void file_write(Arena *a, const char *path, const void *data,
                size_t n); /* raises NS_ERR_IO; leaves no partial file behind */
#endif
