//! The Point-to-Point Protocol: frames, the option negotiation of its layers, and authentication (RFC 1661 and others).

mod auth;
mod automaton;
mod ccp;
mod chap;
mod figures;
mod frame;
mod ipcp;
mod ipv6cp;
mod lcp;
mod negotiation;
mod packet;
mod pap;

pub use auth::Auth;
pub use automaton::{Actions, Event, State, step};
pub use ccp::{Ccp, MppeBits, RESET_ACK, RESET_REQUEST};
pub use chap::{ChapPacket, challenge, md5_response, verify_md5};
pub use figures::{Figures, mss, mtu};
pub use frame::{Framing, parse as parse_frame, protocol};
pub use ipcp::{Dns, Ipcp, IpcpSettings};
pub use ipv6cp::Ipv6cp;
pub use lcp::{Lcp, LcpSettings, LinkOptions, code as lcp_code};
pub use negotiation::{Failure, Layer, Negotiation, Signal, Timing, Verdict};
pub use packet::{Option as ConfigOption, Options, Packet};
pub use pap::PapPacket;
