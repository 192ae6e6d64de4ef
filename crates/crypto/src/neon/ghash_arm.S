/* The products of GHASH for ARMv7, whose compilers keep only some of the sixteen registers busy: see ghash.c, which has the same
 * in C for AArch64. */
#if defined(__arm__)

	.syntax unified
	.arch armv7-a
	.fpu neon
	.arm
	.text

	.p2align 4
.Lwindows:
	/* Bytes k to 15 - k, for k from 1. */
	.byte 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0
	.byte 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0
	.byte 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0
	.byte 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0
	.byte 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0
	.byte 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0
	.byte 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0, 0, 0, 0

/* The next block's part by the eight turns of its power, added to q8 to q15. */
.macro multiply_add
	vld1.8	{d0}, [r0]!
	vldmia	r1!, {d2-d9}
	vmull.p8 q5, d0, d2
	vmull.p8 q6, d0, d3
	vmull.p8 q7, d0, d4
	veor	q8, q8, q5
	vmull.p8 q5, d0, d5
	veor	q9, q9, q6
	vmull.p8 q6, d0, d6
	veor	q10, q10, q7
	vmull.p8 q7, d0, d7
	veor	q11, q11, q5
	vmull.p8 q5, d0, d8
	veor	q12, q12, q6
	vmull.p8 q6, d0, d9
	veor	q13, q13, q7
	veor	q14, q14, q5
	veor	q15, q15, q6
.endm

/* Adds to q8 what turn `k` (in q`up`) and turn 8 - `k` (in q`down`) have in their window. */
.macro window k, up, down, mask, one, two
	vext.8	\one, \up, \up, #(16 - \k)
	vext.8	\two, \down, \down, #\k
	veor	\one, \one, \two
	vand	\one, \one, \mask
	veor	q8, q8, \one
.endm

/* void millrace_ghash_products(const uint8_t *parts, const uint8_t *turns, size_t count, uint8_t *sum)
 *
 * `parts`: eight bytes of each of `count` blocks, of which there is at least one. `turns`: the 64 bytes for each of them. `sum`: 16
 * bytes on a multiple of 16. */
	.global	millrace_ghash_products
	.hidden	millrace_ghash_products
	.type	millrace_ghash_products, %function
	.p2align 4
millrace_ghash_products:
	vpush	{d8-d15}
	vld1.8	{d0}, [r0]!
	vldmia	r1!, {d2-d9}
	vmull.p8 q8, d0, d2
	vmull.p8 q9, d0, d3
	vmull.p8 q10, d0, d4
	vmull.p8 q11, d0, d5
	vmull.p8 q12, d0, d6
	vmull.p8 q13, d0, d7
	vmull.p8 q14, d0, d8
	vmull.p8 q15, d0, d9
	/* The others by twos. */
	lsrs	r12, r2, #1
	tst	r2, #1
	bne	2f
	sub	r12, r12, #1
	multiply_add
2:
	cmp	r12, #0
	beq	4f
3:
	multiply_add
	multiply_add
	subs	r12, r12, #1
	bne	3b
4:
	adr	r12, .Lwindows
	vldmia	r12!, {d0-d7}
	window	1, q9, q15, q0, q4, q5
	window	2, q10, q14, q1, q6, q7
	window	3, q11, q13, q2, q4, q5
	window	4, q12, q12, q3, q6, q7
	vldmia	r12, {d0-d5}
	window	5, q13, q11, q0, q4, q5
	window	6, q14, q10, q1, q6, q7
	window	7, q15, q9, q2, q4, q5
	vst1.64	{d16, d17}, [r3:128]
	vpop	{d8-d15}
	bx	lr
	.size	millrace_ghash_products, . - millrace_ghash_products

	.section .note.GNU-stack, "", %progbits
#endif
