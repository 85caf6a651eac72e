/* unroll: decides which loops are unrolled (spec 07 §7.2.13).
 *
 * A loop is unrolled if it is annotated so, or if `auto_unroll_max_step` is set around it, nothing inside was left rolled and
 * extent times the number of stores stays within the limit. On CPUs such a loop is only marked: the compiler unrolls loops of
 * constant extent by itself, and the text stays small. Innermost loops of more than 16 iterations are not even marked there:
 * as a loop they become vectors, written out (512 iterations) they cost the compiler two seconds. On GPUs it is replicated: indices, guards and remainders fold here, which
 * the device compiler does not do as well after unrolling (single convolutions of ResNet-18 on an H100: up to 2.5 times).
 * Further:
 *  - An annotated loop whose variable decides a select (the constant matrices of Winograd) is replicated here,
 *    from the outermost such loop inwards, because then whole products fold to zero or to a copy.
 *  - On GPUs loops that index private arrays are marked as well, within a limit: a private array with an index that is
 *    not constant would live in slow memory.
 *  - So are loops that only fill shared memory: their loads are independent and should be in flight together.
 * In texts (f->use == LOW_TEXT) selected loops are replicated on every target, as the reference does.
 */
#include <math.h>
#include "lower/util.h"
#include "base/limits.h"

enum { MAX_DEPTH = 8, PRIVATE_STEPS = 8192, COPY_STEPS = 512, MAX_COPIES = 256, MAX_TERMS = 128, CPU_TRIPS = 16 };
enum { CPU_MARKED = 4096 }; /* statements that the marks of a CPU program may add; our own searches: at most 900 */

typedef struct {
  int64_t steps;
  int depth, normal;
} Count;
typedef struct {
  Func *f;
  IrCtx *c;
  int64_t max_step;
  bool explicit_;
  Count out;      /* of the statements seen so far on this level */
  int64_t marked; /* statements that the marks of the whole program add */
} Unroll;

/* ---- selects that a loop decides ---- */
static bool is_decided(IrCtx *c, ExprId e, void *v) {
  return ir_kind(c, e) == IR_SELECT && ex_uses_var(c, ir_kid(c, e, 0), *(VarId *)v);
}
static bool decides_select(IrCtx *c, const Stmt *s, void *v) {
  return s->kind == ST_STORE && ex_any(c, s->u.store.value, is_decided, v);
}
/* (x * a) * b = x * (a * b), exactly, for powers of two: products of entries of Winograd's matrices. */
static bool scales(IrCtx *c, ExprId e, double *v) {
  const ExprNode *n = ir_node(c, e);
  int x;
  if (n->kind == IR_BCAST) n = ir_node(c, ir_kid(c, e, 0));
  if (n->kind != IR_FLT) return false;
  *v = n->u.f;
  return fabs(frexp(*v, &x)) == 0.5 && x > -16 && x < 16;
}
static ExprId fold_scale(IrCtx *c, ExprId e, void *arg NS_UNUSED) {
  double a, b;
  if (ir_kind(c, e) != IR_MUL || !scales(c, ir_kid(c, e, 1), &b)) return e;
  ExprId x = ir_kid(c, e, 0);
  DType t = dtype_lanes(ir_type(c, e), 1);
  if (t.code != DT_FLOAT || t.bits < 32 || ir_kind(c, x) != IR_MUL || !scales(c, ir_kid(c, x, 1), &a)) return e;
  x = ir_kid(c, x, 0);
  return a * b == 1 ? x : ex_mul(c, x, ex_flt(c, ir_type(c, e), a * b));
}
static ExprId fold_expr(IrCtx *c, ExprId e, void *arg) { return ex_map(c, low_fold(c, e), fold_scale, arg); }
static Stmt *fold(IrCtx *c, Stmt *s, void *arg) {
  Stmt *r = st_rewrite(c, s, fold, fold_expr, arg);
  return r && low_stores_itself(c, r) ? NULL : r;
}
/* Runs of stores to one element become one store: X[i] = a; X[i] = X[i] + b  ->  X[i] = a + b. Same operations, same order. */
typedef struct {
  BufferId buf;
  ExprId idx, value;
  bool other;
} Forward;
static ExprId forward_load(IrCtx *c, ExprId e, void *arg) {
  Forward *f = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind != IR_LOAD || n->sym != f->buf) return e;
  if (ir_kid(c, e, 0) == f->idx) return f->value;
  f->other = true;
  return e;
}
static void loads_in(IrCtx *c, ExprId e, void *arg) {
  if (ir_kind(c, e) == IR_LOAD) ++*(int *)arg;
}
static Stmt *forward_stores(IrCtx *c, Stmt *s, void *arg NS_UNUSED) {
  if (s->kind != ST_SEQ) return s;
  Stmt **at = arena_array(ir_arena(c), Stmt *, s->u.seq.n);
  int n = 0;
  for (int i = 0; i < s->u.seq.n; i++) {
    Stmt *x = s->u.seq.at[i], *last = n ? at[n - 1] : NULL;
    if (last && x->kind == ST_STORE && last->kind == ST_STORE && x->u.store.buf == last->u.store.buf &&
        x->u.store.idx[0] == last->u.store.idx[0]) {
      Forward f = {x->u.store.buf, x->u.store.idx[0], last->u.store.value, false};
      ExprId v = ex_map(c, x->u.store.value, forward_load, &f);
      int loads = 0;
      ex_post_order(c, v, loads_in, &loads);
      if (!f.other && loads <= MAX_TERMS && ex_size(c, v, NULL, NULL) < 16 * MAX_TERMS) {
        at[n - 1] = st_store(c, f.buf, 1, &f.idx, v);
        continue;
      }
    }
    at[n++] = x;
  }
  return st_seq(c, n, at);
}
/* Side by side, the fill of one copy does meet the reads of the next: the mark of double buffers says nothing any more. */
static Stmt *drop_marks(IrCtx *c, Stmt *s, void *arg) {
  if (s->kind == ST_FOR) return s;
  bool mark = s->kind == ST_ATTR && s->u.attr.kind == AT_DOUBLE_WRITE;
  return mark ? drop_marks(c, s->u.attr.body, arg) : st_rewrite(c, s, drop_marks, NULL, arg);
}
static Stmt *replicate(IrCtx *c, const Stmt *loop, int64_t n) {
  Stmt **at = arena_array(ir_arena(c), Stmt *, n);
  DType t = ir_var_info(c, loop->u.loop.var)->type;
  for (int64_t i = 0; i < n; i++) {
    ExprId v = ex_add(c, loop->u.loop.min, ex_int(c, t, i));
    Stmt *copy = low_copy(c, drop_marks(c, loop->u.loop.body, NULL), loop->u.loop.var, v);
    at[i] = copy ? fold(c, copy, NULL) : NULL;
  }
  return st_seq(c, (int)n, at);
}
static bool count_stores(IrCtx *c NS_UNUSED, const Stmt *s, void *arg) {
  *(int64_t *)arg += s->kind == ST_STORE || s->kind == ST_EVAL;
  return true;
}
/* Outermost first: what folds away early is never copied again. arg: the statements that were copied so far. */
static Stmt *constants(IrCtx *c, Stmt *s, void *arg) {
  int64_t n, stores = 0, *copied = arg;
  if (s->kind != ST_FOR || s->u.loop.kind != FOR_UNROLLED || !ex_const_int(c, s->u.loop.extent, &n) || n > MAX_COPIES ||
      !st_any(c, s->u.loop.body, decides_select, &s->u.loop.var))
    return st_rewrite(c, s, constants, NULL, arg);
  st_visit(c, s, count_stores, NULL, &stores);
  limit_check(ir_err(c), LIMIT_STATEMENTS, *copied += n * stores);
  s = replicate(c, s, n);
  return s ? constants(c, s, arg) : NULL;
}

/* ---- private arrays ---- */
static bool is_private(IrCtx *c, ExprId e, void *v) {
  const ExprNode *n = ir_node(c, e);
  return n->kind == IR_LOAD && ir_buffer(c, n->sym)->scope == SC_LOCAL && ex_uses_var(c, ir_kid(c, e, 0), *(VarId *)v);
}
static bool indexes_private(IrCtx *c, const Stmt *s, void *v) {
  return s->kind == ST_STORE &&
         ((ir_buffer(c, s->u.store.buf)->scope == SC_LOCAL && ex_uses_var(c, s->u.store.idx[0], *(VarId *)v)) ||
          ex_any(c, s->u.store.value, is_private, v));
}

/* ---- copies into shared memory ---- */
static bool does_more(IrCtx *c, const Stmt *s, void *arg NS_UNUSED) {
  if (s->kind == ST_STORE) return ir_buffer(c, s->u.store.buf)->scope != SC_SHARED;
  return s->kind == ST_ALLOC || s->kind == ST_ATTR || s->kind == ST_EVAL;
}
static bool only_fills_shared(IrCtx *c, const Stmt *s) { return !st_any(c, s, does_more, NULL); }

/* Loops that are unrolled on a GPU although nobody asked for it. */
static bool wants_unrolling(const Unroll *u, const Stmt *s, int64_t steps) {
  if (!low_is_gpu(u->f) || u->f->use == LOW_TEXT || s->u.loop.kind != FOR_SERIAL) return false;
  VarId v = s->u.loop.var;
  if (steps <= PRIVATE_STEPS && st_any(u->c, s->u.loop.body, indexes_private, &v)) return true;
  return steps <= COPY_STEPS && only_fills_shared(u->c, s->u.loop.body);
}

/* On CPUs a mark is a wish: beyond the limit the loop stays one, for a compiler would take minutes (768 virtual threads
 * around a tile, 13,000 statements: 37 s, and a gigabyte). */
static bool affordable(Unroll *u, int64_t e, const Count *k) {
  if (u->f->use == LOW_TEXT || low_is_gpu(u->f)) return true;
  int64_t room = CPU_MARKED - u->marked;
  if (e > 1 && k->steps > 0 && (e - 1 > room || (e - 1) * k->steps > room)) return false;
  if (e > 1) u->marked += (e - 1) * k->steps;
  return true;
}

/* ---- the walk ---- */
static Stmt *loop(Unroll *u, Stmt *s);
static Stmt *walk(IrCtx *c, Stmt *s, void *arg) { /* adds what it finds to u->out */
  Unroll *u = arg, was = *u;
  if (s->kind == ST_FOR) return loop(u, s);
  if (s->kind == ST_STORE || s->kind == ST_EVAL) u->out.steps++;
  if (s->kind != ST_ATTR || (s->u.attr.kind != AT_UNROLL_STEP && s->u.attr.kind != AT_UNROLL_EXPLICIT))
    return st_rewrite(c, s, walk, NULL, u);
  if (s->u.attr.kind == AT_UNROLL_STEP)
    u->max_step = s->u.attr.value;
  else
    u->explicit_ = s->u.attr.value != 0;
  Stmt *r = walk(c, s->u.attr.body, u);
  u->max_step = was.max_step, u->explicit_ = was.explicit_;
  return r;
}
static Stmt *loop(Unroll *u, Stmt *s) {
  IrCtx *c = u->c;
  Count around = u->out;
  u->out = (Count){0, 0, 0};
  Stmt *r = st_rewrite(c, s, walk, NULL, u);
  Count k = u->out, *out = &u->out;
  ForKind kind = s->u.loop.kind;
  int64_t e = 0;
  bool fixed = ex_const_int(c, s->u.loop.extent, &e), thread = kind > FOR_VTHREAD;
  bool chosen = kind == FOR_SERIAL && fixed && k.normal == 0 && k.depth <= MAX_DEPTH && e * k.steps <= u->max_step;
  if (chosen && u->f->use != LOW_TEXT && !low_is_gpu(u->f) && k.depth == 0 && e > CPU_TRIPS) chosen = false;
  if (kind == FOR_UNROLLED) {
    err_check(ir_err(c), fixed, "the unrolled loop %s has no constant extent", ir_var_info(c, s->u.loop.var)->name);
    chosen = true;
  }
  bool rolled = chosen && !affordable(u, e, &k);
  chosen &= !rolled;
  if (chosen && k.steps > 0) limit_check(ir_err(c), LIMIT_STATEMENTS, e);
  if (chosen)
    out->steps *= e, out->depth++;
  else if (!thread)
    out->normal++;
  limit_check(ir_err(c), LIMIT_STATEMENTS, out->steps + around.steps);
  bool copies = chosen && (u->f->use == LOW_TEXT || low_is_gpu(u->f)) && u->explicit_ && e <= 4096;
  if (copies) {
    r = replicate(c, r, e);
  } else if (chosen || (!thread && fixed && wants_unrolling(u, s, e * k.steps))) {
    r = st_own(c, r);
    r->u.loop.kind = FOR_UNROLLED;
    r->u.loop.pragma_unroll = true;
    if (!chosen) out->steps *= e;
  } else if (rolled) {
    r = st_own(c, r);
    r->u.loop.kind = FOR_SERIAL;
  }
  out->steps += around.steps;
  if (around.depth > out->depth) out->depth = around.depth;
  if (around.normal > out->normal) out->normal = around.normal;
  return r;
}

void pass_unroll(Func *f) {
  Unroll u = {f, f->ctx, 0, true, {0, 0, 0}, 0};
  if (f->use != LOW_TEXT) {
    int64_t copied = 0;
    if (f->body) f->body = constants(f->ctx, f->body, &copied);
    f->body = st_map(f->ctx, f->body, forward_stores, NULL, NULL);
  }
  if (f->body) f->body = walk(f->ctx, f->body, &u);
}
