//! Slots for connections: limits their number, and chooses which one gives way to a new one.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use plane::SourceNetwork;

/// Number of recent connections whose networks are remembered, to find networks that connect again and again. It allows
/// several for each address of a usual LAN.
const RECENT: usize = 1024;

/// Maximum number of networks that are remembered because somebody logged in from there.
const TRUSTED: usize = 32;

/// The progress of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// The request is not complete.
    Asking,
    /// The answer is being made. Such a connection never gives way: a client may just have been added.
    Working,
    /// The answer is being sent.
    Sending,
    /// The kernel has the whole answer, and only the client's close is missing. Giving way loses nothing.
    Sent,
}

/// A connection with a slot.
#[derive(Debug)]
struct Held {
    /// Later connections have higher numbers.
    number: u64,
    network: SourceNetwork,
    phase: Phase,
    stream: Option<Arc<TcpStream>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    held: Vec<Held>,
    /// Connections that gave way, but whose threads have not noticed yet.
    leaving: usize,
    /// The networks of the last connections, the latest last.
    recent: VecDeque<SourceNetwork>,
    /// Networks from which somebody has logged in, the latest last.
    trusted: VecDeque<SourceNetwork>,
}

/// Slots of all connections.
#[derive(Clone, Debug)]
pub struct Places {
    most: usize,
    of_network: usize,
    table: Arc<(Mutex<Table>, Condvar)>,
}

/// The slot of a connection; dropping it frees the slot.
#[derive(Debug)]
pub struct Place {
    all: Places,
    number: u64,
}

impl Places {
    /// Allows `most` connections, and `of_network` of them from one network.
    #[must_use]
    pub fn new(most: usize, of_network: usize) -> Self {
        Self {
            most,
            of_network,
            table: Arc::default(),
        }
    }

    /// Takes a slot for one more connection of a network.
    ///
    /// If the network has as many as it may, its oldest connection that can gives way. If all slots are taken, the
    /// network with the most connections gives way with its oldest one; among equals, the network that connected most
    /// often lately. `None` if every candidate is at work.
    #[must_use]
    pub fn admit(&self, network: SourceNetwork, stream: Option<Arc<TcpStream>>) -> Option<Place> {
        let mut table = self.lock();
        // Connections that gave way end soon; this bounds their number anyway.
        while table.leaving >= self.most {
            let waited = self.table.1.wait(table);
            table = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if table.recent.len() >= RECENT {
            table.recent.pop_front();
        }
        table.recent.push_back(network);
        let is_many = table.of(network) >= self.of_network;
        if is_many || table.held.len() >= self.most {
            let victim = table.victim(is_many.then_some(network))?;
            let gone = table.held.swap_remove(victim);
            table.leaving += 1;
            if let Some(stream) = gone.stream {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        let number = table.next;
        table.next += 1;
        table.held.push(Held {
            number,
            network,
            phase: Phase::Asking,
            stream,
        });
        Some(Place {
            all: self.clone(),
            number,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Number of slots that a network has.
    fn of(&self, network: SourceNetwork) -> usize {
        self.held.iter().filter(|it| it.network == network).count()
    }

    /// The connection that gives way, of one network or of all.
    fn victim(&self, only: Option<SourceNetwork>) -> Option<usize> {
        let can_go = |it: &Held| {
            it.phase != Phase::Working && only.is_none_or(|network| it.network == network)
        };
        let candidates = self.held.iter().enumerate().filter(|(_, it)| can_go(it));
        let weight = |it: &Held| {
            let is_stranger = !self.trusted.contains(&it.network);
            let recent = self.recent.iter().filter(|of| **of == it.network);
            let phase = match it.phase {
                Phase::Working | Phase::Sending => 0,
                Phase::Asking => 1,
                Phase::Sent => 2,
            };
            let age = Reverse(it.number);
            (is_stranger, self.of(it.network), recent.count(), phase, age)
        };
        let victim = candidates.max_by_key(|(_, it)| weight(it));
        victim.map(|(index, _)| index)
    }
}

impl Place {
    /// The request is complete. Returns false if the connection has given way already; then its thread must stop.
    #[must_use]
    pub fn begin_work(&self) -> bool {
        self.enter(Phase::Working)
    }

    /// The answer is complete and is about to be sent.
    pub fn begin_sending(&self) {
        self.enter(Phase::Sending);
    }

    /// The kernel has the whole answer.
    pub fn end_sending(&self) {
        self.enter(Phase::Sent);
    }

    /// A logged-in browser sent the request: connections of other networks give way first.
    pub fn trust(&self) {
        let mut table = self.all.lock();
        let own = table.held.iter().find(|it| it.number == self.number);
        let Some(network) = own.map(|it| it.network) else {
            return;
        };
        table.trusted.retain(|it| *it != network);
        if table.trusted.len() >= TRUSTED {
            table.trusted.pop_front();
        }
        table.trusted.push_back(network);
    }

    fn enter(&self, phase: Phase) -> bool {
        let mut table = self.all.lock();
        let own = table.held.iter_mut().find(|it| it.number == self.number);
        own.map(|it| it.phase = phase).is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.all.lock();
        match table.held.iter().position(|it| it.number == self.number) {
            Some(index) => drop(table.held.swap_remove(index)),
            None => {
                table.leaving -= 1;
                self.all.table.1.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> SourceNetwork {
        SourceNetwork::of(text.parse().unwrap())
    }

    /// Whether the connection still has its slot.
    fn is_held(place: &Place) -> bool {
        let table = place.all.lock();
        table.held.iter().any(|it| it.number == place.number)
    }

    #[test]
    fn places_are_counted_and_given_back() {
        let all = Places::new(3, 2);
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(network);
        let first = all.admit(a, None).unwrap();
        let second = all.admit(a, None).unwrap();
        drop(first);
        let third = all.admit(a, None).unwrap();
        let fourth = all.admit(b, None).unwrap();
        assert!([&second, &third, &fourth].into_iter().all(is_held));
        drop((second, third, fourth));
        let table = all.lock();
        assert_eq!((table.held.len(), table.leaving), (0, 0));
    }

    /// If the addresses of one /64 counted separately, three of them would fill all slots.
    #[test]
    fn a_device_with_many_addresses_has_no_more_places_than_another() {
        let all = Places::new(24, 8);
        let mut places = Vec::new();
        for number in 0..40 {
            let own = network(&format!("fd00::{}", number % 5));
            places.push(all.admit(own, None).unwrap());
            places.retain(is_held);
        }
        assert_eq!(places.len(), 8);
        assert_eq!(all.lock().held.len(), 8);
    }

    #[test]
    fn another_network_always_gets_in_and_the_greediest_pays() {
        let all = Places::new(6, 5);
        let [few, many, owner] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(network);
        let small = all.admit(few, None).unwrap();
        let places: Vec<_> = (0..5).map(|_| all.admit(many, None).unwrap()).collect();
        // A connection at work stays; the oldest of the others gives way.
        assert!(places[0].begin_work());
        let own = all.admit(owner, None).unwrap();
        assert!(is_held(&small) && is_held(&own) && is_held(&places[0]));
        assert!(!is_held(&places[1]) && is_held(&places[2]));
        assert!(!places[1].begin_work(), "it was closed");
        // An incomplete request gives way before an answer that is being sent.
        places[2].begin_sending();
        let _second = all.admit(owner, None).unwrap();
        assert!(is_held(&places[2]) && !is_held(&places[3]));
    }

    #[test]
    fn of_one_network_the_newest_gets_in() {
        let all = Places::new(6, 2);
        let a = network("10.0.0.1");
        let first = all.admit(a, None).unwrap();
        let second = all.admit(a, None).unwrap();
        let third = all.admit(a, None).unwrap();
        assert!(!is_held(&first) && is_held(&second) && is_held(&third));
        assert!(second.begin_work() && third.begin_work());
        assert!(all.admit(a, None).is_none());
    }

    /// A page that asks at each key, in a browser that is slow to close answered connections, loses no request.
    #[test]
    fn what_is_answered_goes_before_what_still_asks() {
        let all = Places::new(6, 3);
        let a = network("10.0.0.1");
        let asking = all.admit(a, None).unwrap();
        let sending = all.admit(a, None).unwrap();
        let answered = all.admit(a, None).unwrap();
        for place in [&sending, &answered] {
            assert!(place.begin_work());
            place.begin_sending();
        }
        answered.end_sending();
        let _next = all.admit(a, None).unwrap();
        assert!(is_held(&asking) && is_held(&sending) && !is_held(&answered));
    }

    /// Six networks connect again and again, each with one connection at a time.
    #[test]
    fn those_who_come_again_and_again_go_before_others() {
        let all = Places::new(4, 2);
        let nth = |number: usize| network(&format!("10.0.0.{}", number % 6));
        let mut places = Vec::new();
        for number in 0..100 {
            places.push(all.admit(nth(number), None).unwrap());
            places.retain(is_held);
        }
        let owner = all.admit(network("10.0.1.1"), None).unwrap();
        for number in 0..100 {
            places.retain(is_held);
            places.push(all.admit(nth(number), None).unwrap());
            assert!(is_held(&owner));
        }
    }

    #[test]
    fn a_network_with_a_session_goes_last() {
        let all = Places::new(3, 3);
        let [owner, other] = ["10.0.0.1", "10.0.0.2"].map(network);
        let first = all.admit(owner, None).unwrap();
        first.trust();
        let second = all.admit(owner, None).unwrap();
        let mut strangers = Vec::new();
        for _ in 0..10 {
            strangers.retain(is_held);
            strangers.push(all.admit(other, None).unwrap());
        }
        assert!(is_held(&first) && is_held(&second));
    }

    #[test]
    fn connections_that_leave_are_bounded_too() {
        let all = Places::new(2, 1);
        let a = network("10.0.0.1");
        let (give, take) = std::sync::mpsc::channel();
        let coming = all.clone();
        let thread = std::thread::spawn(move || {
            for _ in 0..100 {
                give.send(coming.admit(a, None).unwrap()).unwrap();
                assert!(coming.lock().leaving <= 2);
            }
        });
        for place in take {
            drop(place);
        }
        thread.join().unwrap();
        assert_eq!(all.lock().leaving, 0);
    }
}
