//! A whole release from the real trees and manifest with a dummy program, read back by this crate's readers, by dpkg
//! and by systemd.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use tools::packages::assemble::{self, Release};
use tools::packages::key::{Keys, new_p256, new_usign, usign_holds};
use tools::packages::tree::{Kind, Tree};
use tools::packages::{apk, apk_index, deb, index, ipk};

const ARCHITECTURE: &str = "arm_cortex-a15_neon-vfpv4";
/// A dummy program that runs on every chip and prints its arguments.
const PROGRAM: &[u8] = b"#!/bin/sh\necho \"$0 $*\"\n";

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

/// Builds a release for two OpenWrt architectures and one Debian architecture.
fn release(keys: &Keys) -> (TempDir, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let programs = directory.path().join("programs");
    let share = directory.path().join("share");
    let pages = share.join("usr/share/man/man1");
    fs::create_dir_all(&pages).unwrap();
    fs::write(pages.join("millrace.1.gz"), b"page").unwrap();
    fs::create_dir(&programs).unwrap();
    for name in ["cortex-a15-router", "x86_64-router", "x86_64-debian"] {
        fs::write(programs.join(format!("millrace-{name}")), PROGRAM).unwrap();
    }
    let left_out = Release {
        packaging: &packaging(),
        programs: &programs,
        share: Some(&share),
        out: &directory.path().join("out"),
        version: "1.2.3",
        date: 1_700_000_000,
        keys,
    }
    .make()
    .unwrap();
    (directory, left_out)
}

fn keys() -> Keys {
    let mut keys = Keys::default();
    keys.parse(&new_usign().unwrap()).unwrap();
    keys.parse(&new_p256().unwrap()).unwrap();
    keys
}

fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries
        .map(|it| {
            (
                it.file_name().into_string().unwrap(),
                fs::read(it.path()).unwrap(),
            )
        })
        .collect()
}

fn openwrt(directory: &TempDir) -> BTreeMap<String, Vec<u8>> {
    files(&directory.path().join("out/openwrt").join(ARCHITECTURE))
}

/// The packaging files of a package.
fn tree_of(package: &str) -> Tree {
    let mut tree = Tree::default();
    let directory = packaging().join(package);
    if directory.is_dir() {
        tree.add_directory(&directory).unwrap();
    }
    tree
}

#[test]
fn a_dynamically_linked_program_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("millrace-x86_64-router");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let made = Release {
        packaging: &packaging(),
        programs: directory.path(),
        share: None,
        out: &directory.path().join("out"),
        version: "1.2.3",
        date: 1_700_000_000,
        keys: &Keys::default(),
    }
    .make();
    let said = made.unwrap_err().to_string();
    let subject = format!("{}: is dynamically linked", program.display());
    assert!(said.starts_with(&subject), "{said}");
}

#[test]
fn both_formats_of_openwrt_install_the_program_and_all_that_stands_beside_it() {
    let (directory, _) = release(&Keys::default());
    let files = openwrt(&directory);
    let ipk = ipk::read(&files[&format!("millrace_1.2.3-r1_{ARCHITECTURE}.ipk")]).unwrap();
    let apk = apk::read(&files["millrace-1.2.3-r1.apk"]).unwrap();
    for tree in [&ipk.data, &apk.tree] {
        assert_eq!(tree.content("usr/sbin/millrace"), Some(PROGRAM));
        assert_eq!(tree.get("usr/sbin/millrace").unwrap().mode, 0o755);
        assert_eq!(tree.get("etc/millrace").unwrap().mode, 0o700);
        let keep = tree.content("lib/upgrade/keep.d/millrace").unwrap();
        assert!(
            String::from_utf8_lossy(keep)
                .lines()
                .any(|it| it == "/etc/millrace/")
        );
        for (path, entry) in tree_of("openwrt/millrace").iter() {
            let there = tree
                .get(path)
                .unwrap_or_else(|| panic!("{path} is missing"));
            if entry.kind != Kind::Directory {
                assert_eq!(there, entry, "{path}");
            }
            if path.starts_with("etc/init.d/") || path.starts_with("lib/netifd/proto/") {
                assert_eq!(there.mode, 0o755, "{path}");
            }
        }
    }
    assert_eq!(apk.info.architecture, ARCHITECTURE);
    let control = String::from_utf8_lossy(ipk.control.content("control").unwrap());
    assert!(
        control.contains(&format!("\nArchitecture: {ARCHITECTURE}\n")),
        "{control}"
    );
    let other = ipk::read(&files["millrace-openvpn_1.2.3-r1_all.ipk"]).unwrap();
    let link = Kind::Link("millrace".to_owned());
    assert_eq!(other.data.get("usr/sbin/openvpn").unwrap().kind, link);
    let other = apk::read(&files["millrace-openvpn-1.2.3-r1.apk"]).unwrap();
    assert_eq!(other.info.architecture, "noarch");
    assert!(other.info.depends.contains(&"!openvpn-openssl".to_owned()));
    assert_eq!(other.info.provides, ["openvpn=1.2.3-r1"]);
}

#[test]
fn what_is_missing_is_left_out_and_named() {
    let (directory, left_out) = release(&Keys::default());
    let named = |words: &str| left_out.iter().any(|it| it.contains(words));
    assert!(named("millrace-armv7-soft-router"), "{left_out:?}");
    let file = "luci-proto-millrace_1.2.3-r1_all.ipk";
    assert!(openwrt(&directory).contains_key(file));
    assert!(!named("luci-proto-millrace"), "{left_out:?}");
    assert!(
        !directory
            .path()
            .join("out/openwrt/aarch64_generic")
            .exists()
    );
}

#[test]
fn indexes_list_the_packages_and_are_signed() {
    let keys = keys();
    let (directory, _) = release(&keys);
    let files = openwrt(&directory);
    let ipks: Vec<(&str, &[u8])> = files
        .iter()
        .filter(|(name, _)| name.ends_with(".ipk"))
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect();
    let index = String::from_utf8(files["Packages"].clone()).unwrap();
    index::check(&index, &ipks).unwrap();
    let public = |name: &str| {
        let path = directory.path().join("out/openwrt/keys").join(name);
        fs::read_to_string(path).unwrap()
    };
    let signature = String::from_utf8(files["Packages.sig"].clone()).unwrap();
    assert!(usign_holds(
        &public("millrace.pub"),
        &signature,
        index.as_bytes()
    ));
    let point = keys.p256.as_ref().unwrap().point();
    assert_eq!(public("millrace.pem"), keys.p256.as_ref().unwrap().public());
    let infos = apk_index::read(&files["packages.adb"], Some(point)).unwrap();
    for info in &infos {
        let bytes = &files[&format!("{}-{}.apk", info.name, info.version)];
        assert_eq!(info.file_size, bytes.len() as u64);
        assert_eq!(info.identity, apk::identity(bytes).unwrap());
    }
    let apks = files.keys().filter(|it| it.ends_with(".apk")).count();
    assert_eq!(infos.len(), apks);
}

#[test]
fn two_releases_have_the_same_sums() {
    let sums = || assemble::sums(&release(&Keys::default()).0.path().join("out")).unwrap();
    let first = sums();
    assert_eq!(first, sums());
    assert!(first.lines().count() > 10, "{first}");
    assert!(
        first.contains("  debian/millrace_1.2.3-1_amd64.deb\n"),
        "{first}"
    );
}

#[test]
fn the_manifest_and_the_feed_say_the_same() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let makefile = fs::read_to_string(root.join("openwrt/net/millrace/Makefile")).unwrap();
    let manifest = tools::packages::manifest::Manifest::read(&packaging()).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(makefile.contains(&format!("\nPKG_VERSION:={version}\n")));
    assert!(makefile.contains(&format!("\nPKG_RELEASE:={}\n", manifest.revision)));
    let luci = root.join("openwrt/luci/luci-proto-millrace/Makefile");
    let luci = fs::read_to_string(luci).unwrap();
    for package in &manifest.openwrt.package {
        // LuCI packages use LuCI's own build file, which generates the rest of the recipe.
        if package.name.starts_with("luci-") {
            for (name, value) in [
                ("LUCI_TITLE", package.summary.clone()),
                (
                    "LUCI_DESCRIPTION",
                    package.description.trim().replace('\n', " "),
                ),
                (
                    "LUCI_DEPENDS",
                    package
                        .depends
                        .iter()
                        .map(|it| format!("+{it}"))
                        .collect::<Vec<_>>()
                        .join(" "),
                ),
                ("PKG_VERSION", version.to_owned()),
                ("PKG_RELEASE", manifest.revision.to_string()),
                ("PKG_LICENSE", manifest.license.clone()),
            ] {
                assert!(luci.contains(&format!("\n{name}:={value}\n")), "{name}");
            }
            continue;
        }
        assert!(makefile.contains(&format!("define Package/{}\n", package.name)));
        assert!(makefile.contains(&format!("  TITLE:={}\n", package.summary)));
        for line in package.description.lines() {
            assert!(makefile.contains(&format!("  {line}\n")), "{line}");
        }
        for name in &package.depends {
            assert!(makefile.contains(&format!("+{name}")), "{name}");
        }
        let conflicts = package.conflicts.join(" ");
        assert!(conflicts.is_empty() || makefile.contains(&format!("CONFLICTS:={conflicts}\n")));
        if !package.conffiles.is_empty() {
            let conffiles = package.conffiles.join("\n");
            let section = format!(
                "define Package/{}/conffiles\n{conffiles}\nendef\n",
                package.name
            );
            assert!(makefile.contains(&section), "{section}");
        }
    }
}

/// Runs dpkg without touching this machine.
fn dpkg(root: &Path, arguments: &[&str], debs: &[PathBuf]) -> Output {
    Command::new("dpkg")
        .arg(format!("--root={}", root.display()))
        .args([
            "--force-script-chrootless",
            "--force-architecture",
            "--force-depends",
            "--force-not-root",
        ])
        .args(arguments)
        .args(debs)
        .env("DPKG_MAINTSCRIPT_DEBUG", "0")
        .output()
        .unwrap()
}

fn debs(directory: &TempDir) -> Vec<PathBuf> {
    let debian = directory.path().join("out/debian");
    [
        "millrace_1.2.3-1_amd64.deb",
        "millrace-openvpn_1.2.3-1_all.deb",
    ]
    .map(|it| debian.join(it))
    .to_vec()
}

#[test]
fn dpkg_reads_what_our_reader_reads() {
    let has = Command::new("dpkg-deb").arg("--version").output().is_ok();
    if !lab::require_that(has, "dpkg-deb: install dpkg") {
        return;
    }
    let (directory, _) = release(&Keys::default());
    for path in debs(&directory) {
        let run = |option: &str| {
            let output = Command::new("dpkg-deb")
                .arg(option)
                .arg(&path)
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{option} {}: {output:?}",
                path.display()
            );
            String::from_utf8(output.stdout).unwrap()
        };
        let ours = deb::read(&fs::read(&path).unwrap()).unwrap();
        let listed = run("--contents");
        // The archive also contains the root directory.
        assert_eq!(listed.lines().count(), ours.data.iter().count() + 1);
        assert!(
            listed
                .lines()
                .all(|it| it.contains(" root/root ") || it.contains(" 0/0 ")),
            "{listed}"
        );
        for (path, entry) in ours.data.iter() {
            let slash = if entry.kind == Kind::Directory {
                "/"
            } else {
                ""
            };
            assert!(
                listed.contains(&format!(" ./{path}{slash}")),
                "{path}: {listed}"
            );
        }
        assert!(run("--info").contains("Version: 1.2.3-1\n"));
        let control =
            String::from_utf8_lossy(ours.control.content("control").unwrap()).into_owned();
        assert_eq!(run("--field"), control);
    }
}

#[test]
fn what_dpkg_installs_a_purge_takes_away() {
    let is_root = fs::metadata("/proc/self").is_ok_and(|it| {
        use std::os::unix::fs::MetadataExt as _;
        it.uid() == 0
    });
    let has = is_root && Command::new("dpkg").arg("--version").output().is_ok();
    if !lab::require_that(has, "dpkg, and to be root") {
        return;
    }
    let (directory, _) = release(&Keys::default());
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    // Directories that dpkg and systemd need.
    for path in [
        "etc/systemd/system",
        "var/lib/dpkg/info",
        "var/lib/dpkg/updates",
        "var/lib/systemd",
        "var/log",
    ] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let before = paths(root);
    let succeed = |arguments: &[&str], debs: &[PathBuf]| {
        let output = dpkg(root, arguments, debs);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    succeed(&["--install"], &debs(&directory));
    let output = Command::new(root.join("usr/sbin/openvpn"))
        .arg("--version")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("/usr/sbin/openvpn --version\n"));
    for path in [
        "usr/share/man/man1/millrace.1.gz",
        "lib/systemd/system/millrace@.service",
        "etc/millrace",
    ] {
        assert!(root.join(path).exists(), "{path}");
    }
    // Files created by the owner and by the program, which dpkg does not touch.
    fs::write(root.join("etc/millrace/office.ovpn"), "").unwrap();
    fs::create_dir_all(root.join("var/lib/millrace")).unwrap();
    fs::write(root.join("var/lib/millrace/usage"), "").unwrap();
    // Links as `systemctl enable` makes them: a tunnel that other units want too, and a unit of another package.
    let units = root.join("etc/systemd/system");
    for path in ["multi-user.target.wants", "office.target.requires"] {
        fs::create_dir_all(units.join(path)).unwrap();
    }
    let foreign = units.join("multi-user.target.wants/other@x.service");
    let enabled = [
        (
            "multi-user.target.wants/millrace@office.service",
            "millrace@",
        ),
        ("office.target.requires/millrace@two.service", "millrace@"),
        (
            "multi-user.target.wants/openvpn-client@a.service",
            "openvpn-client@",
        ),
        (
            "multi-user.target.wants/openvpn-server@b.service",
            "openvpn-server@",
        ),
    ];
    for (path, unit) in enabled {
        symlink(
            format!("/lib/systemd/system/{unit}.service"),
            units.join(path),
        )
        .unwrap();
    }
    symlink("/lib/systemd/system/other@.service", &foreign).unwrap();
    succeed(&["--install"], &debs(&directory));
    succeed(&["--remove", "millrace-openvpn", "millrace"], &[]);
    assert!(
        root.join("etc/millrace/office.ovpn").exists(),
        "removed, not purged"
    );
    assert!(
        enabled
            .iter()
            .all(|(path, _)| units.join(path).is_symlink()),
        "as enabled as before, should it come back"
    );
    succeed(&["--purge", "millrace-openvpn", "millrace"], &[]);
    assert!(foreign.is_symlink());
    fs::remove_file(&foreign).unwrap();
    fs::remove_dir(units.join("multi-user.target.wants")).unwrap();
    let own = |path: &PathBuf| {
        !path.starts_with(root.join("var/lib/dpkg")) && !path.starts_with(root.join("var/log"))
    };
    let left: Vec<PathBuf> = paths(root)
        .into_iter()
        .filter(|it| !before.contains(it) && own(it))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Returns every path below a directory.
fn paths(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

#[test]
fn units_leave_a_break_in_little() {
    let has = Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_ok();
    if !lab::require_that(has, "systemd-analyze: install systemd") {
        return;
    }
    let units = files(&packaging().join("debian/millrace/lib/systemd/system"));
    for name in units.keys().filter(|it| it.ends_with(".service")) {
        let unit = packaging()
            .join("debian/millrace/lib/systemd/system")
            .join(name);
        let output = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager", "--threshold=24"])
            .arg(&unit)
            .output()
            .unwrap();
        // A score above 2.4, which systemd rounds up to tenths, fails.
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {text}");
    }
}
