/* NumPy arrays in bindings. py_model.c has the functions, and reads NumPy's table for all of them. */
#ifndef NS_PY_ARRAY_H
#define NS_PY_ARRAY_H
#include "py/py.h"
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL nestsmith_ARRAY_API
#ifndef PY_ARRAY_HOME
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

/* `o` as an array of the type in nd dimensions; NULL with ValueError set. name: its, in the message. */
PyArrayObject *py_array_from(PyObject *o, int type, int nd, const char *name);
/* A new array [n], or [n, m] for nd 2, with what lies at `from`. */
PyObject *py_array_copy(int type, const void *from, int nd, npy_intp n, npy_intp m);
#endif
