//! The interface between packet formats and the code that computes.
//!
//! A format ([`PacketAead`](crate::packet_aead::PacketAead), OpenVPN's CBC with an HMAC) finds where in a batch's memory the
//! parts of each packet are, and gives up to [`CHUNK`] packets at once to an *implementation*: an object with the key already
//! scheduled, which computes nothing but the algorithm. The [`table`] lists the implementations, and
//! [`select`](crate::select) chooses the one that a key gets.
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

mod aws_lc;
mod list;
mod pair;
mod table;
#[cfg(test)]
mod tests;

use core::ops::Range;

use subtle::{Choice, ConstantTimeEq};

use crate::TAG_LEN;
pub(crate) use crate::blocks::Chain;
pub(crate) use crate::hmac::{Mac, MacKey};
pub(crate) use aws_lc::{AwsLcAead, AwsLcAes, AwsLcMac};
pub(crate) use list::List;
pub(crate) use pair::Pair;
pub(crate) use table::{AEADS, CBCS, MACS};

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
    /// The packet's nonce.
    pub(crate) nonce: [u8; 12],
}

/// Whether a tag is the right one, in a time that does not depend on either. The answer is public, because the packet's
/// fate depends on it.
pub(crate) fn is_right(computed: &[u8; TAG_LEN], received: &[u8]) -> bool {
    let right = are_equal(computed, received);
    #[cfg(all(test, target_arch = "x86_64"))]
    let right = tests::secrets::declassified(right);
    right.into()
}

/// Whether two codes are equal, in a time that does not depend on what is in them.
///
/// Collects differences in words and looks at them once. Comparing byte by byte, each hidden from the optimiser, would
/// take half the time of a small packet.
pub(crate) fn are_equal(a: &[u8], b: &[u8]) -> Choice {
    if a.len() != b.len() {
        return Choice::from(0);
    }
    let (a_words, a_rest) = a.as_chunks::<4>();
    let (b_words, b_rest) = b.as_chunks::<4>();
    let words = a_words.iter().zip(b_words);
    let difference = words.fold(0, |difference, (a, b)| {
        difference | u32::from_ne_bytes(*a) ^ u32::from_ne_bytes(*b)
    });
    let rest = a_rest.iter().zip(b_rest);
    let difference = rest.fold(difference, |difference, (a, b)| {
        difference | u32::from(a ^ b)
    });
    difference.ct_eq(&0)
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
