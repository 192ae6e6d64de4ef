//! Keys of MPPE (RFC 3079, section 3).

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
/// The label that sets the key of probes apart from all others.
const PROBES: &[u8] = b"Millrace: probes by the lines of a call";
const PAD_1: [u8; 40] = [0; 40];
const PAD_2: [u8; 40] = [0xf2; 40];

/// How long a key is. The shorter ones are for peers that know nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyLength {
    /// 64 bits, of which 24 are known.
    Bits40,
    /// 64 bits, of which 8 are known.
    Bits56,
    /// 128 bits.
    Bits128,
}

impl KeyLength {
    /// Bytes of a key.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bits40 | Self::Bits56 => 8,
            Self::Bits128 => 16,
        }
    }

    /// Bits of a key that are secret.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::Bits40 => 40,
            Self::Bits56 => 56,
            Self::Bits128 => 128,
        }
    }

    /// Makes a key as weak as it has to be (RFC 3079, section 3.1 and 3.2).
    fn weaken(self, key: &mut [u8; 16]) {
        let known: &[u8] = match self {
            Self::Bits40 => &[0xd1, 0x26, 0x9e],
            Self::Bits56 => &[0xd1],
            Self::Bits128 => &[],
        };
        key[..known.len()].copy_from_slice(known);
    }
}

/// `GetMasterKey` (RFC 3079, section 3.4): what both directions' keys come from.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; 16]>);

impl MasterKey {
    /// From the hash of the password and the response of MS-CHAP version 2.
    #[must_use]
    pub fn new(password_hash: &[u8; 16], nt_response: &[u8; 24]) -> Self {
        let hash = hash_nt_password_hash(password_hash);
        Self(first_half(sha1(&[&*hash, nt_response, MAGIC_1])))
    }

    /// The key of the probes by several lines, which RFC 3079 does not know.
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

    /// The key's bytes, for tests of other programs against this one.
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

/// The first key of one direction: every later one is made of it and the one before.
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

/// Bytes of what is hashed for a key of 128 bits.
const MESSAGE: usize = 16 + PAD_1.len() + 16 + PAD_2.len();

/// The key of one direction as it is now.
#[derive(Clone)]
pub struct SessionKey {
    length: KeyLength,
    /// The input of the next key (`GetNewKeyFromSHA`, RFC 3078, section 7.3): the start key, padding, this key,
    /// padding. It is kept as it is hashed, because each packet has a key.
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

    /// Changes the key for the next one (RFC 3078, section 7.3). `cipher` is where it is worked out; what it was is gone.
    pub fn change(&mut self, cipher: &mut Rc4) {
        let mut next = self.next();
        let len = self.length.bytes();
        // It is encrypted with itself.
        cipher.set_key(&next[..len]);
        cipher.apply(&mut next[..len]);
        self.length.weaken(&mut next);
        self.set(&next);
    }

    /// A stream that begins with this key.
    #[must_use]
    pub fn cipher(&self) -> Rc4 {
        Rc4::new(self.as_bytes())
    }

    /// How long it is.
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
