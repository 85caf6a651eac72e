/* Reading shared objects (ELF) from memory. Every place that a header names is compared with the number of bytes that
 * there are before it is read, so any bytes may be given.
 *
 * What is checked is what the loader maps (segments) and what linkers put last (sections): a file that an interrupted
 * copy cut anywhere lacks part of one of them. */
#include "base/object.h"
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <dlfcn.h>
#include <string.h>

typedef struct {
  const unsigned char *at;
  size_t n;
  ElfW(Ehdr) head;
} Image;

static const struct {
  int machine;
  const char *name;
} MACHINES[] = {{EM_X86_64, "x86_64"}, {EM_AARCH64, "aarch64"}, {EM_386, "i386"}, {EM_ARM, "arm"},
                {EM_RISCV, "riscv"},   {EM_PPC64, "ppc64"},     {EM_S390, "s390"}};
#if defined(__x86_64__)
enum { HERE = EM_X86_64 };
#elif defined(__aarch64__)
enum { HERE = EM_AARCH64 };
#elif defined(__i386__)
enum { HERE = EM_386 };
#elif defined(__arm__)
enum { HERE = EM_ARM };
#elif defined(__riscv)
enum { HERE = EM_RISCV };
#else
enum { HERE = EM_NONE }; /* not compared */
#endif

static const char *machine_name(int machine) {
  for (int i = 0; i < NS_COUNT(MACHINES); i++)
    if (MACHINES[i].machine == machine) return MACHINES[i].name;
  return "another machine";
}

static bool inside(const Image *m, uint64_t at, uint64_t n) { return at <= m->n && n <= m->n - at; }

static bool get(const Image *m, uint64_t at, void *out, size_t n) {
  if (!inside(m, at, n)) return false;
  memcpy(out, m->at + at, n);
  return true;
}

static bool open_image(Image *m, const void *image, size_t n) {
  static const char WORD = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
  m->at = image;
  m->n = n;
  if (!get(m, 0, &m->head, sizeof m->head) || memcmp(m->head.e_ident, ELFMAG, SELFMAG) != 0) return false;
  return m->head.e_ident[EI_CLASS] == WORD && m->head.e_phentsize == sizeof(ElfW(Phdr)) &&
         (m->head.e_shnum == 0 || m->head.e_shentsize == sizeof(ElfW(Shdr)));
}

static bool segment(const Image *m, int i, ElfW(Phdr) * out) {
  return get(m, m->head.e_phoff + (uint64_t)i * sizeof *out, out, sizeof *out);
}
static bool section(const Image *m, int i, ElfW(Shdr) * out) {
  return get(m, m->head.e_shoff + (uint64_t)i * sizeof *out, out, sizeof *out);
}

/* ---- the check ---- */
static void check_machine(Err *e, const ElfW(Ehdr) * h, const char *what) {
  if (HERE == EM_NONE ||
      (h->e_machine == HERE && h->e_ident[EI_CLASS] == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)))
    return;
  err_raise(e, NS_ERR_RUNTIME,
            "%s was made for %s, this machine is %s: build it here, or for this machine (target option -mtriple)", what,
            machine_name(h->e_machine), machine_name(HERE));
}

/* The loader maps whole pages of segments, in ascending order, and reads the dynamic one. */
static const char *check_segments(const Image *m) {
  bool dynamic = false;
  uint64_t end = 0;
  int loaded = 0;
  for (int i = 0; i < m->head.e_phnum; i++) {
    ElfW(Phdr) p;
    if (!segment(m, i, &p)) return "its headers are cut";
    if (p.p_type == PT_LOAD || p.p_type == PT_DYNAMIC)
      if (!inside(m, p.p_offset, p.p_filesz)) return "its end is missing";
    if (p.p_type == PT_DYNAMIC) dynamic = true;
    if (p.p_type != PT_LOAD) continue;
    bool order =
        p.p_vaddr >= end && p.p_memsz >= p.p_filesz && p.p_memsz < (uint64_t)1 << 40 && p.p_vaddr < (uint64_t)1 << 40;
    if (!order || (p.p_align > 1 && (p.p_align & (p.p_align - 1) || (p.p_vaddr - p.p_offset) % p.p_align)))
      return "its segments make no sense";
    end = p.p_vaddr + p.p_memsz;
    loaded++;
  }
  return loaded && dynamic ? NULL : "it is no shared object";
}

static const char *check_sections(const Image *m) {
  for (int i = 0; i < m->head.e_shnum; i++) {
    ElfW(Shdr) s;
    if (!section(m, i, &s) || (s.sh_type != SHT_NOBITS && !inside(m, s.sh_offset, s.sh_size)))
      return "its end is missing";
  }
  return NULL;
}

void object_check(Err *e, const void *image, size_t n, const char *what) {
  Image m;
  char missing[400];
  size_t len;
  bool elf = n > SELFMAG && memcmp(image, ELFMAG, SELFMAG) == 0, whole = open_image(&m, image, n);
  if (elf && n >= sizeof m.head) check_machine(e, &m.head, what);
  const char *why = !elf                      ? "it is no shared object"
                    : !whole                  ? "its headers are cut"
                    : m.head.e_type != ET_DYN ? "it is no shared object"
                                              : check_segments(&m);
  if (!why) why = check_sections(&m);
  if (why) err_raise(e, NS_ERR_VALUE, "%s is damaged: %s (%zu bytes); was a copy interrupted?", what, why, n);
  const char *list = object_variable(image, n, ISA_NOTE, &len);
  if (list && len > 0 && list[len - 1] == 0 && isa_missing(list, missing, sizeof missing))
    err_raise(
        e, NS_ERR_RUNTIME,
        "%s needs a processor with %s, which this one lacks: build it here, or with target \"llvm -mcpu=%s\" (the "
        "default, -march=native, is the machine that builds)",
        what, missing, isa_portable());
}

/* ---- variables ---- */
static const void *bytes_of(const Image *m, const ElfW(Sym) * s) {
  for (int i = 0; i < m->head.e_phnum; i++) {
    ElfW(Phdr) p;
    if (!segment(m, i, &p) || p.p_type != PT_LOAD || s->st_value < p.p_vaddr) continue;
    uint64_t skip = s->st_value - p.p_vaddr;
    if (skip <= p.p_filesz && s->st_size <= p.p_filesz - skip && inside(m, p.p_offset, p.p_filesz))
      return m->at + p.p_offset + skip;
  }
  return NULL;
}

const void *object_variable(const void *image, size_t n, const char *name, size_t *size) {
  Image m;
  ElfW(Shdr) table, text;
  *size = 0;
  if (!open_image(&m, image, n)) return NULL;
  for (int i = 0; i < m.head.e_shnum; i++) {
    if (!section(&m, i, &table) || table.sh_type != SHT_DYNSYM || !section(&m, (int)table.sh_link, &text)) continue;
    for (uint64_t k = 1; k < table.sh_size / sizeof(ElfW(Sym)); k++) {
      ElfW(Sym) s;
      size_t len = strlen(name) + 1;
      if (!get(&m, table.sh_offset + k * sizeof s, &s, sizeof s)) break;
      if (s.st_shndx == SHN_UNDEF || s.st_name > text.sh_size || len > text.sh_size - s.st_name ||
          !inside(&m, text.sh_offset, text.sh_size) || memcmp(m.at + text.sh_offset + s.st_name, name, len) != 0)
        continue;
      *size = (size_t)s.st_size;
      return bytes_of(&m, &s);
    }
  }
  return NULL;
}

bool object_runs(const void *image, size_t n) {
  Image m;
  size_t len;
  char missing[16];
  if (!open_image(&m, image, n) || (HERE != EM_NONE && m.head.e_machine != HERE)) return false;
  const char *list = object_variable(image, n, ISA_NOTE, &len);
  return !list || !len || list[len - 1] || !isa_missing(list, missing, sizeof missing);
}

const char *lib_symbols(void *lib, int n, const LibSymbol *table, void *api) {
  const char *missing = NULL;
  for (int i = 0; i < n; i++) {
    void *f = dlsym(lib, table[i].symbol);
    if (!f && !missing) missing = table[i].symbol;
    memcpy((char *)api + table[i].at, &f, sizeof f);
  }
  return missing;
}
