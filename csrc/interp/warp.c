/* Instructions of NVIDIA's warps and copies in flight.
 *
 * The 32 lanes of a warp execute a fragment load or a product together: all operands are read before anything is written.
 * Which lane holds which element is the table of spec 07 §7.8.2, items 5 and 6.
 *
 * An asynchronous copy reads its source when it is issued and stores when its group is waited for. In between its
 * destination counts as never written, so that reading it too early is a finding, by whichever thread; and both moments are
 * writes, so that others' accesses without a barrier are races.
 *
 * Where the lanes of a warp meet, their accesses before are behind them, but not behind those of other warps.
 */
#include "interp/run.h"
#include <math.h>
#include <string.h>

enum { WARP = 32 };

static Intrin called(const Run *r, const Stmt *s) {
  if (s->kind != ST_EVAL || r->node[s->u.eval.e].kind != IR_CALL) return IN_NONE;
  return (Intrin)r->node[s->u.eval.e].sym;
}
bool is_warp_op(const Run *r, const Stmt *s) {
  Intrin in = called(r, s);
  return in == IN_FRAGMENT || in == IN_MMA || in == IN_WARP_SYNC || is_group_op(in);
}
bool is_copy_op(const Run *r, const Stmt *s) {
  Intrin in = called(r, s);
  return in == IN_COPY_ASYNC || in == IN_COPY_COMMIT || in == IN_COPY_WAIT || in == IN_GROUP_SEES;
}

Spot operand_spot(Run *r, ExprId load, bool write) {
  const ExprNode *n = r->node + load;
  if (n->kind != IR_LOAD) err_raise(r->err, NS_ERR_INTERNAL, "an operand of a warp's instruction is no element");
  Spot p = {.mem = mem_of(r, n->sym)};
  p.at = mem_place(r, p.mem, n->n, r->kid + n->kid0, 0, write);
  return p;
}
Val operand_take(Run *r, Spot p, int64_t i) {
  if (p.at < 0) return (Val){.bad = true};
  if (p.at + i < p.mem->n) return mem_load_at(r, p.mem, p.at + i);
  finding(r, FD_BOUNDS, p.mem->id, "out of bounds: an instruction reads behind the %lld elements of '%s'",
          (long long)p.mem->n, ir_buffer(r->c, p.mem->id)->name);
  return (Val){.bad = true};
}
void operand_put(Run *r, Spot p, int64_t i, Val v) {
  if (p.at < 0) return;
  if (p.at + i < p.mem->n)
    mem_store_at(r, p.mem, p.at + i, v);
  else
    finding(r, FD_BOUNDS, p.mem->id, "out of bounds: an instruction writes behind the %lld elements of '%s'",
            (long long)p.mem->n, ir_buffer(r->c, p.mem->id)->name);
}

/* ---- copies ---- */

typedef struct {
  Spot to;
  int64_t n, group;
  Val value[16];
} Copy;
struct Flight {
  VEC(Copy) copy[MAX_THREADS];
  int64_t groups[MAX_THREADS]; /* committed so far */
};

/* Nothing but places, all of which must be there, and be written by no other launch if it was not waited for. */
void prefetch_range(Run *r, const ExprId *k) {
  enum { UNIT = 16 };
  Spot p = operand_spot(r, k[0], false);
  int64_t bytes = ev_int(r, k[1], "length of a prefetch");
  if (p.at < 0) return;
  launch_touch(r, p.mem, false);
  if (bytes <= 0 || bytes % UNIT || p.at * p.mem->size % UNIT)
    err_raise(r->err, NS_ERR_VALUE, "a prefetch of %lld bytes from byte %lld; multiples of %d are possible",
              (long long)bytes, (long long)(p.at * p.mem->size), UNIT);
  if (p.at * p.mem->size + bytes > p.mem->n * p.mem->size)
    finding(r, FD_BOUNDS, p.mem->id, "out of bounds: a prefetch goes on behind the end of '%s'",
            ir_buffer(r->c, p.mem->id)->name);
}

void end_copies(Run *r) {
  for (int t = 0; r->flight && t < MAX_THREADS; t++) r->flight->copy[t].len = 0, r->flight->groups[t] = 0;
}

static void issue(Run *r, const ExprId *k) {
  struct Flight *f = r->flight;
  Copy x = {.n = ev_int(r, k[0], "length of a copy"), .group = f->groups[r->t]};
  int size = dtype_bytes(ir_buffer(r->c, r->node[k[1]].sym)->type);
  int64_t bytes = x.n * size;
  if (bytes != 4 && bytes != 8 && bytes != 16)
    err_raise(r->err, NS_ERR_VALUE, "an asynchronous copy of %lld bytes; 4, 8 and 16 are possible", (long long)bytes);
  x.to = operand_spot(r, k[1], true);
  bool real = ev_cond(r, k[3]);
  Spot from = {NULL, -1};
  if (real) from = operand_spot(r, k[2], false);
  if ((x.to.at >= 0 && x.to.at * size % bytes) || (from.at >= 0 && from.at * size % bytes))
    finding(r, FD_BOUNDS, r->node[k[1]].sym, "an asynchronous copy of %lld bytes to '%s' is not aligned",
            (long long)bytes, ir_buffer(r->c, r->node[k[1]].sym)->name);
  for (int64_t i = 0; i < x.n; i++) {
    x.value[i] = real ? operand_take(r, from, i) : (Val){.u.f = 0};
    operand_put(r, x.to, i, (Val){.bad = true});
  }
  vec_push(r->keep, &f->copy[r->t], x);
}

static void arrive(Run *r, int64_t in_flight) {
  struct Flight *f = r->flight;
  int32_t kept = 0;
  for (int32_t i = 0; i < f->copy[r->t].len; i++) {
    Copy *x = &f->copy[r->t].at[i];
    if (x->group >= f->groups[r->t] - in_flight) {
      f->copy[r->t].at[kept++] = *x;
      continue;
    }
    for (int64_t q = 0; q < x->n; q++) operand_put(r, x->to, q, x->value[q]);
  }
  f->copy[r->t].len = kept;
}

void exec_copy(Run *r, const Stmt *s) {
  const ExprNode *n = r->node + s->u.eval.e;
  if (!r->flight) r->flight = arena_new_of(r->keep, struct Flight);
  if (n->sym == IN_COPY_ASYNC)
    issue(r, r->kid + n->kid0);
  else if (n->sym == IN_COPY_COMMIT)
    r->flight->groups[r->t]++;
  else if (n->sym == IN_GROUP_SEES)
    group_sees(r);
  else
    arrive(r, ev_int(r, r->kid[n->kid0], "groups in flight"));
}

/* ---- fragments: registers of 32 bits that hold one, two or four elements ---- */

static Val pack(DType t, int n, const Val *part) {
  uint32_t u = 0;
  Val v = {.bad = false};
  for (int i = 0; i < n; i++) {
    mem_put(t, (uint8_t *)&u + i * dtype_bytes(t), part[i]);
    v.bad |= part[i].bad;
  }
  v.u.i = u;
  return v;
}
static Val part(DType t, Val reg, int i) {
  uint32_t u = (uint32_t)reg.u.i;
  Val v = mem_get(t, (const uint8_t *)&u + i * dtype_bytes(t));
  v.bad = reg.bad;
  return v;
}

static void fragment(Run *r, const ExprId *k, int first) {
  int64_t n = ev_int(r, k[0], "number of matrices"), turned = ev_int(r, k[1], "transposition");
  static const DType NONE = {0};
  Val row[WARP][16];
  DType t = NONE;
  for (int i = 0; i < 8 * n; i++) {
    set_thread(r, first + i);
    Spot from = operand_spot(r, k[3], false);
    t = from.mem->type;
    if (from.at >= 0 && from.at * from.mem->size % 16)
      finding(r, FD_BOUNDS, from.mem->id, "a row of a fragment in '%s' is not aligned to 16 bytes",
              ir_buffer(r->c, from.mem->id)->name);
    for (int q = 0; q < 16 / from.mem->size; q++) row[i][q] = operand_take(r, from, q);
  }
  int per = 4 / dtype_bytes(t); /* elements of a register */
  if (turned && per != 2) err_raise(r->err, NS_ERR_VALUE, "only 16-bit types are transposed by a fragment load");
  for (int l = 0; l < WARP; l++) {
    set_thread(r, first + l);
    Spot to = operand_spot(r, k[2], true);
    for (int m = 0; m < n; m++) {
      Val part[4];
      for (int q = 0; q < per; q++) {
        int other = l % 4 * per + q;
        part[q] = turned ? row[8 * m + other][l / 4] : row[8 * m + l / 4][other];
      }
      operand_put(r, to, m, pack(t, per, part));
    }
  }
}

/* ---- products ---- */

typedef struct {                 /* lines: rows of A, columns of B */
  double v[16][32], low[16][32]; /* low: what is left of v, of products in three terms */
  bool bad[16][32];
} Tile;
static void set(Tile *t, int line, int k, Val v, DType type, bool three) {
  double value = dtype_is_float(type) ? v.u.f : (double)v.u.i;
  t->v[line][k] = dtype_eq(type, DT_F32) ? num_tf32(value, true) : value;
  t->low[line][k] = three && isfinite(value) ? num_tf32(value - t->v[line][k], true) : 0;
  t->bad[line][k] = v.bad;
}

/* A dot product is exact up to its end here, where it is rounded to float32 and added; the units' own rounding in between is
 * not documented. */
static double dot(const Tile *a, const Tile *b, int row, int col, int depth, bool three) {
  double sum = 0;
  for (int i = 0; i < depth && three; i++) sum += a->low[row][i] * b->v[col][i] + a->v[row][i] * b->low[col][i];
  for (int i = 0; i < depth; i++) sum += a->v[row][i] * b->v[col][i];
  return sum;
}
static Val added(const MmaInfo *m, Val c, double sum) {
  if (!dtype_is_float(m->sum))
    c.u.i += (int64_t)sum; /* which wraps where it is stored */
  else
    c.u.f = val_round(m->sum, c.u.f + (m->terms == 3 ? (float)sum : sum));
  return c;
}

static void multiply(Run *r, const ExprId *k, int first) {
  Tile *a = arena_new_of(r->a, Tile), *b = arena_new_of(r->a, Tile);
  MmaType type = (MmaType)ev_int(r, k[0], "type of a product");
  const MmaInfo *m = mma_info(type);
  int depth = mma_depth(type), per = depth / 8;
  bool three = m->terms == 3;
  for (int l = 0; l < WARP; l++) {
    set_thread(r, first + l);
    Spot pa = operand_spot(r, k[2], false), pb = operand_spot(r, k[3], false);
    int g = l / 4, c = l % 4 * per;
    for (int q = 0; q < 4; q++) {
      Val reg = operand_take(r, pa, q);
      for (int i = 0; i < per; i++) set(a, g + q % 2 * 8, c + q / 2 * 4 * per + i, part(m->a, reg, i), m->a, three);
    }
    for (int q = 0; q < 2; q++) {
      Val reg = operand_take(r, pb, q);
      for (int i = 0; i < per; i++) set(b, g, c + q * 4 * per + i, part(m->b, reg, i), m->b, three);
    }
  }
  for (int l = 0; l < WARP; l++) {
    set_thread(r, first + l);
    Spot pc = operand_spot(r, k[1], true);
    int n = 4 / dtype_bytes(m->sum); /* sums of a register */
    for (int q = 0; q < 4 / n; q++) {
      Val reg = operand_take(r, pc, q), sum[2];
      for (int h = 0; h < n; h++) {
        int row = l / 4 + (q * n + h) / 2 * 8, col = l % 4 * 2 + (q * n + h) % 2;
        sum[h] = n == 1 ? reg : part(m->sum, reg, h);
        for (int i = 0; i < depth; i++) sum[h].bad |= a->bad[row][i] || b->bad[col][i];
        sum[h] = added(m, sum[h], dot(a, b, row, col, depth, three));
      }
      operand_put(r, pc, q, n == 1 ? sum[0] : pack(m->sum, n, sum));
    }
  }
}

void exec_warps(Run *r, const Stmt *s, const bool *on) {
  const ExprNode *n = r->node + s->u.eval.e;
  bool group = is_group_op((Intrin)n->sym);
  int team = group ? GPU_WARPGROUP : WARP;
  for (int first = 0; first < r->threads; first += team) {
    int there = 0;
    for (int t = first; t < r->threads && t < first + team; t++) there += on[t];
    if (!there) continue;
    if (there < team) {
      finding(r, FD_BARRIER, 2, "an instruction of a whole warp%s is not reached by all its %s", group ? "group" : "",
              group ? "threads" : "lanes");
      continue;
    }
    set_thread(r, first);
    step(r);
    ArenaMark mark = arena_mark(r->a);
    if (group)
      exec_group(r, n, first);
    else if (n->sym == IN_WARP_SYNC)
      r->warp_met[first / WARP] = ++r->met;
    else if (n->sym == IN_FRAGMENT)
      fragment(r, r->kid + n->kid0, first);
    else
      multiply(r, r->kid + n->kid0, first);
    arena_release(r->a, mark);
  }
}
