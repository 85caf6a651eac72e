/* What a GPU program takes of the machine, read from the cubin (an ELF file) before it is loaded: registers and stack
 * (local memory: spilled registers and arrays that found no place in registers) per thread, shared memory per block, and
 * from these how many blocks fit on one multiprocessor at a time. NVRTC writes them where its own tools look:
 *   .nv.info              records (format, attribute, size, data): 0x2f registers, 0x11 stack, each (symbol, value)
 *   .nv.info.KERNEL       0x05 and 0x10: threads per block (most, required)
 *   .nv.shared.KERNEL     its size is the static shared memory, from sm_90 on with the KiB that the system takes of each block
 * Fields that are not there stay 0; a program with several kernels reports the worst of each. */
#include "compile/internal.h"
#include <elf.h>
#include <string.h>

enum {
  WITH_DATA = 4,
  A_REGS = 0x2f,
  A_STACK = 0x11,
  A_MAX_THREADS = 0x05,
  A_THREADS = 0x10,
  MAX_KERNELS = 64,
  RESERVED = 1024 /* what sections of sm_90 and later count of the system's share */
};
typedef struct {
  const char *name;
  int regs, stack, shared, threads;
} Info;
typedef struct {
  const unsigned char *at;
  size_t n;
  const Elf64_Shdr *section;
  int count;
  const char *names;
  size_t n_names;
  Info kernel[MAX_KERNELS];
  int n_kernels;
} Cubin;

static bool inside(const Cubin *c, uint64_t from, uint64_t size) { return from <= c->n && size <= c->n - from; }

static bool open_elf(Cubin *c) {
  Elf64_Ehdr h;
  if (c->n < sizeof h) return false;
  memcpy(&h, c->at, sizeof h);
  if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
      h.e_shentsize != sizeof *c->section || h.e_shstrndx >= h.e_shnum || h.e_shoff % 8 ||
      !inside(c, h.e_shoff, (uint64_t)h.e_shnum * sizeof *c->section))
    return false;
  c->section = (const Elf64_Shdr *)(const void *)(c->at + h.e_shoff);
  c->count = h.e_shnum;
  const Elf64_Shdr *s = &c->section[h.e_shstrndx];
  if (!inside(c, s->sh_offset, s->sh_size) || s->sh_size == 0 || c->at[s->sh_offset + s->sh_size - 1] != 0)
    return false;
  c->names = (const char *)c->at + s->sh_offset;
  c->n_names = s->sh_size;
  return true;
}

static const char *name_of(const Cubin *c, const Elf64_Shdr *s) {
  return s->sh_name < c->n_names ? c->names + s->sh_name : "";
}

static Info *kernel_named(Cubin *c, const char *name) {
  for (int i = 0; i < c->n_kernels; i++)
    if (strcmp(c->kernel[i].name, name) == 0) return &c->kernel[i];
  if (c->n_kernels == MAX_KERNELS) return NULL;
  c->kernel[c->n_kernels] = (Info){.name = name};
  return &c->kernel[c->n_kernels++];
}

static Info *kernel_of_symbol(Cubin *c, uint32_t index) {
  for (int i = 0; i < c->count; i++) {
    const Elf64_Shdr *s = &c->section[i], *str = s->sh_link < (uint32_t)c->count ? &c->section[s->sh_link] : NULL;
    Elf64_Sym sym;
    if (s->sh_type != SHT_SYMTAB || !str || !inside(c, s->sh_offset, s->sh_size) ||
        !inside(c, str->sh_offset, str->sh_size) || (uint64_t)(index + 1ULL) * sizeof sym > s->sh_size)
      continue;
    memcpy(&sym, c->at + s->sh_offset + index * sizeof sym, sizeof sym);
    const char *text = (const char *)c->at + str->sh_offset;
    if (sym.st_name >= str->sh_size || text[str->sh_size - 1] != 0 || ELF64_ST_TYPE(sym.st_info) != STT_FUNC)
      return NULL;
    return kernel_named(c, text + sym.st_name);
  }
  return NULL;
}

static uint32_t word(const unsigned char *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return v;
}

static void read_info(Cubin *c, const Elf64_Shdr *s, const char *kernel) {
  const unsigned char *p = c->at + s->sh_offset, *end = p + s->sh_size;
  while (end - p >= 4) {
    int format = p[0], what = p[1];
    size_t size = format == WITH_DATA ? (size_t)(p[2] | p[3] << 8) : 0;
    p += 4;
    if (size > (size_t)(end - p)) return;
    if (!kernel && size == 8 && (what == A_REGS || what == A_STACK)) {
      Info *k = kernel_of_symbol(c, word(p));
      if (k) *(what == A_REGS ? &k->regs : &k->stack) = (int)word(p + 4);
    } else if (kernel && size == 12 && (what == A_MAX_THREADS || what == A_THREADS)) {
      Info *k = kernel_named(c, kernel);
      uint64_t x = word(p), y = word(p + 4), z = word(p + 8);
      if (k && x <= GPU_MAX_THREADS && y <= GPU_MAX_THREADS && z <= GPU_MAX_THREADS && x * y * z <= GPU_MAX_THREADS)
        k->threads = (int)(x * y * z);
    }
    p += size;
  }
}

bool build_report(const Target *t, const void *binary, size_t n, int dynamic_shared, BuildReport *out) {
  Cubin c = {.at = binary, .n = n};
  *out = (BuildReport){0};
  if (t->kind != TG_CUDA || !open_elf(&c)) return false;
  for (int i = 0; i < c.count; i++) {
    const Elf64_Shdr *s = &c.section[i];
    const char *name = name_of(&c, s);
    if (strncmp(name, ".nv.shared.", 11) == 0 && strncmp(name + 11, "reserved", 8) != 0) {
      Info *k = kernel_named(&c, name + 11);
      if (k) k->shared = (int)s->sh_size;
    } else if (strncmp(name, ".nv.info", 8) == 0 && s->sh_type != SHT_NOBITS && inside(&c, s->sh_offset, s->sh_size))
      read_info(&c, s, name[8] == '.' ? name + 9 : NULL);
  }
  out->kernels = c.n_kernels;
  for (int i = 0; i < c.n_kernels; i++) {
    const Info *k = &c.kernel[i];
    int shared = k->shared - (t->gpu.sm >= 90 && k->shared >= RESERVED ? RESERVED : 0);
    if (shared < dynamic_shared) shared = dynamic_shared;
    Occupancy fit = gpu_occupancy(&t->gpu, k->threads, k->regs, shared);
    if (k->regs > out->regs) out->regs = k->regs;
    if (k->stack > out->local_bytes) out->local_bytes = k->stack;
    if (shared > out->shared_bytes) out->shared_bytes = shared;
    if (k->threads > 0 && (!out->threads || fit.occ < out->occupancy))
      out->threads = k->threads, out->blocks = (int)fit.blocks, out->occupancy = fit.occ;
  }
  return c.n_kernels > 0;
}
