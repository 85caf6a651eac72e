/* NVIDIA GPUs through the driver API, opened at run time: nestsmith imports and compiles kernels without a driver.
 *
 * Each Device retains the GPU's primary context (shared with PyTorch and others in the process) and owns one
 * non-blocking stream on which everything happens in order. Every entry makes the context current first, because
 * callers may come from any thread. Errors fall in two classes (spec 05 §7.6): those of one call, and the sticky ones
 * after which the context answers nothing but the same error; these set Device.lost, and only a new process helps.
 *
 * Timing: two events around the block. Kernels shorter than 20 us (on average, if a program has several) are timed as a
 * graph of `number` nodes launched once, so that the host's launch rate (2-5 us per launch) is not what is measured.
 *
 * Overlap: in the graph of a network a kernel that waits by itself (program.h) begins while the one before ends. What is timed
 * here alone does not: each run of a program begins when the one before has ended. */
#include "device/cuda_api.h"
#include "base/object.h"
#include "device/internal.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANARY_EVENTS = 33 };
typedef struct {
  CudaApi api;
  CUdevice dev;
  CUcontext ctx;
  CUstream stream;
  CUevent begin, end;
  bool retained, no_canary;
  CUmodule canary_mod;
  CUfunction canary;
  CUevent event[CANARY_EVENTS];
  int n_events;
  /* of the capture under way: launches may begin early; what was captured last is a launch; how many begin early */
  bool overlap, after_launch, windows; /* windows: what is read once in a run is marked */
  int early;
  size_t max_window;
} Cuda;
/* 16 layers of 24 KB of instructions, each a copy of one: 163 us as one, 182 as 4, 186 as 8 or 16 (an H100). */
enum { COPIES = 4 };
typedef struct {
  CUmodule mod;
  CUfunction *func;
} Loaded;
typedef struct {
  const void *image;
  Loaded at[COPIES]; /* the program, and copies of it once they are needed: NULL before */
  void ***slots;
  void ***params;
  CUgraphExec timed;
  int timed_number, timed_sets;
  void **timed_args; /* the graph of the last timing, for the next block of the same length */
  const void *timed_set;
  bool timed_copies;
  int turn, copy; /* which of several lists of arguments is next, and which copy */
} CudaCode;

enum { FEW = 8, MAX_NODES = 20000, PAD = 4096 };
static const double SHORT = 20e-6;
static const CUresult STICKY[] = {214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719};
static const char *const LIBS[] = {"libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"};

static bool load_api(CudaApi *api, char *why, size_t n) {
#define ROW(field, symbol, params) {offsetof(CudaApi, field), symbol},
  static const LibSymbol TABLE[] = {CUDA_FUNCS(ROW)}, MORE[] = {CUDA_MORE_FUNCS(ROW)};
#undef ROW
  const char *named = getenv("NESTSMITH_LIBCUDA");
  if (named && *named) api->lib = dlopen(named, RTLD_NOW | RTLD_LOCAL);
  for (int i = 0; i < NS_COUNT(LIBS) && !api->lib && !(named && *named); i++)
    api->lib = dlopen(LIBS[i], RTLD_NOW | RTLD_LOCAL);
  if (!api->lib && named && *named) {
    snprintf(why, n, "NESTSMITH_LIBCUDA=%s cannot be loaded; unset it or name a libcuda.so.1", named);
    return false;
  }
  if (!api->lib) {
    snprintf(
        why, n,
        "the NVIDIA driver is not installed (looked for libcuda.so.1 with dlopen); install it, or use target \"llvm\"");
    return false;
  }
  const char *missing = lib_symbols(api->lib, NS_COUNT(TABLE), TABLE, api);
  if (!missing) {
    lib_symbols(api->lib, NS_COUNT(MORE), MORE, api);
    return true;
  }
  snprintf(why, n, "the NVIDIA driver is too old: it lacks %s; install driver 535 or newer", missing);
  dlclose(api->lib);
  api->lib = NULL;
  return false;
}

/* What a user can do about an error that is not the program's fault. */
static const char *remedy(CUresult r) {
  static const struct {
    int code;
    const char *text;
  } ROWS[] = {
      {2, "; other processes may hold the memory: `nvidia-smi` lists them"},
      {3, "; it was in use before this process was forked: " FORK_REMEDY},
      {35, "; the driver is too old for this GPU program: update it"},
      {46, "; another process uses the GPU exclusively: `nvidia-smi` lists it; stop it or choose another GPU with "
           "CUDA_VISIBLE_DEVICES"},
      {100, "; no GPU is visible: check `nvidia-smi` and CUDA_VISIBLE_DEVICES"},
      {222, "; the driver is older than the compiler: update it or install the NVRTC that fits it"},
      {803, "; driver and kernel module differ in version: restart the machine"},
  };
  for (int i = 0; i < NS_COUNT(ROWS); i++)
    if (ROWS[i].code == (int)r) return ROWS[i].text;
  return "";
}

static void describe(const CudaApi *api, CUresult r, char *out, size_t n) {
  const char *name = NULL, *text = NULL;
  api->error_name(r, &name);
  api->error_text(r, &text);
  snprintf(out, n, "%s (%d): %s", name ? name : "unknown error", r, text ? text : "no description");
}

static void failed(Device *d, CUresult r, const char *what) {
  Cuda *c = d->impl;
  char text[256];
  for (int i = 0; i < NS_COUNT(STICKY); i++)
    if (STICKY[i] == r) d->lost = true;
  describe(&c->api, r, text, sizeof text);
  err_raise(d->err, r == CU_ERROR_OUT_OF_MEMORY ? NS_ERR_MEMORY : NS_ERR_RUNTIME, "cuda(%d): %s failed: %s%s%s", d->id,
            what, text, remedy(r), d->lost ? "; the GPU context of this process is lost" : "");
}

#define TRY(d, call, what)                                                                                             \
  do {                                                                                                                 \
    CUresult try_r = (call);                                                                                           \
    if (try_r) failed((d), try_r, (what));                                                                             \
  } while (0)

static Cuda *enter(Device *d) {
  Cuda *c = d->impl;
  TRY(d, c->api.ctx_set(c->ctx), "making the context current");
  return c;
}

static bool count_devices(CudaApi *api, int *count, char *why, size_t n) {
  if (!load_api(api, why, n)) return false;
  CUresult r = api->init(0);
  if (!r) r = api->device_count(count);
  if (r) {
    char text[256];
    describe(api, r, text, sizeof text);
    snprintf(why, n, "the NVIDIA driver does not start: %s%s; check `nvidia-smi`", text, remedy(r));
    return false;
  }
  return true;
}

/* The table's row with the limits that the driver knows. Rates stay the table's, by which the estimate was fitted, in
 * proportion to the multiprocessors. */
static void cuda_machine(const CudaApi *api, CUdevice dev, DevInfo *f) {
  const GpuMachine *row = gpu_machine(f->sm);
  int threads = 0, sms = f->multiprocessors;
  GpuMachine *m = &f->gpu;
  *m = *row;
  m->sm = f->sm;
  const struct {
    int attr;
    int32_t *out;
  } LIMITS[] = {{CU_ATTR_MAX_BLOCKS_PER_SM, &m->max_blocks},
                {CU_ATTR_REGISTERS_PER_SM, &m->regs},
                {CU_ATTR_SHARED_PER_SM, &m->shared_bytes},
                {CU_ATTR_RESERVED_SHARED, &m->shared_reserve}};
  for (int i = 0; i < NS_COUNT(LIMITS); i++) {
    int v = 0;
    if (api->device_attr(&v, LIMITS[i].attr, dev) == 0 && v > 0) *LIMITS[i].out = v;
  }
  if (api->device_attr(&threads, CU_ATTR_MAX_THREADS_PER_SM, dev) == 0 && threads > 0)
    m->max_warps = threads / GPU_WARP;
  if (sms > 0) m->peak *= (double)sms / m->sms, m->sms = sms;
}

static void cuda_facts(const CudaApi *api, CUdevice dev, DevInfo *f) {
  int major = 0, minor = 0, v = 0;
  size_t bytes = 0;
  const struct {
    int attr;
    int32_t *out;
  } FACTS[] = {{CU_ATTR_MULTIPROCESSORS, &f->multiprocessors},
               {CU_ATTR_WARP_SIZE, &f->warp_size},
               {CU_ATTR_MAX_THREADS_PER_BLOCK, &f->max_threads_per_block},
               {CU_ATTR_CLOCK_RATE, &f->clock_khz},
               {CU_ATTR_MAX_BLOCK_DIM_X, &f->max_dims[0]},
               {CU_ATTR_MAX_BLOCK_DIM_X + 1, &f->max_dims[1]},
               {CU_ATTR_MAX_BLOCK_DIM_X + 2, &f->max_dims[2]},
               {CU_ATTR_MAJOR, &major},
               {CU_ATTR_MINOR, &minor}};
  for (int i = 0; i < NS_COUNT(FACTS); i++) api->device_attr(FACTS[i].out, FACTS[i].attr, dev);
  f->sm = major * 10 + minor;
  cuda_machine(api, dev, f);
  if (api->device_attr(&v, CU_ATTR_MAX_SHARED_PER_BLOCK, dev) == 0) f->max_shared_per_block = v;
  if (api->device_attr(&v, CU_ATTR_MAX_SHARED_OPTIN, dev) == 0) f->max_shared_optin = v;
  if (api->device_attr(&v, CU_ATTR_L2_CACHE_SIZE, dev) == 0) f->l2_bytes = v;
  if (api->device_bytes(&bytes, dev) == 0) f->total_bytes = (int64_t)bytes;
  unsigned char id[16] = {0};
  if (api->device_uuid(id, dev) == 0)
    for (int i = 0; i < 16; i++) snprintf(f->uuid + 2 * i, 3, "%02x", id[i]);
  if (api->device_pci(f->pci, (int)sizeof f->pci, dev) != 0) f->pci[0] = 0;
  api->device_name(f->name, (int)sizeof f->name, dev);
  api->driver_version(&f->driver_version);
}

bool cuda_probe(int id, char *why, size_t n, DevInfo *info) {
  CudaApi api = {0};
  int count = 0;
  if (!count_devices(&api, &count, why, n)) return false;
  bool ok = id >= 0 && id < count;
  if (!ok)
    snprintf(why, n, "cuda(%d) does not exist: the driver sees %d GPU(s); check CUDA_VISIBLE_DEVICES", id, count);
  CUdevice dev;
  if (ok && info && api.device_get(&dev, id) == 0) cuda_facts(&api, dev, info);
  return ok; /* the library stays loaded: unloading a started driver is not supported */
}

/* ---- memory ---- */
static void *cuda_alloc(Device *d, size_t n) {
  Cuda *c = enter(d);
  CUdeviceptr p = 0;
  CUresult r = c->api.mem_alloc(&p, n);
  if (r && r != CU_ERROR_OUT_OF_MEMORY) failed(d, r, "allocating memory");
  return r ? NULL : (void *)(uintptr_t)p;
}

static void cuda_free(Device *d, void *p) {
  Cuda *c = d->impl;
  if (!d->lost && c->api.ctx_set(c->ctx) == 0) c->api.mem_free((CUdeviceptr)(uintptr_t)p);
}

/* Memory of the host that kernels write, through the bus. */
static void *cuda_shared_new(Device *d, size_t n, void **device) {
  enum { FOR_ALL_CONTEXTS = 1, MAPPED = 2 };
  Cuda *c = enter(d);
  CUdeviceptr at = 0;
  void *p = NULL;
  if (!c->api.host_alloc || !c->api.host_device || !c->api.host_free) return NULL;
  if (c->api.host_alloc(&p, n, FOR_ALL_CONTEXTS | MAPPED)) return NULL;
  if (c->api.host_device(&at, p, 0)) {
    c->api.host_free(p);
    return NULL;
  }
  memset(p, 0, n);
  *device = (void *)(uintptr_t)at;
  return p;
}

static void cuda_shared_free(Device *d, void *p) {
  Cuda *c = d->impl;
  if (d->lost || c->api.ctx_set(c->ctx) != 0) return;
  c->api.stream_sync(c->stream); /* a kernel may still write there */
  c->api.host_free(p);
}

static void cuda_sync(Device *d) {
  Cuda *c = enter(d);
  TRY(d, c->api.stream_sync(c->stream), "waiting for the GPU");
}

static void cuda_sync_all(Device *d) {
  Cuda *c = enter(d);
  TRY(d, c->api.ctx_sync(), "waiting for the GPU");
}

static void cuda_upload(Device *d, void *dst, const void *src, size_t n) {
  Cuda *c = enter(d);
  TRY(d, c->api.mem_h2d((CUdeviceptr)(uintptr_t)dst, src, n, c->stream), "copying to the GPU");
  TRY(d, c->api.stream_sync(c->stream), "copying to the GPU"); /* src may be reused by the caller */
}

static void cuda_download(Device *d, void *dst, const void *src, size_t n) {
  Cuda *c = enter(d);
  TRY(d, c->api.mem_d2h(dst, (CUdeviceptr)(uintptr_t)src, n, c->stream), "copying from the GPU");
  TRY(d, c->api.stream_sync(c->stream), "copying from the GPU");
}

static void cuda_copy(Device *d, void *dst, const void *src, size_t n) {
  Cuda *c = enter(d);
  c->after_launch = false;
  TRY(d, c->api.mem_d2d((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, n, c->stream), "copying on the GPU");
}

static void cuda_fill(Device *d, void *dst, int byte, size_t n) {
  Cuda *c = enter(d);
  c->after_launch = false;
  TRY(d, c->api.mem_set8((CUdeviceptr)(uintptr_t)dst, (unsigned char)byte, n, c->stream), "filling memory");
}

/* ---- modules ---- */
/* Blocks of a kernel begin on a multiprocessor where others still run only if both want its memory divided alike. Half of it shared is
 * enough for most, and what is asked for here; on an H100 as fast as the driver's choice without early launches. A wish: a driver that
 * does not grant it launches later. */
static void divide_alike(const Device *d, Cuda *c, CUfunction f, const ManKernel *k) {
  enum { PERCENT = 50 };
  const GpuMachine *g = &d->info.gpu;
  int shared = 0;
  if (!k->waits || !gpu_has(g, GPU_OVERLAP) || g->sms < 1 || c->api.func_get(&shared, CU_FN_SHARED_BYTES, f)) return;
  int64_t threads = k->block[0] * k->block[1] * k->block[2],
          blocks = i64_ceildiv(k->grid[0] * k->grid[1] * k->grid[2], g->sms),
          room = threads > 0 ? (int64_t)g->max_warps * GPU_WARP / threads : 0,
          each = shared + k->dyn_shared_bytes + g->shared_reserve;
  if ((blocks < room ? blocks : room) * each * 100 <= (int64_t)g->shared_bytes * PERCENT)
    c->api.func_set(f, CU_FN_CARVEOUT, PERCENT);
}

static void load_kernels(DevModule *m, Cuda *c, Loaded *to) {
  Device *d = m->dev;
  for (int i = 0; i < m->man->n_kernels; i++) {
    const ManKernel *k = &m->man->kernel[i];
    TRY(d, c->api.module_func(&to->func[i], to->mod, k->name), k->name);
    int threads = 0;
    TRY(d, c->api.func_get(&threads, CU_FN_MAX_THREADS, to->func[i]), "asking for the thread limit");
    int64_t block = k->block[0] * k->block[1] * k->block[2];
    if (block > threads)
      err_raise(d->err, NS_ERR_RUNTIME, "cuda(%d): kernel %s has %lld threads per block, its registers allow %d", d->id,
                k->name, (long long)block, threads);
    if (k->dyn_shared_bytes > 0)
      TRY(d, c->api.func_set(to->func[i], CU_FN_MAX_DYNAMIC_SHARED, (int)k->dyn_shared_bytes),
          "raising the shared memory limit");
    divide_alike(d, c, to->func[i], k);
  }
}

/* One copy more of the program, somewhere else in the GPU's memory. */
typedef struct {
  DevModule *m;
  Cuda *c;
  Loaded to;
} Load;
static void load_body(void *arg) {
  Load *x = arg;
  load_kernels(x->m, x->c, &x->to);
}
static void load_copy(DevModule *m, Cuda *c, int which) {
  Device *d = m->dev;
  CudaCode *code = m->code;
  Load x = {m, c, {NULL, arena_array(m->arena, CUfunction, m->man->n_kernels + 1)}};
  TRY(d, c->api.module_load(&x.to.mod, code->image), "loading a program");
  ErrCode r = err_try(d->err, load_body, &x);
  if (r != NS_OK) { /* do not leave the module loaded */
    if (!d->lost) c->api.module_free(x.to.mod);
    err_rethrow(d->err, r);
  }
  code->at[which] = x.to;
}

static void cuda_load(DevModule *m, const void *binary, size_t n) {
  Cuda *c = enter(m->dev);
  CudaCode *code = arena_new_of(m->arena, CudaCode);
  void *image = arena_alloc(m->arena, n + PAD); /* PTX text must end in NUL; a cut-off cubin must not be read past */
  memcpy(image, binary, n);
  code->image = image;
  code->slots = arena_array(m->arena, void **, m->man->n_kernels + 1);
  code->params = arena_array(m->arena, void **, m->man->n_kernels + 1);
  code->timed_args = arena_array(m->arena, void *, m->man->n_args + 1);
  for (int i = 0; i < m->man->n_kernels; i++) {
    int n_param = m->man->kernel[i].n_param;
    code->slots[i] = arena_array(m->arena, void *, n_param + 1);
    code->params[i] = arena_array(m->arena, void *, n_param + 1);
    for (int j = 0; j < n_param; j++) code->params[i][j] = &code->slots[i][j];
  }
  m->code = code;
  load_copy(m, c, 0);
}

/* The graph of the last timing, and copies from `first` on. */
static void forget(DevModule *m, int first) {
  Cuda *c = m->dev->impl;
  CudaCode *code = m->code;
  if (m->dev->lost || c->api.ctx_set(c->ctx) != 0) return;
  c->api.stream_sync(c->stream);
  if (code->timed) c->api.graph_exec_free(code->timed);
  code->timed = NULL;
  for (int i = first; i < COPIES; i++) {
    if (code->at[i].mod) c->api.module_free(code->at[i].mod);
    code->at[i] = (Loaded){0};
  }
}

static void cuda_unload(DevModule *m) { forget(m, 0); }
static void cuda_forget(DevModule *m) { forget(m, 1); }

/* Memory that a launch reads and mostly no other one of the run does. */
typedef struct {
  void *at;
  size_t bytes;
} Window;

/* The largest of a kernel's constants, as far as the GPU can mark it; of a network, where other weights come before it is read again. */
static Window window_of(const DevModule *m, const Cuda *c, int kernel) {
  const ManKernel *k = &m->man->kernel[kernel];
  Window w = {NULL, 0};
  for (int j = 0; j < k->n_param && c->windows; j++) {
    const ManBuffer *a = k->param[j].work ? NULL : &m->man->arg[k->param[j].index];
    if (!a || !a->constant || (size_t)a->bytes <= w.bytes) continue;
    w = (Window){((CudaCode *)m->code)->slots[kernel][j], (size_t)a->bytes};
  }
  if (w.bytes > c->max_window) w.bytes = c->max_window;
  return w;
}

/* Early: it may begin while the launch before it ends. Only a launch can be overtaken so, no copy. The window is the first to leave the
 * second-level cache: of weights that do not fit there, some are there in the next run then, and activations stay (one H100: ResNet-18,
 * whose weights take 46 MB, 167.3 to 164.1 us, ResNet-50 407.0 to 402.9). By the launch, for of copies with such a hint ptxas (13.2) makes
 * an instruction that is none (LDGSTS with desc[UR1]). */
static CUresult launch(Cuda *c, CUfunction f, const ManKernel *k, void **params, Window w) {
  unsigned g[3], b[3], shared = (unsigned)k->dyn_shared_bytes, n = 0;
  CUlaunchAttribute attr[2];
  for (int i = 0; i < 3; i++) g[i] = (unsigned)k->grid[i], b[i] = (unsigned)k->block[i];
  bool early = c->overlap && c->after_launch && k->waits;
  if (early) attr[n++] = (CUlaunchAttribute){.id = CU_LAUNCH_EARLY, .value.number = 1};
  if (w.bytes)
    attr[n++] = (CUlaunchAttribute){.id = CU_LAUNCH_WINDOW,
                                    .value.window = {w.at, w.bytes, 1.0f, CU_ACCESS_STREAMING, CU_ACCESS_NORMAL}};
  c->after_launch = true;
  c->early += early;
  if (n == 0) return c->api.launch(f, g[0], g[1], g[2], b[0], b[1], b[2], shared, c->stream, params, NULL);
  CUlaunchConfig how = {{g[0], g[1], g[2]}, {b[0], b[1], b[2]}, shared, c->stream, attr, n};
  return c->api.launch_ex(&how, f, params, NULL);
}

static void launch_all(DevModule *m, Cuda *c, int copy, void *const *args) {
  CudaCode *code = m->code;
  for (int i = 0; i < m->man->n_kernels; i++) {
    const ManKernel *k = &m->man->kernel[i];
    for (int j = 0; j < k->n_param; j++)
      code->slots[i][j] = k->param[j].work ? m->work[k->param[j].index] : args[k->param[j].index];
    CUresult r = launch(c, code->at[copy].func[i], k, (void **)code->params[i], window_of(m, c, i));
    if (r) failed(m->dev, r, k->name);
  }
}

static void cuda_run(DevModule *m, void *const *args, void *const *work, const DevThreads *threads NS_UNUSED) {
  m->work = work;
  launch_all(m, enter(m->dev), 0, args);
}

static void cuda_regs(const DevModule *m, int kernel, int *regs, int *local_bytes, int *shared_bytes) {
  Cuda *c = enter(m->dev);
  CUfunction f = ((CudaCode *)m->code)->at[0].func[kernel];
  c->api.func_get(regs, CU_FN_NUM_REGS, f);
  c->api.func_get(local_bytes, CU_FN_LOCAL_BYTES, f);
  c->api.func_get(shared_bytes, CU_FN_SHARED_BYTES, f);
}

/* ---- graphs ---- */
static int cuda_graph_begin(Device *d, bool overlap) {
  Cuda *c = enter(d);
  const char *s = getenv("NESTSMITH_CUDA_OVERLAP");
  TRY(d, c->api.capture_begin(c->stream, CU_CAPTURE_RELAXED), "starting a graph capture");
  c->overlap = overlap && c->api.launch_ex && gpu_has(&d->info.gpu, GPU_OVERLAP) && !(s && strcmp(s, "0") == 0);
  c->after_launch = false;
  c->windows = overlap && c->api.launch_ex;
  c->early = 0;
  return 0;
}

static CUgraphExec end_capture(Device *d, Cuda *c) {
  CUgraph g = NULL;
  CUgraphExec x = NULL;
  TRY(d, c->api.capture_end(c->stream, &g), "ending a graph capture");
  CUresult r = c->api.graph_make(&x, g, 0);
  c->api.graph_free(g);
  if (r) failed(d, r, "instantiating a graph");
  return x;
}

/* A launch behind a single one may begin early, for that has waited for all before it. */
static bool cuda_graph_behind(Device *d, int n, void *const *nodes) {
  Cuda *c = enter(d);
  const char *s = getenv("NESTSMITH_CUDA_BRANCHES");
  if (!c->api.capture_behind || !c->api.capture_info || (s && strcmp(s, "0") == 0)) return false;
  enum { IN_PLACE_OF_THE_LAST = 1 };
  TRY(d, c->api.capture_behind(c->stream, (CUgraphNode *)(uintptr_t)nodes, (size_t)n, IN_PLACE_OF_THE_LAST),
      "capturing kernels side by side");
  c->after_launch = n == 1;
  return true;
}

static void *cuda_graph_last(Device *d) {
  Cuda *c = enter(d);
  int status;
  unsigned long long id;
  CUgraph g;
  const CUgraphNode *last;
  size_t n;
  TRY(d, c->api.capture_info(c->stream, &status, &id, &g, &last, &n), "asking for what was captured last");
  return n == 1 ? last[0] : NULL;
}

static DevGraph *cuda_graph_end(Device *d, int *early) {
  Cuda *c = enter(d);
  c->overlap = c->windows = false;
  *early = c->early;
  return (DevGraph *)end_capture(d, c);
}

static void cuda_graph_launch(Device *d, DevGraph *g) {
  Cuda *c = enter(d);
  TRY(d, c->api.graph_launch((CUgraphExec)g, c->stream), "launching a graph");
}

static void cuda_graph_free(Device *d, DevGraph *g) {
  Cuda *c = d->impl;
  if (d->lost || c->api.ctx_set(c->ctx) != 0) return;
  c->api.stream_sync(c->stream);
  c->api.graph_exec_free((CUgraphExec)g);
}

/* ---- timing ---- */
static double between_events(Device *d, Cuda *c) {
  float ms = 0;
  TRY(d, c->api.event_sync(c->end), "waiting for a timed block");
  TRY(d, c->api.event_ms(&ms, c->begin, c->end), "reading a timer");
  return (double)ms * 1e-3;
}

/* Lists of arguments that the runs take in turn; mostly one. copies: so they do with copies of the program, whose instructions are in
 * no cache then but the second, as in a network, where other kernels run in between: fetching them is 0.7 us of a kernel of 14 KB with
 * few warps on an H100, nothing where warps are many. */
typedef struct {
  void *const *const *at;
  int n;
  bool copies;
} Sets;

static void launch_next(DevModule *m, Cuda *c, const Sets *s) {
  CudaCode *code = m->code;
  if (code->turn >= s->n) code->turn = 0;
  if (!s->copies || code->copy >= COPIES || !code->at[code->copy].mod) code->copy = 0;
  launch_all(m, c, code->copy++, s->at[code->turn++]);
}

static double time_launches(DevModule *m, Cuda *c, const Sets *s, int number) {
  TRY(m->dev, c->api.event_record(c->begin, c->stream), "starting a timer");
  for (int i = 0; i < number; i++) launch_next(m, c, s);
  TRY(m->dev, c->api.event_record(c->end, c->stream), "stopping a timer");
  return between_events(m->dev, c) / number;
}

static double time_flushed(DevModule *m, Cuda *c, void *const *args, int number) {
  double sum = 0;
  for (int i = 0; i < number; i++) {
    dev_flush(m->dev);
    sum += time_launches(m, c, &(Sets){&args, 1, false}, 1);
  }
  return sum / number;
}

typedef struct {
  DevModule *m;
  Cuda *c;
  const Sets *s;
  int number;
} Capture;

static void capture_body(void *arg) {
  Capture *x = arg;
  for (int i = 0; i < x->number; i++) launch_next(x->m, x->c, x->s);
}

static bool has_graph(const DevModule *m, const Sets *s, int number) {
  const CudaCode *code = m->code;
  return code->timed && code->timed_number == number && code->timed_sets == s->n &&
         code->timed_set == (s->n > 1 ? s->at : NULL) && code->timed_copies == s->copies &&
         memcmp(code->timed_args, s->at[0], sizeof(void *) * (size_t)m->man->n_args) == 0;
}

/* The graph of `number` runs; launched once, because the first launch uploads it. */
static void prepare_graph(DevModule *m, Cuda *c, const Sets *s, int number) {
  Device *d = m->dev;
  CudaCode *code = m->code;
  if (has_graph(m, s, number)) return;
  if (code->timed) c->api.graph_exec_free(code->timed);
  code->timed = NULL;
  code->turn = code->copy = 0;
  for (int i = 1; s->copies && i < COPIES; i++)
    if (!code->at[i].mod) load_copy(m, c, i);
  Capture x = {m, c, s, number};
  TRY(d, c->api.capture_begin(c->stream, CU_CAPTURE_RELAXED), "starting a graph capture");
  ErrCode e = err_try(d->err, capture_body, &x);
  if (e != NS_OK) { /* the stream must not stay in capture */
    CUgraph g = NULL;
    c->api.capture_end(c->stream, &g);
    if (g) c->api.graph_free(g);
    err_rethrow(d->err, e);
  }
  code->timed = end_capture(d, c);
  code->timed_number = number;
  code->timed_sets = s->n;
  code->timed_set = s->n > 1 ? s->at : NULL;
  code->timed_copies = s->copies;
  memcpy(code->timed_args, s->at[0], sizeof(void *) * (size_t)m->man->n_args);
  TRY(d, c->api.graph_launch(code->timed, c->stream), "launching a graph");
}

static double time_graph(DevModule *m, Cuda *c, const Sets *s, int number) {
  Device *d = m->dev;
  prepare_graph(m, c, s, number);
  TRY(d, c->api.event_record(c->begin, c->stream), "starting a timer");
  TRY(d, c->api.graph_launch(((CudaCode *)m->code)->timed, c->stream), "launching a graph");
  TRY(d, c->api.event_record(c->end, c->stream), "stopping a timer");
  return between_events(d, c) / number;
}

/* A graph goes through all lists of arguments: those of a part of them would stay in the cache. */
static double time_in_turn(DevModule *m, Cuda *c, const Sets *s, int number, int *ran) {
  int nodes = number > s->n ? number : s->n;
  *ran = number;
  bool again = has_graph(m, s, nodes), fits = (int64_t)nodes * m->man->n_kernels <= MAX_NODES;
  double t = again ? 0 : time_launches(m, c, s, number < FEW ? number : FEW);
  if (number <= FEW && !again) return t;
  if (t >= SHORT * m->man->n_kernels || !fits) return time_launches(m, c, s, number);
  *ran = nodes;
  return time_graph(m, c, s, nodes);
}

static double cuda_time(DevModule *m, void *const *args, int number, bool flush) {
  Cuda *c = enter(m->dev);
  int ran;
  return flush ? time_flushed(m, c, args, number) : time_in_turn(m, c, &(Sets){&args, 1, false}, number, &ran);
}

static double cuda_time_sets(DevModule *m, void *const *const *set, int n_set, int number, bool cold, int *ran) {
  return time_in_turn(m, enter(m->dev), &(Sets){set, n_set, cold}, number, ran);
}

/* ---- canary ---- */
/* A chain of dependent multiply-adds in one warp per multiprocessor: 100,000 times 4 cycles. As assembly that the driver
 * translates, because a worker has no compiler. */
static const char CANARY[] = ".version 6.3\n.target sm_%d\n.address_size 64\n"
                             ".visible .entry canary(.param .f32 a, .param .f32 b, .param .u64 out) {\n"
                             ".reg .f32 %%x, %%a, %%b;\n.reg .u32 %%i;\n.reg .pred %%p, %%q;\n.reg .u64 %%o;\n"
                             "ld.param.f32 %%a, [a];\nld.param.f32 %%b, [b];\nld.param.u64 %%o, [out];\n"
                             "mov.f32 %%x, %%a;\nmov.u32 %%i, 6250;\nLOOP:\n%s"
                             "sub.u32 %%i, %%i, 1;\nsetp.ne.u32 %%p, %%i, 0;\n@%%p bra LOOP;\n"
                             "setp.lt.f32 %%q, %%x, 0f00000000;\n@%%q st.global.f32 [%%o], %%x;\nret;\n}\n";

static bool load_canary(Device *d, Cuda *c) {
  char body[16 * 32] = "", text[2048];
  if (c->canary || c->no_canary) return c->canary != NULL;
  for (int i = 0; i < 16; i++) strcat(body, "fma.rn.f32 %x, %x, %a, %b;\n");
  snprintf(text, sizeof text, CANARY, d->info.sm < 75 ? 50 : 75, body);
  c->no_canary =
      c->api.module_load(&c->canary_mod, text) != 0 || c->api.module_func(&c->canary, c->canary_mod, "canary") != 0;
  return !c->no_canary;
}

static int cuda_canary(Device *d, int n, double *out, double *pace) {
  (void)pace;
  Cuda *c = enter(d);
  if (!load_canary(d, c)) return 0;
  float a = 0.5f, b = 1;
  CUdeviceptr nowhere = 0;
  void *params[] = {&a, &b, &nowhere};
  if (n > CANARY_EVENTS - 1) n = CANARY_EVENTS - 1;
  for (; c->n_events <= n; c->n_events++)
    TRY(d, c->api.event_new(&c->event[c->n_events], CU_EVENT_DEFAULT), "creating a timer");
  /* All in one go: a GPU that is shared changes between processes every 2 ms or so, but never within a short launch that
   * was waited for. */
  TRY(d, c->api.event_record(c->event[0], c->stream), "starting a timer");
  for (int i = 0; i < n; i++) {
    TRY(d, c->api.launch(c->canary, (unsigned)d->info.multiprocessors, 1, 1, 32, 1, 1, 0, c->stream, params, NULL),
        "running the canary");
    TRY(d, c->api.event_record(c->event[i + 1], c->stream), "stopping a timer");
  }
  TRY(d, c->api.event_sync(c->event[n]), "waiting for the canary");
  for (int i = 0; i < n; i++) {
    float ms = 0;
    TRY(d, c->api.event_ms(&ms, c->event[i], c->event[i + 1]), "reading a timer");
    out[i] = (double)ms * 1e-3;
  }
  return n;
}

/* ---- life ---- */
static void cuda_close(Device *d) {
  Cuda *c = d->impl;
  if (!d->lost && c->ctx && c->api.ctx_set(c->ctx) == 0) {
    if (c->stream) c->api.stream_sync(c->stream);
    if (c->canary_mod) c->api.module_free(c->canary_mod);
    while (c->n_events > 0) c->api.event_free(c->event[--c->n_events]);
    if (c->begin) c->api.event_free(c->begin);
    if (c->end) c->api.event_free(c->end);
    if (c->stream) c->api.stream_free(c->stream);
  }
  if (c->retained) c->api.ctx_release(c->dev);
  free(c);
}

static const DevOps CUDA_OPS = {.close = cuda_close,
                                .alloc = cuda_alloc,
                                .free = cuda_free,
                                .upload = cuda_upload,
                                .download = cuda_download,
                                .copy = cuda_copy,
                                .fill = cuda_fill,
                                .sync = cuda_sync,
                                .sync_all = cuda_sync_all,
                                .load = cuda_load,
                                .unload = cuda_unload,
                                .shared_new = cuda_shared_new,
                                .shared_free = cuda_shared_free,
                                .run = cuda_run,
                                .time = cuda_time,
                                .time_sets = cuda_time_sets,
                                .forget = cuda_forget,
                                .canary = cuda_canary,
                                .regs = cuda_regs,
                                .graph_begin = cuda_graph_begin,
                                .graph_behind = cuda_graph_behind,
                                .graph_last = cuda_graph_last,
                                .graph_end = cuda_graph_end,
                                .graph_launch = cuda_graph_launch,
                                .graph_free = cuda_graph_free};

static void open_context(void *arg) {
  Device *d = arg;
  Cuda *c = d->impl;
  TRY(d, c->api.device_get(&c->dev, d->id), "finding the GPU");
  TRY(d, c->api.ctx_retain(&c->ctx, c->dev), "creating a context");
  c->retained = true;
  enter(d);
  TRY(d, c->api.stream_new(&c->stream, CU_STREAM_NON_BLOCKING), "creating a stream");
  TRY(d, c->api.event_new(&c->begin, CU_EVENT_DEFAULT), "creating a timer");
  TRY(d, c->api.event_new(&c->end, CU_EVENT_DEFAULT), "creating a timer");
  cuda_facts(&c->api, c->dev, &d->info);
  int window = 0;
  if (c->api.device_attr(&window, CU_ATTR_MAX_WINDOW, c->dev) == 0 && window > 0) c->max_window = (size_t)window;
  size_t all = 0, free_now = 0;
  if (c->api.mem_info(&free_now, &all) == 0) d->info.free_bytes = (int64_t)free_now;
}

void cuda_open(Device *d) {
  char why[512];
  int count = 0;
  Cuda *c = calloc(1, sizeof *c);
  if (!c) err_raise(d->err, NS_ERR_MEMORY, "out of memory opening a GPU");
  if (!count_devices(&c->api, &count, why, sizeof why)) {
    free(c);
    err_raise(d->err, NS_ERR_RUNTIME, "cuda(%d): %s", d->id, why);
  }
  if (d->id >= count) {
    free(c);
    err_raise(d->err, NS_ERR_RUNTIME, "cuda(%d) does not exist: the driver sees %d GPU(s); check CUDA_VISIBLE_DEVICES",
              d->id, count);
  }
  d->ops = &CUDA_OPS;
  d->impl = c;
  ErrCode r = err_try(d->err, open_context, d);
  if (r != NS_OK) {
    cuda_close(d);
    err_rethrow(d->err, r);
  }
}
