/* What a fork leaves behind. A forked child has the memory of its parent as it was at that moment, and one thread: locks
 * that other threads held are never given back there, threads and child processes that objects count on are not there,
 * and every descriptor is open twice. Three means against that:
 *
 *   fork_count    grows by one in every forked child. Who owns threads, processes or a lock that is held for long keeps
 *                 the number under which it was made, and compares: thread pools and the CPU device begin anew,
 *                 processes and device locks of the parent are left alone, GPUs and tuning sessions refuse.
 *   fork_hold     a fork, or the end of the process, waits until fork_release. For short work under locks that cannot be
 *                 made anew: OpenBLAS's, and those of tables that a child goes on using.
 *   fork_close    a descriptor that children do not keep: a file lock lives until the last copy of it is closed.
 *
 * Forks are a matter of the whole process, so this file has the state of the whole process. vfork is not a fork here: the
 * child shares the memory until it is another program. */
#include "base/base.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_int count;
static pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static ForkFd *list;

static void before(void) {
  pthread_rwlock_wrlock(&gate);
  pthread_mutex_lock(&list_lock);
}

static void in_parent(void) {
  pthread_mutex_unlock(&list_lock);
  pthread_rwlock_unlock(&gate);
}

static void in_child(void) { /* the only thread; what it may call is what a signal handler may */
  for (ForkFd *f = list; f; f = f->next) close(f->fd);
  list = NULL;
  pthread_mutex_init(&list_lock, NULL);
  gate = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP; /* it knows its writer by its thread */
  atomic_fetch_add(&count, 1);
}

/* The end of the process is a fork of a kind: libraries take themselves apart while other threads are at work. OpenBLAS tells its
 * threads to end and waits for them, and one that is given a product after that is never told again. So the gate is closed for
 * good. What is registered with atexit runs before libraries end. Threads that are held up end with the process. */
static void last(void) {
  enum { SECONDS = 2 }; /* what is held is short; a thread that was ended within would be waited for */
  struct timespec until;
  if (clock_gettime(CLOCK_REALTIME, &until) != 0) return;
  until.tv_sec += SECONDS;
  pthread_rwlock_timedwrlock(&gate, &until);
}

__attribute__((constructor)) static void watch_forks(void) {
  pthread_atfork(before, in_parent, in_child);
  atexit(last);
}

int fork_count(void) { return atomic_load_explicit(&count, memory_order_relaxed); }
void fork_hold(void) { pthread_rwlock_rdlock(&gate); }
void fork_release(void) { pthread_rwlock_unlock(&gate); }

void fork_close(ForkFd *f, int fd) {
  pthread_mutex_lock(&list_lock);
  *f = (ForkFd){fd, list, &list};
  if (list) list->at = &f->next;
  list = f;
  pthread_mutex_unlock(&list_lock);
}

void fork_keep(ForkFd *f) {
  pthread_mutex_lock(&list_lock);
  *f->at = f->next;
  if (f->next) f->next->at = f->at;
  pthread_mutex_unlock(&list_lock);
}
