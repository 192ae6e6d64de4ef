//! Every row of flags that vendors use, and the rows with correct flags.

use super::{finding, words};
use crate::compile::{ARM, Bench, SHARED, SOURCE, without_sections};

/// The chips of the columns.
const CHIPS: [&str; 10] = [
    "ipq8065",
    "ipq4019",
    "al514",
    "bcm4708",
    "armada370",
    "armada385",
    "mt7986",
    "bcm2711",
    "mt7621",
    "88f6281",
];

/// Flags, and the verdicts of a file that has its attributes. Krait, Cortex-A7 and Cortex-A15 are one column.
struct Row {
    flags: &'static str,
    tuned: &'static str,
    bcm4708: &'static str,
    armada370: &'static str,
    armada385: &'static str,
    mt7986: &'static str,
    bcm2711: &'static str,
    kirkwood: &'static str,
}

const ROWS: [Row; 11] = [
    Row {
        flags: "-march=armv5te -marm -mfloat-abi=soft",
        tuned: "no-simd soft-float software-divide too-generic",
        bcm4708: "too-generic",
        armada370: "soft-float too-generic",
        armada385: "no-simd soft-float too-generic",
        mt7986: "32-bit-on-64 no-simd soft-float software-divide too-generic",
        bcm2711: "no-simd soft-float software-divide too-generic",
        kirkwood: "fine",
    },
    Row {
        flags: "-march=armv7-a -mfloat-abi=soft",
        tuned: "no-simd soft-float software-divide too-generic",
        bcm4708: "too-generic",
        armada370: "soft-float too-generic",
        armada385: "no-simd soft-float too-generic",
        mt7986: "32-bit-on-64 no-simd soft-float software-divide too-generic",
        bcm2711: "no-simd soft-float software-divide too-generic",
        kirkwood: "wrong-abi",
    },
    Row {
        flags: "-mcpu=cortex-a9 -mfloat-abi=soft",
        tuned: "no-simd soft-float software-divide",
        bcm4708: "fine",
        armada370: "soft-float",
        armada385: "no-simd soft-float",
        mt7986: "32-bit-on-64 no-simd soft-float software-divide",
        bcm2711: "no-simd soft-float software-divide",
        kirkwood: "wrong-abi",
    },
    Row {
        flags: "-mcpu=cortex-a9 -mfloat-abi=softfp -mfpu=vfpv3-d16",
        tuned: "no-simd software-divide too-generic",
        bcm4708: "wrong-abi",
        armada370: "fine",
        armada385: "no-simd too-generic",
        mt7986: "32-bit-on-64 no-simd software-divide too-generic",
        bcm2711: "no-simd software-divide too-generic",
        kirkwood: "wrong-abi",
    },
    Row {
        flags: "-march=armv7-a -mfloat-abi=hard -mfpu=vfpv3-d16",
        tuned: "no-simd software-divide too-generic",
        bcm4708: "wrong-abi",
        armada370: "too-generic",
        armada385: "no-simd too-generic",
        mt7986: "32-bit-on-64 no-simd software-divide too-generic",
        bcm2711: "no-simd software-divide too-generic",
        kirkwood: "wrong-abi",
    },
    Row {
        flags: "-mcpu=cortex-a9 -mfloat-abi=hard -mfpu=neon",
        tuned: "software-divide too-generic",
        bcm4708: "wrong-abi",
        armada370: "wrong-abi",
        armada385: "fine",
        mt7986: "32-bit-on-64 software-divide too-generic",
        bcm2711: "software-divide too-generic",
        kirkwood: "wrong-abi",
    },
    Row {
        flags: "-mcpu=cortex-a15 -mfloat-abi=hard -mfpu=neon-vfpv4",
        ..FULL
    },
    Row {
        flags: "-mcpu=cortex-a7 -mfloat-abi=hard -mfpu=neon-vfpv4",
        ..FULL
    },
    Row {
        flags: "-mcpu=cortex-a15 -mfloat-abi=softfp -mfpu=neon-vfpv4",
        ..FULL
    },
    // Flags of ARMv8 routers with a userland of 32 bits.
    Row {
        flags: "-mcpu=cortex-a7 -mfloat-abi=softfp -mfpu=vfpv3-d16",
        tuned: "no-simd too-generic",
        bcm4708: "wrong-abi",
        armada370: "wrong-abi",
        armada385: "wrong-abi",
        mt7986: "32-bit-on-64 no-simd too-generic",
        bcm2711: "no-simd too-generic",
        kirkwood: "wrong-abi",
    },
    Row {
        flags: "-mcpu=cortex-a53 -mfloat-abi=hard -mfpu=crypto-neon-fp-armv8",
        tuned: "wrong-abi",
        ..FULL
    },
];

const FULL: Row = Row {
    flags: "",
    tuned: "fine",
    bcm4708: "wrong-abi",
    armada370: "wrong-abi",
    armada385: "wrong-abi",
    mt7986: "32-bit-on-64",
    bcm2711: "fine",
    kirkwood: "wrong-abi",
};

impl Row {
    fn expected(&self, chip: &str) -> &'static str {
        match chip {
            "bcm4708" => self.bcm4708,
            "armada370" => self.armada370,
            "armada385" => self.armada385,
            "mt7986" => self.mt7986,
            "bcm2711" => self.bcm2711,
            "88f6281" => self.kirkwood,
            "mt7621" => "wrong-abi",
            _ => self.tuned,
        }
    }
}

#[test]
fn every_row_of_flags_is_judged_right_for_every_chip() {
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    for row in &ROWS {
        for set in ["-marm", "-mthumb"] {
            if row.flags.contains("-marm") && set == "-mthumb" {
                continue;
            }
            let flags = format!("{SHARED} -O3 {} {set}", row.flags);
            let whole = bench.build(ARM, &flags, &[&source]);
            let stripped = bench.strip("arm-linux-gnueabihf-strip", &whole);
            let headless = without_sections(&stripped, false);
            for (form, bytes) in [
                ("whole", whole),
                ("stripped", stripped),
                ("headless", headless),
            ] {
                for chip in CHIPS {
                    let finding = finding("/usr/lib/libone.so", &bytes, chip);
                    let (said, expected) = (words(&finding), row.expected(chip));
                    assert_eq!(
                        said, expected,
                        "{flags}, {form}, {chip}: {:#?}",
                        finding.evidence
                    );
                }
            }
        }
    }
}

/// Without attributes there are instructions, imports and `e_flags`. A fact that they do not show is reported as
/// unknown; a faulty file is never reported as fine, nor a fine one as faulty.
#[test]
fn what_lost_its_attributes_is_judged_right_or_not_at_all() {
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    let (mut judged, mut unknown) = (0, 0);
    for row in &ROWS {
        let flags = format!("{SHARED} -O3 {}", row.flags);
        let cut = without_sections(&bench.build(ARM, &flags, &[&source]), true);
        for chip in CHIPS {
            let finding = finding("/usr/lib/libone.so", &cut, chip);
            let (said, expected) = (words(&finding), row.expected(chip));
            let of = format!("{flags}, {chip}: {said}, {:#?}", finding.evidence);
            if said == "cannot-tell" {
                assert!(
                    finding
                        .evidence
                        .iter()
                        .any(|why| why.starts_with("cannot tell: ")),
                    "{of}"
                );
                unknown += 1;
                continue;
            }
            judged += 1;
            let expected: Vec<&str> = expected.split(' ').collect();
            if said == "fine" {
                // -march=armv7-a leaves no trace but the attribute.
                assert!(matches!(expected[..], ["fine"] | ["too-generic"]), "{of}");
                assert!(
                    finding
                        .evidence
                        .iter()
                        .any(|why| why.contains("instructions only")),
                    "{of}"
                );
            } else {
                assert!(said.split(' ').all(|word| expected.contains(&word)), "{of}");
                assert_eq!(
                    said.contains("wrong-abi"),
                    expected == ["wrong-abi"],
                    "{of}"
                );
            }
        }
    }
    // Most of the questions about these files can be answered.
    assert!(judged > 2 * unknown, "{judged} judged, {unknown} not");
}

#[test]
fn programs_objects_and_modules_are_judged_by_what_they_are() {
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    // Division in the C library: where the compiler calls a division function, a statically linked program contains it.
    let start = bench.source(
        "start.c",
        "extern int add(int *); static int x; void _start(void) { add(&x); }\n\
         #ifndef __ARM_FEATURE_IDIV\nint __aeabi_idiv(int a, int b) { return a - b; }\n#endif\n",
    );
    let alone = "-O3 -nostdlib -ffreestanding -Wl,--unresolved-symbols=ignore-all";
    for (flags, expected) in [
        (
            "-march=armv7-a -mfloat-abi=hard -mfpu=vfpv3-d16",
            "no-simd software-divide too-generic",
        ),
        ("-mcpu=cortex-a15 -mfloat-abi=hard -mfpu=neon-vfpv4", "fine"),
    ] {
        let program = bench.build(ARM, &format!("{alone} {flags} -static"), &[&source, &start]);
        let pie = bench.build(
            ARM,
            &format!("{alone} {flags} -static-pie -fPIE -Wl,--no-dynamic-linker"),
            &[&source, &start],
        );
        let object = bench.build(ARM, &format!("-c -O3 {flags}"), &[&source]);
        for (form, bytes) in [("program", program), ("pie", pie), ("object", object)] {
            let finding = finding("/usr/sbin/one", &bytes, "ipq8065");
            assert_eq!(
                words(&finding),
                expected,
                "{flags}, {form}: {:#?}",
                finding.evidence
            );
        }
    }
}

/// Kernels are built without floating point, whatever the chip has.
#[test]
fn kernel_modules_are_judged_by_their_version_and_their_optimisation() {
    let bench = Bench::new();
    let info = |magic: &str, name: &str| {
        format!(
            "__attribute__((section(\".modinfo\"), used)) static const char info[] =
            \"name={name}\\0vermagic=5.4.213 SMP mod_unload {magic} p2v8 \";
            void kernel_neon_begin(void); void work(void) {{ kernel_neon_begin(); }}"
        )
    };
    let build = |magic: &str, name: &str, flags: &str| {
        let source = bench.source("module.c", &info(magic, name));
        let object = bench.build(ARM, &format!("-c -mfloat-abi=soft {flags}"), &[&source]);
        [
            bench.strip("arm-linux-gnueabihf-strip --strip-debug", &object),
            object,
        ]
    };
    for (magic, name, flags, verdicts) in [
        (
            "ARMv7",
            "chacha_neon",
            "-O2 -march=armv7-a",
            [("ipq8065", "fine"), ("bcm4708", "fine")],
        ),
        (
            "ARMv7",
            "chacha_neon",
            "-Os -march=armv7-a",
            [("ipq8065", "size-optimised"), ("bcm4708", "size-optimised")],
        ),
        // No packets pass through this file.
        (
            "ARMv7",
            "usbcore",
            "-Os -march=armv7-a",
            [("ipq8065", "fine"), ("mt7986", "32-bit-on-64")],
        ),
        (
            "ARMv5",
            "wireguard",
            "-O2 -march=armv5te",
            [("ipq8065", "wrong-abi"), ("88f6281", "fine")],
        ),
        (
            "ARMv7",
            "wireguard",
            "-O2 -march=armv7-a",
            [("88f6281", "wrong-abi"), ("mt7621", "wrong-abi")],
        ),
    ] {
        for bytes in build(magic, name, flags) {
            for (chip, expected) in verdicts {
                let finding = finding(&format!("/lib/modules/5.4.213/{name}.ko"), &bytes, chip);
                assert_eq!(
                    words(&finding),
                    expected,
                    "{name}, {flags}, {chip}: {:#?}",
                    finding.evidence
                );
            }
        }
    }
}
