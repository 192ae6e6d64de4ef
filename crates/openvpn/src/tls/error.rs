//! What goes wrong with TLS, by whose fault it is.

use crate::identity::IdentityError;
use crate::verify::VerifyError;

/// The configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The certificate or key of this end.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A file of certificates or a revocation list cannot be read.
    #[error("{what}: {reason}")]
    Unreadable {
        /// Which directive's file.
        what: &'static str,
        /// What is wrong with it and what to do.
        reason: String,
    },
    /// Something that the configuration must have is not there.
    #[error("{0}")]
    Missing(&'static str),
    /// Nothing that a directive names is known.
    #[error("{directive} {value}: {reason}")]
    NothingLeft {
        /// The directive.
        directive: &'static str,
        /// Its value.
        value: String,
        /// Why nothing is left and what to do.
        reason: &'static str,
    },
    /// A directive asks for something that is not done.
    #[error("{directive}: {reason}")]
    Refused {
        /// The directive, with its value.
        directive: &'static str,
        /// Why not, and what to do.
        reason: &'static str,
    },
}

/// A negotiation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The peer's certificate does not satisfy us.
    #[error(transparent)]
    Certificate(#[from] VerifyError),
    /// The peer refuses us with an alert.
    #[error("the peer refuses with the TLS alert '{alert}'{hint}")]
    Alert {
        /// The name of the alert.
        alert: String,
        /// What it means, most likely; begins with a separator or is empty.
        hint: &'static str,
    },
    /// The two ends have no version, suite or group in common.
    #[error("no common ground with the peer: {reason}; {remedy}")]
    Incompatible {
        /// What is not common.
        reason: String,
        /// What to do at which end.
        remedy: &'static str,
    },
    /// The peer sent what TLS forbids, or something on the way changed it.
    #[error("the peer breaks TLS: {0}")]
    Protocol(String),
    /// The peer sent more than is kept for it.
    #[error("the peer sent more than {0} bytes that nobody read yet")]
    Flood(usize),
    /// More was to be sent than is kept.
    #[error("more than {0} bytes wait to be sent")]
    Full(usize),
    /// The peer closed the TLS session.
    #[error("the peer closed the TLS session")]
    Closed,
    /// Something was asked for that comes only after the handshake.
    #[error("the TLS handshake is not done yet")]
    NotReady,
    /// The TLS library refuses what we ask of it.
    #[error("TLS: {0}")]
    Library(String),
}
