/* Simplification of any expression. Index arithmetic goes through the canonical form; comparisons, logic, minima,
 * choices and vectors have their rules here. Float arithmetic is never reordered: only literals fold, and the indices of
 * the accesses inside are simplified. Results are remembered per expression and version of the facts. */
#include "ir/arith.h"

#include <string.h>

enum { FEW = 8 };

static ExprId boolean(Arith *a, bool v) { return ex_int(a->c, DT_BOOL, v); }
static bool is_bool_lit(Arith *a, ExprId e, bool v) { return ex_is_int(a->c, e, v); }

/* ---- comparisons of index expressions ---- */
static bool all_negative(const SumBuf *b) {
  for (int i = 0; i < b->n; i++)
    if (b->at[i].scale > 0) return false;
  return b->n > 0;
}

static void negate(SumBuf *b) {
  for (int i = 0; i < b->n; i++) b->at[i].scale = -b->at[i].scale;
}

/* left ? right + k, equal terms cancelled, no constant on the left unless it stands alone there */
typedef struct {
  SumBuf left, right;
  int64_t k;
} Sides;

static void swap_sides(Sides *s) { /* l < r + k  is  -r < -l + k */
  SumBuf t = s->left;
  s->left = s->right;
  s->right = t;
  if (s->left.cap == SUM_FEW) s->left.at = s->left.few;
  if (s->right.cap == SUM_FEW) s->right.at = s->right.few;
  negate(&s->left);
  negate(&s->right);
}

static bool take_sides(Arith *a, Sides *s, const Sum *p, const Sum *q, bool equal) {
  sum_start(&s->left, a, p->type);
  sum_start(&s->right, a, p->type);
  if (__builtin_sub_overflow(q->base, p->base, &s->k)) return false;
  for (int i = 0; i < p->n; i++) {
    const Term *t = &p->at[i];
    int64_t r = 0;
    for (int j = 0; j < q->n; j++)
      if (term_part(&q->at[j], t)) r = q->at[j].scale;
    int64_t net = t->scale - r;
    bool right = r != 0 && (r > 0) == (t->scale > 0) && (net > 0) != (r > 0);
    sum_term(right ? &s->right : &s->left, t->x, t->lower, t->upper, right ? -net : net);
  }
  for (int j = 0; j < q->n; j++) {
    const Term *t = &q->at[j];
    bool both = false;
    for (int i = 0; i < p->n; i++) both = both || term_part(&p->at[i], t);
    if (!both) sum_term(&s->right, t->x, t->lower, t->upper, t->scale);
  }
  if (all_negative(&s->right)) { /* x < k - y: x + y < k */
    sum_terms(&s->left, s->right.n, s->right.at, -1);
    s->right.n = 0;
  }
  if (all_negative(&s->left)) {
    if (s->right.n == 0)
      swap_sides(s);
    else {
      sum_terms(&s->right, s->left.n, s->left.at, -1);
      s->left.n = 0;
    }
  }
  if (equal && s->left.n == 0) { /* 0 == r + k is -r == k */
    swap_sides(s);
    if (all_negative(&s->left) && s->k != INT64_MIN) {
      negate(&s->left);
      s->k = -s->k;
    }
  }
  return s->k != INT64_MIN;
}

static ExprId build(Arith *a, ExprKind k, const Sum *l, const Sum *r) {
  ExprId x = sum_expr(a, l);
  return ex_bin(a->c, k, x, sum_expr(a, r));
}

static ExprId compare_sums(Arith *a, ExprKind k, const Sum *p, const Sum *q);
static ExprId compare(Arith *a, ExprKind k, ExprId e, ExprId x, ExprId y);
static ExprId negation(Arith *a, ExprId e);

/* floor(x / c) ? k and k ? floor(x / c), without the division; 0: not of this form */
static ExprId undivide(Arith *a, ExprKind k, const Sum *l, const Sum *r) {
  bool left = r->n == 0 && l->n == 1 && l->base == 0, right = l->n == 0 && r->n == 1 && r->base == 0;
  if (k == IR_EQ || (!left && !right)) return 0;
  const Term *t = left ? l->at : r->at;
  if (t->scale != 1 || t->upper || t->lower == 1) return 0;
  int64_t c = t->lower, v = left ? r->base : l->base, w;
  if (left && k == IR_LE && !i64_add(v, 1, &v)) return 0;  /* x div c <= k: x < (k + 1)*c */
  if (right && k == IR_LT && !i64_add(v, 1, &v)) return 0; /* k < x div c: (k + 1)*c - 1 < x */
  if (!i64_mul(v, c, &w) || w > INT32_MAX || w < INT32_MIN + 1) return 0;
  if (right && k == IR_LT) w--;
  SumBuf b;
  sum_start(&b, a, l->type);
  b.base = w;
  const Sum *x = canon(a, t->x), *bound = sum_done(&b);
  return left ? compare_sums(a, IR_LT, x, bound) : compare_sums(a, k, bound, x);
}

/* min(x, y) < z: x < z or y < z; the other three likewise */
static ExprId split_extreme(Arith *a, ExprKind k, const Sum *p, const Sum *q, bool left) {
  const Sum *m = left ? p : q, *o = left ? q : p;
  if (m->n != 1 || m->at[0].scale != 1 || m->at[0].lower != 1 || m->at[0].upper || k == IR_EQ) return 0;
  ExprId x = m->at[0].x;
  ExprKind kind = ir_kind(a->c, x);
  if (kind != IR_MIN && kind != IR_MAX) return 0;
  SumBuf b;
  sum_start(&b, a, o->type);
  sum_add(&b, o, 1);
  if (m->base == INT64_MIN || !i64_add(b.base, -m->base, &b.base)) return 0;
  const Sum *z = sum_done(&b);
  if (!z || sum_wraps(a, z)) return 0;
  ExprId e[2];
  for (int i = 0; i < 2; i++) {
    const Sum *u = canon(a, ir_kid(a->c, x, i));
    e[i] = left ? compare_sums(a, k, u, z) : compare_sums(a, k, z, u);
  }
  return simp(a, ex_bin(a->c, (kind == IR_MIN) == left ? IR_OR : IR_AND, e[0], e[1]));
}

static void divide_terms(SumBuf *b, int64_t g) {
  for (int i = 0; i < b->n; i++) b->at[i].scale /= g;
}

static ExprId finish_sides(Arith *a, ExprKind k, Sides *s) {
  SumBuf *l = &s->left, *r = &s->right;
  int64_t g = 0;
  for (int i = 0; i < l->n; i++) g = i64_gcd(g, l->at[i].scale);
  for (int i = 0; i < r->n; i++) g = i64_gcd(g, r->at[i].scale);
  if (k == IR_EQ && g > 1 && s->k % g) return boolean(a, false);
  if (g > 1 && l->n + r->n <= 2) {
    divide_terms(l, g);
    divide_terms(r, g);
    s->k = k == IR_LT ? -i64_floordiv(-s->k, g) : i64_floordiv(s->k, g);
  }
  if (l->n == 0)
    l->base = -s->k; /* a constant alone */
  else
    r->base = s->k;
  const Sum *ls = sum_done(l), *rs = sum_done(r);
  if (!ls || !rs || sum_wraps(a, ls) || sum_wraps(a, rs)) return 0; /* x - 5 < y where y + 5 is too much */
  ExprId e = undivide(a, k, ls, rs);
  if (!e) e = split_extreme(a, k, ls, rs, true);
  if (!e) e = split_extreme(a, k, ls, rs, false);
  return e ? e : build(a, k, ls, rs);
}

static ExprId compare_sums(Arith *a, ExprKind k, const Sum *p, const Sum *q) { /* LT, LE, EQ */
  const Sum *d = sum_diff(a, p, q);
  if (!d) return build(a, k, p, q);
  int v = decide(a, d, k == IR_LT ? CMP_LT : k == IR_LE ? CMP_LE : CMP_EQ);
  if (v >= 0) return boolean(a, v);
  Sides s;
  ExprId e = take_sides(a, &s, p, q, k == IR_EQ) ? finish_sides(a, k, &s) : 0;
  return e ? e : build(a, k, p, q);
}

/* The reference's form of k <= y div c: it multiplies by c before the digits of y below c cancel, so k*c <= y stays when
 * y is a sum. 0: not of this form. */
static ExprId undivide_first(Arith *a, ExprId x, ExprId y) {
  IrCtx *c = a->c;
  int64_t v, d, w;
  if (!ex_const_int(c, x, &v) || !arith_is_index(ir_type(c, y))) return 0;
  while (ir_kind(c, y) == IR_FMOD && ex_const_int(c, ir_kid(c, y, 1), &d)) { /* of a number that is small anyway */
    ExprId z = ir_kid(c, y, 0);
    Bound b = bound_of(a, z);
    if (b.lo < 0 || b.hi >= d) return 0;
    y = z;
  }
  if (ir_kind(c, y) != IR_FDIV || !ex_const_int(c, ir_kid(c, y, 1), &d) || d < 2 || !i64_mul(v, d, &w)) return 0;
  const Sum *p = canon(a, ir_kid(c, y, 0));
  if (p->n < 2 || p->base || w > INT32_MAX || w < INT32_MIN) return 0;
  return compare_sums(a, IR_LE, canon(a, ex_int(c, p->type, w)), p);
}

static ExprId compare(Arith *a, ExprKind k, ExprId e, ExprId x, ExprId y) {
  IrCtx *c = a->c;
  DType t = ir_type(c, x);
  if (arith_is_index(t)) {
    if (k == IR_GT || k == IR_GE) {
      ExprId z = x;
      x = y, y = z;
      k = k == IR_GT ? IR_LT : IR_LE;
    }
    const Sum *p = canon(a, x), *q = canon(a, y);
    return k == IR_NE ? negation(a, compare_sums(a, IR_EQ, p, q)) : compare_sums(a, k, p, q);
  }
  if (t.lanes != 1 || (t.code != DT_INT && t.code != DT_UINT) || t.bits > 32) return e;
  if (x == y) return boolean(a, k == IR_EQ || k == IR_LE || k == IR_GE);
  Bound p = bound_of(a, x), q = bound_of(a, y);
  bool below = p.hi<q.lo, above = p.lo> q.hi;
  if (below || above)
    return boolean(a, k == IR_NE || ((k == IR_LT || k == IR_LE) && below) || ((k == IR_GT || k == IR_GE) && above));
  if (k == IR_LE && p.hi <= q.lo) return boolean(a, true);
  if (k == IR_GE && p.lo >= q.hi) return boolean(a, true);
  if (k == IR_LT && p.lo >= q.hi) return boolean(a, false);
  if (k == IR_GT && p.hi <= q.lo) return boolean(a, false);
  return e;
}

/* ---- logic; operands are simplified ---- */
static ExprId negation(Arith *a, ExprId e) {
  IrCtx *c = a->c;
  ExprKind k = ir_kind(c, e);
  if (k == IR_NOT) return ir_kid(c, e, 0);
  if (k == IR_AND || k == IR_OR) {
    ExprId x = ir_kid(c, e, 0), y = ir_kid(c, e, 1);
    x = negation(a, x);
    y = negation(a, y);
    return simp(a, ex_bin(c, k == IR_AND ? IR_OR : IR_AND, x, y));
  }
  if (ir_is_compare(k)) {
    ExprId x = ir_kid(c, e, 0), y = ir_kid(c, e, 1);
    DTypeCode code = (DTypeCode)ir_type(c, x).code;
    if (k == IR_EQ || k == IR_NE) return ex_bin(c, k == IR_EQ ? IR_NE : IR_EQ, x, y);
    if (code == DT_INT || code == DT_UINT) { /* not for floats: not-a-number */
      if (k == IR_GT || k == IR_GE)
        return compare(a, k == IR_GT ? IR_LE : IR_LT, ex_bin(c, k == IR_GT ? IR_LE : IR_LT, x, y), x, y);
      k = k == IR_LT ? IR_LE : IR_LT;
      return compare(a, k, ex_bin(c, k, y, x), y, x);
    }
  }
  return ex_not(c, e);
}

static const Sum *compared_sum(Arith *a, ExprId e) {
  IrCtx *c = a->c;
  ExprKind k = ir_kind(c, e);
  if (!ir_is_compare(k)) return NULL;
  ExprId x = ir_kid(c, e, 0), y = ir_kid(c, e, 1);
  if (!arith_is_index(ir_type(c, x))) return NULL;
  const Sum *p = canon(a, x), *q = canon(a, y);
  return sum_diff(a, p, q);
}

/* If e (or its negation) is known: 1, 0, or -1 when that decides nothing about y. Tried only where both compare the same sum. */
static int implied(Arith *a, ExprId e, ExprId y, bool negated, ExprKind chain) {
  IrCtx *c = a->c;
  if (ir_kind(c, e) == chain) {
    ExprId l = ir_kid(c, e, 0), r = ir_kid(c, e, 1);
    int v = implied(a, l, y, negated, chain);
    return v >= 0 ? v : implied(a, r, y, negated, chain);
  }
  if (e == y) return !negated;
  const Sum *p = compared_sum(a, e), *q = p ? compared_sum(a, y) : NULL;
  int64_t k;
  if (!q || (!bound_matches(p, q, &k) && !bound_matches(q, p, &k))) return -1;
  ar_push(a, negated ? negation(a, e) : e);
  ExprId r = simp(a, y);
  ar_pop(a);
  return is_bool_lit(a, r, true) ? 1 : is_bool_lit(a, r, false) ? 0 : -1;
}

/* x is the negation of y, as written */
static bool opposite(const IrCtx *c, ExprId x, ExprId y) {
  if (ir_kind(c, x) == IR_NOT) return ir_kid(c, x, 0) == y;
  return ir_kind(c, x) == IR_NE && ir_kind(c, y) == IR_EQ && ir_kid(c, x, 0) == ir_kid(c, y, 0) &&
         ir_kid(c, x, 1) == ir_kid(c, y, 1);
}

static ExprId logic(Arith *a, ExprKind k, ExprId e, ExprId x, ExprId y) {
  bool or = k == IR_OR;
  if (ir_type(a->c, e).lanes != 1) return e;
  int v = implied(a, x, y, or, k); /* y given x (or given not x) */
  if (v == (or ? 0 : 1)) return x; /* y adds nothing */
  if (v == (or ? 1 : 0)) return boolean(a, or);
  if (implied(a, y, x, or, k) == (or ? 0 : 1)) return y;
  return opposite(a->c, x, y) || opposite(a->c, y, x) ? boolean(a, or) : e;
}

/* ---- minima and maxima of index expressions ---- */
static ExprId nested_extreme(Arith *a, ExprKind k, ExprId x, ExprId y) {
  IrCtx *c = a->c;
  ExprKind kx = ir_kind(c, x);
  if (kx != IR_MIN && kx != IR_MAX) return 0;
  ExprId u = ir_kid(c, x, 0), v = ir_kid(c, x, 1);
  if (u == y || v == y) return kx == k ? x : y; /* min(min(u, y), y), min(max(u, y), y) */
  int64_t p, q;
  if (kx == k && ex_const_int(c, v, &p) && ex_const_int(c, y, &q))
    return ex_bin(c, k, u, (p < q) == (k == IR_MIN) ? v : y);
  if (kx == k && ex_const_int(c, u, &p) && ex_const_int(c, y, &q))
    return ex_bin(c, k, v, (p < q) == (k == IR_MIN) ? u : y);
  return 0;
}

static bool unit(const Sum *s) { return s->n == 0 || (s->n == 1 && s->base == 0); }

/* What both sides have in common leaves the minimum: equal terms, an equal constant, a factor, a division. */
static ExprId common_out(Arith *a, ExprKind k, const Sum *p, const Sum *q) {
  IrCtx *c = a->c;
  SumBuf in[2], out;
  sum_start(&in[0], a, p->type);
  sum_start(&in[1], a, p->type);
  sum_start(&out, a, p->type);
  for (int i = 0; i < p->n; i++) {
    bool same = false;
    for (int j = 0; j < q->n; j++) same = same || term_same(&p->at[i], &q->at[j]);
    if (same) sum_terms(&out, 1, &p->at[i], 1);
  }
  if (p->base == q->base) out.base = p->base;
  bool moved = out.n || out.base;
  sum_add(&in[0], p, 1);
  sum_add(&in[1], q, 1);
  for (int s = 0; s < 2 && moved; s++) {
    sum_terms(&in[s], out.n, out.at, -1);
    in[s].base -= out.base;
  }
  p = sum_done(&in[0]);
  q = sum_done(&in[1]);
  if (!p || !q || sum_wraps(a, p) || sum_wraps(a, q)) return 0;
  int64_t g = 1, lower = 1;
  if (unit(p) && unit(q) && p->n + q->n > 0) {
    g = i64_gcd(p->n ? p->at[0].scale : p->base, q->n ? q->at[0].scale : q->base);
    if (g > 1) {
      moved = true;
      for (int s = 0; s < 2; s++) {
        sum_start(&in[s], a, p->type);
        const Sum *o = s ? q : p;
        for (int i = 0; i < o->n; i++) sum_term(&in[s], o->at[i].x, o->at[i].lower, o->at[i].upper, o->at[i].scale / g);
        in[s].base = o->base / g;
      }
      p = sum_done(&in[0]);
      q = sum_done(&in[1]);
      if (!p || !q) return 0;
    }
    if (p->n && q->n && p->at[0].lower > 1 && p->at[0].lower == q->at[0].lower && p->at[0].scale == 1 &&
        q->at[0].scale == 1 && !p->at[0].upper && !q->at[0].upper) {
      lower = p->at[0].lower; /* floor division by a positive constant keeps order */
      moved = true;
      p = canon(a, p->at[0].x);
      q = canon(a, q->at[0].x);
    }
  }
  if (!moved) return 0;
  ExprId x = sum_expr(a, p), m = ex_bin(c, k, x, sum_expr(a, q));
  if (lower > 1) m = ex_fdiv(c, m, ex_int(c, p->type, lower));
  m = ex_mul(c, m, ex_int(c, p->type, g));
  const Sum *rest = sum_done(&out);
  return rest ? ex_add(c, m, sum_expr(a, rest)) : 0;
}

static ExprId extreme(Arith *a, ExprKind k, ExprId e, ExprId x, ExprId y) {
  const Sum *p = canon(a, x), *q = canon(a, y), *d = sum_diff(a, p, q);
  if (!d) return e;
  int v = decide(a, d, CMP_LE); /* x <= y */
  if (v < 0) {
    const Sum *r = sum_diff(a, q, p);
    int w = r ? decide(a, r, CMP_LE) : -1;
    if (w >= 0) v = !w;
  }
  if (v >= 0) return (k == IR_MIN) == v ? x : y;
  ExprId r = nested_extreme(a, k, x, y);
  if (!r) r = nested_extreme(a, k, y, x);
  if (!r) r = common_out(a, k, p, q);
  return r ? r : e;
}

/* ---- choices ---- */
static ExprId under(Arith *a, ExprId cond, ExprId e) {
  if (ir_node(a->c, e)->n == 0) return simp(a, e);
  ar_push(a, cond);
  ExprId r = simp(a, e);
  ar_pop(a);
  return r;
}

static bool is_ite(const IrCtx *c, ExprId e) {
  return ir_kind(c, e) == IR_CALL && ir_node(c, e)->sym == IN_IF_THEN_ELSE;
}

static ExprId choice(Arith *a, ExprId e) { /* if_then_else */
  IrCtx *c = a->c;
  ExprId cond = ir_kid(c, e, 0), t = ir_kid(c, e, 1), f = ir_kid(c, e, 2);
  cond = simp(a, cond);
  int64_t v;
  if (ex_const_int(c, cond, &v)) return simp(a, v ? t : f);
  t = under(a, cond, t);
  f = ir_node(c, f)->n ? under(a, negation(a, cond), f) : simp(a, f);
  if (t == f) return t;
  if (is_ite(c, t)) {
    ExprId c2 = ir_kid(c, t, 0), t2 = ir_kid(c, t, 1), f2 = ir_kid(c, t, 2);
    if (f2 == f && ir_node(c, f)->n == 0) { /* the same constant otherwise */
      cond = simp(a, ex_bin(c, IR_AND, cond, c2));
      t = t2;
    }
  }
  return ex_if_then_else(c, cond, t, f);
}

static ExprId let(Arith *a, ExprId e) {
  IrCtx *c = a->c;
  VarId v = ir_node(c, e)->sym;
  ExprId value = ir_kid(c, e, 0), body = ir_kid(c, e, 1);
  value = simp(a, value);
  if (!ex_uses_var(c, body, v)) return simp(a, body);
  if (ir_node(c, value)->n == 0) {
    VarSub s = {v, value};
    return simp(a, ex_subst(c, body, 1, &s));
  }
  return ex_let(c, v, value, simp(a, body));
}

/* Reduce axes of one iteration disappear; without axes nothing is left to reduce. */
static ExprId reduction(Arith *a, ExprId e) {
  IrCtx *c = a->c;
  IrReduce r = *ir_reduce(c, e);
  IrAxis *axis = arena_array(c->arena, IrAxis, r.n_axis);
  VarSub *sub = arena_array(c->arena, VarSub, r.n_axis);
  int kept = 0, gone = 0;
  for (int i = 0; i < r.n_axis; i++) {
    if (ex_is_int(c, r.axis[i].extent, 1))
      sub[gone++] = (VarSub){r.axis[i].var, r.axis[i].min};
    else
      axis[kept++] = r.axis[i];
  }
  if (gone == 0 || (kept == 0 && (r.init || !ex_is_int(c, r.cond, 1)))) return e;
  ExprId *src = arena_array(c->arena, ExprId, r.n_src);
  for (int i = 0; i < r.n_src; i++) src[i] = ex_subst(c, r.src[i], gone, sub);
  if (kept == 0) return simp(a, src[r.value_index]);
  r.src = src;
  r.cond = ex_subst(c, r.cond, gone, sub);
  r.axis = axis;
  r.n_axis = kept;
  return simp(a, ex_reduce(c, r));
}

/* ---- vectors: operations on ramps and broadcasts become operations on scalars ---- */
static ExprId vector_bin(Arith *a, ExprKind k, ExprId e, ExprId x, ExprId y) {
  IrCtx *c = a->c;
  int lanes = ir_type(c, e).lanes;
  bool rx = ir_kind(c, x) == IR_RAMP, ry = ir_kind(c, y) == IR_RAMP;
  if ((!rx && ir_kind(c, x) != IR_BCAST) || (!ry && ir_kind(c, y) != IR_BCAST)) return e;
  ExprId p = ir_kid(c, x, 0), q = ir_kid(c, y, 0);
  if (ir_is_division(k) && (ex_is_int(c, q, 0) || ir_kind(c, q) == IR_FLT)) return e;
  if (!rx && !ry) return ex_bcast(c, simp(a, ex_rebuild(c, e, (ExprId[]){p, q})), lanes);
  DType t = ir_type(c, p);
  if (!arith_is_index(t)) return e;
  ExprId zero = ex_int(c, t, 0), s = rx ? ir_kid(c, x, 1) : zero, u = ry ? ir_kid(c, y, 1) : zero;
  int64_t sv, uv, d;
  if (k == IR_ADD || k == IR_SUB) {
    ExprId stride = simp(a, ex_bin(c, k, s, u)), base = simp(a, ex_bin(c, k, p, q));
    return ex_is_int(c, stride, 0) ? ex_bcast(c, base, lanes) : ex_ramp(c, base, stride, lanes);
  }
  if (k == IR_MUL && !(rx && ry)) {
    ExprId base = simp(a, ex_mul(c, p, q)), stride = simp(a, rx ? ex_mul(c, s, q) : ex_mul(c, p, u));
    return ex_is_int(c, stride, 0) ? ex_bcast(c, base, lanes) : ex_ramp(c, base, stride, lanes);
  }
  if ((k == IR_FDIV || k == IR_FMOD) && !ry && ex_const_int(c, s, &sv) && ex_const_int(c, q, &d) && d > 0) {
    ExprId part = simp(a, ex_bin(c, k, p, q));
    if (sv % d == 0) return k == IR_FDIV ? ex_ramp(c, part, ex_int(c, t, sv / d), lanes) : ex_bcast(c, part, lanes);
    Residue r = residue_of(a, p);
    int64_t g = r.coeff == 0 ? d : i64_gcd(r.coeff, d), span, low = i64_floormod(r.base, g);
    if (sv > 0 && i64_mul(sv, lanes - 1, &span) && g > 1 && span < g && low + span < g)
      return k == IR_FDIV ? ex_bcast(c, part, lanes) : ex_ramp(c, part, s, lanes);
    return e;
  }
  if (ir_is_compare(k)) {
    if (s == u) return ex_bcast(c, simp(a, ex_bin(c, k, p, q)), lanes);
    if (k == IR_EQ || k == IR_NE || !ex_const_int(c, s, &sv) || !ex_const_int(c, u, &uv)) return e;
    /* decided at both ends: decided between */
    ExprId n = ex_int(c, t, lanes - 1), first = simp(a, ex_bin(c, k, p, q));
    ExprId last = simp(a, ex_bin(c, k, ex_add(c, p, ex_mul(c, s, n)), ex_add(c, q, ex_mul(c, u, n))));
    if (first == last && ir_kind(c, first) == IR_INT) return ex_bcast(c, first, lanes);
  }
  return e;
}

/* ---- everything ---- */
static ExprId with_kids(Arith *a, ExprId e) {
  IrCtx *c = a->c;
  const ExprNode *p = ir_node(c, e);
  int n = p->n;
  ExprKind k = (ExprKind)p->kind;
  ExprId few[FEW], *kids = n <= FEW ? few : arena_array(c->arena, ExprId, n);
  bool same = true;
  for (int i = 0; i < n; i++) {
    ExprId old = ir_kid(c, e, i);
    kids[i] = simp(a, old);
    same = same && kids[i] == old;
  }
  if (same) return e;
  if (ir_is_division(k) && ex_is_int(c, kids[1], 0))
    return ctx_node(c, k, ir_type(c, e), 0, n, kids, 0); /* division by zero: not ours to refuse */
  return ex_rebuild(c, e, kids);
}

ExprId simp_atom(Arith *a, ExprId e) {
  IrCtx *c = a->c;
  const ExprNode *p = ir_node(c, e);
  ExprKind k = (ExprKind)p->kind;
  if (k == IR_VAR) {
    VarFact *f = arith_var(a, p->sym);
    f->seen = true;
    return f->value ? f->value : e;
  }
  if (p->n == 0) return e;
  if (k == IR_CALL && p->sym == IN_IF_THEN_ELSE) return choice(a, e);
  if (k == IR_LET) return let(a, e);
  if (a->reduced && (k == IR_LE || k == IR_GE)) {
    ExprId r = undivide_first(a, ir_kid(c, e, k == IR_GE), ir_kid(c, e, k == IR_LE));
    if (r) return r;
  }
  e = with_kids(a, e);
  p = ir_node(c, e);
  k = (ExprKind)p->kind;
  DType t = p->type;
  ExprId x = p->n > 0 ? ir_kid(c, e, 0) : 0, y = p->n > 1 ? ir_kid(c, e, 1) : 0, z = p->n > 2 ? ir_kid(c, e, 2) : 0;
  int64_t v;
  if (ir_is_binary(k) && t.lanes > 1) return vector_bin(a, k, e, x, y);
  switch (k) {
  case IR_EQ:
  case IR_NE:
  case IR_LT:
  case IR_LE:
  case IR_GT:
  case IR_GE: return compare(a, k, e, x, y);
  case IR_AND:
  case IR_OR: return logic(a, k, e, x, y);
  case IR_NOT:
    if (t.lanes > 1) return ir_kind(c, x) == IR_BCAST ? ex_bcast(c, negation(a, ir_kid(c, x, 0)), t.lanes) : e;
    return negation(a, x);
  case IR_MIN:
  case IR_MAX: return arith_is_index(t) ? extreme(a, k, e, x, y) : e;
  case IR_SELECT:
    if (ex_const_int(c, x, &v)) return v ? y : z;
    return y == z ? y : e;
  case IR_CALL:
    if (p->sym == IN_LIKELY && ex_const_int(c, x, &v)) return x;
    if (p->sym == IN_LIKELY && ir_kind(c, x) == IR_CALL && ir_node(c, x)->sym == IN_LIKELY) return x;
    return e;
  case IR_REDUCE: return reduction(a, e);
  case IR_CAST:
    if (ir_kind(c, x) == IR_BCAST && t.lanes > 1)
      return ex_bcast(c, simp(a, ex_cast(c, dtype_lanes(t, 1), ir_kid(c, x, 0))), t.lanes);
    return e;
  default: return e;
  }
}

ExprId simp(Arith *a, ExprId e) {
  const ExprNode *p = ir_node(a->c, e);
  if (p->kind == IR_FLT || (p->kind == IR_INT && arith_is_index(p->type))) return e;
  ArMemo *m = arith_memo(a, e);
  if (m->have & HAVE_SIMP) return m->simp;
  DType t = ir_type(a->c, e);
  ExprId r = arith_is_index(t) ? sum_expr(a, canon(a, e)) : simp_atom(a, e);
  if (dtype_is_bool(t))
    for (int i = 0; i < a->lit.len; i++)
      if (a->lit.at[i].cond == r) {
        r = ex_int(a->c, t, a->lit.at[i].value);
        break;
      }
  m = arith_memo(a, e);
  m->simp = r;
  m->have |= HAVE_SIMP;
  m = arith_memo(a, r);
  if (!(m->have & HAVE_SIMP)) m->simp = r;
  m->have |= HAVE_SIMP;
  return r;
}

ExprId ar_simplify(Arith *a, ExprId e) {
  arith_enter(a);
  return e ? simp(a, e) : 0;
}
