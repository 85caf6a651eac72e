/* measure: one long-lived worker process per device, the wire protocol, the timing policy, and error numbers.
 * The death of a worker costs one candidate and a restart. Spec 05 §2, §7.5-7.7. It knows nothing of search.
 */
#ifndef NS_MEASURE_H
#define NS_MEASURE_H
#include "build/build.h"
#include "device/device.h"
typedef enum { ME_OK, ME_INSTANTIATION, ME_COMPILE_HOST, ME_COMPILE_DEVICE, ME_RUNTIME_DEVICE, ME_WRONG_ANSWER, ME_BUILD_TIMEOUT,
               ME_RUN_TIMEOUT, ME_UNKNOWN } MeasureError; /* 02 §5.7 */
typedef struct {
  int number, repeat, min_repeat_ms; double timeout_s; bool flush; bool check; /* check: compare with the reference output */
  double stop_above; /* seconds; a candidate whose quick time is above this is not timed in full. 0: never */
} RunPolicy;
typedef struct { MeasureError error; int n_costs; double cost[16]; double seconds; bool full; char msg[512]; } RunResult;
typedef struct Worker Worker;
Worker *worker_start(Err *e, DevType t, int id);     /* forks/execs the worker; raises if the device is missing */
void worker_stop(Worker *w);                         /* never leaves a process behind */
/* Task data: inputs as the host made them, expected outputs; kept in the worker until replaced. */
void worker_task(Worker *w, int n_args, const size_t *bytes, const void *const *data, const bool *is_output, const char *const *dtype);
RunResult worker_run(Worker *w, const Binary *b, const char *manifest, const RunPolicy *p); /* never raises for what a candidate does */
#endif
