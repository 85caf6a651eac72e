/* C only: functions of float32 that the C library has for single numbers alone, on GNU C vectors. A product's activation or a
 * softmax would otherwise call the library once for each element. Polynomials after Cephes (exp, tanh) and N. Juffa (erf near 0), log1p's our own;
 * within 2 units in the last place of the library's, which `tests/codegen` measures over all magnitudes. NaN, infinities and results
 * below the smallest normal number are those of the library.
 */
#include <string.h>
#include "codegen/gen.h"

/* In the texts V is the vector type, I and U are vectors of as many signed and unsigned integers, N is what names end in. */
/* e^t = (1 + y) * 2^n for |t| <= 104: y, with n in the low bits of the number that it adds to round t / ln 2. It is taken from the bits:
 * under -ffast-math compilers subtract the number again before it has rounded. Terms go in pairs: what waits for what is all that limits
 * processors here. */
static const char SCALED_EXP[] =
    "static inline V ns_scaled_exp_N(V t, V *n) {\n"
    "  *n = t * 1.44269504f + 12582912.0f;\n"
    "  V k = __builtin_convertvector((I)*n - 0x4b400000, V), r = t - k * 0.693359375f;\n"
    "  r = r - k * -2.12194440e-4f;\n"
    "  V q = r * r, p = (r * 1.9875691500e-4f + 1.3981999507e-3f) * q + (r * 8.3334519073e-3f + 4.1665795894e-2f);\n"
    "  p = p * q + (r * 1.6666665459e-1f + 5.0000001201e-1f);\n"
    "  return p * q + r;\n"
    "}\n";
/* Results may be below the smallest normal number or overflow: two factors. Of n, all but the low nine bits is zero or shifted out. */
static const char EXP[] = "static inline V ns_exp_N(V x) {\n"
                          "  V n, t = NS_CHOOSE(x > 89.0f, (V){} + 89.0f, x);\n"
                          "  t = NS_CHOOSE(t < -104.0f, (V){} - 104.0f, t);\n"
                          "  V y = ns_scaled_exp_N(t, &n);\n"
                          "  U k = (U)n, m = k >> 1;\n"
                          "  V f = (V)((m << 23) + 0x3f800000u);\n"
                          "  return (y * f + f) * (V)(((k - m) << 23) + 0x3f800000u);\n"
                          "}\n";
/* Beyond 0.93 a polynomial of the fourth root of what is missing to 1: that falls far slower, so eight degrees do, in half the steps of
 * one behind the other that an exponential takes. It is about 1, where its own errors count most: they vanish as the fourth power does. */
static const char ERF[] =
    "static inline V ns_erf_N(V x) {\n"
    "  V a = (V)((U)x & 0x7fffffffu), t = NS_CHOOSE(a > 4.0f, (V){} + 4.0f, a) - 1.0f, s = x * x;\n"
    "  V f = t * -2.7566102e-5f + 4.2287145e-5f;\n"
    "  f = f * t + 1.2642762e-3f;\n"
    "  f = f * t + -5.3927815e-3f;\n"
    "  f = f * t + -3.8104800e-3f;\n"
    "  f = f * t + 5.0844480e-2f;\n"
    "  f = f * t + 4.3176305e-3f;\n"
    "  f = f * t + -4.1548502e-1f;\n"
    "  f = f * t + 6.2976950e-1f;\n"
    "  f = f * f;\n"
    "  V far = (V)((U)(1.0f - f * f) | ((U)x & 0x80000000u));\n"
    "  V p = s * -5.96761703e-4f + 4.99119423e-3f;\n"
    "  p = p * s + -2.67681349e-2f;\n"
    "  p = p * s + 1.12819925e-1f;\n"
    "  p = p * s + -3.76125336e-1f;\n"
    "  p = p * s + 1.28379166e-1f;\n"
    "  return NS_CHOOSE(a > 0.927734375f, far, p * x + x);\n"
    "}\n";
static const char TANH[] =
    "static inline V ns_tanh_N(V x) {\n"
    "  V n, t = (V)((U)x & 0x7fffffffu), z = x * x;\n"
    "  t = NS_CHOOSE(t > 10.0f, (V){} + 10.0f, t);\n"
    "  V y = ns_scaled_exp_N(t + t, &n), far = 1.0f - 2.0f / ((V)((U)(y + 1.0f) + ((U)n << 23)) + 1.0f);\n"
    "  V p = z * -5.70498872745e-3f + 2.06390887954e-2f;\n"
    "  p = p * z + -5.37397155531e-2f;\n"
    "  p = p * z + 1.33314422036e-1f;\n"
    "  p = p * z + -3.33332819422e-1f;\n"
    "  return (V)((U)NS_CHOOSE(t > 0.625f, far, p * z * t + t) | ((U)x & 0x80000000u));\n"
    "}\n";

/* x and 1 are scaled by the power of two that brings 1 + x to 0.75 .. 1.5 before they are added up: what 1 + x would lose of x is kept. */
static const char LOG1P[] =
    "static inline V ns_log1p_N(V x) {\n"
    "  U e = ((U)(x + 1.0f) - 0x3f400000u) & 0xff800000u, one = (U)((V){} + 4.0f) - e, inf = (U){} + 0x7f800000u;\n"
    "  V f = (V)((U)x - e) + ((V)one * 0.25f - 1.0f), q = f * f, k = __builtin_convertvector((I)e, V) * "
    "1.1920929e-7f;\n"
    "  V p = (f * -4.50744666e-2f + 1.04629956e-1f) * q + (f * -1.31611958e-1f + 1.44784004e-1f);\n"
    "  p = p * q + (f * -1.66473120e-1f + 1.99908614e-1f);\n"
    "  p = p * q + (f * -2.50000954e-1f + 3.33334506e-1f);\n"
    "  p = (p * f - 0.5f) * q + k * -2.12194440e-4f;\n"
    "  V r = (V)((U)(p + f + k * 0.693359375f) | ((U)x & 0x80000000u));\n"
    "  r = NS_CHOOSE(x > -1.0f, r, (V)NS_CHOOSE(x == -1.0f, inf | 0x80000000u, inf | 0x400000u));\n"
    "  return NS_CHOOSE(x == (V)inf, x, r);\n"
    "}\n";
/* Twice what is half of 2^n (1 + y) - 1: 2^(n - 1) is a number for all n. */
static const char EXPM1[] =
    "static inline V ns_expm1_N(V x) {\n"
    "  V n, t = NS_CHOOSE(x > 89.0f, (V){} + 89.0f, x);\n"
    "  t = NS_CHOOSE(t < -25.0f, (V){} - 25.0f, t);\n"
    "  V y = ns_scaled_exp_N(t, &n), f = (V)(((U)n << 23) + 0x3f000000u), r = y * f + (f - 0.5f);\n"
    "  V a = (V)((U)x & 0x7fffffffu);\n"
    "  return NS_CHOOSE(a < 1e-30f, x, r + r);\n"
    "}\n";

static const char ROUND_TF32[] = "static inline V ns_round_tf32_N(V x) {\n"
                                 "  U u = (U)x, rounded = (u + 0x1000u) & 0xffffe000u;\n"
                                 "  return (V)NS_CHOOSE((u & 0x7f800000u) != 0x7f800000u, rounded, u);\n"
                                 "}\n";

static const char *const TEXT[IN_COUNT] = {[IN_EXP] = EXP,     [IN_ERF] = ERF,     [IN_TANH] = TANH,
                                           [IN_LOG1P] = LOG1P, [IN_EXPM1] = EXPM1, [IN_ROUND_TF32] = ROUND_TF32};

/* Copies a text with the names in place of the letters, which stand alone. */
static const char *filled(Gen *g, const char *text, const char *const by[4]) {
  StrBuf b;
  sb_init(&b, g->a);
  for (const char *p = text; *p; p++) {
    const char *letter = strchr("VIUN", *p);
    char before = p > text ? p[-1] : ' ', after = p[1];
    bool word = (before >= 'a' && before <= 'z') || (before >= 'A' && before <= 'Z') || (after >= 'A' && after <= 'Z');
    if (letter && !word)
      sb_puts(&b, by[letter - "VIUN"]);
    else
      sb_putc(&b, *p);
  }
  return sb_str(&b);
}

const char *gen_vector_function(Gen *g, Intrin in, DType t) {
  const char *suffix = arena_printf(g->a, "%sx%d", gen_suffix(g, t), t.lanes),
             *by[4] = {gen_vector_type(g, t, t.lanes), gen_vector_type(g, (DType){DT_INT, 32, t.lanes}, t.lanes),
                       gen_vector_type(g, (DType){DT_UINT, 32, t.lanes}, t.lanes), suffix},
             *name = arena_printf(g->a, "ns_%s_%s", intrin_info(in)->name, suffix);
  gen_choose(g);
  if (in == IN_EXP || in == IN_TANH || in == IN_EXPM1)
    gen_helper(g, arena_printf(g->a, "ns_scaled_exp_%s", suffix), filled(g, SCALED_EXP, by));
  return gen_helper(g, name, filled(g, TEXT[in], by));
}
