/* Ways to split an extent into factors.
 *
 * A split with n sizes may use any tuple of n positive integers whose product divides the extent and whose last member is
 * at most a limit. They are ordered depth first, members ascending, the first member outermost. The tuples are not listed:
 * a table counts how many tuples follow each choice, so that the tuple with a given number is found in a few steps. The
 * counts depend only on (extent, n, limit) and are remembered. Spec 03 §3.2.
 */
#include "search/space.h"

typedef struct {
  int64_t x;
  int32_t n;
  int64_t *d;
} Divisors;
struct FactorTable {
  Arena *a;
  MapU64 div_at, count_at; /* extent -> divisors; (extent, n, limit) -> count */
  VEC(Divisors) div;
  VEC(int64_t) count;
};

FactorTable *factor_new(Arena *a) {
  FactorTable *f = arena_new_of(a, FactorTable);
  f->a = a;
  mapu_init(&f->div_at, a);
  mapu_init(&f->count_at, a);
  return f;
}

Arena *factor_arena(const FactorTable *f) { return f->a; }

int factor_divisors(FactorTable *f, int64_t x, const int64_t **out) {
  err_check(arena_err(f->a), x > 0, "cannot list the divisors of extent %lld; extents must be positive", (long long)x);
  int32_t at = mapu_get(&f->div_at, (uint64_t)x, -1);
  if (at < 0) {
    Divisors v = {.x = x};
    v.n = (int32_t)i64_divisors(f->a, x, &v.d);
    vec_note(f->a, &f->div, v, &f->div_at, x);
    at = f->div.len - 1;
  }
  *out = f->div.at[at].d;
  return f->div.at[at].n;
}

int64_t factor_count(FactorTable *f, int64_t extent, int n, int64_t last_max) {
  if (n == 0) return 1;
  uint64_t name[3] = {(uint64_t)extent, (uint64_t)n, (uint64_t)last_max};
  uint64_t key = hash_bytes(name, sizeof name, 1);
  int32_t at = mapu_get(&f->count_at, key, -1);
  if (at >= 0) return f->count.at[at];
  const int64_t *d;
  int nd = factor_divisors(f, extent, &d);
  int64_t total = 0;
  for (int i = 0; i < nd; i++) {
    if (n > 1)
      total += factor_count(f, extent / d[i], n - 1, last_max);
    else
      total += d[i] <= last_max;
  }
  vec_note(f->a, &f->count, total, &f->count_at, key);
  return total;
}

void factor_tuple(FactorTable *f, int64_t extent, int n, int64_t last_max, int64_t index, int64_t *out) {
  for (int k = 0; k < n; k++) {
    const int64_t *d;
    int nd = factor_divisors(f, extent, &d), i = 0;
    for (; i < nd - 1; i++) {
      int64_t c = n - k > 1 ? factor_count(f, extent / d[i], n - k - 1, last_max) : d[i] <= last_max;
      if (index < c) break;
      index -= c;
    }
    out[k] = d[i];
    extent /= d[i];
  }
}

void factor_draw(FactorTable *f, Rng *r, int64_t last_max, Step *split) {
  int64_t count = factor_count(f, split->extent, split->n, last_max);
  factor_tuple(f, split->extent, split->n, last_max, rng_below(r, count), split->list);
}
