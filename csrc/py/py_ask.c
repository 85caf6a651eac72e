/* Binding of tune that needs no policy: the source of a candidate. */
#include "py/py_search.h"

typedef struct {
  Err err;
  PyState *s;
  PySteps own;
  Target t;
  int layout;
  const char *name;
  GenArgs args;
  GenText out;
} Source;
ERR_BODY(do_source, Source *x,
         x->out = gen_steps(x->own.ctx, x->s->dag->dag, &x->t, x->own.n, x->own.step, x->layout, x->name, &x->args))
static PyObject *f_source(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *so;
  Source x = {.layout = 0, .name = "main"};
  unsigned long long constant = 0;
  long long extent = 0;
  if (!PyArg_ParseTuple(args, "OO&|isKiL", &so, py_target, &x.t, &x.layout, &x.name, &constant, &x.args.join_dim,
                        &extent))
    return NULL;
  x.args.constant = constant, x.args.join_extent = extent;
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
    {"candidate_source", f_source, METH_VARARGS,
     "candidate_source(state, target, layout=0, name='main', constant=0, join_dim=0, join_extent=0): (source text, "
     "manifest JSON). Bit k of constant: no kernel writes to argument k while its network runs. join_extent: the last "
     "argument is a part of a tensor that has so many elements along join_dim; 0: it is whole."},
    {NULL, NULL, 0, NULL}};

int py_init_ask(PyObject *m) { return PyModule_AddFunctions(m, FUNCTIONS); }
