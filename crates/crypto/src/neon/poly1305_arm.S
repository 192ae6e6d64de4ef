// Poly1305 on ARMv7 with NEON: two messages side by side, one in each 32-bit lane, two blocks of each in a step.
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

        .section .note.GNU-stack, "", %progbits
#endif
