//! The keys of a peer: one in use, and those that come and go around it.
//!
//! There are up to three. `current` seals and opens. `previous` still opens what was on its way when the keys changed.
//! `next` is what a responder has made and may not seal with until the initiator has shown, by using it, that it has the
//! key as well. The rules by which they replace one another are the kernel's.

use std::time::Instant;

use crypto::Key;

use crate::message::{KEEPALIVE_TIMEOUT, REJECT_AFTER_TIME, REKEY_AFTER_TIME, REKEY_TIMEOUT};

/// When a key was made and when its time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// When the handshake made it.
    pub created: Instant,
    /// From here on the use of the key asks for a new handshake (see [`Device::refresh`](crate::Device::refresh)).
    /// `None` for the responder's keys: the initiator renews, lest both do at once.
    pub refresh_after: Option<Instant>,
    /// From here on the key neither seals nor opens.
    pub reject_after: Instant,
}

impl Lifetime {
    pub(crate) fn sending(created: Instant, initiator: bool) -> Self {
        let refresh_after = initiator.then(|| created + REKEY_AFTER_TIME);
        Self {
            created,
            refresh_after,
            reject_after: created + REJECT_AFTER_TIME,
        }
    }

    /// When only receiving, the initiator renews at the last moment at which an answer can still come in time.
    pub(crate) fn receiving(created: Instant, initiator: bool) -> Self {
        let refresh_after =
            initiator.then(|| created + REJECT_AFTER_TIME - KEEPALIVE_TIMEOUT - REKEY_TIMEOUT);
        Self {
            created,
            refresh_after,
            reject_after: created + REJECT_AFTER_TIME,
        }
    }
}

/// What is remembered of a pair of keys after the data plane has got them.
#[derive(Debug)]
pub(crate) struct Keypair {
    pub(crate) local_index: u32,
    pub(crate) remote_index: u32,
    pub(crate) created: Instant,
    pub(crate) initiator: bool,
    /// The sending key of a responder, held back until it is confirmed.
    pub(crate) withheld: Option<Key>,
    /// The data plane seals with it.
    pub(crate) sending: bool,
}

impl Keypair {
    pub(crate) fn usable(&self, now: Instant) -> bool {
        self.sending && now < self.created + REJECT_AFTER_TIME
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

    /// As initiator: the response has shown that the other side has the keys, so they are used at once.
    ///
    /// A `next` that is waiting becomes `previous`: the other side may already seal with it.
    pub(crate) fn install_initiated(&mut self, new: Keypair) -> Replaced {
        let old = self.current.replace(new);
        match self.next.take() {
            Some(next) => [self.previous.replace(next), old],
            None => [std::mem::replace(&mut self.previous, old), None],
        }
    }

    /// As responder: the keys wait as `next`, in the place of all but the current ones.
    pub(crate) fn install_responded(&mut self, new: Keypair) -> Replaced {
        [self.previous.take(), self.next.replace(new)]
    }

    /// A packet under `next` was authentic: it becomes `current`. `None` if `local_index` is not that of `next`.
    pub(crate) fn confirm(&mut self, local_index: u32) -> Option<Replaced> {
        let next = self.next.take_if(|next| next.local_index == local_index)?;
        let old = self.current.replace(next);
        Some([std::mem::replace(&mut self.previous, old), None])
    }

    pub(crate) fn current_mut(&mut self) -> Option<&mut Keypair> {
        self.current.as_mut()
    }

    /// Stops sealing: the current keys only open from now on, and what waits is forgotten.
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
        let (created, withheld) = (Instant::now(), None);
        Keypair {
            local_index,
            remote_index: 0,
            created,
            initiator: true,
            withheld,
            sending: true,
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
