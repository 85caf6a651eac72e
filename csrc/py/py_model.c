/* Bindings of model: features of states, the types Forest (boosted trees) and Network, and the metrics. Arrays are
 * NumPy: rows float32 [n, entries], first int32 [states + 1], task int32 [states], cost float64 [states] in seconds. */
#include "py/py_fields.h"
#include "py/py.h"
#include "py/py_search.h"
#include "model/model.h"
#define PY_ARRAY_HOME
#include "py/py_array.h"
#include "model/product.h"
#include <math.h>

typedef struct {
  PyObject_HEAD Err err;
  Arena *arena;
  Forest *forest; /* one of them */
  Mlp *net;
  bool is_net;
  PyObject *info;
} PyTrained;

/* ---- arguments ---- */
typedef struct {
  PyArrayObject *rows, *first, *task, *cost;
  FeatBatch b;
} Batch;

PyArrayObject *py_array_from(PyObject *o, int type, int nd, const char *name) {
  PyArrayObject *a = (PyArrayObject *)PyArray_FROMANY(o, type, nd, nd, NPY_ARRAY_CARRAY_RO);
  if (!a) {
    py_clear();
    PyErr_Format(PyExc_ValueError, "%s: expected a %d-dimensional array of numbers", name, nd);
  }
  return a;
}
PyObject *py_array_copy(int type, const void *from, int nd, npy_intp n, npy_intp m) {
  PyObject *a = PyArray_SimpleNew(nd, ((npy_intp[]){n, m}), type);
  if (a) py_memcpy(PyArray_DATA((PyArrayObject *)a), from, (size_t)PyArray_NBYTES((PyArrayObject *)a));
  return a;
}

static void batch_drop(Batch *x) { PY_DROP(x->rows, x->first, x->task, x->cost); }

static bool one_each(PyArrayObject *a, const char *name, int states) {
  if (!a || PyArray_DIM(a, 0) == states) return true;
  PyErr_Format(PyExc_ValueError, "%s: has %zd elements, first describes %d states", name, (Py_ssize_t)PyArray_DIM(a, 0),
               states);
  return false;
}
static bool batch_check(Batch *x) {
  FeatBatch *b = &x->b;
  npy_intp n_rows = PyArray_DIM(x->rows, 0);
  if (b->n_states < 0) return PyErr_SetString(PyExc_ValueError, "first: needs at least one element (0)"), false;
  if (b->first[0] != 0 || b->first[b->n_states] != n_rows)
    return PyErr_Format(PyExc_ValueError, "first: must run from 0 to the number of rows (%zd)", (Py_ssize_t)n_rows),
           false;
  for (int i = 0; i < b->n_states; i++)
    if (b->first[i + 1] < b->first[i]) return PyErr_Format(PyExc_ValueError, "first: decreases at state %d", i), false;
  if (!one_each(x->task, "task", b->n_states) || !one_each(x->cost, "cost", b->n_states)) return false;
  for (int i = 0; x->task && i < b->n_states; i++)
    if (b->task[i] < 0 || b->task[i] >= 1 << 20)
      return PyErr_Format(PyExc_ValueError, "task: number %d of state %d is not in 0..2^20", b->task[i], i), false;
  return true;
}

static bool batch_from(Batch *x, PyObject *rows, PyObject *first, PyObject *task, PyObject *cost) {
  memset(x, 0, sizeof *x);
  if (!(x->rows = py_array_from(rows, NPY_FLOAT32, 2, "rows")) ||
      !(x->first = py_array_from(first, NPY_INT32, 1, "first")) ||
      (task && !(x->task = py_array_from(task, NPY_INT32, 1, "task"))) ||
      (cost && !(x->cost = py_array_from(cost, NPY_FLOAT64, 1, "cost")))) {
    batch_drop(x);
    return false;
  }
  x->b = (FeatBatch){.n_states = (int32_t)PyArray_DIM(x->first, 0) - 1,
                     .n_feat = (int32_t)PyArray_DIM(x->rows, 1),
                     .first = PyArray_DATA(x->first),
                     .rows = PyArray_DATA(x->rows),
                     .task = x->task ? PyArray_DATA(x->task) : NULL,
                     .cost = x->cost ? PyArray_DATA(x->cost) : NULL};
  if (batch_check(x)) return true;
  batch_drop(x);
  return false;
}

/* ---- trained models: Forest and Network share one struct and all methods but train ---- */
typedef struct {
  PyScratch s;
  PyTrained *self;
  const FeatBatch *b;
  TreeParams p;
  MlpParams np;
  const Mlp *start;
  uint64_t seed;
  int threads, rules, prior, base;
  const double *scores; /* to start from, besides the prior */
  npy_intp n_scores;
  const char *path, *json, *json_out;
  Pool *pool;
} Call;

static void do_train(void *arg) {
  Call *c = arg;
  if (c->threads > 1) c->pool = pool_new(c->threads, &c->self->err);
  Arena *a = c->self->arena;
  double *start = arena_array(a, double, c->b->n_states + 1), scale = 0;
  err_check(arena_err(a), !c->scores || c->n_scores == c->b->n_states,
            "start: has %zd elements, first describes %d states", (Py_ssize_t)c->n_scores, c->b->n_states);
  if (c->prior) {
    prior_of_batch(c->b, start);
    scale = prior_fit(a, c->b, start, PRIOR_SCALE, c->p.loss, c->seed);
    for (int i = 0; i < c->b->n_states; i++) start[i] *= scale;
  }
  for (int i = 0; c->scores && i < c->b->n_states; i++) start[i] += isfinite(c->scores[i]) ? c->scores[i] : 0;
  c->self->forest = forest_train(a, c->b, &c->p, c->seed, start, c->pool);
  c->self->forest->scale = scale;
  c->self->forest->rules = c->rules;
}
static void do_train_net(void *arg) {
  Call *c = arg;
  c->self->net = mlp_train(c->self->arena, c->b, &c->np, c->seed, c->start);
  mlp_set_rules(c->self->net, c->rules);
}
static void do_save(void *arg) {
  Call *c = arg;
  if (c->self->net)
    mlp_save(c->s.a, c->self->net, c->path, c->json);
  else
    forest_save(c->s.a, c->self->forest, c->base, c->path, c->json);
}
static void do_load(void *arg) {
  Call *c = arg;
  if (c->self->is_net)
    c->self->net = mlp_load(c->self->arena, c->path, &c->json_out);
  else
    c->self->forest = forest_load(c->self->arena, c->path, &c->json_out);
}
ERR_BODY(do_arena, PyTrained *f, f->arena = arena_new(&f->err))

static PyTypeObject *PyNetwork_Type;
static PyTrained *trained_empty(PyTypeObject *type) {
  PyTrained *f = (PyTrained *)PyType_GenericAlloc(type, 0);
  if (!f) return NULL;
  err_init(&f->err);
  f->is_net = type == PyNetwork_Type;
  if (!py_try(&f->err, do_arena, f)) Py_CLEAR(f);
  return f;
}

/* Converters for O&: a loss; where to start from, or None for nowhere (dropped by PyArg_Parse if a later argument fails). */
static int to_loss(PyObject *o, void *out) {
  static const char *const NAME[] = {[LOSS_TOP_WEIGHTED] = "top",
                                     [LOSS_PAIRWISE] = "pairwise",
                                     [LOSS_SQUARED] = "squared",
                                     [LOSS_ORDER] = "order",
                                     NULL};
  const char *loss = py_utf8(o);
  int k;
  if (!loss || !py_word("loss", loss, NAME, &k)) return 0;
  return *(LossKind *)out = (LossKind)k, 1;
}
static int to_start(PyObject *o, void *out) {
  PyArrayObject **at = out;
  if (!o) Py_CLEAR(*at);
  if (!o || o == Py_None) return 1;
  return (*at = py_array_from(o, NPY_FLOAT64, 1, "start")) ? Py_CLEANUP_SUPPORTED : 0;
}

static PyObject *train_new(PyObject *type, Call *c, ErrBody body, PyObject *rows, PyObject *first, PyObject *task,
                           PyObject *cost) {
  Batch x;
  if (!batch_from(&x, rows, first, task, cost)) return NULL;
  PyTrained *f = trained_empty((PyTypeObject *)type);
  if (f) {
    c->self = f, c->b = &x.b;
    bool ok = py_run_ok(&f->err, body, c);
    pool_free(c->pool); /* its errors go to f */
    if (!ok) Py_CLEAR(f);
  }
  batch_drop(&x);
  return (PyObject *)f;
}

static PyObject *forest_train_py(PyObject *type, PyObject *args, PyObject *kw) {
  PyObject *rows, *first, *task, *cost;
  PyArrayObject *start = NULL;
  unsigned long long seed = 0;
  Call c = {.p = tree_params_default(), .threads = 1, .rules = FEAT_RULES_REPAIRED};
  if (!PyArg_ParseTupleAndKeywords(args, kw, "OOOO|iidO&KiiddpO&",
                                   PY_NAMES("rows", "first", "task", "cost", "trees", "depth", "eta", "loss", "seed",
                                            "threads", "rules", "states", "entries", "prior", "start"),
                                   &rows, &first, &task, &cost, &c.p.trees, &c.p.depth, &c.p.eta, to_loss, &c.p.loss,
                                   &seed, &c.threads, &c.rules, &c.p.states, &c.p.entries, &c.prior, to_start, &start))
    return NULL;
  c.seed = seed;
  if (start) c.scores = PyArray_DATA(start), c.n_scores = PyArray_DIM(start, 0);
  PyObject *out = train_new(type, &c, do_train, rows, first, task, cost);
  Py_XDECREF((PyObject *)start);
  return out;
}

static PyObject *forest_train_template_py(PyObject *type, PyObject *args, PyObject *kw) {
  PyObject *rows, *cost, *out = NULL;
  PyArrayObject *start = NULL;
  unsigned long long seed = 0;
  Call c = {.p = tree_params_template(LOSS_ORDER), .threads = 1, .rules = FEAT_RULES_REPAIRED};
  if (!PyArg_ParseTupleAndKeywords(
          args, kw, "OO|O&iiidO&Ki",
          PY_NAMES("rows", "cost", "loss", "recall", "patience", "trees", "cut", "start", "seed", "threads"), &rows,
          &cost, to_loss, &c.p.loss, &c.p.recall, &c.p.patience, &c.p.trees, &c.p.recall_cut, to_start, &start, &seed,
          &c.threads))
    return NULL;
  c.seed = seed;
  if (start) c.scores = PyArray_DATA(start), c.n_scores = PyArray_DIM(start, 0);
  npy_intp n = PyObject_Size(cost);
  npy_intp dim = n + 1;
  PyObject *first = n < 0 ? NULL : PyArray_SimpleNew(1, &dim, NPY_INT32);
  PyObject *task = first ? PyArray_ZEROS(1, &n, NPY_INT32, 0) : NULL;
  for (npy_intp i = 0; task && i <= n; i++) ((int32_t *)PyArray_DATA((PyArrayObject *)first))[i] = (int32_t)i;
  if (task) out = train_new(type, &c, do_train, rows, first, task, cost);
  PY_DROP(first, task, start);
  return out;
}

static PyObject *network_train_py(PyObject *type, PyObject *args, PyObject *kw) {
  PyObject *rows, *first, *task, *cost, *start = Py_None;
  unsigned long long seed = 0;
  Call c = {.np = mlp_params_default(false), .rules = FEAT_RULES_REPAIRED};
  int steps = -1;
  double rate = -1;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "OOOO|iidO&KiOi",
                                   PY_NAMES("rows", "first", "task", "cost", "hidden", "steps", "rate", "loss", "seed",
                                            "threads", "start", "rules"),
                                   &rows, &first, &task, &cost, &c.np.hidden, &steps, &rate, to_loss, &c.np.loss, &seed,
                                   &c.np.threads, &start, &c.rules))
    return NULL;
  if (start != Py_None) {
    if (!PyObject_TypeCheck(start, PyNetwork_Type))
      return PyErr_Format(PyExc_TypeError, "start: expected a Network, got %s", PY_TYPE_NAME(start));
    MlpParams u = mlp_params_default(true);
    c.start = ((PyTrained *)start)->net, c.np.steps = u.steps, c.np.rate = u.rate;
  }
  if (steps >= 0) c.np.steps = steps;
  if (rate >= 0) c.np.rate = rate;
  c.seed = seed;
  return train_new(type, &c, do_train_net, rows, first, task, cost);
}

static PyObject *trained_score(PyTrained *self, PyObject *args) {
  PyObject *rows, *first;
  if (!PyArg_ParseTuple(args, "OO", &rows, &first)) return NULL;
  Batch x;
  if (!batch_from(&x, rows, first, NULL, NULL)) return NULL;
  PyObject *out = NULL;
  int entries = self->net ? mlp_entries(self->net) : self->forest->n_feat;
  if (x.b.n_feat != entries)
    PyErr_Format(PyExc_ValueError, "rows: has %d entries, the model was trained on %d", x.b.n_feat, entries);
  else {
    npy_intp n = x.b.n_states;
    out = PyArray_SimpleNew(1, &n, NPY_FLOAT64);
    double *to = out ? PyArray_DATA((PyArrayObject *)out) : NULL;
    if (out) {
      Py_BEGIN_ALLOW_THREADS;
      if (self->net)
        mlp_score(self->net, &x.b, to);
      else
        forest_score(self->forest, &x.b, to);
      Py_END_ALLOW_THREADS;
    }
  }
  batch_drop(&x);
  return out;
}

static PyObject *trained_save(PyTrained *self, PyObject *args) {
  Call c = {.self = self, .json = "{}"};
  PyObject *path;
  if (!PyArg_ParseTuple(args, "O&|sp", PyUnicode_FSConverter, &path, &c.json, &c.base)) return NULL;
  c.path = PyBytes_AsString(path);
  bool ok = py_scratch_free(&c.s, do_save, &c); /* in memory of its own: the model never changes, others may read it */
  py_arena_free(c.s.a);
  Py_DECREF(path);
  return py_none(ok);
}

static PyObject *trained_load(PyObject *type, PyObject *args) {
  Call c = {0};
  PyObject *path;
  if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) return NULL;
  c.path = PyBytes_AsString(path);
  c.self = trained_empty((PyTypeObject *)type);
  if (c.self && py_free_ok(&c.self->err, do_load, &c))
    c.self->info = PyUnicode_FromString(c.json_out);
  else
    Py_CLEAR(c.self);
  Py_DECREF(path);
  return (PyObject *)c.self;
}

static PyObject *trained_info(PyTrained *self, void *Py_UNUSED(closure)) {
  return self->info ? Py_NewRef(self->info) : PyUnicode_FromString("{}");
}
static PyObject *trained_rules(PyTrained *self, void *Py_UNUSED(closure)) {
  return PyLong_FromLong(self->net ? mlp_rules(self->net) : self->forest ? self->forest->rules : 0);
}
static PyObject *forest_get_trees(PyTrained *self, void *Py_UNUSED(closure)) {
  return PyLong_FromLong(self->forest ? self->forest->n_trees : 0);
}
static void trained_dealloc(PyTrained *self) {
  py_arena_free(self->arena);
  Py_CLEAR(self->info);
  py_free_object((PyObject *)self);
}

PyObject *py_batch_arrays(const FeatBatch *b) {
  npy_intp n = b->n_states;
  PyObject *part[] = {py_array_copy(NPY_FLOAT32, b->rows, 2, b->first[n], b->n_feat),
                      py_array_copy(NPY_INT32, b->first, 1, n + 1, 0), py_array_copy(NPY_INT32, b->task, 1, n, 0),
                      py_array_copy(NPY_FLOAT64, b->cost, 1, n, 0)};
  return Py_BuildValue("NNNN", part[0], part[1], part[2], part[3]);
}

static PyTypeObject *PyForest_Type;
const Forest *py_forest(PyObject *o) {
  if (PyObject_TypeCheck(o, PyForest_Type)) return ((PyTrained *)o)->forest;
  PyErr_Format(PyExc_TypeError, "forest: expected a Forest, got %s", PY_TYPE_NAME(o));
  return NULL;
}

/* A forest whose trees were grown elsewhere. */
typedef struct {
  PyTrained *self;
  const int32_t *root, *entry, *left;
  const float *value;
  int n_trees, n_nodes, n_feat;
  double scale;
} Nodes;
static void do_nodes(void *arg) {
  Nodes *x = arg;
  Arena *a = x->self->arena;
  Forest *f = x->self->forest = arena_new_of(a, Forest);
  *f = (Forest){.n_trees = x->n_trees, .n_nodes = x->n_nodes, .n_feat = x->n_feat, .rules = FEAT_RULES_REPAIRED};
  f->scale = x->scale;
  f->root = arena_copy(a, x->root, sizeof *f->root * (size_t)x->n_trees);
  f->node = arena_array(a, TreeNode, x->n_nodes + 1);
  for (int i = 0; i < x->n_nodes; i++) f->node[i] = (TreeNode){x->entry[i], x->value[i], x->left[i]};
  err_check(arena_err(a), forest_sound(f), "the trees are not well-formed: a child must lie behind its parent");
}
static PyObject *forest_from_nodes(PyObject *type, PyObject *args) {
  PyObject *o[4];
  Nodes x = {0};
  if (!PyArg_ParseTuple(args, "OOOOi|d", &o[0], &o[1], &o[2], &o[3], &x.n_feat, &x.scale)) return NULL;
  static const char *const names[] = {"root", "entry", "value", "left"};
  PyArrayObject *a[4] = {0};
  for (int i = 0; i < 4; i++)
    if (!(a[i] = py_array_from(o[i], i == 2 ? NPY_FLOAT32 : NPY_INT32, 1, names[i]))) goto done;
  npy_intp n = PyArray_DIM(a[1], 0);
  if (PyArray_DIM(a[2], 0) != n || PyArray_DIM(a[3], 0) != n) {
    PyErr_SetString(PyExc_ValueError, "entry, value and left differ in length");
    goto done;
  }
  x.n_trees = (int)PyArray_DIM(a[0], 0), x.n_nodes = (int)n;
  x.root = PyArray_DATA(a[0]), x.entry = PyArray_DATA(a[1]), x.value = PyArray_DATA(a[2]), x.left = PyArray_DATA(a[3]);
  x.self = trained_empty((PyTypeObject *)type);
  if (x.self && !py_free_ok(&x.self->err, do_nodes, &x)) Py_CLEAR(x.self);
done:
  for (int i = 0; i < 4; i++) Py_XDECREF((PyObject *)a[i]);
  return (PyObject *)x.self;
}

#define TRAINED_METHODS                                                                                                \
  {"score", (PyCFunction)trained_score, METH_VARARGS,                                                                  \
   "score(rows, first) -> float64 [states]; -inf for a state without rows"},                                           \
      {"save", (PyCFunction)trained_save, METH_VARARGS,                                                                \
       "save(path, info='{}', base=False); info is stored as it is; base: a forest that learners start from"},         \
  {                                                                                                                    \
    "load", (PyCFunction)trained_load, METH_CLASS | METH_VARARGS, "load(path): a model of this class"                  \
  }
static PyMethodDef FOREST_METHODS[] = {
    {"train", (PyCFunction)(void (*)(void))forest_train_py, METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     "train(rows, first, task, cost, trees=200, depth=6, eta=0.1, loss='top', seed=0, threads=1, rules=2, states=1, "
     "entries=1, prior=False, start=None) -> Forest; prior: start from the estimates in the rows; start: from these "
     "scores, which the trees alone do not contain"},
    {"train_template", (PyCFunction)(void (*)(void))forest_train_template_py, METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     "train_template(rows, cost, loss='order', recall=64, patience=20, trees=8000, cut=0, start=None, seed=0, "
     "threads=1): "
     "exact trees of depth 3 for the candidates of one task, one row each. loss: 'order' or 'squared'. Ends when the "
     "average recall of the best `recall` has not grown for `patience` trees; cut: it knows only good and bad labels."},
    {"from_nodes", forest_from_nodes, METH_CLASS | METH_VARARGS,
     "from_nodes(root, entry, value, left, n_feat, scale=0): trees grown elsewhere. entry -1: a leaf, value its "
     "output; else rows with more than value in that entry go to left + 1."},
    TRAINED_METHODS,
    {NULL, NULL, 0, NULL}};
static PyMethodDef NETWORK_METHODS[] = {{"train", (PyCFunction)(void (*)(void))network_train_py,
                                         METH_CLASS | METH_VARARGS | METH_KEYWORDS,
                                         "train(rows, first, task, cost, hidden=128, steps=600, rate=1.5e-3, "
                                         "loss='top', seed=0, threads=1, start=None, rules=2) "
                                         "-> Network; start: go on from it, by default 60 steps at 5e-4"},
                                        TRAINED_METHODS,
                                        {NULL, NULL, 0, NULL}};
static PyGetSetDef FOREST_GETSET[] = {{"info", (getter)trained_info, NULL, "text stored with the model", NULL},
                                      {"rules", (getter)trained_rules, NULL, "rule set of its rows", NULL},
                                      {"n_trees", (getter)forest_get_trees, NULL, "number of trees", NULL},
                                      {NULL, NULL, NULL, NULL, NULL}};
static PyGetSetDef NETWORK_GETSET[] = {{"info", (getter)trained_info, NULL, "text stored with the model", NULL},
                                       {"rules", (getter)trained_rules, NULL, "rule set of its rows", NULL},
                                       {NULL, NULL, NULL, NULL, NULL}};

/* ---- metrics ---- */
typedef struct {
  PyScratch s;
  const FeatBatch *b;
  const double *score;
  ModelMetrics m;
} MetricCall;
ERR_BODY(do_metrics, MetricCall *c, c->m = model_metrics(c->s.a, c->b, c->score))

static PyObject *metrics_py(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *rows, *first, *task, *cost, *score;
  if (!PyArg_ParseTuple(args, "OOOOO", &rows, &first, &task, &cost, &score)) return NULL;
  Batch x;
  if (!batch_from(&x, rows, first, task, cost)) return NULL;
  PyArrayObject *s = py_array_from(score, NPY_FLOAT64, 1, "score");
  PyObject *out = NULL;
  if (s && PyArray_DIM(s, 0) == x.b.n_states) {
    MetricCall c = {.b = &x.b, .score = PyArray_DATA(s)};
    if (py_scratch_free(&c.s, do_metrics, &c))
      out = Py_BuildValue("{s:d,s:d,s:d,s:d,s:d}", "pairwise", c.m.pairwise, "top1", c.m.top1, "top5", c.m.top5,
                          "a_peak32", c.m.a_peak32, "recall30", c.m.recall30);
    py_arena_free(c.s.a);
  } else if (s)
    PyErr_SetString(PyExc_ValueError, "score: must have one element per state");
  Py_XDECREF((PyObject *)s);
  batch_drop(&x);
  return out;
}

typedef struct {
  PyScratch s;
  PyArrayObject *label, *score;
  int top;
  double cut, out;
} RecallCall;
ERR_BODY(do_recall, RecallCall *c,
         c->out = average_recall(c->s.a, (int32_t)PyArray_DIM(c->label, 0), PyArray_DATA(c->label),
                                 PyArray_DATA(c->score), c->top, c->cut))
static PyObject *recall_py(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *label, *score, *out = NULL;
  RecallCall c = {0};
  if (!PyArg_ParseTuple(args, "OOid", &label, &score, &c.top, &c.cut)) return NULL;
  if (c.top < 1) return PyErr_Format(PyExc_ValueError, "top is %d; it must be at least 1", c.top);
  if ((c.label = py_array_from(label, NPY_FLOAT64, 1, "label")) &&
      (c.score = py_array_from(score, NPY_FLOAT64, 1, "score"))) {
    if (PyArray_DIM(c.label, 0) != PyArray_DIM(c.score, 0))
      PyErr_SetString(PyExc_ValueError, "label and score differ in length");
    else if (py_scratch_run(&c.s, do_recall, &c))
      out = PyFloat_FromDouble(c.out);
  }
  arena_free(c.s.a);
  PY_DROP(c.label, c.score);
  return out;
}

/* ---- features ---- */
typedef struct {
  PyCopy copy;
  Target t;
  int rules, log, check;
  Features f;
} FeatCall;
static void do_features(void *arg) {
  FeatCall *k = arg;
  State *s = k->copy.s;
  if (!s->bounded) state_infer_bounds(s);
  k->f = feat_of_state(s, &k->t, (FeatRules)k->rules, k->log, k->check);
}

static int to_rules(PyObject *o, void *out) {
  int rules;
  if (!py_value(FIELD_I32, o, &rules)) return 0;
  if (rules == FEAT_RULES_REFERENCE || rules == FEAT_RULES_REPAIRED) return *(int *)out = rules, 1;
  return PyErr_Format(PyExc_ValueError, "rules=%d is unknown; use 1 (reference) or 2 (repaired)", rules), 0;
}
static PyObject *features_result(const Features *f) {
  PyObject *names = py_tuple(FIELD_TEXT, f->n_rows, f->name);
  return Py_BuildValue("NN", names, py_array_copy(NPY_FLOAT32, f->row, 2, f->n_rows, FEAT_N));
}

static PyObject *features_py(PyObject *Py_UNUSED(m), PyObject *args, PyObject *kw) {
  PyObject *state;
  FeatCall k = {.rules = FEAT_RULES_REPAIRED, .log = 1};
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O!O&|O&pp", PY_NAMES("state", "target", "rules", "log", "check"),
                                   PyState_Type, &state, py_target, &k.t, to_rules, &k.rules, &k.log, &k.check))
    return NULL;
  bool ok = py_copy_take(&k.copy, (PyState *)state) && py_copy_run(&k.copy, py_free, do_features, &k);
  PyObject *r = ok ? features_result(&k.f) : NULL;
  py_copy_drop(&k.copy);
  return r;
}

/* Many states, on several threads; a state that cannot be lowered has no rows. So many are copied at a time, lest the
 * interpreter lock is held for long or many contexts are there at once. */
enum { TOGETHER = 32 };
typedef struct {
  float *rows; /* malloc'ed */
  int32_t n;
} StateRows;
typedef struct {
  FeatCall call[TOGETHER];
  StateRows *out; /* of call[0] */
  Err err;
  int threads;
  Pool *pool;
} StateBatch;
typedef struct {
  FeatCall *call;
  StateRows *out;
} OneState;
static void do_one_state(void *arg) {
  OneState *o = arg;
  do_features(o->call);
  const Features *f = &o->call->f;
  if (f->n_rows == 0) return;
  o->out->rows = mem_alloc(&o->call->copy.own.err, sizeof *f->row * (size_t)f->n_rows);
  memcpy(o->out->rows, f->row, sizeof *f->row * (size_t)f->n_rows);
  o->out->n = f->n_rows;
}
static void state_job(void *arg, int Py_UNUSED(worker), int64_t i) {
  StateBatch *b = arg;
  OneState o = {&b->call[i], &b->out[i]};
  err_try(&o.call->copy.own.err, do_one_state, &o);
  py_copy_drop(&o.call->copy);
}
ERR_BODY(do_pool, StateBatch *b, b->pool = pool_new(b->threads, &b->err))

/* Up to TOGETHER states of a tuple; false with the exception set. */
static bool some_states(StateBatch *b, const FeatCall *all, PyObject *states, int64_t from, int64_t n) {
  int64_t taken = 0;
  bool ok = true;
  for (; ok && taken < n; taken++) {
    b->call[taken] = *all;
    ok = py_copy_take(&b->call[taken].copy, (PyState *)PyTuple_GetItem(states, from + taken));
  }
  Py_BEGIN_ALLOW_THREADS;
  if (ok && b->pool) pool_run(b->pool, n, state_job, b);
  for (int64_t i = 0; i < taken && !(ok && b->pool); i++)
    if (ok)
      state_job(b, 0, i);
    else
      py_copy_drop(&b->call[i].copy);
  Py_END_ALLOW_THREADS;
  return ok;
}

static PyObject *batch_result(const StateRows *at, npy_intp n) {
  npy_intp dim[2] = {0, FEAT_N}, n1 = n + 1;
  for (npy_intp i = 0; i < n; i++) dim[0] += at[i].n;
  PyObject *rows = PyArray_SimpleNew(2, dim, NPY_FLOAT32), *first = PyArray_SimpleNew(1, &n1, NPY_INT32);
  if (!rows || !first) return PY_DROP(rows, first), NULL;
  float *to = PyArray_DATA((PyArrayObject *)rows);
  int32_t *f = PyArray_DATA((PyArrayObject *)first);
  Py_BEGIN_ALLOW_THREADS; /* nobody else has the arrays yet */
  f[0] = 0;
  for (npy_intp i = 0; i < n; i++) {
    if (at[i].n) memcpy(to + (size_t)f[i] * FEAT_N, at[i].rows, sizeof(float) * FEAT_N * (size_t)at[i].n);
    f[i + 1] = f[i] + at[i].n;
  }
  Py_END_ALLOW_THREADS;
  return Py_BuildValue("NN", rows, first);
}

/* The rows of all items of a tuple, which are States. */
static PyObject *batch_of(StateBatch *b, const FeatCall *all, PyObject *states) {
  Py_ssize_t n = PyTuple_Size(states);
  StateRows *rows = py_calloc(n + 1, sizeof *rows);
  bool ok = rows != NULL;
  err_init(&b->err);
  if (b->threads < 2 || err_try(&b->err, do_pool, b) != NS_OK) b->pool = NULL;
  for (Py_ssize_t i = 0; ok && i < n; i += TOGETHER) {
    b->out = rows + i;
    ok = some_states(b, all, states, i, n - i < TOGETHER ? n - i : TOGETHER);
  }
  pool_free(b->pool);
  PyObject *out = ok ? batch_result(rows, n) : NULL;
  for (Py_ssize_t i = 0; rows && i < n; i++) free(rows[i].rows);
  PyMem_Free(rows);
  return out;
}

static PyObject *feature_batch_py(PyObject *Py_UNUSED(m), PyObject *args, PyObject *kw) {
  PyObject *list, *out = NULL;
  FeatCall all = {.rules = FEAT_RULES_REPAIRED, .log = 1, .check = 1};
  int threads = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "OO&|O&ppi",
                                   PY_NAMES("states", "target", "rules", "log", "check", "threads"), &list, py_target,
                                   &all.t, to_rules, &all.rules, &all.log, &all.check, &threads))
    return NULL;
  PyObject *states = PySequence_Tuple(list); /* owns its items while the lock is released */
  if (!states) return NULL;
  bool ok = true;
  for (Py_ssize_t i = 0; ok && i < PyTuple_Size(states); i++) {
    PyObject *s = PyTuple_GetItem(states, i);
    ok = PyObject_TypeCheck(s, PyState_Type);
    if (!ok) PyErr_Format(PyExc_TypeError, "states[%zd]: expected a State, got %s", i, PY_TYPE_NAME(s));
  }
  StateBatch *b = ok ? py_calloc(1, sizeof *b) : NULL;
  if (b) {
    b->threads = threads;
    out = batch_of(b, &all, states);
    PyMem_Free(b);
  }
  Py_DECREF(states);
  return out;
}

static PyObject *product_library_py(PyObject *Py_UNUSED(m), PyObject *Py_UNUSED(none)) {
  const char *name = product_library();
  return name ? py_text(name) : Py_NewRef(Py_None);
}

static PyMethodDef FUNCTIONS[] = {
    {"features", PY_KEYWORDS(features_py),
     "features(state, target, rules=2, log=True, check=False) -> (names, float32 [rows, "
     "164]); check: no rows if a GPU limit is broken"},
    {"feature_batch", PY_KEYWORDS(feature_batch_py),
     "feature_batch(states, target, rules=2, log=True, check=True, threads=1) -> "
     "(float32 [rows, 164], int32 first [states + 1])"},
    {"model_metrics", metrics_py, METH_VARARGS,
     "model_metrics(rows, first, task, cost, score) -> dict; means over tasks"},
    {"average_recall", recall_py, METH_VARARGS,
     "average_recall(label, score, top, cut): how many of the best are found early, 0 to 1; "
     "cut > 0: labels count as good from there on"},
    {"product_library", product_library_py, METH_NOARGS,
     "file name of the BLAS that trains networks; None: plain C does"},
    {NULL, NULL, 0, NULL}};

static const PyClass CLASSES[] = {
    PY_CLASS("Forest", sizeof(PyTrained), .type = &PyForest_Type, .drop = (destructor)trained_dealloc,
             .methods = FOREST_METHODS, .get = FOREST_GETSET,
             .doc = "Boosted trees whose outputs are summed over the rows of a state."),
    PY_CLASS("Network", sizeof(PyTrained), .type = &PyNetwork_Type, .drop = (destructor)trained_dealloc,
             .methods = NETWORK_METHODS, .get = NETWORK_GETSET,
             .doc = "A network per row, a sum over the rows of a state, and a head.")};

int py_init_model(PyObject *m) {
  import_array1(-1);
  return py_add(m, NS_COUNT(CLASSES), CLASSES, FUNCTIONS);
}
