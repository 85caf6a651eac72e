/* The files of a session. A name is one component of a path and is opened below the session's directory without following a
 * link, so that nothing outside of it can be named. */
#include "runner/runner.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FLAGS = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK };

bool files_name(const char *name) {
  size_t n = strlen(name);
  if (n == 0 || n >= RUNNER_NAME || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return false;
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)name[i] < ' ' || name[i] == 127 || strchr("/\\", name[i])) return false;
  return true;
}

static void check_name(Err *e, const char *name) {
  if (!files_name(name))
    err_raise(e, NS_ERR_VALUE,
              "a file of a session has a plain name without separators, such as net.so, of less than %d bytes",
              RUNNER_NAME);
}

static NS_NORETURN void failed(Err *e, const char *what, const char *name) {
  int why = errno;
  err_raise(e, why == ENOENT ? NS_ERR_VALUE : NS_ERR_IO, "cannot %s the session's file '%s': %s", what, name,
            why == ELOOP ? "it is a link" : strerror(why));
}

static int open_plain(Err *e, int dir, const char *name, int how, const char *what) {
  struct stat st;
  check_name(e, name);
  int fd = openat(dir, name, how | FLAGS, 0600);
  if (fd < 0) failed(e, what, name);
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1) return fd;
  close(fd);
  err_raise(e, NS_ERR_VALUE, "cannot %s the session's file '%s': it is no plain file of its own", what, name);
}

void files_put(Err *e, int dir, const char *name, const void *data, size_t n) {
  int fd = open_plain(e, dir, name, O_WRONLY | O_CREAT, "write");
  bool ok = ftruncate(fd, 0) == 0;
  for (size_t done = 0; ok && done < n;) {
    ssize_t k = write(fd, (const char *)data + done, n - done);
    if (k < 0 && errno == EINTR) continue;
    ok = k > 0;
    done += ok ? (size_t)k : 0;
  }
  int why = errno;
  close(fd);
  errno = why;
  if (!ok) failed(e, "write", name);
}

void *files_get(Err *e, int dir, const char *name, size_t *n) {
  struct stat st;
  int fd = open_plain(e, dir, name, O_RDONLY, "read");
  char *data = fstat(fd, &st) == 0 && st.st_size >= 0 ? malloc((size_t)st.st_size + 1) : NULL;
  *n = 0;
  while (data && *n < (size_t)st.st_size) {
    ssize_t k = read(fd, data + *n, (size_t)st.st_size - *n);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) break;
    *n += (size_t)k;
  }
  close(fd);
  if (!data) err_raise(e, NS_ERR_MEMORY, "out of memory reading the session's file '%s'", name);
  data[*n] = 0;
  return data;
}

void files_del(Err *e, int dir, const char *name) {
  check_name(e, name);
  if (unlinkat(dir, name, 0) != 0) failed(e, "remove", name);
}

void files_each(int dir, void (*tell)(void *arg, const char *name, int64_t bytes), void *arg) {
  int own = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = own >= 0 ? fdopendir(own) : NULL;
  struct stat st;
  for (struct dirent *x; d && (x = readdir(d));)
    if (files_name(x->d_name) && fstatat(dir, x->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
      tell(arg, x->d_name, (int64_t)st.st_size);
  if (d)
    closedir(d);
  else if (own >= 0)
    close(own);
}

static void unlink_it(void *dir, const char *name, int64_t bytes NS_UNUSED) { unlinkat(*(int *)dir, name, 0); }

void files_clear(int dir) { files_each(dir, unlink_it, &dir); }
