/* Access analysis: who reads whom, through which indices, and what follows from it for the search.
 *
 * An edge joins a producer to a reader and lists the index tuples of all reads. From the indices alone follow the
 * flags of a stage: a *simple access* uses each axis plainly (v, v + c, v - c) or a constant; a stage that reads only
 * simply, in order, without branches and without exp can be inlined for free; a stage that reads two operands which
 * each miss one of its axes (or one such operand and a reduction) re-uses data and is worth tiling in many levels.
 * Extents that are no constants count as larger than 1 here and are equal when they are the same expression.
 */
#include <string.h>

#include "te/te_int.h"

/* ---- index patterns ---- */

static bool te_match_shift(const IrCtx *c, VarId v, ExprId e) {
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_VAR) return n->sym == v;
  if (n->kind != IR_ADD && n->kind != IR_SUB) return false;
  bool is_add = n->kind == IR_ADD;
  ExprId a = ir_kid(c, e, 0), b = ir_kid(c, e, 1);
  const ExprNode *na = ir_node(c, a), *nb = ir_node(c, b);
  if (na->kind == IR_VAR && na->sym == v && nb->kind == IR_INT) return true;
  return is_add && nb->kind == IR_VAR && nb->sym == v && na->kind == IR_INT;
}

typedef struct {
  bool simple, missing, duplicated, ordered;
} Pattern;

static Pattern classify(const IrCtx *c, const TeOp *op, int rank, const ExprId *index) {
  Pattern r = {.simple = true, .ordered = true};
  int uses[op->n_axis + 1], last = -1;
  memset(uses, 0, sizeof uses);
  for (int i = 0; i < rank; i++) {
    if (ir_kind(c, index[i]) == IR_INT) continue;
    int at = 0;
    while (at < op->n_axis && !te_match_shift(c, op->axis[at].var, index[i])) at++;
    if (at == op->n_axis) return (Pattern){0};
    uses[at]++;
    if (at < last) r.ordered = false;
    last = at;
  }
  for (int i = 0; i < op->n_axis; i++) {
    if (uses[i] == 0) r.missing = true;
    if (uses[i] > 1) r.duplicated = true;
  }
  return r;
}

/* ---- collecting edges ---- */

typedef VEC(ExprId *) Tuples;
typedef struct {
  int consumer;
  MapU64 op_of; /* TeOp pointer -> number */
  MapU64 slot;  /* producer number -> slot, of the current consumer */
  VEC(TeEdge) edge;
  VEC(Tuples) tuples; /* per edge */
  MapU64 seen_read;   /* of the current consumer: a READ node counts once however often it is met */
  bool branch, expensive;
} Collect;

static void collect_node(IrCtx *c, ExprId e, void *arg) {
  Collect *s = arg;
  ExprNode n = *ir_node(c, e);
  if (ex_is_choice(c, e)) s->branch = true;
  if (n.kind == IR_CALL && n.sym == IN_EXP) s->expensive = true;
  if (n.kind != IR_READ || mapu_get(&s->seen_read, (uint64_t)e, 0)) return;
  mapu_set(&s->seen_read, (uint64_t)e, 1);
  Arena *a = ir_arena(c);
  int p = mapu_get(&s->op_of, (uint64_t)(uintptr_t)ir_tensor(c, (TensorId)n.sym)->op, -1);
  err_assert(ir_err(c), p >= 0);
  int at = mapu_get(&s->slot, (uint64_t)p, -1);
  if (at < 0) {
    vec_note(a, &s->edge, ((TeEdge){.producer = p, .consumer = s->consumer, .rank = n.n}), &s->slot, p);
    at = s->edge.len - 1;
    vec_push(a, &s->tuples, (Tuples){0});
  }
  ExprId *index = arena_copy(a, ir_kids(c, e), sizeof(ExprId) * n.n);
  vec_push(a, &s->tuples.at[at], index);
}

static void collect_edges(IrCtx *c, TeDag *d) {
  Arena *a = ir_arena(c);
  Collect s = {0};
  mapu_init(&s.op_of, a);
  for (int i = 0; i < d->n_ops; i++) mapu_set(&s.op_of, (uint64_t)(uintptr_t)d->op[i], i);
  for (int i = 0; i < d->n_ops; i++) {
    const TeOp *op = d->op[i];
    if (op->kind != TE_COMPUTE) continue;
    s.consumer = i;
    s.branch = s.expensive = false;
    mapu_init(&s.slot, a);
    mapu_init(&s.seen_read, a);
    for (int k = 0; k < op->n_out; k++) ex_post_order(c, op->body[k], collect_node, &s);
    d->flags[i].has_branch = s.branch;
    d->flags[i].has_expensive = s.expensive;
  }
  for (int i = 0; i < s.edge.len; i++) {
    s.edge.at[i].n_access = s.tuples.at[i].len;
    s.edge.at[i].index = s.tuples.at[i].at;
  }
  d->n_edges = s.edge.len;
  d->edge = s.edge.at;
}

/* ---- what follows from the edges ---- */

static int common_outer(IrCtx *c, const TeDag *d, const TeEdge *e) {
  const TeOp *op = d->op[e->consumer];
  const IrTensor *p = ir_tensor(c, d->op[e->producer]->out[0]);
  int n = 0;
  for (; n < op->n_axis && n < p->rank; n++) {
    if (op->axis[n].extent != p->shape[n]) break;
    for (int k = 0; k < e->n_access; k++)
      if (!te_match_shift(c, op->axis[n].var, e->index[k][n])) return n;
  }
  return n;
}

/* Some axis longer than 1 occurs in no index of any access. */
static bool is_reused(IrCtx *c, const TeDag *d, const TeEdge *e) {
  const TeOp *op = d->op[e->consumer];
  for (int i = 0; i < op->n_axis; i++) {
    int64_t v = 2;
    ex_const_int(c, op->axis[i].extent, &v);
    if (v <= 1) continue;
    bool used = false;
    for (int k = 0; k < e->n_access && !used; k++)
      for (int j = 0; j < e->rank && !used; j++) used = ex_uses_var(c, e->index[k][j], op->axis[i].var);
    if (!used) return true;
  }
  return false;
}

/* Operations of a stage, written out, once all that it reads is inlined as far as possible. A chain of stages that each
 * read the one before several times grows with the power of its length, and so would the text of the program: what has
 * grown beyond MAX_INLINED keeps its memory, and its reader begins anew. */
enum { MAX_INLINED = 4096 };
typedef struct {
  const TeDag *d;
  const int32_t *size;
} Inlined;
static int32_t inlined_leaf(IrCtx *c, ExprId e, void *arg) {
  const Inlined *x = arg;
  const ExprNode *n = ir_node(c, e);
  int op = n->kind == IR_READ ? te_dag_op_of(c, x->d, n->sym) : -1;
  return op >= 0 && !x->d->op[op]->n_red && !x->d->flags[op].large ? x->size[op] : 0;
}
static int32_t inlined_size(IrCtx *c, const TeOp *op, Inlined *x) {
  int32_t n = 0;
  for (int k = 0; k < op->n_out && n < EX_SIZE_MAX; k++) n += ex_size(c, op->body[k], inlined_leaf, x);
  return n;
}

static void derive_flags(IrCtx *c, TeDag *d) {
  int32_t *size = arena_array(ir_arena(c), int32_t, d->n_ops);
  Inlined in = {d, size};
  for (int i = 0; i < d->n_ops; i++) {
    const TeOp *op = d->op[i];
    TeFlags *f = &d->flags[i];
    if (op->kind == TE_PLACEHOLDER) {
      f->simple_access = true;
      continue;
    }
    bool simple = true, inlineable = true, reads = false;
    int reused = 0;
    for (int k = 0; k < d->n_edges; k++) {
      TeEdge *e = &d->edge[k];
      if (e->consumer != i) continue;
      reads = true;
      for (int t = 0; t < e->n_access; t++) {
        Pattern acc = classify(c, op, e->rank, e->index[t]);
        simple &= acc.simple;
        inlineable &= acc.simple && !acc.duplicated && acc.ordered;
      }
      reused += is_reused(c, d, e);
      e->common_outer = common_outer(c, d, e);
    }
    f->simple_access = simple;
    f->strictly_inlineable = !reads || (inlineable && !f->has_branch && !f->has_expensive);
    size[i] = inlined_size(c, op, &in);
    f->large = size[i] > MAX_INLINED;
    f->needs_tiling = !te_attr(op, TE_CONST_AXES) && (reused >= 2 || (reused >= 1 && op->n_red > 0));
    f->is_output = te_consumers(d, i, NULL) == 0;
  }
}

void te_analyse(IrCtx *c, TeDag *d) {
  d->flags = arena_array(ir_arena(c), TeFlags, d->n_ops);
  collect_edges(c, d);
  derive_flags(c, d);
  d->flop = te_count_flop(c, d->n_ops, d->op);
}

/* ---- queries ---- */

static int neighbours(const TeDag *d, int op, bool readers, int *out) {
  int n = 0;
  for (int k = 0; k < d->n_edges; k++) { /* edges are grouped by consumer in stage order: readers ascend */
    const TeEdge *e = &d->edge[k];
    if ((readers ? e->producer : e->consumer) != op) continue;
    if (out) out[n] = readers ? e->consumer : e->producer;
    n++;
  }
  return n;
}
int te_consumers(const TeDag *d, int op, int *out) { return neighbours(d, op, true, out); }
int te_producers(const TeDag *d, int op, int *out) { return neighbours(d, op, false, out); }

/* Texts in which each such read counts as one node and as two. */
typedef struct {
  const TeDag *d;
  int producer;
  int32_t counts;
} Uses;
static int32_t use(IrCtx *c, ExprId e, void *arg) {
  const Uses *u = arg;
  const ExprNode *n = ir_node(c, e);
  return n->kind == IR_READ && te_dag_op_of(c, u->d, n->sym) == u->producer ? u->counts : 0;
}
int te_uses(IrCtx *c, const TeDag *d, int op, int producer) {
  int32_t nodes[2] = {0};
  for (int i = 0; i < 2; i++) {
    Uses u = {d, producer, i + 1};
    for (int k = 0; k < d->op[op]->n_out && nodes[i] < EX_SIZE_MAX; k++)
      nodes[i] += ex_size(c, d->op[op]->body[k], use, &u);
  }
  return nodes[1] < EX_SIZE_MAX ? nodes[1] - nodes[0] : EX_SIZE_MAX;
}

/* done[i]: the smallest number over all edges of all paths from i to `to`, -1 without a path. Stage order puts
 * producers first, so walking backwards finds every consumer done. */
int te_common_outer(const TeDag *d, int from, int to) {
  if (from == to) return d->op[from]->n_axis;
  int done[d->n_ops + 1];
  done[from] = -1;
  for (int i = d->n_ops - 1; i >= from; i--) {
    done[i] = i == to ? INT32_MAX : -1;
    for (int k = 0; k < d->n_edges && i != to; k++) {
      const TeEdge *e = &d->edge[k];
      if (e->producer != i || done[e->consumer] < 0) continue;
      int n = e->common_outer < done[e->consumer] ? e->common_outer : done[e->consumer];
      if (done[i] < 0 || n < done[i]) done[i] = n;
    }
  }
  return done[from] < 0 ? 0 : done[from];
}

static bool same_shapes(const IrCtx *c, const TeOp *a, const TeOp *b) {
  if (a->n_axis != b->n_axis) return false;
  for (int i = 0; i < a->n_axis; i++) {
    if (a->axis[i].extent != b->axis[i].extent) return false;
    if (ir_kind(c, a->axis[i].extent) != IR_INT) return false;
  }
  return true;
}

/* The consumer reads the element that it computes, and no other. */
static bool elementwise(const IrCtx *c, const TeDag *d, const TeEdge *e) {
  const TeOp *cur = d->op[e->producer], *next = d->op[e->consumer];
  if (cur->kind != TE_COMPUTE || !same_shapes(c, cur, next)) return false;
  for (int t = 0; t < e->n_access; t++) {
    Pattern acc = classify(c, next, e->rank, e->index[t]);
    if (!acc.simple || acc.missing || acc.duplicated || !acc.ordered) return false;
  }
  return true;
}

bool te_elementwise_match(const IrCtx *c, const TeDag *d, int from, int to, bool branches) {
  bool on[d->n_ops]; /* a path leads there */
  memset(on, 0, sizeof on);
  on[from] = true;
  for (int i = from; i < to; i++) {
    int readers = 0;
    for (int k = 0; k < d->n_edges && on[i]; k++) {
      const TeEdge *e = &d->edge[k];
      if (e->producer != i) continue;
      if ((readers++ && !branches) || e->consumer > to || !elementwise(c, d, e)) return false;
      on[e->consumer] = true;
    }
    if (on[i] && !readers) return false;
  }
  return on[to];
}

TeInner te_innermost(IrCtx *c, const TeDag *d, int op) {
  const TeOp *x = d->op[op];
  const TeEdge *most = NULL;
  int64_t bytes = -2;
  if (x->n_red == 0 || !te_is_reduction(c, x)) return TE_INNER_OTHER;
  const IrReduce *r = ir_reduce(c, x->body[0]);
  if (r->init || r->n_src != x->n_out) return TE_INNER_OTHER;
  for (int i = 0; i < d->n_edges; i++) {
    const TeEdge *e = &d->edge[i];
    if (e->consumer != op || e->n_access == 0 || e->rank == 0) continue;
    int64_t b = te_bytes(c, d->op[e->producer]->out[0]);
    if (b > bytes) most = e, bytes = b;
  }
  if (!most) return TE_INNER_OTHER;
  int at = most->rank - 1;
  while (at > 0 && ex_is_int(c, ir_tensor(c, d->op[most->producer]->out[0])->shape[at], 1)) at--;
  ExprId index = most->index[0][at];
  for (int i = 0; i < x->n_red; i++)
    if (ex_uses_var(c, index, x->red[i].var)) return TE_INNER_TERMS;
  bool last = x->n_axis > 0 && ir_kind(c, index) == IR_VAR && ir_node(c, index)->sym == x->axis[x->n_axis - 1].var;
  return last ? TE_INNER_RESULTS : TE_INNER_OTHER;
}

/* ---- what lies side by side for an operation that only moves elements ---- */

static const TeEdge *only_read(const TeDag *d, int op) {
  const TeEdge *only = NULL;
  for (int i = 0; i < d->n_edges; i++) {
    if (d->edge[i].consumer != op) continue;
    if (only || d->edge[i].n_access != 1) return NULL;
    only = &d->edge[i];
  }
  return only;
}

enum { LONG_CHAIN = 16 };
/* Where in the tensor at the beginning of the chain the result at these indices comes from. */
static bool comes_from(IrCtx *c, const TeDag *d, int op, int depth, const int64_t *at, int64_t *flat) {
  const TeOp *x = d->op[op];
  if (depth == LONG_CHAIN) return false;
  if (x->kind != TE_COMPUTE) {
    const IrTensor *t = ir_tensor(c, x->out[0]);
    *flat = 0;
    for (int i = 0; i < t->rank; i++) {
      int64_t size;
      if (!ex_const_int(c, t->shape[i], &size) || !i64_mul(*flat, size, flat) || !i64_add(*flat, at[i], flat))
        return false;
    }
    return true;
  }
  const TeEdge *e = only_read(d, op);
  if (!e || x->n_red || x->n_out != 1) return false;
  VarSub *sub = arena_array(ir_arena(c), VarSub, x->n_axis);
  int64_t *next = arena_array(ir_arena(c), int64_t, e->rank);
  for (int i = 0; i < x->n_axis; i++)
    sub[i] = (VarSub){x->axis[i].var, ex_int(c, ir_var_info(c, x->axis[i].var)->type, at[i])};
  for (int i = 0; i < e->rank; i++)
    if (!ex_const_int(c, ex_subst(c, e->index[0][i], x->n_axis, sub), &next[i])) return false;
  return comes_from(c, d, e->producer, depth + 1, next, flat);
}

int te_beside(IrCtx *c, const TeDag *d, int op) {
  const TeOp *x = d->op[op];
  int64_t *at = arena_array(ir_arena(c), int64_t, x->n_axis), first, second, n;
  if (x->kind != TE_COMPUTE || !comes_from(c, d, op, 0, at, &first)) return -1;
  for (int i = x->n_axis - 1; i >= 0; i--) {
    if (!ex_const_int(c, x->axis[i].extent, &n) || n < 2) continue;
    at[i] = 1;
    if (comes_from(c, d, op, 0, at, &second) && second == first + 1) return i;
    at[i] = 0;
  }
  return -1;
}
