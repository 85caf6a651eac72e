/* te schedules in Python: `_core.Schedule`, a State in the session's context. te.schedule wraps it.
 *
 * Stages are numbers here, loops are te IterVar objects whose variable is the loop's handle.
 */
#include "py/py_fields.h"
#include "py/py_te_int.h"
#include <string.h>

PyTypeObject *PySchedule_Type;

static State *state_of(PyObject *o) {
  py_scope_uses(((PyState *)o)->scope);
  return ((PyState *)o)->state;
}

typedef struct {
  State *s;
  int stage, leaf, n, offset, kind;
  VarId var;
  ExprId a, b;
  const char *text;
  long long value;
  MatrixTile matrix;
  void *list; /* n positions of leaves (int), or numbers of stages (int64_t) */
  const TeOp **ops;
  Step *steps;
  int out;
} Call;
static bool run(ErrBody body, Call *x) { return py_guard(py_session(), body, x); }

/* ---- loops as IterVar objects ---- */

static PyObject *axis_obj(const Axis *a) { /* it has a handle */
  bool reduce = a->kind == IT_REDUCE || a->kind == IT_MIXED;
  bool root = a->min && a->extent && !a->rebase_of;
  return py_iter_new(a->handle, root ? a->min : 0, root ? a->extent : 0, reduce ? IV_REDUCE : IV_DATA, NULL);
}

ERR_BODY(do_find, Call *x, x->leaf = hand_axis(x->s, x->stage, x->var))
ERR_BODY(do_handles, Call *x,
         for (int k = 0; k < x->s->stage.at[x->stage].axes.len; k++) axis_handle(x->s, x->stage, k))

static bool stage_ok(const State *s, int i) {
  if (i >= 0 && i < s->stage.len) return true;
  PyErr_Format(PyExc_IndexError, "stage %d does not exist; there are %d", i, s->stage.len);
  return false;
}

/* Converters for O&. They fill a Call: a stage's number, an axis's handle, an axis of the stage that was read before. */
static int to_stage(PyObject *o, void *call) {
  Call *x = call;
  return py_value(FIELD_I32, o, &x->stage) && stage_ok(x->s, x->stage);
}
static int to_handle(PyObject *iv, void *call) {
  if (!PyObject_TypeCheck(iv, PyIterVar_Type))
    return PyErr_Format(PyExc_TypeError, "expected an axis (te.IterVar), not %s", PY_TYPE_NAME(iv)), 0;
  return ((Call *)call)->var = ((PyIterVar *)iv)->var, 1;
}
static int to_leaf(PyObject *iv, void *call) { return to_handle(iv, call) && run(do_find, call); }
/* an expression, or None for none */
static int to_expr(PyObject *o, void *id) { return o == Py_None || py_expr_arg(o, id); }

static PyObject *leaf_obj(Call *x, int leaf) {
  const Stage *st = &x->s->stage.at[x->stage];
  return run(do_handles, x) ? axis_obj(&st->axes.at[st->leaf.at[leaf]]) : NULL;
}

/* ---- making ---- */

ERR_BODY(do_new, Call *x, x->s = hand_new(SES, x->n, x->ops))

static PyObject *sched_obj(PyTypeObject *type, State *s) {
  PyState *o = (PyState *)PyType_GenericAlloc(type, 0);
  if (o) o->state = s, py_scope_born(&o->scope);
  return (PyObject *)o;
}

/* The operations of a list, in memory of PyMem; NULL with the exception set. */
static const TeOp **ops_from(PyObject *list) {
  const TeOp **ops = py_calloc(PyList_Size(list) + 1, sizeof(TeOp *));
  for (Py_ssize_t i = 0; ops && i < PyList_Size(list); i++) {
    PyObject *o = PyList_GetItem(list, i);
    if (PyObject_TypeCheck(o, PyOperation_Type)) {
      ops[i] = ((PyOperation *)o)->op;
      continue;
    }
    PyErr_Format(PyExc_TypeError, "output %zd is no te.Operation but %s", i, PY_TYPE_NAME(o));
    PyMem_Free(ops);
    return NULL;
  }
  return ops;
}
static PyObject *sched_py_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
  PyObject *list;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O!", PY_NAMES("outputs"), &PyList_Type, &list)) return NULL;
  Call x = {.n = (int)PyList_Size(list), .ops = ops_from(list)};
  PyObject *r = x.ops && run(do_new, &x) ? sched_obj(type, x.s) : NULL;
  PyMem_Free(x.ops);
  return r;
}

typedef struct {
  const char *json;
  int n, option;
  const TensorId *t;
  TeDag *dag;
  State *s;
  bool layout_only;
} Replay;
static void do_replay(void *p) {
  Replay *x = p;
  int n = 0;
  Step *steps = steps_parse(ir_arena(SES), x->json, &n);
  x->dag = te_dag(SES, x->n, x->t);
  if (x->option) x->dag = dag_rewrite_layout(SES, x->dag, &n, &steps, x->option, NULL, NULL);
  if (x->layout_only) return;
  x->s = state_replay(SES, x->dag, n, steps);
  x->s->by_hand = true;
}

static bool replay(PyObject *dag, Replay *x) {
  PyObject *list = ((PyDag *)dag)->tensors;
  Py_ssize_t n = PyList_Size(list);
  TensorId *t = py_array(FIELD_TENSOR, list);
  x->n = (int)n;
  x->t = t;
  bool ok = t && py_guard(py_session(), do_replay, x);
  PyMem_Free(t);
  return ok;
}

/* schedule_from_steps(dag, steps, layout_rewrite) -> (Schedule, tensors) */
static PyObject *fn_from_steps(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *dag;
  Replay x = {0};
  if (!PyArg_ParseTuple(args, "O!si", PyDag_Type, &dag, &x.json, &x.option) || !replay(dag, &x)) return NULL;
  return Py_BuildValue("(NN)", sched_obj(PySchedule_Type, x.s), py_list(FIELD_TENSOR, x.dag->n_tensors, x.dag->tensor));
}

static PyObject *fn_rewrite_layout(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *dag;
  Replay x = {.option = 2, .layout_only = true};
  if (!PyArg_ParseTuple(args, "O!s|i", PyDag_Type, &dag, &x.json, &x.option) || !replay(dag, &x)) return NULL;
  PyObject *t = py_list(FIELD_TENSOR, x.dag->n_tensors, x.dag->tensor);
  PyObject *r = t ? PyObject_CallFunctionObjArgs((PyObject *)Py_TYPE(dag), t, NULL) : NULL;
  Py_XDECREF(t);
  return r;
}

/* ---- looking at it ---- */

static PyObject *m_find(PyObject *o, PyObject *key) {
  if (!PyObject_TypeCheck(key, PyOperation_Type))
    return PyErr_Format(PyExc_TypeError, "expected a te.Operation, not %s", PY_TYPE_NAME(key));
  return PyLong_FromLong(hand_stage(state_of(o), ((PyOperation *)key)->op));
}

static PyObject *axes_list(State *s, int stage, bool leaves) {
  if (!run(do_handles, &(Call){.s = s, .stage = stage})) return NULL;
  const Stage *st = &s->stage.at[stage];
  int n = leaves ? st->leaf.len : st->axes.len;
  PyObject *l = PyList_New(n);
  for (int i = 0; l && i < n; i++) py_put(&l, i, axis_obj(&st->axes.at[leaves ? st->leaf.at[i] : i]));
  return l;
}

enum { Q_OP, Q_ORIGIN, Q_LEAVES, Q_AXES, Q_OUTPUT, Q_ATTACH, Q_TARGET };
static PyObject *m_stage(PyObject *o, PyObject *args) {
  int i, what;
  if (!PyArg_ParseTuple(args, "ii", &i, &what) || !stage_ok(state_of(o), i)) return NULL;
  const Stage *st = &state_of(o)->stage.at[i];
  switch (what) {
  case Q_OP: return py_operation_of(st->op->out[0]);
  case Q_ORIGIN: return py_operation_of(st->origin->out[0]);
  case Q_LEAVES: return axes_list(state_of(o), i, true);
  case Q_AXES: return axes_list(state_of(o), i, false);
  case Q_OUTPUT: return PyBool_FromLong(st->is_output);
  case Q_ATTACH: return PyLong_FromLong(st->at);
  default: return PyLong_FromLong(st->at_stage);
  }
}

static void do_bounds(void *p) {
  Call *x = p;
  for (x->stage = 0; x->stage < x->s->stage.len; x->stage++)
    if (x->s->stage.at[x->stage].op->kind == TE_COMPUTE) do_handles(x);
  x->s = state_copy(SES, x->s);
  state_infer_bounds(x->s);
}
ERR_BODY(do_copy, Call *x, x->s = state_copy(SES, x->s))

/* bounds() -> per stage a list of (IterVar, min, extent) */
static PyObject *m_bounds(PyObject *o, PyObject *Py_UNUSED(u)) {
  Call x = {.s = state_of(o)};
  if (!run(do_bounds, &x)) return NULL;
  PyObject *l = PyList_New(x.s->stage.len);
  for (int i = 0; l && i < x.s->stage.len; i++) {
    const Stage *st = &x.s->stage.at[i];
    PyObject *row = PyList_New(st->n_plain_axes);
    for (int k = 0; row && k < st->n_plain_axes; k++) {
      const Axis *a = &st->axes.at[k];
      py_put(&row, k, Py_BuildValue("(NNN)", axis_obj(a), py_dim_new(a->min), py_dim_new(a->extent)));
    }
    py_put(&l, i, row);
  }
  return l;
}

static PyObject *m_copy(PyObject *o, PyObject *Py_UNUSED(u)) {
  Call x = {.s = state_of(o)};
  return run(do_copy, &x) ? sched_obj(Py_TYPE(o), x.s) : NULL;
}

/* ---- as a State, for code generation ---- */

typedef struct {
  IrCtx *c;
  const State *from;
  State *s;
  int n;
  const TensorId *args;
} AsState;
static void do_as_state(void *p) {
  AsState *x = p;
  TeDag *d = arena_copy(ir_arena(x->c), x->from->dag0, sizeof(TeDag));
  d->n_tensors = x->n;
  d->tensor = arena_copy(ir_arena(x->c), x->args, sizeof(TensorId) * (size_t)x->n);
  x->s = state_copy(x->c, x->from);
  x->s->dag0 = d;
}

/* state(args): a _core.State in a clone of the session, whose arguments are the given tensors. It has no steps and no
 * DAG object: it can be lowered, built and printed. */
static PyObject *m_state(PyObject *o, PyObject *list) {
  PyObject *seq = PySequence_Fast(list, "args must be a sequence of tensors");
  if (!seq) return NULL;
  Py_ssize_t n = PySequence_Size(seq);
  TensorId *ids = py_array(FIELD_TENSOR, seq);
  PyState *r = ids ? (PyState *)PyType_GenericAlloc(PyState_Type, 0) : NULL;
  if (r) {
    py_scope_born(&r->scope); /* its context shares texts and operations with the session */
    err_init(&r->own.err);
    r->own.ctx = py_candidate(SES, &r->own.err);
    AsState x = {.c = r->own.ctx, .from = state_of(o), .n = (int)n, .args = ids};
    if (!r->own.ctx || !py_guard(&r->own, do_as_state, &x))
      Py_CLEAR(r);
    else
      r->state = x.s;
  }
  PyMem_Free(ids);
  Py_DECREF(seq);
  return (PyObject *)r;
}

/* ---- its steps ---- */

static void do_replay_on(void *p) { /* on a copy, so that a list that fails changes nothing */
  Call *x = p;
  int n = 0;
  Step *steps = steps_parse(ir_arena(SES), x->text, &n);
  x->s = state_copy(SES, x->s);
  state_append(x->s, n, steps);
}
static PyObject *m_replay(PyObject *o, PyObject *args) {
  Call x = {.s = state_of(o)};
  if (!PyArg_ParseTuple(args, "s", &x.text) || !run(do_replay_on, &x)) return NULL;
  ((PyState *)o)->state = x.s;
  Py_RETURN_NONE;
}

ERR_BODY(do_steps_for, Call *x,
         x->text = steps_text(ir_arena(SES), x->s->step.len, hand_steps_for(ir_arena(SES), x->s, x->n, x->ops)))
static PyObject *m_steps_for(PyObject *o, PyObject *dag) {
  if (!PyObject_TypeCheck(dag, PyDag_Type))
    return PyErr_Format(PyExc_TypeError, "expected a ComputeDAG, not %s", PY_TYPE_NAME(dag));
  PyObject *ops = ((PyDag *)dag)->ops;
  Call x = {.s = state_of(o), .n = (int)PyList_Size(ops), .ops = ops_from(ops)};
  PyObject *r = x.ops && run(do_steps_for, &x) ? PyUnicode_FromString(x.text) : NULL;
  PyMem_Free(x.ops);
  return r;
}

/* ---- primitives ---- */

static int to_leaves(PyObject *l, void *call) {
  Call *x = call;
  if (!PyList_Check(l)) return PyErr_Format(PyExc_TypeError, "expected a list of axes, not %s", PY_TYPE_NAME(l)), 0;
  int n = (int)PyList_Size(l), *at = x->list = py_calloc(n + 1, sizeof(int));
  for (; at && x->n < n && to_leaf(PyList_GetItem(l, x->n), x); x->n++) at[x->n] = x->leaf;
  return at && x->n == n;
}

static int to_readers(PyObject *l, void *call) {
  Call *x = call;
  if (!PyList_Check(l)) return PyErr_Format(PyExc_TypeError, "expected a list of stages, not %s", PY_TYPE_NAME(l)), 0;
  int n = (int)PyList_Size(l); /* converting an item may change it */
  const int64_t *id = x->list = py_array(FIELD_I64, l);
  bool ok = id != NULL;
  for (; ok && x->n < n; x->n++) {
    int64_t i = id[x->n];
    ok = stage_ok(x->s, i < 0 || i > INT32_MAX ? -1 : (int)i);
    if (ok && x->s->stage.at[i].op->kind != TE_COMPUTE)
      PyErr_SetString(PyExc_ValueError, "a placeholder cannot be a reader"), ok = false;
  }
  return ok;
}

static int to_thread(PyObject *o, void *call) {
  Call *x = call;
  if (!PyObject_TypeCheck(o, PyIterVar_Type) || ((PyIterVar *)o)->kind != IV_THREAD)
    return PyErr_Format(PyExc_ValueError, "bind needs a te.thread_axis as its second axis"), 0;
  PyObject *tag = ((PyIterVar *)o)->tag;
  const char *t = PyUnicode_Check(tag) ? py_utf8(tag) : NULL;
  x->var = ((PyIterVar *)o)->var;
  x->kind = t && (!strncmp(t, "vthread", 7) || !strcmp(t, "cthread")) ? AN_VTHREAD : AN_NONE;
  for (int i = AN_BLOCK_X; t && i <= AN_THREAD_Z; i++)
    if (!strcmp(t, AN_WORD[i])) x->kind = i;
  if (x->kind == AN_NONE && !PyErr_Occurred()) py_err_objects(PyExc_ValueError, "thread axis tag %R is not known", tag);
  return x->kind != AN_NONE;
}

static int to_condition(PyObject *o, void *id) {
  if (!py_expr_arg(o, id)) return 0;
  DType t = ir_type(SES, *(ExprId *)id);
  if (t.code == DT_BOOL.code && t.bits == DT_BOOL.bits && t.lanes == 1) return 1;
  return PyErr_Format(PyExc_TypeError, "set_store_predicate needs a condition, e.g. thread.equal(0)"), 0;
}

static PyObject *nothing(Call *x) { return py_none(x != NULL); }
static PyObject *two_axes(Call *x) { return Py_BuildValue("(NN)", leaf_obj(x, x->leaf), leaf_obj(x, x->leaf + 1)); }
static PyObject *outputs_of(Call *x) {
  const TeOp *op = x->s->stage.at[x->out].op;
  return py_list(FIELD_TENSOR, op->n_out, op->out);
}

/* A primitive: its name, what it gives back, the engine's call, and how PyArg_ParseTuple reads its arguments. The stage that
 * compute_at moves is in n: the axis is one of the target's. */
#define PRIMITIVE(name, result, call, ...)                                                                             \
  ERR_BODY(do_##name, Call *x, call)                                                                                   \
  static PyObject *m_##name(PyObject *o, PyObject *args) {                                                             \
    Call x = {.s = state_of(o)};                                                                                       \
    PyObject *r = PyArg_ParseTuple(args, __VA_ARGS__) && run(do_##name, &x) ? result(&x) : NULL;                       \
    PyMem_Free(x.list);                                                                                                \
    return r;                                                                                                          \
  }
PRIMITIVE(split, two_axes, hand_split(x->s, x->stage, x->leaf, x->a, x->b), "O&O&O&O&", to_stage, &x, to_leaf, &x,
          to_expr, &x.a, to_expr, &x.b)
PRIMITIVE(reorder, nothing, hand_reorder(x->s, x->stage, x->n, x->list), "O&O&", to_stage, &x, to_leaves, &x)
PRIMITIVE(bind, nothing, hand_bind(x->s, x->stage, x->leaf, x->var, (Annotation)x->kind), "O&O&O&", to_stage, &x,
          to_leaf, &x, to_thread, &x)
PRIMITIVE(annotate, nothing, hand_annotate(x->s, x->stage, x->leaf, (Annotation)x->kind), "O&O&i", to_stage, &x,
          to_leaf, &x, &x.kind)
PRIMITIVE(pragma, nothing, hand_pragma(x->s, x->stage, x->leaf, x->text, x->value), "O&O&sL", to_stage, &x, to_leaf, &x,
          &x.text, &x.value)
PRIMITIVE(compute_at, nothing, state_compute_at(x->s, x->n, x->stage, x->leaf), "iO&O&", &x.n, to_stage, &x, to_leaf,
          &x)
PRIMITIVE(compute_inline, nothing, hand_compute_inline(x->s, x->stage), "O&", to_stage, &x)
PRIMITIVE(compute_root, nothing, hand_compute_root(x->s, x->stage), "O&", to_stage, &x)
PRIMITIVE(double_buffer, nothing, hand_double_buffer(x->s, x->stage), "O&", to_stage, &x)
PRIMITIVE(storage_align, nothing, hand_storage_align(x->s, x->stage, x->var, x->n, x->offset), "O&O&ii", to_stage, &x,
          to_handle, &x, &x.n, &x.offset)
PRIMITIVE(tensor_cores, nothing, hand_matrix(x->s, x->stage, &x->matrix), "O&(iii)(ii)ipiiipip", to_stage, &x,
          &x.matrix.block_m, &x.matrix.block_n, &x.matrix.block_k, &x.matrix.warp_m, &x.matrix.warp_n, &x.matrix.stages,
          &x.matrix.transposed, &x.matrix.split, &x.matrix.terms, &x.matrix.warpgroups, &x.matrix.wide, &x.matrix.teams,
          &x.matrix.last)
PRIMITIVE(set_scope, nothing, hand_scope(x->s, x->stage, x->text), "O&s", to_stage, &x, &x.text)
PRIMITIVE(set_store_predicate, nothing, hand_predicate(x->s, x->stage, x->a), "O&O&", to_stage, &x, to_condition, &x.a)
PRIMITIVE(cache_read, outputs_of, x->out = state_cache_read(x->s, x->stage, x->text, x->n, x->list), "O&sO&", to_stage,
          &x, &x.text, to_readers, &x)
PRIMITIVE(cache_write, outputs_of, x->out = hand_cache_write(x->s, x->stage, x->text), "O&s", to_stage, &x, &x.text)
PRIMITIVE(rfactor, outputs_of, x->out = hand_rfactor(x->s, x->stage, x->leaf, x->n), "O&O&i", to_stage, &x, to_leaf, &x,
          &x.n)

ERR_BODY(do_fuse, Call *x, hand_fuse(x->s, x->stage, x->leaf))
static PyObject *m_fuse(PyObject *o, PyObject *args) { /* two axes, or none */
  PyObject *a = NULL, *b = NULL;
  Call x = {.s = state_of(o), .leaf = -1};
  if (!PyArg_ParseTuple(args, "O&|OO", to_stage, &x, &a, &b)) return NULL;
  if (!a) return run(do_fuse, &x) ? leaf_obj(&x, 0) : NULL;
  if (!to_leaf(a, &x)) return NULL;
  int first = x.leaf;
  if (!b) return Py_NewRef(a);
  if (!to_leaf(b, &x)) return NULL;
  if (x.leaf - first != 1 && first - x.leaf != 1)
    return PyErr_Format(PyExc_ValueError, "fuse: the axes are not adjacent (positions %d and %d); reorder them first",
                        first, x.leaf);
  if (first < x.leaf) x.leaf = first; /* given in reverse order they are swapped silently */
  return run(do_fuse, &x) ? leaf_obj(&x, x.leaf) : NULL;
}

static PyObject *sched_len(PyObject *o, void *Py_UNUSED(u)) { return PyLong_FromLong(state_of(o)->stage.len); }

static void sched_dealloc(PyObject *o) { /* the state lives in the session */
  py_scope_dies(((PyState *)o)->scope);
  py_free_object(o);
}

static PyGetSetDef SCHED_GET[] = {{"num_stages", sched_len, NULL, "Number of stages.", NULL},
                                  {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef SCHED_METHODS[] = {
    {"find", m_find, METH_O, "find(op): stage number, -1 if the schedule does not hold it."},
    {"stage", m_stage, METH_VARARGS,
     "stage(i, what): 0 op, 1 origin op, 2 leaves, 3 all axes, 4 is output, 5 attach kind, 6 attach stage."},
    {"bounds", m_bounds, METH_NOARGS, "Per stage a list of (axis, min, extent) after bound inference."},
    {"state", m_state, METH_O, "state(args): a State for code generation, with these tensors as arguments."},
    {"replay", m_replay, METH_VARARGS,
     "replay(steps): appends steps (JSON text) of a schedule of the same operations."},
    {"steps_for", m_steps_for, METH_O, "steps_for(dag): the steps with the stage numbers of a ComputeDAG."},
    {"copy", m_copy, METH_NOARGS, "An independent schedule."},
    {"split", m_split, METH_VARARGS, "split(stage, axis, factor, nparts): (outer, inner)."},
    {"fuse", m_fuse, METH_VARARGS, "fuse(stage[, a, b]): the fused axis."},
    {"reorder", m_reorder, METH_VARARGS, "reorder(stage, axes)."},
    {"bind", m_bind, METH_VARARGS, "bind(stage, axis, thread_axis)."},
    {"annotate", m_annotate, METH_VARARGS, "annotate(stage, axis, code)."},
    {"pragma", m_pragma, METH_VARARGS, "pragma(stage, axis, key, value)."},
    {"compute_at", m_compute_at, METH_VARARGS, "compute_at(stage, target, axis)."},
    {"compute_inline", m_compute_inline, METH_VARARGS, "compute_inline(stage)."},
    {"compute_root", m_compute_root, METH_VARARGS, "compute_root(stage)."},
    {"double_buffer", m_double_buffer, METH_VARARGS, "double_buffer(stage)."},
    {"tensor_cores", m_tensor_cores, METH_VARARGS,
     "tensor_cores(stage, block, warp, stages, transposed, split, terms, warpgroups, wide, teams, last)."},
    {"storage_align", m_storage_align, METH_VARARGS, "storage_align(stage, axis, factor, offset)."},
    {"set_scope", m_set_scope, METH_VARARGS, "set_scope(stage, scope)."},
    {"set_store_predicate", m_set_store_predicate, METH_VARARGS, "set_store_predicate(stage, condition)."},
    {"cache_read", m_cache_read, METH_VARARGS, "cache_read(stage, scope, readers): the new stage's tensors."},
    {"cache_write", m_cache_write, METH_VARARGS, "cache_write(stage, scope): the new stage's tensors."},
    {"rfactor", m_rfactor, METH_VARARGS, "rfactor(stage, axis, factor_axis): the new stage's tensors."},
    {NULL, NULL, 0, NULL}};
static PyMethodDef FUNCS[] = {{"schedule_from_steps", fn_from_steps, METH_VARARGS,
                               "schedule_from_steps(dag, steps, layout_rewrite): (Schedule, tensors)."},
                              {"dag_rewrite_layout", fn_rewrite_layout, METH_VARARGS,
                               "dag_rewrite_layout(dag, steps, option=2): the DAG with constant inputs re-laid out."},
                              {NULL, NULL, 0, NULL}};

static const PyClass CLASSES[] = {PY_CLASS(
    "Schedule", sizeof(PyState), .type = &PySchedule_Type, .base = &PyStateBase_Type, .flags = Py_TPFLAGS_BASETYPE,
    .create = sched_py_new, .drop = sched_dealloc, .methods = SCHED_METHODS, .get = SCHED_GET,
    .doc = "Schedule(outputs): stages of all operations that the outputs (te.Operation) need.")};

int py_init_sched(PyObject *m) { return py_add(m, NS_COUNT(CLASSES), CLASSES, FUNCS); }
