/* Long calls that Ctrl-C ends.
 *
 * Python runs signal handlers on its main thread and only while that thread holds the interpreter lock. A call that
 * computes for seconds would keep Ctrl-C waiting, so the computation moves to a thread of its own; the caller waits
 * without the lock and looks for signals twenty times a second. A signal whose handler raises sets the flag that the
 * engine polls, and the handler's exception is what the caller sees.
 */
#include "py/py.h"
#include <pthread.h>
#include <time.h>

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
  Run r = {.err = e, .body = body, .arg = arg};
  const atomic_int *old = e->interrupt;
  PyObject *type = NULL, *value = NULL, *trace = NULL;
  pthread_t thread;
  bool done = false;
  pthread_mutex_init(&r.lock, NULL);
  pthread_cond_init(&r.changed, NULL);
  e->interrupt = &r.stop;
  if (pthread_create(&thread, NULL, run_thread, &r) != 0) {
    Py_BEGIN_ALLOW_THREADS;
    run_thread(&r);
    Py_END_ALLOW_THREADS;
  } else {
    while (!done) {
      Py_BEGIN_ALLOW_THREADS;
      done = done_soon(&r);
      Py_END_ALLOW_THREADS;
      if (done || r.stop || PyErr_CheckSignals() == 0) continue;
      PyErr_Fetch(&type, &value, &trace);
      r.stop = 1;
    }
    pthread_join(thread, NULL);
  }
  e->interrupt = old;
  pthread_cond_destroy(&r.changed);
  pthread_mutex_destroy(&r.lock);
  if (type) PyErr_Restore(type, value, trace); /* also if the call ended before it saw the flag */
  return type && r.code == NS_OK ? NS_ERR_INTERRUPT : r.code;
}
