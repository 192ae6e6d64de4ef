// Copying, moving, filling and comparing memory on ARMv7: with NEON where the kernel says that the CPU has it, else by words
// at any address, which ARMv7 loads and stores.
//
// In the static programs these are memcpy, memmove, memset, memcmp and bcmp (MILLRACE_REPLACES_MEMORY): the linker takes the
// first that it finds, and the C library comes last. What is called before constructors run goes by words.
//
// With NEON 64 bytes are moved in a step, or 32 filled. What is left lies in front of the last byte (behind the first, where
// it goes downwards): it is loaded before the first step, stored after the last, and may overlap what that has stored. So no
// number of bytes needs code of its own.

#if defined(__arm__)

        .syntax unified
        .arch   armv7-a
        .fpu    neon
        .arm

        .macro  function name, other
        .global \name
        .hidden \name
        .type   \name, %function
\name:
#if defined(MILLRACE_REPLACES_MEMORY)
        .global \other
        .type   \other, %function
\other:
#endif
        .endm

// Falls through where there is NEON. Overwrites r3; `at` names the place, of which `literal` holds the distance.
        .macro  unless_neon other, at
        ldr     r3, .Ldistance_\at
.Lat_\at:
        ldr     r3, [pc, r3]
        cmp     r3, #0
        beq     \other
        .endm

        .macro  literal at
.Ldistance_\at:
        .word   has_neon - (.Lat_\at + 8)
        .endm

        .bss
        .align  2
has_neon:
        .space  4

        .section .init_array, "aw", %init_array
        .align  2
        .word   ask

        .text
        .align  2
        .type   ask, %function
ask:    push    {r4, lr}
        mov     r0, #16                 // AT_HWCAP
        bl      getauxval
        and     r0, r0, #1 << 12        // HWCAP_NEON
        ldr     r1, 2f
        add     r1, pc, r1
1:      str     r0, [r1]
        pop     {r4, pc}
2:      .word   has_neon - (1b + 4)

// void *millrace_move(void *to, const void *from, size_t len): they may overlap in any way.
        .align  4
        function millrace_move, memmove
        sub     r3, r0, r1
        cmp     r3, r2
        blo     downwards
        // Fall through: nothing is overwritten that is yet to be read.

// void *millrace_copy(void *to, const void *from, size_t len)
        function millrace_copy, memcpy
        cmp     r2, #16
        bls     upto16
        unless_neon words_upwards, copy
        add     r3, r1, r2              // the ends
        add     r12, r0, r2
        cmp     r2, #32
        bls     upto32
        sub     r3, r3, #32
        sub     r12, r12, #32
        vld1.8  {d20-d23}, [r3]
        subs    r2, r2, #64
        bls     upto64
        sub     r3, r3, #32
        vld1.8  {d16-d19}, [r3]
        mov     r3, r0
1:      vld1.8  {d0-d3}, [r1]!
        vld1.8  {d4-d7}, [r1]!
        subs    r2, r2, #64
        vst1.8  {d0-d3}, [r3]!
        vst1.8  {d4-d7}, [r3]!
        bhi     1b
        vst1.8  {d20-d23}, [r12]
        sub     r12, r12, #32
        vst1.8  {d16-d19}, [r12]
        bx      lr
        literal copy

// The rest from here on goes in either direction: all is loaded before anything is stored.
upto64: vld1.8  {d0-d3}, [r1]
        vst1.8  {d20-d23}, [r12]
        vst1.8  {d0-d3}, [r0]
        bx      lr

upto32: sub     r3, r3, #16
        sub     r12, r12, #16
        vld1.8  {d0-d1}, [r1]
        vld1.8  {d2-d3}, [r3]
        vst1.8  {d0-d1}, [r0]
        vst1.8  {d2-d3}, [r12]
        bx      lr

upto16: cmp     r2, #8
        blo     1f
        push    {r4, r5}
        add     r12, r1, r2
        ldr     r3, [r1]
        ldr     r1, [r1, #4]
        ldr     r4, [r12, #-8]
        ldr     r5, [r12, #-4]
        add     r12, r0, r2
        str     r3, [r0]
        str     r1, [r0, #4]
        str     r4, [r12, #-8]
        str     r5, [r12, #-4]
        pop     {r4, r5}
        bx      lr
1:      add     r12, r0, r2
        cmp     r2, #4
        blo     2f
        ldr     r3, [r1], r2
        ldr     r1, [r1, #-4]
        str     r3, [r0]
        str     r1, [r12, #-4]
        bx      lr
2:      cmp     r2, #0
        bxeq    lr
        // The first, the last, and one in the middle.
        push    {r4}
        lsr     r4, r2, #1
        ldrb    r3, [r1, r4]
        ldrb    r4, [r1], r2
        ldrb    r1, [r1, #-1]
        lsr     r2, r2, #1
        strb    r3, [r0, r2]
        strb    r4, [r0]
        strb    r1, [r12, #-1]
        pop     {r4}
        bx      lr

// More than 16 bytes: 16 at a time, and the rest as above.
words_upwards:
        push    {r0, r4, r5, lr}
1:      ldr     r3, [r1]
        ldr     r4, [r1, #4]
        ldr     r5, [r1, #8]
        ldr     r12, [r1, #12]
        add     r1, r1, #16
        str     r3, [r0]
        str     r4, [r0, #4]
        str     r5, [r0, #8]
        str     r12, [r0, #12]
        add     r0, r0, #16
        sub     r2, r2, #16
        cmp     r2, #16
        bhi     1b
        bl      upto16
        pop     {r0, r4, r5, pc}

words_downwards:
        push    {r4, r5, r6, lr}
1:      sub     r2, r2, #16
        add     r6, r1, r2
        ldr     r3, [r6]
        ldr     r4, [r6, #4]
        ldr     r5, [r6, #8]
        ldr     r12, [r6, #12]
        add     r6, r0, r2
        str     r3, [r6]
        str     r4, [r6, #4]
        str     r5, [r6, #8]
        str     r12, [r6, #12]
        cmp     r2, #16
        bhi     1b
        pop     {r4, r5, r6, lr}
        b       upto16

// To a place that begins within what is moved.
downwards:
        cmp     r2, #16
        bls     upto16
        unless_neon words_downwards, down
        add     r3, r1, r2
        add     r12, r0, r2
        cmp     r2, #32
        bls     upto32
        sub     r3, r3, #32
        sub     r12, r12, #32
        subs    r2, r2, #64
        bls     2f
        vld1.8  {d20-d23}, [r1]!
        vld1.8  {d16-d19}, [r1]
        mov     r1, #-32
1:      vld1.8  {d0-d3}, [r3], r1
        vld1.8  {d4-d7}, [r3], r1
        subs    r2, r2, #64
        vst1.8  {d0-d3}, [r12], r1
        vst1.8  {d4-d7}, [r12], r1
        bhi     1b
        add     r12, r0, #32
        vst1.8  {d16-d19}, [r12]
        vst1.8  {d20-d23}, [r0]
        bx      lr
2:      vld1.8  {d20-d23}, [r3]
        b       upto64
        literal down

// void *millrace_fill(void *to, int byte, size_t len)
        .align  4
        function millrace_fill, memset
        uxtb    r1, r1
        orr     r1, r1, r1, lsl #8
        orr     r1, r1, r1, lsl #16
        add     r12, r0, r2             // the end
        cmp     r2, #16
        blo     5f
        unless_neon 3f, fill
        vdup.32 q0, r1
        subs    r2, r2, #32
        bls     2f
        vmov    q1, q0
        mov     r3, r0
1:      vst1.8  {d0-d3}, [r3]!
        subs    r2, r2, #32
        bhi     1b
        sub     r12, r12, #32
        vst1.8  {d0-d3}, [r12]
        bx      lr
2:      sub     r12, r12, #16
        vst1.8  {d0-d1}, [r0]
        vst1.8  {d0-d1}, [r12]
        bx      lr
        // By words, the last four once more.
3:      mov     r3, r0
4:      str     r1, [r3]
        str     r1, [r3, #4]
        str     r1, [r3, #8]
        str     r1, [r3, #12]
        add     r3, r3, #16
        sub     r2, r2, #16
        cmp     r2, #16
        bhs     4b
        str     r1, [r12, #-16]
        str     r1, [r12, #-12]
        str     r1, [r12, #-8]
        str     r1, [r12, #-4]
        bx      lr
5:      cmp     r2, #4
        blo     6f
        str     r1, [r0]
        str     r1, [r12, #-4]
        cmp     r2, #8
        bxls    lr
        str     r1, [r0, #4]
        str     r1, [r12, #-8]
        bx      lr
6:      cmp     r2, #0
        bxeq    lr
        strb    r1, [r0]
        strb    r1, [r12, #-1]
        lsr     r2, r2, #1
        strb    r1, [r0, r2]
        bx      lr
        literal fill

// int millrace_compare(const void *, const void *, size_t len): by words. Not for secrets. As bcmp, which compilers call where
// only equality is asked for, it says more than it has to.
        .align  4
#if defined(MILLRACE_REPLACES_MEMORY)
        .global bcmp
        .type   bcmp, %function
bcmp:
#endif
        function millrace_compare, memcmp
        subs    r2, r2, #4
        blo     2f
1:      ldr     r3, [r0], #4
        ldr     r12, [r1], #4
        cmp     r3, r12
        bne     4f
        subs    r2, r2, #4
        bhs     1b
2:      add     r2, r2, #4              // what is left
        mov     r12, r0
        mov     r0, #0
3:      subs    r2, r2, #1
        bxlo    lr
        ldrb    r0, [r12], #1
        ldrb    r3, [r1], #1
        subs    r0, r0, r3
        beq     3b
        bx      lr
        // The first byte that differs decides, so it has to be the highest.
4:      rev     r3, r3
        rev     r12, r12
        cmp     r3, r12
        mov     r0, #1
        mvnlo   r0, #0
        bx      lr

        .section .note.GNU-stack, "", %progbits

#endif
