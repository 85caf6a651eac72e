/* OpenCL devices through the ICD loader, opened at run time. Devices are numbered over all platforms, GPUs first, then
 * accelerators, then CPUs (PoCL). Device memory is a cl_mem handed around as a pointer: it cannot be offset.
 *
 * A driver for CPUs has threads from the first question on, and none of them is in a forked child, where it would wait for
 * them for ever. Drivers keep their state per process, so does first_use.
 *
 * The queue always records profiling times. A timed block is the span from the start of its first kernel to the end of
 * its last one, so that gaps between launches count as they do on CUDA. */
#include "device/internal.h"
#include "base/object.h"
#include "device/opencl_api.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 64 };
typedef struct {
  OpenclApi api;
  cl_device_id dev;
  cl_context ctx;
  cl_command_queue queue;
  cl_program canary_prog;
  cl_kernel canary;
  cl_mem canary_out;
  bool no_canary;
} Opencl;
typedef struct {
  cl_program prog;
  cl_kernel *kernel;
} OpenclCode;

static atomic_int first_use; /* fork_count + 1 at the first use of OpenCL; 0: there was none */

static const struct {
  cl_int code;
  const char *name;
} ERRORS[] = {{-1, "CL_DEVICE_NOT_FOUND"},
              {-2, "CL_DEVICE_NOT_AVAILABLE"},
              {-3, "CL_COMPILER_NOT_AVAILABLE"},
              {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
              {-5, "CL_OUT_OF_RESOURCES"},
              {-6, "CL_OUT_OF_HOST_MEMORY"},
              {-7, "CL_PROFILING_INFO_NOT_AVAILABLE"},
              {-11, "CL_BUILD_PROGRAM_FAILURE"},
              {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
              {-30, "CL_INVALID_VALUE"},
              {-33, "CL_INVALID_DEVICE"},
              {-34, "CL_INVALID_CONTEXT"},
              {-38, "CL_INVALID_MEM_OBJECT"},
              {-42, "CL_INVALID_BINARY"},
              {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
              {-46, "CL_INVALID_KERNEL_NAME"},
              {-48, "CL_INVALID_KERNEL"},
              {-49, "CL_INVALID_ARG_INDEX"},
              {-51, "CL_INVALID_ARG_SIZE"},
              {-52, "CL_INVALID_KERNEL_ARGS"},
              {-54, "CL_INVALID_WORK_GROUP_SIZE"},
              {-55, "CL_INVALID_WORK_ITEM_SIZE"},
              {-61, "CL_INVALID_BUFFER_SIZE"},
              {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
              {-1001, "no OpenCL platform installed"}};

static const char *error_name(cl_int r) {
  for (int i = 0; i < NS_COUNT(ERRORS); i++)
    if (ERRORS[i].code == r) return ERRORS[i].name;
  return "unknown error";
}

static bool load_api(OpenclApi *api, char *why, size_t n) {
  static const LibSymbol TABLE[] = {
#define ROW(ret, field, symbol, params) {offsetof(OpenclApi, field), symbol},
      OPENCL_FUNCS(ROW)
#undef ROW
  };
  static const char *const LIBS[] = {"libOpenCL.so.1", "libOpenCL.so"};
  for (int i = 0; i < NS_COUNT(LIBS) && !api->lib; i++) api->lib = dlopen(LIBS[i], RTLD_NOW | RTLD_LOCAL);
  if (!api->lib) {
    snprintf(why, n, "no OpenCL loader (looked for libOpenCL.so.1 with dlopen); install ocl-icd-libopencl1");
    return false;
  }
  const char *missing = lib_symbols(api->lib, NS_COUNT(TABLE), TABLE, api);
  if (missing) {
    snprintf(why, n, "the OpenCL loader lacks %s: version 1.2 or newer is needed", missing);
    return false;
  }
  int none = 0;
  atomic_compare_exchange_strong(&first_use, &none, fork_count() + 1);
  return true;
}

static int list_in_turn(OpenclApi *api, cl_device_id out[MAX_DEVICES]) {
  static const cl_ulong ORDER[] = {CL_DEVICE_TYPE_GPU_BIT, CL_DEVICE_TYPE_ACCELERATOR_BIT, CL_DEVICE_TYPE_CPU_BIT};
  cl_platform_id plat[16];
  cl_uint n_plat = 0, n = 0;
  if (api->platforms(16, plat, &n_plat) != 0) return 0;
  if (n_plat > 16) n_plat = 16;
  cl_uint total = 0;
  for (int k = 0; k < NS_COUNT(ORDER); k++)
    for (cl_uint p = 0; p < n_plat && total < MAX_DEVICES; p++) {
      n = 0;
      if (api->devices(plat[p], ORDER[k], MAX_DEVICES - total, out + total, &n) != 0) continue;
      total += n < MAX_DEVICES - total ? n : MAX_DEVICES - total;
    }
  return (int)total;
}

/* Loaders and drivers begin to live when they are first asked for their devices, and not all of them survive two threads that do
 * so at once. */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
static int list_devices(OpenclApi *api, cl_device_id out[MAX_DEVICES]) {
  fork_hold();
  pthread_mutex_lock(&asking);
  int n = list_in_turn(api, out);
  pthread_mutex_unlock(&asking);
  fork_release();
  return n;
}

static void facts(const OpenclApi *api, cl_device_id dev, DevInfo *f) {
  cl_uint units = 0, mhz = 0;
  size_t group = 0, items[8] = {0};
  cl_ulong global = 0, local = 0, cache = 0;
  api->device_info(dev, CLD_NAME, sizeof f->name, f->name, NULL);
  api->device_info(dev, CLD_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
  api->device_info(dev, CLD_MAX_CLOCK_FREQUENCY, sizeof mhz, &mhz, NULL);
  api->device_info(dev, CLD_MAX_WORK_GROUP_SIZE, sizeof group, &group, NULL);
  api->device_info(dev, CLD_MAX_WORK_ITEM_SIZES, sizeof items, items, NULL);
  api->device_info(dev, CLD_GLOBAL_MEM_SIZE, sizeof global, &global, NULL);
  api->device_info(dev, CLD_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
  api->device_info(dev, CLD_GLOBAL_MEM_CACHE_SIZE, sizeof cache, &cache, NULL);
  f->multiprocessors = (int32_t)units;
  f->clock_khz = (int32_t)mhz * 1000;
  f->max_threads_per_block = (int32_t)group;
  for (int i = 0; i < 3; i++) f->max_dims[i] = (int32_t)items[i];
  f->total_bytes = (int64_t)global;
  f->max_shared_per_block = f->max_shared_optin = (int64_t)local;
  f->l2_bytes = (int64_t)cache;
  const char *s = getenv("NESTSMITH_OPENCL_WARP_SIZE");
  if (!s) s = getenv("TVM_OPENCL_WARP_SIZE");
  long w = s ? strtol(s, NULL, 10) : 1; /* the standard has no query that works without a kernel */
  f->warp_size = w >= 1 && w <= 1024 ? (int32_t)w : 1;
}

bool opencl_probe(int id, char *why, size_t n, DevInfo *info) {
  OpenclApi api = {0};
  cl_device_id all[MAX_DEVICES];
  if (!load_api(&api, why, n)) return false;
  int count = list_devices(&api, all);
  if (id < 0 || id >= count)
    snprintf(why, n,
             "opencl(%d) does not exist: the loader sees %d device(s); `clinfo -l` lists them, the package "
             "pocl-opencl-icd adds one that runs on the CPU",
             id, count);
  bool ok = id >= 0 && id < count;
  if (ok && info) facts(&api, all[id], info);
  return ok;
}

static void failed(Device *d, cl_int r, const char *what) {
  if (r == -2 || r == -34) d->lost = true;
  err_raise(d->err, r == -4 || r == -6 ? NS_ERR_MEMORY : NS_ERR_RUNTIME, "opencl(%d): %s failed: %s (%d)", d->id, what,
            error_name(r), r);
}

#define TRY(d, call, what)                                                                                             \
  do {                                                                                                                 \
    cl_int try_r = (call);                                                                                             \
    if (try_r) failed((d), try_r, (what));                                                                             \
  } while (0)

/* ---- memory ---- */
static void *cl_alloc(Device *d, size_t n) {
  Opencl *c = d->impl;
  cl_int r = 0;
  cl_mem m = c->api.mem_new(c->ctx, CL_READ_WRITE, n, NULL, &r);
  if (r && r != -4 && r != -5 && r != -6 && r != -61) failed(d, r, "allocating memory");
  return r ? NULL : (void *)m;
}

static void cl_free(Device *d, void *p) {
  Opencl *c = d->impl;
  c->api.mem_free(p);
}

static void cl_sync(Device *d) {
  Opencl *c = d->impl;
  TRY(d, c->api.finish(c->queue), "waiting for the device");
}

static void cl_upload(Device *d, void *dst, const void *src, size_t n) {
  Opencl *c = d->impl;
  TRY(d, c->api.write(c->queue, dst, CL_YES, 0, n, src, 0, NULL, NULL), "copying to the device");
}

static void cl_download(Device *d, void *dst, const void *src, size_t n) {
  Opencl *c = d->impl;
  union {
    const void *in;
    cl_mem out;
  } u = {src};
  TRY(d, c->api.read(c->queue, u.out, CL_YES, 0, n, dst, 0, NULL, NULL), "copying from the device");
}

static void cl_copy(Device *d, void *dst, const void *src, size_t n) {
  Opencl *c = d->impl;
  union {
    const void *in;
    cl_mem out;
  } u = {src};
  TRY(d, c->api.copy(c->queue, u.out, dst, 0, 0, n, 0, NULL, NULL), "copying on the device");
}

static void cl_fill(Device *d, void *dst, int byte, size_t n) {
  Opencl *c = d->impl;
  unsigned char v = (unsigned char)byte;
  TRY(d, c->api.fill(c->queue, dst, &v, 1, 0, n, 0, NULL, NULL), "filling memory");
}

/* ---- modules ---- */
static void build_program(Device *d, Opencl *c, cl_program prog) {
  cl_int r = c->api.build(prog, 1, &c->dev, "-cl-std=CL1.2", NULL, NULL);
  if (r == 0) return;
  char log[1500] = "";
  size_t len = 0;
  char *full = NULL;
  if (c->api.build_info(prog, c->dev, CLP_BUILD_LOG, 0, NULL, &len) == 0 && len && (full = calloc(1, len + 1))) {
    c->api.build_info(prog, c->dev, CLP_BUILD_LOG, len, full, NULL);
    snprintf(log, sizeof log, "%s", full);
    free(full);
  }
  err_raise(d->err, NS_ERR_RUNTIME, "opencl(%d): the driver's compiler failed: %s (%d)\n%s", d->id, error_name(r), r,
            log);
}

static void release(Opencl *c, DevModule *m) {
  OpenclCode *code = m->code;
  for (int i = 0; i < m->man->n_kernels; i++)
    if (code->kernel[i]) c->api.kernel_free(code->kernel[i]);
  c->api.program_free(code->prog);
}

/* A kernel that takes many registers may run with smaller groups than the device can: better said now than by a launch, which
 * ends the process with some drivers where a group has more memory than there is. */
static void check_group(Device *d, const ManKernel *k, cl_kernel kernel) {
  Opencl *c = d->impl;
  size_t most = 0;
  cl_ulong local = 0;
  int64_t threads = k->block[0] * k->block[1] * k->block[2], shared = k->shared_bytes + k->dyn_shared_bytes;
  if (!c->api.device_info(c->dev, CLD_LOCAL_MEM_SIZE, sizeof local, &local, NULL) && local && shared > (int64_t)local)
    err_raise(d->err, NS_ERR_RUNTIME,
              "opencl(%d): kernel %s has %lld bytes of local memory in a group; the device has %llu", d->id, k->name,
              (long long)shared, (unsigned long long)local);
  if (c->api.kernel_info(kernel, c->dev, CLK_WORK_GROUP_SIZE, sizeof most, &most, NULL) || !most) return;
  if (threads > (int64_t)most)
    err_raise(d->err, NS_ERR_RUNTIME,
              "opencl(%d): kernel %s has %lld work-items in a group; the device can run it with %zu", d->id, k->name,
              (long long)threads, most);
}

static void load_kernels(void *arg) {
  DevModule *m = arg;
  Device *d = m->dev;
  Opencl *c = d->impl;
  OpenclCode *code = m->code;
  build_program(d, c, code->prog);
  for (int i = 0; i < m->man->n_kernels; i++) {
    cl_int r = 0;
    code->kernel[i] = c->api.kernel_new(code->prog, m->man->kernel[i].name, &r);
    if (r) {
      code->kernel[i] = NULL;
      failed(d, r, m->man->kernel[i].name);
    }
    check_group(d, &m->man->kernel[i], code->kernel[i]);
  }
}

static void cl_load(DevModule *m, const void *binary, size_t n) {
  Device *d = m->dev;
  Opencl *c = d->impl;
  OpenclCode *code = arena_new_of(m->arena, OpenclCode);
  code->kernel = arena_array(m->arena, cl_kernel, m->man->n_kernels + 1);
  cl_int r = 0, status = 0;
  while (n && ((const char *)binary)[n - 1] == 0) n--; /* text that came with its terminator */
  if (memchr(binary, 0, n)) {
    const unsigned char *b = binary;
    code->prog = c->api.program_binary(c->ctx, 1, &c->dev, &n, &b, &status, &r);
  } else {
    const char *s = binary;
    code->prog = c->api.program_source(c->ctx, 1, &s, &n, &r);
  }
  if (r) failed(d, r, "creating a program");
  m->code = code;
  ErrCode e = err_try(d->err, load_kernels, m);
  if (e != NS_OK) {
    release(c, m);
    err_rethrow(d->err, e);
  }
}

static void cl_unload(DevModule *m) {
  Opencl *c = m->dev->impl;
  if (!m->dev->lost) c->api.finish(c->queue);
  release(c, m);
}

/* Launches all kernels; first and last: where to put the events of the first and the last kernel, or NULL. */
static void launch_all(DevModule *m, void *const *args, cl_event *first, cl_event *last) {
  Opencl *c = m->dev->impl;
  OpenclCode *code = m->code;
  for (int i = 0; i < m->man->n_kernels; i++) {
    const ManKernel *k = &m->man->kernel[i];
    size_t global[3], local[3];
    cl_uint n = 0;
    for (int j = 0; j < 3; j++) {
      local[j] = (size_t)k->block[j];
      global[j] = (size_t)(k->grid[j] * k->block[j]);
    }
    for (int j = 0; j < k->n_param; j++) {
      void *const p = k->param[j].work ? m->work[k->param[j].index] : args[k->param[j].index];
      TRY(m->dev, c->api.kernel_arg(code->kernel[i], n++, sizeof p, &p), k->name);
    }
    if (k->dyn_shared_bytes > 0)
      TRY(m->dev, c->api.kernel_arg(code->kernel[i], n++, (size_t)k->dyn_shared_bytes, NULL), k->name);
    cl_event *e = i == 0 && first ? first : i == m->man->n_kernels - 1 && last ? last : NULL;
    TRY(m->dev, c->api.launch(c->queue, code->kernel[i], 3, NULL, global, local, 0, NULL, e), k->name);
  }
}

static void cl_run(DevModule *m, void *const *args, void *const *work, const DevThreads *threads NS_UNUSED) {
  m->work = work;
  launch_all(m, args, NULL, NULL);
  TRY(m->dev, ((Opencl *)m->dev->impl)->api.flush(((Opencl *)m->dev->impl)->queue), "submitting work");
}

static void cl_regs(const DevModule *m, int kernel, int *regs, int *local_bytes, int *shared_bytes) {
  Opencl *c = m->dev->impl;
  cl_kernel k = ((OpenclCode *)m->code)->kernel[kernel];
  cl_ulong local = 0, shared = 0;
  c->api.kernel_info(k, c->dev, CLK_PRIVATE_MEM_SIZE, sizeof local, &local, NULL);
  c->api.kernel_info(k, c->dev, CLK_LOCAL_MEM_SIZE, sizeof shared, &shared, NULL);
  *regs = 0;
  *local_bytes = (int)local;
  *shared_bytes = (int)shared;
}

/* ---- timing ---- */
static double span(Opencl *c, cl_event first, cl_event last, double wall) {
  cl_ulong b = 0, e = 0;
  bool ok = c->api.event_info(first, CLE_START, sizeof b, &b, NULL) == 0 &&
            c->api.event_info(last, CLE_END, sizeof e, &e, NULL) == 0 && e > b;
  return ok ? (double)(e - b) * 1e-9 : wall;
}

/* Drivers keep what waits in a queue in the host's memory, and some die of too much: a run is launched when the one IN_FLIGHT
 * before it has ended. The device has always work, so that times are those of a queue without a bound. */
enum { IN_FLIGHT = 64 };
typedef struct {
  DevModule *m;
  void *const *args;
  int number;
  cl_event first, run[IN_FLIGHT]; /* the start of the first run; the ends of the latest ones, as far as somebody asks */
} Block;

static void launch_block(void *arg) {
  Block *b = arg;
  Opencl *c = b->m->dev->impl;
  bool single = b->m->man->n_kernels == 1; /* its start and its end are told by one event */
  for (int i = 0; i < b->number; i++) {
    cl_event *e = &b->run[i % IN_FLIGHT];
    if (*e) {
      TRY(b->m->dev, c->api.event_wait(1, e), "waiting for a run");
      if (single && i == IN_FLIGHT)
        b->first = *e;
      else
        c->api.event_free(*e);
      *e = NULL;
    }
    bool asked = i == 0 || i == b->number - 1 || i + IN_FLIGHT < b->number;
    launch_all(b->m, b->args, i == 0 && !single ? &b->first : NULL, asked ? e : NULL);
  }
}

static double time_block(DevModule *m, void *const *args, int number) {
  Opencl *c = m->dev->impl;
  Block b = {.m = m, .args = args, .number = number};
  double t = clock_now();
  ErrCode e = err_try(m->dev->err, launch_block, &b);
  cl_int r = c->api.finish(c->queue);
  t = clock_now() - t;
  cl_event first = b.first ? b.first : b.run[0], last = b.run[(number - 1) % IN_FLIGHT];
  double s = e || r || !first || !last ? t : span(c, first, last, t);
  if (b.first) c->api.event_free(b.first); /* also when a launch failed */
  for (int i = 0; i < IN_FLIGHT; i++)
    if (b.run[i]) c->api.event_free(b.run[i]);
  if (e != NS_OK) err_rethrow(m->dev->err, e);
  if (r) failed(m->dev, r, "waiting for a timed block");
  return s / number;
}

static double cl_time(DevModule *m, void *const *args, int number, bool flush) {
  if (!flush) return time_block(m, args, number);
  double sum = 0;
  for (int i = 0; i < number; i++) {
    dev_flush(m->dev);
    sum += time_block(m, args, 1);
  }
  return sum / number;
}

/* ---- canary: a chain of dependent operations on every compute unit ---- */
static bool load_canary(Opencl *c) {
  static const char *const TEXT = "__kernel void canary(float a, float b, __global float *out) {"
                                  " float x = a; for (int i = 0; i < 25000; i++) x = x * a + b;"
                                  " out[get_global_id(0)] = x; }";
  cl_int r = 0;
  size_t n = strlen(TEXT), units = 4096;
  if (c->canary || c->no_canary) return c->canary != NULL;
  const char *text = TEXT;
  c->canary_prog = c->api.program_source(c->ctx, 1, &text, &n, &r);
  if (!r) r = c->api.build(c->canary_prog, 1, &c->dev, "", NULL, NULL);
  if (!r) c->canary = c->api.kernel_new(c->canary_prog, "canary", &r);
  if (!r) c->canary_out = c->api.mem_new(c->ctx, CL_READ_WRITE, units * sizeof(float), NULL, &r);
  if (r) c->canary = NULL;
  c->no_canary = r != 0;
  return r == 0;
}

static int cl_canary(Device *d, int n, double *out, double *pace) {
  (void)pace;
  Opencl *c = d->impl;
  if (!load_canary(c)) return 0;
  const float a = 0.5f, b = 1;
  size_t global = (size_t)(d->info.multiprocessors > 0 && d->info.multiprocessors < 4096 ? d->info.multiprocessors : 1),
         local = 1;
  TRY(d, c->api.kernel_arg(c->canary, 0, sizeof a, &a), "preparing the canary");
  TRY(d, c->api.kernel_arg(c->canary, 1, sizeof b, &b), "preparing the canary");
  TRY(d, c->api.kernel_arg(c->canary, 2, sizeof c->canary_out, &c->canary_out), "preparing the canary");
  for (int i = 0; i < n; i++) {
    cl_event e = NULL;
    double t = clock_now();
    TRY(d, c->api.launch(c->queue, c->canary, 1, NULL, &global, &local, 0, NULL, &e), "running the canary");
    cl_int r = c->api.finish(c->queue);
    t = clock_now() - t;
    out[i] = span(c, e, e, t);
    c->api.event_free(e);
    if (r) failed(d, r, "waiting for the canary");
  }
  return n;
}

/* ---- life ---- */
static void cl_close(Device *d) {
  Opencl *c = d->impl;
  if (c->canary) c->api.kernel_free(c->canary);
  if (c->canary_prog) c->api.program_free(c->canary_prog);
  if (c->canary_out) c->api.mem_free(c->canary_out);
  if (c->queue) c->api.queue_free(c->queue);
  if (c->ctx) c->api.context_free(c->ctx);
  free(c);
}

static const DevOps OPENCL_OPS = {.close = cl_close,
                                  .alloc = cl_alloc,
                                  .free = cl_free,
                                  .upload = cl_upload,
                                  .download = cl_download,
                                  .copy = cl_copy,
                                  .fill = cl_fill,
                                  .sync = cl_sync,
                                  .load = cl_load,
                                  .unload = cl_unload,
                                  .run = cl_run,
                                  .time = cl_time,
                                  .canary = cl_canary,
                                  .regs = cl_regs};

static void open_context(void *arg) {
  Device *d = arg;
  Opencl *c = d->impl;
  cl_device_id all[MAX_DEVICES];
  cl_int r = 0;
  int n = list_devices(&c->api, all);
  if (d->id >= n)
    err_raise(d->err, NS_ERR_RUNTIME, "opencl(%d) does not exist: the loader sees %d device(s); `clinfo -l` lists them",
              d->id, n);
  c->dev = all[d->id];
  c->ctx = c->api.context_new(NULL, 1, &c->dev, NULL, NULL, &r);
  if (r) failed(d, r, "creating a context");
  c->queue = c->api.queue_new(c->ctx, c->dev, CL_PROFILING_ENABLE, &r);
  if (r) failed(d, r, "creating a queue");
  facts(&c->api, c->dev, &d->info);
}

void opencl_open(Device *d) {
  char why[512];
  Opencl *c = calloc(1, sizeof *c);
  if (!c) err_raise(d->err, NS_ERR_MEMORY, "out of memory opening an OpenCL device");
  if (!load_api(&c->api, why, sizeof why)) {
    free(c);
    err_raise(d->err, NS_ERR_RUNTIME, "opencl(%d): %s", d->id, why);
  }
  if (first_use != fork_count() + 1) {
    free(c);
    dev_raise_forked(d);
  }
  d->ops = &OPENCL_OPS;
  d->impl = c;
  ErrCode e = err_try(d->err, open_context, d);
  if (e != NS_OK) {
    cl_close(d);
    err_rethrow(d->err, e);
  }
}
