/* flatten: index lists become one flat index (spec 07 §7.2.8).
 *
 * A temporary holds only its realized region [min, min+extent): each index is shifted by -min, dimensions are laid out
 * row-major, with the strides that storage_align asks for. Arguments are row-major over their declared shape; in texts
 * (f->use == LOW_TEXT) an argument that has a bare variable among its dimensions gets one stride variable per dimension. One that is
 * a part of a joined tensor has that tensor's strides.
 * After this pass every access has exactly one simplified index and every buffer knows its size in elements.
 */
#include "lower/util.h"
#include <string.h>

typedef struct {
  Func *f;
  IrCtx *c;
  Arith *ar;
} Flat;

static bool bare_var_shape(IrCtx *c, const IrBuffer *b) {
  for (int i = 0; i < b->rank; i++)
    if (ir_kind(c, b->extent[i]) == IR_VAR) return true;
  return false;
}

/* CPU: rows of a temporary that are a multiple of 4 KiB apart fall into the same set of the first-level cache, and a register tile
 * reads a dozen of them in turn; 64 bytes between rows avoid that. */
enum { ALIAS_BYTES = 4096, ALIAS_ROWS = 4 };
static bool pads_rows(const Flat *s, const IrBuffer *b, int dim) {
  int64_t n;
  return !low_is_gpu(s->f) && s->f->use == LOW_CODE && !b->external && !b->align_factor && dim < b->rank - 1 &&
         ex_const_int(s->c, b->extent[dim], &n) && n >= ALIAS_ROWS;
}

/* Steps make temporaries of any size; indices that wrapped around would be outside of what is allocated. */
static ExprId row(IrCtx *c, const IrBuffer *b, int64_t n) {
  err_check(ir_err(c), n <= INT32_MAX, "buffer %s is too large: its indices do not fit 32 bits", b->name);
  return ex_i32(c, n);
}
static ExprId times(const Flat *s, const IrBuffer *b, ExprId run, ExprId extent) {
  int64_t n, e;
  ExprId size = ex_mul(s->c, run, extent);
  if (!b->external && ir_type(s->c, size).bits == 32 && ex_const_int(s->c, run, &n) && ex_const_int(s->c, extent, &e))
    return row(s->c, b, i64_mul(n, e, &n) ? n : INT64_MAX);
  return ar_simplify(s->ar, size);
}

/* Strides and size of a buffer; the record in the table is completed. */
static void layout(Flat *s, BufferId id) {
  IrCtx *c = s->c;
  IrBuffer b = *ir_buffer(c, id);
  if (b.size) return;
  ExprId *stride = arena_array(ir_arena(c), ExprId, b.rank + 1);
  if (b.external && s->f->use == LOW_TEXT && bare_var_shape(c, &b)) {
    for (int i = 0; i < b.rank; i++) stride[i] = ex_var(c, ir_var_new(c, "stride", DT_I32, false));
    b.size = ex_i32(c, 0);
    b.stride = stride;
  } else {
    ExprId run = ex_i32(c, 1);
    for (int i = b.rank - 1; i >= 0; i--) {
      int64_t k;
      if (!b.external && b.align_factor && b.align_dim == i && ex_const_int(c, run, &k))
        run = row(c, &b, low_aligned(&b, k));
      if (pads_rows(s, &b, i) && ex_const_int(c, run, &k) && k * dtype_bytes(b.type) % ALIAS_BYTES == 0)
        run = row(c, &b, k + 64 / dtype_bytes(b.type));
      stride[i] = run;
      bool joined = b.join_extent && b.join_dim == i;
      run = times(s, &b, run, joined ? ex_int(c, ir_type(c, b.extent[i]), b.join_extent) : b.extent[i]);
    }
    b.size = run;
    b.stride = stride;
  }
  ir_buffer(c, id)->stride = b.stride;
  ir_buffer(c, id)->size = b.size;
}

/* Fused and unfused again: (g div c)*c*s + (h mod c)*s = g*s where g and h differ by a multiple of c. The simplifier
 * sees this when g is h; after it has reduced the coefficients of h modulo c, only a proof of the difference helps. */
enum { MAX_TERMS = 24 };
typedef struct {
  ExprId core;
  int64_t k;
} Term;
static int terms(IrCtx *c, ExprId e, int64_t k, Term *t, int n) {
  ExprNode x = *ir_node(c, e);
  int64_t v;
  if (n >= MAX_TERMS) return MAX_TERMS + 1;
  if (x.kind == IR_ADD || x.kind == IR_SUB) {
    n = terms(c, ir_kid(c, e, 0), k, t, n);
    return n > MAX_TERMS ? n : terms(c, ir_kid(c, e, 1), x.kind == IR_SUB ? -k : k, t, n);
  }
  if (x.kind == IR_MUL && ex_const_int(c, ir_kid(c, e, 1), &v)) return terms(c, ir_kid(c, e, 0), k * v, t, n);
  t[n] = (Term){e, k};
  return n + 1;
}
static ExprId refuse_fused(Arith *ar, IrCtx *c, ExprId e) {
  Term t[MAX_TERMS + 1];
  for (int round = 0; round < 4; round++) {
    int n = terms(c, e, 1, t, 0), a = -1, b = -1;
    if (n > MAX_TERMS) return e;
    for (int i = 0; i < n && a < 0; i++) {
      int64_t div, mod;
      if (ir_kind(c, t[i].core) != IR_FDIV || !ex_const_int(c, ir_kid(c, t[i].core, 1), &div)) continue;
      for (int j = 0; j < n && a < 0; j++) {
        if (ir_kind(c, t[j].core) != IR_FMOD || !ex_const_int(c, ir_kid(c, t[j].core, 1), &mod) || mod != div ||
            t[i].k != t[j].k * div)
          continue;
        ExprId d = ex_fmod(c, ex_sub(c, ir_kid(c, t[i].core, 0), ir_kid(c, t[j].core, 0)), ir_kid(c, t[j].core, 1));
        if (ex_is_int(c, ar_simplify(ar, d), 0)) {
          a = i;
          b = j;
        }
      }
    }
    if (a < 0) return e;
    t[a] = (Term){ir_kid(c, t[a].core, 0), t[b].k};
    t[b] = t[n - 1];
    ExprId sum = 0;
    for (int i = 0; i < n - 1; i++) {
      ExprId x = ex_mul(c, t[i].core, ex_int(c, ir_type(c, t[i].core), t[i].k));
      sum = sum ? ex_add(c, sum, x) : x;
    }
    e = ar_simplify(ar, sum);
  }
  return e;
}

static ExprId flat_index(Flat *s, BufferId id, int n, const ExprId *idx) {
  IrCtx *c = s->c;
  layout(s, id);
  IrBuffer b = *ir_buffer(c, id);
  err_check(ir_err(c), n == b.rank, "buffer %s has rank %d but is accessed with %d indices", b.name, b.rank, n);
  ExprId sum = ex_i32(c, 0);
  for (int i = 0; i < n; i++) {
    ExprId x = b.min ? ex_sub(c, idx[i], b.min[i]) : idx[i];
    sum = ex_add(c, sum, ex_mul(c, x, b.stride[i]));
  }
  sum = ar_simplify(s->ar, sum);
  return s->f->use == LOW_TEXT ? sum : refuse_fused(s->ar, c, sum);
}
static ExprId flat_load(IrCtx *c, ExprId e, void *arg) {
  Flat *s = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind != IR_LOAD) return e;
  ExprId idx[32];
  int k = n->n;
  BufferId b = n->sym;
  DType t = n->type;
  memcpy(idx, ir_kids(c, e), sizeof(ExprId) * (size_t)k);
  ExprId i = flat_index(s, b, k, idx);
  return ex_load(c, b, t, 1, &i);
}
static ExprId flat_expr(IrCtx *c, ExprId e, void *arg) { return ex_map(c, e, flat_load, arg); }

static Stmt *flat_stmt(IrCtx *c, Stmt *st, void *arg) {
  Flat *s = arg;
  if (st->kind == ST_STORE) {
    ExprId i = flat_index(s, st->u.store.buf, st->u.store.n_idx, st->u.store.idx);
    return st_store(c, st->u.store.buf, 1, &i, flat_expr(c, st->u.store.value, s));
  }
  if (st->kind == ST_IF && st->u.cond.other) { /* what the else branch knows */
    Stmt *r = st_own(c, st);
    r->u.cond.other = NULL;
    r = low_rewrite(c, s->ar, r, flat_stmt, flat_expr, s);
    ar_push(s->ar, ex_not(c, st->u.cond.cond));
    r->u.cond.other = flat_stmt(c, st->u.cond.other, s);
    ar_pop(s->ar);
    return r;
  }
  if (st->kind != ST_ALLOC) return low_rewrite(c, s->ar, st, flat_stmt, flat_expr, s);
  layout(s, st->u.alloc.buf);
  const IrBuffer *b = ir_buffer(c, st->u.alloc.buf);
  int64_t size;
  err_check(ir_err(c), b->external || b->scope == SC_GLOBAL || ex_const_int(c, b->size, &size),
            "buffer %s in %s memory has no constant size: %s", b->name, b->scope == SC_SHARED ? "shared" : "local",
            ex_text(c, b->size));
  bool external = b->external;
  Stmt *r = st_rewrite(c, st, flat_stmt, NULL, s);
  return external ? r->u.alloc.body : r;
}

void pass_flatten(Func *f) {
  if (f->flat) return;
  Flat s = {.f = f, .c = f->ctx, .ar = ar_new(f->ctx)};
  for (int i = 0; i < f->n_args; i++) layout(&s, f->arg[i]);
  if (f->body) f->body = flat_stmt(f->ctx, f->body, &s);
  f->flat = true;
}
