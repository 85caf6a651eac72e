/* Binding of templates' spaces: _core.Space. Entities cross as tuples of numbers or words; the objects that users see are
 * made of them in nestsmith/autotvm/task/space.py. */
#include "py/py_fields.h"
#include "py/py_template.h"
#include <string.h>

PyTypeObject *PySpace_Type;

PySpace *py_space(PyObject *o) {
  if (PyObject_TypeCheck(o, PySpace_Type)) return (PySpace *)o;
  PyErr_Format(PyExc_TypeError, "expected a Space, got %s", PY_TYPE_NAME(o));
  return NULL;
}

bool py_space_try(PySpace *p, ErrBody body, void *arg) {
  ErrCode c = err_try(&p->err, body, arg);
  PyObject *failure = c == NS_OK ? NULL : p->failure;
  if (failure) {
    p->failure = NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(failure), failure);
    Py_DECREF(failure);
  } else if (c != NS_OK)
    py_raise(&p->err, c);
  return c == NS_OK;
}

void py_space_failed(PySpace *p) {
  PyObject *type, *trace, *value;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (value && trace) PyException_SetTraceback(value, trace);
  PY_SET(p->failure, value);
  PY_DROP(type, trace);
}

/* ---- life ---- */
ERR_BODY(do_new, PySpace *p, p->space = space_new(&p->err))
static PyObject *space_create(PyTypeObject *type, PyObject *args, PyObject *kw) {
  static char *names[] = {NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kw, "", names)) return NULL;
  PySpace *p = (PySpace *)PyType_GenericAlloc(type, 0);
  if (!p) return NULL;
  err_init(&p->err);
  if (!py_try(&p->err, do_new, p)) Py_CLEAR(p);
  return (PyObject *)p;
}
static int space_traverse(PyObject *o, visitproc visit, void *arg) {
  PySpace *p = (PySpace *)o;
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(p->filter);
  Py_VISIT(p->failure);
  return 0;
}
static int space_clear(PyObject *o) {
  PySpace *p = (PySpace *)o;
  Py_CLEAR(p->filter);
  Py_CLEAR(p->failure);
  return 0;
}
static void space_drop(PyObject *o) {
  PyObject_GC_UnTrack(o);
  space_clear(o);
  space_free(((PySpace *)o)->space);
  py_free_object(o);
}

/* ---- knobs: each function makes one, or puts it in the place of the one with its name; it returns its number ---- */
typedef struct {
  PySpace *p;
  const char *name;
  Knob (*make)(void *self, Arena *a, const char *name);
  void *self;
  int at;
} Define;
static void do_define(void *arg) {
  Define *x = arg;
  Knob k = x->make(x->self, x->p->space->a, x->name);
  x->at = space_define(x->p->space, &k);
}
static PyObject *define(PyObject *o, const char *name, Knob (*make)(void *self, Arena *a, const char *name),
                        void *self) {
  Define x = {(PySpace *)o, name, make, self, 0};
  return py_space_try(x.p, do_define, &x) ? PyLong_FromLong(x.at) : NULL;
}

static Knob make_split(void *self, Arena *a, const char *name) { return knob_split(a, name, self); }
static PyObject *define_split(PyObject *o, const char *name, SplitDef *d, PyObject *order) {
  int64_t *at = order ? py_array(FIELD_I64, order) : NULL;
  d->n_order = order ? (int32_t)PyTuple_Size(order) : 0;
  d->order = at;
  PyObject *r = order && !at ? NULL : define(o, name, make_split, d);
  PyMem_Free(at);
  return r;
}
static PyObject *m_split(PyObject *o, PyObject *args) {
  static const char *const POLICY[] = {"factors", "power2", "verbose"};
  const char *name, *policy;
  SplitDef d = {0};
  PyObject *order = NULL;
  long long length, most;
  int tails;
  if (!PyArg_ParseTuple(args, "sLisLp|O!", &name, &length, &d.outputs, &policy, &most, &tails, &PyTuple_Type, &order))
    return NULL;
  d.length = length, d.max_factor = most, d.tails = tails;
  for (int i = 0; i < NS_COUNT(POLICY); i++)
    if (strcmp(policy, POLICY[i]) == 0) return d.policy = (SplitPolicy)i, define_split(o, name, &d, order);
  return PyErr_Format(PyExc_ValueError,
                      "knob '%s': a split has no policy '%s'; there are factors, power2, verbose, candidate", name,
                      policy);
}

typedef struct {
  int width, begin, end;
} Interval;
static Knob make_permute(void *self, Arena *a, const char *name) {
  const Interval *x = self;
  return knob_permute(a, name, x->width, x->begin, x->end);
}
static PyObject *m_permute(PyObject *o, PyObject *args) {
  const char *name;
  Interval x;
  if (!PyArg_ParseTuple(args, "siii", &name, &x.width, &x.begin, &x.end)) return NULL;
  return define(o, name, make_permute, &x);
}

typedef struct {
  int width, n;
  uint8_t word[ANN_WORDS];
} Words;
static Knob make_words(void *self, Arena *a, const char *name) {
  const Words *x = self;
  return knob_words(a, name, x->width, x->n, x->word);
}
static int word_of(PyObject *o) {
  const char *text = py_utf8(o);
  int w = text ? ann_find(text) : -1;
  if (text && w < 0) PyErr_Format(PyExc_ValueError, "'%.200s' is no annotation of a loop", text);
  return w;
}
static PyObject *m_words(PyObject *o, PyObject *args) {
  const char *name;
  PyObject *list;
  Words x = {0};
  if (!PyArg_ParseTuple(args, "siO!", &name, &x.width, &PyTuple_Type, &list)) return NULL;
  if (PyTuple_Size(list) > ANN_WORDS) return PyErr_Format(PyExc_ValueError, "knob '%s': too many annotations", name);
  for (; x.n < PyTuple_Size(list); x.n++) {
    int w = word_of(PyTuple_GetItem(list, x.n));
    if (w < 0) return NULL;
    x.word[x.n] = (uint8_t)w;
  }
  return define(o, name, make_words, &x);
}

static Knob make_anchors(void *self, Arena *a, const char *name) {
  const Interval *x = self;
  return knob_anchors(a, name, x->width, x->end);
}
static PyObject *m_anchors(PyObject *o, PyObject *args) {
  const char *name;
  Interval x = {0};
  if (!PyArg_ParseTuple(args, "sii", &name, &x.width, &x.end)) return NULL;
  return define(o, name, make_anchors, &x);
}

typedef struct {
  KnobKind kind;
  int width;
  Py_ssize_t n;
  int64_t *at;
} Rows;
static Knob make_rows(void *self, Arena *a, const char *name) {
  const Rows *x = self;
  return knob_table(a, name, x->kind, x->width, x->n, x->at);
}
static bool read_row(const Rows *x, PyObject *row, int64_t *out) {
  if (!PyTuple_Check(row) || PyTuple_Size(row) != x->width)
    return PyErr_Format(PyExc_ValueError, "a row of %d items was expected", x->width), false;
  for (int i = 0; i < x->width; i++) {
    PyObject *item = PyTuple_GetItem(row, i);
    out[i] = x->kind == KNOB_ANNOTATE ? word_of(item) : PyLong_AsLongLong(item);
    if (PyErr_Occurred()) return false;
  }
  return true;
}
static PyObject *m_table(PyObject *o, PyObject *args) {
  static const struct {
    const char *name;
    KnobKind kind;
  } KINDS[] = {{"sp", KNOB_SPLIT}, {"re", KNOB_REORDER}, {"an", KNOB_ANNOTATE}};
  const char *name, *kind;
  PyObject *rows;
  Rows x = {0};
  if (!PyArg_ParseTuple(args, "ssiO!", &name, &kind, &x.width, &PyList_Type, &rows)) return NULL;
  int k = 0;
  while (k < NS_COUNT(KINDS) && strcmp(KINDS[k].name, kind) != 0) k++;
  if (k == NS_COUNT(KINDS) || x.width < 0) return PyErr_Format(PyExc_ValueError, "no kind of knob: '%s'", kind);
  x.kind = KINDS[k].kind;
  x.n = PyList_Size(rows);
  x.at = py_calloc(x.n * x.width + 1, sizeof *x.at);
  bool ok = x.at != NULL;
  for (Py_ssize_t i = 0; ok && i < x.n; i++) ok = read_row(&x, PyList_GetItem(rows, i), x.at + i * x.width);
  PyObject *r = ok ? define(o, name, make_rows, &x) : NULL;
  PyMem_Free(x.at);
  return r;
}

typedef struct {
  Py_ssize_t n;
  double *at;
} Values;
static Knob make_other(void *self, Arena *a, const char *name) {
  const Values *x = self;
  return knob_other(a, name, x->n, x->at);
}
static PyObject *m_other(PyObject *o, PyObject *args) {
  const char *name;
  PyObject *list;
  if (!PyArg_ParseTuple(args, "sO!", &name, &PyList_Type, &list)) return NULL;
  Values x = {.n = PyList_Size(list)};
  x.at = py_array(FIELD_DOUBLE, list);
  PyObject *r = x.at ? define(o, name, make_other, &x) : NULL;
  PyMem_Free(x.at);
  return r;
}

static const Knob *knob_at(PyObject *o, int i) {
  const Space *s = ((PySpace *)o)->space;
  if (i >= 0 && i < s->knob.len) return &s->knob.at[i];
  PyErr_Format(PyExc_IndexError, "knob %d: the space has %d knobs", i, s->knob.len);
  return NULL;
}

typedef struct {
  PySpace *p;
  int at;
  bool *keep;
} Keep;
static void do_keep(void *arg) {
  Keep *x = arg;
  Knob k = x->p->space->knob.at[x->at];
  knob_keep(x->p->space->a, &k, x->keep);
  space_define(x->p->space, &k);
}
static PyObject *m_keep(PyObject *o, PyObject *args) {
  Keep x = {.p = (PySpace *)o};
  PyObject *list;
  if (!PyArg_ParseTuple(args, "iO!", &x.at, &PyList_Type, &list)) return NULL;
  const Knob *k = knob_at(o, x.at);
  if (!k) return NULL;
  if (PyList_Size(list) != k->n)
    return PyErr_Format(PyExc_ValueError, "knob '%s' has %d entities, not %zd", k->name, (int)k->n, PyList_Size(list));
  if (!(x.keep = py_calloc(k->n, sizeof *x.keep))) return NULL;
  for (Py_ssize_t i = 0; i < PyList_Size(list); i++) x.keep[i] = PyList_GetItem(list, i) == Py_True;
  bool ok = py_space_try(x.p, do_keep, &x);
  PyMem_Free(x.keep);
  return py_none(ok);
}

static PyObject *m_entity(PyObject *o, PyObject *args) {
  int at, number;
  int64_t row[KNOB_WIDTH];
  if (!PyArg_ParseTuple(args, "ii", &at, &number)) return NULL;
  const Knob *k = knob_at(o, at);
  if (!k) return NULL;
  if (number < 0 || number >= k->n)
    return PyErr_Format(PyExc_IndexError, "knob '%s' has entities 0 to %d, not %d", k->name, (int)k->n - 1, number);
  knob_entity(k, number, row);
  PyObject *t = PyTuple_New(k->width);
  for (int i = 0; t && i < k->width; i++)
    py_put(&t, i, k->kind == KNOB_ANNOTATE ? PyUnicode_FromString(ANN_NAME[row[i]]) : PyLong_FromLongLong(row[i]));
  return t;
}

/* ---- indices ---- */
static PyObject *get_dims(PyObject *o, void *Py_UNUSED(u)) {
  const Space *s = ((PySpace *)o)->space;
  int32_t n[SPACE_KNOBS];
  for (int i = 0; i < s->knob.len; i++) n[i] = s->knob.at[i].n;
  return py_tuple(FIELD_I32, s->knob.len, n);
}
static PyObject *get_range(PyObject *o, void *Py_UNUSED(u)) {
  return PyLong_FromLongLong(((PySpace *)o)->space->range);
}
static bool index_in(const PySpace *p, long long index) {
  if (index >= 0 && index < p->space->range) return true;
  PyErr_Format(PyExc_IndexError, "index %lld: the space has indices 0 to %lld", index, (long long)p->space->range - 1);
  return false;
}
static PyObject *m_digits(PyObject *o, PyObject *args) {
  const PySpace *p = (PySpace *)o;
  long long index;
  int32_t q[SPACE_KNOBS];
  if (!PyArg_ParseTuple(args, "L", &index) || !index_in(p, index)) return NULL;
  space_digits(p->space, index, q);
  return py_tuple(FIELD_I32, p->space->knob.len, q);
}
static PyObject *m_index(PyObject *o, PyObject *args) {
  const Space *s = ((PySpace *)o)->space;
  PyObject *t;
  int32_t q[SPACE_KNOBS];
  if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &t)) return NULL;
  if (PyTuple_Size(t) != s->knob.len)
    return PyErr_Format(PyExc_ValueError, "%zd digits: the space has %d knobs", PyTuple_Size(t), s->knob.len);
  for (int i = 0; i < s->knob.len; i++) {
    long d = PyLong_AsLong(PyTuple_GetItem(t, i));
    if (d == -1 && PyErr_Occurred()) return NULL;
    if (d < 0 || d >= s->knob.at[i].n)
      return PyErr_Format(PyExc_IndexError, "knob '%s' has entities 0 to %d, not %ld", s->knob.at[i].name,
                          (int)s->knob.at[i].n - 1, d);
    q[i] = (int32_t)d;
  }
  return PyLong_FromLongLong(space_index(s, q));
}

/* ---- the filter ---- */
static bool ask_filter(void *self, Err *e, const int32_t *q) {
  PySpace *p = self;
  PyEntry g = py_enter();
  PyObject *t = py_tuple(FIELD_I32, p->space->knob.len, q), *r = t ? py_call1(p->filter, t) : NULL;
  int yes = r ? PyObject_IsTrue(r) : -1;
  PY_DROP(t, r);
  if (yes < 0) py_space_failed(p);
  py_leave(g);
  if (yes < 0) err_raise(e, NS_ERR_RUNTIME, "the filter of the configuration space failed");
  return yes;
}
static PyObject *m_filter(PyObject *o, PyObject *fn) {
  PySpace *p = (PySpace *)o;
  PY_SET(p->filter, fn == Py_None ? NULL : Py_NewRef(fn));
  space_filter(p->space, p->filter ? (SpaceFilter){ask_filter, p} : (SpaceFilter){0});
  Py_RETURN_NONE;
}

/* ---- what asks the filter ---- */
typedef struct {
  PySpace *p;
  long long index, n, begin, end, out;
  Rng rng;
  Arena *a;
  const PyObject *exclude;
  VEC(int64_t) drawn;
} Ask;
static PyObject *asked(Ask *x, ErrBody body) {
  return py_space_try(x->p, body, x) ? PyLong_FromLongLong(x->out) : NULL;
}
ERR_BODY(do_allows, Ask *x, x->out = space_allows(x->p->space, x->index))
static PyObject *m_allows(PyObject *o, PyObject *args) {
  Ask x = {.p = (PySpace *)o};
  if (!PyArg_ParseTuple(args, "L", &x.index)) return NULL;
  PyObject *r = asked(&x, do_allows);
  Py_XDECREF(r);
  return r ? PyBool_FromLong(x.out != 0) : NULL;
}
ERR_BODY(do_count, Ask *x, x->out = space_count(x->p->space, x->begin, x->end))
static PyObject *m_count(PyObject *o, PyObject *args) {
  Ask x = {.p = (PySpace *)o};
  if (!PyArg_ParseTuple(args, "LL", &x.begin, &x.end)) return NULL;
  return asked(&x, do_count);
}
ERR_BODY(do_next, Ask *x, x->out = space_next(x->p->space, x->index, x->n, x->begin, x->end))
static PyObject *m_next(PyObject *o, PyObject *args) {
  Ask x = {.p = (PySpace *)o};
  if (!PyArg_ParseTuple(args, "LLLL", &x.index, &x.n, &x.begin, &x.end)) return NULL;
  return asked(&x, do_next);
}
ERR_BODY(do_walk, Ask *x, x->out = space_walk(x->p->space, &x->rng, x->index))
static PyObject *m_walk(PyObject *o, PyObject *args) {
  Ask x = {.p = (PySpace *)o};
  unsigned long long seed;
  if (!PyArg_ParseTuple(args, "LK", &x.index, &seed) || !index_in(x.p, x.index)) return NULL;
  rng_seed(&x.rng, seed);
  return asked(&x, do_walk);
}

static bool excluded(const Ask *x, int64_t index) {
  PyObject *o = x->exclude ? PyLong_FromLongLong(index) : NULL;
  int in = o ? PySequence_Contains((PyObject *)x->exclude, o) : 0;
  Py_XDECREF(o);
  return in == 1;
}
static void do_draw(void *arg) {
  Ask *x = arg;
  Draw d;
  x->a = arena_new(&x->p->err);
  draw_init(&d, x->a, x->p->space, x->begin, x->end);
  while (x->drawn.len < x->n) {
    do x->out = draw_next(&d, &x->rng);
    while (x->out >= 0 && excluded(x, x->out));
    if (PyErr_Occurred()) err_raise(&x->p->err, NS_ERR_RUNTIME, "the indices to exclude cannot be asked");
    if (x->out < 0) return;
    vec_push(x->a, &x->drawn, x->out);
  }
}
static PyObject *m_draw(PyObject *o, PyObject *args) {
  Ask x = {.p = (PySpace *)o};
  unsigned long long seed;
  PyObject *exclude;
  if (!PyArg_ParseTuple(args, "LLLOK", &x.n, &x.begin, &x.end, &exclude, &seed)) return NULL;
  x.exclude = exclude == Py_None ? NULL : exclude;
  rng_seed(&x.rng, seed);
  PyObject *l = py_space_try(x.p, do_draw, &x) ? py_list(FIELD_I64, x.drawn.len, x.drawn.at) : NULL;
  arena_free(x.a);
  return l;
}

static PyGetSetDef GET[] = {{"dims", get_dims, NULL, "Entities of each knob.", NULL},
                            {"range", get_range, NULL, "Their product: the number of indices.", NULL},
                            {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef METHODS[] = {
    {"split", m_split, METH_VARARGS, "split(name, length, outputs, policy, max_factor, tails): number of the knob."},
    {"permute", m_permute, METH_VARARGS, "permute(name, width, begin, end): number of the knob."},
    {"words", m_words, METH_VARARGS, "words(name, width, words): number of the knob."},
    {"anchors", m_anchors, METH_VARARGS, "anchors(name, width, n): number of the knob."},
    {"table", m_table, METH_VARARGS, "table(name, 'sp' | 're' | 'an', width, rows): number of the knob."},
    {"other", m_other, METH_VARARGS, "other(name, values as numbers): number of the knob."},
    {"keep", m_keep, METH_VARARGS, "keep(knob, bools): drops the other entities."},
    {"entity", m_entity, METH_VARARGS, "entity(knob, digit): sizes, positions, words, or the place of the value."},
    {"digits", m_digits, METH_VARARGS, "digits(index)"},
    {"index", m_index, METH_VARARGS, "index(digits)"},
    {"filter", m_filter, METH_O, "filter(fn): fn(digits) says whether they are allowed; None: all are."},
    {"allows", m_allows, METH_VARARGS, "allows(index)"},
    {"count", m_count, METH_VARARGS, "count(begin, end): allowed indices."},
    {"next", m_next, METH_VARARGS, "next(index, n, begin, end): the n-th allowed index from here, or -1."},
    {"walk", m_walk, METH_VARARGS, "walk(index, seed): an allowed index with some digits changed."},
    {"draw", m_draw, METH_VARARGS,
     "draw(n, begin, end, exclude, seed): n different allowed indices, fewer if there are no more."},
    {NULL, NULL, 0, NULL}};

/* ---- functions ---- */
typedef struct {
  PyScratch s;
  long long x;
  int64_t n, *out;
} Divisors;
ERR_BODY(do_divisors, Divisors *d, d->n = i64_divisors(d->s.a, d->x, &d->out))
static PyObject *f_divisors(PyObject *Py_UNUSED(m), PyObject *args) {
  Divisors d = {0};
  if (!PyArg_ParseTuple(args, "L", &d.x)) return NULL;
  if (d.x <= 0) return PyErr_Format(PyExc_ValueError, "n is %lld; it must be at least 1", d.x);
  PyObject *l = py_scratch_run(&d.s, do_divisors, &d) ? py_list(FIELD_I64, d.n, d.out) : NULL;
  arena_free(d.s.a);
  return l;
}

typedef struct {
  int n;
  TensorId *t;
  const char *why;
  double out;
} Operations;
ERR_BODY(do_operations, Operations *x, x->out = te_count_operations(py_session()->ctx, x->n, x->t, &x->why))
static PyObject *f_operations(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *list;
  if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list)) return NULL;
  Operations x = {.n = (int)PyList_Size(list)};
  x.t = py_array(FIELD_TENSOR, list);
  bool ok = x.t && py_guard(py_session(), do_operations, &x);
  PyMem_Free(x.t);
  if (!ok) return NULL;
  return x.why ? PyErr_Format(PyExc_ValueError, "%s", x.why) : PyFloat_FromDouble(x.out);
}
static PyMethodDef FUNCTIONS[] = {
    {"divisors", f_divisors, METH_VARARGS, "divisors(n): ascending."},
    {"operations", f_operations, METH_VARARGS, "operations(tensors): all operators of these and of what they read."},
    {NULL, NULL, 0, NULL}};

static const PyType_Slot SPACE_SLOTS[] = {{Py_tp_traverse, space_traverse}, {Py_tp_clear, space_clear}, {0, NULL}};
static const PyClass CLASSES[] = {PY_CLASS("Space", sizeof(PySpace), .type = &PySpace_Type, .flags = Py_TPFLAGS_HAVE_GC,
                                           .create = space_create, .drop = space_drop, .methods = METHODS, .get = GET,
                                           .more = SPACE_SLOTS,
                                           .doc = "Space(): the configurations of a template, as numbers.")};

int py_init_template(PyObject *m) {
  PyObject *names = py_tuple(FIELD_TEXT, ANN_WORDS, ANN_NAME);
  int r = names ? PyModule_AddObjectRef(m, "ANNOTATIONS", names) : -1;
  Py_XDECREF(names);
  return r == 0 ? py_add(m, NS_COUNT(CLASSES), CLASSES, FUNCTIONS) : -1;
}
