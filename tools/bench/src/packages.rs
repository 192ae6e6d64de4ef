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
//! | [`mod@index`], [`apk_index`] | the packages of a directory | the same |
//! | [`po`], [`lmo`] | translations of LuCI's pages | LuCI |
//!
//! Readers share only constants with writers. They check sizes, checksums and installed paths, hold whole files in
//! memory, and refuse files larger than [`LARGEST`]. The same input gives the same bytes, except for P-256
//! signatures, which are partly random.

use crate::packages::ipk::Content;
use crate::packages::stanza::Stanza;
use crate::packages::tree::{Tree, TreeError};

pub mod adb;
pub mod apk;
pub mod apk_index;
pub mod assemble;
pub mod compress;
pub mod deb;
pub mod debian;
pub mod feed;
pub mod hash;
pub mod index;
pub mod ipk;
pub mod key;
pub mod lmo;
pub mod manifest;
pub mod openwrt;
pub mod po;
pub mod program;
pub mod sbom;
pub mod stanza;
pub mod tar;
pub mod tree;

/// The lines of a script without its interpreter, for a script that another one contains.
fn script_lines(script: &str) -> String {
    let lines = script.lines().filter(|it| !it.starts_with("#!"));
    lines.map(|it| format!("{it}\n")).collect()
}

/// Maximum number of bytes to unpack from one package: several times a router's storage.
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
    /// The architecture in the format's notation; `any` for all architectures.
    pub(crate) fn architecture_or<'a>(&'a self, any: &'a str) -> &'a str {
        match self.architecture.as_str() {
            "noarch" => any,
            architecture => architecture,
        }
    }

    /// The summary and the description.
    pub(crate) fn full_description(&self) -> String {
        match self.description.as_str() {
            "" => self.summary.clone(),
            more => format!("{}\n{more}", self.summary),
        }
    }

    /// Starts the content of an ipk or a deb: its control file, and the list of its configuration files.
    pub(crate) fn content(&self, control: &Stanza, data: Tree) -> Result<Content, TreeError> {
        let mut content = Content {
            data,
            ..Content::default()
        };
        let text = control.to_string();
        content.control.file("control", 0o644, text.as_bytes())?;
        let conffiles: String = self.own_conffiles().map(|it| format!("{it}\n")).collect();
        if !conffiles.is_empty() {
            content
                .control
                .file("conffiles", 0o644, conffiles.as_bytes())?;
        }
        Ok(content)
    }

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
