/* Tensors, operations and compute DAGs in Python.
 *
 * All te objects of an interpreter live in one session context and are never freed (a network's expressions take a few
 * megabytes). A ComputeDAG copies what it needs into a context of its own, so that searches on other threads never
 * touch the session.
 */
#include "py/py_fields.h"
#include "py/py_te_int.h"

PyTypeObject *PyTensor_Type, *PyTensorSlice_Type, *PyOperation_Type, *PyDag_Type;
static PyTypeObject *placeholder_type, *compute_type; /* kinds of Operation */

/* ---- session ---- */

typedef struct {
  PyCtx ctx;
  bool ready;
} TeState;
static TeState session; /* belongs to the interpreter, like its types */

PyCtx *py_session(void) {
  if (session.ready) return &session.ctx;
  err_init(&session.ctx.err);
  session.ctx.ctx = py_context(&session.ctx.err);
  if (!session.ctx.ctx) return NULL;
  session.ready = true;
  return &session.ctx;
}

static TeOp *op_of(TensorId t) { return ir_tensor(SES, t)->op; }

/* ---- tensors ---- */

PyObject *py_tensor_new(TensorId t) {
  PyTensor *o = (PyTensor *)PyType_GenericAlloc(PyTensor_Type, 0);
  if (o) o->id = t, py_scope_born(&o->scope);
  return (PyObject *)o;
}

TensorId py_tensor_id(PyObject *o) {
  if (PyObject_TypeCheck(o, PyTensor_Type)) return ((PyTensor *)o)->id;
  PyErr_Format(PyExc_TypeError, "expected a te.Tensor, not %s", PY_TYPE_NAME(o));
  return 0;
}

static PyObject *operation_new(TeOp *op) {
  PyTypeObject *type = op->kind == TE_PLACEHOLDER ? placeholder_type : compute_type;
  PyOperation *o = (PyOperation *)PyType_GenericAlloc(type, 0);
  if (o) o->op = op, py_scope_born(&o->scope);
  return (PyObject *)o;
}

PyObject *py_operation_of(TensorId t) { return operation_new(op_of(t)); }

PyObject *py_tensor_arith(const char *name, PyObject *a, PyObject *b) {
  PyObject *mod = PyImport_ImportModule("nestsmith.topi.broadcast");
  PyObject *r = mod ? PyObject_CallMethod(mod, "tensor_arith", "sOO", name, a, b) : NULL;
  Py_XDECREF(mod);
  return r;
}

typedef struct {
  TensorId t;
  int n;
  const ExprId *idx;
  ExprId out;
} Read;
ERR_BODY(do_read, Read *x, x->out = ex_read(SES, x->t, x->n, x->idx))
ERR_BODY(do_stand_in, Read *x, x->t = te_stand_in(SES, x->t, x->n))

/* Indexing: all indices give an element, fewer a slice that waits for the rest. `index` is a tuple. */
static PyObject *tensor_at(TensorId t, PyObject *index) {
  Py_ssize_t n = PyTuple_Size(index);
  IrTensor info = *ir_tensor(SES, t);
  if (info.any_rank && n != info.rank) {
    Read other = {.t = t, .n = (int)n};
    return py_guard(py_session(), do_stand_in, &other) ? tensor_at(other.t, index) : NULL;
  }
  if (n > info.rank)
    return PyErr_Format(PyExc_ValueError, "tensor '%s' has %d dimension(s) but is read with %zd indices", info.name,
                        (int)info.rank, n);
  bool range = false;
  for (Py_ssize_t i = 0; i < n; i++) range |= PySlice_Check(PyTuple_GetItem(index, i));
  if (n < info.rank || range) {
    PyTensorSlice *s = (PyTensorSlice *)PyType_GenericAlloc(PyTensorSlice_Type, 0);
    if (!s) return NULL;
    s->id = t, s->index = Py_NewRef(index);
    py_scope_born(&s->scope);
    return (PyObject *)s;
  }
  for (Py_ssize_t i = 0; i < n; i++)
    if (PyFloat_Check(PyTuple_GetItem(index, i)))
      return PyErr_Format(PyExc_TypeError,
                          "index %zd of tensor '%s' must be an integer expression; use topi.strided_slice for ranges",
                          i, info.name);
  Py_ssize_t k = 0;
  Read x = {.t = t, .n = (int)n};
  ExprId *idx = py_expr_list(index, &k, "indices must be a sequence");
  if (!idx) return NULL;
  for (Py_ssize_t i = 0; i < n; i++) {
    DType it = ir_type(SES, idx[i]);
    if (it.code == DT_INT || it.code == DT_UINT) continue;
    PyMem_Free(idx);
    return PyErr_Format(PyExc_TypeError, "index %zd of tensor '%s' is not an integer", i, info.name);
  }
  x.idx = idx;
  PyObject *r = py_guard(py_session(), do_read, &x) ? py_expr_new(x.out) : NULL;
  PyMem_Free(idx);
  return r;
}

static PyObject *as_index(PyObject *k) {
  if (PyTuple_Check(k)) return Py_NewRef(k);
  if (PyList_Check(k)) return PyList_AsTuple(k);
  return PyTuple_Pack(1, k);
}
static PyObject *tensor_subscript(PyObject *o, PyObject *k) {
  PyObject *index = as_index(k);
  PyObject *r = index ? tensor_at(((PyTensor *)o)->id, index) : NULL;
  Py_XDECREF(index);
  return r;
}
static PyObject *tensor_call(PyObject *o, PyObject *args, PyObject *kw) {
  if (kw && PyDict_Size(kw)) return PyErr_Format(PyExc_TypeError, "indices take no keywords");
  PyTensor *t = (PyTensor *)o;
  if (PyTuple_Size(args) != ir_tensor(SES, t->id)->rank && !ir_tensor(SES, t->id)->any_rank)
    return PyErr_Format(PyExc_ValueError, "tensor '%s' has %d dimension(s) but is read with %zd indices",
                        ir_tensor(SES, t->id)->name, (int)ir_tensor(SES, t->id)->rank, PyTuple_Size(args));
  return tensor_at(t->id, args);
}
static PyObject *slice_subscript(PyObject *o, PyObject *k) {
  PyTensorSlice *s = (PyTensorSlice *)o;
  PyObject *more = as_index(k);
  PyObject *index = more ? PySequence_Concat(s->index, more) : NULL;
  PyObject *r = index ? tensor_at(s->id, index) : NULL;
  PY_DROP(more, index);
  return r;
}
static PyObject *slice_binary(PyObject *a, PyObject *b) {
  PyTensorSlice *s = (PyTensorSlice *)(PyObject_TypeCheck(a, PyTensorSlice_Type) ? a : b);
  const IrTensor *t = ir_tensor(SES, s->id);
  if (PySequence_Size(s->index) == t->rank)
    return PyErr_Format(PyExc_TypeError,
                        "an index of tensor '%s' must be an integer expression; use topi.strided_slice for ranges",
                        t->name);
  return PyErr_Format(PyExc_TypeError, "tensor '%s' has %d dimension(s) but is read with %zd indices here", t->name,
                      (int)t->rank, PySequence_Size(s->index));
}
static PyObject *slice_get(PyObject *o, void *what) {
  PyTensorSlice *s = (PyTensorSlice *)o;
  return what ? py_tensor_new(s->id) : Py_NewRef(s->index);
}
static PyGetSetDef SLICE_GET[] = {{"tensor", slice_get, NULL, "The tensor.", (void *)1},
                                  {"indices", slice_get, NULL, "The indices, as they were given.", NULL},
                                  {NULL, NULL, NULL, NULL, NULL}};
static void slice_dealloc(PyObject *o) {
  py_scope_dies(((PyTensorSlice *)o)->scope);
  Py_CLEAR(((PyTensorSlice *)o)->index);
  py_free_object(o);
}
static void tensor_dealloc(PyObject *o) {
  py_scope_dies(((PyTensor *)o)->scope);
  py_free_object(o);
}

static PyObject *shape_of(TensorId t) {
  IrTensor x = *ir_tensor(SES, t);
  PyObject *r = PyTuple_New(x.rank);
  for (int i = 0; r && i < x.rank; i++) py_put(&r, i, py_dim_new(x.shape[i]));
  return r;
}
enum { TG_SHAPE, TG_DTYPE, TG_NAME, TG_OP, TG_NDIM, TG_INDEX };
static PyObject *tensor_get(PyObject *o, void *what) {
  TensorId t = ((PyTensor *)o)->id;
  const IrTensor *x = ir_tensor(SES, t);
  switch ((int)(intptr_t)what) {
  case TG_SHAPE: return shape_of(t);
  case TG_DTYPE: return py_dtype_str(x->type);
  case TG_NAME: return PyUnicode_FromString(op_of(t)->name);
  case TG_OP: return py_operation_of(t);
  case TG_NDIM: return PyLong_FromLong(x->rank);
  default: return PyLong_FromLong(x->out);
  }
}
static PyObject *tensor_repr(PyObject *o) {
  PyTensor *t = (PyTensor *)o;
  PyObject *shape = shape_of(t->id), *type = py_dtype_str(ir_tensor(SES, t->id)->type);
  PyObject *r = shape && type
                    ? py_text_objects("Tensor(%s, shape=%S, dtype=%U)", ir_tensor(SES, t->id)->name, shape, type)
                    : NULL;
  PY_DROP(shape, type);
  return r;
}
static PyObject *tensor_compare(PyObject *a, PyObject *b, int op) {
  if ((op != Py_EQ && op != Py_NE) || !PyObject_TypeCheck(b, PyTensor_Type)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((((PyTensor *)a)->id == ((PyTensor *)b)->id) == (op == Py_EQ));
}
static Py_hash_t tensor_hash(PyObject *o) { return (Py_hash_t)((PyTensor *)o)->id; }
static PyObject *tensor_neg(PyObject *a) { return py_tensor_arith("multiply", a, Py_None); }
static PyObject *tensor_astype(PyObject *o, PyObject *t) { return py_tensor_arith("astype", o, t); }
static Py_ssize_t tensor_len(PyObject *o) {
  const IrTensor *x = ir_tensor(SES, ((PyTensor *)o)->id);
  int64_t v = 0;
  if (x->rank > 0 && ex_const_int(SES, x->shape[0], &v)) return (Py_ssize_t)v;
  PyErr_SetString(PyExc_TypeError, "this tensor has no constant first dimension");
  return -1;
}

/* ---- operations ---- */

static PyObject *axes_of(int n, const TeAxis *axis, int kind) {
  PyObject *l = PyList_New(n);
  for (int i = 0; l && i < n; i++) py_put(&l, i, py_iter_new(axis[i].var, axis[i].min, axis[i].extent, kind, NULL));
  return l;
}
/* A nested tuple as JSON and back; texts are the engine's. */
static PyObject *json_call(const char *name, PyObject *arg) {
  PyObject *mod = PyImport_ImportModule("json"), *fn = mod ? PyObject_GetAttrString(mod, name) : NULL;
  PyObject *r = fn ? py_call1(fn, arg) : NULL;
  PY_DROP(fn, mod);
  return r;
}
static PyObject *literal(PyObject *number) { /* takes it over */
  PyObject *r = number ? py_call1((PyObject *)PyIntImm_Type, number) : NULL;
  Py_XDECREF(number);
  return r;
}
static PyObject *as_tuples(PyObject *o) { /* takes it over */
  if (o && PyLong_CheckExact(o)) return literal(o);
  if (!o || !PyList_Check(o)) return o;
  PyObject *t = PyTuple_New(PyList_Size(o));
  for (Py_ssize_t i = 0; t && i < PyTuple_Size(t); i++) py_put(&t, i, as_tuples(Py_NewRef(PyList_GetItem(o, i))));
  Py_DECREF(o);
  return t;
}
static PyObject *attr_value(const TeAttr *a) {
  if (a->kind == TA_TUPLE) {
    PyObject *text = PyUnicode_FromString(a->s), *v = text ? json_call("loads", text) : NULL;
    Py_XDECREF(text);
    return as_tuples(v);
  }
  switch (a->kind) {
  case TA_INT: return literal(PyLong_FromLongLong(a->i));
  case TA_FLOAT: return PyFloat_FromDouble(a->f);
  case TA_STR: return PyUnicode_FromString(a->s);
  case TA_TENSORS: return py_list(FIELD_TENSOR, a->n, a->tensors);
  default: break;
  }
  return py_list(FIELD_TEXT, a->n, a->strs);
}
/* Attributes of an operation: a dict whose text is JSON, as TVM's. */
static PyTypeObject *dict_type = &PyDict_Type, *attrs_type;
static PyObject *attrs_new(PyTypeObject *t, PyObject *args, PyObject *kw) {
  return ((newfunc)(uintptr_t)PyType_GetSlot(&PyDict_Type, Py_tp_new))(t, args, kw);
}
static PyObject *attrs_str(PyObject *o) {
  PyObject *s = json_call("dumps", o);
  if (s || !PyErr_ExceptionMatches(PyExc_TypeError)) return s;
  PyErr_Clear(); /* tensors have no such text */
  return PyObject_Repr(o);
}
static PyObject *attrs_of(const TeOp *op) {
  PyObject *d = PyObject_CallFunction((PyObject *)attrs_type, NULL);
  for (int i = 0; d && i < op->n_attr; i++) py_put_key(&d, op->attr[i].key, attr_value(&op->attr[i]));
  return d;
}
enum { OG_NAME, OG_TAG, OG_AXIS, OG_REDUCE, OG_BODY, OG_INPUTS, OG_ATTRS, OG_COUNT, OG_SHAPE, OG_DTYPE };
static PyObject *op_get(PyObject *o, void *what) {
  PyOperation *p = (PyOperation *)o;
  const TeOp *op = p->op;
  switch ((int)(intptr_t)what) {
  case OG_NAME: return PyUnicode_FromString(op->name);
  case OG_TAG: return PyUnicode_FromString(op->tag);
  case OG_AXIS:
    if (!p->axis) p->axis = axes_of(op->n_axis, op->axis, IV_DATA);
    return Py_XNewRef(p->axis);
  case OG_REDUCE:
    if (!p->reduce_axis) p->reduce_axis = axes_of(op->n_red, op->red, IV_REDUCE);
    return Py_XNewRef(p->reduce_axis);
  case OG_INPUTS: return py_list(FIELD_TENSOR, op->n_in, op->in);
  case OG_ATTRS: return attrs_of(op);
  case OG_COUNT: return PyLong_FromLong(op->n_out);
  case OG_SHAPE: return shape_of(op->out[0]);
  case OG_DTYPE: return py_dtype_str(ir_tensor(SES, op->out[0])->type);
  default: break;
  }
  if (op->kind == TE_PLACEHOLDER) return PyErr_Format(PyExc_AttributeError, "placeholder '%s' has no body", op->name);
  return py_list(FIELD_EXPR, op->n_out, op->body);
}
static PyObject *op_output(PyObject *o, PyObject *k) {
  const TeOp *op = ((PyOperation *)o)->op;
  long i = PyLong_AsLong(k);
  if (i == -1 && PyErr_Occurred()) return NULL;
  if (i < 0 || i >= op->n_out)
    return PyErr_Format(PyExc_IndexError, "operation '%s' has %d output(s), not number %ld", op->name, (int)op->n_out,
                        i);
  return py_tensor_new(op->out[i]);
}
static PyObject *op_is_placeholder(PyObject *o, void *Py_UNUSED(u)) {
  return PyBool_FromLong(((PyOperation *)o)->op->kind == TE_PLACEHOLDER);
}
static PyObject *op_repr(PyObject *o) {
  const TeOp *op = ((PyOperation *)o)->op;
  return PyUnicode_FromFormat("%s(%s)", op->kind == TE_PLACEHOLDER ? "placeholder" : "compute", op->name);
}
static PyObject *op_compare(PyObject *a, PyObject *b, int op) {
  if ((op != Py_EQ && op != Py_NE) || !PyObject_TypeCheck(b, PyOperation_Type)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((((PyOperation *)a)->op == ((PyOperation *)b)->op) == (op == Py_EQ));
}
static Py_hash_t op_hash(PyObject *o) { return (Py_hash_t)((uintptr_t)((PyOperation *)o)->op >> 4); }
static void op_dealloc(PyObject *o) {
  py_scope_dies(((PyOperation *)o)->scope);
  PY_DROP(((PyOperation *)o)->axis, ((PyOperation *)o)->reduce_axis);
  py_free_object(o);
}

/* ---- making operations ---- */

typedef struct {
  const char *name, *tag;
  DType t;
  int n;
  const ExprId *shape;
  TeAxis *axis;
  int n_body;
  const ExprId *body;
  int n_attr;
  TeAttr *attr;
  TeOp *out;
} Make;
ERR_BODY(do_placeholder, Make *x, x->out = te_placeholder(SES, x->name, x->t, x->n, x->shape))
ERR_BODY(do_compute, Make *x,
         x->out = te_compute(SES, x->name, x->tag, x->n, x->axis, x->n_body, x->body, x->n_attr, x->attr))

static PyObject *fn_placeholder(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *shape, *type;
  Make x = {0};
  Py_ssize_t n = 0;
  if (!PyArg_ParseTuple(args, "OOs", &shape, &type, &x.name) || !py_dtype(type, &x.t)) return NULL;
  ExprId *s = py_expr_list(shape, &n, "a shape must be a sequence");
  if (!s) return NULL;
  x.n = (int)n, x.shape = s;
  PyObject *r = py_guard(py_session(), do_placeholder, &x) ? py_tensor_new(x.out->out[0]) : NULL;
  PyMem_Free(s);
  return r;
}

static bool nested(PyObject *v) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(v); i++) {
    PyObject *x = PyTuple_GetItem(v, i);
    if (!PyUnicode_Check(x) && !PyObject_TypeCheck(x, PyTensor_Type)) return true;
  }
  return false;
}
static bool numbers(PyObject *v) { /* whether it is a list of them, one at least */
  bool all = PyList_Check(v) && PyList_Size(v) > 0;
  for (Py_ssize_t i = 0; all && i < PyList_Size(v); i++)
    all = PyLong_Check(PyList_GetItem(v, i)) || PyFloat_Check(PyList_GetItem(v, i));
  return all;
}
/* Attribute values: int, float, str, list of str, list of tensors, tuples and lists of numbers, tuples of texts, None and such tuples.
 * Temporary memory goes into `keep` (a list of objects that own it). */
static bool read_attr(PyObject *key, PyObject *v, TeAttr *a, PyObject *keep) {
  a->key = py_utf8(key);
  if (!a->key) return false;
  if (PyLong_Check(v)) return a->kind = TA_INT, a->i = PyLong_AsLongLong(v), !PyErr_Occurred();
  if (PyFloat_Check(v)) return a->kind = TA_FLOAT, a->f = PyFloat_AsDouble(v), true;
  if (PyUnicode_Check(v)) return a->kind = TA_STR, a->s = py_utf8(v), a->s != NULL;
  if ((PyTuple_Check(v) && nested(v)) || numbers(v)) {
    PyObject *text = json_call("dumps", v);
    a->kind = TA_TUPLE, a->s = text && PyList_Append(keep, text) == 0 ? py_utf8(text) : NULL;
    Py_XDECREF(text);
    return a->s != NULL;
  }
  PyObject *seq = PyList_Check(v) || PyTuple_Check(v) ? PySequence_Tuple(v) : NULL;
  if (!seq)
    return PyErr_Format(PyExc_TypeError,
                        "attribute '%s': %s is not supported; use a number, a string, or a list of strings or tensors",
                        a->key, PY_TYPE_NAME(v)),
           false;
  Py_ssize_t n = PyTuple_Size(seq);
  bool tensors = n > 0 && PyObject_TypeCheck(PyTuple_GetItem(seq, 0), PyTensor_Type);
  PyObject *mem = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)sizeof(void *) * (n + 1));
  bool ok = mem && PyList_Append(keep, seq) == 0 && PyList_Append(keep, mem) == 0;
  if (ok) {
    a->kind = tensors ? TA_TENSORS : TA_STRS, a->n = (int32_t)n;
    a->tensors = (TensorId *)(void *)PyByteArray_AsString(mem);
    a->strs = (const char **)(void *)PyByteArray_AsString(mem);
    for (Py_ssize_t i = 0; ok && i < n; i++) {
      PyObject *x = PyTuple_GetItem(seq, i);
      if (tensors)
        ok = (a->tensors[i] = py_tensor_id(x)) != 0;
      else if (!PyUnicode_Check(x))
        ok = (PyErr_Format(PyExc_TypeError, "attribute '%s': element %zd is %s, not a string", a->key, i,
                           PY_TYPE_NAME(x)),
              false);
      else
        ok = (a->strs[i] = py_utf8(x)) != NULL;
    }
    if (!tensors)
      a->tensors = NULL;
    else
      a->strs = NULL;
  }
  Py_DECREF(seq);
  Py_XDECREF(mem);
  return ok;
}

/* compute(name, tag, axes, bodies, attrs) -> tuple of tensors */
static PyObject *fn_compute(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *axes, *bodies, *attrs, *key, *val, *r = NULL;
  Make x = {0};
  Py_ssize_t n = 0, pos = 0;
  if (!PyArg_ParseTuple(args, "ssO!OO!", &x.name, &x.tag, &PyList_Type, &axes, &bodies, &PyDict_Type, &attrs))
    return NULL;
  x.n = (int)PyList_Size(axes);
  PyObject *keep = PyList_New(0);
  x.axis = py_calloc(x.n + 1, sizeof(TeAxis));
  x.attr = py_calloc(PyDict_Size(attrs) + 1, sizeof(TeAttr));
  ExprId *b = py_expr_list(bodies, &n, "bodies must be a sequence");
  bool ok = keep && x.axis && x.attr && b;
  for (int i = 0; ok && i < x.n; i++) {
    PyIterVar *v = (PyIterVar *)PyList_GetItem(axes, i);
    ok = PyObject_TypeCheck((PyObject *)v, PyIterVar_Type) && v->extent;
    if (!ok)
      PyErr_Format(PyExc_TypeError, "axis %d of compute '%s' is no iterator with a range", i, x.name);
    else
      x.axis[i] = (TeAxis){NULL, v->var, v->min, v->extent};
  }
  while (ok && PyDict_Next(attrs, &pos, &key, &val)) ok = read_attr(key, val, &x.attr[x.n_attr++], keep);
  x.body = b, x.n_body = (int)n;
  if (ok && py_guard(py_session(), do_compute, &x)) r = py_tuple(FIELD_TENSOR, x.out->n_out, x.out->out);
  PyMem_Free(x.axis);
  PyMem_Free(x.attr);
  PyMem_Free(b);
  Py_XDECREF(keep);
  return r;
}

typedef struct {
  IrReducer r;
  ReducerId id;
  IrReduce red;
  ExprId out;
} Reduction;
ERR_BODY(do_reducer, Reduction *x, x->id = ir_reducer_new(SES, x->r))
ERR_BODY(do_reduce, Reduction *x, x->out = ex_reduce(SES, x->red))

/* reducer(lhs vars, rhs vars, results, identities, code or None) -> id */
static PyObject *fn_reducer(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *in[5];
  ExprId *list[5] = {0};
  Py_ssize_t n[5] = {0};
  if (!PyArg_ParseTuple(args, "OOOOO", &in[0], &in[1], &in[2], &in[3], &in[4])) return NULL;
  bool ok = true;
  int lists = in[4] == Py_None ? 4 : 5;
  for (int i = 0; ok && i < lists; i++)
    ok = (list[i] = py_expr_list(in[i], &n[i], "a reducer takes lists of expressions")) != NULL;
  if (ok && (n[0] < 1 || n[1] != n[0] || n[2] != n[0] || n[3] != n[0] || (lists == 5 && n[4] != n[0]))) {
    ok = false;
    PyErr_Format(PyExc_ValueError, "a reducer needs as many results (%zd) and identity elements (%zd) as values (%zd)",
                 n[2], n[3], n[0]);
  }
  for (int k = 0; ok && k < 2; k++)
    for (Py_ssize_t i = 0; ok && i < n[0]; i++) {
      const ExprNode *v = ir_node(SES, list[k][i]);
      if (v->kind != IR_VAR)
        ok = (PyErr_SetString(PyExc_TypeError, "the operands of a reducer must be variables"), false);
      else
        list[k][i] = v->sym; /* VarId */
    }
  Reduction x = {
      .r = {
          .n = (int32_t)n[0], .lhs = list[0], .rhs = list[1], .result = list[2], .identity = list[3], .code = list[4]}};
  ok = ok && py_guard(py_session(), do_reducer, &x);
  for (int i = 0; i < 5; i++) PyMem_Free(list[i]);
  py_scope_keep(); /* the number stays where it is kept */
  return ok ? PyLong_FromLong(x.id) : NULL;
}

/* reduce(reducer, sources, axes, condition, inits or None) -> tuple of expressions, one per value */
static PyObject *fn_reduce(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *src, *axes, *cond, *init, *r = NULL;
  Py_ssize_t n = 0, n_init = 0;
  Reduction x = {0};
  if (!PyArg_ParseTuple(args, "iOO!OO", &x.red.reducer, &src, &PyList_Type, &axes, &cond, &init)) return NULL;
  ExprId *s = py_expr_list(src, &n, "sources must be a sequence"), *in = NULL;
  bool ok = s && (x.red.cond = py_expr_id(cond)) != 0;
  if (ok && init != Py_None) ok = (in = py_expr_list(init, &n_init, "init must be a sequence")) != NULL;
  if (ok && in && n_init != n) ok = (PyErr_SetString(PyExc_ValueError, "init must have one element per value"), false);
  Py_ssize_t na = PyList_Size(axes);
  IrAxis *ax = py_calloc(na + 1, sizeof(IrAxis));
  ok = ok && ax;
  for (Py_ssize_t i = 0; ok && i < na; i++) {
    PyIterVar *v = (PyIterVar *)PyList_GetItem(axes, i);
    ok = PyObject_TypeCheck((PyObject *)v, PyIterVar_Type) && v->kind == IV_REDUCE;
    if (!ok)
      PyErr_Format(PyExc_TypeError, "axis %zd of the reduction is no te.reduce_axis", i);
    else
      ax[i] = (IrAxis){v->var, v->min, v->extent};
  }
  if (ok) ok = (r = PyTuple_New(n)) != NULL;
  x.red.n_src = (int32_t)n, x.red.src = s, x.red.init = in, x.red.n_axis = (int32_t)na, x.red.axis = ax;
  for (Py_ssize_t i = 0; ok && i < n; i++) {
    x.red.value_index = (int32_t)i;
    if ((ok = py_guard(py_session(), do_reduce, &x))) py_put(&r, i, py_expr_new(x.out)), ok = r != NULL;
  }
  if (!ok) Py_CLEAR(r);
  PyMem_Free(s);
  PyMem_Free(in);
  PyMem_Free(ax);
  return r;
}

typedef struct {
  TensorId t;
  int n;
  const ExprId *shape;
} Reshape;
ERR_BODY(do_reshape, Reshape *x, te_reshape_placeholder(SES, x->t, x->n, x->shape))
ERR_BODY(do_any_rank, Reshape *x, ir_tensor_any_rank(SES, x->t))

/* tensor_reshape(tensor, shape): in place */
static PyObject *fn_reshape(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *tensor, *shape;
  Py_ssize_t n = 0;
  Reshape x = {0};
  if (!PyArg_ParseTuple(args, "OO", &tensor, &shape) || !(x.t = py_tensor_id(tensor))) return NULL;
  ExprId *s = py_expr_list(shape, &n, "shape must be a sequence");
  x.n = (int)n, x.shape = s;
  bool ok = s && py_guard(py_session(), do_reshape, &x);
  PyMem_Free(s);
  return py_none(ok);
}
static PyObject *fn_any_rank(PyObject *Py_UNUSED(m), PyObject *tensor) {
  Reshape x = {.t = py_tensor_id(tensor)};
  return py_none(x.t && py_guard(py_session(), do_any_rank, &x));
}
static PyObject *fn_stands_for(PyObject *Py_UNUSED(m), PyObject *tensor) {
  TensorId t = py_tensor_id(tensor), of = t ? ir_tensor(SES, t)->for_ : 0;
  return of ? py_tensor_new(of) : t ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef FUNCS[] = {
    {"tensor_reshape", fn_reshape, METH_VARARGS,
     "tensor_reshape(tensor, shape): a placeholder that nothing reads gets another shape."},
    {"tensor_any_rank", fn_any_rank, METH_O,
     "tensor_any_rank(tensor): it is read with any number of indices from now on."},
    {"tensor_stands_for", fn_stands_for, METH_O,
     "tensor_stands_for(tensor): the one that was read with another number of indices, or None."},
    {"te_placeholder", fn_placeholder, METH_VARARGS, "te_placeholder(shape, dtype, name): a tensor."},
    {"te_compute", fn_compute, METH_VARARGS, "te_compute(name, tag, axes, bodies, attrs): a tuple of tensors."},
    {"te_reducer", fn_reducer, METH_VARARGS,
     "te_reducer(lhs, rhs, results, identities, code): number of a new reducer; code: what programs compute in place "
     "of results, or None."},
    {"te_reduce", fn_reduce, METH_VARARGS,
     "te_reduce(reducer, sources, axes, condition, inits): a tuple of expressions."},
    {NULL, NULL, 0, NULL}};

/* ---- types ---- */

static PyGetSetDef TENSOR_GET[] = {
    {"shape", tensor_get, NULL, "Extents: ints, or expressions where symbolic.", (void *)TG_SHAPE},
    {"dtype", tensor_get, NULL, "Type name.", (void *)TG_DTYPE},
    {"name", tensor_get, NULL, "Name of the operation.", (void *)TG_NAME},
    {"op", tensor_get, NULL, "The operation.", (void *)TG_OP},
    {"ndim", tensor_get, NULL, "Rank.", (void *)TG_NDIM},
    {"value_index", tensor_get, NULL, "Output number.", (void *)TG_INDEX},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef TENSOR_METHODS[] = {{"astype", tensor_astype, METH_O, "astype(dtype): topi.cast of the tensor."},
                                       {NULL, NULL, 0, NULL}};
static PyGetSetDef OP_GET[] = {{"name", op_get, NULL, "Name.", (void *)OG_NAME},
                               {"tag", op_get, NULL, "Class of the operation, e.g. 'broadcast'.", (void *)OG_TAG},
                               {"axis", op_get, NULL, "Spatial iterators.", (void *)OG_AXIS},
                               {"reduce_axis", op_get, NULL, "Reduction iterators.", (void *)OG_REDUCE},
                               {"body", op_get, NULL,
                                "One expression per output; of operations that are statements, the statement.",
                                (void *)OG_BODY},
                               {"expressions", op_get, NULL, "One expression per output.", (void *)OG_BODY},
                               {"input_tensors", op_get, NULL, "Tensors read, in reading order.", (void *)OG_INPUTS},
                               {"attrs", op_get, NULL, "Attributes.", (void *)OG_ATTRS},
                               {"num_outputs", op_get, NULL, "Number of outputs.", (void *)OG_COUNT},
                               {"shape", op_get, NULL, "Shape of the outputs.", (void *)OG_SHAPE},
                               {"dtype", op_get, NULL, "Type of output 0.", (void *)OG_DTYPE},
                               {"is_placeholder", op_is_placeholder, NULL, "True for placeholders.", NULL},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef OP_METHODS[] = {{"output", op_output, METH_O, "output(i): tensor number i."}, {NULL, NULL, 0, NULL}};

static const PyType_Slot TENSOR_SLOTS[] = {{Py_tp_repr, tensor_repr},
                                           {Py_tp_hash, tensor_hash},
                                           {Py_tp_richcompare, tensor_compare},
                                           {Py_tp_call, tensor_call},
                                           {Py_mp_subscript, tensor_subscript},
                                           {Py_mp_length, tensor_len},
                                           PY_ARITHMETIC,
                                           {Py_nb_negative, tensor_neg},
                                           {0, NULL}};
static const PyType_Slot TENSORSLICE_SLOTS[] = {{Py_mp_subscript, slice_subscript}, {Py_nb_add, slice_binary},
                                                {Py_nb_subtract, slice_binary},     {Py_nb_multiply, slice_binary},
                                                {Py_nb_true_divide, slice_binary},  {0, NULL}};
static const PyType_Slot OPERATION_SLOTS[] = {
    {Py_tp_repr, op_repr}, {Py_tp_hash, op_hash}, {Py_tp_richcompare, op_compare}, {0, NULL}};
static const PyType_Slot ATTRS_SLOTS[] = {{Py_tp_str, attrs_str}, {0, NULL}};
static const PyClass CLASSES[] = {
    PY_CLASS("Attrs", 0, .type = &attrs_type, .base = &dict_type, .create = attrs_new, .more = ATTRS_SLOTS,
             .doc = "Attributes of an operation."),
    PY_CLASS("Tensor", sizeof(PyTensor), .type = &PyTensor_Type, .drop = tensor_dealloc, .methods = TENSOR_METHODS,
             .get = TENSOR_GET, .more = TENSOR_SLOTS, .doc = "One output of an operation."),
    PY_CLASS("TensorSlice", sizeof(PyTensorSlice), .type = &PyTensorSlice_Type, .drop = slice_dealloc, .get = SLICE_GET,
             .more = TENSORSLICE_SLOTS, .doc = "A tensor indexed with fewer indices than it has dimensions."),
    PY_CLASS("Operation", sizeof(PyOperation), .type = &PyOperation_Type, .flags = Py_TPFLAGS_BASETYPE,
             .drop = op_dealloc, .methods = OP_METHODS, .get = OP_GET, .more = OPERATION_SLOTS,
             .doc = "An operation: a placeholder or a compute."),
    PY_CLASS("PlaceholderOp", sizeof(PyOperation), .type = &placeholder_type, .base = &PyOperation_Type),
    PY_CLASS("ComputeOp", sizeof(PyOperation), .type = &compute_type, .base = &PyOperation_Type)};

int py_init_te(PyObject *m) {
  if (!py_session() || py_init_expr(m) < 0 || py_add(m, NS_COUNT(CLASSES), CLASSES, FUNCS) < 0) return -1;
  if (PyObject_SetAttrString((PyObject *)PyTensor_Type, "__array_ufunc__", Py_None) < 0) return -1;
  return py_init_dag(m) < 0 || py_init_scope(m) < 0 ? -1 : 0;
}
