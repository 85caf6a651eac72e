/* Expressions in Python: Expr and its kinds.
 *
 * An Expr object is an id in the session's context; structurally equal expressions have equal ids, so hashing and
 * sameness are those of numbers. Operators call the engine's builders, which match types and fold; nothing is decided
 * here. `a == b` gives a deferred comparison: used as an expression it becomes an EQ node, used as a truth value it
 * says whether both sides are the same expression, so that expressions can be keys of dictionaries.
 */
#include "py/py_fields.h"
#include "py/py_te_int.h"

PyTypeObject *PyExpr_Type, *PyVar_Type, *PyIterVar_Type, *PyDeferred_Type, *PyIntImm_Type;

const char *const PY_KIND_NAME[IR_KIND_COUNT] = {
    [IR_NONE] = "None",     [IR_INT] = "IntImm",      [IR_FLT] = "FloatImm",  [IR_STR] = "StringImm",
    [IR_VAR] = "Var",       [IR_ADD] = "Add",         [IR_SUB] = "Sub",       [IR_MUL] = "Mul",
    [IR_DIV] = "Div",       [IR_MOD] = "Mod",         [IR_FDIV] = "FloorDiv", [IR_FMOD] = "FloorMod",
    [IR_MIN] = "Min",       [IR_MAX] = "Max",         [IR_EQ] = "EQ",         [IR_NE] = "NE",
    [IR_LT] = "LT",         [IR_LE] = "LE",           [IR_GT] = "GT",         [IR_GE] = "GE",
    [IR_AND] = "And",       [IR_OR] = "Or",           [IR_NOT] = "Not",       [IR_CAST] = "Cast",
    [IR_SELECT] = "Select", [IR_CALL] = "Call",       [IR_LET] = "Let",       [IR_READ] = "ProducerLoad",
    [IR_REDUCE] = "Reduce", [IR_LOAD] = "BufferLoad", [IR_RAMP] = "Ramp",     [IR_BCAST] = "Broadcast"};

/* ---- calling the engine ---- */

bool py_try(Err *e, ErrBody body, void *arg) {
  ErrCode code = err_try(e, body, arg);
  if (code != NS_OK) py_raise(e, code);
  return code == NS_OK;
}
bool py_guard(PyCtx *c, ErrBody body, void *arg) { return py_try(&c->err, body, arg); }

typedef struct {
  const IrCtx *src;
  IrCtx *out;
  Err *err;
} Clone;
ERR_BODY(do_clone, Clone *x, x->out = x->src ? ir_clone(x->src, x->err) : ir_new(x->err))
IrCtx *py_clone(const IrCtx *src, Err *e) {
  Clone x = {.src = src, .err = e};
  py_try(e, do_clone, &x);
  return x.out;
}

IrCtx *py_context(Err *e) {
  IrCtx *c = py_clone(NULL, e);
  if (c && getenv("NESTSMITH_VERIFY")) ir_set_verify(c, true);
  return c;
}

ERR_BODY(do_limit, Clone *x, ir_limit(x->out))
IrCtx *py_candidate(const IrCtx *src, Err *e) {
  Clone x = {.out = py_clone(src, e), .err = e};
  if (!x.out || py_try(e, do_limit, &x)) return x.out;
  ir_free(x.out);
  return NULL;
}

void py_do_bin(void *p) {
  PyCall *x = p;
  x->out = ex_bin(SES, x->kind, x->a[0], x->a[1]);
}
void py_do_cast(void *p) {
  PyCall *x = p;
  x->out = ex_cast(SES, x->t, x->a[0]);
}
void py_do_zero(void *p) {
  PyCall *x = p;
  x->out = ex_zero(SES, x->t);
}
void py_do_math(void *p) {
  PyCall *x = p;
  x->out = ex_math(SES, x->in, x->n, x->a);
}
ERR_BODY(do_int, PyCall *x, x->out = ex_int(SES, x->t, x->i))
ERR_BODY(do_flt, PyCall *x, x->out = ex_flt(SES, x->t, x->f))
ERR_BODY(do_str, PyCall *x, x->out = ex_str(SES, x->s))

ExprId py_engine(ErrBody body, PyCall *x) {
  PyCtx *c = py_session();
  if (!c || !py_guard(c, body, x)) return 0;
  return x->out;
}

PyObject *py_engine_expr(ErrBody body, PyCall *x) {
  ExprId e = py_engine(body, x);
  return e ? py_expr_new(e) : NULL;
}

/* ---- conversions ---- */

static PyObject *alloc_expr(PyTypeObject *t, ExprId e) {
  PyExpr *o = (PyExpr *)PyType_GenericAlloc(t, 0);
  if (o) o->id = e, py_scope_born(&o->scope);
  return (PyObject *)o;
}

PyObject *py_expr_new(ExprId e) { return alloc_expr(ir_kind(SES, e) == IR_VAR ? PyVar_Type : PyExpr_Type, e); }

PyObject *py_iter_new(VarId var, ExprId min, ExprId extent, int kind, PyObject *tag) {
  ExprId id = ex_var(SES, var); /* the node exists since the variable was made */
  PyIterVar *o = (PyIterVar *)alloc_expr(PyIterVar_Type, id);
  if (!o) return NULL;
  o->var = var, o->min = min, o->extent = extent, o->kind = kind;
  o->tag = Py_NewRef(tag ? tag : Py_None);
  return (PyObject *)o;
}

PyObject *py_dim_new(ExprId e) {
  int64_t v = 0;
  if (ex_const_int(SES, e, &v)) return PyObject_CallFunction((PyObject *)PyIntImm_Type, "L", (long long)v);
  return py_expr_new(e);
}

bool py_dtype(PyObject *o, DType *out) {
  PyObject *s = PyUnicode_Check(o) ? Py_NewRef(o) : PyObject_Str(o);
  const char *text = s ? py_utf8(s) : NULL;
  bool ok = text && dtype_parse(text, out);
  if (text && !ok)
    PyErr_Format(PyExc_ValueError, "unknown dtype '%s'; use a name such as \"float32\" or \"int8\"", text);
  Py_XDECREF(s);
  return ok;
}

PyObject *py_dtype_str(DType t) {
  char buf[64];
  const char *names[] = {"int", "uint", "float", "handle", "bfloat"};
  if (dtype_is_bool(t) || t.code == DT_HANDLE)
    snprintf(buf, sizeof buf, t.code == DT_HANDLE ? "handle" : "bool");
  else
    snprintf(buf, sizeof buf, "%s%d", names[t.code], t.bits);
  return t.lanes > 1 ? PyUnicode_FromFormat("%sx%d", buf, (int)t.lanes) : PyUnicode_FromString(buf);
}

ExprId py_from_int(PyObject *o, DType t, bool typed) {
  int overflow = 0;
  long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
  if (v == -1 && PyErr_Occurred()) return 0;
  if (overflow) {
    py_err_objects(PyExc_OverflowError, "the number %S does not fit 64 bits", o);
    return 0;
  }
  if (typed && t.code != DT_INT && t.code != DT_UINT) return py_engine(do_flt, &(PyCall){.t = t, .f = (double)v});
  if (!typed) t = v >= INT32_MIN && v <= INT32_MAX ? DT_I32 : DT_I64;
  return py_engine(do_int, &(PyCall){.t = t, .i = v});
}

ExprId py_from_float(PyObject *o, DType t, bool typed) {
  double v = PyFloat_AsDouble(o);
  if (v == -1.0 && PyErr_Occurred()) return 0;
  if (typed && (t.code == DT_INT || t.code == DT_UINT)) {
    if (!(v > -9.3e18 && v < 9.3e18)) {
      py_err_objects(PyExc_ValueError, "%R is no integer value", o);
      return 0;
    }
    return py_engine(do_int, &(PyCall){.t = t, .i = (int64_t)v});
  }
  return py_engine(do_flt, &(PyCall){.t = typed ? t : DT_F32, .f = v});
}

/* NumPy scalars keep their type; recognised by a dtype attribute with a known name. */
static bool numpy_type(PyObject *o, DType *t) {
  PyObject *d = PyObject_GetAttrString(o, "dtype"), *nd = PyObject_GetAttrString(o, "ndim");
  bool ok = false;
  if (d && nd && PyLong_Check(nd) && PyLong_AsLong(nd) == 0) {
    PyObject *s = PyObject_Str(d);
    const char *text = s ? py_utf8(s) : NULL;
    ok = text && dtype_parse(text, t);
    Py_XDECREF(s);
  }
  PY_DROP(d, nd);
  py_clear();
  return ok;
}

static ExprId from_deferred(PyDeferred *d) {
  ExprId ab[2] = {py_expr_id(d->a), 0};
  if (!ab[0] || !(ab[1] = py_expr_id(d->b))) return 0;
  return py_engine(py_do_bin, &(PyCall){.kind = (ExprKind)d->kind, .a = ab});
}

static bool is_number(PyObject *o) {
  DType t;
  return PyLong_Check(o) || PyFloat_Check(o) || (PyNumber_Check(o) && numpy_type(o, &t));
}

static bool is_exprlike(PyObject *o) { return PyObject_TypeCheck(o, PyExpr_Type) || is_number(o); }

ExprId py_expr_id(PyObject *o) {
  if (!py_session()) return 0;
  if (PyObject_TypeCheck(o, PyDeferred_Type)) return from_deferred((PyDeferred *)o);
  if (PyObject_TypeCheck(o, PyExpr_Type)) return ((PyExpr *)o)->id;
  if (PyBool_Check(o)) return py_engine(do_int, &(PyCall){.t = DT_BOOL, .i = o == Py_True});
  if (PyLong_Check(o)) return py_from_int(o, DT_I32, false);
  DType t;
  if (!PyFloat_CheckExact(o) && !PyUnicode_Check(o) && !PyObject_TypeCheck(o, PyTensor_Type) && numpy_type(o, &t)) {
    PyObject *v = PyObject_CallMethod(o, "item", NULL);
    if (!v) return 0;
    ExprId e = PyFloat_Check(v) ? py_from_float(v, t, true) : PyLong_Check(v) ? py_from_int(v, t, true) : 0;
    Py_DECREF(v);
    if (e || PyErr_Occurred()) return e;
  }
  if (PyFloat_Check(o)) return py_from_float(o, DT_F32, false);
  if (PyUnicode_Check(o)) {
    const char *s = py_utf8(o);
    return s ? py_engine(do_str, &(PyCall){.s = s}) : 0;
  }
  if (PyObject_TypeCheck(o, PyTensor_Type) || PyObject_TypeCheck(o, PyTensorSlice_Type)) {
    PyErr_SetString(PyExc_TypeError, "a tensor is used where a scalar is needed; index it with all its dimensions");
    return 0;
  }
  PyErr_Format(PyExc_TypeError, "expected an expression or a number, not %s", PY_TYPE_NAME(o));
  return 0;
}
int py_expr_arg(PyObject *o, void *id) { return (*(ExprId *)id = py_expr_id(o)) != 0; }

ExprId *py_expr_list(PyObject *seq, Py_ssize_t *n, const char *what) {
  PyObject *fast = PySequence_Fast(seq, what);
  if (!fast) return NULL;
  *n = PySequence_Size(fast);
  ExprId *out = py_array(FIELD_EXPR, fast);
  Py_DECREF(fast);
  return out;
}

/* ---- text ---- */

typedef struct {
  Arena *a;
  StrBuf b;
  ExprId e;
} Text;
static void do_text(void *p) {
  Text *x = p;
  x->a = arena_new(ir_err(SES));
  sb_init(&x->b, x->a);
  ex_print(SES, &x->b, x->e);
  sb_str(&x->b);
}

static PyObject *py_expr_text(ExprId e) {
  Text x = {.e = e};
  PyObject *s = NULL;
  if (py_guard(py_session(), do_text, &x)) s = PyUnicode_DecodeUTF8(x.b.at, (Py_ssize_t)x.b.len, "replace");
  py_arena_free(x.a);
  return s;
}

static PyObject *expr_str(PyObject *o) {
  ExprId e = py_expr_id(o);
  return e ? py_expr_text(e) : NULL;
}

/* ---- operators ---- */

static bool is_tensor(PyObject *o) { return PyObject_TypeCheck(o, PyTensor_Type); }

static bool pair(PyObject *a, PyObject *b, ExprId ab[2]) { return (ab[0] = py_expr_id(a)) && (ab[1] = py_expr_id(b)); }

static PyObject *binary(ExprKind k, PyObject *a, PyObject *b) {
  if (!is_exprlike(a) || !is_exprlike(b)) Py_RETURN_NOTIMPLEMENTED;
  ExprId ab[2];
  return pair(a, b, ab) ? py_engine_expr(py_do_bin, &(PyCall){.kind = k, .a = ab}) : NULL;
}

static PyObject *arith(ExprKind k, const char *topi, PyObject *a, PyObject *b) {
  if (is_tensor(a) || is_tensor(b)) return py_tensor_arith(topi, a, b);
  return binary(k, a, b);
}

PyObject *py_expr_add(PyObject *a, PyObject *b) { return arith(IR_ADD, "add", a, b); }
PyObject *py_expr_sub(PyObject *a, PyObject *b) { return arith(IR_SUB, "subtract", a, b); }
PyObject *py_expr_mul(PyObject *a, PyObject *b) { return arith(IR_MUL, "multiply", a, b); }
PyObject *py_expr_fdiv(PyObject *a, PyObject *b) { return arith(IR_FDIV, "floor_divide", a, b); }
PyObject *py_expr_fmod(PyObject *a, PyObject *b) { return arith(IR_FMOD, "floor_mod", a, b); }

bool py_is_integer(ExprId e) {
  DType t = ir_type(SES, e);
  return t.code == DT_INT || t.code == DT_UINT;
}

PyObject *py_expr_div(PyObject *a, PyObject *b) {
  if (is_tensor(a) || is_tensor(b)) return py_tensor_arith("divide", a, b);
  if (!is_exprlike(a) || !is_exprlike(b)) Py_RETURN_NOTIMPLEMENTED;
  ExprId ab[2];
  if (!pair(a, b, ab)) return NULL;
  if (py_is_integer(ab[0]) && py_is_integer(ab[1])) {
    PyErr_SetString(PyExc_RuntimeError,
                    "a / b of two integers is ambiguous; use te.indexdiv or te.floordiv to round down, "
                    "te.truncdiv to round toward zero");
    return NULL;
  }
  return py_engine_expr(py_do_bin, &(PyCall){.kind = IR_DIV, .a = ab});
}

static void do_bits(void *p) {
  PyCall *x = p;
  int64_t by;
  if ((x->in == IN_SHL || x->in == IN_SHR) && ex_const_int(SES, x->a[1], &by))
    err_check(ir_err(SES), by >= 0 && by < ir_type(SES, x->a[0]).bits,
              "the amount of a shift must be non-negative and less than %d, not %lld", (int)ir_type(SES, x->a[0]).bits,
              (long long)by);
  py_do_math(p);
}

static PyObject *bitop(Intrin in, PyObject *a, PyObject *b) {
  if (!is_exprlike(a) || !is_exprlike(b)) Py_RETURN_NOTIMPLEMENTED;
  ExprId ab[2];
  if (!pair(a, b, ab)) return NULL;
  return py_engine_expr(do_bits, &(PyCall){.in = in, .n = 2, .a = ab});
}
static PyObject *expr_shl(PyObject *a, PyObject *b) { return bitop(IN_SHL, a, b); }
static PyObject *expr_shr(PyObject *a, PyObject *b) { return bitop(IN_SHR, a, b); }
static PyObject *expr_and(PyObject *a, PyObject *b) { return bitop(IN_BAND, a, b); }
static PyObject *expr_or(PyObject *a, PyObject *b) { return bitop(IN_BOR, a, b); }
static PyObject *expr_xor(PyObject *a, PyObject *b) { return bitop(IN_BXOR, a, b); }

static PyObject *expr_neg(PyObject *a) { /* a * -1, the literal in the type of a */
  ExprId ab[2] = {py_expr_id(a), 0};
  if (!ab[0]) return NULL;
  DType t = ir_type(SES, ab[0]);
  t.lanes = 1;
  ab[1] = py_is_integer(ab[0]) ? py_engine(do_int, &(PyCall){.t = t, .i = -1})
                               : py_engine(do_flt, &(PyCall){.t = t, .f = -1});
  return ab[1] ? py_engine_expr(py_do_bin, &(PyCall){.kind = IR_MUL, .a = ab}) : NULL;
}

static PyObject *expr_invert(PyObject *a) {
  ExprId e = py_expr_id(a);
  return e ? py_engine_expr(py_do_math, &(PyCall){.in = IN_BNOT, .n = 1, .a = &e}) : NULL;
}

static PyObject *expr_abs(PyObject *a) {
  ExprId e = py_expr_id(a);
  return e ? py_engine_expr(py_do_math, &(PyCall){.in = IN_FABS, .n = 1, .a = &e}) : NULL;
}

static int expr_bool(PyObject *o) {
  if (PyObject_TypeCheck(o, PyDeferred_Type)) {
    PyDeferred *d = (PyDeferred *)o;
    ExprId a = is_exprlike(d->a) ? py_expr_id(d->a) : 0, b = a && is_exprlike(d->b) ? py_expr_id(d->b) : 0;
    py_clear();
    bool same = a && a == b;
    return d->kind == IR_EQ ? same : !same;
  }
  PyErr_SetString(PyExc_ValueError,
                  "an expression has no truth value; use te.all, te.any or te.if_then_else instead of "
                  "and, or, not and if");
  return -1;
}

static PyObject *constant(PyObject *o, bool want_float) {
  ExprId e = py_expr_id(o);
  if (!e) return NULL;
  const ExprNode *n = ir_node(SES, e);
  if (n->kind == IR_INT) return want_float ? PyFloat_FromDouble((double)n->u.i) : PyLong_FromLongLong(n->u.i);
  if (n->kind == IR_FLT) return want_float ? PyFloat_FromDouble(n->u.f) : PyLong_FromDouble(n->u.f);
  py_err_objects(PyExc_TypeError, "%S is not a constant", o);
  return NULL;
}
static PyObject *expr_int(PyObject *o) { return constant(o, false); }
static PyObject *expr_float(PyObject *o) { return constant(o, true); }
static PyObject *expr_index(PyObject *o) {
  ExprId e = py_expr_id(o);
  if (e && ir_kind(SES, e) == IR_INT) return PyLong_FromLongLong(ir_node(SES, e)->u.i);
  if (!PyErr_Occurred()) py_err_objects(PyExc_TypeError, "%S is not a constant integer", o);
  return NULL;
}

static PyObject *expr_compare(PyObject *a, PyObject *b, int op) {
  static const ExprKind KIND[] = {
      [Py_LT] = IR_LT, [Py_LE] = IR_LE, [Py_EQ] = IR_EQ, [Py_NE] = IR_NE, [Py_GT] = IR_GT, [Py_GE] = IR_GE};
  if (op != Py_EQ && op != Py_NE) return binary(KIND[op], a, b);
  PyDeferred *d = (PyDeferred *)alloc_expr(PyDeferred_Type, 0);
  if (!d) return NULL;
  d->kind = (int)KIND[op], d->a = Py_NewRef(a), d->b = Py_NewRef(b);
  return (PyObject *)d;
}

static Py_hash_t expr_hash(PyObject *o) {
  ExprId e = py_expr_id(o);
  return e ? (Py_hash_t)e : -1;
}

static void expr_dealloc(PyObject *o) {
  py_scope_dies(((PyExpr *)o)->scope);
  py_free_object(o);
}
static void deferred_dealloc(PyObject *o) {
  PY_DROP(((PyDeferred *)o)->a, ((PyDeferred *)o)->b);
  expr_dealloc(o);
}
static void iter_dealloc(PyObject *o) {
  Py_CLEAR(((PyIterVar *)o)->tag);
  expr_dealloc(o);
}

/* ---- attributes and methods ---- */

static PyObject *get_dtype(PyObject *o, void *Py_UNUSED(u)) {
  ExprId e = py_expr_id(o);
  return e ? py_dtype_str(ir_type(SES, e)) : NULL;
}
static PyObject *get_kind(PyObject *o, void *Py_UNUSED(u)) {
  ExprId e = py_expr_id(o);
  return e ? PyUnicode_FromString(PY_KIND_NAME[ir_kind(SES, e)]) : NULL;
}
static PyObject *get_value(PyObject *o, void *Py_UNUSED(u)) {
  ExprId e = py_expr_id(o);
  if (!e) return NULL;
  const ExprNode *n = ir_node(SES, e);
  if (n->kind == IR_INT || n->kind == IR_FLT) return constant(o, n->kind == IR_FLT);
  if (n->kind == IR_CAST) return py_expr_new(ir_kid(SES, e, 0));
  if (n->kind == IR_STR) return py_text(ir_string(SES, e));
  PyErr_Format(PyExc_AttributeError, "%s has no attribute 'value'; it is not a literal", PY_KIND_NAME[n->kind]);
  return NULL;
}
static PyObject *get_args(PyObject *o, void *Py_UNUSED(u)) {
  ExprId e = py_expr_id(o);
  if (!e) return NULL;
  int n = ir_node(SES, e)->n;
  PyObject *t = PyTuple_New(n);
  for (int i = 0; t && i < n; i++) py_put(&t, i, py_expr_new(ir_kid(SES, e, i)));
  return t;
}
static PyObject *get_operand(PyObject *o, void *u) {
  ExprId e = py_expr_id(o);
  if (!e) return NULL;
  int i = (int)(intptr_t)u;
  ExprKind k = ir_kind(SES, e);
  if (ir_is_binary(k) || (k == IR_NOT && i == 0)) return py_expr_new(ir_kid(SES, e, i));
  PyErr_Format(PyExc_AttributeError, "%s has no attribute '%s'", PY_KIND_NAME[k], i ? "b" : "a");
  return NULL;
}
static PyObject *get_name(PyObject *o, void *Py_UNUSED(u)) {
  return PyUnicode_FromString(ir_var_info(SES, ir_node(SES, ((PyExpr *)o)->id)->sym)->name);
}

/* What a load, a call or a reduction refers to; for tools that walk expressions. */
static PyObject *get_symbol(PyObject *o, void *Py_UNUSED(u)) {
  ExprId e = py_expr_id(o);
  if (!e) return NULL;
  const ExprNode n = *ir_node(SES, e);
  if (n.kind == IR_READ) return py_tensor_new(n.sym);
  if (n.kind == IR_LOAD) return PyLong_FromLong(n.sym);
  if (n.kind == IR_CALL) return PyUnicode_FromString(intrin_info((Intrin)n.sym)->name);
  if (n.kind != IR_REDUCE)
    return PyErr_Format(PyExc_AttributeError, "%s has no attribute 'symbol'", PY_KIND_NAME[n.kind]);
  IrReduce r = *ir_reduce(SES, e);
  IrReducer c = *ir_reducer(SES, r.reducer);
  PyObject *axes = PyList_New(r.n_axis), *comb = PyList_New(r.n_src);
  for (int i = 0; axes && i < r.n_axis; i++)
    py_put(&axes, i, py_iter_new(r.axis[i].var, r.axis[i].min, r.axis[i].extent, IV_REDUCE, NULL));
  for (int i = 0; comb && i < r.n_src; i++)
    py_put(&comb, i,
           Py_BuildValue("(NNNN)", py_expr_new(ex_var(SES, c.lhs[i])), py_expr_new(ex_var(SES, c.rhs[i])),
                         py_expr_new(c.result[i]), py_expr_new(c.identity[i])));
  return Py_BuildValue("{s:N,s:N,s:N,s:N,s:N,s:i}", "axis", axes, "source", py_list(FIELD_EXPR, r.n_src, r.src),
                       "combiner", comb, "condition", py_expr_new(r.cond), "init",
                       py_list(FIELD_EXPR, r.init ? r.n_src : 0, r.init), "value_index",
                       (int)r.value_index); /* no init: the identity */
}

static PyObject *expr_astype(PyObject *o, PyObject *arg) {
  PyCall x = {0};
  ExprId e = py_expr_id(o);
  if (!e || !py_dtype(arg, &x.t)) return NULL;
  x.a = &e;
  return py_engine_expr(py_do_cast, &x);
}
static PyObject *expr_equal(PyObject *a, PyObject *b) { return binary(IR_EQ, a, b); }
static PyObject *expr_same(PyObject *a, PyObject *b) {
  if (!PyObject_TypeCheck(b, PyExpr_Type)) Py_RETURN_FALSE;
  ExprId x = py_expr_id(a), y = x ? py_expr_id(b) : 0;
  return x && y ? PyBool_FromLong(x == y) : NULL;
}
static PyObject *expr_asobject(PyObject *o, PyObject *Py_UNUSED(u)) {
  ExprId e = py_expr_id(o);
  return e ? py_expr_new(e) : NULL;
}

static PyObject *iter_get(PyObject *o, void *u) {
  PyIterVar *v = (PyIterVar *)o;
  switch ((int)(intptr_t)u) {
  case 0: return py_expr_new(v->base.id);
  case 1: return v->min ? py_dim_new(v->min) : Py_NewRef(Py_None);
  case 2: return v->extent ? py_dim_new(v->extent) : Py_NewRef(Py_None);
  case 3: return PyLong_FromLong(v->kind);
  default: return Py_NewRef(v->tag);
  }
}
static PyObject *iter_dom(PyObject *o, void *Py_UNUSED(u)) {
  PyIterVar *v = (PyIterVar *)o;
  if (!v->extent) return Py_NewRef(Py_None);
  PyObject *mod = PyImport_ImportModule("nestsmith.tir");
  PyObject *r = mod ? PyObject_CallMethod(mod, "_range", "NN", py_dim_new(v->min), py_dim_new(v->extent)) : NULL;
  Py_XDECREF(mod);
  return r;
}
static PyObject *iter_repr(PyObject *o) {
  PyIterVar *v = (PyIterVar *)o;
  PyObject *lo = NULL, *ext = NULL, *r = NULL;
  const char *name = ir_var_info(SES, v->var)->name;
  if (!v->extent) return py_text_objects("iter_var(%s, %S)", name, v->tag);
  lo = py_expr_text(v->min), ext = py_expr_text(v->extent);
  if (lo && ext)
    r = v->tag == Py_None ? py_text_objects("iter_var(%s, range(min=%U, ext=%U))", name, lo, ext)
                          : py_text_objects("iter_var(%s, range(min=%U, ext=%U), %S)", name, lo, ext, v->tag);
  PY_DROP(lo, ext);
  return r;
}

/* IntImm: the int subclass of constant extents, so that shapes are plain integers with the attributes of a literal. */
static PyTypeObject *int_type = &PyLong_Type;
static PyObject *imm_new(PyTypeObject *t, PyObject *args, PyObject *kw) {
  return ((newfunc)(uintptr_t)PyType_GetSlot(&PyLong_Type, Py_tp_new))(t, args, kw);
}
static PyObject *imm_value(PyObject *o, void *Py_UNUSED(u)) { return PyLong_FromLongLong(PyLong_AsLongLong(o)); }
static PyObject *imm_dtype(PyObject *o, void *Py_UNUSED(u)) {
  long long v = PyLong_AsLongLong(o);
  return PyUnicode_FromString(v >= INT32_MIN && v <= INT32_MAX ? "int32" : "int64");
}

/* ---- types ---- */

static PyGetSetDef EXPR_GET[] = {
    {"dtype", get_dtype, NULL, "Type name, e.g. 'float32'.", NULL},
    {"kind", get_kind, NULL, "Node name, e.g. 'Add'.", NULL},
    {"value", get_value, NULL, "Number of a literal, operand of a cast.", NULL},
    {"args", get_args, NULL, "Operands.", NULL},
    {"symbol", get_symbol, NULL, "Tensor of a load, name of a call, parts of a reduction.", NULL},
    {"a", get_operand, NULL, "Left operand of a binary node.", (void *)0},
    {"b", get_operand, NULL, "Right operand of a binary node.", (void *)1},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef EXPR_METHODS[] = {
    {"astype", expr_astype, METH_O, "astype(dtype): cast."},
    {"equal", expr_equal, METH_O, "equal(other): the comparison as an expression."},
    {"same_as", expr_same, METH_O, "same_as(other): True if both are the same expression."},
    {"asobject", expr_asobject, METH_NOARGS, "The expression itself."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef VAR_GET[] = {{"name", get_name, NULL, "Name.", NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyGetSetDef ITER_GET[] = {{"var", iter_get, NULL, "The variable.", (void *)0},
                                 {"name", get_name, NULL, "Name.", NULL},
                                 {"min", iter_get, NULL, "First value.", (void *)1},
                                 {"extent", iter_get, NULL, "Number of values.", (void *)2},
                                 {"iter_type", iter_get, NULL, "0 data, 1 thread, 2 reduction.", (void *)3},
                                 {"thread_tag", iter_get, NULL, "e.g. 'threadIdx.x', or None.", (void *)4},
                                 {"dom", iter_dom, NULL, "Range, or None.", NULL},
                                 {NULL, NULL, NULL, NULL, NULL}};

static PyGetSetDef IMM_GET[] = {{"value", imm_value, NULL, "The number.", NULL},
                                {"dtype", imm_dtype, NULL, "Type name.", NULL},
                                {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef IMM_METHODS[] = {{"astype", expr_astype, METH_O, "astype(dtype): a literal expression."},
                                    {NULL, NULL, 0, NULL}};

static const PyType_Slot EXPR_SLOTS[] = {{Py_tp_str, expr_str},
                                         {Py_tp_repr, expr_str},
                                         {Py_tp_hash, expr_hash},
                                         {Py_tp_richcompare, expr_compare},
                                         PY_ARITHMETIC,
                                         {Py_nb_lshift, expr_shl},
                                         {Py_nb_rshift, expr_shr},
                                         {Py_nb_and, expr_and},
                                         {Py_nb_or, expr_or},
                                         {Py_nb_xor, expr_xor},
                                         {Py_nb_negative, expr_neg},
                                         {Py_nb_invert, expr_invert},
                                         {Py_nb_absolute, expr_abs},
                                         {Py_nb_bool, expr_bool},
                                         {Py_nb_int, expr_int},
                                         {Py_nb_float, expr_float},
                                         {Py_nb_index, expr_index},
                                         {0, NULL}};
static const PyType_Slot ITERVAR_SLOTS[] = {{Py_tp_repr, iter_repr}, {0, NULL}};
static const PyClass CLASSES[] = {
    PY_CLASS("Expr", sizeof(PyExpr), .type = &PyExpr_Type, .flags = Py_TPFLAGS_BASETYPE, .drop = expr_dealloc,
             .methods = EXPR_METHODS, .get = EXPR_GET, .more = EXPR_SLOTS, .doc = "A scalar expression."),
    PY_CLASS("Var", sizeof(PyExpr), .type = &PyVar_Type, .base = &PyExpr_Type, .flags = Py_TPFLAGS_BASETYPE,
             .get = VAR_GET, .doc = "A variable."),
    PY_CLASS("EqualOp", sizeof(PyDeferred), .type = &PyDeferred_Type, .base = &PyExpr_Type, .drop = deferred_dealloc,
             .doc = "A comparison a == b or a != b, built when it is used."),
    PY_CLASS("IterVar", sizeof(PyIterVar), .type = &PyIterVar_Type, .base = &PyExpr_Type, .drop = iter_dealloc,
             .get = ITER_GET, .more = ITERVAR_SLOTS, .doc = "An iterator: a variable with a range."),
    PY_CLASS("IntImm", 0, .type = &PyIntImm_Type, .base = &int_type, .flags = Py_TPFLAGS_BASETYPE, .create = imm_new,
             .methods = IMM_METHODS, .get = IMM_GET,
             .doc = "A constant extent: an int with the attributes of a literal.")};

int py_init_expr(PyObject *m) {
  if (py_add(m, NS_COUNT(CLASSES), CLASSES, NULL) < 0 ||
      PyObject_SetAttrString((PyObject *)PyExpr_Type, "__array_ufunc__", Py_None) < 0)
    return -1;
  return py_init_expr_functions(m) < 0 || py_init_arith(m) < 0 ? -1 : py_init_stmt(m);
}
