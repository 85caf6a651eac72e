/* compile: source text -> binary. NVRTC and clBuildProgram are opened at run time, the CPU uses the system C compiler.
 * Results are cached on disk by content (source, target, compiler version, flags). Spec 05 §7.3-4, 07 §7.5.7.
 */
#ifndef NS_COMPILE_H
#define NS_COMPILE_H
#include "base/machine.h"
#include "base/base.h"
/* CPU: the bytes of a shared object. CUDA: a cubin (PTX text if the GPU is newer than the installed NVRTC). OpenCL: the
 * source itself; the driver compiles it when it is loaded, which measuring does in a worker under a deadline. */
typedef struct {
  void *data;
  size_t n;
  double seconds;
  bool cached;
} Binary;
typedef struct BuildCache BuildCache;
/* timeout_s <= 0: none. It is processor time of the compiler (and BUILD_WALL_FACTOR times as much on the clock), so that a
 * busy machine fails no candidate. It ends a C compiler; NVRTC runs inside the process and is only ended by ending that
 * (measure does so). cache_dir NULL: $NESTSMITH_CACHE_DIR or ~/.cache/nestsmith, "": neither disk nor memory. cc NULL: $CC
 * or cc. memory may be NULL. */
typedef struct {
  double timeout_s;
  const char *cache_dir;
  const char *cc;
  BuildCache *memory;
} BuildOptions;
enum { BUILD_WALL_FACTOR = 4 };
/* Raises NS_ERR_RUNTIME with the compiler's log; "timed out" begins the message of a timeout; NS_ERR_IO when the disk
 * is full. May be called from several threads at once, each with its own arena. o may be NULL. */
Binary build_binary(Arena *a, const Target *t, const char *source, const BuildOptions *o);
/* The flags with which the compiler cc makes such programs, without those of linking. arch: what cc makes programs for, NULL:
 * this machine. A program gets isa_note behind its text. */
char **build_cc_flags(Arena *a, const Target *t, const char *cc, const char *arch, int *n);
/* Raises what object_check raises if this machine cannot run programs of the target: before thousands of them are made. */
void build_check_here(Arena *a, const Target *t, const BuildOptions *o);
/* The program, if it was compiled before. Raises only if the compiler, whose version is part of the key, is missing. */
bool build_cached(Arena *a, const Target *t, const char *source, const BuildOptions *o, Binary *out);
bool build_available(const Target *t, char *why,
                     size_t n); /* never raises; why: what was looked for and how to install it; else the version */

/* ---- binaries of this process (memory.c); all may be called from several threads ---- */
BuildCache *build_cache_new(size_t limit); /* limit in bytes; NULL when out of memory */
void build_cache_free(BuildCache *c);
/* build_binary does both; for who compiles elsewhere. Nothing happens if o or o->memory is NULL. Neither raises. */
bool build_recall(Arena *a, const Target *t, const char *source, const BuildOptions *o, Binary *out);
void build_remember(Arena *a, const Target *t, const char *source, const BuildOptions *o, const Binary *b);

/* After a process that compiled was killed: removes the entry of the cache that it was writing (cache.c). */
void build_clean(Arena *a, const BuildOptions *o, int pid);

/* ---- what a program takes of a GPU (report.c): the worst of its kernels ---- */
typedef struct {
  int kernels, regs, local_bytes, shared_bytes; /* registers and local memory per thread, shared memory per block */
  int threads, blocks; /* per block; blocks that fit on a multiprocessor at a time: 0 cannot run. Both 0: not known */
  double occupancy; /* share of a multiprocessor's threads that these blocks are */
} BuildReport;
bool build_report(const Target *t, const void *binary, size_t n, int dynamic_shared, BuildReport *out); /* false: no cubin */
/* Programs are compiled under one name, so that equal ones share a binary whatever they are called. In a cubin or PTX text the
 * name is replaced in place; name must not be longer than PROGRAM_NAME. Libraries of CPU programs keep PROGRAM_NAME. */
void build_rename(void *binary, size_t n, const char *name);

bool build_sm_range(int *lo,
                    int *hi); /* oldest and newest GPU architecture of the installed NVRTC; false: none installed */

/* ---- child processes (spawn.c): one group per child, killed as a whole ---- */
typedef struct {
  int pid;
  int pipe_fd, life_fd; /* its output; the end of the pipe by which its group learns that this process is gone */
  int made; /* fork_count: a forked child leaves the children of its parent alone */
  double cpu; /* when it has ended: processor seconds of it and of those that it waited for */
} Child;
#define NO_CHILD ((Child){.pipe_fd = -1, .life_fd = -1})
char *spawn_find(Arena *a, const char *name); /* the program in PATH that a name means; NULL: there is none */
/* This process's environment with these ("NAME=value") in place of what they were. */
char **spawn_environment(Arena *a, int n, const char *const *set);
/* Starts argv[0] (searched in PATH) in a process group of its own, which gets SIGCONT when this process ends: one that was
 * stopped can then notice. No output. keep_fd stays open in the child. */
Child spawn_child(Err *e, char *const argv[], char *const envp[], int keep_fd);
/* With output (standard output and error, in pipe_fd). The group is killed when this process ends; a process of it that
 * takes more processor time gets SIGXCPU, then SIGKILL. */
Child spawn_limited(Err *e, char *const argv[], char *const envp[], double cpu_seconds);
double spawn_cpu_seconds(int pid); /* what a process has used so far; -1 if it is not there */
int spawn_wait(Child *c, double timeout_s); /* wait status, or -1 when still running after timeout_s */
void spawn_signal_kill(Child *c);           /* SIGKILL to the group, no waiting */
void spawn_kill(Child *c);                  /* the same, and reap */
/* ---- temporary directories (tempdir.c): <tmp>/nestsmith-<uid>/<pid>-XXXXXX, locked as long as they are in use ---- */
typedef struct {
  char *path;
  int lock;
} TmpDir;
TmpDir tmpdir_new(Arena *a); /* removes what processes that are gone have left */
void tmpdir_free(TmpDir *d); /* with what is in it */
void tmpdir_sweep(void);     /* removes what processes that are gone have left */
void tree_remove(const char *path);
#endif
