//! Texts that stand in a file of their own or inline in the configuration.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::file;

/// Largest accepted file of certificates, keys or passwords, in bytes.
pub const SOURCE_MAX: u64 = 4 << 20;

/// A text that `Debug` hides and that is overwritten when dropped: keys, passwords, and the texts around them in
/// inline blocks.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text over.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Source of a certificate, a key, a list or a password.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// In the configuration, between `<name>` and `</name>`. A PKCS#12 bundle is base64 here.
    Inline(Secret),
    /// In a file; a relative path starts at [`crate::openvpn::OpenVpn::directory`].
    File(PathBuf),
}

impl Source {
    /// Returns the inline text, or the file's content. Relative paths start at `directory`.
    ///
    /// # Errors
    /// The kernel's error, or `FileTooLarge` above [`SOURCE_MAX`] bytes.
    pub fn load(&self, directory: Option<&Path>) -> io::Result<Zeroizing<Vec<u8>>> {
        match self {
            Self::Inline(text) => Ok(Zeroizing::new(text.expose().as_bytes().to_vec())),
            Self::File(path) => file::read_handed_over(&resolve(directory, path), SOURCE_MAX),
        }
    }

    /// True for an inline block.
    #[must_use]
    pub const fn is_inline(&self) -> bool {
        matches!(self, Self::Inline(_))
    }
}

/// Source of a user name and a password.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Prompted {
    /// Ask the user: on the terminal, or through the management interface.
    Ask,
    /// Two lines (one for a passphrase); the user is asked for a missing second line.
    From(Source),
}

/// Resolves a path of the configuration against `directory`.
#[must_use]
pub fn resolve(directory: Option<&Path>, path: &Path) -> PathBuf {
    match directory {
        Some(directory) => directory.join(path),
        None => path.to_owned(),
    }
}
