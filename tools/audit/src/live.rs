//! Audit of the running box: its kernel, that kernel's ciphers, its accelerators, and the programs and
//! libraries that a tunnel would use.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::examine::{Audit, AuditError, Chosen, Examiner};
use crate::soc::{Live, Soc, Table};
use crate::unpack::{Entry, EntryKind, Visitor};

/// Directories below the root that hold programs and libraries.
const DIRECTORIES: [&str; 8] = [
    "lib",
    "lib64",
    "usr/lib",
    "usr/lib64",
    "usr/sbin",
    "usr/bin",
    "usr/local/lib",
    "usr/local/sbin",
];

/// Name prefixes of the files in which a tunnel spends its time.
const HOT: [&str; 9] = [
    "libcrypto.",
    "libssl.",
    "libmbed",
    "libwolfssl",
    "openvpn",
    "wireguard",
    "millrace",
    "libc.so",
    "libsodium",
];

/// Name parts of the kernel modules in which a tunnel spends its time.
const MODULES: [&str; 6] = ["wireguard", "chacha", "poly1305", "aes", "ghash", "sha"];

/// Largest file that the audit reads, in bytes.
const FILE_MAX: u64 = 64 << 20;
/// Maximum number of files that the audit reads.
const FILES_MAX: usize = 2000;

/// The report on a box.
#[derive(Debug)]
pub struct LiveAudit<'t> {
    /// Facts that the system reports about itself, one per line.
    pub facts: Vec<String>,
    /// The report, or why there is none: for example, the table lacks the box's chip.
    pub audit: Result<Audit<'t>, AuditError>,
}

/// Judges the box below `root` for the `chosen` chip, or for the chip that the box reports.
///
/// # Errors
/// The error of reading `/proc/cpuinfo`.
pub fn live<'t>(
    root: &Path,
    table: &'t Table,
    chosen: Option<Chosen<'t>>,
) -> io::Result<LiveAudit<'t>> {
    let live = Live::read(root)?;
    let chosen = chosen.or_else(|| live.find(table).map(Chosen::from));
    let facts = facts(&live);
    let mut examiner = Examiner::default();
    if !live.config.is_empty() {
        let lines = live
            .config
            .iter()
            .map(|(option, value)| format!("{option}={value}\n"));
        let text = format!("# Kernel Configuration\n{}", lines.collect::<String>());
        let path = live.config_file.as_deref().unwrap_or("kernel-config");
        see(&mut examiner, path, text.as_bytes());
    }
    for path in files(root, live.release.as_deref()) {
        let shown = format!("/{}", path.strip_prefix(root).unwrap_or(&path).display());
        match fs::read(&path) {
            Ok(bytes) => see(&mut examiner, &shown, &bytes),
            Err(error) => examiner.skipped("", &shown, &error.to_string()),
        }
    }
    let mut audit = examiner.finish("this box", table, chosen);
    if let Ok(audit) = &mut audit {
        features(audit.chip.soc, &live, &mut audit.chip.because);
    }
    Ok(LiveAudit { facts, audit })
}

fn see(examiner: &mut Examiner<'_>, path: &str, data: &[u8]) {
    examiner.entry(&Entry {
        path,
        origin: "",
        kind: EntryKind::File,
        data,
    });
}

/// The files in which a tunnel spends its time.
fn files(root: &Path, release: Option<&str>) -> Vec<PathBuf> {
    let mut directories: BTreeSet<PathBuf> = DIRECTORIES
        .into_iter()
        .map(|name| root.join(name))
        .collect();
    // Debian's multiarch directories, such as /usr/lib/arm-linux-gnueabihf.
    for entry in root
        .join("usr/lib")
        .read_dir()
        .into_iter()
        .flatten()
        .flatten()
    {
        if entry.file_name().to_string_lossy().contains("-linux-") {
            directories.insert(entry.path());
        }
    }
    let mut found = BTreeSet::new();
    let mut files = Vec::new();
    for directory in directories {
        collect(
            &directory,
            0,
            &|name| HOT.iter().any(|hot| name.starts_with(hot)),
            &mut found,
            &mut files,
        );
    }
    if let Some(release) = release {
        let modules = root.join("lib/modules").join(release);
        let hot =
            |name: &str| name.ends_with(".ko") && MODULES.iter().any(|part| name.contains(part));
        collect(&modules, 6, &hot, &mut found, &mut files);
    }
    files
}

fn collect(
    directory: &Path,
    depth: u32,
    wanted: &dyn Fn(&str) -> bool,
    found: &mut BTreeSet<PathBuf>,
    files: &mut Vec<PathBuf>,
) {
    for entry in directory.read_dir().into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let path = entry.path();
        if kind.is_dir() && depth > 0 {
            collect(&path, depth - 1, wanted, found, files);
        } else if kind.is_file()
            && wanted(&entry.file_name().to_string_lossy())
            && entry.metadata().is_ok_and(|meta| meta.len() <= FILE_MAX)
            && files.len() < FILES_MAX
            // /lib and /usr/lib are often one directory.
            && found.insert(path.canonicalize().unwrap_or_else(|_| path.clone()))
        {
            files.push(path);
        }
    }
}

/// Reports the features that the table promises but the kernel does not show.
fn features(soc: &Soc, live: &Live, because: &mut String) {
    let shown = |names: &[&str]| names.iter().any(|name| live.has(name));
    if soc.core.isa.is_arm() && soc.core.neon && soc.is_sure("neon") && !shown(&["neon", "asimd"]) {
        *because += "; the kernel does not show its NEON";
    }
    if soc.core.aes && soc.is_sure("aes") && !shown(&["aes"]) {
        *because += "; the kernel does not show its AES instructions";
    }
}

fn facts(live: &Live) -> Vec<String> {
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.push(format!("{name}: {value}"));
        }
    };
    fact("board", live.model.clone().or_else(|| live.system.clone()));
    let cores: Vec<String> = live
        .cpus
        .iter()
        .map(|cpu| match cpu.name {
            Some(name) => name.to_owned(),
            None => format!("implementer {:#x}, part {:#x}", cpu.implementer, cpu.part),
        })
        .collect();
    let cores = if cores.is_empty() {
        live.cpu_model.clone().unwrap_or_default()
    } else {
        cores.join(" and ")
    };
    fact("processors", Some(format!("{} x {cores}", live.processors)));
    let telling = [
        "neon", "asimd", "vfpv3", "vfpv4", "idiva", "aes", "pmull", "sha1", "sha2", "atomics",
        "crc32", "avx2", "avx512f", "vaes",
    ];
    let has: Vec<&str> = telling.into_iter().filter(|name| live.has(name)).collect();
    fact("features", Some(has.join(" ")));
    fact(
        "kernel",
        live.release.clone().map(|release| match &live.config_file {
            Some(file) => format!("{release}, its configuration in {file}"),
            None => format!("{release}, which does not show its configuration"),
        }),
    );
    for name in ["gcm(aes)", "cbc(aes)", "rfc7539(chacha20,poly1305)"] {
        let drivers = live.drivers_of(name);
        let drivers: Vec<&str> = drivers
            .iter()
            .take(3)
            .map(|driver| driver.driver.as_str())
            .collect();
        fact(&format!("kernel's {name}"), Some(drivers.join(", ")));
    }
    let engines: BTreeSet<&str> = live
        .drivers
        .iter()
        .filter(|d| d.asynchronous && is_accelerator(&d.driver))
        .map(|d| d.driver.as_str())
        .collect();
    fact(
        "engines",
        Some(engines.into_iter().take(12).collect::<Vec<_>>().join(", ")),
    );
    let ways: Vec<&str> = [
        (live.dev_crypto, "/dev/crypto"),
        (live.af_alg == Some(true), "AF_ALG"),
    ]
    .into_iter()
    .filter_map(|(there, name)| there.then_some(name))
    .collect();
    fact(
        "ways to them",
        Some(if ways.is_empty() {
            "none".to_owned()
        } else {
            ways.join(", ")
        }),
    );
    facts
}

/// Whether `driver` is a hardware accelerator: the kernel's own wrappers around SIMD code are asynchronous too.
fn is_accelerator(driver: &str) -> bool {
    ![
        "cryptd", "simd-", "-neon", "-ce", "-aesni", "generic", "mcryptd", "-arm", "-avx", "pcrypt",
    ]
    .iter()
    .any(|software| driver.contains(software))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_judged_by_its_kernel_and_by_what_it_runs() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, bytes: &[u8]| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        put("proc/cpuinfo", b"processor\t: 0\nFeatures\t: half thumb vfp neon vfpv4 idiva idivt\nCPU implementer\t: 0x51\nCPU part\t: 0x06f\n");
        put("proc/sys/kernel/osrelease", b"5.4.0\n");
        put(
            "proc/device-tree/compatible",
            b"netgear,r7800\0qcom,ipq8065\0",
        );
        put("boot/config-5.4.0", b"CONFIG_ARM=y\nCONFIG_CPU_V7=y\nCONFIG_SMP=y\nCONFIG_VFP=y\n# CONFIG_NEON is not set\n");
        let report = live(root.path(), Table::builtin(), None).unwrap();
        assert!(
            report.facts.iter().any(|fact| fact.contains("Krait")),
            "{:?}",
            report.facts
        );
        let audit = report.audit.unwrap();
        assert_eq!(audit.chip.soc.id, "ipq8065");
        let kernel = &audit.findings[0];
        assert!(kernel.is_worth_fixing(), "{kernel:?}");
        assert!(kernel.flags.contains("CONFIG_NEON=y"), "{kernel:?}");
    }

    #[test]
    fn engines_are_not_the_kernels_own_code() {
        for (driver, accelerator) in [
            ("cbc-aes-qce", true),
            ("safexcel-gcm-aes", true),
            ("cbc-aes-ce", false),
            ("__ecb-aes-neonbs", false),
        ] {
            assert_eq!(is_accelerator(driver), accelerator, "{driver}");
        }
    }
}
