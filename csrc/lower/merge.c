/* merge: kernels of few blocks that follow each other become one.
 *
 *     kernel 1: blockIdx.x < 4, threadIdx.x < 64: S1            blockIdx.z < 6 (a cluster), threadIdx.x < 64:
 *     kernel 2: blockIdx.x < 6, threadIdx.x < 32: S2     =>       if (blockIdx.z < 4) S1
 *                                                                 all threads of the cluster wait for each other
 *                                                                 if (threadIdx.x < 32) S2
 *
 * A launch that depends on the one before costs a microsecond or two, however little it does. The blocks of the merged one are a single
 * cluster, which the hardware starts as a whole: they can wait for each other, whatever else runs. A kernel of more blocks than the
 * cluster has takes several turns; between these, barriers keep what is in shared memory apart.
 *
 * While the first kernel runs, the weights of the others come into the second-level cache: nobody writes them, so that they are asked for
 * before the launch waits for the one before it. That one behind may begin at once, if kernels let others begin at all
 * (Target.overlap): a chain leaves most of the device free.
 *
 * Where only some of the threads take part, the barriers of the kernel are for all: the condition goes around what is between them. It
 * is the kernels as they are compiled that are merged, so that each computes what it did, to the bit.
 */
#include "lower/util.h"

enum { AXES = 6 };
typedef struct {
  VarId var[AXES]; /* by ForKind, from FOR_BLOCK_X on; 0: there is none */
  ExprId min[AXES];
  bool shares; /* it has arrays in shared memory */
} Peeled;
typedef struct {
  IrCtx *c;
  int64_t blocks, threads;
  VarId block, thread;
  VEC(BufferId) shared;
} Merge;

static int64_t volume(const int64_t *n) { return n[0] * n[1] * n[2]; }

/* ---- what can be merged ---- */
static bool is_special(IrCtx *c, const Stmt *s, void *arg) {
  (void)arg;
  if (s->kind != ST_EVAL || ir_kind(c, s->u.eval.e) != IR_CALL) return false;
  return ir_node(c, s->u.eval.e)->sym >= IN_COPY_ASYNC && ir_node(c, s->u.eval.e)->sym <= IN_LAUNCH_NEXT;
}
static bool is_shuffle(IrCtx *c, ExprId e, void *arg) {
  int32_t in = ir_kind(c, e) == IR_CALL ? ir_node(c, e)->sym : 0;
  return (void)arg, in == IN_SHFL || in == IN_SHFL_DOWN;
}
static bool shuffles(IrCtx *c, const Stmt *s, void *arg) {
  ExprId *e;
  for (int i = 0; (e = st_expr(s, i)); i++)
    if (*e && ex_any(c, *e, is_shuffle, arg)) return true;
  return false;
}
static void check(const Merge *m, const Kernel *k) {
  IrCtx *c = m->c;
  int64_t threads = volume(k->block);
  err_check(ir_err(c), !st_synced(c, k->body) && !st_any(c, k->body, is_special, NULL),
            "kernel %s cannot be merged: it uses instructions of tensor cores, clusters or launches", k->name);
  err_check(ir_err(c), threads % GPU_WARP == 0 || threads == m->threads || !st_any(c, k->body, shuffles, NULL),
            "kernel %s cannot be merged: the threads of a warp exchange values, and some of them would not be there",
            k->name);
}

/* ---- a kernel as a part ---- */
static Stmt *peel(Merge *m, Stmt *s, Peeled *p) {
  IrCtx *c = m->c;
  for (;;) {
    if (s->kind == ST_FOR && s->u.loop.kind > FOR_VTHREAD) {
      p->var[s->u.loop.kind - FOR_BLOCK_X] = s->u.loop.var;
      p->min[s->u.loop.kind - FOR_BLOCK_X] = s->u.loop.min;
      s = s->u.loop.body;
    } else if (s->kind == ST_ALLOC && ir_buffer(c, s->u.alloc.buf)->scope == SC_SHARED) {
      vec_push(ir_arena(c), &m->shared, s->u.alloc.buf);
      p->shares = true;
      s = s->u.alloc.body;
    } else
      return s;
  }
}

/* The three indices of block or thread number `at` of a kernel, which has at least that many. */
static int indices(Merge *m, const Peeled *p, int first, const int64_t *extent, ExprId at, VarSub *sub) {
  IrCtx *c = m->c;
  int64_t beyond = volume(extent);
  int n = 0;
  for (int i = 0; i < 3; i++) {
    beyond /= extent[i];
    ExprId width = ex_i32(c, extent[i]), own = beyond > 1 ? ex_bin(c, IR_MOD, at, width) : at;
    if (beyond > 1) at = ex_bin(c, IR_DIV, at, width);
    VarId v = p->var[first + i];
    if (!v) continue;
    DType t = ir_var_info(c, v)->type;
    if (extent[i] == 1) own = ex_i32(c, 0);
    sub[n++] = (VarSub){v, ex_add(c, p->min[first + i], ex_cast(c, t, own))};
  }
  return n;
}

static bool is_barrier(IrCtx *c, const Stmt *s, void *arg) { return (void)arg, st_calls(c, s, IN_SYNC_SHARED); }
static bool meets(IrCtx *c, const Stmt *s) { return st_any(c, s, is_barrier, NULL); }

/* s under a condition, but for its barriers. */
static Stmt *guarded(IrCtx *c, Stmt *s, void *cond) {
  ExprId *e;
  if (!meets(c, s)) return st_if(c, *(const ExprId *)cond, false, s, NULL);
  if (s->kind == ST_EVAL) return s;
  for (int i = 0; (e = st_expr(s, i)); i++)
    err_check(ir_err(c), !*e || !low_expr_loads(c, *e),
              "a kernel cannot be merged: what its barriers stand in depends on memory");
  if (s->kind != ST_SEQ) return st_rewrite(c, s, guarded, NULL, cond);
  Stmt **at = arena_array(ir_arena(c), Stmt *, s->u.seq.n);
  int n = 0;
  for (int i = 0, end; i < s->u.seq.n; i = end) { /* as many at once as no barrier stands between */
    end = i + 1;
    while (!meets(c, s->u.seq.at[i]) && end < s->u.seq.n && !meets(c, s->u.seq.at[end])) end++;
    at[n++] = guarded(c, st_seq(c, end - i, s->u.seq.at + i), cond);
  }
  return st_seq(c, n, at);
}

static ExprId below(IrCtx *c, ExprId e, int64_t n) { return ex_bin(c, IR_LT, e, ex_i32(c, n)); }

static Stmt *part(Merge *m, const Kernel *k) {
  IrCtx *c = m->c;
  Peeled p = {0};
  VarSub sub[AXES];
  int64_t blocks = volume(k->grid), threads = volume(k->block), turns = i64_ceildiv(blocks, m->blocks);
  VarId turn = ir_var_new(c, "turn", DT_I32, false);
  ExprId block = ex_var(c, m->block), thread = ex_var(c, m->thread);
  if (turns > 1) block = ex_add(c, ex_mul(c, ex_var(c, turn), ex_i32(c, m->blocks)), block);
  Stmt *s = peel(m, low_copy(c, k->body, 0, 0), &p);
  int n = indices(m, &p, 0, k->grid, block, sub);
  n += indices(m, &p, 3, k->block, thread, sub + n);
  s = st_subst(c, s, n, sub);
  ExprId some = below(c, thread, threads);
  if (threads < m->threads) s = guarded(c, s, &some);
  if (turns * m->blocks > blocks) s = st_if(c, below(c, block, blocks), false, s, NULL);
  if (turns == 1) return s;
  Stmt *both[] = {s, p.shares ? low_barrier(c) : NULL};
  return st_for(c, turn, ex_i32(c, 0), ex_i32(c, turns), FOR_SERIAL, st_seq(c, 2, both));
}

/* ---- what comes first ---- */
static int64_t elements(IrCtx *c, BufferId b) {
  int64_t n = 1, extent;
  const IrBuffer info = *ir_buffer(c, b);
  for (int d = 0; d < info.rank; d++) {
    bool fits = ex_const_int(c, info.extent[d], &extent) && i64_mul(n, extent, &n);
    err_check(ir_err(c), fits, "the shape of buffer '%s' is not constant", info.name);
  }
  return n;
}

typedef struct {
  const Func *f;
  VEC(BufferId) weight;
} Weights;
static void read_weight(IrCtx *c, ExprId e, void *arg) {
  Weights *w = arg;
  BufferId b = ir_kind(c, e) == IR_LOAD ? ir_node(c, e)->sym : 0;
  for (int i = 0; i < w->weight.len && b; i++)
    if (w->weight.at[i] == b) return;
  if (b && func_is_constant(w->f, b)) vec_push(ir_arena(c), &w->weight, b);
}
static bool read_weights(IrCtx *c, const Stmt *s, void *arg) { return st_visit_exprs(c, s, read_weight, arg), true; }

/* More than that does not come while a small kernel runs, and takes the place of what it needs itself. */
enum { FETCHED = 256 << 10, FETCH_UNIT = 16 };
static Stmt *fetched(Merge *m, const Func *f, int n, const Kernel *const *k) {
  IrCtx *c = m->c;
  Weights w = {.f = f};
  int64_t room = FETCHED;
  Stmt *s = NULL;
  for (int i = 1; i < n; i++) st_visit(c, k[i]->body, read_weights, NULL, &w);
  for (int i = 0; i < w.weight.len; i++) {
    DType t = ir_buffer(c, w.weight.at[i])->type;
    int64_t bytes = elements(c, w.weight.at[i]) * dtype_bytes(t) / FETCH_UNIT * FETCH_UNIT;
    if (bytes == 0 || bytes > room) continue;
    room -= bytes;
    ExprId zero = ex_i32(c, 0), args[] = {ex_load(c, w.weight.at[i], t, 1, &zero), ex_i32(c, bytes)};
    Stmt *both[] = {s, st_eval(c, ex_call(c, IN_PREFETCH_RANGE, DT_I32, 2, args))};
    s = st_seq(c, 2, both);
  }
  ExprId first = ex_bin(c, IR_AND, below(c, ex_var(c, m->block), 1), below(c, ex_var(c, m->thread), 1));
  return s ? st_if(c, first, false, s, NULL) : NULL;
}

static Stmt *called(IrCtx *c, Intrin in) { return st_eval(c, ex_call(c, in, DT_I32, 0, NULL)); }
static Stmt *beginning(Merge *m, const Func *f, int n, const Kernel *const *k) {
  int overlap = target_overlap(&f->target);
  Stmt *at[] = {fetched(m, f, n, k), overlap != OVERLAP_NONE ? called(m->c, IN_LAUNCH_WAIT) : NULL,
                overlap == OVERLAP_HALF ? called(m->c, IN_LAUNCH_NEXT) : NULL};
  return st_seq(m->c, NS_COUNT(at), at);
}

/* ---- the whole ---- */
static Stmt *kernels(Merge *m, const Func *f, int n, const Kernel *const *k) {
  IrCtx *c = m->c;
  Stmt **at = arena_array(ir_arena(c), Stmt *, 2 * n);
  at[0] = beginning(m, f, n, k);
  for (int i = 0; i < n; i++) {
    check(m, k[i]);
    if (i) at[2 * i] = called(c, IN_LAUNCH_SYNC);
    at[2 * i + 1] = part(m, k[i]);
  }
  Stmt *s = st_attr(c, AT_SYNCED, m->blocks, NULL, st_seq(c, 2 * n, at));
  s = st_for(c, m->thread, ex_i32(c, 0), ex_i32(c, m->threads), FOR_THREAD_X, s);
  for (int i = m->shared.len - 1; i >= 0; i--) s = st_alloc(c, m->shared.at[i], s);
  return st_for(c, m->block, ex_i32(c, 0), ex_i32(c, m->blocks), FOR_BLOCK_Z, s);
}

/* One buffer for what several parts have as arguments, whatever their shapes. */
typedef struct {
  Func *f; /* the whole */
  MapU64 as;
} Wiring;
static bool rewire(IrCtx *c NS_UNUSED, BufferId *b, ExprId *index NS_UNUSED, void *arg) {
  int32_t to = mapu_get(&((Wiring *)arg)->as, (uint64_t)*b, 0);
  if (to) *b = to;
  return to != 0;
}
static void wire(Wiring *w, const LowPart *p) {
  IrCtx *c = w->f->ctx;
  const Func *f = &p->program->f;
  mapu_init(&w->as, ir_arena(c));
  for (int i = 0; i < f->n_args; i++) {
    int32_t to = p->arg[i];
    err_check(ir_err(c), to >= 0 && to < w->f->n_args && to < 64, "argument %d of a merged program does not exist", to);
    uint64_t bit = (uint64_t)1 << to;
    BufferId *b = &w->f->arg[to], own = f->arg[i];
    if (!*b) *b = own, w->f->constant |= bit;
    err_check(ir_err(c),
              dtype_eq(ir_buffer(c, *b)->type, ir_buffer(c, own)->type) && elements(c, *b) == elements(c, own),
              "tensor %s is not what another kernel has in its place", ir_buffer(c, own)->name);
    if (!func_is_constant(f, own)) w->f->constant &= ~bit;
    mapu_set(&w->as, (uint64_t)own, *b);
  }
}

/* Layouts of arguments and workspaces of all parts. */
static void gather(Program *whole, const LowPart *p) {
  const Program *q = p->program;
  Arena *a = ir_arena(whole->f.ctx);
  BufferId *work = arena_array(a, BufferId, whole->n_work + q->n_work + 1);
  Relayout *r = arena_array(a, Relayout, whole->n_relayout + q->n_relayout + 1);
  int n = whole->n_relayout;
  for (int i = 0; i < whole->n_work; i++) work[i] = whole->work[i];
  for (int i = 0; i < q->n_work; i++) work[whole->n_work + i] = q->work[i];
  for (int i = 0; i < n; i++) r[i] = whole->relayout[i];
  for (int i = 0, k; i < q->n_relayout; i++) {
    int32_t to = p->arg[q->relayout[i].tensor];
    for (k = 0; k < n && r[k].tensor != to; k++)
      ;
    r[k] = q->relayout[i], r[k].tensor = to;
    if (k == n) n++;
  }
  whole->n_work += q->n_work, whole->work = work;
  whole->n_relayout = n, whole->relayout = r;
}

Program low_merge(const Target *t, int n, const LowPart *part, int n_args, const char *name) {
  Program p = {.f = part[0].program->f, .n_kernels = 1};
  IrCtx *c = p.f.ctx;
  Arena *a = ir_arena(c);
  VEC(const Kernel *) all = {0};
  Merge m = {.c = c, .blocks = 1};
  Wiring w = {.f = &p.f};
  p.f.target = *t, p.f.n_args = n_args, p.f.constant = 0, p.f.arg = arena_array(a, BufferId, n_args);
  for (int i = 0; i < n; i++) {
    const Program *q = part[i].program;
    wire(&w, &part[i]);
    gather(&p, &part[i]);
    for (int j = 0; j < q->n_kernels; j++) {
      Kernel *k = arena_copy(a, &q->kernel[j], sizeof *k);
      k->body = low_move(c, k->body, rewire, &w);
      if (volume(k->grid) > m.blocks) m.blocks = volume(k->grid);
      if (volume(k->block) > m.threads) m.threads = volume(k->block);
      vec_push(a, &all, k);
    }
  }
  for (int i = 0; i < n_args; i++)
    err_check(ir_err(c), p.f.arg[i] != 0, "argument %d of a merged program is nobody's", i);
  if (m.blocks > GPU_CLUSTER) m.blocks = GPU_CLUSTER;
  m.block = ir_var_new(c, "blockIdx.z", DT_I32, false), m.thread = ir_var_new(c, "threadIdx.x", DT_I32, false);
  p.f.body = kernels(&m, &p.f, all.len, all.at);
  Stmt *with_work = p.f.body;
  for (int i = 0; i < p.n_work; i++) with_work = st_alloc(c, p.work[i], with_work);
  if (ir_verifies(c)) ir_verify(c, with_work, true, false);
  p.kernel = arena_new_of(a, Kernel);
  p.kernel[0] = low_kernel(&p.f, p.f.body, arena_printf(a, "%s_kernel0", name));
  err_check(ir_err(c), p.kernel[0].shared_bytes <= GPU_SHARED_DECLARED,
            "merged kernels need %lld bytes of shared memory, %d are there", (long long)p.kernel[0].shared_bytes,
            GPU_SHARED_DECLARED);
  return p;
}
