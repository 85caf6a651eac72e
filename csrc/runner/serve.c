/* The process: a loop over requests, and a second thread that ends the process when the other side is gone or a request takes
 * longer than it may, so that an endless program does not outlive whoever sent it. */
#include "measure/measure.h"
#include "runner/runner.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { LOOK_MS = 50, OVER_TIME = 124, BROKEN = 2 };

typedef struct {
  int in;
  int dir;
  const char *made;   /* its path, if it was made for this process */
  _Atomic double end; /* of the present request; 0: none */
} Watch;

static void clear(const Watch *w) {
  files_clear(w->dir);
  if (w->made) rmdir(w->made);
}

static void *watch(void *arg) {
  Watch *w = arg;
  for (;;) {
    struct pollfd p = {w->in, 0, 0}; /* hang-ups are told unasked */
    int r = poll(&p, 1, LOOK_MS);
    double end = atomic_load(&w->end);
    bool late = end > 0 && clock_now() > end, gone = r > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
    if (!late && !(gone && end > 0)) { /* between requests the reader notices */
      if (gone) usleep(LOOK_MS * 1000);
      continue;
    }
    clear(w);
    _exit(late ? OVER_TIME : 0);
  }
  return NULL;
}

/* "limit_ms" is read by hand: the request is not parsed yet, and it may be anything. */
static double limit_of(const Frame *f) {
  const char *at = strstr(f->head, "\"limit_ms\":");
  double ms = at ? strtod(at + strlen("\"limit_ms\":"), NULL) : 0;
  return ms > 0 && ms < 1e12 ? clock_now() + ms * 1e-3 : 1e300;
}

typedef struct {
  RunnerSession **s;
  Err *e;
  Watch *w;
  int in, out;
  bool bad;
} Serve;

static void serve(void *arg) {
  Serve *x = arg;
  Frame f;
  *x->s = runner_session(x->e, x->w->dir);
  for (bool more = true; more;) {
    FrameStatus st = frame_read(x->e, x->in, &f);
    x->bad = st == FRAME_BAD;
    if (st != FRAME_OK) return;
    char *reply;
    const void *data;
    size_t n;
    atomic_store(&x->w->end, limit_of(&f));
    more = runner_answer(*x->s, &f, &reply, &data, &n);
    atomic_store(&x->w->end, 0);
    frame_free(&f);
    if (!frame_write(x->out, reply, data, n)) return;
  }
}

int runner_serve(int in, int out, int dir, const char *made) {
  static Err e; /* of this process: devices raise on it as long as they live */
  static Watch w;
  RunnerSession *s = NULL;
  pthread_t t;
  err_init(&e);
  signal(SIGPIPE, SIG_IGN);
  w.in = in;
  w.dir = dir;
  w.made = made;
  if (pthread_create(&t, NULL, watch, &w) != 0) return BROKEN;
  Serve x = {&s, &e, &w, in, out, false};
  ErrCode c = err_try(&e, serve, &x);
  clear(&w);
  return c != NS_OK || x.bad ? BROKEN
                             : 0; /* the session's memory goes with the process: a driver may hang on freeing it */
}

/* The session's directory: made here, or given. */
static int open_dir(const char *given, char *made) {
  snprintf(made, 256, "%s/nestsmith-runner-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
  const char *path = given ? given : mkdtemp(made);
  if (given) made[0] = 0;
  return path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

/* Programs that print must not write into the replies: these go to a descriptor of their own. */
static int own_output(void) {
  int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (out >= 0) dup2(STDERR_FILENO, STDOUT_FILENO);
  return out;
}

/* --worker TYPE NUMBER: measures, as the worker of a tuner that is elsewhere. */
static int serve_worker(char **argv) {
  int out = own_output(), type = (int)strtol(argv[2], NULL, 10), id = (int)strtol(argv[3], NULL, 10);
  return out < 0 ? BROKEN : bridge_worker(STDIN_FILENO, out, type, id);
}

/* --selftest: what the runner finds on this machine, for whoever puts it on a board. */
static void selftest(void *arg) {
  static const struct {
    DevType type;
    const char *name;
  } KINDS[] = {{DEV_CPU, "cpu"}, {DEV_CUDA, "cuda"}, {DEV_OPENCL, "opencl"}};
  struct utsname u;
  Err *e = arg;
  printf("nestsmith runner, protocol %d, %s\n", RUNNER_VERSION, uname(&u) == 0 ? u.machine : "unknown machine");
  for (int k = 0; k < NS_COUNT(KINDS); k++) {
    char why[512] = "";
    if (!dev_exists(KINDS[k].type, 0, why, sizeof why)) printf("%s: none (%s)\n", KINDS[k].name, why);
    for (int id = 0; dev_exists(KINDS[k].type, id, (char[512]){0}, 512); id++) {
      unsigned char there[256], back[256] = {0};
      for (int i = 0; i < NS_COUNT(there); i++) there[i] = (unsigned char)i;
      Device *d = dev_open(e, KINDS[k].type, id);
      void *p = dev_alloc(d, sizeof there);
      dev_upload(d, p, there, sizeof there);
      dev_download(d, back, p, sizeof back);
      bool ok = memcmp(there, back, sizeof there) == 0;
      printf("%s %d: %s, memory %s\n", KINDS[k].name, id, dev_info(d)->name,
             ok ? "works" : "does not keep what is written");
      dev_free(d, p);
      dev_close(d);
      if (!ok) err_raise(e, NS_ERR_RUNTIME, "%s %d does not keep what is written", KINDS[k].name, id);
    }
  }
}

static int serve_selftest(void) {
  static Err e;
  char made[256];
  err_init(&e);
  int dir = open_dir(NULL, made);
  printf("directory for sessions: %s\n", dir < 0 ? strerror(errno) : "can be made");
  if (dir >= 0) rmdir(made);
  ErrCode c = err_try(&e, selftest, &e);
  if (c != NS_OK) printf("%s\n", e.msg);
  return c == NS_OK && dir >= 0 ? 0 : BROKEN;
}

__attribute__((visibility("default"))) int nestsmith_runner_main(int argc, char **argv) {
  char made[256];
  if (argc == 4 && strcmp(argv[1], "--worker") == 0) return serve_worker(argv);
  if (argc == 2 && strcmp(argv[1], "--selftest") == 0) return serve_selftest();
  const char *given = argc == 3 && strcmp(argv[1], "--dir") == 0 ? argv[2] : NULL;
  if (argc != 1 && !given) {
    fprintf(
        stderr,
        "usage: %s [--dir DIRECTORY | --worker TYPE NUMBER | --selftest]\nserves one session, or a tuner's measuring, "
        "on its standard input and output; --selftest prints what it finds\n",
        argv[0]);
    return BROKEN;
  }
  int dir = open_dir(given, made), out = own_output();
  if (dir < 0 || out < 0) {
    fprintf(stderr, "cannot open a directory for the session: %s\n", strerror(errno));
    return BROKEN;
  }
  signal(SIGINT, SIG_IGN); /* whoever started the runner decides what Ctrl-C means */
  return runner_serve(STDIN_FILENO, out, dir, made[0] ? made : NULL);
}
