/* A candidate on its way out of the search: replayed on the task's DAG (rewritten first if the task wants its weights in
 * another layout), lowered, verified against the GPU's limits, and printed as source text with the manifest that tells how
 * to run it.
 */
#include "tune/tune.h"

TuneSource tune_source(IrCtx *c, const TeDag *d, const Target *t, int n, const Step *steps, int layout,
                       const char *name) {
  Step *own = n ? arena_copy(ir_arena(c), steps, sizeof(Step) * (size_t)n) : NULL;
  int n_made = 0;
  Relayout *made = NULL;
  if (layout != 0) d = dag_pre_transform(c, d, &n, &own, layout, &n_made, &made);
  State *s = state_replay(c, d, n, own);
  state_infer_bounds(s);
  Func f = low_loops(s, t, d->n_tensors, d->tensor, LOW_CODE);
  if (t->kind != TG_CPU) {
    GpuCheck g = low_gpu_check(f);
    if (!g.ok) return (TuneSource){.why = g.why};
  }
  Program p = low_build(f, name);
  p.n_relayout = n_made;
  p.relayout = made;
  TuneSource out = {.source = gen_source(&p)};
  out.manifest = gen_manifest(&p);
  return out;
}
