/* The cache of compiled programs. An entry's file name is the hash of everything the binary depends on: source text,
 * target, compiler version and flags. Entries are written to a temporary name and renamed, so readers and parallel
 * writers never see half a file; a checksum at the end, of the program and its name, catches what a crash of the machine left.
 * When the cache outgrows its limit (2 GiB, $NESTSMITH_CACHE_MB) the entries that were not used for the longest time go. Any
 * number of processes may use one directory: one of them sweeps at a time (a lock on a file that the kernel gives back when its
 * holder dies), an entry that vanishes under a reader is a miss.
 *
 * Its programs are executed, so nothing of another user may come out of it: a directory that belongs to another user, or that
 * others may write, is not used, and neither is a file in it that is not this user's own. Both are asked of what was opened,
 * not of a path, which may mean something else a moment later; files are reached through the open directory, links are not
 * followed. What is not named like an entry is never removed. */
#include "compile/internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  char magic[8];
  uint64_t n, hash;
} Trailer;
static const char MAGIC[8] = "NSCACHE2";
#define TEMPORARY ".tmp-" /* then the process id: who kills a process that compiles removes what it was writing */
enum { SWEEP_EVERY = 64, STALE_SECONDS = 3600, KEY_HEX = 32 };

/* What was opened is this user's, and nobody else may write it. */
static bool file_is_own(const struct stat *st) {
  return st->st_uid == geteuid() && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

int dir_open_own(const char *path, bool follow) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
  struct stat st;
  if (fd < 0 || (fstat(fd, &st) == 0 && file_is_own(&st))) return fd;
  close(fd);
  errno = EPERM;
  return -1;
}

static void *read_all(Arena *a, int fd, bool own, size_t *n) {
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (own && !file_is_own(&st))) return NULL;
  char *out = arena_alloc(a, (size_t)st.st_size + 1);
  *n = (size_t)st.st_size;
  return fd_read(fd, out, *n) ? out : NULL;
}

void *file_read(Arena *a, const char *path, size_t *n) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  void *out = fd < 0 ? NULL : read_all(a, fd, false, n);
  if (fd >= 0) close(fd);
  return out;
}

void file_write(Arena *a, const char *path, const void *data, size_t n) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) err_raise(arena_err(a), NS_ERR_IO, "cannot create %s: %s", path, strerror(errno));
  int r = fd_write(fd, data, n) ? 0 : errno;
  if (close(fd) != 0 && !r) r = errno;
  if (r) {
    unlink(path);
    err_raise(arena_err(a), NS_ERR_IO, "cannot write %s (%zu bytes): %s", path, n, strerror(r));
  }
}

static bool make_dirs(Arena *a, const char *dir) {
  char *p = arena_strdup(a, dir);
  for (char *s = p + 1; *s; s++) {
    if (*s != '/') continue;
    *s = 0;
    mkdir(p, 0700);
    *s = '/';
  }
  return mkdir(p, 0700) == 0 || errno == EEXIST;
}

const char *cache_default_dir(Arena *a) {
  const char *s = getenv("NESTSMITH_CACHE_DIR");
  if (s) return *s ? arena_strdup(a, s) : NULL;
  if ((s = getenv("XDG_CACHE_HOME")) && *s) return arena_printf(a, "%s/nestsmith", s);
  if ((s = getenv("HOME")) && *s) return arena_printf(a, "%s/.cache/nestsmith", s);
  return NULL;
}

typedef struct {
  Arena *a;
  int dir;
  const char *key;
  Binary *out;
  bool ok;
} Get;
static void get(void *arg) {
  Get *g = arg;
  size_t n = 0;
  int fd = openat(g->dir, g->key, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return;
  char *data = fd < 0 ? NULL : read_all(g->a, fd, true, &n);
  Trailer t;
  if (data && n >= sizeof t) {
    memcpy(&t, data + n - sizeof t, sizeof t);
    n -= sizeof t;
    g->ok = memcmp(t.magic, MAGIC, sizeof MAGIC) == 0 && t.n == n && t.hash == hash_bytes(data, n, hash_str(g->key));
  }
  if (g->ok) {
    futimens(fd, NULL); /* used now */
    data[n] = 0;
    *g->out = (Binary){.data = data, .n = n, .cached = true};
  } else {
    unlinkat(g->dir, g->key, 0); /* damaged, or not ours */
  }
  if (fd >= 0) close(fd);
}

bool cache_get(Arena *a, const char *dir, const char *key, Binary *out) {
  Get g = {a, dir_open_own(dir, true), key, out, false};
  if (g.dir < 0) return false;
  ErrCode r = err_try(arena_err(a), get, &g);
  close(g.dir);
  if (r != NS_OK) err_rethrow(arena_err(a), r);
  return g.ok;
}

typedef struct {
  char name[40];
  int64_t bytes, when;
} Entry;
static int older(const void *x, const void *y) {
  int64_t a = ((const Entry *)x)->when, b = ((const Entry *)y)->when;
  return a < b ? -1 : a > b;
}

static bool is_entry(const char *name) {
  const char *tail = name + strspn(name, "0123456789abcdef");
  return tail == name + KEY_HEX && (strcmp(tail, ".so") == 0 || strcmp(tail, ".cubin") == 0);
}

static void shrink(Arena *a, int dir) {
  const char *s = getenv("NESTSMITH_CACHE_MB");
  long mb = s ? strtol(s, NULL, 10) : 0;
  int64_t limit = (mb > 0 ? (int64_t)mb : 2048) << 20, total = 0;
  VEC(Entry) all = {0};
  int again = dup(dir), lock = openat(dir, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  DIR *d = again < 0 ? NULL : fdopendir(again);
  if (!d || lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0) { /* another process is at it */
    if (lock >= 0) close(lock);
    if (d)
      closedir(d);
    else if (again >= 0)
      close(again);
    return;
  }
  for (struct dirent *e; (e = readdir(d));) {
    struct stat st;
    Entry x = {{0}, 0, 0};
    if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) continue;
    if (strncmp(e->d_name, TEMPORARY, sizeof TEMPORARY - 1) == 0 &&
        time(NULL) - st.st_mtime > STALE_SECONDS) /* of a process that was killed */
      unlinkat(dirfd(d), e->d_name, 0);
    if (!is_entry(e->d_name)) continue;
    strcpy(x.name, e->d_name);
    x.bytes = st.st_size;
    x.when = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    total += x.bytes;
    vec_push(a, &all, x);
  }
  if (total > limit) {
    qsort(all.at, (size_t)all.len, sizeof(Entry), older);
    for (int i = 0; i < all.len && total > limit / 5 * 4; i++)
      if (unlinkat(dirfd(d), all.at[i].name, 0) == 0) total -= all.at[i].bytes;
  }
  flock(lock, LOCK_UN); /* a child that was forked meanwhile has the file open, too */
  close(lock);
  closedir(d);
}

void build_clean(Arena *a, const BuildOptions *o, int pid) {
  const char *path = o && o->cache_dir ? o->cache_dir : cache_default_dir(a);
  const char *mark = arena_printf(a, TEMPORARY "%d-", pid);
  int dir = path && *path ? dir_open_own(path, true) : -1;
  DIR *d = dir < 0 ? NULL : fdopendir(dir);
  for (struct dirent *e; d && (e = readdir(d));)
    if (strncmp(e->d_name, mark, strlen(mark)) == 0) unlinkat(dirfd(d), e->d_name, 0);
  if (d)
    closedir(d);
  else if (dir >= 0)
    close(dir);
}

/* A new file of this process in the directory; the name is written to name. */
static int new_file(int dir, char *name, size_t n) {
  struct {
    double now;
    void *stack;
    int64_t try;
  } seed = {clock_now(), &seed, 0};
  for (int fd; seed.try < 16; seed.try++) {
    snprintf(name, n, TEMPORARY "%d-%016llx", (int)getpid(), (unsigned long long)hash_bytes(&seed, sizeof seed, 0));
    fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

typedef struct {
  Arena *a;
  int dir;
} Shrink;
ERR_BODY(do_shrink, Shrink *s, shrink(s->a, s->dir))

void cache_put(Arena *a, const char *dir, const char *key, const Binary *b) {
  char name[64];
  if (!make_dirs(a, dir)) return;
  int at = dir_open_own(dir, true), fd = at < 0 ? -1 : new_file(at, name, sizeof name);
  if (fd >= 0) {
    Trailer t = {{0}, b->n, hash_bytes(b->data, b->n, hash_str(key))};
    memcpy(t.magic, MAGIC, sizeof MAGIC);
    bool ok = fd_write(fd, b->data, b->n) && fd_write(fd, &t, sizeof t);
    if (close(fd) != 0 || !ok || renameat(at, name, at, key) != 0)
      unlinkat(at, name, 0);
    else if (hash_str(key) % SWEEP_EVERY == 0)
      err_try(arena_err(a), do_shrink, &(Shrink){a, at}); /* without memory: not now */
  }
  if (at >= 0) close(at);
}
