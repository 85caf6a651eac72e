/* Protected calls. err_try pushes a jump buffer that lives in its own frame, runs the body and pops it; err_raise formats
 * the message into the Err and jumps to the innermost buffer. The chain of outer buffers is kept by the C stack itself:
 * each err_try remembers the buffer that was innermost before it.
 *
 * Raising outside of any err_try is a bug in the caller. There is nobody to jump to, so the message goes to stderr and
 * the process stops: every face of the engine wraps its body in err_try and never comes here. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void err_init(Err *e) {
  e->top = NULL;
  e->code = NS_OK;
  e->msg[0] = 0;
  e->interrupt = NULL;
  e->depth = 0;
  e->fail_after = 0;
}

ErrCode err_try(Err *e, ErrBody body, void *arg) {
  jmp_buf here;
  jmp_buf *volatile outer = e->top;
  volatile int32_t depth = e->depth;
  ErrCode code = NS_OK;
  e->top = &here;
  if (setjmp(here) == 0) {
    body(arg);
  } else {
    code = e->code;
    e->depth = depth;
  }
  e->top = outer;
  return code;
}

static NS_NORETURN void err_jump(Err *e, ErrCode code) {
  e->code = code;
  if (!e->top) {
    fprintf(stderr, "nestsmith: error outside of a protected call: %s\n", e->msg);
    abort();
  }
  longjmp(*e->top, 1);
}

void err_raise(Err *e, ErrCode code, const char *fmt, ...) {
  char text[ERR_MSG_MAX]; /* the arguments may point into e->msg */
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  memcpy(e->msg, text, sizeof text);
  err_jump(e, code);
}

void err_rethrow(Err *e, ErrCode code) { err_jump(e, code); }
void err_again(Err *e, ErrCode code, const Err *from) {
  memcpy(e->msg, from->msg, sizeof e->msg);
  err_jump(e, code);
}

ErrCode err_attempt(Err *e, ErrBody body, void *arg) {
  ErrCode c = err_try(e, body, arg);
  if (c == NS_ERR_MEMORY || c == NS_ERR_INTERRUPT) err_rethrow(e, c);
  return c;
}

void err_poll(Err *e) {
  if (e->interrupt && *e->interrupt) err_raise(e, NS_ERR_INTERRUPT, "interrupted");
}

void err_guard(Err *e, ErrBody body, ErrBody undo, void *arg) {
  ErrCode c = err_try(e, body, arg);
  if (c == NS_OK) return;
  undo(arg);
  err_rethrow(e, c);
}
