/* Fuzz target of the log reader: whatever bytes stand on a line, record_parse gives a record or raises; a record that
 * was read is written and read back to the same text. Bytes after a NUL are cut off, as they are in the engine.
 *
 * cJSON gets its memory from a pool here: it is many times faster under AddressSanitizer than malloc, and stricter.
 * Every piece has a gap after it, freed pieces may not be touched and are not used again for the same line, and all
 * of them must have been freed when the line is done: a leak is seen at the line that leaks.
 *
 * Half of the inputs are changed by libFuzzer byte by byte, which mostly breaks the JSON; the other half by values and
 * elements, so that the reader's own checks are reached. */
#include "fuzz.h"
#include "schedule/schedule.h"
#include <cjson/cJSON.h>
#include <sanitizer/asan_interface.h>

enum { POOL = 4 << 20, GAP = 16 };
static _Alignas(16) char pool[POOL];
static size_t used, live;

/* Not guided by what happens in here: that is no property of the reader. */
#define UNTRACED __attribute__((no_sanitize("coverage")))

UNTRACED static void *pool_get(size_t n) {
  size_t size = ((n + 15) & ~(size_t)15) + GAP;
  if (size > POOL - used) return NULL; /* the reader must survive this, too */
  char *p = pool + used + GAP;
  used += size;
  live++;
  ASAN_UNPOISON_MEMORY_REGION(p - GAP, sizeof n);
  memcpy(p - GAP, &n, sizeof n);
  ASAN_POISON_MEMORY_REGION(p - GAP, GAP);
  ASAN_UNPOISON_MEMORY_REGION(p, n);
  return p;
}

UNTRACED static void pool_give(void *p) {
  if (!p) return;
  size_t n;
  char *head = (char *)p - GAP;
  FUZZ_CHECK(head >= pool && head < pool + used && !__asan_address_is_poisoned(p)); /* else: freed twice */
  ASAN_UNPOISON_MEMORY_REGION(head, GAP);
  memcpy(&n, head, sizeof n);
  ASAN_POISON_MEMORY_REGION(head, GAP + n);
  live--;
}

typedef struct {
  Arena *a;
  const char *text;
} Job;

static void round_trip(void *arg) {
  Job *j = arg;
  const char *first = record_text(j->a, record_parse(j->a, j->text));
  const char *again = record_text(j->a, record_parse(j->a, first));
  FUZZ_CHECK(strcmp(first, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static Err err;
  static Arena *arena; /* one for all inputs: a new one each time would take most of the time */
  if (!arena) {
    err_init(&err);
    arena = arena_new(&err);
    ASAN_POISON_MEMORY_REGION(pool, POOL);
    cJSON_InitHooks(&(cJSON_Hooks){pool_get, pool_give});
  }
  Job j = {arena, fuzz_text(data, size)};
  ArenaMark mark = arena_mark(arena);
  fuzz_outcome(&err, err_try(&err, round_trip, &j));
  arena_release(arena, mark);
  free((void *)j.text);
  FUZZ_CHECK(live == 0);
  used = 0;
  return 0;
}

/* ---- changes that keep the JSON whole ---- */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

static const char *const VALUE[] = {
    "0",    "1",     "-1",    "2",     "64",      "2147483647", "2147483648",           "-2147483649", "1e10",
    "0.5",  "1e-9",  "1e999", "-0",    "9e15",    "1e16",       "12345678901234567890", "null",        "true",
    "[]",   "{}",    "[[]]",  "\"\"",  "\"AN\"",  "\"FU\"",     "\"PR\"",               "\"RE\"",      "\"SP\"",
    "\"x\"", "\"FSP\"", "\"FFSP\"", "\"SA\"", "\"CA\"", "\"CI\"", "\"CR\"", "\"CHR\"", "\"CHW\"", "\"RF\"",
    "[1, 2]", "[0]", "\"local\"", "\"\\u00e9\\ud83d\\ude00\"", "\"\\n\\t\\\\\"", "[1, 2, 3, 4, 5, 6, 7, 8]"};

/* The end of the value that starts at s[at]: a scalar, or everything up to the matching bracket. */
UNTRACED static size_t value_end(const uint8_t *s, size_t n, size_t at) {
  int depth = 0;
  bool text = false;
  for (size_t i = at; i < n; i++) {
    uint8_t c = s[i];
    if (text) {
      if (c == '\\') i++;
      else if (c == '"') text = false;
    } else if (c == '"') {
      text = true;
    } else if (c == '[' || c == '{') {
      depth++;
    } else if (c == ']' || c == '}') {
      if (--depth < 0) return i;
      if (depth == 0) return i + 1;
    } else if ((c == ',' || c == ':') && depth == 0) {
      return i;
    }
  }
  return n;
}

/* Start of a value: after an opening bracket, a comma or a colon outside of strings; the k-th of them. */
UNTRACED static size_t value_start(const uint8_t *s, size_t n, size_t k) {
  bool text = false;
  size_t start[256], count = 0;
  for (size_t i = 0; i < n && count < 256; i++) {
    uint8_t c = s[i];
    if (text && c == '\\') i++;
    else if (c == '"') text = !text;
    else if (!text && (c == '[' || c == ',' || c == ':')) {
      size_t v = i + 1;
      while (v < n && s[v] == ' ') v++;
      if (v < n) start[count++] = v;
    }
  }
  return count ? start[k % count] : 0;
}

UNTRACED static size_t splice(uint8_t *s, size_t n, size_t max, size_t at, size_t end, const void *with, size_t len) {
  if (n - (end - at) + len > max) return n;
  memmove(s + at + len, s + end, n - end);
  memcpy(s + at, with, len);
  return n - (end - at) + len;
}

UNTRACED size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
  uint64_t x = seed * 0x9E3779B97F4A7C15u;
  uint32_t kind = (uint32_t)(x >> 60), pick = (uint32_t)(x >> 40) & 0xfffff, other = (uint32_t)(x >> 20) & 0xfffff;
  if (kind < 8 || size < 8) return LLVMFuzzerMutate(data, size, max_size);
  size_t at = value_start(data, size, pick), end = value_end(data, size, at);
  if (kind < 12) { /* another value */
    const char *v = VALUE[other % NS_COUNT(VALUE)];
    return splice(data, size, max_size, at, end, v, strlen(v));
  }
  uint8_t copy[600];
  size_t from = value_start(data, size, other), len = value_end(data, size, from) - from;
  if (kind == 12) { /* the value is removed, with its comma */
    if (end < size && data[end] == ',') end++;
    return splice(data, size, max_size, at, end, "", 0);
  }
  if (len + 2 > sizeof copy) return LLVMFuzzerMutate(data, size, max_size);
  memcpy(copy, data + from, len);
  if (kind == 13) return splice(data, size, max_size, at, end, copy, len); /* a value from elsewhere in its place */
  memcpy(copy + len, ", ", 2);
  return splice(data, size, max_size, at, at, copy, len + 2); /* or before it */
}
