/* What operations give for numbers, for whoever folds literals (fold.c) and whoever executes programs (csrc/interp). Floats are
 * computed in double; who has a narrower type rounds the result, which for sums, products and quotients of float32 is what that
 * type's own arithmetic gives. */
#include "ir/ir.h"

#include <math.h>
#include <string.h>

int64_t num_int(ExprKind k, DType t, int64_t a, int64_t b) {
  uint64_t x = (uint64_t)a, y = (uint64_t)b;
  bool u = t.code == DT_UINT, less = u ? x < y : a < b;
  switch (k) {
  case IR_ADD: return (int64_t)(x + y);
  case IR_SUB: return (int64_t)(x - y);
  case IR_MUL: return (int64_t)(x * y);
  case IR_DIV: return u ? (int64_t)(x / y) : b == -1 ? (int64_t)(0 - x) : a / b;
  case IR_MOD: return u ? (int64_t)(x % y) : b == -1 ? 0 : a % b;
  case IR_FDIV: return u ? (int64_t)(x / y) : i64_floordiv(a, b);
  case IR_FMOD: return u ? (int64_t)(x % y) : i64_floormod(a, b);
  case IR_MIN: return less ? a : b;
  case IR_MAX: return less ? b : a;
  case IR_EQ: return a == b;
  case IR_NE: return a != b;
  case IR_LT: return less;
  case IR_LE: return less || a == b;
  case IR_GT: return !less && a != b;
  default: return !less; /* IR_GE */
  }
}

/* Floats: C's remainder is exact. It gets the sign of the divisor, and the quotient is derived from it. floor(a / b) is off by one where
 * a / b rounds up to a whole number (1.0 / 0.1). a - floor(a / b) * b has no correct digit where a / b is large. The result is NaN
 * where it is in PyTorch and NumPy (inf // 2). */
static double floormod(double a, double b) {
  double r = fmod(a, b);
  return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}
static double floordiv64(double a, double b) {
  double r = fmod(a, b), q = (a - r) / b, f;
  if (b == 0) return a / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  f = floor(q);
  return q == 0 ? copysign(0, a / b) : q - f > 0.5 ? f + 1 : f;
}
static double floordiv32(float a, float b) { /* rounds where programs round */
  float r = fmodf(a, b), q = (a - r) / b, f;
  if (b == 0) return a / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  f = floorf(q);
  return q == 0 ? copysignf(0, a / b) : q - f > 0.5f ? f + 1 : f;
}

double num_flt(ExprKind k, DType t, double a, double b) {
  switch (k) {
  case IR_ADD: return a + b;
  case IR_SUB: return a - b;
  case IR_MUL: return a * b;
  case IR_DIV: return a / b;
  case IR_MOD: return fmod(a, b);
  case IR_FDIV: return t.bits == 64 ? floordiv64(a, b) : floordiv32((float)a, (float)b);
  case IR_FMOD: return floormod(a, b);
  case IR_MIN: return flt_min(a, b);
  case IR_MAX: return flt_max(a, b);
  case IR_EQ: return a == b;
  case IR_NE: return a != b;
  case IR_LT: return a < b;
  case IR_LE: return a <= b;
  case IR_GT: return a > b;
  default: return a >= b; /* IR_GE */
  }
}

bool num_bits(Intrin in, DType t, int64_t a, int64_t b, int64_t *out) {
  uint64_t x = (uint64_t)a, low = x & (t.bits == 64 ? UINT64_MAX : (1ull << t.bits) - 1);
  int64_t by = b & (t.bits - 1);
  switch (in) {
  case IN_SHL: *out = (int64_t)(x << by); break;
  case IN_SHR: *out = t.code == DT_UINT ? (int64_t)(x >> by) : a >> by; break;
  case IN_BAND: *out = a & b; break;
  case IN_BOR: *out = a | b; break;
  case IN_BXOR: *out = a ^ b; break;
  case IN_BNOT: *out = dtype_is_bool(t) ? !a : ~a; break;
  case IN_POPCOUNT: *out = __builtin_popcountll(low); break;
  case IN_CLZ: *out = low ? __builtin_clzll(low) - (64 - t.bits) : t.bits; break;
  case IN_FABS: *out = a < 0 ? -a : a; break;
  default: return false;
  }
  return true;
}

double num_tf32(double x, bool rounded) {
  float f = (float)x;
  uint32_t u;
  if (!isfinite(f)) return f;
  memcpy(&u, &f, sizeof u);
  u = (rounded ? u + 0x1000u : u) & ~0x1fffu;
  memcpy(&f, &u, sizeof f);
  return f;
}

double num_tf32_high(double x) {
  float f = (float)x, many = -8191.0f * f;
  return fmaf(8192.0f, f, many);
}

bool num_math(Intrin in, DType t, double x, double y, double *out) {
  static double (*const OF_ONE[IN_COUNT])(double) = {
      [IN_EXP] = exp,        [IN_EXP2] = exp2,   [IN_ERF] = erf,
      [IN_TANH] = tanh,      [IN_LOG] = log,     [IN_LOG2] = log2,
      [IN_LOG10] = log10,    [IN_LOG1P] = log1p, [IN_EXPM1] = expm1,
      [IN_ERFC] = erfc,      [IN_TAN] = tan,     [IN_COS] = cos,
      [IN_COSH] = cosh,      [IN_SIN] = sin,     [IN_SINH] = sinh,
      [IN_ASIN] = asin,      [IN_ACOS] = acos,   [IN_ATAN] = atan,
      [IN_ASINH] = asinh,    [IN_ACOSH] = acosh, [IN_ATANH] = atanh,
      [IN_SQRT] = sqrt,      [IN_FLOOR] = floor, [IN_CEIL] = ceil,
      [IN_TRUNC] = trunc,    [IN_FABS] = fabs,   [IN_NEARBYINT] = nearbyint,
      [IN_ROUND] = nearbyint /* half to even */};
  static double (*const OF_TWO[IN_COUNT])(double, double) = {
      [IN_POW] = pow, [IN_FMOD] = fmod, [IN_ATAN2] = atan2, [IN_HYPOT] = hypot, [IN_COPYSIGN] = copysign};
  if (OF_ONE[in])
    *out = OF_ONE[in](x);
  else if (OF_TWO[in])
    *out = OF_TWO[in](x, y);
  else
    switch (in) {
    case IN_EXP10: *out = pow(10.0, x); break;
    case IN_SIGMOID: *out = 1.0 / (1.0 + exp(-x)); break;
    case IN_RSQRT: *out = 1.0 / sqrt(x); break;
    case IN_ROUND_TF32: *out = num_tf32(x, true); break;
    case IN_LDEXP: *out = ldexp(x, (int)fmin(fmax(y, -1e6), 1e6)); break; /* nothing is left of x there */
    case IN_NEXTAFTER: *out = t.bits == 32 ? (double)nextafterf((float)x, (float)y) : nextafter(x, y); break;
    default: return false;
    }
  return true;
}
