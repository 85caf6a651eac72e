/* The extension module nestsmith._core: registers what each room contributes. */
#include "py/py.h"

typedef int (*PyInit)(PyObject *m);
static const PyInit INITS[] = {py_init_target, py_init_te,     py_init_schedule, py_init_lower, py_init_codegen,
                               py_init_device, py_init_search, py_init_graph,    py_init_model};

static int module_exec(PyObject *m) {
  for (int i = 0; i < NS_COUNT(INITS); i++)
    if (INITS[i](m) < 0) return -1;
  return 0;
}

PyObject *py_raise(const Err *e, ErrCode code) {
  PyObject *type = PyExc_RuntimeError;
  switch (code) {
  case NS_ERR_VALUE: type = PyExc_ValueError; break;
  case NS_ERR_TYPE: type = PyExc_TypeError; break;
  case NS_ERR_MEMORY: type = PyExc_MemoryError; break;
  case NS_ERR_IO: type = PyExc_OSError; break;
  case NS_ERR_INTERRUPT: type = PyExc_KeyboardInterrupt; break;
  default: break;
  }
  if (!PyErr_Occurred()) PyErr_SetString(type, e->msg);
  return NULL;
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, (void *)module_exec}, {0, NULL}};
static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "nestsmith._core", "The nestsmith engine.", 0, NULL, SLOTS, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&MODULE); }
