//! The state machine of one peer, as client or as server.
//!
//! [`Session`] gets packets and the time, and emits [`Output`]s: what to send, which keys to install, what to
//! ask. It negotiates keys, renews them, and notices when the peer is gone. It does not open data packets; the data
//! plane does, with the keys that it is given here.
//!
//! ```text
//! client                        server
//!   reset            ->                          no state (cookie)
//!                    <-         reset
//!   TLS, key record  <->        TLS, key record  Output::Authenticate, Session::authenticated
//!   PUSH_REQUEST     ->                          Output::PushRequested, Session::push
//!                    <-         PUSH_REPLY       keys are installed at both ends: Output::Connected
//!   SOFT_RESET       <->        SOFT_RESET       from either end, whenever keys are worn out
//! ```

#[cfg(feature = "server")]
mod accept;
mod authentication;
mod client;
mod facts;
mod key_state;
mod keys;
mod liveness;
mod machine;
mod output;
mod renegotiation;
mod server;
mod settings;
mod slots;
mod talk;
mod token;

pub use crate::data::wire::Layout;
pub use crate::key_method::Credentials;
pub use crate::keys::KeyMaterial;
pub use crate::verify::PeerCertificate;
pub use authentication::{DynamicChallenge, parse_static_response, static_response};
pub use liveness::Times;
pub use machine::Session;
pub use output::{
    AuthId, AuthRequest, CloseReason, ControlTraffic, DataKeys, Decision, Dropped, Handshake,
    Handshaken, Output, TokenState,
};
pub use renegotiation::KeyUsage;
pub use settings::{ClientSettings, Renegotiate, ServerSettings, Settings, Timers};
pub use token::TokenKeeper;

#[cfg(feature = "server")]
pub(crate) use accept::Start;
