//! The feed's Makefile, run by make with stand-ins for OpenWrt's files, builds the same program as `make packages` and
//! installs the same files.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tools::packages::manifest::Manifest;
use tools::packages::tree::{Kind, Tree};

/// The part of OpenWrt's build system that the Makefile uses: make expands a package's recipe at its definition and
/// again when it runs.
const PACKAGE_MK: &str = r#"
INSTALL_DIR = install -d -m0755
INSTALL_BIN = install -m0755
CP = cp -fpR
LN = ln -sf
define BuildPackage
all: install-$(1)
install-$(1):
	mkdir -p $(OUT)/$(1)
	$(call Package/$(1)/install,$(OUT)/$(1))
	$(foreach it,postinst prerm,printf '%s' "$$$$SCRIPT_$(it)_$(subst -,_,$(1))" >$(OUT)/$(1).$(it);)
$(foreach it,postinst prerm,$(if $(Package/$(1)/$(it)),$(eval export SCRIPT_$(it)_$(subst -,_,$(1))=$$(Package/$(1)/$(it)))))
endef
"#;

/// The part of LuCI's feed that the package's Makefile uses: it copies `root` unchanged.
const LUCI_MK: &str = r#"
all:
	mkdir -p $(OUT)/$(notdir $(CURDIR))
	cp -pR $(CURDIR)/root/* $(OUT)/$(notdir $(CURDIR))/
"#;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::canonicalize(root).unwrap()
}

/// Runs make for a package of the feed, with stand-ins for OpenWrt's files, and returns its output.
fn make(top: &Path, package: &str, arguments: &[&str]) -> String {
    let write = |path: &str, text: &str| {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("rules.mk", "");
    write("include/package.mk", PACKAGE_MK);
    write(
        "feeds/packages/lang/rust/rust-package.mk",
        "define RustBinPackage\nendef\n",
    );
    write("feeds/luci/luci.mk", LUCI_MK);
    write("bin/millrace", "program");
    let output = Command::new("make")
        .arg("-C")
        .arg(root().join("openwrt").join(package))
        .arg("--no-print-directory")
        .arg(format!("TOPDIR={}", top.display()))
        .arg(format!("INCLUDE_DIR={}/include", top.display()))
        .arg(format!("PKG_INSTALL_DIR={}", top.display()))
        .arg(format!("OUT={}/out", top.display()))
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
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
    let scratch = tempfile::tempdir().unwrap();
    let variable = |package, name: &str| {
        let rule = format!("--eval=show: ; @echo '$({name})'");
        make(scratch.path(), package, &[&rule, "show"])
    };
    let features = Command::new("sh")
        .args(["-euc", ". scripts/features; echo $router_features"])
        .current_dir(root())
        .output()
        .unwrap();
    let features = String::from_utf8(features.stdout).unwrap();
    assert_eq!(variable("net/millrace", "RUST_PKG_FEATURES"), features);
    let manifest = Manifest::read(&root().join("packaging")).unwrap();
    for package in ["net/millrace", "luci/luci-proto-millrace"] {
        let maintainer = variable(package, "PKG_MAINTAINER");
        assert_eq!(maintainer.trim_end(), manifest.maintainer, "{package}");
    }
}

#[test]
fn the_feed_installs_what_is_packed() {
    if !has_make() {
        return;
    }
    let packaging = root().join("packaging");
    let scratch = tempfile::tempdir().unwrap();
    let top = scratch.path();
    for package in ["net/millrace", "luci/luci-proto-millrace"] {
        make(top, package, &[]);
    }
    let manifest = Manifest::read(&packaging).unwrap();
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
        let installed = top.join("out").join(&package.name);
        let mut tree = Tree::default();
        read(&installed, "", &mut tree);
        assert_eq!(tree, package.tree, "{}", package.name);
        for (name, script) in [("postinst", &package.postinst), ("prerm", &package.prerm)] {
            let installed = top.join(format!("out/{}.{name}", package.name));
            // LuCI's feed uses its own script for all its packages.
            let Ok(installed) = fs::read_to_string(installed) else {
                assert!(package.name.starts_with("luci-"), "{name}");
                continue;
            };
            assert_eq!(installed.trim_end(), script.trim_end(), "{name}");
        }
    }
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
