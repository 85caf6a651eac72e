/* What the bindings of measure share with those of tune. */
#ifndef NS_PY_MEASURE_H
#define NS_PY_MEASURE_H
#include "measure/pipeline.h"
#include "py/py.h"

int py_lock_mode(PyObject *o, void *out);        /* a converter for O&: LockMode, given as its number */
int py_policy(PyObject *dict, void *out);         /* a converter for O&: RunPolicy; missing fields keep their defaults */

/* _core.PipelineBase: where results come out, of a Pipeline (py_measure.c) or of a Session in front of one (py_tune.c). */
typedef struct {
  PyObject_HEAD Err err;
  Pipeline *p;         /* NULL: closed */
  void *owner;         /* of p: the pipeline itself, or the session */
  void (*end)(void *owner);
  PyObject *stop;      /* of a session, a _core.Stop: ends what opens it, makes its tasks and lowers candidates */
  PyObject *tasks;     /* of a session: number of a task: (dag, target, layout) */
  int users, made;     /* users: calls that run without the interpreter lock; made: fork_count */
} PyPipeline;
extern PyTypeObject *PyPipelineBase_Type;
PyPipeline *py_pipeline_open(PyObject *o); /* NULL with the exception set if it is closed, or of the parent of a fork */
#endif
