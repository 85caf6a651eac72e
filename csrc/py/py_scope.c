/* Scopes of te: what is defined in one is forgotten at its end, unless somebody has kept an object of it.
 *
 * The session never forgets what te defines, for objects in Python name expressions, tensors and operations by number. A tuner
 * runs its template thousands of times and needs nothing of it afterwards but text. In a scope each new object is stamped and
 * counted; if at the end none of them is alive, nobody can name what was added since the beginning, and the session goes back
 * to its mark. Where that is not sure (a reducer, whose number is no object; a schedule from before that was used and may
 * have grown) everything stays, as it does without a scope.
 */
#include "py/py_te_int.h"

static struct {
  uint32_t open, last; /* number of the open scope, 0: none; of the last one that was begun */
  int64_t alive;       /* objects that were made in it */
  bool keep;
  IrMark mark;
} scope;

void py_scope_born(uint32_t *stamp) {
  *stamp = scope.open;
  scope.alive += scope.open != 0;
}
void py_scope_dies(uint32_t stamp) { scope.alive -= stamp && stamp == scope.open; }
void py_scope_uses(uint32_t stamp) { scope.keep = scope.keep || stamp != scope.open; }
void py_scope_keep(void) { scope.keep = true; }

static PyObject *f_begin(PyObject *Py_UNUSED(m), PyObject *Py_UNUSED(u)) {
  if (scope.open) Py_RETURN_FALSE;
  if (!py_session()) return NULL;
  scope.open = ++scope.last ? scope.last : ++scope.last; /* 0 is no number */
  scope.alive = 0, scope.keep = false;
  scope.mark = ir_mark(SES);
  Py_RETURN_TRUE;
}
static PyObject *f_alive(PyObject *Py_UNUSED(m), PyObject *Py_UNUSED(u)) { return PyLong_FromLongLong(scope.alive); }
static PyObject *f_end(PyObject *Py_UNUSED(m), PyObject *Py_UNUSED(u)) {
  bool forget = scope.open && !scope.alive && !scope.keep;
  if (forget) ir_release(SES, scope.mark);
  scope.open = 0;
  return PyBool_FromLong(forget);
}
static PyMethodDef FUNCTIONS[] = {
    {"te_scope_begin", f_begin, METH_NOARGS, "te_scope_begin(): False if one is open."},
    {"te_scope_alive", f_alive, METH_NOARGS, "te_scope_alive(): objects that were made in the scope and are left."},
    {"te_scope_end", f_end, METH_NOARGS, "te_scope_end(): True if what was defined in it is forgotten."},
    {NULL, NULL, 0, NULL}};
int py_init_scope(PyObject *m) { return PyModule_AddFunctions(m, FUNCTIONS); }
