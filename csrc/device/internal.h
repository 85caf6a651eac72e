/* Private to device: what a back end must provide. device.c checks arguments and dispatches; cpu.c, cuda.c and opencl.c
 * fill in the table. */
#ifndef NS_DEVICE_INTERNAL_H
#define NS_DEVICE_INTERNAL_H
#include "device/device.h"

typedef struct {
  void (*close)(Device *d);
  void *(*alloc)(Device *d, size_t n); /* NULL when out of memory */
  void (*free)(Device *d, void *p);
  void (*upload)(Device *d, void *dst, const void *src, size_t n);
  void (*download)(Device *d, void *dst, const void *src, size_t n);
  void (*copy)(Device *d, void *dst, const void *src, size_t n);
  void (*fill)(Device *d, void *dst, int byte, size_t n);
  void (*sync)(Device *d);
  void (*sync_all)(Device *d);                              /* may be NULL: as sync */
  void (*load)(DevModule *m, const void *binary, size_t n); /* sets m->code */
  void (*unload)(DevModule *m);
  /* n bytes of zeros that the device writes and the host sees once it has waited, at *device to the device; NULL: there is no such
   * memory. May be NULL. */
  void *(*shared_new)(Device *d, size_t n, void **device);
  void (*shared_free)(Device *d, void *p);
  void (*run)(DevModule *m, void *const *args, void *const *work, const DevThreads *threads); /* threads: as of dev_run_in */
  double (*time)(DevModule *m, void *const *args, int number, bool flush_l2);
  /* number runs that take turns with the n_set lists of arguments; cold: their instructions are in no near cache. May be NULL: the device
   * cannot offset buffers */
  double (*time_sets)(DevModule *m, void *const *const *set, int n_set, int number, bool cold, int *ran);
  void (*forget)(DevModule *m); /* what timing has made and kept; may be NULL */
  int (*canary)(Device *d, int n, double *out, double *pace); /* how many were stored; may be NULL; *pace: as it came, or less */
  void (*regs)(const DevModule *m, int kernel, int *regs, int *local_bytes, int *shared_bytes); /* may be NULL */
  int (*graph_begin)(Device *d, bool overlap); /* the graph entries may be NULL */
  bool (*graph_behind)(Device *d, int n, void *const *nodes);
  void *(*graph_last)(Device *d);
  DevGraph *(*graph_end)(Device *d, int *early);
  void (*graph_launch)(Device *d, DevGraph *g);
  void (*graph_free)(Device *d, DevGraph *g);
} DevOps;

struct Device {
  const DevOps *ops;
  Err *err;
  DevType type;
  int id, made; /* made: fork_count */
  bool lost;
  DevInfo info;
  void *impl;  /* the back end's own data */
  void *flush; /* buffer written to evict caches, allocated at first use */
  size_t flush_bytes;
  uint8_t flushes; /* what it is filled with */
  char *cold; /* memory through which cold arguments move, allocated at first use */
  size_t cold_bytes, cold_at;
  DevReport *reports; /* of a GPU */
};

struct DevModule {
  Device *dev;
  Arena *arena; /* owns the manifest and everything the back end keeps per module */
  const Manifest *man;
  void **own;        /* workspaces, allocated when they are first needed, zeros then */
  void *const *work; /* GPU: those of the run that is being started */
  void *code;
  void ***set; /* lists of arguments whose cold ones lie apart, for time_sets; made for these: */
  int n_set;
  int max_set;
  void **set_args;
  const void *set_pool;
  uint64_t set_cold;
  DevReport *report; /* GPU: of the own workspaces */
  bool made_up; /* inputs are made up: reports are ignored */
};

/* What to do in a forked child, where the driver of the parent is of no use. */
#define FORK_REMEDY                                                                                                    \
  "start children with multiprocessing.get_context(\"spawn\") or \"forkserver\", or use the device in the child alone"
NS_NORETURN void dev_raise_forked(const Device *d);
bool dev_inherited(const Device *d); /* opened by a parent of this process, and of no use here */
/* report.c */
NS_NORETURN void dev_raise_index(const DevModule *m, const int32_t *report); /* a program's report that says so */
void report_run(void);       /* this thread begins a run */
void report_look(Device *d); /* after a wait; raises NS_ERR_RUNTIME with the index of a run that this thread has to hear of */

/* Each raises if the library or the device is missing. */
void cpu_open(Device *d);
void cuda_open(Device *d);
void opencl_open(Device *d);
/* Is there such a device? why: the reason if not; info: its facts if so, unless NULL. Nothing is opened or raised. */
bool cpu_probe(int id, char *why, size_t n, DevInfo *info);
bool cuda_probe(int id, char *why, size_t n, DevInfo *info);
bool opencl_probe(int id, char *why, size_t n, DevInfo *info);

bool cpool_works(const CpuPool *p); /* cpu_pool.c; false: it was inherited by a fork, and can only be freed */
#endif
