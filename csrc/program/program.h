/* program: what a finished program is, for who makes it (codegen, compile) and who runs it (device, graph, a deployed
 * library): how its code is called, the manifest that says how to run it, layouts of its data, and the container of an
 * exported network. Spec 07 §7.5.
 *
 * ---- Calling ----
 * A program in C exports one function
 *     int32_t NAME(void *const *args, void *const *work, NsParallel par, void *pool);
 * args[i] is the data of argument i, work[j] that of workspace j (both aligned as the manifest says). Loops marked parallel
 * become `par(pool, body, env, n)`: `par` must call body(env, b, e) on ranges that together cover [0, n) exactly once,
 * return when all are done, and return 0 (anything else is passed on as NAME's result). par == NULL runs them serially.
 * Parallel loops never nest. NAME returns 0 on success, else one of ProgramError. The text needs nothing but <stdint.h> (and
 * <math.h> for functions of floats, <stdlib.h> if a temporary inside a parallel loop is too large for the stack), so it may
 * also be compiled into a deployed library.
 * CUDA, OpenCL.  One function per kernel; parameters are pointers in the order of ManKernel.param.
 *
 * ---- Manifest, format 1: all that is needed to run the binary, as one JSON object ----
 *   {"format": 1,
 *    "target": "c" | "cuda" | "opencl",
 *    "entry": "matmul",                    name of the program; for "c" the exported symbol
 *    "name": "mat.mul",                    what the user calls it, where that is no identifier
 *    "sm": 90, "fast_math": 0,             as in Target (sm: 0 unless cuda)
 *    "args": [{"name": "A", "dtype": "float32", "shape": [64, 64], "bytes": 16384, "align": 64, "read_only": true}, ...],
 *    "work": [{"name": "C.rf", "dtype": "float32", "bytes": 65536, "align": 64}, ...],
 *    "kernels": [{"name": "matmul_kernel0",
 *                 "params": [{"kind": "arg", "index": 0, "read_only": true},
 *                            {"kind": "work", "index": 0, "read_only": false}],
 *                 "grid": [2, 2, 1], "block": [8, 8, 1],     x, y, z; always >= 1; OpenCL global size = grid * block
 *                 "shared_bytes": 2048,                      static shared memory (declared in the text; informative)
 *                 "dyn_shared_bytes": 0,                     to be passed at launch
 *                 "local_bytes": 64,                         local arrays per thread (informative)
 *                 "waits": true}, ...]}                      it touches no memory before the launch before it has ended, by a
 *                                                            wait of its own, but arguments that were said to be constant
 *                                                            (Func.constant), to which that launch must not write: it may be
 *                                                            launched to begin while that one ends, on a GPU that can
 *                                                            (machine.h, GPU_OVERLAP); missing: false
 * Order of "args" is the order of the program's arguments, of "kernels" the launch order; "index" counts in "args" or
 * "work". Kernels run one after the other (each sees all writes of the earlier ones). For "c" there is one kernel of the
 * entry's name with grid and block 1, whose "params" are informative: call the entry with all args and work. "align" is
 * what the text assumes of the pointer, in bytes. "bytes" of an argument are those from its first element to its last:
 * more than its elements have where it is a part of a larger tensor, whose rows lie apart. An argument is "constant": true if no kernel
 * of the network writes to it. Workspaces begin as zeros and belong to
 * the program: it may leave counters there for its next run. An argument with "from_shape" and "axis" wants its data in another layout (Relayout) than the task has it: "shape" is
 * the new shape, "axis" names for each of its dimensions the original one.
 * Where indices come from data there is one more field:
 *    "indices": {"report": 0,                                number of the workspace that is the report, see REPORT_WORDS
 *                "sites": [{"stage": "T_gather", "of": "x", "axis": 1, "size": 33, "from_end": true}, ...]}
 */
#ifndef NS_PROGRAM_H
#define NS_PROGRAM_H
#include "base/base.h"

/* ---- calling ---- */
typedef void (*NsParallelBody)(void *env, int64_t begin, int64_t end);
typedef int32_t (*NsParallel)(void *pool, NsParallelBody body, void *env, int64_t n); /* the host's thread pool */
typedef int32_t (*NsEntry)(void *const *args, void *const *work, NsParallel par, void *pool);
/* What a program of a CPU reports: no memory for a temporary; a division of integers by zero, whose value is 0 then. GPUs
 * cannot report that: there the value is 0, too. */
typedef enum { PROGRAM_NO_MEMORY = -1, PROGRAM_ZERO_DIVISION = -2, PROGRAM_BAD_INDEX = -3 } ProgramError;
/* The report, a workspace of the program. An index from data that is out of range counts as 0, and the first one is stored in the report.
 * Words: 1 + the number of the site in the manifest; 0; the value, low word first. A CPU program clears word 0 when it begins, and returns
 * PROGRAM_BAD_INDEX. On a GPU the call that reads results checks word 0 and clears it. */
enum { REPORT_SITE, REPORT_LOW = 2, REPORT_HIGH, REPORT_WORDS }; /* of 4 bytes */
enum { PROGRAM_ALIGN = 64 }; /* bytes; assumed of every argument and workspace pointer */
/* The name under which candidates and programs of networks are compiled, so that equal ones share a binary; build_rename
 * puts the real name in its place, which must not be longer. */
#define PROGRAM_NAME                                                                                                   \
  "ns_program_________________________________________________________________________________________________________"

/* ---- forms of data (relayout.c) ---- */
/* How an argument is made from the original: new dimension k has size[k] and counts within dimension axis[k] of the
 * original, outer parts first; what lies outside the original is zero. */
typedef struct {
  int32_t tensor; /* position in the DAG's tensor list, or among the arguments */
  int32_t n_from, n;
  const int64_t *from, *size; /* shape of the original, new shape */
  const int32_t *axis;        /* per new dimension */
} Relayout;
enum { LAYOUT_MAX_DIMS = 32 };
bool relayout_sizes(const Relayout *r, int64_t *from, int64_t *to); /* elements of both shapes; false: too many */
/* Writes the elements, of elem bytes each, of the new layout to `to`; `from`: the original. n and n_from are at most
 * LAYOUT_MAX_DIMS. */
void relayout_copy(const Relayout *r, int64_t elem, const void *from, void *to);
/* Winograd's transform G w G^T of a weight's windows; G: points x taps numbers by rows. points 0: none. */
enum { WINOGRAD_MOST = 10 }; /* points */
typedef struct {
  int32_t points, taps;
  const double *g;
} Winograd;
/* from: n windows [taps][taps]; to: [points][points][n]. */
void winograd_weight(const Winograd *w, int64_t n, const float *from, float *to);

/* ---- manifest (manifest.c) ---- */
typedef struct {
  const char *name, *dtype;
  int32_t ndim;
  const int64_t *shape; /* NULL of a workspace */
  int64_t bytes;
  bool read_only, constant; /* constant: no kernel of the network that it is part of writes it */
  const Relayout *layout; /* NULL: as the task has it; its `size` is `shape` */
} ManBuffer;
typedef struct {
  bool work, read_only;
  int32_t index; /* in work or in args */
} ManParam;
typedef struct {
  const char *name;
  int32_t n_param;
  ManParam *param;
  int64_t grid[3], block[3], shared_bytes, dyn_shared_bytes, local_bytes;
  bool waits;
} ManKernel;
typedef struct {
  const char *stage, *of; /* the stage that reads, and the tensor; of: NULL if the index is checked without a read */
  int32_t axis;
  int64_t size;  /* 0: not known before a run */
  bool from_end; /* negative values have been counted from the end: -1 is what was -1 - size */
} ManSite;
typedef struct {
  const char *target, *entry, *name; /* name: NULL unless it differs from entry */
  int32_t sm, fast_math;
  int32_t n_args, n_work, n_kernels;
  ManBuffer *arg, *work;
  ManKernel *kernel;
  int32_t report, n_site; /* report: number of that workspace; -1: there is none */
  ManSite *site;
} Manifest;
const Manifest *man_parse(Arena *a, const char *json); /* raises NS_ERR_VALUE naming the field; all memory in a */
char *man_write(Arena *a, const Manifest *m);

/* ---- parameter file (params.c) ---- */
typedef struct {
  const char *name, *dtype;
  int32_t rank;
  const int64_t *shape;
  int64_t bytes;
  const void *data;
  const struct WeightForm *form; /* how the value is made of data, which is the original; NULL: data is the value */
} GraphParam;
/* A weight as kernels read it, made of the original: Winograd's transform of [..., taps, taps] to [points, points, ...], if there is one,
 * then another layout. */
typedef struct WeightForm {
  Winograd winograd; /* of float32 */
  Relayout layout;   /* from: the shape behind the transform; size: the shape of the value */
} WeightForm;
/* Both in relayout.c. Bytes that are stored for a weight; -1: its form makes no sense. */
int64_t form_stored(const GraphParam *p);
/* The value of a weight, p->bytes of them. Raises NS_ERR_MEMORY on e. */
void form_make(Err *e, const GraphParam *p, void *to);
int64_t params_dtype_bytes(const char *dtype); /* of an element; 0: no such type */
void params_write(StrBuf *out, int n, const GraphParam *p);
GraphParam *params_read(Arena *a, const void *data, size_t size, int *n); /* .data points into `data` */

/* ---- an exported network (container.c) ---- */
typedef struct {
  const void *at;
  size_t n;
} StoredBinary;
typedef struct {
  const char *name, *source, *manifest;
  const void *binary; /* NULL: to be made from the source */
  size_t n_binary;
  int32_t n_levels; /* of a model file: binaries for several processors, the one that needs most first; `binary` is the first that this */
  const StoredBinary *level; /* one runs, or the last. 0: `binary` alone */
} StoredProgram;
typedef struct {
  const char *name, *target; /* name: of the module; target: as its text */
  const char *graph;         /* the graph file */
  int32_t n_weights, n_programs, n_inputs;
  const GraphParam *weight;
  StoredProgram *program;
  const char **input; /* names of the network's inputs before constants were folded */
} Container;
typedef enum { IN_LIBRARY, MODEL_FILE } ContainerForm; /* a variable in a library; a model file (.nsm), whose weights are aligned */
void container_write(StrBuf *out, const Container *c, ContainerForm form);
/* Either form. Texts are copied into a; weights and binaries point into data. Raises NS_ERR_VALUE; what: its name in messages. */
Container *container_read(Arena *a, const void *data, size_t n, const char *what);
/* The container in the bytes of a library that export_library wrote, or of a model file; NULL: there is none. */
const void *container_find(const void *library, size_t n, size_t *size);
#endif
