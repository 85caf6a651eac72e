/* The graph file: one JSON object with nodes, entries (the values nodes make) and outputs (spec 05 §5.1). Nodes refer
 * to entries as [node, output, version]; here they become plain entry numbers. The file may come from outside, so every
 * number is checked here once and the executor can trust it. */
#include "graph/graph.h"
#include <cJSON.h>
#include <string.h>

typedef struct {
  Arena *a;
  const char *text;
  cJSON *root;
  Graph *g;
  int32_t *row, *axis; /* per node; axis: of concatenations */
} Parse;

static NS_NORETURN void bad(const Parse *p, const char *what, int i) {
  err_raise(arena_err(p->a), NS_ERR_VALUE, "graph file: %s (item %d)", what, i);
}

static const cJSON *array(const Parse *p, const cJSON *o, const char *field, int32_t *n) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, field);
  if (!cJSON_IsArray(v)) err_raise(arena_err(p->a), NS_ERR_VALUE, "graph file: %s is missing or no list", field);
  *n = cJSON_GetArraySize(v);
  return v;
}

static const char *string(const Parse *p, const cJSON *o, const char *field, int i) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, field);
  if (!cJSON_IsString(v)) bad(p, field, i);
  return arena_strdup(p->a, v->valuestring);
}

static int64_t integer(const Parse *p, const cJSON *v, const char *what, int i, int64_t lo, int64_t hi) {
  if (!json_whole(v, lo, hi)) bad(p, what, i);
  return (int64_t)v->valuedouble;
}

static int32_t entry_of(const Parse *p, const cJSON *ref, int n_nodes, int i) {
  if (!cJSON_IsArray(ref) || cJSON_GetArraySize(ref) < 2) bad(p, "an entry is not [node, output, version]", i);
  int64_t node = integer(p, cJSON_GetArrayItem(ref, 0), "node number out of range", i, 0, n_nodes - 1);
  int64_t out =
      integer(p, cJSON_GetArrayItem(ref, 1), "output number out of range", i, 0, p->row[node + 1] - p->row[node] - 1);
  return p->row[node] + (int32_t)out;
}

static void parse_node(Parse *p, const cJSON *o, int i) {
  GraphNode *n = &p->g->node[i];
  const char *op = string(p, o, "op", i);
  n->name = string(p, o, "name", i);
  n->first = p->row[i];
  n->n_out = p->row[i + 1] - p->row[i];
  if (n->n_out < 1) bad(p, "node_row_ptr does not ascend", i);
  const cJSON *in = array(p, o, "inputs", &n->n_in), *ref;
  n->in = arena_array(p->a, int32_t, n->n_in);
  int k = 0;
  cJSON_ArrayForEach(ref, in) {
    n->in[k] = entry_of(p, ref, p->g->n_nodes, i);
    if (n->in[k++] >= n->first) bad(p, "a node reads a value made later", i);
  }
  if (strcmp(op, "null") == 0) {
    n->kind = GN_NULL;
    if (n->n_in || n->n_out != 1) bad(p, "an input node has inputs or several outputs", i);
    return;
  }
  if (strcmp(op, "tvm_op") != 0) bad(p, "op is neither null nor tvm_op", i);
  n->func = string(p, cJSON_GetObjectItemCaseSensitive(o, "attrs"), "func_name", i);
  n->kind = strcmp(n->func, "__nop") == 0 ? GN_NOP : strcmp(n->func, "__join") == 0 ? GN_JOIN : GN_CALL;
  if (n->kind == GN_JOIN) {
    const cJSON *axis = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(o, "attrs"), "axis");
    p->axis[i] = (int32_t)integer(p, axis, "__join has no axis", i, 0, INT32_MAX);
  }
  if (n->kind == GN_NOP && (n->n_in != 1 || n->n_out != 1)) bad(p, "__nop must have one input and one output", i);
}

/* attrs.FIELD = [type name, list]; the list has one item per entry */
static const cJSON *attr_list(const Parse *p, const cJSON *attrs, const char *field) {
  int32_t n;
  const cJSON *pair = array(p, attrs, field, &n), *list = cJSON_GetArrayItem(pair, 1);
  if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != p->g->n_entries)
    err_raise(arena_err(p->a), NS_ERR_VALUE, "graph file: attrs.%s must hold %d items", field, (int)p->g->n_entries);
  return list;
}

static void parse_entries(Parse *p, const cJSON *attrs) {
  Graph *g = p->g;
  const cJSON *shapes = attr_list(p, attrs, "shape"),
              *dtypes = attr_list(p, attrs, cJSON_HasObjectItem(attrs, "dltype") ? "dltype" : "dtype");
  const cJSON *ids = attr_list(p, attrs, "storage_id"), *s = shapes->child, *t = dtypes->child, *q = ids->child, *d;
  g->storage_bytes = arena_array(p->a, int64_t, g->n_entries);
  for (int i = 0; i < g->n_entries; i++, s = s->next, t = t->next, q = q->next) {
    GraphEntry *en = &g->entry[i];
    if (!cJSON_IsArray(s) || !cJSON_IsString(t)) bad(p, "attrs.shape or attrs.dtype is wrong", i);
    en->rank = cJSON_GetArraySize(s);
    en->shape = arena_array(p->a, int64_t, en->rank);
    en->dtype = arena_strdup(p->a, t->valuestring);
    en->bytes = params_dtype_bytes(en->dtype);
    if (!en->bytes) bad(p, "unknown dtype", i);
    int k = 0;
    cJSON_ArrayForEach(d, s) {
      en->shape[k] = integer(p, d, "a dimension is no integer", i, 0, (int64_t)1 << 40);
      if (!i64_mul(en->bytes, en->shape[k++], &en->bytes) || en->bytes > (int64_t)1 << 60)
        bad(p, "a value is too large", i);
    }
    en->storage = (int32_t)integer(p, q, "storage_id out of range", i, 0, g->n_entries - 1);
    en->span = en->bytes;
    int64_t padded = (en->bytes + 3) / 4 * 4;
    if (padded > g->storage_bytes[en->storage]) g->storage_bytes[en->storage] = padded;
    if (en->storage >= g->n_storage) g->n_storage = en->storage + 1;
  }
}

/* Does entry `part` fit beside others along an axis of `whole`? */
static bool joins(const GraphEntry *part, const GraphEntry *whole, int32_t axis) {
  bool ok = part->rank == whole->rank && axis < whole->rank && strcmp(part->dtype, whole->dtype) == 0;
  for (int d = 0; ok && d < whole->rank; d++) ok = d == axis || part->shape[d] == whole->shape[d];
  return ok && part->storage == whole->storage && part->shape[axis] <= whole->shape[axis];
}

/* Where the parts of concatenations lie. Programs rely on the alignment of all that they are given. */
static void parse_joins(Parse *p) {
  Graph *g = p->g;
  graph_wholes(p->a, g->n_nodes, g->node, g->n_entries, g->n_heads, g->head);
  for (int i = 0; i < g->n_nodes; i++) {
    const GraphNode *n = &g->node[i];
    if (n->kind != GN_JOIN) continue;
    const GraphEntry *whole = &g->entry[n->first];
    int32_t axis = p->axis[i];
    int64_t rows = 1, row, at = 0, sum = 0;
    for (int d = 0; d < axis && d < whole->rank; d++) rows *= whole->shape[d];
    row = whole->bytes ? whole->bytes / rows : 0;
    for (int k = 0; k < n->n_in; k++) {
      GraphEntry *part = &g->entry[n->in[k]];
      if (!joins(part, whole, axis)) bad(p, "__join has an input that does not fit", i);
      if (at % PROGRAM_ALIGN) bad(p, "__join has an input that would not be aligned", i);
      part->part = true;
      part->at = at;
      if (part->bytes) part->span = row * (rows - 1) + part->bytes / rows;
      at += part->bytes ? part->bytes / rows : 0;
      sum += part->shape[axis];
      if (at > row || sum > whole->shape[axis]) bad(p, "__join has more inputs than its output holds", i);
    }
    if (sum != whole->shape[axis]) bad(p, "__join has fewer inputs than its output holds", i);
  }
}

static void parse(void *arg) {
  Parse *p = arg;
  Graph *g = p->g = arena_new_of(p->a, Graph);
  p->root = json_parse(arena_err(p->a), p->text);
  if (!cJSON_IsObject(p->root))
    err_raise(arena_err(p->a), NS_ERR_VALUE, "graph file: not a JSON object: %.60s", p->text);
  int32_t n_row, i = 0;
  const cJSON *nodes = array(p, p->root, "nodes", &g->n_nodes), *row = array(p, p->root, "node_row_ptr", &n_row), *o;
  if (n_row != g->n_nodes + 1) bad(p, "node_row_ptr must have one item more than nodes", n_row);
  p->row = arena_array(p->a, int32_t, n_row);
  size_t len = strlen(p->text);
  int64_t most = len < 1 << 28 ? (int64_t)len : 1 << 28; /* each entry is described in the text */
  cJSON_ArrayForEach(o, row) {
    p->row[i] = (int32_t)integer(p, o, "node_row_ptr out of range", i, i ? p->row[i - 1] : 0, i ? most : 0);
    i++;
  }
  g->n_entries = p->row[g->n_nodes];
  g->node = arena_array(p->a, GraphNode, g->n_nodes);
  g->entry = arena_array(p->a, GraphEntry, g->n_entries);
  p->axis = arena_array(p->a, int32_t, g->n_nodes);
  i = 0;
  cJSON_ArrayForEach(o, nodes) parse_node(p, o, i++);
  parse_entries(p, cJSON_GetObjectItemCaseSensitive(p->root, "attrs"));
  g->branches = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(p->root, "branches"));
  const cJSON *args = array(p, p->root, "arg_nodes", &g->n_args), *heads = array(p, p->root, "heads", &g->n_heads);
  g->arg = arena_array(p->a, int32_t, g->n_args);
  g->head = arena_array(p->a, int32_t, g->n_heads);
  i = 0;
  cJSON_ArrayForEach(o, args) {
    int64_t n = integer(p, o, "arg_nodes out of range", i, 0, g->n_nodes - 1);
    if (g->node[n].kind != GN_NULL) bad(p, "arg_nodes names a node that is no input", i);
    g->arg[i++] = p->row[n];
  }
  i = 0;
  cJSON_ArrayForEach(o, heads) {
    g->head[i] = entry_of(p, o, g->n_nodes, i);
    i++;
  }
  parse_joins(p);
}

Graph *graph_parse(Arena *a, const char *json) {
  Parse p = {.a = a, .text = json};
  json_with(arena_err(a), parse, &p, &p.root);
  return p.g;
}
