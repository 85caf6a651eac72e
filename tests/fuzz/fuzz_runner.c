/* Fuzz target of the runner's requests: frames on a stream, files of a session, libraries that are loaded but not run. The input
 * is a series of frames. Whatever comes in, the answer is one JSON object, and nothing outside of the session's directory is
 * named. Devices are left out: opening them is the drivers' business, and programs do what they want. */
#include "runner/runner.h"
#include "fuzz.h"
#include <cJSON.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
  Err *e;
  int fd, dir;
  RunnerSession *s;
} Job;

static void look(void *arg, const char *name, int64_t bytes) {
  (void)arg;
  FUZZ_CHECK(files_name(name) && !strchr(name, '/') && strcmp(name, "..") != 0 && bytes >= 0);
}

static void serve(void *arg) {
  Job *j = arg;
  Frame f;
  j->s = runner_session(j->e, j->dir);
  for (bool more = true; more && frame_read(j->e, j->fd, &f) == FRAME_OK;) {
    char *reply;
    const void *data;
    size_t n;
    if (!strstr(f.head, "device") && !strstr(f.head, "hello") && !strchr(f.head, '\\')) {
      more = runner_answer(j->s, &f, &reply, &data, &n);
      cJSON *root = cJSON_Parse(reply);
      FUZZ_CHECK(cJSON_IsObject(root) && (cJSON_HasObjectItem(root, "ok") || cJSON_HasObjectItem(root, "error")));
      FUZZ_CHECK(n == 0 || data);
      cJSON_Delete(root);
    }
    frame_free(&f);
  }
}

/* Not in /dev/shm: tests of tuning runs look there for what those leave. */
static char place[] = "/tmp/nestsmith-fuzz-XXXXXX";
static void leave(void) { rmdir(place); }

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static Err err;
  static int dir = -1;
  if (dir < 0) {
    err_init(&err);
    FUZZ_CHECK(mkdtemp(place) && atexit(leave) == 0);
    dir = open(place, O_RDONLY | O_DIRECTORY);
  }
  int fd = memfd_create("input", MFD_CLOEXEC);
  FUZZ_CHECK(write(fd, bytes, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
  Job j = {&err, fd, dir, NULL};
  ErrCode c = err_try(&err, serve, &j);
  FUZZ_CHECK(c == NS_OK || c == NS_ERR_MEMORY);
  if (j.s) runner_end(j.s);
  close(fd);
  files_each(dir, look, NULL);
  files_clear(dir);
  return 0;
}
