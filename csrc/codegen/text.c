/* From loops, or from steps, to all that is needed to compile and run a program: lowered, verified against the GPU's limits,
 * and printed as source text with the manifest. Steps are replayed on the DAG, which is rewritten first if the task wants
 * its weights in another layout.
 */
#include "codegen/text.h"

GenText gen_loops(Func f, const char *name, int n_relayout, const Relayout *r) {
  Program p = low_build(f, name);
  p.n_relayout = n_relayout, p.relayout = r;
  GenText out = {.source = gen_source(&p)};
  out.manifest = gen_manifest(&p);
  return out;
}

static void know(Func *f, const GenArgs *args) {
  f->constant = args->constant;
  if (!args->join_extent) return;
  IrBuffer *out = ir_buffer(f->ctx, f->arg[f->n_args - 1]);
  int64_t own;
  err_check(ir_err(f->ctx), args->join_dim >= 0 && args->join_dim < out->rank,
            "tensor %s has no dimension %d to be joined along", out->name, (int)args->join_dim);
  bool fits = ex_const_int(f->ctx, out->extent[args->join_dim], &own) && own <= args->join_extent;
  err_check(ir_err(f->ctx), fits && args->join_extent <= INT32_MAX,
            "tensor %s does not fit into %lld elements along dimension %d", out->name, (long long)args->join_extent,
            (int)args->join_dim);
  out->join_dim = args->join_dim;
  out->join_extent = args->join_extent;
}

GenText gen_steps(IrCtx *c, const TeDag *d, const Target *t, int n, const Step *steps, int layout, const char *name,
                  const GenArgs *args) {
  Step *own = n ? arena_copy(ir_arena(c), steps, sizeof(Step) * (size_t)n) : NULL;
  int n_made = 0;
  Relayout *made = NULL;
  if (layout != 0) d = dag_rewrite_layout(c, d, &n, &own, layout, &n_made, &made);
  State *s = state_replay(c, d, n, own);
  state_check_whole(s);
  state_infer_bounds(s);
  Func f = low_loops(s, t, d->n_tensors, d->tensor, LOW_CODE);
  if (args) know(&f, args);
  if (t->kind != TG_CPU) {
    GpuCheck g = low_gpu_check(f);
    if (!g.ok)
      return (GenText){.why = arena_printf(ir_arena(c), "the program breaks a limit of the device: %s", g.why)};
  }
  return gen_loops(f, name, n_made, made);
}
