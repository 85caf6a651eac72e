/* runner: what runs on a board. A process that speaks over two descriptors (a pipe, adb, ssh) and does what it is asked: keeps
 * files in a directory of its own, loads what export_library wrote, holds arrays, runs and times. It needs no Python and no
 * compiler; csrc/runner/main.c makes a program of it (`make runner`), and the extension module starts it the same way. Spec 06 §6.7.
 *
 * ---- Wire ----
 * Requests and replies are frames: 4 bytes with the length of a JSON object, 8 bytes with the length of the payload (both
 * little-endian), the object, the payload. One reply per request, in order. A request has "op" and may have "limit_ms": if it
 * takes longer the process ends itself, so that an endless program does not outlive a link that is cut. A reply has "ok": true,
 * or "error" (value, memory, runtime, io) and "msg".
 *
 *   hello                                  version, machine, devices: [{type, id, name, ...}]
 *   put name + bytes; get name -> bytes; del name; list -> files: [[name, bytes], ...]
 *   load name                              module, kind ("network", "operator"), what it holds
 *   alloc device bytes -> tensor; fill tensor byte; write tensor + bytes; read tensor -> bytes
 *   manifest module entry; run module entry args; time module entry args number flush -> seconds of a run
 *   graph module device -> graph, inputs, outputs; set graph name + bytes; input graph name -> bytes; unset graph; start graph;
 *   output graph index -> bytes; time_graph graph number flush -> seconds of a run
 *   sync device; flush device (its caches); drop handle (of a tensor, module or graph; "free" is the same); bye
 *
 * Whoever is at the other end may be anybody: lengths are bounded, names are single components of a path that are opened
 * without following links, handles are looked up. Programs that it is given run with the rights of this process; keep those few.
 */
#ifndef NS_RUNNER_H
#define NS_RUNNER_H
#include "graph/graph.h"

enum { RUNNER_VERSION = 1, RUNNER_NAME = 128 };
static const size_t RUNNER_HEAD = (size_t)4 << 20, RUNNER_PAYLOAD = (size_t)1 << 30; /* bytes, at most */

/* ---- frames (frame.c) ---- */
typedef struct {
  char *head; /* the JSON text */
  void *data;
  size_t n_head, n;
} Frame;
typedef enum { FRAME_OK, FRAME_END, FRAME_BAD } FrameStatus; /* END: the other side is gone; BAD: lengths out of bounds */
FrameStatus frame_read(Err *e, int fd, Frame *f);            /* memory of its own: frame_free; raises NS_ERR_MEMORY */
bool frame_write(int fd, const char *head, const void *data, size_t n);
void frame_free(Frame *f);

/* ---- the session's directory (files.c) ---- */
bool files_name(const char *name); /* a plain name: no separators, not "." or "..", no control characters */
void files_put(Err *e, int dir, const char *name, const void *data, size_t n);
void *files_get(Err *e, int dir, const char *name, size_t *n); /* free() it */
void files_del(Err *e, int dir, const char *name);
/* Calls tell for every plain file. */
void files_each(int dir, void (*tell)(void *arg, const char *name, int64_t bytes), void *arg);
void files_clear(int dir); /* removes all plain files */

/* ---- requests (session.c) ---- */
typedef struct RunnerSession RunnerSession;
RunnerSession *runner_session(Err *e, int dir); /* dir: an open directory, the session's own */
void runner_end(RunnerSession *s);
/* Answers one request. The reply's text lives until the next request; *data, of *n bytes, too. False: it was bye. */
bool runner_answer(RunnerSession *s, const Frame *request, char **reply, const void **data, size_t *n);
/* Serves until the other side is gone; returns the exit status. However it ends, the directory is emptied, and removed if its
 * path is given: it was made for the session then. */
int runner_serve(int in, int out, int dir, const char *made);
/* Entry of the process, exported: argv as of csrc/runner/main.c. */
int nestsmith_runner_main(int argc, char **argv);
#endif
