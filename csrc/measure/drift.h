/* drift: is the device what it was? The canary's times are compared with their own running median (drift.c). */
#ifndef NS_DRIFT_H
#define NS_DRIFT_H
#include <stdbool.h>
enum { DRIFT_KEEP = 31, DRIFT_PATIENCE = 5 };
typedef struct {
  double limit;      /* relative deviation that counts as a disturbance */
  double rise;       /* so much faster than at rest a device becomes by itself: no disturbance */
  bool middle;       /* judge by the median of the pieces, not by their mean: on a CPU one interruption is normal */
  double good[DRIFT_KEEP], bad[DRIFT_PATIENCE];
  int n_good, at, n_bad; /* n_bad: disturbed checks in a row */
  int n_fast;            /* faster ones since the last that was not */
  double base;       /* running median of the good ones; 0: none yet */
  double last;       /* of the last check, relative to base */
  double low, high;  /* of the good ones */
  int checks, disturbed, shifts;
} Drift;
/* One check of n pieces. True: as before, or at a new level that has lasted for DRIFT_PATIENCE checks. */
bool drift_check(Drift *d, const double *seconds, int n);
bool drift_patient(const Drift *d); /* worth waiting for the disturbance to pass */
double drift_spread(const Drift *d); /* of the good checks: (high - low) / median */
#endif
