/* overlap: where a kernel of a network waits for the launch before it, and where it lets the launch behind it begin
 * (Target.overlap, OVERLAP_HALF). A kernel whose slices are copied ahead:
 *
 *     copy A 0; copy B 0; commit                copy B 0; copy B 1               B: weights, which no kernel writes
 *     copy A 1; copy B 1; commit         =>     wait for the launch before; copy A 0; commit; copy A 1; commit
 *     for kt: S                                 for kt: if (kt == half) the launch behind may begin; S
 *     results                                   results
 *
 * (B 1 is of the first group then: who waits for slice 0 waits for it, too, which was under way before anything else.)
 *
 * The blocks of the launch behind take the room that is left on the multiprocessors, copy their first weights, and wait. All others
 * wait at their beginning (codegen/gpu.c).
 *
 * Why no kernel sees too little: a block says that the next launch may begin behind its own wait, and the next launch begins when all
 * blocks have said so, or ended. So when launch n + 1 begins, n - 1 and all before it have completed: buffers that the storage plan uses
 * again are safe. Before it touches memory that others write, each thread of n + 1 waits until n has completed. Constants, such as
 * weights, are written by no kernel; copies to them come before the graph, whose first kernel begins after everything. A kernel without a
 * wait is launched plainly: it begins after everything.
 *
 * Half, because a launch that begins at the end costs more than it gains (on an H100 a ResNet-18 of 182.6 us takes 180.6 with half of the
 * slices, 181.7 two slices before the end, 182.4 at the beginning, 205 behind the loop), and where the blocks come into each other's way
 * costs a lot: which kernels do so is measured (compiled/early.py).
 */
#include "lower/util.h"

typedef struct {
  const Func *f;
  IrCtx *c;
} Overlap;

/* ---- what a statement does ---- */

static bool others_write(const Overlap *x, BufferId b) {
  const IrBuffer *info = ir_buffer(x->c, b);
  if (!info->external) return info->scope == SC_GLOBAL;
  return !func_is_constant(x->f, b);
}
typedef struct {
  const Overlap *x;
  bool found;
} Touch;
static void touch_node(IrCtx *c, ExprId e, void *arg) {
  Touch *t = arg;
  const ExprNode *n = ir_node(c, e);
  t->found |= n->kind == IR_LOAD && others_write(t->x, n->sym);
}
static bool touches_self(IrCtx *c, const Stmt *s, void *arg) {
  Touch t = {arg, s->kind == ST_STORE && others_write(arg, s->u.store.buf)};
  st_visit_exprs(c, s, touch_node, &t);
  return t.found;
}
static bool touches(Overlap *x, const Stmt *s) { return st_any(x->c, s, touches_self, x); }

static bool is_copy(IrCtx *c, const Stmt *s, void *arg) { return (void)arg, st_calls(c, s, IN_COPY_ASYNC); }
/* Copies in flight and nothing else; commits, too? */
static bool copies(IrCtx *c, const Stmt *s, bool commits) {
  Stmt **kid;
  if (s->kind == ST_EVAL) return st_calls(c, s, IN_COPY_ASYNC) || (commits && st_calls(c, s, IN_COPY_COMMIT));
  if (s->kind != ST_SEQ && s->kind != ST_IF && s->kind != ST_FOR) return false;
  for (int i = 0; (kid = st_kid(s, i)); i++)
    if (*kid && !copies(c, *kid, commits)) return false;
  return true;
}

static bool goes_ahead(Overlap *x, const Stmt *s) { return copies(x->c, s, false) && !touches(x, s); }

/* ---- the kernel ---- */

static Stmt *called(IrCtx *c, Intrin in) { return st_eval(c, ex_call(c, in, DT_I32, 0, NULL)); }

/* The loop over the slices; NULL: there is none, or a single slice. */
static Stmt *slices(IrCtx *c, const Stmt *body, int *at) {
  int64_t n;
  for (int i = body->u.seq.n - 1; i >= 0; i--) {
    Stmt *s = body->u.seq.at[i];
    if (s->kind != ST_FOR || s->u.loop.kind != FOR_SERIAL || !ex_is_int(c, s->u.loop.min, 0)) continue;
    if (!ex_const_int(c, s->u.loop.extent, &n) || n < 2 || !st_any(c, s->u.loop.body, is_copy, NULL)) continue;
    *at = i;
    return s;
  }
  return NULL;
}

static Stmt *tells_at_half(IrCtx *c, const Stmt *loop) {
  Stmt *s = st_own(c, loop);
  int64_t n = 0;
  DType t = ir_var_info(c, s->u.loop.var)->type;
  ex_const_int(c, s->u.loop.extent, &n);
  ExprId half = ex_bin(c, IR_EQ, ex_var(c, s->u.loop.var), ex_int(c, t, n / 2));
  Stmt *both[] = {st_if(c, half, false, called(c, IN_LAUNCH_NEXT), NULL), s->u.loop.body};
  s->u.loop.body = st_seq(c, 2, both);
  return s;
}

/* What comes before the loop, at `loop`: copies of constants and then the wait before the first statement that touches what others
 * write. They change places with other copies, and with commits: they arrive earlier than they would. */
static Stmt *statements(Overlap *x, const Stmt *body) {
  IrCtx *c = x->c;
  int n = body->u.seq.n, loop, first = 0, k = 0;
  Stmt *s = slices(c, body, &loop), **old = body->u.seq.at;
  if (!s) return NULL;
  while (first < loop && !touches(x, old[first])) first++;
  int end = first;
  while (end < loop && copies(c, old[end], true)) end++;
  Stmt **at = arena_array(ir_arena(c), Stmt *, n + 1);
  for (int i = 0; i < first; i++) at[k++] = old[i];
  for (int i = first; i < end; i++)
    if (goes_ahead(x, old[i])) at[k++] = old[i];
  at[k++] = called(c, IN_LAUNCH_WAIT);
  for (int i = first; i < end; i++)
    if (!goes_ahead(x, old[i])) at[k++] = old[i];
  for (int i = end; i < n; i++) at[k++] = i == loop ? tells_at_half(c, s) : old[i];
  return st_seq(c, k, at);
}

/* The statements of a thread, through the loops of the launch and the arrays that are theirs. */
static Stmt *kernel(IrCtx *c, Stmt *s, void *arg) {
  bool around = s->kind == ST_ALLOC || s->kind == ST_ATTR || (s->kind == ST_FOR && s->u.loop.kind > FOR_VTHREAD);
  if (around) return st_rewrite(c, s, kernel, NULL, arg);
  Stmt *now = s->kind == ST_SEQ ? statements(arg, s) : NULL;
  return now ? now : s;
}

void pass_overlap(Func *f) {
  if (target_overlap(&f->target) != OVERLAP_HALF || f->use != LOW_CODE || !f->body) return;
  Overlap x = {f, f->ctx};
  f->body = low_each_kernel(f->ctx, f->body, kernel, &x);
}
