/* What the sketch rules ask about a state. All questions are answered on the state's current DAG, which the inserting
 * steps (cache read, cache write, rfactor) rewrite; stage i of a state is operation i of that DAG. Consumers and producers
 * look through inlined stages. Spec 03 §2.3.
 */
#include "search/space.h"
#include <string.h>

enum { NEIGHBOURS = 256 };

bool sp_ends(const char *name, const char *tail) {
  size_t n = strlen(name), m = strlen(tail);
  return n >= m && strcmp(name + n - m, tail) == 0;
}

bool sp_needs_tiling(const State *s, int stage) { return s->dag->flags[stage].needs_tiling; }
bool sp_is_output(const State *s, int stage) { return s->dag->flags[stage].is_output; }
bool sp_large(const State *s, int stage) { return s->dag->flags[stage].large; }
bool sp_strictly_inlinable(const State *s, int stage) { return s->dag->flags[stage].strictly_inlineable; }
bool sp_has_attr(const State *s, int stage, const char *key) { return te_attr(s->stage.at[stage].op, key) != NULL; }

/* Inserts v into the ascending set out[0..n). */
static int set_add(int *out, int n, int cap, int v) {
  int i = 0;
  while (i < n && out[i] < v) i++;
  if ((i < n && out[i] == v) || n == cap) return n;
  memmove(out + i + 1, out + i, sizeof(int) * (size_t)(n - i));
  out[i] = v;
  return n + 1;
}

typedef int (*Neighbours)(const TeDag *d, int op, int *out);

static int through_inlined(const State *s, int stage, Neighbours direct, int *out, int n, int cap) {
  int count = direct(s->dag, stage, NULL);
  int buf[NEIGHBOURS];
  if (count > NEIGHBOURS) return n;
  direct(s->dag, stage, buf);
  for (int i = 0; i < count; i++)
    n = s->stage.at[buf[i]].at == AT_INLINED ? through_inlined(s, buf[i], direct, out, n, cap)
                                             : set_add(out, n, cap, buf[i]);
  return n;
}

int pred_consumers(const State *s, int stage, int *out, int cap) {
  return through_inlined(s, stage, te_consumers, out, 0, cap);
}
int pred_producers(const State *s, int stage, int *out, int cap) {
  return through_inlined(s, stage, te_producers, out, 0, cap);
}

bool sp_direct_producer(const State *s, int from, int to) {
  for (int k = 0; k < s->dag->n_edges; k++)
    if (s->dag->edge[k].consumer == to && s->dag->edge[k].producer == from) return true;
  return false;
}

/* A root stage is its own root; an attached one's root is the stage it is attached to. */
static int root_of(const State *s, int stage) {
  const Stage *g = &s->stage.at[stage];
  return g->at == AT_ITER ? g->at_stage : stage;
}

int sp_single_consumer(const State *s, int stage) {
  int buf[NEIGHBOURS], n = pred_consumers(s, stage, buf, NEIGHBOURS);
  if (n == 0) return -1;
  if (n == 1) return buf[0];
  int root = root_of(s, buf[0]);
  for (int i = 1; i < n; i++)
    if (root_of(s, buf[i]) != root) return -1;
  return root;
}

int sp_loop_as(const State *s, int stage, Annotation ann) {
  for (int i = 0; i < sp_loops(s, stage); i++)
    if (sp_axis(s, stage, i)->ann == ann) return i;
  return -1;
}

bool sp_has_reduce(const State *s, int stage) {
  for (int i = 0; i < sp_loops(s, stage); i++)
    if (sp_axis(s, stage, i)->kind != IT_SPACE) return true;
  return false;
}

int sp_matched_consumer(const State *s, int stage, bool branches) {
  int buf[NEIGHBOURS], n = pred_consumers(s, stage, buf, NEIGHBOURS);
  if (n != 1) return -1;
  int t = buf[0];
  if (!te_elementwise_match(s->ctx, s->dag, stage, t, branches)) return -1;
  if (sp_has_reduce(s, stage) && sp_has_reduce(s, t)) return -1;
  if (sp_ends(s->stage.at[t].op->name, ".shared")) return -1;
  return t;
}

bool pred_is_tiled(const State *s, int stage) {
  const TeOp *op = s->stage.at[stage].op;
  return op->kind == TE_COMPUTE && sp_loops(s, stage) != op->n_axis + op->n_red;
}

bool pred_in_product(const State *s, int stage) {
  const Stage *g = &s->stage.at[stage];
  return pred_has_step(s, stage, STEP_MM) || (g->at == AT_ITER && pred_has_step(s, g->at_stage, STEP_MM));
}
bool pred_in_tile(const State *s, int stage) {
  return sp_needs_tiling(s, stage) && s->stage.at[stage].at == AT_ITER && !pred_in_product(s, stage);
}

/* The list is walked backwards to follow the stage's number. */
int sp_steps_of(const State *s, int stage, StepKind k, int *out, int cap) {
  int n = 0;
  for (int i = s->step.len - 1; i >= 0 && n < cap; i--) {
    const Step *p = &s->step.at[i];
    if (p->kind == k && p->stage == stage) out[n++] = i;
    stage = step_stage_before(p, stage);
  }
  return n;
}

bool pred_has_step(const State *s, int stage, StepKind k) { return sp_steps_of(s, stage, k, (int[1]){0}, 1) > 0; }

static bool thread_reduce(const State *s, int stage) {
  for (int i = 0; i < sp_loops(s, stage); i++) {
    const Axis *x = sp_axis(s, stage, i);
    if (x->kind == IT_REDUCE && x->ann == AN_THREAD_X) return true;
  }
  return false;
}

bool pred_cross_thread(const State *s, int stage) {
  if (thread_reduce(s, stage)) return true;
  const Stage *g = &s->stage.at[stage];
  for (int i = 0; i < g->attached.len; i++)
    if (thread_reduce(s, attach_stage(g->attached.at[i]))) return true;
  return false;
}

/* The axes of a cache-write stage are called "x_c" ("x.c" in the operation); attributes name the original "x". */
bool sp_names(const State *s, int stage, const char *key, const char *name) {
  const TeOp *op = s->stage.at[stage].op;
  const TeAttr *at = te_attr(op, key);
  if (!at || at->kind != TA_STRS) return false;
  size_t len = strlen(name);
  bool cached =
      sp_ends(op->name, ".local") && len > 2 && (name[len - 2] == '_' || name[len - 2] == '.') && name[len - 1] == 'c';
  for (int i = 0; i < at->n; i++) {
    if (strcmp(at->strs[i], name) == 0) return true;
    if (cached && strlen(at->strs[i]) == len - 2 && strncmp(at->strs[i], name, len - 2) == 0) return true;
  }
  return false;
}

int64_t sp_len(const State *s, int stage, IterKind k) {
  int64_t len = 1;
  for (int i = 0; i < sp_loops(s, stage); i++)
    if (sp_axis(s, stage, i)->kind == k && !i64_mul(len, axis_extent(s, stage, i), &len)) return INT64_MAX;
  return len;
}

int64_t sp_points(const State *s, int stage) {
  const TeOp *op = s->stage.at[stage].op;
  int64_t n = 1;
  for (int i = 0; i < op->n_axis + op->n_red; i++)
    if (!i64_mul(n, te_const(s->ctx, te_axis(op, i)->extent), &n)) return INT64_MAX;
  return n;
}

int sp_final_stage(int n, const Step *steps, int from, int stage) {
  for (int i = from + 1; i < n; i++) stage = step_stage_shift(&steps[i], stage);
  return stage;
}

Step *sp_steps_copy(Arena *a, int n, const Step *s, bool lists) {
  Step *out = n ? arena_copy(a, s, sizeof(Step) * (size_t)n) : arena_array(a, Step, 1);
  if (!lists) return out;
  size_t all = 0;
  for (int i = 0; i < n; i++) all += s[i].n > 0 ? (size_t)s[i].n : 0;
  int64_t *at = arena_array(a, int64_t, all); /* all lists in one piece: this is copied for each candidate */
  for (int i = 0; i < n; i++) {
    if (out[i].n > 0) {
      memcpy(at, s[i].list, sizeof *at * (size_t)s[i].n);
      out[i].list = at;
      at += s[i].n;
    }
    if (out[i].text) out[i].text = arena_strdup(a, s[i].text);
  }
  return out;
}

void sp_list_add(Arena *a, StateList *l, int n, const Step *s, double score) {
  vec_push(a, l, ((StepList){n, sp_steps_copy(a, n, s, true), score}));
}
