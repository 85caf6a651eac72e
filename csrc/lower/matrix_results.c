/* matrix_results: the sums of a product on tensor cores are stored, with whatever the stage does to them.
 *
 * Where there are too few tiles for the device, `split` blocks share the sum of each. Where the device has clusters they add up
 * among themselves, else a second kernel does; or, as the schedule says, the block of each tile that is done last: no block waits for
 * another, nor is there a second launch. Parts are added up in their order, whoever is last, so that results are the same every time.
 *
 * A warp's instruction leaves two neighbours of a row to a lane, and eight rows to a warp: pairs of 16 bits fill but half a
 * sector of each. Wide stores let 16 rows of a warp's tile pass through shared memory, by lines that lie as the result does: then
 * lanes that follow each other store, and read what the stage adds, up to four elements that follow each other.
 */
#include "lower/matrix.h"

typedef struct {
  Mx *x;
  ExprId value;
} Result;
static ExprId sum_to_value(IrCtx *c, ExprId e, void *arg) {
  const Result *r = arg;
  if (ir_kind(c, e) != IR_READ || ir_node(c, e)->sym != r->x->v.sum) return e;
  DType t = ir_type(c, e);
  return dtype_eq(t, r->x->v.sums) ? r->value : ex_cast(c, t, r->value);
}

/* Stores the result at row m and column n of the matrix, from what is at acc of the sums; the lane of a vector counts along n, or
 * along m. */
static Stmt *result(Mx *x, ExprId m, ExprId n, bool along_m, ExprId lane, ExprId acc) {
  IrCtx *c = x->c;
  const TeOp *op = x->st->op;
  int stage = (int)(x->st - x->env->s->stage.at);
  VarSub sub[MX_SUBS];
  int k = mx_place(x, &x->v.m, m, sub), last = along_m ? k - 1 : k + x->v.n.n - 1;
  k += mx_place(x, &x->v.n, n, sub + k);
  if (lane) sub[last].value = ex_add(c, sub[last].value, lane);
  k += mx_place(x, &x->v.batch, x->batch, sub + k);
  if (x->v.grouped.var) sub[k] = (VarSub){x->v.grouped.var, tidy(x, ex_subst(c, x->v.grouped.value, k, sub))}, k++;
  ExprId body = x->env->body[stage] ? x->env->body[stage][0] : op->body[0], value = element(x, x->acc, acc);
  if (x->v.sum) {
    Result r = {x, value};
    value = ex_map(c, ex_subst(c, mx_loads(x, body), k, sub), sum_to_value, &r);
  } else if (!dtype_eq(ir_type(c, body), x->v.sums))
    value = ex_cast(c, ir_type(c, body), value);
  ExprId *idx = arena_array(ir_arena(c), ExprId, op->n_axis + 1);
  for (int i = 0; i < op->n_axis; i++) idx[i] = ex_subst(c, ex_var(c, op->axis[i].var), k, sub);
  return st_store(c, mapu_get(x->env->buf_of, (uint64_t)op->out[0], 0), op->n_axis, idx, value);
}

/* A part of a sum, for the kernel that adds up: [part, batch, m, n]. */
static ExprId partial_at(Mx *x, ExprId part, ExprId m, ExprId n) {
  ExprId matrix = ex_add(x->c, scaled(x, part, x->v.batch.size), x->batch);
  return ex_add(x->c, scaled(x, ex_add(x->c, scaled(x, matrix, x->v.m.size), m), x->v.n.size), n);
}

/* Neighbours along d are neighbours in memory, so that w that begin at a multiple of w can be stored at once, and read. */
static void widest(IrCtx *c, ExprId e, void *arg) {
  int bytes = dtype_bytes(dtype_lanes(ir_type(c, e), 1)), *most = arg;
  if (ir_kind(c, e) == IR_READ && bytes > *most) *most = bytes;
}
static bool together(const Mx *x, const MatrixIndex *d, int w) {
  const TeOp *op = x->st->op;
  const ExprId *body = x->env->body[x->st - x->env->s->stage.at];
  int bytes = dtype_bytes(dtype_lanes(ir_type(x->c, op->body[0]), 1));
  ex_post_order(x->c, body ? body[0] : op->body[0], widest, &bytes);
  if (!d->n || !op->n_axis) return false;
  VarId fast = d->var[d->n - 1], last = op->axis[op->n_axis - 1].var;
  return w * bytes <= MX_CHUNK && (fast == last || (fast == x->v.member && x->v.grouped.var == last)) &&
         d->extent[d->n - 1] % w == 0 && dtype_eq(ir_var_info(x->c, fast)->type, DT_I32);
}

static ExprId result_row(Mx *x, ExprId i, ExprId half) { return tidy(x, ex_add(x->c, x->a.first, mx_row(x, i, half))); }
static ExprId result_col(Mx *x, ExprId j) { return tidy(x, ex_add(x->c, x->b.first, mx_col(x, j))); }

/* Stores the neighbours that a thread keeps, as far as they are inside, so many at once as can be: results, or parts of sums for a
 * second kernel. */
static Stmt *neighbours(Mx *x, ExprId m, ExprId n, ExprId at) {
  IrCtx *c = x->c;
  int w = x->keeps;
  bool ready = !x->partial || x->last;
  while (w > 1 && !(ready ? together(x, &x->v.n, w) : x->v.n.size % w == 0)) w /= 2;
  Loop g = loop(x, "g", x->keeps / w, FOR_UNROLLED), e = loop(x, "e", w, w > 1 ? FOR_VECTOR : FOR_UNROLLED);
  ExprId skip = scaled(x, var(x, g.v), w), first = tidy(x, ex_add(c, n, skip)),
         acc = ex_add(c, ex_add(c, at, skip), var(x, e.v));
  Stmt *s =
      ready ? result(x, m, first, false, w > 1 ? var(x, e.v) : 0, acc)
            : store(x, x->partial, partial_at(x, x->part, m, ex_add(c, first, var(x, e.v))), element(x, x->acc, acc));
  s = around(x, e, s);
  if (x->v.n.size % x->t.block_n) s = st_if(c, less(x, first, x->v.n.size), false, s, NULL);
  s = around(x, g, s);
  return x->v.m.size % x->t.block_m ? st_if(c, less(x, m, x->v.m.size), false, s, NULL) : s;
}

/* ---- wide stores ---- */

/* Nobody reads the slices any more, and nothing is on its way to them: their place may be others'. */
static Stmt *slices_done(Mx *x) {
  ExprId none = num(x, 0);
  return seq(x, mx_commit(x) ? call(x, IN_COPY_WAIT, 1, &none) : NULL, low_barrier(x->c));
}

/* The warp's part of a tile, which follows from its instruction's number and that of the columns at hand. */
typedef struct {
  bool along_m; /* lines are columns */
  int columns, pitch;
  ExprId room; /* of the warp */
  Loop i, part;
} Wide;

/* The lanes leave what they have of 16 rows. */
static Stmt *leave(Mx *x, const Wide *w) {
  IrCtx *c = x->c;
  int tiles = w->columns / 8;
  Loop h = loop(x, "h", 2, FOR_UNROLLED), j = loop(x, "nj", tiles, FOR_UNROLLED),
       e = loop(x, "e", 2, w->along_m ? FOR_UNROLLED : FOR_VECTOR);
  ExprId tile =
      ex_add(c, ex_add(c, scaled(x, var(x, w->i.v), x->ni), scaled(x, var(x, w->part.v), tiles)), var(x, j.v));
  ExprId acc = ex_add(c, ex_add(c, scaled(x, tile, 4), scaled(x, var(x, h.v), 2)), var(x, e.v));
  ExprId row = mx_acc_row(x, scaled(x, var(x, h.v), 2)),
         col = ex_add(c, ex_add(c, scaled(x, var(x, j.v), 8), mx_acc_col(x, num(x, 0))), var(x, e.v));
  ExprId line = w->along_m ? col : row, at = w->along_m ? row : col;
  Stmt *s = store(x, x->passing, ex_add(c, w->room, ex_add(c, scaled(x, line, w->pitch), at)), element(x, x->acc, acc));
  return around(x, j, around(x, h, around(x, e, s)));
}

/* They take neighbours in lines, and store them. */
enum { WIDE_ROWS = 16 };
static Stmt *take(Mx *x, const Wide *w) {
  IrCtx *c = x->c;
  const MatrixIndex *d = w->along_m ? &x->v.m : &x->v.n;
  int n = together(x, d, 4) ? 4 : together(x, d, 2) ? 2 : 1, length = (w->along_m ? WIDE_ROWS : w->columns) / n;
  Loop turn = loop(x, "turn", WIDE_ROWS * w->columns / n / GPU_WARP, FOR_UNROLLED),
       e = loop(x, "e", n, n > 1 ? FOR_VECTOR : FOR_UNROLLED);
  ExprId q = ex_add(c, scaled(x, var(x, turn.v), GPU_WARP), mx_lane(x));
  ExprId line = tidy(x, quot(x, q, length)), at = tidy(x, scaled(x, rest(x, q, length), n));
  ExprId from = ex_add(c, ex_add(c, w->room, ex_add(c, scaled(x, line, w->pitch), at)), var(x, e.v));
  ExprId row = ex_add(c, mx_warp_row(x), mx_instruction_row(x, var(x, w->i.v))),
         col = ex_add(c, mx_warp_col(x), scaled(x, var(x, w->part.v), w->columns));
  row = tidy(x, ex_add(c, ex_add(c, x->a.first, row), w->along_m ? at : line));
  col = tidy(x, ex_add(c, ex_add(c, x->b.first, col), w->along_m ? line : at));
  BufferId sums = x->acc;
  x->acc = x->passing;
  Stmt *s = around(x, e, result(x, row, col, w->along_m, n > 1 ? var(x, e.v) : 0, from));
  x->acc = sums;
  ExprId in = both(x, x->v.m.size % x->t.block_m ? less(x, row, x->v.m.size) : 0,
                   x->v.n.size % x->t.block_n ? less(x, col, x->v.n.size) : 0);
  return around(x, turn, in ? st_if(c, in, false, s, NULL) : s);
}

static Stmt *wide_results(Mx *x) {
  Wide w = {.along_m = together(x, &x->v.m, 1), .columns = matrix_wide_columns(&x->t)};
  w.pitch = matrix_wide_pitch(&x->t, w.along_m);
  w.room = scaled(x, quot(x, var(x, x->tid), GPU_WARP), matrix_wide_room(&x->t));
  w.i = loop(x, "mi", x->mi, FOR_UNROLLED), w.part = loop(x, "part", x->t.warp_n / w.columns, FOR_UNROLLED);
  Stmt *s = seq(x, leave(x, &w), call(x, IN_WARP_SYNC, 0, NULL));
  s = seq(x, seq(x, s, take(x, &w)), call(x, IN_WARP_SYNC, 0, NULL));
  return seq(x, slices_done(x), around(x, w.i, around(x, w.part, s)));
}

Stmt *mx_results(Mx *x) {
  if (x->t.wide) return wide_results(x);
  Loop i = loop(x, "mi", x->mi, FOR_UNROLLED), j = loop(x, "ni", x->in_row, FOR_UNROLLED),
       h = loop(x, "h", x->halves, FOR_UNROLLED);
  ExprId row = result_row(x, var(x, i.v), var(x, h.v)), at = mx_sum(x, var(x, i.v), var(x, h.v), var(x, j.v));
  return around(x, i, around(x, h, around(x, j, neighbours(x, row, result_col(x, var(x, j.v)), at))));
}

/* The second kernel of a split sum: a thread adds up the parts of one or two neighbours, in their order. */
enum { ADDERS = 128 };
Stmt *mx_add_up(Mx *x) {
  IrCtx *c = x->c;
  int w = together(x, &x->v.n, 2) ? 2 : 1;
  int64_t all = x->v.batch.size * x->v.m.size * (x->v.n.size / w);
  Loop block = loop(x, "blockIdx.x", i64_ceildiv(all, ADDERS), FOR_BLOCK_X),
       thread = loop(x, "threadIdx.x", ADDERS, FOR_THREAD_X), z = loop(x, "z", w, FOR_UNROLLED),
       part = loop(x, "part", x->t.split, FOR_UNROLLED), i = loop(x, "i", w, w > 1 ? FOR_VECTOR : FOR_UNROLLED),
       e = loop(x, "e", w, w > 1 ? FOR_VECTOR : FOR_UNROLLED);
  ExprId at = ex_add(c, scaled(x, var(x, block.v), ADDERS), var(x, thread.v));
  ExprId n = scaled(x, rest(x, at, x->v.n.size / w), w), row = quot(x, at, x->v.n.size / w);
  ExprId m = tidy(x, rest(x, row, x->v.m.size));
  n = tidy(x, n);
  x->batch = tidy(x, quot(x, row, x->v.m.size));
  x->acc = array(x, "total", x->v.sums, SC_LOCAL, w);
  Stmt *zero = around(x, z, store(x, x->acc, var(x, z.v), ex_zero(c, x->v.sums)));
  ExprId from = element(x, x->partial, partial_at(x, var(x, part.v), m, ex_add(c, n, var(x, i.v))));
  Stmt *add = store(x, x->acc, var(x, i.v), ex_add(c, element(x, x->acc, var(x, i.v)), from));
  Stmt *s = seq(x, seq(x, zero, around(x, part, around(x, i, add))),
                around(x, e, result(x, m, n, false, w > 1 ? var(x, e.v) : 0, var(x, e.v))));
  if (all % ADDERS) s = st_if(c, less(x, at, all), false, s, NULL);
  return around(x, block, around(x, thread, st_alloc(c, x->acc, s)));
}

/* ---- a block's teams, and a cluster's blocks, add up among themselves ---- */

/* Groups of neighbours go round the blocks, and a block's round its teams: in its turn a thread adds up one of them. */
static int groups(const Mx *x) { return x->sums / x->keeps; }
static int blocks(const Mx *x) { return x->clustered ? x->t.split : 1; }
static int adders(const Mx *x) { return blocks(x) * x->t.teams; }
static ExprId group_of_block(Mx *x, Loop turn) {
  return ex_add(x->c, scaled(x, var(x, turn.v), x->t.teams), mx_team(x));
}
static ExprId group_at(Mx *x, Loop turn) {
  ExprId group = scaled(x, group_of_block(x, turn), blocks(x));
  return tidy(x, x->clustered ? ex_add(x->c, group, x->part) : group);
}
static Stmt *if_there_is(Mx *x, ExprId group, Stmt *s) {
  return groups(x) % adders(x) ? st_if(x->c, less(x, group, groups(x)), false, s, NULL) : s;
}
/* Stores a group that is at `at` of the sums. */
static Stmt *store_group(Mx *x, ExprId group, ExprId at) {
  ExprId half = rest(x, group, x->halves), tile = quot(x, group, x->halves);
  return neighbours(x, result_row(x, tidy(x, quot(x, tile, x->in_row)), tidy(x, half)),
                    result_col(x, tidy(x, rest(x, tile, x->in_row))), at);
}

/* Where the sum z of a thread is that its block's teams leave. */
static ExprId left_at(Mx *x, ExprId z, ExprId thread) { return ex_add(x->c, scaled(x, z, x->threads), thread); }
static Stmt *leave_sums(Mx *x) {
  Loop z = loop(x, "z", x->sums, FOR_UNROLLED);
  Stmt *s = store(x, x->shared, left_at(x, var(x, z.v), var(x, x->tid)), element(x, x->acc, var(x, z.v)));
  return seq(x, slices_done(x), seq(x, around(x, z, s), low_barrier(x->c)));
}

/* Where a block finds what a thread of block `part` has of a group that is so manieth of its own: a thread's neighbours are sent at
 * once, and neighbouring threads send to neighbouring places. */
static ExprId sent_to(Mx *x, ExprId part, ExprId group, ExprId thread) {
  ExprId line = ex_add(x->c, scaled(x, part, i64_ceildiv(groups(x), blocks(x))), group);
  return scaled(x, ex_add(x->c, scaled(x, line, x->threads), thread), x->keeps);
}
Stmt *mx_receives(Mx *x) {
  int of_all = groups(x) / blocks(x), more = groups(x) % blocks(x);
  int64_t bytes = (int64_t)blocks(x) * x->threads * x->keeps * dtype_bytes(x->v.sums); /* of a group */
  ExprId own = more ? ex_select(x->c, less(x, x->part, more), num(x, of_all + 1), num(x, of_all)) : num(x, of_all);
  ExprId args[] = {element(x, x->shared, num(x, 0)), element(x, x->arrivals, num(x, 0)), scaled(x, own, bytes),
                   num(x, x->late)};
  return call(x, IN_CLUSTER_BEGIN, NS_COUNT(args), args);
}
/* To itself, too, so that it has all sums in one place. */
static Stmt *send_sums(Mx *x) {
  Loop g = loop(x, "group", groups(x), FOR_UNROLLED);
  ExprId group = var(x, g.v), place = sent_to(x, x->part, quot(x, group, blocks(x)), var(x, x->tid)),
         arrivals = element(x, x->arrivals, num(x, 0));
  ExprId args[SEND_VALUES + LANE_STEP] = {element(x, x->shared, place), arrivals, tidy(x, rest(x, group, blocks(x)))};
  for (int i = 0; i < x->keeps; i++)
    args[SEND_VALUES + i] = element(x, x->acc, ex_add(x->c, scaled(x, group, x->keeps), num(x, i)));
  Stmt *s = around(x, g, call(x, IN_CLUSTER_SEND, SEND_VALUES + x->keeps, args));
  Stmt *here = seq(x, x->late ? seq(x, slices_done(x), mx_receives(x)) : NULL, call(x, IN_CLUSTER_HERE, 0, NULL));
  return seq(x, here, seq(x, s, call(x, IN_CLUSTER_ARRIVED, 1, &arrivals)));
}

/* The sum of what all blocks and teams have of a group, in their order. */
static Stmt *add_up_group(Mx *x, Loop turn) {
  IrCtx *c = x->c;
  int w = x->keeps, teams = x->t.teams;
  Loop zero = loop(x, "z", w, FOR_UNROLLED), part = loop(x, "part", blocks(x), FOR_UNROLLED),
       team = loop(x, "team", teams, FOR_UNROLLED), i = loop(x, "i", w, x->clustered ? FOR_VECTOR : FOR_UNROLLED);
  ExprId thread = ex_add(c, scaled(x, var(x, team.v), x->threads / teams), mx_member(x)), at = var(x, i.v);
  ExprId from = x->clustered ? ex_add(c, sent_to(x, var(x, part.v), group_of_block(x, turn), thread), at)
                             : left_at(x, ex_add(c, scaled(x, group_at(x, turn), w), at), thread);
  Stmt *add = store(x, x->total, at, ex_add(c, element(x, x->total, at), element(x, x->shared, from)));
  return seq(x, around(x, zero, store(x, x->total, var(x, zero.v), ex_zero(c, x->v.sums))),
             around(x, part, around(x, team, around(x, i, add))));
}

/* Each thread leaves its sums in its block's shared memory, or sends each group to the block that adds it up, which nobody waits for:
 * a block ends when it has received and stored what is its own. Where the last block goes on with the groups they take the place of the
 * sums. */
Stmt *mx_add_up_here(Mx *x) {
  Loop turn = loop(x, "turn", i64_ceildiv(groups(x), adders(x)), FOR_UNROLLED),
       e = loop(x, "e", x->keeps, FOR_UNROLLED);
  ExprId group = group_at(x, turn), to = ex_add(x->c, scaled(x, var(x, turn.v), x->keeps), var(x, e.v));
  Stmt *sum = add_up_group(x, turn), *s = x->clustered ? send_sums(x) : leave_sums(x);
  BufferId sums = x->acc;
  x->acc = x->total;
  sum = seq(x, sum,
            x->last ? around(x, e, store(x, sums, to, element(x, x->total, var(x, e.v))))
                    : store_group(x, group, num(x, 0)));
  x->acc = sums;
  return seq(x, s, around(x, turn, if_there_is(x, group, sum)));
}

/* ---- the last block ---- */

static int kept(const Mx *x) { return x->shared ? (int)i64_ceildiv(groups(x), adders(x)) * x->keeps : x->sums; }
double mx_parts(const Mx *x) {
  if (x->last) return (double)x->blocks * x->threads * kept(x);
  return (double)x->t.split * (double)x->v.batch.size * (double)x->v.m.size * (double)x->v.n.size;
}

/* What a thread keeps, as pieces that it stores and loads at once, by lines of all threads: no piece waits for another, or for a
 * condition. */
typedef struct {
  int w;
  Loop piece, e;
  ExprId mine; /* of the sums */
} Pieces;
static Pieces pieces(Mx *x) {
  int n = kept(x), w = n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1;
  Pieces p = {.w = w};
  p.piece = loop(x, "piece", n / w, FOR_UNROLLED);
  p.e = loop(x, "e", w, w > 1 ? FOR_VECTOR : FOR_UNROLLED);
  p.mine = ex_add(x->c, scaled(x, var(x, p.piece.v), w), var(x, p.e.v));
  return p;
}
static ExprId piece_of(Mx *x, const Pieces *p, ExprId part) {
  ExprId block = ex_add(x->c, scaled(x, x->tile, x->t.split), part),
         line = ex_add(x->c, scaled(x, block, p->piece.n), var(x, p->piece.v));
  ExprId at = ex_add(x->c, scaled(x, line, x->threads), var(x, x->tid));
  return ex_add(x->c, scaled(x, at, p->w), var(x, p->e.v));
}
static Stmt *each_piece(Mx *x, const Pieces *p, Stmt *s) { return around(x, p->piece, around(x, p->e, s)); }

/* The block's part, once more from the workspace where it is the last, too. */
static Stmt *leave_part(Mx *x) {
  Pieces p = pieces(x);
  return each_piece(x, &p, store(x, x->partial, piece_of(x, &p, x->part), element(x, x->acc, p.mine)));
}
/* Several parts are on their way at a time, as many as there are registers for. */
enum { ON_THE_WAY = 128 };
static Stmt *add_parts(Mx *x) {
  Pieces p = pieces(x);
  int split = x->t.split, n = split;
  while (split % n || (n > 1 && n * kept(x) > ON_THE_WAY)) n--;
  Loop z = loop(x, "z", kept(x), FOR_UNROLLED), round = loop(x, "round", split / n, FOR_SERIAL),
       i = loop(x, "i", n, FOR_UNROLLED);
  ExprId part = ex_add(x->c, scaled(x, var(x, round.v), n), var(x, i.v)),
         sum = ex_add(x->c, element(x, x->acc, p.mine), element(x, x->partial, piece_of(x, &p, part)));
  return seq(x, around(x, z, store(x, x->acc, var(x, z.v), ex_zero(x->c, x->v.sums))),
             around(x, round, around(x, i, each_piece(x, &p, store(x, x->acc, p.mine, sum)))));
}
static Stmt *store_groups(Mx *x) {
  Loop turn = loop(x, "turn", kept(x) / x->keeps, FOR_UNROLLED);
  ExprId group = group_at(x, turn);
  return around(x, turn, if_there_is(x, group, store_group(x, group, scaled(x, var(x, turn.v), x->keeps))));
}

Stmt *mx_last(Mx *x) {
  ExprId last = element(x, x->last, num(x, 0)), args[] = {last, element(x, x->counts, x->tile), num(x, x->t.split)};
  Stmt *s = seq(x, leave_part(x), call(x, IN_LAST_BLOCK, 3, args));
  Stmt *results = seq(x, add_parts(x), x->shared ? store_groups(x) : mx_results(x));
  return seq(x, s, st_if(x->c, ex_bin(x->c, IR_NE, last, num(x, 0)), false, results, NULL));
}
