/* Contraction: one instruction computes a * b + c and rounds once where two operators round twice. Sums of products want that. Between
 * operators that users wrote it gives what no other tool gives: sqrt(a*b - c*d) of equal products is no number, a*b == a*b is false.
 * So sums are fused where the IR allows it alone (ex_may_fuse: what reductions add up).
 *
 * Compilers fuse what they see, through variables, arrays, choices and functions that they inline. A sum without the mark, of which an
 * operand may be a product in their eyes, is printed so that they cannot. All other text is as if nothing were forbidden:
 *
 *   CUDA    __fadd_rn(x, y), which is never fused
 *   OpenCL  a pragma in such a kernel, and fma where it may be fused
 *   C       ns_mul(a, b) + c. To gcc, the product is a fused multiply-add itself, of -0, which changes no number: its vectoriser knows it,
 *           and loses barriers. In statements of vectors there is no vectoriser, and a barrier costs nothing. clang heeds a pragma.
 *           Where an operand is no product itself but may hold one, ns_add(x, y).
 *
 * The polynomials of vecmath.c are fused as they always were; their results are not. With fast_math=aggressive nothing is kept apart. */
#include <math.h>
#include "codegen/gen.h"

/* ---- what may be a product ---- */

/* Keys of Gen.product_in. */
static uint64_t of_var(VarId v) { return (uint64_t)v; }
static uint64_t of_buffer(BufferId b) { return (uint64_t)1 << 32 | (uint64_t)b; }

static bool may_be_product(Gen *g, ExprId e);

/* x / 4, which compilers make x * 0.25. */
static bool divides_exactly(IrCtx *c, ExprId by) {
  int exponent;
  if (ir_kind(c, by) == IR_BCAST) by = ir_kid(c, by, 0);
  return ir_kind(c, by) == IR_FLT && fabs(frexp(ir_flt(c, by), &exponent)) == 0.5;
}

/* A cast that keeps the number, and the variable. */
static bool is_same_number(Gen *g, ExprId e) {
  DType to = ir_type(g->c, e), from = ir_type(g->c, ir_kid(g->c, e, 0));
  return dtype_is_float(from) && dtype_is_float(to) && !gen_is_small_float(to) && (from.bits <= 32) == (to.bits <= 32);
}

static bool call_may_be_product(Gen *g, ExprId e, const ExprNode *n) {
  if (n->sym == IN_IF_THEN_ELSE) return may_be_product(g, ir_kid(g->c, e, 1)) || may_be_product(g, ir_kid(g->c, e, 2));
  if (n->sym == IN_FABS || n->sym == IN_LIKELY)
    return may_be_product(g, ir_kid(g->c, e, 0)); /* of x * x compilers drop it */
  return gen_ends_in_product(g, (Intrin)n->sym, n->type);
}

static bool variable_may_be_product(Gen *g, VarId v) {
  int32_t value = mapu_get(&g->let_inline, (uint64_t)v, 0);
  return value ? may_be_product(g, (ExprId)value) : mapu_get(&g->product_in, of_var(v), 0);
}

static bool find_product(Gen *g, ExprId e) {
  IrCtx *c = g->c;
  const ExprNode n = *ir_node(c, e);
  switch ((ExprKind)n.kind) {
  case IR_MUL: return true;
  case IR_DIV: return divides_exactly(c, ir_kid(c, e, 1));
  case IR_CAST: return is_same_number(g, e) && may_be_product(g, ir_kid(c, e, 0));
  case IR_BCAST: return may_be_product(g, ir_kid(c, e, 0));
  case IR_MIN:
  case IR_MAX: return may_be_product(g, ir_kid(c, e, 0)) || may_be_product(g, ir_kid(c, e, 1));
  case IR_SELECT: return may_be_product(g, ir_kid(c, e, 1)) || may_be_product(g, ir_kid(c, e, 2));
  case IR_LET: return may_be_product(g, ir_kid(c, e, 1));
  case IR_CALL: return call_may_be_product(g, e, &n);
  case IR_LOAD: return mapu_get(&g->product_in, of_buffer(n.sym), 0);
  default: return false;
  }
}

static bool may_be_product(Gen *g, ExprId e) {
  const ExprNode *n = ir_node(g->c, e);
  if (!dtype_is_float(n->type)) return false;
  if (n->kind == IR_VAR) return variable_may_be_product(g, n->sym);
  int32_t known = mapu_get(&g->product, (uint64_t)e, -1);
  if (known < 0) {
    known = find_product(g, e);
    mapu_set(&g->product, (uint64_t)e, known);
  }
  return known;
}

/* ---- where products go: to variables and arrays ---- */
typedef struct {
  uint64_t to;
  ExprId value;
} Flow;
typedef struct {
  Gen *g;
  VEC(Flow) at;
} Flows;

static void flow_expr(IrCtx *c, ExprId e, void *arg) {
  Flows *f = arg;
  if (ir_kind(c, e) != IR_LET) return;
  Flow x = {of_var(ir_node(c, e)->sym), ir_kid(c, e, 0)};
  vec_push(f->g->a, &f->at, x);
}

static void flow_stmt(Gen *g, const Stmt *s, void *arg) {
  Flows *f = arg;
  Flow x = {0, 0};
  if (s->kind == ST_STORE) x = (Flow){of_buffer(s->u.store.buf), s->u.store.value};
  if (s->kind == ST_LET) x = (Flow){of_var(s->u.let.var), s->u.let.value};
  if (x.value) vec_push(g->a, &f->at, x);
}

static void find_flows(Gen *g) {
  Flows f = {.g = g};
  gen_walk(g, g->k->body, flow_expr, flow_stmt, &f);
  mapu_init(&g->product_in, g->a);
  for (bool grew = true; grew;) {
    grew = false;
    mapu_init(&g->product, g->a);
    for (int i = 0; i < f.at.len; i++) {
      if (mapu_get(&g->product_in, f.at.at[i].to, 0) || !may_be_product(g, f.at.at[i].value)) continue;
      mapu_set(&g->product_in, f.at.at[i].to, 1);
      grew = true;
    }
  }
  g->flows_known = true;
}

void gen_holds(Gen *g, VarId v, BufferId b, ExprId value) {
  if (!g->flows_known) find_flows(g);
  if (may_be_product(g, value)) mapu_set(&g->product_in, v ? of_var(v) : of_buffer(b), 1);
}

/* ---- text ---- */

/* The product that e is, perhaps behind casts; 0: it is none itself. */
static ExprId as_product(Gen *g, ExprId e) {
  while (ir_kind(g->c, e) == IR_CAST && is_same_number(g, e)) e = ir_kid(g->c, e, 0);
  return ir_kind(g->c, e) == IR_MUL ? e : 0;
}

/* A vector that gcc does not look into: it has to be in a register there. (__builtin_assoc_barrier takes vectors apart, value by value.) A
 * vector that is wider than registers is looked at by parts. */
static void barrier(Gen *g) {
  gen_helper(
      g, "#value",
      "#if defined(__AVX512VL__)\n"
      "#define NS_PART 64\n"
      "#define NS_IN \"+v\"\n"
      "#elif defined(__AVX__)\n"
      "#define NS_PART 32\n"
      "#define NS_IN \"+x\"\n"
      "#elif defined(__SSE2__)\n"
      "#define NS_PART 16\n"
      "#define NS_IN \"+x\"\n"
      "#elif defined(__aarch64__)\n"
      "#define NS_PART 16\n"
      "#define NS_IN \"+w\"\n"
      "#else\n"
      "#define NS_PART 16\n"
      "#define NS_IN \"+m\"\n"
      "#endif\n"
      "typedef int ns_part __attribute__((vector_size(NS_PART), may_alias));\n"
      "#define NS_VALUE(x) __extension__({ \\\n"
      "  union { __typeof__(x) v; ns_part p[sizeof(x) / NS_PART + 1]; } ns_u; ns_u.v = (x); \\\n"
      "  if (sizeof(x) <= NS_PART) __asm__(\"\" : NS_IN(ns_u.v)); \\\n"
      "  else for (unsigned ns_k = 0; ns_k < sizeof(x) / NS_PART; ns_k++) __asm__(\"\" : NS_IN(ns_u.p[ns_k])); \\\n"
      "  ns_u.v; })\n");
}

/* The helper T name(T a, T b) { return a op b; } that is not fused with anything: clang heeds the pragma, gcc computes `gcc` where it has a
 * fused multiply-add. */
static const char *helper(Gen *g, DType t, const char *word, char op, const char *gcc) {
  const char *suffix = gen_suffix(g, t), *type = gen_type(g, t);
  if (t.lanes > 1) {
    suffix = arena_printf(g->a, "%sx%d", suffix, t.lanes);
    type = gen_vector_type(g, t, t.lanes);
  }
  return gen_function(g, type, arena_printf(g->a, "ns_%s_%s", word, suffix),
                      "(%s a, %s b) {\n#if defined(__clang__)\n#pragma clang fp contract(off)\n"
                      "#elif defined(%s)\n  return %s;\n#endif\n  return a %c b;\n}\n",
                      type, type, t.bits == 64 ? "__FP_FAST_FMA" : "__FP_FAST_FMAF", gcc, op);
}

static const char *multiply(Gen *g, DType t) {
  if (t.lanes > 1) barrier(g);
  return helper(g, t, "mul", '*',
                t.lanes > 1    ? "NS_VALUE(a * b)"
                : t.bits == 64 ? "__builtin_fma(a, b, -0.0)"
                               : "__builtin_fmaf(a, b, -0.0f)");
}

static const char *combine(Gen *g, DType t, bool adds) {
  const char *value = t.lanes > 1    ? "NS_VALUE"
                      : t.bits == 64 ? "__builtin_fma"
                                     : "__builtin_fmaf",
             *rest = t.lanes > 1    ? ""
                     : t.bits == 64 ? ", 1.0, -0.0"
                                    : ", 1.0f, -0.0f";
  char op = adds ? '+' : '-';
  if (t.lanes > 1) barrier(g);
  return helper(g, t, adds ? "add" : "sub", op, arena_printf(g->a, "%s(a%s) %c %s(b%s)", value, rest, op, value, rest));
}

static void operand(Gen *g, ExprId e) {
  ExprId product = as_product(g, e);
  DType t = ir_type(g->c, e);
  if (product)
    gen_form(g, product, t.lanes > 1 ? "%s($v0, $v1)" : "%s($t0, $t1)", multiply(g, t));
  else
    (t.lanes > 1 ? gen_vector : gx)(g, e);
}

static void c_sum(Gen *g, ExprId e, bool adds) {
  DType t = ir_type(g->c, e);
  bool products = true; /* and nothing that hides one */
  for (int i = 0; i < 2; i++) {
    ExprId x = ir_kid(g->c, e, i);
    products = products && (as_product(g, x) || !may_be_product(g, x));
  }
  if (!products) {
    gen_form(g, e, t.lanes > 1 ? "%s($v0, $v1)" : "%s($t0, $t1)", combine(g, t, adds));
    return;
  }
  sb_putc(g->o, '(');
  operand(g, ir_kid(g->c, e, 0));
  sb_puts(g->o, adds ? " + " : " - ");
  operand(g, ir_kid(g->c, e, 1));
  sb_putc(g->o, ')');
}

/* OpenCL: a sum that may be fused, in a kernel whose pragma turns contraction off. */
static bool opencl_fused(Gen *g, ExprId e, DType t) {
  int which = as_product(g, ir_kid(g->c, e, 1)) ? 1 : 0;
  ExprId product = as_product(g, ir_kid(g->c, e, which));
  if (!product) return false;
  const char *name = arena_printf(g->a, "ns_fma_%s", gen_suffix(g, t)),
             *fast = t.bits == 64 ? "FP_FAST_FMA" : "FP_FAST_FMAF";
  gen_helper(g, name,
             arena_printf(g->a, "#ifdef %s\n#define %s fma\n#else\n#define %s mad\n#endif\n", fast, name, name));
  gen_form(g, product, "%s($t0, $t1, ", name);
  gx_top(g, ir_kid(g->c, e, 1 - which));
  sb_putc(g->o, ')');
  return true;
}

static bool is_apart(Gen *g, ExprId e) {
  const ExprNode *n = ir_node(g->c, e);
  if ((n->kind != IR_ADD && n->kind != IR_SUB) || n->sym || !dtype_is_float(n->type)) return false;
  if (g->p->f.target.fast_math == FAST_MATH_AGGRESSIVE) return false;
  if (!g->flows_known) find_flows(g);
  return may_be_product(g, ir_kid(g->c, e, 0)) || may_be_product(g, ir_kid(g->c, e, 1));
}

bool gen_float_sum(Gen *g, ExprId e) {
  const ExprNode n = *ir_node(g->c, e);
  if (!dtype_is_float(n.type)) return false;
  if (g->t->kind == TG_OPENCL) return g->apart && n.sym && opencl_fused(g, e, n.type);
  if (!is_apart(g, e)) return false;
  bool adds = n.kind == IR_ADD;
  if (g->t->kind == TG_CUDA)
    gen_form(g, e, "__%c%s_rn($t0, $t1)", n.type.bits == 64 ? 'd' : 'f', adds ? "add" : "sub");
  else
    c_sum(g, e, adds);
  return true;
}

static void note_apart(IrCtx *c NS_UNUSED, ExprId e, void *arg) {
  Gen *g = arg;
  g->apart = g->apart || is_apart(g, e);
}

bool gen_apart(Gen *g) {
  if (g->t->kind == TG_OPENCL) gen_walk(g, g->k->body, note_apart, NULL, g);
  return g->apart;
}
