/* measure: one long-lived worker process per device, the wire protocol, the timing policy, and error numbers.
 * The death of a worker costs one candidate and a restart. Spec 05 §2, §7.5-7.7. It knows nothing of search.
 * pipeline.h puts compile workers and a measuring worker behind one queue; that is what tuning uses.
 */
#ifndef NS_MEASURE_H
#define NS_MEASURE_H
#include "compile/compile.h"
#include "device/device.h"
typedef enum {
  ME_OK,
  ME_INSTANTIATION,
  ME_COMPILE_HOST,
  ME_COMPILE_DEVICE,
  ME_RUNTIME_DEVICE,
  ME_WRONG_ANSWER,
  ME_BUILD_TIMEOUT,
  ME_RUN_TIMEOUT,
  ME_UNKNOWN
} MeasureError; /* 02 §5.7 */
enum { MSR_MAX_COSTS = 32, MSR_MSG = 512, MSR_MAX_ARGS = 48, MSR_SLOTS = 8 };

/* ---- timing policy (timing.c) ---- */
/* What is in the cache when a run begins. Mixed: activations are, the weights of a network are not, as in the network's own
 * runs. Hot: everything that fits. Cold: no input. */
typedef enum { CACHE_MIXED, CACHE_HOT, CACHE_COLD } CachePolicy;
typedef struct {
  int number, repeat, min_repeat_ms;
  double timeout_s, cooldown_s; /* cooldown_s: the device rests for so long after each candidate */
  bool flush;
  bool check;        /* check: compare with the reference output */
  double stop_above; /* seconds; a candidate whose quick blocks are all above this is hopeless and cut short. 0: none */
  double full_below; /* seconds; the full stage is for candidates whose quick time is at most this. 0: stop_above */
  bool race; /* the pipeline sets the two limits from the best of the candidate's task so far */
  CachePolicy cache;
  uint64_t cold_args; /* arguments (bits) that are weights of a network: they move through cold_bytes of memory */
  int64_t cold_bytes; /* what all weights of the network take; 0: every run uses the same memory, and the same copy of its instructions */
  bool strict; /* no quick stage: for each of `repeat` costs blocks of `number` runs are added up until min_repeat_ms */
} RunPolicy;
typedef struct {
  MeasureError error;
  int n_costs;
  double cost[MSR_MAX_COSTS];
  double quick; /* quick: median of the quick stage; 0 if there was none */
  double seconds, spread; /* spread: of the blocks behind the costs, between quartiles, over their median */
  int blocks, redone;     /* redone: how often it was measured again because the device was disturbed */
  bool full, cut, audited, disturbed; /* cut: stopped early as hopeless; audited: and measured in full all the same */
  int runs, regs, local_bytes, shared_bytes;
  double max_error;             /* largest difference to the reference, scaled */
  char cause[24], msg[MSR_MSG]; /* cause: one of the fixed list in cause.c; "" when all is well */
} RunResult;
/* Warm-up, then the policy's stages on the loaded module; fills costs, quick, full, runs. Raises what the device
 * raises. */
void time_policy(DevModule *m, void *const *args, const RunPolicy *p, double deadline, RunResult *out);
enum { FINAL_MAX = 8, PASSES = 5, CANARY_MAX = 32 };
typedef struct {
  double pass[PASSES], spread; /* medians of the passes */
  int passes, runs, blocks;    /* passes < PASSES: clearly beaten before the end */
} FinalResult;
/* n programs in PASSES passes, in each in another order, so that a slow drift of the device meets all alike. Those that
 * are clearly beaten drop out; keep: the number of one that stays in any case, or -1. */
void time_finals(int n, DevModule *const *m, void *const *args, const RunPolicy *p, uint64_t seed, int keep,
                 double deadline, FinalResult *out);

/* ---- comparing outputs (compare.c) ---- */
/* Row k of the table of tolerances: the type that outputs are compared as, or NULL behind the last one. Besides element types
 * there are the math modes in which float32 is computed less exactly. */
const char *compared_type(int k, double *tolerance);
/* Largest |got - want| / (tolerance of dtype * (|want| + rms(want))); <= 1 is equal. Integers must be equal. NaN equals
 * NaN only. */
double outputs_differ(const char *dtype, const void *got, const void *want, size_t bytes);
/* As outputs_differ, for results that every order of operations gives alike: 0 or 1e30. -0 equals 0. */
double outputs_unequal(const char *dtype, const void *got, const void *want, size_t bytes);

/* ---- what went wrong (cause.c) ---- */
const char *cause_of(MeasureError e,
                     const char *msg); /* spec 05 §2.8: shared-memory-limit, compiler-error, illegal-address, ... */
void run_failed(RunResult *r, MeasureError e, const char *msg); /* sets error, msg and cause */

/* ---- the data of a task: inputs as the host made them, expected outputs; in shared memory, made once ---- */
typedef struct TaskData TaskData;
/* data[i] == NULL: uninitialised input, or an output that is not compared. dtype: float32, int8, ... exact[i]: the output
 * has to be equal to the bit; NULL: within the tolerance of its type. */
TaskData *task_data_new(Err *e, int n_args, const size_t *bytes, const void *const *data, const bool *is_output,
                        const char *const *dtype, const bool *exact);
void task_data_free(TaskData *t);

/* ---- the measuring worker (worker.c) ---- */
typedef struct Worker Worker;
/* Starts the process and waits until it has the device, or e is interrupted; raises if the device is missing. */
Worker *worker_start(Err *e, DevType t, int id);
/* The same on a board: via, ended by NULL, is the command that starts a runner there (bridge.c); it must live as long. */
Worker *worker_start_by(Err *e, DevType t, int id, char *const *via);
/* never leaves a process behind; NULL is allowed; in a forked child nothing: it is the parent's */
void worker_stop(Worker *w);
const DevInfo *worker_info(const Worker *w);
int worker_pid(const Worker *w);                            /* 0 while there is none */
void worker_stop_flag(Worker *w, const atomic_int *flag); /* nonzero ends a worker_run within 0.1 s */
void worker_task(Worker *w, int slot,
                 const TaskData *t); /* slot < MSR_SLOTS; t must live as long as it is in the slot; sent on demand */
RunResult worker_run(Worker *w, int slot, const void *binary, size_t n, const char *manifest,
                     const RunPolicy *p); /* never raises */
typedef struct {
  const void *binary;
  size_t n;
  const char *manifest;
} RunProgram;
/* The programs ran before; n <= FINAL_MAX. False, with why, if the worker died or was stopped. */
bool worker_final(Worker *w, int slot, int n, const RunProgram *p, const RunPolicy *policy, uint64_t seed, int keep,
                  FinalResult *out, char why[MSR_MSG]);
/* The device's fixed piece of work: warm_s seconds of it to wake the clocks, then n <= CANARY_MAX timed ones. Returns how
 * many were timed; 0: the device has none; -1: the worker died or was stopped. *pace: as of dev_canary. */
int worker_canary(Worker *w, double warm_s, int n, double *out, double *pace);
/* Runs a program for the CPU once, in a process of its own: what it does there harms nobody, and it ends when e is
 * interrupted, however long it would take. data: the arguments, overwritten with what they hold afterwards. */
void worker_compute(Err *e, int n_args, const size_t *bytes, void *const *data, const void *binary, size_t n,
                    const char *manifest);
typedef struct {
  int deaths, spares;      /* workers that ended while they had work; replaced by one that was ready */
  double longest_recovery; /* seconds from a death to a ready worker */
} WorkerStats;
WorkerStats worker_stats(const Worker *w);

/* ---- one tuner per device at a time (lock.c) ---- */
/* What to do when another process tunes on the same device: take turns (LOCK_AUTO: on GPUs of NVIDIA only, else nothing),
 * refuse to start, nothing. */
typedef enum { LOCK_AUTO, LOCK_TURNS, LOCK_FAIL, LOCK_NONE } LockMode;
typedef struct DevLock DevLock;
/* NULL where the mode wants none. LOCK_FAIL: it is held, or NS_ERR_RUNTIME is raised, with who holds it and a remedy. */
DevLock *devlock_open(Err *e, LockMode mode, DevType t, int id, const DevInfo *d);
DevLock *devlock_new(Err *e, DevType t, int id, const DevInfo *d);
void devlock_free(DevLock *l);                          /* NULL is allowed */
bool devlock_try(DevLock *l, char *holder, size_t n);   /* false: somebody holds it; holder says who */
void devlock_release(DevLock *l);
/* For those that take turns; to be asked again and again, 50 times a second, until it is true or devlock_leave. Who just
 * gave the device back does not get it before the one that waited. now: clock_now(). */
bool devlock_turn(DevLock *l, double now, char *holder, size_t n);
void devlock_leave(DevLock *l);        /* does not wait any more */
bool devlock_wanted(const DevLock *l); /* for the holder: another one waits */

/* ---- the compile worker: NVRTC under a hard deadline (worker.c) ---- */
typedef struct Compiler Compiler;
Compiler *compiler_start(Err *e); /* the process starts at the first job */
void compiler_stop(Compiler *c);
void compiler_stop_flag(Compiler *c, const atomic_int *flag);
/* ME_OK and *out (memory in a), or ME_COMPILE_HOST, ME_BUILD_TIMEOUT with msg. CPU targets compile in the calling
 * thread. Never raises. */
MeasureError compiler_run(Compiler *c, Arena *a, const Target *t, const char *source, const BuildOptions *o,
                          Binary *out, char msg[MSR_MSG]);

/* ---- the child's side (child.c) ---- */
/* Entry of the worker process: kind 'm' measures, 'c' compiles, 'r' runs a program once. When the connection is closed the
 * process and its group end; it only returns, with 1, if it cannot have a second thread. Exported from the extension module and
 * called through ctypes by nestsmith/exec/worker.py, so that a worker runs no Python of the user. */
int nestsmith_worker_main(int kind, int sock, int parent, int dev_type, int dev_id);
/* ---- workers on boards (bridge.c) ---- */
/* Carries messages between a worker's socket and a stream until either is gone. */
void bridge_run(int sock, int in, int out);
/* Exported: starts the command and carries its worker's messages; the group ends with either side. */
int nestsmith_bridge_main(int sock, char **command);
int bridge_worker(int in, int out, int dev_type, int dev_id); /* on the board: a worker behind two descriptors */
int worker_main_if_asked(
    int argc,
    char **argv); /* for statically linked programs: -1, or the exit status of the worker that argv asks for */
#endif
