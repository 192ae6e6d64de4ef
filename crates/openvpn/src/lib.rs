//! The OpenVPN protocol, sans-IO: bytes and `now` in; bytes, keys and deadlines out.

#![forbid(unsafe_code)]
