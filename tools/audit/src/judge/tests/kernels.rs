//! Tests of kernels and their modules.

use super::*;

#[test]
fn kernels_by_their_configuration() {
    let head = "#\n# Linux/arm 5.10.0 Kernel Configuration\n#\nCONFIG_ARM=y\nCONFIG_CPU_V7=y\nCONFIG_SMP=y\n\
                CONFIG_VFP=y\nCONFIG_WIREGUARD=m\nCONFIG_INET_ESP=m\n";
    let config = |lines: &str| {
        let subject = Subject::KernelConfig(format!("{head}{lines}"));
        judge(
            soc("ipq8065"),
            "kernel-config",
            "",
            Role::KernelConfig,
            &subject,
        )
    };
    let finding = config("# CONFIG_NEON is not set\nCONFIG_ARM_PATCH_IDIV=y\n");
    // Both verdicts in one rebuild: without the ciphers, NEON does not speed up a tunnel.
    assert_eq!(finding.verdicts, [NoAsmCrypto, NoSimd]);
    for line in ["CONFIG_KERNEL_MODE_NEON=y", "CONFIG_CRYPTO_CHACHA20_NEON=m"] {
        assert!(finding.flags.contains(line), "{}", finding.flags);
    }
    let finding =
        config("CONFIG_NEON=y\nCONFIG_KERNEL_MODE_NEON=y\nCONFIG_CC_OPTIMIZE_FOR_SIZE=y\n");
    assert_eq!(
        finding.verdicts,
        [NoAsmCrypto, SizeOptimised, SoftwareDivide]
    );
    let finding = config(
        "CONFIG_NEON=y\nCONFIG_KERNEL_MODE_NEON=y\nCONFIG_ARM_PATCH_IDIV=y\nCONFIG_CRYPTO_CHACHA20_NEON=m\n\
         CONFIG_CRYPTO_POLY1305_ARM=m\nCONFIG_CRYPTO_CURVE25519_NEON=m\n\
         CONFIG_CRYPTO_AES_ARM_BS=m\nCONFIG_CRYPTO_SHA256_ARM=m\n",
    );
    assert_eq!(finding.verdicts, [Fine], "{:?}", finding.evidence);
    let empty = judge(
        soc("ipq8065"),
        "k",
        "",
        Role::Kernel,
        &Subject::KernelWords(Words::of(b"nothing")),
    );
    assert_eq!(empty.verdicts, [CannotTell]);
}

#[test]
fn kernels_lack_only_what_their_version_has_and_something_in_them_uses() {
    let config = |version: &str, lines: &str| {
        let text = format!(
            "# Linux/arm {version} Kernel Configuration\nCONFIG_ARM=y\nCONFIG_CPU_V7=y\nCONFIG_SMP=y\nCONFIG_VFP=y\n\
             CONFIG_NEON=y\nCONFIG_KERNEL_MODE_NEON=y\n{lines}"
        );
        let subject = Subject::KernelConfig(text);
        judge(soc("ipq8065"), "config", "", Role::KernelConfig, &subject)
    };
    // The kernel uses neither AES nor ChaCha20; before 4.5 it could not patch divisions.
    assert_eq!(config("4.4.60", "").verdicts, [Fine]);
    let patch = config("4.9.0", "");
    assert_eq!(patch.verdicts, [SoftwareDivide]);
    assert_eq!(patch.flags, "CONFIG_ARM_PATCH_IDIV=y");
    // WireGuard on a kernel without NEON code for ChaCha20.
    let old = config("4.4.60", "CONFIG_WIREGUARD=m\n");
    assert_eq!(old.verdicts, [Fine]);
    assert!(
        old.evidence
            .iter()
            .any(|why| why.contains("Linux 4.4 has no code in NEON for ChaCha20")),
        "{:?}",
        old.evidence
    );
    let part = config("5.4.0", "CONFIG_ARM_PATCH_IDIV=y\nCONFIG_WIREGUARD=m\n");
    assert_eq!(part.verdicts, [NoAsmCrypto]);
    assert_eq!(part.flags, "CONFIG_CRYPTO_CHACHA20_NEON=m");
    // From 6.16 on the option follows from NEON, and has another name.
    let new = config("6.18.1", "CONFIG_ARM_PATCH_IDIV=y\nCONFIG_WIREGUARD=m\n");
    assert_eq!(new.verdicts, [NoAsmCrypto]);
    assert_eq!(new.flags, "CONFIG_KERNEL_MODE_NEON=y");
    let new = config(
        "6.18.1",
        "CONFIG_ARM_PATCH_IDIV=y\nCONFIG_WIREGUARD=m\nCONFIG_CRYPTO_LIB_CHACHA_ARCH=y\n\
         CONFIG_CRYPTO_LIB_POLY1305_ARCH=y\nCONFIG_CRYPTO_LIB_CURVE25519_ARCH=y\n",
    );
    assert_eq!(new.verdicts, [Fine], "{:?}", new.evidence);
    let wide = judge(
        soc("mt7986"),
        "config",
        "",
        Role::KernelConfig,
        &Subject::KernelConfig(
            "# Linux/arm64 5.15.1 Kernel Configuration\nCONFIG_ARM64=y\nCONFIG_SMP=y\nCONFIG_INET_ESP=m\n\
             CONFIG_CRYPTO_SHA256_ARM64=m\n"
                .to_owned(),
        ),
    );
    assert_eq!(wide.verdicts, [NoAsmCrypto], "{:?}", wide.evidence);
    assert_eq!(
        wide.flags,
        "CONFIG_CRYPTO_AES_ARM64_CE_BLK=m CONFIG_CRYPTO_GHASH_ARM64_CE=m"
    );
}

#[test]
fn wireguards_ciphers_say_which_code_they_call() {
    let module = |machine, magic: &str, depends: &str| {
        let modinfo = [
            ("name", "libchacha20poly1305"),
            ("vermagic", magic),
            ("depends", depends),
        ];
        Facts {
            machine,
            modinfo: modinfo
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..facts(Kind::Module)
        }
    };
    let (narrow, wide) = (Machine::Arm { big: false }, Machine::Aarch64 { big: false });
    for (chip, machine, magic, depends, expected, flags) in [
        (
            "ipq8065",
            narrow,
            "5.10.1 SMP ARMv7",
            "chacha-neon,poly1305-arm",
            Fine,
            "",
        ),
        (
            "ipq8065",
            narrow,
            "5.10.1 SMP ARMv7",
            "libchacha,libpoly1305",
            NoSimd,
            "CONFIG_CRYPTO_CHACHA20_NEON=m CONFIG_CRYPTO_POLY1305_ARM=m",
        ),
        (
            "ipq8065",
            narrow,
            "6.18.3 SMP ARMv7",
            "libchacha,libpoly1305",
            Fine,
            "",
        ),
        (
            "bcm4708",
            narrow,
            "5.10.1 SMP ARMv7",
            "libchacha,libpoly1305",
            Fine,
            "",
        ),
        ("ipq8065", narrow, "5.10.1 SMP ARMv7", "", CannotTell, ""),
        (
            "mt7986",
            wide,
            "5.10.1 SMP aarch64",
            "libchacha,libpoly1305",
            NoSimd,
            "CONFIG_CRYPTO_CHACHA20_NEON=m CONFIG_CRYPTO_POLY1305_NEON=m",
        ),
    ] {
        let subject = Subject::Elf(Box::new(module(machine, magic, depends)));
        let finding = judge(soc(chip), "/x.ko", "", Role::CryptoModule, &subject);
        assert_eq!(
            finding.verdicts,
            [expected],
            "{magic}, {depends}: {:?}",
            finding.evidence
        );
        assert_eq!(finding.flags, flags, "{magic}, {depends}");
    }
}

#[test]
fn a_kernel_without_its_configuration_is_never_fine() {
    let kernel = |chip: &str| {
        let words = Words::of(b"Linux version 6.1.0\0kernel_neon_begin\0__aeabi_uidiv\0");
        judge(
            soc(chip),
            "vmlinux",
            "",
            Role::Kernel,
            &Subject::KernelWords(words),
        )
        .verdicts
    };
    assert_eq!(kernel("ipq8065"), [CannotTell]);
    assert_eq!(kernel("mt7986"), [ThirtyTwoOn64]);
    assert_eq!(kernel("mt7621"), [WrongAbi]);
}

#[test]
fn a_kernel_of_the_other_byte_order() {
    let text = "# Linux/mips 5.15.0 Kernel Configuration\nCONFIG_MIPS=y\nCONFIG_SMP=y\nCONFIG_CPU_BIG_ENDIAN=y\n";
    let subject = Subject::KernelConfig(text.to_owned());
    let finding = judge(soc("mt7621"), "config", "", Role::KernelConfig, &subject);
    assert_eq!(finding.verdicts, [WrongAbi]);
}

/// A kernel module with some of OpenSSL's assembly is not OpenSSL.
#[test]
fn a_module_with_openssls_assembly_is_a_module() {
    let module = Facts {
        arm: Some(ArmAttributes {
            optimization_goals: Some(4),
            ..generic().arm.unwrap_or_default()
        }),
        modinfo: vec![("name".into(), "sha256_arm".into())],
        notes: vec![
            "SHA256 block transform for ARMv4/NEON/ARMv8, CRYPTOGAMS by <appro@openssl.org>".into(),
        ],
        ..facts(Kind::Module)
    };
    assert_eq!(
        verdicts("ipq8065", Role::CryptoModule, &module),
        [SizeOptimised]
    );
}
