/* transform_layout: the tensor of a stage gets other dimensions, and its loops with it.
 *
 * The step's text is the map from the old indices $0, $1, ... to the new ones, separated by ";". A map is made of digits: digit
 * (v / div) % mod of index v, in mixed radix. Each new index is a sum of digits, each with the product of the extents of those behind
 * it as its weight; together the digits of an index make up its whole extent. Such maps can be turned around: a digit is read off its
 * new index by a division and a remainder, an old index is the sum of its digits. What would leave elements of the new tensor without
 * a value (an extent that a digit does not divide) is refused.
 *
 * A compute is made anew on the new axes, its body by the inverse map; an input becomes another input. Whoever reads the
 * tensor reads it through the map.
 */
#include "schedule/internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  int index;                     /* which old index it belongs to */
  int64_t div, mod, scale, size; /* mod 0: up to the end of the index; size: how many values it has */
  int place, top;                /* in new index `place`; top: nothing stands before it there */
} Digit;
typedef struct {
  IrCtx *c;
  Arena *a;
  const char *name;
  int n_old, n_new;
  VarId *old;
  ExprId *map;
  int64_t *size, *new_size; /* extents of old and new indices */
  VEC(Digit) digit;
} Map;

static void bad_map(Map *m, ExprId e, const char *why) {
  err_raise(ir_err(m->c), NS_ERR_VALUE, "transform_layout of %s: %s in %s", m->name, why, ex_text(m->c, e));
}

/* Appends the digits of an expression, each with its weight times scale. */
static void add_digits(Map *m, ExprId e, int64_t scale) {
  ExprNode n = *ir_node(m->c, e);
  int64_t k;
  ExprId a = n.n > 0 ? ir_kid(m->c, e, 0) : 0, b = n.n > 1 ? ir_kid(m->c, e, 1) : 0;
  if (n.kind == IR_VAR) {
    for (int i = 0; i < m->n_old; i++)
      if (m->old[i] == n.sym) {
        vec_push(m->a, &m->digit, ((Digit){.index = i, .div = 1, .scale = scale, .size = m->size[i]}));
        return;
      }
    bad_map(m, e, "a variable that is no index");
  } else if (n.kind == IR_ADD) {
    add_digits(m, a, scale);
    add_digits(m, b, scale);
  } else if (n.kind == IR_MUL && (ex_const_int(m->c, b, &k) || ex_const_int(m->c, a, &k))) {
    add_digits(m, ex_const_int(m->c, b, &k) ? a : b, scale * k);
  } else if (n.kind == IR_CAST) {
    add_digits(m, a, scale);
  } else if ((n.kind == IR_FDIV || n.kind == IR_FMOD || n.kind == IR_DIV || n.kind == IR_MOD) &&
             ex_const_int(m->c, b, &k) && k > 0) {
    int first = m->digit.len;
    add_digits(m, a, 1);
    Digit *d = &m->digit.at[first];
    if (m->digit.len - first != 1 || d->scale != 1) bad_map(m, e, "a quotient of a sum; divide single indices");
    bool quotient = n.kind == IR_FDIV || n.kind == IR_DIV;
    if (d->size > 1 && d->size % k)
      bad_map(m, e, "an extent that is no multiple of the divisor, so that the new tensor had gaps,");
    d->scale = scale;
    d->div *= quotient ? k : 1;
    d->size = quotient ? (d->size > k ? d->size / k : 1) : d->size > k ? k : d->size;
  } else if (!ex_is_int(m->c, e, 0)) {
    bad_map(m, e, "something else than sums, products with constants, quotients and remainders by constants");
  }
}

static int by_scale(const void *x, const void *y) {
  const Digit *a = x, *b = y;
  return a->scale < b->scale ? 1 : a->scale > b->scale ? -1 : 0;
}
static int by_index(const void *x, const void *y) {
  const Digit *a = x, *b = y;
  if (a->index != b->index) return a->index - b->index;
  return a->div < b->div ? -1 : a->div > b->div;
}

/* The digits of new index i, most significant first; digits with one value are none. */
static void new_index(Map *m, int i) {
  int first = m->digit.len;
  add_digits(m, m->map[i], 1);
  int n = 0;
  Digit *d = m->digit.at + first;
  for (int k = 0; k < m->digit.len - first; k++)
    if (d[k].size != 1) d[n++] = d[k];
  m->digit.len = first + n;
  qsort(d, (size_t)n, sizeof *d, by_scale);
  int64_t weight = 1;
  for (int k = n - 1; k >= 0; k--) {
    if (d[k].scale != weight) bad_map(m, m->map[i], "weights that are not the products of the extents behind");
    weight *= d[k].size;
    d[k].place = i;
    d[k].top = k == 0;
  }
  m->new_size[i] = weight;
}

/* inverse[v]: old index v by the new ones. */
static ExprId *inverse(Map *m, const ExprId *now) {
  IrCtx *c = m->c;
  ExprId *out = arena_array(m->a, ExprId, m->n_old + 1);
  int64_t *known = arena_array(m->a, int64_t, m->n_old + 1);
  qsort(m->digit.at, (size_t)m->digit.len, sizeof(Digit), by_index);
  for (int v = 0; v < m->n_old; v++) {
    out[v] = ex_int(c, ir_var_info(c, m->old[v])->type, 0);
    known[v] = 1;
  }
  for (int k = 0; k < m->digit.len; k++) {
    const Digit *d = &m->digit.at[k];
    DType t = ir_type(c, out[d->index]);
    ExprId e = ex_cast(c, t, now[d->place]);
    if (d->div != known[d->index]) break;
    if (d->scale > 1) e = ex_bin(c, IR_FDIV, e, ex_int(c, t, d->scale));
    if (!d->top) e = ex_bin(c, IR_FMOD, e, ex_int(c, t, d->size));
    out[d->index] = ex_add(c, out[d->index], ex_mul(c, e, ex_int(c, t, d->div)));
    known[d->index] *= d->size;
  }
  for (int v = 0; v < m->n_old; v++)
    err_check(ir_err(c), known[v] == m->size[v],
              "transform_layout of %s: the new indices do not tell index %d (extent %lld) apart; each must take part "
              "in the map, once",
              m->name, v, (long long)m->size[v]);
  return out;
}

static ExprId index_named(void *arg, const char *name) {
  const Map *m = arg;
  char *end;
  long k = name[0] == '$' ? strtol(name + 1, &end, 10) : -1;
  return k >= 0 && !*end && k < m->n_old ? ex_var(m->c, m->old[k]) : 0;
}
static TensorId no_tensor(void *arg NS_UNUSED, const char *name NS_UNUSED) { return 0; }

static Map read_map(State *s, const TeOp *op, const char *text) {
  IrCtx *c = s->ctx;
  const IrTensor t = *ir_tensor(c, op->out[0]);
  Map m = {.c = c, .a = ir_arena(c), .name = op->name, .n_old = t.rank};
  m.old = arena_array(m.a, VarId, t.rank + 1);
  m.size = arena_array(m.a, int64_t, t.rank + 1);
  for (int i = 0; i < t.rank; i++) {
    m.size[i] = te_const(c, t.shape[i]);
    m.old[i] = op->n_axis ? op->axis[i].var : ir_var_new(c, arena_printf(m.a, "i%d", i), ir_type(c, t.shape[i]), false);
  }
  VEC(ExprId) map = {0};
  for (const char *p = text; *p;) {
    size_t n = strcspn(p, ";");
    vec_push(m.a, &map, ex_parse(c, arena_printf(m.a, "%.*s", (int)n, p), &(ExprNames){index_named, no_tensor, &m}));
    p += n + (p[n] == ';');
  }
  m.map = map.at;
  m.n_new = map.len;
  m.new_size = arena_array(m.a, int64_t, m.n_new + 1);
  for (int i = 0; i < m.n_new; i++) new_index(&m, i);
  return m;
}

/* The operation with the new dimensions. */
static TeOp *moved(State *s, const TeOp *x, Map *m) {
  IrCtx *c = s->ctx;
  TeAxis *axis = arena_array(m->a, TeAxis, m->n_new + 1);
  ExprId *now = arena_array(m->a, ExprId, m->n_new + 1), *shape = arena_array(m->a, ExprId, m->n_new + 1);
  for (int i = 0; i < m->n_new; i++) {
    DType t = ir_type(c, m->map[i]);
    shape[i] = ex_int(c, t, m->new_size[i]);
    axis[i] = (TeAxis){.name = arena_printf(m->a, "axis%d", i), .min = ex_int(c, t, 0), .extent = shape[i]};
    axis[i].var = ir_var_new(c, axis[i].name, t, false);
    now[i] = ex_var(c, axis[i].var);
  }
  const ExprId *old = inverse(m, now);
  if (x->kind == TE_PLACEHOLDER) return te_placeholder(c, x->name, ir_tensor(c, x->out[0])->type, m->n_new, shape);
  VarSub *sub = arena_array(m->a, VarSub, m->n_old + 1);
  for (int i = 0; i < m->n_old; i++) sub[i] = (VarSub){m->old[i], old[i]};
  ExprId *body = arena_array(m->a, ExprId, x->n_out);
  for (int i = 0; i < x->n_out; i++) body[i] = ex_subst(c, x->body[i], m->n_old, sub);
  return te_compute(c, x->name, x->tag, m->n_new, axis, x->n_out, body, x->n_attr, x->attr);
}

typedef struct {
  const Map *m;
  const TeOp *from, *to;
} Reread;
static ExprId reread(IrCtx *c, ExprId e, void *arg) {
  const Reread *r = arg;
  ExprNode n = *ir_node(c, e);
  int k = 0;
  while (n.kind == IR_READ && k < r->from->n_out && r->from->out[k] != n.sym) k++;
  if (n.kind != IR_READ || k == r->from->n_out) return e;
  VarSub *sub = arena_array(r->m->a, VarSub, r->m->n_old + 1);
  ExprId *index = arena_array(r->m->a, ExprId, r->m->n_new + 1);
  for (int i = 0; i < r->m->n_old; i++) sub[i] = (VarSub){r->m->old[i], ir_kid(c, e, i)};
  for (int i = 0; i < r->m->n_new; i++) index[i] = ex_subst(c, r->m->map[i], r->m->n_old, sub);
  return ex_read(c, r->to->out[k], r->m->n_new, index);
}

TeOp *transformed(State *s, int stage, const char *text, Swap *w) {
  IrCtx *c = s->ctx;
  const TeOp *x = s->stage.at[stage].op;
  Map m = read_map(s, x, text);
  TeOp *y = moved(s, x, &m);
  Reread r = {&m, x, y};
  for (int q = stage + 1; q < s->stage.len; q++) {
    const TeOp *old = s->stage.at[q].op;
    bool reads = false;
    for (int k = 0; k < x->n_out; k++) reads |= te_listed(old->n_in, old->in, x->out[k]);
    if (!reads) continue;
    err_check(S_ERR(s), !old->by_hand, "transform_layout of %s: stage %s, which reads it, is made of statements",
              x->name, old->name);
    ExprId *body = arena_array(m.a, ExprId, old->n_out);
    for (int i = 0; i < old->n_out; i++) body[i] = ex_map(c, old->body[i], reread, &r);
    TeOp *now = te_op_with_body(c, old, body);
    swap_outputs(m.a, w, old, now);
    s->stage.at[q].op = now;
  }
  swap_outputs(m.a, w, x, y);
  return y;
}
