/* Index expressions for the lanes of a warp at once. */
#ifndef NS_MODEL_LANES_H
#define NS_MODEL_LANES_H
#include "ir/ir.h"

enum { LANES = 32 };
typedef struct {
  bool same; /* at[0] stands for all lanes */
  int32_t at[LANES];
} Lanes;
typedef struct {
  IrCtx *c;
  int32_t n_vars;
  const Lanes **var; /* per variable; NULL: 0 in every lane */
} LaneEnv;

static inline void lanes_const(Lanes *l, int32_t v) { l->same = true, l->at[0] = v; }
static inline void lanes_copy(Lanes *to, const Lanes *l) {
  if (l->same)
    lanes_const(to, l->at[0]);
  else
    *to = *l;
}
LaneEnv lane_env(IrCtx *c);                          /* no variable is set; variables made in c later are 0 */
void lanes_set(LaneEnv *e, VarId v, const Lanes *l); /* l must outlive e */
/* Value of x in every lane, in 32 bits. What no index contains (a load, a call) is 0; division by 0 gives 0. */
void lanes_of(const LaneEnv *e, ExprId x, Lanes *out);
/* The same operations on values. k: IR_ADD, IR_SUB, IR_MUL, IR_FDIV, IR_FMOD, IR_DIV, IR_MOD, IR_MIN, IR_MAX,
 * comparisons, and, or. */
void lanes_bin(ExprKind k, const Lanes *a, const Lanes *b, Lanes *out);
void lanes_by(ExprKind k, const Lanes *a, int32_t b, Lanes *out); /* with a number; out may be a */
#endif
