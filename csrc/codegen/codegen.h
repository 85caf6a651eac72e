/* codegen: printers for C, CUDA C and OpenCL C over one shared expression printer. Spec 07 §7.5.
 *
 * C.  The text exports one function per program
 *         int32_t NAME(void *const *args, void *const *work, NsParallel par, void *pool);
 *     args[i] is the data of argument i, work[j] that of workspace j (both aligned as the manifest says). Loops marked
 *     parallel become `par(pool, body, env, n)`: `par` must call body(env, b, e) on ranges that together cover [0, n)
 *     exactly once, return when all are done, and return 0 (anything else is passed on as NAME's result). par == NULL
 *     runs them serially. Parallel loops never nest. NAME returns 0 on success, else one of GenError. The text needs nothing but
 *     <stdint.h> (and <math.h> for functions of floats, <stdlib.h> if a temporary inside a parallel loop is too large for the
 *     stack), so it may also be compiled into a deployed library.
 * CUDA, OpenCL.  The text holds one function per kernel; parameters are pointers in the order of Kernel.param.
 * Shuffles: the kids of IN_SHFL and IN_SHFL_DOWN are (value, lane or distance, width), or the same after a mask.
 * 16-bit floats are 16 bits in memory and float32 in registers, on every target.
 *
 * ---- Manifest, format 1: all that is needed to run the binary, as one JSON object ----
 *   {"format": 1,
 *    "target": "c" | "cuda" | "opencl",
 *    "entry": "matmul",                    name of the program; for "c" the exported symbol
 *    "sm": 90, "fast_math": 0,             as in Target (sm: 0 unless cuda)
 *    "args": [{"name": "A", "dtype": "float32", "shape": [64, 64], "bytes": 16384, "align": 64, "read_only": true},
 * ...], "work": [{"name": "C.rf", "dtype": "float32", "bytes": 65536, "align": 64}, ...], "kernels": [{"name":
 * "matmul_kernel0", "params": [{"kind": "arg", "index": 0, "read_only": true}, {"kind": "work", "index": 0,
 * "read_only": false}], "grid": [2, 2, 1], "block": [8, 8, 1],     x, y, z; always >= 1; OpenCL global size = grid *
 * block "shared_bytes": 2048,                      static shared memory (declared in the text; informative)
 *                 "dyn_shared_bytes": 0,                     to be passed at launch
 *                 "local_bytes": 64}, ...]}                  local arrays per thread (informative)
 * Order of "args" is the order of the program's arguments, of "kernels" the launch order; "index" counts in "args" or
 * "work". Kernels run one after the other (each sees all writes of the earlier ones). For "c" there is one kernel of
 * the entry's name with grid and block 1, whose "params" are informative: call the entry with all args and work.
 * "align" is what the text assumes of the pointer, in bytes. Workspaces hold no data between runs.
 * An argument with "from_shape" and "axis" wants its data in another layout than the task has it: see Relayout in
 * schedule.h ("shape" is the new shape, "axis" names for each of its dimensions the original one).
 */
#ifndef NS_CODEGEN_H
#define NS_CODEGEN_H
#include "lower/lower.h"
typedef void (*NsParallelBody)(void *env, int64_t begin, int64_t end);
typedef int32_t (*NsParallel)(void *pool, NsParallelBody body, void *env, int64_t n); /* the host's thread pool */
typedef int32_t (*NsEntry)(void *const *args, void *const *work, NsParallel par,
                           void *pool); /* type of the C text's function */
/* What a program of a CPU reports: no memory for a temporary; a division of integers by zero, whose value is 0 then. GPUs cannot
 * report: there the value is 0, too. */
typedef enum { GEN_NO_MEMORY = -1, GEN_ZERO_DIVISION = -2 } GenError;
enum { GEN_ALIGN = 64 };                /* bytes; assumed of every argument and workspace pointer */
/* The name under which candidates and programs of networks are compiled, so that equal ones share a binary; build_rename puts
 * the real name in its place, which must not be longer. */
#define GEN_NAME                                                                                                       \
  "ns_program_________________________________________________________________________________________________________"
char *gen_source(const Program *p);     /* text for p->f.target; in the context's arena */
char *gen_manifest(const Program *p);   /* JSON as above; in the context's arena */
#endif
