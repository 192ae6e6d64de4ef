// ChaCha20 on AArch64: four blocks at a time, one in each 32-bit lane. ARMv7 has it in assembly.
//
// A register holds one word of all four states, so that a quarter round needs no shuffling.

#if defined(__aarch64__)

#include <arm_neon.h>
#include <stddef.h>

typedef uint32x4_t word;

static inline word rotate_16(word x)
{
    return vreinterpretq_u32_u16(vrev32q_u16(vreinterpretq_u16_u32(x)));
}

static inline word rotate_8(word x, uint8x16_t bytes)
{
    return vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(x), bytes));
}

// A step of four quarter rounds side by side, because each is one long chain.
#define ADD(x, y) x = vaddq_u32(x, y)
#define ROTATE_16(z, x) z = rotate_16(veorq_u32(z, x))
#define ROTATE_12(z, x) t = veorq_u32(z, x), z = vsriq_n_u32(vshlq_n_u32(t, 12), t, 20)
#define ROTATE_8(z, x) z = rotate_8(veorq_u32(z, x), bytes)
#define ROTATE_7(z, x) t = veorq_u32(z, x), z = vsriq_n_u32(vshlq_n_u32(t, 7), t, 25)
#define FOUR(STEP, a, b, c, d, e, f, g, h) STEP(a, e), STEP(b, f), STEP(c, g), STEP(d, h)

#define QUARTER_ROUNDS(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) \
    FOUR(ADD, a, b, c, d, e, f, g, h); \
    FOUR(ROTATE_16, m, n, o, p, a, b, c, d); \
    FOUR(ADD, i, j, k, l, m, n, o, p); \
    FOUR(ROTATE_12, e, f, g, h, i, j, k, l); \
    FOUR(ADD, a, b, c, d, e, f, g, h); \
    FOUR(ROTATE_8, m, n, o, p, a, b, c, d); \
    FOUR(ADD, i, j, k, l, m, n, o, p); \
    FOUR(ROTATE_7, e, f, g, h, i, j, k, l)

// Transposes: from a word of four blocks in each register to four words of a block in each.
static inline void transpose(word *a, word *b, word *c, word *d)
{
    const uint64x2_t ab = vreinterpretq_u64_u32(vtrn1q_u32(*a, *b)), ab2 = vreinterpretq_u64_u32(vtrn2q_u32(*a, *b));
    const uint64x2_t cd = vreinterpretq_u64_u32(vtrn1q_u32(*c, *d)), cd2 = vreinterpretq_u64_u32(vtrn2q_u32(*c, *d));
    *a = vreinterpretq_u32_u64(vtrn1q_u64(ab, cd));
    *b = vreinterpretq_u32_u64(vtrn1q_u64(ab2, cd2));
    *c = vreinterpretq_u32_u64(vtrn2q_u64(ab, cd));
    *d = vreinterpretq_u32_u64(vtrn2q_u64(ab2, cd2));
}

static inline word load(const uint8_t *text)
{
    return vreinterpretq_u32_u8(vld1q_u8(text));
}

static inline void store(uint8_t *text, word x)
{
    vst1q_u8(text, vreinterpretq_u8_u32(x));
}

// XORs a block of keystream into the text.
static inline void xor_block(uint8_t *text, word a, word b, word c, word d)
{
    store(text, veorq_u32(load(text), a));
    store(text + 16, veorq_u32(load(text + 16), b));
    store(text + 32, veorq_u32(load(text + 32), c));
    store(text + 48, veorq_u32(load(text + 48), d));
}

// XORs blocks of keystream into 64 bytes at each of four places. `rows` are the constants and the key, each word four
// times; a lane is its counter and its nonce. For each further pass the counters go on by 4 and the places by 256 bytes.
__attribute__((visibility("hidden"))) void millrace_chacha20_x4(const uint32_t rows[12][4], const uint32_t lanes[4][4],
                                                                uint8_t *const at[4], size_t passes)
{
    static const uint8_t by_a_byte[16] = {3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14};
    const uint8x16_t bytes = vld1q_u8(by_a_byte);
    word last_0 = vld1q_u32(lanes[0]), last_1 = vld1q_u32(lanes[1]);
    word last_2 = vld1q_u32(lanes[2]), last_3 = vld1q_u32(lanes[3]);
    transpose(&last_0, &last_1, &last_2, &last_3);
    size_t offset = 0;

    for (; passes > 0; passes--) {
        word a = vld1q_u32(rows[0]), b = vld1q_u32(rows[1]), c = vld1q_u32(rows[2]), d = vld1q_u32(rows[3]);
        word e = vld1q_u32(rows[4]), f = vld1q_u32(rows[5]), g = vld1q_u32(rows[6]), h = vld1q_u32(rows[7]);
        word i = vld1q_u32(rows[8]), j = vld1q_u32(rows[9]), k = vld1q_u32(rows[10]), l = vld1q_u32(rows[11]);
        word m = last_0, n = last_1, o = last_2, p = last_3;

        // Two double rounds a pass: compilers move some registers at the end of the loop, so fewer passes are faster.
        for (int four = 0; four < 5; four++) {
            word t;
            QUARTER_ROUNDS(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
            QUARTER_ROUNDS(a, b, c, d, f, g, h, e, k, l, i, j, p, m, n, o);
            QUARTER_ROUNDS(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
            QUARTER_ROUNDS(a, b, c, d, f, g, h, e, k, l, i, j, p, m, n, o);
        }

        FOUR(ADD, a, b, c, d, vld1q_u32(rows[0]), vld1q_u32(rows[1]), vld1q_u32(rows[2]), vld1q_u32(rows[3]));
        FOUR(ADD, e, f, g, h, vld1q_u32(rows[4]), vld1q_u32(rows[5]), vld1q_u32(rows[6]), vld1q_u32(rows[7]));
        FOUR(ADD, i, j, k, l, vld1q_u32(rows[8]), vld1q_u32(rows[9]), vld1q_u32(rows[10]), vld1q_u32(rows[11]));
        FOUR(ADD, m, n, o, p, last_0, last_1, last_2, last_3);
        last_0 = vaddq_u32(last_0, vdupq_n_u32(4));
        transpose(&a, &b, &c, &d);
        transpose(&e, &f, &g, &h);
        transpose(&i, &j, &k, &l);
        transpose(&m, &n, &o, &p);
        xor_block(at[0] + offset, a, e, i, m);
        xor_block(at[1] + offset, b, f, j, n);
        xor_block(at[2] + offset, c, g, k, o);
        xor_block(at[3] + offset, d, h, l, p);
        offset += 256;
    }
}

#endif
