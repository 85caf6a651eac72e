/* Bindings of build and measure: build, Compiler, Worker, Pipeline. Calls block without the GIL; those that start processes
 * are ended by Ctrl-C, and Python runs the other long ones in threads and ends them with stop(). */
#include "py/py_device.h"
#include "base/object.h"
#include "py/py_fields.h"
#include "py/py_measure.h"
#include "program/program.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *PyPipelineBase_Type;
static PyTypeObject *Task_Type;
typedef struct {
  PyObject_HEAD TaskData *data;
} PyTask;
typedef struct {
  PyObject_HEAD Compiler *c;
  atomic_int stop;
  bool busy;
  int made; /* fork_count, as in the next two */
} PyCompiler;
typedef struct {
  PyObject_HEAD Err err;
  Worker *w;
  PyObject *task[MSR_SLOTS];
  DevLock *lock; /* NULL: whoever comes may measure */
  bool told;     /* who holds the device */
  LockMode mode;
  atomic_int stop;
  bool busy;
  int made;
} PyWorker;

/* A field of the policy more: its member in measure/measure.h and one line here. */
static const char *const CACHES[] = {"mixed", "hot", "cold", NULL};
static const PyField POLICY[] = {FIELD(RunPolicy, number, FIELD_I32),
                                 FIELD(RunPolicy, repeat, FIELD_I32),
                                 FIELD(RunPolicy, min_repeat_ms, FIELD_I32),
                                 FIELD_AS(RunPolicy, "timeout", timeout_s, FIELD_DOUBLE),
                                 FIELD_AS(RunPolicy, "cooldown", cooldown_s, FIELD_DOUBLE),
                                 FIELD(RunPolicy, flush, FIELD_BOOL),
                                 FIELD(RunPolicy, check, FIELD_BOOL),
                                 FIELD(RunPolicy, stop_above, FIELD_DOUBLE),
                                 FIELD(RunPolicy, full_below, FIELD_DOUBLE),
                                 FIELD(RunPolicy, strict, FIELD_BOOL),
                                 FIELD(RunPolicy, race, FIELD_BOOL),
                                 FIELD_IN(RunPolicy, cache, FIELD_I32, 0, 0, CACHES),
                                 FIELD_IN(RunPolicy, cold_args, FIELD_I64, 0, INT64_MAX, NULL),
                                 FIELD_IN(RunPolicy, cold_bytes, FIELD_I64, 0, INT64_MAX, NULL),
                                 FIELDS_END};
int py_policy(PyObject *o, void *out) {
  *(RunPolicy *)out = (RunPolicy){.number = 3, .repeat = 1, .min_repeat_ms = 100, .timeout_s = 10};
  return py_fields_set("policy", o, POLICY, out);
}

static const PyField RESULT[] = {FIELD_AS(RunResult, "error", error, FIELD_I32),
                                 FIELD(RunResult, quick, FIELD_DOUBLE),
                                 FIELD(RunResult, seconds, FIELD_DOUBLE),
                                 FIELD(RunResult, spread, FIELD_DOUBLE),
                                 FIELD(RunResult, blocks, FIELD_I32),
                                 FIELD(RunResult, redone, FIELD_I32),
                                 FIELD(RunResult, full, FIELD_BOOL),
                                 FIELD(RunResult, cut, FIELD_BOOL),
                                 FIELD(RunResult, audited, FIELD_BOOL),
                                 FIELD(RunResult, disturbed, FIELD_BOOL),
                                 FIELD(RunResult, runs, FIELD_I32),
                                 FIELD(RunResult, regs, FIELD_I32),
                                 FIELD(RunResult, local_bytes, FIELD_I32),
                                 FIELD(RunResult, shared_bytes, FIELD_I32),
                                 FIELD(RunResult, max_error, FIELD_DOUBLE),
                                 FIELD(RunResult, cause, FIELD_CHARS),
                                 FIELD(RunResult, msg, FIELD_CHARS),
                                 FIELDS_END};
static PyObject *run_result(const RunResult *r) {
  PyObject *d = py_fields_dict(RESULT, r);
  if (d) py_put_key(&d, "costs", py_list(FIELD_DOUBLE, r->n_costs, r->cost));
  return d;
}

/* ---- build ---- */
/* The binaries of this process: made on first use, for all pipelines and builds. */
static BuildCache *process_memory;
static pthread_once_t memory_once = PTHREAD_ONCE_INIT;
static void make_memory(void) {
  const char *s = getenv("NESTSMITH_CACHE_MEMORY_MB");
  long mb = s && *s ? strtol(s, NULL, 10) : 128;
  if (mb > 0) process_memory = build_cache_new((size_t)mb << 20);
}
BuildCache *py_build_memory(void) {
  pthread_once(&memory_once, make_memory);
  return process_memory;
}

typedef struct {
  Arena *a;
  Err e;
  Target t;
  const char *source;
  BuildOptions o;
  Binary out;
} Build;
/* NVRTC runs in the process that calls it, and only ending that ends it: under a limit it gets one of its own. */
static void build_body(void *arg) {
  Build *b = arg;
  char msg[MSR_MSG];
  b->a = arena_new(&b->e);
  if (b->t.kind != TG_CUDA || b->o.timeout_s <= 0) {
    b->out = build_binary(b->a, &b->t, b->source, &b->o);
    return;
  }
  if (build_cached(b->a, &b->t, b->source, &b->o, &b->out)) return;
  Compiler *c = compiler_start(&b->e);
  MeasureError r = compiler_run(c, b->a, &b->t, b->source, &b->o, &b->out, msg);
  compiler_stop(c);
  if (r != ME_OK) err_raise(&b->e, NS_ERR_RUNTIME, "%s", msg);
}

static PyObject *fn_build(PyObject *Py_UNUSED(self), PyObject *args) {
  Build b = {0};
  PyObject *stop = NULL;
  err_init(&b.e);
  if (!PyArg_ParseTuple(args, "O&s|dzzO", py_target, &b.t, &b.source, &b.o.timeout_s, &b.o.cache_dir, &b.o.cc, &stop) ||
      !(stop = py_stop_from(stop)))
    return NULL;
  b.o.memory = py_build_memory();
  b.e.interrupt = py_stop_flag(stop);
  PyObject *r = py_run_ok(&b.e, build_body, &b) ? Py_BuildValue("y#dO", b.out.data, (Py_ssize_t)b.out.n, b.out.seconds,
                                                                b.out.cached ? Py_True : Py_False)
                                                : NULL;
  py_arena_free(b.a);
  Py_DECREF(stop);
  return r;
}

static PyObject *fn_build_rename(PyObject *Py_UNUSED(self), PyObject *args) {
  const char *data, *name;
  Py_ssize_t n;
  if (!PyArg_ParseTuple(args, "y#s", &data, &n, &name)) return NULL;
  PyObject *r = py_bytes(data, (size_t)n);
  if (!r) return NULL;
  PY_UNLOCKED(build_rename(PyBytes_AsString(r), (size_t)n, name)); /* no other reference exists yet */
  return r;
}

static PyObject *fn_build_report(PyObject *Py_UNUSED(self), PyObject *args) {
  Target t;
  const char *data;
  Py_ssize_t n;
  int dynamic = 0;
  BuildReport r;
  if (!PyArg_ParseTuple(args, "O&y#|i", py_target, &t, &data, &n, &dynamic)) return NULL;
  bool ok;
  PY_UNLOCKED(ok = build_report(&t, data, (size_t)n, dynamic, &r));
  if (!ok) return Py_NewRef(Py_None);
  return Py_BuildValue("{s:i,s:i,s:i,s:i,s:i,s:i,s:d}", "kernels", r.kernels, "regs", r.regs, "local_bytes",
                       r.local_bytes, "shared_bytes", r.shared_bytes, "threads", r.threads, "blocks", r.blocks,
                       "occupancy", r.occupancy);
}

static PyObject *fn_build_available(PyObject *Py_UNUSED(self), PyObject *arg) {
  Target t;
  char why[512];
  if (!py_target(arg, &t)) return NULL;
  bool ok;
  PY_UNLOCKED(ok = build_available(&t, why, sizeof why)); /* it may have to load a library, or to start a compiler */
  return Py_BuildValue("ON", ok ? Py_True : Py_False, py_text(why));
}

typedef struct {
  PyScratch s;
  Target t;
  const char *cc, *arch, *note;
  char **flag;
  int n;
} Flags;
static void flags_body(void *arg) {
  Flags *f = arg;
  if (f->cc)
    f->flag = build_cc_flags(f->s.a, &f->t, f->cc, f->arch, &f->n);
  else
    f->note = isa_note(f->s.a);
}

static PyObject *fn_cc_flags(PyObject *Py_UNUSED(self), PyObject *args) {
  Flags f = {0};
  if (!PyArg_ParseTuple(args, "O&sz", py_target, &f.t, &f.cc, &f.arch)) return NULL;
  PyObject *out = py_scratch_free(&f.s, flags_body, &f) ? py_list(FIELD_TEXT, f.n, f.flag) : NULL;
  py_arena_free(f.s.a);
  return out;
}

static PyObject *fn_isa_note(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) {
  Flags f = {0};
  PyObject *out = py_scratch_free(&f.s, flags_body, &f) ? PyUnicode_FromString(f.note) : NULL;
  py_arena_free(f.s.a);
  return out;
}

static PyObject *fn_sm_range(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) {
  int lo, hi;
  bool ok;
  PY_UNLOCKED(ok = build_sm_range(&lo, &hi));
  if (!ok) return Py_NewRef(Py_None);
  return Py_BuildValue("ii", lo, hi);
}

/* ---- task data ---- */
typedef struct {
  Err e;
  int n;
  size_t bytes[MSR_MAX_ARGS];
  const void *data[MSR_MAX_ARGS];
  bool is_output[MSR_MAX_ARGS], exact[MSR_MAX_ARGS];
  const char *dtype[MSR_MAX_ARGS];
  Py_buffer view[MSR_MAX_ARGS];
  TaskData *out;
} TaskArgs;
ERR_BODY(task_body, TaskArgs *t,
         t->out = task_data_new(&t->e, t->n, t->bytes, t->data, t->is_output, t->dtype, t->exact))

static PyObject *task_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kw)) {
  PyObject *list;
  if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list)) return NULL;
  PyObject *rows = PyList_AsTuple(list); /* owns them while the lock is released */
  TaskArgs *t = rows ? py_calloc(1, sizeof *t) : NULL;
  if (!t) return Py_XDECREF(rows), NULL;
  err_init(&t->e);
  PyTask *o = NULL;
  bool ok = PyTuple_Size(rows) <= MSR_MAX_ARGS;
  if (!ok)
    PyErr_Format(PyExc_ValueError, "a task has %zd arguments, at most %d are supported", PyTuple_Size(rows),
                 MSR_MAX_ARGS);
  for (; ok && t->n < PyTuple_Size(rows); t->n++) {
    PyObject *data, *row = PyTuple_GetItem(rows, t->n);
    Py_ssize_t bytes;
    int is_output, exact = 0;
    ok = PyTuple_Check(row);
    if (!ok)
      PyErr_Format(PyExc_TypeError, "argument %d: expected a tuple (bytes, array or None, is_output, dtype), got %s",
                   t->n, PY_TYPE_NAME(row));
    ok = ok && PyArg_ParseTuple(row, "nOps|p", &bytes, &data, &is_output, &t->dtype[t->n], &exact);
    if (ok && data != Py_None && PyObject_GetBuffer(data, &t->view[t->n], PyBUF_C_CONTIGUOUS) < 0) ok = false;
    if (ok && (bytes < 0 || (data != Py_None && t->view[t->n].len != bytes))) {
      PyErr_Format(PyExc_ValueError, "argument %d: the data has %zd bytes, %zd were announced", t->n, t->view[t->n].len,
                   bytes);
      t->n++;
      ok = false;
      break;
    }
    if (!ok) break;
    t->bytes[t->n] = (size_t)bytes;
    t->data[t->n] = data == Py_None ? NULL : t->view[t->n].buf;
    t->is_output[t->n] = is_output;
    t->exact[t->n] = exact;
  }
  if (ok && py_free_ok(&t->e, task_body, t)) {
    o = (PyTask *)PyType_GenericAlloc(type, 0);
    if (o)
      o->data = t->out;
    else
      task_data_free(t->out);
  }
  for (int i = 0; i < t->n; i++)
    if (t->view[i].obj) PyBuffer_Release(&t->view[i]);
  PyMem_Free(t);
  Py_DECREF(rows);
  return (PyObject *)o;
}

static void task_dealloc(PyObject *o) {
  PY_UNLOCKED(task_data_free(((PyTask *)o)->data));
  py_free_object(o);
}

/* ---- Compiler ---- */
typedef struct {
  Err e;
  PyCompiler *c;
} NewCompiler;
ERR_BODY(compiler_body, NewCompiler *n, n->c->c = compiler_start(&n->e))

static PyObject *compiler_new(PyTypeObject *t, PyObject *args, PyObject *Py_UNUSED(kw)) {
  NewCompiler n = {.c = NULL};
  if (!PyArg_ParseTuple(args, "")) return NULL;
  err_init(&n.e);
  n.c = (PyCompiler *)PyType_GenericAlloc(t, 0);
  if (n.c) n.c->made = fork_count();
  if (!n.c || !py_free_ok(&n.e, compiler_body, &n)) {
    Py_XDECREF((PyObject *)n.c);
    return NULL;
  }
  compiler_stop_flag(n.c->c, &n.c->stop);
  return (PyObject *)n.c;
}

static void compiler_dealloc(PyObject *o) {
  if (((PyCompiler *)o)->made == fork_count())
    PY_UNLOCKED(compiler_stop(((PyCompiler *)o)->c)); /* waits for its process */
  py_free_object(o);
}

/* run(target, source, timeout, cache_dir, cc): (error_no, bytes or None, message, seconds, cached) */
static PyObject *compiler_run_py(PyObject *o, PyObject *args) {
  PyCompiler *c = (PyCompiler *)o;
  Target t;
  const char *source;
  char msg[MSR_MSG];
  BuildOptions b = {0};
  Binary out = {0};
  PyScratch own = {0};
  MeasureError r;
  if (!PyArg_ParseTuple(args, "O&sdzz", py_target, &t, &source, &b.timeout_s, &b.cache_dir, &b.cc)) return NULL;
  if (!py_here(c->made, "compiler")) return NULL;
  if (c->busy) return PyErr_Format(PyExc_RuntimeError, "the compiler is busy: it compiles one program at a time");
  if (!py_scratch_alloc(&own, 0, 1)) return NULL;
  double start = clock_now();
  c->busy = true;
  PY_UNLOCKED(r = compiler_run(c->c, own.a, &t, source, &b, &out, msg));
  c->busy = false;
  double seconds = clock_now() - start;
  PyObject *x = r == ME_OK ? Py_BuildValue("iy#sdO", (int)r, out.data, (Py_ssize_t)out.n, "", seconds,
                                           out.cached ? Py_True : Py_False)
                           : Py_BuildValue("iONdO", (int)r, Py_None, py_text(msg), seconds, Py_False);
  py_arena_free(own.a);
  return x;
}

static PyObject *compiler_stop_py(PyObject *o, PyObject *Py_UNUSED(none)) {
  ((PyCompiler *)o)->stop = 1;
  return Py_NewRef(Py_None);
}

/* ---- Worker ---- */
typedef struct {
  PyWorker *w;
  int type, id;
} NewWorker;
static const double TELL_SECONDS = 2;
static void worker_body(void *arg) {
  NewWorker *n = arg;
  PyWorker *w = n->w;
  w->w = worker_start(&w->err, (DevType)n->type, n->id);
  w->lock = devlock_open(&w->err, w->mode, (DevType)n->type, n->id, worker_info(w->w));
}

/* A line in the log of the package. */
static void tell_holder(const char *holder) {
  PyEntry g = py_enter();
  PyObject *logging = PyImport_ImportModule("logging");
  PyObject *log = logging ? PyObject_CallMethod(logging, "getLogger", "s", "auto_scheduler") : NULL;
  PyObject *who = py_text(holder), *r = NULL;
  if (log && who)
    r = PyObject_CallMethod(log, "warning", "sO", "The device is used by another tuner, %s: taking turns with it.",
                            who);
  PY_DROP(r, who, log, logging);
  py_clear();
  py_leave(g);
}

/* Waits until the device is ours, or the worker is stopped; who waits for long says so once. One that does not refuse
 * others gives it back after each run. */
static void worker_turn(PyWorker *w) {
  char holder[400];
  double begin = clock_now();
  while (w->lock && !w->stop && !devlock_turn(w->lock, clock_now(), holder, sizeof holder)) {
    if (!w->told && clock_now() - begin > TELL_SECONDS) {
      w->told = true;
      tell_holder(holder);
    }
    nanosleep(&(struct timespec){0, 20000000}, NULL);
  }
  if (w->lock) devlock_leave(w->lock);
}

int py_lock_mode(PyObject *o, void *out) {
  long given = PyLong_AsLong(o);
  if (PyErr_Occurred()) return 0;
  *(LockMode *)out = (LockMode)given;
  if (given >= LOCK_AUTO && given <= LOCK_NONE) return 1;
  PyErr_Format(PyExc_ValueError, "lock %ld is none of 0 (auto), 1 (turns), 2 (fail), 3 (none)", given);
  return 0;
}

static PyObject *worker_new(PyTypeObject *t, PyObject *args, PyObject *Py_UNUSED(kw)) {
  NewWorker n = {0};
  PyObject *stop = NULL;
  LockMode mode = LOCK_NONE;
  if (!PyArg_ParseTuple(args, "ii|O&O", &n.type, &n.id, py_lock_mode, &mode, &stop)) return NULL;
  n.w = (PyWorker *)PyType_GenericAlloc(t, 0);
  if (!n.w) return NULL;
  n.w->mode = mode;
  n.w->made = fork_count();
  err_init(&n.w->err);
  PyObject *own = py_stop_from(stop); /* only for the start */
  if (own) n.w->err.interrupt = py_stop_flag(own);
  bool ok = own && py_run_ok(&n.w->err, worker_body, &n);
  n.w->err.interrupt = NULL;
  Py_XDECREF(own);
  if (ok)
    worker_stop_flag(n.w->w, &n.w->stop);
  else
    Py_CLEAR(n.w);
  return (PyObject *)n.w;
}

static void worker_end(PyWorker *w) {
  Worker *x = w->w;
  DevLock *lock = w->lock;
  w->w = NULL, w->lock = NULL; /* other threads find it closed */
  Py_BEGIN_ALLOW_THREADS;      /* waits for its process */
  worker_stop(x);
  devlock_free(lock);
  Py_END_ALLOW_THREADS;
}

static void worker_dealloc(PyObject *o) {
  PyWorker *w = (PyWorker *)o;
  worker_end(w);
  for (int i = 0; i < MSR_SLOTS; i++) Py_XDECREF(w->task[i]);
  py_free_object(o);
}

/* run(slot, task, binary, manifest, policy): result dict */
static PyObject *worker_run_py(PyObject *o, PyObject *args) {
  PyWorker *w = (PyWorker *)o;
  int slot;
  PyObject *task;
  const char *bin, *manifest;
  Py_ssize_t n;
  RunPolicy p;
  RunResult r;
  if (!PyArg_ParseTuple(args, "iO!y#sO&", &slot, Task_Type, &task, &bin, &n, &manifest, py_policy, &p)) return NULL;
  if (!w->w) return PyErr_Format(PyExc_ValueError, "the worker is closed");
  if (!py_here(w->made, "measuring worker")) return NULL;
  if (w->busy) return PyErr_Format(PyExc_RuntimeError, "the worker is busy: it runs one program at a time");
  if (slot < 0 || slot >= MSR_SLOTS)
    return PyErr_Format(PyExc_ValueError, "slot %d is not in [0, %d)", slot, MSR_SLOTS);
  if (w->task[slot] != task) {
    PyObject *old = w->task[slot];
    w->task[slot] = Py_NewRef(task);
    worker_task(w->w, slot, ((PyTask *)task)->data);
    Py_XDECREF(old);
  }
  w->busy = true;
  Py_BEGIN_ALLOW_THREADS;
  worker_turn(w); /* stopped while it waited: worker_run says so */
  r = worker_run(w->w, slot, bin, (size_t)n, manifest, &p);
  if (w->lock && w->mode != LOCK_FAIL) devlock_release(w->lock);
  Py_END_ALLOW_THREADS;
  w->busy = false;
  return run_result(&r);
}

static PyObject *worker_stop_py(PyObject *o, PyObject *flag) {
  ((PyWorker *)o)->stop = PyObject_IsTrue(flag);
  return Py_NewRef(Py_None);
}

static PyObject *worker_close(PyObject *o, PyObject *Py_UNUSED(none)) {
  PyWorker *w = (PyWorker *)o;
  if (w->busy && w->made == fork_count()) return PyErr_Format(PyExc_RuntimeError, "the worker is busy; stop it first");
  worker_end(w);
  return Py_NewRef(Py_None);
}

static PyObject *worker_pid_py(PyObject *o, void *Py_UNUSED(none)) {
  PyWorker *w = (PyWorker *)o;
  return PyLong_FromLong(w->w ? worker_pid(w->w) : 0);
}

/* ---- where results come out ---- */
PyPipeline *py_pipeline_open(PyObject *o) {
  PyPipeline *p = (PyPipeline *)o;
  const char *what = p->tasks ? "session" : "pipeline";
  if (!p->p) return PyErr_Format(PyExc_ValueError, "the %s is closed", what), NULL;
  return py_here(p->made, p->tasks ? "measuring session" : what) ? p : NULL;
}

/* New calls are refused; those of other threads come to their end first. After a fork those are threads of the parent. */
static PyObject *pipeline_close(PyObject *o, PyObject *Py_UNUSED(none)) {
  PyPipeline *p = (PyPipeline *)o;
  void *owner = p->owner;
  p->p = NULL, p->owner = NULL;
  if (p->stop) py_stop_set(p->stop);
  while (p->users && p->made == fork_count()) PY_UNLOCKED(nanosleep(&(struct timespec){0, 5000000}, NULL));
  if (owner) PY_UNLOCKED(p->end(owner));
  return Py_NewRef(Py_None);
}
static void pipeline_dealloc(PyObject *o) {
  PyPipeline *p = (PyPipeline *)o;
  if (p->owner) PY_UNLOCKED(p->end(p->owner));
  PY_DROP(p->stop, p->tasks);
  py_free_object(o);
}

static const PyField PIPE_RESULT[] = {FIELD(PipeResult, tag, FIELD_I64),
                                      FIELD(PipeResult, task, FIELD_I32),
                                      FIELD(PipeResult, build_seconds, FIELD_DOUBLE),
                                      FIELD(PipeResult, cached, FIELD_BOOL),
                                      FIELD_AS(PipeResult, "run_seconds", run.seconds, FIELD_DOUBLE),
                                      FIELD_AS(PipeResult, "occupancy", report.occupancy, FIELD_DOUBLE),
                                      FIELDS_END};
static PyObject *result_new(const PipeResult *r) {
  RunResult run = r->run;
  if (r->report.kernels > 0) /* from the binary: the worst of all kernels; the device tells of the first alone */
    run.regs = r->report.regs, run.local_bytes = r->report.local_bytes, run.shared_bytes = r->report.shared_bytes;
  PyObject *d = run_result(&run);
  if (d && !py_fields_add(d, PIPE_RESULT, r)) Py_CLEAR(d);
  return d;
}
static PyObject *pipeline_poll(PyObject *o, PyObject *args) {
  enum { POLL_MAX = 64 };
  PyPipeline *p;
  double wait = 0;
  if (!PyArg_ParseTuple(args, "|d", &wait) || !(p = py_pipeline_open(o))) return NULL;
  PipeResult *out = py_calloc(POLL_MAX, sizeof *out);
  if (!out) return NULL;
  int n;
  double end = clock_now() + wait;
  do { /* in short pieces, so that Ctrl-C is heard; a signal handler may close it */
    Pipeline *x = p->p;
    double left = pipe_pending(x) > 0 ? end - clock_now() : 0;
    p->users++;
    PY_UNLOCKED(n = pipe_poll(x, left < 0.2 ? left : 0.2, out, POLL_MAX));
    p->users--;
  } while (n == 0 && PyErr_CheckSignals() == 0 && p->p && clock_now() < end && pipe_pending(p->p) > 0);
  PyObject *l = PyErr_Occurred() ? NULL : PyList_New(n);
  for (int i = 0; l && i < n; i++) py_put(&l, i, result_new(&out[i]));
  PyMem_Free(out);
  return l;
}
static PyObject *pipeline_pending(PyObject *o, PyObject *Py_UNUSED(none)) {
  return py_pipeline_open(o) ? PyLong_FromLong(pipe_pending(((PyPipeline *)o)->p)) : NULL;
}
static PyObject *pipeline_cancel(PyObject *o, PyObject *Py_UNUSED(none)) {
  return py_pipeline_open(o) ? PyLong_FromLong(pipe_cancel(((PyPipeline *)o)->p)) : NULL;
}
static PyObject *pipeline_incumbent(PyObject *o, PyObject *args) {
  int task;
  double seconds;
  if (!PyArg_ParseTuple(args, "id", &task, &seconds) || !py_pipeline_open(o)) return NULL;
  pipe_incumbent(((PyPipeline *)o)->p, task, seconds);
  return Py_NewRef(Py_None);
}
#define SECONDS(member) FIELD(PipeStats, member, FIELD_DOUBLE)
#define COUNT(member) FIELD(PipeStats, member, FIELD_I32)
static const PyField STATS[] = {SECONDS(elapsed),
                                SECONDS(compile_s),
                                SECONDS(run_s),
                                SECONDS(late_elapsed),
                                SECONDS(late_run_s),
                                SECONDS(canary),
                                SECONDS(canary_spread),
                                SECONDS(pace),
                                SECONDS(waited_s),
                                SECONDS(longest_recovery),
                                COUNT(lanes),
                                COUNT(compiled),
                                COUNT(cached),
                                COUNT(ran),
                                COUNT(full),
                                COUNT(devices),
                                COUNT(cut),
                                COUNT(audited),
                                COUNT(wrong_cuts),
                                COUNT(finals),
                                COUNT(finalists),
                                COUNT(finals_again),
                                COUNT(checks),
                                COUNT(disturbed),
                                COUNT(shifts),
                                COUNT(redone),
                                COUNT(deaths),
                                COUNT(spares),
                                FIELDS_END};
static PyObject *pipeline_stats(PyObject *o, PyObject *Py_UNUSED(none)) {
  if (!py_pipeline_open(o)) return NULL;
  PipeStats t = pipe_stats(((PyPipeline *)o)->p);
  return py_fields_dict(STATS, &t);
}
static PyObject *pipeline_notice(PyObject *o, PyObject *Py_UNUSED(none)) {
  char text[1024];
  if (!py_pipeline_open(o)) return NULL;
  return py_text(pipe_notice(((PyPipeline *)o)->p, text, sizeof text) ? text : "");
}
static PyObject *pipeline_device(PyObject *o, PyObject *Py_UNUSED(none)) {
  return py_pipeline_open(o) ? py_device_facts(pipe_device(((PyPipeline *)o)->p)) : NULL;
}

/* ---- Pipeline ---- */
typedef struct {
  PyPipeline *p;
  Target t;
  int type, id;
  PipeOptions o;
} NewPipeline;
ERR_BODY(pipeline_body, NewPipeline *n,
         n->p->owner = n->p->p = pipe_new(&n->p->err, &n->t, (DevType)n->type, n->id, &n->o))
static void end_pipeline(void *p) { pipe_free(p); }

/* The texts of a list into out, which borrows them and stays ended by NULL; None: none. */
static bool words_from(PyObject *list, char **out, Py_ssize_t most) {
  if (!list || list == Py_None) return true;
  Py_ssize_t n = PyList_Check(list) ? PyList_Size(list) : 0;
  if (n < 1 || n > most) {
    PyErr_Format(PyExc_ValueError, "via: expected a list of 1 to %zd words", most);
    return false;
  }
  return py_take(FIELD_TEXT, list, n, out);
}

static PyObject *pipeline_new(PyTypeObject *t, PyObject *args, PyObject *kw) {
  enum { WORDS = 32 };
  NewPipeline n = {.o.lock = LOCK_AUTO};
  PyObject *via = NULL;
  char *word[WORDS + 1] = {NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O&ii|idzzO&O",
                                   PY_NAMES("target", "device_type", "device_id", "n_compile", "build_timeout",
                                            "cache_dir", "cc", "lock", "via"),
                                   py_target, &n.t, &n.type, &n.id, &n.o.n_compile, &n.o.build_timeout_s,
                                   &n.o.cache_dir, &n.o.cc, py_lock_mode, &n.o.lock, &via) ||
      !words_from(via, word, WORDS))
    return NULL;
  if (word[0]) n.o.via = word;
  n.o.memory = py_build_memory();
  n.p = (PyPipeline *)PyType_GenericAlloc(t, 0);
  if (!n.p) return NULL;
  n.p->made = fork_count();
  n.p->end = end_pipeline;
  err_init(&n.p->err);
  if (!py_run_ok(&n.p->err, pipeline_body, &n)) Py_CLEAR(n.p);
  return (PyObject *)n.p;
}

static PyObject *pipeline_task(PyObject *o, PyObject *arg) {
  PyPipeline *p = py_pipeline_open(o);
  if (!p) return NULL;
  if (!PyObject_TypeCheck(arg, Task_Type))
    return PyErr_Format(PyExc_TypeError, "expected TaskData, not %s", PY_TYPE_NAME(arg));
  PyTask *t = (PyTask *)arg;
  if (!t->data) return PyErr_Format(PyExc_ValueError, "this task data belongs to another pipeline already");
  int k = pipe_task(p->p, t->data);
  if (k < 0) return PyErr_NoMemory();
  t->data = NULL; /* the pipeline owns it now */
  return PyLong_FromLong(k);
}

typedef struct {
  PyPipeline *p;
  int task;
  const char *source, *manifest;
  Py_ssize_t n; /* of a program that is compiled already: source */
  long long tag;
  RunPolicy policy;
} Submit;
ERR_BODY(submit_body, Submit *s, pipe_submit(s->p->p, &s->p->err, s->task, s->source, s->manifest, s->tag, &s->policy))

static PyObject *pipeline_submit(PyObject *o, PyObject *args) {
  Submit s = {.p = (PyPipeline *)o};
  if (!PyArg_ParseTuple(args, "issLO&", &s.task, &s.source, &s.manifest, &s.tag, py_policy, &s.policy) ||
      !py_pipeline_open(o))
    return NULL;
  return py_none(py_try(&s.p->err, submit_body, &s));
}

ERR_BODY(submit_built_body, Submit *s,
         pipe_submit_built(s->p->p, &s->p->err, s->task, s->source, (size_t)s->n, s->manifest, s->tag, &s->policy))

static PyObject *pipeline_submit_built(PyObject *o, PyObject *args) {
  Submit s = {.p = (PyPipeline *)o};
  if (!PyArg_ParseTuple(args, "iy#sLO&", &s.task, &s.source, &s.n, &s.manifest, &s.tag, py_policy, &s.policy) ||
      !py_pipeline_open(o))
    return NULL;
  return py_none(py_try(&s.p->err, submit_built_body, &s));
}

static PyObject *pipeline_hold(PyObject *o, PyObject *args) {
  int task, by;
  if (!PyArg_ParseTuple(args, "ii", &task, &by) || !py_pipeline_open(o)) return NULL;
  pipe_hold(((PyPipeline *)o)->p, task, by);
  return Py_NewRef(Py_None);
}

/* ---- tables ---- */
static PyMethodDef COMPILER_METHODS[] = {
    {"run", compiler_run_py, METH_VARARGS,
     "run(target, source, timeout, cache_dir, cc) -> (error_no, binary or None, message, seconds, cached)."},
    {"stop", compiler_stop_py, METH_NOARGS, "Ends a running compile from another thread."},
    {NULL, NULL, 0, NULL}};
static PyMethodDef WORKER_METHODS[] = {
    {"run", worker_run_py, METH_VARARGS,
     "run(slot, task, binary, manifest, policy) -> result dict; never raises for what the program does."},
    {"stop", worker_stop_py, METH_O, "stop(flag): true ends the current run from another thread and refuses new ones."},
    {"close", worker_close, METH_NOARGS, "Ends the process."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef WORKER_GET[] = {{"pid", worker_pid_py, NULL, "Process id, 0 while there is none.", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef BASE_METHODS[] = {
    {"poll", pipeline_poll, METH_VARARGS,
     "poll(wait=0): results that have come out, as dicts; waits up to `wait` seconds for the first."},
    {"pending", pipeline_pending, METH_NOARGS, "pending(): submitted and not yet polled."},
    {"cancel", pipeline_cancel, METH_NOARGS, "cancel(): drops what has not started; returns how many."},
    {"incumbent", pipeline_incumbent, METH_VARARGS,
     "incumbent(task, seconds): what the task's candidates have to beat to be timed in full, until one does."},
    {"stats", pipeline_stats, METH_NOARGS,
     "stats(): where the time went, as a dict: seconds of compiling (summed over lanes) and running, counts; canary: "
     "seconds of the device's fixed piece of work, 0 before the first run; pace: what of it tells devices of one class "
     "from others."},
    {"notice", pipeline_notice, METH_NOARGS, "notice(): something to tell the user, once; \"\" if there is nothing."},
    {"device", pipeline_device, METH_NOARGS, "device(): name and limits of the device."},
    {"close", pipeline_close, METH_NOARGS, "close(): ends all threads and processes."},
    {NULL, NULL, 0, NULL}};
static PyMethodDef PIPELINE_METHODS[] = {
    {"task", pipeline_task, METH_O, "task(TaskData) -> number of the task; takes the data over."},
    {"submit", pipeline_submit, METH_VARARGS, "submit(task, source, manifest, tag, policy)."},
    {"submit_built", pipeline_submit_built, METH_VARARGS,
     "submit_built(task, binary, manifest, tag, policy): a program that was compiled elsewhere."},
    {"hold", pipeline_hold, METH_VARARGS,
     "hold(task, by): while the sum is above 0 more candidates of a round are to come, and no final is held."},
    {NULL, NULL, 0, NULL}};
static PyMethodDef FUNCTIONS[] = {
    {"build", fn_build, METH_VARARGS,
     "build(target, source, timeout=0, cache_dir=None, cc=None, stop=None) -> (binary, seconds, cached)."},
    {"build_rename", fn_build_rename, METH_VARARGS,
     "build_rename(binary, name) -> the binary of a program that was compiled as BUILD_NAME, under another name."},
    {"build_report", fn_build_report, METH_VARARGS,
     "build_report((kind, sm, fast_math), binary, dynamic_shared=0) -> what a cubin takes of the GPU: dict of kernels, "
     "regs, local_bytes, shared_bytes, threads, blocks (per multiprocessor), occupancy; None for other binaries."},
    {"build_available", fn_build_available, METH_O,
     "build_available((kind, sm, fast_math)) -> (bool, version or what is missing)."},
    {"cc_flags", fn_cc_flags, METH_VARARGS,
     "cc_flags(target, cc, arch) -> flags with which the compiler cc makes programs of the target, without those of "
     "linking; arch: what cc makes programs for, None: this machine."},
    {"isa_note", fn_isa_note, METH_NOARGS,
     "isa_note() -> C text to stand behind a program: which instructions the compiler was allowed to use."},
    {"build_sm_range", fn_sm_range, METH_NOARGS,
     "build_sm_range() -> (oldest, newest) GPU architecture of the installed NVRTC, or None."},
    {NULL, NULL, 0, NULL}};

static const PyClass CLASSES[] = {
    PY_CLASS("TaskData", sizeof(PyTask), .type = &Task_Type, .create = task_new, .drop = task_dealloc,
             .doc = "TaskData([(bytes, array or None, is_output, dtype, exact=False), ...]): inputs and expected "
                    "outputs in shared memory."),
    PY_CLASS("Compiler", sizeof(PyCompiler), .create = compiler_new, .drop = compiler_dealloc,
             .methods = COMPILER_METHODS,
             .doc = "Compiler(): compiles under a hard deadline, in a process of its own where needed."),
    PY_CLASS("Worker", sizeof(PyWorker), .create = worker_new, .drop = worker_dealloc, .methods = WORKER_METHODS,
             .get = WORKER_GET,
             .doc = "Worker(device_type, device_id, lock=3, stop=None): an isolated measuring process. stop ends a "
                    "start that takes long."),
    PY_CLASS("PipelineBase", sizeof(PyPipeline), .type = &PyPipelineBase_Type, .flags = Py_TPFLAGS_BASETYPE,
             .drop = pipeline_dealloc, .methods = BASE_METHODS,
             .doc = "What Pipeline and Session share: where results come out."),
    PY_CLASS("Pipeline", sizeof(PyPipeline), .base = &PyPipelineBase_Type, .create = pipeline_new,
             .methods = PIPELINE_METHODS,
             .doc = "Pipeline(target, device_type, device_id, n_compile=0, build_timeout=15, cache_dir=None, "
                    "cc=None, lock=0, via=None): compiles and measures, overlapped. n_compile -1: programs come "
                    "compiled. via: the command (a list) that starts a runner with --worker on a board.")};

int py_init_measure(PyObject *m) {
  if (PyModule_AddStringConstant(m, "BUILD_NAME", PROGRAM_NAME) < 0) return -1;
  return py_add(m, NS_COUNT(CLASSES), CLASSES, FUNCTIONS);
}
