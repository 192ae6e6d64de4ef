// Sums of 32-bit words on ARMv7 with NEON, for the Internet checksum: of bytes where they lie, or while they are moved.
//
// Words are added in pairs to sums of 64 bits (vpadal), 64 bytes in a step.

#if defined(__arm__)

        .syntax unified
        .arch   armv7-a
        .fpu    neon
        .arm
        .text

        .macro  function name
        .global \name
        .hidden \name
        .type   \name, %function
        .align  4
\name:
        .endm

// uint64_t millrace_sum(const uint8_t *bytes, size_t len)
//
// What is behind the last whole word counts as if zeros followed.
        function millrace_sum
        vmov.i64 q8, #0
        vmov.i64 q9, #0
        subs    r1, r1, #64
        blo     2f
1:      vld1.8  {d0-d3}, [r0]!
        vld1.8  {d4-d7}, [r0]!
        vpadal.u32 q8, q0
        vpadal.u32 q9, q1
        subs    r1, r1, #64
        vpadal.u32 q8, q2
        vpadal.u32 q9, q3
        bhs     1b
        // The low six bits are what is left.
2:      tst     r1, #32
        beq     3f
        vld1.8  {d0-d3}, [r0]!
        vpadal.u32 q8, q0
        vpadal.u32 q9, q1
3:      tst     r1, #16
        beq     4f
        vld1.8  {d0-d1}, [r0]!
        vpadal.u32 q8, q0
4:      vadd.i64 q8, q8, q9
        tst     r1, #8
        beq     5f
        vld1.8  {d0}, [r0]!
        vaddw.u32 q8, q8, d0
5:      tst     r1, #7
        beq     7f
        mov     r2, #0
        mov     r3, #0
        tst     r1, #4
        ldrne   r2, [r0], #4
        tst     r1, #2
        ldrhne  r3, [r0], #2
        tst     r1, #1
        beq     6f
        ldrb    r12, [r0]
        tst     r1, #2
        lslne   r12, r12, #16
        orr     r3, r3, r12
6:      vmov    d0, r2, r3
        vaddw.u32 q8, q8, d0
7:      vadd.i64 d16, d16, d17
        vmov    r0, r1, d16
        bx      lr

// uint64_t millrace_move_up(uint8_t *to, const uint8_t *from, size_t len)
//
// The sum as above of what is moved. From the last byte to the first: `to` lies behind `from`, or beside all of it.
        function millrace_move_up
        vmov.i64 q8, #0
        vmov.i64 q9, #0
        add     r1, r1, r2              // the ends
        add     r0, r0, r2
        tst     r2, #7
        beq     3f
        mov     r12, #0
        tst     r2, #1
        ldrbne  r12, [r1, #-1]!
        strbne  r12, [r0, #-1]!
        tst     r2, #2
        beq     1f
        ldrh    r3, [r1, #-2]!
        strh    r3, [r0, #-2]!
        orr     r12, r3, r12, lsl #16
1:      mov     r3, #0
        tst     r2, #4
        ldrne   r3, [r1, #-4]!
        strne   r3, [r0, #-4]!
        vmov    d0, r3, r12
        vaddw.u32 q8, q8, d0
3:      tst     r2, #8
        beq     4f
        sub     r1, r1, #8
        sub     r0, r0, #8
        vld1.8  {d0}, [r1]
        vaddw.u32 q8, q8, d0
        vst1.8  {d0}, [r0]
4:      tst     r2, #16
        beq     5f
        sub     r1, r1, #16
        sub     r0, r0, #16
        vld1.8  {d0-d1}, [r1]
        vpadal.u32 q8, q0
        vst1.8  {d0-d1}, [r0]
5:      mov     r3, #-32
        sub     r1, r1, #32
        sub     r0, r0, #32
        tst     r2, #32
        beq     6f
        vld1.8  {d0-d3}, [r1], r3
        vpadal.u32 q8, q0
        vpadal.u32 q9, q1
        vst1.8  {d0-d3}, [r0], r3
6:      subs    r2, r2, #64
        blo     8f
7:      vld1.8  {d4-d7}, [r1], r3
        vld1.8  {d0-d3}, [r1], r3
        vpadal.u32 q8, q2
        vpadal.u32 q9, q3
        subs    r2, r2, #64
        vpadal.u32 q8, q0
        vpadal.u32 q9, q1
        vst1.8  {d4-d7}, [r0], r3
        vst1.8  {d0-d3}, [r0], r3
        bhs     7b
8:      vadd.i64 q8, q8, q9
        vadd.i64 d16, d16, d17
        vmov    r0, r1, d16
        bx      lr

        .section .note.GNU-stack, "", %progbits

#endif
