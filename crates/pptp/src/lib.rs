//! The Point-to-Point Tunneling Protocol, client and server, sans-IO: bytes and the time go in; bytes, packets, events
//! and deadlines come out. There are no sockets, no clocks and no threads here.
//!
//! # PPTP is broken
//!
//! It is here for those whose other end has nothing else. What it encrypts should be considered unencrypted:
//!
//! - **The login gives everything away.** MS-CHAPv2 is three encryptions with DES whose keys are the password's MD4, and
//!   the third key has 16 bits. From a recording of one login the hash is found by trying 2^56 keys of DES, which takes less than
//!   a day on machines for hire, however good the password is. The hash logs in without the password, and all keys of MPPE
//!   follow from it, also those of packets that were recorded long ago: there is no forward secrecy.
//! - **Packets can be changed.** MPPE is RC4 without any check: a bit that is changed on the way is changed in the packet,
//!   and so is the count that keeps both ends in step. Nothing in GRE is authenticated: one packet that is sent from the
//!   peer's address can end the link, as PPP's control packets are not encrypted at all.
//! - **RC4 itself is broken**, and keys of 40 or 56 bits are found at once.
//! - PAP sends the password as it is, CHAP lets it be guessed offline.
//!
//! So nothing starts unless [`Settings::allow_insecure`](session::Settings::allow_insecure) is true; what comes instead is
//! [`StartError::Insecure`](session::StartError::Insecure), which says why and what to use: WireGuard, or OpenVPN where
//! that is all that the other end has. Where encryption is asked for, a link without it does not come up: there is no "if
//! possible", as the negotiation can be changed on its way. Keys shorter than 128 bits have to be named. MS-CHAP version 1
//! and compression (MPPC) are refused. A password for PPTP should be used for nothing else.
//!
//! # Layers
//!
//! | module | what it is | source |
//! |---|---|---|
//! | [`control`] | the TCP connection that opens and ends calls | RFC 2637, sections 2 and 3 |
//! | [`gre`] | numbers and acknowledgements of packets | RFC 2637, section 4 |
//! | [`ppp`] | frames, the negotiation automaton, LCP, PAP, CHAP, CCP, IPCP, IPV6CP | RFC 1661, 1334, 1994, 1962, 1332, 1877, 5072 |
//! | [`mschap`] | MS-CHAP version 2 | RFC 2759 |
//! | [`mppe`] | keys, and encrypted packets | RFC 3078, RFC 3079 |
//! | [`session`] | clients and servers of all these | |
//! | [`lines`] | several lines of one call, between two Millraces | none |
//! | [`fuzz`] | functions for fuzz targets | |
//!
//! Start at [`session::Client`] and [`session::Server`].
//!
//! # What is not as one would expect
//!
//! - **Packets may come in any order where each has a key**: keys of missing packets are kept, 2,048 behind and 4,096 ahead,
//!   and each is used once. As one stream, a packet that is missing costs a round trip, and one that is late is lost.
//!   A reorder window in front is for the sake of what the packets carry.
//! - **A retransmitted Configure-Request does not begin a negotiation anew**, if it is the one that was acknowledged: RFC 1661
//!   would have the link go down for each lost Ack.
//! - **The sliding window of GRE is measured and not enforced**, as by all deployed Unix peers.
//! - **What a peer is when it begins a stream anew is learnt**: Linux changes the key, FreeBSD and RFC 3078 do not.
//!
//! # Not here
//!
//! The source addresses of inner packets are not checked against what a peer was given: the caller has to. Neither is the
//! RFC's incoming call (a telephone network that calls), callback, multilink, header compression, nor the changing of a
//! password that has expired.
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
