//! The message that tells a relay the address of a client, and [`pieces()`], which finds such messages in a train, the
//! datagrams that a socket delivers together.
//!
//! | bytes | |
//! |---|---|
//! | 0 to 6 | `FF`, `mrelay` in ASCII |
//! | 7 | version of the format: 1 |
//! | 8 to 15 | ID of the key: the first half of a MAC of a constant under the key |
//! | 16 to 27 | TAI64N timestamp, greater than in every hello before |
//! | 28 to 43 | MAC of bytes 0 to 27 |
//!
//! Both MACs are BLAKE2s, keyed, of 16 bytes. No message of WireGuard begins with `FF`, and none of OpenVPN over UDP.

use std::fmt;
use std::ops::Range;

use crypto::blake2s;
use plane::tai64n::Tai64n;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Length of a hello in bytes.
pub const HELLO_LEN: usize = 44;

/// The first bytes of a hello of any version.
const MAGIC: [u8; 7] = *b"\xffmrelay";

/// The version of the hello's format.
const VERSION: u8 = 1;

/// The label whose MAC identifies the key. No hello equals it.
const ID_LABEL: &[u8] = b"millrace relay: which key";

/// Identifies a key, without giving the means to make or check a hello.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyId([u8; 8]);

impl KeyId {
    /// Returns the bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0
    }

    /// Makes an ID from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }
}

/// A key that a client and a relay share. Overwritten when dropped.
#[derive(Clone)]
pub struct Key {
    secret: Zeroizing<[u8; 32]>,
    id: KeyId,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

impl Key {
    /// Makes a key from its 32 bytes.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Self {
        let [id, _] = halves(blake2s::mac(secret, &[ID_LABEL]));
        Self {
            secret: Zeroizing::new(*secret),
            id: KeyId(id),
        }
    }

    /// The ID of the key.
    #[must_use]
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// Makes the hello for a time stamp. The stamps of a client's hellos must grow.
    #[must_use]
    pub fn hello(&self, stamp: Tai64n) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..7].copy_from_slice(&MAGIC);
        bytes[7] = VERSION;
        bytes[8..16].copy_from_slice(&self.id.0);
        bytes[16..28].copy_from_slice(&stamp.0);
        let mac = self.mac(&bytes[..28]);
        bytes[28..].copy_from_slice(&mac);
        bytes
    }

    fn mac(&self, bytes: &[u8]) -> [u8; 16] {
        blake2s::mac(&self.secret, &[bytes])
    }
}

fn halves(mac: [u8; 16]) -> [[u8; 8]; 2] {
    let (halves, _) = mac.as_chunks::<8>();
    [halves[0], halves[1]]
}

/// Why a datagram that begins like a hello is invalid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Malformed {
    /// The datagram has another version of the format.
    Version(u8),
    /// The datagram has another length, in bytes.
    Length(usize),
}

/// A parsed hello, not verified yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hello<'a> {
    /// ID of the key that the sender claims.
    pub id: KeyId,
    /// Time stamp that the sender claims.
    pub stamp: Tai64n,
    signed: &'a [u8],
    mac: [u8; 16],
}

impl<'a> Hello<'a> {
    /// Parses a datagram. Returns `None` for a datagram to forward, which does not begin like a hello.
    #[must_use]
    pub fn parse(datagram: &'a [u8]) -> Option<Result<Self, Malformed>> {
        let rest = datagram.strip_prefix(&MAGIC)?;
        let Some(&version) = rest.first() else {
            return Some(Err(Malformed::Length(datagram.len())));
        };
        if version != VERSION {
            return Some(Err(Malformed::Version(version)));
        }
        let Ok(bytes) = <&[u8; HELLO_LEN]>::try_from(datagram) else {
            return Some(Err(Malformed::Length(datagram.len())));
        };
        let (signed, mac) = bytes.split_at(28);
        let mut hello = Self {
            id: KeyId([0; 8]),
            stamp: Tai64n::default(),
            signed,
            mac: [0; 16],
        };
        hello.id.0.copy_from_slice(&signed[8..16]);
        hello.stamp.0.copy_from_slice(&signed[16..]);
        hello.mac.copy_from_slice(mac);
        Some(Ok(hello))
    }

    /// Whether a holder of the key made the hello. Takes constant time.
    #[must_use]
    pub fn is_of(&self, key: &Key) -> bool {
        key.mac(self.signed).ct_eq(&self.mac).into()
    }
}

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

    #[test]
    fn a_hello_has_the_bytes_of_the_format() {
        let key = Key::new(&[3; 32]);
        let hello = key.hello(Tai64n([5; 12]));
        assert_eq!(&hello[..8], b"\xffmrelay\x01");
        assert_eq!(hello[8..16], key.id().0);
        assert_eq!(hello[16..28], [5; 12]);
        assert_eq!(hello[28..], blake2s::mac(&[3; 32], &[&hello[..28]]));
        assert_eq!(
            hello[8..16],
            blake2s::mac(&[3; 32], &[b"millrace relay: which key"])[..8]
        );
        assert_eq!(format!("{key:?}"), "Key(hidden)");
    }

    /// The expected bytes come from another program, Python's `hashlib.blake2s`.
    #[test]
    fn a_hello_of_another_program_is_the_same() {
        let hello = Key::new(&[7; 32]).hello(Tai64n(*b"\x40\0\0\0\x65\x53\xf1\x0a\x01\0\0\0"));
        let hex: String = hello.iter().map(|byte| format!("{byte:02x}")).collect();
        let theirs = "ff6d72656c61790134f4ddb969da3853400000006553f10a01000000e1beead234da3e00c32798ade91aeaf8";
        assert_eq!(hex, theirs);
    }

    #[test]
    fn only_the_key_that_made_it_verifies_it() {
        let (key, other) = (Key::new(&[3; 32]), Key::new(&[4; 32]));
        assert_ne!(key.id(), other.id());
        let bytes = key.hello(Tai64n([5; 12]));
        let hello = Hello::parse(&bytes).unwrap().unwrap();
        assert_eq!((hello.id, hello.stamp), (key.id(), Tai64n([5; 12])));
        assert!(hello.is_of(&key) && !hello.is_of(&other));
        for at in 8..HELLO_LEN {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert!(!Hello::parse(&changed).unwrap().unwrap().is_of(&key));
        }
    }

    #[test]
    fn what_tunnels_send_is_no_hello() {
        // WireGuard's messages begin with their type; OpenVPN's with an opcode of up to 11, times 8.
        for first in (0..=0x5f_u8).chain([0xfe]) {
            assert_eq!(Hello::parse(&[first; HELLO_LEN]), None);
        }
        assert_eq!(Hello::parse(&[]), None);
        assert_eq!(Hello::parse(&[0xff; HELLO_LEN]), None);
        let short = Hello::parse(&MAGIC).unwrap();
        assert_eq!(short, Err(Malformed::Length(7)));
        let other = Hello::parse(b"\xffmrelay\x02").unwrap();
        assert_eq!(other, Err(Malformed::Version(2)));
    }

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
        fn no_bytes_panic_and_none_are_forged(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..64),
            begins in any::<bool>(),
        ) {
            if begins {
                bytes.splice(..bytes.len().min(8), *b"\xffmrelay\x01");
            }
            match Hello::parse(&bytes) {
                None => prop_assert!(!bytes.starts_with(&MAGIC)),
                Some(Err(_)) => prop_assert!(bytes.len() != HELLO_LEN || bytes[7] != VERSION),
                Some(Ok(hello)) => {
                    prop_assert_eq!(bytes.len(), HELLO_LEN);
                    prop_assert!(!hello.is_of(&Key::new(&[3; 32])));
                }
            }
        }

        #[test]
        fn what_is_made_is_read(secret: [u8; 32], stamp: [u8; 12]) {
            let key = Key::new(&secret);
            let bytes = key.hello(Tai64n(stamp));
            let hello = Hello::parse(&bytes).unwrap().unwrap();
            prop_assert!(hello.id == key.id() && hello.stamp.0 == stamp && hello.is_of(&key));
        }

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
