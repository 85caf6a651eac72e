/* Has the clock changed, or does somebody else use the device? The canary is a fixed piece of arithmetic; its time is a
 * constant as long as the device is the same. Other processes take turns with us on a GPU in slices of about 2 ms, so
 * several pieces are timed and their mean is judged, over more than one slice. A deviation beyond the limit from the running median of the good
 * checks is a disturbance: what was measured since the last good check is suspect. A new level that lasts (a GPU that got
 * warm and runs at a lower clock) becomes the median. A GPU's clock follows its voltage, which rises within a few hundred
 * milliseconds when tensor cores work and falls when they rest (an H100: 196 and 207 us, both told to be 1980 MHz): the median
 * is that of rest, and what is somewhat faster is good, but does not count in it. Spec 05 §7.9. */
#include "measure/drift.h"
#include "base/base.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = 3, PIECES = 64 };
static const double MOST_SHIFT = 0.3;

static double middle(const double *v, int n) {
  double s[PIECES];
  if (n > PIECES) n = PIECES;
  memcpy(s, v, sizeof *s * (size_t)n);
  f64_median(s, n);
  return s[n / 2];
}

static double mean(const double *v, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += v[i];
  return sum / n;
}

static void accept(Drift *d, double v) {
  d->good[d->at] = v;
  d->at = (d->at + 1) % DRIFT_KEEP;
  if (d->n_good < DRIFT_KEEP) d->n_good++;
  d->base = middle(d->good, d->n_good);
  d->low = d->low > 0 && d->low < v ? d->low : v;
  d->high = d->high > v ? d->high : v;
  d->n_bad = d->n_fast = 0;
}

static void new_level(Drift *d, double v) {
  d->n_good = d->at = 0;
  d->low = d->high = 0;
  d->shifts++;
  accept(d, v);
}

/* A new clock, not another process: that would cost more. */
static bool lasting(const Drift *d) {
  double lo = d->bad[0], hi = d->bad[0];
  if (fabs(d->last) > MOST_SHIFT) return false;
  for (int i = 1; i < DRIFT_PATIENCE; i++) {
    lo = fmin(lo, d->bad[i]);
    hi = fmax(hi, d->bad[i]);
  }
  return hi <= lo * (1 + d->limit);
}

bool drift_check(Drift *d, const double *seconds, int n) {
  if (n < 1) return true;
  double v = d->middle ? middle(seconds, n) : mean(seconds, n);
  d->checks++;
  d->last = d->base > 0 ? v / d->base - 1 : 0;
  if (d->checks <= FIRST && !(d->last < 0 && -d->last <= d->rise)) {
    if (d->base > 0 && d->last > d->limit && d->last <= d->rise)
      new_level(d, v); /* the checks so far were not at rest */
    else
      accept(d, v);
    return true;
  }
  if (fabs(d->last) <= d->limit) {
    accept(d, v);
    return true;
  }
  if (d->last < 0 && -d->last <= d->rise) {
    d->n_bad = 0;
    if (++d->n_fast >= DRIFT_KEEP) new_level(d, v); /* it no longer comes back */
    return true;
  }
  d->disturbed++;
  if (d->last < 0) { /* nothing makes a device that much faster: it was disturbed so far */
    new_level(d, v);
    return false;
  }
  memmove(d->bad, d->bad + 1, sizeof d->bad - sizeof d->bad[0]);
  d->bad[DRIFT_PATIENCE - 1] = v;
  if (++d->n_bad < DRIFT_PATIENCE || !lasting(d)) return false;
  new_level(d, v);
  return true;
}

bool drift_patient(const Drift *d) { return d->n_bad < DRIFT_PATIENCE; }
double drift_spread(const Drift *d) { return d->base > 0 ? (d->high - d->low) / d->base : 0; }
