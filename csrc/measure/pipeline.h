/* pipeline: sources go in, measured results come out; compiling and measuring overlap. Compile threads (each with a
 * compile worker of its own for CUDA, a C compiler process for the CPU) feed one measuring worker per device. Every
 * submitted candidate comes out again exactly once, whatever happens to it, unless it is cancelled. Spec 05 §7.4-7.10.
 */
#ifndef NS_PIPELINE_H
#define NS_PIPELINE_H
#include "measure/measure.h"
typedef struct Pipeline Pipeline;
enum { PIPE_DEVICES = 16 };
typedef struct {
  int n_compile;              /* compile threads; 0: cores - 1, at least 1; -1: none, all programs come compiled */
  double build_timeout_s;     /* 0: 15 */
  const char *cache_dir, *cc; /* as in BuildOptions */
  BuildCache *memory;         /* as in BuildOptions; must live as long as the pipeline */
  int n_ids, ids[PIPE_DEVICES]; /* devices that measure side by side; n_ids 0: the one given to pipe_new */
  LockMode lock;
  char *const *via; /* as of worker_start_by; NULL: the workers are here */
} PipeOptions;
/* error, costs and cause are in run, also when the compiler failed (run.seconds is then 0). */
typedef struct {
  int64_t tag;
  int task;
  RunResult run;
  double build_seconds;
  bool cached;
  BuildReport report; /* what the program takes of a GPU; zeros for other targets */
} PipeResult;

Pipeline *pipe_new(Err *e, const Target *t, DevType d, int id,
                   const PipeOptions *o); /* o may be NULL; waits for the worker; raises if the device is missing */
void pipe_free(Pipeline *p);              /* ends all processes and threads, within about 0.2 s; NULL is allowed; in a
                                             forked child nothing: they are the parent's */
int pipe_task(Pipeline *p, TaskData *t);  /* takes t over; returns the task's number */
void pipe_incumbent(Pipeline *p, int task, double seconds); /* what this task's racing candidates have to beat, until
                                                               one of them does */
/* while the sum is above 0 more candidates of a round are to come: no final */
void pipe_hold(Pipeline *p, int task, int by);
/* Copies everything; policy is applied as it is, except stop_above and full_below if policy.race is set. Jobs are compiled in
 * the order of their tags. Raises only when out of memory. */
void pipe_submit(Pipeline *p, Err *e, int task, const char *source, const char *manifest, int64_t tag,
                 const RunPolicy *policy);
/* The same with a program that was compiled elsewhere, which is run in the order of the tags. */
void pipe_submit_built(Pipeline *p, Err *e, int task, const void *binary, size_t n, const char *manifest, int64_t tag,
                       const RunPolicy *policy);
/* A candidate that failed on its way here: it comes out as any other does. Raises only when out of memory. */
void pipe_failed(Pipeline *p, Err *e, int task, int64_t tag, MeasureError error, const char *msg);
int pipe_poll(Pipeline *p, double wait_s, PipeResult *out,
              int max); /* waits up to wait_s for the first; returns how many were stored, in order of completion */
int pipe_pending(Pipeline *p); /* submitted and not yet returned by pipe_poll */
int pipe_cancel(Pipeline *p);  /* drops what has not started, returns how many; the running ones still come out */
bool pipe_notice(Pipeline *p, char *out, size_t n); /* something to tell the user, once; false: nothing */
/* Where the time went since the first candidate came in. Shares are of `elapsed`; late: after the first minute. */
typedef struct {
  double elapsed, compile_s, run_s, late_elapsed, late_run_s; /* compile_s: summed over lanes */
  int lanes, compiled, cached, ran, full, devices;
  int cut, audited, wrong_cuts;       /* stopped early; of these measured in full all the same; of these wrongly stopped */
  int finals, finalists, finals_again; /* finals_again: repeated because the device was disturbed meanwhile */
  int checks, disturbed, shifts, redone; /* of the canary; candidates measured again */
  double canary, canary_spread, waited_s; /* its median time; waited_s: for another tuner on the device */
  double pace; /* the canary of a device of the same class is alike: on a GPU its median, elsewhere its least (dev_canary) */
  int deaths, spares;
  double longest_recovery;
} PipeStats;
PipeStats pipe_stats(Pipeline *p);
const DevInfo *pipe_device(const Pipeline *p); /* of the first device */
#endif
