//! The Point-to-Point Tunneling Protocol, client and server, sans-IO: bytes and the time go in; bytes, packets, events
//! and deadlines come out. The crate has no sockets, clocks or threads.
//!
//! # PPTP is broken
//!
//! Use PPTP only if the other end supports nothing else, and treat its encrypted packets as unencrypted:
//!
//! - **One recorded login reveals everything.** MS-CHAPv2 is three DES encryptions keyed with the password's MD4, and
//!   the third key has only 16 bits. Trying 2^56 DES keys finds the hash, in less than a day on rented machines,
//!   however good the password is. The hash logs in without the password. All MPPE keys derive from it, even for
//!   packets recorded long ago: there is no forward secrecy.
//! - **Packets can be changed.** MPPE is RC4 without an integrity check: an attacker can flip bits of packets, and of
//!   the count that keeps both ends in step. GRE authenticates nothing, and PPP's control packets are not encrypted. So
//!   one packet sent from the peer's address can end the link.
//! - **RC4 itself is broken**, and keys of 40 or 56 bits are found at once.
//! - PAP sends the password in clear text, and CHAP allows offline guessing.
//!
//! So nothing starts unless [`Settings::allow_insecure`](session::Settings::allow_insecure) is true. Otherwise
//! [`StartError::Insecure`](session::StartError::Insecure) gives the reason and the alternatives: WireGuard, or OpenVPN
//! if the other end supports nothing better. If encryption is required, a link without it does not come up. There is no
//! "if possible" mode, because an attacker can change the negotiation. Keys shorter than 128 bits must be allowed by
//! name. MS-CHAP version 1 and compression (MPPC) are refused. Use a password for PPTP for nothing else.
//!
//! # Layers
//!
//! | module | what it is | source |
//! |---|---|---|
//! | [`control`] | the TCP connection that opens and ends calls | RFC 2637, sections 2 and 3 |
//! | [`gre`] | numbers and acknowledgements of packets | RFC 2637, section 4 |
//! | [`ppp`] | frames, automaton, LCP, PAP, CHAP, CCP, IPCP | RFC 1661, 1334, 1994, 1962, 1332, 1877 |
//! | [`mschap`] | MS-CHAP version 2 | RFC 2759 |
//! | [`mppe`] | keys, and encrypted packets | RFC 3078, RFC 3079 |
//! | [`session`] | clients and servers of all these | |
//! | [`lines`] | several lines of one call, between two Millraces | none |
//! | [`fuzz`] | functions for fuzz targets | |
//!
//! Start at [`session::Client`] and [`session::Server`].
//!
//! # Surprising behaviour
//!
//! - **In stateless mode packets may arrive in any order**: keys of missing packets are kept, 2,048 behind and 4,096
//!   ahead, and each is used once. In stateful mode, a missing packet costs a round trip, and a late one is lost. A
//!   reorder window in front serves only the inner packets.
//! - **A retransmitted Configure-Request does not restart negotiation** if it is the acknowledged one: RFC 1661 would
//!   take the link down for each lost Ack.
//! - **GRE's sliding window is neither measured nor enforced**, as by all deployed Unix peers.
//! - **The peer's method of restarting a stream is detected**: Linux changes the key, FreeBSD and RFC 3078 do not.
//!
//! # Not implemented
//!
//! The caller must check that a peer's inner packets have its assigned source address. The crate also lacks IPv6
//! (RFC 5072), the RFC's incoming call (a telephone network that calls), callback, multilink, header compression, and
//! changing an expired password.
//!
//! ```
//! use std::time::Instant;
//! use pptp::mschap::Password;
//! use pptp::session::{Client, ClientSettings, Entropy, StartError};
//!
//! let entropy = Entropy::new(|bytes| bytes.fill(4)); // a program takes the kernel's random numbers
//! let mut settings = ClientSettings::new("user".into(), Password::new("word".into()));
//! let refused = Client::new(settings.clone(), entropy.clone(), Instant::now());
//! assert!(matches!(refused, Err(StartError::Insecure)));
//!
//! settings.common.allow_insecure = true;
//! let client = Client::new(settings, entropy, Instant::now())?;
//! assert_eq!(client.transmit().len(), 156, "the first message for the TCP connection");
//! # Ok::<(), StartError>(())
//! ```

#![forbid(unsafe_code)]

mod bytes;
pub mod control;
pub mod fuzz;
pub mod gre;
pub mod lines;
pub mod mppe;
pub mod mschap;
pub mod ppp;
pub mod session;
