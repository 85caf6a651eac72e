/* Bindings of program: layouts of arguments and the container of an exported network. */
#include "program/program.h"
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
  Py_ssize_t len = PySequence_Fast_GET_SIZE(list);
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
  sb_init(&c->text, c->s.a);
  container_write(&c->text, &c->in);
}

static bool fill(Call *c) {
  c->in.program = py_scratch_alloc(&c->s, c->in.n_programs, sizeof *c->in.program);
  c->in.input = py_scratch_alloc(&c->s, c->in.n_inputs, sizeof *c->in.input);
  if (!c->in.program || !c->in.input) return false;
  for (int i = 0; i < c->in.n_programs; i++) {
    StoredProgram *p = &c->in.program[i];
    PyObject *row = PyTuple_GET_ITEM(c->programs, i);
    Py_ssize_t n;
    if (!PyTuple_Check(row)) return PyErr_SetString(PyExc_TypeError, "a program is a tuple"), false;
    if (!PyArg_ParseTuple(row, "sssz#", &p->name, &p->source, &p->manifest, &p->binary, &n)) return false;
    p->n_binary = p->binary ? (size_t)n : 0;
  }
  return py_take(FIELD_TEXT, c->inputs, c->in.n_inputs, c->in.input);
}

static PyObject *fn_write(PyObject *Py_UNUSED(m), PyObject *args) {
  Call c = {0};
  PyObject *programs, *inputs, *out = NULL;
  Py_ssize_t n;
  if (!PyArg_ParseTuple(args, "sssy#O!O!", &c.in.name, &c.in.target, &c.in.graph, &c.in.params, &n, &PyList_Type,
                        &programs, &PyList_Type, &inputs))
    return NULL;
  c.in.n_params = (size_t)n;
  c.programs = PyList_AsTuple(programs);
  c.inputs = PyList_AsTuple(inputs);
  c.in.n_programs = c.programs ? (int32_t)PyTuple_GET_SIZE(c.programs) : 0;
  c.in.n_inputs = c.inputs ? (int32_t)PyTuple_GET_SIZE(c.inputs) : 0;
  if (c.programs && c.inputs && fill(&c) && py_run_ok(&c.s.err, write_body, &c)) out = py_bytes(c.text.at, c.text.len);
  call_close(&c);
  return out;
}

ERR_BODY(read_body, Call *c, c->out = container_read(c->s.a, c->v.buf, (size_t)c->v.len, c->what))

static PyObject *described(const Container *c) {
  PyObject *programs = PyList_New(c->n_programs);
  for (int i = 0; programs && i < c->n_programs; i++) {
    const StoredProgram *p = &c->program[i];
    py_put(&programs, i,
           Py_BuildValue("sssN", p->name, p->source, p->manifest,
                         p->binary ? py_bytes(p->binary, p->n_binary) : Py_NewRef(Py_None)));
  }
  if (!programs) return NULL;
  return Py_BuildValue("sssNNN", c->name, c->target, c->graph, py_bytes(c->params, c->n_params), programs,
                       py_list(FIELD_TEXT, c->n_inputs, c->input));
}

static PyObject *fn_read(PyObject *Py_UNUSED(m), PyObject *args) {
  Call c = {0};
  if (!PyArg_ParseTuple(args, "y*s", &c.v, &c.what)) return NULL;
  PyObject *out = py_scratch_alloc(&c.s, 0, 1) && py_run_ok(&c.s.err, read_body, &c) ? described(c.out) : NULL;
  call_close(&c);
  return out;
}

static PyMethodDef FUNCS[] = {
    {"relayout", fn_relayout, METH_VARARGS,
     "relayout(array, old, new, axes): the bytes of an array of shape `old` in another layout: dimension k of shape\n"
     "`new` counts within dimension axes[k] of the original, outer parts first; what lies outside is zero."},
    {"container_write", fn_write, METH_VARARGS,
     "container_write(name, target, graph, params, [(name, source, manifest, binary or None), ...], inputs): the "
     "bytes\n"
     "of an exported network."},
    {"container_read", fn_read, METH_VARARGS,
     "container_read(data, what): what container_write was given. ValueError, which begins with `what`, if the bytes\n"
     "are damaged or something else."},
    {NULL, NULL, 0, NULL}};

int py_init_program(PyObject *m) { return PyModule_AddFunctions(m, FUNCS); }
