// The beginning of a block of SHA-1 and of SHA-256 on ARMv7, for four messages. r4 to r7 point at them.

// Eight big-endian words of each message, from the first half of its block or the second, to r12 by word. The messages go
// on by as many bytes as the registers say.
.macro  words by4, by5, by6, by7
        vld1.8  {q0, q1}, [r4], \by4
        vld1.8  {q2, q3}, [r5], \by5
        vld1.8  {q4, q5}, [r6], \by6
        vld1.8  {q6, q7}, [r7], \by7
        vrev32.8 q0, q0
        vrev32.8 q1, q1
        vrev32.8 q2, q2
        vrev32.8 q3, q3
        vrev32.8 q4, q4
        vrev32.8 q5, q5
        vrev32.8 q6, q6
        vrev32.8 q7, q7
        vtrn.32 q0, q2
        vtrn.32 q4, q6
        vtrn.32 q1, q3
        vtrn.32 q5, q7
        vswp    d1, d8
        vswp    d5, d12
        vswp    d3, d10
        vswp    d7, d14
        vst1.32 {q0}, [r12 :128]!
        vst1.32 {q2}, [r12 :128]!
        vst1.32 {q4}, [r12 :128]!
        vst1.32 {q6}, [r12 :128]!
        vst1.32 {q1}, [r12 :128]!
        vst1.32 {q3}, [r12 :128]!
        vst1.32 {q5}, [r12 :128]!
        vst1.32 {q7}, [r12 :128]!
.endm
