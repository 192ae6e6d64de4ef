//! The OpenVPN protocol, sans-IO: bytes and `now` in; bytes, keys and deadlines out.

#![forbid(unsafe_code)]

pub mod epoch;
pub mod identity;
pub mod key_method;
pub mod keys;
mod name;
pub mod prf;
pub mod role;
pub mod session_id;
pub mod tls;
pub mod verify;
