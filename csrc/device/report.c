/* Reports of indices out of range. A kernel writes the first one into the report of its run (program.h, REPORT_*), and the host reads the
 * reports where it waits for a GPU anyway.
 *
 * An error ends in the thread whose run it is, for threads with networks of their own share a device. A thread that reads the outputs of
 * a network takes over its reports (graph_exec_claim). Any thread that waits takes a report if the one that began the run has ended, or
 * if it has itself begun no run. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "device/internal.h"

struct DevReport {
  DevModule *m;
  void *memory;           /* as the device has it */
  volatile int32_t *seen; /* as the host sees it, without a copy; NULL: it must be copied */
  pid_t began;            /* the thread of the last run */
  DevReport *next;
};

static _Thread_local pid_t me; /* the thread's number, once it has begun a run; else 0 */

static bool has_ended(pid_t thread) { return syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH; }
static bool is_for_me(const DevReport *r) { return r->began == me || !me || has_ended(r->began); }

void dev_raise_index(const DevModule *m, const int32_t *report) {
  const Manifest *man = m->man;
  int32_t k = report[REPORT_SITE] - 1;
  int64_t value = (int64_t)((uint64_t)(uint32_t)report[REPORT_HIGH] << 32 | (uint32_t)report[REPORT_LOW]);
  char size[64] = "", of[300] = "an axis";
  if (k < 0 || k >= man->n_site)
    err_raise(m->dev->err, NS_ERR_RUNTIME, "program \"%s\": index %lld is out of range", man->entry, (long long)value);
  const ManSite *s = &man->site[k];
  if (s->from_end && value < 0) value -= s->size;
  if (s->size) snprintf(size, sizeof size, " with size %lld", (long long)s->size);
  if (s->of) snprintf(of, sizeof of, "axis %d of '%.200s'", (int)s->axis, s->of);
  err_raise(m->dev->err, NS_ERR_RUNTIME, "program \"%s\": index %lld is out of range for %s%s (in %s)",
            man->name ? man->name : man->entry, (long long)value, of, size, s->stage);
}

/* Reads a report and clears it. false: it is empty. A program may have run in a captured graph, without a call of its module. */
static bool take(DevReport *r, int32_t *word) {
  Device *d = r->m->dev;
  if (!r->seen) {
    d->ops->download(d, word, r->memory, REPORT_WORDS * sizeof *word);
    if (!word[REPORT_SITE] || !is_for_me(r)) return false;
    d->ops->fill(d, r->memory, 0, REPORT_WORDS * sizeof *word);
    return true;
  }
  if (!r->seen[REPORT_SITE] || !is_for_me(r)) return false;
  for (int i = 0; i < REPORT_WORDS; i++) word[i] = r->seen[i];
  r->seen[REPORT_SITE] = 0;
  return true;
}

/* All reports are read, so that an old one cannot end a later run. */
void report_look(Device *d) {
  int32_t first[REPORT_WORDS], word[REPORT_WORDS];
  const DevModule *who = NULL;
  for (DevReport *r = d->reports; r; r = r->next) {
    if (!take(r, word) || r->m->made_up) continue;
    who = r->m;
    memcpy(first, word, sizeof first);
  }
  if (who) dev_raise_index(who, first);
}

DevReport *dev_report_new(DevModule *m) {
  Device *d = m->dev;
  size_t bytes = REPORT_WORDS * sizeof(int32_t);
  DevReport *r = mem_alloc(d->err, sizeof *r);
  *r = (DevReport){.m = m};
  if (d->ops->shared_new) r->seen = d->ops->shared_new(d, bytes, &r->memory);
  if (!r->seen && (r->memory = d->ops->alloc(d, bytes))) d->ops->fill(d, r->memory, 0, bytes);
  if (!r->memory) {
    free(r);
    err_raise(d->err, NS_ERR_MEMORY, "%s: cannot allocate its report on the device", m->man->entry);
  }
  r->next = d->reports;
  d->reports = r;
  return r;
}

void dev_report_free(DevReport *r) {
  if (!r) return;
  Device *d = r->m->dev;
  DevReport **at = &d->reports;
  while (*at && *at != r) at = &(*at)->next;
  if (*at) *at = r->next;
  if (!r->seen)
    dev_free(d, r->memory);
  else if (!dev_inherited(d))
    d->ops->shared_free(d, (void *)(uintptr_t)r->seen);
  free(r);
}

void *dev_report_memory(const DevReport *r) { return r->memory; }

void report_run(void) {
  if (!me) me = (pid_t)syscall(SYS_gettid);
}

void dev_report_begin(DevReport *r) {
  report_run();
  r->began = me;
}
