/* The public interface of the runtime, nsrt.h: status codes instead of raised errors, models that are shared, contexts that are owned.
 *
 * A call runs its body under an Err of its own, so that what is raised, on whichever Err, ends there (err.c). On a CPU nothing is
 * shared between contexts but what never changes and the thread pools, which take callers from several threads. On GPUs the contexts
 * of a model share a device with one stream, and calls take turns (Placed.turn). */
#include "rt/nsrt.h"
#include "graph/graph.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A model on a device. Made by the first context there, it stays as long as the model. */
typedef struct Placed {
  Device *d;
  NetworkOn *on;
  pthread_mutex_t turn; /* GPU */
  struct Placed *next;
} Placed;

struct nsrt_model {
  Err err;          /* on which devices and arenas raise */
  atomic_int users; /* the user and its contexts */
  void *map;        /* the file; NULL: the caller's memory */
  size_t map_bytes;
  Arena *arena;
  const NetworkFile *file;
  nsrt_info info;
  void **replaced;      /* per weight: its new value */
  pthread_mutex_t lock; /* of what follows */
  Placed *placed;
  int contexts;
};
struct nsrt_pool {
  CpuPool *pool;
};
struct nsrt_context {
  Err err;
  nsrt_model *model;
  Placed *at;
  CpuPool *own;
  DevThreads threads;
  GraphExec *x;
  atomic_flag busy;
};

/* ---- the border ---- */
static _Thread_local char message[ERR_MSG_MAX]; /* describes the thread's last call that failed, as errno does */

static const nsrt_status STATUS[] = {[NS_OK] = NSRT_OK,
                                     [NS_ERR_VALUE] = NSRT_INVALID,
                                     [NS_ERR_TYPE] = NSRT_INVALID,
                                     [NS_ERR_MEMORY] = NSRT_MEMORY,
                                     [NS_ERR_RUNTIME] = NSRT_UNAVAILABLE,
                                     [NS_ERR_IO] = NSRT_IO,
                                     [NS_ERR_INTERRUPT] = NSRT_INTERNAL,
                                     [NS_ERR_INTERNAL] = NSRT_INTERNAL};

static nsrt_status fail(nsrt_status s, const char *why) {
  snprintf(message, sizeof message, "%s", why);
  return s;
}

static nsrt_status call(Err *e, ErrBody body, void *arg) {
  ErrCode c = err_try(e, body, arg);
  return c == NS_OK ? NSRT_OK : fail(STATUS[c], e->msg);
}

int32_t nsrt_version(void) { return NSRT_VERSION; }
const char *nsrt_message(void) { return message; }

/* ---- opening ---- */
typedef struct {
  nsrt_model *m;
  const char *path, *name;
  const void *data;
  size_t size;
} Open;

static void map_file(Open *o) {
  nsrt_model *m = o->m;
  struct stat st;
  int fd = open(o->path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) err_raise(&m->err, NS_ERR_IO, "cannot open '%s': %s", o->path, strerror(errno));
  bool there = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  void *p = there && st.st_size ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  close(fd);
  if (!there || !st.st_size) err_raise(&m->err, NS_ERR_VALUE, "'%s' is %s", o->path, there ? "empty" : "no file");
  if (p == MAP_FAILED) err_raise(&m->err, NS_ERR_IO, "cannot map '%s': %s", o->path, strerror(errno));
  o->data = m->map = p;
  o->size = m->map_bytes = (size_t)st.st_size;
}

static nsrt_value value_of(const GraphEntry *en, const char *name) {
  return (nsrt_value){name, en->dtype, en->rank, en->shape, (size_t)en->bytes};
}

static void describe(nsrt_model *m) {
  const NetworkFile *f = m->file;
  nsrt_value *in = arena_array(m->arena, nsrt_value, f->n_inputs),
             *out = arena_array(m->arena, nsrt_value, f->g->n_heads),
             *w = arena_array(m->arena, nsrt_value, f->n_params);
  size_t bytes = 0;
  for (int i = 0; i < f->n_inputs; i++) in[i] = value_of(&f->g->entry[f->input[i]], network_name(f, f->input[i]));
  for (int i = 0; i < f->g->n_heads; i++)
    out[i] = value_of(&f->g->entry[f->g->head[i]], arena_printf(m->arena, "output_%d", i));
  for (int i = 0; i < f->n_params; i++) {
    w[i] = value_of(&f->g->entry[f->entry[i]], f->param[i].name);
    bytes += w[i].bytes;
  }
  m->info = (nsrt_info){f->c->name,
                        f->c->target,
                        f->device,
                        f->n_inputs,
                        f->g->n_heads,
                        f->n_params,
                        in,
                        out,
                        w,
                        bytes,
                        (size_t)network_exec_bytes(m->arena, f)};
}

static void open_body(void *arg) {
  Open *o = arg;
  nsrt_model *m = o->m;
  if (o->path) map_file(o);
  m->arena = arena_new(&m->err);
  m->file = network_read(m->arena, o->data, o->size, o->name);
  m->replaced = arena_array(m->arena, void *, m->file->n_params + 1);
  describe(m);
}

static void release(nsrt_model *m) {
  if (atomic_fetch_sub(&m->users, 1) > 1) return;
  for (Placed *p = m->placed, *next; p; p = next) {
    next = p->next;
    network_remove(p->on);
    dev_close(p->d);
    pthread_mutex_destroy(&p->turn);
    free(p);
  }
  for (int i = 0; m->file && m->replaced && i < m->file->n_params; i++) free(m->replaced[i]);
  pthread_mutex_destroy(&m->lock);
  arena_free(m->arena);
  if (m->map) munmap(m->map, m->map_bytes);
  free(m);
}

static nsrt_status open_model(Open *o, nsrt_model **model) {
  nsrt_model *m = calloc(1, sizeof *m);
  if (!m) return fail(NSRT_MEMORY, "out of memory");
  err_init(&m->err);
  atomic_init(&m->users, 1);
  pthread_mutex_init(&m->lock, NULL);
  o->m = m;
  nsrt_status s = call(&m->err, open_body, o);
  if (s == NSRT_OK)
    *model = m;
  else
    release(m);
  return s;
}

nsrt_status nsrt_open(const char *path, nsrt_model **model) {
  if (!path || !model) return fail(NSRT_INVALID, "nsrt_open: an argument is NULL");
  *model = NULL;
  return open_model(&(Open){.path = path, .name = path}, model);
}

nsrt_status nsrt_open_memory(const void *data, size_t size, const char *name, nsrt_model **model) {
  if (!data || !model) return fail(NSRT_INVALID, "nsrt_open_memory: an argument is NULL");
  *model = NULL;
  return open_model(&(Open){.name = name ? name : "the model", .data = data, .size = size}, model);
}

void nsrt_close(nsrt_model *m) {
  if (m) release(m);
}

nsrt_status nsrt_describe(const nsrt_model *m, nsrt_info *info, size_t size) {
  if (!m || !info) return fail(NSRT_INVALID, "nsrt_describe: an argument is NULL");
  memset(info, 0, size);
  memcpy(info, &m->info, size < sizeof m->info ? size : sizeof m->info);
  return NSRT_OK;
}

/* ---- tensors ---- */
/* Raises unless the tensor has this shape and type, without gaps. */
static void check_tensor(Err *e, const GraphEntry *en, const char *name, const nsrt_tensor *t) {
  char type[32];
  static const char *const KIND[] = {"int", "uint", "float", "", "bfloat", "", "bool"};
  bool known = t->dtype.code < NS_COUNT(KIND) && t->dtype.lanes == 1, boolean = known && t->dtype.code == 6;
  snprintf(type, sizeof type, boolean ? "bool" : "%s%d", known ? KIND[t->dtype.code] : "?", t->dtype.bits);
  bool same = t->ndim == en->rank, dense = true;
  int64_t row = 1;
  for (int k = en->rank - 1; same && k >= 0; k--) {
    same = t->shape[k] == en->shape[k];
    dense = dense && (!t->strides || t->shape[k] == 1 || t->strides[k] == row);
    row *= en->shape[k];
  }
  if (!same) err_raise(e, NS_ERR_VALUE, "'%s': the tensor has another shape than the network's", name);
  if (strcmp(type, en->dtype) != 0 && !(strcmp(en->dtype, "bool") == 0 && strcmp(type, "uint8") == 0))
    err_raise(e, NS_ERR_VALUE, "'%s' is %s, the tensor %s", name, en->dtype, type);
  if (!dense) err_raise(e, NS_ERR_VALUE, "'%s': the tensor must be contiguous", name);
  if (!t->data && en->bytes) err_raise(e, NS_ERR_VALUE, "'%s': the tensor has no memory", name);
}
static void *memory_of(const nsrt_tensor *t) { return (char *)t->data + t->byte_offset; }

typedef struct {
  nsrt_model *m;
  const char *name;
  const nsrt_tensor *t;
} Replace;
static void replace(void *arg) {
  const Replace *r = arg;
  const NetworkFile *f = r->m->file;
  Err *e = &r->m->err;
  int k = 0;
  while (k < f->n_params && strcmp(f->param[k].name, r->name) != 0) k++;
  bool folded = false;
  for (int i = 0; i < f->c->n_inputs; i++) folded |= strcmp(f->c->input[i], r->name) == 0;
  if (k == f->n_params)
    err_raise(
        e, NS_ERR_VALUE,
        folded ? "'%s' became part of constants when the network was compiled: build it without params= to replace it"
               : "the network has no weight '%s'",
        r->name);
  check_tensor(e, &f->g->entry[f->entry[k]], r->name, r->t);
  if (r->t->device.device_type != DEV_CPU) err_raise(e, NS_ERR_VALUE, "'%s': the value must be on the CPU", r->name);
  if (!r->m->replaced[k]) r->m->replaced[k] = mem_alloc(e, (size_t)f->param[k].bytes + 1);
  memcpy(r->m->replaced[k], memory_of(r->t), (size_t)f->param[k].bytes);
  for (const Placed *p = r->m->placed; p; p = p->next) network_replace(p->on, e, k, r->m->replaced[k]);
}

nsrt_status nsrt_replace(nsrt_model *m, const char *weight, const nsrt_tensor *value) {
  if (!m || !weight || !value) return fail(NSRT_INVALID, "nsrt_replace: an argument is NULL");
  pthread_mutex_lock(&m->lock);
  nsrt_status s = m->contexts ? fail(NSRT_BUSY, "weights can be replaced only while the model has no contexts")
                              : call(&m->err, replace, &(Replace){m, weight, value});
  pthread_mutex_unlock(&m->lock);
  return s;
}

/* ---- threads ---- */
nsrt_status nsrt_pool_create(int32_t threads, nsrt_pool **pool) {
  enum { MOST = 4096 };
  if (!pool || threads < 1 || threads > MOST) return fail(NSRT_INVALID, "nsrt_pool_create: threads must be 1 to 4096");
  nsrt_pool *p = calloc(1, sizeof *p);
  if (p) p->pool = cpool_new(threads);
  if (!p || !p->pool) {
    free(p);
    return fail(NSRT_MEMORY, "out of memory starting threads");
  }
  *pool = p;
  return NSRT_OK;
}

void nsrt_pool_free(nsrt_pool *p) {
  if (p) cpool_free(p->pool);
  free(p);
}

/* ---- contexts ---- */
typedef struct {
  nsrt_model *m;
  int id;
  Placed *p;
} PlaceOn;
static void place_undo(void *arg) {
  Placed *p = ((PlaceOn *)arg)->p;
  if (!p) return;
  network_remove(p->on);
  if (p->d) dev_close(p->d);
  free(p);
}
static void place(void *arg) {
  PlaceOn *o = arg;
  nsrt_model *m = o->m;
  for (o->p = m->placed; o->p && dev_id(o->p->d) != o->id; o->p = o->p->next) {}
  if (o->p) return;
  Placed *p = o->p = mem_alloc(&m->err, sizeof *p);
  p->d = dev_open(&m->err, (DevType)m->info.device_type, o->id);
  p->on = network_place(&m->err, m->file, p->d, true);
  if (m->map && network_weight_bytes(p->on)) (void)madvise(m->map, m->map_bytes, MADV_DONTNEED); /* what was copied */
  for (int i = 0; i < m->file->n_params; i++)
    if (m->replaced[i]) network_replace(p->on, &m->err, i, m->replaced[i]);
  pthread_mutex_init(&p->turn, NULL);
  p->next = m->placed;
  m->placed = p;
}

typedef struct {
  nsrt_context *c;
  nsrt_options how;
} Create;
static int32_t alone(void *pool NS_UNUSED, NsParallelBody body, void *env, int64_t n) {
  if (n > 0) body(env, 0, n);
  return 0;
}
static void choose_threads(const Create *o) {
  nsrt_context *c = o->c;
  const nsrt_options *how = &o->how;
  if ((how->threads != 0) + (how->pool != NULL) + (how->parallel != NULL) > 1 || how->threads < 0 ||
      how->threads > 4096)
    err_raise(&c->err, NS_ERR_VALUE, "options: give one of threads (1 to 4096), pool and parallel");
  if (how->parallel) c->threads = (DevThreads){how->parallel, how->user};
  if (how->pool) c->threads = (DevThreads){cpool_run, how->pool->pool};
  if (how->threads == 1) c->threads = (DevThreads){alone, NULL};
  if (how->threads < 2) return;
  c->own = cpool_new(how->threads);
  if (!c->own) err_raise(&c->err, NS_ERR_MEMORY, "out of memory starting threads");
  c->threads = (DevThreads){cpool_run, c->own};
}
static void create(void *arg) {
  const Create *o = arg;
  nsrt_context *c = o->c;
  PlaceOn on = {c->model, o->how.device_id, NULL};
  choose_threads(o);
  err_guard(&c->err, place, place_undo, &on);
  c->at = on.p;
}
ERR_BODY(create_exec, nsrt_context *c, c->x = network_exec_new(&c->err, c->at->on, c->threads.run ? &c->threads : NULL))

static void take_turn(Placed *p) {
  if (dev_type(p->d) != DEV_CPU) pthread_mutex_lock(&p->turn);
}
static void end_turn(Placed *p) {
  if (dev_type(p->d) != DEV_CPU) pthread_mutex_unlock(&p->turn);
}

static void drop(nsrt_context *c) {
  if (c->x) {
    take_turn(c->at);
    graph_exec_free(c->x);
    end_turn(c->at);
  }
  cpool_free(c->own);
  free(c);
}

nsrt_status nsrt_context_create(nsrt_model *m, const nsrt_options *options, size_t size, nsrt_context **context) {
  if (!m || !context) return fail(NSRT_INVALID, "nsrt_context_create: an argument is NULL");
  *context = NULL;
  nsrt_context *c = calloc(1, sizeof *c);
  if (!c) return fail(NSRT_MEMORY, "out of memory");
  Create o = {.c = c};
  if (options) memcpy(&o.how, options, size < sizeof o.how ? size : sizeof o.how);
  err_init(&c->err);
  c->model = m;
  atomic_flag_clear(&c->busy);
  pthread_mutex_lock(&m->lock);
  nsrt_status s = call(&c->err, create, &o);
  if (s == NSRT_OK) {
    take_turn(c->at);
    s = call(&c->err, create_exec, c);
    end_turn(c->at);
  }
  if (s == NSRT_OK) m->contexts++;
  pthread_mutex_unlock(&m->lock);
  if (s != NSRT_OK) return drop(c), s;
  atomic_fetch_add(&m->users, 1);
  *context = c;
  return NSRT_OK;
}

void nsrt_context_free(nsrt_context *c) {
  if (!c) return;
  nsrt_model *m = c->model;
  pthread_mutex_lock(&m->lock);
  m->contexts--;
  drop(c);
  pthread_mutex_unlock(&m->lock);
  release(m);
}

/* A call of a context: nobody else's at the time, and on a GPU no other context's. */
static nsrt_status enter(nsrt_context *c, ErrBody body, void *arg) {
  if (!c) return fail(NSRT_INVALID, "the context is NULL");
  if (atomic_flag_test_and_set_explicit(&c->busy, memory_order_acquire))
    return fail(NSRT_BUSY, "another thread is using the context: give each thread one of its own");
  take_turn(c->at);
  nsrt_status s = call(&c->err, body, arg);
  end_turn(c->at);
  atomic_flag_clear_explicit(&c->busy, memory_order_release);
  return s;
}

typedef struct {
  nsrt_context *c;
  const char *name;
  int32_t output, runs, room, n;
  void *data;
  const void *from;
  size_t bytes;
  const nsrt_tensor *t;
  nsrt_kernel *kernel;
  Arena *a;
} Call;

static const nsrt_info *info_of(const Call *k) { return &k->c->model->info; }

static int input_of(const Call *k) {
  const nsrt_info *in = info_of(k);
  for (int i = 0; k->name && i < in->n_inputs; i++)
    if (strcmp(in->input[i].name, k->name) == 0) return k->c->model->file->input[i];
  return -1;
}
static int output_of(const Call *k) {
  const nsrt_info *in = info_of(k);
  for (int i = 0; k->name && i < in->n_outputs; i++)
    if (strcmp(in->output[i].name, k->name) == 0) return k->c->model->file->g->head[i];
  return -1;
}
static NS_NORETURN void unknown(const Call *k, const char *what) {
  const nsrt_info *in = info_of(k);
  char list[400] = "";
  for (int i = 0; i < in->n_inputs && strlen(list) < sizeof list / 2; i++)
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s'%.100s'", i ? ", " : "", in->input[i].name);
  err_raise(&k->c->err, NS_ERR_VALUE,
            "the network has no %s '%s'; its inputs are %s, its outputs 'output_0' to 'output_%d'", what,
            k->name ? k->name : "(NULL)", list, (int)in->n_outputs - 1);
}
static void check_bytes(const Call *k, int entry, const char *name) {
  int64_t want = k->c->model->file->g->entry[entry].bytes;
  if (want != (int64_t)k->bytes)
    err_raise(&k->c->err, NS_ERR_VALUE, "'%s' has %lld bytes, %zu were given", name, (long long)want, k->bytes);
}

static void set(void *arg) {
  const Call *k = arg;
  int entry = input_of(k);
  if (entry < 0) unknown(k, "input");
  check_bytes(k, entry, k->name);
  dev_upload(k->c->at->d, graph_exec_data(k->c->x, entry), k->from, k->bytes);
  graph_exec_given(k->c->x, entry);
}
nsrt_status nsrt_set(nsrt_context *c, const char *input, const void *data, size_t bytes) {
  return enter(c, set, &(Call){.c = c, .name = input, .from = data, .bytes = bytes});
}

static void get(void *arg) {
  const Call *k = arg;
  const nsrt_info *in = info_of(k);
  if (k->output < 0 || k->output >= in->n_outputs)
    err_raise(&k->c->err, NS_ERR_VALUE, "the network has no output %d; it has %d, counted from 0", (int)k->output,
              (int)in->n_outputs);
  int entry = k->c->model->file->g->head[k->output];
  check_bytes(k, entry, in->output[k->output].name);
  graph_exec_claim(k->c->x);
  dev_download(k->c->at->d, k->data, graph_exec_data(k->c->x, entry), k->bytes);
}
nsrt_status nsrt_get(nsrt_context *c, int32_t output, void *data, size_t bytes) {
  return enter(c, get, &(Call){.c = c, .output = output, .data = data, .bytes = bytes});
}

static void bind_value(void *arg) {
  const Call *k = arg;
  const nsrt_tensor *t = k->t;
  const Device *d = k->c->at->d;
  int entry = input_of(k);
  if (entry < 0) entry = output_of(k);
  if (entry < 0) unknown(k, "input or output");
  if (t) {
    check_tensor(&k->c->err, &k->c->model->file->g->entry[entry], k->name, t);
    if (t->device.device_type != (int32_t)dev_type(d) || t->device.device_id != dev_id(d))
      err_raise(&k->c->err, NS_ERR_VALUE, "'%s': the tensor is on device %d:%d, the context on %d:%d", k->name,
                (int)t->device.device_type, (int)t->device.device_id, (int)dev_type(d), dev_id(d));
    if (dev_type(d) == DEV_OPENCL ? t->byte_offset != 0 : (uintptr_t)memory_of(t) % PROGRAM_ALIGN != 0)
      err_raise(&k->c->err, NS_ERR_VALUE, "'%s': the tensor must be aligned to %d bytes", k->name, PROGRAM_ALIGN);
  }
  graph_exec_bind(k->c->x, entry, t ? memory_of(t) : NULL);
}
nsrt_status nsrt_bind(nsrt_context *c, const char *name, const nsrt_tensor *tensor) {
  return enter(c, bind_value, &(Call){.c = c, .name = name, .t = tensor});
}

ERR_BODY(run, const Call *k, graph_exec_run(k->c->x))
nsrt_status nsrt_run(nsrt_context *c) { return enter(c, run, &(Call){.c = c}); }

static void synchronise(void *arg) {
  const Call *k = arg;
  graph_exec_claim(k->c->x);
  dev_sync(k->c->at->d);
}
nsrt_status nsrt_sync(nsrt_context *c) { return enter(c, synchronise, &(Call){.c = c}); }

static void profile(void *arg) {
  Call *k = arg;
  const NetworkFile *f = k->c->model->file;
  const Graph *g = f->g;
  err_check(&k->c->err, k->runs >= 1 && (k->kernel || !k->room), "nsrt_profile: runs must be at least 1");
  k->a = arena_new(&k->c->err);
  double *seconds = arena_array(k->a, double, g->n_nodes);
  bool *weight = arena_array(k->a, bool, g->n_entries);
  for (int i = 0; i < f->n_params; i++) weight[f->entry[i]] = true;
  graph_exec_node_times(k->c->x, k->runs, weight, seconds);
  for (int i = 0; i < g->n_nodes; i++) {
    if (g->node[i].kind != GN_CALL) continue;
    if (k->n < k->room) k->kernel[k->n] = (nsrt_kernel){g->node[i].name, g->node[i].func, seconds[i]};
    k->n++;
  }
}
nsrt_status nsrt_profile(nsrt_context *c, int32_t runs, nsrt_kernel *kernel, int32_t room, int32_t *n) {
  Call k = {.c = c, .runs = runs, .kernel = kernel, .room = room};
  nsrt_status s = enter(c, profile, &k);
  arena_free(k.a);
  if (n) *n = k.n;
  return s;
}
