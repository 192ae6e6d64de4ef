//! `packaging/packages.toml`: names, descriptions and dependencies of the packages, and the program for each
//! architecture.

use crate::packages::Package;
use crate::packages::lmo::{self, LmoError};
use crate::packages::po::{Catalog, PoError};
use crate::packages::tree::{Entry, Tree, TreeError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};
use thiserror::Error;

/// The whole manifest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Manifest {
    /// The maintainer's name and address.
    pub maintainer: String,
    /// The project's web page.
    #[serde(default)]
    pub url: String,
    /// The SPDX name of the licence.
    pub license: String,
    /// The packages' revision: raised when the packages change and the program does not.
    pub revision: u32,
    /// The settings for OpenWrt.
    pub openwrt: Distribution,
    /// The settings for Debian.
    pub debian: Distribution,
}

/// The settings for one distribution.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Distribution {
    /// The KIND of the programs `millrace-CHIP-KIND`, as `scripts/arm` names them.
    pub kind: String,
    /// The distribution's architectures, and the chip whose program each of them gets.
    pub architectures: BTreeMap<String, String>,
    /// The packages of the distribution.
    pub package: Vec<Description>,
}

/// Entry of one package.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Description {
    /// The package's name. Files to install are in the directory of this name, if there is one.
    pub name: String,
    /// A description of one line.
    pub summary: String,
    /// The lines of the description after the summary.
    #[serde(default)]
    pub description: String,
    /// The section in lists of packages.
    pub section: String,
    /// Where to install the program. A package without a program is for every architecture.
    pub program: Option<String>,
    /// Whether to leave the package out if its directory is missing.
    #[serde(default)]
    pub optional: bool,
    /// Symbolic links to install, and their targets.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Directories to install, and their permission bits in octal digits.
    #[serde(default)]
    pub directories: BTreeMap<String, String>,
    /// Names of packages that this one needs.
    #[serde(default)]
    pub depends: Vec<String>,
    /// Names of recommended packages.
    #[serde(default)]
    pub recommends: Vec<String>,
    /// Names that the package provides.
    #[serde(default)]
    pub provides: Vec<String>,
    /// Names of packages that conflict with this one.
    #[serde(default)]
    pub conflicts: Vec<String>,
    /// Absolute paths of configuration files; a `/` at the end means a whole directory.
    #[serde(default)]
    pub conffiles: Vec<String>,
    /// A script beside the package's directory, to run after installation.
    pub postinst: Option<String>,
    /// A script beside the package's directory, to run before removal.
    pub prerm: Option<String>,
    /// Languages of LuCI's pages, each with LuCI's name for it. Translations are in the directory `NAME.po` beside the
    /// package's own; each becomes a package.
    #[serde(default)]
    pub translations: BTreeMap<String, String>,
}

/// Why packages cannot be made as the manifest says.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause of the failure.
        error: io::Error,
    },
    /// A file is not a valid manifest.
    #[error("{path}: {error}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Cause of the failure.
        error: Box<toml::de::Error>,
    },
    /// Some files cannot be installed together.
    #[error("{package}: {error}")]
    Tree {
        /// The package.
        package: String,
        /// Cause of the failure.
        error: TreeError,
    },
    /// A translation file cannot be read.
    #[error("{path}: {error}")]
    Po {
        /// The file.
        path: PathBuf,
        /// Cause of the failure.
        error: PoError,
    },
    /// A translation file cannot be compiled.
    #[error("{path}: {error}")]
    Lmo {
        /// The file.
        path: PathBuf,
        /// Cause of the failure.
        error: LmoError,
    },
    /// A path in the manifest is not absolute, or permission bits are invalid.
    #[error("{package}: {value:?} is neither an absolute path nor a mode")]
    Value {
        /// The package.
        package: String,
        /// Value as configured.
        value: String,
    },
}

impl Manifest {
    /// Reads the manifest `packages.toml` in a directory.
    ///
    /// # Errors
    /// When the manifest cannot be read or contains unknown settings.
    pub fn read(directory: &Path) -> Result<Self, ManifestError> {
        let path = directory.join("packages.toml");
        let text = read(&path)?;
        toml::from_str(&text).map_err(|error| ManifestError::Parse {
            path,
            error: Box::new(error),
        })
    }

    /// Builds the package for an architecture, from the files in the distribution's directory and the program, if the
    /// package has one. `None` if the package is optional and has no files.
    ///
    /// # Errors
    /// When a file cannot be read or installed.
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

    /// Builds the packages of a package's translations, named and filled as LuCI's feed does it. `directory` is the
    /// distribution's.
    ///
    /// # Errors
    /// When a translation is missing, or LuCI would misread it.
    pub fn translations(
        &self,
        description: &Description,
        directory: &Path,
        version: &str,
    ) -> Result<Vec<Package>, ManifestError> {
        let packages = description.translations.iter().map(|(language, title)| {
            let of = &description.name;
            // LuCI drops "luci-proto-" from the name.
            let base = of.splitn(3, '-').last().unwrap_or_default();
            let path = directory.join(format!("{of}.po/{language}/{base}.po"));
            let catalog = Catalog::parse(&read(&path)?).map_err(|error| ManifestError::Po {
                path: path.clone(),
                error,
            })?;
            let compiled =
                lmo::write(&catalog).map_err(|error| ManifestError::Lmo { path, error })?;
            let name = format!("luci-i18n-{base}-{language}");
            let fault = |error| ManifestError::Tree {
                package: name.clone(),
                error,
            };
            let mut tree = Tree::default();
            // OpenWrt runs this after installation, and then LuCI offers the language.
            let offer = format!("uci set luci.languages.{language}='{title}'; uci commit luci\n");
            tree.file(&format!("etc/uci-defaults/{name}"), 0o644, offer.as_bytes())
                .map_err(fault)?;
            let path = format!("{}/{base}.{language}.lmo", lmo::DIRECTORY);
            tree.file(&path, 0o644, &compiled).map_err(fault)?;
            Ok(Package {
                version: version.to_owned(),
                architecture: "noarch".to_owned(),
                summary: format!("Translation of {of}: {title}"),
                license: self.license.clone(),
                maintainer: self.maintainer.clone(),
                url: self.url.clone(),
                section: description.section.clone(),
                depends: vec![of.clone()],
                tree,
                name,
                ..Package::default()
            })
        });
        packages.collect()
    }
}

impl Description {
    /// Collects the files to install.
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
        // Directories first: adding a file would create its missing directories with the default mode.
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
