/* Operations: placeholders and computes.
 *
 * An operation owns its output tensors; a tensor knows its operation through IrTensor.op. Both are immutable and live
 * as long as the context. A compute is described by its axes and bodies; everything else (reduce axes, input tensors,
 * output types and names) follows from the bodies and is derived here, once. Misuse is rejected here too, so that the
 * rooms above may rely on: axes have distinct names, a reduction is always the whole body, all bodies of one
 * operation share one reduction, shapes are integers and their product fits 64 bits.
 */
#include <string.h>

#include "te/te.h"

/* ---- small helpers ---- */

int64_t te_const(const IrCtx *c, ExprId e) {
  int64_t v = 0;
  IrCtx *w = (IrCtx *)(uintptr_t)c; /* printing builds text in the arena, nothing else */
  if (!e || !ex_const_int(c, e, &v))
    err_raise(ir_err(w), NS_ERR_VALUE, "extent %s is not a constant; use integer literals instead of te.var in shapes",
              e ? ex_text(w, e) : "(none)");
  return v;
}

const TeOp *te_op_of(const IrCtx *c, TensorId t) { return (const TeOp *)ir_tensor(c, t)->op; }

bool te_is_reduction(const IrCtx *c, const TeOp *op) {
  return op->kind == TE_COMPUTE && ir_kind(c, op->body[0]) == IR_REDUCE;
}

const TeAttr *te_attr(const TeOp *op, const char *key) {
  for (int i = 0; i < op->n_attr; i++)
    if (!strcmp(op->attr[i].key, key)) return &op->attr[i];
  return NULL;
}

bool te_listed(int n, const TensorId *list, TensorId t) {
  for (int i = 0; i < n; i++)
    if (list[i] == t) return true;
  return false;
}

static void check_shape(IrCtx *c, const char *name, int rank, const ExprId *shape) {
  Err *err = ir_err(c);
  int64_t total = 1;
  for (int i = 0; i < rank; i++) {
    err_check(err, shape[i] > 0, "%s: dimension %d of the shape is missing", name, i);
    DType t = ir_type(c, shape[i]);
    if ((t.code != DT_INT && t.code != DT_UINT) || t.lanes != 1)
      err_raise(err, NS_ERR_TYPE, "%s: dimension %d of the shape is %s; it must be an integer", name, i,
                ex_text(c, shape[i]));
    int64_t v = 0;
    if (!ex_const_int(c, shape[i], &v)) continue;
    err_check(err, v >= 0, "%s: dimension %d of the shape is %lld; it must not be negative", name, i, (long long)v);
    err_check(err, v == 0 || i64_mul(total, v, &total), "%s: the number of elements overflows 64 bits", name);
    if (v == 0) total = 0;
  }
}

static void check_element(IrCtx *c, const char *name, DType t) {
  if (t.code == DT_HANDLE || t.lanes != 1) {
    StrBuf s;
    sb_init(&s, ir_arena(c));
    dtype_print(&s, t);
    err_raise(ir_err(c), NS_ERR_TYPE, "%s: elements of type %s; they must be numbers or truth values%s", name,
              sb_str(&s), t.lanes != 1 ? " (vectors come from vectorize)" : "");
  }
}

static TeOp *new_op(IrCtx *c, TeKind kind, const char *name, const char *tag, int n_out) {
  Arena *a = ir_arena(c);
  TeOp *op = arena_new_of(a, TeOp);
  op->kind = kind;
  op->name = arena_strdup(a, name);
  op->tag = arena_strdup(a, tag ? tag : "");
  op->n_out = n_out;
  op->out = arena_array(a, TensorId, n_out);
  return op;
}

/* ---- placeholders ---- */

TeOp *te_placeholder(IrCtx *c, const char *name, DType t, int rank, const ExprId *shape) {
  check_shape(c, name, rank, shape);
  check_element(c, name, t);
  TeOp *op = new_op(c, TE_PLACEHOLDER, name, "", 1);
  op->out[0] = ir_tensor_new(c, (IrTensor){.name = name, .type = t, .rank = rank, .shape = shape, .op = op, .out = 0});
  return op;
}

void te_reshape_placeholder(IrCtx *c, TensorId t, int rank, const ExprId *shape) {
  const TeOp *op = ir_tensor(c, t)->op;
  err_check(ir_err(c), op->kind == TE_PLACEHOLDER, "%s is computed: only the shape of a placeholder can be changed",
            op->name);
  check_shape(c, op->name, rank, shape);
  ir_tensor_reshape(c, t, rank, shape);
}

TensorId te_stand_in(IrCtx *c, TensorId t, int rank) {
  IrTensor x = *ir_tensor(c, t);
  ExprId *shape = arena_array(ir_arena(c), ExprId, rank);
  for (int i = 0; i < rank; i++) shape[i] = ex_var(c, ir_var_new(c, "n", DT_I32, true));
  TensorId made = te_placeholder(c, x.name, x.type, rank, shape)->out[0];
  ir_tensor_stand_in(c, made, t);
  return made;
}

/* ---- computes ---- */

typedef struct {
  IrCtx *c;
  MapU64 seen;
  VEC(TensorId) in;
  ExprId root;
  const char *name;
} Scan;

/* Collects the tensors that are read, in the order of the first read, and rejects nested reductions. */
static void scan_node(IrCtx *c, ExprId e, void *arg) {
  Scan *s = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_READ) {
    if (mapu_get(&s->seen, (uint64_t)n->sym, 0)) return;
    mapu_set(&s->seen, (uint64_t)n->sym, 1);
    vec_push(ir_arena(c), &s->in, (TensorId)n->sym);
  } else if (n->kind == IR_REDUCE && e != s->root) {
    err_raise(ir_err(c), NS_ERR_VALUE,
              "compute '%s': a reduction must be the whole body; compute it in a stage of its own and read that stage",
              s->name);
  }
}

static void derive_inputs(IrCtx *c, TeOp *op) {
  Scan s = {.c = c, .name = op->name};
  mapu_init(&s.seen, ir_arena(c));
  for (int i = 0; i < op->n_out; i++) {
    s.root = op->body[i];
    ex_post_order(c, op->body[i], scan_node, &s);
  }
  op->n_in = s.in.len;
  op->in = s.in.at;
}

/* All bodies must be the outputs of one reduction; fills the reduce axes. */
static void derive_reduction(IrCtx *c, TeOp *op) {
  Err *err = ir_err(c);
  bool is_reduce = te_is_reduction(c, op);
  for (int i = 1; i < op->n_out; i++)
    err_check(err, (ir_kind(c, op->body[i]) == IR_REDUCE) == is_reduce,
              "compute '%s': either all bodies are reductions or none is", op->name);
  if (!is_reduce) return;
  IrReduce first = *ir_reduce(c, op->body[0]);
  for (int i = 1; i < op->n_out; i++) {
    const IrReduce *r = ir_reduce(c, op->body[i]);
    bool same = r->reducer == first.reducer && r->n_src == first.n_src && r->n_axis == first.n_axis &&
                r->cond == first.cond && !memcmp(r->src, first.src, sizeof(ExprId) * (size_t)first.n_src);
    for (int k = 0; same && k < first.n_axis; k++) same = r->axis[k].var == first.axis[k].var;
    err_check(err, same, "compute '%s': body %d belongs to another reduction than body 0", op->name, i);
  }
  op->n_red = first.n_axis;
  op->red = arena_array(ir_arena(c), TeAxis, first.n_axis);
  for (int k = 0; k < first.n_axis; k++) {
    IrAxis x = first.axis[k];
    int64_t n;
    for (int j = 0; j < k; j++)
      err_check(err, first.axis[j].var != x.var, "compute '%s' reduces over axis %s twice", op->name,
                ir_var_info(c, x.var)->name);
    err_check(err, !ex_const_int(c, x.extent, &n) || n >= 0,
              "compute '%s' reduces over axis %s of extent %lld; it must not be negative", op->name,
              ir_var_info(c, x.var)->name, (long long)n);
    op->red[k] = (TeAxis){arena_strdup(ir_arena(c), ir_var_info(c, x.var)->name), x.var, x.min, x.extent};
  }
}

static void copy_attrs(IrCtx *c, TeOp *op, int n, const TeAttr *attr) {
  Arena *a = ir_arena(c);
  op->n_attr = n;
  op->attr = arena_array(a, TeAttr, n);
  for (int i = 0; i < n; i++) {
    TeAttr x = attr[i];
    x.key = arena_strdup(a, x.key);
    if (x.s) x.s = arena_strdup(a, x.s);
    if (x.kind == TA_STRS) {
      x.strs = arena_array(a, const char *, x.n);
      for (int k = 0; k < x.n; k++) x.strs[k] = arena_strdup(a, attr[i].strs[k]);
    }
    if (x.kind == TA_TENSORS) x.tensors = arena_copy(a, x.tensors, sizeof(TensorId) * (size_t)x.n);
    op->attr[i] = x;
  }
}

TeOp *te_compute(IrCtx *c, const char *name, const char *tag, int n_axis, const TeAxis *axis, int n_body,
                 const ExprId *body, int n_attr, const TeAttr *attr) {
  Arena *a = ir_arena(c);
  err_check(ir_err(c), n_body > 0, "compute '%s' has no body", name);
  TeOp *op = new_op(c, TE_COMPUTE, name, tag, n_body);
  op->n_axis = n_axis;
  op->axis = arena_array(a, TeAxis, n_axis);
  ExprId *shape = arena_array(a, ExprId, n_axis);
  for (int i = 0; i < n_axis; i++) {
    op->axis[i] = axis[i];
    op->axis[i].name = arena_strdup(a, axis[i].name ? axis[i].name : ir_var_info(c, axis[i].var)->name);
    if (!axis[i].min) op->axis[i].min = ex_int(c, ir_type(c, axis[i].extent), 0);
    shape[i] = axis[i].extent;
  }
  check_shape(c, name, n_axis, shape);
  op->body = arena_copy(a, body, sizeof(ExprId) * (size_t)n_body);
  for (int i = 0; i < n_body; i++) {
    err_check(ir_err(c), body[i] > 0, "compute '%s': body %d is missing", name, i);
    check_element(c, name, ir_type(c, body[i]));
    err_check(
        ir_err(c), ex_size(c, body[i], NULL, NULL) < EX_SIZE_MAX,
        "compute '%s': written out, its expression has more than %d operations, because parts of it are shared; make "
        "those parts compute stages of their own",
        name, EX_SIZE_MAX);
  }
  derive_reduction(c, op);
  derive_inputs(c, op);
  copy_attrs(c, op, n_attr, attr);
  for (int i = 0; i < n_body; i++) {
    const char *tname = n_body == 1 ? op->name : arena_printf(a, "%s.v%d", op->name, i);
    op->out[i] = ir_tensor_new(
        c, (IrTensor){.name = tname, .type = ir_type(c, body[i]), .rank = n_axis, .shape = shape, .op = op, .out = i});
  }
  return op;
}

int64_t te_bytes(const IrCtx *c, TensorId t) {
  const IrTensor *x = ir_tensor(c, t);
  int64_t n = dtype_bytes(x->type);
  for (int i = 0; i < x->rank; i++) {
    int64_t e = 0;
    if (!ex_const_int(c, x->shape[i], &e) || !i64_mul(n, e, &n)) return -1;
  }
  return n;
}
