/* Random numbers: xoshiro256** (Blackman, Vigna), seeded through splitmix64. Numbers below n are drawn by rejection, so
 * they are exactly uniform and the same on every machine. */
#include "base/base.h"

static uint64_t splitmix(uint64_t *x) {
  uint64_t z = (*x += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

void rng_seed(Rng *r, uint64_t seed) {
  for (int i = 0; i < 4; i++) r->s[i] = splitmix(&seed);
}

uint64_t rng_next(Rng *r) {
  uint64_t *s = r->s, out = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotl(s[3], 45);
  return out;
}

int64_t rng_below(Rng *r, int64_t n) {
  if (n <= 1) return 0;
  uint64_t m = (uint64_t)n, limit = UINT64_MAX - UINT64_MAX % m, x;
  do x = rng_next(r);
  while (x >= limit);
  return (int64_t)(x % m);
}

double rng_unit(Rng *r) { return (double)(rng_next(r) >> 11) * 0x1p-53; }

Rng rng_split(Rng *r) {
  Rng out;
  rng_seed(&out, rng_next(r));
  return out;
}

void rng_shuffle(Rng *r, int n, int32_t *v) {
  for (int i = n - 1; i > 0; i--) {
    int j = (int)rng_below(r, i + 1);
    int32_t x = v[i];
    v[i] = v[j], v[j] = x;
  }
}

int rng_piece(int n, const double *upto, double at) {
  int lo = 0, hi = n - 1;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (upto[mid] <= at)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}
