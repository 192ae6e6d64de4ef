//! Asks name servers for the addresses of a name. Needed if the host's own resolver is behind the tunnel whose server
//! has that name.
//!
//! * [`message`]: a query, and the addresses in its answer (RFC 1035, RFC 3596).
//! * [`lookup`]: decides which server to ask when: datagrams and the time in, datagrams and addresses out.
//! * [`kept`]: the last good addresses, as a text.
//!
//! Nothing here has I/O or a clock.

#![forbid(unsafe_code)]

pub mod kept;
pub mod lookup;
pub mod message;
