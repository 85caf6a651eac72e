/* Features of the loops of a program, by which template tuners compare schedules (spec 06 §2.9).
 *
 * Every loop, thread and virtual thread of the program is an itervar. A walk keeps the stack of open itervars; at an access
 * each of them notes by how much it moves the access. When an itervar closes, its length multiplies what all open ones know
 * of the accesses inside it: the `count` of elements touched where it moves the access, the `reuse` where it does not.
 *
 * An itervar is known by its variable, a thread by its thread axis, which several loops may share. Binding an axis again
 * freezes its old record and starts a new one; a virtual thread that comes again is passed through. The published rules
 * follow from a table keyed by variables; what looks odd here (an axis that stands twice on the stack multiplies twice)
 * follows from it, too, and logs and models compare features.
 */
#include "model/itervar.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 256, MAX_INDEX_VARS = 64, KINDS = 11 };

typedef struct {
  IrCtx *c;
  Arena *a;
  VEC(LoopFact) loop;
  MapU64 record, key_of; /* key -> its record; variable -> key */
  MapStr seen;           /* buffer name -> accesses so far */
  int32_t n_open, n_access;
  uint64_t open[MAX_DEPTH];
  int64_t top_down;
} Walker;

static int64_t times(int64_t a, int64_t b) {
  int64_t out;
  return i64_mul(a, b, &out) ? out : INT64_MAX;
}
static LoopFact *record(Walker *w, uint64_t key) { return &w->loop.at[mapu_get(&w->record, key, -1)]; }

/* An access inside of this loop, by its number; NULL: an older record of the loop has it. */
static Touch *find_touch(LoopFact *l, int32_t access) {
  int32_t lo = 0, hi = l->touch.len;
  while (lo < hi) {
    int32_t mid = (lo + hi) / 2;
    if (l->touch.at[mid].access < access)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo < l->touch.len && l->touch.at[lo].access == access ? &l->touch.at[lo] : NULL;
}

/* ---- accesses ---- */
typedef struct {
  int n;
  uint64_t key[MAX_INDEX_VARS];
  int64_t stride[MAX_INDEX_VARS];
} Strides;

/* Left to right; a variable counts where it appears first. */
static void parse_index(Walker *w, ExprId e, int64_t stride, Strides *s) {
  const ExprNode *n = ir_node(w->c, e);
  if (n->kind == IR_VAR) {
    uint64_t key = (uint64_t)mapu_get(&w->key_of, (uint64_t)n->sym, 0);
    for (int i = 0; i < s->n; i++)
      if (s->key[i] == key) return;
    if (key && s->n < MAX_INDEX_VARS) s->key[s->n] = key, s->stride[s->n++] = stride;
    return;
  }
  int64_t k;
  bool scaled =
      n->kind == IR_MUL && ir_kind(w->c, ir_kid(w->c, e, 0)) == IR_VAR && ex_const_int(w->c, ir_kid(w->c, e, 1), &k);
  for (int i = 0; i < ir_node(w->c, e)->n; i++) parse_index(w, ir_kid(w->c, e, i), scaled ? k : 1, s);
}

static void enter_access(Walker *w, BufferId buf, ExprId index) {
  const char *buffer = ir_buffer(w->c, buf)->name;
  int32_t number = maps_get(&w->seen, buffer, 0);
  maps_set(&w->seen, buffer, number + 1);
  Touch t = {
      .name = arena_printf(w->a, "%s_%d", buffer, number), .access = w->n_access++, .mod = -1, .count = 1, .reuse = 1};
  Strides s = {0};
  parse_index(w, index, 1, &s);
  for (int i = 0; i < w->n_open; i++) {
    LoopFact *l = record(w, w->open[i]);
    if (l->touch.len && l->touch.at[l->touch.len - 1].access == t.access) continue; /* it stands on the stack twice */
    t.stride = 0;
    for (int k = 0; k < s.n; k++)
      if (s.key[k] == w->open[i]) t.stride = s.stride[k];
    vec_push(w->a, &l->touch, t);
  }
}

static void walk_expr(Walker *w, ExprId e) {
  ExprNode n = *ir_node(w->c, e);
  if (dtype_is_float(n.type) && w->n_open) {
    LoopFact *l = record(w, w->open[w->n_open - 1]);
    if (n.kind == IR_ADD || n.kind == IR_SUB) l->add++;
    if (n.kind == IR_MUL) l->mul++;
    if (ir_is_division(n.kind)) l->div++;
  }
  if (n.kind == IR_LOAD) enter_access(w, n.sym, ir_kid(w->c, e, 0));
  for (int i = 0; i < n.n; i++) walk_expr(w, ir_kid(w->c, e, i));
}

/* ---- loops ---- */
static int level(ForKind k) { return for_is_block(k) ? 2 : for_is_thread(k) || k == FOR_PARALLEL ? 1 : 0; }

/* false: it is passed through. */
static bool enter_loop(Walker *w, const Stmt *s) {
  /* two kinds of numbers in 32 bits: thread axes are odd, variables are even */
  uint64_t key = s->u.loop.thread_obj ? 2 * (uint64_t)s->u.loop.thread_obj + 1 : 2 * (uint64_t)s->u.loop.var;
  mapu_set(&w->key_of, (uint64_t)s->u.loop.var, (int32_t)key);
  if (s->u.loop.kind == FOR_VTHREAD && mapu_get(&w->record, key, -1) >= 0) return false;
  err_check(ir_err(w->c), w->n_open < MAX_DEPTH, "more than %d loops are nested in each other", MAX_DEPTH);
  int64_t n = -1;
  ex_const_int(w->c, s->u.loop.extent, &n);
  w->top_down = times(w->top_down, n);
  w->open[w->n_open++] = key;
  mapu_set(&w->record, key, w->loop.len);
  const char *name = ir_var_info(w->c, s->u.loop.var)->name;
  LoopFact l = {.name = name, .length = n, .nest = w->n_open, .top_down = w->top_down, .kind = s->u.loop.kind};
  vec_push(w->a, &w->loop, l);
  return true;
}

/* What v knows of its accesses becomes the base of those around it that are parallel on the next level. */
static void push_base(Walker *w, const LoopFact *v) {
  int up = level(v->kind) + 1;
  if (!w->n_open || level(record(w, w->open[w->n_open - 1])->kind) != up) return;
  for (int b = 0; b < v->touch.len; b++)
    for (int i = 0; i < w->n_open; i++) {
      LoopFact *u = record(w, w->open[i]);
      Touch *t = level(u->kind) == up ? find_touch(u, v->touch.at[b].access) : NULL;
      if (t) t->thread_count = -v->touch.at[b].count, t->thread_reuse = -v->touch.at[b].reuse;
    }
}

static void leave_loop(Walker *w) {
  LoopFact *v = record(w, w->open[w->n_open - 1]);
  for (int b = 0; b < v->touch.len; b++)
    for (int i = 0; i < w->n_open; i++) {
      Touch *t = find_touch(record(w, w->open[i]), v->touch.at[b].access);
      if (!t) continue;
      int64_t *grows = v->touch.at[b].stride != 0 ? &t->count : &t->reuse;
      *grows = times(*grows, v->length);
    }
  w->n_open--;
  if (v->length != 0) w->top_down /= v->length;
  v->bottom_up = -1;
  for (int b = 0; b < v->touch.len; b++) {
    int64_t n = times(v->touch.at[b].count, v->touch.at[b].reuse);
    if (n > v->bottom_up) v->bottom_up = n;
  }
  push_base(w, v);
  for (int b = 0; b < v->touch.len; b++) {
    Touch *t = &v->touch.at[b];
    if (t->thread_count >= 0) continue;
    t->thread_count = t->count / -t->thread_count;
    t->thread_reuse = t->reuse / -t->thread_reuse;
  }
}

static void walk(Walker *w, const Stmt *s) {
  bool entered = s->kind == ST_FOR && enter_loop(w, s);
  ExprId *e;
  Stmt **kid;
  if (s->kind == ST_STORE) {
    enter_access(w, s->u.store.buf, s->u.store.idx[0]);
    walk_expr(w, s->u.store.value);
  } else
    for (int i = 0; (e = st_expr(s, i)); i++) walk_expr(w, *e);
  for (int i = 0; (kid = st_kid(s, i)); i++)
    if (*kid) walk(w, *kid);
  if (entered) leave_loop(w);
}

static int by_name(const void *p, const void *q) { return strcmp(((const Touch *)p)->name, ((const Touch *)q)->name); }

LoopFacts itervar_facts(const Func *f) {
  Walker w = {.c = f->ctx, .a = ir_arena(f->ctx), .top_down = 1};
  err_assert(ir_err(f->ctx), f->flat && f->use == LOW_ANALYSIS);
  mapu_init(&w.record, w.a);
  mapu_init(&w.key_of, w.a);
  maps_init(&w.seen, w.a);
  if (f->body) walk(&w, f->body);
  for (int i = 0; i < w.loop.len; i++)
    if (w.loop.at[i].touch.len) qsort(w.loop.at[i].touch.at, (size_t)w.loop.at[i].touch.len, sizeof(Touch), by_name);
  return (LoopFacts){w.loop.len, w.loop.at};
}

/* ---- vectors ---- */
static void put(Arena *a, FloatVec *out, double v) { vec_push(a, out, (float)v); }
static void put_log(Arena *a, FloatVec *out, int64_t x) {
  double v = (double)x;
  put(a, out, x >= 0 ? log2(v + 1) : -log2(1 - v));
}

void itervar_vector(Arena *a, const LoopFacts *l, FloatVec *out) {
  static const ForKind PLACE[KINDS] = {FOR_BLOCK_X,  FOR_BLOCK_Y,  FOR_BLOCK_Z,  FOR_THREAD_X,
                                       FOR_THREAD_Y, FOR_THREAD_Z, FOR_UNROLLED, FOR_VECTOR,
                                       FOR_PARALLEL, FOR_SERIAL,   FOR_VTHREAD};
  for (int i = 0; i < l->n; i++) {
    const LoopFact *x = &l->at[i];
    put_log(a, out, x->length);
    put(a, out, (double)x->nest);
    put_log(a, out, x->top_down);
    put_log(a, out, x->bottom_up);
    for (int k = 0; k < KINDS; k++) put(a, out, x->kind == PLACE[k]);
    put_log(a, out, x->add);
    put_log(a, out, x->mul);
    put_log(a, out, x->div);
    for (int b = 0; b < x->touch.len; b++) {
      const Touch *t = &x->touch.at[b];
      const int64_t value[] = {t->stride, t->mod, t->count, t->reuse, t->thread_count, t->thread_reuse};
      for (int k = 0; k < NS_COUNT(value); k++) put_log(a, out, value[k]);
    }
  }
}

/* ---- curves: how reuse, count and the product of outer loops grow together over the loops around one access ---- */
typedef VEC(double) Curve;
typedef struct {
  const char *name;
  int32_t access;
  Curve reuse, count, outer;
} Buffer;
typedef VEC(Buffer) Buffers;

/* Length of the buffer's name without the number of the access and without its memory: "A.local_2" is "A". */
static size_t raw_length(const char *name) {
  size_t n = (size_t)(strrchr(name, '_') - name);
  const char *dot = memchr(name, '.', n);
  return dot ? (size_t)(dot - name) : n;
}
static int by_buffer(const void *p, const void *q) {
  return strcmp(((const Buffer *)p)->name, ((const Buffer *)q)->name);
}

/* The last access to each buffer in the innermost loops. */
static Buffers innermost(Arena *a, const LoopFacts *l) {
  Buffers out = {0};
  int64_t depth = 0;
  for (int i = 0; i < l->n; i++)
    if (l->at[i].nest > depth) depth = l->at[i].nest;
  for (int i = l->n - 1; i >= 0; i--)
    for (int b = 0; l->at[i].nest == depth && b < l->at[i].touch.len; b++) {
      const Touch *t = &l->at[i].touch.at[b];
      size_t n = raw_length(t->name);
      bool known = false;
      for (int k = 0; k < out.len && !known; k++)
        known = raw_length(out.at[k].name) == n && !memcmp(out.at[k].name, t->name, n);
      if (!known) vec_push(a, &out, ((Buffer){.name = t->name, .access = t->access}));
    }
  if (out.len) qsort(out.at, (size_t)out.len, sizeof(Buffer), by_buffer);
  return out;
}

static double lg(int64_t v) { return v > 1 ? log2((double)v) : 0; }

static void sample(Arena *a, const Curve *x, const Curve *y, int samples, FloatVec *out) {
  for (int i = 0; i < samples; i++) {
    int j = x->len - 1;
    while (j > 0 && !(i > x->at[j] - 1e-6)) j--;
    put(a, out, y->at[j]);
    put(a, out, i - x->at[j]);
  }
}

void curve_vector(Arena *a, const LoopFacts *l, int samples, FloatVec *out) {
  Buffers buffers = innermost(a, l);
  for (int k = 0; k < buffers.len; k++) {
    Buffer *b = &buffers.at[k];
    Curve *curve[] = {&b->reuse, &b->count, &b->outer};
    for (int i = 0; i < NS_COUNT(curve); i++) vec_push(a, curve[i], 0);
    for (int i = 0; i < l->n; i++)
      for (int t = 0; t < l->at[i].touch.len; t++) {
        const Touch *x = &l->at[i].touch.at[t];
        if (x->access != b->access) continue;
        vec_push(a, &b->reuse, lg(x->reuse));
        vec_push(a, &b->count, lg(x->count));
        vec_push(a, &b->outer, lg(l->at[i].top_down));
      }
    for (int i = 0; i < NS_COUNT(curve); i++) qsort(curve[i]->at, (size_t)curve[i]->len, sizeof(double), f64_ascending);
    sample(a, &b->count, &b->reuse, samples, out);
    sample(a, &b->reuse, &b->count, samples, out);
    sample(a, &b->count, &b->outer, samples, out);
    sample(a, &b->outer, &b->count, samples, out);
  }
}
