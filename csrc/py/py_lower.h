/* What bindings of lower, codegen, interp and model share: a schedule or state on its way to a program. */
#ifndef NS_PY_LOWER_H
#define NS_PY_LOWER_H
#include "lower/lower.h"
#include "py/py.h"

/* A copy in a context of its own, the target, and the arguments asked for. Zeroed before, py_lowering_end in any case. */
typedef struct { PyCopy copy; Target t; PyArgs args; } PyLowering;
/* args: as py_args takes them; false with the exception set */
bool py_lowering_of(PyLowering *l, PyObject *schedule, PyObject *args);
Func py_lowering_loops(PyLowering *l, State *s, LowUse use); /* of the copy, or of a copy of that; raises */
void py_lowering_end(PyLowering *l);
#endif
