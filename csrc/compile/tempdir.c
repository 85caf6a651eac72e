/* Temporary directories that do not pile up. All live in one directory per user, and each is locked (flock) as long as its
 * owner uses it. The system gives the lock back when the owner ends, however that happens: a directory whose lock can be
 * had is one that a killed process left, and whoever finds it removes it. That needs no process ids, which other
 * containers that share the directory do not share, and which are used again.
 *
 * That one directory is this user's alone: what is compiled in it is executed, and what is found in it removed. A directory or a
 * link that someone else left under its name is refused. */
#include "compile/internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 16 };

static void empty(const char *path) {
  DIR *d = opendir(path);
  if (!d) return;
  for (struct dirent *e; (e = readdir(d));) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    if (unlinkat(dirfd(d), e->d_name, 0) != 0 && (errno == EISDIR || errno == EPERM)) {
      char sub[4096];
      if (snprintf(sub, sizeof sub, "%s/%s", path, e->d_name) < (int)sizeof sub) tree_remove(sub);
    }
  }
  closedir(d);
}

/* A compiler that is just being killed may still make a file: then again. */
void tree_remove(const char *path) {
  for (int i = 0; i < TRIES; i++) {
    empty(path);
    if (rmdir(path) == 0 || errno != ENOTEMPTY) return;
  }
}

/* Locks a directory, or returns -1; errno says why: EWOULDBLOCK, it is in use; ENOENT, it is gone. */
static int take(const char *path) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  int why = flock(fd, LOCK_EX | LOCK_NB) != 0 ? errno : fstat(fd, &st) == 0 && st.st_nlink > 0 ? 0 : ENOENT;
  if (why == 0) return fd;
  close(fd);
  errno = why;
  return -1;
}

static int base_name(char *out, size_t n) {
  const char *root = getenv("TMPDIR");
  return snprintf(out, n, "%s/nestsmith-%ld", root && *root ? root : "/tmp", (long)geteuid());
}

static void sweep(const char *base) {
  int fd = dir_open_own(base, false);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) {
    if (fd >= 0) close(fd);
    return;
  }
  for (struct dirent *e; (e = readdir(d));) {
    char path[4096];
    if (strtol(e->d_name, NULL, 10) <= 0) continue;
    if (snprintf(path, sizeof path, "%s/%s", base, e->d_name) >= (int)sizeof path) continue;
    int lock = take(path);
    if (lock < 0) continue;
    tree_remove(path);
    close(lock);
  }
  closedir(d);
}

void tmpdir_sweep(void) {
  char base[4096];
  if (base_name(base, sizeof base) < (int)sizeof base) sweep(base);
}

static void make_base(Err *e, const char *base) {
  if (mkdir(base, 0700) != 0 && errno != EEXIST)
    err_raise(e, NS_ERR_IO, "cannot create temporary directory %s: %s; set TMPDIR to a writable directory", base,
              strerror(errno));
  int fd = dir_open_own(base, false);
  if (fd < 0 && errno != ENOENT) /* else it is being removed: the caller tries again */
    err_raise(e, NS_ERR_IO,
              "%s exists but is not a directory of this user that nobody else may write; remove it or set TMPDIR",
              base);
  if (fd >= 0) close(fd);
}

TmpDir tmpdir_new(Arena *a) {
  Err *e = arena_err(a);
  char base[4096];
  err_check(e, base_name(base, sizeof base) < (int)sizeof base, "TMPDIR is too long");
  make_base(e, base);
  sweep(base);
  for (int i = 0; i < TRIES; i++) { /* somebody may sweep, or remove everything, at this moment */
    char *path = arena_printf(a, "%s/%ld-XXXXXX", base, (long)getpid());
    make_base(e, base);
    if (!mkdtemp(path)) continue;
    int lock = take(path);
    if (lock >= 0 || errno == ENOLCK || errno == EOPNOTSUPP)
      return (TmpDir){path, lock}; /* some file systems have no locks */
  }
  err_raise(e, NS_ERR_IO, "cannot create a temporary directory in %s: %s", base, strerror(errno));
}

void tmpdir_free(TmpDir *d) {
  tree_remove(d->path);
  if (d->lock >= 0) close(d->lock);
}
