/* Bindings of device. */
#include "py/py.h"
int py_init_device(PyObject *m) {
  (void)m;
  return 0;
}
