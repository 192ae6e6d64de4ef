//! The cipher as the data plane uses it.

use crate::Batch;

/// A cipher with its key, which seals and opens batches in place.
///
/// ```text
/// ... | header | head | payload | tail
///       ------   ----             ----
///       protocol's, constant      the cipher's
/// ```
///
/// The header (type and receiver's number, whatever the protocol has) is the same for all packets of a key and is written
/// by the caller, before sealing: some ciphers authenticate it. The head and the tail hold what the cipher adds: packet
/// number, tag, initialisation vector, padding.
///
/// Keys are made on the control thread and shared with every worker, hence `Send + Sync` and `&self`.
pub trait PacketCipher: Send + Sync {
    /// Bytes directly in front of the payload that the cipher writes. The same for all packets of a key.
    fn head(&self) -> usize;

    /// Bytes directly behind a payload of `len` bytes that the cipher writes.
    fn tail(&self, len: usize) -> usize;

    /// Encrypts the payload of every packet in place and writes its head and its tail. `start` and `len` stay the payload's.
    ///
    /// The caller never uses a counter twice under one key. A packet that with its head and tail does not lie within the
    /// memory is a fault of the caller: it stops a debug build and is left as it was by a release build.
    fn seal(&self, batch: &mut Batch<'_>);

    /// Verifies and decrypts every packet in place and sets its `authentic`.
    ///
    /// A packet's `start` is the first byte of its head and its `len` counts from there to the end of the datagram; the
    /// header that stands in front of it must be in the memory too. Once opened they are the payload's, and `counter` is
    /// the packet's number if the head carries one.
    ///
    /// A packet that fails leaves no plaintext behind: its bytes from the head on have become zeros in part or whole, or
    /// are untouched if nothing was decrypted. Its `start`, `len` and `counter` mean nothing. One that fails does not affect
    /// the others.
    fn open(&self, batch: &mut Batch<'_>);

    /// The highest epoch of which a packet has been opened, for ciphers that change their key by the packet's number
    /// (OpenVPN's epoch format). A sender must not stay behind it. 0 for all others.
    fn epoch(&self) -> u16 {
        0
    }

    /// The cipher's name for status reports, for example `chacha20-poly1305`.
    fn name(&self) -> &'static str;

    /// The code that runs, and its instructions on this machine, for example `aws-lc (avx2)`.
    fn backend(&self) -> &'static str;
}
