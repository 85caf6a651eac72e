/* Blocks that count themselves (IN_LAST_BLOCK): what a block did before it was counted is behind the one that is counted last, whichever
 * threads of them did it. So that one may read what the others stored before, but no other may: blocks run one after the other
 * here, on a device in any order. A counter that nobody has counted at is 0, and must be so again when the launch ends: the next
 * launch counts on.
 */
#include "interp/run.h"

typedef struct {
  const Mem *mem; /* NULL: nowhere */
  int64_t at;
} Counter;
struct Counts {
  Counter last; /* where the block that runs is the last */
  int64_t open; /* counters that are not 0 */
  struct {
    Counter at;
    int32_t epoch; /* what it did in epochs before this one came before it was counted */
  } block[];
};

static bool is_count(IrCtx *c, const Stmt *s, void *arg) { return (void)arg, st_calls(c, s, IN_LAST_BLOCK); }

void counts_begin(Run *r, const Stmt *kernel) {
  r->counts = NULL;
  if (!st_any(r->c, kernel, is_count, NULL)) return;
  if (cluster_size(r) > 1)
    err_raise(r->err, NS_ERR_VALUE, "blocks of a cluster, which are run twice here, cannot count themselves");
  size_t blocks = (size_t)(r->grid_dim[0] * r->grid_dim[1] * r->grid_dim[2]);
  r->counts = arena_alloc(r->a, sizeof *r->counts + blocks * sizeof *r->counts->block);
}

void counts_block(Run *r) {
  if (r->counts) r->counts->last.mem = NULL;
}

void counts_end(Run *r) {
  if (r->counts && r->counts->open != 0)
    finding(r, FD_LAUNCH, -8, "a launch leaves %lld counters of blocks that are not 0: the next one would count on",
            (long long)r->counts->open);
}

bool counted_before(const Run *r, int32_t block, int32_t epoch) {
  const struct Counts *x = r->counts;
  if (!x || !x->last.mem) return false;
  const Counter *c = &x->block[block].at;
  return c->mem == x->last.mem && c->at == x->last.at && epoch < x->block[block].epoch;
}

/* Counts the block that runs; is it the last of n? */
static bool count(Run *r, ExprId counter, int64_t n) {
  struct Counts *x = r->counts;
  Spot p = operand_spot(r, counter, true);
  if (p.at < 0) return false;
  launch_touch(r, p.mem, true);
  uint8_t *data = p.mem->data + p.at * p.mem->size;
  int64_t before = p.mem->shadow[p.at].init ? mem_get(p.mem->type, data).u.i : 0,
          now = before >= n - 1 ? 0 : before + 1;
  mem_put(p.mem->type, data, (Val){.u.i = now});
  p.mem->shadow[p.at].init = true;
  x->open += (now != 0) - (before != 0);
  x->block[r->block_serial].at = (Counter){p.mem, p.at};
  x->block[r->block_serial].epoch = ++r->epoch;
  if (now == 0) x->last = x->block[r->block_serial].at;
  return now == 0;
}

void exec_count(Run *r, const Stmt *s, const bool *on) {
  const ExprId *k = r->kid + r->node[s->u.eval.e].kid0;
  const ExprNode *flag = r->node + k[0];
  bool all = true;
  for (int t = 0; t < r->threads; t++) all &= on[t];
  if (!all) {
    finding(r, FD_BARRIER, 4, "a block is counted where not all of its threads are");
    return;
  }
  set_thread(r, 0);
  step(r);
  bool last = count(r, k[1], ev_int(r, k[2], "number of blocks"));
  for (int t = 0; t < r->threads; t++) {
    set_thread(r, t);
    mem_store(r, flag->sym, flag->n, r->kid + flag->kid0, 0, (Val){.u.i = last});
  }
}
