//! The description of a package for any format.

use crate::tree::Tree;

/// A package to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Package {
    /// Its name: lower-case letters, digits, `+`, `-`, `.`.
    pub name: String,
    /// The program's version and the package's revision, as the format writes them: `1.2.3-r1`, `1.2.3-1`.
    pub version: String,
    /// The architecture as the format names it; `noarch`, or `all`, for any.
    pub architecture: String,
    /// One line.
    pub summary: String,
    /// Several lines, without the first.
    pub description: String,
    /// The licence, as SPDX has it.
    pub license: String,
    /// Name and address.
    pub maintainer: String,
    /// A page about it; may be empty.
    pub url: String,
    /// Where lists of packages put it.
    pub section: String,
    /// Names, with versions as the format writes them.
    pub depends: Vec<String>,
    /// Names.
    pub recommends: Vec<String>,
    /// Names.
    pub provides: Vec<String>,
    /// Names.
    pub conflicts: Vec<String>,
    /// Absolute paths: what the user may have changed, and is kept; with `/` at the end whole directories.
    pub conffiles: Vec<String>,
    /// Commands after its installation, in addition to those that its files need.
    pub postinst: String,
    /// Commands before its removal, in addition.
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

    /// Absolute paths of what is kept besides: directories, and files that are made later.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        let is_other = |it: &&String| self.tree.content(it.trim_start_matches('/')).is_none();
        self.conffiles.iter().filter(is_other).map(String::as_str)
    }
}
