/* Intrinsics: what each one is called on each target, by type and by the fast_math mode (spec 07 §7.5.6).
 * Functions of floats are called as the intrinsic is, but for what one table says: another stem in the C library, and the
 * approximate CUDA instruction that the reference mode uses for float32. Where a target lacks a function, a small helper is
 * put in front of the program.
 */
#include <string.h>
#include "codegen/gen.h"

typedef struct {
  const char *stem, *cuda_fast;
} MathName; /* NULL: what the intrinsic is called; none */
static const MathName MATH[IN_FABS + 1] = {
    [IN_EXP] = {NULL, "__expf"},     [IN_EXP10] = {NULL, "__exp10f"},
    [IN_LOG] = {NULL, "__logf"},     [IN_LOG2] = {NULL, "__log2f"},
    [IN_LOG10] = {NULL, "__log10f"}, [IN_COS] = {NULL, "__cosf"},
    [IN_SIN] = {NULL, "__sinf"},     [IN_NEARBYINT] = {"rint", NULL},
    [IN_ROUND] = {"rint", NULL} /* half to even, as in NumPy and PyTorch, and as literals fold; C's round does not */};
static const char *const BITS[IN_COUNT] = {
    [IN_SHL] = "<<", [IN_SHR] = ">>", [IN_BAND] = "&", [IN_BOR] = "|", [IN_BXOR] = "^"};

const char *gen_suffix(Gen *g, DType t) {
  const char *letter = t.code == DT_INT ? "i" : t.code == DT_UINT ? "u" : "f";
  return arena_printf(g->a, "%s%d", letter, gen_is_small_float(t) ? 32 : t.bits);
}

const char *gen_helper(Gen *g, const char *name, const char *text) {
  if (!maps_get(&g->helper_set, name, 0)) {
    maps_set(&g->helper_set, name, 1);
    vec_push(g->a, &g->helper, text);
  }
  return name;
}

const char *gen_function(Gen *g, const char *type, const char *name, const char *form, ...) {
  StrBuf text;
  va_list ap;
  sb_init(&text, g->a);
  sb_printf(&text, "%s %s %s", g->t->kind == TG_CUDA ? "static __device__ __forceinline__" : "static inline", type,
            name);
  va_start(ap, form);
  sb_vprintf(&text, form, ap);
  va_end(ap);
  return gen_helper(g, name, sb_str(&text));
}

static void math_call(Gen *g, ExprId e, Intrin in, DType t) { /* of floats */
  const MathName *m = &MATH[in];
  TargetKind kind = g->t->kind;
  bool fast = kind == TG_CUDA && g->p->f.target.fast_math;
  const char *ty = gen_type(g, t), *sf = t.bits <= 32 ? "f" : "", *stem = m->stem ? m->stem : intrin_info(in)->name;
  const char *name = kind == TG_OPENCL ? stem : arena_printf(g->a, "%s%s", stem, sf);
  g->math_used = true;
  if (fast && *sf && m->cuda_fast) name = m->cuda_fast;
  if (kind == TG_OPENCL && in == IN_TANH) /* drivers may miss 1, which 1 + tanh(x) would tell from -1 */
    name =
        gen_function(g, ty, arena_printf(g->a, "ns_tanh%s", sf),
                     "(%s x) { return fabs(x) > %s ? copysign((%s)1, x) : tanh(x); }\n", ty, *sf ? "9.1f" : "19.1", ty);
  if (kind == TG_CPU && in == IN_EXP10)
    name = gen_function(g, ty, arena_printf(g->a, "ns_exp10%s", sf), "(%s x) { return pow%s(10, x); }\n", ty, sf);
  if (in == IN_RSQRT && kind != TG_OPENCL && !fast)
    name = gen_function(g, ty, arena_printf(g->a, "ns_rsqrt%s", sf), "(%s x) { return 1 / sqrt%s(x); }\n", ty, sf);
  gen_form(g, e, ir_node(g->c, e)->n == 2 ? "%s($t0, $t1)" : "%s($t0)", name);
}

static void sigmoid(Gen *g, ExprId e, DType t) {
  const char *one = t.bits <= 32 ? "1.0f" : "1.0";
  ExprId x = ir_kid(g->c, e, 0);
  sb_printf(g->o, "(%s / (%s + ", one, one);
  ExprId neg = ex_raw(g->c, IR_SUB, t, 0, 2, (ExprId[]){ex_flt(g->c, t, 0.0), x});
  gx(g, ex_call(g->c, IN_EXP, t, 1, &neg));
  sb_puts(g->o, "))");
}

/* Functions whose last operation is no product anywhere. Of the C library's, compilers see none, but that they write a power of 2 out. */
static const bool UNMULTIPLIED[IN_FABS + 1] = {
    [IN_SQRT] = true,  [IN_RSQRT] = true, [IN_FMOD] = true,     [IN_NEXTAFTER] = true, [IN_COPYSIGN] = true,
    [IN_FLOOR] = true, [IN_CEIL] = true,  [IN_ROUND] = true,    [IN_TRUNC] = true,     [IN_NEARBYINT] = true,
    [IN_EXP2] = true,  [IN_TANH] = true,  [IN_POPCOUNT] = true, [IN_CLZ] = true,       [IN_ERF] = true};
/* CUDA's approximate ones that are one instruction, behind a product at most. */
static const bool UNMULTIPLIED_FAST[IN_FABS + 1] = {
    [IN_EXP] = true, [IN_EXP10] = true, [IN_LOG2] = true, [IN_COS] = true, [IN_SIN] = true};

bool gen_ends_in_product(const Gen *g, Intrin in, DType t) {
  if (in > IN_FABS || UNMULTIPLIED[in]) return false;
  if (g->t->kind == TG_CPU) return t.lanes > 1 ? in == IN_EXP : in == IN_POW;
  return !(g->t->kind == TG_CUDA && g->p->f.target.fast_math && t.bits <= 32 && UNMULTIPLIED_FAST[in]);
}

/* The function that reads the bits of one type as another. */
static const char *reinterpret(Gen *g, DType from, DType to) {
  if (gen_is_small_float(to) && dtype_eq(from, dtype(DT_UINT, 16))) return gen_small_float(g, to, false);
  if (to.bits != from.bits || to.bits < 32)
    err_raise(g->err, NS_ERR_TYPE, "reinterpret needs two types of the same width of 32 or 64 bits");
  const char *is = gen_type(g, from), *wanted = gen_type(g, to);
  if (g->t->kind == TG_OPENCL) return arena_printf(g->a, "as_%s", wanted);
  return gen_function(g, wanted, arena_printf(g->a, "ns_%s_as_%s", gen_suffix(g, from), gen_suffix(g, to)),
                      "(%s x) { union { %s from; %s to; } u; u.from = x; return u.to; }\n", is, is, wanted);
}

static void round_tf32(Gen *g, ExprId e, DType t) {
  DType bits = {DT_UINT, 32, t.lanes};
  const char *value = reinterpret(g, bits, t), *rounded = gen_to_tf32(g);
  gen_form(g, e, "%s(%s(%s($t0)))", value, rounded, reinterpret(g, t, bits));
}

static void shuffle(Gen *g, ExprId e, Intrin in) {
  if (g->t->kind != TG_CUDA)
    err_raise(g->err, NS_ERR_INTERNAL, "warp shuffles exist on CUDA only; use the shared-memory reduction");
  bool masked = ir_node(g->c, e)->n == 4;
  gen_form(g, e, masked ? "%s((unsigned)$0, $t1, $t2, $t3)" : "%s(0xffffffffu, $t0, $t1, $t2)",
           in == IN_SHFL_DOWN ? "__shfl_down_sync" : "__shfl_sync");
}

static void bit_count(Gen *g, ExprId e, Intrin in) {
  bool wide = ir_type(g->c, ir_kid(g->c, e, 0)).bits == 64, count = in == IN_POPCOUNT;
  static const char *const NAME[3][2][2] = {
      {{"__builtin_clz", "__builtin_clzll"}, {"__builtin_popcount", "__builtin_popcountll"}},
      {{"__clz", "__clzll"}, {"__popc", "__popcll"}},
      {{"clz", "clz"}, {"popcount", "popcount"}}};
  gen_form(g, e, "((%s)%s($t0))", gen_type(g, ir_type(g->c, e)), NAME[g->t->kind][count][wide]);
}

/* The function that checks an index (lower/indices.c). The report keeps the first index that is out of range. */
static void check_index(Gen *g, ExprId e, DType t) {
  static const char *const FIRST[] = {[TG_CPU] = "if (__sync_bool_compare_and_swap(report, 0, site + 1)) ",
                                      [TG_CUDA] = "if (atomicCAS(report, 0, site + 1) == 0) ",
                                      [TG_OPENCL] =
                                          "if (atomic_cmpxchg((volatile __global int *)report, 0, site + 1) == 0) "};
  bool cpu = g->t->kind == TG_CPU;
  const char *ty = gen_type(g, t), *u = gen_type(g, dtype(DT_UINT, t.bits)), *word = gen_type(g, DT_I32),
             *name = arena_printf(g->a, "ns_index_%s", gen_suffix(g, t)),
             *in = arena_printf(g->a, cpu ? "__builtin_expect((%s)i < (%s)n, 1)" : "(%s)i < (%s)n", u, u);
  gen_function(g, ty, name,
               "(%s i, %s n, %s site, %s%s *report) {\n  if (%s) return i;\n  %s{ report[%d] = (%s)i; report[%d] = "
               "(%s)(%s); }\n  return 0;\n}\n",
               ty, ty, word, g->t->global, word, in, FIRST[g->t->kind], REPORT_LOW, word, REPORT_HIGH, word,
               t.bits == 64 ? "i >> 32" : "i < 0 ? -1 : 0");
  gen_form(g, e, "%s($t0, $t1, $t2, &$l3)", name);
}

/* A function that whoever links the program has. Its parameters are what is passed: their types are not declared. */
static void call_extern(Gen *g, ExprId e, DType t) {
  const char *name = ir_string(g->c, ir_kid(g->c, e, 0));
  err_check(g->err, g->t->kind == TG_CPU, "%s is a function of C: only programs of CPUs call it", name);
  gen_helper(g, name, arena_printf(g->a, "%s %s();\n", gen_type(g, t), name));
  sb_printf(g->o, "%s(", name);
  for (int i = 1; i < ir_node(g->c, e)->n; i++) {
    if (i > 1) sb_puts(g->o, ", ");
    gx_top(g, ir_kid(g->c, e, i));
  }
  sb_putc(g->o, ')');
}

void gen_call(Gen *g, ExprId e) {
  ExprNode n = *ir_node(g->c, e);
  Intrin in = (Intrin)n.sym;
  switch (in) {
  case IN_LIKELY: gx(g, ir_kid(g->c, e, 0)); return;
  case IN_SIGMOID: sigmoid(g, e, n.type); return;
  case IN_ADDRESS: gen_form(g, e, "&$l0"); return;
  case IN_EXTERN: call_extern(g, e, n.type); return;
  case IN_PACKED:
    err_raise(
        g->err, NS_ERR_VALUE,
        "%s is a global function of Python, which programs cannot call; make its call the whole body of a te.extern",
        ir_string(g->c, ir_kid(g->c, e, 0)));
  case IN_INDEX: check_index(g, e, n.type); return;
  case IN_REINTERPRET: gen_form(g, e, "%s($t0)", reinterpret(g, ir_type(g->c, ir_kid(g->c, e, 0)), n.type)); return;
  case IN_ROUND_TF32: round_tf32(g, e, n.type); return;
  case IN_SHFL:
  case IN_SHFL_DOWN: shuffle(g, e, in); return;
  case IN_POPCOUNT:
  case IN_CLZ: bit_count(g, e, in); return;
  case IN_ISNAN:
    g->math_used = true;
    gen_form(g, e, "isnan($t0)");
    return;
  case IN_BNOT: /* a truth value is an int in C: ~1 would be true */
    if (dtype_is_bool(n.type))
      gen_form(g, e, "(!$0)");
    else
      gen_form(g, e, "((%s)~$0)", gen_type(g, n.type));
    return;
  case IN_PREFETCH: gen_form(g, e, "__builtin_prefetch(&$l0, 0, 2)"); return;
  case IN_SYNC_SHARED: sb_puts(g->o, g->t->barrier); return;
  default: break;
  }
  if (gen_warp(g, e, in)) return;
  bool narrow = in == IN_SHL && n.type.bits < 32; /* C shifts it as an int */
  if (BITS[in] && narrow)
    gen_form(g, e, "((%s)($0 %s $1))", gen_type(g, n.type), BITS[in]);
  else if (BITS[in])
    gen_form(g, e, "($0 %s $1)", BITS[in]);
  else if (n.type.code != DT_INT && n.type.code != DT_UINT && in <= IN_FABS)
    math_call(g, e, in, n.type);
  else if (in == IN_FABS)
    gen_form(g, e, "%s($t0)", g->t->kind != TG_CPU ? "abs" : n.type.bits == 64 ? "__builtin_llabs" : "__builtin_abs");
  else
    err_raise(g->err, NS_ERR_VALUE, "no code can be generated for a call of '%s' of this type", intrin_info(in)->name);
}
