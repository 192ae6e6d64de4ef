//! Builds all packages of a release and their indexes from the manifest, the file trees beside it and a directory of
//! programs.

use crate::packages::apk::Apk;
use crate::packages::index::Manager;
use crate::packages::key::Keys;
use crate::packages::manifest::{Description, Distribution, Manifest, ManifestError};
use crate::packages::{
    Package, apk, apk_index, compress, deb, debian, hash, index, ipk, openwrt, program,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};
use thiserror::Error;

/// The inputs and outputs of a release.
#[derive(Debug)]
pub struct Release<'a> {
    /// The directory of the manifest.
    pub packaging: &'a Path,
    /// The directory of the programs, `millrace-CHIP-KIND`.
    pub programs: &'a Path,
    /// The program's manual pages and completions for Debian, in a tree that mirrors their installed paths.
    pub share: Option<&'a Path>,
    /// Output directory; its subdirectories `openwrt` and `debian` are deleted first.
    pub out: &'a Path,
    /// The program's version.
    pub version: &'a str,
    /// The date of all files, in seconds since 1970.
    pub date: u64,
    /// The keys for signing.
    pub keys: &'a Keys,
}

/// Why a release cannot be made.
#[derive(Debug, Error)]
pub enum AssembleError {
    /// The manifest, or a file that it names, is invalid.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// A package cannot be written, or cannot be read back.
    #[error("{name}: {error}")]
    Package {
        /// The package's file name.
        name: String,
        /// Cause of the failure.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Reading a written file back gives different content.
    #[error("{0}: reading it back gives different content")]
    Differs(String),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// Cause of the failure.
        error: io::Error,
    },
    /// No architecture has a program.
    #[error("{0}: contains no program for any architecture (millrace-CHIP-KIND)")]
    NoProgram(PathBuf),
    /// A program needs a C library of its machine.
    #[error(
        "{path}: is dynamically linked ({loader}); pack a static program, such as those of scripts/arm"
    )]
    Dynamic {
        /// The program.
        path: PathBuf,
        /// The dynamic loader that it asks for.
        loader: String,
    },
}

/// The files of one directory, by file name.
type Files = BTreeMap<String, Vec<u8>>;

impl Release<'_> {
    /// Builds the whole release. Each package is read back before it is written to the disk. Returns messages about
    /// packages that were left out.
    ///
    /// # Errors
    /// With the first package that cannot be made.
    pub fn make(&self) -> Result<Vec<String>, AssembleError> {
        let manifest = Manifest::read(self.packaging)?;
        // Removes packages and keys of an earlier release, for whose architectures there may be no program now.
        for name in ["openwrt", "debian"] {
            self.delete(&self.out.join(name))?;
        }
        let mut left_out = Vec::new();
        let mut made = 0;
        for architecture in manifest.openwrt.architectures.keys() {
            let packages = self.packages(
                &manifest,
                &manifest.openwrt,
                "openwrt",
                architecture,
                &mut left_out,
            )?;
            if !packages.is_empty() {
                made += 1;
                let files = self.openwrt(&packages)?;
                self.write(&self.out.join("openwrt").join(architecture), &files)?;
            }
        }
        let mut files = Files::new();
        for architecture in manifest.debian.architectures.keys() {
            for package in self.packages(
                &manifest,
                &manifest.debian,
                "debian",
                architecture,
                &mut left_out,
            )? {
                made += 1;
                // Packages for all architectures are the same in each round.
                let (name, bytes) = self.deb(&package)?;
                files.insert(name, bytes);
            }
        }
        if made == 0 {
            return Err(AssembleError::NoProgram(self.programs.to_owned()));
        }
        if !files.is_empty() {
            self.debian_index(&mut files)?;
            self.write(&self.out.join("debian"), &files)?;
        }
        self.public_keys()?;
        left_out.sort();
        left_out.dedup();
        Ok(left_out)
    }

    /// The packages of an architecture; empty if its program is missing.
    fn packages(
        &self,
        manifest: &Manifest,
        distribution: &Distribution,
        name: &str,
        architecture: &str,
        left_out: &mut Vec<String>,
    ) -> Result<Vec<Package>, AssembleError> {
        let chip = &distribution.architectures[architecture];
        let path = self
            .programs
            .join(format!("millrace-{chip}-{}", distribution.kind));
        let program = match fs::read(&path) {
            Ok(program) => program,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                left_out.push(format!(
                    "{name} {architecture}: {} is missing",
                    path.display()
                ));
                return Ok(Vec::new());
            }
            Err(error) => return Err(AssembleError::File { path, error }),
        };
        if let Some(loader) = program::loader(&program) {
            return Err(AssembleError::Dynamic { path, loader });
        }
        let directory = self.packaging.join(name);
        let separator = if name == "openwrt" { "-r" } else { "-" };
        let version = format!("{}{separator}{}", self.version, manifest.revision);
        let mut packages = Vec::new();
        for description in &distribution.package {
            let package = manifest.package(
                description,
                &directory,
                architecture,
                &version,
                Some(&program),
            )?;
            match package {
                Some(mut package) => {
                    if name == "debian" {
                        self.add_share(description, &mut package)?;
                    }
                    packages.push(package);
                    packages.extend(manifest.translations(description, &directory, &version)?);
                }
                None => left_out.push(format!(
                    "{name} {}: {} is missing",
                    description.name,
                    directory.join(&description.name).display()
                )),
            }
        }
        Ok(packages)
    }

    /// Adds manual pages and completions to the package with the program.
    fn add_share(
        &self,
        description: &Description,
        package: &mut Package,
    ) -> Result<(), AssembleError> {
        let Some(share) = self.share.filter(|_| description.program.is_some()) else {
            return Ok(());
        };
        let added = package.tree.add_directory(share);
        added.map_err(|error| fault(&description.name, error))
    }

    /// Makes the ipk and apk packages and the indexes of one architecture.
    fn openwrt(&self, packages: &[Package]) -> Result<Files, AssembleError> {
        let (mut ipks, mut apks) = (Files::new(), Files::new());
        for package in packages {
            let name = openwrt::ipk_name(package);
            let content = openwrt::ipk(package).map_err(|error| fault(&name, error))?;
            let bytes = ipk::write(&content, self.date).map_err(|error| fault(&name, error))?;
            ipks.insert(
                name.clone(),
                checked(&name, ipk::read(&bytes), bytes, |it| *it == content)?,
            );
            let name = openwrt::apk_name(package);
            let content = openwrt::apk(package, self.date).map_err(|error| fault(&name, error))?;
            let bytes = apk::write(&content).map_err(|error| fault(&name, error))?;
            let same = |it: &Apk| it.tree == content.tree && it.scripts == content.scripts;
            apks.insert(
                name.clone(),
                checked(&name, apk::read(&bytes), bytes, same)?,
            );
        }
        let listed: Vec<(&str, &[u8])> = list(&ipks);
        let index =
            index::packages(Manager::Opkg, &listed).map_err(|error| fault("Packages", error))?;
        index::check(&index, &listed).map_err(|error| fault("Packages", error))?;
        let adbs: Vec<&[u8]> = apks.values().map(Vec::as_slice).collect();
        let key = self.keys.p256.as_ref();
        let adb = apk_index::write(&adbs, key).map_err(|error| fault(apk_index::NAME, error))?;
        let read = apk_index::read(&adb, key.map(|it| it.point()));
        read.map_err(|error| fault(apk_index::NAME, error))?;
        let mut files = ipks;
        files.append(&mut apks);
        files.insert(apk_index::NAME.to_owned(), adb);
        if let Some(key) = &self.keys.usign {
            files.insert(
                "Packages.sig".to_owned(),
                key.sign(index.as_bytes()).into_bytes(),
            );
        }
        files.insert(
            "Packages.gz".to_owned(),
            gzip("Packages.gz", index.as_bytes())?,
        );
        files.insert("Packages".to_owned(), index.into_bytes());
        Ok(files)
    }

    fn deb(&self, package: &Package) -> Result<(String, Vec<u8>), AssembleError> {
        let name = debian::name(package);
        let content = debian::deb(package).map_err(|error| fault(&name, error))?;
        let bytes = deb::write(&content, self.date).map_err(|error| fault(&name, error))?;
        let bytes = checked(&name, deb::read(&bytes), bytes, |it| *it == content)?;
        Ok((name, bytes))
    }

    fn debian_index(&self, files: &mut Files) -> Result<(), AssembleError> {
        let packages = index::packages(Manager::Apt, &list(files));
        let packages = packages.map_err(|error| fault("Packages", error))?;
        let compressed = gzip("Packages.gz", packages.as_bytes())?;
        let indexes: [(&str, &[u8]); 2] = [
            ("Packages", packages.as_bytes()),
            ("Packages.gz", &compressed),
        ];
        let release = index::release(&indexes, self.date);
        files.insert("Release".to_owned(), release.into_bytes());
        files.insert("Packages".to_owned(), packages.into_bytes());
        files.insert("Packages.gz".to_owned(), compressed);
        Ok(())
    }

    /// Writes the keys that a router needs to trust the indexes.
    fn public_keys(&self) -> Result<(), AssembleError> {
        let mut files = Files::new();
        if let Some(key) = &self.keys.usign {
            files.insert("millrace.pub".to_owned(), key.public().into_bytes());
        }
        if let Some(key) = &self.keys.p256 {
            files.insert("millrace.pem".to_owned(), key.public().into_bytes());
        }
        if files.is_empty() {
            return Ok(());
        }
        self.write(&self.out.join("openwrt/keys"), &files)
    }

    fn delete(&self, directory: &Path) -> Result<(), AssembleError> {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(AssembleError::File {
                path: directory.to_owned(),
                error,
            }),
            _ => Ok(()),
        }
    }

    fn write(&self, directory: &Path, files: &Files) -> Result<(), AssembleError> {
        let fault = |path: &Path| {
            let path = path.to_owned();
            move |error| AssembleError::File { path, error }
        };
        fs::create_dir_all(directory).map_err(fault(directory))?;
        for (name, bytes) in files {
            let path = directory.join(name);
            fs::write(&path, bytes).map_err(fault(&path))?;
        }
        Ok(())
    }
}

/// Returns the bytes of a package if what was read back from them is the same content.
fn checked<T>(
    name: &str,
    read: Result<T, impl Into<Box<dyn std::error::Error + Send + Sync>>>,
    bytes: Vec<u8>,
    is_same: impl Fn(&T) -> bool,
) -> Result<Vec<u8>, AssembleError> {
    let read = read.map_err(|error| fault(name, error))?;
    match is_same(&read) {
        true => Ok(bytes),
        false => Err(AssembleError::Differs(name.to_owned())),
    }
}

fn list(files: &Files) -> Vec<(&str, &[u8])> {
    let list = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    list.collect()
}

fn gzip(name: &str, bytes: &[u8]) -> Result<Vec<u8>, AssembleError> {
    compress::gzip(bytes).map_err(|error| fault(name, error))
}

fn fault(name: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AssembleError {
    AssembleError::Package {
        name: name.to_owned(),
        error: error.into(),
    }
}

/// The `SHA256SUMS` lines of all files below a directory, sorted, except for the `SHA256SUMS` files themselves.
///
/// # Errors
/// When a file cannot be read.
pub fn sums(directory: &Path) -> io::Result<String> {
    let mut lines = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(current) = directories.pop() {
        for entry in fs::read_dir(current)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let name = path
                .strip_prefix(directory)
                .unwrap_or(&path)
                .display()
                .to_string();
            if !name.starts_with("SHA256SUMS") {
                lines.push((name, hash::hex(&hash::sha256(&fs::read(&path)?))));
            }
        }
    }
    lines.sort();
    Ok(lines
        .iter()
        .map(|(name, sum)| format!("{sum}  {name}\n"))
        .collect())
}
