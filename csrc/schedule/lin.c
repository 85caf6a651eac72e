/* Linear forms: addition, products, and division with the cancellations that loop splitting and fusing call for.
 *
 * Division by a constant d first moves out all terms whose coefficient is a multiple of d. What stays is zero if its
 * bounds say so; otherwise a common divisor is taken out if the other terms are too small to matter (7*x + y with
 * y < 7, divided by 49, is x div 7). Nested divisions and remainders of one index x are kept in one canonical shape,
 * (x mod u) div l, and neighbouring digits of x add up again: (x mod 32 div 16)*16 + x mod 16 is x mod 32.
 */
#include "schedule/lin.h"
#include <string.h>

/* literal: int32 where it fits, else int64 */
static ExprId ex_index(IrCtx *c, int64_t v) {
  return v >= INT32_MIN && v <= INT32_MAX ? ex_i32(c, v) : ex_int(c, DT_I64, v);
}

void lin_init(LinCtx *L, IrCtx *c) {
  memset(L, 0, sizeof(*L));
  L->ctx = c;
  L->m = ir_arena(c);
  L->err = ir_err(c);
  mapu_init(&L->form, L->m);
  mapu_init(&L->range, L->m);
}

/* A table and no map: each loop of each candidate is bound. Terms are ordered by the age of their atoms, so the variable becomes
 * an atom now. */
void lin_bind(LinCtx *L, VarId v, Bound b) {
  ex_var(L->ctx, v);
  if (v >= L->n_var) {
    int32_t n = ir_mark(L->ctx).n.var;
    Bound *p = arena_array(L->m, Bound, n);
    if (L->n_var) memcpy(p, L->of_var, sizeof *p * (size_t)L->n_var);
    for (int32_t i = L->n_var; i < n; i++) p[i].lo = BOUND_MAX;
    L->of_var = p, L->n_var = n;
  }
  L->of_var[v] = b;
}

static void remember(LinCtx *L, ExprId e, Lin a) { vec_note(L->m, &L->forms, a, &L->form, e); }

static int64_t cmul(LinCtx *L, int64_t a, int64_t b) {
  int64_t r = 0;
  err_check(L->err, i64_mul(a, b, &r), "an index expression overflows 64 bits");
  return r;
}

static int64_t cadd(LinCtx *L, int64_t a, int64_t b) {
  int64_t r = 0;
  err_check(L->err, i64_add(a, b, &r), "an index expression overflows 64 bits");
  return r;
}

Lin lin_atom(LinCtx *L, ExprId atom) {
  LinTerm *t = arena_alloc(L->m, sizeof(LinTerm));
  *t = (LinTerm){atom, 1};
  return (Lin){0, 1, t};
}

bool lin_eq(Lin a, Lin b) {
  return a.c == b.c && a.n == b.n && (a.t == b.t || !a.n || !memcmp(a.t, b.t, sizeof(LinTerm) * (size_t)a.n));
}

/* ---- digits: (x mod u) div l; u 0: no remainder is taken ---- */

typedef struct {
  ExprId x;
  int64_t u, l;
} Digit;

static bool digit_of(LinCtx *L, ExprId atom, Digit *d) {
  const IrCtx *c = L->ctx;
  int64_t v = 0;
  ExprKind k = ir_kind(c, atom);
  if ((k != IR_FDIV && k != IR_FMOD) || !ex_const_int(c, ir_kid(c, atom, 1), &v)) return false;
  ExprId x = ir_kid(c, atom, 0);
  *d = k == IR_FMOD ? (Digit){x, v, 1} : (Digit){x, 0, v};
  if (k == IR_FDIV && ir_kind(c, x) == IR_FMOD && ex_const_int(c, ir_kid(c, x, 1), &v))
    d->u = v, d->x = ir_kid(c, x, 0);
  return true;
}

static Lin merge_digits(LinCtx *L, Lin a) {
  Digit d[2];
  for (int i = 0; i < a.n; i++) {
    if (!digit_of(L, a.t[i].atom, &d[0])) continue;
    for (int j = 0; j < a.n; j++) {
      if (i == j || !digit_of(L, a.t[j].atom, &d[1]) || d[0].x != d[1].x) continue;
      int64_t hi = a.t[i].k, lo = a.t[j].k; /* is i the digit directly above j? */
      if (d[0].l != d[1].u || d[1].u % d[1].l || hi != cmul(L, lo, d[1].u / d[1].l)) continue;
      Lin x = lin_of(L, d[0].x);
      if (d[0].u) x = lin_fmod(L, x, lin_const(d[0].u));
      x = lin_scale(L, lin_fdiv(L, x, lin_const(d[1].l)), lo);
      LinTerm *rest = arena_array(L->m, LinTerm, a.n);
      int n = 0;
      for (int k = 0; k < a.n; k++)
        if (k != i && k != j) rest[n++] = a.t[k];
      return lin_add(L, (Lin){a.c, n, rest}, x);
    }
  }
  return a;
}

/* ---- sums and products ---- */

static Lin combine(LinCtx *L, Lin a, Lin b, int64_t kb) { /* a + kb*b */
  Lin r = {.c = cadd(L, a.c, cmul(L, b.c, kb))};
  if (!b.n) return (Lin){r.c, a.n, a.t};
  if (!a.n && kb == 1) return (Lin){r.c, b.n, b.t};
  LinTerm *t = arena_array(L->m, LinTerm, a.n + b.n);
  int i = 0, j = 0, digits = 0;
  while (i < a.n || j < b.n) {
    LinTerm x;
    if (j == b.n || (i < a.n && a.t[i].atom < b.t[j].atom))
      x = a.t[i++];
    else if (i == a.n || b.t[j].atom < a.t[i].atom)
      x = (LinTerm){b.t[j].atom, cmul(L, b.t[j].k, kb)}, j++;
    else
      x = (LinTerm){a.t[i].atom, cadd(L, a.t[i].k, cmul(L, b.t[j].k, kb))}, i++, j++;
    if (!x.k) continue;
    ExprKind k = ir_kind(L->ctx, x.atom);
    digits += k == IR_FDIV || k == IR_FMOD;
    t[r.n++] = x;
  }
  r.t = t;
  return digits > 1 ? merge_digits(L, r) : r;
}

Lin lin_add(LinCtx *L, Lin a, Lin b) { return combine(L, a, b, 1); }
Lin lin_sub(LinCtx *L, Lin a, Lin b) { return combine(L, a, b, -1); }
Lin lin_addc(LinCtx *L, Lin a, int64_t c) { return (Lin){cadd(L, a.c, c), a.n, a.t}; }

Lin lin_scale(LinCtx *L, Lin a, int64_t k) {
  if (k == 1) return a;
  if (k == 0) return lin_const(0);
  LinTerm *t = arena_array(L->m, LinTerm, a.n);
  for (int i = 0; i < a.n; i++) t[i] = (LinTerm){a.t[i].atom, cmul(L, a.t[i].k, k)};
  return (Lin){cmul(L, a.c, k), a.n, t};
}

enum { MAX_FACTORS = 16 };
static int factors(IrCtx *c, ExprId e, ExprId *out, int n) { /* of a product of symbols */
  while (ir_kind(c, e) == IR_MUL && n < MAX_FACTORS - 1) {
    n = factors(c, ir_kid(c, e, 1), out, n);
    e = ir_kid(c, e, 0);
  }
  if (n < MAX_FACTORS) out[n++] = e;
  return n;
}

static ExprId product_of(IrCtx *c, ExprId *f, int n) {
  for (int i = 1; i < n; i++)
    for (int j = i; j > 0 && f[j] < f[j - 1]; j--) {
      ExprId x = f[j];
      f[j] = f[j - 1];
      f[j - 1] = x;
    }
  ExprId e = f[0];
  for (int i = 1; i < n; i++) e = ex_mul(c, e, f[i]);
  return e;
}

Lin lin_mul(LinCtx *L, Lin a, Lin b) {
  if (!a.n) return lin_scale(L, b, a.c);
  if (!b.n) return lin_scale(L, a, b.c);
  Lin r = lin_add(L, lin_scale(L, a, b.c), lin_scale(L, (Lin){0, b.n, b.t}, a.c));
  for (int i = 0; i < a.n; i++)
    for (int j = 0; j < b.n; j++) {
      ExprId f[MAX_FACTORS];
      int n = factors(L->ctx, a.t[i].atom, f, 0);
      n = factors(L->ctx, b.t[j].atom, f, n);
      r = combine(L, r, lin_atom(L, product_of(L->ctx, f, n)), cmul(L, a.t[i].k, b.t[j].k));
    }
  return r;
}

/* ---- bounds ---- */

static const Bound ANY = {BOUND_MIN, BOUND_MAX};

static Bound bound_calc(LinCtx *L, ExprId e) {
  IrCtx *c = L->ctx;
  int64_t d = 0;
  ExprKind k = ir_kind(c, e);
  if (k == IR_VAR) return ir_var_info(c, (VarId)ir_node(c, e)->sym)->nonneg ? (Bound){0, BOUND_MAX} : ANY;
  if ((k == IR_FDIV || k == IR_FMOD) && ex_const_int(c, ir_kid(c, e, 1), &d) && d > 0) {
    Bound b = lin_bound(L, lin_of(L, ir_kid(c, e, 0)));
    if (k == IR_FDIV)
      return (Bound){b.lo == BOUND_MIN ? b.lo : i64_floordiv(b.lo, d),
                     b.hi == BOUND_MAX ? b.hi : i64_floordiv(b.hi, d)};
    return b.lo >= 0 && b.hi < d ? b : (Bound){0, b.lo >= 0 && b.hi < d ? b.hi : d - 1};
  }
  if (k == IR_MIN || k == IR_MAX) {
    Bound x = lin_bound(L, lin_of(L, ir_kid(c, e, 0))), y = lin_bound(L, lin_of(L, ir_kid(c, e, 1)));
    bool lo = k == IR_MIN ? x.lo < y.lo : x.lo > y.lo, hi = k == IR_MIN ? x.hi < y.hi : x.hi > y.hi;
    return (Bound){lo ? x.lo : y.lo, hi ? x.hi : y.hi};
  }
  if (k == IR_MUL) { /* a product of symbols */
    ExprId f[MAX_FACTORS];
    int n = factors(c, e, f, 0);
    bool nonneg = true;
    for (int i = 0; i < n; i++) nonneg &= lin_bound(L, lin_atom(L, f[i])).lo >= 0;
    return nonneg ? (Bound){0, BOUND_MAX} : ANY;
  }
  return ANY;
}

static Bound atom_bound(LinCtx *L, ExprId e) {
  const ExprNode *n = ir_node(L->ctx, e);
  if (n->kind == IR_VAR) {
    bool bound = n->sym < L->n_var && L->of_var[n->sym].lo != BOUND_MAX;
    return bound ? L->of_var[n->sym] : bound_calc(L, e);
  }
  int i = mapu_get(&L->range, (uint64_t)e, -1);
  if (i >= 0) return L->ranges.at[i];
  Bound b = bound_calc(L, e);
  vec_note(L->m, &L->ranges, b, &L->range, e);
  return b;
}

/* What bound_add and bound_scale of ir do, in place: calling them costs 1 % of bound inference. */
Bound lin_bound(LinCtx *L, Lin a) {
  Bound r = {a.c, a.c};
  for (int i = 0; i < a.n; i++) {
    Bound b = atom_bound(L, a.t[i].atom);
    int64_t k = a.t[i].k, lo = k > 0 ? b.lo : b.hi, hi = k > 0 ? b.hi : b.lo;
    if (r.lo != BOUND_MIN && (lo == BOUND_MIN || lo == BOUND_MAX || !i64_mul(lo, k, &lo) || !i64_add(r.lo, lo, &r.lo)))
      r.lo = BOUND_MIN;
    if (r.hi != BOUND_MAX && (hi == BOUND_MIN || hi == BOUND_MAX || !i64_mul(hi, k, &hi) || !i64_add(r.hi, hi, &r.hi)))
      r.hi = BOUND_MAX;
  }
  return r;
}

bool lin_le(LinCtx *L, Lin a, Lin b) { return lin_bound(L, lin_sub(L, b, a)).lo >= 0; }

static Lin pick(LinCtx *L, Lin a, Lin b, ExprKind k) {
  if (lin_le(L, a, b)) return k == IR_MIN ? a : b;
  if (lin_le(L, b, a)) return k == IR_MIN ? b : a;
  return lin_of(L, ex_bin(L->ctx, k, lin_expr(L, a), lin_expr(L, b)));
}
Lin lin_min(LinCtx *L, Lin a, Lin b) { return pick(L, a, b, IR_MIN); }
Lin lin_max(LinCtx *L, Lin a, Lin b) { return pick(L, a, b, IR_MAX); }

/* ---- division ---- */

static Lin opaque(LinCtx *L, ExprKind k, Lin a, Lin b) {
  ExprId x = lin_expr(L, a);
  if (mapu_get(&L->form, (uint64_t)x, -1) < 0) remember(L, x, a);
  ExprId e = ex_bin(L->ctx, k, x, lin_expr(L, b));
  int64_t v;
  return ex_const_int(L->ctx, e, &v) ? lin_const(v) : lin_atom(L, e);
}

/* Splits a into terms divisible by g (`big`, divided) and the rest (`low`, constant in [0, g)). */
static void part(LinCtx *L, Lin a, int64_t g, Lin *big, Lin *low) {
  LinTerm *tb = arena_array(L->m, LinTerm, a.n), *tl = arena_array(L->m, LinTerm, a.n);
  *big = (Lin){i64_floordiv(a.c, g), 0, tb};
  *low = (Lin){i64_floormod(a.c, g), 0, tl};
  for (int i = 0; i < a.n; i++)
    if (a.t[i].k % g == 0)
      tb[big->n++] = (LinTerm){a.t[i].atom, a.t[i].k / g};
    else
      tl[low->n++] = a.t[i];
}

/* The largest proper divisor g of d such that all of a but multiples of g stays within [0, g); 1 if there is none. */
static int64_t common_part(LinCtx *L, Lin a, int64_t d, Lin *big, Lin *low) {
  for (int64_t limit = d;;) {
    int64_t g = 1;
    for (int i = 0; i < a.n; i++) {
      int64_t x = i64_gcd(a.t[i].k, d);
      if (x < limit && x > g) g = x;
    }
    if (g <= 1) return 1;
    part(L, a, g, big, low);
    Bound b = lin_bound(L, *low);
    if (b.lo >= 0 && b.hi < g) return g;
    limit = g;
  }
}

static bool one_quotient(Bound b, int64_t d, int64_t *q) {
  if (b.lo == BOUND_MIN || b.hi == BOUND_MAX) return false;
  *q = i64_floordiv(b.lo, d);
  return *q == i64_floordiv(b.hi, d);
}

static Lin div_const(LinCtx *L, Lin a, int64_t d, bool mod) {
  IrCtx *c = L->ctx;
  if (d == 1) return mod ? lin_const(0) : a;
  if (!a.n) return lin_const(mod ? i64_floormod(a.c, d) : i64_floordiv(a.c, d));
  Lin q, r, big, low;
  part(L, a, d, &q, &r);
  int64_t m, inner;
  if (one_quotient(lin_bound(L, r), d, &m)) return mod ? lin_addc(L, r, -cmul(L, m, d)) : lin_addc(L, q, m);
  int64_t g = common_part(L, r, d, &big, &low);
  if (g > 1) {
    Lin x = div_const(L, big, d / g, mod);
    return mod ? lin_add(L, lin_scale(L, x, g), low) : lin_add(L, q, x);
  }
  Digit x;
  bool plain = r.n == 1 && r.c == 0 && r.t[0].k == 1;
  if (!mod && plain && ir_kind(c, r.t[0].atom) == IR_FDIV && ex_const_int(c, ir_kid(c, r.t[0].atom, 1), &inner) &&
      inner > 0)
    return lin_add(L, q, div_const(L, lin_of(L, ir_kid(c, r.t[0].atom, 0)), cmul(L, inner, d), false));
  if (mod && plain && digit_of(L, r.t[0].atom, &x) && x.l > 0) {
    int64_t u = cmul(L, x.l, d);
    if (x.u == 0 || x.u % u == 0) {
      Lin y = lin_of(L, x.x);
      if (x.l == 1) return x.u ? div_const(L, y, d, true) : opaque(L, IR_FMOD, r, lin_const(d));
      return div_const(L, div_const(L, y, u, true), x.l, false);
    }
  }
  return mod ? opaque(L, IR_FMOD, r, lin_const(d)) : lin_add(L, q, opaque(L, IR_FDIV, r, lin_const(d)));
}

/* Terms of a that are multiples of the single symbol product b; the rest goes to *rest. */
static Lin multiples(LinCtx *L, Lin a, Lin b, Lin *rest) {
  Lin q = lin_const(0);
  *rest = lin_const(a.c);
  ExprId fb[MAX_FACTORS], fa[MAX_FACTORS];
  int nb = factors(L->ctx, b.t[0].atom, fb, 0);
  for (int i = 0; i < a.n; i++) {
    int na = factors(L->ctx, a.t[i].atom, fa, 0), left = nb;
    for (int j = 0; j < nb; j++)
      for (int k = 0; k < na; k++)
        if (fa[k] == fb[j]) {
          fa[k] = fa[--na];
          left--;
          break;
        }
    Lin t = {0, 1, &a.t[i]};
    if (left || a.t[i].k % b.t[0].k)
      *rest = lin_add(L, *rest, t);
    else
      q = combine(L, q, na ? lin_atom(L, product_of(L->ctx, fa, na)) : lin_const(1), a.t[i].k / b.t[0].k);
  }
  return q;
}

static Lin divided(LinCtx *L, Lin a, Lin b, bool mod) {
  ExprKind k = mod ? IR_FMOD : IR_FDIV;
  err_check(L->err, !lin_is(b, 0), "an index expression divides by zero");
  if (!b.n && b.c > 0) return div_const(L, a, b.c, mod);
  if (lin_eq(a, b)) return lin_const(!mod);
  if (lin_is(a, 0)) return a;
  if (b.n != 1 || b.c) return opaque(L, k, a, b);
  Lin r, q = multiples(L, a, b, &r);
  bool less = (mod && lin_is(r, 0)) || (lin_bound(L, r).lo >= 0 && lin_le(L, lin_addc(L, r, 1), b));
  if (mod) return less ? r : opaque(L, k, r, b);
  return less ? q : lin_add(L, q, opaque(L, k, r, b));
}
Lin lin_fdiv(LinCtx *L, Lin a, Lin b) { return divided(L, a, b, false); }
Lin lin_fmod(LinCtx *L, Lin a, Lin b) { return divided(L, a, b, true); }

/* ---- to and from expressions ---- */

static Lin of_node(LinCtx *L, ExprId e) {
  IrCtx *c = L->ctx;
  ExprNode n = *ir_node(c, e);
  if (n.kind == IR_INT) return lin_const(n.u.i);
  if (n.kind == IR_CAST && (n.type.code == DT_INT || n.type.code == DT_UINT)) {
    ExprId x = ir_kid(c, e, 0);
    DType t = ir_type(c, x);
    if (t.code == DT_INT && t.bits <= n.type.bits) return lin_of(L, x);
  }
  int64_t cond;
  if (n.kind == IR_SELECT && ex_const_int(c, ir_kid(c, e, 0), &cond)) return lin_of(L, ir_kid(c, e, cond ? 1 : 2));
  if (n.n != 2 || (n.kind != IR_ADD && n.kind != IR_SUB && n.kind != IR_MUL && n.kind != IR_FDIV && n.kind != IR_FMOD))
    return lin_atom(L, e);
  Lin a = lin_of(L, ir_kid(c, e, 0)), b = lin_of(L, ir_kid(c, e, 1));
  switch (n.kind) {
  case IR_ADD: return lin_add(L, a, b);
  case IR_SUB: return lin_sub(L, a, b);
  case IR_MUL: return lin_mul(L, a, b);
  default: return b.n || b.c <= 0 ? lin_atom(L, e) : divided(L, a, b, n.kind == IR_FMOD);
  }
}

Lin lin_of(LinCtx *L, ExprId e) {
  ExprNode n = *ir_node(L->ctx, e);
  if (n.kind == IR_INT) return lin_const(n.u.i);
  int i = mapu_get(&L->form, (uint64_t)e, -1);
  if (i >= 0) return L->forms.at[i];
  Lin a = of_node(L, e);
  if (n.kind != IR_VAR) remember(L, e, a);
  return a;
}

ExprId lin_expr(LinCtx *L, Lin a) {
  IrCtx *c = L->ctx;
  if (!a.n) return ex_index(c, a.c);
  LinTerm t[a.n + 1]; /* by falling coefficient: outer parts first */
  for (int i = 0; i < a.n; i++) {
    int j = i;
    for (; j > 0 && t[j - 1].k < a.t[i].k; j--) t[j] = t[j - 1];
    t[j] = a.t[i];
  }
  ExprId e = 0;
  for (int i = 0; i < a.n; i++) {
    int64_t k = t[i].k;
    if (!e)
      e = ex_mul(c, t[i].atom, ex_index(c, k));
    else if (k < 0 && k != INT64_MIN)
      e = ex_sub(c, e, ex_mul(c, t[i].atom, ex_index(c, -k)));
    else
      e = ex_add(c, e, ex_mul(c, t[i].atom, ex_index(c, k)));
  }
  if (a.c > 0) e = ex_add(c, e, ex_index(c, a.c));
  if (a.c < 0) e = a.c == INT64_MIN ? ex_add(c, e, ex_index(c, a.c)) : ex_sub(c, e, ex_index(c, -a.c));
  return e;
}
