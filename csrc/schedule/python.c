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

static const char *axis_name(Py *p, int stage, int axis) {
  return name_join(p->m, op_name(p, stage), "_", name_clean(p->m, p->s->stage.at[stage].axes.at[axis].sname));
}
static const char *leaf_name(Py *p, int stage, int leaf) {
  return axis_name(p, stage, p->s->stage.at[stage].leaf.at[leaf]);
}

/* "X_i, X_j = tuple(X.op.axis) + tuple(X.op.reduce_axis)": of the definition, its data axes alone, or the schedule's X */
typedef enum { AXES_BOTH, AXES_DATA, AXES_SCHED } AxesOf;
static void put_axes(Py *p, int stage, AxesOf of) {
  const Stage *st = &p->s->stage.at[stage];
  if (!st->leaf.len) return;
  for (int i = 0; i < st->leaf.len; i++) sb_printf(p->b, "%s%s", i ? ", " : "", leaf_name(p, stage, i));
  const char *op = op_name(p, stage), *from = of == AXES_SCHED ? arena_printf(p->m, "s[%s]", op) : op;
  sb_printf(p->b, "%s = tuple(%s.op.axis)", st->leaf.len == 1 ? "," : "", from);
  if (of != AXES_DATA) sb_printf(p->b, " + tuple(%s.op.reduce_axis)", from);
  sb_putc(p->b, '\n');
}

/* ---- a step after it was applied; `old` are the loop names of its stage before it ---- */

/* Lengths are those of the parts that were made: read back from the relations' factors. */
static void py_split(Py *p, const Step *q, Names old) {
  const Stage *st = &p->s->stage.at[q->stage];
  int n = q->kind == STEP_SP ? q->n : q->kind == STEP_FSP ? q->b : 1;
  bool inward = q->kind == STEP_FSP || q->flag;
  const char *from = old.at[q->iter];
  for (int k = 0; k < n; k++) {
    int i = q->iter + (inward ? n - 1 - k : k); /* the line makes parts i and i+1 */
    const Rel *r = &st->rels.at[st->rels.len - n + k];
    ExprId by = r->factor ? r->factor : r->nparts;
    int64_t length;
    if (!by || !ex_const_int(p->s->ctx, by, &length)) length = SIZE_OPEN;
    sb_printf(p->b, "%s, %s = s[%s].split(%s, %s=%lld)\n", leaf_name(p, q->stage, i), leaf_name(p, q->stage, i + 1),
              op_name(p, q->stage), from, inward ? "factor" : "nparts", (long long)length);
    from = leaf_name(p, q->stage, inward ? i : i + 1);
  }
}

static void py_rf(Py *p, const Step *q, Names old) {
  const char *repl = op_name(p, q->stage + 1), *dot = strstr(repl, "_repl");
  size_t n = dot ? (size_t)(dot - repl) : strlen(repl);
  const char *loop = old.at[q->iter] + n + 1; /* printed without the operation's name */
  sb_printf(p->b, "%s = s.rfactor(%.*s, %s, %d)\n", op_name(p, q->stage), (int)n, repl, loop, q->a);
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

/* A line is printed from its form: %s operation, %S the one behind it, %x axis, %m axis made last, %o %i parts made last, %l axes
 * of the list, %r operations of it, %a %b numbers, %k variable made last, %w annotation, %t text, %v text as key and value, %u
 * unrolling, %e expression, %f which of two, %c numbers of tiles, %T %X operation and loop that a stage is computed at. */
static const char *const FORM[STEP_KINDS] = {[STEP_FU] = "%m = s[%s].fuse(%l)",
                                             [STEP_RE] = "s[%s].reorder(%l)",
                                             [STEP_SA] = "s[%s].storage_align(%x, %a, %b)",
                                             [STEP_CA] = "s[%s].compute_at(s[%T], %X)",
                                             [STEP_CI] = "s[%s].compute_inline()",
                                             [STEP_CR] = "s[%s].compute_root()",
                                             [STEP_CHR] = "%S = s.cache_read(%s, %t, [%r])",
                                             [STEP_CHW] = "%s, = s.cache_write([%S], %t)",
                                             [STEP_SPX] = "%o, %i = s[%s].split(%x, %f=%e)",
                                             [STEP_FUX] = "%m = s[%s].fuse(%l)",
                                             [STEP_REX] = "s[%s].reorder(%l)",
                                             [STEP_PRX] = "s[%s].pragma(%x, %v)",
                                             [STEP_SAX] = "s[%s].storage_align(%x, %a, %b)",
                                             [STEP_CIX] = "s[%s].compute_inline()",
                                             [STEP_CHWX] = "%s, = s.cache_write([%S], %t)",
                                             [STEP_VA] = "var_%k = te.thread_axis(\"%w\", name=%t)",
                                             [STEP_BI] = "s[%s].bind(%x, var_%a)",
                                             [STEP_SC] = "s[%s].set_scope(%t)",
                                             [STEP_DB] = "s[%s].double_buffer()",
                                             [STEP_PD] = "s[%s].set_store_predicate(%e)",
                                             [STEP_MM] = "s[%s].tensor_cores(%c)",
                                             [STEP_TL] = "s[%s].transform_layout(%t)"};
/* NULL: nothing is said. */
static const char *form_of(const Py *p, const Step *q, Names old) {
  int made = p->s->var.len - 1;
  switch (q->kind) {
  case STEP_AN:
    if (q->a <= AN_PARALLEL) return "s[%s].%w(%x)";
    return q->a <= AN_THREAD_Z && p->named[made] ? "var_%k = te.thread_axis(\"%w\")\ns[%s].bind(%x, var_%k)"
                                                 : "s[%s].bind(%x, te.thread_axis(\"%w\"))";
  case STEP_ANX: return q->a ? "s[%s].%w(%x)" : NULL; /* no primitive takes an annotation away */
  case STEP_PR:
    if (q->iter < 0 || q->iter >= old.n) return NULL;
    return strncmp(q->text, "auto_unroll_max_step", 20) != 0
               ? "s[%s].pragma(%x, %t)"
               : "s[%s].pragma(%x, \"auto_unroll_max_step\", %u)\ns[%s].pragma(%x, \"unroll_explicit\", True)";
  case STEP_VA:
    if (q->a) return FORM[STEP_VA];
    p->named[made] = 2;
    return q->flag ? "var_%k = te.size_var(%t)" : "var_%k = te.var(%t)";
  default: return FORM[q->kind];
  }
}

static void put_pragma(Py *p, const char *text) { /* "key$value" */
  size_t n = strcspn(text, "$");
  sb_json(p->b, arena_strndup(p->m, text, n));
  sb_printf(p->b, ", %lld", text[n] ? strtoll(text + n + 1, NULL, 10) : 1);
}

/* A loop that a step names: TVM's by its place before, our own by its number. */
static const char *named_loop(Py *p, const Step *q, Names old, int64_t id) {
  return q->kind < STEP_OWN ? old.at[id] : axis_name(p, q->stage, (int)id);
}

static void put_part(Py *p, const Step *q, Names old, char what) {
  const Stage *st = &p->s->stage.at[q->stage];
  const Rel *r = st->rels.len ? &st->rels.at[st->rels.len - 1] : NULL;
  switch (what) {
  case 's': sb_puts(p->b, op_name(p, q->stage)); break;
  case 'S': sb_puts(p->b, op_name(p, q->stage + 1)); break;
  case 'T': sb_puts(p->b, op_name(p, q->iter)); break;
  case 'X': sb_puts(p->b, leaf_name(p, q->iter, q->a)); break;
  case 'x': sb_puts(p->b, named_loop(p, q, old, q->iter)); break;
  case 'm':
    sb_puts(p->b, q->kind == STEP_FU ? leaf_name(p, q->stage, q->n ? (int)q->list[0] : 0)
                                     : axis_name(p, q->stage, st->axes.len - 1));
    break;
  case 'o': sb_puts(p->b, axis_name(p, q->stage, r->outer)); break;
  case 'i': sb_puts(p->b, axis_name(p, q->stage, r->inner)); break;
  case 'l':
    for (int i = 0; i < q->n; i++) sb_printf(p->b, "%s%s", i ? ", " : "", named_loop(p, q, old, q->list[i]));
    break;
  case 'r':
    for (int i = 0; i < q->n; i++)
      sb_printf(p->b, "%s%s", i ? ", " : "", op_name(p, (int)q->list[i] + (q->list[i] > q->stage)));
    break;
  case 'a': sb_printf(p->b, "%d", q->a); break;
  case 'b': sb_printf(p->b, "%d", q->b); break;
  case 'u': sb_printf(p->b, "%d", st->auto_unroll); break;
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

static void py_step(Py *p, const Step *q, Names old) {
  const char *form = form_of(p, q, old);
  bool cached = q->kind == STEP_CHW || q->kind == STEP_CHWX, factored = q->kind == STEP_RF || q->kind == STEP_RFX;
  if (q->kind == STEP_SP || q->kind == STEP_FSP || q->kind == STEP_FFSP) py_split(p, q, old);
  if (factored) py_rf(p, q, old);
  for (const char *c = form; c && *c; c++)
    if (*c == '%')
      put_part(p, q, old, *++c);
    else
      sb_putc(p->b, *c);
  if (form) sb_putc(p->b, '\n');
  if (q->kind == STEP_CHR) put_axes(p, q->stage + 1, AXES_DATA);
  if (cached || factored) put_axes(p, q->stage, AXES_BOTH);
  if (factored) put_axes(p, q->stage + 1, AXES_SCHED);
}

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
      old.at = arena_array(p.m, const char *, old.n);
      for (int k = 0; k < old.n; k++) old.at[k] = leaf_name(&p, q->stage, k);
    }
    Step shown = *q;
    if (q->kind == STEP_RFX) shown.iter = leaf_of(s, q->stage, q->iter); /* its position before */
    state_apply(s, *q);
    py_step(&p, &shown, old);
  }
  return sb_str(&b);
}
