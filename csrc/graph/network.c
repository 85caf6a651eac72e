/* A network that export_library wrote, from the bytes of its library to an executor on a device: with base, program, device
 * and graph alone. Its programs must be for this device and processor: nothing is compiled here. */
#include "graph/graph.h"
#include <stdlib.h>
#include <string.h>

struct Network {
  Err *e;
  Arena *a;
  Device *d;
  Graph *g;
  GraphExec *x;
  const Container *c;
  DevModule **module; /* one per program */
};

typedef struct {
  Network *n;
  const void *library;
  size_t size;
  const char *what;
} Load;

static DevModule *find(void *env, const char *func) {
  const Network *n = env;
  for (int i = 0; i < n->c->n_programs; i++)
    if (strcmp(n->c->program[i].name, func) == 0) return n->module[i];
  return NULL;
}

void network_set(Network *n, const char *name, const void *data, size_t bytes) {
  int entry = network_input(n, name);
  if (entry < 0) err_raise(n->e, NS_ERR_VALUE, "the network has no input '%s'", name);
  if (n->g->entry[entry].bytes != (int64_t)bytes)
    err_raise(n->e, NS_ERR_VALUE, "input '%s' has %lld bytes, %zu were given", name,
              (long long)n->g->entry[entry].bytes, bytes);
  dev_upload(n->d, graph_exec_data(n->x, entry), data, bytes);
  graph_exec_given(n->x, entry);
}

static void load(void *arg) {
  Load *l = arg;
  Network *n = l->n;
  size_t size;
  int count;
  n->a = arena_new(n->e);
  const void *stored = container_find(l->library, l->size, &size);
  if (!stored) err_raise(n->e, NS_ERR_VALUE, "%s holds no network", l->what);
  n->c = container_read(n->a, stored, size, l->what);
  n->module = arena_array(n->a, DevModule *, n->c->n_programs);
  for (int i = 0; i < n->c->n_programs; i++) {
    const StoredProgram *p = &n->c->program[i];
    if (!p->binary) err_raise(n->e, NS_ERR_VALUE, "%s: program %s was not compiled", l->what, p->name);
    n->module[i] = dev_load(n->d, p->binary, p->n_binary, p->manifest);
  }
  n->g = graph_parse(n->a, n->c->graph);
  n->x = graph_exec_new(n->e, n->g, n->d, find, n);
  const GraphParam *p = params_read(n->a, n->c->params, n->c->n_params, &count);
  for (int i = 0; i < count; i++) network_set(n, p[i].name, p[i].data, (size_t)p[i].bytes);
}

Network *network_load(Err *e, Device *d, const void *library, size_t size, const char *what) {
  Network *n = mem_alloc(e, sizeof *n);
  *n = (Network){.e = e, .d = d};
  ErrCode c = err_try(e, load, &(Load){n, library, size, what});
  if (c == NS_OK) return n;
  network_free(n);
  err_rethrow(e, c);
}

void network_free(Network *n) {
  if (!n) return;
  graph_exec_free(n->x);
  for (int i = 0; n->module && i < n->c->n_programs; i++) dev_unload(n->module[i]);
  arena_free(n->a);
  free(n);
}

GraphExec *network_exec(const Network *n) { return n->x; }
const Graph *network_graph(const Network *n) { return n->g; }

int network_input(const Network *n, const char *name) {
  for (int k = 0; k < n->g->n_nodes; k++)
    if (n->g->node[k].kind == GN_NULL && strcmp(n->g->node[k].name, name) == 0) return n->g->node[k].first;
  return -1;
}

void network_get(Network *n, int output, void *data, size_t bytes) {
  if (output < 0 || output >= n->g->n_heads)
    err_raise(n->e, NS_ERR_VALUE, "output %d of %d", output, (int)n->g->n_heads);
  const GraphEntry *en = &n->g->entry[n->g->head[output]];
  if (en->bytes != (int64_t)bytes)
    err_raise(n->e, NS_ERR_VALUE, "output %d has %lld bytes, %zu were asked for", output, (long long)en->bytes, bytes);
  graph_exec_claim(n->x);
  dev_download(n->d, data, graph_exec_data(n->x, n->g->head[output]), bytes);
}
