/* The parameter file: names and arrays, all little-endian (spec 05 §5.3). Reading trusts nothing: every length is
 * checked against what is left. Arrays are not copied; they point into the caller's bytes. */
#include "program/program.h"
#include <string.h>

static const uint64_t LIST_MAGIC = 0xF7E58D4F05049CB7u, ARRAY_MAGIC = 0xDD5E40F096B4A13Fu;
enum { CODE_INT, CODE_UINT, CODE_FLOAT, CODE_BFLOAT = 4, MAX_RANK = 32 };
static const struct {
  const char *name;
  uint8_t code, bits;
} TYPES[] = {
    {"float32", CODE_FLOAT, 32},   {"float16", CODE_FLOAT, 16}, {"float64", CODE_FLOAT, 64},
    {"bfloat16", CODE_BFLOAT, 16}, {"int8", CODE_INT, 8},       {"int16", CODE_INT, 16},
    {"int32", CODE_INT, 32},       {"int64", CODE_INT, 64},     {"uint8", CODE_UINT, 8},
    {"uint16", CODE_UINT, 16},     {"uint32", CODE_UINT, 32},   {"uint64", CODE_UINT, 64},
    {"uint1", CODE_UINT, 1},       {"bool", CODE_UINT, 1}, /* what is read is the last of a kind */
};

int64_t params_dtype_bytes(const char *dtype) {
  for (int t = 0; t < NS_COUNT(TYPES); t++)
    if (strcmp(TYPES[t].name, dtype) == 0) return (TYPES[t].bits + 7) / 8;
  return 0;
}

static void put(StrBuf *b, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) sb_putc(b, (char)(v >> (8 * i) & 255));
}

void params_write(StrBuf *out, int n, const GraphParam *p) {
  put(out, LIST_MAGIC, 8);
  put(out, 0, 8);
  put(out, (uint64_t)n, 8);
  for (int i = 0; i < n; i++) {
    put(out, strlen(p[i].name), 8);
    sb_puts(out, p[i].name);
  }
  put(out, (uint64_t)n, 8);
  for (int i = 0; i < n; i++) {
    int t = 0;
    while (t < NS_COUNT(TYPES) && strcmp(TYPES[t].name, p[i].dtype) != 0) t++;
    if (t == NS_COUNT(TYPES))
      err_raise(arena_err(out->arena), NS_ERR_VALUE, "parameter %s: dtype %s cannot be stored", p[i].name, p[i].dtype);
    put(out, ARRAY_MAGIC, 8);
    put(out, 0, 8);
    put(out, 1, 4);
    put(out, 0, 4);
    put(out, (uint64_t)p[i].rank, 4);
    put(out, TYPES[t].code, 1);
    put(out, TYPES[t].bits, 1);
    put(out, 1, 2);
    for (int k = 0; k < p[i].rank; k++) put(out, (uint64_t)p[i].shape[k], 8);
    put(out, (uint64_t)p[i].bytes, 8);
    sb_write(out, p[i].data, (size_t)p[i].bytes);
  }
}

typedef struct {
  Arena *a;
  const unsigned char *at, *end;
} Reader;

static const unsigned char *take(Reader *r, uint64_t n, const char *what) {
  if (n > (uint64_t)(r->end - r->at)) err_raise(arena_err(r->a), NS_ERR_VALUE, "parameter file: ends inside %s", what);
  const unsigned char *p = r->at;
  r->at += n;
  return p;
}

static uint64_t get(Reader *r, int bytes, const char *what) {
  const unsigned char *p = take(r, (uint64_t)bytes, what);
  uint64_t v = 0;
  for (int i = 0; i < bytes; i++) v |= (uint64_t)p[i] << (8 * i);
  return v;
}

static void read_array(Reader *r, GraphParam *p) {
  Err *e = arena_err(r->a);
  err_check(e, get(r, 8, "an array header") == ARRAY_MAGIC, "parameter file: %s: wrong array magic", p->name);
  get(r, 8, "an array header");
  get(r, 8, "an array header"); /* device: always loaded on the CPU */
  uint64_t rank = get(r, 4, "an array header");
  err_check(e, rank <= MAX_RANK, "parameter file: %s: rank %llu", p->name, (unsigned long long)rank);
  uint64_t code = get(r, 1, "a type"), bits = get(r, 1, "a type"), lanes = get(r, 2, "a type");
  for (int t = 0; t < NS_COUNT(TYPES); t++)
    if (TYPES[t].code == code && (TYPES[t].bits == bits)) p->dtype = TYPES[t].name;
  err_check(e, p->dtype && lanes == 1, "parameter file: %s: type code %d of %d bits and %d lanes is unknown", p->name,
            (int)code, (int)bits, (int)lanes);
  int64_t *shape = arena_array(r->a, int64_t, rank), bytes = ((int64_t)bits + 7) / 8;
  for (uint64_t k = 0; k < rank; k++) {
    shape[k] = (int64_t)get(r, 8, "a shape");
    err_check(e, shape[k] >= 0 && i64_mul(bytes, shape[k], &bytes), "parameter file: %s: bad dimension", p->name);
  }
  p->rank = (int32_t)rank;
  p->shape = shape;
  p->bytes = (int64_t)get(r, 8, "a size");
  err_check(e, p->bytes == bytes, "parameter file: %s: %lld bytes of data for a shape of %lld bytes", p->name,
            (long long)p->bytes, (long long)bytes);
  p->data = take(r, (uint64_t)bytes, "an array");
}

GraphParam *params_read(Arena *a, const void *data, size_t size, int *n) {
  Reader r = {a, data, (const unsigned char *)data + size};
  Err *e = arena_err(a);
  err_check(e, get(&r, 8, "the header") == LIST_MAGIC, "parameter file: wrong magic; this is no parameter file");
  get(&r, 8, "the header");
  uint64_t count = get(&r, 8, "the header");
  err_check(e, count <= size / 8, "parameter file: %llu names in %zu bytes", (unsigned long long)count, size);
  GraphParam *p = arena_array(a, GraphParam, count);
  for (uint64_t i = 0; i < count; i++) {
    uint64_t len = get(&r, 8, "a name");
    const unsigned char *s = take(&r, len, "a name");
    p[i].name = arena_strndup(a, (const char *)s, len);
  }
  uint64_t arrays = get(&r, 8, "the header");
  err_check(e, arrays == count, "parameter file: %llu names but %llu arrays", (unsigned long long)count,
            (unsigned long long)arrays);
  for (uint64_t i = 0; i < count; i++) read_array(&r, &p[i]);
  *n = (int)count;
  return p;
}
