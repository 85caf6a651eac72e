/* The fourteen transform steps of TVM, and the table of all steps: one entry and one function each.
 *
 * A step's function checks that the step is valid in the state it meets, then changes the state. Ids are those in force
 * at that moment. FSP and FFSP look up the lengths of earlier SP steps, so changing such an SP changes its followers on
 * the next replay. Extents recorded in SP steps are never consulted: they may be stale. The steps beyond these are in own.c.
 */
#include "schedule/internal.h"
#include "base/limits.h"
#include <stdlib.h>
#include <string.h>

const char *const AN_WORD[AN_COUNT] = {"for",         "unroll",     "vectorize",   "parallel",
                                       "vthread",     "blockIdx.x", "threadIdx.x", "blockIdx.y",
                                       "threadIdx.y", "blockIdx.z", "threadIdx.z", "tensorize"};

/* ---- loops ---- */

static void do_an(State *s, const Step *p) {
  Axis *x = leaf_at(s, p->stage, p->iter);
  err_check(S_ERR(s), p->a >= 0 && p->a < AN_COUNT, "annotation code %d is not one of 0 to %d", p->a, AN_COUNT - 1);
  err_check(S_ERR(s), x->ann == AN_NONE, "iterator %s already carries the annotation %s", loop_name(s, x),
            AN_WORD[x->ann]);
  err_check(S_ERR(s), p->a != AN_VECTORIZE || (x->kind != IT_REDUCE && x->kind != IT_MIXED),
            "iterator %s is a reduction: it cannot be vectorized", loop_name(s, x));
  if (p->a >= AN_VTHREAD && p->a <= AN_THREAD_Z) /* a thread axis of its own, also its variable */
    bind_thread(s, x, (Annotation)p->a, 0);
  else
    x->ann = (uint8_t)p->a;
}

static const char *fused_name(State *s, const Stage *st, int first, int n) {
  StrBuf b;
  sb_init(&b, ir_arena(s->ctx));
  for (int i = 0; i < n; i++) {
    sb_puts(&b, st->axes.at[st->leaf.at[first + i]].name);
    sb_putc(&b, '@');
  }
  return sb_str(&b);
}

static void do_fu(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, true);
  if (p->n == 0) {
    bool space = attach_any(s, p->stage, -1); /* reduction iterators of a rank-0 stage stay, behind the new one */
    for (int i = 0; i < st->leaf.len; i++) space |= st->axes.at[st->leaf.at[i]].kind != IT_REDUCE;
    err_check(S_ERR(s), !space, "an empty fuse needs a stage without spatial iterators; stage %d (%s) has some",
              p->stage, st->op->name);
    stage_singleton(s->ctx, st);
    return;
  }
  int first = (int)p->list[0];
  for (int i = 0; i < p->n; i++) {
    err_check(S_ERR(s), p->list[i] == first + i, "iterators to fuse must be consecutive and increasing");
    leaf_at(s, p->stage, (int)p->list[i]);
    err_check(S_ERR(s), i == p->n - 1 || !attach_any(s, p->stage, first + i),
              "a stage is attached at iterator %d (%s): only the last of the fused iterators may carry one", first + i,
              st->axes.at[st->leaf.at[first + i]].name);
  }
  Axis f = {
      .name = fused_name(s, st, first, p->n), .ranged = true, .sext = 1, .kind = st->axes.at[st->leaf.at[first]].kind};
  f.n_orig = p->n;
  f.orig = arena_copy(ir_arena(s->ctx), st->leaf.at + first, sizeof(int32_t) * (size_t)p->n);
  for (int i = 0; i < p->n; i++) {
    const Axis *x = &st->axes.at[f.orig[i]];
    f.ranged &= x->ranged;
    if (x->kind != f.kind) f.kind = IT_MIXED;
    if (x->sext < 0 || f.sext < 0)
      f.sext = -1;
    else
      err_check(S_ERR(s), !x->ranged || i64_mul(f.sext, x->sext, &f.sext), "the extent of %s overflows", f.name);
  }
  for (int i = 1; i < p->n; i++) stage_fuse2(s->ctx, st, first);
  Axis *x = &st->axes.at[st->leaf.at[first]];
  f.sname = x->sname;
  f.var = x->var; /* a fuse of one keeps the axis */
  f.min = x->min;
  f.extent = x->extent;
  if (p->n == 1) { /* still the same axis: a root axis keeps its identity */
    f.handle = x->handle;
    f.used_by = x->used_by;
    f.align_factor = x->align_factor;
    f.align_offset = x->align_offset;
  }
  *x = f;
  attach_replace(s, p->stage, first, p->n, 1);
}

static void do_pr(State *s, const Step *p) {
  static const char unroll[] = "auto_unroll_max_step", skip[] = "debug_skip_region";
  Stage *st = stage_at(s, p->stage, true);
  if (!strncmp(p->text, unroll, sizeof(unroll) - 1)) {
    const char *dollar = strchr(p->text, '$');
    err_check(S_ERR(s), dollar, "pragma '%.60s' lacks its value: write auto_unroll_max_step$N", p->text);
    char *end;
    long steps = strtol(dollar + 1, &end, 10); /* beyond a long: its largest value */
    err_check(S_ERR(s), end > dollar + 1 && !*end && steps >= 0, "pragma '%.60s': after $ comes a number, 0 or more",
              p->text);
    limit_check(S_ERR(s), LIMIT_UNROLL_STEP, steps);
    st->auto_unroll = (int32_t)steps;
    if (p->iter < 0 || p->iter >= st->leaf.len) return; /* no loop to put it on: only the state remembers it */
    Axis *x = leaf_at(s, p->stage, p->iter);
    x->pragma_unroll = st->auto_unroll;
    x->has_pragma_unroll = x->explicit_unroll = true;
  } else if (!strncmp(p->text, skip, sizeof(skip) - 1)) {
    leaf_at(s, p->stage, p->iter)->skip_region = true;
    attach_clear(s, p->stage);
    if (st->at == AT_ITER) st->at = AT_ROOT;
  } else {
    err_raise(S_ERR(s), NS_ERR_VALUE, "unknown pragma '%.60s': auto_unroll_max_step$N and debug_skip_region are known",
              p->text);
  }
}

static void do_re(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, true);
  int n = st->leaf.len;
  err_check(S_ERR(s), p->n == n, "reorder must list all %d iterators of stage %d (%s) once; %d are given", n, p->stage,
            st->op->name, p->n);
  err_check(S_ERR(s), !attach_any(s, p->stage, -1),
            "stage %d (%s) carries attached stages: it can no longer be reordered", p->stage, st->op->name);
  char *seen = arena_alloc(ir_arena(s->ctx), (size_t)n);
  for (int i = 0; i < n; i++) {
    err_check(S_ERR(s), p->list[i] >= 0 && p->list[i] < n && !seen[p->list[i]],
              "reorder of stage %d: %lld is not an iterator or is listed twice", p->stage, (long long)p->list[i]);
    seen[p->list[i]] = 1;
  }
  stage_permute(s->ctx, st, p->list);
}

static const char *part_name(State *s, const char *parent, int k) {
  const char digits[] = {(char)('0' + k / 10), (char)('0' + k % 10), 0};
  return name_join(ir_arena(s->ctx), parent, ".", digits + (k < 10));
}

/* State ranges of the parts, in peeling order; an open length leaves its part and all later ones unranged. */
static void split_ranges(State *s, Stage *st, int pos, Axis parent, int n, const int64_t *len, bool inward) {
  int64_t rest = parent.sext;
  bool known = parent.ranged;
  for (int k = 0; k < n; k++) {
    int which = inward ? n - k : k;
    int64_t l = len[inward ? n - 1 - k : k];
    Axis *x = &st->axes.at[st->leaf.at[pos + which]];
    if (l == SIZE_OPEN) s->concrete = false;
    known &= l != SIZE_OPEN;
    x->ranged = known;
    x->sext = l;
    x->smin = k == 0 ? parent.smin : 0;
    if (known && rest >= 0) rest = rest / l + (rest % l != 0);
  }
  Axis *x = &st->axes.at[st->leaf.at[inward ? pos : pos + n]];
  x->ranged = known;
  x->sext = rest;
  x->smin = n == 0 ? parent.smin : 0;
}

static void split(State *s, int stage, int iter, int n, const int64_t *len, bool inward) {
  IrCtx *c = s->ctx;
  Stage *st = stage_at(s, stage, true);
  Axis parent = *leaf_at(s, stage, iter);
  err_check(S_ERR(s), n >= 1 && n < 100, "a split needs 1 to 99 lengths, not %d", n);
  if (!s->by_hand) limit_check(S_ERR(s), LIMIT_ITERATORS, st->leaf.len + n);
  int64_t all = 1;
  for (int k = 0; k < n; k++) {
    err_check(S_ERR(s), len[k] == SIZE_OPEN || (len[k] >= 1 && len[k] <= INT32_MAX),
              "split of %s: length %lld is not a positive 32-bit number", parent.name, (long long)len[k]);
    if (len[k] != SIZE_OPEN) limit_check(S_ERR(s), LIMIT_SPLIT, all *= len[k]); /* below 2^62 */
  }
  for (int k = 0; k < n; k++) {
    int64_t l = len[inward ? n - 1 - k : k];
    ExprId e = l == SIZE_OPEN ? 0 : ex_i32(c, l);
    stage_split2(c, st, inward ? iter : iter + k, inward ? e : 0, inward ? 0 : e);
  }
  for (int k = 0; k <= n; k++) st->axes.at[st->leaf.at[iter + k]].name = part_name(s, parent.name, k);
  split_ranges(s, st, iter, parent, n, len, inward);
  attach_replace(s, stage, iter, 1, n + 1);
}

static void do_sp(State *s, const Step *p) { split(s, p->stage, p->iter, p->n, p->list, p->flag); }

static const Step *source_split(State *s, int64_t id) {
  err_check(S_ERR(s), id >= 0 && id < s->step.len, "source step %lld does not precede this step", (long long)id);
  const Step *src = &s->step.at[id];
  err_check(S_ERR(s), src->kind == STEP_SP, "source step %lld is %s, not SP", (long long)id,
            step_info((StepKind)src->kind)->mnemonic);
  return src;
}

static int64_t product(State *s, int n, const int64_t *v) {
  int64_t p = 1;
  for (int i = 0; i < n; i++) {
    if (v[i] == SIZE_OPEN) return SIZE_OPEN;
    err_check(S_ERR(s), i64_mul(p, v[i], &p), "a product of split lengths overflows");
  }
  return p;
}

static void do_fsp(State *s, const Step *p) {
  const Step *src = source_split(s, p->a);
  int n = p->b;
  err_check(S_ERR(s), n >= 1 && n <= src->n + 1, "n_split %d is not in 1 to %d (the source step has %d lengths)", n,
            src->n + 1, src->n);
  int64_t *len = arena_array(ir_arena(s->ctx), int64_t, n);
  for (int i = 0; i < n - 1; i++) len[i] = src->list[i];
  len[n - 1] = product(s, src->n - (n - 1), src->list + n - 1);
  split(s, p->stage, p->iter, n, len, true);
}

static void do_ffsp(State *s, const Step *p) {
  err_check(S_ERR(s), p->n >= 1, "a follow-fused split needs at least one source step");
  int64_t *l = arena_array(ir_arena(s->ctx), int64_t, p->n);
  for (int i = 0; i < p->n; i++) {
    const Step *src = source_split(s, p->list[i]);
    err_check(S_ERR(s), p->a >= 0 && p->a < src->n, "level %d does not exist in source step %lld, which has %d lengths",
              p->a, (long long)p->list[i], src->n);
    l[i] = src->list[p->a];
  }
  int64_t f = product(s, p->n, l);
  split(s, p->stage, p->iter, 1, &f, p->flag);
}

static void do_sa(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, true);
  Step by_axis = *p;
  leaf_at(s, p->stage, p->iter);
  by_axis.iter = st->leaf.at[p->iter];
  do_sax(s, &by_axis);
  st->storage_offset = p->b;
}

/* ---- placement ---- */

static void forget_ranges(Stage *st) {
  for (int i = 0; i < st->leaf.len; i++) st->axes.at[st->leaf.at[i]].ranged = false;
}

static void do_ca(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, true);
  leaf_at(s, p->iter, p->a);
  err_check(S_ERR(s), p->iter != p->stage || s->by_hand, "stage %d (%s) cannot be computed inside itself", p->stage,
            st->op->name);
  st->at = AT_ITER;
  forget_ranges(st);
  attach_set(s, p->stage, p->iter, p->a);
}

static void do_cix(State *s, const Step *p) { /* what is attached has to move away before bounds are inferred */
  Stage *st = stage_at(s, p->stage, true);
  err_check(S_ERR(s), st->op->n_out == 1 && !st->op->n_red,
            "stage %d (%s) has %s: only plain single-output stages can be inlined", p->stage, st->op->name,
            st->op->n_red ? "a reduction" : "several outputs");
  st->at = AT_INLINED;
  attach_clear(s, p->stage);
}

static void do_ci(State *s, const Step *p) {
  const Stage *st = stage_at(s, p->stage, true);
  err_check(S_ERR(s), !attach_any(s, p->stage, -1), "stage %d (%s) carries attached stages: it cannot be inlined",
            p->stage, st->op->name);
  do_cix(s, p);
}

static void do_cr(State *s, const Step *p) {
  Stage *st = stage_at(s, p->stage, true);
  st->at = AT_ROOT;
  forget_ranges(st);
  attach_clear(s, p->stage);
}

static void new_stage(State *s) {
  if (!s->by_hand) limit_check(S_ERR(s), LIMIT_STAGES, s->stage.len - s->dag0->n_ops + 1);
}

static void do_chr(State *s, const Step *p) {
  new_stage(s);
  stage_at(s, p->stage, false);
  for (int i = 0; i < p->n; i++) {
    err_check(S_ERR(s), p->list[i] >= 0 && p->list[i] < s->stage.len, "cache read: reader stage %lld does not exist",
              (long long)p->list[i]);
    stage_at(s, (int)p->list[i], true);
  }
  dag_cache_read(s, p->stage, p->text, p->n, p->list);
}

static void do_chwx(State *s, const Step *p) { /* the cache has the layout of the loops */
  new_stage(s);
  stage_at(s, p->stage, true);
  dag_cache_write(s, p->stage, p->text);
}

static void do_chw(State *s, const Step *p) {
  const Stage *st = stage_at(s, p->stage, true);
  err_check(S_ERR(s), st->rels.len == 0,
            "cache write must be the first step on stage %d (%s): it has been split or fused already", p->stage,
            st->op->name);
  do_chwx(s, p);
}

static void factor(State *s, int stage, int axis, int at) {
  const Stage *st = stage_at(s, stage, true);
  const Axis *x = &st->axes.at[axis];
  new_stage(s);
  err_check(S_ERR(s), x->kind == IT_REDUCE, "rfactor: iterator %s of stage %d (%s) is not a reduction", loop_name(s, x),
            stage, st->op->name);
  dag_rfactor(s, stage, axis, at);
}

static void do_rfx(State *s, const Step *p) {
  leaf_of(s, p->stage, p->iter);
  factor(s, p->stage, p->iter, p->a);
}

static void do_rf(State *s, const Step *p) {
  const Stage *st = stage_at(s, p->stage, true);
  leaf_at(s, p->stage, p->iter);
  int last = s->step.len - 1, axis = st->leaf.at[p->iter];
  bool follows = last >= 0 && s->step.at[last].kind == STEP_SP && s->step.at[last].stage == p->stage;
  err_check(S_ERR(s), follows || st->axes.at[axis].kind != IT_REDUCE,
            "rfactor of stage %d (%s) must directly follow the split that made its iterator", p->stage, st->op->name);
  factor(s, p->stage, axis, p->a);
}

static void do_tl(State *s, const Step *p) {
  const Stage *st = stage_at(s, p->stage, false);
  err_check(S_ERR(s), st->rels.len == 0 && !attach_any(s, p->stage, -1),
            "transform_layout must come before the loops of stage %d (%s) are split, fused, or carry other stages",
            p->stage, st->op->name);
  dag_transform(s, p->stage, p->text);
}

/* ---- the table ---- */

typedef struct {
  StepInfo info;
  void (*apply)(State *, const Step *);
} StepDef;
/* kind, arguments, where it inserts a stage, aside, by_size (StepInfo), function */
#define ROW(kind, args, shift, aside, by_size, fn) [STEP_##kind] = {{#kind, args, SHIFT_##shift, aside, by_size}, fn}
static const StepDef STEPS[STEP_KINDS] = {
    ROW(AN, "sia", NONE, false, false, do_an),
    ROW(FU, "sl", NONE, false, false, do_fu),
    ROW(PR, "sit", NONE, false, false, do_pr),
    ROW(RE, "sl", NONE, false, false, do_re),
    ROW(SP, "siElf", NONE, false, false, do_sp),
    ROW(FSP, "sipb", NONE, false, false, do_fsp),
    ROW(FFSP, "siPaf", NONE, false, false, do_ffsp),
    ROW(SA, "siab", NONE, false, false, do_sa),
    ROW(CA, "sSa", NONE, false, false, do_ca),
    ROW(CI, "s", NONE, false, false, do_ci),
    ROW(CR, "s", NONE, false, false, do_cr),
    ROW(CHR, "stL", BEHIND, false, false, do_chr),
    ROW(CHW, "st", AT, false, false, do_chw),
    ROW(RF, "sia", AT, false, true, do_rf),
    /* our own */
    ROW(SPX, "siftV", NONE, false, false, do_spx),
    ROW(FUX, "sl", NONE, false, false, do_fux),
    ROW(REX, "sl", NONE, false, false, do_rex),
    ROW(ANX, "sia", NONE, false, false, do_anx),
    ROW(PRX, "sit", NONE, true, false, do_prx),
    ROW(SAX, "siab", NONE, true, false, do_sax),
    ROW(CIX, "s", NONE, false, false, do_cix),
    ROW(CHWX, "st", AT, false, true, do_chwx),
    ROW(RFX, "sia", AT, false, true, do_rfx),
    ROW(VA, "abft", NONE, true, false, do_va),
    ROW(BI, "siab", NONE, true, false, do_bi),
    ROW(SC, "st", NONE, true, false, do_sc),
    ROW(DB, "s", NONE, true, false, do_db),
    ROW(PD, "stV", NONE, true, false, do_pd),
    ROW(MM, "sl", NONE, true, false, do_mm),
    ROW(TL, "st", NONE, false, false, do_tl),
    ROW(TZ, "sia", NONE, true, false, do_tz),
};
#undef ROW

const StepInfo *step_info(StepKind k) { return &STEPS[k].info; }

int step_find(const char *mnemonic) {
  for (int k = 0; k < STEP_KINDS; k++)
    if (!strcmp(STEPS[k].info.mnemonic, mnemonic)) return k;
  return -1;
}

int32_t *step_number(Step *p, char arg) {
  switch (arg) {
  case 's': return &p->stage;
  case 'i':
  case 'S': return &p->iter;
  case 'a':
  case 'p': return &p->a;
  case 'b': return &p->b;
  default: return NULL;
  }
}

int step_stage_shift(const Step *p, int stage_id) {
  switch (STEPS[p->kind].info.shift) {
  case SHIFT_BEHIND: return stage_id + (stage_id > p->stage);
  case SHIFT_AT: return stage_id + (stage_id >= p->stage);
  default: return stage_id;
  }
}

int step_stage_before(const Step *p, int stage_id) {
  return stage_id - (STEPS[p->kind].info.shift != SHIFT_NONE && stage_id > p->stage);
}

static void check_list(Err *e, const Step *p) {
  for (int i = 0; p->kind != STEP_SP && i < p->n; i++) /* lengths of splits have a check of their own */
    err_check(e, p->list[i] == (int32_t)p->list[i], "%lld in its list does not fit 32 bits", (long long)p->list[i]);
}

void step_renumber(Arena *a, Step *p, int (*stage)(void *arg, int id), int (*step)(void *arg, int id), void *arg) {
  int every = 0;
  for (const char *x = STEPS[p->kind].info.args; *x; x++) {
    int32_t *at = step_number(p, *x);
    if (*x == 's' || *x == 'S') *at = stage(arg, *at);
    if (*x == 'p' && step) *at = step(arg, *at);
    if (*x == 'L' || *x == 'V' || (*x == 'P' && step)) every = *x;
  }
  if (!every || !p->n) return;
  check_list(arena_err(a), p);
  p->list = arena_copy(a, p->list, sizeof(int64_t) * (size_t)p->n);
  for (int i = 0; i < p->n; i += every == 'V' ? 2 : 1)
    if (every == 'P')
      p->list[i] = step(arg, (int)p->list[i]);
    else if (p->list[i] >= 0)
      p->list[i] = stage(arg, (int)p->list[i]);
}

/* The loops of statements are those that they were written with. */
static void check_by_hand(State *s, const Step *p) {
  const char *args = step_info((StepKind)p->kind)->args;
  bool places = p->kind == STEP_CR || p->kind == STEP_CHR || p->kind == STEP_SC;
  for (const char *x = args; *x; x++) {
    int stage = *x == 's' && !places ? p->stage : *x == 'S' ? p->iter : -1;
    err_check(S_ERR(s), stage < 0 || stage >= s->stage.len || !s->stage.at[stage].op->by_hand,
              "stage %s is made of statements: its loops are as they were written, and it stays at root",
              s->stage.at[stage].op->name);
  }
}

void state_apply(State *s, Step p) {
  Arena *m = ir_arena(s->ctx);
  err_check(S_ERR(s), p.kind < STEP_KINDS, "step kind %d does not exist", p.kind);
  err_check(S_ERR(s), p.text || !strchr(step_info((StepKind)p.kind)->args, 't'), "step %s lacks its text argument",
            step_info((StepKind)p.kind)->mnemonic);
  err_check(S_ERR(s), p.n >= 0 && (p.list || !p.n), "step %s lacks its list argument",
            step_info((StepKind)p.kind)->mnemonic);
  if (!s->by_hand) {
    limit_check(S_ERR(s), LIMIT_STEPS, s->step.len + 1);
    limit_check(S_ERR(s), LIMIT_LIST, p.n);
  }
  check_list(S_ERR(s), &p);
  check_by_hand(s, &p);
  state_unbound(s);
  p.list = p.n ? arena_copy(m, p.list, sizeof(int64_t) * (size_t)p.n) : NULL;
  if (p.text) p.text = arena_strdup(m, p.text);
  STEPS[p.kind].apply(s, &p);
  vec_push(m, &s->step, p);
}
