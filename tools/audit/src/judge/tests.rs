//! Tests every verdict on handmade facts. Tests with compilers check that the reader determines the facts correctly.

mod kernels;

use super::*;
use crate::facts::{ArmAttributes, Counts, MipsFlags, Spread, tests::facts};
use crate::soc::Table;
use Verdict::{
    CannotTell, Fine, NoAsmCrypto, NoSimd, SizeOptimised, SoftFloat, SoftwareDivide, ThirtyTwoOn64,
    TooGeneric, WrongAbi,
};

fn soc(name: &str) -> &'static Soc {
    Table::builtin()
        .soc(name)
        .unwrap_or_else(|| panic!("{name} is in the table"))
}

fn verdicts(chip: &str, role: Role, facts: &Facts) -> Vec<Verdict> {
    judge(
        soc(chip),
        "/usr/bin/x",
        "",
        role,
        &Subject::Elf(Box::new(facts.clone())),
    )
    .verdicts
}

/// `-march=armv7-a -mfpu=vfpv3-d16 -mfloat-abi=hard`.
fn generic() -> Facts {
    Facts {
        arm: Some(ArmAttributes {
            cpu_arch: Some(10),
            fp_arch: Some(4),
            vfp_args: Some(1),
            ..ArmAttributes::default()
        }),
        counts: Counts {
            instructions: 5000,
            vfp: 300,
            v7: 200,
            ..Counts::default()
        },
        imports: BTreeSet::from(["__aeabi_idiv".to_owned()]),
        ..facts(Kind::Library)
    }
}

/// `-mcpu=cortex-a15 -mfpu=neon-vfpv4 -mfloat-abi=hard`.
fn tuned() -> Facts {
    Facts {
        arm: Some(ArmAttributes {
            fp_arch: Some(5),
            simd_arch: Some(2),
            mp_extension: Some(1),
            div_use: Some(2),
            ..generic().arm.unwrap_or_default()
        }),
        counts: Counts {
            neon: 400,
            d16_up: 50,
            divide: 20,
            ..generic().counts
        },
        neon: Spread {
            with_neon: 30,
            all: 100,
            functions: true,
            ..Spread::default()
        },
        imports: BTreeSet::new(),
        ..generic()
    }
}

fn soft() -> Facts {
    Facts {
        flags: 0x0500_0200,
        arm: Some(ArmAttributes {
            cpu_arch: Some(10),
            ..ArmAttributes::default()
        }),
        counts: Counts {
            instructions: 5000,
            v7: 200,
            ..Counts::default()
        },
        ..generic()
    }
}

#[test]
fn vendors_options_and_the_right_ones() {
    assert_eq!(
        verdicts("ipq8065", Role::Other, &generic()),
        [NoSimd, SoftwareDivide, TooGeneric]
    );
    assert_eq!(verdicts("ipq8065", Role::Other, &tuned()), [Fine]);
    assert_eq!(
        verdicts("ipq8065", Role::Other, &soft()),
        [NoSimd, SoftFloat, SoftwareDivide, TooGeneric]
    );
    // Code that suits a Cortex-A15 crashes on a chip without NEON, and on one without divide instructions.
    assert_eq!(verdicts("bcm4708", Role::Other, &tuned()), [WrongAbi]);
    assert_eq!(
        verdicts("bcm4708", Role::Other, &soft()),
        [TooGeneric],
        "not for its multiprocessing"
    );
}

#[test]
fn only_assembly_is_no_pass() {
    let one = Spread {
        with_neon: 1,
        all: 40,
        functions: true,
        names: vec!["sum_neon".into()],
        doubles_elsewhere: 30,
        high_elsewhere: 0,
    };
    let arm = ArmAttributes {
        fp_arch: Some(3),
        simd_arch: Some(1),
        ..generic().arm.unwrap_or_default()
    };
    let mixed = Facts {
        arm: Some(arm),
        counts: Counts {
            neon: 60,
            ..generic().counts
        },
        neon: one,
        ..generic()
    };
    let finding = judge(
        soc("ipq8065"),
        "/x",
        "",
        Role::Other,
        &Subject::Elf(Box::new(mixed)),
    );
    assert_eq!(finding.verdicts, [NoSimd, SoftwareDivide, TooGeneric]);
    assert!(
        finding
            .evidence
            .iter()
            .any(|text| text.contains("sum_neon")),
        "{:?}",
        finding.evidence
    );
}

#[test]
fn ciphers_without_assembly() {
    let mut plain = tuned();
    plain.counts.neon = 20;
    plain.notes = vec![
        "OpenSSL 3.0.17 1 Jul 2025".into(),
        "compiler: arm-gcc -Os -fPIC -DOPENSSL_NO_ASM".into(),
    ];
    assert_eq!(
        verdicts("ipq8065", Role::Libcrypto, &plain),
        [NoAsmCrypto, SizeOptimised]
    );
    let mut fast = tuned();
    fast.counts.neon = 9000;
    fast.notes = vec![
        "AES for ARMv4, CRYPTOGAMS by <appro@openssl.org>".into(),
        "compiler: arm-gcc -O3".into(),
    ];
    assert_eq!(verdicts("ipq8065", Role::Libcrypto, &fast), [Fine]);
    // OpenSSL's assembly names itself. In other libraries, NEON may as well come from compiled C.
    fast.notes.clear();
    assert_eq!(verdicts("ipq8065", Role::Libcrypto, &fast), [NoAsmCrypto]);
    assert_eq!(verdicts("ipq8065", Role::MbedTls, &fast), [CannotTell]);
    // A library that has no assembly for the chip is not reported for lacking it.
    let mut sodium = tuned();
    sodium.counts.neon = 20;
    assert_eq!(
        verdicts("ipq8065", Role::CryptoLibrary, &sodium),
        [NoAsmCrypto]
    );
    sodium.soname = Some("libsodium.so.26".into());
    assert_eq!(verdicts("ipq8065", Role::CryptoLibrary, &sodium), [NoSimd]);
}

#[test]
fn wide_cores() {
    assert_eq!(verdicts("mt7986", Role::OpenVpn, &tuned()), [ThirtyTwoOn64]);
    assert_eq!(
        verdicts("bcm2711", Role::OpenVpn, &tuned()),
        [Fine],
        "no AES instructions to win"
    );
    let wide = Facts {
        machine: Machine::Aarch64 { big: false },
        counts: Counts {
            instructions: 9000,
            neon: 3000,
            ..Counts::default()
        },
        ..facts(Kind::Library)
    };
    assert_eq!(verdicts("mt7986", Role::Libcrypto, &wide), [NoAsmCrypto]);
    assert_eq!(verdicts("mt7986", Role::Other, &wide), [Fine]);
    assert_eq!(verdicts("ipq8065", Role::Other, &wide), [WrongAbi]);
    let aes = Facts {
        counts: Counts {
            aes: 200,
            pmull: 90,
            ..wide.counts
        },
        ..wide.clone()
    };
    assert_eq!(verdicts("mt7986", Role::Libcrypto, &aes), [Fine]);
    assert_eq!(
        verdicts("bcm2711", Role::Libcrypto, &aes),
        [Fine],
        "looked for at run time"
    );
}

#[test]
fn mips_by_its_flags() {
    let mips = |isa_rev, fp_abi| Facts {
        machine: Machine::Mips {
            big: false,
            wide: false,
        },
        mips: Some(MipsFlags {
            isa_level: 32,
            isa_rev,
            fp_abi,
            ..MipsFlags::default()
        }),
        ..facts(Kind::Program)
    };
    assert_eq!(verdicts("mt7621", Role::OpenVpn, &mips(2, 3)), [Fine]);
    assert_eq!(verdicts("mt7621", Role::OpenVpn, &mips(1, 3)), [TooGeneric]);
    assert_eq!(verdicts("mt7621", Role::OpenVpn, &mips(2, 1)), [WrongAbi]);
    let big = Facts {
        machine: Machine::Mips {
            big: true,
            wide: false,
        },
        ..mips(2, 3)
    };
    assert_eq!(verdicts("mt7621", Role::OpenVpn, &big), [WrongAbi]);
}

#[test]
fn every_finding_says_what_to_do_and_no_advice_gives_the_unit_away() {
    for chip in Table::builtin().socs() {
        for facts in [generic(), tuned(), soft()] {
            let finding = judge(
                chip,
                "/x",
                "",
                Role::Libcrypto,
                &Subject::Elf(Box::new(facts)),
            );
            assert!(
                !finding.verdicts.is_empty() && !finding.evidence.is_empty(),
                "{}: {finding:?}",
                chip.id
            );
            assert_eq!(
                finding.is_worth_fixing(),
                !finding.flags.is_empty(),
                "{}: {finding:?}",
                chip.id
            );
            assert_eq!(
                finding.is_worth_fixing(),
                !finding.steps.is_empty(),
                "{}: {finding:?}",
                chip.id
            );
            if chip.core.vfp != crate::soc::Vfp::None {
                assert!(
                    !finding
                        .flags
                        .split(' ')
                        .any(|word| word == "-mfloat-abi=soft"),
                    "{}",
                    chip.id
                );
            }
        }
    }
}

#[test]
fn a_program_with_openssl_in_it_is_judged_as_openssl() {
    let program = Facts {
        machine: Machine::Aarch64 { big: false },
        is_static: true,
        counts: Counts {
            instructions: 90_000,
            ..Counts::default()
        },
        notes: vec![
            "OpenSSL 3.0.13 30 Jan 2024".into(),
            "compiler: gcc -Os -DOPENSSL_NO_ASM".into(),
        ],
        ..facts(Kind::Program)
    };
    let finding = judge(
        soc("mt7986"),
        "/usr/sbin/openvpn",
        "",
        Role::OpenVpn,
        &Subject::Elf(Box::new(program)),
    );
    assert_eq!(finding.verdicts, [NoAsmCrypto, SizeOptimised]);
    assert_eq!(finding.role, Role::OpenVpn);
}

#[test]
fn nothing_is_concluded_from_what_is_not_known() {
    // The table does not know whether BCM4912 has AES instructions, nor whether BCM6750 has NEON.
    let finding = judge(
        soc("bcm4912"),
        "/x",
        "",
        Role::Other,
        &Subject::Elf(Box::new(tuned())),
    );
    assert!(!finding.verdicts.contains(&ThirtyTwoOn64), "{finding:?}");
    let mut old = soft();
    if let Some(arm) = &mut old.arm {
        arm.cpu_arch = Some(4);
    }
    let finding = judge(
        soc("bcm6750"),
        "/x",
        "",
        Role::Other,
        &Subject::Elf(Box::new(old)),
    );
    assert!(finding.is_worth_fixing(), "{finding:?}");
    assert!(!finding.flags.contains("-mf"), "{finding:?}");
}

#[test]
fn options_keep_the_calling_convention() {
    let flags = |facts: Facts| {
        judge(
            soc("ipq8065"),
            "/x",
            "",
            Role::Other,
            &Subject::Elf(Box::new(facts)),
        )
        .flags
    };
    assert_eq!(
        flags(soft()),
        "-mcpu=cortex-a15 -mfpu=neon-vfpv4 -mfloat-abi=softfp"
    );
    assert_eq!(
        flags(generic()),
        "-mcpu=cortex-a15 -mfpu=neon-vfpv4 -mfloat-abi=hard"
    );
}

#[test]
fn options_promise_nothing_where_they_are_not_the_matter() {
    let gain = |chip: &str, facts: Facts| {
        judge(
            soc(chip),
            "/x",
            "",
            Role::OpenVpn,
            &Subject::Elf(Box::new(facts)),
        )
        .gain
    };
    let wide = Facts {
        machine: Machine::Aarch64 { big: false },
        ..facts(Kind::Program)
    };
    assert_eq!(gain("ipq8065", wide), None, "another machine's program");
    assert_eq!(gain("mt7986", tuned()), None, "32 bits on 64");
    assert!(gain("ipq8065", generic()).is_some());
}
