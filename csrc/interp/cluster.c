/* Clusters: neighbouring blocks along z that send each other values, which come to lie in shared memory, and wait until all that
 * is sent to them has arrived (IN_CLUSTER_BEGIN, IN_CLUSTER_HERE, IN_CLUSTER_SEND, IN_CLUSTER_ARRIVED). Blocks run one after the other
 * here, so a cluster's run twice: first each up to where it waits, and what it sends is kept; then each from start to end, and where it
 * waits finds what was sent to it. It is checked that nobody sends before all blocks are there, nor two values to one place; that
 * no block touches such a place before all has arrived; that as many bytes arrive as it expects, for it would wait for ever or go on
 * too early; and that it does wait, for others must not send to a block that has ended.
 */
#include <string.h>
#include "interp/run.h"

typedef struct {
  Val value;
  bool there;
} Sent;
typedef struct {
  Sent *at; /* by elements of the array; NULL: nothing was sent to such a block up to now */
  int64_t bytes;
} Inbox;

struct Cluster {
  int n, rank;               /* blocks; the one that runs */
  bool first;                /* it runs for the first time */
  bool begun, here, arrived; /* how far it is */
  int64_t expected;
  BufferId buf; /* what blocks send to; 0: none has begun */
  int64_t elems;
  Inbox inbox[GPU_CLUSTER];
};

struct Cluster *cluster_begin(Run *r, const Stmt *kernel) {
  struct Cluster *x = arena_new_of(r->keep, struct Cluster);
  *x = (struct Cluster){.n = st_cluster(r->c, kernel)};
  if (x->n < 1 || x->n > GPU_CLUSTER || r->grid_dim[2] % x->n)
    err_raise(r->err, NS_ERR_VALUE, "%lld blocks along z in clusters of %d; at most %d go together, and evenly",
              (long long)r->grid_dim[2], x->n, GPU_CLUSTER);
  return x;
}

int cluster_size(const Run *r) { return r->cluster->n; }
bool cluster_past(const Run *r) { return r->cluster->first && r->cluster->arrived; }

static const char *name_of(Run *r) { return r->cluster->buf ? ir_buffer(r->c, r->cluster->buf)->name : "nothing"; }

/* ---- what a block does ---- */

static void begin(Run *r, const ExprId *k) {
  struct Cluster *x = r->cluster;
  Spot to = operand_spot(r, k[0], true);
  x->begun = true;
  x->buf = r->node[k[0]].sym, x->elems = to.mem->n;
  x->expected = ev_int(r, k[2], "number of bytes");
  if (ev_int(r, k[3], "lateness"))
    memset(to.mem->shadow, 0, to.mem->n * sizeof *to.mem->shadow); /* what was there is gone */
}

void cluster_send(Run *r, const ExprNode *call) {
  struct Cluster *x = r->cluster;
  const ExprId *k = r->kid + call->kid0;
  int n = call->n - SEND_VALUES;
  if (!x->here || x->arrived || r->node[k[0]].sym != x->buf) {
    finding(r, FD_RACE, r->node[k[0]].sym,
            "a race: '%s' is sent to while blocks of the cluster may not be ready for that",
            ir_buffer(r->c, r->node[k[0]].sym)->name);
    return;
  }
  Spot to = operand_spot(r, k[0], true);
  int64_t rank = ev_int(r, k[2], "number of a block");
  check_aligned(r, k[0], to, n);
  if (rank < 0 || rank >= x->n || to.at + n > x->elems)
    finding(r, FD_BOUNDS, x->buf, "out of bounds: %d values are sent to element %lld of '%s' in block %lld of %d", n,
            (long long)to.at, name_of(r), (long long)rank, x->n);
  else if (x->first && to.at >= 0) {
    Inbox *in = &x->inbox[rank];
    if (!in->at) in->at = arena_array(r->keep, Sent, x->elems);
    in->bytes += n * to.mem->size;
    for (int i = 0; i < n; i++) {
      Sent *s = &in->at[to.at + i];
      if (s->there)
        finding(r, FD_DOUBLE, x->buf, "double write of '%s' element %lld: two values are sent there", name_of(r),
                (long long)to.at + i);
      *s = (Sent){ev(r, k[SEND_VALUES + i], 0), true};
    }
  }
}

/* All that others send is there. No thread of this block has written it, so that all may read it. */
static void arrive(Run *r) {
  struct Cluster *x = r->cluster;
  Inbox *in = &x->inbox[x->rank];
  x->arrived = true;
  if (x->first || !x->begun) return;
  if (in->bytes != x->expected)
    finding(r, FD_BARRIER, 5, "a block waits for %lld bytes in '%s', and %lld are sent to it", (long long)x->expected,
            name_of(r), (long long)in->bytes);
  Mem *m = mem_of(r, x->buf);
  for (int64_t i = 0; in->at && i < m->n; i++) {
    if (!in->at[i].there) continue;
    if (m->shadow[i].writer || m->shadow[i].reader[0])
      finding(r, FD_RACE, x->buf, "a race: '%s' element %lld is touched before what others send there has arrived",
              name_of(r), (long long)i);
    mem_put(m->type, m->data + i * m->size, in->at[i].value);
    m->shadow[i] = (Shadow){.init = !in->at[i].value.bad};
  }
}

bool is_cluster_op(const Run *r, const Stmt *s) {
  return st_calls(r->c, s, IN_CLUSTER_BEGIN) || st_calls(r->c, s, IN_CLUSTER_HERE) ||
         st_calls(r->c, s, IN_CLUSTER_ARRIVED);
}
void exec_cluster(Run *r, const Stmt *s, bool all_on) {
  struct Cluster *x = r->cluster;
  const ExprNode *n = r->node + s->u.eval.e;
  if (!all_on) finding(r, FD_BARRIER, 3, "a barrier of the cluster is not reached by all threads");
  set_thread(r, 0);
  step(r);
  if (n->sym == IN_CLUSTER_BEGIN) {
    begin(r, r->kid + n->kid0);
    return;
  }
  if (!x->begun) finding(r, FD_BARRIER, 6, "a block waits for its cluster, and has not begun itself");
  if (n->sym == IN_CLUSTER_HERE)
    x->here = true;
  else
    arrive(r);
}

/* ---- blocks ---- */

static void one_block(Run *r, const Stmt *s, int64_t z, const bool *on) {
  struct Cluster *x = r->cluster;
  r->block_id[2] = z;
  x->rank = (int)(z % x->n), x->begun = x->here = x->arrived = false;
  r->epoch++;
  end_copies(r);
  end_groups(r);
  launch_block(r);
  counts_block(r);
  set_thread(r, 0);
  exec_all(r, s, on);
  if (x->first) return;
  launch_block_ends(r);
  if (!x->arrived && x->inbox[x->rank].bytes)
    finding(r, FD_RACE, x->buf, "a race: a block may end while others of its cluster send to its '%s'", name_of(r));
}

void cluster_run(Run *r, const Stmt *s, int64_t z, int32_t serial, const bool *on) {
  struct Cluster *x = r->cluster;
  int32_t column = (int32_t)(r->grid_dim[0] * r->grid_dim[1]);
  for (int i = 0; i < x->n; i++) {
    x->inbox[i].bytes = 0;
    if (x->inbox[i].at) memset(x->inbox[i].at, 0, (size_t)x->elems * sizeof(Sent));
  }
  for (int pass = x->n > 1 ? 0 : 1; pass < 2; pass++)
    for (int i = 0; i < x->n; i++) {
      x->first = pass == 0;
      r->block_serial = serial + i * column;
      one_block(r, s, z + i, on);
    }
}
