/* Private to the pipeline: its queues and threads (pipeline.c), the race of a task's candidates (race.c), the measuring
 * threads (runner.c). Everything but what a thread owns alone is guarded by Pipeline.lock. */
#ifndef NS_PIPE_INT_H
#define NS_PIPE_INT_H
#include "measure/drift.h"
#include "measure/pipeline.h"
#include <pthread.h>

typedef struct Job {
  struct Job *next;
  char *source, *manifest;
  void *binary;
  size_t n_binary;
  RunPolicy policy;
  PipeResult res;
} Job;
typedef struct {
  Job *head, *tail;
  int n;
} Queue;
void queue_put(Queue *q, Job *j);
Job *queue_take(Queue *q);
void job_free(Job *j);

/* ---- race.c: who can still become the best of a task ---- */
typedef struct {
  TaskData *data;
  double best, best_quick; /* of the incumbent; 0: none yet */
  double rough;            /* lowest quick time so far, the canary's word on it still out */
  void *binary;            /* the incumbent's program, to run beside its challengers; NULL: only its time is known */
  size_t n_binary;
  char *manifest;
  int ran, pending, hold;
  double doubt; /* grows when a candidate was stopped wrongly */
  Queue finalists; /* by quick time */
  bool in_final;
} Task;
void race_limits(const Task *t, RunPolicy *p);       /* sets stop_above and full_below */
bool race_audit(int64_t tag);                        /* one in fifty */
bool race_enter(Task *t, Job *j, Queue *out);        /* a measured candidate becomes a finalist; who must go goes to out */
bool race_due(const Task *t);                        /* the final can be held */
/* Costs of n finalists from the passes; f[n] is the incumbent's if with_incumbent. The best one may become the new
 * incumbent, which takes over its program. */
void race_decide(Task *t, Job *const *j, int n, const FinalResult *f, bool with_incumbent);
void race_alone(Task *t, const Job *j); /* a result of the full stage without a final */

/* ---- runner.c: one thread per device ---- */
typedef struct {
  Pipeline *p;
  int number, id;
  Worker *worker;
  pthread_t thread;
  bool started;
  atomic_int stop; /* of the worker's request: the pipeline ends, or a final is called off */
  int slot_task[MSR_SLOTS]; /* which task is in which slot of the worker, and when it was used */
  int64_t slot_used[MSR_SLOTS], tick;
  Queue window; /* measured since the last good check of the canary */
  Drift drift;
  double pace; /* the least so far; 0: none yet */
  double checked, worked, rested; /* when; rested: the next candidate may begin */
  double paused;          /* seconds */
  WorkerStats workers;
  bool given_up; /* the disturbance lasts: go on and say so */
  bool finalising, told;
  DevLock *lock;
  bool locked;
  double locked_at;
} Runner;
void *runner_main(void *runner);

typedef struct {
  Pipeline *p;
  Compiler *c;
  Err e;
  Arena *a;
  pthread_t thread;
  bool started;
} Lane;

struct Pipeline {
  pthread_mutex_t lock;
  pthread_cond_t change;
  Queue to_compile, to_run, done;
  int compiling, running, open; /* open: submitted and not polled */
  bool run_turn, no_finals;     /* run_turn: CPU targets: the runner's turn, not the compilers' */
  double first, run_since[PIPE_DEVICES];
  PipeStats stats;
  atomic_int stop;
  Target target;
  DevType type;
  LockMode lock_mode;
  BuildOptions build;
  char *cache_dir, *cc, **via;
  Task *task;
  int n_tasks, cap_tasks;
  Runner runner[PIPE_DEVICES];
  int n_runners;
  Lane *lane;
  int n_lanes;
  int made; /* fork_count */
  char notice[1024];
};
void pipe_count_run(PipeStats *s, double first, double from, double to);
bool pipe_may_run(const Pipeline *p);
void pipe_changed(Pipeline *p);                                   /* after every change of the queues; wakes all threads */
void pipe_say(Pipeline *p, const char *fmt, ...) NS_PRINTF(2, 3); /* lock held */
void pipe_settle(Pipeline *p, Job *j); /* a measured candidate goes out, or waits for its task's final; lock held */
void pipe_finish(Pipeline *p, Job *j); /* a result goes out; lock held */
int pipe_final_due(const Pipeline *p); /* a task whose final can be held, or -1 */
#endif
