//! `millrace audit` on Debian's packages of OpenSSL, OpenVPN and the kernel, for routers' chips. A general distribution
//! fits some chips and is best for none. `scripts/audit-packages` fetches the packages.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// Returns the directory of an architecture's packages, if the script has fetched them completely.
fn packages(architecture: &str) -> Option<PathBuf> {
    let packages = lab::tools::fetched(&format!("audit/{architecture}"))?;
    packages.join(".complete").exists().then_some(packages)
}

/// An audit report: the findings in order, and whether the exit status was 0.
struct Report {
    findings: Vec<Value>,
    nothing_to_fix: bool,
}

impl Report {
    /// Runs the audit; `None` if the packages are missing.
    fn of(architecture: &str, chip: &str) -> Option<Self> {
        let why = format!("no packages for {architecture}: run scripts/audit-packages");
        let packages = lab::require(packages(architecture).ok_or(why))?;
        let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["audit", "--json", "--soc", chip])
            .arg(packages)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            matches!(output.status.code(), Some(0 | 1)),
            "{architecture}, {chip}: {said}"
        );
        assert_eq!(said, "", "{architecture}, {chip}");
        let text = String::from_utf8(output.stdout).unwrap();
        let findings: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(
            findings.len() > 90,
            "{architecture}, {chip}: {} files",
            findings.len()
        );
        Some(Self {
            findings,
            nothing_to_fix: output.status.success(),
        })
    }

    /// The one file with this name, or with this prefix before a version.
    fn file(&self, name: &str) -> &Value {
        let is = |finding: &&Value| {
            let path = finding["path"].as_str().unwrap();
            let file = path.rsplit('/').next().unwrap();
            file == name || (name.ends_with('-') && file.starts_with(name))
        };
        let mut found = self.findings.iter().filter(is);
        let finding = found
            .next()
            .unwrap_or_else(|| panic!("{name} is not in the report"));
        assert!(found.next().is_none(), "{name} is twice in the report");
        finding
    }

    fn verdicts(&self, name: &str) -> String {
        words(self.file(name))
    }

    fn evidence(&self, name: &str) -> String {
        self.file(name)["evidence"].to_string()
    }

    /// Verdicts on all kernel modules.
    fn modules(&self) -> Vec<String> {
        let is = |finding: &&Value| finding["path"].as_str().unwrap().ends_with(".ko");
        let mut words: Vec<String> = self.findings.iter().filter(is).map(words).collect();
        words.sort_unstable();
        words.dedup();
        words
    }
}

fn words(finding: &Value) -> String {
    let verdicts = finding["verdicts"].as_array().unwrap().iter();
    verdicts
        .map(|word| word.as_str().unwrap())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Checks the verdicts on these files for each chip.
fn check(architecture: &str, chips: &[&str], expected: &[(&str, &str)]) {
    for chip in chips {
        let Some(report) = Report::of(architecture, chip) else {
            return;
        };
        for (name, verdicts) in expected {
            let of = format!("{architecture}, {chip}, {name}: {}", report.evidence(name));
            assert_eq!(report.verdicts(name), *verdicts, "{of}");
        }
    }
}

#[test]
fn armhf_is_generic_for_chips_with_neon_and_its_kernel_is_not() {
    let generic = [
        // libcrypto's ciphers are assembly that detects NEON at run time; the rest was built for generic ARMv7.
        ("libcrypto.so.3", "too-generic"),
        ("libssl.so.3", "no-simd too-generic"),
        ("openvpn", "no-simd too-generic"),
        ("config-", "fine"),
        ("wireguard.ko", "fine"),
        ("chacha-neon.ko", "fine"),
        ("libchacha20poly1305.ko", "fine"),
    ];
    check(
        "armhf",
        &["ipq8065", "ipq4019", "al514", "bcm2711"],
        &generic,
    );
    let Some(report) = Report::of("armhf", "al514") else {
        return;
    };
    let why = report.evidence("libcrypto.so.3");
    assert!(
        why.contains("set by assembly only") && why.contains("its ciphers are in assembly"),
        "{why}"
    );
    assert!(
        report.file("libcrypto.so.3")["flags"]
            .as_str()
            .unwrap()
            .contains("-mfpu=neon-vfpv4")
    );
    assert_eq!(
        report.findings[0]["role"], "libcrypto",
        "the most worth fixing"
    );
    assert!(!report.nothing_to_fix);
}

#[test]
fn armhf_does_not_run_without_a_floating_point_unit() {
    check(
        "armhf",
        &["bcm4708"],
        &[
            ("libcrypto.so.3", "wrong-abi"),
            ("libssl.so.3", "wrong-abi"),
            ("openvpn", "wrong-abi"),
            // Kernels use no floating point, and this kernel supports the chip.
            ("config-", "fine"),
            ("wireguard.ko", "fine"),
        ],
    );
}

#[test]
fn armhf_on_a_64_bit_core_with_aes() {
    check(
        "armhf",
        &["mt7986"],
        &[
            ("libcrypto.so.3", "32-bit-on-64 too-generic"),
            ("libssl.so.3", "32-bit-on-64 no-simd too-generic"),
            ("openvpn", "32-bit-on-64 no-simd too-generic"),
            ("config-", "32-bit-on-64"),
            ("wireguard.ko", "32-bit-on-64"),
        ],
    );
    let Some(report) = Report::of("armhf", "mt7986") else {
        return;
    };
    // OpenSSL's assembly has these instructions for 32 bits too, written as bytes for assemblers that do not know them.
    assert!(
        report
            .evidence("libcrypto.so.3")
            .contains("in 32-bit state")
    );
    assert!(
        report.file("openvpn")["steps"]
            .to_string()
            .contains("-mcpu=cortex-a53+crypto")
    );
}

#[test]
fn armel_is_soft_float_for_arm_v5() {
    let Some(report) = Report::of("armel", "bcm4708") else {
        return;
    };
    for name in ["libcrypto.so.3", "libssl.so.3", "openvpn"] {
        assert_eq!(
            report.verdicts(name),
            "too-generic",
            "{name}: {}",
            report.evidence(name)
        );
    }
    for chip in [
        "ipq8065", "ipq4019", "al514", "bcm4708", "mt7986", "bcm2711",
    ] {
        let report = Report::of("armel", chip).unwrap();
        // The kernel is for ARMv5 and does not start on ARMv7.
        assert_eq!(report.verdicts("config-"), "wrong-abi", "{chip}");
        assert_eq!(report.modules(), ["wrong-abi"], "{chip}");
    }
    let soft = [
        ("libcrypto.so.3", "no-simd soft-float too-generic"),
        ("libssl.so.3", "no-simd soft-float too-generic"),
        ("openvpn", "no-simd soft-float too-generic"),
    ];
    check("armel", &["ipq8065", "ipq4019", "al514", "bcm2711"], &soft);
    let wide = soft.map(|(name, verdicts)| (name, format!("32-bit-on-64 {verdicts}")));
    let wide: Vec<(&str, &str)> = wide
        .iter()
        .map(|(name, verdicts)| (*name, verdicts.as_str()))
        .collect();
    check("armel", &["mt7986"], &wide);
    // Debian optimises this machine's kernel for size, which is the only finding where the kernel fits the chip.
    check(
        "armel",
        &["88f6281"],
        &[
            ("libcrypto.so.3", "fine"),
            ("openvpn", "fine"),
            ("config-", "size-optimised"),
            ("wireguard.ko", "size-optimised"),
        ],
    );
    // The advice never includes the option that gives up the floating-point unit.
    let advice = Report::of("armel", "ipq8065")
        .unwrap()
        .file("libcrypto.so.3")["flags"]
        .to_string();
    assert!(advice.contains("-mfloat-abi=softfp"), "{advice}");
}

#[test]
fn arm64_is_right_for_64_bit_chips_and_for_no_others() {
    for chip in ["mt7986", "bcm2711"] {
        let Some(report) = Report::of("arm64", chip) else {
            return;
        };
        let mut verdicts: BTreeMap<String, usize> = BTreeMap::new();
        for finding in &report.findings {
            *verdicts.entry(words(finding)).or_default() += 1;
        }
        assert_eq!(verdicts.into_keys().collect::<Vec<_>>(), ["fine"], "{chip}");
        assert!(report.nothing_to_fix, "{chip}");
    }
    let aes = Report::of("arm64", "mt7986")
        .unwrap()
        .evidence("libcrypto.so.3");
    assert!(
        aes.contains(" AES and ") && aes.contains(" PMULL instructions"),
        "{aes}"
    );
    for chip in ["ipq8065", "ipq4019", "al514", "bcm4708"] {
        let report = Report::of("arm64", chip).unwrap();
        let wrong = report
            .findings
            .iter()
            .all(|finding| words(finding) == "wrong-abi");
        assert!(wrong, "{chip}");
    }
}
