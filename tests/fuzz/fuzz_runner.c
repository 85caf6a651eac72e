/* Fuzz target of the runner's requests: frames on a stream, files of a session, libraries that are loaded but not run. The input
 * is a series of frames, or, if it begins with a brace, of lines that become frames. Whatever comes in, the answer is one JSON object, and nothing outside of the session's directory is
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
  bool put; /* a file may have been made */
} Job;

enum { LENGTHS = 12, MOST = 1 << 20 };

/* Payloads that are announced longer than MOST and yet allowed are announced as MOST: the input ends before them all the same,
 * and room for a gigabyte takes AddressSanitizer a hundred times as long as all the rest. */
static void shorten(uint8_t *at, size_t left) {
  while (left >= LENGTHS) {
    uint64_t head = 0, n = 0;
    for (int i = 3; i >= 0; i--) head = head << 8 | at[i];
    for (int i = 7; i >= 0; i--) n = n << 8 | at[4 + i];
    if (n > MOST && n <= RUNNER_PAYLOAD)
      for (int i = 0; i < 8; i++) at[4 + i] = (uint8_t)((uint64_t)MOST >> (8 * i));
    if (head > left || n > left || LENGTHS + head + n > left) return;
    at += LENGTHS + head + n;
    left -= LENGTHS + head + n;
  }
}

/* Lines as frames: the request up to a tab, then its payload. Most changes to a line leave a frame that can be read. */
static uint8_t *frames(const uint8_t *text, size_t size, size_t *n) {
  uint8_t *out = malloc((size + 1) * (LENGTHS + 1)), *to = out;
  for (const uint8_t *line = text, *end = text + size; line < end;) {
    const uint8_t *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop) stop = end;
    const uint8_t *tab = memchr(line, '\t', (size_t)(stop - line)), *head_end = tab ? tab : stop;
    uint32_t head = (uint32_t)(head_end - line);
    uint64_t payload = tab ? (uint64_t)(stop - tab - 1) : 0;
    memcpy(to, &head, sizeof head); /* these machines are little-endian */
    memcpy(to + sizeof head, &payload, sizeof payload);
    memcpy(to + LENGTHS, line, head);
    if (payload) memcpy(to + LENGTHS + head, tab + 1, payload);
    to += LENGTHS + head + payload;
    line = stop + 1;
  }
  *n = (size_t)(to - out);
  return out;
}

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
      j->put |= strstr(f.head, "put") != NULL;
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
  static int dir = -1, fd = -1;
  if (dir < 0) {
    err_init(&err);
    FUZZ_CHECK(mkdtemp(place) && atexit(leave) == 0);
    dir = open(place, O_RDONLY | O_DIRECTORY);
    fd = memfd_create("input", MFD_CLOEXEC);
  }
  uint8_t *input = size && bytes[0] == '{' ? frames(bytes, size, &size) : (uint8_t *)fuzz_text(bytes, size);
  shorten(input, size);
  FUZZ_CHECK(ftruncate(fd, (off_t)size) == 0 && pwrite(fd, input, size, 0) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
  free(input);
  Job j = {&err, fd, dir, NULL, false};
  ErrCode c = err_try(&err, serve, &j);
  FUZZ_CHECK(c == NS_OK || c == NS_ERR_MEMORY);
  if (j.s) runner_end(j.s);
  if (!j.put) return 0;
  files_each(dir, look, NULL);
  files_clear(dir);
  return 0;
}
