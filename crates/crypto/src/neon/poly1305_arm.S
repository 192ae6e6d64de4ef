// Poly1305 on ARMv7 with NEON: two messages side by side, one in each 32-bit lane, two blocks of each in a step, and what is
// before the first and behind the last.
//
// Numbers are five limbs of 26 bits. A step is (h + m0) r^2 + m1 r. The first product of it uses the low halves of
// registers, the second the high halves, and one chain of carries serves both.

#if defined(__arm__)

        .syntax unified
        .arch   armv7-a
        .fpu    neon
        .arm
        .text

// void millrace_poly1305_x2(struct { uint32_t powers[9][4], h[5][2]; } *, const uint8_t *, const uint8_t *, size_t steps)
//
// Takes 32 bytes of each message for each step. `powers` are r0 r1 5r1 r2 5r2 r3 5r3 r4 5r4, for each of them r^2 of both
// messages and r of both. The limbs of h and of r^2 may be a little longer than 26 bits.
        .global millrace_poly1305_x2
        .hidden millrace_poly1305_x2
        .type   millrace_poly1305_x2, %function
        .align  5
millrace_poly1305_x2:
        vpush   {q4-q7}
        add     r12, r0, #144
        vld1.32 {d0}, [r12]!
        vld1.32 {d2}, [r12]!
        vld1.32 {d4}, [r12]!
        vld1.32 {d6}, [r12]!
        vld1.32 {d8}, [r12]
        vmov.i64 q15, #0xffffffff
        vshr.u64 q15, q15, #6           // 26 bits
        vmov.i32 d29, #5

        // The words of the blocks: of the first blocks in the low halves, of the second in the high ones.
1:      vld4.32 {d20, d22, d24, d26}, [r1]!
        vld4.32 {d21, d23, d25, d27}, [r2]!
        mov     r12, r0
        vtrn.32 d20, d21
        vtrn.32 d22, d23
        vtrn.32 d24, d25
        vtrn.32 d26, d27

        // Their limbs in q5 to q9.
        vshl.i32 q6, q11, #6
        vmov    q5, q10
        vshl.i32 q7, q12, #12
        vshl.i32 q8, q13, #18
        vsri.32 q6, q10, #26
        vsri.32 q7, q11, #20
        vsri.32 q8, q12, #14
        vshr.u32 q9, q13, #8
        vld1.32 {q10, q11}, [r12]!      // r0, r1
        vbic.i32 q5, #0xfc000000
        vbic.i32 q6, #0xfc000000
        vbic.i32 q7, #0xfc000000
        vbic.i32 q8, #0xfc000000
        vorr.i32 q9, #0x01000000
        vld1.32 {q12, q13}, [r12]!      // 5 r1, r2
        vadd.i32 d10, d10, d0
        vadd.i32 d12, d12, d2
        vadd.i32 d14, d14, d4
        vadd.i32 d16, d16, d6
        vadd.i32 d18, d18, d8

        // The products, by limb of the powers.
        vmull.u32 q0, d10, d20
        vmull.u32 q1, d12, d20
        vmull.u32 q2, d14, d20
        vmull.u32 q3, d16, d20
        vmull.u32 q4, d18, d20
        vmlal.u32 q0, d11, d21
        vmlal.u32 q1, d13, d21
        vmlal.u32 q2, d15, d21
        vmlal.u32 q3, d17, d21
        vmlal.u32 q4, d19, d21
        vmlal.u32 q1, d10, d22
        vmlal.u32 q2, d12, d22
        vmlal.u32 q3, d14, d22
        vmlal.u32 q4, d16, d22
        vmlal.u32 q1, d11, d23
        vmlal.u32 q2, d13, d23
        vmlal.u32 q3, d15, d23
        vmlal.u32 q4, d17, d23
        vld1.32 {q10, q11}, [r12]!      // 5 r2, r3
        vmlal.u32 q0, d18, d24
        vmlal.u32 q0, d19, d25
        vmlal.u32 q2, d10, d26
        vmlal.u32 q3, d12, d26
        vmlal.u32 q4, d14, d26
        vmlal.u32 q2, d11, d27
        vmlal.u32 q3, d13, d27
        vmlal.u32 q4, d15, d27
        vld1.32 {q12, q13}, [r12]!      // 5 r3, r4
        vmlal.u32 q0, d16, d20
        vmlal.u32 q1, d18, d20
        vmlal.u32 q0, d17, d21
        vmlal.u32 q1, d19, d21
        vmlal.u32 q3, d10, d22
        vmlal.u32 q4, d12, d22
        vmlal.u32 q3, d11, d23
        vmlal.u32 q4, d13, d23
        vld1.32 {q10}, [r12]            // 5 r4
        vmlal.u32 q0, d14, d24
        vmlal.u32 q1, d16, d24
        vmlal.u32 q2, d18, d24
        vmlal.u32 q0, d15, d25
        vmlal.u32 q1, d17, d25
        vmlal.u32 q2, d19, d25
        vmlal.u32 q4, d10, d26
        vmlal.u32 q4, d11, d27
        vmlal.u32 q0, d12, d20
        vmlal.u32 q1, d14, d20
        vmlal.u32 q2, d16, d20
        vmlal.u32 q3, d18, d20
        vmlal.u32 q0, d13, d21
        vmlal.u32 q1, d15, d21
        vmlal.u32 q2, d17, d21
        vmlal.u32 q3, d19, d21

        // The carries, of two chains side by side, and the limbs in d0, d2, d4, d6, d8.
        vsra.u64 q4, q3, #26
        vsra.u64 q1, q0, #26
        vand    q3, q3, q15
        vand    q0, q0, q15
        vshrn.u64 d28, q4, #26
        vsra.u64 q2, q1, #26
        vand    q4, q4, q15
        vmlal.u32 q0, d28, d29          // 2^130 is 5
        vand    q1, q1, q15
        vsra.u64 q3, q2, #26
        vsra.u64 q1, q0, #26
        vand    q2, q2, q15
        vsra.u64 q4, q3, #26
        vand    q0, q0, q15
        vand    q3, q3, q15
        vmovn.i64 d2, q1
        vmovn.i64 d4, q2
        subs    r3, r3, #1
        vmovn.i64 d0, q0
        vmovn.i64 d6, q3
        vmovn.i64 d8, q4
        bne     1b

        add     r12, r0, #144
        vst1.32 {d0}, [r12]!
        vst1.32 {d2}, [r12]!
        vst1.32 {d4}, [r12]!
        vst1.32 {d6}, [r12]!
        vst1.32 {d8}, [r12]
        vpop    {q4-q7}
        bx      lr
        .size   millrace_poly1305_x2, .-millrace_poly1305_x2

.macro  cut     limb
        vbic.i32 \limb, #0xfc000000
.endm

.macro  five to, of
        vshl.i32 \to, \of, #2
        vadd.i32 \to, \to, \of
.endm

// void millrace_poly1305_powers(uint32_t powers[9][4], const uint32_t *first, const uint32_t *second)
//
// The powers above of two keys, of which the first four words are r. Rows 0 to 7 are in q8 to q15, row 8 in q5: r^2 in the low
// halves, r in the high ones.
        .global millrace_poly1305_powers
        .hidden millrace_poly1305_powers
        .type   millrace_poly1305_powers, %function
        .align  5
millrace_poly1305_powers:
        vpush   {q4, q5}
        vld1.32 {d0, d1}, [r1]
        vld1.32 {d2, d3}, [r2]
        vzip.32 q0, q1                  // the first word of both, the second, the third, the fourth
        vmov    d17, d0
        vshl.i32 d19, d1, #6
        vshl.i32 d23, d2, #12
        vshl.i32 d27, d3, #18
        vsri.32 d19, d0, #26
        vsri.32 d23, d1, #20
        vsri.32 d27, d2, #14
        vshr.u32 d31, d3, #8
        // RFC 8439, section 2.5: some bits of r are clear.
        cut     d17
        cut     d19
        vbic.i32 d19, #0x000000fc
        cut     d23
        vbic.i32 d23, #0x00003f00
        cut     d27
        vbic.i32 d27, #0x000f0000
        vbic.i32 d27, #0x0000c000
        vbic.i32 d31, #0x00f00000
        five    d21, d19
        five    d25, d23
        five    d29, d27
        five    d11, d31

        // The square, with twice r0 to r3 in the low halves.
        vadd.i32 d16, d17, d17
        vadd.i32 d18, d19, d19
        vadd.i32 d22, d23, d23
        vadd.i32 d26, d27, d27
        vmull.u32 q0, d17, d17
        vmull.u32 q1, d16, d19
        vmull.u32 q2, d16, d23
        vmull.u32 q3, d16, d27
        vmull.u32 q4, d16, d31
        vmlal.u32 q0, d18, d11
        vmlal.u32 q1, d22, d11
        vmlal.u32 q2, d19, d19
        vmlal.u32 q3, d18, d23
        vmlal.u32 q4, d18, d27
        vmlal.u32 q0, d22, d29
        vmlal.u32 q1, d27, d29
        vmlal.u32 q2, d26, d11
        vmlal.u32 q3, d31, d11
        vmlal.u32 q4, d23, d23
        vsra.u64 q1, q0, #26
        vsra.u64 q2, q1, #26
        vsra.u64 q3, q2, #26
        vsra.u64 q4, q3, #26
        vmovn.i64 d16, q0
        vshrn.u64 d20, q4, #26
        vmovn.i64 d18, q1
        vmovn.i64 d22, q2
        vmovn.i64 d26, q3
        vmovn.i64 d30, q4
        cut     d16
        five    d24, d20                // 2^130 is 5
        cut     d18
        cut     d22
        vadd.i32 d16, d16, d24
        cut     d26
        cut     d30
        vsra.u32 d18, d16, #26
        cut     d16
        five    d20, d18
        five    d24, d22
        five    d28, d26
        five    d10, d30
        vst1.32 {d16-d19}, [r0]!
        vst1.32 {d20-d23}, [r0]!
        vst1.32 {d24-d27}, [r0]!
        vst1.32 {d28-d31}, [r0]!
        vst1.32 {d10, d11}, [r0]
        vpop    {q4, q5}
        bx      lr
        .size   millrace_poly1305_powers, .-millrace_poly1305_powers

// The tag at `to`, of the limbs h0 to h4 and s, which is at `key` + 16: their sum modulo 2^128. \h0 to \h3 are overwritten, r12 too.
.macro  tag     to, key, h0, h1, h2, h3, h4
        adds    \h0, \h0, \h1, lsl #26
        lsr     \h1, \h1, #6
        adcs    \h1, \h1, \h2, lsl #20
        lsr     \h2, \h2, #12
        adcs    \h2, \h2, \h3, lsl #14
        lsr     \h3, \h3, #18
        adc     \h3, \h3, \h4, lsl #8
        ldr     r12, [\key, #16]
        adds    \h0, \h0, r12
        ldr     r12, [\key, #20]
        adcs    \h1, \h1, r12
        ldr     r12, [\key, #24]
        adcs    \h2, \h2, r12
        ldr     r12, [\key, #28]
        adc     \h3, \h3, r12
        stm     \to, {\h0, \h1, \h2, \h3}
.endm

// void millrace_poly1305_tags(const uint32_t h[5][2], const uint32_t *first, const uint32_t *second, uint32_t tags[2][4])
//
// The tags of two messages, whose keys are given: h modulo 2^130 - 5, plus s, modulo 2^128.
        .global millrace_poly1305_tags
        .hidden millrace_poly1305_tags
        .type   millrace_poly1305_tags, %function
        .align  5
millrace_poly1305_tags:
        push    {r4-r11, lr}
        vld1.32 {d0-d3}, [r0]!
        vld1.32 {d4}, [r0]
        vmov.i32 d6, #5
        vsra.u32 d1, d0, #26
        vsra.u32 d2, d1, #26
        vsra.u32 d3, d2, #26
        vsra.u32 d4, d3, #26
        vshr.u32 d5, d4, #26
        cut     d0
        cut     d1
        vmla.i32 d0, d5, d6
        cut     d2
        vsra.u32 d1, d0, #26
        cut     d0
        vsra.u32 d2, d1, #26
        cut     d1
        cut     d3
        cut     d4

        // Whether h + 5 reaches 2^130: then that is the remainder.
        vadd.i32 d7, d0, d6
        vshr.u32 d7, d7, #26
        vadd.i32 d7, d7, d1
        vshr.u32 d7, d7, #26
        vadd.i32 d7, d7, d2
        vshr.u32 d7, d7, #26
        vadd.i32 d7, d7, d3
        vshr.u32 d7, d7, #26
        vadd.i32 d7, d7, d4
        vshr.u32 d7, d7, #26
        vmla.i32 d0, d7, d6

        vmov    r4, r5, d0
        vmov    r6, r7, d1
        vmov    r8, r9, d2
        vmov    r10, r11, d3
        vmov    r0, lr, d4
        tag     r3, r1, r4, r6, r8, r10, r0
        add     r3, r3, #16
        tag     r3, r2, r5, r7, r9, r11, lr
        pop     {r4-r11, pc}
        .size   millrace_poly1305_tags, .-millrace_poly1305_tags

        .section .note.GNU-stack, "", %progbits
#endif
