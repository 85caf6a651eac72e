/* Child processes that can be ended for sure. A child leads its own process group, so that killing the group also ends
 * the compiler's own children, and a terminal's Ctrl-C does not reach it. vfork keeps the cost independent of how much
 * memory the parent (a Python with a large network) has mapped; between vfork and exec only system calls are made.
 *
 * However the parent ends, the group learns of it: its processes hold the reading end of a pipe that nobody writes to, and
 * when the writing end is gone the kernel sends them all a signal (F_SETSIG). That reaches what PR_SET_PDEATHSIG does not:
 * the compiler's own children, and processes that somebody has stopped. */
#include "compile/compile.h"
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

char *spawn_find(Arena *a, const char *name) {
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

char **spawn_environment(Arena *a, int n, const char *const *set) {
  int there = 0, k = 0;
  while (environ[there]) there++;
  char **out = arena_array(a, char *, there + n + 1);
  for (int i = 0; i < there; i++) {
    bool kept = true;
    for (int j = 0; j < n; j++) kept = kept && strncmp(environ[i], set[j], strcspn(set[j], "=") + 1) != 0;
    if (kept) out[k++] = environ[i];
  }
  for (int j = 0; j < n; j++) out[k++] = arena_strdup(a, set[j]);
  return out;
}

typedef struct {
  const char *path;
  char *const *argv, *const *envp;
  int out, keep, life, signal; /* life: the pipe's reading end; signal: what the group gets when the parent is gone */
  double cpu;                  /* 0: no limit */
  pid_t parent;
  sigset_t mask;
} Exec;

/* Until exec the child shares the parent's memory: none of the parent's handlers may run in it. */
static void forget_handlers(void) {
  for (int i = 1; i < NSIG; i++) {
    struct sigaction a;
    if (sigaction(i, NULL, &a) == 0 && a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN) signal(i, SIG_DFL);
  }
  signal(SIGINT, SIG_DFL);
  signal(SIGPIPE, SIG_DFL);
}

static NS_NORETURN void in_child(const Exec *x) {
  setpgid(0, 0);
  fcntl(x->life, F_SETOWN, -getpid());
  fcntl(x->life, F_SETSIG, x->signal);
  fcntl(x->life, F_SETFL, O_ASYNC);
  fcntl(x->life, F_SETFD, 0);
  if (x->signal == SIGKILL) prctl(PR_SET_PDEATHSIG, SIGKILL); /* for systems where the pipe sends no signals */
  if (getppid() != x->parent) _exit(127);
  if (fcntl(0, F_GETFD) < 0) open("/dev/null", O_RDONLY); /* the lowest number that is free: 0 */
  dup2(x->out, 1);
  dup2(x->out, 2);
  if (x->keep >= 0) fcntl(x->keep, F_SETFD, 0);
  if (x->cpu > 0) {
    struct rlimit r = {(rlim_t)x->cpu + 1, (rlim_t)x->cpu + 2};
    setrlimit(RLIMIT_CPU, &r);
  }
  forget_handlers();
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

static bool open_pipe(int fd[2]) {
  if (pipe2(fd, O_CLOEXEC) != 0) return false;
  for (int i = 0; i < 2; i++)
    if ((fd[i] = fd_above_streams(fd[i])) < 0) return false;
  return true;
}

/* Where the child's output goes: a pipe, or nowhere. False: errno says why. */
static bool open_output(bool want, int fd[2]) {
  if (want) return open_pipe(fd);
  fd[0] = -1;
  return (fd[1] = fd_above_streams(open("/dev/null", O_RDWR | O_CLOEXEC))) >= 0;
}

static void close_both(int fd[2]) {
  for (int i = 0; i < 2; i++)
    if (fd[i] >= 0) close(fd[i]);
}

static Child spawn(Err *e, char *const argv[], char *const envp[], int keep_fd, bool want_output, int signal,
                   double cpu) {
  int fd[2] = {-1, -1}, life[2] = {-1, -1};
  Arena *a = arena_new(e);
  const char *path = spawn_find(a, argv[0]);
  char name[256];
  strncpy(name, argv[0], sizeof name - 1);
  name[sizeof name - 1] = 0;
  if (!path) {
    arena_free(a);
    err_raise(e, NS_ERR_RUNTIME, "program \"%s\" is not installed (searched PATH)", name);
  }
  if (!open_output(want_output, fd) || !open_pipe(life)) {
    int why = errno;
    close_both(fd);
    arena_free(a);
    err_raise(e, NS_ERR_IO, "cannot start \"%s\": %s", name, strerror(why));
  }
  Exec x = {path, argv, envp ? envp : environ, fd[1], keep_fd, life[0], signal, cpu, getpid(), {{0}}};
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &x.mask);
  pid_t pid = vfork_exec(&x);
  int why = errno;
  pthread_sigmask(SIG_SETMASK, &x.mask, NULL);
  close(fd[1]);
  close(life[0]);
  arena_free(a);
  if (pid < 0) {
    if (fd[0] >= 0) close(fd[0]);
    close(life[1]);
    err_raise(e, NS_ERR_RUNTIME, "cannot start \"%s\": %s", name, strerror(why));
  }
  return (Child){.pid = (int)pid, .pipe_fd = fd[0], .life_fd = life[1], .made = fork_count()};
}

Child spawn_child(Err *e, char *const argv[], char *const envp[], int keep_fd) {
  return spawn(e, argv, envp, keep_fd, false, SIGCONT, 0);
}

Child spawn_limited(Err *e, char *const argv[], char *const envp[], double cpu_seconds) {
  return spawn(e, argv, envp, -1, true, SIGKILL, cpu_seconds);
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

static void close_end(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
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
      close_end(&c->life_fd);
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
  close_end(&c->pipe_fd);
  close_end(&c->life_fd);
}
