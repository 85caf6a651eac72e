/* A worker that is not on this machine. The wire between tuner and worker (protocol.h) is made of messages with memory files; a
 * bridge carries them over a stream of bytes, such as the standard input and output of adb or ssh: head, length of the memory
 * file, body, content. One end of it stands where the worker would, the other one, on the board, where the tuner would; neither
 * tuner nor worker knows of it. Both machines need the same layout of structs: 64 bits, little-endian.
 *
 * A bridge ends when either side of it is gone, and its end is that of the other one: an endless program on a board lives no
 * longer than the tuner wants. */
#include "measure/protocol.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIECE = 1 << 16 };
static const uint64_t MOST = (uint64_t)4 << 30; /* bytes of a memory file */
typedef struct {
  MsgHead head;
  uint64_t blob; /* 1 + its length; 0: none */
} Strip;

static bool send_file(int out, int fd, uint64_t n) {
  char *data = memfile_map(fd, (size_t)n);
  if (!data) return false;
  bool ok = fd_write(out, data, (size_t)n);
  munmap(data, n ? (size_t)n : 1);
  return ok;
}

static bool to_stream(int sock, int out) {
  MsgBody body;
  MsgType type;
  int fd = -1;
  struct stat st = {.st_size = 0};
  if (proto_recv(sock, &type, &body, &fd, clock_now() + 1, NULL) != RECV_OK) return false;
  Strip s = {{(uint16_t)type, PROTO_VERSION, (uint32_t)proto_size(type)}, 0};
  bool ok = fd < 0 || (fstat(fd, &st) == 0 && (uint64_t)st.st_size <= MOST);
  if (fd >= 0) s.blob = (uint64_t)st.st_size + 1;
  ok = ok && fd_write(out, &s, sizeof s) && fd_write(out, &body, s.head.len);
  if (fd >= 0) {
    ok = ok && send_file(out, fd, (uint64_t)st.st_size);
    close(fd);
  }
  return ok;
}

static int take_file(int in, uint64_t n) {
  char piece[PIECE];
  int fd = memfd_create("nestsmith-bridge", MFD_CLOEXEC);
  bool ok = fd >= 0;
  for (uint64_t left = n; ok && left > 0;) {
    size_t k = left < PIECE ? (size_t)left : PIECE;
    ok = fd_read(in, piece, k) && fd_write(fd, piece, k);
    left -= k;
  }
  if (ok || fd < 0) return fd;
  close(fd);
  return -1;
}

static bool from_stream(int in, int sock) {
  Strip s;
  MsgBody body;
  if (!fd_read(in, &s, sizeof s) || s.head.version != PROTO_VERSION || s.blob > MOST) return false;
  if (s.head.len != proto_size((MsgType)s.head.type) || s.head.type == MSG_NONE) return false;
  if (!fd_read(in, &body, s.head.len)) return false;
  int fd = s.blob ? take_file(in, s.blob - 1) : -1;
  if (s.blob && fd < 0) return false;
  bool ok = proto_send(sock, (MsgType)s.head.type, &body, s.head.len, fd);
  if (fd >= 0) close(fd);
  return ok;
}

void bridge_run(int sock, int in, int out) {
  struct pollfd p[2] = {{sock, POLLIN, 0}, {in, POLLIN, 0}};
  for (;;) {
    if (poll(p, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if ((p[0].revents && !to_stream(sock, out)) || (p[1].revents && !from_stream(in, sock))) return;
  }
}

/* ---- the tuner's end ---- */
__attribute__((visibility("default"))) int nestsmith_bridge_main(int sock, char **command) {
  int pair[2];
  signal(SIGPIPE, SIG_IGN);
  signal(SIGINT, SIG_IGN);
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return 1;
  pid_t child = fork();
  if (child == 0) {
    dup2(pair[1], STDIN_FILENO);
    dup2(pair[1], STDOUT_FILENO);
    signal(SIGPIPE, SIG_DFL);
    execvp(command[0], command);
    _exit(127);
  }
  close(pair[1]);
  if (child > 0) bridge_run(sock, pair[0], pair[0]);
  kill(0, SIGKILL); /* the group: this process leads it, and the command is in it */
  return 1;
}

/* ---- the board's end ---- */
int bridge_worker(int in, int out, int dev_type, int dev_id) {
  int pair[2];
  signal(SIGPIPE, SIG_IGN);
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return 1;
  pid_t self = getpid(), child = fork();
  if (child == 0) {
    setpgid(0, 0); /* the worker ends its group when it is left alone */
    close(pair[0]);
    close(in);
    close(out);
    return nestsmith_worker_main('m', pair[1], self, dev_type, dev_id);
  }
  close(pair[1]);
  if (child < 0) return 1;
  bridge_run(pair[0], in, out);
  kill(-child, SIGKILL);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  return 0;
}
