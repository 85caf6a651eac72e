/* Linear forms over index expressions: constant + sum of coefficient * atom. An atom is a variable or an opaque
 * expression (division, remainder, product of symbols). Bound inference computes with them because interval ends then
 * cancel by themselves: hi - lo is a plain number wherever the region is affine. Divisors may be symbols, terms have an order,
 * and nothing has a type: the sums of ir (ir/canon.c) have none of this, and take 1.3 times as long for what a split, a fuse
 * and an offset need (0.60 against 0.46 us), where bound inference spends its time.
 */
#ifndef NS_SCHEDULE_LIN_H
#define NS_SCHEDULE_LIN_H
#include "ir/ir.h"

typedef struct {
  ExprId atom;
  int64_t k;
} LinTerm;
typedef struct {
  int64_t c;
  int32_t n;
  const LinTerm *t;
} Lin; /* terms sorted by atom; no zero coefficients */
typedef struct {
  IrCtx *ctx;
  Arena *m;
  Err *err;
  MapU64 form;  /* expression -> index in forms: what an opaque atom's operand or an imported expression is */
  MapU64 range; /* atom that is no variable -> index in ranges */
  VEC(Lin) forms;
  VEC(Bound) ranges;
  Bound *of_var; /* per variable; lo BOUND_MAX: it is not bound */
  int32_t n_var;
} LinCtx;

void lin_init(LinCtx *L, IrCtx *c);
void lin_bind(LinCtx *L, VarId v, Bound b); /* the values a variable takes */
static inline Lin lin_const(int64_t c) {
  return (Lin){.c = c};
}
static inline bool lin_is(Lin a, int64_t c) {
  return a.n == 0 && a.c == c;
}
Lin lin_atom(LinCtx *L, ExprId atom);
Lin lin_of(LinCtx *L, ExprId e); /* any integer expression */
ExprId lin_expr(LinCtx *L, Lin a);
Lin lin_add(LinCtx *L, Lin a, Lin b);
Lin lin_sub(LinCtx *L, Lin a, Lin b);
Lin lin_addc(LinCtx *L, Lin a, int64_t c);
Lin lin_scale(LinCtx *L, Lin a, int64_t k);
Lin lin_mul(LinCtx *L, Lin a, Lin b);
Lin lin_fdiv(LinCtx *L, Lin a, Lin b); /* b > 0 is taken for granted when it is symbolic */
Lin lin_fmod(LinCtx *L, Lin a, Lin b);
Lin lin_min(LinCtx *L, Lin a, Lin b);
Lin lin_max(LinCtx *L, Lin a, Lin b);
bool lin_eq(Lin a, Lin b);
bool lin_le(LinCtx *L, Lin a, Lin b); /* provably a <= b */
Bound lin_bound(LinCtx *L, Lin a);
#endif
