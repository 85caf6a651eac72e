/* CUDA C source -> cubin with NVRTC, opened at run time. It is looked for in $NESTSMITH_NVRTC, the toolkit named by
 * $CUDA_HOME or $CUDA_PATH, the loader's path, /usr/local/cuda, and the nvidia-cuda-nvrtc wheel beside this package or
 * in $VIRTUAL_ENV. NVRTC needs no GPU and may be called from several threads. */
#include "compile/internal.h"
#include "base/object.h"
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Program_st *Prog;
#define NVRTC_FUNCS(F)                                                                                                 \
  F(version, "nvrtcVersion", (int *major, int *minor))                                                                 \
  F(arch_count, "nvrtcGetNumSupportedArchs", (int *n))                                                                 \
  F(archs, "nvrtcGetSupportedArchs", (int *list))                                                                      \
  F(create, "nvrtcCreateProgram",                                                                                      \
    (Prog * p, const char *src, const char *name, int n, const char *const *headers, const char *const *names))        \
  F(destroy, "nvrtcDestroyProgram", (Prog * p))                                                                        \
  F(compile, "nvrtcCompileProgram", (Prog p, int n, const char *const *options))                                       \
  F(log_size, "nvrtcGetProgramLogSize", (Prog p, size_t * n))                                                          \
  F(log, "nvrtcGetProgramLog", (Prog p, char *out))                                                                    \
  F(cubin_size, "nvrtcGetCUBINSize", (Prog p, size_t * n))                                                             \
  F(cubin, "nvrtcGetCUBIN", (Prog p, char *out))                                                                       \
  F(ptx_size, "nvrtcGetPTXSize", (Prog p, size_t * n))                                                                 \
  F(ptx, "nvrtcGetPTX", (Prog p, char *out))

typedef struct {
  void *lib;
  char path[PATH_MAX]; /* directory of the library, "" if the loader found it by itself and did not tell */
  int major, minor;
#define DECL(field, symbol, params) int(*field) params;
  NVRTC_FUNCS(DECL)
#undef DECL
} Nvrtc;

static const char *const NAMES[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"};

static void *try_pattern(const char *pattern) {
  glob_t g;
  void *lib = NULL;
  if (glob(pattern, 0, NULL, &g) != 0) return NULL;
  for (size_t i = g.gl_pathc; i-- > 0 && !lib;) lib = dlopen(g.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
  globfree(&g);
  return lib;
}

static void *try_root(const char *root, const char *const *suffix, int n) {
  void *lib = NULL;
  char pattern[PATH_MAX];
  for (int i = 0; root && *root && i < n && !lib; i++)
    if (snprintf(pattern, sizeof pattern, "%s/%s", root, suffix[i]) < (int)sizeof pattern) lib = try_pattern(pattern);
  return lib;
}

static void *find_library(void) {
  static const char *const TOOLKIT[] = {"lib64/libnvrtc.so.1[123]*", "targets/*/lib/libnvrtc.so.1[123]*",
                                        "lib/libnvrtc.so.1[123]*"};
  static const char *const WHEEL[] = {"nvidia/*/lib/libnvrtc.so.1[123]*"};
  static const char *const VENV[] = {"lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.1[123]*"};
  const char *s = getenv("NESTSMITH_NVRTC");
  if (s && *s) return dlopen(s, RTLD_NOW | RTLD_LOCAL); /* who names a library means this one */
  void *lib = try_root(getenv("CUDA_HOME"), TOOLKIT, NS_COUNT(TOOLKIT));
  if (!lib) lib = try_root(getenv("CUDA_PATH"), TOOLKIT, NS_COUNT(TOOLKIT));
  for (int i = 0; i < NS_COUNT(NAMES) && !lib; i++) lib = dlopen(NAMES[i], RTLD_NOW | RTLD_LOCAL);
  if (!lib) lib = try_root("/usr/local/cuda", TOOLKIT, NS_COUNT(TOOLKIT));
  Dl_info self;
  static const char HERE = 0;
  if (!lib && dladdr(&HERE, &self) && self.dli_fname) { /* <site-packages>/nestsmith/_core.so */
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", self.dli_fname);
    for (int up = 0; up < 2; up++) {
      char *slash = strrchr(dir, '/');
      if (slash) *slash = 0;
    }
    lib = try_root(dir, WHEEL, NS_COUNT(WHEEL));
  }
  if (!lib) lib = try_root(getenv("NESTSMITH_SITE"), WHEEL, NS_COUNT(WHEEL)); /* set by the Python package */
  if (!lib) lib = try_root(getenv("VIRTUAL_ENV"), VENV, NS_COUNT(VENV));
  return lib;
}

static bool load(Nvrtc *v, char *why, size_t n) {
  static const LibSymbol TABLE[] = {
#define ROW(field, symbol, params) {offsetof(Nvrtc, field), symbol},
      NVRTC_FUNCS(ROW)
#undef ROW
  };
  v->lib = find_library();
  if (!v->lib) {
    const char *s = getenv("NESTSMITH_NVRTC");
    if (s && *s)
      snprintf(why, n, "NESTSMITH_NVRTC=%s cannot be loaded; unset it or name a libnvrtc.so", s);
    else
      snprintf(why, n,
               "NVRTC not found (looked in $CUDA_HOME, the loader's path, /usr/local/cuda and the nvidia wheels); "
               "install it with `pip install nvidia-cuda-nvrtc-cu12`");
    return false;
  }
  const char *missing = lib_symbols(v->lib, NS_COUNT(TABLE), TABLE, v);
  if (missing) {
    snprintf(why, n, "the NVRTC found lacks %s: version 11.2 or newer is needed; `pip install nvidia-cuda-nvrtc-cu12`",
             missing);
    return false;
  }
  Dl_info where;
  v->path[0] = 0;
  if (dladdr(*(void **)&v->version, &where) && where.dli_fname && realpath(where.dli_fname, v->path)) {
    char *slash = strrchr(v->path, '/');
    if (slash) *slash = 0;
  }
  v->version(&v->major, &v->minor);
  return true;
}

static void need(Arena *a, Nvrtc *v) {
  char why[512];
  if (!load(v, why, sizeof why)) err_raise(arena_err(a), NS_ERR_RUNTIME, "%s", why);
}

bool nvrtc_available(char *why, size_t n) {
  Nvrtc v;
  if (!load(&v, why, n)) return false;
  snprintf(why, n, "NVRTC %d.%d in %s", v.major, v.minor, v.path);
  return true;
}

/* sm_90a instructions exist only for that exact GPU and need their own architecture name. */
static bool wants_a(const Target *t, const char *source) {
  return gpu_has(&t->gpu, GPU_WARPGROUPS) && strstr(source, "wgmma");
}

bool build_sm_range(int *lo, int *hi) {
  Nvrtc v;
  char why[512];
  int n = 0, list[64];
  *lo = *hi = 0;
  if (!load(&v, why, sizeof why) || v.arch_count(&n) != 0 || n < 1 || n > 64 || v.archs(list) != 0) return false;
  *lo = list[0];
  *hi = list[n - 1]; /* NVRTC lists them in ascending order */
  return true;
}

typedef struct {
  const char *option;
  bool ptx;
} Arch;

static Arch architecture(Arena *a, const Nvrtc *v, const Target *t, const char *source) {
  int n = 0, list[64], lo = INT_MAX, hi = 0;
  if (v->arch_count(&n) != 0 || n < 1 || n > 64 || v->archs(list) != 0)
    err_raise(arena_err(a), NS_ERR_RUNTIME, "NVRTC %d.%d does not list its architectures", v->major, v->minor);
  bool known = false;
  for (int i = 0; i < n; i++) {
    known |= list[i] == t->gpu.sm;
    lo = list[i] < lo ? list[i] : lo;
    hi = list[i] > hi ? list[i] : hi;
  }
  if (known)
    return (Arch){arena_printf(a, "--gpu-architecture=sm_%d%s", t->gpu.sm, wants_a(t, source) ? "a" : ""), false};
  if (t->gpu.sm > hi) return (Arch){arena_printf(a, "--gpu-architecture=compute_%d", hi), true};
  err_raise(arena_err(a), NS_ERR_VALUE, "NVRTC %d.%d cannot compile for sm_%d; it knows sm_%d to sm_%d", v->major,
            v->minor, t->gpu.sm, lo, hi);
}

static int include_options(Arena *a, const Nvrtc *v, const char *source, const char **out) {
  static const char *const REL[] = {"../include", "../../include", "../../../include", "../../cuda_runtime/include"};
  int n = 0;
  if (!strstr(source, "#include")) return 0;
  for (int i = 0; i < NS_COUNT(REL); i++) {
    char *dir = arena_printf(a, "%s/%s", v->path, REL[i]);
    if (access(arena_printf(a, "%s/cuda_fp16.h", dir), R_OK) == 0) out[n++] = arena_printf(a, "--include-path=%s", dir);
  }
  const char *home = getenv("CUDA_HOME");
  if (home && *home) out[n++] = arena_printf(a, "--include-path=%s/include", home);
  return n;
}

char *nvrtc_identity(Arena *a, const Target *t, const char *source) {
  Nvrtc v;
  need(a, &v);
  return arena_printf(a, "nvrtc %d.%d %s fast%d", v.major, v.minor, architecture(a, &v, t, source).option,
                      t->fast_math == FAST_MATH_AGGRESSIVE);
}

typedef struct {
  Arena *a;
  Nvrtc *v;
  Prog p;
  const char *source;
  const Target *t;
  Binary out;
} Job;

static void run(void *arg) {
  Job *j = arg;
  Nvrtc *v = j->v;
  Err *e = arena_err(j->a);
  const char *opt[16];
  int n = 0;
  Arch arch = architecture(j->a, v, j->t, j->source);
  opt[n++] = arch.option;
  opt[n++] = "--std=c++17";
  opt[n++] = "--disable-warnings";
  if (j->t->fast_math == FAST_MATH_AGGRESSIVE) opt[n++] = "--use_fast_math";
  n += include_options(j->a, v, j->source, opt + n);
  if (v->create(&j->p, j->source, "program.cu", 0, NULL, NULL) != 0)
    err_raise(e, NS_ERR_RUNTIME, "NVRTC cannot create a program");
  int r = v->compile(j->p, n, opt);
  size_t len = 0;
  if (r != 0) {
    char *log = arena_strdup(j->a, "(no log)");
    if (v->log_size(j->p, &len) == 0 && len > 1) {
      log = arena_alloc(j->a, len + 1);
      v->log(j->p, log);
    }
    err_raise(e, NS_ERR_RUNTIME, "NVRTC failed with error %d\n%.1700s", r, log);
  }
  r = arch.ptx ? v->ptx_size(j->p, &len) : v->cubin_size(j->p, &len);
  if (r == 0) {
    j->out.data = arena_alloc(j->a, len + 1);
    j->out.n = len;
    r = arch.ptx ? v->ptx(j->p, j->out.data) : v->cubin(j->p, j->out.data);
  }
  if (r != 0 || len == 0) err_raise(e, NS_ERR_RUNTIME, "NVRTC gave no program (error %d)", r);
}

Binary nvrtc_compile(Arena *a, const Target *t, const char *source) {
  Nvrtc v;
  need(a, &v);
  Job j = {a, &v, NULL, source, t, {0}};
  ErrCode c = err_try(arena_err(a), run, &j);
  if (j.p) v.destroy(&j.p);
  if (c != NS_OK) err_rethrow(arena_err(a), c);
  return j.out;
}
