/* The storage plan: values whose lives do not overlap share memory. Inputs, parameters and outputs keep their storage
 * for good. A call asks for memory while its arguments still hold theirs, so it never writes where it reads; afterwards
 * storages without readers become free. A free one is taken again if its size is within a factor of 16 of the request:
 * the smallest that is large enough, else the largest smaller one, which then grows (spec 08 §6.1). */
#include "graph/graph.h"

enum { RANGE = 16, FOREVER = 1 << 30 };

typedef struct {
  int32_t n;
  int32_t *id;
  int64_t *bytes;
  int32_t *readers;
  bool *free;
} Pool_;

static int32_t fresh(Pool_ *p, int64_t bytes) {
  p->bytes[p->n] = bytes;
  return p->n++;
}

static int32_t request(Pool_ *p, int64_t bytes) {
  int32_t above = -1, below = -1;
  for (int32_t s = 0; s < p->n; s++) {
    if (!p->free[s]) continue;
    int64_t b = p->bytes[s];
    if (b >= bytes && b / RANGE <= bytes && (above < 0 || b < p->bytes[above])) above = s;
    if (b < bytes && b >= bytes / RANGE && (below < 0 || b > p->bytes[below])) below = s;
  }
  int32_t s = above >= 0 ? above : below;
  if (s < 0) return fresh(p, bytes);
  if (p->bytes[s] < bytes) p->bytes[s] = bytes;
  p->free[s] = false;
  return s;
}

static void drop(Pool_ *p, int32_t s, int32_t by) {
  p->readers[s] -= by;
  if (p->readers[s] <= 0) p->free[s] = true;
}

GraphPlan graph_plan(Arena *a, int n_nodes, const GraphNode *nodes, int n_entries, const int64_t *bytes, int n_heads,
                     const int32_t *heads) {
  Err *e = arena_err(a);
  int32_t *uses = arena_array(a, int32_t, n_entries), *id = arena_array(a, int32_t, n_entries);
  Pool_ p = {0, id, arena_array(a, int64_t, n_entries), arena_array(a, int32_t, n_entries),
             arena_array(a, bool, n_entries)};
  for (int i = 0; i < n_nodes; i++) {
    const GraphNode *n = &nodes[i];
    err_check(e, n->first >= 0 && n->n_out >= 1 && n->n_out <= n_entries - n->first,
              "graph: node %d has entries out of range", i);
    for (int k = 0; k < n->n_in; k++) {
      err_check(e, n->in[k] >= 0 && n->in[k] < n->first, "graph: node %d reads an entry that is not made yet", i);
      uses[n->in[k]]++;
    }
  }
  for (int k = 0; k < n_heads; k++) uses[heads[k]] = FOREVER;
  for (int i = 0; i < n_nodes; i++) {
    const GraphNode *n = &nodes[i];
    for (int k = 0; k < n->n_out; k++) {
      int32_t v = n->first + k;
      if (n->kind == GN_NULL) {
        id[v] = fresh(&p, bytes[v]);
        p.readers[id[v]] = FOREVER;
      } else if (n->kind == GN_NOP) {
        id[v] = id[n->in[0]];
        if (p.readers[id[v]] < FOREVER) p.readers[id[v]] = uses[v] >= FOREVER ? FOREVER : p.readers[id[v]] + uses[v];
      } else {
        id[v] = request(&p, bytes[v]);
        p.readers[id[v]] = uses[v];
      }
    }
    for (int k = 0; k < n->n_out; k++)
      if (n->kind == GN_CALL && uses[n->first + k] == 0) drop(&p, id[n->first + k], 0);
    for (int k = 0; k < n->n_in; k++)
      if (p.readers[id[n->in[k]]] < FOREVER) drop(&p, id[n->in[k]], 1);
  }
  return (GraphPlan){p.n, id, p.bytes};
}
