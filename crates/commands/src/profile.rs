//! Finds the file of a tunnel's name, where `millrace up`, systemd units and `wg-quick` look.

use std::path::{Path, PathBuf};
use thiserror::Error;

/// The directory of our own files.
pub(crate) const DIRECTORY: &str = "/etc/millrace";

/// A directory, and the endings of tunnel files in it.
type Place = (&'static str, &'static [&'static str]);

/// Our own directory, and those of programs that existed before.
const PLACES: [Place; 3] = [
    (DIRECTORY, &["conf", "ovpn", "toml"]),
    ("/etc/wireguard", &["conf"]),
    ("/etc/openvpn/client", &["conf", "ovpn"]),
];

/// Why a name has no unique file.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ProfileError {
    /// No directory has a file of that name.
    #[error("{name}: no file of this name exists here, nor {}", paths(.looked_for, " or "))]
    None {
        /// Name the user gave.
        name: String,
        /// The paths that were tried.
        looked_for: Vec<PathBuf>,
    },
    /// The name is that of a directory, and of no file.
    #[error(
        "{name}: a directory, and there is no {}; `millrace import` makes one tunnel of a provider's files",
        paths(.looked_for, " or ")
    )]
    Directory {
        /// Name the user gave.
        name: String,
        /// The paths that were tried.
        looked_for: Vec<PathBuf>,
    },
    /// This user may not read some directories, and the others have no such file.
    #[error(
        "{name}: this user may not read {}; run this as root",
        paths(.directories, ", ")
    )]
    Hidden {
        /// Name the user gave.
        name: String,
        /// Directories this user may not read.
        directories: Vec<PathBuf>,
    },
    /// More than one file has that name.
    #[error("{name}: several files have this name; name one by its path: {}", paths(.found, ", "))]
    Several {
        /// Name the user gave.
        name: String,
        /// Files of that name, at least two.
        found: Vec<PathBuf>,
    },
}

/// The paths as a text.
pub(crate) fn paths(paths: &[PathBuf], between: &str) -> String {
    let paths: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
    paths.join(between)
}

/// The file that a command's argument names. A path, or a file of that name in the current directory, counts first.
/// Otherwise it is a name without an ending, which must match one file in [`PLACES`].
pub(crate) fn find(path: &Path) -> Result<PathBuf, ProfileError> {
    find_below(path, Path::new("/"))
}

/// The files that a name may stand for.
fn candidates(name: &Path) -> impl Iterator<Item = PathBuf> {
    let of_place = move |(directory, endings): Place| {
        let file = move |ending| Path::new(directory).join(name).with_extension(ending);
        endings.iter().map(file)
    };
    PLACES.into_iter().flat_map(of_place).filter(is_profile)
}

/// Whether a file is a tunnel's: the settings for all tunnels are not.
pub(crate) fn is_profile(file: &PathBuf) -> bool {
    let settings = [
        config::settings::DEFAULT_PATH,
        config::guard::DEFAULT_PATH,
        config::policy::DEFAULT_PATH,
        config::alerts::DEFAULT_PATH,
        config::forward::DEFAULT_PATH,
    ];
    !settings.iter().any(|it| file == Path::new(it))
}

/// All existing files for a name.
pub(crate) fn files_of(name: &str) -> Vec<PathBuf> {
    candidates(Path::new(name))
        .filter(|it| it.is_file())
        .collect()
}

/// Directories of tunnels' files that this user may not read.
pub(crate) fn hidden() -> Vec<PathBuf> {
    hidden_below(Path::new("/"))
}

fn hidden_below(root: &Path) -> Vec<PathBuf> {
    let is_hidden = |directory: &&str| {
        let entries = std::fs::read_dir(root.join(directory.trim_start_matches('/')));
        entries.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    let directories = PLACES.iter().map(|(directory, _)| *directory);
    directories.filter(is_hidden).map(PathBuf::from).collect()
}

/// The files of all tunnels.
pub(crate) fn all() -> Vec<PathBuf> {
    let of_place = |(directory, endings): Place| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let ends = |path: &PathBuf| {
            path.extension()
                .is_some_and(|it| endings.iter().any(|end| it == *end))
        };
        entries
            .map(|entry| entry.path())
            .filter(ends)
            .collect::<Vec<_>>()
    };
    let files = PLACES.into_iter().flat_map(of_place);
    files.filter(is_profile).filter(|it| it.is_file()).collect()
}

fn find_below(path: &Path, root: &Path) -> Result<PathBuf, ProfileError> {
    let is_name = path.components().count() == 1 && path.extension().is_none();
    if !is_name || path.is_file() {
        return Ok(path.to_owned());
    }
    let name = path.display().to_string();
    let looked_for: Vec<PathBuf> = candidates(path).collect();
    let below = |file: &Path| root.join(file.strip_prefix("/").unwrap_or(file));
    let is_there = |file: &&PathBuf| below(file).is_file();
    let mut found: Vec<PathBuf> = looked_for.iter().filter(is_there).cloned().collect();
    match (found.pop(), found.is_empty()) {
        (Some(file), true) => Ok(below(&file)),
        (Some(last), false) => {
            found.push(last);
            Err(ProfileError::Several { name, found })
        }
        (None, _) => {
            let directories = hidden_below(root);
            Err(match directories.is_empty() {
                true if path.is_dir() => ProfileError::Directory { name, looked_for },
                true => ProfileError::None { name, looked_for },
                false => ProfileError::Hidden { name, directories },
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_name_stands_for_the_one_file_of_that_name() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let make = |path: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let find = |name: &str| find_below(Path::new(name), root);
        // A directory of this crate.
        let directory = find("src").unwrap_err().to_string();
        assert!(directory.contains("`millrace import`"), "{directory}");
        let none = find("office").unwrap_err().to_string();
        for path in [
            "/etc/millrace/office.toml",
            "/etc/wireguard/office.conf",
            "/etc/openvpn/client/office.ovpn",
        ] {
            assert!(none.contains(path), "{none}");
        }
        for path in [
            "etc/openvpn/client/a.conf",
            "etc/millrace/b.toml",
            "etc/wireguard/c.conf",
            "etc/millrace/d.ovpn",
        ] {
            let path = make(path);
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert_eq!(find(name).unwrap(), path);
        }
        make("etc/wireguard/d.conf");
        let several = find("d").unwrap_err().to_string();
        assert!(
            several.ends_with("/etc/millrace/d.ovpn, /etc/wireguard/d.conf"),
            "{several}"
        );
        make("etc/millrace/millrace.toml");
        assert!(
            matches!(find("millrace"), Err(ProfileError::None { .. })),
            "a settings file is not a tunnel"
        );
    }

    #[test]
    fn paths_and_names_with_an_ending_stand_for_themselves() {
        for path in [
            "office.conf",
            "./office",
            "/etc/wireguard/office",
            "../office",
        ] {
            assert_eq!(find(Path::new(path)).unwrap(), Path::new(path));
        }
    }
}
