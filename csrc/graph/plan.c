/* The storage plan: values whose lives do not overlap share memory. Inputs, parameters and outputs keep their storage
 * for good. A call asks for memory while its arguments still hold theirs, so it never writes where it reads; afterwards
 * storages without readers become free. A free one is taken again if its size is within a factor of 16 of the request:
 * the smallest that is large enough, else the largest smaller one, which then grows (spec 08 §6.1). The parts of a concatenation
 * have its storage, from the first of them on. For branches that run side by side a free one is taken only by a node that comes
 * behind all that has touched it, whatever the order in which the others run. */
#include "graph/graph.h"
#include <stdlib.h>

enum { RANGE = 16, FOREVER = 1 << 30, ALIGN = 256 };

typedef struct {
  int32_t n;
  int32_t *id;
  int64_t *bytes;
  int32_t *readers;
  bool *free;
  /* for branches: sets of nodes, `words` long: those before the node at hand, and per storage those that have touched it */
  int32_t words;
  uint64_t *before, *touched;
} Pool_;

/* Does the node at hand come behind all that has touched the storage? */
static bool behind(const Pool_ *p, int32_t s) {
  for (int32_t w = 0; w < p->words; w++)
    if (p->touched[(int64_t)s * p->words + w] & ~p->before[w]) return false;
  return true;
}

static int32_t fresh(Pool_ *p, int64_t bytes) {
  p->bytes[p->n] = bytes;
  return p->n++;
}

static int32_t request(Pool_ *p, int64_t bytes) {
  int32_t above = -1, below = -1;
  for (int32_t s = 0; s < p->n; s++) {
    if (!p->free[s] || !behind(p, s)) continue;
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

const int32_t *graph_wholes(Arena *a, int n_nodes, const GraphNode *nodes, int n_entries, int n_heads,
                            const int32_t *heads) {
  Err *e = arena_err(a);
  int32_t *uses = arena_array(a, int32_t, n_entries), *whole = arena_array(a, int32_t, n_entries);
  bool *made = arena_array(a, bool, n_entries);
  for (int k = 0; k < n_entries; k++) whole[k] = -1;
  for (int k = 0; k < n_heads; k++) uses[heads[k]]++;
  for (int i = 0; i < n_nodes; i++) {
    for (int k = 0; k < nodes[i].n_in; k++) uses[nodes[i].in[k]]++;
    for (int k = 0; k < nodes[i].n_out; k++) made[nodes[i].first + k] = nodes[i].kind == GN_CALL;
  }
  for (int i = 0; i < n_nodes; i++) {
    const GraphNode *n = &nodes[i];
    if (n->kind != GN_JOIN) continue;
    err_check(e, n->n_in >= 1 && n->n_out == 1, "graph: node %d does not join inputs to one output", i);
    for (int k = 0; k < n->n_in; k++) {
      err_check(e, made[n->in[k]] && uses[n->in[k]] == 1, "graph: node %d joins a value that is not its alone", i);
      whole[n->in[k]] = n->first;
    }
  }
  return whole;
}

/* Sets of the nodes that come before each: those whose values it reads, and what comes before these. */
static uint64_t *nodes_before(Arena *a, int n_nodes, const GraphNode *nodes, int n_entries, int32_t words) {
  uint64_t *before = arena_array(a, uint64_t, (int64_t)n_nodes * words);
  int32_t *maker = arena_array(a, int32_t, n_entries);
  for (int i = 0; i < n_nodes; i++) {
    uint64_t *own = before + (int64_t)i * words;
    for (int k = 0; k < nodes[i].n_out; k++) maker[nodes[i].first + k] = i;
    for (int k = 0; k < nodes[i].n_in; k++) {
      int m = maker[nodes[i].in[k]];
      own[m / 64] |= (uint64_t)1 << m % 64;
      for (int32_t w = 0; w < words; w++) own[w] |= before[(int64_t)m * words + w];
    }
  }
  return before;
}
static void touch(Pool_ *p, int32_t s, int node) {
  if (p->words) p->touched[(int64_t)s * p->words + node / 64] |= (uint64_t)1 << node % 64;
}

GraphPlan graph_plan(Arena *a, int n_nodes, const GraphNode *nodes, int n_entries, const int64_t *bytes, int n_heads,
                     const int32_t *heads, bool branches) {
  Err *e = arena_err(a);
  int32_t *uses = arena_array(a, int32_t, n_entries), *id = arena_array(a, int32_t, n_entries);
  Pool_ p = {.id = id,
             .bytes = arena_array(a, int64_t, n_entries),
             .readers = arena_array(a, int32_t, n_entries),
             .free = arena_array(a, bool, n_entries),
             .words = branches ? (n_nodes + 63) / 64 : 0};
  for (int i = 0; i < n_nodes; i++) {
    const GraphNode *n = &nodes[i];
    err_check(e, n->first >= 0 && n->n_out >= 1 && n->n_out <= n_entries - n->first,
              "graph: node %d has entries out of range", i);
    for (int k = 0; k < n->n_in; k++) {
      err_check(e, n->in[k] >= 0 && n->in[k] < n->first, "graph: node %d reads an entry that is not made yet", i);
      uses[n->in[k]]++;
    }
  }
  uint64_t *before = branches ? nodes_before(a, n_nodes, nodes, n_entries, p.words) : NULL;
  p.touched = arena_array(a, uint64_t, (int64_t)n_entries * p.words);
  for (int k = 0; k < n_heads; k++) uses[heads[k]] = FOREVER;
  const int32_t *whole = graph_wholes(a, n_nodes, nodes, n_entries, n_heads, heads);
  for (int i = 0; i < n_nodes; i++) /* the node itself reads its parts until it has had its turn */
    if (nodes[i].kind == GN_JOIN && uses[nodes[i].first] < FOREVER) uses[nodes[i].first] += nodes[i].n_in;
  for (int k = 0; k < n_entries; k++) id[k] = -1;
  for (int i = 0; i < n_nodes; i++) {
    const GraphNode *n = &nodes[i];
    p.before = branches ? before + (int64_t)i * p.words : NULL;
    for (int k = 0; k < n->n_out; k++) {
      int32_t part = n->first + k, v = whole[part] >= 0 ? whole[part] : part;
      if (id[v] >= 0) {
        id[part] = id[v];
        continue;
      }
      if (n->kind == GN_NULL) {
        id[v] = fresh(&p, bytes[v]);
        p.readers[id[v]] = FOREVER;
      } else if (n->kind == GN_NOP) {
        id[v] = id[n->in[0]];
        if (p.readers[id[v]] < FOREVER) p.readers[id[v]] = uses[v] >= FOREVER ? FOREVER : p.readers[id[v]] + uses[v];
      } else {
        id[part] = id[v] = request(&p, bytes[v]);
        p.readers[id[v]] = uses[v];
      }
    }
    for (int k = 0; k < n->n_out; k++) touch(&p, id[n->first + k], i);
    for (int k = 0; k < n->n_in; k++) touch(&p, id[n->in[k]], i);
    for (int k = 0; k < n->n_out; k++)
      if (n->kind == GN_CALL && uses[n->first + k] == 0) drop(&p, id[n->first + k], 0);
    for (int k = 0; k < n->n_in; k++)
      if (p.readers[id[n->in[k]]] < FOREVER) drop(&p, id[n->in[k]], 1);
  }
  return (GraphPlan){p.n, id, p.bytes};
}

/* ---- one room ----
 * A storage is as large as the largest value that ever takes it. Values that may begin anywhere in one room need less: largest
 * first, each at the lowest place that no other one has while it lives, they mostly take what lives at the busiest moment, and
 * that is what has to fit into the caches. Workspaces are of the room for the same reason: a kernel of many of them finds the
 * memory in the caches that the one before it has used. */
typedef struct {
  int32_t entry, first, last; /* nodes: which makes it, which reads it last; entry: of workspaces n_entries and more */
  int64_t bytes, at;
} Life;

static int largest_first(const void *x, const void *y) {
  const Life *a = x, *b = y;
  return a->bytes != b->bytes ? (a->bytes < b->bytes) - (a->bytes > b->bytes) : a->entry - b->entry;
}

/* Per entry the one that its memory is asked for with: of reshapes what they reshape, of concatenations the part made first. */
static const int32_t *roots_of(Arena *a, const Graph *g) {
  int32_t *root = arena_array(a, int32_t, g->n_entries);
  for (int i = 0; i < g->n_nodes; i++) {
    const GraphNode *n = &g->node[i];
    for (int e = n->first; e < n->first + n->n_out; e++) root[e] = n->kind == GN_NOP ? root[n->in[0]] : e;
    if (n->kind != GN_JOIN) continue;
    for (int k = 0; k < n->n_in; k++)
      if (n->in[k] < root[n->first]) root[n->first] = n->in[k];
    for (int k = 0; k < n->n_in; k++) root[n->in[k]] = root[n->first];
  }
  return root;
}

/* Lives of the values between kernels, their number returned. */
static int lives_of(Arena *a, const Graph *g, const int32_t *root, Life *out) {
  int32_t *last = arena_array(a, int32_t, g->n_entries), n = 0;
  int64_t *bytes = arena_array(a, int64_t, g->n_entries);
  for (int e = 0; e < g->n_entries; e++)
    if (g->entry[e].bytes > bytes[root[e]]) bytes[root[e]] = g->entry[e].bytes;
  for (int i = 0; i < g->n_nodes; i++) {
    const GraphNode *node = &g->node[i];
    for (int k = 0; k < node->n_out; k++) last[node->first + k] = i;
    for (int k = 0; k < node->n_in; k++) last[root[node->in[k]]] = i;
  }
  for (int k = 0; k < g->n_heads; k++) last[root[g->head[k]]] = FOREVER;
  for (int i = 0; i < g->n_nodes; i++)
    for (int e = g->node[i].first; g->node[i].kind == GN_CALL && e < g->node[i].first + g->node[i].n_out; e++)
      if (root[e] == e && last[e] < FOREVER) out[n++] = (Life){e, i, last[e], bytes[e], 0};
  return n;
}

int64_t graph_places(Arena *a, const Graph *g, int64_t *place, int n_work, GraphWork *work) {
  const int32_t *root = roots_of(a, g);
  Life *life = arena_array(a, Life, g->n_entries + n_work), **by_place = arena_array(a, Life *, g->n_entries + n_work);
  int64_t room = 0;
  int n = lives_of(a, g, root, life);
  for (int i = 0; i < n_work; i++) life[n++] = (Life){g->n_entries + i, work[i].node, work[i].node, work[i].bytes, 0};
  qsort(life, (size_t)n, sizeof *life, largest_first);
  for (int e = 0; e < g->n_entries; e++) place[e] = -1;
  for (int k = 0; k < n; k++) {
    Life *v = &life[k];
    for (int i = 0; i < k; i++) {
      const Life *o = by_place[i];
      if (o->first > v->last || v->first > o->last || o->at + o->bytes <= v->at) continue;
      if (o->at - v->at >= v->bytes) break;
      v->at = i64_ceildiv(o->at + o->bytes, ALIGN) * ALIGN;
    }
    int at = k;
    for (; at > 0 && by_place[at - 1]->at > v->at; at--) by_place[at] = by_place[at - 1];
    by_place[at] = v;
    *(v->entry < g->n_entries ? &place[v->entry] : &work[v->entry - g->n_entries].at) = v->at;
    if (v->at + v->bytes > room) room = v->at + v->bytes;
  }
  for (int e = 0; e < g->n_entries; e++)
    if (root[e] != e) place[e] = place[root[e]]; /* roots lie where it begins, until all know where that is */
  for (int e = 0; e < g->n_entries; e++)
    if (place[e] >= 0) place[e] += g->entry[e].at;
  return room;
}

int64_t graph_room(Arena *a, const Graph *g, const Manifest *const *manifest, int64_t *place, GraphWork **work) {
  int n = 0;
  for (int i = 0; i < g->n_nodes; i++) n += manifest[i] ? manifest[i]->n_work : 0;
  GraphWork *w = *work = arena_array(a, GraphWork, n);
  for (int i = 0; i < g->n_nodes; i++)
    for (int k = 0; manifest[i] && k < manifest[i]->n_work; k++) *w++ = (GraphWork){i, manifest[i]->work[k].bytes, 0};
  return graph_places(a, g, place, n, *work);
}
