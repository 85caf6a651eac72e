/* Bindings of search. */
#include "py/py.h"
int py_init_search(PyObject *m) {
  (void)m;
  return 0;
}
