/* Written by aes_sbox.py. Bits in registers 0 to 7, most significant first; all others are used. */

.macro sub_bytes_addresses
	add SPILL0, sp, #0
	add SPILL1, sp, #64
	add SPILL2, sp, #80
	add SPILL3, sp, #112
.endm

/* 108 instructions. */
.macro sub_bytes
	veor q15, q3, q5
	veor q8, q1, q2
	veor q11, q0, q6
	veor q2, q11, q15
	veor q9, q0, q3
	veor q13, q7, q8
	veor q14, q6, q13
	veor q12, q4, q2
	veor q1, q1, q12
	veor q10, q9, q1
	veor q6, q5, q12
	veor q12, q10, q8
	vstmia SPILL0, {d22-d31}
	vorr q8, q11, q12
	veor q11, q0, q5
	veor q12, q6, q12
	vand q5, q14, q13
	vstmia SPILL2, {d18-d25}
	veor q3, q3, q13
	vand q15, q15, q12
	veor q0, q0, q13
	vand q9, q9, q10
	veor q4, q10, q12
	vorr q13, q11, q4
	veor q12, q11, q14
	veor q14, q13, q9
	veor q10, q7, q10
	veor q9, q15, q9
	veor q15, q8, q9
	veor q11, q5, q15
	vand q13, q0, q10
	veor q5, q8, q14
	vand q8, q2, q6
	veor q13, q13, q5
	veor q15, q8, q9
	vand q9, q3, q7
	veor q5, q8, q14
	veor q8, q9, q5
	veor q5, q7, q6
	vand q14, q12, q5
	veor q15, q14, q15
	veor q9, q15, q1
	veor q1, q5, q12
	veor q14, q13, q1
	vand q1, q9, q11
	veor q15, q8, q1
	veor q13, q14, q1
	vmov q1, q15
	vbsl q1, q11, q14
	vbsl q14, q13, q1
	veor q14, q14, q11
	vbsl q13, q9, q8
	vbif q15, q13, q8
	veor q8, q15, q9
	veor q11, q1, q14
	vand q15, q1, q3
	vand q6, q11, q6
	veor q9, q8, q14
	vand q11, q11, q2
	vand q5, q14, q5
	vand q2, q13, q10
	vand q14, q14, q12
	vand q7, q1, q7
	vand q4, q9, q4
	veor q3, q7, q6
	veor q7, q4, q3
	veor q12, q13, q8
	veor q4, q2, q3
	veor q10, q13, q1
	vand q13, q13, q0
	vldmia SPILL0, {d0-d7}
	vand q2, q8, q2
	vand q0, q12, q0
	vand q1, q12, q1
	veor q12, q4, q1
	vand q8, q8, q3
	veor q1, q2, q1
	vldmia SPILL1, {d4-d9}
	vand q4, q10, q4
	vand q3, q10, q3
	veor q10, q10, q9
	vand q2, q10, q2
	veor q3, q3, q2
	veor q0, q0, q3
	veor q3, q11, q3
	veor q11, q3, q14
	veor q3, q5, q11
	veor q5, q7, q0
	veor q3, q3, q1
	veor q3, q3, q6
	vld1.64 {d12-d15}, [SPILL3:128]
	vand q10, q10, q7
	vand q9, q9, q6
	veor q1, q10, q1
	veor q7, q8, q12
	veor q8, q4, q1
	veor q6, q5, q1
	veor q4, q13, q6
	veor q1, q8, q3
	veor q5, q15, q4
	veor q4, q9, q4
	veor q6, q7, q6
	veor q5, q5, q14
	veor q4, q4, q8
	veor q2, q4, q2
	veor q7, q7, q0
	veor q4, q12, q3
	veor q0, q8, q11
.endm

.macro inv_sub_bytes_addresses
	add SPILL0, sp, #0
	add SPILL1, sp, #48
	add SPILL2, sp, #64
	add SPILL3, sp, #96
	add SPILL4, sp, #128
	add SPILL5, sp, #144
.endm

/* 109 instructions. */
.macro inv_sub_bytes
	veor q15, q1, q3
	veor q8, q0, q3
	veor q9, q0, q15
	veor q14, q0, q1
	veor q0, q3, q4
	veor q3, q7, q0
	veor q11, q3, q9
	veor q12, q4, q9
	veor q4, q6, q3
	veor q5, q5, q4
	veor q10, q7, q5
	veor q13, q11, q10
	vstmia SPILL5, {d16-d21}
	vstmia SPILL0, {d22-d29}
	vorr q14, q14, q11
	vand q10, q12, q10
	vand q6, q0, q13
	veor q7, q14, q6
	veor q10, q10, q6
	veor q11, q15, q4
	veor q14, q4, q12
	veor q12, q0, q11
	vbic q8, q9, q8
	veor q6, q2, q12
	veor q13, q6, q13
	veor q2, q9, q13
	vstmia SPILL3, {d24-d29}
	vand q9, q14, q2
	veor q14, q9, q10
	veor q14, q8, q14
	veor q5, q14, q5
	veor q14, q3, q6
	vorr q8, q4, q14
	vand q12, q12, q13
	veor q13, q8, q7
	veor q8, q8, q10
	veor q9, q9, q7
	vand q7, q11, q6
	veor q10, q7, q13
	vand q7, q15, q3
	veor q13, q12, q9
	veor q10, q10, q1
	veor q12, q7, q8
	vand q1, q5, q12
	veor q7, q13, q1
	veor q1, q10, q1
	vmov q9, q1
	vbsl q9, q5, q13
	vbsl q13, q7, q9
	vbsl q7, q12, q10
	veor q13, q13, q5
	vbsl q10, q1, q7
	veor q8, q9, q13
	veor q10, q10, q12
	vand q5, q9, q6
	vand q12, q8, q14
	vand q6, q9, q11
	veor q1, q9, q7
	veor q9, q13, q10
	vst1.64 {d12-d15}, [SPILL2:128]
	vand q3, q13, q3
	veor q6, q1, q9
	vand q11, q1, q0
	vand q0, q13, q15
	vand q8, q8, q4
	vldmia SPILL0, {d26-d31}
	veor q7, q7, q10
	vand q15, q1, q15
	vand q14, q6, q14
	vand q1, q9, q13
	veor q13, q0, q14
	veor q12, q12, q5
	veor q0, q15, q13
	vand q2, q7, q2
	veor q0, q0, q12
	veor q0, q0, q11
	veor q0, q0, q1
	veor q0, q0, q8
	veor q3, q3, q0
	veor q12, q2, q12
	veor q15, q3, q5
	vldmia SPILL4, {d4-d11}
	vand q6, q6, q5
	vand q7, q7, q2
	vand q5, q10, q4
	vand q10, q10, q3
	veor q6, q6, q15
	veor q6, q6, q1
	veor q15, q5, q15
	vldmia SPILL1, {d2-d11}
	vand q1, q9, q1
	vand q9, q3, q5
	veor q5, q15, q12
	veor q2, q2, q5
	veor q15, q9, q12
	veor q12, q10, q15
	veor q9, q12, q14
	vand q10, q3, q4
	veor q14, q2, q9
	veor q9, q6, q9
	veor q12, q1, q10
	veor q3, q15, q0
	veor q1, q14, q10
	veor q2, q7, q12
	veor q7, q2, q11
	veor q15, q1, q2
	veor q2, q1, q13
	veor q1, q15, q8
	veor q4, q9, q12
.endm
