/* What the bindings of measure share with those of tune. */
#ifndef NS_PY_MEASURE_H
#define NS_PY_MEASURE_H
#include "measure/pipeline.h"
#include "py/py.h"

int py_lock_mode(PyObject *o, void *out);        /* a converter for O&: LockMode, given as its number */
int py_policy(PyObject *dict, void *out);         /* a converter for O&: RunPolicy; missing fields keep their defaults */
PyObject *py_run_result(const RunResult *r); /* a dict of its fields and "costs" */
#endif
