/* Bindings of lower. */
#include "py/py.h"
int py_init_lower(PyObject *m) {
  (void)m;
  return 0;
}
