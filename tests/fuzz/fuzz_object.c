/* Fuzz target of the reader of shared objects: the headers that it has believed are those that the system's loader does. */
#include "base/object.h"
#include "fuzz.h"

typedef struct {
  Err *e;
  const uint8_t *data;
  size_t n;
} Job;

static void check(void *arg) {
  Job *j = arg;
  object_check(j->e, j->data, j->n, "input");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const NAMES[] = {ISA_NOTE, "nestsmith_blob", ""};
  static Err err;
  uint8_t *own = malloc(size + 1);
  if (!err.msg[0]) err_init(&err);
  memcpy(own + 1, data, size); /* at an odd address, with nothing behind it */
  Job j = {&err, own + 1, size};
  ErrCode code = err_try(&err, check, &j);
  if (code != NS_ERR_RUNTIME) fuzz_outcome(&err, code); /* for another machine or processor */
  for (int i = 0; i < NS_COUNT(NAMES); i++) {
    size_t n;
    const uint8_t *at = object_variable(own + 1, size, NAMES[i], &n);
    FUZZ_CHECK(!at || (at > own && at <= own + 1 + size && n <= (size_t)(own + 1 + size - at)));
    for (size_t k = 0; at && k < n; k++) FUZZ_CHECK(at[k] == data[at - own - 1 + (long)k]);
  }
  free(own);
  return 0;
}
