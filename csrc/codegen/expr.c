/* The expression printer, shared by all targets. It prints scalars only: vector code is first turned into one scalar
 * expression per lane (vector.c), so every rule below is written once.
 *
 * Integer divisions: index arithmetic divides by positive constants. Where both operands are provably not negative the
 * division is printed as an unsigned one, which needs no sign correction - but on CUDA only if it depends on block and
 * thread indices alone. With a loop variable in it a signed division is better: only signed sums may be assumed not to
 * wrap, and the compiler's strength reduction rests on that (a 1x1 convolution on an H100: 15 us signed, 36 us
 * unsigned). Floor divisions that could not be proven, and divisions by data, go through a helper function: no value of the
 * data may end the process, as a division by zero does on a CPU.
 *
 * Types: an operation has the values of its type, whatever C makes of it. C adds integers of 8 and 16 bits as ints, and may
 * assume that sums of ints do not overflow; both would show once the sum is widened, compared or divided. So the sum is cast
 * back, and sums of signed data are formed unsigned. Where a sum goes to memory only the low bits count, so that it need not be
 * cast back (it must not overflow even there: compilers remember what they store). Indices do not overflow and are printed
 * as they are, which compilers optimise better (Plain). Likewise a cast to a float of 16 bits
 * rounds; other operations on them may keep the precision of float32 until the value is stored.
 */
#include "codegen/gen.h"

static const char *const OPS[IR_KIND_COUNT] = {
    [IR_ADD] = "+", [IR_SUB] = "-", [IR_MUL] = "*", [IR_DIV] = "/", [IR_MOD] = "%",  [IR_EQ] = "==", [IR_NE] = "!=",
    [IR_LT] = "<",  [IR_LE] = "<=", [IR_GT] = ">",  [IR_GE] = ">=", [IR_AND] = "&&", [IR_OR] = "||"};

void gen_form(Gen *g, ExprId e, const char *form, ...) {
  va_list ap;
  StrBuf text;
  sb_init(&text, g->a);
  va_start(ap, form);
  sb_vprintf(&text, form, ap);
  va_end(ap);
  for (const char *p = sb_str(&text); *p; p++) {
    if (*p != '$') {
      sb_putc(g->o, *p);
      continue;
    }
    char how = *++p >= 'a' ? *p++ : 0;
    ExprId kid = ir_kid(g->c, e, *p - '0');
    if (how == 'l')
      gen_element(g, ir_node(g->c, kid)->sym, ir_kid(g->c, kid, 0));
    else
      (how == 't' ? gx_top : how == 'v' ? gen_vector : gx)(g, kid);
  }
}

/* ---- integers have the values of their type ---- */
/* a op b of integers, formed without overflow and brought back to its type unless only the low bits matter. */
static void sum_or_product(Gen *g, ExprId e, const char *op, DType t, Plain plain) {
  const char *u = "", *back = "";
  if (plain != PLAIN_INDEX && dtype_is_int(t) && !dtype_is_bool(t)) {
    bool narrow = t.bits < 32;
    if (narrow ? *op == '*' : t.code == DT_INT && ir_node(g->c, e)->data) /* sums of narrow integers fit into an int */
      u = arena_printf(g->a, "(%s)", gen_type(g, dtype(DT_UINT, narrow ? 32 : t.bits)));
    if (!plain && (narrow || *u)) back = arena_printf(g->a, "(%s)", gen_type(g, t));
  }
  sb_printf(g->o, *back ? "(%s(%s" : "(%s%s", back, u);
  g->plain = plain;
  gx(g, ir_kid(g->c, e, 0));
  sb_printf(g->o, " %s %s", op, u);
  g->plain = plain;
  gx(g, ir_kid(g->c, e, 1));
  sb_puts(g->o, *back ? "))" : ")");
}

/* An operand of an unsigned division. */
static void unsigned_operand(Gen *g, ExprId e, DType t) {
  int64_t v;
  if (ex_const_int(g->c, e, &v) && t.bits == 32) {
    sb_printf(g->o, "%lldu", (long long)v);
    return;
  }
  DType u = t;
  u.code = DT_UINT;
  sb_printf(g->o, "(%s)", gen_type(g, u));
  gx(g, e);
}

/* a >> s, a & (2^s - 1) for a >= 0; false if the divisor is no power of two */
static bool shift_or_mask(Gen *g, ExprId e, bool divides) {
  int64_t k;
  if (!ex_const_int(g->c, ir_kid(g->c, e, 1), &k) || k < 1 || (k & (k - 1))) return false;
  long long by = divides ? __builtin_ctzll((unsigned long long)k) : k - 1;
  gen_form(g, e, "($0 %s %lld)", divides ? ">>" : "&", by);
  return true;
}

/* Can the divisor be zero, or -1, which takes the smallest number out of its range? Processors refuse both. */
static bool can_trap(Gen *g, ExprId b, DType t) {
  Bound r = ar_bound(g->ar, b);
  return r.lo <= 0 && (t.code == DT_UINT || r.hi >= -1);
}

/* A division by anything: by zero gives 0, and on a CPU the program tells (ns_zero, c.c); by -1 it wraps, as all sums do. */
static const char *any_division(Gen *g, ExprKind kind, DType t) {
  static const char
      *const WORD[] = {[IR_DIV] = "div", [IR_MOD] = "mod", [IR_FDIV] = "floordiv", [IR_FMOD] = "floormod"},
             *const RESULT[] = {[IR_DIV] = "return a / b;",
                                [IR_MOD] = "return a % b;",
                                [IR_FDIV] = "return a / b - ((a % b != 0) & ((a % b < 0) != (b < 0)));",
                                [IR_FMOD] = "return a % b + (((a % b != 0) & ((a % b < 0) != (b < 0))) ? b : 0);"};
  bool cpu = g->t->kind == TG_CPU, divides = kind == IR_DIV || kind == IR_FDIV;
  const char *ty = gen_type(g, t), *u = gen_type(g, dtype(DT_UINT, t.bits)),
             *tell = cpu ? "if (b == 0) *zero = 1; " : "",
             *name = arena_printf(g->a, "ns_any%s_%s", WORD[kind], gen_suffix(g, t));
  const char *rare = t.code == DT_UINT ? "b == 0" : arena_printf(g->a, "(%s)((%s)b + 1) <= 1", u, u),
             *value = divides ? arena_printf(g->a, "b == 0 ? 0 : (%s)(0 - (%s)a)", ty, u) : "0";
  g->divides_by_any |= cpu;
  return gen_function(g, ty, name, "(%s a, %s b%s) { if (%s) { %sreturn %s; } %s }\n", ty, ty,
                      cpu ? ", int32_t *zero" : "", rare, tell, value, RESULT[kind]);
}

static void int_division(Gen *g, ExprId e, ExprKind kind, DType t) {
  ExprId a = ir_kid(g->c, e, 0), b = ir_kid(g->c, e, 1);
  bool divides = kind == IR_DIV || kind == IR_FDIV, is_floor = kind == IR_FDIV || kind == IR_FMOD;
  const char *op = divides ? "/" : "%";
  bool plain = t.code == DT_INT && t.bits >= 32 && ar_bound(g->ar, a).lo >= 0 && ar_bound(g->ar, b).lo > 0;
  if (plain && g->t->kind == TG_CUDA) {
    if (!shift_or_mask(g, e, divides)) gen_form(g, e, "($0 %s $1)", op);
  } else if (plain) {
    sb_printf(g->o, "((%s)(", gen_type(g, t));
    unsigned_operand(g, a, t);
    sb_printf(g->o, " %s ", op);
    unsigned_operand(g, b, t);
    sb_puts(g->o, "))");
  } else if ((is_floor && t.code == DT_INT) || can_trap(g, b, t)) {
    gen_form(g, e, "%s($t0, $t1%s)", any_division(g, kind, t), g->t->kind == TG_CPU ? ", &ns_zero" : "");
  } else if (t.bits < 32 && divides) /* C divides ints */
    gen_form(g, e, "((%s)($0 / $1))", gen_type(g, t));
  else
    gen_form(g, e, "($0 %s $1)", op);
}

/* By the exact remainder, step by step as literals fold (ir/number.c). */
static const char *float_floor(Gen *g, ExprKind kind, DType t) {
  static const char FLOORMOD[] = "(T a, T b) { T r = fmodF(a, b); return r != 0 && (b < 0) != (r < 0) ? r + b : r; }\n",
                    FLOORDIV[] = "(T a, T b) {\n"
                                 "  T r = fmodF(a, b), q = (a - r) / b, f;\n"
                                 "  if (b == 0) return a / b;\n"
                                 "  if (r != 0 && (b < 0) != (r < 0)) q = q - 1;\n"
                                 "  f = floorF(q);\n"
                                 "  return q == 0 ? copysignF((T)0, a / b) : q - f > (T)0.5 ? f + 1 : f;\n"
                                 "}\n";
  const char *ty = gen_type(g, t), *sf = t.bits <= 32 && g->t->kind != TG_OPENCL ? "f" : "";
  StrBuf text;
  sb_init(&text, g->a);
  for (const char *p = kind == IR_FDIV ? FLOORDIV : FLOORMOD; *p; p++)
    if (*p == 'T' || *p == 'F')
      sb_puts(&text, *p == 'T' ? ty : sf);
    else
      sb_putc(&text, *p);
  const char *name = arena_printf(g->a, "ns_floor%s_%s", kind == IR_FDIV ? "div" : "mod", gen_suffix(g, t));
  return gen_function(g, ty, name, "%s", sb_str(&text));
}

static void float_division(Gen *g, ExprId e, ExprKind kind, DType t) {
  g->math_used |= kind != IR_DIV;
  if (kind == IR_DIV)
    gen_form(g, e, "($0 / $1)");
  else if (kind == IR_MOD)
    gen_form(g, e, "fmod%s($t0, $t1)", t.bits <= 32 && g->t->kind != TG_OPENCL ? "f" : "");
  else
    gen_form(g, e, "%s($t0, $t1)", float_floor(g, kind, t));
}

static void cast(Gen *g, ExprId e, DType t) {
  if (dtype_is_bool(t))
    gen_form(g, e, "($0 != 0)");
  else if (gen_is_small_float(t))
    gen_form(g, e, "%s(%s($t0))", gen_small_float(g, t, false), gen_small_float(g, t, true));
  else
    gen_form(g, e, "((%s)$0)", gen_type(g, t));
}

static void ternary(Gen *g, ExprId e, Plain plain) {
  sb_putc(g->o, '(');
  gx(g, ir_kid(g->c, e, 0));
  sb_puts(g->o, " ? ");
  g->plain = plain;
  gx(g, ir_kid(g->c, e, 1));
  sb_puts(g->o, " : ");
  g->plain = plain;
  gx(g, ir_kid(g->c, e, 2));
  sb_putc(g->o, ')');
}

static void variable(Gen *g, VarId v) {
  int32_t value = mapu_get(&g->let_inline, (uint64_t)v, 0);
  if (value)
    gx(g, (ExprId)value);
  else
    sb_puts(g->o, gen_var(g, v));
}

void gx(Gen *g, ExprId e) {
  ExprNode n = *ir_node(g->c, e);
  Plain plain = g->plain;
  g->plain = PLAIN_NO; /* of the operands */
  if (g->hoisted.len) {
    int32_t v = mapu_get(&g->hoisted, (uint64_t)e, 0);
    if (v) {
      sb_puts(g->o, gen_var(g, v));
      return;
    }
  }
  switch ((ExprKind)n.kind) {
  case IR_INT: gen_int(g, n.type, n.u.i); return;
  case IR_FLT: gen_flt(g, n.type, ir_flt(g->c, e)); return;
  case IR_VAR: variable(g, n.sym); return;
  case IR_DIV:
  case IR_MOD:
  case IR_FDIV:
  case IR_FMOD: (dtype_is_int(n.type) ? int_division : float_division)(g, e, (ExprKind)n.kind, n.type); return;
  case IR_MIN:
  case IR_MAX: gen_min_max(g, e, n.type); return;
  case IR_NOT: gen_form(g, e, "(!$0)"); return;
  case IR_CAST: cast(g, e, n.type); return;
  case IR_SELECT: ternary(g, e, plain); return;
  case IR_CALL:
    if (n.sym == IN_IF_THEN_ELSE)
      ternary(g, e, plain);
    else
      gen_call(g, e);
    return;
  case IR_LET: /* its variable is its own */
    mapu_set(&g->let_inline, (uint64_t)n.sym, ir_kid(g->c, e, 0));
    gx(g, ir_kid(g->c, e, 1));
    return;
  case IR_LOAD:
    if (n.n != 1)
      err_raise(g->err, NS_ERR_INTERNAL, "code generation needs the flat form: access to '%s' has %d indices",
                ir_buffer(g->c, n.sym)->name, n.n);
    gen_load(g, n.sym, ir_kid(g->c, e, 0));
    return;
  case IR_ADD:
  case IR_SUB:
    if (gen_float_sum(g, e)) return;
    sum_or_product(g, e, OPS[n.kind], n.type, plain);
    return;
  case IR_MUL: sum_or_product(g, e, OPS[n.kind], n.type, plain); return;
  default: break;
  }
  if (!OPS[n.kind]) err_raise(g->err, NS_ERR_INTERNAL, "expression kind %d cannot be printed as code", (int)n.kind);
  gen_form(g, e, "($0 %s $1)", OPS[n.kind]);
}

/* Prints into a buffer of its own to see whether one pair of parentheses encloses everything. */
void gx_top(Gen *g, ExprId e) {
  StrBuf *o = g->o, tmp;
  sb_init(&tmp, g->a);
  g->o = &tmp;
  gx(g, e);
  g->o = o;
  const char *s = sb_str(&tmp);
  size_t n = tmp.len;
  int depth = 0;
  bool strip = n > 2 && s[0] == '(' && s[n - 1] == ')';
  for (size_t i = 0; i + 1 < n && strip; i++) {
    depth += (s[i] == '(') - (s[i] == ')');
    if (depth == 0) strip = false;
  }
  if (strip)
    sb_write(o, s + 1, n - 2);
  else
    sb_write(o, s, n);
}

/* ---- memory ---- */
static const char *space_of(const Gen *g, BufferId b) {
  if (g->t->kind != TG_OPENCL) return "";
  ScopeKind s = ir_buffer(g->c, b)->scope;
  return s == SC_SHARED ? "__local " : s == SC_LOCAL ? "__private " : "__global ";
}

/* A sum without its constant terms, which are added to *k; 0 if nothing else is left. */
ExprId gen_strip_constants(Gen *g, ExprId e, int64_t *k) {
  int64_t v;
  if (ex_const_int(g->c, e, &v)) {
    *k += v;
    return 0;
  }
  if (ir_kind(g->c, e) != IR_ADD) return e;
  ExprId a = ir_kid(g->c, e, 0), b = ir_kid(g->c, e, 1), x = gen_strip_constants(g, a, k),
         y = gen_strip_constants(g, b, k);
  return x == a && y == b ? e : !x ? y : !y ? x : ex_add(g->c, x, y);
}
/* C: the constant terms of an index are added to the pointer. Accesses that differ in them alone then share one address, and the
 * constant becomes part of the instruction. */
static bool constant_offset(Gen *g, ExprId index, ExprId *base, int64_t *offset) {
  *offset = 0;
  if (g->t->kind != TG_CPU || ir_kind(g->c, index) != IR_ADD || ir_type(g->c, index).lanes > 1) return false;
  *base = gen_strip_constants(g, index, offset);
  if (*offset == 0 || *base == 0) return false;
  return *offset > 0 || ar_bound(g->ar, *base).hi < INT32_MAX;
}
static void address(Gen *g, BufferId b, ExprId index) {
  ExprId base;
  int64_t offset;
  bool split = constant_offset(g, index, &base, &offset);
  sb_printf(g->o, "%s + ", gen_buf(g, b));
  g->plain = PLAIN_INDEX;
  gx(g, split ? base : index);
  if (split) sb_printf(g->o, " + %lld", (long long)offset);
}

void gen_element(Gen *g, BufferId b, ExprId index) {
  ExprId base;
  int64_t offset;
  if (ir_buffer(g->c, b)->registers) {
    sb_puts(g->o, gen_piece(g, b, index));
    return;
  }
  if (constant_offset(g, index, &base, &offset)) {
    sb_printf(g->o, "(%s + ", gen_buf(g, b));
    g->plain = PLAIN_INDEX;
    gx(g, base);
    sb_printf(g->o, ")[%lld]", (long long)offset);
    return;
  }
  sb_printf(g->o, "%s[", gen_buf(g, b));
  g->plain = PLAIN_INDEX;
  gx_top(g, index);
  sb_putc(g->o, ']');
}

/* Names of the two conversions of a 16-bit float type on this target. */
const char *gen_small_float(Gen *g, DType t, bool store) {
#define BF16_OF_BITS "(x != x ? 0x7fc0u : (i + 0x7fffu + ((i >> 16) & 1u)) >> 16); "
#define BITS_OF_HALF                                                                                                   \
  "\n#ifdef __clang__\n  union { __fp16 h; uint16_t i; } u;\n#else\n  union { _Float16 h; uint16_t i; } u;\n#endif\n"
  /* clang knows _Float16 on x86 from release 15 on and only with the newest instructions, and stores __fp16 on all */
  static const char *const BODY[3][2][2] = {
      [TG_CPU] = {{BITS_OF_HALF "  u.i = x; return (float)u.h;\n", BITS_OF_HALF "  u.h = x; return u.i;\n"},
                  {" union { float f; uint32_t i; } u; u.i = (uint32_t)x << 16; return u.f; ",
                   " union { float f; uint32_t i; } u; u.f = x; uint32_t i = u.i; return (uint16_t)" BF16_OF_BITS}},
      [TG_CUDA] = {{" float r; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(x)); return r; ",
                    " unsigned short r; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(x)); return r; "},
                   {" return __uint_as_float((unsigned int)x << 16); ",
                    " unsigned int i = __float_as_uint(x); return (unsigned short)" BF16_OF_BITS}},
      [TG_OPENCL] = {{" return vload_half(0, (const __private half *)&x); ",
                      " ushort r; vstore_half(x, 0, (__private half *)&r); return r; "},
                     {" return as_float((uint)x << 16); ", " uint i = as_uint(x); return (ushort)" BF16_OF_BITS}}};
  bool bf = t.code == DT_BFLOAT;
  const char *u16 = gen_storage(g, t),
             *name = arena_printf(g->a, "ns_%s_%s_float", bf ? "bf16" : "f16", store ? "from" : "to");
  return gen_function(g, store ? u16 : "float", name, "(%s x) {%s}\n", store ? "float" : u16,
                      BODY[g->t->kind][bf][store]);
}

void gen_load(Gen *g, BufferId b, ExprId index) {
  DType t = dtype_lanes(ir_buffer(g->c, b)->type, 1);
  bool small = gen_is_small_float(t), flag = dtype_is_bool(t);
  if (small) sb_printf(g->o, "%s(", gen_small_float(g, t, false));
  if (flag) sb_putc(g->o, '(');
  const char *cast = gen_signed_again(g, b);
  sb_printf(g->o, *cast ? "(%s" : "%s", cast);
  gen_element(g, b, index);
  if (*cast) sb_putc(g->o, ')');
  if (flag) sb_puts(g->o, " != 0)");
  if (small) sb_putc(g->o, ')');
}

void gen_to_storage(Gen *g, DType t, ExprId value) {
  if (gen_is_small_float(t)) {
    bool rounds = ir_kind(g->c, value) == IR_CAST && dtype_eq(ir_type(g->c, value), t);
    sb_printf(g->o, "%s(", gen_small_float(g, t, true));
    gx_top(g, rounds ? ir_kid(g->c, value, 0) : value);
    sb_putc(g->o, ')');
  } else if (dtype_is_bool(t)) {
    gx(g, value);
    sb_puts(g->o, " ? 1 : 0");
  } else {
    g->plain = dtype_is_int(t) && dtype_eq(ir_type(g->c, value), t) ? PLAIN_LOW_BITS : PLAIN_NO;
    gx_top(g, value);
  }
}

const char *gen_from_storage(Gen *g, DType t, const char *text) {
  if (gen_is_small_float(t)) return arena_printf(g->a, "%s(%s)", gen_small_float(g, t, false), text);
  if (dtype_is_bool(t)) return arena_printf(g->a, "(%s != 0)", text);
  return text;
}

void gen_vec_ptr(Gen *g, BufferId b, ExprId base, const char *vec, bool constant) {
  if (ir_buffer(g->c, b)->registers) {
    sb_puts(g->o, gen_piece(g, b, base));
    return;
  }
  sb_printf(g->o, "*(%s%s%s *)(", constant ? "const " : "", space_of(g, b), vec);
  address(g, b, base);
  sb_putc(g->o, ')');
}
