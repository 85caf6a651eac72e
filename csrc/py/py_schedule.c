/* Bindings of schedule. */
#include "py/py.h"
int py_init_schedule(PyObject *m) {
  (void)m;
  return 0;
}
