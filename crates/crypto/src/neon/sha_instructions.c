// SHA-1 and SHA-256 on AArch64 with its instructions for them, two messages side by side: a round waits for the one before,
// and the instructions take some cycles.

#if defined(__aarch64__)

#include <arm_neon.h>
#include <stddef.h>

#include "sha2_constants.h"

#if defined(__clang__)
#define ROUTINE __attribute__((visibility("hidden"), target("sha2"))) void
#else
#define ROUTINE __attribute__((visibility("hidden"), target("+crypto"))) void
#endif

#define BIG_ENDIAN(at) vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(at)))

// Four words of a lane; in `states` each word is in a row of four lanes.
#define GATHER(first, lane) \
    (uint32x4_t){states[first][lane], states[first + 1][lane], states[first + 2][lane], states[first + 3][lane]}
#define SCATTER(first, lane, x) \
    states[first][lane] = vgetq_lane_u32(x, 0), states[first + 1][lane] = vgetq_lane_u32(x, 1), \
    states[first + 2][lane] = vgetq_lane_u32(x, 2), states[first + 3][lane] = vgetq_lane_u32(x, 3)

#define SHA1_FOUR(rounds, constant, w) \
    do { \
        const uint32_t next = vsha1h_u32(vgetq_lane_u32(abcd, 0)), other_next = vsha1h_u32(vgetq_lane_u32(other_abcd, 0)); \
        abcd = rounds(abcd, e, vaddq_u32(w, constant)); \
        other_abcd = rounds(other_abcd, other_e, vaddq_u32(other_##w, constant)); \
        e = next, other_e = other_next; \
    } while (0)

// SHA1_FOUR, and then the words 16 places later in place of w. x, y and z are the words after w.
#define SHA1_FOUR_ON(rounds, constant, w, x, y, z) \
    do { \
        SHA1_FOUR(rounds, constant, w); \
        w = vsha1su1q_u32(vsha1su0q_u32(w, x, y), z); \
        other_##w = vsha1su1q_u32(vsha1su0q_u32(other_##w, other_##x, other_##y), other_##z); \
    } while (0)

// Hashes blocks of 64 bytes of each message. For each block a message goes on by its step, and `at` with it. A word of the
// states has room for four messages.
ROUTINE millrace_sha1_instructions_x2(uint32_t states[5][4], const uint8_t *at[2], const size_t step[2], size_t blocks)
{
    const uint32x4_t k0 = vdupq_n_u32(0x5a827999), k1 = vdupq_n_u32(0x6ed9eba1);
    const uint32x4_t k2 = vdupq_n_u32(0x8f1bbcdc), k3 = vdupq_n_u32(0xca62c1d6);
    const uint8_t *m = at[0], *other_m = at[1];
    uint32x4_t abcd = GATHER(0, 0), other_abcd = GATHER(0, 1);
    uint32_t e = states[4][0], other_e = states[4][1];
    for (; blocks > 0; blocks--, m += step[0], other_m += step[1]) {
        const uint32x4_t abcd0 = abcd, other_abcd0 = other_abcd;
        const uint32_t e0 = e, other_e0 = other_e;
        uint32x4_t w = BIG_ENDIAN(m), other_w = BIG_ENDIAN(other_m);
        uint32x4_t x = BIG_ENDIAN(m + 16), other_x = BIG_ENDIAN(other_m + 16);
        uint32x4_t y = BIG_ENDIAN(m + 32), other_y = BIG_ENDIAN(other_m + 32);
        uint32x4_t z = BIG_ENDIAN(m + 48), other_z = BIG_ENDIAN(other_m + 48);

        SHA1_FOUR_ON(vsha1cq_u32, k0, w, x, y, z);
        SHA1_FOUR_ON(vsha1cq_u32, k0, x, y, z, w);
        SHA1_FOUR_ON(vsha1cq_u32, k0, y, z, w, x);
        SHA1_FOUR_ON(vsha1cq_u32, k0, z, w, x, y);
        SHA1_FOUR_ON(vsha1cq_u32, k0, w, x, y, z);
        SHA1_FOUR_ON(vsha1pq_u32, k1, x, y, z, w);
        SHA1_FOUR_ON(vsha1pq_u32, k1, y, z, w, x);
        SHA1_FOUR_ON(vsha1pq_u32, k1, z, w, x, y);
        SHA1_FOUR_ON(vsha1pq_u32, k1, w, x, y, z);
        SHA1_FOUR_ON(vsha1pq_u32, k1, x, y, z, w);
        SHA1_FOUR_ON(vsha1mq_u32, k2, y, z, w, x);
        SHA1_FOUR_ON(vsha1mq_u32, k2, z, w, x, y);
        SHA1_FOUR_ON(vsha1mq_u32, k2, w, x, y, z);
        SHA1_FOUR_ON(vsha1mq_u32, k2, x, y, z, w);
        SHA1_FOUR_ON(vsha1mq_u32, k2, y, z, w, x);
        SHA1_FOUR_ON(vsha1pq_u32, k3, z, w, x, y);
        SHA1_FOUR(vsha1pq_u32, k3, w);
        SHA1_FOUR(vsha1pq_u32, k3, x);
        SHA1_FOUR(vsha1pq_u32, k3, y);
        SHA1_FOUR(vsha1pq_u32, k3, z);

        abcd = vaddq_u32(abcd, abcd0), other_abcd = vaddq_u32(other_abcd, other_abcd0);
        e += e0, other_e += other_e0;
    }
    SCATTER(0, 0, abcd), SCATTER(0, 1, other_abcd);
    states[4][0] = e, states[4][1] = other_e;
    at[0] = m, at[1] = other_m;
}

#define SHA256_FOUR(w, constant) \
    do { \
        const uint32x4_t t = vaddq_u32(w, constant), other_t = vaddq_u32(other_##w, constant); \
        const uint32x4_t before = abcd, other_before = other_abcd; \
        abcd = vsha256hq_u32(abcd, efgh, t), other_abcd = vsha256hq_u32(other_abcd, other_efgh, other_t); \
        efgh = vsha256h2q_u32(efgh, before, t), other_efgh = vsha256h2q_u32(other_efgh, other_before, other_t); \
    } while (0)

// SHA256_FOUR, and then the words 16 places later in place of w. x, y and z are the words after w.
#define SHA256_FOUR_ON(w, x, y, z, constant) \
    do { \
        SHA256_FOUR(w, constant); \
        w = vsha256su1q_u32(vsha256su0q_u32(w, x), y, z); \
        other_##w = vsha256su1q_u32(vsha256su0q_u32(other_##w, other_##x), other_##y, other_##z); \
    } while (0)

// The same as millrace_sha1_instructions_x2, for SHA-256.
ROUTINE millrace_sha256_instructions_x2(uint32_t states[8][4], const uint8_t *at[2], const size_t step[2], size_t blocks)
{
    const uint8_t *m = at[0], *other_m = at[1];
    uint32x4_t abcd = GATHER(0, 0), other_abcd = GATHER(0, 1);
    uint32x4_t efgh = GATHER(4, 0), other_efgh = GATHER(4, 1);
    for (; blocks > 0; blocks--, m += step[0], other_m += step[1]) {
        const uint32x4_t abcd0 = abcd, other_abcd0 = other_abcd, efgh0 = efgh, other_efgh0 = other_efgh;
        uint32x4_t w = BIG_ENDIAN(m), other_w = BIG_ENDIAN(other_m);
        uint32x4_t x = BIG_ENDIAN(m + 16), other_x = BIG_ENDIAN(other_m + 16);
        uint32x4_t y = BIG_ENDIAN(m + 32), other_y = BIG_ENDIAN(other_m + 32);
        uint32x4_t z = BIG_ENDIAN(m + 48), other_z = BIG_ENDIAN(other_m + 48);

        const uint32_t *k = sha256_constants;
        for (; k < sha256_constants + 48; k += 16) {
            SHA256_FOUR_ON(w, x, y, z, vld1q_u32(k));
            SHA256_FOUR_ON(x, y, z, w, vld1q_u32(k + 4));
            SHA256_FOUR_ON(y, z, w, x, vld1q_u32(k + 8));
            SHA256_FOUR_ON(z, w, x, y, vld1q_u32(k + 12));
        }
        SHA256_FOUR(w, vld1q_u32(k));
        SHA256_FOUR(x, vld1q_u32(k + 4));
        SHA256_FOUR(y, vld1q_u32(k + 8));
        SHA256_FOUR(z, vld1q_u32(k + 12));

        abcd = vaddq_u32(abcd, abcd0), other_abcd = vaddq_u32(other_abcd, other_abcd0);
        efgh = vaddq_u32(efgh, efgh0), other_efgh = vaddq_u32(other_efgh, other_efgh0);
    }
    SCATTER(0, 0, abcd), SCATTER(0, 1, other_abcd);
    SCATTER(4, 0, efgh), SCATTER(4, 1, other_efgh);
    at[0] = m, at[1] = other_m;
}

#endif
