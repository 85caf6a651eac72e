/* tune: from a candidate to something that can be built and run, and choosing what to tune next.
 *
 *   session.c    lowering threads in front of the measuring pipeline
 *   log.c        what a log holds: of which tasks, and what its results are worth
 *   rounds.c     a run over several tasks: best, history, what is searched and taken in next
 *   schedule.c   the choice of the next task (gradients)
 *
 * A run is driven from Python, which asks rounds.c what to do, calls users' policies, models and callbacks, and moves
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
/* A task to measure: the DAG is copied. data as in reference_data; NULL, as a whole or for a tensor: an
 * uninitialised buffer, and an output that is not compared. exact: the inputs are those of reference_data, so outputs that
 * te_exact finds exact are compared to the bit. math: the mode in which float32 is computed, as outputs of it are compared (a
 * row of the table in compare.c); NULL: as float32. */
int session_task(Session *s, Err *e, const IrCtx *src, const TeDag *d, const Target *t, int layout,
                 const void *const *data, bool exact, const char *math);
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
Pipeline *session_pipe(const Session *s); /* where the results come out; its tasks have the same numbers */

/* ---- choice of the next task (schedule.c): 03 §5.3 ---- */
typedef struct {
  double best;          /* seconds; NO_SECONDS: none yet */
  int32_t rounds;       /* rounds spent */
  int32_t n_history; const double *history; /* best after each round */
  double flop, chain;   /* operations; d objective / d best */
  double group_flops;   /* best throughput in its group, 0: no group */
  double layer_best;    /* seconds of the fastest variant of its layer, itself included; 0: it is the only one */
  bool dead;
} SchedTask;
void sched_gradients(int n, const SchedTask *t, double alpha, double beta, int window, double *out); /* 0 for dead tasks */
/* first smallest; all equal: a live task at random; -1: all dead */
int sched_pick(int n, const SchedTask *t, const double *gradient, Rng *r);

/* ---- what results are worth (rounds.c) ---- */
#define NO_SECONDS 1e10 /* stands for "no valid result" */
#define SHORTEST 1e-10  /* seconds; less than a clock cycle of any device: a time that no run can have */
/* Times of the full stage go before quick ones, then the shorter goes first; the last is {true, NO_SECONDS}, without a valid
 * result. */
typedef struct { bool quick; double seconds; } Rank;
Rank rank_of(int n, const double *cost, int error_no, bool quick); /* of the mean, if all are times that a run can have */
bool rank_before(Rank a, Rank b);

/* ---- what a log holds (log.c) ---- */
typedef struct {
  const char *key, *target, *host, *math;
  int64_t valid, failed;
  int32_t best; /* the first record of the least rank */
} LogGroup;     /* the records of one workload, target and math mode ("": strict) */
typedef struct { int32_t group; Rank rank; int64_t at; } LogRecord;                  /* at: the byte where its line begins */
typedef struct {
  Arena *arena;
  VEC(LogGroup) group;   /* in the order of their first records */
  VEC(LogRecord) record; /* in the order of the file */
  VEC(int32_t) broken;   /* lines that are no records, counted from 1 */
  const char *fault;     /* what is wrong with the first of them, or NULL */
  bool cut;              /* the last line is incomplete */
  int64_t impossible;    /* records without an error whose times no run can have: they are among the failed ones */
} TuneLog;
TuneLog *log_read(Arena *a, const char *path); /* raises NS_ERR_IO */

/* ---- a run over several tasks (rounds.c): 03 §5 ---- */
typedef struct {
  Rank best;
  int64_t trials, best_trial; /* best_: when the best was found */
  int32_t rounds, best_round;
  VEC(double) history;        /* best after each round */
  double flop;
  int32_t group;              /* of tasks that should reach similar throughput; -1: none */
  int32_t layer;              /* tasks of one layer are variants: the fastest will run */
  bool dead;                  /* gets no more rounds */
} TuneTask;
/* Of a run; `ordered`: what is searched next depends on results alone, not on when they come. */
typedef struct {
  double alpha, beta, stop_all, stop_task; /* stop_: trials without progress after which the run, or a task, ends */
  int64_t total;                           /* trials */
  int32_t window, per_round;
  int32_t devices; /* that measure while other rounds are compiled and searched; 0: one round at a time, nothing beside it */
  bool round_robin, ordered;
} RunOptions;
enum { MAX_DEVICES = 1 << 16 };
/* What the driver of a run is asked: the objective of the layers' seconds, to be minimised, and chance. All may raise. */
typedef struct {
  double (*objective)(void *self, int n_layer, const double *seconds);
  double (*unit)(void *self);  /* uniform in [0, 1) */
  uint64_t (*lot)(void *self); /* seeds a draw among tasks */
  void *self;
} RunHooks;
typedef struct {
  Arena *arena; /* of all this */
  int n, n_layer;
  TuneTask *task;
  RunHooks hook;
  RunOptions o;
  int64_t trials, best_trial; /* of the run; at the latter the objective fell last */
  double score, best_score;   /* the objective now, and its least */
  /* what is under way */
  VEC(int32_t) flying;        /* tasks whose rounds are measured, the oldest first */
  int32_t searching, asked;   /* the task whose round is searched, or -1, and how many candidates it was asked for */
  int64_t planned;
  int32_t last;               /* of round robin */
  bool stale;
} Rounds;

/* group: a number >= 0 or -1 for each task. layer: of each task; the first n_layer tasks are of layers 0, 1, ..., those behind them are
 * variants. */
Rounds *rounds_new(Arena *a, int n, const double *flop, const int32_t *group, int n_layer, const int32_t *layer,
                   RunHooks hook);
void rounds_begin(Rounds *r, const RunOptions *o); /* a run, with what is known of the tasks already */
/* What to do next. Whoever drives the run does it, says so, and asks again. */
typedef enum {
  ROUND_WAIT,   /* for results, or for the search */
  ROUND_SEARCH, /* n candidates of the task; then rounds_searched */
  ROUND_LAND,   /* the round of the task is measured; then rounds_take */
  ROUND_STALE,  /* nothing: the run ends early, for want of progress */
  ROUND_END,
  ROUND_KINDS
} RoundKind;
typedef struct { RoundKind kind; int task, n; } RoundEvent;
/* left: candidates of each flying round that have no result yet */
RoundEvent rounds_next(Rounds *r, const int32_t *left);
void rounds_searched(Rounds *r, int n);                      /* 0: the task has nothing left and is dead */
void rounds_take(Rounds *r, int task, int n, const Rank *x); /* the results of a round; n may be 0 */
bool rounds_better(Rounds *r, int task, Rank x);             /* makes x the task's best if it is */
void rounds_score(Rounds *r);                                /* after a change of the tasks' best */
/* The results of a log are those of rounds of this run; what was known of rounds is replaced. task: of each group of the log, or
 * -1. at_least_one: a task with results has had a round, be there ever so few. */
void rounds_resume(Rounds *r, const TuneLog *log, const int32_t *task, bool at_least_one);
#endif
