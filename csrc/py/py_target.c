/* _core.Target: what programs are made for, as the engine takes it. Immutable; equal and hashed by value. */
#include "py/py_device.h"
#include "py/py_fields.h"
#include "schedule/schedule.h"
#include <string.h>

PyTypeObject *PyTarget_Type;

static const PyField HW[] = {/* in the order of the records */
                             FIELD_IN(HwParams, num_cores, FIELD_I64, -1, INT32_MAX, NULL),
                             FIELD_IN(HwParams, vector_unit_bytes, FIELD_I64, 0, INT32_MAX, NULL),
                             FIELD_IN(HwParams, cache_line_bytes, FIELD_I64, 0, INT32_MAX, NULL),
                             FIELD_IN(HwParams, max_shared_memory_per_block, FIELD_I64, 0, INT32_MAX, NULL),
                             FIELD_IN(HwParams, max_local_memory_per_block, FIELD_I64, 0, INT32_MAX, NULL),
                             FIELD_IN(HwParams, max_threads_per_block, FIELD_I64, 0, INT32_MAX, NULL),
                             FIELD_IN(HwParams, max_vthread_extent, FIELD_I64, 0, INT32_MAX, NULL),
                             FIELD_IN(HwParams, warp_size, FIELD_I64, 0, INT32_MAX, NULL),
                             FIELDS_END};
static const PyField MACHINE[] = {FIELD(GpuMachine, sm, FIELD_I32),
                                  FIELD(GpuMachine, sms, FIELD_I32),
                                  FIELD(GpuMachine, max_warps, FIELD_I32),
                                  FIELD(GpuMachine, max_blocks, FIELD_I32),
                                  FIELD(GpuMachine, regs, FIELD_I32),
                                  FIELD(GpuMachine, shared_bytes, FIELD_I32),
                                  FIELD(GpuMachine, shared_reserve, FIELD_I32),
                                  FIELD(GpuMachine, shared_unit, FIELD_I32),
                                  FIELD(GpuMachine, clock, FIELD_DOUBLE),
                                  FIELD(GpuMachine, peak, FIELD_DOUBLE),
                                  FIELD(GpuMachine, dram, FIELD_DOUBLE),
                                  FIELD(GpuMachine, l2, FIELD_DOUBLE),
                                  FIELDS_END};
/* A field of the target more: its member in base/machine.h and one line here. */
static const PyField OPTIONS[] = {FIELD_IN(Target, fast_math, FIELD_I32, 0, 2, NULL), FIELD(Target, mali, FIELD_BOOL),
                                  FIELD_IN(Target, overlap, FIELD_I32, OVERLAP_NONE, OVERLAP_HALF, NULL),
                                  FIELD_IN(Target, cpu, FIELD_CHARS, 0, TARGET_CPU_NAME, NULL), FIELDS_END};
static const char *const KIND[] = {[TG_CPU] = "llvm", [TG_CUDA] = "cuda", [TG_OPENCL] = "opencl"};

PyObject *py_hw_tuple(const HwParams *h) {
  return py_tuple(FIELD_I64, HW_FIELDS, h); /* it is an array of them (hw_value) */
}

bool py_hw(PyObject *o, HwParams *out) {
  PyObject *seq = PySequence_Fast(o, "hardware parameters: expected a sequence of 8 integers");
  bool ok = seq && PySequence_Size(seq) == HW_FIELDS;
  if (seq && !ok)
    PyErr_Format(PyExc_ValueError, "hardware parameters: 8 integers are needed (num_cores ... warp_size), not %zd",
                 PySequence_Size(seq));
  PyObject *d = ok ? PyDict_New() : NULL;
  ok = d != NULL;
  for (int i = 0; ok && i < HW_FIELDS; i++) ok = PyDict_SetItemString(d, HW_NAME[i], py_item(seq, i)) == 0;
  ok = ok && py_fields_set("hardware parameters", d, HW, out);
  PY_DROP(d, seq);
  return ok;
}

static bool find(PyObject *dict, const char *key,
                 PyObject **v) { /* borrowed; NULL: it is not there. false: exception set */
  PyObject *k = PyUnicode_FromString(key);
  *v = k ? PyDict_GetItemWithError(dict, k) : NULL;
  Py_XDECREF(k);
  return !PyErr_Occurred();
}

static bool cpu_name_good(PyObject *options) {
  static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+._";
  PyObject *v;
  if (!find(options, "cpu", &v)) return false;
  const char *s = v && PyUnicode_Check(v) ? py_utf8(v) : "";
  if (s && strlen(s) < TARGET_CPU_NAME && !s[strspn(s, LETTERS)]) return true;
  if (s)
    PyErr_Format(PyExc_ValueError,
                 "target option -mcpu=%s is no name of a processor: letters, digits and -+._ , at most %d of them", s,
                 TARGET_CPU_NAME - 1);
  return false;
}

static bool kind_named(const char *name, TargetKind *out) {
  if (target_kind(name, out)) return true;
  return PyErr_Format(PyExc_ValueError, "target kind '%s' is unknown; use \"c\", \"llvm\", \"cuda\" or \"opencl\"",
                      name),
         false;
}

static PyObject *target_create(PyTypeObject *type, PyObject *args, PyObject *kw) {
  const char *name;
  PyObject *hw = NULL, *rest = kw ? PyDict_Copy(kw) : PyDict_New();
  int sm = 0;
  TargetKind kind;
  if (!rest) return NULL;
  if (!PyArg_ParseTuple(args, "s|O;Target(kind, hw=None, *, sm=0, fast_math=1, mali=False, overlap=0, cpu=\"\")", &name,
                        &hw))
    goto fail;
  if (!kind_named(name, &kind)) goto fail;
  PyObject *v;
  bool ok = find(rest, "hw", &v);
  if (v && !hw) hw = v;
  Py_XINCREF(hw);
  if (v) ok = PyDict_DelItemString(rest, "hw") == 0;
  if (ok && find(rest, "sm", &v) && v) {
    sm = (int)PyLong_AsLong(v);
    if (!PyErr_Occurred()) PyDict_DelItemString(rest, "sm");
  }
  PyTarget *o = PyErr_Occurred() ? NULL : (PyTarget *)PyType_GenericAlloc(type, 0);
  if (o) o->t = target_default(kind, sm);
  ok = o && (!hw || hw == Py_None || py_hw(hw, &o->t.hw)) && cpu_name_good(rest) &&
       py_fields_set("target", rest, OPTIONS, &o->t);
  if (ok && strcmp(o->t.cpu, "native") == 0) memset(o->t.cpu, 0, sizeof o->t.cpu);
  DevInfo here; /* a GPU of that architecture that is here knows itself better than the table */
  if (ok && kind == TG_CUDA && sm > 0 && dev_query(DEV_CUDA, 0, &here) && here.sm == sm) o->t.gpu = here.gpu;
  Py_XDECREF(hw);
  Py_DECREF(rest);
  if (!ok) Py_CLEAR(o);
  return (PyObject *)o;
fail:
  Py_DECREF(rest);
  return NULL;
}

int py_target(PyObject *o, void *out) {
  Target *t = out;
  TargetKind kind;
  const char *name = PyUnicode_Check(o) ? py_utf8(o) : NULL;
  if (PyObject_TypeCheck(o, PyTarget_Type)) return *t = ((PyTarget *)o)->t, 1;
  if (name && kind_named(name, &kind)) return *t = target_default(kind, 0), 1;
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_TypeError, "target: expected a Target or the name of a kind, got %s", PY_TYPE_NAME(o));
  return 0;
}

/* ---- members ---- */
static PyObject *target_get(PyObject *o, PyObject *name) {
  const Target *t = &((PyTarget *)o)->t;
  const char *s = py_utf8(name);
  if (!s) return NULL;
  for (const PyField *f = OPTIONS; f->name; f++)
    if (strcmp(f->name, s) == 0) return py_field_value(f, t);
  if (strcmp(s, "kind") == 0) return PyUnicode_FromString(KIND[t->kind]);
  if (strcmp(s, "hw") == 0) return py_hw_tuple(&t->hw);
  if (strcmp(s, "sm") == 0) return PyLong_FromLong(t->kind == TG_CUDA ? t->gpu.sm : 0);
  if (strcmp(s, "matrix_peak") == 0)
    return PyFloat_FromDouble(t->kind == TG_CUDA ? gpu_matrix_peak(&t->gpu, 2, gpu_has(&t->gpu, GPU_WARPGROUPS)) : 0);
  if (strcmp(s, "machine") == 0) return t->kind == TG_CPU ? Py_NewRef(Py_None) : py_fields_dict(MACHINE, &t->gpu);
  return PyObject_GenericGetAttr(o, name);
}

/* Everything that a program depends on: (kind, hw, sm, options in their order). */
static PyObject *target_key(PyObject *o, PyObject *Py_UNUSED(unused)) {
  const Target *t = &((PyTarget *)o)->t;
  PyObject *options = PyTuple_New(NS_COUNT(OPTIONS) - 1);
  for (int i = 0; options && OPTIONS[i].name; i++) py_put(&options, i, py_field_value(&OPTIONS[i], t));
  return Py_BuildValue("(sNiN)", KIND[t->kind], py_hw_tuple(&t->hw), t->kind == TG_CUDA ? t->gpu.sm : 0, options);
}
static Py_hash_t target_hash(PyObject *o) {
  PyObject *key = target_key(o, NULL);
  Py_hash_t h = key ? PyObject_Hash(key) : -1;
  Py_XDECREF(key);
  return h;
}
static PyObject *target_compare(PyObject *a, PyObject *b, int op) {
  if (!PyObject_TypeCheck(b, PyTarget_Type)) Py_RETURN_NOTIMPLEMENTED;
  PyObject *x = target_key(a, NULL), *y = x ? target_key(b, NULL) : NULL,
           *r = y ? PyObject_RichCompare(x, y, op) : NULL;
  PY_DROP(x, y);
  return r;
}
static PyObject *target_repr(PyObject *o) {
  PyObject *key = target_key(o, NULL), *r = key ? py_text_objects("_core.Target%R", key) : NULL;
  Py_XDECREF(key);
  return r;
}

/* What pickle calls with a target's key. */
static PyObject *fn_target_from(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *kind, *hw, *sm, *options;
  if (!PyArg_ParseTuple(args, "OOOO!", &kind, &hw, &sm, &PyTuple_Type, &options)) return NULL;
  PyObject *two = PyTuple_Pack(2, kind, hw), *kw = two ? Py_BuildValue("{s:O}", "sm", sm) : NULL;
  bool ok = kw != NULL;
  for (int i = 0; ok && OPTIONS[i].name && i < PyTuple_Size(options); i++)
    ok = PyDict_SetItemString(kw, OPTIONS[i].name, PyTuple_GetItem(options, i)) == 0;
  PyObject *r = ok ? target_create(PyTarget_Type, two, kw) : NULL;
  PY_DROP(two, kw);
  return r;
}
static PyObject *target_reduce(PyObject *o, PyObject *unused) {
  PyObject *core = PyImport_ImportModule("nestsmith._core"),
           *f = core ? PyObject_GetAttrString(core, "target_from") : NULL, *key = f ? target_key(o, unused) : NULL;
  Py_XDECREF(core);
  if (key) return Py_BuildValue("(NN)", f, key);
  Py_XDECREF(f);
  return NULL;
}

/* ---- default hardware parameters, machines ---- */
static PyObject *fn_hw_default(PyObject *Py_UNUSED(m), PyObject *args) {
  const char *name;
  int mali, adreno;
  TargetKind kind;
  HwQuery q;
  HwParams h;
  long long shared, threads, warp, cores;
  if (!PyArg_ParseTuple(args, "sppLLLL", &name, &mali, &adreno, &shared, &threads, &warp, &cores)) return NULL;
  if (!kind_named(name, &kind)) return NULL;
  q = (HwQuery){shared, threads, warp, cores};
  const char *why = hw_params_default(kind, mali, adreno, &q, &h);
  return why ? PyErr_Format(PyExc_ValueError, "%s is not known", why) : py_hw_tuple(&h);
}
static PyObject *fn_cpu_threads(PyObject *Py_UNUSED(m), PyObject *Py_UNUSED(unused)) {
  return PyLong_FromLong(cpu_threads());
}
static PyObject *fn_cpu_vector_bytes(PyObject *Py_UNUSED(m), PyObject *cpu) {
  const char *name = py_utf8(cpu);
  return name ? PyLong_FromLong(cpu_machine(name).vector_bytes) : NULL;
}
static PyObject *fn_gpu_fit(PyObject *Py_UNUSED(m), PyObject *args) {
  static const char *const BOUND[] = {[GPU_BY_REGS] = "registers",
                                      [GPU_BY_SHARED] = "shared memory",
                                      [GPU_BY_WARPS] = "warps",
                                      [GPU_BY_BLOCKS] = "blocks"};
  Target t;
  long long threads, regs, shared;
  if (!PyArg_ParseTuple(args, "O&LLL", py_target, &t, &threads, &regs, &shared)) return NULL;
  if (t.kind != TG_CUDA) return PyErr_Format(PyExc_ValueError, "gpu_occupancy: the target must be for CUDA");
  Occupancy o = gpu_occupancy(&t.gpu, threads, regs, shared);
  return Py_BuildValue("Lds", (long long)o.blocks, o.occ, BOUND[o.limit]);
}

static PyObject *fn_memory_levels(PyObject *Py_UNUSED(m), PyObject *args) {
  Target t;
  long long l2_bytes;
  MemoryLevel level[MEMORY_LEVELS];
  if (!PyArg_ParseTuple(args, "O&L", py_target, &t, &l2_bytes)) return NULL;
  int n = t.kind == TG_CPU ? cpu_memory(level) : t.kind == TG_CUDA ? gpu_memory(&t.gpu, l2_bytes, level) : 0;
  PyObject *out = PyTuple_New(n);
  for (int i = 0; out && i < n; i++)
    py_put(&out, i, Py_BuildValue("sLd", level[i].name, (long long)level[i].bytes, level[i].rate));
  return out;
}

static PyMethodDef METHODS[] = {{"__reduce__", target_reduce, METH_NOARGS, "How pickle makes it again."},
                                {NULL, NULL, 0, NULL}};
static PyObject *fn_on_tensor_cores(PyObject *Py_UNUSED(m), PyObject *args) {
  const char *name;
  int sm;
  DType type;
  if (!PyArg_ParseTuple(args, "si:on_tensor_cores", &name, &sm)) return NULL;
  const Target t = {.kind = TG_CUDA, .gpu.sm = sm};
  return PyBool_FromLong(dtype_parse(name, &type) && matrix_on_cores(&t, type));
}
static PyObject *fn_lane_products(PyObject *Py_UNUSED(m), PyObject *sm) {
  const Target t = {.kind = TG_CUDA, .gpu.sm = (int32_t)PyLong_AsLong(sm)};
  return PyErr_Occurred() ? NULL : PyBool_FromLong(matrix_by_lanes(&t));
}

static PyMethodDef FUNCTIONS[] = {
    {"on_tensor_cores", fn_on_tensor_cores, METH_VARARGS,
     "on_tensor_cores(dtype, sm): whether those of a compute capability multiply such factors (float32: in TF32)."},
    {"lane_products", fn_lane_products, METH_O,
     "lane_products(sm): whether a compute capability has products of float32 by lanes."},
    {"target_from", fn_target_from, METH_VARARGS, "target_from(kind, hw, options): a Target; used by pickle."},
    {"hw_params_default", fn_hw_default, METH_VARARGS,
     "hw_params_default(kind, mali, adreno, shared, threads, warp, cores): the eight hardware parameters."},
    {"cpu_threads", fn_cpu_threads, METH_NOARGS, "cpu_threads(): threads that kernels on this CPU use by default."},
    {"cpu_vector_bytes", fn_cpu_vector_bytes, METH_O,
     "cpu_vector_bytes(cpu): of a processor, by the compiler's name for it; \"\": this one."},
    {"memory_levels", fn_memory_levels, METH_VARARGS,
     "memory_levels(target, l2_bytes): (name, bytes, bytes per second) of each level, the nearest first. bytes 0: all; "
     "rate 0: "
     "to be measured. l2_bytes: what a GPU's driver says; 0: not known."},
    {"gpu_occupancy", fn_gpu_fit, METH_VARARGS,
     "gpu_occupancy(target, threads, registers, shared_bytes): (blocks per multiprocessor, share of its warps, "
     "bound)."},
    {NULL, NULL, 0, NULL}};

static const PyType_Slot TARGET_SLOTS[] = {{Py_tp_getattro, target_get},
                                           {Py_tp_hash, target_hash},
                                           {Py_tp_repr, target_repr},
                                           {Py_tp_richcompare, target_compare},
                                           {0, NULL}};
static const PyClass CLASSES[] = {
    PY_CLASS("Target", sizeof(PyTarget), .type = &PyTarget_Type, .create = target_create, .drop = py_free_object,
             .methods = METHODS, .more = TARGET_SLOTS,
             .doc = "Target(kind, hw=None, *, sm=0, fast_math=1, mali=False, overlap=0, cpu=\"\")\n--\n\n"
                    "What programs are made for: kind (\"llvm\", \"cuda\", \"opencl\"), the eight hardware "
                    "parameters, options; machine: the GPU's description.")};
int py_init_target(PyObject *m) {
  PyObject *names = py_tuple(FIELD_TEXT, HW_FIELDS, HW_NAME);
  if (!names || PyModule_AddObject(m, "HW_FIELDS", names) != 0) return -1;
  return py_add(m, NS_COUNT(CLASSES), CLASSES, FUNCTIONS);
}
