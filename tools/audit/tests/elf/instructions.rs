//! Assembles instructions one by one: the reader must put each in the correct class.

use audit::facts::Counts;

use crate::compile::{A64, ARM, Bench, facts, without_sections};

/// Instructions of 32-bit ARM, and how many of them are NEON, VFP, D16 and up, fused multiply-add, division, AES,
/// PMULL, SHA, exclusive.
const ARM_TABLE: [(&str, [u64; 9]); 9] = [
    (
        "vadd.i32 q0, q1, q2; vadd.f32 d0, d1, d2; veor d3, d4, d5; vorr q1, q1, q2; vmull.u32 q1, d2, d3;
         vmlal.u16 q0, d1, d2[0]; vmul.f32 d0, d1, d2[1]; vshl.i32 q1, q2, #3; vshrn.i32 d0, q1, #4;
         vmovl.u8 q0, d1; vmov.i32 q0, #1; vmvn.i16 d0, #2; vext.8 q0, q1, q2, #4; vrev64.32 q0, q1;
         vtbl.8 d0, {d1, d2}, d3; vdup.32 q0, d1[1]; vdup.8 d0, r0; vmov.8 d0[3], r1; vmov.u16 r1, d0[1];
         vcvt.s32.f32 q0, q1; vzip.32 q0, q1; vswp d0, d1; vqdmulh.s16 q0, q1, q2; vpadd.i32 d0, d1, d2;
         vld1.32 {d0, d1}, [r0]!; vld4.8 {d0, d2, d4, d6}, [r0]; vst1.8 {d0[3]}, [r1]; vld2.16 {d0[], d1[]}, [r2]",
        [28, 0, 0, 0, 0, 0, 0, 0, 0],
    ),
    (
        "vadd.f32 s0, s1, s31; vmul.f64 d0, d1, d15; vmla.f32 s0, s1, s2; vdiv.f64 d0, d1, d2; vsqrt.f32 s0, s1;
         vmov.f64 d0, d1; vmov.f32 s0, #1.0; vcmp.f64 d0, #0.0; vcvt.f64.f32 d0, s1; vcvt.s32.f64 s0, d1;
         vmov s0, r1; vmov r1, r2, d3; vmov.32 d0[1], r2; vmrs APSR_nzcv, fpscr; vldr d0, [r1, #8];
         vstr s1, [r2]; vpush {d8-d15}; vldmia r0!, {s0-s3}; vpop {d8}",
        [0, 19, 0, 0, 0, 0, 0, 0, 0],
    ),
    (
        "vadd.i32 q8, q1, q2; veor d0, d1, d31; vtbl.8 d0, {d15, d16}, d3; vld1.32 {d14-d17}, [r0];
         vmov.i32 d20, #1",
        [5, 0, 5, 0, 0, 0, 0, 0, 0],
    ),
    (
        "vadd.f64 d16, d1, d2; vldr d17, [r1]; vmov r1, r2, d18; vpush {d14-d17}; vcvt.f64.f32 d19, s1;
         vcvt.f32.f64 s0, d20; vmov.32 d21[0], r1",
        [0, 7, 7, 0, 0, 0, 0, 0, 0],
    ),
    ("vfma.f32 q0, q1, q2; vfms.f32 d0, d1, d2", [2, 0, 0, 2, 0, 0, 0, 0, 0]),
    ("vfma.f32 s0, s1, s2; vfnms.f64 d0, d1, d2", [0, 2, 0, 2, 0, 0, 0, 0, 0]),
    ("sdiv r0, r1, r2; udiv r8, r9, r10", [0, 0, 0, 0, 2, 0, 0, 0, 0]),
    (
        "aese.8 q0, q1; aesd.8 q2, q3; aesmc.8 q0, q0; aesimc.8 q0, q15; vmull.p64 q0, d1, d2;
         sha1c.32 q0, q1, q2; sha1h.32 q0, q1; sha1su1.32 q0, q1; sha256h.32 q0, q1, q2; sha256su0.32 q0, q1",
        [0, 0, 1, 0, 0, 4, 1, 5, 0],
    ),
    (
        "ldrex r0, [r1]; strex r0, r2, [r1]; ldrexd r0, r1, [r4]; strexb r0, r2, [r1]; ldaex r0, [r1];
         stlexh r0, r2, [r1]; lda r0, [r1]; stl r0, [r1]",
        [0, 0, 0, 0, 0, 0, 0, 0, 6],
    ),
];

fn classes(counts: &Counts) -> [u64; 9] {
    let Counts {
        neon,
        vfp,
        d16_up,
        fma,
        divide,
        aes,
        pmull,
        sha,
        exclusive,
        ..
    } = *counts;
    [neon, vfp, d16_up, fma, divide, aes, pmull, sha, exclusive]
}

#[test]
fn instructions_of_arm_are_of_their_classes_in_both_sets() {
    let bench = Bench::new();
    for (instructions, expected) in ARM_TABLE {
        for set in [".arm", ".thumb"] {
            let count = instructions.split(';').count() as u64;
            let text = format!(
                ".syntax unified\n{set}\n{}\n",
                instructions.replace(';', "\n")
            );
            let source = bench.source("one.s", &text);
            let object = bench.build(
                ARM,
                "-c -march=armv8-a -mfpu=crypto-neon-fp-armv8",
                &[&source],
            );
            let counts = facts(&object).counts;
            assert_eq!(classes(&counts), expected, "{set} {instructions}");
            assert_eq!(counts.instructions, count, "{set} {instructions}");
        }
    }
}

/// The same table for A64, without a count of D16 and up.
const A64_TABLE: [(&str, [u64; 9], u64); 6] = [
    (
        "add v0.4s, v1.4s, v2.4s; eor v0.16b, v1.16b, v2.16b; movi v0.2d, #0; ext v0.16b, v1.16b, v2.16b, #4;
         ld1 {v0.4s}, [x0], #16; st4 {v0.8b-v3.8b}, [x0]; ld1r {v0.4s}, [x0]; ldr q0, [x0]; stp q0, q1, [sp, #32];
         dup v0.4s, w0; umov w0, v1.b[3]; tbl v0.16b, {v1.16b}, v2.16b; pmull v0.8h, v1.8b, v2.8b; eor3 v0.16b, v1.16b, v2.16b, v3.16b",
        [14, 0, 0, 0, 0, 0, 0, 0, 0],
        0,
    ),
    (
        "fadd s0, s1, s2; fmul d0, d1, d2; fcmp d0, #0.0; fcvt d0, s1; scvtf d0, x1; fcvtzs w0, s1; fmov x0, d1;
         fmov d0, #1.0; ldr d0, [x0]; stp d8, d9, [sp, #16]; str s0, [x1, x2]; fcsel d0, d1, d2, eq; fmov x0, v1.d[1]",
        [0, 13, 0, 0, 0, 0, 0, 0, 0],
        0,
    ),
    ("fmadd d0, d1, d2, d3; fnmsub s0, s1, s2, s3", [0, 2, 0, 2, 0, 0, 0, 0, 0], 0),
    ("fmla v0.4s, v1.4s, v2.4s; fmls v0.2d, v1.2d, v2.d[1]", [2, 0, 0, 2, 0, 0, 0, 0, 0], 0),
    (
        "aese v0.16b, v1.16b; aesimc v0.16b, v31.16b; pmull v0.1q, v1.1d, v2.1d; pmull2 v0.1q, v1.2d, v2.2d;
         sha1c q0, s1, v2.4s; sha256h2 q0, q1, v2.4s; sha256su0 v0.4s, v1.4s; sha512h q0, q1, v2.2d; sha512su0 v0.2d, v1.2d",
        [0, 0, 0, 0, 0, 2, 2, 5, 0],
        0,
    ),
    (
        "ldadd w0, w1, [x2]; ldseta x0, x1, [x2]; swpalb w0, w1, [x2]; cas x0, x1, [x2]; caspal x0, x1, x2, x3, [x4];
         stumax w0, [x1]; ldxr x0, [x1]; stlxrb w0, w1, [x2]; ldaxp x0, x1, [x2]; ldar x0, [x1]; stlr w0, [x1];
         ldapr x0, [x1]; sdiv x0, x1, x2; udiv w0, w1, w2; add x0, x0, x1; ldr x0, [x1]",
        [0, 0, 0, 0, 2, 0, 0, 0, 3],
        6,
    ),
];

#[test]
fn instructions_of_aarch64_are_of_their_classes() {
    let bench = Bench::new();
    for (instructions, expected, lse) in A64_TABLE {
        let source = bench.source("one.s", &format!("{}\n", instructions.replace(';', "\n")));
        let flags = "-c -march=armv8.4-a+crypto+sha3+rcpc";
        let counts = facts(&bench.build(A64, flags, &[&source])).counts;
        assert_eq!(classes(&counts), expected, "{instructions}");
        assert_eq!(counts.lse, lse, "{instructions}");
        assert_eq!(
            counts.instructions,
            instructions.split(';').count() as u64,
            "{instructions}"
        );
    }
}

/// Literal pools whose constants look like NEON and division.
#[test]
fn pools_of_constants_are_no_instructions() {
    let bench = Bench::new();
    // Constants that look like instructions: A32's `veor q0, q1, q2`, and halves of T32's; A32's `sdiv`; A64's `add
    // v0.4s, v1.4s, v2.4s`.
    let arm = "ldr r0, =0xf3020154\nldr r1, =0xe710f211\nldr r2, =0x0154ff02\nvldr d0, one\nbx lr\n.ltorg\n\
               .balign 8\none: .word 0xf3020154, 0xf3020154\n";
    for set in [".arm", ".thumb"] {
        let text = format!(
            ".syntax unified\n.fpu vfpv3-d16\n.text\n{set}\n.global f\n.type f, %function\nf:\n{}.size f, .-f\n",
            arm.repeat(20)
                .replace("one", "1")
                .replace("d0, 1", "d0, 1f")
        );
        let source = bench.source("pool.s", &text);
        let whole = bench.build(ARM, "-shared -nostdlib -march=armv7-a", &[&source]);
        for bytes in [
            bench.strip("arm-linux-gnueabihf-strip", &whole),
            without_sections(&whole, true),
            whole,
        ] {
            let counts = facts(&bytes).counts;
            assert_eq!(
                (counts.neon, counts.divide, counts.vfp),
                (0, 0, 20),
                "{set} {counts:?}"
            );
        }
    }
    let a64 = "ldr w0, =0x4ea28420\nldr x1, =0x4ea284204ea28420\nret\n.ltorg\n".repeat(40);
    let source = bench.source(
        "pool.s",
        &format!(".text\n.global f\n.type f, %function\nf:\n{a64}.size f, .-f\n"),
    );
    let whole = bench.build(A64, "-shared -nostdlib", &[&source]);
    for bytes in [bench.strip("aarch64-linux-gnu-strip", &whole), whole] {
        assert_eq!(facts(&bytes).counts.neon, 0);
    }
}

/// OpenSSL passes its newer instructions to the assembler as bytes, which mapping symbols mark as data.
#[test]
fn instructions_given_as_bytes_are_found() {
    let bench = Bench::new();
    // `aese.8 q0, q8` eight times, in both sets.
    for (set, bytes) in [
        (".arm", "0x20,0x03,0xb0,0xf3"),
        (".thumb", "0xb0,0xff,0x20,0x03"),
    ] {
        let line = format!("vadd.i32 q0, q1, q2\n.byte {bytes}\n");
        let text = format!(
            ".syntax unified\n.fpu neon\n.text\n{set}\n.global f\n.type f, %function\nf:\n{}bx lr\n.size f, .-f\n",
            line.repeat(80)
        );
        let source = bench.source("bytes.s", &text);
        let whole = bench.build(ARM, "-shared -nostdlib -march=armv7-a", &[&source]);
        for bytes in [bench.strip("arm-linux-gnueabihf-strip", &whole), whole] {
            let counts = facts(&bytes).counts;
            assert_eq!((counts.aes, counts.neon), (80, 80), "{set}");
        }
    }
}

/// Tables of ciphers lie between functions; without symbols nothing marks them as data.
#[test]
fn random_bytes_are_no_instructions() {
    let bench = Bench::new();
    let mut state = 1_u64;
    let mut word = || {
        // Knuth's constants; the upper half is random enough.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let words: Vec<String> = (0..50_000)
        .map(|_| format!(".word {:#x}\n", word()))
        .collect();
    let source = bench.source("random.s", &format!(".text\n{}", words.concat()));
    for (compiler, strip) in [
        (ARM, "arm-linux-gnueabihf-strip"),
        (A64, "aarch64-linux-gnu-strip"),
    ] {
        let whole = bench.build(compiler, "-shared -nostdlib", &[&source]);
        let stripped = bench.strip(strip, &whole);
        for bytes in [without_sections(&stripped, true), stripped] {
            let facts = facts(&bytes);
            assert!(facts.text >= 200_000);
            assert!(
                facts.counts.instructions < 500,
                "{compiler}: {:?}",
                facts.counts
            );
        }
    }
}

/// Facts that show who built the code: ARMv8 instructions, and the D registers used in functions without NEON.
#[test]
fn instructions_of_v8_and_double_precision_are_counted_apart() {
    let bench = Bench::new();
    let flags = "-shared -nostdlib -march=armv8-a -mfpu=crypto-neon-fp-armv8";
    for set in [".arm", ".thumb"] {
        let text = format!(
            ".syntax unified\n{set}\n.macro function name\n.global \\name\n.type \\name, %function\n\\name:\n.endm\n\
             function new\nldaex r0, [r1]\nstlexh r0, r2, [r1]\nlda r0, [r1]\nstlb r0, [r1]\nvseleq.f32 s0, s1, s2\n\
             vrinta.f32 s0, s1\nvmaxnm.f64 d0, d1, d2\nvcvtm.s32.f64 s0, d17\nbx lr\n.size new, .-new\n\
             function old\nldrex r0, [r1]\nstrexb r0, r2, [r1]\nvadd.f32 s0, s1, s2\nvpush {{d8-d15}}\n\
             vadd.f64 d0, d1, d2\nvldr d16, [r0]\nvmov r1, r2, d3\nvcvt.f64.s32 d4, s1\nbx lr\n.size old, .-old\n\
             function both\nvadd.f64 d20, d21, d22\nvadd.i32 q0, q1, q2\nbx lr\n.size both, .-both\n"
        );
        let source = bench.source("one.s", &text);
        let whole = bench.build(ARM, flags, &[&source]);
        for bytes in [bench.strip("arm-linux-gnueabihf-strip", &whole), whole] {
            let facts = facts(&bytes);
            assert_eq!(facts.counts.v8, 8, "{set}: {:?}", facts.counts);
            assert_eq!(facts.counts.exclusive, 4, "{set}");
            let spread = &facts.neon;
            assert_eq!((spread.with_neon, spread.all), (1, 3), "{set}: {spread:?}");
            // Two in `new`, four in `old`; instructions in functions with NEON do not count.
            assert_eq!(
                (spread.doubles_elsewhere, spread.high_elsewhere),
                (6, 2),
                "{set}: {spread:?}"
            );
        }
    }
}
