/* The compute DAG: which operations a list of tensors stands for, and in which order.
 *
 * The order fixes stage numbers, the text and thereby the hash, so it is defined to the letter: a topological order
 * with priorities decides the order of several outputs; from the outputs a depth-first walk over the input tensors
 * gives the stage order. A DAG is built in one context and can be copied into another one (a task keeps its DAG in a
 * context of its own, which all its candidates clone).
 */
#include <string.h>

#include "te/te_int.h"

typedef struct {
  TeOp *op;
  int priority, degree;
  bool read;
  VEC(int32_t) to;
} Node; /* to: readers, one per input tensor */
typedef struct {
  const IrCtx *c;
  Arena *a;
  MapU64 of;      /* TeOp pointer -> node */
  VEC(Node) node; /* in order of priority */
} Graph;

static TeOp *op_of(Arena *a, const IrCtx *c, TensorId t) {
  TeOp *op = ir_tensor(c, t)->op;
  err_check(arena_err(a), op != NULL, "tensor '%s' belongs to no operation", ir_tensor(c, t)->name);
  return op;
}

/* Numbers all reachable operations with a stack; an operation popped later has the higher priority. */
static Graph number_ops(Arena *a, const IrCtx *c, int n, const TensorId *tensors) {
  Graph made = {.c = c, .a = a}, *g = &made;
  mapu_init(&g->of, g->a);
  VEC(TeOp *) stack = {0};
  typedef struct {
    TeOp *from;
    int32_t to;
  } Edge;
  VEC(Edge) edges = {0};
  for (int i = 0; i < n; i++) vec_push(g->a, &stack, op_of(g->a, g->c, tensors[i]));
  while (stack.len) {
    TeOp *op = stack.at[--stack.len];
    if (mapu_get(&g->of, (uint64_t)(uintptr_t)op, -1) >= 0) continue;
    int me = g->node.len;
    mapu_set(&g->of, (uint64_t)(uintptr_t)op, me);
    vec_push(g->a, &g->node, ((Node){.op = op, .priority = me, .degree = op->n_in}));
    for (int i = 0; i < op->n_in; i++) {
      TeOp *from = op_of(g->a, g->c, op->in[i]);
      vec_push(g->a, &edges, ((Edge){from, me}));
      vec_push(g->a, &stack, from);
    }
  }
  for (int i = 0; i < edges.len; i++) {
    Node *from = &g->node.at[mapu_get(&g->of, (uint64_t)(uintptr_t)edges.at[i].from, -1)];
    from->read = true;
    vec_push(g->a, &from->to, edges.at[i].to);
  }
  return made;
}

/* Outputs in topological order, the largest priority first among the ready ones (a bitmap stands for the queue:
 * graphs are small). */
static TeOp **ordered_outputs(Graph *g, int *n_out) {
  int n = g->node.len, left = n;
  TeOp **out = arena_array(g->a, TeOp *, n);
  bool *taken = arena_array(g->a, bool, n);
  *n_out = 0;
  while (left > 0) {
    int best = n - 1;
    while (best >= 0 && (taken[best] || g->node.at[best].degree > 0)) best--;
    err_assert(arena_err(g->a), best >= 0); /* operations are immutable, so there are no cycles */
    Node *node = &g->node.at[best];
    taken[best] = true;
    left--;
    for (int i = 0; i < node->to.len; i++) g->node.at[node->to.at[i]].degree--;
    if (!node->read && node->op->kind == TE_COMPUTE) out[(*n_out)++] = node->op;
  }
  return out;
}

/* Depth-first post-order without recursion: networks given as one DAG can be deep. */
static void stage_order(Graph *g, TeDag *d, int n_out, TeOp **outs) {
  typedef struct {
    TeOp *op;
    int next;
  } Frame;
  VEC(Frame) stack = {0};
  MapU64 seen;
  mapu_init(&seen, g->a);
  d->op = arena_array(g->a, TeOp *, g->node.len);
  for (int i = 0; i < n_out; i++) {
    if (mapu_get(&seen, (uint64_t)(uintptr_t)outs[i], 0)) continue;
    mapu_set(&seen, (uint64_t)(uintptr_t)outs[i], 1);
    vec_push(g->a, &stack, ((Frame){outs[i], 0}));
    while (stack.len) {
      Frame *f = &stack.at[stack.len - 1];
      if (f->next == f->op->n_in) {
        d->op[d->n_ops++] = f->op;
        stack.len--;
        continue;
      }
      TeOp *in = op_of(g->a, g->c, f->op->in[f->next++]);
      if (mapu_get(&seen, (uint64_t)(uintptr_t)in, 0)) continue;
      mapu_set(&seen, (uint64_t)(uintptr_t)in, 1);
      vec_push(g->a, &stack, ((Frame){in, 0}));
    }
  }
}

static void check_names(Err *e, const TeOp *op) {
  int n = op->n_axis + op->n_red;
  for (int i = 0; i < n; i++) {
    const char *x = te_axis(op, i)->name;
    for (int j = 0; j < i; j++)
      err_check(e, strcmp(x, te_axis(op, j)->name) != 0,
                "operation '%s' has two iterators named '%s'; give the axes and reduce axes of one operation distinct "
                "names",
                op->name, x);
  }
}

TeDag *te_dag_ordered(Arena *a, const IrCtx *c, int n, const TensorId *tensors) {
  Err *e = arena_err(a);
  err_check(e, n > 0, "a compute DAG needs at least one tensor");
  TeDag *d = arena_new_of(a, TeDag);
  d->n_tensors = n;
  d->tensor = arena_copy(a, tensors, sizeof(TensorId) * (size_t)n);
  Graph g = number_ops(a, c, n, tensors);
  int n_out = 0;
  TeOp **outs = ordered_outputs(&g, &n_out);
  err_check(e, n_out > 0, "a compute DAG needs a computed tensor; the list holds placeholders only");
  stage_order(&g, d, n_out, outs);
  for (int i = 0; i < d->n_ops; i++) check_names(e, d->op[i]);
  return d;
}

TeDag *te_dag(IrCtx *c, int n, const TensorId *tensors) {
  TeDag *d = te_dag_ordered(ir_arena(c), c, n, tensors);
  te_analyse(c, d);
  return d;
}

TeDag *te_dag_of_outputs(IrCtx *c, int n, const TeOp *const *outputs) {
  Arena *a = ir_arena(c);
  TensorId *t = arena_array(a, TensorId, n);
  TeOp **outs = arena_array(a, TeOp *, n);
  for (int i = 0; i < n; i++) t[i] = outputs[i]->out[0], outs[i] = op_of(a, c, t[i]);
  Graph g = number_ops(a, c, n, t);
  TeDag order = {0};
  stage_order(&g, &order, n, outs);
  return te_dag_rewritten(c, order.n_ops, order.op);
}

TeDag *te_dag_rewritten(IrCtx *c, int n_ops, TeOp **ops) {
  Arena *a = ir_arena(c);
  TeDag *d = arena_new_of(a, TeDag);
  d->n_ops = n_ops;
  d->op = arena_copy(a, ops, sizeof(TeOp *) * (size_t)n_ops);
  te_analyse(c, d);
  VEC(TensorId) list = {0}; /* as for a DAG made from a schedule: placeholders and outputs, in stage order */
  for (int i = 0; i < n_ops; i++)
    if (d->op[i]->kind == TE_PLACEHOLDER || d->flags[i].is_output)
      for (int k = 0; k < d->op[i]->n_out; k++) vec_push(a, &list, d->op[i]->out[k]);
  d->n_tensors = list.len;
  d->tensor = list.at;
  return d;
}

int te_dag_find(const TeDag *d, const TeOp *op) {
  for (int i = 0; i < d->n_ops; i++)
    if (d->op[i] == op) return i;
  return -1;
}

int te_dag_op_of(const IrCtx *c, const TeDag *d, TensorId t) { return te_dag_find(d, te_op_of(c, t)); }

/* ---- copying a DAG into another context ---- */

typedef struct {
  IrCtx *dst;
  const IrCtx *src;
  MapU64 vars, tensors, memo;
} Import;

static ExprId import_expr(Import *m, ExprId e) {
  return e ? ex_import(m->dst, m->src, e, &m->vars, &m->tensors, &m->memo) : 0;
}

static TeAxis *import_axes(Import *m, int n, const TeAxis *src) {
  TeAxis *out = arena_array(ir_arena(m->dst), TeAxis, n);
  for (int i = 0; i < n; i++) {
    IrVar v = *ir_var_info(m->src, src[i].var);
    VarId var = mapu_get(&m->vars, (uint64_t)src[i].var, 0);
    if (!var) {
      var = ir_var_new(m->dst, v.name, v.type, v.nonneg);
      mapu_set(&m->vars, (uint64_t)src[i].var, var);
    }
    out[i] = (TeAxis){src[i].name, var, import_expr(m, src[i].min), import_expr(m, src[i].extent)};
  }
  return out;
}

static TeAttr *import_attrs(Import *m, const TeOp *op) {
  TeAttr *out = arena_array(ir_arena(m->dst), TeAttr, op->n_attr);
  for (int i = 0; i < op->n_attr; i++) {
    TeAttr x = op->attr[i];
    if (x.kind == TA_TENSORS) {
      x.tensors = arena_array(ir_arena(m->dst), TensorId, x.n);
      x.n = 0;
      for (int k = 0; k < op->attr[i].n; k++) {
        TensorId t = mapu_get(&m->tensors, (uint64_t)op->attr[i].tensors[k], 0);
        if (t) x.tensors[x.n++] = t; /* a tensor that is not part of the DAG means nothing here */
      }
    }
    out[i] = x;
  }
  return out;
}

static TeOp *import_op(Import *m, const TeOp *op) {
  Arena *a = ir_arena(m->dst);
  TeOp *made = NULL;
  err_check(ir_err(m->dst), !op->by_hand && !op->tensorized,
            "operation %s is made of statements (te.extern, te.scan, te.hybrid, a tensor intrinsic): only schedules "
            "written by hand have those",
            op->name);
  if (op->kind == TE_PLACEHOLDER) {
    IrTensor t = *ir_tensor(m->src, op->out[0]);
    ExprId *shape = arena_array(a, ExprId, t.rank);
    for (int i = 0; i < t.rank; i++) shape[i] = import_expr(m, t.shape[i]);
    made = te_placeholder(m->dst, op->name, t.type, t.rank, shape);
  } else {
    TeAxis *axis = import_axes(m, op->n_axis, op->axis);
    ExprId *body = arena_array(a, ExprId, op->n_out);
    for (int i = 0; i < op->n_out; i++) body[i] = import_expr(m, op->body[i]);
    TeAttr *attr = import_attrs(m, op);
    made = te_compute(m->dst, op->name, op->tag, op->n_axis, axis, op->n_out, body, op->n_attr, attr);
  }
  for (int i = 0; i < op->n_out; i++) mapu_set(&m->tensors, (uint64_t)op->out[i], made->out[i]);
  return made;
}

TeDag *te_dag_import(IrCtx *dst, const IrCtx *src, const TeDag *d) {
  Arena *a = ir_arena(dst);
  Import m = {.dst = dst, .src = src};
  ir_set_verify(dst, ir_verifies(src));
  mapu_init(&m.vars, a);
  mapu_init(&m.tensors, a);
  mapu_init(&m.memo, a);
  TeDag *n = arena_new_of(a, TeDag);
  n->n_ops = d->n_ops;
  n->op = arena_array(a, TeOp *, d->n_ops);
  for (int i = 0; i < d->n_ops; i++) n->op[i] = import_op(&m, d->op[i]);
  n->n_tensors = d->n_tensors;
  n->tensor = arena_array(a, TensorId, d->n_tensors);
  for (int i = 0; i < d->n_tensors; i++) {
    if (!mapu_get(&m.tensors, (uint64_t)d->tensor[i], 0))
      import_op(&m, te_op_of(src, d->tensor[i])); /* listed, unread */
    n->tensor[i] = mapu_get(&m.tensors, (uint64_t)d->tensor[i], 0);
  }
  if (d->flags) te_analyse(dst, n);
  return n;
}
