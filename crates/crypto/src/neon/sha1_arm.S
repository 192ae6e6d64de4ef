// SHA-1 on ARMv7 with NEON: four messages at once, one in each 32-bit lane.

#if defined(__arm__)

        .syntax unified
        .arch   armv7-a
        .fpu    neon
        .arm
        .text

#include "words_arm.h"

// What the rounds do with b, c and d, into q6. In the first twenty, where b chooses between c and d, b itself becomes that, once it has
// been turned.
.macro  parity b, c, d
        veor    q6, \b, \c
        veor    q6, q6, \d
.endm

.macro  majority b, c, d
        veor    q6, \b, \c
        vbsl    q6, \d, \b
.endm

// A round with the word w. Afterwards e is the new a, t is b turned and so the new c, and b is free.
.macro  round f, a, b, c, d, e, t, w
        .ifc    \f, choose
        vshl.i32 \t, \b, #30
        vadd.i32 q6, \w, q7
        vsri.32 \t, \b, #2
        vbsl    \b, \c, \d
        vadd.i32 \e, \e, q6
        vshl.i32 q6, \a, #5
        vadd.i32 \e, \e, \b
        vsri.32 q6, \a, #27
        vadd.i32 \e, \e, q6
        .else
        vadd.i32 \t, \w, q7
        \f      \b, \c, \d
        vadd.i32 \e, \e, \t
        vshl.i32 \t, \a, #5
        vadd.i32 \e, \e, q6
        vsri.32 \t, \a, #27
        vadd.i32 \e, \e, \t
        vshl.i32 \t, \b, #30
        vsri.32 \t, \b, #2
        .endif
.endm

// The next two words, which were waiting in memory.
.macro  load w0, w1, n0, n1, p0, p1, r0, r1
        vld1.32 {\n0, \n1}, [r12 :128]!
.endm

// The next two words, made of those 16, 14, 8 and 3 places before: of p, of memory into r (where the next two words find
// them as theirs 16 places before), of memory, and of the last.
.macro  expand w0, w1, n0, n1, p0, p1, r0, r1
        vld1.32 {\r0, \r1}, [r1 :128]!
        veor    \p0, \p0, \n1
        veor    \p1, \p1, \w0
        vld1.32 {\n0, \n1}, [r2 :128]!
        veor    \p0, \p0, \r0
        veor    \p1, \p1, \r1
        veor    \p0, \p0, \n0
        veor    \p1, \p1, \n1
        vadd.i32 \n0, \p0, \p0
        vadd.i32 \n1, \p1, \p1
        vsri.32 \n0, \p0, #31
        vsri.32 \n1, \p1, #31
        vst1.32 {\n0, \n1}, [r12 :128]!
.endm

.macro  nothing w0, w1, n0, n1, p0, p1, r0, r1
.endm

// Twice as many rounds as `pairs`, with the words w and then others, which `next` makes in n.
.macro  rounds pairs, f, next, a, b, c, d, e, t, w0, w1, n0, n1, p0, p1, r0, r1
        .if \pairs
        \next   \w0, \w1, \n0, \n1, \p0, \p1, \r0, \r1
        round   \f, \a, \b, \c, \d, \e, \t, \w0
        round   \f, \e, \a, \t, \c, \d, \b, \w1
        rounds  (\pairs - 1), \f, \next, \d, \e, \b, \t, \c, \a, \n0, \n1, \w0, \w1, \r0, \r1, \p0, \p1
        .endif
.endm

.macro  constant low, high
        movw    lr, #\low
        movt    lr, #\high
        vdup.32 q7, lr
.endm

// void millrace_sha1_x4(uint32_t states[5][4], const uint8_t *at[4], const size_t step[4], size_t blocks)
//
// Hashes blocks of 64 bytes of each message. For each block a message goes on by its step, and `at` with it.
//
// Stack, aligned to 16 bytes: the 80 words of the schedule, then the registers' place.
        .global millrace_sha1_x4
        .hidden millrace_sha1_x4
        .type   millrace_sha1_x4, %function
        .align  5
millrace_sha1_x4:
        push    {r1, r4-r11, lr}
        vpush   {q4-q7}
        mov     r12, sp
        sub     sp, sp, #(80 * 16 + 16)
        bic     sp, sp, #15
        str     r12, [sp, #(80 * 16)]
        ldm     r1, {r4-r7}
        ldm     r2, {r8-r11}
        sub     r8, r8, #32
        sub     r9, r9, #32
        sub     r10, r10, #32
        sub     r11, r11, #32

1:      mov     r12, sp
        mov     lr, #32
        words   lr, lr, lr, lr
        words   r8, r9, r10, r11

        mov     r1, r0
        vld1.32 {q0, q1}, [r1]!
        vld1.32 {q2, q3}, [r1]!
        vld1.32 {q4}, [r1]
        mov     r12, sp
        add     r1, sp, #32
        vld1.32 {q12, q13}, [r12 :128]!
        add     r2, sp, #128
        vmov    q8, q12
        vmov    q9, q13

        constant 0x7999, 0x5a82
        rounds  7, choose, load, q0, q1, q2, q3, q4, q5, q12, q13, q14, q15, q8, q9, q8, q9
        rounds  3, choose, expand, q3, q4, q1, q5, q2, q0, q14, q15, q12, q13, q8, q9, q10, q11
        constant 0xeba1, 0x6ed9
        rounds  10, parity, expand, q3, q4, q1, q5, q2, q0, q12, q13, q14, q15, q10, q11, q8, q9
        constant 0xbcdc, 0x8f1b
        rounds  10, majority, expand, q5, q2, q4, q0, q1, q3, q12, q13, q14, q15, q10, q11, q8, q9
        constant 0xc1d6, 0xca62
        rounds  9, parity, expand, q0, q1, q2, q3, q4, q5, q12, q13, q14, q15, q10, q11, q8, q9
        rounds  1, parity, nothing, q0, q1, q2, q3, q4, q5, q14, q15, q12, q13, q8, q9, q10, q11

        // The words are in q3, q4, q1, q5, q2 now.
        mov     r1, r0
        vld1.32 {q8, q9}, [r1]!
        vld1.32 {q10, q11}, [r1]!
        vld1.32 {q12}, [r1]
        vadd.i32 q8, q8, q3
        vadd.i32 q9, q9, q4
        vadd.i32 q10, q10, q1
        vadd.i32 q11, q11, q5
        vadd.i32 q12, q12, q2
        mov     r1, r0
        subs    r3, r3, #1
        vst1.32 {q8, q9}, [r1]!
        vst1.32 {q10, q11}, [r1]!
        vst1.32 {q12}, [r1]
        bne     1b

        ldr     sp, [sp, #(80 * 16)]
        vpop    {q4-q7}
        pop     {r1}
        stm     r1, {r4-r7}
        pop     {r4-r11, pc}
        .size   millrace_sha1_x4, .-millrace_sha1_x4

        .section .note.GNU-stack, "", %progbits
#endif
