/* Memory with shadow data. Each element remembers who wrote it and who read it last, and in which epoch; an epoch is
 * the time between two barriers. Two accesses of different threads in one epoch, one of them a write that changes the
 * value, are a race. In global memory threads of different blocks of one launch conflict whatever the epoch, unless they were
 * counted in between (last.c).
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "interp/run.h"

enum { MAX_FINDINGS = 32 };

void finding(Run *r, FindingKind k, int32_t subject, const char *fmt, ...) {
  uint64_t key = (uint64_t)k << 32 | (uint32_t)subject;
  if (r->quiet || r->found.len >= MAX_FINDINGS || mapu_get(&r->found_keys, key, 0)) return;
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  mapu_set(&r->found_keys, key, 1);
  const char *copy = arena_strdup(ir_arena(r->c), text);
  vec_push(r->keep, &r->found, copy);
}

Mem *mem_of(Run *r, BufferId b) {
  Mem *m = r->own[b] ? r->own[b][r->t] : r->mem[b];
  if (!m) err_raise(r->err, NS_ERR_INTERNAL, "buffer '%s' is used outside of its allocation", ir_buffer(r->c, b)->name);
  return m;
}

Mem *mem_new(Run *r, BufferId b, void *data) {
  const IrBuffer *info = ir_buffer(r->c, b);
  Mem *m = arena_new_of(r->a, Mem);
  m->id = b;
  m->type = dtype_lanes(info->type, 1);
  m->size = dtype_bytes(m->type);
  m->rank = info->rank;
  m->n = 1;
  m->min = arena_array(r->a, int64_t, m->rank);
  m->extent = arena_array(r->a, int64_t, m->rank);
  if (r->flat && info->size && !info->external)
    m->n = ev_int(r, info->size, "buffer size");
  else
    for (int d = 0; d < m->rank; d++) {
      m->min[d] = info->min ? ev_int(r, info->min[d], "buffer minimum") : 0;
      m->extent[d] = ev_int(r, info->extent[d], "buffer extent");
      if (!i64_mul(m->n, m->extent[d], &m->n)) m->n = -1;
    }
  if (m->n < 0 || m->n > (int64_t)1 << 28)
    err_raise(r->err, NS_ERR_VALUE, "buffer '%s' is too large to be interpreted (%lld elements)", info->name,
              (long long)m->n);
  m->data = data ? data : arena_alloc(r->a, (size_t)(m->n * m->size));
  m->shadow = arena_array(r->a, Shadow, m->n);
  for (int64_t i = 0; i < m->n && data; i++) m->shadow[i].init = true;
  return m;
}

static const char *who(Run *r, char *text, size_t n, int32_t thread) {
  int64_t at[3] = {0, 0, 0};
  if (r->in_kernel) thread_index(r, (thread - 1) % r->threads, at);
  if (!r->in_kernel)
    snprintf(text, n, "iteration %d", thread - 1);
  else
    snprintf(text, n, "thread (%lld,%lld,%lld) of block %d", (long long)at[0], (long long)at[1], (long long)at[2],
             (thread - 1) / r->threads);
  return text;
}

/* Has the warp of the two threads met since one of them did something? */
static bool warp_met_since(const Run *r, int32_t met, int32_t one, int32_t two) {
  int32_t warp = (one - 1) % r->threads / GPU_WARP;
  bool same = (one - 1) / r->threads == (two - 1) / r->threads && (two - 1) % r->threads / GPU_WARP == warp;
  return met < r->met && same && met < r->warp_met[warp];
}

/* Is an access of another thread in the given epoch concurrent with one of mine now? */
static bool concurrent(Run *r, const Mem *m, int32_t other, int32_t epoch, int32_t met, int32_t me) {
  if (!other || other == me || epoch < r->kernel_epoch) return false;
  if (epoch == r->epoch) return !warp_met_since(r, met, other, me);
  int32_t block = (other - 1) / r->threads;
  return m->fixed_block && block != (me - 1) / r->threads && !counted_before(r, block, epoch);
}

/* Threads that write the same value to an element in one epoch: each may read it, whoever was the last. */
static uint64_t shared_write(const Mem *m, int64_t at, int32_t thread) {
  uint64_t h = (uint64_t)(uintptr_t)m * 0x9e3779b97f4a7c15u + (uint64_t)at;
  return (h ^ h >> 29) * 0xbf58476d1ce4e5b9u + (uint64_t)thread;
}
static bool wrote_too(Run *r, const Mem *m, int64_t at, int32_t me) {
  return r->shared_writes.len && mapu_get(&r->shared_writes, shared_write(m, at, me), -1) == r->epoch;
}

static int32_t self(const Run *r) { return r->block_serial * r->threads + r->t + 1; }

/* Element number of an access, or -1 if out of bounds. bad: an index came from memory never written. */
static int64_t locate(Run *r, const Mem *m, int n, const ExprId *idx, int lane, const char *verb, bool *bad) {
  int64_t at = 0;
  r->index_depth++;
  for (int d = 0; d < n; d++) {
    Val v = ev(r, idx[d], lane);
    if (v.bad) {
      *bad = true;
      r->index_depth--;
      return -1;
    }
    int64_t i = v.u.i, lo = 0, ext = m->n;
    if (!r->flat) lo = m->min[d], ext = m->extent[d];
    if (i < lo || i - lo >= ext) {
      char by[64];
      finding(r, FD_BOUNDS, m->id,
              "out of bounds: %s of '%s' at index %lld of dimension %d, allowed [%lld, %lld), by %s", verb,
              ir_buffer(r->c, m->id)->name, (long long)i, d, (long long)lo, (long long)(lo + ext),
              who(r, by, sizeof by, self(r)));
      r->index_depth--;
      return -1;
    }
    at = r->flat ? i : at * ext + (i - lo);
  }
  r->index_depth--;
  return at;
}

static void check_rank(Run *r, const Mem *m, int n) {
  if (n != (r->flat ? 1 : m->rank))
    err_raise(r->err, NS_ERR_INTERNAL, "access to '%s' has %d indices, the form of the program needs %d",
              ir_buffer(r->c, m->id)->name, n, r->flat ? 1 : m->rank);
}

int64_t mem_place(Run *r, Mem *m, int n, const ExprId *idx, int lane, bool write) {
  check_rank(r, m, n);
  bool bad = false;
  int64_t at = locate(r, m, n, idx, lane, write ? "write" : "read", &bad);
  if (at < 0 && bad)
    finding(r, FD_UNINIT, m->id, "an index of a %s '%s' depends on memory that was never written",
            write ? "write to" : "read of", ir_buffer(r->c, m->id)->name);
  return at;
}

/* 0: threads of a warp, 1: of a block, 2: of two blocks. */
static int apart(const Run *r, int32_t one, int32_t two) {
  if ((one - 1) / r->threads != (two - 1) / r->threads) return 2;
  return (one - 1) % r->threads / GPU_WARP != (two - 1) % r->threads / GPU_WARP;
}

/* Two readers are remembered: the last one and, of the others, one that is as far from it as there is any, for what the lanes
 * of a warp have behind them when they meet, other warps have not. */
static void note_reader(Run *r, const Mem *m, Shadow *s, int32_t me) {
  bool farther = s->reader[0] != me && s->reader[1] &&
                 concurrent(r, m, s->reader[1], s->read_epoch[1], s->read_met[1], me) &&
                 apart(r, s->reader[1], me) > apart(r, s->reader[0], me);
  if (s->reader[0] != me && !farther) {
    s->reader[1] = s->reader[0];
    s->read_epoch[1] = s->read_epoch[0];
    s->read_met[1] = s->read_met[0];
  }
  s->reader[0] = me;
  s->read_epoch[0] = r->epoch;
  s->read_met[0] = r->met;
}

Val mem_load(Run *r, BufferId b, int n, const ExprId *idx, int lane) {
  Mem *m = mem_of(r, b);
  int64_t at = mem_place(r, m, n, idx, lane, false);
  return at < 0 ? (Val){.bad = true} : mem_load_at(r, m, at);
}

Val mem_load_at(Run *r, Mem *m, int64_t at) {
  BufferId b = m->id;
  Shadow *s = &m->shadow[at];
  int32_t me = self(r);
  launch_touch(r, m, false);
  if (concurrent(r, m, s->writer, s->write_epoch, s->write_met, me) && !r->quiet && !wrote_too(r, m, at, me)) {
    char x[64], y[64];
    finding(r, FD_RACE, b, "race on '%s' element %lld: read by %s, written by %s, no barrier between",
            ir_buffer(r->c, b)->name, (long long)at, who(r, x, sizeof x, me), who(r, y, sizeof y, s->writer));
  }
  note_reader(r, m, s, me);
  Val v = mem_get(m->type, m->data + at * m->size);
  v.bad = !s->init;
  return v;
}

void mem_store(Run *r, BufferId b, int n, const ExprId *idx, int lane, Val v) {
  Mem *m = mem_of(r, b);
  int64_t at = mem_place(r, m, n, idx, lane, true);
  if (at >= 0) mem_store_at(r, m, at, v);
}

void mem_store_at(Run *r, Mem *m, int64_t at, Val v) {
  BufferId b = m->id;
  const char *name = ir_buffer(r->c, b)->name;
  if (v.bad && ir_buffer(r->c, b)->external)
    finding(r, FD_UNINIT, b, "'%s' element %lld gets a value that depends on memory that was never written", name,
            (long long)at);
  Shadow *s = &m->shadow[at];
  int32_t me = self(r);
  launch_touch(r, m, true);
  uint8_t raw[8], *p = m->data + at * m->size;
  mem_put(m->type, raw, v);
  bool same = s->init && !v.bad && !memcmp(raw, p, (size_t)m->size); /* redundant production is allowed */
  if (!same) {
    char x[64], y[64];
    if (concurrent(r, m, s->writer, s->write_epoch, s->write_met, me))
      finding(r, FD_DOUBLE, b, "double write of '%s' element %lld: by %s and by %s with different values", name,
              (long long)at, who(r, x, sizeof x, s->writer), who(r, y, sizeof y, me));
    for (int i = 0; i < 2; i++)
      if (concurrent(r, m, s->reader[i], s->read_epoch[i], s->read_met[i], me))
        finding(r, FD_RACE, b, "race on '%s' element %lld: written by %s, read by %s, no barrier between", name,
                (long long)at, who(r, x, sizeof x, me), who(r, y, sizeof y, s->reader[i]));
  }
  if (same && s->writer && s->writer != me && s->write_epoch == r->epoch)
    mapu_set(&r->shared_writes, shared_write(m, at, s->writer), r->epoch);
  s->writer = me;
  s->write_epoch = r->epoch;
  s->write_met = r->met;
  s->init = !v.bad;
  memcpy(p, raw, (size_t)m->size);
  if (r->groups && ir_buffer(r->c, b)->scope == SC_SHARED) group_stored(r);
}
