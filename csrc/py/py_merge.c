/* Bindings of merged programs: the source of one, and its execution by the interpreter. Each part is a state, replayed from its steps in
 * a context that is the call's own.
 */
#include "interp/interp.h"
#include "py/py_search.h"

enum { MOST_PARTS = 16, MOST_ARGS = 64 };
typedef struct {
  Err err;
  IrCtx *ctx;
  Target t;
  int n, n_args;
  const char *name;
  PySteps own[MOST_PARTS];
  const TeDag *dag[MOST_PARTS];
  GenPart part[MOST_PARTS];
  int32_t arg[MOST_PARTS][MOST_ARGS];
  PyObject *list; /* of the parts: their DAGs stay */
  GenText out;
  Py_buffer at[MOST_ARGS];
  int n_at;
  InterpReport report;
} Merged;

static bool read_wiring(Merged *x, PyObject *seq) {
  GenPart *p = &x->part[x->n];
  PyObject *list = PySequence_Fast(seq, "the arguments of a part are a sequence");
  if (!list) return false;
  bool ok = PySequence_Fast_GET_SIZE(list) <= MOST_ARGS;
  if (!ok) PyErr_Format(PyExc_ValueError, "a part of a merged program has at most %d arguments", MOST_ARGS);
  p->n_arg = ok ? (int)PySequence_Fast_GET_SIZE(list) : 0;
  p->arg = x->arg[x->n];
  for (int i = 0; ok && i < p->n_arg; i++) {
    long at = PyLong_AsLong(PySequence_Fast_GET_ITEM(list, i));
    ok = !PyErr_Occurred();
    x->arg[x->n][i] = at < 0 || at >= MOST_ARGS ? -1 : (int32_t)at;
  }
  Py_DECREF(list);
  return ok;
}

static bool read_part(Merged *x, PyObject *o) {
  PyObject *state, *wiring;
  GenPart *p = &x->part[x->n];
  unsigned long long constant;
  if (!PyArg_ParseTuple(o, "OiKO", &state, &p->layout, &constant, &wiring)) return false;
  p->constant = constant;
  const PyState *s = py_as_state(state);
  if (!s || !read_wiring(x, wiring)) return false;
  if (!s->dag) {
    PyErr_SetString(PyExc_TypeError, "state: it was made from a te schedule and has no steps to replay");
    return false;
  }
  if (!py_state_steps(s, &x->err, &x->own[x->n])) return false;
  x->dag[x->n] = s->dag->dag;
  p->n = x->own[x->n].n, p->step = x->own[x->n].step;
  x->n++;
  return true;
}

/* false with the exception set; `finish` in any case */
static bool begin(Merged *x, PyObject *parts) {
  err_init(&x->err);
  x->list = PySequence_Tuple(parts);
  if (!x->list) return false;
  if (PyTuple_GET_SIZE(x->list) < 1 || PyTuple_GET_SIZE(x->list) > MOST_PARTS || x->n_args < 1 ||
      x->n_args > MOST_ARGS) {
    PyErr_Format(PyExc_ValueError, "a merged program has 1 to %d parts and 1 to %d arguments", MOST_PARTS, MOST_ARGS);
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(x->list); i++)
    if (!read_part(x, PyTuple_GET_ITEM(x->list, i))) return false;
  return (x->ctx = py_context(&x->err)) != NULL;
}
static void finish(Merged *x) {
  for (int i = 0; i < x->n_at; i++) PyBuffer_Release(&x->at[i]);
  for (int i = 0; i < x->n; i++) ir_free(x->own[i].ctx);
  if (x->ctx) ir_free(x->ctx);
  Py_XDECREF(x->list);
}

static void import_dags(Merged *x) {
  for (int i = 0; i < x->n; i++) x->part[i].dag = te_dag_import(x->ctx, x->own[i].ctx, x->dag[i]);
}
static void do_source(void *arg) {
  Merged *x = arg;
  import_dags(x);
  x->out = gen_merged_text(x->ctx, &x->t, x->n, x->part, x->n_args, x->name);
}
static void do_interp(void *arg) {
  enum { MAX_STEPS = 1 << 30 };
  Merged *x = arg;
  void *data[MOST_ARGS];
  import_dags(x);
  Program p = gen_merged(x->ctx, &x->t, x->n, x->part, x->n_args, "main");
  for (int i = 0; i < x->n_args; i++) {
    data[i] = x->at[i].buf;
    int64_t bytes = dtype_bytes(ir_buffer(x->ctx, p.f.arg[i])->type);
    for (int d = 0, n = ir_buffer(x->ctx, p.f.arg[i])->rank; d < n; d++)
      bytes *= te_const(x->ctx, ir_buffer(x->ctx, p.f.arg[i])->extent[d]);
    err_check(&x->err, bytes == x->at[i].len, "array %d has %lld bytes, not %lld", i, (long long)x->at[i].len,
              (long long)bytes);
  }
  x->report = interp_run_program(&p, data, MAX_STEPS);
}

static PyObject *merged_source(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *parts, *out = NULL;
  Merged x = {0};
  if (!PyArg_ParseTuple(args, "OO&is", &parts, py_target, &x.t, &x.n_args, &x.name)) return NULL;
  if (begin(&x, parts) && py_free_ok(&x.err, do_source, &x)) out = Py_BuildValue("ss", x.out.source, x.out.manifest);
  finish(&x);
  return out;
}

static bool take_arrays(Merged *x, PyObject *arrays) {
  PyObject *list = PySequence_Fast(arrays, "arrays must be a sequence");
  bool ok = list && PySequence_Fast_GET_SIZE(list) == x->n_args;
  if (list && !ok) PyErr_Format(PyExc_ValueError, "%d arrays are needed, one per argument", x->n_args);
  for (; ok && x->n_at < x->n_args; x->n_at += ok)
    ok = PyObject_GetBuffer(PySequence_Fast_GET_ITEM(list, x->n_at), &x->at[x->n_at],
                            PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) == 0;
  Py_XDECREF(list);
  return ok;
}

static PyObject *merged_interp(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *parts, *arrays, *out = NULL;
  Merged x = {0};
  if (!PyArg_ParseTuple(args, "OO&iO", &parts, py_target, &x.t, &x.n_args, &arrays)) return NULL;
  if (begin(&x, parts) && take_arrays(&x, arrays) && py_run_ok(&x.err, do_interp, &x)) {
    out = PyList_New(x.report.n);
    for (int i = 0; out && i < x.report.n; i++) py_put(&out, i, py_text(x.report.finding[i]));
  }
  finish(&x);
  return out;
}

static PyObject *can_merge(PyObject *Py_UNUSED(m), PyObject *target) {
  Target t;
  return py_target(target, &t) ? PyBool_FromLong(target_clusters(&t)) : NULL;
}

static PyMethodDef FUNCTIONS[] = {
    {"can_merge", can_merge, METH_O,
     "can_merge(target) -> bool: whether programs for it can be merged: a GPU whose blocks can wait for each other."},
    {"merged_source", merged_source, METH_VARARGS,
     "merged_source(parts, target, n_args, name) -> (source text, manifest JSON) of programs that follow each other, "
     "as one launch. A part "
     "is (state, layout, constant, arguments): the first three as of candidate_source, and for each of its tensors "
     "which of the n_args "
     "arguments of the whole it is. Raises ValueError where they cannot be merged."},
    {"merged_interp", merged_interp, METH_VARARGS,
     "merged_interp(parts, target, n_args, arrays) -> findings (list of str) of the interpreter, which runs the merged "
     "program on the "
     "arrays, one per argument, C-contiguous and of the argument's type; they are written."},
    {NULL, NULL, 0, NULL}};

int py_init_merge(PyObject *m) { return PyModule_AddFunctions(m, FUNCTIONS); }
