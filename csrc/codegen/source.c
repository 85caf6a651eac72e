/* gen_source: puts a text together from its prelude, the helpers it needs and its kernels. */
#include "codegen/gen.h"
#include "base/limits.h"

static const char *const C_PRELUDE =
    "#include <stdint.h>\n"
    "#define NS_PRAGMA(x) _Pragma(#x)\n"
    "#if defined(__clang__)\n"
    "NS_PRAGMA(clang fp contract(fast))\n" /* what gcc does by a flag, after which clang heeds no pragma (contract.c) */
    "#define NS_IVDEP NS_PRAGMA(clang loop vectorize(assume_safety))\n#define NS_UNROLL(n) NS_PRAGMA(unroll n)\n"
    "#define NS_SCALAR (void)0\n"
    "#else\n"
    "#define NS_IVDEP NS_PRAGMA(GCC ivdep)\n#define NS_UNROLL(n) NS_PRAGMA(GCC unroll n)\n"
    "#define NS_SCALAR __asm__ volatile(\"\")\n"
    "#endif\n"
    "typedef void (*NsParallelBody)(void *env, int64_t begin, int64_t end);\n"
    "typedef int32_t (*NsParallel)(void *pool, NsParallelBody body, void *env, int64_t n);\n";

int64_t gen_dynamic_shared(const Program *p, const Kernel *k) {
  bool more = p->f.target.kind == TG_CUDA && k->shared_bytes > GPU_SHARED_DECLARED;
  return more ? gpu_shared_at_launch(k->shared_bytes) : 0;
}

static bool uses_double(const Program *p) {
  for (int i = 0; i < p->f.n_args; i++)
    if (ir_buffer(p->f.ctx, p->f.arg[i])->type.code == DT_FLOAT && ir_buffer(p->f.ctx, p->f.arg[i])->type.bits == 64)
      return true;
  for (int i = 0; i < p->n_work; i++)
    if (ir_buffer(p->f.ctx, p->work[i])->type.code == DT_FLOAT && ir_buffer(p->f.ctx, p->work[i])->type.bits == 64)
      return true;
  return false;
}

static void forget_kernel(Gen *g) {
  mapu_init(&g->var_name, g->a);
  mapu_init(&g->buf_name, g->a);
  mapu_init(&g->hoisted, g->a);
  mapu_init(&g->piece_name, g->a);
  mapu_init(&g->let_inline, g->a);
  mapu_init(&g->buf_of_var, g->a);
  maps_init(&g->used, g->a);
  g->flows_known = g->apart = false;
  g->lanes.len = g->lane_var.len = g->live_var.len = g->live_buf.len = 0;
  g->n_tmp = 0;
  for (int i = 0; i < g->p->n_kernels; i++) maps_set(&g->used, g->p->kernel[i].name, 1);
}

char *gen_source(const Program *p) {
  static const GenTarget *const TARGETS[] = {[TG_CPU] = &GEN_C, [TG_CUDA] = &GEN_CUDA, [TG_OPENCL] = &GEN_OPENCL};
  IrCtx *c = p->f.ctx;
  Arena *a = ir_arena(c);
  StrBuf body, top, all;
  sb_init(&body, a);
  sb_init(&top, a);
  sb_init(&all, a);
  Gen g = {.p = p,
           .c = c,
           .a = a,
           .err = ir_err(c),
           .t = TARGETS[p->f.target.kind],
           .ar = ar_new(c),
           .top = &top,
           .o = &body,
           .share = p->f.target.kind == TG_CPU};
  maps_init(&g.helper_set, a);
  for (int i = 0; i < p->n_kernels; i++) {
    g.k = &p->kernel[i];
    forget_kernel(&g);
    if (i) sb_putc(&body, '\n');
    if (g.t->kind == TG_CPU)
      gen_c_kernel(&g);
    else
      gen_gpu_kernel(&g);
  }
  if (g.t->kind == TG_CPU) sb_puts(&all, C_PRELUDE);
  if (g.t->kind == TG_CPU && g.math_used)
    sb_puts(&all, "#include <math.h>\n"); /* headers are a tenth of a small compile */
  if (g.heap_used) sb_puts(&all, "#include <stdlib.h>\n");
  if (g.t->kind == TG_OPENCL && uses_double(p)) sb_puts(&all, "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n");
  for (int i = 0; i < g.helper.len; i++) sb_puts(&all, g.helper.at[i]);
  if (all.len) sb_putc(&all, '\n');
  sb_puts(&all, sb_str(&top));
  sb_puts(&all, sb_str(&body));
  limit_check(g.err, LIMIT_SOURCE, (int64_t)all.len);
  return sb_str(&all);
}
