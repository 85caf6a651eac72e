/* Launches that begin while the ones before them end. A thread of such a kernel touches no memory that other launches may write before it
 * has waited for the one before, nor does it let the next one begin: what comes before both would not be ordered with the launch before
 * the last.
 */
#include "interp/run.h"
#include <string.h>

static bool is_wait(IrCtx *c, const Stmt *s, void *arg) { return (void)arg, st_calls(c, s, IN_LAUNCH_WAIT); }

void launch_begin(Run *r, const Stmt *kernel) { r->waits = st_any(r->c, kernel, is_wait, NULL); }
void launch_block(Run *r) { memset(r->waited, 0, sizeof r->waited); }

bool exec_launch(Run *r, const Stmt *s) {
  if (st_calls(r->c, s, IN_LAUNCH_WAIT)) return r->waited[r->t] = true;
  if (!st_calls(r->c, s, IN_LAUNCH_NEXT)) return false;
  if (!r->waited[r->t])
    finding(r, FD_RACE, -7, "a race: the next launch may begin before this one has waited for the one before it");
  return true;
}

void launch_touch(Run *r, const Mem *m, const char *how) {
  if (r->waits && r->in_kernel && m->others && !r->waited[r->t] && !r->quiet)
    finding(r, FD_RACE, m->id, "a race: '%s' is %s before the launch before has ended", ir_buffer(r->c, m->id)->name,
            how);
}
