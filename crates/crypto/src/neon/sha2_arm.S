// SHA-256 and SHA-512 on ARMv7 with NEON: four messages at once in 32-bit lanes, or two in 64-bit lanes.

#if defined(__arm__)

        .syntax unified
        .arch   armv7-a
        .fpu    neon
        .arm
        .text

#include "words_arm.h"

.macro  rotate bits, to, from, by
        vshl.i\bits \to, \from, #(\bits - \by)
        vsri.\bits \to, \from, #\by
.endm

// A round with the constant in q13. Afterwards h is the new a, and d the new e.
.macro  round bits, a1, a2, a3, e1, e2, e3, a, b, c, d, e, f, g, h, w
        vadd.i\bits \w, \w, q13
        rotate  \bits, q8, \e, \e1
        rotate  \bits, q9, \e, \e2
        rotate  \bits, q10, \a, \a1
        rotate  \bits, q11, \a, \a2
        vmov    q12, \e
        veor    q8, q8, q9
        vbsl    q12, \f, \g
        vadd.i\bits \h, \h, \w
        rotate  \bits, q9, \e, \e3
        veor    q10, q10, q11
        rotate  \bits, q11, \a, \a3
        vadd.i\bits \h, \h, q12
        veor    q8, q8, q9
        veor    q9, \a, \b
        veor    q10, q10, q11
        vadd.i\bits \h, \h, q8
        vbsl    q9, \c, \b
        vadd.i\bits q10, q10, q9
        vadd.i\bits \d, \d, \h
        vadd.i\bits \h, \h, q10
.endm

.macro  round_256 a, b, c, d, e, f, g, h, w
        vld1.32 {d26[], d27[]}, [lr]!
        round   32, 2, 13, 22, 6, 11, 25, \a, \b, \c, \d, \e, \f, \g, \h, \w
.endm

.macro  round_512 a, b, c, d, e, f, g, h, w
        vld1.64 {q13}, [lr :128]!
        round   64, 28, 34, 39, 14, 18, 41, \a, \b, \c, \d, \e, \f, \g, \h, \w
.endm

.macro  two round, a, b, c, d, e, f, g, h
        vld1.64 {q14, q15}, [r12 :128]!
        \round  \a, \b, \c, \d, \e, \f, \g, \h, q14
        \round  \h, \a, \b, \c, \d, \e, \f, \g, q15
.endm

.macro  eight round
        two     \round, q0, q1, q2, q3, q4, q5, q6, q7
        two     \round, q6, q7, q0, q1, q2, q3, q4, q5
        two     \round, q4, q5, q6, q7, q0, q1, q2, q3
        two     \round, q2, q3, q4, q5, q6, q7, q0, q1
.endm

// Two words of the schedule, in n: of those 16 places before in p, 15 before in p and the next, in q; 7 before; 2 before in l.
.macro  expand bits, s1, s2, s3, t1, t2, t3, p0, p1, q0, q1, l0, l1, n0, n1
        vld1.64 {\q0, \q1}, [r1 :128]!
        vld1.64 {\n0, \n1}, [r2 :128]!
        rotate  \bits, q8, \p1, \s1
        rotate  \bits, q9, \p1, \s2
        rotate  \bits, q10, \q0, \s1
        rotate  \bits, q11, \q0, \s2
        rotate  \bits, q12, \l0, \t1
        rotate  \bits, q13, \l0, \t2
        rotate  \bits, q14, \l1, \t1
        rotate  \bits, q15, \l1, \t2
        vadd.i\bits \n0, \n0, \p0
        vadd.i\bits \n1, \n1, \p1
        veor    q8, q8, q9
        veor    q10, q10, q11
        vshr.u\bits q9, \p1, #\s3
        vshr.u\bits q11, \q0, #\s3
        veor    q12, q12, q13
        veor    q14, q14, q15
        vshr.u\bits q13, \l0, #\t3
        vshr.u\bits q15, \l1, #\t3
        veor    q8, q8, q9
        veor    q10, q10, q11
        veor    q12, q12, q13
        veor    q14, q14, q15
        vadd.i\bits \n0, \n0, q8
        vadd.i\bits \n1, \n1, q10
        vadd.i\bits \n0, \n0, q12
        vadd.i\bits \n1, \n1, q14
        vst1.64 {\n0, \n1}, [r12 :128]!
.endm

// The whole schedule behind the first 16 words, at sp.
.macro  schedule bits, words, s1, s2, s3, t1, t2, t3
        add     r1, sp, #(14 * 16)
        vld1.64 {q0, q1}, [sp :128]
        vld1.64 {q4, q5}, [r1 :128]
        add     r1, sp, #(2 * 16)
        add     r2, sp, #(9 * 16)
        mov     lr, #((\words - 16) / 4)
2:      expand  \bits, \s1, \s2, \s3, \t1, \t2, \t3, q0, q1, q2, q3, q4, q5, q6, q7
        expand  \bits, \s1, \s2, \s3, \t1, \t2, \t3, q2, q3, q0, q1, q6, q7, q4, q5
        subs    lr, lr, #1
        bne     2b
.endm

.macro  constants at
        ldr     lr, \at
3:      add     lr, pc, lr
.endm

256:    .word   sha256_constants - (3f + 8)

// void millrace_sha256_x4(uint32_t states[8][4], const uint8_t *at[4], const size_t step[4], size_t blocks)
//
// Hashes blocks of 64 bytes of each message. For each block a message goes on by its step, and `at` with it.
//
// Stack, aligned to 16 bytes: the 64 words of the schedule, then the registers' place.
        .global millrace_sha256_x4
        .hidden millrace_sha256_x4
        .type   millrace_sha256_x4, %function
        .align  5
millrace_sha256_x4:
        push    {r1, r4-r11, lr}
        vpush   {q4-q7}
        mov     r12, sp
        sub     sp, sp, #(64 * 16 + 16)
        bic     sp, sp, #15
        str     r12, [sp, #(64 * 16)]
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
        schedule 32, 64, 7, 18, 3, 17, 19, 10

        mov     r1, r0
        vld1.32 {q0, q1}, [r1]!
        vld1.32 {q2, q3}, [r1]!
        vld1.32 {q4, q5}, [r1]!
        vld1.32 {q6, q7}, [r1]
        mov     r12, sp
        constants 256b
        mov     r2, #(64 / 8)
4:      eight   round_256
        subs    r2, r2, #1
        bne     4b

        mov     r1, r0
        vld1.32 {q8, q9}, [r1]!
        vld1.32 {q10, q11}, [r1]!
        vld1.32 {q12, q13}, [r1]!
        vld1.32 {q14, q15}, [r1]
        vadd.i32 q0, q0, q8
        vadd.i32 q1, q1, q9
        vadd.i32 q2, q2, q10
        vadd.i32 q3, q3, q11
        vadd.i32 q4, q4, q12
        vadd.i32 q5, q5, q13
        vadd.i32 q6, q6, q14
        vadd.i32 q7, q7, q15
        mov     r1, r0
        subs    r3, r3, #1
        vst1.32 {q0, q1}, [r1]!
        vst1.32 {q2, q3}, [r1]!
        vst1.32 {q4, q5}, [r1]!
        vst1.32 {q6, q7}, [r1]
        bne     1b

        ldr     sp, [sp, #(64 * 16)]
        vpop    {q4-q7}
        pop     {r1}
        stm     r1, {r4-r7}
        pop     {r4-r11, pc}
        .size   millrace_sha256_x4, .-millrace_sha256_x4

// Eight big-endian words of each of two messages, from half of a block, to r12 by word. The messages are at r4 and r5 and go
// on by lr and then by as many bytes as the registers say.
.macro  words_64 by4, by5
        vld1.8  {q0, q1}, [r4], lr
        vld1.8  {q2, q3}, [r5], lr
        vld1.8  {q4, q5}, [r4], \by4
        vld1.8  {q6, q7}, [r5], \by5
        vrev64.8 q0, q0
        vrev64.8 q1, q1
        vrev64.8 q2, q2
        vrev64.8 q3, q3
        vrev64.8 q4, q4
        vrev64.8 q5, q5
        vrev64.8 q6, q6
        vrev64.8 q7, q7
        vswp    d1, d4
        vswp    d3, d6
        vswp    d9, d12
        vswp    d11, d14
        vst1.64 {q0}, [r12 :128]!
        vst1.64 {q2}, [r12 :128]!
        vst1.64 {q1}, [r12 :128]!
        vst1.64 {q3}, [r12 :128]!
        vst1.64 {q4}, [r12 :128]!
        vst1.64 {q6}, [r12 :128]!
        vst1.64 {q5}, [r12 :128]!
        vst1.64 {q7}, [r12 :128]!
.endm

// The states of two messages, of which r1 points at the first words. Each word has room for four.
.macro  states operation, r0, r1, r2, r3, r4, r5, r6, r7
        mov     r1, r0
        mov     r2, #32
        \operation {\r0}, [r1], r2
        \operation {\r1}, [r1], r2
        \operation {\r2}, [r1], r2
        \operation {\r3}, [r1], r2
        \operation {\r4}, [r1], r2
        \operation {\r5}, [r1], r2
        \operation {\r6}, [r1], r2
        \operation {\r7}, [r1], r2
.endm

512:    .word   sha512_constants - (3f + 8)

// void millrace_sha512_x2(uint64_t states[8][4], const uint8_t *at[2], const size_t step[2], size_t blocks)
//
// Hashes blocks of 128 bytes of each message. For each block a message goes on by its step, and `at` with it.
//
// Stack, aligned to 16 bytes: the 80 words of the schedule, then the registers' place.
        .global millrace_sha512_x2
        .hidden millrace_sha512_x2
        .type   millrace_sha512_x2, %function
        .align  5
millrace_sha512_x2:
        push    {r1, r4-r11, lr}
        vpush   {q4-q7}
        mov     r12, sp
        sub     sp, sp, #(80 * 16 + 16)
        bic     sp, sp, #15
        str     r12, [sp, #(80 * 16)]
        ldm     r1, {r4-r5}
        ldm     r2, {r8-r9}
        sub     r8, r8, #96
        sub     r9, r9, #96

1:      mov     r12, sp
        mov     lr, #32
        words_64 lr, lr
        words_64 r8, r9
        schedule 64, 80, 1, 8, 7, 19, 61, 6

        states  vld1.64, q0, q1, q2, q3, q4, q5, q6, q7
        mov     r12, sp
        constants 512b
        mov     r2, #(80 / 8)
4:      eight   round_512
        subs    r2, r2, #1
        bne     4b

        states  vld1.64, q8, q9, q10, q11, q12, q13, q14, q15
        vadd.i64 q0, q0, q8
        vadd.i64 q1, q1, q9
        vadd.i64 q2, q2, q10
        vadd.i64 q3, q3, q11
        vadd.i64 q4, q4, q12
        vadd.i64 q5, q5, q13
        vadd.i64 q6, q6, q14
        vadd.i64 q7, q7, q15
        states  vst1.64, q0, q1, q2, q3, q4, q5, q6, q7
        subs    r3, r3, #1
        bne     1b

        ldr     sp, [sp, #(80 * 16)]
        vpop    {q4-q7}
        pop     {r1}
        stm     r1, {r4-r5}
        pop     {r4-r11, pc}
        .size   millrace_sha512_x2, .-millrace_sha512_x2

// FIPS 180-4, sections 4.2.2 and 4.2.3.
        .section .rodata.millrace_sha2, "a", %progbits
        .align  4
sha256_constants:
        .word   0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5
        .word   0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5
        .word   0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3
        .word   0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174
        .word   0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc
        .word   0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da
        .word   0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7
        .word   0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967
        .word   0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13
        .word   0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85
        .word   0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3
        .word   0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070
        .word   0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5
        .word   0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3
        .word   0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208
        .word   0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2

// Those of SHA-512 once for each lane.
.macro  twice constant
        .quad   \constant, \constant
.endm

        .align  4
sha512_constants:
        twice   0x428a2f98d728ae22
        twice   0x7137449123ef65cd
        twice   0xb5c0fbcfec4d3b2f
        twice   0xe9b5dba58189dbbc
        twice   0x3956c25bf348b538
        twice   0x59f111f1b605d019
        twice   0x923f82a4af194f9b
        twice   0xab1c5ed5da6d8118
        twice   0xd807aa98a3030242
        twice   0x12835b0145706fbe
        twice   0x243185be4ee4b28c
        twice   0x550c7dc3d5ffb4e2
        twice   0x72be5d74f27b896f
        twice   0x80deb1fe3b1696b1
        twice   0x9bdc06a725c71235
        twice   0xc19bf174cf692694
        twice   0xe49b69c19ef14ad2
        twice   0xefbe4786384f25e3
        twice   0x0fc19dc68b8cd5b5
        twice   0x240ca1cc77ac9c65
        twice   0x2de92c6f592b0275
        twice   0x4a7484aa6ea6e483
        twice   0x5cb0a9dcbd41fbd4
        twice   0x76f988da831153b5
        twice   0x983e5152ee66dfab
        twice   0xa831c66d2db43210
        twice   0xb00327c898fb213f
        twice   0xbf597fc7beef0ee4
        twice   0xc6e00bf33da88fc2
        twice   0xd5a79147930aa725
        twice   0x06ca6351e003826f
        twice   0x142929670a0e6e70
        twice   0x27b70a8546d22ffc
        twice   0x2e1b21385c26c926
        twice   0x4d2c6dfc5ac42aed
        twice   0x53380d139d95b3df
        twice   0x650a73548baf63de
        twice   0x766a0abb3c77b2a8
        twice   0x81c2c92e47edaee6
        twice   0x92722c851482353b
        twice   0xa2bfe8a14cf10364
        twice   0xa81a664bbc423001
        twice   0xc24b8b70d0f89791
        twice   0xc76c51a30654be30
        twice   0xd192e819d6ef5218
        twice   0xd69906245565a910
        twice   0xf40e35855771202a
        twice   0x106aa07032bbd1b8
        twice   0x19a4c116b8d2d0c8
        twice   0x1e376c085141ab53
        twice   0x2748774cdf8eeb99
        twice   0x34b0bcb5e19b48a8
        twice   0x391c0cb3c5c95a63
        twice   0x4ed8aa4ae3418acb
        twice   0x5b9cca4f7763e373
        twice   0x682e6ff3d6b2b8a3
        twice   0x748f82ee5defb2fc
        twice   0x78a5636f43172f60
        twice   0x84c87814a1f0ab72
        twice   0x8cc702081a6439ec
        twice   0x90befffa23631e28
        twice   0xa4506cebde82bde9
        twice   0xbef9a3f7b2c67915
        twice   0xc67178f2e372532b
        twice   0xca273eceea26619c
        twice   0xd186b8c721c0c207
        twice   0xeada7dd6cde0eb1e
        twice   0xf57d4f7fee6ed178
        twice   0x06f067aa72176fba
        twice   0x0a637dc5a2c898a6
        twice   0x113f9804bef90dae
        twice   0x1b710b35131c471b
        twice   0x28db77f523047d84
        twice   0x32caab7b40c72493
        twice   0x3c9ebe0a15c9bebc
        twice   0x431d67c49c100d4c
        twice   0x4cc5d4becb3e42b6
        twice   0x597f299cfc657e2a
        twice   0x5fcb6fab3ad6faec
        twice   0x6c44198c4a475817

        .section .note.GNU-stack, "", %progbits
#endif
