//! The packages as they lie in OpenWrt's feeds `packages` and `luci`: this repository's Makefiles with literals in place of
//! the variables of `openwrt/tree.mk`, and copies of the files that they install.

use crate::packages::manifest::Manifest;
use crate::packages::tree::{Kind, Tree, TreeError};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};
use thiserror::Error;

/// Path of the package of the program below the output directory, which may contain clones of both feeds.
pub const NET: &str = "packages/net/millrace";
/// Path of LuCI's package below the output directory.
pub const LUCI: &str = "luci/protocols/luci-proto-millrace";

/// Why a package cannot be written.
#[derive(Debug, Error)]
pub enum FeedError {
    /// The manifest has an address of the reserved domain `invalid`.
    #[error(
        "packages.toml: {0} is a placeholder; write yours, which OpenWrt publishes (DRAFT=1 goes on)"
    )]
    Placeholder(&'static str),
    /// A Makefile uses a variable that only this repository defines.
    #[error("{path}: MILLRACE_{name} has no literal for OpenWrt's feed")]
    Variable {
        /// The Makefile.
        path: PathBuf,
        /// The variable's name after `MILLRACE_`.
        name: String,
    },
    /// A package contains a link, which would end outside the feed.
    #[error("{0}: a package of the feed must not contain a link")]
    Link(String),
    /// The files of a package do not form a tree.
    #[error("{0}")]
    Tree(#[from] TreeError),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// Cause of the failure.
        error: io::Error,
    },
}

/// Checks that the manifest has a real maintainer and web address.
///
/// # Errors
/// When one of them is missing or a placeholder.
pub fn check_contact(manifest: &Manifest) -> Result<(), FeedError> {
    let is_placeholder = |it: &str| it.is_empty() || it.trim_end_matches('>').ends_with(".invalid");
    match () {
        () if is_placeholder(&manifest.maintainer) => Err(FeedError::Placeholder("maintainer")),
        () if is_placeholder(&manifest.url) => Err(FeedError::Placeholder("url")),
        () => Ok(()),
    }
}

/// Writes both packages below `out`, in place of earlier ones. `root` is this repository, and `hash` the SHA-256 of the
/// release's archive in hexadecimal digits.
///
/// # Errors
/// When a file cannot be read or written, or does not suit the feed.
pub fn write(root: &Path, manifest: &Manifest, hash: &str, out: &Path) -> Result<(), FeedError> {
    let recipes = root.join("openwrt");
    let files = root.join("packaging/openwrt");
    let literals = [
        ("FILES", "./files"),
        ("HASH", hash),
        ("LUCI", "../.."),
        ("MAINTAINER", &manifest.maintainer),
        ("RUST", "../../lang/rust"),
        ("URL", &manifest.url),
    ];

    let mut net = Tree::default();
    let recipe = recipes.join("net/millrace");
    let makefile = makefile(&recipe.join("Makefile"), &files.join("millrace"), &literals)?;
    net.file("Makefile", 0o644, makefile.as_bytes())?;
    net.file("test.sh", 0o755, read(&recipe.join("test.sh"))?.as_bytes())?;
    add(&mut net, &files.join("millrace"), |path| {
        format!("files/{path}")
    })?;
    write_tree(&net, &out.join(NET))?;

    let mut luci = Tree::default();
    let package = files.join("luci-proto-millrace");
    let recipe = recipes.join("luci/luci-proto-millrace/Makefile");
    let makefile = self::makefile(&recipe, &package, &literals)?;
    luci.file("Makefile", 0o644, makefile.as_bytes())?;
    // luci.mk installs `htdocs` into /www.
    add(&mut luci, &package, |path| {
        match path.strip_prefix("www/") {
            Some(path) => format!("htdocs/{path}"),
            None => format!("root/{path}"),
        }
    })?;
    let translations = files.join("luci-proto-millrace.po");
    if translations.is_dir() {
        add(&mut luci, &translations, |path| format!("po/{path}"))?;
    }
    write_tree(&luci, &out.join(LUCI))
}

/// Returns a Makefile with literals: values of variables, and the scripts beside the package's files.
fn makefile(path: &Path, files: &Path, literals: &[(&str, &str)]) -> Result<String, FeedError> {
    let mut text = read(path)?.replace("include ../../tree.mk\n", "");
    for script in ["postinst", "prerm"] {
        let line = format!("$(file <$(MILLRACE_FILES).{script})\n");
        if text.contains(&line) {
            let script = read(&files.with_extension(script))?;
            text = text.replace(&line, &script.replace('$', "$$"));
        }
    }
    for (name, value) in literals {
        text = text.replace(&format!("$(MILLRACE_{name})"), value);
    }
    match text.split_once("MILLRACE_") {
        None => Ok(text),
        Some((_, rest)) => Err(FeedError::Variable {
            path: path.to_owned(),
            name: rest
                .split(|it: char| !it.is_ascii_uppercase())
                .next()
                .unwrap_or_default()
                .to_owned(),
        }),
    }
}

/// Adds the files of a directory at the paths that `place` returns.
fn add(tree: &mut Tree, directory: &Path, place: impl Fn(&str) -> String) -> Result<(), FeedError> {
    let mut files = Tree::default();
    files.add_directory(directory)?;
    for (path, entry) in files.iter() {
        match &entry.kind {
            // A feed is a git repository, which knows no other modes.
            Kind::File(content) => tree.file(&place(path), entry.mode & 0o111 | 0o644, content)?,
            Kind::Link(_) => {
                return Err(FeedError::Link(directory.join(path).display().to_string()));
            }
            Kind::Directory => {}
        }
    }
    Ok(())
}

fn write_tree(tree: &Tree, directory: &Path) -> Result<(), FeedError> {
    let fault = |path: &Path| {
        let path = path.to_owned();
        move |error| FeedError::File { path, error }
    };
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(fault(directory)(error));
        }
        _ => {}
    }
    fs::create_dir_all(directory).map_err(fault(directory))?;
    for (path, entry) in tree.iter() {
        let path = directory.join(path);
        match &entry.kind {
            Kind::File(content) => fs::write(&path, content)
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode)))
                .map_err(fault(&path))?,
            _ => fs::create_dir(&path).map_err(fault(&path))?,
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, FeedError> {
    fs::read_to_string(path).map_err(|error| FeedError::File {
        path: path.to_owned(),
        error,
    })
}
