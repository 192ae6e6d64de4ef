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
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(neon)]
pub(crate) mod neon;
mod routine;
pub(crate) mod scalar;
mod sha1;
mod sha2;
mod vectors;
mod work;

use core::ops::Range;

use crate::hmac::{Hmac, Mac, State};
use crate::implementations::MacImplementation;
use routine::{Routine, Set, Word};
use work::{Keys, Work};

/// HMACs in lanes. A rest of messages that would leave most lanes empty goes to the library.
pub(crate) struct MacLanes {
    lanes: Lanes,
    hmac: Hmac,
}

/// The routine for the HMAC's hash, by its words.
enum Lanes {
    Words32(Routine<u32>),
    Words64(Routine<u64>),
}

impl MacLanes {
    /// Lanes of the set; `None` on a machine that lacks its instructions, and for digests that it has none for.
    pub(crate) fn new(key: &Hmac, set: &Set) -> Option<Self> {
        if !(set.is_present)() {
            return None;
        }
        let lanes = match key.states().0 {
            State::Sha1(_) => Lanes::Words32(set.sha1),
            State::Sha256(..) => Lanes::Words32(set.sha256),
            State::Sha512(..) => Lanes::Words64(set.sha512?),
            State::Other(_) => return None,
        };
        let hmac = key.clone();
        Some(Self { lanes, hmac })
    }

    /// How many of `messages`, from the first, the lanes should take: all, except a rest that would leave most lanes
    /// empty.
    fn share(&self, messages: usize) -> usize {
        match &self.lanes {
            Lanes::Words32(routine) => routine.share(messages),
            Lanes::Words64(routine) => routine.share(messages),
        }
    }

    /// Signs each message; without an outer state, hashes it.
    ///
    /// # Panics
    /// If a message does not lie within `memory`, or there are more messages than `macs`.
    fn work(
        &self,
        states: (&State, Option<&State>),
        memory: &[u8],
        messages: &[Range<usize>],
        macs: &mut [Mac],
    ) {
        let len = self.hmac.digest().len();
        match self.lanes {
            Lanes::Words32(routine) => work(routine, states, len, memory, messages, macs),
            Lanes::Words64(routine) => work(routine, states, len, memory, messages, macs),
        }
    }
}

/// Signs or hashes in the lanes of `routine`.
fn work<W: Word>(
    routine: Routine<W>,
    (inner, outer): (&State, Option<&State>),
    mac_len: usize,
    memory: &[u8],
    messages: &[Range<usize>],
    macs: &mut [Mac],
) {
    if let Some(inner) = W::words(inner) {
        let outer = outer.and_then(W::words);
        let keys = Keys {
            inner,
            outer,
            mac_len,
        };
        Work::new(routine, keys, memory, messages).all(macs);
    }
}

impl MacImplementation for MacLanes {
    fn sign_each(&self, memory: &[u8], messages: &[Range<usize>], macs: &mut [Mac]) {
        let (many, few) = messages.split_at(self.share(messages.len()));
        let (many_macs, few_macs) = macs.split_at_mut(many.len());
        let (inner, outer) = self.hmac.states();
        self.work((inner, Some(outer)), memory, many, many_macs);
        self.hmac.sign_each(memory, few, few_macs);
    }

    fn hash_each(&self, memory: &[u8], messages: &[Range<usize>], hashes: &mut [Mac]) -> bool {
        let Some(start) = State::new(self.hmac.digest()) else {
            return false;
        };
        let (many, few) = messages.split_at(self.share(messages.len()));
        let (many_hashes, few_hashes) = hashes.split_at_mut(many.len());
        self.work((&start, None), memory, many, many_hashes);
        self.hmac.hash_each(memory, few, few_hashes)
    }

    fn describe(&self) -> &'static str {
        match &self.lanes {
            Lanes::Words32(routine) => routine.name,
            Lanes::Words64(routine) => routine.name,
        }
    }
}
