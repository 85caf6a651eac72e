/* Arithmetic on values in their declared types. Floats are computed in double and rounded to the type: for +, -, *, /
 * and sqrt of 32 and 16 bit floats that gives the correctly rounded result.
 */
#include <math.h>
#include <string.h>
#include "interp/run.h"

static double round_f16(double x) {
  if (x == 0 || isnan(x) || isinf(x)) return x;
  int e;
  frexp(x, &e);
  if (e < -13) e = -13; /* denormals */
  double ulp = ldexp(1.0, e - 11), y = nearbyint(x / ulp) * ulp;
  return fabs(y) > 65504.0 ? copysign(INFINITY, x) : y;
}

static float bf16_to_float(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static uint16_t float_to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if (f != f) return 0x7fc0;
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
static double f16_to_double(uint16_t h) {
  int e = (h >> 10) & 31;
  double m = h & 1023, x = e == 31 ? (m != 0 ? (double)NAN : (double)INFINITY)
                           : e     ? ldexp(1024 + m, e - 25)
                                   : ldexp(m, -24);
  return h & 0x8000 ? -x : x;
}
static uint16_t double_to_f16(double x) {
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  x = fabs(round_f16(x));
  if (isnan(x)) return 0x7e00;
  if (isinf(x)) return (uint16_t)(sign | 0x7c00);
  if (x == 0) return sign;
  int e;
  frexp(x, &e);
  if (e < -13) return (uint16_t)(sign | (uint16_t)ldexp(x, 24));
  return (uint16_t)(sign | ((unsigned)(e + 14) << 10) | ((unsigned)ldexp(x, 11 - e) & 1023u));
}

double val_round(DType t, double x) {
  if (t.code == DT_BFLOAT) return (double)bf16_to_float(float_to_bf16((float)x));
  return t.bits == 64 ? x : t.bits == 32 ? (double)(float)x : round_f16(x);
}

int64_t val_wrap(DType t, int64_t x) {
  if (dtype_is_bool(t)) return x != 0;
  if (t.code == DT_UINT) return t.bits == 64 ? x : (int64_t)((uint64_t)x & ((1ull << t.bits) - 1));
  return t.bits == 64 ? x : t.bits == 32 ? (int32_t)x : t.bits == 16 ? (int16_t)x : (int8_t)x;
}

static bool is_float(DType t) { return t.code == DT_FLOAT || t.code == DT_BFLOAT; }

Val mem_get(DType t, const uint8_t *p) {
  Val v = {.bad = false};
  if (is_float(t)) {
    float f;
    uint16_t h;
    if (t.bits == 64)
      memcpy(&v.u.f, p, 8);
    else if (t.bits == 32)
      memcpy(&f, p, 4), v.u.f = (double)f;
    else
      memcpy(&h, p, 2), v.u.f = t.code == DT_BFLOAT ? (double)bf16_to_float(h) : f16_to_double(h);
    return v;
  }
  int n = t.bits < 8 ? 1 : t.bits / 8;
  uint64_t u = 0;
  memcpy(&u, p, (size_t)n);
  v.u.i = val_wrap(t, (int64_t)u);
  return v;
}

void mem_put(DType t, uint8_t *p, Val v) {
  if (is_float(t)) {
    float f = (float)v.u.f;
    uint16_t h = t.code == DT_BFLOAT ? float_to_bf16(f) : double_to_f16(v.u.f);
    if (t.bits == 64)
      memcpy(p, &v.u.f, 8);
    else if (t.bits == 32)
      memcpy(p, &f, 4);
    else
      memcpy(p, &h, 2);
    return;
  }
  int64_t i = val_wrap(t, v.u.i);
  memcpy(p, &i, t.bits < 8 ? 1 : (size_t)t.bits / 8);
}

static Val float_bin(Run *r, ExprKind k, DType t, double a, double b) {
  Val v = {.bad = false};
  switch (k) {
  case IR_ADD: v.u.f = val_round(t, a + b); break;
  case IR_SUB: v.u.f = val_round(t, a - b); break;
  case IR_MUL: v.u.f = val_round(t, a * b); break;
  case IR_DIV: v.u.f = val_round(t, a / b); break;
  case IR_MOD: v.u.f = val_round(t, fmod(a, b)); break;
  case IR_FDIV: v.u.f = val_round(t, floor(a / b)); break;
  case IR_FMOD: v.u.f = val_round(t, a - floor(a / b) * b); break;
  case IR_MIN: v.u.f = flt_min(a, b); break;
  case IR_MAX: v.u.f = flt_max(a, b); break;
  case IR_EQ: v.u.i = a == b; break;
  case IR_NE: v.u.i = a != b; break;
  case IR_LT: v.u.i = a < b; break;
  case IR_LE: v.u.i = a <= b; break;
  case IR_GT: v.u.i = a > b; break;
  case IR_GE: v.u.i = a >= b; break;
  default: err_raise(r->err, NS_ERR_INTERNAL, "float operation %d", (int)k);
  }
  return v;
}

static int64_t divide(Run *r, ExprKind k, DType t, int64_t a, int64_t b) {
  if (b == 0) err_raise(r->err, NS_ERR_VALUE, "division by zero in a program");
  if (t.code == DT_UINT) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    return (int64_t)(k == IR_DIV || k == IR_FDIV ? x / y : x % y);
  }
  if (b == -1) return k == IR_DIV || k == IR_FDIV ? (int64_t)(0 - (uint64_t)a) : 0;
  switch (k) {
  case IR_DIV: return a / b;
  case IR_MOD: return a % b;
  case IR_FDIV: return i64_floordiv(a, b);
  default: return i64_floormod(a, b);
  }
}

/* t: type of the operands. */
Val val_bin(Run *r, ExprKind k, DType t, Val x, Val y) {
  if (is_float(t)) {
    Val v = float_bin(r, k, t, x.u.f, y.u.f);
    v.bad = x.bad || y.bad;
    return v;
  }
  int64_t a = x.u.i, b = y.u.i, i;
  bool un = t.code == DT_UINT, lt = un ? (uint64_t)a < (uint64_t)b : a < b;
  switch (k) {
  case IR_ADD: i = (int64_t)((uint64_t)a + (uint64_t)b); break;
  case IR_SUB: i = (int64_t)((uint64_t)a - (uint64_t)b); break;
  case IR_MUL: i = (int64_t)((uint64_t)a * (uint64_t)b); break;
  case IR_DIV:
  case IR_MOD:
  case IR_FDIV:
  case IR_FMOD:
    if (b == 0 && (r->quiet || y.bad)) return (Val){.bad = true};
    i = divide(r, k, t, a, b);
    break;
  case IR_MIN: i = lt ? a : b; break;
  case IR_MAX: i = lt ? b : a; break;
  case IR_EQ: i = a == b; break;
  case IR_NE: i = a != b; break;
  case IR_LT: i = lt; break;
  case IR_LE: i = lt || a == b; break;
  case IR_GT: i = !lt && a != b; break;
  case IR_GE: i = !lt; break;
  case IR_AND: i = a && b; break;
  case IR_OR: i = a || b; break;
  default: err_raise(r->err, NS_ERR_INTERNAL, "integer operation %d", (int)k);
  }
  if (k <= IR_MAX) {
    int64_t w = val_wrap(t, i);
    if (w != i && r->index_depth && !r->quiet && t.code == DT_INT)
      finding(r, FD_OVERFLOW, 0, "index arithmetic overflows %d bits: %lld", t.bits, (long long)i);
    i = w;
  }
  return (Val){.u.i = i, .bad = x.bad || y.bad};
}

Val val_cast(Run *r NS_UNUSED, DType to, DType from, Val a) {
  Val v = {.bad = a.bad};
  if (is_float(to))
    v.u.f = val_round(to, is_float(from) ? a.u.f : from.code == DT_UINT ? (double)(uint64_t)a.u.i : (double)a.u.i);
  else if (dtype_is_bool(to))
    v.u.i = is_float(from) ? a.u.f != 0 : a.u.i != 0;
  else if (is_float(from)) {
    double f = trunc(a.u.f);
    if (isnan(f))
      v.u.i = 0;
    else if (to.code == DT_UINT && f >= 9223372036854775808.0)
      v.u.i = f >= 18446744073709551616.0 ? -1 : (int64_t)(uint64_t)f;
    else
      v.u.i = val_wrap(to, f >= 9223372036854775807.0    ? INT64_MAX
                           : f <= -9223372036854775808.0 ? INT64_MIN
                                                         : (int64_t)f);
  } else
    v.u.i = val_wrap(to, a.u.i);
  return v;
}

static double math1(Intrin in, double x, bool *known) {
  *known = true;
  switch (in) {
  case IN_EXP: return exp(x);
  case IN_EXP2: return exp2(x);
  case IN_EXP10: return pow(10.0, x);
  case IN_ERF: return erf(x);
  case IN_TANH: return tanh(x);
  case IN_SIGMOID: return 1.0 / (1.0 + exp(-x));
  case IN_LOG: return log(x);
  case IN_LOG2: return log2(x);
  case IN_LOG10: return log10(x);
  case IN_LOG1P: return log1p(x);
  case IN_TAN: return tan(x);
  case IN_COS: return cos(x);
  case IN_COSH: return cosh(x);
  case IN_SIN: return sin(x);
  case IN_SINH: return sinh(x);
  case IN_ASIN: return asin(x);
  case IN_ACOS: return acos(x);
  case IN_ATAN: return atan(x);
  case IN_ASINH: return asinh(x);
  case IN_ACOSH: return acosh(x);
  case IN_ATANH: return atanh(x);
  case IN_SQRT: return sqrt(x);
  case IN_RSQRT: return 1.0 / sqrt(x);
  case IN_FLOOR: return floor(x);
  case IN_CEIL: return ceil(x);
  case IN_TRUNC: return trunc(x);
  case IN_ROUND: /* half to even */
  case IN_NEARBYINT: return nearbyint(x);
  case IN_FABS: return fabs(x);
  default: *known = false; return 0;
  }
}

static int64_t bits_op(Intrin in, DType t, const int64_t *a, bool *known) {
  uint64_t x = (uint64_t)a[0], mask = t.bits == 64 ? UINT64_MAX : (1ull << t.bits) - 1;
  int64_t sh = a[1] & (t.bits - 1);
  *known = true;
  switch (in) {
  case IN_SHL: return (int64_t)(x << sh);
  case IN_SHR: return t.code == DT_UINT ? (int64_t)(x >> sh) : a[0] >> sh;
  case IN_BAND: return a[0] & a[1];
  case IN_BOR: return a[0] | a[1];
  case IN_BXOR: return a[0] ^ a[1];
  case IN_BNOT: return dtype_is_bool(t) ? !a[0] : ~a[0];
  case IN_POPCOUNT: return __builtin_popcountll(x & mask);
  case IN_CLZ: return (x & mask) ? __builtin_clzll(x & mask) - (64 - t.bits) : t.bits;
  case IN_FABS: return a[0] < 0 ? -a[0] : a[0];
  default: *known = false; return 0;
  }
}

/* t: result type; from: type of the first argument. */
Val val_math(Run *r, Intrin in, DType t, int n, const Val *a, DType from) {
  Val v = {.bad = false};
  for (int i = 0; i < n; i++) v.bad |= a[i].bad;
  bool known = false;
  if (in == IN_ISNAN) {
    v.u.i = is_float(from) && isnan(a[0].u.f);
    return v;
  }
  if (in == IN_REINTERPRET) {
    uint8_t raw[8] = {0};
    Val x;
    mem_put(from, raw, a[0]);
    x = mem_get(t, raw);
    x.bad = v.bad;
    return x;
  }
  if (is_float(t)) {
    double x = a[0].u.f, y = n > 1 ? a[1].u.f : 0, z = math1(in, x, &known);
    if (!known) {
      known = true;
      switch (in) {
      case IN_POW: z = pow(x, y); break;
      case IN_FMOD: z = fmod(x, y); break;
      case IN_ATAN2: z = atan2(x, y); break;
      case IN_NEXTAFTER: z = t.bits == 32 ? (double)nextafterf((float)x, (float)y) : nextafter(x, y); break;
      case IN_HYPOT: z = hypot(x, y); break;
      case IN_COPYSIGN: z = copysign(x, y); break;
      case IN_LDEXP: z = ldexp(x, (int)a[1].u.i); break;
      default: known = false;
      }
    }
    v.u.f = val_round(t, z);
  } else {
    int64_t raw[2] = {a[0].u.i, n > 1 ? a[1].u.i : 0};
    v.u.i = val_wrap(t, bits_op(in, in == IN_POPCOUNT || in == IN_CLZ ? from : t, raw, &known));
  }
  if (!known) err_raise(r->err, NS_ERR_VALUE, "the interpreter does not know '%s' of this type", intrin_info(in)->name);
  return v;
}
