/* Deciding comparisons of a canonical sum with zero, in bounded time: constant bounds first; then the same after writing
 * (x div c)*c as x - x mod c where x appears elsewhere in the sum; then with one known condition eliminated; then with
 * variables replaced by the symbolic ends of their ranges; for equalities also residues. */
#include "ir/arith.h"

static int verdict(Bound b, Cmp op) {
  switch (op) {
  case CMP_LT: return b.hi < 0 ? 1 : b.lo >= 0 ? 0 : -1;
  case CMP_LE: return b.hi <= 0 ? 1 : b.lo > 0 ? 0 : -1;
  default: return b.lo == 0 && b.hi == 0 ? 1 : b.lo > 0 || b.hi < 0 ? 0 : -1;
  }
}

static const Sum *scratch(Arith *a, SumBuf *b, const Sum *s) {
  sum_start(b, a, s->type);
  b->wide = true;
  sum_add(b, s, 1);
  return s;
}

/* s*((x mod U) div L) with L | s, as (s/L)*(x mod U) - (s/L)*(x mod L) */
static bool expand_div(SumBuf *b, const Term *t) {
  if (t->lower == 1 || t->scale % t->lower) return false;
  Arith *a = b->a;
  int64_t k = t->scale / t->lower;
  sum_term(b, t->x, t->lower, t->upper, -t->scale);
  const Sum *x = canon(a, t->x), *m = sum_mod(a, x, t->lower);
  if (!m) return false;
  if (t->upper)
    sum_term(b, t->x, 1, t->upper, k);
  else
    sum_add(b, x, k);
  sum_add(b, m, -k);
  return true;
}

static Bound by_expansion(Arith *a, const Sum *d, Bound b) {
  SumBuf s;
  const Sum *r;
  int many = 0;
  for (int i = 0; i < d->n; i++) {
    scratch(a, &s, d);
    s.raw = true;
    if (!expand_div(&s, &d->at[i])) continue;
    many++;
    if ((r = sum_done(&s)) != NULL) b = bound_meet(b, bound_sum(a, r));
  }
  if (many < 2) return b;
  scratch(a, &s, d);
  s.raw = true;
  for (int i = 0; i < d->n; i++) expand_div(&s, &d->at[i]);
  if ((r = sum_done(&s)) != NULL) b = bound_meet(b, bound_sum(a, r));
  return b;
}

/* d = k*key + rest, for every known bound on a sum that shares a term with d */
static Bound by_facts(Arith *a, const Sum *d, Bound b) {
  for (int f = 0; f < a->sum.len; f++) {
    const SumFact *fact = &a->sum.at[f];
    int64_t done = 0;
    for (int i = 0; i < fact->key->n; i++)
      for (int j = 0; j < d->n; j++) {
        const Term *p = &fact->key->at[i], *q = &d->at[j];
        if (!term_part(p, q) || q->scale % p->scale) continue;
        int64_t k = q->scale / p->scale;
        if (k == done) continue;
        done = k;
        SumBuf s;
        scratch(a, &s, d);
        sum_add(&s, fact->key, -k);
        const Sum *rest = sum_done(&s);
        if (rest) b = bound_meet(b, bound_add(bound_sum(a, rest), bound_scale(a->sum.at[f].b, k)));
      }
  }
  return b;
}

/* The sum with every variable of symbolic range at the end that makes it smallest (low) or largest; NULL: none has one. */
static const Sum *at_ends(Arith *a, const Sum *d, bool low) {
  SumBuf s;
  scratch(a, &s, d);
  bool any = false;
  for (int i = 0; i < d->n; i++) {
    const Term *t = &d->at[i];
    if (t->lower != 1 || t->upper || ir_kind(a->c, t->x) != IR_VAR) continue;
    const VarFact *f = arith_var(a, ir_node(a->c, t->x)->sym);
    if (!f->min) continue;
    any = true;
    ExprId min = f->min, extent = f->extent;
    sum_term(&s, t->x, 1, 0, -t->scale);
    sum_add(&s, canon(a, min), t->scale);
    if ((t->scale > 0) == low) continue;
    sum_add(&s, canon(a, extent), t->scale);
    if (!i64_add(s.base, -t->scale, &s.base)) s.bad = true;
  }
  return any ? sum_done(&s) : NULL;
}

static Bound by_ranges(Arith *a, const Sum *d, Bound b) {
  const Sum *lo = d, *hi = d;
  for (int round = 0; round < 4 && (lo || hi); round++) {
    lo = lo ? at_ends(a, lo, true) : NULL;
    hi = hi ? at_ends(a, hi, false) : NULL;
    if (lo) b = bound_meet(b, (Bound){by_expansion(a, lo, bound_sum(a, lo)).lo, BOUND_MAX});
    if (hi) b = bound_meet(b, (Bound){BOUND_MIN, by_expansion(a, hi, bound_sum(a, hi)).hi});
  }
  return b;
}

int decide(Arith *a, const Sum *d, Cmp op) {
  Bound b = bound_sum(a, d);
  int v = verdict(b, op);
  if (v >= 0 || d->n == 0) return v;
  if (op == CMP_EQ) {
    Residue r = residue_sum(a, d);
    if (r.coeff != 1 && r.base != 0) return 0;
  }
  if (a->nest >= 2) return v;
  a->nest++;
  b = by_expansion(a, d, b);
  v = verdict(b, op);
  if (v < 0 && a->sum.len) v = verdict(b = by_facts(a, d, b), op);
  if (v < 0) v = verdict(by_ranges(a, d, b), op);
  a->nest--;
  return v;
}

bool ar_prove(Arith *a, ExprId cond) {
  arith_enter(a);
  int64_t v;
  ExprId e = simp(a, cond);
  return ex_const_int(a->c, e, &v) && v != 0;
}

static bool prove_cmp(Arith *a, ExprId x, ExprId y, Cmp op) {
  arith_enter(a);
  if (!arith_is_index(ir_type(a->c, x)) || !dtype_eq(ir_type(a->c, x), ir_type(a->c, y)))
    return ar_prove(a, ex_bin(a->c, op == CMP_EQ ? IR_EQ : op == CMP_LT ? IR_LT : IR_LE, x, y));
  const Sum *p = canon(a, x), *q = canon(a, y), *d = sum_diff(a, p, q);
  return d && decide(a, d, op) == 1;
}

bool ar_prove_eq(Arith *a, ExprId x, ExprId y) { return x == y || prove_cmp(a, x, y, CMP_EQ); }
