//! The state machine of one peer, as client or as server.

mod output;

pub use output::{
    AuthId, AuthRequest, CloseReason, DataFormat, DataKeys, Decision, Output, TokenState,
};

pub use crate::digest::Digest;
pub use crate::keys::KeyMaterial;
pub use crate::verify::PeerCertificate;
