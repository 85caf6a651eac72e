/* Text that grows: a byte array in an arena, doubled when full. The buffer always keeps one byte free for the NUL, so
 * sb_str never has to move it. */
#include "base/base.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

/* Records, manifests and sources are read by programs: a German user's "0,5" would not be a number there. */
int text_vprint(char *to, size_t n, const char *fmt, va_list ap) {
  if (strcmp(nl_langinfo(RADIXCHAR), ".") == 0) return vsnprintf(to, n, fmt, ap);
  locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0), old = plain ? uselocale(plain) : (locale_t)0;
  int k = vsnprintf(to, n, fmt, ap);
  if (plain) {
    uselocale(old);
    freelocale(plain);
  }
  return k;
}

const char *text_control(const char *s) {
  for (const unsigned char *p = (const unsigned char *)s; *p; p++)
    if ((*p < ' ' && !strchr("\t\n\r", *p)) || *p == 0x7f || (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0))
      return (const char *)p;
  return NULL;
}

void sb_init(StrBuf *b, Arena *a) {
  b->arena = a;
  b->at = NULL;
  b->len = b->cap = 0;
}

static void sb_grow(StrBuf *b, size_t n) {
  size_t cap = b->cap ? b->cap * 2 : 128;
  while (cap <= b->len + n) cap *= 2;
  char *p = arena_alloc(b->arena, cap);
  if (b->len) memcpy(p, b->at, b->len);
  b->at = p;
  b->cap = cap;
}
static inline void sb_need(StrBuf *b, size_t n) {
  if (b->cap - b->len <= n) sb_grow(b, n); /* strictly: room for the NUL */
}

void sb_putc(StrBuf *b, char c) {
  sb_need(b, 1);
  b->at[b->len++] = c;
}

void sb_write(StrBuf *b, const char *s, size_t n) {
  if (!n) return;
  sb_need(b, n);
  memcpy(b->at + b->len, s, n);
  b->len += n;
}

void sb_puts(StrBuf *b, const char *s) { sb_write(b, s, strlen(s)); }

void sb_vprintf(StrBuf *b, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  sb_need(b, 64);
  size_t room = b->cap - b->len;
  int n = text_vprint(b->at + b->len, room, fmt, ap);
  if (n > 0 && (size_t)n >= room) {
    sb_need(b, (size_t)n);
    text_vprint(b->at + b->len, b->cap - b->len, fmt, again);
  }
  va_end(again);
  if (n > 0) b->len += (size_t)n;
}

void sb_printf(StrBuf *b, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  sb_vprintf(b, fmt, ap);
  va_end(ap);
}

void sb_int(StrBuf *b, int64_t v) {
  char digits[24], *p = digits + sizeof digits;
  uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
  do *--p = (char)('0' + u % 10);
  while (u /= 10);
  if (v < 0) *--p = '-';
  sb_write(b, p, (size_t)(digits + sizeof digits - p));
}

void sb_spaces(StrBuf *b, int n) {
  if (n <= 0) return;
  sb_need(b, (size_t)n);
  memset(b->at + b->len, ' ', (size_t)n);
  b->len += (size_t)n;
}

void sb_json(StrBuf *b, const char *s) {
  static const char SHORT[] = "\"\"\\\\\nn\rr\tt"; /* pairs: the character, and what stands for it after a backslash */
  sb_putc(b, '"');
  for (; *s; s++) {
    const char *pair = SHORT;
    while (*pair && *pair != *s) pair += 2;
    if (*pair)
      sb_printf(b, "\\%c", pair[1]);
    else if ((unsigned char)*s < 32)
      sb_printf(b, "\\u%04x", *s);
    else
      sb_putc(b, *s);
  }
  sb_putc(b, '"');
}

char *sb_str(StrBuf *b) {
  sb_need(b, 0);
  b->at[b->len] = 0;
  return b->at;
}
