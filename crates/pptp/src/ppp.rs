//! The Point-to-Point Protocol: frames, the option negotiation of its layers, and authentication (RFC 1661 and others).
//!
//! A frame is a protocol field, and perhaps address and control fields before it (RFC 1661, section 2; RFC 1662,
//! section 3.1). GRE delimits frames, so there is neither a checksum nor escaping (RFC 2637, section 4).

mod automaton;
mod ccp;
mod chap;
mod ipcp;
mod lcp;
mod negotiation;
mod packet;
mod pap;

pub use automaton::{Actions, Event, State, step};
pub use ccp::{Ccp, MppeBits, RESET_ACK, RESET_REQUEST};
pub use chap::{ChapPacket, challenge, md5_response, verify_md5};
pub use ipcp::{Dns, Ipcp, IpcpSettings};
pub use lcp::{Auth, Lcp, LcpSettings, LinkOptions, code as lcp_code};
pub(crate) use negotiation::printable;
pub use negotiation::{Failure, Layer, Negotiation, Signal, Timing, Verdict};
pub(crate) use packet::code;
pub use packet::{Option as ConfigOption, Options, Packet};
pub use pap::PapPacket;

/// Numbers of the protocol field (RFC 1661, section 2, and the RFC of each protocol).
pub mod protocol {
    /// IPv4 packets (RFC 1332).
    pub const IPV4: u16 = 0x0021;
    /// IPv6 packets (RFC 5072), which links of this crate do not carry.
    pub const IPV6: u16 = 0x0057;
    /// Packets that MPPE has encrypted (RFC 3078, section 3).
    pub const MPPE: u16 = 0x00fd;
    /// The IP Control Protocol (RFC 1332).
    pub const IPCP: u16 = 0x8021;
    /// The Compression Control Protocol (RFC 1962).
    pub const CCP: u16 = 0x80fd;
    /// The Link Control Protocol (RFC 1661).
    pub const LCP: u16 = 0xc021;
    /// The Password Authentication Protocol (RFC 1334).
    pub const PAP: u16 = 0xc023;
    /// The Challenge-Handshake Authentication Protocol (RFC 1994).
    pub const CHAP: u16 = 0xc223;
}

/// Which fields the peer allows us to shorten (RFC 1661, sections 6.5 and 6.6). None at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Address and control fields may be omitted.
    pub acfc: bool,
    /// Protocol numbers below 256 may take one byte.
    pub pfc: bool,
}

impl Framing {
    /// Appends the bytes before the information field. LCP frames are never shortened.
    pub fn write(self, protocol: u16, out: &mut Vec<u8>) {
        let (bytes, len) = self.header(protocol);
        out.extend_from_slice(&bytes[..len]);
    }

    /// The bytes before the information field, and their length: 1 to 4 bytes.
    #[must_use]
    pub const fn header(self, protocol: u16) -> ([u8; 4], usize) {
        let [high, low] = protocol.to_be_bytes();
        let long = !self.acfc || protocol == protocol::LCP;
        let short_protocol = self.pfc && high == 0 && low & 1 == 1;
        match (long, short_protocol) {
            (true, true) => ([0xff, 0x03, low, 0], 3),
            (true, false) => ([0xff, 0x03, high, low], 4),
            (false, true) => ([low, 0, 0, 0], 1),
            (false, false) => ([high, low, 0, 0], 2),
        }
    }
}

/// The protocol of a frame and where its information field begins; `None` if the frame is too short.
///
/// Accepts shortened fields whatever was negotiated: deployed peers send them too early.
#[must_use]
pub fn parse_frame(frame: &[u8]) -> Option<(u16, usize)> {
    let start = if frame.starts_with(&[0xff, 0x03]) {
        2
    } else {
        0
    };
    match *frame.get(start..)? {
        // The lowest bit marks the last byte of the field (RFC 1661, section 2).
        [low, ..] if low & 1 == 1 => Some((u16::from(low), start + 1)),
        [high, low, ..] if low & 1 == 1 => Some((u16::from_be_bytes([high, low]), start + 2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_frame_is_read() {
        for acfc in [false, true] {
            for pfc in [false, true] {
                for number in [protocol::IPV4, protocol::MPPE, protocol::LCP, protocol::CCP] {
                    let mut frame = Vec::new();
                    Framing { acfc, pfc }.write(number, &mut frame);
                    let len = frame.len();
                    frame.push(9);
                    assert_eq!(parse_frame(&frame), Some((number, len)));
                    if number == protocol::LCP {
                        assert_eq!(len, 4, "LCP is never shortened");
                    }
                }
            }
        }
    }

    #[test]
    fn a_frame_without_a_protocol_is_none() {
        for frame in [
            &[][..],
            &[0xff, 0x03],
            &[0],
            &[0xc0, 0x20],
            &[0xff, 0x03, 0x80],
        ] {
            assert_eq!(parse_frame(frame), None);
        }
    }
}
