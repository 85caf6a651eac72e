/* Bindings of program: layouts of arguments and the container of an exported network. */
#include "graph/graph.h"
#include "py/py_fields.h"
#include "py/py.h"
#include <string.h>

/* One call: its memory and what its body works on. */
typedef struct {
  PyScratch s;
  Py_buffer v;
  const char *what;
  PyObject *programs, *inputs; /* tuples: own their items while the lock is released */
  Container *out, in;
  ContainerForm form;
  StrBuf text;
  Relayout r;
  int64_t bytes, elem;
  void *made;
} Call;

static void call_close(Call *c) {
  py_arena_free(c->s.a);
  PY_DROP(c->programs, c->inputs);
  if (c->v.obj) PyBuffer_Release(&c->v);
}

/* ---- layouts ---- */
static bool sizes_of(PyObject *seq, int64_t most, int64_t *out, int32_t *n) {
  PyObject *list = PySequence_Fast(seq, "expected a sequence of integers");
  if (!list) return false;
  Py_ssize_t len = PySequence_Size(list);
  bool ok = len <= LAYOUT_MAX_DIMS;
  if (!ok)
    PyErr_Format(PyExc_ValueError, "%zd dimensions, at most %d can be brought into another layout", len,
                 LAYOUT_MAX_DIMS);
  ok = ok && py_take(FIELD_I64, list, len, out);
  for (Py_ssize_t i = 0; ok && i < len; i++)
    if (!(ok = out[i] >= 0 && out[i] < most)) PyErr_Format(PyExc_ValueError, "%lld is out of range", (long long)out[i]);
  *n = (int32_t)len;
  Py_DECREF(list);
  return ok;
}

static void relayout_body(void *arg) {
  Call *c = arg;
  c->made = arena_alloc(c->s.a, (size_t)(c->bytes * c->elem));
  relayout_copy(&c->r, c->elem, c->v.buf, c->made);
}

static PyObject *fn_relayout(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *data, *from, *to, *axes, *out = NULL;
  int64_t old[LAYOUT_MAX_DIMS], size[LAYOUT_MAX_DIMS], axis[LAYOUT_MAX_DIMS], before;
  int32_t axis32[LAYOUT_MAX_DIMS], n_axis;
  Call c = {.r = {.from = old, .size = size, .axis = axis32}};
  if (!PyArg_ParseTuple(args, "OOOO", &data, &from, &to, &axes) || !sizes_of(from, INT64_MAX, old, &c.r.n_from) ||
      !sizes_of(to, INT64_MAX, size, &c.r.n) || !sizes_of(axes, c.r.n_from, axis, &n_axis) ||
      PyObject_GetBuffer(data, &c.v, PyBUF_C_CONTIGUOUS) < 0)
    return NULL;
  for (int i = 0; i < n_axis; i++) axis32[i] = (int32_t)axis[i];
  c.elem = c.v.itemsize;
  if (n_axis != c.r.n || !relayout_sizes(&c.r, &before, &c.bytes) || !i64_mul(before, c.elem, &before) ||
      before != c.v.len || c.bytes > INT64_MAX / 16 / c.elem)
    PyErr_SetString(PyExc_ValueError, "the layout does not fit the array");
  else if (py_scratch_alloc(&c.s, 0, 1) && py_run_ok(&c.s.err, relayout_body, &c))
    out = py_bytes(c.made, (size_t)(c.bytes * c.elem));
  call_close(&c);
  return out;
}

/* ---- containers ---- */
static void write_body(void *arg) {
  Call *c = arg;
  if (c->v.len) c->in.weight = params_read(c->s.a, c->v.buf, (size_t)c->v.len, &c->in.n_weights);
  sb_init(&c->text, c->s.a);
  container_write(&c->text, &c->in, c->form);
}

/* One binary, None, or a tuple of several for processors that have more instructions first. */
static bool take_binaries(Call *c, PyObject *given, StoredProgram *p) {
  if (given == Py_None) return true;
  bool several = PyTuple_Check(given);
  Py_ssize_t n = several ? PyTuple_Size(given) : 1;
  StoredBinary *level = py_scratch_alloc(&c->s, n, sizeof *level);
  for (Py_ssize_t i = 0; level && i < n; i++) {
    char *at;
    Py_ssize_t bytes;
    if (PyBytes_AsStringAndSize(several ? PyTuple_GetItem(given, i) : given, &at, &bytes) < 0) return false;
    level[i] = (StoredBinary){at, (size_t)bytes};
  }
  if (!level) return false;
  if (n < 1) return PyErr_SetString(PyExc_ValueError, "a program has no binary"), false;
  p->binary = level[0].at;
  p->n_binary = level[0].n;
  p->level = level;
  p->n_levels = (int32_t)n;
  return true;
}

static bool fill(Call *c) {
  c->in.program = py_scratch_alloc(&c->s, c->in.n_programs, sizeof *c->in.program);
  c->in.input = py_scratch_alloc(&c->s, c->in.n_inputs, sizeof *c->in.input);
  if (!c->in.program || !c->in.input) return false;
  for (int i = 0; i < c->in.n_programs; i++) {
    StoredProgram *p = &c->in.program[i];
    PyObject *row = PyTuple_GetItem(c->programs, i);
    PyObject *binary;
    if (!PyTuple_Check(row)) return PyErr_SetString(PyExc_TypeError, "a program is a tuple"), false;
    if (!PyArg_ParseTuple(row, "sssO", &p->name, &p->source, &p->manifest, &binary)) return false;
    if (!take_binaries(c, binary, p)) return false;
  }
  return py_take(FIELD_TEXT, c->inputs, c->in.n_inputs, c->in.input);
}

static PyObject *fn_write(PyObject *Py_UNUSED(m), PyObject *args) {
  Call c = {0};
  PyObject *programs, *inputs, *out = NULL;
  int model = 0;
  if (!PyArg_ParseTuple(args, "sssy*O!O!|p", &c.in.name, &c.in.target, &c.in.graph, &c.v, &PyList_Type, &programs,
                        &PyList_Type, &inputs, &model))
    return NULL;
  c.form = model ? MODEL_FILE : IN_LIBRARY;
  c.programs = PyList_AsTuple(programs);
  c.inputs = PyList_AsTuple(inputs);
  c.in.n_programs = c.programs ? (int32_t)PyTuple_Size(c.programs) : 0;
  c.in.n_inputs = c.inputs ? (int32_t)PyTuple_Size(c.inputs) : 0;
  if (c.programs && c.inputs && fill(&c) && py_run_ok(&c.s.err, write_body, &c)) out = py_bytes(c.text.at, c.text.len);
  call_close(&c);
  return out;
}

ERR_BODY(read_body, Call *c, c->out = container_read(c->s.a, c->v.buf, (size_t)c->v.len, c->what))

PyObject *py_weights(int n, const GraphParam *p, const void *data) {
  PyObject *out = PyList_New(n);
  for (int i = 0; out && i < n; i++)
    py_put(&out, i,
           Py_BuildValue("ssNnL", p[i].name, p[i].dtype, py_tuple(FIELD_I64, p[i].rank, p[i].shape),
                         (Py_ssize_t)((const char *)p[i].data - (const char *)data), (long long)p[i].bytes));
  return out;
}

static PyObject *described(const Call *call) {
  const Container *c = call->out;
  PyObject *programs = PyList_New(c->n_programs);
  for (int i = 0; programs && i < c->n_programs; i++) {
    const StoredProgram *p = &c->program[i];
    py_put(&programs, i,
           Py_BuildValue("sssN", p->name, p->source, p->manifest,
                         p->binary ? py_bytes(p->binary, p->n_binary) : Py_NewRef(Py_None)));
  }
  if (!programs) return NULL;
  return Py_BuildValue("sssNNN", c->name, c->target, c->graph, py_weights(c->n_weights, c->weight, call->v.buf),
                       programs, py_list(FIELD_TEXT, c->n_inputs, c->input));
}

static PyObject *fn_read(PyObject *Py_UNUSED(m), PyObject *args) {
  Call c = {0};
  if (!PyArg_ParseTuple(args, "y*s", &c.v, &c.what)) return NULL;
  PyObject *out = py_scratch_alloc(&c.s, 0, 1) && py_run_ok(&c.s.err, read_body, &c) ? described(&c) : NULL;
  call_close(&c);
  return out;
}

static void source_body(void *arg) {
  Call *c = arg;
  sb_init(&c->text, c->s.a);
  network_source(c->s.a, &c->text, network_read(c->s.a, c->v.buf, (size_t)c->v.len, c->what));
}

static PyObject *fn_source(PyObject *Py_UNUSED(m), PyObject *args) {
  Call c = {.what = "the network"};
  if (!PyArg_ParseTuple(args, "y*", &c.v)) return NULL;
  PyObject *out = py_scratch_alloc(&c.s, 0, 1) && py_run_ok(&c.s.err, source_body, &c)
                      ? PyUnicode_FromStringAndSize(c.text.at, (Py_ssize_t)c.text.len)
                      : NULL;
  call_close(&c);
  return out;
}

static PyMethodDef FUNCS[] = {
    {"relayout", fn_relayout, METH_VARARGS,
     "relayout(array, old, new, axes): the bytes of an array of shape `old` in another layout: dimension k of shape\n"
     "`new` counts within dimension axes[k] of the original, outer parts first; what lies outside is zero."},
    {"container_write", fn_write, METH_VARARGS,
     "container_write(name, target, graph, params, [(name, source, manifest, binary), ...], inputs, model=False): the "
     "bytes of an exported network, for a library or as a model file. params: a parameter file. binary: bytes, None, "
     "or "
     "(model files) a tuple of those for several processors."},
    {"container_read", fn_read, METH_VARARGS,
     "container_read(data, what): what container_write was given, of either form; params as params_read tells them. "
     "ValueError, which begins with `what`, if the bytes are damaged or something else."},
    {"network_source", fn_source, METH_VARARGS,
     "network_source(model): the text of network.c, tables of the network in C. model: bytes of a model file."},
    {NULL, NULL, 0, NULL}};

int py_init_program(PyObject *m) { return PyModule_AddFunctions(m, FUNCS); }
