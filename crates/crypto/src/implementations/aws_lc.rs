//! AWS-LC, one packet after the other. It detects the CPU's features itself.

use core::ops::Range;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce,
    UnboundKey,
};
use zeroize::Zeroize;

use super::{AeadImplementation, CbcImplementation, Chain, Mac, MacImplementation, Place};
use crate::TAG_LEN;
use crate::hmac::Hmac;
use crate::implementations::Backend;
use crate::packet_aead::AeadAlgorithm;

/// The kind of AWS-LC's code on this machine. It is portable if AWS-LC has no assembly for it, or the assembly needs
/// missing vector registers.
pub(super) fn backend() -> Backend {
    #[cfg(target_arch = "x86_64")]
    return Backend::Simd;
    #[cfg(any(target_arch = "arm", target_arch = "aarch64"))]
    if crate::cpu::has_neon() {
        return Backend::Simd;
    }
    #[cfg(not(target_arch = "x86_64"))]
    Backend::Portable
}

/// An AEAD of the library.
///
/// Uses the library's "less safe" key because that lets the caller number the packets, as the protocols require.
pub(crate) struct AwsLcAead {
    algorithm: AeadAlgorithm,
    key: LessSafeKey,
}

impl AwsLcAead {
    /// # Panics
    /// If the key has not the algorithm's length.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Self {
        assert_eq!(key.len(), algorithm.key_len());
        // A key of the algorithm's own length is the only condition, and the line above has checked it.
        #[allow(clippy::unwrap_used)]
        let key = LessSafeKey::new(UnboundKey::new(library(algorithm), key).unwrap());
        Self { algorithm, key }
    }

    /// Seals one packet.
    pub(crate) fn seal_one(&self, memory: &mut [u8], place: &Place) {
        let (front, rest) = memory.split_at_mut(place.text.start);
        let text = &mut rest[..place.text.len()];
        let aad = Aad::from(&front[place.aad.clone()]);
        let nonce = Nonce::assume_unique_for_key(place.nonce);
        match self.key.seal_in_place_separate_tag(nonce, aad, text) {
            Ok(tag) => memory[place.tag..][..TAG_LEN].copy_from_slice(tag.as_ref()),
            // Only a text beyond 64 GiB fails, and a packet's length has 32 bits. If a later library fails for another
            // reason, the plaintext must still not leave this machine.
            Err(_) => {
                text.fill(0);
                memory[place.tag..][..TAG_LEN].fill(0);
            }
        }
    }

    /// Opens one packet.
    pub(crate) fn open_one(&self, memory: &mut [u8], place: &Place) -> bool {
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&memory[place.tag..][..TAG_LEN]);
        let (front, rest) = memory.split_at_mut(place.text.start);
        let text = &mut rest[..place.text.len()];
        let aad = Aad::from(&front[place.aad.clone()]);
        let nonce = Nonce::assume_unique_for_key(place.nonce);
        let opened = self.key.open_in_place_separate_tag(nonce, aad, &tag, text);
        let authentic = opened.is_ok();
        if !authentic {
            // AWS-LC decrypts while it authenticates and then clears the text. That may change, and this trait promises
            // it.
            text.fill(0);
        }
        authentic
    }
}

impl AeadImplementation for AwsLcAead {
    fn seal(&self, memory: &mut [u8], places: &[Place]) {
        for place in places {
            self.seal_one(memory, place);
        }
    }

    fn open(&self, memory: &mut [u8], places: &[Place], authentic: &mut [bool]) {
        for (place, authentic) in places.iter().zip(authentic) {
            *authentic = self.open_one(memory, place);
        }
    }

    fn describe(&self) -> &'static str {
        match self.algorithm {
            AeadAlgorithm::ChaCha20Poly1305 => chacha(),
            _ => gcm(),
        }
    }
}

fn library(algorithm: AeadAlgorithm) -> &'static Algorithm {
    match algorithm {
        AeadAlgorithm::Aes128Gcm => &AES_128_GCM,
        AeadAlgorithm::Aes192Gcm => &AES_192_GCM,
        AeadAlgorithm::Aes256Gcm => &AES_256_GCM,
        AeadAlgorithm::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    }
}

/// The code that AWS-LC picks for ChaCha20-Poly1305.
fn chacha() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            return "aws-lc (avx2)";
        }
        if is_x86_feature_detected!("sse4.1") {
            return "aws-lc (sse4.1)";
        }
    }
    plain_or_neon()
}

/// The code that AWS-LC picks for AES-GCM.
fn gcm() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        let aes = is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq");
        if is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("avx512bw")
        {
            return "aws-lc (vaes, avx512)";
        }
        if aes && is_x86_feature_detected!("avx") && is_x86_feature_detected!("movbe") {
            return "aws-lc (aes-ni stitched with pclmulqdq)";
        }
        if aes {
            return "aws-lc (aes-ni)";
        }
        if is_x86_feature_detected!("ssse3") {
            return "aws-lc (ssse3)";
        }
    }
    #[cfg(target_arch = "aarch64")]
    if crate::cpu::has_aes() {
        return "aws-lc (aes instructions)";
    }
    plain_or_neon()
}

fn plain_or_neon() -> &'static str {
    #[cfg(any(target_arch = "arm", target_arch = "aarch64"))]
    if crate::cpu::has_neon() {
        return "aws-lc (neon)";
    }
    "aws-lc (portable)"
}

/// AES-CBC of the library. It decrypts eight blocks of a chain at once, because no block waits for another.
pub(crate) struct AwsLcAes {
    encrypting: aws_lc_sys::AES_KEY,
    decrypting: aws_lc_sys::AES_KEY,
}

impl AwsLcAes {
    /// # Panics
    /// If `key` has not 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Self {
        assert!(matches!(key.len(), 16 | 24 | 32));
        let bits = key.len() as u32 * 8;
        // SAFETY: zeros are valid for plain integers, the library fills them, and the key is as long as it is told.
        let (encrypting, decrypting, failed) = unsafe {
            let mut encrypting = core::mem::zeroed();
            let mut decrypting = core::mem::zeroed();
            let failed = aws_lc_sys::AES_set_encrypt_key(key.as_ptr(), bits, &raw mut encrypting)
                | aws_lc_sys::AES_set_decrypt_key(key.as_ptr(), bits, &raw mut decrypting);
            (encrypting, decrypting, failed)
        };
        assert_eq!(failed, 0, "the library refuses only other lengths");
        Self {
            encrypting,
            decrypting,
        }
    }
}

impl CbcImplementation for AwsLcAes {
    fn encrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        for chain in chains {
            cbc(&self.encrypting, memory, chain, aws_lc_sys::AES_ENCRYPT);
        }
    }

    fn decrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        for chain in chains {
            cbc(&self.decrypting, memory, chain, aws_lc_sys::AES_DECRYPT);
        }
    }

    fn describe(&self) -> &'static str {
        "aws-lc"
    }
}

fn cbc(key: &aws_lc_sys::AES_KEY, memory: &mut [u8], chain: &Chain, direction: i32) {
    let (mut iv, blocks) = chain.parts::<16>(memory);
    let bytes = blocks.as_flattened_mut();
    let at = bytes.as_mut_ptr();
    // SAFETY: in place is allowed, whole blocks, a key of the direction, an IV of a block.
    unsafe {
        aws_lc_sys::AES_cbc_encrypt(at, at, bytes.len(), key, iv.as_mut_ptr(), direction);
    }
}

impl Drop for AwsLcAes {
    fn drop(&mut self) {
        self.encrypting.rd_key.zeroize();
        self.decrypting.rd_key.zeroize();
    }
}

/// The library's code; for MD5, RIPEMD-160 and BLAKE2, that of RustCrypto.
impl MacImplementation for Hmac {
    fn sign_each(&self, memory: &[u8], messages: &[Range<usize>], macs: &mut [Mac]) {
        for (message, mac) in messages.iter().zip(macs) {
            *mac = self.sign(&[&memory[message.clone()]]);
        }
    }

    fn hash_each(&self, memory: &[u8], messages: &[Range<usize>], hashes: &mut [Mac]) -> bool {
        for (message, hash) in messages.iter().zip(hashes) {
            *hash = self.digest().hash(&memory[message.clone()]);
        }
        true
    }

    fn describe(&self) -> &'static str {
        "aws-lc"
    }
}
