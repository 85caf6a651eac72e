/* Layout rewrite: stores a constant input (a weight) in the order in which a candidate's loops read it.
 *
 * A compute op declares such inputs in its attribute layout_free_placeholders. From the loops around the op, after
 * bound inference, follows the new order of dimensions, e.g. "512k512j" becomes "4j8j4j4j512k". Where the op
 * is computed inside another one's loops, a part of a dimension at a time, such parts are its outermost order. Either the function
 * takes the input in the new layout (option 2), or a stage that copies it over is inserted in front of the readers
 * (option 1), with the steps renumbered and a parallel schedule for the new stage appended. An input whose reads or
 * loops do not fit the scheme stays as it is.
 */
#include "schedule/internal.h"
#include <string.h>

typedef struct {
  int axis;
  int64_t size;
} NewDim; /* axis: dimension of the old layout */
typedef struct {
  TensorId w;
  int rank;
  const char **name; /* of the old dimensions; "IntImm" where the index is 0 */
  int64_t *dim;
  VEC(NewDim) to;
} Rewrite;
typedef struct {
  const char *name;
  int64_t extent;
} Entry; /* one loop around the reader */

static const char *base_name(Arena *m, const char *name) {
  char *s = name_clean(m, name), *cut = strrchr(s, '_');
  if (cut && cut != s) *cut = 0;
  return s;
}

/* ---- deriving the new layout ---- */

static bool old_layout(IrCtx *c, const TeDag *d, int producer, int consumer, Rewrite *r) {
  const TeEdge *e = NULL;
  for (int k = 0; k < d->n_edges; k++)
    if (d->edge[k].producer == producer && d->edge[k].consumer == consumer) e = &d->edge[k];
  if (!e || e->n_access != 1 || te_op_of(c, r->w)->kind != TE_PLACEHOLDER) return false;
  Arena *m = ir_arena(c);
  const IrTensor t = *ir_tensor(c, r->w);
  r->rank = t.rank;
  r->name = arena_array(m, const char *, t.rank);
  r->dim = arena_array(m, int64_t, t.rank);
  for (int i = 0; i < t.rank; i++) {
    ExprId x = e->index[0][i];
    if (!ex_const_int(c, t.shape[i], &r->dim[i])) return false;
    if (ir_kind(c, x) == IR_VAR)
      r->name[i] = base_name(m, ir_var_info(c, (VarId)ir_node(c, x)->sym)->name);
    else if (ex_is_int(c, x, 0) && r->dim[i] == 1)
      r->name[i] = "IntImm";
    else
      return false;
    for (int k = 0; k < i; k++)
      if (!strcmp(r->name[i], r->name[k])) return false;
  }
  return true;
}

typedef VEC(Entry) Entries;
static bool add_loops(IrCtx *c, const Stage *st, int n, Entries *out) {
  Arena *m = ir_arena(c);
  for (int i = 0; i < n; i++) {
    const Axis *x = &st->axes.at[st->leaf.at[i]];
    for (int k = 0; k < (x->n_orig ? x->n_orig : 1); k++) {
      const Axis *y = x->n_orig ? &st->axes.at[x->orig[k]] : x;
      const char *name[2];
      if (loop_names(m, y->name, 0, name, 2) != 1) return false;
      vec_push(m, out, ((Entry){base_name(m, name[0]), y->ranged && y->sext > 0 ? y->sext : 1}));
    }
  }
  return true;
}

/* Of an axis the stage computes `size` elements at a time, where the loops around it say: do all such parts begin at a multiple? */
static bool in_whole_parts(State *s, const Stage *st, const char *name, int64_t size) {
  IrCtx *c = s->ctx;
  for (int i = 0; i < st->n_root_data; i++) {
    const Axis *x = &st->axes.at[i];
    if (strcmp(base_name(ir_arena(c), x->name), name) != 0) continue;
    ExprId rest = x->min ? ar_simplify(ar_new(c), ex_fmod(c, x->min, ex_int(c, ir_type(c, x->min), size))) : 0;
    return st->at == AT_ITER && rest && ex_is_int(c, rest, 0);
  }
  return false;
}

/* Parts of a dimension that the loops around the stage go through, and the stage does not see, become the outermost ones. */
static bool add_parts(State *s, const Stage *st, Rewrite *r, const int64_t *made) {
  Arena *m = ir_arena(s->ctx);
  int n = r->to.len;
  NewDim *own = arena_copy(m, r->to.at, sizeof(NewDim) * (size_t)n);
  r->to.len = 0;
  for (int k = 0; k < r->rank; k++) {
    if (made[k] >= r->dim[k]) continue;
    if (r->dim[k] % made[k] || !in_whole_parts(s, st, r->name[k], made[k])) return false;
    vec_push(m, &r->to, ((NewDim){k, r->dim[k] / made[k]}));
  }
  for (int i = 0; i < n; i++) vec_push(m, &r->to, own[i]);
  return true;
}

static bool new_layout(State *s, int stage, Rewrite *r) {
  const Stage *st = &s->stage.at[stage];
  Entries e = {0};
  if (st->at == AT_ITER && !add_loops(s->ctx, &s->stage.at[st->at_stage], st->at_iter + 1, &e)) return false;
  int around = e.len;
  if (!add_loops(s->ctx, st, st->leaf.len, &e)) return false;
  int64_t *made = arena_array(ir_arena(s->ctx), int64_t, r->rank);
  for (int i = 0; i < r->rank; i++) made[i] = 1;
  for (int i = 0; i < e.len; i++) {
    int at = i < around ? i + around : i; /* outer loops of the other stage stand for this stage's own outer loops */
    if (at >= e.len) return false;
    for (int k = 0; k < r->rank; k++)
      if (!strcmp(e.at[at].name, r->name[k])) {
        vec_push(ir_arena(s->ctx), &r->to, ((NewDim){k, e.at[i].extent}));
        if (!i64_mul(made[k], e.at[i].extent, &made[k])) return false;
      }
  }
  return r->to.len > 0 && add_parts(s, st, r, made);
}

typedef VEC(TensorId) Tensors;

/* The next input to rewrite, by stage; marks what it looks at as handled. */
static bool next_rewrite(State *s, Tensors *handled, Rewrite *r) {
  for (int i = 0; i < s->stage.len; i++) {
    const TeOp *op = s->stage.at[i].op;
    const TeAttr *a = te_attr(op, TE_FREE_LAYOUT);
    for (int k = 0; a && a->kind == TA_TENSORS && k < a->n; k++) {
      TensorId w = a->tensors[k];
      if (te_listed(handled->len, handled->at, w) || !te_listed(op->n_in, op->in, w)) continue;
      vec_push(ir_arena(s->ctx), handled, w);
      *r = (Rewrite){.w = w};
      if (old_layout(s->ctx, s->dag, te_dag_op_of(s->ctx, s->dag, w), i, r) && new_layout(s, i, r)) return true;
    }
  }
  return false;
}

/* ---- rewriting the DAG ---- */

static char *layout_text(Arena *m, const Rewrite *r, bool old) {
  StrBuf b;
  sb_init(&b, m);
  for (int i = 0; i < (old ? r->rank : r->to.len); i++)
    sb_printf(&b, "%lld%s", (long long)(old ? r->dim[i] : r->to.at[i].size), r->name[old ? i : r->to.at[i].axis]);
  return sb_str(&b);
}

typedef struct {
  const Rewrite *r;
  TensorId to;
} Reindex;
static ExprId reindex(IrCtx *c, ExprId e, void *arg) {
  const Reindex *x = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind != IR_READ || n->sym != x->r->w) return e;
  Arena *m = ir_arena(c);
  ExprId *idx = arena_array(m, ExprId, x->r->to.len);
  int64_t *div = arena_array(m, int64_t, x->r->rank);
  for (int q = x->r->to.len - 1; q >= 0; q--) {
    NewDim d = x->r->to.at[q];
    if (!div[d.axis]) div[d.axis] = 1;
    ExprId old = ir_kid(c, e, d.axis);
    idx[q] = ex_fmod(c, ex_fdiv(c, old, ex_i32(c, div[d.axis])), ex_i32(c, d.size));
    div[d.axis] *= d.size;
  }
  return ex_read(c, x->to, x->r->to.len, idx);
}

static TeOp *transform_op(IrCtx *c, const Rewrite *r) {
  Arena *m = ir_arena(c);
  int n = r->to.len;
  TeAxis *axis = arena_array(m, TeAxis, n);
  ExprId *old = arena_array(m, ExprId, r->rank);
  int64_t *stride = arena_array(m, int64_t, r->rank);
  for (int q = n - 1; q >= 0; q--) {
    NewDim d = r->to.at[q];
    axis[q] = (TeAxis){.name = arena_printf(m, "i%d", q), .min = ex_i32(c, 0), .extent = ex_i32(c, d.size)};
    axis[q].var = ir_var_new(c, axis[q].name, DT_I32, false);
    if (!stride[d.axis]) stride[d.axis] = 1;
    ExprId part = ex_mul(c, ex_var(c, axis[q].var), ex_i32(c, stride[d.axis]));
    old[d.axis] = old[d.axis] ? ex_add(c, part, old[d.axis]) : part;
    stride[d.axis] *= d.size;
  }
  for (int i = 0; i < r->rank; i++)
    if (!old[i]) old[i] = ex_i32(c, 0);
  ExprId body = ex_read(c, r->w, r->rank, old);
  for (int i = 0; i < r->rank; i++) { /* a dimension that was rounded up is filled with zeros */
    if (stride[i] <= r->dim[i]) continue;
    ExprId inside = ex_bin(c, IR_LT, old[i], ex_i32(c, r->dim[i]));
    DType t = ir_type(c, body);
    body = ex_if_then_else(c, inside, body, ex_zero(c, t));
  }
  return te_compute(c, "auto_scheduler_layout_transform", "", n, axis, 1, &body, 0, NULL);
}

static TeOp *reader_op(IrCtx *c, const TeOp *op, const Rewrite *r, TensorId to, bool replaced) {
  Arena *m = ir_arena(c);
  Reindex x = {r, to};
  ExprId *body = arena_array(m, ExprId, op->n_out);
  for (int i = 0; i < op->n_out; i++) body[i] = ex_map(c, op->body[i], reindex, &x);
  TeAttr *attr = arena_array(m, TeAttr, op->n_attr + 2);
  int n = 0;
  for (int i = 0; i < op->n_attr; i++) {
    if (strcmp(op->attr[i].key, "ori_placeholder_layout") && strcmp(op->attr[i].key, "new_placeholder_layout"))
      attr[n++] = op->attr[i];
    else
      continue;
    TeAttr *a = &attr[n - 1];
    if (a->kind != TA_TENSORS || !replaced) continue;
    a->tensors = arena_copy(m, a->tensors, sizeof(TensorId) * (size_t)a->n);
    for (int k = 0; k < a->n; k++)
      if (a->tensors[k] == r->w) a->tensors[k] = to;
  }
  attr[n++] = (TeAttr){.key = "ori_placeholder_layout", .kind = TA_STR, .s = layout_text(m, r, true)};
  attr[n++] = (TeAttr){.key = "new_placeholder_layout", .kind = TA_STR, .s = layout_text(m, r, false)};
  return te_compute(c, op->name, op->tag, op->n_axis, op->axis, op->n_out, body, n, attr);
}

/* The DAG with `to` in the place of w; *inserted is the op number of the transform stage, -1 without one. */
static TeDag *rewrite_dag(IrCtx *c, const TeDag *d, const Rewrite *r, bool insert, Tensors *handled, int *inserted) {
  Arena *m = ir_arena(c);
  Swap w = {0};
  TeOp *made;
  if (insert) {
    made = transform_op(c, r);
  } else {
    ExprId *shape = arena_array(m, ExprId, r->to.len);
    for (int i = 0; i < r->to.len; i++) shape[i] = ex_i32(c, r->to.at[i].size);
    made = te_placeholder(c, te_op_of(c, r->w)->name, ir_tensor(c, r->w)->type, r->to.len, shape);
    swap_outputs(m, &w, te_op_of(c, r->w), made);
    vec_push(m, handled, made->out[0]);
  }
  for (int i = 0; i < d->n_ops; i++) {
    const TeOp *op = d->op[i], *now = op;
    if (op->kind != TE_COMPUTE) continue;
    if (te_listed(op->n_in, op->in, r->w)) now = reader_op(c, op, r, made->out[0], !insert);
    now = swap_reads(c, now, &w);
    if (now != op) swap_outputs(m, &w, op, now);
  }
  TensorId *list = arena_copy(m, d->tensor, sizeof(TensorId) * (size_t)d->n_tensors);
  for (int i = 0, k; i < d->n_tensors; i++) {
    for (k = 0; k < w.from.len && w.from.at[k] != list[i];) k++;
    if (k < w.from.len) list[i] = w.to.at[k];
  }
  TeDag *out = te_dag(c, d->n_tensors, list);
  *inserted = insert ? te_dag_find(out, made) : -1;
  return out;
}

static int behind(void *at, int stage) { return stage + (stage >= *(int *)at); }

/* Renumbers the steps for a stage inserted at `at`, and appends the schedule of that stage. */
static Step *adapt_steps(Arena *m, int at, int rank, int *n, const Step *steps) {
  Step *out = arena_array(m, Step, *n + 2);
  for (int i = 0; i < *n; i++) {
    Step p = steps[i];
    step_renumber(m, &p, behind, NULL, &at);
    at = step_stage_shift(&p, at);
    out[i] = p;
  }
  static const int64_t FIRST[3] = {0, 1, 2};
  int fused = rank >= 5 ? 3 : rank >= 3 ? 2 : 0;
  if (fused)
    out[(*n)++] =
        (Step){.kind = STEP_FU, .stage = at, .n = fused, .list = arena_copy(m, FIRST, sizeof(int64_t) * (size_t)fused)};
  out[(*n)++] = (Step){.kind = STEP_AN, .stage = at, .iter = 0, .a = AN_PARALLEL};
  return out;
}

static Relayout relayout_of(Arena *m, const TeDag *d, const Rewrite *r) {
  int64_t *size = arena_array(m, int64_t, r->to.len);
  int32_t *axis = arena_array(m, int32_t, r->to.len);
  for (int i = 0; i < r->to.len; i++) size[i] = r->to.at[i].size, axis[i] = r->to.at[i].axis;
  Relayout out = {.tensor = -1, .n_from = r->rank, .n = r->to.len, .from = r->dim, .size = size, .axis = axis};
  for (int i = 0; i < d->n_tensors; i++)
    if (d->tensor[i] == r->w) out.tensor = i;
  return out;
}

TeDag *dag_rewrite_layout(IrCtx *c, const TeDag *d, int *n_steps, Step **steps, int option, int *n_made,
                          Relayout **made) {
  err_check(ir_err(c), option >= 0 && option <= 2, "layout rewrite option %d is not 0, 1 or 2", option);
  const TeDag *now = d;
  Tensors handled = {0};
  VEC(Relayout) list = {0};
  bool any = false;
  for (int i = 0; i < d->n_ops; i++) any |= te_attr(d->op[i], TE_FREE_LAYOUT) != NULL;
  while (option && any && *n_steps) {
    State *s = state_replay(c, now, *n_steps, *steps);
    state_infer_bounds(s);
    Rewrite r;
    if (!next_rewrite(s, &handled, &r)) break;
    int at;
    if (option == 2) vec_push(ir_arena(c), &list, relayout_of(ir_arena(c), now, &r));
    now = rewrite_dag(c, now, &r, option == 1, &handled, &at);
    if (option == 1) *steps = adapt_steps(ir_arena(c), at, r.to.len, n_steps, *steps);
  }
  if (made) *n_made = list.len, *made = list.at;
  return (TeDag *)now;
}
