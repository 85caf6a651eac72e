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

/* Programs that follow each other as one, with the kernels of all in a single launch (lower/merge.c). All DAGs are of context c; arg: per
 * tensor of the DAG which argument of the whole it is. Raises what replaying and lowering raise, and NS_ERR_VALUE where it cannot be. */
typedef struct {
  const TeDag *dag;
  int n;
  const Step *step;
  int layout;
  uint64_t constant;
  int n_arg;
  const int32_t *arg;
} GenPart;
Program gen_merged(IrCtx *c, const Target *t, int n, const GenPart *part, int n_args, const char *name);
GenText gen_merged_text(IrCtx *c, const Target *t, int n, const GenPart *part, int n_args, const char *name);
#endif
