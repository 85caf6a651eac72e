/* What rewrites the DAG: cache read, cache write and rfactor.
 *
 * Each one makes one new operation, changes the body of some operations and copies everything downstream, because a
 * changed operation has new output tensors. The stages of unchanged and copied operations keep their loops; only `op`
 * is exchanged (axes keep their variables, so loops and bodies still fit together).
 */
#include "schedule/internal.h"
#include <string.h>

ScopeKind scope_parse(Err *e, const char *text) {
  for (int i = SC_GLOBAL; i <= SC_LOCAL; i++)
    if (!strcmp(SCOPE_NAME[i], text)) return (ScopeKind)i;
  err_raise(e, NS_ERR_VALUE, "memory scope '%s' is unknown: use global, shared, warp or local", text);
}

/* ---- exchanging operations ---- */

/* What became `a` becomes b at once: a reader of a cache is exchanged a second time if it reads another of them, and who reads
 * it knows its first tensors only. */
void swap_outputs(Arena *m, Swap *w, const TeOp *a, const TeOp *b) {
  for (int i = 0; i < a->n_out; i++) {
    for (int k = 0; k < w->to.len; k++)
      if (w->to.at[k] == a->out[i]) w->to.at[k] = b->out[i];
    vec_push(m, &w->from, a->out[i]);
    vec_push(m, &w->to, b->out[i]);
  }
}

TeOp *swap_reads(IrCtx *c, const TeOp *op, const Swap *w) {
  ExprId *body = NULL;
  for (int k = 0; k < w->from.len; k++) {
    if (!te_listed(op->n_in, op->in, w->from.at[k])) continue;
    if (!body) body = arena_copy(ir_arena(c), op->body, sizeof(ExprId) * (size_t)op->n_out);
    for (int i = 0; i < op->n_out; i++) body[i] = te_replace_tensor(c, body[i], w->from.at[k], w->to.at[k]);
  }
  return body ? te_op_with_body(c, op, body) : (TeOp *)op;
}

/* Exchanges the operations of stages `from` and later that read anything in w, and rebuilds the DAG; or takes over the
 * rewritten one if it is known. */
static void swap_downstream(State *s, int from, Swap *w) {
  Arena *m = ir_arena(s->ctx);
  TeOp **ops = s->reuse ? s->reuse->op : arena_array(m, TeOp *, s->stage.len);
  for (int i = 0; i < s->stage.len; i++) {
    Stage *st = &s->stage.at[i];
    if (!s->reuse) {
      ops[i] = i >= from && st->op->kind == TE_COMPUTE ? swap_reads(s->ctx, st->op, w) : (TeOp *)st->op;
      if (ops[i] != st->op) swap_outputs(m, w, st->op, ops[i]);
    }
    st->op = ops[i];
  }
  s->dag = s->reuse ? s->reuse : te_dag_rewritten(s->ctx, s->stage.len, ops);
  vec_push(m, &s->dags, s->dag);
}

static void stage_insert(State *s, int at, const TeOp *op, ScopeKind scope) {
  Stage st = stage_fresh(s->ctx, op, op);
  st.scope = scope;
  attach_shift(s, at);
  vec_push(ir_arena(s->ctx), &s->stage, st);
  memmove(s->stage.at + at + 1, s->stage.at + at, sizeof(Stage) * (size_t)(s->stage.len - 1 - at));
  s->stage.at[at] = st;
}

/* Asked before anything is changed: what is refused leaves the schedule as it was. */
static void check_renewable(State *s, int i) {
  const Stage *old = &s->stage.at[i];
  err_check(S_ERR(s), !old->store_predicate,
            "stage %d (%s) is stored under a condition, whose loops end here; set it afterwards", i, old->op->name);
  err_check(S_ERR(s), !old->matrix, "stage %d (%s) is on tensor cores and would be made anew; ask for them afterwards",
            i, old->op->name);
}

/* A fresh stage with the identity and the place of the old one. */
static void stage_renew(State *s, int i, const TeOp *op) {
  const Stage old = s->stage.at[i];
  Stage st = stage_fresh(s->ctx, op, old.origin);
  st.at = old.at, st.at_stage = old.at_stage, st.at_iter = old.at_iter;
  st.is_output = old.is_output, st.double_buffer = old.double_buffer;
  st.scope = old.scope, st.scope_asked = old.scope_asked;
  s->stage.at[i] = st;
}

/* ---- cache read ---- */

static const char *cache_name(State *s, const TeOp *op, const char *scope) {
  Arena *m = ir_arena(s->ctx);
  const char *base = ir_tensor(s->ctx, op->out[0])->name, *name = NULL;
  for (bool taken = true; taken; base = name_join(m, base, ".d")) {
    name = arena_printf(m, "%s.%s", base, scope);
    taken = false;
    for (int i = 0; i < s->stage.len; i++) taken |= !strcmp(s->stage.at[i].op->name, name);
  }
  return name;
}

static TeOp *copy_op(IrCtx *c, const char *name, TensorId t) {
  const IrTensor x = *ir_tensor(c, t);
  TeAxis *axis = arena_array(ir_arena(c), TeAxis, x.rank);
  ExprId *idx = arena_array(ir_arena(c), ExprId, x.rank);
  for (int i = 0; i < x.rank; i++) {
    DType type = ir_type(c, x.shape[i]);
    axis[i] = (TeAxis){.name = arena_printf(ir_arena(c), "ax%d", i), .min = ex_int(c, type, 0), .extent = x.shape[i]};
    axis[i].var = ir_var_new(c, axis[i].name, type, false);
    idx[i] = ex_var(c, axis[i].var);
  }
  ExprId body = ex_read(c, t, x.rank, idx);
  return te_compute(c, name, "", x.rank, axis, 1, &body, 0, NULL);
}

/* The copy of what the stage makes, which the readers read from now on. */
static TeOp *cached(State *s, int stage, const char *scope, int n, const int64_t *readers, Swap *w) {
  IrCtx *c = s->ctx;
  const TeOp *x = s->stage.at[stage].op;
  TeOp *y = copy_op(c, cache_name(s, x, scope), x->out[0]);
  Swap from = {0};
  vec_push(ir_arena(c), &from.from, x->out[0]);
  vec_push(ir_arena(c), &from.to, y->out[0]);
  err_check(S_ERR(s), n > 0, "a cache read of %s needs at least one reader", x->name);
  TeOp **op = arena_array(ir_arena(c), TeOp *, n);
  for (int i = 0; i < n; i++) {
    const TeOp *r = s->stage.at[readers[i]].op;
    op[i] = swap_reads(c, r, &from);
    for (int k = 0; k < i; k++)
      if (readers[k] == readers[i]) op[i] = (TeOp *)r; /* listed twice: it reads the cache already */
    err_check(S_ERR(s), op[i] != r, "cache read: stage %lld (%s) does not read %s", (long long)readers[i], r->name,
              x->name);
  }
  for (int i = 0; i < n; i++) {
    swap_outputs(ir_arena(c), w, s->stage.at[readers[i]].op, op[i]);
    s->stage.at[readers[i]].op = op[i];
  }
  return y;
}

void dag_cache_read(State *s, int stage, const char *scope, int n, const int64_t *readers) {
  ScopeKind kind = scope_parse(S_ERR(s), scope);
  Swap w = {0};
  stage_insert(s, stage + 1, s->reuse ? s->reuse->op[stage + 1] : cached(s, stage, scope, n, readers, &w), kind);
  swap_downstream(s, stage + 2, &w);
}

/* ---- cache write ---- */

/* Value checks of the data axes' splits that do not divide; 0 if there are none. */
static ExprId split_checks(IrCtx *c, const Stage *st, const char *mark, bool hint, ExprId cond, const ExprId *val);

typedef struct {
  VEC(TeAxis) axis;
  VEC(VarSub) sub;
  VEC(ExprId) idx;
  ExprId check;
} Layout;

/* The cache has one dimension per data loop of the stage, in loop order: a split or reordered stage gives the cache
 * another layout than the tensor has. */
static bool is_data(const Axis *a) { return a->kind == IT_SPACE || a->kind == IT_SPECIAL; }
static Layout cache_layout(State *s, Stage *st) {
  IrCtx *c = s->ctx;
  Arena *m = ir_arena(c);
  Layout l = {0};
  stage_early_extents(c, st);
  ExprId *up = arena_array(m, ExprId, st->axes.len), *down = arena_array(m, ExprId, st->axes.len);
  char *mark = arena_alloc(m, (size_t)st->axes.len);
  for (int i = 0; i < st->n_root_data; i++) down[i] = ex_var(c, st->op->axis[i].var);
  for (int i = 0; i < st->axes.len; i++) mark[i] = is_data(&st->axes.at[i]);
  for (int i = 0; i < st->leaf.len; i++) {
    int k = st->leaf.at[i];
    const Axis *a = &st->axes.at[k];
    if (a->kind == IT_REDUCE) continue;
    err_check(S_ERR(s), is_data(a),
              "cache write of %s: loop %s mixes data and reduction axes; call cache_write before fusing them",
              st->op->name, a->sname);
    TeAxis t = {.name = name_join(m, a->sname, ".c"), .min = ex_i32(c, 0), .extent = a->extent};
    if (k < st->n_root_data) t.min = st->op->axis[k].min;
    t.var = ir_var_new(c, t.name, ir_type(c, a->extent), false);
    up[k] = ex_var(c, t.var);
    vec_push(m, &l.axis, t);
    vec_push(m, &l.idx, stage_downward(c, st, k, down));
  }
  stage_climb(c, st, up, NULL, NULL);
  for (int i = 0; i < st->n_root_data; i++) vec_push(m, &l.sub, ((VarSub){st->op->axis[i].var, up[i]}));
  l.check = split_checks(c, st, mark, false, 0, up);
  return l;
}

static ExprId cached_body(IrCtx *c, ExprId body, const Layout *l) {
  ExprId e = ex_subst(c, body, l->sub.len, l->sub.at);
  if (ir_kind(c, e) == IR_REDUCE) {
    IrReduce r = *ir_reduce(c, e);
    r.reducer = te_reducer_at(c, r.reducer, l->sub.len, l->sub.at);
    if (r.reducer != ir_reduce(c, e)->reducer) e = ex_reduce(c, r);
  }
  if (!l->check) return e;
  if (ir_kind(c, e) != IR_REDUCE) {
    DType t = ir_type(c, e);
    return ex_select(c, l->check, e, ex_zero(c, t));
  }
  IrReduce r = *ir_reduce(c, e);
  r.cond = r.cond ? ex_bin(c, IR_AND, r.cond, l->check) : l->check;
  if (r.init) { /* what lies beside the tensor has no initial value */
    ExprId *init = arena_copy(ir_arena(c), r.init, sizeof(ExprId) * (size_t)r.n_src);
    for (int i = 0; i < r.n_src; i++) init[i] = ex_select(c, l->check, init[i], ir_reducer(c, r.reducer)->identity[i]);
    r.init = init;
  }
  return ex_reduce(c, r);
}

/* The cache, and in *x2 the copy of it into the tensor. */
static TeOp *cache_of(State *s, int stage, const char *scope, const TeOp **x2) {
  IrCtx *c = s->ctx;
  Arena *m = ir_arena(c);
  const TeOp *x = s->stage.at[stage].op;
  Layout l = cache_layout(s, &s->stage.at[stage]);
  ExprId *body = arena_array(m, ExprId, x->n_out);
  for (int i = 0; i < x->n_out; i++) body[i] = cached_body(c, x->body[i], &l);
  TeOp *y = te_compute(c, arena_printf(m, "%s.%s", x->name, scope), x->tag, l.axis.len, l.axis.at, x->n_out, body,
                       x->n_attr, x->attr);
  if (!s->stage.at[stage].rels.len) y->tensorized = x->tensorized, y->tensorized_at = x->tensorized_at;
  for (int i = 0; i < x->n_out; i++) body[i] = ex_read(c, y->out[i], l.idx.len, l.idx.at);
  *x2 = te_compute(c, x->name, x->tag, x->n_axis, x->axis, x->n_out, body, x->n_attr, x->attr);
  return y;
}

void dag_cache_write(State *s, int stage, const char *scope) {
  ScopeKind kind = scope_parse(S_ERR(s), scope);
  const TeOp *x = s->stage.at[stage].op, *y = NULL, *x2 = NULL;
  Swap w = {0};
  err_check(S_ERR(s), !attach_any(s, stage, -1),
            "cache write: stage %d (%s) carries attached stages; call cache_write before attaching them", stage,
            x->name);
  check_renewable(s, stage);
  if (s->reuse)
    y = s->reuse->op[stage], x2 = s->reuse->op[stage + 1];
  else
    y = cache_of(s, stage, scope, &x2), swap_outputs(ir_arena(s->ctx), &w, x, x2);
  attach_clear(s, stage);
  s->stage.at[stage].at = AT_ROOT;
  stage_renew(s, stage, x2);
  stage_insert(s, stage, y, kind);
  swap_downstream(s, stage + 2, &w);
}

/* ---- another layout ---- */

void dag_transform(State *s, int stage, const char *text) {
  Swap w = {0};
  check_renewable(s, stage);
  stage_renew(s, stage, s->reuse ? s->reuse->op[stage] : transformed(s, stage, text, &w));
  swap_downstream(s, stage + 1, &w);
}

/* ---- rfactor ---- */

/* Marks all axes connected with `axis` through relations. */
static char *connected(State *s, const Stage *st, int axis) {
  char *mark = arena_alloc(ir_arena(s->ctx), (size_t)st->axes.len);
  mark[axis] = 1;
  for (bool more = true; more;) {
    more = false;
    for (int i = 0; i < st->rels.len; i++) {
      const Rel *r = &st->rels.at[i];
      if (r->kind == REL_SINGLETON) continue;
      int a = r->parent, b = r->outer, d = r->inner < 0 ? b : r->inner;
      if ((mark[a] | mark[b] | mark[d]) && !(mark[a] & mark[b] & mark[d])) mark[a] = mark[b] = mark[d] = 1, more = true;
    }
  }
  return mark;
}

/* value(p) - min(p) < extent(p) for every split among the marked axes that does not divide. */
static ExprId split_checks(IrCtx *c, const Stage *st, const char *mark, bool hint, ExprId cond, const ExprId *val) {
  for (int i = 0; i < st->rels.len; i++) {
    const Rel *r = &st->rels.at[i];
    if (r->kind != REL_SPLIT || !mark[r->parent]) continue;
    const Axis *p = &st->axes.at[r->parent];
    if (stage_split_exact(c, st, r)) continue;
    ExprId v = val[r->parent];
    if (p->min && !ex_is_int(c, p->min, 0)) v = ex_sub(c, v, p->min);
    ExprId test = ex_bin(c, IR_LT, v, p->extent);
    if (hint) test = ex_call(c, IN_LIKELY, DT_BOOL, 1, &test);
    cond = cond ? ex_bin(c, IR_AND, cond, test) : test;
  }
  return cond;
}

typedef struct {
  const TeOp *x;
  Stage *st;
  int axis, pos;
  char *mark;
  ExprId *val; /* value of each axis of the old stage in terms of the new axes */
  VEC(TeAxis) axes;
  VEC(IrAxis) ired;
  VEC(VarSub) sub;
} Factor;

/* Axes of the partial reduction, and what replaces the reduction axes it touches. */
static void factor_axes(State *s, Factor *f) {
  IrCtx *c = s->ctx;
  Arena *m = ir_arena(c);
  Stage *st = f->st;
  ExprId *val = f->val = arena_array(m, ExprId, st->axes.len);
  for (int i = 0; i <= f->x->n_axis; i++) {
    if (i == f->pos) {
      const Axis *a = &st->axes.at[f->axis];
      TeAxis t = {.name = a->sname,
                  .min = ex_i32(c, 0),
                  .extent = a->extent,
                  .var = ir_var_new(c, a->sname, ir_type(c, a->extent), false)};
      val[f->axis] = ex_var(c, t.var);
      vec_push(m, &f->axes, t);
    }
    if (i < f->x->n_axis) vec_push(m, &f->axes, f->x->axis[i]);
  }
  const IrReduce *r = ir_reduce(c, f->x->body[0]);
  for (int i = 0; i < f->x->n_red; i++)
    if (!f->mark[st->n_root_data + i]) vec_push(m, &f->ired, r->axis[i]);
  for (int i = 0; i < st->leaf.len; i++) {
    int k = st->leaf.at[i];
    const Axis *a = &st->axes.at[k];
    if (!f->mark[k] || k == f->axis) continue;
    IrAxis t = {.min = a->min && k < st->n_root ? a->min : ex_i32(c, 0), .extent = a->extent};
    t.var = k < st->n_root ? a->var : ir_var_new(c, a->sname, ir_type(c, a->extent), false);
    val[k] = ex_var(c, t.var);
    vec_push(m, &f->ired, t);
  }
  stage_climb(c, st, val, NULL, NULL);
  for (int i = 0; i < f->x->n_red; i++)
    if (f->mark[st->n_root_data + i]) vec_push(m, &f->sub, ((VarSub){f->x->red[i].var, val[st->n_root_data + i]}));
}

static TeOp *factor_op(State *s, Factor *f) {
  IrCtx *c = s->ctx;
  Arena *m = ir_arena(c);
  IrReduce r = *ir_reduce(c, f->x->body[0]);
  ExprId *src = arena_array(m, ExprId, r.n_src), *body = arena_array(m, ExprId, f->x->n_out);
  for (int i = 0; i < r.n_src; i++) src[i] = ex_subst(c, r.src[i], f->sub.len, f->sub.at);
  ExprId cond = r.cond ? ex_subst(c, r.cond, f->sub.len, f->sub.at) : 0;
  int64_t one;
  if (cond && ex_const_int(c, cond, &one) && one) cond = 0;
  cond = split_checks(c, f->st, f->mark, true, cond, f->val);
  r.src = src;
  r.init = NULL;
  r.n_axis = f->ired.len;
  r.axis = f->ired.at;
  r.cond = cond ? cond : ex_int(c, DT_BOOL, 1);
  for (int i = 0; i < f->x->n_out; i++) {
    r.value_index = i;
    /* without axes left nothing is reduced: the source itself is the partial value */
    body[i] = r.n_axis ? ex_reduce(c, r)
              : cond   ? ex_select(c, cond, src[i], ir_reducer(c, r.reducer)->identity[i])
                       : src[i];
  }
  return te_compute(c, name_join(m, f->x->name, ".rf"), "", f->axes.len, f->axes.at, f->x->n_out, body, 0, NULL);
}

/* The final reduction of the partial results over the factored axis. */
static TeOp *repl_op(State *s, const Factor *f, const TeOp *rf) {
  IrCtx *c = s->ctx;
  Arena *m = ir_arena(c);
  int n = f->x->n_axis, n_out = f->x->n_out;
  IrReduce r = *ir_reduce(c, f->x->body[0]);
  TeAxis fa = f->axes.at[f->pos], *axis = arena_array(m, TeAxis, n);
  IrAxis v = {ir_var_new(c, name_join(m, fa.name, ".v"), ir_var_info(c, fa.var)->type, false), fa.min, fa.extent};
  ExprId *idx = arena_array(m, ExprId, n + 1), *src = arena_array(m, ExprId, n_out),
         *body = arena_array(m, ExprId, n_out);
  VarSub *renamed = arena_array(m, VarSub, n + 1);
  for (int i = 0, k = 0; i <= n; i++) {
    if (i == f->pos) idx[k++] = ex_var(c, v.var);
    if (i == n) break;
    axis[i] = f->x->axis[i];
    axis[i].name = arena_printf(m, "ax%d", i);
    axis[i].var = ir_var_new(c, axis[i].name, ir_var_info(c, f->x->axis[i].var)->type, false);
    idx[k++] = ex_var(c, axis[i].var);
    renamed[i] = (VarSub){f->x->axis[i].var, ex_var(c, axis[i].var)};
  }
  for (int i = 0; i < n_out; i++) src[i] = ex_read(c, rf->out[i], n + 1, idx);
  if (r.init) {
    ExprId *init = arena_array(m, ExprId, n_out);
    for (int i = 0; i < n_out; i++) init[i] = ex_subst(c, r.init[i], n, renamed);
    r.init = init;
  }
  r.src = src;
  r.axis = &v;
  r.n_axis = 1;
  r.cond = ex_int(c, DT_BOOL, 1);
  for (int i = 0; i < n_out; i++) {
    r.value_index = i;
    body[i] = ex_reduce(c, r);
  }
  return te_compute(c, name_join(m, f->x->name, ".repl"), "", n, axis, n_out, body, 0, NULL);
}

void dag_rfactor(State *s, int stage, int axis, int factor_iter) {
  Stage *st = &s->stage.at[stage];
  const TeOp *x = st->op;
  err_check(S_ERR(s), te_is_reduction(s->ctx, x), "rfactor: stage %d (%s) is not a reduction", stage, x->name);
  err_check(S_ERR(s), ir_reduce(s->ctx, x->body[0])->n_src == x->n_out,
            "rfactor: stage %d (%s) keeps %d of %d results of its reduction; return all of them", stage, x->name,
            (int)x->n_out, (int)ir_reduce(s->ctx, x->body[0])->n_src);
  int pos = factor_iter < 0 ? x->n_axis + 1 + factor_iter : factor_iter;
  err_check(S_ERR(s), pos >= 0 && pos <= x->n_axis, "rfactor: position %d of the factored axis is not in %d to %d",
            factor_iter, -x->n_axis - 1, x->n_axis);
  err_check(S_ERR(s), !attach_any(s, stage, -1),
            "rfactor: stage %d (%s) carries attached stages; call rfactor before attaching them", stage, x->name);
  check_renewable(s, stage);
  stage_early_extents(s->ctx, st);
  Factor f = {.x = x, .st = st, .axis = axis, .pos = pos, .mark = connected(s, st, axis)};
  for (int i = 0; i < st->n_root_data; i++)
    err_check(S_ERR(s), !f.mark[i], "rfactor: %s derives from the data axis %s", loop_name(s, &st->axes.at[axis]),
              loop_name(s, &st->axes.at[i]));
  err_check(S_ERR(s), axis >= st->n_root || !st->axes.at[axis].min || ex_is_int(s->ctx, st->axes.at[axis].min, 0),
            "rfactor: the domain of %s must start at 0", loop_name(s, &st->axes.at[axis]));
  for (int i = 0; i < x->n_axis; i++)
    err_check(S_ERR(s), !ex_uses_var(s->ctx, st->axes.at[axis].extent, x->axis[i].var),
              "rfactor: the extent of %s depends on the data axis %s", loop_name(s, &st->axes.at[axis]),
              x->axis[i].name);
  factor_axes(s, &f);
  TeOp *rf = factor_op(s, &f), *repl = repl_op(s, &f, rf);
  Swap w = {0};
  swap_outputs(ir_arena(s->ctx), &w, x, repl);
  stage_renew(s, stage, repl);
  stage_insert(s, stage, rf, SC_AUTO);
  swap_downstream(s, stage + 2, &w);
}
