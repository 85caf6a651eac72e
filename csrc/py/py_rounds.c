/* Binding of a run over several tasks, _core.Rounds, and of what logs hold, _core.TuneLog. What is known of a run is read and
 * written by name, from two tables. */
#include "py/py_fields.h"
#include "py/py_search.h"
#include "tune/tune.h"
#include <string.h>

typedef struct {
  PyObject_HEAD Err err;
  Arena *arena;
  Rounds *r;
  PyObject *chance, *objective; /* a random.Random; of the call that goes on, borrowed */
} PyRounds;

/* Of each task: a list. */
static const PyField COLUMNS[] = {FIELD_AS(TuneTask, "best_costs", best.seconds, FIELD_DOUBLE),
                                  FIELD_AS(TuneTask, "quick", best.quick, FIELD_BOOL),
                                  FIELD_AS(TuneTask, "task_cts", rounds, FIELD_I32),
                                  FIELD_AS(TuneTask, "task_best_cts", best_round, FIELD_I32),
                                  FIELD_AS(TuneTask, "task_trials", trials, FIELD_I64),
                                  FIELD_AS(TuneTask, "groups", group, FIELD_I32),
                                  FIELD_AS(TuneTask, "dead", dead, FIELD_BOOL),
                                  FIELDS_END};
static const PyField OF_RUN[] = {FIELD_AS(Rounds, "ct", trials, FIELD_I64),
                                 FIELD_AS(Rounds, "planned", planned, FIELD_I64),
                                 FIELD_AS(Rounds, "best_ct", best_trial, FIELD_I64),
                                 FIELD_AS(Rounds, "cur_score", score, FIELD_DOUBLE),
                                 FIELD_AS(Rounds, "best_score", best_score, FIELD_DOUBLE),
                                 FIELDS_END};
static const PyField OPTIONS[] = {FIELD_AS(RunOptions, "alpha", alpha, FIELD_DOUBLE),
                                  FIELD_AS(RunOptions, "beta", beta, FIELD_DOUBLE),
                                  FIELD_AS(RunOptions, "window", window, FIELD_I32),
                                  FIELD_AS(RunOptions, "stop_all", stop_all, FIELD_DOUBLE),
                                  FIELD_AS(RunOptions, "stop_task", stop_task, FIELD_DOUBLE),
                                  FIELD_AS(RunOptions, "total", total, FIELD_I64),
                                  {"per_round", FIELD_I32, offsetof(RunOptions, per_round), 1, INT32_MAX, NULL},
                                  FIELD_AS(RunOptions, "round_robin", round_robin, FIELD_BOOL),
                                  FIELD_AS(RunOptions, "ordered", ordered, FIELD_BOOL),
                                  {"devices", FIELD_I32, offsetof(RunOptions, devices), 0, MAX_DEVICES, NULL},
                                  FIELDS_END};

static double call_objective(void *self, int n, const double *seconds) {
  PyRounds *p = self;
  PyObject *list = py_list(FIELD_DOUBLE, n, seconds), *v = list ? py_call1(p->objective, list) : NULL;
  double d = v ? PyFloat_AsDouble(v) : -1;
  PY_DROP(v, list);
  if (PyErr_Occurred()) err_raise(&p->err, NS_ERR_VALUE, "the objective failed");
  return d;
}

static PyObject *drawn(PyRounds *p, PyObject *v) {
  return v ? v : (err_raise(&p->err, NS_ERR_VALUE, "chance failed"), NULL);
}
static double call_unit(void *self) {
  PyRounds *p = self;
  PyObject *v = drawn(p, PyObject_CallMethod(p->chance, "random", NULL));
  double d = PyFloat_AsDouble(v);
  Py_DECREF(v);
  return d;
}
static uint64_t call_lot(void *self) {
  PyRounds *p = self;
  PyObject *v = drawn(p, PyObject_CallMethod(p->chance, "getrandbits", "i", 60));
  uint64_t n = PyLong_AsUnsignedLongLong(v);
  Py_DECREF(v);
  return n;
}

/* Arguments and outcome of a call. */
typedef struct {
  PyRounds *p;
  int n, n_layer, task;
  double *flop;
  int32_t *number; /* groups, candidates left, or tasks of results */
  int32_t *layer;
  Rank *rank;
  const TuneLog *log;
  int flag;
  RoundEvent event;
} Call;
/* Runs body with the objective; false with the exception set: the objective's own, if it failed. */
static bool run(Call *x, PyObject *objective, ErrBody body) {
  if (x->p->objective) return PyErr_SetString(PyExc_RuntimeError, "the objective may not change the run"), false;
  x->p->objective = objective;
  ErrCode c = err_try(&x->p->err, body, x);
  x->p->objective = NULL;
  if (c != NS_OK && !PyErr_Occurred()) py_raise(&x->p->err, c);
  return c == NS_OK;
}
static bool task_number(const PyRounds *p, int task) {
  if (task < 0 || task >= p->r->n) PyErr_Format(PyExc_IndexError, "task %d is none of %d", task, p->r->n);
  return task >= 0 && task < p->r->n;
}

/* n numbers of a sequence, in memory of PyMem; NULL with the exception set. */
static int32_t *numbers(PyObject *seq, int n, int lo, int hi) {
  PyObject *fast = PySequence_Fast(seq, "expected a list of numbers");
  if (fast && PySequence_Size(fast) != n)
    PyErr_Format(PyExc_ValueError, "%zd numbers where %d are expected", PySequence_Size(fast), n);
  int32_t *out = PyErr_Occurred() ? NULL : py_calloc(n + 1, sizeof *out);
  for (int i = 0; out && i < n && !PyErr_Occurred(); i++) {
    long v = PyLong_AsLong(py_item(fast, i));
    if (!PyErr_Occurred() && (v < lo || v > hi)) PyErr_Format(PyExc_ValueError, "%ld is not in %d to %d", v, lo, hi);
    out[i] = (int32_t)v;
  }
  Py_XDECREF(fast);
  if (PyErr_Occurred()) PyMem_Free(out), out = NULL;
  return out;
}

/* ---- what results are worth ---- */

/* What is no number, and no list of numbers, is no time. */
static bool rank_from(PyObject *costs, int error_no, bool quick, Rank *out) {
  PyObject *seq = PySequence_Fast(costs, "");
  Py_ssize_t n = seq ? PySequence_Size(seq) : 0;
  double few[16], *cost = n <= NS_COUNT(few) ? few : py_calloc(n, sizeof *cost);
  for (Py_ssize_t i = 0; cost && i < n && !PyErr_Occurred(); i++) cost[i] = PyFloat_AsDouble(py_item(seq, i));
  bool none =
      PyErr_Occurred() && (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
                           PyErr_ExceptionMatches(PyExc_OverflowError));
  if (none) PyErr_Clear(), n = 0;
  bool ok = !PyErr_Occurred();
  if (ok) *out = rank_of((int)n, cost, error_no, quick);
  if (cost != few) PyMem_Free(cost);
  Py_XDECREF(seq);
  return ok;
}
static PyObject *f_rank(PyObject *Py_UNUSED(m), PyObject *args, PyObject *kw) {
  PyObject *costs;
  const char *version = "";
  int error_no = 0, quick = 0;
  Rank r;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O|ips", PY_NAMES("costs", "error_no", "quick", "version"), &costs,
                                   &error_no, &quick, &version) ||
      !rank_from(costs, error_no, quick || record_quick(version), &r))
    return NULL;
  return Py_BuildValue("Od", r.quick ? Py_True : Py_False, r.seconds);
}
/* Of an object with costs, error_no and perhaps extra["stage"]: a MeasureResult. */
static bool result_rank(PyObject *res, Rank *out) {
  PyObject *costs = PyObject_GetAttrString(res, "costs"), *no = costs ? PyObject_GetAttrString(res, "error_no") : NULL;
  PyObject *extra = no ? PyObject_GetAttrString(res, "extra") : NULL;
  if (no && !extra && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  long error_no = no ? PyLong_AsLong(no) : -1;
  bool ok = no && !PyErr_Occurred();
  PyObject *stage = ok && extra && PyDict_Check(extra) ? PyDict_GetItemString(extra, "stage") : NULL;
  bool quick = stage && PyUnicode_Check(stage) && PyUnicode_CompareWithASCIIString(stage, "quick") == 0;
  ok = ok && rank_from(costs, error_no != 0, quick, out);
  Py_XDECREF(costs), Py_XDECREF(no), Py_XDECREF(extra);
  return ok;
}
static PyObject *f_rank_of(PyObject *Py_UNUSED(m), PyObject *res) {
  Rank r;
  return result_rank(res, &r) ? Py_BuildValue("Od", r.quick ? Py_True : Py_False, r.seconds) : NULL;
}

/* ---- what is known, by name ---- */

static const PyField *find(const PyField *f, const char *name) {
  while (f->name && strcmp(f->name, name) != 0) f++;
  return f->name ? f : NULL;
}
static PyObject *history(const Rounds *r) {
  PyObject *out = PyList_New(r->n);
  for (int i = 0; out && i < r->n; i++)
    py_put(&out, i, py_list(FIELD_DOUBLE, r->task[i].history.len, r->task[i].history.at));
  return out;
}
static PyObject *rounds_get(PyObject *o, PyObject *name) {
  const Rounds *r = ((PyRounds *)o)->r;
  const char *s = py_utf8(name);
  if (!s) return NULL;
  if (strcmp(s, "history") == 0) return history(r);
  const PyField *f = find(OF_RUN, s);
  if (f) return py_field_value(f, r);
  if (!(f = find(COLUMNS, s))) return PyObject_GenericGetAttr(o, name);
  PyObject *out = PyList_New(r->n);
  for (int i = 0; out && i < r->n; i++) py_put(&out, i, py_field_value(f, &r->task[i]));
  return out;
}
static bool set_one(PyObject *name, PyObject *v, const PyField *f, void *out) {
  PyObject *d = PyDict_New();
  bool ok = d && PyDict_SetItem(d, name, v) == 0 && py_fields_set("Rounds", d, f, out);
  Py_XDECREF(d);
  return ok;
}
static int rounds_set(PyObject *o, PyObject *name, PyObject *v) {
  Rounds *r = ((PyRounds *)o)->r;
  const char *s = py_utf8(name);
  if (!s || !v || !find(COLUMNS, s)) return s && v && set_one(name, v, OF_RUN, r) ? 0 : -1;
  PyObject *seq = PySequence_Fast(v, "expected a list with a value for each task");
  bool ok = seq && PySequence_Size(seq) == r->n;
  if (seq && !ok) PyErr_Format(PyExc_ValueError, "%s: %zd values for %d tasks", s, PySequence_Size(seq), r->n);
  for (int i = 0; ok && i < r->n; i++) ok = set_one(name, py_item(seq, i), COLUMNS, &r->task[i]);
  Py_XDECREF(seq);
  return ok ? 0 : -1;
}

/* ---- logs ---- */

typedef struct {
  PyObject_HEAD Err err;
  Arena *arena;
  const char *path; /* while it is read */
  TuneLog *log;
} PyLog;
static PyTypeObject *PyLog_Type;

static void do_read(void *arg) {
  PyLog *p = arg;
  p->arena = arena_new(&p->err);
  p->log = log_read(p->arena, p->path);
}
static PyObject *log_create(PyTypeObject *type, PyObject *args, PyObject *kw) {
  PyObject *path;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O&", PY_NAMES("path"), PyUnicode_FSConverter, &path)) return NULL;
  PyLog *p = (PyLog *)PyType_GenericAlloc(type, 0);
  if (p) {
    err_init(&p->err);
    p->path = PyBytes_AsString(path);
    if (!py_run_ok(&p->err, do_read, p)) Py_CLEAR(p);
  }
  Py_DECREF(path);
  return (PyObject *)p;
}
static void log_drop(PyObject *o) {
  py_arena_free(((PyLog *)o)->arena);
  py_free_object(o);
}
static PyObject *log_groups(PyObject *o, void *Py_UNUSED(u)) {
  const TuneLog *log = ((PyLog *)o)->log;
  PyObject *l = PyList_New(log->group.len);
  for (int i = 0; l && i < log->group.len; i++) {
    const LogGroup *g = &log->group.at[i];
    const LogRecord *best = &log->record.at[g->best];
    py_put(&l, i,
           Py_BuildValue("ssssLL(Od)L", g->key, g->target, g->host, g->math, (long long)g->valid, (long long)g->failed,
                         best->rank.quick ? Py_True : Py_False, best->rank.seconds, (long long)best->at));
  }
  return l;
}
static PyObject *log_faults(PyObject *o, void *Py_UNUSED(u)) {
  const TuneLog *log = ((PyLog *)o)->log;
  return Py_BuildValue("NNOL", py_list(FIELD_I32, log->broken.len, log->broken.at),
                       py_text(log->fault ? log->fault : ""), log->cut ? Py_True : Py_False,
                       (long long)log->impossible);
}
static PyObject *log_places(PyObject *o, PyObject *groups) {
  const TuneLog *log = ((PyLog *)o)->log;
  PyObject *l = PyList_New(0);
  for (int i = 0; l && i < log->record.len; i++) {
    PyObject *g = PyLong_FromLong(log->record.at[i].group);
    int in = g ? PySequence_Contains(groups, g) : -1;
    PyObject *at = in > 0 ? PyLong_FromLongLong(log->record.at[i].at) : NULL;
    if (in < 0 || (in > 0 && (!at || PyList_Append(l, at) < 0))) Py_CLEAR(l);
    Py_XDECREF(g), Py_XDECREF(at);
  }
  return l;
}

/* ---- calls ---- */

static void do_new(void *arg) {
  Call *x = arg;
  x->p->arena = arena_new(&x->p->err);
  x->p->r = rounds_new(x->p->arena, x->n, x->flop, x->number, x->n_layer, x->layer,
                       (RunHooks){call_objective, call_unit, call_lot, x->p});
}
/* The layer of each of n tasks, the last of which are variants of the layers in the list; NULL with the exception set. */
static int32_t *layers(PyObject *variants, int n, int *n_layer) {
  Py_ssize_t more = PySequence_Size(variants);
  if (more > 0 && more >= n) PyErr_Format(PyExc_ValueError, "%zd variants among %d tasks: of no layer", more, n);
  if (more < 0 || PyErr_Occurred()) return NULL;
  *n_layer = n - (int)more;
  int32_t *of = numbers(variants, (int)more, 0, *n_layer - 1), *out = of ? py_calloc(n + 1, sizeof *out) : NULL;
  for (int i = 0; out && i < n; i++) out[i] = i < *n_layer ? i : of[i - *n_layer];
  PyMem_Free(of);
  return out;
}
static PyObject *rounds_create(PyTypeObject *type, PyObject *args, PyObject *kw) {
  PyObject *flops, *groups, *variants, *chance;
  Call x = {.n = 0};
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O!OOO", PY_NAMES("flops", "groups", "variants", "chance"), &PyList_Type,
                                   &flops, &groups, &variants, &chance))
    return NULL;
  x.n = (int)PyList_Size(flops);
  x.flop = py_array(FIELD_DOUBLE, flops);
  x.number = !x.flop ? NULL : numbers(groups, x.n, -1, INT32_MAX);
  x.layer = x.number ? layers(variants, x.n, &x.n_layer) : NULL;
  x.p = x.layer ? (PyRounds *)PyType_GenericAlloc(type, 0) : NULL;
  if (x.p) {
    err_init(&x.p->err);
    x.p->chance = Py_NewRef(chance);
    if (!run(&x, NULL, do_new)) Py_CLEAR(x.p);
  }
  PyMem_Free(x.flop);
  PyMem_Free(x.number);
  PyMem_Free(x.layer);
  return (PyObject *)x.p;
}
static void rounds_drop(PyObject *o) {
  arena_free(((PyRounds *)o)->arena);
  Py_CLEAR(((PyRounds *)o)->chance);
  py_free_object(o);
}

static PyObject *m_begin(PyObject *o, PyObject *options) {
  RunOptions p = {.window = 0};
  if (!py_fields_set("options", options, OPTIONS, &p)) return NULL;
  rounds_begin(((PyRounds *)o)->r, &p);
  Py_RETURN_NONE;
}
static void do_score(void *arg) { rounds_score(((Call *)arg)->p->r); }
static PyObject *m_score(PyObject *o, PyObject *objective) {
  Call x = {.p = (PyRounds *)o};
  return run(&x, objective, do_score) ? PyFloat_FromDouble(x.p->r->score) : NULL;
}
ERR_BODY(do_next, Call *x, x->event = rounds_next(x->p->r, x->number))
static PyObject *m_next(PyObject *o, PyObject *args) {
  static const char *const KINDS[ROUND_KINDS] = {"wait", "search", "land", "stale", "end"};
  PyObject *objective, *left;
  Call x = {.p = (PyRounds *)o};
  if (!PyArg_ParseTuple(args, "OO", &objective, &left) || !(x.number = numbers(left, x.p->r->flying.len, 0, INT32_MAX)))
    return NULL;
  bool ok = run(&x, objective, do_next);
  PyMem_Free(x.number);
  return ok ? Py_BuildValue("sii", KINDS[x.event.kind], x.event.task, x.event.n) : NULL;
}
ERR_BODY(do_searched, Call *x, rounds_searched(x->p->r, x->n))
static PyObject *m_searched(PyObject *o, PyObject *args) {
  Call x = {.p = (PyRounds *)o};
  if (!PyArg_ParseTuple(args, "i", &x.n)) return NULL;
  if (x.n < 0 || x.p->r->searching < 0) return PyErr_Format(PyExc_ValueError, "searched(%d): no search goes on", x.n);
  return py_none(run(&x, NULL, do_searched));
}
ERR_BODY(do_take, Call *x, rounds_take(x->p->r, x->task, x->n, x->rank))
static PyObject *m_take(PyObject *o, PyObject *args) {
  PyObject *objective, *results;
  Call x = {.p = (PyRounds *)o};
  if (!PyArg_ParseTuple(args, "OiO", &objective, &x.task, &results) || !task_number(x.p, x.task)) return NULL;
  PyObject *seq = PySequence_Fast(results, "results: expected a list");
  if (!seq) return NULL;
  x.n = (int)PySequence_Size(seq);
  x.rank = py_calloc(x.n + 1, sizeof(Rank));
  bool ok = x.rank != NULL;
  for (int k = 0; ok && k < x.n; k++) ok = result_rank(py_item(seq, k), &x.rank[k]);
  Py_DECREF(seq);
  ok = ok && run(&x, objective, do_take);
  PyMem_Free(x.rank);
  return py_none(ok);
}
static PyObject *m_better(PyObject *o, PyObject *args) {
  PyRounds *p = (PyRounds *)o;
  PyObject *res;
  int task;
  Rank x;
  if (!PyArg_ParseTuple(args, "iO", &task, &res) || !task_number(p, task) || !result_rank(res, &x)) return NULL;
  return PyBool_FromLong(rounds_better(p->r, task, x));
}
ERR_BODY(do_resume, Call *x, rounds_resume(x->p->r, x->log, x->number, x->flag))
static PyObject *m_resume(PyObject *o, PyObject *args) {
  PyObject *objective, *log, *tasks;
  Call x = {.p = (PyRounds *)o};
  if (!PyArg_ParseTuple(args, "OO!Op", &objective, PyLog_Type, &log, &tasks, &x.flag)) return NULL;
  x.log = ((PyLog *)log)->log;
  if (!(x.number = numbers(tasks, x.log->group.len, -1, x.p->r->n - 1))) return NULL;
  bool ok = run(&x, objective, do_resume);
  PyMem_Free(x.number);
  return py_none(ok);
}

static PyMethodDef METHODS[] = {
    {"begin", m_begin, METH_O, "begin(options): a run, with what is known of the tasks already."},
    {"score", m_score, METH_O, "score(objective): its value now, which is cur_score from now on."},
    {"next", m_next, METH_VARARGS,
     "next(objective, left): (what to do next, task or -1, candidates): 'search', then searched(); 'land', then "
     "take(); 'wait'; 'stale', where the run ends early; 'end'. left: candidates without a result, of each round that "
     "is measured, the oldest first."},
    {"searched", m_searched, METH_VARARGS, "searched(n): so many candidates are measured now; 0 ends the task."},
    {"take", m_take, METH_VARARGS, "take(objective, task, results): a round is over. results: list of MeasureResult."},
    {"better", m_better, METH_VARARGS, "better(task, result): whether it is the task's best now."},
    {"resume", m_resume, METH_VARARGS,
     "resume(objective, log, tasks, at_least_one): what a TuneLog holds was measured by this run. tasks: the number of "
     "each group's, or -1. at_least_one: a task with results has had a round, be there ever so few."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef LOG_GETS[] = {
    {"groups", log_groups, NULL,
     "list of (workload key, target, host, math mode, valid records, failed ones, rank of the best, where its line "
     "begins)",
     NULL},
    {"faults", log_faults, NULL, "(numbers of broken lines, what is wrong with the first, whether the last is cut off)",
     NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef LOG_METHODS[] = {
    {"places", log_places, METH_O, "places(groups): where the lines of their records begin, in bytes."},
    {NULL, NULL, 0, NULL}};

static PyMethodDef FUNCTIONS[] = {{"rank", PY_KEYWORDS(f_rank),
                                   "rank(costs, error_no=0, quick=False, version=''): (quick, seconds) of a result; "
                                   "the smallest is the best. version: the record's, with its marks."},
                                  {"rank_of", f_rank_of, METH_O, "rank_of(result): rank of a MeasureResult."},
                                  {NULL, NULL, 0, NULL}};

static const PyType_Slot ROUNDS_SLOTS[] = {{Py_tp_getattro, rounds_get}, {Py_tp_setattro, rounds_set}, {0, NULL}};
static const PyClass CLASSES[] = {
    PY_CLASS(
        "Rounds", sizeof(PyRounds), .create = rounds_create, .drop = rounds_drop, .methods = METHODS,
        .more = ROUNDS_SLOTS,
        .doc = "Rounds(flops, groups, variants, chance): a run over several tasks: what is known, and what to do "
               "next. variants: the layers of which the last tasks are variants; those before them are the layers, and "
               "the objective is called with the best seconds of each. chance: a random.Random. Attributes: "
               "best_costs, quick, task_cts, task_best_cts, task_trials, "
               "groups, dead, history: lists; ct, planned, best_ct, "
               "cur_score, best_score."),
    PY_CLASS("TuneLog", sizeof(PyLog), .type = &PyLog_Type, .create = log_create, .drop = log_drop,
             .methods = LOG_METHODS, .get = LOG_GETS,
             .doc = "TuneLog(path): what a log holds, read once. OSError if it cannot be read.")};

int py_init_rounds(PyObject *m) { return py_add(m, NS_COUNT(CLASSES), CLASSES, FUNCTIONS); }
