/* From loops, or from steps, to all that is needed to compile and run a program (text.c). */
#ifndef NS_CODEGEN_TEXT_H
#define NS_CODEGEN_TEXT_H
#include "codegen/codegen.h"
#include "lower/lower.h"

/* In the context's arena. why: NULL, or that a limit of the GPU is broken: then there is no text. */
typedef struct {
  const char *source, *manifest, *why;
} GenText;
/* Raises what lowering raises; the limits are not checked. */
GenText gen_loops(Func f, const char *name, int n_relayout, const Relayout *r);
/* What a network knows of the arguments of a program. */
typedef struct {
  uint64_t constant; /* as in Func */
  int32_t join_dim;  /* of the last argument, as in IrBuffer */
  int64_t join_extent;
} GenArgs;
/* layout: 0 none, 1 insert transform stage, 2 pre-transformed; args: NULL: nothing. Raises what replaying and lowering raise. */
GenText gen_steps(IrCtx *c, const TeDag *d, const Target *t, int n, const Step *steps, int layout, const char *name,
                  const GenArgs *args);
#endif
