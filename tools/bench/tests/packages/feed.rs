//! The feed's Makefiles, run by make with stand-ins for OpenWrt's files: those of this repository, and those that
//! `make feed` writes. Both build the same program as `make packages` and install the same files.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use tools::packages::feed::{self, LUCI, NET};
use tools::packages::hash;
use tools::packages::manifest::Manifest;
use tools::packages::tree::{Kind, Tree};

/// The part of OpenWrt's build system that the Makefile uses: make expands a package's recipe at its definition and
/// again when it runs.
const PACKAGE_MK: &str = r#"
INSTALL_DIR = install -d -m0755
INSTALL_BIN = install -m0755
INSTALL_CONF = install -m0600
LN = ln -sf
PKG_UNPACK ?= false
all:
prepare:
	mkdir -p $(PKG_BUILD_DIR)
	$(PKG_UNPACK)
define BuildPackage
all: install-$(1)
install-$(1):
	mkdir -p $(OUT)/$(1)
	$(call Package/$(1)/install,$(OUT)/$(1))
	$(foreach it,postinst prerm,printf '%s' "$$$$SCRIPT_$(it)_$(subst -,_,$(1))" >$(OUT)/$(1).$(it);)
$(foreach it,postinst prerm,$(if $(Package/$(1)/$(it)),$(eval export SCRIPT_$(it)_$(subst -,_,$(1))=$$(Package/$(1)/$(it)))))
endef
"#;

/// The part of LuCI's feed that the package's Makefile uses: it copies `root` unchanged, and `htdocs` into /www.
const LUCI_MK: &str = r#"
all:
	mkdir -p $(OUT)/$(notdir $(CURDIR))
	cp -pR $(CURDIR)/root/* $(OUT)/$(notdir $(CURDIR))/
	[ ! -d htdocs ] || cp -pR htdocs/. $(OUT)/$(notdir $(CURDIR))/www
"#;

/// A checksum that stands in the written Makefile.
const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::canonicalize(root).unwrap()
}

fn manifest() -> Manifest {
    Manifest::read(&root().join("packaging")).unwrap()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A build system with stand-ins for OpenWrt's files, and the feeds that `make feed` writes.
struct World(TempDir);

impl World {
    fn new() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        let rust = "define RustBinPackage\nendef\n";
        for (path, text) in [
            ("rules.mk", ""),
            ("include/package.mk", PACKAGE_MK),
            ("feeds/packages/lang/rust/rust-package.mk", rust),
            ("feeds/luci/luci.mk", LUCI_MK),
            ("bin/millrace", "program"),
            // Feeds find the files of others beside their own.
            ("written/packages/lang/rust/rust-package.mk", rust),
            ("written/luci/luci.mk", LUCI_MK),
            // Of an earlier version.
            ("written/packages/net/millrace/files/etc/init.d/old", ""),
        ] {
            write(&world.at(path), text);
        }
        feed::write(&root(), &manifest(), HASH, &world.at("written")).unwrap();
        world
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// The directories of both packages: in this repository, and as they lie in the feeds.
    fn packages(&self) -> [[PathBuf; 2]; 2] {
        let own = ["net/millrace", "luci/luci-proto-millrace"];
        [
            own.map(|it| root().join("openwrt").join(it)),
            [NET, LUCI].map(|it| self.at("written").join(it)),
        ]
    }

    /// Runs make in a package's directory.
    fn run(&self, package: &Path, arguments: &[&str]) -> Output {
        let top = self.0.path().display();
        Command::new("make")
            .arg("-C")
            .arg(package)
            .arg("--no-print-directory")
            .arg(format!("TOPDIR={top}"))
            .arg(format!("INCLUDE_DIR={top}/include"))
            .arg(format!("PKG_INSTALL_DIR={top}"))
            .arg(format!("PKG_BUILD_DIR={top}/build"))
            .arg(format!("OUT={top}/out"))
            .args(arguments)
            .env_remove("MILLRACE_TREE")
            .output()
            .unwrap()
    }

    /// Runs make for a package, and returns its output.
    fn make(&self, package: &Path, arguments: &[&str]) -> String {
        let output = self.run(package, arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The value of a variable at the end of a package's Makefile.
    fn value(&self, package: &Path, name: &str, arguments: &[&str]) -> String {
        let rule = format!("--eval=show: ; @echo '$({name})'");
        let all = [&[rule.as_str(), "show"], arguments].concat();
        self.make(package, &all).trim_end().to_owned()
    }
}

fn has_make() -> bool {
    let has = Command::new("make").arg("--version").output().is_ok();
    lab::require_that(has, "make: install make")
}

/// A package without a feature that the handler needs can be built and installed, and runs no interface.
#[test]
fn the_feed_builds_the_program_of_the_packages() {
    if !has_make() {
        return;
    }
    let world = World::new();
    let features = Command::new("sh")
        .args(["-euc", ". scripts/features; printf %s $router_features"])
        .current_dir(root())
        .output()
        .unwrap();
    let features = String::from_utf8(features.stdout).unwrap();
    let manifest = manifest();
    for [net, luci] in world.packages() {
        let net = |name| world.value(&net, name, &[]);
        assert_eq!(net("RUST_PKG_FEATURES"), features);
        assert_eq!(net("CARGO_PKG_PROFILE"), "router");
        assert_eq!(net("PKG_MAINTAINER"), manifest.maintainer);
        assert_eq!(net("PKG_LICENSE"), manifest.license);
        assert!(root().join(net("PKG_LICENSE_FILES")).is_file());
        let luci = |name| world.value(&luci, name, &[]);
        assert_eq!(luci("LUCI_MAINTAINER"), manifest.maintainer);
        assert_eq!(luci("LUCI_URL"), manifest.url);
        assert_eq!(luci("PKG_LICENSE"), manifest.license);
    }
}

#[test]
fn a_feed_downloads_the_archive_and_this_repository_builds_itself() {
    if !has_make() {
        return;
    }
    let world = World::new();
    let [[own, _], [written, _]] = world.packages();
    let archive = format!("millrace-{}.tar.xz", env!("CARGO_PKG_VERSION"));
    let url = format!(
        "{}/releases/download/v{}",
        manifest().url,
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(world.value(&written, "PKG_SOURCE", &[]), archive);
    assert_eq!(world.value(&written, "PKG_SOURCE_URL", &[]), url);
    assert_eq!(world.value(&written, "PKG_HASH", &[]), HASH);

    assert_eq!(world.value(&own, "PKG_SOURCE_URL", &[]), "");
    assert_eq!(Path::new(&world.value(&own, "MILLRACE_TREE", &[])), root());
    for path in ["tree/Cargo.toml", "tree/target/large", "tree/.git/HEAD"] {
        write(&world.at(path), "");
    }
    let tree = format!("MILLRACE_TREE={}", world.at("tree").display());
    world.make(&own, &["prepare", &tree]);
    let copied = tree_of(&world.at("build"));
    let copied: Vec<&str> = copied.iter().map(|it| it.0).collect();
    assert_eq!(copied, ["Cargo.toml"]);

    // The archive needs the hash of a release; `skip` would make OpenWrt accept any bytes.
    for hash in ["", "skip", &HASH[1..], "0123456789ABCDEF"] {
        let hash = format!("MILLRACE_HASH={hash}");
        let output = world.run(&own, &["-n", "prepare", "MILLRACE_TREE=", &hash]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{hash}");
        assert!(
            said.contains("SHA256SUMS") && said.contains("MILLRACE_HASH"),
            "{said}"
        );
    }
    let archive = ["MILLRACE_TREE=", &format!("MILLRACE_HASH={HASH}")];
    assert_eq!(world.value(&own, "PKG_SOURCE_URL", &archive), url);
    assert_eq!(world.value(&own, "PKG_HASH", &archive), HASH);
}

#[test]
fn a_written_feed_is_whole_and_needs_nothing_of_this_repository() {
    let world = World::new();
    let packaging = root().join("packaging/openwrt");
    let paths = |directory: &Path, place: &dyn Fn(&str) -> String| -> BTreeSet<String> {
        let tree = tree_of(directory);
        let files = tree.iter().filter(|it| it.1.kind != Kind::Directory);
        files.map(|it| place(it.0)).collect()
    };
    let written = |package| paths(&world.at("written").join(package), &str::to_owned);

    let mut net = paths(&packaging.join("millrace"), &|it| format!("files/{it}"));
    net.extend(["Makefile", "test.sh"].map(str::to_owned));
    assert_eq!(written(NET), net);
    let mut luci = paths(
        &packaging.join("luci-proto-millrace"),
        &|it| match it.strip_prefix("www/") {
            Some(it) => format!("htdocs/{it}"),
            None => format!("root/{it}"),
        },
    );
    luci.insert("Makefile".to_owned());
    let (translations, rest): (BTreeSet<String>, BTreeSet<String>) = written(LUCI)
        .into_iter()
        .partition(|it| it.starts_with("po/"));
    assert_eq!(rest, luci);
    let po = packaging.join("luci-proto-millrace.po");
    let po = if po.is_dir() {
        paths(&po, &|it| format!("po/{it}"))
    } else {
        BTreeSet::new()
    };
    assert_eq!(translations, po);

    for package in [NET, LUCI] {
        let directory = world.at("written").join(package);
        for (path, entry) in tree_of(&directory).iter() {
            assert!(!matches!(entry.kind, Kind::Link(_)), "{path}: a link");
            let text = String::from_utf8_lossy(entry.content());
            assert!(!text.contains('\r'), "{path}: CRLF");
            assert!(
                text.is_empty() || text.ends_with('\n'),
                "{path}: no newline at its end"
            );
            assert_eq!(
                entry.mode & 0o111 != 0,
                entry.kind == Kind::Directory || text.starts_with("#!"),
                "{path}: mode {:o}",
                entry.mode
            );
        }
        let makefile = fs::read_to_string(directory.join("Makefile")).unwrap();
        assert!(
            !makefile.contains("MILLRACE") && !makefile.contains("tree.mk"),
            "{makefile}"
        );
    }
}

#[test]
fn a_variable_without_a_literal_and_a_link_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let top = scratch.path();
    for package in ["net/millrace", "luci/luci-proto-millrace"] {
        let makefile = fs::read_to_string(root().join("openwrt").join(package).join("Makefile"));
        write(
            &top.join("openwrt").join(package).join("Makefile"),
            &makefile.unwrap(),
        );
    }
    write(&top.join("openwrt/net/millrace/test.sh"), "");
    let files = top.join("packaging/openwrt");
    for name in [
        "millrace.postinst",
        "millrace.prerm",
        "millrace/etc/a",
        "luci-proto-millrace/www/a",
    ] {
        write(&files.join(name), "");
    }
    let attempt = || feed::write(top, &manifest(), HASH, &top.join("out"));
    attempt().unwrap();
    symlink("a", files.join("millrace/etc/b")).unwrap();
    let said = attempt().unwrap_err().to_string();
    assert!(
        said.contains("etc/b: a package of the feed must not contain a link"),
        "{said}"
    );
    fs::remove_file(files.join("millrace/etc/b")).unwrap();
    write(
        &top.join("openwrt/net/millrace/Makefile"),
        "A:=$(MILLRACE_OTHER)\n",
    );
    let said = attempt().unwrap_err().to_string();
    assert!(
        said.contains("net/millrace/Makefile: MILLRACE_OTHER has no literal"),
        "{said}"
    );
}

#[test]
fn a_feed_needs_the_archive_of_a_release_and_a_contact() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |path: &str| scratch.path().join(path);
    let attempt = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_millrace-packages"))
            .arg("feed")
            .arg("--root")
            .arg(root())
            .arg("--archive")
            .arg(at("a.tar.xz"))
            .arg("--out")
            .arg(at("out"))
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let (worked, said) = attempt(&["--draft"]);
    assert!(
        !worked && said.contains("`make release` writes this archive"),
        "{said}"
    );
    fs::write(at("a.tar.xz"), "archive").unwrap();
    if manifest().maintainer.ends_with(".invalid>") {
        let (worked, said) = attempt(&[]);
        assert!(
            !worked && said.contains("maintainer is a placeholder"),
            "{said}"
        );
    }
    assert!(!at("out").exists());
    assert_eq!(attempt(&["--draft"]), (true, String::new()));
    let makefile = fs::read_to_string(at("out").join(NET).join("Makefile")).unwrap();
    let hash = hash::hex(&hash::sha256(b"archive"));
    assert!(
        makefile.contains(&format!("\nPKG_HASH:={hash}\n")),
        "{makefile}"
    );

    let mut real = manifest();
    for (maintainer, url, fault) in [
        ("A <a@example.org>", "https://example.org", None),
        ("A <a@b.invalid>", "https://example.org", Some("maintainer")),
        ("A <a@example.org>", "", Some("url")),
    ] {
        (real.maintainer, real.url) = (maintainer.to_owned(), url.to_owned());
        let said = feed::check_contact(&real).err().map(|it| it.to_string());
        assert_eq!(said.is_some(), fault.is_some(), "{said:?}");
        assert!(said.is_none_or(|it| it.contains(fault.unwrap())));
    }
}

/// OpenWrt's tests run `test.sh` with each package's name and version on the system that has installed it.
#[test]
fn the_test_of_the_feed_accepts_only_its_version() {
    let scratch = tempfile::tempdir().unwrap();
    let program = "#!/bin/sh\n[ \"$1\" != check ] || grep -q '^PrivateKey = key$' \"$2\" || exit 1\n\
                   case $1 in genkey) echo key ;; *) echo \"${0##*/} 1.2.3\" ;; esac\n";
    for name in ["millrace", "openvpn"] {
        let path = scratch.path().join(name);
        fs::write(&path, program).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!(
        "{}:{}",
        scratch.path().display(),
        std::env::var("PATH").unwrap()
    );
    let accepts = |package: &str, version: &str| {
        let status = Command::new("sh")
            .arg(root().join("openwrt/net/millrace/test.sh"))
            .args([package, version])
            .env("PATH", &path)
            .env("TMPDIR", scratch.path())
            .stdout(std::process::Stdio::null())
            .status();
        status.unwrap().success()
    };
    for package in ["millrace", "millrace-openvpn"] {
        assert!(accepts(package, "1.2.3"), "{package}");
        assert!(!accepts(package, "1.2.4"), "{package}");
    }
}

#[test]
fn the_feed_installs_what_is_packed() {
    if !has_make() {
        return;
    }
    let packaging = root().join("packaging");
    let world = World::new();
    let manifest = manifest();
    for packages in world.packages() {
        let _ = fs::remove_dir_all(world.at("out"));
        for package in &packages {
            world.make(package, &[]);
        }
        for description in &manifest.openwrt.package {
            let package = manifest.package(
                description,
                &packaging.join("openwrt"),
                "x",
                "1-r1",
                Some(b"program"),
            );
            let Some(package) = package.unwrap() else {
                continue;
            };
            let installed = world.at("out").join(&package.name);
            assert_eq!(tree_of(&installed), package.tree, "{}", package.name);
            for (name, script) in [("postinst", &package.postinst), ("prerm", &package.prerm)] {
                let installed = world.at(&format!("out/{}.{name}", package.name));
                // LuCI's feed uses its own script for all its packages.
                let Ok(installed) = fs::read_to_string(installed) else {
                    assert!(package.name.starts_with("luci-"), "{name}");
                    continue;
                };
                assert_eq!(installed.trim_end(), script.trim_end(), "{name}");
            }
        }
    }
}

fn tree_of(directory: &Path) -> Tree {
    let mut tree = Tree::default();
    read(directory, "", &mut tree);
    tree
}

/// Reads the files below a directory, with their modes.
fn read(directory: &Path, prefix: &str, tree: &mut Tree) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        let metadata = entry.metadata().unwrap();
        let mode = metadata.permissions().mode() & 0o7777;
        let kind = if metadata.is_symlink() {
            Kind::Link(
                fs::read_link(entry.path())
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
            )
        } else if metadata.is_dir() {
            Kind::Directory
        } else {
            Kind::File(fs::read(entry.path()).unwrap())
        };
        let is_directory = kind == Kind::Directory;
        tree.add(&path, tools::packages::tree::Entry { mode, kind })
            .unwrap();
        if is_directory {
            read(&entry.path(), &format!("{path}/"), tree);
        }
    }
}
