//! MPPE keys (RFC 3079, section 3).

use core::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::lines::ProbeKey;
use crate::mschap::hash_nt_password_hash;
use crypto::{Rc4, sha1};

const MAGIC_1: &[u8] = b"This is the MPPE Master Key";
const MAGIC_2: &[u8] =
    b"On the client side, this is the send key; on the server side, it is the receive key.";
const MAGIC_3: &[u8] =
    b"On the client side, this is the receive key; on the server side, it is the send key.";
/// The label that separates the probe key from all other keys.
const PROBES: &[u8] = b"Millrace: probes by the lines of a call";
const PAD_1: [u8; 40] = [0; 40];
const PAD_2: [u8; 40] = [0xf2; 40];

/// Key lengths. The shorter ones are for peers that support nothing better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyLength {
    /// Keys of 64 bits, 24 of them publicly known.
    Bits40,
    /// Keys of 64 bits, 8 of them publicly known.
    Bits56,
    /// Keys of 128 bits.
    Bits128,
}

impl KeyLength {
    /// Length of a key in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bits40 | Self::Bits56 => 8,
            Self::Bits128 => 16,
        }
    }

    /// Secret bits of a key.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::Bits40 => 40,
            Self::Bits56 => 56,
            Self::Bits128 => 128,
        }
    }

    /// Overwrites the known bits of a shorter key (RFC 3079, sections 3.1 and 3.2).
    fn weaken(self, key: &mut [u8; 16]) {
        let known: &[u8] = match self {
            Self::Bits40 => &[0xd1, 0x26, 0x9e],
            Self::Bits56 => &[0xd1],
            Self::Bits128 => &[],
        };
        key[..known.len()].copy_from_slice(known);
    }
}

/// `GetMasterKey` (RFC 3079, section 3.4): the source of both directions' keys.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; 16]>);

impl MasterKey {
    /// Derives the key from the password's hash and the response of MS-CHAP version 2.
    #[must_use]
    pub fn new(password_hash: &[u8; 16], nt_response: &[u8; 24]) -> Self {
        let hash = hash_nt_password_hash(password_hash);
        Self(first_half(sha1(&[&*hash, nt_response, MAGIC_1])))
    }

    /// The key of probes over several lines, an extension to RFC 3079.
    #[must_use]
    pub fn probe_key(&self) -> ProbeKey {
        ProbeKey::new(Zeroizing::new(crypto::blake2s::hmac(&*self.0, &[PROBES])))
    }

    /// `GetAsymmetricStartKey` (RFC 3079, section 3.4): the first key of one direction.
    #[must_use]
    pub fn start_key(&self, from_client: bool, length: KeyLength) -> StartKey {
        let magic = if from_client { MAGIC_2 } else { MAGIC_3 };
        StartKey {
            key: first_half(sha1(&[&*self.0, &PAD_1, magic, &PAD_2])),
            length,
        }
    }

    /// The key's bytes, for interoperability tests.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

/// The first key of one direction; each later key is made of it and the previous one.
#[derive(Clone)]
pub struct StartKey {
    key: Zeroizing<[u8; 16]>,
    length: KeyLength,
}

impl StartKey {
    /// The key: 8 or 16 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.key[..self.length.bytes()]
    }

    /// The first session key (RFC 3079, section 3.4).
    #[must_use]
    pub fn session_key(self) -> SessionKey {
        let len = self.length.bytes();
        let mut message = Zeroizing::new([0; MESSAGE]);
        message[..len].copy_from_slice(self.as_bytes());
        let end = 2 * len + PAD_1.len();
        message[end..end + PAD_2.len()].copy_from_slice(&PAD_2);
        let mut first = SessionKey {
            length: self.length,
            message,
        };
        first.set(&self.key);
        let mut key = first.next();
        first.length.weaken(&mut key);
        first.set(&key);
        first
    }
}

impl fmt::Debug for StartKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StartKey({} bits)", self.length.bits())
    }
}

/// Bytes hashed for a key of 128 bits.
const MESSAGE: usize = 16 + PAD_1.len() + 16 + PAD_2.len();

/// The current key of one direction.
#[derive(Clone)]
pub struct SessionKey {
    length: KeyLength,
    /// Input of the next key (`GetNewKeyFromSHA`, RFC 3078, section 7.3): start key, padding, this key, padding. Stored
    /// as it is hashed, because each packet needs a new key.
    message: Zeroizing<[u8; MESSAGE]>,
}

impl SessionKey {
    /// The key: 8 or 16 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let len = self.length.bytes();
        &self.message[len + PAD_1.len()..][..len]
    }

    fn set(&mut self, key: &[u8; 16]) {
        let len = self.length.bytes();
        self.message[len + PAD_1.len()..][..len].copy_from_slice(&key[..len]);
    }

    fn next(&self) -> Zeroizing<[u8; 16]> {
        let end = 2 * self.length.bytes() + PAD_1.len() + PAD_2.len();
        first_half(sha1(&[&self.message[..end]]))
    }

    /// Replaces the key with the next one (RFC 3078, section 7.3). `cipher` is scratch space; its old state is lost.
    pub fn change(&mut self, cipher: &mut Rc4) {
        let mut next = self.next();
        let len = self.length.bytes();
        // The new key is encrypted with itself.
        cipher.set_key(&next[..len]);
        cipher.apply(&mut next[..len]);
        self.length.weaken(&mut next);
        self.set(&next);
    }

    /// An RC4 stream that begins with this key.
    #[must_use]
    pub fn cipher(&self) -> Rc4 {
        Rc4::new(self.as_bytes())
    }

    /// Length of the key.
    #[must_use]
    pub const fn length(&self) -> KeyLength {
        self.length
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKey({} bits)", self.length.bits())
    }
}

fn first_half(mut hash: [u8; 20]) -> Zeroizing<[u8; 16]> {
    let mut key = Zeroizing::new([0; 16]);
    key.copy_from_slice(&hash[..16]);
    hash.zeroize();
    key
}
