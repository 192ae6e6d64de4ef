//! One file of NEON assembly in a library that was compiled without NEON, and the reverse.

use super::{finding, words};
use crate::compile::{ARM, Bench, SHARED, without_sections};

/// Double-precision code that is busy enough for a compiler to use any registers, and other code.
fn source(functions: usize) -> String {
    let mut text = String::from(
        "double mean(const double *p, int n) { double a = 0, b = 1; for (int i = 0; i < n; i++) \
         { a += p[i] * p[i]; b *= p[i] + 0.25; } return a / n + b; }\n\
         double line(double x, double y) { return (x - 3.5) * (y + 7.25) + x * 1.75 - y; }\n\
         void mix(unsigned *restrict o, const unsigned *restrict p) { for (int i = 0; i < 64; i++) o[i] ^= p[i]; }\n",
    );
    for n in 0..functions {
        text += &format!(
            "unsigned hash{n}(unsigned x) {{ return (x >> {} ^ x) * {}u; }}\n",
            n % 13 + 1,
            n * 77 + 3
        );
    }
    text
}

const ASSEMBLY: &str = ".fpu neon\n.text\n.arm\n.global mix_neon\n.type mix_neon, %function\nmix_neon:\n\
     vld1.32 {q0}, [r0]\nvld1.32 {q1}, [r1]\nvld1.32 {q8}, [r1]\nvld1.32 {q9}, [r1]\nveor q0, q0, q8\n\
     veor q0, q0, q9\nvadd.i32 q0, q0, q1\nvadd.i32 q0, q0, q8\nvadd.i32 q0, q0, q9\nvst1.32 {q0}, [r0]\nbx lr\n\
     .size mix_neon, .-mix_neon\n";

/// On a Cortex-A9 all other facts of these two files are the same: the architecture, the registers, the attributes.
#[test]
fn assembly_in_a_library_for_sixteen_registers_is_no_pass_and_a_library_for_neon_is_no_fault() {
    let bench = Bench::new();
    let assembly = bench.source("mix.s", ASSEMBLY);
    for functions in [4, 40] {
        let source = bench.source("one.c", &source(functions));
        for set in ["-marm", "-mthumb"] {
            for level in ["-Os", "-O2", "-O3"] {
                let flags = format!("{SHARED} {level} -mcpu=cortex-a9 -mfloat-abi=hard {set}");
                let poor = bench.build(
                    ARM,
                    &format!("{flags} -mfpu=vfpv3-d16"),
                    &[&source, &assembly],
                );
                let good = bench.build(ARM, &format!("{flags} -mfpu=neon"), &[&source, &assembly]);
                for (whole, expected) in [(poor, "no-simd"), (good, "fine")] {
                    let stripped = bench.strip("arm-linux-gnueabihf-strip", &whole);
                    let headless = without_sections(&stripped, false);
                    for (form, bytes) in [
                        ("whole", whole),
                        ("stripped", stripped),
                        ("headless", headless),
                    ] {
                        let finding = finding("/usr/lib/libone.so", &bytes, "armada385");
                        let of = format!("{flags}, {functions}, {form}: {:#?}", finding.evidence);
                        assert_eq!(words(&finding), expected, "{of}");
                        let named = finding.evidence.iter().any(|why| why.contains("mix_neon"));
                        assert_eq!(named, expected == "no-simd", "{of}");
                    }
                }
            }
        }
    }
}

/// Without double-precision code nothing distinguishes the two files, so no verdict is given.
#[test]
fn a_library_of_few_integers_with_neon_in_one_place_is_not_judged() {
    let bench = Bench::new();
    let assembly = bench.source("mix.s", ASSEMBLY);
    let source = bench.source(
        "one.c",
        "unsigned f(unsigned x) { return x * 3; }\nunsigned g(unsigned x) { return x ^ 9; }\n",
    );
    for fpu in ["vfpv3-d16", "neon"] {
        let flags = format!("{SHARED} -O2 -mcpu=cortex-a9 -mfloat-abi=hard -mfpu={fpu}");
        let bytes = bench.build(ARM, &flags, &[&source, &assembly]);
        let finding = finding("/usr/lib/libone.so", &bytes, "armada385");
        assert_eq!(words(&finding), "cannot-tell", "{:#?}", finding.evidence);
        assert!(
            finding.evidence[0].contains("too few places"),
            "{:#?}",
            finding.evidence
        );
    }
}

/// On a chip without NEON, assembly that is selected at run time is no fault; NEON from a compiler is.
#[test]
fn neon_on_a_chip_without_is_a_fault_where_the_compiler_made_it() {
    let bench = Bench::new();
    let assembly = bench.source("mix.s", ASSEMBLY);
    let source = bench.source("one.c", &source(30));
    for (fpu, expected) in [("vfpv3-d16", "fine"), ("neon", "wrong-abi")] {
        let flags = format!("{SHARED} -O3 -mcpu=cortex-a9 -mfloat-abi=hard -mfpu={fpu}");
        let bytes = bench.build(ARM, &flags, &[&source, &assembly]);
        let finding = finding("/usr/lib/libone.so", &bytes, "armada370");
        assert_eq!(words(&finding), expected, "{fpu}: {:#?}", finding.evidence);
    }
}

/// Compiled NEON code of ciphers written in C does not count as assembly.
#[test]
fn ciphers_in_c_are_no_assembly_however_much_neon_they_have() {
    let bench = Bench::new();
    let mut text = String::new();
    for n in 0..30 {
        text += &format!(
            "void mix{n}(unsigned *restrict o, const unsigned *restrict p) \
             {{ for (int i = 0; i < 64; i++) o[i] = (o[i] ^ p[i]) + (p[i] << {}); }}\n",
            n % 30 + 1
        );
    }
    let source = bench.source("one.c", &text);
    let flags = format!("{SHARED} -O3 -mcpu=cortex-a7 -mfloat-abi=hard -mfpu=neon-vfpv4");
    let bytes = bench.build(ARM, &flags, &[&source]);
    assert!(crate::facts(&bytes).counts.neon > 300);
    for (path, expected) in [
        ("/usr/lib/libone.so", "fine"),
        ("/usr/lib/libcrypto.so.3", "no-asm-crypto"),
        ("/usr/lib/libmbedcrypto.so.7", "cannot-tell"),
    ] {
        let finding = finding(path, &bytes, "ipq4019");
        assert_eq!(words(&finding), expected, "{path}: {:#?}", finding.evidence);
    }
}
