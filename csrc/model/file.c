/* The model file, shared by all kinds of models.
 *
 * Little-endian. "ACM1"; u32 version; u32 kind (1 trees, 2 network); u32 feature version; u32 rules; u32 row entries,
 * u32 state entries; u32 kept entries and u16 index of each; u32 bytes of JSON and the JSON text; then what the kind
 * adds; u32 CRC-32 of everything before it. A file is written to a temporary name and renamed, so that a reader never
 * sees half of one. A file of another version or with a wrong checksum is refused.
 */
#include "model/file.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 1, FEATURE_VERSION = 2 };

static uint32_t crc32_of(const uint8_t *p, size_t n) {
  uint32_t c = 0xffffffffu;
  for (size_t i = 0; i < n; i++) {
    c ^= p[i];
    for (int k = 0; k < 8; k++) c = (c >> 1) ^ (0xedb88320u & (0u - (c & 1u)));
  }
  return ~c;
}

/* ---- writing ---- */
void model_put(StrBuf *b, const void *p, size_t n) { sb_write(b, p, n); }
void model_put_u32(StrBuf *b, int64_t v) {
  uint32_t u = (uint32_t)v;
  sb_write(b, (const char *)&u, sizeof u);
}

void model_file_begin(StrBuf *b, Arena *a, const ModelHead *h) {
  sb_init(b, a);
  sb_write(b, "ACM1", 4);
  const int64_t head[] = {VERSION, h->kind, FEATURE_VERSION, h->rules, h->n_feat, h->n_state, h->n_kept};
  for (int i = 0; i < NS_COUNT(head); i++) model_put_u32(b, head[i]);
  for (int i = 0; i < h->n_kept; i++) {
    uint16_t k = (uint16_t)h->kept[i];
    model_put(b, &k, sizeof k);
  }
  model_put_u32(b, (int64_t)strlen(h->json));
  sb_puts(b, h->json);
}

void model_file_end(StrBuf *b, const char *path) {
  model_put_u32(b, crc32_of((const uint8_t *)b->at, b->len));
  char *tmp = arena_printf(b->arena, "%s.%d.tmp", path, (int)getpid());
  remove(tmp);                   /* what a killed process of this number left */
  FILE *out = fopen(tmp, "wbx"); /* a file of its own: no link that somebody put there is followed */
  bool ok = out && fwrite(b->at, 1, b->len, out) == b->len;
  if (out) ok = fclose(out) == 0 && ok;
  ok = ok && rename(tmp, path) == 0;
  int why = errno;
  if (ok) return;
  remove(tmp);
  err_raise(arena_err(b->arena), NS_ERR_IO, "cannot write the model file '%s': %s", path, strerror(why));
}

/* ---- reading ---- */
static void read_all(ModelReader *r, const char *path) {
  struct stat st = {0};
  FILE *in = NULL;
  size_t n = 0;
  bool found = stat(path, &st) == 0;
  char *data = arena_alloc(r->arena, (size_t)st.st_size); /* before the file is open: this may raise */
  if (found && (in = fopen(path, "rb"))) n = fread(data, 1, (size_t)st.st_size, in);
  if (!in) err_raise(arena_err(r->arena), NS_ERR_IO, "cannot read the model file '%s': %s", path, strerror(errno));
  fclose(in);
  r->at = (const uint8_t *)data, r->end = r->at + n;
}

void model_get(ModelReader *r, void *out, size_t n) {
  err_check(arena_err(r->arena), (size_t)(r->end - r->at) >= n, "'%s' is damaged (it ends too early); train it again",
            r->path);
  if (n) memcpy(out, r->at, n);
  r->at += n;
}
uint32_t model_get_u32(ModelReader *r) {
  uint32_t v;
  model_get(r, &v, sizeof v);
  return v;
}
int32_t model_get_count(ModelReader *r, size_t elem) {
  uint32_t v = model_get_u32(r);
  err_check(arena_err(r->arena), v <= (size_t)(r->end - r->at) / elem,
            "'%s' is damaged (a length of %u); train it again", r->path, v);
  return (int32_t)v;
}

ModelHead model_file_open(ModelReader *r, Arena *a, const char *path) {
  Err *e = arena_err(a);
  ModelHead h = {0};
  *r = (ModelReader){.arena = a, .path = path};
  read_all(r, path);
  size_t n = (size_t)(r->end - r->at);
  uint32_t crc = 0;
  err_check(e, n >= 40 && memcmp(r->at, "ACM1", 4) == 0, "'%s' is not a nestsmith model file", path);
  memcpy(&crc, r->end - 4, 4);
  err_check(e, crc == crc32_of(r->at, n - 4), "'%s' is damaged (its checksum does not match); train or fetch it again",
            path);
  r->at += 4, r->end -= 4;
  uint32_t version = model_get_u32(r);
  err_check(e, version == VERSION, "'%s': model file of version %u; this release reads version %d", path, version,
            VERSION);
  h.kind = (ModelKind)model_get_u32(r);
  uint32_t features = model_get_u32(r);
  err_check(e, features == FEATURE_VERSION, "'%s' was trained on features of version %u, not %d; train it again", path,
            features, FEATURE_VERSION);
  h.rules = (int32_t)model_get_u32(r);
  h.n_feat = (int32_t)model_get_u32(r);
  h.n_state = (int32_t)model_get_u32(r);
  err_check(e, h.n_feat >= 0 && h.n_feat <= UINT16_MAX, "'%s' is damaged (%d entries)", path, h.n_feat);
  h.n_kept = model_get_count(r, 2);
  int32_t *kept = arena_array(a, int32_t, h.n_kept + 1);
  for (int i = 0; i < h.n_kept; i++) {
    uint16_t k;
    model_get(r, &k, sizeof k);
    kept[i] = k;
    err_check(e, k < h.n_feat, "'%s' is damaged (entry %d of %d)", path, k, h.n_feat);
  }
  h.kept = kept;
  int32_t bytes = model_get_count(r, 1);
  char *json = arena_alloc(a, (size_t)bytes + 1);
  model_get(r, json, (size_t)bytes);
  h.json = json;
  return h;
}

ModelKind model_file_kind(Arena *a, const char *path) {
  ArenaMark m = arena_mark(a);
  ModelReader r;
  ModelKind k = model_file_open(&r, a, path).kind;
  arena_release(a, m);
  return k;
}
