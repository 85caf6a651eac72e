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

Val mem_get(DType t, const uint8_t *p) {
  Val v = {.bad = false};
  if (dtype_is_float(t)) {
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
  if (dtype_is_float(t)) {
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

/* t: type of the operands. */
Val val_bin(Run *r, ExprKind k, DType t, Val x, Val y) {
  Val v = {.bad = x.bad || y.bad};
  if (dtype_is_float(t)) {
    double z = num_flt(k, t, x.u.f, y.u.f);
    if (k >= IR_EQ)
      v.u.i = z != 0;
    else
      v.u.f = k < IR_MIN ? val_round(t, z) : z;
    return v;
  }
  if (ir_is_division(k) && y.u.i == 0) {
    if (r->quiet || y.bad) return (Val){.bad = true};
    err_raise(r->err, NS_ERR_VALUE, "division by zero in a program");
  }
  int64_t i = num_int(k, t, x.u.i, y.u.i);
  v.u.i = k <= IR_MAX ? val_wrap(t, i) : i;
  if (v.u.i != i && r->index_depth && !r->quiet && t.code == DT_INT)
    finding(r, FD_OVERFLOW, 0, "index arithmetic overflows %d bits: %lld", t.bits, (long long)i);
  return v;
}

Val val_cast(Run *r NS_UNUSED, DType to, DType from, Val a) {
  Val v = {.bad = a.bad};
  if (dtype_is_float(to))
    v.u.f = val_round(to, dtype_is_float(from)   ? a.u.f
                          : from.code == DT_UINT ? (double)(uint64_t)a.u.i
                                                 : (double)a.u.i);
  else if (dtype_is_bool(to))
    v.u.i = dtype_is_float(from) ? a.u.f != 0 : a.u.i != 0;
  else if (dtype_is_float(from)) {
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

/* t: result type; from: type of the last argument. */
Val val_math(Run *r, Intrin in, DType t, int n, const Val *a, DType from) {
  Val v = {.bad = false};
  for (int i = 0; i < n; i++) v.bad |= a[i].bad;
  if (in == IN_ISNAN) {
    v.u.i = dtype_is_float(from) && isnan(a[0].u.f);
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
  bool known;
  if (dtype_is_float(t)) {
    double y = n < 2 ? 0 : dtype_is_float(from) ? a[1].u.f : (double)(int32_t)a[1].u.i, z = 0;
    known = num_math(in, t, a[0].u.f, y, &z);
    v.u.f = val_round(t, z);
  } else {
    int64_t z = 0;
    known = num_bits(in, in == IN_POPCOUNT || in == IN_CLZ ? from : t, a[0].u.i, n > 1 ? a[1].u.i : 0, &z);
    v.u.i = val_wrap(t, z);
  }
  if (!known) err_raise(r->err, NS_ERR_VALUE, "the interpreter does not know '%s' of this type", intrin_info(in)->name);
  return v;
}
