//! Wire format of probes and their answers.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | header of enhanced GRE: flags `0x2001`, length 44, the receiver's call ID |
//! | 4 | `MRL1`: no protocol of PPP has an even second byte |
//! | 1 | 1 for a probe, 2 for an answer |
//! | 1 | the line's number |
//! | 1 | the number of the line in use |
//! | 1 | of an answer: 1 if the address takes part |
//! | 2 | the lines in use, a bit each |
//! | 2 | the sender's call ID |
//! | 8 | the probe's number |
//! | 8 | the token |
//! | 16 | keyed BLAKE2s of all this from the receiver's call ID on |

use core::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::bytes::Reader;
use crate::gre::Header;

/// Maximum number of lines of a client; line numbers in probes are below this.
pub const LINES_MAX: usize = 16;
/// Bytes of a probe, and of an answer.
pub const LEN: usize = HEADER + PAYLOAD;

const HEADER: usize = 8;
const PAYLOAD: usize = SIGNED + MAC;
/// Bytes of the payload before the MAC.
const SIGNED: usize = 28;
const MAC: usize = 16;
const MAGIC: &[u8; 4] = b"MRL1";
/// Flags and version of a GRE header without sequence and acknowledgement numbers.
const FLAGS: [u8; 2] = [0x20, 0x01];

/// Whether the payload of an IP packet of protocol 47 has the form of a probe or an answer. PPTP packets with frames
/// never have it.
#[must_use]
#[inline]
pub fn is_probe(packet: &[u8]) -> bool {
    packet.first_chunk() == Some(&FLAGS) && packet.get(HEADER..HEADER + 4) == Some(MAGIC)
}

/// The key of one call's probes, known to both ends.
#[derive(Clone)]
pub struct ProbeKey(Zeroizing<[u8; 32]>);

impl ProbeKey {
    /// Creates a key from these bytes.
    #[must_use]
    pub const fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// The MAC of the concatenation of `parts`.
    pub(super) fn mac(&self, parts: &[&[u8]]) -> [u8; MAC] {
        crypto::blake2s::mac(&self.0, parts)
    }
}

impl fmt::Debug for ProbeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProbeKey(..)")
    }
}

/// Whether a packet is a probe or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A probe, sent by the client.
    Probe,
    /// An answer, sent by the server.
    Answer {
        /// Whether the address that the probe came from takes part.
        accepted: bool,
    },
}

/// A probe or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Whether this is a probe or an answer.
    pub kind: Kind,
    /// The line that carries the probe, below [`LINES_MAX`].
    pub line: u8,
    /// The client's line for packets that take only one line.
    pub used: u8,
    /// The lines that the client uses, a bit each.
    pub lines: u16,
    /// The receiver's call ID.
    pub to: u16,
    /// The sender's call ID.
    pub from: u16,
    /// Number of the probe, greater than those of all earlier probes. An answer repeats it.
    pub number: u64,
    /// The server's last token for the client on this line; 0 at first.
    pub token: u64,
}

impl Probe {
    /// The probe as the payload of an IP packet of protocol 47.
    #[must_use]
    pub fn write(&self, key: &ProbeKey) -> [u8; LEN] {
        let header = Header {
            call_id: self.to,
            sequence: None,
            acknowledgement: None,
        };
        let (kind, accepted) = match self.kind {
            Kind::Probe => (1, 0),
            Kind::Answer { accepted } => (2, accepted.into()),
        };
        let mut bytes = [0; LEN];
        bytes[..HEADER].copy_from_slice(&header.write(PAYLOAD as u16).0[..HEADER]);
        let (payload, mac) = bytes[HEADER..].split_at_mut(SIGNED);
        payload[..4].copy_from_slice(MAGIC);
        payload[4..8].copy_from_slice(&[kind, self.line, self.used, accepted]);
        payload[8..10].copy_from_slice(&self.lines.to_be_bytes());
        payload[10..12].copy_from_slice(&self.from.to_be_bytes());
        payload[12..20].copy_from_slice(&self.number.to_be_bytes());
        payload[20..].copy_from_slice(&self.token.to_be_bytes());
        mac.copy_from_slice(&key.mac(&[&self.to.to_be_bytes(), payload]));
        bytes
    }

    /// Parses a probe or an answer; `None` unless it is authentic.
    #[must_use]
    pub fn read(packet: &[u8], key: &ProbeKey) -> Option<Self> {
        let probe = Self::parse(packet)?;
        let (signed, mac) = packet.get(HEADER..LEN)?.split_at_checked(SIGNED)?;
        let expected = key.mac(&[&probe.to.to_be_bytes(), signed]);
        bool::from(expected.ct_eq(mac)).then_some(probe)
    }

    /// Parses a probe or an answer without checking its MAC. Bytes after it are padding.
    fn parse(packet: &[u8]) -> Option<Self> {
        if !is_probe(packet) || packet.len() < LEN {
            return None;
        }
        let mut reader = Reader::new(packet.get(4..)?);
        let (len, to) = (reader.u16()?, reader.u16()?);
        let [_, _, _, _, kind, line, used, accepted] = reader.array()?;
        let kind = match (kind, accepted) {
            (1, 0) => Kind::Probe,
            (2, 0 | 1) => Kind::Answer {
                accepted: accepted == 1,
            },
            _ => return None,
        };
        let probe = Self {
            kind,
            line,
            used,
            lines: reader.u16()?,
            to,
            from: reader.u16()?,
            number: u64::from_be_bytes(reader.array()?),
            token: u64::from_be_bytes(reader.array()?),
        };
        let fits = usize::from(len) == PAYLOAD && usize::from(line) < LINES_MAX;
        fits.then_some(probe)
    }
}

/// The call ID in a probe, by which the receiver finds the key.
#[must_use]
pub(crate) fn call_of(packet: &[u8]) -> Option<u16> {
    let bytes = packet.get(6..)?.first_chunk()?;
    is_probe(packet).then(|| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gre::{HeaderError, Packet};

    const PROBE: Probe = Probe {
        kind: Kind::Probe,
        line: 3,
        used: 1,
        lines: 0b1010,
        to: 0x1234,
        from: 0x5678,
        number: 9,
        token: 0x0102_0304_0506_0708,
    };

    fn key(byte: u8) -> ProbeKey {
        ProbeKey::new(Zeroizing::new([byte; 32]))
    }

    #[test]
    fn a_probe_as_on_the_wire() {
        let bytes = PROBE.write(&key(7));
        let expected = [
            0x20, 0x01, 0x88, 0x0b, 0, 44, 0x12, 0x34, b'M', b'R', b'L', b'1', 1, 3, 1, 0, 0, 10,
            0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8,
        ];
        assert_eq!(bytes[..36], expected);
        assert_eq!(Probe::read(&bytes, &key(7)), Some(PROBE));
        assert_eq!(call_of(&bytes), Some(0x1234));
        let padded = [&bytes[..], &[0; 6]].concat();
        assert_eq!(Probe::read(&padded, &key(7)), Some(PROBE));
        // An end without support for probes rejects this as a packet without a number.
        assert_eq!(Packet::parse(&bytes), Err(HeaderError::Unnumbered));
    }

    #[test]
    fn one_bit_that_is_changed_or_another_key_makes_it_forged() {
        let bytes = PROBE.write(&key(7));
        assert_eq!(Probe::read(&bytes, &key(8)), None);
        for bit in 0..LEN * 8 {
            let mut forged = bytes;
            forged[bit / 8] ^= 1 << (bit % 8);
            let read = Probe::read(&forged, &key(7));
            // Only the GRE protocol number may change without effect.
            assert!(read.is_none() || (16..32).contains(&bit), "bit {bit}");
        }
        for len in 0..LEN {
            assert_eq!(Probe::read(&bytes[..len], &key(7)), None);
        }
    }
}
