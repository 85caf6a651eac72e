/* The faces of the interpreter: they set up a run, protect it, and copy what it found. */
#include "interp/run.h"

typedef struct {
  Run *r;
  const Func *f;
  const Program *p;
  const TeDag *dag;
  void *const *args;
} Job;

static bool count_binder(IrCtx *c NS_UNUSED, const Stmt *s, void *arg) {
  ((Run *)arg)->max_slots += st_binder(s) != NULL;
  return true;
}

/* Buffers may be more than any table tells: the largest number in use is found by making a mark. */
static void set_up(Run *r) {
  IrCtx *c = r->c;
  IrMark m = ir_mark(c);
  r->n_buffers = m.n.buffer + 1;
  r->n_vars = m.n.var + 1;
  r->n_exprs = m.n.expr + 1;
  r->node = ir_node(c, 0);
  r->kid = r->node ? ir_kids(c, 0) - ir_node(c, 0)->kid0 : NULL;
  Arena *k = r->keep;
  r->mem = arena_array(k, Mem *, r->n_buffers);
  r->own = arena_array(k, Mem **, r->n_buffers);
  r->slot = arena_array(k, int32_t, r->n_vars);
  r->dim_of = arena_array(k, int8_t, r->n_vars);
  for (int i = 0; i < r->n_vars; i++) r->dim_of[i] = -1;
  r->expr_flags = arena_array(k, uint8_t, r->n_exprs);
  mapu_init(&r->sync, k);
  mapu_init(&r->shfl, k);
  mapu_init(&r->found_keys, k);
  mapu_init(&r->shared_writes, k);
  r->threads = 1;
  r->epoch = r->kernel_epoch = 1;
  r->max_slots += 256; /* lets in expressions and variables of reducers */
  r->env_all = arena_array(r->keep, Val, r->max_slots);
  set_thread(r, 0);
}

static void bind(Run *r, BufferId b, void *data) { /* memory that all kernels see */
  r->mem[b] = mem_new(r, b, data);
  r->mem[b]->fixed_block = true;
}

static void bind_args(Run *r, const Func *f, void *const *args) {
  for (int i = 0; i < f->n_args; i++) {
    if (!args[i]) err_raise(r->err, NS_ERR_VALUE, "argument %d of the program has no data", i);
    bind(r, f->arg[i], args[i]);
    r->mem[f->arg[i]]->constant = func_is_constant(f, f->arg[i]);
    r->mem[f->arg[i]]->others = !r->mem[f->arg[i]]->constant;
  }
}

static void run_func(void *arg) {
  Job *j = arg;
  Run *r = j->r;
  r->flat = j->f->flat;
  r->gpu = &j->f->target.gpu;
  st_visit(j->f->ctx, j->f->body, count_binder, NULL, r);
  set_up(r);
  r->implied = r->unplaced = j->f->target.kind != TG_CPU && !uses_barriers(r, j->f->body);
  bind_args(r, j->f, j->args);
  exec_one(r, j->f->body);
}

static void check_launch(Run *r, const Kernel *k) {
  static const char *const WHAT[] = {"blocks", "threads"};
  for (int i = 0; i < 6; i++) {
    bool block = i >= 3;
    int64_t said = (block ? k->block : k->grid)[i % 3], have = (block ? r->block_dim : r->grid_dim)[i % 3];
    if ((said > 1 || have > 1) && said != have)
      finding(r, FD_LAUNCH, -1 - i, "kernel '%s' is launched with %lld %s in dimension %d, its loops have %lld",
              k->name, (long long)said, WHAT[block], i % 3, (long long)have);
  }
}

static void check_params(Run *r, const Kernel *k) {
  for (int i = 0; i < k->n_param; i++)
    if (!r->mem[k->param[i]])
      err_raise(r->err, NS_ERR_INTERNAL, "parameter '%s' of kernel '%s' is neither an argument nor a workspace",
                ir_buffer(r->c, k->param[i])->name, k->name);
}

/* GPU kernels may begin with allocations around the thread loops: they belong into the launch. */
static void run_program(void *arg) {
  Job *j = arg;
  Run *r = j->r;
  const Program *p = j->p;
  r->flat = true;
  r->strict = true;
  r->gpu = &p->f.target.gpu;
  for (int i = 0; i < p->n_kernels; i++) st_visit(p->f.ctx, p->kernel[i].body, count_binder, NULL, r);
  set_up(r);
  bind_args(r, &p->f, j->args);
  for (int i = 0; i < p->n_work; i++) {
    bind(r, p->work[i], NULL);
    r->mem[p->work[i]]->others = true;
  }
  for (int i = 0; i < p->n_kernels; i++) {
    const Kernel *k = &p->kernel[i];
    check_params(r, k);
    if (p->f.target.kind == TG_CPU)
      exec_one(r, k->body);
    else {
      run_launch(r, k->body);
      check_launch(r, k);
    }
  }
}

/* Runs body with an arena for the run and one for the program's memory; both are freed whatever happens. */
typedef struct {
  Job *j;
  IrCtx *c;
  ErrBody body;
  int64_t max_steps;
  Arena *keep, *a;
  InterpReport rep;
} Protected;
static void run_and_report(void *arg) {
  Protected *p = arg;
  Run *r = p->j->r = arena_new_of(p->keep, Run);
  r->c = p->c;
  r->err = ir_err(p->c);
  r->keep = p->keep;
  r->a = p->a = arena_new(ir_err(p->c));
  r->max_steps = p->max_steps;
  p->body(p->j);
  p->rep = (InterpReport){.n = r->found.len, .steps = r->steps, .misaligned = r->misaligned};
  p->rep.finding = arena_copy(ir_arena(p->c), r->found.at, (size_t)r->found.len * sizeof *r->found.at);
}
static void free_run(void *arg) {
  Protected *p = arg;
  arena_free(p->a);
  arena_free(p->keep);
}
static InterpReport protected_run(IrCtx *c, ErrBody body, Job *j, int64_t max_steps) {
  Protected p = {.j = j, .c = c, .body = body, .max_steps = max_steps, .keep = arena_new(ir_err(c))};
  err_guard(ir_err(c), run_and_report, free_run, &p);
  free_run(&p);
  return p.rep;
}

InterpReport interp_run(const Func *f, void *const *args, int64_t max_steps) {
  Job j = {.f = f, .args = args};
  return protected_run(f->ctx, run_func, &j, max_steps);
}

InterpReport interp_run_program(const Program *p, void *const *args, int64_t max_steps) {
  Job j = {.p = p, .args = args};
  return protected_run(p->f.ctx, run_program, &j, max_steps);
}

/* ---- reference evaluation of a DAG: the definition itself, element by element ---- */
static Mem *tensor_mem(Run *r, TensorId t, void *data) {
  const IrTensor *info = ir_tensor(r->c, t);
  Mem *m = arena_new_of(r->keep, Mem);
  m->type = info->type;
  m->size = dtype_bytes(m->type);
  m->rank = info->rank;
  m->n = 1;
  m->extent = arena_array(r->keep, int64_t, m->rank);
  for (int d = 0; d < m->rank; d++) {
    m->extent[d] = te_const(r->c, info->shape[d]);
    if (!i64_mul(m->n, m->extent[d], &m->n)) err_raise(r->err, NS_ERR_VALUE, "tensor '%s' is too large", info->name);
  }
  m->data = data ? data : arena_alloc(r->keep, (size_t)(m->n * m->size));
  return m;
}

static void eval_op(Run *r, const TeOp *op) {
  for (int o = 0; o < op->n_out; o++) {
    Mem *m = r->tensor[op->out[o]];
    int64_t *lo = arena_array(r->keep, int64_t, op->n_axis);
    for (int d = 0; d < op->n_axis; d++) lo[d] = ev_int(r, op->axis[d].min, "axis minimum");
    for (int64_t i = 0; i < m->n; i++) {
      if ((i & 255) == 0) err_poll(r->err);
      int64_t rest = i;
      for (int d = op->n_axis - 1; d >= 0; d--) {
        set_var(r, op->axis[d].var, (Val){.u.i = lo[d] + rest % m->extent[d]});
        rest /= m->extent[d];
      }
      mem_put(m->type, m->data + i * m->size, ev(r, op->body[o], 0));
    }
  }
}

static void run_dag(void *arg) {
  Job *j = arg;
  Run *r = j->r;
  const TeDag *d = j->dag;
  for (int i = 0; i < d->n_ops; i++) r->max_slots += d->op[i]->n_axis + d->op[i]->n_red + 16;
  set_up(r);
  r->tensor = arena_array(r->keep, Mem *, ir_mark(r->c).n.tensor + 1);
  for (int i = 0; i < d->n_tensors; i++) r->tensor[d->tensor[i]] = tensor_mem(r, d->tensor[i], j->args[i]);
  for (int i = 0; i < d->n_ops; i++)
    for (int o = 0; o < d->op[i]->n_out; o++) {
      TensorId t = d->op[i]->out[o];
      if (r->tensor[t]) continue;
      if (d->op[i]->kind == TE_PLACEHOLDER)
        err_raise(r->err, NS_ERR_VALUE, "placeholder '%s' is not among the tensors of the DAG", d->op[i]->name);
      r->tensor[t] = tensor_mem(r, t, NULL);
    }
  for (int i = 0; i < d->n_ops; i++)
    if (d->op[i]->kind == TE_COMPUTE) eval_op(r, d->op[i]);
}

void interp_dag(IrCtx *c, const TeDag *d, void *const *data) {
  Job j = {.dag = d, .args = data};
  protected_run(c, run_dag, &j, 0);
}
