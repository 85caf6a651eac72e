/* The first NVIDIA GPU, by the driver. The few functions of it that are used are declared here: no header is needed. */
#include "network.h"
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(CUcontext *context, int device);
int cuCtxSetCurrent(CUcontext context);
int cuGetErrorName(int error, const char **name);
int cuMemAlloc_v2(CUdeviceptr *p, size_t bytes);
int cuMemsetD8_v2(CUdeviceptr p, unsigned char value, size_t n);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
int cuModuleLoad(CUmodule *module, const char *path);
int cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
int cuFuncSetAttribute(CUfunction function, int attribute, int value);
int cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream,
                   void **params, void **extra);

static CUfunction **function; /* of each program, of each kernel */

static void check(int error, const char *what) {
  const char *name = "unknown error";
  if (!error) return;
  cuGetErrorName(error, &name);
  fail(what, name);
}

void device_open(void) {
  CUcontext context;
  check(cuInit(0), "cuInit:");
  check(cuDevicePrimaryCtxRetain(&context, 0), "GPU 0:");
  check(cuCtxSetCurrent(context), "GPU 0:");
  function = calloc((size_t)n_programs + 1, sizeof *function);
  if (!function) fail("out of", "memory");
}

void *device_memory(size_t bytes) {
  CUdeviceptr p;
  check(cuMemAlloc_v2(&p, bytes ? bytes : 4), "GPU memory:");
  check(cuMemsetD8_v2(p, 0, bytes ? bytes : 4), "GPU memory:");
  return (void *)(uintptr_t)p;
}

void device_write(void *to, const void *from, size_t bytes) { check(cuMemcpyHtoD_v2((uintptr_t)to, from, bytes), "copy to the GPU:"); }
void device_read(void *to, const void *from, size_t bytes) { check(cuMemcpyDtoH_v2(to, (uintptr_t)from, bytes), "copy from the GPU:"); }

void device_load(int index) {
  enum { MAX_DYNAMIC_SHARED = 8 };
  const Program *p = &program[index];
  CUmodule module;
  check(cuModuleLoad(&module, p->file), p->file);
  function[index] = calloc((size_t)p->n_kernels + 1, sizeof **function);
  if (!function[index]) fail("out of", "memory");
  for (int i = 0; i < p->n_kernels; i++) {
    check(cuModuleGetFunction(&function[index][i], module, p->kernel[i].name), p->kernel[i].name);
    if (p->kernel[i].shared) check(cuFuncSetAttribute(function[index][i], MAX_DYNAMIC_SHARED, (int)p->kernel[i].shared), p->kernel[i].name);
  }
}

int device_call(int index, void *const *args, void *const *work) {
  const Program *p = &program[index];
  for (int i = 0; i < p->n_kernels; i++) {
    const Kernel *k = &p->kernel[i];
    void *params[256];
    if (k->n_params > 256) fail("too many parameters of", k->name);
    for (int j = 0; j < k->n_params; j++) params[j] = (void *)(uintptr_t)&(k->param[j].work ? work : args)[k->param[j].index];
    check(cuLaunchKernel(function[index][i], k->grid[0], k->grid[1], k->grid[2], k->block[0], k->block[1], k->block[2], k->shared, NULL, params,
                         NULL), k->name);
  }
  return 0;
}
