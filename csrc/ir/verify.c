/* The verifier: what must hold of a program after every pass. Operand types agree, conditions are bool, every variable
 * is bound by exactly one enclosing node (or free: a parameter), no variable is bound twice on a path, every buffer that
 * is not an argument is allocated around its accesses, and accesses have as many indices as the form says: one per
 * dimension before flattening, exactly one after it. */
#include "ir/ctx.h"

#include <string.h>

typedef struct {
  IrCtx *c;
  bool flat, features;
  uint8_t *bound; /* per variable: enclosing nodes that bind it */
  uint8_t *was;   /* per variable: bound somewhere in the program */
  uint8_t *alive; /* per buffer: inside its allocation */
  Walk *seen;     /* expressions already checked for types */
} Verify;

static NS_NORETURN void broken(Verify *v, ExprId e, const char *what) {
  StrBuf b;
  sb_init(&b, v->c->arena);
  if (e) ex_print(v->c, &b, e);
  if (b.len > 400) b.len = 400;
  err_raise(v->c->err, NS_ERR_INTERNAL, "broken program: %s%s%s", what, e ? ": " : "", sb_str(&b));
}

static bool same_type(const IrCtx *c, ExprId a, ExprId b) { return dtype_eq(ir_type(c, a), ir_type(c, b)); }

static void check_access(Verify *v, ExprId e, BufferId buf, int n, const ExprId *idx, DType value) {
  IrCtx *c = v->c;
  if (buf <= 0 || buf >= c->n.buffer) broken(v, e, "access to a buffer that does not exist");
  const IrBuffer *b = ir_buffer(c, buf);
  if (!b->external && !v->alive[buf])
    broken(v, e, arena_printf(c->arena, "buffer %s is used outside of its allocation", b->name));
  if (v->flat ? n != 1 : n != b->rank && !(n == 1 && b->rank == 0))
    broken(v, e, arena_printf(c->arena, "buffer %s has %d dimensions, accessed with %d indices", b->name, b->rank, n));
  int lanes = 1;
  for (int i = 0; i < n; i++) {
    DType t = ir_type(c, idx[i]);
    if (t.code != DT_INT && t.code != DT_UINT) broken(v, idx[i], "an index must be an integer");
    if (t.lanes > lanes) lanes = t.lanes;
  }
  if (v->flat && lanes != value.lanes) broken(v, e ? e : idx[0], "lanes of the value and of the index differ");
  DType t = b->type;
  if (t.code != value.code || t.bits != value.bits)
    broken(v, e ? e : idx[0], arena_printf(c->arena, "buffer %s is accessed with another type", b->name));
}

static void check_node(Verify *v, ExprId e) {
  IrCtx *c = v->c;
  const ExprNode *p = ir_node(c, e);
  const ExprId *k = ir_kids(c, e);
  ExprKind kind = (ExprKind)p->kind;
  if (ir_is_binary(kind) && !same_type(c, k[0], k[1])) broken(v, e, "operand types differ");
  if ((kind == IR_AND || kind == IR_OR || kind == IR_NOT) && !dtype_is_bool(ir_type(c, k[0])))
    broken(v, e, "logic on a value that is not bool");
  switch (kind) {
  case IR_SELECT:
    if (!dtype_is_bool(ir_type(c, k[0])) || !same_type(c, k[1], k[2])) broken(v, e, "select with wrong types");
    break;
  case IR_CALL:
    if (p->sym <= 0 || p->sym >= IN_COUNT) broken(v, e, "unknown intrinsic");
    if (p->sym == IN_IF_THEN_ELSE && (p->n != 3 || !dtype_is_bool(ir_type(c, k[0])) || !same_type(c, k[1], k[2])))
      broken(v, e, "if_then_else with wrong types");
    break;
  case IR_READ: broken(v, e, "read of a tensor in a lowered program");
  case IR_REDUCE: broken(v, e, "reduction in a lowered program");
  case IR_LOAD: check_access(v, e, p->sym, p->n, k, p->type); break;
  default: break;
  }
}

/* Types and accesses are checked once per place of allocation; variables on every visit of a statement. */
static void check_expr(Verify *v, ExprId e) {
  IrCtx *c = v->c;
  if (e <= 0 || e >= c->n.expr)
    err_raise(c->err, NS_ERR_INTERNAL, "broken program: an operand is missing or not of this context (id %d)", e);
  if (walk_seen(v->seen, e)) return;
  walk_set(v->seen, e, 0);
  const ExprNode p = *ir_node(c, e);
  if (p.kind == IR_VAR && v->was[p.sym] && !v->bound[p.sym])
    err_raise(c->err, NS_ERR_INTERNAL, "broken program: variable %s is used outside of the node that binds it",
              c->t.var[p.sym].name);
  if (p.kind == IR_LET) v->was[p.sym] = v->bound[p.sym] = 1;
  for (int i = 0; i < p.n; i++) check_expr(v, ir_kid(c, e, i));
  check_node(v, e);
}

static void fresh_scope(Verify *v) { /* what was checked under other bindings must be checked again */
  v->seen->now++;
  if (v->seen->now == 0) {
    memset(v->seen->stamp, 0, (size_t)v->seen->cap * sizeof *v->seen->stamp);
    v->seen->now = 1;
  }
}

static void bind(Verify *v, VarId var) {
  if (var <= 0 || var >= v->c->n.var)
    err_raise(v->c->err, NS_ERR_INTERNAL, "broken program: it binds variable number %d, which does not exist", var);
  if (v->bound[var])
    err_raise(v->c->err, NS_ERR_INTERNAL, "broken program: variable %s is bound twice on one path",
              v->c->t.var[var].name);
  v->bound[var] = v->was[var] = 1;
}

/* What is true of a node beyond its parts. */
static void check_shape(Verify *v, const Stmt *s) {
  IrCtx *c = v->c;
  Stmt **kid = st_kid(s, 0);
  if (kid && !*kid) broken(v, 0, "a statement without a body");
  if (s->kind == ST_SEQ)
    for (int i = 0; i < s->u.seq.n; i++)
      if (!s->u.seq.at[i] || s->u.seq.at[i]->kind == ST_SEQ)
        broken(v, 0, "a sequence holds nothing or another sequence");
  if (s->kind == ST_FOR && !same_type(c, s->u.loop.min, s->u.loop.extent))
    broken(v, s->u.loop.extent, "start and extent of a loop have different types");
  if (s->kind == ST_IF && !dtype_eq(ir_type(c, s->u.cond.cond), DT_BOOL))
    broken(v, s->u.cond.cond, "a condition that is not bool");
  if (s->kind == ST_STORE)
    check_access(v, 0, s->u.store.buf, s->u.store.n_idx, s->u.store.idx, ir_type(c, s->u.store.value));
}
static void allocate(Verify *v, BufferId b) {
  IrCtx *c = v->c;
  if (b <= 0 || b >= c->n.buffer) broken(v, 0, "an allocation of a buffer that does not exist");
  if ((ir_buffer(c, b)->external && !v->features) || v->alive[b])
    broken(v, 0, arena_printf(c->arena, "buffer %s is allocated twice", ir_buffer(c, b)->name));
  v->alive[b] = 1;
}
static bool enter_stmt(IrCtx *c NS_UNUSED, const Stmt *s, void *arg) {
  Verify *v = arg;
  ExprId *e;
  for (int i = 0; (e = st_expr(s, i)); i++) check_expr(v, *e);
  check_shape(v, s);
  const VarId *var = st_binder(s);
  if (var) bind(v, *var);
  if (s->kind == ST_ALLOC) allocate(v, s->u.alloc.buf);
  return true;
}
static bool leave_stmt(IrCtx *c NS_UNUSED, const Stmt *s, void *arg) {
  Verify *v = arg;
  const VarId *var = st_binder(s);
  if (var) v->bound[*var] = 0;
  if (s->kind == ST_ALLOC) v->alive[s->u.alloc.buf] = 0;
  if (var || s->kind == ST_ALLOC) fresh_scope(v);
  return true;
}

void ir_verify(IrCtx *c, const Stmt *s, bool flat, bool features) {
  Verify v = {.c = c, .flat = flat, .features = features};
  v.bound = arena_array(c->arena, uint8_t, c->n.var);
  v.was = arena_array(c->arena, uint8_t, c->n.var);
  v.alive = arena_array(c->arena, uint8_t, c->n.buffer);
  v.seen = walk_begin(c);
  st_visit(c, s, enter_stmt, leave_stmt, &v);
  walk_end(c);
}

void ir_set_verify(IrCtx *c, bool on) { c->verify = on; }
bool ir_verifies(const IrCtx *c) { return c->verify; }
