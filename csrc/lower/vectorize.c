/* vectorize: on GPUs a vector loop becomes vector loads and stores (spec 07 §7.2.9, §7.5.4).
 *
 * A statement under `vectorized v in [0,n)` is widened when each access is either independent of v or affine in v, when
 * every contiguous access is provably aligned to n elements, and when no condition changes inside the vector. Then v
 * becomes ramp(0,1,n) in indices, and values are computed lane-wise. Any other statement keeps its scalar form in an
 * unrolled loop. On CPUs a vector loop is left as it is until pass_registers, which uses the two functions at the end of the
 * first part.
 * Afterwards (GPU) there are no vector loops, and every stride-1 ramp index is aligned.
 */
#include "lower/util.h"

static ExprId at_value(LowWiden *k, ExprId e, int64_t value) {
  VarSub one = {k->lane, ex_int(k->c, ir_var_info(k->c, k->lane)->type, value)};
  return ar_simplify(k->ar, ex_subst(k->c, e, 1, &one));
}
/* e = *base + v * *stride with a literal stride, over the whole vector */
static bool affine(LowWiden *k, ExprId e, ExprId *base, int64_t *stride) {
  IrCtx *c = k->c;
  VarSub next = {k->lane, ex_add(c, ex_var(c, k->lane), ex_int(c, ir_var_info(c, k->lane)->type, 1))};
  ExprId d = ar_simplify(k->ar, ex_sub(c, ex_subst(c, e, 1, &next), e));
  *base = at_value(k, e, 0);
  if (ex_const_int(c, d, stride)) return true;
  ExprId first = at_value(k, e, 1),
         zero = *base; /* the step may be constant only inside the vector: compare lane by lane */
  if (!ex_const_int(c, ar_simplify(k->ar, ex_sub(c, first, zero)), stride)) return false;
  for (int i = 2; i < k->lanes; i++) {
    int64_t s;
    if (!ex_const_int(c, ar_simplify(k->ar, ex_sub(c, at_value(k, e, i), zero)), &s) || s != *stride * i) return false;
  }
  return true;
}
/* Is `d < 0` the same for all lanes? With d = base + s*v, s > 0: iff base mod (s*n) < s. */
static bool same_sign(LowWiden *k, ExprId d) {
  ExprId base;
  int64_t s;
  if (!affine(k, d, &base, &s)) return false;
  if (s == 0) return true;
  if (s < 0) {
    base = at_value(k, d, k->lanes - 1);
    s = -s;
  }
  Residue r = ar_residue(k->ar, base);
  int64_t m = s * k->lanes;
  return r.coeff % m == 0 && i64_floormod(r.base, m) < s;
}
static bool uniform(LowWiden *k, ExprId cond) {
  IrCtx *c = k->c;
  if (!ex_uses_var(c, cond, k->lane)) return true;
  ExprKind kind = ir_kind(c, cond);
  ExprId a = ir_node(c, cond)->n > 0 ? ir_kid(c, cond, 0) : 0, b = ir_node(c, cond)->n > 1 ? ir_kid(c, cond, 1) : 0;
  switch (kind) {
  case IR_AND:
  case IR_OR: return uniform(k, a) && uniform(k, b);
  case IR_NOT: return uniform(k, a);
  case IR_LT:
  case IR_GE:
  case IR_GT:
  case IR_LE: break;
  default: return false;
  }
  if (ir_type(c, a).code != DT_INT || low_expr_loads(c, cond)) return false;
  ExprId d = kind == IR_LT || kind == IR_GE ? ex_sub(c, a, b) : ex_sub(c, b, a); /* GT: b-a < 0; LE: not (b-a < 0) */
  return same_sign(k, d);
}

static ExprId wide(LowWiden *k, ExprId e) {
  return ir_type(k->c, e).lanes == k->lanes ? e : ex_bcast(k->c, e, k->lanes);
}

ExprId low_widen_index(LowWiden *k, ExprId e, int elem_bytes) {
  ExprId base;
  int64_t s;
  if (!ex_uses_var(k->c, e, k->lane)) return e;
  if (!affine(k, e, &base, &s)) {
    k->fail = true;
    return e;
  }
  if (s == 0) return base;
  if (k->any_address)
    k->gathers |= s != 1;
  else if (s == 1) {
    Residue r = ar_residue(k->ar, base);
    if (r.coeff % k->lanes != 0 || i64_floormod(r.base, k->lanes) != 0 || elem_bytes * k->lanes > 16) k->fail = true;
  }
  return ex_ramp(k->c, base, ex_int(k->c, ir_type(k->c, base), s), k->lanes);
}

/* ---- choices of each lane (CPU) ----
 * Of a choice by the place of a lane, such as "the elements up to a position", and of one by several data compilers make branches for
 * each lane, and no vectors. So the lanes compute both sides and a mask chooses. */
static ExprId vec_expr(LowWiden *k, ExprId e);

static bool branches(IrCtx *c, ExprId e, void *arg) {
  const LowWiden *k = arg;
  ExprKind kind = ir_kind(c, e);
  if (kind == IR_AND || kind == IR_OR) return low_expr_loads(c, ir_kid(c, e, 1));
  return ir_is_compare(kind) && ex_uses_var(c, e, k->lane) && !low_expr_loads(c, e);
}
static bool is_masked(IrCtx *c, ExprId e, void *arg) {
  const LowWiden *k = arg;
  return ex_is_choice(c, e) && ex_uses_var(c, ir_kid(c, e, 0), k->lane) && ex_any(c, ir_kid(c, e, 0), branches, arg);
}

/* May e be computed where it is not chosen? Reads must lie in their buffers, checks and divisions by zero would tell. Of a choice that is
 * the same for all lanes one side is computed. */
static bool is_safe(LowWiden *k, ExprId e) {
  IrCtx *c = k->c;
  const ExprNode n = *ir_node(c, e);
  int64_t size;
  bool choice = ex_is_choice(c, e);
  if (n.kind == IR_LOAD) {
    ExprId at = ir_kid(c, e, 0);
    Bound b = ar_bound(k->ar, at);
    if (b.lo < 0 || !ex_const_int(c, ir_buffer(c, n.sym)->size, &size)) return false;
    if (b.hi >= size && !ar_prove(k->ar, ex_bin(c, IR_LT, at, ex_int(c, ir_type(c, at), size)))) return false;
  }
  if (n.kind == IR_CALL && !choice && intrin_info((Intrin)n.sym)->effect != EFF_PURE) return false;
  if (ir_is_division(n.kind) && n.type.code != DT_FLOAT && ar_bound(k->ar, ir_kid(c, e, 1)).lo < 1) return false;
  int kids = choice && uniform(k, ir_kid(c, e, 0)) ? 1 : n.n;
  for (int i = 0; i < kids; i++)
    if (!is_safe(k, ir_kid(c, e, i))) return false;
  return true;
}

/* A number that lanes compare: places are ramps. */
static ExprId vec_operand(LowWiden *k, ExprId e) {
  IrCtx *c = k->c;
  ExprId base;
  int64_t s;
  if (ir_type(c, e).code != DT_INT || low_expr_loads(c, e) || !ex_uses_var(c, e, k->lane))
    return wide(k, vec_expr(k, e));
  if (!affine(k, e, &base, &s)) {
    k->fail = true;
    return e;
  }
  return ex_ramp(c, base, ex_int(c, ir_type(c, base), s), k->lanes);
}

static ExprId vec_test(LowWiden *k, ExprId e) {
  IrCtx *c = k->c;
  const ExprNode n = *ir_node(c, e);
  if (n.kind == IR_NOT) return ex_not(c, vec_test(k, ir_kid(c, e, 0)));
  bool logic = n.kind == IR_AND || n.kind == IR_OR;
  if (!logic && !(ir_is_compare(n.kind) && dtype_on_vectors(ir_type(c, ir_kid(c, e, 0))))) {
    k->fail |= ex_uses_var(c, e, k->lane);
    return k->fail ? e : wide(k, e);
  }
  ExprId (*part)(LowWiden *, ExprId) = logic ? vec_test : vec_operand;
  ExprId a = part(k, ir_kid(c, e, 0)), b = k->fail ? e : part(k, ir_kid(c, e, 1));
  return k->fail ? e : ex_bin(c, (ExprKind)n.kind, a, b);
}

static ExprId vec_choice(LowWiden *k, ExprId e) {
  IrCtx *c = k->c;
  ExprId test = ir_kid(c, e, 0), side[2] = {ir_kid(c, e, 1), ir_kid(c, e, 2)};
  bool same = uniform(k, test);
  k->fail |= !same && (!k->masks || !is_safe(k, e));
  if (k->fail) return e;
  test = same ? at_value(k, test, 0) : vec_test(k, test);
  for (int i = 0; i < 2; i++) {
    bool fact = same && k->masks; /* it says what is in bounds */
    if (fact) ar_push(k->ar, i ? ex_not(c, test) : test);
    side[i] = wide(k, vec_expr(k, side[i]));
    if (fact) ar_pop(k->ar);
  }
  if (k->fail) return e;
  return same ? ex_rebuild(c, e, (ExprId[]){test, side[0], side[1]}) : ex_select(c, test, side[0], side[1]);
}

static ExprId vec_expr(LowWiden *k, ExprId e) {
  IrCtx *c = k->c;
  if (k->fail || !ex_uses_var(c, e, k->lane)) return e;
  ExprNode n = *ir_node(c, e);
  if (n.type.lanes != 1) {
    k->fail = true;
    return e;
  }
  switch ((ExprKind)n.kind) {
  case IR_VAR: return ex_ramp(c, ex_int(c, n.type, 0), ex_int(c, n.type, 1), k->lanes);
  case IR_LOAD: {
    ExprId i = low_widen_index(k, ir_kid(c, e, 0), dtype_bytes(n.type));
    return ex_load(c, n.sym, dtype_lanes(n.type, ir_type(c, i).lanes), 1, &i);
  }
  case IR_CAST: {
    ExprId a = vec_expr(k, ir_kid(c, e, 0));
    return ex_cast(c, dtype_lanes(n.type, k->lanes), wide(k, a));
  }
  case IR_ADD:
  case IR_SUB:
  case IR_MUL:
  case IR_DIV:
  case IR_MIN:
  case IR_MAX: {
    if (n.kind == IR_DIV && n.type.code == DT_INT) break;
    ExprId a = vec_expr(k, ir_kid(c, e, 0)), b = vec_expr(k, ir_kid(c, e, 1));
    return k->fail ? e : ex_rebuild(c, e, (ExprId[]){wide(k, a), wide(k, b)});
  }
  case IR_SELECT: return vec_choice(k, e);
  case IR_CALL: {
    if (n.sym == IN_IF_THEN_ELSE) return vec_choice(k, e);
    if (intrin_info((Intrin)n.sym)->effect != EFF_PURE || n.n > 4 || n.sym == IN_LIKELY) break;
    ExprId a[4];
    for (int i = 0; i < n.n; i++) a[i] = wide(k, vec_expr(k, ir_kid(c, e, i)));
    return k->fail ? e : ex_call(c, (Intrin)n.sym, dtype_lanes(n.type, k->lanes), n.n, a);
  }
  default: break;
  }
  k->fail = true;
  return e;
}

ExprId low_widen_value(LowWiden *k, ExprId e) {
  k->masks = k->any_address && ex_any(k->c, e, is_masked, k);
  ExprId r = vec_expr(k, e);
  return k->fail ? r : wide(k, ex_uses_var(k->c, e, k->lane) ? r : ar_simplify(k->ar, e));
}

static Stmt *scalarise(LowWiden *k, Stmt *s) {
  IrCtx *c = k->c;
  const IrVar info = *ir_var_info(c, k->lane);
  VarId fresh = ir_var_new(c, arena_printf(ir_arena(c), "%s.s", info.name), info.type, false);
  Stmt *r = st_for(c, fresh, ex_int(c, info.type, 0), ex_int(c, info.type, k->lanes), FOR_UNROLLED,
                   low_subst(c, s, k->lane, ex_var(c, fresh)));
  return r;
}
static Stmt *vec_stmt(IrCtx *c, Stmt *s, void *arg) {
  LowWiden *k = arg;
  switch (s->kind) {
  case ST_SEQ: return st_rewrite(c, s, vec_stmt, NULL, k);
  case ST_IF:
    if (!uniform(k, s->u.cond.cond)) return scalarise(k, s);
    return st_if(c, at_value(k, s->u.cond.cond, 0), s->u.cond.likely, vec_stmt(c, s->u.cond.then, k),
                 s->u.cond.other ? vec_stmt(c, s->u.cond.other, k) : NULL);
  case ST_FOR: {
    if (ex_uses_var(c, s->u.loop.min, k->lane) || ex_uses_var(c, s->u.loop.extent, k->lane) ||
        s->u.loop.kind >= FOR_VTHREAD)
      return scalarise(k, s);
    Stmt *r = st_own(c, low_rewrite(c, k->ar, s, vec_stmt, NULL, k));
    if (r->u.loop.kind == FOR_VECTOR) r->u.loop.kind = FOR_UNROLLED;
    return r;
  }
  case ST_STORE: {
    k->fail = false;
    ExprId i = low_widen_index(k, s->u.store.idx[0], dtype_bytes(ir_buffer(c, s->u.store.buf)->type));
    k->fail |= ir_type(c, i).lanes == 1;
    ExprId v = vec_expr(k, s->u.store.value);
    return k->fail ? scalarise(k, s) : st_store(c, s->u.store.buf, 1, &i, wide(k, v));
  }
  default: return scalarise(k, s);
  }
}

static Stmt *walk(IrCtx *c, Stmt *s, void *arg) {
  Arith *ar = arg;
  int64_t n;
  if (s->kind != ST_FOR || s->u.loop.kind != FOR_VECTOR) return low_rewrite(c, ar, s, walk, NULL, ar);
  err_check(ir_err(c), ex_const_int(c, s->u.loop.extent, &n), "the vectorized loop %s has no constant extent",
            ir_var_info(c, s->u.loop.var)->name);
  if (n < 2 || n > 16 || (n & (n - 1))) {
    s = st_own(c, s);
    s->u.loop.kind = FOR_UNROLLED;
    return low_rewrite(c, ar, s, walk, NULL, ar);
  }
  low_bind_loop(c, ar, s);
  LowWiden k = {.c = c, .ar = ar, .lane = s->u.loop.var, .lanes = (int)n};
  return vec_stmt(c, s->u.loop.body, &k);
}

void pass_vectorize(Func *f) {
  if ((low_is_gpu(f) || f->use == LOW_TEXT) && f->body) f->body = walk(f->ctx, f->body, ar_new(f->ctx));
}
