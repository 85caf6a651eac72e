/* Fuzz target of the manifest reader: the description of a binary that device trusts after it was read. */
#include "program/program.h"
#include "fuzz.h"

typedef struct {
  Arena *a;
  const char *text;
} Job;

static void parse(void *arg) {
  Job *j = arg;
  const Manifest *m = man_parse(j->a, j->text);
  for (int i = 0; i < m->n_kernels; i++)
    for (int p = 0; p < m->kernel[i].n_param; p++) {
      const ManParam *q = &m->kernel[i].param[p];
      FUZZ_CHECK(q->index >= 0 && q->index < (q->work ? m->n_work : m->n_args));
    }
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
  fuzz_outcome(&err, err_try(&err, parse, &j));
  arena_release(arena, mark);
  free((void *)j.text);
  return 0;
}
