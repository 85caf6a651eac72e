/* Is the result the same bits in every order of operations? Inputs are small integers. As long
 * as all intermediate values are multiples of one power of two and small enough, floating-point sums, products, maxima and
 * selections are exact, and a schedule that reorders them must reproduce the reference to the bit. Each value is followed
 * as a bound of its size and the power of two that divides it; quotients, roots and the like end the proof.
 */
#include "te/te.h"
#include <math.h>
#include <string.h>

enum { MOST_FRACTION = 40 };
static const double EXTREME =
    1e30; /* the neutral element of a maximum, or padding for one: passes through, computes nothing */

typedef struct {
  bool ok, extreme;
  double bound;
  int q; /* a multiple of 2^-q */
} Exact;
typedef struct {
  IrCtx *c;
  const TeDag *d;
  Exact *op;         /* per operation of the DAG */
  MapU64 memo, sure; /* of prove and of decided */
  VEC(Exact) val;
} Proof;

static const Exact NO = {false, false, 0, 0};

static Exact checked(DType t, Exact x) {
  int bits = t.code == DT_BFLOAT ? 8 : t.code != DT_FLOAT ? 31 : t.bits == 16 ? 11 : t.bits == 32 ? 24 : 53;
  x.ok = x.ok && x.q >= 0 && x.q <= MOST_FRACTION && x.bound <= ldexp(1, bits - x.q);
  return x;
}

static Exact either(Exact a, Exact b) {
  return (Exact){a.ok && b.ok, a.extreme || b.extreme, fmax(a.bound, b.bound), a.q > b.q ? a.q : b.q};
}

static Exact constant(double f) {
  if (fabs(f) >= EXTREME) return (Exact){true, true, 0, 0};
  int q = 0;
  while (q <= MOST_FRACTION && floor(ldexp(f, q)) != ldexp(f, q)) q++;
  return (Exact){q <= MOST_FRACTION, false, fabs(f), q};
}

static Exact prove(Proof *p, ExprId e);

static Exact prove_reduce(Proof *p, ExprId e) {
  const IrReduce r = *ir_reduce(p->c, e);
  const IrReducer *how = ir_reducer(p->c, r.reducer);
  if (how->n != 1 || r.n_src != 1) return NO;
  ExprKind k = ir_kind(p->c, how->result[0]);
  Exact x = prove(p, r.src[0]);
  if (r.init) x = either(x, prove(p, r.init[0]));
  if (k == IR_MAX || k == IR_MIN) return x;
  if (k != IR_ADD || x.extreme) return NO;
  for (int i = 0; i < r.n_axis; i++) {
    int64_t n = 0;
    if (!ex_const_int(p->c, r.axis[i].extent, &n)) return NO;
    x.bound *= (double)n;
  }
  return x;
}

/* Does a condition or an index come out alike everywhere? It does if all numbers that it is made of are exact. */
static bool decided(Proof *p, ExprId e) {
  const ExprNode n = *ir_node(p->c, e);
  if (n.kind == IR_FLT || n.kind == IR_INT || n.kind == IR_VAR) return true;
  if (n.kind == IR_READ || n.kind == IR_REDUCE || dtype_is_float(n.type)) return prove(p, e).ok;
  int32_t known = mapu_get(&p->sure, (uint64_t)e, -1);
  if (known >= 0) return known;
  bool sure = true;
  for (int i = 0; i < n.n && sure; i++) sure = decided(p, ir_kid(p->c, e, i));
  mapu_set(&p->sure, (uint64_t)e, sure);
  return sure;
}

static Exact prove_read(Proof *p, ExprId e, const ExprNode *n) {
  int k = te_dag_op_of(p->c, p->d, n->sym);
  for (int i = 0; i < n->n; i++)
    if (!decided(p, ir_kid(p->c, e, i))) return NO;
  return k < 0 ? NO : p->op[k];
}

static Exact prove_choice(Proof *p, ExprId e) {
  if (!decided(p, ir_kid(p->c, e, 0))) return NO;
  return either(prove(p, ir_kid(p->c, e, 1)), prove(p, ir_kid(p->c, e, 2)));
}

/* A value of 11 bits near a multiple of 2^-q is one, too. */
static Exact rounded(Exact x) {
  x.bound *= 1 + 0x1p-11;
  return x;
}

static Exact prove_node(Proof *p, ExprId e) {
  IrCtx *c = p->c;
  ExprNode n = *ir_node(c, e);
  Exact a = NO, b = NO;
  switch ((ExprKind)n.kind) {
  case IR_FLT: return constant(n.u.f);
  case IR_INT: return constant((double)n.u.i);
  case IR_READ: return prove_read(p, e, &n);
  case IR_REDUCE: return prove_reduce(p, e);
  case IR_CAST: return prove(p, ir_kid(c, e, 0));
  case IR_SELECT: return prove_choice(p, e);
  case IR_CALL:
    if (n.sym == IN_IF_THEN_ELSE) return prove_choice(p, e);
    if (n.sym == IN_ROUND_TF32) return rounded(prove(p, ir_kid(c, e, 0)));
    return n.sym == IN_FABS || n.sym == IN_LIKELY ? prove(p, ir_kid(c, e, 0)) : NO;
  case IR_MIN:
  case IR_MAX: return either(prove(p, ir_kid(c, e, 0)), prove(p, ir_kid(c, e, 1)));
  case IR_ADD:
  case IR_SUB:
  case IR_MUL:
    a = prove(p, ir_kid(c, e, 0));
    b = prove(p, ir_kid(c, e, 1));
    if (!a.ok || !b.ok || a.extreme || b.extreme) return NO;
    if (n.kind == IR_MUL) return (Exact){true, false, a.bound * b.bound, a.q + b.q};
    return (Exact){true, false, a.bound + b.bound, a.q > b.q ? a.q : b.q};
  default: return NO;
  }
}

static Exact prove(Proof *p, ExprId e) {
  int32_t known = mapu_get(&p->memo, (uint64_t)e, -1);
  if (known >= 0) return p->val.at[known];
  Exact x = checked(ir_type(p->c, e), prove_node(p, e));
  vec_note(ir_arena(p->c), &p->val, x, &p->memo, e);
  return x;
}

void te_exact(IrCtx *c, const TeDag *d, bool *exact) {
  Proof p = {.c = c, .d = d, .op = arena_array(ir_arena(c), Exact, d->n_ops)};
  mapu_init(&p.memo, ir_arena(c));
  mapu_init(&p.sure, ir_arena(c));
  for (int i = 0; i < d->n_ops; i++) {
    const TeOp *op = d->op[i];
    p.op[i] = (Exact){true, false, TE_EXACT_INPUT, 0};
    if (op->kind == TE_PLACEHOLDER) continue;
    p.op[i] = prove(&p, op->body[0]);
    for (int k = 1; k < op->n_out; k++) p.op[i] = either(p.op[i], prove(&p, op->body[k]));
  }
  for (int i = 0; i < d->n_tensors; i++) {
    int k = te_dag_op_of(c, d, d->tensor[i]);
    exact[i] = k >= 0 && d->op[k]->kind != TE_PLACEHOLDER && p.op[k].ok;
  }
}
