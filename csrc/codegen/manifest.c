/* gen_manifest: what program.h's manifest says of a program of ours. */
#include <string.h>
#include "codegen/gen.h"

static const char *dtype_text(IrCtx *c, DType t) {
  StrBuf b;
  sb_init(&b, ir_arena(c));
  dtype_print(&b, dtype_lanes(t, 1));
  return sb_str(&b);
}

static int64_t fixed(IrCtx *c, ExprId e, const char *what, const char *name) {
  int64_t v;
  if (e && ex_const_int(c, e, &v)) return v;
  err_raise(ir_err(c), NS_ERR_VALUE, "%s of buffer '%s' is not constant; programs need static shapes", what, name);
}

/* Elements from the first to the last one: rows of a part of a joined tensor lie apart. */
static bool span(const IrBuffer *b, const int64_t *shape, int64_t *n) {
  int64_t run = 1, all = 1;
  *n = 1;
  for (int d = b->rank - 1; d >= 0; d--) {
    int64_t far;
    if (!i64_mul(all, shape[d], &all) ||
        (shape[d] > 0 && (!i64_mul(run, shape[d] - 1, &far) || !i64_add(*n, far, n))) ||
        !i64_mul(run, b->join_extent && b->join_dim == d ? b->join_extent : shape[d], &run))
      return false;
  }
  if (!all) *n = 0;
  return true;
}

static ManBuffer buffer(IrCtx *c, BufferId b) {
  const IrBuffer *info = ir_buffer(c, b);
  ManBuffer o = {.name = info->name, .dtype = dtype_text(c, info->type)};
  int64_t n = 1, *shape = info->external ? arena_array(ir_arena(c), int64_t, info->rank) : NULL;
  bool fits = true;
  if (info->external || !info->size)
    for (int d = 0; d < info->rank; d++) {
      int64_t extent = fixed(c, info->extent[d], "the shape", info->name);
      fits = fits && i64_mul(n, extent, &n);
      if (shape) shape[d] = extent;
    }
  else
    n = fixed(c, info->size, "the size", info->name);
  if (info->external && info->join_extent) fits = span(info, shape, &n);
  if (!fits || !i64_mul(n, dtype_bytes(dtype_lanes(info->type, 1)), &o.bytes))
    err_raise(ir_err(c), NS_ERR_VALUE, "buffer '%s' is too large", info->name);
  o.ndim = info->rank;
  o.shape = shape;
  return o;
}

static ManParam param(const Program *p, const Kernel *k, int i) {
  for (int j = 0; j < p->f.n_args; j++)
    if (p->f.arg[j] == k->param[i]) return (ManParam){false, k->read_only[i], j};
  for (int j = 0; j < p->n_work; j++)
    if (p->work[j] == k->param[i]) return (ManParam){true, k->read_only[i], j};
  err_raise(ir_err(p->f.ctx), NS_ERR_INTERNAL, "parameter '%s' of kernel '%s' is neither an argument nor a workspace",
            ir_buffer(p->f.ctx, k->param[i])->name, k->name);
}

static ManKernel kernel(const Program *p, const Kernel *k, Manifest *m) {
  int64_t dynamic = gen_dynamic_shared(p, k);
  ManKernel o = {.name = k->name,
                 .n_param = k->n_param,
                 .param = arena_array(ir_arena(p->f.ctx), ManParam, k->n_param),
                 .shared_bytes = dynamic ? 0 : k->shared_bytes,
                 .dyn_shared_bytes = dynamic,
                 .local_bytes = k->local_bytes,
                 .waits = gen_waits(p)};
  for (int i = 0; i < 3; i++) {
    o.grid[i] = k->grid[i] > 0 ? k->grid[i] : 1;
    o.block[i] = k->block[i] > 0 ? k->block[i] : 1;
  }
  for (int i = 0; i < k->n_param; i++) {
    ManParam q = o.param[i] = param(p, k, i);
    if (!q.work && !q.read_only) m->arg[q.index].read_only = false;
  }
  return o;
}

/* Kernels of GPU programs are named ENTRY_kernel<k>. */
static const char *entry_name(const Program *p) {
  if (!p->n_kernels) return "empty";
  const char *name = p->kernel[0].name, *end = p->f.target.kind == TG_CPU ? NULL : strstr(name, "_kernel");
  for (const char *next = end; next; next = strstr(next + 1, "_kernel")) end = next;
  if (p->f.target.kind == TG_CPU) return gen_entry(ir_arena(p->f.ctx), name);
  return end ? arena_printf(ir_arena(p->f.ctx), "%.*s", (int)(end - name), name) : name;
}

char *gen_manifest(const Program *p) {
  static const char *const NAME[] = {[TG_CPU] = "c", [TG_CUDA] = "cuda", [TG_OPENCL] = "opencl"};
  IrCtx *c = p->f.ctx;
  Arena *a = ir_arena(c);
  const Target *t = &p->f.target;
  Manifest m = {.target = NAME[t->kind],
                .entry = entry_name(p),
                .sm = t->kind == TG_CUDA ? t->gpu.sm : 0,
                .fast_math = t->fast_math,
                .n_args = p->f.n_args,
                .n_work = p->n_work,
                .n_kernels = p->n_kernels,
                .arg = arena_array(a, ManBuffer, p->f.n_args),
                .work = arena_array(a, ManBuffer, p->n_work),
                .kernel = arena_array(a, ManKernel, p->n_kernels)};
  if (p->n_kernels && t->kind == TG_CPU && strcmp(m.entry, p->kernel[0].name) != 0) m.name = p->kernel[0].name;
  for (int i = 0; i < p->f.n_args; i++) {
    m.arg[i] = buffer(c, p->f.arg[i]);
    m.arg[i].read_only = true; /* until a kernel writes to it */
    m.arg[i].constant = func_is_constant(&p->f, p->f.arg[i]);
    for (int k = 0; k < p->n_relayout; k++)
      if (p->relayout[k].tensor == i) m.arg[i].layout = &p->relayout[k];
  }
  m.report = -1;
  for (int i = 0; i < p->n_work; i++) {
    m.work[i] = buffer(c, p->work[i]);
    if (p->work[i] == p->report) m.report = i;
  }
  if (m.report >= 0) m.n_site = p->f.n_site;
  if (m.report >= 0) m.site = arena_copy(a, p->f.site, sizeof *m.site * (size_t)m.n_site);
  for (int i = 0; i < p->n_kernels; i++) m.kernel[i] = kernel(p, &p->kernel[i], &m);
  return man_write(a, &m);
}
