/* What the bindings of search and tune share. */
#ifndef NS_PY_SEARCH_H
#define NS_PY_SEARCH_H
#include "py/py.h"
#include "model/model.h"
#include "tune/tune.h"
bool py_params(PyObject *dict, SearchParams *p); /* entries that are there replace those of p; false with exception set */
PyState *py_as_state(PyObject *o);               /* borrowed; NULL with TypeError set */
typedef struct {
  IrCtx *ctx;
  int n;
  Step *step;
} PySteps;
/* A state's steps in a clone of its DAG's context: to be used without the interpreter lock, while other threads use the
 * state. Errors in the clone go to e; false with the exception set, else ir_free(out->ctx) when done. */
bool py_state_steps(const PyState *s, Err *e, PySteps *out);
/* capsule nestsmith.SearchTask, borrowed; NULL with exception set if it is no Policy */
PyObject *py_policy_task(PyObject *policy);
/* A new state of a list of steps; its computing happens without the lock. (py_search.c) */
PyObject *py_state_of_steps(PyDag *dag, int n, const Step *step, bool bounds);

/* _core.Candidate: what a round found, with all that was made of it. (py_candidate.c) */
typedef struct { PyObject_HEAD PyDag *dag; PyObject *task_box; Candidate *c; } PyCandidate;
extern PyTypeObject *PyCandidate_Type;
PyObject *py_candidate_new(PyDag *dag, PyObject *task_box, Candidate *c); /* takes c over */
PyObject *py_candidate_state(PyObject *candidate);                        /* a new, bounded _core.State */
/* What is wanted of a Candidate, a State or steps as text for a task: its own, or made now (*own, to be freed) without the lock,
 * else *own is NULL. NULL with the exception set, for steps as text also where they cannot be replayed. */
const Candidate *py_candidate_of(PyObject *o, const SearchTask *t, unsigned want, Candidate **own);
/* The steps of a Candidate or a State, borrowed; false with TypeError set. */
bool py_steps_of(PyObject *o, int *n, const Step **step);
int py_init_candidate(PyObject *m);
int py_init_ask(PyObject *m);
int py_init_tune(PyObject *m);
int py_init_learner(PyObject *m);
int py_init_rounds(PyObject *m);
PyObject *py_batch_arrays(const FeatBatch *b); /* (rows, first, task, cost), copied (py_model.c) */
const Forest *py_forest(PyObject *o);          /* of a _core.Forest; NULL with TypeError set (py_model.c) */
#endif
