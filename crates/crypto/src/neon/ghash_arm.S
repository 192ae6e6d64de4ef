/* The products of GHASH for ARMv7: see ghash_arm.c. */
#if defined(__arm__)

	.syntax unified
	.arch armv7-a
	.fpu neon
	.arm
	.text

/* Stores four bytes of each block, which are in d`a` to d`a + 3` (q`one`, q`two`), and their five sums. */
.macro quadruple one, two, a, b, c, d
	veor	q10, q\one, q\two
	veor	d22, d\a, d\b
	veor	d23, d\c, d\d
	vst1.64	{d\a, d\b, d\c, d\d}, [r1]!
	veor	d24, d20, d21
	vstmia	r1!, {d20-d24}
.endm

/* void millrace_ghash_expand(const uint8_t *blocks, uint8_t *sums, size_t eights)
 *
 * Of so many times eight blocks, at least one, the 81 sums of bytes, eight bytes each, that `products` takes. */
	.global	millrace_ghash_expand
	.hidden	millrace_ghash_expand
	.type	millrace_ghash_expand, %function
	.p2align 4
millrace_ghash_expand:
	vpush	{d8-d15}
1:
	vld4.8	{d0-d3}, [r0]!
	vld4.8	{d4-d7}, [r0]!
	vld4.8	{d8-d11}, [r0]!
	vld4.8	{d12-d15}, [r0]!
	vtrn.8	q0, q2
	vtrn.8	q1, q3
	vtrn.8	q4, q6
	vtrn.8	q5, q7
	vtrn.16	q0, q4
	vtrn.16	q1, q5
	vtrn.16	q2, q6
	vtrn.16	q3, q7
	/* Register d`i` has byte i of the blocks. */
	quadruple 0, 1, 0, 1, 2, 3
	quadruple 2, 3, 4, 5, 6, 7
	veor	q8, q0, q2
	veor	q9, q1, q3
	veor	q0, q0, q4
	quadruple 8, 9, 16, 17, 18, 19
	veor	q1, q1, q5
	quadruple 4, 5, 8, 9, 10, 11
	veor	q2, q2, q6
	quadruple 6, 7, 12, 13, 14, 15
	veor	q8, q4, q6
	veor	q9, q5, q7
	veor	q3, q3, q7
	quadruple 8, 9, 16, 17, 18, 19
	quadruple 0, 1, 0, 1, 2, 3
	quadruple 2, 3, 4, 5, 6, 7
	veor	q8, q0, q2
	veor	q9, q1, q3
	subs	r2, r2, #1
	quadruple 8, 9, 16, 17, 18, 19
	bne	1b
	vpop	{d8-d15}
	bx	lr
	.size	millrace_ghash_expand, . - millrace_ghash_expand

/* The next eight blocks' products of nine bytes each, added to q7 to q15. */
.macro multiply_add
	vld1.64	{d0-d3}, [r0]!
	vld1.64	{d4-d7}, [r1]!
	vmull.p8 q4, d0, d4
	vmull.p8 q5, d1, d5
	vmull.p8 q6, d2, d6
	veor	q7, q7, q4
	vmull.p8 q4, d3, d7
	vldmia	r0, {d0-d4}
	veor	q8, q8, q5
	veor	q9, q9, q6
	veor	q10, q10, q4
	vldmia	r1!, {d5-d9}
	vmull.p8 q5, d0, d5
	vmull.p8 q6, d1, d6
	veor	q11, q11, q5
	vmull.p8 q5, d2, d7
	veor	q12, q12, q6
	vmull.p8 q6, d3, d8
	veor	q13, q13, q5
	vmull.p8 q5, d4, d9
	veor	q14, q14, q6
	veor	q15, q15, q5
	add	r0, r0, #616
.endm

/* void millrace_ghash_products(const uint8_t *texts, const uint8_t *powers, size_t count, size_t skip, uint8_t *product)
 *
 * `texts`: what `expand` gave for each of `count` times eight blocks, of which there are at least eight. `powers`: the same of the
 * powers that they are multiplied by, but first nine sums of all, then the next nine, and so on, with `skip` bytes between.
 * `product`: 32 bytes on a multiple of 16, most significant first: the sum. */
	.global	millrace_ghash_products
	.hidden	millrace_ghash_products
	.type	millrace_ghash_products, %function
	.p2align 4
millrace_ghash_products:
	push	{r4-r8, lr}
	vpush	{d8-d15}
	mov	r4, sp
	sub	sp, sp, #224
	bic	sp, sp, #15
	mov	r5, sp
	add	r7, sp, #144
	mov	lr, #9
1:
	mov	r6, r0
	vldmia	r0, {d0-d8}
	vldmia	r1!, {d9-d13}
	add	r0, r0, #648
	vmull.p8 q7, d0, d9
	vmull.p8 q8, d1, d10
	vmull.p8 q9, d2, d11
	vmull.p8 q10, d3, d12
	vmull.p8 q11, d4, d13
	vld1.64	{d9-d12}, [r1]!
	vmull.p8 q12, d5, d9
	vmull.p8 q13, d6, d10
	vmull.p8 q14, d7, d11
	vmull.p8 q15, d8, d12
	/* The others by twos. */
	lsrs	r12, r2, #1
	beq	4f
	tst	r2, #1
	beq	3f
2:
	multiply_add
3:
	multiply_add
	subs	r12, r12, #1
	bne	2b
4:
	/* Each the sum over the eight blocks: eight of them in the lanes of q7, the last in four lanes of d30. */
	veor	d14, d14, d15
	veor	d15, d22, d23
	veor	d18, d18, d19
	veor	d19, d26, d27
	veor	d16, d16, d17
	veor	d17, d24, d25
	veor	d20, d20, d21
	veor	d21, d28, d29
	veor	d30, d30, d31
	vtrn.32	q7, q9
	vtrn.32	q8, q10
	veor	q7, q7, q9
	veor	q8, q8, q10
	add	r0, r6, #72
	vtrn.16	q7, q8
	vst1.64	{d30}, [r7:64]!
	veor	q7, q7, q8
	add	r1, r1, r3
	subs	lr, lr, #1
	vst1.64	{d14, d15}, [r5:128]!
	bne	1b

	/* Karatsuba's method backwards. Of 16 bytes times 16 there come seven coefficients of four bytes times four; first of the last
	 * sums, then of the others. */
	vmov	q8, q7
	vldmia	r5, {d19-d27}
	vldmia	sp, {d0-d15}
	ldr	r12, [r4, #88]
	veor	d21, d21, d19
	veor	d24, d24, d22
	veor	d27, d27, d25
	veor	d28, d21, d20
	veor	d29, d24, d23
	veor	d27, d27, d26
	veor	d25, d25, d19
	veor	d26, d26, d20
	veor	d27, d27, d28
	veor	d25, d25, d22
	veor	d26, d26, d23
	veor	d30, d27, d29
	vmov	d18, d19
	veor	d19, d26, d22
	veor	d22, d20, d25
	vmov.i8	d31, #0
	vtrn.32	q9, q11
	vtrn.32	q14, q15
	veor	q9, q9, q11
	veor	q14, q14, q15
	vtrn.16	q9, q14
	veor	q9, q9, q14

	veor	q2, q2, q0
	veor	q5, q5, q3
	veor	q8, q8, q6
	veor	q2, q2, q1
	veor	q5, q5, q4
	veor	q8, q8, q7
	veor	q6, q6, q0
	veor	q7, q7, q1
	veor	q8, q8, q2
	veor	q6, q6, q3
	veor	q7, q7, q4
	veor	q8, q8, q5
	veor	q1, q1, q6
	veor	q3, q3, q7
	vmov.i8	q6, #0
	/* From q0, q2, q1, q8, q3, q5, q4, q6 with a lane for each sum to a register for each. */
	vtrn.16	q0, q2
	vtrn.16	q1, q8
	vtrn.16	q3, q5
	vtrn.16	q4, q6
	vtrn.32	q0, q1
	vtrn.32	q2, q8
	vtrn.32	q3, q4
	vtrn.32	q5, q6
	vswp	d1, d6
	vswp	d5, d10
	vswp	d3, d8
	vswp	d17, d12
	/* Seven coefficients of bytes times bytes in q0, q4, q3, q9, q5, q6, q8. */
	veor	q4, q4, q0
	veor	q6, q6, q1
	veor	q9, q9, q3
	veor	q10, q2, q1
	veor	q4, q4, q2
	veor	q6, q6, q8
	veor	q9, q9, q5
	veor	q3, q3, q0
	veor	q5, q5, q8
	veor	q9, q9, q4
	veor	q3, q3, q10
	veor	q5, q5, q10
	veor	q9, q9, q6
	/* What reaches into the next four bytes. */
	vmov.i8	q7, #0
	vext.8	q5, q7, q5, #14
	vext.8	q6, q7, q6, #14
	vext.8	q8, q7, q8, #14
	veor	q0, q0, q5
	veor	q4, q4, q6
	veor	q3, q3, q8
	/* Even coefficients, and odd ones a byte further. */
	vzip.16	q0, q3
	vzip.16	q4, q9
	vrev16.8 q0, q0
	vrev16.8 q3, q3
	vrev16.8 q4, q4
	vrev16.8 q9, q9
	vext.8	q9, q4, q9, #15
	vext.8	q4, q7, q4, #15
	veor	q1, q3, q9
	veor	q0, q0, q4
	vst1.64	{d0-d3}, [r12:128]
	mov	sp, r4
	vpop	{d8-d15}
	pop	{r4-r8, pc}
	.size	millrace_ghash_products, . - millrace_ghash_products

	.section .note.GNU-stack, "", %progbits
#endif
