/* The statement printer, shared by all targets. Loops start at their minimum with unit step; while it walks it keeps
 * the ranges of variables and the conditions that hold, so that the expression printer can prove signs and alignments.
 */
#include "codegen/gen.h"

void gen_line(Gen *g) { sb_spaces(g->o, 2 * g->indent); }

void gen_linef(Gen *g, const char *form, ...) {
  va_list ap;
  gen_line(g);
  va_start(ap, form);
  sb_vprintf(g->o, form, ap);
  va_end(ap);
}

void gen_const_line(Gen *g, const char *type, const char *name, ExprId value) {
  gen_linef(g, "const %s %s = ", type, name);
  gx_top(g, value);
  sb_puts(g->o, ";\n");
}

void gen_open(Gen *g) {
  sb_puts(g->o, "{\n");
  g->indent++;
}
void gen_close(Gen *g, const char *after) {
  g->indent--;
  gen_linef(g, "}%s", after);
}

int64_t gen_const(Gen *g, ExprId e, const char *what) {
  int64_t v;
  if (e && ex_const_int(g->c, e, &v)) return v;
  err_raise(g->err, NS_ERR_INTERNAL, "code generation needs a constant %s, not %s", what,
            e ? ex_text(g->c, e) : "none");
}

static bool is_sync(IrCtx *c, const Stmt *s, void *arg NS_UNUSED) { return st_calls(c, s, IN_SYNC_SHARED); }
static bool stmt_has_sync(Gen *g, const Stmt *s) { return st_any(g->c, s, is_sync, NULL); }

/* A hardware index: a constant of the kernel. */
static void thread_loop(Gen *g, const Stmt *s) {
  bool block = for_is_block(s->u.loop.kind);
  int dim = (int)s->u.loop.kind - (int)(block ? FOR_BLOCK_X : FOR_THREAD_X);
  int64_t extent = gen_const(g, s->u.loop.extent, "launch extent"),
          launched = block ? g->k->grid[dim] : g->k->block[dim];
  VarId v = s->u.loop.var;
  ar_bind_range(g->ar, v, s->u.loop.min, s->u.loop.extent);
  const char *ty = gen_type(g, ir_var_info(g->c, v)->type);
  gen_linef(g, "const %s %s = (%s)%s", ty, gen_var(g, v), ty, block ? g->t->block[dim] : g->t->thread[dim]);
  if (!ex_is_int(g->c, s->u.loop.min, 0)) {
    sb_puts(g->o, " + ");
    gx(g, s->u.loop.min);
  }
  sb_puts(g->o, ";\n");
  vec_push(g->a, &g->live_var, v);
  if (extent > launched)
    err_raise(g->err, NS_ERR_INTERNAL, "kernel '%s' is launched with extent %lld but a loop needs %lld", g->k->name,
              (long long)launched, (long long)extent);
  if (extent == launched) {
    gen_stmt(g, s->u.loop.body);
    return;
  }
  if (stmt_has_sync(g, s->u.loop.body))
    err_raise(g->err, NS_ERR_INTERNAL, "kernel '%s' has a barrier inside a narrower thread loop", g->k->name);
  gen_linef(g, "if (%s < %lld) ", gen_var(g, v), (long long)extent);
  gen_open(g);
  gen_stmt(g, s->u.loop.body);
  gen_close(g, "\n");
}

static bool is_data(const IrCtx *c, ExprId e, int kid) { return ir_node(c, ir_kid(c, e, kid))->data; }
/* p[i] ? v[i] : x: data decide what is read. */
static bool is_masked_load(IrCtx *c, ExprId e, void *arg NS_UNUSED) {
  return ex_is_choice(c, e) && is_data(c, e, 0) && (is_data(c, e, 1) || is_data(c, e, 2));
}
static bool reads_masked(IrCtx *c, const Stmt *s, void *arg NS_UNUSED) {
  ExprId value = s->kind == ST_STORE ? s->u.store.value : s->kind == ST_LET ? s->u.let.value : 0;
  return value && ir_type(c, value).lanes == 1 && ex_any(c, value, is_masked_load, NULL);
}
/* gcc 12 and 13 miscompile this loop for x86 with AVX. One of the two reads of v gets the wrong mask.
 *   for (i) { t[2*i] = p[2*i] ? v[2*i] : 1;  t[2*i+1] = p[2*i+1] ? v[2*i+1] : 1; }
 * The same happens where an inner loop is unrolled. An asm statement keeps gcc from vectorising the loop around it. `n` statements
 * follow each other, each `copies` times. */
static void keep_scalar(Gen *g, int n, Stmt *const *at, int copies) {
  int masked = 0;
  if (g->t->kind != TG_CPU) return;
  for (int i = 0; i < n; i++) masked += st_any(g->c, at[i], reads_masked, NULL) ? copies : 0;
  if (masked > 1) gen_linef(g, "NS_SCALAR;\n");
}

static void loop_body(Gen *g, const Stmt *s) {
  int32_t vars = g->live_var.len, bufs = g->live_buf.len;
  vec_push(g->a, &g->live_var, s->u.loop.var);
  gen_stmt(g, s->u.loop.body);
  g->live_var.len = vars;
  g->live_buf.len = bufs;
}

static void loop(Gen *g, const Stmt *s) {
  ForKind kind = s->u.loop.kind;
  if (for_is_block(kind) || for_is_thread(kind)) {
    if (g->t->kind == TG_CPU)
      err_raise(g->err, NS_ERR_VALUE, "a loop of this program is bound to a GPU thread axis, but the target is a CPU");
    thread_loop(g, s);
    return;
  }
  VarId v = s->u.loop.var;
  ar_bind_range(g->ar, v, s->u.loop.min, s->u.loop.extent);
  if (kind == FOR_PARALLEL && g->t->kind == TG_CPU && !g->in_parallel) {
    gen_c_parallel(g, s);
    return;
  }
  const Cursors *cursors = gen_cursors_open(g, s), *outside = g->cursors;
  const char *name = gen_var(g, v), *ty = gen_type(g, ir_var_info(g->c, v)->type);
  int64_t extent, min;
  bool fixed = ex_const_int(g->c, s->u.loop.extent, &extent),
       zero = ex_const_int(g->c, s->u.loop.min, &min) && min == 0, unroll = false;
  if (fixed && extent == 1) {
    gen_line(g);
    gen_open(g);
    gen_const_line(g, ty, name, s->u.loop.min);
  } else {
    unroll = fixed && (kind == FOR_UNROLLED || kind == FOR_VTHREAD || s->u.loop.pragma_unroll ||
                       (kind == FOR_VECTOR && g->t->kind != TG_CPU));
    if (unroll) {
      gen_linef(g, "%s", g->t->unroll);
      if (g->t->kind == TG_CPU) sb_printf(g->o, "(%lld)", (long long)(extent > 65534 ? 65534 : extent));
      sb_putc(g->o, '\n');
    } else if (kind == FOR_VECTOR)
      gen_linef(g, "NS_IVDEP\n");
    gen_linef(g, "for (%s %s = ", ty, name);
    gx_top(g, s->u.loop.min);
    sb_printf(g->o, "; %s < ", name);
    if (zero)
      gx(g, s->u.loop.extent);
    else
      gx(g, ex_add(g->c, s->u.loop.min, s->u.loop.extent));
    sb_printf(g->o, "; ++%s) ", name);
    gen_open(g);
  }
  VarId outer = g->inner;
  g->inner = v;
  if (cursors) g->cursors = cursors;
  if (unroll) keep_scalar(g, 1, &s->u.loop.body, 2);
  loop_body(g, s);
  gen_cursors_close(g, cursors);
  g->cursors = outside;
  g->inner = outer;
  gen_close(g, "\n");
}

static void condition(Gen *g, const Stmt *s) {
  gen_linef(g, "if (");
  gx_top(g, s->u.cond.cond);
  sb_puts(g->o, ") ");
  gen_open(g);
  ar_push(g->ar, s->u.cond.cond);
  int32_t bufs = g->live_buf.len, vars = g->live_var.len;
  gen_stmt(g, s->u.cond.then);
  ar_pop(g->ar);
  if (s->u.cond.other) {
    gen_close(g, " else ");
    gen_open(g);
    gen_stmt(g, s->u.cond.other);
  }
  g->live_buf.len = bufs;
  g->live_var.len = vars;
  gen_close(g, "\n");
}

static void let(Gen *g, const Stmt *s) {
  int32_t lanes = g->lanes.len;
  if (ir_type(g->c, s->u.let.value).lanes > 1) {
    gen_vector_let(g, s);
    gen_stmt(g, s->u.let.body);
    g->lanes.len = lanes;
    return;
  }
  VarId v = s->u.let.var;
  DType t = ir_type(g->c, s->u.let.value);
  gen_const_line(g, gen_type(g, t), gen_var(g, v), s->u.let.value);
  if (t.code == DT_INT) {
    Bound b = ar_bound(g->ar, s->u.let.value);
    if (b.lo > INT32_MIN && b.hi < INT32_MAX && b.hi >= b.lo)
      ar_bind_range(g->ar, v, ex_int(g->c, t, b.lo), ex_int(g->c, t, b.hi - b.lo + 1));
  }
  vec_push(g->a, &g->live_var, v);
  gen_stmt(g, s->u.let.body);
}

static void alloc(Gen *g, const Stmt *s) {
  BufferId b = s->u.alloc.buf;
  const IrBuffer *info = ir_buffer(g->c, b);
  bool work = false;
  const char *heap = NULL;
  if (info->registers) {
    gen_registers(g, b, s->u.alloc.body);
    gen_stmt(g, s->u.alloc.body);
    return;
  }
  for (int i = 0; i < g->p->n_work; i++) work |= g->p->work[i] == b;
  /* copies of an unrolled body allocate the same buffer one after the other: each but the first in a block of its own */
  bool again = g->t->kind == TG_CPU && !work && mapu_get(&g->buf_name, (uint64_t)b, -1) >= 0;
  if (again) {
    gen_line(g);
    gen_open(g);
  }
  if (g->t->kind == TG_CPU)
    heap = gen_c_alloc(g, b, work);
  else if (info->scope == SC_LOCAL) {
    int64_t n = gen_const(g, info->size, "size of a local array");
    gen_linef(g, "%s%s %s[%lld];\n", n >= 2 ? g->t->local_align : "", gen_storage(g, dtype_lanes(info->type, 1)),
              gen_buf(g, b), (long long)n);
  } else if (info->scope != SC_SHARED && !work)
    err_raise(g->err, NS_ERR_INTERNAL, "buffer '%s' of a kernel is neither shared, local nor a workspace", info->name);
  vec_push(g->a, &g->live_buf, b);
  gen_stmt(g, s->u.alloc.body);
  if (heap) gen_linef(g, "free(%s);\n", heap);
  if (again) gen_close(g, "\n");
}

/* C = max(C, x), where C stays the same during the innermost loop. */
static ExprId accumulation(Gen *g, const Stmt *s) {
  ExprId v = s->u.store.value, at = s->u.store.idx[0];
  ExprKind k = ir_kind(g->c, v);
  if ((k != IR_MIN && k != IR_MAX) || !g->inner || ex_uses_var(g->c, at, g->inner)) return 0;
  for (int i = 0; i < 2; i++) {
    ExprId x = ir_kid(g->c, v, i);
    if (ir_kind(g->c, x) == IR_LOAD && ir_node(g->c, x)->sym == s->u.store.buf && ir_kid(g->c, x, 0) == at) return v;
  }
  return 0;
}

static void store(Gen *g, const Stmt *s) {
  if (s->u.store.n_idx != 1)
    err_raise(g->err, NS_ERR_INTERNAL, "code generation needs the flat form: store to '%s' has %d indices",
              ir_buffer(g->c, s->u.store.buf)->name, s->u.store.n_idx);
  if (ir_type(g->c, s->u.store.value).lanes > 1) {
    gen_vector_store(g, s);
    return;
  }
  gen_line(g);
  g->serial = g->t->kind == TG_CPU ? accumulation(g, s) : 0;
  gen_element(g, s->u.store.buf, s->u.store.idx[0]);
  sb_puts(g->o, " = ");
  gen_to_storage(g, dtype_lanes(ir_buffer(g->c, s->u.store.buf)->type, 1), s->u.store.value);
  sb_puts(g->o, ";\n");
}

void gen_stmt(Gen *g, const Stmt *s) {
  if (!s) return;
  err_poll(g->err);
  if (g->hoist_pending && s->kind != ST_ALLOC && s->kind != ST_ATTR &&
      !(s->kind == ST_FOR && (for_is_block(s->u.loop.kind) || for_is_thread(s->u.loop.kind)))) {
    g->hoist_pending = false;
    gen_hoist(g, s);
  }
  switch (s->kind) {
  case ST_SEQ:
    keep_scalar(g, s->u.seq.n, s->u.seq.at, 1);
    for (int i = 0; i < s->u.seq.n;) {
      int run = g->share ? gen_share_indices(g, s->u.seq.n - i, s->u.seq.at + i) : 0;
      if (!run) run = gen_three(g, s->u.seq.n - i, (const Stmt *const *)s->u.seq.at + i);
      if (!run) gen_stmt(g, s->u.seq.at[i]);
      i += run ? run : 1;
    }
    return;
  case ST_FOR: loop(g, s); return;
  case ST_IF: condition(g, s); return;
  case ST_LET: let(g, s); return;
  case ST_ALLOC: alloc(g, s); return;
  case ST_STORE: store(g, s); return;
  case ST_ATTR: gen_stmt(g, s->u.attr.body); return;
  case ST_EVAL:
    if (st_calls(g->c, s, IN_LAUNCH_WAIT)) {
      gen_launch_wait(g);
      return;
    }
    if (st_calls(g->c, s, IN_LAUNCH_NEXT)) {
      gen_launch_next(g);
      return;
    }
    if (gen_three(g, 1, &s)) return;
    gen_line(g);
    gx_top(g, s->u.eval.e);
    sb_puts(g->o, ";\n");
    return;
  }
}

typedef struct {
  Gen *g;
  ExprVisit f;
  void (*stmt)(Gen *, const Stmt *, void *);
  void *arg;
} GenWalk;
static bool enter(IrCtx *c, const Stmt *s, void *arg) {
  const GenWalk *w = arg;
  if (w->stmt) w->stmt(w->g, s, w->arg);
  if (w->f) st_visit_exprs(c, s, w->f, w->arg);
  return true;
}
void gen_walk(Gen *g, const Stmt *s, ExprVisit f, void (*stmt)(Gen *, const Stmt *, void *), void *arg) {
  st_visit(g->c, s, enter, NULL, &(GenWalk){g, f, stmt, arg});
}
