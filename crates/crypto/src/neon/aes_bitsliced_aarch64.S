/* AES on eight blocks at once, bit-sliced, for AArch64 without the AES instructions. Constant time: no address and no branch
 * depends on data.
 *
 * The same as aes_bitsliced_arm.S, where the form is explained, but for the places of bytes: any order of a register's bytes is
 * one instruction here, so that they stay where they are in a block.
 */
#if defined(__aarch64__)

	.text
	.arch	armv8-a

#include "aes_sbox_aarch64.h"

	.p2align 4
.Ltables:
	/* The next row in rounds 0 to 3, modulo 4; the row after the next in odd rounds. Then a block's bytes after two rounds. */
	.byte 1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12
	.byte 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12, 1, 2, 3, 0
	.byte 9, 10, 11, 8, 13, 14, 15, 12, 1, 2, 3, 0, 5, 6, 7, 4
	.byte 13, 14, 15, 12, 1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8
	.byte 10, 11, 8, 9, 14, 15, 12, 13, 2, 3, 0, 1, 6, 7, 4, 5
	.byte 0, 9, 2, 11, 4, 13, 6, 15, 8, 1, 10, 3, 12, 5, 14, 7

/* v27 to v30 have the tables for the next row, v31 that for the one after it. */
.macro next_row round, to, from
.if \round == 0
	tbl	v\to\().16b, {v\from\().16b}, v27.16b
.elseif \round == 1
	tbl	v\to\().16b, {v\from\().16b}, v28.16b
.elseif \round == 2
	tbl	v\to\().16b, {v\from\().16b}, v29.16b
.else
	tbl	v\to\().16b, {v\from\().16b}, v30.16b
.endif
.endm

.macro far_row round, to, from
.if \round & 1
	tbl	v\to\().16b, {v\from\().16b}, v31.16b
.else
	rev32	v\to\().8h, v\from\().8h
.endif
.endm

/* MixColumns, as in aes_bitsliced_arm.S, with the next rows in v16 to v23. */
.macro mix_columns round
	next_row \round, 23, 0
	next_row \round, 16, 7
	next_row \round, 17, 6
	next_row \round, 18, 5
	next_row \round, 19, 4
	next_row \round, 20, 3
	next_row \round, 21, 2
	next_row \round, 22, 1
	eor	v0.16b, v0.16b, v23.16b
	eor	v7.16b, v7.16b, v16.16b
	eor	v6.16b, v6.16b, v17.16b
	eor	v5.16b, v5.16b, v18.16b
	eor	v4.16b, v4.16b, v19.16b
	eor	v3.16b, v3.16b, v20.16b
	eor	v2.16b, v2.16b, v21.16b
	eor	v1.16b, v1.16b, v22.16b
	eor	v16.16b, v16.16b, v0.16b
	eor	v17.16b, v17.16b, v7.16b
	eor	v18.16b, v18.16b, v6.16b
	eor	v19.16b, v19.16b, v5.16b
	eor	v20.16b, v20.16b, v4.16b
	eor	v21.16b, v21.16b, v3.16b
	eor	v22.16b, v22.16b, v2.16b
	eor	v23.16b, v23.16b, v1.16b
	eor	v17.16b, v17.16b, v0.16b
	eor	v19.16b, v19.16b, v0.16b
	eor	v20.16b, v20.16b, v0.16b
	far_row \round, 8, 7
	far_row \round, 9, 6
	far_row \round, 10, 5
	far_row \round, 11, 4
	far_row \round, 12, 3
	far_row \round, 13, 2
	far_row \round, 14, 1
	far_row \round, 15, 0
	eor	v7.16b, v8.16b, v16.16b
	eor	v6.16b, v9.16b, v17.16b
	eor	v5.16b, v10.16b, v18.16b
	eor	v4.16b, v11.16b, v19.16b
	eor	v3.16b, v12.16b, v20.16b
	eor	v2.16b, v13.16b, v21.16b
	eor	v1.16b, v14.16b, v22.16b
	eor	v0.16b, v15.16b, v23.16b
.endm

/* InvMixColumns but for MixColumns, as in aes_bitsliced_arm.S. */
.macro unmix_columns round
	far_row \round, 8, 7
	far_row \round, 9, 6
	far_row \round, 10, 5
	far_row \round, 11, 4
	far_row \round, 12, 3
	far_row \round, 13, 2
	far_row \round, 14, 1
	far_row \round, 15, 0
	eor	v8.16b, v8.16b, v7.16b
	eor	v9.16b, v9.16b, v6.16b
	eor	v10.16b, v10.16b, v5.16b
	eor	v11.16b, v11.16b, v4.16b
	eor	v12.16b, v12.16b, v3.16b
	eor	v13.16b, v13.16b, v2.16b
	eor	v14.16b, v14.16b, v1.16b
	eor	v15.16b, v15.16b, v0.16b
	eor	v16.16b, v14.16b, v15.16b
	eor	v5.16b, v5.16b, v8.16b
	eor	v4.16b, v4.16b, v9.16b
	eor	v3.16b, v3.16b, v10.16b
	eor	v2.16b, v2.16b, v11.16b
	eor	v1.16b, v1.16b, v12.16b
	eor	v0.16b, v0.16b, v13.16b
	eor	v7.16b, v7.16b, v14.16b
	eor	v6.16b, v6.16b, v16.16b
	eor	v5.16b, v5.16b, v15.16b
	eor	v4.16b, v4.16b, v14.16b
	eor	v3.16b, v3.16b, v16.16b
	eor	v2.16b, v2.16b, v15.16b
.endm

.macro add_key
	eor	v0.16b, v0.16b, v16.16b
	eor	v1.16b, v1.16b, v17.16b
	eor	v2.16b, v2.16b, v18.16b
	eor	v3.16b, v3.16b, v19.16b
	eor	v4.16b, v4.16b, v20.16b
	eor	v5.16b, v5.16b, v21.16b
	eor	v6.16b, v6.16b, v22.16b
	eor	v7.16b, v7.16b, v23.16b
.endm

/* The next round key, upwards and downwards in memory. */
.macro add_next_key
	ld1	{v16.16b-v19.16b}, [x0], #64
	ld1	{v20.16b-v23.16b}, [x0], #64
	add_key
.endm

.macro add_previous_key
	ldp	q16, q17, [x0, #-128]!
	ldp	q18, q19, [x0, #32]
	ldp	q20, q21, [x0, #64]
	ldp	q22, q23, [x0, #96]
	add_key
.endm

/* Bits of v`low` and v`high` that belong to each other's blocks change places. */
.macro exchange low, high, distance, one, two
	shl	v\one\().16b, v\high\().16b, #\distance
	ushr	v\two\().16b, v\low\().16b, #\distance
	bif	v\low\().16b, v\one\().16b, v26.16b
	bit	v\high\().16b, v\two\().16b, v26.16b
.endm

.macro exchange_4 low, high, one
	mov	v\one\().16b, v\low\().16b
	sli	v\low\().16b, v\high\().16b, #4
	sri	v\high\().16b, v\one\().16b, #4
.endm

/* From eight blocks to eight bits, and from bits to blocks. */
.macro transpose
	exchange_4 7, 3, 8
	exchange_4 6, 2, 9
	exchange_4 5, 1, 10
	exchange_4 4, 0, 11
	movi	v26.16b, #0x33
	exchange 7, 5, 2, 8, 9
	exchange 6, 4, 2, 10, 11
	exchange 3, 1, 2, 12, 13
	exchange 2, 0, 2, 14, 15
	movi	v26.16b, #0x55
	exchange 7, 6, 1, 8, 9
	exchange 5, 4, 1, 10, 11
	exchange 3, 2, 1, 12, 13
	exchange 1, 0, 1, 14, 15
.endm

/* Every block's bytes in the order of the table of v26. */
.macro order_blocks
	ldr	q26, [x4, #80]
	tbl	v0.16b, {v0.16b}, v26.16b
	tbl	v1.16b, {v1.16b}, v26.16b
	tbl	v2.16b, {v2.16b}, v26.16b
	tbl	v3.16b, {v3.16b}, v26.16b
	tbl	v4.16b, {v4.16b}, v26.16b
	tbl	v5.16b, {v5.16b}, v26.16b
	tbl	v6.16b, {v6.16b}, v26.16b
	tbl	v7.16b, {v7.16b}, v26.16b
.endm

/* Saves registers and loads the tables. */
.macro begin
	stp	d8, d9, [sp, #-64]!
	stp	d10, d11, [sp, #16]
	stp	d12, d13, [sp, #32]
	stp	d14, d15, [sp, #48]
	adr	x4, .Ltables
	ldp	q27, q28, [x4]
	ldp	q29, q30, [x4, #32]
	ldr	q31, [x4, #64]
	ld1	{v0.16b-v3.16b}, [x2], #64
	ld1	{v4.16b-v7.16b}, [x2]
.endm

.macro end
	st1	{v0.16b-v3.16b}, [x3], #64
	st1	{v4.16b-v7.16b}, [x3]
	ldp	d10, d11, [sp, #16]
	ldp	d12, d13, [sp, #32]
	ldp	d14, d15, [sp, #48]
	ldp	d8, d9, [sp], #64
	ret
.endm

/* void millrace_aes_encrypt8(const uint8_t *keys, uint32_t rounds, const uint8_t *in, uint8_t *out)
 *
 * As in aes_bitsliced_arm.S. */
	.global	millrace_aes_encrypt8
	.hidden	millrace_aes_encrypt8
	.type	millrace_aes_encrypt8, %function
	.p2align 4
millrace_aes_encrypt8:
	begin
	lsr	w5, w1, #1
	transpose
	add_next_key
1:
	sub_bytes
	mix_columns 1
	add_next_key
	subs	w5, w5, #1
	b.eq	2f
	sub_bytes
	mix_columns 2
	add_next_key
	sub_bytes
	mix_columns 3
	add_next_key
	subs	w5, w5, #1
	b.eq	2f
	sub_bytes
	mix_columns 0
	add_next_key
	b	1b
2:
	sub_bytes
	add_next_key
	transpose
	/* 10 and 14 rounds leave rows two columns from their places, 12 none. */
	tbz	w1, #1, 3f
	order_blocks
3:
	end
	.size	millrace_aes_encrypt8, . - millrace_aes_encrypt8

/* void millrace_aes_decrypt8(const uint8_t *keys, uint32_t rounds, const uint8_t *in, uint8_t *out)
 *
 * The inverse, with the same keys. */
	.global	millrace_aes_decrypt8
	.hidden	millrace_aes_decrypt8
	.type	millrace_aes_decrypt8, %function
	.p2align 4
millrace_aes_decrypt8:
	begin
	lsl	w5, w1, #7
	add	x0, x0, w5, uxtw
	add	x0, x0, #128
	tbz	w1, #1, 6f
	order_blocks
6:
	transpose
	add_previous_key
	inv_sub_bytes
	add_previous_key
	/* InvMixColumns of rounds whose number is 1 mod 4, which is how often the loop below tests for the end. */
	add	w5, w1, #2
	lsr	w5, w5, #2
	tbz	w1, #1, 4f
3:
	unmix_columns 1
	mix_columns 1
	inv_sub_bytes
	add_previous_key
	subs	w5, w5, #1
	b.eq	5f
	unmix_columns 0
	mix_columns 0
	inv_sub_bytes
	add_previous_key
4:
	unmix_columns 3
	mix_columns 3
	inv_sub_bytes
	add_previous_key
	unmix_columns 2
	mix_columns 2
	inv_sub_bytes
	add_previous_key
	b	3b
5:
	transpose
	end
	.size	millrace_aes_decrypt8, . - millrace_aes_decrypt8

	.section .note.GNU-stack, "", %progbits
#endif
