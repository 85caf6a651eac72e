/* Hash maps with open addressing and linear probing, at most two thirds full, in arenas. A slot of MapU64 is free when
 * its value is INT32_MIN, so that every 64-bit key is allowed; the value INT32_MIN itself cannot be stored. A slot of
 * MapStr is free when its key is NULL. Nothing is ever removed. Below: MD5 (RFC 1321), used for workload keys only. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

static uint64_t mix64(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed) {
  const unsigned char *s = p;
  uint64_t h = seed ^ (0x9e3779b97f4a7c15u * (n + 1));
  while (n >= 8) {
    uint64_t w;
    memcpy(&w, s, 8);
    h = mix64(h ^ w) + 0x9e3779b97f4a7c15u;
    s += 8;
    n -= 8;
  }
  uint64_t w = 0;
  if (n) memcpy(&w, s, n);
  return mix64(h ^ w);
}

uint64_t hash_str(const char *s) { return hash_bytes(s, strlen(s), 0); }

static const int32_t FREE = INT32_MIN;

void mapu_init(MapU64 *m, Arena *a) {
  memset(m, 0, sizeof *m);
  m->arena = a;
}

static int32_t mapu_slot(const MapU64 *m, uint64_t key) {
  uint32_t mask = (uint32_t)m->cap - 1, i = (uint32_t)mix64(key) & mask;
  while (m->val[i] != FREE && m->key[i] != key) i = (i + 1) & mask;
  return (int32_t)i;
}

int32_t mapu_get(const MapU64 *m, uint64_t key, int32_t missing) {
  if (!m->cap) return missing;
  int32_t i = mapu_slot(m, key);
  return m->val[i] == FREE ? missing : m->val[i];
}

void mapu_set(MapU64 *m, uint64_t key, int32_t val) {
  err_assert(arena_err(m->arena), val != FREE);
  if ((m->len + 1) * 3 > m->cap * 2) {
    MapU64 old = *m;
    int32_t cap = old.cap ? old.cap * 2 : 16;
    uint64_t *keys = arena_array(m->arena, uint64_t, cap);
    int32_t *vals = arena_array(m->arena, int32_t, cap);
    m->key = keys;
    m->val = vals;
    m->cap = cap;
    for (int32_t i = 0; i < cap; i++) m->val[i] = FREE;
    for (int32_t i = 0; i < old.cap; i++) {
      if (old.val[i] == FREE) continue;
      int32_t j = mapu_slot(m, old.key[i]);
      m->key[j] = old.key[i];
      m->val[j] = old.val[i];
    }
  }
  int32_t i = mapu_slot(m, key);
  if (m->val[i] == FREE) m->len++;
  m->key[i] = key;
  m->val[i] = val;
}

void maps_init(MapStr *m, Arena *a) {
  memset(m, 0, sizeof *m);
  m->arena = a;
}

static int32_t maps_slot(const MapStr *m, const char *key) {
  uint32_t mask = (uint32_t)m->cap - 1, i = (uint32_t)hash_str(key) & mask;
  while (m->key[i] && strcmp(m->key[i], key) != 0) i = (i + 1) & mask;
  return (int32_t)i;
}

int32_t maps_get(const MapStr *m, const char *key, int32_t missing) {
  if (!m->cap) return missing;
  int32_t i = maps_slot(m, key);
  return m->key[i] ? m->val[i] : missing;
}

void maps_set(MapStr *m, const char *key, int32_t val) {
  if ((m->len + 1) * 3 > m->cap * 2) {
    MapStr old = *m;
    int32_t cap = old.cap ? old.cap * 2 : 16;
    const char **keys = arena_array(m->arena, const char *, cap);
    int32_t *vals = arena_array(m->arena, int32_t, cap);
    m->key = keys;
    m->val = vals;
    m->cap = cap;
    for (int32_t i = 0; i < old.cap; i++) {
      if (!old.key[i]) continue;
      int32_t j = maps_slot(m, old.key[i]);
      m->key[j] = old.key[i];
      m->val[j] = old.val[i];
    }
  }
  int32_t i = maps_slot(m, key);
  if (!m->key[i]) {
    m->key[i] = arena_strdup(m->arena, key);
    m->len++;
  }
  m->val[i] = val;
}

/* ---- MD5 ---- */
static const uint8_t MD5_SHIFT[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
static const uint32_t MD5_K[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

static void md5_block(uint32_t h[4], const uint8_t *p) {
  uint32_t w[16], a = h[0], b = h[1], c = h[2], d = h[3];
  for (int i = 0; i < 16; i++)
    w[i] =
        (uint32_t)p[4 * i] | (uint32_t)p[4 * i + 1] << 8 | (uint32_t)p[4 * i + 2] << 16 | (uint32_t)p[4 * i + 3] << 24;
  for (int i = 0; i < 64; i++) {
    uint32_t f;
    int g;
    if (i < 16)
      f = (b & c) | (~b & d), g = i;
    else if (i < 32)
      f = (d & b) | (~d & c), g = (5 * i + 1) & 15;
    else if (i < 48)
      f = b ^ c ^ d, g = (3 * i + 5) & 15;
    else
      f = c ^ (b | ~d), g = (7 * i) & 15;
    uint32_t t = a + f + MD5_K[i] + w[g];
    int s = MD5_SHIFT[i / 16][i & 3];
    a = d;
    d = c;
    c = b;
    b += (t << s) | (t >> (32 - s));
  }
  h[0] += a;
  h[1] += b;
  h[2] += c;
  h[3] += d;
}

void md5_hex(const void *p, size_t n, char out[33]) {
  uint32_t h[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  const uint8_t *s = p;
  size_t left = n;
  for (; left >= 64; s += 64, left -= 64) md5_block(h, s);
  uint8_t tail[128] = {0};
  if (left) memcpy(tail, s, left);
  tail[left] = 0x80;
  size_t size = left < 56 ? 64 : 128;
  uint64_t bits = (uint64_t)n * 8;
  for (int i = 0; i < 8; i++) tail[size - 8 + (size_t)i] = (uint8_t)(bits >> (8 * i));
  md5_block(h, tail);
  if (size == 128) md5_block(h, tail + 64);
  for (int i = 0; i < 16; i++) snprintf(out + 2 * i, 3, "%02x", (h[i / 4] >> (8 * (i & 3))) & 255u);
}
