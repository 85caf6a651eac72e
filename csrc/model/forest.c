/* A trained forest: scoring, and its file.
 *
 * File: "ACM1", then little-endian u32 version, kind (1: trees), rules, entries, trees, nodes, bytes of JSON; the JSON;
 * i32 roots; nodes as {i32 entry or -1, f32 threshold or leaf value, i32 left child}; u32 CRC-32 of all that precedes.
 */
#include "model/model.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 1, KIND_TREES = 1, HEAD_WORDS = 7 };

static double row_score(const Forest *f, const float *row) {
  double s = 0;
  for (int t = 0; t < f->n_trees; t++) {
    const TreeNode *n = &f->node[f->root[t]];
    while (n->entry >= 0) n = &f->node[n->left + (row[n->entry] > n->value)];
    s += n->value;
  }
  return s;
}

void forest_score(const Forest *f, const FeatBatch *b, double *score) {
  for (int i = 0; i < b->n_states; i++) {
    score[i] = b->first[i + 1] > b->first[i] ? 0 : -INFINITY;
    for (int r = b->first[i]; r < b->first[i + 1]; r++)
      score[i] += row_score(f, b->rows + (size_t)r * (size_t)b->n_feat);
  }
}

static uint32_t crc32_of(const uint8_t *p, size_t n) {
  uint32_t c = 0xffffffffu;
  for (size_t i = 0; i < n; i++) {
    c ^= p[i];
    for (int k = 0; k < 8; k++) c = (c >> 1) ^ (0xedb88320u & (0u - (c & 1u)));
  }
  return ~c;
}

void forest_save(Err *e, const Forest *f, const char *path, const char *json) {
  Arena *a = arena_new(e);
  StrBuf b;
  sb_init(&b, a);
  uint32_t head[HEAD_WORDS] = {VERSION,
                               KIND_TREES,
                               (uint32_t)f->rules,
                               (uint32_t)f->n_feat,
                               (uint32_t)f->n_trees,
                               (uint32_t)f->n_nodes,
                               (uint32_t)strlen(json)};
  sb_write(&b, "ACM1", 4);
  sb_write(&b, (const char *)head, sizeof head);
  sb_puts(&b, json);
  sb_write(&b, (const char *)f->root, sizeof *f->root * (size_t)f->n_trees);
  sb_write(&b, (const char *)f->node, sizeof *f->node * (size_t)f->n_nodes);
  uint32_t crc = crc32_of((const uint8_t *)b.at, b.len);
  sb_write(&b, (const char *)&crc, sizeof crc);
  char *tmp = arena_printf(a, "%s.%d.tmp", path, (int)getpid());
  FILE *out = fopen(tmp, "wb");
  bool ok = out && fwrite(b.at, 1, b.len, out) == b.len;
  if (out) ok = fclose(out) == 0 && ok;
  ok = ok && rename(tmp, path) == 0;
  int why = errno;
  if (!ok) remove(tmp);
  arena_free(a);
  if (!ok) err_raise(e, NS_ERR_IO, "cannot write the model file '%s': %s", path, strerror(why));
}

static uint8_t *read_file(Arena *a, const char *path, size_t *n) {
  FILE *in = fopen(path, "rb");
  if (!in) err_raise(arena_err(a), NS_ERR_IO, "cannot read the model file '%s': %s", path, strerror(errno));
  StrBuf b;
  sb_init(&b, a);
  char buf[4096];
  for (size_t k; (k = fread(buf, 1, sizeof buf, in)) > 0;) sb_write(&b, buf, k);
  fclose(in);
  *n = b.len;
  return (uint8_t *)sb_str(&b);
}

/* Every child lies behind its parent and inside the file, so that walking a tree ends. */
static bool sound(const Forest *f) {
  for (int i = 0; i < f->n_nodes; i++) {
    const TreeNode *n = &f->node[i];
    if (n->entry >= f->n_feat || (n->entry >= 0 && (n->left <= i || n->left + 1 >= f->n_nodes))) return false;
  }
  for (int t = 0; t < f->n_trees; t++)
    if (f->root[t] < 0 || f->root[t] >= f->n_nodes) return false;
  return true;
}

Forest *forest_load(Arena *a, const char *path, char **json) {
  Err *e = arena_err(a);
  size_t n, head = 4 + 4 * HEAD_WORDS;
  uint8_t *p = read_file(a, path, &n);
  uint32_t h[HEAD_WORDS], crc;
  err_check(e, n >= head + 4 && memcmp(p, "ACM1", 4) == 0, "'%s' is not a nestsmith model file", path);
  memcpy(h, p + 4, sizeof h);
  memcpy(&crc, p + n - 4, 4);
  err_check(e, h[0] == VERSION && h[1] == KIND_TREES,
            "'%s': model file of version %u, kind %u; this release reads version %d, kind %d", path, h[0], h[1],
            VERSION, KIND_TREES);
  uint64_t want = head + h[6] + 4 * (uint64_t)h[4] + sizeof(TreeNode) * (uint64_t)h[5] + 4;
  err_check(e, want == n && crc == crc32_of(p, n - 4),
            "'%s' is damaged (checksum or length does not match); train or fetch it again", path);
  Forest *f = arena_new_of(a, Forest);
  f->rules = (int32_t)h[2], f->n_feat = (int32_t)h[3], f->n_trees = (int32_t)h[4], f->n_nodes = (int32_t)h[5];
  uint8_t *at = p + head;
  if (json) {
    *json = arena_alloc(a, h[6] + 1);
    memcpy(*json, at, h[6]);
  }
  f->root = arena_copy(a, at + h[6], 4 * (size_t)h[4]);
  f->node = arena_copy(a, at + h[6] + 4 * (size_t)h[4], sizeof(TreeNode) * (size_t)h[5]);
  err_check(e, sound(f), "'%s': the trees in the file are not well-formed", path);
  return f;
}
