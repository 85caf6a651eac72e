/* Bindings of model. */
#include "py/py.h"
int py_init_model(PyObject *m) {
  (void)m;
  return 0;
}
