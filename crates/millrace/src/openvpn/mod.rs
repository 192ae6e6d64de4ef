//! OpenVPN: what stands between the protocol crate, the data plane and the system.

pub(crate) mod policy;
