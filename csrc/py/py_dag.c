/* ComputeDAG in Python: built from te tensors of the session, then copied into a context of its own. */
#include "py/py_fields.h"
#include "py/py_te_int.h"

enum { MAX_LINE = 256, HALF_LINE = 128 };

typedef struct {
  PyDag *dag;
  int n, n_order;
  const TensorId *t, *order; /* order: a tensor of each operation, by stage; NULL: the engine orders them */
  TeDag *ordered;            /* its operations are those of the session */
} Build;

/* The operations in the order that a schedule gives them. */
static void in_order(const Build *x, IrCtx *own) {
  Arena *a = ir_arena(own);
  TeDag *d = x->ordered;
  TeOp **op = arena_array(a, TeOp *, x->n_order);
  for (int i = 0; i < x->n_order; i++) {
    int k = te_dag_op_of(SES, d, x->order[i]);
    err_check(arena_err(a), k >= 0, "stage %d of the schedule is not needed for its outputs", i);
    op[i] = d->op[k];
  }
  err_check(arena_err(a), x->n_order == d->n_ops, "the schedule has %d stages, its outputs need %d operations",
            x->n_order, d->n_ops);
  d->op = op;
}

/* The session grows and other threads use it, so it is only read, under the interpreter lock, and not for long. */
static void do_import(void *p) {
  Build *x = p;
  IrCtx *own = x->dag->own.ctx;
  x->ordered = te_dag_ordered(ir_arena(own), SES, x->n, x->t);
  if (x->order) in_order(x, own);
  x->dag->dag = te_dag_import(own, SES, x->ordered);
}

static void do_analyse(void *p) {
  const PyDag *x = p;
  TeDag *d = x->dag;
  te_analyse(x->own.ctx, d);
  bool *is_output = arena_array(ir_arena(x->own.ctx), bool, d->n_ops);
  for (int i = 0; i < d->n_ops; i++) is_output[i] = d->flags[i].is_output;
  te_check_reads(x->own.ctx, d->n_ops, d->op, is_output);
}

static PyObject *dag_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
  PyObject *seq, *order = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O|O!", PY_NAMES("tensors", "order"), &seq, &PyList_Type, &order))
    return NULL;
  PyObject *list = PySequence_List(seq);
  if (!list) return NULL;
  Py_ssize_t n = PyList_Size(list), n_order = order == Py_None ? 0 : PyList_Size(order);
  PyDag *d = (PyDag *)PyType_GenericAlloc(type, 0);
  TensorId *ids = py_array(FIELD_TENSOR, list), *stages = n_order ? py_array(FIELD_TENSOR, order) : NULL;
  bool ok = d && ids && (stages || !n_order);
  if (d)
    d->tensors = list;
  else
    Py_DECREF(list);
  Build x = {.dag = d, .n = (int)n, .t = ids, .n_order = (int)n_order, .order = stages};
  if (ok) {
    err_init(&d->own.err);
    ok = (d->own.ctx = py_context(&d->own.err)) && py_guard(&d->own, do_import, &x) &&
         py_free_ok(&d->own.err, do_analyse, d) && (d->ops = PyList_New(x.ordered->n_ops));
    for (int i = 0; ok && i < x.ordered->n_ops; i++) {
      py_put(&d->ops, i, py_operation_of(x.ordered->op[i]->out[0]));
      ok = d->ops != NULL;
    }
  }
  PyMem_Free(ids);
  PyMem_Free(stages);
  if (!ok) Py_CLEAR(d);
  return (PyObject *)d;
}

static void dag_dealloc(PyObject *o) {
  PyDag *d = (PyDag *)o;
  if (d->own.ctx) ir_free(d->own.ctx);
  PY_DROP(d->tensors, d->ops);
  py_free_object(o);
}

/* ---- text and key ---- */
typedef struct {
  PyCopy copy; /* the DAG's own context never changes */
  const TeDag *d;
  bool simple;
  char *out;
} Text;
ERR_BODY(do_text, Text *x, x->out = te_dag_text(x->copy.own.ctx, x->d, x->simple))
ERR_BODY(do_key, Text *x, x->out = te_workload_key(x->copy.own.ctx, x->d))
static PyObject *text_with(PyDag *d, ErrBody body, Text *x) {
  x->d = d->dag;
  bool ok = py_copy_dag(&x->copy, d) && py_copy_run(&x->copy, py_free, body, x);
  PyObject *r = ok ? PyUnicode_FromString(x->out) : NULL;
  py_copy_drop(&x->copy);
  return r;
}

static PyObject *dag_text(PyObject *o, PyObject *args, PyObject *kw) {
  int simple = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "|p", PY_NAMES("simple"), &simple)) return NULL;
  return text_with((PyDag *)o, do_text, &(Text){.simple = simple});
}
static PyObject *dag_key(PyObject *o, PyObject *Py_UNUSED(u)) {
  return text_with((PyDag *)o, do_key, &(Text){.simple = true});
}

/* The listing for people: long lines lose their middle. */
static PyObject *dag_str(PyObject *o) {
  PyObject *full = text_with((PyDag *)o, do_text, &(Text){.simple = false});
  PyObject *nl = PyUnicode_FromString("\n"), *lines = full && nl ? PyUnicode_Split(full, nl, -1) : NULL, *r = NULL;
  Py_ssize_t n = lines ? PyList_Size(lines) : 0;
  bool ok = lines != NULL;
  for (Py_ssize_t i = 0; ok && i < n; i++) {
    PyObject *line = PyList_GetItem(lines, i);
    Py_ssize_t len = PyUnicode_GetLength(line);
    if (len <= MAX_LINE) continue;
    PyObject *head = PyUnicode_Substring(line, 0, HALF_LINE), *tail = PyUnicode_Substring(line, len - HALF_LINE, len);
    PyObject *cut = head && tail ? py_text_objects("%U ..(OMITTED).. %U", head, tail) : NULL;
    PY_DROP(head, tail);
    ok = cut && PyList_SetItem(lines, i, cut) == 0;
  }
  if (ok) r = PyUnicode_Join(nl, lines);
  PY_DROP(full, nl, lines);
  return r;
}

/* ---- analysis ---- */

/* Of a stage, a number for each one that it reads. */
typedef enum { COMMON_OUTER, READS, USES } OfEdge;
static PyObject *edges_of(const PyDag *p, int stage, OfEdge what) {
  const TeDag *d = p->dag;
  PyObject *out = PyDict_New();
  for (int k = 0; out && k < d->n_edges; k++) {
    const TeEdge *e = &d->edge[k];
    if (e->consumer != stage) continue;
    int n = what == COMMON_OUTER ? e->common_outer
            : what == READS      ? e->n_access
                                 : te_uses(p->own.ctx, d, stage, e->producer);
    PyObject *key = PyLong_FromLong(e->producer), *val = PyLong_FromLong(n);
    if (!key || !val || PyDict_SetItem(out, key, val) < 0) Py_CLEAR(out);
    PY_DROP(key, val);
  }
  return out;
}

static PyObject *dag_stages(PyObject *o, PyObject *Py_UNUSED(u)) {
  const PyDag *p = (PyDag *)o;
  static const char *const INNER[] = {NULL, "terms", "results"};
  const TeDag *d = p->dag;
  PyObject *l = PyList_New(d->n_ops);
  for (int i = 0; l && i < d->n_ops; i++) {
    const TeFlags f = d->flags[i];
    PyObject *edges[3] = {NULL};
    bool ok = true;
    for (int k = 0; ok && k < 3; k++) ok = (edges[k] = edges_of(p, i, (OfEdge)k)) != NULL;
    if (!ok) PY_DROP(edges[0], edges[1]);
    py_put(&l, i,
           ok ? Py_BuildValue("{s:s,s:s,s:O,s:O,s:O,s:O,s:O,s:O,s:O,s:z,s:i,s:N,s:N,s:N}", "name", d->op[i]->name,
                              "kind", d->op[i]->kind == TE_PLACEHOLDER ? "placeholder" : "compute", "is_simple_access",
                              f.simple_access ? Py_True : Py_False, "is_strictly_inlineable",
                              f.strictly_inlineable ? Py_True : Py_False, "needs_multi_level_tiling",
                              f.needs_tiling ? Py_True : Py_False, "is_output", f.is_output ? Py_True : Py_False,
                              "has_branch", f.has_branch ? Py_True : Py_False, "has_expensive",
                              f.has_expensive ? Py_True : Py_False, "is_large", f.large ? Py_True : Py_False,
                              "innermost", INNER[te_innermost(p->own.ctx, d, i)], "beside", te_beside(p->own.ctx, d, i),
                              "common_outer_iterators", edges[0], "reads", edges[1], "uses", edges[2])
              : NULL);
  }
  return l;
}

typedef struct {
  PyCopy copy;
  const TeDag *d;
  int threads, n_wanted;
  const int32_t *wanted;
  char *out;
} Default;
static void do_default(void *arg) {
  Default *x = arg;
  IrCtx *c = x->copy.own.ctx;
  bool *wanted = arena_array(ir_arena(c), bool, x->d->n_ops + 1);
  for (int i = 0; i < x->d->n_tensors; i++) wanted[te_dag_op_of(c, x->d, x->d->tensor[i])] = true;
  for (int i = 0; i < x->n_wanted; i++) {
    err_check(ir_err(c), x->wanted[i] >= 0 && x->wanted[i] < x->d->n_ops, "there is no stage %d", (int)x->wanted[i]);
    wanted[x->wanted[i]] = true;
  }
  State *s = state_default(c, x->d, x->threads, wanted);
  x->out = steps_text(ir_arena(c), s->step.len, s->step.at);
}
static PyObject *dag_default_steps(PyObject *o, PyObject *args) {
  PyObject *list;
  Default x = {.d = ((PyDag *)o)->dag};
  if (!PyArg_ParseTuple(args, "iO!", &x.threads, &PyList_Type, &list)) return NULL;
  int32_t *wanted = py_array(FIELD_I32, list);
  x.wanted = wanted;
  x.n_wanted = (int)PyList_Size(list);
  bool ok = wanted && py_copy_dag(&x.copy, (PyDag *)o) && py_copy_run(&x.copy, py_free, do_default, &x);
  PyObject *r = ok ? PyUnicode_FromString(x.out) : NULL;
  py_copy_drop(&x.copy);
  PyMem_Free(wanted);
  return r;
}

static PyObject *dag_hold(PyObject *o, PyObject *facts) {
  PyDag *d = (PyDag *)o;
  PyObject *list = PySequence_List(facts), *none = list ? PyList_New(0) : NULL;
  if (!none) return Py_XDECREF(list), NULL;
  PY_SET(d->tensors, list);
  PY_SET(d->ops, none);
  Py_RETURN_NONE;
}
static PyObject *dag_get(PyObject *o, void *what) {
  const PyDag *d = (PyDag *)o;
  switch ((int)(intptr_t)what) {
  case 0: return PyFloat_FromDouble(d->dag->flop);
  case 1: return PySequence_List(d->tensors);
  default: return PySequence_List(d->ops);
  }
}
/* A DAG is rebuilt from its tensors' text by no one; copies across processes go through the workload key. */

static PyGetSetDef DAG_GET[] = {
    {"flop_ct", dag_get, NULL, "Operations of one run, -1.0 if unknown.", (void *)0},
    {"tensors", dag_get, NULL, "The tensors it was made from: inputs, then outputs.", (void *)1},
    {"ops", dag_get, NULL, "Operations in stage order.", (void *)2},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef DAG_METHODS[] = {
    {"text", PY_KEYWORDS(dag_text), "text(simple=False): all lines unabridged; simple is the form that is hashed."},
    {"workload_key", dag_key, METH_NOARGS, "JSON text of hash (md5 of the simple text) and shapes."},
    {"stages", dag_stages, METH_NOARGS, "One dict of access-analysis flags per stage."},
    {"default_steps", dag_default_steps, METH_VARARGS,
     "default_steps(threads, wanted): the steps (JSON text) of the default schedule, for blocks of so many threads, or "
     "a "
     "CPU (0). wanted: numbers of the operations whose results are, though others read them."},
    {"hold", dag_hold, METH_O, "hold(facts): holds these instead of the tensors and operations it was made from."},
    {NULL, NULL, 0, NULL}};

static const PyType_Slot COMPUTEDAG_SLOTS[] = {{Py_tp_str, dag_str}, {0, NULL}};
static const PyClass CLASSES[] = {PY_CLASS(
    "ComputeDAG", sizeof(PyDag), .type = &PyDag_Type, .flags = Py_TPFLAGS_BASETYPE, .create = dag_new,
    .drop = dag_dealloc, .methods = DAG_METHODS, .get = DAG_GET, .more = COMPUTEDAG_SLOTS,
    .doc = "ComputeDAG(tensors, order=None): the operations a list of tensors stands for, ordered and analysed. "
           "order: one tensor of each, in the order of stages.")};

int py_init_dag(PyObject *m) { return py_add(m, NS_COUNT(CLASSES), CLASSES, NULL); }
