/* Binding of the way from a schedule to source text: te schedules and states alike, with the caller's arguments. */
#include "codegen/codegen.h"
#include "py/py_device.h"
#include "py/py_search.h"
#include <string.h>

enum { MAX_ARGS = 256 };
typedef struct {
  const State *state;
  IrCtx *c;
  Target t;
  const char *name;
  int n_args; /* 0: the tensors of the DAG */
  TensorId id[MAX_ARGS];
  const char *arg_name[MAX_ARGS]; /* State: arguments are found by name in its own context */
  char *source, *manifest;
} Job;

static TensorId tensor_named(const Job *j, const TeDag *d, const char *name) {
  for (int i = 0; i < d->n_ops; i++)
    for (int k = 0; k < d->op[i]->n_out; k++)
      if (!strcmp(ir_tensor(j->c, d->op[i]->out[k])->name, name)) return d->op[i]->out[k];
  err_raise(ir_err(j->c), NS_ERR_VALUE, "the schedule has no tensor named %s", name);
}

static void source_body(void *arg) {
  Job *j = arg;
  State *s = state_copy(j->c, j->state);
  if (!s->bounded) state_infer_bounds(s);
  for (int i = 0; i < j->n_args; i++)
    if (j->arg_name[i]) j->id[i] = tensor_named(j, s->dag0, j->arg_name[i]);
  Func f = j->n_args ? low_loops(s, &j->t, j->n_args, j->id, LOW_CODE)
                     : low_loops(s, &j->t, s->dag0->n_tensors, s->dag0->tensor, LOW_CODE);
  if (j->t.kind != TG_CPU) {
    GpuCheck g = low_gpu_check(f);
    if (!g.ok) err_raise(ir_err(j->c), NS_ERR_VALUE, "the schedule cannot run on this GPU: %s", g.why);
  }
  Program p = low_build(f, j->name);
  j->source = gen_source(&p);
  j->manifest = gen_manifest(&p);
}

static bool take_args(Job *j, PyObject *list, bool by_name) {
  PyObject *seq = PySequence_Fast(list, "args must be a list of tensors");
  if (!seq) return false;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(seq);
  bool ok = n >= 1 && n <= MAX_ARGS;
  if (!ok) PyErr_Format(PyExc_ValueError, "args lists %zd tensors, allowed are 1 to %d", n, MAX_ARGS);
  for (Py_ssize_t i = 0; ok && i < n; i++) {
    TensorId t = py_tensor_id(PySequence_Fast_GET_ITEM(seq, i));
    ok = t != 0;
    j->id[i] = t;
    if (ok && by_name) j->arg_name[i] = ir_tensor(py_session()->ctx, t)->name;
  }
  j->n_args = (int)n;
  Py_DECREF(seq);
  return ok;
}

static PyObject *fn_program(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *what, *list, *target, *out = NULL;
  Job j = {0};
  if (!PyArg_ParseTuple(args, "OOOs", &what, &list, &target, &j.name) || !py_target(target, &j.t)) return NULL;
  bool schedule = PyObject_TypeCheck(what, PySchedule_Type);
  if (!schedule && !PyObject_TypeCheck(what, PyState_Type))
    return PyErr_Format(PyExc_TypeError, "expected a Schedule or a State, not %s", Py_TYPE(what)->tp_name);
  if (list != Py_None && !take_args(&j, list, !schedule)) return NULL;
  j.state = schedule ? ((PySchedule *)what)->state : ((PyState *)what)->state;
  PyCtx own, *from = schedule ? py_session() : &((PyState *)what)->own;
  err_init(&own.err);
  own.ctx = j.c = py_candidate(from->ctx, &own.err);
  if (!own.ctx) return NULL;
  if (py_guard(&own, source_body, &j)) out = Py_BuildValue("ss", j.source, j.manifest);
  ir_free(own.ctx);
  return out;
}

static PyMethodDef FUNCTIONS[] = {
    {"program", fn_program, METH_VARARGS,
     "program(schedule or state, args or None, target, name) -> (source, manifest). target: (kind, 8 hardware "
     "parameters, "
     "sm, fast_math, mali). Raises ValueError for a schedule that is illegal on the target."},
    {NULL, NULL, 0, NULL}};

int py_init_build(PyObject *m) { return PyModule_AddFunctions(m, FUNCTIONS); }
