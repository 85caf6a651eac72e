/* Bindings of te. */
#include "py/py.h"
int py_init_te(PyObject *m) {
  (void)m;
  return 0;
}
