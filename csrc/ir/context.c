/* The context: tables of expressions, variables, tensors, reducers, reductions and buffers, and the hash table that makes
 * equal expressions the same number. Tables are plain arrays that double; names, shapes and payloads lie in the
 * context's arena. Marking remembers the lengths, releasing cuts the tables back. Expressions leave the hash table in
 * the reverse order in which they came, and with linear probing that means that the slot can simply be cleared: the
 * table is again what it was before the insertion.
 *
 * A clone copies the tables and points to the payloads of its source, which must outlive it and stay unreleased. */
#include "ir/ctx.h"
#include "base/limits.h"

#include <stdlib.h>
#include <string.h>

/* Every table: its field and that of its length. Those of expressions grow together. */
#define EXPR_TABLES(X) X(t.node, expr) X(depth, expr) X(hash, expr)
#define OTHER_TABLES(X)                                                                                                \
  X(t.kid, kid) X(t.var, var) X(tensor, tensor) X(reducer, reducer) X(reduce, reduce) X(buffer, buffer) X(str, str)

static void grow(Arena *a, void *pp, int32_t *cap, int32_t need, size_t elem) {
  if (need <= *cap) return;
  Err *e = arena_err(a);
  int64_t n = *cap ? (int64_t)*cap * 2 : 64;
  while (n < need) n *= 2;
#ifdef IR_MOVE_TABLES /* for tests: tables move all the time, so that a sanitizer sees pointers kept across a growth */
  n = (int64_t)need + 16;
#endif
  if (n > INT32_MAX) err_raise(e, NS_ERR_MEMORY, "out of memory: a table of more than 2^31 entries");
  arena_check(a, (size_t)(n - *cap) * elem);
  void *p;
  memcpy(&p, pp, sizeof p);
  p = mem_realloc(e, p, (size_t)n * elem);
  memset((char *)p + (size_t)*cap * elem, 0, (size_t)(n - *cap) * elem);
  memcpy(pp, &p, sizeof p);
  *cap = (int32_t)n;
}

static void rehash(IrCtx *c, uint32_t size) {
  uint64_t *fresh = mem_alloc(c->err, size * sizeof *fresh);
  uint32_t mask = size - 1;
  for (int32_t e = 1; e < c->n.expr; e++) { /* in the order of ids: releasing relies on it */
    uint32_t i = c->hash[e] & mask;
    while (fresh[i]) i = (i + 1) & mask;
    fresh[i] = (uint64_t)c->hash[e] << 32 | (uint32_t)e;
  }
  free(c->slot);
  c->slot = fresh;
  c->mask = mask;
}

static void grow_exprs(IrCtx *c, int32_t need) {
  if (need <= c->cap.expr) return;
  int32_t cap;
#define GROW(field, _) cap = c->cap.expr, grow(c->arena, &c->field, &cap, need, sizeof *c->field);
  EXPR_TABLES(GROW)
#undef GROW
  if ((int64_t)c->mask + 1 < (int64_t)cap * 2) {
    uint32_t size = 128;
    while (size < (uint32_t)cap * 2) size *= 2;
    rehash(c, size);
  }
  c->cap.expr = cap;
}

static IrCtx *ctx_bare(Err *e) {
  Arena *arena = arena_new(e);
  IrCtx *c = calloc(1, sizeof *c);
  if (!c) {
    arena_free(arena);
    err_raise(e, NS_ERR_MEMORY, "out of memory: cannot make a context");
  }
  c->err = e;
  c->arena = arena;
#ifdef NS_DEBUG_VERIFY /* the sanitized builds */
  c->verify = true;
#endif
  c->n = (IrCounts){1, 1, 1, 1, 1, 1, 1, 1};
  return c;
}

/* Fills the tables of a bare context under protection, so that nothing leaks when memory ends half-way. */
static IrCtx *ctx_fill(IrCtx *c, ErrBody fill, void *arg) {
  Err *e = c->err;
  ErrCode code = err_try(e, fill, arg);
  if (code != NS_OK) {
    ir_free(c);
    err_rethrow(e, code);
  }
  return c;
}

static void fill_new(void *arg) {
  IrCtx *c = arg;
  grow_exprs(c, 256);
#define MAKE(field, count) grow(c->arena, &c->field, &c->cap.count, 1, sizeof *c->field);
  OTHER_TABLES(MAKE)
#undef MAKE
}

IrCtx *ir_new(Err *e) {
  IrCtx *c = ctx_bare(e);
  return ctx_fill(c, fill_new, c);
}

typedef struct {
  const IrCtx *src;
  IrCtx *dst;
} CloneArg;

static void *copy_table(Err *e, const void *src, int32_t n, int32_t cap, size_t elem) {
  void *p = mem_alloc(e, (size_t)cap * elem);
  memcpy(p, src, (size_t)n * elem);
  return p;
}

static void fill_clone(void *arg) {
  const IrCtx *s = ((CloneArg *)arg)->src;
  IrCtx *d = ((CloneArg *)arg)->dst;
  Err *e = d->err;
  d->n = s->n, d->cap = s->cap;
#define COPY(field, count) d->field = copy_table(e, s->field, s->n.count, s->cap.count, sizeof *d->field);
  EXPR_TABLES(COPY)
  OTHER_TABLES(COPY)
#undef COPY
  d->verify = s->verify;
  d->slot = mem_alloc(e, ((size_t)s->mask + 1) * sizeof *d->slot);
  memcpy(d->slot, s->slot, ((size_t)s->mask + 1) * sizeof *d->slot);
  d->mask = s->mask;
  memcpy(d->last_reduce, s->last_reduce, sizeof d->last_reduce);
}

IrCtx *ir_clone(const IrCtx *src, Err *e) {
  CloneArg arg = {src, ctx_bare(e)};
  return ctx_fill(arg.dst, fill_clone, &arg);
}

void ir_free(IrCtx *c) {
  if (!c) return;
#define FREE(field, _) free(c->field);
  EXPR_TABLES(FREE)
  OTHER_TABLES(FREE)
#undef FREE
  free(c->slot);
  free(c->memo);
  for (int i = 0; i < IR_MAX_WALKS; i++) {
    free(c->walk[i].stamp);
    free(c->walk[i].val);
  }
  arena_free(c->arena);
  free(c);
}

void ir_limit(IrCtx *c) {
  const Limit *l = limit_of(LIMIT_MEMORY);
  arena_limit(c->arena, (size_t)l->most,
              arena_printf(c->arena, "the schedule takes more than %lld %s to replay and lower (limit \"%s\")",
                           (long long)l->most, l->what, l->name));
}

Arena *ir_arena(IrCtx *c) { return c->arena; }
Err *ir_err(IrCtx *c) { return c->err; }
int32_t ir_count(const IrCtx *c) { return c->n.expr - 1; }

/* ---- interning ---- */
static uint32_t node_hash(ExprKind k, DType t, int32_t sym, int n, const ExprId *kids, int64_t u) {
  uint64_t h = ((uint64_t)k << 32 | (uint64_t)t.code << 24 | (uint64_t)t.bits << 16 | t.lanes) * 0x9e3779b97f4a7c15u;
  h ^= (uint32_t)sym * 0xc2b2ae3d27d4eb4fu ^ (uint64_t)u * 0x165667b19e3779f9u;
  if (n > 0) h += (uint32_t)kids[0] * 0xd6e8feb86659fd93u; /* products side by side: most nodes have one or two kids */
  if (n > 1) h += (uint32_t)kids[1] * 0xa0761d6478bd642fu;
  for (int i = 2; i < n; i++) {
    h ^= h >> 32;
    h = h * 0xe7037ed1a0b428dbu + (uint32_t)kids[i];
  }
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93u;
  uint32_t r = (uint32_t)(h >> 32);
  return r ? r : 1;
}

static bool node_same(const IrCtx *c, const ExprNode *p, ExprKind k, DType t, int32_t sym, int n, const ExprId *kids,
                      int64_t u) {
  if (p->kind != k || p->n != n || p->sym != sym || p->u.i != u || !dtype_eq(p->type, t)) return false;
  const ExprId *have = c->t.kid + p->kid0;
  for (int i = 0; i < n; i++)
    if (have[i] != kids[i]) return false;
  return true;
}

ExprId ctx_node(IrCtx *c, ExprKind k, DType t, int32_t sym, int n, const ExprId *kids, int64_t u) {
  uint32_t hash = node_hash(k, t, sym, n, kids, u), i = hash & c->mask;
  for (uint64_t s; (s = c->slot[i]) != 0; i = (i + 1) & c->mask)
    if ((uint32_t)(s >> 32) == hash && node_same(c, c->t.node + (uint32_t)s, k, t, sym, n, kids, u))
      return (ExprId)(uint32_t)s;

  if (n > UINT16_MAX)
    err_raise(c->err, NS_ERR_VALUE, "an expression may have at most %d operands, got %d", UINT16_MAX, n);
  uint16_t depth = 0;
  bool data = k == IR_READ || k == IR_LOAD || k == IR_REDUCE || (k == IR_VAR && c->t.var[sym].data);
  for (int j = 0; j < n; j++) {
    if (kids[j] <= 0 || kids[j] >= c->n.expr)
      err_raise(c->err, NS_ERR_INTERNAL, "operand %d is not an expression of this context (id %d)", j, kids[j]);
    if (c->depth[kids[j]] > depth) depth = c->depth[kids[j]];
    data = data || c->t.node[kids[j]].data;
  }
  if (depth >= IR_MAX_DEPTH)
    err_raise(c->err, NS_ERR_VALUE, "expression nested deeper than %d operations; split it over several compute stages",
              IR_MAX_DEPTH);
  if (c->n.kid + n > c->cap.kid) {
    ptrdiff_t at = kids && kids >= c->t.kid && kids < c->t.kid + c->n.kid ? kids - c->t.kid : -1;
    grow(c->arena, &c->t.kid, &c->cap.kid, c->n.kid + n, sizeof *c->t.kid);
    if (at >= 0) kids = c->t.kid + at;
  }
  if (c->n.expr >= c->cap.expr) {
    grow_exprs(c, c->n.expr + 1);
    i = hash & c->mask;
    while (c->slot[i]) i = (i + 1) & c->mask;
  }
  ExprId e = c->n.expr++;
  ExprNode *p = c->t.node + e;
  p->kind = (uint8_t)k;
  p->data = data;
  p->n = (uint16_t)n;
  p->type = t;
  p->sym = sym;
  p->kid0 = c->n.kid;
  p->u.i = u;
  if (n) memcpy(c->t.kid + c->n.kid, kids, (size_t)n * sizeof *kids);
  c->n.kid += n;
  c->depth[e] = (uint16_t)(depth + 1);
  c->hash[e] = hash;
  c->slot[i] = (uint64_t)hash << 32 | (uint32_t)e;
  return e;
}

/* Equal nodes are one, so a node that looks right is the right one, even where releasing gave its number to another. */
ExprId ctx_leaf(IrCtx *c, ExprKind k, DType t, int32_t sym, int64_t u) {
  enum { HALF = IR_LEAVES / 2 };
  ExprId *at = &c->leaf[k == IR_VAR ? HALF + (sym & (HALF - 1)) : (u ^ u >> 7) & (HALF - 1)];
  if (*at < c->n.expr && node_same(c, c->t.node + *at, k, t, sym, 0, NULL, u)) return *at;
  return *at = ctx_node(c, k, t, sym, 0, NULL, u);
}

/* ---- marks ---- */
IrMark ir_mark(const IrCtx *c) { return (IrMark){c->n, arena_mark(c->arena)}; }

void ir_release(IrCtx *c, IrMark m) {
  for (ExprId e = c->n.expr - 1; e >= m.n.expr; e--) {
    uint32_t i = c->hash[e] & c->mask;
    while ((uint32_t)c->slot[i] != (uint32_t)e) i = (i + 1) & c->mask;
    c->slot[i] = 0;
  }
  for (int32_t id = c->n.reduce - 1; id >= m.n.reduce; id--)
    c->last_reduce[c->reduce[id].hash % IR_REDUCES] = c->reduce[id].before;
  int32_t memo_end = c->n.expr < c->cap_memo ? c->n.expr : c->cap_memo;
  if (m.n.expr < memo_end) memset(c->memo + m.n.expr, 0, (size_t)(memo_end - m.n.expr) * sizeof *c->memo);
  c->epoch++;
  c->n = m.n;
  arena_release(c->arena, m.arena);
}

/* ---- the other tables ---- */
VarId ir_var_new(IrCtx *c, const char *name, DType t, bool nonneg) {
  grow(c->arena, &c->t.var, &c->cap.var, c->n.var + 1, sizeof *c->t.var);
  c->t.var[c->n.var] = (IrVar){arena_strdup(c->arena, name), t, nonneg, false};
  return c->n.var++;
}

static const ExprId *copy_ids(IrCtx *c, const ExprId *p, int32_t n) {
  return p ? arena_copy(c->arena, p, (size_t)n * sizeof *p) : NULL;
}

TensorId ir_tensor_new(IrCtx *c, IrTensor t) {
  grow(c->arena, &c->tensor, &c->cap.tensor, c->n.tensor + 1, sizeof *c->tensor);
  t.name = arena_strdup(c->arena, t.name);
  t.shape = copy_ids(c, t.shape, t.rank);
  c->tensor[c->n.tensor] = t;
  return c->n.tensor++;
}

ReducerId ir_reducer_new(IrCtx *c, IrReducer r) {
  grow(c->arena, &c->reducer, &c->cap.reducer, c->n.reducer + 1, sizeof *c->reducer);
  r.lhs = copy_ids(c, r.lhs, r.n);
  r.rhs = copy_ids(c, r.rhs, r.n);
  r.result = copy_ids(c, r.result, r.n);
  r.identity = copy_ids(c, r.identity, r.n);
  r.code = copy_ids(c, r.code, r.n);
  c->reducer[c->n.reducer] = r;
  return c->n.reducer++;
}

BufferId ir_buffer_new(IrCtx *c, IrBuffer b) {
  grow(c->arena, &c->buffer, &c->cap.buffer, c->n.buffer + 1, sizeof *c->buffer);
  b.name = arena_strdup(c->arena, b.name);
  b.min = copy_ids(c, b.min, b.rank);
  b.extent = copy_ids(c, b.extent, b.rank);
  b.stride = copy_ids(c, b.stride, b.rank);
  if (b.align == 0) b.align = 64;
  c->buffer[c->n.buffer] = b;
  return c->n.buffer++;
}

BufferId ir_array(IrCtx *c, const char *name, DType t, ScopeKind scope, int64_t n, bool flat) {
  ExprId zero = ex_i32(c, 0), size = ex_i32(c, n);
  IrBuffer b = {.name = name, .type = t, .scope = scope, .rank = 1, .min = &zero, .extent = &size};
  b.size = flat ? size : 0;
  return ir_buffer_new(c, b);
}

static void check_id(const IrCtx *c, int32_t id, int32_t n, const char *what) {
  if (id <= 0 || id >= n) err_raise(c->err, NS_ERR_INTERNAL, "no %s with number %d in this context", what, id);
}

const IrTensor *ir_tensor(const IrCtx *c, TensorId t) {
  check_id(c, t, c->n.tensor, "tensor");
  return c->tensor + t;
}

void ir_tensor_any_rank(IrCtx *c, TensorId t) {
  check_id(c, t, c->n.tensor, "tensor");
  c->tensor[t].any_rank = true;
}

void ir_tensor_stand_in(IrCtx *c, TensorId t, TensorId for_) {
  check_id(c, t, c->n.tensor, "tensor");
  c->tensor[t].for_ = for_;
}

void ir_tensor_reshape(IrCtx *c, TensorId t, int32_t rank, const ExprId *shape) {
  check_id(c, t, c->n.tensor, "tensor");
  IrTensor *x = &c->tensor[t];
  for (ExprId e = 1; e < c->n.expr; e++)
    err_check(c->err, ir_kind(c, e) != IR_READ || ir_node(c, e)->sym != t,
              "tensor %s is read already: its shape can be changed only before", x->name);
  x->rank = rank;
  x->shape = copy_ids(c, shape, rank);
}

const IrReducer *ir_reducer(const IrCtx *c, ReducerId r) {
  check_id(c, r, c->n.reducer, "reducer");
  return c->reducer + r;
}

bool ir_has_tensor(const IrCtx *c, int64_t t) { return t > 0 && t < c->n.tensor; }

bool ir_has_buffer(const IrCtx *c, int64_t b) { return b > 0 && b < c->n.buffer; }

IrBuffer *ir_buffer(IrCtx *c, BufferId b) {
  check_id(c, b, c->n.buffer, "buffer");
  return c->buffer + b;
}

const IrReduce *ir_reduce(const IrCtx *c, ExprId e) {
  err_assert(c->err, ir_kind(c, e) == IR_REDUCE);
  return c->reduce + ir_node(c, e)->sym;
}

static bool reduce_same(const IrReduce *a, const IrReduce *b) {
  if (a->reducer != b->reducer || a->n_src != b->n_src || a->n_axis != b->n_axis || a->cond != b->cond ||
      a->value_index != b->value_index || !a->init != !b->init)
    return false;
  for (int i = 0; i < a->n_src; i++)
    if (a->src[i] != b->src[i] || (a->init && a->init[i] != b->init[i])) return false;
  for (int i = 0; i < a->n_axis; i++)
    if (a->axis[i].var != b->axis[i].var || a->axis[i].min != b->axis[i].min || a->axis[i].extent != b->axis[i].extent)
      return false;
  return true;
}

static uint32_t reduce_hash(const IrReduce *r) {
  const int32_t head[] = {r->reducer, r->value_index, r->cond};
  uint64_t h = hash_bytes(r->src, (size_t)r->n_src * sizeof *r->src, hash_bytes(head, sizeof head, 0));
  return (uint32_t)hash_bytes(r->axis, (size_t)r->n_axis * sizeof *r->axis, h);
}

static void check_initial(IrCtx *c, ExprId init, DType t) {
  if (dtype_eq(ir_type(c, init), t)) return;
  StrBuf is, wanted;
  sb_init(&is, c->arena);
  sb_init(&wanted, c->arena);
  dtype_print(&is, ir_type(c, init));
  dtype_print(&wanted, t);
  err_raise(c->err, NS_ERR_TYPE,
            "the initial value %s of a reduction has type %s, its values have type %s; convert it with astype",
            ex_text(c, init), sb_str(&is), sb_str(&wanted));
}

ExprId ex_reduce(IrCtx *c, IrReduce r) {
  check_id(c, r.reducer, c->n.reducer, "reducer");
  err_check(c->err, r.n_src >= 1 && r.value_index >= 0 && r.value_index < r.n_src,
            "reduction over %d sources has no value %d", r.n_src, r.value_index);
  for (int i = 0; r.init && i < r.n_src; i++) check_initial(c, r.init[i], ir_type(c, r.src[i]));
  if (!r.cond) r.cond = ex_int(c, DT_BOOL, 1);
  r.hash = reduce_hash(&r);
  int32_t *last = &c->last_reduce[r.hash % IR_REDUCES], id = *last;
  while (id > 0 && !reduce_same(&c->reduce[id], &r)) id = c->reduce[id].before;
  if (id == 0) {
    r.before = *last;
    grow(c->arena, &c->reduce, &c->cap.reduce, c->n.reduce + 1, sizeof *c->reduce);
    r.src = copy_ids(c, r.src, r.n_src);
    r.init = copy_ids(c, r.init, r.n_src);
    r.axis = arena_copy(c->arena, r.axis, (size_t)r.n_axis * sizeof *r.axis);
    c->reduce[c->n.reduce] = r;
    *last = id = c->n.reduce++;
  }
  const IrReduce *q = &c->reduce[id];
  int n = 2 * q->n_axis + q->n_src * (q->init ? 2 : 1) + 1, k = 0;
  ExprId *kids = arena_array(c->arena, ExprId, n);
  for (int i = 0; i < q->n_axis; i++) {
    kids[k++] = q->axis[i].min;
    kids[k++] = q->axis[i].extent;
  }
  for (int i = 0; i < q->n_src; i++) kids[k++] = q->src[i];
  for (int i = 0; q->init && i < q->n_src; i++) kids[k++] = q->init[i];
  kids[k] = q->cond;
  return ctx_node(c, IR_REDUCE, ir_type(c, q->src[q->value_index]), id, n, kids, 0);
}

const char *ir_string(const IrCtx *c, ExprId e) { return c->str[ir_node(c, e)->u.i]; }
ExprId ex_str(IrCtx *c, const char *s) {
  int32_t id = c->n.str - 1;
  while (id > 0 && strcmp(c->str[id], s) != 0) id--;
  if (id == 0) {
    grow(c->arena, &c->str, &c->cap.str, c->n.str + 1, sizeof *c->str);
    c->str[c->n.str] = arena_strdup(c->arena, s);
    id = c->n.str++;
  }
  return ctx_node(c, IR_STR, dtype(DT_HANDLE, 64), 0, 0, NULL, id);
}

/* ---- walks ---- */
Walk *walk_begin(IrCtx *c) {
  if (c->err->depth >= IR_MAX_WALKS)
    err_raise(c->err, NS_ERR_INTERNAL, "walks over expressions nested deeper than %d", IR_MAX_WALKS);
  Walk *w = &c->walk[c->err->depth];
  if (w->cap < c->n.expr) {
    int32_t cap = w->cap;
    grow(c->arena, &w->stamp, &cap, c->n.expr, sizeof *w->stamp);
    cap = w->cap;
    grow(c->arena, &w->val, &cap, c->n.expr, sizeof *w->val);
    w->cap = cap;
  }
  if (++w->now == 0) { /* wrapped: no old stamp may look new */
    memset(w->stamp, 0, (size_t)w->cap * sizeof *w->stamp);
    w->now = 1;
  }
  c->err->depth++;
  return w;
}

void walk_end(IrCtx *c) { c->err->depth--; }
