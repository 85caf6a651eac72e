/* Private to interp: the state of one execution. */
#ifndef NS_INTERP_RUN_H
#define NS_INTERP_RUN_H
#include "interp/interp.h"

enum { MAX_THREADS = 1024 }; /* of a block */

/* A scalar value. `bad`: it depends on memory that was never written. */
typedef struct {
  union {
    int64_t i;
    double f;
  } u;
  bool bad;
} Val;

typedef struct {               /* per element, for the race check */
  int32_t writer, write_epoch; /* thread + 1, 0: none */
  int32_t reader[2], read_epoch[2];
  int32_t write_met, read_met[2]; /* how often warps had met by then (warp.c) */
  bool init;
} Shadow;

typedef struct {
  BufferId id;
  DType type; /* of one element */
  int32_t size, rank;
  bool fixed_block; /* global memory: threads of different blocks conflict too */
  bool others, constant; /* other launches may write it; no launch does */
  uint8_t *data;
  Shadow *shadow;
  int64_t n, *min, *extent; /* the realized region; multi-dimensional form only */
} Mem;

typedef struct {
  IrCtx *c;
  Err *err;
  const GpuMachine *gpu; /* whose instructions run */
  Arena *keep, *a;      /* what lasts as long as the run; memory of the program (released in nests) */
  const ExprNode *node; /* tables of the context; nothing is added while running */
  const ExprId *kid;
  bool flat, implied; /* implied: barriers stand between statements that touch shared memory */
  bool unplaced;      /* so it is in all kernels but those made with their barriers */
  bool strict;        /* a program ready for code generation: both sides of a select are evaluated */
  Mem **mem;          /* by BufferId: memory seen by all threads, or NULL */
  Mem ***own;         /* by BufferId: per thread */
  int32_t n_buffers, n_vars, n_exprs;
  int threads, t;                    /* of a block; running now */
  int32_t *slot, n_slots, max_slots; /* VarId -> place in env, 0: none yet */
  int8_t *dim_of;                    /* VarId -> 0..2 for threadIdx.x..z, -1 */
  Val *env_all, *env;                /* variables: [thread][slot] */
  uint8_t *expr_flags;               /* by ExprId, see EXPR_... */
  Mem **tensor;                      /* by TensorId: reference evaluation of a DAG */
  int64_t block_dim[3], grid_dim[3], block_id[3];
  int32_t block_serial; /* number of the block in its launch */
  bool in_kernel, in_parallel;
  int32_t epoch, kernel_epoch;
  int32_t met, warp_met[MAX_THREADS / GPU_WARP]; /* how often warps of blocks have met (IN_WARP_SYNC); as each last did */
  int32_t quiet; /* > 0: the value is discarded, no findings */
  int32_t index_depth;
  MapU64 sync; /* Stmt address -> executes in lock-step */
  MapU64 shfl; /* ExprId of a shuffle -> its values per thread in shfl_val */
  Val *shfl_val;
  MapU64 shared_writes; /* (element, thread) -> epoch in which it wrote what others wrote too */
  VEC(const char *) found;
  MapU64 found_keys;
  struct Flight *flight; /* warp.c: copies of the block's threads that have not arrived; NULL: none yet */
  struct Groups *groups; /* group.c: products of the block's warpgroups that are under way; NULL: none yet */
  struct Cluster *cluster; /* of the kernel */
  struct Counts *counts;   /* of the launch */
  bool waits, waited[MAX_THREADS]; /* the kernel waits for the launch before it; which threads of the block have done so */
  int64_t steps, max_steps, misaligned;
} Run;

enum { EXPR_KNOWN = 1, EXPR_SHARED = 2, EXPR_SHFL = 4 };

/* value.c */
Val val_bin(Run *r, ExprKind k, DType t, Val a, Val b);
Val val_cast(Run *r, DType to, DType from, Val a);
Val val_math(Run *r, Intrin in, DType t, int n, const Val *a, DType from);
double val_round(DType t, double x);
int64_t val_wrap(DType t, int64_t x);
Val mem_get(DType t, const uint8_t *p);
void mem_put(DType t, uint8_t *p, Val v);

/* memory.c */
Mem *mem_of(Run *r, BufferId b);
Mem *mem_new(Run *r, BufferId b, void *data); /* data NULL: fresh, not initialised */
Val mem_load(Run *r, BufferId b, int n, const ExprId *idx, int lane);
void mem_store(Run *r, BufferId b, int n, const ExprId *idx, int lane, Val v);
int64_t mem_place(Run *r, Mem *m, int n, const ExprId *idx, int lane, bool write); /* element number; -1: a finding */
Val mem_load_at(Run *r, Mem *m, int64_t at);
void mem_store_at(Run *r, Mem *m, int64_t at, Val v);
typedef enum { FD_BOUNDS, FD_RACE, FD_DOUBLE, FD_UNINIT, FD_BARRIER, FD_OVERFLOW, FD_LAUNCH } FindingKind;
void finding(Run *r, FindingKind k, int32_t subject, const char *fmt, ...) NS_PRINTF(4, 5);

/* eval.c */
Val ev(Run *r, ExprId e, int lane);
int64_t ev_int(Run *r, ExprId e, const char *what);
bool ev_cond(Run *r, ExprId e);
void combine(Run *r, const IrReducer *op, Val *acc, const Val *src); /* acc: what the reducer makes of it and src */

/* exec.c: one thread; lockstep.c: all threads of a block */
void exec_one(Run *r, const Stmt *s);
void exec_all(Run *r, const Stmt *s, const bool *on);
void exec_leaf(Run *r, const Stmt *s);
void run_launch(Run *r, const Stmt *s);
void thread_index(const Run *r, int64_t t, int64_t at[3]); /* of thread t of a block */
/* The variable of a loop that is bound to an axis of the launch, for the thread that runs; false: there is no such iteration. */
bool set_axis(Run *r, const Stmt *s, int64_t min, int64_t n);
/* warp.c: what the lanes of a warp do together, and copies that take their time */
bool is_warp_op(const Run *r, const Stmt *s); /* its threads work together: all of a block are taken through it at once */
bool is_copy_op(const Run *r, const Stmt *s);
void exec_warps(Run *r, const Stmt *s, const bool *on);
void exec_copy(Run *r, const Stmt *s); /* by one thread */
void end_copies(Run *r);               /* a block begins: nothing is in flight */
typedef struct {
  Mem *mem;
  int64_t at; /* -1: out of bounds, a finding */
} Spot; /* first of the elements that an instruction reads or writes */
Spot operand_spot(Run *r, ExprId load, bool write);
void check_aligned(Run *r, ExprId load, Spot p, int64_t n); /* n elements that are copied at once */
Val operand_take(Run *r, Spot p, int64_t i);
void operand_put(Run *r, Spot p, int64_t i, Val v);
/* group.c: products of warpgroups, which take their time */
bool is_group_op(Intrin in);
void exec_group(Run *r, const ExprNode *call, int first); /* by the warpgroup that begins with thread `first` */
void group_sees(Run *r);   /* this thread's stores up to now are seen by products behind the next barrier */
void group_stored(Run *r); /* this thread has stored in shared memory */
void end_groups(Run *r);           /* a block begins: nothing is under way */
/* cluster.c: blocks that send each other values */
struct Cluster *cluster_begin(Run *r, const Stmt *kernel);
void cluster_run(Run *r, const Stmt *s, int64_t z, int32_t serial, const bool *on); /* the blocks from z on */
int cluster_size(const Run *r);
bool cluster_past(const Run *r); /* what follows is for the second time that the block runs */
bool is_cluster_op(const Run *r, const Stmt *s); /* by all threads of a block: it begins, the others have, all has arrived */
void exec_cluster(Run *r, const Stmt *s, bool all_on);
void cluster_send(Run *r, const ExprNode *call); /* by one thread */
/* last.c: blocks that count themselves, the last of which goes on */
void counts_begin(Run *r, const Stmt *kernel);
void counts_block(Run *r); /* a block begins */
void counts_end(Run *r);
void exec_count(Run *r, const Stmt *s, const bool *on);
/* Is what a block did in an epoch behind the one that runs, because that is the last where the other was counted? */
bool counted_before(const Run *r, int32_t block, int32_t epoch);
/* overlap.c: launches that begin while the ones before them end */
void launch_begin(Run *r, const Stmt *kernel);
void launch_block(Run *r); /* a block begins */
bool exec_launch(Run *r, const Stmt *s); /* by one thread; false: s is something else */
void launch_block_ends(Run *r);
void launch_touch(Run *r, const Mem *m, bool write); /* the thread that runs reads, or writes, it */
bool in_lockstep(Run *r, const Stmt *s);
bool uses_barriers(Run *r, const Stmt *s);
int expr_flags(Run *r, ExprId e);
void set_thread(Run *r, int t);
void set_var(Run *r, VarId v, Val x);
void alloc_one(Run *r, BufferId b); /* fresh memory for this thread, or for all */
void step(Run *r);
#endif
