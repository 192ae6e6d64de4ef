//! TLS inside the control channel: rustls on memory, with OpenVPN's rules for certificates.
//!
//! [`TlsSettings`] are made once from what the configuration says; each negotiation makes a
//! [`TlsSession`] of them. There are no session tickets, no resumption and no server names: every
//! negotiation proves both ends again.

mod error;
#[cfg(feature = "server")]
mod server;
mod session;
mod settings;
mod suites;
mod verifier;

pub use error::{SettingsError, TlsError};
pub use session::TlsSession;
pub use settings::{TlsOptions, TlsSettings, TlsVersion};
pub use verifier::ClientCertificate;

/// The TLS session of either role, in builds that have both.
#[cfg(feature = "server")]
use rustls::Connection;

/// The TLS session of the only role in this build.
#[cfg(not(feature = "server"))]
use rustls::ClientConnection as Connection;
