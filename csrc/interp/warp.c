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
  return (in >= IN_COPY_ASYNC && in <= IN_COPY_PUT) || in == IN_PARTS || in == IN_GROUP_SEES;
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

/* ---- registers of 32 bits that hold one, two or four elements ---- */

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

void end_copies(Run *r) {
  for (int t = 0; r->flight && t < MAX_THREADS; t++) r->flight->copy[t].len = 0, r->flight->groups[t] = 0;
}

static int element_bytes(const Run *r, ExprId load) { return dtype_bytes(ir_buffer(r->c, r->node[load].sym)->type); }

/* The length of a copy between global and shared memory, in elements of so many bytes. */
static int64_t copy_length(Run *r, ExprId n, int size) {
  int64_t count = ev_int(r, n, "length of a copy"), bytes = count * size;
  if (bytes != 4 && bytes != 8 && bytes != 16)
    err_raise(r->err, NS_ERR_VALUE, "a copy of %lld bytes; 4, 8 and 16 are possible", (long long)bytes);
  return count;
}
void check_aligned(Run *r, ExprId load, Spot p, int64_t n) {
  if (p.at >= 0 && p.at % n)
    finding(r, FD_BOUNDS, r->node[load].sym, "a copy of %lld bytes from or to '%s' is not aligned",
            (long long)(n * p.mem->size), ir_buffer(r->c, r->node[load].sym)->name);
}

static void issue(Run *r, const ExprId *k) {
  struct Flight *f = r->flight;
  Copy x = {.n = copy_length(r, k[0], element_bytes(r, k[1])), .group = f->groups[r->t]};
  x.to = operand_spot(r, k[1], true);
  check_aligned(r, k[1], x.to, x.n);
  bool real = ev_cond(r, k[3]);
  Spot from = {NULL, -1};
  if (real) from = operand_spot(r, k[2], false);
  check_aligned(r, k[2], from, x.n);
  for (int64_t i = 0; i < x.n; i++) {
    x.value[i] = real ? operand_take(r, from, i) : (Val){.u.f = 0};
    operand_put(r, x.to, i, (Val){.bad = true});
  }
  vec_push(r->keep, &f->copy[r->t], x);
}

static void fetch(Run *r, const ExprId *k) {
  DType t = ir_buffer(r->c, r->node[k[2]].sym)->type;
  int64_t n = copy_length(r, k[0], dtype_bytes(t)), per = 4 / dtype_bytes(t);
  bool real = ev_cond(r, k[3]);
  Spot to = operand_spot(r, k[1], true), from = {NULL, -1};
  if (real) from = operand_spot(r, k[2], false);
  check_aligned(r, k[2], from, n);
  for (int64_t q = 0; q < n / per; q++) {
    Val value[4];
    for (int64_t i = 0; i < per; i++) value[i] = real ? operand_take(r, from, q * per + i) : (Val){.u.f = 0};
    operand_put(r, to, q, pack(t, (int)per, value));
  }
}

static void put(Run *r, const ExprId *k) {
  DType t = ir_buffer(r->c, r->node[k[1]].sym)->type;
  int64_t n = copy_length(r, k[0], dtype_bytes(t)), per = 4 / dtype_bytes(t);
  Spot to = operand_spot(r, k[1], true), from = operand_spot(r, k[2], false);
  check_aligned(r, k[1], to, n);
  for (int64_t i = 0; i < n; i++) operand_put(r, to, i, part(t, operand_take(r, from, i / per), (int)(i % per)));
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

/* Both parts of a factor of three terms, in 32 bits each. */
static Val single(Run *r, const ExprId load) {
  Spot p = operand_spot(r, load, false);
  Val v = operand_take(r, p, 0);
  return dtype_eq(p.mem->type, DT_F32) ? v : part(DT_F32, v, 0);
}
static void put_single(Run *r, const ExprId load, double x, bool bad) {
  Spot p = operand_spot(r, load, true);
  Val v = {.u.f = x, .bad = bad};
  operand_put(r, p, 0, dtype_eq(p.mem->type, DT_F32) ? v : pack(DT_F32, 1, &v));
}
static void parts(Run *r, const ExprId *k, int n) {
  Val x = single(r, k[n - 1]);
  if (n == 2) { /* by adding half of the last place that stays, to whatever bits there are */
    Val rest = {.u.f = (float)(x.u.f - num_tf32(x.u.f, false)), .bad = x.bad}, bits = pack(DT_F32, 1, &rest);
    bits.u.i = (uint32_t)bits.u.i + 0x1000u;
    return put_single(r, k[0], part(DT_F32, bits, 0).u.f, x.bad);
  }
  double high = num_tf32_high(x.u.f);
  put_single(r, k[0], high, x.bad);
  put_single(r, k[1], (float)(x.u.f - high), x.bad);
}

void exec_copy(Run *r, const Stmt *s) {
  const ExprNode *n = r->node + s->u.eval.e;
  if (!r->flight) r->flight = arena_new_of(r->keep, struct Flight);
  if (n->sym == IN_COPY_ASYNC)
    issue(r, r->kid + n->kid0);
  else if (n->sym == IN_COPY_FETCH)
    fetch(r, r->kid + n->kid0);
  else if (n->sym == IN_COPY_PUT)
    put(r, r->kid + n->kid0);
  else if (n->sym == IN_COPY_COMMIT)
    r->flight->groups[r->t]++;
  else if (n->sym == IN_PARTS)
    parts(r, r->kid + n->kid0, n->n);
  else if (n->sym == IN_GROUP_SEES)
    group_sees(r);
  else
    arrive(r, ev_int(r, r->kid[n->kid0], "groups in flight"));
}

/* ---- fragments ---- */

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
  t->v[line][k] = three ? num_tf32_high(value) : dtype_eq(type, DT_F32) ? num_tf32(value, true) : value;
  t->low[line][k] = three ? num_tf32(value - t->v[line][k], false) : 0; /* infinite factors: not a number */
  t->bad[line][k] = v.bad;
}

/* A dot product is exact up to its end here, where it is rounded to float32 and added; the units' own rounding in between is
 * not documented. */
static double dot(const Tile *a, const Tile *b, int row, int col, int depth, bool small) {
  double sum = 0;
  for (int i = 0; i < depth && small; i++) sum += a->low[row][i] * b->v[col][i] + a->v[row][i] * b->low[col][i];
  for (int i = 0; i < depth && !small; i++) sum += a->v[row][i] * b->v[col][i];
  return sum;
}
static Val added(const MmaInfo *m, Val c, double sum) {
  if (!dtype_is_float(m->sum))
    c.u.i += (int64_t)sum; /* which wraps where it is stored */
  else
    c.u.f = val_round(m->sum, c.u.f + sum);
  return c;
}

/* What lane l has of a factor in n registers from `first` on: lines by eights, then along k. */
static void take(Run *r, Tile *t, int l, Spot from, int first, int n, int eights, DType type, bool three) {
  int per = 4 / dtype_bytes(type);
  for (int q = 0; q < n; q++) {
    Val reg = operand_take(r, from, first + q);
    int line = l / 4 + q % eights * 8, k = (l % 4 + q / eights * 4) * per;
    for (int i = 0; i < per; i++) set(t, line, k + i, part(type, reg, i), type, three);
  }
}

/* One instruction of a product. */
static void multiply_part(Run *r, const ExprId *k, int first, const MmaInfo *m, const MmaForm *f, MmaPart p) {
  Tile *a = arena_new_of(r->a, Tile), *b = arena_new_of(r->a, Tile);
  bool three = m->terms == 3;
  int depth = f->takes.b * 16 / dtype_bytes(m->b), n = 4 / dtype_bytes(m->sum); /* n: sums of a register */
  for (int l = 0; l < WARP; l++) {
    set_thread(r, first + l);
    take(r, a, l, operand_spot(r, k[2], false), p.a, f->takes.a, f->eights, m->a, three);
    take(r, b, l, operand_spot(r, k[3], false), p.b, f->takes.b, 1, m->b, three);
  }
  for (int l = 0; l < WARP; l++) {
    set_thread(r, first + l);
    Spot pc = operand_spot(r, k[1], true);
    int registers = f->takes.sums / n * (three ? 2 : 1); /* three: sums of small products come second */
    for (int q = 0; q < registers; q++) {
      Val reg = operand_take(r, pc, p.sums / n + q), sum[2];
      for (int h = 0; h < n; h++) {
        int of = (q * n + h) % f->takes.sums, row = l / 4 + of / 2 * 8, col = l % 4 * 2 + of % 2;
        sum[h] = n == 1 ? reg : part(m->sum, reg, h);
        for (int i = 0; i < depth; i++) sum[h].bad |= a->bad[row][i] || b->bad[col][i];
        sum[h] = added(m, sum[h], dot(a, b, row, col, depth, q * n + h >= f->takes.sums));
      }
      operand_put(r, pc, p.sums / n + q, n == 1 ? sum[0] : pack(m->sum, n, sum));
    }
  }
}

static void multiply(Run *r, const ExprId *k, int first) {
  MmaType type = (MmaType)ev_int(r, k[0], "type of a product");
  const MmaForm *f = mma_form(type, r->gpu);
  if (!f) err_raise(r->err, NS_ERR_VALUE, "compute capability %d has no product of type %d", r->gpu->sm, (int)type);
  for (int i = 0; i < f->n; i++) multiply_part(r, k, first, mma_info(type), f, f->part[i]);
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
