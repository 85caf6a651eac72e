/* Candidates in, measured results out. Lowering threads turn step lists into source text; the pipeline of the measure room
 * compiles and runs them. A candidate that cannot be lowered comes out as a failed result like any other, so that every
 * tag that went in comes out once.
 */
#include "tune/tune.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  IrCtx *ctx;
  TeDag *dag;
  Target target;
  int layout;
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
  Session *s = mem_alloc(e, sizeof *s);
  err_init(&s->err);
  s->made = fork_count();
  pthread_mutex_init(&s->lock, NULL);
  Open x = {s, t, d, id, n_lower, o};
  s->err.interrupt = e->interrupt;
  ErrCode c = err_try(&s->err, open_pipe, &x);
  s->err.interrupt = NULL;
  if (c == NS_OK) return s;
  Err own = s->err;
  session_free(s);
  err_again(e, c, &own);
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
  *slot = (SessionTask){.target = *x->t, .layout = x->layout};
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
  x->out = pipe_task(s->pipe, made);
  if (x->out >= 0) return;
  task_data_free(made);
  err_raise(e, NS_ERR_MEMORY, "out of memory adding a task");
}
int session_task(Session *s, Err *e, const IrCtx *src, const TeDag *d, const Target *t, int layout,
                 const void *const *data, bool exact, const char *math) {
  AddTask x = {s, src, d, t, layout, data, exact, math, -1};
  pthread_mutex_lock(&s->lock); /* other threads submit and poll meanwhile */
  int known = s->task.len;
  ErrCode c = err_try(&s->err, add_task, &x);
  if (c != NS_OK) memcpy(e->msg, s->err.msg, sizeof e->msg);
  if (c != NS_OK && s->task.len > known)
    ir_free(s->task.at[--s->task.len]->ctx); /* numbers are those of the pipeline */
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
  GenText src;
  if (it->text) {
    src = *it->text;
  } else {
    if (!l->at->ctx) {
      l->at->ctx = ir_clone(t->ctx, e);
      l->at->mark = ir_mark(l->at->ctx);
    }
    ir_limit(l->at->ctx);
    src = gen_steps(l->at->ctx, t->dag, &t->target, it->n_step, it->step, t->layout, PROGRAM_NAME, NULL);
  }
  if (src.why) err_raise(e, NS_ERR_VALUE, "%s", src.why);
  RunPolicy p = *x->policy;
  p.check = p.check && t->check;
  p.cold_args = t->cold_args;
  p.cold_bytes = t->cold_bytes;
  pipe_submit(x->s->pipe, e, x->task, src.source, src.manifest, x->tag + l->item, &p);
}
ERR_BODY(tell_failure, const Lower *l,
         pipe_failed(l->x->s->pipe, &l->at->err, l->x->task, l->x->tag + l->item, ME_INSTANTIATION, l->at->err.msg))
static void lower_job(void *arg, int worker, int64_t item) {
  Submit *x = arg;
  Lower l = {x, &x->at[worker], item};
  ErrCode c = err_try(&l.at->err, lower_one, &l);
  if (l.at->ctx) ir_release(l.at->ctx, l.at->mark);
  if (c != NS_OK && c != NS_ERR_INTERRUPT) /* then the run ends: that is no result of the candidate */
    err_try(&l.at->err, tell_failure, &l);
}

void session_submit(Session *s, Err *e, int task, int n, const SubmitItem *item, int64_t first_tag,
                    const RunPolicy *p) {
  pthread_mutex_lock(&s->lock);
  int known = s->task.len;
  SessionTask *own = task >= 0 && task < known ? s->task.at[task] : NULL;
  pthread_mutex_unlock(&s->lock);
  err_check(e, own, "task %d is not one of the session's %d tasks", task, known);
  int workers = s->pool ? pool_size(s->pool) : 1;
  Submit x = {.s = s, .t = own, .task = task, .n = n, .item = item, .tag = first_tag, .policy = p};
  x.at = mem_alloc(e, (size_t)workers * sizeof *x.at);
  pipe_hold(s->pipe, task, 1); /* the round is not over while some of it is still being lowered */
  for (int i = 0; i < workers; i++) {
    err_init(&x.at[i].err);
    x.at[i].err.interrupt = e->interrupt;
  }
  if (s->pool)
    pool_run(s->pool, n, lower_job, &x);
  else
    for (int i = 0; i < n; i++) lower_job(&x, 0, i);
  pipe_hold(s->pipe, task, -1);
  for (int i = 0; i < workers; i++)
    if (x.at[i].ctx) ir_free(x.at[i].ctx);
  free(x.at);
  err_poll(e);
}

Pipeline *session_pipe(const Session *s) { return s->pipe; }
