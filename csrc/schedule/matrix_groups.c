/* Groups of channels in a product of matrices (schedule/matrix.c): an axis that one factor knows by its quotient alone.
 *
 * A grouped convolution's output channel o is in both factors: the data have it as o / f, the number of its group. As an axis of a
 * batch each channel would be a product of one column. Taken apart, o = group * f + member, groups are a batch and members are
 * columns, or rows. (A transposed convolution's weights know o / f and o % f.)
 */
#include "schedule/internal.h"

typedef struct {
  ExprId axis;
  int64_t size;         /* of a group; 0: not known yet */
  ExprId group, member; /* in place of its quotient and its rest */
} Groups;

/* The constant that an axis is divided by; 0: e is no such quotient (rest). */
static int64_t divided(IrCtx *c, ExprId e, ExprId axis, bool rest) {
  int64_t by;
  ExprKind k = ir_kind(c, e);
  bool right = rest ? k == IR_MOD || k == IR_FMOD : k == IR_DIV || k == IR_FDIV;
  return right && ir_kid(c, e, 0) == axis && ex_const_int(c, ir_kid(c, e, 1), &by) ? by : 0;
}

static void find_size(IrCtx *c, ExprId e, void *arg) {
  Groups *g = arg;
  if (!g->size) g->size = divided(c, e, g->axis, false);
}

static ExprId take_apart(IrCtx *c, ExprId e, void *arg) {
  const Groups *g = arg;
  return divided(c, e, g->axis, false) == g->size ? g->group : divided(c, e, g->axis, true) == g->size ? g->member : e;
}

bool channel_groups(IrCtx *c, const TeAxis *x, MatrixView *v, ChannelGroups *out) {
  Groups g = {.axis = ex_var(c, x->var)};
  DType t = ir_var_info(c, x->var)->type;
  ExprId *factor[] = {&v->a, &v->b}, apart[2];
  bool knows[2]; /* the member */
  int64_t n;
  for (int i = 0; i < 2; i++) ex_post_order(c, *factor[i], find_size, &g);
  if (!ex_const_int(c, x->extent, &n) || g.size < 2 || g.size >= n || n % g.size) return false;
  out->group = ir_var_new(c, arena_printf(ir_arena(c), "%s.group", x->name), t, false);
  out->member = ir_var_new(c, arena_printf(ir_arena(c), "%s.member", x->name), t, false);
  g.group = ex_var(c, out->group), g.member = ex_var(c, out->member);
  VarSub whole = {x->var, ex_add(c, ex_mul(c, g.group, ex_int(c, t, g.size)), g.member)};
  for (int i = 0; i < 2; i++) {
    ExprId e = ex_map(c, *factor[i], take_apart, &g);
    knows[i] = ex_uses_var(c, e, x->var) || ex_uses_var(c, e, out->member);
    apart[i] = ex_subst(c, e, 1, &whole);
  }
  if (knows[0] == knows[1]) return false;
  v->a = apart[0], v->b = apart[1];
  v->grouped = whole, v->member = out->member;
  out->groups = n / g.size, out->size = g.size, out->of_b = knows[1];
  return true;
}
