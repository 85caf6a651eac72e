/* Bindings of search and tune that need no policy: questions about the stages of a state, default hardware parameters,
 * the factor table and the source of a candidate. */
#include "py/py_fields.h"
#include "py/py_search.h"
#include <string.h>

/* ---- questions about states ---- */

static PyObject *f_ask(PyObject *Py_UNUSED(m), PyObject *args) {
  const char *what;
  PyObject *so;
  int stage, other = -1;
  if (!PyArg_ParseTuple(args, "sOi|i", &what, &so, &stage, &other)) return NULL;
  PyState *st = py_as_state(so);
  if (!st) return NULL;
  const State *s = st->state;
  if (stage < 0 || stage >= s->stage.len || other >= s->stage.len)
    return PyErr_Format(PyExc_IndexError, "stage %d: the state has %d stages", stage, s->stage.len);
  if (strcmp(what, "consumers") == 0 || strcmp(what, "producers") == 0) {
    int c[256], n = what[0] == 'c' ? pred_consumers(s, stage, c, 256) : pred_producers(s, stage, c, 256);
    return py_list(FIELD_I32, n, c);
  }
  if (strcmp(what, "tiled") == 0) return PyBool_FromLong(pred_is_tiled(s, stage));
  if (strcmp(what, "cache_read") == 0) return PyBool_FromLong(pred_has_step(s, stage, STEP_CHR));
  if (strcmp(what, "cache_write") == 0) return PyBool_FromLong(pred_has_step(s, stage, STEP_CHW));
  if (strcmp(what, "rfactor") == 0) return PyBool_FromLong(pred_has_step(s, stage, STEP_RF));
  if (strcmp(what, "cross_thread") == 0) return PyBool_FromLong(pred_cross_thread(s, stage));
  if (strcmp(what, "elementwise") == 0 && other >= 0)
    return PyBool_FromLong(te_elementwise_match(s->ctx, s->dag, stage, other));
  return PyErr_Format(PyExc_ValueError, "unknown question %s", what);
}

typedef struct {
  PyScratch s;
  long long extent, last;
  int n;
  int64_t count, *out;
} Factors;
ERR_BODY(do_factors, Factors *x, x->count = factor_list(x->s.a, x->extent, x->n, x->last, &x->out))
static PyObject *f_factors(PyObject *Py_UNUSED(m), PyObject *args) {
  Factors x = {.n = 0};
  if (!PyArg_ParseTuple(args, "LiL", &x.extent, &x.n, &x.last)) return NULL;
  if (x.extent < 1 || x.n < 1 || x.n > 8)
    return PyErr_Format(PyExc_ValueError, "factor_tuples: extent %lld and count %d must be positive", x.extent, x.n);
  PyObject *l = py_scratch_run(&x.s, do_factors, &x) ? PyList_New((Py_ssize_t)x.count) : NULL;
  for (int64_t i = 0; l && i < x.count; i++) py_put(&l, i, py_tuple(FIELD_I64, x.n, x.out + i * x.n));
  py_arena_free(x.s.a);
  return l;
}

/* ---- source of a candidate ---- */

typedef struct {
  Err err;
  PyState *s;
  PySteps own;
  Target t;
  int layout;
  const char *name;
  GenText out;
} Source;
ERR_BODY(do_source, Source *x,
         x->out = gen_steps(x->own.ctx, x->s->dag->dag, &x->t, x->own.n, x->own.step, x->layout, x->name))
static PyObject *f_source(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *so;
  Source x = {.layout = 0, .name = "main"};
  if (!PyArg_ParseTuple(args, "OO&|is", &so, py_target, &x.t, &x.layout, &x.name)) return NULL;
  if (!(x.s = py_as_state(so))) return NULL;
  if (!x.s->dag)
    return PyErr_Format(PyExc_TypeError, "state: it was made from a te schedule and has no steps to replay");
  err_init(&x.err);
  if (!py_state_steps(x.s, &x.err, &x.own)) return NULL;
  bool ok = py_free_ok(&x.err, do_source, &x);
  if (ok && x.out.why) PyErr_SetString(PyExc_ValueError, x.out.why);
  PyObject *r = ok && !x.out.why ? Py_BuildValue("ss", x.out.source, x.out.manifest) : NULL;
  ir_free(x.own.ctx);
  return r;
}

static PyMethodDef FUNCTIONS[] = {
    {"state_ask", f_ask, METH_VARARGS,
     "state_ask(question, state, stage[, other]): consumers, producers, tiled, cache_read, cache_write, rfactor, "
     "cross_thread, elementwise."},
    {"factor_tuples", f_factors, METH_VARARGS,
     "factor_tuples(extent, n, last_max): all splits into n factors, in sampling order."},
    {"candidate_source", f_source, METH_VARARGS,
     "candidate_source(state, target, layout=0, name='main'): (source text, manifest JSON)."},
    {NULL, NULL, 0, NULL}};

int py_init_ask(PyObject *m) { return PyModule_AddFunctions(m, FUNCTIONS); }
