/* Launches that begin while the ones before them end. A thread of such a kernel touches no memory that other launches may write before it
 * has waited for the one before, nor does it let the next one begin: what comes before both would not be ordered with the launch before
 * the last. A block that ends has let the next one begin, too. And nobody writes what is said to be constant.
 */
#include "interp/run.h"
#include <string.h>

void launch_begin(Run *r, const Stmt *kernel) { r->waits = st_waits(r->c, kernel); }
void launch_block(Run *r) { memset(r->waited, 0, sizeof r->waited); }

bool exec_launch(Run *r, const Stmt *s) {
  if (st_calls(r->c, s, IN_LAUNCH_WAIT)) return r->waited[r->t] = true;
  if (!st_calls(r->c, s, IN_LAUNCH_NEXT)) return false;
  if (!r->waited[r->t])
    finding(r, FD_RACE, -7, "a race: the next launch may begin before this one has waited for the one before it");
  return true;
}

void launch_block_ends(Run *r) {
  bool any = !r->waits;
  for (int t = 0; t < r->threads; t++) any = any || r->waited[t];
  if (!any) finding(r, FD_RACE, -8, "a race: a block ends and none of its threads has waited for the launch before");
}

void launch_touch(Run *r, const Mem *m, bool write) {
  if (write && m->constant)
    finding(r, FD_RACE, m->id, "a race: '%s' is written, but other launches take it for a constant",
            ir_buffer(r->c, m->id)->name);
  if (r->waits && r->in_kernel && m->others && !r->waited[r->t] && !r->quiet)
    finding(r, FD_RACE, m->id, "a race: '%s' is %s before the launch before has ended", ir_buffer(r->c, m->id)->name,
            write ? "written" : "read");
}
