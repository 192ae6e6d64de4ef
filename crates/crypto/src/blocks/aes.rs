//! AES in CBC mode: this crate's own where several chains at once are faster, AWS-LC's elsewhere.

use zeroize::Zeroize;

use super::Chain;
#[cfg(target_arch = "x86_64")]
use super::aesni::AesNi;

/// A key of 128, 192 or 256 bits, for both directions.
pub(crate) struct Aes {
    encrypting: aws_lc_sys::AES_KEY,
    decrypting: aws_lc_sys::AES_KEY,
    #[cfg(target_arch = "x86_64")]
    lanes: Option<AesNi>,
}

impl Aes {
    /// # Panics
    /// If `key` has not 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Self {
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
        assert_eq!(failed, 0, "the library refuses other lengths alone");
        Self {
            encrypting,
            decrypting,
            #[cfg(target_arch = "x86_64")]
            lanes: AesNi::new(key),
        }
    }

    pub(super) fn encrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(lanes) = &self.lanes
            && chains.len() > 1
        {
            lanes.encrypt(memory, chains);
            return;
        }
        for chain in chains {
            library(&self.encrypting, memory, chain, aws_lc_sys::AES_ENCRYPT);
        }
    }

    pub(super) fn decrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        // Decrypting, no block waits for another, and the library works on eight of a chain at once.
        for chain in chains {
            library(&self.decrypting, memory, chain, aws_lc_sys::AES_DECRYPT);
        }
    }

    pub(super) fn backend(&self) -> &'static str {
        #[cfg(target_arch = "x86_64")]
        if self.lanes.is_some() {
            return "own (aes-ni, eight chains at once) to seal, aws-lc to open";
        }
        "aws-lc"
    }

    #[cfg(test)]
    pub(super) fn make_portable(&mut self) {
        #[cfg(target_arch = "x86_64")]
        {
            self.lanes = None;
        }
    }
}

fn library(key: &aws_lc_sys::AES_KEY, memory: &mut [u8], chain: &Chain, direction: i32) {
    let (mut iv, blocks) = chain.parts::<16>(memory);
    let bytes = blocks.as_flattened_mut();
    let at = bytes.as_mut_ptr();
    // SAFETY: in place is allowed, whole blocks, a key of the direction, an IV of a block.
    unsafe {
        aws_lc_sys::AES_cbc_encrypt(at, at, bytes.len(), key, iv.as_mut_ptr(), direction);
    }
}

impl Drop for Aes {
    fn drop(&mut self) {
        self.encrypting.rd_key.zeroize();
        self.decrypting.rd_key.zeroize();
    }
}
