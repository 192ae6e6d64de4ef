//! The OpenVPN protocol, sans-IO: bytes and `now` in; bytes, keys and deadlines out.

#![forbid(unsafe_code)]

#[cfg(feature = "server")]
pub mod authority;
pub mod cookie;
pub mod data;
mod der;
#[cfg(feature = "server")]
pub mod expiry;
pub mod identity;
pub mod key_method;
pub mod keyfile;
pub mod keys;
pub mod message;
mod name;
pub mod negotiate;
pub mod packet;
mod pem;
pub mod prf;
pub mod push;
pub mod reliable;
#[cfg(feature = "server")]
pub mod renewal;
pub mod role;
#[cfg(feature = "server")]
pub mod server;
pub mod session;
pub mod tls;
pub mod verify;
pub mod wrap;
