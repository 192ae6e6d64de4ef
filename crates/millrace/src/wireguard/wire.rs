//! WireGuard's data packets, as the engine needs to know them.

use engine::{Class, Window, Wire};
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
    const HEADER: usize = DATA_HEADER_LEN;
    const TAG: usize = crypto::TAG_LEN;
    type Window = Replay;

    #[inline]
    fn classify(datagram: &[u8]) -> Class {
        if let Some(header) = DataHeader::parse(datagram) {
            return Class::Data {
                index: header.receiver,
                counter: header.counter,
            };
        }
        match kind(datagram) {
            // A data packet too short for a tag.
            None | Some(TYPE_DATA) => Class::Malformed,
            Some(_) => Class::Control,
        }
    }

    #[inline]
    fn write_header(header: &mut [u8], index: u32, counter: u64) {
        header.copy_from_slice(
            &DataHeader {
                receiver: index,
                counter,
            }
            .emit(),
        );
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
        WireGuard::write_header(&mut data[..16], 7, 1 << 40);
        assert_eq!(
            WireGuard::classify(&data),
            Class::Data {
                index: 7,
                counter: 1 << 40
            }
        );
    }
}
