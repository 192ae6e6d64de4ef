/* SHA-1, SHA-256 and SHA-512 (FIPS 180-4) as portable libraries have them: rounds written out, words in a ring;
 * with -DSMALL in loops, as such libraries are where they were asked to be small (OPENSSL_SMALL_FOOTPRINT,
 * MBEDTLS_SHA256_SMALLER). */
#include "flags.h"

#include <string.h>

#define CHOOSE(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define MAJORITY(x, y, z) (((x) & (y)) | ((z) & ((x) | (y))))

static uint8_t packet[PACKET];

static uint64_t load_be64(const uint8_t *bytes)
{
    return (uint64_t)load_be32(bytes) << 32 | load_be32(bytes + 4);
}

/* The primes' roots that are SHA-2's constants, computed: nothing to mistype. The first 64 bits behind the point. */
static uint64_t root(unsigned prime, int power)
{
    /* The whole part is below 8; found bit by bit, by multiplying 32-bit limbs. */
    uint32_t found[3] = {0, 0, 0};
    for (int bit = 66; bit >= 0; bit--) {
        uint32_t product[10] = {1}, next[10];
        found[bit / 32] |= 1u << bit % 32;
        for (int times = 0; times < power; times++) {
            memset(next, 0, sizeof next);
            for (int low = 0; low < 7; low++) {
                uint64_t carry = 0;
                for (int high = 0; high < 3; high++) {
                    carry += next[low + high] + (uint64_t)product[low] * found[high];
                    next[low + high] = (uint32_t)carry;
                    carry >>= 32;
                }
                next[low + 3] += (uint32_t)carry;
            }
            memcpy(product, next, sizeof next);
        }
        /* The point stands behind 64 * power bits. */
        if (product[2 * power] >= prime || product[2 * power + 1])
            found[bit / 32] &= ~(1u << bit % 32);
    }
    return (uint64_t)found[1] << 32 | found[0];
}

static uint64_t first512[8], round512[80];
static uint32_t first256[8], round256[64];

static void constants(void)
{
    unsigned prime = 2;
    for (int at = 0; at < 80; at++) {
        round512[at] = root(prime, 3);
        if (at < 64)
            round256[at] = (uint32_t)(round512[at] >> 32);
        if (at < 8) {
            first512[at] = root(prime, 2);
            first256[at] = (uint32_t)(first512[at] >> 32);
        }
        for (bool found = false; !found;) {
            found = true;
            prime++;
            for (unsigned divisor = 2; divisor * divisor <= prime; divisor++)
                if (prime % divisor == 0)
                    found = false;
        }
    }
}

#define SHA1_WORD(t) (words[(t) & 15] = (t) < 16 ? load_be32(block + 4 * (t)) \
    : rotl32(words[((t) + 13) & 15] ^ words[((t) + 8) & 15] ^ words[((t) + 2) & 15] ^ words[(t) & 15], 1))
#define SHA1_ROUND(a, b, c, d, e, t, mixed, constant) \
    (e += rotl32(a, 5) + (mixed) + (constant) + SHA1_WORD(t), b = rotl32(b, 30))
#define SHA1_FIVE(t, MIX, constant) \
    SHA1_ROUND(a, b, c, d, e, t, MIX(b, c, d), constant); \
    SHA1_ROUND(e, a, b, c, d, (t) + 1, MIX(a, b, c), constant); \
    SHA1_ROUND(d, e, a, b, c, (t) + 2, MIX(e, a, b), constant); \
    SHA1_ROUND(c, d, e, a, b, (t) + 3, MIX(d, e, a), constant); \
    SHA1_ROUND(b, c, d, e, a, (t) + 4, MIX(c, d, e), constant)
#define SHA1_TWENTY(t, MIX, constant) \
    SHA1_FIVE(t, MIX, constant); \
    SHA1_FIVE((t) + 5, MIX, constant); \
    SHA1_FIVE((t) + 10, MIX, constant); \
    SHA1_FIVE((t) + 15, MIX, constant)
#define PARITY(x, y, z) ((x) ^ (y) ^ (z))

#ifdef SMALL
static void sha1_block(uint32_t *state, const uint8_t *block)
{
    static const uint32_t constants[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t words[16], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int t = 0; t < 80; t++) {
        uint32_t mixed = t < 20 ? CHOOSE(b, c, d) : t >= 40 && t < 60 ? MAJORITY(b, c, d) : PARITY(b, c, d);
        uint32_t next = rotl32(a, 5) + mixed + e + constants[t / 20] + SHA1_WORD(t);
        e = d, d = c, c = rotl32(b, 30), b = a, a = next;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}
#else
static void sha1_block(uint32_t *state, const uint8_t *block)
{
    uint32_t words[16], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    SHA1_TWENTY(0, CHOOSE, 0x5a827999);
    SHA1_TWENTY(20, PARITY, 0x6ed9eba1);
    SHA1_TWENTY(40, MAJORITY, 0x8f1bbcdc);
    SHA1_TWENTY(60, PARITY, 0xca62c1d6);
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}
#endif

#define SHA2_ROUND(a, b, c, d, e, f, g, h, t) \
    h += BIG1(e) + CHOOSE(e, f, g) + ROUND[t] + WORD(t); \
    d += h; \
    h += BIG0(a) + MAJORITY(a, b, c)
/* Eight rounds bring the names back to where they were; the loop runs over sixteen, as the ring does. */
#define SHA2_EIGHT(t) \
    SHA2_ROUND(a, b, c, d, e, f, g, h, (t)); \
    SHA2_ROUND(h, a, b, c, d, e, f, g, (t) + 1); \
    SHA2_ROUND(g, h, a, b, c, d, e, f, (t) + 2); \
    SHA2_ROUND(f, g, h, a, b, c, d, e, (t) + 3); \
    SHA2_ROUND(e, f, g, h, a, b, c, d, (t) + 4); \
    SHA2_ROUND(d, e, f, g, h, a, b, c, (t) + 5); \
    SHA2_ROUND(c, d, e, f, g, h, a, b, (t) + 6); \
    SHA2_ROUND(b, c, d, e, f, g, h, a, (t) + 7)
/* One round a turn, and the names move on. */
#define SHA2_LOOP(type, rounds, first) \
    for (int t = 0; t < rounds; t++) { \
        type word = t < 16 ? (words[t] = first) : LATER(t); \
        type one = h + BIG1(e) + CHOOSE(e, f, g) + ROUND[t] + word, two = BIG0(a) + MAJORITY(a, b, c); \
        h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two; \
    }
#define LATER(t) \
    (words[(t) & 15] += SMALL0(words[((t) + 1) & 15]) + SMALL1(words[((t) + 14) & 15]) + words[((t) + 9) & 15])

#define R32(x, n) rotl32(x, 32 - (n))
#define BIG0(x) (R32(x, 2) ^ R32(x, 13) ^ R32(x, 22))
#define BIG1(x) (R32(x, 6) ^ R32(x, 11) ^ R32(x, 25))
#define SMALL0(x) (R32(x, 7) ^ R32(x, 18) ^ (x) >> 3)
#define SMALL1(x) (R32(x, 17) ^ R32(x, 19) ^ (x) >> 10)
#define ROUND round256

static void sha256_block(uint32_t *state, const uint8_t *block)
{
    uint32_t words[16], a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
#ifdef SMALL
    SHA2_LOOP(uint32_t, 64, load_be32(block + 4 * t));
#else
#define WORD(t) (words[t] = load_be32(block + 4 * (t)))
    SHA2_EIGHT(0);
    SHA2_EIGHT(8);
#undef WORD
#define WORD(t) LATER(t)
    for (int from = 16; from < 64; from += 16) {
        SHA2_EIGHT(from);
        SHA2_EIGHT(from + 8);
    }
#undef WORD
#endif
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

#undef BIG0
#undef BIG1
#undef SMALL0
#undef SMALL1
#undef ROUND
#define R64(x, n) ((x) >> (n) | (x) << (64 - (n)))
#define BIG0(x) (R64(x, 28) ^ R64(x, 34) ^ R64(x, 39))
#define BIG1(x) (R64(x, 14) ^ R64(x, 18) ^ R64(x, 41))
#define SMALL0(x) (R64(x, 1) ^ R64(x, 8) ^ (x) >> 7)
#define SMALL1(x) (R64(x, 19) ^ R64(x, 61) ^ (x) >> 6)
#define ROUND round512

static void sha512_block(uint64_t *state, const uint8_t *block)
{
    uint64_t words[16], a = state[0], b = state[1], c = state[2], d = state[3];
    uint64_t e = state[4], f = state[5], g = state[6], h = state[7];
#ifdef SMALL
    SHA2_LOOP(uint64_t, 80, load_be64(block + 8 * t));
#else
#define WORD(t) (words[t] = load_be64(block + 8 * (t)))
    SHA2_EIGHT(0);
    SHA2_EIGHT(8);
#undef WORD
#define WORD(t) LATER(t)
    for (int from = 16; from < 80; from += 16) {
        SHA2_EIGHT(from);
        SHA2_EIGHT(from + 8);
    }
#undef WORD
#endif
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

/* The last blocks: what is left, a one, zeros, and the length in bits at the end. Says how many bytes they are. */
static size_t tail(uint8_t *last, const uint8_t *message, size_t count, size_t block, size_t length)
{
    size_t left = count % block, bytes = left + 1 + length > block ? 2 * block : block;
    memset(last, 0, bytes);
    memcpy(last, message + count - left, left);
    last[left] = 0x80;
    store_be32(last + bytes - 4, (uint32_t)(8 * count));
    return bytes;
}

static uint32_t state1[5], state256[8];
static uint64_t state512[8];

static void sha1(const uint8_t *message, size_t count)
{
    static const uint32_t first[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint8_t last[128];
    size_t bytes = tail(last, message, count, 64, 8);
    memcpy(state1, first, sizeof first);
    for (size_t at = 0; at + 64 <= count; at += 64)
        sha1_block(state1, message + at);
    for (size_t at = 0; at < bytes; at += 64)
        sha1_block(state1, last + at);
}

static void sha256(const uint8_t *message, size_t count)
{
    uint8_t last[128];
    size_t bytes = tail(last, message, count, 64, 8);
    memcpy(state256, first256, sizeof first256);
    for (size_t at = 0; at + 64 <= count; at += 64)
        sha256_block(state256, message + at);
    for (size_t at = 0; at < bytes; at += 64)
        sha256_block(state256, last + at);
}

static void sha512(const uint8_t *message, size_t count)
{
    uint8_t last[256];
    size_t bytes = tail(last, message, count, 128, 16);
    memcpy(state512, first512, sizeof first512);
    for (size_t at = 0; at + 128 <= count; at += 128)
        sha512_block(state512, message + at);
    for (size_t at = 0; at < bytes; at += 128)
        sha512_block(state512, last + at);
}

/* FIPS 180-4's example of one block: "abc". */
static const uint8_t abc[] = "abc";

static bool sha1_abc(void)
{
    static const uint32_t wanted[5] = {0xa9993e36, 0x4706816a, 0xba3e2571, 0x7850c26c, 0x9cd0d89d};
    sha1(abc, 3);
    return !memcmp(state1, wanted, sizeof wanted);
}

static bool sha256_abc(void)
{
    constants();
    sha256(abc, 3);
    return state256[0] == 0xba7816bf && state256[7] == 0xf20015ad;
}

static bool sha512_abc(void)
{
    constants();
    sha512(abc, 3);
    return state512[0] == 0xddaf35a193617aba && state512[7] == 0x2a9ac94fa54ca49f;
}

static void sha1_run(void)
{
    for (int at = 0; at < PACKETS; at++)
        sha1(packet, PACKET);
}

static void sha256_run(void)
{
    for (int at = 0; at < PACKETS; at++)
        sha256(packet, PACKET);
}

static void sha512_run(void)
{
    for (int at = 0; at < PACKETS; at++)
        sha512(packet, PACKET);
}

/* Of 1408 zeros; computed with Python's hashlib. */
static bool sha1_is_right(void)
{
    return state1[0] == 0x6a197676;
}

static bool sha256_is_right(void)
{
    return state256[0] == 0xbffeeb2d;
}

static bool sha512_is_right(void)
{
    return state512[0] == 0x71bc303b893aa9ba;
}

const struct test sha1_test = {"sha1", PACKETS *PACKET, sha1_abc, sha1_run, sha1_is_right};
const struct test sha256_test = {"sha256", PACKETS *PACKET, sha256_abc, sha256_run, sha256_is_right};
const struct test sha512_test = {"sha512", PACKETS *PACKET, sha512_abc, sha512_run, sha512_is_right};
