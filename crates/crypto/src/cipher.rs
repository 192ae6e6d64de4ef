//! What the data plane asks of a cipher.

use crate::Batch;

/// A cipher with its key, which seals and opens batches in place.
///
/// Keys are made on the control thread and shared with every worker, hence `Send + Sync` and `&self`.
pub trait PacketCipher: Send + Sync {
    /// Bytes that the tag occupies, directly after the packet's plaintext.
    fn tag_len(&self) -> usize;

    /// Encrypts every packet in place and writes its tag after it.
    ///
    /// The caller never uses a counter twice under one key. A packet whose plaintext and tag do not lie within the memory
    /// is a fault of the caller: it stops a debug build and is left as it was by a release build.
    fn seal(&self, batch: &mut Batch<'_>);

    /// Verifies and decrypts every packet in place and sets its `authentic`.
    ///
    /// A packet that fails leaves no plaintext behind: its ciphertext has become zeros, or is untouched if the packet
    /// does not lie within the memory. One that fails does not affect the others.
    fn open(&self, batch: &mut Batch<'_>);

    /// The cipher's name for status reports, for example `chacha20-poly1305`.
    fn name(&self) -> &'static str;

    /// Whose code runs, and for which instructions it was chosen on this machine, for example `aws-lc (avx2)`.
    fn backend(&self) -> &'static str;
}
