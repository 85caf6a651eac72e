/* model: features of a candidate and the models that rank candidates by them. It knows nothing of devices.
 * Spec chapter 04.
 */
#ifndef NS_MODEL_H
#define NS_MODEL_H
#include "lower/lower.h"

/* ---- the per-store feature vector (features.c) : 04 §1 ---- */
enum { FEAT_N = 164, FEAT_SLOTS = 5, FEAT_SLOT_N = 18 };
typedef enum { FEAT_RULES_REFERENCE = 1, FEAT_RULES_REPAIRED = 2 } FeatRules; /* 04 §1.9 */
typedef struct {
  int32_t n_rows;
  float (*row)[FEAT_N];         /* one row per stored buffer, in the order of first stores */
  const char **name;            /* buffer of each row */
} Features;
/* Features of the loop program that low_loops(…, features = true) makes. log: apply slog (04 §1.8). Memory: the context's arena. */
Features feat_extract(const Func *loops, FeatRules rules, bool log);
#endif
