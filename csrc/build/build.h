/* build: source text -> binary. NVRTC and clBuildProgram are opened at run time, the CPU uses the system C compiler.
 * Results are cached on disk by content (source, target, compiler version, flags). Spec 05 §7.3-4, 07 §7.5.7.
 */
#ifndef NS_BUILD_H
#define NS_BUILD_H
#include "ir/target.h"
#include "base/base.h"
typedef struct { void *data; size_t n; double seconds; bool cached; } Binary; /* CPU: data is the path of a shared object */
typedef struct { double timeout_s; const char *cache_dir; const char *cc; } BuildOptions; /* cache_dir NULL: default, "" : none */
Binary build_binary(Arena *a, const Target *t, const char *source, const BuildOptions *o); /* raises NS_ERR_RUNTIME with the compiler's log; a timeout says so */
bool build_available(const Target *t, char *why, size_t n);
#endif
