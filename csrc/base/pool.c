/* A pool of threads that waits for work. pool_run publishes a job and a counter; every worker, the caller included,
 * takes the next item from the counter until none is left. The workers sleep on a condition variable between runs; a run
 * is over when each of them has seen it and gone back to sleep, so the job's argument may live on the caller's stack.
 * pool_run is called by one thread at a time. In a forked child, which has none of the workers, the caller works alone. */
#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  Pool *pool;
  int number;
} PoolThread;

struct Pool {
  int n, started; /* workers with the caller; threads running */
  int made;       /* fork_count */
  pthread_t *thread;
  PoolThread *worker;
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
  uint64_t round; /* number of the current run */
  int busy;       /* threads that have not finished this round */
  bool quit;
  PoolJob job;
  void *arg;
  int64_t n_items;
  atomic_llong next;
};

static void pool_work(Pool *p, int number) {
  for (;;) {
    int64_t i = atomic_fetch_add(&p->next, 1);
    if (i >= p->n_items) return;
    p->job(p->arg, number, i);
  }
}

static void *pool_main(void *arg) {
  PoolThread *w = arg;
  Pool *p = w->pool;
  uint64_t seen = 0;
  pthread_mutex_lock(&p->lock);
  for (;;) {
    while (!p->quit && p->round == seen) pthread_cond_wait(&p->wake, &p->lock);
    if (p->quit) break;
    seen = p->round;
    pthread_mutex_unlock(&p->lock);
    pool_work(p, w->number);
    pthread_mutex_lock(&p->lock);
    if (--p->busy == 0) pthread_cond_signal(&p->done);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

/* The lock may be held by a worker of the parent. */
static void look_for_fork(Pool *p) {
  if (p->made == fork_count()) return;
  p->made = fork_count();
  p->started = 0;
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  pthread_cond_init(&p->done, NULL);
}

Pool *pool_new(int n_threads, Err *e) {
  if (n_threads < 1) err_raise(e, NS_ERR_VALUE, "number of threads must be at least 1, got %d", n_threads);
  Pool *p = calloc(1, sizeof *p);
  if (p) {
    p->n = n_threads;
    p->made = fork_count();
    p->thread = calloc((size_t)n_threads, sizeof *p->thread);
    p->worker = calloc((size_t)n_threads, sizeof *p->worker);
  }
  if (!p || !p->thread || !p->worker) {
    if (p) free(p->thread), free(p->worker);
    free(p);
    err_raise(e, NS_ERR_MEMORY, "out of memory: cannot make a pool of %d threads", n_threads);
  }
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  pthread_cond_init(&p->done, NULL);
  for (int i = 1; i < n_threads; i++) {
    p->worker[i] = (PoolThread){p, i};
    int rc = pthread_create(&p->thread[i], NULL, pool_main, &p->worker[i]);
    if (rc != 0) {
      pool_free(p);
      err_raise(e, NS_ERR_RUNTIME, "cannot start thread %d of %d: %s", i, n_threads, strerror(rc));
    }
    p->started = i;
  }
  return p;
}

void pool_free(Pool *p) {
  if (!p) return;
  look_for_fork(p);
  pthread_mutex_lock(&p->lock);
  p->quit = true;
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
  for (int i = 1; i <= p->started; i++) pthread_join(p->thread[i], NULL);
  pthread_cond_destroy(&p->wake);
  pthread_cond_destroy(&p->done);
  pthread_mutex_destroy(&p->lock);
  free(p->thread);
  free(p->worker);
  free(p);
}

int pool_size(const Pool *p) { return p->n; }

void pool_run(Pool *p, int64_t n_items, PoolJob job, void *arg) {
  if (n_items <= 0) return;
  look_for_fork(p);
  pthread_mutex_lock(&p->lock);
  p->job = job;
  p->arg = arg;
  p->n_items = n_items;
  atomic_store(&p->next, 0);
  p->busy = p->started;
  p->round++;
  if (n_items > 1 || p->started) pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
  pool_work(p, 0);
  pthread_mutex_lock(&p->lock);
  while (p->busy > 0) pthread_cond_wait(&p->done, &p->lock);
  pthread_mutex_unlock(&p->lock);
}
