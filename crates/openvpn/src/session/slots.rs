//! Which keys are installed, and which of them seal.

use std::time::Instant;

use super::output::Output;

/// Maximum number of sets of keys installed at a time: the current, the previous, and the ones before while their
/// packets may still be in flight.
const MAX_KEYS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    key_id: u8,
    /// When these keys become preferred for sealing; `None` while the peer may not have them.
    seals_from: Option<Instant>,
    /// When these keys are removed.
    dies: Option<Instant>,
}

/// The installed keys, the newest first.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    sealing: Option<u8>,
}

impl Slots {
    /// Adds newly installed keys, for which there is [room](Self::make_room). Older keys die at `older_die` or sooner.
    pub(super) fn install(
        &mut self,
        key_id: u8,
        seals_from: Option<Instant>,
        older_die: Instant,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        // Numbers come again after seven renewals; the keys that had this one are replaced.
        self.slots.retain(|it| it.key_id != key_id);
        for slot in &mut self.slots {
            slot.dies = Some(slot.dies.map_or(older_die, |it| it.min(older_die)));
        }
        let slot = Slot {
            key_id,
            seals_from,
            dies: None,
        };
        self.slots.insert(0, slot);
        self.choose(now, out);
    }

    /// Removes the oldest keys until others can be installed.
    pub(super) fn make_room(&mut self, now: Instant, out: &mut Vec<Output>) {
        let surplus = self.slots.split_off(self.slots.len().min(MAX_KEYS - 1));
        // Switch sealing to other keys before these are removed.
        self.choose(now, out);
        for oldest in surplus {
            out.push(Output::RemoveKeys {
                key_id: oldest.key_id,
            });
        }
    }

    /// Lets the newest keys seal from `seals_from` on: the peer has them for certain.
    pub(super) fn confirm(&mut self, seals_from: Instant, now: Instant, out: &mut Vec<Output>) {
        if let Some(newest) = self.slots.first_mut() {
            newest.seals_from.get_or_insert(seals_from);
        }
        self.choose(now, out);
    }

    /// Lets the newest keys seal at once: others will follow, and the oldest must make room for them.
    pub(super) fn hurry(&mut self, now: Instant, out: &mut Vec<Output>) {
        if let Some(newest) = self.slots.first_mut() {
            newest.seals_from = Some(newest.seals_from.map_or(now, |it| it.min(now)));
        }
        self.choose(now, out);
    }

    /// Removes keys that the peer never got.
    pub(super) fn withdraw(&mut self, key_id: u8, out: &mut Vec<Output>) {
        if self.newest() == Some(key_id) && self.sealing != Some(key_id) {
            self.slots.remove(0);
            out.push(Output::RemoveKeys { key_id });
        }
    }

    /// Ends the use of all keys by this time.
    pub(super) fn die_by(&mut self, at: Instant) {
        for slot in &mut self.slots {
            slot.dies = Some(slot.dies.map_or(at, |it| it.min(at)));
        }
    }

    /// Removes expired keys, and seals with newer keys whose time has come.
    pub(super) fn expire(&mut self, now: Instant, out: &mut Vec<Output>) {
        let dead: Vec<u8> = self
            .slots
            .iter()
            .filter(|it| it.dies.is_some_and(|at| now >= at))
            .map(|it| it.key_id)
            .collect();
        self.slots.retain(|it| !dead.contains(&it.key_id));
        self.choose(now, out);
        for key_id in dead {
            out.push(Output::RemoveKeys { key_id });
        }
    }

    /// Chooses the keys that seal: the newest whose time has come, or else the newest of all.
    fn choose(&mut self, now: Instant, out: &mut Vec<Output>) {
        let chosen = self
            .slots
            .iter()
            .find(|it| it.seals_from.is_some_and(|at| now >= at))
            .or_else(|| self.slots.iter().find(|it| it.seals_from.is_some()))
            .or_else(|| self.slots.first())
            .map(|it| it.key_id);
        if let Some(key_id) = chosen
            && self.sealing != chosen
        {
            out.push(Output::UseForSending { key_id });
        }
        self.sealing = chosen;
    }

    /// Removes all keys.
    pub(super) fn clear(&mut self, out: &mut Vec<Output>) {
        for slot in self.slots.drain(..) {
            out.push(Output::RemoveKeys {
                key_id: slot.key_id,
            });
        }
        self.sealing = None;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The number of the newest keys.
    pub(super) fn newest(&self) -> Option<u8> {
        self.slots.first().map(|it| it.key_id)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let sealing = |it: &&Slot| Some(it.key_id) == self.sealing;
        // Only keys newer than those that seal can take over from them.
        let newer = self.slots.iter().take_while(|it| !sealing(it));
        let takes_over = newer.filter_map(|it| it.seals_from).min();
        let dies = self.slots.iter().filter_map(|it| it.dies).min();
        takes_over.into_iter().chain(dies).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SEC: Duration = Duration::from_secs(1);

    fn said(out: &mut Vec<Output>) -> Vec<String> {
        out.drain(..).map(|it| format!("{it:?}")).collect()
    }

    #[test]
    fn the_first_keys_seal_at_once_and_later_ones_wait() {
        let (start, mut out, mut slots) = (Instant::now(), Vec::new(), Slots::default());
        slots.install(0, Some(start + 60 * SEC), start, start, &mut out);
        assert_eq!(said(&mut out), ["UseForSending { key_id: 0 }"]);
        assert_eq!(slots.next_deadline(), None);

        let later = start + 3600 * SEC;
        slots.install(
            1,
            Some(later + 60 * SEC),
            later + 3600 * SEC,
            later,
            &mut out,
        );
        assert!(said(&mut out).is_empty());
        assert_eq!(slots.next_deadline(), Some(later + 60 * SEC));
        slots.expire(later + 59 * SEC, &mut out);
        assert!(said(&mut out).is_empty());
        slots.expire(later + 60 * SEC, &mut out);
        assert_eq!(said(&mut out), ["UseForSending { key_id: 1 }"]);
        assert_eq!(slots.next_deadline(), Some(later + 3600 * SEC));
        slots.expire(later + 3600 * SEC, &mut out);
        assert_eq!(said(&mut out), ["RemoveKeys { key_id: 0 }"]);
    }

    #[test]
    fn keys_that_die_hand_over_first() {
        let (start, mut out, mut slots) = (Instant::now(), Vec::new(), Slots::default());
        slots.install(0, Some(start), start, start, &mut out);
        slots.install(1, Some(start + 60 * SEC), start + 5 * SEC, start, &mut out);
        said(&mut out);
        slots.expire(start + 5 * SEC, &mut out);
        assert_eq!(
            said(&mut out),
            ["UseForSending { key_id: 1 }", "RemoveKeys { key_id: 0 }"]
        );
    }

    #[test]
    fn keys_that_the_peer_may_not_have_do_not_seal() {
        let (start, mut out, mut slots) = (Instant::now(), Vec::new(), Slots::default());
        slots.install(0, Some(start), start, start, &mut out);
        slots.install(1, None, start + 3600 * SEC, start, &mut out);
        slots.expire(start + 100 * SEC, &mut out);
        assert_eq!(said(&mut out), ["UseForSending { key_id: 0 }"]);
        slots.withdraw(0, &mut out);
        assert!(out.is_empty());
        slots.confirm(start + 60 * SEC, start + 100 * SEC, &mut out);
        assert_eq!(said(&mut out), ["UseForSending { key_id: 1 }"]);

        slots.install(2, None, start + 3600 * SEC, start + 100 * SEC, &mut out);
        slots.withdraw(2, &mut out);
        assert_eq!(said(&mut out), ["RemoveKeys { key_id: 2 }"]);
        assert_eq!(slots.newest(), Some(1));
    }

    #[test]
    fn three_at_most() {
        let (start, mut out, mut slots) = (Instant::now(), Vec::new(), Slots::default());
        for key_id in 0..4 {
            slots.make_room(start, &mut out);
            slots.install(key_id, Some(start), start + 3600 * SEC, start, &mut out);
        }
        let said = said(&mut out);
        assert!(said.ends_with(&[
            "RemoveKeys { key_id: 0 }".to_owned(),
            "UseForSending { key_id: 3 }".to_owned()
        ]));
        assert_eq!(slots.slots.len(), MAX_KEYS);
        slots.clear(&mut out);
        assert_eq!(out.len(), 3);
    }
}
