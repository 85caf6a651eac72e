/* Bringing data into the form in which a program reads it: another layout, Winograd's transform of a weight, both. The package makes such
 * weights when it builds a network, and the runtime when it loads a file that has the originals, by the same functions: so both get the
 * same bytes. */
#include "program/program.h"
#include <stdlib.h>
#include <string.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

bool relayout_sizes(const Relayout *r, int64_t *from, int64_t *to) {
  bool fits = true;
  *from = *to = 1;
  for (int i = 0; i < r->n_from; i++) fits = fits && i64_mul(*from, r->from[i], from);
  for (int k = 0; k < r->n; k++) fits = fits && i64_mul(*to, r->size[k], to);
  return fits;
}

/* `n` elements that are `stride` bytes apart, one behind the other. */
static void gather(char *to, const char *from, int64_t n, int64_t stride, size_t elem) {
  if (stride == (int64_t)elem)
    memcpy(to, from, (size_t)n * elem);
  else if (elem == 4)
    for (int64_t i = 0; i < n; i++) memcpy(to + i * 4, from + i * stride, 4);
  else if (elem == 2)
    for (int64_t i = 0; i < n; i++) memcpy(to + i * 2, from + i * stride, 2);
  else
    for (int64_t i = 0; i < n; i++) memcpy(to + i * (int64_t)elem, from + i * stride, elem);
}

typedef struct {
  int64_t step[LAYOUT_MAX_DIMS], at[LAYOUT_MAX_DIMS],
      old[LAYOUT_MAX_DIMS]; /* per new dimension: how far it moves in the original's */
} Odometer;

/* Moves to the next row. gather() handles the last dimension. */
static void advance(const Relayout *r, Odometer *o) {
  for (int k = r->n - 2; k >= 0; k--) {
    o->old[r->axis[k]] += o->step[k];
    if (++o->at[k] < r->size[k]) return;
    o->old[r->axis[k]] -= o->step[k] * r->size[k];
    o->at[k] = 0;
  }
}

void relayout_copy(const Relayout *r, int64_t elem, const void *from, void *to) {
  Odometer o = {{0}, {0}, {0}};
  int64_t made[LAYOUT_MAX_DIMS], stride[LAYOUT_MAX_DIMS], before, n, s = elem;
  if (!relayout_sizes(r, &before, &n) || !n) return;
  for (int i = 0; i < r->n_from; i++) made[i] = 1;
  for (int i = r->n_from - 1; i >= 0; s *= r->from[i--]) stride[i] = s;
  for (int k = r->n - 1; k >= 0; k--) {
    o.step[k] = made[r->axis[k]];
    made[r->axis[k]] *= r->size[k];
  }
  int last = r->n ? r->axis[r->n - 1] : -1;
  int64_t row = r->n ? r->size[r->n - 1] : 1, move = r->n ? o.step[r->n - 1] : 1;
  char *dst = to;
  for (int64_t left = n / row; left > 0; left--, dst += row * elem) {
    int64_t there = row, at = 0;
    for (int i = 0; i < r->n_from; i++) {
      int64_t room = r->from[i] - o.old[i];
      if (i == last)
        there = room <= 0 ? 0 : least(there, i64_ceildiv(room, move));
      else if (room <= 0)
        there = 0;
      at += o.old[i] * stride[i];
    }
    if (there) gather(dst, (const char *)from + at, there, last < 0 ? elem : move * stride[last], (size_t)elem);
    memset(dst + there * elem, 0, (size_t)((row - there) * elem));
    advance(r, &o);
  }
}

/* ---- Winograd's transform of a weight, G w G^T (Lavin and Gray, 2015) ----
 * In double, rounded once. A few windows at a time are transposed, so that the inner loops run over windows. */
enum { AT_ONCE = 16, MOST = WINOGRAD_MOST };
typedef double Lanes[AT_ONCE];

static void multiply(const Winograd *w, const Lanes *in, int step, Lanes *out, int out_step) {
  for (int p = 0; p < w->points; p++) {
    double *o = out[p * out_step];
    for (int i = 0; i < AT_ONCE; i++) o[i] = 0;
    for (int k = 0; k < w->taps; k++) {
      double g = w->g[p * w->taps + k];
      for (int i = 0; i < AT_ONCE; i++) o[i] += g * in[k * step][i];
    }
  }
}

void winograd_weight(const Winograd *w, int64_t n, const float *from, float *to) {
  Lanes in[MOST * MOST], half[MOST * MOST], out[MOST * MOST];
  int a = w->points, r = w->taps;
  for (int64_t at = 0; at < n; at += AT_ONCE) {
    int64_t here = least(n - at, AT_ONCE);
    for (int k = 0; k < r * r; k++)
      for (int64_t i = 0; i < AT_ONCE; i++) in[k][i] = i < here ? (double)from[(at + i) * r * r + k] : 0;
    for (int x = 0; x < r; x++) multiply(w, in + x, r, half + x, r); /* G w: points x taps */
    for (int y = 0; y < a; y++) multiply(w, half + y * r, 1, out + y * a, 1);
    for (int p = 0; p < a * a; p++)
      for (int64_t i = 0; i < here; i++) to[p * n + at + i] = (float)out[p][i];
  }
}

/* ---- both ---- */
int64_t form_stored(const GraphParam *p) {
  const WeightForm *f = p->form;
  int64_t from, to, elem = params_dtype_bytes(p->dtype);
  if (!f) return p->bytes;
  if (!relayout_sizes(&f->layout, &from, &to)) return -1;
  if (!f->winograd.points) return from * elem;
  int64_t points = (int64_t)f->winograd.points * f->winograd.points,
          taps = (int64_t)f->winograd.taps * f->winograd.taps;
  return from % points ? -1 : from / points * taps * elem;
}

void form_make(Err *e, const GraphParam *p, void *to) {
  const WeightForm *f = p->form;
  int64_t before, after, elem = params_dtype_bytes(p->dtype);
  void *tiles = NULL;
  const void *from = p->data;
  if (!f) {
    memcpy(to, p->data, (size_t)p->bytes);
    return;
  }
  relayout_sizes(&f->layout, &before, &after);
  if (f->winograd.points) {
    from = tiles = mem_alloc(e, (size_t)(before * elem) + 1);
    winograd_weight(&f->winograd, before / f->winograd.points / f->winograd.points, p->data, tiles);
  }
  relayout_copy(&f->layout, elem, from, to);
  free(tiles);
}
