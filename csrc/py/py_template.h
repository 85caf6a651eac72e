/* What the bindings of templates share: _core.Space (py_template.c). */
#ifndef NS_PY_TEMPLATE_H
#define NS_PY_TEMPLATE_H
#include "py/py.h"
#include "template/space.h"

typedef struct {
  PyObject_HEAD Err err; /* the space's */
  Space *space;
  PyObject *filter;  /* digits -> bool, or NULL */
  PyObject *failure; /* what the filter raised */
} PySpace;
extern PyTypeObject *PySpace_Type;
PySpace *py_space(PyObject *o);                   /* NULL with TypeError set */
PyObject *py_space_raise(PySpace *p, ErrCode c); /* as py_raise of its err; a failure of the filter is what it was */
#endif
