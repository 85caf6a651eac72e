/* Module functions that build expressions: nodes by name, intrinsics, literals, variables and iterators. */
#include "py/py_te_int.h"

ERR_BODY(do_ite, PyCall *x, x->out = ex_if_then_else(SES, x->a[0], x->a[1], x->a[2]))
ERR_BODY(do_let, PyCall *x, x->out = ex_let_new(SES, x->v, x->a[0], x->a[1]))
ERR_BODY(do_max, PyCall *x, x->out = dtype_max_value(SES, x->t))
ERR_BODY(do_min, PyCall *x, x->out = dtype_min_value(SES, x->t))
ERR_BODY(do_neutral, PyCall *x, x->out = ex_neutral(SES, x->t, x->i != 0))
ERR_BODY(do_kept, PyCall *x, x->out = ex_kept_zero(SES, x->t, x->i != 0))
ERR_BODY(do_not, PyCall *x, x->out = ex_not(SES, x->a[0]))
ERR_BODY(do_reint, PyCall *x, x->out = ex_call(SES, IN_REINTERPRET, x->t, 1, x->a))
ERR_BODY(do_select, PyCall *x, x->out = ex_select(SES, x->a[0], x->a[1], x->a[2]))
static void do_var(void *p) {
  PyCall *x = p;
  x->v = ir_var_new(SES, x->s, x->t, x->i != 0);
  x->out = ex_var(SES, x->v);
}

static PyObject *fn_bin(PyObject *Py_UNUSED(m), PyObject *args) {
  const char *name;
  ExprId ab[2];
  if (!PyArg_ParseTuple(args, "sO&O&", &name, py_expr_arg, &ab[0], py_expr_arg, &ab[1])) return NULL;
  for (int k = IR_ADD; k <= IR_OR; k++)
    if (strcmp(PY_KIND_NAME[k], name) == 0) return py_engine_expr(py_do_bin, &(PyCall){.kind = (ExprKind)k, .a = ab});
  return PyErr_Format(PyExc_ValueError, "unknown binary node '%s'", name);
}
static PyObject *fn_not(PyObject *Py_UNUSED(m), PyObject *o) {
  ExprId e = py_expr_id(o);
  return e ? py_engine_expr(do_not, &(PyCall){.a = &e}) : NULL;
}
static PyObject *three(PyObject *args, ErrBody body) {
  ExprId a[3];
  if (!PyArg_ParseTuple(args, "O&O&O&", py_expr_arg, &a[0], py_expr_arg, &a[1], py_expr_arg, &a[2])) return NULL;
  return py_engine_expr(body, &(PyCall){.a = a});
}
static PyObject *fn_select(PyObject *Py_UNUSED(m), PyObject *args) { return three(args, do_select); }
static PyObject *fn_ite(PyObject *Py_UNUSED(m), PyObject *args) { return three(args, do_ite); }
static PyObject *fn_math(PyObject *Py_UNUSED(m), PyObject *args) {
  const char *name;
  PyObject *seq;
  Py_ssize_t n = 0;
  if (!PyArg_ParseTuple(args, "sO", &name, &seq)) return NULL;
  PyCall x = {.in = intrin_find(name)};
  if (x.in == IN_NONE) return PyErr_Format(PyExc_ValueError, "unknown intrinsic '%s'", name);
  ExprId *a = py_expr_list(seq, &n, "the arguments of an intrinsic must be a sequence");
  if (!a) return NULL;
  PyObject *r = NULL;
  x.n = (int)n, x.a = a;
  if (n != intrin_info(x.in)->arity) {
    PyErr_Format(PyExc_TypeError, "%s takes %d argument(s), not %zd", name, intrin_info(x.in)->arity, n);
  } else {
    r = py_engine_expr(py_do_math, &x);
  }
  PyMem_Free(a);
  return r;
}
static PyObject *fn_const(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *v, *t = Py_None;
  if (!PyArg_ParseTuple(args, "O|O", &v, &t)) return NULL;
  PyCall x = {0};
  ExprId e = py_expr_id(v);
  if (!e) return NULL;
  if (t == Py_None) return py_expr_new(e);
  if (!py_dtype(t, &x.t)) return NULL;
  if (PyLong_Check(v))
    e = py_from_int(v, x.t, true);
  else if (PyFloat_Check(v))
    e = py_from_float(v, x.t, true);
  else
    e = (x.a = &e, py_engine(py_do_cast, &x));
  return e ? py_expr_new(e) : NULL;
}
static PyObject *fn_var(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *t;
  int nonneg = 0;
  PyCall x = {0};
  if (!PyArg_ParseTuple(args, "sOp", &x.s, &t, &nonneg) || !py_dtype(t, &x.t)) return NULL;
  x.i = nonneg;
  return py_engine_expr(do_var, &x);
}
/* iter_var(name, min, extent, kind, tag): min and extent None for a thread axis without range. */
static PyObject *fn_iter_var(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *name, *lo, *ext, *tag;
  int kind;
  PyCall x = {.t = DT_I32};
  if (!PyArg_ParseTuple(args, "OOOiO", &name, &lo, &ext, &kind, &tag)) return NULL;
  bool given = PyObject_TypeCheck(name, PyVar_Type);
  if (given)
    x.v = ir_node(SES, ((PyExpr *)name)->id)->sym, x.s = ir_var_info(SES, x.v)->name;
  else if (!(x.s = py_utf8(name)))
    return NULL;
  ExprId min = 0, extent = 0;
  if (ext != Py_None) {
    if (!(min = py_expr_id(lo)) || !(extent = py_expr_id(ext))) return NULL;
    if (!py_is_integer(extent) || !py_is_integer(min))
      return PyErr_Format(PyExc_TypeError, "the range of iterator '%s' must be integer", x.s);
    x.t = ir_type(SES, extent);
  }
  return given || py_engine(do_var, &x) ? py_iter_new(x.v, min, extent, kind, tag) : NULL;
}
static PyObject *fn_let(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *v;
  ExprId a[2];
  if (!PyArg_ParseTuple(args, "O!O&O&", PyVar_Type, &v, py_expr_arg, &a[0], py_expr_arg, &a[1])) return NULL;
  return py_engine_expr(do_let, &(PyCall){.v = ir_node(SES, ((PyExpr *)v)->id)->sym, .a = a});
}
static PyObject *fn_limits(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *t;
  int max, neutral = 0;
  PyCall x = {0};
  if (!PyArg_ParseTuple(args, "Op|p", &t, &max, &neutral) || !py_dtype(t, &x.t)) return NULL;
  x.i = max;
  return py_engine_expr(neutral ? do_neutral : max ? do_max : do_min, &x);
}
static PyObject *fn_kept_zero(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *t;
  int negative;
  PyCall x = {0};
  if (!PyArg_ParseTuple(args, "Op", &t, &negative) || !py_dtype(t, &x.t)) return NULL;
  x.i = negative;
  return py_engine_expr(do_kept, &x);
}
static PyObject *fn_cast(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *t;
  ExprId e;
  int bits = 0;
  PyCall x = {.a = &e};
  if (!PyArg_ParseTuple(args, "OO&|p", &t, py_expr_arg, &e, &bits) || !py_dtype(t, &x.t)) return NULL;
  if (bits && dtype_bytes(x.t) != dtype_bytes(ir_type(SES, e)))
    return PyErr_Format(PyExc_ValueError, "reinterpret needs two types of the same size");
  return py_engine_expr(bits ? do_reint : py_do_cast, &x);
}

ERR_BODY(do_ramp, PyCall *x, x->out = ex_ramp(SES, x->a[0], x->a[1], x->n))
ERR_BODY(do_bcast, PyCall *x, x->out = ex_bcast(SES, x->a[0], x->n))
enum { LANES_MAX = 1024 };
static bool good_lanes(int n) {
  if (n >= 2 && n <= LANES_MAX) return true;
  PyErr_Format(PyExc_ValueError, "a vector has 2 to %d lanes, not %d", (int)LANES_MAX, n);
  return false;
}
static PyObject *fn_ramp(PyObject *Py_UNUSED(m), PyObject *args) {
  ExprId a[2];
  PyCall x = {.a = a};
  if (!PyArg_ParseTuple(args, "O&O&i", py_expr_arg, &a[0], py_expr_arg, &a[1], &x.n) || !good_lanes(x.n)) return NULL;
  DType t = ir_type(SES, a[0]);
  if (t.lanes != 1 || !dtype_eq(t, ir_type(SES, a[1])) || !py_is_integer(a[0])) {
    if (t.lanes != 1 || !py_is_integer(a[0]) || !py_is_integer(a[1]))
      return PyErr_Format(PyExc_TypeError, "a ramp begins with one integer and has a stride of its type");
    PyCall cast = {.a = a + 1, .t = t};
    if (!(a[1] = py_engine(py_do_cast, &cast))) return NULL;
  }
  return py_engine_expr(do_ramp, &x);
}
static PyObject *fn_broadcast(PyObject *Py_UNUSED(m), PyObject *args) {
  ExprId e;
  PyCall x = {.a = &e};
  if (!PyArg_ParseTuple(args, "O&i", py_expr_arg, &e, &x.n) || !good_lanes(x.n)) return NULL;
  if (ir_type(SES, e).lanes != 1) return PyErr_Format(PyExc_TypeError, "a broadcast takes a scalar");
  return py_engine_expr(do_bcast, &x);
}

typedef struct {
  ExprId e, out;
  int n;
  VarSub *sub;
  int n_tensor;
  const TensorId *from, *to;
  PyObject *list;
} Walk;
static void do_subst(void *p) {
  Walk *w = p;
  w->out = ex_subst(SES, w->e, w->n, w->sub);
  for (int i = 0; i < w->n_tensor; i++) w->out = te_replace_tensor(SES, w->out, w->from[i], w->to[i]);
}
static TensorId *tensor_list(PyObject *seq, int n) {
  TensorId *t = py_calloc(n + 1, sizeof *t);
  for (int i = 0; t && i < n; i++)
    if (!(t[i] = py_tensor_id(PyList_GetItem(seq, i)))) {
      PyMem_Free(t);
      return NULL;
    }
  return t;
}
/* expr_substitute(expr, vars, values, from=[], to=[]): variables and tensors replaced. */
static PyObject *fn_substitute(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *vars, *values, *from = NULL, *to_list = NULL, *r = NULL;
  Py_ssize_t n = 0, k = 0;
  TensorId *old = NULL, *new = NULL;
  Walk w = {0};
  if (!PyArg_ParseTuple(args, "O&OO|O!O!", py_expr_arg, &w.e, &vars, &values, &PyList_Type, &from, &PyList_Type,
                        &to_list))
    return NULL;
  w.n_tensor = from && to_list ? (int)PyList_Size(from) : 0;
  if (w.n_tensor && (PyList_Size(to_list) != w.n_tensor || !(old = tensor_list(from, w.n_tensor)) ||
                     !(new = tensor_list(to_list, w.n_tensor)))) {
    PyMem_Free(old);
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "as many new tensors as old ones are needed");
  }
  w.from = old, w.to = new;
  ExprId *v = py_expr_list(vars, &n, "the variables must be a sequence"), *to = NULL;
  if (v) to = py_expr_list(values, &k, "the values must be a sequence");
  if (to && n != k) PyErr_Format(PyExc_ValueError, "%zd variables and %zd values", n, k);
  w.n = (int)n;
  if (to && n == k && (w.sub = py_calloc(n + 1, sizeof *w.sub))) {
    for (int i = 0; i < n; i++) w.sub[i] = (VarSub){ir_kind(SES, v[i]) == IR_VAR ? ir_node(SES, v[i])->sym : 0, to[i]};
    if (py_guard(py_session(), do_subst, &w)) r = py_expr_new(w.out);
  }
  PyMem_Free(w.sub), PyMem_Free(v), PyMem_Free(to), PyMem_Free(old), PyMem_Free(new);
  return r;
}

static void note_var(IrCtx *c, ExprId e, void *arg) {
  Walk *w = arg;
  if (ir_kind(c, e) != IR_VAR || !w->list) return;
  PyObject *v = py_expr_new(e);
  if (!v || PyList_Append(w->list, v) < 0) Py_CLEAR(w->list);
  Py_XDECREF(v);
}
ERR_BODY(do_vars, Walk *w, ex_post_order(SES, w->e, note_var, w))
/* expr_vars(expr): the variables in it, each once, in order of evaluation. */
static PyObject *fn_vars(PyObject *Py_UNUSED(m), PyObject *o) {
  Walk w = {.e = py_expr_id(o)};
  if (!w.e || !(w.list = PyList_New(0))) return NULL;
  if (!py_guard(py_session(), do_vars, &w)) Py_CLEAR(w.list);
  return w.list;
}

static PyMethodDef FUNCS[] = {
    {"expr_bin", fn_bin, METH_VARARGS, "expr_bin(kind, a, b): a binary node by its name, e.g. 'FloorDiv'."},
    {"expr_not", fn_not, METH_O, "expr_not(a): logical negation."},
    {"expr_select", fn_select, METH_VARARGS, "expr_select(cond, t, f): both sides are evaluated."},
    {"expr_if_then_else", fn_ite, METH_VARARGS, "expr_if_then_else(cond, t, f): only the chosen side is evaluated."},
    {"expr_math", fn_math, METH_VARARGS, "expr_math(name, args): an intrinsic by its name."},
    {"expr_const", fn_const, METH_VARARGS, "expr_const(value, dtype=None): a literal."},
    {"expr_var", fn_var, METH_VARARGS, "expr_var(name, dtype, nonneg): a new variable."},
    {"expr_iter_var", fn_iter_var, METH_VARARGS,
     "expr_iter_var(name, min, extent, kind, tag): a new iterator; name: or its variable."},
    {"expr_let", fn_let, METH_VARARGS, "expr_let(var, value, body)."},
    {"expr_limit", fn_limits, METH_VARARGS,
     "expr_limit(dtype, is_max, neutral=False): lowest or highest finite value; neutral: floats print as that value "
     "and compute as the infinity."},
    {"expr_kept_zero", fn_kept_zero, METH_VARARGS,
     "expr_kept_zero(dtype, negative): a zero of floats that is not folded away (x * 0 stays); texts show 0."},
    {"expr_cast", fn_cast, METH_VARARGS, "expr_cast(dtype, value, reinterpret=False)."},
    {"expr_ramp", fn_ramp, METH_VARARGS, "expr_ramp(base, stride, lanes): base, base + stride, ..."},
    {"expr_broadcast", fn_broadcast, METH_VARARGS, "expr_broadcast(value, lanes): lanes times the same."},
    {"expr_substitute", fn_substitute, METH_VARARGS,
     "expr_substitute(expr, vars, values, from=[], to=[]): with variables and tensors replaced."},
    {"expr_vars", fn_vars, METH_O, "expr_vars(expr): its variables, each once."},
    {NULL, NULL, 0, NULL}};

int py_init_expr_functions(PyObject *m) { return PyModule_AddFunctions(m, FUNCS); }
