//! WireGuard's data packets, as the engine needs to know them.

use crypto::{Batch, Packet, PacketCipher};
use engine::{Class, Format, Payload, SessionName, Window, Wire};
use netio::udp::Endpoint;
use std::net::SocketAddr;
use wireguard::ReplayWindow;
use wireguard::message::{DATA_HEADER_LEN, DataHeader, TYPE_DATA, kind};

/// The data packet format: type, receiver index, counter; ChaCha20-Poly1305's tag behind.
pub(super) enum WireGuard {}

/// The engine's view of the protocol's replay window.
#[derive(Default)]
pub(super) struct Replay(ReplayWindow);

impl Window for Replay {
    fn accept(&mut self, counter: u64) -> bool {
        self.0.accept(counter)
    }
}

impl Wire for WireGuard {
    const HEAD_MAX: usize = DATA_HEADER_LEN;
    const TAIL_MAX: usize = crypto::TAG_LEN;
    const STAGES: bool = true;
    const ECN: bool = true;
    type Window = Replay;

    #[inline]
    fn classify(datagram: &[u8]) -> Class {
        if let Some(header) = DataHeader::parse(datagram) {
            return Class::Data {
                session: SessionName::Index(header.receiver),
                counter: header.counter,
                header: DATA_HEADER_LEN,
            };
        }
        match kind(datagram) {
            // A data packet too short for a tag.
            None | Some(TYPE_DATA) => Class::Malformed,
            Some(_) => Class::Control,
        }
    }

    /// Wrapped once more it would come back, longer each time and in the end in pieces, and each
    /// piece would go round as well.
    #[inline]
    fn loops(datagram: &[u8], _to: SocketAddr, receiver: u32, _endpoint: &Endpoint) -> bool {
        DataHeader::parse(datagram).is_some_and(|header| header.receiver == receiver)
    }

    /// To a multiple of 16 bytes, but not beyond the MTU (white paper section 5.4.6). A packet
    /// longer than the MTU, which a super-packet cut by the kernel may be, is padded as its last
    /// MTU's worth would be.
    #[inline]
    fn padded(len: usize, mtu: usize) -> usize {
        let last = if mtu > 0 && len > mtu { len % mtu } else { len };
        let padded = last.next_multiple_of(16);
        len - last
            + if mtu > 0 {
                padded.min(mtu).max(last)
            } else {
                padded
            }
    }
}

/// One key's packets: the receiver's name for the session in front, the tag behind.
pub(super) struct DataFormat {
    /// The receiver's name for the session.
    pub(super) receiver: u32,
    pub(super) cipher: Box<dyn PacketCipher>,
}

impl Format for DataFormat {
    fn head(&self) -> usize {
        DATA_HEADER_LEN
    }

    fn tail(&self, len: usize) -> usize {
        self.cipher.tail(len)
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter() {
            let start = packet.start as usize;
            let header = DataHeader {
                receiver: self.receiver,
                counter: packet.counter,
            };
            batch.memory[start - DATA_HEADER_LEN..start].copy_from_slice(&header.emit());
        }
        self.cipher.seal(batch);
    }

    fn open(&self, batch: &mut Batch<'_>) {
        self.cipher.open(batch);
    }

    fn reveal(&self, _memory: &mut [u8], packet: &mut Packet) -> Payload {
        if packet.len == 0 {
            Payload::Keepalive
        } else {
            Payload::Inner
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_padded_to_sixteen_but_not_beyond_the_mtu() {
        for (len, mtu, padded) in [
            (0, 1420, 0),
            (1, 1420, 16),
            (84, 1420, 96),
            (1420, 1420, 1420),
            (1409, 1420, 1420),
            (1500, 1420, 1500),
            (1510, 1420, 1516),
            (30, 0, 32),
        ] {
            assert_eq!(WireGuard::padded(len, mtu), padded, "{len} at {mtu}");
        }
    }

    #[test]
    fn what_a_stranger_sends_is_classified_without_reading_too_far() {
        assert_eq!(WireGuard::classify(&[]), Class::Malformed);
        assert_eq!(WireGuard::classify(&[4, 0, 0, 0, 1]), Class::Malformed);
        assert_eq!(WireGuard::classify(&[1, 0, 0, 0]), Class::Control);
        let mut data = [0; 32];
        let header = DataHeader {
            receiver: 7,
            counter: 1 << 40,
        };
        data[..DATA_HEADER_LEN].copy_from_slice(&header.emit());
        assert_eq!(
            WireGuard::classify(&data),
            Class::Data {
                session: SessionName::Index(7),
                counter: 1 << 40,
                header: DATA_HEADER_LEN
            }
        );
    }
}
