/* Tuning records: one JSON line per measured candidate, log format v0.6, readable back to the first versions.
 *
 * Reading goes through cJSON and accepts any JSON spacing; writing prints the exact bytes the reference writes
 * (", " and ": " between tokens, six significant digits, five string escapes), so a log can be rewritten unchanged.
 * Errors name the place in the line, e.g. "i[1][1][3][2]: ...". What a line may hold is bounded (limits.h), its length and
 * nesting before it is parsed, and its texts hold no control characters, which a terminal would obey.
 *
 * Other readers know TVM's fourteen steps and refuse a line with others. So the list of a record holds TVM's only, and our
 * own travel in the field v, which they ignore: "v0.6 steps=[[4,"DB",2],...] ...", each with its place in the whole list.
 * What other readers replay is a valid schedule of the same computation: behind the first step of ours that changes what
 * later ones mean (StepInfo.aside says which do not), all travel in v.
 */
#include "schedule/internal.h"
#include "base/limits.h"
#include <cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

typedef struct {
  Arena *m;
  Err *err;
  bool record; /* of a record, not a list of steps by itself */
  bool plain;  /* TVM's steps only */
  char where[160];
} Reader;

NS_NORETURN static void bad(Reader *r, const char *what) {
  err_raise(r->err, NS_ERR_VALUE, "malformed record: %s%s%s", r->where, r->where[0] ? ": " : "", what);
}

static void within(Reader *r, LimitKind k, int64_t value) {
  char text[160];
  if (value > limit_of(k)->most) bad(r, limit_text(k, value, text, sizeof text));
}

/* The deepest nesting of brackets outside of strings. */
static int64_t nesting(const char *s) {
  int64_t depth = 0, most = 0;
  for (bool text = false; *s; s++) {
    if (text && *s == '\\' && s[1])
      s++;
    else if (*s == '"')
      text = !text;
    else if (!text && (*s == '[' || *s == '{') && ++depth > most)
      most = depth;
    else if (!text && (*s == ']' || *s == '}'))
      depth--;
  }
  return most;
}

static size_t enter(Reader *r, int i) {
  size_t n = strlen(r->where);
  if (n + 14 < sizeof(r->where)) snprintf(r->where + n, sizeof(r->where) - n, "[%d]", i);
  return n;
}
static void leave(Reader *r, size_t n) { r->where[n] = 0; }

static const cJSON *item(Reader *r, const cJSON *array, int i) {
  if (!cJSON_IsArray(array)) bad(r, "an array is expected");
  const cJSON *x = cJSON_GetArrayItem(array, i);
  if (!x) bad(r, "the array has too few elements");
  return x;
}

static double get_number(Reader *r, const cJSON *x, const char *what) {
  if (!cJSON_IsNumber(x) || !isfinite(x->valuedouble)) bad(r, what);
  return x->valuedouble;
}
static int64_t get_int(Reader *r, const cJSON *x) {
  if (!cJSON_IsNumber(x) || floor(x->valuedouble) != x->valuedouble || fabs(x->valuedouble) > 9e15)
    bad(r, "an integer is expected");
  return (int64_t)x->valuedouble;
}
static int32_t get_i32(Reader *r, const cJSON *x) {
  int64_t v = get_int(r, x);
  if (v < INT32_MIN || v > INT32_MAX) bad(r, "the integer does not fit 32 bits");
  return (int32_t)v;
}
static const char *get_version(Reader *r, const cJSON *x) { /* bounded by the line: it can hold steps */
  if (!cJSON_IsString(x)) bad(r, "a string is expected");
  const char *s = x->valuestring;
  within(r, LIMIT_NESTING, nesting(s)); /* keys and targets are JSON, too */
  if (text_control(s)) bad(r, "a text holds a control character");
  return arena_strdup(r->m, s);
}

static const char *get_text(Reader *r, const cJSON *x) {
  const char *s = get_version(r, x);
  within(r, LIMIT_TEXT, (int64_t)strlen(s));
  return s;
}

/* The elements of an array, at most as many as the limit says, in memory of `size` bytes each. */
typedef void (*ReadItem)(Reader *r, const cJSON *x, void *to);
static void *get_array(Reader *r, const cJSON *x, const char *what, LimitKind limit, size_t size, ReadItem read,
                       int32_t *n) {
  if (!cJSON_IsArray(x)) bad(r, what);
  *n = cJSON_GetArraySize(x);
  within(r, limit, *n);
  char *out = arena_alloc(r->m, size * (size_t)*n);
  int i = 0;
  for (const cJSON *e = x->child; e; e = e->next, i++) {
    size_t at = enter(r, i);
    read(r, e, out + size * (size_t)i);
    leave(r, at);
  }
  return out;
}
static void read_int(Reader *r, const cJSON *x, void *to) { *(int64_t *)to = get_int(r, x); }
static void read_text(Reader *r, const cJSON *x, void *to) { *(const char **)to = get_text(r, x); }
static void read_cost(Reader *r, const cJSON *x, void *to) {
  *(double *)to = get_number(r, x, "costs are finite numbers");
}
static int64_t *get_list(Reader *r, const cJSON *x, int32_t *n) {
  return get_array(r, x, "an array is expected", LIMIT_LIST, sizeof(int64_t), read_int, n);
}

static Step read_step(Reader *r, const cJSON *x, int first) { /* first: of its elements */
  const cJSON *name = item(r, x, first);
  if (!cJSON_IsString(name)) bad(r, "a step starts with its mnemonic");
  int kind = step_find(name->valuestring);
  if (kind < 0 || (r->plain && kind >= STEP_OWN)) bad(r, "unknown step mnemonic");
  Step p = {.kind = (uint8_t)kind};
  const char *args = step_info((StepKind)kind)->args;
  if (cJSON_GetArraySize(x) != first + 1 + (int)strlen(args)) bad(r, "wrong number of arguments for this step");
  const cJSON *e = name->next;
  for (int i = 0; args[i]; i++, e = e->next) {
    size_t at = enter(r, first + i + 1);
    switch (args[i]) {
    case 'E': p.extent = get_int(r, e); break;
    case 'f': {
      int64_t v = get_int(r, e);
      if (v != 0 && v != 1) bad(r, "the flag must be 0 or 1");
      p.flag = (uint8_t)v;
      break;
    }
    case 't':
      p.text = get_text(r, e);
      if (r->record && (kind == STEP_PR || kind == STEP_PRX) && strncmp(p.text, "debug_skip_region", 17) == 0)
        bad(r, "debug_skip_region leaves a part of the computation out: a record is of the whole");
      break;
    default:
      if (step_number(&p, args[i]))
        *step_number(&p, args[i]) = get_i32(r, e);
      else
        p.list = get_list(r, e, &p.n);
    }
    leave(r, at);
  }
  for (int i = 0; p.kind == STEP_SP && i < p.n; i++)
    if (p.list[i] < 1) bad(r, "split lengths must be positive");
  return p;
}

static void read_plain_step(Reader *r, const cJSON *x, void *to) { *(Step *)to = read_step(r, x, 0); }
static Step *read_steps(Reader *r, const cJSON *x, int32_t *n) {
  return get_array(r, x, "an array of steps is expected", LIMIT_STEPS, sizeof(Step), read_plain_step, n);
}

/* The steps beside the list, each with its place; the list's own fill the places between. Sources of followers in the list
 * count the list, all others the whole. */
static void merge_steps(Reader *r, const cJSON *own, Record *out) {
  strcpy(r->where, "v");
  if (!cJSON_IsArray(own)) bad(r, "an array of steps is expected");
  int n = out->n_steps + cJSON_GetArraySize(own), *to = arena_array(r->m, int, out->n_steps + 1), k = 0, i = 0;
  within(r, LIMIT_STEPS, n);
  Step *all = arena_array(r->m, Step, n + 1);
  const cJSON *e = own->child;
  for (int at = 0; at < n; at++) {
    size_t in = enter(r, i);
    if (e && get_i32(r, item(r, e, 0)) == at) {
      all[at] = read_step(r, e, 1);
      e = e->next;
      i++;
    } else {
      if (k == out->n_steps) bad(r, "the places of the steps have gaps");
      to[k] = at;
      all[at] = out->step[k++];
      if (all[at].kind == STEP_FSP && all[at].a >= 0 && all[at].a < k) all[at].a = to[all[at].a];
      for (int q = 0; all[at].kind == STEP_FFSP && q < all[at].n; q++)
        if (all[at].list[q] >= 0 && all[at].list[q] < k) all[at].list[q] = to[all[at].list[q]];
    }
    leave(r, in);
  }
  out->step = all;
  out->n_steps = n;
}

static const char STEPS_MARK[] = "v0.6 steps=";

/* Cuts the mark out of the version; NULL if it has none, and *rest is the version. */
static const char *cut_mark(Reader *r, const char *version, const char **rest) {
  size_t n = sizeof STEPS_MARK - 1;
  *rest = version;
  if (strncmp(version, STEPS_MARK, n) != 0) {
    within(r, LIMIT_TEXT, (int64_t)strlen(version));
    return NULL;
  }
  size_t len = strcspn(version + n, " ");
  *rest = arena_printf(r->m, "v0.6%s", version + n + len);
  return arena_strndup(r->m, version + n, len);
}

static void read_task(Reader *r, const cJSON *x, Record *out) {
  int n = cJSON_IsArray(x) ? cJSON_GetArraySize(x) : 0;
  if (n < 2 || n > 6) bad(r, "a task has 2 to 6 elements");
  out->workload_key = get_text(r, item(r, x, 0));
  out->target = get_text(r, item(r, x, 1));
  out->target_host = "";
  if (n > 2) {
    int32_t k;
    size_t at = enter(r, 2);
    int64_t *v = get_list(r, item(r, x, 2), &k);
    if (k != HW_FIELDS) bad(r, "hardware parameters have 8 elements");
    for (int i = 0; i < k; i++)
      if (i != 3 && i != 4 && (v[i] < INT32_MIN || v[i] > INT32_MAX))
        bad(r, "a hardware parameter does not fit 32 bits");
    leave(r, at);
    out->has_hw = true;
    for (int i = 0; i < k; i++) *hw_field(&out->hw, i) = v[i];
  }
  if (n > 3) out->target_host = get_text(r, item(r, x, 3));
  if (n > 4) out->layout_rewrite = get_i32(r, item(r, x, 4));
  if (n > 5) {
    size_t at = enter(r, 5);
    out->inputs = get_array(r, item(r, x, 5), "task input names are an array", LIMIT_INPUTS, sizeof(char *), read_text,
                            &out->n_inputs);
    leave(r, at);
  }
}

static void read_input(Reader *r, const cJSON *x, Record *out) {
  strcpy(r->where, "i");
  if (cJSON_GetArraySize(x) != 2) bad(r, "[task, state] is expected");
  size_t at = enter(r, 0);
  read_task(r, item(r, x, 0), out);
  leave(r, at);
  at = enter(r, 1);
  const cJSON *state = item(r, x, 1);
  if (cJSON_GetArraySize(state) != 2) bad(r, "[[], steps] is expected");
  if (!cJSON_IsArray(state->child) || state->child->child) bad(r, "the list of stages must be empty");
  size_t in = enter(r, 1);
  out->step = read_steps(r, item(r, state, 1), &out->n_steps);
  leave(r, in);
  leave(r, at);
}

static void read_result(Reader *r, const cJSON *x, Record *out) {
  strcpy(r->where, "r");
  if (cJSON_GetArraySize(x) != 4) bad(r, "[costs, error_no, all_cost, timestamp] is expected");
  size_t at = enter(r, 0);
  out->cost = get_array(r, item(r, x, 0), "costs are an array", LIMIT_COSTS, sizeof(double), read_cost, &out->n_costs);
  leave(r, at);
  out->error_no = get_i32(r, item(r, x, 1));
  out->all_cost = get_number(r, item(r, x, 2), "all_cost is a finite number");
  out->timestamp = get_int(r, item(r, x, 3));
}

typedef struct {
  Arena *m;
  const char *text;
  cJSON *json, *own; /* own: of the mark */
  Record *record;
  Step *steps;
  int n;
} Parse;

static void parse_record(void *arg) {
  Parse *p = arg;
  Reader r = {.m = p->m, .err = arena_err(p->m), .record = true, .plain = true};
  const cJSON *i = NULL, *res = NULL;
  const char *mark = NULL;
  p->record = arena_new_of(p->m, Record);
  if (!cJSON_IsObject(p->json)) bad(&r, "a JSON object with the keys i, r and v is expected");
  for (const cJSON *e = p->json->child; e; e = e->next) { /* other keys are extensions, for readers that know them */
    if (!strcmp(e->string, "i"))
      i = e;
    else if (!strcmp(e->string, "r"))
      res = e;
    else if (!strcmp(e->string, "v"))
      mark = cut_mark(&r, get_version(&r, e), &p->record->version);
  }
  if (!i || !res) bad(&r, "the keys i and r are required");
  read_input(&r, i, p->record);
  if (mark) {
    p->own = json_parse(r.err, mark);
    r.plain = false;
    merge_steps(&r, p->own, p->record);
  }
  read_result(&r, res, p->record);
  if (!p->record->version) p->record->version = "";
}

static void parse_steps(void *arg) {
  Parse *p = arg;
  Reader r = {.m = p->m, .err = arena_err(p->m)};
  p->steps = read_steps(&r, p->json, &p->n);
}

/* cJSON's tree is not in an arena: whatever is raised on the way, it is freed here. */
static void parse_json(Parse *p, ErrBody body) {
  Err *e = arena_err(p->m);
  Reader r = {.m = p->m, .err = e};
  within(&r, LIMIT_LINE, (int64_t)strlen(p->text));
  within(&r, LIMIT_NESTING, nesting(p->text));
  p->json = json_parse(e, p->text);
  err_check(e, p->json, "malformed record: no valid JSON (%.60s%s)", p->text, strlen(p->text) > 60 ? " ..." : "");
  ErrCode code = err_try(e, body, p);
  cJSON_Delete(p->json);
  cJSON_Delete(p->own);
  if (code != NS_OK) err_rethrow(e, code);
}

Record *record_parse(Arena *a, const char *line) {
  Parse p = {.m = a, .text = line};
  parse_json(&p, parse_record);
  return p.record;
}

/* The value of the last mark of a name ("stage="), and its length; NULL: there is none. Marks are words behind the version, a
 * message at their end: "v0.6 stage=quick n=3 msg=...". */
static const char *mark_of(const char *version, const char *name, size_t *len) {
  const char *end = strstr(version, " msg="), *p = version, *found = NULL;
  size_t n = strlen(name);
  for (; (p = strchr(p, ' ')) != NULL && (!end || p < end); p++)
    if (strncmp(p + 1, name, n) == 0) found = p + 1 + n;
  *len = found ? strcspn(found, " ") : 0;
  return found;
}
bool record_quick(const char *version) {
  size_t n;
  const char *stage = mark_of(version, "stage=", &n);
  return stage && n == 5 && strncmp(stage, "quick", n) == 0;
}
const char *record_math(Arena *a, const char *version) {
  size_t n;
  const char *mode = mark_of(version, "math=", &n);
  return mode ? arena_printf(a, "%.*s", (int)n, mode) : "";
}

Step *steps_parse(Arena *a, const char *json, int *n) {
  Parse p = {.m = a, .text = json};
  parse_json(&p, parse_steps);
  *n = p.n;
  return p.steps;
}

/* ---- writing ---- */

static void put_list(StrBuf *b, int n, const int64_t *v, const char *comma) {
  for (int i = 0; i < n; i++) {
    sb_puts(b, i ? comma : "[");
    sb_int(b, v[i]);
  }
  sb_puts(b, n ? "]" : "[]");
}

static void put_step(StrBuf *b, Err *e, int k, Step p, const char *comma) { /* without the bracket in front */
  const StepInfo *info = step_info((StepKind)p.kind);
  sb_putc(b, '"'), sb_puts(b, info->mnemonic), sb_putc(b, '"');
  for (const char *a = info->args; *a; a++) {
    sb_puts(b, comma);
    switch (*a) {
    case 'E': sb_int(b, p.extent); break;
    case 'f': sb_int(b, p.flag); break;
    case 't': sb_json(b, p.text); break;
    default:
      if (step_number(&p, *a)) {
        sb_int(b, *step_number(&p, *a));
        break;
      }
      for (int i = 0; p.kind == STEP_SP && i < p.n; i++)
        err_check(e, p.list[i] != SIZE_OPEN, "step %d: an open split length cannot be written", k);
      put_list(b, p.n, p.list, comma);
    }
  }
  sb_putc(b, ']');
}

/* How many steps come before all of those that no reader of the plain list could place. */
static int plain_until(const Record *r) {
  int k = 0;
  while (k < r->n_steps && (r->step[k].kind < STEP_OWN || step_info((StepKind)r->step[k].kind)->aside)) k++;
  return k;
}

typedef struct {
  const int *to;
  int n;
} Places;
static int place_of(void *arg, int k) {
  const Places *x = arg;
  return k >= 0 && k < x->n ? x->to[k] : k;
}
static int same_stage(void *arg NS_UNUSED, int k) { return k; }

static void put_steps(StrBuf *b, Arena *a, int end, const Step *steps, bool plain) { /* plain: TVM's only */
  int *to = arena_array(a, int, end + 1), n = 0; /* number of each step in the list */
  sb_putc(b, '[');
  for (int k = 0; k < end; k++) {
    Step p = steps[k];
    to[k] = n;
    if (plain && p.kind >= STEP_OWN) continue;
    if (n < k && (p.kind == STEP_FSP || p.kind == STEP_FFSP))
      step_renumber(a, &p, same_stage, place_of, &(Places){to, k});
    sb_puts(b, n++ ? ", [" : "[");
    put_step(b, arena_err(a), k, p, ", ");
  }
  sb_putc(b, ']');
}

char *steps_text(Arena *a, int n, const Step *steps) {
  StrBuf b;
  sb_init(&b, a);
  put_steps(&b, a, n, steps, false);
  return sb_str(&b);
}

/* The mark for the other steps; "" if there are none. Blanks separate marks: none inside of this one. */
static const char *steps_mark(Arena *a, const Record *r, int end) {
  StrBuf b, out;
  sb_init(&b, a);
  sb_init(&out, a);
  for (int k = 0; k < r->n_steps; k++) {
    if (k < end && r->step[k].kind < STEP_OWN) continue;
    sb_printf(&b, "%s[%d,", b.len ? "," : "[", k);
    put_step(&b, arena_err(a), k, r->step[k], ",");
  }
  if (!b.len) return "";
  sb_puts(&out, " steps=");
  for (const char *s = sb_str(&b); *s; s++) /* what is left of them is in texts */
    if (*s == ' ')
      sb_puts(&out, "\\u0020");
    else
      sb_putc(&out, *s);
  sb_putc(&out, ']');
  return sb_str(&out);
}

char *record_text(Arena *a, const Record *r) {
  StrBuf b;
  sb_init(&b, a);
  sb_puts(&b, "{\"i\": [[");
  sb_json(&b, r->workload_key);
  sb_puts(&b, ", ");
  sb_json(&b, r->target);
  sb_puts(&b, ", ");
  int64_t hw[HW_FIELDS];
  for (int i = 0; i < HW_FIELDS; i++) hw[i] = hw_value(&r->hw, i);
  put_list(&b, HW_FIELDS, hw, ", ");
  sb_puts(&b, ", ");
  sb_json(&b, r->target_host ? r->target_host : "");
  sb_printf(&b, ", %d, [", r->layout_rewrite);
  for (int i = 0; i < r->n_inputs; i++) {
    if (i) sb_puts(&b, ", ");
    sb_json(&b, r->inputs[i]);
  }
  sb_puts(&b, "]], [[], ");
  int end = plain_until(r);
  put_steps(&b, a, end, r->step, true);
  sb_puts(&b, "]], \"r\": [[");
  for (int i = 0; i < r->n_costs; i++)
    err_check(arena_err(a), isfinite(r->cost[i]), "cost %d is %g: JSON has no such number; write 1e10 for a failure", i,
              r->cost[i]);
  err_check(arena_err(a), isfinite(r->all_cost), "all_cost is %g: JSON has no such number", r->all_cost);
  for (int i = 0; i < r->n_costs; i++) sb_printf(&b, "%s%.6g", i ? ", " : "", r->cost[i]);
  sb_printf(&b, "], %d, %.6g, %lld], \"v\": ", r->error_no, r->all_cost, (long long)r->timestamp);
  /* a record read from an older log is rewritten in the current format; marks may follow the version, which is read and
   * ignored by readers of the format */
  bool marked = r->version && strncmp(r->version, "v0.6 ", 5) == 0;
  sb_json(&b, arena_printf(a, "v0.6%s%s", steps_mark(a, r, end), marked ? r->version + 4 : ""));
  sb_puts(&b, "}\n");
  return sb_str(&b);
}
