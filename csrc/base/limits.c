/* The table of bounds; limits.h says what it is for. */
#include "base/limits.h"
#include <stdio.h>

static const Limit LIMITS[LIMIT_KINDS] = {
    [LIMIT_LINE] = {"line", "bytes in a line", 1 << 20, 2087},
    [LIMIT_NESTING] = {"nesting", "nested brackets", 128, 6},
    [LIMIT_TEXT] = {"text", "bytes in a text", 16 << 10, 238},
    [LIMIT_INPUTS] = {"inputs", "names of task inputs", 1024, 0},
    [LIMIT_COSTS] = {"costs", "costs", 4096, 10},
    [LIMIT_STEPS] = {"steps", "steps", 2048, 70},
    [LIMIT_LIST] = {"list", "numbers in a list", 1024, 37},
    [LIMIT_ITERATORS] = {"iterators", "iterators of a stage", 1024, 37},
    [LIMIT_SPLIT] = {"split", "as the product of a split's lengths", INT32_MAX, 2048},
    [LIMIT_STAGES] = {"stages", "stages added by steps", 64, 3},
    [LIMIT_UNROLL_STEP] = {"unroll_step", "as auto_unroll_max_step", 16 << 10, 1024},
    [LIMIT_VTHREADS] = {"vthreads", "virtual threads around one another", 1024, 8},
    [LIMIT_STATEMENTS] = {"statements", "statements after unrolling", 64 << 10, 4112},
    [LIMIT_TEMPORARIES] = {"temporaries", "times the bytes of the task's tensors for temporaries", 16, 1},
    [LIMIT_SOURCE] = {"source", "bytes of source text", 32 << 20, 1616013},
    [LIMIT_MEMORY] = {"memory", "bytes of memory", 320 << 20, 18059200},
    [LIMIT_COMPILE_RECORD] = {"compile_record", "seconds of a C compiler for a recorded schedule", 8, 1},
    [LIMIT_COMPILE] = {"compile", "seconds of a compiler", 180, 12},
};

const Limit *limit_of(LimitKind k) { return &LIMITS[k]; }

const char *limit_text(LimitKind k, int64_t value, char *out, size_t n) {
  const Limit *l = &LIMITS[k];
  snprintf(out, n, "%lld %s; allowed are %lld (limit \"%s\")", (long long)value, l->what, (long long)l->most, l->name);
  return out;
}

void limit_check(Err *e, LimitKind k, int64_t value) {
  char text[160];
  if (value > LIMITS[k].most) err_raise(e, NS_ERR_VALUE, "%s", limit_text(k, value, text, sizeof text));
}
