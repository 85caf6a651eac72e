/* Walking and rewriting expressions. Every walk keeps a memo indexed by expression number, so a node that is shared many
 * times is visited once; the memo is a table of the context that stays allocated between walks and is told old from new
 * by a stamp. Walks may be started from inside a walk's callback. */
#include "ir/ctx.h"

#include <string.h>

/* Kids of a node while new nodes are being made: the kid table may move, so they are copied out. */
enum { FEW = 8 };
static const ExprId *hold_kids(IrCtx *c, ExprId e, ExprId few[FEW]) {
  int n = ir_node(c, e)->n;
  ExprId *p = n <= FEW ? few : arena_array(c->arena, ExprId, n);
  memcpy(p, ir_kids(c, e), sizeof *p * (size_t)n);
  return p;
}

/* ---- visiting ---- */
typedef struct {
  Walk *w;
  ExprVisit f;
  void *arg;
} Visit;

static void visit(IrCtx *c, ExprId e, const Visit *v) {
  if (walk_seen(v->w, e)) return;
  walk_set(v->w, e, 0);
  int n = ir_node(c, e)->n;
  for (int i = 0; i < n; i++) visit(c, ir_kid(c, e, i), v);
  v->f(c, e, v->arg);
}

void ex_post_order(IrCtx *c, ExprId e, ExprVisit f, void *arg) {
  Visit v = {walk_begin(c), f, arg};
  visit(c, e, &v);
  walk_end(c);
}

static bool uses(IrCtx *c, ExprId e, VarId var, Walk *w) {
  const ExprNode *p = ir_node(c, e);
  if (p->kind == IR_VAR) return p->sym == var;
  if (p->n == 0 || walk_seen(w, e)) return false;
  walk_set(w, e, 0);
  for (int i = 0; i < p->n; i++)
    if (uses(c, ir_kid(c, e, i), var, w)) return true;
  return false;
}

bool ex_uses_var(IrCtx *c, ExprId e, VarId v) {
  bool r = uses(c, e, v, walk_begin(c));
  walk_end(c);
  return r;
}

typedef struct {
  Walk *w;
  ExprTest test;
  void *arg;
} Any;
static bool any(IrCtx *c, ExprId e, const Any *a) {
  if (walk_seen(a->w, e)) return false;
  walk_set(a->w, e, 0);
  bool hit = a->test(c, e, a->arg);
  for (int i = 0; !hit && i < ir_node(c, e)->n; i++) hit = any(c, ir_kid(c, e, i), a);
  return hit;
}

bool ex_is_choice(const IrCtx *c, ExprId e) {
  const ExprNode *n = ir_node(c, e);
  return n->kind == IR_SELECT || (n->kind == IR_CALL && n->sym == IN_IF_THEN_ELSE);
}

bool ex_any(IrCtx *c, ExprId e, ExprTest test, void *arg) {
  Any a = {walk_begin(c), test, arg};
  bool hit = any(c, e, &a);
  walk_end(c);
  return hit;
}

typedef struct {
  Walk *w;
  ExprLeaf leaf;
  void *arg;
} Size;
static int32_t size(IrCtx *c, ExprId e, const Size *s) {
  if (walk_seen(s->w, e)) return s->w->val[e];
  int32_t n = s->leaf ? s->leaf(c, e, s->arg) : 0;
  if (n <= 0) {
    n = 1;
    for (int i = 0; i < ir_node(c, e)->n && n < EX_SIZE_MAX; i++) n += size(c, ir_kid(c, e, i), s);
  }
  if (n > EX_SIZE_MAX) n = EX_SIZE_MAX;
  walk_set(s->w, e, n);
  return n;
}

int32_t ex_size(IrCtx *c, ExprId e, ExprLeaf leaf, void *arg) {
  Size s = {walk_begin(c), leaf, arg};
  int32_t n = size(c, e, &s);
  walk_end(c);
  return n;
}

/* ---- mapping ---- */
typedef struct {
  Walk *w;
  ExprMap f;
  void *arg;
} Map;

static ExprId map(IrCtx *c, ExprId e, const Map *m) {
  if (walk_seen(m->w, e)) return m->w->val[e];
  int n = ir_node(c, e)->n;
  ExprId r = e;
  if (n > 0) {
    ExprId few[FEW], fresh[FEW];
    const ExprId *old = hold_kids(c, e, few);
    ExprId *kids = n <= FEW ? fresh : arena_array(c->arena, ExprId, n);
    bool same = true;
    for (int i = 0; i < n; i++) {
      kids[i] = map(c, old[i], m);
      same = same && kids[i] == old[i];
    }
    if (!same) r = ex_rebuild(c, e, kids);
  }
  r = m->f(c, r, m->arg);
  walk_set(m->w, e, r);
  return r;
}

ExprId ex_map(IrCtx *c, ExprId e, ExprMap f, void *arg) {
  Map m = {walk_begin(c), f, arg};
  ExprId r = map(c, e, &m);
  walk_end(c);
  return r;
}

/* ---- substitution ----
 * A let that is copied gets a variable of its own: copies come to lie inside each other (a stage that is inlined into
 * its own index), and the value of a copy may be data where that of the original is not. */
typedef struct {
  int n;
  const VarSub *at;
  bool keep_lets; /* only a let's own variable is replaced */
  Walk *w;
} Subst;

static ExprId subst_all(IrCtx *c, ExprId e, int n, const VarSub *sub, bool keep_lets);

ExprId ex_let_new(IrCtx *c, VarId v, ExprId value, ExprId body) {
  const IrVar old = *ir_var_info(c, v);
  VarId own = ir_var_new(c, old.name, old.type, old.nonneg);
  c->t.var[own].data = ir_node(c, value)->data;
  VarSub sub = {v, ex_var(c, own)};
  return ex_let(c, own, value, subst_all(c, body, 1, &sub, true));
}

static ExprId subst(IrCtx *c, ExprId e, const Subst *s) {
  const ExprNode *p = ir_node(c, e);
  if (p->kind == IR_VAR) {
    for (int i = 0; i < s->n; i++)
      if (s->at[i].var == p->sym) return s->at[i].value;
    return e;
  }
  int n = p->n;
  if (n == 0) return e;
  if (walk_seen(s->w, e)) return s->w->val[e];
  ExprId few[FEW], fresh[FEW], r = e;
  const ExprId *old = hold_kids(c, e, few);
  ExprId *kids = n <= FEW ? fresh : arena_array(c->arena, ExprId, n);
  bool same = true;
  for (int i = 0; i < n; i++) {
    kids[i] = subst(c, old[i], s);
    same = same && kids[i] == old[i];
  }
  if (!same && ir_kind(c, e) == IR_LET && !s->keep_lets)
    r = ex_let_new(c, ir_node(c, e)->sym, kids[0], kids[1]);
  else if (!same)
    r = ex_rebuild(c, e, kids);
  walk_set(s->w, e, r);
  return r;
}

static ExprId subst_all(IrCtx *c, ExprId e, int n, const VarSub *sub, bool keep_lets) {
  if (n == 0 || !e) return e;
  Subst s = {n, sub, keep_lets, walk_begin(c)};
  ExprId r = subst(c, e, &s);
  walk_end(c);
  return r;
}

ExprId ex_subst(IrCtx *c, ExprId e, int n, const VarSub *sub) { return subst_all(c, e, n, sub, false); }

/* ---- copying between contexts ---- */
typedef struct {
  IrCtx *dst;
  const IrCtx *src;
  MapU64 *vars, *tensors, *memo;
} Import;

static ExprId import(const Import *m, ExprId e);

static VarId import_var(const Import *m, VarId v) {
  VarId w = mapu_get(m->vars, (uint64_t)v, 0);
  if (w) return w;
  const IrVar *p = ir_var_info(m->src, v);
  w = ir_var_new(m->dst, p->name, p->type, p->nonneg);
  m->dst->t.var[w].data = p->data;
  mapu_set(m->vars, (uint64_t)v, w);
  return w;
}

static const ExprId *import_list(const Import *m, const ExprId *e, int n) {
  ExprId *out = arena_array(m->dst->arena, ExprId, n);
  for (int i = 0; i < n; i++) out[i] = import(m, e[i]);
  return out;
}

static TensorId import_tensor(const Import *m, TensorId t) {
  TensorId u = mapu_get(m->tensors, (uint64_t)t, 0);
  if (u) return u;
  IrTensor p = *ir_tensor(m->src, t);
  p.shape = import_list(m, p.shape, p.rank);
  p.for_ = 0;
  p.op = NULL; /* the owner is of the other context; whoever knows it puts the tensor into the map beforehand */
  u = ir_tensor_new(m->dst, p);
  mapu_set(m->tensors, (uint64_t)t, u);
  return u;
}

static ReducerId import_reducer(const Import *m, ReducerId r) {
  uint64_t key = (uint64_t)1 << 32 | (uint32_t)r; /* shares the memo of expressions */
  ReducerId u = mapu_get(m->memo, key, 0);
  if (u) return u;
  IrReducer p = *ir_reducer(m->src, r);
  VarId *lhs = arena_array(m->dst->arena, VarId, p.n), *rhs = arena_array(m->dst->arena, VarId, p.n);
  for (int i = 0; i < p.n; i++) {
    lhs[i] = import_var(m, p.lhs[i]);
    rhs[i] = import_var(m, p.rhs[i]);
  }
  p.lhs = lhs;
  p.rhs = rhs;
  p.result = import_list(m, p.result, p.n);
  p.identity = import_list(m, p.identity, p.n);
  if (p.code) p.code = import_list(m, p.code, p.n);
  u = ir_reducer_new(m->dst, p);
  mapu_set(m->memo, key, u);
  return u;
}

static ExprId import_reduce(const Import *m, ExprId e) {
  IrReduce r = *ir_reduce(m->src, e);
  IrAxis *axis = arena_array(m->dst->arena, IrAxis, r.n_axis);
  for (int i = 0; i < r.n_axis; i++) {
    axis[i].min = import(m, r.axis[i].min);
    axis[i].extent = import(m, r.axis[i].extent);
    axis[i].var = import_var(m, r.axis[i].var);
  }
  r.axis = axis;
  r.reducer = import_reducer(m, r.reducer);
  r.src = import_list(m, r.src, r.n_src);
  if (r.init) r.init = import_list(m, r.init, r.n_src);
  r.cond = import(m, r.cond);
  return ex_reduce(m->dst, r);
}

static ExprId import(const Import *m, ExprId e) {
  ExprId r = mapu_get(m->memo, (uint64_t)e, 0);
  if (r) return r;
  const ExprNode *p = ir_node(m->src, e);
  int32_t sym = p->sym;
  switch ((ExprKind)p->kind) {
  case IR_REDUCE: r = import_reduce(m, e); break;
  case IR_STR: r = ex_str(m->dst, m->src->str[p->u.i]); break;
  case IR_VAR: r = ex_var(m->dst, import_var(m, sym)); break;
  case IR_LOAD: err_raise(m->dst->err, NS_ERR_INTERNAL, "a buffer access cannot be copied to another context");
  default:
    if (p->kind == IR_LET) sym = import_var(m, sym);
    if (p->kind == IR_READ) sym = import_tensor(m, sym);
    r = ctx_node(m->dst, (ExprKind)p->kind, p->type, sym, p->n, p->n ? import_list(m, ir_kids(m->src, e), p->n) : NULL,
                 p->u.i);
  }
  mapu_set(m->memo, (uint64_t)e, r);
  return r;
}

ExprId ex_import(IrCtx *dst, const IrCtx *src, ExprId e, MapU64 *vars, MapU64 *tensors, MapU64 *memo) {
  Import m = {dst, src, vars, tensors, memo};
  return e ? import(&m, e) : 0;
}
