/* Binding of candidates: _core.Candidate, an opaque handle of what a round found. Whoever takes a State where only its steps
 * matter takes a Candidate, too; the state itself is made when somebody looks at it. */
#include "py/py_search.h"

PyTypeObject *PyCandidate_Type;

PyObject *py_candidate_new(PyDag *dag, PyObject *task_box, Candidate *c) {
  PyCandidate *p = (PyCandidate *)PyType_GenericAlloc(PyCandidate_Type, 0);
  if (!p) return cand_free(c), NULL;
  p->dag = (PyDag *)Py_NewRef((PyObject *)dag);
  p->task_box = Py_NewRef(task_box);
  p->c = c;
  return (PyObject *)p;
}
static void candidate_drop(PyObject *o) {
  PyCandidate *p = (PyCandidate *)o;
  cand_free(p->c);
  PY_DROP(p->dag, p->task_box);
  py_free_object(o);
}

bool py_steps_of(PyObject *o, int *n, const Step **step) {
  if (PyObject_TypeCheck(o, PyCandidate_Type)) {
    const Candidate *c = ((PyCandidate *)o)->c;
    *n = c->n_step, *step = c->step;
    return true;
  }
  const PyState *s = py_as_state(o);
  if (s) *n = s->state->step.len, *step = s->state->step.at;
  return s != NULL;
}

typedef struct {
  const SearchTask *t;
  const char *text; /* of the steps, instead of them */
  int n;
  const Step *step;
  unsigned want;
  Err err;
  Candidate *out;
  Arena *a;
} Make;
static void do_make(void *arg) {
  Make *x = arg;
  if (x->text) x->a = arena_new(&x->err), x->step = steps_parse(x->a, x->text, &x->n);
  x->out = cand_new(x->t, x->n, x->step, x->want, 0, NULL);
  if (x->text && x->out && x->out->code != NS_OK) err_raise(&x->err, x->out->code, "%s", x->out->why);
}
/* Of steps that a log holds: they may be anything. */
static const Candidate *of_text(PyObject *o, Make *x, Candidate **own) {
  if (!(x->text = py_utf8(o))) return NULL;
  ErrCode code = py_free(&x->err, do_make, x);
  arena_free(x->a);
  if (code != NS_OK) return cand_free(x->out), py_raise(&x->err, code), NULL;
  if (!x->out) PyErr_NoMemory();
  return *own = x->out;
}
const Candidate *py_candidate_of(PyObject *o, const SearchTask *t, unsigned want, Candidate **own) {
  Make x = {.t = t, .want = want};
  *own = NULL;
  err_init(&x.err);
  if (PyUnicode_Check(o)) return of_text(o, &x, own);
  if (!py_steps_of(o, &x.n, &x.step)) return NULL;
  if (PyObject_TypeCheck(o, PyCandidate_Type)) {
    const Candidate *c = ((PyCandidate *)o)->c;
    if (c->task == t && (c->want & want) == want) return c;
  }
  py_free(&x.err, do_make, &x);
  if (!x.out) PyErr_NoMemory();
  return *own = x.out;
}

PyObject *py_candidate_state(PyObject *o) {
  const PyCandidate *p = (const PyCandidate *)o;
  return py_state_of_steps(p->dag, p->c->n_step, p->c->step, true);
}
static PyObject *m_state(PyObject *o, PyObject *Py_UNUSED(u)) { return py_candidate_state(o); }

typedef struct {
  const Candidate *c;
  PyScratch s;
  char *text;
} Text;
ERR_BODY(do_steps, Text *x, x->text = steps_text(x->s.a, x->c->n_step, x->c->step))
static PyObject *m_steps(PyObject *o, PyObject *Py_UNUSED(u)) {
  Text x = {.c = ((PyCandidate *)o)->c};
  PyObject *r = py_scratch_run(&x.s, do_steps, &x) ? PyUnicode_FromString(x.text) : NULL;
  py_arena_free(x.s.a);
  return r;
}
static PyObject *get_score(PyObject *o, void *Py_UNUSED(u)) { return PyFloat_FromDouble(((PyCandidate *)o)->c->score); }

static PyGetSetDef GET[] = {{"score", get_score, NULL, "What the round ranked it by.", NULL},
                            {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef METHODS[] = {{"steps", m_steps, METH_NOARGS, "steps(): the steps as JSON text."},
                                {"state", m_state, METH_NOARGS, "state(): a new State, with all ranges inferred."},
                                {NULL, NULL, 0, NULL}};

static const PyClass CLASSES[] = {PY_CLASS(
    "Candidate", sizeof(PyCandidate), .type = &PyCandidate_Type, .drop = candidate_drop, .methods = METHODS, .get = GET,
    .doc = "What a round of a Policy found: a state with all that was made of it. Policy.report, hint and check, "
           "Learner.add and Session.submit take it as they take a State.")};

int py_init_candidate(PyObject *m) { return py_add(m, NS_COUNT(CLASSES), CLASSES, NULL); }
