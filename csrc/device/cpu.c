/* The CPU as a device: host memory, shared objects opened with dlopen, a thread pool, the monotonic clock.
 *
 * A program comes as the bytes of a shared object, is checked, and is opened through an anonymous memory file: what was
 * checked is what runs, whatever becomes of the file that it was read from, and loading leaves no file and no descriptor behind. */
#include "base/object.h"
#include "program/program.h"
#include "device/internal.h"
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
  pthread_mutex_t lock; /* of making the pool */
  CpuPool *pool;
  atomic_int made; /* fork_count() of the process whose pool it is; -1: there is none yet */
} Cpu;
typedef struct {
  void *handle;
  NsEntry entry;
} CpuCode;

static void cpu_close(Device *d) {
  Cpu *cpu = d->impl;
  cpool_free(cpu->pool);
  pthread_mutex_destroy(&cpu->lock);
  free(cpu);
}

/* Arrays of megabytes are asked for in large pages: a kernel that streams through them looks up few addresses, and pages
 * that the system happened to find do not fight for the same lines of a cache. */
enum { ARRAY_ALIGN = 256, LARGE_PAGE = 1 << 21 };
static void *cpu_alloc(Device *d NS_UNUSED, size_t n) {
  void *p = NULL;
  if (posix_memalign(&p, n < LARGE_PAGE ? ARRAY_ALIGN : LARGE_PAGE, n) != 0) return NULL;
  if (n >= LARGE_PAGE) (void)madvise(p, n, MADV_HUGEPAGE); /* a wish: without it the pages are small */
  return p;
}

static void cpu_free(Device *d NS_UNUSED, void *p) { free(p); }

static void cpu_copy(Device *d NS_UNUSED, void *dst, const void *src, size_t n) { memmove(dst, src, n); }

static void cpu_fill(Device *d NS_UNUSED, void *dst, int byte, size_t n) { memset(dst, byte, n); }

static void cpu_sync(Device *d) { (void)d; }

/* ---- modules ---- */
static int memory_file(Device *d, const void *data, size_t n) {
  int fd = memfd_create("nestsmith-program", MFD_CLOEXEC);
  if (fd < 0)
    err_raise(d->err, NS_ERR_IO,
              "cannot create a memory file for a program: %s (close other programs' files or raise `ulimit -n`)",
              strerror(errno));
  for (size_t done = 0; done < n;) {
    ssize_t k = write(fd, (const char *)data + done, n - done);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) {
      int why = errno;
      close(fd);
      err_raise(d->err, NS_ERR_IO, "cannot write a program of %zu bytes to a memory file: %s", n, strerror(why));
    }
    done += (size_t)k;
  }
  return fd;
}

/* A name of the file behind a descriptor that no other loaded object has. The system's loader takes objects of equal names for the same
 * one, and descriptors are used again: so steps that lead nowhere, "//" or "/./", spell the bits of an address. */
static void name_of(const void *unique, int fd, char *out, size_t n) {
  size_t at = (size_t)snprintf(out, n, "/proc/self/fd");
  for (uintptr_t bits = (uintptr_t)unique; bits; bits >>= 1)
    at += (size_t)snprintf(out + at, n - at, bits & 1 ? "/." : "/");
  snprintf(out + at, n - at, "/%d", fd);
}

static void cpu_load(DevModule *m, const void *binary, size_t n) {
  Err *e = m->dev->err;
  CpuCode *c = arena_new_of(m->arena, CpuCode);
  char path[200], what[300];
  snprintf(what, sizeof what, "program \"%s\"", m->man->entry);
  object_check(e, binary, n, what);
  int fd = memory_file(m->dev, binary, n);
  name_of(c, fd, path, sizeof path);
  c->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  close(fd);
  if (c->handle) *(void **)&c->entry = dlsym(c->handle, m->man->entry);
  if (c->handle && !c->entry) *(void **)&c->entry = dlsym(c->handle, PROGRAM_NAME);
  if (!c->entry) {
    const char *why = dlerror();
    char copy[512];
    snprintf(copy, sizeof copy, "%s", why ? why : "unknown reason");
    if (c->handle) dlclose(c->handle);
    const char *hint =
        access("/proc/self/fd", F_OK) == 0 ? "" : " (programs are opened through /proc, which is not mounted here)";
    err_raise(e, NS_ERR_RUNTIME, "cannot load %s: %s%s", what, copy, hint);
  }
  m->code = c;
}

static void cpu_unload(DevModule *m) {
  const CpuCode *c = m->code;
  dlclose(c->handle);
}

/* Made by the first run, in a forked child anew. No fork falls into the time in which the lock is held. */
static CpuPool *pool_of(Device *d) {
  Cpu *cpu = d->impl;
  if (atomic_load(&cpu->made) != fork_count()) {
    fork_hold();
    pthread_mutex_lock(&cpu->lock);
    if (cpu->pool && !cpool_works(cpu->pool)) {
      cpool_free(cpu->pool);
      cpu->pool = NULL;
    }
    if (!cpu->pool) cpu->pool = cpool_new(d->info.multiprocessors);
    bool there = cpu->pool != NULL;
    if (there) atomic_store(&cpu->made, fork_count());
    pthread_mutex_unlock(&cpu->lock);
    fork_release();
    if (!there) err_raise(d->err, NS_ERR_MEMORY, "out of memory starting the thread pool");
  }
  return cpu->pool;
}

static void cpu_run(DevModule *m, void *const *args, void *const *work, const DevThreads *threads) {
  CpuCode *c = m->code;
  int32_t rc =
      threads ? c->entry(args, work, threads->run, threads->pool) : c->entry(args, work, cpool_run, pool_of(m->dev));
  if (rc == PROGRAM_NO_MEMORY)
    err_raise(m->dev->err, NS_ERR_MEMORY, "program \"%s\": out of memory for a temporary array", m->man->entry);
  if (rc == PROGRAM_ZERO_DIVISION)
    err_raise(m->dev->err, NS_ERR_RUNTIME, "program \"%s\" divides an integer by zero", m->man->entry);
  if (rc == PROGRAM_BAD_INDEX && m->man->report >= 0) {
    if (!m->made_up) dev_raise_index(m, work[m->man->report]);
    return;
  }
  if (rc != 0) err_raise(m->dev->err, NS_ERR_RUNTIME, "program \"%s\" returned error %d", m->man->entry, rc);
}

static double cpu_time(DevModule *m, void *const *args, int number, bool flush) {
  double sum = 0;
  if (!flush) {
    double t = clock_now();
    for (int i = 0; i < number; i++) cpu_run(m, args, m->own, NULL);
    return (clock_now() - t) / number;
  }
  for (int i = 0; i < number; i++) {
    dev_flush(m->dev);
    double t = clock_now();
    cpu_run(m, args, m->own, NULL);
    sum += clock_now() - t;
  }
  return sum / number;
}

/* ---- canary: a chain of dependent operations in each thread of the pool ---- */
enum { CHAIN = 25000, CHAINS = 64 };
typedef struct {
  double seconds;
  float last;
  char apart[64]; /* from what other cores write */
} Chain;
static void chain(void *env, int64_t begin, int64_t end) {
  Chain *out = env;
  for (int64_t k = begin; k < end; k++) {
    double t = clock_now();
    float x = 0.5f + (float)k;
    for (int i = 0; i < CHAIN; i++) x = x * 0.5f + 1; /* 8 to 10 cycles each */
    out[k].last = x;
    out[k].seconds = clock_now() - t;
  }
}

static int cpu_canary(Device *d, int n, double *out, double *pace) {
  Chain one[CHAINS];
  CpuPool *p = pool_of(d);
  int threads = d->info.multiprocessors < CHAINS / 2 ? d->info.multiprocessors : CHAINS / 2;
  for (int i = 0; i < n; i++) {
    double t = clock_now();
    cpool_run(p, chain, one, 2 * threads);
    out[i] = clock_now() - t;
    for (int k = 0; k < 2 * threads; k++) *pace = fmin(*pace, one[k].seconds);
  }
  return n;
}

static const DevOps CPU_OPS = {.close = cpu_close,
                               .alloc = cpu_alloc,
                               .free = cpu_free,
                               .upload = cpu_copy,
                               .download = cpu_copy,
                               .copy = cpu_copy,
                               .fill = cpu_fill,
                               .sync = cpu_sync,
                               .load = cpu_load,
                               .unload = cpu_unload,
                               .run = cpu_run,
                               .time = cpu_time,
                               .canary = cpu_canary};

static void cpu_name(char *out, size_t n) {
  char line[512];
  snprintf(out, n, "CPU");
  FILE *f = fopen("/proc/cpuinfo", "re");
  if (!f) return;
  while (fgets(line, sizeof line, f)) {
    char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || !colon) continue;
    snprintf(out, n, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    break;
  }
  fclose(f);
}

static void facts(DevInfo *f) {
  cpu_name(f->name, sizeof f->name);
  f->multiprocessors = cpu_threads();
  f->warp_size = 1;
  f->max_threads_per_block = 1;
  f->total_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  f->l2_bytes = cpu_cache(3) > 0 ? cpu_cache(3) : cpu_cache(2);
  f->max_dims[0] = f->max_dims[1] = f->max_dims[2] = 1;
}

bool cpu_probe(int id, char *why, size_t n, DevInfo *info) {
  if (id != 0 && n) snprintf(why, n, "there is one CPU device, cpu(0)");
  if (id == 0 && info) facts(info);
  return id == 0;
}

void cpu_open(Device *d) {
  if (d->id != 0) err_raise(d->err, NS_ERR_VALUE, "cpu(%d): there is one CPU device, cpu(0)", d->id);
  Cpu *cpu = calloc(1, sizeof *cpu);
  if (!cpu) err_raise(d->err, NS_ERR_MEMORY, "out of memory opening the CPU");
  pthread_mutex_init(&cpu->lock, NULL);
  atomic_init(&cpu->made, -1);
  d->ops = &CPU_OPS;
  d->impl = cpu;
  facts(&d->info);
}
