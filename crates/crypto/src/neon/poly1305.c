// Poly1305 on AArch64: two messages side by side, one in each 32-bit lane, two blocks of each in a step. ARMv7 has it in
// assembly.
//
// Numbers are five limbs of 26 bits. A step is (h + m0) r^2 + m1 r. The first product of it uses the low halves of
// registers, the second the high halves, and one chain of carries serves both.

#if defined(__aarch64__)

#include <arm_neon.h>
#include <stddef.h>

struct poly1305_x2 {
    // r0 r1 5r1 r2 5r2 r3 5r3 r4 5r4: each row has r^2 of both messages, then r of both. The limbs of r^2 and of h may
    // be a little longer than 26 bits.
    uint32_t powers[9][4];
    uint32_t h[5][2];
};

// The sum of both products of a limb of the messages and a limb of the powers: low halves, then high halves.
#define FIRST(limb, power) vmlal_high_u32(vmull_u32(vget_low_u32(limb), vget_low_u32(power)), limb, power)
#define MORE(sum, limb, power) vmlal_high_u32(vmlal_u32(sum, vget_low_u32(limb), vget_low_u32(power)), limb, power)

// The low halves of x and y in one register, and their high halves.
#define LOWS(x, y) vreinterpretq_u32_u64(vtrn1q_u64(vreinterpretq_u64_u32(x), vreinterpretq_u64_u32(y)))
#define HIGHS(x, y) vreinterpretq_u32_u64(vtrn2q_u64(vreinterpretq_u64_u32(x), vreinterpretq_u64_u32(y)))

// The low words of both 64-bit lanes in the low half; zeros in the high half.
static inline uint32x4_t narrow(uint64x2_t x)
{
    return vuzp1q_u32(vreinterpretq_u32_u64(x), vdupq_n_u32(0));
}

static inline uint32x4_t block(const uint8_t *at)
{
    return vreinterpretq_u32_u8(vld1q_u8(at));
}

// Takes 32 bytes of each message for each step.
__attribute__((visibility("hidden"))) void millrace_poly1305_x2(struct poly1305_x2 *state, const uint8_t *first,
                                                                const uint8_t *second, size_t steps)
{
    uint32x4_t r0 = vld1q_u32(state->powers[0]);
    uint32x4_t r1 = vld1q_u32(state->powers[1]), s1 = vld1q_u32(state->powers[2]);
    uint32x4_t r2 = vld1q_u32(state->powers[3]), s2 = vld1q_u32(state->powers[4]);
    uint32x4_t r3 = vld1q_u32(state->powers[5]), s3 = vld1q_u32(state->powers[6]);
    uint32x4_t r4 = vld1q_u32(state->powers[7]), s4 = vld1q_u32(state->powers[8]);
    const uint32x4_t limb_mask = vdupq_n_u32(0x3ffffff), bit_128 = vdupq_n_u32(1 << 24), none = vdupq_n_u32(0);
    const uint64x2_t mask = vdupq_n_u64(0x3ffffff);
    const uint32x2_t five = vdup_n_u32(5);
    uint32x4_t h0 = vcombine_u32(vld1_u32(state->h[0]), vget_low_u32(none));
    uint32x4_t h1 = vcombine_u32(vld1_u32(state->h[1]), vget_low_u32(none));
    uint32x4_t h2 = vcombine_u32(vld1_u32(state->h[2]), vget_low_u32(none));
    uint32x4_t h3 = vcombine_u32(vld1_u32(state->h[3]), vget_low_u32(none));
    uint32x4_t h4 = vcombine_u32(vld1_u32(state->h[4]), vget_low_u32(none));

    for (; steps > 0; steps--, first += 32, second += 32) {
        // Without this statement, gcc moves the low halves out of the loop and has too few registers.
        __asm__("" : "+w"(r0), "+w"(r1), "+w"(s1), "+w"(r2), "+w"(s2), "+w"(r3), "+w"(s3), "+w"(r4), "+w"(s4));

        // Puts the words of the first blocks into low halves, those of the second blocks into high halves.
        const uint32x4_t a = block(first), b = block(first + 16), c = block(second), d = block(second + 16);
        const uint32x4_t ac = vzip1q_u32(a, c), ac2 = vzip2q_u32(a, c), bd = vzip1q_u32(b, d), bd2 = vzip2q_u32(b, d);
        const uint32x4_t w0 = LOWS(ac, bd), w1 = HIGHS(ac, bd), w2 = LOWS(ac2, bd2), w3 = HIGHS(ac2, bd2);

        const uint32x4_t m0 = vaddq_u32(vandq_u32(w0, limb_mask), h0);
        const uint32x4_t m1 = vaddq_u32(vandq_u32(vsriq_n_u32(vshlq_n_u32(w1, 6), w0, 26), limb_mask), h1);
        const uint32x4_t m2 = vaddq_u32(vandq_u32(vsriq_n_u32(vshlq_n_u32(w2, 12), w1, 20), limb_mask), h2);
        const uint32x4_t m3 = vaddq_u32(vandq_u32(vsriq_n_u32(vshlq_n_u32(w3, 18), w2, 14), limb_mask), h3);
        const uint32x4_t m4 = vaddq_u32(vorrq_u32(vshrq_n_u32(w3, 8), bit_128), h4);

        uint64x2_t d0 = FIRST(m0, r0), d1 = FIRST(m1, r0), d2 = FIRST(m2, r0), d3 = FIRST(m3, r0), d4 = FIRST(m4, r0);
        d1 = MORE(d1, m0, r1), d2 = MORE(d2, m1, r1), d3 = MORE(d3, m2, r1), d4 = MORE(d4, m3, r1), d0 = MORE(d0, m4, s1);
        d2 = MORE(d2, m0, r2), d3 = MORE(d3, m1, r2), d4 = MORE(d4, m2, r2), d0 = MORE(d0, m3, s2), d1 = MORE(d1, m4, s2);
        d3 = MORE(d3, m0, r3), d4 = MORE(d4, m1, r3), d0 = MORE(d0, m2, s3), d1 = MORE(d1, m3, s3), d2 = MORE(d2, m4, s3);
        d4 = MORE(d4, m0, r4), d0 = MORE(d0, m1, s4), d1 = MORE(d1, m2, s4), d2 = MORE(d2, m3, s4), d3 = MORE(d3, m4, s4);

        // The carries, of two chains side by side.
        d4 = vsraq_n_u64(d4, d3, 26), d3 = vandq_u64(d3, mask);
        d1 = vsraq_n_u64(d1, d0, 26), d0 = vandq_u64(d0, mask);
        d0 = vmlal_u32(d0, vshrn_n_u64(d4, 26), five), d4 = vandq_u64(d4, mask); // 2^130 is 5
        d2 = vsraq_n_u64(d2, d1, 26), d1 = vandq_u64(d1, mask);
        d1 = vsraq_n_u64(d1, d0, 26), d0 = vandq_u64(d0, mask);
        d3 = vsraq_n_u64(d3, d2, 26), d2 = vandq_u64(d2, mask);
        d4 = vsraq_n_u64(d4, d3, 26), d3 = vandq_u64(d3, mask);
        h0 = narrow(d0), h1 = narrow(d1), h2 = narrow(d2), h3 = narrow(d3), h4 = narrow(d4);
    }

    vst1_u32(state->h[0], vget_low_u32(h0));
    vst1_u32(state->h[1], vget_low_u32(h1));
    vst1_u32(state->h[2], vget_low_u32(h2));
    vst1_u32(state->h[3], vget_low_u32(h3));
    vst1_u32(state->h[4], vget_low_u32(h4));
}

#endif
