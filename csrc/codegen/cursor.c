/* Cursors: pointers that advance with a loop over slices, in place of an address for each copy.
 *
 *     for kt: copy(&As[..], &A[x + kt * 64 + 0]); copy(&As[..], &A[x + kt * 64 + 131072])
 * =>
 *     p = A + x; for kt: copy(&As[..], p + 0); copy(&As[..], p + 131072); p += 64
 *
 * Compilers for GPUs leave a multiplication of 64 bits per copy where products are under way, which costs a tenth of a kernel of
 * 4096 x 4096 x 4096 (float16 on an H100: 0.86 of cuBLAS before, 0.99 behind). Copies whose place depends on the loop in another way
 * (a convolution's taps) stay what they are, and so do copies of a loop that runs once, or not from 0 on.
 */
#include "codegen/gen.h"

enum { MAX_CURSORS = 16 };
typedef struct {
  BufferId buf;
  ExprId base; /* of the index, without constants; 0: none */
  int64_t by;  /* elements per turn of the loop */
  const char *name;
} Cursor;
typedef struct {
  int32_t cursor;
  int64_t offset;
} Place;
struct Cursors {
  const Cursors *outside; /* of the loops around this one */
  Gen *g;
  VarId loop;
  int32_t n_live; /* variables that are known before the loop */
  int n;
  Cursor at[MAX_CURSORS];
  MapU64 of; /* element that is copied -> where it is */
  VEC(Place) place;
};

/* ---- an index as base + by * loop + constant ---- */

typedef struct {
  const Cursors *w;
  int64_t by;
  bool linear;
} Line;

/* e * scale without its terms of the loop, which are counted; 0: nothing is left. */
static ExprId rest(Line *l, ExprId e, int64_t scale) {
  IrCtx *c = l->w->g->c;
  const ExprNode n = *ir_node(c, e);
  int64_t k;
  if (!ex_uses_var(c, e, l->w->loop)) return scale == 1 ? e : ex_mul(c, e, ex_int(c, n.type, scale));
  if (n.kind == IR_VAR) {
    l->by += scale;
    return 0;
  }
  if (n.kind == IR_ADD) {
    ExprId x = rest(l, ir_kid(c, e, 0), scale), y = rest(l, ir_kid(c, e, 1), scale);
    return !x ? y : !y ? x : ex_add(c, x, y);
  }
  if (n.kind == IR_MUL && ex_const_int(c, ir_kid(c, e, 1), &k) && i64_mul(scale, k, &k))
    return rest(l, ir_kid(c, e, 0), k);
  l->linear = false;
  return e;
}

typedef struct {
  const Cursors *w;
  bool known;
} Scope;
static void var_is_known(IrCtx *c, ExprId e, void *arg) {
  Scope *s = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_LOAD) s->known = false;
  if (n->kind != IR_VAR) return;
  bool live = false;
  for (int i = 0; i < s->w->n_live && !live; i++) live = s->w->g->live_var.at[i] == n->sym;
  s->known = s->known && live;
}

/* Element `load` as a place beside a cursor; false: it does not advance evenly. */
static bool advances(const Cursors *w, ExprId load, Cursor *cursor, int64_t *offset) {
  IrCtx *c = w->g->c;
  const ExprNode n = *ir_node(c, load);
  Line l = {w, 0, true};
  if (n.n != 1 || ir_buffer(c, n.sym)->scope != SC_GLOBAL || ir_type(c, ir_kid(c, load, 0)).lanes > 1) return false;
  ExprId base = rest(&l, ir_kid(c, load, 0), 1);
  *offset = 0;
  if (base) base = gen_strip_constants(w->g, ar_simplify(w->g->ar, base), offset);
  Scope s = {w, true};
  if (base) ex_post_order(c, base, var_is_known, &s);
  *cursor = (Cursor){.buf = n.sym, .base = base, .by = l.by};
  return l.linear && l.by != 0 && s.known;
}

static int find(const Cursors *w, const Cursor *x) {
  for (int i = 0; i < w->n; i++)
    if (w->at[i].buf == x->buf && w->at[i].base == x->base && w->at[i].by == x->by) return i;
  return -1;
}

static void note(IrCtx *c, ExprId e, void *arg) {
  Cursors *w = arg;
  const ExprNode *n = ir_node(c, e);
  Cursor x;
  Place p;
  if (n->kind != IR_CALL || n->sym != IN_COPY_ASYNC || !advances(w, ir_kid(c, e, 2), &x, &p.offset)) return;
  p.cursor = find(w, &x);
  if (p.cursor < 0 && w->n == MAX_CURSORS) return;
  if (p.cursor < 0) w->at[p.cursor = w->n++] = x;
  vec_note(w->g->a, &w->place, p, &w->of, ir_kid(c, e, 2));
}

/* ---- text ---- */

const Cursors *gen_cursors_open(Gen *g, const Stmt *loop) {
  int64_t extent;
  if (g->t->kind != TG_CUDA || loop->u.loop.kind != FOR_SERIAL || !ex_const_int(g->c, loop->u.loop.extent, &extent) ||
      !ex_is_int(g->c, loop->u.loop.min, 0) || extent < 2)
    return NULL;
  Cursors *w = arena_new_of(g->a, Cursors);
  *w = (Cursors){.outside = g->cursors, .g = g, .loop = loop->u.loop.var, .n_live = g->live_var.len};
  mapu_init(&w->of, g->a);
  gen_walk(g, loop->u.loop.body, note, NULL, w);
  if (w->n == 0) return NULL;
  for (int i = 0; i < w->n; i++) {
    Cursor *x = &w->at[i];
    x->name = gen_fresh(g, arena_printf(g->a, "%s_from", gen_buf(g, x->buf)));
    gen_linef(g, "const %s *%s = %s", gen_storage(g, ir_buffer(g->c, x->buf)->type), x->name, gen_buf(g, x->buf));
    if (x->base) {
      sb_puts(g->o, " + ");
      g->plain = PLAIN_INDEX;
      gx(g, x->base);
    }
    sb_puts(g->o, ";\n");
  }
  return w;
}

void gen_cursors_close(Gen *g, const Cursors *w) {
  for (int i = 0; w && i < w->n; i++) gen_linef(g, "%s += %lld;\n", w->at[i].name, (long long)w->at[i].by);
}

const char *gen_cursor(Gen *g, ExprId load) {
  for (const Cursors *w = g->cursors; w; w = w->outside) {
    int32_t i = mapu_get(&w->of, (uint64_t)load, -1);
    if (i < 0) continue;
    const Place *p = &w->place.at[i];
    return arena_printf(g->a, "%s + %lld", w->at[p->cursor].name, (long long)p->offset);
  }
  return NULL;
}
