//! Tests of the built-in table, its search, and its options against the compilers.

use std::process::{Command, Stdio};

use super::*;
use crate::soc::Isa;

fn table() -> Table {
    Table::parse(BUILTIN).unwrap()
}

#[test]
fn the_table_that_comes_with_the_program_is_complete() {
    assert!(table().socs().len() >= 44);
    assert_eq!(Table::builtin().socs(), table().socs());
}

#[test]
fn chips_are_found_by_any_of_their_names() {
    let table = table();
    for name in ["ipq8065", "IPQ-8065", "Qualcomm IPQ8065", " ipq 8065 "] {
        assert_eq!(table.soc(name).unwrap().id, "ipq8065", "{name}");
    }
    for id in [
        "ipq8065", "ipq4019", "al514", "bcm4708", "mt7986", "bcm2711",
    ] {
        assert_eq!(table.soc(id).unwrap().id, id);
    }
    assert_eq!(table.soc("MT7986A").unwrap().id, "mt7986");
    assert!(table.soc("").is_none());
    assert!(table.soc("z80").is_none());
}

#[test]
fn routers_are_found_with_and_without_their_makers() {
    let by_end = Table::builtin().router("MT6000").map(|soc| soc.id.as_str());
    assert_eq!(by_end, Ok("mt7986"));
    assert_eq!(
        Table::builtin().router("RBK50").map(|soc| soc.id.as_str()),
        Ok("ipq4019")
    );

    let table = table();
    for name in ["NETGEAR R7800", "r7800", "netgear-r7800"] {
        assert_eq!(table.router(name).unwrap().id, "ipq8065", "{name}");
    }
    assert_eq!(table.router("GL-MT6000").unwrap().id, "mt7986");
    assert_eq!(table.router("RBR50").unwrap().id, "ipq4019");
}

#[test]
fn unknown_chips_give_names_that_are_near() {
    let table = Table::builtin();
    let near = table.near_socs("ipq8066");
    assert!(near.contains(&"ipq8065"), "{near:?}");
    assert!(table.near_socs("mt76").len() <= NEAR);
    assert!(table.near_socs("").is_empty());
    assert!(table.near_socs("a chip that was never made").is_empty());
}

#[test]
fn unknown_routers_give_names_that_are_near() {
    let table = table();
    let near = table.router("R7801").unwrap_err();
    assert!(near.contains(&"NETGEAR R7800"), "{near:?}");
    assert!(near.len() <= NEAR);
    let near = table.router("Archer C7").unwrap_err();
    assert!(
        near[..3].iter().all(|name| name.contains("Archer C7")),
        "{near:?}"
    );
    assert!(table.router("").unwrap_err().is_empty());
    assert!(
        table
            .router("a router that was never built")
            .unwrap_err()
            .is_empty()
    );
}

#[test]
fn distances_are_those_of_levenshtein() {
    assert_eq!(distance("kitten", "sitting"), 3);
    assert_eq!(distance("", "abc"), 3);
    assert_eq!(distance("r7800", "r7800"), 0);
}

#[test]
fn tables_with_gaps_are_refused() {
    let broken = |from: &str, to: &str| {
        assert!(BUILTIN.contains(from), "{from}");
        Table::parse(&BUILTIN.replacen(from, to, 1))
            .unwrap_err()
            .to_string()
    };
    assert!(broken("\nghz = [", "\nsize = [").contains("size"));
    assert!(broken("core = \"krait\"", "core = \"crate\"").contains("crate"));
    assert!(broken("id = \"ipq8065\"", "id = \"ipq8064\"").contains("another row"));
    assert!(broken("\"NETGEAR R7800\"", "\"NETGEAR R7500\"").contains("in another row"));
    assert!(
        broken("[soc.sources]\n", "[soc.sources]\nage = [\"lscpu\"]\n").contains("age is no fact")
    );
    assert!(broken("\ncores = [\"", "\nrouters = [\"").contains("duplicate key"));
}

/// The macros that a compiler defines with these options; `None` if it is not installed.
fn predefined(compiler: &str, options: &str) -> Option<String> {
    let mut command = Command::new(compiler);
    command
        .args(options.split_whitespace())
        .args(["-dM", "-E", "-x", "c", "-"])
        .stdin(Stdio::null());
    let output = command.output().ok()?;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {options}: {error}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Installed compilers must accept the options, and the result must be what the row says.
#[test]
fn compilers_take_the_options_and_use_what_the_chip_has() {
    for soc in table().socs().iter().filter(|soc| soc.core.isa.is_arm()) {
        let wide = soc.core.isa == Isa::Armv8;
        let compiler = if wide {
            "aarch64-linux-gnu-gcc"
        } else {
            "arm-linux-gnueabihf-gcc"
        };
        let Some(defined) = predefined(compiler, &soc.core.gcc) else {
            continue;
        };
        let has = |name: &str| defined.contains(&format!("#define {name} "));
        assert_eq!(has("__ARM_NEON"), soc.core.neon, "{}", soc.id);
        assert_eq!(has("__ARM_FEATURE_CRYPTO"), soc.core.aes, "{}", soc.id);
        assert_eq!(has("__ARM_FEATURE_ATOMICS"), soc.core.lse, "{}", soc.id);
        if !wide {
            assert_eq!(has("__ARM_FEATURE_IDIV"), soc.core.divide, "{}", soc.id);
            assert_eq!(has("__ARM_PCS_VFP"), soc.core.fpu, "{}", soc.id);
            let soft = soc.core.gcc.replace("=hard", "=softfp");
            let soft = predefined(compiler, &soft).unwrap();
            assert!(!soft.contains("__ARM_PCS_VFP"), "{}", soc.id);
            assert_eq!(
                soft.contains("#define __ARM_FP "),
                soc.core.fpu,
                "{}",
                soc.id
            );
        }
        if let Some(narrow) = &soc.core.gcc32
            && let Some(defined) = predefined("arm-linux-gnueabihf-gcc", narrow)
        {
            assert_eq!(
                defined.contains("#define __ARM_FEATURE_CRYPTO "),
                soc.core.aes,
                "{}",
                soc.id
            );
            assert!(
                defined.contains("#define __ARM_FEATURE_IDIV "),
                "{}",
                soc.id
            );
        }
    }
}

#[test]
fn facts_that_no_source_confirms_are_told_apart() {
    let table = table();
    let unsure = table.soc("bcm47189").unwrap();
    assert!(!unsure.is_sure("neon") && unsure.is_sure("cores"));
    for id in [
        "ipq8065", "ipq4019", "al514", "bcm4708", "mt7986", "bcm2711",
    ] {
        let soc = table.soc(id).unwrap();
        assert!(
            ["core", "features", "neon", "aes", "vfp"]
                .iter()
                .all(|fact| soc.is_sure(fact)),
            "{id}"
        );
    }
}

/// Chips about which the reference and the maker's papers are wrong or misleading.
#[test]
fn chips_that_are_not_what_their_core_suggests() {
    let table = table();
    assert!(!table.soc("an7581").unwrap().core.aes && table.soc("mt7986").unwrap().core.aes);
    assert!(!table.soc("bcm2711").unwrap().core.aes && !table.soc("bcm2837").unwrap().core.aes);
    assert!(!table.soc("bcm4708").unwrap().core.neon && table.soc("armada385").unwrap().core.neon);
    assert!(table.soc("bcm2712").unwrap().core.gcc.contains("+crypto"));
    let krait = table.soc("ipq8065").unwrap();
    assert_eq!(
        krait.core.gcc,
        "-mcpu=cortex-a15 -mfpu=neon-vfpv4 -mfloat-abi=hard"
    );
}

/// The rustc target that goes with the options of an ARM chip, for musl.
fn rust_target(soc: &Soc) -> &'static str {
    match (soc.core.isa, soc.core.fpu) {
        (Isa::Armv5te, _) => "armv5te-unknown-linux-musleabi",
        (Isa::Armv7, true) => "armv7-unknown-linux-musleabihf",
        (Isa::Armv7, false) => "armv7-unknown-linux-musleabi",
        _ => "aarch64-unknown-linux-musl",
    }
}

/// Checks the options of rustc, which is always installed while tests run.
#[test]
fn rustc_takes_the_options_and_uses_what_the_chip_has() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let mut seen = BTreeMap::new();
    for soc in table().socs().iter().filter(|soc| soc.core.isa.is_arm()) {
        let features = seen
            .entry((rust_target(soc), soc.core.rust.clone()))
            .or_insert_with(|| {
                let mut command = Command::new(&rustc);
                // rustc shows the unstable features of 32-bit ARM only with this variable.
                command.env("RUSTC_BOOTSTRAP", "1").args([
                    "--print",
                    "cfg",
                    "--target",
                    rust_target(soc),
                ]);
                let output = command
                    .args(soc.core.rust.split_whitespace())
                    .output()
                    .unwrap();
                let error = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(
                    output.status.success() && !error.contains("not recognized"),
                    "{}: {error}",
                    soc.id
                );
                String::from_utf8(output.stdout).unwrap()
            });
        let has = |name: &str| features.contains(&format!("target_feature=\"{name}\""));
        assert_eq!(has("neon"), soc.core.neon, "{}", soc.id);
        assert_eq!(has("aes"), soc.core.aes, "{}", soc.id);
        if soc.core.isa != Isa::Armv8 {
            assert_eq!(has("soft-float"), !soc.core.fpu, "{}", soc.id);
            // Code cannot rely on a unit that is optional for the core.
            assert_eq!(
                soc.core.fpu && has("vfp4"),
                soc.core.vfp == crate::soc::Vfp::V4,
                "{}",
                soc.id
            );
        }
    }
}
