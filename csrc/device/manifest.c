/* The manifest: one JSON object that travels with a binary and says how to run it: arguments with type, shape and size,
 * workspaces, and the kernels in launch order with their parameters and launch sizes. The format belongs to codegen
 * (codegen.h, "format 1"); this file only reads it, because device stands below codegen's syntax. Every number is
 * checked here once, so that the back ends can trust it: a manifest may come from a file that someone edited. */
#include "device/device.h"
#include <cJSON.h>
#include <math.h>
#include <string.h>

enum { MAN_MAX_DIMS = 32 };
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
  if (!cJSON_IsNumber(v) || floor(v->valuedouble) != v->valuedouble || v->valuedouble < (double)lo ||
      v->valuedouble > (double)hi)
    bad(p, where, field, "is not an integer in range");
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

static void relayout(const Parse *p, const cJSON *o, const char *field, ManBuffer *b) {
  int32_t n = 0, i = 0;
  const cJSON *from = get_array(p, o, field, "from_shape", &b->n_from), *axis = get_array(p, o, field, "axis", &n), *d;
  if (n != b->ndim || n > MAN_MAX_DIMS || b->n_from < 1 || b->n_from > MAN_MAX_DIMS)
    bad(p, field, "axis", "does not fit the shape");
  b->from_shape = arena_array(p->a, int64_t, b->n_from);
  b->axis = arena_array(p->a, int32_t, n);
  for (d = from->child; d; d = d->next) b->from_shape[i++] = integer(p, d, field, "from_shape", 1, (int64_t)1 << 50);
  for (d = axis->child, i = 0; d; d = d->next) b->axis[i++] = (int32_t)integer(p, d, field, "axis", 0, b->n_from - 1);
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
    if (cJSON_GetObjectItemCaseSensitive(o, "shape")) {
      const cJSON *shape = get_array(p, o, field, "shape", &b->ndim), *d;
      b->shape = arena_array(p->a, int64_t, b->ndim);
      int i = 0;
      for (d = shape->child; d; d = d->next) b->shape[i++] = integer(p, d, field, "shape", 0, (int64_t)1 << 50);
    }
    if (cJSON_GetObjectItemCaseSensitive(o, "axis")) relayout(p, o, field, b);
    b++;
  }
  return out;
}

/* Runs over the elements in the new layout like an odometer; step[k] is how far dimension k moves in the original's
 * dimension axis[k]. */
void man_relayout(const ManBuffer *b, int64_t elem, const void *from, void *to) {
  int64_t step[MAN_MAX_DIMS], made[MAN_MAX_DIMS], at[MAN_MAX_DIMS] = {0}, old[MAN_MAX_DIMS] = {0}, total = 1;
  for (int i = 0; i < b->n_from; i++) made[i] = 1;
  for (int k = b->ndim - 1; k >= 0; k--) {
    step[k] = made[b->axis[k]];
    made[b->axis[k]] *= b->shape[k];
    total *= b->shape[k];
  }
  const char *src = from;
  char *dst = to;
  for (int64_t n = 0; n < total; n++, dst += elem) {
    int64_t flat = 0;
    bool inside = true;
    for (int i = 0; i < b->n_from; i++) {
      flat = flat * b->from_shape[i] + old[i];
      inside &= old[i] < b->from_shape[i];
    }
    if (inside)
      memcpy(dst, src + flat * elem, (size_t)elem);
    else
      memset(dst, 0, (size_t)elem);
    for (int k = b->ndim - 1; k >= 0; k--) {
      old[b->axis[k]] += step[k];
      if (++at[k] < b->shape[k]) break;
      old[b->axis[k]] -= step[k] * b->shape[k];
      at[k] = 0;
    }
  }
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

static void parse(void *arg) {
  Parse *p = arg;
  p->root = cJSON_Parse(p->text);
  if (!cJSON_IsObject(p->root)) err_raise(arena_err(p->a), NS_ERR_VALUE, "manifest: not a JSON object: %.60s", p->text);
  if (get_int(p, p->root, "manifest", "format", 0, 1000) != 1)
    bad(p, "manifest", "format", "is not 1: written by a newer version?");
  Manifest *m = p->out = arena_new_of(p->a, Manifest);
  m->target = get_str(p, p->root, "manifest", "target");
  m->entry = get_str(p, p->root, "manifest", "entry");
  m->sm = (int32_t)opt_int(p, p->root, "manifest", "sm", 0);
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
    k++;
  }
}

const Manifest *man_parse(Arena *a, const char *json) {
  Parse p = {a, json, NULL, NULL};
  ErrCode c = err_try(arena_err(a), parse, &p);
  cJSON_Delete(p.root); /* before the error travels on: cJSON's tree is not in the arena */
  if (c != NS_OK) err_rethrow(arena_err(a), c);
  return p.out;
}
