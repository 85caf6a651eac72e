/* Fuzz target of the log reader: whatever bytes stand on a line, record_parse gives a record or raises; a record that
 * was read is written and read back to the same text. Bytes after a NUL are cut off, as they are in the engine. */
#include "fuzz.h"
#include "schedule/schedule.h"

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
  }
  Job j = {arena, fuzz_text(data, size)};
  ArenaMark mark = arena_mark(arena);
  fuzz_outcome(&err, err_try(&err, round_trip, &j));
  arena_release(arena, mark);
  free((void *)j.text);
  return 0;
}
