/* Axes, relations and the attach map of stages: the part that all transform steps share.
 *
 * A stage starts with one axis per loop of its operation (data axes, then reduce axes). Splitting or fusing never
 * removes an axis: it appends new ones and a relation that says how they hang together; `leaf` lists the axes that are
 * loops now, outermost first. Following the relations forward gives extents, following them backward gives index
 * values.
 *
 * Stages that are computed inside a loop of another stage are listed at that other stage as (leaf index, stage id), in
 * the order in which they were attached; the attached stage holds the same pair the other way round.
 */
#include "schedule/internal.h"
#include <string.h>

char *name_joined(Arena *a, const char *const *part) {
  char text[256]; /* long enough for nearly every name, which is then measured once and not cleared before */
  size_t n = 0;
  for (int i = 0; part[i]; i++) {
    size_t len = strlen(part[i]);
    if (n + len < sizeof text) memcpy(text + n, part[i], len);
    n += len;
  }
  if (n < sizeof text) {
    text[n++] = 0;
    return arena_copy(a, text, n);
  }
  char *r = arena_alloc(a, n + 1), *at = r;
  for (int i = 0; part[i]; i++) at = stpcpy(at, part[i]);
  return r;
}

char *name_clean(Arena *a, const char *s) {
  char *r = arena_strdup(a, s), *w = r;
  for (char *p = r; *p; p++)
    if (*p == '.' || *p == '@') *p = '_';
  for (const char *p = r;
       *p;) { /* in place: the words only get shorter, and neither replacement can make the other word */
    if (!strncmp(p, "outer", 5) || !strncmp(p, "inner", 5)) {
      *w++ = *p;
      p += 5;
    } else {
      *w++ = *p++;
    }
  }
  *w = 0;
  return r;
}

int loop_names(Arena *a, const char *name, int n, const char **out, int cap) {
  for (const char *p = name; *p;) {
    size_t len = strcspn(p, ".@");
    if (len > 0 && !(p[0] >= '0' && p[0] <= '9')) {
      int i = 0;
      while (i < n && !(strlen(out[i]) == len && strncmp(out[i], p, len) == 0)) i++;
      if (i == n && n < cap) out[n++] = arena_strndup(a, p, len);
    }
    p += len + (p[len] != 0);
  }
  return n;
}

int axis_new(IrCtx *c, Stage *st, Axis a) {
  vec_push(ir_arena(c), &st->axes, a);
  return st->axes.len - 1;
}

/* Is a name what name_clean makes of it? By hand: names are a few letters long, and each replay asks for all of them. */
static bool is_clean(const char *s) {
  for (; *s; s++) {
    if (*s == '.' || *s == '@') return false;
    if ((*s == 'o' || *s == 'i') && (!strncmp(s, "outer", 5) || !strncmp(s, "inner", 5))) return false;
  }
  return true;
}

static int axis_root(IrCtx *c, Stage *st, const TeAxis *t, IterKind kind) {
  Axis a = {.name = is_clean(t->name) ? t->name : name_clean(ir_arena(c), t->name),
            .sname = t->name,
            .var = t->var,
            .handle = t->var,
            .kind = (uint8_t)kind,
            .ranged = true};
  if (!ex_const_int(c, t->min, &a.smin)) a.smin = 0;
  if (!ex_const_int(c, t->extent, &a.sext)) a.sext = -1;
  a.min = t->min;
  a.extent = t->extent;
  return axis_new(c, st, a);
}

Stage stage_fresh(IrCtx *c, const TeOp *op, const TeOp *origin) {
  Arena *m = ir_arena(c);
  Stage st = {.op = op, .origin = origin, .scope = SC_AUTO, .at_stage = -1, .at_iter = -1};
  if (op->kind == TE_PLACEHOLDER) return st;
  st.n_root_data = op->n_axis;
  st.n_root = op->n_axis + op->n_red;
  int want = st.n_root * 6 + 4;
  vec_grow(m, (void **)&st.axes.at, &st.axes.cap, want, sizeof(Axis));
  for (int i = 0; i < op->n_axis; i++) axis_root(c, &st, &op->axis[i], IT_SPACE);
  for (int i = 0; i < op->n_red; i++) axis_root(c, &st, &op->red[i], IT_REDUCE);
  int at = op->tensorized ? op->tensorized_at : op->n_axis,
      mid = op->tensorized ? op->n_red - op->tensorized->n_red : 0;
  for (int i = 0; i < st.n_root; i++) /* sums that the intrinsic knows nothing of stand before it */
    vec_push(m, &st.leaf, i < at ? i : i < at + mid ? i - at + op->n_axis : i < op->n_axis + mid ? i - mid : i);
  if (op->tensorized) {
    st.axes.at[op->tensorized_at].ann = AN_TENSORIZE;
    st.axes.at[op->tensorized_at].intrin = op->tensorized->out[0];
  }
  return st;
}

Stage *stage_at(State *s, int stage, bool compute) {
  err_check(S_ERR(s), stage >= 0 && stage < s->stage.len, "stage %d does not exist: the state has stages 0 to %d",
            stage, s->stage.len - 1);
  Stage *st = &s->stage.at[stage];
  err_check(S_ERR(s), !compute || st->op->kind == TE_COMPUTE,
            "stage %d (%s) is a placeholder: it has no loops to transform", stage, st->op->name);
  return st;
}

Axis *leaf_at(State *s, int stage, int iter) {
  Stage *st = stage_at(s, stage, true);
  err_check(S_ERR(s), iter >= 0 && iter < st->leaf.len,
            "iterator %d of stage %d (%s) does not exist: the stage has %d iterators", iter, stage, st->op->name,
            st->leaf.len);
  return &st->axes.at[st->leaf.at[iter]];
}

int leaf_of(State *s, int stage, int axis) {
  const Stage *st = stage_at(s, stage, true);
  for (int k = 0; k < st->leaf.len; k++)
    if (st->leaf.at[k] == axis) return k;
  err_check(S_ERR(s), axis < 0 || axis >= st->axes.len,
            "axis %s of stage %s has already been split or fused; use the resulting axes",
            loop_name(s, &st->axes.at[axis]), st->op->name);
  err_raise(S_ERR(s), NS_ERR_VALUE, "stage %d (%s) has no axis %d", stage, st->op->name, axis);
}

const char *loop_name(const State *s, const Axis *x) { return s->by_hand ? x->sname : x->name; }

/* ---- changes of one stage's loops ---- */

static void leaf_replace(Arena *m, Stage *st, int pos, int n_old,
                         int n_new) { /* makes room; the new entries are unset */
  int tail = st->leaf.len - pos - n_old, len = st->leaf.len - n_old + n_new;
  vec_grow(m, (void **)&st->leaf.at, &st->leaf.cap, len, sizeof(int32_t));
  memmove(st->leaf.at + pos + n_new, st->leaf.at + pos + n_old, (size_t)tail * sizeof(int32_t));
  st->leaf.len = len;
}

void stage_split2(IrCtx *c, Stage *st, int pos, ExprId factor, ExprId nparts) {
  Arena *m = ir_arena(c);
  int parent = st->leaf.at[pos];
  Axis p = st->axes.at[parent];
  Axis o = {.sname = name_join(m, p.sname, ".outer"), .kind = p.kind};
  Axis i = {.sname = name_join(m, p.sname, ".inner"), .kind = p.kind};
  o.name = o.sname; /* the steps overwrite both */
  i.name = i.sname;
  Rel r = {.kind = REL_SPLIT, .parent = parent, .factor = factor, .nparts = nparts};
  r.outer = axis_new(c, st, o);
  r.inner = axis_new(c, st, i);
  vec_push(m, &st->rels, r);
  st->axes.at[parent].used_by = st->rels.len;
  leaf_replace(m, st, pos, 1, 2);
  st->leaf.at[pos] = r.outer;
  st->leaf.at[pos + 1] = r.inner;
}

void stage_fuse2(IrCtx *c, Stage *st, int pos) {
  Arena *m = ir_arena(c);
  Rel r = {.kind = REL_FUSE, .outer = st->leaf.at[pos], .inner = st->leaf.at[pos + 1]};
  const Axis *o = &st->axes.at[r.outer], *i = &st->axes.at[r.inner];
  uint8_t kind = o->kind == i->kind || i->kind == IT_SPECIAL ? o->kind : o->kind == IT_SPECIAL ? i->kind : IT_MIXED;
  Axis f = {.sname = name_join(m, o->sname, ".", i->sname, ".fused"), .kind = kind};
  f.name = f.sname;
  r.parent = axis_new(c, st, f);
  vec_push(m, &st->rels, r);
  st->axes.at[r.outer].used_by = st->axes.at[r.inner].used_by = st->rels.len;
  leaf_replace(m, st, pos, 2, 1);
  st->leaf.at[pos] = r.parent;
}

void stage_singleton(IrCtx *c, Stage *st) {
  Arena *m = ir_arena(c);
  Axis a = {.name = "", .sname = "singleton", .kind = IT_SPECIAL, .ranged = true, .sext = 1};
  Rel r = {.kind = REL_SINGLETON, .outer = -1, .inner = -1};
  r.parent = axis_new(c, st, a);
  vec_push(m, &st->rels, r);
  leaf_replace(m, st, 0, 0, 1);
  st->leaf.at[0] = r.parent;
}

void stage_permute(IrCtx *c, Stage *st, const int64_t *order) {
  int32_t *old = arena_copy(ir_arena(c), st->leaf.at, sizeof(int32_t) * (size_t)st->leaf.len);
  for (int i = 0; i < st->leaf.len; i++) st->leaf.at[i] = old[order[i]];
}

/* ---- the attach map ---- */

bool attach_any(const State *s, int stage, int iter) {
  const Stage *st = &s->stage.at[stage];
  for (int i = 0; i < st->attached.len; i++)
    if (iter < 0 || attach_leaf(st->attached.at[i]) == iter) return true;
  return false;
}

void attach_clear(State *s, int stage) {
  Stage *st = &s->stage.at[stage];
  if (st->at_stage >= 0) {
    Stage *t = &s->stage.at[st->at_stage];
    int w = 0;
    for (int i = 0; i < t->attached.len; i++)
      if (attach_stage(t->attached.at[i]) != stage) t->attached.at[w++] = t->attached.at[i];
    t->attached.len = w;
  }
  st->at_stage = st->at_iter = -1;
}

void attach_set(State *s, int stage, int target, int iter) {
  attach_clear(s, stage);
  Stage *st = &s->stage.at[stage], *t = &s->stage.at[target];
  st->at_stage = target;
  st->at_iter = iter;
  vec_push(ir_arena(s->ctx), &t->attached, (int32_t)(iter << 16 | stage));
}

static void attach_move(State *s, int stage, int i, int leaf) {
  int32_t *e = &s->stage.at[stage].attached.at[i];
  *e = (int32_t)(leaf << 16 | attach_stage(*e));
  s->stage.at[attach_stage(*e)].at_iter = leaf;
}

void attach_replace(State *s, int stage, int pos, int n_old, int n_new) {
  const Stage *st = &s->stage.at[stage];
  for (int i = 0; i < st->attached.len; i++) {
    int q = attach_leaf(st->attached.at[i]);
    if (q >= pos) attach_move(s, stage, i, q < pos + n_old ? pos + n_new - 1 : q + n_new - n_old);
  }
}

void attach_permute(State *s, int stage, const int64_t *to) {
  const Stage *st = &s->stage.at[stage];
  for (int i = 0; i < st->attached.len; i++) attach_move(s, stage, i, (int)to[attach_leaf(st->attached.at[i])]);
}

void attach_shift(State *s, int from) {
  for (int k = 0; k < s->stage.len; k++) {
    Stage *st = &s->stage.at[k];
    if (st->at_stage >= from) st->at_stage++;
    for (int i = 0; i < st->attached.len; i++)
      if (attach_stage(st->attached.at[i]) >= from) st->attached.at[i]++;
  }
}
