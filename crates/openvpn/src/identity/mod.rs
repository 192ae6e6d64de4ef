//! Who we are: a certificate, its chain, and the private key.

/// A certificate chain and its private key, ready to sign.
#[derive(Clone)]
pub struct Identity {}

impl Identity {
    /// From `cert`, `key` and `extra-certs` (empty if not given): PEM, or DER.
    ///
    /// The key may be PKCS#1, PKCS#8 or SEC1, and may be encrypted: then `passphrase` is needed.
    pub fn from_pem(
        _cert: &[u8],
        _key: &[u8],
        _extra_certs: &[u8],
        _passphrase: Option<&[u8]>,
    ) -> Result<Self, IdentityError> {
        todo!()
    }

    /// From `pkcs12` (DER) and `extra-certs`. Certificates of authorities in the file are trusted
    /// if there is no `ca`.
    pub fn from_pkcs12(
        _file: &[u8],
        _extra_certs: &[u8],
        _passphrase: Option<&[u8]>,
    ) -> Result<Self, IdentityError> {
        todo!()
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Why a certificate or a key of ours cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The key or the container is encrypted and no passphrase was given; ask for one.
    #[error("{0} is encrypted and needs a passphrase; give it with askpass")]
    PassphraseNeeded(&'static str),
    /// The passphrase is wrong (or the file is damaged: the two cannot be told apart); ask again.
    #[error("the passphrase does not open {0}")]
    WrongPassphrase(&'static str),
    /// The file holds something else than it should, or is damaged.
    #[error("{what}: {reason}")]
    Unreadable {
        /// Which directive's file.
        what: &'static str,
        /// What is wrong with it and what to do.
        reason: String,
    },
    /// The file is of a kind that is not supported.
    #[error("{what}: {reason}")]
    Unsupported {
        /// Which directive's file.
        what: &'static str,
        /// What is not supported and what to do.
        reason: String,
    },
    /// The key is not the certificate's.
    #[error("the private key does not belong to the certificate; one of the two is of another pair")]
    Mismatch,
}
