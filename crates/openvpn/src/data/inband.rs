//! Messages sent like packets of the tunnel that are not IP packets: pings and the options check (OCC).
//!
//! Both begin with 16 bytes that no IP packet begins with. Neither may ever reach the interface.

/// A ping: it says that its sender lives, and is not answered.
pub const PING: [u8; 16] = [
    0x2a, 0x18, 0x7b, 0xf3, 0x64, 0x1e, 0xb4, 0xcb, 0x07, 0xed, 0x2d, 0x0a, 0x98, 0x1f, 0xc7, 0x48,
];

/// The beginning of every message of the options check.
pub const OCC_MAGIC: [u8; 16] = [
    0x28, 0x7f, 0x34, 0x6b, 0xd4, 0xef, 0x7a, 0x81, 0x2d, 0x56, 0xb8, 0xd3, 0xaf, 0xc5, 0x45, 0x9c,
];

/// The message that requests the peer's options. Servers answer it at once.
pub const OCC_REQUEST: [u8; 17] = occ(0);

/// The exit notice over UDP, for ends that have not agreed to send it in the control channel.
pub const OCC_EXIT: [u8; 17] = occ(6);

/// The message that states our options; `text` has no final NUL.
#[must_use]
pub fn options(text: &str) -> Vec<u8> {
    let mut message = occ(1).to_vec();
    message.extend_from_slice(text.as_bytes());
    message.push(0);
    message
}

const fn occ(kind: u8) -> [u8; 17] {
    let mut message = [kind; 17];
    let mut at = 0;
    while at < OCC_MAGIC.len() {
        message[at] = OCC_MAGIC[at];
        at += 1;
    }
    message
}

/// A payload that is not a packet of the tunnel: its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InBand<'a> {
    /// The peer is alive.
    Ping,
    /// The peer wants to know our options: one with a static key, or one that wants to know whether a line works.
    OptionsRequest,
    /// The peer's options: text, as it is.
    Options(&'a [u8]),
    /// The peer is leaving.
    Exit,
    /// Something else of the options check, such as a test of the path's MTU: not answered.
    Other(u8),
}

impl<'a> InBand<'a> {
    /// Distinguishes an in-band message from a packet of the tunnel, once framing and fragments are off.
    #[must_use]
    pub fn of(payload: &'a [u8]) -> Option<Self> {
        if *payload == PING {
            return Some(Self::Ping);
        }
        let message = payload.strip_prefix(&OCC_MAGIC)?;
        Some(match message.split_first() {
            Some((0, _)) => Self::OptionsRequest,
            Some((1, text)) => Self::Options(text),
            Some((6, _)) => Self::Exit,
            Some((&other, _)) => Self::Other(other),
            None => Self::Other(u8::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_packets() {
        assert_eq!(InBand::of(&PING), Some(InBand::Ping));
        assert_eq!(InBand::of(&OCC_EXIT), Some(InBand::Exit));
        assert_eq!(OCC_EXIT[..16], OCC_MAGIC);
        assert_eq!(InBand::of(&occ(0)), Some(InBand::OptionsRequest));
        let options = [&occ(1)[..], b"V4,dev-type tun\0"].concat();
        assert_eq!(
            InBand::of(&options),
            Some(InBand::Options(b"V4,dev-type tun\0"))
        );
        assert_eq!(InBand::of(&occ(3)), Some(InBand::Other(3)));
        assert_eq!(InBand::of(&OCC_MAGIC), Some(InBand::Other(255)));
        // A ping is nothing but its bytes.
        assert_eq!(InBand::of(&[&PING[..], &[0]].concat()), None);
        assert_eq!(InBand::of(&PING[..15]), None);
        assert_eq!(InBand::of(&[]), None);
        assert_eq!(InBand::of(&[0x45; 40]), None);
    }
}
