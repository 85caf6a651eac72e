/* Statements that users write: buffers, and programs of statements, which come as nested tuples.
 *
 *   ("seq", s, ...)   ("for", var, min, extent, kind, s)   ("if", condition, then, else or None)   ("let", var, value, s)
 *   ("alloc", buffer, s)   ("store", buffer, value, indices)   ("eval", expression)
 *   ("call", intrinsic, type, arguments): each a text, an expression, or (buffer, indices), where that element is
 *
 * Buffers are numbers. They live in the session, as tensors do; a program is made in a clone of it.
 */
#include <string.h>
#include "codegen/codegen.h"
#include "lower/lower.h"
#include "model/model.h"
#include "py/py_fields.h"
#include "py/py_te_int.h"

/* ---- buffers ---- */
typedef struct {
  IrBuffer b;
  BufferId id;
  int n;
  const ExprId *index;
  ExprId out;
} Buf;
ERR_BODY(do_buffer, Buf *x, x->id = ir_buffer_new(SES, x->b))
ERR_BODY(do_load, Buf *x, x->out = ex_load(SES, x->id, ir_buffer(SES, x->id)->type, x->n, x->index))

static bool scope_of(const char *name, ScopeKind *out) {
  for (int k = SC_GLOBAL; k <= SC_LOCAL; k++)
    if (strcmp(SCOPE_NAME[k], name) == 0) return *out = (ScopeKind)k, true;
  PyErr_Format(PyExc_ValueError, "unknown scope '%s'; use \"global\", \"shared\", \"warp\" or \"local\"", name);
  return false;
}

/* For PyArg_ParseTuple: a number that a buffer has. */
static int buffer_arg(PyObject *o, void *out) {
  int overflow;
  long long id = PyLong_AsLongLongAndOverflow(o, &overflow);
  if (id == -1 && PyErr_Occurred()) return 0;
  if (overflow || !ir_has_buffer(SES, id)) return py_err_objects(PyExc_ValueError, "no buffer has the number %S", o), 0;
  *(BufferId *)out = (BufferId)id;
  return 1;
}
static BufferId *buffer_list(PyScratch *s, PyObject *tuple) {
  Py_ssize_t n = PyTuple_Size(tuple);
  BufferId *id = py_scratch_alloc(s, n + 1, sizeof *id);
  for (Py_ssize_t i = 0; id && i < n; i++)
    if (!buffer_arg(PyTuple_GetItem(tuple, i), &id[i])) return NULL;
  return id;
}

/* buffer(name, dtype, shape, scope) -> number */
static PyObject *fn_buffer(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *type, *shape;
  const char *scope;
  Py_ssize_t n = 0;
  Buf x = {0};
  if (!PyArg_ParseTuple(args, "sOOs", &x.b.name, &type, &shape, &scope) || !py_dtype(type, &x.b.type) ||
      !scope_of(scope, &x.b.scope))
    return NULL;
  ExprId *extent = py_expr_list(shape, &n, "the shape of a buffer must be a sequence"), *zero = NULL;
  bool ok = extent && (zero = py_calloc(n + 1, sizeof *zero));
  for (int i = 0; ok && i < n; i++) {
    PyCall z = {.t = ir_type(SES, extent[i])};
    ok = py_is_integer(extent[i]) && (zero[i] = py_engine(py_do_zero, &z));
    if (!ok && !PyErr_Occurred())
      PyErr_Format(PyExc_TypeError, "dimension %d of buffer '%s' is no integer", i, x.b.name);
  }
  x.b.rank = (int32_t)n, x.b.extent = extent, x.b.min = zero;
  ok = ok && py_guard(py_session(), do_buffer, &x);
  PyMem_Free(extent), PyMem_Free(zero);
  if (ok) py_scope_keep();
  return ok ? PyLong_FromLong(x.id) : NULL;
}

static bool read_indices(PyObject *seq, BufferId id, ExprId **out) {
  Py_ssize_t n = 0;
  if (!(*out = py_expr_list(seq, &n, "indices must be a sequence"))) return false;
  const IrBuffer *b = ir_buffer(SES, id);
  bool ok = n == b->rank;
  if (!ok)
    PyErr_Format(PyExc_ValueError, "buffer '%s' has %d dimensions, %zd indices were given", b->name, (int)b->rank, n);
  for (int i = 0; ok && i < n; i++)
    if (!(ok = py_is_integer((*out)[i])))
      PyErr_Format(PyExc_TypeError, "index %d of buffer '%s' is no integer", i, b->name);
  if (!ok) PyMem_Free(*out), *out = NULL;
  return ok;
}

/* load(buffer, indices) -> expression */
static PyObject *fn_load(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *seq;
  Buf x = {0};
  ExprId *index;
  if (!PyArg_ParseTuple(args, "O&O", buffer_arg, &x.id, &seq) || !read_indices(seq, x.id, &index)) return NULL;
  x.n = ir_buffer(SES, x.id)->rank, x.index = index;
  PyObject *r = py_guard(py_session(), do_load, &x) ? py_expr_new(x.out) : NULL;
  PyMem_Free(index);
  return r;
}

/* ---- statements ---- */
typedef struct {
  PyScratch s;
  Target target;
  const char *name;
  Err err;
  IrCtx *ctx;
  Stmt *body;
  int n_args;
  BufferId *arg;
  char *source, *manifest;
} Job;

static VarId var_of(PyObject *o) {
  if (PyObject_TypeCheck(o, PyIterVar_Type)) return ((PyIterVar *)o)->var;
  if (PyObject_TypeCheck(o, PyVar_Type)) return ir_node(SES, ((PyExpr *)o)->id)->sym;
  PyErr_Format(PyExc_TypeError, "a loop or a let binds a variable, not %s", PY_TYPE_NAME(o));
  return 0;
}

static Stmt *read_stmt(Job *j, PyObject *o);
static Stmt *new_stmt(Job *j, StmtKind kind) {
  Stmt *s = py_scratch_alloc(&j->s, 1, sizeof *s);
  if (s) s->kind = kind;
  return s;
}
static Stmt *read_seq(Job *j, PyObject *o) {
  int n = (int)PyTuple_Size(o) - 1;
  Stmt *s = new_stmt(j, ST_SEQ), **at = s ? py_scratch_alloc(&j->s, n + 1, sizeof *at) : NULL;
  for (int i = 0; at && i < n; i++)
    if (!(at[i] = read_stmt(j, PyTuple_GetItem(o, i + 1)))) return NULL;
  if (at) s->u.seq.n = n, s->u.seq.at = at;
  return at ? s : NULL;
}
static Stmt *read_for(Job *j, PyObject *o) {
  PyObject *v, *body;
  ExprId min, extent;
  const char *kind, *tag;
  if (!PyArg_ParseTuple(o, "sOO&O&sO", &tag, &v, py_expr_arg, &min, py_expr_arg, &extent, &kind, &body)) return NULL;
  Stmt *s = new_stmt(j, ST_FOR);
  if (!s || !(s->u.loop.var = var_of(v)) || !(s->u.loop.body = read_stmt(j, body))) return NULL;
  s->u.loop.min = min, s->u.loop.extent = extent;
  for (int k = FOR_SERIAL; k <= FOR_THREAD_Z; k++)
    if (strcmp(FOR_NAME[k], kind) == 0) return s->u.loop.kind = (ForKind)k, s;
  return PyErr_Format(PyExc_ValueError, "unknown kind of loop '%s'", kind), NULL;
}
static Stmt *read_if(Job *j, PyObject *o) {
  PyObject *then, *other;
  const char *tag;
  ExprId cond;
  if (!PyArg_ParseTuple(o, "sO&OO", &tag, py_expr_arg, &cond, &then, &other)) return NULL;
  Stmt *s = new_stmt(j, ST_IF);
  if (!s || !(s->u.cond.then = read_stmt(j, then))) return NULL;
  if (other != Py_None && !(s->u.cond.other = read_stmt(j, other))) return NULL;
  s->u.cond.cond = cond;
  return s;
}
static Stmt *read_let(Job *j, PyObject *o) {
  PyObject *v, *body;
  const char *tag;
  ExprId value;
  if (!PyArg_ParseTuple(o, "sOO&O", &tag, &v, py_expr_arg, &value, &body)) return NULL;
  Stmt *s = new_stmt(j, ST_LET);
  if (!s || !(s->u.let.var = var_of(v)) || !(s->u.let.body = read_stmt(j, body))) return NULL;
  s->u.let.value = value;
  return s;
}
static Stmt *read_alloc(Job *j, PyObject *o) {
  PyObject *body;
  const char *tag;
  BufferId id;
  if (!PyArg_ParseTuple(o, "sO&O", &tag, buffer_arg, &id, &body)) return NULL;
  Stmt *s = new_stmt(j, ST_ALLOC);
  if (!s || !(s->u.alloc.body = read_stmt(j, body))) return NULL;
  s->u.alloc.buf = id;
  return s;
}
static Stmt *read_store(Job *j, PyObject *o) {
  PyObject *seq;
  const char *tag;
  BufferId id;
  ExprId value, *index;
  if (!PyArg_ParseTuple(o, "sO&O&O", &tag, buffer_arg, &id, py_expr_arg, &value, &seq) ||
      !read_indices(seq, id, &index))
    return NULL;
  const IrBuffer *b = ir_buffer(SES, id);
  Stmt *s = new_stmt(j, ST_STORE);
  if (s && !dtype_eq(ir_type(SES, value), b->type)) {
    PyErr_Format(PyExc_TypeError, "the value stored to buffer '%s' has another type; cast it with astype", b->name);
    s = NULL;
  }
  if (s && (s->u.store.idx = py_scratch_alloc(&j->s, b->rank + 1, sizeof *index))) {
    memcpy(s->u.store.idx, index, (size_t)b->rank * sizeof *index);
    s->u.store.buf = id, s->u.store.n_idx = b->rank, s->u.store.value = value;
  } else
    s = NULL;
  PyMem_Free(index);
  return s;
}
static Stmt *read_eval(Job *j, PyObject *o) {
  const char *tag;
  ExprId e;
  if (!PyArg_ParseTuple(o, "sO&", &tag, py_expr_arg, &e)) return NULL;
  Stmt *s = new_stmt(j, ST_EVAL);
  if (s) s->u.eval.e = e;
  return s;
}

typedef struct {
  const PyObject *o;
  Intrin in;
  DType t;
  int n;
  ExprId *arg, out;
  const char *text;
  BufferId buf;
} Argument;
ERR_BODY(do_text, Argument *x, x->out = ex_str(SES, x->text))
ERR_BODY(do_call, Argument *x, x->out = ex_call(SES, x->in, x->t, x->n, x->arg))
static void do_address(void *p) {
  Argument *x = p;
  ExprId at = ex_load(SES, x->buf, ir_buffer(SES, x->buf)->type, x->n, x->arg);
  x->out = ex_call(SES, IN_ADDRESS, dtype(DT_HANDLE, 64), 1, &at);
}
/* A text, an expression, or (buffer, indices); 0: an exception is set. */
static ExprId read_argument(PyObject *o) {
  PyObject *seq;
  Argument x = {0};
  if (PyUnicode_Check(o)) return (x.text = py_utf8(o)) && py_guard(py_session(), do_text, &x) ? x.out : 0;
  if (!PyTuple_Check(o)) return py_expr_id(o);
  if (!PyArg_ParseTuple(o, "O&O", buffer_arg, &x.buf, &seq) || !read_indices(seq, x.buf, &x.arg)) return 0;
  x.n = ir_buffer(SES, x.buf)->rank;
  bool ok = py_guard(py_session(), do_address, &x);
  PyMem_Free(x.arg);
  return ok ? x.out : 0;
}
static Stmt *read_call(Job *j, PyObject *o) {
  PyObject *args, *type;
  const char *tag, *name;
  Argument x = {0};
  if (!PyArg_ParseTuple(o, "ssOO!", &tag, &name, &type, &PyTuple_Type, &args) || !py_dtype(type, &x.t)) return NULL;
  x.in = intrin_find(name);
  if (x.in != IN_EXTERN && x.in != IN_PACKED)
    return PyErr_Format(PyExc_ValueError, "'%s' is no call that stands by itself", name), NULL;
  x.n = (int)PyTuple_Size(args);
  x.arg = py_scratch_alloc(&j->s, x.n + 1, sizeof *x.arg);
  for (int i = 0; x.arg && i < x.n; i++)
    if (!(x.arg[i] = read_argument(PyTuple_GetItem(args, i)))) return NULL;
  Stmt *s = x.arg && py_guard(py_session(), do_call, &x) ? new_stmt(j, ST_EVAL) : NULL;
  if (s) s->u.eval.e = x.out;
  return s;
}
static const struct {
  const char *name;
  Stmt *(*read)(Job *j, PyObject *o);
} READ[] = {{"seq", read_seq},     {"for", read_for},     {"if", read_if},     {"let", read_let},
            {"alloc", read_alloc}, {"store", read_store}, {"eval", read_eval}, {"call", read_call}};

static Stmt *read_stmt(Job *j, PyObject *o) {
  const char *tag = PyTuple_Check(o) && PyTuple_Size(o) ? py_utf8(PyTuple_GetItem(o, 0)) : NULL;
  Stmt *s = NULL;
  if (Py_EnterRecursiveCall(" in a statement")) return NULL;
  for (int i = 0; tag && i < NS_COUNT(READ); i++)
    if (strcmp(READ[i].name, tag) == 0) {
      s = READ[i].read(j, o);
      Py_LeaveRecursiveCall();
      return s;
    }
  Py_LeaveRecursiveCall();
  if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%s is no statement", PY_TYPE_NAME(o));
  return NULL;
}

static Func func_of(const Job *j, LowUse use) {
  for (int i = 0; i < j->n_args; i++) {
    IrBuffer *b = ir_buffer(j->ctx, j->arg[i]);
    b->external = true, b->min = NULL;
  }
  return (Func){.ctx = j->ctx, .target = j->target, .body = j->body, .n_args = j->n_args, .arg = j->arg, .use = use};
}
static void do_program(void *p) {
  Job *j = p;
  Func f = func_of(j, LOW_CODE);
  if (f.target.kind != TG_CPU) {
    GpuCheck g = low_gpu_check(f);
    if (!g.ok) err_raise(ir_err(f.ctx), NS_ERR_VALUE, "the program cannot run on this GPU: %s", g.why);
  }
  Program made = low_build(f, j->name);
  j->source = gen_source(&made);
  j->manifest = gen_manifest(&made);
}

/* stmt_program(statement, buffers, target, name) -> (source, manifest) */
static PyObject *fn_program(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *body, *list, *out = NULL;
  Job j = {0};
  if (!PyArg_ParseTuple(args, "OO!O&s", &body, &PyTuple_Type, &list, py_target, &j.target, &j.name)) return NULL;
  j.n_args = (int)PyTuple_Size(list);
  j.arg = buffer_list(&j.s, list);
  if (j.arg && !PyErr_Occurred() && (j.body = read_stmt(&j, body)) && (j.ctx = py_candidate(SES, &j.err)) &&
      py_free_ok(&j.err, do_program, &j))
    out = Py_BuildValue("ss", j.source, j.manifest);
  ir_free(j.ctx);
  py_arena_free(j.s.a);
  return out;
}

/* stmt_features(statement, buffers, line, rules, log) -> bytes: rows of float32 */
typedef struct {
  Job j;
  int rules, log;
  Features f;
} Measure;
static void do_features(void *p) {
  Measure *m = p;
  Func f = func_of(&m->j, LOW_FEATURES);
  low_run(&f, pass_simplify);
  m->f = feat_extract(&f, (FeatRules)m->rules, m->log);
}
static PyObject *fn_features(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *body, *list, *out = NULL;
  Measure m = {.j.target = {.kind = TG_CPU}};
  long long line;
  if (!PyArg_ParseTuple(args, "OO!Lip", &body, &PyTuple_Type, &list, &line, &m.rules, &m.log)) return NULL;
  m.j.target.hw.cache_line_bytes = line;
  m.j.n_args = (int)PyTuple_Size(list);
  m.j.arg = buffer_list(&m.j.s, list);
  if (m.j.arg && !PyErr_Occurred() && (m.j.body = read_stmt(&m.j, body)) && (m.j.ctx = py_candidate(SES, &m.j.err)) &&
      py_free_ok(&m.j.err, do_features, &m))
    out = py_bytes(m.f.row, sizeof *m.f.row * (size_t)m.f.n_rows);
  ir_free(m.j.ctx);
  py_arena_free(m.j.s.a);
  return out;
}

/* ---- operations that are statements ---- */
typedef struct {
  Job j;
  int n_in, n_out;
  BufferId *buf;
  TensorId *tensor; /* as buf: inputs, results */
} ByHand;
static void do_attach(void *p) {
  const ByHand *x = p;
  Arena *a = ir_arena(SES);
  TeByHand *b = arena_new_of(a, TeByHand);
  const TeOp *first = te_op_of(SES, x->tensor[x->n_in]);
  int32_t *from = arena_array(a, int32_t, x->n_in + 1);
  for (int i = 0; i < x->n_in; i++)
    while (from[i] < first->n_in && first->in[from[i]] != x->tensor[i]) from[i]++;
  for (int i = 0; i < x->n_in; i++)
    err_check(ir_err(SES), from[i] < first->n_in, "operation %s does not read tensor %s", first->name,
              ir_tensor(SES, x->tensor[i])->name);
  *b = (TeByHand){st_copy(SES, x->j.body), x->n_in, x->n_out,
                  arena_copy(a, x->buf, sizeof(BufferId) * (size_t)(x->n_in + x->n_out)), from};
  for (int i = x->n_out - 1; i >= 0; i--) {
    TeOp *op = (TeOp *)(uintptr_t)te_op_of(SES, x->tensor[x->n_in + i]); /* made above; no schedule refers to it yet */
    op->by_hand = b;
    op->by_hand_first = i;
  }
}
static bool read_by_hand(ByHand *x, PyObject *body, PyObject *in, PyObject *ins, PyObject *out, PyObject *outs) {
  x->n_in = (int)PyTuple_Size(in), x->n_out = (int)PyTuple_Size(out);
  if (PyTuple_Size(ins) != x->n_in || PyTuple_Size(outs) != x->n_out || !x->n_out)
    return PyErr_Format(PyExc_ValueError, "one buffer for each input and each result"), false;
  PyObject *list = PySequence_Concat(ins, outs), *tensors = PySequence_Concat(in, out);
  x->buf = list ? buffer_list(&x->j.s, list) : NULL;
  x->tensor = x->buf ? py_scratch_alloc(&x->j.s, x->n_in + x->n_out, sizeof *x->tensor) : NULL;
  bool ok = x->tensor && tensors;
  for (int i = 0; ok && i < x->n_in + x->n_out; i++)
    ok = (x->tensor[i] = py_tensor_id(PyTuple_GetItem(tensors, i))) != 0;
  PY_DROP(list, tensors);
  return ok && (x->j.body = read_stmt(&x->j, body));
}
/* stmt_attach(statement, inputs, in_buffers, results, out_buffers) */
static PyObject *fn_attach(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *body, *in, *ins, *out, *outs;
  ByHand x = {0};
  PyTypeObject *t = &PyTuple_Type;
  if (!PyArg_ParseTuple(args, "OO!O!O!O!", &body, t, &in, t, &ins, t, &out, t, &outs)) return NULL;
  bool ok = read_by_hand(&x, body, in, ins, out, outs) && py_guard(py_session(), do_attach, &x);
  if (ok) py_scope_keep();
  py_arena_free(x.j.s.a);
  return py_none(ok);
}

/* ---- tensor intrinsics ---- */
typedef struct {
  ByHand h; /* its statement: the body */
  Stmt *reset, *update;
  VarId *var; /* per buffer where it begins, then strides; 0: none */
  int n_var;
} Intrinsic;
static void do_intrinsic(void *p) {
  Intrinsic *x = p;
  do_attach(&x->h);
  TeOp *op = (TeOp *)(uintptr_t)te_op_of(SES, x->h.tensor[x->h.n_in]);
  const TeByHand *b = op->by_hand;
  op->by_hand = NULL;
  int n = b->n_in + b->n_out;
  const VarId *var = arena_copy(ir_arena(SES), x->var, sizeof(VarId) * (size_t)x->n_var);
  TeIntrin *in = arena_new_of(ir_arena(SES), TeIntrin);
  *in =
      (TeIntrin){.name = op->name, .body = b->body, .n_in = b->n_in, .n_out = b->n_out, .buf = b->buf, .from = b->from};
  in->offset = var, in->stride = var + n;
  if (x->reset) in->reset = st_copy(SES, x->reset);
  if (x->update) in->update = st_copy(SES, x->update);
  op->intrin = in;
}
static bool read_variables(PyObject *list, Intrinsic *x) {
  int n = x->h.n_in + x->h.n_out;
  x->n_var = (int)PyTuple_Size(list);
  for (int i = 0, wanted = 0; i < n; i++) {
    wanted += 1 + ir_buffer(SES, x->h.buf[i])->rank;
    if (i == n - 1 && wanted != x->n_var)
      return PyErr_Format(PyExc_ValueError, "one variable for each first element and stride"), false;
  }
  x->var = py_scratch_alloc(&x->h.j.s, x->n_var + 1, sizeof *x->var);
  for (int i = 0; x->var && i < x->n_var; i++) {
    PyObject *o = PyTuple_GetItem(list, i);
    if (o != Py_None && !(x->var[i] = var_of(o))) return false;
  }
  return x->var != NULL;
}
/* stmt_intrinsic(body, reset, update, inputs, in_buffers, results, out_buffers, variables) */
static PyObject *fn_intrinsic(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *body, *reset, *update, *in, *ins, *out, *outs, *vars;
  Intrinsic x = {0};
  PyTypeObject *t = &PyTuple_Type;
  if (!PyArg_ParseTuple(args, "OOOO!O!O!O!O!", &body, &reset, &update, t, &in, t, &ins, t, &out, t, &outs, t, &vars))
    return NULL;
  bool ok = read_by_hand(&x.h, body, in, ins, out, outs) && read_variables(vars, &x) &&
            (reset == Py_None || (x.reset = read_stmt(&x.h.j, reset))) &&
            (update == Py_None || (x.update = read_stmt(&x.h.j, update))) && py_guard(py_session(), do_intrinsic, &x);
  if (ok) py_scope_keep();
  py_arena_free(x.h.j.s.a);
  return py_none(ok);
}

typedef struct {
  TensorId made, intrin;
  int at;
} Made;
static void do_tensorized(void *p) {
  const Made *x = p;
  TeOp *op = (TeOp *)(uintptr_t)te_op_of(SES, x->made);
  const TeOp *in = te_op_of(SES, x->intrin);
  err_check(ir_err(SES), in->intrin && x->at >= 0 && x->at < op->n_axis, "%s has no tensor intrinsic for axis %d of %s",
            in->name, x->at, op->name);
  op->tensorized = in;
  op->tensorized_at = x->at;
}
static PyObject *fn_number(PyObject *Py_UNUSED(m), PyObject *t) {
  TensorId id = py_tensor_id(t);
  return id ? PyLong_FromLong(id) : NULL;
}
/* stmt_tensorized(tensor, result of the intrinsic's operation, axis) */
static PyObject *fn_tensorized(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *a, *b;
  Made x = {0};
  if (!PyArg_ParseTuple(args, "OOi", &a, &b, &x.at) || !(x.made = py_tensor_id(a)) || !(x.intrin = py_tensor_id(b)))
    return NULL;
  return py_none(py_guard(py_session(), do_tensorized, &x));
}

/* ---- what a schedule is lowered to ---- */
static PyObject *write_stmt(const Stmt *s);
static PyObject *write_seq(const Stmt *s) {
  PyObject *t = PyTuple_New(s->u.seq.n + 1);
  if (t) py_put(&t, 0, PyUnicode_FromString("seq"));
  for (int i = 0; t && i < s->u.seq.n; i++) py_put(&t, i + 1, write_stmt(s->u.seq.at[i]));
  return t;
}
static PyObject *write_optional(const Stmt *s) { return s ? write_stmt(s) : Py_NewRef(Py_None); }
static PyObject *write_stmt(const Stmt *s) {
  IrCtx *c = SES;
  switch (s->kind) {
  case ST_SEQ: return write_seq(s);
  case ST_FOR:
    return Py_BuildValue("sNNNsN", "for", py_expr_new(ex_var(c, s->u.loop.var)), py_expr_new(s->u.loop.min),
                         py_expr_new(s->u.loop.extent), FOR_NAME[s->u.loop.kind], write_stmt(s->u.loop.body));
  case ST_IF:
    return Py_BuildValue("sNNN", "if", py_expr_new(s->u.cond.cond), write_stmt(s->u.cond.then),
                         write_optional(s->u.cond.other));
  case ST_LET:
    return Py_BuildValue("sNNN", "let", py_expr_new(ex_var(c, s->u.let.var)), py_expr_new(s->u.let.value),
                         write_stmt(s->u.let.body));
  case ST_ALLOC: return Py_BuildValue("siN", "alloc", (int)s->u.alloc.buf, write_stmt(s->u.alloc.body));
  case ST_STORE:
    return Py_BuildValue("siNN", "store", (int)s->u.store.buf, py_expr_new(s->u.store.value),
                         py_list(FIELD_EXPR, s->u.store.n_idx, s->u.store.idx));
  case ST_EVAL: return Py_BuildValue("sN", "eval", py_expr_new(s->u.eval.e));
  case ST_ATTR: return write_optional(s->u.attr.body);
  }
  return PyErr_Format(PyExc_RuntimeError, "a statement of an unknown kind");
}

typedef struct {
  PyState *o;
  PyArgs args;
  Target t;
  Func f;
  int *n_begin, **begin; /* NULL: all dimensions stay */
  const BufferId *whole; /* of the arguments, with the dimensions of the tensors */
} Loops;
static void do_loops(void *p) {
  Loops *l = p;
  State *s = state_copy(SES, l->o->state);
  int n;
  if (!s->bounded) state_infer_bounds(s);
  const TensorId *id = py_args_in(s, &l->args, &n);
  l->f = low_loops(s, &l->t, n, id, LOW_TEXT);
  l->whole = l->f.arg;
  if (!l->n_begin) return;
  low_join(&l->f, l->n_begin, (const int *const *)l->begin);
  bool joined = true;
  for (int i = 0; i < l->f.n_args; i++) joined &= l->n_begin[i] == 0;
  if (joined)
    l->f = low_printable(l->f);
  else
    low_run(&l->f, pass_simplify);
}
/* For each argument, the dimensions at which those of the memory begin. */
static bool read_begins(PyScratch *s, PyObject *lists, int n, Loops *l) {
  l->n_begin = py_scratch_alloc(s, n + 1, sizeof(int));
  l->begin = l->n_begin ? py_scratch_alloc(s, n + 1, sizeof(int *)) : NULL;
  if (!l->begin) return false;
  if (PyTuple_Size(lists) != n) return PyErr_Format(PyExc_ValueError, "one list for each argument"), false;
  for (int i = 0; i < n; i++) {
    PyObject *one = PyTuple_GetItem(lists, i);
    if (!PyTuple_Check(one)) return PyErr_Format(PyExc_TypeError, "dimensions are a tuple of integers"), false;
    l->n_begin[i] = (int)PyTuple_Size(one);
    l->begin[i] = py_scratch_alloc(s, l->n_begin[i] + 1, sizeof(int));
    for (int k = 0; l->begin[i] && k < l->n_begin[i]; k++)
      if (!py_value(FIELD_I32, PyTuple_GetItem(one, k), &l->begin[i][k])) return false;
    if (!l->begin[i]) return false;
  }
  return true;
}
/* stmt_of(schedule, args, target[, begins]) -> (statement, numbers of the arguments' buffers: with the dimensions of the tensor, and
 * of the statement) */
static PyObject *fn_of(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *o, *list, *begins = NULL, *out = NULL;
  Loops l = {0};
  PyScratch s = {0};
  if (!PyArg_ParseTuple(args, "O!OO&|O!", PySchedule_Type, &o, &list, py_target, &l.t, &PyTuple_Type, &begins))
    return NULL;
  l.o = (PyState *)o;
  if (py_args(l.o, list, &l.args) && (!begins || read_begins(&s, begins, l.args.n, &l)) &&
      py_guard(py_session(), do_loops, &l)) {
    PyObject *numbers = PyTuple_New(l.f.n_args);
    for (int i = 0; numbers && i < l.f.n_args; i++)
      py_put(&numbers, i, Py_BuildValue("(ii)", (int)l.whole[i], (int)l.f.arg[i]));
    out = Py_BuildValue("NN", l.f.body ? write_stmt(l.f.body) : Py_BuildValue("(s)", "seq"), numbers);
  }
  py_args_free(&l.args);
  py_arena_free(s.a);
  return out;
}

/* stmt_buffer_of(number) -> (name, dtype, extents, scope) */
static PyObject *fn_buffer_of(PyObject *Py_UNUSED(m), PyObject *args) {
  BufferId id;
  if (!PyArg_ParseTuple(args, "O&", buffer_arg, &id)) return NULL;
  const IrBuffer *b = ir_buffer(SES, id);
  return Py_BuildValue("sNNs", b->name, py_dtype_str(b->type), py_list(FIELD_EXPR, b->rank, b->extent),
                       SCOPE_NAME[b->scope]);
}

static PyMethodDef FUNCS[] = {
    {"stmt_buffer", fn_buffer, METH_VARARGS, "stmt_buffer(name, dtype, shape, scope): number of a new buffer."},
    {"stmt_load", fn_load, METH_VARARGS, "stmt_load(buffer, indices): an element of a buffer."},
    {"stmt_features", fn_features, METH_VARARGS,
     "stmt_features(statement, buffers, cache_line_bytes, rules, log): features of loops, a row of float32 per stored "
     "buffer."},
    {"stmt_program", fn_program, METH_VARARGS,
     "stmt_program(statement, buffers, target, name) -> (source, manifest): a program of statements (py_stmt.c) whose "
     "arguments are the "
     "buffers."},
    {"stmt_attach", fn_attach, METH_VARARGS,
     "stmt_attach(statement, inputs, in_buffers, results, out_buffers): the operations of these tensors, which read "
     "the "
     "inputs, are computed by the statement."},
    {"stmt_intrinsic", fn_intrinsic, METH_VARARGS,
     "stmt_intrinsic(body, reset, update, inputs, in_buffers, results, out_buffers, variables): a tensor intrinsic, "
     "which computes what the "
     "operation of the results does; reset and update may be None; variables, per buffer, of its first element, then "
     "of all strides, or None."},
    {"stmt_tensorized", fn_tensorized, METH_VARARGS,
     "stmt_tensorized(tensor, result, axis): the loops of the tensor from that axis on are computed by the intrinsic "
     "of the result's operation."},
    {"tensor_number", fn_number, METH_O,
     "tensor_number(tensor): its number in the session, by which steps name intrinsics."},
    {"stmt_of", fn_of, METH_VARARGS,
     "stmt_of(schedule, args, target[, begins]) -> (statement, buffers): the loops of a schedule, in the form that "
     "stmt_program "
     "takes; with begins, of each argument, buffers have the dimensions of the memory, which begin there."},
    {"stmt_buffer_of", fn_buffer_of, METH_VARARGS, "stmt_buffer_of(number) -> (name, dtype, extents, scope)."},
    {NULL, NULL, 0, NULL}};

int py_init_stmt(PyObject *m) { return PyModule_AddFunctions(m, FUNCS); }
