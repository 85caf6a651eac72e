/* The wire between tuner and worker: one SOCK_SEQPACKET message per request and reply, fixed structs, bulk data through
 * a memory file passed along with the message. Both ends are the same binary, so there is nothing to negotiate; the
 * version only guards against a worker started from another installation. */
#ifndef NS_PROTOCOL_H
#define NS_PROTOCOL_H
#include "measure/measure.h"

enum { PROTO_VERSION = 5 };
typedef struct {
  uint16_t type, version;
  uint32_t len;
} MsgHead;
typedef struct {
  int32_t ok;
  char msg[MSR_MSG];
  DevInfo info;
} MsgReady;
typedef struct {
  uint64_t bytes, offset;
  int32_t has_data, is_output, exact;
  char dtype[16];
} MsgArg;
typedef struct {
  int32_t slot, n_args;
  uint64_t total;
  MsgArg arg[MSR_MAX_ARGS];
} MsgTask;
typedef struct {
  uint64_t id; /* comes back with the result: a candidate that meddles with the socket cannot answer for the next one */
  int32_t slot;
  RunPolicy policy;
  uint64_t n_binary, n_manifest;
} MsgRun;
typedef struct {
  uint64_t id;
  RunResult r;
  int32_t dying;
} MsgResult; /* dying: the worker ends after this message */
typedef struct {
  int32_t slot, n, keep;
  RunPolicy policy;
  uint64_t seed, n_binary[FINAL_MAX], n_manifest[FINAL_MAX];
} MsgFinal;
typedef struct {
  int32_t ok, dying;
  FinalResult r[FINAL_MAX];
  char msg[MSR_MSG];
} MsgFinals;
typedef struct {
  double warm_s;
  int32_t n;
} MsgCanary;
typedef struct {
  int32_t n, dying;
  double seconds[CANARY_MAX], pace;
} MsgTimes;
typedef struct {
  int32_t nothing;
} MsgBeat;
typedef struct {
  Target target;
  uint64_t n_source;
  double timeout_s;
  char cache_dir[1024];
  int32_t default_cache;
} MsgCompile;
typedef struct {
  int32_t code;
  int32_t cached;
  uint64_t n;
  double seconds;
  char msg[MSR_MSG];
} MsgBinary;
typedef struct {
  int32_t n_args;
  uint64_t offset[MSR_MAX_ARGS], total, n_binary, n_manifest;
} MsgMake; /* its memory file: the arguments, to be filled in; from total on the program */
typedef struct {
  int32_t ok;
  char msg[MSR_MSG];
} MsgMade;
/* Every message: its number in the order of this list, its member of MsgBody, its struct. */
#define MESSAGES(F)                                                                                                    \
  F(MSG_READY, ready, MsgReady) F(MSG_TASK, task, MsgTask) F(MSG_RUN, run, MsgRun) F(MSG_RESULT, result, MsgResult)      \
  F(MSG_COMPILE, compile, MsgCompile) F(MSG_BINARY, binary, MsgBinary) F(MSG_FINAL, final, MsgFinal)                   \
  F(MSG_FINALS, finals, MsgFinals) F(MSG_CANARY, canary, MsgCanary) F(MSG_TIMES, times, MsgTimes)                      \
  F(MSG_BEAT, beat, MsgBeat) F(MSG_MAKE, make, MsgMake) F(MSG_MADE, made, MsgMade)
#define MSG_NUMBER(number, member, type) number,
#define MSG_MEMBER(number, member, type) type member;
typedef enum { MSG_NONE, MESSAGES(MSG_NUMBER) } MsgType;
typedef union {
  MESSAGES(MSG_MEMBER)
} MsgBody;

struct TaskData {
  MsgTask msg;
  int fd;
};

/* While a worker works it sends a MSG_BEAT every BEAT_SECONDS from a second thread; a worker that is silent for
 * SILENT_SECONDS is frozen, whatever its deadline. */
static const double BEAT_SECONDS = 0.2, SILENT_SECONDS = 6;

/* protocol.c */
bool proto_send(int sock, MsgType type, const void *body, size_t n, int fd); /* false: the other side is gone */
size_t proto_size(MsgType type); /* of its body; 0: there is no such message */
/* A beat is sent only if it does not have to wait. */
void proto_beat(int sock);
typedef enum { RECV_OK, RECV_CLOSED, RECV_GARBAGE, RECV_TIMEOUT, RECV_STOPPED } RecvStatus;
/* *type: what came; *fd: -1 if none came. RECV_GARBAGE: a message of the wrong size or version. */
RecvStatus proto_recv(int sock, MsgType *type, MsgBody *body, int *fd, double deadline, const atomic_int *stop);
int memfile_new(const void *const *part, const size_t *n,
                int count);          /* descriptor of a memory file holding the parts, or -1 */
void *memfile_map(int fd, size_t n); /* private mapping, or NULL; munmap it */
void *memfile_share(int fd, size_t n); /* the same, but what is written there is in the file */
#endif
