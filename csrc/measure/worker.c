/* The tuner's side of the workers: starting, asking, waiting with a deadline, killing, starting again.
 *
 * A worker is a fresh process, never a fork of the tuner: the interpreter in isolated mode runs
 * nestsmith/exec/worker.py, which opens this very library and calls nestsmith_worker_main. The user's script is not
 * imported, whatever it looks like. It takes about 50 ms (plus the creation of a GPU context). A spare one stands by
 * with its context ready: when the working one dies, the spare takes over and another spare starts in the background, so
 * that a death costs milliseconds. */
#include "measure/protocol.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_SECONDS = 60, START_TRIES = 4, DYING = 16, FINAL_SECONDS = 20, DEATH_SECONDS = 5 };
static const int64_t SPARE_BYTES = (int64_t)2 << 30; /* a GPU context takes some hundred MB: no spare if less is free */
static const double REAP_SOON = 0.02, REAP_LATE = 30;

typedef struct {
  Err e;
  Child child;
  int sock;
  char kind;
  int type, id;
  char *const *via;    /* the command that starts the worker elsewhere; NULL: it is here */
  bool ready, refused; /* refused: its last word was that it cannot have the device */
  DevInfo info;
  const atomic_int *stop;
  double cpu_end, wall_end; /* compilers: a deadline that passes counts when one of these has passed too; 0: at once */
} Proc;

/* ---- starting ---- */
static void program_paths(char *self, char *exe, char *script) {
  Dl_info info;
  static const char HERE = 0;
  ssize_t n = readlink("/proc/self/exe", exe, PATH_MAX - 1);
  exe[n > 0 ? n : 0] = 0;
  if (!dladdr(&HERE, &info) || !info.dli_fname || !realpath(info.dli_fname, self)) snprintf(self, PATH_MAX, "%s", exe);
  int dir = (int)(strrchr(self, '/') ? strrchr(self, '/') - self : 0);
  if (snprintf(script, PATH_MAX, "%.*s/exec/worker.py", dir, self) >= PATH_MAX) script[0] = 0;
}

typedef struct {
  Proc *p;
  int fd[2];
  Arena *a;
} Start;

/* python -I -S worker.py engine bridge socket command... */
static char **bridge_command(Arena *a, char *const *module, char *const *via, char *fd) {
  enum { BEFORE = 5 };
  int n = 0;
  while (via[n]) n++;
  char **out = arena_array(a, char *, n + BEFORE + 3);
  for (int i = 0; i < BEFORE; i++) out[i] = module[i];
  out[BEFORE] = arena_strdup(a, "bridge");
  out[BEFORE + 1] = fd;
  for (int i = 0; i < n; i++) out[BEFORE + 2 + i] = via[i];
  return out;
}

static void start_body(void *arg) {
  Start *s = arg;
  char self[PATH_MAX], exe[PATH_MAX], script[PATH_MAX];
  program_paths(self, exe, script);
  const char *base = strrchr(exe, '/'), *asked = getenv("NESTSMITH_PYTHON");
  const char *python = asked && *asked ? asked : base && strncmp(base, "/python", 7) == 0 ? exe : "python3";
  char *kind = arena_printf(s->a, "%c", s->p->kind), *fd = arena_printf(s->a, "%d", s->fd[1]),
       *parent = arena_printf(s->a, "%d", (int)getpid());
  char *type = arena_printf(s->a, "%d", s->p->type), *id = arena_printf(s->a, "%d", s->p->id);
  char *const direct[] = {exe, arena_strdup(s->a, "--nestsmith-worker"), kind, fd, parent, type, id, NULL};
  char *const module[] = {arena_strdup(s->a, python),
                          arena_strdup(s->a, "-I"),
                          arena_strdup(s->a, "-S"),
                          script,
                          self,
                          kind,
                          fd,
                          parent,
                          type,
                          id,
                          NULL};
  char **argv = strcmp(self, exe) == 0 ? (char **)direct : (char **)module;
  if (s->p->via) argv = bridge_command(s->a, module, s->p->via, fd);
  static const char *const SET[] = {
      "OPENBLAS_NUM_THREADS=1"}; /* the worker multiplies no matrices: no threads for it */
  s->p->child = spawn_child(&s->p->e, argv, spawn_environment(s->a, NS_COUNT(SET), SET), s->fd[1]);
}

static bool proc_spawn(Proc *p) {
  Start s = {p, {-1, -1}, NULL};
  bool made = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s.fd) == 0;
  for (int i = 0; i < 2 && made; i++) s.fd[i] = fd_above_streams(s.fd[i]);
  if (s.fd[0] < 0 || s.fd[1] < 0) {
    snprintf(p->e.msg, sizeof p->e.msg, "cannot create a socket pair: %s", strerror(errno));
    for (int i = 0; i < 2; i++)
      if (s.fd[i] >= 0) close(s.fd[i]);
    return false;
  }
  s.a = arena_new(&p->e);
  ErrCode r = err_try(&p->e, start_body, &s);
  arena_free(s.a);
  close(s.fd[1]);
  p->sock = s.fd[0];
  p->ready = false;
  if (r == NS_OK) return true;
  close(p->sock);
  p->sock = -1;
  return false;
}

/* The process is told to go; after_request sees to it that it does. */
static void proc_close(Proc *p) {
  if (p->sock >= 0) close(p->sock);
  p->sock = -1;
  p->ready = false;
}

static void proc_kill(Proc *p) {
  proc_close(p);
  if (p->child.pid > 0) spawn_kill(&p->child);
}

/* Waits for READY; on failure the reason is in e.msg. */
static RecvStatus proc_ready(Proc *p) {
  MsgBody b;
  MsgType type;
  int fd = -1;
  if (p->ready) return RECV_OK;
  p->refused = false;
  if (p->sock < 0 && !proc_spawn(p)) return RECV_CLOSED;
  RecvStatus s = proto_recv(p->sock, &type, &b, &fd, clock_now() + START_SECONDS, p->stop);
  if (fd >= 0) close(fd);
  if (s == RECV_OK) {
    b.ready.msg[sizeof b.ready.msg - 1] = 0;
    b.ready.info.name[sizeof b.ready.info.name - 1] = 0;
  }
  if (s == RECV_OK && type == MSG_READY && b.ready.ok) {
    p->info = b.ready.info;
    p->ready = true;
    return RECV_OK;
  }
  p->refused = s == RECV_OK && type == MSG_READY;
  if (p->refused)
    snprintf(p->e.msg, sizeof p->e.msg, "%s", b.ready.msg);
  else
    snprintf(p->e.msg, sizeof p->e.msg, "the worker process %s",
             s == RECV_TIMEOUT   ? "did not start within a minute"
             : s == RECV_STOPPED ? "was stopped"
                                 : "ended while starting; see `python -m nestsmith.doctor`");
  proc_kill(p);
  return s == RECV_OK ? RECV_CLOSED : s;
}

/* What a worker sends is taken for nothing but bytes: a candidate that ran wild in it may have written them. */
static bool sane_result(RunResult *r) {
  r->cause[sizeof r->cause - 1] = 0;
  r->msg[sizeof r->msg - 1] = 0;
  if (r->error < ME_OK || r->error > ME_UNKNOWN || r->n_costs < 0 || r->n_costs > MSR_MAX_COSTS) return false;
  for (int i = 0; i < r->n_costs; i++)
    if (!(isfinite(r->cost[i]) && r->cost[i] >= 0)) return false;
  return (r->error != ME_OK || r->n_costs > 0) && isfinite(r->quick) && isfinite(r->seconds);
}

static bool sane_finals(MsgFinals *f, int n) {
  f->msg[sizeof f->msg - 1] = 0;
  for (int i = 0; i < n && f->ok; i++) {
    if (f->r[i].passes < 1 || f->r[i].passes > PASSES) return false;
    for (int k = 0; k < f->r[i].passes; k++)
      if (!(isfinite(f->r[i].pass[k]) && f->r[i].pass[k] >= 0)) return false;
  }
  return true;
}

static bool sane_answer(MsgType asked, const void *question, MsgType got, MsgBody *b) {
  switch (asked) {
  case MSG_RUN: return got == MSG_RESULT && b->result.id == ((const MsgRun *)question)->id && sane_result(&b->result.r);
  case MSG_FINAL: return got == MSG_FINALS && sane_finals(&b->finals, ((const MsgFinal *)question)->n);
  case MSG_MAKE: b->made.msg[sizeof b->made.msg - 1] = 0; return got == MSG_MADE;
  case MSG_CANARY:
    return got == MSG_TIMES && b->times.n >= 0 && b->times.n <= CANARY_MAX && (b->times.n == 0 || b->times.pace > 0);
  default:
    b->binary.msg[sizeof b->binary.msg - 1] = 0;
    return got == MSG_BINARY && b->binary.code >= ME_OK && b->binary.code <= ME_UNKNOWN;
  }
}

static void proc_end(Proc *p) { (p->kind == 'm' ? proc_close : proc_kill)(p); }

/* Sends a request and waits for the answer, and for the file that comes with it (answer_fd NULL: none). A worker that
 * dies, answers nonsense or does not answer in time is killed; text says how it went. */
static RecvStatus proc_ask(Proc *p, MsgType type, const void *body, size_t n, int fd, MsgBody *answer, int *answer_fd,
                           double deadline, char text[MSR_MSG]) {
  MsgType got = MSG_NONE;
  int came = -1;
  bool frozen = false, beat = true;
  RecvStatus s = proto_send(p->sock, type, body, n, fd) ? RECV_OK : RECV_CLOSED;
  while (s == RECV_OK && beat) {
    double silent = clock_now() + SILENT_SECONDS;
    frozen = p->kind == 'm' && silent < deadline; /* a compiler does not beat */
    s = proto_recv(p->sock, &got, answer, &came, frozen ? silent : deadline, p->stop);
    beat = got == MSG_BEAT;
    if (s == RECV_TIMEOUT && p->cpu_end > 0 && clock_now() < p->wall_end &&
        spawn_cpu_seconds(p->child.pid) < p->cpu_end) {
      deadline = clock_now() + 1; /* the machine is busy with other things: a compiler's limit is processor time */
      s = RECV_OK, beat = true;
    }
  }
  bool good = s == RECV_OK && sane_answer(type, body, got, answer);
  if (good && answer_fd) {
    *answer_fd = came;
    return s;
  }
  if (came >= 0) close(came);
  if (good) return s;
  if (s == RECV_TIMEOUT && frozen) {
    s = RECV_CLOSED;
    snprintf(text, MSR_MSG, "worker died (frozen: it has given no sign of life for %g s)", SILENT_SECONDS);
  } else if (s == RECV_OK || s == RECV_GARBAGE) {
    s = RECV_CLOSED;
    snprintf(text, MSR_MSG, "worker died (its answer makes no sense)");
  } else if (s == RECV_CLOSED) {
    int status = p->child.pid > 0 ? spawn_wait(&p->child, DEATH_SECONDS) : 0;
    if (status > 0 && WIFSIGNALED(status))
      snprintf(text, MSR_MSG, "worker died (signal %d, %s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (status >= 0)
      snprintf(text, MSR_MSG, "worker died (exit status %d)", WEXITSTATUS(status));
    else
      snprintf(text, MSR_MSG, "worker died (closed its connection)");
  } else {
    snprintf(text, MSR_MSG, s == RECV_STOPPED ? "stopped" : "no answer before the deadline");
  }
  proc_end(p);
  return s;
}

static void proc_init(Proc *p, char kind, int type, int id) {
  memset(p, 0, sizeof *p);
  err_init(&p->e);
  p->kind = kind;
  p->type = type;
  p->id = id;
  p->sock = -1;
  p->child = NO_CHILD;
}

/* ---- task data ---- */
/* The parts of a memory file with these arguments, and where each begins. At most two parts for each. */
static int lay_out(int n_args, const size_t *bytes, const void *const *data, uint64_t *offset, uint64_t *total,
                   const void **part, size_t *len) {
  static const char ZEROS[64] = {0};
  int n = 0;
  *total = 0;
  for (int i = 0; i < n_args; i++) {
    offset[i] = *total;
    if (!data[i]) continue;
    part[n] = data[i];
    len[n++] = bytes[i];
    part[n] = ZEROS; /* so that each starts at a multiple of 64 */
    len[n] = (64 - bytes[i] % 64) % 64;
    *total += bytes[i] + len[n++];
  }
  return n;
}

TaskData *task_data_new(Err *e, int n_args, const size_t *bytes, const void *const *data, const bool *is_output,
                        const char *const *dtype, const bool *exact) {
  err_check(e, n_args >= 1 && n_args <= MSR_MAX_ARGS, "a task has %d arguments, allowed are 1 to %d", n_args,
            MSR_MAX_ARGS);
  TaskData *t = calloc(1, sizeof *t);
  if (!t) err_raise(e, NS_ERR_MEMORY, "out of memory preparing a task");
  const void *part[2 * MSR_MAX_ARGS];
  size_t len[2 * MSR_MAX_ARGS];
  uint64_t offset[MSR_MAX_ARGS];
  int n = lay_out(n_args, bytes, data, offset, &t->msg.total, part, len);
  t->msg.n_args = n_args;
  for (int i = 0; i < n_args; i++) {
    MsgArg *a = &t->msg.arg[i];
    a->bytes = bytes[i];
    a->offset = offset[i];
    a->has_data = data[i] != NULL;
    a->is_output = is_output[i];
    a->exact = exact && exact[i];
    snprintf(a->dtype, sizeof a->dtype, "%s", dtype[i]);
  }
  t->fd = memfile_new(part, len, n);
  if (t->fd < 0) {
    unsigned long long total = t->msg.total;
    free(t);
    err_raise(e, NS_ERR_MEMORY, "cannot create shared memory for a task's data (%llu bytes): %s", total,
              strerror(errno));
  }
  return t;
}

void task_data_free(TaskData *t) {
  if (!t) return;
  close(t->fd);
  free(t);
}

/* ---- the measuring worker ---- */
struct Worker {
  Proc p, spare;
  bool want_spare;
  const TaskData *task[MSR_SLOTS];
  bool sent[MSR_SLOTS];
  Child dying[DYING]; /* killed and not gone yet: a driver may take seconds to clear up behind an endless kernel */
  int n_dying;
  WorkerStats stats;
  uint64_t asked;
  int made; /* fork_count */
};

static void reap(Worker *w, double wait) {
  int left = 0;
  for (int i = 0; i < w->n_dying; i++)
    if (spawn_wait(&w->dying[i], wait) < 0) w->dying[left++] = w->dying[i];
  w->n_dying = left;
}

/* Ends the working process without waiting for its end. */
static void let_die(Worker *w) {
  Proc *p = &w->p;
  spawn_signal_kill(&p->child);
  if (p->child.pid > 0) {
    reap(w, 0);
    if (spawn_wait(&p->child, REAP_SOON) < 0 && w->n_dying < DYING) {
      w->dying[w->n_dying++] = p->child;
      p->child.pid = 0;
    }
  }
  proc_kill(p);
}

static void start_spare(Worker *w) {
  if (!w->want_spare || w->spare.sock >= 0) return;
  const atomic_int *stop = w->p.stop;
  char *const *via = w->p.via;
  proc_init(&w->spare, 'm', w->p.type, w->p.id);
  w->spare.stop = stop;
  w->spare.via = via;
  proc_spawn(&w->spare); /* without a spare a death takes longer, no more */
}

/* On a CPU a starting process would disturb what is being measured: it is waited for. */
static void settle_spare(Worker *w) {
  if (w->p.type == DEV_CPU && w->spare.sock >= 0 && !w->spare.ready) proc_ready(&w->spare);
}

/* A process that is killed while it starts gets a successor; one that says why it cannot work does not. */
static bool start_first(Worker *w, const atomic_int *stop) {
  RecvStatus r = RECV_CLOSED;
  w->p.stop = stop;
  for (int i = 0; i < START_TRIES && r == RECV_CLOSED && !w->p.refused; i++) r = proc_ready(&w->p);
  w->p.stop = NULL;
  return r == RECV_OK;
}

Worker *worker_start(Err *e, DevType t, int id) { return worker_start_by(e, t, id, NULL); }

Worker *worker_start_by(Err *e, DevType t, int id, char *const *via) {
  Worker *w = calloc(1, sizeof *w);
  if (!w) err_raise(e, NS_ERR_MEMORY, "out of memory starting a worker");
  w->made = fork_count();
  proc_init(&w->p, 'm', (int)t, id);
  proc_init(&w->spare, 'm', (int)t, id);
  w->p.via = via;
  if (!start_first(w, e->interrupt)) {
    char why[MSR_MSG];
    snprintf(why, sizeof why, "%.500s", w->p.e.msg);
    worker_stop(w);
    err_poll(e);
    err_raise(e, NS_ERR_RUNTIME, "cannot start a measuring worker: %s", why);
  }
  w->want_spare = !via && (t != DEV_CUDA || w->p.info.free_bytes >= SPARE_BYTES);
  start_spare(w);
  return w;
}

void worker_stop(Worker *w) {
  if (!w || w->made != fork_count()) return;
  proc_kill(&w->p);
  proc_kill(&w->spare);
  reap(w, REAP_LATE);
  free(w);
}

const DevInfo *worker_info(const Worker *w) { return &w->p.info; }
int worker_pid(const Worker *w) { return w->p.child.pid; }
WorkerStats worker_stats(const Worker *w) { return w->stats; }
void worker_stop_flag(Worker *w, const atomic_int *flag) { w->p.stop = w->spare.stop = flag; }

void worker_task(Worker *w, int slot, const TaskData *t) {
  if (slot < 0 || slot >= MSR_SLOTS || w->task[slot] == t) return;
  w->task[slot] = t;
  w->sent[slot] = false;
}

static bool stopped(const Worker *w) { return w->p.stop && *w->p.stop; }

static void nap(Worker *w, double seconds) {
  for (double end = clock_now() + seconds; clock_now() < end && !stopped(w);)
    nanosleep(&(struct timespec){0, 50000000}, NULL);
}

/* The spare takes the place of a worker that is gone. */
static void promote(Worker *w) {
  memset(w->sent, 0, sizeof w->sent);
  let_die(w);
  if (w->spare.sock < 0) return;
  DevInfo info = w->p.info;
  w->stats.spares++;
  w->p = w->spare;
  if (!w->p.ready) w->p.info = info;
  proc_init(&w->spare, 'm', w->p.type, w->p.id);
  w->spare.stop = w->p.stop;
}

/* A GPU that was left by a killed process may need a moment: 1, 2, 4 s between tries. */
static bool ensure_ready(Worker *w) {
  double begin = clock_now();
  bool was_there = w->p.sock >= 0;
  for (int i = 0; i < START_TRIES; i++) {
    if (w->p.sock < 0) promote(w);
    RecvStatus s = proc_ready(&w->p);
    if (s == RECV_OK) {
      double took = clock_now() - begin;
      if (!was_there && took > w->stats.longest_recovery) w->stats.longest_recovery = took;
      start_spare(w);
      settle_spare(w);
      return true;
    }
    if (s == RECV_STOPPED) return false;
    if (i + 1 < START_TRIES && w->spare.sock < 0) nap(w, (double)(1 << i));
  }
  return false;
}

/* After a request: if the worker is gone, the next one is made ready while the tuner goes on. */
static void after_request(Worker *w) {
  reap(w, 0);
  if (w->p.sock >= 0 || stopped(w)) return;
  w->stats.deaths++;
  promote(w);
  if (w->p.sock < 0) proc_spawn(&w->p);
}

static RunResult failure(MeasureError e, const char *msg, double start) {
  RunResult r = {.seconds = clock_now() - start};
  run_failed(&r, e, msg);
  return r;
}

/* Makes sure that a worker is there and has the task's data. False: text says why not. */
static bool prepare(Worker *w, int slot, char text[MSR_MSG]) {
  if (!ensure_ready(w)) {
    snprintf(text, MSR_MSG, "device-lost: %.480s", w->p.e.msg);
    return false;
  }
  if (w->sent[slot]) return true;
  MsgTask t = w->task[slot]->msg;
  t.slot = slot;
  if (!proto_send(w->p.sock, MSG_TASK, &t, sizeof t, w->task[slot]->fd)) {
    proc_close(&w->p);
    snprintf(text, MSR_MSG, "worker died before the candidate was sent");
    return false;
  }
  w->sent[slot] = true;
  return true;
}

static RunResult try_run(Worker *w, int slot, int fd, const MsgRun *q) {
  double start = clock_now();
  char text[MSR_MSG] = "";
  MsgBody b;
  if (!prepare(w, slot, text)) return failure(ME_UNKNOWN, text, start);
  start = clock_now();
  RecvStatus s = proc_ask(&w->p, MSG_RUN, q, sizeof *q, fd, &b, NULL, start + q->policy.timeout_s + 2, text);
  if (s == RECV_OK) {
    if (b.result.dying) proc_close(&w->p);
    return b.result.r;
  }
  if (s == RECV_TIMEOUT)
    snprintf(text, sizeof text, "the program ran longer than the limit of %g s (timeout= of the runner)",
             q->policy.timeout_s);
  return failure(s == RECV_TIMEOUT ? ME_RUN_TIMEOUT : s == RECV_STOPPED ? ME_UNKNOWN : ME_RUNTIME_DEVICE, text, start);
}

RunResult worker_run(Worker *w, int slot, const void *binary, size_t n, const char *manifest, const RunPolicy *p) {
  double start = clock_now();
  if (slot < 0 || slot >= MSR_SLOTS || !w->task[slot])
    return failure(ME_UNKNOWN, "no task was set for this worker", start);
  MsgRun q = {++w->asked, slot, *p, n, strlen(manifest)};
  if (!(q.policy.timeout_s > 0)) q.policy.timeout_s = 10;
  const void *part[3] = {binary, manifest, ""};
  const size_t len[3] = {n, strlen(manifest), 1};
  int fd = memfile_new(part, len, 3);
  if (fd < 0) return failure(ME_RUNTIME_DEVICE, "out of memory passing a program to the worker", start);
  RunResult r = try_run(w, slot, fd, &q);
  if (r.error == ME_RUNTIME_DEVICE && strcmp(r.msg, "evicted") == 0) { /* another task needed the memory */
    w->sent[slot] = false;
    r = try_run(w, slot, fd, &q);
  } else if (r.error == ME_UNKNOWN && strstr(r.msg, "before the candidate was sent")) {
    after_request(w);
    r = try_run(w, slot, fd, &q);
  }
  close(fd);
  after_request(w);
  return r;
}

bool worker_final(Worker *w, int slot, int n, const RunProgram *p, const RunPolicy *policy, uint64_t seed, int keep,
                  FinalResult *out, char why[MSR_MSG]) {
  MsgFinal q = {.slot = slot, .n = n, .keep = keep, .policy = *policy, .seed = seed};
  const void *part[3 * FINAL_MAX];
  size_t len[3 * FINAL_MAX];
  why[0] = 0;
  if (!(q.policy.timeout_s > 0)) q.policy.timeout_s = 10;
  for (int i = 0; i < n; i++) {
    q.n_binary[i] = p[i].n;
    q.n_manifest[i] = strlen(p[i].manifest);
    part[3 * i] = p[i].binary, len[3 * i] = p[i].n;
    part[3 * i + 1] = p[i].manifest, len[3 * i + 1] = strlen(p[i].manifest);
    part[3 * i + 2] = "", len[3 * i + 2] = 1;
  }
  int fd = memfile_new(part, len, 3 * n);
  MsgBody b;
  bool ok = fd >= 0 && prepare(w, slot, why);
  if (ok)
    ok = proc_ask(&w->p, MSG_FINAL, &q, sizeof q, fd, &b, NULL, clock_now() + q.policy.timeout_s * n + FINAL_SECONDS,
                  why) == RECV_OK;
  if (fd >= 0) close(fd);
  if (ok && b.finals.dying) proc_close(&w->p);
  if (ok && !b.finals.ok) snprintf(why, MSR_MSG, "%s", b.finals.msg);
  ok = ok && b.finals.ok;
  if (ok) memcpy(out, b.finals.r, sizeof *out * (size_t)n);
  after_request(w);
  return ok;
}

int worker_canary(Worker *w, double warm_s, int n, double *out, double *pace) {
  MsgCanary q = {warm_s, n < CANARY_MAX ? n : CANARY_MAX};
  char text[MSR_MSG];
  MsgBody b;
  if (!ensure_ready(w)) return -1;
  RecvStatus s = proc_ask(&w->p, MSG_CANARY, &q, sizeof q, -1, &b, NULL, clock_now() + warm_s + FINAL_SECONDS, text);
  if (s == RECV_OK && b.times.dying) proc_close(&w->p);
  after_request(w);
  if (s != RECV_OK) return -1;
  memcpy(out, b.times.seconds, sizeof *out * (size_t)b.times.n);
  *pace = b.times.pace;
  return b.times.n;
}

/* ---- one run for the outputs ---- */
static bool read_back(int fd, int n_args, const size_t *bytes, const uint64_t *offset, void *const *data) {
  for (int i = 0; i < n_args; i++)
    if (lseek(fd, (off_t)offset[i], SEEK_SET) < 0 || !fd_read(fd, data[i], bytes[i])) return false;
  return true;
}

void worker_compute(Err *e, int n_args, const size_t *bytes, void *const *data, const void *binary, size_t n,
                    const char *manifest) {
  MsgMake q = {.n_args = n_args, .n_binary = n, .n_manifest = strlen(manifest)};
  const void *part[2 * MSR_MAX_ARGS + 2];
  size_t len[2 * MSR_MAX_ARGS + 2];
  char why[MSR_MSG] = "out of memory";
  MsgBody b;
  Proc p;
  int k = lay_out(n_args, bytes, (const void *const *)data, q.offset, &q.total, part, len);
  part[k] = binary, len[k++] = n;
  part[k] = manifest, len[k++] = q.n_manifest + 1;
  proc_init(&p, 'r', DEV_CPU, 0);
  p.stop = e->interrupt;
  int fd = memfile_new(part, len, k);
  bool ok = fd >= 0;
  if (ok && !(ok = proc_ready(&p) == RECV_OK)) snprintf(why, sizeof why, "%.500s", p.e.msg);
  if (ok) ok = proc_ask(&p, MSG_MAKE, &q, sizeof q, fd, &b, NULL, 1e18, why) == RECV_OK;
  if (ok && !(ok = b.made.ok)) snprintf(why, sizeof why, "%s", b.made.msg);
  ok = ok && read_back(fd, n_args, bytes, q.offset, data);
  if (fd >= 0) close(fd);
  proc_kill(&p);
  if (ok) return;
  err_poll(e);
  err_raise(e, NS_ERR_RUNTIME, "the program did not run: %s", why);
}

/* ---- the compile worker ---- */
struct Compiler {
  Proc p;
};

Compiler *compiler_start(Err *e) {
  Compiler *c = calloc(1, sizeof *c);
  if (!c) err_raise(e, NS_ERR_MEMORY, "out of memory starting a compiler");
  proc_init(&c->p, 'c', 0, 0);
  return c;
}

void compiler_stop(Compiler *c) {
  if (!c) return;
  proc_kill(&c->p);
  free(c);
}

void compiler_stop_flag(Compiler *c, const atomic_int *flag) { c->p.stop = flag; }

typedef struct {
  Arena *a;
  const Target *t;
  const char *source;
  const BuildOptions *o;
  Binary out;
} Here;
ERR_BODY(build_here, Here *h, h->out = build_binary(h->a, h->t, h->source, h->o))

static MeasureError compile_here(Compiler *c, Arena *a, const Target *t, const char *source, const BuildOptions *o,
                                 Binary *out, char msg[MSR_MSG]) {
  Here h = {a, t, source, o, {0}};
  Err *e = arena_err(a);
  const atomic_int *old = e->interrupt;
  e->interrupt = c->p.stop;
  ErrCode r = err_try(e, build_here, &h);
  e->interrupt = old;
  *out = h.out;
  if (r == NS_OK) return ME_OK;
  snprintf(msg, MSR_MSG, "%.500s", e->msg);
  return strncmp(msg, "timed out", 9) == 0 ? ME_BUILD_TIMEOUT : ME_COMPILE_HOST;
}

typedef struct {
  Arena *a;
  Binary *out;
  void *map;
  size_t n;
} Take;
static void take_binary(void *arg) {
  Take *t = arg;
  t->out->data = arena_copy(t->a, t->map, t->n);
  t->out->n = t->n;
}

static MeasureError receive(Arena *a, MsgBinary *b, int fd, Binary *out, char msg[MSR_MSG]) {
  if (b->code != ME_OK) {
    snprintf(msg, MSR_MSG, "%s", b->msg);
    return (MeasureError)b->code;
  }
  Take t = {a, out, memfile_map(fd, (size_t)b->n), (size_t)b->n};
  bool ok = t.map && err_try(arena_err(a), take_binary, &t) == NS_OK;
  if (t.map) munmap(t.map, t.n ? t.n : 1);
  out->seconds = b->seconds;
  out->cached = b->cached;
  if (!ok) snprintf(msg, MSR_MSG, "out of memory receiving a program of %llu bytes", (unsigned long long)b->n);
  return ok ? ME_OK : ME_COMPILE_HOST;
}

MeasureError compiler_run(Compiler *c, Arena *a, const Target *t, const char *source, const BuildOptions *o,
                          Binary *out, char msg[MSR_MSG]) {
  msg[0] = 0;
  if (t->kind != TG_CUDA) return compile_here(c, a, t, source, o, out, msg);
  if (build_recall(a, t, source, o, out)) return ME_OK;
  double limit = o && o->timeout_s > 0 ? o->timeout_s : 3600;
  MsgCompile q = {.target = *t, .n_source = strlen(source), .timeout_s = limit, .default_cache = !o || !o->cache_dir};
  if (!q.default_cache) snprintf(q.cache_dir, sizeof q.cache_dir, "%s", o->cache_dir);
  if (proc_ready(&c->p) != RECV_OK) {
    snprintf(msg, MSR_MSG, "%.500s", c->p.e.msg);
    return ME_COMPILE_HOST;
  }
  const void *part[1] = {source};
  const size_t len[1] = {strlen(source) + 1};
  int fd = memfile_new(part, len, 1), got = -1;
  MsgBody b;
  int pid = c->p.child.pid;
  double used = spawn_cpu_seconds(pid);
  c->p.cpu_end = (used > 0 ? used : 0) + limit;
  c->p.wall_end = clock_now() + BUILD_WALL_FACTOR * limit;
  RecvStatus s =
      fd < 0 ? RECV_CLOSED : proc_ask(&c->p, MSG_COMPILE, &q, sizeof q, fd, &b, &got, clock_now() + limit, msg);
  if (fd >= 0) close(fd);
  if (s != RECV_OK) build_clean(a, o, pid);
  MeasureError r = s == RECV_OK        ? receive(a, &b.binary, got, out, msg)
                   : s == RECV_TIMEOUT ? ME_BUILD_TIMEOUT
                                       : ME_COMPILE_HOST;
  if (s == RECV_TIMEOUT) snprintf(msg, MSR_MSG, "timed out: NVRTC took longer than %g s", limit);
  if (got >= 0) close(got);
  if (r == ME_OK) build_remember(a, t, source, o, out);
  return r;
}
