/* What the bindings of device share with those of graph and measure. */
#ifndef NS_PY_DEVICE_H
#define NS_PY_DEVICE_H
#include "compile/compile.h"
#include "py/py.h"
#include "device/device.h"
#include "base/machine.h"
#include <pthread.h>

/* _core.Device: calls into it hold `lock`, because they run without the GIL and the engine's devices are not reentrant.
 * made: fork_count of the lock: a forked child makes it anew. */
typedef struct {
  PyObject_HEAD Err err;
  Device *dev;
  pthread_mutex_t lock;
  int made;
} PyDevice;
/* _core.Buffer: memory on a device. shared != NULL: memory of another library, handed back when the buffer dies. */
typedef struct {
  PyObject_HEAD PyDevice *dev;
  void *ptr;
  size_t bytes;
  void *shared;
} PyBuffer;
/* _core.DeviceModule: loaded code. */
typedef struct {
  PyObject_HEAD PyDevice *dev;
  DevModule *mod;
} PyDevModule;
extern PyTypeObject *PyDevice_Type, *PyBuffer_Type, *PyDevModule_Type;

/* Runs body(arg) without the GIL, holding the device's lock; false with the exception set. */
bool py_dev_call(PyDevice *d, ErrBody body, void *arg);
BuildCache *py_build_memory(void); /* binaries of this process; NULL: switched off */
PyObject *py_device_facts(const DevInfo *f); /* a dict */
int py_init_measure(PyObject *m); /* build, workers, pipeline (py_measure.c); called by py_init_device */
#endif
