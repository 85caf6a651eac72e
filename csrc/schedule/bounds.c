/* Bound inference: how many iterations each loop has and where it starts.
 *
 * The state is normalised first: every root loop that is still a loop gets a relation to a fresh loop that starts at 0
 * (rebase), so that root axes alone can have a minimum. Then stages are visited from last to first. An output computes
 * its declared domain; any other stage computes the union of what its readers touch, where loops around the attach
 * point count as fixed and loops inside it as relaxed; loops bound to threads are relaxed according to the memory scope
 * instead. From the root domains extents follow down the relations.
 *
 * Inlined stages produce nothing: a read of one is followed into its body, its axes standing for the index ranges.
 * Ends of ranges are linear forms (lin.h).
 */
#include "schedule/internal.h"
#include "schedule/lin.h"
#include <string.h>

typedef struct {
  Lin lo, hi;
  bool inf;
} Span; /* lo <= hi; inf: nothing is known */
typedef struct {
  Lin min, ext;
} Dom;
typedef struct {
  VarId var;
  Span is;
} Meaning;
typedef struct {
  int32_t stage, leaf;
} PathLoop;
typedef struct {
  State *s;
  IrCtx *c;
  Arena *m;
  LinCtx L;
  Dom **dom; /* per stage, per axis */
  PathLoop **path;
  int *n_path; /* loops around each stage, innermost first */
  ScopeKind *scope;
  char *done, *leads; /* leads: row p, column k: inlined stage k reads p, maybe through others */
  VEC(Meaning) env;   /* what variables stand for: a dozen, the latest word counts */
  int *first_edge;    /* per stage: first edge of the DAG in which it consumes */
  int visits;         /* of operations while one index is evaluated */
  MapU64 known;       /* behind EX_PLAIN_VISITS: expression -> place in `kept` */
  VEC(Span) kept;
} Infer;

/* ---- normalisation ---- */

static void rebase(State *s, Stage *st) {
  st->n_plain_axes = st->axes.len;
  st->n_plain_rels = st->rels.len;
  for (int i = 0; i < st->n_root; i++) {
    if (st->axes.at[i].used_by || st->axes.at[i].thread_obj) continue;
    int pos = 0;
    while (pos < st->leaf.len && st->leaf.at[pos] != i) pos++;
    if (pos == st->leaf.len) continue;
    Axis a = st->axes.at[i];
    a.rebase_of = i + 1;
    a.var = a.handle = 0;
    int k = axis_new(s->ctx, st, a);
    vec_push(ir_arena(s->ctx), &st->rels, ((Rel){.kind = REL_REBASE, .parent = i, .outer = k, .inner = -1}));
    st->axes.at[i].used_by = st->rels.len;
    st->leaf.at[pos] = k;
  }
}

void state_unbound(State *s) {
  if (!s->bounded) return;
  for (int i = 0; i < s->stage.len; i++) {
    Stage *st = &s->stage.at[i];
    if (st->op->kind != TE_COMPUTE || !st->n_plain_axes) continue;
    for (int k = 0; k < st->leaf.len; k++) {
      const Axis *x = &st->axes.at[st->leaf.at[k]];
      if (!x->rebase_of) continue;
      int root = x->rebase_of - 1;
      Axis *r = &st->axes.at[root];
      r->ranged = x->ranged;
      r->smin = x->smin;
      r->sext = x->sext;
      r->used_by = 0;
      st->leaf.at[k] = root;
    }
    st->axes.len = st->n_plain_axes;
    st->rels.len = st->n_plain_rels;
    st->n_plain_axes = st->n_plain_rels = 0;
  }
  s->bounded = false;
}

/* Extents of the data axes, of the reduction axes and of all of them, multiplied; INT64_MAX if that is too much. */
static void count_points(IrCtx *c, const Stage *st, int64_t points[IT_MIXED + 1]) {
  int64_t n;
  points[IT_SPACE] = points[IT_REDUCE] = 1;
  for (int i = 0; i < st->n_root; i++) {
    int64_t *kind = &points[i < st->n_root_data ? IT_SPACE : IT_REDUCE];
    if (ex_const_int(c, te_axis(st->op, i)->extent, &n) && n > 0 && !i64_mul(*kind, n, kind)) *kind = INT64_MAX;
  }
  if (!i64_mul(points[IT_SPACE], points[IT_REDUCE], &points[IT_MIXED])) points[IT_MIXED] = INT64_MAX;
}

bool *stage_wide_axes(IrCtx *c, const Stage *st) {
  bool any = false, fused = false;
  for (int i = 0; i < st->n_root; i++) any |= ir_var_info(c, st->axes.at[i].var)->type.bits == 64;
  for (int r = 0; r < st->rels.len; r++) fused |= st->rels.at[r].kind == REL_FUSE;
  int64_t points[IT_MIXED + 1] = {1, 1, 1};
  if (fused) count_points(c, st, points);
  if (!any && points[IT_MIXED] <= INT32_MAX) return NULL;
  bool *wide = arena_array(ir_arena(c), bool, st->axes.len);
  for (int i = 0; i < st->n_root; i++) any |= wide[i] = ir_var_info(c, st->axes.at[i].var)->type.bits == 64;
  for (int i = 0; i < st->rels.len; i++) {
    const Rel *r = &st->rels.at[i];
    int kind = st->axes.at[r->parent].kind;
    switch (r->kind) {
    case REL_SPLIT: wide[r->outer] = wide[r->inner] = wide[r->parent]; break;
    case REL_FUSE:
      any |= wide[r->parent] = wide[r->outer] || wide[r->inner] || (kind <= IT_MIXED && points[kind] > INT32_MAX);
      break;
    case REL_REBASE: wide[r->outer] = wide[r->parent]; break;
    case REL_SINGLETON: break;
    }
  }
  return any ? wide : NULL;
}
static void name_loops(IrCtx *c, Stage *st) { /* every leaf gets a variable */
  const bool *wide = stage_wide_axes(c, st);
  for (int i = 0; i < st->leaf.len; i++) {
    Axis *x = &st->axes.at[st->leaf.at[i]];
    DType t = wide && wide[st->leaf.at[i]] ? DT_I64 : DT_I32;
    bool narrow = x->var && !x->thread_obj && t.bits > ir_var_info(c, x->var)->type.bits;
    if (!x->var || narrow) x->var = ir_var_new(c, x->sname, t, false);
  }
}

/* The conditions of stores name loops as te users do; from here on by their variables. Variables are made here and not where
 * users ask for loops, because the order of terms in sums goes by their age: it is the same for a schedule and its replay. */
static void name_in_predicates(State *s) {
  VEC(VarSub) sub = {0};
  Arena *m = ir_arena(s->ctx);
  bool any = false;
  for (int i = 0; i < s->stage.len; i++) any |= s->stage.at[i].store_predicate != 0;
  for (int i = 0; any && i < s->stage.len; i++) {
    const Stage *st = &s->stage.at[i];
    for (int k = 0; k < st->leaf.len; k++) {
      const Axis *x = &st->axes.at[st->leaf.at[k]];
      if (x->handle && x->handle != x->var && x->var && !x->thread_obj)
        vec_push(m, &sub, ((VarSub){x->handle, ex_var(s->ctx, x->var)}));
    }
  }
  for (int i = 0; i < s->stage.len && sub.len; i++) {
    Stage *st = &s->stage.at[i];
    if (st->store_predicate) st->store_predicate = ex_subst(s->ctx, st->store_predicate, sub.len, sub.at);
  }
}

/* ---- attach paths and scopes ---- */

static void attach_path(Infer *f, int stage) {
  State *s = f->s;
  VEC(PathLoop) v = {0};
  int at = stage;
  for (int hops = 0; s->stage.at[at].at == AT_ITER; hops++) {
    const Stage *st = &s->stage.at[at];
    int t = st->at_stage;
    err_check(S_ERR(s), hops <= s->stage.len && t != stage, "cycle: stage %d (%s) is computed inside itself", stage,
              s->stage.at[stage].op->name);
    const Stage *target = &s->stage.at[t];
    err_check(S_ERR(s), target->at != AT_INLINED,
              "stage %d (%s) is computed at a loop of stage %d (%s), which is inlined", at, st->op->name, t,
              target->op->name);
    err_check(S_ERR(s), st->at_iter >= 0 && st->at_iter < target->leaf.len,
              "stage %d (%s) is computed at a loop of stage %d (%s) that no longer exists", at, st->op->name, t,
              target->op->name);
    for (int k = st->at_iter; k >= 0; k--) vec_push(f->m, &v, ((PathLoop){t, k}));
    at = t;
  }
  f->path[stage] = v.at;
  f->n_path[stage] = v.len;
}

static const Axis *path_axis(const Infer *f, PathLoop p) {
  const Stage *st = &f->s->stage.at[p.stage];
  return &st->axes.at[st->leaf.at[p.leaf]];
}

static bool is_thread(int ann) { return ann == AN_VTHREAD || ann_is_thread(ann); }

ScopeKind state_scope(const State *s, int stage) {
  const Stage *st = &s->stage.at[stage];
  if (st->scope != SC_AUTO) return st->scope;
  ScopeKind r = SC_GLOBAL;
  for (int hops = 0; st->at == AT_ITER && hops <= s->stage.len; hops++) {
    const Stage *target = &s->stage.at[st->at_stage];
    for (int k = st->at_iter; k >= 0; k--) {
      int ann = target->axes.at[target->leaf.at[k]].ann;
      if (is_thread(ann)) return SC_LOCAL;
      if (ann_is_block(ann)) r = SC_SHARED;
    }
    st = target;
  }
  return r;
}

static bool relaxed(const Axis *x, bool inside, ScopeKind scope) {
  if (scope == SC_WARP && x->ann == AN_THREAD_X) return true;
  if (ann_is_block(x->ann)) return scope <= SC_GLOBAL;
  if (is_thread(x->ann)) return scope <= SC_SHARED;
  return inside;
}

/* ---- interval evaluation ---- */

static Span point(Lin x) { return (Span){x, x, false}; }
static Span full(Infer *f, Dom d) { return (Span){d.min, lin_addc(&f->L, lin_add(&f->L, d.min, d.ext), -1), false}; }
static bool covers(Infer *f, Span x, Dom d) {
  if (x.inf || !lin_eq(x.lo, d.min)) return false;
  int64_t end;
  if (d.min.n || d.ext.n || !i64_add(d.min.c, d.ext.c, &end) || !i64_add(end, -1, &end))
    return lin_eq(x.hi, full(f, d).hi);
  return lin_is(x.hi, end); /* mostly: without making forms */
}
static bool is_point(Span x) { return !x.inf && lin_eq(x.lo, x.hi); }
static const Span NOTHING = {.inf = true};

static void bind(Infer *f, VarId v, Span x) { vec_push(f->m, &f->env, ((Meaning){v, x})); }

/* Many ends are the same: a loop that is fixed. They are computed once. */
static Span span_add(Infer *f, Span a, Span b) {
  Lin lo = lin_add(&f->L, a.lo, b.lo);
  return (Span){lo, is_point(a) && is_point(b) ? lo : lin_add(&f->L, a.hi, b.hi), false};
}
static Span span_shift(Infer *f, Span a, Lin by) { return span_add(f, a, point(by)); }

static Span span_scale(Infer *f, Span a, Lin k) {
  LinCtx *L = &f->L;
  if (a.inf) return a;
  if (is_point(a)) return point(lin_mul(L, a.lo, k));
  Bound b = lin_bound(L, k);
  if (b.lo >= 0) return (Span){lin_mul(L, a.lo, k), lin_mul(L, a.hi, k), false};
  if (b.hi <= 0) return (Span){lin_mul(L, a.hi, k), lin_mul(L, a.lo, k), false};
  return NOTHING;
}

static Span span_div(Infer *f, Span a, Span d, bool mod) {
  LinCtx *L = &f->L;
  if (a.inf || !is_point(d)) return NOTHING;
  if (is_point(a)) return point(mod ? lin_fmod(L, a.lo, d.lo) : lin_fdiv(L, a.lo, d.lo));
  if (lin_bound(L, d.lo).lo < 0 || lin_is(d.lo, 0)) return NOTHING;
  Lin qlo = lin_fdiv(L, a.lo, d.lo), qhi = lin_fdiv(L, a.hi, d.lo);
  if (!mod) return (Span){qlo, qhi, false};
  if (lin_eq(qlo, qhi)) {
    Lin skip = lin_mul(L, qlo, d.lo);
    return (Span){lin_sub(L, a.lo, skip), lin_sub(L, a.hi, skip), false};
  }
  return (Span){lin_const(0), lin_addc(L, d.lo, -1), false};
}

static Span span_union(Infer *f, Span a, Span b) {
  if (a.inf || b.inf) return NOTHING;
  return (Span){lin_min(&f->L, a.lo, b.lo), lin_max(&f->L, a.hi, b.hi), false};
}

static bool nonneg(Infer *f, Span a) { return !a.inf && lin_bound(&f->L, a.lo).lo >= 0; }

static Span eval(Infer *f, ExprId e);

static Span eval2(Infer *f, ExprId e, ExprKind k) {
  LinCtx *L = &f->L;
  Span a = eval(f, ir_kid(f->c, e, 0)), b = eval(f, ir_kid(f->c, e, 1));
  if (k == IR_FDIV || k == IR_FMOD) return span_div(f, a, b, k == IR_FMOD);
  if (k == IR_DIV || k == IR_MOD) return nonneg(f, a) && nonneg(f, b) ? span_div(f, a, b, k == IR_MOD) : NOTHING;
  if (k == IR_MUL) return is_point(b) ? span_scale(f, a, b.lo) : is_point(a) ? span_scale(f, b, a.lo) : NOTHING;
  if (a.inf || b.inf) return NOTHING;
  if (k == IR_ADD) return span_add(f, a, b);
  if (k == IR_SUB) return (Span){lin_sub(L, a.lo, b.hi), lin_sub(L, a.hi, b.lo), false};
  if (k == IR_MIN) return (Span){lin_min(L, a.lo, b.lo), lin_min(L, a.hi, b.hi), false};
  return (Span){lin_max(L, a.lo, b.lo), lin_max(L, a.hi, b.hi), false};
}

static Span eval(Infer *f, ExprId e) {
  ExprNode n = *ir_node(f->c, e);
  if (ir_is_arith(n.kind)) {
    if (++f->visits <= EX_PLAIN_VISITS) return eval2(f, e, (ExprKind)n.kind);
    if (f->visits == EX_PLAIN_VISITS + 1) mapu_init(&f->known, f->m);
    int at = mapu_get(&f->known, (uint64_t)e, -1);
    if (at >= 0) return f->kept.at[at];
    Span x = eval2(f, e, (ExprKind)n.kind);
    vec_note(f->m, &f->kept, x, &f->known, e);
    return x;
  }
  switch (n.kind) {
  case IR_INT: return point(lin_const(n.u.i));
  case IR_VAR:
    for (int i = f->env.len - 1; i >= 0; i--)
      if (f->env.at[i].var == n.sym) return f->env.at[i].is;
    return point(lin_atom(&f->L, e));
  case IR_SELECT: return span_union(f, eval(f, ir_kid(f->c, e, 1)), eval(f, ir_kid(f->c, e, 2)));
  case IR_CAST: { /* between types that hold every index; others may wrap around */
    DType from = ir_type(f->c, ir_kid(f->c, e, 0));
    bool same = n.type.code == DT_INT && from.code == DT_INT && (n.type.bits >= 32 || n.type.bits >= from.bits);
    return same ? eval(f, ir_kid(f->c, e, 0)) : NOTHING;
  }
  case IR_CALL:
    if (n.sym == IN_IF_THEN_ELSE) return span_union(f, eval(f, ir_kid(f->c, e, 1)), eval(f, ir_kid(f->c, e, 2)));
    return NOTHING;
  default: return NOTHING;
  }
}

/* The range of an index under what variables stand for now. */
static Span range_of(Infer *f, ExprId e) {
  f->visits = f->kept.len = 0;
  return eval(f, e);
}

/* ---- sets from leaves to roots ---- */

static Span up_split(Infer *f, const Dom *d, const Rel *r, const Span *up) {
  Span o = up[r->outer], i = up[r->inner];
  if (covers(f, o, d[r->outer]) && covers(f, i, d[r->inner])) return full(f, d[r->parent]);
  Span p = span_scale(f, o, d[r->inner].ext);
  if (p.inf || i.inf) return NOTHING;
  return span_shift(f, span_add(f, p, i), d[r->parent].min);
}

static void up_fuse(Infer *f, const Dom *d, const Rel *r, Span *up) {
  LinCtx *L = &f->L;
  Span x = up[r->parent];
  Dom od = d[r->outer], id = d[r->inner];
  bool fixed = is_point(x);
  Lin len = x.inf ? lin_const(0) : fixed ? lin_const(1) : lin_addc(L, lin_sub(L, x.hi, x.lo), 1);
  if (x.inf || lin_is(id.ext, 0) || lin_is(len, 0) || covers(f, x, d[r->parent])) { /* nothing of nothing: all of it */
    up[r->outer] = full(f, od);
    up[r->inner] = full(f, id);
    return;
  }
  Lin row = lin_fdiv(L, x.lo, id.ext);
  up[r->outer] = span_shift(f, (Span){row, fixed ? row : lin_fdiv(L, x.hi, id.ext), false}, od.min);
  if (!fixed && !(lin_is(lin_fmod(L, id.ext, len), 0) && lin_is(lin_fmod(L, x.lo, len), 0))) {
    up[r->inner] = full(f, id);
    return;
  }
  Lin in = lin_fmod(L, x.lo, id.ext);
  up[r->inner] = span_shift(f, (Span){in, fixed ? in : lin_fmod(L, x.hi, id.ext), false}, id.min);
}

static void sets_upwards(Infer *f, const Stage *st, const Dom *d, Span *up) {
  for (int i = st->rels.len - 1; i >= 0; i--) {
    const Rel *r = &st->rels.at[i];
    if (r->kind == REL_SPLIT)
      up[r->parent] = up_split(f, d, r, up);
    else if (r->kind == REL_FUSE)
      up_fuse(f, d, r, up);
    else if (r->kind == REL_REBASE) {
      Span x = up[r->outer];
      bool all = x.inf || covers(f, x, d[r->outer]);
      up[r->parent] = all ? full(f, d[r->parent]) : span_shift(f, x, d[r->parent].min);
    }
  }
}

/* A loop of a stage whose memory is set to be private to the threads that the loop is bound to: memory has no dimension
 * along them, the index is 0 (07 §7.2.4). */
static bool without_dimension(const Stage *st, const Axis *x) {
  if (st->scope == SC_AUTO || x->ann == AN_VTHREAD) return false;
  if (st->scope == SC_WARP && x->ann == AN_THREAD_X) return false;
  return ann_is_block(x->ann) ? st->scope > SC_GLOBAL : is_thread(x->ann) && st->scope > SC_SHARED;
}

/* Binds the root variables of reader `q` to what one production of `p` must serve. */
static void reader_sets(Infer *f, int p, int q) {
  const Stage *st = &f->s->stage.at[q];
  const Dom *d = f->dom[q];
  PathLoop at = f->n_path[p] ? f->path[p][0] : (PathLoop){-1, -1};
  bool inside = true, any = false;
  Span *up = arena_array(f->m, Span, st->axes.len);
  for (int i = st->leaf.len - 1; i >= 0; i--) {
    int k = st->leaf.at[i];
    if (at.stage == q && at.leaf == i) inside = false;
    if (lin_is(d[k].ext, 1))
      up[k] = point(d[k].min);
    else if (relaxed(&st->axes.at[k], inside, f->scope[p]))
      up[k] = full(f, d[k]);
    else if (without_dimension(st, &st->axes.at[k]))
      up[k] = point(lin_const(0));
    else
      up[k] = point(lin_atom(&f->L, ex_var(f->c, st->axes.at[k].var)));
  }
  f->env.len = 0;
  for (int i = 0; i < f->n_path[q]; i++) {
    PathLoop l = f->path[q][i];
    if (at.stage == l.stage && at.leaf == l.leaf) inside = false;
    const Axis *x = path_axis(f, l);
    err_check(S_ERR(f->s), f->done[l.stage],
              "stage %d (%s) is computed inside stage %d (%s), which does not come after it", q, st->op->name, l.stage,
              f->s->stage.at[l.stage].op->name);
    Dom ld = f->dom[l.stage][f->s->stage.at[l.stage].leaf.at[l.leaf]];
    if (relaxed(x, inside, f->scope[p]) && !lin_is(ld.ext, 1)) bind(f, x->var, full(f, ld)), any = true;
  }
  err_check(S_ERR(f->s), at.stage < 0 || !inside,
            "stage %d (%s) is computed at loop %s of stage %d (%s), which does not enclose its reader, stage %d (%s)",
            p, f->s->stage.at[p].op->name, path_axis(f, at)->name, at.stage, f->s->stage.at[at.stage].op->name, q,
            st->op->name);
  sets_upwards(f, st, d, up);
  Span *root = arena_array(f->m, Span, st->n_root);
  for (int i = 0; i < st->n_root; i++) {
    Span x = up[i].inf ? full(f, d[i]) : up[i];
    if (any && x.lo.n + x.hi.n > 0) { /* replace the relaxed loops of the attach path by their ranges */
      Span lo = range_of(f, lin_expr(&f->L, x.lo)), hi = range_of(f, lin_expr(&f->L, x.hi));
      x = lo.inf || hi.inf ? NOTHING : (Span){lo.lo, hi.hi, false};
    }
    root[i] = x;
  }
  for (int i = 0; i < st->n_root; i++) bind(f, te_axis(st->op, i)->var, root[i]);
}

/* ---- regions ---- */

/* Adds what stage `q` reads of `p`, under the current variable bindings, to region (one span per dimension). */
static void touched(Infer *f, int p, int q, Span *region, bool *any) {
  State *s = f->s;
  const TeDag *d = s->dag;
  for (int k = f->first_edge[q]; k < d->n_edges && d->edge[k].consumer == q; k++) {
    const TeEdge *e = &d->edge[k];
    bool through = e->producer != p && f->leads[(size_t)p * (size_t)s->stage.len + (size_t)e->producer];
    if (e->producer != p && !through) continue;
    const TeOp *op = s->stage.at[e->producer].op;
    const IrTensor *t = ir_tensor(f->c, op->out[0]);
    for (int a = 0; a < e->n_access; a++) {
      Span idx[e->rank + 1];
      for (int i = 0; i < e->rank; i++) idx[i] = range_of(f, e->index[a][i]);
      if (through) {
        int outside = f->env.len;
        for (int i = 0; i < e->rank; i++)
          bind(f, op->axis[i].var, idx[i].inf ? full(f, (Dom){lin_const(0), lin_of(&f->L, t->shape[i])}) : idx[i]);
        touched(f, p, e->producer, region, any);
        f->env.len = outside;
        continue;
      }
      for (int i = 0; i < e->rank; i++) {
        Lin last = lin_addc(&f->L, lin_of(&f->L, t->shape[i]), -1);
        if (idx[i].inf || (lin_bound(&f->L, idx[i].lo).hi <= 0 && lin_le(&f->L, last, idx[i].hi)))
          idx[i] = (Span){lin_const(0), last, false};
        region[i] = *any ? span_union(f, region[i], idx[i]) : idx[i];
      }
      *any = true;
    }
  }
}

static Dom region_dom(Infer *f, Span x) {
  Lin ext = lin_addc(&f->L, lin_sub(&f->L, x.hi, x.lo), 1);
  if (ext.n) { /* ends that do not cancel: a constant upper bound keeps the program valid, guards cut the rest off */
    Bound b = lin_bound(&f->L, ext);
    if (b.hi != BOUND_MAX && b.lo != BOUND_MIN) ext = lin_const(b.hi);
  }
  return (Dom){x.lo, ext};
}

static void declared(LinCtx *L, const Stage *st, Dom *d) {
  for (int i = 0; i < st->n_root; i++)
    d[i] = (Dom){lin_of(L, te_axis(st->op, i)->min), lin_of(L, te_axis(st->op, i)->extent)};
}

static void root_domains(Infer *f, int p) {
  State *s = f->s;
  Stage *st = &s->stage.at[p];
  Dom *d = f->dom[p];
  declared(&f->L, st, d);
  Span *region = arena_array(f->m, Span, st->n_root_data);
  bool any = false, read = false, whole = st->at == AT_ROOT && (st->op->by_hand || te_attr(st->op, TE_WHOLE));
  for (int q = p + 1; q < s->stage.len; q++) {
    if (s->stage.at[q].at == AT_INLINED) continue;
    bool reads = false;
    for (int k = f->first_edge[q]; k < s->dag->n_edges && s->dag->edge[k].consumer == q; k++)
      reads |= s->dag->edge[k].producer == p ||
               f->leads[(size_t)p * (size_t)s->stage.len + (size_t)s->dag->edge[k].producer];
    if (!reads) continue;
    read = true;
    if (st->is_output || whole) continue;
    reader_sets(f, p, q);
    touched(f, p, q, region, &any);
  }
  err_check(S_ERR(s), !(st->is_output || !read) || st->at != AT_ITER,
            "stage %d (%s) is an output: it cannot be computed inside another stage", p, st->op->name);
  for (int i = 0; any && i < st->n_root_data; i++)
    if (!region[i].inf) d[i] = region_dom(f, region[i]);
}

/* ---- extents from roots to leaves ---- */

static Lin cdiv(LinCtx *L, Lin a, Lin b) {
  if (!a.n && !b.n && b.c > 0) return lin_const(i64_ceildiv(a.c, b.c));
  if (lin_is(lin_fmod(L, a, b), 0)) return lin_fdiv(L, a, b);
  return lin_fdiv(L, lin_addc(L, lin_add(L, a, b), -1), b);
}

static Lin tight(LinCtx *L, Lin parent, Lin wanted, bool keep) {
  if (keep || lin_is(parent, 0)) return wanted;
  return lin_le(L, lin_addc(L, parent, 1), wanted) ? parent : wanted;
}

static void extents_downwards(LinCtx *L, const Stage *st, Dom *d, const char *threads, bool early) {
  for (int i = 0; i < st->rels.len; i++) {
    const Rel *r = &st->rels.at[i];
    switch (r->kind) {
    case REL_SPLIT: {
      Lin p = d[r->parent].ext, by = lin_of(L, r->factor ? r->factor : r->nparts);
      int given = r->factor ? r->inner : r->outer, rest = r->factor ? r->outer : r->inner;
      err_check(L->err, by.n || by.c > 0, "a split of %s by %lld parts or elements is not possible",
                st->axes.at[r->parent].name, (long long)by.c);
      d[given] = (Dom){lin_const(0), tight(L, p, by, early || threads[given])};
      d[rest] = (Dom){lin_const(0), cdiv(L, p, by)};
      break;
    }
    case REL_FUSE: {
      Lin o = d[r->outer].ext, in = d[r->inner].ext;
      int64_t n;
      err_check(L->err, o.n || in.n || i64_mul(o.c, in.c, &n),
                "stage %s: loop %s would have %lld x %lld iterations, more than 64 bits can count", st->op->name,
                st->axes.at[r->parent].sname, (long long)o.c, (long long)in.c);
      d[r->parent] = (Dom){lin_const(0), lin_mul(L, o, in)};
      break;
    }
    case REL_REBASE: d[r->outer] = (Dom){lin_const(0), d[r->parent].ext}; break;
    case REL_SINGLETON: d[r->parent] = (Dom){lin_const(0), lin_const(1)}; break;
    }
  }
}

static char *thread_marks(Infer *f, const Stage *st) { /* axes with a thread-bound loop below them */
  char *mark = arena_alloc(f->m, (size_t)st->axes.len);
  for (int i = 0; i < st->leaf.len; i++) {
    const Axis *x = &st->axes.at[st->leaf.at[i]];
    mark[st->leaf.at[i]] = ann_is_block(x->ann) || is_thread(x->ann);
  }
  for (int i = st->rels.len - 1; i >= 0; i--) {
    const Rel *r = &st->rels.at[i];
    if (r->kind == REL_SPLIT) mark[r->parent] |= (char)(mark[r->outer] | mark[r->inner]);
    if (r->kind == REL_REBASE) mark[r->parent] |= mark[r->outer];
    if (r->kind == REL_FUSE && mark[r->parent]) mark[r->outer] = mark[r->inner] = 1;
  }
  return mark;
}

static Bound loop_bound(Infer *f, Lin ext) {
  Bound b = lin_bound(&f->L, ext);
  return (Bound){0, b.hi == BOUND_MAX ? b.hi : b.hi - 1};
}

static void finish_stage(Infer *f, int p) {
  Stage *st = &f->s->stage.at[p];
  Dom *d = f->dom[p];
  extents_downwards(&f->L, st, d, thread_marks(f, st), false);
  for (int i = 0; i < st->leaf.len; i++) {
    const Axis *x = &st->axes.at[st->leaf.at[i]];
    Dom ld = d[st->leaf.at[i]];
    if (x->rebase_of || st->leaf.at[i] >= st->n_root || lin_is(ld.min, 0))
      lin_bind(&f->L, x->var, loop_bound(f, ld.ext));
  }
  f->done[p] = 1;
}

/* ---- writing the result back ---- */

/* lin_expr, for what is mostly 0 or 1: lit has a place for either, 0 as long as it was not asked for. */
static ExprId end_expr(LinCtx *L, ExprId lit[2], Lin x) {
  if (x.n || x.c < 0 || x.c > 1) return lin_expr(L, x);
  return lit[x.c] ? lit[x.c] : (lit[x.c] = lin_expr(L, x));
}
static void write_extents(LinCtx *L, Stage *st, const Dom *d) {
  ExprId lit[2] = {0, 0};
  for (int i = 0; i < st->axes.len; i++) {
    st->axes.at[i].min = end_expr(L, lit, d[i].min);
    st->axes.at[i].extent = end_expr(L, lit, d[i].ext);
  }
}

static void write_stage(Infer *f, int p) {
  Stage *st = &f->s->stage.at[p];
  Dom *d = f->dom[p];
  write_extents(&f->L, st, d);
  for (int i = 0; i < st->leaf.len; i++) {
    int k = st->leaf.at[i];
    Axis *x = &st->axes.at[k];
    Dom r = d[x->rebase_of ? x->rebase_of - 1 : k];
    err_check(
        S_ERR(f->s), d[k].ext.n || d[k].ext.c <= INT32_MAX || ir_var_info(f->c, x->var)->type.bits == 64,
        "stage %s: loop %s has %lld iterations, more than its 32-bit index can count; split it, or give the tensor "
        "64-bit dimensions",
        st->op->name, x->sname, (long long)d[k].ext.c);
    x->ranged = true;
    x->smin = r.min.n ? 0 : r.min.c;
    x->sext = r.ext.n ? -1 : r.ext.c;
  }
}

/* One thread-axis object has one extent, whichever loops are bound to it. */
static void check_threads(Infer *f) {
  MapU64 first;
  VEC(Lin) ext = {0};
  mapu_init(&first, f->m);
  for (int p = 0; p < f->s->stage.len; p++) {
    const Stage *st = &f->s->stage.at[p];
    if (!f->done[p]) continue;
    for (int i = 0; i < st->leaf.len; i++) {
      const Axis *x = &st->axes.at[st->leaf.at[i]];
      Lin e = f->dom[p][st->leaf.at[i]].ext;
      if (!x->thread_obj) continue;
      int k = mapu_get(&first, (uint64_t)x->thread_obj, -1);
      if (k < 0)
        vec_note(f->m, &ext, e, &first, x->thread_obj);
      else if (!lin_eq(ext.at[k], e))
        err_raise(S_ERR(f->s), NS_ERR_VALUE, "loops of extent %s and %s are bound to the same thread axis %s",
                  ex_text(f->c, lin_expr(&f->L, ext.at[k])), ex_text(f->c, lin_expr(&f->L, e)), AN_WORD[x->ann]);
    }
  }
}

static void find_inlined_ways(Infer *f) {
  State *s = f->s;
  size_t n = (size_t)s->stage.len;
  f->leads = arena_alloc(f->m, n * n);
  f->first_edge = arena_array(f->m, int, n);
  for (size_t i = 0; i < n; i++) f->first_edge[i] = s->dag->n_edges;
  for (int k = s->dag->n_edges - 1; k >= 0; k--) f->first_edge[s->dag->edge[k].consumer] = k;
  for (int k = 0; k < s->dag->n_edges; k++) { /* edges come by ascending consumer, so producers are complete */
    size_t q = (size_t)s->dag->edge[k].consumer, p = (size_t)s->dag->edge[k].producer;
    if (s->stage.at[q].at != AT_INLINED) continue;
    f->leads[p * n + q] = 1;
    if (s->stage.at[p].at == AT_INLINED)
      for (size_t i = 0; i < n; i++) f->leads[i * n + q] |= f->leads[i * n + p];
  }
}

void state_infer_bounds(State *s) {
  err_check(S_ERR(s), s->concrete, "bounds cannot be inferred: a split length is still open");
  state_unbound(s);
  if (s->by_hand) hand_check_reads(s);
  Infer f = {.s = s, .c = s->ctx, .m = ir_arena(s->ctx)};
  int n = s->stage.len;
  lin_init(&f.L, s->ctx);
  f.dom = arena_array(f.m, Dom *, n);
  f.path = arena_array(f.m, PathLoop *, n);
  f.n_path = arena_array(f.m, int, n);
  f.scope = arena_array(f.m, ScopeKind, n);
  f.done = arena_alloc(f.m, (size_t)n);
  find_inlined_ways(&f);
  s->bounded = true;
  for (int i = 0; i < n; i++) {
    Stage *st = &s->stage.at[i];
    err_check(S_ERR(s), !st->is_output || st->at != AT_INLINED, "stage %d (%s) is an output: it cannot be inlined", i,
              st->op->name);
    if (st->op->kind != TE_COMPUTE || st->at == AT_INLINED) continue;
    rebase(s, st);
    name_loops(s->ctx, st);
    f.dom[i] = arena_array(f.m, Dom, st->axes.len);
    attach_path(&f, i);
  }
  name_in_predicates(s);
  for (int i = 0; i < n; i++) f.scope[i] = state_scope(s, i);
  for (int i = n - 1; i >= 0; i--) {
    if (!f.dom[i]) continue;
    root_domains(&f, i);
    finish_stage(&f, i);
  }
  check_threads(&f);
  for (int i = 0; i < n; i++)
    if (f.dom[i]) write_stage(&f, i);
}

/* ---- early extents: for the rewrites that come before bounds are known ---- */

void stage_early_extents(IrCtx *c, Stage *st) {
  LinCtx L;
  lin_init(&L, c);
  Dom *d = arena_array(ir_arena(c), Dom, st->axes.len);
  declared(&L, st, d);
  for (int i = 0; i < st->rels.len; i++) {
    const Rel *r = &st->rels.at[i];
    err_check(ir_err(c), r->kind != REL_SPLIT || r->factor || r->nparts, "a split length of stage %s is still open",
              st->op->name);
  }
  extents_downwards(&L, st, d, NULL, true);
  write_extents(&L, st, d);
}
