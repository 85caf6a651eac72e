/* States and records in Python: `_core.State` holds a step list replayed in a clone of its DAG's context.
 *
 * A state object is changed by `apply`; a step that fails leaves it as it was, because it is tried on a copy. Steps
 * cross the border as Python tuples ("SP", 2, 0, 64, [4, 8], 1), laid out as in a record.
 */
#include "py/py_te_int.h"
#include "search/search.h"
#include <string.h>

PyTypeObject *PyState_Type;

/* ---- steps from Python values ---- */

static bool py_i64(PyObject *o, int64_t *v) {
  *v = o == Py_None ? SIZE_OPEN : PyLong_AsLongLong(o);
  return !PyErr_Occurred();
}

static bool py_i32(PyObject *o, int32_t *v) {
  int64_t x = PyLong_AsLongLong(o);
  if (PyErr_Occurred()) return false;
  if (x < INT32_MIN || x > INT32_MAX)
    return PyErr_Format(PyExc_ValueError, "%lld does not fit 32 bits", (long long)x), false;
  *v = (int32_t)x;
  return true;
}

/* Lists are PyMem memory, to be freed by the caller. */
static bool step_arg(Step *p, char kind, PyObject *o) {
  int32_t v;
  switch (kind) {
  case 's': return py_i32(o, &p->stage);
  case 'i': return py_i32(o, &p->iter);
  case 'a': return py_i32(o, &p->a);
  case 'b': return py_i32(o, &p->b);
  case 'E': return py_i64(o, &p->extent);
  case 'f':
    if (!py_i32(o, &v)) return false;
    p->flag = v != 0;
    return true;
  case 't': return (p->text = PyUnicode_AsUTF8(o)) != NULL;
  default: break;
  }
  PyObject *l = PySequence_Fast(o, "a list of integers is expected");
  if (!l) return false;
  p->n = (int32_t)PySequence_Fast_GET_SIZE(l);
  p->list = py_calloc(p->n + 1, sizeof(int64_t));
  bool ok = p->list != NULL;
  for (int i = 0; ok && i < p->n; i++) {
    PyObject *x = PySequence_Fast_GET_ITEM(l, i);
    if (x == Py_None && p->kind != STEP_SP)
      PyErr_SetString(PyExc_TypeError, "only split lengths may be None"), ok = false;
    else if (x != Py_None && PyLong_Check(x) && p->kind == STEP_SP && PyLong_AsLongLong(x) < 1)
      py_err_objects(PyExc_ValueError, "split length %R is not positive", x), ok = false;
    else
      ok = py_i64(x, &p->list[i]);
  }
  Py_DECREF(l);
  return ok;
}

static bool step_from(PyObject *args, Step *p) {
  const char *name = PyTuple_GET_SIZE(args) ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(args, 0)) : NULL;
  if (!name) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a step starts with its mnemonic");
    return false;
  }
  *p = (Step){0};
  while (p->kind < STEP_KINDS && strcmp(step_info((StepKind)p->kind)->mnemonic, name)) p->kind++;
  if (p->kind == STEP_KINDS) return PyErr_Format(PyExc_ValueError, "unknown step %s", name), false;
  const char *layout = step_info((StepKind)p->kind)->args;
  Py_ssize_t n = (Py_ssize_t)strlen(layout);
  if (PyTuple_GET_SIZE(args) != n + 1)
    return PyErr_Format(PyExc_TypeError, "step %s takes %zd arguments, not %zd", name, n, PyTuple_GET_SIZE(args) - 1),
           false;
  for (Py_ssize_t i = 0; i < n; i++)
    if (!step_arg(p, layout[i], PyTuple_GET_ITEM(args, i + 1))) return false;
  return true;
}

/* ---- the object ---- */

typedef struct {
  PyState *o;
  const char *json;
  const State *from;
  Step step;
  bool flag;
  char *text;
} Call;

static void do_make(void *arg) {
  Call *x = arg;
  IrCtx *c = x->o->own.ctx;
  int n = 0;
  Step *steps = x->json ? steps_parse(ir_arena(c), x->json, &n) : NULL;
  if (x->from) /* perhaps a sketch: lengths may be open where a step needs them */
    x->o->state = sketch_replay(c, x->o->dag->dag, x->from->step.len, x->from->step.at);
  else
    x->o->state = state_replay(c, x->o->dag->dag, n, steps);
}

static PyState *state_make(PyTypeObject *type, PyDag *dag, const char *json, const State *from) {
  if (!dag)
    return PyErr_Format(PyExc_TypeError, "this state was made from a te schedule: it has no steps to replay"), NULL;
  PyState *o = (PyState *)type->tp_alloc(type, 0);
  if (!o) return NULL;
  o->dag = (PyDag *)Py_NewRef(dag);
  err_init(&o->own.err);
  o->own.ctx = py_candidate(dag->own.ctx, &o->own.err);
  Call x = {.o = o, .json = json, .from = from};
  if (o->own.ctx && py_guard(&o->own, do_make, &x)) return o;
  Py_DECREF(o);
  return NULL;
}

static PyObject *state_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
  static char *names[] = {"dag", "steps", NULL};
  PyObject *dag;
  const char *json = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O!|z", names, PyDag_Type, &dag, &json)) return NULL;
  return (PyObject *)state_make(type, (PyDag *)dag, json, NULL);
}

static void state_dealloc(PyObject *self) {
  PyState *o = (PyState *)self;
  PyTypeObject *t = Py_TYPE(self);
  if (o->own.ctx) ir_free(o->own.ctx);
  Py_XDECREF(o->dag);
  t->tp_free(self);
  Py_DECREF(t);
}

static void do_apply(void *arg) {
  Call *x = arg;
  State *s = state_copy(x->o->own.ctx, x->o->state);
  state_apply(s, x->step);
  x->o->state = s;
}

static PyObject *state_apply_py(PyObject *self, PyObject *args) {
  PyState *o = (PyState *)self;
  Call x = {.o = o};
  bool ok = step_from(args, &x.step) && py_guard(&o->own, do_apply, &x);
  PyMem_Free(x.step.list);
  if (!ok) return NULL;
  Py_RETURN_NONE;
}

static void do_infer(void *arg) {
  Call *x = arg;
  state_infer_bounds(x->o->state);
}

static PyObject *state_infer_py(PyObject *self, PyObject *u) {
  (void)u;
  PyState *o = (PyState *)self, *r = state_make(Py_TYPE(self), o->dag, NULL, o->state);
  Call x = {.o = r};
  if (r && !py_guard(&r->own, do_infer, &x)) Py_CLEAR(r);
  return (PyObject *)r;
}

static PyObject *state_copy_py(PyObject *self, PyObject *u) {
  (void)u;
  PyState *o = (PyState *)self, *r = state_make(Py_TYPE(self), o->dag, NULL, o->state);
  Call x = {.o = r};
  if (r && o->state->bounded && !py_guard(&r->own, do_infer, &x)) Py_CLEAR(r);
  return (PyObject *)r;
}

/* ---- texts ---- */

static void do_text(void *arg) {
  Call *x = arg;
  x->text = state_text(x->o->state, x->flag);
}
static void do_python(void *arg) {
  Call *x = arg;
  x->text = state_python(x->o->state);
}
static void do_steps(void *arg) {
  Call *x = arg;
  x->text = steps_text(ir_arena(x->o->own.ctx), x->o->state->step.len, x->o->state->step.at);
}

static PyObject *with_text(PyState *o, ErrBody body, bool flag) {
  Call x = {.o = o, .flag = flag};
  IrMark mark = ir_mark(o->own.ctx);
  PyObject *r = py_guard(&o->own, body, &x) ? PyUnicode_FromString(x.text) : NULL;
  ir_release(o->own.ctx, mark);
  return r;
}

static PyObject *state_text_py(PyObject *self, PyObject *args, PyObject *kw) {
  static char *names[] = {"hide_trivial", NULL};
  int hide = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "|p", names, &hide)) return NULL;
  return with_text((PyState *)self, do_text, hide);
}
static PyObject *state_str(PyObject *self) { return with_text((PyState *)self, do_text, true); }
static PyObject *state_python_py(PyObject *self, PyObject *u) {
  (void)u;
  return with_text((PyState *)self, do_python, false);
}
static PyObject *state_steps_py(PyObject *self, PyObject *u) {
  (void)u;
  return with_text((PyState *)self, do_steps, false);
}

/* ---- what a state consists of ---- */

static PyObject *range_part(const PyState *o, bool known, int64_t v, ExprId e) {
  if (known) return PyLong_FromLongLong(v);
  if (!e) return Py_NewRef(Py_None);
  IrMark mark = ir_mark(o->own.ctx);
  PyObject *r = PyUnicode_FromString(ex_text(o->own.ctx, e));
  ir_release(o->own.ctx, mark);
  return r;
}

static PyObject *iter_tuple(const PyState *o, const Stage *st, const Axis *x) {
  if (!x->ranged) return Py_BuildValue("(siiOO)", x->name, x->kind, x->ann, Py_None, Py_None);
  const Axis *root = x->rebase_of ? &st->axes.at[x->rebase_of - 1] : x;
  int64_t v;
  bool plain = !o->state->bounded || !root->min || ex_const_int(o->own.ctx, root->min, &v);
  return Py_BuildValue("(siiNN)", x->name, x->kind, x->ann, range_part(o, plain, x->smin, root->min),
                       range_part(o, x->sext >= 0, x->sext, root->extent));
}

static PyObject *state_stages(PyObject *self, PyObject *u) {
  (void)u;
  const PyState *o = (PyState *)self;
  const State *s = o->state;
  PyObject *l = PyList_New(s->stage.len);
  for (int i = 0; l && i < s->stage.len; i++) {
    const Stage *st = &s->stage.at[i];
    PyObject *it = PyList_New(st->leaf.len);
    for (int k = 0; it && k < st->leaf.len; k++) {
      PyObject *x = iter_tuple(o, st, &st->axes.at[st->leaf.at[k]]);
      if (!x)
        Py_CLEAR(it);
      else
        PyList_SET_ITEM(it, k, x);
    }
    PyObject *t =
        it ? Py_BuildValue("(siiNii)", st->op->name, st->op->kind == TE_COMPUTE, st->at, it, st->at_stage, st->at_iter)
           : NULL;
    if (!t)
      Py_CLEAR(l);
    else
      PyList_SET_ITEM(l, i, t);
  }
  return l;
}

static PyObject *state_get(PyObject *self, void *what) {
  const PyState *o = (PyState *)self;
  switch ((int)(intptr_t)what) {
  case 0: return PyBool_FromLong(o->state->concrete);
  case 1: return PyBool_FromLong(o->state->bounded);
  default: return Py_NewRef(o->dag ? (PyObject *)o->dag : Py_None);
  }
}

static PyObject *list_obj(const Step *p) {
  PyObject *l = PyList_New(p->n);
  for (int i = 0; l && i < p->n; i++) {
    bool open = p->kind == STEP_SP && p->list[i] == SIZE_OPEN;
    PyObject *x = open ? Py_NewRef(Py_None) : PyLong_FromLongLong(p->list[i]);
    if (!x)
      Py_CLEAR(l);
    else
      PyList_SET_ITEM(l, i, x);
  }
  return l;
}

static PyObject *arg_obj(const Step *p, char kind) {
  switch (kind) {
  case 's': return PyLong_FromLong(p->stage);
  case 'i': return PyLong_FromLong(p->iter);
  case 'a': return PyLong_FromLong(p->a);
  case 'b': return PyLong_FromLong(p->b);
  case 'E': return PyLong_FromLongLong(p->extent);
  case 'f': return PyLong_FromLong(p->flag);
  case 't': return PyUnicode_FromString(p->text);
  default: return list_obj(p);
  }
}

static PyObject *state_step_tuples(PyObject *self, PyObject *u) {
  (void)u;
  const State *s = ((PyState *)self)->state;
  PyObject *l = PyList_New(s->step.len);
  for (int i = 0; l && i < s->step.len; i++) {
    const StepInfo *info = step_info((StepKind)s->step.at[i].kind);
    Py_ssize_t n = (Py_ssize_t)strlen(info->args);
    PyObject *t = PyTuple_New(n + 1);
    if (t) PyTuple_SET_ITEM(t, 0, PyUnicode_FromString(info->mnemonic));
    for (Py_ssize_t k = 0; t && k < n; k++) PyTuple_SET_ITEM(t, k + 1, arg_obj(&s->step.at[i], info->args[k]));
    PyList_SET_ITEM(l, i, py_filled(t));
  }
  return py_filled(l);
}

static PyGetSetDef STATE_GET[] = {
    {"concrete", state_get, NULL, "False while a split length is open.", (void *)0},
    {"bounded", state_get, NULL, "True if the ranges come from bound inference.", (void *)1},
    {"dag", state_get, NULL, "The ComputeDAG the steps start from.", (void *)2},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef STATE_METHODS[] = {
    {"apply", state_apply_py, METH_VARARGS, "apply(mnemonic, *arguments): appends one step, laid out as in a record."},
    {"infer_bounds", state_infer_py, METH_NOARGS, "A new state with all ranges inferred."},
    {"copy", state_copy_py, METH_NOARGS, "An independent state."},
    {"text", (PyCFunction)(void (*)(void))state_text_py, METH_VARARGS | METH_KEYWORDS,
     "text(hide_trivial=True): the loops."},
    {"python", state_python_py, METH_NOARGS, "Equivalent te.create_schedule code."},
    {"steps_text", state_steps_py, METH_NOARGS, "Same as steps()."},
    {"steps", state_steps_py, METH_NOARGS, "The steps as JSON text."},
    {"step_tuples", state_step_tuples, METH_NOARGS,
     "The steps as tuples (mnemonic, *arguments); an open split length is None."},
    {"stages", state_stages, METH_NOARGS,
     "Per stage (name, is_compute, compute_at, [(name, kind, annotation, min, extent)], target stage, target "
     "iterator)."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot STATE_SLOTS[] = {
    {Py_tp_doc, "State(dag, steps=None): a step list (JSON text) replayed on a ComputeDAG."},
    {Py_tp_new, state_new},
    {Py_tp_dealloc, state_dealloc},
    {Py_tp_str, state_str},
    {Py_tp_getset, STATE_GET},
    {Py_tp_methods, STATE_METHODS},
    {0, NULL}};
static PyType_Spec STATE_SPEC = {"nestsmith._core.State", sizeof(PyState), 0, Py_TPFLAGS_DEFAULT, STATE_SLOTS};

/* ---- records ---- */

typedef struct {
  Err err;
  Arena *a;
  const char *in;
  Record *record;
  Record out;
  char *text;
} Rec;
static void do_arena(void *p) {
  Rec *x = p;
  x->a = arena_new(&x->err);
}
static void do_parse(void *p) {
  Rec *x = p;
  x->record = record_parse(x->a, x->in);
}
static void do_write(void *p) {
  Rec *x = p;
  x->text = record_text(x->a, &x->out);
}
static bool rec_run(Rec *x, ErrBody body) {
  ErrCode code = err_try(&x->err, body, x);
  if (code != NS_OK) py_raise(&x->err, code);
  return code == NS_OK;
}
static bool rec_open(Rec *x) {
  err_init(&x->err);
  return rec_run(x, do_arena);
}

static PyObject *hw_list(const Record *r) {
  if (!r->has_hw) return Py_NewRef(Py_None);
  PyObject *t = py_hw_tuple(&r->hw), *l = t ? PySequence_List(t) : NULL;
  Py_XDECREF(t);
  return l;
}

static PyObject *record_tuple(Rec *x) {
  const Record *r = x->record;
  PyObject *inputs = PyList_New(r->n_inputs), *costs = PyList_New(r->n_costs);
  bool ok = inputs && costs;
  for (int i = 0; ok && i < r->n_inputs; i++) {
    PyObject *s = PyUnicode_FromString(r->inputs[i]);
    if (!s)
      ok = false;
    else
      PyList_SET_ITEM(inputs, i, s);
  }
  for (int i = 0; ok && i < r->n_costs; i++) {
    PyObject *f = PyFloat_FromDouble(r->cost[i]);
    if (!f)
      ok = false;
    else
      PyList_SET_ITEM(costs, i, f);
  }
  char *steps = steps_text(x->a, r->n_steps, r->step);
  if (ok)
    return Py_BuildValue("(ssNsiNsNidLs)", r->workload_key, r->target, hw_list(r), r->target_host, r->layout_rewrite,
                         inputs, steps, costs, r->error_no, r->all_cost, (long long)r->timestamp, r->version);
  Py_XDECREF(inputs);
  Py_XDECREF(costs);
  return NULL;
}

static PyObject *fn_record_parse(PyObject *m, PyObject *arg) {
  (void)m;
  Rec x = {.in = PyUnicode_AsUTF8(arg)};
  if (!x.in || !rec_open(&x)) return NULL;
  PyObject *r = rec_run(&x, do_parse) ? record_tuple(&x) : NULL;
  arena_free(x.a);
  return r;
}

static void do_steps_in(void *p) {
  Rec *x = p;
  x->out.step = steps_parse(x->a, x->in, &x->out.n_steps);
}

static PyObject *fn_record_text(PyObject *m, PyObject *args) {
  (void)m;
  Rec x = {0};
  Record *r = &x.out;
  PyObject *inputs, *costs, *hw;
  long long stamp;
  if (!PyArg_ParseTuple(args, "ssOsiO!sO!idLs", &r->workload_key, &r->target, &hw, &r->target_host, &r->layout_rewrite,
                        &PyList_Type, &inputs, &x.in, &PyList_Type, &costs, &r->error_no, &r->all_cost, &stamp,
                        &r->version) ||
      !py_hw(hw, &r->hw))
    return NULL;
  r->timestamp = stamp;
  r->n_inputs = (int)PyList_GET_SIZE(inputs);
  r->n_costs = (int)PyList_GET_SIZE(costs);
  const char **names = py_calloc(r->n_inputs + 1, sizeof(char *));
  double *cost = py_calloc(r->n_costs + 1, sizeof(double));
  bool ok = names && cost && rec_open(&x);
  for (int i = 0; ok && i < r->n_inputs; i++) ok = (names[i] = PyUnicode_AsUTF8(PyList_GET_ITEM(inputs, i))) != NULL;
  for (int i = 0; ok && i < r->n_costs; i++) {
    cost[i] = PyFloat_AsDouble(PyList_GET_ITEM(costs, i));
    ok = !PyErr_Occurred();
  }
  r->inputs = names;
  r->cost = cost;
  PyObject *out = ok && rec_run(&x, do_steps_in) && rec_run(&x, do_write) ? PyUnicode_FromString(x.text) : NULL;
  PyMem_Free(names);
  PyMem_Free(cost);
  arena_free(x.a);
  if (!out && !PyErr_Occurred()) PyErr_NoMemory();
  return out;
}

static PyObject *fn_limits(PyObject *m, PyObject *none) {
  (void)m, (void)none;
  PyObject *r = PyDict_New();
  for (int k = 0; r && k < LIMIT_KINDS; k++) {
    const Limit *l = limit_of((LimitKind)k);
    PyObject *row = Py_BuildValue("(LLs)", (long long)l->most, (long long)l->seen, l->what);
    if (!row || PyDict_SetItemString(r, l->name, row) < 0) Py_CLEAR(r);
    Py_XDECREF(row);
  }
  return r;
}

static PyMethodDef FUNCS[] = {
    {"limits", fn_limits, METH_NOARGS,
     "limits(): {name: (most, largest value that was seen, what is counted)} of what a schedule may ask for."},
    {"record_parse", fn_record_parse, METH_O,
     "record_parse(line): (workload_key, target, hardware or None, host, layout_rewrite, inputs, steps, costs, "
     "error_no, all_cost, timestamp, version)."},
    {"record_text", fn_record_text, METH_VARARGS, "record_text(*fields of record_parse): one line of a log."},
    {NULL, NULL, 0, NULL}};

int py_init_schedule(PyObject *m) {
  PyState_Type = py_type_new(m, &STATE_SPEC, NULL);
  if (!PyState_Type || py_init_sched(m) < 0) return -1;
  return PyModule_AddFunctions(m, FUNCS);
}
