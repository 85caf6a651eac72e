/* A network that export_library wrote, from the bytes of its library to an executor on a device: with base, program, device
 * and graph alone. Its programs must be for this device and processor: nothing is compiled here.
 *
 * What the file says never changes, and what is placed on a device changes by network_replace alone: any number of executors
 * may stand on it, in any number of threads. On a CPU the weights are used where they lie in the file, if programs may rely on
 * their alignment. */
#include "graph/graph.h"
#include <stdlib.h>
#include <string.h>

/* ---- what the file says ---- */
int network_entry(const NetworkFile *f, const char *name) {
  for (int k = 0; k < f->g->n_nodes; k++)
    if (f->g->node[k].kind == GN_NULL && strcmp(f->g->node[k].name, name) == 0) return f->g->node[k].first;
  return -1;
}

const char *network_name(const NetworkFile *f, int entry) {
  for (int k = 0; k < f->g->n_nodes; k++)
    if (f->g->node[k].kind == GN_NULL && f->g->node[k].first == entry) return f->g->node[k].name;
  return "";
}

static void check_size(Err *e, const NetworkFile *f, int entry, size_t bytes) {
  if (f->g->entry[entry].bytes != (int64_t)bytes)
    err_raise(e, NS_ERR_VALUE, "input '%s' has %lld bytes, %zu were given", network_name(f, entry),
              (long long)f->g->entry[entry].bytes, bytes);
}

static int need_entry(Err *e, const NetworkFile *f, const char *name) {
  int entry = network_entry(f, name);
  if (entry < 0) err_raise(e, NS_ERR_VALUE, "the network has no input '%s'", name);
  return entry;
}

const NetworkFile *network_read(Arena *a, const void *library, size_t size, const char *what) {
  NetworkFile *f = arena_new_of(a, NetworkFile);
  Err *e = arena_err(a);
  size_t n;
  const void *stored = container_find(library, size, &n);
  if (!stored) err_raise(e, NS_ERR_VALUE, "%s holds no network", what);
  f->c = container_read(a, stored, n, what);
  f->device = DEV_CPU;
  f->manifest = arena_array(a, const Manifest *, f->c->n_programs);
  for (int i = 0; i < f->c->n_programs; i++) {
    const StoredProgram *p = &f->c->program[i];
    if (!p->binary) err_raise(e, NS_ERR_VALUE, "%s: program %s was not compiled", what, p->name);
    f->manifest[i] = man_parse(a, p->manifest);
    f->device = dev_type_of(f->manifest[i]->target);
    if (!f->device)
      err_raise(e, NS_ERR_VALUE, "%s: program %s is for target \"%s\"", what, p->name, f->manifest[i]->target);
  }
  f->g = graph_parse(a, f->c->graph);
  f->param = f->c->weight;
  f->n_params = f->c->n_weights;
  f->entry = arena_array(a, int32_t, f->n_params);
  f->input = arena_array(a, int32_t, f->g->n_nodes);
  bool *has_value = arena_array(a, bool, f->g->n_entries);
  for (int i = 0; i < f->n_params; i++) {
    f->entry[i] = need_entry(e, f, f->param[i].name);
    check_size(e, f, f->entry[i], (size_t)f->param[i].bytes);
    has_value[f->entry[i]] = true;
  }
  for (int k = 0; k < f->g->n_nodes; k++)
    if (f->g->node[k].kind == GN_NULL && !has_value[f->g->node[k].first]) f->input[f->n_inputs++] = f->g->node[k].first;
  return f;
}

int network_program(const NetworkFile *f, const char *func) {
  for (int i = 0; i < f->c->n_programs; i++)
    if (strcmp(f->c->program[i].name, func) == 0) return i;
  return -1;
}

int64_t network_exec_bytes(Arena *a, const NetworkFile *f) {
  const Graph *g = f->g;
  const Manifest **manifest = arena_array(a, const Manifest *, g->n_nodes);
  bool *weight = arena_array(a, bool, g->n_entries), *counted = arena_array(a, bool, g->n_storage);
  int64_t *place = arena_array(a, int64_t, g->n_entries), bytes = 0;
  GraphWork *work;
  for (int i = 0; i < f->n_params; i++) weight[f->entry[i]] = true;
  for (int i = 0; i < g->n_nodes; i++) {
    const GraphNode *n = &g->node[i];
    int p = n->kind == GN_CALL ? network_program(f, n->func) : -1;
    manifest[i] = p >= 0 ? f->manifest[p] : NULL;
    if (n->kind == GN_NOP) weight[n->first] = weight[n->in[0]];
  }
  for (int i = 0; i < g->n_entries; i++) place[i] = -1;
  if (f->device == DEV_CPU) bytes = graph_room(a, g, manifest, place, &work);
  for (int i = 0; i < g->n_entries; i++) {
    int k = g->entry[i].storage;
    if (place[i] >= 0 || weight[i] || counted[k]) continue;
    counted[k] = true;
    bytes += g->storage_bytes[k];
  }
  return bytes;
}

/* ---- on a device ---- */
struct NetworkOn {
  const NetworkFile *f;
  Device *d;
  DevModule **module; /* one per program */
  void **weight;      /* per entry; NULL: none */
  void **own;         /* per parameter: memory that was allocated for it */
  int64_t bytes;
};
typedef struct {
  NetworkOn *on;
  Err *e;
  bool in_place;
} Place;

static DevModule *find(void *env, const char *func) {
  const NetworkOn *on = env;
  int i = network_program(on->f, func);
  return i < 0 ? NULL : on->module[i];
}

static void *own_memory(NetworkOn *on, int param) {
  int64_t bytes = on->f->param[param].bytes;
  if (!on->own[param]) {
    on->own[param] = on->weight[on->f->entry[param]] = dev_alloc(on->d, (size_t)bytes);
    on->bytes += bytes;
  }
  return on->own[param];
}

void network_replace(NetworkOn *on, Err *e, int param, const void *data) {
  err_check(e, param >= 0 && param < on->f->n_params, "parameter %d of %d", param, (int)on->f->n_params);
  dev_upload(on->d, own_memory(on, param), data, (size_t)on->f->param[param].bytes);
}

typedef struct {
  NetworkOn *on;
  Err *e;
  int param;
  void *made;
} Make;
static void make_and_upload(void *arg) {
  const Make *m = arg;
  form_make(m->e, &m->on->f->param[m->param], m->made);
  network_replace(m->on, m->e, m->param, m->made);
}
static void make_form(NetworkOn *on, Err *e, int param) {
  const GraphParam *p = &on->f->param[param];
  Make m = {on, e, param, NULL};
  if (dev_type(on->d) == DEV_CPU) {
    form_make(e, p, own_memory(on, param));
    return;
  }
  m.made = mem_alloc(e, (size_t)p->bytes + 1);
  ErrCode c = err_try(e, make_and_upload, &m);
  free(m.made);
  if (c != NS_OK) err_rethrow(e, c);
}

static void place(void *arg) {
  const Place *p = arg;
  NetworkOn *on = p->on;
  const NetworkFile *f = on->f;
  on->module = mem_alloc(p->e, sizeof *on->module * (size_t)(f->c->n_programs + 1));
  on->weight = mem_alloc(p->e, sizeof *on->weight * (size_t)(f->g->n_entries + 1));
  on->own = mem_alloc(p->e, sizeof *on->own * (size_t)(f->n_params + 1));
  for (int i = 0; i < f->c->n_programs; i++) {
    const StoredProgram *s = &f->c->program[i];
    on->module[i] = dev_load(on->d, s->binary, s->n_binary, s->manifest);
  }
  for (int i = 0; i < f->n_params; i++) {
    void *data = (void *)(uintptr_t)f->param[i].data; /* only read */
    if (f->param[i].form)
      make_form(on, p->e, i);
    else if (p->in_place && dev_type(on->d) == DEV_CPU && (uintptr_t)data % PROGRAM_ALIGN == 0)
      on->weight[f->entry[i]] = data;
    else
      network_replace(on, p->e, i, data);
  }
}

static void place_undo(void *arg) { network_remove(((Place *)arg)->on); }

NetworkOn *network_place(Err *e, const NetworkFile *f, Device *d, bool in_place) {
  NetworkOn *on = mem_alloc(e, sizeof *on);
  *on = (NetworkOn){.f = f, .d = d};
  err_guard(e, place, place_undo, &(Place){on, e, in_place});
  return on;
}

void network_remove(NetworkOn *on) {
  if (!on) return;
  for (int i = 0; on->own && i < on->f->n_params; i++) dev_free(on->d, on->own[i]);
  for (int i = 0; on->module && i < on->f->c->n_programs; i++) dev_unload(on->module[i]);
  free(on->own);
  free(on->weight);
  free(on->module);
  free(on);
}

int64_t network_weight_bytes(const NetworkOn *on) { return on->bytes; }

GraphExec *network_exec_new(Err *e, const NetworkOn *on, const DevThreads *threads) {
  return graph_exec_new(e, on->f->g, on->d, find, (void *)(uintptr_t)on, &(GraphShared){on->weight, threads});
}

/* ---- all of it for one owner ---- */
struct Network {
  Err *e;
  Arena *a;
  Device *d;
  const NetworkFile *f;
  NetworkOn *on;
  GraphExec *x;
};
typedef struct {
  Network *n;
  const void *library;
  size_t size;
  const char *what;
} Load;

static void load(void *arg) {
  const Load *l = arg;
  Network *n = l->n;
  n->a = arena_new(n->e);
  n->f = network_read(n->a, l->library, l->size, l->what);
  n->on = network_place(n->e, n->f, n->d, false);
  n->x = network_exec_new(n->e, n->on, NULL);
}
static void load_undo(void *arg) { network_free(((Load *)arg)->n); }

Network *network_load(Err *e, Device *d, const void *library, size_t size, const char *what) {
  Network *n = mem_alloc(e, sizeof *n);
  *n = (Network){.e = e, .d = d};
  err_guard(e, load, load_undo, &(Load){n, library, size, what});
  return n;
}

void network_free(Network *n) {
  if (!n) return;
  graph_exec_free(n->x);
  network_remove(n->on);
  arena_free(n->a);
  free(n);
}

GraphExec *network_exec(const Network *n) { return n->x; }
const Graph *network_graph(const Network *n) { return n->f->g; }
int network_input(const Network *n, const char *name) { return network_entry(n->f, name); }

void network_set(Network *n, const char *name, const void *data, size_t bytes) {
  int entry = need_entry(n->e, n->f, name);
  check_size(n->e, n->f, entry, bytes);
  dev_upload(n->d, graph_exec_data(n->x, entry), data, bytes);
  graph_exec_given(n->x, entry);
}

void network_get(Network *n, int output, void *data, size_t bytes) {
  const Graph *g = n->f->g;
  if (output < 0 || output >= g->n_heads) err_raise(n->e, NS_ERR_VALUE, "output %d of %d", output, (int)g->n_heads);
  const GraphEntry *en = &g->entry[g->head[output]];
  if (en->bytes != (int64_t)bytes)
    err_raise(n->e, NS_ERR_VALUE, "output %d has %lld bytes, %zu were asked for", output, (long long)en->bytes, bytes);
  graph_exec_claim(n->x);
  dev_download(n->d, data, graph_exec_data(n->x, g->head[output]), bytes);
}
