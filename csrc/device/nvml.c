/* Who else uses the GPU, and how fast it runs: NVIDIA's management library, opened at run time. It needs no GPU context
 * and changes nothing. Machines without it (and other vendors' GPUs) simply give no answer; what is measured does not
 * depend on it, only what can be told about it (spec 05 §7.6, §7.9). */
#include "device/device.h"
#include "base/object.h"
#include <dlfcn.h>
#include <string.h>

typedef struct {
  unsigned pid;
  unsigned long long bytes;
  unsigned instance, compute_instance;
} NvmlProcess;
enum { CLOCK_SM = 1, MANY = 64 };

#define NVML_FUNCS(F)                                                                                                  \
  F(init, "nvmlInit_v2", (void))                                                                                       \
  F(end, "nvmlShutdown", (void))                                                                                       \
  F(by_pci, "nvmlDeviceGetHandleByPciBusId_v2", (const char *id, void **gpu))                                          \
  F(clock, "nvmlDeviceGetClockInfo", (void *gpu, int kind, unsigned *mhz))                                             \
  F(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", (void *gpu, unsigned long long *reasons))                   \
  F(processes, "nvmlDeviceGetComputeRunningProcesses_v3", (void *gpu, unsigned *n, NvmlProcess *list))

typedef struct {
#define DECL(field, symbol, params) int(*field) params;
  NVML_FUNCS(DECL)
#undef DECL
} Nvml;

static void *open_library(Nvml *api) {
  static const LibSymbol TABLE[] = {
#define ROW(field, symbol, params) {offsetof(Nvml, field), symbol},
      NVML_FUNCS(ROW)
#undef ROW
  };
  void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (lib) lib_symbols(lib, NS_COUNT(TABLE), TABLE, api);
  return lib;
}

bool dev_watch(const DevInfo *gpu, DevWatch *out) {
  Nvml api = {0};
  void *dev = NULL;
  memset(out, 0, sizeof *out);
  void *lib = gpu->pci[0] ? open_library(&api) : NULL;
  if (!lib) return false;
  bool ok = api.init && api.by_pci && api.end && api.init() == 0;
  if (ok) {
    ok = api.by_pci(gpu->pci, &dev) == 0;
    unsigned mhz = 0, n = MANY;
    unsigned long long why = 0;
    NvmlProcess list[MANY];
    memset(list, 0, sizeof list);
    if (ok && api.clock && api.clock(dev, CLOCK_SM, &mhz) == 0) out->mhz = (int32_t)mhz;
    if (ok && api.throttle && api.throttle(dev, &why) == 0) out->throttle = why;
    if (ok && api.processes && api.processes(dev, &n, list) == 0) out->processes = (int32_t)n;
    api.end();
  }
  dlclose(lib);
  return ok;
}

const char *dev_throttle_name(uint64_t reasons) {
  static const struct {
    uint64_t bit;
    const char *name;
  } ROWS[] = {{0x08, "hardware slowdown"},
              {0x20, "software thermal limit"},
              {0x40, "hardware thermal limit"},
              {0x80, "power brake"},
              {0x04, "power limit"}};
  for (int i = 0; i < NS_COUNT(ROWS); i++)
    if (reasons & ROWS[i].bit) return ROWS[i].name;
  return "";
}
