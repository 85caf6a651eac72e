/* The entities of knobs, and their order, which is part of the format of tuning logs: an index means what it meant to the
 * program that wrote it.
 *
 * Splits are listed, because which tuples fit depends on the length in no simple way: the innermost size varies slowest, and
 * a tuple is dropped as soon as its product cannot fit. Orders and words are computed from their number.
 */
#include "template/space.h"
#include <string.h>

const char *const ANN_NAME[ANN_WORDS] = {"none",        "vec",        "unroll",      "blockIdx.x",
                                         "blockIdx.y",  "blockIdx.z", "threadIdx.x", "threadIdx.y",
                                         "threadIdx.z", "vthread",    "fuse"};

int ann_find(const char *name) {
  for (int i = 0; i < ANN_WORDS; i++)
    if (strcmp(name, ANN_NAME[i]) == 0) return i;
  return -1;
}

/* A knob of more entities than 2^24 that are listed, or 2^31 - 1 that are computed, is no choice that could be tuned. */
enum { LISTED = 1 << 24 };
static int32_t entities(Arena *a, const char *name, int64_t n, int64_t most) {
  err_check(arena_err(a), n > 0, "knob '%s' has no choices: its candidates or its filter leave none", name);
  err_check(arena_err(a), n <= most, "knob '%s' has %lld choices or more; at most %lld are possible", name,
            (long long)n, (long long)most);
  return (int32_t)n;
}
static Knob knob_new(Arena *a, const char *name, KnobKind kind, int width, int least) {
  err_check(arena_err(a), width >= least && width <= KNOB_WIDTH, "knob '%s' is for %d axes; it must be %d to %d", name,
            width, least, KNOB_WIDTH);
  return (Knob){.name = arena_strdup(a, name), .kind = kind, .width = width};
}

/* ---- splits ---- */
typedef struct {
  Arena *a;
  const char *name;
  const SplitDef *d;
  int32_t n_factor;
  int64_t *factor, row[KNOB_WIDTH];
  VEC(int64_t) out;
} Split;

static void factors(Split *s) {
  const SplitDef *d = s->d;
  int64_t *div = NULL, pow2[64] = {0}, n_div = 0;
  int n_pow2 = 0;
  if (d->policy != SPLIT_POWER2) n_div = i64_divisors(s->a, d->length, &div);
  if (d->policy != SPLIT_FACTORS)
    for (; n_pow2 < 63 && (int64_t)1 << n_pow2 <= d->length; n_pow2++) pow2[n_pow2] = (int64_t)1 << n_pow2;
  s->factor = arena_array(s->a, int64_t, n_div + n_pow2);
  for (int64_t i = 0, k = 0; i < n_div || k < n_pow2;) { /* both ascend */
    int64_t x = i < n_div && (k == n_pow2 || div[i] <= pow2[k]) ? div[i] : pow2[k];
    i += i < n_div && div[i] == x;
    k += k < n_pow2 && pow2[k] == x;
    if (x <= d->max_factor) s->factor[s->n_factor++] = x;
  }
  if (d->n_order > 0) s->n_factor = 0, s->factor = arena_array(s->a, int64_t, d->n_order);
  for (int i = 0; i < d->n_order; i++)
    if (d->order[i] <= d->max_factor) s->factor[s->n_factor++] = d->order[i];
}

/* Sizes left of position `at` are open, `product` is that of the others. */
static void split_from(Split *s, int at, int64_t product) {
  const SplitDef *d = s->d;
  if (at == 0) {
    if (d->length % product != 0 && !d->tails) return;
    entities(s->a, s->name, s->out.len / d->outputs + 1, LISTED / d->outputs);
    s->row[0] = -1;
    for (int i = 0; i < d->outputs; i++) vec_push(s->a, &s->out, s->row[i]);
    return;
  }
  for (int i = 0; i < s->n_factor; i++) {
    int64_t p;
    if (!i64_mul(product, s->factor[i], &p) || p > d->length) continue; /* they need not ascend */
    if (!d->tails && d->length % p != 0) continue;
    s->row[at] = s->factor[i];
    split_from(s, at - 1, p);
  }
}

Knob knob_split(Arena *a, const char *name, const SplitDef *d) {
  Knob k = knob_new(a, name, KNOB_SPLIT, d->outputs, 2);
  err_check(arena_err(a), d->length > 0,
            "knob '%s': an axis of length %lld cannot be split; it must be known and positive", name,
            (long long)d->length);
  Split s = {.a = a, .name = name, .d = d};
  factors(&s);
  split_from(&s, d->outputs - 1, 1);
  k.n = entities(a, name, s.out.len / d->outputs, LISTED);
  k.table = s.out.at;
  return k;
}

/* ---- orders ---- */
Knob knob_permute(Arena *a, const char *name, int width, int begin, int end) {
  Knob k = knob_new(a, name, KNOB_REORDER, width, 0);
  err_check(arena_err(a), 0 <= begin && begin <= end && end <= width,
            "knob '%s': interval (%d, %d) is not within the %d axes", name, begin, end, width);
  int64_t n = 1;
  for (int i = 2; i <= end - begin && n <= INT32_MAX; i++) n *= i;
  k.n = entities(a, name, n, INT32_MAX);
  k.begin = begin, k.end = end;
  return k;
}

/* Order number `digit` of the alphabet: each position takes the next one that is left. */
static void permutation(const Knob *k, int32_t digit, int64_t *out) {
  int64_t block = 1, left = digit;
  int n = k->end - k->begin;
  for (int i = 0; i < k->width; i++) out[i] = i;
  for (int i = 2; i < n; i++) block *= i; /* orders of all positions but one */
  for (int i = 0; i < n - 1; i++) {
    int64_t *at = out + k->begin + i, pick = left / block, x = at[pick];
    memmove(at + 1, at, sizeof *at * (size_t)pick);
    *at = x;
    left %= block;
    block /= n - 1 - i;
  }
}

/* ---- words ---- */

/* Ways to give words to n loops, one of them ANN_VEC or none. */
static int64_t assignments(const Knob *k, int n, bool vec) {
  int64_t plain = 0, all = 1, fewer = 0; /* fewer: plain^(n - 1) */
  for (int i = 0; i < k->n_word; i++) plain += k->word[i] != ANN_VEC;
  for (int i = 0; i < n; i++) {
    fewer = all;
    if (!i64_mul(all, plain, &all)) return INT64_MAX;
  }
  int64_t with;
  if (!vec || n == 0) return all;
  return i64_mul(fewer, (int64_t)n * (k->n_word - plain), &with) && i64_add(all, with, &all) ? all : INT64_MAX;
}
Knob knob_words(Arena *a, const char *name, int width, int n_word, const uint8_t *word) {
  Knob k = knob_new(a, name, KNOB_ANNOTATE, width, 0);
  k.n_word = n_word;
  k.word = arena_copy(a, word, (size_t)n_word);
  k.n = entities(a, name, assignments(&k, width, true), INT32_MAX);
  return k;
}
static void words(const Knob *k, int32_t digit, int64_t *out) {
  bool vec = true; /* may one be vectorised still? */
  int64_t left = digit;
  for (int i = 0; i < k->width; i++) {
    int w = 0;
    for (;; w++) {
      bool is = k->word[w] == ANN_VEC;
      int64_t n = is && !vec ? 0 : assignments(k, k->width - 1 - i, vec && !is);
      if (left < n) break;
      left -= n;
    }
    out[i] = k->word[w];
    vec = vec && k->word[w] != ANN_VEC;
  }
}

/* ---- tables ---- */
Knob knob_anchors(Arena *a, const char *name, int width, int n) {
  Knob k = knob_new(a, name, KNOB_ANCHOR, width, 0);
  err_check(arena_err(a), 0 <= n && n <= width, "knob '%s': num_anchor is %d; it must be 0 to %d, the number of axes",
            name, n, width);
  VEC(int64_t) out = {0};
  int64_t row[KNOB_WIDTH], count = 0;
  for (int i = 0; i < n; i++) row[i] = i;
  for (int i = n; i >= 0;) {
    k.n = entities(a, name, ++count, LISTED / (n + 1));
    for (int j = 0; j < n; j++) vec_push(a, &out, row[j]);
    for (i = n - 1; i >= 0 && row[i] == width - n + i;) i--;
    if (i < 0) break;
    row[i]++;
    for (int j = i + 1; j < n; j++) row[j] = row[j - 1] + 1;
  }
  k.width = n;
  k.table = n ? out.at : arena_array(a, int64_t, 1);
  return k;
}

Knob knob_table(Arena *a, const char *name, KnobKind kind, int width, int64_t n, const int64_t *at) {
  Knob k = knob_new(a, name, kind, width, 0);
  k.n = entities(a, name, n, LISTED / (width + 1));
  k.table = arena_copy(a, at, sizeof *at * (size_t)(n * width));
  return k;
}

Knob knob_other(Arena *a, const char *name, int64_t n, const double *value) {
  Knob k = knob_new(a, name, KNOB_OTHER, 1, 1);
  k.n = entities(a, name, n, LISTED);
  k.value = arena_copy(a, value, sizeof *value * (size_t)n);
  return k;
}

/* ---- all kinds ---- */
void knob_keep(Arena *a, Knob *k, const bool *keep) {
  VEC(int32_t) kept = {0};
  for (int32_t i = 0; i < k->n; i++)
    if (keep[i]) vec_push(a, &kept, k->kept ? k->kept[i] : i);
  k->n = entities(a, k->name, kept.len, INT32_MAX);
  k->kept = kept.at;
}

void knob_entity(const Knob *k, int32_t digit, int64_t *out) {
  int32_t i = k->kept ? k->kept[digit] : digit;
  if (k->kind == KNOB_OTHER)
    out[0] = i;
  else if (k->table)
    memcpy(out, k->table + (int64_t)i * k->width, sizeof *out * (size_t)k->width);
  else if (k->kind == KNOB_REORDER)
    permutation(k, i, out);
  else
    words(k, i, out);
}

int knob_features(const Knob *k) { return k->kind == KNOB_ANNOTATE ? k->width * ANN_WORDS : k->width; }

void knob_feature(const Knob *k, int32_t digit, float *out) {
  int64_t at[KNOB_WIDTH];
  knob_entity(k, digit, at);
  if (k->kind == KNOB_ANNOTATE) memset(out, 0, sizeof *out * (size_t)knob_features(k));
  for (int i = 0; i < k->width; i++)
    if (k->kind == KNOB_ANNOTATE)
      out[i * ANN_WORDS + at[i]] = 1;
    else
      out[i] = k->kind == KNOB_OTHER ? (float)k->value[at[i]] : (float)at[i];
}
