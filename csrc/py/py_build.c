/* Binding of the way from a schedule to source text: schedules and states, with the caller's arguments. */
#include "codegen/codegen.h"
#include "py/py_device.h"
#include "py/py_search.h"

typedef struct {
  PyCopy copy;
  Target t;
  const char *name;
  PyArgs args;
  char *source, *manifest;
} Job;

static void source_body(void *arg) {
  Job *j = arg;
  State *s = j->copy.s;
  if (!s->bounded) state_infer_bounds(s);
  int n;
  const TensorId *id = py_args_in(s, &j->args, &n);
  Func f = low_loops(s, &j->t, n, id, LOW_CODE);
  if (j->t.kind != TG_CPU) {
    GpuCheck g = low_gpu_check(f);
    if (!g.ok) err_raise(ir_err(s->ctx), NS_ERR_VALUE, "the schedule cannot run on this GPU: %s", g.why);
  }
  Program p = low_build(f, j->name);
  j->source = gen_source(&p);
  j->manifest = gen_manifest(&p);
}

static PyObject *fn_program(PyObject *Py_UNUSED(self), PyObject *args) {
  enum { MAX_ARGS = 256 };
  PyObject *what, *list, *target, *out = NULL;
  Job j = {0};
  if (!PyArg_ParseTuple(args, "OOOs", &what, &list, &target, &j.name) || !py_target(target, &j.t)) return NULL;
  if (!PyObject_TypeCheck(what, PyStateBase_Type))
    return PyErr_Format(PyExc_TypeError, "expected a Schedule or a State, not %s", Py_TYPE(what)->tp_name);
  PyState *o = (PyState *)what;
  if (!py_args(o, list, &j.args)) return NULL;
  if (j.args.id && (j.args.n < 1 || j.args.n > MAX_ARGS))
    PyErr_Format(PyExc_ValueError, "args lists %d tensors, allowed are 1 to %d", j.args.n, MAX_ARGS);
  else if (py_copy_take(&j.copy, o) && py_copy_run(&j.copy, py_free, source_body, &j))
    out = Py_BuildValue("ss", j.source, j.manifest);
  py_copy_drop(&j.copy);
  py_args_free(&j.args);
  return out;
}

static PyMethodDef FUNCTIONS[] = {
    {"program", fn_program, METH_VARARGS,
     "program(schedule or state, args or None, target, name) -> (source, manifest). target: (kind, 8 hardware "
     "parameters, "
     "sm, fast_math, mali). Raises ValueError for a schedule that is illegal on the target."},
    {NULL, NULL, 0, NULL}};

int py_init_build(PyObject *m) { return PyModule_AddFunctions(m, FUNCTIONS); }
