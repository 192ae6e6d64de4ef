/* AES-256-CBC with tables, ChaCha20 (RFC 8439, 2.3) and Poly1305 (RFC 8439, 2.5), as portable libraries have them.
 * -DSMALL: AES with one table that is turned instead of four, and a round a turn (MBEDTLS_AES_FEWER_TABLES). */
#include "flags.h"

#include <string.h>

static uint8_t packet[PACKET], sealed[PACKET];

/* The S-box, and a round's work on one byte in a word: four tables, turned against each other. */
static uint8_t sbox[256];
static uint32_t tables[4][256];

static uint8_t twice(uint8_t byte)
{
    return byte << 1 ^ (byte & 0x80 ? 0x1b : 0);
}

/* FIPS 197, 5.1.1: inverses in GF(2^8), found as powers of 3, and an affine map. */
static void make_tables(void)
{
    uint8_t powers[255], logarithms[256] = {0}, power = 1;
    for (int at = 0; at < 255; at++) {
        powers[at] = power;
        logarithms[power] = at;
        power ^= twice(power);
    }
    for (int byte = 0; byte < 256; byte++) {
        unsigned inverse = byte ? powers[(255 - logarithms[byte]) % 255] : 0, mapped = inverse | inverse << 8;
        uint8_t s = 0x63 ^ inverse ^ (uint8_t)(mapped >> 7) ^ (uint8_t)(mapped >> 6) ^ (uint8_t)(mapped >> 5) ^
                    (uint8_t)(mapped >> 4);
        uint32_t column = (uint32_t)twice(s) << 24 | (uint32_t)s << 16 | (uint32_t)s << 8 | (uint32_t)(twice(s) ^ s);
        sbox[byte] = s;
        for (int table = 0; table < 4; table++)
            tables[table][byte] = table ? rotl32(column, 32 - 8 * table) : column;
    }
}

enum { AES_ROUNDS = 14 };
static uint32_t aes_keys[4 * (AES_ROUNDS + 1)];

static uint32_t substituted(uint32_t word)
{
    return (uint32_t)sbox[word >> 24] << 24 | (uint32_t)sbox[word >> 16 & 255] << 16 |
           (uint32_t)sbox[word >> 8 & 255] << 8 | sbox[word & 255];
}

/* FIPS 197, 5.2, for 256 bits: the key 00 01 ... 1f of its appendix C.3. */
static void aes_key(void)
{
    uint8_t constant = 1;
    for (int at = 0; at < 8; at++)
        aes_keys[at] = 0x00010203 + 0x04040404 * (uint32_t)at;
    for (int at = 8; at < 4 * (AES_ROUNDS + 1); at++) {
        uint32_t word = aes_keys[at - 1];
        if (at % 8 == 0) {
            word = substituted(rotl32(word, 8)) ^ (uint32_t)constant << 24;
            constant = twice(constant);
        } else if (at % 8 == 4) {
            word = substituted(word);
        }
        aes_keys[at] = aes_keys[at - 8] ^ word;
    }
}

#ifdef SMALL
#define TURNED(table, byte) rotl32(tables[0][byte], 32 - 8 * (table))
#define AES_COLUMN(a, b, c, d, key) \
    (tables[0][(a) >> 24] ^ TURNED(1, (b) >> 16 & 255) ^ TURNED(2, (c) >> 8 & 255) ^ TURNED(3, (d)&255) ^ (key))
#else
#define AES_COLUMN(a, b, c, d, key) \
    (tables[0][(a) >> 24] ^ tables[1][(b) >> 16 & 255] ^ tables[2][(c) >> 8 & 255] ^ tables[3][(d)&255] ^ (key))
#endif
#define AES_LAST(a, b, c, d, key) \
    (((uint32_t)sbox[(a) >> 24] << 24 | (uint32_t)sbox[(b) >> 16 & 255] << 16 | (uint32_t)sbox[(c) >> 8 & 255] << 8 | \
      sbox[(d)&255]) ^ (key))
/* Two rounds a turn, so that nothing is moved between them. */
static void aes_block(uint32_t *block)
{
    const uint32_t *key = aes_keys;
    uint32_t a = block[0] ^ key[0], b = block[1] ^ key[1], c = block[2] ^ key[2], d = block[3] ^ key[3];
    uint32_t e, f, g, h;
#ifdef SMALL
    for (int round = 1; round < AES_ROUNDS; round++) {
        key += 4;
        e = AES_COLUMN(a, b, c, d, key[0]);
        f = AES_COLUMN(b, c, d, a, key[1]);
        g = AES_COLUMN(c, d, a, b, key[2]);
        h = AES_COLUMN(d, a, b, c, key[3]);
        a = e, b = f, c = g, d = h;
    }
    key += 4;
#else
    for (int left = AES_ROUNDS / 2;;) {
        e = AES_COLUMN(a, b, c, d, key[4]);
        f = AES_COLUMN(b, c, d, a, key[5]);
        g = AES_COLUMN(c, d, a, b, key[6]);
        h = AES_COLUMN(d, a, b, c, key[7]);
        key += 8;
        if (--left == 0)
            break;
        a = AES_COLUMN(e, f, g, h, key[0]);
        b = AES_COLUMN(f, g, h, e, key[1]);
        c = AES_COLUMN(g, h, e, f, key[2]);
        d = AES_COLUMN(h, e, f, g, key[3]);
    }
#endif
    block[0] = AES_LAST(e, f, g, h, key[0]);
    block[1] = AES_LAST(f, g, h, e, key[1]);
    block[2] = AES_LAST(g, h, e, f, key[2]);
    block[3] = AES_LAST(h, e, f, g, key[3]);
}

static void aes_cbc(uint8_t *out, const uint8_t *in, size_t bytes)
{
    uint32_t chain[4] = {0, 0, 0, 0};
    for (size_t at = 0; at + 16 <= bytes; at += 16) {
        for (int word = 0; word < 4; word++)
            chain[word] ^= load_be32(in + at + 4 * word);
        aes_block(chain);
        for (int word = 0; word < 4; word++)
            store_be32(out + at + 4 * word, chain[word]);
    }
}

/* FIPS 197, C.3. */
static bool aes_vector(void)
{
    static const uint32_t wanted[4] = {0x8ea2b7ca, 0x516745bf, 0xeafc4990, 0x4b496089};
    uint32_t block[4] = {0x00112233, 0x44556677, 0x8899aabb, 0xccddeeff};
    make_tables();
    aes_key();
    aes_block(block);
    return !memcmp(block, wanted, sizeof wanted);
}

static void aes_run(void)
{
    for (int at = 0; at < PACKETS; at++)
        aes_cbc(sealed, packet, PACKET);
}

/* The last block of 88 blocks of zeros with an IV of zeros; computed with OpenSSL. */
static bool aes_is_right(void)
{
    return load_be32(sealed + PACKET - 16) == 0xd4b5972e;
}

#define QUARTER(a, b, c, d) \
    a += b, d = rotl32(d ^ a, 16), c += d, b = rotl32(b ^ c, 12), \
    a += b, d = rotl32(d ^ a, 8), c += d, b = rotl32(b ^ c, 7)

static void chacha20(uint8_t *out, const uint8_t *in, size_t bytes, const uint32_t *start)
{
    uint32_t first[16], x[16];
    memcpy(first, start, sizeof first);
    for (size_t at = 0; at + 64 <= bytes; at += 64) {
        memcpy(x, first, sizeof x);
        for (int rounds = 0; rounds < 20; rounds += 2) {
            QUARTER(x[0], x[4], x[8], x[12]);
            QUARTER(x[1], x[5], x[9], x[13]);
            QUARTER(x[2], x[6], x[10], x[14]);
            QUARTER(x[3], x[7], x[11], x[15]);
            QUARTER(x[0], x[5], x[10], x[15]);
            QUARTER(x[1], x[6], x[11], x[12]);
            QUARTER(x[2], x[7], x[8], x[13]);
            QUARTER(x[3], x[4], x[9], x[14]);
        }
        for (int word = 0; word < 16; word++)
            store_le32(out + at + 4 * word, load_le32(in + at + 4 * word) ^ (x[word] + first[word]));
        first[12]++;
    }
}

/* RFC 8439, 2.3.2: the key 00 01 ... 1f, the block 1. */
static uint32_t chacha_start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, 0x03020100, 0x07060504,
                                    0x0b0a0908, 0x0f0e0d0c, 0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c,
                                    1,          0x09000000, 0x4a000000, 0};

static bool chacha20_vector(void)
{
    chacha20(sealed, packet, 64, chacha_start);
    return load_le32(sealed) == 0xe4e7f110 && load_le32(sealed + 60) == 0x4e3c50a2;
}

static void chacha20_run(void)
{
    for (int at = 0; at < PACKETS; at++)
        chacha20(sealed, packet, PACKET, chacha_start);
}

/* The last word of the blocks 1 to 22; computed with OpenSSL. */
static bool chacha20_is_right(void)
{
    return load_le32(sealed + PACKET - 4) == 0x04c5eee4;
}

/* Five limbs of 26 bits; products of 32-bit numbers are 64-bit sums. */
struct poly1305 {
    uint32_t r[5], h[5], pad[4];
};

static void poly1305_key(struct poly1305 *poly, const uint8_t *key)
{
    uint32_t t[4];
    for (int word = 0; word < 4; word++) {
        t[word] = load_le32(key + 4 * word) & (word ? 0x0ffffffc : 0x0fffffff);
        poly->pad[word] = load_le32(key + 16 + 4 * word);
    }
    poly->r[0] = t[0] & 0x3ffffff;
    poly->r[1] = (t[0] >> 26 | t[1] << 6) & 0x3ffffff;
    poly->r[2] = (t[1] >> 20 | t[2] << 12) & 0x3ffffff;
    poly->r[3] = (t[2] >> 14 | t[3] << 18) & 0x3ffffff;
    poly->r[4] = t[3] >> 8;
    memset(poly->h, 0, sizeof poly->h);
}

static void poly1305_blocks(struct poly1305 *poly, const uint8_t *in, size_t bytes, uint32_t top)
{
    const uint32_t r0 = poly->r[0], r1 = poly->r[1], r2 = poly->r[2], r3 = poly->r[3], r4 = poly->r[4];
    const uint32_t s1 = 5 * r1, s2 = 5 * r2, s3 = 5 * r3, s4 = 5 * r4;
    uint32_t h0 = poly->h[0], h1 = poly->h[1], h2 = poly->h[2], h3 = poly->h[3], h4 = poly->h[4];
    for (size_t at = 0; at + 16 <= bytes; at += 16) {
        uint32_t t0 = load_le32(in + at), t1 = load_le32(in + at + 4);
        uint32_t t2 = load_le32(in + at + 8), t3 = load_le32(in + at + 12);
        h0 += t0 & 0x3ffffff;
        h1 += (t0 >> 26 | t1 << 6) & 0x3ffffff;
        h2 += (t1 >> 20 | t2 << 12) & 0x3ffffff;
        h3 += (t2 >> 14 | t3 << 18) & 0x3ffffff;
        h4 += t3 >> 8 | top << 24;
#define M(a, b) ((uint64_t)(a) * (b))
        uint64_t d0 = M(h0, r0) + M(h1, s4) + M(h2, s3) + M(h3, s2) + M(h4, s1);
        uint64_t d1 = M(h0, r1) + M(h1, r0) + M(h2, s4) + M(h3, s3) + M(h4, s2);
        uint64_t d2 = M(h0, r2) + M(h1, r1) + M(h2, r0) + M(h3, s4) + M(h4, s3);
        uint64_t d3 = M(h0, r3) + M(h1, r2) + M(h2, r1) + M(h3, r0) + M(h4, s4);
        uint64_t d4 = M(h0, r4) + M(h1, r3) + M(h2, r2) + M(h3, r1) + M(h4, r0);
#undef M
        d1 += d0 >> 26, h0 = d0 & 0x3ffffff;
        d2 += d1 >> 26, h1 = d1 & 0x3ffffff;
        d3 += d2 >> 26, h2 = d2 & 0x3ffffff;
        d4 += d3 >> 26, h3 = d3 & 0x3ffffff;
        h0 += 5 * (uint32_t)(d4 >> 26), h4 = d4 & 0x3ffffff;
        h1 += h0 >> 26, h0 &= 0x3ffffff;
    }
    poly->h[0] = h0, poly->h[1] = h1, poly->h[2] = h2, poly->h[3] = h3, poly->h[4] = h4;
}

static void poly1305_tag(struct poly1305 *poly, uint8_t *tag)
{
    uint32_t *h = poly->h, carry = 0, g[5];
    /* Twice around, so that each limb is below 2^26. */
    for (int at = 1; at < 11; at++) {
        h[at % 5] += carry;
        carry = h[at % 5] >> 26;
        h[at % 5] &= 0x3ffffff;
        if (at % 5 == 4)
            carry *= 5;
    }
    h[1] += carry;
    /* Less 2^130 - 5, where that is not negative. */
    carry = 5;
    for (int at = 0; at < 5; at++) {
        g[at] = h[at] + carry;
        carry = g[at] >> 26;
        g[at] &= 0x3ffffff;
    }
    for (int at = 0; at < 5; at++)
        h[at] = carry ? g[at] : h[at];
    uint32_t words[4] = {h[0] | h[1] << 26, h[1] >> 6 | h[2] << 20, h[2] >> 12 | h[3] << 14, h[3] >> 18 | h[4] << 8};
    uint64_t sum = 0;
    for (int at = 0; at < 4; at++) {
        sum += (uint64_t)words[at] + poly->pad[at];
        store_le32(tag + 4 * at, (uint32_t)sum);
        sum >>= 32;
    }
}

/* RFC 8439, 2.5.2. */
static const uint8_t poly_key[32] = {0x85, 0xd6, 0xbe, 0x78, 0x57, 0x55, 0x6d, 0x33, 0x7f, 0x44, 0x52,
                                     0xfe, 0x42, 0xd5, 0x06, 0xa8, 0x01, 0x03, 0x80, 0x8a, 0xfb, 0x0d,
                                     0xb2, 0xfd, 0x4a, 0xbf, 0xf6, 0xaf, 0x41, 0x49, 0xf5, 0x1b};
static uint8_t poly_tag[16];

static bool poly1305_vector(void)
{
    static const char text[] = "Cryptographic Forum Research Group";
    uint8_t last[16] = {0};
    struct poly1305 poly;
    poly1305_key(&poly, poly_key);
    poly1305_blocks(&poly, (const uint8_t *)text, 32, 1);
    memcpy(last, text + 32, 2);
    last[2] = 1;
    poly1305_blocks(&poly, last, 16, 0);
    poly1305_tag(&poly, poly_tag);
    return load_be32(poly_tag) == 0xa8061dc1 && load_be32(poly_tag + 12) == 0x0c0127a9;
}

static void poly1305_run(void)
{
    for (int at = 0; at < PACKETS; at++) {
        struct poly1305 poly;
        poly1305_key(&poly, poly_key);
        poly1305_blocks(&poly, packet, PACKET, 1);
        poly1305_tag(&poly, poly_tag);
    }
}

/* Of 1408 zeros; computed with whole numbers of any length. */
static bool poly1305_is_right(void)
{
    return load_le32(poly_tag) == 0x49959713;
}

const struct test aes_test = {"aes-256-cbc", PACKETS *PACKET, aes_vector, aes_run, aes_is_right};
const struct test chacha20_test = {"chacha20", PACKETS *PACKET, chacha20_vector, chacha20_run, chacha20_is_right};
const struct test poly1305_test = {"poly1305", PACKETS *PACKET, poly1305_vector, poly1305_run, poly1305_is_right};
