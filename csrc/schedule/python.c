/* The Python text of a state: te.create_schedule code that does what the step list does.
 *
 * The steps are replayed once more; each prints its lines from the axes before and after it. Loops carry their schedule
 * names (cleaned), prefixed by the cleaned name of their operation.
 */
#include "schedule/internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  State *s;
  StrBuf *b;
  Arena *m;
  char *named; /* 1: a variable of the state that later steps use, 2: of no loop */
} Py;
typedef struct {
  int n;
  const char **at;
} Names;

static const char *op_name(Py *p, int stage) { return name_clean(p->m, p->s->stage.at[stage].op->name); }

static const char *leaf_bare(Py *p, int stage, int leaf) {
  const Stage *st = &p->s->stage.at[stage];
  return leaf >= 0 && leaf < st->leaf.len ? name_clean(p->m, st->axes.at[st->leaf.at[leaf]].sname) : "?";
}

static const char *leaf_name(Py *p, int stage, int leaf) {
  return name_join(p->m, name_join(p->m, op_name(p, stage), "_"), leaf_bare(p, stage, leaf));
}

static const char **leaf_names(Py *p, int stage, int n, const int64_t *ids) {
  const char **r = arena_array(p->m, const char *, n);
  for (int i = 0; i < n; i++) r[i] = leaf_name(p, stage, (int)ids[i]);
  return r;
}

/* "X_i, X_j = tuple(X.op.axis) + tuple(X.op.reduce_axis)": of the definition, its data axes alone, or the schedule's X */
typedef enum { AXES_BOTH, AXES_DATA, AXES_SCHED } AxesOf;
static void put_axes(Py *p, int stage, AxesOf of) {
  const Stage *st = &p->s->stage.at[stage];
  if (!st->leaf.len) return;
  for (int i = 0; i < st->leaf.len; i++) {
    if (i) sb_puts(p->b, ", ");
    sb_puts(p->b, leaf_name(p, stage, i));
  }
  if (st->leaf.len == 1) sb_putc(p->b, ',');
  const char *op = op_name(p, stage);
  if (of == AXES_DATA)
    sb_printf(p->b, " = tuple(%s.op.axis)\n", op);
  else if (of == AXES_SCHED)
    sb_printf(p->b, " = tuple(s[%s].op.axis) + tuple(s[%s].op.reduce_axis)\n", op, op);
  else
    sb_printf(p->b, " = tuple(%s.op.axis) + tuple(%s.op.reduce_axis)\n", op, op);
}

/* ---- one printer per step, called after the step was applied; `old` are the loop names before it ---- */

static void py_an(Py *p, const Step *q, Names old) {
  const char *op = op_name(p, q->stage);
  int thread = p->s->var.len - 1;
  if (q->a >= AN_VTHREAD && q->a <= AN_THREAD_Z && p->named[thread]) {
    sb_printf(p->b, "var_%d = te.thread_axis(\"%s\")\n", thread, AN_WORD[q->a]);
    sb_printf(p->b, "s[%s].bind(%s, var_%d)\n", op, old.at[q->iter], thread);
    return;
  }
  sb_printf(p->b, "s[%s].", op);
  if (q->a <= AN_PARALLEL)
    sb_printf(p->b, "%s(%s)\n", AN_WORD[q->a], old.at[q->iter]);
  else
    sb_printf(p->b, "bind(%s, te.thread_axis(\"%s\"))\n", old.at[q->iter], AN_WORD[q->a]);
}

static void py_fu(Py *p, const Step *q, Names old) {
  const char *op = op_name(p, q->stage);
  sb_printf(p->b, "%s = s[%s].fuse(", leaf_name(p, q->stage, q->n ? (int)q->list[0] : 0), op);
  for (int i = 0; i < q->n; i++) sb_printf(p->b, "%s%s", i ? ", " : "", old.at[q->list[i]]);
  sb_puts(p->b, ")\n");
}

static void py_pr(Py *p, const Step *q, Names old) {
  const char *op = op_name(p, q->stage);
  if (q->iter < 0 || q->iter >= old.n) return;
  if (!strncmp(q->text, "auto_unroll_max_step", 20)) {
    sb_printf(p->b, "s[%s].pragma(%s, \"auto_unroll_max_step\", %d)\n", op, old.at[q->iter],
              p->s->stage.at[q->stage].auto_unroll);
    sb_printf(p->b, "s[%s].pragma(%s, \"unroll_explicit\", True)\n", op, old.at[q->iter]);
  } else {
    sb_printf(p->b, "s[%s].pragma(%s, \"%s\")\n", op, old.at[q->iter], q->text);
  }
}

static void py_re(Py *p, const Step *q, Names old) {
  sb_printf(p->b, "s[%s].reorder(", op_name(p, q->stage));
  for (int i = 0; i < q->n; i++) sb_printf(p->b, "%s%s", i ? ", " : "", old.at[q->list[i]]);
  sb_puts(p->b, ")\n");
}

static void py_split(Py *p, int stage, int iter, Names old, int n, const int64_t *len, bool inward) {
  const char *op = op_name(p, stage), *from = old.at[iter];
  int64_t *ids = arena_array(p->m, int64_t, n + 1);
  for (int i = 0; i <= n; i++) ids[i] = iter + i;
  const char **out = leaf_names(p, stage, n + 1, ids);
  for (int k = 0; k < n; k++) {
    int i = inward ? n - 1 - k : k; /* the line makes parts i and i+1 */
    sb_printf(p->b, "%s, %s = s[%s].split(%s, %s=%lld)\n", out[i], out[i + 1], op, from, inward ? "factor" : "nparts",
              (long long)len[i]);
    from = out[inward ? i : i + 1];
  }
}

/* Lengths of a follow step are those of the parts it made: read back from the relations' factors. */
static void py_follow(Py *p, const Step *q, Names old) {
  const Stage *st = &p->s->stage.at[q->stage];
  int n = q->kind == STEP_FSP ? q->b : 1;
  bool inward = q->kind == STEP_FSP || q->flag;
  int64_t *len = arena_array(p->m, int64_t, n);
  for (int k = 0; k < n; k++) {
    const Rel *r = &st->rels.at[st->rels.len - n + k];
    ExprId e = r->factor ? r->factor : r->nparts;
    if (!e || !ex_const_int(p->s->ctx, e, &len[inward ? n - 1 - k : k])) len[inward ? n - 1 - k : k] = SIZE_OPEN;
  }
  py_split(p, q->stage, q->iter, old, n, len, inward);
}

static void py_sp(Py *p, const Step *q, Names old) { py_split(p, q->stage, q->iter, old, q->n, q->list, q->flag); }

static void py_sa(Py *p, const Step *q, Names old) {
  sb_printf(p->b, "s[%s].storage_align(%s, %d, %d)\n", op_name(p, q->stage), old.at[q->iter], q->a, q->b);
}

static void py_ca(Py *p, const Step *q, Names old NS_UNUSED) {
  const char *a = op_name(p, q->stage), *t = op_name(p, q->iter);
  sb_printf(p->b, "s[%s].compute_at(s[%s], %s)\n", a, t, leaf_name(p, q->iter, q->a));
}

static void py_chr(Py *p, const Step *q, Names old NS_UNUSED) {
  int made = q->stage + 1;
  sb_printf(p->b, "%s = s.cache_read(%s, \"%s\", [", op_name(p, made), op_name(p, q->stage), q->text);
  for (int i = 0; i < q->n; i++)
    sb_printf(p->b, "%s%s", i ? ", " : "", op_name(p, (int)q->list[i] + (q->list[i] > q->stage)));
  sb_puts(p->b, "])\n");
  put_axes(p, made, AXES_DATA);
}

static void py_chw(Py *p, const Step *q, Names old NS_UNUSED) {
  sb_printf(p->b, "%s, = s.cache_write([%s], \"%s\")\n", op_name(p, q->stage), op_name(p, q->stage + 1), q->text);
  put_axes(p, q->stage, AXES_BOTH);
}

static void py_rf(Py *p, const Step *q, Names old) {
  const char *repl = op_name(p, q->stage + 1), *dot = strstr(repl, "_repl");
  size_t n = dot ? (size_t)(dot - repl) : strlen(repl);
  const char *loop = old.at[q->iter] + n + 1; /* printed without the operation's name */
  sb_printf(p->b, "%s = s.rfactor(%.*s, %s, %d)\n", op_name(p, q->stage), (int)n, repl, loop, q->a);
  put_axes(p, q->stage, AXES_BOTH);
  put_axes(p, q->stage + 1, AXES_SCHED);
}

/* ---- our own steps ---- */

static const char *axis_name(Py *p, int stage, int axis) {
  return name_join(p->m, name_join(p->m, op_name(p, stage), "_"),
                   name_clean(p->m, p->s->stage.at[stage].axes.at[axis].sname));
}

/* An expression with the names that its variables have here. */
static const char *value_text(Py *p, const Step *q) {
  StrBuf b;
  sb_init(&b, p->m);
  for (const char *x = q->text; *x; x++) {
    int64_t k = *x == '$' ? strtoll(x + 1, NULL, 10) : -1;
    if (k < 0 || 2 * k + 1 >= q->n) {
      sb_putc(&b, *x);
      continue;
    }
    int stage = (int)q->list[2 * k], axis = (int)q->list[2 * k + 1];
    if (stage < 0)
      sb_printf(&b, "var_%d%s", axis, p->named[axis] == 2 ? "" : ".var");
    else
      sb_printf(&b, "%s.var", axis_name(p, stage, axis));
    while (x[1] >= '0' && x[1] <= '9') x++;
  }
  return sb_str(&b);
}

/* A line is printed from its form: %s operation, %x axis, %m axis made last, %o %i parts made last, %l axes of the list, %a %b
 * numbers, %k variable made last, %w annotation, %t text, %v text as key and value, %e expression, %f which of two, %c numbers of tiles. */
static const char *const FORM[STEP_KINDS] = {[STEP_CI] = "s[%s].compute_inline()",
                                             [STEP_CIX] = "s[%s].compute_inline()",
                                             [STEP_CR] = "s[%s].compute_root()",
                                             [STEP_SPX] = "%o, %i = s[%s].split(%x, %f=%e)",
                                             [STEP_FUX] = "%m = s[%s].fuse(%l)",
                                             [STEP_REX] = "s[%s].reorder(%l)",
                                             [STEP_ANX] = "s[%s].%w(%x)",
                                             [STEP_PRX] = "s[%s].pragma(%x, %v)",
                                             [STEP_SAX] = "s[%s].storage_align(%x, %a, %b)",
                                             [STEP_VA] = "var_%k = te.thread_axis(\"%w\", name=%t)",
                                             [STEP_BI] = "s[%s].bind(%x, var_%a)",
                                             [STEP_SC] = "s[%s].set_scope(%t)",
                                             [STEP_DB] = "s[%s].double_buffer()",
                                             [STEP_PD] = "s[%s].set_store_predicate(%e)",
                                             [STEP_MM] = "s[%s].tensor_cores(%c)"};

static void put_pragma(Py *p, const char *text) { /* "key$value" */
  size_t n = strcspn(text, "$");
  char *key = arena_copy(p->m, text, n + 1);
  key[n] = 0;
  sb_json(p->b, key);
  sb_printf(p->b, ", %lld", text[n] ? strtoll(text + n + 1, NULL, 10) : 1);
}

static void put_part(Py *p, const Step *q, char what) {
  const Stage *st = &p->s->stage.at[q->stage];
  const Rel *r = st->rels.len ? &st->rels.at[st->rels.len - 1] : NULL;
  switch (what) {
  case 's': sb_puts(p->b, op_name(p, q->stage)); break;
  case 'x': sb_puts(p->b, axis_name(p, q->stage, q->iter)); break;
  case 'm': sb_puts(p->b, axis_name(p, q->stage, st->axes.len - 1)); break;
  case 'o': sb_puts(p->b, axis_name(p, q->stage, r->outer)); break;
  case 'i': sb_puts(p->b, axis_name(p, q->stage, r->inner)); break;
  case 'l':
    for (int i = 0; i < q->n; i++) sb_printf(p->b, "%s%s", i ? ", " : "", axis_name(p, q->stage, (int)q->list[i]));
    break;
  case 'a': sb_printf(p->b, "%d", q->a); break;
  case 'b': sb_printf(p->b, "%d", q->b); break;
  case 'k': sb_printf(p->b, "%d", p->s->var.len - 1); break;
  case 'w': sb_puts(p->b, AN_WORD[q->a]); break;
  case 't': sb_json(p->b, q->text); break;
  case 'v': put_pragma(p, q->text); break;
  case 'e': sb_puts(p->b, value_text(p, q)); break;
  case 'c':
    sb_printf(p->b, "(%d, %d, %d), (%d, %d), %d, %s, %d", (int)q->list[0], (int)q->list[1], (int)q->list[2],
              (int)q->list[3], (int)q->list[4], (int)q->list[5], q->list[6] ? "True" : "False", (int)q->list[7]);
    for (int i = MATRIX_TERMS; i < q->n; i++) sb_printf(p->b, ", %d", (int)q->list[i]);
    break;
  default: sb_puts(p->b, q->flag ? "factor" : "nparts");
  }
}

static void py_form(Py *p, const Step *q, Names old NS_UNUSED) {
  const char *form = FORM[q->kind];
  if (q->kind == STEP_ANX && !q->a) return; /* no primitive takes an annotation away */
  if (q->kind == STEP_VA && !q->a) {
    form = q->flag ? "var_%k = te.size_var(%t)" : "var_%k = te.var(%t)";
    p->named[p->s->var.len - 1] = 2;
  }
  for (; *form; form++)
    if (*form == '%')
      put_part(p, q, *++form);
    else
      sb_putc(p->b, *form);
  sb_putc(p->b, '\n');
}

typedef void (*PyPrint)(Py *p, const Step *q, Names old);
static const PyPrint PRINT[STEP_KINDS] =
    {/* NULL: by its form */
     [STEP_AN] = py_an,      [STEP_FU] = py_fu,       [STEP_PR] = py_pr, [STEP_RE] = py_re, [STEP_SP] = py_sp,
     [STEP_FSP] = py_follow, [STEP_FFSP] = py_follow, [STEP_SA] = py_sa, [STEP_CA] = py_ca, [STEP_CHR] = py_chr,
     [STEP_CHW] = py_chw,    [STEP_CHWX] = py_chw,    [STEP_RF] = py_rf, [STEP_RFX] = py_rf};

static char *named_variables(const State *s) {
  char *named = arena_alloc(ir_arena(s->ctx), (size_t)s->var.len + 1);
  for (int i = 0; i < s->step.len; i++) {
    const Step *q = &s->step.at[i];
    if (q->kind == STEP_BI) named[q->a] = 1;
    for (int k = 0; strchr(step_info((StepKind)q->kind)->args, 'V') && k + 1 < q->n; k += 2)
      if (q->list[k] < 0) named[q->list[k + 1]] = 1;
  }
  return named;
}

char *state_python(const State *src) {
  StrBuf b;
  sb_init(&b, ir_arena(src->ctx));
  State *s = state_init(src->ctx, src->dag0);
  s->by_hand = src->by_hand;
  Py p = {s, &b, ir_arena(src->ctx), named_variables(src)};
  for (int i = 0; i < s->stage.len; i++)
    if (s->stage.at[i].op->kind == TE_COMPUTE) put_axes(&p, i, AXES_BOTH);
  for (int i = 0; i < src->step.len; i++) {
    const Step *q = &src->step.at[i];
    Names old = {0};
    if (q->stage >= 0 && q->stage < s->stage.len) {
      old.n = s->stage.at[q->stage].leaf.len;
      int64_t *ids = arena_array(p.m, int64_t, old.n);
      for (int k = 0; k < old.n; k++) ids[k] = k;
      old.at = leaf_names(&p, q->stage, old.n, ids);
    }
    Step shown = *q;
    if (q->kind == STEP_RFX) shown.iter = leaf_of(s, q->stage, q->iter); /* its position before */
    state_apply(s, *q);
    (PRINT[q->kind] ? PRINT[q->kind] : py_form)(&p, &shown, old);
  }
  return sb_str(&b);
}
