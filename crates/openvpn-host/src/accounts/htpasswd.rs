//! A file of names and password hashes in the format of `htpasswd` and `mkpasswd`, so that a small server needs no
//! script for its users.
//!
//! Lines are `name:hash`, with bcrypt (`$2y$`), SHA-crypt (`$5$`, `$6$`) or Apache's MD5 (`$apr1$`). Checks are slow by
//! design, and as slow for unknown names as for known ones: run them in `Background`.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::fmt;
use std::hash::BuildHasher as _;
use std::io;
use std::path::{Path, PathBuf};

use sha_crypt::{PasswordVerifier as _, ShaCrypt};
use subtle::ConstantTimeEq as _;
use thiserror::Error;
use zeroize::Zeroizing;

use super::md5_crypt;

/// Largest file that is read, in bytes: some ten thousand users.
const FILE_MAX: u64 = 1 << 20;

/// Longest password that is hashed, in bytes: the cost of SHA-crypt grows with its length, and any sender may try.
pub(crate) const PASSWORD_MAX: usize = 256;

/// Error while loading a password file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PasswordFileError {
    /// The file cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// Path of the password file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}

/// An invalid line, whose user cannot log in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BadLine {
    /// Line number, from 1.
    pub line: usize,
    /// Fault of the line.
    pub why: &'static str,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}: {}; write it anew with `htpasswd -B`",
            self.line, self.why
        )
    }
}

#[derive(Clone)]
enum Hash {
    Bcrypt(String),
    Sha(String),
    Apr1(String),
}

/// Names and their hashes.
#[derive(Clone, Default)]
pub struct PasswordFile {
    users: HashMap<String, Hash>,
    /// The file's hashes, in order, for unknown names. Each name always gets the same one, so its check takes as long
    /// as a known name's, whatever kinds of hash the file has.
    decoys: Vec<Hash>,
    /// Secret of this process that maps unknown names to decoys.
    choice: RandomState,
}

impl fmt::Debug for PasswordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PasswordFile({} users)", self.users.len())
    }
}

impl PasswordFile {
    /// Reads a file. Also returns its invalid lines, whose users cannot log in.
    ///
    /// # Errors
    /// The file cannot be read, or is larger than a megabyte.
    pub fn load(path: &Path) -> Result<(Self, Vec<BadLine>), PasswordFileError> {
        let failed = |error| PasswordFileError::Read {
            path: path.to_owned(),
            error,
        };
        let text = config::file::read_text(path, FILE_MAX).map_err(failed)?;
        Ok(Self::parse(&text))
    }

    /// Parses the lines of a file. The first line for a name counts, as with Apache.
    pub(crate) fn parse(text: &str) -> (Self, Vec<BadLine>) {
        let mut file = Self::default();
        let mut bad = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim_end();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            match user(text) {
                Ok((name, hash)) => {
                    if let Entry::Vacant(entry) = file.users.entry(name.to_owned()) {
                        file.decoys.push(hash.clone());
                        entry.insert(hash);
                    }
                }
                Err(why) => bad.push(BadLine { line, why }),
            }
        }
        (file, bad)
    }

    /// Returns the number of users.
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// Whether this is the user's password. Passwords longer than [`PASSWORD_MAX`] are refused.
    pub fn check(&self, name: &str, password: &Zeroizing<String>) -> bool {
        if password.len() > PASSWORD_MAX {
            return false;
        }
        if let Some(hash) = self.users.get(name) {
            return hash.matches(password);
        }
        if let Some(decoy) = self.decoy(name) {
            decoy.matches(password);
        }
        false
    }

    fn decoy(&self, name: &str) -> Option<&Hash> {
        let count = self.decoys.len() as u64;
        let at = self.choice.hash_one(name).checked_rem(count)?;
        self.decoys.get(usize::try_from(at).ok()?)
    }
}

fn user(line: &str) -> Result<(&str, Hash), &'static str> {
    let (name, hash) = line
        .split_once(':')
        .ok_or("no `:` between the name and the hash")?;
    if name.is_empty() {
        return Err("no name before the `:`");
    }
    // A second colon begins a comment for other programs.
    let hash = hash.split(':').next().unwrap_or_default();
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| hash.starts_with(prefix));
    if starts(&["$2y$", "$2b$", "$2a$"]) {
        Ok((name, Hash::Bcrypt(hash.to_owned())))
    } else if starts(&["$5$", "$6$"]) {
        Ok((name, Hash::Sha(hash.to_owned())))
    } else if starts(&["$apr1$"]) {
        Ok((name, Hash::Apr1(hash.to_owned())))
    } else if starts(&["{SHA}"]) {
        Err("`{SHA}` has no salt and is broken in no time")
    } else {
        Err("the hash is of no kind known here (bcrypt, SHA-crypt, apr1)")
    }
}

impl Hash {
    fn matches(&self, password: &str) -> bool {
        match self {
            // A broken hash matches no password.
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Sha(hash) => ShaCrypt::default()
                .verify_password(password.as_bytes(), hash.as_str())
                .is_ok(),
            Self::Apr1(hash) => md5_crypt::apr1(password.as_bytes(), hash)
                .is_some_and(|computed| computed.as_bytes().ct_eq(hash.as_bytes()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The password of each is `open sesame`; made with Apache's and OpenSSL's programs.
    const FILE: &str = "# users\n\
        bcrypt:$2y$04$HvcEi5yLC0PK9YfNHOga2.yPpc9.TA0JX3F4eMkP.JfTYR1halmXe\n\
        apr1:$apr1$RBM9L4EI$oCqvbQ2YhRSfNI5PXQMKv/\n\
        apr1salt:$apr1$saltsalt$HIDXe7D36X22w1CH4M1cQ.\n\
        sha256:$5$saltsalt$yrhPKxCqiWcCE9h0g86j6Ugz7SDFdFm.BjU.d8RaQnC:comment\r\n\
        sha512:$6$saltsalt$e/5XKibXPLqVcfjpD.ouauaJrAOL5V0uo80Lt7n7EbRdRiCx3HbQ90yjOHr.G0T.mx79PEMRy8nmtr0qSYhQp1\n\
        bcrypt:$apr1$saltsalt$HIDXe7D36X22w1CH4M1cQ.\n";

    fn password(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_owned())
    }

    #[test]
    fn every_kind_of_hash_knows_its_password() {
        let (file, bad) = PasswordFile::parse(FILE);
        assert_eq!((file.users(), bad), (5, vec![]));
        for name in ["bcrypt", "apr1", "apr1salt", "sha256", "sha512"] {
            assert!(file.check(name, &password("open sesame")), "{name}");
            for wrong in ["", "open sesamE", "open sesame ", "$apr1$"] {
                assert!(!file.check(name, &password(wrong)), "{name} {wrong}");
            }
        }
        assert!(!file.check("nobody", &password("open sesame")));
        assert!(!file.check("", &password("")));
    }

    #[test]
    fn lines_of_no_use_are_named_and_let_no_user_in() {
        let text = "a:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\nb:plain\n:x\nno colon\nc:\n";
        let (file, bad) = PasswordFile::parse(text);
        assert_eq!(file.users(), 0);
        let lines: Vec<usize> = bad.iter().map(|line| line.line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5]);
        assert!(bad[0].to_string().starts_with("line 1: `{SHA}`"));
        assert!(!file.check("b", &password("plain")));
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        std::fs::write(&path, FILE).unwrap();
        assert_eq!(PasswordFile::load(&path).unwrap().0.users(), 5);
        std::fs::write(&path, "#".repeat(FILE_MAX as usize + 1)).unwrap();
        assert!(PasswordFile::load(&path).is_err());
        assert!(PasswordFile::load(directory.path()).is_err());
        let (file, _) = PasswordFile::parse(FILE);
        assert_eq!(format!("{file:?}"), "PasswordFile(5 users)");
    }

    #[test]
    fn a_name_that_is_not_there_takes_as_long_as_one_that_is() {
        let (file, _) = PasswordFile::parse(FILE);
        let kind = |hash: &Hash| match hash {
            Hash::Bcrypt(text) | Hash::Sha(text) | Hash::Apr1(text) => text.clone(),
        };
        let mut of: HashMap<String, usize> = HashMap::new();
        for number in 0..1000 {
            let name = format!("nobody{number}");
            let decoy = kind(file.decoy(&name).unwrap());
            assert_eq!(decoy, kind(file.decoy(&name).unwrap()), "always the same");
            *of.entry(decoy).or_default() += 1;
        }
        // Each hash is chosen equally often.
        assert_eq!(of.len(), file.users());
        assert!(of.values().all(|count| *count > 100), "{of:?}");
        assert!(PasswordFile::default().decoy("nobody").is_none());
    }

    #[test]
    fn passwords_that_are_too_long_cost_nothing() {
        // The maximum number of rounds would take minutes.
        let text = "a:$6$rounds=999999999$saltsalt$e/5XKibXPLqVcfjpD\n";
        let (file, _) = PasswordFile::parse(text);
        assert_eq!(file.users(), 1);
        for name in ["a", "nobody"] {
            assert!(!file.check(name, &password(&"x".repeat(PASSWORD_MAX + 1))));
        }
    }

    proptest! {
        // Each case hashes thousands of rounds.
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn broken_hashes_match_nothing(
            prefix in prop::sample::select(vec!["$2y$04$", "$5$", "$6$", "$apr1$", ""]),
            rest in "[ -~]{0,80}",
        ) {
            let (file, _) = PasswordFile::parse(&format!("a:{prefix}{rest}"));
            prop_assert!(!file.check("a", &password("x")));
        }
    }
}
