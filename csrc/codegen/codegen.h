/* codegen: printers for C, CUDA C and OpenCL C over one shared expression printer. Spec 07 §7.5.
 * The C text exports for each program one function `int32_t NAME(void *const *args, void *const *work, NsParallel par)`;
 * GPU texts hold one function per kernel whose parameters are Kernel.param in order.
 */
#ifndef NS_CODEGEN_H
#define NS_CODEGEN_H
#include "lower/lower.h"
typedef void (*NsParallelBody)(void *env, int64_t begin, int64_t end);
typedef int32_t (*NsParallel)(void *pool, NsParallelBody body, void *env, int64_t n); /* the host's thread pool */
char *gen_source(const Program *p);              /* text for p->f.target; in the context's arena */
char *gen_manifest(const Program *p);            /* JSON: kernels, params, launch sizes, workspaces: what build/device/graph need to run it */
#endif
