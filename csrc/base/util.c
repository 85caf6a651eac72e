/* Clocks, number theory, whole reads and writes; the overflow-checked 64-bit arithmetic is inline in base.h. */
#include "base/base.h"

#include <stdlib.h>
#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

static double clock_read(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double clock_now(void) { return clock_read(CLOCK_MONOTONIC); }

int f64_ascending(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return a < b ? -1 : a > b;
}
double f64_median(double *v, int n) {
  qsort(v, (size_t)n, sizeof *v, f64_ascending);
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void exchange(char *x, char *y, size_t n) {
  for (char t; n-- > 0; x++, y++) t = *x, *x = *y, *y = t;
}
void heap_settle(void *heap, int n, size_t size, int i, int (*order)(const void *, const void *)) {
  char *at = heap;
  for (int up; i > 0 && order(at + size * (size_t)i, at + size * (size_t)(up = (i - 1) / 2)) > 0; i = up)
    exchange(at + size * (size_t)i, at + size * (size_t)up, size);
  for (int last = i, k;; i = last) {
    for (k = 2 * i + 1; k <= 2 * i + 2 && k < n; k++)
      if (order(at + size * (size_t)k, at + size * (size_t)last) > 0) last = k;
    if (last == i) return;
    exchange(at + size * (size_t)i, at + size * (size_t)last, size);
  }
}

int64_t i64_gcd(int64_t a, int64_t b) {
  uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
  while (y) {
    uint64_t t = x % y;
    x = y;
    y = t;
  }
  return x > INT64_MAX ? INT64_MAX : (int64_t)x;
}

int64_t i64_ceildiv(int64_t a, int64_t b) { return a / b + (a % b > 0); }

int64_t i64_divisors(Arena *a, int64_t x, int64_t **out) {
  int64_t n = 0;
  for (int64_t k = 1; k <= x / k; k++) n += (x % k == 0) * (k == x / k ? 1 : 2);
  int64_t low = 0, high = n;
  *out = arena_array(a, int64_t, n);
  for (int64_t k = 1; k <= x / k; k++)
    if (x % k == 0) {
      (*out)[low++] = k;
      if (k != x / k) (*out)[--high] = x / k;
    }
  return n;
}

bool fd_read(int fd, void *to, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t k = read(fd, (char *)to + done, n - done);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return false;
    done += (size_t)k;
  }
  return true;
}

bool fd_write(int fd, const void *from, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t k = write(fd, (const char *)from + done, n - done);
    if (k < 0 && errno == EINTR) continue;
    if (k == 0) errno = ENOSPC;
    if (k <= 0) return false;
    done += (size_t)k;
  }
  return true;
}

int fd_above_streams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int up = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), why = errno;
  close(fd);
  errno = why;
  return up;
}
