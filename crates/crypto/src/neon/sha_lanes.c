// SHA-1, SHA-256 and SHA-512 on AArch64 without its instructions for them: four messages at once in 32-bit lanes, or two in
// 64-bit lanes. ARMv7 has them in assembly.

#if defined(__aarch64__)

#include <arm_neon.h>
#include <stddef.h>

#include "sha2_constants.h"

typedef uint32x4_t word32;
typedef uint64x2_t word64;

#define ROUTINE __attribute__((visibility("hidden"))) void

// The bits of x where those of `bits` are set, and of y elsewhere.
#define CHOOSE_32(bits, x, y) vbslq_u32(bits, x, y)
#define CHOOSE_64(bits, x, y) vbslq_u64(bits, x, y)

static inline word32 big_endian_32(const uint8_t *at)
{
    return vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(at)));
}

static inline word64 big_endian_64(const uint8_t *at)
{
    return vreinterpretq_u64_u8(vrev64q_u8(vld1q_u8(at)));
}

// Loads four words of each of four messages, one register for each word.
#define WORDS_32(w, x, y, z, offset) \
    do { \
        const word32 m0 = big_endian_32(m[0] + offset), m1 = big_endian_32(m[1] + offset); \
        const word32 m2 = big_endian_32(m[2] + offset), m3 = big_endian_32(m[3] + offset); \
        const word64 a = vreinterpretq_u64_u32(vtrn1q_u32(m0, m1)), b = vreinterpretq_u64_u32(vtrn2q_u32(m0, m1)); \
        const word64 c = vreinterpretq_u64_u32(vtrn1q_u32(m2, m3)), d = vreinterpretq_u64_u32(vtrn2q_u32(m2, m3)); \
        w = vreinterpretq_u32_u64(vtrn1q_u64(a, c)), x = vreinterpretq_u32_u64(vtrn1q_u64(b, d)); \
        y = vreinterpretq_u32_u64(vtrn2q_u64(a, c)), z = vreinterpretq_u32_u64(vtrn2q_u64(b, d)); \
    } while (0)

// Loads two words of each of two messages, one register for each word.
#define WORDS_64(w, x, offset) \
    do { \
        const word64 m0 = big_endian_64(m[0] + offset), m1 = big_endian_64(m[1] + offset); \
        w = vtrn1q_u64(m0, m1), x = vtrn2q_u64(m0, m1); \
    } while (0)

#define ROTATE_LEFT_32(x, by) vsriq_n_u32(vshlq_n_u32(x, by), x, 32 - (by))
#define ROTATE_32(x, by) vsriq_n_u32(vshlq_n_u32(x, 32 - (by)), x, by)
#define ROTATE_64(x, by) vsriq_n_u64(vshlq_n_u64(x, 64 - (by)), x, by)
#define XOR_32(x, y, z) veorq_u32(veorq_u32(x, y), z)
#define XOR_64(x, y, z) veorq_u64(veorq_u64(x, y), z)

// SHA-1's functions of the second, third and fourth state word.
#define SHA1_CHOOSE(b, c, d) CHOOSE_32(b, c, d)
#define SHA1_PARITY(b, c, d) XOR_32(b, c, d)
#define SHA1_MAJORITY(b, c, d) CHOOSE_32(veorq_u32(b, c), d, b)

#define SHA1_ROUND(function, a, b, c, d, e, w) \
    e = vaddq_u32(vaddq_u32(vaddq_u32(e, vaddq_u32(w, k)), function(b, c, d)), ROTATE_LEFT_32(a, 5)); \
    b = ROTATE_LEFT_32(b, 30)

#define SHA1_EXPAND(w, next2, next8, next13) \
    do { \
        const word32 x = veorq_u32(veorq_u32(w, next2), veorq_u32(next8, next13)); \
        w = ROTATE_LEFT_32(x, 1); \
    } while (0)

#define SHA1_FIVE(function, v, w, x, y, z) \
    SHA1_ROUND(function, a, b, c, d, e, v); \
    SHA1_ROUND(function, e, a, b, c, d, w); \
    SHA1_ROUND(function, d, e, a, b, c, x); \
    SHA1_ROUND(function, c, d, e, a, b, y); \
    SHA1_ROUND(function, b, c, d, e, a, z)

#define SHA1_EXPAND_16 \
    SHA1_EXPAND(w0, w2, w8, w13); \
    SHA1_EXPAND(w1, w3, w9, w14); \
    SHA1_EXPAND(w2, w4, w10, w15); \
    SHA1_EXPAND(w3, w5, w11, w0); \
    SHA1_EXPAND(w4, w6, w12, w1); \
    SHA1_EXPAND(w5, w7, w13, w2); \
    SHA1_EXPAND(w6, w8, w14, w3); \
    SHA1_EXPAND(w7, w9, w15, w4); \
    SHA1_EXPAND(w8, w10, w0, w5); \
    SHA1_EXPAND(w9, w11, w1, w6); \
    SHA1_EXPAND(w10, w12, w2, w7); \
    SHA1_EXPAND(w11, w13, w3, w8); \
    SHA1_EXPAND(w12, w14, w4, w9); \
    SHA1_EXPAND(w13, w15, w5, w10); \
    SHA1_EXPAND(w14, w0, w6, w11); \
    SHA1_EXPAND(w15, w1, w7, w12)

// Hashes blocks of 64 bytes of each message. For each block a message goes on by its step, and `at` with it.
ROUTINE millrace_sha1_x4(uint32_t states[5][4], const uint8_t *at[4], const size_t step[4], size_t blocks)
{
    const uint8_t *m[4] = {at[0], at[1], at[2], at[3]};
    word32 a = vld1q_u32(states[0]), b = vld1q_u32(states[1]), c = vld1q_u32(states[2]), d = vld1q_u32(states[3]);
    word32 e = vld1q_u32(states[4]);
    for (; blocks > 0; blocks--) {
        const word32 a0 = a, b0 = b, c0 = c, d0 = d, e0 = e;
        word32 w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15;
        WORDS_32(w0, w1, w2, w3, 0);
        WORDS_32(w4, w5, w6, w7, 16);
        WORDS_32(w8, w9, w10, w11, 32);
        WORDS_32(w12, w13, w14, w15, 48);
        for (int lane = 0; lane < 4; lane++)
            m[lane] += step[lane];

        word32 k = vdupq_n_u32(0x5a827999);
        SHA1_FIVE(SHA1_CHOOSE, w0, w1, w2, w3, w4);
        SHA1_FIVE(SHA1_CHOOSE, w5, w6, w7, w8, w9);
        SHA1_FIVE(SHA1_CHOOSE, w10, w11, w12, w13, w14);
        SHA1_ROUND(SHA1_CHOOSE, a, b, c, d, e, w15);
        SHA1_EXPAND_16;
        SHA1_ROUND(SHA1_CHOOSE, e, a, b, c, d, w0);
        SHA1_ROUND(SHA1_CHOOSE, d, e, a, b, c, w1);
        SHA1_ROUND(SHA1_CHOOSE, c, d, e, a, b, w2);
        SHA1_ROUND(SHA1_CHOOSE, b, c, d, e, a, w3);
        k = vdupq_n_u32(0x6ed9eba1);
        SHA1_FIVE(SHA1_PARITY, w4, w5, w6, w7, w8);
        SHA1_FIVE(SHA1_PARITY, w9, w10, w11, w12, w13);
        SHA1_ROUND(SHA1_PARITY, a, b, c, d, e, w14);
        SHA1_ROUND(SHA1_PARITY, e, a, b, c, d, w15);
        SHA1_EXPAND_16;
        SHA1_ROUND(SHA1_PARITY, d, e, a, b, c, w0);
        SHA1_ROUND(SHA1_PARITY, c, d, e, a, b, w1);
        SHA1_ROUND(SHA1_PARITY, b, c, d, e, a, w2);
        SHA1_FIVE(SHA1_PARITY, w3, w4, w5, w6, w7);
        k = vdupq_n_u32(0x8f1bbcdc);
        SHA1_FIVE(SHA1_MAJORITY, w8, w9, w10, w11, w12);
        SHA1_ROUND(SHA1_MAJORITY, a, b, c, d, e, w13);
        SHA1_ROUND(SHA1_MAJORITY, e, a, b, c, d, w14);
        SHA1_ROUND(SHA1_MAJORITY, d, e, a, b, c, w15);
        SHA1_EXPAND_16;
        SHA1_ROUND(SHA1_MAJORITY, c, d, e, a, b, w0);
        SHA1_ROUND(SHA1_MAJORITY, b, c, d, e, a, w1);
        SHA1_FIVE(SHA1_MAJORITY, w2, w3, w4, w5, w6);
        SHA1_FIVE(SHA1_MAJORITY, w7, w8, w9, w10, w11);
        k = vdupq_n_u32(0xca62c1d6);
        SHA1_ROUND(SHA1_PARITY, a, b, c, d, e, w12);
        SHA1_ROUND(SHA1_PARITY, e, a, b, c, d, w13);
        SHA1_ROUND(SHA1_PARITY, d, e, a, b, c, w14);
        SHA1_ROUND(SHA1_PARITY, c, d, e, a, b, w15);
        SHA1_EXPAND_16;
        SHA1_ROUND(SHA1_PARITY, b, c, d, e, a, w0);
        SHA1_FIVE(SHA1_PARITY, w1, w2, w3, w4, w5);
        SHA1_FIVE(SHA1_PARITY, w6, w7, w8, w9, w10);
        SHA1_FIVE(SHA1_PARITY, w11, w12, w13, w14, w15);

        a = vaddq_u32(a, a0), b = vaddq_u32(b, b0), c = vaddq_u32(c, c0), d = vaddq_u32(d, d0), e = vaddq_u32(e, e0);
    }
    vst1q_u32(states[0], a), vst1q_u32(states[1], b), vst1q_u32(states[2], c), vst1q_u32(states[3], d);
    vst1q_u32(states[4], e);
    for (int lane = 0; lane < 4; lane++)
        at[lane] = m[lane];
}

// SHA-2's rounds over words of either length; SIGMA0_32 and so on are its functions, large and small.
#define SIGMA0_32(x) XOR_32(ROTATE_32(x, 2), ROTATE_32(x, 13), ROTATE_32(x, 22))
#define SIGMA1_32(x) XOR_32(ROTATE_32(x, 6), ROTATE_32(x, 11), ROTATE_32(x, 25))
#define SMALL0_32(x) XOR_32(ROTATE_32(x, 7), ROTATE_32(x, 18), vshrq_n_u32(x, 3))
#define SMALL1_32(x) XOR_32(ROTATE_32(x, 17), ROTATE_32(x, 19), vshrq_n_u32(x, 10))
#define SIGMA0_64(x) XOR_64(ROTATE_64(x, 28), ROTATE_64(x, 34), ROTATE_64(x, 39))
#define SIGMA1_64(x) XOR_64(ROTATE_64(x, 14), ROTATE_64(x, 18), ROTATE_64(x, 41))
#define SMALL0_64(x) XOR_64(ROTATE_64(x, 1), ROTATE_64(x, 8), vshrq_n_u64(x, 7))
#define SMALL1_64(x) XOR_64(ROTATE_64(x, 19), ROTATE_64(x, 61), vshrq_n_u64(x, 6))

#define ROUND(bits, a, b, c, d, e, f, g, h, w) \
    do { \
        const word##bits k = vld1q_dup_u##bits(constant++); \
        const word##bits t = vaddq_u##bits(vaddq_u##bits(h, vaddq_u##bits(w, k)), CHOOSE_##bits(e, f, g)); \
        const word##bits u = vaddq_u##bits(t, SIGMA1_##bits(e)); \
        d = vaddq_u##bits(d, u); \
        h = vaddq_u##bits(vaddq_u##bits(u, SIGMA0_##bits(a)), CHOOSE_##bits(veorq_u##bits(a, b), c, b)); \
    } while (0)

#define EIGHT_ROUNDS(bits, s, t, u, v, w, x, y, z) \
    ROUND(bits, a, b, c, d, e, f, g, h, s); \
    ROUND(bits, h, a, b, c, d, e, f, g, t); \
    ROUND(bits, g, h, a, b, c, d, e, f, u); \
    ROUND(bits, f, g, h, a, b, c, d, e, v); \
    ROUND(bits, e, f, g, h, a, b, c, d, w); \
    ROUND(bits, d, e, f, g, h, a, b, c, x); \
    ROUND(bits, c, d, e, f, g, h, a, b, y); \
    ROUND(bits, b, c, d, e, f, g, h, a, z)

#define EXPAND(bits, w, next1, next9, next14) \
    w = vaddq_u##bits(vaddq_u##bits(w, next9), vaddq_u##bits(SMALL0_##bits(next1), SMALL1_##bits(next14)))

#define EXPAND_8(bits, w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15) \
    EXPAND(bits, w0, w1, w9, w14); \
    EXPAND(bits, w1, w2, w10, w15); \
    EXPAND(bits, w2, w3, w11, w0); \
    EXPAND(bits, w3, w4, w12, w1); \
    EXPAND(bits, w4, w5, w13, w2); \
    EXPAND(bits, w5, w6, w14, w3); \
    EXPAND(bits, w6, w7, w15, w4); \
    EXPAND(bits, w7, w8, w0, w5)

#define BLOCK(bits, rounds, constants) \
    do { \
        const word##bits a0 = a, b0 = b, c0 = c, d0 = d, e0 = e, f0 = f, g0 = g, h0 = h; \
        const uint##bits##_t *constant = constants; \
        for (int round = 16;; round += 16) { \
            EIGHT_ROUNDS(bits, w0, w1, w2, w3, w4, w5, w6, w7); \
            if (round < rounds) { \
                EXPAND_8(bits, w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15); \
            } \
            EIGHT_ROUNDS(bits, w8, w9, w10, w11, w12, w13, w14, w15); \
            if (round == rounds) \
                break; \
            EXPAND_8(bits, w8, w9, w10, w11, w12, w13, w14, w15, w0, w1, w2, w3, w4, w5, w6, w7); \
        } \
        a = vaddq_u##bits(a, a0), b = vaddq_u##bits(b, b0), c = vaddq_u##bits(c, c0), d = vaddq_u##bits(d, d0); \
        e = vaddq_u##bits(e, e0), f = vaddq_u##bits(f, f0), g = vaddq_u##bits(g, g0), h = vaddq_u##bits(h, h0); \
    } while (0)

#define LOAD(bits) \
    word##bits a = vld1q_u##bits(states[0]), b = vld1q_u##bits(states[1]); \
    word##bits c = vld1q_u##bits(states[2]), d = vld1q_u##bits(states[3]); \
    word##bits e = vld1q_u##bits(states[4]), f = vld1q_u##bits(states[5]); \
    word##bits g = vld1q_u##bits(states[6]), h = vld1q_u##bits(states[7])

#define STORE(bits) \
    vst1q_u##bits(states[0], a), vst1q_u##bits(states[1], b), vst1q_u##bits(states[2], c), vst1q_u##bits(states[3], d); \
    vst1q_u##bits(states[4], e), vst1q_u##bits(states[5], f), vst1q_u##bits(states[6], g), vst1q_u##bits(states[7], h)

// Hashes blocks of 64 bytes of each message. For each block a message goes on by its step, and `at` with it.
ROUTINE millrace_sha256_x4(uint32_t states[8][4], const uint8_t *at[4], const size_t step[4], size_t blocks)
{
    const uint8_t *m[4] = {at[0], at[1], at[2], at[3]};
    LOAD(32);
    for (; blocks > 0; blocks--) {
        word32 w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15;
        WORDS_32(w0, w1, w2, w3, 0);
        WORDS_32(w4, w5, w6, w7, 16);
        WORDS_32(w8, w9, w10, w11, 32);
        WORDS_32(w12, w13, w14, w15, 48);
        for (int lane = 0; lane < 4; lane++)
            m[lane] += step[lane];
        BLOCK(32, 64, sha256_constants);
    }
    STORE(32);
    for (int lane = 0; lane < 4; lane++)
        at[lane] = m[lane];
}

// Hashes blocks of 128 bytes of each message. For each block a message goes on by its step, and `at` with it. A word of the
// states has room for four messages.
ROUTINE millrace_sha512_x2(uint64_t states[8][4], const uint8_t *at[2], const size_t step[2], size_t blocks)
{
    const uint8_t *m[2] = {at[0], at[1]};
    LOAD(64);
    for (; blocks > 0; blocks--) {
        word64 w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15;
        WORDS_64(w0, w1, 0);
        WORDS_64(w2, w3, 16);
        WORDS_64(w4, w5, 32);
        WORDS_64(w6, w7, 48);
        WORDS_64(w8, w9, 64);
        WORDS_64(w10, w11, 80);
        WORDS_64(w12, w13, 96);
        WORDS_64(w14, w15, 112);
        for (int lane = 0; lane < 2; lane++)
            m[lane] += step[lane];
        BLOCK(64, 80, sha512_constants);
    }
    STORE(64);
    for (int lane = 0; lane < 2; lane++)
        at[lane] = m[lane];
}

#endif
