/* Sending and receiving messages of the worker protocol; see protocol.h. */
#include "measure/protocol.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

typedef union {
  struct cmsghdr h;
  char space[CMSG_SPACE(sizeof(int))];
} FdNote;

bool proto_send(int sock, MsgType type, const void *body, size_t n, int fd) {
  MsgHead head = {(uint16_t)type, PROTO_VERSION, (uint32_t)n};
  union {
    const void *in;
    void *out;
  } u = {body};
  struct iovec io[2] = {{&head, sizeof head}, {u.out, n}};
  struct msghdr m = {.msg_iov = io, .msg_iovlen = 2};
  FdNote note;
  memset(&note, 0, sizeof note);
  if (fd >= 0) {
    m.msg_control = &note;
    m.msg_controllen = sizeof note;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  ssize_t k;
  do k = sendmsg(sock, &m, MSG_NOSIGNAL);
  while (k < 0 && errno == EINTR);
  return k == (ssize_t)(sizeof head + n);
}

void proto_beat(int sock) {
  struct {
    MsgHead head;
    MsgBeat body;
  } m = {{MSG_BEAT, PROTO_VERSION, sizeof(MsgBeat)}, {0}};
  ssize_t sent = send(sock, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT);
  (void)sent;
}

static RecvStatus wait_readable(int sock, double deadline, const atomic_int *stop) {
  for (;;) {
    double left = deadline - clock_now();
    struct pollfd p = {sock, POLLIN, 0};
    if (stop && *stop) return RECV_STOPPED;
    int r = poll(&p, 1, left <= 0 ? 0 : left > 0.05 ? 50 : (int)(left * 1000) + 1);
    if (r > 0) return RECV_OK;
    if (r == 0 && left <= 0) return RECV_TIMEOUT;
  }
}

#define SIZE(number, member, type) [number] = sizeof(type),
static const size_t SIZES[] = {MESSAGES(SIZE)};

size_t proto_size(MsgType type) { return type > MSG_NONE && type < NS_COUNT(SIZES) ? SIZES[type] : 0; }

RecvStatus proto_recv(int sock, MsgType *type, MsgBody *body, int *fd, double deadline, const atomic_int *stop) {
  MsgHead head = {0};
  struct iovec io[2] = {{&head, sizeof head}, {body, sizeof *body}};
  FdNote note;
  struct msghdr m = {.msg_iov = io, .msg_iovlen = 2, .msg_control = &note, .msg_controllen = sizeof note};
  *fd = -1;
  RecvStatus s = wait_readable(sock, deadline, stop);
  if (s != RECV_OK) return s;
  ssize_t k;
  do k = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
  while (k < 0 && errno == EINTR);
  if (k <= 0) return RECV_CLOSED;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) memcpy(fd, CMSG_DATA(c), sizeof *fd);
  bool good = k >= (ssize_t)sizeof head && head.version == PROTO_VERSION && head.type < NS_COUNT(SIZES) &&
              head.len == SIZES[head.type] && (size_t)k == sizeof head + head.len;
  *type = good ? (MsgType)head.type : MSG_NONE;
  if (!good) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return RECV_GARBAGE;
  }
  return RECV_OK;
}

int memfile_new(const void *const *part, const size_t *n, int count) {
  int fd = memfd_create("nestsmith-data", MFD_CLOEXEC);
  for (int i = 0; fd >= 0 && i < count; i++)
    if (!fd_write(fd, part[i], n[i])) {
      close(fd);
      return -1;
    }
  return fd;
}

static void *map(int fd, size_t n, int how) {
  struct stat st; /* a file shorter than said would be a bus error later */
  if (fd < 0 || fstat(fd, &st) != 0 || (size_t)st.st_size < n) return NULL;
  void *p = mmap(NULL, n ? n : 1, PROT_READ | PROT_WRITE, how, fd, 0);
  return p == MAP_FAILED ? NULL : p;
}

void *memfile_map(int fd, size_t n) { return map(fd, n, MAP_PRIVATE); }
void *memfile_share(int fd, size_t n) { return map(fd, n, MAP_SHARED); }
