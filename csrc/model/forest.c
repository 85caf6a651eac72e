/* A trained forest: scoring, and its file.
 *
 * After the head that all model files share: f32 scale of the prior that is added to the trees, u32 trees; per tree u32
 * nodes and nodes as {i32 entry or -1, f32 threshold or leaf value, u32 left child, counted from the tree's first node}.
 * A base (kind 3) looks the same; the kind says what it is for.
 */
#include "model/file.h"
#include <math.h>

/* What the trees say of each of a few rows. Tree by tree: one tree and a few rows stay in the processor's first cache, all trees
 * do not. */
enum { AT_ONCE = 16 };
static void rows_score(const Forest *f, int n_rows, const float *row, int n_feat, double s[AT_ONCE]) {
  for (int r = 0; r < n_rows; r++) s[r] = 0;
  for (int t = 0; t < f->n_trees; t++)
    for (int r = 0; r < n_rows; r++) {
      const float *x = row + (size_t)r * (size_t)n_feat;
      const TreeNode *n = &f->node[f->root[t]];
      while (n->entry >= 0) n = &f->node[n->left + (x[n->entry] > n->value)];
      s[r] += n->value;
    }
}

void forest_score(const Forest *f, const FeatBatch *b, double *score) {
  bool prior = f->scale != 0 && b->n_feat >= FEAT_N + STATE_N;
  for (int i = 0; i < b->n_states; i++) {
    score[i] = b->first[i + 1] > b->first[i] ? 0 : -INFINITY;
    for (int r = b->first[i], n; r < b->first[i + 1]; r += n) {
      const float *row = b->rows + (size_t)r * (size_t)b->n_feat;
      double trees[AT_ONCE];
      n = b->first[i + 1] - r < AT_ONCE ? b->first[i + 1] - r : AT_ONCE;
      rows_score(f, n, row, b->n_feat, trees);
      for (int k = 0; k < n; k++, row += b->n_feat)
        score[i] += trees[k] + (prior ? f->scale * prior_of_state(row + FEAT_N) : 0);
    }
  }
}

Forest *forest_join(Arena *a, const Forest *f, double f_scale, const Forest *g) {
  const Forest *part[2] = {f, g}, *any = f ? f : g;
  double times[2] = {f_scale, 1};
  Forest *out = arena_new_of(a, Forest);
  out->rules = any->rules, out->n_feat = any->n_feat;
  out->root = arena_array(a, int32_t, (f ? f->n_trees : 0) + (g ? g->n_trees : 0) + 1);
  out->node = arena_array(a, TreeNode, (f ? f->n_nodes : 0) + (g ? g->n_nodes : 0) + 1);
  for (int k = 0; k < 2; k++) {
    int32_t from = out->n_nodes;
    for (int t = 0; part[k] && t < part[k]->n_trees; t++) out->root[out->n_trees++] = part[k]->root[t] + from;
    for (int i = 0; part[k] && i < part[k]->n_nodes; i++) {
      TreeNode n = part[k]->node[i];
      if (n.entry < 0)
        n.value = (float)(n.value * times[k]);
      else
        n.left += from;
      out->node[out->n_nodes++] = n;
    }
    if (part[k]) out->scale += part[k]->scale * times[k];
  }
  return out;
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
  float scale = (float)f->scale;
  model_put(b, &scale, sizeof scale);
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

void forest_save(Arena *a, const Forest *f, bool base, const char *path, const char *json) {
  ArenaMark m = arena_mark(a);
  int32_t *kept, n = used_entries(a, f, &kept);
  StrBuf b;
  model_file_begin(&b, a,
                   &(ModelHead){.kind = base ? MODEL_BASE : MODEL_TREES,
                                .rules = f->rules,
                                .n_feat = f->n_feat,
                                .n_kept = n,
                                .kept = kept,
                                .json = json});
  write_forest(f, &b);
  model_file_end(&b, path);
  arena_release(a, m);
}

/* Every child lies behind its parent and inside the file, so that walking a tree ends. */
bool forest_sound(const Forest *f) {
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
  err_check(e, h.kind == MODEL_TREES || h.kind == MODEL_BASE,
            "'%s' holds a model of kind %d, not trees; load it as what it is", path, (int)h.kind);
  Forest *f = arena_new_of(a, Forest);
  VEC(TreeNode) node = {0};
  float scale;
  model_get(&r, &scale, sizeof scale);
  err_check(e, isfinite(scale), "'%s': the scale of the prior is not finite", path);
  f->scale = (double)scale, f->rules = h.rules, f->n_feat = h.n_feat, f->n_trees = model_get_count(&r, 4);
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
  err_check(e, forest_sound(f), "'%s': the trees in the file are not well-formed", path);
  *json = h.json;
  return f;
}
