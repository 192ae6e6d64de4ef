/* The steps of AES on eight blocks at once, bit-sliced, for ARMv7 with NEON. Constant time: no address and no branch depends on
 * data.
 *
 * Register q(7 - b) holds bit b of every byte of the eight blocks: 16 bytes for the 16 places in a block, and in each byte one
 * bit of each block. In this form SubBytes is a circuit of gates (aes_sbox.py), and ShiftRows and MixColumns move bytes within
 * each register.
 *
 * ShiftRows is not done at all ("fixslicing", A. Adomnicai and T. Peyrin, 2020): after round i, row r stands i * r columns from
 * where it belongs, so that MixColumns in round i finds the byte of the next row i columns further. There are four such
 * MixColumns, and four rounds in a loop. The round keys are made for these places (aes_arm/bitsliced.rs).
 *
 * The byte of row r and column c stands at 4 * ((r + c) mod 4) + c. By this skew the next row is one word further in round 0,
 * and the row after the next two words further in even rounds and two bytes further, within its word, in odd ones: one
 * instruction each.
 */
#ifndef MILLRACE_AES_BITSLICED_ARM_H
#define MILLRACE_AES_BITSLICED_ARM_H

#define SPILL0 r4
#define SPILL1 r5
#define SPILL2 r6
#define SPILL3 r7
#define SPILL4 r8
#define SPILL5 r9
#include "aes_sbox_arm.h"

/* q`to`, another register: the bytes of the next row, in round `round` mod 4. Behind each q its halves, as assemblers do
 * not reckon them out alike. q15 has the table for round 1. */
.macro next_row round, to, to_low, to_high, from, from_low, from_high
.if \round == 0
	vext.8	q\to, q\from, q\from, #4
.elseif \round == 1
	vtbl.8	d\to_low, {d\from_low, d\from_high}, d30
	vtbl.8	d\to_high, {d\from_low, d\from_high}, d31
.elseif \round == 2
	vext.8	q\to, q\from, q\from, #12
	vrev32.16 q\to, q\to
.else
	vshl.i32 q\to, q\from, #8
	vsri.32	q\to, q\from, #24
.endif
.endm

/* The bytes of the row after the next. */
.macro far_row round, to, from
.if \round & 1
	vrev32.16 q\to, q\from
.else
	vext.8	q\to, q\from, q\from, #8
.endif
.endm

/* MixColumns. A byte a with b, c and d in the next rows becomes 2(a + b) + b + (c + d). Of a + b, which takes the place of a,
 * the row after the next has c + d; doubling it, each bit takes the one below, and bits 0, 1, 3 and 4 take bit 7. Bit by bit:
 * q8 to q10 have b, to which all but c + d is added. */
.macro mix_columns round
.if \round == 1
	vld1.64	{d30, d31}, [r10:128]
.endif
	next_row \round, 8, 16, 17, 0, 0, 1
	veor	q0, q0, q8
	next_row \round, 9, 18, 19, 7, 14, 15
	veor	q7, q7, q9
	veor	q9, q9, q0
	next_row \round, 10, 20, 21, 6, 12, 13
	veor	q6, q6, q10
	veor	q10, q10, q7
	veor	q10, q10, q0
	far_row \round, 7, 7
	veor	q7, q7, q9
	next_row \round, 9, 18, 19, 5, 10, 11
	veor	q5, q5, q9
	veor	q9, q9, q6
	far_row \round, 6, 6
	veor	q6, q6, q10
	next_row \round, 10, 20, 21, 4, 8, 9
	veor	q4, q4, q10
	veor	q10, q10, q5
	veor	q10, q10, q0
	far_row \round, 5, 5
	veor	q5, q5, q9
	next_row \round, 9, 18, 19, 3, 6, 7
	veor	q3, q3, q9
	veor	q9, q9, q4
	veor	q9, q9, q0
	far_row \round, 4, 4
	veor	q4, q4, q10
	next_row \round, 10, 20, 21, 2, 4, 5
	veor	q2, q2, q10
	veor	q10, q10, q3
	far_row \round, 3, 3
	veor	q3, q3, q9
	next_row \round, 9, 18, 19, 1, 2, 3
	veor	q1, q1, q9
	veor	q9, q9, q2
	far_row \round, 2, 2
	veor	q2, q2, q10
	veor	q8, q8, q1
	far_row \round, 1, 1
	veor	q1, q1, q9
	far_row \round, 0, 0
	veor	q0, q0, q8
.endm

/* InvMixColumns but for MixColumns: to each byte four times the sum of itself and the row after the next. Quadrupling, each bit
 * takes the one two below; bit 6 goes to bits 0, 1, 3 and 4 as well, bit 7 to 1, 2, 4 and 5. */
.macro unmix_columns round
	far_row \round, 8, 1
	veor	q8, q8, q1
	far_row \round, 9, 0
	veor	q9, q9, q0
	veor	q10, q8, q9
	far_row \round, 11, 3
	veor	q11, q11, q3
	far_row \round, 12, 2
	veor	q12, q12, q2
	veor	q1, q1, q11
	veor	q0, q0, q12
	far_row \round, 11, 5
	veor	q11, q11, q5
	far_row \round, 12, 4
	veor	q12, q12, q4
	veor	q3, q3, q11
	veor	q2, q2, q12
	veor	q3, q3, q10
	veor	q2, q2, q9
	far_row \round, 11, 7
	veor	q11, q11, q7
	far_row \round, 12, 6
	veor	q12, q12, q6
	veor	q5, q5, q11
	veor	q4, q4, q12
	veor	q5, q5, q9
	veor	q4, q4, q8
	veor	q7, q7, q8
	veor	q6, q6, q10
.endm

.macro add_key
	veor	q0, q0, q8
	veor	q1, q1, q9
	veor	q2, q2, q10
	veor	q3, q3, q11
	veor	q4, q4, q12
	veor	q5, q5, q13
	veor	q6, q6, q14
	veor	q7, q7, q15
.endm

/* The next round key, upwards and downwards in memory. */
.macro add_next_key
	vldmia	r0!, {d16-d31}
	add_key
.endm

.macro add_previous_key
	vldmdb	r0!, {d16-d31}
	add_key
.endm

/* Bits of `low` and `high` that belong to each other's blocks change places. */
.macro exchange low, high, distance, one, two
	vshl.i8	\one, \high, #\distance
	vshr.u8	\two, \low, #\distance
	vbif	\low, \one, q15
	vbit	\high, \two, q15
.endm

.macro exchange_4 low, high, one
	vmov	\one, \low
	vsli.8	\low, \high, #4
	vsri.8	\high, \one, #4
.endm

/* From eight blocks to eight bits, and from bits to blocks. */
.macro transpose
	exchange_4 q7, q3, q8
	exchange_4 q6, q2, q9
	exchange_4 q5, q1, q10
	exchange_4 q4, q0, q11
	vmov.i8	q15, #0x33
	exchange q7, q5, 2, q8, q9
	exchange q6, q4, 2, q10, q11
	exchange q3, q1, 2, q8, q9
	exchange q2, q0, 2, q10, q11
	vmov.i8	q15, #0x55
	exchange q7, q6, 1, q8, q9
	exchange q5, q4, 1, q10, q11
	exchange q3, q2, 1, q8, q9
	exchange q1, q0, 1, q10, q11
.endm

/* Eight blocks from r2 to q8 to q15. */
.macro load_blocks
	vld1.8	{d16-d19}, [r2]!
	vld1.8	{d20-d23}, [r2]!
	vld1.8	{d24-d27}, [r2]!
	vld1.8	{d28-d31}, [r2]
.endm

/* From there to q0 to q7, with their bytes in the order of the table in q7. */
.macro order_loaded
	vtbl.8	d0, {d16, d17}, d14
	vtbl.8	d1, {d16, d17}, d15
	vtbl.8	d2, {d18, d19}, d14
	vtbl.8	d3, {d18, d19}, d15
	vtbl.8	d4, {d20, d21}, d14
	vtbl.8	d5, {d20, d21}, d15
	vtbl.8	d6, {d22, d23}, d14
	vtbl.8	d7, {d22, d23}, d15
	vtbl.8	d8, {d24, d25}, d14
	vtbl.8	d9, {d24, d25}, d15
	vtbl.8	d10, {d26, d27}, d14
	vtbl.8	d11, {d26, d27}, d15
	vtbl.8	d12, {d28, d29}, d14
	vtbl.8	d13, {d28, d29}, d15
	vtbl.8	d14, {d30, d31}, d14
	vtbl.8	d15, {d30, d31}, d15
.endm

/* Eight blocks to q8 to q15, with their bytes in the order of the table in q15. */
.macro order_blocks
	vtbl.8	d16, {d0, d1}, d30
	vtbl.8	d17, {d0, d1}, d31
	vtbl.8	d18, {d2, d3}, d30
	vtbl.8	d19, {d2, d3}, d31
	vtbl.8	d20, {d4, d5}, d30
	vtbl.8	d21, {d4, d5}, d31
	vtbl.8	d22, {d6, d7}, d30
	vtbl.8	d23, {d6, d7}, d31
	vtbl.8	d24, {d8, d9}, d30
	vtbl.8	d25, {d8, d9}, d31
	vtbl.8	d26, {d10, d11}, d30
	vtbl.8	d27, {d10, d11}, d31
	vtbl.8	d28, {d12, d13}, d30
	vtbl.8	d29, {d12, d13}, d31
	vtbl.8	d30, {d14, d15}, d30
	vtbl.8	d31, {d14, d15}, d31
.endm

/* Saves registers and makes room for what the S-box spills. The callers have r10 point at tables. */
.macro begin circuit
	push	{r4-r12, lr}
	vpush	{d8-d15}
	mov	r11, sp
	sub	sp, sp, #192
	bic	sp, sp, #15
	\circuit\()_addresses
.endm

/* Erases what the S-box has spilled; its first address register is at the beginning of that. */
.macro end
	vmov.i8	q0, #0
	vmov.i8	q1, #0
	vst1.64	{d0-d3}, [r4:128]!
	vst1.64	{d0-d3}, [r4:128]!
	vst1.64	{d0-d3}, [r4:128]!
	vst1.64	{d0-d3}, [r4:128]!
	vst1.64	{d0-d3}, [r4:128]!
	vst1.64	{d0-d3}, [r4:128]
	mov	sp, r11
	vpop	{d8-d15}
	pop	{r4-r12, pc}
.endm

#endif
