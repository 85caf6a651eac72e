/* Child processes that can be ended for sure. A child leads its own process group, so that killing the group also ends
 * the compiler's own children, and a terminal's Ctrl-C does not reach it. vfork keeps the cost independent of how much
 * memory the parent (a Python with a large network) has mapped; between vfork and exec only system calls are made. */
#include "build/build.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
enum { REAP_SECONDS = 30 };

static char *find_program(Arena *a, const char *name) {
  if (strchr(name, '/')) return access(name, X_OK) == 0 ? arena_strdup(a, name) : NULL;
  const char *path = getenv("PATH");
  for (const char *p = path ? path : "/usr/local/bin:/usr/bin:/bin"; *p;) {
    size_t n = strcspn(p, ":");
    char *full = arena_printf(a, "%.*s/%s", (int)n, n ? p : ".", name);
    if (access(full, X_OK) == 0) return full;
    p += n + (p[n] == ':');
  }
  return NULL;
}

typedef struct {
  const char *path;
  char *const *argv, *const *envp;
  int out, keep;
  bool die;
  double cpu; /* 0: no limit */
  pid_t parent;
  sigset_t mask;
} Exec;

static NS_NORETURN void in_child(const Exec *x) {
  setpgid(0, 0);
  if (x->die) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != x->parent) _exit(127);
  }
  dup2(x->out, 1);
  dup2(x->out, 2);
  if (x->keep >= 0) fcntl(x->keep, F_SETFD, 0);
  if (x->cpu > 0) {
    struct rlimit r = {(rlim_t)x->cpu + 1, (rlim_t)x->cpu + 2};
    setrlimit(RLIMIT_CPU, &r);
  }
  signal(SIGINT, SIG_DFL);
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  execve(x->path, x->argv, x->envp);
  _exit(127);
}

__attribute__((noinline)) static pid_t vfork_exec(const Exec *x) {
  pid_t pid = vfork();
  if (pid == 0) in_child(x);
  return pid;
}

static Child spawn(Err *e, char *const argv[], char *const envp[], int keep_fd, bool want_output, bool die_with_parent,
                   double cpu) {
  int fd[2] = {-1, -1};
  Arena *a = arena_new(e);
  const char *path = find_program(a, argv[0]);
  char name[256];
  strncpy(name, argv[0], sizeof name - 1);
  name[sizeof name - 1] = 0;
  if (!path) {
    arena_free(a);
    err_raise(e, NS_ERR_RUNTIME, "program \"%s\" is not installed (searched PATH)", name);
  }
  if (want_output ? pipe2(fd, O_CLOEXEC) != 0 : (fd[1] = open("/dev/null", O_RDWR | O_CLOEXEC)) < 0) {
    arena_free(a);
    err_raise(e, NS_ERR_IO, "cannot start \"%s\": %s", name, strerror(errno));
  }
  Exec x = {path, argv, envp ? envp : environ, fd[1], keep_fd, die_with_parent, cpu, getpid(), {{0}}};
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all,
                  &x.mask); /* no handler of the parent may run in the child, which shares its memory */
  pid_t pid = vfork_exec(&x);
  int why = errno;
  pthread_sigmask(SIG_SETMASK, &x.mask, NULL);
  close(fd[1]);
  arena_free(a);
  if (pid < 0) {
    if (fd[0] >= 0) close(fd[0]);
    err_raise(e, NS_ERR_RUNTIME, "cannot start \"%s\": %s", name, strerror(why));
  }
  return (Child){.pid = (int)pid, .pipe_fd = fd[0], .made = fork_count()};
}

Child spawn_child(Err *e, char *const argv[], char *const envp[], int keep_fd, bool want_output, bool die_with_parent) {
  return spawn(e, argv, envp, keep_fd, want_output, die_with_parent, 0);
}

Child spawn_limited(Err *e, char *const argv[], char *const envp[], double cpu_seconds) {
  return spawn(e, argv, envp, -1, true, true, cpu_seconds);
}

double spawn_cpu_seconds(int pid) {
  clockid_t id;
  struct timespec t;
  if (clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &t) != 0) return -1;
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* In a forked child the process belongs to the parent, and counts as gone. */
static bool is_mine(Child *c) {
  if (c->made != fork_count()) c->pid = 0;
  return c->pid > 0;
}

int spawn_wait(Child *c, double timeout_s) {
  if (!is_mine(c)) return 0;
  double end = clock_now() + timeout_s;
  for (long pause = 200000;; pause = pause < 20000000 ? pause * 2 : pause) {
    int status = 0;
    struct rusage u = {0};
    pid_t r = wait4(c->pid, &status, WNOHANG, &u);
    if (r == c->pid || (r < 0 && errno == ECHILD)) {
      c->pid = 0;
      c->cpu =
          (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
      return r < 0 ? 0 : status;
    }
    if (clock_now() >= end) return -1;
    nanosleep(&(struct timespec){0, pause}, NULL);
  }
}

void spawn_signal_kill(Child *c) {
  if (!is_mine(c)) return;
  kill(-c->pid, SIGKILL);
  kill(c->pid, SIGKILL);
}

void spawn_kill(Child *c) {
  spawn_signal_kill(c);
  if (c->pid > 0) {
    spawn_wait(c, REAP_SECONDS); /* a process that hangs in a driver may never go: do not wait for it forever */
    c->pid = 0;
  }
  if (c->pipe_fd >= 0) close(c->pipe_fd);
  c->pipe_fd = -1;
}
