/* Bindings of the optimisers over spaces. Indices are int64 arrays, scores float64 arrays. The interpreter lock is kept: the
 * space is the caller's, and all time but some microseconds per round goes into the model, which is Python's. */
#include "py/py_template.h"
#include "template/optimise.h"
#include "py/py_array.h"
#include <string.h>

static const int64_t *indices(const PyArrayObject *a) { return PyArray_DATA(a); }
static const double *scores(const PyArrayObject *a) { return PyArray_DATA(a); }
static int length(const PyArrayObject *a) { return (int)PyArray_DIM(a, 0); }

/* Index arrays that are within the space. */
static PyArrayObject *indices_of(const PySpace *p, PyObject *o, const char *name) {
  PyArrayObject *a = py_array_from(o, NPY_INT64, 1, name);
  for (int i = 0; a && i < length(a); i++)
    if (indices(a)[i] < 0 || indices(a)[i] >= p->space->range) {
      PyErr_Format(PyExc_IndexError, "%s: the space has no index %lld", name, (long long)indices(a)[i]);
      Py_CLEAR(a);
    }
  return a;
}
static PyObject *indices_new(npy_intp n, const int64_t *from) { return py_array_copy(NPY_INT64, from, 1, n, 0); }

static PyObject *f_features(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *space, *list;
  if (!PyArg_ParseTuple(args, "OO", &space, &list)) return NULL;
  PySpace *p = py_space(space);
  PyArrayObject *at = p ? indices_of(p, list, "indices") : NULL;
  if (!at) return NULL;
  npy_intp dim[2] = {length(at), space_features(p->space)};
  PyObject *out = PyArray_SimpleNew(2, dim, NPY_FLOAT32);
  float *to = out ? PyArray_DATA((PyArrayObject *)out) : NULL;
  for (npy_intp i = 0; out && i < dim[0]; i++) space_feature(p->space, indices(at)[i], to + i * dim[1]);
  Py_DECREF(at);
  return out;
}

/* ---- a shuffle that goes on ---- */
typedef struct {
  PyObject_HEAD PySpace *p;
  Arena *a;
  Draw draw;
  Rng rng;
  int64_t begin, end, next;
} PyShuffle;
static void do_shuffle(void *arg) {
  PyShuffle *x = arg;
  x->a = arena_new(&x->p->err);
  draw_init(&x->draw, x->a, x->p->space, x->begin, x->end);
}
static PyObject *shuffle_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
  PyObject *space;
  long long begin, end;
  unsigned long long seed;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "OLLK", PY_NAMES("space", "begin", "end", "seed"), &space, &begin, &end,
                                   &seed))
    return NULL;
  PySpace *p = py_space(space);
  if (!p) return NULL;
  if (begin < 0 || end > p->space->range)
    return PyErr_Format(PyExc_IndexError, "range (%lld, %lld) is not within (0, %lld)", begin, end,
                        (long long)p->space->range);
  PyShuffle *x = (PyShuffle *)PyType_GenericAlloc(type, 0);
  if (!x) return NULL;
  x->p = (PySpace *)Py_NewRef(space);
  x->begin = begin, x->end = end;
  rng_seed(&x->rng, seed);
  if (!py_space_try(p, do_shuffle, x)) Py_CLEAR(x);
  return (PyObject *)x;
}
static void shuffle_drop(PyObject *o) {
  arena_free(((PyShuffle *)o)->a); /* its errors go to the space */
  Py_CLEAR(((PyShuffle *)o)->p);
  py_free_object(o);
}
ERR_BODY(do_next, PyShuffle *x, x->next = draw_next(&x->draw, &x->rng))
static PyObject *shuffle_next(PyObject *o) {
  PyShuffle *x = (PyShuffle *)o;
  return py_space_try(x->p, do_next, x) && x->next >= 0 ? PyLong_FromLongLong(x->next) : NULL;
}

/* ---- generations ---- */
typedef struct {
  PySpace *p;
  Arena *a;
  PyArrayObject *parent, *score, *visited;
  int children;
  double mutation;
  Rng rng;
  IndexVec out;
} Genetic;
static void do_genetic(void *arg) {
  Genetic *x = arg;
  x->a = arena_new(&x->p->err);
  int n = length(x->parent);
  Scored *parent = arena_array(x->a, Scored, n + 1);
  for (int i = 0; i < n; i++) parent[i] = (Scored){indices(x->parent)[i], scores(x->score)[i]};
  MapU64 visited;
  mapu_init(&visited, x->a);
  for (int i = 0; i < length(x->visited); i++) index_add(&visited, indices(x->visited)[i]);
  genetic_next(x->p->space, x->a, &x->rng, n, parent, x->children, x->mutation, &visited, &x->out);
}
static PyObject *f_genetic(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *space, *parent, *score, *visited, *out = NULL;
  unsigned long long seed;
  Genetic x = {0};
  if (!PyArg_ParseTuple(args, "OOOidOK", &space, &parent, &score, &x.children, &x.mutation, &visited, &seed))
    return NULL;
  rng_seed(&x.rng, seed);
  if ((x.p = py_space(space)) && (x.parent = indices_of(x.p, parent, "parents")) &&
      (x.score = py_array_from(score, NPY_FLOAT64, 1, "scores")) && (x.visited = indices_of(x.p, visited, "visited"))) {
    if (length(x.parent) != length(x.score))
      PyErr_SetString(PyExc_ValueError, "parents and scores differ in length");
    else if (py_space_try(x.p, do_genetic, &x))
      out = indices_new(x.out.len, x.out.at);
  }
  arena_free(x.a);
  PY_DROP(x.parent, x.score, x.visited);
  return out;
}

/* ---- annealing ---- */
typedef struct {
  PySpace *p;
  Arena *a;
  PyObject *predict;
  PyArrayObject *start, *exclude;
  AnnealParams how;
  Rng rng;
  int most, n_best;
  int64_t *point, *best;
} Anneal;
static bool read_scores(PyObject *r, int n, double *score) {
  PyArrayObject *s = r ? py_array_from(r, NPY_FLOAT64, 1, "scores of the model") : NULL;
  bool ok = s && length(s) == n;
  if (s && !ok) PyErr_Format(PyExc_ValueError, "the model gave %d scores for %d configurations", length(s), n);
  if (ok) memcpy(score, scores(s), sizeof *score * (size_t)n);
  Py_XDECREF((PyObject *)s);
  return ok;
}
static void predict(void *self, Err *e, int n, const int64_t *index, double *score) {
  const Anneal *x = self;
  PyObject *at = indices_new(n, index), *r = at ? py_call1(x->predict, at) : NULL;
  bool ok = read_scores(r, n, score);
  PY_DROP(at, r);
  if (ok) return;
  py_space_failed(x->p);
  err_raise(e, NS_ERR_RUNTIME, "the model failed");
}
static void do_anneal(void *arg) {
  Anneal *x = arg;
  Arena *a = x->a = arena_new(&x->p->err);
  int n = length(x->start);
  x->point = arena_copy(a, indices(x->start), sizeof(int64_t) * (size_t)n);
  MapU64 exclude;
  mapu_init(&exclude, a);
  for (int i = 0; i < length(x->exclude); i++) index_add(&exclude, indices(x->exclude)[i]);
  Scored *best = arena_array(a, Scored, x->most + 1);
  Predictor f = {predict, x};
  x->n_best = anneal(x->p->space, a, &x->rng, &x->how, f, n, x->point, x->most, &exclude, best);
  x->best = arena_array(a, int64_t, x->n_best + 1);
  for (int i = 0; i < x->n_best; i++) x->best[i] = best[i].index;
}
static PyObject *f_anneal(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *space, *start, *exclude, *out = NULL;
  unsigned long long seed;
  Anneal x = {0};
  if (!PyArg_ParseTuple(args, "OOOiOiiddK", &space, &x.predict, &start, &x.most, &exclude, &x.how.rounds,
                        &x.how.early_stop, &x.how.begin, &x.how.end, &seed))
    return NULL;
  if (x.most < 0) return PyErr_Format(PyExc_ValueError, "num is %d; it must be at least 0", x.most);
  rng_seed(&x.rng, seed);
  if ((x.p = py_space(space)) && (x.start = indices_of(x.p, start, "points")) &&
      (x.exclude = indices_of(x.p, exclude, "exclude")) && py_space_try(x.p, do_anneal, &x))
    out = Py_BuildValue("NN", indices_new(x.n_best, x.best), indices_new(length(x.start), x.point));
  arena_free(x.a);
  PY_DROP(x.start, x.exclude);
  return out;
}

/* ---- different ones ---- */
typedef struct {
  PySpace *p;
  Arena *a;
  PyArrayObject *at, *score;
  int most, n;
  int64_t *out;
} Pick;
static void do_pick(void *arg) {
  Pick *x = arg;
  x->a = arena_new(&x->p->err);
  int n = length(x->at);
  Scored *c = arena_array(x->a, Scored, n + 1);
  for (int i = 0; i < n; i++) c[i] = (Scored){indices(x->at)[i], scores(x->score)[i]};
  int32_t *place = arena_array(x->a, int32_t, n + 1);
  x->n = pick_diverse(x->p->space, x->a, n, c, x->most, place);
  x->out = arena_array(x->a, int64_t, x->n + 1);
  for (int i = 0; i < x->n; i++) x->out[i] = place[i];
}
static PyObject *f_pick(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *space, *at, *score, *out = NULL;
  Pick x = {0};
  if (!PyArg_ParseTuple(args, "OOOi", &space, &at, &score, &x.most)) return NULL;
  if ((x.p = py_space(space)) && (x.at = indices_of(x.p, at, "candidates")) &&
      (x.score = py_array_from(score, NPY_FLOAT64, 1, "scores"))) {
    if (length(x.at) != length(x.score))
      PyErr_SetString(PyExc_ValueError, "candidates and scores differ in length");
    else if (py_space_try(x.p, do_pick, &x))
      out = indices_new(x.n, x.out);
  }
  arena_free(x.a);
  PY_DROP(x.at, x.score);
  return out;
}

static PyMethodDef FUNCTIONS[] = {
    {"space_features", f_features, METH_VARARGS,
     "space_features(space, indices): float32 [n, numbers], what models see of the entities."},
    {"genetic_next", f_genetic, METH_VARARGS,
     "genetic_next(space, parents, scores, children, mutation, visited, seed): indices of the next generation."},
    {"anneal", f_anneal, METH_VARARGS,
     "anneal(space, predict, points, num, exclude, rounds, early_stop, begin, end, seed): (indices that "
     "predict(indices) scores best, best first; where the points stand at the end)."},
    {"pick_diverse", f_pick, METH_VARARGS,
     "pick_diverse(space, candidates, scores, n): places of those that together show the most entities."},
    {NULL, NULL, 0, NULL}};

static const PyType_Slot SHUFFLE_SLOTS[] = {{Py_tp_iter, PyObject_SelfIter}, {Py_tp_iternext, shuffle_next}, {0, NULL}};
static const PyClass CLASSES[] = {PY_CLASS(
    "Shuffle", sizeof(PyShuffle), .create = shuffle_new, .drop = shuffle_drop, .more = SHUFFLE_SLOTS,
    .doc = "Shuffle(space, begin, end, seed): iterates over the allowed indices in [begin, end) in random order.")};

int py_init_optimise(PyObject *m) { return py_add(m, NS_COUNT(CLASSES), CLASSES, FUNCTIONS); }
