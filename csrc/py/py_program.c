/* Bindings of program: layouts of arguments and the container of an exported network. */
#include "graph/graph.h"
#include "py/py_fields.h"
#include "py/py.h"
#include <string.h>

/* A form, and of which weight. */
typedef struct {
  int number;
  WeightForm form;
} WeightOf;

/* One call: its memory and what its body works on. */
typedef struct {
  PyScratch s;
  Py_buffer v;
  const char *what;
  PyObject *programs, *inputs; /* tuples: own their items while the lock is released */
  WeightOf *weight;            /* those that are stored as the originals */
  Py_ssize_t n_weight;
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

/* ---- Winograd's transform of weights ---- */
typedef struct {
  PyScratch s;
  Winograd w;
  Py_buffer from;
  int64_t n;
  float *made;
} Tiles;
static bool take_matrix(PyScratch *s, PyObject *rows, Winograd *w) {
  Py_ssize_t n = PyTuple_Size(rows), taps = 0;
  double *g = NULL;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *row = PyTuple_GetItem(rows, i);
    bool first = !i && PyTuple_Check(row);
    if (first) taps = PyTuple_Size(row);
    if (first) g = py_scratch_alloc(s, n * taps, sizeof *g);
    if (first && !g) return false;
    if (!g || n > WINOGRAD_MOST || taps < 1 || taps > n || !PyTuple_Check(row) || PyTuple_Size(row) != taps)
      return PyErr_SetString(PyExc_ValueError,
                             "the matrix must have rows of equal length, and not more columns than rows"),
             false;
    if (!py_take(FIELD_DOUBLE, row, taps, g + i * taps)) return false;
  }
  *w = (Winograd){(int32_t)n, (int32_t)taps, g};
  return true;
}
static void tiles_body(void *arg) {
  Tiles *t = arg;
  t->made = arena_alloc(t->s.a, sizeof(float) * (size_t)(t->n * t->w.points * t->w.points) + 1);
  winograd_weight(&t->w, t->n, t->from.buf, t->made);
}
static PyObject *fn_winograd(PyObject *Py_UNUSED(m), PyObject *args) {
  Tiles t = {0};
  PyObject *data, *rows, *out = NULL;
  if (!PyArg_ParseTuple(args, "OO!", &data, &PyTuple_Type, &rows) ||
      PyObject_GetBuffer(data, &t.from, PyBUF_C_CONTIGUOUS) < 0)
    return NULL;
  if (take_matrix(&t.s, rows, &t.w)) {
    Py_ssize_t window = (Py_ssize_t)sizeof(float) * t.w.taps * t.w.taps;
    t.n = window ? t.from.len / window : 0;
    if (t.n * window != t.from.len || t.from.itemsize != sizeof(float))
      PyErr_SetString(PyExc_ValueError, "the array must hold windows of float32");
    else if (py_scratch_free(&t.s, tiles_body, &t))
      out = py_bytes(t.made, sizeof(float) * (size_t)(t.n * t.w.points * t.w.points));
  }
  py_arena_free(t.s.a);
  PyBuffer_Release(&t.from);
  return out;
}

/* ---- containers ---- */
/* The parameter becomes the value, its data stay the original. */
static void set_form(Err *e, int n, GraphParam *p, const WeightOf *w) {
  int64_t before, after, stored = -1;
  if (w->number >= 0 && w->number < n && relayout_sizes(&w->form.layout, &before, &after)) {
    p += w->number;
    stored = p->bytes;
    p->form = &w->form;
    p->rank = w->form.layout.n;
    p->shape = w->form.layout.size;
    p->bytes = after * params_dtype_bytes(p->dtype);
  }
  if (stored < 0 || form_stored(p) != stored)
    err_raise(e, NS_ERR_VALUE, "the form of weight %d does not fit it", w->number);
}

static void write_body(void *arg) {
  Call *c = arg;
  GraphParam *p = c->v.len ? params_read(c->s.a, c->v.buf, (size_t)c->v.len, &c->in.n_weights) : NULL;
  c->in.weight = p;
  for (Py_ssize_t i = 0; i < c->n_weight; i++) set_form(&c->s.err, c->in.n_weights, p, &c->weight[i]);
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

/* A weight that is stored as the original: (its number, G or an empty tuple, shape before the layout, axes, shape). */
static bool fill_form(Call *c, PyObject *row, WeightOf *w) {
  PyObject *matrix, *from, *axes, *shape;
  if (!PyTuple_Check(row)) return PyErr_SetString(PyExc_TypeError, "a form is a tuple"), false;
  if (!PyArg_ParseTuple(row, "iO!O!O!O!", &w->number, &PyTuple_Type, &matrix, &PyTuple_Type, &from, &PyTuple_Type,
                        &axes, &PyTuple_Type, &shape) ||
      !take_matrix(&c->s, matrix, &w->form.winograd))
    return false;
  Relayout *r = &w->form.layout;
  r->n_from = (int32_t)PyTuple_Size(from);
  r->n = (int32_t)PyTuple_Size(axes);
  int64_t *old = py_scratch_alloc(&c->s, r->n_from, sizeof *old), *size = py_scratch_alloc(&c->s, r->n, sizeof *size);
  int32_t *axis = py_scratch_alloc(&c->s, r->n, sizeof *axis);
  r->from = old, r->size = size, r->axis = axis;
  return old && size && axis && PyTuple_Size(shape) == r->n && py_take(FIELD_I64, from, r->n_from, old) &&
         py_take(FIELD_I64, shape, r->n, size) && py_take(FIELD_I32, axes, r->n, axis);
}

static PyObject *fn_write(PyObject *Py_UNUSED(m), PyObject *args) {
  Call c = {0};
  PyObject *programs, *inputs, *forms = NULL, *out = NULL;
  int model = 0;
  if (!PyArg_ParseTuple(args, "sssy*O!O!|pO!", &c.in.name, &c.in.target, &c.in.graph, &c.v, &PyList_Type, &programs,
                        &PyList_Type, &inputs, &model, &PyTuple_Type, &forms))
    return NULL;
  c.form = model ? MODEL_FILE : IN_LIBRARY;
  c.programs = PyList_AsTuple(programs);
  c.inputs = PyList_AsTuple(inputs);
  c.in.n_programs = c.programs ? (int32_t)PyTuple_Size(c.programs) : 0;
  c.in.n_inputs = c.inputs ? (int32_t)PyTuple_Size(c.inputs) : 0;
  c.n_weight = forms ? PyTuple_Size(forms) : 0;
  c.weight = py_scratch_alloc(&c.s, c.n_weight + 1, sizeof *c.weight);
  bool ok = c.programs && c.inputs && c.weight && fill(&c);
  for (Py_ssize_t i = 0; ok && i < c.n_weight; i++) ok = fill_form(&c, PyTuple_GetItem(forms, i), &c.weight[i]);
  if (ok && py_run_ok(&c.s.err, write_body, &c)) out = py_bytes(c.text.at, c.text.len);
  call_close(&c);
  return out;
}

/* Weights that are stored as the originals are made. */
static void read_body(void *arg) {
  Call *c = arg;
  c->out = container_read(c->s.a, c->v.buf, (size_t)c->v.len, c->what);
  GraphParam *p = arena_array(c->s.a, GraphParam, c->out->n_weights);
  for (int i = 0; i < c->out->n_weights; i++) {
    p[i] = c->out->weight[i];
    if (!p[i].form) continue;
    void *made = arena_alloc(c->s.a, (size_t)p[i].bytes + 1);
    form_make(&c->s.err, &p[i], made);
    p[i].data = made;
  }
  c->out->weight = p;
}

PyObject *py_weights(int n, const GraphParam *p, const void *data) {
  PyObject *out = PyList_New(n);
  for (int i = 0; out && i < n; i++)
    py_put(&out, i,
           Py_BuildValue("ssNNL", p[i].name, p[i].dtype, py_tuple(FIELD_I64, p[i].rank, p[i].shape),
                         p[i].form ? py_bytes(p[i].data, (size_t)p[i].bytes)
                                   : PyLong_FromSsize_t((const char *)p[i].data - (const char *)data),
                         (long long)p[i].bytes));
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
    {"winograd_weight", fn_winograd, METH_VARARGS,
     "winograd_weight(windows, g): the bytes of G w G^T, float32 [points, points, n], of windows [n, taps, taps]; g: "
     "rows of G, a tuple of tuples of numbers."},
    {"container_write", fn_write, METH_VARARGS,
     "container_write(name, target, graph, params, [(name, source, manifest, binary), ...], inputs, model=False, "
     "forms=()): "
     "the bytes of an exported network, for a library or as a model file. params: a parameter file. binary: bytes, "
     "None, "
     "or "
     "(model files) a tuple of those for several processors. forms: of parameters that are originals, from which the "
     "weights "
     "are made where the file is loaded: (number, rows of Winograd's G or (), shape before the layout, axes, shape)."},
    {"container_read", fn_read, METH_VARARGS,
     "container_read(data, what): what container_write was given, of either form; params as params_read tells them, "
     "with bytes instead of the offset where "
     "they were made. "
     "ValueError, which begins with `what`, if the bytes are damaged or something else."},
    {"network_source", fn_source, METH_VARARGS,
     "network_source(model): the text of network.c, tables of the network in C. model: bytes of a model file."},
    {NULL, NULL, 0, NULL}};

int py_init_program(PyObject *m) { return PyModule_AddFunctions(m, FUNCS); }
