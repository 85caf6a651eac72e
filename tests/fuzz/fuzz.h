/* What the fuzz targets share: text with its own allocation, so that reading past its end is seen, and the rule that
 * bad input raises a value error and never an internal one. */
#ifndef NS_FUZZ_H
#define NS_FUZZ_H
#include "base/base.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_CHECK(cond) ((cond) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond), abort()))

static inline char *fuzz_text(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  memcpy(text, data, size);
  text[size] = 0;
  return text;
}

static inline void fuzz_outcome(const Err *e, ErrCode code) {
  if (code == NS_OK || code == NS_ERR_VALUE) return;
  fprintf(stderr, "error %d: %s\n", code, e->msg);
  abort();
}
#endif
