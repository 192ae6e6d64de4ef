/* AES in counter mode for packets of which the first rounds are done once, on the bit-sliced core for ARMv7 with NEON.
 *
 * The counter blocks of a packet differ in their last byte. After the first round four bytes differ, each by what depends on
 * only the key and the counter, and is kept with the key. After the second round's SubBytes it is still these four, of each of
 * 32 blocks: one SubBytes does four times eight blocks. From there each of the four goes to a column of its own, once, twice or
 * three times, and all else is the same for the whole packet. So of the first two rounds each eight blocks have a quarter of a
 * SubBytes. (Counter-mode caching: D. J. Bernstein and P. Schwabe, "New AES software speed records", 2008; J. H. Park and
 * D. H. Lee, "FACE", 2018.)
 */
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
	/* As in aes_bitsliced_arm.S: the next row in round 1; on the way out after 12 rounds, and after 10 or 14; on the way in. */
	.byte 9, 10, 11, 8, 13, 14, 15, 12, 1, 2, 3, 0, 5, 6, 7, 4
	.byte 0, 4, 8, 12, 5, 9, 13, 1, 10, 14, 2, 6, 15, 3, 7, 11
	.byte 0, 14, 8, 6, 5, 3, 13, 11, 10, 4, 2, 12, 15, 9, 7, 1
	.byte 0, 7, 10, 13, 1, 4, 11, 14, 2, 5, 8, 15, 3, 6, 9, 12
	/* Bytes that are the same in all blocks of a packet after the first round. */
	.byte 0, 255, 0, 255, 255, 255, 255, 255, 255, 0, 255, 0, 255, 255, 255, 255
	/* For each byte after the second round: which of the others it comes from, and from its fours if once, twice, three times. */
	.byte 4, 1, 6, 3, 10, 3, 8, 1, 0, 5, 2, 7, 2, 11, 0, 9
.Lchanging:
	/* Where the four others are, four times. */
	.byte 0, 9, 2, 11, 0, 9, 2, 11, 0, 9, 2, 11, 0, 9, 2, 11

/* void millrace_aes_ctr_start(const struct aes_keys *keys, const uint8_t *nonces, uint8_t *firsts, uint8_t *seconds)
 *
 * For eight packets, of which `nonces` are the counter blocks with a counter of zero: their bits after the first round, and
 * after the second if the changing bytes were zero behind its SubBytes. */
	.global	millrace_aes_ctr_start
	.hidden	millrace_aes_ctr_start
	.type	millrace_aes_ctr_start, %function
	.p2align 4
millrace_aes_ctr_start:
	begin sub_bytes
	mov	r12, r2
	mov	r2, r1
	adr	r10, .Ltables
	add	r1, r10, #48
	vld1.64	{d14, d15}, [r1:128]
	mov	r1, #1
	bl	millrace_aes_rounds
	vstmia	r12, {d0-d15}
	bl	millrace_aes_sub_bytes
	add	r1, r10, #64
	vld1.64	{d30, d31}, [r1:128]
	vand	q0, q0, q15
	vand	q1, q1, q15
	vand	q2, q2, q15
	vand	q3, q3, q15
	vand	q4, q4, q15
	vand	q5, q5, q15
	vand	q6, q6, q15
	vand	q7, q7, q15
	mix_columns 2
	add_next_key
	vstmia	r3, {d0-d15}
	end
	.size	millrace_aes_ctr_start, . - millrace_aes_ctr_start

.macro every_block_first register, low, high
	vtbl.8	d16, {d\low, d\high}, d28
	vtbl.8	d17, {d\low, d\high}, d29
	vtst.8	q\register, q8, q15
.endm

/* void millrace_aes_ctr_packet(const uint8_t *firsts, const uint8_t *seconds, uint32_t mask, uint8_t *packet)
 *
 * Of these the packet whose bit is in `mask`, in all lanes: the changing bytes of the first four times, and the second. */
	.global	millrace_aes_ctr_packet
	.hidden	millrace_aes_ctr_packet
	.type	millrace_aes_ctr_packet, %function
	.p2align 4
millrace_aes_ctr_packet:
	vpush	{d8-d15}
	vdup.8	q15, r2
	adr	r12, .Lchanging
	vld1.64	{d28, d29}, [r12:128]
	vldmia	r0, {d0-d15}
	every_block_first 0, 0, 1
	every_block_first 1, 2, 3
	every_block_first 2, 4, 5
	every_block_first 3, 6, 7
	every_block_first 4, 8, 9
	every_block_first 5, 10, 11
	every_block_first 6, 12, 13
	every_block_first 7, 14, 15
	vstmia	r3!, {d0-d15}
	vldmia	r1, {d0-d15}
	vtst.8	q0, q0, q15
	vtst.8	q1, q1, q15
	vtst.8	q2, q2, q15
	vtst.8	q3, q3, q15
	vtst.8	q4, q4, q15
	vtst.8	q5, q5, q15
	vtst.8	q6, q6, q15
	vtst.8	q7, q7, q15
	vstmia	r3, {d0-d15}
	vpop	{d8-d15}
	bx	lr
	.size	millrace_aes_ctr_packet, . - millrace_aes_ctr_packet

/* One bit of the four bytes, once, twice and three times, in registers that follow each other. */
.macro store_times low, low_twice, low_thrice, high, high_twice, high_thrice
	vst3.32	{d\low, d\low_twice, d\low_thrice}, [r2]!
	vst3.32	{d\high, d\high_twice, d\high_thrice}, [r2], r1
.endm

/* void millrace_aes_ctr_second(const uint8_t *counters, const uint8_t *packet, uint8_t *times)
 *
 * The changing bytes of 32 blocks, which are told by what is kept with the key, behind the second round's SubBytes. Of each eight
 * blocks there are 12 bytes, and 48 bytes for each bit. */
	.global	millrace_aes_ctr_second
	.hidden	millrace_aes_ctr_second
	.type	millrace_aes_ctr_second, %function
	.p2align 4
millrace_aes_ctr_second:
	begin sub_bytes
	vldmia	r0, {d0-d15}
	vldmia	r1, {d16-d31}
	add_key
	bl	millrace_aes_sub_bytes
	add	r2, r2, #7 * 48
	mvn	r1, #71
	vmov	q8, q0
	veor	q9, q7, q8
	store_times 14, 16, 18, 15, 17, 19
	veor	q7, q7, q0
	veor	q8, q6, q7
	store_times 12, 14, 16, 13, 15, 17
	veor	q7, q5, q6
	store_times 10, 12, 14, 11, 13, 15
	veor	q5, q5, q0
	veor	q6, q4, q5
	store_times 8, 10, 12, 9, 11, 13
	veor	q4, q4, q0
	veor	q5, q3, q4
	store_times 6, 8, 10, 7, 9, 11
	veor	q4, q2, q3
	store_times 4, 6, 8, 5, 7, 9
	veor	q3, q1, q2
	store_times 2, 4, 6, 3, 5, 7
	veor	q2, q0, q1
	store_times 0, 2, 4, 1, 3, 5
	end
	.size	millrace_aes_ctr_second, . - millrace_aes_ctr_second

.macro spread register, table, next, to_low, to_high, to
	vld1.32	{d\table, d\next}, [lr], r1
	vtbl.8	d\to_low, {d\table, d\next}, d30
	vtbl.8	d\to_high, {d\table, d\next}, d31
	veor	q\register, q\register, q\to
.endm

/* void millrace_aes_ctr8(const struct aes_keys *keys, const uint8_t *second, const uint8_t *times, uint8_t *text, size_t eights)
 *
 * Adds to the text the key stream of so many times eight blocks, at least one and at most four. `second` is the second half of
 * `packet`, `times` the 12 bytes of the first eight blocks; four bytes behind the last are read as well. */
	.global	millrace_aes_ctr8
	.hidden	millrace_aes_ctr8
	.type	millrace_aes_ctr8, %function
	.p2align 4
millrace_aes_ctr8:
	begin sub_bytes
	push	{r0, r1}
	adr	r10, .Ltables
	ldr	r1, [r0, #ROUNDS]
	add	r12, r10, #16
	tst	r1, #2
	it	ne
	addne	r12, r12, #16
1:
	ldr	lr, [sp, #4]
	vldmia	lr, {d0-d15}
	add	lr, r10, #80
	vld1.64	{d30, d31}, [lr:128]
	mov	lr, r2
	mov	r1, #48
	spread	0, 16, 17, 20, 21, 10
	spread	1, 18, 19, 22, 23, 11
	spread	2, 16, 17, 20, 21, 10
	spread	3, 18, 19, 22, 23, 11
	spread	4, 16, 17, 20, 21, 10
	spread	5, 18, 19, 22, 23, 11
	spread	6, 16, 17, 20, 21, 10
	spread	7, 18, 19, 22, 23, 11
	ldr	r0, [sp]
	add	r2, r2, #12
	ldr	r1, [r0, #ROUNDS]
	add	r0, r0, #3 * 128
	lsr	r1, r1, #1
	sub	r1, r1, #1
	bl	millrace_aes_third_round
	bl	millrace_aes_sub_bytes
	add_next_key
	bl	millrace_aes_blocks
	mov	lr, r3
	vld1.8	{d0-d3}, [lr]!
	vld1.8	{d4-d7}, [lr]!
	vld1.8	{d8-d11}, [lr]!
	vld1.8	{d12-d15}, [lr]
	veor	q0, q0, q8
	veor	q1, q1, q9
	veor	q2, q2, q10
	veor	q3, q3, q11
	vst1.8	{d0-d3}, [r3]!
	veor	q4, q4, q12
	veor	q5, q5, q13
	vst1.8	{d4-d7}, [r3]!
	veor	q6, q6, q14
	veor	q7, q7, q15
	vst1.8	{d8-d11}, [r3]!
	ldr	r1, [r11, #104]
	vst1.8	{d12-d15}, [r3]!
	subs	r1, r1, #1
	str	r1, [r11, #104]
	bne	1b
	end
	.size	millrace_aes_ctr8, . - millrace_aes_ctr8

	.section .note.GNU-stack, "", %progbits
#endif
