//! The peer's identity: its certificate, checked by OpenVPN's rules.
//!
//! webpki builds and verifies the chain; names of hosts play no part, so a certificate with only a
//! common name will do. The rules in `PeerRules` and revocation are checked in addition. Each refusal names the
//! certificate, the reason and the remedy.

mod authority_peer;
mod candidates;
mod certificate;
mod chain;
mod crl;
mod peer;
mod refusal;
mod rules;
mod strength;
mod time;

pub(crate) use chain::Trust;
#[doc(hidden)]
pub use chain::fuzz;
pub use crl::RevokedSerials;
pub(crate) use crl::{RevocationLists, Revocations};
pub use peer::{ChainCertificate, PeerCertificate};
pub use rules::{Fingerprint, KeyUsageRule, NameRule, PeerRules, Usage};
pub use strength::CertificateProfile;
pub(crate) use time::Time;

#[cfg(feature = "server")]
pub(crate) use certificate::Certificate;
#[cfg(feature = "server")]
pub(crate) use crl::{RevocationList, verifies};

/// Why a peer's certificate does not satisfy us.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the certificate '{subject}' is refused: {reason}")]
pub struct VerifyError {
    /// The subject of the certificate, as OpenVPN prints it.
    pub subject: String,
    /// The kind of reason.
    pub fault: VerifyFault,
    /// The fault, and its remedy.
    pub reason: String,
}

/// The kinds of reason for which a certificate is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerifyFault {
    /// The certificate cannot be read, or is in an unsupported format.
    Unreadable,
    /// The certificate, or one above it, has expired.
    Time,
    /// The certificate, or one above it, is not valid yet.
    Early,
    /// The time cannot be judged, as the clock is known to be wrong.
    Clock,
    /// The certificate is revoked, or the revocation list cannot be relied upon.
    Revoked,
    /// No trusted authority has signed the certificate.
    Unknown,
    /// The key or a signature is too weak.
    Weak,
    /// The certificate was issued for another purpose, or a constraint forbids the purpose.
    Purpose,
    /// A rule of the configuration excludes the certificate.
    Rule,
}
