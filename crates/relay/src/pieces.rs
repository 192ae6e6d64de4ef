//! Finds hellos in a train, the datagrams that a socket delivers together.

use std::ops::Range;

use crate::hello::MAGIC;

/// A part of a train, as a range of its bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Piece {
    /// Datagrams to forward, each of the train's segment length but perhaps the last.
    Forward(Range<usize>),
    /// One datagram that begins like a hello.
    Hello(Range<usize>),
}

/// Splits a train: `bytes` are datagrams of `segment` bytes each, the last perhaps shorter. A hello may be among
/// them, as the kernel joins datagrams by their addresses and lengths only.
pub fn pieces(bytes: &[u8], segment: usize) -> impl Iterator<Item = Piece> + '_ {
    let segment = segment.max(1);
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        while at < bytes.len() {
            let end = bytes.len().min(at + segment);
            if !bytes[at..end].starts_with(&MAGIC) {
                at = end;
            } else if at == start {
                at = end;
                return Some(Piece::Hello(start..end));
            } else {
                break;
            }
        }
        (at > start).then_some(Piece::Forward(start..at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take_apart(datagrams: &[&[u8]]) -> Vec<Piece> {
        let segment = datagrams.first().map_or(1, |it| it.len());
        pieces(&datagrams.concat(), segment).collect()
    }

    #[test]
    fn a_train_without_hellos_is_one_piece() {
        assert_eq!(take_apart(&[]), []);
        assert_eq!(
            take_apart(&[&[1; 20], &[2; 20], &[3; 5]]),
            [Piece::Forward(0..45)]
        );
    }

    #[test]
    fn hellos_are_found_wherever_they_stand() {
        let hello = [&MAGIC[..], &[1; 13]].concat();
        let data = [4; 20];
        assert_eq!(take_apart(&[&hello]), [Piece::Hello(0..20)]);
        assert_eq!(
            take_apart(&[&data, &hello, &hello, &data, &hello[..10]]),
            [
                Piece::Forward(0..20),
                Piece::Hello(20..40),
                Piece::Hello(40..60),
                Piece::Forward(60..80),
                Piece::Hello(80..90)
            ]
        );
        // A hello's bytes in the middle of a datagram are not a hello.
        assert_eq!(
            take_apart(&[&[&[1], &hello[..]].concat()]),
            [Piece::Forward(0..21)]
        );
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_doubled(
            bytes in proptest::collection::vec(prop_oneof![Just(0xff), any::<u8>()], 0..200),
            segment in 0_usize..60,
        ) {
            let mut next = 0;
            for piece in pieces(&bytes, segment) {
                let (Piece::Forward(range) | Piece::Hello(range)) = piece;
                prop_assert!(range.start == next && range.end > next);
                next = range.end;
            }
            prop_assert_eq!(next, bytes.len());
        }
    }
}
