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

/* One product: half of the maps live for a candidate and have a dozen small keys. */
static MapSlot *mapu_slot(const MapU64 *m, uint64_t key) {
  uint32_t mask = (uint32_t)m->cap - 1, i = (uint32_t)(((key ^ key >> 32) * 0xd6e8feb86659fd93u) >> 32) & mask;
  while (m->slot[i].val != FREE && m->slot[i].key != key) i = (i + 1) & mask;
  return &m->slot[i];
}

int32_t mapu_get(const MapU64 *m, uint64_t key, int32_t missing) {
  if (!m->cap) return missing;
  const MapSlot *s = mapu_slot(m, key);
  return s->val == FREE ? missing : s->val;
}

void mapu_set(MapU64 *m, uint64_t key, int32_t val) {
  err_assert(arena_err(m->arena), val != FREE);
  if ((m->len + 1) * 3 > m->cap * 2) {
    MapU64 old = *m;
    m->cap = old.cap ? old.cap * 2 : 16;
    m->slot = arena_array(m->arena, MapSlot, m->cap);
    for (int32_t i = 0; i < m->cap; i++) m->slot[i].val = FREE;
    for (int32_t i = 0; i < old.cap; i++)
      if (old.slot[i].val != FREE) *mapu_slot(m, old.slot[i].key) = old.slot[i];
  }
  MapSlot *s = mapu_slot(m, key);
  if (s->val == FREE) m->len++;
  *s = (MapSlot){key, val};
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
