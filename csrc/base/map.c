/* Hash maps with open addressing and linear probing, at most two thirds full, in arenas. A slot of MapU64 is free when
 * its value is INT32_MIN, so that every 64-bit key is allowed; the value INT32_MIN itself cannot be stored. A slot of
 * MapStr is free when its key is NULL. Nothing is ever removed. */
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
