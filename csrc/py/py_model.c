/* Bindings of model: the type Forest (boosted trees) and the metrics. Arrays are NumPy: rows float32 [n, entries],
 * first int32 [states + 1], task int32 [states], cost float64 [states] in seconds. */
#include "py/py.h"
#include "model/model.h"
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL nestsmith_model_ARRAY_API
#include <numpy/arrayobject.h>

typedef struct { PyObject_HEAD Err err; Arena *arena; Forest *forest; PyObject *info; } PyForest;

/* ---- arguments ---- */
typedef struct { PyArrayObject *rows, *first, *task, *cost; FeatBatch b; } Batch;

static PyArrayObject *as_array(PyObject *o, int type, int nd, const char *name) {
  PyArrayObject *a = (PyArrayObject *)PyArray_FROMANY(o, type, nd, nd, NPY_ARRAY_CARRAY_RO);
  if (!a) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s: expected a %d-dimensional array of numbers", name, nd);
  }
  return a;
}

static void batch_drop(Batch *x) {
  Py_CLEAR(x->rows);
  Py_CLEAR(x->first);
  Py_CLEAR(x->task);
  Py_CLEAR(x->cost);
}

static bool batch_check(Batch *x) {
  FeatBatch *b = &x->b;
  npy_intp n_rows = PyArray_DIM(x->rows, 0);
  if (b->n_states < 0) return PyErr_SetString(PyExc_ValueError, "first: needs at least one element (0)"), false;
  if (b->first[0] != 0 || b->first[b->n_states] != n_rows)
    return PyErr_Format(PyExc_ValueError, "first: must run from 0 to the number of rows (%zd)", (Py_ssize_t)n_rows), false;
  for (int i = 0; i < b->n_states; i++)
    if (b->first[i + 1] < b->first[i]) return PyErr_Format(PyExc_ValueError, "first: decreases at state %d", i), false;
  if (x->task && PyArray_DIM(x->task, 0) != b->n_states)
    return PyErr_Format(PyExc_ValueError, "task: has %zd elements, first describes %d states", (Py_ssize_t)PyArray_DIM(x->task, 0), b->n_states), false;
  if (x->cost && PyArray_DIM(x->cost, 0) != b->n_states)
    return PyErr_Format(PyExc_ValueError, "cost: has %zd elements, first describes %d states", (Py_ssize_t)PyArray_DIM(x->cost, 0), b->n_states), false;
  for (int i = 0; x->task && i < b->n_states; i++)
    if (b->task[i] < 0 || b->task[i] >= 1 << 20) return PyErr_Format(PyExc_ValueError, "task: number %d of state %d is not in 0..2^20", b->task[i], i), false;
  return true;
}

static bool batch_from(Batch *x, PyObject *rows, PyObject *first, PyObject *task, PyObject *cost) {
  memset(x, 0, sizeof *x);
  if (!(x->rows = as_array(rows, NPY_FLOAT32, 2, "rows")) || !(x->first = as_array(first, NPY_INT32, 1, "first")) ||
      (task && !(x->task = as_array(task, NPY_INT32, 1, "task"))) || (cost && !(x->cost = as_array(cost, NPY_FLOAT64, 1, "cost")))) {
    batch_drop(x);
    return false;
  }
  x->b = (FeatBatch){.n_states = (int32_t)PyArray_DIM(x->first, 0) - 1, .n_feat = (int32_t)PyArray_DIM(x->rows, 1),
                     .first = PyArray_DATA(x->first), .rows = PyArray_DATA(x->rows),
                     .task = x->task ? PyArray_DATA(x->task) : NULL, .cost = x->cost ? PyArray_DATA(x->cost) : NULL};
  if (batch_check(x)) return true;
  batch_drop(x);
  return false;
}

/* ---- Forest ---- */
typedef struct { PyForest *self; const FeatBatch *b; TreeParams p; uint64_t seed; int threads; const char *path, *json; char *json_out; double *score; } Call;

static void do_train(void *arg) {
  Call *c = arg;
  Pool *pool = c->threads > 1 ? pool_new(c->threads, &c->self->err) : NULL;
  c->self->forest = forest_train(c->self->arena, c->b, &c->p, c->seed, pool);
  pool_free(pool);
}
static void do_save(void *arg) {
  Call *c = arg;
  forest_save(&c->self->err, c->self->forest, c->path, c->json);
}
static void do_load(void *arg) {
  Call *c = arg;
  c->self->forest = forest_load(c->self->arena, c->path, &c->json_out);
}
static void do_arena(void *arg) {
  PyForest *f = arg;
  f->arena = arena_new(&f->err);
}

static PyForest *forest_empty(PyTypeObject *type) {
  PyForest *f = (PyForest *)type->tp_alloc(type, 0);
  if (!f) return NULL;
  err_init(&f->err);
  ErrCode code = err_try(&f->err, do_arena, f);
  if (code == NS_OK) return f;
  py_raise(&f->err, code);
  Py_DECREF(f);
  return NULL;
}

static PyObject *forest_train_py(PyObject *type, PyObject *args, PyObject *kw) {
  static char *names[] = {"rows", "first", "task", "cost", "trees", "depth", "eta", "loss", "seed", "threads", NULL};
  PyObject *rows, *first, *task, *cost;
  TreeParams p = tree_params_default();
  const char *loss = "top";
  unsigned long long seed = 0;
  int threads = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "OOOO|iidsKi", names, &rows, &first, &task, &cost, &p.trees, &p.depth, &p.eta, &loss, &seed, &threads)) return NULL;
  if (strcmp(loss, "top") != 0 && strcmp(loss, "pairwise") != 0)
    return PyErr_Format(PyExc_ValueError, "loss: '%s' is neither 'top' nor 'pairwise'", loss);
  p.loss = loss[0] == 't' ? LOSS_TOP_WEIGHTED : LOSS_PAIRWISE;
  Batch x;
  if (!batch_from(&x, rows, first, task, cost)) return NULL;
  PyForest *f = forest_empty((PyTypeObject *)type);
  ErrCode code = NS_OK;
  if (f) {
    Call c = {.self = f, .b = &x.b, .p = p, .seed = seed, .threads = threads};
    Py_BEGIN_ALLOW_THREADS;
    code = err_try(&f->err, do_train, &c);
    Py_END_ALLOW_THREADS;
  }
  batch_drop(&x);
  if (code == NS_OK) return (PyObject *)f;
  py_raise(&f->err, code);
  Py_XDECREF(f);
  return NULL;
}

static PyObject *forest_score_py(PyForest *self, PyObject *args) {
  PyObject *rows, *first;
  if (!PyArg_ParseTuple(args, "OO", &rows, &first)) return NULL;
  Batch x;
  if (!batch_from(&x, rows, first, NULL, NULL)) return NULL;
  PyObject *out = NULL;
  if (x.b.n_feat != self->forest->n_feat)
    PyErr_Format(PyExc_ValueError, "rows: has %d entries, the model was trained on %d", x.b.n_feat, self->forest->n_feat);
  else {
    npy_intp n = x.b.n_states;
    out = PyArray_SimpleNew(1, &n, NPY_FLOAT64);
    if (out) forest_score(self->forest, &x.b, PyArray_DATA((PyArrayObject *)out));
  }
  batch_drop(&x);
  return out;
}

static PyObject *forest_save_py(PyForest *self, PyObject *args) {
  Call c = {.self = self, .json = "{}"};
  if (!PyArg_ParseTuple(args, "s|s", &c.path, &c.json)) return NULL;
  ErrCode code = err_try(&self->err, do_save, &c);
  if (code != NS_OK) return py_raise(&self->err, code);
  Py_RETURN_NONE;
}

static PyObject *forest_load_py(PyObject *type, PyObject *args) {
  Call c = {0};
  if (!PyArg_ParseTuple(args, "s", &c.path)) return NULL;
  if (!(c.self = forest_empty((PyTypeObject *)type))) return NULL;
  ErrCode code = err_try(&c.self->err, do_load, &c);
  if (code != NS_OK) {
    py_raise(&c.self->err, code);
    Py_DECREF(c.self);
    return NULL;
  }
  c.self->info = PyUnicode_FromString(c.json_out);
  return (PyObject *)c.self;
}

static PyObject *forest_get_info(PyForest *self, void *closure) {
  (void)closure;
  return self->info ? Py_NewRef(self->info) : PyUnicode_FromString("{}");
}
static PyObject *forest_get_trees(PyForest *self, void *closure) {
  (void)closure;
  return PyLong_FromLong(self->forest ? self->forest->n_trees : 0);
}
static void forest_dealloc(PyForest *self) {
  PyTypeObject *type = Py_TYPE(self);
  arena_free(self->arena);
  Py_CLEAR(self->info);
  type->tp_free((PyObject *)self);
  Py_DECREF(type);
}

static PyMethodDef FOREST_METHODS[] = {
    {"train", (PyCFunction)(void (*)(void))forest_train_py, METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     "train(rows, first, task, cost, trees=200, depth=6, eta=0.1, loss='top', seed=0, threads=1) -> Forest"},
    {"score", (PyCFunction)forest_score_py, METH_VARARGS, "score(rows, first) -> float64 [states]; -inf for a state without rows"},
    {"save", (PyCFunction)forest_save_py, METH_VARARGS, "save(path, info='{}'); info is stored as it is"},
    {"load", (PyCFunction)forest_load_py, METH_CLASS | METH_VARARGS, "load(path) -> Forest"},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef FOREST_GETSET[] = {{"info", (getter)forest_get_info, NULL, "text stored with the model", NULL},
                                      {"n_trees", (getter)forest_get_trees, NULL, "number of trees", NULL},
                                      {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot FOREST_SLOTS[] = {{Py_tp_dealloc, (void *)forest_dealloc}, {Py_tp_methods, FOREST_METHODS}, {Py_tp_getset, FOREST_GETSET},
                                     {Py_tp_doc, (void *)"Boosted trees whose outputs are summed over the rows of a state."}, {0, NULL}};
static PyType_Spec FOREST_SPEC = {"nestsmith._core.Forest", sizeof(PyForest), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, FOREST_SLOTS};

/* ---- metrics ---- */
typedef struct { Err err; const FeatBatch *b; const double *score; ModelMetrics m; } MetricCall;
static void do_metrics(void *arg) {
  MetricCall *c = arg;
  Arena *a = arena_new(&c->err);
  c->m = model_metrics(a, c->b, c->score);
  arena_free(a);
}

static PyObject *metrics_py(PyObject *m, PyObject *args) {
  (void)m;
  PyObject *rows, *first, *task, *cost, *score;
  if (!PyArg_ParseTuple(args, "OOOOO", &rows, &first, &task, &cost, &score)) return NULL;
  Batch x;
  if (!batch_from(&x, rows, first, task, cost)) return NULL;
  PyArrayObject *s = as_array(score, NPY_FLOAT64, 1, "score");
  PyObject *out = NULL;
  if (s && PyArray_DIM(s, 0) == x.b.n_states) {
    MetricCall c = {.b = &x.b, .score = PyArray_DATA(s)};
    err_init(&c.err);
    ErrCode code = err_try(&c.err, do_metrics, &c);
    out = code != NS_OK ? py_raise(&c.err, code)
                        : Py_BuildValue("{s:d,s:d,s:d,s:d,s:d}", "pairwise", c.m.pairwise, "top1", c.m.top1, "top5", c.m.top5, "a_peak32",
                                        c.m.a_peak32, "recall30", c.m.recall30);
  } else if (s)
    PyErr_SetString(PyExc_ValueError, "score: must have one element per state");
  Py_XDECREF(s);
  batch_drop(&x);
  return out;
}

static PyMethodDef FUNCTIONS[] = {{"model_metrics", metrics_py, METH_VARARGS, "model_metrics(rows, first, task, cost, score) -> dict; means over tasks"},
                                  {NULL, NULL, 0, NULL}};

int py_init_model(PyObject *m) {
  import_array1(-1);
  PyObject *type = PyType_FromSpec(&FOREST_SPEC);
  if (!type || PyModule_AddObjectRef(m, "Forest", type) < 0) return -1;
  Py_DECREF(type);
  return PyModule_AddFunctions(m, FUNCTIONS);
}
