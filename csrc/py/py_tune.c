/* Binding of the measuring session: _core.Session. Arrays are bytes-like objects in the order of the DAG's tensors. */
#include "py/py.h"
#include "py/py_device.h"
#include "py/py_fields.h"
#include "py/py_measure.h"
#include "py/py_search.h"
#include <string.h>
#include <time.h>

typedef struct {
  PyPipeline *p;
  Target t;
  DevType d;
  int id, n_lower;
  PipeOptions o;
} Open;
static void do_open(void *arg) {
  Open *x = arg;
  Session *s = x->p->owner = session_new(&x->p->err, &x->t, x->d, x->id, x->n_lower, &x->o);
  x->p->p = session_pipe(s);
}
static void end_session(void *s) { session_free(s); }
/* A number, or a list of numbers: devices that measure side by side. */
static bool devices_from(PyObject *ids, Open *x) {
  if (PyLong_Check(ids)) {
    x->id = (int)PyLong_AsLong(ids);
    return !PyErr_Occurred();
  }
  PyObject *seq = PySequence_Fast(ids, "device_id: expected a number or a list of numbers");
  Py_ssize_t n = seq ? PySequence_Size(seq) : 0;
  bool ok = n >= 1 && n <= PIPE_DEVICES;
  if (seq && !ok) PyErr_Format(PyExc_ValueError, "device_id lists %zd devices, allowed are 1 to %d", n, PIPE_DEVICES);
  ok = ok && py_take(FIELD_I32, seq, n, x->o.ids);
  x->o.n_ids = (int)n;
  Py_XDECREF(seq);
  return ok;
}
static PyObject *session_create(PyTypeObject *type, PyObject *args, PyObject *kw) {
  Open x = {.n_lower = 1, .o.lock = LOCK_AUTO};
  PyObject *ids = NULL, *stop = NULL;
  int type_code;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O&i|OiidzzO&O",
                                   PY_NAMES("target", "device_type", "device_id", "lower_threads", "compile_threads",
                                            "build_timeout", "cache_dir", "cc", "lock", "stop"),
                                   py_target, &x.t, &type_code, &ids, &x.n_lower, &x.o.n_compile, &x.o.build_timeout_s,
                                   &x.o.cache_dir, &x.o.cc, py_lock_mode, &x.o.lock, &stop))
    return NULL;
  if (ids && !devices_from(ids, &x)) return NULL;
  x.o.memory = py_build_memory();
  x.d = (DevType)type_code;
  PyPipeline *p = (PyPipeline *)PyType_GenericAlloc(type, 0);
  if (!p) return NULL;
  err_init(&p->err);
  p->made = fork_count();
  p->end = end_session;
  x.p = p;
  p->tasks = PyDict_New();
  p->stop = p->tasks ? py_stop_from(stop) : NULL;
  if (p->stop) p->err.interrupt = py_stop_flag(p->stop);
  if (p->stop && py_run_ok(&p->err, do_open, &x)) return (PyObject *)p;
  Py_DECREF(p);
  return NULL;
}
static Session *
open_session(PyObject *o) { /* to be asked behind the arguments: reading them may run Python, which may close it */
  PyPipeline *p = py_pipeline_open(o);
  return p ? p->owner : NULL;
}

/* ---- tasks ---- */

/* Arrays that a user gives for tensors of a DAG, in place of what measuring makes up. */
typedef struct {
  const void *at[MSR_MAX_ARGS];
  Py_buffer view[MSR_MAX_ARGS];
  PyObject *seq;
  int n;
} Given;
static bool given_from(PyObject *inputs, PyDag *d, Given *g) {
  int n = d->dag->n_tensors;
  *g = (Given){.n = 0};
  if (n > MSR_MAX_ARGS) {
    PyErr_Format(PyExc_ValueError, "a task with %d tensors cannot be measured; at most %d", n, MSR_MAX_ARGS);
    return false;
  }
  if (inputs == Py_None) return true;
  if (!(g->seq = PySequence_Fast(inputs, "inputs: expected a list with an array or None per tensor"))) return false;
  if (PySequence_Size(g->seq) != n) {
    PyErr_Format(PyExc_ValueError, "inputs: expected %d entries, one per tensor", n);
    return false;
  }
  for (int i = 0; i < n; i++) {
    PyObject *item = py_item(g->seq, i);
    if (item == Py_None) continue;
    if (PyObject_GetBuffer(item, &g->view[g->n], PyBUF_CONTIG_RO) < 0) return false;
    const Py_buffer *v = &g->view[g->n++];
    int64_t want = te_bytes(d->own.ctx, d->dag->tensor[i]);
    if (v->len != want) {
      PyErr_Format(PyExc_ValueError, "inputs[%d] has %zd bytes, the tensor has %lld", i, v->len, (long long)want);
      return false;
    }
    g->at[i] = v->buf;
  }
  return true;
}
static void given_free(Given *g) {
  for (int i = 0; i < g->n; i++) PyBuffer_Release(&g->view[i]);
  Py_XDECREF(g->seq);
}

typedef struct {
  Session *s;
  PyCopy copy;
  Arena *a;
  PyDag *dag;
  Target t;
  int layout;
  bool check;
  Given given;
  const char *math;
  int out;
} Task;
static void do_task(void *arg) {
  Task *x = arg;
  Err *e = &x->copy.own.err;
  x->a = arena_new(e);
  void *made[MSR_MAX_ARGS];
  const void *const *data = x->given.n ? x->given.at : NULL;
  if (x->check) {
    reference_data(x->a, x->copy.own.ctx, x->dag->dag, 1, x->given.at, made);
    data = (const void *const *)made;
  }
  err_poll(e);
  x->out = session_task(x->s, e, x->copy.own.ctx, x->dag->dag, &x->t, x->layout, data, !x->given.n, x->math);
}
static bool compared(const char *type) {
  double tolerance;
  const char *t;
  for (int k = 0; (t = compared_type(k, &tolerance)) != NULL; k++)
    if (!strcmp(t, type)) return true;
  return false;
}
static PyObject *m_task(PyObject *o, PyObject *args, PyObject *kw) {
  PyObject *dag, *target, *inputs = Py_None;
  int layout = 0, check = 1;
  Task x = {0};
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O!O|ipOz", PY_NAMES("dag", "target", "layout", "check", "inputs", "math"),
                                   PyDag_Type, &dag, &target, &layout, &check, &inputs, &x.math))
    return NULL;
  if (x.math && !compared(x.math))
    return PyErr_Format(PyExc_ValueError, "math is %s, which outputs are not compared as", x.math);
  x.dag = (PyDag *)dag, x.layout = layout, x.check = check;
  if (!py_target(target, &x.t)) return NULL;
  PyObject *r = NULL;
  if (given_from(inputs, x.dag, &x.given) && (x.s = open_session(o)) && py_copy_dag(&x.copy, x.dag)) {
    x.copy.own.err.interrupt = py_stop_flag(((PyPipeline *)o)->stop);
    ((PyPipeline *)o)->users++;
    if (py_copy_run(&x.copy, py_run, do_task, &x)) r = PyLong_FromLong(x.out);
    ((PyPipeline *)o)->users--;
    py_arena_free(x.a);
    py_copy_drop(&x.copy);
  }
  PyObject *what = r ? Py_BuildValue("OOi", dag, target, layout) : NULL;
  if (r && (!what || PyDict_SetItem(((PyPipeline *)o)->tasks, r, what) < 0)) Py_CLEAR(r);
  Py_XDECREF(what);
  given_free(&x.given);
  return r;
}

static PyObject *f_tolerances(PyObject *m, PyObject *u) {
  (void)m, (void)u;
  PyObject *d = PyDict_New();
  double tolerance;
  const char *t;
  for (int k = 0; d && (t = compared_type(k, &tolerance)) != NULL; k++)
    py_put_key(&d, t, PyFloat_FromDouble(tolerance));
  return d;
}

/* The expected outputs as bytes, for tests and tools. */
typedef struct {
  PyCopy copy;
  Arena *a;
  PyDag *dag;
  uint64_t seed;
  Given given;
  void *data[MSR_MAX_ARGS];
} Ref;
static void do_reference(void *arg) {
  Ref *x = arg;
  x->a = arena_new(&x->copy.own.err);
  reference_data(x->a, x->copy.own.ctx, x->dag->dag, x->seed, x->given.at, x->data);
}
static PyObject *f_reference(PyObject *Py_UNUSED(m), PyObject *args, PyObject *kw) {
  PyObject *dag, *stop = NULL, *inputs = Py_None, *l = NULL;
  unsigned long long seed = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O!|KOO", PY_NAMES("dag", "seed", "stop", "inputs"), PyDag_Type, &dag,
                                   &seed, &stop, &inputs))
    return NULL;
  if (!(stop = py_stop_from(stop))) return NULL;
  Ref *x = py_calloc(1, sizeof *x);
  if (!x) return Py_DECREF(stop), NULL;
  x->dag = (PyDag *)dag, x->seed = seed;
  if (given_from(inputs, x->dag, &x->given) && py_copy_dag(&x->copy, x->dag)) {
    x->copy.own.err.interrupt = py_stop_flag(stop);
    if (py_copy_run(&x->copy, py_run, do_reference, x)) l = PyList_New(x->dag->dag->n_tensors);
  }
  for (int i = 0; l && i < x->dag->dag->n_tensors; i++)
    py_put(&l, i, py_bytes(x->data[i], (size_t)te_bytes(x->dag->own.ctx, x->dag->dag->tensor[i])));
  py_arena_free(x->a);
  py_copy_drop(&x->copy);
  given_free(&x->given);
  PyMem_Free(x);
  Py_DECREF(stop);
  return l;
}

/* ---- candidates ---- */

typedef struct {
  Session *s;
  PyScratch own; /* the next three */
  int task, n;
  SubmitItem *item;
  GenText *text; /* of item */
  Arena **taken; /* their memory */
  int64_t tag;
  RunPolicy p;
} Submit;
ERR_BODY(do_submit, Submit *x, session_submit(x->s, &x->own.err, x->task, x->n, x->item, x->tag, &x->p))
/* Was the program that a task of the session needs made of a candidate? */
static bool has_program(const PyPipeline *p, PyObject *number, PyObject *o) {
  PyObject *dag, *target, *task = PyObject_TypeCheck(o, PyCandidate_Type) ? PyDict_GetItem(p->tasks, number) : NULL;
  int layout;
  if (!task || !PyArg_ParseTuple(task, "OOi", &dag, &target, &layout)) return false;
  const PyCandidate *k = (const PyCandidate *)o;
  Target t;
  return (PyObject *)k->dag == dag && k->c->layout == layout && k->c->printed && py_target(target, &t) &&
         memcmp(task_target(k->c->task), &t, sizeof t) == 0;
}
static PyObject *m_submit(PyObject *o, PyObject *args) {
  Submit x = {0};
  PyObject *states, *number;
  long long tag;
  if (!PyArg_ParseTuple(args, "O!OLO&", &PyLong_Type, &number, &states, &tag, py_policy, &x.p)) return NULL;
  x.tag = tag;
  x.task = (int)PyLong_AsLong(number);
  if (PyErr_Occurred()) return NULL;
  PyObject *seq = PySequence_Tuple(states); /* owns its items while the lock is released */
  if (!seq) return NULL;
  x.n = (int)PySequence_Size(seq);
  x.item = py_scratch_alloc(&x.own, x.n, sizeof *x.item);
  x.text = py_scratch_alloc(&x.own, x.n, sizeof *x.text);
  x.taken = py_scratch_alloc(&x.own, x.n, sizeof(Arena *));
  bool ok = x.item && x.text && x.taken;
  for (int i = 0; ok && i < x.n; i++) {
    PyObject *it = py_item(seq, i);
    ok = py_steps_of(it, &x.item[i].n_step, &x.item[i].step);
    if (!ok || !has_program((PyPipeline *)o, number, it)) continue;
    Candidate *c = ((PyCandidate *)it)->c; /* it will not be asked for again: the pipeline copies it */
    x.text[i] = c->text, x.item[i].text = &x.text[i];
    x.taken[i] = c->printed;
    c->printed = NULL, c->want &= ~(unsigned)WANT_PROGRAM;
  }
  PyObject *r = NULL;
  if (ok && (x.s = open_session(o))) {
    x.own.err.interrupt = py_stop_flag(((PyPipeline *)o)->stop);
    ((PyPipeline *)o)->users++;
    if (py_run_ok(&x.own.err, do_submit, &x)) r = PyLong_FromLong(x.n);
    ((PyPipeline *)o)->users--;
  }
  for (int i = 0; x.taken && i < x.n; i++) py_arena_free(x.taken[i]);
  py_arena_free(x.own.a);
  Py_DECREF(seq);
  return r;
}

typedef struct {
  Session *s;
  Err err;
  int task;
  unsigned long long args;
  long long bytes;
} Cold;
ERR_BODY(do_cold, Cold *x, session_cold(x->s, &x->err, x->task, x->args, x->bytes))
static PyObject *m_cold(PyObject *o, PyObject *args) {
  Cold x = {0};
  if (!PyArg_ParseTuple(args, "iKL", &x.task, &x.args, &x.bytes) || !(x.s = open_session(o))) return NULL;
  err_init(&x.err);
  return py_none(py_try(&x.err, do_cold, &x));
}
static PyMethodDef METHODS[] = {
    {"task", PY_KEYWORDS(m_task),
     "task(dag, target, layout=0, check=True, inputs=None): number of the task; check computes the expected outputs on "
     "the CPU."},
    {"submit", m_submit, METH_VARARGS,
     "submit(task, states, first_tag, (number, repeat, min_repeat_ms, timeout, flush, check, strict, cache=0)): "
     "queues candidates."},
    {"cold", m_cold, METH_VARARGS,
     "cold(task, args, bytes): the inputs with a bit in args are weights of a network of so many bytes of weights: as "
     "cold in the cache as there; so are instructions."},
    {NULL, NULL, 0, NULL}};
typedef struct {
  PyDag *dag;
  PyCopy copy;
  bool exact[MSR_MAX_ARGS];
} ExactArgs;
static void do_exact(void *arg) {
  ExactArgs *x = arg;
  err_check(&x->copy.own.err, x->dag->dag->n_tensors <= MSR_MAX_ARGS,
            "a task with %d tensors cannot be measured; at most %d", x->dag->dag->n_tensors, MSR_MAX_ARGS);
  te_exact(x->copy.own.ctx, x->dag->dag, x->exact);
}
static PyObject *f_exact(PyObject *Py_UNUSED(m), PyObject *args) {
  ExactArgs x = {0};
  PyObject *dag;
  if (!PyArg_ParseTuple(args, "O!", PyDag_Type, &dag)) return NULL;
  x.dag = (PyDag *)dag;
  bool ok = py_copy_dag(&x.copy, x.dag) && py_copy_run(&x.copy, py_free, do_exact, &x);
  py_copy_drop(&x.copy);
  return ok ? py_list(FIELD_BOOL, x.dag->dag->n_tensors, x.exact) : NULL;
}

static PyMethodDef FUNCTIONS[] = {
    {"tolerances", f_tolerances, METH_NOARGS,
     "tolerances(): {type, or mode in which float32 is computed: how far outputs may be off, of themselves and of "
     "their mean size}."},
    {"reference_exact", f_exact, METH_VARARGS,
     "reference_exact(dag): per tensor, whether every order of operations gives reference_data's bits."},
    {"reference_data", PY_KEYWORDS(f_reference),
     "reference_data(dag, seed=1, stop=None, inputs=None): bytes per tensor: small integers for inputs (or those "
     "given: an "
     "array or None per tensor), the unscheduled program's outputs."},
    {NULL, NULL, 0, NULL}};

static const PyClass CLASSES[] = {PY_CLASS(
    "Session", sizeof(PyPipeline), .base = &PyPipelineBase_Type, .create = session_create, .methods = METHODS,
    .doc = "Session(target, device_type, device_id=0, lower_threads=1, compile_threads=0, build_timeout=0, "
           "cache_dir=None, cc=None, lock=0, stop=None): builds and measures candidates. device_id: a number or a list "
           "of devices that measure side by side. lock: what to do about other tuners on a device: 0 turns on GPUs, 1 "
           "turns, 2 fail, 3 nothing. stop: a Stop that ends this call, task() and submit() with KeyboardInterrupt.")};

int py_init_tune(PyObject *m) {
  return py_add(m, NS_COUNT(CLASSES), CLASSES, FUNCTIONS) < 0 || py_init_rounds(m) < 0 ? -1 : py_init_learner(m);
}
