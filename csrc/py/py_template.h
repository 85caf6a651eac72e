/* What the bindings of templates share: _core.Space (py_template.c). */
#ifndef NS_PY_TEMPLATE_H
#define NS_PY_TEMPLATE_H
#include "py/py.h"
#include "template/space.h"

typedef struct {
  PyObject_HEAD Err err; /* the space's */
  Space *space;
  PyObject *filter;  /* digits -> bool, or NULL */
  PyObject *failure; /* what it raised, or another function that the engine calls */
} PySpace;
extern PyTypeObject *PySpace_Type;
PySpace *py_space(PyObject *o);                   /* NULL with TypeError set */
void py_space_failed(PySpace *p);                 /* keeps the exception of a function that the engine has called */
bool py_space_try(PySpace *p, ErrBody body, void *arg); /* as py_try with its err; what py_space_failed kept is what it was */
#endif
