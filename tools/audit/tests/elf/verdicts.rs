//! The verdicts on ELF files compiled just before with known flags: whole lists of verdicts, for chips of every kind,
//! and the same whatever was stripped. A fact that a file no longer contains is not guessed.

mod rows;
mod rust;
mod spread;

use crate::compile::{self, A64, Bench, SHARED, SOURCE, facts, zig};
use audit::judge::{Subject, judge};
use audit::role::Role;
use audit::soc::{Soc, Table};
use audit::verdict::{Finding, Verdict};

/// Returns a chip of the table.
fn chip(name: &str) -> &'static Soc {
    Table::builtin().soc(name).unwrap()
}

/// Returns the finding for a file with this name and content and this chip.
fn finding(path: &str, bytes: &[u8], name: &str) -> Finding {
    let facts = facts(bytes);
    let role = Role::of(path, &facts);
    judge(chip(name), path, "", role, &Subject::Elf(Box::new(facts)))
}

/// The verdicts as words, the most serious first.
fn words(finding: &Finding) -> String {
    let words: Vec<&str> = finding
        .verdicts
        .iter()
        .map(|verdict| verdict.word())
        .collect();
    words.join(" ")
}

/// For every chip of the table, only the machine field decides whether a file can run.
#[test]
fn a_file_for_another_machine_does_not_run() {
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    let wide = bench.build(A64, &format!("{SHARED} -O2"), &[&source]);
    for soc in Table::builtin().socs() {
        let finding = finding("/usr/lib/libone.so", &wide, &soc.id);
        let runs = finding.verdicts != [Verdict::WrongAbi];
        assert_eq!(runs, soc.core.isa == audit::soc::Isa::Armv8, "{}", soc.id);
    }
}

#[test]
fn aarch64_has_what_it_needs_but_for_atomics() {
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    for (flags, rk3568, mt7986) in [
        ("-march=armv8-a -mno-outline-atomics", "too-generic", "fine"),
        ("-march=armv8-a -moutline-atomics", "fine", "fine"),
        ("-march=armv8.2-a", "fine", "wrong-abi"),
    ] {
        let whole = bench.build(A64, &format!("{SHARED} -O3 {flags}"), &[&source]);
        let stripped = bench.strip("aarch64-linux-gnu-strip", &whole);
        let cut = compile::without_sections(&whole, true);
        for (form, bytes) in [("whole", whole), ("stripped", stripped), ("cut", cut)] {
            for (name, expected) in [("rk3568", rk3568), ("mt7986", mt7986), ("bcm2711", mt7986)] {
                let finding = finding("/usr/lib/libone.so", &bytes, name);
                assert_eq!(
                    words(&finding),
                    expected,
                    "{flags}, {form}, {name}: {:?}",
                    finding.evidence
                );
            }
        }
    }
}

#[test]
fn what_clang_builds_is_judged_alike() {
    let Some(zig) = lab::require(zig().ok_or("no zig: run `make arm`")) else {
        return;
    };
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    let flags = format!("{SHARED} -O3 -fno-sanitize=all -target");
    for (target, expected) in [
        (
            "arm-linux-musleabihf -mcpu=cortex_a15",
            [
                ("ipq8065", "fine"),
                ("al514", "fine"),
                ("armada385", "wrong-abi"),
                ("bcm4708", "wrong-abi"),
                ("mt7986", "32-bit-on-64"),
                ("bcm2711", "fine"),
            ],
        ),
        (
            "arm-linux-musleabihf -mcpu=cortex_a9",
            [
                ("ipq8065", "software-divide too-generic"),
                ("al514", "software-divide too-generic"),
                ("armada385", "fine"),
                ("bcm4708", "wrong-abi"),
                ("mt7986", "32-bit-on-64 software-divide too-generic"),
                ("bcm2711", "software-divide too-generic"),
            ],
        ),
        (
            "arm-linux-musleabi -mcpu=cortex_a9+soft_float-neon-vfp3-vfp2",
            [
                ("ipq8065", "no-simd soft-float software-divide"),
                ("al514", "no-simd soft-float software-divide"),
                ("armada385", "no-simd soft-float"),
                ("bcm4708", "fine"),
                ("mt7986", "32-bit-on-64 no-simd soft-float software-divide"),
                ("bcm2711", "no-simd soft-float software-divide"),
            ],
        ),
        (
            "aarch64-linux-musl -mcpu=cortex_a53",
            [
                ("ipq8065", "wrong-abi"),
                ("al514", "wrong-abi"),
                ("armada385", "wrong-abi"),
                ("bcm4708", "wrong-abi"),
                ("mt7986", "fine"),
                ("bcm2711", "fine"),
            ],
        ),
        (
            "mipsel-linux-musleabi -mcpu=mips32r2",
            [
                ("mt7621", "fine"),
                ("mt7628", "fine"),
                ("qca9558", "wrong-abi"),
                ("ipq8065", "wrong-abi"),
                ("mt7986", "wrong-abi"),
                ("bcm2711", "wrong-abi"),
            ],
        ),
        (
            "mips-linux-musleabi -mcpu=mips32",
            [
                ("mt7621", "wrong-abi"),
                ("mt7628", "wrong-abi"),
                ("qca9558", "too-generic"),
                ("ipq8065", "wrong-abi"),
                ("mt7986", "wrong-abi"),
                ("bcm2711", "wrong-abi"),
            ],
        ),
    ] {
        let bytes = bench.build(&zig, &format!("{flags} {target}"), &[&source]);
        for (name, expected) in expected {
            let finding = finding("/usr/lib/libone.so", &bytes, name);
            assert_eq!(
                words(&finding),
                expected,
                "{target}, {name}: {:?}",
                finding.evidence
            );
        }
    }
}
