//! Files built with rustc. The standard library for ARM is not installed where the tests run, so the fixture defines
//! the few language items that it needs.

use std::process::Command;

use audit::soc::{Isa, Soc, Table, Vfp};

use super::{finding, words};
use crate::compile::{Bench, without_sections};

const SOURCE: &str = r#"
#![feature(no_core, lang_items, intrinsics, rustc_attrs, auto_traits)]
#![allow(internal_features, dead_code)]
#![no_core]
#[lang = "pointee_sized"] trait PointeeSized {}
#[lang = "meta_sized"] trait MetaSized: PointeeSized {}
#[lang = "sized"] trait Sized: MetaSized {}
#[lang = "freeze"] unsafe auto trait Freeze {}
#[lang = "copy"] trait Copy {}
impl Copy for f64 {}
impl Copy for i32 {}
impl<T: Copy, const N: usize> Copy for [T; N] {}
#[lang = "mul"] trait Mul<R = Self> { type Output; fn mul(self, r: R) -> Self::Output; }
impl Mul for f64 { type Output = f64; fn mul(self, r: f64) -> f64 { self * r } }
#[rustc_intrinsic] unsafe fn unchecked_div<T: Copy>(x: T, y: T) -> T;
#[no_mangle] pub extern "C" fn half(a: f64) -> f64 { a * 0.5 }
#[no_mangle] pub unsafe extern "C" fn ratio(a: i32, b: i32) -> i32 { unsafe { unchecked_div(a, b) } }
#[no_mangle] pub unsafe extern "C" fn copy(o: *mut [i32; 16], p: *const [i32; 16]) { unsafe { *o = *p } }
"#;

/// Builds a library from the fixture, linked with GCC; `None` if this rustc requires other language items.
fn build(bench: &Bench, target: &str, options: &str) -> Option<Vec<u8>> {
    let source = bench.source("one.rs", SOURCE);
    let object = source.with_extension("o");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .args([
            "--edition=2021",
            "--crate-type=lib",
            "--emit=obj",
            "-Copt-level=3",
            "-Crelocation-model=pic",
        ])
        .args(["--target", target])
        .args(options.split_whitespace())
        .arg("-o")
        .args([&object, &source])
        .output()
        .unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = format!("this rustc does not take the fixture: {said}");
        lab::require_that(false, &why);
        return None;
    }
    let linker = if target.starts_with("arm") {
        "arm-linux-gnueabihf"
    } else {
        "aarch64-linux-gnu"
    };
    // The object itself shows how floats are passed.
    let flags = "-shared -nostdlib -Wl,--unresolved-symbols=ignore-all";
    Some(bench.build(&format!("{linker}-gcc"), flags, &[&object]))
}

fn target(soc: &Soc) -> &'static str {
    match (soc.core.isa, soc.core.vfp) {
        (Isa::Armv8, _) => "aarch64-unknown-linux-gnu",
        (_, Vfp::None) => "armv7-unknown-linux-gnueabi",
        _ => "armv7-unknown-linux-gnueabihf",
    }
}

/// The options that the table lists for rustc cause no verdict.
#[test]
fn what_rustc_builds_with_a_chips_options_is_fine_for_it() {
    let bench = Bench::new();
    let known = |soc: &&Soc| {
        matches!(soc.core.isa, Isa::Armv7 | Isa::Armv8)
            && !soc.core.rust.is_empty()
            && soc.unsure.is_empty()
    };
    for soc in Table::builtin().socs().iter().filter(known) {
        let Some(bytes) = build(&bench, target(soc), &soc.core.rust) else {
            return;
        };
        let finding = finding("/usr/lib/libone.so", &bytes, &soc.id);
        assert_eq!(
            words(&finding),
            "fine",
            "{}, {}: {:#?}",
            soc.id,
            soc.core.rust,
            finding.evidence
        );
    }
}

#[test]
fn what_rustc_builds_for_every_arm_is_generic() {
    let bench = Bench::new();
    let Some(hard) = build(&bench, "armv7-unknown-linux-gnueabihf", "") else {
        return;
    };
    for (form, bytes) in [
        ("stripped", bench.strip("arm-linux-gnueabihf-strip", &hard)),
        ("whole", hard),
    ] {
        for (chip, expected) in [
            ("ipq4019", "no-simd software-divide too-generic"),
            ("al514", "no-simd software-divide too-generic"),
            ("armada385", "no-simd too-generic"),
            ("bcm4708", "wrong-abi"),
            ("mt7986", "32-bit-on-64 no-simd software-divide too-generic"),
        ] {
            let finding = finding("/usr/lib/libone.so", &bytes, chip);
            assert_eq!(
                words(&finding),
                expected,
                "{form}, {chip}: {:#?}",
                finding.evidence
            );
        }
    }
    let Some(soft) = build(&bench, "armv7-unknown-linux-gnueabi", "") else {
        return;
    };
    let cut = without_sections(&soft, true);
    for (form, bytes) in [("whole", soft), ("cut", cut)] {
        for (chip, expected) in [("ipq4019", "soft-float"), ("armada385", "soft-float")] {
            let finding = finding("/usr/lib/libone.so", &bytes, chip);
            assert!(
                words(&finding).contains(expected),
                "{form}, {chip}: {:#?}",
                finding.evidence
            );
        }
        let finding = finding("/usr/lib/libone.so", &bytes, "bcm4708");
        assert!(
            !words(&finding).contains("wrong-abi"),
            "{form}: {:#?}",
            finding.evidence
        );
    }
}
