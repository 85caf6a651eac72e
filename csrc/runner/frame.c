/* Frames on a byte stream; see runner.h. */
#include "runner/runner.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTHS = 12 };

static uint64_t little(const unsigned char *p, int n) {
  uint64_t v = 0;
  for (int i = n - 1; i >= 0; i--) v = v << 8 | p[i];
  return v;
}

FrameStatus frame_read(Err *e, int fd, Frame *f) {
  unsigned char lengths[LENGTHS];
  *f = (Frame){NULL, NULL, 0, 0};
  if (!fd_read(fd, lengths, sizeof lengths)) return FRAME_END;
  uint64_t head = little(lengths, 4), n = little(lengths + 4, 8);
  if (head > RUNNER_HEAD || n > RUNNER_PAYLOAD) return FRAME_BAD;
  f->n_head = (size_t)head;
  f->n = (size_t)n;
  f->head = malloc(f->n_head + 1);
  f->data = malloc(f->n + 1);
  if (!f->head || !f->data) {
    frame_free(f);
    err_raise(e, NS_ERR_MEMORY, "out of memory for a request of %llu bytes", (unsigned long long)(head + n));
  }
  f->head[f->n_head] = 0;
  ((char *)f->data)[f->n] = 0;
  if (fd_read(fd, f->head, f->n_head) && fd_read(fd, f->data, f->n)) return FRAME_OK;
  frame_free(f);
  return FRAME_END;
}

bool frame_write(int fd, const char *head, const void *data, size_t n) {
  unsigned char lengths[LENGTHS];
  size_t n_head = strlen(head);
  for (int i = 0; i < 4; i++) lengths[i] = (unsigned char)(n_head >> (8 * i));
  for (int i = 0; i < 8; i++) lengths[4 + i] = (unsigned char)((uint64_t)n >> (8 * i));
  return fd_write(fd, lengths, sizeof lengths) && fd_write(fd, head, n_head) && fd_write(fd, data, n);
}

void frame_free(Frame *f) {
  free(f->head);
  free(f->data);
  *f = (Frame){NULL, NULL, 0, 0};
}
