/* What py_search.c and py_tune.c share. */
#ifndef NS_PY_SEARCH_H
#define NS_PY_SEARCH_H
#include "py/py.h"
#include "model/model.h"
#include "tune/tune.h"
bool py_target(PyObject *o, Target *t); /* (kind, hardware parameters, sm, fast_math, mali); false with exception set */
PyObject *py_policy_task(PyObject *policy); /* capsule nestsmith.SearchTask, borrowed; NULL with exception set if it is no Policy */
int py_init_tune(PyObject *m);
int py_init_learner(PyObject *m);
PyObject *py_batch_arrays(const FeatBatch *b); /* (rows, first, task, cost), copied (py_model.c) */
const Forest *py_forest(PyObject *o);          /* of a _core.Forest; NULL with TypeError set (py_model.c) */
#endif
