/* The intrinsics: name in expressions, number of arguments (-1: any) and effect. What a target calls them is in codegen. */
#include "ir/ir.h"

#include <string.h>

static const IntrinInfo TABLE[IN_COUNT] = {
    [IN_NONE] = {"none", 0, EFF_PURE},
    [IN_EXP] = {"exp", 1, EFF_PURE},
    [IN_EXP2] = {"exp2", 1, EFF_PURE},
    [IN_EXP10] = {"exp10", 1, EFF_PURE},
    [IN_ERF] = {"erf", 1, EFF_PURE},
    [IN_TANH] = {"tanh", 1, EFF_PURE},
    [IN_SIGMOID] = {"sigmoid", 1, EFF_PURE},
    [IN_LOG] = {"log", 1, EFF_PURE},
    [IN_LOG2] = {"log2", 1, EFF_PURE},
    [IN_LOG10] = {"log10", 1, EFF_PURE},
    [IN_LOG1P] = {"log1p", 1, EFF_PURE},
    [IN_EXPM1] = {"expm1", 1, EFF_PURE},
    [IN_ERFC] = {"erfc", 1, EFF_PURE},
    [IN_TAN] = {"tan", 1, EFF_PURE},
    [IN_COS] = {"cos", 1, EFF_PURE},
    [IN_COSH] = {"cosh", 1, EFF_PURE},
    [IN_SIN] = {"sin", 1, EFF_PURE},
    [IN_SINH] = {"sinh", 1, EFF_PURE},
    [IN_ASIN] = {"asin", 1, EFF_PURE},
    [IN_ACOS] = {"acos", 1, EFF_PURE},
    [IN_ATAN] = {"atan", 1, EFF_PURE},
    [IN_ASINH] = {"asinh", 1, EFF_PURE},
    [IN_ACOSH] = {"acosh", 1, EFF_PURE},
    [IN_ATANH] = {"atanh", 1, EFF_PURE},
    [IN_SQRT] = {"sqrt", 1, EFF_PURE},
    [IN_RSQRT] = {"rsqrt", 1, EFF_PURE},
    [IN_POPCOUNT] = {"popcount", 1, EFF_PURE},
    [IN_CLZ] = {"clz", 1, EFF_PURE},
    [IN_POW] = {"pow", 2, EFF_PURE},
    [IN_FMOD] = {"fmod", 2, EFF_PURE},
    [IN_ATAN2] = {"atan2", 2, EFF_PURE},
    [IN_NEXTAFTER] = {"nextafter", 2, EFF_PURE},
    [IN_HYPOT] = {"hypot", 2, EFF_PURE},
    [IN_COPYSIGN] = {"copysign", 2, EFF_PURE},
    [IN_LDEXP] = {"ldexp", 2, EFF_PURE},
    [IN_FLOOR] = {"floor", 1, EFF_PURE},
    [IN_CEIL] = {"ceil", 1, EFF_PURE},
    [IN_ROUND] = {"round", 1, EFF_PURE},
    [IN_TRUNC] = {"trunc", 1, EFF_PURE},
    [IN_NEARBYINT] = {"nearbyint", 1, EFF_PURE},
    [IN_FABS] = {"fabs", 1, EFF_PURE},
    [IN_ISNAN] = {"isnan", 1, EFF_PURE},
    [IN_ROUND_TF32] = {"round_tf32", 1, EFF_PURE},
    [IN_IF_THEN_ELSE] = {"if_then_else", 3, EFF_PURE},
    [IN_LIKELY] = {"likely", 1, EFF_PURE},
    [IN_SHL] = {"shift_left", 2, EFF_PURE},
    [IN_SHR] = {"shift_right", 2, EFF_PURE},
    [IN_BAND] = {"bitwise_and", 2, EFF_PURE},
    [IN_BOR] = {"bitwise_or", 2, EFF_PURE},
    [IN_BXOR] = {"bitwise_xor", 2, EFF_PURE},
    [IN_BNOT] = {"bitwise_not", 1, EFF_PURE},
    [IN_REINTERPRET] = {"reinterpret", 1, EFF_PURE},
    [IN_INDEX] = {"check_index", 2, EFF_READ},
    [IN_ADDRESS] = {"address_of", 1, EFF_READ},
    [IN_EXTERN] = {"call_extern", -1, EFF_SYNC},
    [IN_PACKED] = {"tvm_call_packed", -1, EFF_SYNC},
    [IN_SYNC_SHARED] = {"tvm_storage_sync", -1, EFF_SYNC},
    [IN_ALLREDUCE] = {"tvm_thread_allreduce", -1, EFF_SYNC},
    [IN_SHFL_DOWN] = {"tvm_warp_shuffle_down", -1, EFF_SYNC},
    [IN_SHFL] = {"tvm_warp_shuffle", -1, EFF_SYNC},
    [IN_PREFETCH] = {"ns_prefetch", 1, EFF_READ},
    [IN_COPY_ASYNC] = {"ns_copy_async", 4, EFF_SYNC},
    [IN_COPY_COMMIT] = {"ns_copy_commit", 0, EFF_SYNC},
    [IN_COPY_WAIT] = {"ns_copy_wait", 1, EFF_SYNC},
    [IN_COPY_FETCH] = {"ns_copy_fetch", 4, EFF_SYNC},
    [IN_COPY_PUT] = {"ns_copy_put", 3, EFF_SYNC},
    [IN_FRAGMENT] = {"ns_fragment", 4, EFF_SYNC},
    [IN_PARTS] = {"ns_parts", -1, EFF_SYNC},
    [IN_MMA] = {"ns_mma", 4, EFF_SYNC},
    [IN_GROUP_MMA] = {"ns_group_mma", 9, EFF_SYNC},
    [IN_GROUP_BEGIN] = {"ns_group_begin", 0, EFF_SYNC},
    [IN_GROUP_COMMIT] = {"ns_group_commit", 0, EFF_SYNC},
    [IN_GROUP_WAIT] = {"ns_group_wait", 3, EFF_SYNC},
    [IN_GROUP_SEES] = {"ns_group_sees", 0, EFF_SYNC},
    [IN_WARP_SYNC] = {"ns_warp_sync", 0, EFF_SYNC},
    [IN_CLUSTER_BEGIN] = {"ns_cluster_begin", 4, EFF_SYNC},
    [IN_CLUSTER_HERE] = {"ns_cluster_here", 0, EFF_SYNC},
    [IN_CLUSTER_ARRIVED] = {"ns_cluster_arrived", 1, EFF_SYNC},
    [IN_CLUSTER_SEND] = {"ns_cluster_send", -1, EFF_SYNC},
    [IN_LAST_BLOCK] = {"ns_last_block", 3, EFF_SYNC},
    [IN_LAUNCH_WAIT] = {"ns_launch_wait", 0, EFF_SYNC},
    [IN_LAUNCH_NEXT] = {"ns_launch_next", 0, EFF_SYNC},
};

const IntrinInfo *intrin_info(Intrin in) { return &TABLE[in]; }

#define SINGLE                                                                                                         \
  { DT_FLOAT, 32, 1 }
#define HALF                                                                                                           \
  { DT_FLOAT, 16, 1 }
#define BRAIN                                                                                                          \
  { DT_BFLOAT, 16, 1 }
#define BYTE                                                                                                           \
  { DT_UINT, 8, 1 }
#define SIGNED                                                                                                         \
  { DT_INT, 8, 1 }
#define WHOLE                                                                                                          \
  { DT_INT, 32, 1 }
static const MmaInfo MMA[MMA_COUNT] = {
    [MMA_F16] = {HALF, HALF, SINGLE, 1},      [MMA_BF16] = {BRAIN, BRAIN, SINGLE, 1},
    [MMA_TF32] = {SINGLE, SINGLE, SINGLE, 1}, [MMA_TF32X3] = {SINGLE, SINGLE, SINGLE, 3},
    [MMA_S8] = {SIGNED, SIGNED, WHOLE, 1},    [MMA_U8] = {BYTE, BYTE, WHOLE, 1},
    [MMA_S8_U8] = {SIGNED, BYTE, WHOLE, 1},   [MMA_U8_S8] = {BYTE, SIGNED, WHOLE, 1},
    [MMA_F16_SUMS] = {HALF, HALF, HALF, 2},
};

const MmaInfo *mma_info(MmaType t) { return &MMA[t]; }
int mma_depth(MmaType t) { return 32 / dtype_bytes(MMA[t].a); }

/* Registers of a fragment go by eights of rows, then along k (interp/warp.c), so halves of k are halves of them. */
static const MmaForm WHOLE_K8 = {GPU_TENSOR_LONG, "m16n8k8", 2, {4, 2, 4}, 1, {{0}}},
                     WHOLE_K16 = {GPU_TENSOR_LONG, "m16n8k16", 2, {4, 2, 4}, 1, {{0}}},
                     WHOLE_K32 = {GPU_TENSOR_LONG, "m16n8k32", 2, {4, 2, 4}, 1, {{0}}},
                     HALVES = {GPU_TENSOR_CORES, "m16n8k8", 2, {2, 1, 4}, 2, {{0, 0, 0}, {2, 1, 0}}};
static const MmaForm QUARTERS = {GPU_TENSOR_CORES, "m8n8k16", 1,
                                 {1, 1, 2},        4,         {{0, 0, 0}, {1, 0, 2}, {2, 1, 0}, {3, 1, 2}}};
/* The largest first. */
static const MmaForm *const FORM[MMA_COUNT][2] = {[MMA_F16] = {&WHOLE_K16, &HALVES},
                                                  [MMA_BF16] = {&WHOLE_K16},
                                                  [MMA_TF32] = {&WHOLE_K8},
                                                  [MMA_TF32X3] = {&WHOLE_K8},
                                                  [MMA_S8] = {&WHOLE_K32, &QUARTERS},
                                                  [MMA_U8] = {&WHOLE_K32, &QUARTERS},
                                                  [MMA_S8_U8] = {&WHOLE_K32, &QUARTERS},
                                                  [MMA_U8_S8] = {&WHOLE_K32, &QUARTERS},
                                                  [MMA_F16_SUMS] = {&WHOLE_K16, &HALVES}};

const MmaForm *mma_form(MmaType t, const GpuMachine *m) {
  for (int i = 0; i < NS_COUNT(FORM[t]); i++)
    if (FORM[t][i] && gpu_has(m, FORM[t][i]->needs)) return FORM[t][i];
  return NULL;
}
int mma_since(MmaType t) { return gpu_since(FORM[t][FORM[t][1] ? 1 : 0]->needs); }

/* ---- vectors of the C target ---- */
bool intrin_on_vectors(Intrin in, DType t) {
  bool known = in == IN_EXP || in == IN_ERF || in == IN_TANH || in == IN_LOG1P || in == IN_EXPM1 || in == IN_ROUND_TF32;
  return known && t.code == DT_FLOAT && t.bits == 32;
}

bool dtype_on_vectors(DType t) { return (t.code == DT_FLOAT || t.code == DT_INT) && (t.bits == 32 || t.bits == 64); }

static bool element(IrCtx *c, ExprNode n, ExprId e) {
  ExprKind k = ir_kind(c, ir_kid(c, e, 0));
  return ir_buffer(c, n.sym)->type.bits == n.type.bits && n.n == 1 && (k == IR_RAMP || k == IR_BCAST);
}

/* Comparisons of the lanes of numbers, and logic of them. */
static bool test_on_vectors(IrCtx *c, ExprId e) {
  const ExprNode n = *ir_node(c, e);
  if (n.kind == IR_BCAST) return true;
  bool compare = ir_is_compare(n.kind), ok = compare || n.kind == IR_AND || n.kind == IR_OR || n.kind == IR_NOT;
  for (int i = 0; ok && i < n.n; i++) {
    ExprId kid = ir_kid(c, e, i);
    if (!compare)
      ok = test_on_vectors(c, kid);
    else
      ok = dtype_on_vectors(ir_type(c, kid)) && (ir_kind(c, kid) == IR_RAMP || ex_on_vectors(c, kid));
  }
  return ok;
}

bool ex_on_vectors(IrCtx *c, ExprId e) {
  ExprNode n = *ir_node(c, e);
  if (n.type.lanes == 1) return true;
  bool narrow = (n.type.code == DT_INT || n.type.code == DT_UINT) && (n.type.bits == 8 || n.type.bits == 16);
  if (n.kind == IR_BCAST || n.kind == IR_LOAD)
    return (dtype_on_vectors(n.type) || narrow) && (n.kind == IR_BCAST || element(c, n, e));
  bool call = n.kind == IR_CALL && intrin_on_vectors((Intrin)n.sym, n.type), cast = n.kind == IR_CAST,
       arith = n.kind == IR_ADD || n.kind == IR_SUB || n.kind == IR_MUL || n.kind == IR_MIN || n.kind == IR_MAX ||
               (n.kind == IR_DIV && n.type.code == DT_FLOAT),
       choice = ex_is_choice(c, e);
  DType first = n.n ? ir_type(c, ir_kid(c, e, 0)) : n.type;
  if (choice && first.lanes > 1) /* a conditional would read what its condition guards */
    return n.kind == IR_SELECT && dtype_on_vectors(n.type) && test_on_vectors(c, ir_kid(c, e, 0)) &&
           ex_on_vectors(c, ir_kid(c, e, 1)) && ex_on_vectors(c, ir_kid(c, e, 2));
  if (cast && (first.code == DT_BFLOAT || (first.code == DT_FLOAT && n.type.code != DT_FLOAT))) return false;
  bool ok = dtype_on_vectors(n.type) && (call || cast || arith || choice);
  for (int i = 0; ok && i < n.n; i++) ok = ex_on_vectors(c, ir_kid(c, e, i));
  return ok;
}

Intrin intrin_find(const char *name) {
  if (strncmp(name, "tir.", 4) == 0) name += 4;
  for (int i = 1; i < IN_COUNT; i++)
    if (strcmp(TABLE[i].name, name) == 0) return (Intrin)i;
  return IN_NONE;
}
