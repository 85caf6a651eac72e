/* Digests: MD5 (RFC 1321), SHA-256 (FIPS 180-4) and a fast checksum. The first two cut the bytes into blocks of 64, the last padded with a one bit,
 * zeros and the number of bits; they differ in the step per block and in the order of bytes.
 *
 * SHA-256 covers whole model files when they are opened. Where the processor has instructions for it (SHA extensions of x86,
 * cryptography extension of ARMv8), they are used: they are compiled in always and chosen when the program runs. */
#include <stdio.h>
#include <string.h>
#include "base/object.h"
/* clang before version 16 hides the intrinsics of instructions that it was not told to use everywhere */
#if defined(__aarch64__) && defined(__linux__) && (!defined(__clang__) || __clang_major__ >= 16)
#define SHA_ARM 1
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

typedef void (*Blocks)(uint32_t *h, const uint8_t *p, size_t n); /* n blocks, one behind the other */
static void digest(uint32_t *h, const void *data, size_t n, Blocks blocks, bool big) {
  const uint8_t *s = data;
  size_t left = n % 64;
  blocks(h, s, n / 64);
  s += n - left;
  uint8_t tail[128] = {0};
  if (left) memcpy(tail, s, left);
  tail[left] = 0x80;
  size_t size = left < 56 ? 64 : 128;
  for (size_t i = 0; i < 8; i++) tail[big ? size - 1 - i : size - 8 + i] = (uint8_t)((uint64_t)n * 8 >> (8 * i));
  blocks(h, tail, size / 64);
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

static void md5_block(uint32_t *h, const uint8_t *p) {
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

static void md5_blocks(uint32_t *h, const uint8_t *p, size_t n) {
  for (; n; n--, p += 64) md5_block(h, p);
}

void md5_hex(const void *p, size_t n, char out[33]) {
  uint32_t h[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  digest(h, p, n, md5_blocks, false);
  for (int i = 0; i < 16; i++) snprintf(out + 2 * i, 3, "%02x", (h[i / 4] >> (8 * (i & 3))) & 255u);
}

/* ---- SHA-256: its constants are the first 32 bits of the fractions of the cube roots of the first 64 primes ---- */
static const uint32_t SHA_K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

/* One round: the eight words change their names instead of their places. w: the last 16 words of the message's schedule. */
#define SHA_ROUND(a, b, c, d, e, f, g, h, i)                                                                           \
  do {                                                                                                                 \
    uint32_t t_ = (h) + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((g) ^ ((e) & ((f) ^ (g)))) + k[i] + w[i];          \
    (d) += t_;                                                                                                         \
    (h) = t_ + (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + (((a) & (b)) | ((c) & ((a) | (b))));                         \
  } while (0)
#define SHA_EIGHT(i)                                                                                                   \
  do {                                                                                                                 \
    SHA_ROUND(a, b, c, d, e, f, g, h, (i) + 0);                                                                        \
    SHA_ROUND(h, a, b, c, d, e, f, g, (i) + 1);                                                                        \
    SHA_ROUND(g, h, a, b, c, d, e, f, (i) + 2);                                                                        \
    SHA_ROUND(f, g, h, a, b, c, d, e, (i) + 3);                                                                        \
    SHA_ROUND(e, f, g, h, a, b, c, d, (i) + 4);                                                                        \
    SHA_ROUND(d, e, f, g, h, a, b, c, (i) + 5);                                                                        \
    SHA_ROUND(c, d, e, f, g, h, a, b, (i) + 6);                                                                        \
    SHA_ROUND(b, c, d, e, f, g, h, a, (i) + 7);                                                                        \
  } while (0)

static inline void sha_schedule(uint32_t *w) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) {
    uint32_t x = w[(i + 1) & 15], y = w[(i + 14) & 15];
    w[i] += (turn(x, 7) ^ turn(x, 18) ^ x >> 3) + w[(i + 9) & 15] + (turn(y, 17) ^ turn(y, 19) ^ y >> 10);
  }
}

static void sha_block(uint32_t *s, const uint8_t *p) {
  uint32_t w[16], a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
  for (int i = 0; i < 16; i++)
    w[i] =
        (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | (uint32_t)p[4 * i + 3];
  for (const uint32_t *k = SHA_K; k < SHA_K + 64; k += 16) {
    if (k > SHA_K) sha_schedule(w);
    SHA_EIGHT(0);
    SHA_EIGHT(8);
  }
  s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e, s[5] += f, s[6] += g, s[7] += h;
}

static void sha_plain(uint32_t *h, const uint8_t *p, size_t n) {
  for (; n; n--, p += 64) sha_block(h, p);
}

/* ---- with the processor's instructions ---- */
#if defined(__x86_64__)
#define SHA_NEEDS "sha ssse3 sse4.1"
/* The instructions want the state as ABEF and CDGH; one does two rounds. m[g & 3]: words 4 g .. 4 g + 3 of the schedule. */
__attribute__((target("sha,ssse3,sse4.1"))) static void sha_fast(uint32_t *h, const uint8_t *p, size_t n) {
  const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i t = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)h), 0xb1);          /* CDAB */
  __m128i cdgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(h + 4)), 0x1b); /* EFGH */
  __m128i abef = _mm_alignr_epi8(t, cdgh, 8);
  cdgh = _mm_blend_epi16(cdgh, t, 0xf0);
  for (; n; n--, p += 64) {
    __m128i m[4], ab = abef, cd = cdgh;
    for (int g = 0; g < 4; g++) m[g] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)p + g), order);
#pragma GCC unroll 16
    for (int g = 0; g < 16; g++) {
      __m128i k = _mm_add_epi32(m[g & 3], _mm_loadu_si128((const __m128i *)SHA_K + g));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, k);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0e));
      __m128i last = m[(g + 3) & 3], x = _mm_sha256msg1_epu32(m[g & 3], m[(g + 1) & 3]);
      x = _mm_add_epi32(x, _mm_alignr_epi8(last, m[(g + 2) & 3], 4));
      m[g & 3] = _mm_sha256msg2_epu32(x, last);
    }
    abef = _mm_add_epi32(abef, ab);
    cdgh = _mm_add_epi32(cdgh, cd);
  }
  t = _mm_shuffle_epi32(abef, 0x1b);    /* FEBA */
  cdgh = _mm_shuffle_epi32(cdgh, 0xb1); /* DCHG */
  _mm_storeu_si128((__m128i *)h, _mm_blend_epi16(t, cdgh, 0xf0));
  _mm_storeu_si128((__m128i *)(h + 4), _mm_alignr_epi8(cdgh, t, 8));
}
#elif defined(SHA_ARM)
#define SHA_NEEDS "sha2"
__attribute__((target("+crypto"))) static void sha_fast(uint32_t *h, const uint8_t *p, size_t n) {
  uint32x4_t abcd = vld1q_u32(h), efgh = vld1q_u32(h + 4);
  for (; n; n--, p += 64) {
    uint32x4_t m[4], ab = abcd, ef = efgh;
    for (int g = 0; g < 4; g++) m[g] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16 * g)));
    for (int g = 0; g < 16; g++) {
      uint32x4_t k = vaddq_u32(m[g & 3], vld1q_u32(SHA_K + 4 * g)), before = abcd;
      abcd = vsha256hq_u32(abcd, efgh, k);
      efgh = vsha256h2q_u32(efgh, before, k);
      m[g & 3] = vsha256su1q_u32(vsha256su0q_u32(m[g & 3], m[(g + 1) & 3]), m[(g + 2) & 3], m[(g + 3) & 3]);
    }
    abcd = vaddq_u32(abcd, ab);
    efgh = vaddq_u32(efgh, ef);
  }
  vst1q_u32(h, abcd);
  vst1q_u32(h + 4, efgh);
}
#endif

/* Asking the processor takes longer than the digest of a few blocks. */
static Blocks sha_blocks(size_t n) {
#ifdef SHA_NEEDS
  enum { WORTH_IT = 4096 };
  char missing[64];
  if (n >= WORTH_IT && !isa_missing(SHA_NEEDS, missing, sizeof missing)) return sha_fast;
#endif
  (void)n;
  return sha_plain;
}

void sha256_hex(const void *p, size_t n, char out[65]) {
  uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  digest(h, p, n, sha_blocks(n), true);
  for (int i = 0; i < 8; i++) snprintf(out + 8 * i, 9, "%08x", h[i]);
}

/* ---- the fast checksum ----
 * Eight sums side by side, each of every eighth word. A step is a bijection of the sum for a given word and of the word for a given sum:
 * one changed word always changes the result. The last words count as if zeros followed. */
static const uint64_t SUM_ODD = 0x9e3779b97f4a7c15u;
static inline uint64_t sum_step(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * SUM_ODD;
  return sum ^ sum >> 32;
}
static inline uint64_t little(const uint8_t *p) {
  uint64_t w;
  memcpy(&w, p, sizeof w);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  w = __builtin_bswap64(w);
#endif
  return w;
}

uint64_t sum64(const void *p, size_t n) {
  enum { LANES = 8, BLOCK = 8 * LANES };
  const uint8_t *s = p;
  uint8_t tail[BLOCK] = {0};
  uint64_t lane[LANES], sum = n;
  for (int i = 0; i < LANES; i++) lane[i] = SUM_ODD * (uint64_t)(i + 1);
  for (size_t left = n; left >= BLOCK; left -= BLOCK, s += BLOCK)
    for (int i = 0; i < LANES; i++) lane[i] = sum_step(lane[i], little(s + 8 * i));
  if (n % BLOCK) memcpy(tail, s, n % BLOCK);
  for (int i = 0; i < LANES; i++) lane[i] = sum_step(lane[i], little(tail + 8 * i));
  for (int i = 0; i < LANES; i++) sum = sum_step(sum, lane[i]);
  return sum_step(sum, 0);
}
