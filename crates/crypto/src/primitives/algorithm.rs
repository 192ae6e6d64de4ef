//! The operations that can be measured, by name.

use core::fmt;

use crate::{Cipher, Digest};

/// A primitive, or the whole cipher of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// An unkeyed hash.
    Hash(Digest),
    /// A block cipher in CBC mode alone.
    Cbc(Cipher),
    /// RC4 with a key of 128 bits. Insecure.
    Rc4,
    /// RSA with 2048 bits, PKCS #1 v1.5 over SHA-256.
    Rsa2048,
    /// DSA over 2048 bits with a subgroup of 160. Insecure by today's standards.
    Dsa2048,
    /// ECDSA on P-256 over SHA-256.
    EcdsaP256,
    /// X25519.
    X25519,
    /// A tunnel's work on a packet: an AEAD, whose digest is [`Digest::None`], or a cipher behind an HMAC.
    /// ChaCha20-Poly1305 has no number in front; other AEADs have four bytes of header and a number of 32 bits.
    Tunnel(Cipher, Digest),
}

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Hash messages.
    Hash,
    /// Encrypt messages.
    Encrypt,
    /// Decrypt messages.
    Decrypt,
    /// Encrypt and authenticate packets.
    Seal,
    /// Verify and decrypt packets.
    Open,
    /// Sign a hash.
    Sign,
    /// Verify a signature.
    Verify,
    /// Compute a shared secret.
    Agree,
}

impl Algorithm {
    /// The default rows of a table: primitives, signatures, tunnels. More algorithms exist: every pair of cipher and
    /// digest is a tunnel.
    pub const ALL: [Self; 25] = [
        Self::Hash(Digest::Sha1),
        Self::Hash(Digest::Sha256),
        Self::Hash(Digest::Sha512),
        Self::Cbc(Cipher::DesCbc),
        Self::Cbc(Cipher::TripleDesCbc),
        Self::Cbc(Cipher::BlowfishCbc),
        Self::Rc4,
        Self::Cbc(Cipher::Aes128Cbc),
        Self::Cbc(Cipher::Aes192Cbc),
        Self::Cbc(Cipher::Aes256Cbc),
        Self::Tunnel(Cipher::Aes128Gcm, Digest::None),
        Self::Tunnel(Cipher::Aes256Gcm, Digest::None),
        Self::Tunnel(Cipher::ChaCha20Poly1305, Digest::None),
        Self::Tunnel(Cipher::Aes128Cbc, Digest::Sha1),
        Self::Tunnel(Cipher::Aes128Cbc, Digest::Sha256),
        Self::Tunnel(Cipher::Aes256Cbc, Digest::Sha1),
        Self::Tunnel(Cipher::Aes256Cbc, Digest::Sha256),
        Self::Tunnel(Cipher::Aes256Cbc, Digest::Sha512),
        Self::Tunnel(Cipher::TripleDesCbc, Digest::Sha1),
        Self::Tunnel(Cipher::BlowfishCbc, Digest::Sha1),
        Self::Tunnel(Cipher::None, Digest::Sha1),
        Self::Rsa2048,
        Self::Dsa2048,
        Self::EcdsaP256,
        Self::X25519,
    ];

    /// The algorithm called `name`, in upper or lower case: as [`Display`](fmt::Display) writes it, any
    /// `CIPHER+hmac-DIGEST`, or one of `openssl speed`'s names.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let lower = name.to_ascii_lowercase();
        let alias = match lower.as_str() {
            "des" => "des-cbc",
            "des-ede3" => "des-ede3-cbc",
            "bf" | "blowfish" => "bf-cbc",
            "rsa2048" => "rsa-2048",
            "dsa2048" => "dsa-2048",
            "ecdsap256" => "ecdsa-p256",
            "ecdhx25519" => "x25519",
            "wireguard" => "chacha20-poly1305",
            other => other,
        };
        if let Some(found) = Self::ALL.into_iter().find(|one| one.to_string() == alias) {
            return Some(found);
        }
        if let Some((cipher, digest)) = alias.split_once("+hmac-") {
            let cipher = Cipher::from_name(cipher).filter(|cipher| !cipher.is_aead())?;
            let digest = Digest::from_name(digest).filter(|digest| !digest.is_empty())?;
            return Some(Self::Tunnel(cipher, digest));
        }
        if let Some(cipher) = Cipher::from_name(alias) {
            return match cipher {
                Cipher::None => None,
                _ if cipher.is_aead() => Some(Self::Tunnel(cipher, Digest::None)),
                _ => Some(Self::Cbc(cipher)),
            };
        }
        let digest = Digest::from_name(alias).filter(|digest| !digest.is_empty())?;
        Some(Self::Hash(digest))
    }

    /// The operations of the algorithm.
    #[must_use]
    pub const fn operations(self) -> &'static [Operation] {
        match self {
            Self::Hash(_) => &[Operation::Hash],
            Self::Cbc(_) => &[Operation::Encrypt, Operation::Decrypt],
            // Both directions are one operation.
            Self::Rc4 => &[Operation::Encrypt],
            Self::Rsa2048 | Self::Dsa2048 | Self::EcdsaP256 => {
                &[Operation::Sign, Operation::Verify]
            }
            Self::X25519 => &[Operation::Agree],
            Self::Tunnel(..) => &[Operation::Seal, Operation::Open],
        }
    }

    /// Whether the algorithm works on one number at a time instead of messages of any length.
    #[must_use]
    pub const fn is_public_key(self) -> bool {
        matches!(
            self,
            Self::Rsa2048 | Self::Dsa2048 | Self::EcdsaP256 | Self::X25519
        )
    }

    /// Whether the algorithm is a tunnel's work on a packet.
    #[must_use]
    pub const fn is_tunnel(self) -> bool {
        matches!(self, Self::Tunnel(..))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lower = |name: &str| name.to_ascii_lowercase();
        match self {
            Self::Hash(digest) => f.write_str(&lower(digest.name())),
            Self::Cbc(cipher) | Self::Tunnel(cipher, Digest::None) => {
                f.write_str(&lower(cipher.name()))
            }
            Self::Tunnel(cipher, digest) => {
                write!(f, "{}+hmac-{}", lower(cipher.name()), lower(digest.name()))
            }
            Self::Rc4 => f.write_str("rc4"),
            Self::Rsa2048 => f.write_str("rsa-2048"),
            Self::Dsa2048 => f.write_str("dsa-2048"),
            Self::EcdsaP256 => f.write_str("ecdsa-p256"),
            Self::X25519 => f.write_str("x25519"),
        }
    }
}

impl Operation {
    /// The name of the operation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
            Self::Seal => "seal",
            Self::Open => "open",
            Self::Sign => "sign",
            Self::Verify => "verify",
            Self::Agree => "agree",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Work that can be repeated.
pub trait Task: Send {
    /// Restores the input that the last run has used up; needed before each run. Its time is not the algorithm's.
    fn prepare(&mut self) {}

    /// Whether [`prepare`](Self::prepare) does anything, so that its time must be measured separately.
    fn is_prepared(&self) -> bool {
        false
    }

    /// Does the work once, and returns whether the result was correct.
    fn run(&mut self) -> bool;

    /// The code and its instructions. For a tunnel's cipher, the code that works on batches.
    fn implementation(&self) -> &'static str;
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_go_both_ways_and_differ() {
        let mut names = HashSet::new();
        for one in Algorithm::ALL {
            let name = one.to_string();
            assert_eq!(Algorithm::from_name(&name), Some(one), "{name}");
            assert_eq!(
                Algorithm::from_name(&name.to_uppercase()),
                Some(one),
                "{name}"
            );
            assert!(names.insert(name));
        }
        let tunnel = Algorithm::Tunnel(Cipher::Aes256Cbc, Digest::Sha1);
        assert_eq!(tunnel.to_string(), "aes-256-cbc+hmac-sha1");
    }

    #[test]
    fn other_pairs_and_the_names_of_openssl_are_understood() {
        for (name, full) in [
            ("des-ede3", "des-ede3-cbc"),
            ("rsa2048", "rsa-2048"),
            ("ecdhx25519", "x25519"),
            ("aes-192-gcm", "aes-192-gcm"),
            ("AES-192-CBC+HMAC-SHA384", "aes-192-cbc+hmac-sha384"),
            ("md5", "md5"),
        ] {
            let found = Algorithm::from_name(name).map(|one| one.to_string());
            assert_eq!(found.as_deref(), Some(full), "{name}");
        }
        for name in [
            "",
            "none",
            "rsa",
            "aes-256-gcm+hmac-sha1",
            "aes-256-cbc+hmac-none",
        ] {
            assert_eq!(Algorithm::from_name(name), None, "{name}");
        }
    }
}
