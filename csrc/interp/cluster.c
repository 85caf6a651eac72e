/* Clusters: neighbouring blocks along z that wait for each other once their results are in shared memory, and read those
 * there (IN_CLUSTER_SYNC, IN_CLUSTER_READ). Blocks run one after the other here, so a cluster's run twice: first each up to
 * where they wait, and what others may read of its shared memory is kept; then each from start to end, and reads find what
 * was kept. It is checked that nobody reads before all have waited, or behind the second time that all wait; that nothing of
 * what others read changes in between, and that no block ends while others may read.
 */
#include <string.h>
#include "interp/run.h"

struct Cluster {
  int n, rank, waits; /* blocks; the one that runs, and how often it has waited */
  bool first, read;   /* it runs for the first time; somebody has read in it since */
  BufferId buf;       /* what is read */
  int64_t elems;
  Val *kept[GPU_CLUSTER];
};

static bool find_read(IrCtx *c, const Stmt *s, void *arg) {
  struct Cluster *x = arg;
  if (st_calls(c, s, IN_CLUSTER_READ)) x->buf = ir_node(c, ir_kid(c, s->u.eval.e, 1))->sym;
  return true;
}

struct Cluster *cluster_begin(Run *r, const Stmt *kernel) {
  struct Cluster *x = arena_new_of(r->keep, struct Cluster);
  *x = (struct Cluster){.n = st_cluster(r->c, kernel)};
  st_visit(r->c, kernel, find_read, NULL, x);
  if (x->n < 1 || x->n > GPU_CLUSTER || r->grid_dim[2] % x->n)
    err_raise(r->err, NS_ERR_VALUE, "%lld blocks along z in clusters of %d; at most %d go together, and evenly",
              (long long)r->grid_dim[2], x->n, GPU_CLUSTER);
  return x;
}

int cluster_size(const Run *r) { return r->cluster->n; }
bool cluster_past(const Run *r) { return r->cluster->first && r->cluster->waits > 0; }

void cluster_wait(Run *r) {
  struct Cluster *x = r->cluster;
  Mem *m = mem_of(r, x->buf);
  Val **kept = &x->kept[x->rank];
  if (!*kept) *kept = arena_array(r->keep, Val, m->n);
  x->elems = m->n;
  for (int64_t i = 0; i < m->n; i++) {
    Val now = mem_get(m->type, m->data + i * m->size);
    now.bad = !m->shadow[i].init;
    if (x->first)
      (*kept)[i] = now;
    else if (x->waits == 1 && memcmp(&now.u, &(*kept)[i].u, sizeof now.u) != 0)
      finding(r, FD_RACE, x->buf, "a race: '%s' changes while other blocks of the cluster may read it",
              ir_buffer(r->c, x->buf)->name);
  }
  x->waits++;
  x->read = false;
  r->epoch++;
}

void cluster_read(Run *r, const ExprId *k) {
  struct Cluster *x = r->cluster;
  const ExprNode *from = r->node + k[1], *to = r->node + k[0];
  Mem *m = mem_of(r, from->sym);
  int64_t at = mem_place(r, m, from->n, r->kid + from->kid0, 0, false), rank = ev_int(r, k[2], "number of a block");
  if (x->waits != 1)
    finding(r, FD_RACE, x->buf, "a race: another block's '%s' is read where the cluster has not just waited",
            ir_buffer(r->c, x->buf)->name);
  x->read = true;
  Val v = {.bad = true};
  if (at >= 0 && rank >= 0 && rank < x->n && x->kept[rank])
    v = x->kept[rank][at];
  else
    finding(r, FD_BOUNDS, x->buf, "out of bounds: block %lld of a cluster of %d is read", (long long)rank, x->n);
  mem_store(r, to->sym, to->n, r->kid + to->kid0, 0, v);
}

static void one_block(Run *r, const Stmt *s, int64_t z, const bool *on) {
  struct Cluster *x = r->cluster;
  r->block_id[2] = z;
  x->rank = (int)(z % x->n), x->waits = 0, x->read = false;
  r->epoch++;
  end_copies(r);
  end_groups(r);
  launch_block(r);
  counts_block(r);
  set_thread(r, 0);
  exec_all(r, s, on);
  if (!x->first) launch_block_ends(r);
  if (x->read)
    finding(r, FD_RACE, x->buf, "a block may end while others of its cluster read its '%s'",
            ir_buffer(r->c, x->buf)->name);
}

void cluster_run(Run *r, const Stmt *s, int64_t z, int32_t serial, const bool *on) {
  struct Cluster *x = r->cluster;
  int32_t column = (int32_t)(r->grid_dim[0] * r->grid_dim[1]);
  for (int pass = x->n > 1 ? 0 : 1; pass < 2; pass++)
    for (int i = 0; i < x->n; i++) {
      x->first = pass == 0;
      r->block_serial = serial + i * column;
      one_block(r, s, z + i, on);
    }
}
