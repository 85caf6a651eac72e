/* The CPU: programs are functions that are linked in. With OpenMP their parallel loops use its threads. */
#include "network.h"
#include <stdlib.h>
#include <string.h>

void device_open(void) {}

void *device_memory(size_t bytes) { /* aligned to 64 bytes, as programs expect */
  size_t size = (bytes + 63) / 64 * 64 + 64;
  void *p = aligned_alloc(64, size);
  if (!p) fail("out of", "memory");
  return memset(p, 0, size);
}

void device_write(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void device_read(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void device_load(int index) { (void)index; }

#ifdef _OPENMP
static int32_t parallel(void *pool, Body body, void *env, int64_t n) {
  (void)pool;
#pragma omp parallel for
  for (int64_t i = 0; i < n; i++) body(env, i, i + 1);
  return 0;
}
#else
#define parallel NULL
#endif

int device_call(int index, void *const *args, void *const *work) { return program[index].entry(args, work, parallel, NULL); }
