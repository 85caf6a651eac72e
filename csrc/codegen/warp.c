/* Instructions of NVIDIA's warps as calls of helper functions, which are PTX: copies in flight, fragment loads and products
 * (spec 07 §7.8.2, items 4 to 6). Fragments are arrays of 32-bit registers; arrays with constant places in unrolled loops are
 * registers to the compiler.
 */
#include "codegen/gen.h"
#include <string.h>

static const char *copy_helper(Gen *g, int64_t bytes) {
  return gen_function(
      g, "void", arena_printf(g->a, "ns_copy_async_%lld", (long long)bytes),
      "(void *to, const void *from, bool real) {\n"
      "  asm volatile(\"cp.async.%s.shared.global [%%0], [%%1], %lld, %%2;\" ::\n"
      "               \"r\"((unsigned int)__cvta_generic_to_shared(to)), \"l\"(from), \"r\"(real ? %lld : 0) : "
      "\"memory\");\n}\n",
      bytes == 16 ? "cg" : "ca", (long long)bytes, (long long)bytes);
}

/* n times the form, with the numbers from `first` on in place of #. */
static const char *operands(Gen *g, const char *form, int64_t first, int64_t n) {
  StrBuf b;
  sb_init(&b, g->a);
  for (int64_t i = first; i < first + n; i++) {
    const char *mark = strchr(form, '#');
    sb_printf(&b, "%s%.*s%lld%s", i > first ? ", " : "", (int)(mark - form), form, (long long)i, mark + 1);
  }
  return sb_str(&b);
}

/* Registers of 32 bits as CUDA's vector of so many bytes. */
static const char *vector_of(int64_t bytes) { return bytes == 16 ? "uint4" : bytes == 8 ? "uint2" : "unsigned int"; }
static const char *fetch_helper(Gen *g, int64_t bytes) {
  static const char *const MEMBER[] = {".x", ".y", ".z", ".w"};
  const char *type = vector_of(bytes);
  StrBuf b;
  sb_init(&b, g->a);
  for (int i = 0; i < bytes / 4; i++) sb_printf(&b, "  r[%d] = v%s;\n", i, bytes == 4 ? "" : MEMBER[i]);
  return gen_function(g, "void", arena_printf(g->a, "ns_copy_fetch_%lld", (long long)bytes),
                      "(unsigned int *r, const void *from, bool real) {\n"
                      "  %s v = {};\n  if (real) v = *(const %s *)from;\n%s}\n",
                      type, type, sb_str(&b));
}
static const char *put_helper(Gen *g, int64_t bytes) {
  const char *type = vector_of(bytes);
  return gen_function(g, "void", arena_printf(g->a, "ns_copy_put_%lld", (long long)bytes),
                      "(void *to, const unsigned int *r) {\n  *(%s *)to = %s%s(%s);\n}\n", type,
                      bytes == 4 ? "" : "make_", bytes == 4 ? "" : type, operands(g, "r[#]", 0, bytes / 4));
}

static const char *fragment_helper(Gen *g, int64_t n, bool turned) {
  const char *trans = turned ? "trans" : "";
  return gen_function(g, "void", arena_printf(g->a, "ns_fragment_x%lld%s%s", (long long)n, turned ? "_" : "", trans),
                      "(unsigned int *r, const void *row) {\n"
                      "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x%lld%s%s.shared.b16 {%s}, [%%%lld];\" : %s :\n"
                      "               \"r\"((unsigned int)__cvta_generic_to_shared(row)) : \"memory\");\n}\n",
                      (long long)n, turned ? "." : "", trans, operands(g, "%#", 0, n), (long long)n,
                      operands(g, "\"=r\"(r[#])", 0, n));
}

/* The value that a TF32 unit multiplies, rounded, for the unit itself cuts off. */
const char *gen_to_tf32(Gen *g) {
  static const char by_instruction[] =
      "#if __CUDA_ARCH__ >= %d0\n  unsigned int r;\n"
      "  asm(\"cvt.rna.tf32.f32 %%0, %%1;\" : \"=r\"(r) : \"f\"(__uint_as_float(x)));\n"
      "  return r;\n#else\n";
  const char *cuda = g->t->kind == TG_CUDA ? arena_printf(g->a, by_instruction, gpu_since(GPU_TO_TF32)) : "";
  return gen_function(
      g, "unsigned int", "ns_to_tf32",
      "(unsigned int x) {\n%s  return (x & 0x7f800000u) != 0x7f800000u ? (x + 0x1000u) & 0xffffe000u : x;\n%s}\n", cuda,
      *cuda ? "#endif\n" : "");
}

/* What PTX calls a factor's type. */
static const char *factor_name(DType t) {
  if (dtype_is_float(t)) return dtype_eq(t, DT_F32) ? "tf32" : dtype_eq(t, DT_F16) ? "f16" : "bf16";
  return t.code == DT_INT ? "s8" : "u8";
}
/* What holds a sum, or two of 16 bits: for C, for PTX, and for what stands between. */
typedef struct {
  const char *c, *ptx, *reg;
} Number;
static Number number(DType t) {
  if (dtype_eq(t, DT_F16)) return (Number){"unsigned int", "f16", "r"};
  return dtype_is_float(t) ? (Number){"float", "f32", "f"} : (Number){"int", "s32", "r"};
}

/* One instruction of a product: which registers of the fragments it takes is said in the table of forms. */
static const char *mma_instruction(Gen *g, MmaType t, const MmaForm *f, MmaPart p) {
  const MmaInfo *m = mma_info(t);
  Number sum = number(m->sum);
  const char *value = t == MMA_TF32 ? gen_to_tf32(g) : "", *a = arena_printf(g->a, "\"r\"(%s(a[#]))", value),
             *b = arena_printf(g->a, "\"r\"(%s(b[#]))", value), *c = arena_printf(g->a, "\"+%s\"(c[#])", sum.reg);
  int per = 4 / dtype_bytes(m->sum), n = f->takes.sums / per; /* sums of a register; registers of sums */
  return arena_printf(g->a,
                      "  asm volatile(\"mma.sync.aligned.%s.row.col.%s.%s.%s.%s {%s}, {%s}, {%s}, {%s};\" :\n"
                      "               %s :\n               %s, %s);\n",
                      f->shape, sum.ptx, factor_name(m->a), factor_name(m->b), sum.ptx, operands(g, "%#", 0, n),
                      operands(g, "%#", n, f->takes.a), operands(g, "%#", n + f->takes.a, f->takes.b),
                      operands(g, "%#", 0, n), operands(g, c, p.sums / per, n), operands(g, a, p.a, f->takes.a),
                      operands(g, b, p.b, f->takes.b));
}

const char *gen_mma(Gen *g, MmaType t) {
  const MmaInfo *m = mma_info(t);
  const MmaForm *f = mma_form(t, &g->p->f.target.gpu);
  if (!f)
    err_raise(g->err, NS_ERR_VALUE, "compute capability %d has no mma.sync of %s", g->p->f.target.gpu.sm,
              factor_name(m->a));
  const char *more = !dtype_eq(m->a, m->b) ? arena_printf(g->a, "_%s", factor_name(m->b))
                     : t == MMA_F16_SUMS   ? "_sums"
                     : t == MMA_TF32X3     ? "_part"
                                           : "";
  StrBuf b;
  sb_init(&b, g->a);
  for (int i = 0; i < f->n; i++) sb_puts(&b, mma_instruction(g, t, f, f->part[i]));
  return gen_function(g, "void", arena_printf(g->a, "ns_mma_%s%s", factor_name(m->a), more),
                      "(%s *c, const unsigned int *a, const unsigned int *b) {\n%s}\n", number(m->sum).c, sb_str(&b));
}

/* ---- clusters ----
 * No fence waits for what a block has stored in global memory: a barrier of shared memory counts the bytes that arrive. Others must see
 * it as initialised, for which there is a fence of its own; so the cluster's barrier orders nothing else (relaxed), unless sums come to
 * lie where this block has read slices. */

static const char *cluster_begin_helper(Gen *g, bool late) {
  return gen_function(
      g, "void", late ? "ns_cluster_begin_late" : "ns_cluster_begin",
      "(void *arrivals, unsigned int bytes) {\n"
      "  bool first = (threadIdx.x | threadIdx.y | threadIdx.z) == 0;\n"
      "  unsigned int at = (unsigned int)__cvta_generic_to_shared(arrivals);\n"
      "  if (first)\n"
      "    asm volatile(\"mbarrier.init.shared::cta.b64 [%%0], 1;\\nfence.mbarrier_init.release.cluster;\" :: "
      "\"r\"(at) : \"memory\");\n"
      "  __syncwarp();\n" /* the whole warp initialises it, as compilers have it: racecheck wants to see an order */
      "  if (first)\n"
      "    asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%0], %%1;\" :: \"r\"(at), \"r\"(bytes) : "
      "\"memory\");\n"
      "  __syncwarp();\n"
      "  asm volatile(\"barrier.cluster.arrive.%s.aligned;\" ::: \"memory\");\n}\n",
      late ? "release" : "relaxed");
}

static const char *cluster_arrived_helper(Gen *g) {
  return gen_function(g, "void", "ns_cluster_arrived",
                      "(const void *arrivals) {\n"
                      "  unsigned int there;\n"
                      "  do\n"
                      "    asm volatile(\"{\\n.reg .pred p;\\n\"\n"
                      "                 \"mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%%1], 0;\\n\"\n"
                      "                 \"selp.u32 %%0, 1, 0, p;\\n}\" : \"=r\"(there) :\n"
                      "                 \"r\"((unsigned int)__cvta_generic_to_shared(arrivals)) : \"memory\");\n"
                      "  while (!there);\n}\n");
}

/* The address that a place in this block's shared memory has in another block of the cluster. */
static const char *cluster_place_helper(Gen *g) {
  return gen_function(g, "unsigned int", "ns_cluster_place",
                      "(const void *here, unsigned int block) {\n"
                      "  unsigned int there;\n"
                      "  asm(\"mapa.shared::cluster.u32 %%0, %%1, %%2;\" : \"=r\"(there) :\n"
                      "      \"r\"((unsigned int)__cvta_generic_to_shared(here)), \"r\"(block));\n"
                      "  return there;\n}\n");
}
static const char *cluster_send_helper(Gen *g, DType type, int n) {
  Number num = number(type);
  const char *place = cluster_place_helper(g), *vector = n == 1 ? "" : n == 2 ? ".v2" : ".v4";
  return gen_function(
      g, "void", arena_printf(g->a, "ns_cluster_send_%s_%d", num.ptx, n),
      "(const void *to, const void *arrivals, unsigned int block, %s) {\n"
      "  asm volatile(\"st.async.shared::cluster.mbarrier::complete_tx::bytes%s.%s [%%0], %s%s%s, [%%1];\" ::\n"
      "               \"r\"(%s(to, block)), \"r\"(%s(arrivals, block)), %s : \"memory\");\n}\n",
      operands(g, arena_printf(g->a, "%s v#", num.c), 0, n), vector, num.ptx, n > 1 ? "{" : "", operands(g, "%#", 2, n),
      n > 1 ? "}" : "", place, place, operands(g, arena_printf(g->a, "\"%s\"(v#)", num.reg), 0, n));
}
static void cluster_send(Gen *g, ExprId e) {
  int n = ir_node(g->c, e)->n - SEND_VALUES;
  const char *send = cluster_send_helper(g, ir_type(g->c, ir_kid(g->c, e, SEND_VALUES)), n);
  gen_form(g, e, "%s(&$l0, &$l1, $t2, %s)", send, operands(g, "$t#", SEND_VALUES, n));
}

/* The barriers make one thread's fences those of all: what its block has stored comes before the count, what others have stored before
 * theirs is read behind it, from beyond the first-level cache. The counter turns to 0 by itself. */
static const char *last_helper(Gen *g) {
  return gen_function(g, "void", "ns_last_block",
                      "(int *last, int *counter, unsigned int blocks) {\n"
                      "  unsigned int before = 0;\n"
                      "  __syncthreads();\n"
                      "  if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0)\n"
                      "    asm volatile(\"fence.acq_rel.gpu;\\n\" \"atom.relaxed.gpu.inc.u32 %%0, [%%1], %%2;\\n\" "
                      "\"fence.acq_rel.gpu;\" :\n"
                      "                 \"=r\"(before) : \"l\"(counter), \"r\"(blocks - 1) : \"memory\");\n"
                      "  *last = __syncthreads_or(before == blocks - 1);\n}\n");
}

/* 64 x n sums of a warpgroup, n / 2 of them in each thread; a and b are described by where they begin in shared memory and how
 * they lie there. */
static const char *group_mma_helper(Gen *g, MmaType t, int64_t n, bool turned_a, bool turned_b) {
  const char *type = factor_name(mma_info(t)->a),
             *turned = t == MMA_TF32 ? "" : arena_printf(g->a, ", %d, %d", turned_a, turned_b);
  return gen_function(
      g, "void",
      arena_printf(g->a, "ns_wgmma_%s_%lld%s%s", type, (long long)n, turned_a ? "_a" : "", turned_b ? "_b" : ""),
      "(float *c, unsigned long long a, unsigned long long b) {\n"
      "  asm volatile(\"wgmma.mma_async.sync.aligned.m64n%lldk%d.f32.%s.%s {%s}, %s, 1, 1, 1%s;\" :\n"
      "               %s : \"l\"(a), \"l\"(b));\n}\n",
      (long long)n, mma_depth(t), type, type, operands(g, "%#", 0, n / 2), operands(g, "%#", n / 2, 2), turned,
      operands(g, "\"+f\"(c[#])", 0, n / 2));
}

/* The left factor in registers: 64 x 8, of which each warp has a fragment of 16 rows. */
static const char *group_registers_helper(Gen *g, int64_t n) {
  return gen_function(
      g, "void", arena_printf(g->a, "ns_wgmma_registers_%lld", (long long)n),
      "(float *c, const unsigned int *a, unsigned long long b) {\n"
      "  asm volatile(\"wgmma.mma_async.sync.aligned.m64n%lldk8.f32.tf32.tf32 {%s}, {%s}, %%%lld, 1, 1, 1;\" :\n"
      "               %s : %s, \"l\"(b));\n}\n",
      (long long)n, operands(g, "%#", 0, n / 2), operands(g, "%#", n / 2, 4), (long long)(n / 2 + 4),
      operands(g, "\"+f\"(c[#])", 0, n / 2), operands(g, "\"r\"(a[#])", 0, 4));
}

/* Where a tile begins, in units of 16 bytes, beside how it lies. An address has the number of the block in its cluster, too, in front of
 * the place in that block's shared memory. */
static const char *group_tile_helper(Gen *g) {
  return gen_function(g, "unsigned long long", "ns_tile",
                      "(const void *first, unsigned int units, unsigned long long form) {\n"
                      "  unsigned int at = (unsigned int)__cvta_generic_to_shared(first) & 0x3ffff;\n"
                      "  unsigned int low = (at >> 4 | (unsigned int)form) + units;\n"
                      "  return form >> 32 << 32 | low;\n}\n");
}
static bool in_registers(Gen *g, ExprId load) { return ir_buffer(g->c, ir_node(g->c, load)->sym)->scope == SC_LOCAL; }
/* A constant at the end of a place is added to the description: what is left is the same for all products of a slice. */
static ExprId without_units(Gen *g, ExprId load, int64_t *units) {
  const ExprNode *n = ir_node(g->c, load);
  ExprId at = ir_kid(g->c, load, 0);
  int bytes = dtype_bytes(ir_buffer(g->c, n->sym)->type);
  *units = 0;
  if (in_registers(g, load) || n->n != 1 || ir_kind(g->c, at) != IR_ADD || ir_kind(g->c, ir_kid(g->c, at, 1)) != IR_INT)
    return load;
  int64_t skip = ir_node(g->c, ir_kid(g->c, at, 1))->u.i * bytes;
  if (skip % 16) return load;
  *units = skip / 16;
  ExprId rest = ir_kid(g->c, at, 0);
  return ex_load(g->c, (BufferId)n->sym, n->type, 1, &rest);
}

/* An instruction that orders others; how many groups may be under way, if it has an argument. */
static void order(Gen *g, ExprId e, const char *ptx) {
  sb_printf(g->o, "asm volatile(\"%s", ptx);
  if (ir_node(g->c, e)->n) sb_printf(g->o, " %lld", (long long)gen_const(g, ir_kid(g->c, e, 0), "number of groups"));
  sb_puts(g->o, ";\" ::: \"memory\")");
}

static void group_mma(Gen *g, ExprId e) {
  int64_t k[9], units[2];
  uint64_t form[2];
  ExprId args[9];
  for (int i = 0; i < 9; i++) k[i] = i > 1 && i < 5 ? 0 : gen_const(g, ir_kid(g->c, e, i), "form of a product");
  for (int i = 0; i < 9; i++) args[i] = ir_kid(g->c, e, i);
  for (int i = 0; i < 2; i++) {
    int64_t line = k[5 + 2 * i], panel = k[6 + 2 * i];
    uint64_t exchange = line == 128 ? 1 : line == 64 ? 2 : 3;
    form[i] = (uint64_t)(panel ? panel / 16 : 1) << 16 | (uint64_t)(8 * line / 16) << 32 | exchange << 62;
    args[3 + i] = without_units(g, args[3 + i], &units[i]);
  }
  const char *tile = group_tile_helper(g);
  const char *b =
      arena_printf(g->a, "%s(&$l4, %lld, 0x%llxull)", tile, (long long)units[1], (unsigned long long)form[1]);
  e = ex_call(g->c, IN_GROUP_MMA, ir_type(g->c, e), 9, args);
  if (in_registers(g, args[3]))
    gen_form(g, e, "%s(&$l2, &$l3, %s)", group_registers_helper(g, k[1]), b);
  else
    gen_form(g, e, "%s(&$l2, %s(&$l3, %lld, 0x%llxull), %s)",
             group_mma_helper(g, (MmaType)k[0], k[1], k[6] > 0, k[8] > 0), tile, (long long)units[0],
             (unsigned long long)form[0], b);
}

/* Bytes of a copy of elements of the array that operand `of` is in. */
static int64_t copied_bytes(Gen *g, ExprId e, int of) {
  DType t = ir_buffer(g->c, ir_node(g->c, ir_kid(g->c, e, of))->sym)->type;
  return gen_const(g, ir_kid(g->c, e, 0), "length of a copy") * dtype_bytes(t);
}

/* Compilers know of no order between products under way and reads of their sums: an empty line of assembly that may change them stands
 * between, or ptxas has every product waited for at once (its advice C7517). */
static void group_wait(Gen *g, ExprId e) {
  long long left = gen_const(g, ir_kid(g->c, e, 0), "number of groups"),
            sums = gen_const(g, ir_kid(g->c, e, 2), "number of sums");
  if (sums == 0) {
    sb_printf(g->o, "asm volatile(\"wgmma.wait_group.sync.aligned %lld;\" ::: \"memory\")", left);
    return;
  }
  gen_form(g, e, "%s(&$l1)",
           gen_function(g, "void", arena_printf(g->a, "ns_sums_%lld_%lld", sums, left),
                        "(float *c) {\n"
                        "  asm volatile(\"wgmma.wait_group.sync.aligned %lld;\" ::: \"memory\");\n"
                        "#pragma unroll\n"
                        "  for (int i = 0; i < %lld; i++) asm volatile(\"\" : \"+f\"(c[i]) :: \"memory\");\n}\n",
                        left, sums));
}

bool gen_warp(Gen *g, ExprId e, Intrin in) {
  if (in < IN_COPY_ASYNC || in > IN_LAST_BLOCK) return false;
  if (g->t->kind != TG_CUDA)
    err_raise(g->err, NS_ERR_VALUE, "'%s' is an instruction of NVIDIA's GPUs: a CUDA target is needed",
              intrin_info(in)->name);
  switch (in) {
  case IN_COPY_ASYNC: {
    const char *copy = copy_helper(g, copied_bytes(g, e, 1)), *from = gen_cursor(g, ir_kid(g->c, e, 2));
    gen_form(g, e, from ? "%s(&$l1, %s, $t3)" : "%s(&$l1, &$l2, $t3)", copy, from);
    break;
  }
  case IN_COPY_FETCH: gen_form(g, e, "%s(&$l1, &$l2, $t3)", fetch_helper(g, copied_bytes(g, e, 2))); break;
  case IN_COPY_PUT: gen_form(g, e, "%s(&$l1, &$l2)", put_helper(g, copied_bytes(g, e, 1))); break;
  case IN_COPY_COMMIT: order(g, e, "cp.async.commit_group"); break;
  case IN_COPY_WAIT: order(g, e, "cp.async.wait_group"); break;
  case IN_FRAGMENT: {
    int64_t n = gen_const(g, ir_kid(g->c, e, 0), "number of matrices"),
            turned = gen_const(g, ir_kid(g->c, e, 1), "transposition");
    gen_form(g, e, "%s(&$l2, &$l3)", fragment_helper(g, n, turned != 0));
    break;
  }
  case IN_PARTS: gen_parts(g, e); break;
  case IN_GROUP_MMA: group_mma(g, e); break;
  case IN_GROUP_BEGIN: order(g, e, "wgmma.fence.sync.aligned"); break;
  case IN_GROUP_COMMIT: order(g, e, "wgmma.commit_group.sync.aligned"); break;
  case IN_GROUP_WAIT: group_wait(g, e); break;
  case IN_GROUP_SEES: order(g, e, "fence.proxy.async.shared::cta"); break;
  case IN_WARP_SYNC: sb_puts(g->o, "__syncwarp()"); break;
  case IN_CLUSTER_BEGIN:
    gen_form(g, e, "%s(&$l1, $t2)", cluster_begin_helper(g, gen_const(g, ir_kid(g->c, e, 3), "lateness") != 0));
    break;
  case IN_CLUSTER_HERE: order(g, e, "barrier.cluster.wait.acquire.aligned"); break;
  case IN_CLUSTER_ARRIVED: gen_form(g, e, "%s(&$l0)", cluster_arrived_helper(g)); break;
  case IN_CLUSTER_SEND: cluster_send(g, e); break;
  case IN_LAST_BLOCK: gen_form(g, e, "%s(&$l0, &$l1, $t2)", last_helper(g)); break;
  default: {
    MmaType type = (MmaType)gen_const(g, ir_kid(g->c, e, 0), "type of a product");
    if (type == MMA_TF32X3) err_raise(g->err, NS_ERR_INTERNAL, "a product in three terms is a statement (three.c)");
    gen_form(g, e, "%s(&$l1, &$l2, &$l3)", gen_mma(g, type));
  }
  }
  return true;
}
