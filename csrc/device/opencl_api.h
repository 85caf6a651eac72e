/* The part of OpenCL 1.2 that is used, declared here so that neither headers nor a loader are needed to build. */
#ifndef NS_OPENCL_API_H
#define NS_OPENCL_API_H
#include <stddef.h>
#include <stdint.h>

typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_event *cl_event;
typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;

enum {
  CL_DEVICE_TYPE_CPU_BIT = 2,
  CL_DEVICE_TYPE_GPU_BIT = 4,
  CL_DEVICE_TYPE_ACCELERATOR_BIT = 8,
  CLD_MAX_COMPUTE_UNITS = 0x1002,
  CLD_MAX_WORK_GROUP_SIZE = 0x1004,
  CLD_MAX_WORK_ITEM_SIZES = 0x1005,
  CLD_MAX_CLOCK_FREQUENCY = 0x100C,
  CLD_GLOBAL_MEM_CACHE_SIZE = 0x101E,
  CLD_GLOBAL_MEM_SIZE = 0x101F,
  CLD_LOCAL_MEM_SIZE = 0x1023,
  CLD_NAME = 0x102B,
  CL_READ_WRITE = 1,
  CL_PROFILING_ENABLE = 2,
  CL_YES = 1,
  CLP_BUILD_LOG = 0x1183,
  CLK_WORK_GROUP_SIZE = 0x11B0,
  CLK_PRIVATE_MEM_SIZE = 0x11B4,
  CLK_LOCAL_MEM_SIZE = 0x11B2,
  CLE_START = 0x1282,
  CLE_END = 0x1283
};

#define OPENCL_FUNCS(F)                                                                                                \
  F(cl_int, platforms, "clGetPlatformIDs", (cl_uint n, cl_platform_id * p, cl_uint * count))                           \
  F(cl_int, devices, "clGetDeviceIDs",                                                                                 \
    (cl_platform_id p, cl_ulong type, cl_uint n, cl_device_id * d, cl_uint * count))                                   \
  F(cl_int, device_info, "clGetDeviceInfo", (cl_device_id d, cl_uint what, size_t n, void *out, size_t *len))          \
  F(cl_context, context_new, "clCreateContext",                                                                        \
    (const intptr_t *props, cl_uint n, const cl_device_id *d, void *cb, void *user, cl_int *err))                      \
  F(cl_int, context_free, "clReleaseContext", (cl_context c))                                                          \
  F(cl_command_queue, queue_new, "clCreateCommandQueue", (cl_context c, cl_device_id d, cl_ulong props, cl_int * err)) \
  F(cl_int, queue_free, "clReleaseCommandQueue", (cl_command_queue q))                                                 \
  F(cl_int, finish, "clFinish", (cl_command_queue q))                                                                  \
  F(cl_int, flush, "clFlush", (cl_command_queue q))                                                                    \
  F(cl_mem, mem_new, "clCreateBuffer", (cl_context c, cl_ulong flags, size_t n, void *host, cl_int *err))              \
  F(cl_int, mem_free, "clReleaseMemObject", (cl_mem m))                                                                \
  F(cl_int, write, "clEnqueueWriteBuffer",                                                                             \
    (cl_command_queue q, cl_mem m, cl_uint block, size_t at, size_t n, const void *src, cl_uint nw, const cl_event *w, \
     cl_event *e))                                                                                                     \
  F(cl_int, read, "clEnqueueReadBuffer",                                                                               \
    (cl_command_queue q, cl_mem m, cl_uint block, size_t at, size_t n, void *dst, cl_uint nw, const cl_event *w,       \
     cl_event *e))                                                                                                     \
  F(cl_int, copy, "clEnqueueCopyBuffer",                                                                               \
    (cl_command_queue q, cl_mem s, cl_mem d, size_t so, size_t dof, size_t n, cl_uint nw, const cl_event *w,           \
     cl_event *e))                                                                                                     \
  F(cl_int, fill, "clEnqueueFillBuffer",                                                                               \
    (cl_command_queue q, cl_mem m, const void *pat, size_t pn, size_t at, size_t n, cl_uint nw, const cl_event *w,     \
     cl_event *e))                                                                                                     \
  F(cl_program, program_source, "clCreateProgramWithSource",                                                           \
    (cl_context c, cl_uint n, const char **s, const size_t *len, cl_int *err))                                         \
  F(cl_program, program_binary, "clCreateProgramWithBinary",                                                           \
    (cl_context c, cl_uint n, const cl_device_id *d, const size_t *len, const unsigned char **b, cl_int *st,           \
     cl_int *err))                                                                                                     \
  F(cl_int, build, "clBuildProgram",                                                                                   \
    (cl_program p, cl_uint n, const cl_device_id *d, const char *options, void *cb, void *user))                       \
  F(cl_int, build_info, "clGetProgramBuildInfo",                                                                       \
    (cl_program p, cl_device_id d, cl_uint what, size_t n, void *out, size_t *len))                                    \
  F(cl_int, program_free, "clReleaseProgram", (cl_program p))                                                          \
  F(cl_kernel, kernel_new, "clCreateKernel", (cl_program p, const char *name, cl_int *err))                            \
  F(cl_int, kernel_free, "clReleaseKernel", (cl_kernel k))                                                             \
  F(cl_int, kernel_arg, "clSetKernelArg", (cl_kernel k, cl_uint i, size_t n, const void *v))                           \
  F(cl_int, kernel_info, "clGetKernelWorkGroupInfo",                                                                   \
    (cl_kernel k, cl_device_id d, cl_uint what, size_t n, void *out, size_t *len))                                     \
  F(cl_int, launch, "clEnqueueNDRangeKernel",                                                                          \
    (cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *off, const size_t *global, const size_t *local,      \
     cl_uint nw, const cl_event *w, cl_event *e))                                                                      \
  F(cl_int, event_wait, "clWaitForEvents", (cl_uint n, const cl_event *e))                                             \
  F(cl_int, event_info, "clGetEventProfilingInfo", (cl_event e, cl_uint what, size_t n, void *out, size_t *len))       \
  F(cl_int, event_free, "clReleaseEvent", (cl_event e))

typedef struct {
  void *lib;
#define DECL(ret, field, symbol, params) ret(*field) params;
  OPENCL_FUNCS(DECL)
#undef DECL
} OpenclApi;
#endif
