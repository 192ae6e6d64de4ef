//! `packaging/packages.toml`: names, descriptions and dependencies of the packages, and which program is for which
//! architecture.

use crate::package::Package;
use crate::tree::{Entry, Tree, TreeError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Manifest {
    /// Name and address.
    pub maintainer: String,
    /// A page about it.
    #[serde(default)]
    pub url: String,
    /// The licence by its name of SPDX.
    pub license: String,
    /// The packages' revision: raised when they change and the program does not.
    pub revision: u32,
    /// For OpenWrt.
    pub openwrt: Distribution,
    /// For Debian.
    pub debian: Distribution,
}

/// The settings for one distribution.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Distribution {
    /// Which programs: `millrace-CHIP-KIND`, as `scripts/arm` names them.
    pub kind: String,
    /// Architectures by their names here, and the chip whose program each gets.
    pub architectures: BTreeMap<String, String>,
    /// The packages.
    pub package: Vec<Description>,
}

/// One package.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Description {
    /// Its name; what it installs stands in the directory of this name, if there is one.
    pub name: String,
    /// One line.
    pub summary: String,
    /// The lines behind it.
    #[serde(default)]
    pub description: String,
    /// Where lists of packages put it.
    pub section: String,
    /// Where the program is installed; a package without it is for every architecture.
    pub program: Option<String>,
    /// Whether it is left out where its directory is missing.
    #[serde(default)]
    pub optional: bool,
    /// Symbolic links, and where they lead.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Directories, and their permission bits in octal digits.
    #[serde(default)]
    pub directories: BTreeMap<String, String>,
    /// Names.
    #[serde(default)]
    pub depends: Vec<String>,
    /// Names.
    #[serde(default)]
    pub recommends: Vec<String>,
    /// Names.
    #[serde(default)]
    pub provides: Vec<String>,
    /// Names.
    #[serde(default)]
    pub conflicts: Vec<String>,
    /// Absolute paths; a `/` at the end makes it a whole directory.
    #[serde(default)]
    pub conffiles: Vec<String>,
    /// A script beside the directory of the package.
    pub postinst: Option<String>,
    /// A script beside the directory of the package.
    pub prerm: Option<String>,
}

/// Why packages cannot be made as the manifest says.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is no manifest.
    #[error("{path}: {error}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        error: Box<toml::de::Error>,
    },
    /// Files that cannot be installed together.
    #[error("{package}: {error}")]
    Tree {
        /// The package.
        package: String,
        /// Why.
        error: TreeError,
    },
    /// A path in the manifest is not absolute, or permission bits are none.
    #[error("{package}: {value:?} is neither an absolute path nor a mode")]
    Value {
        /// The package.
        package: String,
        /// The wrong value.
        value: String,
    },
}

impl Manifest {
    /// Reads the manifest of a directory, `packages.toml`.
    ///
    /// # Errors
    /// When it cannot be read, or says something that is not known.
    pub fn read(directory: &Path) -> Result<Self, ManifestError> {
        let path = directory.join("packages.toml");
        let text = read(&path)?;
        toml::from_str(&text).map_err(|error| ManifestError::Parse {
            path,
            error: Box::new(error),
        })
    }

    /// A package for an architecture, with what stands in the directory of the distribution and, if it has one, the
    /// program. `None` where it is optional and there is nothing of it.
    ///
    /// # Errors
    /// When something of it cannot be read or installed.
    pub fn package(
        &self,
        description: &Description,
        directory: &Path,
        architecture: &str,
        version: &str,
        program: Option<&[u8]>,
    ) -> Result<Option<Package>, ManifestError> {
        let name = description.name.clone();
        let own = directory.join(&name);
        if description.optional && !own.is_dir() {
            return Ok(None);
        }
        let tree = description.tree(&own, program)?;
        let script = |file: &Option<String>| match file {
            Some(file) => read(&directory.join(file)),
            None => Ok(String::new()),
        };
        Ok(Some(Package {
            name,
            version: version.to_owned(),
            architecture: match description.program {
                Some(_) => architecture.to_owned(),
                None => "noarch".to_owned(),
            },
            summary: description.summary.clone(),
            description: description.description.trim_end().to_owned(),
            license: self.license.clone(),
            maintainer: self.maintainer.clone(),
            url: self.url.clone(),
            section: description.section.clone(),
            depends: description.depends.clone(),
            recommends: description.recommends.clone(),
            provides: description.provides.clone(),
            conflicts: description.conflicts.clone(),
            conffiles: description.conffiles.clone(),
            postinst: script(&description.postinst)?,
            prerm: script(&description.prerm)?,
            tree,
        }))
    }
}

impl Description {
    /// The files that it installs.
    fn tree(&self, own: &Path, program: Option<&[u8]>) -> Result<Tree, ManifestError> {
        let value = |value: &str| ManifestError::Value {
            package: self.name.clone(),
            value: value.to_owned(),
        };
        let relative = |path: &str| {
            path.strip_prefix('/')
                .map(str::to_owned)
                .ok_or_else(|| value(path))
        };
        let fault = |error| ManifestError::Tree {
            package: self.name.clone(),
            error,
        };
        let mut tree = Tree::default();
        // First, because files in them would make them with a mode of their own.
        for (path, mode) in &self.directories {
            let mode = u32::from_str_radix(mode, 8).map_err(|_| value(mode))?;
            tree.add(&relative(path)?, Entry::directory(mode))
                .map_err(fault)?;
        }
        for (path, target) in &self.links {
            tree.add(&relative(path)?, Entry::link(target))
                .map_err(fault)?;
        }
        if let (Some(path), Some(program)) = (&self.program, program) {
            tree.file(&relative(path)?, 0o755, program).map_err(fault)?;
        }
        for path in &self.conffiles {
            relative(path)?;
        }
        if own.is_dir() {
            tree.add_directory(own).map_err(fault)?;
        }
        Ok(tree)
    }
}

fn read(path: &Path) -> Result<String, ManifestError> {
    fs::read_to_string(path).map_err(|error| ManifestError::Read {
        path: path.to_owned(),
        error,
    })
}
