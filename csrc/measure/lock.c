/* One tuner per device at a time. The lock is a file per device that is locked with flock: the system takes the lock back
 * when its holder ends, however that happens, so no lock is ever left behind. The file says who holds it (spec 05 §7.6).
 *
 * Turns: a second file is locked by the one whose turn is next, and who wants a turn has to be next first. So whoever gives
 * the device back while another one waits cannot be the first to take it again, however late the other one wakes up on a
 * loaded machine. Of several that wait, one is next and the others try to become it. If the next one dies, its place is
 * free; if it is stopped (Ctrl-Z) it keeps it, and the others go past it once they have found the device unused FROZEN
 * times.
 *
 * The files are in $NESTSMITH_LOCK_DIR or /tmp/nestsmith-locks, which all users of the machine may write. */
#include "measure/measure.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FROZEN = 10 };
static const double LOOK_SECONDS = 0.5; /* between two looks at a device that another one is next for */
struct DevLock {
  int fd, next_fd;         /* next_fd -1: not to be had, then nobody queues */
  int made;                /* fork_count */
  ForkFd kept[2];          /* forked children that outlive the holder must not hold the lock */
  bool held, next, frozen; /* frozen: the one that is next did not take its turn, and is next still */
  int unused;              /* looks that found the device unused */
  double looked;
};

/* In a directory that all may write Linux refuses O_CREAT on another user's file, although that file may be written. What is
 * there may be anything that any user put there: only a plain file that has no other name is written. */
static int open_shared(int dir, const char *name) {
  const int HOW = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  struct stat st;
  int fd = openat(dir, name, HOW);
  if (fd < 0 && errno == ENOENT) {
    fd = openat(dir, name, HOW | O_CREAT, 0666);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid()) fchmod(fd, 0666); /* against the umask */
  }
  if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1)) return fd;
  close(fd);
  errno = EPERM;
  return -1;
}

/* The directory of the locks; the one that all users share is not reached through a link, and keeps its files to their owners. */
static int open_dir(const char *dir, bool shared) {
  if (mkdir(dir, 01777) == 0) chmod(dir, 01777);
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (shared ? O_NOFOLLOW : 0));
  struct stat st;
  if (fd < 0 || !shared) return fd;
  bool open_to_all = fstat(fd, &st) != 0 || ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX));
  if (!open_to_all || (st.st_uid == geteuid() && fchmod(fd, 01777) == 0)) return fd;
  close(fd);
  errno = EPERM;
  return -1;
}

DevLock *devlock_new(Err *e, DevType t, int id, const DevInfo *d) {
  const char *dir = getenv("NESTSMITH_LOCK_DIR");
  char base[96], name[112];
  bool shared = !dir || !*dir;
  if (shared) dir = "/tmp/nestsmith-locks";
  const char *kind = t == DEV_CUDA ? "cuda" : t == DEV_OPENCL ? "opencl" : "cpu";
  if (d->uuid[0])
    snprintf(base, sizeof base, "%s-%s", kind, d->uuid);
  else
    snprintf(base, sizeof base, "%s-%d", kind, id);
  DevLock *l = calloc(1, sizeof *l);
  if (!l) err_raise(e, NS_ERR_MEMORY, "out of memory locking a device");
  l->made = fork_count();
  int at = open_dir(dir, shared);
  snprintf(name, sizeof name, "%s.lock", base);
  l->fd = at < 0 ? -1 : open_shared(at, name);
  int why = errno;
  if (l->fd < 0) {
    free(l);
    if (at >= 0) close(at);
    err_raise(
        e, NS_ERR_IO,
        "cannot open the lock of the device, %s/%s: %s; set NESTSMITH_LOCK_DIR to a directory that can be written", dir,
        name, strerror(why));
  }
  snprintf(name, sizeof name, "%s.next", base);
  l->next_fd = open_shared(at, name);
  close(at);
  fork_close(&l->kept[0], l->fd);
  if (l->next_fd >= 0) fork_close(&l->kept[1], l->next_fd);
  return l;
}

void devlock_free(DevLock *l) {
  if (!l || l->made != fork_count()) return; /* in a forked child the files are closed */
  devlock_release(l);
  devlock_leave(l);
  fork_keep(&l->kept[0]);
  close(l->fd);
  if (l->next_fd >= 0) {
    fork_keep(&l->kept[1]);
    close(l->next_fd);
  }
  free(l);
}

static void write_holder(const DevLock *l) {
  char text[512], command[256] = "";
  int f = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t k = f >= 0 ? read(f, command, sizeof command - 1) : 0;
  if (f >= 0) close(f);
  for (ssize_t i = 0; i < k; i++)
    if ((unsigned char)command[i] < ' ') command[i] = ' ';
  time_t now = time(NULL);
  struct tm when;
  char since[32] = "";
  if (localtime_r(&now, &when)) strftime(since, sizeof since, "%H:%M:%S", &when);
  const char *user = getenv("USER");
  int n = snprintf(text, sizeof text, "process %d of user %s (%.200s), since %s\n", (int)getpid(),
                   user && *user ? user : "unknown", command, since);
  if (ftruncate(l->fd, 0) == 0 && pwrite(l->fd, text, (size_t)n, 0) < 0) return; /* only a courtesy */
}

static bool locks(int fd) { return flock(fd, LOCK_EX | LOCK_NB) == 0; }

static bool refused(const DevLock *l, char *holder, size_t n) {
  ssize_t k = pread(l->fd, holder, n - 1, 0);
  holder[k > 0 ? k : 0] = 0;
  holder[strcspn(holder, "\n")] = 0;
  for (const char *p; (p = text_control(holder));) holder[p - holder] = '?'; /* any user may have written it */
  if (!holder[0]) snprintf(holder, n, "another process");
  return false;
}

static bool taken(DevLock *l) {
  l->held = true;
  write_holder(l);
  devlock_leave(l);
  return true;
}

bool devlock_try(DevLock *l, char *holder, size_t n) {
  return l->held || (locks(l->fd) ? taken(l) : refused(l, holder, n));
}

bool devlock_turn(DevLock *l, double now, char *holder, size_t n) {
  if (l->held) return true;
  if (!l->next && (l->next_fd < 0 || locks(l->next_fd))) {
    l->next = true;
    l->frozen = false;
  }
  if (l->next) return devlock_try(l, holder, n);
  if (!(l->looked > 0)) l->looked = now;
  if (now - l->looked < LOOK_SECONDS) return refused(l, holder, n);
  l->looked = now;
  if (!locks(l->fd)) {
    l->unused = 0;
    return refused(l, holder, n);
  }
  if (l->frozen || ++l->unused >= FROZEN) {
    l->frozen = true;
    return taken(l);
  }
  flock(l->fd, LOCK_UN);
  return refused(l, holder, n);
}

void devlock_leave(DevLock *l) {
  if (l->next && l->next_fd >= 0) flock(l->next_fd, LOCK_UN);
  l->next = false;
  l->unused = 0;
  l->looked = 0;
}

DevLock *devlock_open(Err *e, LockMode mode, DevType t, int id, const DevInfo *d) {
  char holder[400];
  if (mode == LOCK_NONE || (mode == LOCK_AUTO && t != DEV_CUDA)) return NULL;
  DevLock *l = devlock_new(e, t, id, d);
  if (mode != LOCK_FAIL || devlock_try(l, holder, sizeof holder)) return l;
  devlock_free(l);
  err_raise(e, NS_ERR_RUNTIME,
            "another process tunes on this device: %s; wait for it, choose another device, or take turns with it "
            "(busy=\"turns\")",
            holder);
}

void devlock_release(DevLock *l) {
  if (!l->held) return;
  if (ftruncate(l->fd, 0) < 0) {} /* the name is no longer true; only a courtesy */
  flock(l->fd, LOCK_UN);
  l->held = false;
}

bool devlock_wanted(const DevLock *l) {
  if (l->next_fd < 0 || l->next) return false;
  if (!locks(l->next_fd)) return true;
  flock(l->next_fd, LOCK_UN);
  return false;
}
