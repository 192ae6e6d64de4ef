//! Compiles the batch routines in C and assembly for ARM.
//!
//! On other targets the script compiles nothing, so this crate needs no C compiler and `cfg(neon)` is not set. The same
//! holds for ARM without a floating-point unit: such chips have no NEON, and clang refuses code that uses it.
//!
//! On 32-bit ARM the program's baseline has no NEON. Only the files compiled here may use it, and they are called only
//! after the kernel has said that the CPU has it.

use std::path::PathBuf;
use std::{env, fs};

/// Directory of the routines.
const SOURCES: &str = "src/neon";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(neon)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SOURCES}");

    let variable = |name| env::var(name).unwrap_or_default();
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let little = variable("CARGO_CFG_TARGET_ENDIAN") == "little";
    let hard = variable("CARGO_CFG_TARGET_ABI") == "eabihf";
    if !little || !(arch == "aarch64" || arch == "arm" && hard) {
        return;
    }
    println!("cargo::rustc-cfg=neon");

    let sources = sources();
    if sources.is_empty() {
        return;
    }
    let mut build = cc::Build::new();
    // The code is compiled alike in every profile: the code that is measured and tested is the code that ships.
    build
        .files(sources)
        .opt_level(2)
        .force_frame_pointer(false)
        .std("gnu11")
        .flag("-fno-strict-aliasing");
    if arch == "arm" {
        if build.get_compiler().is_like_clang() {
            // These flags follow any `-mcpu` that a wrapper sets: zig does not know `-mfpu`.
            for flag in ["-target-feature", "+neon"] {
                build.flag("-Xclang").flag(flag);
            }
        } else {
            build
                .flag("-march=armv7-a")
                .flag("-mfpu=neon")
                .flag("-mfloat-abi=hard");
        }
    }
    // In static programs these routines replace the C library's. Other C libraries choose their own for each CPU.
    if arch == "arm" && variable("CARGO_CFG_TARGET_ENV") == "musl" {
        build.define("MILLRACE_REPLACES_MEMORY", None);
    }
    build.compile("millrace_neon");
}

/// Every C and assembly file, in an order that does not depend on the file system.
fn sources() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(SOURCES) else {
        return Vec::new();
    };
    let mut sources: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "c" || extension == "S")
        })
        .collect();
    sources.sort();
    sources
}
