/* What lowering makes of a schedule and code generation and the interpreter take: functions and programs. They know
 * nothing of schedules. */
#ifndef NS_IR_PROGRAM_H
#define NS_IR_PROGRAM_H
#include "base/machine.h"
#include "ir/ir.h"
#include "program/program.h"

/* What a loop program is for: to be compiled or run; features (const_matrix stages become 1, computed arguments have
 * an ALLOC); the rows of the repaired features (the same, and reductions do not set initial values that are literals, which
 * make no row); features of its loops (loops of one iteration are kept, a thread axis that is bound inside itself is a loop
 * again, reductions set no initial values); to be printed (07 §7.6: vector loops become ramps on every target, replication
 * instead of marks, symbolic arguments get stride variables). All but code has reducers as they were written
 * (IrReducer.result). */
typedef enum { LOW_CODE, LOW_FEATURES, LOW_ROWS, LOW_ANALYSIS, LOW_TEXT } LowUse;
static inline bool low_for_rows(LowUse u) { return u == LOW_FEATURES || u == LOW_ROWS; }

/* A lowered function. Until `flatten` accesses carry index lists; afterwards one flat index. */
typedef struct {
  IrCtx *ctx;
  Target target;
  Stmt *body;
  int32_t n_args;
  BufferId *arg; /* external buffers, in argument order */
  int32_t n_vars;
  VarId *var; /* free shape variables, if any */
  LowUse use;
  bool flat;
  const char *illegal; /* why the program cannot be right although its loops can be printed and interpreted; NULL: it can */
  uint64_t constant;    /* bit k: no kernel of the network that it is part of writes to argument k, so that it may be read early */
  int64_t tensor_bytes; /* of all tensors of the computation before it was scheduled; 0: not known */
  int32_t n_site;       /* where indices that come from data are checked (IN_INDEX) */
  const ManSite *site;
} Func;

static inline bool func_is_constant(const Func *f, BufferId b) {
  for (int i = 0; i < f->n_args && i < 64; i++)
    if (f->arg[i] == b) return f->constant >> i & 1;
  return false;
}

typedef struct { /* one GPU kernel or one CPU top-level region; 07 §7.5.8 */
  const char *name;
  Stmt *body;
  int32_t n_param;
  BufferId *param; /* pointers, in order of first use; workspace buffers included */
  bool *read_only; /* per param */
  int64_t grid[3], block[3];
  int64_t shared_bytes, local_bytes; /* static shared per block; local arrays per thread */
} Kernel;

typedef struct {
  Func f;
  int32_t n_kernels;
  Kernel *kernel; /* GPU: in launch order. CPU: one kernel holding everything */
  int32_t n_work;
  BufferId *work; /* global temporaries the host must allocate (bytes: ir_buffer size * type) */
  BufferId report; /* the report, which receives an index out of range (program.h); 0: no index is checked */
  int32_t n_relayout;
  const Relayout *relayout; /* arguments that the caller must bring into another layout first */
} Program;
#endif
