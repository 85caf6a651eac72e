/* The public face of device: argument checks, the life of modules and workspaces, and dispatch to the back end. Nothing
 * here knows how a device works; nothing in a back end checks what is checked here. */
#include "device/internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLUSH_DEFAULT = 64 << 20, FLUSH_MAX = 128 << 20 };

static const struct {
  DevType type;
  const char *name, *target; /* target: of its programs' manifests */
  void (*open)(Device *);
  bool (*probe)(int, char *, size_t, DevInfo *);
} BACKENDS[] = {{DEV_CPU, "cpu", "c", cpu_open, cpu_probe},
                {DEV_CUDA, "cuda", "cuda", cuda_open, cuda_probe},
                {DEV_OPENCL, "opencl", "opencl", opencl_open, opencl_probe}};

static int backend(DevType t) {
  for (int i = 0; i < NS_COUNT(BACKENDS); i++)
    if (BACKENDS[i].type == t) return i;
  return -1;
}

bool dev_exists(DevType t, int id, char *why, size_t n) {
  if (n) why[0] = 0;
  int b = backend(t);
  if (b < 0) {
    snprintf(why, n, "device type %d is none of cpu (1), cuda (2), opencl (4)", (int)t);
    return false;
  }
  return BACKENDS[b].probe(id, why, n, NULL);
}

bool dev_query(DevType t, int id, DevInfo *out) {
  char why[512];
  int b = backend(t);
  memset(out, 0, sizeof *out);
  return b >= 0 && BACKENDS[b].probe(id, why, sizeof why, out);
}

/* The context of a GPU, and the threads of an OpenCL driver, stay with the process that opened them. */
bool dev_inherited(const Device *d) { return d->made != fork_count() && d->type != DEV_CPU; }

void dev_raise_forked(const Device *d) {
  err_raise(d->err, NS_ERR_RUNTIME,
            "%s(%d) was in use before this process was forked, and a forked child cannot use it: " FORK_REMEDY,
            BACKENDS[backend(d->type)].name, d->id);
}

static const DevOps *ops(Device *d) {
  if (dev_inherited(d)) dev_raise_forked(d);
  return d->ops;
}

ERR_BODY(open_body, Device *d, BACKENDS[backend(d->type)].open(d))

Device *dev_open(Err *e, DevType t, int id) {
  if (backend(t) < 0) err_raise(e, NS_ERR_VALUE, "device type %d is none of cpu (1), cuda (2), opencl (4)", (int)t);
  if (id < 0) err_raise(e, NS_ERR_VALUE, "device number %d is negative", id);
  Device *d = calloc(1, sizeof *d);
  if (!d) err_raise(e, NS_ERR_MEMORY, "out of memory opening a device");
  d->err = e;
  d->type = t;
  d->id = id;
  d->made = fork_count();
  err_guard(e, open_body, free, d);
  return d;
}

void dev_close(Device *d) {
  if (!d || dev_inherited(d)) return;
  if (d->flush && !d->lost) d->ops->free(d, d->flush);
  if (d->cold) d->ops->free(d, d->cold);
  d->ops->close(d);
  free(d);
}

bool dev_lost(const Device *d) { return d->lost; }
DevType dev_type(const Device *d) { return d->type; }
DevType dev_type_of(const char *target) {
  for (int i = 0; i < NS_COUNT(BACKENDS); i++)
    if (strcmp(BACKENDS[i].target, target) == 0) return BACKENDS[i].type;
  return (DevType)0;
}
int dev_id(const Device *d) { return d->id; }
const DevInfo *dev_info(const Device *d) { return &d->info; }

void *dev_alloc(Device *d, size_t bytes) {
  void *p = ops(d)->alloc(d, bytes ? bytes : 1);
  if (!p)
    err_raise(
        d->err, NS_ERR_MEMORY,
        "%s(%d): cannot allocate %zu bytes (device memory: %lld bytes in all); free arrays or use a smaller shape",
        BACKENDS[backend(d->type)].name, d->id, bytes, (long long)d->info.total_bytes);
  return p;
}

void dev_free(Device *d, void *p) {
  if (p && !dev_inherited(d)) d->ops->free(d, p);
}

void dev_upload(Device *d, void *dst, const void *src, size_t n) {
  if (n) ops(d)->upload(d, dst, src, n);
}

void dev_download(Device *d, void *dst, const void *src, size_t n) {
  if (n) ops(d)->download(d, dst, src, n);
  report_look(d);
}

void dev_copy(Device *d, void *dst, const void *src, size_t n) {
  if (n) ops(d)->copy(d, dst, src, n);
}

void dev_fill(Device *d, void *dst, int byte, size_t n) {
  if (n) ops(d)->fill(d, dst, byte, n);
}

void dev_flush(Device *d) {
  if (!d->flush) {
    int64_t want = d->info.l2_bytes > 0 ? 2 * d->info.l2_bytes : FLUSH_DEFAULT;
    d->flush_bytes = (size_t)(want < FLUSH_MAX ? want : FLUSH_MAX);
    d->flush = dev_alloc(d, d->flush_bytes);
  }
  d->flushes++;
  dev_fill(d, d->flush, d->flushes, d->flush_bytes);
}

void dev_sync(Device *d) {
  ops(d)->sync(d);
  report_look(d);
}
void dev_sync_all(Device *d) {
  (ops(d)->sync_all ? ops(d)->sync_all : ops(d)->sync)(d);
  report_look(d);
}

/* ---- modules ---- */
typedef struct {
  Device *d;
  Arena *a;
  const void *binary;
  size_t n;
  const char *manifest;
  DevModule *m;
} Load;

static void load_body(void *arg) {
  Load *l = arg;
  Device *d = l->d;
  DevModule *m = l->m = arena_new_of(l->a, DevModule);
  m->dev = d;
  m->arena = l->a;
  m->man = man_parse(l->a, l->manifest);
  if (strcmp(m->man->target, BACKENDS[backend(d->type)].target) != 0)
    err_raise(d->err, NS_ERR_VALUE, "this program was built for target \"%s\" and cannot run on device %s(%d)",
              m->man->target, BACKENDS[backend(d->type)].name, d->id);
  ops(d)->load(m, l->binary, l->n);
}
static void load_undo(void *arg) { arena_free(((Load *)arg)->a); }

DevModule *dev_load(Device *d, const void *binary, size_t n, const char *manifest) {
  Load l = {d, arena_new(d->err), binary, n, manifest, NULL};
  err_guard(d->err, load_body, load_undo, &l);
  return l.m;
}

static void free_work(DevModule *m) {
  bool shared = m->report != NULL;
  dev_report_free(m->report);
  for (int i = 0; m->own && i < m->man->n_work; i++)
    if (m->own[i] && !(shared && i == m->man->report)) dev_free(m->dev, m->own[i]);
  m->report = NULL;
  m->work = NULL;
  m->own = NULL;
}

void dev_unload(DevModule *m) {
  if (!m || dev_inherited(m->dev)) return;
  free_work(m);
  m->dev->ops->unload(m);
  arena_free(m->arena);
}

const Manifest *dev_manifest(const DevModule *m) { return m->man; }
void dev_made_up(DevModule *m) { m->made_up = true; }
Device *dev_module_device(const DevModule *m) { return m->dev; }

static void need_args(const DevModule *m, void *const *args) {
  for (int i = 0; i < m->man->n_args; i++)
    if (!args[i])
      err_raise(m->dev->err, NS_ERR_VALUE, "%s: argument %d (%s) is missing", m->man->entry, i, m->man->arg[i].name);
}

static bool reports(const DevModule *m) { return m->man->report >= 0 && m->dev->type != DEV_CPU; }

static void own_body(void *arg) {
  DevModule *m = arg;
  if (reports(m)) m->report = dev_report_new(m);
  for (int i = 0; i < m->man->n_work; i++) {
    size_t bytes = (size_t)(m->man->work[i].bytes ? m->man->work[i].bytes : 1);
    if (m->report && i == m->man->report) {
      m->own[i] = dev_report_memory(m->report);
      continue;
    }
    m->own[i] = ops(m->dev)->alloc(m->dev, bytes);
    if (!m->own[i])
      err_raise(m->dev->err, NS_ERR_MEMORY, "%s: cannot allocate its workspaces on the device", m->man->entry);
    dev_fill(m->dev, m->own[i], 0, bytes);
  }
}
static void own_undo(void *m) { free_work(m); }

void *const *dev_work(DevModule *m) {
  if (m->own) return m->own;
  m->own = arena_array(m->arena, void *, m->man->n_work + 1);
  err_guard(m->dev->err, own_body, own_undo, m);
  return m->own;
}

static void ready(DevModule *m, void *const *args) {
  need_args(m, args);
  report_run();
  m->work = dev_work(m);
  if (m->report) dev_report_begin(m->report);
}

void dev_run(DevModule *m, void *const *args) {
  ready(m, args);
  ops(m->dev)->run(m, args, m->own, NULL);
}

void dev_run_in(DevModule *m, void *const *args, void *const *work, const DevThreads *threads) {
  need_args(m, args);
  report_run();
  ops(m->dev)->run(m, args, work, threads);
}

double dev_time(DevModule *m, void *const *args, int number, bool flush_l2) {
  err_check(m->dev->err, number >= 1, "number is %d, must be at least 1", number);
  ready(m, args);
  return ops(m->dev)->time(m, args, number, flush_l2);
}

/* ---- cold arguments ----
 * A weight of a network is read once per inference, after all other weights: it is as cold as the network is large. Here
 * the cold arguments of a program move through a block of memory of that size, from run to run. */
enum { COLD_ALIGN = 256, MAX_SETS = 512, PATTERN = 1 << 16 };
static const int64_t COLD_MAX = (int64_t)1 << 29;

static size_t cold_size(const ManBuffer *b) { return ((size_t)b->bytes + COLD_ALIGN - 1) / COLD_ALIGN * COLD_ALIGN; }

static void fill_pool(Device *d) {
  float pattern[PATTERN / sizeof(float)]; /* plain numbers in [1, 2) */
  for (int i = 0; i < NS_COUNT(pattern); i++) pattern[i] = 1 + (float)((uint32_t)i * 2654435761u >> 20) * 0x1p-12f;
  for (size_t at = 0; at < d->cold_bytes; at += PATTERN)
    ops(d)->upload(d, d->cold + at, pattern, d->cold_bytes - at < PATTERN ? d->cold_bytes - at : PATTERN);
}

void dev_forget_cold(Device *d) {
  if (d->cold) ops(d)->free(d, d->cold);
  d->cold = NULL;
  d->cold_bytes = d->cold_at = 0;
}

void dev_forget_timing(DevModule *m) {
  if (ops(m->dev)->forget) ops(m->dev)->forget(m);
}

static void cold_room(Device *d, size_t want) {
  if (d->cold_bytes >= want) return;
  dev_forget_cold(d);
  d->cold = dev_alloc(d, want);
  d->cold_bytes = want;
  fill_pool(d);
}

static double cold_in_turn(DevModule *m, void *const *args, int number, uint64_t cold, size_t each, size_t limit) {
  Device *d = m->dev;
  int n_args = m->man->n_args;
  void **now = arena_array(m->arena, void *, n_args);
  memcpy(now, args, sizeof *now * (size_t)n_args);
  double begin = clock_now();
  for (int k = 0; k < number; k++) {
    if (d->cold_at + each > limit) d->cold_at = 0;
    for (int i = 0; i < n_args && i < 64; i++) {
      if (!(cold >> i & 1)) continue;
      now[i] = d->cold + d->cold_at;
      d->cold_at += cold_size(&m->man->arg[i]);
    }
    ops(d)->run(m, now, m->own, NULL);
  }
  return (clock_now() - begin) / number;
}

/* The lists are made once per module and written anew where arguments are others: who calls may change his list in place. */
static void make_sets(DevModule *m, void *const *args, uint64_t cold, size_t each, size_t limit) {
  int n_args = m->man->n_args, n = (int)(limit / each < MAX_SETS ? limit / each : MAX_SETS);
  size_t bytes = sizeof *args * (size_t)n_args;
  if (m->n_set == n && memcmp(m->set_args, args, bytes) == 0 && m->set_cold == cold && m->set_pool == m->dev->cold)
    return;
  if (n > m->max_set) {
    m->set = arena_array(m->arena, void **, n);
    for (int k = 0; k < n; k++) m->set[k] = arena_array(m->arena, void *, n_args);
    m->set_args = arena_array(m->arena, void *, n_args);
    m->max_set = n;
  }
  for (int k = 0; k < n; k++) {
    char *at = m->dev->cold + (size_t)k * each;
    memcpy(m->set[k], args, sizeof *args * (size_t)n_args);
    for (int i = 0; i < n_args && i < 64; i++) {
      if (!(cold >> i & 1)) continue;
      m->set[k][i] = at;
      at += cold_size(&m->man->arg[i]);
    }
  }
  m->n_set = n;
  memcpy(m->set_args, args, bytes);
  m->set_cold = cold;
  m->set_pool = m->dev->cold;
}

double dev_time_cold(DevModule *m, void *const *args, int number, uint64_t cold, int64_t bytes, bool instructions,
                     int *ran) {
  Device *d = m->dev;
  const Manifest *man = m->man;
  size_t each = 0;
  *ran = number;
  for (int i = 0; i < man->n_args && i < 64; i++) {
    if (!strstr(man->arg[i].dtype, "float")) cold &= ~((uint64_t)1 << i); /* indices have to stay what they are */
    if (cold >> i & 1) each += cold_size(&man->arg[i]);
  }
  bool can = d->type == DEV_CPU || ops(d)->time_sets, moves = each > 0 && (int64_t)each <= COLD_MAX;
  if (!can || bytes <= 0 || (!moves && !ops(d)->time_sets)) return dev_time(m, args, number, false);
  err_check(d->err, number >= 1, "number is %d, must be at least 1", number);
  ready(m, args);
  if (!moves) return ops(d)->time_sets(m, &args, 1, number, instructions, ran);
  size_t limit = (size_t)(bytes < COLD_MAX ? bytes : COLD_MAX);
  if (limit < each) limit = each;
  cold_room(d, limit);
  if (!ops(d)->time_sets) return cold_in_turn(m, args, number, cold, each, limit);
  make_sets(m, args, cold, each, limit);
  return ops(d)->time_sets(m, (void *const *const *)m->set, m->n_set, number, instructions, ran);
}

int dev_canary(Device *d, int n, double *out, double *pace) {
  *pace = INFINITY;
  int got = ops(d)->canary ? ops(d)->canary(d, n, out, pace) : 0;
  for (int i = 0; i < got; i++) *pace = fmin(*pace, out[i]);
  return got;
}

void dev_regs(const DevModule *m, int kernel, int *regs, int *local_bytes, int *shared_bytes) {
  *regs = *local_bytes = *shared_bytes = 0;
  if (kernel >= 0 && kernel < m->man->n_kernels && ops(m->dev)->regs)
    ops(m->dev)->regs(m, kernel, regs, local_bytes, shared_bytes);
}

/* ---- graphs ---- */
int dev_graph_begin(Device *d, bool overlap) { return ops(d)->graph_begin ? ops(d)->graph_begin(d, overlap) : -1; }

bool dev_graph_behind(Device *d, int n, void *const *nodes) {
  return ops(d)->graph_behind && ops(d)->graph_behind(d, n, nodes);
}

void *dev_graph_last(Device *d) { return ops(d)->graph_last ? ops(d)->graph_last(d) : NULL; }

DevGraph *dev_graph_end(Device *d, int *early) {
  if (!ops(d)->graph_end)
    err_raise(d->err, NS_ERR_RUNTIME, "%s(%d) cannot capture graphs", BACKENDS[backend(d->type)].name, d->id);
  return ops(d)->graph_end(d, early);
}

void dev_graph_launch(Device *d, DevGraph *g) {
  report_run();
  ops(d)->graph_launch(d, g);
}

void dev_graph_free(Device *d, DevGraph *g) {
  if (g && !dev_inherited(d)) d->ops->graph_free(d, g);
}
