//! Addresses of a name from name servers: what is needed where the host's own resolver is behind the tunnel that the name is
//! of.
//!
//! * [`message`]: a query, and the addresses in its answer (RFC 1035, RFC 3596).
//! * [`lookup`]: which server is asked when: datagrams and the time in, datagrams and addresses out.
//! * [`kept`]: the last addresses that were good, as a text.
//!
//! Nothing here has I/O or a clock.

#![forbid(unsafe_code)]

pub mod kept;
pub mod lookup;
pub mod message;
