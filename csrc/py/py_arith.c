/* The index algebra in Python: one call is one question, with the facts that are known, so that nothing lives between calls. */
#include "py/py_te_int.h"

typedef enum { ASK_SIMPLIFY, ASK_BOUND, ASK_RESIDUE, ASK_PROVE } Ask;
typedef struct {
  VarId var;   /* 0: a condition that holds */
  ExprId a, b; /* range: first value and extent; value: b 0; condition: a */
} Fact;
typedef struct {
  Ask ask;
  int n;
  Fact *fact;
  ExprId e, out;
  Bound bound;
  Residue residue;
  bool yes;
} Question;

static void answer(void *p) {
  Question *q = p;
  Arith *a = ar_new(SES);
  for (int i = 0; i < q->n; i++) {
    const Fact *f = q->fact + i;
    if (!f->var)
      ar_push(a, f->a);
    else if (f->b)
      ar_bind_range(a, f->var, f->a, f->b);
    else
      ar_bind_value(a, f->var, f->a);
  }
  switch (q->ask) {
  case ASK_SIMPLIFY: q->out = ar_simplify(a, q->e); break;
  case ASK_BOUND: q->bound = ar_bound(a, q->e); break;
  case ASK_RESIDUE: q->residue = ar_residue(a, q->e); break;
  case ASK_PROVE: q->yes = ar_prove(a, q->e); break;
  }
}

static bool one_fact(PyObject *o, Fact *f) {
  PyObject *v, *a, *b;
  if (!PyArg_ParseTuple(o, "OOO", &v, &a, &b)) return false;
  if (v != Py_None) {
    if (!PyObject_TypeCheck(v, PyVar_Type)) {
      PyErr_Format(PyExc_TypeError, "a fact is about a variable, not %s", PY_TYPE_NAME(v));
      return false;
    }
    f->var = ir_node(SES, ((PyExpr *)v)->id)->sym;
  }
  return (f->a = py_expr_id(a)) != 0 && (b == Py_None || (f->b = py_expr_id(b)) != 0);
}

/* (expression, facts) of the call; facts: (variable or None, expression, extent or None) each. PyMem_Free frees q->fact. */
static bool read_question(PyObject *args, Question *q) {
  PyObject *facts;
  if (!PyArg_ParseTuple(args, "O&O!", py_expr_arg, &q->e, &PyTuple_Type, &facts)) return false;
  q->n = (int)PyTuple_Size(facts);
  q->fact = py_calloc(q->n + 1, sizeof *q->fact);
  if (!q->fact) return false;
  for (int i = 0; i < q->n; i++)
    if (!one_fact(PyTuple_GetItem(facts, i), q->fact + i)) return false;
  return true;
}

static bool ask(PyObject *args, Question *q) {
  PyCtx *c = py_session();
  bool ok = c && read_question(args, q) && py_guard(c, answer, q);
  PyMem_Free(q->fact);
  return ok;
}

static PyObject *fn_simplify(PyObject *Py_UNUSED(m), PyObject *args) {
  Question q = {.ask = ASK_SIMPLIFY};
  return ask(args, &q) ? py_expr_new(q.out) : NULL;
}
static PyObject *fn_bound(PyObject *Py_UNUSED(m), PyObject *args) {
  Question q = {.ask = ASK_BOUND};
  return ask(args, &q) ? Py_BuildValue("LL", (long long)q.bound.lo, (long long)q.bound.hi) : NULL;
}
static PyObject *fn_residue(PyObject *Py_UNUSED(m), PyObject *args) {
  Question q = {.ask = ASK_RESIDUE};
  return ask(args, &q) ? Py_BuildValue("LL", (long long)q.residue.coeff, (long long)q.residue.base) : NULL;
}
static PyObject *fn_prove(PyObject *Py_UNUSED(m), PyObject *args) {
  Question q = {.ask = ASK_PROVE};
  return ask(args, &q) ? PyBool_FromLong(q.yes) : NULL;
}

static PyMethodDef FUNCS[] = {
    {"arith_simplify", fn_simplify, METH_VARARGS, "arith_simplify(expr, facts): the simplified expression."},
    {"arith_bound", fn_bound, METH_VARARGS,
     "arith_bound(expr, facts): (smallest, largest value); -2^63 and 2^63-1: not known."},
    {"arith_residue", fn_residue, METH_VARARGS, "arith_residue(expr, facts): (coeff, base): it is base modulo coeff."},
    {"arith_prove", fn_prove, METH_VARARGS, "arith_prove(condition, facts): True only if it always holds."},
    {NULL, NULL, 0, NULL}};

int py_init_arith(PyObject *m) { return PyModule_AddFunctions(m, FUNCS); }
