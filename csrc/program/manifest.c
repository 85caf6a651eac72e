/* The manifest: one JSON object that travels with a binary and says how to run it (program.h). Every number is checked here
 * once when it is read, so that devices can trust it: a manifest may come from a file that someone edited. A change of
 * meaning needs a new format number. */
#include "program/program.h"
#include <cJSON.h>
#include <string.h>

enum { FORMAT = 1 };

/* ---- reading ---- */
typedef struct {
  Arena *a;
  const char *text;
  cJSON *root;
  Manifest *out;
} Parse;

static NS_NORETURN void bad(const Parse *p, const char *where, const char *field, const char *what) {
  err_raise(arena_err(p->a), NS_ERR_VALUE, "manifest: %s.%s %s", where, field, what);
}

static const cJSON *get(const Parse *p, const cJSON *o, const char *where, const char *field) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, field);
  if (!v) bad(p, where, field, "is missing");
  return v;
}

static int64_t integer(const Parse *p, const cJSON *v, const char *where, const char *field, int64_t lo, int64_t hi) {
  if (!json_whole(v, lo, hi)) bad(p, where, field, "is not an integer in range");
  return (int64_t)v->valuedouble;
}

static int64_t get_int(const Parse *p, const cJSON *o, const char *where, const char *field, int64_t lo, int64_t hi) {
  return integer(p, get(p, o, where, field), where, field, lo, hi);
}

static int64_t opt_int(const Parse *p, const cJSON *o, const char *where, const char *field, int64_t missing) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, field);
  return v ? integer(p, v, where, field, 0, (int64_t)1 << 52) : missing;
}

static const char *get_str(const Parse *p, const cJSON *o, const char *where, const char *field) {
  const cJSON *v = get(p, o, where, field);
  if (!cJSON_IsString(v) || !v->valuestring) bad(p, where, field, "is not a string");
  return arena_strdup(p->a, v->valuestring);
}

static const cJSON *get_array(const Parse *p, const cJSON *o, const char *where, const char *field, int32_t *n) {
  const cJSON *v = get(p, o, where, field);
  if (!cJSON_IsArray(v)) bad(p, where, field, "is not an array");
  *n = cJSON_GetArraySize(v);
  return v;
}

static bool get_bool(const cJSON *o, const char *field) {
  return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, field));
}

static int64_t *get_shape(const Parse *p, const cJSON *o, const char *where, const char *field, int64_t lo,
                          int32_t *n) {
  const cJSON *list = get_array(p, o, where, field, n), *d;
  int64_t *out = arena_array(p->a, int64_t, *n), *at = out;
  cJSON_ArrayForEach(d, list) *at++ = integer(p, d, where, field, lo, (int64_t)1 << 50);
  return out;
}

static const Relayout *layout(const Parse *p, const cJSON *o, const char *where, const ManBuffer *b) {
  Relayout *r = arena_new_of(p->a, Relayout);
  r->from = get_shape(p, o, where, "from_shape", 1, &r->n_from);
  r->size = b->shape;
  const cJSON *list = get_array(p, o, where, "axis", &r->n), *d;
  if (r->n != b->ndim || r->n > LAYOUT_MAX_DIMS || r->n_from < 1 || r->n_from > LAYOUT_MAX_DIMS)
    bad(p, where, "axis", "does not fit the shape");
  int32_t *axis = arena_array(p->a, int32_t, r->n);
  r->axis = axis;
  cJSON_ArrayForEach(d, list) *axis++ = (int32_t)integer(p, d, where, "axis", 0, r->n_from - 1);
  return r;
}

static ManBuffer *buffers(const Parse *p, const char *field, int32_t *n) {
  const cJSON *list = get_array(p, p->root, "manifest", field, n), *o;
  ManBuffer *out = arena_array(p->a, ManBuffer, *n), *b = out;
  for (o = list->child; o; o = o->next) {
    if (!cJSON_IsObject(o)) bad(p, field, "[]", "holds something that is not an object");
    b->name = get_str(p, o, field, "name");
    b->dtype = get_str(p, o, field, "dtype");
    b->bytes = get_int(p, o, field, "bytes", 0, (int64_t)1 << 50);
    b->read_only = get_bool(o, "read_only");
    b->constant = get_bool(o, "constant");
    if (cJSON_GetObjectItemCaseSensitive(o, "shape")) b->shape = get_shape(p, o, field, "shape", 0, &b->ndim);
    if (cJSON_GetObjectItemCaseSensitive(o, "axis")) b->layout = layout(p, o, field, b);
    b++;
  }
  return out;
}

static void sizes(const Parse *p, const cJSON *o, const char *field, int64_t out[3]) {
  int32_t n = 0, i = 0;
  const cJSON *list = get_array(p, o, "kernels", field, &n), *d;
  if (n != 3) bad(p, "kernels", field, "does not have three numbers");
  for (d = list->child; d; d = d->next)
    out[i++] = integer(p, d, "kernels", field, 1, strcmp(field, "block") == 0 ? 1 << 16 : INT32_MAX);
}

static void params(const Parse *p, const cJSON *o, ManKernel *k) {
  const cJSON *list = get_array(p, o, "kernels", "params", &k->n_param), *e;
  ManParam *q = k->param = arena_array(p->a, ManParam, k->n_param);
  for (e = list->child; e; e = e->next) {
    const char *kind = get_str(p, e, "params", "kind");
    q->work = strcmp(kind, "work") == 0;
    if (!q->work && strcmp(kind, "arg") != 0) bad(p, "params", "kind", "is neither \"arg\" nor \"work\"");
    q->index = (int32_t)get_int(p, e, "params", "index", 0, (q->work ? p->out->n_work : p->out->n_args) - 1);
    q->read_only = get_bool(e, "read_only");
    q++;
  }
}

static void indices(const Parse *p, Manifest *m) {
  const cJSON *all = cJSON_GetObjectItemCaseSensitive(p->root, "indices"), *o;
  m->report = -1;
  if (!all) return;
  m->report = (int32_t)get_int(p, all, "indices", "report", 0, m->n_work - 1);
  if (m->work[m->report].bytes < REPORT_WORDS * 4) bad(p, "indices", "report", "is not the number of such a workspace");
  const cJSON *list = get_array(p, all, "indices", "sites", &m->n_site);
  ManSite *s = m->site = arena_array(p->a, ManSite, m->n_site);
  for (o = list->child; o; o = o->next) {
    s->stage = get_str(p, o, "sites", "stage");
    if (cJSON_HasObjectItem(o, "of")) s->of = get_str(p, o, "sites", "of");
    s->axis = (int32_t)get_int(p, o, "sites", "axis", 0, INT32_MAX);
    s->size = opt_int(p, o, "sites", "size", 0);
    s->from_end = get_bool(o, "from_end");
    s++;
  }
}

static void parse(void *arg) {
  Parse *p = arg;
  p->root = json_parse(arena_err(p->a), p->text);
  if (!cJSON_IsObject(p->root)) err_raise(arena_err(p->a), NS_ERR_VALUE, "manifest: not a JSON object: %.60s", p->text);
  if (get_int(p, p->root, "manifest", "format", 0, 1000) != FORMAT)
    bad(p, "manifest", "format", "is not 1: written by a newer version?");
  Manifest *m = p->out = arena_new_of(p->a, Manifest);
  m->target = get_str(p, p->root, "manifest", "target");
  m->entry = get_str(p, p->root, "manifest", "entry");
  if (cJSON_HasObjectItem(p->root, "name")) m->name = get_str(p, p->root, "manifest", "name");
  m->sm = (int32_t)opt_int(p, p->root, "manifest", "sm", 0);
  m->fast_math = (int32_t)opt_int(p, p->root, "manifest", "fast_math", 0);
  m->arg = buffers(p, "args", &m->n_args);
  m->work = buffers(p, "work", &m->n_work);
  const cJSON *list = get_array(p, p->root, "manifest", "kernels", &m->n_kernels), *o;
  ManKernel *k = m->kernel = arena_array(p->a, ManKernel, m->n_kernels);
  for (o = list->child; o; o = o->next) {
    k->name = get_str(p, o, "kernels", "name");
    params(p, o, k);
    sizes(p, o, "grid", k->grid);
    sizes(p, o, "block", k->block);
    k->shared_bytes = opt_int(p, o, "kernels", "shared_bytes", 0);
    k->dyn_shared_bytes = opt_int(p, o, "kernels", "dyn_shared_bytes", 0);
    k->local_bytes = opt_int(p, o, "kernels", "local_bytes", 0);
    k->waits = get_bool(o, "waits");
    k++;
  }
  indices(p, m);
}

const Manifest *man_parse(Arena *a, const char *json) {
  Parse p = {a, json, NULL, NULL};
  json_with(arena_err(a), parse, &p, &p.root);
  return p.out;
}

/* ---- writing ---- */
static void numbers(StrBuf *o, const char *key, int n, const int64_t *v) {
  sb_printf(o, ",\"%s\":[", key);
  for (int i = 0; i < n; i++) sb_printf(o, "%s%lld", i ? "," : "", (long long)v[i]);
  sb_putc(o, ']');
}

static void write_buffer(StrBuf *o, const ManBuffer *b) {
  sb_puts(o, "{\"name\":");
  sb_json(o, b->name);
  sb_puts(o, ",\"dtype\":");
  sb_json(o, b->dtype);
  if (b->shape) numbers(o, "shape", b->ndim, b->shape);
  sb_printf(o, ",\"bytes\":%lld,\"align\":%d", (long long)b->bytes, PROGRAM_ALIGN);
  if (b->shape) sb_printf(o, ",\"read_only\":%s", b->read_only ? "true" : "false");
  if (b->constant) sb_puts(o, ",\"constant\":true");
  const Relayout *r = b->layout;
  if (r) {
    numbers(o, "from_shape", r->n_from, r->from);
    sb_puts(o, ",\"axis\":[");
    for (int i = 0; i < r->n; i++) sb_printf(o, "%s%d", i ? "," : "", (int)r->axis[i]);
    sb_putc(o, ']');
  }
  sb_putc(o, '}');
}

static void write_kernel(StrBuf *o, const ManKernel *k) {
  sb_puts(o, "{\"name\":");
  sb_json(o, k->name);
  sb_puts(o, ",\"params\":[");
  for (int i = 0; i < k->n_param; i++)
    sb_printf(o, "%s{\"kind\":\"%s\",\"index\":%d,\"read_only\":%s}", i ? "," : "", k->param[i].work ? "work" : "arg",
              (int)k->param[i].index, k->param[i].read_only ? "true" : "false");
  sb_putc(o, ']');
  numbers(o, "grid", 3, k->grid);
  numbers(o, "block", 3, k->block);
  sb_printf(o, ",\"shared_bytes\":%lld,\"dyn_shared_bytes\":%lld,\"local_bytes\":%lld%s}", (long long)k->shared_bytes,
            (long long)k->dyn_shared_bytes, (long long)k->local_bytes, k->waits ? ",\"waits\":true" : "");
}

static void write_indices(StrBuf *o, const Manifest *m) {
  sb_printf(o, ",\"indices\":{\"report\":%d,\"sites\":[", (int)m->report);
  for (int i = 0; i < m->n_site; i++) {
    const ManSite *s = &m->site[i];
    sb_printf(o, "%s{\"stage\":", i ? "," : "");
    sb_json(o, s->stage);
    if (s->of) sb_puts(o, ",\"of\":"), sb_json(o, s->of);
    sb_printf(o, ",\"axis\":%d,\"size\":%lld%s}", (int)s->axis, (long long)s->size,
              s->from_end ? ",\"from_end\":true" : "");
  }
  sb_puts(o, "]}");
}

char *man_write(Arena *a, const Manifest *m) {
  StrBuf o;
  sb_init(&o, a);
  sb_printf(&o, "{\"format\":%d,\"target\":\"%s\",\"entry\":", FORMAT, m->target);
  sb_json(&o, m->entry);
  if (m->name) sb_puts(&o, ",\"name\":"), sb_json(&o, m->name);
  sb_printf(&o, ",\"sm\":%d,\"fast_math\":%d,\"args\":[", (int)m->sm, (int)m->fast_math);
  for (int i = 0; i < m->n_args; i++) i ? sb_putc(&o, ',') : (void)0, write_buffer(&o, &m->arg[i]);
  sb_puts(&o, "],\"work\":[");
  for (int i = 0; i < m->n_work; i++) i ? sb_putc(&o, ',') : (void)0, write_buffer(&o, &m->work[i]);
  sb_puts(&o, "],\"kernels\":[");
  for (int i = 0; i < m->n_kernels; i++) i ? sb_putc(&o, ',') : (void)0, write_kernel(&o, &m->kernel[i]);
  sb_putc(&o, ']');
  if (m->n_site) write_indices(&o, m);
  sb_putc(&o, '}');
  return sb_str(&o);
}
