//! Reads facts from ELF files that the tests compile with known flags.

#![allow(clippy::unwrap_used)]

mod compile;
mod hostile;
mod instructions;
mod verdicts;

use audit::elf::{ElfError, is_elf, read};
use audit::facts::{Facts, Kind, Machine};
use compile::{A64, ARM, Bench, SHARED, SOURCE, facts, without_sections, zig};

/// Expected facts for one row of flags.
struct Row {
    flags: &'static str,
    cpu_arch: u64,
    fp_arch: Option<u64>,
    simd_arch: Option<u64>,
    divide: bool,
    mp: bool,
    hard: bool,
    /// Whether the file has VFP, NEON, fused multiply-add and v7 instructions.
    vfp: bool,
    neon: bool,
    fma: bool,
    v7: bool,
}

const NOTHING: Row = Row {
    flags: "",
    cpu_arch: 10,
    fp_arch: None,
    simd_arch: None,
    divide: false,
    mp: false,
    hard: false,
    vfp: false,
    neon: false,
    fma: false,
    v7: true,
};

/// Flags that vendors use, and correct flags.
const ROWS: [Row; 10] = [
    Row {
        flags: "-march=armv5te -marm -mfloat-abi=soft",
        cpu_arch: 4,
        v7: false,
        ..NOTHING
    },
    Row {
        flags: "-march=armv7-a -mfloat-abi=soft",
        ..NOTHING
    },
    Row {
        flags: "-mcpu=cortex-a9 -mfloat-abi=soft",
        mp: true,
        ..NOTHING
    },
    Row {
        flags: "-mcpu=cortex-a9 -mfloat-abi=softfp -mfpu=vfpv3-d16",
        fp_arch: Some(4),
        mp: true,
        vfp: true,
        ..NOTHING
    },
    Row {
        flags: "-march=armv7-a -mfloat-abi=hard -mfpu=vfpv3-d16",
        fp_arch: Some(4),
        hard: true,
        vfp: true,
        ..NOTHING
    },
    Row {
        flags: "-mcpu=cortex-a9 -mfloat-abi=hard -mfpu=neon",
        fp_arch: Some(3),
        simd_arch: Some(1),
        mp: true,
        hard: true,
        vfp: true,
        neon: true,
        ..NOTHING
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
        hard: false,
        ..FULL
    },
    Row {
        flags: "-mcpu=cortex-a53 -mfloat-abi=hard -mfpu=crypto-neon-fp-armv8",
        cpu_arch: 14,
        fp_arch: Some(7),
        simd_arch: Some(3),
        ..FULL
    },
];

const FULL: Row = Row {
    fp_arch: Some(5),
    simd_arch: Some(2),
    divide: true,
    mp: true,
    hard: true,
    vfp: true,
    neon: true,
    fma: true,
    ..NOTHING
};

#[test]
fn every_row_of_flags_shows_in_attributes_and_instructions() {
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    for row in &ROWS {
        for set in ["-marm", "-mthumb"] {
            if row.cpu_arch == 4 && set == "-mthumb" {
                continue;
            }
            let flags = format!("{SHARED} -O3 {} {set}", row.flags);
            let whole = bench.build(ARM, &flags, &[&source]);
            let stripped = bench.strip("arm-linux-gnueabihf-strip", &whole);
            for (bytes, form) in [
                (
                    without_sections(&stripped, false),
                    "without section headers",
                ),
                (whole, "whole"),
                (stripped, "stripped"),
            ] {
                check(row, &facts(&bytes), &format!("{flags}, {form}"));
            }
        }
    }
}

fn check(row: &Row, facts: &Facts, of: &str) {
    let arm = facts
        .arm
        .as_ref()
        .unwrap_or_else(|| panic!("{of}: no attributes"));
    assert_eq!(facts.machine, Machine::Arm { big: false }, "{of}");
    assert_eq!(facts.kind, Kind::Library, "{of}");
    assert_eq!(
        facts.flags,
        if row.hard { 0x0500_0400 } else { 0x0500_0200 },
        "{of}"
    );
    assert_eq!(arm.cpu_arch, Some(row.cpu_arch), "{of}");
    assert_eq!(arm.fp_arch, row.fp_arch, "{of}");
    assert_eq!(arm.simd_arch, row.simd_arch, "{of}");
    assert_eq!(arm.vfp_args, row.hard.then_some(1), "{of}");
    assert_eq!(arm.mp_extension, row.mp.then_some(1), "{of}");
    // ARMv8 always has division, so the attribute is absent.
    let says = row.divide && row.cpu_arch < 14;
    assert_eq!(arm.div_use, says.then_some(2), "{of}");
    let counts = &facts.counts;
    assert_eq!(counts.divide > 0, row.divide, "{of}: {counts:?}");
    assert_eq!(counts.vfp > 0, row.vfp, "{of}: {counts:?}");
    assert_eq!(counts.neon > 0, row.neon, "{of}: {counts:?}");
    assert_eq!(counts.fma > 0, row.fma, "{of}: {counts:?}");
    assert_eq!(counts.v7 > 0, row.v7, "{of}: {counts:?}");
    assert_eq!(counts.exclusive > 0, row.v7, "{of}: {counts:?}");
    assert_eq!(
        counts.aes + counts.pmull + counts.sha + counts.lse,
        0,
        "{of}: {counts:?}"
    );
    assert_eq!(facts.imports.contains("__aeabi_idiv"), !row.divide, "{of}");
    assert_eq!(facts.imports.contains("__aeabi_fmul"), !row.vfp, "{of}");
    for name in ["scale", "ratio", "mix"] {
        assert!(
            facts.functions.contains(name),
            "{of}: {:?}",
            facts.functions
        );
    }
    assert_eq!(
        facts.neon.with_neon,
        u64::from(row.neon),
        "{of}: {:?}",
        facts.neon
    );
    assert_eq!(
        facts.neon.names.iter().any(|name| name == "mix"),
        row.neon,
        "{of}"
    );
}

#[test]
fn what_is_cut_off_behind_the_segments_takes_the_attributes_and_not_the_counts() {
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    for set in ["-marm", "-mthumb"] {
        let flags = format!("{SHARED} -O3 -mcpu=cortex-a7 -mfpu=neon-vfpv4 {set}");
        let whole = bench.build(ARM, &flags, &[&source]);
        let with = facts(&bench.strip("arm-linux-gnueabihf-strip", &whole));
        let cut = facts(&without_sections(&whole, true));
        assert_eq!(cut.arm, None);
        assert_eq!(cut.counts.neon, with.counts.neon, "{set}");
        assert_eq!(cut.counts.divide, with.counts.divide, "{set}");
        assert_eq!(cut.imports, with.imports, "{set}");
        assert_eq!(cut.functions, with.functions, "{set}");
    }
}

#[test]
fn one_neon_file_in_a_library_without_is_seen_for_what_it_is() {
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    let assembly = bench.source(
        "mix.s",
        ".fpu neon\n.text\n.arm\n.global mix_neon\n.type mix_neon, %function\nmix_neon:\n\
         vld1.32 {q0}, [r0]\nvld1.32 {q8}, [r1]\nveor q0, q0, q8\nvst1.32 {q0}, [r0]\nbx lr\n\
         .size mix_neon, .-mix_neon\n",
    );
    let flags = format!("{SHARED} -O2 -march=armv7-a -mfpu=vfpv3-d16 -mfloat-abi=hard");
    let whole = bench.build(ARM, &flags, &[&source, &assembly]);
    for bytes in [
        bench.strip("arm-linux-gnueabihf-strip", &whole),
        without_sections(&whole, true),
        whole,
    ] {
        let facts = facts(&bytes);
        // The attributes of a linked file have the highest values of its parts.
        if let Some(arm) = &facts.arm {
            assert_eq!(arm.simd_arch, Some(1));
        }
        assert_eq!((facts.counts.neon, facts.counts.d16_up), (4, 2));
        assert_eq!(
            (facts.neon.with_neon, facts.neon.all),
            (1, 7),
            "{:?}",
            facts.neon
        );
        assert!(facts.neon.functions);
        assert_eq!(facts.neon.names, ["mix_neon"]);
    }
}

#[test]
fn programs_libraries_modules_and_objects_are_told_apart() {
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    let start = bench.source(
        "start.c",
        "extern int add(int *); static int x; void _start(void) { add(&x); }",
    );
    let flags = "-O2 -nostdlib -ffreestanding -march=armv7-a -mfpu=vfpv3-d16 -Wl,--unresolved-symbols=ignore-all";
    let fixed = facts(&bench.build(ARM, &format!("{flags} -static"), &[&source, &start]));
    assert_eq!((fixed.kind, fixed.is_static), (Kind::Program, true));
    let movable = facts(&bench.build(
        ARM,
        &format!("{flags} -static-pie -fPIE -Wl,--no-dynamic-linker"),
        &[&source, &start],
    ));
    assert_eq!((movable.kind, movable.is_static), (Kind::Program, true));
    let library = bench.build(
        ARM,
        &format!("{SHARED} {flags} -Wl,-soname,libone.so.1"),
        &[&source],
    );
    for bytes in [without_sections(&library, true), library] {
        let library = facts(&bytes);
        assert_eq!((library.kind, library.is_static), (Kind::Library, false));
        assert_eq!(library.soname.as_deref(), Some("libone.so.1"));
    }
    let interpreted = format!("{flags} -pie -fPIE -Wl,-dynamic-linker,/lib/ld-musl-armhf.so.1");
    let program = facts(&bench.build(ARM, &interpreted, &[&source, &start]));
    assert_eq!((program.kind, program.is_static), (Kind::Program, false));

    let object = facts(&bench.build(ARM, "-c -Os -march=armv7-a -mfpu=vfpv3-d16", &[&source]));
    assert_eq!(object.kind, Kind::Object);
    assert_eq!(object.arm.and_then(|arm| arm.optimization_goals), Some(4));
    let info = "__attribute__((section(\".modinfo\"), used)) static const char info[] =
        \"name=chacha\\0vermagic=5.4.213 SMP mod_unload ARMv7 p2v8 \";
        void kernel_neon_begin(void); void work(void) { kernel_neon_begin(); }";
    let module = bench.source("module.c", info);
    let object = bench.build(ARM, "-c -O2 -march=armv7-a -mfloat-abi=soft", &[&module]);
    for bytes in [
        bench.strip("arm-linux-gnueabihf-strip --strip-debug", &object),
        object,
    ] {
        let module = facts(&bytes);
        assert_eq!(module.kind, Kind::Module);
        assert_eq!(module.modinfo[0], ("name".to_owned(), "chacha".to_owned()));
        assert_eq!(module.modinfo[1].0, "vermagic");
        assert!(
            module.imports.contains("kernel_neon_begin"),
            "{:?}",
            module.imports
        );
        assert_eq!(module.arm.and_then(|arm| arm.optimization_goals), Some(2));
        assert!(module.counts.instructions > 0);
    }
}

#[test]
fn aarch64_shows_its_extensions_in_its_instructions() {
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    let build = |flags: &str| bench.build(A64, &format!("{SHARED} -O3 {flags}"), &[&source]);
    for (flags, lse, exclusive) in [
        ("-march=armv8.1-a", true, false),
        ("-march=armv8-a -mno-outline-atomics", false, true),
        ("-march=armv8-a -moutline-atomics", false, false),
    ] {
        let whole = build(flags);
        for bytes in [
            bench.strip("aarch64-linux-gnu-strip", &whole),
            without_sections(&whole, true),
            whole,
        ] {
            let facts = facts(&bytes);
            let counts = facts.counts;
            assert_eq!(facts.machine, Machine::Aarch64 { big: false });
            assert_eq!(facts.arm, None);
            assert_eq!(counts.lse > 0, lse, "{flags}: {counts:?}");
            assert_eq!(counts.exclusive > 0, exclusive, "{flags}: {counts:?}");
            assert!(
                counts.divide == 1 && counts.neon > 0 && counts.vfp > 0,
                "{flags}: {counts:?}"
            );
            assert_eq!(counts.aes + counts.pmull + counts.sha, 0, "{flags}");
            let helper = facts
                .imports
                .iter()
                .any(|name| name.starts_with("__aarch64_ldadd4"));
            assert_eq!(helper, !lse && !exclusive, "{flags}: {:?}", facts.imports);
        }
    }
}

#[test]
fn what_clang_and_its_linker_build_is_read_as_well() {
    let Some(zig) = lab::require(zig().ok_or("no zig: run `make arm`")) else {
        return;
    };
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    let flags = format!("{SHARED} -O3 -fno-sanitize=all -target");
    let build = |target: &str| facts(&bench.build(&zig, &format!("{flags} {target}"), &[&source]));
    let a15 = build("arm-linux-musleabihf -mcpu=cortex_a15");
    let arm = a15.arm.as_ref().unwrap();
    assert_eq!(
        (arm.cpu_arch, arm.fp_arch, arm.simd_arch),
        (Some(10), Some(5), Some(2))
    );
    assert_eq!(arm.div_use, Some(2));
    assert!(
        a15.counts.divide > 0 && a15.counts.neon > 0,
        "{:?}",
        a15.counts
    );
    let old = build("arm-linux-musleabi -mcpu=arm926ej_s");
    // v5TE or, as in the manual of this core, v5TEJ.
    let arch = old.arm.as_ref().and_then(|arm| arm.cpu_arch);
    assert!(matches!(arch, Some(4 | 5)), "{arch:?}");
    assert_eq!(
        old.counts.neon + old.counts.vfp + old.counts.divide + old.counts.v7,
        0,
        "{:?}",
        old.counts
    );
    assert!(old.imports.contains("__aeabi_fmul") || old.functions.contains("__aeabi_fmul"));
    let a53 = build("aarch64-linux-musl -mcpu=cortex_a53");
    assert!(a53.counts.neon > 0 && a53.counts.divide > 0);
    let mips = build("mips-linux-musleabi -mcpu=mips32r2");
    assert_eq!(
        mips.machine,
        Machine::Mips {
            big: true,
            wide: false
        }
    );
    let mips = mips.mips.unwrap();
    assert_eq!((mips.isa_level, mips.isa_rev, mips.fp_abi), (32, 2, 3));
}

/// The test itself is a Rust program, for whichever machine it runs on.
#[test]
fn a_program_of_rust_is_read() {
    let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let facts = facts(&bytes);
    assert_eq!(facts.kind, Kind::Program);
    assert!(facts.text > 100_000);
}

#[test]
fn what_is_no_elf_file_is_refused_with_a_reason() {
    assert!(!is_elf(b"\x7fEL") && is_elf(b"\x7fELF"));
    assert_eq!(read(b"#!/bin/sh\n"), Err(ElfError::Magic));
    assert_eq!(read(b"\x7fELF"), Err(ElfError::Short));
    assert_eq!(read(b"\x7fELF\x01\x01\x01"), Err(ElfError::Short));
    assert_eq!(
        read(&[b"\x7fELF\x07\x01\x01".as_slice(), &[0; 64]].concat()),
        Err(ElfError::Header)
    );
    let mut core = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    core[16..18].copy_from_slice(&4_u16.to_ne_bytes());
    assert_eq!(read(&core), Err(ElfError::Type(4)));
}
