/* Protected calls. err_try puts a jump buffer into its own frame, runs the body and takes it away again; err_raise formats
 * the message and jumps. The chain of buffers is a thread's own, and so is a message until err_try returns: what two threads share, a
 * device and its Err, say, never takes one of them into the other's frames. A raise on an Err goes to the thread's innermost err_try on
 * that Err; if the thread has none, to its innermost on any, which gets the message.
 *
 * Raising outside of any err_try is a bug in the caller. There is nobody to jump to, so the message goes to stderr and
 * the process stops: every face of the engine wraps its body in err_try and never comes here. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Try {
  jmp_buf jump;
  Err *err;
  struct Try *outer;
  ErrCode code;
  char msg[ERR_MSG_MAX];
} Try;
static _Thread_local Try *innermost; /* describes the thread's stack, as errno does its last call */

void err_init(Err *e) {
  e->code = NS_OK;
  e->msg[0] = 0;
  e->interrupt = NULL;
  e->depth = 0;
  e->fail_after = 0;
}

/* Runs the body; code and message are left in *t. */
static ErrCode protected_call(Err *e, ErrBody body, void *arg, Try *t) {
  volatile int32_t depth = e->depth;
  t->err = e;
  t->code = NS_OK;
  t->outer = innermost;
  innermost = t;
  if (setjmp(t->jump) == 0)
    body(arg);
  else if (e->depth != depth)
    e->depth = depth;
  innermost = t->outer;
  return t->code;
}

ErrCode err_try(Err *e, ErrBody body, void *arg) {
  Try t;
  ErrCode code = protected_call(e, body, arg, &t);
  if (code != NS_OK) {
    e->code = code;
    memcpy(e->msg, t.msg, sizeof e->msg);
  }
  return code;
}

static NS_NORETURN void err_jump(const Err *e, ErrCode code, const char *msg) {
  Try *t = innermost;
  while (t && t->err != e) t = t->outer;
  if (!t) t = innermost;
  if (!t) {
    fprintf(stderr, "nestsmith: error outside of a protected call: %s\n", msg);
    abort();
  }
  t->code = code;
  memcpy(t->msg, msg, sizeof t->msg);
  longjmp(t->jump, 1);
}

void err_raise(Err *e, ErrCode code, const char *fmt, ...) {
  char text[ERR_MSG_MAX] = {0};
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  err_jump(e, code, text);
}

void err_rethrow(Err *e, ErrCode code) { err_jump(e, code, e->msg); }
void err_again(Err *e, ErrCode code, const Err *from) { err_jump(e, code, from->msg); }

ErrCode err_attempt(Err *e, ErrBody body, void *arg) {
  ErrCode c = err_try(e, body, arg);
  if (c == NS_ERR_MEMORY || c == NS_ERR_INTERRUPT) err_rethrow(e, c);
  return c;
}

void err_poll(Err *e) {
  if (e->interrupt && *e->interrupt) err_raise(e, NS_ERR_INTERRUPT, "interrupted");
}

void err_guard(Err *e, ErrBody body, ErrBody undo, void *arg) {
  Try t;
  ErrCode code = protected_call(e, body, arg, &t);
  if (code == NS_OK) return;
  undo(arg);
  err_jump(e, code, t.msg);
}
