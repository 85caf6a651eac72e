/* Reading JSON with cJSON, which tells "no JSON" and "no memory" by the same NULL. They must not be mixed up: a log line that
 * is no record is left out, a process without memory must say so. */
#include "base/base.h"

#include <cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the tree of a text takes at most, per byte: an item of 64 bytes for two of `1,`, with what malloc adds. */
enum { TREE_PER_BYTE = 64, TREE_LEAST = 4096 };

cJSON *json_parse(Err *e, const char *text) {
  cJSON *root = cJSON_ParseWithOpts(text, NULL, 1);
  if (!root) free(mem_alloc(e, strlen(text) * TREE_PER_BYTE + TREE_LEAST)); /* with that much it was not for memory */
  return root;
}

void json_with(Err *e, ErrBody body, void *arg, cJSON **root) {
  ErrCode c = err_try(e, body, arg);
  cJSON_Delete(*root);
  if (c != NS_OK) err_rethrow(e, c);
}

bool json_whole(const cJSON *v, int64_t lo, int64_t hi) {
  return cJSON_IsNumber(v) && floor(v->valuedouble) == v->valuedouble && v->valuedouble >= (double)lo &&
         v->valuedouble <= (double)hi;
}
