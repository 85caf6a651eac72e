/* Intrinsics: what each one is called on each target, by type and by the fast_math mode (spec 07 §7.5.6).
 * One row per function: the stem of its name in the C library, and the approximate CUDA instruction that the reference
 * mode uses for float32. Where a target lacks a function, a small helper is put in front of the program.
 */
#include <string.h>
#include "codegen/gen.h"

typedef struct {
  Intrin in;
  const char *stem, *cuda_fast, *opencl;
} MathRow; /* opencl NULL: the stem. round takes the even of two neighbours, as folded literals do; C's round does not */
static const MathRow MATH[] = {
    {IN_EXP, "exp", "__expf", NULL},         {IN_EXP2, "exp2", NULL, NULL},
    {IN_EXP10, "exp10", "__exp10f", NULL},   {IN_ERF, "erf", NULL, NULL},
    {IN_TANH, "tanh", NULL, NULL},           {IN_LOG, "log", "__logf", NULL},
    {IN_LOG2, "log2", "__log2f", NULL},      {IN_LOG10, "log10", "__log10f", NULL},
    {IN_LOG1P, "log1p", NULL, NULL},         {IN_TAN, "tan", NULL, NULL},
    {IN_COS, "cos", "__cosf", NULL},         {IN_COSH, "cosh", NULL, NULL},
    {IN_SIN, "sin", "__sinf", NULL},         {IN_SINH, "sinh", NULL, NULL},
    {IN_ASIN, "asin", NULL, NULL},           {IN_ACOS, "acos", NULL, NULL},
    {IN_ATAN, "atan", NULL, NULL},           {IN_ASINH, "asinh", NULL, NULL},
    {IN_ACOSH, "acosh", NULL, NULL},         {IN_ATANH, "atanh", NULL, NULL},
    {IN_SQRT, "sqrt", NULL, NULL},           {IN_POW, "pow", NULL, NULL},
    {IN_FMOD, "fmod", NULL, NULL},           {IN_ATAN2, "atan2", NULL, NULL},
    {IN_NEXTAFTER, "nextafter", NULL, NULL}, {IN_HYPOT, "hypot", NULL, NULL},
    {IN_COPYSIGN, "copysign", NULL, NULL},   {IN_LDEXP, "ldexp", NULL, NULL},
    {IN_FLOOR, "floor", NULL, NULL},         {IN_CEIL, "ceil", NULL, NULL},
    {IN_ROUND, "rint", NULL, NULL}, /* half to even, as in NumPy and PyTorch */
    {IN_TRUNC, "trunc", NULL, NULL},         {IN_NEARBYINT, "rint", NULL, NULL},
    {IN_FABS, "fabs", NULL, NULL},           {IN_RSQRT, "rsqrt", NULL, NULL},
};
typedef struct {
  Intrin in;
  const char *op;
} OpRow;
static const OpRow BITS[] = {{IN_SHL, "<<"}, {IN_SHR, ">>"}, {IN_BAND, "&"}, {IN_BOR, "|"}, {IN_BXOR, "^"}};

const char *gen_suffix(Gen *g, DType t) {
  const char *letter = t.code == DT_INT ? "i" : t.code == DT_UINT ? "u" : "f";
  return arena_printf(g->a, "%s%d", letter, gen_is_small_float(t) ? 32 : t.bits);
}

const char *gen_helper(Gen *g, const char *name, const char *text) {
  if (!maps_get(&g->helper_set, name, 0)) {
    maps_set(&g->helper_set, name, 1);
    vec_push(g->a, &g->helper, text);
  }
  return name;
}

static void args(Gen *g, ExprId e, int from) {
  sb_putc(g->o, '(');
  int n = ir_node(g->c, e)->n;
  for (int i = from; i < n; i++) {
    if (i > from) sb_puts(g->o, ", ");
    gx_top(g, ir_kid(g->c, e, i));
  }
  sb_putc(g->o, ')');
}

/* Functions of floats with a name in the table. */
static bool math_call(Gen *g, ExprId e, Intrin in, DType t) {
  for (int i = 0; i < NS_COUNT(MATH); i++) {
    const MathRow *m = &MATH[i];
    if (m->in != in) continue;
    bool f32 = t.bits <= 32;
    g->math_used = true;
    const char *ty = gen_type(g, t), *sf = f32 ? "f" : "", *name;
    if (g->t->kind == TG_OPENCL)
      name = m->opencl ? m->opencl : m->stem;
    else if (g->t->kind == TG_CUDA && f32 && m->cuda_fast && g->p->f.target.fast_math)
      name = m->cuda_fast;
    else
      name = arena_printf(g->a, "%s%s", m->stem, sf);
    if (g->t->kind == TG_CPU && in == IN_EXP10)
      name = gen_helper(
          g, arena_printf(g->a, "ns_exp10%s", sf),
          arena_printf(g->a, "static inline %s ns_exp10%s(%s x) { return pow%s(10, x); }\n", ty, sf, ty, sf));
    if (in == IN_RSQRT && (g->t->kind == TG_CPU || (g->t->kind == TG_CUDA && !g->p->f.target.fast_math)))
      name = gen_helper(
          g, arena_printf(g->a, "ns_rsqrt%s", sf),
          arena_printf(g->a, "%s %s ns_rsqrt%s(%s x) { return 1 / sqrt%s(x); }\n", gen_helper_head(g), ty, sf, ty, sf));
    sb_puts(g->o, name);
    args(g, e, 0);
    return true;
  }
  return false;
}

static void sigmoid(Gen *g, ExprId e, DType t) {
  const char *one = t.bits <= 32 ? "1.0f" : "1.0";
  ExprId x = ir_kid(g->c, e, 0);
  sb_printf(g->o, "(%s / (%s + ", one, one);
  ExprId neg = ex_raw(g->c, IR_SUB, t, 0, 2, (ExprId[]){ex_flt(g->c, t, 0.0), x});
  gx(g, ex_call(g->c, IN_EXP, t, 1, &neg));
  sb_puts(g->o, "))");
}

static void reinterpret(Gen *g, ExprId e, DType to) {
  DType from = ir_type(g->c, ir_kid(g->c, e, 0));
  if (to.bits != from.bits || to.bits < 32)
    err_raise(g->err, NS_ERR_TYPE, "reinterpret needs two types of the same width of 32 or 64 bits");
  if (g->t->kind == TG_OPENCL)
    sb_printf(g->o, "as_%s", gen_type(g, to));
  else {
    const char *name = arena_printf(g->a, "ns_%s_as_%s", gen_suffix(g, from), gen_suffix(g, to));
    sb_puts(g->o,
            gen_helper(g, name,
                       arena_printf(g->a, "%s %s %s(%s x) { union { %s from; %s to; } u; u.from = x; return u.to; }\n",
                                    gen_helper_head(g), gen_type(g, to), name, gen_type(g, from), gen_type(g, from),
                                    gen_type(g, to))));
  }
  args(g, e, 0);
}

static void shuffle(Gen *g, ExprId e, Intrin in) {
  if (g->t->kind != TG_CUDA)
    err_raise(g->err, NS_ERR_INTERNAL, "warp shuffles exist on CUDA only; use the shared-memory reduction");
  sb_puts(g->o, in == IN_SHFL_DOWN ? "__shfl_down_sync" : "__shfl_sync");
  if (ir_node(g->c, e)->n == 4) {
    sb_putc(g->o, '(');
    sb_puts(g->o, "(unsigned)");
    gx(g, ir_kid(g->c, e, 0));
    for (int i = 1; i < 4; i++) {
      sb_puts(g->o, ", ");
      gx_top(g, ir_kid(g->c, e, i));
    }
    sb_putc(g->o, ')');
    return;
  }
  sb_puts(g->o, "(0xffffffffu");
  for (int i = 0; i < ir_node(g->c, e)->n; i++) {
    sb_puts(g->o, ", ");
    gx_top(g, ir_kid(g->c, e, i));
  }
  sb_putc(g->o, ')');
}

static void bit_count(Gen *g, ExprId e, Intrin in) {
  bool wide = ir_type(g->c, ir_kid(g->c, e, 0)).bits == 64, count = in == IN_POPCOUNT;
  static const char *const NAME[3][2][2] = {
      {{"__builtin_clz", "__builtin_clzll"}, {"__builtin_popcount", "__builtin_popcountll"}},
      {{"__clz", "__clzll"}, {"__popc", "__popcll"}},
      {{"clz", "clz"}, {"popcount", "popcount"}}};
  sb_printf(g->o, "((%s)%s", gen_type(g, ir_type(g->c, e)), NAME[g->t->kind][count][wide]);
  args(g, e, 0);
  sb_putc(g->o, ')');
}

void gen_call(Gen *g, ExprId e) {
  ExprNode n = *ir_node(g->c, e);
  Intrin in = (Intrin)n.sym;
  switch (in) {
  case IN_LIKELY: gx(g, ir_kid(g->c, e, 0)); return;
  case IN_SIGMOID: sigmoid(g, e, n.type); return;
  case IN_REINTERPRET: reinterpret(g, e, n.type); return;
  case IN_SHFL:
  case IN_SHFL_DOWN: shuffle(g, e, in); return;
  case IN_POPCOUNT:
  case IN_CLZ: bit_count(g, e, in); return;
  case IN_ISNAN:
    g->math_used = true;
    sb_puts(g->o, "isnan");
    args(g, e, 0);
    return;
  case IN_BNOT:
    sb_puts(g->o, dtype_is_bool(n.type) ? "(!" /* a truth value is an int in C: ~1 would be true */
                                        : arena_printf(g->a, "((%s)~", gen_type(g, n.type)));
    gx(g, ir_kid(g->c, e, 0));
    sb_putc(g->o, ')');
    return;
  case IN_SYNC_SHARED: sb_puts(g->o, g->t->barrier); return;
  default: break;
  }
  if (gen_warp(g, e, in)) return;
  for (int i = 0; i < NS_COUNT(BITS); i++)
    if (BITS[i].in == in) {
      bool narrow = in == IN_SHL && n.type.bits < 32; /* C shifts it as an int */
      sb_puts(g->o, narrow ? arena_printf(g->a, "((%s)(", gen_type(g, n.type)) : "(");
      gx(g, ir_kid(g->c, e, 0));
      sb_printf(g->o, " %s ", BITS[i].op);
      gx(g, ir_kid(g->c, e, 1));
      sb_puts(g->o, narrow ? "))" : ")");
      return;
    }
  if (n.type.code != DT_INT && n.type.code != DT_UINT && math_call(g, e, in, n.type)) return;
  if (in == IN_FABS) {
    sb_puts(g->o, g->t->kind == TG_CPU ? (n.type.bits == 64 ? "__builtin_llabs" : "__builtin_abs") : "abs");
    args(g, e, 0);
    return;
  }
  err_raise(g->err, NS_ERR_VALUE, "no code can be generated for a call of '%s' of this type", intrin_info(in)->name);
}
