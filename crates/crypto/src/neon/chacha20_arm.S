// ChaCha20 on ARMv7 with NEON: four blocks at a time, one in each 32-bit lane.
//
// A register holds one word of all four states, so that a quarter round needs no shuffling. The states fill all sixteen
// registers. Two of the words 8 to 11 are in memory at any time, in turn, which leaves two registers to rotate with:
// columns 0 and 1 and the last two diagonals need the words 8 and 9, the others 10 and 11.

#if defined(__arm__)

        .syntax unified
        .arch   armv7-a
        .fpu    neon
        .arm
        .text

// Two quarter rounds side by side, on (a, b, c, d) and (e, f, g, h). q10 and q11 are free.
.macro  quarter_rounds a, b, c, d, e, f, g, h
        vadd.i32 \a, \a, \b
        vadd.i32 \e, \e, \f
        veor    \d, \d, \a
        veor    \h, \h, \e
        vrev32.16 \d, \d
        vrev32.16 \h, \h
        vadd.i32 \c, \c, \d
        vadd.i32 \g, \g, \h
        veor    q10, \b, \c
        veor    q11, \f, \g
        vshl.i32 \b, q10, #12
        vshl.i32 \f, q11, #12
        vsri.32 \b, q10, #20
        vsri.32 \f, q11, #20
        vadd.i32 \a, \a, \b
        vadd.i32 \e, \e, \f
        veor    q10, \d, \a
        veor    q11, \h, \e
        vshl.i32 \d, q10, #8
        vshl.i32 \h, q11, #8
        vsri.32 \d, q10, #24
        vsri.32 \h, q11, #24
        vadd.i32 \c, \c, \d
        vadd.i32 \g, \g, \h
        veor    q10, \b, \c
        veor    q11, \f, \g
        vshl.i32 \b, q10, #7
        vshl.i32 \f, q11, #7
        vsri.32 \b, q10, #25
        vsri.32 \f, q11, #25
.endm

// From a word of four blocks in each register to four words of a block in each.
.macro  transpose a, alow, ahigh, b, blow, bhigh, c, clow, chigh, d, dlow, dhigh
        vtrn.32 \a, \b
        vtrn.32 \c, \d
        vswp    \ahigh, \clow
        vswp    \bhigh, \dlow
.endm

// XORs half a block, in `a` and `b`, into the text at `at`, which moves on by `step` (in lr) or to its end.
.macro  xor_half at, a, b
        vld1.8  {q10, q11}, [\at]
        veor    q10, q10, \a
        veor    q11, q11, \b
        vst1.8  {q10, q11}, [\at]!
.endm

.macro  xor_rest at, a, b
        vld1.8  {q10, q11}, [\at]
        veor    q10, q10, \a
        veor    q11, q11, \b
        vst1.8  {q10, q11}, [\at], lr
.endm

// void millrace_chacha20_x4(const uint32_t rows[12][4], const uint32_t lanes[4][4], uint8_t *const at[4], size_t passes)
//
// XORs blocks of keystream into 64 bytes at each of four places. `rows` are the constants and the key, each word four
// times; a lane is its counter and its nonce. For each further pass the counters go on by 4 and the places by 256 bytes.
//
// Stack, aligned to 16 bytes: 64 bytes for the words 12 to 15 of the first state, 32 for the words 8 and 9, 32 for 10 and 11.
        .global millrace_chacha20_x4
        .hidden millrace_chacha20_x4
        .type   millrace_chacha20_x4, %function
        .align  5
millrace_chacha20_x4:
        push    {r4-r11, lr}
        vpush   {q4-q7}
        mov     r11, sp
        sub     sp, sp, #128
        bic     sp, sp, #15
        add     r8, sp, #64             // words 8 and 9
        add     r9, sp, #96             // words 10 and 11
        mov     lr, #224
        ldm     r2, {r4-r7}

        vld1.32 {q12, q13}, [r1]!
        vld1.32 {q14, q15}, [r1]
        transpose q12, d24, d25, q13, d26, d27, q14, d28, d29, q15, d30, d31
        mov     r1, sp
        vst1.32 {q12, q13}, [r1 :128]!
        vst1.32 {q14, q15}, [r1 :128]

1:      add     r12, r0, #160           // rows 10 and 11
        mov     r10, #10
        vld1.32 {q8, q9}, [r12]
        mov     r12, r0
        vst1.32 {q8, q9}, [r9 :128]
        vld1.32 {q0, q1}, [r12]!
        vld1.32 {q2, q3}, [r12]!
        vld1.32 {q4, q5}, [r12]!
        vld1.32 {q6, q7}, [r12]!
        vld1.32 {q8, q9}, [r12]

2:      quarter_rounds q0, q4, q8, q12, q1, q5, q9, q13
        vst1.32 {q8, q9}, [r8 :128]
        vld1.32 {q8, q9}, [r9 :128]
        quarter_rounds q2, q6, q8, q14, q3, q7, q9, q15
        quarter_rounds q0, q5, q8, q15, q1, q6, q9, q12
        vst1.32 {q8, q9}, [r9 :128]
        vld1.32 {q8, q9}, [r8 :128]
        subs    r10, r10, #1
        quarter_rounds q2, q7, q8, q13, q3, q4, q9, q14
        bne     2b

        mov     r12, r0
        vld1.32 {q10, q11}, [r12]!
        vadd.i32 q0, q0, q10
        vadd.i32 q1, q1, q11
        vld1.32 {q10, q11}, [r12]!
        vadd.i32 q2, q2, q10
        vadd.i32 q3, q3, q11
        vld1.32 {q10, q11}, [r12]!
        vadd.i32 q4, q4, q10
        vadd.i32 q5, q5, q11
        vld1.32 {q10, q11}, [r12]!
        vadd.i32 q6, q6, q10
        vadd.i32 q7, q7, q11
        transpose q0, d0, d1, q1, d2, d3, q2, d4, d5, q3, d6, d7
        transpose q4, d8, d9, q5, d10, d11, q6, d12, d13, q7, d14, d15
        xor_half r4, q0, q4
        xor_half r5, q1, q5
        xor_half r6, q2, q6
        xor_half r7, q3, q7

        vld1.32 {q4, q5}, [r12]!
        vld1.32 {q6, q7}, [r12]
        vld1.32 {q10, q11}, [r9 :128]
        vadd.i32 q4, q4, q8
        vadd.i32 q5, q5, q9
        mov     r12, sp
        vadd.i32 q6, q6, q10
        vadd.i32 q7, q7, q11
        vld1.32 {q0, q1}, [r12 :128]!
        vld1.32 {q2, q3}, [r12 :128]
        transpose q4, d8, d9, q5, d10, d11, q6, d12, d13, q7, d14, d15
        vadd.i32 q8, q12, q0
        vadd.i32 q9, q13, q1
        vadd.i32 q14, q14, q2
        vadd.i32 q15, q15, q3
        vmov.i32 q12, #4
        vadd.i32 q12, q12, q0
        vmov    q13, q1
        transpose q8, d16, d17, q9, d18, d19, q14, d28, d29, q15, d30, d31
        vst1.32 {q12}, [sp :128]
        xor_rest r4, q4, q8
        xor_rest r5, q5, q9
        xor_rest r6, q6, q14
        xor_rest r7, q7, q15
        vmov    q14, q2
        vmov    q15, q3
        subs    r3, r3, #1
        bne     1b

        // No keystream stays behind.
        veor    q0, q0, q0
        veor    q1, q1, q1
        vst1.32 {q0, q1}, [r8 :128]
        vst1.32 {q0, q1}, [r9 :128]
        mov     sp, r11
        vpop    {q4-q7}
        pop     {r4-r11, pc}
        .size   millrace_chacha20_x4, .-millrace_chacha20_x4

        .section .note.GNU-stack, "", %progbits
#endif
