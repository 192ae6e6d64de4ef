//! MS-CHAP version 2: the functions of RFC 2759, section 8, by their RFC names, and its fields in CHAP packets.
//!
//! Three DES keys come from the password's MD4; the third has only 16 bits. From a recorded login, an attacker finds
//! the hash, and with it every MPPE key, by trying 2^56 DES keys: hours on rented machines. See the crate's
//! documentation.

mod messages;

use core::fmt;

use crypto::sha1;
use des::Des;
use des::cipher::{BlockCipherEncrypt, KeyInit};
use md4::{Digest, Md4};
use zeroize::Zeroizing;

pub use messages::{Failure, FailureCode, RESPONSE_LEN, Response, Success};

/// The longest password (RFC 2759, section 8.3), in UTF-16 units. Longer ones are cut, because no peer supports more.
const MAX_PASSWORD: usize = 256;

const MAGIC_1: &[u8] = b"Magic server to client signing constant";
const MAGIC_2: &[u8] = b"Pad to make it do more than one iteration";

/// `NtPasswordHash` (section 8.3): MD4 of the password in UTF-16. As sensitive as the password.
#[must_use]
pub fn nt_password_hash(password: &str) -> Zeroizing<[u8; 16]> {
    let mut hash = Md4::new();
    for unit in password.encode_utf16().take(MAX_PASSWORD) {
        hash.update(unit.to_le_bytes());
    }
    Zeroizing::new(hash.finalize().into())
}

/// `HashNtPasswordHash` (section 8.4).
#[must_use]
pub fn hash_nt_password_hash(hash: &[u8; 16]) -> Zeroizing<[u8; 16]> {
    Zeroizing::new(Md4::digest(hash).into())
}

/// The part of a user name that is hashed: without a domain before it (`DOMAIN\user`) (section 4).
#[must_use]
pub fn user_without_domain(user: &[u8]) -> &[u8] {
    match user.iter().rposition(|&byte| byte == b'\\') {
        Some(at) => &user[at + 1..],
        None => user,
    }
}

/// `ChallengeHash` (section 8.2). `user` is without its domain.
#[must_use]
pub fn challenge_hash(peer: &[u8; 16], authenticator: &[u8; 16], user: &[u8]) -> [u8; 8] {
    let hash = sha1(&[peer, authenticator, user]);
    let mut challenge = [0; 8];
    challenge.copy_from_slice(&hash[..8]);
    challenge
}

/// A key of DES from 7 bytes: 7 bits in each byte, with odd parity (section 8.6).
#[must_use]
pub fn des_key(bits: &[u8; 7]) -> Zeroizing<[u8; 8]> {
    let mut wide = [0; 8];
    wide[1..].copy_from_slice(bits);
    let all = u64::from_be_bytes(wide);
    Zeroizing::new(core::array::from_fn(|at| {
        // The mask leaves seven bits, so the cast is exact.
        let seven = (all >> (49 - 7 * at)) as u8 & 0x7f;
        let parity = 1 ^ (seven.count_ones() as u8 & 1);
        seven << 1 | parity
    }))
}

/// `ChallengeResponse` (section 8.5).
#[must_use]
pub fn challenge_response(challenge: &[u8; 8], password_hash: &[u8; 16]) -> [u8; 24] {
    let mut padded = Zeroizing::new([0; 21]);
    padded[..16].copy_from_slice(password_hash);
    let mut response = [0; 24];
    for (bits, part) in padded.chunks_exact(7).zip(response.chunks_exact_mut(8)) {
        let mut seven = Zeroizing::new([0; 7]);
        seven.copy_from_slice(bits);
        let cipher = Des::new((&*des_key(&seven)).into());
        let mut block = (*challenge).into();
        cipher.encrypt_block(&mut block);
        part.copy_from_slice(&block);
    }
    response
}

/// `GenerateNTResponse` (section 8.1), from the password's hash. `user` is without its domain.
#[must_use]
pub fn nt_response(
    authenticator: &[u8; 16],
    peer: &[u8; 16],
    user: &[u8],
    password_hash: &[u8; 16],
) -> [u8; 24] {
    let challenge = challenge_hash(peer, authenticator, user);
    challenge_response(&challenge, password_hash)
}

/// `GenerateAuthenticatorResponse` (section 8.7), as bytes instead of hexadecimal digits.
#[must_use]
pub fn authenticator_response(
    password_hash: &[u8; 16],
    nt_response: &[u8; 24],
    peer: &[u8; 16],
    authenticator: &[u8; 16],
    user: &[u8],
) -> [u8; 20] {
    let hash = hash_nt_password_hash(password_hash);
    // The master key begins with this digest.
    let digest = Zeroizing::new(sha1(&[&*hash, nt_response, MAGIC_1]));
    sha1(&[
        &*digest,
        &challenge_hash(peer, authenticator, user),
        MAGIC_2,
    ])
}

/// A password that is never printed, and overwritten when dropped.
#[derive(Clone)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Takes a password.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The password, for hashing or for PAP.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}
