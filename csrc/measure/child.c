/* The worker process. It waits for requests, runs one candidate at a time and answers; it runs no Python beyond the few
 * lines that started it. Whatever a candidate does to this process (a crash, an endless loop, a broken GPU context) the
 * tuner survives: it sees the socket close or the deadline pass, and starts another worker.
 *
 * A second thread watches the socket and the parent: when the tuner is gone, for whatever reason, it removes what the
 * tuner could not remove any more and kills the whole process group, so that even an endless kernel does not outlive the
 * tuner. While the first thread works it also tells the tuner that the process is alive. */
#include "measure/protocol.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { GUARD = 4096 }; /* bytes behind each output that a kernel must leave alone */
typedef struct {
  bool used;
  bool dirty; /* a program that misbehaved may have written into the inputs: they are sent again before the next run */
  MsgTask desc;
  char *map;
  void *buf[MSR_MAX_ARGS];
  bool relaid[MSR_MAX_ARGS]; /* holds the data in the layout of the last program */
  char error[MSR_MSG];
} Slot;
typedef struct {
  Err e;
  int sock;
  pid_t parent;
  atomic_bool busy;
  pthread_mutex_t leaving; /* whichever thread has it ends the process: it is never given back */
  Device *dev;
  Slot slot[MSR_SLOTS];
} Serving;

typedef struct {
  Err e;
  Arena *a;
  pid_t parent;
} Clean;
static void clean_cache(void *arg) {
  Clean *c = arg;
  c->a = arena_new(&c->e);
  build_clean(c->a, NULL, (int)c->parent);
  build_clean(c->a, NULL, (int)getpid());
}

/* The connection is closed: the process ends, and its group with it. If the tuner is gone, too, what it left is removed first. It
 * may be well and only end this worker, which then must not linger, or its socket may close a moment before it has let go of
 * everything else: half a second tells them apart. A tuner that takes longer to die leaves files that the next one removes
 * (tmpdir_new, the cache's own sweep). Both threads come here; the second one must not end what the first is removing. */
static NS_NORETURN void follow_tuner(Serving *s) {
  Clean c = {.parent = s->parent};
  pthread_mutex_lock(&s->leaving);
  shutdown(s->sock, SHUT_RDWR);
  for (int i = 0; i < 100 && getppid() == s->parent; i++) nanosleep(&(struct timespec){0, 5000000}, NULL);
  if (getppid() != s->parent) {
    tmpdir_sweep();
    err_init(&c.e);
    err_try(&c.e, clean_cache, &c);
  }
  kill(0, SIGKILL); /* no destructors: a driver's may hang on a broken context */
  _exit(1);
}

static void *watch_parent(void *arg) {
  Serving *s = arg;
  for (;;) {
    struct pollfd p = {s->sock, POLLRDHUP, 0};
    int r = poll(&p, 1, (int)(BEAT_SECONDS * 1000));
    if (r == 0 && atomic_load(&s->busy)) proto_beat(s->sock);
    if ((r > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL))) || getppid() != s->parent) follow_tuner(s);
  }
}

/* ---- task data ---- */
static void slot_clear(Serving *c, Slot *s) {
  for (int i = 0; s->used && i < s->desc.n_args; i++)
    if (s->buf[i]) dev_free(c->dev, s->buf[i]);
  if (s->map) munmap(s->map, s->desc.total ? s->desc.total : 1);
  memset(s, 0, sizeof *s);
}

static size_t room(const MsgArg *a) { return (size_t)a->bytes + (a->is_output ? GUARD : 0); }

/* An input for which nobody has data: numbers from 1 to 10, for zeros cost less than others. Integers may be indices: 0. */
static void fill_input(Serving *c, void *buf, const MsgArg *a) {
  Device *d = c->dev;
  dev_fill(d, buf, 0, room(a));
  bool wide = !strcmp(a->dtype, "float64"), single = !strcmp(a->dtype, "float32"),
       brain = !strcmp(a->dtype, "bfloat16");
  if (!wide && !single && !brain && strcmp(a->dtype, "float16")) return;
  size_t size = wide ? 8 : single ? 4 : 2;
  uint8_t *data = mem_alloc(&c->e, (size_t)a->bytes + 1);
  Rng r;
  rng_seed(&r, 1);
  for (size_t at = 0; at + size <= (size_t)a->bytes; at += size) {
    double v = 1 + 9 * rng_unit(&r);
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    /* 1 to 10 needs no care for the ends of half precision's range */
    uint16_t half = (uint16_t)(brain ? bits >> 16 : ((bits >> 23) - 112) << 10 | (bits >> 13 & 0x3ff));
    memcpy(data + at, wide ? (void *)&v : single ? (void *)&f : (void *)&half, size);
  }
  dev_upload(d, buf, data, (size_t)a->bytes);
  dev_sync(d);
  free(data);
}

typedef struct {
  Serving *c;
  Slot *s;
} Fill;
static void fill_slot(void *arg) {
  Fill *f = arg;
  f->s->dirty = false;
  memset(f->s->relaid, 0, sizeof f->s->relaid);
  for (int i = 0; i < f->s->desc.n_args; i++) {
    const MsgArg *a = &f->s->desc.arg[i];
    if (!f->s->buf[i]) f->s->buf[i] = dev_alloc(f->c->dev, room(a));
    if (!a->is_output && a->has_data)
      dev_upload(f->c->dev, f->s->buf[i], f->s->map + a->offset, (size_t)a->bytes);
    else if (!a->is_output)
      fill_input(f->c, f->s->buf[i], a);
  }
  dev_sync(f->c->dev);
}

static void take_task(Serving *c, const MsgTask *t, int fd) {
  Slot *s = &c->slot[t->slot];
  slot_clear(c, s);
  s->desc = *t;
  s->used = true;
  s->map = memfile_map(fd, (size_t)t->total);
  if (!s->map) {
    snprintf(s->error, sizeof s->error, "cannot map the task's data (%llu bytes): out of memory",
             (unsigned long long)t->total);
    return;
  }
  Fill f = {c, s};
  ErrCode r = err_try(&c->e, fill_slot, &f);
  if (r == NS_ERR_MEMORY) { /* make room: other tasks' buffers are sent again when they are needed */
    for (int i = 0; i < MSR_SLOTS; i++)
      if (i != t->slot && c->slot[i].used) {
        slot_clear(c, &c->slot[i]);
        snprintf(c->slot[i].error, sizeof c->slot[i].error, "evicted");
      }
    r = err_try(&c->e, fill_slot, &f);
  }
  if (r != NS_OK) snprintf(s->error, sizeof s->error, "%.500s", c->e.msg);
}

/* ---- one candidate ---- */
typedef struct {
  Serving *c;
  const MsgRun *q;
  const char *binary, *manifest;
  RunResult *r;
  DevModule *m;
  Arena *a;
  double start;
  MeasureError stage;
  bool strayed; /* it wrote where it may not */
} Run;

static void check_arguments(Run *x, const Slot *s) {
  const Manifest *man = dev_manifest(x->m);
  if (man->n_args != s->desc.n_args)
    err_raise(&x->c->e, NS_ERR_VALUE, "the program has %d arguments, the task %d", man->n_args, s->desc.n_args);
  for (int i = 0; i < man->n_args; i++)
    if ((uint64_t)man->arg[i].bytes != s->desc.arg[i].bytes)
      err_raise(&x->c->e, NS_ERR_VALUE, "argument %d (%s) has %lld bytes in the program, %llu in the task", i,
                man->arg[i].name, (long long)man->arg[i].bytes, (unsigned long long)s->desc.arg[i].bytes);
}

/* Constant inputs in the layout that this program wants them in; what an earlier program wanted is undone. */
static void lay_out_inputs(Run *x, Slot *s) {
  const Manifest *man = dev_manifest(x->m);
  for (int i = 0; i < man->n_args; i++) {
    const MsgArg *a = &s->desc.arg[i];
    const ManBuffer *b = &man->arg[i];
    if (a->is_output || !a->has_data || (!b->layout && !s->relaid[i])) continue;
    const void *data = s->map + a->offset;
    if (b->layout) {
      int64_t old, now;
      if (!relayout_sizes(b->layout, &old, &now) || old <= 0 || old != now || (int64_t)a->bytes % old)
        err_raise(&x->c->e, NS_ERR_VALUE, "argument %d (%s): the layout does not fit the task's data", i, b->name);
      void *made = arena_alloc(x->a, (size_t)a->bytes);
      relayout_copy(b->layout, (int64_t)a->bytes / old, data, made);
      data = made;
    }
    dev_upload(x->c->dev, s->buf[i], data, (size_t)a->bytes);
    dev_sync(x->c->dev);
    s->relaid[i] = b->layout != NULL;
  }
}

NS_PRINTF(2, 3) static void wrong(Run *x, const char *fmt, ...) {
  x->r->error = ME_WRONG_ANSWER;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(x->r->msg, sizeof x->r->msg, fmt, ap);
  va_end(ap);
}

static void check_output(Run *x, Slot *s, int i) {
  const MsgArg *a = &s->desc.arg[i];
  const char *name = dev_manifest(x->m)->arg[i].name;
  char *got = arena_alloc(x->a, room(a));
  dev_download(x->c->dev, got, s->buf[i], room(a));
  for (int k = 0; k < GUARD; k++)
    if ((unsigned char)got[a->bytes + (uint64_t)k] != 0xff) {
      wrong(x, "the program writes behind the end of argument %d (%s), at byte +%d", i, name, k);
      x->strayed = true;
      return;
    }
  if (!a->has_data) return;
  double d = (a->exact ? outputs_unequal : outputs_differ)(a->dtype, got, s->map + a->offset, (size_t)a->bytes);
  if (d > x->r->max_error) x->r->max_error = d;
  if (!(d <= 1) && a->exact)
    wrong(x, "output %d (%s) differs from the reference, which every order of operations gives exactly", i, name);
  else if (!(d <= 1))
    wrong(x, "output %d (%s) differs from the reference by %.3g times the tolerance", i, name, d);
}

/* One run from fresh outputs, and the comparison with the reference. */
static void run_and_check(Run *x, Slot *s) {
  Device *d = x->c->dev;
  x->r->error = ME_OK;
  if (x->q->policy.check) lay_out_inputs(x, s);
  for (int i = 0; i < s->desc.n_args; i++)
    if (s->desc.arg[i].is_output) dev_fill(d, s->buf[i], 0xff, room(&s->desc.arg[i]));
  dev_run(x->m, s->buf);
  dev_sync(d);
  for (int i = 0; x->q->policy.check && x->r->error == ME_OK && i < s->desc.n_args; i++)
    if (s->desc.arg[i].is_output) check_output(x, s, i);
}

static void run_body(void *arg) {
  Run *x = arg;
  Slot *s = &x->c->slot[x->q->slot];
  Device *d = x->c->dev;
  Fill fresh = {x->c, s};
  bool old_inputs = !s->dirty;
  x->stage = ME_COMPILE_DEVICE;
  x->m = dev_load(d, x->binary, (size_t)x->q->n_binary, x->manifest);
  dev_made_up(x->m);
  x->stage = ME_RUNTIME_DEVICE;
  check_arguments(x, s);
  if (s->dirty) fill_slot(&fresh);
  if (dev_manifest(x->m)->n_kernels > 0) dev_regs(x->m, 0, &x->r->regs, &x->r->local_bytes, &x->r->shared_bytes);
  run_and_check(x, s);
  if (x->r->error == ME_WRONG_ANSWER && old_inputs && !x->strayed) { /* was it an earlier one that wrote into them? */
    fill_slot(&fresh);
    x->r->max_error = 0;
    x->r->msg[0] = 0;
    run_and_check(x, s);
  }
  if (x->r->error != ME_OK) return;
  time_policy(x->m, s->buf, &x->q->policy, x->start + 0.8 * x->q->policy.timeout_s, x->r);
  dev_sync(d);
}

static void unload_body(void *m) { dev_unload(m); }

static void answer_run(Serving *c, const MsgRun *q, int fd) {
  MsgResult out = {.id = q->id};
  Slot *s = &c->slot[q->slot];
  double start = clock_now();
  size_t n = (size_t)(q->n_binary + q->n_manifest + 1);
  char *data = memfile_map(fd, n);
  Run x = {c, q, data, data ? data + q->n_binary : NULL, &out.r, NULL, NULL, start, ME_RUNTIME_DEVICE, false};
  if (!data || s->error[0]) {
    out.r.error = ME_RUNTIME_DEVICE;
    snprintf(out.r.msg, sizeof out.r.msg, "%s", data ? s->error : "cannot map the candidate's program: out of memory");
  } else {
    x.a = arena_new(&c->e);
    ErrCode r = err_try(&c->e, run_body, &x);
    if (r != NS_OK) {
      out.r.error = x.stage;
      snprintf(out.r.msg, sizeof out.r.msg, "%.500s", c->e.msg);
    }
    if (x.m && err_try(&c->e, unload_body, x.m) != NS_OK) out.dying = 1;
    arena_free(x.a);
  }
  if (data) munmap(data, n);
  bool bad = x.m && (out.r.error == ME_WRONG_ANSWER || out.r.error == ME_RUNTIME_DEVICE);
  for (int i = 0; bad && i < MSR_SLOTS; i++) c->slot[i].dirty = true;
  if (x.strayed && dev_type(c->dev) != DEV_CUDA) out.dying = 1; /* its heap may be damaged */
  if (out.r.error == ME_RUNTIME_DEVICE && c->dev && dev_lost(c->dev)) out.dying = 1;
  out.dying |= c->dev && dev_lost(c->dev);
  snprintf(out.r.cause, sizeof out.r.cause, "%s", cause_of(out.r.error, out.r.msg));
  out.r.seconds = clock_now() - start;
  proto_send(c->sock, MSG_RESULT, &out, sizeof out, -1);
  if (out.dying) _exit(0); /* a lost GPU context can only be left by leaving the process */
}

/* ---- finals ---- */
typedef struct {
  Serving *c;
  const MsgFinal *q;
  const char *data;
  MsgFinals *out;
  DevModule *m[FINAL_MAX];
  double deadline;
} Final;

static void final_body(void *arg) {
  Final *x = arg;
  Slot *s = &x->c->slot[x->q->slot];
  const char *at = x->data;
  for (int i = 0; i < x->q->n; i++) {
    const char *manifest = at + x->q->n_binary[i];
    x->m[i] = dev_load(x->c->dev, at, (size_t)x->q->n_binary[i], manifest);
    dev_made_up(x->m[i]);
    if (dev_manifest(x->m[i])->n_args != s->desc.n_args)
      err_raise(&x->c->e, NS_ERR_VALUE, "program %d has %d arguments, the task %d", i, dev_manifest(x->m[i])->n_args,
                s->desc.n_args);
    at = manifest + x->q->n_manifest[i] + 1;
  }
  if (s->dirty) fill_slot(&(Fill){x->c, s});
  time_finals(x->q->n, x->m, s->buf, &x->q->policy, x->q->seed, x->q->keep, x->deadline, x->out->r);
  dev_sync(x->c->dev);
}

static void answer_final(Serving *c, const MsgFinal *q, int fd) {
  MsgFinals out = {.ok = 0};
  size_t n = 0;
  for (int i = 0; i < q->n; i++) n += (size_t)(q->n_binary[i] + q->n_manifest[i] + 1);
  char *data = memfile_map(fd, n);
  Final x = {c, q, data, &out, {NULL}, clock_now() + 0.8 * q->policy.timeout_s * q->n};
  if (!data || c->slot[q->slot].error[0]) {
    snprintf(out.msg, sizeof out.msg, "%s", data ? c->slot[q->slot].error : "out of memory");
  } else {
    out.ok = err_try(&c->e, final_body, &x) == NS_OK;
    if (!out.ok) snprintf(out.msg, sizeof out.msg, "%.500s", c->e.msg);
    for (int i = 0; i < q->n; i++)
      if (x.m[i] && err_try(&c->e, unload_body, x.m[i]) != NS_OK) out.dying = 1;
  }
  if (data) munmap(data, n);
  out.dying |= c->dev && dev_lost(c->dev);
  proto_send(c->sock, MSG_FINALS, &out, sizeof out, -1);
  if (out.dying) _exit(0);
}

/* ---- canary ---- */
typedef struct {
  Serving *c;
  const MsgCanary *q;
  MsgTimes *out;
} Canary;

static void canary_body(void *arg) {
  Canary *x = arg;
  double warm = clock_now() + x->q->warm_s;
  while (clock_now() < warm && dev_canary(x->c->dev, 4, x->out->seconds, &x->out->pace) > 0) {}
  x->out->n = dev_canary(x->c->dev, x->q->n, x->out->seconds, &x->out->pace);
}

static void answer_canary(Serving *c, const MsgCanary *q) {
  MsgTimes out = {.n = 0};
  Canary x = {c, q, &out};
  if (err_try(&c->e, canary_body, &x) != NS_OK) out.n = 0;
  out.dying = dev_lost(c->dev);
  proto_send(c->sock, MSG_TIMES, &out, sizeof out, -1);
  if (out.dying) _exit(0);
}

typedef struct {
  Serving *c;
  int type, id;
} Open;
ERR_BODY(open_body, Open *o, o->c->dev = dev_open(&o->c->e, (DevType)o->type, o->id))

static void measure_loop(Serving *c, int dev_type, int dev_id) {
  MsgBody b;
  int fd = -1;
  Open o = {c, dev_type, dev_id};
  MsgReady ready = {.ok = 1};
  if (err_try(&c->e, open_body, &o) == NS_OK)
    ready.info = *dev_info(c->dev);
  else {
    ready.ok = 0;
    snprintf(ready.msg, sizeof ready.msg, "%.500s", c->e.msg);
  }
  if (!proto_send(c->sock, MSG_READY, &ready, sizeof ready, -1) || !ready.ok) return;
  MsgType type;
  while (proto_recv(c->sock, &type, &b, &fd, 1e18, NULL) == RECV_OK) {
    int32_t slot = type == MSG_TASK ? b.task.slot : type == MSG_RUN ? b.run.slot : type == MSG_FINAL ? b.final.slot : 0;
    if (slot < 0 || slot >= MSR_SLOTS) return;
    if (type == MSG_FINAL && (b.final.n < 1 || b.final.n > FINAL_MAX)) return;
    if (type == MSG_CANARY && (b.canary.n < 1 || b.canary.n > CANARY_MAX)) return;
    atomic_store(&c->busy, true);
    if (type == MSG_TASK)
      take_task(c, &b.task, fd);
    else if (type == MSG_RUN)
      answer_run(c, &b.run, fd);
    else if (type == MSG_FINAL)
      answer_final(c, &b.final, fd);
    else if (type == MSG_CANARY)
      answer_canary(c, &b.canary);
    else
      return;
    atomic_store(&c->busy, false);
    if (fd >= 0) close(fd);
  }
}

/* ---- compiling ---- */
typedef struct {
  Arena *a;
  const MsgCompile *q;
  const char *source;
  Binary out;
} Compile;
static void compile_body(void *arg) {
  Compile *x = arg;
  BuildOptions o = {x->q->timeout_s, x->q->default_cache ? NULL : x->q->cache_dir, NULL, NULL};
  x->out = build_binary(x->a, &x->q->target, x->source, &o);
}

static void answer_compile(Serving *c, const MsgCompile *q, int fd) {
  MsgBinary out = {.code = ME_COMPILE_HOST};
  size_t n = (size_t)q->n_source + 1;
  char *source = memfile_map(fd, n);
  int bin = -1;
  Compile x = {NULL, q, source, {0}};
  if (!source)
    snprintf(out.msg, sizeof out.msg, "cannot map the source: out of memory");
  else {
    x.a = arena_new(&c->e);
    ErrCode r = err_try(&c->e, compile_body, &x);
    if (r == NS_OK) bin = memfile_new((const void *const *)&x.out.data, &x.out.n, 1);
    if (bin >= 0)
      out = (MsgBinary){ME_OK, x.out.cached, x.out.n, x.out.seconds, ""};
    else
      snprintf(out.msg, sizeof out.msg, "%.500s", r == NS_OK ? "out of memory passing on a program" : c->e.msg);
    munmap(source, n);
  }
  proto_send(c->sock, MSG_BINARY, &out, sizeof out, bin);
  if (bin >= 0) close(bin);
  arena_free(x.a);
}

static void compile_loop(Serving *c) {
  MsgBody b;
  MsgType type;
  int fd = -1;
  MsgReady ready = {.ok = 1};
  if (!proto_send(c->sock, MSG_READY, &ready, sizeof ready, -1)) return;
  while (proto_recv(c->sock, &type, &b, &fd, 1e18, NULL) == RECV_OK && type == MSG_COMPILE) {
    answer_compile(c, &b.compile, fd);
    if (fd >= 0) close(fd);
  }
}

/* ---- one run for the outputs ---- */
typedef struct {
  Serving *c;
  const MsgMake *q;
  char *map;
} Make;
static void make_body(void *arg) {
  Make *x = arg;
  void *mem[MSR_MAX_ARGS];
  const char *program = x->map + x->q->total;
  for (int i = 0; i < x->q->n_args; i++) mem[i] = x->map + x->q->offset[i];
  x->c->dev = dev_open(&x->c->e, DEV_CPU, 0);
  DevModule *m = dev_load(x->c->dev, program, (size_t)x->q->n_binary, program + x->q->n_binary);
  dev_made_up(m);
  dev_run(m, mem);
}

static void make_once(Serving *c) {
  MsgBody b;
  MsgType type;
  int fd = -1;
  MsgReady ready = {.ok = 1};
  MsgMade out = {.ok = 0};
  if (!proto_send(c->sock, MSG_READY, &ready, sizeof ready, -1) ||
      proto_recv(c->sock, &type, &b, &fd, 1e18, NULL) != RECV_OK || type != MSG_MAKE)
    return;
  Make x = {c, &b.make, memfile_share(fd, (size_t)(b.make.total + b.make.n_binary + b.make.n_manifest + 1))};
  if (!x.map)
    snprintf(out.msg, sizeof out.msg, "out of memory mapping its arguments");
  else if (err_try(&c->e, make_body, &x) == NS_OK)
    out.ok = 1;
  else
    snprintf(out.msg, sizeof out.msg, "%.500s", c->e.msg);
  proto_send(c->sock, MSG_MADE, &out, sizeof out, -1);
}

__attribute__((visibility("default"))) int nestsmith_worker_main(int kind, int sock, int parent, int dev_type,
                                                                 int dev_id) {
  static Serving child = {.leaving = PTHREAD_MUTEX_INITIALIZER}; /* the only object of this process */
  pthread_t t;
  child.sock = sock, child.parent = (pid_t)parent;
  signal(SIGINT, SIG_IGN); /* the tuner decides what Ctrl-C means */
  signal(SIGPIPE, SIG_IGN);
  if (getppid() != child.parent) follow_tuner(&child);
  if (pthread_create(&t, NULL, watch_parent, &child) != 0) return 1;
  err_init(&child.e);
  if (kind == 'c')
    compile_loop(&child);
  else if (kind == 'r')
    make_once(&child);
  else
    measure_loop(&child, dev_type, dev_id);
  follow_tuner(&child);
}

int worker_main_if_asked(int argc, char **argv) {
  if (argc < 7 || strcmp(argv[1], "--nestsmith-worker") != 0) return -1;
  return nestsmith_worker_main(argv[2][0], (int)strtol(argv[3], NULL, 10), (int)strtol(argv[4], NULL, 10),
                               (int)strtol(argv[5], NULL, 10), (int)strtol(argv[6], NULL, 10));
}
