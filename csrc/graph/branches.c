/* Which kernels of a network have to wait for which others. In the order of the nodes, per storage: who reads comes behind the last that
 * wrote, who writes behind the last that wrote and all that have read since. What follows from other waits is left out.
 */
#include "graph/graph.h"
#include <stdlib.h>

typedef VEC(int32_t) Steps;
typedef struct {
  int32_t writer; /* -1: none */
  Steps readers;
} Storage;
typedef struct {
  Arena *a;
  const Graph *g;
  GraphStep *step;
  Storage *storage;
  int32_t words;
  uint64_t *before; /* per step the set of those that come before it */
  Steps want;
} Branches;

static void want(Branches *x, int32_t step) {
  if (step >= 0) vec_push(x->a, &x->want, step);
}
static bool has(const uint64_t *set, int32_t i) { return set[i / 64] >> i % 64 & 1; }

static int latest_first(const void *a, const void *b) { return *(const int32_t *)b - *(const int32_t *)a; }
/* From the latest on: what comes before one that is waited for needs no wait of its own. */
static void settle(Branches *x, int32_t i) {
  GraphStep *s = &x->step[i];
  uint64_t *own = x->before + (int64_t)i * x->words;
  if (x->want.len) qsort(x->want.at, (size_t)x->want.len, sizeof *x->want.at, latest_first);
  s->behind = arena_array(x->a, int32_t, x->want.len + 1);
  s->n = 0;
  for (int32_t k = 0; k < x->want.len; k++) {
    int32_t w = x->want.at[k];
    if (has(own, w)) continue;
    s->behind[s->n++] = w;
    own[w / 64] |= (uint64_t)1 << w % 64;
    for (int32_t q = 0; q < x->words; q++) own[q] |= x->before[(int64_t)w * x->words + q];
  }
}

static void of_step(Branches *x, int32_t i, int32_t *last_of_group) {
  GraphStep *s = &x->step[i];
  const GraphNode *n = &x->g->node[s->node];
  x->want.len = 0;
  if (s->group >= 0) want(x, last_of_group[s->group]), last_of_group[s->group] = i;
  for (int k = 0; k < n->n_in; k++) want(x, x->storage[x->g->entry[n->in[k]].storage].writer);
  for (int k = 0; k < n->n_out; k++) {
    Storage *o = &x->storage[x->g->entry[n->first + k].storage];
    want(x, o->writer);
    for (int32_t r = 0; r < o->readers.len; r++) want(x, o->readers.at[r]);
  }
  settle(x, i);
  for (int k = 0; k < n->n_in; k++) {
    Steps *readers = &x->storage[x->g->entry[n->in[k]].storage].readers;
    if (readers->len == 0 || readers->at[readers->len - 1] != i) vec_push(x->a, readers, i);
  }
  for (int k = 0; k < n->n_out; k++) {
    Storage *o = &x->storage[x->g->entry[n->first + k].storage];
    o->writer = i;
    o->readers.len = 0;
  }
}

void graph_branches(Arena *a, const Graph *g, int n_steps, GraphStep *step) {
  int32_t groups = 0;
  for (int i = 0; i < n_steps; i++)
    if (step[i].group >= groups) groups = step[i].group + 1;
  Branches x = {.a = a, .g = g, .step = step, .words = (n_steps + 63) / 64};
  x.storage = arena_array(a, Storage, g->n_storage);
  x.before = arena_array(a, uint64_t, (int64_t)n_steps * x.words);
  for (int s = 0; s < g->n_storage; s++) x.storage[s].writer = -1;
  int32_t *last = arena_array(a, int32_t, groups + 1);
  for (int k = 0; k < groups; k++) last[k] = -1;
  for (int i = 0; i < n_steps; i++) of_step(&x, i, last);
}
