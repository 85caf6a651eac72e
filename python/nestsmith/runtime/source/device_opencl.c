/* The first GPU that OpenCL finds, or the first device of another kind. The few functions that are used are declared here. */
#include "network.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct Platform *Platform;
typedef struct Device *Device;
typedef struct Context *Context;
typedef struct Queue *Queue;
typedef struct Mem *Mem;
typedef struct ClProgram *ClProgram;
typedef struct ClKernel *ClKernel;
int clGetPlatformIDs(uint32_t n, Platform *platform, uint32_t *found);
int clGetDeviceIDs(Platform platform, uint64_t kind, uint32_t n, Device *device, uint32_t *found);
Context clCreateContext(const intptr_t *properties, uint32_t n, const Device *device, void *notify, void *data, int *error);
Queue clCreateCommandQueue(Context context, Device device, uint64_t properties, int *error);
Mem clCreateBuffer(Context context, uint64_t flags, size_t bytes, void *host, int *error);
int clEnqueueWriteBuffer(Queue q, Mem m, uint32_t wait, size_t at, size_t n, const void *from, uint32_t n_wait, const void *list, void *event);
int clEnqueueReadBuffer(Queue q, Mem m, uint32_t wait, size_t at, size_t n, void *to, uint32_t n_wait, const void *list, void *event);
ClProgram clCreateProgramWithSource(Context context, uint32_t n, const char **text, const size_t *length, int *error);
int clBuildProgram(ClProgram p, uint32_t n, const Device *device, const char *options, void *notify, void *data);
ClKernel clCreateKernel(ClProgram p, const char *name, int *error);
int clSetKernelArg(ClKernel k, uint32_t index, size_t size, const void *value);
int clEnqueueNDRangeKernel(Queue q, ClKernel k, uint32_t dims, const size_t *offset, const size_t *global, const size_t *local, uint32_t n_wait,
                           const void *list, void *event);

static Device device;
static Context context;
static Queue queue;
static ClKernel **kernel; /* of each program */

static void check(int error, const char *what) {
  char number[32];
  if (!error) return;
  snprintf(number, sizeof number, "OpenCL error %d", error);
  fail(what, number);
}

void device_open(void) {
  const uint64_t kinds[] = {4 /* GPUs */, 0xFFFFFFFF /* all */};
  Platform platform[16];
  uint32_t n = 0;
  int error;
  check(clGetPlatformIDs(16, platform, &n), "no platform:");
  for (int k = 0; k < 2 && !device; k++)
    for (uint32_t i = 0; i < n && i < 16 && !device; i++)
      if (clGetDeviceIDs(platform[i], kinds[k], 1, &device, NULL) != 0) device = NULL;
  if (!device) fail("OpenCL has", "no device");
  context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
  check(error, "context:");
  queue = clCreateCommandQueue(context, device, 0, &error);
  check(error, "queue:");
  kernel = calloc((size_t)n_programs + 1, sizeof *kernel);
  if (!kernel) fail("out of", "memory");
}

void device_write(void *to, const void *from, size_t bytes) {
  if (bytes) check(clEnqueueWriteBuffer(queue, to, 1, 0, bytes, from, 0, NULL, NULL), "copy to the device:");
}
void device_read(void *to, const void *from, size_t bytes) {
  if (bytes) check(clEnqueueReadBuffer(queue, (Mem)(uintptr_t)from, 1, 0, bytes, to, 0, NULL, NULL), "copy from the device:");
}

void *device_memory(size_t bytes) {
  int error;
  void *zeros = calloc(bytes + 4, 1);
  Mem m = clCreateBuffer(context, 1 /* read and write */, bytes + 4, NULL, &error);
  check(error, "device memory:");
  if (!zeros) fail("out of", "memory");
  device_write(m, zeros, bytes + 4);
  free(zeros);
  return m;
}

static char *text_of(const char *path) {
  FILE *f = fopen(path, "rb");
  long n = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
  char *text = n < 0 ? NULL : calloc((size_t)n + 1, 1);
  if (!text || fseek(f, 0, SEEK_SET) != 0 || fread(text, 1, (size_t)n, f) != (size_t)n) fail("cannot read", path);
  fclose(f);
  return text;
}

void device_load(int index) {
  const Program *p = &program[index];
  char *text = text_of(p->file);
  int error;
  ClProgram built = clCreateProgramWithSource(context, 1, (const char **)&text, NULL, &error);
  check(error, p->file);
  check(clBuildProgram(built, 1, &device, "-cl-std=CL1.2", NULL, NULL), p->file);
  kernel[index] = calloc((size_t)p->n_kernels + 1, sizeof **kernel);
  if (!kernel[index]) fail("out of", "memory");
  for (int i = 0; i < p->n_kernels; i++) {
    kernel[index][i] = clCreateKernel(built, p->kernel[i].name, &error);
    check(error, p->kernel[i].name);
  }
  free(text);
}

int device_call(int index, void *const *args, void *const *work) {
  const Program *p = &program[index];
  for (int i = 0; i < p->n_kernels; i++) {
    const Kernel *k = &p->kernel[i];
    size_t global[3], local[3];
    for (int d = 0; d < 3; d++) local[d] = k->block[d], global[d] = (size_t)k->grid[d] * k->block[d];
    for (int j = 0; j < k->n_params; j++)
      check(clSetKernelArg(kernel[index][i], (uint32_t)j, sizeof(Mem), &(k->param[j].work ? work : args)[k->param[j].index]), k->name);
    check(clEnqueueNDRangeKernel(queue, kernel[index][i], 3, NULL, global, local, 0, NULL, NULL), k->name);
  }
  return 0;
}
