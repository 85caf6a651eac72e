/* Bringing data into the layout in which a tuned program reads it. */
#include "program/program.h"
#include <string.h>

bool relayout_sizes(const Relayout *r, int64_t *from, int64_t *to) {
  bool fits = true;
  *from = *to = 1;
  for (int i = 0; i < r->n_from; i++) fits = fits && i64_mul(*from, r->from[i], from);
  for (int k = 0; k < r->n; k++) fits = fits && i64_mul(*to, r->size[k], to);
  return fits;
}

/* Runs over the elements in the new layout like an odometer; step[k] is how far dimension k moves in the original's
 * dimension axis[k]. */
void relayout_copy(const Relayout *r, int64_t elem, const void *from, void *to) {
  int64_t step[LAYOUT_MAX_DIMS], made[LAYOUT_MAX_DIMS], at[LAYOUT_MAX_DIMS] = {0}, old[LAYOUT_MAX_DIMS] = {0};
  int64_t before, n;
  if (!relayout_sizes(r, &before, &n)) return;
  for (int i = 0; i < r->n_from; i++) made[i] = 1;
  for (int k = r->n - 1; k >= 0; k--) {
    step[k] = made[r->axis[k]];
    made[r->axis[k]] *= r->size[k];
  }
  const char *src = from;
  char *dst = to;
  for (; n > 0; n--, dst += elem) {
    int64_t flat = 0;
    bool inside = true;
    for (int i = 0; i < r->n_from; i++) {
      flat = flat * r->from[i] + old[i];
      inside &= old[i] < r->from[i];
    }
    if (inside)
      memcpy(dst, src + flat * elem, (size_t)elem);
    else
      memset(dst, 0, (size_t)elem);
    for (int k = r->n - 1; k >= 0; k--) {
      old[r->axis[k]] += step[k];
      if (++at[k] < r->size[k]) break;
      old[r->axis[k]] -= step[k] * r->size[k];
      at[k] = 0;
    }
  }
}
