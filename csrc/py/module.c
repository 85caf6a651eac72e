/* The extension module nestsmith._core: registers what each room contributes. */
#include "py/py.h"
#include <string.h>

typedef int (*PyInit)(PyObject *m);
static const PyInit INITS[] = {py_init_run,   py_init_target,   py_init_program, py_init_te,      py_init_schedule,
                               py_init_lower, py_init_codegen,  py_init_device,  py_init_search,  py_init_graph,
                               py_init_model, py_init_template, py_init_itervar, py_init_optimise};

/* What the engine raises is a TVMError; nestsmith/error.py has the rest of the family. */
static PyObject *TvmError, *TvmValueError, *TvmTypeError, *InternalError;

static int add_error(PyObject *m, PyObject **type, const char *name, const char *doc, PyObject *base) {
  *type = base ? PyErr_NewExceptionWithDoc(name, doc, base, NULL) : NULL;
  return *type ? PyModule_AddObjectRef(m, strrchr(name, '.') + 1, *type) : -1;
}
static int init_errors(PyObject *m) {
  if (add_error(m, &TvmError, "nestsmith.error.TVMError", "What the engine raises.", PyExc_RuntimeError) < 0 ||
      add_error(m, &InternalError, "nestsmith.error.InternalError", "A mistake in the engine: please report it.",
                TvmError) < 0)
    return -1;
  PyObject *value = PyTuple_Pack(2, TvmError, PyExc_ValueError), *type = PyTuple_Pack(2, TvmError, PyExc_TypeError);
  int r = add_error(m, &TvmValueError, "nestsmith.error.TVMValueError",
                    "An argument, a schedule or a file that the engine refuses.", value);
  if (r == 0)
    r = add_error(m, &TvmTypeError, "nestsmith.error.TVMTypeError",
                  "Operands of a type that an operation does not take.", type);
  PY_DROP(value, type);
  return r;
}

static bool class_new(PyObject *m, const PyClass *c) {
  enum { SLOTS_MOST = 40 };
  PyType_Slot slot[SLOTS_MOST] = {{Py_tp_doc, (void *)(uintptr_t)c->doc},
                                  {Py_tp_new, (void *)c->create},
                                  {Py_tp_dealloc, (void *)c->drop},
                                  {Py_tp_methods, c->methods},
                                  {Py_tp_getset, c->get}};
  int n = 0;
  for (int i = 0; i < 5; i++)
    if (slot[i].pfunc) slot[n++] = slot[i];
  for (const PyType_Slot *s = c->more; s && s->slot && n < SLOTS_MOST - 1; s++) slot[n++] = *s;
  slot[n] = (PyType_Slot){0, NULL};
  unsigned flags = Py_TPFLAGS_DEFAULT | c->flags | (c->create ? 0 : Py_TPFLAGS_DISALLOW_INSTANTIATION);
  PyType_Spec spec = {c->name, (int)c->size, 0, flags, slot};
  PyObject *bases = c->base ? PyTuple_Pack(1, *c->base) : NULL;
  PyTypeObject *t = c->base && !bases ? NULL : (PyTypeObject *)PyType_FromSpecWithBases(&spec, bases);
  Py_XDECREF(bases);
  bool ok = t && PyModule_AddType(m, t) == 0;
  if (ok && c->type)
    *c->type = t;
  else
    Py_XDECREF((PyObject *)t);
  return ok;
}

int py_add(PyObject *m, int n, const PyClass *classes, PyMethodDef *functions) {
  for (int i = 0; i < n; i++)
    if (!class_new(m, &classes[i])) return -1;
  return functions ? PyModule_AddFunctions(m, functions) : 0;
}

static int module_exec(PyObject *m) {
  if (init_errors(m) < 0) return -1;
  for (int i = 0; i < NS_COUNT(INITS); i++)
    if (INITS[i](m) < 0) return -1;
  return 0;
}

const char *py_type_name(PyTypeObject *t, char *to, size_t n) {
  PyObject *name = PyType_GetName(t), *type, *value, *trace;
  const char *s = name ? py_utf8(name) : NULL;
  snprintf(to, n, "%s", s ? s : "?");
  Py_XDECREF(name);
  if (!s) PyErr_Fetch(&type, &value, &trace), PY_DROP(type, value, trace);
  return to;
}

PyObject *py_text(const char *s) { return PyUnicode_DecodeUTF8(s, (Py_ssize_t)strlen(s), "replace"); }

void *py_calloc(Py_ssize_t n, size_t size) {
  void *p = PyMem_Calloc((size_t)n, size);
  return p ? p : PyErr_NoMemory();
}

typedef struct {
  PyScratch *s;
  ErrBody body;
  void *arg;
  size_t bytes;
} Scratch;
static void scratch_body(void *p) {
  Scratch *x = p;
  if (!x->s->a) x->s->a = arena_new(&x->s->err);
  if (x->body)
    x->body(x->arg);
  else
    x->arg = arena_alloc(x->s->a, x->bytes);
}
bool py_scratch_run(PyScratch *s, ErrBody body, void *arg) {
  return py_try(&s->err, scratch_body, &(Scratch){s, body, arg, 0});
}
bool py_scratch_free(PyScratch *s, ErrBody body, void *arg) {
  return py_free_ok(&s->err, scratch_body, &(Scratch){s, body, arg, 0});
}
void *py_scratch_alloc(PyScratch *s, Py_ssize_t n, size_t size) {
  Scratch x = {s, NULL, NULL, (size_t)n * size};
  return py_try(&s->err, scratch_body, &x) ? x.arg : NULL;
}

void py_put(PyObject **seq, Py_ssize_t i, PyObject *item) {
  if (!item)
    Py_CLEAR(*seq);
  else if (PyList_Check(*seq))
    PyList_SetItem(*seq, i, item);
  else
    PyTuple_SetItem(*seq, i, item);
}

void py_put_key(PyObject **dict, const char *key, PyObject *item) {
  if (!item || PyDict_SetItemString(*dict, key, item) != 0) Py_CLEAR(*dict);
  Py_XDECREF(item);
}

void py_drop(int n, void *const *o) {
  for (int i = 0; i < n; i++) Py_XDECREF((PyObject *)o[i]);
}

void py_free_object(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  ((freefunc)(uintptr_t)PyType_GetSlot(t, Py_tp_free))(o);
  Py_DECREF(t);
}

PyObject *py_raise(const Err *e, ErrCode code) {
  PyObject *type = TvmError;
  switch (code) {
  case NS_ERR_VALUE: type = TvmValueError; break;
  case NS_ERR_INTERNAL: type = InternalError; break;
  case NS_ERR_TYPE: type = TvmTypeError; break;
  case NS_ERR_MEMORY: type = PyExc_MemoryError; break;
  case NS_ERR_IO: type = PyExc_OSError; break;
  case NS_ERR_INTERRUPT: type = PyExc_KeyboardInterrupt; break;
  default: break;
  }
  PyObject *text = PyErr_Occurred() ? NULL : py_text(e->msg);
  if (text) PyErr_SetObject(type, text);
  Py_XDECREF(text);
  return NULL;
}

bool py_here(int made, const char *what) {
  if (made == fork_count()) return true;
  PyErr_Format(
      TvmError,
      "this %s was made before the process was forked: its threads and processes are those of the parent; make "
      "a new one in the child",
      what);
  return false;
}

void py_clear(void) {
  bool stop = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
  PyErr_Clear();
  if (stop) PyErr_SetInterrupt();
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, (void *)module_exec}, {0, NULL}};
static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "nestsmith._core", "The nestsmith engine.", 0, NULL, SLOTS, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&MODULE); }
