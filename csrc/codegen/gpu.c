/* The GPU targets: kernel heads, shared memory and the tables of CUDA C and OpenCL C. */
#include "codegen/gen.h"

const GenTarget GEN_CUDA = {.kind = TG_CUDA,
                            .block = {"blockIdx.x", "blockIdx.y", "blockIdx.z"},
                            .thread = {"threadIdx.x", "threadIdx.y", "threadIdx.z"},
                            .barrier = "__syncthreads()",
                            .unroll = "#pragma unroll",
                            .shared = "__shared__ __align__(16) ",
                            .local_align = "__align__(16) ",
                            .global = "",
                            .max_vector_bytes = 16};
const GenTarget GEN_OPENCL = {.kind = TG_OPENCL,
                              .block = {"get_group_id(0)", "get_group_id(1)", "get_group_id(2)"},
                              .thread = {"get_local_id(0)", "get_local_id(1)", "get_local_id(2)"},
                              .barrier = "barrier(CLK_LOCAL_MEM_FENCE)",
                              .unroll = "#pragma unroll",
                              .shared = "__local __attribute__((aligned(16))) ",
                              .local_align = "__attribute__((aligned(16))) ",
                              .global = "__global ",
                              .max_vector_bytes = 16};

typedef struct {
  bool dynamic;
  int64_t offset;
} Shared;

/* Arrays that an instruction finds by their addresses begin at multiples of more than the usual; all that are larger have such
 * sizes, and so they may follow each other. */
enum { SHARED_ALIGN = 128 };
static void strictest(Gen *g, const Stmt *s, void *arg) {
  int32_t *most = arg;
  if (s->kind != ST_ALLOC || ir_buffer(g->c, s->u.alloc.buf)->scope != SC_SHARED) return;
  if (ir_buffer(g->c, s->u.alloc.buf)->align > *most) *most = ir_buffer(g->c, s->u.alloc.buf)->align;
}

static void shared_array(Gen *g, const Stmt *s, void *arg) {
  Shared *sh = arg;
  if (s->kind != ST_ALLOC || ir_buffer(g->c, s->u.alloc.buf)->scope != SC_SHARED) return;
  BufferId b = s->u.alloc.buf;
  DType t = dtype_lanes(ir_buffer(g->c, b)->type, 1);
  int64_t n = gen_const(g, ir_buffer(g->c, b)->size, "size of a shared array");
  int64_t bytes = i64_ceildiv(n * dtype_bytes(t), 16) * 16; /* whole words: compilers read them, the last one, too */
  const char *ty = gen_storage(g, t);
  int32_t align = ir_buffer(g->c, b)->align;
  gen_line(g);
  if (sh->dynamic)
    sb_printf(g->o, "%s *%s = (%s *)(ns_shared + %lld);\n", ty, gen_buf(g, b), ty, (long long)sh->offset);
  else
    sb_printf(g->o, "%s%s %s[%lld];\n",
              align > SHARED_ALIGN ? arena_printf(g->a, "__shared__ __align__(%d) ", align) : g->t->shared, ty,
              gen_buf(g, b), (long long)(bytes / dtype_bytes(t)));
  sh->offset += bytes;
}

/* How many blocks one multiprocessor must hold at a time: no more than the grid gives it. ptxas otherwise saves
 * registers for an occupancy that a small grid never reaches, and batch-1 kernels lose the overlap of their loads. */
static int64_t blocks_per_sm(const Gen *g, const Kernel *k, int64_t threads) {
  const GpuMachine *m = &g->p->f.target.gpu;
  int64_t n = i64_ceildiv(k->grid[0] * k->grid[1] * k->grid[2], m->sms > 0 ? m->sms : 1),
          most = m->max_warps * GPU_WARP / threads;
  if (n > most) n = most;
  if (n > m->max_blocks) n = m->max_blocks;
  if (st_synced(g->c, k->body)) { /* what it keeps in registers and in shared memory is known beforehand */
    int64_t regs = k->local_bytes / 4 + GPU_MATRIX_ADDRESSES;
    Occupancy fit =
        gpu_occupancy(m, threads, regs < GPU_MAX_REGS ? regs : GPU_MAX_REGS, gpu_shared_at_launch(k->shared_bytes));
    if (n > fit.blocks) n = fit.blocks;
  }
  return n < 1 ? 1 : n;
}

bool gen_waits(const Program *p) { return target_overlap(&p->f.target) != OVERLAP_NONE; }

/* Of a kernel of a network whose launches may overlap: it goes on when the launch before has ended, and does nothing where a launch was
 * not allowed to begin early (program.h: "waits"). The first statement, where lower/overlap.c, which tells why that is safe, has not
 * found a better place.
 *
 * Why the compiler moves no access before the wait: pointers are operands, so that the instruction may read and write what they
 * point to; all but those to constants (Func.constant), whose loads may and should come before it. Without them a parameter
 * that is `const` and `__restrict__` is read by ld.global.nc, which is for memory that does not change while the kernel runs. Here it does, until the wait is over, and ptxas does move such loads before the
 * wait. What distinct pointers point to stays distinct. It costs 2 to 4 % of a network without early launches.
 *
 * The condition is for programs that are compiled again for an older GPU. */
void gen_launch_wait(Gen *g) {
  const char *sep = "";
  sb_printf(g->o, "#if __CUDA_ARCH__ >= %d0\n", gpu_since(GPU_OVERLAP));
  gen_linef(g, "asm volatile(\"griddepcontrol.wait;\" ::");
  for (int i = 0; i < g->k->n_param; i++) {
    if (func_is_constant(&g->p->f, g->k->param[i])) continue;
    sb_printf(g->o, "%s \"l\"(%s)", sep, gen_buf(g, g->k->param[i]));
    sep = ",";
  }
  sb_puts(g->o, " : \"memory\");\n#endif\n");
}

void gen_launch_next(Gen *g) {
  sb_printf(g->o, "#if __CUDA_ARCH__ >= %d0\n", gpu_since(GPU_OVERLAP));
  gen_linef(g, "asm volatile(\"griddepcontrol.launch_dependents;\");\n#endif\n");
}

void gen_gpu_kernel(Gen *g) {
  const Kernel *k = g->k;
  int64_t threads = k->block[0] * k->block[1] * k->block[2];
  if (g->t->kind == TG_CUDA) {
    sb_puts(g->o, "extern \"C\" __global__ void ");
    if (threads > 1)
      sb_printf(g->o, "__launch_bounds__(%lld, %lld) ", (long long)threads, (long long)blocks_per_sm(g, k, threads));
    int cluster = st_cluster(g->c, k->body);
    if (cluster > 1) sb_printf(g->o, "__cluster_dims__(1, 1, %d) ", cluster);
  } else
    sb_printf(g->o, "__kernel __attribute__((reqd_work_group_size(%lld, %lld, %lld))) void ", (long long)k->block[0],
              (long long)k->block[1], (long long)k->block[2]);
  sb_printf(g->o, "%s(", k->name);
  for (int i = 0; i < k->n_param; i++) {
    BufferId b = k->param[i];
    sb_printf(g->o, "%s%s%s%s *%s %s", i ? ", " : "", g->t->global, k->read_only && k->read_only[i] ? "const " : "",
              gen_storage(g, dtype_lanes(ir_buffer(g->c, b)->type, 1)),
              g->t->kind == TG_CUDA ? " __restrict__" : " restrict", gen_buf(g, b));
  }
  sb_puts(g->o, ") {\n");
  g->indent = 1;
  if (gen_apart(g)) sb_puts(g->o, "#pragma OPENCL FP_CONTRACT OFF\n");
  if (gen_waits(g->p) && !st_waits(g->c, k->body)) gen_launch_wait(g);
  Shared sh = {.dynamic = gen_dynamic_shared(g->p, k) > 0};
  int32_t align = SHARED_ALIGN;
  gen_walk(g, k->body, NULL, strictest, &align);
  if (sh.dynamic) sb_printf(g->o, "  extern __shared__ __align__(%d) unsigned char ns_shared[];\n", align);
  gen_walk(g, k->body, NULL, shared_array, &sh);
  g->hoist_pending = true;
  gen_stmt(g, k->body);
  g->hoist_pending = false;
  sb_puts(g->o, "}\n");
}
