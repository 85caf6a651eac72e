/* The stored forms of a network. Files may be damaged or made by anybody: every length is compared with what is left.
 *
 * In a library, version 1, it is the variable nestsmith_graph_data. It begins with the line "nestsmith library 1" and a line with the
 * length and the SHA-256 of the rest. Then come 8 bytes with the length of a JSON text, and that text. The pieces whose sizes the text
 * tells follow: the graph file, the parameter file, and the source, manifest and binary of every program.
 *
 * A model file (.nsm), version 1: a header and four sections that begin at multiples of 4096 bytes, so that the file is used where it is
 * mapped. All numbers are little-endian.
 *     0  "NSMODEL\n"    8  u32 version    12  u32 number of sections    16  u64 length of the file
 *    24  u64 sum64 of the 24 bytes before it and the table behind it
 *    32  per section u64 where it begins, u64 bytes, u64 sum64
 *
 * The first section is the description, a JSON text. The second has texts: the graph file, then the source and manifest of each program.
 * The third has the binaries. A program may have several, and those that need more instructions come first. The fourth has the weights.
 * Binaries and weights begin at multiples of 64 bytes.
 *
 * Of a weight that is stored as the original, the description's list "forms" tells how its value is made: [number of the weight,
 * [points, taps, the numbers of G], shape before the layout, axis per dimension of the value]; without Winograd's transform the second is
 * an empty list. */
#include "base/object.h"
#include "program/program.h"
#include <cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[] = "nestsmith library 1\n", MODEL_MAGIC[] = "NSMODEL\n";
enum { HASH = 64, MAX_LINE = 128, MODEL_VERSION = 1, PAGE = 4096, HEAD = 32, ROW = 24 };
typedef enum { DESCRIPTION, TEXTS, CODE, WEIGHTS, SECTIONS } Section;

/* ---- writing ---- */
static void put(StrBuf *b, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) sb_putc(b, (char)(v >> (8 * i) & 255));
}
static void pad(StrBuf *b, size_t align) {
  while (b->len % align) sb_putc(b, 0);
}

static int levels_of(const StoredProgram *p) { return p->n_levels ? p->n_levels : 1; }
static StoredBinary level_of(const StoredProgram *p, int i) {
  return p->n_levels ? p->level[i] : (StoredBinary){p->binary, p->n_binary};
}

static void describe_weights(StrBuf *b, const Container *c) {
  for (int i = 0; i < c->n_weights; i++) {
    const GraphParam *w = &c->weight[i];
    sb_puts(b, i ? ",[" : "[");
    sb_json(b, w->name);
    sb_putc(b, ',');
    sb_json(b, w->dtype);
    for (int k = 0; k < w->rank; k++) sb_printf(b, ",%lld", (long long)w->shape[k]);
    sb_putc(b, ']');
  }
}

static void numbers(StrBuf *b, int n, const int64_t *of, const int32_t *of32) {
  sb_puts(b, ",[");
  for (int i = 0; i < n; i++) sb_printf(b, "%s%lld", i ? "," : "", of ? (long long)of[i] : (long long)of32[i]);
  sb_putc(b, ']');
}

static void describe_forms(StrBuf *b, const Container *c) {
  bool any = false;
  for (int i = 0; i < c->n_weights; i++) {
    const WeightForm *f = c->weight[i].form;
    if (!f) continue;
    sb_printf(b, "%s[%d,[", any ? "," : "", i);
    if (f->winograd.points) sb_printf(b, "%d,%d", (int)f->winograd.points, (int)f->winograd.taps);
    for (int k = 0; k < f->winograd.points * f->winograd.taps; k++) sb_printf(b, ",%.17g", f->winograd.g[k]);
    sb_putc(b, ']');
    numbers(b, f->layout.n_from, f->layout.from, NULL);
    numbers(b, f->layout.n, NULL, f->layout.axis);
    sb_putc(b, ']');
    any = true;
  }
}

/* params: bytes of the parameter file; in a model file weights are described one by one. */
static void describe(StrBuf *b, const Container *c, ContainerForm form, size_t params) {
  sb_puts(b, "{\"name\":");
  sb_json(b, c->name);
  sb_puts(b, ",\"target\":");
  sb_json(b, c->target);
  sb_printf(b, ",\"graph\":%zu,", strlen(c->graph));
  if (form == MODEL_FILE) {
    sb_puts(b, "\"weights\":[");
    describe_weights(b, c);
    sb_puts(b, "],\"forms\":[");
    describe_forms(b, c);
    sb_puts(b, "],");
  } else
    sb_printf(b, "\"params\":%zu,", params);
  sb_puts(b, "\"kernels\":[");
  for (int i = 0; i < c->n_programs; i++) {
    const StoredProgram *p = &c->program[i];
    sb_puts(b, i ? ",[" : "[");
    sb_json(b, p->name);
    sb_printf(b, ",%zu,%zu", strlen(p->source), strlen(p->manifest));
    for (int k = 0; k < levels_of(p); k++) sb_printf(b, ",%zu", level_of(p, k).n);
    sb_putc(b, ']');
  }
  sb_puts(b, "],\"inputs\":[");
  for (int i = 0; i < c->n_inputs; i++) {
    if (i) sb_putc(b, ',');
    sb_json(b, c->input[i]);
  }
  sb_puts(b, "]}");
}

static void write_library(StrBuf *out, const Container *c) {
  Arena *a = out->arena;
  StrBuf head, body, params;
  sb_init(&head, a);
  sb_init(&body, a);
  sb_init(&params, a);
  params_write(&params, c->n_weights, c->weight);
  describe(&head, c, IN_LIBRARY, params.len);
  put(&body, head.len, 8);
  sb_write(&body, head.at, head.len);
  sb_puts(&body, c->graph);
  sb_write(&body, params.at, params.len);
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

static void write_section(StrBuf *out, const Container *c, Section s) {
  if (s == DESCRIPTION) describe(out, c, MODEL_FILE, 0);
  if (s == TEXTS) sb_puts(out, c->graph);
  for (int i = 0; i < c->n_programs; i++) {
    const StoredProgram *p = &c->program[i];
    if (s == TEXTS) sb_puts(out, p->source), sb_puts(out, p->manifest);
    for (int k = 0; s == CODE && k < levels_of(p); k++) {
      pad(out, PROGRAM_ALIGN);
      sb_write(out, level_of(p, k).at, level_of(p, k).n);
    }
  }
  for (int i = 0; s == WEIGHTS && i < c->n_weights; i++) {
    pad(out, PROGRAM_ALIGN);
    sb_write(out, c->weight[i].data, (size_t)form_stored(&c->weight[i]));
  }
}

static void write_model(StrBuf *out, const Container *c) {
  size_t begin = out->len, at[SECTIONS], size[SECTIONS];
  StrBuf head;
  for (int k = 0; k < PAGE; k++) sb_putc(out, 0);
  for (int s = 0; s < SECTIONS; s++) {
    at[s] = out->len - begin;
    write_section(out, c, (Section)s);
    size[s] = out->len - begin - at[s];
    if (s + 1 < SECTIONS) pad(out, PAGE);
  }
  sb_init(&head, out->arena);
  sb_puts(&head, MODEL_MAGIC);
  put(&head, MODEL_VERSION, 4);
  put(&head, SECTIONS, 4);
  put(&head, out->len - begin, 8);
  for (int s = 0; s < SECTIONS; s++)
    put(&head, at[s], 8), put(&head, size[s], 8), put(&head, sum64(out->at + begin + at[s], size[s]), 8);
  uint64_t sum = sum64(head.at, head.len);
  memcpy(out->at + begin, head.at, HEAD - 8);
  for (int i = 0; i < 8; i++) out->at[begin + HEAD - 8 + (size_t)i] = (char)(sum >> (8 * i) & 255);
  memcpy(out->at + begin + HEAD, head.at + HEAD - 8, head.len - (HEAD - 8));
}

void container_write(StrBuf *out, const Container *c, ContainerForm form) {
  if (form == MODEL_FILE)
    write_model(out, c);
  else
    write_library(out, c);
}

/* ---- reading ---- */
typedef struct {
  const char *begin, *at, *end;
} Span;
typedef struct {
  Arena *a;
  const char *what;
  Span *texts, *code, *weights; /* in a library the same */
  char *text;
  cJSON *head;
  Container *out;
} Read;

static NS_NORETURN void damaged(const Read *r, const char *why) {
  err_raise(arena_err(r->a), NS_ERR_VALUE, "%s is damaged: %s", r->what, why);
}

static const char *take_bytes(const Read *r, Span *s, double n) {
  if (!(n >= 0 && n <= (double)(s->end - s->at)) || n != (double)(size_t)n) damaged(r, "it ends inside a section");
  const char *p = s->at;
  s->at += (size_t)n;
  return p;
}
static const char *take(const Read *r, Span *s, const cJSON *size) {
  return take_bytes(r, s, cJSON_IsNumber(size) ? size->valuedouble : -1);
}
static void align(const Read *r, Span *s) {
  if (r->code == r->texts) return; /* a library */
  size_t off = (size_t)(s->at - s->begin) % PROGRAM_ALIGN;
  if (off && s->at < s->end) take_bytes(r, s, (double)(PROGRAM_ALIGN - off));
}

static const char *take_text(const Read *r, const cJSON *size) {
  const char *p = take(r, r->texts, size);
  return arena_strndup(r->a, p, (size_t)(r->texts->at - p));
}

static const char *string(const Read *r, const cJSON *v) {
  if (!cJSON_IsString(v)) damaged(r, "its description makes no sense");
  return arena_strdup(r->a, v->valuestring);
}

static const cJSON *field(const Read *r, const char *name) { return cJSON_GetObjectItemCaseSensitive(r->head, name); }

static const cJSON *list(const Read *r, const cJSON *v, int32_t *n) {
  if (!cJSON_IsArray(v)) damaged(r, "its description makes no sense");
  *n = cJSON_GetArraySize(v);
  return v;
}

static void read_weight(const Read *r, const cJSON *row, GraphParam *w) {
  enum { MAX_RANK = 32 };
  int32_t n;
  list(r, row, &n);
  if (n < 2 || n > 2 + MAX_RANK) damaged(r, "its description makes no sense");
  w->name = string(r, row->child);
  w->dtype = string(r, row->child->next);
  w->rank = n - 2;
  w->bytes = params_dtype_bytes(w->dtype);
  if (!w->bytes) damaged(r, "a weight has an unknown type");
  int64_t *shape = arena_array(r->a, int64_t, w->rank), *d = shape;
  for (const cJSON *v = row->child->next->next; v; v = v->next, d++) {
    if (!json_whole(v, 0, (int64_t)1 << 40)) damaged(r, "its description makes no sense");
    *d = (int64_t)v->valuedouble;
    if (!i64_mul(w->bytes, *d, &w->bytes)) damaged(r, "a weight is too large");
  }
  w->shape = shape;
}

/* `n` whole numbers from lo to hi; NULL: there are others. */
static int64_t *whole(const Read *r, const cJSON *v, int32_t *n, int32_t most, int64_t hi) {
  list(r, v, n);
  if (*n > most) damaged(r, "its description makes no sense");
  int64_t *out = arena_array(r->a, int64_t, *n), *d = out;
  const cJSON *o;
  cJSON_ArrayForEach(o, v) {
    if (!json_whole(o, 0, hi)) damaged(r, "its description makes no sense");
    *d++ = (int64_t)o->valuedouble;
  }
  return out;
}

static void read_transform(const Read *r, const cJSON *v, Winograd *w) {
  int32_t n;
  list(r, v, &n);
  if (!n) return;
  if (n < 2 || !json_whole(v->child, 1, WINOGRAD_MOST) || !json_whole(v->child->next, 1, WINOGRAD_MOST))
    damaged(r, "its description makes no sense");
  w->points = (int32_t)v->child->valuedouble;
  w->taps = (int32_t)v->child->next->valuedouble;
  if (n != 2 + w->points * w->taps || w->taps > w->points) damaged(r, "its description makes no sense");
  double *g = arena_array(r->a, double, n);
  w->g = g;
  for (const cJSON *o = v->child->next->next; o; o = o->next) {
    if (!cJSON_IsNumber(o)) damaged(r, "its description makes no sense");
    *g++ = o->valuedouble;
  }
}

/* A value may not be much larger than its original. Otherwise a small file could allocate all memory. */
static void read_form(const Read *r, const cJSON *row, Container *c, GraphParam *w) {
  enum { GROWTH = 64, FREE = 1 << 20 };
  int32_t n, n_axis;
  list(r, row, &n);
  if (n != 4 || !json_whole(row->child, 0, c->n_weights - 1)) damaged(r, "its description makes no sense");
  GraphParam *p = &w[(int)row->child->valuedouble];
  WeightForm *f = arena_new_of(r->a, WeightForm);
  read_transform(r, row->child->next, &f->winograd);
  f->layout.from = whole(r, row->child->next->next, &f->layout.n_from, LAYOUT_MAX_DIMS, (int64_t)1 << 40);
  const int64_t *axis = whole(r, row->child->next->next->next, &n_axis, LAYOUT_MAX_DIMS, f->layout.n_from - 1);
  int32_t *axes = arena_array(r->a, int32_t, n_axis);
  for (int i = 0; i < n_axis; i++) axes[i] = (int32_t)axis[i];
  f->layout.axis = axes;
  f->layout.n = n_axis;
  f->layout.size = p->shape;
  p->form = f;
  int64_t stored = n_axis == p->rank ? form_stored(p) : -1;
  if (stored < 0 || (f->winograd.points && strcmp(p->dtype, "float32") != 0) || p->bytes / GROWTH > stored + FREE)
    damaged(r, "a weight's form makes no sense");
}

static void read_weights(const Read *r) {
  Container *c = r->out;
  int32_t n;
  const cJSON *rows = field(r, "weights"), *o;
  if (!rows) {
    const char *p = take(r, r->weights, field(r, "params"));
    c->weight = params_read(r->a, p, (size_t)(r->weights->at - p), &c->n_weights);
    return;
  }
  list(r, rows, &c->n_weights);
  GraphParam *w = arena_array(r->a, GraphParam, c->n_weights);
  c->weight = w;
  cJSON_ArrayForEach(o, rows) read_weight(r, o, w++);
  w -= c->n_weights;
  const cJSON *forms = field(r, "forms");
  if (forms) cJSON_ArrayForEach(o, list(r, forms, &n)) read_form(r, o, c, w);
  for (int i = 0; i < c->n_weights; i++) {
    align(r, r->weights);
    w[i].data = take_bytes(r, r->weights, (double)form_stored(&w[i]));
  }
}

/* The first binary that this processor runs, which has most of its instructions; else the last, whose loading says why. */
static void read_binaries(const Read *r, const cJSON *size, int n, StoredProgram *p) {
  StoredBinary *level = arena_array(r->a, StoredBinary, n);
  for (int i = 0; i < n; i++, size = size->next) {
    align(r, r->code);
    level[i].at = take(r, r->code, size);
    level[i].n = (size_t)(r->code->at - (const char *)level[i].at);
  }
  int k = 0;
  while (k < n - 1 && !object_runs(level[k].at, level[k].n)) k++;
  p->binary = level[k].n ? level[k].at : NULL;
  p->n_binary = level[k].n;
  p->level = level;
  p->n_levels = n;
}

static void read_program(const Read *r, const cJSON *row, StoredProgram *p) {
  int32_t n;
  list(r, row, &n);
  if (n < 4) damaged(r, "its description makes no sense");
  p->name = string(r, row->child);
  p->source = take_text(r, row->child->next);
  p->manifest = take_text(r, row->child->next->next);
  read_binaries(r, row->child->next->next->next, n - 3, p);
}

static void read_sections(void *arg) {
  Read *r = arg;
  Container *c = r->out = arena_new_of(r->a, Container);
  r->head = json_parse(arena_err(r->a), r->text);
  c->name = string(r, field(r, "name"));
  c->target = string(r, field(r, "target"));
  c->graph = take_text(r, field(r, "graph"));
  read_weights(r);
  const cJSON *programs = list(r, field(r, "kernels"), &c->n_programs),
              *inputs = list(r, field(r, "inputs"), &c->n_inputs), *o;
  StoredProgram *p = c->program = arena_array(r->a, StoredProgram, c->n_programs);
  const char **in = c->input = arena_array(r->a, const char *, c->n_inputs);
  cJSON_ArrayForEach(o, programs) read_program(r, o, p++);
  cJSON_ArrayForEach(o, inputs) *in++ = string(r, o);
}

static uint64_t get(const char *p, int bytes) {
  uint64_t v = 0;
  for (int i = 0; i < bytes; i++) v |= (uint64_t)(unsigned char)p[i] << (8 * i);
  return v;
}

/* The payload of a library, if its length and its checksum are right; its description is taken out of it. */
static void open_library(Read *r, const char *data, size_t n, Span *s) {
  char line[MAX_LINE], found[HASH + 1], hash[HASH + 1];
  const char *end = memchr(data, '\n', n < MAX_LINE - 1 ? n : MAX_LINE - 1);
  uint64_t size;
  if (!end) damaged(r, "its checksum is wrong");
  snprintf(line, sizeof line, "%.*s", (int)(end - data), data);
  if (sscanf(line, "%" SCNu64 " %64[0-9a-f]", &size, found) != 2 || size != n - (size_t)(end + 1 - data) || size < 8)
    damaged(r, "its checksum is wrong");
  sha256_hex(end + 1, (size_t)size, hash);
  if (strcmp(hash, found) != 0) damaged(r, "its checksum is wrong");
  uint64_t text = get(end + 1, 8);
  *s = (Span){end + 9, end + 9, end + 1 + size};
  if (text > (uint64_t)(s->end - s->at)) damaged(r, "it ends inside its description");
  r->text = arena_strndup(r->a, s->at, (size_t)text);
  s->at += text;
  r->texts = r->code = r->weights = s;
}

/* The sections of a model file, if their checksums are right. */
static void open_model(Read *r, const char *data, size_t n, Span *s) {
  enum { TABLE = HEAD + SECTIONS * ROW };
  char head[TABLE - 8];
  if (n < TABLE) damaged(r, "its header is cut");
  if (get(data + 8, 4) != MODEL_VERSION)
    err_raise(arena_err(r->a), NS_ERR_VALUE, "%s is a model file of version %u, this is a reader of version %d: %s",
              r->what, (unsigned)get(data + 8, 4), MODEL_VERSION, "export it again with this version of the package");
  memcpy(head, data, HEAD - 8);
  memcpy(head + HEAD - 8, data + HEAD, SECTIONS * ROW);
  if (get(data + 12, 4) != SECTIONS || get(data + HEAD - 8, 8) != sum64(head, sizeof head))
    damaged(r, "its header is wrong");
  if (get(data + 16, 8) != n) damaged(r, "its end is missing");
  for (int k = 0; k < SECTIONS; k++) {
    const char *row = data + HEAD + k * ROW;
    uint64_t at = get(row, 8), size = get(row + 8, 8);
    if (at % PAGE || at > n || size > n - at) damaged(r, "its header is wrong");
    s[k] = (Span){data + at, data + at, data + at + size};
    if (sum64(data + at, (size_t)size) != get(row + 16, 8)) damaged(r, "its checksum is wrong");
  }
  r->text = arena_strndup(r->a, s[DESCRIPTION].at, (size_t)(s[DESCRIPTION].end - s[DESCRIPTION].at));
  r->texts = &s[TEXTS];
  r->code = &s[CODE];
  r->weights = &s[WEIGHTS];
}

static bool begins(const void *data, size_t n, const char *magic) {
  return n >= strlen(magic) && memcmp(data, magic, strlen(magic)) == 0;
}

Container *container_read(Arena *a, const void *data, size_t n, const char *what) {
  Read r = {.a = a, .what = what};
  Span s[SECTIONS];
  if (begins(data, n, MODEL_MAGIC))
    open_model(&r, data, n, s);
  else if (begins(data, n, MAGIC))
    open_library(&r, (const char *)data + strlen(MAGIC), n - strlen(MAGIC), s);
  else
    err_raise(arena_err(a), NS_ERR_VALUE, "%s holds no network of this version of the package", what);
  json_with(arena_err(a), read_sections, &r, &r.head);
  return r.out;
}

const void *container_find(const void *library, size_t n, size_t *size) {
  size_t told_bytes, len;
  *size = n;
  if (begins(library, n, MODEL_MAGIC)) return library;
  const unsigned char *text = object_variable(library, n, "nestsmith_graph_size", &told_bytes);
  const char *data = object_variable(library, n, "nestsmith_graph_data", &len);
  uint64_t told = 0;
  if (!text || !data || told_bytes < sizeof told) return NULL;
  memcpy(&told, text, sizeof told);
  *size = (size_t)told;
  return told <= n - (size_t)(data - (const char *)library) ? data : NULL;
}
