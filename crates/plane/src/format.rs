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

    /// Makes datagrams of payloads: everything from `start - head` to `start + len + tail` of each
    /// packet. Packets are numbered from 0. That much room there is in any batch of the engine's, where sealing cannot
    /// fail; `start` and `len` stay as they are. Every packet is sent.
    fn seal(&self, batch: &mut Batch<'_>);

    /// Opens packets from where [`Class::Data`](crate::Class::Data) said that the header ends up to
    /// the end of the datagram. Where that succeeds the packet becomes authentic and shrinks to its
    /// payload, and its number is set if the format carries it.
    fn open(&self, batch: &mut Batch<'_>);

    /// Says what an opened payload is; may unwrap it further.
    fn reveal(&self, memory: &mut [u8], packet: &mut Packet) -> Payload;

    /// Changes an inner packet that is about to be sealed or was just opened (`mssfix`). Never
    /// called for super-packets.
    fn adjust(&self, packet: &mut [u8]) {
        let _ = packet;
    }

    /// The epoch that seals, where packet numbers have one; else 0. Not called per packet.
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

    /// Takes a [`Payload::Piece`], and writes the packet that it completes, or that was compressed, to `whole`. What was
    /// there is overwritten.
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
    /// Nothing yet: others are missing.
    Waits,
    /// Nothing: it is compressed, which is not allowed, or not compressed rightly, or too long.
    Compressed,
    /// Nothing: it is no piece of a packet.
    Malformed,
}

/// The content of an authentic data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// An IP packet, or so it says.
    Inner,
    /// Nothing but a sign of life.
    Keepalive,
    /// A message for the protocol's state machine.
    Message,
    /// A piece of a packet, or a compressed one: for [`Format::join`], in order.
    Piece,
    /// None of these.
    Malformed,
}
