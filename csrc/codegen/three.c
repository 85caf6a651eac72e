/* Products of float32 as three of TF32 (docs/numerics.md): a factor's high part is its 11 leading bits, rounded, the low one what is
 * left, 12 bits, of which the units cut off the last. Small products have sums of their own, behind those of the large ones: the units cut
 * off, which does not matter there (lower/matrix.c says what it means for the others).
 *
 * Neighbouring calls are printed kind by kind: each waits for the one before into the same sums, and with few warps nothing else would
 * keep the units busy (one warp of a scheduler, a tile of 32x16 on an H100: 196 cycles for 8 along k, 137 in this order).
 */
#include "codegen/gen.h"

/* -8191 x has 13 bits more in front of x's own: rounded and added to 8192 x it is x rounded to 11 bits, ties to even (8193 x would be
 * rounded to 10 where that reaches the next power of two). Instructions for floats alone: those for integers are half as fast, and
 * cvt.rna.tf32 takes four. It overflows beyond 2^115: hi and lo are infinities of both signs then, and their products no number. */
static const char HIGH[] = "(unsigned int x) {\n"
                           "  float f = __uint_as_float(x);\n"
                           "  return __float_as_uint(__fmaf_rn(8192.0f, f, __fmul_rn(-8191.0f, f)));\n}\n";
static const char LOW[] = "(unsigned int x) {\n"
                          "  return __float_as_uint(__uint_as_float(x) - __uint_as_float(ns_tf32_high(x)));\n}\n";

static void helpers(Gen *g) {
  gen_function(g, "unsigned int", "ns_tf32_high", HIGH);
  gen_function(g, "unsigned int", "ns_tf32_low", LOW);
}

/* Compilers would make parts where they are used: behind the products that they are to be made beside. */
void gen_parts(Gen *g, ExprId e) {
  helpers(g);
  if (ir_node(g->c, e)->n == 2) {
    const char *rest =
        gen_function(g, "void", "ns_rest",
                     "(unsigned int *low, const unsigned int *x) {\n"
                     "  *low = __float_as_uint(__uint_as_float(*x) - __uint_as_float(*x & 0xffffe000)) + 0x1000;\n"
                     "  asm volatile(\"\" : \"+r\"(*low));\n}\n");
    gen_form(g, e, "%s((unsigned int *)&$l0, (const unsigned int *)&$l1)", rest);
    return;
  }
  const char *parts = gen_function(g, "void", "ns_parts",
                                   "(unsigned int *high, unsigned int *low, const unsigned int *x) {\n"
                                   "  *high = ns_tf32_high(*x), *low = ns_tf32_low(*x);\n"
                                   "  asm volatile(\"\" : \"+r\"(*high), \"+r\"(*low));\n}\n");
  gen_form(g, e, "%s((unsigned int *)&$l0, (unsigned int *)&$l1, (const unsigned int *)&$l2)", parts);
}

/* One of the three products. */
static const char *product(Gen *g, const char *a, const char *b) {
  const char *mma = gen_mma(g, MMA_TF32X3);
  helpers(g);
  return gen_function(g, "void", arena_printf(g->a, "ns_mma_%s_%s", a, b),
                      "(float *c, const unsigned int *a, const unsigned int *b) {\n"
                      "  unsigned int x[4], y[2];\n"
                      "  for (int i = 0; i < 4; i++) x[i] = ns_tf32_%s(a[i]);\n"
                      "  for (int i = 0; i < 2; i++) y[i] = ns_tf32_%s(b[i]);\n"
                      "  %s(c, x, y);\n}\n",
                      a, b, mma);
}

static bool is_three(Gen *g, const Stmt *s) {
  return st_calls(g->c, s, IN_MMA) &&
         gen_const(g, ir_kid(g->c, s->u.eval.e, 0), "type of a product") == (int64_t)MMA_TF32X3;
}

int gen_three(Gen *g, int n, const Stmt *const *at) {
  static const struct {
    const char *a, *b;
    int sums; /* where they begin */
  } KIND[] = {{"low", "high", MMA_SUMS}, {"high", "low", MMA_SUMS}, {"high", "high", 0}};
  int run = 0;
  while (g->t->kind == TG_CUDA && run < n && is_three(g, at[run])) run++;
  for (int k = 0; k < NS_COUNT(KIND) && run; k++)
    for (int i = 0; i < run; i++) {
      gen_line(g);
      gen_form(g, at[i]->u.eval.e, "%s(&$l1 + %d, &$l2, &$l3);\n", product(g, KIND[k].a, KIND[k].b), KIND[k].sums);
    }
  return run;
}
