/* pipeline: the passes in order, then kernels are cut out (spec 07 §7.7.4, §7.2.18).
 *
 * A top-level thread region is one kernel; its parameters are the buffers in global memory that it touches, in order of
 * first use. Global temporaries that stand at the top of the function become workspaces of the program. A CPU program
 * is one kernel.
 */
#include "lower/util.h"
#include "base/limits.h"

static const LowPass PASSES[] = {{"simplify", pass_simplify},
                                 {"flatten", pass_flatten},
                                 {"unify threads", pass_unify_threads},
                                 {"simplify flat", pass_simplify},
                                 {"partition", pass_partition},
                                 {"vectorize", pass_vectorize},
                                 {"vthread", pass_vthread},
                                 {"double buffer", pass_double_buffer},
                                 {"storage", pass_storage},
                                 {"sums", pass_sums},
                                 {"unroll", pass_unroll},
                                 {"cleanup", pass_cleanup},
                                 {"peel", pass_peel},
                                 {"registers", pass_registers},
                                 {"prefetch", pass_prefetch},
                                 {"sync", pass_sync},
                                 {"allreduce", pass_allreduce},
                                 {"intrinsics", pass_intrinsics},
                                 {"scalars", pass_scalars},
                                 {"overlap", pass_overlap}};
const LowPass *low_passes(int *n) {
  *n = NS_COUNT(PASSES);
  return PASSES;
}

void low_run(Func *f, void (*pass)(Func *)) {
  int i = 0;
  while (PASSES[i].run != pass) i++;
  pass(f);
  low_verify(f, PASSES[i].name);
}

/* The passes that a printed program goes through: kernels keep their nested thread loops, guards stay `likely`. */
static void (*const PRINTING[])(Func *) = {pass_flatten,       pass_simplify, pass_vectorize, pass_vthread,
                                           pass_double_buffer, pass_storage,  pass_unroll,    pass_cleanup};
Func low_printable(Func f) {
  f.use = LOW_TEXT;
  for (int i = 0; i < NS_COUNT(PRINTING) && f.body; i++) low_run(&f, PRINTING[i]);
  return f;
}

/* ---- parameters ---- */
typedef struct {
  IrCtx *c;
  VEC(BufferId) buf;
  MapU64 at, written;
  int64_t shared_bytes, local_bytes;
} Params;
static void use(Params *p, BufferId b) {
  if (ir_buffer(p->c, b)->scope != SC_GLOBAL && !ir_buffer(p->c, b)->external) return;
  if (mapu_get(&p->at, (uint64_t)b, -1) >= 0) return;
  vec_note(ir_arena(p->c), &p->buf, b, &p->at, b);
}
static void use_node(IrCtx *c, ExprId e, void *arg) {
  const ExprNode *n = ir_node(c, e);
  Params *p = arg;
  if (n->kind == IR_LOAD) use(p, n->sym);
  if (n->kind == IR_CALL && n->sym == IN_ADDRESS) mapu_set(&p->written, (uint64_t)ir_node(c, ir_kid(c, e, 0))->sym, 1);
  if (n->kind == IR_CALL && n->sym == IN_INDEX) mapu_set(&p->written, (uint64_t)ir_node(c, ir_kid(c, e, 3))->sym, 1);
}
static bool find_params(IrCtx *c, const Stmt *s, void *arg) {
  Params *p = arg;
  st_visit_exprs(c, s, use_node, p);
  if (s->kind == ST_STORE) {
    use(p, s->u.store.buf);
    mapu_set(&p->written, (uint64_t)s->u.store.buf, 1);
  }
  if (st_calls(c, s, IN_LAST_BLOCK)) mapu_set(&p->written, (uint64_t)ir_node(c, ir_kid(c, s->u.eval.e, 1))->sym, 1);
  if (s->kind == ST_ALLOC) {
    int64_t n = low_buffer_bytes(c, s->u.alloc.buf);
    ScopeKind scope = ir_buffer(c, s->u.alloc.buf)->scope;
    if (n > 0 && scope == SC_SHARED) p->shared_bytes += (n + 15) / 16 * 16;
    if (n > 0 && scope == SC_LOCAL) p->local_bytes += n;
    mapu_set(&p->at, (uint64_t)s->u.alloc.buf, 0); /* allocated inside: no parameter */
  }
  return true;
}

/* ---- kernels ---- */
typedef struct {
  Func *f;
  const char *name;
  VEC(Kernel) kernel;
} Cut;
static void add_kernel(Cut *x, Stmt *s, const char *name) {
  IrCtx *c = x->f->ctx;
  Arena *a = ir_arena(c);
  Kernel k = {.name = name, .body = s, .grid = {1, 1, 1}, .block = {1, 1, 1}};
  Params p = {.c = c};
  mapu_init(&p.at, a);
  mapu_init(&p.written, a);
  st_visit(c, s, find_params, NULL, &p);
  k.shared_bytes = p.shared_bytes;
  k.local_bytes = p.local_bytes;
  k.n_param = p.buf.len;
  k.param = p.buf.at;
  k.read_only = arena_array(a, bool, p.buf.len + 1);
  for (int i = 0; i < p.buf.len; i++) k.read_only[i] = mapu_get(&p.written, (uint64_t)p.buf.at[i], 0) == 0;
  for (Stmt *q = s; q && low_is_gpu(x->f); q = q->kind == ST_FOR ? q->u.loop.body : q->u.alloc.body) {
    if (q->kind != ST_FOR && q->kind != ST_ALLOC) break;
    if (q->kind != ST_FOR) continue;
    ForKind kind = q->u.loop.kind;
    if (kind <= FOR_VTHREAD) break;
    int64_t e;
    err_check(ir_err(c), ex_const_int(c, q->u.loop.extent, &e), "%s of kernel %s has no constant extent: %s",
              low_tag(kind), name, ex_text(c, q->u.loop.extent));
    if (for_is_block(kind))
      k.grid[kind - FOR_BLOCK_X] = e;
    else
      k.block[kind - FOR_THREAD_X] = e;
  }
  vec_push(a, &x->kernel, k);
}
static void cut(Cut *x, Stmt *s) {
  IrCtx *c = x->f->ctx;
  bool scoped = s->kind == ST_ALLOC && ir_buffer(c, s->u.alloc.buf)->scope != SC_GLOBAL;
  Stmt **kid;
  /* without block loops the shared arrays of a kernel stand around its thread loops */
  if (scoped || (s->kind == ST_FOR && s->u.loop.kind > FOR_VTHREAD)) {
    add_kernel(x, s, arena_printf(ir_arena(c), "%s_kernel%d", x->name, x->kernel.len));
    return;
  }
  if (s->kind == ST_STORE)
    err_raise(ir_err(c), NS_ERR_VALUE,
              "buffer %s is written outside of any GPU kernel; did you bind the loops of its stage to blockIdx and "
              "threadIdx?",
              ir_buffer(c, s->u.store.buf)->name);
  if (s->kind != ST_SEQ && s->kind != ST_ALLOC && s->kind != ST_ATTR)
    err_raise(ir_err(c), NS_ERR_VALUE,
              "a loop or condition stands outside of the GPU kernels; bind the outermost loops of every stage to "
              "blockIdx or threadIdx");
  for (int i = 0; (kid = st_kid(s, i)); i++) cut(x, *kid);
}

/* A schedule that caches a tensor again and again, or aligns its rows to 2^31 elements, fits no memory. */
static void check_temporaries(const Func *f, const Program *p) {
  const int64_t SMALL = 1 << 20;
  int64_t sum = 0;
  for (int i = 0; i < p->n_work && sum >= 0; i++) {
    int64_t n = low_buffer_bytes(f->ctx, p->work[i]);
    if (n > 0 && !i64_add(sum, n, &sum)) sum = INT64_MAX;
  }
  if (f->tensor_bytes > 0 && sum > SMALL) limit_check(ir_err(f->ctx), LIMIT_TEMPORARIES, sum / f->tensor_bytes);
}

/* Takes the large global allocations off the top of the function; they become workspaces. */
static Stmt *workspaces(Func *f, Stmt *s, Program *p) {
  IrCtx *c = f->ctx;
  VEC(BufferId) work = {0};
  VEC(BufferId) keep = {0};
  while (s && s->kind == ST_ALLOC) {
    bool top =
        ir_buffer(c, s->u.alloc.buf)->scope == SC_GLOBAL &&
        (low_is_gpu(f) || s->u.alloc.buf == p->report || low_buffer_bytes(c, s->u.alloc.buf) > LOW_CPU_STACK_BYTES);
    if (top)
      vec_push(ir_arena(c), &work, s->u.alloc.buf);
    else
      vec_push(ir_arena(c), &keep, s->u.alloc.buf);
    s = s->u.alloc.body;
  }
  for (int i = keep.len - 1; i >= 0; i--) s = st_alloc(c, keep.at[i], s);
  p->n_work = work.len;
  p->work = work.at;
  check_temporaries(f, p);
  return s;
}

void low_check_legal(const Func *f) {
  if (f->illegal) err_raise(ir_err(f->ctx), NS_ERR_VALUE, "%s", f->illegal);
}

Program low_build(Func f, const char *name) {
  IrCtx *c = f.ctx;
  low_check_legal(&f);
  err_check(ir_err(c), f.use == LOW_CODE || f.use == LOW_TEXT, "a program made for feature extraction cannot be built");
  err_check(ir_err(c), f.body != NULL, "the program %s computes nothing", name);
  Program p = {0};
  const Stmt *empty = NULL;
  for (int i = f.flat ? 2 : 0; i < NS_COUNT(PASSES); i++) {
    low_run(&f, PASSES[i].run);
    if (!f.body) empty = f.body = st_eval(c, ex_i32(c, 0)); /* all extents are zero: a program that does nothing */
  }
  p.report = low_report(&f);
  ir_verify(c, f.body, true, false);
  f.body = workspaces(&f, f.body, &p);
  Cut x = {.f = &f, .name = name};
  if (low_is_gpu(&f) && !empty && f.body)
    cut(&x, f.body);
  else if (!low_is_gpu(&f))
    add_kernel(&x, f.body, arena_strdup(ir_arena(c), name));
  p.f = f;
  p.n_kernels = x.kernel.len;
  p.kernel = x.kernel.at;
  return p;
}
