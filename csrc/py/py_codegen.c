/* Bindings of codegen and interp: source text and manifest of a State's program, and its execution by the interpreter
 * on NumPy arrays. Every call works on a copy of the State, without the interpreter lock.
 */
#include <string.h>
#include "codegen/codegen.h"
#include "interp/interp.h"
#include "py/py_lower.h"

/* ---- arrays ---- */
static bool format_matches(DType t, const char *fmt, Py_ssize_t itemsize) {
  if (itemsize != dtype_bytes(t)) return false;
  if (!fmt) return t.bits == 8;
  char f = fmt[0] == '<' || fmt[0] == '=' || fmt[0] == '@' ? fmt[1] : fmt[0];
  if (dtype_is_bool(t)) return strchr("?bB", f) != NULL;
  if (t.code == DT_FLOAT) return strchr("efd", f) != NULL;
  if (t.code == DT_BFLOAT) return true;
  if (t.code == DT_INT) return strchr("bhilq", f) != NULL;
  return strchr("BHILQ", f) != NULL;
}

typedef struct {
  Py_buffer at[64];
  void *data[64];
  int n;
} Arrays;

static void arrays_release(Arrays *a) {
  for (int i = 0; i < a->n; i++) PyBuffer_Release(&a->at[i]);
  a->n = 0;
}

/* One C-contiguous array per tensor of the DAG, of its dtype and number of elements. */
static bool arrays_get(PyObject *list, const IrCtx *c, const TeDag *d, Arrays *a) {
  a->n = 0;
  PyObject *seq = PySequence_Fast(list, "arrays must be a sequence");
  if (!seq) return false;
  if (PySequence_Size(seq) != d->n_tensors || d->n_tensors > 64) {
    PyErr_Format(PyExc_ValueError,
                 "%d arrays are needed, one per tensor of the DAG (inputs and outputs), but %zd were given",
                 d->n_tensors, PySequence_Size(seq));
    Py_DECREF(seq);
    return false;
  }
  for (int i = 0; i < d->n_tensors; i++) {
    const IrTensor *t = ir_tensor(c, d->tensor[i]);
    bool out = te_op_of(c, d->tensor[i])->kind == TE_COMPUTE;
    if (PyObject_GetBuffer(py_item(seq, i), &a->at[i], PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (out ? PyBUF_WRITABLE : 0)) <
        0)
      goto fail;
    a->n = i + 1;
    a->data[i] = a->at[i].buf;
    int64_t bytes = te_bytes(c, d->tensor[i]);
    if (bytes < 0) {
      PyErr_Format(PyExc_ValueError, "tensor '%s' has a symbolic shape; arrays need constants", t->name);
      goto fail;
    }
    if (!format_matches(t->type, a->at[i].format, a->at[i].itemsize) || a->at[i].len != bytes) {
      PyErr_Format(PyExc_ValueError,
                   "array %d (tensor '%s') has %zd bytes of format '%s'; %lld elements of %d bytes in the tensor's "
                   "dtype are needed",
                   i, t->name, a->at[i].len, a->at[i].format ? a->at[i].format : "B",
                   (long long)(bytes / dtype_bytes(t->type)), dtype_bytes(t->type));
      goto fail;
    }
  }
  Py_DECREF(seq);
  return true;
fail:
  Py_DECREF(seq);
  arrays_release(a);
  return false;
}

/* ---- programs ---- */
typedef struct {
  PyLowering l;
  const char *name;
  int passes; /* that the interpreter runs after; -1: all, and the kernels are cut out */
  void *const *data;
  int64_t max_steps;
  uint64_t constant;
  char *source, *manifest;
  InterpReport report;
} Job;

static void do_source(void *arg) {
  Job *j = arg;
  Func f = py_lowering_loops(&j->l, j->l.copy.s, LOW_CODE);
  if (j->l.t.kind != TG_CPU) {
    GpuCheck g = low_gpu_check(f);
    if (!g.ok) err_raise(ir_err(f.ctx), NS_ERR_VALUE, "the schedule cannot run on this GPU: %s", g.why);
  }
  Program p = low_build(f, j->name);
  j->source = gen_source(&p);
  j->manifest = gen_manifest(&p);
}

static void do_interp(void *arg) {
  Job *j = arg;
  int n;
  const LowPass *pass = low_passes(&n);
  Func f = py_lowering_loops(&j->l, j->l.copy.s, LOW_CODE);
  f.constant = j->constant;
  if (j->passes > 0)
    low_check_legal(&f);
  else
    f.illegal = NULL; /* the interpreter shows what is wrong with such a program */
  for (int i = 0; i < j->passes; i++) {
    low_run(&f, pass[i].run);
    err_check(ir_err(f.ctx), f.body != NULL, "nothing is left of the program after pass %s", pass[i].name);
    ir_verify(f.ctx, f.body, f.flat, false);
  }
  if (j->passes >= 0) {
    j->report = interp_run(&f, j->data, j->max_steps);
    return;
  }
  Program p = low_build(f, "main");
  j->report = interp_run_program(&p, j->data, j->max_steps);
}

static PyObject *py_program(PyObject *Py_UNUSED(self), PyObject *args) {
  enum { MAX_ARGS = 256 };
  PyObject *what, *list, *out = NULL;
  Job j = {0};
  if (!PyArg_ParseTuple(args, "OOO&s", &what, &list, py_target, &j.l.t, &j.name)) return NULL;
  bool ok = py_lowering_of(&j.l, what, list);
  if (ok && j.l.args.id && (j.l.args.n < 1 || j.l.args.n > MAX_ARGS))
    PyErr_Format(PyExc_ValueError, "args lists %d tensors, allowed are 1 to %d", j.l.args.n, MAX_ARGS);
  else if (ok && py_copy_run(&j.l.copy, py_free, do_source, &j))
    out = Py_BuildValue("ss", j.source, j.manifest);
  py_lowering_end(&j.l);
  return out;
}

static PyObject *report_dict(const InterpReport *r) {
  PyObject *list = PyList_New(r->n);
  for (int i = 0; list && i < r->n; i++) py_put(&list, i, py_text(r->finding[i]));
  return list ? Py_BuildValue("{s:N,s:L,s:L}", "findings", list, "steps", (long long)r->steps, "misaligned",
                              (long long)r->misaligned)
              : NULL;
}

static int stage_of(const char *name) {
  int n;
  const LowPass *pass = low_passes(&n);
  for (int i = 0; i < n; i++)
    if (!strcmp(pass[i].name, name)) return i + 1;
  return !strcmp(name, "loops") ? 0 : !strcmp(name, "program") ? -1 : -2;
}

static PyObject *py_interp(PyObject *Py_UNUSED(m), PyObject *args, PyObject *kw) {
  PyObject *state, *list, *out = NULL;
  const char *stage = "program";
  long long max_steps = 100000000;
  unsigned long long constant = 0;
  Target t;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O!O&O|$sLK",
                                   PY_NAMES("state", "target", "arrays", "stage", "max_steps", "constant"),
                                   PyState_Type, &state, py_target, &t, &list, &stage, &max_steps, &constant))
    return NULL;
  Job j = {.l.t = t, .passes = stage_of(stage), .max_steps = max_steps, .constant = constant};
  if (j.passes < -1)
    return PyErr_Format(PyExc_ValueError, "stage must be \"loops\", \"program\" or one of PASSES, not '%s'", stage);
  Arrays a;
  const PyState *o = (PyState *)state;
  if (!arrays_get(list, o->own.ctx, o->state->dag0, &a)) return NULL;
  j.data = a.data;
  if (py_lowering_of(&j.l, state, Py_None) && py_copy_run(&j.l.copy, py_run, do_interp, &j))
    out = report_dict(&j.report);
  py_lowering_end(&j.l);
  arrays_release(&a);
  return out;
}

/* ---- DAGs ---- */
typedef struct {
  PyCopy copy;
  const TeDag *d;
  void *const *data;
} DagJob;
ERR_BODY(do_dag, DagJob *j, interp_dag(j->copy.own.ctx, j->d, j->data))

static PyObject *py_interp_dag(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *dag, *list;
  if (!PyArg_ParseTuple(args, "O!O", PyDag_Type, &dag, &list)) return NULL;
  PyDag *d = (PyDag *)dag;
  Arrays a;
  if (!arrays_get(list, d->own.ctx, d->dag, &a)) return NULL;
  DagJob j = {.d = d->dag, .data = a.data};
  bool ok = py_copy_dag(&j.copy, d) && py_copy_run(&j.copy, py_run, do_dag, &j);
  py_copy_drop(&j.copy);
  arrays_release(&a);
  return py_none(ok);
}

static PyMethodDef METHODS[] = {
    {"program", py_program, METH_VARARGS,
     "program(schedule or state, args or None, target, name) -> (source, manifest). Raises ValueError for a schedule "
     "that is illegal on the target."},
    {"interp", PY_KEYWORDS(py_interp),
     "interp(state, target, arrays, *, stage=\"program\", max_steps=100000000, constant=0)\n--\n\n"
     "Execute the program of a State on the CPU with checking, GPU programs included.\n\n"
     "arrays: one C-contiguous array per tensor of the DAG, in its order; outputs are written. stage: \"loops\" (the\n"
     "multi-dimensional loop program), the name of a pass (one of PASSES: the program after it; ValueError if the "
     "schedule\nis illegal) or \"program\" (the kernels that code is generated from). Returns a dict: findings\n(list "
     "of str; empty means clean), steps, misaligned. Raises ValueError on bad arrays or when max_steps is "
     "exceeded.\nBit k of constant: no kernel writes to tensor k while its network runs."},
    {"interp_dag", py_interp_dag, METH_VARARGS,
     "interp_dag(dag, arrays)\n--\n\nReference evaluation of a ComputeDAG, one element at a time, without any "
     "schedule.\n\n"
     "arrays: one C-contiguous array per tensor of the DAG, in its order; outputs are written in place. Returns None."},
    {NULL, NULL, 0, NULL}};

int py_init_codegen(PyObject *m) {
  int n;
  const LowPass *pass = low_passes(&n);
  PyObject *names = PyTuple_New(n);
  for (int i = 0; names && i < n; i++) py_put(&names, i, PyUnicode_FromString(pass[i].name));
  bool ok = names && PyModule_AddObjectRef(m, "PASSES", names) == 0;
  Py_XDECREF(names);
  return ok ? PyModule_AddFunctions(m, METHODS) : -1;
}
