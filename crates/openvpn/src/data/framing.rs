//! Compression framing: the marks that compression leaves on packets even where nothing is compressed.
//!
//! Millrace never compresses: that tells who listens something of what is inside (the VORACLE attack). The peer may
//! insist on the framing all the same, says by it whether it has compressed, and what it has is unpacked.
//!
//! | directive                                | framing | on the wire                                              |
//! |------------------------------------------|---------|----------------------------------------------------------|
//! | `comp-lzo` in any form, `compress lzo`   | Lzo     | `fa` before the packet; `66` if it is LZO                 |
//! | `compress`, `compress stub`, `... lz4`   | Swap    | `fb` for the first byte, which goes to the end; `69` LZ4, likewise |
//! | `compress stub-v2`, `compress lz4-v2`    | V2      | nothing, or `50 00` before a packet that begins with `50` |

use std::ops::Range;

use super::lzo;

/// Which framing is on the packets of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// None.
    #[default]
    None,
    /// A byte before the packet.
    Lzo,
    /// A byte in place of the first, which is moved to the end.
    Swap,
    /// An escape where the packet looks like one.
    V2,
}

const LZO_COMPRESSED: u8 = 0x66;
const LZ4_COMPRESSED: u8 = 0x69;
const PLAIN: u8 = 0xfa;
const PLAIN_SWAPPED: u8 = 0xfb;
const V2_INDICATOR: u8 = 0x50;
const V2_PLAIN: u8 = 0;
const V2_LZ4: u8 = 1;
const V2_LZO: u8 = 2;
/// What stock writes for [`V2_PLAIN`]: the number that the method has inside the program. Stock itself does not take it.
const V2_PLAIN_OF_STOCK: u8 = 10;

/// How a peer has compressed a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// LZO1X.
    Lzo,
    /// LZ4.
    Lz4,
}

/// What was in the framing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unframed {
    /// A packet: where it is.
    Payload(Range<usize>),
    /// A compressed packet, as it was: for [`Framing::unpack`].
    Compressed(Compression),
    /// Not this framing: the ends differ in it. Dropped.
    Malformed,
}

impl Framing {
    /// Bytes that [`frame`](Self::frame) may want in front of a packet.
    pub const HEAD_ROOM: usize = 2;
    /// Bytes that [`frame`](Self::frame) may want behind a packet.
    pub const TAIL_ROOM: usize = 1;

    /// Bytes by which it makes an ordinary packet longer.
    #[must_use]
    pub const fn overhead(self) -> usize {
        match self {
            Self::None | Self::V2 => 0,
            Self::Lzo | Self::Swap => 1,
        }
    }

    /// Puts the framing on the packet at `at` in `buffer` and tells where the result is. `None` if there is less room
    /// than [`HEAD_ROOM`](Self::HEAD_ROOM) before it and [`TAIL_ROOM`](Self::TAIL_ROOM) after it, where they are
    /// needed, or no packet.
    #[must_use]
    pub fn frame(self, buffer: &mut [u8], at: Range<usize>) -> Option<Range<usize>> {
        let first = *buffer.get(at.clone())?.first()?;
        match self {
            Self::None => Some(at),
            Self::V2 if first != V2_INDICATOR => Some(at),
            Self::V2 => {
                let start = at.start.checked_sub(2)?;
                buffer[start] = V2_INDICATOR;
                buffer[start + 1] = V2_PLAIN;
                Some(start..at.end)
            }
            Self::Lzo => {
                let start = at.start.checked_sub(1)?;
                buffer[start] = PLAIN;
                Some(start..at.end)
            }
            Self::Swap => {
                *buffer.get_mut(at.end)? = first;
                buffer[at.start] = PLAIN_SWAPPED;
                Some(at.start..at.end + 1)
            }
        }
    }

    /// Takes the framing off what is at `at` in `buffer`.
    #[must_use]
    pub fn unframe(self, buffer: &mut [u8], at: Range<usize>) -> Unframed {
        let Some(framed) = buffer.get_mut(at.clone()) else {
            return Unframed::Malformed;
        };
        match (self, &mut *framed) {
            (Self::None, _) => Unframed::Payload(at),
            (_, []) => Unframed::Malformed,
            (Self::Lzo, [PLAIN, ..]) => Unframed::Payload(at.start + 1..at.end),
            (Self::Lzo, [LZO_COMPRESSED, ..]) => Unframed::Compressed(Compression::Lzo),
            (Self::Swap, [first @ PLAIN_SWAPPED, .., last]) => {
                *first = *last;
                Unframed::Payload(at.start..at.end - 1)
            }
            (Self::Swap, [LZ4_COMPRESSED, ..]) => Unframed::Compressed(Compression::Lz4),
            (Self::V2, [V2_INDICATOR, V2_PLAIN | V2_PLAIN_OF_STOCK, ..]) => {
                Unframed::Payload(at.start + 2..at.end)
            }
            (Self::V2, [V2_INDICATOR, V2_LZ4, ..]) => Unframed::Compressed(Compression::Lz4),
            (Self::V2, [V2_INDICATOR, V2_LZO, ..]) => Unframed::Compressed(Compression::Lzo),
            (Self::V2, [V2_INDICATOR, ..]) => Unframed::Malformed,
            (Self::V2, _) => Unframed::Payload(at),
            (Self::Lzo | Self::Swap, _) => Unframed::Malformed,
        }
    }

    /// Unpacks a compressed packet to the beginning of `unpacked`, and returns its length. `framed` is the whole of what
    /// [`unframe`](Self::unframe) called [`Unframed::Compressed`], and is of no use any more then. `None` if it is none, or
    /// unpacks to more than there is room for.
    #[must_use]
    pub fn unpack(self, framed: &mut [u8], unpacked: &mut [u8]) -> Option<usize> {
        let len = framed.len();
        let Unframed::Compressed(compression) = self.unframe(framed, 0..len) else {
            return None;
        };
        let packed = match self {
            Self::Swap => {
                // The mark stands for the first byte of what was compressed, which is the last of all.
                framed[0] = framed[len - 1];
                &framed[..len - 1]
            }
            Self::V2 => &framed[2..],
            Self::None | Self::Lzo => &framed[1..],
        };
        match compression {
            Compression::Lzo => lzo::unpack(packed, unpacked).ok(),
            Compression::Lz4 => lz4_flex::block::decompress_into(packed, unpacked).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Framing; 4] = [Framing::None, Framing::Lzo, Framing::Swap, Framing::V2];

    fn framed(framing: Framing, packet: &[u8]) -> Vec<u8> {
        let mut buffer = [&[0; 2][..], packet, &[0]].concat();
        let at = framing.frame(&mut buffer, 2..2 + packet.len()).unwrap();
        buffer[at].to_vec()
    }

    fn unframed(framing: Framing, bytes: &[u8]) -> Result<Vec<u8>, Unframed> {
        let mut buffer = bytes.to_vec();
        match framing.unframe(&mut buffer, 0..bytes.len()) {
            Unframed::Payload(at) => Ok(buffer[at].to_vec()),
            other => Err(other),
        }
    }

    #[test]
    fn on_the_wire() {
        let packet = [0x45, 1, 2];
        assert_eq!(framed(Framing::None, &packet), packet);
        assert_eq!(framed(Framing::Lzo, &packet), [0xfa, 0x45, 1, 2]);
        assert_eq!(framed(Framing::Swap, &packet), [0xfb, 1, 2, 0x45]);
        assert_eq!(framed(Framing::V2, &packet), packet);
        assert_eq!(framed(Framing::V2, &[0x50, 9]), [0x50, 0, 0x50, 9]);
        assert_eq!(framed(Framing::Swap, &[0x45]), [0xfb, 0x45]);
    }

    #[test]
    fn compressed_packets_are_told_from_other_framings() {
        use Compression::{Lz4, Lzo};
        let compressed = |framing, bytes: &[u8]| unframed(framing, bytes).unwrap_err();
        assert_eq!(
            compressed(Framing::Lzo, &[0x66, 1, 2]),
            Unframed::Compressed(Lzo)
        );
        assert_eq!(
            compressed(Framing::Swap, &[0x69, 1, 2]),
            Unframed::Compressed(Lz4)
        );
        assert_eq!(
            compressed(Framing::V2, &[0x50, 1, 2]),
            Unframed::Compressed(Lz4)
        );
        assert_eq!(
            compressed(Framing::V2, &[0x50, 2, 2]),
            Unframed::Compressed(Lzo)
        );
        for (framing, bytes) in [
            (Framing::Lzo, &[0x45, 0, 0][..]),
            (Framing::Lzo, &[0xfb, 0, 0]),
            (Framing::Lzo, &[]),
            (Framing::Swap, &[0x45, 0, 0]),
            (Framing::Swap, &[0xfa, 0, 0]),
            (Framing::Swap, &[0xfb]),
            (Framing::Swap, &[]),
            (Framing::V2, &[0x50]),
            (Framing::V2, &[0x50, 3]),
            (Framing::V2, &[]),
        ] {
            assert_eq!(
                compressed(framing, bytes),
                Unframed::Malformed,
                "{framing:?} {bytes:?}"
            );
        }
        // Stock's sender escapes with another number than its receiver takes.
        assert_eq!(unframed(Framing::V2, &[0x50, 10, 0x50]), Ok(vec![0x50]));
    }

    /// A packet as each framing carries it compressed.
    fn compressed(framing: Framing, packet: &[u8]) -> Vec<u8> {
        let lz4 = lz4_flex::block::compress(packet);
        match framing {
            Framing::Swap => [&[LZ4_COMPRESSED], &lz4[1..], &lz4[..1]].concat(),
            Framing::V2 => [&[V2_INDICATOR, V2_LZ4][..], &lz4].concat(),
            // A run of literals, as what cannot be compressed is.
            _ => {
                let run = [&[LZO_COMPRESSED, 0, packet.len() as u8 - 18][..], packet];
                [&run.concat()[..], &[17, 0, 0]].concat()
            }
        }
    }

    #[test]
    fn what_the_peer_compressed_comes_out_within_the_room_and_not_beyond() {
        let packet: Vec<u8> = (0..200).map(|at| at / 8).collect();
        for framing in [Framing::Lzo, Framing::Swap, Framing::V2] {
            let wire = compressed(framing, &packet);
            let unpack = |room| {
                let mut unpacked = vec![0; room];
                let len = framing.unpack(&mut wire.clone(), &mut unpacked)?;
                unpacked.truncate(len);
                Some(unpacked)
            };
            assert_eq!(unpack(200).as_ref(), Some(&packet), "{framing:?}");
            assert_eq!(unpack(1500).as_ref(), Some(&packet), "{framing:?}");
            for room in [0, 1, 199] {
                assert_eq!(unpack(room), None, "{framing:?}");
            }
            for other in ALL.into_iter().filter(|other| *other != framing) {
                assert_eq!(other.unpack(&mut wire.clone(), &mut [0; 1500]), None);
            }
        }
        for (framing, wire) in [
            (Framing::Swap, &mut [LZ4_COMPRESSED][..]),
            (Framing::Lzo, &mut [LZO_COMPRESSED]),
            (Framing::V2, &mut [V2_INDICATOR, V2_LZ4]),
            (Framing::V2, &mut [V2_INDICATOR, V2_LZO]),
            (Framing::Lzo, &mut []),
        ] {
            assert_eq!(framing.unpack(wire, &mut [0; 1500]), None);
        }
    }

    #[test]
    fn room_is_checked() {
        for framing in [Framing::Lzo, Framing::V2] {
            assert_eq!(framing.frame(&mut [0x50, 0], 0..2), None);
        }
        assert_eq!(Framing::Swap.frame(&mut [0x45, 0], 0..2), None);
        for framing in ALL {
            assert_eq!(framing.frame(&mut [0; 4], 2..2), None);
            assert_eq!(framing.frame(&mut [0; 4], 2..5), None);
            assert_eq!(framing.unframe(&mut [0; 4], 2..5), Unframed::Malformed);
        }
    }

    proptest! {
        #[test]
        fn comes_back(packet in prop::collection::vec(any::<u8>(), 1..50), first in prop::sample::select(&[0x45, 0x50, 0x60, 0xfa, 0xfb][..])) {
            let mut packet = packet;
            packet[0] = first;
            for framing in ALL {
                let bytes = framed(framing, &packet);
                prop_assert_eq!(unframed(framing, &bytes), Ok(packet.clone()));
            }
        }

        #[test]
        fn anything_at_all(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            for framing in ALL {
                if let Ok(packet) = unframed(framing, &bytes) {
                    prop_assert!(packet.len() <= bytes.len());
                }
                let mut unpacked = [0; 100];
                let len = framing.unpack(&mut bytes.clone(), &mut unpacked);
                prop_assert!(len.is_none_or(|len| len <= 100));
            }
        }
    }
}
