//! `Packages`, the index of a directory for opkg and for apt, and apt's `Release`, as apt-ftparchive(1) would write
//! them. Beside `Packages` are `Packages.gz` and, for opkg and if signed, `Packages.sig`.

use crate::packages::ipk::{self, Content, PackageError};
use crate::packages::stanza::{Stanza, StanzaError};
use crate::packages::{deb, hash};
use thiserror::Error;

/// Why an index cannot be made or read.
#[derive(Debug, Error)]
pub enum IndexError {
    /// A package is invalid.
    #[error("{name}: {error}")]
    Package {
        /// The package's file name.
        name: String,
        /// Cause of the failure.
        error: PackageError,
    },
    /// A package's control file, or the index, is not a list of fields.
    #[error("{name}: {error}")]
    Stanza {
        /// Name of the package file.
        name: String,
        /// Cause of the failure.
        error: StanzaError,
    },
    /// A package's control file does not have exactly one stanza, or is not text.
    #[error("{0}: the control file is not one list of fields")]
    Control(String),
    /// A package's size or digest differs from the index.
    #[error("{0}: not as the index says")]
    Differs(String),
}

/// The program that reads the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// OpenWrt's opkg, with packages of [`ipk`].
    Opkg,
    /// Debian's apt, with packages of [`deb`].
    Apt,
}

impl Manager {
    fn read(self, bytes: &[u8]) -> Result<Content, PackageError> {
        match self {
            Self::Opkg => ipk::read(bytes),
            Self::Apt => deb::read(bytes),
        }
    }

    /// Reads the control file of a package.
    fn control(self, name: &str, bytes: &[u8]) -> Result<Stanza, IndexError> {
        let package = self.read(bytes).map_err(|error| IndexError::Package {
            name: name.to_owned(),
            error,
        })?;
        let wrong = || IndexError::Control(name.to_owned());
        let text = package.control.content("control").unwrap_or_default();
        let text = str::from_utf8(text).map_err(|_| wrong())?;
        let [stanza] = <[Stanza; 1]>::try_from(parse(name, text)?).map_err(|_| wrong())?;
        Ok(stanza)
    }
}

fn parse(name: &str, text: &str) -> Result<Vec<Stanza>, IndexError> {
    Stanza::parse(text).map_err(|error| IndexError::Stanza {
        name: name.to_owned(),
        error,
    })
}

/// Writes the text of `Packages` for packages and their file names.
///
/// # Errors
/// When a package is invalid.
pub fn packages(manager: Manager, packages: &[(&str, &[u8])]) -> Result<String, IndexError> {
    let (directory, digest) = match manager {
        Manager::Opkg => ("", "SHA256sum"),
        Manager::Apt => ("./", "SHA256"),
    };
    let mut sorted = packages.to_vec();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    let mut text = String::new();
    for (name, bytes) in sorted {
        let file = Stanza::default()
            .with("Filename", format!("{directory}{name}"))
            .with("Size", bytes.len())
            .with(digest, hash::hex(&hash::sha256(bytes)));
        let stanza = manager.control(name, bytes)?;
        text.push_str(&format!("{}\n", stanza.with_before("Description", file)));
    }
    Ok(text)
}

/// Checks that an index for opkg matches packages, given with their file names.
///
/// # Errors
/// At the first package that differs, is missing, or is not listed.
pub fn check(text: &str, packages: &[(&str, &[u8])]) -> Result<(), IndexError> {
    let stanzas = parse("Packages", text)?;
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

/// Writes the text of `Release` for index files and their names, with a date in seconds since 1970.
#[must_use]
pub fn release(files: &[(&str, &[u8])], date: u64) -> String {
    let lines = files.iter().map(|(name, bytes)| {
        let digest = hash::hex(&hash::sha256(bytes));
        format!("\n{digest} {} {name}", bytes.len())
    });
    let stanza = Stanza::default()
        .with("Origin", "Millrace")
        .with("Label", "Millrace")
        .with("Suite", "stable")
        .with("Date", rfc_2822(date))
        .with("SHA256", lines.collect::<String>());
    // apt expects no space after the colon of a list.
    stanza.to_string().replace("SHA256: \n", "SHA256:\n")
}

/// Formats a date like `Thu, 01 Jan 1970 00:00:00 UTC`.
fn rfc_2822(date: u64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    const WEEK: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let (days, seconds) = (date / 86_400, date % 86_400);
    // Counts days from 1 March of the year 0, in eras of 400 years, so that a leap day is the last day of its year.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let january_on = month >= 10;
    let year = era * 400 + year + u64::from(january_on);
    let month = MONTHS[((month + 2) % 12) as usize];
    let week = WEEK[(days % 7) as usize];
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{week}, {of_month:02} {month} {year} {hours:02}:{minutes:02}:{seconds:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::tree::Tree;

    fn package(name: &str) -> Vec<u8> {
        let mut content = Content::default();
        let text = format!("Package: {name}\nVersion: 1-r1\nDescription: b\n c\n");
        content
            .control
            .file("control", 0o644, text.as_bytes())
            .unwrap();
        content.data = Tree::default();
        ipk::write(&content, 1).unwrap()
    }

    #[test]
    fn packages_for_opkg_are_listed_as_they_are() {
        let (a, b) = (package("a"), package("b"));
        let ipks = [("b.ipk", b.as_slice()), ("a.ipk", a.as_slice())];
        let text = packages(Manager::Opkg, &ipks).unwrap();
        let expected = format!(
            "Package: a\nVersion: 1-r1\nFilename: a.ipk\nSize: {}\nSHA256sum: {}\nDescription: b\n c\n\nPackage: b\n",
            a.len(),
            hash::hex(&hash::sha256(&a)),
        );
        assert!(text.starts_with(&expected), "{text}");
        check(&text, &ipks).unwrap();
        assert!(check(&text, &ipks[..1]).is_err(), "missing");
        assert!(check("", &ipks).is_err(), "not listed");
        assert!(
            check(&text, &[("b.ipk", &a), ("a.ipk", &b)]).is_err(),
            "changed"
        );
        assert!(matches!(
            packages(Manager::Opkg, &[("c.ipk", b"")]),
            Err(IndexError::Package { .. })
        ));
    }

    #[test]
    fn the_index_is_what_apt_reads() {
        let mut content = Content::default();
        content
            .control
            .file("control", 0o644, b"Package: a\nDescription: b\n")
            .unwrap();
        let bytes = deb::write(&content, 1).unwrap();
        let text = packages(Manager::Apt, &[("a.deb", &bytes)]).unwrap();
        let expected = format!(
            "Package: a\nFilename: ./a.deb\nSize: {}\nSHA256: {}\nDescription: b\n\n",
            bytes.len(),
            hash::hex(&hash::sha256(&bytes)),
        );
        assert_eq!(text, expected);
        let release = release(&[("Packages", b"x")], 1_709_210_096);
        let expected = format!(
            "Origin: Millrace\nLabel: Millrace\nSuite: stable\nDate: Thu, 29 Feb 2024 12:34:56 UTC\nSHA256:\n {} 1 Packages\n",
            hash::hex(&hash::sha256(b"x")),
        );
        assert_eq!(release, expected);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (date, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 UTC"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 UTC"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 UTC"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 UTC"),
            (1_735_689_600, "Wed, 01 Jan 2025 00:00:00 UTC"),
        ] {
            assert_eq!(rfc_2822(date), text);
        }
    }
}
