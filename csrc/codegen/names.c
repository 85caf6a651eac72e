/* Identifiers. IR names are for people and need not be unique or legal in C. Every variable and buffer gets its text
 * once: characters outside [A-Za-z0-9_] become '_', words of the three languages and names of ours are avoided, and
 * clashes get a number. The same program always gets the same names.
 */
#include <ctype.h>
#include <string.h>
#include "codegen/gen.h"

static const char *const RESERVED[] = {
    "auto",    "break",     "case",      "char",     "const",    "continue",  "default",   "do",       "double",
    "else",    "enum",      "extern",    "float",    "for",      "goto",      "if",        "inline",   "int",
    "long",    "register",  "restrict",  "return",   "short",    "signed",    "sizeof",    "static",   "struct",
    "switch",  "typedef",   "union",     "unsigned", "void",     "volatile",  "while",     "bool",     "half",
    "true",    "false",     "asm",       "typeof",   "alignas",  "alignof",   "and",       "or",       "not",
    "xor",     "bitand",    "bitor",     "catch",    "class",    "constexpr", "delete",    "explicit", "export",
    "friend",  "mutable",   "namespace", "new",      "noexcept", "nullptr",   "operator",  "private",  "protected",
    "public",  "template",  "this",      "throw",    "try",      "typeid",    "typename",  "using",    "virtual",
    "wchar_t", "min",       "max",       "abs",      "exp",      "log",       "pow",       "sqrt",     "sin",
    "cos",     "tan",       "tanh",      "erf",      "floor",    "ceil",      "round",     "trunc",    "fabs",
    "fmod",    "printf",    "memcpy",    "memset",   "main",     "uint",      "uchar",     "ushort",   "ulong",
    "kernel",  "global",    "local",     "constant", "event_t",  "sampler_t", "threadIdx", "blockIdx", "blockDim",
    "gridDim", "warpSize",  "select",    "clamp",    "mix",      "step",      "sign",      "dot",      "cross",
    "length",  "distance",  "normalize", "any",      "all",      "args",      "work",      "par",      "pool",
    "env",     "rc",        "isnan",     "signbit",  "index",    "y0",        "y1",        "yn",       "j0",
    "j1",      "jn",        "gamma",     "unix",     "linux",    "I",         "NULL",      "INFINITY", "NAN",
    "M_PI",    "NsParallel"};

static bool reserved(const char *name) {
  for (int i = 0; i < NS_COUNT(RESERVED); i++)
    if (!strcmp(name, RESERVED[i])) return true;
  return false;
}

const char *gen_entry(Arena *a, const char *name) {
  return reserved(name) && strcmp(name, "main") != 0 ? arena_printf(a, "fn_%s", name) : name;
}

const char *gen_fresh(Gen *g, const char *base) {
  StrBuf b;
  sb_init(&b, g->a);
  if (!base[0] || isdigit((unsigned char)base[0]) || base[0] == '_' || !strncmp(base, "ns_", 3)) sb_puts(&b, "v_");
  for (const char *s = base; *s; s++) sb_putc(&b, isalnum((unsigned char)*s) && (unsigned char)*s < 128 ? *s : '_');
  const char *name = sb_str(&b);
  bool clash = maps_get(&g->used, name, 0) != 0 || reserved(name);
  for (int n = 1; clash; n++) {
    const char *next = arena_printf(g->a, "%s_%d", name, n);
    if (!maps_get(&g->used, next, 0)) {
      name = next;
      clash = false;
    }
  }
  maps_set(&g->used, name, 1);
  return name;
}

void gen_var_as(Gen *g, VarId v, const char *text) { vec_note(g->a, &g->names, text, &g->var_name, v); }

const char *gen_var(Gen *g, VarId v) {
  int32_t at = mapu_get(&g->var_name, (uint64_t)v, -1);
  if (at < 0) {
    at = g->names.len;
    gen_var_as(g, v, gen_fresh(g, ir_var_info(g->c, v)->name));
  }
  return g->names.at[at];
}

const char *gen_buf(Gen *g, BufferId b) {
  int32_t at = mapu_get(&g->buf_name, (uint64_t)b, -1);
  if (at < 0) {
    at = g->names.len;
    mapu_set(&g->buf_name, (uint64_t)b, at);
    vec_push(g->a, &g->names, gen_fresh(g, ir_buffer(g->c, b)->name));
  }
  return g->names.at[at];
}
