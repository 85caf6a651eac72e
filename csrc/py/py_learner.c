/* Binding of the learned scorer: _core.Learner. A task of it is made from a Policy, whose engine-side task it uses. */
#include "py/py_fields.h"
#include "py/py.h"
#include "py/py_search.h"
#include <math.h>
#include <string.h>

typedef struct {
  LearnerTask task;
  Scorer scorer;
} Slot;
typedef struct {
  PyObject_HEAD Err err;
  int busy;    /* training and files go on without the interpreter lock: nothing else may use the learner meanwhile */
  int readers; /* and so does scoring: nothing may change it meanwhile */
  atomic_int stop;
  CostModel *model;
  PyObject *keep; /* the engine-side tasks in use, as capsules */
  Slot **slot;
  int n_slot, cap;
} PyLearner;

typedef struct {
  PyLearner *p;
  uint64_t seed;
  ModelKind kind;
} New;
static void do_new(void *arg) {
  New *x = arg;
  x->p->model = cost_new(&x->p->err, x->seed, NULL);
  cost_use(x->p->model, x->kind);
}

static PyObject *learner_create(PyTypeObject *type, PyObject *args, PyObject *kw) {
  const char *kind = "trees";
  unsigned long long seed = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "|Ks", PY_NAMES("seed", "kind"), &seed, &kind)) return NULL;
  static const char *const WORD[] = {"trees", "mlp", "trees+mlp", NULL};
  static const ModelKind KIND[] = {MODEL_TREES, MODEL_NETWORK, MODEL_BLEND};
  int k;
  if (!py_word("kind", kind, WORD, &k)) return NULL;
  PyLearner *p = (PyLearner *)PyType_GenericAlloc(type, 0);
  if (!p) return NULL;
  err_init(&p->err);
  New x = {.p = p, .seed = seed, .kind = KIND[k]};
  p->keep = PyList_New(0);
  if (!p->keep || !py_try(&p->err, do_new, &x)) Py_CLEAR(p);
  return (PyObject *)p;
}
static void learner_drop(PyObject *o) {
  PyLearner *p = (PyLearner *)o;
  PY_UNLOCKED(cost_free(p->model));
  for (int i = 0; i < p->n_slot; i++) PyMem_Free(p->slot[i]);
  PyMem_Free(p->slot);
  Py_CLEAR(p->keep);
  py_free_object(o);
}

static bool readable(const PyLearner *p) {
  if (p->busy) PyErr_SetString(PyExc_RuntimeError, "the learner is training in another thread");
  return !p->busy;
}
static bool idle(const PyLearner *p) {
  if (!readable(p)) return false;
  if (p->readers) PyErr_SetString(PyExc_RuntimeError, "the learner is scoring in another thread");
  return !p->readers;
}

static const SearchTask *task_in(PyObject *box) { return PyCapsule_GetPointer(box, "nestsmith.SearchTask"); }
static const Target *target_of(const PyLearner *p, int i) { return task_target(task_in(PyList_GetItem(p->keep, i))); }

static PyObject *m_task(PyObject *o, PyObject *policy) {
  PyLearner *p = (PyLearner *)o;
  PyObject *box = py_policy_task(policy);
  if (!box || !idle(p)) return NULL;
  if (p->n_slot == p->cap) {
    int cap = p->cap ? 2 * p->cap : 16;
    Slot **more = PyMem_Realloc(p->slot, sizeof *more * (size_t)cap);
    if (!more) return PyErr_NoMemory();
    p->slot = more, p->cap = cap;
  }
  Slot *s = PyMem_Calloc(1, sizeof *s);
  if (!s) return PyErr_NoMemory();
  if (PyList_Append(p->keep, box) < 0) return PyMem_Free(s), NULL;
  *s = (Slot){{p->model, p->n_slot}, learner_scorer(&s->task)};
  p->slot[p->n_slot] = s;
  return PyLong_FromLong(p->n_slot++);
}

static Slot *slot_of(PyLearner *p, int i) {
  if (i >= 0 && i < p->n_slot) return p->slot[i];
  PyErr_Format(PyExc_IndexError, "task %d: the learner has %d tasks", i, p->n_slot);
  return NULL;
}

/* The capsule keeps the learner: whoever holds it may score. */
static void scorer_drop(PyObject *capsule) { Py_XDECREF(PyCapsule_GetContext(capsule)); }
static PyObject *m_scorer(PyObject *o, PyObject *args) {
  int i;
  if (!PyArg_ParseTuple(args, "i", &i)) return NULL;
  Slot *s = slot_of((PyLearner *)o, i);
  PyObject *c = s ? PyCapsule_New(&s->scorer, "nestsmith.Scorer", scorer_drop) : NULL;
  if (c && PyCapsule_SetContext(c, o) == 0) Py_INCREF(o);
  return c;
}

typedef struct {
  const LearnerTask *t;
  const Traits *traits;
  double seconds;
} Add;
ERR_BODY(do_add, Add *x, cost_add(x->t->model, x->t->number, &x->traits->f, x->traits->state, x->seconds))
static PyObject *m_add(PyObject *o, PyObject *args) {
  PyLearner *p = (PyLearner *)o;
  PyObject *so;
  int i;
  Add x;
  if (!PyArg_ParseTuple(args, "iOd", &i, &so, &x.seconds)) return NULL;
  Slot *s = slot_of(p, i);
  if (!s || !idle(p)) return NULL;
  Candidate *own;
  const Candidate *c = py_candidate_of(so, task_in(PyList_GetItem(p->keep, i)), WANT_TRAITS, &own);
  x.t = &s->task;
  bool ok = c && idle(p);                                             /* the lock was released meanwhile */
  if (ok && (x.traits = c->traits)) ok = py_try(&p->err, do_add, &x); /* what cannot be lowered teaches nothing */
  cand_free(own);
  return py_none(ok);
}

typedef struct {
  PyLearner *p;
  Pool *pool;
  int threads;
  bool trained;
} Train;
static void do_train(void *arg) {
  Train *x = arg;
  if (x->threads > 1) x->pool = pool_new(x->threads, &x->p->err);
  if ((x->trained = cost_due(x->p->model))) cost_train(x->p->model, x->pool);
}
static PyObject *m_train(PyObject *o, PyObject *args) {
  Train x = {.p = (PyLearner *)o, .threads = 1};
  if (!PyArg_ParseTuple(args, "|i", &x.threads)) return NULL;
  if (!idle(x.p)) return NULL;
  x.p->busy = 1;
  x.p->stop = 0;
  x.p->err.interrupt = &x.p->stop;
  bool ok = py_run_ok(&x.p->err, do_train, &x);
  x.p->err.interrupt = NULL;
  pool_free(x.pool);
  x.p->busy = 0;
  return ok ? PyBool_FromLong(x.trained) : NULL;
}
static PyObject *m_cancel(PyObject *o, PyObject *Py_UNUSED(u)) {
  ((PyLearner *)o)->stop = 1;
  Py_RETURN_NONE;
}

/* One state, looked at in a copy: its score, and what its stages contribute. */
typedef struct {
  PyCopy copy;
  Slot *slot;
  const Target *t;
  double score, *stage;
  bool ok;
} Score;
ERR_BODY(do_score, Score *x, x->score = scorer_one(&x->slot->scorer, x->t, x->copy.s))
static void do_stages(void *arg) {
  Score *x = arg;
  x->stage = arena_array(ir_arena(x->copy.own.ctx), double, x->copy.s->stage.len + 1);
  x->ok = learner_stages(&x->slot->task, x->t, x->copy.s, x->stage);
}
/* args: task number, state. The copy is to be dropped in any case; false with the exception set. */
static bool score_by(PyObject *o, PyObject *args, ErrBody body, Score *x) {
  PyLearner *p = (PyLearner *)o;
  PyObject *so;
  int i;
  if (!PyArg_ParseTuple(args, "iO!", &i, PyState_Type, &so)) return false;
  if (!(x->slot = slot_of(p, i)) || !readable(p)) return false;
  if (!((PyState *)so)->state->bounded)
    return PyErr_SetString(PyExc_ValueError, "state: infer its bounds first"), false;
  if (!py_copy_take(&x->copy, (PyState *)so)) return false;
  x->t = target_of(p, i);
  p->readers++;
  bool ok = py_copy_run(&x->copy, py_free, body, x);
  p->readers--;
  return ok;
}
static PyObject *m_score(PyObject *o, PyObject *args) {
  Score x = {.score = -INFINITY};
  bool ok = score_by(o, args, do_score, &x);
  py_copy_drop(&x.copy);
  return ok ? PyFloat_FromDouble(x.score) : NULL;
}
static PyObject *m_stages(PyObject *o, PyObject *args) {
  Score x = {.ok = false};
  bool ok = score_by(o, args, do_stages, &x);
  if (ok && !x.ok) PyErr_SetString(PyExc_NotImplementedError, "only trees have scores of stages");
  PyObject *t = ok && x.ok ? py_tuple(FIELD_DOUBLE, x.copy.s->stage.len + 1, x.stage) : NULL;
  py_copy_drop(&x.copy);
  return t;
}

typedef struct {
  PyLearner *p;
  const char *path, *json;
} File;
ERR_BODY(do_save, File *x, cost_save(x->p->model, x->path, x->json))
/* Nothing else may use the learner meanwhile. */
static bool alone(PyLearner *p, ErrBody body, void *arg) {
  if (!idle(p)) return false;
  p->busy = 1;
  bool ok = py_run_ok(&p->err, body, arg);
  p->busy = 0;
  return ok;
}
/* Takes the path over. Converting it may have run Python code, and other threads meanwhile: so idle() is asked only here. */
static PyObject *with_path(File *x, PyObject *path, ErrBody body) {
  x->path = PyBytes_AsString(path);
  bool ok = alone(x->p, body, x);
  Py_DECREF(path);
  return py_none(ok);
}
static PyObject *m_save(PyObject *o, PyObject *args) {
  File x = {.p = (PyLearner *)o};
  PyObject *path;
  if (!PyArg_ParseTuple(args, "O&s", PyUnicode_FSConverter, &path, &x.json)) return NULL;
  return with_path(&x, path, do_save);
}
ERR_BODY(do_load, File *x, cost_load(x->p->model, x->path))
static PyObject *m_load(PyObject *o, PyObject *args) {
  File x = {.p = (PyLearner *)o};
  PyObject *path;
  if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) return NULL;
  return with_path(&x, path, do_load);
}
static PyObject *m_batch(PyObject *o, PyObject *Py_UNUSED(u)) {
  PyLearner *p = (PyLearner *)o;
  if (!readable(p)) return NULL;
  FeatBatch b = cost_batch(p->model);
  p->readers++; /* copied without the lock */
  PyObject *r = py_batch_arrays(&b);
  p->readers--;
  return r;
}
typedef struct {
  PyLearner *p;
  const Forest *f;
} Adopt;
ERR_BODY(do_adopt, Adopt *x, cost_adopt(x->p->model, x->f))
static PyObject *m_adopt(PyObject *o, PyObject *forest) {
  Adopt x = {(PyLearner *)o, py_forest(forest)};
  if (!x.f || !idle(x.p)) return NULL;
  if (x.f->n_feat != ROW_N)
    return PyErr_Format(PyExc_ValueError, "forest: its rows have %d entries, the learner's %d", x.f->n_feat, ROW_N);
  return py_none(alone(x.p, do_adopt, &x));
}
static PyObject *m_dropped(PyObject *o, PyObject *Py_UNUSED(u)) {
  PyLearner *p = (PyLearner *)o;
  PyObject *l = readable(p) ? PyList_New(p->n_slot) : NULL;
  for (int i = 0; l && i < p->n_slot; i++) PyList_SetItem(l, i, PyBool_FromLong(cost_dropped(p->model, i)));
  return l;
}
static PyObject *m_records(PyObject *o, PyObject *Py_UNUSED(u)) {
  return PyLong_FromLong(cost_records(((PyLearner *)o)->model));
}
static PyObject *m_ready(PyObject *o, PyObject *Py_UNUSED(u)) {
  return PyBool_FromLong(cost_ready(((PyLearner *)o)->model));
}

/* ---- the scorer of the random model ---- */
typedef struct {
  Scorer scorer;
  uint64_t seed;
} Chance;
static void chance_drop(PyObject *o) { PyMem_Free(PyCapsule_GetPointer(o, "nestsmith.Scorer")); }
static PyObject *f_random_scorer(PyObject *Py_UNUSED(m), PyObject *args) {
  unsigned long long seed;
  if (!PyArg_ParseTuple(args, "K", &seed)) return NULL;
  Chance *c = PyMem_Calloc(1, sizeof *c);
  if (!c) return PyErr_NoMemory();
  c->seed = seed;
  c->scorer = (Scorer){.score = random_score, .self = &c->seed};
  PyObject *o = PyCapsule_New(&c->scorer, "nestsmith.Scorer", chance_drop);
  if (!o) PyMem_Free(c);
  return o;
}
static PyMethodDef FUNCTIONS[] = {
    {"random_scorer", f_random_scorer, METH_VARARGS, "random_scorer(seed): capsule for Policy.set_scorer."},
    {NULL, NULL, 0, NULL}};

static PyMethodDef METHODS[] = {
    {"task", m_task, METH_O, "task(policy): number of a new task: that of the policy, which need not stay alive."},
    {"scorer", m_scorer, METH_VARARGS, "scorer(task): capsule for Policy.set_scorer; it keeps the learner alive."},
    {"add", m_add, METH_VARARGS,
     "add(task, state, seconds): a measurement; 1e10 for a failed one. state: also steps as text."},
    {"train", m_train, METH_VARARGS,
     "train(threads=1): trains if that is due; True if it did. No search may run meanwhile."},
    {"cancel", m_cancel, METH_NOARGS, "cancel(): a running training in another thread ends with KeyboardInterrupt."},
    {"score", m_score, METH_VARARGS, "score(task, state): score of a bounded state."},
    {"stages", m_stages, METH_VARARGS,
     "stages(task, state): what each stage adds to the raw score of trees, then what belongs to none."},
    {"save", m_save, METH_VARARGS, "save(path, json): writes the trained forest."},
    {"load", m_load, METH_VARARGS, "load(path): uses a saved model until the next training; a base stays."},
    {"batch", m_batch, METH_NOARGS,
     "batch(): (rows, first, task, cost) of all measurements, as Forest.train takes them."},
    {"adopt", m_adopt, METH_O, "adopt(forest): uses a forest that was trained elsewhere until the next training."},
    {"dropped", m_dropped, METH_NOARGS, "dropped(): per task, whether its measurements contradicted the loaded base."},
    {"records", m_records, METH_NOARGS, "records(): measurements added."},
    {"ready", m_ready, METH_NOARGS, "ready(): trained or loaded."},
    {NULL, NULL, 0, NULL}};

static const PyClass CLASSES[] = {
    PY_CLASS("Learner", sizeof(PyLearner), .create = learner_create, .drop = learner_drop, .methods = METHODS,
             .doc = "Learner(seed=1): the cost model of a session, shared by its tasks.")};

int py_init_learner(PyObject *m) { return py_add(m, NS_COUNT(CLASSES), CLASSES, FUNCTIONS); }
