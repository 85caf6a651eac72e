/* Products of matrices on tensor cores, or by lanes: the step, and what it says of a computation (spec 07 §7.8.2, items 4 to 6).
 *
 * Dense layers, batched products in every transposition and convolutions are sums of products of two factors. Each axis of
 * the result occurs in one factor (then it is part of the rows m or of the columns n) or in both (a batch; or groups of channels,
 * matrix_groups.c); each axis of the sum occurs in both. So the computation is a product of matrices whose elements are found by index arithmetic: a
 * convolution is one whose A has a row per pixel and a column per tap and channel (im2col), and padding is a condition on
 * its elements. Nothing is rewritten: lowering (lower/matrix.c) makes the whole kernel from this view and from the numbers
 * of the step, which is why one step is all that a candidate needs. The stage behind the sum may do what it likes with the
 * one element of the sum that it reads: biases, activations and residuals are part of the kernel.
 *
 * Factors are 16-bit floats, float32 or integers of 8 bits, each signed or not, which are cast to the type of the sum: float32, or int32,
 * in which sums are exact. With no term (by lanes) the same kernel has float32 multiplied and added by the threads themselves, strictly.
 */
#include <string.h>
#include "schedule/internal.h"

/* ---- the step ---- */

enum { MAX_BLOCK = 256, MAX_STAGES = 8, MAX_ACCUMULATORS = 128, MAX_WARPS = 32, MAX_SPLIT = 64 };
enum {
  MAX_HELD = 208
}; /* registers of sums, of two sets of fragments and of slices on their way: one set if these do not fit */
enum { MAX_SIZE = INT32_MAX - 4 * MAX_BLOCK * MAX_SPLIT }; /* so that places behind the last tile fit 32 bits */

MatrixTile matrix_tile(int n, const int64_t *x) {
  MatrixTile t = {.number = {[MATRIX_TERMS] = 1, [MATRIX_TEAMS] = 1}};
  for (int i = 0; i < n; i++) t.number[i] = (int32_t)x[i];
  return t;
}

int matrix_numbers(const MatrixTile *t, int64_t *x) {
  for (int i = 0; i < MATRIX_FIELDS; i++) x[i] = t->number[i];
  return t->last         ? MATRIX_FIELDS
         : t->teams != 1 ? MATRIX_LAST
         : t->wide       ? MATRIX_TEAMS
         : t->warpgroups ? MATRIX_WIDE
         : t->terms != 1 ? MATRIX_WARPGROUPS
                         : MATRIX_TERMS;
}

bool matrix_lanes(const MatrixTile *t) { return t->terms == 0; }
bool matrix_half_sums(const MatrixTile *t) { return t->terms == MATRIX_HALF_SUMS; }
int matrix_team(const MatrixTile *t) { return t->warpgroups ? GPU_WARPGROUP : GPU_WARP; }
int matrix_threads(const MatrixTile *t) {
  return matrix_team(t) * (t->block_m / t->warp_m) * (t->block_n / t->warp_n) * t->teams;
}
int matrix_ahead(const MatrixTile *t) { return t->stages - (t->warpgroups > 1 ? 2 : 1); }

/* ---- what the machine has ---- */

static bool has(const Target *t, GpuFeature f) { return t->kind == TG_CUDA && gpu_has(&t->gpu, f); }
bool matrix_by_lanes(const Target *t) { return has(t, GPU_LANES); }
bool matrix_groups(const Target *t, DType type) { return has(t, GPU_WARPGROUPS) && dtype_is_float(type); }

/* The product whose left factor is of that type; MMA_COUNT: none. What the right one is, and the sums, is a matter of no machine. */
static MmaType product_of(DType type) {
  int i = 0;
  while (i < MMA_COUNT && !dtype_eq(mma_info((MmaType)i)->a, type)) i++;
  return (MmaType)i;
}
int matrix_cores_since(DType type) { return product_of(type) < MMA_COUNT ? mma_since(product_of(type)) : 0; }
bool matrix_on_cores(const Target *t, DType type) {
  return t->kind == TG_CUDA && product_of(type) < MMA_COUNT && mma_form(product_of(type), &t->gpu);
}

int matrix_staged(const MatrixTile *t, DType type, const Target *target) {
  if (has(target, GPU_COPY_ASYNC)) return 0;
  int words = t->block_k * dtype_bytes(type) / 4, threads = matrix_threads(t);
  return (int)(i64_ceildiv(t->block_m * words, threads) + i64_ceildiv(t->block_n * words, threads));
}

/* ---- tiles ---- */

/* Their tiles lie in shared memory as the instruction finds them: lines of 32, 64 or 128 bytes, or pieces of 128 side by side, which
 * change places in groups that begin at multiples of 1,024 bytes. */
enum { WIDEST_LINE = 128, SWIZZLED = 1024 };
static const char *group_fault(const MatrixTile *t, DType type) {
  int line = t->block_k * dtype_bytes(type);
  if (t->warpgroups < 0 || t->warpgroups > 2) return "a warpgroup multiplies 1 or 2 slices at a time";
  if (t->warp_m % 64 || t->warp_n % 8) return "a warpgroup's tile is a multiple of 64 x 8";
  if (line != 32 && line != 64 && line % WIDEST_LINE)
    return "a warpgroup's slice of the sum has 32, 64 or a multiple of 128 bytes";
  if (t->block_n * (line < WIDEST_LINE ? line : WIDEST_LINE) % SWIZZLED)
    return "a warpgroup's slice has a multiple of 1024 bytes of columns";
  if (t->terms != 1 && (t->terms != 3 || !dtype_eq(type, DT_F32)))
    return "a warpgroup's product of float32 is one of TF32 or the sum of 3, and its sums are float32";
  if (t->terms == 3 && (t->warpgroups > 1 || t->block_k > MATRIX_DEEP))
    return "a warpgroup's product in three terms is of one slice at a time, of 64 along k at most";
  if (t->terms == 3 && t->warp_m * t->warp_n / GPU_WARPGROUP > MAX_ACCUMULATORS / 2)
    return "a thread keeps at most 64 sums of three terms";
  if (t->terms == 3 && t->stages < 3) return "a warpgroup's product in three terms has three stages or more";
  if (t->stages <= t->warpgroups) return "warpgroups need more stages than slices that they multiply at a time";
  return NULL;
}

const char *matrix_tile_fault(const MatrixTile *t, DType type) {
  int step = 32 / dtype_bytes(type); /* of k, by one instruction */
  if (t->block_m < 1 || t->block_n < 1 || t->block_k < 1 || t->warp_m < 1 || t->warp_n < 1)
    return "its sizes are positive numbers";
  if (t->block_m > MAX_BLOCK || t->block_n > MAX_BLOCK || t->block_k > MAX_BLOCK)
    return "no side of a block is longer than 256";
  if (!matrix_lanes(t) && (t->warp_m % 16 || t->warp_n % 8)) return "a warp's tile is a multiple of 16 x 8";
  if (t->warp_m % 8 || t->warp_n % 8) return "a warp's tile is a multiple of 8 x 8";
  if (t->block_m % t->warp_m || t->block_n % t->warp_n) return "the block's tile is a multiple of the warp's";
  if (t->block_k % step)
    return step == 8    ? "its slice of the sum is a multiple of 8"
           : step == 16 ? "its slice of the sum is a multiple of 16"
                        : "its slice of the sum is a multiple of 32";
  if (t->warp_m * t->warp_n / matrix_team(t) > MAX_ACCUMULATORS) return "a thread keeps at most 128 sums";
  if (matrix_threads(t) > MAX_WARPS * GPU_WARP) return "a block has at most 32 warps";
  if (t->split < 1 || t->split > MAX_SPLIT) return "1 to 64 blocks share a sum";
  if (t->terms != 1 && !(matrix_half_sums(t) ? dtype_eq(type, DT_F16) : (t->terms == 0 || t->terms == 3) && step == 8))
    return "a product of float32 is one of TF32, the sum of 3 or, with 0, its own; sums of float16 alone are, with 2, "
           "float16";
  if (t->stages < 2 || t->stages > MAX_STAGES) return "it has 2 to 8 stages";
  if (t->wide < 0 || t->wide > 1) return "its stores are wide (1) or not (0)";
  if (matrix_lanes(t) && (t->wide || t->warpgroups))
    return "lanes that multiply by themselves have neither wide stores nor warpgroups";
  if (t->teams < 1) return "one team or more share a tile";
  if (t->teams > 1 && !matrix_lanes(t)) return "only lanes that multiply by themselves share a tile along k";
  if (t->block_k % (LANE_STEP * t->teams)) return "each team has a multiple of 4 of the slice";
  if (t->wide && t->split > 1) return "wide stores are for sums that one block adds up: no split";
  if (t->last < 0 || t->last > 1) return "the last block adds up (1) or not (0)";
  if (t->last && t->split == 1) return "a last block is one of several that share a sum: it needs a split";
  return t->warpgroups ? group_fault(t, type) : NULL;
}

bool matrix_clustered(const MatrixTile *t, const Target *target) {
  return t->split > 1 && !t->last && t->split <= GPU_CLUSTER && has(target, GPU_CLUSTERS);
}

/* Each block adds up every so manieth group of neighbours, of which a thread has at most LANE_STEP. */
int64_t matrix_cluster_sums(const MatrixTile *t) {
  int keeps = matrix_lanes(t) && matrix_lane_columns(t) % LANE_STEP == 0 ? LANE_STEP : 2,
      groups = t->warp_m * t->warp_n / matrix_team(t) / keeps;
  return i64_ceildiv(groups, t->split) * keeps * t->split * matrix_threads(t);
}

/* Sums on their way come where slices of their type were; but others send theirs before a block is done with its slices. */
enum { ARRIVALS = 8 }; /* bytes of the barrier that counts them */
/* Three slices' arrays at most: A's, B's, and what is left of B. */
static int slices_bytes(const MatrixTile *t, DType type, int64_t *slices) {
  int64_t line = (int64_t)t->block_k * dtype_bytes(type);
  slices[0] = t->stages * line * t->block_m, slices[1] = t->stages * line * t->block_n;
  if (!t->warpgroups || t->terms != 3) return 2;
  slices[2] = 2 * line * t->block_n;
  return 3;
}
static int64_t cluster_bytes(const MatrixTile *t, const Target *target) {
  return matrix_clustered(t, target) ? matrix_cluster_sums(t) * dtype_bytes(DT_F32) + ARRIVALS : 0;
}
bool matrix_late(const MatrixTile *t, DType type, const Target *target) {
  int64_t slices[3], all = cluster_bytes(t, target);
  if (!all || !dtype_eq(type, DT_F32)) return false; /* others' arrays do not take the place of slices */
  for (int i = slices_bytes(t, type, slices); i-- > 0;) all += slices[i];
  return all > gpu_matrix_limits(target).max_shared_memory_per_block;
}

int64_t matrix_shared_bytes(const MatrixTile *t, DType type, const Target *target) {
  int64_t slices[3], all = 0;
  int n = slices_bytes(t, type, slices);
  for (int i = 0; i < n; i++) all += slices[i];
  bool clustered = matrix_clustered(t, target), late = matrix_late(t, type, target);
  if (clustered && !late) return all + cluster_bytes(t, target);
  int64_t sums = clustered      ? matrix_cluster_sums(t)
                 : t->teams > 1 ? (int64_t)t->block_m * t->block_n * t->teams
                 : t->wide      ? (int64_t)matrix_threads(t) / GPU_WARP * matrix_wide_room(t)
                                : 0;
  sums *= dtype_bytes(DT_F32);
  int there = dtype_eq(type, DT_F32) ? memory_reused(n, slices, sums) : -1;
  all += there < 0 ? sums : sums > slices[there] ? sums - slices[there] : 0;
  return all + (late ? ARRIVALS : 0);
}

/* A warp's results on their way: lanes hold pairs of an 8x8 tile's columns, which they leave without conflicts where eight rows
 * begin in different banks. Lines of 128 bytes at most, of 64 for 16 rows: beside four stages of the largest tiles there is room for no more. */
enum { WIDE_ROWS = 16, WIDE_COLUMNS = 32, OCTET = 8 };
int matrix_wide_columns(const MatrixTile *t) {
  int n = t->warp_n < WIDE_COLUMNS ? t->warp_n : WIDE_COLUMNS;
  while (t->warp_n % n) n -= OCTET;
  return n;
}
int matrix_wide_pitch(const MatrixTile *t, bool by_columns) {
  int n = matrix_wide_columns(t);
  return by_columns ? WIDE_ROWS + OCTET / 2 : n % (2 * OCTET) ? n : n + OCTET;
}
int matrix_wide_room(const MatrixTile *t) {
  int by_rows = WIDE_ROWS * matrix_wide_pitch(t, false),
      by_columns = matrix_wide_columns(t) * matrix_wide_pitch(t, true);
  return by_rows > by_columns ? by_rows : by_columns;
}

int matrix_lane_rows(const MatrixTile *t) { return t->warp_m / 8; }
int matrix_lane_columns(const MatrixTile *t) { return t->warp_n / 4; }

/* Registers of a fragment's sums: pairs in float16; of three terms large ones of a slice, small ones, and those of all slices. */
int matrix_sums(const MatrixTile *t) {
  int kept = t->terms != 3 ? 1 : t->warpgroups ? 2 : 3;
  return MMA_SUMS * kept / (matrix_half_sums(t) ? 2 : 1);
}

int matrix_sets(const MatrixTile *t, DType type, const Target *target) {
  if (t->warpgroups) return 0;
  if (matrix_lanes(t)) return 1;
  int mi = t->warp_m / 16, ni = t->warp_n / 8, steps = t->block_k / (32 / dtype_bytes(type));
  int held = mi * ni * matrix_sums(t) + 2 * (mi * 4 + ni * 2) + matrix_staged(t, type, target);
  return steps % 2 == 0 && held <= MAX_HELD ? 2 : 1;
}

int matrix_registers(const MatrixTile *t, DType type, const Target *target) {
  int mi = t->warp_m / 16, ni = t->warp_n / 8, more = GPU_MATRIX_ADDRESSES + matrix_staged(t, type, target);
  if (matrix_lanes(t)) {
    int rows = matrix_lane_rows(t), columns = matrix_lane_columns(t);
    return rows * columns + LANE_STEP * (rows + columns) + more;
  }
  if (t->warpgroups && t->terms == 3) /* fragments of A and their parts, and B's words (lower/matrix_three.c) */
    more += 3 * 4 * (t->warp_m / 64) * (t->block_k / 8) +
            2 * (int)i64_ceildiv((int64_t)t->block_n * t->block_k, matrix_threads(t));
  return mi * ni * matrix_sums(t) * GPU_WARP / matrix_team(t) + matrix_sets(t, type, target) * (mi * 4 + ni * 2) + more;
}

void do_mm(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, true);
  err_check(S_ERR(s), p->n >= MATRIX_TERMS && p->n <= MATRIX_FIELDS, "MM has %d to %d numbers, not %d", MATRIX_TERMS,
            MATRIX_FIELDS, p->n);
  st->matrix = NULL;
  if (p->list[0] == SIZE_OPEN) { /* a sketch */
    s->concrete = false;
    return;
  }
  for (int i = 0; i < p->n; i++)
    err_check(S_ERR(s), p->list[i] >= 0 && p->list[i] <= MAX_BLOCK, "MM: %lld is not between 0 and %d",
              (long long)p->list[i], MAX_BLOCK);
  MatrixTile t = matrix_tile(p->n, p->list);
  const char *fault = matrix_tile_fault(&t, DT_F32); /* the weaker demand; lowering knows the type of the factors */
  if (fault && t.terms != 3 && (t.warpgroups || matrix_half_sums(&t))) fault = matrix_tile_fault(&t, DT_F16);
  err_check(S_ERR(s), !fault, "stage %d (%s) on tensor cores: %s", p->stage, st->op->name, fault);
  st->matrix = arena_copy(ir_arena(s->ctx), &t, sizeof t);
}

/* ---- the view ---- */

typedef struct {
  State *s;
  ExprId *const *body;
  int stage;
  const TeOp *root, *sum;
  MatrixView *v;
  const char *why;
} Look;

static bool refuse(Look *l, const char *why) {
  if (!l->why) l->why = why;
  return false;
}

static ExprId body_of(const Look *l, int stage) {
  return l->body && l->body[stage] ? l->body[stage][0] : l->s->stage.at[stage].op->body[0];
}

typedef struct {
  TensorId t;
  ExprId first; /* a read of t; -1: reads at different places */
} Finder;
static void find_reads(IrCtx *c, ExprId e, void *arg) {
  Finder *f = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_READ && n->sym == f->t) f->first = !f->first || f->first == e ? e : -1;
}

/* The stage of the sum: the root itself, or the only stage that is computed at its last loop. */
static bool find_sum(Look *l, int stage) {
  State *s = l->s;
  const Stage *st = &s->stage.at[stage];
  if (st->op->n_out != 1) return refuse(l, "it has several results");
  for (int i = 0; i < st->rels.len; i++) /* others are of bound inference */
    if (st->rels.at[i].kind == REL_SPLIT || st->rels.at[i].kind == REL_FUSE)
      return refuse(l, "its loops are split or fused; the tiles of the step are all it needs");
  l->v->sum_stage = stage;
  l->v->sum = 0;
  int below = 0;
  for (int i = 0; i < s->stage.len; i++) {
    const Stage *p = &s->stage.at[i];
    if (p->op->kind != TE_COMPUTE || p->at != AT_ITER || p->at_stage != stage) continue;
    l->v->sum_stage = i;
    below++;
  }
  if (ir_kind(s->ctx, body_of(l, stage)) == IR_REDUCE)
    return below ? refuse(l, "another stage is computed inside it") : true;
  if (below != 1) return refuse(l, "no sum, or more than one, is computed inside it");
  const Stage *sum = &s->stage.at[l->v->sum_stage];
  if (attach_any(s, l->v->sum_stage, -1)) return refuse(l, "another stage is computed inside its sum");
  if (sum->op->n_out != 1) return refuse(l, "its sum has several results");
  l->v->sum = sum->op->out[0];
  return true;
}

/* Replaces the axes of the sum by those of the root, at which the root reads it. */
static bool match_axes(Look *l, int stage, VarSub *sub) {
  IrCtx *c = l->s->ctx;
  Finder f = {l->v->sum, 0};
  ex_post_order(c, body_of(l, stage), find_reads, &f);
  if (f.first <= 0) return refuse(l, "it does not read its sum at one place");
  for (int i = 0; i < l->sum->n_axis; i++) {
    ExprId at = ir_kid(c, f.first, i);
    bool axis = false;
    for (int k = 0; k < l->root->n_axis; k++)
      axis |= at == ex_var(c, l->root->axis[k].var) && l->root->axis[k].extent == l->sum->axis[i].extent;
    if (!axis && !(ex_is_int(c, at, 0) && ex_is_int(c, l->sum->axis[i].extent, 1)))
      return refuse(l, "it reads its sum at another place than it stores to");
    for (int k = 0; k < i && axis; k++)
      if (sub[k].value == at) return refuse(l, "it reads a diagonal of its sum");
    sub[i] = (VarSub){l->sum->axis[i].var, at};
  }
  return true;
}

static bool is_float(DType t, int bits) {
  return t.lanes == 1 && t.bits == bits && (t.code == DT_FLOAT || (t.code == DT_BFLOAT && bits == 16));
}
static bool is_byte(DType t) { return t.lanes == 1 && t.bits == 8 && dtype_is_int(t); }
static bool loses_nothing(DType from, DType to) {
  return (is_float(from, 16) && is_float(to, 32)) || (is_byte(from) && dtype_eq(to, DT_I32));
}
static ExprId uncast(IrCtx *c, ExprId e) {
  while (ir_kind(c, e) == IR_CAST && loses_nothing(ir_type(c, ir_kid(c, e, 0)), ir_type(c, e))) e = ir_kid(c, e, 0);
  return e;
}

/* Does the root bring the sum to float16 wherever it reads it? */
typedef struct {
  TensorId sum;
  bool other;
} Uses;
static void find_uses(IrCtx *c, ExprId e, void *arg) {
  Uses *u = arg;
  if (ir_kind(c, e) == IR_CAST && dtype_eq(ir_type(c, e), DT_F16)) return;
  for (int i = 0; i < ir_node(c, e)->n; i++) {
    const ExprNode *k = ir_node(c, ir_kid(c, e, i));
    u->other |= k->kind == IR_READ && k->sym == u->sum;
  }
}
static bool halved(const Look *l) {
  Uses u = {l->v->sum, false};
  if (l->root == l->sum) return false;
  ex_post_order(l->s->ctx, body_of(l, l->stage), find_uses, &u);
  return !u.other && ir_kind(l->s->ctx, body_of(l, l->stage)) != IR_READ;
}

/* sum(x * y): the factors, without casts that lose nothing. */
static bool factors(Look *l, const IrReduce *r) {
  IrCtx *c = l->s->ctx;
  const IrReducer *op = ir_reducer(c, r->reducer);
  if (op->n != 1 || r->init || (r->cond && !ex_is_int(c, r->cond, 1)))
    return refuse(l, "its reduction is no plain sum");
  if (op->result[0] != ex_add(c, ex_var(c, op->lhs[0]), ex_var(c, op->rhs[0])))
    return refuse(l, "its reduction is no sum");
  ExprId e = uncast(c, r->src[0]);
  if (ir_kind(c, e) != IR_MUL) return refuse(l, "what it adds up is no product");
  DType sum = ir_type(c, r->src[0]);
  bool whole = dtype_eq(sum, DT_I32);
  if (whole && !dtype_eq(ir_type(c, e), DT_I32)) return refuse(l, "its products wrap before they are added up");
  if (!whole && !is_float(sum, 32) && !is_float(sum, 16))
    return refuse(l, "its sum is neither float32 nor a 16-bit float, nor int32");
  l->v->sums = whole ? DT_I32 : DT_F32, l->v->half = false;
  l->v->a = uncast(c, ir_kid(c, e, 0)), l->v->b = uncast(c, ir_kid(c, e, 1));
  DType a = ir_type(c, l->v->a), b = ir_type(c, l->v->b);
  if (whole)
    return is_byte(a) && is_byte(b) ? true : refuse(l, "its sum is int32, but its factors are no integers of 8 bits");
  l->v->half = dtype_eq(a, DT_F16) && dtype_eq(b, DT_F16) && (dtype_eq(sum, DT_F16) || halved(l));
  if (!dtype_eq(a, b)) l->v->a = ir_kid(c, e, 0), l->v->b = ir_kid(c, e, 1), a = ir_type(c, l->v->a);
  return is_float(a, 32) || is_float(a, 16) ? true : refuse(l, "its factors are no float32 and no 16-bit floats");
}

static bool add_axis(Look *l, MatrixIndex *x, VarId var, int64_t n) {
  if (x->n == MATRIX_DIMS) return refuse(l, "it has too many axes");
  if (!i64_mul(x->size, n, &x->size) || x->size > MAX_SIZE) return refuse(l, "it is too large");
  x->var[x->n] = var;
  x->extent[x->n++] = n;
  return true;
}
static bool count_of(Look *l, ExprId min, ExprId extent, int64_t *n) {
  bool counts = ex_is_int(l->s->ctx, min, 0) && ex_const_int(l->s->ctx, extent, n) && *n >= 1;
  return counts || refuse(l, "an axis does not count from 0 to a number");
}

static void turn(MatrixView *v) { /* the other factor gives the rows */
  MatrixIndex m = v->m;
  ExprId a = v->a;
  v->m = v->n, v->n = m;
  v->a = v->b, v->b = a;
}

/* An axis of the result is of the rows or the columns, or of a batch, or its groups are of one and their members of the other. */
static bool sort_axis(Look *l, const TeAxis *x, MatrixIndex only[2], int *last) {
  IrCtx *c = l->s->ctx;
  MatrixView *v = l->v;
  ChannelGroups g;
  int64_t n;
  bool a = ex_uses_var(c, v->a, x->var), b = ex_uses_var(c, v->b, x->var), one = ex_is_int(c, x->extent, 1);
  if (!a && !b && !one) return refuse(l, "an axis of the result is in neither factor");
  if (!count_of(l, x->min, x->extent, &n)) return false;
  if (a && b && !v->grouped.var && channel_groups(c, x, v, &g)) {
    *last = g.of_b;
    return add_axis(l, &v->batch, g.group, g.groups) && add_axis(l, &only[g.of_b], g.member, g.size);
  }
  if (a != b && !one) *last = b;
  return add_axis(l, a == b ? &v->batch : &only[b], x->var, n);
}

static bool sort_axes(Look *l, const IrReduce *r, const VarSub *sub) {
  IrCtx *c = l->s->ctx;
  MatrixView *v = l->v;
  MatrixIndex only[2] = {{.size = 1}, {.size = 1}};
  int last = 1; /* which factor the last axis of the result belongs to */
  int64_t n;
  v->batch = v->k = (MatrixIndex){.size = 1};
  v->grouped = (VarSub){0};
  for (int i = 0; i < l->root->n_axis; i++) {
    const TeAxis *x = &l->root->axis[i];
    bool known = ex_is_int(c, x->extent, 1) || l->root == l->sum;
    for (int k = 0; k < l->sum->n_axis && !known; k++) known = sub[k].value == ex_var(c, x->var);
    if (!known) return refuse(l, "it repeats its sum along an axis");
    if (!sort_axis(l, x, only, &last)) return false;
  }
  for (int i = 0; i < r->n_axis; i++) {
    bool both = ex_uses_var(c, v->a, r->axis[i].var) && ex_uses_var(c, v->b, r->axis[i].var);
    if (!both && !ex_is_int(c, r->axis[i].extent, 1)) return refuse(l, "an axis of the sum is in one factor alone");
    if (!count_of(l, r->axis[i].min, r->axis[i].extent, &n) || !add_axis(l, &v->k, r->axis[i].var, n)) return false;
  }
  v->m = only[0], v->n = only[1];
  if (last == 0) turn(v);
  return true;
}

static bool look(Look *l, int stage) {
  State *s = l->s;
  MatrixView *v = l->v;
  if (!find_sum(l, stage)) return false;
  l->root = s->stage.at[stage].op;
  l->sum = s->stage.at[v->sum_stage].op;
  VarSub *sub = arena_array(ir_arena(s->ctx), VarSub, l->sum->n_axis + 1);
  if (l->root != l->sum && !match_axes(l, stage, sub)) return false;
  ExprId e = body_of(l, v->sum_stage);
  if (ir_kind(s->ctx, e) != IR_REDUCE) return refuse(l, "what is computed inside it is no sum");
  IrReduce r = *ir_reduce(s->ctx, e);
  if (!factors(l, &r)) return false;
  if (l->root != l->sum) {
    v->a = ex_subst(s->ctx, v->a, l->sum->n_axis, sub);
    v->b = ex_subst(s->ctx, v->b, l->sum->n_axis, sub);
  }
  return sort_axes(l, &r, sub);
}

bool matrix_view(State *s, int stage, bool transposed, ExprId *const *body, MatrixView *v, const char **why) {
  Look l = {.s = s, .body = body, .stage = stage, .v = v};
  bool ok = look(&l, stage);
  if (ok && transposed) turn(v);
  if (ok) v->type = ir_type(s->ctx, v->a);
  *why = l.why;
  return ok;
}

const char *state_math(State *s) {
  /* by what products of float32 need, and whether others are added up in float16 */
  static const char *const NAME[][2] = {{"strict", "fp16_accumulation"},
                                        {"float32x3", "float32x3+fp16_accumulation"},
                                        {"tf32", "tf32+fp16_accumulation"}};
  int single = 0, halves = 0;
  for (int i = 0; i < s->stage.len; i++) {
    MatrixView v;
    const char *why;
    const MatrixTile *t = s->stage.at[i].matrix;
    if (!t || !matrix_view(s, i, false, state_inlined_bodies(s, false, NULL), &v, &why)) continue;
    if (matrix_half_sums(t)) halves = 1;
    int needs = v.type.bits < 32 ? 0 : t->terms == 1 ? 2 : t->terms == 3;
    if (needs > single) single = needs;
  }
  return NAME[single][halves];
}
