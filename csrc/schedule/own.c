/* Steps beyond TVM's fourteen: what te and the search can ask for and a record of TVM has no word for. Records carry them
 * beside the plain list (record.c).
 *
 * They name loops by their number among the axes of the stage, which survives splits and reorders of others. Thread axes
 * that loops share, and free variables, are numbered in the order in which steps bring them (State.var). An expression is
 * its text (ir, ex_parse) with variables $0, $1, ..., and the list says where each is found: an axis of a stage, or (-1,
 * number of a variable).
 */
#include "schedule/internal.h"
#include "base/limits.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Axis *loop_at(State *s, const Step *p) { return leaf_at(s, p->stage, leaf_of(s, p->stage, p->iter)); }

/* ---- expressions ---- */

VarId axis_handle(State *s, int stage, int axis) {
  Stage *st = stage_at(s, stage, true);
  err_check(S_ERR(s), axis >= 0 && axis < st->axes.len, "stage %d (%s) has no axis %d", stage, st->op->name, axis);
  Axis *x = &st->axes.at[axis];
  if (!x->handle) {
    const bool *wide = stage_wide_axes(s->ctx, st);
    x->handle = ir_var_new(s->ctx, x->sname, wide && wide[axis] ? DT_I64 : DT_I32, false);
  }
  return x->handle;
}

static bool find_axis(const State *s, int stage, VarId v, int64_t place[2]) {
  const Stage *st = &s->stage.at[stage];
  place[0] = stage;
  for (int k = 0; k < st->axes.len; k++) {
    place[1] = k;
    if (st->axes.at[k].handle == v || (k < st->n_root && te_axis(st->op, k)->var == v)) return true;
  }
  return false;
}

static void find_place(State *s, int stage, VarId v, int64_t place[2]) {
  for (int k = 0; k < s->var.len; k++) {
    place[0] = -1;
    place[1] = k;
    if (s->var.at[k].called == v) return;
  }
  if (find_axis(s, stage, v, place)) return;
  for (int i = 0; i < s->stage.len; i++)
    if (find_axis(s, i, v, place)) return;
  const IrVar x = *ir_var_info(s->ctx, v);
  s->given = v;
  state_apply(s, (Step){.kind = STEP_VA, .b = x.type.bits, .flag = x.nonneg, .text = x.name});
  place[0] = -1;
  place[1] = s->var.len - 1;
}

typedef struct {
  State *s;
  const Step *p;
  VEC(VarId) from; /* while an expression is stored: its variables */
} Names;

static void note_var(IrCtx *c, ExprId e, void *arg) {
  Names *x = arg;
  if (ir_kind(c, e) != IR_VAR) return;
  for (int i = 0; i < x->from.len; i++)
    if (x->from.at[i] == ir_node(c, e)->sym) return;
  vec_push(ir_arena(c), &x->from, ir_node(c, e)->sym);
}

static ExprId var_named(void *arg, const char *name) {
  const Names *x = arg;
  State *s = x->s;
  char *end;
  long k = name[0] == '$' ? strtol(name + 1, &end, 10) : -1;
  if (k < 0 || *end || k >= x->p->n / 2) return 0;
  int64_t stage = x->p->list[2 * k], axis = x->p->list[2 * k + 1];
  if (stage < 0) return ex_var(s->ctx, s->var.at[axis].var);
  VarId v = axis_handle(s, (int)stage, (int)axis);
  const Stage *st = &s->stage.at[stage];
  return ex_var(s->ctx, axis < st->n_root ? te_axis(st->op, (int)axis)->var : v);
}

static TensorId tensor_named(void *arg, const char *name) {
  const Names *x = arg;
  for (int i = 0; i < x->s->stage.len; i++) {
    const TeOp *op = x->s->stage.at[i].op;
    for (int k = 0; k < op->n_out; k++)
      if (!strcmp(ir_tensor(x->s->ctx, op->out[k])->name, name)) return op->out[k];
  }
  return 0;
}

static ExprId expr_restore(State *s, const Step *p) {
  Names x = {.s = s, .p = p};
  err_check(S_ERR(s), p->n % 2 == 0, "the places of variables are pairs, not %d numbers", p->n);
  for (int i = 0; i < p->n; i += 2) {
    int64_t stage = p->list[i], k = p->list[i + 1];
    bool known = stage == -1 || (stage >= 0 && stage < s->stage.len);
    int end = !known ? 0 : stage < 0 ? s->var.len : s->stage.at[stage].axes.len;
    err_check(S_ERR(s), k >= 0 && k < end, "$%d is at (%lld, %lld), where no variable is", i / 2, (long long)stage,
              (long long)k);
  }
  return ex_parse(s->ctx, p->text, &(ExprNames){var_named, tensor_named, &x});
}

char *expr_store(State *s, int stage, ExprId e, int32_t *n, int64_t **places) {
  IrCtx *c = s->ctx;
  Arena *m = ir_arena(c);
  Names x = {.s = s};
  ex_post_order(c, e, note_var, &x);
  VarSub *sub = arena_array(m, VarSub, x.from.len + 1);
  *n = 2 * x.from.len;
  *places = arena_array(m, int64_t, *n + 1);
  for (int i = 0; i < x.from.len; i++) {
    find_place(s, stage, x.from.at[i], *places + 2 * i);
    VarId v = ir_var_new(c, arena_printf(m, "$%d", i), ir_var_info(c, x.from.at[i])->type, false);
    sub[i] = (VarSub){x.from.at[i], ex_var(c, v)};
  }
  char *text = ex_text(c, ex_subst(c, e, x.from.len, sub));
  Step p = {.stage = stage, .n = *n, .list = *places, .text = text};
  VEC(VarSub) own = {0}; /* what users call a thread axis is not its variable */
  for (int k = 0; k < s->var.len; k++)
    if (s->var.at[k].called) vec_push(m, &own, ((VarSub){s->var.at[k].called, ex_var(c, s->var.at[k].var)}));
  err_check(S_ERR(s), expr_restore(s, &p) == ex_subst(c, e, own.len, own.at),
            "the expression %s cannot be kept as a step of a schedule", text);
  return text;
}

/* ---- variables of the state ---- */

static VarId take_given(State *s) {
  VarId v = s->given;
  s->given = 0;
  return v;
}

void bind_thread(State *s, Axis *x, Annotation kind, VarId thread) {
  if (!thread) {
    thread = ir_var_new(s->ctx, AN_WORD[kind], DT_I32, false);
    vec_push(ir_arena(s->ctx), &s->var, ((StateVar){thread, take_given(s), (uint8_t)kind, false}));
  }
  x->ann = (uint8_t)kind;
  x->var = x->thread_obj = thread;
}

typedef struct {
  const Step *p;
  VarId found;
} Free;
static void find_free(IrCtx *c, ExprId e, void *arg) {
  Free *x = arg;
  if (ir_kind(c, e) != IR_VAR) return;
  const IrVar *v = ir_var_info(c, ir_node(c, e)->sym);
  if (!strcmp(v->name, x->p->text) && v->type.bits == x->p->b) x->found = ir_node(c, e)->sym;
}

void do_va(State *s, const Step *p) {
  IrCtx *c = s->ctx;
  err_check(S_ERR(s), p->a == 0 || (p->a >= AN_VTHREAD && p->a <= AN_THREAD_Z), "code %d is no kind of thread axis",
            p->a);
  err_check(S_ERR(s), p->b == 32 || p->b == 64, "a variable has 32 or 64 bits, not %d", p->b);
  VarId given = take_given(s);
  Free x = {.p = p, .found = p->a ? 0 : given};
  for (int i = 0; i < s->dag0->n_ops && !x.found && !p->a; i++) /* one of a symbolic shape */
    for (int k = 0; k < s->dag0->op[i]->n_out; k++) {
      const IrTensor t = *ir_tensor(c, s->dag0->op[i]->out[k]);
      for (int q = 0; q < t.rank; q++) ex_post_order(c, t.shape[q], find_free, &x);
    }
  bool size = x.found && x.found != given;
  if (!x.found) x.found = ir_var_new(c, p->text, p->b == 64 ? DT_I64 : DT_I32, p->flag);
  vec_push(ir_arena(c), &s->var, ((StateVar){x.found, p->a ? given : x.found, (uint8_t)p->a, size}));
}

void do_bi(State *s, const Step *p) {
  Axis *x = loop_at(s, p);
  err_check(S_ERR(s), p->b >= AN_VTHREAD && p->b <= AN_THREAD_Z, "code %d is no kind of thread axis", p->b);
  err_check(S_ERR(s), p->a >= 0 && p->a < s->var.len, "bind of %s: variable %d is not one of the %d so far",
            loop_name(s, x), p->a, s->var.len);
  StateVar *v = &s->var.at[p->a];
  if (!v->kind) v->kind = (uint8_t)p->b; /* a condition on it came before */
  err_check(S_ERR(s), v->kind == p->b && !v->size, "bind of %s to %s: variable %d is %s", loop_name(s, x),
            AN_WORD[p->b], p->a, v->size ? "a size" : AN_WORD[v->kind]);
  bind_thread(s, x, (Annotation)p->b, v->var);
}

/* ---- loops ---- */

/* A record comes from strangers: how its loops are cut is a number, or follows from the sizes of the computation. */
static void check_length(State *s, const Step *p, ExprId by) {
  int64_t v = 0;
  bool sizes = p->n > 0;
  for (int i = 0; i < p->n; i += 2) sizes &= p->list[i] == -1 && s->var.at[p->list[i + 1]].size;
  err_check(S_ERR(s), s->by_hand || sizes || ex_const_int(s->ctx, by, &v),
            "a split by %s, which is neither a number nor made of sizes of the computation", p->text);
  if (!s->by_hand) limit_check(S_ERR(s), LIMIT_SPLIT, v);
}

void do_spx(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, true);
  int pos = leaf_of(s, p->stage, p->iter);
  if (!s->by_hand) limit_check(S_ERR(s), LIMIT_ITERATORS, st->leaf.len + 1);
  ExprId by = expr_restore(s, p);
  DType t = ir_type(s->ctx, by);
  int64_t v;
  err_check(S_ERR(s), (t.code == DT_INT || t.code == DT_UINT) && t.lanes == 1 && t.bits > 1,
            "a split by %s, which is no integer", p->text);
  err_check(S_ERR(s), !ex_const_int(s->ctx, by, &v) || v > 0, "a split by %s, which is not positive", p->text);
  check_length(s, p, by);
  Axis parent = st->axes.at[p->iter];
  stage_split2(s->ctx, st, pos, p->flag ? by : 0, p->flag ? 0 : by);
  for (int k = 0; k < 2; k++)
    st->axes.at[st->leaf.at[pos + k]].name = arena_printf(ir_arena(s->ctx), "%s.%d", parent.name, k);
  attach_replace(s, p->stage, pos, 1, 2);
}

/* A stage attached at the outer of two fused loops loses its place; bound inference says so unless it is moved. */
static void detach_outer(State *s, Stage *st, int leaf) {
  int w = 0;
  for (int i = 0; i < st->attached.len; i++) {
    int32_t e = st->attached.at[i];
    if (attach_leaf(e) == leaf)
      s->stage.at[attach_stage(e)].at_iter = -1;
    else
      st->attached.at[w++] = e;
  }
  st->attached.len = w;
}

void do_fux(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, true);
  if (p->n == 0) { /* all loops move one further in */
    if (!s->by_hand) limit_check(S_ERR(s), LIMIT_ITERATORS, st->leaf.len + 1);
    attach_replace(s, p->stage, 0, 0, 1);
    stage_singleton(s->ctx, st);
    return;
  }
  err_check(S_ERR(s), p->n == 2, "FUX fuses two loops or none, not %d", p->n);
  int pos = leaf_of(s, p->stage, (int)p->list[0]);
  err_check(S_ERR(s), leaf_of(s, p->stage, (int)p->list[1]) == pos + 1, "the loops to fuse are not adjacent");
  detach_outer(s, st, pos);
  stage_fuse2(s->ctx, st, pos);
  const Axis *a = &st->axes.at[p->list[0]], *b = &st->axes.at[p->list[1]];
  st->axes.at[st->leaf.at[pos]].name = arena_printf(ir_arena(s->ctx), "%s@%s@", a->name, b->name);
  attach_replace(s, p->stage, pos, 2, 1);
}

int64_t *loops_in_place(State *s, int stage, int n, const int64_t *axes) {
  int len = stage_at(s, stage, true)->leaf.len;
  int64_t *order = arena_array(ir_arena(s->ctx), int64_t, len);
  char *used = arena_alloc(ir_arena(s->ctx), (size_t)len);
  for (int i = 0; i < n; i++) {
    int leaf = leaf_of(s, stage, (int)axes[i]);
    err_check(S_ERR(s), !used[leaf], "reorder: axis %s is listed twice", loop_name(s, leaf_at(s, stage, leaf)));
    used[leaf] = 1;
  }
  for (int k = 0, next = 0; k < len; k++) order[k] = used[k] ? leaf_of(s, stage, (int)axes[next++]) : k;
  return order;
}

/* What is attached follows its loop. */
void do_rex(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, true);
  int len = st->leaf.len;
  int64_t *order = loops_in_place(s, p->stage, p->n, p->list), *inverse = arena_array(ir_arena(s->ctx), int64_t, len);
  for (int k = 0; k < len; k++) inverse[order[k]] = k;
  stage_permute(s->ctx, st, order);
  attach_permute(s, p->stage, inverse);
}

void do_anx(State *s, const Step *p) {
  Axis *x = loop_at(s, p);
  err_check(S_ERR(s), p->a >= AN_NONE && p->a <= AN_PARALLEL, "annotation code %d is not one of 0 to %d", p->a,
            AN_PARALLEL);
  err_check(S_ERR(s), p->a != AN_VECTORIZE || x->kind == IT_SPACE || x->kind == IT_SPECIAL,
            "axis %s %s: it cannot be vectorized", loop_name(s, x),
            x->kind == IT_MIXED ? "is fused from data and reduction axes" : "is a reduction");
  err_check(S_ERR(s), !x->thread_obj, "axis %s is bound to %s already", loop_name(s, x), AN_WORD[x->ann]);
  x->ann = (uint8_t)p->a;
}

void do_prx(State *s, const Step *p) {
  static const char *const KEY[] = {"auto_unroll_max_step", "unroll_explicit", "debug_skip_region"};
  Axis *x = loop_at(s, p);
  const char *dollar = strchr(p->text, '$');
  long long value = dollar ? strtoll(dollar + 1, NULL, 10) : 1;
  size_t n = dollar ? (size_t)(dollar - p->text) : strlen(p->text);
  int k = 0;
  while (k < NS_COUNT(KEY) && (strlen(KEY[k]) != n || memcmp(KEY[k], p->text, n) != 0)) k++;
  if (k == 0) {
    if (!s->by_hand) limit_check(S_ERR(s), LIMIT_UNROLL_STEP, value);
    x->pragma_unroll = (int32_t)(value < INT32_MIN ? INT32_MIN : value > INT32_MAX ? INT32_MAX : value);
    x->has_pragma_unroll = true;
  } else if (k == 1) {
    x->explicit_unroll = value != 0;
  } else if (k == 2) {
    x->skip_region = true;
  } /* other keys mean nothing to this compiler */
}

void do_sax(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, true);
  err_check(S_ERR(s), p->a >= 1, "storage_align: the factor is %d; it must be positive", p->a);
  err_check(S_ERR(s), p->iter >= 0 && p->iter < st->axes.len, "stage %d (%s) has no axis %d", p->stage, st->op->name,
            p->iter);
  if (p->iter >= st->n_root_data) return; /* only dimensions of the tensor have strides */
  st->axes.at[p->iter].align_factor = p->a;
  st->axes.at[p->iter].align_offset = p->b;
}

/* ---- memory ---- */

void do_sc(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, true);
  st->scope = p->text[0] ? scope_parse(S_ERR(s), p->text) : SC_AUTO;
  st->scope_asked = p->text[0] != 0;
}

void do_db(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, false);
  err_check(S_ERR(s), !st->is_output, "an output stage cannot be double buffered");
  st->double_buffer = true;
}

void do_pd(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, false);
  ExprId e = expr_restore(s, p);
  err_check(S_ERR(s), dtype_eq(ir_type(s->ctx, e), DT_BOOL), "the store predicate %s is no condition", p->text);
  st->store_predicate = e;
}

/* ---- tensor intrinsics ---- */

/* The number is that of a tensor of the session: such a step means nothing elsewhere. */
void do_tz(State *s, const Step *p) {
  Axis *x = loop_at(s, p);
  const TeOp *op = p->a > 0 && ir_has_tensor(s->ctx, p->a) ? te_op_of(s->ctx, p->a) : NULL;
  err_check(S_ERR(s), op && op->intrin, "tensorize of %s: no tensor intrinsic has the number %d", loop_name(s, x),
            p->a);
  err_check(S_ERR(s), x->ann == AN_NONE, "tensorize: axis %s is %s already", loop_name(s, x), AN_WORD[x->ann]);
  if (s->stage.at[p->stage].op->tensorized) return; /* it is computed by an intrinsic already */
  x->ann = AN_TENSORIZE;
  x->intrin = p->a;
}
