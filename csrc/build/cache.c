/* The cache of compiled programs. An entry's file name is the hash of everything the binary depends on: source text,
 * target, compiler version and flags. Entries are written to a temporary name and renamed, so readers and parallel
 * writers never see half a file; a checksum at the end catches what a crash of the machine left. When the cache
 * outgrows its limit (2 GiB, $NESTSMITH_CACHE_MB) the entries that were not used for the longest time go. Any number of
 * processes may use one directory: one of them sweeps at a time (a lock on a file that the kernel gives back when its
 * holder dies), an entry that vanishes under a reader is a miss. */
#include "build/internal.h"
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
static const char MAGIC[8] = "NSCACHE1";
#define TEMPORARY ".tmp-" /* then the process id: who kills a process that compiles removes what it was writing */
enum { SWEEP_EVERY = 64, STALE_SECONDS = 3600 };

void *file_read(Arena *a, const char *path, size_t *n) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  if (fd < 0) return NULL;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    return NULL;
  }
  char *out = arena_alloc(a, (size_t)st.st_size + 1);
  size_t done = 0;
  while (done < (size_t)st.st_size) {
    ssize_t k = read(fd, out + done, (size_t)st.st_size - done);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) break;
    done += (size_t)k;
  }
  close(fd);
  *n = done;
  return done == (size_t)st.st_size ? out : NULL;
}

static int write_all(int fd, const void *data, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t k = write(fd, (const char *)data + done, n - done);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return k == 0 ? ENOSPC : errno;
    done += (size_t)k;
  }
  return 0;
}

void file_write(Arena *a, const char *path, const void *data, size_t n) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) err_raise(arena_err(a), NS_ERR_IO, "cannot create %s: %s", path, strerror(errno));
  int r = write_all(fd, data, n);
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

/* Programs of the cache are executed: take nothing from a directory that someone else owns. */
static bool trusted(const char *dir) {
  struct stat st;
  return stat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == getuid() && !(st.st_mode & S_IWOTH);
}

bool cache_get(Arena *a, const char *dir, const char *key, Binary *out) {
  if (!trusted(dir)) return false;
  char *path = arena_printf(a, "%s/%s", dir, key);
  size_t n = 0;
  char *data = file_read(a, path, &n);
  Trailer t;
  if (!data) return false;
  bool ok = n >= sizeof t;
  if (ok) {
    memcpy(&t, data + n - sizeof t, sizeof t);
    ok =
        memcmp(t.magic, MAGIC, sizeof MAGIC) == 0 && t.n == n - sizeof t && t.hash == hash_bytes(data, n - sizeof t, 0);
  }
  if (!ok) {
    unlink(path);
    return false;
  }
  utimensat(AT_FDCWD, path, NULL, 0); /* used now */
  out->data = data;
  out->n = n - sizeof t;
  data[out->n] = 0;
  out->cached = true;
  return true;
}

typedef struct {
  char name[40];
  int64_t bytes, when;
} Entry;
static int older(const void *x, const void *y) {
  int64_t a = ((const Entry *)x)->when, b = ((const Entry *)y)->when;
  return a < b ? -1 : a > b;
}

static void shrink(Arena *a, const char *dir) {
  const char *s = getenv("NESTSMITH_CACHE_MB");
  long mb = s ? strtol(s, NULL, 10) : 0;
  int64_t limit = (mb > 0 ? (int64_t)mb : 2048) << 20, total = 0;
  VEC(Entry) all = {0};
  DIR *d = opendir(dir);
  if (!d) return;
  int lock = openat(dirfd(d), ".lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0) { /* another process is at it */
    if (lock >= 0) close(lock);
    closedir(d);
    return;
  }
  for (struct dirent *e; (e = readdir(d));) {
    struct stat st;
    Entry x = {{0}, 0, 0};
    if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) continue;
    if (strncmp(e->d_name, TEMPORARY, sizeof TEMPORARY - 1) == 0 &&
        time(NULL) - st.st_mtime > STALE_SECONDS) /* of a process that was killed */
      unlinkat(dirfd(d), e->d_name, 0);
    if (e->d_name[0] == '.' || strlen(e->d_name) >= sizeof x.name) continue;
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
  close(lock);
  closedir(d);
}

void build_clean(Arena *a, const BuildOptions *o, int pid) {
  const char *dir = o && o->cache_dir ? o->cache_dir : cache_default_dir(a);
  const char *mark = arena_printf(a, TEMPORARY "%d-", pid);
  DIR *d = dir && *dir ? opendir(dir) : NULL;
  for (struct dirent *e; d && (e = readdir(d));)
    if (strncmp(e->d_name, mark, strlen(mark)) == 0) unlinkat(dirfd(d), e->d_name, 0);
  if (d) closedir(d);
}

void cache_put(Arena *a, const char *dir, const char *key, const Binary *b) {
  if (!make_dirs(a, dir) || !trusted(dir)) return;
  char *path = arena_printf(a, "%s/%s", dir, key),
       *tmp = arena_printf(a, "%s/" TEMPORARY "%d-XXXXXX", dir, (int)getpid());
  int fd = mkostemp(tmp, O_CLOEXEC);
  if (fd < 0) return;
  Trailer t = {{0}, b->n, hash_bytes(b->data, b->n, 0)};
  memcpy(t.magic, MAGIC, sizeof MAGIC);
  int r = write_all(fd, b->data, b->n);
  if (!r) r = write_all(fd, &t, sizeof t);
  if (close(fd) != 0) r = errno;
  if (r || rename(tmp, path) != 0) {
    unlink(tmp);
    return;
  }
  if (hash_str(key) % SWEEP_EVERY == 0) shrink(a, dir);
}
