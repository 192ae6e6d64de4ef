//! HMACs of many messages at once: a message in each lane of the vector registers.
//!
//! SHA's rounds wait for each other, so one message cannot fill wide registers. Sixteen messages can; portable code has
//! a single lane. A lane goes through its message in four steps, and then takes the next one, so that messages of all
//! lengths are processed together:
//!
//! ```text
//! body    the whole blocks, where they lie in memory
//! tail    what remains, and the padding: one block or two, from a buffer
//! outer   the hash of that, behind the outer key: one block
//! take    the code; then the next message, or none: the lane is idle
//! ```

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod code;
#[cfg(neon)]
mod neon;
mod routine;
mod scalar;
mod sha1;
mod sha2;
mod work;

use core::ops::Range;

use crate::hmac::{Hmac, Mac, MacKey, State};
use crate::implementations::MacImplementation;
use code::{Lanes, Width};
use routine::{MAX_LANES, Routine, States};

/// HMACs in lanes. A rest of messages that would leave most lanes empty goes to the library.
pub(crate) struct MacLanes {
    lanes: Lanes,
    hmac: Hmac,
}

impl MacLanes {
    /// One lane, on any machine; `None` for digests other than SHA-1 and SHA-2.
    pub(crate) fn portable(key: &MacKey) -> Option<Self> {
        Self::of_width(key, Width::Scalar)
    }

    /// Eight lanes, or four of SHA-512's; `None` on a machine that lacks the instructions.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn avx2(key: &MacKey) -> Option<Self> {
        Self::of_width(key, Width::Avx2)
    }

    /// Sixteen lanes, or eight of SHA-512's; `None` on a machine that lacks the instructions.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn avx512(key: &MacKey) -> Option<Self> {
        Self::of_width(key, Width::Avx512)
    }

    /// Four lanes, or two of SHA-512's; `None` on a machine that lacks the instructions.
    #[cfg(neon)]
    pub(crate) fn neon(key: &MacKey) -> Option<Self> {
        Self::of_width(key, Width::Neon)
    }

    /// Two lanes, by the instructions for SHA-1 and SHA-256; `None` on a machine that lacks them, and for SHA-512.
    #[cfg(all(neon, target_arch = "aarch64"))]
    pub(crate) fn sha(key: &MacKey) -> Option<Self> {
        Self::of_width(key, Width::Sha)
    }

    fn of_width(key: &MacKey, width: Width) -> Option<Self> {
        Some(Self {
            lanes: Lanes::of_width(key.hmac().states().0, width)?,
            hmac: key.hmac().clone(),
        })
    }
}

impl MacImplementation for MacLanes {
    fn sign_each(&self, memory: &[u8], messages: &[Range<usize>], macs: &mut [Mac]) {
        let (many, few) = messages.split_at(self.lanes.share(messages.len()));
        let (many_macs, few_macs) = macs.split_at_mut(many.len());
        let mac_len = self.hmac.digest().len();
        let (inner, outer) = self.hmac.states();
        self.lanes
            .sign((inner, Some(outer)), mac_len, memory, many, many_macs);
        for (message, mac) in few.iter().zip(few_macs) {
            *mac = self.hmac.sign(&[&memory[message.clone()]]);
        }
    }

    fn hash_each(&self, memory: &[u8], messages: &[Range<usize>], hashes: &mut [Mac]) -> bool {
        let digest = self.hmac.digest();
        let Some(start) = State::new(digest) else {
            return false;
        };
        let (many, few) = messages.split_at(self.lanes.share(messages.len()));
        let (many_hashes, few_hashes) = hashes.split_at_mut(many.len());
        self.lanes
            .sign((&start, None), digest.len(), memory, many, many_hashes);
        for (message, hash) in few.iter().zip(few_hashes) {
            *hash = digest.hash(&memory[message.clone()]);
        }
        true
    }

    fn describe(&self) -> &'static str {
        self.lanes.name()
    }
}
