/* Candidates in, measured results out. Lowering threads turn step lists into source text; the pipeline of the measure room
 * compiles and runs them. A candidate that cannot be lowered comes out as a failed result like any other, so that every
 * tag that went in comes out once.
 */
#include "tune/tune.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  IrCtx *ctx;
  TeDag *dag;
  Target target;
  int layout, pipe;
  bool check;
  uint64_t cold_args;
  int64_t cold_bytes;
} SessionTask;
struct Session {
  Err err; /* owns the memory of tasks */
  Arena *arena;
  VEC(SessionTask *) task;
  Pipeline *pipe;
  Pool *pool;
  int made; /* fork_count */
  pthread_mutex_t lock;
  VEC(PipeResult) done; /* failed before they reached the pipeline */
  int next_done;
};

typedef struct {
  Session *s;
  const Target *t;
  DevType d;
  int id, n_lower;
  const PipeOptions *o;
} Open;
static void open_pipe(void *arg) {
  Open *x = arg;
  x->s->arena = arena_new(&x->s->err);
  if (x->n_lower > 1) x->s->pool = pool_new(x->n_lower, &x->s->err);
  x->s->pipe = pipe_new(&x->s->err, x->t, x->d, x->id, x->o);
}
Session *session_new(Err *e, const Target *t, DevType d, int id, int n_lower, const PipeOptions *o) {
  Session *s = calloc(1, sizeof *s);
  if (!s) err_raise(e, NS_ERR_MEMORY, "out of memory opening a measuring session");
  err_init(&s->err);
  s->made = fork_count();
  pthread_mutex_init(&s->lock, NULL);
  Open x = {s, t, d, id, n_lower, o};
  s->err.interrupt = e->interrupt;
  ErrCode c = err_try(&s->err, open_pipe, &x);
  s->err.interrupt = NULL;
  if (c != NS_OK) {
    memcpy(e->msg, s->err.msg, sizeof e->msg);
    session_free(s);
    err_rethrow(e, c);
  }
  return s;
}
void session_free(Session *s) {
  if (!s || s->made != fork_count()) return;
  pipe_free(s->pipe);
  pool_free(s->pool);
  for (int i = 0; i < s->task.len; i++) ir_free(s->task.at[i]->ctx);
  arena_free(s->arena);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

typedef struct {
  Session *s;
  const IrCtx *src;
  const TeDag *d;
  const Target *t;
  int layout;
  const void *const *data;
  bool exact;
  const char *math;
  int out;
} AddTask;
static void add_task(void *arg) {
  AddTask *x = arg;
  Session *s = x->s;
  Err *e = &s->err;
  SessionTask *slot = arena_new_of(s->arena, SessionTask);
  *slot = (SessionTask){.target = *x->t, .layout = x->layout, .pipe = -1};
  slot->ctx = ir_new(e);
  vec_push(s->arena, &s->task, slot);
  slot->dag = te_dag_import(slot->ctx, x->src, x->d);
  int n = slot->dag->n_tensors;
  err_check(e, n <= MSR_MAX_ARGS, "a task with %d tensors cannot be measured; at most %d", n, MSR_MAX_ARGS);
  size_t bytes[MSR_MAX_ARGS];
  const void *data[MSR_MAX_ARGS];
  bool is_output[MSR_MAX_ARGS];
  const char *dtype[MSR_MAX_ARGS];
  for (int i = 0; i < n; i++) {
    const IrTensor *t = ir_tensor(slot->ctx, slot->dag->tensor[i]);
    int64_t b = te_bytes(slot->ctx, slot->dag->tensor[i]);
    err_check(e, b >= 0, "tensor %s has a symbolic shape and cannot be measured", t->name);
    bytes[i] = (size_t)b;
    data[i] = x->data ? x->data[i] : NULL;
    is_output[i] = ((const TeOp *)t->op)->kind != TE_PLACEHOLDER;
    slot->check |= is_output[i] && data[i];
    StrBuf sb;
    sb_init(&sb, s->arena);
    dtype_print(&sb, t->type);
    dtype[i] = x->math && is_output[i] && dtype_eq(t->type, DT_F32) ? x->math : sb_str(&sb);
  }
  bool exact[MSR_MAX_ARGS] = {false};
  if (x->exact && x->data && !x->math) te_exact(slot->ctx, slot->dag, exact);
  TaskData *made = task_data_new(e, n, bytes, data, is_output, dtype, exact);
  slot->pipe = pipe_task(s->pipe, made);
  if (slot->pipe < 0) {
    task_data_free(made);
    err_raise(e, NS_ERR_MEMORY, "out of memory adding a task");
  }
  x->out = s->task.len - 1;
}
int session_task(Session *s, Err *e, const IrCtx *src, const TeDag *d, const Target *t, int layout,
                 const void *const *data, bool exact, const char *math) {
  AddTask x = {s, src, d, t, layout, data, exact, math, -1};
  pthread_mutex_lock(&s->lock); /* other threads submit and poll meanwhile */
  ErrCode c = err_try(&s->err, add_task, &x);
  if (c != NS_OK) memcpy(e->msg, s->err.msg, sizeof e->msg);
  pthread_mutex_unlock(&s->lock);
  if (c != NS_OK) err_rethrow(e, c);
  return x.out;
}

void session_cold(Session *s, Err *e, int task, uint64_t args, int64_t bytes) {
  pthread_mutex_lock(&s->lock);
  int n = s->task.len;
  SessionTask *t = task >= 0 && task < n ? s->task.at[task] : NULL;
  if (t) t->cold_args = args, t->cold_bytes = bytes;
  pthread_mutex_unlock(&s->lock);
  err_check(e, t != NULL, "task %d is not one of the session's %d tasks", task, n);
}

typedef struct {
  Session *s;
  SessionTask *t;
  int task, n;
  const SubmitItem *item;
  int64_t tag;
  const RunPolicy *policy;
  struct Lowering {
    Err err;
    IrCtx *ctx;
    IrMark mark;
  } * at; /* one per worker */
} Submit;
typedef struct {
  Submit *x;
  struct Lowering *at;
  int64_t item;
} Lower;

static void lower_one(void *arg) {
  Lower *l = arg;
  Submit *x = l->x;
  SessionTask *t = x->t;
  Err *e = &l->at->err;
  err_poll(e);
  const SubmitItem *it = &x->item[l->item];
  if (!it->text && !l->at->ctx) {
    l->at->ctx = ir_clone(t->ctx, e);
    l->at->mark = ir_mark(l->at->ctx);
  }
  GenText src =
      it->text ? *it->text : gen_steps(l->at->ctx, t->dag, &t->target, it->n_step, it->step, t->layout, PROGRAM_NAME);
  if (src.why) err_raise(e, NS_ERR_VALUE, "%s", src.why);
  RunPolicy p = *x->policy;
  p.check = p.check && t->check;
  p.cold_args = t->cold_args;
  p.cold_bytes = t->cold_bytes;
  pipe_submit(x->s->pipe, e, t->pipe, src.source, src.manifest, x->tag + l->item, &p);
}
static void push_done(void *arg) {
  void **x = arg;
  Session *s = x[0];
  vec_push(s->arena, &s->done, *(PipeResult *)x[1]);
}
static void lower_job(void *arg, int worker, int64_t item) {
  Submit *x = arg;
  Lower l = {x, &x->at[worker], item};
  ErrCode c = err_try(&l.at->err, lower_one, &l);
  if (l.at->ctx) ir_release(l.at->ctx, l.at->mark);
  if (c == NS_OK || c == NS_ERR_INTERRUPT) return; /* the run ends: that is no result of the candidate */
  PipeResult r = {.tag = x->tag + item, .task = x->task};
  r.run.error = ME_INSTANTIATION;
  snprintf(r.run.msg, sizeof r.run.msg, "%.500s", l.at->err.msg);
  snprintf(r.run.cause, sizeof r.run.cause, "%s", cause_of(ME_INSTANTIATION, r.run.msg));
  pthread_mutex_lock(&x->s->lock);
  void *both[2] = {x->s, &r};
  err_try(&x->s->err, push_done, both);
  pthread_mutex_unlock(&x->s->lock);
}

void session_submit(Session *s, Err *e, int task, int n, const SubmitItem *item, int64_t first_tag,
                    const RunPolicy *p) {
  pthread_mutex_lock(&s->lock);
  int known = s->task.len;
  SessionTask *own = task >= 0 && task < known ? s->task.at[task] : NULL;
  pthread_mutex_unlock(&s->lock);
  err_check(e, own && own->pipe >= 0, "task %d is not one of the session's %d tasks", task, known);
  int workers = s->pool ? pool_size(s->pool) : 1;
  Submit x = {.s = s, .t = own, .task = task, .n = n, .item = item, .tag = first_tag, .policy = p};
  x.at = calloc((size_t)workers, sizeof *x.at);
  if (!x.at) err_raise(e, NS_ERR_MEMORY, "out of memory submitting %d candidates", n);
  pipe_hold(s->pipe, own->pipe, 1); /* the round is not over while some of it is still being lowered */
  for (int i = 0; i < workers; i++) {
    err_init(&x.at[i].err);
    x.at[i].err.interrupt = e->interrupt;
  }
  if (s->pool)
    pool_run(s->pool, n, lower_job, &x);
  else
    for (int i = 0; i < n; i++) lower_job(&x, 0, i);
  pipe_hold(s->pipe, own->pipe, -1);
  for (int i = 0; i < workers; i++)
    if (x.at[i].ctx) ir_free(x.at[i].ctx);
  free(x.at);
  err_poll(e);
}

int session_poll(Session *s, double wait_s, PipeResult *out, int max) {
  int n = 0;
  pthread_mutex_lock(&s->lock);
  while (n < max && s->next_done < s->done.len) out[n++] = s->done.at[s->next_done++];
  if (s->next_done == s->done.len) s->next_done = s->done.len = 0;
  pthread_mutex_unlock(&s->lock);
  if (n > 0) wait_s = 0;
  if (n < max && pipe_pending(s->pipe) > 0) n += pipe_poll(s->pipe, wait_s, out + n, max - n);
  return n;
}
int session_pending(Session *s) {
  pthread_mutex_lock(&s->lock);
  int n = s->done.len - s->next_done;
  pthread_mutex_unlock(&s->lock);
  return n + pipe_pending(s->pipe);
}
int session_cancel(Session *s) { return pipe_cancel(s->pipe); }
void session_incumbent(Session *s, int task, double seconds) {
  pthread_mutex_lock(&s->lock);
  if (task >= 0 && task < s->task.len) pipe_incumbent(s->pipe, s->task.at[task]->pipe, seconds);
  pthread_mutex_unlock(&s->lock);
}
bool session_notice(Session *s, char *out, size_t n) { return pipe_notice(s->pipe, out, n); }
PipeStats session_stats(const Session *s) { return pipe_stats(s->pipe); }
const DevInfo *session_device(const Session *s) { return pipe_device(s->pipe); }
