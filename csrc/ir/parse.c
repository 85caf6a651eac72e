/* Expressions from the text that print.c writes, for those that schedules hold: scalar arithmetic, conditions, calls and
 * reads of tensors. The reader of a log gets strangers' texts here: types are matched by the builders, nesting is bounded.
 * Not everything survives (%g of a float, the sign of a size variable): who needs the same expression compares.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ctx.h"

enum { MAX_NESTING = 128, MAX_ARGS = 8, MAX_WORD = 128 };
typedef struct {
  IrCtx *c;
  const char *text, *p;
  int depth;
  const ExprNames *names;
} Parser;

NS_NORETURN static void bad(const Parser *r, const char *what) {
  err_raise(r->c->err, NS_ERR_VALUE, "the expression '%.200s' cannot be read: %s at '%.40s'", r->text, what, r->p);
}

static bool take(Parser *r, const char *word) {
  size_t n = strlen(word);
  if (strncmp(r->p, word, n) != 0) return false;
  r->p += n;
  return true;
}
static void need(Parser *r, const char *word) {
  if (!take(r, word)) bad(r, word);
}

static ExprId parse(Parser *r);

static int parse_list(Parser *r, const char *close, ExprId *arg) {
  int n = 0;
  while (n == 0 || take(r, ", ")) {
    if (n == MAX_ARGS) bad(r, "too many operands");
    arg[n++] = parse(r);
  }
  need(r, close);
  return n;
}

static ExprId parse_number(Parser *r, DType t, bool typed) {
  char *end;
  size_t n = strspn(r->p, "-0123456789");
  if (n == 0) bad(r, "no number");
  if (!typed && strchr(".efh", r->p[n]) && r->p[n]) {
    double v = strtod(r->p, &end);
    if (v - v != 0) bad(r, "no finite number"); /* also of 1e999 */
    r->p = end;
    return ex_flt(r->c, take(r, "f") ? DT_F32 : take(r, "h") ? DT_F16 : DT_F64, v);
  }
  bool big = t.code == DT_UINT && t.bits == 64;
  int64_t v = big ? (int64_t)strtoull(r->p, &end, 10) : strtoll(r->p, &end, 10);
  if (end != r->p + n) bad(r, "no number");
  r->p = end;
  return ex_int(r->c, t, v);
}

static ExprId parse_infix(Parser *r) { /* behind the parenthesis */
  ExprId a = parse(r);
  for (int k = IR_ADD; k <= IR_OR; k++) {
    const BinaryText *s = &IR_BINARY[k];
    if (!s->open || s->open[1] || !take(r, s->mid)) continue;
    ExprId b = parse(r);
    need(r, ")");
    return ex_bin(r->c, (ExprKind)k, a, b);
  }
  bad(r, "no operator");
}

static ExprId call_of(Parser *r, const char *name, int n, const ExprId *arg) {
  for (int k = IR_ADD; k <= IR_OR; k++) {
    const BinaryText *s = &IR_BINARY[k];
    size_t len = s->open ? strlen(s->open) - 1 : 0;
    if (len && strlen(name) == len && !strncmp(s->open, name, len) && n == 2)
      return ex_bin(r->c, (ExprKind)k, arg[0], arg[1]);
  }
  if (!strcmp(name, "select") && n == 3) return ex_select(r->c, arg[0], arg[1], arg[2]);
  DType t;
  if (n == 1 && dtype_parse(name, &t) && t.lanes == 1 && t.code != DT_HANDLE) return ex_cast(r->c, t, arg[0]);
  Intrin in = strncmp(name, "tir.", 4) ? IN_NONE : intrin_find(name);
  if (in == IN_NONE || in >= IN_SYNC_SHARED || intrin_info(in)->arity < 0) bad(r, "an unknown function ends");
  return ex_math(r->c, in, n, arg);
}

static ExprId parse_word(Parser *r) {
  char word[MAX_WORD];
  size_t n = strcspn(r->p, " ()[],*/!");
  if (n == 0 || n >= sizeof word) bad(r, "no name");
  memcpy(word, r->p, n);
  word[n] = 0;
  r->p += n;
  ExprId arg[MAX_ARGS];
  if (take(r, "(")) return call_of(r, word, parse_list(r, ")", arg), arg);
  if (take(r, "[")) {
    int k = parse_list(r, "]", arg);
    TensorId t = r->names->tensor(r->names->arg, word);
    if (!t || ir_tensor(r->c, t)->rank != k) bad(r, "an unknown tensor, or one of another rank, ends");
    for (int i = 0; i < k; i++) {
      DType x = ir_type(r->c, arg[i]);
      if ((x.code != DT_INT && x.code != DT_UINT) || x.lanes != 1) bad(r, "an index that is no integer ends");
    }
    return ex_read(r->c, t, k, arg);
  }
  ExprId v = r->names->var(r->names->arg, word);
  if (!v) bad(r, "an unknown variable ends");
  return v;
}

static ExprId parse(Parser *r) {
  if (++r->depth > MAX_NESTING) bad(r, "too many parts within parts");
  ExprId e;
  if (take(r, "(")) {
    char word[16];
    size_t n = strcspn(r->p, ")");
    DType t;
    snprintf(word, sizeof word, "%.*s", (int)(n < 15 ? n : 15), r->p);
    if (n < 15 && dtype_parse(word, &t) && (t.code == DT_INT || t.code == DT_UINT) && t.lanes == 1) {
      r->p += n + 1;
      e = parse_number(r, t, true);
    } else {
      e = parse_infix(r);
    }
  } else if (take(r, "!")) {
    e = ex_not(r->c, parse(r));
  } else if (*r->p == '-' || (*r->p >= '0' && *r->p <= '9')) {
    e = parse_number(r, DT_I32, false);
  } else {
    e = parse_word(r);
  }
  r->depth--;
  return e;
}

ExprId ex_parse(IrCtx *c, const char *text, const ExprNames *names) {
  Parser r = {.c = c, .text = text, .p = text, .names = names};
  ExprId e = parse(&r);
  if (*r.p) bad(&r, "more than one expression");
  return e;
}
