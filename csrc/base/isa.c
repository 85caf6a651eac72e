/* Instructions that a processor may or may not have, and that compilers use unasked. Of those that need an intrinsic or
 * inline assembly (AES, AMX, transactions) there are only rows that the engine itself asks for, without a macro: a program is
 * not refused for what it does not contain.
 *
 * Asked is the processor, as the compiler asks it for -march=native, and the system, which has to save the registers; not
 * /proc/cpuinfo, where an old kernel does not list what a new processor has. A new instruction set is one row. */
#include "base/object.h"
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#define IS_X86 1
#include <cpuid.h>
#else
#define IS_X86 0
#endif
#if defined(__aarch64__) && defined(__linux__)
#define IS_ARM 1
#include <sys/auxv.h>
#else
#define IS_ARM 0
#endif

typedef enum { X86, ARM } Family;
/* Where the processor tells of it. x86: leaf of cpuid, register and bit; which registers the system has to save; the first
 * level of x86-64 that has it, 0: none. ARM: word of the auxiliary vector (1: HWCAP, 2: HWCAP2) and bit. */
enum { L1, L7, L7_1, L80, LEAVES };
enum { EAX, EBX, ECX, EDX };
enum { S_NONE, S_AVX, S_AVX512, S_APX };
typedef struct {
  const char *name, *macro;
  Family family;
  int leaf, reg, bit, saved, level;
} Row;
static const Row ROWS[] = {
    {"sse3", "__SSE3__", X86, L1, ECX, 0, S_NONE, 2},
    {"ssse3", "__SSSE3__", X86, L1, ECX, 9, S_NONE, 2},
    {"sse4.1", "__SSE4_1__", X86, L1, ECX, 19, S_NONE, 2},
    {"sse4.2", "__SSE4_2__", X86, L1, ECX, 20, S_NONE, 2},
    {"popcnt", "__POPCNT__", X86, L1, ECX, 23, S_NONE, 2},
    {"movbe", "__MOVBE__", X86, L1, ECX, 22, S_NONE, 3},
    {"avx", "__AVX__", X86, L1, ECX, 28, S_AVX, 3},
    {"f16c", "__F16C__", X86, L1, ECX, 29, S_AVX, 3},
    {"fma", "__FMA__", X86, L1, ECX, 12, S_AVX, 3},
    {"lzcnt", "__LZCNT__", X86, L80, ECX, 5, S_NONE, 3},
    {"bmi", "__BMI__", X86, L7, EBX, 3, S_NONE, 3},
    {"bmi2", "__BMI2__", X86, L7, EBX, 8, S_NONE, 3},
    {"avx2", "__AVX2__", X86, L7, EBX, 5, S_AVX, 3},
    {"avx512f", "__AVX512F__", X86, L7, EBX, 16, S_AVX512, 4},
    {"avx512cd", "__AVX512CD__", X86, L7, EBX, 28, S_AVX512, 4},
    {"avx512dq", "__AVX512DQ__", X86, L7, EBX, 17, S_AVX512, 4},
    {"avx512bw", "__AVX512BW__", X86, L7, EBX, 30, S_AVX512, 4},
    {"avx512vl", "__AVX512VL__", X86, L7, EBX, 31, S_AVX512, 4},
    {"avx512er", "__AVX512ER__", X86, L7, EBX, 27, S_AVX512, 0},
    {"avx512ifma", "__AVX512IFMA__", X86, L7, EBX, 21, S_AVX512, 0},
    {"avx512vbmi", "__AVX512VBMI__", X86, L7, ECX, 1, S_AVX512, 0},
    {"avx512vbmi2", "__AVX512VBMI2__", X86, L7, ECX, 6, S_AVX512, 0},
    {"avx512vnni", "__AVX512VNNI__", X86, L7, ECX, 11, S_AVX512, 0},
    {"avx512bitalg", "__AVX512BITALG__", X86, L7, ECX, 12, S_AVX512, 0},
    {"avx512vpopcntdq", "__AVX512VPOPCNTDQ__", X86, L7, ECX, 14, S_AVX512, 0},
    {"avx512fp16", "__AVX512FP16__", X86, L7, EDX, 23, S_AVX512, 0},
    {"avx512bf16", "__AVX512BF16__", X86, L7_1, EAX, 5, S_AVX512, 0},
    {"gfni", "__GFNI__", X86, L7, ECX, 8, S_NONE, 0},
    {"avxvnni", "__AVXVNNI__", X86, L7_1, EAX, 4, S_AVX, 0},
    {"avxifma", "__AVXIFMA__", X86, L7_1, EAX, 23, S_AVX, 0},
    {"avxvnniint8", "__AVXVNNIINT8__", X86, L7_1, EDX, 4, S_AVX, 0},
    {"avxvnniint16", "__AVXVNNIINT16__", X86, L7_1, EDX, 10, S_AVX, 0},
    {"avxneconvert", "__AVXNECONVERT__", X86, L7_1, EDX, 5, S_AVX, 0},
    {"apx", "__APX_F__", X86, L7_1, EDX, 21, S_APX, 0},
    {"sha", NULL, X86, L7, EBX, 29, S_NONE, 0},
    {"fma4", "__FMA4__", X86, L80, ECX, 16, S_AVX, 0},
    {"xop", "__XOP__", X86, L80, ECX, 11, S_AVX, 0},
    {"tbm", "__TBM__", X86, L80, ECX, 21, S_NONE, 0},
    {"sha2", NULL, ARM, 1, 0, 6, 0, 0},
    {"crc", "__ARM_FEATURE_CRC32", ARM, 1, 0, 7, 0, 0},
    {"lse", "__ARM_FEATURE_ATOMICS", ARM, 1, 0, 8, 0, 0},
    {"fp16", "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC", ARM, 1, 0, 10, 0, 0},
    {"rdma", "__ARM_FEATURE_QRDMX", ARM, 1, 0, 12, 0, 0},
    {"fcma", "__ARM_FEATURE_COMPLEX", ARM, 1, 0, 14, 0, 0},
    {"dotprod", "__ARM_FEATURE_DOTPROD", ARM, 1, 0, 20, 0, 0},
    {"sve", "__ARM_FEATURE_SVE", ARM, 1, 0, 22, 0, 0},
    {"fp16fml", "__ARM_FEATURE_FP16_FML", ARM, 1, 0, 23, 0, 0},
    {"sve2", "__ARM_FEATURE_SVE2", ARM, 2, 0, 1, 0, 0},
    {"frint", "__ARM_FEATURE_FRINT", ARM, 2, 0, 8, 0, 0},
    {"i8mm", "__ARM_FEATURE_MATMUL_INT8", ARM, 2, 0, 13, 0, 0},
    {"bf16", "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC", ARM, 2, 0, 14, 0, 0},
    {"mops", "__ARM_FEATURE_MOPS", ARM, 2, 0, 43, 0, 0},
};

char *isa_note(Arena *a) {
  StrBuf b;
  sb_init(&b, a);
  sb_puts(&b, "\n__attribute__((used, weak, visibility(\"default\"))) const char " ISA_NOTE "[] = \"\"\n");
  for (int i = 0; i < NS_COUNT(ROWS); i++)
    if (ROWS[i].macro) sb_printf(&b, "#ifdef %s\n\" %s\"\n#endif\n", ROWS[i].macro, ROWS[i].name);
  sb_puts(&b, ";\n");
  return sb_str(&b);
}

/* ---- this processor ---- */
typedef struct {
  uint32_t reg[LEAVES][4];
  uint64_t saved; /* XCR0 */
  unsigned long hwcap[3];
} Cpu;

#if IS_X86
static uint64_t saved_registers(void) {
  uint32_t lo, hi;
  __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (uint64_t)hi << 32 | lo;
}
static void ask(Cpu *c) {
  static const uint32_t LEAF[LEAVES][2] = {[L1] = {1, 0}, [L7] = {7, 0}, [L7_1] = {7, 1}, [L80] = {0x80000001, 0}};
  for (int i = 0; i < LEAVES; i++)
    __get_cpuid_count(LEAF[i][0], LEAF[i][1], &c->reg[i][EAX], &c->reg[i][EBX], &c->reg[i][ECX], &c->reg[i][EDX]);
  if (c->reg[L1][ECX] >> 27 & 1) c->saved = saved_registers(); /* OSXSAVE */
}
#elif IS_ARM
static void ask(Cpu *c) {
  c->hwcap[1] = getauxval(AT_HWCAP);
  c->hwcap[2] = getauxval(AT_HWCAP2);
}
#else
static void ask(Cpu *c) { (void)c; }
#endif

static bool has(const Cpu *c, const Row *r) {
  static const uint64_t SAVED[] = {[S_AVX] = 6, [S_AVX512] = 0xe6, [S_APX] = 1 << 19};
  if (r->family == X86)
    return IS_X86 && (c->reg[r->leaf][r->reg] >> r->bit & 1) && (c->saved & SAVED[r->saved]) == SAVED[r->saved];
  return IS_ARM && ((uint64_t)c->hwcap[r->leaf] >> r->bit & 1);
}

bool isa_missing(const char *list, char *out, size_t n) {
  Cpu c = {0};
  ask(&c);
  out[0] = 0;
  for (const char *s = list + strspn(list, " "); *s;) {
    size_t len = strcspn(s, " "), used = strlen(out);
    const Row *r = NULL;
    for (int i = 0; i < NS_COUNT(ROWS); i++)
      if (strlen(ROWS[i].name) == len && memcmp(ROWS[i].name, s, len) == 0) r = &ROWS[i];
    if (!r || !has(&c, r)) snprintf(out + used, n - used, "%s%.*s", used ? ", " : "", (int)len, s);
    s += len;
    s += strspn(s, " ");
  }
  return out[0] != 0;
}

const char *isa_portable(void) {
  static const char *const LEVEL[] = {"generic", "generic", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  Cpu c = {0};
  int level = IS_X86 ? NS_COUNT(LEVEL) - 1 : 0;
  ask(&c);
  for (int i = 0; i < NS_COUNT(ROWS); i++)
    if (ROWS[i].level > 1 && ROWS[i].level <= level && !has(&c, &ROWS[i])) level = ROWS[i].level - 1;
  return LEVEL[level];
}
