//! The keys of a peer: one in use, and those that come and go around it.
//!
//! There are up to three. `current` seals and opens. `previous` still opens packets that were in transit when the keys
//! changed. `next` is what a responder has made and may not seal with until the initiator has shown, by using it, that
//! it has the key as well. The rules by which they replace one another are the kernel's.

use std::time::{Duration, Instant};

use plane::{KeyLimits, SessionKeys};

use crate::data::DataKeys;
use crate::disguise::Timings;
use crate::message::{REJECT_AFTER_MESSAGES, REKEY_AFTER_MESSAGES};

/// The keys of a new session, as a data plane takes them. An initiator knows by the response that its peer has them; a
/// responder does not, until the first packet has come.
///
/// Only the initiator renews them for their age, lest both ends do at once.
pub(crate) fn session_keys(
    local_index: u32,
    material: DataKeys,
    created: Instant,
    initiator: bool,
    timings: &Timings,
) -> SessionKeys<DataKeys> {
    let limits = |age, messages| KeyLimits {
        expires: created + timings.reject_after(),
        messages_max: REJECT_AFTER_MESSAGES,
        refresh_at: initiator.then(|| created + age),
        refresh_messages: messages,
    };
    // When only receiving, the initiator renews at the last moment at which an answer can still come in time.
    SessionKeys {
        session: local_index,
        remote: material.remote_index,
        material,
        receive: limits(timings.last_moment(), u64::MAX),
        send: limits(timings.rekey_after(), REKEY_AFTER_MESSAGES),
        confirm: !initiator,
    }
}

/// Facts about a pair of keys that are kept after the data plane has got them.
#[derive(Debug)]
pub(crate) struct Keypair {
    pub(crate) local_index: u32,
    pub(crate) created: Instant,
    /// Age from which the keys are not used.
    pub(crate) lasts: Duration,
    /// The data plane seals with this pair.
    pub(crate) sending: bool,
    /// The pair carries only messages of the exchange of post-quantum keys.
    #[cfg(feature = "postquantum")]
    pub(crate) only_exchange: bool,
}

impl Keypair {
    pub(crate) fn usable(&self, now: Instant) -> bool {
        self.sending && now < self.created + self.lasts
    }
}

/// Pairs that have been replaced; their indices are to be released.
pub(crate) type Replaced = [Option<Keypair>; 2];

#[derive(Debug, Default)]
pub(crate) struct Keypairs {
    previous: Option<Keypair>,
    current: Option<Keypair>,
    next: Option<Keypair>,
}

impl Keypairs {
    pub(crate) fn current(&self) -> Option<&Keypair> {
        self.current.as_ref()
    }

    /// Installs keys as initiator: the response has shown that the other side has the keys, so they are used at once.
    ///
    /// A `next` that is waiting becomes `previous`: the other side may already seal with it.
    pub(crate) fn install_initiated(&mut self, new: Keypair) -> Replaced {
        let old = self.current.replace(new);
        match self.next.take() {
            Some(next) => [self.previous.replace(next), old],
            None => [std::mem::replace(&mut self.previous, old), None],
        }
    }

    /// Installs keys as responder: the keys wait as `next`, in the place of all but the current ones.
    pub(crate) fn install_responded(&mut self, new: Keypair) -> Replaced {
        [self.previous.take(), self.next.replace(new)]
    }

    /// A packet under `next` was authentic: it becomes `current`. `None` if `local_index` is not that of `next`.
    pub(crate) fn confirm(&mut self, local_index: u32) -> Option<Replaced> {
        let next = self.next.take_if(|next| next.local_index == local_index)?;
        let old = self.current.replace(next);
        Some([std::mem::replace(&mut self.previous, old), None])
    }

    /// Stops sealing: the current keys only open from now on, and the waiting `next` is dropped.
    pub(crate) fn expire(&mut self) -> Option<Keypair> {
        if let Some(current) = &mut self.current {
            current.sending = false;
        }
        self.next.take()
    }

    /// Takes all pairs out.
    pub(crate) fn clear(&mut self) -> [Option<Keypair>; 3] {
        [self.previous.take(), self.current.take(), self.next.take()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(local_index: u32) -> Keypair {
        Keypair {
            local_index,
            created: Instant::now(),
            lasts: Duration::MAX,
            sending: true,
            #[cfg(feature = "postquantum")]
            only_exchange: false,
        }
    }

    fn indices(keys: &Keypairs) -> [Option<u32>; 3] {
        [&keys.previous, &keys.current, &keys.next]
            .map(|pair| pair.as_ref().map(|pair| pair.local_index))
    }

    fn gone(replaced: &[Option<Keypair>]) -> Vec<u32> {
        replaced
            .iter()
            .flatten()
            .map(|pair| pair.local_index)
            .collect()
    }

    #[test]
    fn initiated_keys_are_current_at_once() {
        let mut keys = Keypairs::default();
        assert_eq!(gone(&keys.install_initiated(pair(1))), []);
        assert_eq!(gone(&keys.install_initiated(pair(2))), []);
        assert_eq!(gone(&keys.install_initiated(pair(3))), [1]);
        assert_eq!(indices(&keys), [Some(2), Some(3), None]);
    }

    #[test]
    fn responded_keys_wait_to_be_confirmed() {
        let mut keys = Keypairs::default();
        keys.install_initiated(pair(1));
        keys.install_initiated(pair(2));
        assert_eq!(gone(&keys.install_responded(pair(3))), [1]);
        assert_eq!(gone(&keys.install_responded(pair(4))), [3]);
        assert_eq!(indices(&keys), [None, Some(2), Some(4)]);
        assert!(keys.confirm(2).is_none());
        assert!(keys.confirm(3).is_none());
        assert_eq!(
            keys.confirm(4).map(|replaced| gone(&replaced)),
            Some(vec![])
        );
        assert_eq!(indices(&keys), [Some(2), Some(4), None]);
        assert!(keys.confirm(4).is_none());
    }

    #[test]
    fn a_waiting_pair_opens_on_when_an_initiated_one_overtakes_it() {
        let mut keys = Keypairs::default();
        keys.install_initiated(pair(1));
        keys.install_responded(pair(2));
        assert_eq!(gone(&keys.install_initiated(pair(3))), [1]);
        assert_eq!(indices(&keys), [Some(2), Some(3), None]);
    }
}
