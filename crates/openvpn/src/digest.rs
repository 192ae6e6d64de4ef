//! Message digests as `--auth` names them, and HMAC with them: the data channel's.

pub use crypto::Digest;
pub use crypto::hmac::Hmac;
