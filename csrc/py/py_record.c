/* Records in Python: one line of a log as a tuple of its fields, and the other way round; lists of steps for other tasks. */
#include "py/py_fields.h"
#include "py/py.h"
#include <string.h>

typedef struct {
  PyScratch s;
  const char *in;
  Record *record;
  Record out;
  char *text; /* of the steps, or of the record */
} Rec;

/* A usual record takes some microseconds and keeps the lock: giving it up for each of the many lines of a log would make the
 * thread wait as often for those that have it. */
enum { LONG_RECORD = 1 << 14 };
static bool convert(Rec *x, ErrBody body, void *arg) {
  bool longer = strnlen(x->in, LONG_RECORD) == LONG_RECORD;
  return longer ? py_scratch_free(&x->s, body, arg) : py_scratch_run(&x->s, body, arg);
}
static void do_parse(void *p) {
  Rec *x = p;
  x->record = record_parse(x->s.a, x->in);
  x->text = steps_text(x->s.a, x->record->n_steps, x->record->step);
}
static void do_write(void *p) {
  Rec *x = p;
  x->out.step = steps_parse(x->s.a, x->in, &x->out.n_steps);
  x->text = record_text(x->s.a, &x->out);
}

static PyObject *record_tuple(const Rec *x) {
  const Record *r = x->record;
  return Py_BuildValue("(ssNsiNsNidLs)", r->workload_key, r->target,
                       r->has_hw ? py_list(FIELD_I64, HW_FIELDS, &r->hw) : Py_NewRef(Py_None), r->target_host,
                       r->layout_rewrite, py_list(FIELD_TEXT, r->n_inputs, r->inputs), x->text,
                       py_list(FIELD_DOUBLE, r->n_costs, r->cost), r->error_no, r->all_cost, (long long)r->timestamp,
                       r->version);
}

static PyObject *fn_record_parse(PyObject *Py_UNUSED(m), PyObject *arg) {
  Rec x = {.in = py_utf8(arg)};
  PyObject *r = x.in && convert(&x, do_parse, &x) ? record_tuple(&x) : NULL;
  py_arena_free(x.s.a);
  return r;
}

static PyObject *fn_record_text(PyObject *Py_UNUSED(m), PyObject *args) {
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
  r->n_inputs = (int)PyList_Size(inputs);
  r->n_costs = (int)PyList_Size(costs);
  const char **names = py_scratch_alloc(&x.s, r->n_inputs, sizeof(char *));
  double *cost = py_scratch_alloc(&x.s, r->n_costs, sizeof(double));
  PyObject *held = names && cost ? PyList_AsTuple(inputs) : NULL; /* owns the names while the lock is released */
  bool ok = held && py_take(FIELD_TEXT, held, r->n_inputs, names) && py_take(FIELD_DOUBLE, costs, r->n_costs, cost);
  r->inputs = names;
  r->cost = cost;
  PyObject *out = ok && convert(&x, do_write, &x) ? PyUnicode_FromString(x.text) : NULL;
  Py_XDECREF(held);
  py_arena_free(x.s.a);
  return out;
}

/* ---- steps for another DAG ---- */

typedef struct {
  Rec rec;
  int n, n_stages, prefix, n_tail, *tail;
} CarryCall;
static void do_carry(void *arg) {
  CarryCall *x = arg;
  Step *steps = steps_parse(x->rec.s.a, x->rec.in, &x->n);
  steps = steps_carry(x->rec.s.a, &x->n, steps, x->n_stages, x->prefix, x->n_tail, x->tail);
  x->rec.text = steps_text(x->rec.s.a, x->n, steps);
}

static PyObject *fn_carry(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *tail;
  CarryCall x = {.n = 0};
  if (!PyArg_ParseTuple(args, "siiO!", &x.rec.in, &x.n_stages, &x.prefix, &PyList_Type, &tail)) return NULL;
  x.n_tail = (int)PyList_Size(tail);
  x.tail = py_scratch_alloc(&x.rec.s, x.n_tail, sizeof(int));
  bool ok = x.tail && py_take(FIELD_I32, tail, x.n_tail, x.tail);
  PyObject *r = ok && convert(&x.rec, do_carry, &x) ? PyUnicode_FromString(x.rec.text) : NULL;
  py_arena_free(x.rec.s.a);
  return r;
}

static PyObject *fn_limits(PyObject *Py_UNUSED(m), PyObject *Py_UNUSED(none)) {
  PyObject *r = PyDict_New();
  for (int k = 0; r && k < LIMIT_KINDS; k++) {
    const Limit *l = limit_of((LimitKind)k);
    py_put_key(&r, l->name, Py_BuildValue("(LLs)", (long long)l->most, (long long)l->seen, l->what));
  }
  return r;
}

static PyMethodDef FUNCS[] = {
    {"limits", fn_limits, METH_NOARGS,
     "limits(): {name: (most, largest value that was seen, what is counted)} of what a schedule may ask for."},
    {"carry_steps", fn_carry, METH_VARARGS,
     "carry_steps(steps, n_stages, prefix, tail): the steps (JSON text) for a DAG whose first `prefix` stages are the "
     "same and whose computed stages behind them are `tail`. Raises ValueError if they do not fit."},
    {"record_parse", fn_record_parse, METH_O,
     "record_parse(line): (workload_key, target, hardware or None, host, layout_rewrite, inputs, steps, costs, "
     "error_no, all_cost, timestamp, version)."},
    {"record_text", fn_record_text, METH_VARARGS, "record_text(*fields of record_parse): one line of a log."},
    {NULL, NULL, 0, NULL}};

int py_init_record(PyObject *m) { return PyModule_AddFunctions(m, FUNCS); }
