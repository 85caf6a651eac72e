/* Bindings of graph: GraphExec (a network on a device), the storage plan and the parameter file. */
#include "py/py_fields.h"
#include "py/py_device.h"
#include "graph/graph.h"
#include <string.h>

/* modules: dict of function name -> DeviceModule, and of those that came later, kept alive; bound: dict of entry -> Buffer bound by the user. */
typedef struct {
  PyObject_HEAD PyDevice *dev;
  Arena *arena;
  Graph *g;
  GraphExec *x;
  PyObject *modules, *bound;
} PyExec;

typedef struct {
  PyExec *o;
  int entry, number;
  void *ptr, *host;
  const char *func;
  DevModule *module;
  bool on;
  double seconds, *each;
  GraphTimes times;
  bool *flag;
} Call;

static bool is_tuple(PyObject *row, const char *what, Py_ssize_t i) {
  if (!PyTuple_Check(row))
    PyErr_Format(PyExc_TypeError, "%s %zd: expected a tuple, got %s", what, i, PY_TYPE_NAME(row));
  return PyTuple_Check(row);
}

/* ---- construction ---- */
typedef struct {
  int n;
  const char **name;
  DevModule **mod;
  PyExec *o;
  const char *json;
} Init;
static DevModule *find(void *env, const char *func) { /* the GIL is not held: look in the table made before */
  const Init *t = env;
  for (int i = 0; i < t->n; i++)
    if (strcmp(t->name[i], func) == 0) return t->mod[i];
  return NULL;
}
static void init_body(void *arg) {
  Init *in = arg;
  PyExec *o = in->o;
  o->arena = arena_new(&o->dev->err);
  o->g = graph_parse(o->arena, in->json);
  o->x = graph_exec_new(&o->dev->err, o->g, o->dev->dev, find, in, NULL);
}

static bool fill_table(Init *in, PyObject *modules) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(modules, &at, &key, &value)) {
    if (!PyObject_TypeCheck(value, PyDevModule_Type) || ((PyDevModule *)value)->dev != in->o->dev)
      return py_err_objects(PyExc_TypeError, "module %R must be a DeviceModule of the executor's device", key), false;
    in->name[in->n] = py_utf8(key);
    if (!in->name[in->n]) return false;
    in->mod[in->n++] = ((PyDevModule *)value)->mod;
  }
  return true;
}

static PyObject *exec_new(PyTypeObject *t, PyObject *args, PyObject *kw) {
  PyObject *dev, *modules;
  const char *json;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O!sO!", PY_NAMES("device", "graph_json", "modules"), PyDevice_Type, &dev,
                                   &json, &PyDict_Type, &modules))
    return NULL;
  PyExec *o = (PyExec *)PyType_GenericAlloc(t, 0);
  if (!o) return NULL;
  o->dev = (PyDevice *)Py_NewRef(dev);
  o->modules = PyDict_Copy(modules);
  o->bound = PyDict_New();
  size_t n = (size_t)PyDict_Size(modules) + 1;
  Init in = {0, py_calloc((Py_ssize_t)n, sizeof(char *)), py_calloc((Py_ssize_t)n, sizeof(DevModule *)), o, json};
  bool ok = o->modules && o->bound && in.name && in.mod;
  if (!ok) PyErr_NoMemory();
  ok = ok && fill_table(&in, o->modules) && py_dev_call(o->dev, init_body, &in);
  PyMem_Free(in.name);
  PyMem_Free(in.mod);
  if (!ok) Py_CLEAR(o);
  return (PyObject *)o;
}

static void free_body(void *arg) {
  PyExec *o = arg;
  graph_exec_free(o->x);
  o->x = NULL;
}
static void exec_dealloc(PyObject *self) {
  PyExec *o = (PyExec *)self;
  if (o->x) {
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    if (!py_dev_call(o->dev, free_body, o)) py_clear();
    PyErr_Restore(type, value, tb);
  }
  py_arena_free(o->arena);
  PY_DROP(o->modules, o->bound, o->dev);
  py_free_object(self);
}

/* ---- what is in it ---- */
static PyObject *describe(const Graph *g, int entry) {
  const GraphEntry *e = &g->entry[entry];
  return Py_BuildValue("iNs", entry, py_tuple(FIELD_I64, e->rank, e->shape), e->dtype);
}

static PyObject *exec_inputs(PyObject *self, PyObject *Py_UNUSED(none)) {
  const Graph *g = ((PyExec *)self)->g;
  PyObject *out = PyList_New(g->n_args);
  for (int i = 0; out && i < g->n_args; i++) {
    const char *name = "";
    for (int k = 0; k < g->n_nodes; k++)
      if (g->node[k].kind == GN_NULL && g->node[k].first == g->arg[i]) name = g->node[k].name;
    py_put(&out, i, Py_BuildValue("sN", name, describe(g, g->arg[i])));
  }
  return out;
}

static PyObject *exec_outputs(PyObject *self, PyObject *Py_UNUSED(none)) {
  const Graph *g = ((PyExec *)self)->g;
  PyObject *out = PyList_New(g->n_heads);
  for (int i = 0; out && i < g->n_heads; i++) py_put(&out, i, describe(g, g->head[i]));
  return out;
}

static bool entry_ok(const PyExec *o, int entry) {
  if (entry >= 0 && entry < o->g->n_entries) return true;
  PyErr_Format(PyExc_IndexError, "entry %d of %d", entry, (int)o->g->n_entries);
  return false;
}
static bool whole_ok(const PyExec *o, int entry) {
  if (!entry_ok(o, entry)) return false;
  if (o->g->entry[entry].part)
    PyErr_Format(PyExc_ValueError, "entry %d is a part of a concatenation, in whose memory it lies: use that", entry);
  return !PyErr_Occurred();
}

/* ---- data in and out ---- */
static void upload_body(void *arg) {
  Call *c = arg;
  dev_upload(c->o->dev->dev, graph_exec_data(c->o->x, c->entry), c->host, (size_t)c->o->g->entry[c->entry].bytes);
  graph_exec_given(c->o->x, c->entry);
}
static void download_body(void *arg) {
  Call *c = arg;
  graph_exec_claim(c->o->x);
  dev_download(c->o->dev->dev, c->host, graph_exec_data(c->o->x, c->entry), (size_t)c->o->g->entry[c->entry].bytes);
}
static void copy_in_body(void *arg) {
  Call *c = arg;
  dev_copy(c->o->dev->dev, graph_exec_data(c->o->x, c->entry), c->ptr, (size_t)c->o->g->entry[c->entry].bytes);
  graph_exec_given(c->o->x, c->entry);
}
static void copy_out_body(void *arg) {
  Call *c = arg;
  graph_exec_claim(c->o->x);
  dev_copy(c->o->dev->dev, c->ptr, graph_exec_data(c->o->x, c->entry), (size_t)c->o->g->entry[c->entry].bytes);
}
ERR_BODY(bind_body, Call *c, graph_exec_bind(c->o->x, c->entry, c->ptr))

static PyObject *transfer(PyObject *self, PyObject *args, ErrBody host, ErrBody device, int flags) {
  Call c = {.o = (PyExec *)self};
  PyObject *data;
  if (!PyArg_ParseTuple(args, "iO", &c.entry, &data) || !whole_ok(c.o, c.entry)) return NULL;
  int64_t want = c.o->g->entry[c.entry].bytes;
  bool ok;
  if (PyObject_TypeCheck(data, PyBuffer_Type) && ((PyBuffer *)data)->dev == c.o->dev) {
    const PyBuffer *b = (PyBuffer *)data;
    if ((int64_t)b->bytes < want)
      return PyErr_Format(PyExc_ValueError, "the buffer has %zu bytes, the value %lld", b->bytes, (long long)want);
    c.ptr = b->ptr;
    ok = py_dev_call(c.o->dev, device, &c);
  } else {
    Py_buffer v;
    if (PyObject_GetBuffer(data, &v, flags) < 0) return NULL;
    c.host = v.buf;
    ok = v.len == want;
    if (!ok) PyErr_Format(PyExc_ValueError, "the array has %zd bytes, the value %lld", v.len, (long long)want);
    ok = ok && py_dev_call(c.o->dev, host, &c);
    PyBuffer_Release(&v);
  }
  return py_none(ok);
}
static PyObject *exec_set(PyObject *self, PyObject *args) {
  return transfer(self, args, upload_body, copy_in_body, PyBUF_C_CONTIGUOUS);
}
static PyObject *exec_get(PyObject *self, PyObject *args) {
  return transfer(self, args, download_body, copy_out_body, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
}

static PyObject *exec_bind(PyObject *self, PyObject *args) {
  Call c = {.o = (PyExec *)self};
  PyObject *buf;
  if (!PyArg_ParseTuple(args, "iO", &c.entry, &buf) || !whole_ok(c.o, c.entry)) return NULL;
  if (buf != Py_None) {
    const PyBuffer *b = (PyBuffer *)buf;
    if (!PyObject_TypeCheck(buf, PyBuffer_Type) || b->dev != c.o->dev)
      return PyErr_Format(PyExc_ValueError, "zero-copy binding needs a Buffer on the executor's device");
    if ((int64_t)b->bytes < c.o->g->entry[c.entry].bytes ||
        (dev_type(b->dev->dev) != DEV_OPENCL && (uintptr_t)b->ptr % PROGRAM_ALIGN))
      return PyErr_Format(PyExc_ValueError,
                          "zero-copy binding needs %lld bytes aligned to %d; the buffer has %zu at %p",
                          (long long)c.o->g->entry[c.entry].bytes, PROGRAM_ALIGN, b->bytes, b->ptr);
    c.ptr = b->ptr;
  }
  PyObject *key = PyLong_FromLong(c.entry);
  bool ok = key && py_dev_call(c.o->dev, bind_body, &c) && PyDict_SetItem(c.o->bound, key, buf) == 0;
  Py_XDECREF(key);
  return py_none(ok);
}

static PyObject *exec_bound(PyObject *self, PyObject *entry) {
  PyObject *buf = PyDict_GetItemWithError(((PyExec *)self)->bound, entry);
  return buf ? Py_NewRef(buf) : PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ---- running ---- */
static void run_body(void *arg) { graph_exec_run(((Call *)arg)->o->x); }
ERR_BODY(time_body, Call *c, c->seconds = graph_exec_time(c->o->x, c->number, c->on))
ERR_BODY(nodes_body, Call *c, c->times = graph_exec_node_times(c->o->x, c->number, c->flag, c->each))
ERR_BODY(use_body, Call *c, graph_exec_use(c->o->x, c->func, c->module))
static void replay_body(void *arg) { graph_exec_replay(((Call *)arg)->o->x, ((Call *)arg)->on); }

static PyObject *exec_unset(PyObject *self, PyObject *Py_UNUSED(none)) {
  char names[4096];
  graph_exec_unset(((PyExec *)self)->x, names, sizeof names);
  return PyUnicode_FromString(names);
}

static PyObject *exec_run(PyObject *self, PyObject *Py_UNUSED(none)) {
  Call c = {.o = (PyExec *)self};
  return py_none(py_dev_call(c.o->dev, run_body, &c));
}
static bool runs_from(PyObject *arg, Call *c) {
  if (py_value(FIELD_I32, arg, &c->number) && c->number < 1)
    PyErr_Format(PyExc_ValueError, "number must be at least 1, not %d", c->number);
  return !PyErr_Occurred();
}
static PyObject *exec_time(PyObject *self, PyObject *args) {
  Call c = {.o = (PyExec *)self};
  PyObject *number;
  int flush = 0;
  if (!PyArg_ParseTuple(args, "O|p", &number, &flush)) return NULL;
  c.on = flush;
  return runs_from(number, &c) && py_dev_call(c.o->dev, time_body, &c) ? PyFloat_FromDouble(c.seconds) : NULL;
}
static bool mark_entries(const PyExec *o, PyObject *entries, bool *mark) {
  PyObject *all = PySequence_Fast(entries, "weights must be a sequence of entries");
  bool ok = all != NULL;
  for (Py_ssize_t i = 0; ok && i < PySequence_Size(all); i++) {
    int entry;
    ok = py_value(FIELD_I32, py_item(all, i), &entry) && entry_ok(o, entry);
    if (ok) mark[entry] = true;
  }
  Py_XDECREF(all);
  return ok;
}
static PyObject *exec_node_times(PyObject *self, PyObject *args) {
  PyExec *o = (PyExec *)self;
  Call c = {.o = o};
  PyObject *number, *weights = NULL;
  if (!PyArg_ParseTuple(args, "O|O", &number, &weights) || !runs_from(number, &c)) return NULL;
  c.each = py_calloc(o->g->n_nodes + 1, sizeof(double));
  c.flag = c.each ? py_calloc(o->g->n_entries + 1, sizeof(bool)) : NULL;
  bool ok = c.flag && (!weights || mark_entries(o, weights, c.flag));
  PyObject *out = ok && py_dev_call(o->dev, nodes_body, &c)
                      ? Py_BuildValue("NdO", py_list(FIELD_DOUBLE, o->g->n_nodes, c.each), c.times.run,
                                      c.times.fits ? Py_True : Py_False)
                      : NULL;
  PyMem_Free(c.each);
  PyMem_Free(c.flag);
  return out;
}
static PyObject *exec_use(PyObject *self, PyObject *args) {
  Call c = {.o = (PyExec *)self};
  PyObject *module;
  if (!PyArg_ParseTuple(args, "sO!", &c.func, PyDevModule_Type, &module)) return NULL;
  if (((PyDevModule *)module)->dev != c.o->dev)
    return PyErr_Format(PyExc_TypeError, "module for %s must be a DeviceModule of the executor's device", c.func);
  c.module = ((PyDevModule *)module)->mod;
  /* beside those that it had: threads may be at work with them */
  return py_none(PyDict_SetItem(c.o->modules, module, Py_None) == 0 && py_dev_call(c.o->dev, use_body, &c));
}
static PyObject *exec_replay(PyObject *self, PyObject *arg) {
  Call c = {.o = (PyExec *)self, .on = PyObject_IsTrue(arg) == 1};
  return py_none(!PyErr_Occurred() && py_dev_call(c.o->dev, replay_body, &c));
}
static PyObject *exec_get_attr(PyObject *self, void *what) {
  const PyExec *o = (PyExec *)self;
  if (!what) return PyBool_FromLong(graph_exec_captured(o->x));
  if (what == (void *)2) return PyLong_FromLong(graph_exec_early(o->x));
  if (what == (void *)3) return PyBool_FromLong(graph_exec_beside(o->x));
  return PyLong_FromLongLong(graph_exec_bytes(o->x));
}

static PyGetSetDef EXEC_GET[] = {
    {"captured", exec_get_attr, NULL, "True if runs replay a CUDA graph.", NULL},
    {"bytes", exec_get_attr, NULL, "Device memory of all storages.", (void *)1},
    {"early", exec_get_attr, NULL, "Kernels of the CUDA graph that begin while the ones before them end.", (void *)2},
    {"beside", exec_get_attr, NULL, "True if some kernels of the CUDA graph run side by side.", (void *)3},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef EXEC_METHODS[] = {
    {"inputs", exec_inputs, METH_NOARGS, "[(name, (entry, shape, dtype)), ...] of inputs and parameters."},
    {"outputs", exec_outputs, METH_NOARGS, "[(entry, shape, dtype), ...]"},
    {"set", exec_set, METH_VARARGS, "set(entry, data): copies from a contiguous host array or a Buffer of the device."},
    {"get", exec_get, METH_VARARGS,
     "get(entry, data): copies into a writable host array or a Buffer of the device; waits."},
    {"bind", exec_bind, METH_VARARGS,
     "bind(entry, buffer): uses the buffer's memory from now on; None: the own memory again."},
    {"bound", exec_bound, METH_O, "bound(entry): the Buffer that is bound to it, or None."},
    {"unset", exec_unset, METH_NOARGS, "The inputs that a run needs and that have got no value, as text; '' if none."},
    {"run", exec_run, METH_NOARGS, "Runs the network; asynchronous on GPUs. ValueError if an input has got no value."},
    {"time", exec_time, METH_VARARGS,
     "time(number, flush=False): mean seconds of a run; flush: caches are emptied before each. Inputs without a value "
     "are zeros."},
    {"node_times", exec_node_times, METH_VARARGS,
     "node_times(number, weights=()): (seconds per node, of a run, whether their sum is that of a run). Disturbed "
     "times "
     "do not count. On a GPU each kernel alone, the entries `weights` as cold as in a run; on a CPU within the run."},
    {"use", exec_use, METH_VARARGS,
     "use(function, module): its nodes run that DeviceModule from now on, a program of the same tensors; not on a "
     "CPU."},
    {"replay", exec_replay, METH_O, "replay(on): whether runs are captured into a CUDA graph."},
    {NULL, NULL, 0, NULL}};

/* ---- functions without a device ---- */
/* graph_plan([(kind, [entry, ...], n_out), ...], [bytes of entry, ...], [head, ...]) -> ([storage per entry], [bytes
 * per storage]) */
typedef struct {
  PyScratch s;
  PyObject *nodes, *bytes, *heads;
  int n, n_entries, n_heads, branches;
  GraphNode *node;
  int64_t *size;
  int32_t *head;
  GraphPlan plan;
} Plan;

static bool plan_read(Plan *p) {
  int32_t first = 0;
  p->node = py_scratch_alloc(&p->s, p->n, sizeof *p->node);
  p->size = py_scratch_alloc(&p->s, p->n_entries, sizeof *p->size);
  p->head = py_scratch_alloc(&p->s, p->n_heads, sizeof *p->head);
  if (!p->node || !p->size || !p->head) return false;
  for (int i = 0; i < p->n; i++) {
    PyObject *in;
    int kind, n_out;
    PyObject *row = PyList_GetItem(p->nodes, i);
    if (!is_tuple(row, "node", (Py_ssize_t)i)) return false;
    if (!PyArg_ParseTuple(row, "iO!i", &kind, &PyList_Type, &in, &n_out)) return false;
    int n_in = (int)PyList_Size(in);
    int32_t *entry = py_scratch_alloc(&p->s, n_in, sizeof *entry);
    if (!entry || !py_take(FIELD_I32, in, n_in, entry)) return false;
    if (n_out < 1 || n_out > p->n_entries - first)
      return PyErr_Format(PyExc_ValueError, "node %d makes %d entries, %d are left", i, n_out, p->n_entries - first),
             false;
    if (kind == GN_NOP && n_in != 1)
      return PyErr_Format(PyExc_ValueError, "node %d: a reshape has one input", i), false;
    p->node[i] = (GraphNode){(GraphNodeKind)kind, "", "", n_in, entry, first, n_out};
    first += n_out;
  }
  if (!py_take(FIELD_I64, p->bytes, p->n_entries, p->size) || !py_take(FIELD_I32, p->heads, p->n_heads, p->head))
    return false;
  for (int i = 0; i < p->n_heads; i++)
    if (p->head[i] < 0 || p->head[i] >= p->n_entries)
      return PyErr_Format(PyExc_ValueError, "head %d is out of range", i), false;
  if (first != p->n_entries)
    return PyErr_Format(PyExc_ValueError, "the nodes make %d entries, %d sizes were given", first, p->n_entries), false;
  return true;
}
ERR_BODY(plan_body, Plan *p,
         p->plan = graph_plan(p->s.a, p->n, p->node, p->n_entries, p->size, p->n_heads, p->head, p->branches != 0))

static PyObject *fn_plan(PyObject *Py_UNUSED(m), PyObject *args) {
  Plan p = {0};
  if (!PyArg_ParseTuple(args, "O!O!O!|p", &PyList_Type, &p.nodes, &PyList_Type, &p.bytes, &PyList_Type, &p.heads,
                        &p.branches))
    return NULL;
  p.n = (int)PyList_Size(p.nodes);
  p.n_entries = (int)PyList_Size(p.bytes);
  p.n_heads = (int)PyList_Size(p.heads);
  PyObject *out = NULL;
  if (plan_read(&p) && py_scratch_free(&p.s, plan_body, &p))
    out = Py_BuildValue("NN", py_list(FIELD_I32, p.n_entries, p.plan.id),
                        py_list(FIELD_I64, p.plan.n_storage, p.plan.bytes));
  py_arena_free(p.s.a);
  return out;
}

/* params_write([(name, dtype, shape, data), ...]) -> bytes */
typedef struct {
  PyScratch s;
  PyObject *rows; /* a tuple: owns them while the lock is released */
  int n;
  GraphParam *p;
  Py_buffer *view;
  int n_view;
  StrBuf out;
} Params;
static void write_body(void *arg) {
  Params *x = arg;
  sb_init(&x->out, x->s.a);
  params_write(&x->out, x->n, x->p);
}

static bool params_fill(Params *x) {
  x->p = py_scratch_alloc(&x->s, x->n, sizeof *x->p);
  x->view = py_scratch_alloc(&x->s, x->n, sizeof *x->view);
  if (!x->p || !x->view) return false;
  for (int i = 0; i < x->n; i++) {
    PyObject *shape, *data;
    GraphParam *p = &x->p[i];
    PyObject *row = PyTuple_GetItem(x->rows, i);
    if (!is_tuple(row, "parameter", (Py_ssize_t)i)) return false;
    if (!PyArg_ParseTuple(row, "ssO!O", &p->name, &p->dtype, &PyTuple_Type, &shape, &data)) return false;
    p->rank = (int32_t)PyTuple_Size(shape);
    int64_t *extent = py_scratch_alloc(&x->s, p->rank, sizeof *extent);
    if (!extent || !py_take(FIELD_I64, shape, p->rank, extent)) return false;
    p->shape = extent;
    if (PyObject_GetBuffer(data, &x->view[x->n_view], PyBUF_C_CONTIGUOUS) < 0) return false;
    p->data = x->view[x->n_view].buf;
    p->bytes = x->view[x->n_view++].len;
  }
  return true;
}

static PyObject *fn_params_write(PyObject *Py_UNUSED(m), PyObject *list) {
  Params x = {.n = 0};
  if (!PyList_Check(list)) return PyErr_Format(PyExc_TypeError, "expected a list of (name, dtype, shape, data)");
  if (!(x.rows = PyList_AsTuple(list))) return NULL;
  x.n = (int)PyTuple_Size(x.rows);
  PyObject *out = NULL;
  if (params_fill(&x) && py_scratch_free(&x.s, write_body, &x)) out = py_bytes(x.out.at, x.out.len);
  for (int i = 0; i < x.n_view; i++) PyBuffer_Release(&x.view[i]);
  py_arena_free(x.s.a);
  Py_DECREF(x.rows);
  return out;
}

/* params_read(bytes) -> [(name, dtype, shape, offset, bytes), ...] */
typedef struct {
  PyScratch s;
  Py_buffer v;
  int n;
  GraphParam *p;
} Read;
ERR_BODY(read_body, Read *r, r->p = params_read(r->s.a, r->v.buf, (size_t)r->v.len, &r->n))
static PyObject *fn_params_read(PyObject *Py_UNUSED(m), PyObject *data) {
  Read r = {0};
  if (PyObject_GetBuffer(data, &r.v, PyBUF_C_CONTIGUOUS) < 0) return NULL;
  PyObject *out = NULL;
  if (py_scratch_free(&r.s, read_body, &r)) out = py_weights(r.n, r.p, r.v.buf);
  PyBuffer_Release(&r.v);
  py_arena_free(r.s.a);
  return out;
}

static PyMethodDef FUNCS[] = {
    {"graph_plan", fn_plan, METH_VARARGS,
     "graph_plan(nodes, bytes, heads, branches=False): (storage per entry, bytes per storage). branches: so that nodes "
     "of "
     "which none reads what another makes may run side by side."},
    {"params_write", fn_params_write, METH_O,
     "params_write([(name, dtype, shape, data), ...]): the bytes of a parameter file."},
    {"params_read", fn_params_read, METH_O, "params_read(data): [(name, dtype, shape, offset, bytes), ...]."},
    {NULL, NULL, 0, NULL}};

static const PyClass CLASSES[] = {
    PY_CLASS("GraphExec", sizeof(PyExec), .create = exec_new, .drop = exec_dealloc, .methods = EXEC_METHODS,
             .get = EXEC_GET, .doc = "GraphExec(device, graph_json, modules): a network on a device, ready to run.")};

int py_init_graph(PyObject *m) {
  if (PyModule_AddIntMacro(m, PROGRAM_ALIGN) != 0) return -1;
  return py_add(m, NS_COUNT(CLASSES), CLASSES, FUNCS);
}
