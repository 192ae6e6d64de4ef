//! Remembers wrong passwords: the next login from the same place waits.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::time::{Duration, Instant};

/// The wait after the first wrong password. It doubles with each.
const FIRST: Duration = Duration::from_secs(1);

/// The longest wait of one user's logins from one address.
const LONGEST: Duration = Duration::from_secs(16);

/// The longest wait of all other users' logins from that address: they may be behind the same NAT.
const LONGEST_OF_OTHERS: Duration = Duration::from_secs(2);

/// Number of logins of one user from one address that are checked before the first verdict, as a check elsewhere takes
/// a while.
const AT_ONCE: u32 = 4;

/// Wrong passwords are forgotten after this time without another.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// Maximum number of entries. Beyond it, the entry whose wait ends first is removed.
const ENTRIES_MAX: usize = 1024;

#[derive(Clone, Copy)]
struct Entry {
    wrong: u32,
    /// Logins that were checked since the last correct password.
    begun: u32,
    until: Instant,
}

/// Wrong passwords by address, and by address and user. `S` is the type that counts as one address.
pub struct Guesses<S> {
    /// Entries by address and the hash of a user's name; `None` counts for all users.
    by_place: BTreeMap<(S, Option<u64>), Entry>,
}

impl<S> Default for Guesses<S> {
    fn default() -> Self {
        Self {
            by_place: BTreeMap::new(),
        }
    }
}

impl<S: Copy + Ord> Guesses<S> {
    /// Returns the time until which a login must wait.
    #[must_use]
    pub fn shut_until(&self, source: S, user: &[u8], now: Instant) -> Option<Instant> {
        let of = |user| Some(self.by_place.get(&(source, user))?.until);
        of(None).max(of(Some(hash(user)))).filter(|at| *at > now)
    }

    /// Records that a password is being checked elsewhere, which takes a while. After a recent wrong password, or after
    /// several checks for the same user, the next login from there waits for the verdict. So many logins at once cannot
    /// bypass the waits.
    pub fn judging(&mut self, source: S, user: &[u8], now: Instant) {
        let entry = self.by_place.get_mut(&(source, None));
        if let Some(entry) = entry.filter(|it| it.until + FORGOTTEN > now) {
            entry.until = entry.until.max(now + FIRST);
        }
        let entry = self.entry((source, Some(hash(user))), now);
        entry.begun = entry.begun.saturating_add(1);
        if entry.begun >= AT_ONCE {
            entry.until = entry.until.max(now + FIRST);
        }
    }

    /// Records a wrong password.
    pub fn wrong(&mut self, source: S, user: &[u8], now: Instant) {
        for (user, longest) in [(None, LONGEST_OF_OTHERS), (Some(hash(user)), LONGEST)] {
            let entry = self.entry((source, user), now);
            let wait = FIRST * 2_u32.pow(entry.wrong.min(10));
            entry.wrong += 1;
            entry.until = now + wait.min(longest);
        }
    }

    /// Records a correct password.
    pub fn right(&mut self, source: S, user: &[u8]) {
        self.by_place.remove(&(source, Some(hash(user))));
    }

    /// The entry of a place, made new if it is missing or forgotten.
    fn entry(&mut self, place: (S, Option<u64>), now: Instant) -> &mut Entry {
        if !self.by_place.contains_key(&place) {
            self.make_room(now);
        }
        let fresh = Entry {
            wrong: 0,
            begun: 0,
            until: now,
        };
        let entry = self.by_place.entry(place).or_insert(fresh);
        if entry.until + FORGOTTEN <= now {
            *entry = fresh;
        }
        entry
    }

    fn make_room(&mut self, now: Instant) {
        if self.by_place.len() < ENTRIES_MAX {
            return;
        }
        self.by_place.retain(|_, it| it.until + FORGOTTEN > now);
        while self.by_place.len() >= ENTRIES_MAX {
            let first = self.by_place.iter().min_by_key(|(_, it)| it.until);
            let Some(place) = first.map(|(place, _)| *place) else {
                return;
            };
            self.by_place.remove(&place);
        }
    }
}

/// Users whose names have the same hash wait for each other.
fn hash(user: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    user.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

    /// The number of guesses that are checked in this time, one after the other.
    fn judged_in(time: Duration, user: impl Fn(usize) -> Vec<u8>) -> usize {
        let (mut guesses, start) = (Guesses::default(), Instant::now());
        let (mut now, mut count) = (start, 0);
        while now < start + time {
            guesses.wrong(SOURCE, &user(count), now);
            count += 1;
            if let Some(until) = guesses.shut_until(SOURCE, &user(count), now) {
                now = until;
            }
        }
        count
    }

    #[test]
    fn guesses_from_one_address_become_few() {
        let hour = Duration::from_secs(3600);
        assert!(judged_in(hour, |_| b"alice".to_vec()) < 230);
        let spread = judged_in(hour, |at| format!("user{at}").into_bytes());
        assert!(spread < 1_805, "{spread}");
    }

    /// A burst of logins does not count as guessing while verdicts are late: clients with the correct password wait
    /// only for the verdict.
    #[test]
    fn few_logins_of_a_user_are_judged_before_the_first_verdict() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        let judged = |guesses: &mut Guesses<_>, user: &[u8], now| {
            let judged = (0..50).filter(|_| {
                let open = guesses.shut_until(SOURCE, user, now).is_none();
                if open {
                    guesses.judging(SOURCE, user, now);
                }
                open
            });
            judged.count()
        };
        assert_eq!(judged(&mut guesses, b"alice", now), AT_ONCE as usize);
        assert_eq!(judged(&mut guesses, b"bob", now), AT_ONCE as usize);
        // No verdict comes.
        assert_eq!(judged(&mut guesses, b"alice", now + FIRST), 1);
        guesses.right(SOURCE, b"alice");
        assert_eq!(judged(&mut guesses, b"alice", now), AT_ONCE as usize);
    }

    #[test]
    fn others_wait_for_a_moment_at_most_and_another_address_not_at_all() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        for _ in 0..20 {
            guesses.wrong(SOURCE, b"alice", now);
        }
        let wait = |source: Ipv4Addr, user| {
            let until = guesses.shut_until(source, user, now);
            until.map_or(Duration::ZERO, |until| until - now)
        };
        assert_eq!(wait(SOURCE, b"alice"), LONGEST);
        assert_eq!(wait(SOURCE, b"bob"), LONGEST_OF_OTHERS);
        assert_eq!(wait([192, 0, 2, 8].into(), b"alice"), Duration::ZERO);
    }

    #[test]
    fn wrong_passwords_are_forgotten_and_the_right_one_ends_a_wait() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        for _ in 0..9 {
            guesses.wrong(SOURCE, b"alice", now);
        }
        let later = now + LONGEST + FORGOTTEN;
        guesses.wrong(SOURCE, b"alice", later);
        let until = guesses.shut_until(SOURCE, b"alice", later);
        assert_eq!(until, Some(later + FIRST));
        guesses.right(SOURCE, b"alice");
        assert!(guesses.by_place.keys().all(|(_, user)| user.is_none()));
    }

    #[test]
    fn memory_is_bounded_whatever_is_guessed() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        for at in 0..5_000_u32 {
            let source = Ipv4Addr::from(0x0a00_0000 + at);
            guesses.judging(source, &at.to_be_bytes(), now);
            guesses.wrong(source, &at.to_be_bytes(), now);
            assert!(guesses.by_place.len() <= ENTRIES_MAX);
        }
    }
}
