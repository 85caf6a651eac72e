/* The inside of the index algebra, private to this folder: bounds.c, canon.c, rules.c, prove.c. */
#ifndef NS_IR_ARITH_H
#define NS_IR_ARITH_H
#include "ir/ctx.h"

/* scale * ((x mod upper) div lower); upper 0: no mod; lower divides upper */
typedef struct { ExprId x; int64_t lower, upper, scale; } Term;
/* immutable, in the arena; terms in order of appearance */
typedef struct Sum { int32_t n; DType type; int64_t base; Term at[]; } Sum;

enum { SUM_FEW = 10 };
typedef struct { /* a sum under construction */
  Arith *a;
  DType type;
  bool bad;  /* a constant left its type: no canonical form */
  bool wide; /* a difference that is only looked at: constants may exceed the type */
  bool raw;  /* add up equal terms but do not merge the parts of a split */
  int32_t n, cap;
  int64_t base;
  Term *at, few[SUM_FEW];
} SumBuf;

/* min, extent: only where not constant */
typedef struct { bool seen, ranged; ExprId value, min, extent; Bound range; } VarFact;
/* b.lo <= key <= b.hi; key without base, gcd of scales 1, first scale positive */
typedef struct { const Sum *key; Bound b; } SumFact;
typedef struct { ExprId x; Residue r; } ResFact;
typedef struct { ExprId cond; bool value; } LitFact;
typedef struct { int32_t n_sum, n_res, n_lit; uint32_t version, top, epoch; } Level;

struct Arith {
  IrCtx *c;
  uint32_t version; /* stamp of what is remembered under the present facts */
  uint32_t top;     /* changes with every fact that outlives a pop */
  uint32_t epoch;
  int nest;         /* of the costly attempts to prove */
  bool reduced;     /* modulo c keeps scales modulo c */
  VarFact *var;
  int32_t cap_var;
  VEC(SumFact) sum;
  VEC(ResFact) res;
  VEC(LitFact) lit;
  VEC(Level) level;
};

enum { HAVE_SUM = 1, HAVE_SIMP = 2, HAVE_BOUND = 4, HAVE_RES = 8 };

void arith_grow_memo(IrCtx *c);
static inline ArMemo *arith_memo(Arith *a, ExprId e) { /* valid until the next call */
  IrCtx *c = a->c;
  if (e >= c->cap_memo) arith_grow_memo(c);
  ArMemo *m = c->memo + e;
  if (m->version != a->version) {
    m->version = a->version;
    m->have = 0;
  }
  return m;
}
static inline bool arith_is_index(DType t) { return t.code == DT_INT && t.bits >= 32 && t.lanes == 1; }
void arith_enter(Arith *a); /* every public function begins with it */
VarFact *arith_var(Arith *a, VarId v);

/* bounds.c */
Bound bound_of(Arith *a, ExprId e);
Bound bound_sum(Arith *a, const Sum *s);
bool sum_wraps(Arith *a, const Sum *s); /* it is formed of data and may leave its type, where it goes on at the other end */
Bound bound_term(Arith *a, const Term *t);
Bound bound_add(Bound x, Bound y);
Bound bound_scale(Bound x, int64_t k);
Bound bound_meet(Bound x, Bound y);
bool bound_matches(const Sum *s, const Sum *key, int64_t *k); /* s = k * key + base? */
Residue residue_of(Arith *a, ExprId e);
Residue residue_sum(Arith *a, const Sum *s);

/* canon.c */
const Sum *canon(Arith *a, ExprId e); /* e of type int32 or int64 */
void sum_start(SumBuf *b, Arith *a, DType t);
void sum_term(SumBuf *b, ExprId x, int64_t lower, int64_t upper, int64_t scale);
void sum_add(SumBuf *b, const Sum *s, int64_t k);
const Sum *sum_done(SumBuf *b); /* NULL if bad */
const Sum *sum_diff(Arith *a, const Sum *x, const Sum *y); /* for looking at only; NULL on overflow, or if one may wrap */
const Sum *sum_mod(Arith *a, const Sum *s, int64_t k);
ExprId sum_expr(Arith *a, const Sum *s);
static inline bool term_part(const Term *x, const Term *y) { /* the same digits of the same atom? */
  return x->x == y->x && x->lower == y->lower && x->upper == y->upper;
}
static inline bool term_same(const Term *x, const Term *y) { return term_part(x, y) && x->scale == y->scale; }
void sum_terms(SumBuf *b, int n, const Term *at, int64_t k); /* k times each */

/* rules.c */
ExprId simp(Arith *a, ExprId e);
/* integer min, max, select, call, load ...: simplified operands, then the rules of the kind */
ExprId simp_atom(Arith *a, ExprId e);

/* prove.c */
typedef enum { CMP_LT, CMP_LE, CMP_EQ } Cmp; /* of a sum with 0 */
int decide(Arith *a, const Sum *d, Cmp op);  /* 1: always, 0: never, -1: not known */
#endif
