//! The places of connections: how many there are, and which one goes for another.

use std::cmp::Reverse;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::network::Network;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// The request is not complete.
    Asking,
    /// The answer is being made. It is not taken back half way: a client may have been added.
    Working,
    /// The answer is being sent.
    Sending,
}

/// A connection that has a place.
#[derive(Debug)]
struct Held {
    /// Later ones have higher numbers.
    number: u64,
    network: Network,
    phase: Phase,
    stream: Option<Arc<TcpStream>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    held: Vec<Held>,
    /// Connections that had to give way, and whose threads have not noticed yet.
    leaving: usize,
}

/// All places.
#[derive(Clone, Debug)]
pub struct Places {
    most: usize,
    of_network: usize,
    table: Arc<Mutex<Table>>,
}

/// The place of a connection among the others, free again when it is dropped.
#[derive(Debug)]
pub struct Place {
    all: Places,
    number: u64,
}

impl Places {
    /// So many, and so many of them for one network.
    #[must_use]
    pub fn new(most: usize, of_network: usize) -> Self {
        Self {
            most,
            of_network,
            table: Arc::default(),
        }
    }

    /// A place for one more connection of a network.
    ///
    /// Where its network has as many as it may, the oldest of them that can goes for it. Where all places are taken, the
    /// oldest of the network that has most goes. None where each is at work.
    #[must_use]
    pub fn admit(&self, network: Network, stream: Option<Arc<TcpStream>>) -> Option<Place> {
        let mut table = self.lock();
        let own = table.of(network);
        let is_full = table.held.len() >= self.most;
        if own >= self.of_network || is_full {
            // Those that leave take little and are gone soon; yet they are no more than the others.
            if table.leaving >= self.most {
                return None;
            }
            let only = (own >= self.of_network).then_some(network);
            let victim = table.victim(only)?;
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
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Places that a network has.
    fn of(&self, network: Network) -> usize {
        self.held.iter().filter(|it| it.network == network).count()
    }

    /// Which goes for another, of one network or of all.
    fn victim(&self, only: Option<Network>) -> Option<usize> {
        let can_go = |it: &Held| {
            it.phase != Phase::Working && only.is_none_or(|network| it.network == network)
        };
        let candidates = self.held.iter().enumerate().filter(|(_, it)| can_go(it));
        let weight = |it: &Held| {
            let is_asking = it.phase == Phase::Asking;
            (self.of(it.network), is_asking, Reverse(it.number))
        };
        let victim = candidates.max_by_key(|(_, it)| weight(it));
        victim.map(|(index, _)| index)
    }
}

impl Place {
    /// The request is complete. False where the connection had to give way before: then nothing is to be done.
    #[must_use]
    pub fn begin_work(&self) -> bool {
        self.enter(Phase::Working)
    }

    /// The answer is there and is going to be sent.
    pub fn begin_sending(&self) {
        self.enter(Phase::Sending);
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
            None => table.leaving -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        Network::of(text.parse().unwrap())
    }

    /// Whether it still has its place.
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

    /// With addresses of one /64 that were counted apart, three would fill all places.
    #[test]
    fn a_device_with_many_addresses_has_no_more_places_than_another() {
        let all = Places::new(24, 8);
        let places: Vec<_> = (0..40)
            .filter_map(|number| all.admit(network(&format!("fd00::{}", number % 5)), None))
            .collect();
        assert_eq!(places.iter().filter(|it| is_held(it)).count(), 8);
        assert_eq!(all.lock().held.len(), 8);
    }

    #[test]
    fn another_network_always_gets_in_and_the_greediest_pays() {
        let all = Places::new(6, 5);
        let [few, many, owner] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(network);
        let small = all.admit(few, None).unwrap();
        let places: Vec<_> = (0..5).map(|_| all.admit(many, None).unwrap()).collect();
        // What is at work stays, and of the others the oldest goes.
        assert!(places[0].begin_work());
        let own = all.admit(owner, None).unwrap();
        assert!(is_held(&small) && is_held(&own) && is_held(&places[0]));
        assert!(!is_held(&places[1]) && is_held(&places[2]));
        assert!(!places[1].begin_work(), "it was closed");
        // Those that never finish go before one that takes its answer.
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

    #[test]
    fn connections_that_leave_are_bounded_too() {
        let all = Places::new(2, 1);
        let a = network("10.0.0.1");
        let kept: Vec<_> = (0..10).filter_map(|_| all.admit(a, None)).collect();
        assert_eq!(kept.len(), 3);
        drop(kept);
        assert!(all.admit(a, None).is_some());
    }
}
