//! TLS errors, sorted by which end is at fault.

use rustls::{AlertDescription, PeerIncompatible};

use crate::identity::IdentityError;
use crate::verify::VerifyError;

/// The configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The certificate or key of this end cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A file of certificates or a revocation list cannot be read.
    #[error("{what}: {reason}")]
    Unreadable {
        /// The directive that names the file.
        what: &'static str,
        /// The fault, and its remedy.
        reason: String,
    },
    /// The configuration lacks a required part.
    #[error("{0}")]
    Missing(&'static str),
    /// A directive names only unknown values.
    #[error("{directive} {value}: {reason}")]
    NothingLeft {
        /// Name of the directive.
        directive: &'static str,
        /// The directive's value, as configured.
        value: String,
        /// Why nothing is left and what to do.
        reason: &'static str,
    },
    /// A directive requests something that Millrace does not do.
    #[error("{directive}: {reason}")]
    Refused {
        /// The directive, with its value.
        directive: &'static str,
        /// The reason, and the remedy.
        reason: &'static str,
    },
}

/// A negotiation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The peer's certificate is refused.
    #[error(transparent)]
    Certificate(#[from] VerifyError),
    /// The peer refuses us with an alert.
    #[error("the peer refuses with the TLS alert '{alert}'{hint}{offered}")]
    Alert {
        /// The name of the alert.
        alert: String,
        /// Most likely meaning of the alert; begins with a separator or is empty.
        hint: &'static str,
        /// Our own offer, where it may be the reason; begins with a separator or is empty.
        offered: String,
    },
    /// The two ends have no version, suite or group in common.
    #[error("both ends have nothing in common: {reason}; {offered}; {remedy}")]
    Incompatible {
        /// The missing common part: version, suite or group.
        reason: String,
        /// The offers of both ends, as far as they are known.
        offered: String,
        /// The remedy, and at which end.
        remedy: &'static str,
    },
    /// The peer must show a certificate and has none.
    #[error(
        "the peer sent no certificate; give it one, or set verify-client-cert optional or none"
    )]
    NoCertificate,
    /// The peer sent what TLS forbids, or it was changed in transit.
    #[error("the peer violates TLS: {0}")]
    Protocol(String),
    /// The peer sent more bytes than the session keeps.
    #[error("more than {0} bytes from the peer are still unread")]
    Flood(usize),
    /// More bytes wait to be sent than the session keeps.
    #[error("more than {0} bytes are waiting to be sent")]
    Full(usize),
    /// The peer closed the TLS session.
    #[error("the peer closed the TLS session")]
    Closed,
    /// The call needs a finished handshake.
    #[error("the TLS handshake is not complete yet")]
    NotReady,
    /// The TLS library refuses what we ask of it.
    #[error("TLS: {0}")]
    Library(String),
}

impl TlsError {
    /// Sorts rustls' error by whose fault it is; `refused` is the error of our own rules, `offered` the offers of both
    /// ends.
    pub(super) fn of_rustls(
        error: rustls::Error,
        refused: Option<VerifyError>,
        offered: impl FnOnce() -> String,
    ) -> Self {
        use rustls::Error as E;
        if let (E::InvalidCertificate(_), Some(refused)) = (&error, refused) {
            return Self::Certificate(refused);
        }
        match error {
            E::AlertReceived(alert) => Self::Alert {
                alert: format!("{alert:?}"),
                hint: alert_hint(alert),
                offered: match alert {
                    AlertDescription::ProtocolVersion
                    | AlertDescription::HandshakeFailure
                    | AlertDescription::InsufficientSecurity => format!("; {}", offered()),
                    _ => String::new(),
                },
            },
            E::PeerIncompatible(reason) => Self::Incompatible {
                reason: format!("{reason:?}"),
                offered: offered(),
                remedy: incompatible_remedy(&reason),
            },
            E::NoCertificatesPresented => Self::NoCertificate,
            E::InvalidCertificate(reason) => Self::Protocol(format!(
                "its certificate does not match its signature, or cannot be used ({reason})"
            )),
            E::General(_)
            | E::FailedToGetCurrentTime
            | E::FailedToGetRandomBytes
            | E::EncryptError
            | E::InconsistentKeys(_) => Self::Library(error.to_string()),
            other => Self::Protocol(other.to_string()),
        }
    }
}

/// Most likely meaning of a peer's alert.
fn alert_hint(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::UnknownCA => ": it does not know our certificate's authority",
        AlertDescription::CertificateExpired => {
            ": our certificate has expired, or its clock is wrong"
        }
        AlertDescription::CertificateRevoked => ": our certificate is revoked",
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            ": it requires a certificate; set cert and key"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => {
            ": it does not accept our certificate; its log says why"
        }
        AlertDescription::ProtocolVersion => {
            ": it supports neither TLS 1.2 nor 1.3; update it (OpenVPN 2.3.3 and later have TLS 1.2)"
        }
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            ": most likely we have no cipher suite in common; allow there ECDHE with AES-GCM or ChaCha20-Poly1305 \
             (its tls-cipher), or update it"
        }
        _ => "",
    }
}

/// The remedy for a peer with which we have nothing in common.
fn incompatible_remedy(reason: &PeerIncompatible) -> &'static str {
    match reason {
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::SupportedVersionsExtensionRequired => {
            "TLS 1.2 or 1.3 is needed: update the peer (OpenVPN 2.3.3 and later have TLS 1.2), and check \
             tls-version-min and tls-version-max at both ends"
        }
        PeerIncompatible::NoCipherSuitesInCommon => {
            "ECDHE with AES-GCM or ChaCha20-Poly1305 is needed: check tls-cipher at both ends, and update the peer if \
             its OpenSSL is older than 1.0.1"
        }
        PeerIncompatible::NoKxGroupsInCommon
        | PeerIncompatible::NamedGroupsExtensionRequired
        | PeerIncompatible::EcPointsExtensionRequired
        | PeerIncompatible::NoEcPointFormatsInCommon => {
            "X25519, P-256 or P-384 is needed: check tls-groups and ecdh-curve at both ends"
        }
        PeerIncompatible::NoSignatureSchemesInCommon
        | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon
        | PeerIncompatible::SignatureAlgorithmsExtensionRequired => {
            "signatures with SHA-256 or better are needed: check the kind of key in both certificates, and update the \
             peer"
        }
        _ => "update the peer",
    }
}
