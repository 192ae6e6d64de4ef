//! The format of one key's data packets.

use crate::{Batch, Packet};

/// How the data packets of one key look, and how they are sealed and opened.
///
/// Each key has a format of its own, since peers of one tunnel may have agreed upon different
/// ciphers and framings. Called a batch at a time.
pub trait Format: Send + Sync {
    /// Bytes before a payload.
    fn head(&self) -> usize;

    /// Bytes behind a payload of `len` bytes.
    fn tail(&self, len: usize) -> usize;

    /// Seals each payload into a datagram, from `start - head` to `start + len + tail` of each packet. Packets are
    /// numbered from 0. Every batch of the engine has room for that, so sealing cannot fail. `start` and `len` stay as
    /// they are. Every packet is sent.
    fn seal(&self, batch: &mut Batch<'_>);

    /// Opens packets, from the end of the header that [`Class::Data`](crate::Class::Data) gave to the end of the
    /// datagram. A packet that opens becomes authentic and shrinks to its payload, and its number is set if the format
    /// carries it.
    fn open(&self, batch: &mut Batch<'_>);

    /// Classifies an opened payload; may unwrap it further.
    fn reveal(&self, memory: &mut [u8], packet: &mut Packet) -> Payload;

    /// Changes an inner packet that is about to be sealed or was just opened (`mssfix`). Never called for
    /// super-packets.
    fn adjust(&self, packet: &mut [u8]) {
        let _ = packet;
    }

    /// The epoch of the sealing key, if packet numbers have epochs; else 0. Not called per packet.
    fn epoch(&self) -> u16 {
        0
    }

    /// Whether packets go through [`Format::split`] before they are sealed.
    fn splits(&self) -> bool {
        false
    }

    /// Cuts an inner packet into payloads, each handed over in two parts: header and rest.
    fn split(&self, packet: &[u8], emit: &mut dyn FnMut(&[u8], &[u8])) {
        emit(&[], packet);
    }

    /// Takes a [`Payload::Piece`], and writes the packet that it completes, or that was compressed, to `whole`.
    /// Overwrites the old content.
    fn join(&self, piece: &[u8], whole: &mut Vec<u8>) -> Joined {
        let _ = (piece, whole);
        Joined::Malformed
    }
}

/// The result of a [`Payload::Piece`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// A packet.
    Packet,
    /// A packet that the peer had compressed.
    Unpacked,
    /// No packet yet: other pieces are missing.
    Waits,
    /// No packet: compression is not allowed, the compressed data is invalid, or the result is too long.
    Compressed,
    /// No packet: the payload is not a valid piece.
    Malformed,
}

/// The content of an authentic data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A payload that claims to be an IP packet.
    Inner,
    /// A keepalive without content.
    Keepalive,
    /// A message for the protocol's state machine.
    Message,
    /// A piece of a packet, or a compressed one: for [`Format::join`], in order.
    Piece,
    /// A payload of no known kind.
    Malformed,
}
