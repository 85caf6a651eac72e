/* Vector statements. Arithmetic is printed lane by lane (CUDA has no vector arithmetic, and compilers put scalars
 * together where the machine has some); what matters is memory: an access to n consecutive elements becomes one wide
 * access where the index is a unit ramp whose base is provably a multiple of n and the buffer is aligned (spec 07
 * §7.5.4), for loads and for stores. Wide loads and lazy conditions become temporaries before the statement, so
 * evaluation order is explicit.
 */
#include "codegen/gen.h"

static int lanes_of(Gen *g, ExprId e) { return ir_type(g->c, e).lanes; }

static int32_t find_lanes(const Gen *g, uint64_t key) {
  for (int32_t i = g->lanes.len - 1; i >= 0; i--)
    if (g->lanes.at[i].key == key) return g->lanes.at[i].first;
  return -1;
}

ExprId gen_lane(Gen *g, ExprId e, ExprId lane) {
  ExprNode n = *ir_node(g->c, e);
  if (n.type.lanes == 1) return e;
  int64_t k;
  int32_t first = find_lanes(g, n.kind == IR_VAR ? (uint64_t)n.sym << 32 : (uint64_t)e);
  if (first >= 0 && ex_const_int(g->c, lane, &k)) return ex_var(g->c, g->lane_var.at[first + k]);
  if (n.kind == IR_VAR) { /* C: a vector let lives in an array */
    int32_t b = mapu_get(&g->buf_of_var, (uint64_t)n.sym, 0);
    err_assert(g->err, b != 0);
    return ex_load(g->c, b, dtype_lanes(n.type, 1), 1, &lane);
  }
  if (n.kind == IR_RAMP) {
    ExprId base = ir_kid(g->c, e, 0), stride = ir_kid(g->c, e, 1);
    if (lanes_of(g, base) > 1) err_raise(g->err, NS_ERR_INTERNAL, "a ramp of vectors reached code generation");
    return ex_add(g->c, base, ex_mul(g->c, stride, ex_cast(g->c, ir_type(g->c, stride), lane)));
  }
  if (n.kind == IR_BCAST) return ir_kid(g->c, e, 0);
  if (n.kind == IR_LET) {
    VarSub sub = {n.sym, ir_kid(g->c, e, 0)};
    return gen_lane(g, ex_subst(g->c, ir_kid(g->c, e, 1), 1, &sub), lane);
  }
  ExprId *kid = arena_array(g->a, ExprId, n.n);
  for (int i = 0; i < n.n; i++) kid[i] = gen_lane(g, ir_kid(g->c, e, i), lane);
  return ex_raw(g->c, (ExprKind)n.kind, dtype_lanes(n.type, 1), n.sym, n.n, kid);
}

static bool gen_aligned_ramp(Gen *g, BufferId b, ExprId index, ExprId *base) {
  ExprNode n = *ir_node(g->c, index);
  if (n.kind != IR_RAMP || !ex_is_int(g->c, ir_kid(g->c, index, 1), 1)) return false;
  *base = ir_kid(g->c, index, 0);
  if (lanes_of(g, *base) > 1) return false;
  int elem = dtype_bytes(dtype_lanes(ir_buffer(g->c, b)->type, 1));
  ScopeKind s = ir_buffer(g->c, b)->scope;
  if (s == SC_LOCAL) return false; /* private arrays become registers: no addresses */
  int align = s == SC_SHARED ? 16 : PROGRAM_ALIGN;
  if (elem * n.type.lanes > align) return false;
  int64_t v;
  if (ex_const_int(g->c, *base, &v)) return v % n.type.lanes == 0;
  Residue r = ar_residue(g->ar, *base);
  return r.coeff % n.type.lanes == 0 && r.base % n.type.lanes == 0;
}

/* New variables that print as TEXT[i]; remembered as the lanes of key, which is `value` or a variable of this value. */
static void remember(Gen *g, uint64_t key, ExprId value, int lanes, const char **text) {
  DType t = ir_type(g->c, value);
  LaneEntry entry = {key, g->lane_var.len};
  vec_push(g->a, &g->lanes, entry);
  for (int i = 0; i < lanes; i++) {
    VarId v = ir_var_new(g->c, "lane", dtype_lanes(t, 1), false);
    gen_var_as(g, v, text[i]);
    gen_holds(g, v, 0, value);
    vec_push(g->a, &g->lane_var, v);
  }
}

static void lazy_condition(Gen *g, ExprId e);

/* Emits temporaries for the wide loads and lazy vector conditions in e. */
static void materialise(Gen *g, ExprId e) {
  ExprNode n = *ir_node(g->c, e);
  if (n.type.lanes == 1 || find_lanes(g, (uint64_t)e) >= 0) return;
  if (n.kind == IR_LOAD && n.n == 1) {
    ExprId base;
    const char *access, *text[16];
    BufferId b = n.sym;
    DType t = dtype_lanes(ir_buffer(g->c, b)->type, 1);
    if (n.type.lanes > 16 || !gen_aligned_ramp(g, b, ir_kid(g->c, e, 0), &base)) return;
    const char *vec = gen_vec_storage(g, t, n.type.lanes, 0, &access);
    if (!vec) return;
    const char *name = gen_fresh(g, arena_printf(g->a, "vec%d", g->n_tmp++));
    gen_linef(g, "const %s %s = ", vec, name);
    gen_vec_ptr(g, b, base, vec, true);
    sb_puts(g->o, ";\n");
    for (int i = 0; i < n.type.lanes; i++) {
      gen_vec_storage(g, t, n.type.lanes, i, &access);
      text[i] = gen_from_storage(g, t, arena_printf(g->a, "%s%s", name, access));
    }
    remember(g, (uint64_t)e, e, n.type.lanes, text);
    return;
  }
  if (n.kind == IR_CALL && n.sym == IN_IF_THEN_ELSE && lanes_of(g, ir_kid(g->c, e, 0)) == 1) {
    lazy_condition(g, e);
    return;
  }
  bool lazy = n.kind == IR_CALL && n.sym == IN_IF_THEN_ELSE; /* per-lane condition: loads must stay inside */
  if (lazy || n.kind == IR_LET) return;
  for (int i = 0; i < n.n; i++) materialise(g, ir_kid(g->c, e, i));
}

static void assign_lanes(Gen *g, ExprId value, int lanes, const char **text) {
  materialise(g, value);
  for (int i = 0; i < lanes; i++) {
    gen_linef(g, "%s = ", text[i]);
    gx_top(g, gen_lane(g, value, ex_i32(g->c, i)));
    sb_puts(g->o, ";\n");
  }
}

/* if_then_else(scalar condition, vector, vector): the lanes become variables that the two branches assign. */
static void lazy_condition(Gen *g, ExprId e) {
  int lanes = lanes_of(g, e), id = g->n_tmp++;
  const char **text = arena_array(g->a, const char *, lanes);
  gen_linef(g, "%s ", gen_type(g, dtype_lanes(ir_type(g->c, e), 1)));
  for (int i = 0; i < lanes; i++) {
    text[i] = gen_fresh(g, arena_printf(g->a, "vec%d_%d", id, i));
    sb_printf(g->o, "%s%s", i ? ", " : "", text[i]);
  }
  sb_puts(g->o, ";\n");
  int32_t outer = g->lanes.len; /* temporaries of a branch are not visible after it */
  gen_line(g);
  gen_form(g, e, "if ($t0) ");
  for (int side = 1; side <= 2; side++) {
    gen_open(g);
    assign_lanes(g, ir_kid(g->c, e, side), lanes, text);
    g->lanes.len = outer;
    gen_close(g, side == 1 ? " else " : "\n");
  }
  remember(g, (uint64_t)e, e, lanes, text);
}

/* C: a loop over the lanes, for the compiler to vectorise. */
static void lane_loop(Gen *g, const Stmt *s, int lanes) {
  VarId l = ir_var_new(g->c, "lane", DT_I32, true);
  ar_bind_range(g->ar, l, ex_i32(g->c, 0), ex_i32(g->c, lanes));
  ExprId lane = ex_var(g->c, l);
  gen_linef(g, "NS_IVDEP\n");
  gen_linef(g, "for (int32_t %s = 0; %s < %d; ++%s) ", gen_var(g, l), gen_var(g, l), lanes, gen_var(g, l));
  gen_element(g, s->u.store.buf, gen_lane(g, s->u.store.idx[0], lane));
  sb_puts(g->o, " = ");
  gen_to_storage(g, dtype_lanes(ir_buffer(g->c, s->u.store.buf)->type, 1), gen_lane(g, s->u.store.value, lane));
  sb_puts(g->o, ";\n");
}

static void store_lanes(Gen *g, const Stmt *s, int lanes) {
  BufferId b = s->u.store.buf;
  DType t = dtype_lanes(ir_buffer(g->c, b)->type, 1);
  ExprId index = s->u.store.idx[0], value = s->u.store.value, base;
  const char *access = NULL, *vec = gen_vec_storage(g, t, lanes, 0, &access);
  if (vec && gen_aligned_ramp(g, b, index, &base)) {
    gen_line(g);
    gen_vec_ptr(g, b, base, vec, false);
    if (g->t->kind == TG_CUDA)
      sb_printf(g->o, " = make_%s(", vec);
    else
      sb_printf(g->o, " = (%s)(", vec);
    for (int i = 0; i < lanes; i++) {
      if (i) sb_puts(g->o, ", ");
      if (g->t->kind == TG_OPENCL) sb_printf(g->o, "(%s)(", gen_storage(g, t));
      gen_to_storage(g, t, gen_lane(g, value, ex_i32(g->c, i)));
      if (g->t->kind == TG_OPENCL) sb_putc(g->o, ')');
    }
    sb_puts(g->o, ");\n");
    return;
  }
  ExprId *lane = arena_array(g->a, ExprId, lanes);
  for (int i = 0; i < lanes; i++) lane[i] = gen_lane(g, value, ex_i32(g->c, i));
  for (int i = 0; i < lanes; i++) { /* all lanes are read before any is written */
    const char *name = gen_fresh(g, arena_printf(g->a, "val%d_%d", g->n_tmp, i));
    VarId v = ir_var_new(g->c, "lane", dtype_lanes(ir_type(g->c, value), 1), false);
    gen_var_as(g, v, name);
    gen_const_line(g, gen_type(g, dtype_lanes(ir_type(g->c, value), 1)), name, lane[i]);
    lane[i] = ex_var(g->c, v);
  }
  g->n_tmp++;
  for (int i = 0; i < lanes; i++) {
    gen_line(g);
    gen_element(g, b, gen_lane(g, index, ex_i32(g->c, i)));
    sb_puts(g->o, " = ");
    gen_to_storage(g, t, lane[i]);
    sb_puts(g->o, ";\n");
  }
}

void gen_vector_store(Gen *g, const Stmt *s) {
  int lanes = lanes_of(g, s->u.store.value);
  if (lanes_of(g, s->u.store.idx[0]) != lanes)
    err_raise(g->err, NS_ERR_INTERNAL, "store to '%s': index and value differ in lanes",
              ir_buffer(g->c, s->u.store.buf)->name);
  if (g->t->kind == TG_CPU) {
    if (!gen_gnu_store(g, s)) lane_loop(g, s, lanes);
    return;
  }
  int32_t outer = g->lanes.len;
  gen_line(g);
  gen_open(g);
  materialise(g, s->u.store.value);
  materialise(g, s->u.store.idx[0]);
  store_lanes(g, s, lanes);
  gen_close(g, "\n");
  g->lanes.len = outer;
}

void gen_vector_let(Gen *g, const Stmt *s) {
  DType t = ir_type(g->c, s->u.let.value), scalar = dtype_lanes(t, 1);
  const char *base = ir_var_info(g->c, s->u.let.var)->name;
  if (g->t->kind == TG_CPU) {
    BufferId b = ir_array(g->c, base, scalar, SC_LOCAL, t.lanes, true);
    ExprId idx = ex_ramp(g->c, ex_i32(g->c, 0), ex_i32(g->c, 1), t.lanes);
    gen_linef(g, "%s %s[%d] __attribute__((aligned(64)));\n", gen_buffer_storage(g, b), gen_buf(g, b), t.lanes);
    vec_push(g->a, &g->live_buf, b);
    Stmt *st = st_store(g->c, b, 1, &idx, s->u.let.value);
    gen_vector_store(g, st);
    mapu_set(&g->buf_of_var, (uint64_t)s->u.let.var, b);
    gen_holds(g, 0, b, s->u.let.value);
    return;
  }
  const char **text = arena_array(g->a, const char *, t.lanes);
  materialise(g, s->u.let.value);
  for (int i = 0; i < t.lanes; i++) {
    text[i] = gen_fresh(g, arena_printf(g->a, "%s_%d", base, i));
    gen_const_line(g, gen_type(g, scalar), text[i], gen_lane(g, s->u.let.value, ex_i32(g->c, i)));
  }
  remember(g, (uint64_t)s->u.let.var << 32, s->u.let.value, t.lanes, text);
}
