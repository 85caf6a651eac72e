/* loops: from a bounded State to one multi-dimensional loop program (spec 07 §7.2.4-7.2.7).
 *
 * Every stage that is not inlined becomes a loop nest over its leaf axes. From the values of the leaves the values of
 * all other axes follow by going up the split, fuse and rebase relations; substituted into the op's body they give
 * indices in global coordinates (tiles are not rebased here; that is the work of `flatten`). Innermost come the
 * predicates: split checks, then checks that the inferred region stays inside the declared domain.
 *
 * A stage attached at a leaf is produced at the top of that leaf's loop body, inside the allocation of its buffer, in
 * the order of stage numbers. A reduction stores its initial value in its own copy of the spatial loops that lie inside
 * the first reduction loop. If a reduction axis is bound to a thread the partial results are combined across threads.
 *
 * What holds afterwards: loops start at 0; every variable is bound once; each READ has become a LOAD with an index
 * list; each buffer but the function's arguments has one ALLOC around all its accesses. With `features` the computed
 * arguments have an ALLOC as well, because feature extraction wants one.
 */
#include "lower/util.h"
#include <string.h>

typedef struct {
  int32_t obj;
  VarId var;
} Bound1; /* an enclosing thread axis */
typedef struct {
  State *s;
  IrCtx *c;
  Arena *a;
  Arith *ar;
  bool features, whole; /* whole: tiles are filled beyond the edges of tensors (whole.c) */
  LowUse use;
  MapU64 buf_of;      /* tensor -> buffer */
  ExprId **body;      /* per stage, inlined bodies or NULL */
  VEC(Bound1) thread; /* stack of enclosing thread loops */
} Loops;
typedef struct {
  Loops *l;
  const Stage *st;
  int sid;
  ExprId *val;    /* per axis: its value in terms of loop variables; 0 not known yet */
  uint64_t *mark; /* per axis: 1 data, 2 reduction, 3 both */
  bool *wide;     /* per axis: it counts with 64 bits; NULL: none does */
  bool reduce, cross;
  int begin;               /* begin: position of the first leaf that belongs to a reduction */
  BufferId acc[8], red[8]; /* cross: private partial results, results of the combination */
} Nest;

static Stmt *emit_stage(Loops *l, int sid);

static void fail(Loops *l, const Stage *st, const char *what) {
  err_raise(ir_err(l->c), NS_ERR_VALUE, "stage %s: %s", st->op->name, what);
}
static void fail_at(Loops *l, const Stage *st, const Axis *x, const char *what) {
  err_raise(ir_err(l->c), NS_ERR_VALUE, "stage %s, loop %s (%s): %s", st->op->name, x->sname, AN_WORD[x->ann], what);
}
static bool is_bound(const Axis *x) { return low_loop_kind(x) >= FOR_VTHREAD; }

static ExprId localize(Nest *n, const ExprId *val, ExprId e);

/* The extent of an axis in terms of loop variables. One that is no literal may depend on data axes (the windows of adaptive
 * pools do); 0 if such an axis has no value yet, because its loop lies further inside. */
static ExprId extent_here(Nest *n, const ExprId *val, ExprId extent) {
  const Stage *st = n->st;
  int64_t literal;
  if (ex_const_int(n->l->c, extent, &literal)) return extent;
  for (int i = 0; i < st->n_root_data; i++)
    if (!val[i] && ex_uses_var(n->l->c, extent, st->op->axis[i].var)) return 0;
  return localize(n, val, extent);
}
static ExprId open_extent(Nest *n, const ExprId *val, const Axis *x) {
  ExprId e = extent_here(n, val, x->extent);
  if (!e)
    err_raise(
        ir_err(n->l->c), NS_ERR_VALUE,
        "stage %s: the extent of loop %s depends on a data axis whose loop lies inside it; reorder that loop before",
        n->st->op->name, x->name);
  return e;
}

/* ---- axis values: going up the relations ---- */
typedef struct {
  Nest *n;
  const ExprId *val;
} Here;
static ExprId here(void *arg, ExprId extent) {
  const Here *h = arg;
  return extent_here(h->n, h->val, extent);
}
static void pass_up(Nest *n, ExprId *val) { stage_climb(n->l->c, n->st, val, here, &(Here){n, val}); }

/* ---- predicates ---- */
typedef VEC(ExprId) Preds;
static void pred_lt(Loops *l, Preds *p, ExprId w, ExprId e) {
  ExprId cond = ex_bin(l->c, IR_LT, w, e);
  if (!ar_prove(l->ar, cond)) vec_push(l->a, p, cond);
}
static void edge_checks(Nest *n, const ExprId *val, Preds *p) {
  Loops *l = n->l;
  IrCtx *c = l->c;
  const Axis *ax = n->st->axes.at;
  for (int a = 0; a < n->st->n_root_data; a++) {
    const TeAxis *decl = &n->st->op->axis[a];
    if (decl->min == ax[a].min && decl->extent == ax[a].extent) continue;
    ExprId w = ex_sub(c, val[a], decl->min);
    int64_t extent;
    Bound b = ar_bound(l->ar, w); /* mostly enough, and soon said */
    if (b.lo >= 0 && ex_const_int(c, decl->extent, &extent) && b.hi < extent) continue;
    ExprId lo = ex_bin(c, IR_GE, w, ex_int(c, ir_type(c, w), 0));
    if (!ar_prove(l->ar, lo)) vec_push(l->a, p, lo);
    pred_lt(l, p, w, decl->extent);
  }
}
/* Per axis: may its values lie beyond its end? */
static const bool *overruns(Nest *n) {
  Loops *l = n->l;
  const Stage *st = n->st;
  const Axis *ax = st->axes.at;
  bool *need = arena_array(l->a, bool, st->axes.len);
  for (int r = st->rels.len - 1; r >= 0; r--) {
    const Rel *rel = &st->rels.at[r];
    if (rel->kind == REL_SPLIT)
      need[rel->parent] =
          need[rel->outer] || need[rel->inner] ||
          !ar_prove_eq(l->ar, ax[rel->parent].extent, ex_mul(l->c, ax[rel->outer].extent, ax[rel->inner].extent));
    else if (rel->kind == REL_FUSE)
      need[rel->outer] = need[rel->inner] = need[rel->parent];
    else if (rel->kind == REL_REBASE)
      need[rel->parent] = need[rel->outer];
  }
  return need;
}
/* need: of `overruns` */
static Preds checks_where(Nest *n, const ExprId *val, const bool *need, bool region, bool skip_reduce) {
  Loops *l = n->l;
  const Stage *st = n->st;
  const Axis *ax = st->axes.at;
  IrCtx *c = l->c;
  Preds p = {0};
  for (int a = 0; a < st->axes.len; a++) {
    if (!need[a] || !val[a] || (skip_reduce && n->mark[a] == 2)) continue;
    pred_lt(l, &p, ex_sub(c, val[a], ax[a].min), open_extent(n, val, &ax[a]));
  }
  if (region) edge_checks(n, val, &p);
  return p;
}
static Preds bound_checks(Nest *n, const ExprId *val, bool region, bool skip_reduce) {
  return checks_where(n, val, overruns(n), region, skip_reduce);
}
static Stmt *guard(IrCtx *c, const Preds *p, Stmt *s) {
  for (int i = p->len - 1; i >= 0; i--) s = st_if(c, p->at[i], true, s, NULL);
  return s;
}

/* ---- bodies ---- */

/* Root axes by the loops around; returns how many are known. */
static int sub_of(Nest *n, const ExprId *val, VarSub sub[2 * LOW_MAX_RANK]) {
  const Stage *st = n->st;
  int k = 0;
  for (int i = 0; i < st->n_root && k < 2 * LOW_MAX_RANK; i++) {
    const TeOp *op = st->op;
    VarId v = i < st->n_root_data ? op->axis[i].var : op->red[i - st->n_root_data].var;
    if (!val[i]) continue;
    DType t = ir_var_info(n->l->c, v)->type;
    sub[k++] = (VarSub){v, dtype_eq(t, ir_type(n->l->c, val[i])) ? val[i] : ex_cast(n->l->c, t, val[i])};
  }
  return k;
}
/* An expression of the op's body in terms of loop variables and buffers. */
static ExprId localize(Nest *n, const ExprId *val, ExprId e) {
  VarSub sub[2 * LOW_MAX_RANK];
  int k = sub_of(n, val, sub);
  return low_loads(n->l->c, ex_subst(n->l->c, e, k, sub), &n->l->buf_of, n->st->op->name, 0);
}
/* ---- the user's own condition on the final store (set_store_predicate) ---- */
typedef struct {
  const Nest *n;
  VarId missing;
} InScope;
static bool var_in_scope(const Nest *n, VarId v) {
  const State *s = n->l->s;
  for (int i = 0; i < n->l->thread.len; i++)
    if (n->l->thread.at[i].var == v) return true;
  for (int p = 0; p < n->st->leaf.len; p++)
    if (n->st->axes.at[n->st->leaf.at[p]].var == v) return true;
  const Stage *st = n->st;
  for (int hops = 0; st->at == AT_ITER && hops <= s->stage.len; hops++) {
    const Stage *target = &s->stage.at[st->at_stage];
    for (int p = 0; p <= st->at_iter; p++)
      if (target->axes.at[target->leaf.at[p]].var == v) return true;
    st = target;
  }
  return false;
}
static void find_out_of_scope(IrCtx *c, ExprId e, void *arg) {
  InScope *x = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_VAR && !var_in_scope(x->n, n->sym)) x->missing = n->sym;
}
/* What the stage itself does not read need not be there where it is stored. */
static void find_unread(IrCtx *c, ExprId e, void *arg) {
  const Nest *n = arg;
  const TeOp *op = n->st->op;
  if (ir_kind(c, e) != IR_READ) return;
  const IrTensor t = *ir_tensor(c, ir_node(c, e)->sym);
  bool there = t.op == op || ((const TeOp *)t.op)->kind == TE_PLACEHOLDER ||
               te_listed(op->n_in, op->in, (TensorId)ir_node(c, e)->sym);
  err_check(ir_err(c), there, "stage %s: its store predicate reads tensor %s, which the stage itself does not read",
            op->name, t.name);
}
static Stmt *store_predicate(Nest *n, Stmt *s) {
  if (!n->st->store_predicate) return s;
  IrCtx *c = n->l->c;
  ex_post_order(c, n->st->store_predicate, find_unread, n);
  ExprId p = localize(n, n->val, n->st->store_predicate);
  InScope x = {n, 0};
  ex_post_order(c, p, find_out_of_scope, &x);
  if (x.missing)
    err_raise(
        ir_err(c), NS_ERR_VALUE,
        "stage %s: its store predicate uses %s, which is neither an axis of the stage nor a thread axis around it",
        n->st->op->name, ir_var_info(c, x.missing)->name);
  return st_if(c, p, false, s, NULL);
}
static BufferId out_buffer(Nest *n, int k) { return mapu_get(&n->l->buf_of, (uint64_t)n->st->op->out[k], 0); }
static const ExprId *stage_body(const Nest *n) {
  return n->l->body && n->l->body[n->sid] ? n->l->body[n->sid] : n->st->op->body;
}

/* out[k][idx] = value[k] */
static Stmt *store_all(Nest *n, const ExprId *val, int k, const ExprId *value) {
  IrCtx *c = n->l->c;
  Stmt **at = arena_array(n->l->a, Stmt *, k);
  for (int i = 0; i < k; i++) at[i] = st_store(c, out_buffer(n, i), n->st->n_root_data, val, value[i]);
  return low_at_once(c, k, at);
}
typedef struct {
  const IrReduce *red;
  const IrReducer *op;
  int k;
  ExprId src[8], ident[8], cond;
} RedBody;
static RedBody reduce_body(Nest *n, const ExprId *val) {
  IrCtx *c = n->l->c;
  VarSub at[2 * LOW_MAX_RANK];
  RedBody b = {0};
  b.red = ir_reduce(c, stage_body(n)[0]);
  b.op = ir_reducer(c, te_reducer_at(c, b.red->reducer, sub_of(n, val, at), at));
  b.red = ir_reduce(c, stage_body(n)[0]);
  b.k = b.op->n;
  if (b.k > 8 || b.k != n->st->op->n_out)
    fail(n->l, n->st, "a reduction must store each of its (at most 8) components");
  IrReduce red = *b.red;
  IrReducer op = *b.op;
  for (int i = 0; i < b.k; i++) {
    b.src[i] = localize(n, val, red.src[i]);
    b.ident[i] = red.init ? localize(n, val, red.init[i]) : op.identity[i];
  }
  b.cond = red.cond ? localize(n, val, red.cond) : 0;
  if (b.cond && ex_is_int(c, b.cond, 1)) b.cond = 0;
  b.red = arena_copy(n->l->a, &red, sizeof red);
  b.op = arena_copy(n->l->a, &op, sizeof op);
  return b;
}

/* A tile of a GPU's block: zeros beyond the edge of the tensor. */
static Stmt *emit_whole(Nest *n) {
  IrCtx *c = n->l->c;
  Preds p = bound_checks(n, n->val, false, false), edge = {0};
  edge_checks(n, n->val, &edge);
  ExprId v = localize(n, n->val, stage_body(n)[0]), inside = 0;
  for (int i = 0; i < edge.len; i++) inside = inside ? ex_bin(c, IR_AND, inside, edge.at[i]) : edge.at[i];
  if (inside) v = ex_if_then_else(c, inside, v, ex_zero(c, ir_type(c, v)));
  return guard(c, &p, store_all(n, n->val, 1, &v));
}

/* May the axes of a sum go on beyond their ends, those that do? */
static bool may_sum_on(Nest *n, const bool *need, const RedBody *b) {
  for (int i = 0; i < b->red->n_axis; i++)
    if (need[n->st->n_root_data + i] && !low_zeros_add_nothing(n->l->c, b->op, b->red->src[0], &b->red->axis[i]))
      return false;
  return true;
}

static Stmt *emit_plain(Nest *n) {
  pass_up(n, n->val);
  ExprId v[64] = {0};
  const TeOp *op = n->st->op;
  if (op->n_out > 64) fail(n->l, n->st, "more than 64 outputs");
  const Loops *l = n->l;
  if (!n->reduce) {
    const ExprId *body = stage_body(n);
    if (l->whole && low_copies_whole(l->c, l->s, &l->buf_of, l->body, n->sid)) return emit_whole(n);
    Preds p = bound_checks(n, n->val, true, false);
    for (int i = 0; i < op->n_out; i++) v[i] = localize(n, n->val, body[i]);
    return guard(n->l->c, &p, store_predicate(n, store_all(n, n->val, op->n_out, v)));
  }
  RedBody b = reduce_body(n, n->val);
  ExprId cur[8];
  for (int i = 0; i < b.k; i++)
    cur[i] = ex_load(n->l->c, out_buffer(n, i), ir_type(n->l->c, b.src[i]), n->st->n_root_data, n->val);
  for (int i = 0; i < b.k; i++) v[i] = low_combine(n->l->c, b.op, l->use == LOW_CODE, i, cur, b.src);
  Stmt *s = store_all(n, n->val, b.k, v);
  if (b.cond) s = st_if(n->l->c, b.cond, false, s, NULL);
  bool whole = l->whole && b.k == 1 && !b.cond && !b.red->init &&
               low_reduces_whole(l->c, l->s, l->ar, &l->buf_of, l->body, n->sid, b.src[0], n->val);
  const bool *need = overruns(n);
  Preds p = checks_where(n, n->val, need, !whole, whole && may_sum_on(n, need, &b));
  return guard(n->l->c, &p, store_predicate(n, s));
}

/* ---- loops ---- */
/* The extent of a leaf as its loop variable counts: literals are as narrow as they can be, the loops of large tensors are not. */
static ExprId extent_for(IrCtx *c, VarId v, ExprId extent) {
  DType t = ir_var_info(c, v)->type;
  int64_t n;
  if (dtype_eq(t, ir_type(c, extent))) return extent;
  return ex_const_int(c, extent, &n) ? ex_int(c, t, n) : ex_cast(c, t, extent);
}
/* Value of a thread-bound leaf whose thread variable is `v` (spec 07 §7.2.4). */
static ExprId thread_value(Nest *n, int axis, VarId v) {
  IrCtx *c = n->l->c;
  const Axis *x = &n->st->axes.at[axis];
  ForKind k = low_loop_kind(x);
  ExprId var = ex_var(c, v), zero = ex_int(c, ir_var_info(c, x->var)->type, 0);
  if (n->wide && n->wide[axis]) var = ex_cast(c, DT_I64, var);
  if (k == FOR_VTHREAD) return var;
  if (ex_is_int(c, x->extent, 1)) return zero;
  ScopeKind s = n->st->scope;
  if (s == SC_AUTO) return var;
  if (s == SC_WARP) return for_is_block(k) || k == FOR_THREAD_X ? var : zero;
  return (int)s <= (for_is_block(k) ? 0 : 1) ? var : zero;
}
static Stmt *pragmas(IrCtx *c, const Axis *x, Stmt *s) {
  if (is_bound(x)) return s;
  if (x->skip_region) s = st_attr(c, AT_PRAGMA, 1, "debug_skip_region", s);
  if (x->has_pragma_unroll) {
    if (x->explicit_unroll) s = st_attr(c, AT_UNROLL_EXPLICIT, 1, NULL, s);
    s = st_attr(c, AT_UNROLL_STEP, x->pragma_unroll, NULL, s);
  } else if (x->explicit_unroll)
    s = st_attr(c, AT_UNROLL_EXPLICIT, 1, NULL, s);
  return s;
}
/* body, with the memory of what a stage computes, unless that is an argument. */
static Stmt *allocated(const Loops *l, const TeOp *op, Stmt *body) {
  for (int k = op->n_out - 1; k >= 0; k--) {
    BufferId b = mapu_get(&l->buf_of, (uint64_t)op->out[k], 0);
    if (!ir_buffer(l->c, b)->external || l->features) body = st_alloc(l->c, b, body);
  }
  return body;
}

/* Wraps body, the inside of leaf x, with what is attached there: allocation, production, rest. */
static Stmt *with_attached(Nest *n, int pos, Stmt *body) {
  Loops *l = n->l;
  for (int sid = l->s->stage.len - 1; sid >= 0; sid--) {
    const Stage *p = &l->s->stage.at[sid];
    if (p->at != AT_ITER || p->at_stage != n->sid || p->at_iter != pos || p->op->kind == TE_PLACEHOLDER) continue;
    Stmt *two[2] = {emit_stage(l, sid), body};
    body = allocated(l, p->op, st_seq(l->c, 2, two));
  }
  return body;
}
static Stmt *emit_leaves(Nest *n, int pos);
static Stmt *emit_cross(Nest *n);
static Stmt *emit_init(Nest *n);

static bool skip_in_common(const Nest *n, int axis) {
  return n->cross && n->mark[axis] == 2 && !is_bound(&n->st->axes.at[axis]);
}

/* What is attached at the leaf at `pos`. In a reduction across threads the loops of one thread's share come innermost:
 * what is attached between two of them moves along with the outer one. */
static Stmt *with_all_attached(Nest *n, int pos, Stmt *body) {
  const Stage *st = n->st;
  bool moved = false;
  for (int p = 0; p < pos; p++) moved = moved || skip_in_common(n, st->leaf.at[p]);
  if (!skip_in_common(n, st->leaf.at[pos])) return moved ? body : with_attached(n, pos, body);
  int last = pos;
  while (last + 1 < st->leaf.len && !skip_in_common(n, st->leaf.at[last + 1])) last++;
  for (int p = last; p >= pos; p--) body = with_attached(n, p, body);
  return body;
}

/* The loop of the leaf at `pos` around what `inside` makes. */
static Stmt *emit_leaf(Nest *n, int pos, Stmt *(*inside)(Nest *, int)) {
  Loops *l = n->l;
  IrCtx *c = l->c;
  int id = n->st->leaf.at[pos];
  const Axis *x = &n->st->axes.at[id];
  ForKind kind = low_loop_kind(x);
  ExprId zero = ex_int(c, ir_var_info(c, x->var)->type, 0);
  if (kind < FOR_VTHREAD) {
    bool one = ex_is_int(c, x->extent, 1);
    n->val[id] = one ? x->min : ex_is_int(c, x->min, 0) ? ex_var(c, x->var) : ex_add(c, x->min, ex_var(c, x->var));
    ExprId extent = x->extent;
    int64_t literal;
    if (!ex_const_int(c, extent, &literal)) {
      pass_up(n, n->val);
      extent = open_extent(n, n->val, x);
    }
    Stmt *body = with_all_attached(n, pos, inside(n, pos + 1));
    if (one && l->use != LOW_ANALYSIS) return pragmas(c, x, body);
    return pragmas(c, x, st_for(c, x->var, zero, extent_for(c, x->var, extent), kind, body));
  }
  if (!ex_is_int(c, x->min, 0)) fail_at(l, n->st, x, "a loop bound to a thread must start at 0; split the axis first");
  VarId v = x->var;
  bool open = false;
  for (int i = l->thread.len - 1; i >= 0 && x->thread_obj; i--)
    if (l->thread.at[i].obj == x->thread_obj) {
      v = l->thread.at[i].var;
      open = true;
      break;
    }
  n->val[id] = thread_value(n, id, v);
  int mark = l->thread.len;
  if (!open) vec_push(l->a, &l->thread, ((Bound1){x->thread_obj, v}));
  Stmt *body = with_all_attached(n, pos, inside(n, pos + 1));
  l->thread.len = mark;
  if (open && l->use != LOW_ANALYSIS) return body;
  if (open) v = ir_var_new(c, ir_var_info(c, v)->name, ir_var_info(c, v)->type, false); /* it only says: bound again */
  Stmt *s = st_for(c, v, zero, extent_for(c, v, x->extent), kind, body);
  s->u.loop.thread_obj = x->thread_obj;
  return s;
}
/* Several values at once are stored from variables (store_all), which count as what is stored. */
static bool starts_literal(const Nest *n) {
  const IrReduce *r = ir_reduce(n->l->c, stage_body(n)[0]);
  const IrReducer *op = ir_reducer(n->l->c, r->reducer);
  ExprKind k = ir_kind(n->l->c, op->identity[0]);
  return !r->init && op->n == 1 && (k == IR_INT || k == IR_FLT);
}
/* The first tensorized loop; all of them if there is none. */
static int tensorized(const Nest *n) {
  int p = 0;
  while (p < n->st->leaf.len && n->st->axes.at[n->st->leaf.at[p]].ann != AN_TENSORIZE) p++;
  return p;
}
static const TeIntrin *intrin_of(Nest *n, int pos) {
  const Axis *x = &n->st->axes.at[n->st->leaf.at[pos]];
  if (n->cross) fail_at(n->l, n->st, x, "a reduction across threads cannot be tensorized");
  return te_op_of(n->l->c, x->intrin)->intrin;
}
/* What an intrinsic does in the place of the loops from pos on. */
static Stmt *tensor_part(Nest *n, int pos, const Stmt *part) {
  const Stage *st = n->st;
  IrCtx *c = n->l->c;
  const Axis *first = &st->axes.at[st->leaf.at[pos]];
  size_t bytes = sizeof(ExprId) * (size_t)st->axes.len;
  ExprId *lo = arena_copy(n->l->a, n->val, bytes), *hi = arena_copy(n->l->a, n->val, bytes);
  for (int p = 0; p < st->leaf.len; p++) {
    int id = st->leaf.at[p];
    const Axis *x = &st->axes.at[id];
    if (p < pos) { /* first values are set before there are loops of the sum, one of which is as good as another */
      if (!lo[id]) lo[id] = hi[id] = x->min;
      continue;
    }
    if (is_bound(x)) fail_at(n->l, st, x, "a loop inside of a tensorized one cannot be bound to a thread");
    if (attach_any(n->l->s, n->sid, p)) fail_at(n->l, st, x, "a stage is attached inside of a tensorized loop");
    lo[id] = x->min;
    hi[id] = ex_sub(c, ex_add(c, x->min, x->extent), ex_int(c, ir_type(c, x->extent), 1));
  }
  pass_up(n, lo), pass_up(n, hi);
  ExprId *size = arena_array(n->l->a, ExprId, st->n_root + 1);
  for (int i = 0; i < st->n_root; i++)
    size[i] = ar_simplify(n->l->ar, ex_add(c, ex_sub(c, hi[i], lo[i]), ex_int(c, ir_type(c, lo[i]), 1)));
  const bool *need = overruns(n);
  Preds p = checks_where(n, lo, need, true, false), q = checks_where(n, hi, need, true, false);
  bool same = p.len == q.len;
  for (int i = 0; same && i < p.len; i++) same = p.at[i] == q.at[i];
  if (!same) fail_at(n->l, st, first, "the extents do not divide, so that the last part is smaller than the intrinsic");
  VEC(VarSub) sub = {0};
  for (int i = 0; i < st->axes.len; i++)
    if (lo[i] && st->axes.at[i].handle) vec_push(n->l->a, &sub, ((VarSub){st->axes.at[i].handle, lo[i]}));
  LowTensorize x = {.c = c,
                    .ar = n->l->ar,
                    .st = st,
                    .op = te_op_of(c, first->intrin),
                    .buf_of = &n->l->buf_of,
                    .body = stage_body(n),
                    .lo = lo,
                    .size = size,
                    .n_sub = sub.len,
                    .sub = sub.at};
  return guard(c, &p, low_tensorize(&x, part));
}
/* Reductions whose loops are all inside are the body's; of others each part but the first is an update. */
static Stmt *emit_tensorized(Nest *n, int pos) {
  IrCtx *c = n->l->c;
  const TeIntrin *in = intrin_of(n, pos);
  if (!n->reduce || n->begin >= 0) return tensor_part(n, pos, in->body);
  if (!in->update)
    fail(n->l, n->st,
         "its intrinsic has no statement that adds to a result, which loops of the reduction outside need");
  Stmt *update = tensor_part(n, pos, in->update);
  if (in->reset) return update;
  ExprId begins = 0;
  for (int p = 0; p < pos; p++) {
    int id = n->st->leaf.at[p];
    if (!(n->mark[id] & 2)) continue;
    ExprId zero = ex_bin(c, IR_EQ, n->val[id], ex_cast(c, ir_type(c, n->val[id]), n->st->axes.at[id].min));
    begins = begins ? ex_bin(c, IR_AND, begins, zero) : zero;
  }
  return st_if(c, begins, false, tensor_part(n, pos, in->body), update);
}
static Stmt *emit_leaves(Nest *n, int pos) {
  const Stage *st = n->st;
  int tensor = tensorized(n);
  if (pos == tensor && pos < st->leaf.len) return emit_tensorized(n, pos);
  bool at_once = tensor < st->leaf.len && !intrin_of(n, tensor)->reset; /* the first part sets what it computes */
  if (n->reduce && pos == n->begin && at_once) n->begin = -1;
  if (n->reduce && !n->cross && pos == n->begin) {
    int b = n->begin;
    n->begin = -1;
    if (n->l->use == LOW_ANALYSIS || (n->l->use == LOW_ROWS && starts_literal(n))) return emit_leaves(n, pos);
    Stmt *two[2] = {NULL, NULL};
    ExprId *keep = arena_copy(n->l->a, n->val, sizeof(ExprId) * (size_t)st->axes.len);
    Nest init = *n;
    init.val = keep;
    init.begin = b;
    two[0] = emit_init(&init);
    two[1] = emit_leaves(n, pos);
    return st_seq(n->l->c, 2, two);
  }
  if (n->cross)
    while (pos < st->leaf.len && skip_in_common(n, st->leaf.at[pos])) pos++;
  if (pos >= st->leaf.len) return n->cross ? emit_cross(n) : emit_plain(n);
  return emit_leaf(n, pos, emit_leaves);
}

/* The first values of a reduction, where its loops are. */
static Stmt *first_values(Nest *n) {
  Loops *l = n->l;
  const Stage *st = n->st;
  pass_up(n, n->val);
  RedBody b = reduce_body(n, n->val);
  /* a temporary holds its whole region; an argument, and what is read as initial value, only what is declared */
  bool declared = b.red->init != NULL;
  for (int k = 0; k < st->op->n_out; k++) declared |= ir_buffer(l->c, out_buffer(n, k))->external;
  Preds p = bound_checks(n, n->val, declared && !l->features, true);
  return guard(l->c, &p, store_all(n, n->val, b.k, b.ident));
}

/* The initialisation nest: loops from `begin` on that do not belong to reductions only, with variables of their own. */
static Stmt *emit_init(Nest *n) {
  Loops *l = n->l;
  IrCtx *c = l->c;
  const Stage *st = n->st;
  VarId *var = arena_array(l->a, VarId, st->leaf.len);
  int end = tensorized(n);
  for (int p = n->begin; p < end; p++) {
    const Axis *x = &st->axes.at[st->leaf.at[p]];
    if (n->mark[st->leaf.at[p]] == 2) continue;
    if (is_bound(x)) {
      VarId v = x->var;
      for (int i = l->thread.len - 1; i >= 0; i--)
        if (x->thread_obj && l->thread.at[i].obj == x->thread_obj) {
          v = l->thread.at[i].var;
          break;
        }
      if (v == x->var) {
        var[p] = v = ir_var_new(c, ir_var_info(c, x->var)->name, ir_var_info(c, x->var)->type, false);
        ar_bind_range(l->ar, v, x->min, x->extent);
      }
      n->val[st->leaf.at[p]] = thread_value(n, st->leaf.at[p], v);
      continue;
    }
    if (ex_is_int(c, x->extent, 1)) {
      n->val[st->leaf.at[p]] = x->min;
      continue;
    }
    const IrVar info = *ir_var_info(c, x->var);
    var[p] = ir_var_new(c, arena_printf(l->a, "%s.init", info.name), info.type, false);
    ar_bind_range(l->ar, var[p], ex_int(c, info.type, 0), x->extent);
    n->val[st->leaf.at[p]] = ex_add(c, ex_var(c, var[p]), x->min);
  }
  Stmt *s = end < st->leaf.len ? tensor_part(n, end, intrin_of(n, end)->reset) : first_values(n);
  for (int q = end - 1; q >= n->begin; q--) {
    const Axis *x = &st->axes.at[st->leaf.at[q]];
    if (n->mark[st->leaf.at[q]] == 2) continue;
    if (var[q]) {
      s = st_for(c, var[q], ex_int(c, ir_var_info(c, x->var)->type, 0), extent_for(c, var[q], x->extent),
                 low_loop_kind(x), s);
      s->u.loop.thread_obj = x->thread_obj;
    }
    s = pragmas(c, x, s);
  }
  return s;
}

/* ---- reduction across threads: private partial results, thread_allreduce, one store ---- */
static BufferId scalar_buffer(Loops *l, const char *name, int k, DType t) {
  return ir_array(l->c, arena_printf(l->a, "%s%d", name, k), t, SC_LOCAL, 1, false);
}
/* acc[0] = combine(acc[0], source) under all predicates, inside the unbound reduction loops */
static Stmt *cross_loops(Nest *n, int pos) {
  Loops *l = n->l;
  IrCtx *c = l->c;
  const Stage *st = n->st;
  while (pos < st->leaf.len && !skip_in_common(n, st->leaf.at[pos])) pos++;
  if (pos < st->leaf.len) return emit_leaf(n, pos, cross_loops);
  pass_up(n, n->val);
  RedBody b = reduce_body(n, n->val);
  ExprId zero = ex_i32(c, 0), cur[8];
  Stmt *at[8];
  for (int i = 0; i < b.k; i++) cur[i] = ex_load(c, n->acc[i], ir_type(c, b.src[i]), 1, &zero);
  for (int i = 0; i < b.k; i++)
    at[i] = st_store(c, n->acc[i], 1, &zero, low_combine(c, b.op, l->use == LOW_CODE, i, cur, b.src));
  Stmt *s = low_at_once(c, b.k, at);
  if (b.cond) s = st_if(c, b.cond, false, s, NULL);
  Preds p = bound_checks(n, n->val, true, false);
  return guard(c, &p, s);
}
static Stmt *emit_cross(Nest *n) {
  Loops *l = n->l;
  IrCtx *c = l->c;
  const Stage *st = n->st;
  ExprId zero = ex_i32(c, 0), arg[64], value[8];
  Stmt *part[12];
  int n_part = 0, n_arg = 0, k = st->op->n_out;
  bool loops = false;
  for (int p = 0; p < st->leaf.len; p++) loops = loops || skip_in_common(n, st->leaf.at[p]);
  const IrReduce red = *ir_reduce(c, stage_body(n)[0]);
  const IrReducer op = *ir_reducer(c, red.reducer);
  if (red.init) fail(l, st, "a reduction across threads cannot have an initial value of its own");
  if (k > 8 || k != op.n) fail(l, st, "a reduction must store each of its (at most 8) components");
  if (loops) {
    for (int i = 0; i < k; i++) {
      DType t = ir_type(c, red.src[i]);
      n->acc[i] = scalar_buffer(l, "normal_reduce_temp", i, t);
      part[n_part++] = st_store(c, n->acc[i], 1, &zero, op.identity[i]);
      value[i] = ex_load(c, n->acc[i], t, 1, &zero);
    }
    part[n_part++] = cross_loops(n, 0);
  } else {
    pass_up(n, n->val);
    RedBody b = reduce_body(n, n->val);
    Preds p = bound_checks(n, n->val, true, false);
    ExprId ok = b.cond;
    for (int i = 0; i < p.len; i++) ok = ok ? ex_bin(c, IR_AND, ok, p.at[i]) : p.at[i];
    for (int i = 0; i < k; i++) value[i] = ok ? ex_if_then_else(c, ok, b.src[i], b.ident[i]) : b.src[i];
  }
  arg[n_arg++] = ex_i32(c, red.reducer);
  arg[n_arg++] = ex_i32(c, k);
  for (int i = 0; i < k; i++) arg[n_arg++] = value[i];
  for (int i = 0; i < k; i++) {
    n->red[i] = scalar_buffer(l, "reduce_temp", i, ir_type(c, value[i]));
    arg[n_arg++] = value[i] = ex_load(c, n->red[i], ir_type(c, value[i]), 1, &zero);
  }
  for (int p = 0; p < st->leaf.len; p++) {
    int id = st->leaf.at[p];
    if (!(n->mark[id] & 2) || !is_bound(&st->axes.at[id])) continue;
    if (!for_is_thread(low_loop_kind(&st->axes.at[id])))
      fail_at(l, st, &st->axes.at[id], "a reduction loop can be bound to threadIdx only");
    ExprId thread = ir_kind(c, n->val[id]) == IR_CAST ? ir_kid(c, n->val[id], 0) : n->val[id];
    if (ir_kind(c, thread) == IR_VAR) arg[n_arg++] = thread;
  }
  part[n_part++] = st_eval(c, ex_call(c, IN_ALLREDUCE, DT_I32, n_arg, arg));
  pass_up(n, n->val);
  Preds p = bound_checks(n, n->val, true, true);
  part[n_part++] = guard(c, &p, store_predicate(n, store_all(n, n->val, k, value)));
  Stmt *s = st_seq(c, n_part, part);
  for (int i = k - 1; i >= 0; i--) s = st_alloc(c, n->red[i], s);
  for (int i = k - 1; i >= 0 && loops; i--) s = st_alloc(c, n->acc[i], s);
  return s;
}

/* ---- stages ---- */
static Stmt *emit_stage(Loops *l, int sid) {
  Nest n = {.l = l, .st = &l->s->stage.at[sid], .sid = sid, .begin = -1};
  const Stage *st = n.st;
  n.val = arena_array(l->a, ExprId, st->axes.len);
  n.mark = low_axis_marks(l->a, st);
  n.wide = stage_wide_axes(l->c, st);
  n.reduce = ir_kind(l->c, stage_body(&n)[0]) == IR_REDUCE;
  for (int p = 0; n.reduce && p < st->leaf.len; p++) {
    int id = st->leaf.at[p];
    if ((n.mark[id] & 2) && is_bound(&st->axes.at[id]))
      n.cross = true;
    else if (n.cross && (n.mark[id] & 1))
      fail_at(l, st, &st->axes.at[id],
              "a data axis follows a reduction axis that is bound to a thread; reorder it before");
    if ((n.mark[id] & 2) && n.begin < 0) n.begin = p;
  }
  if (n.reduce && n.begin < 0) n.begin = st->leaf.len;
  return emit_leaves(&n, 0);
}

static int find_arg(const Stage *st, int k, int n_args, const TensorId *args) {
  for (int i = 0; i < n_args; i++)
    if (args[i] == st->op->out[k] || (st->origin && k < st->origin->n_out && args[i] == st->origin->out[k])) return i;
  return -1;
}

static IrBuffer whole_tensor(IrCtx *c, TensorId tensor, bool external) {
  const IrTensor *t = ir_tensor(c, tensor);
  return (IrBuffer){.name = t->name,
                    .type = t->type,
                    .scope = SC_GLOBAL,
                    .external = external,
                    .rank = t->rank,
                    .extent = t->shape,
                    .tensor = tensor};
}

/* A placeholder that nothing reads may be an argument: what is computed need not depend on it. */
static BufferId unread(IrCtx *c, int i, const TensorId *args) {
  const IrTensor *t = ir_tensor(c, args[i]);
  for (int k = 0; k < i; k++)
    err_check(ir_err(c), args[k] != args[i], "arguments %d and %d are the same tensor, %s", k, i, t->name);
  err_check(ir_err(c), ((const TeOp *)t->op)->kind == TE_PLACEHOLDER,
            "argument %d, tensor %s, is not computed by this schedule", i, t->name);
  return ir_buffer_new(c, whole_tensor(c, args[i], true));
}

static void make_buffers(Loops *l, Func *f, int n_args, const TensorId *args) {
  IrCtx *c = l->c;
  for (int sid = 0; sid < l->s->stage.len; sid++) {
    const Stage *st = &l->s->stage.at[sid];
    const TeOp *op = st->op;
    for (int k = 0; k < op->n_out; k++) {
      int arg = find_arg(st, k, n_args, args);
      if (arg < 0 && (st->at == AT_INLINED || op->kind == TE_PLACEHOLDER)) continue;
      IrBuffer b = whole_tensor(c, op->out[k], arg >= 0);
      b.double_buffer = st->double_buffer;
      if (arg < 0) {
        b.scope = state_scope(l->s, sid);
        ExprId *region = arena_array(l->a, ExprId, 2 * b.rank);
        for (int i = 0; i < b.rank; i++) {
          region[i] = ar_simplify(l->ar, st->axes.at[i].min);
          region[b.rank + i] = ar_simplify(l->ar, st->axes.at[i].extent);
          if (st->axes.at[i].align_factor) {
            b.align_factor = st->axes.at[i].align_factor;
            b.align_offset = st->axes.at[i].align_offset;
            b.align_dim = i;
          }
        }
        b.min = region;
        b.extent = region + b.rank;
      }
      BufferId id = ir_buffer_new(c, b);
      mapu_set(&l->buf_of, (uint64_t)op->out[k], id);
      if (arg >= 0) f->arg[arg] = id;
      if (st->origin && k < st->origin->n_out && mapu_get(&l->buf_of, (uint64_t)st->origin->out[k], 0) == 0)
        mapu_set(&l->buf_of, (uint64_t)st->origin->out[k], id);
    }
  }
  for (int i = 0; i < n_args; i++)
    if (!f->arg[i]) f->arg[i] = unread(c, i, args);
}

static void shape_var(IrCtx *c, ExprId e, void *arg) {
  VarVec *v = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind != IR_VAR) return;
  for (int i = 0; i < v->len; i++)
    if (v->at[i] == n->sym) return;
  vec_push(ir_arena(c), v, n->sym);
}

/* Which stages store into arguments. A stage at root whose readers need a part only is computed as a whole if it is one. */
static const bool *argument_stages(State *s, int n_args, const TensorId *args) {
  bool *is_arg = arena_array(ir_arena(s->ctx), bool, s->stage.len), again = false;
  for (int sid = 0; sid < s->stage.len; sid++) {
    Stage *st = &s->stage.at[sid];
    if (st->op->kind == TE_PLACEHOLDER) continue;
    for (int k = 0; k < st->op->n_out; k++) is_arg[sid] |= find_arg(st, k, n_args, args) >= 0;
    if (!is_arg[sid] || st->is_output || st->at != AT_ROOT) continue;
    bool part = false;
    for (int i = 0; i < st->n_root_data; i++)
      part |= st->axes.at[i].min != st->op->axis[i].min || st->axes.at[i].extent != st->op->axis[i].extent;
    st->is_output = part;
    again |= part;
  }
  if (again) state_infer_bounds(s);
  return is_arg;
}

static int64_t tensor_bytes(const IrCtx *c, const TeDag *d) {
  int64_t sum = 0;
  for (int i = 0; i < d->n_ops; i++)
    for (int k = 0; k < d->op[i]->n_out; k++) {
      int64_t n = te_bytes(c, d->op[i]->out[k]);
      if (n < 0 || !i64_add(sum, n, &sum)) return 0;
    }
  return sum;
}

Func low_loops(State *s, const Target *t, int n_args, const TensorId *args, LowUse use) {
  IrCtx *c = s->ctx;
  bool features = low_for_rows(use);
  err_check(ir_err(c), s->bounded, "the state has no loop bounds yet; infer bounds before lowering");
  const bool *is_arg = features ? NULL : argument_stages(s, n_args, args);
  Loops l = {.s = s, .c = c, .a = ir_arena(c), .ar = ar_new(c), .features = features, .use = use};
  Func f = {.ctx = c, .target = *t, .n_args = n_args, .arg = arena_array(l.a, BufferId, n_args), .use = use};
  f.tensor_bytes = tensor_bytes(c, s->dag0);
  mapu_init(&l.buf_of, l.a);
  for (int i = 0; i < s->stage.len; i++) {
    Stage *st = &s->stage.at[i];
    if (st->at == AT_INLINED || st->op->kind == TE_PLACEHOLDER) continue;
    for (int p = 0; p < st->leaf.len; p++) {
      const Axis *x = &st->axes.at[st->leaf.at[p]];
      ar_bind_range(l.ar, x->var, ex_int(c, ir_var_info(c, x->var)->type, 0), x->extent);
    }
  }
  l.body = state_inlined_bodies(s, features, use == LOW_CODE ? low_check_indices(s, &f) : NULL);
  if (!features) f.illegal = low_illegal(s, t, l.ar, is_arg, l.body);
  l.whole = use == LOW_CODE && low_is_gpu(&f);
  make_buffers(&l, &f, n_args, args);
  Stmt *body = NULL;
  for (int sid = s->stage.len - 1; sid >= 0; sid--) {
    const Stage *st = &s->stage.at[sid];
    err_check(
        ir_err(c), !st->matrix || st->at == AT_ROOT,
        "stage %s is on tensor cores, whose kernel is its own: it is neither inlined nor computed inside another stage",
        st->op->name);
    if (st->at != AT_ROOT || st->op->kind == TE_PLACEHOLDER || low_hand_first(s, sid) != sid) continue;
    LowMatrix mx = {s, t, use, &l.buf_of, l.body, is_arg};
    Stmt *two[2] = {st->matrix        ? low_matrix(&mx, sid)
                    : st->op->by_hand ? low_by_hand(s, sid, &l.buf_of)
                                      : emit_stage(&l, sid),
                    body};
    body = st_seq(c, 2, two);
    for (int q = s->stage.len - 1; q >= sid; q--)
      if (low_hand_first(s, q) == sid) body = allocated(&l, s->stage.at[q].op, body);
  }
  f.body = body;
  VarVec vars = {0};
  for (int i = 0; i < n_args; i++) {
    const IrTensor *tn = ir_tensor(c, args[i]);
    for (int d = 0; d < tn->rank; d++) ex_post_order(c, tn->shape[d], shape_var, &vars);
  }
  f.n_vars = vars.len;
  f.var = vars.at;
  low_verify(&f, "loops");
  return f;
}
