/* What a log holds, read once: its records by workload and target, what each is worth, and where it stands in the file, so that
 * the few that are needed as a whole can be read again. Lines are read as RecordReader reads them: comments and empty lines
 * are skipped, broken ones counted, and a last line that was cut off while it was written is no fault of the log.
 */
#include "tune/tune.h"
#include "base/limits.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  TuneLog *log;
  Err *err;
  const char *path;
  FILE *file;
  Arena *scratch; /* of one line */
  MapStr known;   /* groups by their texts */
  char *line;
  size_t cap;
} Reading;

/* The next line without its end; what is longer than a record may be is left out from there on. False: the file ends. */
static bool next_line(Reading *x, bool *ended) {
  size_t n = 0;
  int c = EOF;
  while ((c = getc_unlocked(x->file)) != EOF && c != '\n')
    if (n + 1 < x->cap) x->line[n++] = (char)c;
  x->line[n] = 0;
  *ended = c == '\n';
  return n > 0 || *ended;
}

/* The bytes after the first of a character, or -1 if it begins none; *least: its second byte is not below, *most: nor above. */
static int tail_bytes(unsigned char c, unsigned char *least, unsigned char *most) {
  *least = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
  *most = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
  return c < 0x80 ? 0 : c < 0xc2 ? -1 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : c < 0xf5 ? 3 : -1;
}
static bool is_utf8(const char *s) {
  for (const unsigned char *p = (const unsigned char *)s; *p;) {
    unsigned char least, most;
    int n = tail_bytes(*p++, &least, &most);
    if (n < 0) return false;
    for (; n > 0; n--, p++, least = 0x80, most = 0xbf)
      if (*p < least || *p > most) return false;
  }
  return true;
}

static int group_of(Reading *x, const Record *r) {
  const char *math = record_math(x->scratch, r->version),
             *text = arena_printf(x->scratch, "%zu %zu %s %s%s%s", strlen(r->workload_key), strlen(r->target), math,
                                  r->workload_key, r->target, r->target_host);
  int at = maps_get(&x->known, text, -1);
  if (at >= 0) return at;
  Arena *a = x->log->arena;
  LogGroup g = {arena_strdup(a, r->workload_key),
                arena_strdup(a, r->target),
                arena_strdup(a, r->target_host),
                arena_strdup(a, math),
                0,
                0,
                x->log->record.len};
  at = x->log->group.len;
  maps_set(&x->known, text, at);
  vec_push(a, &x->log->group, g);
  return at;
}
static void one_record(void *arg) {
  Reading *x = arg;
  err_check(x->err, is_utf8(x->line), "bytes that are no UTF-8");
  const Record *r = record_parse(x->scratch, x->line);
  TuneLog *log = x->log;
  LogRecord rec = {group_of(x, r), rank_of(r->n_costs, r->cost, r->error_no, record_quick(r->version)), 0};
  vec_push(log->arena, &log->record, rec);
  LogGroup *g = &log->group.at[rec.group];
  bool valid = rec.rank.seconds < NO_SECONDS;
  *(valid ? &g->valid : &g->failed) += 1;
  log->impossible += !valid && r->error_no == 0;
  if (rank_before(rec.rank, log->record.at[g->best].rank)) g->best = log->record.len - 1;
}

static void read_all(void *arg) {
  Reading *x = arg;
  TuneLog *log = x->log;
  bool ended;
  int64_t at = 0;
  for (int number = 1; next_line(x, &ended); number++, at = ftello(x->file)) {
    if (x->line[strspn(x->line, " \t\r\f\v")] == 0 || x->line[0] == '#' || x->line[0] == ' ') continue;
    err_poll(x->err);
    ArenaMark mark = arena_mark(x->scratch);
    ErrCode c = err_try(x->err, one_record, x);
    arena_release(x->scratch, mark);
    if (c == NS_OK)
      log->record.at[log->record.len - 1].at = at;
    else if (c != NS_ERR_VALUE)
      err_rethrow(x->err, c);
    else if (!ended)
      log->cut = true;
    else {
      if (!log->fault) log->fault = arena_strdup(log->arena, x->err->msg);
      vec_push(log->arena, &log->broken, number);
    }
  }
  if (ferror(x->file)) err_raise(x->err, NS_ERR_IO, "%s cannot be read: %s", x->path, strerror(errno));
}

static void open_and_read(void *arg) {
  Reading *x = arg;
  x->scratch = arena_new(x->err);
  x->file = fopen(x->path, "re");
  if (!x->file) err_raise(x->err, NS_ERR_IO, "%s cannot be read: %s", x->path, strerror(errno));
  x->cap = (size_t)limit_of(LIMIT_LINE)->most + 3;
  x->line = arena_array(x->scratch, char, x->cap);
  maps_init(&x->known, x->log->arena);
  read_all(x);
}
static void leave(void *arg) {
  Reading *x = arg;
  if (x->file) fclose(x->file);
  arena_free(x->scratch);
}

TuneLog *log_read(Arena *a, const char *path) {
  Reading x = {.log = arena_new_of(a, TuneLog), .err = arena_err(a), .path = path};
  x.log->arena = a;
  err_guard(x.err, open_and_read, leave, &x);
  leave(&x);
  return x.log;
}
