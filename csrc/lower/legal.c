/* legal: schedules that no lowering can make right are told apart before they run (spec 07 §7.1.4, §7.2.3-5).
 *
 * Threads and parallel iterations run in no order, and only barriers inside a block order them. So every element must be
 * added up by one of them alone, and what a thread reads must have been written by itself, behind a barrier (shared
 * memory), or by an earlier kernel (global memory). Bound inference makes regions large enough for that when loops are
 * bound as it assumes; the checks here ask whether they are. Each refusal names stage, loop and remedy.
 *
 * A stage at root is a kernel together with all that is computed inside it; all threads of the kernel run every
 * statement in it, whichever stage has bound them.
 */
#include <string.h>
#include "lower/util.h"

enum { N_TAG = 6, MAX_CONCURRENT = 16 };
/* What part of an axis' domain the loops of one thread reach. */
typedef enum { REACH_ALL, REACH_FIRST, REACH_PART } Reach;
typedef struct {
  IrCtx *c;
  const State *s;
  Arith *ar;
  Arena *a;
  bool gpu;
  const bool *is_arg;
  ExprId *const *body;       /* per stage, with inlined stages substituted; NULL: as defined */
  const Axis *launch[N_TAG]; /* of the kernel that the stage belongs to: a loop that is bound to the tag, or NULL */
  bool threads;              /* it has more than one */
  const char *why;
} Legal;

#define REFUSE(k, ...) ((k)->why = (k)->why ? (k)->why : arena_printf((k)->a, __VA_ARGS__))

static bool one(const Legal *k, const Axis *x) { return ex_is_int(k->c, x->extent, 1); }
static bool hardware(const Axis *x) { return low_loop_kind(x) > FOR_VTHREAD; }
static int tag_of(const Axis *x) { return (int)low_loop_kind(x) - (int)FOR_BLOCK_X; }
static const char *name_of(const Stage *st) { return st->op->name; }
static const Axis *leaf(const Stage *st, int p) { return &st->axes.at[st->leaf.at[p]]; }

/* Is memory of this scope private with regard to the tag: has each of its threads (or blocks) memory of its own? */
static bool is_private(ScopeKind scope, int tag) { return (int)scope > (tag < 3 ? 0 : 1); }

static int root_of(const State *s, int sid) {
  while (s->stage.at[sid].at == AT_ITER) sid = s->stage.at[sid].at_stage;
  return sid;
}

/* ---- loops around a stage, from its own attach point outwards ---- */
typedef struct {
  const State *s;
  int stage, leaf;
} Path;
static Path path_of(const State *s, int sid) {
  const Stage *st = &s->stage.at[sid];
  return (Path){s, st->at == AT_ITER ? st->at_stage : -1, st->at_iter};
}
static const Axis *path_next(Path *p) {
  while (p->stage >= 0 && p->leaf < 0) {
    const Stage *st = &p->s->stage.at[p->stage];
    *p = (Path){p->s, st->at == AT_ITER ? st->at_stage : -1, st->at_iter};
  }
  return p->stage < 0 ? NULL : leaf(&p->s->stage.at[p->stage], p->leaf--);
}
static bool in_kernel(const Legal *k, int sid) {
  Path p = path_of(k->s, sid);
  for (const Axis *x; (x = path_next(&p));)
    if (hardware(x)) return true;
  return false;
}
static bool path_has_tag(const Legal *k, int sid, int tag) {
  Path p = path_of(k->s, sid);
  for (const Axis *x; (x = path_next(&p));)
    if (hardware(x) && tag_of(x) == tag && !one(k, x)) return true;
  return false;
}
static bool path_has_object(const Legal *k, int sid, int32_t obj) {
  Path p = path_of(k->s, sid);
  for (const Axis *x; (x = path_next(&p));)
    if (x->thread_obj == obj && !one(k, x)) return true;
  return false;
}

/* The launch of the kernel that stage `sid` belongs to. */
static void find_launch(Legal *k, int sid) {
  int root = root_of(k->s, sid);
  k->threads = false;
  memset(k->launch, 0, sizeof k->launch);
  for (int i = 0; i < k->s->stage.len; i++) {
    const Stage *st = &k->s->stage.at[i];
    if (st->op->kind != TE_COMPUTE || st->at == AT_INLINED || root_of(k->s, i) != root) continue;
    for (int p = 0; p < st->leaf.len; p++)
      if (hardware(leaf(st, p)) && !one(k, leaf(st, p))) {
        k->launch[tag_of(leaf(st, p))] = leaf(st, p);
        k->threads = true;
      }
  }
}

/* ---- variables: memory that is private to a thread can be filled only where the thread is known ---- */
typedef struct {
  const Legal *k;
  int sid;
  VarId out;
} Outside;
static void find_outside(IrCtx *c, ExprId e, void *arg) {
  Outside *o = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind != IR_VAR) return;
  Path p = path_of(o->k->s, o->sid);
  for (const Axis *x; (x = path_next(&p));)
    if (x->var == n->sym) return;
  o->out = n->sym;
}
static void loops_around(Legal *k, int sid) {
  const Stage *st = &k->s->stage.at[sid];
  Outside o = {k, sid, 0};
  for (int i = 0; i < st->n_root_data; i++) {
    ex_post_order(k->c, st->axes.at[i].min, find_outside, &o);
    ex_post_order(k->c, st->axes.at[i].extent, find_outside, &o);
  }
  for (int i = 0; o.out && i < k->s->stage.len; i++) {
    const Stage *in = &k->s->stage.at[i];
    for (int p = 0; p < in->leaf.len && in->op->kind == TE_COMPUTE; p++)
      if (low_loop_kind(leaf(in, p)) >= FOR_VTHREAD && leaf(in, p)->var == o.out)
        REFUSE(k,
               "stage %s: each %s has memory of its own for it, but it is computed outside of loop %s of stage %s, "
               "which is bound to %s; compute it inside that loop, or choose another memory with set_scope",
               name_of(st), for_is_block(low_loop_kind(leaf(in, p))) ? "block" : "thread", leaf(in, p)->sname,
               name_of(in), AN_WORD[leaf(in, p)->ann]);
  }
}

/* ---- variables of the definition: axes, and what a let or a shape brings ---- */
typedef struct {
  VarVec used, bound;
} Used;
static void find_used(IrCtx *c, ExprId e, void *arg) {
  Used *u = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind == IR_VAR || n->kind == IR_LET) vec_push(ir_arena(c), n->kind == IR_VAR ? &u->used : &u->bound, n->sym);
}
static bool in_a_shape(const Legal *k, VarId v) {
  for (int i = 0; i < k->s->stage.len; i++) {
    const IrTensor *t = ir_tensor(k->c, k->s->stage.at[i].op->out[0]);
    for (int d = 0; d < t->rank; d++)
      if (ex_uses_var(k->c, t->shape[d], v)) return true;
  }
  return false;
}
static void free_variables(Legal *k, const TeOp *op) {
  Used u = {0};
  for (int i = 0; i < op->n_out; i++) ex_post_order(k->c, op->body[i], find_used, &u);
  for (int i = 0; i < op->n_axis; i++) vec_push(k->a, &u.bound, op->axis[i].var);
  for (int i = 0; i < op->n_red; i++) vec_push(k->a, &u.bound, op->red[i].var);
  for (int i = 0; i < u.used.len; i++) {
    bool known = false;
    for (int j = 0; j < u.bound.len && !known; j++) known = u.bound.at[j] == u.used.at[i];
    if (!known && !in_a_shape(k, u.used.at[i]))
      REFUSE(k,
             "compute '%s' uses the variable %s, which is none of its axes and has no value; reduce over a "
             "te.reduce_axis with te.sum and its kin, and give a number that is known only at run time as a tensor",
             op->name, ir_var_info(k->c, u.used.at[i])->name);
  }
}

/* ---- initial values are stored before the loops of the reduction ---- */
static bool reads(IrCtx *c, ExprId e, void *stage) {
  const ExprNode *n = ir_node(c, e);
  return n->kind == IR_READ && ir_tensor(c, (TensorId)n->sym)->op == ((const Stage *)stage)->op;
}
static void initial_values(Legal *k, int sid, const uint64_t *mark) {
  const Stage *st = &k->s->stage.at[sid];
  const ExprId *body = k->body && k->body[sid] ? k->body[sid] : st->op->body;
  if (ir_kind(k->c, body[0]) != IR_REDUCE || !ir_reduce(k->c, body[0])->init) return;
  const IrReduce r = *ir_reduce(k->c, body[0]);
  int begin = 0;
  while (begin < st->leaf.len && !(mark[st->leaf.at[begin]] & 2)) begin++;
  for (int i = 0; i < k->s->stage.len; i++) {
    Stage *p = &k->s->stage.at[i];
    if (p->at != AT_ITER || p->at_stage != sid || p->at_iter < begin) continue;
    bool needed = false;
    for (int q = 0; q < r.n_src; q++) needed |= ex_any(k->c, r.init[q], reads, p);
    if (needed)
      REFUSE(k,
             "stage %s is computed inside the reduction loop %s of stage %s, which needs it before, as initial value; "
             "compute it outside of the reduction loops",
             name_of(p), leaf(st, begin)->sname, name_of(st));
  }
}

/* ---- one stage's own loops ---- */
static bool across_threads(const Stage *st, const uint64_t *mark) {
  for (int p = 0; p < st->leaf.len; p++)
    if ((mark[st->leaf.at[p]] & 2) && low_loop_kind(leaf(st, p)) >= FOR_VTHREAD) return true;
  return false;
}

static void mixed_loops(Legal *k, const Stage *st, const uint64_t *mark) {
  const Axis *seen[N_TAG] = {NULL};
  bool across = across_threads(st, mark);
  for (int p = 0; p < st->leaf.len; p++) {
    const Axis *x = leaf(st, p);
    uint64_t m = mark[st->leaf.at[p]];
    if (one(k, x)) continue;
    if ((m & 2) && x->ann == AN_PARALLEL)
      REFUSE(
          k,
          "stage %s: loop %s is parallel but runs over a reduction axis: iterations that run at the same time would "
          "add to the same elements; parallelize a loop over data axes only, or split the reduction off with rfactor",
          name_of(st), x->sname);
    if (m == 3 && across)
      REFUSE(
          k,
          "stage %s: loop %s (%s) mixes data and reduction axes in a reduction across threads; fuse data and reduction "
          "axes separately",
          name_of(st), x->sname, AN_WORD[x->ann]);
    if (!k->gpu || !hardware(x)) continue;
    const Axis **same = &seen[tag_of(x)];
    if (*same)
      REFUSE(k,
             "stage %s: the loops %s and %s are both bound to %s: their indices would always be equal; bind one only",
             name_of(st), (*same)->sname, x->sname, AN_WORD[x->ann]);
    *same = x;
  }
}

/* What one thread reaches of a leaf, if memory of this scope is private to it. */
static Reach leaf_reach(const Legal *k, int sid, const Axis *x, uint64_t mark, ScopeKind scope) {
  const Stage *st = &k->s->stage.at[sid];
  if (one(k, x) || low_loop_kind(x) < FOR_VTHREAD) return REACH_ALL;
  if (low_loop_kind(x) == FOR_VTHREAD) return path_has_object(k, sid, x->thread_obj) ? REACH_PART : REACH_ALL;
  if (!k->gpu || !is_private(scope, tag_of(x))) return REACH_ALL;
  if (st->scope != SC_AUTO) return REACH_FIRST; /* private memory has no dimension along its threads: the index is 0 */
  return mark == 2 && !path_has_tag(k, sid, tag_of(x)) ? REACH_ALL : REACH_PART; /* combined across equal threads */
}
static void split_reach(const Legal *k, const Stage *st, const Rel *r, Reach *reach) {
  const Axis *ax = st->axes.at;
  Reach o = reach[r->outer], i = reach[r->inner];
  bool all = o == REACH_ALL && i == REACH_ALL;
  if (o == REACH_FIRST && i == REACH_ALL) /* the first part alone holds everything */
    all = ar_prove(k->ar, ex_bin(k->c, IR_LE, ax[r->parent].extent, ax[r->inner].extent));
  if (o == REACH_PART || i == REACH_PART)
    reach[r->parent] = REACH_PART;
  else
    reach[r->parent] = all || one(k, &ax[r->parent]) ? REACH_ALL : REACH_FIRST;
}

/* Private memory: does each thread compute all that it reads? Loops that are bound to the threads leave it a part. */
static void private_part(Legal *k, int sid, const uint64_t *mark) {
  const Stage *st = &k->s->stage.at[sid];
  ScopeKind scope = k->is_arg[sid] && st->at == AT_ROOT ? SC_GLOBAL : state_scope(k->s, sid);
  Reach *reach = arena_array(k->a, Reach, st->axes.len);
  const Axis *bound = NULL;
  for (int p = 0; p < st->leaf.len; p++) {
    int id = st->leaf.at[p];
    reach[id] = leaf_reach(k, sid, leaf(st, p), mark[id], scope);
    if (reach[id] != REACH_ALL) bound = leaf(st, p);
  }
  if (!bound) return;
  for (int i = st->rels.len - 1; i >= 0; i--) {
    const Rel *r = &st->rels.at[i];
    if (r->kind == REL_SPLIT)
      split_reach(k, st, r, reach);
    else if (r->kind == REL_REBASE)
      reach[r->parent] = reach[r->outer];
    else if (r->kind == REL_FUSE)
      for (int q = 0; q < 2; q++) {
        int part = q ? r->inner : r->outer;
        reach[part] = reach[r->parent] == REACH_FIRST && one(k, &st->axes.at[part]) ? REACH_ALL : reach[r->parent];
      }
  }
  for (int i = 0; i < st->n_root; i++)
    if (reach[i] != REACH_ALL)
      REFUSE(k,
             "stage %s: each %s has %s memory of its own for it, but the loop %s is bound to %s, so that none computes "
             "all of axis %s; put the stage into %s memory with set_scope, or leave the loop unbound",
             name_of(st), scope == SC_SHARED ? "block" : "thread", scope == SC_SHARED ? "shared" : "local",
             bound->sname, AN_WORD[bound->ann], st->axes.at[i].sname, scope == SC_SHARED ? "global" : "shared");
}

/* ---- memory that several threads see ---- */

static bool binds_data(const Legal *k, const Stage *st, const uint64_t *mark, int tag) {
  for (int p = 0; p < st->leaf.len; p++)
    if (hardware(leaf(st, p)) && tag_of(leaf(st, p)) == tag && mark[st->leaf.at[p]] == 1 && !one(k, leaf(st, p)))
      return true;
  return false;
}

static void shared_sums(Legal *k, int sid, const uint64_t *mark) {
  const Stage *st = &k->s->stage.at[sid];
  if (!te_is_reduction(k->c, st->op) || across_threads(st, mark)) return; /* all that combine hold the same result */
  ScopeKind scope = k->is_arg[sid] ? SC_GLOBAL : state_scope(k->s, sid);
  const Axis *const *launch = k->launch;
  for (int t = 0; t < N_TAG; t++)
    if (launch[t] && !is_private(scope, t) && !binds_data(k, st, mark, t) &&
        !(k->is_arg[sid] && path_has_tag(k, sid, t))) /* see stored_sums */
      REFUSE(
          k,
          "stage %s: all threads of %s would add to the same elements in %s memory, because no loop over a data axis "
          "of it is bound to %s; bind one (extent %s)%s",
          name_of(st), AN_WORD[launch[t]->ann], scope == SC_SHARED ? "shared" : "global", AN_WORD[launch[t]->ann],
          ex_text(k->c, launch[t]->extent),
          st->at == AT_ROOT ? ""
          : k->is_arg[sid]  ? ", or leave the stage out of the arguments"
                            : ", or give each thread its own copy with set_scope(\"local\")");
}

static void memory_of_kernels(Legal *k, int sid) {
  const Stage *st = &k->s->stage.at[sid];
  if (st->scope == SC_WARP)
    REFUSE(k, "stage %s: memory scope 'warp' is not supported for GPU programs; use set_scope(\"shared\")",
           name_of(st));
  else if (st->at == AT_ROOT && st->scope > SC_GLOBAL)
    REFUSE(k,
           "stage %s is computed at root, in a kernel of its own, but %s memory lasts no longer than a kernel; "
           "compute it inside a reader with compute_at, or use set_scope(\"global\")",
           name_of(st), SCOPE_NAME[st->scope]);
  else if (st->at == AT_ITER && !k->is_arg[sid] && state_scope(k->s, sid) == SC_GLOBAL && in_kernel(k, sid) &&
           k->threads)
    REFUSE(k,
           "stage %s is computed inside a kernel in global memory, where no barrier orders the threads that share it; "
           "use set_scope(\"shared\") or set_scope(\"local\"), or compute_root()",
           name_of(st));
}

/* ---- intermediate results that are arguments: their elements are the caller's, not a thread's ---- */
typedef struct {
  VarId v;
  int64_t n; /* extent */
  bool serial, apart;
} Runner; /* apart: different values of v meet different elements */

/* One dimension: serial loops widen what a thread touches; then each runner must step over all that faster ones cover. */
static void apart_along(const Legal *k, const Axis *dim, int n, Runner *r) {
  int64_t covered, by, step[MAX_CONCURRENT], count[MAX_CONCURRENT];
  bool moves[MAX_CONCURRENT];
  int m = 0;
  if (!ex_const_int(k->c, dim->extent, &covered)) return;
  for (int i = 0; i < n; i++) {
    if ((by = low_step(k->ar, k->c, dim->min, r[i].v)) < 0) return;
    moves[i] = by && !r[i].serial;
    if (r[i].serial) covered += by * (r[i].n - 1);
    if (moves[i]) step[m] = by, count[m++] = r[i].n;
  }
  if (low_apart(m, step, count, covered))
    for (int i = 0; i < n; i++) r[i].apart |= moves[i];
}

static void stored_sums(Legal *k, int sid) {
  const Stage *st = &k->s->stage.at[sid];
  Runner r[MAX_CONCURRENT];
  const Axis *loop[MAX_CONCURRENT];
  int n = 0;
  bool known = true;
  Path p = path_of(k->s, sid);
  for (const Axis *x; (x = path_next(&p));) {
    ForKind kind = low_loop_kind(x);
    if (one(k, x)) continue;
    known = known && n < MAX_CONCURRENT && ex_const_int(k->c, x->extent, &r[n].n);
    if (!known) break;
    loop[n] = x;
    r[n].v = x->var;
    r[n].apart = false;
    r[n++].serial = kind < FOR_VECTOR;
  }
  for (int i = 0; known && i < st->n_root_data; i++) apart_along(k, &st->axes.at[i], n, r);
  for (int i = 0; i < n; i++)
    if (!r[i].serial && (!known || !r[i].apart))
      REFUSE(k,
             "stage %s is an argument and computed inside loop %s (%s), whose iterations may add to the same elements; "
             "leave it out of the arguments, or compute it with compute_root()",
             name_of(st), loop[i]->sname, AN_WORD[loop[i]->ann]);
}

/* Is it certain that the readers do not need every element? Then the argument would keep elements that nothing writes. */
typedef struct {
  const Legal *k;
  int sid;
  VarId seen[MAX_CONCURRENT];
  int n;
} Varying;
static void find_varying(IrCtx *c, ExprId e, void *arg) {
  Varying *v = arg;
  const ExprNode *n = ir_node(c, e);
  if (n->kind != IR_VAR || v->n == MAX_CONCURRENT) return;
  for (int i = 0; i < v->n; i++)
    if (v->seen[i] == n->sym) return;
  v->seen[v->n++] = n->sym;
}
static int64_t values_of(const Legal *k, int sid, VarId v) { /* of a loop around the stage; INT64_MAX: not known */
  Path p = path_of(k->s, sid);
  int64_t n;
  for (const Axis *x; (x = path_next(&p));)
    if (x->var == v && ex_const_int(k->c, x->extent, &n)) return n;
  return INT64_MAX;
}
static bool surely_in_part(const Legal *k, int sid) {
  const Stage *st = &k->s->stage.at[sid];
  Varying v = {.k = k, .sid = sid};
  int64_t computed = 1, declared = 1;
  for (int i = 0; i < st->n_root_data; i++) {
    const Axis *x = &st->axes.at[i];
    int64_t lo, n, e;
    if (!ex_const_int(k->c, st->op->axis[i].min, &lo) || !ex_const_int(k->c, st->op->axis[i].extent, &n) ||
        !ex_const_int(k->c, x->extent, &e))
      return false;
    Bound first = ar_bound(k->ar, x->min);
    Residue r = ar_residue(k->ar, x->min);
    if (first.lo > lo || (first.hi < INT64_MAX - e && first.hi + e < lo + n)) return true;
    if (r.coeff > e && n > e) return true; /* tiles of e elements, r.coeff apart */
    ex_post_order(k->c, x->min, find_varying, &v);
    if (!i64_mul(declared, n, &declared) || !i64_mul(computed, e, &computed)) return false;
  }
  for (int i = 0; i < v.n; i++) {
    int64_t n = values_of(k, sid, v.seen[i]);
    if (n == INT64_MAX || !i64_mul(computed, n, &computed)) return false;
  }
  return v.n < MAX_CONCURRENT && computed < declared;
}

static void arguments(Legal *k, int sid) {
  const Stage *st = &k->s->stage.at[sid];
  if (st->at != AT_ITER) return;
  if (surely_in_part(k, sid))
    REFUSE(
        k,
        "stage %s is an argument, but computed inside another stage that does not need all of its elements: the others "
        "would not be written; compute it with compute_root(), or leave it out of the arguments",
        name_of(st));
  for (int p = 0; p < st->leaf.len; p++)
    if (k->gpu && hardware(leaf(st, p)) && !one(k, leaf(st, p)))
      REFUSE(k,
             "stage %s is an argument and computed inside a kernel with loop %s bound to %s: threads would read what "
             "others write to global memory without a barrier; leave it out of the arguments, or compute it with "
             "compute_root()",
             name_of(st), leaf(st, p)->sname, AN_WORD[leaf(st, p)->ann]);
  if (te_is_reduction(k->c, st->op)) stored_sums(k, sid);
}

const char *low_illegal(State *s, const Target *t, Arith *ar, const bool *is_arg, ExprId *const *body) {
  Legal k = {
      .c = s->ctx, .s = s, .ar = ar, .a = ir_arena(s->ctx), .gpu = t->kind != TG_CPU, .is_arg = is_arg, .body = body};
  for (int sid = s->stage.len - 1; sid >= 0 && !k.why; sid--) {
    const Stage *st = &s->stage.at[sid];
    if (st->op->kind == TE_COMPUTE && st->at == AT_INLINED && is_arg[sid])
      REFUSE(&k,
             "stage %s is an argument, but inlined into its readers, so that nothing stores it; leave it out of the "
             "arguments, or undo the inlining with compute_root()",
             name_of(st));
    if (st->op->kind == TE_COMPUTE) free_variables(&k, st->op);
    if (st->op->kind != TE_COMPUTE || st->at == AT_INLINED) continue;
    const uint64_t *mark = low_axis_marks(k.a, st);
    mixed_loops(&k, st, mark);
    if (k.gpu) find_launch(&k, sid);
    if (k.gpu) memory_of_kernels(&k, sid);
    loops_around(&k, sid);
    initial_values(&k, sid, mark);
    private_part(&k, sid, mark);
    if (k.gpu) shared_sums(&k, sid, mark);
    if (is_arg[sid]) arguments(&k, sid);
  }
  return k.why;
}
