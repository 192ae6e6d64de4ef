//! Message digests as `--auth` names them, and HMAC with them: the data channel's.

pub use crypto::hmac::Hmac;
pub use crypto::openvpn::Digest;
