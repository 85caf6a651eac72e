/* One word for why a candidate failed, so that failures can be counted. The words are a fixed list; they are found in
 * the error's text, which comes from compilers and drivers. First match wins: the specific ones come first. */
#include "measure/measure.h"
#include <stdio.h>
#include <string.h>

static const struct {
  const char *text, *cause;
} CAUSES[] = {{"ILLEGAL_ADDRESS", "illegal-address"},
              {"MISALIGNED", "misaligned-address"},
              {"LAUNCH_TIMEOUT", "watchdog-timeout"},
              {"OUT_OF_MEMORY", "out-of-memory"},
              {"cannot allocate", "out-of-memory"},
              {"out of memory", "out-of-memory"},
              {"ALLOCATION_FAILURE", "out-of-memory"},
              {"No space left", "disk-full"},
              {"File too large", "disk-full"},
              {"disk full", "disk-full"},
              {"Disk quota", "disk-full"},
              {"too much shared data", "shared-memory-limit"},
              {"shared memory", "shared-memory-limit"},
              {"register spills", "register-spills"},
              {"its registers allow", "register-limit"},
              {"OUT_OF_RESOURCES", "register-limit"},
              {"WORK_GROUP_SIZE", "thread-limit"},
              {"worker died", "worker-died"},
              {"context of this process is lost", "launch-failure"},
              {"LAUNCH_FAILED", "launch-failure"},
              {"NO_DEVICE", "device-lost"},
              {"device-lost", "device-lost"}};

static const struct {
  const char *name, *cause;
} ERRORS[] = {{"NoError", ""},
              {"InstantiationError", "illegal-schedule"},
              {"CompileHostError", "compiler-error"},
              {"CompileDeviceError", "compiler-error"},
              {"RuntimeDeviceError", "launch-failure"},
              {"WrongAnswerError", "wrong-answer"},
              {"BuildTimeoutError", "compiler-timeout"},
              {"RunTimeoutError", "run-timeout"},
              {"UnknownError", "internal"}};

const char *cause_of(MeasureError e, const char *msg) {
  bool fixed =
      e == ME_OK || e == ME_INSTANTIATION || e == ME_WRONG_ANSWER || e == ME_BUILD_TIMEOUT || e == ME_RUN_TIMEOUT;
  for (int i = 0; !fixed && i < NS_COUNT(CAUSES); i++)
    if (strstr(msg, CAUSES[i].text)) return CAUSES[i].cause;
  return ERRORS[e <= ME_UNKNOWN ? e : ME_UNKNOWN].cause;
}

void run_failed(RunResult *r, MeasureError e, const char *msg) {
  r->error = e;
  snprintf(r->msg, sizeof r->msg, "%.500s", msg);
  snprintf(r->cause, sizeof r->cause, "%s", cause_of(e, r->msg));
}
