/* Closed forms of a stage on a CPU: the cycles that it keeps a core busy, and the bytes that come from beyond its second cache.
 *
 * A sum is looked at as pass_registers (lower/registers.c) will see it: from the outermost reduction loop on whose spatial
 * loops fit into registers, cut where tile_fit says so; what it comes to is the number of steps times the cycles of one, and what
 * each pass over a tile costs around its steps. Of other stages the compiler makes a loop over vectors. Traffic follows from reuse:
 * what one iteration of a loop touches stays in a cache if all of it fits, and then a tensor that the loop does not move is not
 * fetched again. Costs are of a Zen 3; those that no manual tells were set by hand beside 500 programs of three networks, timed on two of
 * its cores.
 */
#include "model/facts.h"
#include "base/tile.h"
#include <math.h>
#include <string.h>

#define FIRST_CACHE 24576.0 /* bytes, of which a loop may count on finding them again */
#define SECOND_CACHE 393216.0
#define SECOND_RATE 24.0 /* bytes in a cycle from the second cache, beside computing */
#define SECOND_SHARE 0.4 /* of the time that these take: what is not hidden */
#define LINE_ELEMS 16
#define PASS_CYCLES                                                                                                    \
  18.0 /* a tile's: addresses, a branch that is not foreseen, sums that wait for each other at the end */
#define ENTRY_CYCLES 4.0 /* a loop's within it */
#define SHORT_PASS 16    /* steps: a core is at work at the next tile before one is done */
#define IN_FLIGHT 8.0    /* sums that keep it busy otherwise */
/* What a step takes longer where the columns of a tile do not lie together in memory from one step to the next: those of
 * other tiles lie between them, up to a vector loop, or up to a whole loop outside of which sums are that are cut there. */
#define APART 1.1
#define SPREAD 2.2
#define NARROW 2.0         /* vectors that are not whole, of whole ones */
#define GATHER_CYCLES 12.0 /* a vector that is put together from places that do not lie side by side */
#define SELECT_CYCLES 1.0  /* a guarded element of a row and step */
#define STRAIGHT_OP 1.5    /* of straight code, whose operands come from memory: so many of a product's operations */
#define MIN_LANES 4
#define LONG_REDUCTION 16 /* as in lower/registers.c: sums within that are this long pay for loading and storing them */

typedef struct {
  const View *v;
  const TeOp *op;
  CpuMachine m;
  int lanes; /* of a vector of the result's elements */
  uint64_t
      packed[FACT_READS]; /* axes, if a layout rewrite will store the tensor in the order in which the stage reads it */
  uint8_t digits
      [FACT_READS]; /* bits: dimensions whose index has the axes as digits, so that each combination is another element */
} Cpu;

/* The dimension in which neighbours in memory differ; -1: the tensor has one element. */
static int last_dim(const ReadFacts *a) {
  int d = a->rank - 1;
  while (d >= 0 && a->dim[d] == 1) d--;
  return d;
}

/* ---- footprints and traffic ---- */

/* Elements of a tensor that loops from..end sweep; whole lines, where the last dimension is not read whole. */
static double footprint(const Cpu *x, int access, int from) {
  const View *v = x->v;
  const ReadFacts *a = &v->access[access];
  double range[MAX_AXES], total = 1;
  uint64_t used = 0;
  for (int d = 0; d < a->rank; d++) used |= a->mask[d];
  used &= (1ull << MAX_AXES) - 1;
  for (uint64_t m = used; m; m &= m - 1) range[__builtin_ctzll(m)] = 1;
  for (int i = from; i < v->n_loop; i++)
    if (v->loop[i].same && v->loop[i].ext != 1)
      for (uint64_t m = v->loop[i].mask & used; m; m &= m - 1) range[__builtin_ctzll(m)] *= (double)v->loop[i].ext;
  for (int d = 0; d < a->rank; d++) {
    double sum = 1, prod = 1, whole = (double)a->dim[d];
    for (uint64_t m = a->mask[d] & used; m; m &= m - 1) {
      double r = range[__builtin_ctzll(m)];
      sum += r - 1, prod *= r;
    }
    double cover = a->linear[d] && !(x->digits[access] >> d & 1) ? sum : prod;
    if (d == last_dim(a) && !x->packed[access] && whole > LINE_ELEMS) cover = ceil(cover / LINE_ELEMS) * LINE_ELEMS;
    total *= fmin(cover, whole);
  }
  return total;
}

/* Elements of the result that loops from..end sweep. */
static double result_footprint(const Cpu *x, int from) {
  double n = 1;
  for (int i = from; i < x->v->n_loop; i++)
    if (x->v->loop[i].same && x->v->loop[i].kind == IT_SPACE) n *= (double)x->v->loop[i].ext;
  return n;
}

static double bytes_of(const Cpu *x, int from) {
  double n = result_footprint(x, from) * x->m.vector_bytes / x->lanes;
  for (int i = 0; i < x->v->n_access; i++) n += footprint(x, i, from) * facts_bytes(x->v->s, x->v->access[i].tensor);
  return n;
}

/* Is it made nearby, in an array that stays in a cache of that size? */
static bool stays(const View *v, TensorId t, double cache) {
  int made = te_dag_op_of(v->s->ctx, v->s->dag, t);
  return made >= 0 && v->s->stage.at[made].at == AT_ITER && facts_region(v->s, made) * facts_bytes(v->s, t) <= cache;
}

/* Bytes that come into a cache of that size. */
static double traffic(const Cpu *x, double cache) {
  const View *v = x->v;
  int in = v->n_loop;
  while (in > 0 && bytes_of(x, in - 1) <= cache) in--;
  if (in > 0) in--; /* what a loop does not move stays from one iteration to the next */
  double outer = 1, total = 0;
  for (int i = 0; i < in; i++) outer *= (double)v->loop[i].ext;
  for (int i = 0; i < v->n_access; i++)
    if (!stays(v, v->access[i].tensor, cache))
      total += outer * footprint(x, i, in) * facts_bytes(v->s, v->access[i].tensor);
  return total;
}

/* ---- sums ---- */

/* Is an access the same for all lanes (-1), contiguous (1), or spread over memory (0)? */
static int along(const Cpu *x, int access, uint64_t vector) {
  const ReadFacts *a = &x->v->access[access];
  uint64_t all = 0;
  for (int d = 0; d < a->rank; d++) all |= a->mask[d];
  if (!(all & vector)) return -1;
  int d = last_dim(a);
  uint64_t last = x->packed[access] ? all : d >= 0 ? a->mask[d] : 0;
  bool linear = d >= 0 && a->linear[d];
  return (last & vector) && linear ? 1 : 0;
}

typedef struct {
  bool scalar, scalar_uses, vector_uses, gathers;
} Operands;
static Operands operands(const Cpu *x, uint64_t vector, uint64_t level) {
  Operands o = {0};
  for (int i = 0; i < x->v->n_access; i++) {
    uint64_t all = 0;
    for (int d = 0; d < x->v->access[i].rank; d++) all |= x->v->access[i].mask[d];
    int how = along(x, i, vector);
    o.scalar |= how < 0;
    o.scalar_uses |= how < 0 && (all & level);
    o.vector_uses |= how >= 0 && (all & level);
    o.gathers |= how == 0;
  }
  return o;
}

typedef struct {
  double cycles; /* of one step of all sums of a nest; INFINITY: they do not fit */
  double tiles, vectors, rows;
} Nest;

/* The spatial loops from `first` on, laid over registers; loops of reductions within are steps. */
static Nest lay(const Cpu *x, int first, int vec) {
  const View *v = x->v;
  TileLoop loop[MAX_LOOPS];
  int n = 0, at = -1;
  double panel = x->m.vector_bytes / (double)x->lanes, all = 1;
  for (int i = first; i < v->n_loop; i++)
    if (v->loop[i].kind != IT_SPACE) panel *= (double)v->loop[i].ext;
  for (int i = first; i < v->n_loop; i++) {
    const Loop *l = &v->loop[i];
    if (l->kind != IT_SPACE || l->ext == 1) continue;
    double within = 1;
    for (int j = i + 1; j < v->n_loop; j++)
      if (v->loop[j].kind != IT_SPACE) within *= (double)v->loop[j].ext;
    Operands o = operands(x, v->loop[vec].mask, l->mask);
    bool is_vec = i == vec, column = is_vec || (o.scalar && o.vector_uses && !o.scalar_uses);
    if (column) panel *= (double)l->ext;
    if (is_vec) at = n;
    loop[n++] = (TileLoop){.extent = is_vec ? i64_ceildiv(l->ext, x->lanes) : l->ext,
                           .column = column,
                           .both = !is_vec && o.vector_uses && o.scalar_uses,
                           .whole = within >= LONG_REDUCTION || (is_vec && l->ext % x->lanes)};
  }
  Nest r = {.cycles = tile_fit(&x->m, n, loop, at, panel), .tiles = 1, .vectors = 1, .rows = 1};
  double columns = 1;
  for (int i = 0; i < n && isfinite(r.cycles); i++) {
    bool cut = (loop[i].column || loop[i].both) && loop[i].inner < loop[i].extent;
    if (cut) columns = fmax(columns, i == at ? APART : SPREAD);
    all *= (double)loop[i].extent;
    r.vectors *= (double)loop[i].inner;
    if (!loop[i].column) r.rows *= (double)loop[i].inner;
  }
  r.tiles = all / r.vectors;
  r.cycles *= columns;
  return r;
}

static int vector_loop(const View *v) {
  int last = -1;
  for (int i = v->n_loop - 1; i >= 0 && v->loop[i].own; i--) {
    if (v->loop[i].ann == AN_VECTORIZE) return i;
    if (last < 0 && v->loop[i].kind == IT_SPACE && v->loop[i].ext > 1) last = i;
  }
  return last >= 0 && v->loop[last].ext >= MIN_LANES ? last : -1;
}

static double sum_cycles(const Cpu *x, double execs) {
  const View *v = x->v;
  int vec = vector_loop(v), own = 0;
  while (own < v->n_loop && !v->loop[own].own) own++;
  Operands o = vec >= 0 ? operands(x, v->loop[vec].mask, 0) : (Operands){0};
  double ops = fmax(v->ops, 1);
  if (vec < 0) return execs * ops;
  double lanes = fmin((double)v->loop[vec].ext, x->lanes);
  if (o.gathers) return execs / lanes * GATHER_CYCLES;
  for (int i = own; i < v->n_loop; i++) {
    if (v->loop[i].kind == IT_SPACE || v->loop[i].ext == 1) continue;
    Nest n = lay(x, i, vec);
    if (!isfinite(n.cycles)) continue;
    double outside = 1, steps = 1, entries = 1;
    for (int j = 0; j < i; j++) outside *= (double)v->loop[j].ext;
    for (int j = i; j < v->n_loop; j++)
      if (v->loop[j].kind != IT_SPACE && v->loop[j].ext > 1) entries = steps, steps *= (double)v->loop[j].ext;
    double guards = v->selects * SELECT_CYCLES * n.rows * steps * n.tiles;
    double pass = n.vectors + (steps < SHORT_PASS ? 0 : PASS_CYCLES) + (entries > 1 ? entries * ENTRY_CYCLES : 0);
    double step = steps < SHORT_PASS
                      ? fmax(n.cycles / n.tiles * fmin(n.vectors / IN_FLIGHT, 1), n.vectors / 2) * n.tiles
                      : n.cycles;
    if (v->loop[vec].ext % x->lanes) step *= NARROW;
    return outside * (step * steps * fmax(ops / 2, 1) + n.tiles * pass + guards);
  }
  return execs * ops / lanes;
}

/* ---- other stages ---- */

/* Lanes of straight code (the transforms of Winograd, unrolled): those of the innermost loop that is left around it, which may be
 * another stage's, if neighbours in memory are its iterations. */
static double straight_lanes(const Cpu *x) {
  const View *v = x->v;
  if (x->op->n_axis == 0 || x->op->n_axis > MAX_AXES) return 1; /* of later axes nothing is known */
  for (int i = v->n_loop - 1; i >= 0; i--) {
    const Loop *l = &v->loop[i];
    if (l->ext == 1 || l->ann == AN_UNROLL || (l->own && l->kind != IT_SPACE)) continue;
    int64_t w = x->lanes;
    while (w > 1 && l->ext % w) w /= 2;
    return w >= 4 && l->ann != AN_PARALLEL && l->mask >> (x->op->n_axis - 1) & 1 ? (double)w : 1;
  }
  return 1;
}

/* Code that is unrolled around constant matrices, whose products mostly vanish; < 0: it is not of that kind. */
static double straight_cycles(const Cpu *x, double execs) {
  const View *v = x->v;
  double unrolled = 1, per = fmax(v->ops, 1);
  for (int i = 0; i < v->n_loop; i++) {
    if (v->loop[i].own && v->loop[i].ann == AN_UNROLL) unrolled *= (double)v->loop[i].ext;
    if (v->loop[i].ann == AN_VECTORIZE && v->loop[i].ext > 1) return -1;
  }
  bool choice = v->selects > 0 && unrolled > 1; /* transforms by rows: one select per column, which unrolling decides */
  if (choice) per = fmax(STRAIGHT_OP * (v->ops - v->selects) / (v->selects + 1), 1);
  if (unrolled <= 16 && !choice) return -1;
  return execs * (choice ? per : 0.6) / straight_lanes(x);
}

static double plain_cycles(const Cpu *x, double execs) {
  const View *v = x->v;
  double per = v->ops / 2 + (v->n_access + 1) / 2.0, lanes = 1;
  for (int i = v->n_loop - 1; i >= 0 && v->loop[i].own; i--) {
    const Loop *l = &v->loop[i];
    if (l->ext == 1) continue;
    bool plain = true;
    for (int k = 0; k < v->n_access; k++) plain &= along(x, k, l->mask) != 0;
    if (plain && l->mask >> (x->op->n_axis - 1) & 1) lanes = fmin((double)l->ext, x->lanes);
    break;
  }
  return execs * fmax(per, 1) / lanes;
}

/* The axes of a stage that its reader has, too, in the same order, by number; an axis that the reader sums up (of a sum in parts, rfactor) is
 * left out. -1: they differ otherwise. */
static int left_out(const View *v, const TeOp *of, const TeOp *op) {
  if (of->n_axis == op->n_axis) {
    for (int k = 0; k < op->n_axis; k++)
      if (te_const(v->s->ctx, of->axis[k].extent) != te_const(v->s->ctx, op->axis[k].extent)) return -1;
    return op->n_axis;
  }
  for (int f = op->n_axis - 1; of->n_axis + 1 == op->n_axis && of->n_red > 0 && f >= 0; f--) {
    int k = 0;
    while (k < of->n_axis &&
           te_const(v->s->ctx, of->axis[k].extent) == te_const(v->s->ctx, op->axis[k + (k >= f)].extent))
      k++;
    if (k == of->n_axis) return f;
  }
  return -1;
}

/* Loops around the stage belong to readers. Do these have its axes? Then they move what it reads, too. */
static void same_axes(View *v, const TeOp *op) {
  for (int i = 0; i < v->n_loop; i++) {
    Loop *l = &v->loop[i];
    l->same = l->own;
    if (l->own) continue;
    int f = left_out(v, v->s->stage.at[l->stage].op, op);
    l->same = f >= 0;
    if (f >= 0 && f < op->n_axis) l->mask = (l->mask & ((1ull << f) - 1)) | (l->mask >> f << (f + 1));
  }
}

/* As in outer * 16 + inner: there are as many combinations as elements of the dimension. */
static uint8_t digits_of(const Cpu *x, const ReadFacts *a) {
  int found = 0, known = x->op->n_axis + x->op->n_red;
  for (int d = 0; d < a->rank; d++) {
    double all = 1;
    for (uint64_t m = a->mask[d]; m; m &= m - 1) {
      int i = __builtin_ctzll(m);
      int64_t n;
      all *= i < known && ex_const_int(x->v->s->ctx, te_axis(x->op, i)->extent, &n) ? (double)n : INFINITY;
    }
    found |= (all == (double)a->dim[d]) << d;
  }
  return (uint8_t)found;
}

static bool rewritten(const TeOp *op, TensorId t) {
  const TeAttr *a = te_attr(op, TE_FREE_LAYOUT);
  return a && a->kind == TA_TENSORS && te_listed(a->n, a->tensors, t);
}

void facts_cpu_stage(const Target *t, KernelFacts *k, View *v, State *s, int stage) {
  const Stage *st = &s->stage.at[stage];
  view_stage(v, s, stage, NULL);
  same_axes(v, st->op);
  Cpu x = {.v = v, .op = st->op, .m = cpu_machine(t->cpu)};
  int bytes = facts_bytes(s, st->op->out[0]);
  x.lanes = x.m.vector_bytes / bytes > 1 ? x.m.vector_bytes / bytes : 1;
  for (int i = 0; i < v->n_access; i++) {
    x.packed[i] = rewritten(st->op, v->access[i].tensor);
    x.digits[i] = digits_of(&x, &v->access[i]);
  }
  double execs = 1, par = 1, first = 0, second = 0;
  for (int i = 0; i < v->n_loop; i++) {
    execs *= (double)v->loop[i].ext;
    if (v->loop[i].ann == AN_PARALLEL) par *= (double)v->loop[i].ext;
  }
  if (st->at == AT_ROOT || par > 1) k->blocks = fmax(k->blocks, par);
  double cycles = straight_cycles(&x, execs), out = facts_region(s, stage) * bytes * (st->at == AT_ITER ? 0.1 : 1);
  if (cycles < 0) {
    cycles = facts_reduces(v) ? sum_cycles(&x, execs) : plain_cycles(&x, execs);
    first = traffic(&x, FIRST_CACHE);
    second = traffic(&x, SECOND_CACHE);
  } else
    out *= 2;
  double fetch = first / SECOND_RATE;
  k->ops += fmax(cycles, fetch) + SECOND_SHARE * fmin(cycles, fetch);
  k->global_bytes += out + second;
}
