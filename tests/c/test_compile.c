/* The caches of compiled programs: order of use, limits, several processes; names in cubins; damaged cubins. */
#include "compile/internal.h"
#include "codegen/codegen.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const Target CPU = {.kind = TG_CPU}, GPU = {.kind = TG_CUDA, .gpu.sm = 90};
enum { KIB = 1024 };

static bool held(Arena *a, const BuildOptions *o, int i) {
  Binary b = {0};
  char source[32];
  snprintf(source, sizeof source, "source %d", i);
  if (!build_recall(a, &CPU, source, o, &b)) return false;
  assert_int_equal(b.n, 10 * KIB);
  assert_true(b.cached && ((char *)b.data)[0] == (char)i && ((char *)b.data)[b.n] == 0);
  return true;
}

static void keep(Arena *a, const BuildOptions *o, int i) {
  static char data[10 * KIB];
  Binary b = {.data = data, .n = sizeof data};
  char source[32];
  data[0] = (char)i;
  snprintf(source, sizeof source, "source %d", i);
  build_remember(a, &CPU, source, o, &b);
}

static void test_memory(void **s) {
  (void)s;
  Err e;
  err_init(&e);
  Arena *a = arena_new(&e);
  BuildOptions o = {0, NULL, NULL, build_cache_new(100 * KIB)}, off = o;
  off.cache_dir = "";
  for (int i = 0; i < 9; i++) keep(a, &o, i);
  for (int i = 0; i < 9; i++) assert_true(held(a, &o, i));
  assert_true(held(a, &o, 0)); /* used: 1 is the oldest now */
  keep(a, &o, 9);
  assert_true(held(a, &o, 0) && !held(a, &o, 1) && held(a, &o, 9));
  keep(a, &o, 9); /* again: replaced, not doubled */
  assert_true(held(a, &o, 2));
  Binary b;
  assert_false(build_recall(a, &GPU, "source 0", &o, &b)); /* another target */
  assert_false(build_recall(a, &CPU, "source 0", &off, &b));
  Binary huge = {.data = a, .n = 200 * KIB};
  build_remember(a, &CPU, "huge", &o, &huge); /* larger than the cache: not kept, nothing evicted */
  assert_false(build_recall(a, &CPU, "huge", &o, &b));
  assert_true(held(a, &o, 0));
  BuildOptions other = o;
  other.cc = "another-compiler";
  assert_false(held(a, &other, 0));
  build_cache_free(o.memory);
  arena_free(a);
}

static void fill_disk(Arena *a, const char *dir, int from, int to) {
  static char data[64 * KIB];
  Binary b = {.data = data, .n = sizeof data};
  for (int i = from; i < to; i++) {
    char key[40], hex[33];
    snprintf(key, sizeof key, "entry %d", i);
    md5_hex(key, strlen(key), hex);
    snprintf(key, sizeof key, "%.32s.so", hex);
    cache_put(a, dir, key, &b);
  }
}

static int64_t disk_bytes(const char *dir, int *temporary) {
  int64_t sum = 0;
  DIR *d = opendir(dir);
  for (struct dirent *e; (e = readdir(d));) {
    struct stat st;
    if (fstatat(dirfd(d), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode)) sum += st.st_size;
    *temporary += strncmp(e->d_name, ".tmp-", 5) == 0;
  }
  closedir(d);
  return sum;
}

/* Three processes write three times the limit at once: the limit holds (but for what comes between two sweeps), the
 * newest entries are there, and what a killed process left is gone. */
static void test_disk_limit(void **s) {
  (void)s;
  Err e;
  err_init(&e);
  Arena *a = arena_new(&e);
  char dir[] = "/tmp/nestsmith-test-XXXXXX", stale[64];
  assert_non_null(mkdtemp(dir));
  snprintf(stale, sizeof stale, "%s/.tmp-1-abcdef", dir);
  file_write(a, stale, "x", 1);
  struct timespec old[2] = {{1000, 0}, {1000, 0}};
  utimensat(AT_FDCWD, stale, old, 0);
  setenv("NESTSMITH_CACHE_MB", "16", 1);
  for (int k = 0; k < 3; k++)
    if (fork() == 0) {
      fill_disk(a, dir, 300 * k, 300 * k + 300);
      _exit(0);
    }
  for (int k = 0; k < 3; k++) {
    int status;
    assert_true(wait(&status) > 0 && status == 0);
  }
  fill_disk(a, dir, 900, 1300);
  int temporary = 0, found = 0;
  int64_t bytes = disk_bytes(dir, &temporary);
  assert_true(bytes < (16 + 24) << 20 && bytes > 4 << 20); /* a sweep comes every 64 entries of 64 KiB on average */
  assert_int_equal(temporary, 0);
  for (int i = 1290; i < 1300; i++) {
    char key[40], hex[33];
    Binary b;
    snprintf(key, sizeof key, "entry %d", i);
    md5_hex(key, strlen(key), hex);
    snprintf(key, sizeof key, "%.32s.so", hex);
    found += cache_get(a, dir, key, &b);
  }
  assert_int_equal(found, 10);
  unsetenv("NESTSMITH_CACHE_MB");
  tree_remove(dir);
  arena_free(a);
}

/* What a process that is gone had is removed by the next one; what is in use stays. */
static void test_temporary_directories(void **s) {
  (void)s;
  Err e;
  err_init(&e);
  Arena *a = arena_new(&e);
  char root[] = "/tmp/nestsmith-test-XXXXXX", *before = getenv("TMPDIR"),
       *old = before ? arena_strdup(a, before) : NULL;
  assert_non_null(mkdtemp(root));
  setenv("TMPDIR", root, 1);
  int said[2];
  assert_int_equal(pipe(said), 0);
  if (fork() == 0) {
    TmpDir d = tmpdir_new(a);
    file_write(a, arena_printf(a, "%s/file", d.path), "x", 1);
    assert_true(write(said[1], d.path, strlen(d.path) + 1) > 0);
    _exit(0);
  }
  char gone[256];
  assert_true(read(said[0], gone, sizeof gone) > 0 && wait(NULL) > 0);
  assert_int_equal(access(gone, F_OK), 0);
  TmpDir one = tmpdir_new(a), two = tmpdir_new(a);
  assert_int_equal(access(gone, F_OK), -1);
  assert_int_equal(access(one.path, F_OK), 0);
  tmpdir_free(&one);
  tmpdir_sweep();
  assert_int_equal(access(one.path, F_OK), -1);
  assert_int_equal(access(two.path, F_OK), 0);
  tmpdir_free(&two);
  tree_remove(root);
  assert_int_equal(access(root, F_OK), -1);
  if (old)
    setenv("TMPDIR", old, 1);
  else
    unsetenv("TMPDIR");
  close(said[0]);
  close(said[1]);
  arena_free(a);
}

/* A group whose parent is gone is killed, the stopped leader and the child of it that goes on. */
static void test_orphans(void **s) {
  (void)s;
  Err e;
  err_init(&e);
  int alive[2];
  char byte;
  assert_int_equal(pipe(alive), 0);
  pid_t parent = fork();
  if (parent == 0) { /* the group has the writing end as its file 9 */
    close(alive[0]);
    dup2(alive[1], 9);
    char *argv[] = {"sh", "-c", "sleep 1000 & echo x >&9; kill -STOP $$", NULL};
    spawn_limited(&e, argv, NULL, 60);
    pause();
  }
  close(alive[1]);
  assert_int_equal(read(alive[0], &byte, 1), 1);
  kill(parent, SIGKILL);
  assert_int_equal(waitpid(parent, NULL, 0), parent);
  while (read(alive[0], &byte, 1) > 0) {} /* until nobody has the writing end any more */
  close(alive[0]);
}

static void test_rename(void **s) {
  (void)s;
  char text[] = "a\0.text." PROGRAM_NAME "_kernel0\0b\0" PROGRAM_NAME "\0c " PROGRAM_NAME "_kernel1";
  size_t n = sizeof text;
  build_rename(text, n, "matmul");
  assert_string_equal(text + 2, ".text.matmul_kernel0");
  size_t len = strlen(PROGRAM_NAME);
  assert_string_equal(text + 2 + 6 + len + 9, "b");
  assert_string_equal(text + 2 + 6 + len + 9 + 2, "matmul");
  assert_string_equal(text + 2 + 6 + len + 9 + 2 + len + 1, "c matmul_kernel1");
  assert_null(memmem(text, n, "ns_program", 10));
}

static void test_report_of_anything(void **s) {
  (void)s;
  BuildReport r;
  unsigned char data[512] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  srand(1);
  for (int k = 0; k < 20000; k++) {
    for (size_t i = 16; i < sizeof data; i++) data[i] = (unsigned char)(rand() % 5 ? 0 : rand());
    build_report(&GPU, data, (size_t)(rand() % (int)sizeof data), 0, &r);
  }
  assert_false(build_report(&GPU, "", 0, 0, &r));
  assert_false(build_report(&CPU, data, sizeof data, 0, &r));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory),  cmocka_unit_test(test_disk_limit), cmocka_unit_test(test_temporary_directories),
      cmocka_unit_test(test_orphans), cmocka_unit_test(test_rename),     cmocka_unit_test(test_report_of_anything)};
  return cmocka_run_group_tests_name("build", tests, NULL, NULL);
}
