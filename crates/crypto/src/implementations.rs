//! The interface between packet formats and the code that computes ([`Backend`]: its origin).
//!
//! A format ([`PacketAead`](crate::packet_aead::PacketAead), OpenVPN's CBC with an HMAC) finds where in a batch's
//! memory the parts of each packet are, and gives up to [`CHUNK`] packets at once to an *implementation*: an object
//! with the key already scheduled, which computes nothing but the algorithm. The [`table`] lists the implementations,
//! and [`select`](crate::select) chooses the one that a key gets.
//!
//! To add an implementation: implement the trait of its kind, and add a line to the table of that kind. Its `make`
//! returns `None` where the machine lacks something that the implementation needs. Tests, measurements and reports
//! enumerate the tables.
//!
//! Every implementation keeps these rules:
//! - the caller has checked bounds: every place lies within the memory. Packets do not overlap; if they do, the output
//!   is garbage, but never outside of the memory;
//! - lengths vary, and may be 0. An implementation that works on packets of one length takes the others one by one;
//! - nothing is allocated;
//! - no branch and no address depends on a key, on a text or on a tag;
//! - keys are erased on drop.

use core::mem::MaybeUninit;
use core::ops::Range;

use crate::TAG_LEN;
use crate::random::are_equal;

mod aws_lc;
mod pair;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use crate::hmac::{Hmac, Mac};
pub(crate) use aws_lc::{AwsLcAead, AwsLcAes};
pub(crate) use pair::Pair;
pub(crate) use table::{AEADS, CBCS, Candidate, MACS, MakeAead, MakeMac};

/// Maximum packets that an implementation gets at once.
pub(crate) const CHUNK: usize = 64;

/// The places of one packet's parts, and its nonce.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Associated data, in front of the text. May be empty.
    pub(crate) aad: Range<usize>,
    /// The text to encrypt.
    pub(crate) text: Range<usize>,
    /// The first of the tag's 16 bytes: between associated data and text, or behind the text.
    pub(crate) tag: usize,
    /// Nonce of the packet.
    pub(crate) nonce: [u8; 12],
}

/// An initialisation vector and the whole blocks behind it, in a memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chain {
    /// First byte of the first block, behind the initialisation vector.
    pub(crate) start: usize,
    /// Bytes of all blocks.
    pub(crate) len: usize,
}

impl Chain {
    /// The chain over `text`.
    ///
    /// # Panics
    /// If there is no room for `iv_len` bytes in front of `text`.
    pub(crate) fn new(text: &Range<usize>, iv_len: usize) -> Self {
        assert!(text.start >= iv_len);
        Self {
            start: text.start,
            len: text.len(),
        }
    }

    /// Whether the chain lies within a memory of `memory_len` bytes, with `iv_len` bytes in front of it.
    #[cfg(any(neon, target_arch = "x86_64"))]
    pub(crate) fn is_within(&self, memory_len: usize, iv_len: usize) -> bool {
        self.start >= iv_len && self.start <= memory_len && self.len <= memory_len - self.start
    }

    /// The range of the blocks, behind the initialisation vector.
    #[cfg(any(test, feature = "accelerators"))]
    pub(crate) fn text(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// The chain's initialisation vector and text.
    pub(crate) fn parts<'a, const N: usize>(
        &self,
        memory: &'a mut [u8],
    ) -> ([u8; N], &'a mut [[u8; N]]) {
        let (front, rest) = memory.split_at_mut(self.start);
        let mut iv = [0; N];
        iv.copy_from_slice(&front[self.start - N..]);
        (iv, rest[..self.len].as_chunks_mut().0)
    }
}

/// Whether a tag is the right one, in a time that does not depend on either. The answer is public, because the packet's
/// fate depends on it.
pub(crate) fn is_right(computed: &[u8; TAG_LEN], received: &[u8]) -> bool {
    let right = are_equal(computed, received);
    #[cfg(all(test, target_arch = "x86_64"))]
    let right = tests::secrets::declassified(right);
    right.into()
}

/// An AEAD with its key.
pub(crate) trait AeadImplementation: Send + Sync {
    /// Encrypts the texts in place and writes the tags.
    fn seal(&self, memory: &mut [u8], places: &[Place]);

    /// Decrypts the texts in place and reports which were authentic; the text of any other packet becomes zeros.
    /// Compares tags in constant time. `authentic` is as long as `places`.
    fn open(&self, memory: &mut [u8], places: &[Place], authentic: &mut [bool]);

    /// The code and its instructions, for status reports.
    fn describe(&self) -> &'static str;
}

/// AES in CBC mode with its key. Each chain's initialisation vector stands in front of its text.
pub(crate) trait CbcImplementation: Send + Sync {
    /// Encrypts the chains in place.
    fn encrypt(&self, memory: &mut [u8], chains: &[Chain]);

    /// Decrypts the chains in place.
    fn decrypt(&self, memory: &mut [u8], chains: &[Chain]);

    /// The code and its instructions, for status reports.
    fn describe(&self) -> &'static str;
}

/// An HMAC with its key.
pub(crate) trait MacImplementation: Send + Sync {
    /// Signs each of `messages`, which are places in `memory`, into `macs` in the same order. `macs` is as long as
    /// `messages`.
    fn sign_each(&self, memory: &[u8], messages: &[Range<usize>], macs: &mut [Mac]);

    /// Hashes each of `messages` by the same code, without a key. Returns `false`, and writes nothing, if the code does
    /// only HMACs. No tunnel needs it; benchmarks do.
    fn hash_each(&self, memory: &[u8], messages: &[Range<usize>], hashes: &mut [Mac]) -> bool {
        let _ = (memory, messages, hashes);
        false
    }

    /// The code and its instructions, for status reports.
    fn describe(&self) -> &'static str;
}

/// A kind of code for a cipher.
///
/// [`select`](crate::select) decides which candidate of a kind runs, and which kind if the caller requests none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// Plain instructions, in constant time: the code for chips without vector registers, and the reference for the
    /// others.
    Portable,
    /// The CPU's vector registers or cipher instructions.
    Simd,
    /// An accelerator beside the CPU, through the kernel.
    Accelerator,
}

/// The name is not that of a back end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no crypto back end: choose auto, portable, simd or accelerator")]
pub struct UnknownBackend(pub String);

impl Backend {
    /// All back ends.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Simd, Self::Accelerator];

    /// Name of the back end in reports and settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Simd => "simd",
            Self::Accelerator => "accelerator",
        }
    }
}

impl core::str::FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        Self::ALL
            .into_iter()
            .find(|backend| backend.name() == name)
            .ok_or_else(|| UnknownBackend(name.to_owned()))
    }
}

impl core::fmt::Display for Backend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// Up to [`CHUNK`] items. Making one costs nothing; a batch of one packet would notice any cost.
pub(crate) struct List<T> {
    items: [MaybeUninit<T>; CHUNK],
    /// Invariant: the first so many items have been written.
    len: usize,
}

impl<T> List<T> {
    pub(crate) fn new() -> Self {
        // Items are forgotten, not dropped.
        const { assert!(!core::mem::needs_drop::<T>()) };
        Self {
            items: [const { MaybeUninit::uninit() }; CHUNK],
            len: 0,
        }
    }

    /// # Panics
    /// If it is full.
    pub(crate) fn push(&mut self, item: T) {
        self.items[self.len].write(item);
        self.len += 1;
    }
}

impl<T> core::ops::Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` items have been written, and are as an array of `T`.
        unsafe { core::slice::from_raw_parts(self.items.as_ptr().cast(), self.len) }
    }
}
