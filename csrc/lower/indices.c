/* indices: no index that comes from data is used unchecked.
 *
 *     A[B[i], j]                                  A[check_index(B[i], 33, site), j]
 *
 * An index that is made of what a tensor holds may be any number. Where its bounds do not prove that it lies in its axis (a clip or a
 * remainder does), it becomes IN_INDEX: itself if it is in range. Else it is 0, and the program's report receives the value (program.h). This is done to
 * the definition of each stage, before anything is inlined: A may be inlined, too, and its definition may make something legal of any
 * index, such as the zeros of a padding. Definitions, texts and features do not show it: only what is compiled and run has it.
 *
 * IN_INDEX is evaluated where its load is. A branch that is not taken, of if_then_else or of a select that reads memory, reports nothing.
 */
#include "lower/util.h"

#include <string.h>

typedef struct {
  IrCtx *c;
  Arith *ar;
  const TeOp *op;
  VEC(ManSite) site;
} Indices;

/* ---- what can be proved ---- */
/* Sums and products of data wrap, which bounds do not tell: are they all within their types? */
static bool wraps(IrCtx *c, ExprId e, void *arg) {
  const ExprNode n = *ir_node(c, e);
  if (!n.data || !dtype_is_int(n.type) || (n.kind != IR_ADD && n.kind != IR_SUB && n.kind != IR_MUL)) return false;
  Bound x = ar_bound(arg, ir_kid(c, e, 0)), y = ar_bound(arg, ir_kid(c, e, 1));
  int64_t end[4][2] = {{x.lo, y.lo}, {x.hi, y.hi}, {x.lo, y.hi}, {x.hi, y.lo}},
          most = n.type.bits >= 63 ? INT64_MAX : ((int64_t)1 << (n.type.bits - (n.type.code == DT_INT))) - 1,
          least = n.type.code == DT_INT ? -most - 1 : 0;
  for (int i = 0; i < 4; i++) {
    int64_t v, neg;
    bool fits = n.kind == IR_MUL   ? i64_mul(end[i][0], end[i][1], &v)
                : n.kind == IR_ADD ? i64_add(end[i][0], end[i][1], &v)
                                   : i64_mul(end[i][1], -1, &neg) && i64_add(end[i][0], neg, &v);
    if (!fits || v < least || v > most) return true;
  }
  return false;
}

static bool in_range(const Indices *x, ExprId e, ExprId extent) {
  int64_t n;
  if (!ir_node(x->c, e)->data) return true; /* bound inference and te_check_reads answer for it */
  if (!ex_const_int(x->c, extent, &n)) return false;
  Bound b = ar_bound(x->ar, e);
  return b.lo >= 0 && b.hi < n && !ex_any(x->c, e, wraps, x->ar);
}

/* select(v < 0, v + extent, v) */
static bool counts_from_end(IrCtx *c, ExprId e, ExprId extent) {
  int64_t n, k;
  if (ir_kind(c, e) != IR_SELECT || !ex_const_int(c, extent, &n)) return false;
  ExprId cond = ir_kid(c, e, 0), sum = ir_kid(c, e, 1), v = ir_kid(c, e, 2);
  return ir_kind(c, cond) == IR_LT && ir_kid(c, cond, 0) == v && ex_is_int(c, ir_kid(c, cond, 1), 0) &&
         ir_kind(c, sum) == IR_ADD && ir_kid(c, sum, 0) == v && ex_const_int(c, ir_kid(c, sum, 1), &k) && k == n;
}

/* ---- checks ---- */
/* In a type that holds every value, so that none is narrowed before it is checked. */
static ExprId whole(IrCtx *c, ExprId e) {
  DType t = ir_type(c, e);
  bool small = t.bits < 32 || (t.bits == 32 && t.code == DT_INT);
  if (t.code == DT_UINT && t.bits == 64) e = ex_bin(c, IR_MIN, e, ex_int(c, t, INT64_MAX));
  return ex_cast(c, small ? DT_I32 : DT_I64, e);
}

/* Stages that hold a tensor in other memory are named after it, and after that memory. */
static const char *tensor_name(IrCtx *c, TensorId t) {
  static const char *const MEMORY[] = {".shared", ".local", ".global"};
  char *name = arena_strdup(ir_arena(c), ir_tensor(c, t)->name);
  for (int i = 0; i < NS_COUNT(MEMORY); i++) {
    char *at = strstr(name, MEMORY[i]);
    if (at && at > name) *at = 0;
  }
  return name;
}

/* 0 stands for an index out of range, which an axis without elements does not have either. */
static void need_elements(const Indices *x, const ManSite *s) {
  int64_t n;
  for (int i = 0; i < x->op->n_axis; i++)
    if (ex_const_int(x->c, x->op->axis[i].extent, &n) && n < 1) return; /* nothing is computed */
  err_raise(ir_err(x->c), NS_ERR_VALUE, "compute '%s' looks up in axis %d of '%s', which has no elements", x->op->name,
            (int)s->axis, s->of ? s->of : "its data");
}

static ExprId check(Indices *x, ExprId e, ExprId extent, ManSite s) {
  IrCtx *c = x->c;
  s.stage = x->op->name;
  s.from_end = counts_from_end(c, e, extent);
  if (!ex_const_int(c, extent, &s.size))
    s.size = 0;
  else if (s.size < 1)
    need_elements(x, &s);
  ExprId v = whole(c, e);
  DType t = ir_type(c, v);
  ExprId kids[3] = {v, ex_cast(c, t, extent), ex_i32(c, x->site.len)};
  vec_push(ir_arena(c), &x->site, s);
  return ex_call(c, IN_INDEX, t, 3, kids);
}

/* The type of an index into tensor t: places in a large one need 64 bits. */
static DType index_type(IrCtx *c, TensorId t) {
  const IrTensor *info = ir_tensor(c, t);
  int64_t n = 1, k;
  for (int i = 0; i < info->rank; i++)
    if (!ex_const_int(c, info->shape[i], &k) || !i64_mul(n, k, &n)) return DT_I64;
  return n > INT32_MAX ? DT_I64 : DT_I32;
}

static ExprId check_node(IrCtx *c, ExprId e, void *arg) {
  Indices *x = arg;
  ExprNode n = *ir_node(c, e);
  if (n.kind == IR_CALL && n.sym == IN_INDEX && n.n == 2)
    return ex_cast(c, n.type, check(x, ir_kid(c, e, 0), ir_kid(c, e, 1), (ManSite){0}));
  if (n.kind != IR_READ || !n.data || n.n > LOW_MAX_RANK) return e;
  ExprId idx[LOW_MAX_RANK];
  bool changed = false;
  memcpy(idx, ir_kids(c, e), sizeof *idx * n.n);
  for (int i = 0; i < n.n; i++) {
    ExprId extent = ir_tensor(c, n.sym)->shape[i];
    if (in_range(x, idx[i], extent)) continue;
    changed = true;
    idx[i] =
        ex_cast(c, index_type(c, n.sym), check(x, idx[i], extent, (ManSite){.of = tensor_name(c, n.sym), .axis = i}));
  }
  return changed ? ex_read(c, n.sym, n.n, idx) : e;
}

ExprId **low_check_indices(State *s, Func *f) {
  Indices x = {.c = s->ctx, .ar = ar_new(s->ctx)};
  Arena *a = ir_arena(s->ctx);
  ExprId **own = arena_array(a, ExprId *, s->stage.len);
  for (int i = 0; i < s->stage.len; i++) {
    const TeOp *op = x.op = s->stage.at[i].op;
    for (int k = 0; op->kind == TE_COMPUTE && k < op->n_axis + op->n_red; k++)
      ar_bind_range(x.ar, te_axis(op, k)->var, te_axis(op, k)->min, te_axis(op, k)->extent);
    for (int k = 0; op->kind == TE_COMPUTE && k < op->n_out; k++) {
      ExprId now = ex_map(x.c, op->body[k], check_node, &x);
      if (now == op->body[k]) continue;
      if (!own[i]) own[i] = arena_copy(a, op->body, sizeof(ExprId) * (size_t)op->n_out);
      own[i][k] = now;
    }
  }
  f->n_site = x.site.len;
  f->site = x.site.at;
  return own;
}

/* ---- the report ---- */
static bool is_check(IrCtx *c, ExprId e, void *arg) {
  return (void)arg, ir_kind(c, e) == IR_CALL && ir_node(c, e)->sym == IN_INDEX;
}
static void find_check(IrCtx *c, ExprId e, void *arg) { *(bool *)arg |= is_check(c, e, NULL); }
static bool checks_self(IrCtx *c, const Stmt *s, void *arg) {
  st_visit_exprs(c, s, find_check, arg);
  return *(bool *)arg;
}

/* What was inlined may prove what the stage could not. */
static ExprId told(IrCtx *c, ExprId e, void *arg) {
  const BufferId *report = arg;
  if (!is_check(c, e, NULL) || ir_node(c, e)->n != 3) return e;
  ExprId zero = ex_i32(c, 0), kids[4] = {ir_kid(c, e, 0), ir_kid(c, e, 1), ir_kid(c, e, 2), 0};
  kids[3] = ex_load(c, *report, DT_I32, 1, &zero);
  return ex_call(c, IN_INDEX, ir_type(c, e), 4, kids);
}

BufferId low_report(Func *f) {
  bool any = false;
  st_any(f->ctx, f->body, checks_self, &any);
  if (!any) return 0;
  BufferId report = ir_array(f->ctx, "ns_report", DT_I32, SC_GLOBAL, REPORT_WORDS, true);
  f->body = st_alloc(f->ctx, report, st_map(f->ctx, f->body, NULL, told, &report));
  return report;
}
