/* base: what every other folder stands on. It knows nothing of tensors.
 *
 * Errors.  A failure is raised, not returned: `err_raise` stores a message and jumps to the innermost `err_try`
 * (the scheme of Lua's protected calls). It works because everything allocated on the way lives in an arena that the
 * caller of `err_try` resets; opaque long-lived objects (devices, workers) are never created half-way. Faces that are
 * called from Python or from a thread wrap their body in `err_try`; nothing inside the engine prints, exits or aborts.
 *
 * Memory.  Everything that lives as long as a candidate, a task or a session comes from that one's Arena.
 */
#ifndef NS_BASE_H
#define NS_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NS_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define NS_NORETURN __attribute__((noreturn))
#define NS_UNUSED __attribute__((unused))
#define NS_COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* ---- errors (err.c) ---- */
typedef enum {
  NS_OK = 0,
  NS_ERR_VALUE,     /* bad argument or data: Python ValueError (TVMValueError) */
  NS_ERR_TYPE,      /* Python TypeError */
  NS_ERR_MEMORY,    /* out of memory: Python MemoryError */
  NS_ERR_RUNTIME,   /* device, compiler, driver: Python RuntimeError (TVMError) */
  NS_ERR_IO,        /* file system: Python OSError */
  NS_ERR_INTERRUPT, /* Ctrl-C: Python KeyboardInterrupt */
  NS_ERR_INTERNAL   /* broken invariant: Python RuntimeError (InternalError), "please report" */
} ErrCode;

enum { ERR_MSG_MAX = 2048 };

typedef struct Err {
  ErrCode code; /* and message: of the last err_try that failed */
  char msg[ERR_MSG_MAX];
  const atomic_int *interrupt; /* set by the signal handler; polled by err_poll */
  int32_t depth;                 /* nesting of the engine's walks (ir); restored by err_try when something is raised */
  int64_t fail_after;            /* testing: the fail_after-th allocation from now raises NS_ERR_MEMORY; 0: never */
} Err;

typedef void (*ErrBody)(void *arg);

void err_init(Err *e);
ErrCode err_try(Err *e, ErrBody body, void *arg); /* runs body(arg); NS_OK, or the code raised inside (message in e->msg) */
/* To the calling thread's innermost err_try on e, else to its innermost on any Err: threads may share a device, but want an Err each. */
NS_NORETURN void err_raise(Err *e, ErrCode code, const char *fmt, ...) NS_PRINTF(3, 4);
/* a body that does one thing: ERR_BODY(do_key, Text *x, x->out = te_workload_key(x->c, x->d)) */
#define ERR_BODY(name, argument, ...)                                                                                  \
  static void name(void *body_argument) {                                                                              \
    argument = body_argument;                                                                                          \
    __VA_ARGS__;                                                                                                       \
  }
/* runs body(arg); what it raises travels on after undo(arg) */
void err_guard(Err *e, ErrBody body, ErrBody undo, void *arg);
NS_NORETURN void err_rethrow(Err *e, ErrCode code); /* raise again what a nested err_try on the same Err returned */
NS_NORETURN void err_again(Err *e, ErrCode code, const Err *from); /* likewise, what one on another Err returned */
/* As err_try, but what says nothing of the work itself travels on: no memory, an interrupt. */
ErrCode err_attempt(Err *e, ErrBody body, void *arg);
void err_poll(Err *e);                              /* raises NS_ERR_INTERRUPT if the interrupt flag is set */
#define err_check(e, cond, ...) ((cond) ? (void)0 : err_raise((e), NS_ERR_VALUE, __VA_ARGS__))
#define err_assert(e, cond) ((cond) ? (void)0 : err_raise((e), NS_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #cond))

/* ---- memory from the system, for tables that outlive an arena mark (arena.c) ---- */
void *mem_alloc(Err *e, size_t n);           /* zeroed; raises NS_ERR_MEMORY; free() it */
void *mem_realloc(Err *e, void *p, size_t n); /* not zeroed; raises NS_ERR_MEMORY and leaves p alone */

/* ---- arenas (arena.c) ---- */
typedef struct Arena Arena;
typedef struct { void *block; size_t used, limit; const char *why; } ArenaMark;

Arena *arena_new(Err *e);              /* raises NS_ERR_MEMORY; also on every allocation below */
void arena_free(Arena *a);             /* NULL is allowed */
void *arena_alloc(Arena *a, size_t n); /* zeroed, aligned to 16; n may be 0 */
void *arena_copy(Arena *a, const void *src, size_t n);
char *arena_strdup(Arena *a, const char *s);
char *arena_strndup(Arena *a, const char *s, size_t n); /* n bytes and a NUL */
char *arena_printf(Arena *a, const char *fmt, ...) NS_PRINTF(2, 3);
ArenaMark arena_mark(const Arena *a);
void arena_release(Arena *a, ArenaMark m); /* all is as it was at the mark: what was allocated since is freed, the limit is what it was */
size_t arena_bytes(const Arena *a);
/* it may grow by so much; then NS_ERR_VALUE: "<why>". why: lives as long */
void arena_limit(Arena *a, size_t more, const char *why);
void arena_check(Arena *a, size_t more); /* raises that if so much more, kept elsewhere, is beyond the limit */
Err *arena_err(const Arena *a);
#define arena_new_of(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define arena_array(a, T, n) ((T *)arena_alloc((a), sizeof(T) * (size_t)(n)))

/* ---- growable arrays: VEC(int) v = {0}; vec_push(a, &v, 3); v.at[0], v.len ---- */
#define VEC(T) struct { T *at; int32_t len, cap; }
#define vec_push(a, v, x) ((v)->len < (v)->cap ? (void)0 : vec_grow((a), (void **)&(v)->at, &(v)->cap, (v)->len + 1, sizeof(*(v)->at)), \
                           (v)->at[(v)->len++] = (x))
void vec_grow(Arena *a, void **at, int32_t *cap, int32_t need, size_t elem); /* what is new is not zeroed */
/* Pushes x, whose place a map tells by a key from then on; first, so that without memory for the map nothing is found. */
#define vec_note(a, v, x, map, key) (vec_push(a, v, x), mapu_set(map, (uint64_t)(key), (v)->len - 1))

/* ---- text (strbuf.c) ---- */
typedef struct { Arena *arena; char *at; size_t len, cap; } StrBuf;
void sb_init(StrBuf *b, Arena *a);
void sb_putc(StrBuf *b, char c);
void sb_puts(StrBuf *b, const char *s);
void sb_write(StrBuf *b, const char *s, size_t n);
void sb_printf(StrBuf *b, const char *fmt, ...) NS_PRINTF(2, 3);
void sb_vprintf(StrBuf *b, const char *fmt, va_list ap) NS_PRINTF(2, 0);
void sb_int(StrBuf *b, int64_t v); /* in decimals; many times faster than sb_printf */
void sb_spaces(StrBuf *b, int n);
void sb_json(StrBuf *b, const char *s); /* as a JSON string, with its quotes */
char *sb_str(StrBuf *b); /* NUL-terminated; valid as long as the arena */
/* vsnprintf with a decimal point, whatever the locale */
/* the first control character but tab and line ends, which a terminal obeys; NULL: none */
const char *text_control(const char *s);
int text_vprint(char *to, size_t n, const char *fmt, va_list ap) NS_PRINTF(3, 0);

/* ---- hash maps (map.c): open addressing, keys are 64-bit numbers or strings; values int32 ---- */
typedef struct { uint64_t key; int32_t val; } MapSlot;
typedef struct { Arena *arena; MapSlot *slot; int32_t len, cap; } MapU64;
void mapu_init(MapU64 *m, Arena *a);
int32_t mapu_get(const MapU64 *m, uint64_t key, int32_t missing);
void mapu_set(MapU64 *m, uint64_t key, int32_t val);
typedef struct { Arena *arena; const char **key; int32_t *val; int32_t len, cap; } MapStr;
void maps_init(MapStr *m, Arena *a);
int32_t maps_get(const MapStr *m, const char *key, int32_t missing);
void maps_set(MapStr *m, const char *key, int32_t val); /* copies the key */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);
uint64_t hash_str(const char *s);

/* ---- JSON (json.c); written with sb_json ---- */
/* The tree of a text, not in an arena: cJSON_Delete frees it. NULL: no JSON, or something follows it. Raises
 * NS_ERR_MEMORY. */
struct cJSON *json_parse(Err *e, const char *text);
/* Runs body(arg), which sets *root to such a tree; it is freed before an error travels on. */
void json_with(Err *e, ErrBody body, void *arg, struct cJSON **root);
bool json_whole(const struct cJSON *v, int64_t lo, int64_t hi); /* is it a whole number from lo to hi? */

/* ---- digests (digest.c) ---- */
void md5_hex(const void *p, size_t n, char out[33]);    /* of workload keys, and names in caches */
void sha256_hex(const void *p, size_t n, char out[65]); /* of files */
uint64_t sum64(const void *p, size_t n); /* a checksum at the speed of memory, against damage alone; of sections of model files */

/* ---- random numbers (rng.c): xoshiro256**, one per worker, split by splitmix64 ---- */
typedef struct { uint64_t s[4]; } Rng;
void rng_seed(Rng *r, uint64_t seed);
uint64_t rng_next(Rng *r);
int64_t rng_below(Rng *r, int64_t n); /* uniform in [0, n); n > 0 */
double rng_unit(Rng *r);              /* uniform in [0, 1) */
Rng rng_split(Rng *r);                /* an independent stream */
void rng_shuffle(Rng *r, int n, int32_t *v);
/* The one of n pieces that lie one behind the other, the i-th up to upto[i], on which a point is; behind all: the last. */
int rng_piece(int n, const double *upto, double at);

/* ---- threads (pool.c) ---- */
typedef struct Pool Pool;
typedef void (*PoolJob)(void *arg, int worker, int64_t item); /* must not raise across threads: wrap in err_try */
Pool *pool_new(int n_threads, Err *e);                        /* n_threads >= 1 counts the caller */
void pool_free(Pool *p);
int pool_size(const Pool *p);
/* items are handed out in order; returns when all are done */
void pool_run(Pool *p, int64_t n_items, PoolJob job, void *arg);

/* ---- forks (fork.c): what an object of the parent is in a forked child ---- */
int fork_count(void);    /* forks between the process that loaded the engine and this one: equal numbers, same process */
void fork_hold(void);    /* no fork and no end of the process until fork_release; short, not nested, and nothing is raised in between */
void fork_release(void);
typedef struct ForkFd { int fd; struct ForkFd *next, **at; } ForkFd;
void fork_close(ForkFd *f, int fd); /* fd is closed in children forked from now on; f must stay where it is */
void fork_keep(ForkFd *f);          /* before fd is closed; not in a child */

/* ---- clock and numbers (util.c) ---- */
double clock_now(void);                                /* monotonic seconds */
/* false on overflow */
static inline bool i64_mul(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool i64_add(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline int64_t i64_floordiv(int64_t a, int64_t b) { /* b != 0 */
  if (b == -1) return (int64_t)(0 - (uint64_t)a);
  return a / b - ((a % b != 0) & ((a < 0) != (b < 0)));
}
static inline int64_t i64_floormod(int64_t a, int64_t b) { /* b != 0 */
  if (b == -1) return 0;
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
int f64_ascending(const void *x, const void *y); /* for qsort */
/* Moves element i of a heap of n, which has changed, to its place. The one that comes last in the order is at the top. */
void heap_settle(void *heap, int n, size_t size, int i, int (*order)(const void *, const void *));
double f64_median(double *v, int n); /* n > 0; leaves v ascending */
int64_t i64_gcd(int64_t a, int64_t b);
int64_t i64_ceildiv(int64_t a, int64_t b);             /* b > 0 */
int64_t i64_divisors(Arena *a, int64_t x, int64_t **out); /* x > 0; ascending; how many */
/* All n bytes, however many calls that takes; false: the other side has ended, or an error (errno). */
bool fd_read(int fd, void *to, size_t n);
bool fd_write(int fd, const void *from, size_t n);
/* The file as a descriptor above those of the standard streams, whose numbers are free where a process has closed its own: a
 * child's streams go there. Closed on exec. -1: errno says why; fd is closed in either case. */
int fd_above_streams(int fd);
#endif
