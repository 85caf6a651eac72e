/* tensorize: a tensor intrinsic in the place of a stage's inner loops (te.decl_tensor_intrin).
 *
 * An operation describes what the intrinsic computes. The part of the stage that the loops cover is compared with it. First the root
 * axes are paired in order; axes of which the part has one value are left out. Then the bodies are compared node by node. Each tensor that
 * the intrinsic reads stands for a tensor that the stage reads, from a first element on (`base`). Last, the intrinsic's statements replace
 * the loops. They use the buffers of the stage's tensors, and variables for strides and first elements get their values.
 */
#include "lower/util.h"

typedef struct {
  BufferId to; /* 0: not met yet */
  int rank;
  ExprId *base; /* first element, in the buffer's own dimensions */
  int *dim;     /* per dimension of the intrinsic's buffer, that of `to` */
} Slot;
typedef struct {
  const LowTensorize *x;
  IrCtx *c;
  Arena *a;
  const TeIntrin *in;
  int *stage_axis; /* per axis of the intrinsic's operation, data then reduction: that of the stage */
  VarSub *zero;    /* axes of the intrinsic's operation := 0 */
  int n_axis;
  Slot *slot;
} Match;

static void fail(const Match *m, const char *why) {
  err_raise(ir_err(m->c), NS_ERR_VALUE, "stage %s cannot be computed by the tensor intrinsic %s: %s",
            m->x->st->op->name, m->in->name, why);
}

/* Pairs n axes of the intrinsic, from its number `at` on, with n_stage of the stage from `first` on. */
static void pair_axes(Match *m, int at, int n, int first, int n_stage) {
  const LowTensorize *x = m->x;
  int spare = n_stage - n;
  for (int i = 0, k = 0; k < n; i++) {
    if (i >= n_stage) fail(m, "it has more axes");
    ExprId size = x->size[first + i], want = te_axis(x->op, at + k)->extent;
    if (ar_prove_eq(x->ar, size, want) && !(spare > 0 && ex_is_int(m->c, size, 1))) {
      m->stage_axis[at + k++] = first + i;
      continue;
    }
    if (!ex_is_int(m->c, size, 1) || spare-- <= 0)
      fail(m, arena_printf(m->a, "axis %s has %s values in the loops, %s in the intrinsic",
                           te_axis(x->st->op, first + i)->name, ex_text(m->c, size), ex_text(m->c, want)));
  }
  for (int i = 0; i < n_stage; i++) {
    bool paired = false;
    for (int k = 0; k < n; k++) paired |= m->stage_axis[at + k] == first + i;
    if (!paired && !ex_is_int(m->c, x->size[first + i], 1))
      fail(m, arena_printf(m->a, "axis %s is no part of it", te_axis(x->st->op, first + i)->name));
  }
}

static ExprId of_type(IrCtx *c, ExprId e, DType t) { return dtype_eq(ir_type(c, e), t) ? e : ex_cast(c, t, e); }

static bool match(Match *m, ExprId a, ExprId b);

/* a: LOAD of the stage; b: READ of the intrinsic. */
static bool bind(Match *m, ExprId a, ExprId b) {
  IrCtx *c = m->c;
  const LowTensorize *x = m->x;
  int i = 0, n = ir_node(c, a)->n, n_in = ir_node(c, b)->n, k = 0;
  while (i < m->in->n_in && x->op->in[m->in->from[i]] != ir_node(c, b)->sym) i++;
  if (i == m->in->n_in || n < n_in || !dtype_eq(ir_type(c, a), ir_type(c, b))) return false;
  Slot s = {.to = ir_node(c, a)->sym, .rank = n};
  s.base = arena_array(m->a, ExprId, n + 1);
  s.dim = arena_array(m->a, int, n_in + 1);
  for (int d = 0; d < n; d++) {
    ExprId at = ir_kid(c, a, d), first = ar_simplify(x->ar, ex_subst(c, at, m->n_axis, m->zero)),
           moves = ar_simplify(x->ar, ex_sub(c, at, first));
    s.base[d] = first;
    if (n - d > n_in - k && ex_is_int(c, moves, 0)) continue;
    if (k == n_in) return false;
    ExprId in = ir_kid(c, b, k), start = ex_subst(c, in, m->n_axis, m->zero), step = ex_sub(c, in, start);
    if (!ar_prove_eq(x->ar, moves, of_type(c, step, ir_type(c, moves)))) return false;
    s.base[d] = ar_simplify(x->ar, ex_sub(c, first, of_type(c, start, ir_type(c, first))));
    s.dim[k++] = d;
  }
  if (k < n_in) return false;
  Slot *old = &m->slot[i];
  bool same = old->to == s.to && old->rank == n;
  for (int d = 0; same && d < n; d++) same = ar_prove_eq(x->ar, old->base[d], s.base[d]);
  if (old->to && !same) return false;
  *old = s;
  return true;
}

static bool kids(Match *m, ExprId a, ExprId b, bool crossed) {
  int n = ir_node(m->c, a)->n;
  Slot *before = arena_copy(m->a, m->slot, sizeof(Slot) * (size_t)m->in->n_in);
  bool ok = true;
  for (int i = 0; ok && i < n; i++) ok = match(m, ir_kid(m->c, a, i), ir_kid(m->c, b, crossed ? n - 1 - i : i));
  for (int i = 0; !ok && i < m->in->n_in; i++) m->slot[i] = before[i];
  return ok;
}

static bool match(Match *m, ExprId a, ExprId b) {
  IrCtx *c = m->c;
  if (a == b) return true;
  const ExprNode x = *ir_node(c, a), y = *ir_node(c, b);
  if (y.kind == IR_READ) return x.kind == IR_LOAD && bind(m, a, b);
  if (!dtype_eq(x.type, y.type)) return false;
  bool turns = x.kind == IR_ADD || x.kind == IR_MUL || x.kind == IR_MIN || x.kind == IR_MAX;
  if (x.kind == y.kind && x.n == y.n && x.n > 0 && (turns || x.sym == y.sym))
    if (kids(m, a, b, false) || (turns && kids(m, a, b, true))) return true;
  bool number = dtype_is_int(x.type) && !low_expr_loads(c, a) && !low_expr_loads(c, b);
  return number && !dtype_is_bool(x.type) && ar_prove_eq(m->x->ar, a, b);
}

/* Do two reducers combine in the same way? */
static bool same_reducer(IrCtx *c, int a, int b) {
  if (a == b) return true;
  const IrReducer x = *ir_reducer(c, a), y = *ir_reducer(c, b);
  VarSub *sub = arena_array(ir_arena(c), VarSub, 2 * x.n + 1);
  bool same = x.n == y.n;
  for (int i = 0; same && i < x.n; i++) {
    sub[i] = (VarSub){x.lhs[i], ex_var(c, y.lhs[i])};
    sub[x.n + i] = (VarSub){x.rhs[i], ex_var(c, y.rhs[i])};
  }
  for (int i = 0; same && i < x.n; i++)
    same = ex_subst(c, x.result[i], 2 * x.n, sub) == y.result[i] && x.identity[i] == y.identity[i];
  return same;
}

/* The stage's expression by the axes of the intrinsic's operation, and that of the operation. */
static void match_bodies(Match *m) {
  IrCtx *c = m->c;
  const LowTensorize *x = m->x;
  const TeOp *op = x->st->op;
  int n = x->st->n_root;
  VarSub *sub = arena_array(m->a, VarSub, n + x->n_sub + 1), *outside = arena_array(m->a, VarSub, n + x->n_sub + 1);
  for (int i = 0; i < n; i++) {
    VarId v = te_axis(op, i)->var;
    DType t = ir_var_info(c, v)->type;
    sub[i] = outside[i] = (VarSub){v, of_type(c, x->lo[i], t)};
    for (int k = 0; k < m->n_axis; k++)
      if (m->stage_axis[k] == i)
        sub[i].value = ex_add(c, sub[i].value, of_type(c, ex_var(c, te_axis(x->op, k)->var), t));
  }
  for (int i = 0; i < x->n_sub; i++) outside[n + i] = x->sub[i];
  bool reduces = ir_kind(c, x->body[0]) == IR_REDUCE;
  if (reduces != te_is_reduction(c, x->op)) fail(m, "one is a reduction, the other is none");
  const IrReduce r = reduces ? *ir_reduce(c, x->body[0]) : (IrReduce){0},
                 q = reduces ? *ir_reduce(c, x->op->body[0]) : r;
  if (reduces && (!same_reducer(c, r.reducer, q.reducer) || r.n_src != q.n_src || r.init || q.init))
    fail(m, "they are other reductions");
  const ExprId *mine = reduces ? r.src : x->body, *wanted = reduces ? q.src : x->op->body;
  for (int i = 0; i < (reduces ? r.n_src : op->n_out); i++) {
    ExprId a = low_loads(c, ar_simplify(x->ar, ex_subst(c, mine[i], n, sub)), x->buf_of, op->name, 0);
    ExprId b = ar_simplify(x->ar, ex_subst(c, wanted[i], n + x->n_sub, outside));
    if (!match(m, a, b))
      fail(m, arena_printf(m->a, "the loops compute %s, it computes %s", ex_text(c, a), ex_text(c, b)));
  }
}

static void results(Match *m) {
  const LowTensorize *x = m->x;
  for (int k = 0; k < m->in->n_out; k++) {
    Slot *s = &m->slot[m->in->n_in + k];
    s->to = mapu_get(x->buf_of, (uint64_t)x->st->op->out[k], 0);
    s->rank = x->st->n_root_data;
    s->base = arena_copy(m->a, x->lo, sizeof(ExprId) * (size_t)(s->rank + 1));
    s->dim = m->stage_axis;
  }
}

/* ---- its statements ---- */

static Slot *slot_of(const Match *m, BufferId b) {
  for (int i = 0; i < m->in->n_in + m->in->n_out; i++)
    if (m->in->buf[i] == b) return &m->slot[i];
  return NULL;
}
static ExprId *moved(const Match *m, const Slot *s, int n, const ExprId *index) {
  ExprId *out = arena_copy(m->a, s->base, sizeof(ExprId) * (size_t)(s->rank + 1));
  for (int k = 0; k < n; k++)
    out[s->dim[k]] = ex_add(m->c, s->base[s->dim[k]], of_type(m->c, index[k], ir_type(m->c, s->base[s->dim[k]])));
  return out;
}
static ExprId stride(const Match *m, const Slot *s, int dim) {
  const IrBuffer b = *ir_buffer(m->c, s->to);
  if (b.align_factor) fail(m, "a buffer with aligned rows has strides that are not known here");
  ExprId e = ex_i32(m->c, 1);
  for (int d = dim + 1; d < b.rank; d++) e = ex_mul(m->c, e, of_type(m->c, b.extent[d], DT_I32));
  return e;
}
static ExprId offset(const Match *m, const Slot *s) {
  const IrBuffer b = *ir_buffer(m->c, s->to);
  ExprId e = ex_i32(m->c, 0);
  for (int d = 0; d < b.rank; d++) {
    ExprId at =
        of_type(m->c, b.min ? ex_sub(m->c, s->base[d], of_type(m->c, b.min[d], ir_type(m->c, s->base[d]))) : s->base[d],
                DT_I32);
    e = ex_add(m->c, e, ex_mul(m->c, at, stride(m, s, d)));
  }
  return e;
}
static ExprId of_variable(const Match *m, VarId v, ExprId e) {
  const TeIntrin *in = m->in;
  for (int i = 0, at = 0; i < in->n_in + in->n_out; at += ir_buffer(m->c, in->buf[i++])->rank) {
    if (in->offset[i] == v) return of_type(m->c, offset(m, &m->slot[i]), ir_type(m->c, e));
    for (int k = 0; k < ir_buffer(m->c, in->buf[i])->rank; k++)
      if (in->stride[at + k] == v) return of_type(m->c, stride(m, &m->slot[i], m->slot[i].dim[k]), ir_type(m->c, e));
  }
  for (int i = 0; i < m->x->n_sub; i++)
    if (m->x->sub[i].var == v) return of_type(m->c, m->x->sub[i].value, ir_type(m->c, e));
  return e;
}
static ExprId put_expr(IrCtx *c, ExprId e, void *arg) {
  const Match *m = arg;
  const ExprNode n = *ir_node(c, e);
  if (n.kind == IR_VAR) return of_variable(m, n.sym, e);
  const Slot *s = n.kind == IR_LOAD ? slot_of(m, n.sym) : NULL;
  if (!s) return e;
  ExprId *index = arena_array(m->a, ExprId, n.n + 1);
  for (int i = 0; i < n.n; i++) index[i] = ir_kid(c, e, i);
  return ex_load(c, s->to, n.type, s->rank, moved(m, s, n.n, index));
}
static Stmt *put_stmt(IrCtx *c, Stmt *st, void *arg) {
  const Match *m = arg;
  const Slot *s = st->kind == ST_STORE ? slot_of(m, st->u.store.buf) : NULL;
  return s ? st_store(c, s->to, s->rank, moved(m, s, st->u.store.n_idx, st->u.store.idx), st->u.store.value) : st;
}

Stmt *low_tensorize(const LowTensorize *x, const Stmt *part) {
  Match m = {.x = x, .c = x->c, .a = ir_arena(x->c), .in = x->op->intrin, .n_axis = x->op->n_axis + x->op->n_red};
  m.stage_axis = arena_array(m.a, int, m.n_axis + 1);
  m.zero = arena_array(m.a, VarSub, m.n_axis + 1);
  m.slot = arena_array(m.a, Slot, m.in->n_in + m.in->n_out + 1);
  for (int i = 0; i < m.n_axis; i++) {
    const TeAxis *t = te_axis(x->op, i);
    m.stage_axis[i] = -1;
    m.zero[i] = (VarSub){t->var, ex_int(x->c, ir_var_info(x->c, t->var)->type, 0)};
    ar_bind_range(x->ar, t->var, t->min, t->extent);
  }
  if (m.in->n_out != x->st->op->n_out) fail(&m, "the numbers of results differ");
  pair_axes(&m, 0, x->op->n_axis, 0, x->st->n_root_data);
  pair_axes(&m, x->op->n_axis, x->op->n_red, x->st->n_root_data, x->st->n_root - x->st->n_root_data);
  match_bodies(&m);
  results(&m);
  return st_map(x->c, low_copy(x->c, part, 0, 0), put_stmt, put_expr, &m);
}
