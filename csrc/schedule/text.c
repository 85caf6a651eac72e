/* The text of a state: its loops, indented, with the stages attached at them. States are equal when their texts are. */
#include "schedule/internal.h"

typedef struct {
  const State *s;
  StrBuf *b;
  bool hide;
} Printer;

static void put_i64(StrBuf *b, int64_t v) {
  char t[24];
  int n = sizeof(t);
  uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
  do t[--n] = (char)('0' + u % 10);
  while (u /= 10);
  if (v < 0) t[--n] = '-';
  sb_write(b, t + n, sizeof(t) - (size_t)n);
}

static void put_range(const Printer *p, const Stage *st, const Axis *x) {
  if (!x->ranged) {
    sb_puts(p->b, " (None)\n");
    return;
  }
  const Axis *root = x->rebase_of ? &st->axes.at[x->rebase_of - 1] : x;
  int64_t v;
  sb_puts(p->b, " (");
  if (p->s->bounded && root->min && !ex_const_int(p->s->ctx, root->min, &v))
    ex_print(p->s->ctx, p->b, root->min);
  else
    put_i64(p->b, x->smin);
  sb_putc(p->b, ',');
  if (x->sext >= 0)
    put_i64(p->b, x->sext);
  else if (root->extent)
    ex_print(p->s->ctx, p->b, root->extent);
  else
    sb_putc(p->b, '?');
  sb_puts(p->b, ")\n");
}

static void put_stage(const Printer *p, int stage, int indent, int depth) {
  const Stage *st = &p->s->stage.at[stage];
  if (depth > p->s->stage.len) return; /* a cycle of attachments: bound inference reports it */
  if (st->auto_unroll) {
    sb_spaces(p->b, indent);
    sb_printf(p->b, "%s auto_unroll: %d\n", st->op->name, st->auto_unroll);
  }
  if (st->storage_offset) {
    sb_spaces(p->b, indent);
    sb_printf(p->b, "%s storage_offset: %d\n", st->op->name, st->storage_offset);
  }
  for (int i = 0; i < st->leaf.len; i++) {
    const Axis *x = &st->axes.at[st->leaf.at[i]];
    if (!(p->hide && x->ranged && x->sext == 1)) {
      sb_spaces(p->b, indent);
      sb_puts(p->b, AN_WORD[x->ann]);
      sb_putc(p->b, ' ');
      sb_puts(p->b, x->name);
      put_range(p, st, x);
      indent += 2;
    }
    for (int k = 0; k < st->attached.len; k++)
      if (attach_leaf(st->attached.at[k]) == i) put_stage(p, attach_stage(st->attached.at[k]), indent, depth + 1);
  }
  sb_spaces(p->b, indent);
  sb_puts(p->b, st->op->name);
  sb_puts(p->b, " = ...\n");
}

char *state_text(const State *s, bool hide_trivial) {
  StrBuf b;
  sb_init(&b, ir_arena(s->ctx));
  sb_puts(&b, "Placeholder: ");
  const char *sep = "";
  for (int i = 0; i < s->stage.len; i++)
    if (s->stage.at[i].op->kind == TE_PLACEHOLDER) {
      sb_puts(&b, sep);
      sb_puts(&b, s->stage.at[i].op->name);
      sep = ", ";
    }
  sb_putc(&b, '\n');
  Printer p = {s, &b, hide_trivial};
  for (int i = 0; i < s->stage.len; i++)
    if (s->stage.at[i].op->kind == TE_COMPUTE && s->stage.at[i].at == AT_ROOT) put_stage(&p, i, 0, 0);
  return sb_str(&b);
}

uint64_t state_hash(const State *s) { return hash_str(state_text(s, true)); }
