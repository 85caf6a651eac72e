/* Bindings of device: Device, Buffer, DeviceModule, DLPack. Arrays with shapes are made of Buffers in Python. */
#include "py/py_device.h"
#include "base/object.h"
#include "py/py_fields.h"
#include "measure/measure.h"
#include <stdlib.h>
#include <string.h>

PyTypeObject *PyDevice_Type, *PyBuffer_Type, *PyDevModule_Type;

/* The lock may be held by a thread of the parent that is not there in a forked child, in the midst of a protected call. The
 * GIL, which is held here, keeps two threads of the child from making it anew. */
static void look_for_fork(PyDevice *d) {
  if (d->made == fork_count()) return;
  d->made = fork_count();
  pthread_mutex_init(&d->lock, NULL);
  err_init(&d->err);
}

/* the same for destructors: errors are forgotten */
static void py_dev_quietly(PyDevice *d, ErrBody body, void *arg) {
  look_for_fork(d);
  Py_BEGIN_ALLOW_THREADS; /* another thread may be in a long call of the device */
  pthread_mutex_lock(&d->lock);
  err_try(&d->err, body, arg);
  pthread_mutex_unlock(&d->lock);
  Py_END_ALLOW_THREADS;
}

bool py_dev_call(PyDevice *d, ErrBody body, void *arg) {
  Err copy;
  ErrCode c;
  look_for_fork(d);
  Py_BEGIN_ALLOW_THREADS;
  pthread_mutex_lock(&d->lock);
  c = err_try(&d->err, body, arg);
  if (c) copy = d->err;
  pthread_mutex_unlock(&d->lock);
  Py_END_ALLOW_THREADS;
  if (c) py_raise(&copy, c);
  return c == NS_OK;
}

/* ---- Device ---- */
typedef struct {
  PyDevice *d;
  int type, id;
} Open;
ERR_BODY(open_body, Open *o, o->d->dev = dev_open(&o->d->err, (DevType)o->type, o->id))

static PyObject *device_new(PyTypeObject *t, PyObject *args, PyObject *kw) {
  Open o = {0};
  if (!PyArg_ParseTupleAndKeywords(args, kw, "ii", PY_NAMES("device_type", "device_id"), &o.type, &o.id)) return NULL;
  PyDevice *d = (PyDevice *)PyType_GenericAlloc(t, 0);
  if (!d) return NULL;
  err_init(&d->err);
  pthread_mutex_init(&d->lock, NULL);
  d->made = fork_count();
  o.d = d;
  if (!py_dev_call(d, open_body, &o)) Py_CLEAR(d);
  return (PyObject *)d;
}

static void device_dealloc(PyObject *o) {
  PyDevice *d = (PyDevice *)o;
  PY_UNLOCKED(dev_close(d->dev));
  pthread_mutex_destroy(&d->lock);
  py_free_object(o);
}

static const PyField INFO[] = {FIELD(DevInfo, name, FIELD_CHARS),
                               FIELD(DevInfo, sm, FIELD_I32),
                               FIELD(DevInfo, multiprocessors, FIELD_I32),
                               FIELD(DevInfo, warp_size, FIELD_I32),
                               FIELD(DevInfo, max_threads_per_block, FIELD_I32),
                               FIELD(DevInfo, max_shared_per_block, FIELD_I64),
                               FIELD(DevInfo, max_shared_optin, FIELD_I64),
                               FIELD(DevInfo, total_bytes, FIELD_I64),
                               FIELD(DevInfo, l2_bytes, FIELD_I64),
                               FIELD(DevInfo, clock_khz, FIELD_I32),
                               FIELD(DevInfo, driver_version, FIELD_I32),
                               FIELDS_END};
PyObject *py_device_facts(const DevInfo *f) {
  PyObject *d = py_fields_dict(INFO, f);
  if (d) py_put_key(&d, "max_dims", Py_BuildValue("[iii]", f->max_dims[0], f->max_dims[1], f->max_dims[2]));
  return d;
}

static PyObject *device_info(PyObject *o, PyObject *Py_UNUSED(none)) {
  return py_device_facts(dev_info(((PyDevice *)o)->dev));
}

static PyObject *fn_query(PyObject *Py_UNUSED(self), PyObject *args) {
  int type, id;
  bool ok;
  DevInfo info;
  if (!PyArg_ParseTuple(args, "ii", &type, &id)) return NULL;
  PY_UNLOCKED(ok = dev_query((DevType)type, id, &info));
  if (!ok) return Py_NewRef(Py_None);
  return py_device_facts(&info);
}

static void sync_body(void *d) { dev_sync(((PyDevice *)d)->dev); }
static void sync_all_body(void *d) { dev_sync_all(((PyDevice *)d)->dev); }
static void flush_body(void *d) { dev_flush(((PyDevice *)d)->dev); }
static PyObject *device_flush(PyObject *o, PyObject *Py_UNUSED(none)) {
  return py_none(py_dev_call((PyDevice *)o, flush_body, o));
}
static PyObject *device_sync(PyObject *o, PyObject *Py_UNUSED(none)) {
  return py_none(py_dev_call((PyDevice *)o, sync_body, o));
}

/* ---- Buffer ---- */
typedef struct {
  PyBuffer *b, *other;
  void *host;
  size_t n;
  int byte;
} Mem;
ERR_BODY(alloc_body, Mem *x, x->b->ptr = dev_alloc(x->b->dev->dev, x->n))

static PyBuffer *buffer_make(PyDevice *d, size_t n) {
  PyBuffer *b = (PyBuffer *)PyType_GenericAlloc(PyBuffer_Type, 0);
  if (!b) return NULL;
  b->dev = (PyDevice *)Py_NewRef((PyObject *)d);
  b->bytes = n;
  return b;
}

static PyObject *device_alloc(PyObject *o, PyObject *arg) {
  Py_ssize_t n = PyLong_AsSsize_t(arg);
  if (n == -1 && PyErr_Occurred()) return NULL;
  if (n < 0) return PyErr_Format(PyExc_ValueError, "cannot allocate %zd bytes", n);
  PyBuffer *b = buffer_make((PyDevice *)o, (size_t)n);
  Mem x = {.b = b, .n = (size_t)n};
  if (b && !py_dev_call(b->dev, alloc_body, &x)) Py_CLEAR(b);
  return (PyObject *)b;
}

static void shared_release(void *shared);
static void free_body(void *b) { dev_free(((PyBuffer *)b)->dev->dev, ((PyBuffer *)b)->ptr); }
static void buffer_dealloc(PyObject *o) {
  PyBuffer *b = (PyBuffer *)o;
  if (b->shared)
    shared_release(b->shared);
  else if (b->ptr)
    py_dev_quietly(b->dev, free_body, b);
  Py_XDECREF((PyObject *)b->dev);
  py_free_object(o);
}

ERR_BODY(upload_body, Mem *x, dev_upload(x->b->dev->dev, x->b->ptr, x->host, x->n))
ERR_BODY(download_body, Mem *x, dev_download(x->b->dev->dev, x->host, x->b->ptr, x->n))
ERR_BODY(copy_body, Mem *x, dev_copy(x->b->dev->dev, x->b->ptr, x->other->ptr, x->n))
ERR_BODY(fill_body, Mem *x, dev_fill(x->b->dev->dev, x->b->ptr, x->byte, x->n))

static PyObject *transfer(PyObject *o, PyObject *arg, int flags, ErrBody body) {
  PyBuffer *b = (PyBuffer *)o;
  Py_buffer v;
  if (PyObject_GetBuffer(arg, &v, flags) < 0) return NULL;
  Mem x = {.b = b, .host = v.buf, .n = (size_t)v.len};
  bool ok = (size_t)v.len == b->bytes;
  if (!ok)
    PyErr_Format(PyExc_ValueError, "the host array has %zd bytes, the device buffer %zu", v.len, b->bytes);
  else
    ok = py_dev_call(b->dev, body, &x);
  PyBuffer_Release(&v);
  return py_none(ok);
}

static PyObject *buffer_upload(PyObject *o, PyObject *arg) { return transfer(o, arg, PyBUF_C_CONTIGUOUS, upload_body); }
static PyObject *buffer_download(PyObject *o, PyObject *arg) {
  return transfer(o, arg, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, download_body);
}

static PyObject *buffer_copy_from(PyObject *o, PyObject *arg) {
  PyBuffer *b = (PyBuffer *)o, *s = (PyBuffer *)arg;
  if (!PyObject_TypeCheck(arg, PyBuffer_Type))
    return PyErr_Format(PyExc_TypeError, "expected a Buffer, not %s", PY_TYPE_NAME(arg));
  if (s->bytes != b->bytes || s->dev != b->dev)
    return PyErr_Format(PyExc_ValueError, "can only copy %zu bytes on the same device, not %zu bytes", b->bytes,
                        s->bytes);
  Mem x = {.b = b, .other = s, .n = b->bytes};
  return py_none(py_dev_call(b->dev, copy_body, &x));
}

static PyObject *buffer_fill(PyObject *o, PyObject *arg) {
  PyBuffer *b = (PyBuffer *)o;
  Mem x = {.b = b, .n = b->bytes, .byte = (int)PyLong_AsLong(arg)};
  if (PyErr_Occurred()) return NULL;
  return py_none(py_dev_call(b->dev, fill_body, &x));
}

static int buffer_get(PyObject *o, Py_buffer *v, int flags) {
  PyBuffer *b = (PyBuffer *)o;
  if (dev_type(b->dev->dev) != DEV_CPU) {
    PyErr_SetString(PyExc_BufferError, "memory of a GPU cannot be seen from the host; use download()");
    return -1;
  }
  return PyBuffer_FillInfo(v, o, b->ptr, (Py_ssize_t)b->bytes, 0, flags);
}

static PyObject *buffer_bytes(PyObject *o, void *Py_UNUSED(none)) { return PyLong_FromSize_t(((PyBuffer *)o)->bytes); }
static PyObject *buffer_address(PyObject *o, void *Py_UNUSED(none)) { return PyLong_FromVoidPtr(((PyBuffer *)o)->ptr); }
static PyObject *buffer_device(PyObject *o, void *Py_UNUSED(none)) {
  return Py_NewRef((PyObject *)((PyBuffer *)o)->dev);
}

/* ---- DLPack (the unversioned struct, which every library reads) ---- */
typedef struct {
  int32_t device_type, device_id;
} DLDevice;
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor t;
  void *manager;
  void (*deleter)(struct DLManagedTensor *);
} DLManagedTensor;

static void shared_release(void *shared) {
  DLManagedTensor *t = shared;
  if (t->deleter) t->deleter(t);
}

static void export_delete(DLManagedTensor *t) {
  PyEntry s = py_enter();
  Py_XDECREF((PyObject *)t->manager);
  py_leave(s);
  free(t);
}

static void capsule_delete(PyObject *c) {
  if (!PyCapsule_IsValid(c, "dltensor")) return; /* consumed: the consumer calls the deleter */
  DLManagedTensor *t = PyCapsule_GetPointer(c, "dltensor");
  t->deleter(t);
}

static PyObject *buffer_dlpack(PyObject *o, PyObject *args) {
  PyBuffer *b = (PyBuffer *)o;
  PyObject *shape;
  int code, bits;
  if (!PyArg_ParseTuple(args, "O!ii", &PyTuple_Type, &shape, &code, &bits)) return NULL;
  Py_ssize_t n = PyTuple_Size(shape);
  DLManagedTensor *t = calloc(1, sizeof *t + (size_t)(2 * n + 1) * sizeof(int64_t));
  if (!t) return PyErr_NoMemory();
  t->t.shape = (int64_t *)(t + 1);
  t->t.strides = t->t.shape + n;
  int64_t stride = 1, total = 0;
  bool fits = py_take(FIELD_I64, shape, n, t->t.shape) && bits > 0 && bits <= 64;
  for (Py_ssize_t i = n; fits && i-- > 0; fits = t->t.shape[i] >= 0 && i64_mul(stride, t->t.shape[i], &stride))
    t->t.strides[i] = stride;
  fits = fits && i64_mul(stride, (bits + 7) / 8, &total) && (uint64_t)total <= b->bytes;
  if (!fits && !PyErr_Occurred())
    py_err_objects(PyExc_ValueError, "shape %R of %d bits does not fit the buffer's %zu bytes", shape, bits, b->bytes);
  if (PyErr_Occurred()) {
    free(t);
    return NULL;
  }
  t->t.data = b->ptr;
  t->t.ndim = (int32_t)n;
  t->t.device = (DLDevice){(int32_t)dev_type(b->dev->dev), dev_id(b->dev->dev)};
  t->t.dtype = (DLDataType){(uint8_t)code, (uint8_t)bits, 1};
  t->manager = Py_NewRef(o);
  t->deleter = export_delete;
  PyObject *c = PyCapsule_New(t, "dltensor", capsule_delete);
  if (!c) export_delete(t);
  return c;
}

static bool compact(const DLTensor *t) {
  int64_t stride = 1;
  for (int i = t->ndim; t->strides && i-- > 0; stride *= t->shape[i])
    if (t->shape[i] > 1 && t->strides[i] != stride) return false;
  return true;
}

enum { PAGE_LOCKED = 3 }; /* DLPack's device of host memory that CUDA has locked */

/* from_dlpack(capsule, device): (Buffer, shape, code, bits). The memory is shared. */
static PyObject *fn_from_dlpack(PyObject *Py_UNUSED(self), PyObject *args) {
  PyObject *cap, *dev;
  if (!PyArg_ParseTuple(args, "OO!", &cap, PyDevice_Type, &dev)) return NULL;
  DLManagedTensor *m = PyCapsule_GetPointer(cap, "dltensor");
  if (!m) return NULL;
  const DLTensor *t = &m->t;
  PyDevice *d = (PyDevice *)dev;
  bool host = dev_type(d->dev) == DEV_CPU && (t->device.device_type == DEV_CPU || t->device.device_type == PAGE_LOCKED);
  if (!host && (t->device.device_type != (int32_t)dev_type(d->dev) || t->device.device_id != dev_id(d->dev)))
    return PyErr_Format(PyExc_ValueError, "the DLPack tensor lies on device (%d, %d)", t->device.device_type,
                        t->device.device_id);
  if (!compact(t))
    return PyErr_Format(PyExc_ValueError, "the DLPack tensor is not contiguous; make it so first (e.g. .contiguous())");
  if (t->dtype.lanes != 1 || t->dtype.bits % 8)
    return PyErr_Format(PyExc_ValueError, "the DLPack tensor has packed elements, which are not supported");
  if (dev_type(d->dev) == DEV_OPENCL && t->byte_offset)
    return PyErr_Format(PyExc_ValueError, "an OpenCL tensor with a byte offset cannot be imported");
  int64_t n = t->dtype.bits / 8;
  for (int i = 0; i < t->ndim; i++)
    if (t->shape[i] < 0 || !i64_mul(n, t->shape[i], &n))
      return PyErr_Format(PyExc_ValueError, "the DLPack tensor's shape is negative or overflows");
  PyObject *shape = py_tuple(FIELD_I64, t->ndim, t->shape);
  if (!shape) return NULL;
  PyBuffer *b = py_dev_call(d, sync_all_body, d) ? buffer_make(d, (size_t)n) : NULL;
  if (!b || PyCapsule_SetName(cap, "used_dltensor") < 0) {
    Py_XDECREF((PyObject *)b);
    Py_DECREF(shape);
    return NULL;
  }
  b->ptr = (char *)t->data + t->byte_offset;
  b->shared = m;
  return Py_BuildValue("NNii", b, shape, t->dtype.code, t->dtype.bits);
}

static PyObject *fn_dlpack_device(PyObject *Py_UNUSED(self), PyObject *cap) {
  DLManagedTensor *m = PyCapsule_GetPointer(cap, "dltensor");
  return m ? Py_BuildValue("ii", m->t.device.device_type, m->t.device.device_id) : NULL;
}

/* ---- DeviceModule ---- */
typedef struct {
  PyDevModule *m;
  const void *binary;
  size_t n;
  const char *manifest;
} Load;
ERR_BODY(load_body, Load *x, x->m->mod = dev_load(x->m->dev->dev, x->binary, x->n, x->manifest))

static PyObject *device_load(PyObject *o, PyObject *args) {
  Load x = {0};
  Py_ssize_t n;
  const char *bin;
  if (!PyArg_ParseTuple(args, "y#s", &bin, &n, &x.manifest)) return NULL;
  x.binary = bin;
  x.n = (size_t)n;
  x.m = (PyDevModule *)PyType_GenericAlloc(PyDevModule_Type, 0);
  if (!x.m) return NULL;
  x.m->dev = (PyDevice *)Py_NewRef(o);
  if (!py_dev_call(x.m->dev, load_body, &x)) Py_CLEAR(x.m);
  return (PyObject *)x.m;
}

static void unload_body(void *m) { dev_unload(((PyDevModule *)m)->mod); }
static void devmodule_dealloc(PyObject *o) {
  PyDevModule *m = (PyDevModule *)o;
  if (m->mod) py_dev_quietly(m->dev, unload_body, m);
  Py_XDECREF((PyObject *)m->dev);
  py_free_object(o);
}

enum { MAX_ARGS = 256 };
typedef struct {
  DevModule *m;
  void *arg[MAX_ARGS];
  int number, flush;
  double seconds;
  int kernel, regs[3];
} Call;

static bool collect(PyDevModule *m, PyObject *list, Call *c) {
  const Manifest *man = dev_manifest(m->mod);
  PyObject *seq = PySequence_Fast(list, "arguments must be a sequence of Buffers");
  if (!seq) return false;
  Py_ssize_t n = PySequence_Size(seq);
  c->m = m->mod;
  bool ok = n == man->n_args && n <= MAX_ARGS;
  if (!ok) PyErr_Format(PyExc_ValueError, "%s takes %d arguments, %zd were given", man->entry, man->n_args, n);
  for (Py_ssize_t i = 0; ok && i < n; i++) {
    PyBuffer *b = (PyBuffer *)py_item(seq, i);
    ok = false;
    if (!PyObject_TypeCheck((PyObject *)b, PyBuffer_Type))
      PyErr_Format(PyExc_TypeError, "argument %zd is %s, not a Buffer", i, PY_TYPE_NAME((PyObject *)b));
    else if (b->dev != m->dev)
      PyErr_Format(PyExc_ValueError, "argument %zd (%s) lies on another device than the program", i, man->arg[i].name);
    else if (b->bytes < (size_t)man->arg[i].bytes)
      PyErr_Format(PyExc_ValueError, "argument %zd (%s) has %zu bytes, the program needs %lld", i, man->arg[i].name,
                   b->bytes, (long long)man->arg[i].bytes);
    else if (dev_type(m->dev->dev) == DEV_CPU && (uintptr_t)b->ptr % 64)
      PyErr_Format(PyExc_ValueError, "argument %zd (%s) is not aligned to 64 bytes; copy it with nd.array", i,
                   man->arg[i].name);
    else {
      c->arg[i] = b->ptr;
      ok = true;
    }
  }
  Py_DECREF(seq);
  return ok;
}

ERR_BODY(run_body, Call *c, dev_run(c->m, c->arg))

static PyObject *devmodule_run(PyObject *o, PyObject *list) {
  Call c = {0};
  if (!collect((PyDevModule *)o, list, &c)) return NULL;
  return py_none(py_dev_call(((PyDevModule *)o)->dev, run_body, &c));
}

ERR_BODY(time_body, Call *c, c->seconds = dev_time(c->m, c->arg, c->number, c->flush))

/* time(args, number, flush): mean seconds of `number` runs */
static PyObject *devmodule_time(PyObject *o, PyObject *args) {
  Call c = {0};
  PyObject *list;
  if (!PyArg_ParseTuple(args, "Oip", &list, &c.number, &c.flush)) return NULL;
  if (c.number < 1) return PyErr_Format(PyExc_ValueError, "number (%d) must be at least 1", c.number);
  if (!collect((PyDevModule *)o, list, &c)) return NULL;
  return py_dev_call(((PyDevModule *)o)->dev, time_body, &c) ? PyFloat_FromDouble(c.seconds) : NULL;
}

ERR_BODY(regs_body, Call *c, dev_regs(c->m, c->kernel, &c->regs[0], &c->regs[1], &c->regs[2]))

static PyObject *devmodule_regs(PyObject *o, PyObject *arg) {
  Call c = {.m = ((PyDevModule *)o)->mod, .kernel = (int)PyLong_AsLong(arg)};
  if (PyErr_Occurred() || !py_dev_call(((PyDevModule *)o)->dev, regs_body, &c)) return NULL;
  return Py_BuildValue("iii", c.regs[0], c.regs[1], c.regs[2]);
}

/* ---- tables ---- */
static PyMethodDef DEVICE_METHODS[] = {
    {"info", device_info, METH_NOARGS, "Facts about the device, as a dict."},
    {"sync", device_sync, METH_NOARGS, "Waits until the device has done all it was given."},
    {"flush", device_flush, METH_NOARGS, "Empties its caches."},
    {"alloc", device_alloc, METH_O, "alloc(bytes) -> Buffer, uninitialised."},
    {"load", device_load, METH_VARARGS, "load(binary, manifest) -> DeviceModule."},
    {NULL, NULL, 0, NULL}};
static PyMethodDef BUFFER_METHODS[] = {
    {"upload", buffer_upload, METH_O, "Copies a contiguous host array of equal size into the buffer."},
    {"download", buffer_download, METH_O, "Copies the buffer into a writable host array; waits for the device."},
    {"copy_from", buffer_copy_from, METH_O, "Copies another buffer of the same device and size."},
    {"fill", buffer_fill, METH_O, "Sets every byte."},
    {"dlpack", buffer_dlpack, METH_VARARGS, "dlpack(shape, code, bits) -> DLPack capsule that shares the memory."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef BUFFER_GET[] = {{"nbytes", buffer_bytes, NULL, "Size in bytes.", NULL},
                                   {"address", buffer_address, NULL, "Pointer (OpenCL: the cl_mem) as a number.", NULL},
                                   {"device", buffer_device, NULL, "The Device it lies on.", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef DEVMODULE_METHODS[] = {
    {"run", devmodule_run, METH_O, "run(buffers): starts the program; asynchronous on GPUs."},
    {"time", devmodule_time, METH_VARARGS,
     "time(buffers, number, flush) -> mean seconds of `number` runs; flush: caches are emptied before each."},
    {"regs", devmodule_regs, METH_O, "regs(kernel) -> (registers, local bytes, shared bytes)."},
    {NULL, NULL, 0, NULL}};

static PyObject *fn_exists(PyObject *Py_UNUSED(self), PyObject *args) {
  int type, id;
  char why[512];
  bool ok;
  if (!PyArg_ParseTuple(args, "ii", &type, &id)) return NULL;
  PY_UNLOCKED(ok = dev_exists((DevType)type, id, why, sizeof why));
  return Py_BuildValue("ON", ok ? Py_True : Py_False, py_text(why));
}

/* ---- shared objects ---- */
typedef struct {
  Err e;
  const char *image, *what;
  size_t n;
} Check;
ERR_BODY(check_body, Check *c, object_check(&c->e, c->image, c->n, c->what))

static PyObject *fn_object_check(PyObject *Py_UNUSED(self), PyObject *args) {
  Check c;
  Py_ssize_t n;
  if (!PyArg_ParseTuple(args, "y#s", &c.image, &n, &c.what)) return NULL;
  err_init(&c.e);
  c.n = (size_t)n;
  return py_none(py_free_ok(&c.e, check_body, &c));
}

static PyObject *fn_object_variable(PyObject *Py_UNUSED(self), PyObject *args) {
  const char *image, *name, *found;
  Py_ssize_t n;
  size_t size;
  if (!PyArg_ParseTuple(args, "y#s", &image, &n, &name)) return NULL;
  found = object_variable(image, (size_t)n, name, &size);
  return found ? Py_BuildValue("nn", (Py_ssize_t)(found - image), (Py_ssize_t)size) : Py_NewRef(Py_None);
}

static PyMethodDef FUNCTIONS[] = {
    {"object_check", fn_object_check, METH_VARARGS,
     "object_check(data, name): raises ValueError if the bytes are no whole shared object, RuntimeError if this "
     "machine cannot run it; name: what it is called in messages."},
    {"object_variable", fn_object_variable, METH_VARARGS,
     "object_variable(data, name) -> (offset, size) of an exported variable of a shared object, or None."},
    {"device_query", fn_query, METH_VARARGS,
     "device_query(type, id) -> dict of facts, None if there is no such device. Opens nothing."},
    {"device_exists", fn_exists, METH_VARARGS, "device_exists(type, id) -> (bool, why not). Never raises."},
    {"from_dlpack", fn_from_dlpack, METH_VARARGS,
     "from_dlpack(capsule, device) -> (Buffer, shape, type code, bits); shares the memory."},
    {"dlpack_device", fn_dlpack_device, METH_O, "dlpack_device(capsule) -> (device type, device id)."},
    {NULL, NULL, 0, NULL}};

static const PyType_Slot BUFFER_SLOTS[] = {{Py_bf_getbuffer, buffer_get}, {0, NULL}};
static const PyClass CLASSES[] = {
    PY_CLASS("Device", sizeof(PyDevice), .type = &PyDevice_Type, .create = device_new, .drop = device_dealloc,
             .methods = DEVICE_METHODS, .doc = "Device(device_type, device_id): an open device."),
    PY_CLASS("Buffer", sizeof(PyBuffer), .type = &PyBuffer_Type, .drop = buffer_dealloc, .methods = BUFFER_METHODS,
             .get = BUFFER_GET, .more = BUFFER_SLOTS, .doc = "Memory on a device."),
    PY_CLASS("DeviceModule", sizeof(PyDevModule), .type = &PyDevModule_Type, .drop = devmodule_dealloc,
             .methods = DEVMODULE_METHODS, .doc = "A program loaded on a device.")};

int py_init_device(PyObject *m) {
  return py_add(m, NS_COUNT(CLASSES), CLASSES, FUNCTIONS) < 0 ? -1 : py_init_measure(m);
}
