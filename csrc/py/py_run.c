/* Long calls that Ctrl-C ends.
 *
 * Python runs signal handlers on its main thread and only while that thread holds the interpreter lock. A call that
 * computes for seconds would keep Ctrl-C waiting, so the computation moves to a thread of its own; the caller waits
 * without the lock and looks for signals twenty times a second. A signal whose handler raises sets the flag that the
 * engine polls, and the handler's exception is what the caller sees. It is the only place where the handler can raise:
 * what the computation calls in Python (models, rules, listeners) runs in that other thread, where no handler runs, so
 * none of them can mistake the exception for a failure of its own.
 *
 * Calls in other threads hear no signals. A _core.Stop ends those: whoever has heard of a signal sets it.
 *
 * What can take over a millisecond and no second stays in its thread and lets go of the lock (py_free). Meanwhile other
 * threads run: what it reads belongs to the call (copied, or held by a reference that no other thread can drop) or never
 * changes, and an object that it changes refuses other threads until it is done.
 */
#include "py/py.h"
#include <pthread.h>
#include <string.h>
#include <time.h>

/* The interpreter that imported the engine; there is one of them in a process, whose types are kept once. */
static PyInterpreterState *Home;

/* A thread's state is made under a lock of CPython's, without the interpreter lock. Up to CPython 3.12 a child that is forked
 * at that moment finds the lock locked, and waits for it before anything else it does: so nobody forks meanwhile. Later
 * ones take the lock before they fork; who held up the fork there would be waited for, and wait. */
static PyThreadState *new_state(void) {
  bool hold = Py_Version < 0x030D0000;
  if (hold) fork_hold();
  PyThreadState *s = PyThreadState_New(Home);
  if (hold) fork_release();
  return s;
}

PyEntry py_enter(void) {
  PyEntry e = {0};
  if (!PyGILState_GetThisThreadState()) {
    e.made = new_state();
    if (!e.made) Py_FatalError("out of memory: no state for a thread of the engine");
  }
  e.had = PyGILState_Ensure();
  return e;
}

void py_leave(PyEntry e) {
  if (e.made) {
    PyGILState_Release(PyGILState_LOCKED);   /* it is held twice: since it was made, and by py_enter. The last one */
    PyGILState_Release(PyGILState_UNLOCKED); /* drops it, then gives the lock back */
  } else {
    PyGILState_Release(e.had);
  }
}

typedef struct {
  Err *err;
  ErrBody body;
  void *arg;
  ErrCode code;
  atomic_int stop;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool done;
} Run;

static void *run_thread(void *arg) {
  Run *r = arg;
  ErrCode code = err_try(r->err, r->body, r->arg);
  pthread_mutex_lock(&r->lock);
  r->code = code, r->done = true;
  pthread_cond_signal(&r->changed);
  pthread_mutex_unlock(&r->lock);
  return NULL;
}

static bool done_soon(Run *r) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  t.tv_nsec += 50 * 1000 * 1000;
  if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
  pthread_mutex_lock(&r->lock);
  while (!r->done && pthread_cond_timedwait(&r->changed, &r->lock, &t) == 0) {}
  bool done = r->done;
  pthread_mutex_unlock(&r->lock);
  return done;
}

ErrCode py_run(Err *e, ErrBody body, void *arg) {
  const atomic_int *outer = e->interrupt; /* a second flag that ends the call */
  Run r = {.err = e, .body = body, .arg = arg, .stop = outer && *outer};
  PyObject *type = NULL, *value = NULL, *trace = NULL;
  pthread_t thread;
  bool done = false;
  pthread_mutex_init(&r.lock, NULL);
  pthread_cond_init(&r.changed, NULL);
  e->interrupt = &r.stop;
  if (pthread_create(&thread, NULL, run_thread, &r) != 0) {
    PY_UNLOCKED(run_thread(&r));
  } else {
    while (!done) {
      PY_UNLOCKED(done = done_soon(&r));
      if (outer && *outer) r.stop = 1;
      if (done || type || PyErr_CheckSignals() == 0) continue;
      PyErr_Fetch(&type, &value, &trace);
      r.stop = 1;
    }
    pthread_join(thread, NULL);
  }
  e->interrupt = outer;
  pthread_cond_destroy(&r.changed);
  pthread_mutex_destroy(&r.lock);
  if (type) PyErr_Restore(type, value, trace); /* also if the call ended before it saw the flag */
  return type && r.code == NS_OK ? NS_ERR_INTERRUPT : r.code;
}

ErrCode py_free(Err *e, ErrBody body, void *arg) {
  ErrCode c;
  PY_UNLOCKED(c = err_try(e, body, arg));
  return c;
}

bool py_free_ok(Err *e, ErrBody body, void *arg) {
  ErrCode c = py_free(e, body, arg);
  if (c != NS_OK) py_raise(e, c);
  return c == NS_OK;
}

bool py_run_ok(Err *e, ErrBody body, void *arg) {
  ErrCode c = py_run(e, body, arg);
  if (c != NS_OK) py_raise(e, c);
  return c == NS_OK;
}

enum { LONG = 1 << 20 }; /* bytes: about a tenth of a millisecond; what is shorter is not worth a wait for the lock */
void py_memcpy(void *to, const void *from, size_t n) {
  if (n < LONG) {
    if (n) memcpy(to, from, n);
    return;
  }
  PY_UNLOCKED(memcpy(to, from, n));
}
void py_arena_free(Arena *a) {
  if (!a || arena_bytes(a) < LONG) {
    arena_free(a);
    return;
  }
  PY_UNLOCKED(arena_free(a));
}
PyObject *py_bytes(const void *from, size_t n) {
  PyObject *b = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
  if (b) py_memcpy(PyBytes_AsString(b), from, n);
  return b;
}

/* ---- Stop: a flag for calls in other threads ---- */
typedef struct {
  PyObject_HEAD atomic_int set;
} PyStop;
static PyTypeObject *PyStop_Type;

static PyObject *stop_new(PyTypeObject *t, PyObject *args, PyObject *kw) {
  static char *names[] = {NULL};
  return PyArg_ParseTupleAndKeywords(args, kw, "", names) ? PyType_GenericAlloc(t, 0) : NULL;
}
static PyObject *stop_set(PyObject *o, PyObject *Py_UNUSED(none)) {
  ((PyStop *)o)->set = 1;
  return Py_NewRef(Py_None);
}
static PyObject *stop_is_set(PyObject *o, PyObject *Py_UNUSED(none)) { return PyBool_FromLong(((PyStop *)o)->set); }

PyObject *py_stop_from(PyObject *o) {
  if (!o || o == Py_None) return PyType_GenericAlloc(PyStop_Type, 0);
  if (PyObject_TypeCheck(o, PyStop_Type)) return Py_NewRef(o);
  return PyErr_Format(PyExc_TypeError, "stop: expected a Stop or None, got %s", PY_TYPE_NAME(o));
}
const atomic_int *py_stop_flag(PyObject *o) { return &((PyStop *)o)->set; }
void py_stop_set(PyObject *o) { ((PyStop *)o)->set = 1; }

static PyMethodDef METHODS[] = {
    {"set", stop_set, METH_NOARGS, "set(): the calls that have it end with KeyboardInterrupt, now and in the future."},
    {"is_set", stop_is_set, METH_NOARGS, "is_set(): whether set() was called."},
    {NULL, NULL, 0, NULL}};

static const PyClass CLASSES[] = {PY_CLASS("Stop", sizeof(PyStop), .type = &PyStop_Type, .create = stop_new,
                                           .drop = py_free_object, .methods = METHODS,
                                           .doc = "Stop(): ends calls of the engine in other threads.")};

int py_init_run(PyObject *m) {
  Home = PyInterpreterState_Get();
  return py_add(m, NS_COUNT(CLASSES), CLASSES, NULL);
}
