/* Instructions of NVIDIA's warps as calls of helper functions, which are PTX: copies in flight, fragment loads and products
 * (spec 07 §7.8.2, items 4 to 6). Fragments are arrays of 32-bit registers; arrays with constant places in unrolled loops are
 * registers to the compiler.
 */
#include "codegen/gen.h"

static const char *copy_helper(Gen *g, int64_t bytes) {
  const char *name = arena_printf(g->a, "ns_copy_async_%lld", (long long)bytes);
  return gen_helper(
      g, name,
      arena_printf(
          g->a,
          "%s void %s(void *to, const void *from, bool real) {\n"
          "  asm volatile(\"cp.async.%s.shared.global [%%0], [%%1], %lld, %%2;\" ::\n"
          "               \"r\"((unsigned int)__cvta_generic_to_shared(to)), \"l\"(from), \"r\"(real ? %lld : 0) : "
          "\"memory\");\n}\n",
          gen_helper_head(g), name, bytes == 16 ? "cg" : "ca", (long long)bytes, (long long)bytes));
}

static const char *fragment_helper(Gen *g, int64_t n, bool turned) {
  const char *name = arena_printf(g->a, "ns_fragment_x%lld%s", (long long)n, turned ? "_trans" : "");
  const char *to = n == 4 ? "{%0, %1, %2, %3}, [%4]" : "{%0, %1}, [%2]",
             *out = n == 4 ? "\"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3])" : "\"=r\"(r[0]), \"=r\"(r[1])";
  return gen_helper(
      g, name,
      arena_printf(g->a,
                   "%s void %s(unsigned int *r, const void *row) {\n"
                   "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x%lld%s.shared.b16 %s;\" : %s :\n"
                   "               \"r\"((unsigned int)__cvta_generic_to_shared(row)) : \"memory\");\n}\n",
                   gen_helper_head(g), name, (long long)n, turned ? ".trans" : "", to, out));
}

/* The value that a TF32 unit multiplies, rounded, for the unit itself cuts off. */
static const char *tf32_helper(Gen *g) {
  return gen_helper(
      g, "ns_to_tf32",
      arena_printf(g->a,
                   "%s unsigned int ns_to_tf32(unsigned int x) {\n  unsigned int r;\n"
                   "  asm(\"cvt.rna.tf32.f32 %%0, %%1;\" : \"=r\"(r) : \"f\"(__uint_as_float(x)));\n  return r;\n}\n",
                   gen_helper_head(g)));
}

static const char *mma_helper(Gen *g, MmaType t) {
  static const char *const TYPE[] = {"f16", "bf16", "tf32"};
  const char *name = arena_printf(g->a, "ns_mma_%s", TYPE[t]);
  const char *value = t == MMA_TF32 ? tf32_helper(g) : "", *head = gen_helper_head(g);
  return gen_helper(
      g, name,
      arena_printf(g->a,
                   "%s void %s(float *c, const unsigned int *a, const unsigned int *b) {\n"
                   "  asm volatile(\"mma.sync.aligned.m16n8k%d.row.col.f32.%s.%s.f32 {%%0, %%1, %%2, %%3}, "
                   "{%%4, %%5, %%6, %%7}, {%%8, %%9}, {%%0, %%1, %%2, %%3};\" :\n"
                   "               \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) :\n"
                   "               \"r\"(%s(a[0])), \"r\"(%s(a[1])), \"r\"(%s(a[2])), \"r\"(%s(a[3])), "
                   "\"r\"(%s(b[0])), \"r\"(%s(b[1])));\n}\n",
                   head, name, t == MMA_TF32 ? 8 : 16, TYPE[t], TYPE[t], value, value, value, value, value, value));
}

/* Three products of TF32, small ones first. They are added to the sum by an addition that rounds: the units cut off, which
 * long sums would feel. */
static const char *mma3_helper(Gen *g) {
  const char *mma = mma_helper(g, MMA_TF32);
  return gen_helper(
      g, "ns_mma_tf32x3",
      arena_printf(g->a,
                   "%s unsigned int ns_tf32_rest(unsigned int x) {\n"
                   "  float r = __uint_as_float(x) - __uint_as_float(ns_to_tf32(x));\n"
                   "  return __float_as_uint(r == r ? r : 0.0f); /* infinity minus infinity */\n}\n"
                   "%s void ns_mma_tf32x3(float *c, const unsigned int *a, const unsigned int *b) {\n"
                   "  const unsigned int low_a[4] = {ns_tf32_rest(a[0]), ns_tf32_rest(a[1]), ns_tf32_rest(a[2]), "
                   "ns_tf32_rest(a[3])};\n"
                   "  const unsigned int low_b[2] = {ns_tf32_rest(b[0]), ns_tf32_rest(b[1])};\n"
                   "  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};\n"
                   "  %s(sum, low_a, b);\n  %s(sum, a, low_b);\n  %s(sum, a, b);\n"
                   "  for (int i = 0; i < 4; i++) c[i] += sum[i];\n}\n",
                   gen_helper_head(g), gen_helper_head(g), mma, mma, mma));
}

/* The address that a place in this block's shared memory has in another block of the cluster. */
static const char *cluster_helper(Gen *g) {
  return gen_helper(
      g, "ns_cluster_read",
      arena_printf(
          g->a,
          "%s void ns_cluster_read(float *to, const float *from, unsigned int block) {\n"
          "  unsigned int at;\n"
          "  asm volatile(\"mapa.shared::cluster.u32 %%0, %%1, %%2;\" : \"=r\"(at) :\n"
          "               \"r\"((unsigned int)__cvta_generic_to_shared(from)), \"r\"(block));\n"
          "  asm volatile(\"ld.shared::cluster.f32 %%0, [%%1];\" : \"=f\"(*to) : \"r\"(at) : \"memory\");\n}\n",
          gen_helper_head(g)));
}

bool gen_warp(Gen *g, ExprId e, Intrin in) {
  if (in < IN_COPY_ASYNC || in > IN_CLUSTER_READ) return false;
  if (g->t->kind != TG_CUDA)
    err_raise(g->err, NS_ERR_VALUE, "'%s' is an instruction of NVIDIA's GPUs: a CUDA target is needed",
              intrin_info(in)->name);
  switch (in) {
  case IN_COPY_ASYNC: {
    int64_t n = gen_const(g, ir_kid(g->c, e, 0), "length of a copy");
    DType t = ir_buffer(g->c, ir_node(g->c, ir_kid(g->c, e, 1))->sym)->type;
    gen_form(g, e, "%s(&$l1, &$l2, $t3)", copy_helper(g, n * dtype_bytes(t)));
    break;
  }
  case IN_COPY_COMMIT: sb_puts(g->o, "asm volatile(\"cp.async.commit_group;\" ::: \"memory\")"); break;
  case IN_COPY_WAIT:
    sb_printf(g->o, "asm volatile(\"cp.async.wait_group %lld;\" ::: \"memory\")",
              (long long)gen_const(g, ir_kid(g->c, e, 0), "number of groups"));
    break;
  case IN_FRAGMENT: {
    int64_t n = gen_const(g, ir_kid(g->c, e, 0), "number of matrices"),
            turned = gen_const(g, ir_kid(g->c, e, 1), "transposition");
    gen_form(g, e, "%s(&$l2, &$l3)", fragment_helper(g, n, turned != 0));
    break;
  }
  case IN_CLUSTER_SYNC:
    sb_puts(g->o,
            "asm volatile(\"barrier.cluster.arrive.release.aligned;\\n\" \"barrier.cluster.wait.acquire.aligned;\" ::: "
            "\"memory\")");
    break;
  case IN_CLUSTER_READ: gen_form(g, e, "%s(&$l0, &$l1, $t2)", cluster_helper(g)); break;
  default: {
    MmaType type = (MmaType)gen_const(g, ir_kid(g->c, e, 0), "type of a product");
    gen_form(g, e, "%s(&$l1, &$l2, &$l3)", type == MMA_TF32X3 ? mma3_helper(g) : mma_helper(g, type));
  }
  }
  return true;
}
