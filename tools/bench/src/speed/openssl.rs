//! Runs the installed `openssl speed` for the same figures.

mod program;

use std::collections::BTreeMap;

use crypto::primitives::{Algorithm, Operation};
use crypto::{Cipher, Digest};

pub(super) use program::{OpenSsl, OpenSslError};

/// What one run of `openssl speed` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Measure {
    Hash(Digest),
    Hmac(Digest),
    Rc4,
    Cbc(Cipher, Direction),
    /// A packet, with nonce, associated data and tag.
    Aead(Cipher, Direction),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Encrypt,
    Decrypt,
}

impl Direction {
    const fn of(operation: Operation) -> Self {
        match operation {
            Operation::Decrypt | Operation::Open => Self::Decrypt,
            _ => Self::Encrypt,
        }
    }
}

impl Measure {
    /// OpenSSL's steps for a packet or a message, in order. A tunnel's cipher and its HMAC are two steps, as in
    /// OpenVPN.
    fn of(algorithm: Algorithm, operation: Operation) -> Vec<Self> {
        let direction = Direction::of(operation);
        match algorithm {
            Algorithm::Hash(digest) => vec![Self::Hash(digest)],
            Algorithm::Cbc(cipher) => vec![Self::Cbc(cipher, direction)],
            Algorithm::Rc4 => vec![Self::Rc4],
            Algorithm::Tunnel(cipher, _) if cipher.is_aead() => {
                vec![Self::Aead(cipher, direction)]
            }
            Algorithm::Tunnel(cipher, digest) => {
                let encrypted = cipher != Cipher::None;
                let cipher = encrypted.then_some(Self::Cbc(cipher, direction));
                let hmac = (!digest.is_empty()).then_some(Self::Hmac(digest));
                cipher.into_iter().chain(hmac).collect()
            }
            Algorithm::Rsa2048 | Algorithm::Dsa2048 | Algorithm::EcdsaP256 | Algorithm::X25519 => {
                Vec::new()
            }
        }
    }

    /// Whether OpenSSL 3 has the algorithm only in its legacy provider.
    const fn is_legacy(self) -> bool {
        matches!(
            self,
            Self::Rc4 | Self::Cbc(Cipher::DesCbc | Cipher::BlowfishCbc, _)
        )
    }
}

/// The measurements so far, kept because several figures share a step.
#[derive(Default)]
pub(super) struct Measured {
    rates: BTreeMap<(Measure, usize), Option<f64>>,
}

impl OpenSsl {
    /// Bytes per second; `None` if this OpenSSL cannot measure it.
    pub(super) fn rate(
        &self,
        (algorithm, operation): (Algorithm, Operation),
        bytes: usize,
        seconds: f64,
        measured: &mut Measured,
    ) -> Result<Option<f64>, OpenSslError> {
        let mut time = 0.0;
        for measure in Measure::of(algorithm, operation) {
            let rate = match measured.rates.get(&(measure, bytes)) {
                Some(rate) => *rate,
                None => {
                    let rate = self.symmetric(measure, bytes, seconds)?;
                    measured.rates.insert((measure, bytes), rate);
                    rate
                }
            };
            let Some(rate) = rate else {
                return Ok(None);
            };
            time += 1.0 / rate;
        }
        Ok((time > 0.0).then(|| 1.0 / time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_without_an_aead_is_two_passes() {
        let parts = |name, operation| Measure::of(Algorithm::from_name(name).unwrap(), operation);
        assert_eq!(
            parts("aes-256-cbc+hmac-sha1", Operation::Open),
            [
                Measure::Cbc(Cipher::Aes256Cbc, Direction::Decrypt),
                Measure::Hmac(Digest::Sha1)
            ]
        );
        assert_eq!(
            parts("none+hmac-sha1", Operation::Seal),
            [Measure::Hmac(Digest::Sha1)]
        );
        assert_eq!(
            parts("aes-256-gcm", Operation::Seal),
            [Measure::Aead(Cipher::Aes256Gcm, Direction::Encrypt)]
        );
        assert!(parts("rsa2048", Operation::Sign).is_empty());
    }
}
