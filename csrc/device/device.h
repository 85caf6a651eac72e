/* device: one vtable over the CPU, CUDA (driver API opened at run time) and OpenCL (ICD loader opened at run time):
 * memory, modules, launches, timers, properties. It knows nothing of tuning. Spec 05 §1.3, §7.5; 07 §7.5.8.
 */
#ifndef NS_DEVICE_H
#define NS_DEVICE_H
#include "base/base.h"
#include "base/machine.h"
#include "program/program.h"

/* ---- devices ---- */
typedef enum { DEV_CPU = 1, DEV_CUDA = 2, DEV_OPENCL = 4 } DevType; /* DLPack codes */
typedef struct Device Device;
typedef struct DevModule DevModule; /* loaded code */
typedef struct {
  char name[128];
  int32_t sm, multiprocessors, warp_size, max_threads_per_block;
  int64_t max_shared_per_block, max_shared_optin, total_bytes, l2_bytes;
  int32_t clock_khz, driver_version, max_dims[3];
  int64_t free_bytes;     /* when the device was opened; 0: unknown */
  char uuid[40], pci[20]; /* of a GPU; "" elsewhere */
  GpuMachine gpu;         /* the table's row with what the driver says; zeros for a CPU */
} DevInfo;
bool dev_exists(DevType t, int id, char *why, size_t n); /* never raises; why: what was looked for and where */
bool dev_query(
    DevType t, int id,
    DevInfo *out); /* facts without opening the device (no GPU context); never raises; false: there is none */
Device *dev_open(Err *e, DevType t,
                 int id); /* shared per (type, id) inside a process is the caller's business; e must outlive it */
void dev_close(Device *d);
bool dev_lost(const Device *d); /* true after an error that this process cannot recover from (CUDA's sticky errors) */
DevType dev_type(const Device *d);
DevType dev_type_of(const char *target); /* of the device that runs programs of a manifest's target; 0: there is no such target */
int dev_id(const Device *d);
const DevInfo *dev_info(const Device *d);
void *dev_alloc(Device *d, size_t bytes); /* 256-byte aligned; raises NS_ERR_MEMORY with sizes */
void dev_free(Device *d, void *p);
void dev_upload(Device *d, void *dst, const void *src, size_t n);
/* Waits. As dev_sync and dev_sync_all it raises NS_ERR_RUNTIME if a program that this thread ran has met an index out of range. */
void dev_download(Device *d, void *dst, const void *src, size_t n);
void dev_copy(Device *d, void *dst, const void *src, size_t n);
void dev_fill(Device *d, void *dst, int byte, size_t n);
void dev_flush(Device *d); /* evicts what its caches hold; asynchronous on GPUs; raises NS_ERR_MEMORY */
void dev_sync(Device *d);     /* raises NS_ERR_RUNTIME with the device's own error name */
void dev_sync_all(Device *d); /* also waits for work that other libraries gave to the same context */
/* binary: cubin (CUDA), OpenCL binary or source (OpenCL), a shared object's bytes (CPU). manifest: gen_manifest's
 * JSON. Raises what object_check raises, too. */
DevModule *dev_load(Device *d, const void *binary, size_t n, const char *manifest);
const Manifest *dev_manifest(const DevModule *m);
void dev_unload(DevModule *m);
/* Its data are made up, and indices among them may be out of range: that is no error. */
void dev_made_up(DevModule *m);
Device *dev_module_device(const DevModule *m);
/* Asynchronous on GPUs; allocates workspaces at first use, which begin as zeros (IN_LAST_BLOCK). */
void dev_run(DevModule *m, void *const *args);
/* The threads of a CPU's run. */
typedef struct { NsParallel run; void *pool; } DevThreads;
/* As dev_run, with memory of the caller as workspaces, which must stay until the run has ended, and threads; NULL: those of the device.
 * On a CPU several threads may run one module at a time. */
void dev_run_in(DevModule *m, void *const *args, void *const *work, const DevThreads *threads);
void *const *dev_work(DevModule *m); /* the workspaces of dev_run */
/* A report of indices (program.h) for runs of a GPU's module with other workspaces than its own: one workspace of theirs is its memory.
 * dev_report_begin says, before a run, that it is this thread's. */
typedef struct DevReport DevReport;
DevReport *dev_report_new(DevModule *m);
void dev_report_free(DevReport *r); /* before the module is unloaded */
void *dev_report_memory(const DevReport *r);
void dev_report_begin(DevReport *r);
double dev_time(DevModule *m, void *const *args, int number,
                bool flush_l2); /* mean seconds of `number` runs, device timer; CPU: monotonic clock */
/* As dev_time, but the arguments with a bit in `cold` move through `bytes` bytes of memory from run to run, as the weights
 * of a network of that size do; they hold arbitrary numbers. instructions: a GPU's are as cold as other kernels leave them. *ran: how
 * many runs it took, at least number. bytes is 0, or on OpenCL, whose buffers cannot be offset: dev_time. */
double dev_time_cold(DevModule *m, void *const *args, int number, uint64_t cold, int64_t bytes, bool instructions,
                     int *ran);
void dev_forget_cold(Device *d); /* frees that memory */
void dev_forget_timing(DevModule *m); /* and what the program keeps for the next timing */
/* A fixed piece of arithmetic of about 0.2 ms, n times: seconds of each. Equal numbers mean equal clocks and nobody else on
 * the device. Returns how many were stored: 0 if the device cannot. *pace: the least time of it, on a CPU of one core's part,
 * which neighbours hardly change. */
int dev_canary(Device *d, int n, double *out, double *pace);
void dev_regs(const DevModule *m, int kernel, int *regs, int *local_bytes, int *shared_bytes);
/* ---- who else is there (nvml.c): what NVIDIA's management library says, if it is installed ---- */
typedef struct {
  int32_t mhz, processes; /* clock of the multiprocessors; processes with a context */
  uint64_t throttle;      /* reasons why the clock is low; 0: none */
} DevWatch;
bool dev_watch(const DevInfo *gpu, DevWatch *out); /* false: no NVML or not a GPU of NVIDIA; never raises */
const char *dev_throttle_name(uint64_t reasons);   /* "" for idle and for what the application asked */

/* ---- thread pools of CPU kernels (cpu_pool.c) ---- Threads that come late to a job are not waited for. */
typedef struct CpuPool CpuPool;
CpuPool *cpool_new(int n_threads); /* NULL when out of memory */
void cpool_free(CpuPool *p);
/* NsParallel. Callers beside the one that has the pool, and forked children, work alone. */
int32_t cpool_run(void *pool, void (*body)(void *, int64_t, int64_t), void *env, int64_t n);

/* CUDA graphs: everything dev_run between begin and end is captured; -1 when the device cannot (CPU, OpenCL). overlap: kernels
 * that wait by themselves begin while the launch before them ends, where GPU and driver can and NESTSMITH_CUDA_OVERLAP is not 0;
 * *early: how many do. */
typedef struct DevGraph DevGraph; /* the back end's */
int dev_graph_begin(Device *d, bool overlap);
/* The next launch of the capture comes behind these nodes, and not behind the last one; false: the device cannot say so. */
bool dev_graph_behind(Device *d, int n, void *const *nodes);
void *dev_graph_last(Device *d); /* the node that was captured last */
DevGraph *dev_graph_end(Device *d, int *early);
void dev_graph_launch(Device *d, DevGraph *g);
void dev_graph_free(Device *d, DevGraph *g); /* NULL is allowed */
#endif
