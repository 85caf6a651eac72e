/* Base: errors, arenas, text, maps, digests, random numbers, threads, numbers; and running out of memory everywhere in ir. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/base.h"
#include "base/tile.h"

static Err err;
static int setup(void **st) {
  (void)st;
  err_init(&err);
  return 0;
}

/* ---- errors ---- */
static void fail_seven(void *arg) { err_raise(&err, NS_ERR_VALUE, "seven is %d", *(int *)arg); }
static void nested(void *arg) {
  ErrCode code = err_try(&err, fail_seven, arg);
  assert_int_equal(code, NS_ERR_VALUE);
  err_rethrow(&err, code);
}
static void reuse_message(void *arg) {
  (void)arg;
  err_raise(&err, NS_ERR_IO, "again: %s", err.msg);
}
static void poll(void *arg) {
  (void)arg;
  err_poll(&err);
}

static void errors(void **st) {
  (void)st;
  int seven = 7;
  assert_int_equal(err_try(&err, nested, &seven), NS_ERR_VALUE);
  assert_string_equal(err.msg, "seven is 7");
  assert_int_equal(err_try(&err, reuse_message, NULL), NS_ERR_IO);
  assert_string_equal(err.msg, "again: seven is 7");
  atomic_int flag = 0;
  err.interrupt = &flag;
  assert_int_equal(err_try(&err, poll, NULL), NS_OK);
  flag = 1;
  assert_int_equal(err_try(&err, poll, NULL), NS_ERR_INTERRUPT);
}

/* ---- arenas ---- */
static void huge(void *arg) { arena_alloc(arg, SIZE_MAX / 2); }

static void arenas(void **st) {
  (void)st;
  Arena *a = arena_new(&err);
  char *p = arena_printf(a, "%s-%d", "x", 12);
  ArenaMark m = arena_mark(a);
  size_t before = arena_bytes(a);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 2000; i++) {
      unsigned char *q = arena_alloc(a, (size_t)i);
      assert_int_equal((uintptr_t)q % 16, 0);
      for (int j = 0; j < i; j += 97) assert_int_equal(q[j], 0);
      memset(q, 255, (size_t)i);
    }
    assert_true(arena_bytes(a) > 1900000);
    arena_release(a, m);
    assert_int_equal(arena_bytes(a), before);
  }
  assert_string_equal(p, "x-12");
  arena_alloc(a, 50 << 20);
  assert_int_equal(err_try(&err, huge, a), NS_ERR_MEMORY);
  VEC(int) v = {0};
  for (int i = 0; i < 1000; i++) vec_push(a, &v, i);
  for (int i = 0; i < 1000; i++) assert_int_equal(v.at[i], i);
  StrBuf b;
  sb_init(&b, a);
  assert_string_equal(sb_str(&b), "");
  for (int i = 0; i < 500; i++) sb_printf(&b, "%d,", i);
  sb_spaces(&b, 3);
  sb_putc(&b, '.');
  assert_int_equal(b.len, 10 * 2 + 90 * 3 + 400 * 4 + 4);
  assert_int_equal(strlen(sb_str(&b)), b.len);
  char big[5000];
  memset(big, 'z', sizeof big);
  big[4999] = 0;
  sb_printf(&b, "%s", big);
  assert_string_equal(sb_str(&b) + b.len - 4999, big);
  arena_free(a);
  arena_free(NULL);
}

static void maps(void **st) {
  (void)st;
  Arena *a = arena_new(&err);
  MapU64 m;
  mapu_init(&m, a);
  assert_int_equal(mapu_get(&m, 5, -1), -1);
  for (uint64_t i = 0; i < 5000; i++) mapu_set(&m, i * i * 0x100000001u, (int32_t)i);
  mapu_set(&m, 0, 77);
  assert_int_equal(m.len, 5000);
  for (uint64_t i = 1; i < 5000; i++) assert_int_equal(mapu_get(&m, i * i * 0x100000001u, -1), i);
  assert_int_equal(mapu_get(&m, 0, -1), 77);
  assert_int_equal(mapu_get(&m, UINT64_MAX, -1), -1);
  MapStr s;
  maps_init(&s, a);
  for (int i = 0; i < 3000; i++) maps_set(&s, arena_printf(a, "key%d", i), i);
  for (int i = 0; i < 3000; i++) assert_int_equal(maps_get(&s, arena_printf(a, "key%d", i), -1), i);
  assert_int_equal(maps_get(&s, "", -1), -1);
  char hex[33];
  static const struct {
    const char *text, *md5;
  } MD5[] = {/* RFC 1321, A.5 */
             {"", "d41d8cd98f00b204e9800998ecf8427e"},
             {"a", "0cc175b9c0f1b6a831c399e269772661"},
             {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
             {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"},
             {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
              "57edf4a22be3c955ac49da2e2107b67a"}};
  for (int i = 0; i < NS_COUNT(MD5); i++) {
    md5_hex(MD5[i].text, strlen(MD5[i].text), hex);
    assert_string_equal(hex, MD5[i].md5);
  }
  static const struct {
    const char *text, *sha;
  } SHA[] = {/* FIPS 180-2, B.1 and B.2; the last takes two blocks */
             {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
             {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
             {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"}};
  char sha[65];
  for (int i = 0; i < NS_COUNT(SHA); i++) {
    sha256_hex(SHA[i].text, strlen(SHA[i].text), sha);
    assert_string_equal(sha, SHA[i].sha);
  }
  enum { MILLION = 1000000 }; /* B.3: long enough for the processor's own instructions; also from an odd place */
  char *many = arena_alloc(a, MILLION + 1);
  memset(many, 'a', MILLION + 1);
  for (int i = 0; i < 2; i++) {
    sha256_hex(many + i, MILLION, sha);
    assert_string_equal(sha, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
  arena_free(a);
}

/* Each byte and the length count, wherever the bytes lie; the value of a file is for ever. */
static void sums(void **st) {
  (void)st;
  uint8_t bytes[202];
  for (int i = 0; i < NS_COUNT(bytes); i++) bytes[i] = (uint8_t)(7 * i);
  for (size_t n = 0; n < 200; n++) {
    uint64_t sum = sum64(bytes, n);
    assert_true(sum != sum64(bytes, n + 1));
    for (size_t k = 0; k < n; k++) {
      bytes[k] ^= 1;
      assert_true(sum != sum64(bytes, n));
      bytes[k] ^= 1;
    }
    uint8_t moved[203];
    memcpy(moved + 1, bytes, sizeof bytes);
    assert_true(sum == sum64(moved + 1, n));
  }
  assert_true(sum64(bytes, 200) == 0xdef7ff44be47907cu);
}

static void numbers(void **st) {
  (void)st;
  int64_t v;
  assert_false(i64_mul(INT64_MAX, 2, &v));
  assert_false(i64_add(INT64_MIN, -1, &v));
  for (int64_t x = -20; x <= 20; x++)
    for (int64_t y = -7; y <= 7; y++) {
      if (y == 0) continue;
      int64_t q = i64_floordiv(x, y), r = i64_floormod(x, y);
      assert_int_equal(q * y + r, x);
      assert_true(r == 0 || (r < 0) == (y < 0));
      if (y > 0) assert_int_equal(i64_ceildiv(x, y), -i64_floordiv(-x, y));
    }
  assert_int_equal(i64_gcd(-12, 18), 6);
  assert_int_equal(i64_gcd(0, 0), 0);
  assert_int_equal(i64_floordiv(INT64_MIN, -1), INT64_MIN);
  Rng r, s;
  rng_seed(&r, 42), rng_seed(&s, 42);
  int count[6] = {0};
  for (int i = 0; i < 60000; i++) {
    int64_t k = rng_below(&r, 6);
    assert_int_equal(k, rng_below(&s, 6));
    count[k]++;
  }
  for (int i = 0; i < 6; i++) assert_true(count[i] > 9500 && count[i] < 10500);
  Rng t = rng_split(&r);
  assert_true(rng_next(&t) != rng_next(&r));
  for (int i = 0; i < 1000; i++) {
    double u = rng_unit(&r);
    assert_true(u >= 0 && u < 1);
  }
  assert_true(clock_now() > 0);
}

typedef struct {
  atomic_int seen[10000];
  atomic_int workers[8];
} Count;
static void count_job(void *arg, int worker, int64_t item) {
  Count *c = arg;
  atomic_fetch_add(&c->seen[item], 1);
  atomic_fetch_add(&c->workers[worker], 1);
}
static void no_threads(void *arg) {
  (void)arg;
  pool_new(0, &err);
}

static void pools(void **st) {
  (void)st;
  static Count c;
  for (int n = 1; n <= 4; n += 3) {
    Pool *p = pool_new(n, &err);
    assert_int_equal(pool_size(p), n);
    memset(&c, 0, sizeof c);
    for (int round = 0; round < 20; round++) pool_run(p, round % 2 ? 10000 : 3, count_job, &c);
    for (int i = 0; i < 10000; i++) assert_int_equal(c.seen[i], i < 3 ? 20 : 10);
    pool_run(p, 0, count_job, &c);
    pool_free(p);
  }
  assert_int_equal(err_try(&err, no_threads, NULL), NS_ERR_VALUE);
}

/* ---- forks beside threads that work ---- */
enum { FORKS = 40, CHILD_SECONDS = 60 };
typedef struct {
  Pool *pool;
  atomic_int inside, rounds, stop;
} Busy;
static void add_one(void *arg, int worker, int64_t item) {
  (void)worker, (void)item;
  atomic_fetch_add((atomic_int *)arg, 1);
}
static void *keep_busy(void *arg) {
  Busy *b = arg;
  atomic_int n = 0;
  while (!b->stop) {
    pool_run(b->pool, 50, add_one, &n);
    fork_hold();
    b->inside = 1;
    for (int i = 0; i < 2000; i++) atomic_fetch_add(&n, 1);
    b->inside = 0;
    fork_release();
    b->rounds++;
  }
  return NULL;
}
static int in_child(Busy *b) { /* neither cmocka nor anything else of the parent is of use here */
  atomic_int n = 0;
  alarm(CHILD_SECONDS); /* a hang is a failure */
  if (b->inside) return 2;
  fork_hold();
  fork_release();
  pool_run(b->pool, 1000, add_one, &n);
  pool_free(b->pool);
  return n == 1000 ? 0 : 3;
}

static void forks(void **st) {
  (void)st;
  Busy b = {.pool = pool_new(4, &err)};
  pthread_t t;
  int number = fork_count();
  assert_int_equal(pthread_create(&t, NULL, keep_busy, &b), 0);
  for (int k = 0; k < FORKS; k++) {
    int status = -1, seen = b.rounds;
    while (b.rounds == seen) sched_yield();
    pid_t pid = fork();
    if (pid == 0) _exit(fork_count() == number + 1 ? in_child(&b) : 4);
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
  }
  b.stop = 1;
  pthread_join(t, NULL);
  pool_free(b.pool);
  assert_int_equal(fork_count(), number);
}

static void descriptors_that_children_do_not_keep(void **st) {
  (void)st;
  int ours[2], other[2], life[2];
  char c;
  ForkFd a, b;
  assert_true(pipe(ours) == 0 && pipe(other) == 0 && pipe(life) == 0);
  fork_close(&a, other[1]);
  fork_close(&b, ours[1]);
  fork_keep(&a);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(CHILD_SECONDS);
    close(life[1]);
    _exit(write(other[1], "x", 1) == 1 && read(life[0], &c, 1) == 0 ? 0 : 1);
  }
  fork_keep(&b);
  close(ours[1]);
  assert_int_equal(read(ours[0], &c, 1), 0); /* its end, although the child lives */
  assert_int_equal(read(other[0], &c, 1), 1);
  close(life[1]);
  int status;
  assert_true(waitpid(pid, &status, 0) == pid);
  assert_int_equal(status, 0);
  close(ours[0]), close(other[0]), close(other[1]), close(life[0]);
}

/* ---- tiles of registers ---- */
static void tile_of(int64_t rows, int64_t cols, double panel, int64_t want_rows, int64_t want_cols) {
  const CpuMachine m = {.vector_bytes = 32, .registers = 12};
  TileLoop loop[] = {{.extent = rows}, {.extent = cols, .column = true}};
  double cycles = tile_fit(&m, 2, loop, 1, panel);
  assert_true(cycles >= (double)(rows * cols) / 2 && cycles < 1.5 * (double)(rows * cols));
  assert_int_equal(loop[0].inner, want_rows);
  assert_int_equal(loop[1].inner, want_cols);
}
static void tiles_of_registers(void **st) {
  (void)st;
  tile_of(128, 3, 1 << 10, 4, 3); /* twelve sums: nothing is left over */
  tile_of(7, 2, 1 << 10, 4, 2);   /* 4 + 3 */
  tile_of(6, 2, 1 << 10, 6, 2);
  tile_of(64, 6, 1 << 16, 4, 3); /* a panel that streams through the first cache: few columns at a time */
  TileLoop products[] = {{.extent = 3, .both = true}, {.extent = 8}, {.extent = 2, .column = true}};
  const CpuMachine twelve = {.vector_bytes = 32, .registers = 12};
  assert_true(tile_fit(&twelve, 3, products, 2, 1 << 10) < 1.1 * 24);
  assert_true(products[0].inner == 1 && products[1].inner == 4); /* sums of several products share nothing */
  TileParts p = tile_parts(13, 5);
  assert_true(p.full == 1 && p.less == 2); /* 5 + 4 + 4 */
  const CpuMachine m = {.vector_bytes = 32, .registers = 12};
  TileLoop whole[] = {{.extent = 64, .whole = true}, {.extent = 2, .column = true}};
  assert_true(tile_fit(&m, 2, whole, 1, 0) > 1e300); /* what may not be cut does not fit */
}

int main(void) {
#define T(f) cmocka_unit_test_setup(f, setup)
  const struct CMUnitTest tests[] = {T(errors),
                                     T(arenas),
                                     T(maps),
                                     T(sums),
                                     T(numbers),
                                     T(pools),
                                     T(forks),
                                     T(descriptors_that_children_do_not_keep),
                                     T(tiles_of_registers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
