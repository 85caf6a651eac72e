/* The stored form of a network, version 1: the line "nestsmith library 1", a line with the length and the SHA-256 of what
 * follows, then 8 bytes with the length of a JSON text, that text, and the raw sections whose sizes it tells: the graph file,
 * the parameter file, and of every program source, manifest and binary. In a library it is the variable nestsmith_graph_data.
 * Files may be damaged or made by anybody: every length is compared with what is left. */
#include "base/object.h"
#include "program/program.h"
#include <cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[] = "nestsmith library 1\n";
enum { HASH = 64, MAX_LINE = 128 };

/* ---- writing ---- */
void container_write(StrBuf *out, const Container *c) {
  Arena *a = out->arena;
  StrBuf head, body;
  sb_init(&head, a);
  sb_init(&body, a);
  sb_puts(&head, "{\"name\":");
  sb_json(&head, c->name);
  sb_puts(&head, ",\"target\":");
  sb_json(&head, c->target);
  sb_printf(&head, ",\"graph\":%zu,\"params\":%zu,\"kernels\":[", strlen(c->graph), c->n_params);
  for (int i = 0; i < c->n_programs; i++) {
    const StoredProgram *p = &c->program[i];
    sb_puts(&head, i ? ",[" : "[");
    sb_json(&head, p->name);
    sb_printf(&head, ",%zu,%zu,%zu]", strlen(p->source), strlen(p->manifest), p->n_binary);
  }
  sb_puts(&head, "],\"inputs\":[");
  for (int i = 0; i < c->n_inputs; i++) {
    if (i) sb_putc(&head, ',');
    sb_json(&head, c->input[i]);
  }
  sb_puts(&head, "]}");
  for (int i = 0; i < 8; i++) sb_putc(&body, (char)((uint64_t)head.len >> (8 * i) & 255));
  sb_write(&body, head.at, head.len);
  sb_puts(&body, c->graph);
  sb_write(&body, c->params, c->n_params);
  for (int i = 0; i < c->n_programs; i++) {
    const StoredProgram *p = &c->program[i];
    sb_puts(&body, p->source);
    sb_puts(&body, p->manifest);
    sb_write(&body, p->binary, p->n_binary);
  }
  char hash[HASH + 1];
  sha256_hex(body.at, body.len, hash);
  sb_printf(out, "%s%zu %s\n", MAGIC, body.len, hash);
  sb_write(out, body.at, body.len);
}

/* ---- reading ---- */
typedef struct {
  Arena *a;
  const char *what, *at, *end;
  char *text;
  cJSON *head;
  Container *out;
} Read;

static NS_NORETURN void damaged(const Read *r, const char *why) {
  err_raise(arena_err(r->a), NS_ERR_VALUE, "%s is damaged: %s", r->what, why);
}

static const char *take(Read *r, const cJSON *size) {
  double n = cJSON_IsNumber(size) ? size->valuedouble : -1;
  if (!(n >= 0 && n <= (double)(r->end - r->at)) || n != (double)(size_t)n) damaged(r, "it ends inside a section");
  const char *p = r->at;
  r->at += (size_t)n;
  return p;
}

static const char *take_text(Read *r, const cJSON *size) {
  const char *p = take(r, size);
  return arena_strndup(r->a, p, (size_t)(r->at - p));
}

static const char *string(const Read *r, const cJSON *v) {
  if (!cJSON_IsString(v)) damaged(r, "its description makes no sense");
  return arena_strdup(r->a, v->valuestring);
}

static const cJSON *field(const Read *r, const char *name) { return cJSON_GetObjectItemCaseSensitive(r->head, name); }

static const cJSON *list(const Read *r, const char *name, int32_t *n) {
  const cJSON *v = field(r, name);
  if (!cJSON_IsArray(v)) damaged(r, "its description makes no sense");
  *n = cJSON_GetArraySize(v);
  return v;
}

static void read_sections(void *arg) {
  Read *r = arg;
  Container *c = r->out = arena_new_of(r->a, Container);
  r->head = json_parse(arena_err(r->a), r->text);
  c->name = string(r, field(r, "name"));
  c->target = string(r, field(r, "target"));
  c->graph = take_text(r, field(r, "graph"));
  c->params = take(r, field(r, "params"));
  c->n_params = (size_t)(r->at - (const char *)c->params);
  const cJSON *programs = list(r, "kernels", &c->n_programs), *inputs = list(r, "inputs", &c->n_inputs), *o;
  StoredProgram *p = c->program = arena_array(r->a, StoredProgram, c->n_programs);
  const char **in = c->input = arena_array(r->a, const char *, c->n_inputs);
  cJSON_ArrayForEach(o, programs) {
    p->name = string(r, cJSON_GetArrayItem(o, 0));
    p->source = take_text(r, cJSON_GetArrayItem(o, 1));
    p->manifest = take_text(r, cJSON_GetArrayItem(o, 2));
    const char *binary = take(r, cJSON_GetArrayItem(o, 3));
    p->n_binary = (size_t)(r->at - binary);
    p++->binary = r->at > binary ? binary : NULL;
  }
  cJSON_ArrayForEach(o, inputs) *in++ = string(r, o);
}

/* The payload, if its length and its checksum are right. */
static bool open_payload(Read *r, const char *data, size_t n) {
  char line[MAX_LINE], found[HASH + 1], hash[HASH + 1];
  const char *end = memchr(data, '\n', n < MAX_LINE - 1 ? n : MAX_LINE - 1);
  uint64_t size;
  if (!end) return false;
  snprintf(line, sizeof line, "%.*s", (int)(end - data), data);
  if (sscanf(line, "%" SCNu64 " %64[0-9a-f]", &size, found) != 2 || size != n - (size_t)(end + 1 - data) || size < 8)
    return false;
  sha256_hex(end + 1, (size_t)size, hash);
  if (strcmp(hash, found) != 0) return false;
  r->at = end + 1;
  r->end = r->at + size;
  return true;
}

Container *container_read(Arena *a, const void *data, size_t n, const char *what) {
  Read r = {.a = a, .what = what};
  const size_t magic = sizeof MAGIC - 1;
  if (n < magic || memcmp(data, MAGIC, magic) != 0)
    err_raise(arena_err(a), NS_ERR_VALUE, "%s holds no network of this version of the package", what);
  if (!open_payload(&r, (const char *)data + magic, n - magic)) damaged(&r, "its checksum is wrong");
  uint64_t size = 0;
  for (int i = 0; i < 8; i++) size |= (uint64_t)(unsigned char)*r.at++ << (8 * i);
  if (size > (uint64_t)(r.end - r.at)) damaged(&r, "it ends inside its description");
  r.text = arena_strndup(a, r.at, (size_t)size);
  r.at += size;
  json_with(arena_err(a), read_sections, &r, &r.head);
  return r.out;
}

const void *container_find(const void *library, size_t n, size_t *size) {
  size_t told_bytes, len;
  const unsigned char *text = object_variable(library, n, "nestsmith_graph_size", &told_bytes);
  const char *data = object_variable(library, n, "nestsmith_graph_data", &len);
  uint64_t told = 0;
  if (!text || !data || told_bytes < sizeof told) return NULL;
  memcpy(&told, text, sizeof told);
  *size = (size_t)told;
  return told <= n - (size_t)(data - (const char *)library) ? data : NULL;
}
