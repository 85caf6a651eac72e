/* C source -> shared object with the system's compiler, as a subprocess under a deadline. Everything the compiler
 * writes, its own temporaries included, goes to one directory that is removed in all cases. */
#include "base/object.h"
#include "compile/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOG_MAX = 1700, MAX_ARGS = 40, MOST_WORDS = 8 };
/* Vector code is in the text already, so -O3 only makes the compiler slower (24 programs of ResNet-18: 0.33 s each with -O3, 0.2 s
 * with these, the programs take the same time); what loops it should still vectorise, it does under the cost model of -O3. */
static const char *const FLAGS[] = {"-x",
                                    "c",
                                    "-std=gnu11",
                                    "-O2",
                                    "-ftree-vectorize",
                                    "-funswitch-loops",
                                    "-fno-tree-slp-vectorize",
                                    "-fPIC",
                                    "-fno-math-errno",
                                    "-fno-trapping-math",
                                    "-w",
                                    "-pipe"};

static const char *const GCC_FLAGS[] = {"-fvect-cost-model=dynamic",
                                        "-fno-predictive-commoning", /* clang refuses them */
                                        "-ffp-contract=fast"};
static const char *const CLANG_FLAGS[] = {"-ffp-contract=on"}; /* by pragmas, which it does not heed under =fast */

/* What -ffast-math means to arithmetic, without its name: to who links under that name compilers add a constructor that flushes small
 * numbers to zero in the thread that loads the program, in all that this thread computes from then on. */
static const char *const AGGRESSIVE_FLAGS[] = {"-ffinite-math-only", "-fno-signed-zeros", "-fassociative-math",
                                               "-freciprocal-math"};

/* gcc, where it takes AMD's processors for older ones, reads a vector that several sums share from memory for each of them: 4x2 tiles of
 * registers take 1.4 times as long on Zen 4. On other processors with such vectors it is what -march=native says anyway, or close. */
static const char TUNE[] = "-mtune=skylake-avx512";
static bool tunes(const Target *t NS_UNUSED, const char *arch NS_UNUSED) {
#if defined(__x86_64__)
  return !arch && !t->cpu[0] && __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

static bool aggressive(const Target *t) { return t->fast_math == FAST_MATH_AGGRESSIVE; }

static const char *compiler(const BuildOptions *o) {
  const char *cc = o->cc ? o->cc : getenv("CC");
  return cc && *cc ? cc : "cc";
}

#if defined(__x86_64__)
static const char HERE[] = "x86_64";
#elif defined(__i386__)
static const char HERE[] = "i386";
#elif defined(__aarch64__)
static const char HERE[] = "aarch64";
#else
static const char HERE[] = "other";
#endif

/* The processor to make code for: the one that the target names, else this one; NULL: the compiler's own choice, on its way
 * to another architecture. LLVM's "generic" is gcc's "x86-64" on x86. */
static char *processor_flag(Arena *a, const Target *t, const char *arch) {
  if (!arch)
    arch = HERE;
  else if (!t->cpu[0])
    return NULL;
  const char *cpu = t->cpu[0] ? t->cpu : "native";
  bool x64 = strcmp(arch, "x86_64") == 0, x86 = x64 || (arch[0] == 'i' && strcmp(arch + 2, "86") == 0);
  if (x64 && strcmp(cpu, "generic") == 0) cpu = "x86-64";
  return arena_printf(a, "%s=%s", x86 || !t->cpu[0] ? "-march" : "-mcpu", cpu);
}

/* The architecture that a cross compiler's name tells (aarch64-linux-gnu-gcc, clang --target=aarch64-linux-gnu); NULL: this one. */
static const char *foreign(Arena *a, const char *cc) {
  const char *target = strstr(cc, "--target="), *slash = strrchr(cc, '/');
  const char *name = target ? target + strlen("--target=") : slash ? slash + 1 : cc;
  size_t n = strcspn(name, "- \t");
  const char *second = name[n] == '-' ? strchr(name + n + 1, '-') : NULL; /* at least machine-system-gcc */
  if (!second && !target) return NULL;
  char *arch = arena_strndup(a, name, n);
  return strcmp(arch, HERE) == 0 ? NULL : arch;
}

/* $CC may hold words ("ccache gcc"): split at spaces. */
static int words(Arena *a, const char *s, char **out, int max) {
  int n = 0;
  char *copy = arena_strdup(a, s), *save = NULL;
  for (char *w = strtok_r(copy, " \t", &save); w && n < max; w = strtok_r(NULL, " \t", &save)) out[n++] = w;
  return n;
}

/* The processor decides what -march=native means: its name and flags are part of the key. */
static uint64_t processor_hash(void) {
  char line[4096];
  uint64_t h = 0;
  FILE *f = fopen("/proc/cpuinfo", "re");
  if (!f) return 0;
  while (fgets(line, sizeof line, f) && line[0] != '\n')
    if (strncmp(line, "model name", 10) == 0 || strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0)
      h = hash_bytes(line, strlen(line), h);
  fclose(f);
  return h;
}

/* Is the compiler clang under its own or another name? Links are followed: cc is usually one. */
static bool is_clang(Arena *a, char *const *word, int n) {
#ifdef __APPLE__
  return true;
#endif
  char real[PATH_MAX];
  for (int i = 0; i < n; i++) {
    const char *path = spawn_find(a, word[i]);
    if (strstr(word[i], "clang") || (path && realpath(path, real) && strstr(real, "clang"))) return true;
  }
  return false;
}

char *cc_version(Arena *a, const BuildOptions *o) {
  char *w[MOST_WORDS];
  StrBuf b;
  sb_init(&b, a);
  int n = words(a, compiler(o), w, MOST_WORDS);
  for (int i = 0; i < n; i++) {
    struct stat st = {0};
    const char *path = strchr(w[i], '/') ? w[i] : spawn_find(a, w[i]); /* with a slash: files that it reads, too */
    if (path)
      stat(path, &st); /* size and date stand for the version: asking the compiler would cost a process per build */
    sb_printf(&b, "%s:%lld:%lld ", w[i], (long long)st.st_size, (long long)st.st_mtim.tv_sec);
  }
  return sb_str(&b);
}

char *cc_identity(Arena *a, const Target *t, const BuildOptions *o) {
  StrBuf b;
  sb_init(&b, a);
  sb_puts(&b, cc_version(a, o));
  for (int i = 0; i < NS_COUNT(FLAGS); i++) sb_printf(&b, "%s ", FLAGS[i]);
  for (int i = 0; i < NS_COUNT(GCC_FLAGS); i++) sb_printf(&b, "%s ", GCC_FLAGS[i]);
  for (int i = 0; i < NS_COUNT(CLANG_FLAGS); i++) sb_printf(&b, "%s ", CLANG_FLAGS[i]);
  for (int i = 0; i < NS_COUNT(AGGRESSIVE_FLAGS) && aggressive(t); i++) sb_printf(&b, "%s ", AGGRESSIVE_FLAGS[i]);
  sb_printf(&b, "%s %s cpu%016llx", TUNE, processor_flag(a, t, foreign(a, compiler(o))),
            (unsigned long long)processor_hash());
  return sb_str(&b);
}

/* All but those of linking; arch as in build_cc_flags. */
static int flags(Arena *a, const Target *t, const char *arch, bool gcc, char **out) {
  int n = 0;
  char *cpu = processor_flag(a, t, arch);
  for (int i = 0; i < NS_COUNT(FLAGS); i++) out[n++] = arena_strdup(a, FLAGS[i]);
  if (cpu) out[n++] = cpu;
  for (int i = 0; i < NS_COUNT(GCC_FLAGS) && gcc; i++) out[n++] = arena_strdup(a, GCC_FLAGS[i]);
  for (int i = 0; i < NS_COUNT(CLANG_FLAGS) && !gcc; i++) out[n++] = arena_strdup(a, CLANG_FLAGS[i]);
  if (gcc && tunes(t, arch)) out[n++] = arena_strdup(a, TUNE);
  for (int i = 0; i < NS_COUNT(AGGRESSIVE_FLAGS) && aggressive(t); i++) out[n++] = arena_strdup(a, AGGRESSIVE_FLAGS[i]);
  return n;
}

char **build_cc_flags(Arena *a, const Target *t, const char *cc, const char *arch, int *n) {
  char *w[MOST_WORDS], **out = arena_array(a, char *, MAX_ARGS);
  *n = flags(a, t, arch, !is_clang(a, w, words(a, cc, w, MOST_WORDS)), out);
  return out;
}

typedef struct {
  char text[LOG_MAX];
  size_t n;
} Log;

/* Reads the child's output to its end, or to the deadline (false). The beginning of a long log is what helps. */
static bool drain(Err *e, Child *c, Log *log, double end) {
  char chunk[1024];
  for (;;) {
    double left = end - clock_now();
    if (left <= 0) return false;
    struct pollfd p = {c->pipe_fd, POLLIN, 0};
    int r = poll(&p, 1, left > 0.1 ? 100 : (int)(left * 1000) + 1);
    if (e->interrupt && *e->interrupt) return false;
    if (r <= 0) continue;
    ssize_t k = read(c->pipe_fd, chunk, sizeof chunk);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return true;
    size_t take = log->n + (size_t)k < LOG_MAX ? (size_t)k : LOG_MAX - 1 - log->n;
    memcpy(log->text + log->n, chunk, take);
    log->n += take;
    log->text[log->n] = 0;
  }
}

typedef struct {
  Arena *a;
  const Target *t;
  const char *source;
  const BuildOptions *o;
  TmpDir tmp;
  Child child;
  Binary out;
} Job;

/* A driver tells of the signal that ended its compiler; both stand for the compiler. */
static bool was_killed(int status, const Log *log) {
  return (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) || strstr(log->text, "Killed signal terminated");
}
/* Was it the limit of processor time? The first signal says so itself; the second one, to processes that do not heed the
 * first, is the one that the system sends when memory is short: then what was used decides. */
static bool out_of_time(int status, const Log *log, double cpu, double limit) {
  if (strstr(log->text, "CPU time limit exceeded") || (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)) return true;
  return was_killed(status, log) && cpu >= limit;
}

/* gcc: bad value ('x') for '-march=' switch; clang: unknown target CPU 'x', unsupported argument 'x' to option '-mcpu=' */
static bool unknown_processor(const Target *t, const Log *log) {
  return t->cpu[0] && strstr(log->text, t->cpu) &&
         (strstr(log->text, "-march=") || strstr(log->text, "-mcpu=") || strstr(log->text, "unknown target CPU"));
}

static void compile(void *arg) {
  Job *j = arg;
  Err *e = arena_err(j->a);
  char *src = arena_printf(j->a, "%s/program.c", j->tmp.path), *so = arena_printf(j->a, "%s/program.so", j->tmp.path);
  char *argv[MAX_ARGS] = {0}, *text = arena_printf(j->a, "%s%s", j->source, isa_note(j->a));
  file_write(j->a, src, text, strlen(text));
  int n = words(j->a, compiler(j->o), argv, MOST_WORDS);
  n += flags(j->a, j->t, foreign(j->a, compiler(j->o)), !is_clang(j->a, argv, n), argv + n);
  const char *const TAIL[] = {"-shared", "-o", so, src, "-lm"};
  for (int i = 0; i < NS_COUNT(TAIL); i++) argv[n++] = arena_strdup(j->a, TAIL[i]);
  double limit = j->o->timeout_s > 0 ? j->o->timeout_s : 3600, end = clock_now() + limit * BUILD_WALL_FACTOR;
  char why[512];
  if (!j->o->cc && !cc_available(why, sizeof why)) err_raise(e, NS_ERR_RUNTIME, "%s", why);
  const char *const set[] = {arena_printf(j->a, "TMPDIR=%s", j->tmp.path), "LC_ALL=C"};
  j->child = spawn_limited(e, argv, spawn_environment(j->a, NS_COUNT(set), set), limit);
  Log log = {"", 0};
  bool ended = drain(e, &j->child, &log, end);
  err_poll(e);
  int status = ended ? spawn_wait(&j->child, end - clock_now() > 0.5 ? end - clock_now() : 0.5) : -1;
  if (!ended || status == -1 || out_of_time(status, &log, j->child.cpu, limit))
    err_raise(e, NS_ERR_RUNTIME, "timed out: %s took longer than %g s", argv[0], limit);
  if (was_killed(status, &log))
    err_raise(e, NS_ERR_RUNTIME, "%s was killed (signal 9): the machine ran out of memory, or somebody ended it\n%s",
              argv[0], log.text);
  if (WIFSIGNALED(status))
    err_raise(e, NS_ERR_RUNTIME, "%s was ended by signal %d (%s)\n%s", argv[0], WTERMSIG(status),
              strsignal(WTERMSIG(status)), log.text);
  if (WEXITSTATUS(status) != 0 && unknown_processor(j->t, &log))
    err_raise(e, NS_ERR_RUNTIME, "%s does not know the processor '%s' of the target (-mcpu=%s)\n%s", argv[0], j->t->cpu,
              j->t->cpu, log.text);
  if (WEXITSTATUS(status) != 0)
    err_raise(e, strstr(log.text, "No space left") ? NS_ERR_IO : NS_ERR_RUNTIME, "%s failed with status %d\n%s",
              argv[0], WEXITSTATUS(status), log.text);
  j->out.data = file_read(j->a, so, &j->out.n);
  if (!j->out.data) err_raise(e, NS_ERR_IO, "%s wrote no output %s: is the disk full?", argv[0], so);
}

Binary cc_compile(Arena *a, const Target *t, const char *source, const BuildOptions *o) {
  Job j = {a, t, source, o, tmpdir_new(a), NO_CHILD, {0}};
  ErrCode c = err_try(arena_err(a), compile, &j);
  spawn_kill(&j.child);
  tmpdir_free(&j.tmp);
  if (c != NS_OK) err_rethrow(arena_err(a), c);
  return j.out;
}

bool cc_available(char *why, size_t n) {
  const char *cc = compiler(&(BuildOptions){0});
  Err e;
  err_init(&e);
  char first[256];
  snprintf(first, sizeof first, "%.*s", (int)strcspn(cc, " \t"), cc);
  Arena *a = arena_new(&e);
  bool there = spawn_find(a, first) != NULL;
  arena_free(a);
  if (!there)
    snprintf(why, n, "no C compiler: \"%s\" is not in PATH; install gcc (`apt install gcc libc6-dev`) or set CC",
             first);
  else
    snprintf(why, n, "%s", cc);
  return there;
}
