/* The part of the CUDA driver API that is used, declared here so that no CUDA headers are needed to build. Values and
 * signatures are those of the stable driver ABI (the versioned symbol names). CUDA_FUNCS and CUDA_MORE_FUNCS list every
 * entry once: the struct of pointers and the tables that load it are made from them. */
#ifndef NS_CUDA_API_H
#define NS_CUDA_API_H
#include <stddef.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;

enum {
  CU_ATTR_MAX_THREADS_PER_BLOCK = 1,
  CU_ATTR_MAX_BLOCK_DIM_X = 2,
  CU_ATTR_MAX_SHARED_PER_BLOCK = 8,
  CU_ATTR_WARP_SIZE = 10,
  CU_ATTR_CLOCK_RATE = 13,
  CU_ATTR_MULTIPROCESSORS = 16,
  CU_ATTR_L2_CACHE_SIZE = 38,
  CU_ATTR_MAX_THREADS_PER_SM = 39,
  CU_ATTR_MAJOR = 75,
  CU_ATTR_MINOR = 76,
  CU_ATTR_SHARED_PER_SM = 81,
  CU_ATTR_REGISTERS_PER_SM = 82,
  CU_ATTR_MAX_SHARED_OPTIN = 97,
  CU_ATTR_MAX_BLOCKS_PER_SM = 106,
  CU_ATTR_RESERVED_SHARED = 111,
  CU_FN_MAX_THREADS = 0,
  CU_FN_SHARED_BYTES = 1,
  CU_FN_LOCAL_BYTES = 3,
  CU_FN_NUM_REGS = 4,
  CU_FN_MAX_DYNAMIC_SHARED = 8,
  CU_FN_CARVEOUT = 9,
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DEFAULT = 0,
  CU_CAPTURE_RELAXED = 2,
  CU_ERROR_OUT_OF_MEMORY = 2,
  CU_ATTR_MAX_WINDOW = 109,
  CU_LAUNCH_WINDOW = 1, /* ..._ATTRIBUTE_ACCESS_POLICY_WINDOW */
  CU_LAUNCH_EARLY = 6, /* ..._ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION; its value: an int */
  CU_ACCESS_NORMAL = 0,
  CU_ACCESS_STREAMING = 1
};

typedef struct {
  int id, pad;
  union {
    char pad[64];
    int number;
    struct {
      void *base;
      size_t bytes;
      float ratio;
      int hit, miss; /* CU_ACCESS_... */
    } window;
  } value;
} CUlaunchAttribute;
typedef struct {
  unsigned grid[3], block[3], shared;
  CUstream stream;
  CUlaunchAttribute *attrs;
  unsigned n_attrs;
} CUlaunchConfig;

#define CUDA_FUNCS(F)                                                                                                  \
  F(init, "cuInit", (unsigned flags))                                                                                  \
  F(driver_version, "cuDriverGetVersion", (int *v))                                                                    \
  F(error_name, "cuGetErrorName", (CUresult r, const char **s))                                                        \
  F(error_text, "cuGetErrorString", (CUresult r, const char **s))                                                      \
  F(device_count, "cuDeviceGetCount", (int *n))                                                                        \
  F(device_get, "cuDeviceGet", (CUdevice * d, int i))                                                                  \
  F(device_name, "cuDeviceGetName", (char *s, int n, CUdevice d))                                                      \
  F(device_bytes, "cuDeviceTotalMem_v2", (size_t * n, CUdevice d))                                                     \
  F(device_attr, "cuDeviceGetAttribute", (int *v, int attr, CUdevice d))                                               \
  F(device_uuid, "cuDeviceGetUuid", (unsigned char *id, CUdevice d))                                                   \
  F(device_pci, "cuDeviceGetPCIBusId", (char *s, int n, CUdevice d))                                                   \
  F(mem_info, "cuMemGetInfo_v2", (size_t * free, size_t *total))                                                       \
  F(ctx_retain, "cuDevicePrimaryCtxRetain", (CUcontext * c, CUdevice d))                                               \
  F(ctx_release, "cuDevicePrimaryCtxRelease_v2", (CUdevice d))                                                         \
  F(ctx_set, "cuCtxSetCurrent", (CUcontext c))                                                                         \
  F(ctx_sync, "cuCtxSynchronize", (void))                                                                              \
  F(mem_alloc, "cuMemAlloc_v2", (CUdeviceptr * p, size_t n))                                                           \
  F(mem_free, "cuMemFree_v2", (CUdeviceptr p))                                                                         \
  F(mem_h2d, "cuMemcpyHtoDAsync_v2", (CUdeviceptr d, const void *s, size_t n, CUstream q))                             \
  F(mem_d2h, "cuMemcpyDtoHAsync_v2", (void *d, CUdeviceptr s, size_t n, CUstream q))                                   \
  F(mem_d2d, "cuMemcpyDtoDAsync_v2", (CUdeviceptr d, CUdeviceptr s, size_t n, CUstream q))                             \
  F(mem_set8, "cuMemsetD8Async", (CUdeviceptr d, unsigned char v, size_t n, CUstream q))                               \
  F(stream_new, "cuStreamCreate", (CUstream * q, unsigned flags))                                                      \
  F(stream_sync, "cuStreamSynchronize", (CUstream q))                                                                  \
  F(stream_free, "cuStreamDestroy_v2", (CUstream q))                                                                   \
  F(event_new, "cuEventCreate", (CUevent * e, unsigned flags))                                                         \
  F(event_record, "cuEventRecord", (CUevent e, CUstream q))                                                            \
  F(event_sync, "cuEventSynchronize", (CUevent e))                                                                     \
  F(event_ms, "cuEventElapsedTime", (float *ms, CUevent a, CUevent b))                                                 \
  F(event_free, "cuEventDestroy_v2", (CUevent e))                                                                      \
  F(module_load, "cuModuleLoadData", (CUmodule * m, const void *image))                                                \
  F(module_free, "cuModuleUnload", (CUmodule m))                                                                       \
  F(module_func, "cuModuleGetFunction", (CUfunction * f, CUmodule m, const char *name))                                \
  F(func_get, "cuFuncGetAttribute", (int *v, int attr, CUfunction f))                                                  \
  F(func_set, "cuFuncSetAttribute", (CUfunction f, int attr, int v))                                                   \
  F(launch, "cuLaunchKernel",                                                                                          \
    (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,      \
     CUstream q, void **params, void **extra))                                                                         \
  F(capture_begin, "cuStreamBeginCapture_v2", (CUstream q, int mode))                                                  \
  F(capture_end, "cuStreamEndCapture", (CUstream q, CUgraph * g))                                                      \
  F(graph_make, "cuGraphInstantiateWithFlags", (CUgraphExec * x, CUgraph g, unsigned long long flags))                 \
  F(graph_launch, "cuGraphLaunch", (CUgraphExec x, CUstream q))                                                        \
  F(graph_free, "cuGraphDestroy", (CUgraph g))                                                                         \
  F(graph_exec_free, "cuGraphExecDestroy", (CUgraphExec x))
/* What a driver may lack. */
#define CUDA_MORE_FUNCS(F)                                                                                             \
  F(host_alloc, "cuMemHostAlloc", (void **p, size_t n, unsigned flags))                                                 \
  F(host_device, "cuMemHostGetDevicePointer_v2", (CUdeviceptr * d, void *p, unsigned flags))                           \
  F(host_free, "cuMemFreeHost", (void *p))                                                                             \
  F(launch_ex, "cuLaunchKernelEx", (const CUlaunchConfig *how, CUfunction f, void **params, void **extra))              \
  F(capture_info, "cuStreamGetCaptureInfo_v2",                                                                         \
    (CUstream q, int *status, unsigned long long *id, CUgraph *g, const CUgraphNode **last, size_t *n))                \
  F(capture_behind, "cuStreamUpdateCaptureDependencies", (CUstream q, CUgraphNode *nodes, size_t n, unsigned flags))

typedef struct {
  void *lib;
#define DECL(field, symbol, params) CUresult(*field) params;
  CUDA_FUNCS(DECL)
  CUDA_MORE_FUNCS(DECL)
#undef DECL
} CudaApi;
#endif
