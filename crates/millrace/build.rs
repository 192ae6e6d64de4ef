//! Link options of the program.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Packed, the addresses that the loader adjusts at each start take a hundredth of their 280 KB, which would stay
    // mapped.
    if loader_unpacks() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the program runs where it is built, with a glibc that knows `DT_RELR`: 2.36 and newer.
fn loader_unpacks() -> bool {
    let native = env::var_os("HOST") == env::var_os("TARGET");
    let gnu = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|it| it == "gnu");
    if !native || !gnu {
        return false;
    }
    let Ok(output) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else {
        return false;
    };
    let version = String::from_utf8_lossy(&output.stdout);
    let mut numbers = version
        .trim()
        .trim_start_matches("glibc ")
        .split('.')
        .map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    (next(), next()) >= (2_u32, 36_u32)
}
