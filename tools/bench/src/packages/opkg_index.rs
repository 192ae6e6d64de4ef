//! `Packages`, opkg's index of a directory. Beside it are `Packages.gz` and, if signed, `Packages.sig`.

use crate::packages::hash;
use crate::packages::ipk::{self, IpkError};
use crate::packages::stanza::{Stanza, StanzaError};
use thiserror::Error;

/// Why an index cannot be made or read.
#[derive(Debug, Error)]
pub enum IndexError {
    /// A package is invalid.
    #[error("{name}: {error}")]
    Package {
        /// The package's file name.
        name: String,
        /// Why.
        error: IpkError,
    },
    /// A package's control file, or the index, is not a list of fields.
    #[error("{name}: {error}")]
    Stanza {
        /// The file's name.
        name: String,
        /// Why.
        error: StanzaError,
    },
    /// A package's control file does not have exactly one stanza, or is not text.
    #[error("{0}: its control file is none")]
    Control(String),
    /// A package's size or digest differs from the index.
    #[error("{0}: not as the index says")]
    Differs(String),
}

/// Reads the control file of a package.
fn control(name: &str, bytes: &[u8]) -> Result<Stanza, IndexError> {
    let package = ipk::read(bytes);
    let package = package.map_err(|error| IndexError::Package {
        name: name.to_owned(),
        error,
    })?;
    let text = package.control.content("control").unwrap_or_default();
    let text = str::from_utf8(text).map_err(|_| IndexError::Control(name.to_owned()))?;
    let stanzas = Stanza::parse(text);
    let stanzas = stanzas.map_err(|error| IndexError::Stanza {
        name: name.to_owned(),
        error,
    })?;
    let [stanza] =
        <[Stanza; 1]>::try_from(stanzas).map_err(|_| IndexError::Control(name.to_owned()))?;
    Ok(stanza)
}

/// Writes the text of the index for packages and their file names.
///
/// # Errors
/// When a package is invalid.
pub fn write(packages: &[(&str, &[u8])]) -> Result<String, IndexError> {
    let mut sorted = packages.to_vec();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    let mut text = String::new();
    for (name, bytes) in sorted {
        let file = Stanza::default()
            .with("Filename", name)
            .with("Size", bytes.len())
            .with("SHA256sum", hash::hex(&hash::sha256(bytes)));
        let stanza = control(name, bytes)?.with_before("Description", file);
        text.push_str(&format!("{stanza}\n"));
    }
    Ok(text)
}

/// Checks that an index matches packages, given with their file names.
///
/// # Errors
/// At the first package that differs, is missing, or is not listed.
pub fn check(text: &str, packages: &[(&str, &[u8])]) -> Result<(), IndexError> {
    let stanzas = Stanza::parse(text);
    let stanzas = stanzas.map_err(|error| IndexError::Stanza {
        name: "Packages".to_owned(),
        error,
    })?;
    for stanza in &stanzas {
        let name = stanza.get("Filename").unwrap_or_default();
        let listed = packages.iter().find(|(it, _)| *it == name);
        let holds = listed.is_some_and(|(_, bytes)| {
            stanza.get("Size") == Some(&bytes.len().to_string())
                && stanza.get("SHA256sum") == Some(&hash::hex(&hash::sha256(bytes)))
        });
        if !holds {
            return Err(IndexError::Differs(name.to_owned()));
        }
    }
    for (name, _) in packages {
        if !stanzas.iter().any(|it| it.get("Filename") == Some(name)) {
            return Err(IndexError::Differs((*name).to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::tree::Tree;

    fn package(name: &str) -> Vec<u8> {
        let mut content = ipk::Content::default();
        let text = format!("Package: {name}\nVersion: 1-r1\nDescription: b\n c\n");
        content
            .control
            .file("control", 0o644, text.as_bytes())
            .unwrap();
        content.data = Tree::default();
        ipk::write(&content, 1).unwrap()
    }

    #[test]
    fn packages_are_listed_as_they_are() {
        let (a, b) = (package("a"), package("b"));
        let packages = [("b.ipk", b.as_slice()), ("a.ipk", a.as_slice())];
        let text = write(&packages).unwrap();
        let expected = format!(
            "Package: a\nVersion: 1-r1\nFilename: a.ipk\nSize: {}\nSHA256sum: {}\nDescription: b\n c\n\nPackage: b\n",
            a.len(),
            hash::hex(&hash::sha256(&a)),
        );
        assert!(text.starts_with(&expected), "{text}");
        check(&text, &packages).unwrap();
        assert!(check(&text, &packages[..1]).is_err(), "missing");
        assert!(check("", &packages).is_err(), "not listed");
        assert!(
            check(&text, &[("b.ipk", &a), ("a.ipk", &b)]).is_err(),
            "changed"
        );
        assert!(matches!(
            write(&[("c.ipk", b"")]),
            Err(IndexError::Package { .. })
        ));
    }
}
