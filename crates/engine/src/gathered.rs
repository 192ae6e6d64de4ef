//! The addresses of a peer that connects over several lines, when this end sees only their addresses. Example: a
//! server's view of a client with two uplinks ([`Moving::Gather`](plane::Moving::Gather)).
//!
//! A first packet from a new address has two possible causes: the peer moved, or it has a second line. The peer still
//! using the old address tells the two apart. So the new address is kept beside the old one. For a while, packets on
//! several lines go to both addresses. Packets on one line follow only once the old address is silent while the new one
//! is heard.

use crate::clock::Moment;
use arc_swap::ArcSwapOption;
use netio::udp::Endpoint;
use std::sync::Arc;

/// Maximum number of addresses of a peer on one line. A new address replaces the one that was silent longest.
const ADDRESSES_MAX: usize = 4;

/// Milliseconds that an address counts as a line after it was last heard. They count back from the peer's last packet
/// on any address, so an idle peer keeps its lines.
pub(crate) const ALIVE: u64 = 5_000;

/// The same limit in milliseconds, where each packet goes to one address only. While data flows, a caller asks by each
/// line once a second, and the keepalive after the answer goes over all its lines.
pub(crate) const ALIVE_FOR_SHARES: u64 = 3_000;

/// Milliseconds of silence at the first address, while another is heard, after which the other becomes first. Longer
/// than the delays of lines differ, and short enough for the user of two lines.
const SILENT: u64 = 500;

/// An address beside the first.
#[derive(Debug)]
struct Other {
    endpoint: Endpoint,
    /// When data or a copy last came from this address; 0 if never.
    heard: Moment,
}

/// The addresses of a peer on one line: the first, and others where it was heard too.
///
/// The worker that drains adds addresses of data packets, and control adds those of handshakes. If both write at once,
/// one update may be lost; the next packet or handshake repeats it.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    first: ArcSwapOption<Endpoint>,
    heard: Moment,
    others: ArcSwapOption<Vec<Arc<Other>>>,
}

impl Gathered {
    /// First address of the look-up.
    pub(crate) fn first(&self) -> Option<Endpoint> {
        self.first.load().as_deref().copied()
    }

    /// Sets the first address, and keeps the others.
    pub(crate) fn set_first(&self, endpoint: Endpoint) {
        self.first.store(Some(Arc::new(endpoint)));
    }

    /// Records an address from a handshake or from control's settings. The present first address may still be a line,
    /// and stays first while the peer is heard there. A peer also probes its standby lines, which may be metered. So
    /// the new address counts as a line only once data or a copy comes from it.
    pub(crate) fn move_first(&self, to: Endpoint, millis: u64) {
        match self.first() {
            Some(first) if !is_at(&first, &to) => {
                let heard = self.heard.millis();
                if heard == 0 || heard + ALIVE <= millis {
                    self.make_first(to, millis);
                } else if self.other(&to).is_none() {
                    self.add(to, 0);
                }
            }
            _ => self.set_first(to),
        }
    }

    /// Finds an address beside the first.
    fn other(&self, at: &Endpoint) -> Option<Arc<Other>> {
        let others = self.others.load();
        let mut others = others.iter().flat_map(|others| others.iter());
        others.find(|other| is_at(&other.endpoint, at)).cloned()
    }

    /// Records that the peer was heard, at any address.
    pub(crate) fn note_heard(&self, millis: u64) {
        self.heard.set(millis);
    }

    /// When the peer was last heard; with several addresses, when it was last heard at the first.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.millis()
    }

    /// Forgets all addresses and times.
    pub(crate) fn clear(&self) {
        self.first.store(None);
        self.others.store(None);
        self.heard.clear();
    }

    /// Forgets our own address, to which the peer sends.
    pub(crate) fn clear_source(&self) {
        if let Some(endpoint) = self.first() {
            self.set_first(Endpoint::new(endpoint.addr));
        }
        // The other addresses come back with their sources when the peer is heard there.
        self.others.store(None);
    }

    /// Calls `each` for each address that counts as a line, with the time when it was heard. These are the first
    /// address, and others heard within `within` milliseconds of the last packet. The first stays first whatever copies
    /// say, since copies may be recordings.
    pub(crate) fn alive(&self, within: u64, mut each: impl FnMut(Endpoint, u64)) {
        let Some(first) = self.first() else { return };
        let others = self.others.load();
        let Some(others) = others.as_deref() else {
            return each(first, self.heard.millis());
        };
        let heard = others.iter().map(|other| other.heard.millis());
        let latest = heard.fold(self.heard.millis(), u64::max);
        each(first, self.heard.millis());
        for other in others {
            let heard = other.heard.millis();
            if heard > 0 && heard + within >= latest {
                each(other.endpoint, heard);
            }
        }
    }

    /// Records an authentic packet from this address; `new` if it was not a copy. Returns whether the peer has moved.
    ///
    /// An attacker may record a packet and send copies from anywhere, so a copy adds no address.
    pub(crate) fn heard_at(&self, from: Endpoint, new: bool, millis: u64) -> bool {
        let first = self.first.load();
        match first.as_deref() {
            Some(first) if is_at(first, &from) => {
                self.heard.set(millis);
                if *first != from {
                    self.set_first(from);
                }
                return false;
            }
            None if new => {
                self.heard.set(millis);
                self.set_first(from);
                return true;
            }
            None => return false,
            Some(_) => {}
        }
        let heard = self.heard.millis();
        let Some(known) = self.other(&from) else {
            if new {
                self.add(from, millis);
            }
            // The first address was silent so long that the peer must have moved.
            let moved = heard == 0 || heard + ALIVE <= millis;
            return new && moved && self.make_first(from, millis);
        };
        let before = known.heard.millis();
        known.heard.set(millis);
        new && before >= heard + SILENT && self.make_first(from, millis)
    }

    fn add(&self, endpoint: Endpoint, millis: u64) {
        let others = self.others.load();
        let mut others: Vec<_> = others
            .iter()
            .flat_map(|others| others.iter().cloned())
            .collect();
        keep_beside(&mut others, endpoint, millis);
        self.others.store(Some(Arc::new(others)));
    }

    /// Makes an address the first, and keeps the old first beside it as a possible line. Returns `true`.
    fn make_first(&self, from: Endpoint, millis: u64) -> bool {
        let others = self.others.load();
        let rest = others.iter().flat_map(|others| others.iter());
        let mut rest: Vec<_> = rest
            .filter(|other| !is_at(&other.endpoint, &from))
            .cloned()
            .collect();
        let before = self.heard.millis();
        if let Some(endpoint) = self.first()
            && before > 0
        {
            keep_beside(&mut rest, endpoint, before);
        }
        self.set_first(from);
        self.heard.set(millis);
        self.others.store(Some(Arc::new(rest)));
        true
    }
}

/// Adds an address, heard at `millis`, to those beside the first. If there are too many, drops the one that was silent
/// longest.
fn keep_beside(others: &mut Vec<Arc<Other>>, endpoint: Endpoint, millis: u64) {
    if others.len() + 1 >= ADDRESSES_MAX {
        let longest = others.iter().enumerate();
        if let Some((at, _)) = longest.min_by_key(|(_, other)| other.heard.millis()) {
            others.swap_remove(at);
        }
    }
    let heard = Moment::default();
    heard.set(millis);
    others.push(Arc::new(Other { endpoint, heard }));
}

/// Whether a packet came from a known address. A known address without a source matches any source.
fn is_at(known: &Endpoint, from: &Endpoint) -> bool {
    let source = |endpoint: &Endpoint| endpoint.source.map(|source| source.ip);
    known.addr == from.addr && (known.source.is_none() || source(known) == source(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> Endpoint {
        Endpoint::new(([192, 0, 2, last], 1194).into())
    }

    fn alive(gathered: &Gathered) -> Vec<Endpoint> {
        let mut alive = Vec::new();
        gathered.alive(ALIVE, |endpoint, _| alive.push(endpoint));
        alive
    }

    #[test]
    fn a_second_line_is_kept_beside_the_first_while_both_are_heard() {
        let gathered = Gathered::default();
        assert!(gathered.heard_at(at(1), true, 1_000));
        for millis in (1_010..60_000).step_by(100) {
            assert!(!gathered.heard_at(at(2), true, millis));
            assert!(!gathered.heard_at(at(1), false, millis + 50));
        }
        assert_eq!(alive(&gathered), [at(1), at(2)]);
    }

    #[test]
    fn what_goes_nowhere_else_leaves_a_silent_address_sooner() {
        let gathered = Gathered::default();
        let shared = |gathered: &Gathered| {
            let mut shared = Vec::new();
            gathered.alive(ALIVE_FOR_SHARES, |endpoint, _| shared.push(endpoint));
            shared
        };
        gathered.heard_at(at(1), true, 1_000);
        gathered.heard_at(at(2), true, 1_100);
        for millis in (1_200..=4_100).step_by(100) {
            assert_eq!(shared(&gathered), [at(1), at(2)], "{millis}");
            gathered.heard_at(at(1), true, millis);
        }
        gathered.heard_at(at(1), true, 4_101);
        assert_eq!(shared(&gathered), [at(1)]);
        assert_eq!(alive(&gathered), [at(1), at(2)]);
        // Copies may be recordings, so they do not replace the first address.
        gathered.heard_at(at(2), false, 9_000);
        assert_eq!(shared(&gathered), [at(1), at(2)]);
    }

    #[test]
    fn a_peer_that_is_silent_at_its_first_address_and_heard_at_another_has_moved() {
        let gathered = Gathered::default();
        gathered.heard_at(at(1), true, 1_000);
        let mut moved = Vec::new();
        for millis in (1_100..9_000).step_by(100) {
            if gathered.heard_at(at(2), true, millis) {
                moved.push(millis);
            }
        }
        assert_eq!(moved, [1_600], "once");
        assert_eq!(gathered.first(), Some(at(2)));
        assert_eq!(alive(&gathered), [at(2)], "the old address is silent");
    }

    #[test]
    fn an_address_that_control_guessed_is_left_for_the_first_that_is_heard() {
        let gathered = Gathered::default();
        gathered.set_first(at(1));
        assert!(gathered.heard_at(at(2), true, 1_000));
        assert_eq!(alive(&gathered), [at(2)]);
    }

    #[test]
    fn copies_add_no_address_and_keep_one_alive_that_is_known() {
        let gathered = Gathered::default();
        gathered.heard_at(at(1), true, 1_000);
        gathered.heard_at(at(2), false, 1_100);
        assert_eq!(alive(&gathered), [at(1)]);
        gathered.heard_at(at(2), true, 1_200);
        gathered.heard_at(at(1), true, 9_000);
        assert_eq!(alive(&gathered), [at(1)]);
        gathered.heard_at(at(2), false, 9_100);
        assert_eq!(alive(&gathered), [at(1), at(2)]);
    }

    #[test]
    fn a_handshake_on_the_other_line_makes_the_first_no_stranger() {
        let gathered = Gathered::default();
        gathered.move_first(at(1), 900);
        assert_eq!(alive(&gathered), [at(1)]);
        gathered.heard_at(at(1), true, 1_000);
        gathered.move_first(at(2), 1_100);
        assert_eq!(alive(&gathered), [at(1)], "it may be a line that waits");
        gathered.heard_at(at(2), false, 1_200);
        assert_eq!(alive(&gathered), [at(1), at(2)], "copies come by it");
        gathered.heard_at(at(1), true, 1_700);
        gathered.move_first(at(2), 1_800);
        assert_eq!(alive(&gathered), [at(1), at(2)], "the first is heard");
    }

    #[test]
    fn a_peer_that_moved_while_it_was_silent_is_followed_at_once() {
        let gathered = Gathered::default();
        gathered.heard_at(at(1), true, 1_000);
        gathered.move_first(at(2), 9_000);
        assert_eq!(gathered.first(), Some(at(2)), "by a handshake");
        let gathered = Gathered::default();
        gathered.heard_at(at(1), true, 1_000);
        assert!(gathered.heard_at(at(2), true, 9_000), "by a packet");
        assert_eq!(gathered.first(), Some(at(2)));
    }

    #[test]
    fn addresses_are_bounded_and_the_one_that_was_silent_longest_makes_room() {
        let gathered = Gathered::default();
        for last in 1..=100 {
            gathered.heard_at(at(last), true, 1_000 + u64::from(last));
        }
        assert_eq!(alive(&gathered), [at(1), at(98), at(99), at(100)]);
    }

    /// A peer that moves while it is silent: each of its addresses becomes the first, by a handshake or by a packet.
    #[test]
    fn addresses_are_bounded_however_they_become_the_first() {
        for by_handshake in [true, false] {
            let gathered = Gathered::default();
            for last in 1..=200_u8 {
                let millis = u64::from(last) * 2 * ALIVE;
                if by_handshake {
                    gathered.move_first(at(last), millis);
                    gathered.note_heard(millis);
                } else {
                    gathered.heard_at(at(last), true, millis);
                }
                assert_eq!(gathered.first(), Some(at(last)));
                let others = gathered.others.load().as_ref().map_or(0, |it| it.len());
                assert!(others < ADDRESSES_MAX, "{others}");
            }
        }
    }

    #[test]
    fn one_address_that_is_called_at_two_of_ours_is_two_lines() {
        let source = |last| {
            Some(netio::udp::Source {
                ip: [10, 0, 0, last].into(),
                ifindex: 0,
            })
        };
        let [one, two] = [1, 2].map(|last| Endpoint {
            source: source(last),
            ..at(9)
        });
        let gathered = Gathered::default();
        gathered.set_first(at(9));
        gathered.heard_at(one, true, 1_000);
        gathered.heard_at(two, true, 1_001);
        assert_eq!(alive(&gathered), [one, two]);
    }
}
