//! The pseudo-random function of TLS 1.0 (RFC 2246 §5), with which peers up to 2.5 make their keys.
//!
//! The function is MD5 and SHA-1 side by side, each expanding one half of the secret, and the two results
//! XORed. Neither hash is used here for what it is broken for; newer peers take the exporter instead.

use aws_lc_rs::hmac as lc;
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use zeroize::Zeroize;

/// Fills `out` from `secret`, `label` and the concatenation of `seeds`.
pub fn tls1_prf(secret: &[u8], label: &[u8], seeds: &[&[u8]], out: &mut [u8]) {
    // The halves overlap by one byte if the length is odd.
    let half = secret.len().div_ceil(2);
    let (first, second) = (&secret[..half], &secret[secret.len() - half..]);
    let mut seed: Vec<&[u8]> = Vec::with_capacity(seeds.len() + 1);
    seed.push(label);
    seed.extend_from_slice(seeds);

    out.fill(0);
    expand(&HmacMd5::new(first), &seed, out);
    expand(&HmacSha1::new(second), &seed, out);
}

/// An HMAC whose key is set.
trait Prf {
    /// The tag over the concatenation of `parts`; at most 20 bytes, the rest of the array is unused.
    fn tag(&self, parts: &[&[u8]]) -> [u8; 20];
    /// How many bytes a tag has.
    const LEN: usize;
}

struct HmacMd5(Hmac<Md5>);

impl HmacMd5 {
    fn new(key: &[u8]) -> Self {
        // An HMAC takes a key of any length: longer ones are hashed.
        #[expect(clippy::expect_used, reason = "no length of key is refused")]
        Self(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
    }
}

impl Prf for HmacMd5 {
    const LEN: usize = 16;

    fn tag(&self, parts: &[&[u8]]) -> [u8; 20] {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        let mut tag = [0; 20];
        tag[..Self::LEN].copy_from_slice(&mac.finalize().into_bytes());
        tag
    }
}

struct HmacSha1(lc::Key);

impl HmacSha1 {
    fn new(key: &[u8]) -> Self {
        Self(lc::Key::new(lc::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key))
    }
}

impl Prf for HmacSha1 {
    const LEN: usize = 20;

    fn tag(&self, parts: &[&[u8]]) -> [u8; 20] {
        let mut context = lc::Context::with_key(&self.0);
        for part in parts {
            context.update(part);
        }
        let mut tag = [0; 20];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }
}

/// XORs P_hash of RFC 2246 into `out`.
fn expand<P: Prf>(mac: &P, seed: &[&[u8]], out: &mut [u8]) {
    let mut a = mac.tag(seed);
    for chunk in out.chunks_mut(P::LEN) {
        let mut input: Vec<&[u8]> = Vec::with_capacity(seed.len() + 1);
        input.push(&a[..P::LEN]);
        input.extend_from_slice(seed);
        let mut block = mac.tag(&input);
        for (out, byte) in chunk.iter_mut().zip(&block) {
            *out ^= byte;
        }
        block.zeroize();
        a = mac.tag(&[&a[..P::LEN]]);
    }
    a.zeroize();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Made with `openssl kdf TLS1-PRF`, and again with a few lines of Python.
    #[test]
    fn the_answers_are_openssls() {
        let counting: Vec<u8> = (0..164).collect();
        let (secret, seed) = (&counting[..48], &counting[100..164]);
        let mut out = [0; 48];
        tls1_prf(secret, b"a label", &[seed], &mut out);
        assert_eq!(
            hex(&out),
            "a7324fb57401b5961a8ef07f0f3e199fed026113d5842c2c4722937d27f6329e853276995ff19411934aa710\
             ebe99b04"
        );
        // A secret of odd length, whose halves share a byte; and a seed in pieces.
        let mut out = [0; 37];
        tls1_prf(
            &secret[..5],
            b"a label",
            &[&seed[..1], b"", &seed[1..]],
            &mut out,
        );
        assert_eq!(
            hex(&out),
            "4c1484d5a787e7968ada4b33939c7a103297287222fc3625ab2041667c382ab1a2b631e969"
        );
    }
}
