/* tune: from a candidate to something that can be built and run, and choosing what to tune next.
 *
 *   session.c    lowering threads in front of the measuring pipeline
 *   schedule.c   the task scheduler's arithmetic (gradients)
 *
 * The session itself (search, build and run overlapping, callbacks, progress) is driven from Python, which only moves
 * handles; all work on candidates happens in search and here, without the interpreter lock. Spec 03 §5, 05 §7.10.
 */
#ifndef NS_TUNE_H
#define NS_TUNE_H
#include "measure/pipeline.h"
#include "measure/reference.h"
#include "search/search.h"

/* ---- session (session.c): candidates in, measured results out ---- */
typedef struct Session Session;
Session *session_new(Err *e, const Target *t, DevType d, int id, int n_lower, const PipeOptions *o);
void session_free(Session *s); /* in a forked child nothing: its threads and processes are the parent's */
/* A task to measure: the DAG is copied. data as in reference_data, NULL: uninitialised buffers and no comparison. exact: the
 * inputs are those of reference_data, so outputs that te_exact finds exact are compared to the bit. */
int session_task(Session *s, Err *e, const IrCtx *src, const TeDag *d, const Target *t, int layout, void *const *data,
                 bool exact);
/* The task's inputs with a bit in args are weights of a network whose weights take so many bytes: on a CPU they are as cold
 * as in the network's runs. For candidates submitted from now on. */
void session_cold(Session *s, Err *e, int task, uint64_t args, int64_t bytes);
/* What is to be measured: steps, or the program that was made of them for this task. */
typedef struct {
  int n_step;
  const Step *step;
  const GenText *text; /* NULL: not made yet */
} SubmitItem;
/* Makes the programs that are missing, in parallel, and queues all; tags count up from first_tag. */
void session_submit(Session *s, Err *e, int task, int n, const SubmitItem *item, int64_t first_tag, const RunPolicy *p);
int session_poll(Session *s, double wait_s, PipeResult *out, int max);
int session_pending(Session *s);
int session_cancel(Session *s);
void session_incumbent(Session *s, int task, double seconds); /* as pipe_incumbent */
bool session_notice(Session *s, char *out, size_t n); /* as pipe_notice */
PipeStats session_stats(const Session *s);
const DevInfo *session_device(const Session *s);

/* ---- task scheduler (schedule.c): 03 §5.3 ---- */
typedef struct {
  double best;          /* seconds; 1e10: none yet */
  int32_t rounds;       /* rounds spent */
  int32_t n_history; const double *history; /* best after each round */
  double flop, chain;   /* operations; d objective / d best */
  double group_flops;   /* best throughput in its group, 0: no group */
  bool dead;
} SchedTask;
void sched_gradients(int n, const SchedTask *t, double alpha, double beta, int window, double *out); /* 0 for dead tasks */
/* first smallest; all equal: a live task at random; -1: all dead */
int sched_pick(int n, const SchedTask *t, const double *gradient, Rng *r);
#endif
