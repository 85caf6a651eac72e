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

static const char *const MMA_NAME[] = {"f16", "bf16", "tf32"};
static const char *mma_helper(Gen *g, MmaType t) {
  const char *name = arena_printf(g->a, "ns_mma_%s", MMA_NAME[t]);
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
                   head, name, t == MMA_TF32 ? 8 : 16, MMA_NAME[t], MMA_NAME[t], value, value, value, value, value,
                   value));
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

/* 64 x n sums of a warpgroup, n / 2 of them in each thread; a and b are described by where they begin in shared memory and how
 * they lie there. */
static const char *group_mma_helper(Gen *g, MmaType t, int64_t n, bool turned_a, bool turned_b) {
  const char *type = MMA_NAME[t], *name = arena_printf(g->a, "ns_wgmma_%s_%lld%s%s", type, (long long)n,
                                                       turned_a ? "_a" : "", turned_b ? "_b" : "");
  StrBuf to, out;
  sb_init(&to, g->a);
  sb_init(&out, g->a);
  for (int i = 0; i < n / 2; i++) {
    sb_printf(&to, "%s%%%d", i ? ", " : "", i);
    sb_printf(&out, "%s\"+f\"(c[%d])", i ? ", " : "", i);
  }
  const char *turned = t == MMA_TF32 ? "" : arena_printf(g->a, ", %d, %d", turned_a, turned_b);
  return gen_helper(
      g, name,
      arena_printf(
          g->a,
          "%s void %s(float *c, unsigned long long a, unsigned long long b) {\n"
          "  asm volatile(\"wgmma.mma_async.sync.aligned.m64n%lldk%d.f32.%s.%s {%s}, %%%lld, %%%lld, 1, 1, 1%s;\" :\n"
          "               %s : \"l\"(a), \"l\"(b));\n}\n",
          gen_helper_head(g), name, (long long)n, t == MMA_TF32 ? 8 : 16, type, type, sb_str(&to), (long long)n / 2,
          (long long)n / 2 + 1, turned, sb_str(&out)));
}

/* Where a tile begins, in units of 16 bytes, beside how it lies. */
static const char *group_tile_helper(Gen *g) {
  return gen_helper(
      g, "ns_tile",
      arena_printf(
          g->a,
          "%s unsigned long long ns_tile(const void *first, unsigned long long form) {\n"
          "  return (unsigned long long)(((unsigned int)__cvta_generic_to_shared(first) & 0x3ffff) >> 4) | form;\n}\n",
          gen_helper_head(g)));
}

/* An instruction that orders others; how many groups may be under way, if it has an argument. */
static void order(Gen *g, ExprId e, const char *ptx) {
  sb_printf(g->o, "asm volatile(\"%s", ptx);
  if (ir_node(g->c, e)->n) sb_printf(g->o, " %lld", (long long)gen_const(g, ir_kid(g->c, e, 0), "number of groups"));
  sb_puts(g->o, ";\" ::: \"memory\")");
}

static void group_mma(Gen *g, ExprId e) {
  int64_t k[9];
  uint64_t form[2];
  for (int i = 0; i < 9; i++) k[i] = i > 1 && i < 5 ? 0 : gen_const(g, ir_kid(g->c, e, i), "form of a product");
  for (int i = 0; i < 2; i++) {
    int64_t line = k[5 + 2 * i], panel = k[6 + 2 * i];
    uint64_t exchange = line == 128 ? 1 : line == 64 ? 2 : 3;
    form[i] = (uint64_t)(panel ? panel / 16 : 1) << 16 | (uint64_t)(8 * line / 16) << 32 | exchange << 62;
  }
  const char *tile = group_tile_helper(g), *mma = group_mma_helper(g, (MmaType)k[0], k[1], k[6] > 0, k[8] > 0);
  gen_form(g, e, "%s(&$l2, %s(&$l3, 0x%llxull), %s(&$l4, 0x%llxull))", mma, tile, (unsigned long long)form[0], tile,
           (unsigned long long)form[1]);
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
  case IN_COPY_COMMIT: order(g, e, "cp.async.commit_group"); break;
  case IN_COPY_WAIT: order(g, e, "cp.async.wait_group"); break;
  case IN_FRAGMENT: {
    int64_t n = gen_const(g, ir_kid(g->c, e, 0), "number of matrices"),
            turned = gen_const(g, ir_kid(g->c, e, 1), "transposition");
    gen_form(g, e, "%s(&$l2, &$l3)", fragment_helper(g, n, turned != 0));
    break;
  }
  case IN_GROUP_MMA: group_mma(g, e); break;
  case IN_GROUP_BEGIN: order(g, e, "wgmma.fence.sync.aligned"); break;
  case IN_GROUP_COMMIT: order(g, e, "wgmma.commit_group.sync.aligned"); break;
  case IN_GROUP_WAIT: order(g, e, "wgmma.wait_group.sync.aligned"); break;
  case IN_GROUP_SEES: order(g, e, "fence.proxy.async.shared::cta"); break;
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
