/* AES on eight blocks at once, bit-sliced, for ARMv7 with NEON: see aes_bitsliced_arm.h. */
#if defined(__arm__)

	.syntax unified
	.arch armv7-a
	.fpu neon
	.arm
	.text

#include "aes_bitsliced_arm.h"

/* Of struct aes_keys. */
#define ROUNDS 1920

	.p2align 4
.Ltables:
	/* Where a block's bytes come from on their way in: with rows in place, and after two (or ten, or fourteen) rounds. */
	.byte 0, 7, 10, 13, 1, 4, 11, 14, 2, 5, 8, 15, 3, 6, 9, 12
	.byte 0, 15, 10, 5, 9, 4, 3, 14, 2, 13, 8, 7, 11, 6, 1, 12
	/* The same on their way out. */
	.byte 0, 4, 8, 12, 5, 9, 13, 1, 10, 14, 2, 6, 15, 3, 7, 11
	.byte 0, 14, 8, 6, 5, 3, 13, 11, 10, 4, 2, 12, 15, 9, 7, 1
	/* The next row in round 1. */
	.byte 9, 10, 11, 8, 13, 14, 15, 12, 1, 2, 3, 0, 5, 6, 7, 4

/* void millrace_aes_encrypt8(const uint8_t *keys, uint32_t rounds, const uint8_t *in, uint8_t *out)
 *
 * `keys`: 128 bytes for each round and for what comes before the first, on a multiple of 16, as in struct aes_keys.
 * `in`, `out`: eight blocks each, which may be the same; `out` on a multiple of 16. */
	.global	millrace_aes_encrypt8
	.hidden	millrace_aes_encrypt8
	.type	millrace_aes_encrypt8, %function
	.p2align 4
millrace_aes_encrypt8:
	begin sub_bytes
	adr	r10, .Ltables
	vld1.64	{d14, d15}, [r10:128]
	/* Where the bytes come from on their way out: 10 and 14 rounds leave rows two columns from their places, 12 none. */
	add	r12, r10, #32
	tst	r1, #2
	it	ne
	addne	r12, r12, #16
	add	r10, r10, #64
	lsr	r1, r1, #1
	bl	millrace_aes_rounds
	bl	millrace_aes_sub_bytes
	add_next_key
	bl	millrace_aes_blocks
	vstmia	r3, {d16-d31}
	end

/* void millrace_aes_cbc8(const struct aes_keys *keys, uint8_t *blocks, uint8_t **at, size_t steps)
 *
 * Eight chains at once, in CBC mode. `blocks` is what each chain's next block is added to, and stays that; on a multiple of 16. `at`:
 * where each chain is; afterwards so many steps, of which there is at least one, further. */
	.global	millrace_aes_cbc8
	.hidden	millrace_aes_cbc8
	.type	millrace_aes_cbc8, %function
	.p2align 4
millrace_aes_cbc8:
	begin sub_bytes
	adr	r10, .Ltables + 64
	ldr	r12, [r0, #ROUNDS]
	tst	r12, #2
	sub	r12, r10, #32
	it	ne
	addne	r12, r12, #16
	push	{r0, r1, r12}
	vldmia	r1, {d16-d31}
	add	r2, r2, #16
1:
	ldmdb	r2, {r0, r1, r12, lr}
	vld1.8	{d0, d1}, [r0]
	vld1.8	{d2, d3}, [r1]
	vld1.8	{d4, d5}, [r12]
	vld1.8	{d6, d7}, [lr]
	ldmia	r2, {r0, r1, r12, lr}
	veor	q8, q8, q0
	vld1.8	{d8, d9}, [r0]
	veor	q9, q9, q1
	vld1.8	{d10, d11}, [r1]
	veor	q10, q10, q2
	vld1.8	{d12, d13}, [r12]
	veor	q11, q11, q3
	vld1.8	{d14, d15}, [lr]
	veor	q12, q12, q4
	veor	q13, q13, q5
	veor	q14, q14, q6
	veor	q15, q15, q7
	sub	r1, r10, #64
	ldr	r0, [sp]
	vld1.64	{d14, d15}, [r1:128]
	ldr	r1, [r0, #ROUNDS]
	lsr	r1, r1, #1
	bl	millrace_aes_loaded
	ldr	r12, [sp, #8]
	bl	millrace_aes_sub_bytes
	add_next_key
	bl	millrace_aes_blocks
	ldmdb	r2, {r0, r1, r12, lr}
	vst1.8	{d16, d17}, [r0]!
	vst1.8	{d18, d19}, [r1]!
	vst1.8	{d20, d21}, [r12]!
	vst1.8	{d22, d23}, [lr]!
	stmdb	r2, {r0, r1, r12, lr}
	ldmia	r2, {r0, r1, r12, lr}
	vst1.8	{d24, d25}, [r0]!
	vst1.8	{d26, d27}, [r1]!
	vst1.8	{d28, d29}, [r12]!
	vst1.8	{d30, d31}, [lr]!
	stmia	r2, {r0, r1, r12, lr}
	subs	r3, r3, #1
	bne	1b
	ldr	r1, [sp, #4]
	vstmia	r1, {d16-d31}
	end
	.size	millrace_aes_cbc8, . - millrace_aes_cbc8

	/* What follows is for aes_ctr_arm.S as well. r4 to r9 as after `begin`, r10 at the last table above. */

	/* Eight blocks from r2, with their bytes in the order of the table in q7, through all rounds but the last. r0: the keys. r1:
	 * half the rounds; with one there is one round. */
	.global	millrace_aes_rounds
	.hidden	millrace_aes_rounds
millrace_aes_rounds:
	load_blocks
millrace_aes_loaded:
	order_loaded
	transpose
	add_next_key
1:
	sub_bytes
	mix_columns 1
	add_next_key
	subs	r1, r1, #1
	bxeq	lr
	sub_bytes
	mix_columns 2
	add_next_key
	/* From the third on. */
	.global	millrace_aes_third_round
	.hidden	millrace_aes_third_round
millrace_aes_third_round:
	sub_bytes
	mix_columns 3
	add_next_key
	subs	r1, r1, #1
	bxeq	lr
	sub_bytes
	mix_columns 0
	add_next_key
	b	1b

	.global	millrace_aes_sub_bytes
	.hidden	millrace_aes_sub_bytes
millrace_aes_sub_bytes:
	sub_bytes
	bx	lr

	/* From bits to blocks in q8 to q15, with their bytes in the order of the table at r12. */
	.global	millrace_aes_blocks
	.hidden	millrace_aes_blocks
millrace_aes_blocks:
	transpose
	vld1.64	{d30, d31}, [r12:128]
	order_blocks
	bx	lr
	.size	millrace_aes_encrypt8, . - millrace_aes_encrypt8

	.p2align 4
.Ltables_back:
	/* In: rows in place, and after two rounds. Out: rows in place. The next row in round 1. */
	.byte 0, 7, 10, 13, 1, 4, 11, 14, 2, 5, 8, 15, 3, 6, 9, 12
	.byte 0, 15, 10, 5, 9, 4, 3, 14, 2, 13, 8, 7, 11, 6, 1, 12
	.byte 0, 4, 8, 12, 5, 9, 13, 1, 10, 14, 2, 6, 15, 3, 7, 11
	.byte 9, 10, 11, 8, 13, 14, 15, 12, 1, 2, 3, 0, 5, 6, 7, 4

/* void millrace_aes_decrypt8(const uint8_t *keys, uint32_t rounds, const uint8_t *in, uint8_t *out)
 *
 * The inverse, with the same keys. */
	.global	millrace_aes_decrypt8
	.hidden	millrace_aes_decrypt8
	.type	millrace_aes_decrypt8, %function
	.p2align 4
millrace_aes_decrypt8:
	begin inv_sub_bytes
	bl	6f
	vstmia	r3, {d16-d31}
	end
	.size	millrace_aes_decrypt8, . - millrace_aes_decrypt8

/* void millrace_aes_cbc_back8(const struct aes_keys *keys, uint8_t *last, size_t eights)
 *
 * Decrypts eights of blocks in CBC mode, at least one, from the last, which is at `last`, to the first. A block is in front of it. */
	.global	millrace_aes_cbc_back8
	.hidden	millrace_aes_cbc_back8
	.type	millrace_aes_cbc_back8, %function
	.p2align 4
millrace_aes_cbc_back8:
	begin inv_sub_bytes
	push	{r0}
	mov	r3, r2
	mov	r2, r1
1:
	ldr	r0, [sp]
	ldr	r1, [r0, #ROUNDS]
	bl	6f
	/* r2 has moved on by six blocks. */
	sub	r12, r2, #7 * 16
	sub	r2, r2, #6 * 16
	vld1.8	{d0-d3}, [r12]!
	vld1.8	{d4-d7}, [r12]!
	vld1.8	{d8-d11}, [r12]!
	vld1.8	{d12-d15}, [r12]
	veor	q8, q8, q0
	veor	q9, q9, q1
	veor	q10, q10, q2
	veor	q11, q11, q3
	vst1.8	{d16-d19}, [r2]!
	veor	q12, q12, q4
	veor	q13, q13, q5
	vst1.8	{d20-d23}, [r2]!
	veor	q14, q14, q6
	veor	q15, q15, q7
	vst1.8	{d24-d27}, [r2]!
	subs	r3, r3, #1
	vst1.8	{d28-d31}, [r2]
	sub	r2, r2, #(6 + 8) * 16
	bne	1b
	end

	/* Eight blocks from r2 to q8 to q15. r0: the keys. r1: the rounds. */
6:
	adr	r10, .Ltables_back
	add	r0, r0, r1, lsl #7
	add	r0, r0, #128
	/* The state is in the place where encryption leaves it. */
	tst	r1, #2
	it	ne
	addne	r10, r10, #16
	vld1.64	{d14, d15}, [r10:128]
	adr	r10, .Ltables_back + 48
	load_blocks
	order_loaded
	transpose
	add_previous_key
	inv_sub_bytes
	add_previous_key
	/* InvMixColumns of rounds whose number is 1 mod 4, which is how often the loop below tests for the end. */
	add	r12, r1, #2
	tst	r1, #2
	lsr	r1, r12, #2
	beq	4f
3:
	unmix_columns 1
	mix_columns 1
	inv_sub_bytes
	add_previous_key
	subs	r1, r1, #1
	beq	5f
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
	sub	r12, r10, #16
	vld1.64	{d30, d31}, [r12:128]
	order_blocks
	bx	lr
	.size	millrace_aes_cbc_back8, . - millrace_aes_cbc_back8

	.section .note.GNU-stack, "", %progbits
#endif
