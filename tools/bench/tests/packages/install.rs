//! `scripts/install` on a release that is made of a dummy program: right package for each machine, and nothing at all
//! from a release that is not whole or not signed. Package managers are stand-ins that note their arguments.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use tools::packages::assemble::{self, Release};
use tools::packages::key::{Keys, new_p256};

const PROGRAM: &str = "#!/bin/sh\necho a program\n";

/// A release, and a machine that it is installed on.
struct World {
    directory: TempDir,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (world, keys) = (Self { directory }, new_p256().unwrap());
        let release = world.at("release");
        for name in [
            "aarch64-router",
            "x86_64-router",
            "x86_64-debian",
            "riscv64-router",
        ] {
            let path = format!("release/programs/millrace-{name}");
            world.write(&path, &format!("{PROGRAM}# {name}\n"));
        }
        let mut all = Keys::default();
        all.parse(&keys).unwrap();
        Release {
            packaging: &root().join("packaging"),
            programs: &release.join("programs"),
            share: None,
            out: &release,
            version: "1.2.3",
            date: 1_700_000_000,
            keys: &all,
        }
        .make()
        .unwrap();
        let script = fs::read_to_string(root().join("scripts/install")).unwrap();
        world.write("release/install.sh", &script);
        world.write("p256.pem", &keys);
        let made = Command::new(env!("CARGO_BIN_EXE_millrace-packages"))
            .args(["sums", "--out"])
            .arg(&release)
            .arg("--key")
            .arg(world.at("p256.pem"))
            .status();
        assert!(made.unwrap().success());
        let public = release.join("openwrt/keys/millrace.pem");
        fs::copy(public, world.at("millrace.pem")).unwrap();
        fs::create_dir(world.at("root")).unwrap();
        world
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    /// Writes a file that can be executed.
    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Makes the machine's programs: each notes its arguments, then does what `text` says.
    fn has(&self, programs: &[(&str, &str)]) {
        for (name, text) in programs {
            let note = format!(
                "#!/bin/sh\necho \"{name} $*\" >>'{}'\n{text}\n",
                self.at("notes").display()
            );
            self.write(&format!("bin/{name}"), &note);
        }
    }

    /// The arguments that the programs noted.
    fn notes(&self) -> String {
        fs::read_to_string(self.at("notes")).unwrap_or_default()
    }

    fn install(&self, arguments: &[&str]) -> Output {
        // Only the ordinary programs of a small system, so that this machine's package manager is not found.
        for name in [
            "awk",
            "cat",
            "chmod",
            "cp",
            "cut",
            "dirname",
            "grep",
            "head",
            "id",
            "mkdir",
            "mktemp",
            "mv",
            "openssl",
            "rm",
            "sed",
            "sh",
            "sha256sum",
            "tr",
        ] {
            let link = self.at("bin").join(name);
            let found = ["/usr/bin", "/bin"].map(|it| Path::new(it).join(name));
            let found = found.into_iter().find(|it| it.exists());
            fs::create_dir_all(self.at("bin")).unwrap();
            let _ = std::os::unix::fs::symlink(found.unwrap(), link);
        }
        Command::new("/bin/sh")
            .arg(self.at("release/install.sh"))
            .args(arguments)
            .env_clear()
            .env("PATH", self.at("bin"))
            .env("MILLRACE_TEST_ROOT", self.at("root"))
            .current_dir(self.at(""))
            .output()
            .unwrap()
    }

    /// Installs with the publisher's key; returns what the programs noted.
    fn installs(&self) -> String {
        let _ = fs::remove_file(self.at("notes"));
        let output = self.install(&["--key", "millrace.pem"]);
        assert!(output.status.success(), "{output:?}");
        self.notes()
    }

    /// Expects a refusal that contains these words, with nothing installed.
    fn refuses(&self, arguments: &[&str], words: &str) {
        let _ = fs::remove_file(self.at("notes"));
        let output = self.install(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(words),
            "{output:?}"
        );
        let notes = self.notes();
        assert!(
            !notes.contains("install") && !notes.contains("add"),
            "{notes}"
        );
        assert!(!self.at("root/usr").exists());
    }
}

// A single test, because it executes files that it writes: another thread's child could still have them open.
#[test]
fn each_machine_gets_its_package_and_a_doubtful_release_none() {
    let world = World::new();
    let key = ["--key", "millrace.pem"];
    let uname = |machine: &str| world.has(&[("uname", &format!("echo {machine}"))]);

    // Without a package manager: the static program with the most features.
    for (machine, wanted) in [("x86_64", "x86_64-debian"), ("riscv64", "riscv64-router")] {
        uname(machine);
        world.installs();
        let program = world.at("root/usr/local/sbin/millrace");
        let text = fs::read_to_string(&program).unwrap();
        assert_eq!(text, format!("{PROGRAM}# {wanted}\n"));
        assert_eq!(
            fs::metadata(program).unwrap().permissions().mode() & 0o777,
            0o755
        );
    }
    fs::remove_dir_all(world.at("root/usr")).unwrap();
    uname("mips");
    world.refuses(&key, "two byte orders");
    uname("sparc");
    world.refuses(&key, "no program for this machine: sparc");

    // Debian. An architecture without a package gets the static program too.
    world.has(&[("dpkg", "echo amd64"), ("apt-get", "cat \"$3\" >/dev/null")]);
    let noted = world.installs();
    assert!(
        noted.contains("apt-get install -y /") && noted.contains("/millrace_1.2.3-1_amd64.deb\n"),
        "{noted}"
    );
    world.has(&[("dpkg", "echo s390x")]);
    world.refuses(&key, "no program for this machine: sparc");
    world.has(&[("dpkg", "echo amd64")]);

    // OpenWrt with opkg: its architecture is the last that the release has. Its lists are missing at first.
    world.write("root/etc/openwrt_release", "");
    let flag = world.at("updated").display().to_string();
    let opkg = |architectures: &str| {
        let text = format!(
            "case $1 in print-architecture) printf '{architectures}' ;; update) : >{flag} ;; install) [ -e {flag} ] ;; esac"
        );
        world.has(&[("opkg", &text)]);
    };
    opkg("arch all 1\\narch noarch 1\\narch aarch64_generic 10\\narch aarch64_cortex-a72 20\\n");
    let noted = world.installs();
    let asked: Vec<&str> = noted.lines().filter(|it| it.starts_with("opkg ")).collect();
    assert_eq!(asked.len(), 4, "{noted}");
    assert!(
        asked[3].ends_with("/millrace_1.2.3-r1_aarch64_cortex-a72.ipk"),
        "{noted}"
    );
    assert_eq!(asked[2], "opkg update");
    opkg("arch all 1\\narch powerpc_8548 10\\n");
    world.refuses(&key, "no package for this router: all powerpc_8548");

    // OpenWrt with apk.
    world.has(&[("apk", "")]);
    world.write("root/etc/apk/arch", "x86_64\n");
    let noted = world.installs();
    assert!(
        noted.contains("apk add --allow-untrusted /") && noted.contains("/millrace-1.2.3-r1.apk\n"),
        "{noted}"
    );

    // The origin.
    world.refuses(&[], "--key FILE");
    world.refuses(&["--key", "nothing.pem"], "cannot read the key");
    world.refuses(
        &["--from", "nowhere", "--unsigned"],
        "cannot get nowhere/SHA256SUMS",
    );
    world.write("usign.pub", "untrusted comment: a key\n");
    world.refuses(&["--key", "usign.pub"], "SHA256SUMS.sig");
    fs::write(world.at("release/SHA256SUMS.sig"), "").unwrap();
    world.refuses(
        &["--key", "usign.pub"],
        "no program here checks such a signature",
    );
    world.has(&[("usign", "exit 1")]);
    world.refuses(&["--key", "usign.pub"], "not signed with the key usign.pub");
    world.has(&[("usign", "")]);
    assert!(world.install(&["--key", "usign.pub"]).status.success());
    let noted = world.notes();
    assert!(noted.contains("usign -V -q -p usign.pub -x /"), "{noted}");
    let mut other = Keys::default();
    other.parse(&new_p256().unwrap()).unwrap();
    world.write("other.pem", &other.p256.unwrap().public());
    world.refuses(&["--key", "other.pem"], "not signed with the key other.pem");

    // Files that differ from what was signed: a package, and then the list that names it.
    let package = world.at("release/openwrt/x86_64/millrace-1.2.3-r1.apk");
    let whole = fs::read(&package).unwrap();
    fs::write(&package, [&whole[..], b"x"].concat()).unwrap();
    world.refuses(&key, "is not the file that SHA256SUMS names");
    world.refuses(&["--unsigned"], "is not the file that SHA256SUMS names");
    let sums = assemble::sums(&world.at("release")).unwrap();
    fs::write(world.at("release/SHA256SUMS"), sums).unwrap();
    world.refuses(&key, "not signed with the key millrace.pem");
    assert!(world.install(&["--unsigned"]).status.success());
}

/// A release has the programs that the manifest asks for; texts must not name others, or files of another version.
#[test]
fn texts_and_the_installer_name_programs_of_a_release() {
    let output = Command::new(env!("CARGO_BIN_EXE_millrace-packages"))
        .args(["programs", "--packaging"])
        .arg(root().join("packaging"))
        .output()
        .unwrap();
    let programs = String::from_utf8(output.stdout).unwrap();
    let programs: Vec<String> = programs.lines().map(|it| it.replace(' ', "-")).collect();
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();

    let mut named = 0;
    for path in [
        "README.md",
        "RELEASING.md",
        "docs/packaging.md",
        "docs/arm.md",
        "scripts/install",
    ] {
        for word in read(path).split("millrace-").skip(1) {
            let is_part = |it: char| it.is_ascii_alphanumeric() || "-.".contains(it);
            let word = word.split(|it| !is_part(it)).next().unwrap();
            if word.ends_with("-router") || word.ends_with("-debian") {
                let placeholder = word.starts_with("CHIP-");
                assert!(
                    placeholder || programs.iter().any(|it| it == word),
                    "{path}: {word}"
                );
                named += 1;
            }
        }
    }
    assert!(named > 3, "{named} names");
    // Chips that the installer derives from the machine's name.
    let installer = read("scripts/install");
    for rest in installer.split("chip=").skip(1) {
        let is_part = |it: char| it.is_ascii_alphanumeric() || "_-".contains(it);
        let chip = rest.split(|it| !is_part(it)).next().unwrap();
        let is_there = programs.contains(&format!("{chip}-router"));
        assert!(chip.is_empty() || is_there, "{chip}: {programs:?}");
    }
    let count = format!("The {} programs", programs.len());
    assert!(read("RELEASING.md").contains(&count), "{count}");

    let version = env!("CARGO_PKG_VERSION");
    for path in ["README.md", "docs/packaging.md"] {
        for word in read(path).split("millrace-").skip(1) {
            let word = word
                .split(|it: char| it != '.' && !it.is_ascii_digit())
                .next()
                .unwrap();
            assert!(
                word.is_empty() || word == version,
                "{path}: millrace-{word}"
            );
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
