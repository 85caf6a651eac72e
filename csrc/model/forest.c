/* A trained forest: scoring, and its file.
 *
 * After the head that all model files share: f32 base score (0), u32 trees; per tree u32 nodes and nodes as {i32 entry
 * or -1, f32 threshold or leaf value, u32 left child, counted from the tree's first node}.
 */
#include "model/file.h"
#include <math.h>

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

/* Entries that some node looks at. */
static int32_t used_entries(Arena *a, const Forest *f, int32_t **out) {
  bool *used = arena_array(a, bool, f->n_feat + 1);
  int32_t n = 0;
  for (int i = 0; i < f->n_nodes; i++)
    if (f->node[i].entry >= 0) used[f->node[i].entry] = true;
  *out = arena_array(a, int32_t, f->n_feat + 1);
  for (int i = 0; i < f->n_feat; i++)
    if (used[i]) (*out)[n++] = i;
  return n;
}

static void write_forest(const Forest *f, StrBuf *b) {
  float base = 0;
  model_put(b, &base, sizeof base);
  model_put_u32(b, f->n_trees);
  for (int t = 0; t < f->n_trees; t++) {
    int32_t from = f->root[t], to = t + 1 < f->n_trees ? f->root[t + 1] : f->n_nodes;
    model_put_u32(b, to - from);
    for (int i = from; i < to; i++) {
      TreeNode n = f->node[i];
      if (n.entry >= 0) n.left -= from;
      model_put(b, &n, sizeof n);
    }
  }
}

void forest_save(Arena *a, const Forest *f, const char *path, const char *json) {
  ArenaMark m = arena_mark(a);
  int32_t *kept, n = used_entries(a, f, &kept);
  StrBuf b;
  model_file_begin(
      &b, a,
      &(ModelHead){
          .kind = MODEL_TREES, .rules = f->rules, .n_feat = f->n_feat, .n_kept = n, .kept = kept, .json = json});
  write_forest(f, &b);
  model_file_end(&b, path);
  arena_release(a, m);
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

Forest *forest_load(Arena *a, const char *path, const char **json) {
  Err *e = arena_err(a);
  ModelReader r;
  ModelHead h = model_file_open(&r, a, path);
  err_check(e, h.kind == MODEL_TREES, "'%s' holds a model of kind %d, not trees; load it as what it is", path,
            (int)h.kind);
  Forest *f = arena_new_of(a, Forest);
  VEC(TreeNode) node = {0};
  float base;
  model_get(&r, &base, sizeof base);
  f->rules = h.rules, f->n_feat = h.n_feat, f->n_trees = model_get_count(&r, 4);
  f->root = arena_array(a, int32_t, f->n_trees + 1);
  for (int t = 0; t < f->n_trees; t++) {
    int32_t n = model_get_count(&r, sizeof(TreeNode)), from = f->root[t] = node.len;
    for (int i = 0; i < n; i++) {
      TreeNode x;
      model_get(&r, &x, sizeof x);
      bool inner = x.entry >= 0;
      err_check(e, !inner || (x.left >= 0 && x.left < n), "'%s': the trees in the file are not well-formed", path);
      if (inner) x.left += from;
      vec_push(a, &node, x);
    }
  }
  f->node = node.at, f->n_nodes = node.len;
  err_check(e, sound(f), "'%s': the trees in the file are not well-formed", path);
  *json = h.json;
  return f;
}
