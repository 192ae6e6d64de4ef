//! Packages for OpenWrt and Debian, made without their SDKs. Only `make packages` and `make release` use it;
//! the router's program contains none of it.
//!
//! A package consists of a [`Tree`] of files to install and a [`Package`] with the
//! metadata. Each format has a module that writes it and reads it back:
//!
//! | module | format | for |
//! |---|---|---|
//! | [`ipk`] | tar archives in a tar archive | opkg, OpenWrt to 24.10 |
//! | [`apk`] | values of [`adb`] and blocks of content | apk 3, OpenWrt from 25.12 |
//! | [`deb`] | tar archives in an `ar` archive | dpkg |
//! | [`opkg_index`], [`apk_index`], [`debian_index`] | the packages of a directory | the same |
//!
//! Readers share only constants with writers. They check sizes, checksums and installed paths, hold whole files in
//! memory, and refuse files larger than [`LARGEST`]. The same input gives the same bytes, except for P-256
//! signatures, which are partly random.

use crate::packages::tree::Tree;

pub mod adb;
pub mod apk;
pub mod apk_index;
pub mod assemble;
pub mod compress;
pub mod deb;
pub mod debian;
pub mod debian_index;
pub mod hash;
pub mod ipk;
pub mod key;
pub mod manifest;
pub mod openwrt;
pub mod opkg_index;
pub mod sbom;
pub mod stanza;
pub mod tar;
pub mod tree;

/// The most bytes to unpack from one package: several times a router's storage.
pub const LARGEST: usize = 256 << 20;

/// A package to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Package {
    /// The package's name: lower-case letters, digits, `+`, `-`, `.`.
    pub name: String,
    /// The program's version and the package's revision in the format's notation: `1.2.3-r1`, `1.2.3-1`.
    pub version: String,
    /// The architecture in the format's notation; `noarch` or `all` for any.
    pub architecture: String,
    /// A description of one line.
    pub summary: String,
    /// The lines of the description after the summary.
    pub description: String,
    /// The SPDX name of the licence.
    pub license: String,
    /// The maintainer's name and address.
    pub maintainer: String,
    /// The project's web page; may be empty.
    pub url: String,
    /// The section in lists of packages.
    pub section: String,
    /// Names of needed packages, with versions in the format's notation.
    pub depends: Vec<String>,
    /// Names of recommended packages.
    pub recommends: Vec<String>,
    /// Names that the package provides.
    pub provides: Vec<String>,
    /// Names of packages that conflict with this one.
    pub conflicts: Vec<String>,
    /// Absolute paths of files that the user may change and upgrades keep; a `/` at the end means a whole directory.
    pub conffiles: Vec<String>,
    /// Commands to run after installation, in addition to those that the files need.
    pub postinst: String,
    /// Commands to run before removal, in addition to those that the files need.
    pub prerm: String,
    /// The files to be installed.
    pub tree: Tree,
}

impl Package {
    /// Absolute paths of the configuration files that the package itself brings.
    pub fn own_conffiles(&self) -> impl Iterator<Item = &str> {
        let is_own = |it: &&String| self.tree.content(it.trim_start_matches('/')).is_some();
        self.conffiles.iter().filter(is_own).map(String::as_str)
    }

    /// Absolute paths of everything else to keep: directories, and files that are created later.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        let is_other = |it: &&String| self.tree.content(it.trim_start_matches('/')).is_none();
        self.conffiles.iter().filter(is_other).map(String::as_str)
    }
}
