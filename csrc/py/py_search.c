/* Bindings of search: the type Policy (the search for one task). What its constructor reads is in py_params.c; functions
 * about states and tasks that need no policy are in py_ask.c.
 *
 * States cross into Python as _core.State objects. A long call releases the interpreter lock and can be interrupted
 * (py_run.c); callbacks (users' rules, Python cost models, the progress listener) take the lock again, in another thread
 * than the caller's. cancel() makes a running call end with KeyboardInterrupt. */
#include "py/py.h"
#include "py/py_search.h"
#include "model/model.h"
#include "search/space.h"
#include <limits.h>
#include <math.h>
#include <string.h>

typedef struct {
  PyObject_HEAD PyDag *dag;
  Err err;
  SearchTask *task;
  PyObject
      *task_box; /* capsule that owns the task: learners keep it, not the policy, for the policy keeps their scorer */
  Policy *policy;
  atomic_int stop;
  int threads, busy;
  uint64_t seed;
  PyObject *scorer, *listener, *rules; /* callables; rules: list of (check, apply) */
  PyObject *failure;                   /* what the first callback of a call raised, with its traceback */
} PyPolicy;
static PyTypeObject *PyPolicy_Type;

/* ---- states ---- */

typedef struct {
  const State *s;
  PySteps *out;
} TakeSteps;
static void do_steps(void *arg) {
  TakeSteps *x = arg;
  x->out->n = x->s->step.len;
  x->out->step = sp_steps_copy(ir_arena(x->out->ctx), x->s->step.len, x->s->step.at, true);
}
bool py_state_steps(const PyState *s, Err *e, PySteps *out) {
  TakeSteps x = {s->state, out};
  out->ctx = py_candidate(s->dag->own.ctx, e);
  if (!out->ctx) return false;
  if (py_try(e, do_steps, &x)) return true;
  ir_free(out->ctx);
  out->ctx = NULL;
  return false;
}

typedef struct {
  PyState *s;
  int n;
  const Step *step;
  bool bounds;
} NewState;
static void do_state(void *arg) {
  NewState *x = arg;
  x->s->state = sketch_replay(x->s->own.ctx, x->s->dag->dag, x->n, x->step);
  if (x->bounds && x->s->state->concrete) state_infer_bounds(x->s->state);
}
PyObject *py_state_of_steps(PyDag *dag, int n, const Step *step, bool bounds) {
  PyState *s = (PyState *)PyType_GenericAlloc(PyState_Type, 0);
  if (!s) return NULL;
  s->dag = (PyDag *)Py_NewRef((PyObject *)dag);
  err_init(&s->own.err);
  NewState x = {s, n, step, bounds};
  s->own.ctx = py_candidate(dag->own.ctx, &s->own.err);
  if (!s->own.ctx || !py_free_ok(&s->own.err, do_state, &x)) Py_CLEAR(s);
  return (PyObject *)s;
}
PyState *py_as_state(PyObject *o) {
  if (PyObject_TypeCheck(o, PyState_Type)) return (PyState *)o;
  PyErr_Format(PyExc_TypeError, "expected a State, got %s", PY_TYPE_NAME(o));
  return NULL;
}

/* ---- callbacks into Python: all take the interpreter lock themselves ---- */

/* Ends a callback that failed in Python: the message travels as an engine error, the exception waits in the policy and
 * becomes the cause of the one that the caller sees (run_op). */
static NS_NORETURN void raise_python(PyPolicy *p, Arena *a, PyEntry g, const char *what) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (value && trace) PyException_SetTraceback(value, trace);
  if (!p->failure) p->failure = Py_XNewRef(value);
  PyObject *text = value ? PyObject_Str(value) : NULL;
  const char *msg = text ? py_utf8(text) : NULL;
  char room[PY_NAME_ROOM],
      *copy = arena_printf(a, "%s: %s: %s", what,
                           type ? py_type_name((PyTypeObject *)type, room, sizeof room) : "error", msg ? msg : "");
  bool stop = type && PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt);
  PY_DROP(text, type, value, trace);
  PyErr_Clear();
  py_leave(g);
  err_raise(arena_err(a), stop ? NS_ERR_INTERRUPT : NS_ERR_RUNTIME, "%s", copy);
}

typedef struct {
  PyPolicy *p;
  int at;
} RuleRef;

static PyObject *call_rule(PyPolicy *p, int at, int which, const State *s, int stage) {
  PyObject *rule = PyList_GetItem(p->rules, at), *fn = rule ? PyTuple_GetItem(rule, which) : NULL;
  PyObject *st = fn ? py_state_of_steps(p->dag, s->step.len, s->step.at, false) : NULL;
  PyObject *r = st ? PyObject_CallFunction(fn, "Oi", st, stage) : NULL;
  Py_XDECREF(st);
  return r;
}
static int rule_check(void *self, Arena *a, const State *s, int stage) {
  RuleRef *x = self;
  PyEntry g = py_enter();
  PyObject *r = call_rule(x->p, x->at, 0, s, stage);
  long v = r ? PyLong_AsLong(r) : -1;
  Py_XDECREF(r);
  if (PyErr_Occurred()) raise_python(x->p, a, g, "custom sketch rule, condition");
  py_leave(g);
  return (int)v;
}
#define RULE_RETURNS "a custom sketch rule must return a list of [state, next stage id]"
/* One pair of a rule's result. A state may be the engine's or a wrapper with one in its state_object. */
static bool rule_pair(PyObject *pair, Arena *a, RuleOut *out) {
  PyObject *seq = PySequence_Fast(pair, RULE_RETURNS);
  if (!seq) return false;
  PyObject *inner = NULL;
  PyState *s = NULL;
  Py_ssize_t pos = -1;
  if (PySequence_Size(seq) != 2)
    PyErr_Format(PyExc_ValueError, RULE_RETURNS "; it returned %zd values instead of two", PySequence_Size(seq));
  else {
    PyObject *so = py_item(seq, 0);
    if (!PyObject_TypeCheck(so, PyState_Type)) inner = PyObject_GetAttrString(so, "state_object");
    if (!inner) py_clear();
    if (PyObject_TypeCheck(inner ? inner : so, PyState_Type))
      s = (PyState *)(inner ? inner : so);
    else
      PyErr_Format(PyExc_TypeError, RULE_RETURNS "; its state is of type %s", PY_TYPE_NAME(so));
    if (s) pos = PyNumber_AsSsize_t(py_item(seq, 1), NULL); /* far away: cut to what no state has */
  }
  bool ok = s && !PyErr_Occurred();
  if (ok) {
    RuleState x = {s->state->step.len, NULL, pos > INT_MAX ? INT_MAX : pos < 0 ? -1 : (int)pos};
    x.step = sp_steps_copy(a, x.n, s->state->step.at, true);
    vec_push(a, out, x);
  }
  Py_XDECREF(inner);
  Py_DECREF(seq);
  return ok;
}
static void rule_result(PyObject *list, Arena *a, RuleOut *out) {
  PyObject *seq = PySequence_Fast(list, RULE_RETURNS);
  if (!seq) return;
  int n = (int)PySequence_Size(seq);
  while (out->len < n && rule_pair(py_item(seq, out->len), a, out)) continue;
  Py_DECREF(seq);
}
static void rule_apply(void *self, Arena *a, const State *s, int stage, RuleOut *out) {
  RuleRef *x = self;
  PyEntry g = py_enter();
  PyObject *r = call_rule(x->p, x->at, 1, s, stage);
  if (r) rule_result(r, a, out);
  Py_XDECREF(r);
  if (PyErr_Occurred()) raise_python(x->p, a, g, "custom sketch rule");
  py_leave(g);
}

static void python_score(void *self, const Target *t, int n, State *const *s, double *out) {
  (void)t;
  PyPolicy *p = self;
  PyEntry g = py_enter();
  PyObject *list = PyList_New(n), *r = NULL;
  for (int i = 0; list && i < n; i++) py_put(&list, i, py_state_of_steps(p->dag, s[i]->step.len, s[i]->step.at, true));
  PyObject *scorer = Py_NewRef(p->scorer); /* it may replace itself */
  if (list) r = PyObject_CallFunctionObjArgs(scorer, list, NULL);
  Py_DECREF(scorer);
  PyObject *seq = r ? PySequence_Fast(r, "a cost model must return a sequence of numbers") : NULL;
  for (int i = 0; i < n; i++) {
    PyObject *v = seq && i < PySequence_Size(seq) ? py_item(seq, i) : NULL;
    out[i] = v ? PyFloat_AsDouble(v) : -INFINITY;
  }
  PY_DROP(seq, r, list);
  if (n > 0 && PyErr_Occurred()) raise_python(p, ir_arena(s[0]->ctx), g, "cost model");
  py_leave(g);
}

static void listen(void *self, const PolicyEvent *ev) {
  PyPolicy *p = self;
  PyEntry g = py_enter();
  PyObject *fn = p->listener ? Py_NewRef(p->listener) : NULL; /* it may replace itself */
  if (!fn || fn == Py_None) {
    Py_XDECREF(fn);
    py_leave(g);
    return;
  }
  PyObject *r = PyObject_CallFunction(fn, "iiiiddddd", ev->kind, ev->iter, ev->count, ev->failed, ev->best, ev->least,
                                      ev->seconds, ev->mutated, ev->refused);
  Py_DECREF(fn);
  if (!r) py_clear();
  Py_XDECREF(r);
  py_leave(g);
}

/* ---- Policy ---- */

typedef struct {
  PyPolicy *p;
  Target target;
  SearchParams par;
} Make;
static void do_make(void *arg) {
  Make *x = arg;
  x->p->task = task_new(&x->p->err, x->p->dag->own.ctx, x->p->dag->dag, &x->target);
  x->p->policy = policy_new(&x->p->err, x->p->task, &x->par, x->p->seed, NULL);
}
static void drop_task(PyObject *box) { task_free(PyCapsule_GetPointer(box, "nestsmith.SearchTask")); }
static PyObject *policy_create(PyTypeObject *type, PyObject *args, PyObject *kw) {
  PyObject *dag, *target, *params = NULL;
  unsigned long long seed = 1;
  int threads = 1;
  Make x = {.par = search_params_default()};
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O!O|O!Ki", PY_NAMES("dag", "target", "params", "seed", "threads"),
                                   PyDag_Type, &dag, &target, &PyDict_Type, &params, &seed, &threads))
    return NULL;
  if (!py_target(target, &x.target) || (params && !py_params(params, &x.par))) return NULL;
  if (threads < 1 || threads > 1024) return PyErr_Format(PyExc_ValueError, "threads: %d is not in 1..1024", threads);
  PyPolicy *p = (PyPolicy *)PyType_GenericAlloc(type, 0);
  if (!p) return NULL;
  x.p = p;
  Py_INCREF(dag);
  p->dag = (PyDag *)dag, p->threads = threads, p->seed = seed;
  p->rules = PyList_New(0);
  err_init(&p->err);
  if (!p->rules || !py_free_ok(&p->err, do_make, &x) ||
      !(p->task_box = PyCapsule_New(p->task, "nestsmith.SearchTask", drop_task))) {
    Py_DECREF(p);
    return NULL;
  }
  policy_set_listener(p->policy, listen, p);
  return (PyObject *)p;
}
static void policy_drop(PyObject *o) {
  PyPolicy *p = (PyPolicy *)o;
  PY_UNLOCKED(policy_free(p->policy)); /* it may have remembered much */
  if (!p->task_box) task_free(p->task);
  PY_DROP(p->task_box, p->dag, p->scorer, p->listener, p->rules, p->failure);
  py_free_object(o);
}

enum { DO_SKETCHES, DO_SAMPLE, DO_EVOLVE, DO_ROUND };
typedef struct {
  PyPolicy *p;
  Err err;
  Arena *a;
  Pool *pool;
  int what, n;
  StateList in, out;
  Candidate **made; /* of a round: n */
  int n_made;
} Op;
ERR_BODY(do_arena, Op *x, x->a = arena_new(&x->err))
static void do_op(void *arg) {
  Op *x = arg;
  Policy *p = x->p->policy;
  if (x->p->threads > 1 && x->what != DO_SKETCHES) x->pool = pool_new(x->p->threads, &x->err);
  policy_set_pool(p, x->pool);
  switch (x->what) {
  case DO_SKETCHES: x->out = policy_sketches(p, x->a); break;
  case DO_SAMPLE: x->out = policy_sample(p, x->a); break;
  case DO_EVOLVE: x->out = policy_evolve(p, x->a, x->in, x->n); break;
  default:
    if (x->n <= ROUND_MOST)
      x->made = arena_array(x->a, Candidate *, x->n > 0 ? x->n : 0); /* else it is refused at once */
    x->n_made = policy_round(p, &x->err, x->n, x->made);
  }
}
static bool idle(const PyPolicy *p) {
  if (p->busy) PyErr_SetString(PyExc_RuntimeError, "this policy is searching; change it between calls");
  return !p->busy;
}
static bool enter(PyPolicy *p) {
  if (p->busy) return PyErr_SetString(PyExc_RuntimeError, "this policy is already searching in another thread"), false;
  return p->busy = 1, true;
}
/* Copies the step lists of a list of states while the lock is held. */
typedef struct {
  Op *x;
  PyObject *seq;
} Take;
static void do_take(void *arg) {
  Take *t = arg;
  int n = (int)PySequence_Size(t->seq);
  for (int i = 0; i < n; i++) {
    State *s = ((PyState *)py_item(t->seq, i))->state;
    sp_list_add(t->x->a, &t->x->in, s->step.len, s->step.at, 0);
  }
}

/* The exception that a callback raised is the cause of the one that is set now. */
static void name_cause(PyPolicy *p) {
  PyObject *type, *value, *trace, *cause = p->failure;
  p->failure = NULL;
  if (!cause) return;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (value)
    PyException_SetCause(value, cause);
  else
    Py_DECREF(cause);
  PyErr_Restore(type, value, trace);
}

/* What an operation found: states, or the candidates of a round. */
static PyObject *result_list(Op *x) {
  int n = x->made ? x->n_made : x->out.len;
  PyObject *out = PyList_New(n);
  for (int i = 0; out && i < n; i++) {
    PyObject *o = x->made ? py_candidate_new(x->p->dag, x->p->task_box, x->made[i])
                          : py_state_of_steps(x->p->dag, x->out.at[i].n, x->out.at[i].step, x->what != DO_SKETCHES);
    if (x->made) x->made[i] = NULL;
    py_put(&out, i, o);
  }
  return out;
}

static PyObject *run_op(PyPolicy *p, int what, int n, PyObject *states) {
  Op x = {.p = p, .what = what, .n = n};
  PyObject *seq = NULL, *out = NULL;
  if (states && !(seq = PySequence_Fast(states, "states: expected a list of State"))) return NULL;
  for (Py_ssize_t i = 0; seq && i < PySequence_Size(seq); i++)
    if (!py_as_state(py_item(seq, i))) {
      Py_DECREF(seq);
      return NULL;
    }
  if (!enter(p)) {
    Py_XDECREF(seq);
    return NULL;
  }
  err_init(&x.err);
  p->stop = 0;
  x.err.interrupt = &p->stop;
  ErrCode c = err_try(&x.err, do_arena, &x);
  if (c == NS_OK && seq) c = err_try(&x.err, do_take, &(Take){&x, seq});
  Py_XDECREF(seq);
  if (c == NS_OK) c = py_run(&x.err, do_op, &x);
  policy_set_pool(p->policy, NULL);
  pool_free(x.pool);
  p->busy = 0;
  if (c != NS_OK)
    py_raise(&x.err, c), name_cause(p);
  else
    out = result_list(&x);
  Py_CLEAR(p->failure);
  for (int i = 0; x.made && i < n; i++) cand_free(x.made[i]);
  py_arena_free(x.a);
  return out;
}

static PyObject *m_sketches(PyObject *o, PyObject *Py_UNUSED(u)) { return run_op((PyPolicy *)o, DO_SKETCHES, 0, NULL); }
static PyObject *m_sample(PyObject *o, PyObject *Py_UNUSED(u)) { return run_op((PyPolicy *)o, DO_SAMPLE, 0, NULL); }
static PyObject *m_evolve(PyObject *o, PyObject *args) {
  PyObject *states;
  int n;
  return PyArg_ParseTuple(args, "Oi", &states, &n) ? run_op((PyPolicy *)o, DO_EVOLVE, n, states) : NULL;
}
static PyObject *m_candidates(PyObject *o, PyObject *args) {
  int n;
  return PyArg_ParseTuple(args, "i", &n) ? run_op((PyPolicy *)o, DO_ROUND, n, NULL) : NULL;
}
static PyObject *m_round(PyObject *o, PyObject *args) {
  PyObject *list = m_candidates(o, args);
  for (Py_ssize_t i = 0; list && i < PyList_Size(list); i++) {
    PyObject *c = PyList_GetItem(list, i), *s = py_candidate_state(c);
    PyObject *pair = s ? Py_BuildValue("Nd", s, ((PyCandidate *)c)->c->score) : NULL;
    if (!pair || PyList_SetItem(list, i, pair) < 0) Py_CLEAR(list);
  }
  return list;
}
static PyObject *m_remember(PyObject *o, PyObject *args) {
  PyPolicy *p = (PyPolicy *)o;
  Py_ssize_t bytes;
  if (!PyArg_ParseTuple(args, "n", &bytes) || !idle(p)) return NULL;
  if (bytes < 0) return PyErr_Format(PyExc_ValueError, "remember: %zd bytes", bytes);
  policy_remember(p->policy, (size_t)bytes);
  Py_RETURN_NONE;
}
static PyObject *m_want(PyObject *o, PyObject *args) {
  PyPolicy *p = (PyPolicy *)o;
  int layout;
  if (!PyArg_ParseTuple(args, "i", &layout) || !idle(p)) return NULL;
  policy_want(p->policy, WANT_PROGRAM, layout);
  Py_RETURN_NONE;
}
static PyObject *m_progress(PyObject *o, PyObject *args) {
  PyPolicy *p = (PyPolicy *)o;
  long long done, total;
  if (!PyArg_ParseTuple(args, "LL", &done, &total) || !idle(p)) return NULL;
  if (done < 0 || total < 0)
    return PyErr_Format(PyExc_ValueError, "progress(%lld, %lld): trials are counted from 0", done, total);
  policy_progress(p->policy, done, total);
  Py_RETURN_NONE;
}
static PyObject *m_report(PyObject *o, PyObject *args) {
  PyPolicy *p = (PyPolicy *)o;
  PyObject *so;
  double seconds;
  int valid;
  if (!PyArg_ParseTuple(args, "Odp", &so, &seconds, &valid)) return NULL;
  Candidate *own;
  const Candidate *c = py_candidate_of(so, p->task, 0, &own);
  bool ok = c && enter(p);
  if (ok) policy_report(p->policy, c, seconds, valid), p->busy = 0;
  cand_free(own);
  return py_none(ok);
}
static PyObject *m_hint(PyObject *o, PyObject *args) {
  PyPolicy *p = (PyPolicy *)o;
  PyObject *so;
  int first = 0;
  if (!PyArg_ParseTuple(args, "O|p", &so, &first)) return NULL;
  Candidate *own;
  const Candidate *c = py_candidate_of(so, p->task, 0, &own);
  bool ok = c && enter(p);
  if (ok) policy_hint(p->policy, c, first), p->busy = 0;
  cand_free(own);
  return py_none(ok);
}
static PyObject *m_check(PyObject *o, PyObject *so) {
  Candidate *own;
  const Candidate *c = py_candidate_of(so, ((PyPolicy *)o)->task, WANT_CHECK, &own);
  PyObject *r = c ? Py_BuildValue("Oz", c->why ? Py_False : Py_True, c->why) : NULL;
  cand_free(own);
  return r;
}
static PyObject *m_counts(PyObject *o, PyObject *Py_UNUSED(u)) {
  TaskCounts n = task_counts(((PyPolicy *)o)->task);
  return Py_BuildValue("{s:L,s:L,s:L}", "replayed", (long long)n.replayed, "programs", (long long)n.programs, "traits",
                       (long long)n.traits);
}
static PyObject *m_cancel(PyObject *o, PyObject *Py_UNUSED(u)) {
  ((PyPolicy *)o)->stop = 1;
  Py_RETURN_NONE;
}
typedef struct {
  PyPolicy *p;
  CustomRule rule;
} AddRule;
ERR_BODY(do_add_rule, AddRule *x, policy_add_rule(&x->p->err, x->p->policy, x->rule))
static PyObject *m_add_rule(PyObject *o, PyObject *args) {
  PyPolicy *p = (PyPolicy *)o;
  PyObject *check, *apply;
  if (!PyArg_ParseTuple(args, "OO", &check, &apply) || !idle(p)) return NULL;
  if (!PyCallable_Check(check) || !PyCallable_Check(apply))
    return PyErr_SetString(PyExc_TypeError, "a sketch rule is two callables"), NULL;
  PyObject *pair = PyTuple_Pack(2, check, apply);
  int at = (int)PyList_Size(p->rules);
  PyObject *keep =
      pair ? PyBytes_FromStringAndSize(NULL, sizeof(RuleRef)) : NULL; /* memory of the reference lives with the list */
  if (!keep || PyList_Append(p->rules, pair) < 0 || PyList_Append(p->rules, keep) < 0) {
    PY_DROP(pair, keep);
    return NULL;
  }
  RuleRef *ref = (RuleRef *)(void *)PyBytes_AsString(keep);
  *ref = (RuleRef){p, at};
  AddRule x = {p, {"custom", rule_check, rule_apply, ref}};
  Py_DECREF(pair);
  Py_DECREF(keep);
  return py_none(py_try(&p->err, do_add_rule, &x));
}
static PyObject *m_set_scorer(PyObject *o, PyObject *fn) {
  PyPolicy *p = (PyPolicy *)o;
  Scorer s = {0};
  if (!idle(p)) return NULL;
  if (PyCapsule_CheckExact(fn)) { /* an engine-side model: a capsule named nestsmith.Scorer, kept alive here */
    const Scorer *c = PyCapsule_GetPointer(fn, "nestsmith.Scorer");
    if (!c) return NULL;
    s = *c;
  } else if (fn != Py_None) {
    if (!PyCallable_Check(fn))
      return PyErr_SetString(PyExc_TypeError, "scorer: expected a callable, a scorer capsule or None"), NULL;
    s = (Scorer){.score = python_score, .self = p};
  }
  Py_INCREF(fn);
  PY_SET(p->scorer, fn);
  policy_set_scorer(p->policy, s);
  Py_RETURN_NONE;
}
static PyObject *m_set_listener(PyObject *o, PyObject *fn) {
  Py_INCREF(fn);
  PY_SET(((PyPolicy *)o)->listener, fn);
  Py_RETURN_NONE;
}

static PyObject *m_shares(PyObject *o, PyObject *args) {
  PyPolicy *p = (PyPolicy *)o;
  int n, k, count[16];
  const char *name[16];
  if (!PyArg_ParseTuple(args, "i", &n)) return NULL;
  if (n <= 0) return PyErr_Format(PyExc_ValueError, "sample_shares: %d samples", n);
  if (!enter(p)) return NULL;
  PY_UNLOCKED(k = policy_sample_shares(p->policy, n, 16, name, count));
  Py_CLEAR(p->failure); /* a sample that failed is one that is refused */
  p->busy = 0;
  PyObject *d = PyDict_New();
  for (int i = 0; d && i < k; i++) py_put_key(&d, name[i], PyFloat_FromDouble((double)count[i] / n));
  return d;
}

typedef struct {
  PyCopy copy;
  const Target *t;
  State *s;
  StateFacts f;
  double seconds;
} Facts;
static void do_facts(void *arg) {
  Facts *x = arg;
  x->f = state_facts(x->t, x->s);
  x->seconds = estimate_seconds(x->t, &x->f);
}
/* Facts of a copy of a bounded state, to be dropped in any case; false with the exception set. */
static bool facts_of(PyObject *policy, PyObject *so, Facts *x) {
  PyState *s = py_as_state(so);
  if (!s) return false;
  if (!s->state->bounded) return PyErr_SetString(PyExc_ValueError, "state: infer its bounds first"), false;
  if (!py_copy_take(&x->copy, s)) return false;
  x->t = task_target(((PyPolicy *)policy)->task), x->s = x->copy.s;
  return py_copy_run(&x->copy, py_free, do_facts, x);
}
static PyObject *m_facts(PyObject *o, PyObject *so) {
  Facts x = {.t = NULL};
  PyObject *l = facts_of(o, so, &x) ? PyList_New(x.f.n) : NULL;
  for (int i = 0; l && i < x.f.n; i++) {
    const KernelFacts *k = &x.f.k[i];
    py_put(&l, i,
           Py_BuildValue("{s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d}", "blocks", k->blocks,
                         "threads", k->threads, "vthreads", k->vthreads, "shared_bytes", k->shared_bytes, "local_elems",
                         k->local_elems, "ops", k->ops, "global_bytes", k->global_bytes, "shared_reads",
                         k->shared_reads, "barriers", k->barriers, "shared_degree", k->shared_degree, "unique_bytes",
                         k->unique_bytes, "wavefronts", k->mem.wavefronts, "read_coalescing", gpu_mean(&k->mem.read, 1),
                         "write_coalescing", gpu_mean(&k->mem.write, 1), "fill_bytes", k->mem.fill_bytes));
  }
  PyObject *r = l ? Py_BuildValue("{s:N,s:z,s:d,s:d}", "kernels", l, "invalid", x.f.invalid, "vector_bytes",
                                  x.f.max_vector_bytes, "seconds", x.seconds)
                  : NULL;
  py_copy_drop(&x.copy);
  return r;
}

/* The estimate alone, as often as wanted, for measuring its speed: on a copy, for meanwhile other threads may use the
 * state and its context. */
typedef struct {
  Err err;
  PyState *from;
  PySteps own;
  Facts f;
  long n;
} Estimate;
static void do_estimate(void *arg) {
  Estimate *x = arg;
  x->f.s = sketch_replay(x->own.ctx, x->from->dag->dag, x->own.n, x->own.step);
  state_infer_bounds(x->f.s);
  IrMark mark = ir_mark(x->own.ctx);
  for (long i = 0; i < x->n; i++) {
    do_facts(&x->f);
    ir_release(x->own.ctx, mark);
    err_poll(&x->err);
  }
}
static PyObject *m_estimate(PyObject *o, PyObject *args) {
  PyObject *so;
  Estimate x = {.n = 1, .f.t = task_target(((PyPolicy *)o)->task)};
  if (!PyArg_ParseTuple(args, "O!|l", PyState_Type, &so, &x.n)) return NULL;
  x.from = (PyState *)so;
  if (!x.from->state->bounded || !x.from->dag)
    return PyErr_SetString(PyExc_ValueError, "state: infer its bounds first"), NULL;
  if (x.n < 1) return PyErr_Format(PyExc_ValueError, "estimate: n is %ld; it must be positive", x.n);
  err_init(&x.err);
  if (!py_state_steps(x.from, &x.err, &x.own)) return NULL;
  bool ok = py_run_ok(&x.err, do_estimate, &x);
  PyObject *r = ok ? PyFloat_FromDouble(x.f.f.invalid ? INFINITY : x.f.seconds) : NULL;
  ir_free(x.own.ctx);
  return r;
}

static PyObject *m_vector(PyObject *o, PyObject *so) {
  Facts x = {.t = NULL};
  float v[STATE_N];
  bool ok = facts_of(o, so, &x);
  if (ok) facts_vector(x.t, &x.f, v);
  py_copy_drop(&x.copy);
  PyObject *t = ok ? PyTuple_New(STATE_N) : NULL;
  for (int i = 0; t && i < STATE_N; i++) py_put(&t, i, PyFloat_FromDouble((double)v[i]));
  return t;
}

static PyMethodDef POLICY_METHODS[] = {
    {"sketches", m_sketches, METH_NOARGS, "sketches(): list of State, sizes still open."},
    {"sample", m_sample, METH_NOARGS,
     "sample(): list of distinct valid states; ValueError if none is found in bounded time."},
    {"evolve", m_evolve, METH_VARARGS, "evolve(states, n): up to n states never picked before, best score first."},
    {"round", m_round, METH_VARARGS,
     "round(n): up to n pairs (state, score) to measure next; [] if nothing new is left."},
    {"candidates", m_candidates, METH_VARARGS,
     "candidates(n): up to n Candidates to measure next; [] if nothing new is left."},
    {"progress", m_progress, METH_VARARGS,
     "progress(done, total): for the next round: so many of the run's trials are given out; total 0: not known."},
    {"want_programs", m_want, METH_VARARGS,
     "want_programs(layout): candidates of later rounds bring their programs, for a session to measure."},
    {"remember", m_remember, METH_VARARGS,
     "remember(bytes): memory for what is known of states that were met before; 32 MiB by default."},
    {"counts", m_counts, METH_NOARGS,
     "counts(): how often a candidate was replayed, its program and its traits were made; what searching looks at "
     "apart."},
    {"report", m_report, METH_VARARGS,
     "report(state, seconds, valid): the result of a measurement. state: also the steps that a log holds, as text."},
    {"hint", m_hint, METH_VARARGS,
     "hint(state, first=False): a state that may be good; it joins the first generation of later rounds. first: the "
     "next "
     "round's batch begins with it."},
    {"check", m_check, METH_O, "check(state): (ok, reason) after lowering and the GPU verifier."},
    {"vector", m_vector, METH_O,
     "vector(state): the 48 numbers that describe the kernels of a state; on a CPU the time alone."},
    {"estimate", m_estimate, METH_VARARGS,
     "estimate(state, n=1): estimated seconds, inf if a limit is broken; computed n times."},
    {"facts", m_facts, METH_O, "facts(state): closed forms per kernel, the broken limit or None, estimated seconds."},
    {"sample_shares", m_shares, METH_VARARGS,
     "sample_shares(n): what became of n samples, as shares: 'ok' or the reason of refusal."},
    {"cancel", m_cancel, METH_NOARGS, "cancel(): a running call ends with KeyboardInterrupt."},
    {"add_rule", m_add_rule, METH_VARARGS, "add_rule(condition, apply): a sketch rule before the built-in ones."},
    {"set_scorer", m_set_scorer, METH_O,
     "set_scorer(f): f(list of State) -> numbers, higher is better; a scorer capsule; None: the analytic estimate."},
    {"set_listener", m_set_listener, METH_O,
     "set_listener(f): f(kind, iter, count, failed, best, least, seconds, mutated, refused)."},
    {NULL, NULL, 0, NULL}};

PyObject *py_policy_task(PyObject *o) {
  if (PyObject_TypeCheck(o, PyPolicy_Type)) return ((PyPolicy *)o)->task_box;
  PyErr_Format(PyExc_TypeError, "expected a Policy, got %s", PY_TYPE_NAME(o));
  return NULL;
}

static const PyClass CLASSES[] = {PY_CLASS("Policy", sizeof(PyPolicy), .type = &PyPolicy_Type, .create = policy_create,
                                           .drop = policy_drop, .methods = POLICY_METHODS,
                                           .doc =
                                               "Policy(dag, target, params={}, seed=1, threads=1): the search for "
                                               "one task. target: (kind, hardware parameters, sm, fast_math, mali).")};

int py_init_search(PyObject *m) {
  return py_add(m, NS_COUNT(CLASSES), CLASSES, NULL) < 0 || py_init_candidate(m) < 0 || py_init_ask(m) < 0
             ? -1
             : py_init_tune(m);
}
