/* sums_lanes: a scalar sum along contiguous data gets an accumulator per lane of one or several vectors (CPU).
 *
 *   for k in [0, 768): C = C + x(k)
 *
 * becomes
 *
 *   D[0:64] = 0;  for k in [0, 12): D[l] = D[l] + x(k*64 + l);  D[l] = D[l] + D[l+32], ... in halves;
 *   C = C + (D[0] + D[2] + (D[1] + D[3])), in float64
 *
 * One scalar accumulator waits for each addition; lanes do not, and each of them takes fewer terms. What is left behind the last
 * whole vector goes to R in float64, for one scalar accumulator may take the rests of many rows. Sums of products are left as they
 * are: schedules choose how their accumulators lie.
 */
#include "lower/sums.h"

enum { FEWEST_TERMS = 50, FEWEST_LANES = 8, MOST_VECTORS = 4, ADD_CYCLES = 4, LAST = 4 };

typedef struct {
  Arith *ar;
  VarId v;
  bool found;
} Neighbours;
static void neighbours(IrCtx *c, ExprId e, void *arg) {
  Neighbours *n = arg;
  if (ir_kind(c, e) == IR_LOAD) n->found |= low_step(n->ar, c, ir_kid(c, e, 0), n->v) == 1;
}
/* Is e, for neighbouring v, an operation on vectors of neighbouring data? */
static bool widens(const Sums *g, ExprId e, VarId v) {
  IrCtx *c = g->c;
  DType t = ir_var_info(c, v)->type;
  LowWiden w = {
      .c = c, .ar = g->ar, .lane = ir_var_new(c, "lane", t, false), .lanes = FEWEST_LANES, .any_address = true};
  ar_bind_range(g->ar, w.lane, ex_int(c, t, 0), ex_int(c, t, FEWEST_LANES));
  Neighbours n = {g->ar, v, false};
  ex_post_order(c, e, neighbours, &n);
  ExprId first = ex_mul(c, ex_var(c, v), ex_int(c, t, FEWEST_LANES));
  VarSub sub = {v, ex_add(c, first, ex_var(c, w.lane))};
  e = low_widen_value(&w, ex_subst(c, e, 1, &sub));
  return n.found && !w.fail && !w.gathers && ex_on_vectors(c, e);
}

/* The number of lanes for which a loop of e takes the fewest cycles, each vector one and each addition to the same accumulator four. */
static int64_t best_lanes(int64_t e, int64_t lanes) {
  int64_t best = 0, least = e * ADD_CYCLES;
  for (int64_t n = lanes * MOST_VECTORS; n >= FEWEST_LANES; n /= 2) {
    int64_t once = n / lanes > ADD_CYCLES ? n / lanes : ADD_CYCLES, cycles = e / n * once + e % n * ADD_CYCLES;
    if (n > e || cycles >= least) continue;
    best = n, least = cycles;
  }
  return best;
}

/* The outermost loop over terms that has no loop over accumulators in it. */
static int outermost(const Sum *x, int64_t *terms) {
  int i = 0;
  for (*terms = 1; i < x->movable && x->loop[i].sums; i++)
    if (!i64_mul(*terms, x->loop[i].extent, terms)) *terms = INT64_MAX;
  return i - 1;
}

static bool plain_path(const Sums *g, int from) { /* loops and sequences only */
  for (int i = 0; i < g->path.len - 1; i++) {
    const Stmt *s = g->path.at[i];
    if (s->kind == ST_FOR && s->u.loop.kind == FOR_VECTOR) return false;
    if (i >= from && s->kind != ST_FOR && s->kind != ST_SEQ && s->kind != ST_ALLOC && s->kind != ST_ATTR) return false;
  }
  return true;
}

static Stmt *loop_of(IrCtx *c, VarId v, int64_t n, Stmt *body) {
  DType t = ir_var_info(c, v)->type;
  return st_for(c, v, ex_int(c, t, 0), ex_int(c, t, n), FOR_VECTOR, body);
}
typedef struct {
  BufferId sums, rest; /* D; R, 0: nothing is left behind the last whole vector */
  int64_t lanes, e;    /* the innermost loop's extent */
} Lanes;
/* The innermost loop: whole vectors into D, the rest into R. */
static Stmt *over_lanes(IrCtx *c, const Sum *x, const Stmt *loop, const Lanes *k) {
  int64_t lanes = k->lanes, e = k->e;
  VarId v = loop->u.loop.var;
  DType t = ir_var_info(c, v)->type;
  const char *name = ir_var_info(c, v)->name;
  VarId outer = ir_var_new(c, name, t, false), lane = ir_var_new(c, "lane", t, false);
  ExprId from = ex_add(c, ex_mul(c, ex_var(c, outer), ex_int(c, t, lanes)), ex_var(c, lane));
  Stmt *body = sums_redirected(c, x, loop->u.loop.body, k->sums, ex_var(c, lane));
  body = loop_of(c, lane, lanes, low_subst(c, body, v, ex_add(c, from, loop->u.loop.min)));
  Stmt *two[2] = {st_for(c, outer, ex_int(c, t, 0), ex_int(c, t, e / lanes), FOR_SERIAL, body), NULL};
  if (e % lanes) {
    VarId rest = ir_var_new(c, name, t, false);
    ExprId at = ex_add(c, ex_add(c, ex_var(c, rest), ex_int(c, t, e - e % lanes)), loop->u.loop.min);
    body = sums_redirected(c, x, loop->u.loop.body, k->rest, ex_i32(c, 0));
    two[1] = loop_of(c, rest, e % lanes, low_subst(c, body, v, at));
    two[1]->u.loop.kind = FOR_SERIAL;
  }
  return st_seq(c, 2, two);
}
static Stmt *with_inner(IrCtx *c, Stmt *s, void *arg) {
  const Stmt *const *two = arg;
  return s == two[0] ? st_own(c, two[1]) : st_rewrite(c, s, with_inner, NULL, arg);
}

/* The sum of n elements from i on, every `step`th, in float64. */
static ExprId tree(IrCtx *c, BufferId sums, int64_t i, int64_t by) {
  ExprId at = ex_i32(c, i);
  if (by == LAST) return ex_cast(c, DT_F64, ex_load(c, sums, DT_F32, 1, &at));
  return ex_add(c, tree(c, sums, i, 2 * by), tree(c, sums, i + by, 2 * by));
}
/* The array, what sets it, the loops, and what adds its elements up. */
static Stmt *with_halves(IrCtx *c, const Sum *x, const Lanes *k, Stmt *loops) {
  BufferId sums = k->sums;
  int64_t lanes = k->lanes;
  VEC(Stmt *) all = {0};
  VarId l = ir_var_new(c, "lane", DT_I32, false);
  ExprId here = ex_var(c, l), zero = ex_i32(c, 0);
  if (k->rest) vec_push(ir_arena(c), &all, st_store(c, k->rest, 1, &zero, ex_zero(c, DT_F64)));
  vec_push(ir_arena(c), &all, loop_of(c, l, lanes, st_store(c, sums, 1, &here, ex_zero(c, DT_F32))));
  vec_push(ir_arena(c), &all, loops);
  for (int64_t n = lanes / 2; n >= LAST; n /= 2) {
    l = ir_var_new(c, "lane", DT_I32, false);
    here = ex_var(c, l);
    ExprId there = ex_add(c, here, ex_i32(c, n));
    ExprId both = ex_add(c, ex_load(c, sums, DT_F32, 1, &here), ex_load(c, sums, DT_F32, 1, &there));
    vec_push(ir_arena(c), &all, loop_of(c, l, n, st_store(c, sums, 1, &here, both)));
  }
  ExprId sum = tree(c, sums, 0, 1);
  if (k->rest) sum = ex_add(c, sum, ex_load(c, k->rest, DT_F64, 1, &zero));
  sum = ex_add(c, ex_load(c, x->buf, DT_F32, 1, &x->at), ex_cast(c, DT_F32, sum));
  vec_push(ir_arena(c), &all, st_store(c, x->buf, 1, &x->at, sum));
  Stmt *s = st_alloc(c, sums, st_seq(c, all.len, all.at));
  return k->rest ? st_alloc(c, k->rest, s) : s;
}

bool sums_on_lanes(Sums *g, const Sum *x) {
  IrCtx *c = g->c;
  int64_t terms, e, min;
  if (low_is_gpu(g->f) || x->kind != SUM_TERMS || x->lanes > 1 || x->movable < 1) return false;
  int last = outermost(x, &terms), at = last < 0 ? 0 : x->loop[last].at;
  if (last < 0 || terms < FEWEST_TERMS || !plain_path(g, at)) return false;
  const Stmt *inner = g->path.at[x->loop[0].at], *target = g->path.at[at];
  if (inner->u.loop.body != x->store || inner->u.loop.kind != FOR_SERIAL) return false;
  if (!ex_const_int(c, inner->u.loop.extent, &e) || !ex_const_int(c, inner->u.loop.min, &min)) return false;
  int64_t lanes = best_lanes(e, cpu_machine(g->f->target.cpu).vector_bytes / 4);
  if (!lanes || !widens(g, x->x, inner->u.loop.var)) return false;

  Lanes k = {.sums = ir_array(c, "lane_sum", ir_type(c, x->x), SC_LOCAL, lanes, true), .lanes = lanes, .e = e};
  mapu_set(&g->made, (uint64_t)k.sums, SUM_LANES);
  if (e % lanes) {
    k.rest = ir_array(c, "rest_sum", DT_F64, SC_LOCAL, 1, true);
    mapu_set(&g->made, (uint64_t)k.rest, SUM_BLOCK);
  }
  const Stmt *two[2] = {inner, over_lanes(c, x, inner, &k)};
  g->target = target;
  g->result = with_halves(c, x, &k, target == inner ? st_own(c, two[1]) : with_inner(c, st_own(c, target), two));
  return true;
}
