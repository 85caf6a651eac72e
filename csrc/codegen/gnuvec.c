/* C only: a vector statement whose operations GNU C has for vector types is printed in pieces of 32 bytes (one AVX
 * register; wider types would live in memory on machines without wider registers). Unlike a loop over the lanes, pieces
 * at constant positions of a local array become registers: that is what makes an accumulator tile fast. Everything else
 * is left to the lane loop.
 */
#include "codegen/gen.h"

enum { PIECE_BYTES = 32, MAX_PIECES = 16, MAX_VECTOR_BYTES = 64 };

/* The w lanes of e from `start` on. */
static ExprId slice(Gen *g, ExprId e, int64_t start, int w) {
  ExprNode n = *ir_node(g->c, e);
  if (n.type.lanes == 1) return e;
  if (n.type.lanes == w && start == 0) return e;
  if (n.kind == IR_RAMP) {
    ExprId base = ir_kid(g->c, e, 0), stride = ir_kid(g->c, e, 1);
    return ex_ramp(g->c, ex_add(g->c, base, ex_mul(g->c, stride, ex_int(g->c, ir_type(g->c, stride), start))), stride,
                   w);
  }
  if (n.kind == IR_BCAST) return ex_bcast(g->c, ir_kid(g->c, e, 0), w);
  ExprId *kid = arena_array(g->a, ExprId, n.n);
  for (int i = 0; i < n.n; i++) kid[i] = slice(g, ir_kid(g->c, e, i), start, w);
  return ex_raw(g->c, (ExprKind)n.kind, dtype_lanes(n.type, w), n.sym, n.n, kid);
}

/* Name of the vector type of w elements, declared on first use; aligned like an element so that any address is legal.
 */
const char *gen_vector_type(Gen *g, DType t, int w) {
  const char *name = arena_printf(g->a, "ns_%sx%d", gen_suffix(g, t), w);
  gen_helper(g, "#psabi",
             "#pragma GCC diagnostic ignored \"-Wpsabi\"\n"); /* helpers are inline: no call passes a vector */
  return gen_helper(g, name,
                    arena_printf(g->a, "typedef %s %s __attribute__((vector_size(%d), aligned(%d), may_alias));\n",
                                 gen_storage(g, dtype_lanes(t, 1)), name, w * t.bits / 8, t.bits / 8));
}

static void broadcast(Gen *g, DType t, ExprId value) {
  const char *vt = gen_vector_type(g, t, t.lanes),
             *name = arena_printf(g->a, "ns_bcast_%sx%d", gen_suffix(g, t), t.lanes);
  StrBuf b;
  sb_init(&b, g->a);
  for (int i = 0; i < t.lanes; i++) sb_puts(&b, i ? ", x" : "x");
  gen_function(g, vt, name, "(%s x) { return (%s){%s}; }\n", gen_type(g, dtype_lanes(t, 1)), vt, sb_str(&b));
  sb_printf(g->o, "%s(", name);
  gx_top(g, value);
  sb_putc(g->o, ')');
}

static void load(Gen *g, ExprId e, ExprNode n) {
  ExprId index = ir_kid(g->c, e, 0);
  DType scalar = dtype_lanes(n.type, 1);
  if (ir_kind(g->c, index) == IR_BCAST) {
    ExprId at = ir_kid(g->c, index, 0);
    broadcast(g, n.type, ex_load(g->c, n.sym, scalar, 1, &at));
  } else if (ex_is_int(g->c, ir_kid(g->c, index, 1), 1)) {
    gen_vec_ptr(g, n.sym, ir_kid(g->c, index, 0), gen_vector_type(g, n.type, n.type.lanes), true);
  } else {
    sb_printf(g->o, "((%s){", gen_vector_type(g, n.type, n.type.lanes));
    for (int i = 0; i < n.type.lanes; i++) {
      if (i) sb_puts(g->o, ", ");
      gx(g, gen_lane(g, e, ex_i32(g->c, i)));
    }
    sb_puts(g->o, "})");
  }
}

/* As for scalars (expr.c): sums of signed integers are formed unsigned. */
static void arithmetic(Gen *g, ExprId e, const char *op, DType t) {
  if (t.code != DT_INT || *op == '/') {
    gen_form(g, e, "($v0 %s $v1)", op);
    return;
  }
  const char *u = gen_vector_type(g, (DType){DT_UINT, t.bits, t.lanes}, t.lanes), *own = gen_vector_type(g, t, t.lanes);
  gen_form(g, e, "((%s)((%s)$v0 %s (%s)$v1))", own, u, op, u);
}

/* A number that lanes compare: a ramp, or any vector. */
static void operand(Gen *g, ExprId e) {
  ExprNode n = *ir_node(g->c, e);
  if (n.kind != IR_RAMP) {
    gen_vector(g, e);
    return;
  }
  int64_t step = gen_const(g, ir_kid(g->c, e, 1), "step of a ramp"), first = 0;
  bool known = ex_const_int(g->c, ir_kid(g->c, e, 0), &first);
  if (!known) {
    sb_putc(g->o, '(');
    broadcast(g, n.type, ir_kid(g->c, e, 0));
    sb_puts(g->o, " + ");
  }
  sb_printf(g->o, "(%s){", gen_vector_type(g, n.type, n.type.lanes));
  for (int i = 0; i < n.type.lanes; i++) sb_printf(g->o, i ? ", %lld" : "%lld", (long long)(first + i * step));
  sb_puts(g->o, known ? "}" : "})");
}

/* Ones in all bits of the lanes, of the type `mask`, where a test holds. */
static void test(Gen *g, ExprId e, DType mask) {
  static const char *const OPS[IR_KIND_COUNT] = {[IR_EQ] = "==", [IR_NE] = "!=", [IR_LT] = "<",  [IR_LE] = "<=",
                                                 [IR_GT] = ">",  [IR_GE] = ">=", [IR_AND] = "&", [IR_OR] = "|"};
  ExprNode n = *ir_node(g->c, e);
  const char *type = gen_vector_type(g, mask, mask.lanes);
  if (n.kind == IR_BCAST) {
    gen_form(g, e, "((%s){} - (%s)($t0))", type, gen_type(g, dtype_lanes(mask, 1)));
    return;
  }
  bool compare = ir_is_compare(n.kind);
  DType of = {DT_INT, ir_type(g->c, ir_kid(g->c, e, 0)).bits, mask.lanes};
  const char *own = compare ? gen_vector_type(g, of, of.lanes) : type;
  bool other = compare && of.bits != mask.bits;
  sb_printf(g->o, other ? "__builtin_convertvector((%s)(" : "((%s)(", own);
  if (n.kind == IR_NOT) sb_putc(g->o, '~');
  for (int i = 0; i < n.n; i++) {
    if (i) sb_printf(g->o, " %s ", OPS[n.kind]);
    if (compare)
      operand(g, ir_kid(g->c, e, i));
    else
      test(g, ir_kid(g->c, e, i), mask);
  }
  if (other)
    sb_printf(g->o, "), %s)", type);
  else
    sb_puts(g->o, "))");
}

static void choice(Gen *g, ExprId e, DType t) {
  DType mask = {DT_INT, t.bits, t.lanes};
  const char *type = gen_vector_type(g, t, t.lanes), *bits = gen_vector_type(g, mask, t.lanes),
             *name = arena_printf(g->a, "ns_choose_%sx%d", gen_suffix(g, t), t.lanes);
  gen_function(g, type, name, "(%s test, %s yes, %s no) { return (%s)((test & (%s)yes) | (~test & (%s)no)); }\n", bits,
               type, type, type, bits, bits);
  sb_printf(g->o, "%s(", name);
  test(g, ir_kid(g->c, e, 0), mask);
  gen_form(g, e, ", $v1, $v2)");
}

void gen_vector(Gen *g, ExprId e) {
  ExprNode n = *ir_node(g->c, e);
  int32_t kept = g->hoisted.len ? mapu_get(&g->hoisted, (uint64_t)e, 0) : 0;
  if (kept) {
    sb_puts(g->o, gen_var(g, kept));
    return;
  }
  static const char *const OPS[IR_KIND_COUNT] = {[IR_ADD] = "+", [IR_SUB] = "-", [IR_MUL] = "*", [IR_DIV] = "/"};
  switch ((ExprKind)n.kind) {
  case IR_BCAST: broadcast(g, n.type, ir_kid(g->c, e, 0)); return;
  case IR_LOAD: load(g, e, n); return;
  case IR_MIN:
  case IR_MAX: gen_min_max_vector(g, e, gen_vector_type(g, n.type, n.type.lanes)); return;
  case IR_CAST:
    gen_form(g, e, "__builtin_convertvector($v0, ");
    sb_printf(g->o, "%s)", gen_vector_type(g, n.type, n.type.lanes));
    return;
  case IR_SELECT:
  case IR_CALL: {
    if (n.kind == IR_SELECT && ir_type(g->c, ir_kid(g->c, e, 0)).lanes > 1) {
      choice(g, e, n.type);
      return;
    }
    if (n.kind == IR_CALL && intrin_on_vectors((Intrin)n.sym, n.type)) {
      gen_form(g, e, "%s($v0)", gen_vector_function(g, (Intrin)n.sym, n.type));
      return;
    }
    /* to gcc the result of an operation and an element in memory are of different types */
    const char *type = gen_vector_type(g, n.type, n.type.lanes);
    gen_form(g, e, "($0 ? (%s)$v1 : (%s)$v2)", type, type);
    return;
  }
  case IR_ADD:
  case IR_SUB:
    if (gen_float_sum(g, e)) return;
    break;
  default: break;
  }
  arithmetic(g, e, OPS[n.kind], n.type);
}

bool gen_gnu_store(Gen *g, const Stmt *s) {
  BufferId b = s->u.store.buf;
  ExprId value = s->u.store.value, index = s->u.store.idx[0];
  DType t = ir_type(g->c, value), elem = ir_buffer(g->c, b)->type;
  if (ir_kind(g->c, index) != IR_RAMP || !ex_is_int(g->c, ir_kid(g->c, index, 1), 1) || elem.code != t.code ||
      elem.bits != t.bits || !ex_on_vectors(g->c, value))
    return false;
  int w = PIECE_BYTES * 8 / t.bits;
  while (w > 1 && t.lanes % w) w /= 2;
  if (t.lanes * t.bits / 8 <= MAX_VECTOR_BYTES && !(t.lanes & (t.lanes - 1))) w = t.lanes;
  if (w == 1 || t.lanes / w > MAX_PIECES) return false;
  for (int64_t at = 0; at < t.lanes; at += w) {
    ExprId i = slice(g, index, at, w), v = slice(g, value, at, w);
    gen_line(g);
    gen_vec_ptr(g, b, ir_kid(g->c, i, 0), gen_vector_type(g, t, w), false);
    sb_puts(g->o, " = ");
    gen_vector(g, v);
    sb_puts(g->o, ";\n");
  }
  return true;
}

/* ---- buffers in registers ---- */
typedef struct {
  Gen *g;
  BufferId b;
} Pieces;

static void declare_piece(Pieces *p, int64_t at, int lanes) {
  Gen *g = p->g;
  DType t = dtype_lanes(ir_buffer(g->c, p->b)->type, 1);
  uint64_t key = (uint64_t)p->b << 32 | (uint64_t)at;
  if (mapu_get(&g->piece_name, key, -1) >= 0) return;
  const char *name = gen_fresh(g, arena_printf(g->a, "%s_%lld", ir_buffer(g->c, p->b)->name, (long long)at));
  vec_note(g->a, &g->names, name, &g->piece_name, key);
  gen_linef(g, "%s %s;\n", lanes > 1 ? gen_vector_type(g, t, lanes) : gen_buffer_storage(g, p->b), name);
}
/* CPUs: pieces are as wide as they are used. GPUs: elements, however many are used at once. */
static void declare(Pieces *p, ExprId index) {
  IrCtx *c = p->g->c;
  bool ramp = ir_kind(c, index) == IR_RAMP;
  int64_t at = gen_const(p->g, ramp ? ir_kid(c, index, 0) : index, "position in a register buffer");
  if (p->g->t->kind == TG_CPU || !ramp) {
    declare_piece(p, at, ir_type(c, index).lanes);
    return;
  }
  int64_t step = gen_const(p->g, ir_kid(c, index, 1), "step in a register buffer");
  for (int i = 0; i < ir_type(c, index).lanes; i++) declare_piece(p, at + i * step, 1);
}
static void declare_load(IrCtx *c, ExprId e, void *arg) {
  Pieces *p = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_LOAD && n->sym == p->b) declare(p, ir_kid(c, e, 0));
}
static void declare_store(Gen *g NS_UNUSED, const Stmt *s, void *arg) {
  Pieces *p = arg;
  if (s->kind == ST_STORE && s->u.store.buf == p->b) declare(p, s->u.store.idx[0]);
}

void gen_registers(Gen *g, BufferId b, const Stmt *body) {
  Pieces p = {g, b};
  gen_walk(g, body, declare_load, declare_store, &p);
}

const char *gen_piece(Gen *g, BufferId b, ExprId at) {
  int64_t v = gen_const(g, at, "position in a register buffer");
  int32_t i = mapu_get(&g->piece_name, (uint64_t)b << 32 | (uint64_t)v, -1);
  if (i < 0)
    err_raise(g->err, NS_ERR_INTERNAL, "register buffer '%s' has no piece at %lld", ir_buffer(g->c, b)->name,
              (long long)v);
  return g->names.at[i];
}
