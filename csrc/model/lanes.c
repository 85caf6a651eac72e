/* Which addresses the threads of a warp touch is decided by index expressions, divisions and remainders included. They
 * are evaluated for all 32 lanes together: one pass over the expression, one short loop per node, which the compiler
 * turns into vector instructions. Most nodes do not depend on the lane; those are computed once. */
#include "model/lanes.h"

LaneEnv lane_env(IrCtx *c) {
  int32_t n = ir_mark(c).n.var + 1;
  return (LaneEnv){c, n, arena_array(ir_arena(c), const Lanes *, n)};
}

void lanes_set(LaneEnv *e, VarId v, const Lanes *l) {
  if (v > 0 && v < e->n_vars) e->var[v] = l;
}

static int32_t one(ExprKind k, int32_t a, int32_t b) {
  switch (k) {
  case IR_ADD: return (int32_t)((uint32_t)a + (uint32_t)b);
  case IR_SUB: return (int32_t)((uint32_t)a - (uint32_t)b);
  case IR_MUL: return (int32_t)((uint32_t)a * (uint32_t)b);
  case IR_DIV: return b == 0 || b == -1 ? 0 : a / b;
  case IR_MOD: return b == 0 || b == -1 ? 0 : a % b;
  case IR_FDIV: return b == 0 || b == -1 ? 0 : a / b - (a % b != 0 && (a % b < 0) != (b < 0));
  case IR_FMOD: return b == 0 || b == -1 ? 0 : a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);
  case IR_MIN: return a < b ? a : b;
  case IR_MAX: return a > b ? a : b;
  case IR_EQ: return a == b;
  case IR_NE: return a != b;
  case IR_LT: return a < b;
  case IR_LE: return a <= b;
  case IR_GT: return a > b;
  case IR_GE: return a >= b;
  case IR_AND: return a && b;
  case IR_OR: return a || b;
  default: return 0;
  }
}

static void spread(const Lanes *a, int32_t *out) {
  for (int i = 0; i < LANES; i++) out[i] = a->at[a->same ? 0 : i];
}

/* A positive divisor that all lanes share: by its reciprocal, and a correction. */
static void divided(bool mod, const Lanes *a, int32_t d, Lanes *out) {
  double by = 1.0 / d;
  for (int i = 0; i < LANES; i++) {
    int32_t x = a->at[i], q = (int32_t)(x * by);
    int32_t r = x - q * d;
    int32_t low = -(r < 0), high = -(r >= d);
    out->at[i] = mod ? r + (low & d) - (high & d) : q + low - high;
  }
}

void lanes_by(ExprKind k, const Lanes *a, int32_t b, Lanes *out) {
  if (a->same) {
    bool none = a->at[0] == 0 && (k == IR_MUL || k == IR_FDIV || k == IR_FMOD);
    lanes_const(out, none ? 0 : one(k, a->at[0], b));
    return;
  }
  if ((k == IR_ADD && b == 0) || (k == IR_MUL && b == 1)) {
    if (out != a) *out = *a;
    return;
  }
  out->same = false;
  if (k == IR_ADD)
    for (int i = 0; i < LANES; i++) out->at[i] = (int32_t)((uint32_t)a->at[i] + (uint32_t)b);
  else if (k == IR_MUL)
    for (int i = 0; i < LANES; i++) out->at[i] = (int32_t)((uint32_t)a->at[i] * (uint32_t)b);
  else if ((k == IR_FDIV || k == IR_FMOD) && b > 0)
    divided(k == IR_FMOD, a, b, out);
  else
    for (int i = 0; i < LANES; i++) out->at[i] = one(k, a->at[i], b);
}

void lanes_bin(ExprKind k, const Lanes *a, const Lanes *b, Lanes *out) {
  if (b->same) {
    lanes_by(k, a, b->at[0], out);
    return;
  }
  if (a->same && (k == IR_ADD || k == IR_MUL)) {
    lanes_by(k, b, a->at[0], out);
    return;
  }
  int32_t x[LANES];
  spread(a, x);
  out->same = false;
  if (k == IR_ADD)
    for (int i = 0; i < LANES; i++) out->at[i] = (int32_t)((uint32_t)x[i] + (uint32_t)b->at[i]);
  else
    for (int i = 0; i < LANES; i++) out->at[i] = one(k, x[i], b->at[i]);
}

static void choose(const Lanes *c, const Lanes *a, const Lanes *b, Lanes *out) {
  if (c->same) {
    lanes_copy(out, c->at[0] ? a : b);
    return;
  }
  int32_t x[LANES], y[LANES];
  spread(a, x), spread(b, y);
  out->same = false;
  for (int i = 0; i < LANES; i++) out->at[i] = c->at[i] ? x[i] : y[i];
}

typedef struct {
  const LaneEnv *e;
  int visits;   /* after EX_PLAIN_VISITS of them each node is computed once more at most */
  MapU64 known; /* place in val, by expression */
  VEC(Lanes) val;
} LaneWalk;

static void lanes_walk(LaneWalk *w, ExprId x, Lanes *out);

static void lanes_node(LaneWalk *w, ExprId x, const ExprNode *n, Lanes *out) {
  IrCtx *c = w->e->c;
  ExprKind k = (ExprKind)n->kind;
  Lanes a, b;
  if (k == IR_CAST && n->n == 1)
    lanes_walk(w, ir_kid(c, x, 0), out);
  else if (ex_is_choice(c, x)) {
    Lanes cond;
    lanes_walk(w, ir_kid(c, x, 0), &cond);
    lanes_walk(w, ir_kid(c, x, 1), &a);
    lanes_walk(w, ir_kid(c, x, 2), &b);
    choose(&cond, &a, &b, out);
  } else if (ir_is_binary(k)) {
    lanes_walk(w, ir_kid(c, x, 0), out);
    lanes_walk(w, ir_kid(c, x, 1), &b);
    lanes_bin(k, out, &b, out);
  }
}

static void lanes_walk(LaneWalk *w, ExprId x, Lanes *out) {
  const LaneEnv *e = w->e;
  const ExprNode n = *ir_node(e->c, x);
  lanes_const(out, 0);
  if (n.kind == IR_INT)
    out->at[0] = (int32_t)n.u.i;
  else if (n.kind == IR_VAR) {
    if (n.sym < e->n_vars && e->var[n.sym]) lanes_copy(out, e->var[n.sym]);
  } else if (n.n > 0 && ++w->visits <= EX_PLAIN_VISITS)
    lanes_node(w, x, &n, out);
  else if (n.n > 0) {
    if (!w->known.arena) mapu_init(&w->known, ir_arena(e->c));
    int32_t at = mapu_get(&w->known, (uint64_t)x, -1);
    if (at >= 0) {
      lanes_copy(out, &w->val.at[at]);
      return;
    }
    lanes_node(w, x, &n, out);
    vec_note(ir_arena(e->c), &w->val, *out, &w->known, x);
  }
}

void lanes_of(const LaneEnv *e, ExprId x, Lanes *out) {
  LaneWalk w = {.e = e};
  lanes_walk(&w, x, out);
}
