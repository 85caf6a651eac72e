/* Types and literals per target (spec 07 §7.5.1, §7.5.3). A type has two faces: what a value is in a register and what
 * an element is in memory. They differ for bool (one byte in memory) and for the 16-bit floats, which are kept as 16
 * bits in memory and computed in float32: more exact than 16-bit arithmetic, and no vendor header is needed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "codegen/gen.h"

typedef struct {
  uint8_t code, bits;
  const char *value[3], *vec[2], *storage[3];
} TypeRow; /* by TargetKind; vec: stems of CUDA's and OpenCL's; storage: where it is not that of a value */
static const TypeRow TYPES[] = {
    {DT_UINT, 1, {"int", "bool", "int"}, {"uchar", "uchar"}, {"uint8_t", "unsigned char", "uchar"}},
    {DT_INT, 8, {"int8_t", "signed char", "char"}, {"char", "char"}, {NULL}},
    {DT_INT, 16, {"int16_t", "short", "short"}, {"short", "short"}, {NULL}},
    {DT_INT, 32, {"int32_t", "int", "int"}, {"int", "int"}, {NULL}},
    {DT_INT, 64, {"int64_t", "long long", "long"}, {"longlong", "long"}, {NULL}},
    {DT_UINT, 8, {"uint8_t", "unsigned char", "uchar"}, {"uchar", "uchar"}, {NULL}},
    {DT_UINT, 16, {"uint16_t", "unsigned short", "ushort"}, {"ushort", "ushort"}, {NULL}},
    {DT_UINT, 32, {"uint32_t", "unsigned int", "uint"}, {"uint", "uint"}, {NULL}},
    {DT_UINT, 64, {"uint64_t", "unsigned long long", "ulong"}, {"ulonglong", "ulong"}, {NULL}},
    {DT_FLOAT, 16, {"float", "float", "float"}, {"ushort", "ushort"}, {"uint16_t", "unsigned short", "ushort"}},
    {DT_BFLOAT, 16, {"float", "float", "float"}, {"ushort", "ushort"}, {"uint16_t", "unsigned short", "ushort"}},
    {DT_FLOAT, 32, {"float", "float", "float"}, {"float", "float"}, {NULL}},
    {DT_FLOAT, 64, {"double", "double", "double"}, {"double", "double"}, {NULL}}};

static const TypeRow *row(Gen *g, DType t) {
  for (int i = 0; i < NS_COUNT(TYPES); i++)
    if (TYPES[i].code == t.code && TYPES[i].bits == t.bits) return &TYPES[i];
  StrBuf b;
  sb_init(&b, g->a);
  dtype_print(&b, t);
  err_raise(g->err, NS_ERR_TYPE,
            "no code can be generated for the type %s; use a float, int, uint or bool type of 8 to 64 bits",
            sb_str(&b));
}

const char *gen_type(Gen *g, DType t) { return row(g, t)->value[g->t->kind]; }
const char *gen_storage(Gen *g, DType t) {
  const char *own = row(g, t)->storage[g->t->kind];
  return own ? own : gen_type(g, t);
}
/* C: signed integers that a program keeps to itself are unsigned in memory. Their sums are formed unsigned, and gcc 12 drops half of the
 * terms of two such sums side by side, if the variables that they go to are signed (-O2, four lanes). */
static bool kept_unsigned(const Gen *g, BufferId b) {
  DType t = ir_buffer(g->c, b)->type;
  if (g->t->kind != TG_CPU || t.code != DT_INT || t.bits < 32) return false;
  for (int i = 0; i < g->p->f.n_args; i++)
    if (g->p->f.arg[i] == b) return false;
  for (int i = 0; i < g->p->n_work; i++)
    if (g->p->work[i] == b) return false;
  return true;
}
const char *gen_buffer_storage(Gen *g, BufferId b) {
  DType t = dtype_lanes(ir_buffer(g->c, b)->type, 1);
  if (kept_unsigned(g, b)) t.code = DT_UINT;
  return gen_storage(g, t);
}
const char *gen_signed_again(Gen *g, BufferId b) {
  return kept_unsigned(g, b) ? arena_printf(g->a, "(%s)", gen_type(g, dtype_lanes(ir_buffer(g->c, b)->type, 1))) : "";
}
bool gen_is_small_float(DType t) { return t.bits == 16 && dtype_is_float(t); }

const char *gen_vec_storage(Gen *g, DType t, int lanes, int lane, const char **access) {
  static const char *const XYZW[] = {".x", ".y", ".z", ".w"};
  int bytes = dtype_bytes(dtype_lanes(t, 1)) * lanes;
  if (g->t->kind == TG_CPU || bytes > g->t->max_vector_bytes || (lanes & (lanes - 1)) || lanes < 2) return NULL;
  bool cuda = g->t->kind == TG_CUDA;
  if (cuda && lanes > 4) return NULL;
  if (lanes <= 4)
    *access = XYZW[lane];
  else
    *access = arena_printf(g->a, ".s%x", (unsigned)lane);
  return arena_printf(g->a, "%s%d", row(g, t)->vec[cuda ? 0 : 1], lanes);
}

void gen_int(Gen *g, DType t, int64_t v) {
  bool u = t.code == DT_UINT, wide = t.bits == 64, cl = g->t->kind == TG_OPENCL;
  const char *suffix = !wide ? (u ? "u" : "") : u ? (cl ? "UL" : "ULL") : cl ? "L" : "LL";
  if (dtype_is_bool(t))
    sb_puts(g->o, g->t->kind == TG_CUDA ? (v ? "true" : "false") : (v ? "1" : "0"));
  else if (u)
    sb_printf(g->o, "((%s)%llu%s)", gen_type(g, t), (unsigned long long)v, suffix);
  else if (wide && v == INT64_MIN)
    sb_printf(g->o, "(-9223372036854775807%s - 1)", suffix);
  else if (t.bits == 32 && v == INT32_MIN)
    sb_puts(g->o, "(-2147483647 - 1)");
  else if (t.bits == 32)
    sb_printf(g->o, v < 0 ? "(%lld)" : "%lld", (long long)v);
  else
    sb_printf(g->o, "((%s)%lld%s)", gen_type(g, t), (long long)v, suffix);
}

/* The shortest of 6, 9 and 17 significant digits that reads back as the same number. */
static void decimal(Gen *g, double v, bool f32) {
  char text[64];
  const int digits[] = {6, 9, 17};
  for (int i = 0; i < 3; i++) {
    snprintf(text, sizeof text, "%.*g", digits[i], v); /* strtod reads what this locale writes */
    if (f32 ? strtof(text, NULL) == (float)v : strtod(text, NULL) == v) break;
  }
  for (char *s = text; *s; s++)
    if (*s == ',') *s = '.';
  bool plain = strpbrk(text, ".e") == NULL;
  sb_printf(g->o, v < 0 || (v == 0 && signbit(v)) ? "(%s%s%s)" : "%s%s%s", text, plain ? ".0" : "", f32 ? "f" : "");
}

void gen_flt(Gen *g, DType t, double v) {
  static const char *const NOT_A_NUMBER[3][2] = {
      {"__builtin_nan(\"\")", "__builtin_nanf(\"\")"},
      {"__longlong_as_double(0x7fffffffffffffffLL)", "__int_as_float(0x7fffffff)"},
      {"((double)NAN)", "((float)NAN)"}};
  static const char *const INFINITE[3][2] = {
      {"__builtin_inf()", "__builtin_inff()"},
      {"__longlong_as_double(0x7ff0000000000000LL)", "__int_as_float(0x7f800000)"},
      {"((double)INFINITY)", "((float)INFINITY)"}};
  bool f32 = t.bits <= 32;
  if (isnan(v))
    sb_puts(g->o, NOT_A_NUMBER[g->t->kind][f32]);
  else if (isinf(f32 ? (double)(float)v : v))
    sb_printf(g->o, v < 0 ? "(-%s)" : "%s", INFINITE[g->t->kind][f32]);
  else
    decimal(g, f32 ? (double)(float)v : v, f32);
}
