//! Our own identity: a certificate, its chain, and the private key.

mod encrypted;
mod kdf;
mod pkcs12;
pub(crate) mod private_key;

use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SigningKey};

use crate::{der, pem};

/// The label of a certificate, and what old programs wrote instead.
const CERTIFICATE_LABELS: &[&str] = &["CERTIFICATE", "X509 CERTIFICATE"];

/// A certificate chain and its private key, ready to sign.
#[derive(Clone)]
pub struct Identity {
    pub(crate) key: Arc<CertifiedKey>,
    /// Certificates of authorities that came in the same container.
    pub(crate) authorities: Vec<CertificateDer<'static>>,
}

impl Identity {
    /// Reads `cert`, `key` and `extra-certs` (empty if not given): PEM, or DER.
    ///
    /// The key may be PKCS#1, PKCS#8 or SEC1, and may be encrypted: then `passphrase` is needed.
    pub fn from_pem(
        cert: &[u8],
        key: &[u8],
        extra_certs: &[u8],
        passphrase: Option<&[u8]>,
    ) -> Result<Self, IdentityError> {
        let chain = chain(cert, extra_certs)?;
        let key = private_key::read("key", key, passphrase)?;
        Self::new(chain, key, Vec::new())
    }

    /// Reads `pkcs12` (DER) and `extra-certs`. Certificates of authorities in the file are trusted
    /// if there is no `ca`, and sent along if there is.
    pub fn from_pkcs12(
        file: &[u8],
        extra_certs: &[u8],
        passphrase: Option<&[u8]>,
    ) -> Result<Self, IdentityError> {
        let contents = pkcs12::read(file, passphrase)?;
        let mut chain = vec![contents.certificate];
        if !extra_certs.is_empty() {
            chain.append(&mut certificates("extra-certs", extra_certs)?);
        }
        Self::new(chain, contents.key, contents.authorities)
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: Arc<dyn SigningKey>,
        authorities: Vec<CertificateDer<'static>>,
    ) -> Result<Self, IdentityError> {
        let key = CertifiedKey::new(chain, key);
        match key.keys_match() {
            // Some keys do not tell their public half; then the handshake finds out.
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
            Err(rustls::Error::InconsistentKeys(_)) => return Err(IdentityError::Mismatch),
            Err(_) => {
                return Err(IdentityError::Unreadable {
                    what: "cert",
                    reason: "it is not an X.509 certificate of version 3; have a new one made"
                        .to_owned(),
                });
            }
        }
        Ok(Self {
            key: Arc::new(key),
            authorities,
        })
    }

    /// Returns this key with a renewed certificate, from `cert` and `extra-certs`.
    #[cfg(feature = "server")]
    pub(crate) fn with_certificate(
        &self,
        cert: &[u8],
        extra_certs: &[u8],
    ) -> Result<Self, IdentityError> {
        let chain = chain(cert, extra_certs)?;
        Self::new(chain, Arc::clone(&self.key.key), self.authorities.clone())
    }

    /// The certificates that are sent, as DER, our own first.
    pub fn certificates(&self) -> impl Iterator<Item = &[u8]> {
        self.key.cert.iter().map(AsRef::as_ref)
    }

    /// Makes a signature and discards it. The first one of an RSA key takes twice as long as later ones, which reuse
    /// its blinding values.
    pub(crate) fn prepare(&self) {
        let all = [
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA512,
        ];
        // `None` for keys of other kinds.
        if let Some(signer) = self.key.key.choose_scheme(&all) {
            // A failure here fails the handshake too, which tells why.
            let _ = signer.sign(&[]);
        }
    }

    /// Adds the authorities of the container to the chain.
    pub(crate) fn with_authorities_sent(&self) -> Self {
        let mut chain = self.key.cert.clone();
        chain.extend(self.authorities.iter().cloned());
        let key = CertifiedKey::new(chain, Arc::clone(&self.key.key));
        Self {
            key: Arc::new(key),
            authorities: Vec::new(),
        }
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let certificates = self.key.cert.len();
        f.debug_struct("Identity")
            .field("certificates", &certificates)
            .finish_non_exhaustive()
    }
}

/// The certificates of `cert` and `extra-certs` (empty if not given), in the order in which they are sent.
fn chain(cert: &[u8], extra_certs: &[u8]) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let mut chain = certificates("cert", cert)?;
    if !extra_certs.is_empty() {
        chain.append(&mut certificates("extra-certs", extra_certs)?);
    }
    Ok(chain)
}

/// The certificates of a file: PEM with one or several, or one as DER.
pub(crate) fn certificates(
    what: &'static str,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let blocks = pem::blocks_or_der(bytes, CERTIFICATE_LABELS)
        .map_err(|reason| IdentityError::Unreadable { what, reason })?;
    if !blocks.iter().all(|it| is_certificate(it)) {
        return Err(IdentityError::Unreadable {
            what,
            reason: "it contains data other than X.509 certificates; name a file of certificates"
                .to_owned(),
        });
    }
    Ok(blocks.into_iter().map(CertificateDer::from).collect())
}

/// Whether bytes have the outline of an X.509 certificate (RFC 5280 section 4.1) and nothing behind it. A private key,
/// which must never be sent, has another outline.
fn is_certificate(bytes: &[u8]) -> bool {
    der::only(bytes, der::SEQUENCE).is_ok_and(|mut parts| {
        let signed = parts.content(der::SEQUENCE).is_ok();
        signed
            && parts.content(der::SEQUENCE).is_ok()
            && parts.bit_string().is_ok()
            && parts.end().is_ok()
    })
}

/// Why a certificate or a key of ours cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The key or the container is encrypted and no passphrase was given; ask for one.
    #[error("{0} is encrypted and needs a passphrase; name its file with askpass")]
    PassphraseNeeded(&'static str),
    /// The passphrase is wrong (or the file is damaged: the two cannot be told apart); ask again.
    #[error("the passphrase does not decrypt {0}")]
    WrongPassphrase(&'static str),
    /// The file holds something else than it should, or is damaged.
    #[error("{what}: {reason}")]
    Unreadable {
        /// The directive that names the file.
        what: &'static str,
        /// The fault, and its remedy.
        reason: String,
    },
    /// The file is of a kind that is not supported.
    #[error("{what}: {reason}")]
    Unsupported {
        /// The directive that names the file.
        what: &'static str,
        /// The missing feature, and the remedy.
        reason: String,
    },
    /// The private key does not belong to the certificate.
    #[error(
        "the private key does not belong to the certificate; use a key and certificate that were made together"
    )]
    Mismatch,
}
