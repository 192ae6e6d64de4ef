//! `scripts/packages` and `scripts/release`, with a stand-in for the build script.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};
use tools::packages::compress::unxz;
use tools::packages::deb;

/// A stand-in for `scripts/arm`, whose programs print when they were built. It lists them in the file `built`, and fails
/// after the one that the file `interrupted` names.
const ARM: &str = r#"#!/bin/sh
set -eu
bin=${CARGO_TARGET_DIR:-$PWD/target/arm}/bin
mkdir -p "$bin"
for chip; do
    printf '#!/bin/sh\n# now\n[ "$1" != man ] || echo page >"$2/millrace.1"\n' >"$bin/millrace-$chip-$KINDS"
    chmod 755 "$bin/millrace-$chip-$KINDS"
    echo "$chip-$KINDS" >>"$bin/built"
    [ "$(cat "$bin/interrupted" 2>/dev/null)" != "$chip-$KINDS" ]
done
"#;

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&it| it.to_owned()).collect()
}

/// Makes packages for a chip with these extra variables.
fn run(top: &Path, chip: &str, variables: &[(&str, &Path)]) -> Output {
    run_script("packages", top, chip, variables)
}

fn run_script(name: &str, top: &Path, chip: &str, variables: &[(&str, &Path)]) -> Output {
    let path = format!("{}/bin:{}", top.display(), std::env::var("PATH").unwrap());
    Command::new(top.join("scripts").join(name))
        .env("PATH", path)
        .env("CARGO_TARGET_DIR", top.join("built"))
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .env("OUT", top.join("out"))
        .env("CHIP", chip)
        .env_remove("PROGRAMS")
        .env_remove("STAGE")
        .env_remove("KEY")
        .env_remove("RESUME")
        .env_remove("DRAFT")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

// A single test, because it executes files that it writes: another thread's child could still have them open.
#[test]
fn only_what_is_asked_for_is_packed_and_nothing_older() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = tempfile::tempdir().unwrap();
    let top = scratch.path();
    for file in [
        "scripts/packages",
        "scripts/release",
        "scripts/features",
        "scripts/install",
        "Cargo.toml",
        "Cargo.lock",
        "CHANGELOG.md",
        "LICENSE",
    ] {
        write(
            &top.join(file),
            &fs::read_to_string(root.join(file)).unwrap(),
        );
    }
    symlink(
        fs::canonicalize(root.join("packaging")).unwrap(),
        top.join("packaging"),
    )
    .unwrap();
    write(&top.join("scripts/setup"), "#!/bin/sh\n");
    // Builds nothing, and describes the real workspace.
    let cargo = format!(
        "#!/bin/sh\n[ \"$1\" = metadata ] || exit 0\ncd '{}'\nexec '{}' \"$@\" --offline\n",
        root.display(),
        env!("CARGO")
    );
    write(&top.join("bin/cargo"), &cargo);
    write(&top.join("scripts/arm"), ARM);
    fs::create_dir_all(top.join("built/debug")).unwrap();
    symlink(
        env!("CARGO_BIN_EXE_millrace-packages"),
        top.join("built/debug/millrace-packages"),
    )
    .unwrap();
    // Leftovers of an earlier version.
    for name in ["cortex-a7-router", "aarch64-debian", "x86_64-debian"] {
        write(
            &top.join(format!("built/bin/millrace-{name}")),
            "#!/bin/sh\n# before\n",
        );
    }
    let out = top.join("out");

    let output = run(top, "cortex-a15", &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        names(&out.join("openwrt")),
        set(&["arm_cortex-a15_neon-vfpv4"])
    );
    assert_eq!(names(&out), set(&["openwrt"]), "no Debian has that chip");

    let stage = top.join("stage");
    let output = run(top, "x86_64", &[("STAGE", &stage)]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(names(&out.join("openwrt")), set(&["x86_64"]));
    let staged = ["millrace-x86_64-debian", "millrace-x86_64-router"];
    assert_eq!(names(&stage), set(&staged));
    let debs: Vec<String> = names(&out.join("debian"))
        .into_iter()
        .filter(|it| it.starts_with("millrace_"))
        .collect();
    assert_eq!(debs.len(), 1, "{debs:?}");
    let deb = deb::read(&fs::read(out.join("debian").join(&debs[0])).unwrap()).unwrap();
    let program = String::from_utf8_lossy(deb.data.content("usr/sbin/millrace").unwrap());
    assert!(program.contains("# now"), "{program}");
    assert!(
        deb.data
            .content("usr/share/man/man1/millrace.1.gz")
            .is_some()
    );

    // The script packs existing programs unchanged, and ignores those of other chips.
    let output = run(top, "cortex-a7", &[("PROGRAMS", &top.join("built/bin"))]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        names(&out.join("openwrt")),
        set(&["arm_cortex-a7_neon-vfpv4"])
    );
    assert_eq!(names(&out), set(&["openwrt"]));

    let output = run(top, "cortex-a99", &[]);
    assert!(!output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cortex-a99"));

    if lab::require(lab::tools::find("git")).is_some() {
        an_interrupted_run_goes_on(top);
        a_release_is_whole(top);
    }
}

/// Runs git in a directory, by a configuration of its own.
fn git(top: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.com"])
        .args(arguments)
        .current_dir(top)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn a_release_is_whole(top: &Path) {
    // The changelog has no date for a version that is not released yet.
    let output = run_script("release", top, "", &[("DRAFT", Path::new("1"))]);
    assert!(output.status.success(), "{output:?}");
    let contact = fs::read_to_string(top.join("packaging/packages.toml")).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    for key in ["maintainer", "url"] {
        let line = contact.lines().find(|it| it.starts_with(key)).unwrap();
        let doubted = said.contains(&format!(
            "{key} in packaging/packages.toml is a placeholder"
        ));
        assert_eq!(doubted, line.contains(".invalid"), "{said}");
    }
    let version = env!("CARGO_PKG_VERSION");
    let dist = top.join(format!("target/dist/millrace-{version}"));
    let sums = fs::read_to_string(dist.join("SHA256SUMS")).unwrap();
    let bill = format!("millrace-{version}.cdx.json");
    let archive = format!("millrace-{version}.tar.xz");
    for file in [
        "install.sh",
        "CHANGELOG.md",
        &bill,
        &archive,
        "programs/millrace-mipsel-router",
        "programs/millrace-aarch64-debian",
        "openwrt/riscv64_generic/packages.adb",
        "debian/Release",
    ] {
        assert!(sums.contains(&format!("  {file}\n")), "{file}: {sums}");
    }
    let bill = fs::read_to_string(dist.join(bill)).unwrap();
    for (part, there) in [("rustls", true), ("qrcodegen", true), ("plotters", false)] {
        assert_eq!(bill.contains(&format!("\"{part}\"")), there, "{part}");
    }

    // The commit's files in one directory, as OpenWrt unpacks them, and the same bytes each time.
    let bytes = fs::read(dist.join(&archive)).unwrap();
    let unpacked = top.join("target/unpacked");
    fs::create_dir(&unpacked).unwrap();
    fs::write(top.join("target/source.tar"), unxz(&bytes).unwrap()).unwrap();
    let tar = Command::new("tar")
        .arg("-xf")
        .arg(top.join("target/source.tar"))
        .arg("-C")
        .arg(&unpacked)
        .status();
    assert!(tar.unwrap().success());
    let source = format!("millrace-{version}");
    assert_eq!(names(&unpacked), set(&[&source]));
    let manifest = |top: &Path| fs::read(top.join("Cargo.toml")).unwrap();
    assert_eq!(manifest(&unpacked.join(&source)), manifest(top));
    assert!(
        !unpacked.join(&source).join("built").exists(),
        "not committed"
    );
    let again = run_script("release", top, "x86_64", &[("DRAFT", Path::new("1"))]);
    assert!(again.status.success(), "{again:?}");
    assert!(fs::read(dist.join(&archive)).unwrap() == bytes);
}

fn an_interrupted_run_goes_on(top: &Path) {
    let bin = top.join("built/bin");
    let resume = |value: &str| {
        let _ = fs::remove_file(bin.join("built"));
        let output = run(top, "x86_64 cortex-a7", &[("RESUME", Path::new(value))]);
        let built = fs::read_to_string(bin.join("built")).unwrap_or_default();
        (output.status.success(), built, output)
    };
    fs::write(top.join(".gitignore"), "built\nout\nstage\n").unwrap();
    let (worked, built, output) = resume("1");
    assert!(!worked && built.is_empty(), "no repository: {output:?}");
    for words in [
        &["init", "-q"][..],
        &["add", "."],
        &["commit", "-qm", "one"],
    ] {
        git(top, words);
    }

    // The second of three is interrupted: its program is there, but was not checked.
    fs::write(bin.join("interrupted"), "x86_64-router").unwrap();
    let (worked, built, output) = resume("1");
    assert!(!worked, "{output:?}");
    assert_eq!(built, "cortex-a7-router\nx86_64-router\n");
    fs::remove_file(bin.join("interrupted")).unwrap();
    let (worked, built, output) = resume("1");
    assert!(worked, "{output:?}");
    assert_eq!(built, "x86_64-router\nx86_64-debian\n");
    assert_eq!(resume("1").1, "");

    let all = "cortex-a7-router\nx86_64-router\nx86_64-debian\n";
    assert_eq!(resume("").1, all);
    // A program that somebody built meanwhile, and other sources.
    write(&bin.join("millrace-x86_64-debian"), "#!/bin/sh\n");
    assert_eq!(resume("1").1, "x86_64-debian\n");
    fs::write(top.join("new"), "").unwrap();
    let (worked, built, output) = resume("1");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !worked && built.is_empty() && said.contains("commit"),
        "{said}"
    );
    assert_eq!(resume("").1, all);
    for words in [&["add", "."][..], &["commit", "-qm", "two"]] {
        git(top, words);
    }
    assert_eq!(resume("1").1, all);
}
