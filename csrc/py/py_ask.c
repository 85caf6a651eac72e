/* Bindings of search and tune that need no policy: the factor table and the source of a candidate. */
#include "py/py_fields.h"
#include "py/py_search.h"

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
    {"factor_tuples", f_factors, METH_VARARGS,
     "factor_tuples(extent, n, last_max): all splits into n factors, in sampling order."},
    {"candidate_source", f_source, METH_VARARGS,
     "candidate_source(state, target, layout=0, name='main'): (source text, manifest JSON)."},
    {NULL, NULL, 0, NULL}};

int py_init_ask(PyObject *m) { return PyModule_AddFunctions(m, FUNCTIONS); }
