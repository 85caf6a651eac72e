/* Minima and maxima. Of floats they are not a number if an operand is not, as in NumPy and PyTorch (IEEE 754-2019 calls them
 * minimum and maximum); no target's own function does that, and what it costs to do depends on the target:
 *
 *   CUDA      max.NaN.f32 is one instruction from compute capability 8.0 on; before, and for doubles, a comparison, a test and a choice
 *   C, x86    vmaxps gives its second source when one of the two is no number. With a literal as the first source it is all that
 *             is needed (relu, clip). Else the lanes in which the other source is no number keep it: one more instruction, a
 *             comparison into a mask (AVX-512), or two
 *   other     comparisons and choices
 *
 * Helpers are called ns_max_T(a, b), ns_max_c_T(c, b) where c is known to be a number, and ns_max_s_T(a, b) where a is the
 * accumulator of a scalar loop. They test b, not a: in reductions
 * a is the accumulator, and the test stays out of the chain of operations through it. With fast_math=aggressive the compilers
 * assume that all values are numbers; the helpers are ns_max_n_T then, and test nothing.
 */
#include "codegen/gen.h"

/* A literal that is a number, one for all lanes, or a number by its type. */
static bool is_number(const IrCtx *c, ExprId e) {
  ExprKind k = ir_kind(c, e);
  if (k == IR_BCAST) return is_number(c, ir_kid(c, e, 0));
  if (k == IR_FLT) return ir_flt(c, e) == ir_flt(c, e);
  return k == IR_CAST && ir_type(c, ir_kid(c, e, 0)).code <= DT_UINT;
}

typedef enum { TESTED, FIRST_KNOWN, UNTESTED } Form;
static const char *const FORM_NAME[] = {"", "_c", "_n"};
typedef struct {
  const char *word, *less; /* "max", ">" */
  Form form;
  bool serial; /* Gen.serial */
  bool turned; /* the second operand comes first */
} Extreme;

static Extreme operands(Gen *g, ExprId e) {
  bool min = ir_kind(g->c, e) == IR_MIN;
  Extreme x = {min ? "min" : "max", min ? "<" : ">", TESTED, e == g->serial, false};
  if (g->p->f.target.fast_math == FAST_MATH_AGGRESSIVE)
    x.form = UNTESTED;
  else if (is_number(g->c, ir_kid(g->c, e, 0)))
    x.form = FIRST_KNOWN;
  else if (is_number(g->c, ir_kid(g->c, e, 1)))
    x = (Extreme){x.word, x.less, FIRST_KNOWN, false, true};
  return x;
}

/* ---- scalars ---- */

/* A minimum or maximum in a chain of its own. Compilers would branch on which value is larger, or carry the result through other
 * registers in order not to branch on the test; a branch that is never taken is best. */
static const char *serial_body(const Gen *g, const Extreme *x, DType t) {
  const char *ty = t.bits <= 32 ? "float" : "double";
  return arena_printf(
      g->a,
      "\n  %s m = b %s a ? b : a;\n#ifdef __AVX__\n"
      "  __asm__ goto(\"vucomis%s %%0, %%0\\n\\tjp %%l1\" : : \"x\"(b) : \"cc\" : odd); return m; odd: return b;\n"
      "#else\n  return b != b ? b : m;\n#endif\n",
      ty, x->less, t.bits <= 32 ? "s" : "d");
}

static const char *scalar_body(Gen *g, const Extreme *x, DType t) {
  Arena *a = g->a;
  if (x->form == UNTESTED && g->t->kind != TG_CPU)
    return arena_printf(a, "return f%s%s(a, b);", x->word, t.bits <= 32 && g->t->kind == TG_CUDA ? "f" : "");
  if (g->t->kind == TG_CUDA && gpu_has(&g->p->f.target.gpu, GPU_NAN_EXTREMES) && t.bits <= 32)
    return arena_printf(a, "float r; asm(\"%s.NaN.f32 %%0, %%1, %%2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b)); return r;",
                        x->word);
  if (x->form != TESTED) return arena_printf(a, "return a %s b ? a : b;", x->less);
  if (x->serial) return serial_body(g, x, t);
  return arena_printf(a, "%s m = b %s a ? b : a; return b != b ? b : m;", gen_type(g, t), x->less);
}

static void float_scalar(Gen *g, ExprId e, DType t) {
  Extreme x = operands(g, e);
  const char *ty = gen_type(g, t), *form = x.serial && x.form == TESTED ? "_s" : FORM_NAME[x.form],
             *name = arena_printf(g->a, "ns_%s%s_%s", x.word, form, gen_suffix(g, t));
  gen_function(g, ty, name, "(%s a, %s b) { %s }\n", ty, ty, scalar_body(g, &x, t));
  gen_form(g, e, x.turned ? "%s($t1, $t0)" : "%s($t0, $t1)", name);
}

static void int_scalar(Gen *g, ExprId e, DType t) {
  bool min = ir_kind(g->c, e) == IR_MIN, narrow = t.bits < 32 && g->t->kind != TG_CPU;
  const char *ty = gen_type(g, t), *name = min ? "min" : "max";
  if (g->t->kind == TG_CPU) {
    name = arena_printf(g->a, "ns_%s_%s", name, gen_suffix(g, t));
    gen_function(g, ty, name, "(%s a, %s b) { return a %s b ? a : b; }\n", ty, ty, min ? "<" : ">");
  }
  if (narrow) /* overloads are ambiguous for narrow integers */
    gen_form(g, e, "((%s)%s((int)($t0), (int)($t1)))", ty, name);
  else
    gen_form(g, e, "%s($t0, $t1)", name);
}

void gen_min_max(Gen *g, ExprId e, DType t) { (dtype_is_float(t) ? float_scalar : int_scalar)(g, e, t); }

/* ---- GNU C vectors ---- */

/* With x86 instructions; "" where there are none for this width. The text ends in #else: what follows is for other machines. */
static const char *x86_body(const Gen *g, const Extreme *x, DType t, const char *vt) {
  int bytes = t.lanes * t.bits / 8;
  if (bytes != 16 && bytes != 32 && bytes != 64) return "";
  const char *s = t.bits == 32 ? "ps" : "pd";
  if (x->form != TESTED)
    return arena_printf(g->a,
                        "#ifdef %s\n"
                        "  %s r; __asm__(\"v%s%s %%2, %%1, %%0\" : \"=v\"(r) : \"v\"(a), \"vm\"(b)); return r;\n"
                        "#else\n",
                        bytes == 64 ? "__AVX512F__" : "__AVX__", vt, x->word, s);
  const char *masked =
      arena_printf(g->a,
                   "#ifdef %s\n"
                   "  %s r = b; __asm__(\"vcmp%s $7, %%1, %%1, %%%%k1\\n\\tv%s%s %%2, %%1, %%0%%{%%%%k1%%}\" : "
                   "\"+v\"(r) : \"v\"(b), \"vm\"(a) : \"k1\"); return r;\n",
                   bytes == 64 ? "__AVX512F__" : "__AVX512VL__", vt, s, x->word, s);
  if (bytes == 64) return arena_printf(g->a, "%s#else\n", masked);
  return arena_printf(g->a,
                      "%s#elif defined(__AVX__)\n"
                      "  %s r; __asm__(\"v%s%s %%2, %%1, %%0\" : \"=x\"(r) : \"x\"(b), \"xm\"(a)); "
                      "return NS_CHOOSE(b != b, b, r);\n"
                      "#else\n",
                      masked, vt, x->word, s);
}

void gen_choose(Gen *g) {
  gen_helper(g, "#choose",
             "#define NS_CHOOSE(test, yes, no) \\\n"
             "  ((__typeof__(yes))(((test) & (__typeof__(test))(yes)) | (~(test) & (__typeof__(test))(no))))\n");
}

void gen_min_max_vector(Gen *g, ExprId e, const char *vt) {
  DType t = ir_type(g->c, e);
  Extreme x = operands(g, e);
  bool is_float = t.code == DT_FLOAT;
  const char *form = is_float ? FORM_NAME[x.form] : "",
             *name = arena_printf(g->a, "ns_%s%s_%sx%d", x.word, form, gen_suffix(g, t), t.lanes),
             *x86 = is_float ? x86_body(g, &x, t, vt) : "";
  gen_choose(g);
  bool tested = is_float && x.form == TESTED;
  gen_function(g, vt, name, "(%s a, %s b) {\n%s  return NS_CHOOSE(%s %s %s);\n%s}\n", vt, vt, x86,
               tested ? "(b != b) | (b" : "a", x.less, tested ? "a), b, a" : "b, a, b", *x86 ? "#endif\n" : "");
  gen_form(g, e, x.turned ? "%s($v1, $v0)" : "%s($v0, $v1)", name);
}
