/* Three queues (to compile, to run, done) under one lock, compile threads and a measuring thread per device (runner.c).
 * Threads never raise: each has its own Err, and every failure becomes the result of its candidate.
 *
 * On a CPU target compiling would disturb measuring, so the two take turns: a few candidates are compiled on all cores,
 * then these are measured while the compilers rest.
 *
 * Candidates of one task race (RunPolicy.race); what that means is in race.c. */
#include "measure/pipe_int.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNK = 4 }; /* candidates compiled per lane and turn */
static const double MINUTE = 60;

void queue_put(Queue *q, Job *j) {
  j->next = NULL;
  if (q->tail)
    q->tail->next = j;
  else
    q->head = j;
  q->tail = j;
  q->n++;
}

/* In the order of tags: lowering threads finish in any order, but the most promising candidate is to come out first. */
static void put_in_order(Queue *q, Job *j) {
  if (!q->tail || q->tail->res.tag < j->res.tag) {
    queue_put(q, j);
    return;
  }
  Job **at = &q->head;
  while ((*at)->res.tag < j->res.tag) at = &(*at)->next;
  j->next = *at;
  *at = j;
  q->n++;
}

Job *queue_take(Queue *q) {
  Job *j = q->head;
  if (!j) return NULL;
  q->head = j->next;
  if (!q->head) q->tail = NULL;
  q->n--;
  return j;
}

void job_free(Job *j) {
  free(j->source);
  free(j->manifest);
  free(j->binary);
  free(j);
}

static int drop_all(Pipeline *p, Queue *q) {
  int n = 0;
  for (Job *j; (j = queue_take(q)); n++) {
    if (q != &p->done) p->task[j->res.task].pending--;
    job_free(j);
    p->open--;
  }
  return n;
}

void pipe_say(Pipeline *p, const char *fmt, ...) {
  size_t n = strlen(p->notice);
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(p->notice + n, sizeof p->notice - n, fmt, ap);
  va_end(ap);
}

bool pipe_notice(Pipeline *p, char *out, size_t n) {
  pthread_mutex_lock(&p->lock);
  snprintf(out, n, "%s", p->notice);
  p->notice[0] = 0;
  pthread_mutex_unlock(&p->lock);
  return out[0] != 0;
}

/* ---- taking turns on a CPU ---- */
static bool may_compile(const Pipeline *p) {
  return p->target.kind != TG_CPU || (!p->run_turn && p->compiling + p->to_run.n < CHUNK * p->n_lanes);
}

bool pipe_may_run(const Pipeline *p) { return p->target.kind != TG_CPU || p->run_turn; }

int pipe_final_due(const Pipeline *p) {
  for (int i = 0; i < p->n_tasks; i++)
    if (race_due(&p->task[i])) return i;
  return -1;
}

static bool work_to_run(const Pipeline *p) {
  bool some = p->to_run.n > 0 || p->running || pipe_final_due(p) >= 0;
  for (int i = 0; i < p->n_runners; i++) some = some || p->runner[i].window.n > 0;
  return some;
}

void pipe_changed(Pipeline *p) {
  bool work = work_to_run(p);
  if (p->run_turn)
    p->run_turn = work;
  else
    p->run_turn = p->compiling == 0 && work && (p->to_run.n >= CHUNK * p->n_lanes || p->to_compile.n == 0);
  pthread_cond_broadcast(&p->change);
}

/* ---- results ---- */
void pipe_finish(Pipeline *p, Job *j) {
  free(j->binary);
  free(j->manifest);
  j->binary = NULL;
  j->manifest = NULL;
  queue_put(&p->done, j);
}

void pipe_settle(Pipeline *p, Job *j) {
  Task *t = &p->task[j->res.task];
  Queue out = {NULL, NULL, 0};
  bool races = j->policy.race && !j->policy.strict && !j->res.run.full;
  t->pending--;
  if (j->policy.race) t->ran++;
  if (j->policy.race && j->res.run.full) race_alone(t, j);
  if (!races || p->no_finals || !race_enter(t, j, &out)) pipe_finish(p, j);
  for (Job *x; (x = queue_take(&out));) pipe_finish(p, x);
}

/* ---- compiling ---- */
enum { LOCAL_LIMIT = 2048 }; /* bytes per thread: a program that lives in spilled registers is never the best */

/* What can be said of a binary before it is loaded: a program that cannot run, or only badly, does not go to the device. */
typedef struct {
  Lane *l;
  Job *j;
  const Binary *b;
} Inspect;
static void inspect(void *arg) {
  Inspect *x = arg;
  Job *j = x->j;
  int64_t dynamic = 0;
  char why[MSR_MSG];
  BuildReport *r = &j->res.report;
  const Manifest *man = man_parse(x->l->a, j->manifest);
  for (int i = 0; i < man->n_kernels; i++)
    if (man->kernel[i].dyn_shared_bytes > dynamic) dynamic = man->kernel[i].dyn_shared_bytes;
  if (!build_report(&x->l->p->target, x->b->data, x->b->n, (int)dynamic, r)) return;
  if (r->local_bytes > LOCAL_LIMIT)
    snprintf(why, sizeof why, "register spills: %d bytes of local memory per thread, at most %d are run",
             r->local_bytes, LOCAL_LIMIT);
  else if (r->threads > 0 && r->blocks == 0)
    snprintf(
        why, sizeof why,
        "no block fits on a multiprocessor: %d threads with %d registers each (its registers allow fewer), %d bytes "
        "of shared memory",
        r->threads, r->regs, r->shared_bytes);
  else
    return;
  run_failed(&j->res.run, ME_COMPILE_DEVICE, why);
}

static bool compile_one(Lane *l, Job *j) {
  char msg[MSR_MSG] = "";
  Binary b = {0};
  double start = clock_now();
  ArenaMark m = arena_mark(l->a);
  MeasureError r = compiler_run(l->c, l->a, &l->p->target, j->source, &l->p->build, &b, msg);
  j->res.build_seconds = clock_now() - start;
  j->res.cached = b.cached;
  if (r == ME_OK && err_try(&l->e, inspect, &(Inspect){l, j, &b}) != NS_OK)
    run_failed(&j->res.run, ME_COMPILE_HOST, l->e.msg);
  if (j->res.run.error != ME_OK) {
  } else if (r == ME_OK && (j->binary = malloc(b.n + 1))) {
    memcpy(j->binary, b.data, b.n);
    j->n_binary = b.n;
  } else {
    run_failed(&j->res.run, r == ME_OK ? ME_COMPILE_HOST : r, r == ME_OK ? "out of memory keeping a program" : msg);
  }
  arena_release(l->a, m);
  free(j->source);
  j->source = NULL;
  return j->binary != NULL;
}

static void *lane_main(void *arg) {
  Lane *l = arg;
  Pipeline *p = l->p;
  pthread_mutex_lock(&p->lock);
  for (;;) {
    Job *j = NULL;
    while (!p->stop && !(may_compile(p) && (j = queue_take(&p->to_compile)))) pthread_cond_wait(&p->change, &p->lock);
    if (!j) break;
    p->compiling++;
    pthread_mutex_unlock(&p->lock);
    bool ok = compile_one(l, j);
    pthread_mutex_lock(&p->lock);
    p->compiling--;
    p->stats.compile_s += j->res.build_seconds;
    p->stats.compiled++;
    p->stats.cached += j->res.cached;
    if (ok)
      queue_put(&p->to_run, j);
    else
      pipe_settle(p, j);
    pipe_changed(p);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

/* ---- face ---- */
static char *copy_text(const char *s) { return s ? strdup(s) : NULL; }

static void free_words(char **words) {
  for (int i = 0; words && words[i]; i++) free(words[i]);
  free(words);
}

/* NULL for none; *ok: false when out of memory. */
static char **copy_words(char *const *words, bool *ok) {
  int n = 0;
  if (!words) return NULL;
  while (words[n]) n++;
  char **out = calloc((size_t)n + 1, sizeof *out);
  for (int i = 0; out && i < n; i++)
    if (!(out[i] = strdup(words[i]))) {
      free_words(out);
      out = NULL;
    }
  *ok = out != NULL;
  return out;
}

typedef struct {
  Pipeline *p;
  Err *e;
  DevType d;
  int id;
  const PipeOptions *o;
} New;

static void lane_body(void *arg) {
  Lane *l = arg;
  l->a = arena_new(&l->e); /* the lane's own Err: what its thread raises must not meet another thread's */
  l->c = compiler_start(&l->e);
}

static void open_runner(Pipeline *p, int i, Err *e, DevType d) {
  Runner *r = &p->runner[i];
  bool cpu = d != DEV_CUDA;
  r->p = p;
  r->number = i;
  r->drift.limit = cpu ? 0.25 : 0.03;
  r->drift.rise = d == DEV_CUDA ? 0.08 : 0;
  r->drift.middle = cpu;
  for (int k = 0; k < MSR_SLOTS; k++) r->slot_task[k] = -1;
  r->worker = worker_start_by(e, d, r->id, p->via);
  worker_stop_flag(r->worker, &r->stop);
  if (p->via) return; /* a lock of this machine says nothing of a board */
  for (int k = 0; k < i; k++)
    if (p->runner[k].id == r->id) return; /* one lock per device */
  r->lock = devlock_open(e, p->lock_mode, d, r->id, worker_info(r->worker));
  r->locked = r->lock && p->lock_mode == LOCK_FAIL;
}

ERR_BODY(check_here, Lane *l, build_check_here(l->a, &l->p->target, &l->p->build))

static void new_body(void *arg) {
  New *n = arg;
  Pipeline *p = n->p;
  for (int i = 0; i < p->n_runners; i++) open_runner(p, i, n->e, n->d);
  for (int i = 0; i < p->n_lanes; i++) {
    Lane *l = &p->lane[i];
    l->p = p;
    err_init(&l->e);
    ErrCode c = err_try(&l->e, lane_body, l);
    if (c != NS_OK) err_again(n->e, c, &l->e);
    compiler_stop_flag(l->c, &p->stop);
  }
  ErrCode here = p->n_lanes ? err_try(&p->lane[0].e, check_here, &p->lane[0]) : NS_OK;
  if (here != NS_OK) err_again(n->e, here, &p->lane[0].e);
  bool ok = true;
  for (int i = 0; ok && i < p->n_runners; i++)
    ok = p->runner[i].started = pthread_create(&p->runner[i].thread, NULL, runner_main, &p->runner[i]) == 0;
  for (int i = 0; ok && i < p->n_lanes; i++)
    ok = p->lane[i].started = pthread_create(&p->lane[i].thread, NULL, lane_main, &p->lane[i]) == 0;
  if (!ok) err_raise(n->e, NS_ERR_RUNTIME, "cannot start the pipeline's threads: raise `ulimit -u`");
}

static int default_lanes(void) {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 2;
  return n > 2 ? n - 1 : n;
}

Pipeline *pipe_new(Err *e, const Target *t, DevType d, int id, const PipeOptions *o) {
  static const PipeOptions DEFAULT = {0};
  if (!o) o = &DEFAULT;
  Pipeline *p = calloc(1, sizeof *p);
  if (!p) err_raise(e, NS_ERR_MEMORY, "out of memory creating a pipeline");
  pthread_mutex_init(&p->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&p->change, &attr);
  pthread_condattr_destroy(&attr);
  p->made = fork_count();
  p->target = *t;
  p->cache_dir = copy_text(o->cache_dir);
  p->cc = copy_text(o->cc);
  bool copied = true;
  p->via = copy_words(o->via, &copied);
  p->build = (BuildOptions){o->build_timeout_s > 0 ? o->build_timeout_s : 15, p->cache_dir, p->cc, o->memory};
  p->n_lanes = o->n_compile > 0 ? o->n_compile : o->n_compile < 0 ? 0 : default_lanes();
  p->lane = calloc((size_t)p->n_lanes + 1, sizeof *p->lane);
  p->type = d;
  p->lock_mode = o->lock;
  p->n_runners = o->n_ids < 1 ? 1 : o->n_ids > PIPE_DEVICES ? PIPE_DEVICES : o->n_ids;
  for (int i = 0; i < p->n_runners; i++) p->runner[i].id = o->n_ids < 1 ? id : o->ids[i];
  New n = {p, e, d, id, o};
  ErrCode r = p->lane && copied ? err_try(e, new_body, &n) : NS_ERR_MEMORY;
  if (r != NS_OK) {
    pipe_free(p);
    err_rethrow(e, r);
  }
  return p;
}

void pipe_free(Pipeline *p) {
  if (!p || p->made != fork_count()) return;
  pthread_mutex_lock(&p->lock);
  p->stop = 1;
  for (int i = 0; i < p->n_runners; i++) p->runner[i].stop = 1;
  pthread_cond_broadcast(&p->change);
  pthread_mutex_unlock(&p->lock);
  for (int i = 0; i < p->n_runners; i++)
    if (p->runner[i].started) pthread_join(p->runner[i].thread, NULL);
  for (int i = 0; p->lane && i < p->n_lanes; i++) {
    if (p->lane[i].started) pthread_join(p->lane[i].thread, NULL);
    compiler_stop(p->lane[i].c);
    arena_free(p->lane[i].a);
  }
  for (int i = 0; i < p->n_runners; i++) {
    worker_stop(p->runner[i].worker);
    devlock_free(p->runner[i].lock);
    drop_all(p, &p->runner[i].window);
  }
  drop_all(p, &p->to_compile);
  drop_all(p, &p->to_run);
  drop_all(p, &p->done);
  for (int i = 0; i < p->n_tasks; i++) {
    drop_all(p, &p->task[i].finalists);
    task_data_free(p->task[i].data);
    free(p->task[i].binary);
    free(p->task[i].manifest);
  }
  free(p->task);
  free(p->lane);
  free(p->cache_dir);
  free(p->cc);
  free_words(p->via);
  pthread_cond_destroy(&p->change);
  pthread_mutex_destroy(&p->lock);
  free(p);
}

int pipe_task(Pipeline *p, TaskData *t) {
  pthread_mutex_lock(&p->lock);
  int k = -1;
  if (p->n_tasks == p->cap_tasks) {
    int cap = p->cap_tasks ? 2 * p->cap_tasks : 16;
    Task *more = realloc(p->task, (size_t)cap * sizeof *more);
    if (more) {
      p->task = more;
      p->cap_tasks = cap;
    }
  }
  if (p->n_tasks < p->cap_tasks) {
    k = p->n_tasks++;
    p->task[k] = (Task){.data = t};
  }
  pthread_mutex_unlock(&p->lock);
  return k;
}

void pipe_incumbent(Pipeline *p, int task, double seconds) {
  pthread_mutex_lock(&p->lock);
  if (task >= 0 && task < p->n_tasks && seconds > 0) p->task[task].best = p->task[task].best_quick = seconds;
  pthread_mutex_unlock(&p->lock);
}

void pipe_hold(Pipeline *p, int task, int by) {
  pthread_mutex_lock(&p->lock);
  if (task >= 0 && task < p->n_tasks) p->task[task].hold += by;
  pipe_changed(p);
  pthread_mutex_unlock(&p->lock);
}

/* A job of a task that is known; text: a source (NULL: there is a binary of n bytes). Raises when out of memory. */
static Job *job_new(Pipeline *p, Err *e, int task, const char *source, const void *binary, size_t n,
                    const char *manifest, int64_t tag, const RunPolicy *policy) {
  pthread_mutex_lock(&p->lock);
  int n_tasks = p->n_tasks;
  pthread_mutex_unlock(&p->lock);
  if (task < 0 || task >= n_tasks)
    err_raise(e, NS_ERR_VALUE, "task %d is not known to this pipeline (it has %d)", task, n_tasks);
  Job *j = calloc(1, sizeof *j);
  if (j) {
    j->source = source ? strdup(source) : NULL;
    j->binary = source ? NULL : malloc(n + 1);
    j->n_binary = n;
    j->manifest = strdup(manifest);
    j->policy = *policy;
    j->res.tag = tag;
    j->res.task = task;
  }
  if (!j || !(j->source || j->binary) || !j->manifest) {
    if (j) job_free(j);
    err_raise(e, NS_ERR_MEMORY, "out of memory queueing a candidate");
  }
  if (j->binary) memcpy(j->binary, binary, n);
  return j;
}

static void enter(Pipeline *p, Queue *q, Job *j) {
  pthread_mutex_lock(&p->lock);
  if (!(p->first > 0)) p->first = clock_now();
  put_in_order(q, j);
  p->task[j->res.task].pending++;
  p->open++;
  p->no_finals = false;
  pipe_changed(p);
  pthread_mutex_unlock(&p->lock);
}

void pipe_submit(Pipeline *p, Err *e, int task, const char *source, const char *manifest, int64_t tag,
                 const RunPolicy *policy) {
  err_check(e, p->n_lanes > 0, "this pipeline does not compile: submit programs");
  enter(p, &p->to_compile, job_new(p, e, task, source, NULL, 0, manifest, tag, policy));
}

void pipe_submit_built(Pipeline *p, Err *e, int task, const void *binary, size_t n, const char *manifest, int64_t tag,
                       const RunPolicy *policy) {
  enter(p, &p->to_run, job_new(p, e, task, NULL, binary, n, manifest, tag, policy));
}

void pipe_failed(Pipeline *p, Err *e, int task, int64_t tag, MeasureError error, const char *msg) {
  Job *j = job_new(p, e, task, "", NULL, 0, "", tag, &(RunPolicy){0});
  run_failed(&j->res.run, error, msg);
  pthread_mutex_lock(&p->lock);
  p->open++;
  pipe_finish(p, j);
  pipe_changed(p);
  pthread_mutex_unlock(&p->lock);
}

int pipe_poll(Pipeline *p, double wait_s, PipeResult *out, int max) {
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (!(wait_s > 0)) wait_s = 0; /* NaN too */
  if (wait_s > 1e6) wait_s = 1e6;
  int64_t ns = end.tv_nsec + (int64_t)(wait_s * 1e9);
  end.tv_sec += ns / 1000000000;
  end.tv_nsec = ns % 1000000000;
  int n = 0;
  pthread_mutex_lock(&p->lock);
  while (p->done.n == 0 && wait_s > 0 && pthread_cond_timedwait(&p->change, &p->lock, &end) != ETIMEDOUT) {}
  while (n < max && p->done.n) {
    Job *j = queue_take(&p->done);
    p->open--;
    out[n++] = j->res;
    job_free(j);
  }
  pthread_mutex_unlock(&p->lock);
  return n;
}

int pipe_pending(Pipeline *p) {
  pthread_mutex_lock(&p->lock);
  int n = p->open;
  pthread_mutex_unlock(&p->lock);
  return n;
}

int pipe_cancel(Pipeline *p) {
  pthread_mutex_lock(&p->lock);
  int n = drop_all(p, &p->to_compile) + drop_all(p, &p->to_run);
  p->no_finals = true; /* what was measured comes out as it is */
  for (int i = 0; i < p->n_tasks; i++)
    for (Job *j; (j = queue_take(&p->task[i].finalists));) pipe_finish(p, j);
  for (int i = 0; i < p->n_runners; i++)
    if (p->runner[i].finalising) p->runner[i].stop = 1;
  pipe_changed(p);
  pthread_mutex_unlock(&p->lock);
  return n;
}

/* Device time, with the part after the first minute apart. */
void pipe_count_run(PipeStats *s, double first, double from, double to) {
  double late = first + MINUTE;
  s->run_s += to - from;
  if (to > late) s->late_run_s += to - (from > late ? from : late);
}

PipeStats pipe_stats(Pipeline *p) {
  pthread_mutex_lock(&p->lock);
  PipeStats s = p->stats;
  double now = clock_now();
  s.elapsed = p->first > 0 ? now - p->first : 0;
  s.late_elapsed = s.elapsed > MINUTE ? s.elapsed - MINUTE : 0;
  s.lanes = p->n_lanes;
  s.devices = p->n_runners;
  for (int i = 0; i < p->n_runners; i++) {
    const Runner *r = &p->runner[i];
    WorkerStats w = r->workers;
    if (p->run_since[i] > 0) pipe_count_run(&s, p->first, p->run_since[i], now);
    s.checks += r->drift.checks;
    s.disturbed += r->drift.disturbed;
    s.shifts += r->drift.shifts;
    s.canary = r->drift.base;
    s.pace = p->type == DEV_CUDA ? s.canary : r->pace;
    if (drift_spread(&r->drift) > s.canary_spread) s.canary_spread = drift_spread(&r->drift);
    s.deaths += w.deaths;
    s.spares += w.spares;
    if (w.longest_recovery > s.longest_recovery) s.longest_recovery = w.longest_recovery;
  }
  pthread_mutex_unlock(&p->lock);
  return s;
}

const DevInfo *pipe_device(const Pipeline *p) { return worker_info(p->runner[0].worker); }
