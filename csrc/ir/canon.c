/* The canonical form of an index expression:
 *
 *     base + sum of  scale * ((x mod upper) div lower)
 *
 * where x is an atom (a variable, a load, a minimum, a product of two unknowns ...) and the rest are constants. Division
 * and modulo by a constant stay inside this form as long as possible: that is what makes split and fused loop indices
 * cancel. A sum is built in a SumBuf on the stack, tidied by sum_done and kept, immutable, with its expression.
 *
 * Everything is exact in 64 bits: when a constant would overflow, or leave the type of the expression, the expression is
 * an atom instead. */
#include "ir/arith.h"

#include <string.h>

enum { MERGE_MAX = 64 }; /* longer sums are no indices: only equal terms are added up */

/* ---- building sums ---- */
void sum_start(SumBuf *b, Arith *a, DType t) {
  b->a = a;
  b->type = t;
  b->bad = b->wide = b->raw = false;
  b->n = 0;
  b->cap = SUM_FEW;
  b->base = 0;
  b->at = b->few;
}

static void sum_room(SumBuf *b, int n) {
  if (n <= b->cap) return;
  int cap = b->cap * 2 > n ? b->cap * 2 : n;
  Term *p = arena_array(b->a->c->arena, Term, cap);
  memcpy(p, b->at, sizeof *p * (size_t)b->n);
  b->at = p;
  b->cap = cap;
}

void sum_term(SumBuf *b, ExprId x, int64_t lower, int64_t upper, int64_t scale) {
  if (scale == 0) return;
  for (int i = 0; i < b->n; i++) {
    Term *t = &b->at[i];
    if (t->x != x || t->lower != lower || t->upper != upper) continue;
    if (!i64_add(t->scale, scale, &t->scale)) b->bad = true;
    return;
  }
  sum_room(b, b->n + 1);
  b->at[b->n++] = (Term){x, lower, upper, scale};
}

void sum_terms(SumBuf *b, int n, const Term *at, int64_t k) {
  for (int i = 0; i < n; i++) {
    int64_t scale;
    if (!i64_mul(at[i].scale, k, &scale))
      b->bad = true;
    else
      sum_term(b, at[i].x, at[i].lower, at[i].upper, scale);
  }
}

static void sum_base(SumBuf *b, int64_t v, int64_t k) {
  int64_t r;
  if (!i64_mul(v, k, &r) || !i64_add(b->base, r, &b->base)) b->bad = true;
}

void sum_add(SumBuf *b, const Sum *s, int64_t k) {
  if (b->n == 0 && k == 1) { /* nothing to merge with */
    sum_room(b, s->n);
    memcpy(b->at, s->at, sizeof *b->at * (size_t)s->n);
    b->n = s->n;
    sum_base(b, s->base, k);
    return;
  }
  sum_terms(b, s->n, s->at, k);
  sum_base(b, s->base, k);
}

static bool divides(int64_t d, int64_t u) { return u == 0 || u % d == 0; } /* 0 stands for infinity */

/* Two parts of one atom as one: into p, true if so. */
static bool merge_terms(Term *p, const Term *q) {
  int64_t u, v;
  if (p->x != q->x) return false;
  /* high digits and the low digits below them: (x div s)*s + x mod s */
  if (p->lower == q->upper && i64_mul(p->scale, q->lower, &u) && i64_mul(q->scale, p->lower, &v) && u == v) {
    *p = (Term){p->x, q->lower, p->upper, q->scale};
    return true;
  }
  /* all digits less the low ones: x - x mod s */
  if (p->lower == q->lower && p->scale == -q->scale && q->upper && p->upper != q->upper &&
      divides(q->upper, p->upper) && i64_mul(p->scale, q->upper / q->lower, &u)) {
    *p = (Term){p->x, q->upper, p->upper, u};
    return true;
  }
  /* all digits less the high ones: x - (x div s)*s */
  if (p->upper == q->upper && p->lower != q->lower && q->lower % p->lower == 0 && divides(q->lower, p->upper) &&
      i64_mul(p->scale, q->lower / p->lower, &u) && q->scale == -u) {
    p->upper = q->lower;
    return true;
  }
  return false;
}

static void drop_term(SumBuf *b, int i) {
  memmove(b->at + i, b->at + i + 1, sizeof *b->at * (size_t)(b->n - i - 1));
  b->n--;
}

static bool merge_once(SumBuf *b) {
  for (int i = 0; i < b->n; i++)
    for (int j = i + 1; j < b->n; j++) {
      if (b->at[i].x != b->at[j].x) continue;
      Term t = b->at[i], u = b->at[j];
      if (!merge_terms(&t, &u)) {
        if (!merge_terms(&u, &b->at[i])) continue;
        t = u;
      }
      drop_term(b, j);
      drop_term(b, i);
      const Sum *whole = t.lower == 1 && !t.upper ? canon(b->a, t.x) : NULL; /* a whole sum again, perhaps */
      if (whole)
        sum_add(b, whole, t.scale);
      else
        sum_term(b, t.x, t.lower, t.upper, t.scale);
      return true;
    }
  return false;
}

/* k1*(p*z) - k1*(q*z), p - q constant: products that share a factor. */
static bool merge_products(SumBuf *b) {
  IrCtx *c = b->a->c;
  for (int i = 0; i < b->n; i++) {
    if (b->at[i].lower != 1 || b->at[i].upper || ir_kind(c, b->at[i].x) != IR_MUL) continue;
    for (int j = i + 1; j < b->n; j++) {
      if (b->at[j].scale != -b->at[i].scale || b->at[j].lower != 1 || b->at[j].upper ||
          ir_kind(c, b->at[j].x) != IR_MUL)
        continue;
      for (int side = 0; side < 4; side++) {
        ExprId z = ir_kid(c, b->at[i].x, side & 1), w = ir_kid(c, b->at[j].x, side >> 1);
        if (z != w) continue;
        ExprId p = ir_kid(c, b->at[i].x, !(side & 1)), q = ir_kid(c, b->at[j].x, !(side >> 1));
        const Sum *ps = canon(b->a, p), *qs = canon(b->a, q), *d = sum_diff(b->a, ps, qs);
        int64_t k;
        if (!d || d->n || !i64_mul(d->base, b->at[i].scale, &k)) continue;
        drop_term(b, j);
        drop_term(b, i);
        sum_add(b, canon(b->a, z), k);
        return true;
      }
    }
  }
  return false;
}

/* min(x + 5, y) - x: a term that cancels inside of a minimum or maximum moves into it. */
static bool merge_extreme(SumBuf *b) {
  IrCtx *c = b->a->c;
  for (int i = 0; i < b->n; i++) {
    Term m = b->at[i];
    ExprKind k = ir_kind(c, m.x);
    if ((k != IR_MIN && k != IR_MAX) || m.lower != 1 || m.upper) continue;
    for (int side = 0; side < 2; side++) {
      const Sum *s = canon(b->a, ir_kid(c, m.x, side));
      for (int j = 0; j < b->n; j++)
        for (int l = 0; l < s->n; l++) {
          Term t = b->at[j];
          if (j == i || !term_part(&s->at[l], &t) || t.scale % m.scale || s->at[l].scale != -(t.scale / m.scale))
            continue;
          ExprId kids[2];
          for (int n = 0; n < 2; n++) {
            SumBuf in;
            sum_start(&in, b->a, b->type);
            sum_add(&in, canon(b->a, ir_kid(c, m.x, n)), 1);
            sum_term(&in, t.x, t.lower, t.upper, t.scale / m.scale);
            const Sum *kid = sum_done(&in);
            if (!kid || sum_wraps(b->a, kid) || sum_wraps(b->a, canon(b->a, ir_kid(c, m.x, n)))) return false;
            kids[n] = sum_expr(b->a, kid);
          }
          const Sum *fresh = canon(b->a, ctx_node(c, k, b->type, 0, 2, kids, 0));
          drop_term(b, i > j ? i : j);
          drop_term(b, i > j ? j : i);
          sum_add(b, fresh, m.scale);
          return true;
        }
    }
  }
  return false;
}

static void drop_zeros(SumBuf *b) {
  int n = 0;
  for (int i = 0; i < b->n; i++)
    if (b->at[i].scale) b->at[n++] = b->at[i];
  b->n = n;
}

static bool narrow(int64_t v) { return v >= INT32_MIN && v <= INT32_MAX; }

const Sum *sum_done(SumBuf *b) {
  drop_zeros(b);
  while (!b->raw && !b->bad && b->n > 1 && b->n <= MERGE_MAX &&
         (merge_once(b) || merge_products(b) || merge_extreme(b)))
    drop_zeros(b);
  bool any = b->wide || b->type.bits >= 64, ok = !b->bad && (any || narrow(b->base));
  for (int i = 0; i < b->n; i++) {
    const Term *t = &b->at[i];
    ok = ok && (any ? t->scale != INT64_MIN : narrow(t->scale) && narrow(t->lower) && narrow(t->upper));
  }
  if (!ok) return NULL;
  Sum *s = arena_alloc(b->a->c->arena, sizeof *s + sizeof(Term) * (size_t)b->n);
  s->n = b->n;
  s->type = b->type;
  s->base = b->base;
  memcpy(s->at, b->at, sizeof(Term) * (size_t)b->n);
  return s;
}

static const Sum *single(Arith *a, DType t, ExprId x, int64_t lower, int64_t upper, int64_t scale) {
  SumBuf b;
  sum_start(&b, a, t);
  sum_term(&b, x, lower, upper, scale);
  return sum_done(&b);
}

static const Sum *constant(Arith *a, DType t, int64_t v) {
  if (t.bits < 64 && !narrow(v)) return NULL;
  return arena_copy(a->c->arena, &(Sum){.type = t, .base = v}, sizeof(Sum));
}

const Sum *sum_diff(Arith *a, const Sum *x, const Sum *y) {
  if (sum_wraps(a, x) || sum_wraps(a, y)) return NULL;
  SumBuf b;
  sum_start(&b, a, x->type);
  b.wide = true;
  sum_add(&b, x, 1);
  sum_add(&b, y, -1);
  return sum_done(&b);
}

static bool sum_same(const Sum *x, const Sum *y) {
  if (x->n != y->n || x->base != y->base) return false;
  for (int i = 0; i < x->n; i++)
    if (!term_same(&x->at[i], &y->at[i])) return false;
  return true;
}

/* ---- back to an expression: positive terms by falling scale, base, negative terms ---- */
static ExprId term_expr(Arith *a, DType t, const Term *m) {
  IrCtx *c = a->c;
  ExprId e = m->x;
  if (m->upper) e = ex_fmod(c, e, ex_int(c, t, m->upper));
  return m->lower > 1 ? ex_fdiv(c, e, ex_int(c, t, m->lower)) : e;
}

static bool before(const Term *x, const Term *y) {
  if (x->scale != y->scale) return x->scale > y->scale;
  if (x->lower != y->lower) return x->lower > y->lower;
  uint64_t u = x->upper ? (uint64_t)x->upper : UINT64_MAX, v = y->upper ? (uint64_t)y->upper : UINT64_MAX;
  return u > v;
}

ExprId sum_expr(Arith *a, const Sum *s) {
  IrCtx *c = a->c;
  DType t = s->type;
  if (s->n == 0) return ex_int(c, t, s->base);
  Term few[SUM_FEW], *at = s->n <= SUM_FEW ? few : arena_array(c->arena, Term, s->n);
  for (int i = 0; i < s->n; i++) { /* insertion: stable */
    int j = i;
    for (; j > 0 && before(&s->at[i], &at[j - 1]); j--) at[j] = at[j - 1];
    at[j] = s->at[i];
  }
  ExprId e = 0;
  int i = 0;
  for (; i < s->n && at[i].scale > 0; i++) {
    ExprId m = ex_mul(c, term_expr(a, t, &at[i]), ex_int(c, t, at[i].scale));
    e = e ? ex_add(c, e, m) : m;
  }
  if (s->base > 0) e = e ? ex_add(c, e, ex_int(c, t, s->base)) : ex_int(c, t, s->base);
  bool base_first = !e && s->base < 0 && i < s->n; /* -3 - x, not 0 - x - 3 */
  if (!e) e = ex_int(c, t, base_first ? s->base : 0);
  for (; i < s->n; i++) e = ex_sub(c, e, ex_mul(c, term_expr(a, t, &at[i]), ex_int(c, t, -at[i].scale)));
  if (s->base < 0 && !base_first)
    e = s->base == INT32_MIN || s->base == INT64_MIN ? ex_add(c, e, ex_int(c, t, s->base))
                                                     : ex_sub(c, e, ex_int(c, t, -s->base));
  return e;
}

/* ---- division and modulo by a positive constant ---- */
static bool same_quotient(Bound b, int64_t k, int64_t *q) {
  if (b.lo == BOUND_MIN || b.hi == BOUND_MAX) return false;
  *q = i64_floordiv(b.lo, k);
  return *q == i64_floordiv(b.hi, k);
}

/* s = g*high + low with 0 <= low < g, for a proper divisor g of k; the largest g that works. */
static bool split_low(Arith *a, const Sum *s, int64_t k, int64_t *g, const Sum **high, const Sum **low) {
  int64_t last = k;
  for (;;) {
    int64_t best = 1; /* the next smaller candidate */
    for (int i = 0; i < s->n; i++) {
      int64_t d = i64_gcd(k, s->at[i].scale);
      if (d < last && d > best) best = d;
    }
    if (best == 1) return false;
    last = best;
    SumBuf h, r;
    sum_start(&h, a, s->type);
    sum_start(&r, a, s->type);
    for (int i = 0; i < s->n; i++) {
      const Term *t = &s->at[i];
      if (t->scale % best == 0)
        sum_term(&h, t->x, t->lower, t->upper, t->scale / best);
      else
        sum_term(&r, t->x, t->lower, t->upper, t->scale);
    }
    h.base = i64_floordiv(s->base, best);
    r.base = i64_floormod(s->base, best);
    int64_t q;
    const Sum *rs = sum_done(&r);
    if (!rs || !same_quotient(bound_sum(a, rs), best, &q)) continue;
    sum_base(&h, q, 1);
    if (q) {
      sum_start(&r, a, s->type);
      sum_add(&r, rs, 1);
      sum_base(&r, q, -best);
      rs = sum_done(&r);
    }
    *high = sum_done(&h);
    *low = rs;
    *g = best;
    if (*high && *low) return true;
  }
}

/* A single term s*(x mod U div L) as numerator where s divides k: what x, lower and upper bound its digits. */
static void cut_upper(Arith *a, DType type, const Term *t, int64_t cut, ExprId *x, int64_t *upper) {
  *x = t->x;
  *upper = t->upper;
  if (t->upper && !divides(cut, t->upper) && t->upper > cut) { /* the digits do not line up: x mod U is an atom */
    Term m = {t->x, 1, t->upper, 1};
    *x = term_expr(a, type, &m);
    *upper = 0;
  }
}

/* Not an atom, but a sum that stayed together under a division. */
static bool is_sum(Arith *a, ExprId x) {
  ExprKind k = ir_kind(a->c, x);
  if (k != IR_ADD && k != IR_SUB && k != IR_MUL && k != IR_FDIV && k != IR_FMOD) return false;
  const Sum *s = canon(a, x);
  return s->n != 1 || s->at[0].x != x;
}

static const Sum *sum_div(Arith *a, const Sum *s, int64_t k) {
  if (k == 1) return s;
  SumBuf q, r;
  sum_start(&q, a, s->type);
  sum_start(&r, a, s->type);
  for (int i = 0; i < s->n; i++) {
    const Term *t = &s->at[i];
    if (t->scale % k == 0)
      sum_term(&q, t->x, t->lower, t->upper, t->scale / k);
    else
      sum_term(&r, t->x, t->lower, t->upper, t->scale);
  }
  q.base = s->base / k; /* towards zero: what is left keeps its sign */
  r.base = s->base % k;
  const Sum *rest = sum_done(&r), *high, *low;
  if (!rest || sum_wraps(a, rest)) return NULL;
  int64_t v, g;
  const Term *t = rest->at;
  if (rest->n == 0)
    sum_base(&q, i64_floordiv(rest->base, k), 1);
  else if (same_quotient(bound_sum(a, rest), k, &v))
    sum_base(&q, v, 1);
  else if (rest->n == 1 && rest->base == 0 && t->scale > 0 && k % t->scale == 0 &&
           i64_mul(t->lower, k / t->scale, &v)) {
    ExprId x;
    int64_t upper;
    cut_upper(a, s->type, t, v, &x, &upper);
    if (!upper && x == t->x && is_sum(a, x)) { /* a longer division of the whole sum may find more */
      const Sum *d = sum_div(a, canon(a, x), v);
      if (!d) return NULL;
      sum_add(&q, d, 1);
    } else if (!upper || v < upper)
      sum_term(&q, x, v, upper, 1);
  } else if (split_low(a, rest, k, &g, &high, &low)) {
    const Sum *d = sum_div(a, high, k / g);
    if (!d) return NULL;
    sum_add(&q, d, 1);
  } else
    sum_term(&q, sum_expr(a, rest), k, 0, 1);
  return sum_done(&q);
}

const Sum *sum_mod(Arith *a, const Sum *s, int64_t k) {
  if (k == 1) return constant(a, s->type, 0);
  SumBuf r;
  sum_start(&r, a, s->type);
  /* Scales stay whole, as in sum_div: quotient and remainder must name the same sum to merge again. */
  for (int i = 0; i < s->n; i++) {
    const Term *t = &s->at[i];
    if (t->scale % k != 0) sum_term(&r, t->x, t->lower, t->upper, a->reduced ? t->scale % k : t->scale);
  }
  r.base = i64_floormod(s->base, k);
  const Sum *rest = sum_done(&r), *high, *low;
  if (!rest || rest->n == 0) return rest;
  if (sum_wraps(a, rest)) return NULL;
  int64_t v, g;
  const Term *t = rest->at;
  if (same_quotient(bound_sum(a, rest), k, &v)) {
    if (v == 0) return rest;
    sum_start(&r, a, s->type);
    sum_add(&r, rest, 1);
    sum_base(&r, v, -k);
    return sum_done(&r);
  }
  if (rest->n == 1 && rest->base == 0 && t->scale > 0 && k % t->scale == 0 && i64_mul(t->lower, k / t->scale, &v)) {
    ExprId x;
    int64_t upper;
    cut_upper(a, s->type, t, v, &x, &upper);
    if (upper && divides(upper, v) && upper <= v) return rest;
    if (!upper || divides(v, upper)) {
      if (x != t->x || !is_sum(a, x)) return single(a, s->type, x, t->lower, v, t->scale);
      const Sum *m = sum_mod(a, canon(a, x), v);
      if (m) m = sum_div(a, m, t->lower);
      if (!m) return NULL;
      sum_start(&r, a, s->type);
      sum_add(&r, m, t->scale);
      return sum_done(&r);
    }
  } else if (split_low(a, rest, k, &g, &high, &low)) {
    const Sum *m = sum_mod(a, high, k / g);
    if (!m) return NULL;
    sum_start(&r, a, s->type);
    sum_add(&r, m, g);
    sum_add(&r, low, 1);
    return sum_done(&r);
  }
  return single(a, s->type, sum_expr(a, rest), 1, k, 1);
}

/* ---- products and divisions with symbolic factors ---- */

/* x without one factor z, as an expression; 0 if z is no factor of it. */
static ExprId without_factor(IrCtx *c, ExprId x, ExprId z) {
  if (x == z) return ex_int(c, ir_type(c, x), 1);
  if (ir_kind(c, x) != IR_MUL) return 0;
  ExprId p = ir_kid(c, x, 0), q = ir_kid(c, x, 1), r;
  if ((r = without_factor(c, q, z)) != 0) return ex_mul(c, p, r);
  if ((r = without_factor(c, p, z)) != 0) return ex_mul(c, r, q);
  return 0;
}

static int64_t pull_scale(Arith *a, const Sum *s, ExprId *x) {
  if (s->n == 1 && s->base == 0) {
    *x = term_expr(a, s->type, s->at);
    return s->at[0].scale;
  }
  *x = sum_expr(a, s);
  return 1;
}

static const Sum *canon_mul(Arith *a, const Sum *p, const Sum *q) {
  SumBuf b;
  sum_start(&b, a, p->type);
  if (q->n == 0)
    sum_add(&b, p, q->base);
  else if (p->n == 0)
    sum_add(&b, q, p->base);
  else {
    ExprId kids[2];
    int64_t s = pull_scale(a, p, &kids[0]), t = pull_scale(a, q, &kids[1]), k;
    if (!i64_mul(s, t, &k)) return NULL;
    sum_term(&b, ctx_node(a->c, IR_MUL, p->type, 0, 2, kids, 0), 1, 0, k);
  }
  return sum_done(&b);
}

/* Numerator p over the symbolic q > 0: terms with the factor q leave as `whole`, the others stay in `rest`. */
static bool divide_symbolic(Arith *a, const Sum *p, const Sum *q, const Sum **whole, const Sum **rest) {
  ExprId z;
  int64_t k = pull_scale(a, q, &z);
  if (k <= 0) return false;
  SumBuf w, r;
  sum_start(&w, a, p->type);
  sum_start(&r, a, p->type);
  for (int i = 0; i < p->n; i++) {
    const Term *t = &p->at[i];
    ExprId f = t->scale % k == 0 ? without_factor(a->c, term_expr(a, p->type, t), z) : 0;
    if (f)
      sum_add(&w, canon(a, f), t->scale / k);
    else
      sum_term(&r, t->x, t->lower, t->upper, t->scale);
  }
  r.base = p->base;
  /* a divisor that is a sum: p may hold all of its terms */
  if (w.n == 0 && w.base == 0 && q->n + (q->base != 0) > 1) {
    for (int i = 0; i < p->n; i++)
      if (term_part(&p->at[i], &q->at[0]) && p->at[i].scale % q->at[0].scale == 0) {
        int64_t m = p->at[i].scale / q->at[0].scale;
        SumBuf d;
        sum_start(&d, a, p->type);
        sum_add(&d, p, 1);
        sum_add(&d, q, -m);
        const Sum *left = sum_done(&d);
        if (left && left->n == 0 && left->base == 0) {
          w.base = m;
          r.n = 0;
          r.base = 0;
        }
        break;
      }
  }
  *whole = sum_done(&w);
  *rest = sum_done(&r);
  return *whole && *rest;
}

static bool between_0_and(Arith *a, const Sum *r, const Sum *q) {
  if (r->n == 0 && r->base == 0) return true;
  const Sum *d = sum_diff(a, r, q);
  return d && bound_sum(a, r).lo >= 0 && decide(a, d, CMP_LT) == 1;
}

static const Sum *atom_of(Arith *a, ExprKind k, const Sum *p, const Sum *q) {
  ExprId kids[2] = {sum_expr(a, p), sum_expr(a, q)};
  if (q->n == 0 && q->base == 0) return single(a, p->type, ctx_node(a->c, k, p->type, 0, 2, kids, 0), 1, 0, 1);
  ExprId e = ex_bin(a->c, k, kids[0], kids[1]);
  return ir_kind(a->c, e) == k ? single(a, p->type, e, 1, 0, 1) : canon(a, e);
}

static bool of_data(Arith *a, const Sum *s) { /* it may be 0, where division tells */
  for (int i = 0; i < s->n; i++)
    if (ir_node(a->c, s->at[i].x)->data) return true;
  return false;
}

static const Sum *canon_div(Arith *a, ExprKind k, const Sum *p, const Sum *q) {
  if (p->n == 0 && p->base == 0) return p;
  if (sum_wraps(a, p) || sum_wraps(a, q)) return atom_of(a, k, p, q);
  bool mod = k == IR_FMOD;
  if (q->n == 0) {
    if (q->base > 0) return mod ? sum_mod(a, p, q->base) : sum_div(a, p, q->base);
    if (q->base == -1 && !mod) return canon_mul(a, p, q);
    if (p->n == 0 && q->base)
      return constant(a, p->type, mod ? i64_floormod(p->base, q->base) : i64_floordiv(p->base, q->base));
    return atom_of(a, k, p, q);
  }
  const Sum *whole, *rest;
  if (bound_sum(a, q).lo <= 0 || !divide_symbolic(a, p, q, &whole, &rest)) {
    if (sum_same(p, q) && mod && !of_data(a, q)) return constant(a, p->type, 0);
    return atom_of(a, k, p, q);
  }
  bool found = whole->n || whole->base;
  bool small = between_0_and(a, rest, q);
  if (mod) return small ? rest : atom_of(a, k, found ? rest : p, q);
  if (small) return whole;
  if (!found) return atom_of(a, k, p, q);
  SumBuf b;
  sum_start(&b, a, p->type);
  sum_add(&b, whole, 1);
  const Sum *tail = atom_of(a, k, rest, q);
  if (!tail) return NULL;
  sum_add(&b, tail, 1);
  return sum_done(&b);
}

/* Truncating division of numbers that are certainly not negative is floor division. */
static const Sum *canon_trunc(Arith *a, ExprKind k, const Sum *p, const Sum *q) {
  if (sum_wraps(a, p) || sum_wraps(a, q)) return atom_of(a, k, p, q);
  if (bound_sum(a, p).lo >= 0 && bound_sum(a, q).lo > 0) return canon_div(a, k == IR_DIV ? IR_FDIV : IR_FMOD, p, q);
  if (p->n == 0 && q->n == 0 && q->base && q->base != -1)
    return constant(a, p->type, k == IR_DIV ? p->base / q->base : p->base % q->base);
  if (q->n == 0 && q->base == 1) return k == IR_DIV ? p : constant(a, p->type, 0);
  return atom_of(a, k, p, q);
}

/* ---- casts between index types ---- */
static bool in_type(DType t, Bound b) { return t.bits >= 64 || (b.lo >= INT32_MIN && b.hi <= INT32_MAX); }

static const Sum *canon_cast(Arith *a, DType t, ExprId e) {
  const Sum *s = canon(a, e);
  bool ok = t.bits <= s->type.bits || !sum_wraps(a, s);
  if (t.bits < s->type.bits) { /* narrowing: every value on the way must fit */
    Bound total = {s->base, s->base};
    ok = in_type(t, total);
    for (int i = 0; ok && i < s->n; i++) {
      const Term *m = &s->at[i];
      Bound b = bound_term(a, m);
      Bound part = bound_scale(b, m->scale);
      total = bound_add(total, part);
      ok = in_type(t, bound_of(a, m->x)) && in_type(t, b) && in_type(t, part) && in_type(t, total) &&
           in_type(t, (Bound){m->lower, m->upper}) && in_type(t, (Bound){m->scale, m->scale});
    }
    ok = ok && in_type(t, bound_sum(a, s));
  }
  if (!ok) {
    ExprId x = sum_expr(a, s);
    return single(a, t, ctx_node(a->c, IR_CAST, t, 0, 1, &x, 0), 1, 0, 1);
  }
  SumBuf b;
  sum_start(&b, a, t);
  for (int i = 0; i < s->n; i++) {
    ExprId x = s->at[i].x;
    if (is_sum(a, x))
      x = sum_expr(a, canon(a, ctx_node(a->c, IR_CAST, t, 0, 1, &x, 0)));
    else if (ir_kind(a->c, x) == IR_CAST && dtype_eq(ir_type(a->c, ir_kid(a->c, x, 0)), t) && t.bits < s->type.bits)
      x = ir_kid(a->c, x, 0);
    else
      x = ex_cast(a->c, t, x);
    sum_term(&b, x, s->at[i].lower, s->at[i].upper, s->at[i].scale);
  }
  b.base = s->base;
  return sum_done(&b);
}

/* ---- the canonical form of any index expression ---- */
static const Sum *canon_var(Arith *a, ExprId e, const ExprNode *p) {
  VarFact *f = arith_var(a, p->sym);
  f->seen = true;
  if (f->value) return canon(a, f->value);
  return single(a, p->type, e, 1, 0, 1);
}

static const Sum *canon_arith(Arith *a, ExprKind k, ExprId x, ExprId y) {
  const Sum *p = canon(a, x), *q = canon(a, y), *r;
  if (k == IR_MUL)
    r = canon_mul(a, p, q);
  else if (k == IR_FDIV || k == IR_FMOD)
    r = canon_div(a, k, p, q);
  else if (k == IR_DIV || k == IR_MOD)
    r = canon_trunc(a, k, p, q);
  else {
    SumBuf b;
    sum_start(&b, a, p->type);
    sum_add(&b, p, 1);
    sum_add(&b, q, k == IR_SUB ? -1 : 1);
    r = sum_done(&b);
  }
  if (r) return r;
  ExprId kids[2] = {sum_expr(a, p), sum_expr(a, q)}; /* a constant overflows: leave the operation alone */
  return single(a, p->type, ctx_node(a->c, k, p->type, 0, 2, kids, 0), 1, 0, 1);
}

static void remember(Arith *a, ExprId e, const Sum *s) {
  ArMemo *m = arith_memo(a, e);
  m->sum = s;
  m->have |= HAVE_SUM;
}

const Sum *canon(Arith *a, ExprId e) {
  ArMemo *m = arith_memo(a, e);
  if (m->have & HAVE_SUM) return m->sum;
  IrCtx *c = a->c;
  const ExprNode *p = ir_node(c, e);
  ExprKind k = (ExprKind)p->kind;
  const Sum *s;
  if (k == IR_INT)
    s = constant(a, p->type, p->u.i);
  else if (k == IR_VAR)
    s = canon_var(a, e, p);
  else if (k >= IR_ADD && k <= IR_FMOD)
    s = canon_arith(a, k, ir_kid(c, e, 0), ir_kid(c, e, 1));
  else if (k == IR_CAST && arith_is_index(ir_type(c, ir_kid(c, e, 0))))
    s = canon_cast(a, p->type, ir_kid(c, e, 0));
  else {
    DType t = p->type;
    ExprId r = simp_atom(a, e);
    ExprKind rk = ir_kind(c, r);
    bool atom = rk > IR_FMOD && !(rk == IR_CAST && arith_is_index(ir_type(c, ir_kid(c, r, 0))));
    s = atom ? single(a, t, r, 1, 0, 1) : canon(a, r);
    if (atom && r != e) remember(a, r, s);
  }
  if (!s) s = single(a, ir_type(c, e), e, 1, 0, 1);
  /* what is left as an atom must be one when it comes again */
  if (s->n == 1 && s->base == 0 && s->at[0].scale == 1 && s->at[0].lower == 1 && !s->at[0].upper && s->at[0].x != e)
    remember(a, s->at[0].x, s);
  remember(a, e, s);
  return s;
}
