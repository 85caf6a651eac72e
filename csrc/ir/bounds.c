/* Facts, constant bounds and residues. An analyser knows of each variable its range or value, and keeps a stack of known
 * conditions. A condition on integers becomes a bound on the sum of its left side minus its right side (without the
 * constant), so `x - y < 3` is found again in `y - x`, `2*x - 2*y + 1` and so on.
 *
 * Results are remembered per expression in a table of the context, under the analyser's version number. A new fact gives
 * a new version; popping a condition brings the older version, and what was remembered under it, back. Binding a
 * variable that no result has met yet invalidates nothing, which is the common case on the way down a loop nest. */
#include "ir/arith.h"

#include <stdlib.h>
#include <string.h>

void arith_grow_memo(IrCtx *c) {
  c->memo = mem_realloc(c->err, c->memo, (size_t)c->cap.expr * sizeof *c->memo);
  memset(c->memo + c->cap_memo, 0, (size_t)(c->cap.expr - c->cap_memo) * sizeof *c->memo);
  c->cap_memo = c->cap.expr;
}

static uint32_t new_version(IrCtx *c) {
  if (++c->version == 0) { /* wrapped */
    if (c->memo) memset(c->memo, 0, (size_t)c->cap_memo * sizeof *c->memo);
    c->version = 1;
  }
  return c->version;
}

static void changed(Arith *a) { a->version = a->top = new_version(a->c); }

Arith *ar_new(IrCtx *c) {
  Arith *a = arena_new_of(c->arena, Arith);
  a->c = c;
  changed(a);
  a->epoch = c->epoch;
  a->cap_var = c->n.var + 32;
  a->var = arena_array(c->arena, VarFact, a->cap_var);
  return a;
}

void ar_reduce(Arith *a) {
  a->reduced = true;
  changed(a);
}

void arith_enter(Arith *a) {
  if (a->epoch == a->c->epoch) return;
  a->epoch = a->c->epoch;
  changed(a);
}

VarFact *arith_var(Arith *a, VarId v) {
  if (v >= a->cap_var) {
    int32_t cap = a->cap_var * 2 > v ? a->cap_var * 2 : v + 32;
    VarFact *p = arena_array(a->c->arena, VarFact, cap);
    memcpy(p, a->var, (size_t)a->cap_var * sizeof *p);
    a->var = p;
    a->cap_var = cap;
  }
  return a->var + v;
}

/* ---- saturating interval arithmetic; BOUND_MIN and BOUND_MAX are infinite ---- */
static bool inf(int64_t v) { return v == BOUND_MIN || v == BOUND_MAX; }

static int64_t sat_add(int64_t x, int64_t y) {
  if (inf(x)) return x;
  if (inf(y)) return y;
  int64_t r;
  if (!i64_add(x, y, &r)) return x > 0 ? BOUND_MAX : BOUND_MIN;
  return r;
}

static int64_t sat_mul(int64_t x, int64_t y) {
  if (x == 0 || y == 0) return 0;
  int64_t r;
  if (inf(x) || inf(y) || !i64_mul(x, y, &r)) return (x > 0) == (y > 0) ? BOUND_MAX : BOUND_MIN;
  return r;
}

static int64_t sat_div(int64_t x, int64_t y) { /* y not 0 */
  if (inf(y)) return inf(x) ? ((x > 0) == (y > 0) ? BOUND_MAX : BOUND_MIN) : (x != 0 && (x < 0) != (y < 0)) ? -1 : 0;
  if (inf(x)) return (x > 0) == (y > 0) ? BOUND_MAX : BOUND_MIN;
  return i64_floordiv(x, y);
}

static int64_t min64(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t max64(int64_t x, int64_t y) { return x > y ? x : y; }

static const Bound EVERYTHING = {BOUND_MIN, BOUND_MAX};

/* No lower end is infinitely large and no upper one infinitely small: what is added to it later must still count. */
static Bound bound_ends(int64_t lo, int64_t hi) {
  return (Bound){lo == BOUND_MAX ? BOUND_MAX - 1 : lo, hi == BOUND_MIN ? BOUND_MIN + 1 : hi};
}

Bound bound_add(Bound x, Bound y) { return bound_ends(sat_add(x.lo, y.lo), sat_add(x.hi, y.hi)); }

Bound bound_scale(Bound x, int64_t k) {
  int64_t p = sat_mul(x.lo, k), q = sat_mul(x.hi, k);
  return p <= q ? bound_ends(p, q) : bound_ends(q, p);
}

Bound bound_meet(Bound x, Bound y) {
  Bound r = {max64(x.lo, y.lo), min64(x.hi, y.hi)};
  return r.lo > r.hi ? x : r; /* contradicting facts: unreachable code, any answer will do */
}

static Bound corners(Bound x, Bound y, int64_t (*f)(int64_t, int64_t)) {
  int64_t p = f(x.lo, y.lo), q = f(x.lo, y.hi), r = f(x.hi, y.lo), s = f(x.hi, y.hi);
  return bound_ends(min64(min64(p, q), min64(r, s)), max64(max64(p, q), max64(r, s)));
}

static Bound hull(Bound x, Bound y) { return (Bound){min64(x.lo, y.lo), max64(x.hi, y.hi)}; }

static Bound bound_div(Bound x, Bound y) {
  if (y.lo > 0 || y.hi < 0) return corners(x, y, sat_div);
  Bound r = EVERYTHING;
  bool any = false;
  if (y.hi > 0) r = corners(x, (Bound){1, y.hi}, sat_div), any = true;
  if (y.lo < 0) {
    Bound n = corners(x, (Bound){y.lo, -1}, sat_div);
    r = any ? hull(r, n) : n;
  }
  return r;
}

static Bound bound_mod(Bound x, Bound y) {
  if (y.lo <= 0) return EVERYTHING;
  if (y.lo == y.hi && !inf(x.lo) && !inf(x.hi) && i64_floordiv(x.lo, y.lo) == i64_floordiv(x.hi, y.lo))
    return (Bound){i64_floormod(x.lo, y.lo), i64_floormod(x.hi, y.lo)};
  if (x.lo >= 0 && x.hi < y.lo) return x;
  int64_t top = inf(y.hi) ? BOUND_MAX : y.hi - 1;
  return (Bound){0, x.lo >= 0 ? min64(x.hi, top) : top};
}

static Bound bound_truncmod(Bound x, Bound y) {
  if (y.lo <= 0) return EVERYTHING;
  if (x.lo >= 0) return bound_mod(x, y);
  int64_t top = inf(y.hi) ? BOUND_MAX : y.hi - 1;
  return (Bound){inf(top) ? BOUND_MIN : -top, x.hi <= 0 ? 0 : top};
}

static Bound bound_type(DType t) {
  if (t.code == DT_UINT)
    return t.bits >= 63 ? (Bound){t.bits == 64 ? BOUND_MIN : 0, BOUND_MAX} : (Bound){0, ((int64_t)1 << t.bits) - 1};
  if (t.code != DT_INT || t.bits >= 64) return EVERYTHING;
  int64_t hi = ((int64_t)1 << (t.bits - 1)) - 1;
  return (Bound){-hi - 1, hi};
}

static bool within(Bound x, Bound y) { return x.lo >= y.lo && x.hi <= y.hi; }

/* ---- bounds ---- */
static Bound bound_var(Arith *a, VarId v, DType t) {
  VarFact *f = arith_var(a, v);
  f->seen = true;
  if (f->value) return bound_of(a, f->value);
  Bound b = bound_type(t);
  if (ir_var_info(a->c, v)->nonneg) b.lo = max64(b.lo, 0);
  return f->ranged ? bound_meet(b, f->range) : b;
}

static Bound bound_call(Arith *a, const ExprNode *p, const ExprId *k) {
  Bound t = bound_type(p->type), x, y;
  ExprId k0 = p->n > 0 ? k[0] : 0, k1 = p->n > 1 ? k[1] : 0, k2 = p->n > 2 ? k[2] : 0;
  switch ((Intrin)p->sym) {
  case IN_IF_THEN_ELSE: x = bound_of(a, k1); return bound_meet(hull(x, bound_of(a, k2)), t);
  case IN_LIKELY: return bound_of(a, k0);
  case IN_INDEX: return (Bound){0, max64(bound_of(a, k1).hi - 1, 0)};
  case IN_BAND:
    x = bound_of(a, k0), y = bound_of(a, k1);
    if (x.lo >= 0 && y.lo >= 0) return (Bound){0, min64(x.hi, y.hi)};
    if (x.lo >= 0) return (Bound){0, x.hi};
    return y.lo >= 0 ? (Bound){0, y.hi} : t;
  case IN_SHR:
    x = bound_of(a, k0), y = bound_of(a, k1);
    if (y.lo == y.hi && y.lo >= 0 && y.lo < 62) return bound_div(x, (Bound){(int64_t)1 << y.lo, (int64_t)1 << y.lo});
    return x.lo >= 0 ? (Bound){0, x.hi} : t;
  case IN_SHL:
    x = bound_of(a, k0), y = bound_of(a, k1);
    if (y.lo == y.hi && y.lo >= 0 && y.lo < 31) {
      Bound r = bound_scale(x, (int64_t)1 << y.lo);
      return r.lo >= t.lo && r.hi <= t.hi ? r : t;
    }
    return t;
  default: return t;
  }
}

/* By the kind of the node; sums of index type come through bound_sum instead. */
static Bound bound_node(Arith *a, ExprId e) {
  const ExprNode *p = ir_node(a->c, e);
  const ExprId *k = ir_kids(a->c, e);
  DType type = p->type;
  ExprKind kind = (ExprKind)p->kind;
  Bound t = bound_type(type), x, y;
  if (kind == IR_INT) return bound_ends(p->u.i, p->u.i);
  if (kind == IR_VAR) return bound_var(a, p->sym, type);
  if (kind == IR_BCAST) return bound_of(a, k[0]);
  if (kind == IR_CALL) return bound_call(a, p, k);
  if (kind == IR_CAST) {
    DType from = ir_type(a->c, k[0]);
    if (from.code != DT_INT && from.code != DT_UINT) return t;
    x = bound_of(a, k[0]);
    return within(x, t) ? x : t;
  }
  if (type.code != DT_INT && type.code != DT_UINT) return EVERYTHING;
  if (kind == IR_SELECT) {
    ExprId k2 = k[2];
    x = bound_of(a, k[1]), y = bound_of(a, k2);
    return hull(x, y);
  }
  if (kind < IR_ADD || kind > IR_MAX) return t;
  ExprId k1 = k[1];
  x = bound_of(a, k[0]), y = bound_of(a, k1);
  Bound r = t;
  switch (kind) {
  case IR_ADD: r = bound_add(x, y); break;
  case IR_SUB: r = bound_add(x, bound_scale(y, -1)); break;
  case IR_MUL: r = corners(x, y, sat_mul); break;
  case IR_DIV:
    if (x.lo >= 0 && y.lo >= 0)
      r = bound_div(x, y);
    else if (!inf(x.lo) && !inf(x.hi))
      r = (Bound){-max64(-x.lo, max64(x.hi, 0)), max64(max64(-x.lo, 0), x.hi)};
    if (r.lo > r.hi) r = t;
    break;
  case IR_FDIV: r = bound_div(x, y); break;
  case IR_FMOD: r = bound_mod(x, y); break;
  case IR_MOD: r = bound_truncmod(x, y); break;
  case IR_MIN: return (Bound){min64(x.lo, y.lo), min64(x.hi, y.hi)};
  case IR_MAX: return (Bound){max64(x.lo, y.lo), max64(x.hi, y.hi)};
  default: return t;
  }
  if (type.code == DT_UINT || type.bits < 32) return r.lo >= t.lo && r.hi <= t.hi ? r : t; /* may wrap */
  return r;
}

Bound bound_of(Arith *a, ExprId e) {
  ArMemo *m = arith_memo(a, e);
  if (m->have & HAVE_BOUND) return m->bound;
  Bound b;
  if (!arith_is_index(ir_type(a->c, e)) || ir_node(a->c, e)->kind == IR_INT)
    b = bound_node(a, e);
  else {
    const Sum *s = canon(a, e);
    if (s->n == 1 && s->at[0].x == e) { /* an atom: else this would never end */
      b = bound_node(a, e);
      m = arith_memo(a, e);
      m->bound = b;
      m->have |= HAVE_BOUND;
    }
    b = bound_sum(a, s);
  }
  if (ir_node(a->c, e)->data && !within(b, bound_type(ir_type(a->c, e)))) b = bound_type(ir_type(a->c, e));
  m = arith_memo(a, e);
  m->bound = b;
  m->have |= HAVE_BOUND;
  return b;
}

Bound bound_term(Arith *a, const Term *t) {
  Bound b = bound_of(a, t->x);
  if (t->upper) b = bound_mod(b, (Bound){t->upper, t->upper});
  if (t->lower > 1) b = (Bound){sat_div(b.lo, t->lower), sat_div(b.hi, t->lower)};
  return b;
}

/* s = k * key + base? */
bool bound_matches(const Sum *s, const Sum *key, int64_t *k) {
  if (s->n != key->n) return false;
  *k = 0;
  for (int i = 0; i < key->n; i++) {
    const Term *f = &key->at[i];
    int j = 0;
    while (j < s->n && !term_part(&s->at[j], f)) j++;
    if (j == s->n || s->at[j].scale % f->scale) return false;
    int64_t q = s->at[j].scale / f->scale;
    if (*k == 0) *k = q;
    if (q != *k) return false;
  }
  return *k != 0;
}

Bound bound_sum(Arith *a, const Sum *s) {
  Bound b = {0, 0};
  for (int i = 0; i < s->n; i++) b = bound_add(b, bound_scale(bound_term(a, &s->at[i]), s->at[i].scale));
  for (int i = 0; s->n && i < a->sum.len; i++) {
    int64_t k;
    if (bound_matches(s, a->sum.at[i].key, &k)) b = bound_meet(b, bound_scale(a->sum.at[i].b, k));
  }
  return bound_add(b, bound_ends(s->base, s->base));
}

/* Indices do not leave their type: programs are refused whose indices could. Data may be anything. */
bool sum_wraps(Arith *a, const Sum *s) {
  bool data = false, alone = s->n == 1 && s->at[0].scale == 1 && s->base == 0;
  for (int i = 0; i < s->n && !alone; i++) data = data || ir_node(a->c, s->at[i].x)->data;
  if (!data) return false;
  Bound b = bound_sum(a, s);
  return !within(b, bound_type(s->type)) || b.lo == BOUND_MIN || b.hi == BOUND_MAX;
}

Bound ar_bound(Arith *a, ExprId e) {
  arith_enter(a);
  return bound_of(a, e);
}

/* ---- residues ---- */
static const Residue ANY = {1, 0};

static Residue res_norm(int64_t coeff, int64_t base) {
  if (coeff < 0) coeff = coeff == INT64_MIN ? 1 : -coeff;
  return coeff ? (Residue){coeff, i64_floormod(base, coeff)} : (Residue){0, base};
}

static Residue res_union(Residue x, Residue y) {
  int64_t d;
  if (__builtin_sub_overflow(x.base, y.base, &d)) return ANY;
  return res_norm(i64_gcd(i64_gcd(x.coeff, y.coeff), d), x.base);
}

static Residue res_add(Residue x, Residue y) {
  int64_t b;
  return i64_add(x.base, y.base, &b) ? res_norm(i64_gcd(x.coeff, y.coeff), b) : ANY;
}

static Residue res_mul(Residue x, Residue y) {
  int64_t p, q, r, b;
  if (!i64_mul(x.coeff, y.coeff, &p) || !i64_mul(x.coeff, y.base, &q) || !i64_mul(x.base, y.coeff, &r) ||
      !i64_mul(x.base, y.base, &b))
    return ANY;
  return res_norm(i64_gcd(i64_gcd(p, q), r), b);
}

static Residue res_term(Arith *a, const Term *t) {
  Residue r = residue_of(a, t->x);
  if (t->upper)
    r = r.coeff == 0 ? (Residue){0, i64_floormod(r.base, t->upper)} : res_norm(i64_gcd(r.coeff, t->upper), r.base);
  if (t->lower > 1) r = r.coeff % t->lower == 0 ? res_norm(r.coeff / t->lower, i64_floordiv(r.base, t->lower)) : ANY;
  return res_mul(r, (Residue){0, t->scale});
}

Residue residue_sum(Arith *a, const Sum *s) {
  Residue r = {0, s->base};
  for (int i = 0; i < s->n; i++) r = res_add(r, res_term(a, &s->at[i]));
  return r;
}

/* Chinese remainder of two residues of one value; falls back to the finer one. */
static Residue res_meet(Residue x, Residue y) {
  if (x.coeff == 0) return x;
  if (y.coeff == 0) return y;
  int64_t m;
  if (!i64_mul(x.coeff / i64_gcd(x.coeff, y.coeff), y.coeff, &m) || y.coeff / i64_gcd(x.coeff, y.coeff) > 4096)
    return x.coeff >= y.coeff ? x : y;
  for (int64_t v = x.base; v < m; v += x.coeff)
    if (v % y.coeff == y.base) return (Residue){m, v};
  return x;
}

static Residue res_node(Arith *a, ExprId e) {
  const ExprNode *p = ir_node(a->c, e);
  const ExprId *k = ir_kids(a->c, e);
  ExprId k0 = p->n > 0 ? k[0] : 0, k1 = p->n > 1 ? k[1] : 0, k2 = p->n > 2 ? k[2] : 0;
  Residue r = ANY;
  switch ((ExprKind)p->kind) {
  case IR_INT: return (Residue){0, p->u.i};
  case IR_VAR: {
    VarFact *f = arith_var(a, p->sym);
    f->seen = true;
    if (f->value) return residue_of(a, f->value);
    if (f->ranged && f->range.lo == f->range.hi) return (Residue){0, f->range.lo};
    break;
  }
  case IR_MUL:
    r = residue_of(a, k0);
    r = res_mul(r, residue_of(a, k1));
    break;
  case IR_MIN:
  case IR_MAX:
    r = residue_of(a, k0);
    r = res_union(r, residue_of(a, k1));
    break;
  case IR_SELECT:
    r = residue_of(a, k1);
    r = res_union(r, residue_of(a, k2));
    break;
  case IR_CAST:
    if (arith_is_index(ir_type(a->c, k0)) && arith_is_index(p->type)) r = residue_of(a, k0);
    break;
  case IR_CALL:
    if (p->sym == IN_LIKELY) return residue_of(a, k0);
    if (p->sym == IN_IF_THEN_ELSE) r = residue_of(a, k1), r = res_union(r, residue_of(a, k2));
    break;
  default: break;
  }
  for (int i = 0; i < a->res.len; i++)
    if (a->res.at[i].x == e) r = res_meet(r, a->res.at[i].r);
  return r;
}

Residue residue_of(Arith *a, ExprId e) {
  if (!arith_is_index(ir_type(a->c, e))) return ANY;
  ArMemo *m = arith_memo(a, e);
  if (m->have & HAVE_RES) return m->res;
  const Sum *s = canon(a, e);
  Residue r = s->n == 1 && s->at[0].x == e ? res_node(a, e) : residue_sum(a, s);
  m = arith_memo(a, e);
  m->res = r;
  m->have |= HAVE_RES;
  return r;
}

Residue ar_residue(Arith *a, ExprId e) {
  arith_enter(a);
  return residue_of(a, e);
}

/* ---- facts about variables ---- */
void ar_bind_value(Arith *a, VarId v, ExprId value) {
  arith_enter(a);
  value = simp(a, value);
  bool circular = ex_uses_var(a->c, value, v); /* says nothing: all that is left is a variable without facts */
  VarFact *f = arith_var(a, v);
  bool seen = f->seen;
  *f = (VarFact){.seen = true, .value = circular ? 0 : value};
  if (seen) changed(a);
}

void ar_bind_range(Arith *a, VarId v, ExprId min, ExprId extent) {
  arith_enter(a);
  IrCtx *c = a->c;
  min = simp(a, min);
  extent = simp(a, extent);
  if (ex_is_int(c, extent, 1)) {
    ar_bind_value(a, v, ex_cast(c, ir_var_info(c, v)->type, min));
    return;
  }
  Bound lo = bound_of(a, min), n = bound_of(a, extent);
  VarFact *f = arith_var(a, v);
  bool seen = f->seen;
  *f = (VarFact){.seen = seen, .ranged = true};
  f->range.lo = lo.lo;
  f->range.hi = inf(lo.hi) || inf(n.hi) ? BOUND_MAX : sat_add(lo.hi, n.hi - 1);
  if (f->range.hi < f->range.lo) f->range.hi = f->range.lo; /* an empty range: nothing is ever asked about it */
  if (lo.lo != lo.hi || n.lo != n.hi) {
    f->min = min;
    f->extent = extent;
  }
  if (seen) changed(a);
}

/* ---- known conditions ---- */
static void know_literal(Arith *a, ExprId cond, bool value) {
  LitFact f = {cond, value};
  vec_push(a->c->arena, &a->lit, f);
}

/* d + base <= 0 (LE), or == 0 (EQ), for the sum d */
static void know_sum(Arith *a, const Sum *d, bool equal) {
  int64_t g = 0;
  for (int i = 0; i < d->n; i++) g = i64_gcd(g, d->at[i].scale);
  if (d->n == 0 || g == 0 || d->base == INT64_MIN) return;
  bool flip = d->at[0].scale < 0;
  Sum *key = arena_copy(a->c->arena, d, sizeof *d + sizeof(Term) * (size_t)d->n);
  key->base = 0;
  for (int i = 0; i < key->n; i++) key->at[i].scale = flip ? -(key->at[i].scale / g) : key->at[i].scale / g;
  int64_t k = -d->base; /* g * (+-key) <= k */
  Bound b = {BOUND_MIN, BOUND_MAX};
  if (equal && k % g == 0)
    b.lo = b.hi = flip ? -(k / g) : k / g;
  else if (flip)
    b.lo = -i64_floordiv(k, g);
  else
    b.hi = i64_floordiv(k, g);
  SumFact f = {key, b};
  vec_push(a->c->arena, &a->sum, f);
  if (equal && d->n == 1 && d->at[0].upper && d->at[0].lower == 1 && b.lo >= 0 && b.lo < d->at[0].upper) {
    ResFact r = {d->at[0].x, {d->at[0].upper, b.lo}};
    vec_push(a->c->arena, &a->res, r);
  }
}

static void know(Arith *a, ExprId cond) {
  IrCtx *c = a->c;
  const ExprNode *p = ir_node(c, cond);
  if (p->kind == IR_INT) return;
  ExprId x = p->n > 0 ? ir_kid(c, cond, 0) : 0, y = p->n > 1 ? ir_kid(c, cond, 1) : 0;
  ExprKind k = (ExprKind)p->kind;
  if (k == IR_AND || (k == IR_CALL && p->sym == IN_LIKELY)) {
    know(a, x);
    if (k == IR_AND) know(a, y);
    return;
  }
  know_literal(a, cond, true);
  if (k == IR_NOT) know_literal(a, x, false);
  if (!ir_is_compare(k)) return;
  static const ExprKind OPPOSITE[] = {IR_NE, IR_EQ, IR_GE, IR_GT, IR_LE, IR_LT};
  ExprKind o = OPPOSITE[k - IR_EQ]; /* as the rules write it: LT and LE only */
  know_literal(a,
               o == IR_GE   ? ex_bin(c, IR_LE, y, x)
               : o == IR_GT ? ex_bin(c, IR_LT, y, x)
                            : ex_bin(c, o, x, y),
               false);
  if (!arith_is_index(ir_type(c, x)) || k == IR_NE) return;
  const Sum *p0 = canon(a, x), *q0 = canon(a, y),
            *d = k == IR_GT || k == IR_GE ? sum_diff(a, q0, p0) : sum_diff(a, p0, q0);
  if (!d) return;
  if (k == IR_LT || k == IR_GT) { /* d < 0 is d + 1 <= 0 */
    Sum *e = arena_copy(c->arena, d, sizeof *d + sizeof(Term) * (size_t)d->n);
    if (!i64_add(e->base, 1, &e->base)) return;
    d = e;
  }
  know_sum(a, d, k == IR_EQ);
}

void ar_push(Arith *a, ExprId cond) {
  arith_enter(a);
  Level l = {a->sum.len, a->res.len, a->lit.len, a->version, a->top, a->epoch};
  vec_push(a->c->arena, &a->level, l);
  ExprId s = simp(a, cond);
  int before = a->lit.len;
  uint32_t outer = a->version;
  if (ir_kind(a->c, s) == IR_AND || ir_kind(a->c, s) == IR_CALL)
    a->version = new_version(a->c); /* the second part is looked at while the first is known: not to be remembered */
  know(a, s);
  a->version = a->lit.len != before ? new_version(a->c) : outer;
}

void ar_pop(Arith *a) {
  err_assert(a->c->err, a->level.len > 0);
  Level l = a->level.at[--a->level.len];
  bool same = a->lit.len == l.n_lit && a->top == l.top;
  a->sum.len = l.n_sum;
  a->res.len = l.n_res;
  a->lit.len = l.n_lit;
  if (l.epoch != a->c->epoch || a->top != l.top) {
    a->epoch = a->c->epoch;
    changed(a);
  } else if (!same) {
    a->version = l.version;
  }
}
