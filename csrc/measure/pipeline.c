/* Three queues (to compile, to run, done) under one lock, compile threads and one measuring thread. Threads never
 * raise: each has its own Err, and every failure becomes the result of its candidate.
 *
 * On a CPU target compiling would disturb measuring, so the two take turns: a few candidates are compiled on all cores,
 * then these are measured while the compilers rest.
 *
 * Candidates of one task race (RunPolicy.race): the best result of the full stage so far is the incumbent; its quick
 * time decides who is hopeless and who deserves the full stage (spec 05 §7.5, §7.7). */
#include "measure/pipeline.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EARLY = 192, CHUNK = 4 }; /* candidates of a task that count as its first rounds; compiled per lane and turn */
static const double HOPELESS = 1.30, HOPELESS_EARLY = 2.00, FINALIST = 1.03, MINUTE = 60;

typedef struct Job {
  struct Job *next;
  char *source, *manifest;
  void *binary;
  size_t n_binary;
  RunPolicy policy;
  PipeResult res;
} Job;
typedef struct {
  Job *head, *tail;
  int n;
} Queue;
typedef struct {
  TaskData *data;
  double stop_above;
  double best, best_quick; /* of the incumbent; 0: none yet */
  int ran;
} Task;
typedef struct {
  Pipeline *p;
  Compiler *c;
  Err e;
  Arena *a;
  pthread_t thread;
  bool started;
} Lane;

struct Pipeline {
  pthread_mutex_t lock;
  pthread_cond_t change;
  Queue to_compile, to_run, done;
  int compiling, running;
  bool run_turn; /* CPU targets: the runner's turn, not the compilers' */
  double first, run_since;
  PipeStats stats;
  volatile int stop;
  Target target;
  BuildOptions build;
  char *cache_dir, *cc;
  Task *task;
  int n_tasks, cap_tasks;
  int slot_task[MSR_SLOTS]; /* which task is in which slot of the worker, and when it was used */
  int64_t slot_used[MSR_SLOTS], tick;
  Worker *worker;
  pthread_t runner;
  bool runner_started;
  Lane *lane;
  int n_lanes;
};

static void put(Queue *q, Job *j) {
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
    put(q, j);
    return;
  }
  Job **at = &q->head;
  while ((*at)->res.tag < j->res.tag) at = &(*at)->next;
  j->next = *at;
  *at = j;
  q->n++;
}

static Job *take(Queue *q) {
  Job *j = q->head;
  if (!j) return NULL;
  q->head = j->next;
  if (!q->head) q->tail = NULL;
  q->n--;
  return j;
}

static void job_free(Job *j) {
  free(j->source);
  free(j->manifest);
  free(j->binary);
  free(j);
}

static int drop_all(Queue *q) {
  int n = 0;
  for (Job *j; (j = take(q)); n++) job_free(j);
  return n;
}

static void fail(Job *j, MeasureError e, const char *msg) {
  j->res.run.error = e;
  snprintf(j->res.run.msg, sizeof j->res.run.msg, "%.500s", msg);
  snprintf(j->res.run.cause, sizeof j->res.run.cause, "%s", cause_of(e, j->res.run.msg));
}

/* ---- taking turns on a CPU ---- */
static bool may_compile(const Pipeline *p) {
  return p->target.kind != TG_CPU || (!p->run_turn && p->compiling + p->to_run.n < CHUNK * p->n_lanes);
}

static bool may_run(const Pipeline *p) { return p->target.kind != TG_CPU || p->run_turn; }

/* After every change of the queues; wakes all threads. */
static void changed(Pipeline *p) {
  if (p->run_turn)
    p->run_turn = p->to_run.n > 0 || p->running;
  else
    p->run_turn = p->compiling == 0 && p->to_run.n > 0 && (p->to_run.n >= CHUNK * p->n_lanes || p->to_compile.n == 0);
  pthread_cond_broadcast(&p->change);
}

/* ---- compiling ---- */
static bool compile_one(Lane *l, Job *j) {
  char msg[MSR_MSG] = "";
  Binary b = {0};
  double start = clock_now();
  ArenaMark m = arena_mark(l->a);
  MeasureError r = compiler_run(l->c, l->a, &l->p->target, j->source, &l->p->build, &b, msg);
  j->res.build_seconds = clock_now() - start;
  j->res.cached = b.cached;
  if (r == ME_OK && (j->binary = malloc(b.n + 1))) {
    memcpy(j->binary, b.data, b.n);
    j->n_binary = b.n;
  } else {
    fail(j, r == ME_OK ? ME_COMPILE_HOST : r, r == ME_OK ? "out of memory keeping a program" : msg);
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
    while (!p->stop && !(may_compile(p) && (j = take(&p->to_compile)))) pthread_cond_wait(&p->change, &p->lock);
    if (!j) break;
    p->compiling++;
    pthread_mutex_unlock(&p->lock);
    bool ok = compile_one(l, j);
    pthread_mutex_lock(&p->lock);
    p->compiling--;
    p->stats.compile_s += j->res.build_seconds;
    p->stats.compiled++;
    p->stats.cached += j->res.cached;
    put(ok ? &p->to_run : &p->done, j);
    changed(p);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

/* ---- measuring ---- */
static int slot_of(Pipeline *p, int task) {
  int best = 0;
  for (int i = 0; i < MSR_SLOTS; i++) {
    if (p->slot_task[i] == task) {
      best = i;
      break;
    }
    if (p->slot_used[i] < p->slot_used[best]) best = i;
  }
  p->slot_task[best] = task;
  p->slot_used[best] = ++p->tick;
  return best;
}

static void set_limits(const Task *t, RunPolicy *p) {
  if (t->stop_above > 0) p->stop_above = t->stop_above;
  if (!p->race || p->strict || !(t->best_quick > 0)) return;
  p->stop_above = t->best_quick * (t->ran < EARLY ? HOPELESS_EARLY : HOPELESS);
  p->full_below = t->best_quick * FINALIST;
}

static double middle_cost(const RunResult *r) {
  double sum = 0;
  for (int i = 0; i < r->n_costs; i++) sum += r->cost[i];
  return sum / r->n_costs;
}

/* A racing candidate that was timed in full and is faster is the new incumbent. */
static void take_in(Task *t, const RunResult *r) {
  t->ran++;
  if (r->error != ME_OK || !r->full || r->n_costs < 1) return;
  double cost = middle_cost(r);
  if (t->best > 0 && cost >= t->best) return;
  t->best = cost;
  t->best_quick = r->quick > 0 ? r->quick : cost;
}

/* Device time, with the part after the first minute apart. */
static void count_run(PipeStats *s, double first, double from, double to) {
  double late = first + MINUTE;
  s->run_s += to - from;
  if (to > late) s->late_run_s += to - (from > late ? from : late);
}

static void *runner_main(void *arg) {
  Pipeline *p = arg;
  pthread_mutex_lock(&p->lock);
  for (;;) {
    while (!p->stop && !(p->to_run.n > 0 && may_run(p))) pthread_cond_wait(&p->change, &p->lock);
    if (p->stop) break;
    Job *j = take(&p->to_run);
    Task t = p->task[j->res.task];
    int slot = slot_of(p, j->res.task);
    set_limits(&t, &j->policy);
    p->running = 1;
    p->run_since = clock_now();
    pthread_mutex_unlock(&p->lock);
    worker_task(p->worker, slot, t.data);
    j->res.run = worker_run(p->worker, slot, j->binary, j->n_binary, j->manifest, &j->policy);
    pthread_mutex_lock(&p->lock);
    p->running = 0;
    count_run(&p->stats, p->first, p->run_since, clock_now());
    p->stats.ran++;
    p->stats.full += j->res.run.full;
    if (j->policy.race) take_in(&p->task[j->res.task], &j->res.run);
    put(&p->done, j);
    changed(p);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

/* ---- face ---- */
static char *copy_text(const char *s) { return s ? strdup(s) : NULL; }

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

static void new_body(void *arg) {
  New *n = arg;
  Pipeline *p = n->p;
  p->worker = worker_start(n->e, n->d, n->id);
  worker_stop_flag(p->worker, &p->stop);
  for (int i = 0; i < p->n_lanes; i++) {
    Lane *l = &p->lane[i];
    l->p = p;
    err_init(&l->e);
    if (err_try(&l->e, lane_body, l) != NS_OK) err_raise(n->e, NS_ERR_MEMORY, "%s", l->e.msg);
    compiler_stop_flag(l->c, &p->stop);
  }
  bool ok = pthread_create(&p->runner, NULL, runner_main, p) == 0;
  p->runner_started = ok;
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
  static const PipeOptions DEFAULT = {0, 0, NULL, NULL};
  if (!o) o = &DEFAULT;
  Pipeline *p = calloc(1, sizeof *p);
  if (!p) err_raise(e, NS_ERR_MEMORY, "out of memory creating a pipeline");
  pthread_mutex_init(&p->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&p->change, &attr);
  pthread_condattr_destroy(&attr);
  p->target = *t;
  p->cache_dir = copy_text(o->cache_dir);
  p->cc = copy_text(o->cc);
  p->build = (BuildOptions){o->build_timeout_s > 0 ? o->build_timeout_s : 15, p->cache_dir, p->cc};
  p->n_lanes = o->n_compile > 0 ? o->n_compile : default_lanes();
  p->lane = calloc((size_t)p->n_lanes, sizeof *p->lane);
  for (int i = 0; i < MSR_SLOTS; i++) p->slot_task[i] = -1;
  New n = {p, e, d, id, o};
  ErrCode r = p->lane ? err_try(e, new_body, &n) : NS_ERR_MEMORY;
  if (r != NS_OK) {
    pipe_free(p);
    err_rethrow(e, r);
  }
  return p;
}

void pipe_free(Pipeline *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->stop = 1;
  pthread_cond_broadcast(&p->change);
  pthread_mutex_unlock(&p->lock);
  if (p->runner_started) pthread_join(p->runner, NULL);
  for (int i = 0; p->lane && i < p->n_lanes; i++) {
    if (p->lane[i].started) pthread_join(p->lane[i].thread, NULL);
    compiler_stop(p->lane[i].c);
    arena_free(p->lane[i].a);
  }
  worker_stop(p->worker);
  drop_all(&p->to_compile);
  drop_all(&p->to_run);
  drop_all(&p->done);
  for (int i = 0; i < p->n_tasks; i++) task_data_free(p->task[i].data);
  free(p->task);
  free(p->lane);
  free(p->cache_dir);
  free(p->cc);
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

void pipe_stop_above(Pipeline *p, int task, double seconds) {
  pthread_mutex_lock(&p->lock);
  if (task >= 0 && task < p->n_tasks) p->task[task].stop_above = seconds;
  pthread_mutex_unlock(&p->lock);
}

void pipe_incumbent(Pipeline *p, int task, double seconds) {
  pthread_mutex_lock(&p->lock);
  if (task >= 0 && task < p->n_tasks && seconds > 0) p->task[task].best = p->task[task].best_quick = seconds;
  pthread_mutex_unlock(&p->lock);
}

void pipe_submit(Pipeline *p, Err *e, int task, const char *source, const char *manifest, int64_t tag,
                 const RunPolicy *policy) {
  pthread_mutex_lock(&p->lock);
  int n_tasks = p->n_tasks;
  pthread_mutex_unlock(&p->lock);
  if (task < 0 || task >= n_tasks)
    err_raise(e, NS_ERR_VALUE, "task %d is not known to this pipeline (it has %d)", task, n_tasks);
  Job *j = calloc(1, sizeof *j);
  if (j) {
    j->source = strdup(source);
    j->manifest = strdup(manifest);
    j->policy = *policy;
    j->res.tag = tag;
    j->res.task = task;
  }
  if (!j || !j->source || !j->manifest) {
    if (j) job_free(j);
    err_raise(e, NS_ERR_MEMORY, "out of memory queueing a candidate");
  }
  pthread_mutex_lock(&p->lock);
  if (!(p->first > 0)) p->first = clock_now();
  put_in_order(&p->to_compile, j);
  changed(p);
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
    Job *j = take(&p->done);
    out[n++] = j->res;
    job_free(j);
  }
  pthread_mutex_unlock(&p->lock);
  return n;
}

int pipe_pending(Pipeline *p) {
  pthread_mutex_lock(&p->lock);
  int n = p->to_compile.n + p->compiling + p->to_run.n + p->running + p->done.n;
  pthread_mutex_unlock(&p->lock);
  return n;
}

int pipe_cancel(Pipeline *p) {
  pthread_mutex_lock(&p->lock);
  int n = drop_all(&p->to_compile) + drop_all(&p->to_run);
  changed(p);
  pthread_mutex_unlock(&p->lock);
  return n;
}

PipeStats pipe_stats(Pipeline *p) {
  pthread_mutex_lock(&p->lock);
  PipeStats s = p->stats;
  double now = clock_now();
  s.elapsed = p->first > 0 ? now - p->first : 0;
  s.late_elapsed = s.elapsed > MINUTE ? s.elapsed - MINUTE : 0;
  s.lanes = p->n_lanes;
  if (p->running) count_run(&s, p->first, p->run_since, now);
  pthread_mutex_unlock(&p->lock);
  return s;
}

const DevInfo *pipe_device(const Pipeline *p) { return worker_info(p->worker); }
