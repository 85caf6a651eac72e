/* Temporary directories that do not pile up. All live in one directory per user and carry the process id in their
 * names, so that whatever a killed process left behind is recognised and removed by the next one that needs a
 * directory. */
#include "build/build.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STALE_SECONDS = 60 };

void tmpdir_remove(const char *path) {
  DIR *d = opendir(path);
  if (d) {
    for (struct dirent *e; (e = readdir(d));) {
      if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
      if (unlinkat(dirfd(d), e->d_name, 0) != 0 && (errno == EISDIR || errno == EPERM)) {
        char sub[4096];
        if (snprintf(sub, sizeof sub, "%s/%s", path, e->d_name) < (int)sizeof sub) tmpdir_remove(sub);
      }
    }
    closedir(d);
  }
  rmdir(path);
}

static void sweep(const char *base) {
  DIR *d = opendir(base);
  if (!d) return;
  for (struct dirent *e; (e = readdir(d));) {
    long pid = strtol(e->d_name, NULL, 10);
    struct stat st;
    char path[4096];
    if (pid <= 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH) continue;
    if (snprintf(path, sizeof path, "%s/%s", base, e->d_name) >= (int)sizeof path) continue;
    if (stat(path, &st) == 0 && time(NULL) - st.st_mtime > STALE_SECONDS) tmpdir_remove(path);
  }
  closedir(d);
}

char *tmpdir_new(Arena *a) {
  const char *root = getenv("TMPDIR");
  if (!root || !*root) root = "/tmp";
  char *base = arena_printf(a, "%s/nestsmith-%ld", root, (long)getuid());
  struct stat st;
  if (mkdir(base, 0700) != 0 && errno != EEXIST)
    err_raise(arena_err(a), NS_ERR_IO, "cannot create temporary directory %s: %s; set TMPDIR to a writable directory",
              base, strerror(errno));
  if (lstat(base, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != getuid())
    err_raise(arena_err(a), NS_ERR_IO, "%s exists but is not a directory of this user; remove it or set TMPDIR", base);
  sweep(base);
  char *path = arena_printf(a, "%s/%ld-XXXXXX", base, (long)getpid());
  if (!mkdtemp(path))
    err_raise(arena_err(a), NS_ERR_IO, "cannot create a temporary directory in %s: %s", base, strerror(errno));
  return path;
}
