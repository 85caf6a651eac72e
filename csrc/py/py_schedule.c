/* States in Python: `_core.State` holds a step list replayed in a clone of its DAG's context; what it shares with
 * `_core.Schedule` is in the base of both, `_core.StateBase`.
 *
 * A state object is changed by `apply`; a step that fails leaves it as it was, because it is tried on a copy. The engine's
 * State that was there before stays as it is in the context, so that who works with it is not disturbed. Steps
 * cross the border as Python tuples ("SP", 2, 0, 64, [4, 8], 1), laid out as in a record.
 */
#include "py/py_fields.h"
#include "py/py_te_int.h"
#include "search/search.h"
#include <string.h>

PyTypeObject *PyStateBase_Type, *PyState_Type;

PyCtx *py_state_ctx(PyState *o) { return o->own.ctx ? &o->own : py_session(); }

/* ---- steps from Python values ---- */

static bool py_i64(PyObject *o, int64_t *v) {
  *v = o == Py_None ? SIZE_OPEN : PyLong_AsLongLong(o);
  return !PyErr_Occurred();
}

/* Lists are PyMem memory, to be freed by the caller. */
static bool step_arg(Step *p, char kind, PyObject *o) {
  int32_t v;
  if (step_number(p, kind)) return py_value(FIELD_I32, o, step_number(p, kind));
  switch (kind) {
  case 'E': return py_i64(o, &p->extent);
  case 'f':
    if (!py_value(FIELD_I32, o, &v)) return false;
    p->flag = v != 0;
    return true;
  case 't': return (p->text = py_utf8(o)) != NULL;
  default: break;
  }
  PyObject *l = PySequence_Fast(o, "a list of integers is expected");
  if (!l) return false;
  p->n = (int32_t)PySequence_Size(l);
  p->list = py_calloc(p->n + 1, sizeof(int64_t));
  bool ok = p->list != NULL;
  for (int i = 0; ok && i < p->n; i++) {
    PyObject *x = py_item(l, i);
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
  const char *name = PyTuple_Size(args) ? py_utf8(PyTuple_GetItem(args, 0)) : NULL;
  if (!name) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a step starts with its mnemonic");
    return false;
  }
  int kind = step_find(name);
  if (kind < 0) return PyErr_Format(PyExc_ValueError, "unknown step %s", name), false;
  *p = (Step){.kind = (uint8_t)kind};
  const char *layout = step_info((StepKind)p->kind)->args;
  Py_ssize_t n = (Py_ssize_t)strlen(layout);
  if (PyTuple_Size(args) != n + 1)
    return PyErr_Format(PyExc_TypeError, "step %s takes %zd arguments, not %zd", name, n, PyTuple_Size(args) - 1),
           false;
  for (Py_ssize_t i = 0; i < n; i++)
    if (!step_arg(p, layout[i], PyTuple_GetItem(args, i + 1))) return false;
  return true;
}

/* ---- the object ---- */

typedef struct {
  PyState *o;
  const char *json;
  const State *from;
  int fit;
  Step step;
  ExprId e;
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
    x->o->state = (x->fit ? state_replay_fitted : state_replay)(c, x->o->dag->dag, n, steps);
}

static PyState *state_make(PyTypeObject *type, PyDag *dag, const char *json, int fit, const State *from) {
  if (!dag)
    return PyErr_Format(PyExc_TypeError, "this state was made from a te schedule: it has no steps to replay"), NULL;
  PyState *o = (PyState *)PyType_GenericAlloc(type, 0);
  if (!o) return NULL;
  o->dag = (PyDag *)Py_NewRef((PyObject *)dag);
  err_init(&o->own.err);
  o->own.ctx = py_candidate(dag->own.ctx, &o->own.err);
  Call x = {.o = o, .json = json, .fit = fit, .from = from};
  if (!o->own.ctx || !py_free_ok(&o->own.err, do_make, &x)) Py_CLEAR(o);
  return o;
}

static PyObject *state_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
  PyObject *dag;
  const char *json = NULL;
  int fit = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O!|zp", PY_NAMES("dag", "steps", "fit"), PyDag_Type, &dag, &json, &fit))
    return NULL;
  return (PyObject *)state_make(type, (PyDag *)dag, json, fit, NULL);
}

static void state_dealloc(PyObject *self) {
  PyState *o = (PyState *)self;
  py_scope_dies(o->scope);
  if (o->own.ctx) ir_free(o->own.ctx);
  Py_XDECREF((PyObject *)o->dag);
  py_free_object(self);
}

/* ---- work on a copy ---- */

typedef struct {
  PyCopy *c;
  const State *from;
} Copy;
ERR_BODY(do_copy, Copy *x, x->c->s = state_copy(x->c->own.ctx, x->from))
bool py_copy_take(PyCopy *c, PyState *from) {
  err_init(&c->own.err);
  c->own.ctx = py_candidate(py_state_ctx(from)->ctx, &c->own.err);
  return c->own.ctx && py_guard(&c->own, do_copy, &(Copy){c, from->state});
}
bool py_copy_dag(PyCopy *c, const PyDag *dag) {
  err_init(&c->own.err);
  return (c->own.ctx = py_clone(dag->own.ctx, &c->own.err)) != NULL;
}
bool py_copy_run(PyCopy *c, ErrCode (*run)(Err *e, ErrBody body, void *arg), ErrBody body, void *arg) {
  ErrCode code = run(&c->own.err, body, arg);
  if (code != NS_OK) py_raise(&c->own.err, code);
  return code == NS_OK;
}
void py_copy_drop(PyCopy *c) { ir_free(c->own.ctx); }

static void do_apply(void *arg) {
  Call *x = arg;
  State *s = state_copy(x->o->state->ctx, x->o->state);
  state_apply(s, x->step);
  x->o->state = s;
}

static PyObject *state_apply_py(PyObject *self, PyObject *args) {
  PyState *o = (PyState *)self;
  Call x = {.o = o};
  bool ok = step_from(args, &x.step) && py_guard(py_state_ctx(o), do_apply, &x);
  PyMem_Free(x.step.list);
  return py_none(ok);
}

ERR_BODY(do_infer, Call *x, state_infer_bounds(x->o->state))

static PyObject *state_infer_py(PyObject *self, PyObject *Py_UNUSED(u)) {
  PyState *o = (PyState *)self, *r = state_make(Py_TYPE(self), o->dag, NULL, 0, o->state);
  Call x = {.o = r};
  if (r && !py_free_ok(&r->own.err, do_infer, &x)) Py_CLEAR(r);
  return (PyObject *)r;
}

static PyObject *state_copy_py(PyObject *self, PyObject *Py_UNUSED(u)) {
  PyState *o = (PyState *)self;
  const State *from = o->state; /* of now: others may apply steps meanwhile */
  PyState *r = state_make(Py_TYPE(self), o->dag, NULL, 0, from);
  Call x = {.o = r};
  if (r && from->bounded && !py_free_ok(&r->own.err, do_infer, &x)) Py_CLEAR(r);
  return (PyObject *)r;
}

/* ---- texts ---- */

ERR_BODY(do_text, Call *x, x->text = state_text(x->o->state, x->flag))
typedef struct {
  PyCopy copy;
  char *text;
} Python;
ERR_BODY(do_python, Python *x, x->text = state_python(x->copy.s))
ERR_BODY(do_math, Python *x, x->text = (char *)state_math(x->copy.s))
static void do_factors(void *arg) {
  Python *x = arg;
  DType t = tensor_factors(x->copy.s);
  StrBuf sb;
  sb_init(&sb, ir_arena(x->copy.s->ctx));
  if (t.lanes) dtype_print(&sb, t);
  x->text = sb_str(&sb);
}
ERR_BODY(do_steps, Call *x,
         x->text = steps_text(ir_arena(x->o->state->ctx), x->o->state->step.len, x->o->state->step.at))

static PyObject *with_text(PyState *o, ErrBody body, bool flag) {
  Call x = {.o = o, .flag = flag};
  PyCtx *c = py_state_ctx(o);
  IrMark mark = ir_mark(c->ctx);
  PyObject *r = py_guard(c, body, &x) ? PyUnicode_FromString(x.text) : NULL;
  ir_release(c->ctx, mark);
  return r;
}

static PyObject *state_text_py(PyObject *self, PyObject *args, PyObject *kw) {
  int hide = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "|p", PY_NAMES("hide_trivial"), &hide)) return NULL;
  return with_text((PyState *)self, do_text, hide);
}
static PyObject *state_str(PyObject *self) { return with_text((PyState *)self, do_text, true); }
static PyObject *text_of_copy(PyObject *self, ErrBody body) {
  Python x = {0};
  bool ok = py_copy_take(&x.copy, (PyState *)self) && py_copy_run(&x.copy, py_free, body, &x);
  PyObject *r = ok ? PyUnicode_FromString(x.text) : NULL;
  py_copy_drop(&x.copy);
  return r;
}
static PyObject *state_python_py(PyObject *self, PyObject *Py_UNUSED(u)) { return text_of_copy(self, do_python); }
static PyObject *state_math_py(PyObject *self, PyObject *Py_UNUSED(u)) { return text_of_copy(self, do_math); }
static PyObject *state_factors_py(PyObject *self, PyObject *Py_UNUSED(u)) { return text_of_copy(self, do_factors); }
static PyObject *state_steps_py(PyObject *self, PyObject *Py_UNUSED(u)) {
  return with_text((PyState *)self, do_steps, false);
}

/* ---- what a state consists of ---- */

ERR_BODY(do_range, Call *x, x->text = ex_text(x->o->own.ctx, x->e))
static PyObject *range_part(PyState *o, bool known, int64_t v, ExprId e) {
  if (known) return PyLong_FromLongLong(v);
  if (!e) return Py_NewRef(Py_None);
  Call x = {.o = o, .e = e};
  IrMark mark = ir_mark(o->own.ctx);
  PyObject *r = py_guard(&o->own, do_range, &x) ? PyUnicode_FromString(x.text) : NULL;
  ir_release(o->own.ctx, mark);
  return r;
}

static PyObject *iter_tuple(PyState *o, const Stage *st, const Axis *x) {
  if (!x->ranged) return Py_BuildValue("(siiOO)", x->name, x->kind, x->ann, Py_None, Py_None);
  const Axis *root = x->rebase_of ? &st->axes.at[x->rebase_of - 1] : x;
  int64_t v;
  bool plain = !o->state->bounded || !root->min || ex_const_int(o->state->ctx, root->min, &v);
  return Py_BuildValue("(siiNN)", x->name, x->kind, x->ann, range_part(o, plain, x->smin, root->min),
                       range_part(o, x->sext >= 0, x->sext, root->extent));
}

static PyObject *state_stages(PyObject *self, PyObject *Py_UNUSED(u)) {
  PyState *o = (PyState *)self;
  const State *s = o->state;
  PyObject *l = PyList_New(s->stage.len);
  for (int i = 0; l && i < s->stage.len; i++) {
    const Stage *st = &s->stage.at[i];
    PyObject *it = PyList_New(st->leaf.len);
    for (int k = 0; it && k < st->leaf.len; k++) py_put(&it, k, iter_tuple(o, st, &st->axes.at[st->leaf.at[k]]));
    PyObject *t =
        it ? Py_BuildValue("(siiNii)", st->op->name, st->op->kind == TE_COMPUTE, st->at, it, st->at_stage, st->at_iter)
           : NULL;
    py_put(&l, i, t);
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
    py_put(&l, i, open ? Py_NewRef(Py_None) : PyLong_FromLongLong(p->list[i]));
  }
  return l;
}

static PyObject *arg_obj(Step *p, char kind) {
  if (step_number(p, kind)) return PyLong_FromLong(*step_number(p, kind));
  switch (kind) {
  case 'E': return PyLong_FromLongLong(p->extent);
  case 'f': return PyLong_FromLong(p->flag);
  case 't': return PyUnicode_FromString(p->text);
  default: return list_obj(p);
  }
}

static PyObject *state_step_tuples(PyObject *self, PyObject *Py_UNUSED(u)) {
  const State *s = ((PyState *)self)->state;
  PyObject *l = PyList_New(s->step.len);
  for (int i = 0; l && i < s->step.len; i++) {
    const StepInfo *info = step_info((StepKind)s->step.at[i].kind);
    Py_ssize_t n = (Py_ssize_t)strlen(info->args);
    PyObject *t = PyTuple_New(n + 1);
    if (t) py_put(&t, 0, PyUnicode_FromString(info->mnemonic));
    for (Py_ssize_t k = 0; t && k < n; k++) py_put(&t, k + 1, arg_obj(&s->step.at[i], info->args[k]));
    py_put(&l, i, t);
  }
  return l;
}

static PyGetSetDef BASE_GET[] = {
    {"concrete", state_get, NULL, "False while a split length is open.", (void *)0},
    {"bounded", state_get, NULL, "True if the ranges come from bound inference.", (void *)1},
    {"dag", state_get, NULL, "The ComputeDAG the steps start from; None for a Schedule.", (void *)2},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef BASE_METHODS[] = {
    {"apply", state_apply_py, METH_VARARGS, "apply(mnemonic, *arguments): appends one step, laid out as in a record."},
    {"text", PY_KEYWORDS(state_text_py), "text(hide_trivial=True): the loops."},
    {"python", state_python_py, METH_NOARGS, "Equivalent te.create_schedule code."},
    {"math", state_math_py, METH_NOARGS,
     "math(): \"tf32\" or \"float32x3\" if products of float32 are on tensor cores, else \"strict\"."},
    {"factors", state_factors_py, METH_NOARGS,
     "factors(): of a state without steps, the type of the factors if tensor cores could compute it in one kernel, "
     "else \"\"."},
    {"steps_text", state_steps_py, METH_NOARGS, "Same as steps()."},
    {"steps", state_steps_py, METH_NOARGS, "The steps as JSON text."},
    {"step_tuples", state_step_tuples, METH_NOARGS,
     "The steps as tuples (mnemonic, *arguments); an open split length is None."},
    {"stages", state_stages, METH_NOARGS,
     "Per stage (name, is_compute, compute_at, [(name, kind, annotation, min, extent)], target stage, target "
     "iterator)."},
    {NULL, NULL, 0, NULL}};
static PyMethodDef STATE_METHODS[] = {
    {"infer_bounds", state_infer_py, METH_NOARGS, "A new state with all ranges inferred."},
    {"copy", state_copy_py, METH_NOARGS, "An independent state."},
    {NULL, NULL, 0, NULL}};

/* ---- arguments of a function ---- */

bool py_args(PyState *o, PyObject *list, PyArgs *out) {
  bool schedule = PyObject_TypeCheck((PyObject *)o, PySchedule_Type);
  *out = (PyArgs){0};
  if (list == Py_None) {
    if (!schedule) return true;
    return PyErr_Format(PyExc_TypeError, "the argument tensors of the function are needed"), false;
  }
  PyObject *seq = PySequence_Fast(list, "args must be a sequence of tensors");
  out->held = seq ? PySequence_Tuple(seq) : NULL; /* owns the names while the lock is released */
  Py_XDECREF(seq);
  if (!out->held) return false;
  out->n = (int)PyTuple_Size(out->held);
  out->id = py_calloc(out->n + 1, sizeof(TensorId));
  out->name = py_calloc(out->n + 1, sizeof(char *));
  bool ok = out->id && out->name;
  for (int i = 0; ok && i < out->n; i++) {
    PyObject *x = PyTuple_GetItem(out->held, i);
    if (!schedule && PyUnicode_Check(x)) {
      ok = (out->name[i] = py_utf8(x)) != NULL;
      continue;
    }
    ok = (out->id[i] = py_tensor_id(x)) != 0;
    if (ok && !schedule) out->name[i] = ir_tensor(SES, out->id[i])->name;
  }
  if (!ok) py_args_free(out);
  return ok;
}

void py_args_free(PyArgs *a) {
  PyMem_Free(a->id);
  PyMem_Free(a->name);
  Py_CLEAR(a->held);
  *a = (PyArgs){0};
}

static TensorId tensor_named(const State *s, const char *name) {
  const TeDag *d = s->dag0;
  for (int i = 0; i < d->n_ops; i++)
    for (int k = 0; k < d->op[i]->n_out; k++)
      if (!strcmp(ir_tensor(s->ctx, d->op[i]->out[k])->name, name)) return d->op[i]->out[k];
  err_raise(ir_err(s->ctx), NS_ERR_VALUE, "the schedule has no tensor named %s", name);
}

const TensorId *py_args_in(const State *s, const PyArgs *a, int *n) {
  *n = a->id ? a->n : s->dag0->n_tensors;
  if (!a->id) return s->dag0->tensor;
  TensorId *t = arena_array(ir_arena(s->ctx), TensorId, *n + 1);
  for (int i = 0; i < *n; i++) t[i] = a->name[i] ? tensor_named(s, a->name[i]) : a->id[i];
  return t;
}

static const PyType_Slot STATEBASE_SLOTS[] = {{Py_tp_str, state_str}, {0, NULL}};
static const PyClass CLASSES[] = {
    PY_CLASS("StateBase", sizeof(PyState), .type = &PyStateBase_Type, .flags = Py_TPFLAGS_BASETYPE,
             .methods = BASE_METHODS, .get = BASE_GET, .more = STATEBASE_SLOTS,
             .doc = "What State and Schedule share: a list of steps and what they give."),
    PY_CLASS("State", sizeof(PyState), .type = &PyState_Type, .base = &PyStateBase_Type, .create = state_new,
             .drop = state_dealloc, .methods = STATE_METHODS,
             .doc = "State(dag, steps=None, fit=False): a step list (JSON text) replayed on a ComputeDAG. fit: it was "
                    "made for other sizes; "
                    "splits that would no longer cut their loops evenly get other lengths.")};

int py_init_schedule(PyObject *m) {
  if (py_add(m, NS_COUNT(CLASSES), CLASSES, NULL) < 0) return -1;
  PyObject *inserts =
      PyDict_New(); /* STEP_INSERTS: where the stage comes that a step inserts, behind its own (1) or in its place */
  for (int k = 0; inserts && k < STEP_KINDS; k++) {
    const StepInfo *info = step_info((StepKind)k);
    if (info->shift != SHIFT_NONE) py_put_key(&inserts, info->mnemonic, PyLong_FromLong(info->shift == SHIFT_BEHIND));
  }
  bool ok = inserts && PyModule_AddObjectRef(m, "STEP_INSERTS", inserts) == 0;
  Py_XDECREF(inserts);
  return ok && py_init_sched(m) == 0 && py_init_record(m) == 0 ? 0 : -1;
}
