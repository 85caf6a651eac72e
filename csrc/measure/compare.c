/* Is an output right? A schedule reorders sums, so floating-point outputs differ from the reference by rounding. The
 * allowed difference of an element is tolerance(dtype) * (|want| + rms(want)): the second term covers elements that are
 * small because large terms cancelled. A missing or doubled term moves an element by about rms / sqrt(length of the
 * sum), far above the tolerance for sums up to a hundred thousand terms. Integers have to be equal. */
#include "measure/measure.h"
#include <float.h>
#include <math.h>
#include <string.h>

static float half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h >> 15) << 31, e = (h >> 10) & 31, m = h & 1023u, bits;
  if (e == 0) {
    float f = ldexpf((float)m, -24);
    return sign ? -f : f;
  }
  bits = e == 31 ? sign | 0x7f800000u | m << 13 : sign | (e + 112) << 23 | m << 13;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static double at_f32(const void *p, size_t i) { return (double)((const float *)p)[i]; }
static double at_f64(const void *p, size_t i) { return ((const double *)p)[i]; }
static double at_f16(const void *p, size_t i) { return (double)half_to_float(((const uint16_t *)p)[i]); }
static double at_bf16(const void *p, size_t i) {
  uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return (double)f;
}

static const struct {
  const char *dtype;
  size_t size;
  double tolerance;
  double (*at)(const void *, size_t);
} FLOATS[] = {{"float32", 4, 1e-4, at_f32},
              {"tf32", 4, 4e-3, at_f32}, /* of factors that were rounded to 11 bits */
              {"float64", 8, 1e-9, at_f64},
              {"float16", 2, 2e-2, at_f16},
              {"bfloat16", 2, 6e-2, at_bf16}};

static int float_type(const char *dtype) {
  int k = 0;
  while (k < NS_COUNT(FLOATS) && strcmp(FLOATS[k].dtype, dtype) != 0) k++;
  return k;
}

const char *compared_type(int k, double *tolerance) {
  if (k >= NS_COUNT(FLOATS)) return NULL;
  *tolerance = FLOATS[k].tolerance;
  return FLOATS[k].dtype;
}

double outputs_unequal(const char *dtype, const void *got, const void *want, size_t bytes) {
  if (memcmp(got, want, bytes) == 0) return 0;
  int k = float_type(dtype);
  if (k == NS_COUNT(FLOATS)) return 1e30;
  for (size_t i = 0; i < bytes / FLOATS[k].size; i++)
    if (!(FLOATS[k].at(got, i) == FLOATS[k].at(want, i))) return 1e30;
  return 0;
}

double outputs_differ(const char *dtype, const void *got, const void *want, size_t bytes) {
  if (memcmp(got, want, bytes) == 0) return 0; /* sums of small integers are exact in any order: the common case */
  int k = float_type(dtype);
  if (k == NS_COUNT(FLOATS)) return 1e30;
  size_t n = bytes / FLOATS[k].size, finite = 0;
  double sum = 0, worst = 0;
  for (size_t i = 0; i < n; i++) {
    double w = FLOATS[k].at(want, i);
    if (isfinite(w)) {
      sum += w * w;
      finite++;
    }
  }
  double rms = finite ? sqrt(sum / (double)finite) : 0;
  for (size_t i = 0; i < n; i++) {
    double g = FLOATS[k].at(got, i), w = FLOATS[k].at(want, i);
    if (g == w || (isnan(g) && isnan(w))) continue;
    if (!isfinite(g) || !isfinite(w)) return 1e30;
    double d = fabs(g - w) / (FLOATS[k].tolerance * (fabs(w) + rms) + DBL_MIN);
    if (d > worst) worst = d;
  }
  return worst;
}
