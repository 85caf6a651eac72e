/* Reading and writing of model files: the head that all kinds share, and numbers in order. */
#ifndef NS_MODEL_FILE_H
#define NS_MODEL_FILE_H
#include "model/model.h"

typedef struct {
  ModelKind kind;
  int32_t rules, n_feat, n_state, n_kept;
  const int32_t *kept; /* entries that the model looks at */
  const char *json;
} ModelHead;

void model_file_begin(StrBuf *b, Arena *a, const ModelHead *h);
void model_put(StrBuf *b, const void *p, size_t n);
void model_put_u32(StrBuf *b, int64_t v);
void model_file_end(StrBuf *b, const char *path); /* checksum, temporary file, rename; raises NS_ERR_IO */

typedef struct {
  Arena *arena;
  const char *path;
  const uint8_t *at, *end;
} ModelReader;
ModelHead model_file_open(ModelReader *r, Arena *a,
                          const char *path);         /* raises on a wrong magic, version or checksum */
void model_get(ModelReader *r, void *out, size_t n); /* raises at the end of the file */
uint32_t model_get_u32(ModelReader *r);
int32_t model_get_count(ModelReader *r, size_t elem); /* a length that the rest of the file can hold */
#endif
