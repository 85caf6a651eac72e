/* The C target: one exported function per program. A parallel loop becomes a static function over a range of iterations
 * plus a struct with everything it uses from outside (pointers, outer indices); the host's thread pool runs it.
 * Temporaries live on the stack up to a limit, in workspaces if the lowering made them such, else on the heap.
 */
#include <string.h>
#include "codegen/gen.h"

enum { STACK_LIMIT = 128 * 1024 };
const GenTarget GEN_C = {.kind = TG_CPU,
                         .barrier = "",
                         .unroll = "NS_UNROLL",
                         .shared = "",
                         .local_align = "",
                         .global = "",
                         .max_vector_bytes = 64};

static bool read_only(const Gen *g, BufferId b) {
  for (int i = 0; i < g->k->n_param; i++)
    if (g->k->param[i] == b) return g->k->read_only && g->k->read_only[i];
  return false;
}

/* const T *restrict NAME = aligned FROM; */
static void pointer(Gen *g, BufferId b, const char *from) {
  const char *ty = gen_buffer_storage(g, b), *cv = read_only(g, b) ? "const " : "";
  gen_linef(g, "%s%s *restrict %s = (%s%s *)__builtin_assume_aligned(%s, %d);\n", cv, ty, gen_buf(g, b), cv, ty, from,
            PROGRAM_ALIGN);
}

/* ---- parallel loops ---- */
typedef struct {
  Gen *g;
  MapU64 var, buf;
  VEC(VarId) vars;
  VEC(BufferId) bufs;
} Capture;

static void capture_buf(Capture *k, BufferId b) {
  Gen *g = k->g;
  if (mapu_get(&k->buf, (uint64_t)b, 0)) return;
  mapu_set(&k->buf, (uint64_t)b, 1);
  for (int i = 0; i < g->live_buf.len; i++)
    if (g->live_buf.at[i] == b) {
      vec_push(g->a, &k->bufs, b);
      return;
    }
}

static void capture_var(Capture *k, VarId v) {
  Gen *g = k->g;
  if (mapu_get(&k->var, (uint64_t)v, 0)) return;
  mapu_set(&k->var, (uint64_t)v, 1);
  int32_t array = mapu_get(&g->buf_of_var, (uint64_t)v, 0);
  if (array) capture_buf(k, array);
  for (int i = 0; i < g->live_var.len; i++)
    if (g->live_var.at[i] == v) {
      vec_push(g->a, &k->vars, v);
      return;
    }
}

static void capture_expr(IrCtx *c, ExprId e, void *arg) {
  ExprNode n = *ir_node(c, e);
  if (n.kind == IR_VAR)
    capture_var(arg, n.sym);
  else if (n.kind == IR_LOAD)
    capture_buf(arg, n.sym);
}

static void capture_stmt(Gen *g NS_UNUSED, const Stmt *s, void *arg) {
  if (s->kind == ST_STORE) capture_buf(arg, s->u.store.buf);
}

static void env_struct(Gen *g, const Capture *k, int id) {
  sb_printf(g->o, "struct %s_env%d {", g->p->kernel[0].name, id);
  for (int i = 0; i < k->bufs.len; i++) {
    BufferId b = k->bufs.at[i];
    sb_printf(g->o, " %s%s *%s;", read_only(g, b) ? "const " : "", gen_buffer_storage(g, b), gen_buf(g, b));
  }
  for (int i = 0; i < k->vars.len; i++)
    sb_printf(g->o, " %s %s;", gen_type(g, ir_var_info(g->c, k->vars.at[i])->type), gen_var(g, k->vars.at[i]));
  sb_puts(g->o, " int32_t failed; };\n");
}

/* The text of a function apart, because what has to be declared in front of it is known at its end. */
typedef struct {
  StrBuf text, *to;
  bool outer;
} Body;

static void body_begin(Gen *g, Body *b) {
  b->to = g->o;
  b->outer = g->divides_by_any;
  sb_init(&b->text, g->a);
  g->o = &b->text;
  g->divides_by_any = false;
}

static bool body_end(Gen *g, const Body *b) { /* whether a division by zero has to be told */
  bool any = g->divides_by_any;
  g->o = b->to;
  g->divides_by_any = b->outer;
  if (any) { gen_linef(g, "int32_t ns_zero = 0;\n"); }
  sb_write(g->o, b->text.at, b->text.len);
  return any;
}

/* The iterations that a call does. A loop of one store is one that compilers make vectors of, as long as they see how its addresses
 * advance: not through a cast of its variable. */
static void iterations(Gen *g, const Stmt *s) {
  VarId v = s->u.loop.var;
  const char *ty = gen_type(g, ir_var_info(g->c, v)->type), *name = gen_var(g, v);
  const Stmt *body = s->u.loop.body;
  if (body->kind == ST_STORE && ir_type(g->c, body->u.store.value).lanes == 1 && ex_is_int(g->c, s->u.loop.min, 0)) {
    gen_linef(g, "for (%s %s = (%s)ns_begin; %s < (%s)ns_end; ++%s) {\n", ty, name, ty, name, ty, name);
    g->indent++;
    return;
  }
  gen_linef(g, "for (int64_t ns_i = ns_begin; ns_i < ns_end; ++ns_i) {\n");
  g->indent++;
  gen_linef(g, "const %s %s = (%s)ns_i + ", ty, name, ty);
  gx(g, s->u.loop.min);
  sb_puts(g->o, ";\n");
}

static void outlined(Gen *g, const Stmt *s, const Capture *k, int id) {
  const char *name = g->p->kernel[0].name;
  StrBuf *o = g->o;
  int indent = g->indent;
  g->o = g->top;
  g->indent = 1;
  g->in_parallel++;
  env_struct(g, k, id);
  sb_printf(g->o, "static void %s_par%d(void *ns_env, int64_t ns_begin, int64_t ns_end) {\n", name, id);
  gen_linef(g, "struct %s_env%d *env = (struct %s_env%d *)ns_env;\n", name, id, name, id);
  for (int i = 0; i < k->bufs.len; i++)
    pointer(g, k->bufs.at[i], arena_printf(g->a, "env->%s", gen_buf(g, k->bufs.at[i])));
  for (int i = 0; i < k->vars.len; i++) {
    const char *v = gen_var(g, k->vars.at[i]);
    gen_linef(g, "const %s %s = env->%s;\n", gen_type(g, ir_var_info(g->c, k->vars.at[i])->type), v, v);
  }
  Body body;
  body_begin(g, &body);
  iterations(g, s);
  gen_stmt(g, s->u.loop.body);
  sb_puts(g->o, "  }\n");
  g->indent--;
  if (body_end(g, &body)) sb_printf(g->o, "  if (ns_zero) env->failed = %d;\n", PROGRAM_ZERO_DIVISION);
  sb_puts(g->o, "}\n\n");
  g->in_parallel--;
  g->indent = indent;
  g->o = o;
}

void gen_c_parallel(Gen *g, const Stmt *s) {
  const char *name = g->p->kernel[0].name;
  Capture k = {.g = g};
  mapu_init(&k.var, g->a);
  mapu_init(&k.buf, g->a);
  ex_post_order(g->c, s->u.loop.min, capture_expr, &k);
  gen_walk(g, s->u.loop.body, capture_expr, capture_stmt, &k);
  int id = g->n_par++;
  int32_t vars = g->live_var.len, bufs = g->live_buf.len;
  vec_push(g->a, &g->live_var, s->u.loop.var);
  outlined(g, s, &k, id);
  g->live_var.len = vars;
  g->live_buf.len = bufs;
  gen_line(g);
  gen_open(g);
  gen_linef(g, "struct %s_env%d env%d = {", name, id, id);
  for (int i = 0; i < k.bufs.len; i++) sb_printf(g->o, "%s, ", gen_buf(g, k.bufs.at[i]));
  for (int i = 0; i < k.vars.len; i++) sb_printf(g->o, "%s, ", gen_var(g, k.vars.at[i]));
  sb_puts(g->o, "0};\n");
  gen_const_line(g, "int64_t", "ns_n", s->u.loop.extent);
  gen_linef(g, "int32_t rc = 0;\n");
  gen_linef(g, "if (par && ns_n > 1) rc = par(pool, %s_par%d, &env%d, ns_n);\n", name, id, id);
  gen_linef(g, "else %s_par%d(&env%d, 0, ns_n);\n", name, id, id);
  gen_linef(g, "if (rc || env%d.failed) return rc ? rc : env%d.failed;\n", id, id);
  gen_close(g, "\n");
}

/* ---- temporaries ---- */
const char *gen_c_alloc(Gen *g, BufferId b, bool work) {
  const IrBuffer *info = ir_buffer(g->c, b);
  if (work) return NULL;
  DType t = dtype_lanes(info->type, 1);
  const char *ty = gen_buffer_storage(g, b), *name = gen_buf(g, b);
  int64_t n;
  bool fixed = info->size && ex_const_int(g->c, info->size, &n);
  gen_line(g);
  if (fixed && n * dtype_bytes(t) <= STACK_LIMIT) {
    sb_printf(g->o, "%s %s[%lld] __attribute__((aligned(%d)));\n", ty, name, (long long)(n > 0 ? n : 1), PROGRAM_ALIGN);
    return NULL;
  }
  if (!info->size) err_raise(g->err, NS_ERR_INTERNAL, "buffer '%s' has no size", info->name);
  g->heap_used = true;
  sb_printf(g->o, "%s *restrict %s = (%s *)aligned_alloc(64, ((size_t)", ty, name, ty);
  gx(g, info->size);
  sb_printf(g->o, " * sizeof(%s) + 63) / 64 * 64);\n", ty);
  gen_line(g);
  if (g->in_parallel)
    sb_printf(g->o, "if (!%s) { env->failed = %d; return; }\n", name, PROGRAM_NO_MEMORY);
  else
    sb_printf(g->o, "if (!%s) return %d;\n", name, PROGRAM_NO_MEMORY);
  return name;
}

/* ---- the program ---- */
void gen_c_kernel(Gen *g) {
  const Kernel *k = g->k;
  const Program *p = g->p;
  sb_printf(g->o,
            "__attribute__((visibility(\"default\"))) int32_t %s(void *const *args, void *const *work, NsParallel par, "
            "void *pool) {\n",
            gen_entry(g->a, k->name));
  g->indent = 1;
  gen_linef(g, "(void)args; (void)work; (void)par; (void)pool;\n");
  for (int i = 0; i < p->f.n_args; i++) {
    pointer(g, p->f.arg[i], arena_printf(g->a, "args[%d]", i));
    vec_push(g->a, &g->live_buf, p->f.arg[i]);
  }
  for (int i = 0; i < p->n_work; i++) {
    pointer(g, p->work[i], arena_printf(g->a, "work[%d]", i));
    vec_push(g->a, &g->live_buf, p->work[i]);
  }
  const char *report = p->report ? gen_buf(g, p->report) : NULL;
  if (report) gen_linef(g, "%s[%d] = 0;\n", report, REPORT_SITE);
  Body body;
  body_begin(g, &body);
  gen_stmt(g, k->body);
  bool zero = body_end(g, &body);
  if (report) gen_linef(g, "if (%s[%d]) return %d;\n", report, REPORT_SITE, PROGRAM_BAD_INDEX);
  if (zero)
    sb_printf(g->o, "  return ns_zero ? %d : 0;\n}\n", PROGRAM_ZERO_DIVISION);
  else
    sb_puts(g->o, "  return 0;\n}\n");
}
