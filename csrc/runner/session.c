/* What a runner can be asked: a table of operations over a table of handles. Every operation reads its fields from the
 * request's JSON, does its work or raises, and writes the fields of its reply. Nothing is believed: a handle is looked up, a
 * tensor is compared with what the program wants of its argument. */
#include "base/object.h"
#include "measure/measure.h"
#include "runner/runner.h"
#include <cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

static const int64_t LAST_HANDLE = (int64_t)1 << 52; /* numbers in JSON are exact so far */
typedef enum { H_NONE, H_TENSOR, H_MODULE, H_GRAPH } HandleKind;
enum {
  DEVICE_TYPES = 5,
  DEVICE_IDS = 16,
  MOST_HANDLES = 1 << 20,
  /* at a time */ MOST_RUNS = 1000000,
  ZERO_LIMIT = 100
};
typedef struct {
  Device *d;
  void *p;
  size_t bytes;
} Tensor;
typedef struct {
  void *image; /* the file; programs point into it */
  size_t n;
  Arena *a;
  const Container *network; /* NULL: an operator */
  const char *manifest;     /* of an operator */
  const void *binary;
  size_t n_binary;
  int users; /* graphs made of it */
} Module;
typedef struct {
  Network *net;
  Device *d;
  Module *of;
} Running;
/* A place in the table is used again; its number is not: what is let go of names nothing else later. */
typedef struct {
  HandleKind kind;
  int64_t number; /* of what is or was here; place + k * MOST_HANDLES */
  int next;       /* the free place after this one */
  void *p;
  Tensor tensor; /* here p points to it */
} Handle;
struct RunnerSession {
  Err *e;
  int dir;
  Arena *a, *keep; /* of the request; as long as the session */
  VEC(Handle *) handle;
  int free; /* 1 + the first free place; 0: none */
  Device *dev[DEVICE_TYPES][DEVICE_IDS];
  void *reply_data; /* what the last reply carried */
  bool ended;
};

typedef struct {
  RunnerSession *s;
  Err *e;
  const Frame *in;
  const cJSON *q;
  StrBuf *out;
  const void *data;
  size_t n;
} Ask;

/* ---- fields of a request ---- */
static const char *text_of(const Ask *x, const char *field) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(x->q, field);
  if (!cJSON_IsString(v)) err_raise(x->e, NS_ERR_VALUE, "\"%s\" is missing or no text", field);
  return v->valuestring;
}

static int64_t whole(const Ask *x, const cJSON *v, const char *field, int64_t lo, int64_t hi) {
  if (!json_whole(v, lo, hi))
    err_raise(x->e, NS_ERR_VALUE, "\"%s\" is no whole number from %lld to %lld", field, (long long)lo, (long long)hi);
  return (int64_t)v->valuedouble;
}

static int64_t number_of(const Ask *x, const char *field, int64_t lo, int64_t hi) {
  return whole(x, cJSON_GetObjectItemCaseSensitive(x->q, field), field, lo, hi);
}

static int64_t number_or(const Ask *x, const char *field, int64_t missing, int64_t lo, int64_t hi) {
  return cJSON_GetObjectItemCaseSensitive(x->q, field) ? number_of(x, field, lo, hi) : missing;
}

/* ---- handles and devices ---- */
static void check_room(const Ask *x) {
  if (!x->s->free && x->s->handle.len == MOST_HANDLES)
    err_raise(x->e, NS_ERR_VALUE, "a session has at most %d handles at a time; drop some", MOST_HANDLES);
}

/* p: what it names; NULL: its tensor. */
static Handle *add_handle(Ask *x, HandleKind kind, void *p) {
  RunnerSession *s = x->s;
  Handle *h;
  check_room(x);
  if (s->free) {
    h = s->handle.at[s->free - 1];
    s->free = h->next;
    h->number += MOST_HANDLES;
  } else {
    h = arena_new_of(s->keep, Handle);
    vec_push(s->keep, &s->handle, h);
    h->number = s->handle.len;
  }
  h->kind = kind;
  h->p = p ? p : &h->tensor;
  return h;
}

static Handle *find_handle(const Ask *x, const cJSON *v, const char *field) {
  int64_t k = whole(x, v, field, 1, LAST_HANDLE);
  int place = (int)((k - 1) % MOST_HANDLES);
  Handle *h = place < x->s->handle.len ? x->s->handle.at[place] : NULL;
  return h && h->kind != H_NONE && h->number == k ? h : NULL;
}

static void *handle_at(const Ask *x, const cJSON *v, const char *field, HandleKind kind) {
  Handle *h = find_handle(x, v, field);
  if (!h || h->kind != kind)
    err_raise(x->e, NS_ERR_VALUE, "\"%s\": this session has no such handle of that kind", field);
  return h->p;
}

static void *handle_of(const Ask *x, const char *field, HandleKind kind) {
  return handle_at(x, cJSON_GetObjectItemCaseSensitive(x->q, field), field, kind);
}

static Device *device_of(const Ask *x) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(x->q, "device");
  if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) != 2) err_raise(x->e, NS_ERR_VALUE, "\"device\" is [type, number]");
  int64_t type = whole(x, cJSON_GetArrayItem(v, 0), "device", DEV_CPU, DEV_OPENCL);
  int64_t id = whole(x, cJSON_GetArrayItem(v, 1), "device", 0, DEVICE_IDS - 1);
  Device **d = &x->s->dev[type][id];
  if (!*d) *d = dev_open(x->e, (DevType)type, (int)id);
  return *d;
}

/* ---- what there is ---- */
/* Between the elements of a list. */
static void next(StrBuf *b) {
  if (b->at[b->len - 1] != '[') sb_putc(b, ',');
}

static void tell_device(Ask *x, DevType t, int id) {
  DevInfo i;
  if (!dev_query(t, id, &i)) return;
  next(x->out);
  sb_printf(x->out, "{\"type\":%d,\"id\":%d,\"name\":", (int)t, id);
  sb_json(x->out, i.name);
  sb_printf(x->out, ",\"clock_khz\":%d,\"driver\":%d,\"sm\":%d,\"max_threads_per_block\":%d", i.clock_khz,
            i.driver_version, i.sm, i.max_threads_per_block);
  sb_printf(x->out, ",\"max_dims\":[%d,%d,%d],\"max_shared_per_block\":%lld,\"warp_size\":%d,\"multiprocessors\":%d",
            i.max_dims[0], i.max_dims[1], i.max_dims[2], (long long)i.max_shared_per_block, i.warp_size,
            i.multiprocessors);
  sb_printf(x->out, ",\"total_bytes\":%lld,\"l2_bytes\":%lld}", (long long)i.total_bytes, (long long)i.l2_bytes);
}

static void op_hello(Ask *x) {
  static const DevType TYPES[] = {DEV_CPU, DEV_CUDA, DEV_OPENCL};
  struct utsname u;
  sb_printf(x->out, ",\"version\":%d,\"machine\":", RUNNER_VERSION);
  sb_json(x->out, uname(&u) == 0 ? u.machine : "");
  sb_puts(x->out, ",\"devices\":[");
  for (int t = 0; t < NS_COUNT(TYPES); t++)
    for (int id = 0; id < DEVICE_IDS && dev_exists(TYPES[t], id, (char[512]){0}, 512); id++)
      tell_device(x, TYPES[t], id);
  sb_puts(x->out, "]");
}

static void op_bye(Ask *x) { x->s->ended = true; }

/* ---- files ---- */
static void op_put(Ask *x) { files_put(x->e, x->s->dir, text_of(x, "name"), x->in->data, x->in->n); }

static void op_get(Ask *x) { x->data = x->s->reply_data = files_get(x->e, x->s->dir, text_of(x, "name"), &x->n); }

static void op_del(Ask *x) { files_del(x->e, x->s->dir, text_of(x, "name")); }

static void tell_file(void *arg, const char *name, int64_t bytes) {
  StrBuf *b = arg;
  next(b);
  sb_putc(b, '[');
  sb_json(b, name);
  sb_printf(b, ",%lld]", (long long)bytes);
}

static void op_list(Ask *x) {
  sb_puts(x->out, ",\"files\":[");
  files_each(x->s->dir, tell_file, x->out);
  sb_putc(x->out, ']');
}

/* ---- tensors ---- */
static void op_alloc(Ask *x) {
  Device *d = device_of(x);
  size_t bytes = (size_t)number_of(x, "bytes", 0, (int64_t)1 << 46);
  check_room(x);
  Tensor t = {d, dev_alloc(d, bytes ? bytes : 1), bytes};
  Handle *h = add_handle(x, H_TENSOR, NULL);
  h->tensor = t;
  dev_fill(d, t.p, 0, bytes);
  sb_printf(x->out, ",\"tensor\":%lld", (long long)h->number);
}

static void op_fill(Ask *x) {
  Tensor *t = handle_of(x, "tensor", H_TENSOR);
  dev_fill(t->d, t->p, (int)number_of(x, "byte", 0, 255), t->bytes);
}

static void op_write(Ask *x) {
  Tensor *t = handle_of(x, "tensor", H_TENSOR);
  if (t->bytes != x->in->n)
    err_raise(x->e, NS_ERR_VALUE, "the tensor has %zu bytes, %zu were sent", t->bytes, x->in->n);
  dev_upload(t->d, t->p, x->in->data, x->in->n);
  dev_sync(t->d);
}

static void *reply_room(Ask *x, size_t n) {
  if (n > RUNNER_PAYLOAD) err_raise(x->e, NS_ERR_VALUE, "%zu bytes are more than one reply carries", n);
  x->s->reply_data = mem_alloc(x->e, n + 1);
  x->data = x->s->reply_data;
  x->n = n;
  return x->s->reply_data;
}

static void op_read(Ask *x) {
  Tensor *t = handle_of(x, "tensor", H_TENSOR);
  dev_download(t->d, reply_room(x, t->bytes), t->p, t->bytes);
}

static void op_sync(Ask *x) { dev_sync(device_of(x)); }
static void op_flush(Ask *x) { dev_flush(device_of(x)); }

/* ---- modules ---- */
static size_t base64(const char *s, unsigned char *out) {
  static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t v = 0;
  int bits = 0;
  size_t n = 0;
  for (; *s; s++) {
    const char *at = strchr(DIGITS, *s);
    if (!at) continue;
    v = v << 6 | (uint32_t)(at - DIGITS);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out[n++] = (unsigned char)(v >> bits);
    v &= (1u << bits) - 1;
  }
  return n;
}

/* The JSON text that OperatorModule.export_library puts into a library; NULL: there is none. */
static const char *blob_of(Module *m) {
  size_t told, room;
  uint64_t size = 0;
  const void *at = object_variable(m->image, m->n, "nestsmith_blob_size", &told);
  const char *text = object_variable(m->image, m->n, "nestsmith_blob", &room);
  if (!at || !text || told < sizeof size) return NULL;
  memcpy(&size, at, sizeof size);
  return size <= room ? arena_strndup(m->a, text, (size_t)size) : NULL;
}

typedef struct {
  Ask *x;
  Module *m;
  const char *name;
  cJSON *root;
} Load;

static void read_operator(Load *l, const char *blob) {
  l->root = json_parse(l->x->e, blob);
  const cJSON *manifest = cJSON_GetObjectItemCaseSensitive(l->root, "manifest");
  const cJSON *binary = cJSON_GetObjectItemCaseSensitive(l->root, "binary");
  if (!cJSON_IsString(manifest)) err_raise(l->x->e, NS_ERR_VALUE, "'%s' holds no program that can run", l->name);
  l->m->manifest = arena_strdup(l->m->a, manifest->valuestring);
  l->m->binary = l->m->image;
  l->m->n_binary = l->m->n;
  if (!cJSON_IsString(binary)) return;
  unsigned char *bytes = arena_alloc(l->m->a, strlen(binary->valuestring) + 4);
  l->m->n_binary = base64(binary->valuestring, bytes);
  l->m->binary = bytes;
}

static void load_body(void *arg) {
  Load *l = arg;
  Module *m = l->m;
  size_t size;
  m->image = files_get(l->x->e, l->x->s->dir, l->name, &m->n);
  m->a = arena_new(l->x->e);
  const void *stored = container_find(m->image, m->n, &size);
  const char *blob = stored ? NULL : blob_of(m);
  if (stored)
    m->network = container_read(m->a, stored, size, l->name);
  else if (blob)
    read_operator(l, blob);
  else
    err_raise(l->x->e, NS_ERR_VALUE, "'%s' is no library that export_library wrote", l->name);
}

static void module_free(Module *m) {
  arena_free(m->a);
  free(m->image);
}

static void tell_text(Ask *x, const char *s) {
  next(x->out);
  sb_json(x->out, s);
}

static void op_load(Ask *x) {
  Load l = {x, arena_new_of(x->s->keep, Module), text_of(x, "name"), NULL};
  ErrCode c = err_try(x->e, load_body, &l);
  cJSON_Delete(l.root);
  if (c != NS_OK) {
    module_free(l.m);
    err_rethrow(x->e, c);
  }
  const Container *net = l.m->network;
  sb_printf(x->out, ",\"module\":%lld,\"kind\":\"%s\"", (long long)add_handle(x, H_MODULE, l.m)->number,
            net ? "network" : "operator");
  if (net) {
    sb_puts(x->out, ",\"name\":");
    sb_json(x->out, net->name);
    sb_puts(x->out, ",\"functions\":[");
    for (int i = 0; i < net->n_programs; i++) tell_text(x, net->program[i].name);
    sb_puts(x->out, "],\"original\":[");
    for (int i = 0; i < net->n_inputs; i++) tell_text(x, net->input[i]);
    sb_puts(x->out, "]");
    return;
  }
  const Manifest *man = man_parse(x->s->a, l.m->manifest);
  sb_puts(x->out, ",\"functions\":[");
  sb_json(x->out, man->name ? man->name : man->entry);
  sb_puts(x->out, "]");
}

typedef struct {
  const void *binary;
  size_t n;
  const char *manifest;
} Function;

static Function find_function(const Ask *x) {
  const Module *m = handle_of(x, "module", H_MODULE);
  if (!m->network) return (Function){m->binary, m->n_binary, m->manifest};
  const char *entry = text_of(x, "entry");
  for (int i = 0; i < m->network->n_programs; i++) {
    const StoredProgram *p = &m->network->program[i];
    if (strcmp(p->name, entry) != 0) continue;
    if (!p->binary) err_raise(x->e, NS_ERR_VALUE, "program %s was not compiled", entry);
    return (Function){p->binary, p->n_binary, p->manifest};
  }
  err_raise(x->e, NS_ERR_VALUE, "the module has no function '%s'", entry);
}

static void op_manifest(Ask *x) {
  sb_puts(x->out, ",\"manifest\":");
  sb_json(x->out, find_function(x).manifest);
}

/* ---- running a function ---- */
typedef struct {
  Ask *x;
  DevModule *m;
  void **args;
  Device *d;
  int number;
  bool flush;
  double seconds;
} Call;

static void prepare(Call *c) {
  Ask *x = c->x;
  const cJSON *list = cJSON_GetObjectItemCaseSensitive(x->q, "args");
  int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
  if (n < 1) err_raise(x->e, NS_ERR_VALUE, "\"args\" is a list of tensors");
  Tensor **t = arena_array(x->s->a, Tensor *, n);
  c->args = arena_array(x->s->a, void *, n);
  for (int i = 0; i < n; i++) {
    t[i] = handle_at(x, cJSON_GetArrayItem(list, i), "args", H_TENSOR);
    c->args[i] = t[i]->p;
    if (t[i]->d != t[0]->d) err_raise(x->e, NS_ERR_VALUE, "argument %d lies on another device than the first", i);
  }
  c->d = t[0]->d;
  Function f = find_function(x);
  c->m = dev_load(c->d, f.binary, f.n, f.manifest);
  const Manifest *man = dev_manifest(c->m);
  if (man->n_args != n) err_raise(x->e, NS_ERR_VALUE, "the program has %d arguments, %d were given", man->n_args, n);
  for (int i = 0; i < n; i++)
    if ((int64_t)t[i]->bytes != man->arg[i].bytes)
      err_raise(x->e, NS_ERR_VALUE, "argument %d (%s) has %lld bytes in the program, the tensor has %zu", i,
                man->arg[i].name, (long long)man->arg[i].bytes, t[i]->bytes);
}

static void run_body(void *arg) {
  Call *c = arg;
  prepare(c);
  dev_run(c->m, c->args);
  dev_sync(c->d);
}

static void time_body(void *arg) {
  Call *c = arg;
  prepare(c);
  c->seconds = dev_time(c->m, c->args, c->number, c->flush);
}

static void unload(void *m) { dev_unload(m); }

static void call(Ask *x, ErrBody body, Call *c) {
  ErrCode r = err_try(x->e, body, c);
  char msg[ERR_MSG_MAX];
  memcpy(msg, x->e->msg, sizeof msg);
  if (c->m && err_try(x->e, unload, c->m) != NS_OK && r == NS_OK) err_rethrow(x->e, x->e->code);
  if (r != NS_OK) err_raise(x->e, r, "%s", msg);
}

static void op_run(Ask *x) { call(x, run_body, &(Call){.x = x}); }

static Call timing(Ask *x) {
  return (Call){.x = x,
                .number = (int)number_or(x, "number", 1, 1, MOST_RUNS),
                .flush = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(x->q, "flush"))};
}

static void op_time(Ask *x) {
  Call c = timing(x);
  call(x, time_body, &c);
  sb_printf(x->out, ",\"seconds\":%.17g", c.seconds);
}

/* ---- networks ---- */
static void tell_entry(Ask *x, const Graph *g, int entry, const char *name) {
  const GraphEntry *en = &g->entry[entry];
  next(x->out);
  sb_puts(x->out, "{\"name\":");
  sb_json(x->out, name);
  sb_puts(x->out, ",\"dtype\":");
  sb_json(x->out, en->dtype);
  sb_puts(x->out, ",\"shape\":[");
  for (int i = 0; i < en->rank; i++) next(x->out), sb_printf(x->out, "%lld", (long long)en->shape[i]);
  sb_puts(x->out, "]}");
}

static void op_graph(Ask *x) {
  Module *m = handle_of(x, "module", H_MODULE);
  if (!m->network) err_raise(x->e, NS_ERR_VALUE, "the module is a single operator, not a network");
  Running *r = arena_new_of(x->s->keep, Running);
  *r = (Running){NULL, device_of(x), m};
  r->net = network_load(x->e, r->d, m->image, m->n, "the module");
  m->users++;
  sb_printf(x->out, ",\"graph\":%lld,\"inputs\":[", (long long)add_handle(x, H_GRAPH, r)->number);
  const Graph *g = network_graph(r->net);
  for (int i = 0; i < g->n_nodes; i++)
    if (g->node[i].kind == GN_NULL) tell_entry(x, g, g->node[i].first, g->node[i].name);
  sb_puts(x->out, "],\"outputs\":[");
  for (int i = 0; i < g->n_heads; i++) tell_entry(x, g, g->head[i], "");
  sb_puts(x->out, "],\"params\":[");
  for (int i = 0; i < m->network->n_weights; i++) tell_text(x, m->network->weight[i].name);
  sb_puts(x->out, "]");
}

static void op_set(Ask *x) {
  Running *r = handle_of(x, "graph", H_GRAPH);
  network_set(r->net, text_of(x, "name"), x->in->data, x->in->n);
  dev_sync(r->d);
}

static void op_input(Ask *x) {
  Running *r = handle_of(x, "graph", H_GRAPH);
  const char *name = text_of(x, "name");
  int entry = network_input(r->net, name);
  if (entry < 0) err_raise(x->e, NS_ERR_VALUE, "the network has no input '%s'", name);
  size_t bytes = (size_t)network_graph(r->net)->entry[entry].bytes;
  dev_download(r->d, reply_room(x, bytes), graph_exec_data(network_exec(r->net), entry), bytes);
}

static void op_unset(Ask *x) {
  char names[1500];
  Running *r = handle_of(x, "graph", H_GRAPH);
  graph_exec_unset(network_exec(r->net), names, sizeof names);
  sb_puts(x->out, ",\"names\":");
  sb_json(x->out, names);
}

static void op_start(Ask *x) {
  Running *r = handle_of(x, "graph", H_GRAPH);
  graph_exec_run(network_exec(r->net));
  dev_sync(r->d);
}

static void op_output(Ask *x) {
  Running *r = handle_of(x, "graph", H_GRAPH);
  const Graph *g = network_graph(r->net);
  int k = (int)number_of(x, "index", 0, g->n_heads - 1);
  size_t bytes = (size_t)g->entry[g->head[k]].bytes;
  network_get(r->net, k, reply_room(x, bytes), bytes);
}

static void op_time_graph(Ask *x) {
  Call c = timing(x);
  Running *r = handle_of(x, "graph", H_GRAPH);
  sb_printf(x->out, ",\"seconds\":%.17g", graph_exec_time(network_exec(r->net), c.number, c.flush));
}

/* ---- letting go ---- */
static void handle_free(Handle *h) {
  if (h->kind == H_TENSOR) {
    Tensor *t = h->p;
    dev_free(t->d, t->p);
  } else if (h->kind == H_GRAPH) {
    Running *r = h->p;
    network_free(r->net);
    r->of->users--;
  } else if (h->kind == H_MODULE) {
    module_free(h->p);
  }
  h->kind = H_NONE;
  h->p = NULL;
}

static void op_drop(Ask *x) {
  Handle *h = find_handle(x, cJSON_GetObjectItemCaseSensitive(x->q, "handle"), "handle");
  if (!h) err_raise(x->e, NS_ERR_VALUE, "this session has no such handle");
  if (h->kind == H_MODULE && ((Module *)h->p)->users)
    err_raise(x->e, NS_ERR_VALUE, "the module is used by %d networks; drop them first", ((Module *)h->p)->users);
  handle_free(h);
  h->next = x->s->free;
  x->s->free = 1 + (int)((h->number - 1) % MOST_HANDLES);
}

/* ---- requests ---- */
static const struct {
  const char *name;
  void (*answer)(Ask *x);
} OPS[] = {{"hello", op_hello}, {"put", op_put},       {"get", op_get},
           {"del", op_del},     {"list", op_list},     {"load", op_load},
           {"alloc", op_alloc}, {"fill", op_fill},     {"write", op_write},
           {"read", op_read},   {"free", op_drop},     {"run", op_run},
           {"time", op_time},   {"graph", op_graph},   {"set", op_set},
           {"input", op_input}, {"unset", op_unset},   {"manifest", op_manifest},
           {"start", op_start}, {"output", op_output}, {"time_graph", op_time_graph},
           {"sync", op_sync},   {"flush", op_flush},   {"drop", op_drop},
           {"bye", op_bye}};

static void answer(void *arg) {
  Ask *x = arg;
  if (!cJSON_IsObject(x->q)) err_raise(x->e, NS_ERR_VALUE, "a request is a JSON object");
  const char *op = text_of(x, "op");
  for (int i = 0; i < NS_COUNT(OPS); i++)
    if (strcmp(OPS[i].name, op) == 0) {
      OPS[i].answer(x);
      return;
    }
  err_raise(x->e, NS_ERR_VALUE, "there is no operation '%.60s'", op);
}

typedef struct {
  Ask *x;
  cJSON **root;
} Parse;
static void parse(void *arg) {
  Parse *p = arg;
  if (strlen(p->x->in->head) != p->x->in->n_head || strstr(p->x->in->head, "\\u0000"))
    err_raise(p->x->e, NS_ERR_VALUE, "a request holds no zero characters"); /* a name would end there */
  *p->root = json_parse(p->x->e, p->x->in->head);
  p->x->q = *p->root;
  answer(p->x);
}

static const char *error_name(ErrCode c) {
  return c == NS_ERR_VALUE || c == NS_ERR_TYPE ? "value"
         : c == NS_ERR_MEMORY                  ? "memory"
         : c == NS_ERR_IO                      ? "io"
                                               : "runtime";
}

bool runner_answer(RunnerSession *s, const Frame *request, char **reply, const void **data, size_t *n) {
  cJSON *root = NULL;
  arena_free(s->a);
  free(s->reply_data);
  s->reply_data = s->a = NULL;
  s->a = arena_new(s->e);
  StrBuf out;
  sb_init(&out, s->a);
  Ask x = {s, s->e, request, NULL, &out, NULL, 0};
  sb_puts(&out, "{\"ok\":true");
  ErrCode c = err_try(s->e, parse, &(Parse){&x, &root});
  cJSON_Delete(root);
  if (c != NS_OK) {
    sb_init(&out, s->a);
    sb_printf(&out, "{\"error\":\"%s\",\"msg\":", error_name(c));
    sb_json(&out, s->e->msg);
    x.n = 0;
  }
  sb_puts(&out, "}");
  *reply = sb_str(&out);
  *data = x.data;
  *n = x.n;
  return !s->ended;
}

typedef struct {
  RunnerSession *s;
  Err *e;
} Begin;
ERR_BODY(begin, Begin *b, b->s->keep = arena_new(b->e))

RunnerSession *runner_session(Err *e, int dir) {
  RunnerSession *s = mem_alloc(e, sizeof *s);
  s->e = e;
  s->dir = dir;
  ErrCode c = err_try(e, begin, &(Begin){s, e});
  if (c == NS_OK) return s;
  free(s);
  err_rethrow(e, c);
}

static void end_handle(void *h) { handle_free(h); }

void runner_end(RunnerSession *s) {
  for (int pass = 0; pass < 2; pass++) /* networks before the modules that they are made of */
    for (int i = 0; i < s->handle.len; i++)
      if (pass || s->handle.at[i]->kind != H_MODULE) err_try(s->e, end_handle, s->handle.at[i]);
  for (int t = 0; t < DEVICE_TYPES; t++)
    for (int i = 0; i < DEVICE_IDS; i++)
      if (s->dev[t][i]) dev_close(s->dev[t][i]);
  arena_free(s->a);
  arena_free(s->keep);
  free(s->reply_data);
  free(s);
}
