/* The per-store feature vector of the reference auto-scheduler: 164 numbers for each buffer that a program stores to.
 *
 * The extractor walks a loop program (multi-dimensional accesses, thread scopes still loops, unroll pragmas still
 * annotations). At every store it knows the stack of enclosing loops. For each loop it asks what the store touches
 * while that loop runs: loops outside it stand at their minimum, loops inside run through their range, and interval
 * arithmetic on the index expressions gives the region. From the regions come unique bytes, reuse distances and the
 * arithmetic-intensity curve; from the loop extents the counts.
 *
 * Two rule sets share the code: FEAT_RULES_REFERENCE reproduces the published behaviour with its oddities (marked O1 to
 * O11 below), FEAT_RULES_REPAIRED is what tuning uses.
 */
#include "model/model.h"
#include "model/access.h"
#include <math.h>
#include <string.h>

enum { MAX_LOOPS = 128, MAX_ACCESS = 64 };
enum { REUSE_LOOP, REUSE_SERIAL, REUSE_NONE };

typedef struct {
  int32_t next;
  BufferId buf;
  double size;
  int bytes;
} Pair; /* a touch: region size of one store */
typedef struct {
  VarId var;
  int64_t extent, min;
  ForKind kind;
  int32_t first, last;
} Loop; /* first, last: its touch book */
typedef struct {
  int32_t first, last;
} Block; /* O9: a piece of the reference's memory and the touch book that goes by its address */
typedef struct {
  BufferId buf;
  int n_acc; /* O9: accesses that the reference has room for, in `own` if it is one */
  Block own;
  double count[16];
  double raw[FEAT_N];
} Row;

typedef struct {
  IrCtx *c;
  FeatRules rules;
  Arena *arena;
  int n_loops;
  Loop loop[MAX_LOOPS];
  VEC(Pair) pairs; /* all touch books; chained per loop */
  VEC(Row *) rows;
  MapU64 row_of; /* buffer -> row number */
  bool gpu;
  int unroll, line;                      /* line: cache line bytes */
  VEC(Block) free;                       /* O9: the reference's free list */
  AccDims uses[MAX_ACCESS][MAX_LOOPS];   /* the dimensions of an access of the store that depend on a loop */
  double region[MAX_ACCESS];             /* region size of an access under the outermost loop */
  double dims[MAX_ACCESS][ACC_MAX_RANK]; /* per dimension region extents under the outermost loop */
  Ranges ranges;
} Ext;

/* ---- operation counts: entries 0 to 15 ---- */
static void count_ops(IrCtx *c, ExprId e, double *cnt) {
  ExprNode n = *ir_node(c, e);
  int at = -1;
  bool flt = n.n > 0 && dtype_is_float(n.kind == IR_CALL ? n.type : ir_type(c, ir_kid(c, e, 0)));
  switch ((ExprKind)n.kind) {
  case IR_ADD:
  case IR_SUB: at = flt ? 1 : 8; break;
  case IR_MUL: at = flt ? 2 : 9; break;
  case IR_DIV: /* dividing by a literal is multiplying by its inverse */
    at = flt ? ir_kind(c, ir_kid(c, e, 1)) == IR_FLT ? 2 : 3 : 10;
    break;
  case IR_MOD:
  case IR_FDIV:
  case IR_FMOD: at = flt ? 3 : 10; break;
  case IR_MIN:
  case IR_MAX: at = flt ? 4 : 11; break;
  case IR_AND:
  case IR_OR:
  case IR_NOT: at = 14; break;
  case IR_SELECT: at = 15; break;
  case IR_CALL: at = (flt ? 5 : 12) + (intrin_info((Intrin)n.sym)->effect == EFF_PURE ? 0 : 1); break;
  default:
    if (ir_is_compare(n.kind)) at = flt ? 4 : 11;
  }
  if (at >= 0) cnt[at] += n.type.lanes > 1 ? n.type.lanes : 1;
  for (int i = 0; i < n.n; i++) count_ops(c, ir_kid(c, e, i), cnt);
}

/* ---- touch books ---- */
static void book_add(Ext *x, Loop *l, BufferId buf, double size, int bytes) {
  vec_push(x->arena, &x->pairs, ((Pair){.next = -1, .buf = buf, .size = size, .bytes = bytes}));
  int32_t id = x->pairs.len - 1;
  if (l->first < 0)
    l->first = id;
  else
    x->pairs.at[l->last].next = id;
  l->last = id;
}

/* O8: on-chip tiles are no larger than what is allocated. */
static double capped(Ext *x, const Access *a, const double *dims) {
  const IrBuffer *b = ir_buffer(x->c, a->buf);
  bool chip = !b->external && (b->scope == SC_SHARED || b->scope == SC_LOCAL);
  double size = 1;
  for (int d = 0; d < a->rank; d++) {
    int64_t cap;
    bool cut = chip && ex_const_int(x->c, b->extent[d], &cap) && dims[d] > (double)cap;
    size *= cut ? (double)cap : dims[d];
  }
  return size > 0 ? size : 0;
}

/* Region sizes of every access under every loop, innermost first; fills the books. mem[l]: bytes touched under loop l. A loop
 * that an access does not depend on leaves its region as it is.
 */
static void touch(Ext *x, int n_acc, const Access *acc, double *mem) {
  for (int i = 0; i < x->n_loops; i++) ranges_set(&x->ranges, x->loop[i].var, x->loop[i].min, x->loop[i].min);
  for (int i = x->n_loops - 1; i >= 0; i--) {
    Loop *l = &x->loop[i];
    ranges_set(&x->ranges, l->var, l->min, l->min + l->extent - 1);
    mem[i] = 0;
    for (int a = 0; a < n_acc; a++) {
      double *dims = x->dims[a], r = 1;
      AccDims changed = i == x->n_loops - 1 ? ACC_ALL_DIMS : x->uses[a][i];
      if (changed) {
        access_region(&x->ranges, &acc[a], changed, dims);
        for (int d = 0; d < acc[a].rank; d++) r *= dims[d];
        if (x->rules == FEAT_RULES_REPAIRED) r = capped(x, &acc[a], dims);
        x->region[a] = r > 0 ? r : 0;
      }
      r = x->region[a];
      mem[i] += r * acc[a].bytes;
      book_add(x, l, acc[a].buf, r, acc[a].bytes);
    }
  }
}

/* Bytes of all regions of a book, or of an element of each. */
static double book_bytes(const Ext *x, const Loop *l, bool whole) {
  double sum = 0;
  for (int32_t p = l->first; p >= 0; p = x->pairs.at[p].next)
    sum += (whole ? x->pairs.at[p].size : 1) * x->pairs.at[p].bytes;
  return sum;
}

typedef struct {
  int type;
  double iter, bytes, count;
} Reuse;

static Reuse reuse_of(Ext *x, const Access *a, const AccDims *uses) {
  double dist = 1, bytes = -1;
  for (int i = x->n_loops - 1; i >= 0; i--) {
    Loop *l = &x->loop[i];
    double ext = (double)l->extent;
    if (!uses[i]) {
      if (bytes < 0) bytes = book_bytes(x, l, false);
      return (Reuse){REUSE_LOOP, dist, bytes, ext};
    }
    dist *= ext;
    bytes = book_bytes(x, l, true);
    int n = -1;
    double near = INFINITY;
    for (int32_t p = l->first; p >= 0; p = x->pairs.at[p].next)
      if (x->pairs.at[p].buf == a->buf) {
        n++;
        if (x->pairs.at[p].size < near) near = x->pairs.at[p].size;
      }
    if (n > 0) return (Reuse){REUSE_SERIAL, near / ext, bytes / ext, n};
  }
  return (Reuse){REUSE_NONE, 0, 0, 0};
}

/* ---- one buffer slot: 18 numbers ---- */
typedef struct {
  const Access *a;
  int index;
  double v[FEAT_SLOT_N];
} Slot;

static double lines_of(Ext *x, const Access *a, const AccDims *uses, double p, double *stride) {
  double rho = 1, s = 0;
  int inner = x->n_loops - 1;
  for (int i = inner; i >= 0; i--) {
    s = uses[i] || a->rank == 0 ? (double)access_step(x->c, a, x->loop[i].var) : 0;
    if (i == inner) *stride = s;
    if (s != 0) break;
    rho *= (double)x->loop[x->rules == FEAT_RULES_REFERENCE ? inner : i].extent; /* O3 */
  }
  return fmax(1, p / rho * fmin(1, s * a->bytes / x->line));
}

/* Length in bytes of the contiguous run that a region of an access covers. O4: the reference takes the region of the
 * buffer that its hash table lists last, as a rule the stored one; its n dimensions need not be those of the access. */
static double run_of(const Ext *x, const Access *a, int n, const double *dims) {
  double q = a->bytes;
  for (int d = (a->rank < n ? a->rank : n) - 1; d >= 0; d--) {
    bool full = dims[d] == (double)a->full[d];
    if (x->rules == FEAT_RULES_REFERENCE) { /* O4 */
      if (!full) continue;
      q *= dims[d];
      break;
    }
    q *= dims[d];
    if (!full) break;
  }
  return q;
}

static double first_in_book(const Ext *x, const Loop *l, BufferId b, double missing) {
  for (int32_t p = l->first; p >= 0; p = x->pairs.at[p].next)
    if (x->pairs.at[p].buf == b) return x->pairs.at[p].size;
  return missing;
}

static void fill_slot(Ext *x, Slot *s, double p, const Access *acc) {
  const Access *a = s->a;
  double *v = s->v, unique = a->bytes, lines = 1, ulines = 1, stride = 0;
  v[a->type] = 1;
  if (x->n_loops > 0) {
    bool ref = x->rules == FEAT_RULES_REFERENCE;
    double region = x->region[s->index];
    unique = a->bytes * (ref ? first_in_book(x, &x->loop[0], a->buf, region) : region); /* O5 */
    lines = lines_of(x, a, x->uses[s->index], p, &stride);
    int of = ref ? 0 : s->index;
    ulines = fmax(1, unique / fmin(run_of(x, a, acc[of].rank, x->dims[of]), x->line));
  }
  Reuse r = reuse_of(x, a, x->uses[s->index]);
  double part = r.count > 0.5 ? 1 / r.count : 2;
  v[3] = p * a->bytes, v[4] = unique, v[5] = lines, v[6] = ulines;
  v[7 + r.type] = 1;
  v[10] = r.iter, v[11] = r.bytes, v[12] = r.count;
  for (int i = 0; i < 4; i++) v[13 + i] = v[3 + i] * part;
  v[17] = stride;
}

static bool slot_before(Ext *x, const Slot *a, const Slot *b) {
  if (a->v[5] != b->v[5]) return a->v[5] > b->v[5];
  if (a->v[3] != b->v[3]) return a->v[3] > b->v[3];
  return strcmp(ir_buffer(x->c, a->a->buf)->name, ir_buffer(x->c, b->a->buf)->name) < 0;
}

static void fill_slots(Ext *x, int n, const Access *acc, double p, double *v) {
  Slot slot[MAX_ACCESS];
  memset(slot, 0, sizeof slot[0] * (size_t)n);
  for (int i = 0; i < n; i++) {
    slot[i].a = &acc[i], slot[i].index = i;
    fill_slot(x, &slot[i], p, acc);
  }
  memset(v, 0, sizeof *v * FEAT_SLOTS * FEAT_SLOT_N);
  for (int k = 0; k < FEAT_SLOTS && k < n; k++) {
    int best = k;
    for (int i = k + 1; i < n; i++)
      if (slot_before(x, &slot[i], &slot[best])) best = i;
    Slot t = slot[k];
    slot[k] = slot[best], slot[best] = t;
    memcpy(v + FEAT_SLOT_N * k, slot[k].v, sizeof slot[k].v);
  }
}

/* ---- group 3: arithmetic intensity ---- */
static void curve(const Ext *x, double flops, const double *mem, double *out) {
  int n = x->n_loops;
  double ops[MAX_LOOPS], y[MAX_LOOPS], total = flops;
  for (int i = 0; i < 10; i++) out[i] = 0;
  if (n == 0 || flops == 0) return;
  for (int t = 0; t < n; t++) {
    const Loop *l = &x->loop[n - 1 - t];
    total *= (double)l->extent;
    ops[t] = total;
    y[t] = mem[n - 1 - t] > 0 ? total / mem[n - 1 - t] : 0;
  }
  for (int i = 0, t = 0; i < 10; i++) {
    double at = ops[n - 1] * (i + 1) / 10;
    while (t < n - 1 && ops[t] < at - 1e-4) t++;
    out[i] = t == 0 ? y[0] : y[t - 1] + (at - ops[t - 1]) / (ops[t] - ops[t - 1]) * (y[t] - y[t - 1]);
  }
}

/* ---- annotated loops and thread extents ---- */
static void annotated(const Ext *x, ForKind kind, double *v) {
  double num = 0, prod = 1, len = 0, old_prod = v[1];
  for (int i = 0; i < x->n_loops; i++)
    if (x->loop[i].kind == kind) num++, prod *= (double)x->loop[i].extent, len = (double)x->loop[i].extent;
  memset(v, 0, 11 * sizeof *v);
  v[0] = num;
  v[1] = num > 0 ? prod : x->rules == FEAT_RULES_REFERENCE ? old_prod : 0; /* O2 */
  v[2] = len;
  v[num > 0 ? 10 : 3] = 1;
}

static void thread_extents(const Ext *x, double *v) {
  v[49] = x->gpu;
  for (int i = 50; i <= 56; i++) v[i] = 1;
  for (int i = 0; i < x->n_loops; i++) {
    ForKind k = x->loop[i].kind; /* blocks and threads in x, y, z follow each other */
    if (for_is_block(k) || for_is_thread(k)) v[50 + k - FOR_BLOCK_X] = (double)x->loop[i].extent;
    if (k == FOR_VTHREAD) v[56] *= (double)x->loop[i].extent;
  }
}

/* Number of executions of the store. Repaired rules (O7): in a nested binding of one tag only the inner scope
 * multiplies, and threads that a store into shared memory does not index do not multiply. */
static double executions(const Ext *x, const Access *store) {
  double p = 1;
  for (int i = 0; i < x->n_loops; i++) {
    const Loop *l = &x->loop[i];
    if (x->rules == FEAT_RULES_REPAIRED && (for_is_thread(l->kind) || l->kind == FOR_VTHREAD)) {
      bool again = false;
      for (int j = i + 1; j < x->n_loops && for_is_thread(l->kind); j++) again |= x->loop[j].kind == l->kind;
      if (again) continue;
      if (ir_buffer(x->c, store->buf)->scope == SC_SHARED && !x->uses[0][i]) continue; /* the store is access 0 */
    }
    p *= (double)l->extent;
  }
  return p;
}

static Row *row_for(Ext *x, BufferId b) {
  int at = mapu_get(&x->row_of, (uint64_t)b, -1);
  if (at >= 0) return x->rows.at[at];
  Row *r = arena_new_of(x->arena, Row);
  r->buf = b, r->raw[19] = r->raw[30] = r->raw[41] = 1; /* no annotated loops, should no store follow */
  vec_note(x->arena, &x->rows, r, &x->row_of, b);
  return r;
}

/* O9: the reference keys the touch book of a thread scope by the address of a node that it frees with the scope. Its
 * memory comes from a list of free pieces, the newest first, so that a later scope finds the book of an earlier one. The
 * record of one access happens to be as long as such a node: a list of accesses takes a piece while it has one element,
 * and a row keeps one until a store with more accesses follows. */
static Block block_take(Ext *x) { return x->free.len > 0 ? x->free.at[--x->free.len] : (Block){-1, -1}; }
static void block_give(Ext *x, Block b) { vec_push(x->arena, &x->free, b); }

static void pass_blocks(Ext *x, Row *r, int n_acc) {
  Block list = block_take(x);
  if (n_acc > 1) block_give(x, list);
  if (n_acc > r->n_acc) {
    if (n_acc == 1) r->own = block_take(x);
    if (r->n_acc == 1) block_give(x, r->own);
    r->n_acc = n_acc;
  }
  if (n_acc == 1) block_give(x, list);
}

static void on_store(Ext *x, const Stmt *s) {
  if (x->rules == FEAT_RULES_REPAIRED) { /* O1: a store of a literal makes no row */
    ExprKind k = ir_kind(x->c, s->u.store.value);
    if (k == IR_INT || k == IR_FLT) return;
  }
  Access acc[MAX_ACCESS];
  VarId var[MAX_LOOPS];
  int n = access_gather(x->c, s, acc, MAX_ACCESS);
  for (int i = 0; i < x->n_loops; i++) var[i] = x->loop[i].var;
  for (int a = 0; a < n; a++) access_vars(x->c, &acc[a], x->n_loops, var, x->uses[a]);
  double mem[MAX_LOOPS], cnt[16] = {0}, p = executions(x, &acc[0]), flops = 0;
  touch(x, n, acc, mem);
  Row *r = row_for(x, s->u.store.buf);
  double *v = r->raw;
  count_ops(x->c, s->u.store.value, cnt);
  for (int i = 0; i < 7; i++) flops += cnt[i];
  for (int i = 0; i < 16; i++) {
    r->count[i] = (x->rules == FEAT_RULES_REFERENCE ? r->count[i] : 0) + cnt[i] * p; /* O1 */
    v[i] = r->count[i];
  }
  annotated(x, FOR_VECTOR, v + 16);
  annotated(x, FOR_UNROLLED, v + 27);
  annotated(x, FOR_PARALLEL, v + 38);
  thread_extents(x, v);
  fill_slots(x, n, acc, p, v + 57);
  curve(x, flops, mem, v + 147);
  v[161] = p, v[162] = x->n_loops, v[163] = x->unroll;
  if (x->rules == FEAT_RULES_REFERENCE) pass_blocks(x, r, n);
}

/* ---- the walk ---- */
static void walk(Ext *x, const Stmt *s);

static void walk_loop(Ext *x, const Stmt *s) {
  err_check(ir_err(x->c), x->n_loops < MAX_LOOPS, "features: more than %d nested loops", MAX_LOOPS);
  int64_t ext = 1, min = 0;
  ex_const_int(x->c, s->u.loop.extent, &ext);
  if (s->u.loop.min) ex_const_int(x->c, s->u.loop.min, &min);
  ForKind k = s->u.loop.kind;
  x->gpu |= for_is_block(k) || for_is_thread(k) || k == FOR_VTHREAD;
  bool scope = x->rules == FEAT_RULES_REFERENCE && (for_is_block(k) || for_is_thread(k) || k == FOR_VTHREAD);
  Block book = scope ? block_take(x) : (Block){-1, -1}; /* O9 */
  x->loop[x->n_loops++] = (Loop){s->u.loop.var, ext, min, k, book.first, book.last};
  walk(x, s->u.loop.body);
  const Loop *l = &x->loop[--x->n_loops];
  if (scope) block_give(x, (Block){l->first, l->last});
}

/* An allocation's numbers are set when its scope closes: the stores inside are known then. */
static void close_alloc(Ext *x, BufferId b) {
  if (x->rules == FEAT_RULES_REPAIRED && mapu_get(&x->row_of, (uint64_t)b, -1) < 0) return; /* nothing was stored */
  double *v = row_for(x, b)->raw, out = 1, elems = 1;
  const IrBuffer *buf = ir_buffer(x->c, b);
  for (int i = 0; i < x->n_loops; i++) out *= (double)x->loop[i].extent;
  for (int d = 0; d < buf->rank; d++) {
    int64_t e = 1;
    ex_const_int(x->c, buf->extent[d], &e);
    elems *= (double)e;
  }
  const Loop *in = x->n_loops ? &x->loop[x->n_loops - 1] : NULL; /* the reference knows no double buffers */
  if (buf->double_buffer && in && in->kind == FOR_SERIAL && in->extent > 1 && x->rules == FEAT_RULES_REPAIRED)
    elems *= 2;
  v[157] = elems * access_bytes(buf->type), v[158] = elems * out, v[159] = out, v[160] = v[161] / out;
}

static void walk(Ext *x, const Stmt *s) {
  Stmt **kid;
  int unroll = x->unroll;
  if (s->kind == ST_FOR) return walk_loop(x, s);
  if (s->kind == ST_STORE) on_store(x, s);
  if (s->kind == ST_ATTR && s->u.attr.kind == AT_UNROLL_STEP) x->unroll = (int16_t)s->u.attr.value;
  for (int i = 0; (kid = st_kid(s, i)); i++)
    if (*kid) walk(x, *kid);
  x->unroll = unroll;
  if (s->kind == ST_ALLOC) close_alloc(x, s->u.alloc.buf);
}

static double slog(double v) { return v >= 0 ? log2(v + 1) : -log2(1 - v); }
static float slog_single(float v) { return v >= 0 ? log2f(v + 1) : -log2f(1 - v); } /* as the reference rounds */

/* Entries that are flags: never passed through slog. */
static bool is_flag(int i) {
  if ((i >= 19 && i <= 26) || (i >= 30 && i <= 37) || (i >= 41 && i <= 49)) return true;
  if (i < 57 || i >= 147) return false;
  int o = (i - 57) % FEAT_SLOT_N;
  return o <= 2 || (o >= 7 && o <= 9);
}

Features feat_extract(const Func *loops, FeatRules rules, bool log) {
  IrCtx *c = loops->ctx;
  Ext *x = arena_new_of(ir_arena(c), Ext);
  x->c = c, x->rules = rules, x->arena = ir_arena(c);
  x->line = loops->target.hw.cache_line_bytes > 0 ? (int)loops->target.hw.cache_line_bytes : 64;
  mapu_init(&x->row_of, x->arena);
  ranges_init(&x->ranges, c);
  walk(x, loops->body);
  Features f = {.n_rows = x->rows.len};
  int n = f.n_rows ? f.n_rows : 1;
  f.row = arena_alloc(x->arena, sizeof *f.row * (size_t)n);
  f.name = arena_array(x->arena, const char *, n);
  for (int r = 0; r < f.n_rows; r++) {
    f.name[r] = ir_buffer(c, x->rows.at[r]->buf)->name;
    for (int i = 0; i < FEAT_N; i++) {
      double v = x->rows.at[r]->raw[i];
      if (v == 0) continue; /* two thirds of them; 0 it stays */
      bool plain = !log || is_flag(i);
      f.row[r][i] = plain ? (float)v : rules == FEAT_RULES_REFERENCE ? slog_single((float)v) : (float)slog(v);
    }
  }
  return f;
}

Features feat_of_state(State *s, const Target *t, FeatRules rules, bool log, bool check) {
  LowUse use = rules == FEAT_RULES_REPAIRED && !check ? LOW_ROWS : LOW_FEATURES;
  Func f = low_loops(s, t, s->dag0->n_tensors, s->dag0->tensor, use);
  if (check && t->kind != TG_CPU && !low_gpu_check(f).ok) return (Features){0};
  low_run(&f, pass_simplify);
  return feat_extract(&f, rules, log);
}
