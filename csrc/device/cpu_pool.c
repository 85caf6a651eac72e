/* The thread pool of CPU kernels. A tuned kernel may take ten microseconds, so handing out work must cost about one: a
 * job is published by one atomic word (the gate), threads look for work for a while before they sleep, and the caller
 * works too.
 *
 * The gate holds (epoch << 16) | (threads inside << 1) | open. A thread joins a job by adding 2 to the gate while it is
 * open; the caller closes the gate when no pieces are left and waits only for threads that are inside. A thread that is
 * asleep or descheduled is therefore never waited for.
 *
 * Each thread has a share of the iterations, the same part in every job: what a kernel of a network leaves in a core's
 * cache is what the next kernel's share of that core mostly reads. Pieces of a share are handed out one by one, and who has
 * done his own goes on with those of the others, so a disturbed core slows down a piece, not the whole loop.
 *
 * A forked child makes a pool of its own: of the parent's it has the memory, not the threads, and whatever they were in
 * the middle of stays so. */
#include "device/internal.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* PAUSES: of looking for work without asking the clock; then the core is offered to others in between, for SPIN_SECONDS. */
enum { PAUSES = 2000, YIELDS_PER_CLOCK = 16, PIECES_PER_THREAD = 4, LINE = 64 };
static const double SPIN_SECONDS = 1e-3;

typedef struct {
  _Alignas(LINE) _Atomic int64_t next;
  int64_t end;
} Share;

struct CpuPool {
  int n;    /* threads, the caller included */
  int made; /* fork_count of the process that has the threads */
  pthread_t *thread;
  Share *share;        /* one per thread */
  atomic_int numbered; /* threads that have taken a number */
  atomic_flag busy;    /* a job is running: another caller works alone */
  _Atomic uint64_t gate;
  void (*body)(void *, int64_t, int64_t);
  void *env;
  int64_t piece;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  atomic_int sleepers;
  atomic_bool stop;
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Pieces of the own share, then of the others'. */
static void work(CpuPool *p, int self) {
  for (int k = 0; k < p->n; k++) {
    Share *s = &p->share[(self + k) % p->n];
    for (;;) {
      int64_t b = atomic_fetch_add(&s->next, p->piece);
      if (b >= s->end) break;
      p->body(p->env, b, s->end - b < p->piece ? s->end : b + p->piece);
    }
  }
}

static bool joined(CpuPool *p, uint64_t *seen) {
  uint64_t g = atomic_load(&p->gate);
  if (!(g & 1) || g >> 16 == *seen) return false;
  if (!atomic_compare_exchange_strong(&p->gate, &g, g + 2)) return false;
  *seen = g >> 16;
  return true;
}

static bool pending(CpuPool *p, uint64_t seen) {
  uint64_t g = atomic_load(&p->gate);
  return (g & 1) && g >> 16 != seen;
}

static void sleep_until_work(CpuPool *p, uint64_t seen) {
  pthread_mutex_lock(&p->lock);
  atomic_fetch_add(&p->sleepers, 1);
  while (!atomic_load(&p->stop) && !pending(p, seen)) pthread_cond_wait(&p->wake, &p->lock);
  atomic_fetch_sub(&p->sleepers, 1);
  pthread_mutex_unlock(&p->lock);
}

static void *thread_main(void *arg) {
  CpuPool *p = arg;
  uint64_t seen = 0;
  int idle = 0, self = atomic_fetch_add(&p->numbered, 1) + 1;
  double since = 0;
  while (!atomic_load(&p->stop)) {
    if (joined(p, &seen)) {
      work(p, self);
      atomic_fetch_sub(&p->gate, 2);
      idle = 0;
    } else if (++idle < PAUSES) {
      relax();
    } else if (idle == PAUSES) {
      since = clock_now();
    } else if (idle % YIELDS_PER_CLOCK != 0 || clock_now() - since < SPIN_SECONDS) {
      sched_yield();
    } else {
      sleep_until_work(p, seen);
      idle = 0;
    }
  }
  return NULL;
}

CpuPool *cpool_new(int n_threads) {
  CpuPool *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  atomic_flag_clear(&p->busy);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  p->thread = calloc((size_t)n_threads, sizeof *p->thread);
  void *share;
  if (posix_memalign(&share, LINE, sizeof *p->share * (size_t)(n_threads > 0 ? n_threads : 1)) == 0) p->share = share;
  p->n = 1;
  p->made = fork_count();
  while (p->thread && p->share && p->n < n_threads && pthread_create(&p->thread[p->n], NULL, thread_main, p) == 0)
    p->n++;
  return p;
}

bool cpool_works(const CpuPool *p) { return p->made == fork_count(); }

void cpool_free(CpuPool *p) {
  if (!p) return;
  if (cpool_works(p)) { /* a forked child has no threads to end, and the lock may be held by one of its parent's */
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i < p->n; i++) pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
  }
  free(p->share);
  free(p->thread);
  free(p);
}

int32_t cpool_run(void *pool, void (*body)(void *, int64_t, int64_t), void *env, int64_t n) {
  CpuPool *p = pool;
  if (n <= 0) return 0;
  if (!p || p->n == 1 || n == 1 || !cpool_works(p) || atomic_flag_test_and_set(&p->busy)) {
    body(env, 0, n);
    return 0;
  }
  p->body = body;
  p->env = env;
  p->piece = n <= p->n ? 1 : i64_ceildiv(n, (int64_t)p->n * PIECES_PER_THREAD);
  for (int i = 0; i < p->n; i++) {
    p->share[i].end = n * (i + 1) / p->n;
    atomic_store_explicit(&p->share[i].next, n * i / p->n, memory_order_relaxed);
  }
  uint64_t epoch = (atomic_load(&p->gate) >> 16) + 1;
  atomic_store(&p->gate, epoch << 16 | 1);
  if (atomic_load(&p->sleepers)) {
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
  }
  work(p, 0);
  atomic_fetch_and(&p->gate, ~(uint64_t)1);
  for (int i = 0; atomic_load(&p->gate) & 0xfffe; i++) {
    if (i < PAUSES)
      relax();
    else
      sched_yield();
  }
  atomic_flag_clear(&p->busy);
  return 0;
}
